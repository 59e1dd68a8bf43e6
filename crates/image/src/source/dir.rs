//! A directory of the host as a source.
//!
//! Directories are opened one below the other by their names, never by a path and never through a
//! symbolic link, so that nothing outside is listed even while the directory changes. Files with
//! several names inside it are hard links in the image; names outside do not count.

mod contents;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use extol_ondisk::Time;
use extol_vfs::Rdev;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use contents::{Held, HostFile, read_some};

use super::{DirOptions, FileData, Source};
use crate::edits::States;
use crate::error::{BuildError, Result, shown};
use crate::sys::{DIR_HANDLE, device, read_xattrs};
use crate::tree::{DataRef, Kind, Meta, NodeId, OtherTimes, TreeBuilder, XattrSet, XattrSetId};

/// A directory of the host.
#[derive(Debug)]
pub struct DirSource {
    path: PathBuf,
    root: Arc<OwnedFd>,
    options: DirOptions,
    dirs: Vec<DirEntry>,
    files: Vec<FileEntry>,
    names: Vec<u8>,
    /// Contents that were read when the directory was listed, by number of the file.
    held: HashMap<u64, Box<[u8]>>,
    /// What the sizes of files say, by device.
    sizes: HashMap<u64, Sizes>,
    /// Directories that files were opened in last.
    open: Mutex<Vec<(u32, Arc<OwnedFd>)>>,
}

/// What the sizes of the files of a file system say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sizes {
    /// How much there is.
    Exact,
    /// The same, but a file of size 0 may hold something (proc).
    UnlessZero,
    /// How much there is at most (sysfs).
    AtMost,
}

impl Sizes {
    fn of(file: &File) -> Self {
        match fs::fstatfs(file) {
            Ok(system) if AT_MOST.contains(&(system.f_type as u32)) => Self::AtMost,
            Ok(system) if system.f_blocks == 0 => Self::UnlessZero,
            _ => Self::Exact,
        }
    }

    fn are_true(self, size: u64) -> bool {
        match self {
            Self::Exact => true,
            Self::UnlessZero => size != 0,
            Self::AtMost => false,
        }
    }
}

/// Types of file systems: sysfs and configfs.
const AT_MOST: [u32; 2] = [0x6265_6572, 0x6265_6570];
/// Files that are larger have the size that they say, whatever the file system.
const MOST_READ_EARLY: u64 = 1 << 20;

/// A directory below the source.
#[derive(Clone, Copy, Debug)]
struct DirEntry {
    parent: u32,
    at: u32,
    len: u8,
}

/// A regular file below the source.
#[derive(Clone, Copy, Debug)]
struct FileEntry {
    dir: u32,
    at: u32,
    /// Of what tells that the file is still the same.
    print: u32,
    len: u8,
}

/// How many directories stay open for files that are read.
const OPEN: usize = 32;

/// A directory whose entries are to be listed.
struct Pending {
    node: NodeId,
    dir: u32,
    /// Directories above it.
    depth: u32,
    /// What is left out, in the directory that it is in, and then in itself.
    exclude: Rc<States>,
}

impl DirSource {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is not there, is no directory, or may not be read.
    pub fn open(path: &Path, options: DirOptions) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(|error| {
            BuildError::not_opened(path.as_os_str().as_bytes(), &io::Error::from(error))
        })?;
        Ok(Self {
            path: path.to_owned(),
            root: Arc::new(root),
            options,
            dirs: vec![DirEntry { parent: 0, at: 0, len: 0 }],
            files: Vec::new(),
            names: Vec::new(),
            held: HashMap::new(),
            sizes: HashMap::new(),
            open: Mutex::new(Vec::new()),
        })
    }
}

impl DirSource {
    /// The name of a directory below the source, and of a file in it, for messages.
    fn shown(&self, dir: u32, name: &[u8]) -> Vec<u8> {
        let mut parts = vec![name];
        let mut at = dir;
        while at != 0 {
            let entry = self.dirs[at as usize];
            parts.push(self.name(entry.at, entry.len));
            at = entry.parent;
        }
        parts.push(self.path.as_os_str().as_bytes());
        parts.reverse();
        if name.is_empty() {
            parts.pop();
        }
        parts.join(&b'/')
    }

    fn failed(&self, dir: u32, name: &[u8], error: Errno) -> BuildError {
        BuildError::entry(&self.shown(dir, name), io::Error::from(error))
    }

    fn name(&self, at: u32, len: u8) -> &[u8] {
        &self.names[at as usize..][..usize::from(len)]
    }

    fn keep_name(&mut self, name: &[u8]) -> (u32, u8) {
        let at = self.names.len() as u32;
        self.names.extend_from_slice(name);
        (at, name.len() as u8)
    }

    /// Opens a directory, step by step from the nearest one above that is open.
    fn open_dir(&self, dir: u32) -> Result<Arc<OwnedFd>> {
        let mut steps = Vec::new();
        let (mut at, mut fd) = (dir, None);
        {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            while at != 0 {
                fd = open.iter().rev().find(|(nr, _)| *nr == at).map(|(_, fd)| Arc::clone(fd));
                if fd.is_some() {
                    break;
                }
                steps.push(at);
                at = self.dirs[at as usize].parent;
            }
        }
        let mut fd = fd.unwrap_or_else(|| Arc::clone(&self.root));
        let flags = DIR_HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for nr in steps.into_iter().rev() {
            let entry = self.dirs[nr as usize];
            let name = self.name(entry.at, entry.len);
            let next = fs::openat(&*fd, name, flags, Mode::empty())
                .map_err(|error| self.failed(nr, b"", error))?;
            fd = Arc::new(next);
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() == OPEN {
                open.remove(0);
            }
            open.push((nr, Arc::clone(&fd)));
        }
        Ok(fd)
    }

    /// Names in a directory, in the order of their bytes.
    fn list(&self, dir: u32, fd: &OwnedFd) -> Result<Vec<CString>> {
        let failed = |error| self.failed(dir, b"", error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(fd, c".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// A listing under way.
struct Listing<'s, 'b> {
    source: &'s mut DirSource,
    into: &'b mut TreeBuilder,
    /// Files with several names, by device and inode number.
    links: HashMap<(u64, u64), NodeId>,
    pending: Vec<Pending>,
}

impl Listing<'_, '_> {
    fn all(&mut self) -> Result<()> {
        let root = Arc::clone(&self.source.root);
        let stat = fs::fstat(&*root).map_err(|error| self.source.failed(0, b"", error))?;
        let meta = self.meta(0, &root, c".", &stat)?;
        self.into.add(b"", meta, Kind::Dir)?;
        let exclude = Rc::new(self.source.options.exclude.start());
        self.pending.push(Pending { node: NodeId::ROOT, dir: 0, depth: 0, exclude });
        while let Some(mut dir) = self.pending.pop() {
            if dir.dir != 0 {
                let entry = self.source.dirs[dir.dir as usize];
                let name = self.source.name(entry.at, entry.len);
                dir.exclude = Rc::new(self.source.options.exclude.enter(&dir.exclude, name));
            }
            let fd = self.source.open_dir(dir.dir)?;
            for name in self.source.list(dir.dir, &fd)? {
                self.entry(&dir, &fd, &name)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: &Pending, fd: &OwnedFd, name: &CStr) -> Result<()> {
        let bytes = name.to_bytes();
        let stat = fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.source.failed(dir.dir, bytes, error))?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if self.source.options.exclude.matches(&dir.exclude, bytes, is_dir) {
            return Ok(());
        }
        let id = (device(&stat), stat.st_ino);
        if self.source.options.skip.contains(&id) {
            let shown = self.source.shown(dir.dir, bytes);
            self.into.note(&shown, "is the image itself and is left out");
            return Ok(());
        }
        let linked = stat.st_nlink > 1 && !is_dir;
        if linked && let Some(&node) = self.links.get(&id) {
            return self.into.link_child(dir.node, bytes, node);
        }
        let meta = self.meta(dir.dir, fd, name, &stat)?;
        let kind = self.kind(dir, fd, name, &stat)?;
        let node = self.into.add_child(dir.node, bytes, meta, kind)?;
        if kind.is_dir() {
            self.directory(dir, node, bytes)?;
        }
        if linked {
            self.links.insert(id, node);
        }
        Ok(())
    }

    /// Notes a directory that is to be listed.
    fn directory(&mut self, above: &Pending, node: NodeId, name: &[u8]) -> Result<()> {
        let depth = above.depth + 1;
        let limit = self.into.limits().depth;
        if depth > limit {
            let why = format!("is more than {limit} directories deep (--limits depth=NUMBER)");
            return Err(BuildError::entry(&self.source.shown(above.dir, name), why));
        }
        let (at, len) = self.source.keep_name(name);
        let dir = self.source.dirs.len() as u32;
        self.source.dirs.push(DirEntry { parent: above.dir, at, len });
        let exclude = Rc::clone(&above.exclude);
        self.pending.push(Pending { node, dir, depth, exclude });
        Ok(())
    }

    fn kind(&mut self, dir: &Pending, fd: &OwnedFd, name: &CStr, stat: &Stat) -> Result<Kind> {
        let rdev = Rdev { major: fs::major(stat.st_rdev), minor: fs::minor(stat.st_rdev) };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Dir,
            FileType::Symlink => {
                let target = fs::readlinkat(fd, name, Vec::new())
                    .map_err(|error| self.source.failed(dir.dir, name.to_bytes(), error))?;
                let shown = self.source.shown(dir.dir, name.to_bytes());
                Kind::Symlink(self.into.target(&shown, target.to_bytes())?)
            }
            FileType::CharacterDevice => Kind::Char(rdev),
            FileType::BlockDevice => Kind::Block(rdev),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            _ => {
                let (at, len) = self.source.keep_name(name.to_bytes());
                let data = DataRef(self.source.files.len() as u64);
                let print = print(stat);
                self.source.files.push(FileEntry { dir: dir.dir, at, print, len });
                let size = match u64::try_from(stat.st_size).unwrap_or(0) {
                    size @ 0..=MOST_READ_EARLY => {
                        self.true_size(dir, fd, name, stat, (size, data))?
                    }
                    size => size,
                };
                Kind::File { size, data }
            }
        })
    }

    /// How much a file holds that says it has `size` bytes. Where that need not be so it is read,
    /// and what is there is kept: the next time it may be something else.
    fn true_size(
        &mut self,
        dir: &Pending,
        fd: &OwnedFd,
        name: &CStr,
        stat: &Stat,
        (size, data): (u64, DataRef),
    ) -> Result<u64> {
        let known = self.source.sizes.get(&device(stat)).copied();
        if known.is_some_and(|sizes| sizes.are_true(size)) {
            return Ok(size);
        }
        let failed = |source: &DirSource, error: io::Error| {
            BuildError::entry(&source.shown(dir.dir, name.to_bytes()), error)
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(fd, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // (An empty file need not be readable, and another one is read later.)
            Err(_) if known.is_none() => return Ok(size),
            Err(error) => return Err(failed(self.source, error.into())),
        };
        if known.is_none() {
            let sizes = Sizes::of(&file);
            self.source.sizes.insert(device(stat), sizes);
            if sizes.are_true(size) {
                return Ok(size);
            }
        }
        let (mut held, mut buf) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let count = read_some(&file, &mut buf).map_err(|error| failed(self.source, error))?;
            if count == 0 {
                break;
            }
            self.into.charge(count as u64)?;
            held.extend_from_slice(&buf[..count]);
        }
        let size = held.len() as u64;
        if size > 0 {
            self.source.held.insert(data.0, held.into());
        }
        Ok(size)
    }

    fn meta(&mut self, dir: u32, fd: &OwnedFd, name: &CStr, stat: &Stat) -> Result<Meta> {
        let time = |sec, nsec| Time { sec, nsec };
        let times = if self.source.options.keep_times {
            let atime = Some(time(stat.st_atime, stat.st_atime_nsec as u32));
            let ctime = Some(time(stat.st_ctime, stat.st_ctime_nsec as u32));
            OtherTimes { atime, ctime, crtime: None }
        } else {
            OtherTimes::default()
        };
        let set = match self.source.options.xattrs {
            true => read_xattrs(fd, name)
                .map_err(|error| self.source.failed(dir, name.to_bytes(), error))?,
            false => XattrSet::new(),
        };
        Ok(Meta {
            mode: (stat.st_mode & 0o7777) as u16,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
            times: self.into.times(times)?,
            xattrs: if set.is_empty() { XattrSetId::NONE } else { self.into.xattrs(set)? },
            implied: false,
            verity: false,
        })
    }
}

/// What tells that a file is still the same.
fn print(stat: &Stat) -> u32 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size).hash(&mut hasher);
    (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish() as u32
}

impl Source for DirSource {
    fn scan(&mut self, into: &mut TreeBuilder) -> Result<()> {
        Listing { source: self, into, links: HashMap::new(), pending: Vec::new() }.all()
    }

    fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>> {
        let nr = usize::try_from(data.0).ok().filter(|&nr| nr < self.files.len());
        let Some(entry) = nr.map(|nr| self.files[nr]) else {
            return Err(BuildError::Refused("no such file in the source".into()));
        };
        if let Some(held) = self.held.get(&data.0) {
            return Ok(Box::new(Held(held)));
        }
        let name = self.name(entry.at, entry.len);
        let gone = |error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => self.changed(&entry),
            _ => self.failed(entry.dir, name, error),
        };
        let dir = self.open_dir(entry.dir)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = fs::openat(&*dir, name, flags, Mode::empty()).map_err(gone)?;
        let reader = HostFile { source: self, entry, file: File::from(fd) };
        reader.check()?;
        Ok(Box::new(reader))
    }
}

impl DirSource {
    fn changed(&self, entry: &FileEntry) -> BuildError {
        let path = self.shown(entry.dir, self.name(entry.at, entry.len));
        BuildError::Changed { entry: shown(&path) }
    }
}
