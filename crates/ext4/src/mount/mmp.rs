//! Multi-mount protection: a block that whoever has the volume keeps changing.
//!
//! ```text
//!   claim:   read seq ─ clean ─► write ours ─ wait ─► still ours? ─► keep changing it
//!                      └ not clean: wait; did it change? then somebody has the volume
//!   release: write "clean"
//! ```

use std::sync::Arc;
use std::time::Duration;

use extol_device::{BlockNr, SharedDevice};
use extol_ondisk::{Geometry, Incompat, Superblock, mmp::Mmp};
use extol_service::{Progress, Runner, Service, Wakeup};
use parking_lot::Mutex;
use rand::Rng;

use super::{OpenError, OpenResult, refuse};

/// Nobody has the volume.
const CLEAN: u32 = 0xFF4D_4D50;
/// e2fsck has it.
const FSCK: u32 = 0xE24D_4D50;
/// Largest number that an owner uses.
const MAX_SEQ: u32 = 0xE24D_4D4F;
/// Shortest interval between checks, in seconds.
const MIN_CHECK: u64 = 5;

/// Keeps the claim on a volume.
#[derive(Debug)]
pub(crate) struct Keeper {
    place: Place,
    runner: Option<Runner>,
    paused: Arc<Mutex<bool>>,
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
        Mmp::decode(&bytes, &self.geo).map_err(|e| OpenError(format!("corrupt MMP block: {e}; run e2fsck")))
    }

    fn write(&self, mmp: &Mmp) -> OpenResult<()> {
        let mut bytes = vec![0; self.geo.block_len()];
        mmp.encode_into(&mut bytes, &self.geo);
        self.dev.write_fua(&bytes, self.block.offset(self.geo.block_size))?;
        Ok(())
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Keeper {
    /// Claims the volume, if it has the feature. Takes some seconds if it was not left cleanly.
    pub fn claim(dev: &SharedDevice, geo: &Geometry, sb: &Superblock) -> OpenResult<Option<Self>> {
        if !sb.feature_incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let block = BlockNr(sb.mmp_block);
        if block.0 == 0 || !geo.is_valid_block(block) {
            return refuse("corrupt superblock: impossible MMP block");
        }
        let place = Place { dev: Arc::clone(dev), geo: geo.clone(), block };
        let mut mmp = place.read()?;
        if mmp.seq == FSCK {
            return refuse("the volume is being checked by e2fsck on another host (MMP)");
        }
        let interval = u64::from(sb.mmp_update_interval.max(1));
        let check = u64::from(mmp.check_interval).max(interval).clamp(MIN_CHECK, 300);
        if mmp.seq != CLEAN {
            std::thread::sleep(Duration::from_secs((2 * check + 1).min(check + 60)));
            let again = place.read()?;
            if again.seq != mmp.seq {
                return refuse("the volume is in use on another host (MMP)");
            }
        }
        let seq = rand::rng().random_range(1..=MAX_SEQ);
        mmp.seq = seq;
        mmp.time = now();
        place.write(&mmp)?;
        if interval > 1 {
            std::thread::sleep(Duration::from_secs((2 * check + 1).min(check + 60)));
        }
        if place.read()?.seq != seq {
            return refuse("the volume was claimed by another host at the same time (MMP)");
        }
        let paused = Arc::new(Mutex::new(false));
        let service = Update {
            place: place.clone(),
            mmp,
            interval: Duration::from_secs(interval),
            paused: Arc::clone(&paused),
        };
        let runner = Runner::start("extol-mmp", &Wakeup::new(), service)
            .map_err(|e| OpenError(format!("cannot start a thread: {e}")))?;
        Ok(Some(Self { place, runner: Some(runner), paused }))
    }

    /// While this holds true the claim is not renewed, as in Linux while a volume is frozen. Locked during each renewal.
    pub fn paused(&self) -> Arc<Mutex<bool>> {
        Arc::clone(&self.paused)
    }

    /// Gives the volume back.
    pub fn release(mut self) {
        self.runner.take();
        if let Ok(mut mmp) = self.place.read() {
            mmp.seq = CLEAN;
            mmp.time = now();
            let _ = self.place.write(&mmp);
        }
    }
}

#[derive(Debug)]
struct Update {
    place: Place,
    mmp: Mmp,
    interval: Duration,
    paused: Arc<Mutex<bool>>,
}

impl Service for Update {
    fn step(&mut self) -> Progress {
        let paused = self.paused.lock();
        if *paused {
            return Progress::Idle(Some(self.interval));
        }
        self.mmp.seq = if self.mmp.seq >= MAX_SEQ { 1 } else { self.mmp.seq + 1 };
        self.mmp.time = now();
        // A failed write latches in the device; the volume stops by itself then.
        let _ = self.place.write(&self.mmp);
        Progress::Idle(Some(self.interval))
    }
}
