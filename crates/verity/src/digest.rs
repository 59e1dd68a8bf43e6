//! The digest of a file, and its text.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::{Algorithm, Hash};
use crate::error::VerityError;

/// The digest of a file: the hash of its descriptor. As text `sha256:` and digits, as fsverity(1)
/// prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Digest {
    algorithm: Algorithm,
    hash: Hash,
}

impl Digest {
    pub(crate) fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        Self { algorithm, hash: algorithm.hash(bytes) }
    }

    /// Its algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.hash.0.get(..self.algorithm.len()).unwrap_or_default()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm.name())?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = VerityError;

    /// # Errors
    /// Text that is no digest.
    fn from_str(text: &str) -> Result<Self, VerityError> {
        let (name, digits) = text.split_once(':').ok_or(VerityError::Algorithm)?;
        let algorithm = Algorithm::from_name(name).ok_or(VerityError::Algorithm)?;
        let digits = digits.as_bytes();
        if digits.len() != 2 * algorithm.len() {
            return Err(VerityError::Algorithm);
        }
        let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let mut hash = Hash([0; 64]);
        for (to, pair) in hash.0.iter_mut().zip(digits.chunks(2)) {
            let &[high, low] = pair else { return Err(VerityError::Algorithm) };
            let both = digit(high).zip(digit(low)).ok_or(VerityError::Algorithm)?;
            *to = both.0 << 4 | both.1;
        }
        Ok(Self { algorithm, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for algorithm in Algorithm::ALL {
            let digest = Digest::of(algorithm, b"abc");
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
        let text = Digest::of(Algorithm::Sha256, b"abc").to_string();
        assert!(text.starts_with("sha256:ba7816bf8f01cfea"), "{text}");
        for bad in ["", "sha256", "sha256:", "md5:00", &text[..70], &text.replace('b', "g")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
