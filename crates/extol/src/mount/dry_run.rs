//! The dry run: a mount over a copy of the volume in memory, which finds all that can refuse a
//! mount.
//!
//! ```text
//!   device ◄─ read ─ scratch ◄─► open_on: recovery, fast commits, allocator, root, orphans
//!                                  ─► refused, or forgotten
//!   device ◄──────── write ────► open_on ─► mounted
//! ```
//!
//! A mount has to write before it knows everything: it recovers the journal, replays fast commits,
//! marks the volume as in use, and finishes orphans, and each of these may find damage. If it found
//! that half-way, a refused volume would be changed. So the same code runs first where changes go
//! to memory; what it refuses is refused before anything is written, and `extol info` asks the same
//! question.
//!
//! Costs: the log is read twice, and what it would bring home is held in memory once, as in a
//! read-only mount. A volume that was closed in order has nothing to replay; there it is a few
//! reads.
//!
//! Invariants
//! - MT-3: nothing passes through: the scratch device takes writes, discards and zeroing, on the
//!   volume and on an external journal ([`ScratchDevice`](extol_jbd2::recovery::ScratchDevice));
//!   there are no threads, and nothing runs on (`run`).
//! - MT-4: it is the mount's own code with the mount's own options, but for what does not decide
//!   (`deciding_options`).

use std::sync::Arc;

use extol_block::{BlockSize, SharedDevice};
use extol_jbd2::recovery::Overlay;
use extol_ondisk::Geometry;

use super::assemble::{Opened, open_on};
use super::mark::Purpose;
use super::{close, features};
use crate::error::OpenResult;
use crate::find_journal;
use crate::guard::mmp::Observed;
use crate::options::MountOptions;
use crate::superblock::{geometry, read_superblock};

/// Metadata in memory, beside what the scratch device holds.
const CACHE_BYTES: usize = 16 << 20;

fn scratch(device: &SharedDevice, size: BlockSize) -> SharedDevice {
    Arc::new(Overlay::default().scratch(Arc::clone(device), size))
}

/// The options that decide; nothing that works beside or afterwards.
fn deciding_options(options: &MountOptions, size: BlockSize) -> MountOptions {
    let mut options = options.clone().without_threads();
    options.space.discard = false;
    options.background.init_itable = None;
    options.journal.async_checkpoint = None;
    options.checkpoint.merge = false;
    options.access.waiting = None;
    options.cache.data = Some(0);
    options.cache.metadata_bytes = options.cache.metadata_bytes.min(CACHE_BYTES);
    options.cache.inodes = options.cache.inodes.min(1024);
    let journal = options.journal.device.take().map(|device| scratch(&device, size));
    options.with_journal(journal)
}

/// Mounts in memory, read-write. The error is the mount's.
pub(crate) fn run(dev: &SharedDevice, geo: &Geometry, options: &MountOptions) -> OpenResult<()> {
    let options = deciding_options(options, geo.block_size);
    let scratch = scratch(dev, geo.block_size);
    let (fs, threads, _) = open_on(&scratch, &options, Purpose::Use, None, false)?;
    close::crash(&fs, Some(threads));
    Ok(())
}

/// Opens the volume in memory, read-write, for more than the question whether that can be.
pub(crate) fn open(
    purpose: Purpose,
    dev: &SharedDevice,
    options: &MountOptions,
) -> OpenResult<Opened> {
    let (scratch, options) = in_memory_only(dev, options)?;
    open_on(&scratch, &options, purpose, None, false)
}

/// What a mount takes whose changes all go to memory.
pub(crate) fn in_memory_only(
    dev: &SharedDevice,
    options: &MountOptions,
) -> OpenResult<(SharedDevice, MountOptions)> {
    let sb = read_superblock(&**dev, options.access.superblock)?;
    let geo = geometry(&**dev, &sb)?;
    let options = find_journal::with_device(&sb, options)?;
    Ok((scratch(dev, geo.block_size), deciding_options(&options, geo.block_size)))
}

/// Why a read-write mount would be refused; `None` if it would not. Waits for nothing: whether
/// another host has the volume shows in time only.
pub(crate) fn refusal(dev: &SharedDevice, options: &MountOptions) -> Option<String> {
    let attempt = || {
        let sb = read_superblock(&**dev, options.access.superblock)?;
        let geo = geometry(&**dev, &sb)?;
        features::check(&sb, &geo, false)?;
        let options = find_journal::with_device(&sb, options)?;
        Observed::check_now(dev, &geo, &sb)?;
        run(dev, &geo, &options)
    };
    // A volume that is in use may change while it is looked at.
    attempt().or_else(|_| attempt()).err().map(|e| e.line())
}
