//! One file, many operations, every byte compared with a model; with remounts and crashes in
//! between.
//!
//! The operations follow from a seed; offsets lie near the ends of blocks, pages, larger pieces and
//! the file. They are made up front, so that a failing list can be made shorter and shown: each
//! shorter list runs on a fresh volume, until nothing more can be left out. What the file may hold
//! after a crash says `History`.

mod ops;

use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::history::{History, Shift};
use crate::place::Place;
use crate::posix::{Fd, Posix, Remount};
use crate::reduce;
pub use ops::Op;

const NAME: &str = "file";

/// How long a failing list is made shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does `count` operations of a seed on a fresh volume.
///
/// # Errors
/// What was wrong, with the seed and the shortest list of operations that shows it.
pub fn run(place: &Place, seed: u64, count: usize) -> Result<usize, String> {
    let ops = ops::generate(seed, count, place.has_journal());
    let Err((at, message)) = attempt(place, &ops) else { return Ok(ops.len()) };
    let list = ops[..(at + 1).min(ops.len())].to_vec();
    let total = list.len();
    let list = reduce::shortest(list, PATIENCE, |list| attempt(place, list).is_err());
    let last = attempt(place, &list).err().map_or(message.clone(), |(_, m)| m);
    let shown: Vec<String> = list.iter().map(|op| format!("  {op:?}")).collect();
    Err(format!(
        "fsx on {place}, seed {seed}: {message}\n{} of {total} operations are enough: {last}\n{}",
        list.len(),
        shown.join("\n")
    ))
}

/// Runs a list; the error tells the operation that showed it.
fn attempt(place: &Place, ops: &[Op]) -> Result<(), (usize, String)> {
    place.with(|fs| {
        let mut state = State::new(fs);
        for (n, op) in ops.iter().enumerate() {
            state
                .step(op)
                .and_then(|()| state.look(n % 16 == 15))
                .map_err(|m| (n, format!("{op:?}: {m}")))?;
        }
        state.look(true).map_err(|m| (ops.len(), m))
    })
}

struct State<'a> {
    fs: &'a dyn Posix,
    fd: Fd,
    model: Vec<u8>,
    history: History,
    /// Preallocation works here (files mapped by extents).
    extents: bool,
    /// Ranges can be cut out and put in: by extents, and not through FUSE.
    shifts: bool,
    block: u64,
}

impl<'a> State<'a> {
    fn new(fs: &'a dyn Posix) -> Self {
        let fd = fs.create(NAME).expect("create the file");
        let extents = fs.fallocate(fd, ops::ALLOCATE, 0, 1).is_ok();
        let block = fs.statfs().expect("statfs").block_size;
        fs.ftruncate(fd, 3 * block).expect("truncate");
        let shifts = fs.fallocate(fd, ops::COLLAPSE, 0, block).is_ok();
        fs.ftruncate(fd, 0).expect("truncate");
        fs.sync().expect("sync");
        let mut history = History::default();
        history.durable(&[]);
        Self { fs, fd, model: Vec::new(), history, extents, shifts, block }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[at as usize..end].copy_from_slice(data);
        self.history.changed(&self.model, None);
    }

    /// What fallocate should say, and what the file becomes.
    fn allocate(
        &mut self,
        mode: rustix::fs::FallocateFlags,
        at: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let (a, end, size) = (at as usize, (at + len) as usize, self.model.len());
        let aligned = at.is_multiple_of(self.block) && len.is_multiple_of(self.block);
        let keep = mode.contains(ops::KEEP);
        let mut shift = None;
        if mode == ops::PUNCH {
            self.model[a.min(size)..end.min(size)].fill(0);
        } else if !self.extents || (!self.shifts && (mode == ops::COLLAPSE || mode == ops::INSERT))
        {
            return Err(Errno::OPNOTSUPP);
        } else if mode == ops::COLLAPSE {
            if !aligned || end >= size {
                return Err(Errno::INVAL);
            }
            self.model.drain(a..end);
            shift = Some(Shift { at: a, len: end - a, inserted: false });
        } else if mode == ops::INSERT {
            if !aligned || a >= size {
                return Err(Errno::INVAL);
            }
            self.model.splice(a..a, std::iter::repeat_n(0, end - a));
            shift = Some(Shift { at: a, len: end - a, inserted: true });
        } else {
            if mode.contains(ops::ZERO) {
                self.model[a.min(size)..end.min(size)].fill(0);
            }
            if !keep && end > size {
                self.model.resize(end, 0);
            }
        }
        self.history.changed(&self.model, shift);
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let (fs, fd) = (self.fs, self.fd);
        let told = |e: Errno| std::io::Error::from(e).to_string();
        match *op {
            Op::Write { at, len, seed } => {
                let data = ops::bytes(seed, len);
                let n = fs.pwrite(fd, at, &data).map_err(told)?;
                if n != len {
                    return Err(format!("{n} bytes written"));
                }
                self.write(at, &data);
            }
            Op::Append { len, seed } => {
                let data = ops::bytes(seed, len);
                let append = fs.open(NAME, OFlags::WRONLY | OFlags::APPEND, 0).map_err(told)?;
                let n = fs.write(append, &data);
                fs.close(append);
                n.map_err(told)?;
                self.write(self.model.len() as u64, &data);
            }
            Op::MapWrite { at, len, seed } => {
                // Only what lies inside the file can be mapped.
                let len = len.min(self.model.len().saturating_sub(at as usize));
                let data = ops::bytes(seed, len);
                if len > 0 {
                    match fs.map_write(fd, at, &data) {
                        Some(done) => done.map_err(told)?,
                        None => drop(fs.pwrite(fd, at, &data).map_err(told)?),
                    }
                    self.write(at, &data);
                }
            }
            Op::Read { at, len } => self.read(at, len, false)?,
            Op::MapRead { at, len } => self.read(at, len, true)?,
            Op::Copy { from, to, len } => {
                let len = (len as u64).min((self.model.len() as u64).saturating_sub(from));
                let apart = from + len <= to || to + len <= from;
                let by_call =
                    if apart && len > 0 { fs.copy_range(fd, from, to, len as usize) } else { None };
                let done = match by_call {
                    Some(done) => done.map_err(told)?,
                    // Where the call does not exist or may not be used: read and written again.
                    None => {
                        let data = fs.pread(fd, from, len as usize).map_err(told)?;
                        if data.is_empty() { 0 } else { fs.pwrite(fd, to, &data).map_err(told)? }
                    }
                };
                if done > 0 {
                    let data = self.model[from as usize..from as usize + done].to_vec();
                    self.write(to, &data);
                }
            }
            Op::Truncate { size } => {
                fs.ftruncate(fd, size).map_err(told)?;
                self.model.resize(size as usize, 0);
                self.history.changed(&self.model, None);
            }
            Op::Allocate { mode, at, len } => {
                let done = fs.fallocate(fd, mode, at, len);
                let expected = self.allocate(mode, at, len);
                if done != expected {
                    return Err(format!("{done:?} instead of {expected:?}"));
                }
            }
            Op::Fsync => {
                fs.fsync(fd).map_err(told)?;
                self.history.durable(&self.model);
            }
            Op::Fdatasync => {
                fs.fdatasync(fd).map_err(told)?;
                self.history.durable(&self.model);
            }
            Op::Reopen => {
                fs.close(fd);
                self.fd = fs.open(NAME, OFlags::RDWR, 0).map_err(told)?;
            }
            Op::DropCaches => fs.drop_caches(),
            Op::Remount => {
                fs.remount(Remount::Clean);
                self.fd = fs.open(NAME, OFlags::RDWR, 0).map_err(told)?;
                self.look(true)?;
                self.history.durable(&self.model);
            }
            Op::Crash => {
                fs.remount(Remount::Crash);
                self.fd = fs.open(NAME, OFlags::RDWR, 0).map_err(told)?;
                let found = self.contents()?;
                self.history.verify(&found)?;
                self.model = found;
                self.history.durable(&self.model);
            }
        }
        Ok(())
    }

    fn contents(&self) -> Result<Vec<u8>, String> {
        let size = self.fs.fstat(self.fd).map_err(|e| e.to_string())?.size;
        self.fs.pread(self.fd, 0, size as usize + 1).map_err(|e| e.to_string())
    }

    fn read(&self, at: u64, len: usize, mapped: bool) -> Result<(), String> {
        let end = (at as usize).saturating_add(len).min(self.model.len());
        let expected = self.model.get(at as usize..end).unwrap_or_default();
        let by_map = if mapped && !expected.is_empty() {
            self.fs.map_read(self.fd, at, expected.len())
        } else {
            None
        };
        let found =
            by_map.unwrap_or_else(|| self.fs.pread(self.fd, at, len)).map_err(|e| e.to_string())?;
        same(&found, expected, at)
    }

    /// The size, and with `all` every byte.
    fn look(&self, all: bool) -> Result<(), String> {
        let size = self.fs.fstat(self.fd).map_err(|e| e.to_string())?.size;
        if size != self.model.len() as u64 {
            return Err(format!("the size is {size} and not {}", self.model.len()));
        }
        if all { same(&self.contents()?, &self.model, 0) } else { Ok(()) }
    }
}

fn same(found: &[u8], expected: &[u8], at: u64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} bytes at {at} instead of {}", found.len(), expected.len()));
    }
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(n) => Err(format!("byte {} is {} and not {}", at + n as u64, found[n], expected[n])),
    }
}
