//! The client: names, handles, and what it keeps of files.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::Address;
use super::rpc::{Answer, Args, Attr, Rpc};
use crate::target::{DirItem, Target, TargetFile};

mod procedure {
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIRPLUS: u32 = 17;
    pub const FSINFO: u32 = 19;
    pub const COMMIT: u32 = 21;
}
use procedure::*;

/// Most bytes of one READ or WRITE, if the server takes them.
const PART: usize = 1 << 20;
/// Parts that are under way at a time.
const AT_ONCE: usize = 8;
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
const GUARDED: u32 = 1;

type Handle = Vec<u8>;

/// A client.
#[derive(Debug)]
pub struct Client {
    rpc: Arc<Rpc>,
    /// What is known of names, by path.
    known: RwLock<HashMap<String, Arc<Inode>>>,
}

#[derive(Debug)]
struct Inode {
    handle: Handle,
    state: Mutex<Contents>,
}

/// What the client has of a file.
#[derive(Debug, Default)]
struct Contents {
    data: Vec<u8>,
    /// `data` is all of the file; else nothing of it is there.
    is_here: bool,
    size: u64,
    /// Stretches that the server does not have, by their starts; none touches another.
    dirty: BTreeMap<usize, usize>,
}

impl Client {
    /// Connects, and finds the directory.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses.
    pub fn new(address: &Address) -> io::Result<Self> {
        let mut rpc = Rpc::new(address.socket, address.delay);
        let root = match &address.handle {
            Some(handle) => handle.clone(),
            None => rpc.mount()?,
        };
        let mut answer = rpc.call(FSINFO, Args::default().bytes(&root))?;
        answer.post_op()?;
        let read = answer.u32()?;
        answer.take(8)?;
        rpc.part = PART.min(read as usize).min(answer.u32()? as usize).max(512);
        let rpc = Arc::new(rpc);
        let known = HashMap::from([(String::new(), Inode::new(root, 0, false))]);
        Ok(Self { rpc, known: RwLock::new(known) })
    }

    fn inode(&self, path: &str) -> io::Result<Arc<Inode>> {
        if let Some(inode) = self.known.read().get(path) {
            return Ok(Arc::clone(inode));
        }
        let (dir, name) = split(path);
        let dir = self.inode(dir)?;
        let args = Args::default().bytes(&dir.handle).bytes(name.as_bytes());
        let mut answer = self.rpc.call(LOOKUP, args)?;
        let handle = answer.bytes()?;
        let size = answer.post_op()?.map_or(0, |attr| attr.size);
        let inode = Inode::new(handle, size, false);
        Ok(Arc::clone(self.known.write().entry(path.to_owned()).or_insert(inode)))
    }

    /// The directory of a path, and a call that begins with it and the name.
    fn about(&self, path: &str) -> io::Result<Args> {
        let (dir, name) = split(path);
        Ok(Args::default().bytes(&self.inode(dir)?.handle).bytes(name.as_bytes()))
    }

    /// A call that makes a name: the handle of what it made.
    fn make(&self, path: &str, procedure: u32, args: Args) -> io::Result<Arc<Inode>> {
        let mut answer = self.rpc.call(procedure, args)?;
        if answer.u32()? == 0 {
            return Err(io::Error::other("the NFS server gave no handle"));
        }
        let inode = Inode::new(answer.bytes()?, 0, true);
        self.known.write().insert(path.to_owned(), Arc::clone(&inode));
        Ok(inode)
    }

    fn forget(&self, path: &str) -> Option<Arc<Inode>> {
        self.known.write().remove(path)
    }

    fn file(&self, inode: Arc<Inode>) -> Box<dyn TargetFile> {
        Box::new(File { rpc: Arc::clone(&self.rpc), inode })
    }

    fn attr(&self, inode: &Inode) -> io::Result<Attr> {
        self.rpc.call(GETATTR, Args::default().bytes(&inode.handle))?.fattr()
    }

    fn set(&self, path: &str, mode: Option<u32>, seconds: Option<u32>) -> io::Result<()> {
        let inode = self.inode(path)?;
        // What is written is sent first, so that the times stay.
        inode.flush(&self.rpc)?;
        let args = Args::default().bytes(&inode.handle).attributes(mode, seconds).u32(0);
        self.rpc.call(SETATTR, args).map(drop)
    }

    fn each_entry(&self, path: &str, mut each: impl FnMut(DirItem)) -> io::Result<()> {
        let dir = self.inode(path)?;
        let (mut cookie, mut verifier) = (0, 0);
        loop {
            let args = Args::default().bytes(&dir.handle).u64(cookie).u64(verifier);
            let args = args.u32(8 << 10).u32(64 << 10);
            let mut answer = self.rpc.call(READDIRPLUS, args)?;
            answer.post_op()?;
            verifier = answer.u64()?;
            while answer.u32()? == 1 {
                let (item, at) = entry(&mut answer)?;
                cookie = at;
                if item.name != "." && item.name != ".." {
                    each(item);
                }
            }
            if answer.u32()? == 1 {
                return Ok(());
            }
        }
    }
}

fn entry(answer: &mut Answer) -> io::Result<(DirItem, u64)> {
    answer.u64()?;
    let name = String::from_utf8_lossy(&answer.bytes()?).into_owned();
    let cookie = answer.u64()?;
    let is_dir = answer.post_op()?.is_some_and(|attr| attr.is_dir);
    if answer.u32()? == 1 {
        answer.bytes()?;
    }
    Ok((DirItem { name, is_dir }, cookie))
}

/// Directory and name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Target for Client {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        let args = self.about(path)?.attributes(Some(0o755), None);
        self.make(path, MKDIR, args).map(drop)
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        let about = || self.about(path);
        match self.rpc.call(LOOKUP, about()?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        }
        let args = about()?.u32(GUARDED).attributes(Some(0o644), None);
        Ok(self.file(self.make(path, CREATE, args)?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        let was_known = self.known.read().contains_key(path);
        let inode = self.inode(path)?;
        // (Attributes come with a LOOKUP.)
        if was_known {
            self.attr(&inode)?;
        }
        Ok(self.file(inode))
    }

    fn create_bulk(&self, path: &str, _size: u64, _: bool) -> io::Result<Box<dyn TargetFile>> {
        self.create(path)
    }

    fn open_bulk(&self, path: &str, _: bool) -> io::Result<Box<dyn TargetFile>> {
        self.open(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.rpc.call(REMOVE, self.about(path)?)?;
        if let Some(inode) = self.forget(path) {
            inode.state.lock().dirty.clear();
        }
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.rpc.call(RMDIR, self.about(path)?)?;
        self.forget(path);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (dir, name) = split(to);
        let to_dir = self.inode(dir)?;
        let args = self.about(from)?.bytes(&to_dir.handle).bytes(name.as_bytes());
        self.rpc.call(RENAME, args)?;
        // What lies below a directory is looked up again.
        let below = format!("{from}/");
        let mut known = self.known.write();
        known.retain(|path, _| !path.starts_with(&below));
        known.remove(to);
        if let Some(inode) = known.remove(from) {
            known.insert(to.to_owned(), inode);
        }
        Ok(())
    }

    fn link(&self, old: &str, new: &str) -> io::Result<()> {
        let inode = self.inode(old)?;
        let (dir, name) = split(new);
        let dir = self.inode(dir)?;
        let args = Args::default().bytes(&inode.handle).bytes(&dir.handle);
        self.rpc.call(LINK, args.bytes(name.as_bytes()))?;
        self.known.write().insert(new.to_owned(), inode);
        Ok(())
    }

    fn symlink(&self, text: &str, path: &str) -> io::Result<()> {
        let args = self.about(path)?.attributes(None, None).bytes(text.as_bytes());
        self.make(path, SYMLINK, args).map(drop)
    }

    fn chmod(&self, path: &str, mode: u16) -> io::Result<()> {
        self.set(path, Some(mode.into()), None)
    }

    fn set_times(&self, path: &str, seconds: i64) -> io::Result<()> {
        let seconds = u32::try_from(seconds).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.set(path, None, Some(seconds))
    }

    fn size_of(&self, path: &str) -> io::Result<u64> {
        let inode = self.inode(path)?;
        inode.flush(&self.rpc)?;
        Ok(self.attr(&inode)?.size)
    }

    fn entries(&self, path: &str) -> io::Result<Vec<DirItem>> {
        let mut items = Vec::new();
        self.each_entry(path, |item| items.push(item))?;
        Ok(items)
    }

    fn list(&self, path: &str) -> io::Result<usize> {
        let mut count = 0;
        self.each_entry(path, |_| count += 1)?;
        Ok(count)
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        match self.inode(path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(self.create(path)?),
            Err(error) => return Err(error),
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.set_times(path, now.map_or(0, |now| now.as_secs().cast_signed()))
    }

    /// Changes of names are durable when they are answered.
    fn sync_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let all: Vec<_> = self.known.read().values().map(Arc::clone).collect();
        all.iter().try_for_each(|inode| inode.flush(&self.rpc))
    }
}

/// An open file. What is written goes to the server when it is closed, too.
struct File {
    rpc: Arc<Rpc>,
    inode: Arc<Inode>,
}

impl Drop for File {
    fn drop(&mut self) {
        // (As with close(2), whose result few programs look at. An fsync tells.)
        let _ = self.inode.flush(&self.rpc);
    }
}

impl TargetFile for File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.inode.state.lock();
        self.inode.fetch(&self.rpc, &mut state)?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let end = start + data.len();
        if state.data.len() < end {
            state.data.resize(end, 0);
            state.size = end as u64;
        }
        state.data[start..end].copy_from_slice(data);
        state.note_dirty(start, end);
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.inode.state.lock();
        self.inode.fetch(&self.rpc, &mut state)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(state.data.len());
        let len = buf.len().min(state.data.len() - from);
        buf[..len].copy_from_slice(&state.data[from..from + len]);
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.inode.state.lock().size)
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.inode.flush(&self.rpc)
    }
}

impl Contents {
    fn note_dirty(&mut self, mut start: usize, mut end: usize) {
        while let Some((from, to)) = self.dirty.range(..=end).next_back().map(|(a, b)| (*a, *b)) {
            if to < start {
                break;
            }
            self.dirty.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.dirty.insert(start, end);
    }
}

impl Inode {
    fn new(handle: Handle, size: u64, is_new: bool) -> Arc<Self> {
        let state = Contents { is_here: is_new, size, ..Contents::default() };
        Arc::new(Self { handle, state: Mutex::new(state) })
    }

    /// Reads all of the file, if it is not here.
    fn fetch(&self, rpc: &Rpc, state: &mut Contents) -> io::Result<()> {
        if state.is_here {
            return Ok(());
        }
        let len = usize::try_from(state.size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        state.data.clear();
        let parts: Vec<usize> = (0..len).step_by(rpc.part).collect();
        for parts in parts.chunks(AT_ONCE) {
            let calls = parts
                .iter()
                .map(|at| Args::default().bytes(&self.handle).u64(*at as u64).u32(rpc.part as u32));
            for mut answer in rpc.calls(READ, calls)? {
                answer.post_op()?;
                answer.u32()?;
                answer.u32()?;
                state.data.extend(answer.bytes()?);
            }
        }
        state.is_here = true;
        Ok(())
    }

    /// Makes what was written durable on the server.
    fn flush(&self, rpc: &Rpc) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.dirty.is_empty() {
            return Ok(());
        }
        let mut parts = Vec::new();
        for (start, end) in &state.dirty {
            parts
                .extend((*start..*end).step_by(rpc.part).map(|at| (at, (at + rpc.part).min(*end))));
        }
        let how = if parts.len() == 1 { FILE_SYNC } else { UNSTABLE };
        for parts in parts.chunks(AT_ONCE) {
            let calls = parts.iter().map(|(start, end)| {
                let data = &state.data[*start..*end];
                let args = Args::default().bytes(&self.handle).u64(*start as u64);
                args.u32(data.len() as u32).u32(how).bytes(data)
            });
            rpc.calls(WRITE, calls)?;
        }
        if how == UNSTABLE {
            rpc.call(COMMIT, Args::default().bytes(&self.handle).u64(0).u32(0))?;
        }
        state.dirty.clear();
        Ok(())
    }
}
