//! A target for tests that keeps files in a table and writes down every call.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Target, TargetFile};

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    files: BTreeMap<String, u64>,
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

    fn note(&self, call: String) {
        self.0.lock().calls.push(call);
    }

    fn handle(&self, path: &str) -> Box<dyn TargetFile> {
        Box::new(Handle { of: self.clone(), path: path.to_owned() })
    }
}

impl Target for Recorder {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("mkdir {path}"));
        Ok(())
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

    fn remove(&self, path: &str) -> io::Result<()> {
        self.note(format!("remove {path}"));
        let gone = self.0.lock().files.remove(path);
        gone.map(drop).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.note(format!("rmdir {path}"));
        Ok(())
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

    fn size_of(&self, path: &str) -> io::Result<u64> {
        self.note(format!("stat {path}"));
        let size = self.0.lock().files.get(path).copied();
        size.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, path.to_owned()))
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
