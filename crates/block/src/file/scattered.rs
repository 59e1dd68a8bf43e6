//! Batches of scattered writes.
//!
//! Each write of a batch is one of three kinds:
//!
//! | kind | handling |
//! | --- | --- |
//! | whole sectors, memory that the kernel accepts | queued as it is |
//! | whole sectors, other memory, at most 1 MiB | copied to aligned memory, queued |
//! | others (parts of sectors, long copies, many buffers) | single calls, after the queued ones |
//!
//! Queued writes go in groups, so that copies never take more than 2 MiB. A group holds the range
//! locks of all its writes. That cannot deadlock: queued writes never wait for each other, and a
//! write of parts of sectors holds nothing while it waits for its only lock.
//!
//! Buffered devices use single calls: a buffered write is a copy, and handing it to another thread
//! of the kernel costs more.

use super::FileDevice;
use super::direct::DirectIo;
use super::pool::{BOUNCE_MAX, Pooled};
use super::transfer::{MAX_BUFFERS, write_all};
use super::uring::Outcome;
use crate::range_lock::Coverage;
use crate::{
    BlockDevice, DeviceError, DeviceOp, Result, ScatteredWrite, check_range, check_writable,
};
use std::io::{self, IoSlice};

/// Most bytes of copies in one group.
const COPIES_MAX: usize = 2 * BOUNCE_MAX;
/// Most writes in one group.
const GROUP_MAX: usize = 256;

/// All these writes; `durable`: each is on the medium when this returns.
pub(super) fn write(
    device: &FileDevice,
    writes: &[ScatteredWrite<'_>],
    durable: bool,
) -> Result<()> {
    let mut total = 0u64;
    for write in writes {
        let len = write.len();
        check_writable(DeviceOp::Write, write.offset, len, BlockDevice::is_read_only(device))?;
        check_range(DeviceOp::Write, write.offset, len, BlockDevice::size(device))?;
        total = total.saturating_add(len);
    }
    let direct = device.direct.as_ref().filter(|_| !device.rings.refused());
    let Some(direct) = direct else {
        return one_by_one(device, writes, durable);
    };
    let mut group = Group::new(direct, total);
    let mut others = Vec::new();
    for write in writes {
        match Kind::of(write, direct) {
            Kind::Empty => {}
            Kind::Ordinary => others.push(*write),
            kind => {
                if group.is_full(write, kind) {
                    group.write(device, durable)?;
                    group = Group::new(direct, total);
                }
                group.add(write, kind);
            }
        }
    }
    group.write(device, durable)?;
    one_by_one(device, &others, durable)
}

fn one_by_one(device: &FileDevice, writes: &[ScatteredWrite<'_>], durable: bool) -> Result<()> {
    writes.iter().try_for_each(|w| device.write_checked(w.bufs, w.offset, durable))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    AsItIs,
    Copied,
    Ordinary,
}

impl Kind {
    fn of(write: &ScatteredWrite<'_>, direct: &DirectIo) -> Self {
        let len = write.len();
        if len == 0 {
            Self::Empty
        } else if !direct.is_whole(write.offset, len) {
            Self::Ordinary
        } else if write.bufs.len() <= MAX_BUFFERS && write.bufs.iter().all(|b| direct.accepts(b)) {
            Self::AsItIs
        } else if len <= BOUNCE_MAX as u64 {
            Self::Copied
        } else {
            Self::Ordinary
        }
    }
}

/// Writes that go to the kernel together.
struct Group<'a> {
    direct: &'a DirectIo,
    /// Bytes of the whole batch: the size of memory for copies.
    total: u64,
    /// The writes, and where the copy is: which buffer, from which byte.
    writes: Vec<(&'a ScatteredWrite<'a>, Option<(usize, usize)>)>,
    copies: Vec<Pooled<'a>>,
    /// Bytes used of the last buffer.
    used: usize,
}

impl<'a> Group<'a> {
    fn new(direct: &'a DirectIo, total: u64) -> Self {
        Self { direct, total, writes: Vec::new(), copies: Vec::new(), used: 0 }
    }

    fn fits_last(&self, len: usize) -> bool {
        self.copies.last().is_some_and(|last| last.len() - self.used >= len)
    }

    fn is_full(&self, write: &ScatteredWrite<'_>, kind: Kind) -> bool {
        let more = kind == Kind::Copied && !self.fits_last(write.len() as usize);
        self.writes.len() >= GROUP_MAX || (more && self.copies.len() * BOUNCE_MAX >= COPIES_MAX)
    }

    fn add(&mut self, write: &'a ScatteredWrite<'a>, kind: Kind) {
        let place = (kind == Kind::Copied).then(|| self.copy(write));
        self.writes.push((write, place));
    }

    /// Copies the bytes of a write of at most `BOUNCE_MAX` bytes.
    fn copy(&mut self, write: &ScatteredWrite<'_>) -> (usize, usize) {
        let len = write.len() as usize;
        if !self.fits_last(len) {
            let wanted = self.total.min(BOUNCE_MAX as u64) as usize;
            self.copies.push(self.direct.buffers.take(wanted.max(len)));
            self.used = 0;
        }
        let (buffer, start) = (self.copies.len() - 1, self.used);
        let mut target = &mut self.copies[buffer][start..start + len];
        for source in write.bufs {
            let (now, later) = target.split_at_mut(source.len());
            now.copy_from_slice(source);
            target = later;
        }
        // The next copy begins aligned, too.
        self.used = (start + len).next_multiple_of(self.direct.memory);
        (buffer, start)
    }

    fn write(&self, device: &FileDevice, durable: bool) -> Result<()> {
        let copies: Vec<Option<[IoSlice<'_>; 1]>> = self
            .writes
            .iter()
            .map(|(write, place)| {
                place.map(|(buffer, start)| {
                    [IoSlice::new(&self.copies[buffer][start..start + write.len() as usize])]
                })
            })
            .collect();
        let jobs: Vec<ScatteredWrite<'_>> = self
            .writes
            .iter()
            .zip(&copies)
            .map(|((write, _), copy)| ScatteredWrite {
                offset: write.offset,
                bufs: copy.as_ref().map_or(write.bufs, |copy| copy.as_slice()),
            })
            .collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let _locks: Vec<_> = jobs
            .iter()
            .map(|job| self.direct.locks.lock(job.offset..job.offset + job.len(), Coverage::Whole))
            .collect();
        // One alone has nothing to be at the same time with: the plain call is faster. A durable
        // one is one flush less on a block device.
        let queued = jobs.len() > 1 || durable;
        let outcomes =
            if queued { device.rings.write(device.file(), &jobs, durable) } else { None };
        let outcomes = outcomes.unwrap_or_else(|| jobs.iter().map(|_| Outcome::NotDone).collect());
        for (job, outcome) in jobs.iter().zip(outcomes) {
            self.finish(device, job, outcome, durable)
                .map_err(|e| DeviceError::new(DeviceOp::Write, job.offset, job.len(), e))?;
        }
        Ok(())
    }

    /// Completes a write whose queued part ended like this.
    fn finish(
        &self,
        device: &FileDevice,
        job: &ScatteredWrite<'_>,
        outcome: Outcome,
        durable: bool,
    ) -> io::Result<()> {
        let sector = self.direct.sector;
        let done = match outcome {
            Outcome::Failed(e) => return Err(e),
            Outcome::NotDone => 0,
            Outcome::Done(bytes) => bytes / sector * sector,
        };
        if done as u64 >= job.len() {
            return Ok(());
        }
        let mut bufs = job.bufs.to_vec();
        let mut rest = &mut bufs[..];
        IoSlice::advance_slices(&mut rest, done);
        write_all(device.file(), rest, job.offset + done as u64, sector, durable)
    }
}
