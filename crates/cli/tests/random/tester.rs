//! One tester: a seed, a directory on the mount, and the model that knows what must be there.

use crate::model::{Body, Id, Model, ROOT};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Files stay below this size, so that the model stays small.
const MAX_SIZE: u64 = 300_000;

/// And trees below this number of names.
const MAX_NAMES: usize = 400;

pub struct Tester {
    root: PathBuf,
    seed: u64,
    rng: SmallRng,
    model: Model,
    open: Vec<(File, Id)>,
    history: VecDeque<String>,
    can_allocate: bool,
}

impl Tester {
    pub fn new(mount: &Path, name: &str, seed: u64) -> Self {
        Self {
            root: mount.join(name),
            seed,
            rng: SmallRng::seed_from_u64(seed),
            model: Model::new(0o755),
            open: Vec::new(),
            history: VecDeque::new(),
            can_allocate: true,
        }
    }

    /// Makes the directory of this tester.
    pub fn begin(&mut self) {
        std::fs::create_dir(&self.root).expect("mkdir");
        rustix::fs::chmod(&self.root, Mode::from_raw_mode(0o755)).expect("chmod");
        // Block-mapped volumes refuse preallocation; found out once.
        let probe = File::create(self.root.join("probe")).expect("create");
        self.can_allocate = rustix::fs::fallocate(&probe, FallocateFlags::empty(), 0, 1000).is_ok();
        drop(probe);
        std::fs::remove_file(self.root.join("probe")).expect("unlink");
    }

    pub fn close_all(&mut self) {
        self.open.clear();
    }

    fn fail(&self, message: &str) -> ! {
        let history: Vec<String> =
            self.history.iter().map(|line| line.replace("long-long-long-", "~")).collect();
        panic!("seed {}: {message}\nlast operations:\n  {}", self.seed, history.join("\n  "));
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, real: T, model: T) {
        if real != model {
            self.fail(&format!("{what}: the mount says {real:?}, the model {model:?}"));
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Mostly something that exists, sometimes something that does not.
    fn some_path(&mut self) -> String {
        let paths = self.model.paths();
        let (path, id) = &paths[self.rng.random_range(0..paths.len())];
        // Symbolic links do not become inner parts of paths.
        let is_link = matches!(self.model.get(*id).body, Body::Link(_));
        if !path.is_empty() && (is_link || self.rng.random_range(0..3) > 0) {
            return path.clone();
        }
        let name = match self.rng.random_range(0..8) {
            0 => format!("{}{}", "long-".repeat(self.rng.random_range(1..40)), self.rng.random_range(0..4)),
            _ => format!("n{}", self.rng.random_range(0..14)),
        };
        // Not too deep.
        if path.is_empty() || path.matches('/').count() > 4 { name } else { format!("{path}/{name}") }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let first: u8 = self.rng.random();
        let step: u8 = self.rng.random_range(0..3);
        (0..len).map(|n| first.wrapping_add(((n / 100) as u8).wrapping_mul(step))).collect()
    }

    fn offset(&mut self) -> u64 {
        match self.rng.random_range(0..4) {
            0 => 0,
            1 => self.rng.random_range(0..200),
            2 => self.rng.random_range(0..40u64) * 1024,
            _ => self.rng.random_range(0..MAX_SIZE / 2),
        }
    }

    fn length(&mut self) -> u64 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..150),
            1 => self.rng.random_range(1..10u64) * 1024,
            2 => self.rng.random_range(1..5000),
            _ => self.rng.random_range(1..MAX_SIZE / 4),
        }
    }

    /// One random operation.
    pub fn step(&mut self) {
        if self.model.paths().len() > MAX_NAMES {
            self.prune();
        }
        let kind = self.rng.random_range(0..100);
        let line = match kind {
            0..=9 => self.create(),
            10..=16 => self.mkdir(),
            17..=34 => self.write(),
            35..=40 => self.truncate(),
            41..=45 => self.fallocate(),
            46..=52 => self.read(),
            53..=59 => self.unlink(),
            60..=63 => self.rmdir(),
            64..=74 => self.rename(),
            75..=78 => self.link(),
            79..=81 => self.symlink(),
            82..=84 => self.chmod(),
            85..=89 => self.xattr(),
            90..=92 => self.hold(),
            93..=96 => self.list(),
            _ => self.sync(),
        };
        if self.history.len() > 40 {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    /// Removes a directory with all that is in it, name by name.
    fn prune(&mut self) {
        let paths = self.model.paths();
        let tops: Vec<&String> =
            paths.iter().map(|(path, _)| path).filter(|p| !p.is_empty() && !p.contains('/')).collect();
        let top = tops[self.rng.random_range(0..tops.len())].clone();
        let below = format!("{top}/");
        for (path, id) in paths.iter().rev().filter(|(path, _)| *path == top || path.starts_with(&below)) {
            let full = self.path(path);
            if self.model.is_dir(*id) {
                self.same(&format!("prune {path}"), rustix::fs::rmdir(full), Ok(()));
                self.model.rmdir(path).expect("its children are gone");
            } else {
                self.same(&format!("prune {path}"), rustix::fs::unlink(full), Ok(()));
                self.model.unlink(path).expect("it was found in the model");
            }
        }
        self.history.push_back(format!("prune {top}"));
    }

    fn create(&mut self) -> String {
        let path = self.some_path();
        let mode = self.rng.random_range(0..8) << 6 | 0o600;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let real = rustix::fs::open(self.path(&path), flags, Mode::from_raw_mode(mode));
        let model = self.model.create(&path, mode & !0o022);
        let line = format!("create {path} -> {:?}", real.as_ref().err().map(|e| e.raw_os_error()));
        self.same(&line, real.as_ref().err().copied(), model.err());
        line
    }

    fn mkdir(&mut self) -> String {
        let path = self.some_path();
        let real = rustix::fs::mkdir(self.path(&path), Mode::from_raw_mode(0o755));
        let model = self.model.mkdir(&path, 0o755).map(drop);
        let line = format!("mkdir {path} -> {real:?}");
        self.same(&line, real, model);
        line
    }

    /// Opens on both sides; on equal errors there is nothing more to do.
    fn open(&self, path: &str, what: &str) -> Result<(File, Id), String> {
        let real = rustix::fs::open(self.path(path), OFlags::RDWR | OFlags::NOFOLLOW, Mode::empty());
        let model = self.model.open(path);
        let line = format!("{what} {path} -> {:?}", real.as_ref().err().map(|e| e.raw_os_error()));
        self.same(&line, real.as_ref().err().copied(), model.as_ref().err().copied());
        match (real, model) {
            (Ok(file), Ok(id)) => Ok((File::from(file), id)),
            _ => Err(line),
        }
    }

    /// A file to work on: one that is held open, perhaps without a name, or one opened by path.
    fn some_file(&mut self, what: &str) -> Result<(File, Id, String), String> {
        if !self.open.is_empty() && self.rng.random_range(0..3) == 0 {
            let n = self.rng.random_range(0..self.open.len());
            let (file, id) = &self.open[n];
            return Ok((file.try_clone().expect("dup"), *id, format!("handle {n}")));
        }
        let path = self.some_path();
        let (file, id) = self.open(&path, what)?;
        Ok((file, id, path))
    }

    fn write(&mut self) -> String {
        let (file, id, name) = match self.some_file("write") {
            Ok(found) => found,
            Err(line) => return line,
        };
        let append = self.rng.random_range(0..4) == 0;
        let end = self.model.contents(id).len() as u64;
        let offset = if append { end } else { self.offset() };
        let len = self.length().min(MAX_SIZE.saturating_sub(offset));
        let bytes = self.bytes(len as usize);
        let line = format!("write {name} {offset}+{len}");
        let real = file.write_all_at(&bytes, offset);
        if let Err(e) = real {
            self.fail(&format!("{line}: {e}"));
        }
        if len > 0 {
            let contents = self.model.contents(id);
            let upto = offset as usize + bytes.len();
            if contents.len() < upto {
                contents.resize(upto, 0);
            }
            contents[offset as usize..upto].copy_from_slice(&bytes);
        }
        line
    }

    fn truncate(&mut self) -> String {
        let (file, id, name) = match self.some_file("truncate") {
            Ok(found) => found,
            Err(line) => return line,
        };
        let size = if self.rng.random_range(0..3) == 0 {
            self.model.contents(id).len() as u64 / 2
        } else {
            self.offset()
        };
        let line = format!("truncate {name} {size}");
        if let Err(e) = file.set_len(size) {
            self.fail(&format!("{line}: {e}"));
        }
        self.model.contents(id).resize(size as usize, 0);
        line
    }

    fn fallocate(&mut self) -> String {
        let (file, id, name) = match self.some_file("fallocate") {
            Ok(found) => found,
            Err(line) => return line,
        };
        let (offset, len) = (self.offset(), self.length());
        let keep = FallocateFlags::KEEP_SIZE;
        let mode = [
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
            FallocateFlags::empty(),
            keep,
        ][self.rng.random_range(0..5)];
        let line = format!("fallocate {name} {mode:?} {offset}+{len}");
        let punch = mode.contains(FallocateFlags::PUNCH_HOLE);
        let real = rustix::fs::fallocate(&file, mode, offset, len);
        if !self.can_allocate && !punch {
            self.same(&line, real, Err(Errno::OPNOTSUPP));
            return line;
        }
        self.same(&line, real, Ok(()));
        let contents = self.model.contents(id);
        let end = (offset + len) as usize;
        if !mode.contains(keep) && contents.len() < end {
            contents.resize(end, 0);
        }
        if punch || mode.contains(FallocateFlags::ZERO_RANGE) {
            let upto = end.min(contents.len());
            if let Some(range) = contents.get_mut(offset as usize..upto) {
                range.fill(0);
            }
        }
        line
    }

    fn read(&mut self) -> String {
        let (file, id, name) = match self.some_file("read") {
            Ok(found) => found,
            Err(line) => return line,
        };
        let (offset, len) = (self.offset(), self.length());
        let mut bytes = vec![0; len as usize];
        let line = format!("read {name} {offset}+{len}");
        let got = match file.read_at(&mut bytes, offset) {
            Ok(got) => got,
            Err(e) => self.fail(&format!("{line}: {e}")),
        };
        let contents = self.model.contents(id);
        let end = (offset as usize + len as usize).min(contents.len());
        let expected = contents.get(offset as usize..end).unwrap_or_default().to_vec();
        self.same_bytes(&line, &bytes[..got], &expected);
        line
    }

    fn same_bytes(&self, what: &str, real: &[u8], model: &[u8]) {
        self.same(&format!("{what}: length"), real.len(), model.len());
        if let Some(n) = real.iter().zip(model).position(|(a, b)| a != b) {
            self.fail(&format!("{what}: byte {n} is {} and not {}", real[n], model[n]));
        }
    }

    fn unlink(&mut self) -> String {
        let path = self.some_path();
        let real = rustix::fs::unlink(self.path(&path));
        let line = format!("unlink {path} -> {real:?}");
        let model = self.model.unlink(&path);
        self.same(&line, real, model);
        line
    }

    fn rmdir(&mut self) -> String {
        let path = self.some_path();
        let real = rustix::fs::rmdir(self.path(&path));
        let line = format!("rmdir {path} -> {real:?}");
        let model = self.model.rmdir(&path);
        self.same(&line, real, model);
        line
    }

    fn rename(&mut self) -> String {
        let (from, to) = (self.some_path(), self.some_path());
        let flags = match self.rng.random_range(0..6) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let real = rustix::fs::renameat_with(CWD, self.path(&from), CWD, self.path(&to), flags);
        let line = format!("rename {from} {to} {flags:?} -> {real:?}");
        let model = self.model.rename(&from, &to, flags);
        self.same(&line, real, model);
        line
    }

    fn link(&mut self) -> String {
        let (from, to) = (self.some_path(), self.some_path());
        let real = rustix::fs::link(self.path(&from), self.path(&to));
        let line = format!("link {from} {to} -> {real:?}");
        let model = self.model.link(&from, &to);
        self.same(&line, real, model);
        line
    }

    fn symlink(&mut self) -> String {
        let path = self.some_path();
        let target = "x".repeat(self.rng.random_range(1..200));
        let real = rustix::fs::symlink(&target, self.path(&path));
        let line = format!("symlink {path} of {} -> {real:?}", target.len());
        let model = self.model.symlink(&path, &target).map(drop);
        self.same(&line, real, model);
        line
    }

    /// A name that is no symbolic link, for calls that would follow one.
    fn no_link(&mut self) -> String {
        loop {
            let path = self.some_path();
            match self.model.lookup(&path) {
                Ok(id) if matches!(self.model.get(id).body, Body::Link(_)) => {}
                _ => return path,
            }
        }
    }

    fn chmod(&mut self) -> String {
        let path = self.no_link();
        let mode = self.rng.random_range(0..0o7777u32 + 1) | 0o700;
        let real = rustix::fs::chmod(self.path(&path), Mode::from_raw_mode(mode));
        let model = self.model.lookup(&path).map(|id| self.model.get_mut(id).mode = mode);
        let line = format!("chmod {path} {mode:o} -> {real:?}");
        self.same(&line, real, model);
        line
    }

    fn xattr(&mut self) -> String {
        let path = self.no_link();
        let full = self.path(&path);
        let name = format!("user.a{}", self.rng.random_range(0..4));
        let found = self.model.lookup(&path);
        let line;
        match self.rng.random_range(0..3) {
            0 => {
                let real = rustix::fs::lremovexattr(&full, &name);
                line = format!("removexattr {path} {name} -> {real:?}");
                let model = found.and_then(|id| {
                    self.model.get_mut(id).xattrs.remove(&name).map(drop).ok_or(Errno::NODATA)
                });
                self.same(&line, real, model);
            }
            1 => {
                let mut value = vec![0; 1000];
                let real = rustix::fs::lgetxattr(&full, &name, &mut value[..]).map(|n| value[..n].to_vec());
                line = format!("getxattr {path} {name}");
                let model =
                    found.and_then(|id| self.model.get(id).xattrs.get(&name).cloned().ok_or(Errno::NODATA));
                self.same(&line, real, model);
            }
            _ => {
                let len = self.rng.random_range(0..180);
                let value = self.bytes(len);
                let real = rustix::fs::lsetxattr(&full, &name, &value, XattrFlags::empty());
                line = format!("setxattr {path} {name} of {len} -> {real:?}");
                let model = found.map(|id| drop(self.model.get_mut(id).xattrs.insert(name, value)));
                self.same(&line, real, model);
            }
        }
        line
    }

    /// Keeps a file open for later, whatever happens to its name; or lets one go.
    fn hold(&mut self) -> String {
        if self.open.len() > 8 || (!self.open.is_empty() && self.rng.random_range(0..3) == 0) {
            let n = self.rng.random_range(0..self.open.len());
            self.open.swap_remove(n);
            return format!("close handle {n}");
        }
        let path = self.some_path();
        match self.open(&path, "hold") {
            Ok(found) => {
                self.open.push(found);
                format!("hold {path}")
            }
            Err(line) => line,
        }
    }

    fn list(&mut self) -> String {
        let path = self.some_path();
        let Ok(id) = self.model.lookup(&path) else { return String::from("list nothing") };
        if self.model.is_dir(id) {
            self.compare_dir(&path, id);
        } else {
            self.compare_one(&path, id, false);
        }
        format!("list {path}")
    }

    fn sync(&mut self) -> String {
        if self.rng.random_range(0..8) == 0 {
            rustix::fs::syncfs(File::open(&self.root).expect("open the root")).expect("syncfs");
            return String::from("syncfs");
        }
        let (file, _, name) = match self.some_file("fsync") {
            Ok(found) => found,
            Err(line) => return line,
        };
        let done = if self.rng.random() { file.sync_all() } else { file.sync_data() };
        if let Err(e) = done {
            self.fail(&format!("fsync {name}: {e}"));
        }
        format!("fsync {name}")
    }

    fn compare_dir(&self, path: &str, id: Id) {
        let Body::Dir { entries, .. } = &self.model.get(id).body else { return };
        let mut real = BTreeSet::new();
        for entry in self.path(path).read_dir().unwrap_or_else(|e| self.fail(&format!("readdir {path}: {e}")))
        {
            let name = entry.unwrap_or_else(|e| self.fail(&format!("readdir {path}: {e}"))).file_name();
            if !real.insert(name.to_string_lossy().into_owned()) {
                self.fail(&format!("{path} lists {} twice", name.display()));
            }
        }
        self.same(&format!("names in {path:?}"), real, entries.keys().cloned().collect());
    }

    fn compare_one(&self, path: &str, id: Id, contents: bool) {
        let full = self.path(path);
        let meta = full.symlink_metadata().unwrap_or_else(|e| self.fail(&format!("lstat {path}: {e}")));
        let inode = self.model.get(id);
        self.same(&format!("links of {path:?}"), meta.nlink(), u64::from(inode.links));
        self.same(&format!("mode of {path:?}"), meta.mode() & 0o7777, inode.mode);
        match &inode.body {
            Body::Dir { .. } => self.same(&format!("kind of {path}"), meta.is_dir(), true),
            Body::Link(target) => {
                let real =
                    std::fs::read_link(&full).unwrap_or_else(|e| self.fail(&format!("readlink {path}: {e}")));
                self.same(&format!("target of {path}"), real.to_string_lossy().into_owned(), target.clone());
            }
            Body::File(bytes) => {
                self.same(&format!("size of {path}"), meta.size(), bytes.len() as u64);
                if contents {
                    let real =
                        std::fs::read(&full).unwrap_or_else(|e| self.fail(&format!("read {path}: {e}")));
                    self.same_bytes(path, &real, bytes);
                }
            }
        }
        for (name, value) in &inode.xattrs {
            let mut real = vec![0; 1000];
            let got = rustix::fs::lgetxattr(&full, name, &mut real[..]).map(|n| real[..n].to_vec());
            self.same(&format!("{name} of {path}"), got, Ok(value.clone()));
        }
    }

    /// Compares everything.
    pub fn compare(&mut self) {
        for (path, id) in self.model.paths() {
            self.compare_dir(&path, id);
            self.compare_one(&path, id, true);
        }
        for n in 0..self.open.len() {
            let (file, id) = &self.open[n];
            let (file, id) = (file.try_clone().expect("dup"), *id);
            let mut real = vec![0; MAX_SIZE as usize * 2];
            let got =
                file.read_at(&mut real, 0).unwrap_or_else(|e| self.fail(&format!("read handle {n}: {e}")));
            let expected = self.model.contents(id).clone();
            self.same_bytes(&format!("handle {n}"), &real[..got], &expected);
        }
        let links = self.model.get(ROOT).links;
        self.same(
            "links of the root",
            self.root.metadata().map(|m| m.nlink()).unwrap_or(0),
            u64::from(links),
        );
    }
}
