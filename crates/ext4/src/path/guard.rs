//! A reference on one inode, given back when it is dropped.

use std::sync::Arc;

use extol_vfs::{Attr, FileId, FileKind, FileSystem as _, FsError, Result};

use crate::Ext4;

/// A reference on an inode: while it lives, the inode does, even if its last name goes.
///
/// Its number is what the methods of [`FileSystem`](extol_vfs::FileSystem) want.
#[derive(Debug)]
pub struct Inode {
    fs: Arc<Ext4>,
    id: FileId,
    kind: FileKind,
}

impl Inode {
    /// Takes over the reference that came with `attr` from a method of [`FileSystem`](extol_vfs::FileSystem), such as
    /// `create` or `lookup`.
    #[must_use]
    pub fn adopt(fs: &Arc<Ext4>, attr: &Attr) -> Self {
        Self { fs: Arc::clone(fs), id: attr.id, kind: attr.kind }
    }

    pub(super) fn root(fs: &Arc<Ext4>) -> Result<Self> {
        let attr = fs.getattr(fs.root())?;
        fs.retain(attr.id.ino);
        Ok(Self::adopt(fs, &attr))
    }

    /// What `name` stands for in this directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Self> {
        if self.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        let attr = self.fs.lookup(self.id.ino, name.as_ref())?;
        Ok(Self::adopt(&self.fs, &attr))
    }

    /// Number.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.id.ino
    }

    /// Number and generation.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Kind.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Attributes as they are now.
    ///
    /// # Errors
    /// If the inode cannot be read.
    pub fn attr(&self) -> Result<Attr> {
        self.fs.getattr(self.id.ino)
    }

    /// The volume.
    #[must_use]
    pub fn fs(&self) -> &Arc<Ext4> {
        &self.fs
    }
}

impl Clone for Inode {
    fn clone(&self) -> Self {
        self.fs.retain(self.id.ino);
        Self { fs: Arc::clone(&self.fs), ..*self }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.fs.forget(self.id.ino, 1);
    }
}
