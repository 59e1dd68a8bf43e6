//! The walk over the files, and what is written of each.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::vec;

use extol_ondisk::InodeFlags;
use extol_vfs::{Attr, FileKind, FileSystem, FsError, Rdev};

use super::header::{BLOCK, Entry};
use super::holes::{self, Runs};
use super::records::Records;
use super::{TarError, TarEvent, TarEvents, TarOptions, TarSummary};
use crate::edits::States;

/// Files up to this size are read once, larger ones a second time for their contents.
const BUFFER: usize = 4 << 20;
/// The deepest directory that is entered, and the longest path: what [`crate::tree`] takes.
const MAX_DEPTH: usize = 4096;
const MAX_PATH: usize = 64 << 10;

/// Flags of inodes that an archive does not have.
const FLAGS: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::JOURNAL_DATA);

type Done<T> = Result<T, TarError>;

/// A name in a directory.
struct Name {
    is_dir: bool,
    name: Vec<u8>,
}

/// A directory on the way down.
struct Level {
    ino: u32,
    left: vec::IntoIter<Name>,
    /// How much of the path is the directory's, with the slash.
    path: usize,
    states: States,
}

/// An archive that is being written.
pub(super) struct Writer<'a> {
    fs: &'a dyn FileSystem,
    out: &'a mut dyn Write,
    options: &'a TarOptions,
    events: TarEvents<'a>,
    summary: TarSummary,
    /// The path of the entry.
    path: Vec<u8>,
    /// Files with several names: the first of them, and how many are to come.
    first: HashMap<u32, (Vec<u8>, u32)>,
    entered: HashSet<u32>,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(
        fs: &'a dyn FileSystem,
        out: &'a mut dyn Write,
        options: &'a TarOptions,
        events: TarEvents<'a>,
    ) -> Self {
        Self {
            fs,
            out,
            options,
            events,
            summary: TarSummary::default(),
            path: Vec::new(),
            first: HashMap::new(),
            entered: HashSet::new(),
            buffer: vec![0; BUFFER],
        }
    }

    /// Writes a file, or a directory with all that is in it.
    pub fn all(&mut self, file: u32, name: &[u8]) -> Done<()> {
        let attr = match self.fs.getattr(file) {
            Ok(attr) => attr,
            Err(error) => {
                self.path = name.to_owned();
                return self.failed(error);
            }
        };
        if attr.kind != FileKind::Directory {
            self.path = name.to_owned();
            return self.node(&attr);
        }
        self.path = b".".to_vec();
        self.fs.retain(file);
        let mut levels = Vec::new();
        let walked = self.walk(&attr, &mut levels);
        for level in levels {
            self.fs.forget(level.ino, 1);
        }
        walked
    }

    /// The end of the archive.
    pub fn end(self) -> Done<TarSummary> {
        let Self { out, mut summary, .. } = self;
        out.write_all(&[0; 2 * BLOCK])?;
        out.flush()?;
        summary.written += 2 * BLOCK as u64;
        Ok(summary)
    }

    /// Walks from a directory on. It has a reference, as all that are entered.
    fn walk(&mut self, start: &Attr, levels: &mut Vec<Level>) -> Done<()> {
        levels.extend(self.directory(start, self.options.exclude.start(), 0)?);
        while let Some(level) = levels.last_mut() {
            let Some(Name { is_dir, name }) = level.left.next() else {
                let ino = level.ino;
                levels.pop();
                self.fs.forget(ino, 1);
                continue;
            };
            self.path.truncate(level.path);
            self.path.extend_from_slice(&name);
            let exclude = &self.options.exclude;
            if exclude.matches(&level.states, &name, is_dir) {
                continue;
            }
            let attr = match self.fs.lookup(level.ino, &name) {
                Ok(attr) => attr,
                Err(error) => {
                    self.failed(error)?;
                    continue;
                }
            };
            if attr.kind == FileKind::Directory {
                let states = exclude.enter(&level.states, &name);
                let depth = levels.len();
                levels.extend(self.directory(&attr, states, depth)?);
            } else {
                let written = self.node(&attr);
                self.fs.forget(attr.id.ino, 1);
                written?;
            }
        }
        Ok(())
    }

    /// Writes a directory itself; gives what is in it. Takes over the reference.
    fn directory(&mut self, attr: &Attr, states: States, depth: usize) -> Done<Option<Level>> {
        let ino = attr.id.ino;
        let refused = if depth == MAX_DEPTH || self.path.len() >= MAX_PATH {
            Some(FsError::NotSupported("paths of more than 4096 directories or 64 KiB"))
        } else if !self.entered.insert(ino) {
            Some(FsError::corrupt("a directory has two names").in_inode(ino.into()))
        } else {
            None
        };
        let listed = match refused {
            Some(error) => self.failed(error).map(|()| None),
            None => {
                self.path.push(b'/');
                self.entry(attr, b'5', b"", None).and_then(|()| self.names(ino)).map(Some)
            }
        };
        match listed {
            Ok(Some(names)) => {
                let left = names.into_iter();
                Ok(Some(Level { ino, left, path: self.path.len(), states }))
            }
            other => {
                self.fs.forget(ino, 1);
                other.map(|_| None)
            }
        }
    }

    /// The names in a directory, in the order of the archive: files first.
    fn names(&mut self, dir: u32) -> Done<Vec<Name>> {
        let fs = self.fs;
        let mut names = Vec::new();
        let mut unknown = Vec::new();
        let mut bad = None;
        let read = fs.readdir(dir, 0, &mut |entry| {
            let name = entry.name;
            if matches!(&*name, b"." | b"..") {
                return true;
            }
            if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                let what = "a file name with a slash or NUL in it";
                bad.get_or_insert(FsError::corrupt(what).in_inode(dir.into()));
                return true;
            }
            match entry.kind {
                Some(kind) => names.push(Name { is_dir: kind == FileKind::Directory, name }),
                None => unknown.push(name),
            }
            true
        });
        for name in unknown {
            // (A failure comes again when the file is written.)
            let found = fs.lookup(dir, &name);
            let is_dir = found.as_ref().is_ok_and(|attr| attr.kind == FileKind::Directory);
            if let Ok(attr) = found {
                fs.forget(attr.id.ino, 1);
            }
            names.push(Name { is_dir, name });
        }
        if let Some(error) = bad.or(read.err()) {
            self.failed(error)?;
        }
        names.sort_by(|a, b| (a.is_dir, &a.name).cmp(&(b.is_dir, &b.name)));
        Ok(names)
    }

    /// Writes what is no directory.
    fn node(&mut self, attr: &Attr) -> Done<()> {
        let ino = attr.id.ino;
        if attr.kind == FileKind::Socket {
            self.summary.sockets += 1;
            return Ok(());
        }
        if attr.nlink > 1
            && let Some((first, left)) = self.first.get_mut(&ino)
        {
            let first = first.clone();
            *left -= 1;
            if *left == 0 {
                self.first.remove(&ino);
            }
            return self.link(attr, &first);
        }
        let written = match attr.kind {
            FileKind::Regular => self.regular(attr)?,
            FileKind::Symlink => self.symlink(attr)?,
            kind => {
                let kind = match kind {
                    FileKind::CharDevice => b'3',
                    FileKind::BlockDevice => b'4',
                    _ => b'6',
                };
                self.entry(attr, kind, b"", None)?;
                true
            }
        };
        if written && attr.nlink > 1 {
            self.first.insert(ino, (self.path.clone(), attr.nlink - 1));
        }
        Ok(())
    }

    /// One more name of a file.
    fn link(&mut self, attr: &Attr, first: &[u8]) -> Done<()> {
        let mtime = extol_vfs::Timestamp { nsec: 0, ..attr.mtime };
        let entry = Entry {
            path: &self.path,
            link: first,
            kind: b'1',
            mode: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            size: 0,
            mtime,
            rdev: Rdev::default(),
            real_size: None,
            records: Records::default(),
        };
        let header = entry.encode();
        self.summary.links += 1;
        self.put(&header)
    }

    fn symlink(&mut self, attr: &Attr) -> Done<bool> {
        let target = match self.fs.readlink(attr.id.ino) {
            Ok(target) if target.is_empty() || target.contains(&0) => {
                Err(FsError::corrupt("a symbolic link without a target"))
            }
            other => other,
        };
        match target {
            Ok(target) => self.entry(attr, b'2', &target, None).map(|()| true),
            Err(error) => self.failed(error).map(|()| false),
        }
    }

    /// Writes a regular file. False if it could not be read.
    fn regular(&mut self, attr: &Attr) -> Done<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.contents(attr, &mut buffer);
        self.buffer = buffer;
        written
    }

    fn contents(&mut self, attr: &Attr, buffer: &mut [u8]) -> Done<bool> {
        let (ino, size, sparse) = (attr.id.ino, attr.size, self.options.sparse);
        let reader = self.fs.reader(ino);
        let small = usize::try_from(size).ok().filter(|size| *size <= buffer.len());
        let runs = match small {
            Some(len) => match reader.read(0, &mut buffer[..len]) {
                Ok(count) if count < len => Err(FsError::Io("the file ended early".into())),
                Ok(_) if sparse => Ok(holes::of_bytes(&buffer[..len])),
                Ok(_) => Ok(Runs::whole(size)),
                Err(error) => Err(error),
            },
            None if sparse => {
                let mut stopped = false;
                let go_on = &mut || {
                    stopped |= (self.events)(TarEvent::Copied(0)).is_break();
                    !stopped
                };
                let runs = holes::of_file(self.fs, ino, &*reader, size, buffer, go_on);
                if stopped {
                    return Err(TarError::Stopped);
                }
                runs
            }
            None => Ok(Runs::whole(size)),
        };
        let runs = match runs {
            Ok(runs) => runs,
            Err(error) => return self.failed(error).map(|()| false),
        };
        self.entry(attr, b'0', b"", Some(&runs))?;
        let mut problem = None;
        for &(at, end) in &runs.runs {
            if small.is_some() {
                self.put(&buffer[at as usize..end as usize])?;
                self.tell(end - at)?;
                continue;
            }
            let mut at = at;
            while at < end {
                let len = usize::try_from(end - at).map_or(buffer.len(), |n| n.min(buffer.len()));
                let piece = &mut buffer[..len];
                let read = match &problem {
                    None => reader.read(at, piece),
                    Some(_) => Ok(0),
                };
                let count = read.unwrap_or_else(|error| {
                    problem = Some(error);
                    0
                });
                if count < len {
                    problem.get_or_insert(FsError::Io("the file ended early".into()));
                    piece[count..].fill(0);
                }
                self.put(piece)?;
                self.tell(len as u64)?;
                at += len as u64;
            }
        }
        self.put(&[0; BLOCK][..(BLOCK - (runs.len() % BLOCK as u64) as usize) % BLOCK])?;
        if let Some(error) = problem {
            self.failed(format_args!("{error}: zeros stand for the rest of it"))?;
        }
        Ok(true)
    }

    /// Writes the header of a file, and the map of one with holes.
    fn entry(&mut self, attr: &Attr, kind: u8, link: &[u8], data: Option<&Runs>) -> Done<()> {
        let records = self.records(attr)?;
        let map = data.filter(|runs| !runs.is_whole()).map(Runs::map);
        let stored = data.map_or(0, Runs::len) + map.as_ref().map_or(0, |map| map.len() as u64);
        let entry = Entry {
            path: &self.path,
            link,
            kind,
            mode: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            size: stored,
            mtime: attr.mtime,
            rdev: attr.rdev,
            real_size: map.as_ref().map(|_| attr.size),
            records,
        };
        let header = entry.encode();
        self.summary.files += 1;
        self.summary.bytes += data.map_or(0, |_| attr.size);
        self.summary.flags +=
            u64::from(InodeFlags::from_bits_truncate(attr.flags).intersects(FLAGS));
        self.put(&header)?;
        self.put(&map.unwrap_or_default())
    }

    /// What only an extended header says: attributes, in the order of their names, and times.
    fn records(&mut self, attr: &Attr) -> Done<Records> {
        let mut records = Records::default();
        if self.options.keep_times {
            records.time("atime", attr.atime);
            records.time("ctime", attr.ctime);
            records.time("LIBARCHIVE.creationtime", attr.crtime);
        }
        let ino = attr.id.ino;
        let mut names = match self.fs.listxattr(ino) {
            Ok(names) => names,
            Err(FsError::NotSupported(_)) => Vec::new(),
            Err(error) => {
                self.failed(format_args!("its attributes: {error}"))?;
                Vec::new()
            }
        };
        names.sort();
        names.dedup();
        for name in names {
            match self.fs.getxattr(ino, &name) {
                Ok(value) => records.xattr(&name, &value),
                Err(error) => {
                    let name = crate::error::shown(&name);
                    self.failed(format_args!("its attribute '{name}': {error}"))?;
                }
            }
        }
        Ok(records)
    }

    fn put(&mut self, bytes: &[u8]) -> Done<()> {
        self.out.write_all(bytes)?;
        self.summary.written += bytes.len() as u64;
        Ok(())
    }

    fn tell(&mut self, bytes: u64) -> Done<()> {
        match (self.events)(TarEvent::Copied(bytes)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TarError::Stopped),
        }
    }

    /// Something of the entry could not be read.
    fn failed(&mut self, why: impl std::fmt::Display) -> Done<()> {
        self.summary.failed += 1;
        let why = why.to_string();
        match (self.events)(TarEvent::Failed { path: &self.path, why: &why }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TarError::Stopped),
        }
    }
}
