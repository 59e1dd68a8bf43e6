//! Opening and closing a volume.
//!
//! ```text
//!   superblock ─► features ─► dry run ─► claim (MMP) ─► journal found ─► recovery
//!       ─► superblock again ─► "needs recovery" durable ─► journal and allocator open
//!       ─► orphans finished ─► threads
//!   ...
//!   write back all ─► counters ─► log empty (durable) ─► "clean" (durable)
//! ```
//!
//! Invariants
//! - MT-1: "needs recovery" is durable before the first log write (`mark_mounted`), and cleared
//!   only after the log is marked empty (`close`).
//! - MT-2: a mount that is refused has written nothing: before the first write all of this runs
//!   once over a copy in memory (`dry_run.rs`). What comes after that and can fail is the device,
//!   and what the system does not give (threads).

mod assemble;
pub(crate) mod close;
pub(crate) mod dry_run;
pub(crate) mod fast_commit;
pub(crate) mod features;
pub(crate) mod fence;
pub(crate) mod journal;
pub(crate) mod mark;
pub(crate) mod orphans;
mod replay;
mod replayed;
pub(crate) mod threads;

use std::sync::Arc;

use extol_block::{FailLatch, SharedDevice};
use extol_ondisk::{Geometry, Incompat, Superblock};

use crate::error::{OpenError, OpenResult, refuse};
use crate::find_journal;
use crate::guard::mmp::{HandedOver, HeldClaim, Observed};
use crate::guard::{Guard, GuardedDevice, Part};
use crate::options::MountOptions;
use crate::superblock::{geometry, read_superblock};
use assemble::{Opened, open_on};
use fence::Fence;

pub(crate) use mark::Purpose;
pub use replayed::Replayed;

/// Opens a volume.
pub(crate) fn open(
    purpose: Purpose,
    dev: SharedDevice,
    options: &MountOptions,
) -> OpenResult<Opened> {
    open_claimed(purpose, dev, options, None)
}

/// As that, with the claim of a mount that has just ended.
pub(crate) fn open_claimed(
    purpose: Purpose,
    dev: SharedDevice,
    options: &MountOptions,
    claimed: Option<&HandedOver>,
) -> OpenResult<Opened> {
    options.check().map_err(OpenError::new)?;
    let unlocked = !dev.is_locked();
    let fence = Arc::new(Fence::new(dev));
    let dev: SharedDevice = Arc::new(FailLatch::new(Arc::clone(&fence) as SharedDevice));
    // A recovery must see what is on the medium, and so must the dry run before it.
    if let Ok(sb) = read_superblock(&*dev, options.access.superblock) {
        find_journal::refuse_unused(&sb, options)?;
        if needs_recovery(&sb) {
            dev.drop_page_cache();
        }
    }
    let time = crate::guard::claim::time(options.background.clock.clone());
    let guard = Arc::new(Guard::new(Arc::clone(&dev), time));
    let guarded: SharedDevice =
        Arc::new(GuardedDevice::new(Arc::clone(&dev), Arc::clone(&guard), Part::Volume));
    if options.access.read_only {
        // The guard is off until the volume becomes writable.
        let mut opened = open_on(&guarded, options, purpose, Some(&guard), unlocked)?;
        opened.1.fence = Some(fence);
        return Ok(opened);
    }
    let sb = read_superblock(&*dev, options.access.superblock)?;
    let geo = geometry(&*dev, &sb)?;
    features::check(&sb, &geo, false)?;
    if dev.is_read_only() {
        return refuse("the device is write-protected; mount with -o ro");
    }
    let options = &find_journal::with_device(&sb, options)?;
    let held = claim(&guard, &geo, &sb, options, claimed)?;
    match open_on(&guarded, options, purpose, Some(&guard), unlocked) {
        Ok((fs, mut threads, replayed)) => {
            fs.maintenance.set_mmp(held.as_ref().map(HeldClaim::paused));
            threads.mmp = held;
            threads.fence = Some(fence);
            Ok((fs, threads, replayed))
        }
        Err(e) => {
            if let Some(held) = held {
                held.release();
            }
            Err(e)
        }
    }
}

fn needs_recovery(sb: &Superblock) -> bool {
    sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY)
}

/// Makes sure that nothing refuses the mount, and claims the volume where it has multi-mount
/// protection. A refusal has written nothing.
pub(crate) fn claim(
    guard: &Arc<Guard>,
    geo: &Geometry,
    sb: &Superblock,
    options: &MountOptions,
    claimed: Option<&HandedOver>,
) -> OpenResult<Option<HeldClaim>> {
    let waiting = options.access.waiting.as_ref();
    let observed = match claimed {
        _ if options.access.nommp => None,
        Some(_) => Observed::look(guard.below(), geo, sb)?,
        None => Observed::observe(guard.below(), geo, sb, waiting)?,
    };
    dry_run::run(guard.below(), geo, options)?;
    let take = |observed: Observed| match claimed {
        Some(claimed) => observed.take_over(guard, claimed),
        None => observed.take(guard, waiting),
    };
    observed.map(take).transpose()
}
