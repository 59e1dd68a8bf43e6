//! The cipher of one inode, with its IVs.

use std::fmt;

use zeroize::Zeroizing;

use crate::cipher::{Cipher, Iv};
use crate::key::{Derived, MasterKey};
use crate::{BadKey, Checked, Context, Flags, KeySpec, Mode, NONCE_LEN};

/// What an inode is encrypted with: the contents of a regular file; the names in a directory; the
/// target of a symbolic link.
///
/// Its bytes are overwritten when it is dropped, and are never shown.
pub struct FileKey {
    cipher: Cipher,
    ivs: Ivs,
    unit_bits: u8,
    padding: usize,
    dir_hash: Option<Zeroizing<[u8; 16]>>,
}

/// How the index of a data unit becomes an IV.
enum Ivs {
    /// It is the IV.
    Index,
    /// The nonce comes behind it.
    Nonce([u8; NONCE_LEN]),
    /// The number of the inode is its upper half.
    Inode(u32),
    /// A hash of the inode's number is added.
    Hashed(u32),
}

impl FileKey {
    /// The key of the contents of a regular file.
    ///
    /// # Errors
    ///
    /// If the master key is too short.
    pub fn contents(
        master: &MasterKey,
        policy: &Checked,
        context: &Context,
        ino: u32,
    ) -> Result<Self, BadKey> {
        Self::new(master, policy, context, ino, policy.contents)
    }

    /// The key of the names in a directory, or of the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// If the master key is too short.
    pub fn names(
        master: &MasterKey,
        policy: &Checked,
        context: &Context,
        ino: u32,
    ) -> Result<Self, BadKey> {
        let mut key = Self::new(master, policy, context, ino, policy.names)?;
        if let KeySpec::Identifier(_) = policy.policy.key {
            key.dir_hash = Some(master.dir_hash(&context.nonce));
        }
        Ok(key)
    }

    fn new(
        master: &MasterKey,
        policy: &Checked,
        context: &Context,
        ino: u32,
        mode: Mode,
    ) -> Result<Self, BadKey> {
        let nonce = &context.nonce;
        let flags = policy.policy.flags;
        let v1 = matches!(policy.policy.key, KeySpec::Descriptor(_));
        let (key, ivs): (Derived, Ivs) = if flags.contains(Flags::DIRECT_KEY) {
            let key = if v1 { master.whole(mode)? } else { master.direct(mode)? };
            (key, Ivs::Nonce(*nonce))
        } else if v1 {
            (master.per_file_v1(mode, nonce)?, Ivs::Index)
        } else if flags.contains(Flags::IV_INO_LBLK_64) {
            (master.ino_lblk_64(mode, &policy.uuid)?, Ivs::Inode(ino))
        } else if flags.contains(Flags::IV_INO_LBLK_32) {
            (master.ino_lblk_32(mode, &policy.uuid)?, Ivs::Hashed(master.hashed_ino(ino)))
        } else {
            (master.per_file(mode, nonce)?, Ivs::Index)
        };
        Ok(Self {
            cipher: Cipher::new(mode, &key),
            ivs,
            unit_bits: policy.unit_bits,
            padding: policy.policy.padding(),
            dir_hash: None,
        })
    }

    /// Bytes of a data unit: contents are encrypted in whole ones.
    #[must_use]
    pub const fn unit(&self) -> usize {
        1 << self.unit_bits
    }

    /// Names are padded to a multiple of so many bytes.
    #[must_use]
    pub const fn padding(&self) -> usize {
        self.padding
    }

    /// The key of [hashes](crate::siphash24) of names in a case-insensitive directory. Policies of
    /// version 1 have none.
    #[must_use]
    pub fn dir_hash(&self) -> Option<&[u8; 16]> {
        self.dir_hash.as_deref()
    }

    /// Encrypts whole data units, of which `first` is the number of the first one in the file.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        debug_assert!(data.len().is_multiple_of(self.unit()));
        for (index, unit) in (first..).zip(data.chunks_exact_mut(self.unit())) {
            self.cipher.encrypt(&self.iv(index), unit);
        }
    }

    /// Decrypts what [`Self::encrypt`] made.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        debug_assert!(data.len().is_multiple_of(self.unit()));
        for (index, unit) in (first..).zip(data.chunks_exact_mut(self.unit())) {
            self.cipher.decrypt(&self.iv(index), unit);
        }
    }

    /// Encrypts a padded name or target.
    pub(crate) fn encrypt_text(&self, text: &mut [u8]) {
        self.cipher.encrypt(&self.iv(0), text);
    }

    /// Decrypts a padded name or target of at least 16 bytes.
    pub(crate) fn decrypt_text(&self, text: &mut [u8]) {
        self.cipher.decrypt(&self.iv(0), text);
    }

    fn iv(&self, index: u64) -> Iv {
        let mut iv = [0; 32];
        let index = match &self.ivs {
            Ivs::Index => index,
            Ivs::Nonce(nonce) => {
                iv[8..8 + NONCE_LEN].copy_from_slice(nonce);
                index
            }
            Ivs::Inode(ino) => index | u64::from(*ino) << 32,
            // The sum wraps at 32 bits.
            Ivs::Hashed(hash) => u64::from(hash.wrapping_add(index as u32)),
        };
        iv[..8].copy_from_slice(&index.to_le_bytes());
        iv
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileKey").finish_non_exhaustive()
    }
}
