//! What names are called as long as their key is not there.
//!
//! Such a name is the base64url form of a record: the two hashes of the name in its directory, the
//! first 149 bytes of the encrypted name, and the SHA-256 of what is behind them. So it is never
//! longer than a name may be, holds neither `/` nor a zero byte, and names one entry.

use sha2::{Digest, Sha256};

use crate::{BadName, MIN_NAME};

const HASHES: usize = 8;
/// Bytes of the encrypted name that the record holds.
const HELD: usize = 149;
const TAIL: usize = 32;
const RECORD: usize = HASHES + HELD + TAIL;

/// Longest no-key name.
pub const MAX_NOKEY_NAME: usize = (RECORD * 4).div_ceil(3);

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A no-key name, as a lookup is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKeyName {
    /// Hash of the name in its directory, and the minor hash. Both are zero where the directory
    /// was not listed in the order of hashes.
    pub hash: [u32; 2],
    held: Vec<u8>,
    tail: Option<[u8; TAIL]>,
}

impl NoKeyName {
    /// What an encrypted name is called.
    ///
    /// # Errors
    ///
    /// If the encrypted name is too short to be one.
    pub fn shown(hash: [u32; 2], encrypted: &[u8]) -> Result<Vec<u8>, BadName> {
        if encrypted.len() < MIN_NAME {
            return Err(BadName::TooShort(encrypted.len()));
        }
        // The minor hash counts only beside a hash.
        let hash = if hash[0] == 0 { [0; 2] } else { hash };
        let mut record = Vec::with_capacity(RECORD);
        record.extend(hash.iter().flat_map(|part| part.to_le_bytes()));
        let (held, behind) = encrypted.split_at(encrypted.len().min(HELD));
        record.extend_from_slice(held);
        if !behind.is_empty() {
            record.extend_from_slice(&Sha256::digest(behind));
        }
        Ok(encode(&record))
    }

    /// How long the name of an encrypted name of `len` bytes is.
    #[must_use]
    pub const fn shown_len(len: usize) -> usize {
        let record = if len > HELD { RECORD } else { HASHES + len };
        (record * 4).div_ceil(3)
    }

    /// Reads a name. None: no encrypted name is called this.
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        if name.len() > MAX_NOKEY_NAME {
            return None;
        }
        let record = decode(name)?;
        let (hash, rest) = record.split_first_chunk::<4>()?;
        let (minor, rest) = rest.split_first_chunk::<4>()?;
        let (held, tail) = match rest.len() {
            1..=HELD => (rest, None),
            len if len == HELD + TAIL => {
                let (held, tail) = rest.split_at(HELD);
                (held, Some(tail.try_into().ok()?))
            }
            _ => return None,
        };
        let hash = [u32::from_le_bytes(*hash), u32::from_le_bytes(*minor)];
        Some(Self { hash, held: held.to_vec(), tail })
    }

    /// The whole encrypted name, if it is short enough to be held.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        self.tail.is_none().then_some(&self.held)
    }

    /// Whether it names this entry.
    #[must_use]
    pub fn matches(&self, encrypted: &[u8]) -> bool {
        match self.tail {
            None => encrypted == self.held,
            Some(tail) => encrypted.split_at_checked(HELD).is_some_and(|(held, behind)| {
                held == self.held && !behind.is_empty() && Sha256::digest(behind)[..] == tail
            }),
        }
    }
}

/// base64url without padding.
fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity((bytes.len() * 4).div_ceil(3));
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let group = u32::from_be_bytes(group);
        out.extend((0..=chunk.len()).map(|i| DIGITS[(group >> (18 - 6 * i) & 63) as usize]));
    }
    out
}

/// The bytes of digits. The bits that are left over must be zero.
fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for &digit in digits {
        bits = bits << 6 | value(digit)?;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(out)
}

fn value(digit: u8) -> Option<u32> {
    let number = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(number.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base64url_is_as_in_rfc_4648_without_padding() {
        let known: [(&[u8], &[u8]); 7] = [
            (b"", b""),
            (b"f", b"Zg"),
            (b"fo", b"Zm8"),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg"),
            (b"fooba", b"Zm9vYmE"),
            (&[0xFB, 0xFF, 0xBF], b"-_-_"),
        ];
        for (bytes, digits) in known {
            assert_eq!(encode(bytes), digits);
            assert_eq!(decode(digits).as_deref(), Some(bytes));
        }
        for bad in [&b"Zh"[..], b"Zm9", b"Zg==", b"Z+", b"Z/", b"B", b"Zg\0"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_no_key_name_fits_into_a_name() {
        assert_eq!(MAX_NOKEY_NAME, 252);
        let longest = NoKeyName::shown([1, 2], &[0xA5; 255]).unwrap();
        assert_eq!(longest.len(), 252);
        assert_eq!(NoKeyName::shown([1, 2], &[1; 15]), Err(BadName::TooShort(15)));
    }

    #[test]
    fn names_that_no_entry_is_called_are_none() {
        let record = |len: usize| encode(&vec![1; len]);
        for len in 0..=RECORD {
            let fits = (9..=157).contains(&len) || len == RECORD;
            assert_eq!(NoKeyName::parse(&record(len)).is_some(), fits, "{len}");
        }
        assert_eq!(NoKeyName::parse(&[b'A'; 253]), None);
        assert_eq!(NoKeyName::parse(b"a.txt"), None);
    }

    #[test]
    fn a_long_name_matches_by_the_hash_of_its_tail_alone() {
        let mut name: Vec<u8> = (0..200).collect();
        let parsed = NoKeyName::parse(&NoKeyName::shown([3, 4], &name).unwrap()).unwrap();
        assert_eq!((parsed.hash, parsed.whole()), ([3, 4], None));
        assert!(parsed.matches(&name));
        assert!(!parsed.matches(&name[..149]));
        assert!(!parsed.matches(&name[..199]));
        name[199] ^= 1;
        assert!(!parsed.matches(&name));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(
            hash in any::<[u32; 2]>(),
            name in proptest::collection::vec(any::<u8>(), 16..=255),
        ) {
            let shown = NoKeyName::shown(hash, &name).unwrap();
            let parsed = NoKeyName::parse(&shown).unwrap();
            prop_assert_eq!(parsed.hash, if hash[0] == 0 { [0; 2] } else { hash });
            prop_assert!(parsed.matches(&name));
            prop_assert_eq!(NoKeyName::shown_len(name.len()), shown.len());
            prop_assert_eq!(parsed.whole().is_some(), name.len() <= HELD);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            name in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let _ = NoKeyName::parse(&name);
        }
    }
}
