//! Digests: names of contents, and readers that compare.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256, Sha512};

/// What contents must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// How many characters of a digest a message has.
const SHOWN: usize = 12;

impl Digest {
    /// Reads `sha256:HEX`. `None` for what is no digest, so that it is safe as a name of a file.
    pub fn parse(text: &str) -> Option<Self> {
        let (algorithm, hex) = text.split_once(':')?;
        let (algorithm, len) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return None,
        };
        let is_hex = hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_hex && hex.len() == len).then(|| Self { algorithm, hex: hex.to_owned() })
    }

    /// The name of the file in a layout.
    pub fn path(&self) -> String {
        format!("blobs/{}/{}", self.name(), self.hex)
    }

    fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// True if these bytes have it.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = Hasher::of(self);
        hasher.update(bytes);
        hasher.hex() == self.hex
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name(), &self.hex[..SHOWN])
    }
}

enum Hasher {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Hasher {
    fn of(digest: &Digest) -> Self {
        match digest.algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Box::new(Sha512::new())),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn hex(self) -> String {
        let bytes = match self {
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A reader whose contents must have a digest: at their end, the last read fails if they do not.
pub(super) struct Checked<R> {
    input: R,
    digest: Option<Digest>,
    hasher: Option<Hasher>,
}

impl<R: Read> Checked<R> {
    /// Without a digest nothing is compared.
    pub fn new(input: R, digest: Option<Digest>) -> Self {
        let hasher = digest.as_ref().map(Hasher::of);
        Self { input, digest, hasher }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buf[..len]);
        }
        if len == 0
            && !buf.is_empty()
            && let (Some(digest), Some(hasher)) = (&self.digest, self.hasher.take())
            && hasher.hex() != digest.hex
        {
            let why = format!("its contents do not have the digest {digest}: the image is damaged");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::{Checked, Digest};

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn only_digests_are_names() {
        let digest = Digest::parse(EMPTY).expect("a digest");
        assert!(digest.path().starts_with("blobs/sha256/e3b0c442"));
        assert!(digest.is_of(b"") && !digest.is_of(b"x"));
        for text in [
            "",
            "sha256:",
            "sha256:../../../etc/passwd",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &EMPTY[..70],
            &EMPTY.to_uppercase(),
            &format!("{EMPTY}0"),
            &EMPTY.replace(':', "/"),
        ] {
            assert!(Digest::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn wrong_contents_fail_at_their_end() {
        let digest = Digest::parse(EMPTY);
        let mut out = Vec::new();
        Checked::new(&b""[..], digest.clone()).read_to_end(&mut out).expect("right");
        let error = Checked::new(&b"x"[..], digest).read_to_end(&mut out).expect_err("wrong");
        assert!(error.to_string().contains("do not have the digest sha256:e3b0c44298fc"));
        Checked::new(&b"x"[..], None).read_to_end(&mut out).expect("not compared");
    }
}
