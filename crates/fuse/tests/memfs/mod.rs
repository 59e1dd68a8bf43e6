//! A file system in memory with one big lock: simple enough to be right, complete enough to try the
//! whole front end. It counts references, so that tests see each one given back.

mod state;

use extol_sync::plain::{Condvar, Mutex};
use extol_vfs::{
    Attr, Creds, DirEntry, Done, Fallocate, FileExtent, FileKind, FileSystem, FsError, Mountable,
    NewNode, OpenNr, Rdev, RenameFlags, Result, Seek, SetAttr, SetTime, StatFs, VolumeControl,
    XattrSet,
};
use state::{State, now};

const ROOT: u32 = 2;
const PAGE: usize = 4096;

pub struct MemFs {
    state: Mutex<State>,
    /// Lookups of names that begin with "stuck", and reads of files that do, wait until they are
    /// released: how many do.
    stuck: Mutex<Option<usize>>,
    moved: Condvar,
    /// Fsyncs that end later; `None`: each ends at once.
    deferred: Mutex<Option<Vec<Done>>>,
    moved_on: Condvar,
    /// While this is set, nothing can be created.
    frozen: Mutex<bool>,
    thawed: Condvar,
    /// Serve `open_by_number`; without it, readdirplus looks names up.
    by_number: bool,
}

impl MemFs {
    /// From now on fsyncs end when [`take_fsyncs`](Self::take_fsyncs) takes them, or at once again.
    pub fn defer_fsyncs(&self, later: bool) {
        *self.deferred.lock() = later.then(Vec::new);
    }

    /// Takes so many deferred fsyncs, as soon as they are there.
    pub fn take_fsyncs(&self, many: usize) -> Vec<Done> {
        let mut deferred = self.deferred.lock();
        let there = |deferred: &Option<Vec<Done>>| deferred.as_ref().map_or(0, Vec::len) >= many;
        let patience = std::time::Duration::from_secs(20);
        self.moved_on.wait_while_for(&mut deferred, |deferred| !there(deferred), patience);
        assert!(there(&deferred), "so many fsyncs at a time");
        deferred.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn new(by_number: bool) -> Self {
        let mut state = State::new(ROOT);
        state.add_node(FileKind::Directory, 0o777, Creds::default(), ROOT);
        state.next_ino = 11;
        Self {
            state: Mutex::new(state),
            stuck: Mutex::new(Some(0)),
            moved: Condvar::new(),
            deferred: Mutex::default(),
            moved_on: Condvar::new(),
            frozen: Mutex::new(false),
            thawed: Condvar::new(),
            by_number,
        }
    }

    /// All references held, and the number of inodes.
    pub fn held(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.nodes.values().map(|node| node.references).sum(), state.nodes.len())
    }

    /// Waits until the stuck ones are released.
    fn stick(&self) {
        let mut stuck = self.stuck.lock();
        if let Some(many) = &mut *stuck {
            *many += 1;
            self.moved.notify_all();
        }
        self.moved.wait_while(&mut stuck, |stuck| stuck.is_some());
    }

    /// Returns when so many are stuck.
    pub fn wait_stuck(&self, many: usize) {
        let mut stuck = self.stuck.lock();
        let patience = std::time::Duration::from_secs(20);
        self.moved.wait_while_for(&mut stuck, |stuck| *stuck < Some(many), patience);
        assert_eq!(*stuck, Some(many), "so many requests are handled at a time");
    }

    /// Lets the stuck ones go on; from now on none is stuck.
    pub fn release_stuck(&self) {
        *self.stuck.lock() = None;
        self.moved.notify_all();
    }

    /// From now on nothing can be created, or everything again.
    pub fn set_frozen(&self, frozen: bool) {
        *self.frozen.lock() = frozen;
        self.thawed.notify_all();
    }

    fn create_node(
        &self,
        dir: u32,
        new: NewNode,
        perm: u16,
        umask: u16,
        creds: Creds,
    ) -> Result<(u32, bool)> {
        let mut state = self.state.lock();
        if state.node(dir)?.attr.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        let (kind, rdev, target) = match new {
            NewNode::Regular => (FileKind::Regular, Rdev::default(), Vec::new()),
            NewNode::Directory => (FileKind::Directory, Rdev::default(), Vec::new()),
            NewNode::Symlink(target) => (FileKind::Symlink, Rdev::default(), target),
            NewNode::CharDevice(rdev) => (FileKind::CharDevice, rdev, Vec::new()),
            NewNode::BlockDevice(rdev) => (FileKind::BlockDevice, rdev, Vec::new()),
            NewNode::Fifo => (FileKind::Fifo, Rdev::default(), Vec::new()),
            NewNode::Socket => (FileKind::Socket, Rdev::default(), Vec::new()),
        };
        let ino = state.add_node(kind, perm & !umask, creds, dir);
        let node = state.node(ino)?;
        node.attr.rdev = rdev;
        node.target = target;
        Ok((ino, kind == FileKind::Directory))
    }
}

impl FileSystem for MemFs {
    fn root(&self) -> u32 {
        ROOT
    }

    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        assert_ne!(name, b"panic", "a handler that panics");
        if name.starts_with(b"stuck") {
            self.stick();
        }
        let mut state = self.state.lock();
        let ino = state.find(dir, name)?;
        state.hold(ino)
    }

    fn retain(&self, ino: u32) {
        self.state.lock().hold(ino).unwrap();
    }

    fn forget(&self, ino: u32, n: u64) {
        let mut state = self.state.lock();
        let node = state.node(ino).unwrap();
        node.references = node.references.checked_sub(n).expect("more forgotten than looked up");
        state.reap(ino);
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        Ok(self.state.lock().node(ino)?.attr())
    }

    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr> {
        let mut state = self.state.lock();
        let node = state.node(ino)?;
        let time = |set| match set {
            SetTime::Now => now(),
            SetTime::At(at) => at,
        };
        node.attr.ctime = match set.ctime {
            Some(SetTime::At(time)) => time,
            _ => now(),
        };
        node.attr.perm = set.perm.unwrap_or(node.attr.perm);
        node.attr.uid = set.uid.unwrap_or(node.attr.uid);
        node.attr.gid = set.gid.unwrap_or(node.attr.gid);
        node.attr.flags = set.flags.unwrap_or(node.attr.flags);
        node.attr.project = set.project.unwrap_or(node.attr.project);
        node.attr.atime = set.atime.map_or(node.attr.atime, time);
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
            node.attr.mtime = now();
        }
        node.attr.mtime = set.mtime.map_or(node.attr.mtime, time);
        Ok(node.attr())
    }

    fn create(
        &self,
        dir: u32,
        name: &[u8],
        new: NewNode,
        perm: u16,
        umask: u16,
        creds: Creds,
    ) -> Result<Attr> {
        if *self.frozen.lock() {
            return Err(FsError::Frozen);
        }
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        if self.state.lock().find(dir, name).is_ok() {
            return Err(FsError::Exists);
        }
        let (ino, _) = self.create_node(dir, new, perm, umask, creds)?;
        let mut state = self.state.lock();
        state.insert(dir, name, ino)?;
        state.hold(ino)
    }

    fn create_unnamed(&self, dir: u32, perm: u16, umask: u16, creds: Creds) -> Result<Attr> {
        let (ino, _) = self.create_node(dir, NewNode::Regular, perm, umask, creds)?;
        let mut state = self.state.lock();
        state.node(ino)?.attr.nlink = 0;
        state.hold(ino)
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock();
        if state.find(dir, name).is_ok() {
            return Err(FsError::Exists);
        }
        state.insert(dir, name, ino)?;
        state.node(ino)?.attr.nlink += 1;
        state.hold(ino)
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let ino = state.take_out(dir, name)?;
        state.drop_link(ino)
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let ino = state.find(dir, name)?;
        let node = state.node(ino)?;
        if node.attr.kind != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        if !node.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        state.take_out(dir, name)?;
        state.drop_link(ino)
    }

    fn rename(
        &self,
        dir: u32,
        name: &[u8],
        new_dir: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let ino = state.find(dir, name)?;
        let target = state.find(new_dir, new_name).ok();
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = target.ok_or(FsError::NotFound)?;
            state.take_out(dir, name)?;
            state.take_out(new_dir, new_name)?;
            state.insert(dir, name, other)?;
            return state.insert(new_dir, new_name, ino);
        }
        if let Some(target) = target {
            if flags.contains(RenameFlags::NOREPLACE) {
                return Err(FsError::Exists);
            }
            if target == ino {
                return Ok(());
            }
            if !state.node(target)?.entries.is_empty() {
                return Err(FsError::NotEmpty);
            }
            state.take_out(new_dir, new_name)?;
            state.drop_link(target)?;
        }
        state.take_out(dir, name)?;
        state.insert(new_dir, new_name, ino)
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        Ok(self.state.lock().node(ino)?.target.clone())
    }

    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let entries: Vec<DirEntry> = {
            let mut state = self.state.lock();
            let parent = state.node(dir)?.parent;
            let directory = Some(FileKind::Directory);
            let mut entries = vec![
                DirEntry { ino: dir, cookie: 1, kind: directory, name: b".".to_vec() },
                DirEntry { ino: parent, cookie: 2, kind: directory, name: b"..".to_vec() },
            ];
            let names: Vec<_> = state.node(dir)?.entries.clone().into_iter().collect();
            for (name, (ino, cookie)) in names {
                let kind = Some(state.node(ino)?.attr.kind);
                entries.push(DirEntry { ino, cookie, kind, name });
            }
            entries
        };
        let mut entries: Vec<_> =
            entries.into_iter().filter(|entry| entry.cookie > cookie).collect();
        entries.sort_by_key(|entry| entry.cookie);
        for entry in entries {
            if !each(entry) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if self.state.lock().node(ino)?.data.starts_with(b"stuck") {
            self.stick();
        }
        let mut state = self.state.lock();
        let data = &state.node(ino)?.data;
        let data = data.get(offset as usize..).unwrap_or_default();
        let count = data.len().min(buf.len());
        assert!(!data.starts_with(b"panic"), "a handler that panics");
        if data.starts_with(b"error") {
            return Err(FsError::NoDataThere);
        }
        buf[..count].copy_from_slice(&data[..count]);
        Ok(count)
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8]) -> Result<usize> {
        let mut state = self.state.lock();
        let node = state.node(ino)?;
        let end = offset as usize + data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[offset as usize..end].copy_from_slice(data);
        node.attr.mtime = now();
        Ok(data.len())
    }

    fn fallocate(&self, ino: u32, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let data = &mut state.node(ino)?.data;
        let (start, end) = (offset as usize, (offset + len) as usize);
        let grow = match mode {
            Fallocate::Allocate { keep_size } | Fallocate::ZeroRange { keep_size } => !keep_size,
            Fallocate::PunchHole => false,
            Fallocate::CollapseRange | Fallocate::InsertRange => {
                return Err(FsError::NotSupported("mode"));
            }
        };
        if grow && data.len() < end {
            data.resize(end, 0);
        }
        if !matches!(mode, Fallocate::Allocate { .. }) {
            let end = end.min(data.len());
            data[start.min(end)..end].fill(0);
        }
        Ok(())
    }

    fn seek(&self, ino: u32, offset: u64, what: Seek) -> Result<u64> {
        let mut state = self.state.lock();
        let data = &state.node(ino)?.data;
        if offset >= data.len() as u64 {
            return Err(FsError::NoDataThere);
        }
        let mut at = offset as usize;
        while at < data.len() {
            let page = at / PAGE * PAGE;
            let end = (page + PAGE).min(data.len());
            let is_hole = data[page..end].iter().all(|&byte| byte == 0);
            if is_hole == (what == Seek::Hole) {
                return Ok(at as u64);
            }
            at = end;
        }
        if what == Seek::Hole { Ok(data.len() as u64) } else { Err(FsError::NoDataThere) }
    }

    fn fiemap(&self, _: u32, _: u64, _: u64) -> Result<Vec<FileExtent>> {
        Ok(Vec::new())
    }

    fn fsync(&self, ino: u32, _: bool) -> Result<()> {
        let (tell, told) = std::sync::mpsc::channel();
        if let Some(deferred) = &mut *self.deferred.lock() {
            deferred.push(Box::new(move |result| drop(tell.send(result))));
            self.moved_on.notify_all();
        } else {
            return self.state.lock().node(ino).map(drop);
        }
        told.recv().unwrap_or_else(|_| Err(FsError::Io("the fsync was dropped".into())))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: 1000,
            blocks_free: 700,
            blocks_available: 600,
            inodes: 500,
            inodes_free: 400,
            name_max: 255,
        })
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().node(ino)?.xattrs.get(name).cloned().ok_or(FsError::NoAttribute)
    }

    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        let mut state = self.state.lock();
        let xattrs = &mut state.node(ino)?.xattrs;
        match (how, xattrs.contains_key(name)) {
            (XattrSet::Create, true) => Err(FsError::Exists),
            (XattrSet::Replace, false) => Err(FsError::NoAttribute),
            _ => {
                xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    fn listxattr(&self, ino: u32) -> Result<Vec<Vec<u8>>> {
        Ok(self.state.lock().node(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()> {
        self.state.lock().node(ino)?.xattrs.remove(name).map(drop).ok_or(FsError::NoAttribute)
    }
}

impl VolumeControl for MemFs {
    fn thaw(&self) -> Result<()> {
        self.set_frozen(false);
        Ok(())
    }

    fn trim(&self, _: u64, len: u64, _: u64) -> Result<u64> {
        Ok(len.min(4096))
    }

    fn stats_json(&self) -> String {
        "{\"handles\":0}".into()
    }
}

impl Mountable for MemFs {
    fn open_by_number(&self, ino: u32) -> Result<Attr> {
        if self.by_number { self.state.lock().hold(ino) } else { Err(FsError::Stale) }
    }

    fn kill_privileges(&self, ino: u32, outsider: bool) -> Result<()> {
        let mut state = self.state.lock();
        let node = state.node(ino)?;
        node.attr.perm &= !0o4000;
        if outsider || node.attr.perm & 0o10 != 0 {
            node.attr.perm &= !0o2000;
        }
        node.xattrs.remove(&b"security.capability"[..]);
        Ok(())
    }

    fn fsync_then(
        &self,
        (ino, open): (u32, OpenNr),
        data_only: bool,
        done: Done,
        lead: &mut dyn FnMut(extol_vfs::Job),
    ) {
        if let Some(deferred) = &mut *self.deferred.lock() {
            deferred.push(done);
            self.moved_on.notify_all();
            return;
        }
        let result = self.fsync_open(ino, open, data_only);
        lead(Box::new(move || done(result)));
    }

    fn wait_thawed(&self) {
        self.thawed.wait_while(&mut self.frozen.lock(), |frozen| *frozen);
    }
}
