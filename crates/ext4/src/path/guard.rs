//! A reference on one inode, given back when it is dropped.
//!
//! Nothing is counted for the root, which every path begins with: it stays as long as the volume.

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
        Self { fs: Arc::clone(fs), id: Self::take_over(fs, attr.id), kind: attr.kind }
    }

    fn take_over(fs: &Ext4, id: FileId) -> FileId {
        if id.ino == fs.root() {
            fs.forget(id.ino, 1);
        }
        id
    }

    pub(super) fn root(fs: &Arc<Ext4>) -> Result<Self> {
        Ok(Self { fs: Arc::clone(fs), id: fs.root_id()?, kind: FileKind::Directory })
    }

    /// Becomes what `attr` tells of, as if it were [adopted](Self::adopt).
    pub(super) fn go(&mut self, attr: &Attr) {
        self.give_back();
        (self.id, self.kind) = (Self::take_over(&self.fs, attr.id), attr.kind);
    }

    /// Becomes the directory of that name in this one, if it is known. Then that is as good as finding it and [going](Self::go) there.
    pub(super) fn step(&mut self, name: &[u8]) -> bool {
        let Some(id) = (self.kind == FileKind::Directory).then(|| self.fs.step(self.id.ino, name)).flatten()
        else {
            return false;
        };
        self.give_back();
        self.id = Self::take_over(&self.fs, id);
        true
    }

    fn give_back(&self) {
        if self.id.ino != self.fs.root() {
            self.fs.forget(self.id.ino, 1);
        }
    }

    /// What `name` stands for in this directory; a reference comes with it.
    pub(super) fn find(&self, name: &[u8]) -> Result<Attr> {
        if self.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        self.fs.lookup(self.id.ino, name)
    }

    /// What `name` stands for in this directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self::adopt(&self.fs, &self.find(name.as_ref())?))
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
        if self.id.ino != self.fs.root() {
            self.fs.retain(self.id.ino);
        }
        Self { fs: Arc::clone(&self.fs), ..*self }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.give_back();
    }
}
