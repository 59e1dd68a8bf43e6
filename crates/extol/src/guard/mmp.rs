//! Multi-mount protection: a block that the system with the volume keeps changing.
//!
//! ```text
//!   look:    read seq ─ clean ───────────────────────────► may be claimed
//!                     └ not clean: wait; did it change? ─► in use: refused
//!   take:    write a random seq ─ wait ─ still ours? ────► claimed
//!   renew:   seq + 1, every update interval, and by a writer that finds the claim too old
//!   release: write "clean", if the block is still ours
//! ```
//!
//! Nothing is written before `take`, so that all that can refuse a mount comes in between.
//!
//! A host that wants the volume waits for more than twice the check interval, and sees whether the
//! block changes. So a claim that was renewed less than one check interval ago cannot have been
//! taken by another ([`Claim::freshen`] is asked before each write to the device, see `guard`). An
//! older one may: it is read first, and compared by sequence and host.
//!
//! A host that reads its own claim, and is stopped before its write, might write over the claim of
//! another, and find its own words afterwards. So the time from before the read to after the write
//! counts: if it is longer than the limit, the claim is not believed until a whole wait has shown
//! that no other host changes the block (`renew`).
//!
//! Bounds. mke2fs and tune2fs accept intervals of up to 300 s; nothing longer is waited for. A
//! volume that was not left cleanly and has a longer one is refused at once: an owner could not be
//! told from none. Every wait says how long it takes, and ends when the mount is told to end
//! ([`crate::options::Waiting`]).
//!
//! Invariants
//! - MP1: `fresh_until` is the limit after a moment that lies before the read or write that proved
//!   the claim.
//! - MP2: "clean" is written only over a block that is ours (`HeldClaim::release`).
//! - MP3: one thread at a time changes the block (`Claim::written`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extol_block::{BlockNr, SharedDevice};
use extol_ondisk::mmp::{Mmp, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX};
use extol_ondisk::{Geometry, Incompat, Superblock};
use extol_task::{Progress, Runner, Service, Wakeup};
use parking_lot::Mutex;
use rand::Rng;

use super::Guard;
use crate::mount::{OpenError, OpenResult, refuse};
use crate::options::Waiting;

/// Shortest interval between checks, in seconds.
const MIN_CHECK: u64 = 5;
/// Longest interval that mke2fs and tune2fs accept, in seconds.
const MAX_CHECK: u64 = 300;
/// How soon a wait notices that it is to end.
const GLANCE: Duration = Duration::from_millis(100);

/// Time as it is for another host: it goes on while this machine is suspended.
pub(crate) trait Time: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since some fixed point.
    fn now_ns(&self) -> u64;
    fn sleep(&self, how_long: Duration);
}

/// The machine's.
#[derive(Debug)]
pub(crate) struct BootTime;

impl Time for BootTime {
    fn now_ns(&self) -> u64 {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let sec = u64::try_from(t.tv_sec).unwrap_or(0);
        sec.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
    }

    fn sleep(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }
}

/// Why a claim is not held.
#[derive(Clone, Debug)]
pub(crate) enum ClaimError {
    /// Another host has it.
    Lost(String),
    /// The block cannot be read or written.
    Device(String),
}

#[derive(Clone, Debug)]
struct Place {
    dev: SharedDevice,
    geo: Geometry,
    block: BlockNr,
}

impl Place {
    fn read(&self) -> OpenResult<Mmp> {
        let mut bytes = vec![0; self.geo.block_len()];
        self.dev.read_at(&mut bytes, self.block.offset(self.geo.block_size))?;
        Mmp::decode(&bytes, &self.geo)
            .map_err(|e| OpenError(format!("corrupt MMP block: {e}; run e2fsck")))
    }

    fn write(&self, mmp: &Mmp) -> OpenResult<()> {
        let mut bytes = vec![0; self.geo.block_len()];
        mmp.encode_into(&mut bytes, &self.geo);
        self.dev.write_fua(&bytes, self.block.offset(self.geo.block_size))?;
        Ok(())
    }
}

fn wall() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A name from the block, fit for a line.
fn name(bytes: &[u8]) -> String {
    let text = bytes
        .iter()
        .take_while(|b| **b != 0)
        .map(|b| if b.is_ascii_graphic() { *b as char } else { '?' });
    let text: String = text.collect();
    if text.is_empty() { "unknown".into() } else { text }
}

fn put_name<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text) {
        *to = *from;
    }
    field
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// What was seen of a volume's block before anything was written.
#[derive(Debug)]
pub(crate) struct Seen {
    place: Place,
    mmp: Mmp,
    interval: u64,
    check: u64,
    was_clean: bool,
}

impl Seen {
    fn new(dev: &SharedDevice, geo: &Geometry, sb: &Superblock) -> OpenResult<Option<Self>> {
        if !sb.feature_incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let block = BlockNr(sb.mmp_block);
        if block.0 <= u64::from(sb.first_data_block) || !geo.is_valid_block(block) {
            return refuse("corrupt superblock: impossible MMP block; run e2fsck");
        }
        let place = Place { dev: Arc::clone(dev), geo: geo.clone(), block };
        let mmp = place.read()?;
        if mmp.seq == SEQ_FSCK {
            return refuse(
                "the volume is being checked by e2fsck, maybe on another host (MMP); if it is not: \
                 tune2fs -f -E clear_mmp",
            );
        }
        if mmp.seq > SEQ_MAX && mmp.seq != SEQ_CLEAN {
            return refuse("corrupt MMP block: unknown sequence number; run e2fsck");
        }
        let interval = u64::from(sb.mmp_update_interval).max(1);
        let check = u64::from(mmp.check_interval).max(interval).max(MIN_CHECK);
        let was_clean = mmp.seq == SEQ_CLEAN;
        if !was_clean && check > MAX_CHECK {
            return refuse(format!(
                "the volume may be in use on another host (MMP), and its interval of {check} s is impossible (at \
                 most {MAX_CHECK}); if no host has it: tune2fs -f -E clear_mmp"
            ));
        }
        let (interval, check) = (interval.min(MAX_CHECK), check.min(MAX_CHECK));
        Ok(Some(Self { place, mmp, interval, check, was_clean }))
    }

    /// Looks without a wait: what would refuse a claim at once.
    pub fn glance(dev: &SharedDevice, geo: &Geometry, sb: &Superblock) -> OpenResult<()> {
        Self::new(dev, geo, sb).map(|_| ())
    }

    /// Looks whether another host has the volume, if it has the feature. Takes some seconds if it
    /// was not left cleanly. Writes nothing.
    pub fn look(
        dev: &SharedDevice,
        geo: &Geometry,
        sb: &Superblock,
        waiting: Option<&Arc<dyn Waiting>>,
    ) -> OpenResult<Option<Self>> {
        let Some(seen) = Self::new(dev, geo, sb)? else { return Ok(None) };
        if !seen.was_clean {
            seen.wait(seen.long_wait(), "whether another host has the volume", waiting)?;
            let again = seen.place.read()?;
            if again.seq != seen.mmp.seq {
                return refuse(format!(
                    "the volume is in use on another host (MMP: {}, {})",
                    name(&again.nodename),
                    name(&again.bdevname)
                ));
            }
        }
        Ok(Some(seen))
    }

    /// How long a claim is watched, as Linux and e2fsck do it.
    fn long_wait(&self) -> u64 {
        (2 * self.check + 1).min(self.check + 60)
    }

    fn wait(&self, seconds: u64, what: &str, waiting: Option<&Arc<dyn Waiting>>) -> OpenResult<()> {
        if let Some(waiting) = waiting {
            waiting.waits(&format!("waiting {seconds} s to see {what} (MMP)"));
        }
        let end = std::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            if waiting.is_some_and(|waiting| waiting.is_interrupted()) {
                return refuse("interrupted while it waited for multi-mount protection (MMP)");
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(GLANCE));
        }
    }

    /// Claims the volume.
    pub fn take(
        self,
        guard: &Arc<Guard>,
        waiting: Option<&Arc<dyn Waiting>>,
    ) -> OpenResult<HeldClaim> {
        let mut mmp = self.mmp.clone();
        mmp.seq = rand::rng().random_range(1..=SEQ_MAX);
        mmp.time = wall();
        mmp.check_interval = u16::try_from(self.check).unwrap_or(u16::MAX);
        mmp.nodename = put_name(rustix::system::uname().nodename().to_bytes());
        mmp.bdevname = put_name(b"extol");
        self.place.write(&mmp)?;
        // (No other host can have begun long ago to claim a volume that was clean.)
        let wait =
            if self.was_clean { self.long_wait().min(2 * MIN_CHECK + 1) } else { self.long_wait() };
        let outcome = match self.interval > 1 {
            true => {
                self.wait(wait, "whether another host claims the volume at the same time", waiting)
            }
            false => Ok(()),
        };
        let now = guard.time().now_ns();
        if self.place.read()?.seq != mmp.seq {
            return refuse("the volume was claimed by another host at the same time (MMP)");
        }
        let claim = Claim {
            wait: Duration::from_secs(self.long_wait()),
            limit: nanos(Duration::from_secs(self.check)),
            place: self.place,
            time: Arc::clone(guard.time()),
            fresh_until: AtomicU64::new(now),
            written: Mutex::new(mmp),
            closing: AtomicBool::new(false),
        };
        let mut keeper = HeldClaim {
            claim: Arc::new(claim),
            guard: Arc::clone(guard),
            runner: None,
            paused: Arc::new(Mutex::new(false)),
        };
        // What other hosts see must be new when the mount begins.
        let outcome =
            outcome.and_then(|()| keeper.claim.freshen().map(|_| ()).map_err(OpenError::from));
        let outcome = outcome.and_then(|()| keeper.start(Duration::from_secs(self.interval)));
        if let Err(e) = outcome {
            keeper.release();
            return Err(e);
        }
        guard.set_claim(Some(Arc::clone(&keeper.claim)));
        Ok(keeper)
    }
}

impl From<ClaimError> for OpenError {
    fn from(e: ClaimError) -> Self {
        match e {
            ClaimError::Lost(why) | ClaimError::Device(why) => Self(why),
        }
    }
}

/// A volume that is ours.
#[derive(Debug)]
pub(crate) struct Claim {
    place: Place,
    time: Arc<dyn Time>,
    /// How old it may become, in nanoseconds.
    limit: u64,
    /// How long to watch for another host's change.
    wait: Duration,
    fresh_until: AtomicU64,
    /// What we wrote last.
    written: Mutex<Mmp>,
    /// The volume is being given back: no wait is worth anything.
    closing: AtomicBool,
}

impl Claim {
    /// Makes sure that the claim is held, and not too old. Gives the time until when that is so.
    pub fn freshen(&self) -> Result<u64, ClaimError> {
        let until = self.fresh_until.load(Ordering::Acquire);
        if self.time.now_ns() < until {
            return Ok(until);
        }
        let mut written = self.written.lock();
        let until = self.fresh_until.load(Ordering::Acquire);
        if self.time.now_ns() < until { Ok(until) } else { self.renew(&mut written) }
    }

    fn is_fresh(&self) -> bool {
        self.time.now_ns() < self.fresh_until.load(Ordering::Acquire)
    }

    fn renew(&self, written: &mut Mmp) -> Result<u64, ClaimError> {
        let mut began = self.time.now_ns();
        if !self.is_fresh() {
            self.check(written)?;
        }
        let mut next = written.clone();
        next.seq = if next.seq >= SEQ_MAX { 1 } else { next.seq + 1 };
        next.time = wall();
        self.place.write(&next).map_err(|e| ClaimError::Device(e.0))?;
        *written = next;
        while self.time.now_ns().saturating_sub(began) >= self.limit {
            // This thread was stopped, or the device took so long: our words may lie over the claim
            // of another.
            self.watch_out()?;
            began = self.time.now_ns();
            self.check(written)?;
        }
        let until = began.saturating_add(self.limit);
        self.fresh_until.store(until, Ordering::Release);
        Ok(until)
    }

    /// Lets as much time pass as another host needs to show itself.
    fn watch_out(&self) -> Result<(), ClaimError> {
        let end = self.time.now_ns().saturating_add(nanos(self.wait));
        while self.time.now_ns() < end {
            if self.closing.load(Ordering::Acquire) {
                return Err(ClaimError::Device(
                    "the volume was closed while its claim was in doubt (MMP)".into(),
                ));
            }
            self.time.sleep(GLANCE);
        }
        Ok(())
    }

    /// Is the block as we left it?
    fn check(&self, written: &Mmp) -> Result<(), ClaimError> {
        let now = self.place.read().map_err(|e| ClaimError::Device(e.0))?;
        if now.seq == written.seq
            && now.nodename == written.nodename
            && now.bdevname == written.bdevname
        {
            return Ok(());
        }
        Err(ClaimError::Lost(format!(
            "the volume was claimed by another host while this one stood still (MMP: {}, {}): nothing more is \
             written here; unmount it",
            name(&now.nodename),
            name(&now.bdevname)
        )))
    }
}

/// Keeps the claim on a volume.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    claim: Arc<Claim>,
    guard: Arc<Guard>,
    runner: Option<Runner>,
    paused: Arc<Mutex<bool>>,
}

impl HeldClaim {
    fn start(&mut self, interval: Duration) -> OpenResult<()> {
        let service = Update {
            claim: Arc::clone(&self.claim),
            guard: Arc::clone(&self.guard),
            interval,
            paused: Arc::clone(&self.paused),
        };
        let runner = Runner::start("extol-mmp", &Wakeup::new(), service)
            .map_err(|e| OpenError(format!("cannot start a thread: {e}")))?;
        self.runner = Some(runner);
        Ok(())
    }

    /// While this holds true the claim is not renewed by time, as in Linux while a volume is
    /// frozen. Locked during each renewal.
    pub fn paused(&self) -> Arc<Mutex<bool>> {
        Arc::clone(&self.paused)
    }

    /// Gives the volume back, if it is still ours.
    pub fn release(mut self) {
        self.claim.closing.store(true, Ordering::Release);
        self.runner.take();
        self.guard.set_claim(None);
        let mut mmp = self.claim.written.lock();
        if self.guard.lost().is_none() && self.claim.check(&mmp).is_ok() {
            mmp.seq = SEQ_CLEAN;
            mmp.time = wall();
            let _ = self.claim.place.write(&mmp);
        }
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        self.claim.closing.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct Update {
    claim: Arc<Claim>,
    guard: Arc<Guard>,
    interval: Duration,
    paused: Arc<Mutex<bool>>,
}

impl Service for Update {
    fn step(&mut self) -> Progress {
        let paused = self.paused.lock();
        if !*paused && self.guard.lost().is_none() {
            let mut written = self.claim.written.lock();
            // A failed write latches in the device; the volume stops by itself then.
            if let Err(ClaimError::Lost(why)) = self.claim.renew(&mut written) {
                self.guard.lose(why);
            }
        }
        Progress::Idle(Some(self.interval))
    }
}

#[cfg(test)]
mod tests;
