//! The file system that does nothing: names and inodes in memory, sizes without data.
//!
//! What it answers is what a kernel needs to go on: names are found, links counted, sizes and modes
//! kept, unlinked files live until they are forgotten. What is written is thrown away and reads as
//! zeros; nothing is ever durable; space never runs out. So a mount of it costs what FUSE costs and
//! hardly more.
//!
//! # Locks
//!
//! The table of inodes is in shards, each a read-write lock that is held for one look-up. Each
//! inode has a lock of its own. No lock is taken while another is held, but for the table's while
//! an inode is put in or taken out. A rename between directories is two steps, therefore; the
//! kernel holds both directories meanwhile, so that no request comes in between.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use extol_vfs::{
    Attr, Creds, DirEntry, Fallocate, FileExtent, FileId, FileKind, FileSystem, FsError, Mountable,
    NewNode, Rdev, RenameFlags, Result, Seek, SetAttr, SetTime, StatFs, Timestamp, VolumeControl,
    XattrSet,
};
use parking_lot::{Mutex, RwLock};

use super::names::Names;

const ROOT: u32 = 2;
const FIRST: u32 = 11;
const SHARDS: usize = 64;

struct Inode {
    attr: Attr,
    target: Vec<u8>,
    /// Directories only.
    names: Option<Box<Names>>,
}

struct Node {
    references: AtomicU64,
    inode: Mutex<Inode>,
}

/// Names and inodes in memory.
pub struct NoopFs {
    shards: [RwLock<HashMap<u32, Arc<Node>>>; SHARDS],
    next: AtomicU32,
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() }
}

impl Inode {
    fn names(&mut self) -> Result<&mut Names> {
        self.names.as_deref_mut().ok_or(FsError::NotADirectory)
    }

    fn changed(&mut self) {
        self.attr.mtime = now();
        self.attr.ctime = self.attr.mtime;
    }

    fn set_size(&mut self, size: u64) {
        self.attr.size = size;
        self.attr.blocks = size.div_ceil(512);
    }
}

impl Default for NoopFs {
    fn default() -> Self {
        Self::new()
    }
}

impl NoopFs {
    /// An empty one; its root belongs to the user of this process.
    #[must_use]
    pub fn new() -> Self {
        let fs = Self {
            shards: std::array::from_fn(|_| RwLock::new(HashMap::new())),
            next: AtomicU32::new(ROOT),
        };
        let owner = Creds {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        };
        fs.add(NewNode::Directory, 0o755, owner, ROOT);
        fs.next.store(FIRST, Ordering::Relaxed);
        fs
    }

    /// Inodes that exist, and references on them.
    #[cfg(test)]
    fn held(&self) -> (usize, u64) {
        let nodes = || self.shards.iter().map(RwLock::read);
        let references = |n: &Arc<Node>| n.references.load(Ordering::Relaxed);
        (
            nodes().map(|s| s.len()).sum(),
            nodes().map(|s| s.values().map(references).sum::<u64>()).sum(),
        )
    }

    fn shard(&self, ino: u32) -> &RwLock<HashMap<u32, Arc<Node>>> {
        &self.shards[ino as usize % SHARDS]
    }

    fn node(&self, ino: u32) -> Result<Arc<Node>> {
        self.shard(ino).read().get(&ino).cloned().ok_or(FsError::Stale)
    }

    fn with<T>(&self, ino: u32, work: impl FnOnce(&mut Inode) -> Result<T>) -> Result<T> {
        work(&mut self.node(ino)?.inode.lock())
    }

    /// Takes a reference.
    fn hold(&self, ino: u32) -> Result<Attr> {
        let node = self.node(ino)?;
        node.references.fetch_add(1, Ordering::Relaxed);
        let attr = node.inode.lock().attr.clone();
        Ok(attr)
    }

    /// A new inode with one reference and no name.
    fn add(&self, new: NewNode, perm: u16, owner: Creds, parent: u32) -> (u32, Attr) {
        let ino = self.next.fetch_add(1, Ordering::Relaxed);
        let (kind, rdev, target) = match new {
            NewNode::Regular => (FileKind::Regular, Rdev::default(), Vec::new()),
            NewNode::Directory => (FileKind::Directory, Rdev::default(), Vec::new()),
            NewNode::Symlink(target) => (FileKind::Symlink, Rdev::default(), target),
            NewNode::CharDevice(rdev) => (FileKind::CharDevice, rdev, Vec::new()),
            NewNode::BlockDevice(rdev) => (FileKind::BlockDevice, rdev, Vec::new()),
            NewNode::Fifo => (FileKind::Fifo, Rdev::default(), Vec::new()),
            NewNode::Socket => (FileKind::Socket, Rdev::default(), Vec::new()),
        };
        let is_dir = kind == FileKind::Directory;
        let id = FileId { ino, generation: 0 };
        let attr =
            Attr { size: target.len() as u64, rdev, ..Attr::fresh(id, kind, perm, owner, now()) };
        let names = is_dir.then(|| Box::new(Names::new(parent)));
        let inode = Mutex::new(Inode { attr: attr.clone(), target, names });
        let node = Arc::new(Node { references: AtomicU64::new(1), inode });
        self.shard(ino).write().insert(ino, node);
        (ino, attr)
    }

    /// Gives an inode a name in a directory.
    fn enter(&self, dir: u32, name: &[u8], ino: u32, kind: FileKind) -> Result<()> {
        self.with(dir, |inode| {
            inode.names()?.insert(name, ino, kind)?;
            inode.attr.nlink += u32::from(kind == FileKind::Directory);
            inode.changed();
            Ok(())
        })?;
        if kind == FileKind::Directory {
            self.with(ino, |inode| {
                inode.names()?.parent = dir;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Takes a name out of a directory.
    fn leave(&self, dir: u32, name: &[u8]) -> Result<(u32, FileKind)> {
        self.with(dir, |inode| {
            let entry = inode.names()?.remove(name)?;
            inode.attr.nlink -= u32::from(entry.kind == FileKind::Directory);
            inode.changed();
            Ok((entry.ino, entry.kind))
        })
    }

    /// One name less; the inode goes with the last name and the last reference.
    fn drop_name(&self, ino: u32) -> Result<()> {
        let node = self.node(ino)?;
        let mut inode = node.inode.lock();
        inode.attr.nlink =
            if inode.names.is_some() { 0 } else { inode.attr.nlink.saturating_sub(1) };
        inode.attr.ctime = now();
        let is_gone = inode.attr.nlink == 0 && node.references.load(Ordering::Relaxed) == 0;
        drop(inode);
        if is_gone {
            self.shard(ino).write().remove(&ino);
        }
        Ok(())
    }

    /// A file was written here.
    fn written(&self, ino: u32, offset: u64, len: usize) -> Result<()> {
        let end = offset.checked_add(len as u64).ok_or(FsError::TooBig)?;
        self.with(ino, |inode| {
            if end > inode.attr.size {
                inode.set_size(end);
            }
            inode.changed();
            Ok(())
        })
    }

    fn entry(&self, dir: u32, name: &[u8]) -> Result<(u32, FileKind)> {
        self.with(dir, |inode| {
            let names = inode.names()?;
            match name {
                b"." => Ok((dir, FileKind::Directory)),
                b".." => Ok((names.parent, FileKind::Directory)),
                _ => names.find(name).map(|entry| (entry.ino, entry.kind)),
            }
        })
    }

    fn is_empty(&self, dir: u32) -> Result<()> {
        self.with(dir, |inode| match inode.names()?.is_empty() {
            true => Ok(()),
            false => Err(FsError::NotEmpty),
        })
    }
}

impl FileSystem for NoopFs {
    fn root(&self) -> u32 {
        ROOT
    }

    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        self.hold(self.entry(dir, name)?.0)
    }

    fn retain(&self, ino: u32) {
        if let Ok(node) = self.node(ino) {
            node.references.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn forget(&self, ino: u32, n: u64) {
        let Ok(node) = self.node(ino) else { return };
        let left = node.references.fetch_sub(n, Ordering::Relaxed).saturating_sub(n);
        if left == 0 && node.inode.lock().attr.nlink == 0 {
            self.shard(ino).write().remove(&ino);
        }
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        self.with(ino, |inode| Ok(inode.attr.clone()))
    }

    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr> {
        self.with(ino, |inode| {
            let time = |set| match set {
                SetTime::Now => now(),
                SetTime::At(at) => at,
            };
            let attr = &mut inode.attr;
            attr.ctime = match set.ctime {
                Some(SetTime::At(time)) => time,
                _ => now(),
            };
            attr.perm = set.perm.unwrap_or(attr.perm);
            attr.uid = set.uid.unwrap_or(attr.uid);
            attr.gid = set.gid.unwrap_or(attr.gid);
            attr.flags = set.flags.unwrap_or(attr.flags);
            attr.project = set.project.unwrap_or(attr.project);
            attr.atime = set.atime.map_or(attr.atime, time);
            attr.mtime = set.mtime.map_or(attr.mtime, time);
            if let Some(size) = set.size {
                inode.set_size(size);
            }
            Ok(inode.attr.clone())
        })
    }

    fn create(
        &self,
        dir: u32,
        name: &[u8],
        new: NewNode,
        perm: u16,
        umask: u16,
        owner: Creds,
    ) -> Result<Attr> {
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        let (ino, attr) = self.add(new, perm & !umask, owner, dir);
        self.enter(dir, name, ino, attr.kind).inspect_err(|_| {
            self.shard(ino).write().remove(&ino);
        })?;
        Ok(attr)
    }

    fn create_unnamed(&self, dir: u32, perm: u16, umask: u16, owner: Creds) -> Result<Attr> {
        let (ino, _) = self.add(NewNode::Regular, perm & !umask, owner, dir);
        self.with(ino, |inode| {
            inode.attr.nlink = 0;
            Ok(inode.attr.clone())
        })
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        let kind = self.getattr(ino)?.kind;
        self.enter(dir, name, ino, kind)?;
        self.with(ino, |inode| {
            inode.attr.nlink += 1;
            inode.attr.ctime = now();
            Ok(())
        })?;
        self.hold(ino)
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        let (ino, _) = self.leave(dir, name)?;
        self.drop_name(ino)
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.is_empty(self.entry(dir, name)?.0)?;
        let (ino, _) = self.leave(dir, name)?;
        self.drop_name(ino)
    }

    fn rename(
        &self,
        dir: u32,
        name: &[u8],
        new_dir: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            return Err(FsError::NotSupported("this kind of rename"));
        }
        let (ino, kind) = self.entry(dir, name)?;
        if let Ok((target, target_kind)) = self.entry(new_dir, new_name) {
            if flags.contains(RenameFlags::NOREPLACE) {
                return Err(FsError::Exists);
            }
            if target == ino {
                return Ok(());
            }
            if target_kind == FileKind::Directory {
                self.is_empty(target)?;
            }
            self.leave(new_dir, new_name)?;
            self.drop_name(target)?;
        }
        self.leave(dir, name)?;
        self.enter(new_dir, new_name, ino, kind)
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        self.with(ino, |inode| Ok(inode.target.clone()))
    }

    /// Entries go out in handfuls, as `each` may call back.
    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        const HANDFUL: usize = 128;
        let parent = self.with(dir, |inode| Ok(inode.names()?.parent))?;
        for (at, ino, name) in [(1, dir, b".".to_vec()), (2, parent, b"..".to_vec())] {
            let entry = DirEntry { ino, cookie: at, kind: Some(FileKind::Directory), name };
            if cookie < at && !each(entry) {
                return Ok(());
            }
        }
        let mut after = cookie;
        loop {
            let some: Vec<DirEntry> =
                self.with(dir, |inode| Ok(inode.names()?.after(after).take(HANDFUL).collect()))?;
            let Some(last) = some.last() else { return Ok(()) };
            after = last.cookie;
            for entry in some {
                if !each(entry) {
                    return Ok(());
                }
            }
        }
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let size = self.with(ino, |inode| Ok(inode.attr.size))?;
        let count = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        buf[..count].fill(0);
        Ok(count)
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8]) -> Result<usize> {
        self.written(ino, offset, data.len()).map(|()| data.len())
    }

    fn fallocate(&self, ino: u32, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let grows = match mode {
            Fallocate::Allocate { keep_size } | Fallocate::ZeroRange { keep_size } => !keep_size,
            Fallocate::PunchHole => false,
            Fallocate::CollapseRange | Fallocate::InsertRange => {
                return Err(FsError::NotSupported("there is no data to move"));
            }
        };
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        self.with(ino, |inode| {
            if grows && end > inode.attr.size {
                inode.set_size(end);
            }
            Ok(())
        })
    }

    fn seek(&self, ino: u32, offset: u64, what: Seek) -> Result<u64> {
        let size = self.getattr(ino)?.size;
        match what {
            _ if offset >= size => Err(FsError::NoDataThere),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn fiemap(&self, _: u32, _: u64, _: u64) -> Result<Vec<FileExtent>> {
        Ok(Vec::new())
    }

    fn fsync(&self, _: u32, _: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        const MANY: u64 = 1 << 31;
        Ok(StatFs {
            block_size: 4096,
            blocks: MANY,
            blocks_free: MANY,
            blocks_available: MANY,
            inodes: MANY,
            inodes_free: MANY,
            name_max: 255,
        })
    }

    fn getxattr(&self, _: u32, _: &[u8]) -> Result<Vec<u8>> {
        Err(FsError::NoAttribute)
    }

    fn setxattr(&self, _: u32, _: &[u8], _: &[u8], _: XattrSet) -> Result<()> {
        Err(FsError::NotSupported("attributes"))
    }

    fn listxattr(&self, _: u32) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: u32, _: &[u8]) -> Result<()> {
        Err(FsError::NoAttribute)
    }
}

impl VolumeControl for NoopFs {
    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }

    fn stats_json(&self) -> String {
        "{}".into()
    }
}

impl Mountable for NoopFs {
    fn open_by_number(&self, ino: u32) -> Result<Attr> {
        self.hold(ino)
    }

    fn kill_privileges(&self, _ino: u32, _outsider: bool) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
