//! The claim of multi-mount protection: the block that says which host has the volume, and how long
//! that can be relied on. `mmp.rs` tells how a claim is made; this file keeps it.
//!
//! A host that wants the volume waits for more than twice the check interval, and sees whether the
//! block changes. So a claim renewed less than one check interval ago cannot have been taken by
//! another host ([`Claim::freshen`] is asked before each write to the device, see `guard`). An
//! older one may: the block is read first, and compared by sequence and host.
//!
//! A host that reads its own claim, and is stopped before its write, may write over the claim of
//! another, and find its own bytes afterwards. So the time from before the read to after the write
//! counts: if it is longer than the limit, the claim is not relied on until a whole wait has shown
//! that no other host changes the block (`renew`).
//!
//! Invariants
//! - MM-1: `fresh_until` is the limit after a moment that lies before the read or write that proves
//!   the claim (`renew`).
//! - MM-2: one thread at a time changes the block (`Claim::written`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_block::{BlockNr, SharedDevice};
use extol_ondisk::Geometry;
use extol_ondisk::mmp::{Mmp, SEQ_MAX};
use extol_sync::plain::Mutex;
use extol_task::Clock;

use crate::error::{OpenError, OpenResult};

/// How soon a wait sees that it is to end.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Time as another host counts it: it goes on while this machine is suspended.
pub(crate) trait Time: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since some fixed point.
    fn now_ns(&self) -> u64;
    fn sleep(&self, how_long: Duration);
}

/// The machine's clock.
#[derive(Debug)]
struct BootTime;

impl Time for BootTime {
    fn now_ns(&self) -> u64 {
        u64::try_from(extol_task::since_boot().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }
}

/// The clock that the options of a volume name.
#[derive(Debug)]
struct GivenTime(Arc<dyn Clock>);

impl Time for GivenTime {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn sleep(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }
}

/// The time of a guard: the clock of the options, or the machine's.
pub(crate) fn time(given: Option<Arc<dyn Clock>>) -> Arc<dyn Time> {
    match given {
        Some(clock) => Arc::new(GivenTime(clock)),
        None => Arc::new(BootTime),
    }
}

/// Why a claim cannot be relied on.
#[derive(Clone, Debug)]
pub(crate) enum ClaimError {
    /// Another host has it.
    Lost(String),
    /// The block cannot be read or written.
    Device(String),
}

/// The block of the claim.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub dev: SharedDevice,
    pub geo: Geometry,
    /// Changes if the volume's blocks are moved.
    pub block: Arc<AtomicU64>,
    /// The volume is about to have checksums, which have no meaning yet.
    pub checksums: Arc<OnceLock<Geometry>>,
}

impl Place {
    pub fn new(dev: SharedDevice, geo: Geometry, block: BlockNr) -> Self {
        let block = Arc::new(AtomicU64::new(block.0));
        Self { dev, geo, block, checksums: Arc::default() }
    }

    /// Bytes in front of it.
    fn at(&self) -> u64 {
        BlockNr(self.block.load(Ordering::Acquire)).offset(self.geo.block_size)
    }

    pub fn read(&self) -> OpenResult<Mmp> {
        let mut bytes = vec![0; self.geo.block_len()];
        self.dev.read_at(&mut bytes, self.at())?;
        Mmp::decode(&bytes, &self.geo)
            .map_err(|e| OpenError::new(format!("corrupt MMP block: {e}; run e2fsck")))
    }

    pub fn write(&self, mmp: &Mmp) -> OpenResult<()> {
        self.write_at(mmp, self.at())
    }

    fn write_at(&self, mmp: &Mmp, at: u64) -> OpenResult<()> {
        let mut bytes = vec![0; self.geo.block_len()];
        mmp.encode_into(&mut bytes, self.checksums.get().unwrap_or(&self.geo));
        self.dev.write_fua(&bytes, at)?;
        Ok(())
    }
}

/// Seconds since 1970.
pub(super) fn wall() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A name from the block, fit for a line.
pub(super) fn name(bytes: &[u8]) -> String {
    let text = bytes
        .iter()
        .take_while(|b| **b != 0)
        .map(|b| if b.is_ascii_graphic() { *b as char } else { '?' });
    let text: String = text.collect();
    if text.is_empty() { "unknown".into() } else { text }
}

pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl From<ClaimError> for OpenError {
    fn from(e: ClaimError) -> Self {
        match e {
            ClaimError::Lost(why) | ClaimError::Device(why) => Self::new(why),
        }
    }
}

/// The claim of this mount.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) place: Place,
    time: Arc<dyn Time>,
    /// How old it may become, in nanoseconds.
    limit: u64,
    /// How long to watch for another host's change.
    pub(super) wait: Duration,
    fresh_until: AtomicU64,
    /// What this mount wrote last.
    pub(super) written: Mutex<Mmp>,
    /// The volume is being given back: no wait is worth anything.
    pub(super) closing: AtomicBool,
}

impl Claim {
    /// A claim just written, to be watched for `wait` where it is in doubt, and good for `limit`.
    pub(super) fn new(
        place: Place,
        time: &Arc<dyn Time>,
        written: Mmp,
        (wait, limit): (Duration, Duration),
    ) -> Self {
        let now = time.now_ns();
        Self {
            place,
            time: Arc::clone(time),
            limit: nanos(limit),
            wait,
            fresh_until: AtomicU64::new(now),
            written: Mutex::new(written),
            closing: AtomicBool::new(false),
        }
    }

    /// Makes sure that the claim is held, and not too old. Returns the time until when that holds.
    pub fn freshen(&self) -> Result<u64, ClaimError> {
        let until = self.fresh_until.load(Ordering::Acquire);
        if self.time.now_ns() < until {
            return Ok(until);
        }
        let mut written = self.written.lock();
        let until = self.fresh_until.load(Ordering::Acquire);
        if self.time.now_ns() < until { Ok(until) } else { self.renew(&mut written) }
    }

    /// Writes the claim into another block too, durably: the superblock is about to name that one.
    pub fn copy_to(&self, block: BlockNr) -> OpenResult<()> {
        let written = self.written.lock();
        self.place.write_at(&written, block.offset(self.place.geo.block_size))
    }

    /// The superblock names the copy, durably: from now on the claim is there.
    pub fn use_copy(&self, block: BlockNr) -> OpenResult<()> {
        let written = self.written.lock();
        // (It may have been renewed meanwhile, in the old block.)
        self.place.write_at(&written, block.offset(self.place.geo.block_size))?;
        self.place.block.store(block.0, Ordering::Release);
        Ok(())
    }

    /// Writes the block with the checksums of `new` from now on, and at once. (A volume without the
    /// feature does not look at them.)
    pub fn add_checksums(&self, new: &Geometry) -> OpenResult<()> {
        let written = self.written.lock();
        // (Once is enough: a volume gets the feature once while it is open.)
        let _ = self.place.checksums.set(new.clone());
        self.place.write(&written)
    }

    fn is_fresh(&self) -> bool {
        self.time.now_ns() < self.fresh_until.load(Ordering::Acquire)
    }

    pub(super) fn renew(&self, written: &mut Mmp) -> Result<u64, ClaimError> {
        let mut began = self.time.now_ns();
        if !self.is_fresh() {
            self.check(written)?;
        }
        let mut next = written.clone();
        next.seq = if next.seq >= SEQ_MAX { 1 } else { next.seq + 1 };
        next.time = wall();
        self.place.write(&next).map_err(|e| ClaimError::Device(e.line()))?;
        *written = next;
        while self.time.now_ns().saturating_sub(began) >= self.limit {
            // This thread was stopped, or the device took so long: these bytes may lie over the
            // claim of another host.
            self.wait_for_others()?;
            began = self.time.now_ns();
            self.check(written)?;
        }
        let until = began.saturating_add(self.limit);
        self.fresh_until.store(until, Ordering::Release);
        Ok(until)
    }

    /// Lets as much time pass as another host needs to show itself.
    fn wait_for_others(&self) -> Result<(), ClaimError> {
        let end = self.time.now_ns().saturating_add(nanos(self.wait));
        while self.time.now_ns() < end {
            if self.closing.load(Ordering::Acquire) {
                return Err(ClaimError::Device(
                    "the volume was closed while its claim was in doubt (MMP)".into(),
                ));
            }
            self.time.sleep(POLL);
        }
        Ok(())
    }

    /// Err unless the block holds what this mount wrote last.
    pub(super) fn check(&self, written: &Mmp) -> Result<(), ClaimError> {
        let now = self.place.read().map_err(|e| ClaimError::Device(e.line()))?;
        if now.seq == written.seq
            && now.nodename == written.nodename
            && now.bdevname == written.bdevname
        {
            return Ok(());
        }
        Err(ClaimError::Lost(format!(
            "the volume was claimed by another host while this one stood still (MMP: {}, {}): \
             nothing more is written here; unmount it",
            name(&now.nodename),
            name(&now.bdevname)
        )))
    }
}
