//! `rw` for a volume that was *opened* read-only: it makes up for what a mount does first.
//!
//! ```text
//!   may it be written? ─► device writable ─► MMP ─► log and fast commits recovered on the device
//!       ─► log attached ─► "needs recovery" durable ─► overlay gone ─► orphans finished ─► threads
//!       ─► read-write
//! ```
//!
//! What was read so far stays valid: without a log to recover the device does not change, and with
//! one the volume was seen as recovery in memory left it. Recovery is a function of what is on the
//! device, so it leaves the same there; each block is compared all the same ([`is_as_seen`]). With
//! `norecovery` the volume was seen without its log, so if there is anything to recover this takes
//! a new mount.
//!
//! Invariants
//! - RM-4: a failure leaves the volume read-only, and readable as it was. Until "needs recovery" is
//!   written the device has changed by nothing but its recovery. When it fails after that, what was
//!   done is written home as by a remount to read-only, and only a new mount can try again
//!   ([`back_to_read_only`]); or the volume was stopped by an error.
//! - RM-5: no operation changes anything before all is done: the freeze gate is closed meanwhile
//!   ([`crate::maintenance::exclusively`]), and `read_only` is cleared for the orphans only by the
//!   thread that holds the gate closed.
//! - RM-6: transaction numbers of the log begin where it says. No inode is left with an earlier one
//!   ([`forget_transactions`]), which could look like one of the future.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Incompat, Superblock};
use extol_vfs::RemountError;

use super::plan::Plan;
use super::{refuse, to_read_only};
use crate::error::{OpenError, OpenResult, refuse as refuse_open};
use crate::fast_commit_support;
use crate::find_journal;
use crate::guard::Guard;
use crate::guard::mmp::HeldClaim;
use crate::mount::journal::{self as journals, Recovered};
use crate::mount::threads::{Threads, start_journal, start_writers};
use crate::mount::{self, Purpose, fast_commit, features, mark, orphans};
use crate::mounted::MountedFs;
use crate::services::lazy_init;
use crate::superblock::{geometry, read_superblock};

/// Makes a volume that was opened read-only a writable one.
pub(super) fn upgrade(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    plan: &mut Plan,
) -> Result<(), RemountError> {
    if fs.vol.journal.check_aborted().is_err() {
        return refuse(
            "cannot remount read-write: an error stopped the volume; unmount it and run e2fsck",
        );
    }
    prepare(fs, threads, plan).or_else(|e: OpenError| {
        if let Some(mmp) = threads.mmp.take() {
            mmp.release();
        }
        fs.maintenance.set_mmp(None);
        refuse(format!("cannot remount read-write: {e}"))
    })?;
    let finished = finish(fs, threads, plan);
    if let Err(e) = finished {
        back_to_read_only(fs, threads);
        return refuse(format!("cannot remount read-write: {e}"));
    }
    Ok(())
}

/// The part that may fail and leave no trace: up to the mark in the superblock.
fn prepare(fs: &Arc<MountedFs>, threads: &mut Threads, plan: &mut Plan) -> OpenResult<()> {
    let base = &fs.base;
    let options = &plan.options;
    let sb = read_superblock(&*base.device, options.access.superblock)?;
    let geo = geometry(&*base.device, &sb)?;
    features::check(&sb, &geo, false)?;
    if options.access.norecovery && sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
        return refuse_open(
            "norecovery: the volume needs recovery; unmount it and mount it read-write",
        );
    }
    if fs.vol.journal.has_log() {
        return refuse_open("an earlier try failed; unmount it and mount it read-write");
    }
    base.device.make_writable()?;
    // The options in force name a data mode also where there is no journal.
    let has_journal = sb.feature_compat.contains(Compat::HAS_JOURNAL);
    let data = options.journal.data_mode.filter(|_| has_journal);
    let mut options = options.clone();
    options.access.norecovery = false;
    options.journal.data_mode = data;
    let options = find_journal::with_device(&sb, &options)?;
    let guard = fs.guard.as_ref().ok_or_else(|| OpenError::new("the volume has no guard"))?;
    threads.mmp = mount::claim(guard, &geo, &sb, &options, None)?;
    fs.maintenance.set_mmp(threads.mmp.as_ref().map(HeldClaim::paused));
    let recovered = journals::recover(&base.device, &sb, &geo, &options, Some(guard))?;
    is_as_seen(fs)?;
    fs.open_quotas(&recovered.superblock)?;
    let sb = recovered.superblock.clone();
    features::check(&sb, &geometry(&*base.device, &sb)?, false)?;
    attach(fs, guard, plan, recovered, &sb)
}

/// Err unless the recovered device reads as the volume was seen. (Recovery may keep more of the
/// superblock, such as errors.)
fn is_as_seen(fs: &MountedFs) -> OpenResult<()> {
    let Some(overlay) = &fs.base.overlay else { return Ok(()) };
    let size = fs.vol.geo.block_size;
    let (superblock, _) = fs.vol.geo.super_block();
    let mut bytes = vec![0; size.len()];
    for (nr, seen) in overlay.blocks() {
        fs.base.device.read_at(&mut bytes, nr.offset(size))?;
        if nr != superblock && bytes != **seen {
            return refuse_open(
                "recovery left something else than was seen; unmount it and mount it read-write",
            );
        }
    }
    Ok(())
}

/// The log, and what goes with it; then the mark that says that it is in use.
fn attach(
    fs: &Arc<MountedFs>,
    guard: &Guard,
    plan: &mut Plan,
    recovered: Recovered,
    sb: &Superblock,
) -> OpenResult<()> {
    let journal = &fs.vol.journal;
    let obstacle = recovered.no_fast_commits;
    let has_log = recovered.log.is_some();
    let log_at = recovered.log.as_ref().and_then(|log| log.config.map.superblock_offset());
    if let Some(mut log) = recovered.log {
        if !log.config.external {
            log.config.device = Arc::clone(&fs.vol.dev);
        }
        journal.attach(log.config)?;
        log.on_volume.into_iter().for_each(|run| fs.vol.alloc.protect(run));
        forget_transactions(fs);
    }
    let wanted = (plan.options.journal.fast_commit == Some(false)).then_some(false);
    let fast = fast_commit_support::decide(obstacle.as_ref(), wanted).map_err(OpenError::new)?;
    if has_log && obstacle.is_none() {
        journal.set_patched_blocks(fast_commit::patched_blocks(&fs.vol.geo, sb, &fs.vol.alloc)?);
        journal.set_fast_source(Arc::clone(&fs.tracker) as _);
    }
    plan.options.journal.fast_commit = Some(fast.on);
    plan.warnings.extend(fast.note);
    *fs.no_fast_commits.lock() = obstacle;
    let mut sb = sb.clone();
    let device = &*fs.base.device;
    fs.fixed.was_valid.store(sb.state.contains(State::VALID), Ordering::Release);
    mark::mark_mounted(device, &mut sb, &plan.options, (Purpose::Use, has_log), &*fs.clock)?;
    fs.sb.set(sb);
    guard.watch(log_at)?;
    if let Some(overlay) = &fs.base.overlay {
        overlay.is_home();
    }
    Ok(())
}

/// What is in memory was read when transactions had no numbers: all of it is durable (RM-6).
fn forget_transactions(fs: &MountedFs) {
    let newest = fs.vol.journal.newest();
    fs.dirs_moved.none_since(newest);
    for cell in fs.table.cells() {
        if let Ok(mut st) = cell.write() {
            (st.sync_tid, st.datasync_tid) = (newest, newest);
        }
    }
}

fn finish(fs: &Arc<MountedFs>, threads: &mut Threads, plan: &Plan) -> OpenResult<()> {
    fs.fixed.read_only.store(false, Ordering::Release);
    let io = |e: std::io::Error| OpenError::new(format!("cannot start a thread: {e}"));
    start_journal(fs, threads).map_err(io)?;
    fs.read_only.store(false, Ordering::Release);
    orphans::finish(fs)?;
    let placeholder = fast_commit::placeholder_dir(fs).unwrap_or_default();
    fs.tracker.set_placeholder_dir(placeholder);
    if fs.threads {
        start_writers(fs, threads, plan.options.checkpoint.merge).map_err(io)?;
    }
    lazy_init::start(fs, &plan.options);
    Ok(())
}

/// Read-only again, with what has been done so far.
fn back_to_read_only(fs: &Arc<MountedFs>, threads: &mut Threads) {
    // (If that fails, the next mount recovers what was done.)
    let _ = to_read_only(fs, threads);
    fs.read_only.store(true, Ordering::Release);
    // As it was opened: its orphans are not all finished, so `to_read_write` must not resume it.
    fs.fixed.read_only.store(true, Ordering::Release);
    fs.remounted_ro.store(false, Ordering::Release);
    if let Some(mmp) = threads.mmp.take() {
        mmp.release();
    }
    fs.maintenance.set_mmp(None);
}
