//! Changes of a tree, made by Linux or by Extol, and what is then to be seen in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol::vfs::{Fallocate, FileKind, FsError, RenameFlags};
use extol::{Ext4, OpenOptions};
use rustix::fs::FallocateFlags;

/// A change. Paths are relative to the root of the tree.
#[derive(Clone, Debug)]
pub enum Change {
    Write { path: PathBuf, at: u64, bytes: Vec<u8> },
    SetLen { path: PathBuf, len: u64 },
    Punch { path: PathBuf, at: u64, len: u64 },
    Zero { path: PathBuf, at: u64, len: u64 },
    Allocate { path: PathBuf, at: u64, len: u64 },
    Dir { path: PathBuf },
    Symlink { target: PathBuf, path: PathBuf },
    Link { from: PathBuf, to: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Exchange { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    RemoveDir { path: PathBuf },
}

/// Whatever has the tree.
pub trait Subject {
    /// Makes a change; the error is Linux's number.
    fn make(&self, change: &Change) -> Result<(), i32>;
    /// All that is in the tree.
    fn seen(&self) -> BTreeMap<PathBuf, Seen>;
}

/// What is to be seen of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    Dir,
    Link(PathBuf),
    /// Contents.
    File(Vec<u8>),
    Other,
}

/// A directory that Linux has.
pub struct Linux<'a>(pub &'a Path);

impl Linux<'_> {
    fn try_make(&self, change: &Change) -> io::Result<()> {
        let at = |path: &Path| self.0.join(path);
        let allocate = |path: &Path, how, from, len| {
            let file = fs::File::options().write(true).open(at(path))?;
            Ok(rustix::fs::fallocate(&file, how, from, len)?)
        };
        match change {
            Change::Write { path, at: from, bytes } => {
                let mut how = fs::File::options();
                how.write(true).create(true).truncate(false);
                how.open(at(path))?.write_all_at(bytes, *from)
            }
            Change::SetLen { path, len } => {
                fs::File::options().write(true).open(at(path))?.set_len(*len)
            }
            Change::Punch { path, at, len } => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                allocate(path, how, *at, *len)
            }
            Change::Zero { path, at, len } => allocate(path, FallocateFlags::ZERO_RANGE, *at, *len),
            Change::Allocate { path, at, len } => {
                allocate(path, FallocateFlags::empty(), *at, *len)
            }
            Change::Dir { path } => fs::create_dir(at(path)),
            Change::Symlink { target, path } => symlink(target, at(path)),
            Change::Link { from, to } => fs::hard_link(at(from), at(to)),
            Change::Rename { from, to } => fs::rename(at(from), at(to)),
            Change::Exchange { from, to } => {
                let (cwd, how) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                Ok(rustix::fs::renameat_with(cwd, at(from), cwd, at(to), how)?)
            }
            Change::Remove { path } => fs::remove_file(at(path)),
            Change::RemoveDir { path } => fs::remove_dir(at(path)),
        }
    }
}

impl Subject for Linux<'_> {
    fn make(&self, change: &Change) -> Result<(), i32> {
        self.try_make(change).map_err(|error| error.raw_os_error().expect("an error of Linux"))
    }

    fn seen(&self) -> BTreeMap<PathBuf, Seen> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(self.0.join(&dir)).unwrap() {
                let entry = entry.unwrap();
                let path = dir.join(entry.file_name());
                let kind = entry.file_type().unwrap();
                let seen = if kind.is_dir() {
                    dirs.push(path.clone());
                    Seen::Dir
                } else if kind.is_symlink() {
                    Seen::Link(fs::read_link(entry.path()).unwrap())
                } else if kind.is_file() {
                    Seen::File(fs::read(entry.path()).unwrap())
                } else {
                    Seen::Other
                };
                found.insert(path, seen);
            }
        }
        found
    }
}

/// A directory of a volume that Extol has.
pub struct Extol<'a>(pub &'a Arc<Ext4>, pub &'a Path);

impl Extol<'_> {
    fn try_make(&self, change: &Change) -> Result<(), FsError> {
        let (volume, at) = (self.0, |path: &Path| self.1.join(path));
        let open = |path: &Path| volume.open_file(at(path), OpenOptions::new().write(true));
        match change {
            Change::Write { path, at: from, bytes } => {
                let mut how = OpenOptions::new();
                volume.open_file(at(path), how.write(true).create(true))?.write_all_at(bytes, *from)
            }
            Change::SetLen { path, len } => open(path)?.set_len(*len),
            Change::Punch { path, at, len } => {
                open(path)?.allocate(Fallocate::PunchHole, *at, *len)
            }
            Change::Zero { path, at, len } => {
                open(path)?.allocate(Fallocate::ZeroRange { keep_size: false }, *at, *len)
            }
            Change::Allocate { path, at, len } => {
                open(path)?.allocate(Fallocate::Allocate { keep_size: false }, *at, *len)
            }
            Change::Dir { path } => volume.create_dir(at(path)),
            Change::Symlink { target, path } => volume.symlink(target, at(path)),
            Change::Link { from, to } => volume.hard_link(at(from), at(to)),
            Change::Rename { from, to } => volume.rename_path(at(from), at(to)),
            Change::Exchange { from, to } => {
                volume.rename_with(at(from), at(to), RenameFlags::EXCHANGE)
            }
            Change::Remove { path } => volume.remove_file(at(path)),
            Change::RemoveDir { path } => volume.remove_dir(at(path)),
        }
    }
}

impl Subject for Extol<'_> {
    fn make(&self, change: &Change) -> Result<(), i32> {
        self.try_make(change).map_err(|error| error.errno())
    }

    fn seen(&self) -> BTreeMap<PathBuf, Seen> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in self.0.read_dir(self.1.join(&dir)).unwrap() {
                let entry = entry.unwrap();
                let path = dir.join(entry.file_name());
                let seen = match entry.metadata().unwrap().kind {
                    FileKind::Directory => {
                        dirs.push(path.clone());
                        Seen::Dir
                    }
                    FileKind::Symlink => Seen::Link(self.0.read_link(entry.path()).unwrap()),
                    FileKind::Regular => Seen::File(self.0.read_file(entry.path()).unwrap()),
                    _ => Seen::Other,
                };
                found.insert(path, seen);
            }
        }
        found
    }
}
