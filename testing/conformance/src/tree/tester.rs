//! One tester: a directory, the model that knows what must be there, and what was done.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::model::{Id, Model};
use super::ops::{self, Op};
use crate::history::History;
use crate::posix::{Fd, Posix};

const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;

pub(super) struct Tester {
    pub root: String,
    pub model: Model,
    pub contents: HashMap<Id, Vec<u8>>,
    pub histories: HashMap<Id, History>,
    /// The model as a crash finds it at least.
    pub base: Model,
    /// Operations on names and attributes since then.
    pub since: Vec<Op>,
    /// For each inode, how many of all such operations were done when it was changed last.
    pub changed: HashMap<Id, usize>,
    /// How many such operations are in `base`.
    pub before: usize,
    held: Vec<(Fd, Id)>,
    /// Everything that was done.
    pub past: Vec<Op>,
    can_allocate: bool,
}

impl Tester {
    pub fn new(fs: &dyn Posix, name: &str) -> Self {
        fs.mkdir(name, 0o755).expect("mkdir");
        // Block-mapped volumes refuse preallocation; found out once.
        let probe = fs.create("probe").expect("create");
        let can_allocate = fs.fallocate(probe, FallocateFlags::empty(), 0, 1000).is_ok();
        fs.close(probe);
        fs.unlink("probe").expect("unlink");
        fs.sync().expect("sync");
        Self {
            root: name.to_owned(),
            model: Model::new(),
            contents: HashMap::new(),
            histories: HashMap::new(),
            base: Model::new(),
            since: Vec::new(),
            changed: HashMap::new(),
            before: 0,
            held: Vec::new(),
            past: Vec::new(),
            can_allocate,
        }
    }

    pub fn path(&self, path: &str) -> String {
        if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root) }
    }

    /// Before the file system goes down.
    pub fn close(&mut self) {
        self.held.clear();
    }

    /// Random operations, then a look at everything.
    pub fn random(&mut self, fs: &dyn Posix, seed: u64, steps: usize) -> Result<(), String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..steps {
            let op = ops::next(&mut rng, &self.model, self.held.len());
            self.step(fs, op)?;
        }
        self.compare(fs)
    }

    /// Does one operation on both sides.
    pub fn step(&mut self, fs: &dyn Posix, op: Op) -> Result<(), String> {
        self.past.push(op.clone());
        let same = |real: Result<(), Errno>, model: Result<(), Errno>| match real == model {
            true => Ok(()),
            false => Err(format!("{}: {op:?} gave {real:?} and not {model:?}", self.root)),
        };
        match self.act(fs, &op) {
            // On names and attributes.
            Some(real) => {
                let changed = self.model.apply(&op);
                same(real, changed.as_ref().map(drop).map_err(|e| *e))?;
                if let Ok(changed) = changed {
                    self.since.push(op.clone());
                    let now = self.before + self.since.len();
                    for id in changed {
                        self.changed.insert(id, now);
                        if self.model.is_file(id) && !self.contents.contains_key(&id) {
                            self.contents.insert(id, Vec::new());
                            let mut history = History::default();
                            history.durable(&[]);
                            self.histories.insert(id, history);
                        }
                    }
                }
                Ok(())
            }
            None => self.on_contents(fs, &op).map_err(|e| format!("{}: {op:?}: {e}", self.root)),
        }
    }

    /// The call, if it is one on names or attributes.
    fn act(&self, fs: &dyn Posix, op: &Op) -> Option<Result<(), Errno>> {
        let p = |path: &str| self.path(path);
        Some(match op {
            Op::Create { path, mode } => {
                fs.try_open(&p(path), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, *mode)
            }
            Op::Mkdir { path, mode } => fs.mkdir(&p(path), *mode),
            Op::Symlink { path, len } => fs.symlink(&"x".repeat(*len), &p(path)),
            Op::Link { from, to } => fs.link(&p(from), &p(to)),
            Op::Unlink { path } => fs.unlink(&p(path)),
            Op::Rmdir { path } => fs.rmdir(&p(path)),
            Op::Rename { from, to, flags } => fs.rename(&p(from), &p(to), *flags),
            Op::Chmod { path, mode } => fs.chmod(&p(path), *mode),
            Op::SetXattr { path, name, len, seed } => fs.setxattr(
                &p(path),
                name,
                &ops::value(*seed, *len),
                rustix::fs::XattrFlags::empty(),
            ),
            Op::RemoveXattr { path, name } => fs.removexattr(&p(path), name),
            _ => return None,
        })
    }

    fn on_contents(&mut self, fs: &dyn Posix, op: &Op) -> Result<(), String> {
        let told = |e: Errno| std::io::Error::from(e).to_string();
        match op {
            Op::Write { path, at, len, seed } => {
                let Some((fd, id)) = self.open(fs, path)? else { return Ok(()) };
                let wrote = fs.pwrite(fd, *at, &ops::value(*seed, *len));
                fs.close(fd);
                self.wrote(id, *at, *seed, *len, wrote)
            }
            Op::WriteHeld { n, at, len, seed } => {
                let Some((fd, id)) = self.held.get(*n).copied() else { return Ok(()) };
                let wrote = fs.pwrite(fd, *at, &ops::value(*seed, *len));
                self.wrote(id, *at, *seed, *len, wrote)
            }
            Op::Truncate { path, size } => {
                let Some((fd, id)) = self.open(fs, path)? else { return Ok(()) };
                let done = fs.ftruncate(fd, *size);
                fs.close(fd);
                done.map_err(told)?;
                self.change(id, |bytes| bytes.resize(*size as usize, 0));
                Ok(())
            }
            Op::Allocate { path, mode, at, len } => {
                let Some((fd, id)) = self.open(fs, path)? else { return Ok(()) };
                let done = fs.fallocate(fd, *mode, *at, *len);
                fs.close(fd);
                let punch = mode.contains(FallocateFlags::PUNCH_HOLE);
                let expected =
                    if punch || self.can_allocate { Ok(()) } else { Err(Errno::OPNOTSUPP) };
                if done != expected {
                    return Err(format!("{done:?} and not {expected:?}"));
                }
                if done.is_ok() {
                    let zero = punch || mode.contains(FallocateFlags::ZERO_RANGE);
                    let (at, end) = (*at as usize, (*at + *len) as usize);
                    self.change(id, |bytes| {
                        if !mode.contains(KEEP) && bytes.len() < end {
                            bytes.resize(end, 0);
                        }
                        let size = bytes.len();
                        if zero {
                            bytes[at.min(size)..end.min(size)].fill(0);
                        }
                    });
                }
                Ok(())
            }
            Op::Read { path, at, len } => {
                let Some((fd, id)) = self.open(fs, path)? else { return Ok(()) };
                let read = fs.pread(fd, *at, *len);
                fs.close(fd);
                self.read(id, *at, *len, &read.map_err(told)?)
            }
            Op::ReadHeld { n, at, len } => {
                let Some((fd, id)) = self.held.get(*n).copied() else { return Ok(()) };
                self.read(id, *at, *len, &fs.pread(fd, *at, *len).map_err(told)?)
            }
            Op::Hold { path } => {
                if self.held.len() < 8 {
                    let found = self.open(fs, path)?;
                    self.held.extend(found);
                }
                Ok(())
            }
            Op::Release { n } => {
                if *n < self.held.len() {
                    fs.close(self.held.swap_remove(*n).0);
                }
                Ok(())
            }
            Op::List { path } => match self.model.lookup(path) {
                Ok(id) => self.compare_one(fs, path, id, false),
                Err(expected) => match fs.lstat(&self.path(path)) {
                    Err(e) if e == expected => Ok(()),
                    other => Err(format!("{other:?} and not {expected:?}")),
                },
            },
            Op::Fsync { path } => {
                let Ok(id) = self.model.follow(path) else { return Ok(()) };
                let fd = fs.open(&self.path(path), OFlags::RDONLY, 0).map_err(told)?;
                let done = fs.fsync(fd);
                fs.close(fd);
                done.map_err(told)?;
                if let (Some(bytes), Some(history)) =
                    (self.contents.get(&id), self.histories.get_mut(&id))
                {
                    history.durable(bytes);
                }
                self.is_durable(self.changed.get(&id).copied().unwrap_or(0));
                Ok(())
            }
            Op::Sync => {
                fs.sync().map_err(told)?;
                // The kernel's dirty pages of other files may still be on their way: only names are
                // certain.
                self.is_durable(self.before + self.since.len());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Opens a file; if that fails, it must fail as the model says.
    fn open(&self, fs: &dyn Posix, path: &str) -> Result<Option<(Fd, Id)>, String> {
        match (fs.open(&self.path(path), OFlags::RDWR | OFlags::NOFOLLOW, 0), self.model.open(path))
        {
            (Ok(fd), Ok(id)) => Ok(Some((fd, id))),
            (Err(a), Err(b)) if a == b => Ok(None),
            (a, b) => Err(format!("open gave {a:?} and not {b:?}")),
        }
    }

    fn wrote(
        &mut self,
        id: Id,
        at: u64,
        seed: u64,
        len: usize,
        wrote: Result<usize, Errno>,
    ) -> Result<(), String> {
        if wrote != Ok(len) {
            return Err(format!("{wrote:?}"));
        }
        let (at, end) = (at as usize, at as usize + len);
        self.change(id, |bytes| {
            bytes.resize(bytes.len().max(end), 0);
            bytes[at..end].copy_from_slice(&ops::value(seed, len));
        });
        Ok(())
    }

    fn change(&mut self, id: Id, work: impl FnOnce(&mut Vec<u8>)) {
        let bytes = self.contents.entry(id).or_default();
        work(bytes);
        self.histories.entry(id).or_default().changed(bytes, None);
    }

    fn read(&self, id: Id, at: u64, len: usize, found: &[u8]) -> Result<(), String> {
        let bytes = &self.contents[&id];
        let end = (at as usize + len).min(bytes.len());
        let expected = bytes.get(at as usize..end).unwrap_or_default();
        super::check::same_bytes(found, expected, at)
    }

    /// So many operations on names and attributes will be there after a crash.
    pub fn is_durable(&mut self, done: usize) {
        let n = done.saturating_sub(self.before);
        for op in self.since.drain(..n) {
            self.base.apply(&op).expect("it was applied before");
        }
        self.before += n;
    }
}
