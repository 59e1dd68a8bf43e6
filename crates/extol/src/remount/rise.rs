//! `rw` for a volume that was *opened* read-only: it catches up with what a mount does first.
//!
//! ```text
//!   may it be written? ─► device writable ─► MMP ─► log and fast commits recovered, on the device ─► log attached
//!       ─► "needs recovery" durable ─► overlay gone ─► orphans finished ─► threads ─► read-write
//! ```
//!
//! What was read so far stays valid: without a log to recover the device does not change, and with
//! one the volume was seen as recovery in memory left it. Recovery is a function of what is on the
//! device, so it leaves the same there; each block is compared all the same ([`is_as_seen`]). With
//! `norecovery` something else was seen, if there was anything to recover: that takes a new mount.
//!
//! Invariants
//! - R1: a failure leaves the volume read-only, and readable as it was. Until "needs recovery" is
//!   written the device has changed by nothing but its recovery. When it fails after that, what was
//!   done is written home as by a remount to read-only, and only a new mount can try again
//!   ([`rest_again`]); or the volume was stopped by an error.
//! - R2: no operation changes anything before all is done: the gate is closed meanwhile
//!   ([`crate::whole::alone`]), and `read_only` is only taken away for the orphans, by whoever
//!   holds it closed.
//! - R3: transaction numbers of the log begin where it says. No inode is left with one of before
//!   ([`forget_transactions`]), which could look like one of the future.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_ondisk::{Compat, Incompat, Superblock};
use extol_vfs::RemountError;

use super::plan::Plan;
use super::{refuse, rest};
use crate::guard::Guard;
use crate::mount::journal::{self as journals, Recovered};
use crate::mount::{
    self, OpenError, OpenResult, Purpose, Running, fast_commit, features, geometry, mmp, orphans,
    read_superblock,
};
use crate::mounted::MountedFs;

/// Makes a volume that was opened read-only a writable one.
pub(super) fn rise(
    fs: &Arc<MountedFs>,
    running: &mut Running,
    plan: &mut Plan,
) -> Result<(), RemountError> {
    if fs.vol.journal.check_aborted().is_err() {
        return refuse(
            "cannot remount read-write: an error stopped the volume; unmount it and run e2fsck",
        );
    }
    prepare(fs, running, plan).or_else(|e: OpenError| {
        if let Some(mmp) = running.mmp.take() {
            mmp.release();
        }
        fs.maintenance.set_mmp(None);
        refuse(format!("cannot remount read-write: {e}"))
    })?;
    let finished = finish(fs, running, plan);
    if let Err(e) = finished {
        rest_again(fs, running);
        return refuse(format!("cannot remount read-write: {e}"));
    }
    Ok(())
}

/// What may fail without a trace: up to the mark in the superblock.
fn prepare(fs: &Arc<MountedFs>, running: &mut Running, plan: &mut Plan) -> OpenResult<()> {
    let ground = &fs.ground;
    let options = &plan.options;
    let sb = read_superblock(&*ground.device, options.sb)?;
    let geo = geometry(&*ground.device, &sb)?;
    features::check(&sb, &geo, false)?;
    if options.norecovery && sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
        return mount::refuse(
            "norecovery: the volume needs recovery; unmount it and mount it read-write",
        );
    }
    if fs.vol.journal.has_log() {
        return mount::refuse("an earlier try failed; unmount it and mount it read-write");
    }
    ground.device.make_writable()?;
    // What is in force names a data mode also where there is no journal, and none can be asked for.
    let has_journal = sb.feature_compat.contains(Compat::HAS_JOURNAL);
    let data = options.data.filter(|_| has_journal);
    let options = crate::MountOptions { norecovery: false, data, ..options.clone() };
    let options = journals::with_device(&sb, &options)?;
    let guard = fs.guard.as_ref().ok_or_else(|| OpenError("the volume has no guard".into()))?;
    running.mmp = mount::claim(guard, &geo, &sb, &options)?;
    fs.maintenance.set_mmp(running.mmp.as_ref().map(mmp::Keeper::paused));
    let recovered = journals::recover(&ground.device, &sb, &geo, &options, Some(guard))?;
    is_as_seen(fs)?;
    let sb = recovered.superblock.clone();
    features::check(&sb, &geometry(&*ground.device, &sb)?, false)?;
    attach(fs, guard, plan, recovered, &sb)
}

/// The recovered device reads as the volume was seen. (Of the superblock recovery may keep more:
/// errors, say.)
fn is_as_seen(fs: &MountedFs) -> OpenResult<()> {
    let Some(overlay) = &fs.ground.overlay else { return Ok(()) };
    let size = fs.vol.geo.block_size;
    let (superblock, _) = fs.vol.geo.super_block();
    let mut bytes = vec![0; size.len()];
    for (nr, seen) in overlay.blocks() {
        fs.ground.device.read_at(&mut bytes, nr.offset(size))?;
        if nr != superblock && bytes != **seen {
            return mount::refuse(
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
    let wanted = (plan.options.fast_commit == Some(false)).then_some(false);
    let fast = fast_commit::decide(obstacle.as_ref(), wanted).map_err(OpenError)?;
    if has_log && obstacle.is_none() {
        journal.set_patched_blocks(mount::patched_blocks(&fs.vol.geo, sb, &fs.vol.alloc)?);
        journal.set_fast_source(Arc::clone(&fs.tracker) as _);
    }
    plan.options.fast_commit = Some(fast.on);
    plan.warnings.extend(fast.note);
    *fs.no_fast_commits.lock() = obstacle;
    let mut sb = sb.clone();
    let device = &*fs.ground.device;
    mount::mark_mounted(device, &mut sb, &plan.options, (Purpose::Use, has_log), &*fs.clock)?;
    fs.sb.set(sb);
    guard.watch(log_at)?;
    if let Some(overlay) = &fs.ground.overlay {
        overlay.is_home();
    }
    Ok(())
}

/// What is in memory was read when transactions had no numbers: all of it is durable (R3).
fn forget_transactions(fs: &MountedFs) {
    let newest = fs.vol.journal.newest();
    fs.dirs_moved.none_since(newest);
    for cell in fs.table.cells() {
        if let Ok(mut st) = cell.write() {
            (st.sync_tid, st.datasync_tid) = (newest, newest);
        }
    }
}

fn finish(fs: &Arc<MountedFs>, running: &mut Running, plan: &Plan) -> OpenResult<()> {
    fs.fixed.read_only.store(false, Ordering::Release);
    fs.read_only.store(false, Ordering::Release);
    orphans::finish(fs)?;
    let placeholder_dir = fast_commit::placeholder_dir(fs).unwrap_or_default();
    fs.tracker.set_placeholder_dir(placeholder_dir);
    if fs.threads {
        mount::start_writers(fs, running, plan.options.checkpoint_merge)
            .map_err(|e| OpenError(format!("cannot start a thread: {e}")))?;
    }
    fs.lazy_init.start(fs, &plan.options);
    Ok(())
}

/// Read-only again, with what has been done so far.
fn rest_again(fs: &Arc<MountedFs>, running: &mut Running) {
    // (If that fails, the next mount recovers what was done.)
    let _ = rest(fs, running);
    fs.read_only.store(true, Ordering::Release);
    // As it was opened: not to be woken with orphans that nobody has looked at.
    fs.fixed.read_only.store(true, Ordering::Release);
    fs.rests.store(false, Ordering::Release);
    if let Some(mmp) = running.mmp.take() {
        mmp.release();
    }
    fs.maintenance.set_mmp(None);
}
