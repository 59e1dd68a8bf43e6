//! The descriptor of a file: all that decides its digest, and perhaps a signature.

use crate::algorithm::{Algorithm, MAX_HASH};
use crate::digest::Digest;
use crate::error::{Result, VerityError};
use crate::params::{MAX_SALT, Params, Salt};

/// Bytes of a descriptor without its signature.
pub const DESCRIPTOR_LEN: usize = 256;
/// Bytes of the longest signature that Linux takes.
pub const MAX_SIGNATURE: usize = 16_384 - DESCRIPTOR_LEN;

// The fields, by their first byte.
const VERSION: usize = 0;
const ALGORITHM: usize = 1;
const LOG_BLOCK_SIZE: usize = 2;
const SALT_SIZE: usize = 3;
const SIGNATURE_SIZE: usize = 4;
const DATA_SIZE: usize = 8;
const ROOT: usize = 16;
const SALT: usize = 80;
const RESERVED: usize = 112;

/// The descriptor of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    params: Params,
    data_size: u64,
    /// As stored: bytes behind the salt and the root hash count for the digest.
    bytes: [u8; DESCRIPTOR_LEN],
    signature: Vec<u8>,
}

impl Descriptor {
    /// The descriptor of a file of so many bytes, with the root hash of its tree.
    ///
    /// # Errors
    /// A signature of more than [`MAX_SIGNATURE`] bytes.
    pub fn new(
        params: Params,
        data_size: u64,
        root: &[u8; MAX_HASH],
        signature: Vec<u8>,
    ) -> Result<Self> {
        if signature.len() > MAX_SIGNATURE {
            return Err(VerityError::Signature);
        }
        let salt = params.salt().bytes();
        let mut bytes = [0; DESCRIPTOR_LEN];
        put(&mut bytes, VERSION, &[1]);
        put(&mut bytes, ALGORITHM, &[params.algorithm().id()]);
        put(&mut bytes, LOG_BLOCK_SIZE, &[params.block_size().trailing_zeros() as u8]);
        put(&mut bytes, SALT_SIZE, &[salt.len() as u8]);
        put(&mut bytes, SIGNATURE_SIZE, &(signature.len() as u32).to_le_bytes());
        put(&mut bytes, DATA_SIZE, &data_size.to_le_bytes());
        put(&mut bytes, ROOT, root.get(..params.algorithm().len()).unwrap_or_default());
        put(&mut bytes, SALT, salt);
        Ok(Self { params, data_size, bytes, signature })
    }

    /// Reads the descriptor of a file of so many bytes, with the rules of Linux.
    ///
    /// # Errors
    /// One that Linux takes for damaged as well.
    pub fn parse(bytes: &[u8], data_size: u64) -> Result<Self> {
        let bad = |what| Err(VerityError::Descriptor(what));
        let Some((fixed, rest)) = bytes.split_first_chunk::<DESCRIPTOR_LEN>() else {
            return bad("is cut short");
        };
        if fixed[VERSION] != 1 {
            return bad("has an unknown version");
        }
        if fixed[RESERVED..].iter().any(|byte| *byte != 0) {
            return bad("has reserved bytes that are not zero");
        }
        let Some(algorithm) = Algorithm::from_id(fixed[ALGORITHM]) else {
            return bad("has an unknown hash algorithm");
        };
        let salt = usize::from(fixed[SALT_SIZE]);
        if salt > MAX_SALT {
            return bad("has a salt that is too long");
        }
        let salt = Salt::new(&fixed[SALT..SALT + salt])?;
        let block_size = 1_u32.checked_shl(fixed[LOG_BLOCK_SIZE].into()).unwrap_or(0);
        let Ok(params) = Params::new(algorithm, block_size, salt) else {
            return bad("has an impossible block size");
        };
        if array::<8>(fixed, DATA_SIZE) != data_size.to_le_bytes() {
            return bad("has another size than the file");
        }
        let signature = u32::from_le_bytes(array(fixed, SIGNATURE_SIZE));
        let signature = usize::try_from(signature).ok().and_then(|len| rest.get(..len));
        let Some(signature) = signature.filter(|signature| signature.len() <= MAX_SIGNATURE) else {
            return bad("has a signature that is too long");
        };
        Ok(Self { params, data_size, bytes: *fixed, signature: signature.to_vec() })
    }

    /// Its bytes: those of a descriptor, and the signature behind them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.bytes[..], &self.signature].concat()
    }

    /// The same without its signature, which may be long and has no part in the digest.
    #[must_use]
    pub fn without_signature(mut self) -> Self {
        put(&mut self.bytes, SIGNATURE_SIZE, &[0; 4]);
        self.signature = Vec::new();
        self
    }

    /// The digest of the file.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut bytes = self.bytes;
        put(&mut bytes, SIGNATURE_SIZE, &[0; 4]);
        Digest::of(self.params.algorithm(), &bytes)
    }

    /// What the tree is made with.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Bytes of the file.
    #[must_use]
    pub fn data_size(&self) -> u64 {
        self.data_size
    }

    /// The root hash of the tree.
    #[must_use]
    pub fn root(&self) -> &[u8] {
        &self.bytes[ROOT..ROOT + self.params.algorithm().len()]
    }

    /// The signature in it, which Linux checks with keys of its own; empty if there is none.
    #[must_use]
    pub fn signature(&self) -> &[u8] {
        &self.signature
    }
}

fn put(bytes: &mut [u8; DESCRIPTOR_LEN], at: usize, what: &[u8]) {
    bytes.iter_mut().skip(at).zip(what).for_each(|(to, from)| *to = *from);
}

fn array<const N: usize>(bytes: &[u8; DESCRIPTOR_LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(signature: &[u8]) -> Descriptor {
        let salt = Salt::new(b"salt").unwrap();
        let params = Params::new(Algorithm::Sha256, 4096, salt).unwrap();
        Descriptor::new(params, 5000, &[7; 64], signature.to_vec()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        for signature in [&b""[..], b"signed"] {
            let made = some(signature);
            let mut bytes = made.to_bytes();
            assert_eq!(Descriptor::parse(&bytes, 5000), Ok(made.clone()));
            assert_eq!(made.root(), [7; 32]);
            assert_eq!(made.digest(), some(b"").digest(), "a signature is not in the digest");
            assert_eq!(made.clone().without_signature(), some(b""));
            // Linux stores what is behind the signature and ignores it.
            bytes.extend([9; 100]);
            assert_eq!(Descriptor::parse(&bytes, 5000), Ok(made));
        }
        let params = some(b"").params;
        let long = Descriptor::new(params, 1, &[0; 64], vec![0; MAX_SIGNATURE + 1]);
        assert_eq!(long, Err(VerityError::Signature));
    }

    #[test]
    fn every_damaged_field_is_refused() {
        let good = some(b"signed").to_bytes();
        let damage = [(0, 2), (1, 0), (1, 3), (2, 9), (2, 17), (2, 255), (3, 33), (4, 7), (7, 255)];
        for (at, value) in damage.into_iter().chain([(8, 0), (15, 1), (112, 1), (255, 1)]) {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Descriptor::parse(&bytes, 5000).is_err(), "byte {at} is {value}");
        }
        for len in 0..good.len() {
            assert!(Descriptor::parse(&good[..len], 5000).is_err(), "{len} bytes");
        }
        assert!(Descriptor::parse(&good, 5001).is_err());
    }

    #[test]
    fn bytes_behind_salt_and_root_hash_change_the_digest() {
        let made = some(b"");
        for at in [16 + 32, 80 + 4] {
            let mut bytes = made.to_bytes();
            bytes[at] = 1;
            let read = Descriptor::parse(&bytes, 5000).unwrap();
            assert_ne!(read.digest(), made.digest());
            assert_eq!((read.params(), read.root()), (made.params(), made.root()));
        }
    }
}
