//! One thread's work in a directory of its own, and what a recovered volume must and may show of
//! it.
//!
//! Transactions become durable in order. So the names must be as they were after some operation,
//! not before the last one that an fsync acknowledged. For contents: what was synced and not
//! touched since is exactly there; else every byte is one that the file had at this place since its
//! last sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use extol::vfs::{FileKind, FsError, Result, XattrSet};
use extol::{Ext4, FileSystem, OpenOptions};
use extol_testkit::fsync_told;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const XATTR: &[u8] = b"user.mark";
/// Files that a directory holds before old ones go.
const FILES: usize = 14;

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// `None`: a directory.
    file: Option<u64>,
    xattr: Option<Vec<u8>>,
}

type State = BTreeMap<String, Entry>;

/// What a name shows on a volume.
#[derive(Debug)]
struct Shown {
    /// `None`: a directory.
    contents: Option<Vec<u8>>,
    xattr: Option<Vec<u8>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ledger {
    dir: String,
    rng: SmallRng,
    /// After each operation since the last acknowledged one, which is the first.
    states: Vec<State>,
    /// Since the last sync of each file; the newest is what it should hold now.
    versions: BTreeMap<u64, Vec<Vec<u8>>>,
    next: u64,
}

fn pattern(id: u64, version: u64, from: usize, len: usize) -> Vec<u8> {
    let word = (id << 20 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (from..from + len).map(|i| (word >> (i / 512 % 7 * 8)) as u8 ^ i as u8 | 1).collect()
}

impl Ledger {
    /// Makes the directory, durably.
    pub fn begin(fs: &Arc<Ext4>, dir: &str, seed: u64) -> Result<Self> {
        fs.create_dir(dir)?;
        fs.sync()?;
        Ok(Self {
            dir: dir.to_owned(),
            rng: SmallRng::seed_from_u64(seed),
            states: vec![State::new()],
            versions: BTreeMap::new(),
            next: 1,
        })
    }

    /// Chooses other operations from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = SmallRng::seed_from_u64(seed);
    }

    fn now(&self) -> &State {
        self.states.last().expect("never empty")
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    fn expect(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
    }

    fn wrote(&mut self, id: u64, contents: Vec<u8>) {
        self.versions.entry(id).or_default().push(contents);
    }

    fn fresh(&mut self) -> (u64, String) {
        self.next += 1;
        (self.next, format!("f{}{}", self.next, "-".repeat(self.next as usize % 40)))
    }

    fn some_file(&mut self) -> Option<(String, u64)> {
        let files: Vec<_> =
            self.now().iter().filter_map(|(n, e)| Some((n.clone(), e.file?))).collect();
        if files.is_empty() {
            None
        } else {
            Some(files[self.rng.random_range(0..files.len())].clone())
        }
    }

    /// All names up to now are durable, and this file's contents.
    fn acknowledge(&mut self, id: Option<u64>) {
        self.states.drain(..self.states.len() - 1);
        if let Some(versions) = id.and_then(|id| self.versions.get_mut(&id)) {
            versions.drain(..versions.len() - 1);
        }
    }

    /// Everything is durable.
    fn acknowledge_all(&mut self) {
        self.acknowledge(None);
        self.versions.values_mut().for_each(|v| drop(v.drain(..v.len() - 1)));
    }

    fn sync_file(&mut self, fs: &Arc<Ext4>, name: &str, id: u64) -> Result<()> {
        fsync_told(&**fs, fs.inode(self.path(name))?.ino(), false)?;
        self.acknowledge(Some(id));
        Ok(())
    }

    fn sync_dir(&mut self, fs: &Arc<Ext4>) -> Result<()> {
        fs.fsync(fs.inode(&self.dir)?.ino(), false)?;
        self.acknowledge(None);
        Ok(())
    }

    /// One operation with the fsyncs that belong to it. After an error it may have happened or not.
    pub fn step(&mut self, fs: &Arc<Ext4>) -> Result<()> {
        if let Some((path, contents)) = self.a_settled_file() {
            assert!(fs.read_file(&path)? == contents, "{path} reads as something else");
        }
        let full = self.now().len() >= FILES;
        match (self.some_file(), self.rng.random_range(0..12)) {
            (Some(file), _) if full => self.unlink(fs, file),
            (Some(file), 0..=1) => self.append(fs, file),
            (Some(file), 2) => self.overwrite(fs, file),
            (Some(file), 3) => self.rename(fs, file),
            (Some(file), 4) => self.replace(fs, file),
            (Some(file), 5) => self.cut(fs, file),
            (Some(file), 6) => self.attribute(fs, file),
            (Some(file), 7) => self.unlink(fs, file),
            (_, 8) => self.make_dir(fs),
            (_, 9) => self.many(fs),
            (_, 10) => {
                fs.sync()?;
                self.acknowledge_all();
                Ok(())
            }
            _ => self.create(fs),
        }
    }

    fn create(&mut self, fs: &Arc<Ext4>) -> Result<()> {
        let (id, name) = self.fresh();
        let len = self.rng.random_range(1..9000);
        self.expect(|s| drop(s.insert(name.clone(), Entry { file: Some(id), xattr: None })));
        self.wrote(id, Vec::new());
        self.wrote(id, pattern(id, 1, 0, len));
        let file = fs.create_file(self.path(&name))?;
        file.write_all_at(&pattern(id, 1, 0, len), 0)?;
        drop(file);
        // Some stay in memory until another operation writes them.
        if self.rng.random_bool(0.7) { self.sync_file(fs, &name, id) } else { Ok(()) }
    }

    fn append(&mut self, fs: &Arc<Ext4>, (name, id): (String, u64)) -> Result<()> {
        let mut contents = self.newest(id);
        let (from, more) = (contents.len(), self.rng.random_range(1..6000));
        let bytes = pattern(id, 2, from, more);
        contents.extend(&bytes);
        self.wrote(id, contents);
        let file = fs.open_file(self.path(&name), OpenOptions::new().write(true))?;
        file.write_all_at(&bytes, from as u64)?;
        fsync_told(&**fs, file.inode().ino(), true)?;
        self.acknowledge(Some(id));
        Ok(())
    }

    fn overwrite(&mut self, fs: &Arc<Ext4>, (name, id): (String, u64)) -> Result<()> {
        let contents = pattern(id, self.next + 3, 0, self.newest(id).len());
        self.next += 1;
        self.wrote(id, contents.clone());
        let file = fs.open_file(self.path(&name), OpenOptions::new().write(true))?;
        file.write_all_at(&contents, 0)?;
        drop(file);
        if self.rng.random() { self.sync_file(fs, &name, id) } else { Ok(()) }
    }

    fn rename(&mut self, fs: &Arc<Ext4>, (name, _): (String, u64)) -> Result<()> {
        let (_, new) = self.fresh();
        self.expect(|s| {
            let entry = s.remove(&name).expect("it is there");
            s.insert(new.clone(), entry);
        });
        fs.rename_path(self.path(&name), self.path(&new))?;
        self.sync_dir(fs)
    }

    /// The atomic replacement: a new file, synced, renamed over an old one.
    fn replace(&mut self, fs: &Arc<Ext4>, (name, _): (String, u64)) -> Result<()> {
        let (id, new) = self.fresh();
        let contents = pattern(id, 1, 0, self.rng.random_range(1..5000));
        self.expect(|s| drop(s.insert(new.clone(), Entry { file: Some(id), xattr: None })));
        self.wrote(id, Vec::new());
        self.wrote(id, contents.clone());
        let file = fs.create_file(self.path(&new))?;
        file.write_all_at(&contents, 0)?;
        file.sync_all()?;
        drop(file);
        self.acknowledge(Some(id));
        self.expect(|s| {
            let entry = s.remove(&new).expect("it is there");
            s.insert(name.clone(), entry);
        });
        fs.rename_path(self.path(&new), self.path(&name))?;
        self.sync_dir(fs)
    }

    fn cut(&mut self, fs: &Arc<Ext4>, (name, id): (String, u64)) -> Result<()> {
        let mut contents = self.newest(id);
        let keep = contents.len() / 2;
        // The rest of the last block may be zeroed before the new size is durable; so it is on
        // Linux.
        let mut zeroed = contents.clone();
        zeroed[keep..].fill(0);
        self.wrote(id, zeroed);
        contents.truncate(keep);
        let len = contents.len() as u64;
        self.wrote(id, contents);
        let file = fs.open_file(self.path(&name), OpenOptions::new().write(true))?;
        file.set_len(len)?;
        drop(file);
        self.sync_file(fs, &name, id)
    }

    fn attribute(&mut self, fs: &Arc<Ext4>, (name, id): (String, u64)) -> Result<()> {
        let value = pattern(id, self.next, 0, self.rng.random_range(1..200));
        self.expect(|s| s.get_mut(&name).expect("it is there").xattr = Some(value.clone()));
        fs.set_xattr(self.path(&name), XATTR, &value, XattrSet::Any)?;
        self.sync_file(fs, &name, id)
    }

    fn unlink(&mut self, fs: &Arc<Ext4>, (name, _): (String, u64)) -> Result<()> {
        self.expect(|s| drop(s.remove(&name)));
        fs.remove_file(self.path(&name))?;
        if self.rng.random() { self.sync_dir(fs) } else { Ok(()) }
    }

    fn make_dir(&mut self, fs: &Arc<Ext4>) -> Result<()> {
        let (_, name) = self.fresh();
        self.expect(|s| drop(s.insert(name.clone(), Entry { file: None, xattr: None })));
        fs.create_dir(self.path(&name))?;
        self.sync_dir(fs)?;
        self.expect(|s| drop(s.remove(&name)));
        fs.remove_dir(self.path(&name))
    }

    /// A large transaction, so that a small log fills up.
    fn many(&mut self, fs: &Arc<Ext4>) -> Result<()> {
        let (_, dir) = self.fresh();
        self.expect(|s| drop(s.insert(dir.clone(), Entry { file: None, xattr: None })));
        fs.create_dir(self.path(&dir))?;
        for n in 0..24 {
            let path = format!("{}/{dir}/{n}{}", self.dir, "x".repeat(100));
            drop(fs.create_file(&path)?);
        }
        self.sync_dir(fs)?;
        // (The name may be gone, durably, before an error.)
        self.expect(|s| drop(s.remove(&dir)));
        fs.remove_dir_all(self.path(&dir))
    }

    fn newest(&self, id: u64) -> Vec<u8> {
        self.versions[&id].last().cloned().unwrap_or_default()
    }

    /// Files whose present contents are not acknowledged.
    pub fn unsynced(&self) -> Vec<String> {
        let waits = |e: &Entry| e.file.is_some_and(|id| self.versions[&id].len() > 1);
        self.now().iter().filter(|(_, e)| waits(e)).map(|(n, _)| self.path(n)).collect()
    }

    /// A file that was acknowledged and not changed since, with its contents.
    pub fn a_settled_file(&self) -> Option<(String, Vec<u8>)> {
        if self.states.len() > 1 {
            return None;
        }
        self.now().iter().find_map(|(name, e)| match self.versions.get(&e.file?)?.as_slice() {
            [one] => Some((self.path(name), one.clone())),
            _ => None,
        })
    }

    /// The volume was closed in order and no operation had failed.
    pub fn closed(&mut self) {
        self.acknowledge_all();
    }

    /// Checks a recovered volume.
    pub fn verify(&self, fs: &Arc<Ext4>) -> std::result::Result<(), String> {
        let seen = self.look(fs).map_err(|e| format!("{}: {e}", self.dir))?;
        let mut why = Vec::new();
        for (n, state) in self.states.iter().enumerate() {
            match self.is_like(state, &seen) {
                Ok(()) => return Ok(()),
                Err(e) => {
                    why.push(format!("  as after operation {n} of {}: {e}", self.states.len() - 1))
                }
            }
        }
        Err(format!(
            "{} is like at no time since the last acknowledgement:\n{}",
            self.dir,
            why.join("\n")
        ))
    }

    fn look(&self, fs: &Arc<Ext4>) -> Result<BTreeMap<String, Shown>> {
        let mut seen = BTreeMap::new();
        for item in fs.read_dir(&self.dir)? {
            let item = item?;
            let name = item.file_name().to_string_lossy().into_owned();
            let contents = match item.kind()? {
                FileKind::Directory => None,
                _ => Some(fs.read_file(item.path())?),
            };
            let xattr = match fs.get_xattr(item.path(), XATTR) {
                Err(FsError::NoAttribute) => None,
                other => Some(other?),
            };
            seen.insert(name, Shown { contents, xattr });
        }
        Ok(seen)
    }

    fn is_like(
        &self,
        state: &State,
        seen: &BTreeMap<String, Shown>,
    ) -> std::result::Result<(), String> {
        if let Some(name) = seen.keys().find(|n| !state.contains_key(*n)) {
            return Err(format!("{name} should not be there"));
        }
        for (name, entry) in state {
            let Some(Shown { contents, xattr }) = seen.get(name) else {
                return Err(format!("{name} is missing"));
            };
            if *xattr != entry.xattr {
                return Err(format!("{name} has another attribute"));
            }
            match (entry.file, contents) {
                (None, None) => {}
                (Some(id), Some(contents)) => plausible(name, contents, &self.versions[&id])?,
                _ => return Err(format!("{name} is of another kind")),
            }
        }
        Ok(())
    }
}

fn plausible(name: &str, found: &[u8], versions: &[Vec<u8>]) -> std::result::Result<(), String> {
    let least = versions.iter().map(Vec::len).min().unwrap_or(0);
    let most = versions.iter().map(Vec::len).max().unwrap_or(0);
    if found.len() < least || found.len() > most {
        return Err(format!("{name} has {} bytes, not {least} to {most}", found.len()));
    }
    for (at, byte) in found.iter().enumerate() {
        if !versions.iter().any(|v| v.get(at) == Some(byte)) {
            return Err(format!(
                "{name}: byte {at} of {} is {byte}, which it never was",
                found.len()
            ));
        }
    }
    Ok(())
}
