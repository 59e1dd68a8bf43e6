//! Encrypted names, and encrypted targets of symbolic links.

use crate::{FileKey, MIN_NAME};

/// A name or target that was not encrypted by any key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// Too few bytes.
    #[error("an encrypted name of {0} bytes")]
    TooShort(usize),
    /// The length in front of a target does not fit.
    #[error("an encrypted target with a length that does not fit")]
    Length,
    /// A target of no bytes.
    #[error("an encrypted target that is empty")]
    Empty,
    /// There are no ciphers: the feature `ciphers` is off.
    #[error("this program is built without encryption")]
    NotBuilt,
}

/// Bytes of the encrypted form of a name of `len` bytes, if at most `most` are allowed for both.
#[must_use]
pub fn encrypted_len(padding: usize, len: usize, most: usize) -> Option<usize> {
    (len <= most).then(|| len.max(MIN_NAME).next_multiple_of(padding).min(most))
}

/// The encrypted form of a name, of which `most` bytes are allowed.
#[must_use]
pub fn encrypted_name(key: &FileKey, name: &[u8], most: usize) -> Option<Vec<u8>> {
    let len = encrypted_len(key.padding(), name.len(), most)?;
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(name);
    out.resize(len, 0);
    key.encrypt_text(&mut out);
    Some(out)
}

/// The name whose encrypted form this is. With a wrong key or damaged bytes it is any text.
///
/// # Errors
///
/// If it is too short.
pub fn decrypted_name(key: &FileKey, encrypted: &[u8]) -> Result<Vec<u8>, BadName> {
    if encrypted.len() < MIN_NAME {
        return Err(BadName::TooShort(encrypted.len()));
    }
    let mut out = encrypted.to_vec();
    key.decrypt_text(&mut out);
    let end = out.iter().position(|&byte| byte == 0).unwrap_or(out.len());
    out.truncate(end);
    Ok(out)
}

/// Targets of symbolic links. In the inode, or in its block, stands the length of the encrypted
/// target in two bytes, and the target.
pub mod symlink {
    use super::{BadName, FileKey, decrypted_name, encrypted_len, encrypted_name};

    const HEAD: usize = 2;
    /// Linux counts a zero byte behind the target, and writes none.
    const END: usize = 1;

    /// Bytes that a target of `len` bytes takes, on a volume with blocks of `block` bytes.
    #[must_use]
    pub fn stored_len(padding: usize, len: usize, block: usize) -> Option<usize> {
        Some(HEAD + encrypted_len(padding, len, block.checked_sub(HEAD + END)?)?)
    }

    /// What is stored for a target.
    #[must_use]
    pub fn stored(key: &FileKey, target: &[u8], block: usize) -> Option<Vec<u8>> {
        let encrypted = encrypted_name(key, target, block.checked_sub(HEAD + END)?)?;
        let len = u16::try_from(encrypted.len()).ok()?;
        Some(len.to_le_bytes().into_iter().chain(encrypted).collect())
    }

    /// The encrypted target in what is stored.
    ///
    /// # Errors
    ///
    /// If the length does not fit, or is zero.
    pub fn encrypted(stored: &[u8]) -> Result<&[u8], BadName> {
        let (len, rest) = stored.split_first_chunk::<HEAD>().ok_or(BadName::Length)?;
        match usize::from(u16::from_le_bytes(*len)) {
            0 => Err(BadName::Empty),
            len => rest.get(..len).ok_or(BadName::Length),
        }
    }

    /// The target.
    ///
    /// # Errors
    ///
    /// If what is stored is damaged, or the target is empty.
    pub fn target(key: &FileKey, stored: &[u8]) -> Result<Vec<u8>, BadName> {
        let target = decrypted_name(key, encrypted(stored)?)?;
        if target.is_empty() { Err(BadName::Empty) } else { Ok(target) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn lengths_of_targets_that_do_not_fit_are_told() {
            assert_eq!(encrypted(&[]), Err(BadName::Length));
            assert_eq!(encrypted(&[3]), Err(BadName::Length));
            assert_eq!(encrypted(&[0, 0]), Err(BadName::Empty));
            assert_eq!(encrypted(&[0, 0, 1]), Err(BadName::Empty));
            assert_eq!(encrypted(&[3, 0, 1, 2]), Err(BadName::Length));
            assert_eq!(encrypted(&[3, 0, 1, 2, 3, 4]), Ok(&[1, 2, 3][..]));
            assert_eq!(encrypted(&[0, 1, 1]), Err(BadName::Length));
        }

        #[test]
        fn the_longest_target_is_three_bytes_shorter_than_a_block() {
            assert_eq!(stored_len(4, 1, 1024), Some(18));
            assert_eq!(stored_len(32, 17, 1024), Some(34));
            assert_eq!(stored_len(32, 1021, 1024), Some(1023));
            assert_eq!(stored_len(4, 1020, 1024), Some(1022));
            assert_eq!(stored_len(4, 1022, 1024), None);
            assert_eq!(stored_len(4, 1, 2), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_padded_and_have_16_to_255_bytes() {
        assert_eq!(encrypted_len(4, 0, 255), Some(16));
        assert_eq!(encrypted_len(4, 16, 255), Some(16));
        assert_eq!(encrypted_len(4, 17, 255), Some(20));
        assert_eq!(encrypted_len(32, 1, 255), Some(32));
        assert_eq!(encrypted_len(32, 225, 255), Some(255));
        assert_eq!(encrypted_len(4, 253, 255), Some(255));
        assert_eq!(encrypted_len(4, 255, 255), Some(255));
        assert_eq!(encrypted_len(4, 256, 255), None);
    }
}
