//! In place of `cipher`, `file`, `key` and `nokey` in a build without the feature `ciphers`: no key
//! is accepted, so there is none, and names have no no-key names.

use crate::{BadKey, BadName, Checked, Context, DESCRIPTOR_LEN, IDENTIFIER_LEN};

/// Longest no-key name: that of a build with ciphers.
pub const MAX_NOKEY_NAME: usize = 252;

/// A secret that whole trees are encrypted with. There is none.
#[derive(Clone, Copy, Debug)]
pub enum MasterKey {}

impl MasterKey {
    /// Refuses any key.
    ///
    /// # Errors
    ///
    /// Always [`BadKey::NotBuilt`].
    pub const fn new(_raw: &[u8]) -> Result<Self, BadKey> {
        Err(BadKey::NotBuilt)
    }

    /// What policies of version 2 call it.
    #[must_use]
    pub const fn identifier(&self) -> [u8; IDENTIFIER_LEN] {
        match *self {}
    }

    /// What tools call it by custom in policies of version 1.
    #[must_use]
    pub const fn descriptor(&self) -> [u8; DESCRIPTOR_LEN] {
        match *self {}
    }
}

/// What an inode is encrypted with. There is none.
#[derive(Clone, Copy, Debug)]
pub enum FileKey {}

impl FileKey {
    /// The key of the contents of a regular file.
    ///
    /// # Errors
    ///
    /// None: there is no master key.
    pub const fn contents(
        master: &MasterKey,
        _policy: &Checked,
        _context: &Context,
        _ino: u32,
    ) -> Result<Self, BadKey> {
        match *master {}
    }

    /// The key of the names in a directory, or of the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// None: there is no master key.
    pub const fn names(
        master: &MasterKey,
        _policy: &Checked,
        _context: &Context,
        _ino: u32,
    ) -> Result<Self, BadKey> {
        match *master {}
    }

    /// Bytes of a data unit.
    #[must_use]
    pub const fn unit(&self) -> usize {
        match *self {}
    }

    /// Names are padded to a multiple of so many bytes.
    #[must_use]
    pub const fn padding(&self) -> usize {
        match *self {}
    }

    /// The key of hashes of names in a case-insensitive directory.
    #[must_use]
    pub const fn dir_hash(&self) -> Option<&[u8; 16]> {
        match *self {}
    }

    /// Encrypts whole data units.
    pub const fn encrypt(&self, _first: u64, _data: &mut [u8]) {
        match *self {}
    }

    /// Decrypts whole data units.
    pub const fn decrypt(&self, _first: u64, _data: &mut [u8]) {
        match *self {}
    }

    pub(crate) const fn encrypt_text(&self, _text: &mut [u8]) {
        match *self {}
    }

    pub(crate) const fn decrypt_text(&self, _text: &mut [u8]) {
        match *self {}
    }
}

/// A no-key name. There is none: its hash needs SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKeyName {
    /// Hash of the name in its directory, and the minor hash.
    pub hash: [u32; 2],
    never: std::convert::Infallible,
}

impl NoKeyName {
    /// What an encrypted name is called: nothing.
    ///
    /// # Errors
    ///
    /// Always [`BadName::NotBuilt`].
    pub const fn shown(_hash: [u32; 2], _encrypted: &[u8]) -> Result<Vec<u8>, BadName> {
        Err(BadName::NotBuilt)
    }

    /// How long the name of an encrypted name of `len` bytes is: as long as that.
    #[must_use]
    pub const fn shown_len(len: usize) -> usize {
        len
    }

    /// No name is one.
    #[must_use]
    pub const fn parse(_name: &[u8]) -> Option<Self> {
        None
    }

    /// The whole encrypted name.
    #[must_use]
    pub const fn whole(&self) -> Option<&[u8]> {
        match self.never {}
    }

    /// Whether it names this entry.
    #[must_use]
    pub const fn matches(&self, _encrypted: &[u8]) -> bool {
        match self.never {}
    }
}
