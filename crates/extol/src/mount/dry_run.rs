//! A mount before the mount: everything that can refuse it, over a copy of the volume in memory.
//!
//! ```text
//!   device ◄─ read ─ scratch ◄─► open_on: recovery, fast commits, allocator, root, orphans ─► refused, or forgotten
//!   device ◄──────── write ────► open_on                                                  ─► mounted
//! ```
//!
//! A mount has to write before it knows everything: it recovers the journal, replays fast commits,
//! notes that the volume is in use, and finishes orphans, and each of these may find damage. If it
//! were found half-way, a volume that was refused would have been changed. So the same code runs
//! first where changes go to memory; what it refuses is refused before anything is written, and
//! `extol info` asks the same question.
//!
//! Costs: the log is read twice, and what it would bring home is held in memory once, as in a
//! read-only mount. A volume that was closed in order has nothing to replay; there it is a few
//! reads.
//!
//! Invariants
//! - RH1: nothing passes through: the scratch device takes writes, discards and zeroing, on the
//!   volume and on an external journal ([`ScratchDevice`](extol_jbd2::recovery::ScratchDevice));
//!   there are no threads, and nothing runs on.
//! - RH2: it is the mount's own code with the mount's own options, but for what does not decide
//!   ([`like`]).

use std::sync::Arc;

use extol_block::{BlockSize, SharedDevice};
use extol_jbd2::recovery::Overlay;
use extol_ondisk::Geometry;

use super::assemble::open_on;
use super::mark::Purpose;
use super::{close, features, journal};
use crate::error::OpenResult;
use crate::guard::mmp::Observed;
use crate::options::MountOptions;
use crate::superblock::{geometry, read_superblock};

/// Metadata in memory, beside what the scratch device holds.
const CACHE_BYTES: usize = 16 << 20;

fn scratch(device: &SharedDevice, size: BlockSize) -> SharedDevice {
    Arc::new(Overlay::default().scratch(Arc::clone(device), size))
}

/// The options that decide; nothing that works beside or afterwards.
fn like(options: &MountOptions, size: BlockSize) -> MountOptions {
    MountOptions {
        threads: false,
        discard: false,
        init_itable: None,
        async_checkpoint: None,
        checkpoint_merge: false,
        waiting: None,
        data_cache: Some(0),
        cache_bytes: options.cache_bytes.min(CACHE_BYTES),
        inode_cache: options.inode_cache.min(1024),
        journal_device: options.journal_device.as_ref().map(|device| scratch(device, size)),
        ..options.clone()
    }
}

/// Mounts in memory, read-write. The error is the mount's.
pub(crate) fn run(dev: &SharedDevice, geo: &Geometry, options: &MountOptions) -> OpenResult<()> {
    let options = like(options, geo.block_size);
    let scratch = scratch(dev, geo.block_size);
    let (fs, threads, _) = open_on(&scratch, &options, Purpose::Use, None, false)?;
    close::crash(&fs, Some(threads));
    Ok(())
}

/// Why a read-write mount would be refused; `None` if it would not. Waits for nothing: whether
/// another host has the volume shows in time only.
pub(crate) fn refusal(dev: &SharedDevice, options: &MountOptions) -> Option<String> {
    let attempt = || {
        let sb = read_superblock(&**dev, options.sb)?;
        let geo = geometry(&**dev, &sb)?;
        features::check(&sb, &geo, false)?;
        let options = journal::with_device(&sb, options)?;
        Observed::check_now(dev, &geo, &sb)?;
        run(dev, &geo, &options)
    };
    // A volume that is in use may change while it is looked at.
    attempt().or_else(|_| attempt()).err().map(|e| e.0)
}
