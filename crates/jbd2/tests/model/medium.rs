//! A device whose every operation is several steps of the schedule.
//!
//! A write may be on the medium from the moment it is asked for; it counts as completed when it
//! returns. A flush makes durable what had completed before the flush was asked for, and nothing
//! else. Stricter than `RecordingDevice`, whose operations are single moments.
//!
//! ```text
//!  write A ├────────┤            flush ├───────┤  durable: A. B had not returned.
//!  write B      ├──────────────────┤
//! ```
//!
//! A planned failure hits one operation. A failing flush loses what it should have made durable:
//! later flushes report success and do not write it, as Linux does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use extol_block::{BlockDevice, DeviceError, DeviceOp, Fua, Result, ScatteredWrite, joined};
use extol_sync::atomic::{AtomicU32, Ordering};

use crate::explore::below;

const SECTOR: usize = 512;

#[derive(Debug)]
struct Change {
    offset: usize,
    data: Vec<u8>,
    completed: bool,
    durable: bool,
    /// A flush that should have written it failed: no later one will.
    dropped: bool,
}

#[derive(Debug, Default)]
struct State {
    /// Everything durable and older than `changes`.
    base: Vec<u8>,
    live: Vec<u8>,
    changes: Vec<Change>,
    /// Operations of the planned kind that still succeed.
    failure: Option<(DeviceOp, u32)>,
    failed: bool,
    /// Writes and flushes asked for.
    asked: u64,
}

#[derive(Debug)]
pub struct Medium {
    /// Never held over a step, so a lock of the standard library is right.
    state: Mutex<State>,
    step: AtomicU32,
    knows_fua: bool,
}

impl Medium {
    pub fn new(bytes: usize) -> Self {
        let state = State { base: vec![0; bytes], live: vec![0; bytes], ..State::default() };
        Self { state: Mutex::new(state), step: AtomicU32::new(0), knows_fua: true }
    }

    /// A durable write is a write and a flush.
    pub fn without_fua(mut self) -> Self {
        self.knows_fua = false;
        self
    }

    /// Puts bytes in place before the run begins.
    pub fn preset(&self, offset: usize, bytes: &[u8]) {
        let state = &mut *self.lock();
        for image in [&mut state.base, &mut state.live] {
            image[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The operation after `later` more of this kind fails, once.
    pub fn plan_failure(&self, op: DeviceOp, later: u32) {
        self.lock().failure = Some((op, later));
    }

    /// The planned failure has happened.
    pub fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// Writes and flushes asked for so far.
    pub fn asked(&self) -> u64 {
        self.lock().asked
    }

    /// What the medium may hold if the power goes now: all that is durable; of the rest `keep`
    /// decides by sector.
    pub fn crash(&self, mut keep: impl FnMut() -> bool) -> Vec<u8> {
        let state = self.lock();
        let mut image = state.base.clone();
        for change in &state.changes {
            for (i, sector) in change.data.chunks(SECTOR).enumerate() {
                if change.durable || keep() {
                    let at = change.offset + i * SECTOR;
                    image[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        image
    }

    /// What reads see now.
    pub fn live(&self) -> Vec<u8> {
        self.lock().live.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the schedule go on with another thread.
    fn step(&self) {
        self.step.load(Ordering::SeqCst);
    }

    fn fails(&self, op: DeviceOp, offset: u64) -> Option<DeviceError> {
        let state = &mut *self.lock();
        match &mut state.failure {
            Some((planned, 0)) if *planned == op => {
                state.failure = None;
                state.failed = true;
                let error = std::io::Error::other("planned");
                Some(DeviceError::new(op, offset, 0, error))
            }
            Some((planned, later)) if *planned == op => {
                *later -= 1;
                None
            }
            _ => None,
        }
    }

    fn write(&self, buf: &[u8], offset: u64, fua: bool) -> Result<()> {
        self.lock().asked += 1;
        self.step();
        if let Some(error) = self.fails(DeviceOp::Write, offset) {
            self.step();
            return Err(error);
        }
        let at = {
            let state = &mut *self.lock();
            let offset = offset as usize;
            state.live[offset..offset + buf.len()].copy_from_slice(buf);
            let data = buf.to_vec();
            state.changes.push(Change {
                offset,
                data,
                completed: false,
                durable: fua,
                dropped: false,
            });
            state.changes.len() - 1
        };
        self.step();
        // Changes are never removed.
        self.lock().changes[at].completed = true;
        Ok(())
    }
}

impl BlockDevice for Medium {
    fn size(&self) -> u64 {
        self.lock().live.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.step();
        if let Some(error) = self.fails(DeviceOp::Read, offset) {
            self.step();
            return Err(error);
        }
        let offset = offset as usize;
        buf.copy_from_slice(&self.lock().live[offset..offset + buf.len()]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, false)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, self.knows_fua)?;
        if self.knows_fua { Ok(()) } else { self.flush() }
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if !self.knows_fua {
            self.write_scattered(writes)?;
            return self.flush();
        }
        self.lock().asked += 1;
        self.step();
        let mut batch = Vec::new();
        for write in writes {
            if let Some(error) = self.fails(DeviceOp::Write, write.offset) {
                self.step();
                return Err(error);
            }
            let data = joined(write.bufs);
            let offset = write.offset as usize;
            let state = &mut *self.lock();
            state.live[offset..offset + data.len()].copy_from_slice(&data);
            batch.push(state.changes.len());
            state.changes.push(Change {
                offset,
                data,
                completed: false,
                durable: false,
                dropped: false,
            });
        }
        self.step();
        let state = &mut *self.lock();
        for at in batch {
            (state.changes[at].completed, state.changes[at].durable) = (true, true);
        }
        Ok(())
    }

    fn fua(&self) -> Fua {
        if self.knows_fua { Fua::PerWrite } else { Fua::Flush }
    }

    fn fua_is_flush(&self) -> bool {
        !self.knows_fua
    }

    fn flush(&self) -> Result<()> {
        let covered: Vec<usize> = {
            let state = &mut *self.lock();
            state.asked += 1;
            let pending =
                |(i, c): (usize, &Change)| (c.completed && !c.durable && !c.dropped).then_some(i);
            state.changes.iter().enumerate().filter_map(pending).collect()
        };
        self.step();
        let failure = self.fails(DeviceOp::Flush, 0);
        {
            let state = &mut *self.lock();
            for i in covered {
                match failure {
                    None => state.changes[i].durable = !state.changes[i].dropped,
                    Some(_) => state.changes[i].dropped = true,
                }
            }
        }
        self.step();
        failure.map_or(Ok(()), Err)
    }

    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.write_at(&vec![0; len as usize], offset)
    }
}

/// Keeps any subset.
pub fn any() -> bool {
    below(2) == 0
}
