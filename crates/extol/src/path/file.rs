//! Open files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use extol_ondisk::InodeFlags;
use extol_vfs::{
    Attr, Creds, Fallocate, FileKind, FileSystem as _, FsError, NewNode, Result, SetAttr,
};

use super::guard::{Held, Inode};
use super::resolve::{Last, Spot, resolve};
use crate::data::readahead::FileReadahead;
use crate::ext4::Ext4;

/// Of the inode flags: a file of fs-verity.
const VERITY: u32 = InodeFlags::VERITY.bits();

/// How to open a file; the names of [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    follow: bool,
    perm: u16,
    owner: Creds,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Nothing allowed yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            follow: true,
            perm: 0o644,
            owner: Creds::default(),
        }
    }

    /// Reading.
    pub fn read(&mut self, on: bool) -> &mut Self {
        self.read = on;
        self
    }

    /// Writing.
    pub fn write(&mut self, on: bool) -> &mut Self {
        self.write = on;
        self
    }

    /// Writing, each time at the end of the file as it is then.
    pub fn append(&mut self, on: bool) -> &mut Self {
        self.append = on;
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, on: bool) -> &mut Self {
        self.truncate = on;
        self
    }

    /// Makes the file if it is missing.
    pub fn create(&mut self, on: bool) -> &mut Self {
        self.create = on;
        self
    }

    /// Makes the file; fails if the name is taken.
    pub fn create_new(&mut self, on: bool) -> &mut Self {
        self.create_new = on;
        self
    }

    /// Follows a link at the end of the path (default). Otherwise one gives `SymlinkLoop`.
    pub fn follow(&mut self, on: bool) -> &mut Self {
        self.follow = on;
        self
    }

    /// Permission bits of a file that is made (default 0644).
    pub fn mode(&mut self, perm: u16) -> &mut Self {
        self.perm = perm;
        self
    }

    /// Owner of a file that is made (default root).
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Self {
        self.owner = Creds { uid, gid };
        self
    }

    fn writes(&self) -> bool {
        self.write || self.append
    }
}

/// Opens or makes the file that a path names.
pub(super) fn open(fs: &Arc<Ext4>, path: &[u8], how: &OpenOptions) -> Result<File> {
    if !how.read && !how.writes() {
        return Err(FsError::Invalid("a file is opened for reading or writing"));
    }
    if (how.truncate || how.create || how.create_new) && !how.writes() {
        return Err(FsError::Invalid("only a file that is opened for writing is made or emptied"));
    }
    let last = match how.follow {
        _ if how.create_new && !path.ends_with(b"/") => Last::Unseen,
        true if !how.create_new => Last::Follow,
        _ => Last::FollowIfSlash,
    };
    // Another thread may make or remove the name between lookup and creation.
    for _ in 0..64 {
        let mut spot = resolve(fs, path, last)?;
        match spot.node.take() {
            Some(_) if how.create_new => return Err(FsError::Exists),
            Some(node) => return open_node(node, how),
            None => match create(fs, spot, how) {
                Err(FsError::Exists) if !how.create_new => {}
                result => return result,
            },
        }
    }
    Err(FsError::Busy)
}

fn create(fs: &Arc<Ext4>, spot: Spot<'_>, how: &OpenOptions) -> Result<File> {
    if !how.create && !how.create_new {
        return Err(FsError::NotFound);
    }
    if spot.slash {
        return Err(FsError::IsADirectory);
    }
    let name = spot.name.unwrap_or_default();
    let attr = fs.create(spot.dir.ino(), &name, NewNode::Regular, how.perm, 0, how.owner)?;
    Ok(File::of(Inode::from_attr(fs, &attr), how))
}

fn open_node(node: Held<'_>, how: &OpenOptions) -> Result<File> {
    match node.kind() {
        // As in Linux, a file of fs-verity is never open for writing.
        FileKind::Regular if how.writes() && node.attr()?.flags & VERITY != 0 => {
            return Err(FsError::NotPermitted);
        }
        FileKind::Regular => node.check_place()?,
        FileKind::Directory if how.writes() => return Err(FsError::IsADirectory),
        FileKind::Directory => {}
        FileKind::Symlink => return Err(FsError::SymlinkLoop),
        _ => return Err(FsError::Invalid("only files and directories are opened")),
    }
    let file = File::of(node.keep(), how);
    if how.truncate {
        file.set_len(0)?;
    }
    Ok(file)
}

/// An open file (or directory, for [`sync_all`](Self::sync_all)). What was written is durable after
/// a successful [`sync_all`](Self::sync_all) or [`sync_data`](Self::sync_data).
///
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at) may be called from many threads at
/// once. What comes next is read ahead (`readahead_kb=`) for a file that is read from one end to
/// the other, in calls of any size.
#[derive(Debug)]
pub struct File {
    node: Inode,
    at: u64,
    read: bool,
    write: bool,
    append: bool,
    ahead: FileReadahead,
}

impl File {
    pub(super) fn of(node: Inode, how: &OpenOptions) -> Self {
        Self {
            node,
            at: 0,
            read: how.read,
            write: how.writes(),
            append: how.append,
            ahead: FileReadahead::default(),
        }
    }

    fn fs(&self) -> &Arc<Ext4> {
        self.node.fs()
    }

    fn check_write(&self) -> Result<()> {
        if self.write { Ok(()) } else { Err(FsError::AccessDenied) }
    }

    /// The inode.
    #[must_use]
    pub fn inode(&self) -> &Inode {
        &self.node
    }

    /// Attributes as they are now.
    ///
    /// # Errors
    /// If the inode cannot be read.
    pub fn metadata(&self) -> Result<Attr> {
        self.node.attr()
    }

    /// Reads at an offset; 0 bytes at the end of the file, and fewer than asked for only before it.
    ///
    /// # Errors
    /// `AccessDenied` if it was not opened for reading.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.read {
            return Err(FsError::AccessDenied);
        }
        self.fs().read_on(self.node.ino(), offset, buf, &self.ahead)
    }

    /// Writes at an offset; fewer bytes than given only if the volume is full. A file that was
    /// opened to append is written at its end, whatever the offset, as by pwrite(2) of Linux.
    ///
    /// # Errors
    /// `AccessDenied` if it was not opened for writing; `NoSpace`, `FileTooLarge`.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        if self.append {
            return self.append(data).map(|(_, written)| written);
        }
        self.check_write()?;
        self.fs().write(self.node.ino(), offset, data)
    }

    /// Writes at the end of the file, wherever that is when the data is written: no other write
    /// comes between. Gives the offset, and how many bytes were written: fewer than given only if
    /// the volume is full.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        self.check_write()?;
        self.fs().append(self.node.ino(), data)
    }

    /// Writes all of `data` at an offset.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); part of the data may be written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write_at(&data[done..], offset.saturating_add(done as u64))? {
                0 => return Err(FsError::NoSpace),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Sets the size: cuts the end off, or adds a hole.
    ///
    /// # Errors
    /// `AccessDenied`, `FileTooLarge`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.check_write()?;
        self.fs()
            .setattr(self.node.ino(), &SetAttr { size: Some(size), ..SetAttr::default() })
            .map(drop)
    }

    /// Reserves, punches, zeroes … a byte range.
    ///
    /// # Errors
    /// As fallocate(2).
    pub fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        self.fs().fallocate(self.node.ino(), mode, offset, len)
    }

    /// Makes the file durable: contents, attributes, and the names that lead to it.
    ///
    /// # Errors
    /// `Io` if something could not be written: then nothing is guaranteed.
    pub fn sync_all(&self) -> Result<()> {
        self.fs().fsync(self.node.ino(), false)
    }

    /// Makes the contents durable, with only those attributes that reading them back needs.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.fs().fsync(self.node.ino(), true)
    }

    /// Gives the file (one made by [`Ext4::create_unnamed_file`], or any other) a name.
    ///
    /// # Errors
    /// As [`Ext4::hard_link`].
    pub fn link_to(&self, path: impl AsRef<Path>) -> Result<()> {
        self.fs().link_inode(self.node.ino(), path.as_ref())
    }
}

/// As of [`std::fs::File`], with its errors.
#[cfg(unix)]
impl std::os::unix::fs::FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(Self::read_at(self, buf, offset)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(Self::write_at(self, buf, offset)?)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let (at, n) = match self.append {
            true => Self::append(self, data)?,
            false => (self.at, self.write_at(data, self.at)?),
        };
        self.at = at + n as u64;
        Ok(n)
    }

    /// Does nothing: no data is buffered here, and [`sync_all`](File::sync_all) makes it durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.size.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a position before the start")
        })?;
        Ok(self.at)
    }
}
