//! A file system in memory, as simple as possible: inodes in a table, directories as maps. Contents
//! are kept elsewhere.
//!
//! It answers as Linux does. The order in which Linux checks things decides which of two errnos a
//! caller gets, so the functions check in that order. The targets of symbolic links never exist, so
//! following one finds nothing.

use std::collections::BTreeMap;

use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use super::ops::Op;

pub(super) type Id = usize;
pub(super) type Result<T> = std::result::Result<T, Errno>;

#[derive(Clone, Debug)]
pub(super) enum Body {
    File,
    Dir { entries: BTreeMap<String, Id>, parent: Id },
    Link(String),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub body: Body,
    pub mode: u32,
    pub links: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// What a name shows; sizes and contents are compared on their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shown {
    pub kind: FileType,
    pub mode: u32,
    pub links: u32,
    pub target: Option<String>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    inodes: Vec<Inode>,
}

pub(super) const ROOT: Id = 0;

impl Model {
    pub fn new() -> Self {
        let root = Body::Dir { entries: BTreeMap::new(), parent: ROOT };
        Self { inodes: vec![Inode { body: root, mode: 0o755, links: 2, xattrs: BTreeMap::new() }] }
    }

    pub fn entries(&self, id: Id) -> Result<&BTreeMap<String, Id>> {
        match &self.inodes[id].body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn entries_mut(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.inodes[id].body {
            Body::Dir { entries, .. } => entries,
            _ => unreachable!("callers have looked it up as a directory"),
        }
    }

    pub fn is_dir(&self, id: Id) -> bool {
        matches!(self.inodes[id].body, Body::Dir { .. })
    }

    pub fn is_link(&self, id: Id) -> bool {
        matches!(self.inodes[id].body, Body::Link(_))
    }

    /// True for a regular file.
    pub fn is_file(&self, id: Id) -> bool {
        matches!(self.inodes[id].body, Body::File)
    }

    /// The directory that holds the last component, and that component.
    fn parent<'p>(&self, path: &'p str) -> Result<(Id, &'p str)> {
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = ROOT;
        for part in dirs.split('/').filter(|p| !p.is_empty()) {
            at = *self.entries(at)?.get(part).ok_or(Errno::NOENT)?;
            if self.is_link(at) {
                return Err(Errno::NOENT);
            }
        }
        self.entries(at)?;
        Ok((at, name))
    }

    pub fn lookup(&self, path: &str) -> Result<Id> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        let (dir, name) = self.parent(path)?;
        self.entries(dir)?.get(name).copied().ok_or(Errno::NOENT)
    }

    /// As calls see it that follow a link at the end.
    pub fn follow(&self, path: &str) -> Result<Id> {
        let id = self.lookup(path)?;
        if self.is_link(id) { Err(Errno::NOENT) } else { Ok(id) }
    }

    /// A regular file as open(O_NOFOLLOW) for writing finds it.
    pub fn open(&self, path: &str) -> Result<Id> {
        let id = self.lookup(path)?;
        match self.inodes[id].body {
            Body::File => Ok(id),
            Body::Dir { .. } => Err(Errno::ISDIR),
            Body::Link(_) => Err(Errno::LOOP),
        }
    }

    /// Does an operation on names or attributes; gives the inodes that it changed.
    pub fn apply(&mut self, op: &Op) -> Result<Vec<Id>> {
        match op {
            Op::Create { path, mode } => self.add(path, Body::File, *mode),
            Op::Mkdir { path, mode } => {
                self.add(path, Body::Dir { entries: BTreeMap::new(), parent: ROOT }, *mode)
            }
            Op::Symlink { path, len } => self.add(path, Body::Link("x".repeat(*len)), 0o777),
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            Op::Chmod { path, mode } => {
                let id = self.follow(path)?;
                self.inodes[id].mode = *mode;
                Ok(vec![id])
            }
            Op::SetXattr { path, name, len, seed } => {
                let id = self.lookup(path)?;
                if self.is_link(id) {
                    return Err(Errno::PERM);
                }
                let value = super::ops::value(*seed, *len);
                let old = self.inodes[id].xattrs.insert(name.clone(), value.clone());
                Ok(if old.as_ref() == Some(&value) { Vec::new() } else { vec![id] })
            }
            Op::RemoveXattr { path, name } => {
                let id = self.lookup(path)?;
                if self.is_link(id) {
                    return Err(Errno::PERM);
                }
                self.inodes[id].xattrs.remove(name).ok_or(Errno::NODATA)?;
                Ok(vec![id])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn add(&mut self, path: &str, body: Body, mode: u32) -> Result<Vec<Id>> {
        let (dir, name) = self.parent(path)?;
        if name.is_empty() || self.entries(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let is_dir = matches!(body, Body::Dir { .. });
        let body = match body {
            Body::Dir { entries, .. } => Body::Dir { entries, parent: dir },
            other => other,
        };
        // A directory below a set-group directory is one as well.
        let mode = if is_dir { mode | self.inodes[dir].mode & 0o2000 } else { mode };
        let id = self.inodes.len();
        self.inodes.push(Inode {
            body,
            mode,
            links: 1 + u32::from(is_dir),
            xattrs: BTreeMap::new(),
        });
        self.entries_mut(dir).insert(name.to_owned(), id);
        self.inodes[dir].links += u32::from(is_dir);
        Ok(vec![dir, id])
    }

    fn unlink(&mut self, path: &str) -> Result<Vec<Id>> {
        let id = self.lookup(path)?;
        if self.is_dir(id) {
            return Err(Errno::ISDIR);
        }
        let (dir, name) = self.parent(path)?;
        self.entries_mut(dir).remove(name);
        self.inodes[id].links -= 1;
        Ok(vec![dir])
    }

    fn rmdir(&mut self, path: &str) -> Result<Vec<Id>> {
        let id = self.lookup(path)?;
        if !self.entries(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let (dir, name) = self.parent(path)?;
        self.entries_mut(dir).remove(name);
        self.inodes[dir].links -= 1;
        self.inodes[id].links = 0;
        Ok(vec![dir])
    }

    fn link(&mut self, from: &str, to: &str) -> Result<Vec<Id>> {
        let id = self.lookup(from)?;
        let (dir, name) = self.parent(to)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if self.is_dir(id) {
            return Err(Errno::PERM);
        }
        self.entries_mut(dir).insert(name.to_owned(), id);
        self.inodes[id].links += 1;
        Ok(vec![dir, id])
    }

    /// True if `top` is `id` or lies above it.
    fn is_above(&self, top: Id, mut id: Id) -> bool {
        loop {
            if id == top {
                return true;
            }
            match &self.inodes[id].body {
                Body::Dir { parent, .. } if id != ROOT => id = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) -> Result<Vec<Id>> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let source = *self.entries(old_dir)?.get(old_name).ok_or(Errno::NOENT)?;
        let target = self.entries(new_dir)?.get(new_name).copied();
        if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
            return Err(Errno::EXIST);
        }
        if exchange && target.is_none() {
            return Err(Errno::NOENT);
        }
        if old_dir != new_dir {
            if self.is_dir(source) && self.is_above(source, new_dir) {
                return Err(Errno::INVAL);
            }
            if let Some(target) = target
                && self.is_dir(target)
                && self.is_above(target, old_dir)
            {
                return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
        }
        if target == Some(source) {
            return Ok(Vec::new());
        }
        if exchange {
            let target = target.ok_or(Errno::NOENT)?;
            self.entries_mut(old_dir).insert(old_name.to_owned(), target);
            self.entries_mut(new_dir).insert(new_name.to_owned(), source);
            self.moved(target, new_dir, old_dir);
            self.moved(source, old_dir, new_dir);
            return Ok(vec![old_dir, new_dir, source, target]);
        }
        if let Some(target) = target {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(Errno::NOTEMPTY),
                (true, true) => {
                    self.inodes[target].links = 0;
                    self.inodes[new_dir].links -= 1;
                }
                (false, false) => self.inodes[target].links -= 1,
            }
        }
        self.entries_mut(old_dir).remove(old_name);
        self.entries_mut(new_dir).insert(new_name.to_owned(), source);
        self.moved(source, old_dir, new_dir);
        Ok(vec![old_dir, new_dir, source])
    }

    /// Parent and link counts after a directory has changed its place.
    fn moved(&mut self, id: Id, from: Id, to: Id) {
        if let Body::Dir { parent, .. } = &mut self.inodes[id].body {
            *parent = to;
            self.inodes[from].links -= 1;
            self.inodes[to].links += 1;
        }
    }

    /// Paths of everything, the root's first.
    pub fn paths(&self) -> Vec<(String, Id)> {
        let mut found = vec![(String::new(), ROOT)];
        let mut next = 0;
        while let Some((path, id)) = found.get(next).cloned() {
            next += 1;
            if let Ok(entries) = self.entries(id) {
                found.extend(entries.iter().map(|(name, id)| {
                    (if path.is_empty() { name.clone() } else { format!("{path}/{name}") }, *id)
                }));
            }
        }
        found
    }

    /// What an inode shows.
    pub fn shown(&self, id: Id) -> Shown {
        let inode = &self.inodes[id];
        let (kind, target) = match &inode.body {
            Body::File => (FileType::RegularFile, None),
            Body::Dir { .. } => (FileType::Directory, None),
            Body::Link(target) => (FileType::Symlink, Some(target.clone())),
        };
        Shown { kind, mode: inode.mode, links: inode.links, target, xattrs: inode.xattrs.clone() }
    }
}
