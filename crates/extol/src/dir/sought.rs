//! The name that a search looks for.
//!
//! In a casefolded directory all names with one folded form are one name, and the index has the
//! hash of the folded form. If the directory is encrypted too, that is the form of the name in
//! clear text, and the hash stands behind each name: a search compares hashes, and decrypts only
//! what has the right one. Everywhere else a name is its bytes.

use std::sync::Arc;

use extol_casefold::Wanted;
use extol_fscrypt::{FileKey, decrypted_name, siphash24};
use extol_ondisk::dirent::NewEntry;
use extol_ondisk::htree::NameHash;
use extol_ondisk::{FileType, InodeNr};
use extol_vfs::{FsError, Result};

use super::hashes::{Hashes, even};
use super::shape::Shape;
use crate::encrypted;
use crate::node::Node;
use crate::volume::Volume;

/// A name to search for, prepared once for all comparisons.
#[derive(Clone, Debug)]
pub(super) struct Sought<'n> {
    /// The name as it would be on disk.
    pub name: &'n [u8],
    form: Form<'n>,
}

#[derive(Clone, Debug)]
enum Form<'n> {
    Bytes,
    Folded(Wanted<'n>),
    /// In a directory that is encrypted and casefolded: the name in clear text, and its hash.
    Secret {
        key: Arc<FileKey>,
        wanted: Wanted<'static>,
        hash: NameHash,
    },
    /// The same without the key. The hash is known only of a no-key name.
    NoKey(Option<NameHash>),
}

impl<'n> Sought<'n> {
    /// The name, as it is or would be on disk, as the directory takes it.
    pub fn new(vol: &Volume, dir: &Node, shape: &Shape<'_>, name: &'n [u8]) -> Result<Self> {
        let form = if matches!(name, b"." | b"..") {
            Form::Bytes
        } else if shape.hash_len > 0 {
            secret(vol, dir, shape, name)?
        } else if shape.folds {
            Form::Folded(Wanted::new(name))
        } else {
            Form::Bytes
        };
        Ok(Self { name, form })
    }

    /// A name as the entry of a casefolded directory has it.
    pub fn folded(name: &'n [u8]) -> Self {
        Self { name, form: Form::Folded(Wanted::new(name)) }
    }

    /// A name that is only its bytes: `.` and `..`.
    pub fn exactly(name: &'n [u8]) -> Self {
        Self { name, form: Form::Bytes }
    }

    /// Its hash, as a no-key name says it.
    pub fn with_hash(mut self, hash: Option<NameHash>) -> Self {
        if let Form::NoKey(known) = &mut self.form {
            *known = hash;
        }
        self
    }

    /// True if only entries of this very name, to the byte, can be it.
    pub fn is_bytes(&self) -> bool {
        matches!(self.form, Form::Bytes | Form::NoKey(_))
    }

    /// True if an entry has the name. `stored` is the hash behind it. `.` and `..` are found by
    /// their bytes alone.
    pub fn is(&self, entry: &[u8], stored: impl FnOnce() -> Option<NameHash>) -> bool {
        match &self.form {
            Form::Bytes | Form::NoKey(_) => entry == self.name,
            Form::Folded(wanted) => wanted.matches(entry) && !matches!(entry, b"." | b".."),
            Form::Secret { key, wanted, hash } => {
                entry == self.name
                    || stored() == Some(*hash)
                        && decrypted_name(key, entry).is_ok_and(|name| wanted.matches(&name))
            }
        }
    }

    /// The hash that the index has of it. `None`: that takes the key.
    pub fn hash(&self, hashes: &Hashes) -> Option<u32> {
        match (&self.form, hashes) {
            (Form::Folded(wanted), Hashes::Computed(hasher)) => {
                Some(hasher.hash(wanted.hashed()).hash)
            }
            (_, Hashes::Computed(hasher)) => Some(hasher.hash(self.name).hash),
            (Form::Secret { hash, .. }, Hashes::Stored) => Some(hash.hash),
            (Form::NoKey(hash), Hashes::Stored) => hash.map(|hash| even(hash).hash),
            (Form::Bytes | Form::Folded(_), Hashes::Stored) => None,
        }
    }

    /// The entry that gives an inode this name.
    ///
    /// # Errors
    /// [`FsError::NoKey`]: its hash takes the key.
    pub fn entry(&self, ino: InodeNr, file_type: Option<FileType>) -> Result<NewEntry<'n>> {
        let hash = match &self.form {
            Form::Bytes | Form::Folded(_) => None,
            Form::Secret { hash, .. } => Some(*hash),
            Form::NoKey(_) => return Err(FsError::NoKey),
        };
        Ok(NewEntry { name: self.name, ino, file_type, hash })
    }

    /// Checks that a casefolded directory can have the name. With a strict encoding it is valid
    /// UTF-8; and none but `.` and `..` is folded to these, since Linux would take it for them.
    pub fn check(&self, shape: &Shape<'_>) -> Result<()> {
        let wanted = match &self.form {
            Form::Bytes | Form::NoKey(_) => return Ok(()),
            Form::Folded(wanted) => wanted,
            Form::Secret { wanted, .. } => wanted,
        };
        if shape.geo.strict_encoding && !extol_casefold::is_valid(wanted.name()) {
            return Err(FsError::Invalid("the directory takes only names in valid UTF-8"));
        }
        if wanted.matches(b".") || wanted.matches(b"..") {
            return Err(FsError::Invalid("the directory would take the name for '.' or '..'"));
        }
        Ok(())
    }
}

fn secret<'n>(vol: &Volume, dir: &Node, shape: &Shape<'_>, name: &[u8]) -> Result<Form<'n>> {
    let Some(key) = encrypted::names_key(vol, dir)? else { return Ok(Form::NoKey(None)) };
    let Some(of_hashes) = key.dir_hash() else { return Ok(Form::NoKey(None)) };
    let name = decrypted_name(&key, name).map_err(|e| shape.corrupt(e.to_string()))?;
    let wanted = Wanted::new(name);
    let hash = siphash24(of_hashes, wanted.hashed());
    let hash = NameHash::of_index((hash >> 32) as u32, hash as u32);
    Ok(Form::Secret { key, wanted, hash })
}
