//! The guard: no write reaches the device after another program or host has taken the volume.
//!
//! ```text
//!   journal, data, marks ─► ThrottledDevice ─► GuardedDevice ─► FailLatch ─► device
//!                                              │ due? (one comparison with the clock)
//!                                              ├─ the claim of multi-mount protection is older
//!                                              │  than its limit: renewed, or lost (claim.rs)
//!                                              └─ a second since the last check, or another
//!                                                 process opens the image: are the two
//!                                                 superblocks, the volume's and the log's, on the
//!                                                 device as this mount left them? (watch.rs)
//! ```
//!
//! It stands where everything passes that changes the device: commits, fast commits, file data,
//! checkpoints, superblocks, discards, marks. Two things make it refuse: the claim of multi-mount
//! protection belongs to another host, or the two superblocks were changed as only another mount, a
//! recovery or a mkfs changes them. From then on every change fails with the same line, so the
//! journal aborts. Reads go on.
//!
//! States: *off* (nothing claimed, nothing watched: a read-only mount, or a mount that is being
//! opened), *on*, *lost*. Lost is for good: the volume is not opened again in place either, because
//! what two writers leave is no volume before e2fsck has seen it. (The other one may have it
//! mounted still. A reference that is taken then holds its changes already, and Linux writes
//! neither superblock again for minutes, so nothing would tell of it any more.)
//!
//! A kernel that mounts an image needs a loop device, which opens the image. So each change and
//! each flush is checked while another process has it open or has just closed it, and a mount and
//! unmount by Linux within a second is seen by the next of them. (The image of an external log, and
//! a file below a device, are checked once a second.)
//!
//! What remains: between the check and the write that it allows, and without such an open between
//! two checks, up to a second passes, or any time if the process is stopped just there. With
//! multi-mount protection the other host waits for at least twice the check interval (11 s) after
//! the last renewal before it claims, and as long again before it writes, so only a stop of that
//! length inside one system call leaves a window: then this one write may land in another's volume.
//! It is found as soon as the write returns where it was a durable one or a flush, and by the next
//! change otherwise; nothing is acknowledged after it. A virtual machine whose clocks stand still
//! while it is paused does not know that it was paused.
//!
//! Invariants
//! - GD-1: a change passes only if the claim was renewed less than its limit ago, by a clock that
//!   counts while the machine is suspended (`before`).
//! - GD-2: a flush or durable write that succeeds has succeeded under a claim that is still held
//!   when it returns (`after`).
//! - GD-3: once lost, nothing is written: not the mark of an error, not "clean", not the release of
//!   the claim (`lose`; `mmp::HeldClaim::release`).
//! - GD-4: this mount's own writes of the two superblocks are never mistaken for another's: they
//!   are made, and checked, under one lock (`watch::Watch`).
//! - GD-5: bytes of the superblock that are not the mount's come from the device
//!   ([`extol_ondisk::shared_super`]), whatever writes it: the journal bringing it home, a mount,
//!   an unmount, a mark (`GuardedDevice::watched`).
//! - GD-6: a volume whose guard is lost is opened again by a new mount only
//!   (`check_before_reopening`), however it was stopped.
//! - GD-7: once another process has opened the image, no change begins and no flush succeeds before
//!   a check that began after it (`is_opened`).
//!
//! Locking: `opens` is held over a look at the device's list of opens. `watch` is held over device
//! I/O and takes no lock of this crate but `outside_change` and `deliberate`, which are held over
//! nothing. `claim` is held for a clone.

pub(crate) mod claim;
mod device;
pub(crate) mod mmp;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::{DeviceError, DeviceOp, SharedDevice};
use extol_ondisk::Superblock;
use extol_ondisk::shared_super::{Bytes, Deliberate, differs, merge};
use extol_sync::plain::Mutex;

use crate::error::OpenResult;

use claim::{Claim, ClaimError, Time};
pub(crate) use device::{GuardedDevice, Part};
use watch::Watch;

const NEVER: u64 = u64::MAX;

/// See the module's story.
#[derive(Debug)]
pub(crate) struct Guard {
    time: Arc<dyn Time>,
    /// The device below the guard.
    below: SharedDevice,
    /// That of an external journal.
    log_below: Mutex<Option<SharedDevice>>,
    /// When a change must check; 0: at once, or all is lost.
    due: AtomicU64,
    /// Until when the claim is fresh.
    fresh: AtomicU64,
    lost: OnceLock<String>,
    claim: Mutex<Option<Arc<Claim>>>,
    watch: Mutex<Option<Watch>>,
    /// Where the log's superblock is, to ask without the lock.
    log_at: AtomicU64,
    log_is_external: AtomicBool,
    /// The superblock as another program changed it, for [`Guard::take_outside_change`].
    outside_change: Mutex<Option<Box<Bytes>>>,
    has_outside_change: AtomicBool,
    deliberate: Mutex<Deliberate>,
    opens: Mutex<()>,
    /// How often the image was found opened by another process, and how often that was when the
    /// last check began.
    opened: AtomicU64,
    checked: AtomicU64,
    /// A request asked for a look at the superblocks.
    look_wanted: AtomicBool,
}

impl Guard {
    /// Before a device; off.
    pub fn new(below: SharedDevice, time: Arc<dyn Time>) -> Self {
        Self {
            time,
            below,
            log_below: Mutex::default(),
            due: AtomicU64::new(NEVER),
            fresh: AtomicU64::new(NEVER),
            lost: OnceLock::new(),
            claim: Mutex::default(),
            watch: Mutex::default(),
            log_at: AtomicU64::new(NEVER),
            log_is_external: AtomicBool::new(false),
            outside_change: Mutex::default(),
            has_outside_change: AtomicBool::new(false),
            deliberate: Mutex::default(),
            opens: Mutex::default(),
            opened: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            look_wanted: AtomicBool::new(false),
        }
    }

    /// The device below, for the claim.
    pub fn below(&self) -> &SharedDevice {
        &self.below
    }

    pub fn time(&self) -> &Arc<dyn Time> {
        &self.time
    }

    /// The claim that every change depends on from now on; `None`: none.
    pub fn set_claim(&self, claim: Option<Arc<Claim>>) {
        *self.claim.lock() = claim;
        self.make_due();
    }

    /// The claim, if there is one.
    pub fn claim(&self) -> Option<Arc<Claim>> {
        self.claim.lock().clone()
    }

    /// Stands before the device of an external journal as well.
    pub fn stand_before_log(self: &Arc<Self>, log: SharedDevice) -> SharedDevice {
        *self.log_below.lock() = Some(Arc::clone(&log));
        Arc::new(GuardedDevice::new(log, Arc::clone(self), Part::Log))
    }

    /// Watches the superblock, and the log's at this offset of its device.
    pub fn watch(&self, log_at: Option<u64>) -> OpenResult<()> {
        let external = self.log_below.lock().clone();
        // (Only devices below: those above hold this guard.)
        let log = external.as_ref().unwrap_or(&self.below);
        let watch = Watch::new(&self.below, log_at.map(|at| (log, at)), self.time.now_ns())?;
        *self.watch.lock() = Some(watch);
        self.log_is_external.store(external.is_some(), Ordering::Relaxed);
        self.log_at.store(log_at.unwrap_or(NEVER), Ordering::Release);
        self.make_due();
        Ok(())
    }

    /// Checks at once, whenever the last check was.
    pub fn check_now(&self) -> Result<(), String> {
        self.look_for_another_writer()?;
        self.check()
    }

    /// Checks the superblocks if it is time. Writes nothing.
    pub fn check_if_due(&self) {
        if self.time.now_ns() >= self.due.load(Ordering::Acquire) {
            let _ = self.check_superblocks();
        }
    }

    /// Asks for a look ([`check_if_due`](Self::check_if_due)) by a thread of its own.
    pub fn want_look(&self) {
        if !self.look_wanted.load(Ordering::Relaxed) {
            self.look_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// True if a request asked for a look since the last call.
    pub fn take_wanted_look(&self) -> bool {
        self.look_wanted.swap(false, Ordering::Relaxed)
    }

    /// Looks at the superblocks at once, whenever the last check was. Writes nothing.
    pub fn look_for_another_writer(&self) -> Result<(), String> {
        if let Some(watch) = &mut *self.watch.lock() {
            watch.make_due();
        }
        self.check_superblocks().map(drop)
    }

    /// Checks the sizes of the devices, without any I/O: for a volume that nothing changes.
    pub fn check_sizes(&self) {
        if self.lost.get().is_none()
            && let Some(Err(why)) = self.watch.lock().as_ref().map(Watch::check_sizes)
        {
            self.lose(why);
        }
    }

    /// Before the volume is opened again after an error: may it be? (GD-6)
    pub fn check_before_reopening(&self) -> Result<(), String> {
        self.check_lost()?;
        let checked = self.watch.lock().as_mut().map_or(Ok(()), Watch::check_before_reopening);
        checked.inspect_err(|why| self.lose(why.clone()))
    }

    /// The volume could not be opened again, and stays as this mount has it.
    pub fn after_failed_reopening(&self) {
        if let Some(Err(why)) = self.watch.lock().as_mut().map(Watch::after_failed_reopening) {
            self.lose(why);
        }
    }

    /// Has the next change check.
    fn make_due(&self) {
        if self.lost.get().is_none() {
            // (`lose` wins over it: a check begins with `lost`.)
            self.due.store(0, Ordering::Release);
        }
    }

    /// Why nothing may be written any more.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Nothing is written from now on.
    pub fn lose(&self, why: String) {
        let _ = self.lost.set(why);
        self.due.store(0, Ordering::Release);
        self.fresh.store(0, Ordering::Release);
    }

    fn check_lost(&self) -> Result<(), String> {
        self.lost().map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// True if another process has opened the image, and no check has begun since that has ended
    /// (GD-7).
    fn is_opened(&self) -> bool {
        let _one_at_a_time = self.opens.lock();
        if self.below.others_open_it() {
            self.opened.fetch_add(1, Ordering::AcqRel);
        }
        self.opened.load(Ordering::Acquire) != self.checked.load(Ordering::Acquire)
    }

    /// Before a change.
    fn before(&self, op: DeviceOp, offset: u64, len: u64) -> extol_block::Result<()> {
        // (Behind a flush it is asked.)
        let is_opened = op != DeviceOp::Flush && self.is_opened();
        if !is_opened && self.time.now_ns() < self.due.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check().map_err(|why| DeviceError::new(op, offset, len, std::io::Error::other(why)))
    }

    /// After something that acknowledges.
    fn after(&self, op: DeviceOp, offset: u64, len: u64) -> extol_block::Result<()> {
        if !self.is_opened() && self.time.now_ns() < self.fresh.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check().map_err(|why| DeviceError::new(op, offset, len, std::io::Error::other(why)))
    }

    fn check(&self) -> Result<(), String> {
        self.check_lost()?;
        let claim = self.claim.lock().clone();
        let fresh = match claim.map(|claim| claim.freshen()) {
            None => NEVER,
            Some(Ok(until)) => until,
            Some(Err(ClaimError::Lost(why))) => {
                self.lose(why.clone());
                return Err(why);
            }
            Some(Err(ClaimError::Device(why))) => return Err(why),
        };
        let next = self.check_superblocks()?;
        self.fresh.store(fresh, Ordering::Release);
        self.due.store(fresh.min(next), Ordering::Release);
        // It may have been lost meanwhile.
        self.check_lost().inspect_err(|why| self.lose(why.clone()))
    }

    /// Returns the time of the next check.
    fn check_superblocks(&self) -> Result<u64, String> {
        self.check_lost()?;
        let mut slot = self.watch.lock();
        let Some(watch) = &mut *slot else { return Ok(NEVER) };
        let opened = self.opened.load(Ordering::Acquire);
        if opened != self.checked.load(Ordering::Acquire) {
            watch.make_due();
        }
        let known = *watch.superblock();
        let checked = watch.check(self.time.now_ns());
        self.note_outside_change(&known, watch.superblock());
        // (Stored under the lock: what comes later waits for it.)
        self.checked.store(opened, Ordering::Release);
        checked.inspect_err(|why| self.lose(why.clone()))
    }

    /// Keeps what another program changed.
    fn note_outside_change(&self, known: &Bytes, now: &Bytes) {
        if differs(known, now) {
            *self.outside_change.lock() = Some(Box::new(*now));
            self.has_outside_change.store(true, Ordering::Release);
        }
    }

    /// Brings what another program changed in the superblock into a copy of it. True if there was
    /// something.
    pub fn take_outside_change(&self, sb: &mut Superblock) -> bool {
        if !self.has_outside_change.load(Ordering::Acquire) {
            return false;
        }
        self.has_outside_change.store(false, Ordering::Release);
        let Some(theirs) = self.outside_change.lock().take() else { return false };
        let merged = merge(&sb.encode(), &theirs, &self.deliberate.lock());
        match Superblock::decode(&merged) {
            Ok(newer) => *sb = newer,
            // What cannot be used stays on the device and changes nothing here.
            Err(_) => return false,
        }
        true
    }

    /// The mount changes its superblock: what of it is the device's becomes its own.
    pub fn note_change(&self, before: &Bytes, after: &Bytes) {
        if differs(before, after) {
            self.deliberate.lock().note(before, after);
        }
    }
}
