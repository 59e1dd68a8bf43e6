//! Multi-mount protection: a block that the host with the volume keeps changing.
//!
//! ```text
//!   observe: read seq ─ clean ───────────────────────────► may be claimed
//!                     └ not clean: wait; did it change? ─► in use: refused
//!   take:    write a random seq ─ wait ─ unchanged? ─────► claimed
//!   renew:   seq + 1, every update interval, and by a writer that finds the claim too old
//!   release: write "clean", if the block is still as this mount wrote it
//!   hand over: nothing is written; the next opening renews the claim, if the block still shows it
//! ```
//!
//! Nothing is written before `take`, so that all that can refuse a mount comes in between. What
//! holds while the volume is claimed: `claim.rs`.
//!
//! Bounds. mke2fs and tune2fs accept intervals of up to 300 s; nothing longer is waited for. A
//! volume that was not left cleanly and has a longer one is refused at once: an owner could not be
//! told from none. Every wait says how long it takes, and ends when the mount is told to end
//! ([`crate::options::Waiting`]).
//!
//! Invariant
//! - MM-3: "clean" is written only over a block that this mount wrote last (`HeldClaim::release`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use extol_block::{BlockNr, SharedDevice};
use extol_ondisk::mmp::{Mmp, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX};
use extol_ondisk::{Geometry, Incompat, Superblock};
use extol_sync::plain::Mutex;
use extol_task::{Progress, Runner, Service, Wakeup};

use super::Guard;
use super::claim::{Claim, ClaimError, POLL, Place, name, wall};
use crate::error::{OpenError, OpenResult, refuse};
use crate::options::Waiting;
use crate::sys;

/// Shortest interval between checks, in seconds.
const MIN_CHECK: u64 = 5;
/// Longest interval that mke2fs and tune2fs accept, in seconds.
const MAX_CHECK: u64 = 300;

fn name_field<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text) {
        *to = *from;
    }
    field
}

/// What a volume's block says before anything is written.
#[derive(Debug)]
pub(crate) struct Observed {
    place: Place,
    mmp: Mmp,
    interval: u64,
    check: u64,
    was_clean: bool,
}

impl Observed {
    /// Looks at the block once.
    pub fn look(dev: &SharedDevice, geo: &Geometry, sb: &Superblock) -> OpenResult<Option<Self>> {
        if !sb.feature_incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let block = BlockNr(sb.mmp_block);
        if block.0 <= u64::from(sb.first_data_block) || !geo.is_valid_block(block) {
            return refuse("corrupt superblock: impossible MMP block; run e2fsck");
        }
        let place = Place::new(Arc::clone(dev), geo.clone(), block);
        let mmp = place.read()?;
        if mmp.seq == SEQ_FSCK {
            return refuse(
                "the volume is being checked by e2fsck, maybe on another host (MMP); if it is not: \
                 extol tune -f -E clear_mmp",
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
                "the volume may be in use on another host (MMP), and its interval of {check} s is \
                 impossible (at most {MAX_CHECK}); if no host has it: extol tune -f -E clear_mmp"
            ));
        }
        let (interval, check) = (interval.min(MAX_CHECK), check.min(MAX_CHECK));
        Ok(Some(Self { place, mmp, interval, check, was_clean }))
    }

    /// Without a wait: what refuses a claim at once.
    pub fn check_now(dev: &SharedDevice, geo: &Geometry, sb: &Superblock) -> OpenResult<()> {
        Self::look(dev, geo, sb).map(|_| ())
    }

    /// Finds out whether another host has the volume, if it has the feature. Takes some seconds if
    /// it was not left cleanly. Writes nothing.
    pub fn observe(
        dev: &SharedDevice,
        geo: &Geometry,
        sb: &Superblock,
        waiting: Option<&Arc<dyn Waiting>>,
    ) -> OpenResult<Option<Self>> {
        let Some(seen) = Self::look(dev, geo, sb)? else { return Ok(None) };
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

    /// How long a claim is watched, as in Linux and e2fsck.
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
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Claims the volume.
    pub fn take(
        self,
        guard: &Arc<Guard>,
        waiting: Option<&Arc<dyn Waiting>>,
    ) -> OpenResult<HeldClaim> {
        let mut mmp = self.mmp.clone();
        mmp.seq = extol_proc::random_number() as u32 % SEQ_MAX + 1;
        mmp.time = wall();
        mmp.check_interval = u16::try_from(self.check).unwrap_or(u16::MAX);
        mmp.nodename = name_field(&sys::node_name());
        mmp.bdevname = name_field(b"extol");
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
        if self.place.read()?.seq != mmp.seq {
            return refuse("the volume was claimed by another host at the same time (MMP)");
        }
        self.hold(guard, mmp, outcome)
    }

    /// Goes on with the claim of a mount of this process that has just ended. It is as any claim
    /// that was not renewed for a while: the block still shows it, or another host has it.
    pub fn take_over(self, guard: &Arc<Guard>, from: &HandedOver) -> OpenResult<HeldClaim> {
        self.hold(guard, from.0.clone(), Ok(()))
    }

    /// Keeps a claim that was written.
    fn hold(self, guard: &Arc<Guard>, mmp: Mmp, outcome: OpenResult<()>) -> OpenResult<HeldClaim> {
        let times = (Duration::from_secs(self.long_wait()), Duration::from_secs(self.check));
        let claim = Claim::new(self.place, guard.time(), mmp, times);
        let mut held = HeldClaim {
            claim: Arc::new(claim),
            guard: Arc::clone(guard),
            runner: None,
            paused: Arc::new(Mutex::new(false)),
        };
        // What other hosts see must be new when the mount begins.
        let outcome =
            outcome.and_then(|()| held.claim.freshen().map(|_| ()).map_err(OpenError::from));
        let outcome = outcome.and_then(|()| held.start(Duration::from_secs(self.interval)));
        if let Err(e) = outcome {
            held.release();
            return Err(e);
        }
        guard.set_claim(Some(Arc::clone(&held.claim)));
        Ok(held)
    }
}

/// A claim between two openings of a volume: what the block says.
#[derive(Debug)]
pub(crate) struct HandedOver(Mmp);

/// The claim on a volume, renewed by a thread.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    claim: Arc<Claim>,
    guard: Arc<Guard>,
    runner: Option<Runner>,
    paused: Arc<Mutex<bool>>,
}

impl HeldClaim {
    fn start(&mut self, interval: Duration) -> OpenResult<()> {
        let service = Renewal {
            claim: Arc::clone(&self.claim),
            guard: Arc::clone(&self.guard),
            interval,
            paused: Arc::clone(&self.paused),
        };
        let runner = Runner::start("extol-mmp", &Wakeup::new(), service)
            .map_err(|e| OpenError::new(format!("cannot start a thread: {e}")))?;
        self.runner = Some(runner);
        Ok(())
    }

    /// While this is true the thread does not renew the claim, as in Linux while a volume is
    /// frozen. Locked during each renewal.
    pub fn paused(&self) -> Arc<Mutex<bool>> {
        Arc::clone(&self.paused)
    }

    /// Ends the renewal, and leaves the claim in the block, for an opening that follows at once.
    pub fn hand_over(mut self) -> HandedOver {
        self.claim.closing.store(true, Ordering::Release);
        self.runner.take();
        self.guard.set_claim(None);
        HandedOver(self.claim.written.lock().clone())
    }

    /// Gives the volume back, if no other host has it.
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

impl HeldClaim {
    /// Ends it without a write: the superblock names the block no more.
    pub fn forget(mut self) {
        self.claim.closing.store(true, Ordering::Release);
        self.runner.take();
        self.guard.set_claim(None);
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        self.claim.closing.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct Renewal {
    claim: Arc<Claim>,
    guard: Arc<Guard>,
    interval: Duration,
    paused: Arc<Mutex<bool>>,
}

impl Service for Renewal {
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
