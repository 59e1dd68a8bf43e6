//! A reference on one inode, given back when it is dropped.
//!
//! The root, with which every path begins, is not counted: it stays as long as the volume. Nor is a
//! reference on the volume counted while a path is followed ([`Held`]): all threads would write
//! that word, several times per path.
//!
//! Invariants
//! - PA-2: each reference is given back exactly once (`give_back` in `Drop`; [`Held::keep`] hands
//!   it on).

use std::sync::Arc;

use extol_vfs::{Attr, FileId, FileKind, FileSystem as _, FsError, Result};

use crate::ext4::Ext4;

/// A reference on an inode: as long as it exists, the inode does, even without a name.
///
/// The methods of [`FileSystem`](extol_vfs::FileSystem) take its number.
#[derive(Debug)]
pub struct Inode {
    fs: Arc<Ext4>,
    id: FileId,
    kind: FileKind,
}

/// An [`Inode`] for the time of a call.
#[derive(Debug)]
pub(super) struct Held<'a> {
    fs: &'a Arc<Ext4>,
    id: FileId,
    kind: FileKind,
}

impl Held<'_> {
    /// Refuses a file in an encrypted directory to which it does not belong.
    pub(super) fn check_place(&self) -> Result<()> {
        self.fs.check_place(self.id.ino)
    }
}

/// Takes over a reference.
fn take_over(fs: &Ext4, id: FileId) -> FileId {
    if id.ino == fs.root() {
        fs.forget(id.ino, 1);
    }
    id
}

fn take(fs: &Ext4, id: FileId) {
    if id.ino != fs.root() {
        fs.retain(id.ino);
    }
}

fn give_back(fs: &Ext4, id: FileId) {
    if id.ino != fs.root() {
        fs.forget(id.ino, 1);
    }
}

impl<'a> Held<'a> {
    pub(super) fn root(fs: &'a Arc<Ext4>) -> Result<Self> {
        Ok(Self { fs, id: fs.root_id()?, kind: FileKind::Directory })
    }

    /// Takes over the reference that came with `attr`.
    pub(super) fn from_attr(fs: &'a Arc<Ext4>, attr: &Attr) -> Self {
        Self { fs, id: take_over(fs, attr.id), kind: attr.kind }
    }

    /// Becomes the inode of `attr`, whose reference it takes over.
    pub(super) fn enter(&mut self, attr: &Attr) {
        give_back(self.fs, self.id);
        (self.id, self.kind) = (take_over(self.fs, attr.id), attr.kind);
    }

    /// [Enters](Self::enter) the subdirectory of that name if it is in the dentry cache; else
    /// false.
    pub(super) fn enter_cached(&mut self, name: &[u8]) -> bool {
        let Some(id) = (self.kind == FileKind::Directory)
            .then(|| self.fs.dir_cached(self.id.ino, name))
            .flatten()
        else {
            return false;
        };
        give_back(self.fs, self.id);
        self.id = take_over(self.fs, id);
        true
    }

    /// Looks up a name in this directory; a reference comes with the attributes.
    pub(super) fn find(&self, name: &[u8]) -> Result<Attr> {
        find(self.fs, self.id, self.kind, name)
    }

    pub(super) fn ino(&self) -> u32 {
        self.id.ino
    }

    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) fn attr(&self) -> Result<Attr> {
        self.fs.getattr(self.id.ino)
    }

    /// Makes it last longer than this call.
    pub(super) fn keep(self) -> Inode {
        let kept = Inode { fs: Arc::clone(self.fs), id: self.id, kind: self.kind };
        // `kept` has the reference now.
        std::mem::forget(self);
        kept
    }
}

impl Clone for Held<'_> {
    fn clone(&self) -> Self {
        take(self.fs, self.id);
        Self { ..*self }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        give_back(self.fs, self.id);
    }
}

fn find(fs: &Ext4, dir: FileId, kind: FileKind, name: &[u8]) -> Result<Attr> {
    if kind != FileKind::Directory {
        return Err(FsError::NotADirectory);
    }
    fs.lookup(dir.ino, name)
}

impl Inode {
    /// Takes over the reference that came with `attr` from a method of
    /// [`FileSystem`](extol_vfs::FileSystem), such as `create` or `lookup`.
    #[must_use]
    pub fn from_attr(fs: &Arc<Ext4>, attr: &Attr) -> Self {
        Self { fs: Arc::clone(fs), id: take_over(fs, attr.id), kind: attr.kind }
    }

    /// Looks up a name in this directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self::from_attr(&self.fs, &find(&self.fs, self.id, self.kind, name.as_ref())?))
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
        take(&self.fs, self.id);
        Self { fs: Arc::clone(&self.fs), ..*self }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        give_back(&self.fs, self.id);
    }
}
