//! A target for tests that keeps files in a table and writes down every call.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{DirItem, Target, TargetFile};

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    files: BTreeMap<String, u64>,
    dirs: BTreeSet<String>,
}

/// Remembers what it was asked: `create PATH`, `write PATH BYTES`, `fsync PATH`, `sync` …
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

impl Recorder {
    /// All calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.0.lock().calls.clone()
    }

    /// How many calls begin with this word.
    pub fn count(&self, word: &str) -> usize {
        self.0.lock().calls.iter().filter(|c| c.split(' ').next() == Some(word)).count()
    }

    /// The files that are there.
    pub fn files(&self) -> usize {
        self.0.lock().files.len()
    }

    /// The directories that are there.
    pub fn dirs(&self) -> usize {
        self.0.lock().dirs.len()
    }

    fn note(&self, call: String) {
        self.0.lock().calls.push(call);
    }

    /// `Ok` if there is a file or a directory of this name.
    fn known(&self, path: &str) -> io::Result<()> {
        let state = self.0.lock();
        let known = state.files.contains_key(path) || state.dirs.contains(path);
        if known { Ok(()) } else { Err(io::Error::new(io::ErrorKind::NotFound, path.to_owned())) }
    }

    fn handle(&self, path: &str) -> Box<dyn TargetFile> {
        Box::new(Handle { of: self.clone(), path: path.to_owned() })
    }
}

impl Target for Recorder {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("mkdir {path}"));
        match self.0.lock().dirs.insert(path.to_owned()) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::AlreadyExists, path.to_owned())),
        }
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        self.note(format!("create {path}"));
        match self.0.lock().files.insert(path.to_owned(), 0) {
            None => Ok(self.handle(path)),
            Some(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, path.to_owned())),
        }
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        self.note(format!("open {path}"));
        let known = self.0.lock().files.contains_key(path);
        if known {
            return Ok(self.handle(path));
        }
        Err(io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
    }

    fn create_bulk(&self, path: &str, size: u64, direct: bool) -> io::Result<Box<dyn TargetFile>> {
        self.note(format!("bulk {path} {size} {direct}"));
        self.create(path)
    }

    fn open_bulk(&self, path: &str, direct: bool) -> io::Result<Box<dyn TargetFile>> {
        self.note(format!("reopen {path} {direct}"));
        self.open(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(format!("remove {path}"));
        let gone = self.0.lock().files.remove(path);
        gone.map(drop).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("rmdir {path}"));
        let prefix = format!("{path}/");
        let mut state = self.0.lock();
        if state.files.keys().chain(&state.dirs).any(|p| p.starts_with(&prefix)) {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, path.to_owned()));
        }
        match state.dirs.remove(path) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotFound, path.to_owned())),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(format!("rename {from} {to}"));
        let mut state = self.0.lock();
        let size = state
            .files
            .remove(from)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, from.to_owned()))?;
        state.files.insert(to.to_owned(), size);
        Ok(())
    }

    fn link(&self, old: &str, new: &str) -> io::Result<()> {
        self.note(format!("link {old} {new}"));
        let mut state = self.0.lock();
        let size = state.files.get(old).copied();
        let size = size.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, old.to_owned()))?;
        state.files.insert(new.to_owned(), size);
        Ok(())
    }

    fn symlink(&self, text: &str, path: &str) -> io::Result<()> {
        self.note(format!("symlink {text} {path}"));
        self.0.lock().files.insert(path.to_owned(), text.len() as u64);
        Ok(())
    }

    fn chmod(&self, path: &str, mode: u16) -> io::Result<()> {
        self.note(format!("chmod {path} {mode:o}"));
        self.known(path)
    }

    fn set_times(&self, path: &str, seconds: i64) -> io::Result<()> {
        self.note(format!("utimes {path} {seconds}"));
        self.known(path)
    }

    fn size_of(&self, path: &str) -> io::Result<u64> {
        self.note(format!("stat {path}"));
        let state = self.0.lock();
        let size = state.files.get(path).copied().or(state.dirs.contains(path).then_some(4096));
        size.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
    }

    fn entries(&self, path: &str) -> io::Result<Vec<DirItem>> {
        self.note(format!("readdir {path}"));
        let prefix = format!("{path}/");
        let state = self.0.lock();
        let item = |p: &String, is_dir| {
            let name = p.strip_prefix(&prefix).filter(|name| !name.contains('/'))?;
            Some(DirItem { name: name.to_owned(), is_dir })
        };
        let dirs = state.dirs.iter().filter_map(|p| item(p, true));
        Ok(dirs.chain(state.files.keys().filter_map(|p| item(p, false))).collect())
    }

    fn list(&self, path: &str) -> io::Result<usize> {
        self.note(format!("list {path}"));
        let prefix = format!("{path}/");
        Ok(self.0.lock().files.keys().filter(|f| f.starts_with(&prefix)).count())
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        self.note(format!("touch {path}"));
        self.0.lock().files.entry(path.to_owned()).or_default();
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("fsyncdir {path}"));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.note("sync".into());
        Ok(())
    }
}

struct Handle {
    of: Recorder,
    path: String,
}

impl TargetFile for Handle {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.of.note(format!("write {} {}", self.path, data.len()));
        let mut state = self.of.0.lock();
        let size = state.files.entry(self.path.clone()).or_default();
        *size = (*size).max(offset + data.len() as u64);
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.of.note(format!("read {}", self.path));
        let left = self.len()?.saturating_sub(offset);
        Ok(left.min(buf.len() as u64) as usize)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.of.0.lock().files.get(&self.path).copied().unwrap_or_default())
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.of.note(format!("{} {}", if data_only { "fdatasync" } else { "fsync" }, self.path));
        Ok(())
    }
}
