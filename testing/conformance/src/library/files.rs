//! Calls about open files.

use std::sync::PoisonError;

use extol::path::Inode;
use extol::vfs::Mountable as _;
use extol::vfs::{Attr, Fallocate, FileKind, FileSystem, NewNode, Seek, SetAttr, SetTime};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use super::access::{APPEND, IMMUTABLE, READ, SEARCH, WRITE};
use super::{Library, Open, attr, errno, kind};
use crate::posix::{Entry, Fd, Result};

fn reads(flags: OFlags) -> bool {
    !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::WRONLY
}

fn writes(flags: OFlags) -> bool {
    !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::RDONLY
}

impl Library {
    pub(super) fn do_open(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd> {
        if flags.contains(OFlags::TMPFILE) {
            return self.open_unnamed(path, flags, mode);
        }
        if !flags.contains(OFlags::CREATE) || flags.contains(OFlags::PATH) {
            let node = self.walk(path, !flags.contains(OFlags::NOFOLLOW))?;
            return self.open_found(node, flags, false);
        }
        if flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        self.open_or_create(path, flags, mode)
    }

    fn open_or_create(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd> {
        let exclusive = flags.contains(OFlags::EXCL);
        let last = self.parent(path)?;
        if last.slash || !last.is_name() {
            // Only a directory can be meant.
            let slash = last.slash;
            return Err(if exclusive && !slash { Errno::EXIST } else { Errno::ISDIR });
        }
        match self.find(&last) {
            Ok(_) if exclusive => Err(Errno::EXIST),
            Ok(found) if found.kind() == FileKind::Symlink && !flags.contains(OFlags::NOFOLLOW) => {
                match self.walk(path, true) {
                    Ok(node) => self.open_found(node, flags, false),
                    // A link to a name that does not exist yet makes it.
                    Err(Errno::NOENT) => {
                        let target = self.fs().readlink(found.ino()).map_err(errno)?;
                        let target = String::from_utf8_lossy(&target).into_owned();
                        self.view(Some(last.dir), self.caller.clone())
                            .open_or_create(&target, flags, mode)
                    }
                    Err(e) => Err(e),
                }
            }
            Ok(found) => self.open_found(found, flags, false),
            Err(Errno::NOENT) => {
                self.may_create(&last.dir)?;
                let perm = self.new_mode(&last.dir, mode)?;
                let umask = self.caller.umask as u16;
                let (dir, name) = (last.dir.ino(), last.name.as_bytes());
                let made = self.fs().create(dir, name, NewNode::Regular, perm, umask, self.creds());
                self.open_found(Inode::from_attr(&self.fs(), &made.map_err(errno)?), flags, true)
            }
            Err(e) => Err(e),
        }
    }

    fn open_unnamed(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd> {
        if !writes(flags) {
            return Err(Errno::INVAL);
        }
        let dir = self.walk(path, true)?;
        if dir.kind() != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.permit(&attr(&dir)?, WRITE | SEARCH)?;
        let (perm, umask) = (self.new_mode(&dir, mode)?, self.caller.umask as u16);
        let made = self.fs().create_unnamed(dir.ino(), perm, umask, self.creds()).map_err(errno)?;
        Ok(self.keep(Inode::from_attr(&self.fs(), &made), flags, !flags.contains(OFlags::EXCL)))
    }

    /// Opens an inode; one that was just made by this call is not checked.
    fn open_found(&self, node: Inode, flags: OFlags, made: bool) -> Result<Fd> {
        let a = attr(&node)?;
        let is_dir = a.kind == FileKind::Directory;
        if is_dir && flags.contains(OFlags::CREATE) {
            return Err(Errno::ISDIR);
        }
        if !is_dir && flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(OFlags::PATH) || made {
            return Ok(self.keep(node, flags, false));
        }
        let truncates = flags.contains(OFlags::TRUNC);
        let writes = writes(flags) || truncates;
        match a.kind {
            FileKind::Symlink => return Err(Errno::LOOP),
            FileKind::Directory if writes => return Err(Errno::ISDIR),
            _ => {}
        }
        let wanted = if reads(flags) { READ } else { 0 } | if writes { WRITE } else { 0 };
        self.permit(&a, wanted)?;
        let append = flags.contains(OFlags::APPEND);
        if a.flags & APPEND != 0 && (truncates || (writes && !append)) {
            return Err(Errno::PERM);
        }
        if flags.contains(OFlags::NOATIME) && !self.owns(&a) {
            return Err(Errno::PERM);
        }
        if a.kind == FileKind::Socket {
            return Err(Errno::NXIO);
        }
        if truncates && a.kind == FileKind::Regular {
            self.resize(&node, 0)?;
        }
        Ok(self.keep(node, flags, false))
    }

    /// truncate(2): privileges go, then the size changes, and the time of change with it.
    fn resize(&self, node: &Inode, size: u64) -> Result<()> {
        self.drop_privileges(node)?;
        let set = SetAttr { size: Some(size), mtime: Some(SetTime::Now), ..SetAttr::default() };
        self.fs().setattr(node.ino(), &set).map(drop).map_err(errno)
    }

    fn drop_privileges(&self, node: &Inode) -> Result<()> {
        if self.is_root() {
            // Set-id bits stay; the VFS takes file capabilities off all the same.
            const CAPABILITY: &[u8] = b"security.capability";
            return match self.fs().getxattr(node.ino(), CAPABILITY) {
                Ok(_) => self.fs().removexattr(node.ino(), CAPABILITY).map_err(errno),
                Err(_) => Ok(()),
            };
        }
        let outsider = self.is_outsider(&attr(node)?);
        self.fs().kill_privileges(node.ino(), outsider).map_err(errno)
    }

    pub(super) fn do_read(&self, fd: Fd, len: usize) -> Result<Vec<u8>> {
        let open = self.file(fd)?;
        let mut position = open.position.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.read_at(&open, *position, len)?;
        *position += bytes.len() as u64;
        Ok(bytes)
    }

    pub(super) fn do_pread(&self, fd: Fd, at: u64, len: usize) -> Result<Vec<u8>> {
        if i64::try_from(at).is_err() {
            return Err(Errno::INVAL);
        }
        self.read_at(&*self.file(fd)?, at, len)
    }

    fn read_at(&self, open: &Open, at: u64, len: usize) -> Result<Vec<u8>> {
        if !reads(open.flags) {
            return Err(Errno::BADF);
        }
        let mut bytes = vec![0; len];
        let n = self.fs().read(open.node.ino(), at, &mut bytes).map_err(errno)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    pub(super) fn do_write(&self, fd: Fd, at: Option<u64>, bytes: &[u8]) -> Result<usize> {
        let open = self.file(fd)?;
        let end = at.map(|at| at.saturating_add(bytes.len() as u64));
        if end.is_some_and(|end| i64::try_from(end).is_err()) {
            return Err(Errno::INVAL);
        }
        if !writes(open.flags) {
            return Err(Errno::BADF);
        }
        let mut position = open.position.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = at.unwrap_or(*position);
        if bytes.is_empty() {
            return Ok(0);
        }
        if open.flags.contains(OFlags::APPEND) {
            place = attr(&open.node)?.size;
        }
        self.drop_privileges(&open.node)?;
        let n = self.fs().write(open.node.ino(), place, bytes).map_err(errno)?;
        if at.is_none() {
            *position = place + n as u64;
        }
        if open.flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.fs().fsync(open.node.ino(), !open.flags.contains(OFlags::SYNC)).map_err(errno)?;
        }
        Ok(n)
    }

    pub(super) fn do_seek(&self, fd: Fd, to: SeekFrom) -> Result<u64> {
        let open = self.file(fd)?;
        let mut position = open.position.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = |from: u64, by: i64| from.checked_add_signed(by).ok_or(Errno::INVAL);
        let signed = |at: u64| if i64::try_from(at).is_ok() { Ok(at) } else { Err(Errno::NXIO) };
        let seek = |at, what| self.fs().seek(open.node.ino(), signed(at)?, what).map_err(errno);
        *position = match to {
            SeekFrom::Start(at) if i64::try_from(at).is_err() => return Err(Errno::INVAL),
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => moved(*position, by)?,
            SeekFrom::End(by) => moved(attr(&open.node)?.size, by)?,
            SeekFrom::Data(at) => seek(at, Seek::Data)?,
            SeekFrom::Hole(at) => seek(at, Seek::Hole)?,
        };
        Ok(*position)
    }

    pub(super) fn do_ftruncate(&self, fd: Fd, size: u64) -> Result<()> {
        let open = self.file(fd)?;
        let a = attr(&open.node)?;
        if i64::try_from(size).is_err() || a.kind != FileKind::Regular || !writes(open.flags) {
            return Err(Errno::INVAL);
        }
        if a.flags & APPEND != 0 {
            return Err(Errno::PERM);
        }
        self.resize(&open.node, size)
    }

    pub(super) fn do_fallocate(
        &self,
        fd: Fd,
        mode: FallocateFlags,
        at: u64,
        len: u64,
    ) -> Result<()> {
        let open = self.file(fd)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let keep_size = mode.contains(keep);
        if i64::try_from(at).is_err() || i64::try_from(len).is_err() || len == 0 {
            return Err(Errno::INVAL);
        }
        let how = match mode.difference(keep) {
            m if m.is_empty() => Some(Fallocate::Allocate { keep_size }),
            FallocateFlags::PUNCH_HOLE if keep_size => Some(Fallocate::PunchHole),
            FallocateFlags::ZERO_RANGE => Some(Fallocate::ZeroRange { keep_size }),
            FallocateFlags::COLLAPSE_RANGE if !keep_size => Some(Fallocate::CollapseRange),
            FallocateFlags::INSERT_RANGE if !keep_size => Some(Fallocate::InsertRange),
            FallocateFlags::UNSHARE_RANGE => None,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if !writes(open.flags) {
            return Err(Errno::BADF);
        }
        let a = attr(&open.node)?;
        let more = !matches!(how, Some(Fallocate::Allocate { .. }));
        if a.flags & IMMUTABLE != 0 || (a.flags & APPEND != 0 && more) {
            return Err(Errno::PERM);
        }
        match a.kind {
            FileKind::Regular => {}
            FileKind::Fifo => return Err(Errno::SPIPE),
            FileKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::NODEV),
        }
        if i64::try_from(at + len).is_err() {
            return Err(Errno::FBIG);
        }
        let how = how.ok_or(Errno::OPNOTSUPP)?;
        self.drop_privileges(&open.node)?;
        self.fs().fallocate(open.node.ino(), how, at, len).map_err(errno)
    }

    pub(super) fn do_fsync(&self, fd: Fd, data_only: bool) -> Result<()> {
        let open = self.file(fd)?;
        if open.flags.contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        self.fs().fsync(open.node.ino(), data_only).map_err(errno)
    }

    pub(super) fn do_readdir(&self, fd: Fd, count: usize) -> Result<Vec<Entry>> {
        let open = self.file(fd)?;
        let a: Attr = attr(&open.node)?;
        if a.kind != FileKind::Directory {
            return Err(Errno::NOTDIR);
        }
        if a.nlink == 0 {
            return Err(Errno::NOENT);
        }
        let mut position = open.position.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        if count == 0 {
            return Ok(found);
        }
        let read = self.fs().readdir(open.node.ino(), *position, &mut |entry| {
            let file_type = entry.kind.map_or(rustix::fs::FileType::Unknown, kind);
            found.push(Entry {
                name: String::from_utf8_lossy(&entry.name).into_owned(),
                ino: entry.ino.into(),
                kind: file_type,
                next: entry.cookie,
            });
            found.len() < count
        });
        read.map_err(errno)?;
        if let Some(last) = found.last() {
            *position = last.next;
        }
        Ok(found)
    }
}
