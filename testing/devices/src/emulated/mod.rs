//! A medium of another speed: any device inside, with the timing of a disk, an array, a network
//! disk outside.
//!
//! ```text
//!   request ── now ──► model.rs   when is it done?      (pure; a short lock)
//!      │                 disk.rs    heads and cache
//!      ├──────────────► inner device: the data go there at once
//!      └── wait.rs      sleep until it is done           (no lock)
//! ```
//!
//! Contents and durability are those of the inner device: every operation is passed on, flushes
//! too. Only the moment of return is another: the one that the model gives, or that of the inner
//! device if that is later. So the inner device must be faster than the medium; [`MediumStats`]
//! tells whether it was.
//!
//! A write is in the inner device before it is done outside. A reader that does not wait for
//! the write sees it early, as no program may rely on.
//!
//! A durable write on a medium without that command is a write and then a flush, one after the
//! other, as the block layer of an operating system does it; the flush counts in
//! [`MediumStats::flushes`]. The inner device still gets one durable write.
//!
//! What is discarded on a medium that cannot discard is refused as unsupported, whatever the inner
//! device could do: the caller must do what it would do on the real one.

mod disk;
mod model;
mod parse;
mod profile;
#[cfg(test)]
mod tests;
mod wait;

pub use profile::{Profile, ProfileError};
pub use wait::until as sleep_until;

use crate::{CountingDevice, DeviceStats};
use extol_block::{BlockDevice, DeviceError, DeviceOp, Fua, Result, ScatteredWrite, total_len};
use model::{Model, Op};
use parking_lot::Mutex;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a medium did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MediumStats {
    /// What was asked of it.
    pub asked: DeviceStats,
    /// Flushes that it made: those asked for, and those that stand for durable writes where the
    /// medium has none.
    pub flushes: u64,
    /// Sum over all operations of the time that the model gave them.
    pub modelled: Duration,
    /// Sum over all operations of the time by which they came back later than that (the inner
    /// device or the machine was slower than the medium, or a thread was woken late). Large beside
    /// `modelled`: the measurement is worth nothing.
    pub late: Duration,
}

/// Decorator that makes a device as slow as a [`Profile`] says.
pub struct EmulatedMedia<D> {
    inner: CountingDevice<D>,
    model: Mutex<Model>,
    profile: Profile,
    /// Time 0 of the model.
    made: Instant,
    flushes: AtomicU64,
    modelled_ns: AtomicU64,
    late_ns: AtomicU64,
}

impl<D: BlockDevice> EmulatedMedia<D> {
    /// Puts the timing of `profile` on `inner`. Where the profile has moving parts, a full seek is
    /// one over the whole device.
    pub fn new(inner: D, profile: Profile) -> Self {
        let model = Mutex::new(Model::new(profile.clone(), inner.size()));
        Self {
            inner: CountingDevice::new(inner),
            model,
            profile,
            made: Instant::now(),
            flushes: AtomicU64::new(0),
            modelled_ns: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
        }
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        self.inner.inner()
    }

    /// What the medium is like.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// What was asked of the medium so far.
    pub fn stats(&self) -> DeviceStats {
        self.inner.stats()
    }

    /// The same and how it went. Each number is exact; together they are not one instant.
    pub fn medium_stats(&self) -> MediumStats {
        MediumStats {
            asked: self.stats(),
            flushes: self.flushes.load(Relaxed),
            modelled: Duration::from_nanos(self.modelled_ns.load(Relaxed)),
            late: Duration::from_nanos(self.late_ns.load(Relaxed)),
        }
    }

    /// Asks the model, does the work, waits for the end that the model gave.
    fn timed<T>(
        &self,
        when: impl FnOnce(&mut Model, Duration) -> Duration,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (now, end) = {
            let mut model = self.model.lock();
            // Under the lock: the model's time never goes back.
            let now = self.made.elapsed();
            (now, when(&mut model, now))
        };
        let result = work()?;
        wait::until(self.made + end);
        let add = |sum: &AtomicU64, time: Duration| sum.fetch_add(time.as_nanos() as u64, Relaxed);
        add(&self.modelled_ns, end - now);
        add(&self.late_ns, self.made.elapsed().saturating_sub(end));
        Ok(result)
    }

    fn request(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.is_inside(offset, len) {
            return work();
        }
        self.timed(|model, now| model.request(op, offset, len, now), work)
    }

    /// The inner device refuses the others; the model does not know them.
    fn is_inside(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.size())
    }

    /// When the last write of a batch has ended.
    fn batch_end(
        &self,
        model: &mut Model,
        op: Op,
        writes: &[ScatteredWrite<'_>],
        now: Duration,
    ) -> Duration {
        let inside = writes.iter().filter(|write| self.is_inside(write.offset, write.len()));
        inside.map(|write| model.request(op, write.offset, write.len(), now)).max().unwrap_or(now)
    }

    fn durable(&self, offset: u64, len: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.profile.native_fua {
            return self.request(Op::WriteFua, offset, len, work);
        }
        self.request(Op::Write, offset, len, work)?;
        self.timed_flush(|| Ok(()))
    }

    fn timed_flush(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.flushes.fetch_add(1, Relaxed);
        self.timed(Model::flush, work)
    }
}

impl<D: BlockDevice> fmt::Debug for EmulatedMedia<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedMedia")
            .field("profile", &self.profile)
            .field("inner", self.inner())
            .finish()
    }
}

impl<D: BlockDevice> BlockDevice for EmulatedMedia<D> {
    extol_block::pass_on!(shape, length);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.request(Op::Read, offset, buf.len() as u64, || self.inner.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.request(Op::Write, offset, buf.len() as u64, || self.inner.write_at(buf, offset))
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.request(Op::Read, offset, total_len(bufs), || {
            self.inner.read_vectored_at(bufs, offset)
        })
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.request(Op::Write, offset, total_len(bufs), || {
            self.inner.write_vectored_at(bufs, offset)
        })
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        let when = |model: &mut Model, now| self.batch_end(model, Op::Write, writes, now);
        self.timed(when, || self.inner.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if !self.profile.native_fua {
            self.write_scattered(writes)?;
            return self.flush();
        }
        let when = |model: &mut Model, now| self.batch_end(model, Op::WriteFua, writes, now);
        self.timed(when, || self.inner.write_scattered_fua(writes))
    }

    fn fua(&self) -> Fua {
        if self.profile.native_fua { Fua::Native } else { Fua::Flush }
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable(offset, buf.len() as u64, || self.inner.write_fua(buf, offset))
    }

    fn fua_is_flush(&self) -> bool {
        !self.profile.native_fua
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable(offset, buf.len() as u64, || self.inner.write_mark(buf, offset))
    }

    fn flush(&self) -> Result<()> {
        self.timed_flush(|| self.inner.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if !self.profile.discard {
            let why = format!("a medium of the kind {} cannot discard", self.profile.name());
            return Err(DeviceError::new(
                DeviceOp::Discard,
                offset,
                len,
                io::Error::new(io::ErrorKind::Unsupported, why),
            ));
        }
        self.request(Op::Discard, offset, len, || self.inner.discard(offset, len))
    }

    fn discard_zeroes(&self) -> bool {
        self.profile.discard && self.inner.discard_zeroes()
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.request(Op::Zero, offset, len, || self.inner.zero_range(offset, len))
    }
}
