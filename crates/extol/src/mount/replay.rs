//! Fast commits on top of a recovered log: replayed by a small file system of their own, before the
//! mount begins.
//!
//! ```text
//!   on the device:  journal (live, empty but for transaction T) ─ replay ─ commit T ─ area void
//!                     ─ all home, log empty
//!   in memory:      no journal, over a scratch device ─ replay ─ into the overlay
//! ```
//!
//! The mount, and every reader after it, sees a volume whose log is empty. If the records make no
//! sense nothing of them is written, and they stay where they are.

use std::sync::Arc;
use std::time::Duration;

use extol_block::SharedDevice;
use extol_jbd2::format::JournalSuperblock;
use extol_jbd2::recovery::{self, FastLog, Overlay};
use extol_jbd2::{Journal, JournalConfig, LogConfig};
use extol_task::SystemClock;

use super::features;
use crate::alloc::{AllocOptions, Allocator, SuperCell};
use crate::error::{OpenError, OpenResult};
use crate::fast_commit::replay::{self, Source};
use crate::find_journal::Found;
use crate::quota::Quotas;
use crate::superblock::{geometry, internal_inodes, read_superblock};
use crate::volume::Volume;

/// Metadata in memory, beside what the transaction holds.
const CACHE_BYTES: usize = 16 << 20;

fn refused(e: impl std::fmt::Display) -> OpenError {
    OpenError::new(format!("the fast commits in the journal cannot be replayed: {e}; run e2fsck"))
}

/// Replays on the device. The log is home, and `jsb` its superblock; afterwards it is that of an
/// empty log.
pub(super) fn replay_home(
    dev: &SharedDevice,
    found: &Found,
    jsb: &mut JournalSuperblock,
    fast: FastLog,
) -> OpenResult<()> {
    let sb = read_superblock(&**dev, None)?;
    features::check(&sb, &geometry(&**dev, &sb)?, false).map_err(refused)?;
    let log = LogConfig {
        device: Arc::clone(&found.device),
        external: found.external,
        map: found.map.clone(),
        superblock: jsb.clone(),
        next_tid: fast.tid,
    };
    let journal = replay(dev, found, jsb, fast, Some(log))?;
    let committed = journal.commit_all().map_err(OpenError::from).and_then(|()| {
        // Not before: until the commit only the records hold what was acknowledged.
        recovery::clear_fast_commits(&*found.device, &found.map, jsb)?;
        journal.freeze().map_err(OpenError::from)
    });
    journal.shut_down("the fast commits were replayed");
    committed?;
    *jsb = recovery::read_superblock(&*found.device, &found.map)?;
    Ok(())
}

/// Replays in memory: what the volume will be, in blocks over the device.
pub(super) fn replay_in_memory(
    dev: &SharedDevice,
    found: &Found,
    jsb: &JournalSuperblock,
    fast: FastLog,
    overlay: Overlay,
    block_size: extol_block::BlockSize,
) -> OpenResult<Overlay> {
    let scratch = Arc::new(overlay.scratch(Arc::clone(dev), block_size));
    let view: SharedDevice = Arc::clone(&scratch) as SharedDevice;
    let journal = replay(&view, found, jsb, fast, None)?;
    let committed = journal.commit_all();
    journal.shut_down("the fast commits were replayed");
    committed?;
    Ok(scratch.overlay())
}

/// Applies the records; they are not committed yet.
fn replay(
    dev: &SharedDevice,
    found: &Found,
    jsb: &JournalSuperblock,
    fast: FastLog,
    log: Option<LogConfig>,
) -> OpenResult<Arc<Journal>> {
    let sb = read_superblock(&**dev, None)?;
    let geo = geometry(&**dev, &sb)?;
    if let Some(odd) = geo.odd_clusters() {
        return Err(refused(format!("the volume has {odd}")));
    }
    let is_written = log.is_some();
    let journal = Journal::open(JournalConfig {
        device: Arc::clone(dev),
        block_size: geo.block_size,
        blocks: geo.blocks(),
        log,
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: CACHE_BYTES,
        clock: Arc::new(SystemClock::new()),
    })?;
    journal.work_in_callers();
    let applied = (|| {
        let alloc = Allocator::open(Arc::clone(&journal), &geo, &sb, AllocOptions::default())?;
        found.on_volume.iter().for_each(|run| alloc.protect(*run));
        let internal = internal_inodes(&sb);
        let vol = Volume::new(Arc::clone(dev), Arc::clone(&journal), geo.clone(), alloc);
        match Quotas::open(&vol, &sb) {
            Err(e) if is_written => return Err(e),
            _ => {}
        }
        let cell = SuperCell::new(sb, &geo);
        let source = Source { log: &*found.device, map: &found.map, sb: jsb, fast };
        replay::run(&vol, &cell, internal, &source, recovery::replay_credits(jsb))
    })();
    if let Err(e) = applied {
        // Before anything of it can be committed.
        journal.shut_down("the fast commits cannot be replayed");
        return Err(refused(e));
    }
    Ok(journal)
}
