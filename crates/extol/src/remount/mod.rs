//! Remount: options change while the volume is in use.
//!
//! ```text
//!   list ─► plan: parsed on top of the options in force ─► apply ─► the new options
//!              │ refused: nothing is touched                 │ fails: what was done is undone
//! ```
//!
//! Read-only and back. `ro` writes everything home, empties and freezes the log, and marks the
//! volume clean, as an unmount does; the journal rests, and changes are refused. `rw` marks the
//! volume as mounted and resumes the journal. A volume that was *opened* read-only has no log and
//! no right to write yet: `ro_to_rw.rs`.
//!
//! Invariants
//! - RM-1: a refusal changes nothing: parsing works on a copy ([`Plan::parse`]), and in [`apply`]
//!   the steps that can fail come first.
//! - RM-2: while the journal rests, nothing is written, and no earlier operation is still under
//!   way: all changes pass the freeze gate, which is closed meanwhile
//!   ([`maintenance::exclusively`]).
//! - RM-3: "needs recovery" is durable before the journal resumes, and cleared only after it rests
//!   ([`to_read_write`], [`to_read_only`]).
//!
//! Lock order: docs/design/lock-order.md.

mod plan;
mod ro_to_rw;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use extol_ondisk::superblock::State;
use extol_vfs::RemountError;

use crate::error::OpenError;
use crate::guard::mmp::{HeldClaim, Observed};
use crate::maintenance;
use crate::mount::close::write_everything;
use crate::mount::threads::Threads;
use crate::mounted::MountedFs;
use crate::options::MountOptions;
use crate::quota;
use crate::superblock::write_superblock;
use plan::{Able, Plan};

/// How often, and how far apart, a remount to read-only checks whether unlinked files are still in
/// use. (The front end reports the last close with a delay.)
const CHECKS: u32 = 20;
const CHECK_EVERY: Duration = Duration::from_millis(50);

fn refuse<T>(why: impl Into<String>) -> Result<T, RemountError> {
    Err(RemountError(why.into()))
}

/// Changes options; returns warnings for the user.
pub(crate) fn remount(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    list: &str,
) -> Result<Vec<String>, RemountError> {
    let current = fs.options.lock().clone();
    let mut plan = plan(fs, &current, list)?;
    if !plan.options.access.read_only {
        let sb = fs.sb.read(Clone::clone);
        quota::check_enforceable(&sb, plan.options.quota).map_err(RemountError)?;
    }
    apply(fs, threads, &current, &mut plan)?;
    *fs.options.lock() = plan.options;
    if plan.abort {
        // As the kernel's test option: the volume stops as after an error.
        fs.read_only.store(true, Ordering::Release);
        let _ = fs.vol.journal.abort("abort was asked for by a remount");
        fs.note_abort();
    }
    Ok(plan.warnings)
}

fn plan(fs: &MountedFs, current: &MountOptions, list: &str) -> Result<Plan, RemountError> {
    let obstacle = fs.no_fast_commits.lock();
    let able = Able { log: fs.vol.journal.has_log(), no_fast_commits: obstacle.as_ref() };
    Plan::parse(current, list, able)
}

/// The options as a list would make them, and warnings; nothing is changed.
pub(crate) fn parse(
    fs: &MountedFs,
    list: &str,
) -> Result<(MountOptions, Vec<String>), RemountError> {
    let current = fs.options.lock().clone();
    plan(fs, &current, list).map(|plan| (plan.options, plan.warnings))
}

fn apply(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    current: &MountOptions,
    plan: &mut Plan,
) -> Result<(), RemountError> {
    let new = plan.options.clone();
    let merge = new.checkpoint.merge != current.checkpoint.merge && !fs.fixed.read_only();
    if merge {
        let failed = |e| RemountError(format!("cannot start a thread: {e}"));
        fs.maintenance.set_merge(new.checkpoint.merge).map_err(failed)?;
    }
    let changed = match (current.access.read_only, new.access.read_only) {
        (false, true) => {
            for _ in 0..CHECKS {
                if fs.orphans.len() == 0 {
                    break;
                }
                std::thread::sleep(CHECK_EVERY);
            }
            fs.lazy_init.stop();
            unfrozen(maintenance::exclusively(fs, || to_read_only(fs, threads)))
                .inspect_err(|_| fs.lazy_init.set(current.background.init_itable))
        }
        (true, false) if fs.fixed.read_only() => {
            unfrozen(maintenance::exclusively(fs, || ro_to_rw::upgrade(fs, threads, plan)))
        }
        (true, false) => unfrozen(maintenance::exclusively(fs, || {
            to_read_write(fs, threads, &mut plan.warnings)
        })),
        _ => Ok(()),
    };
    if let Err(refusal) = changed {
        if merge {
            // Off again never fails; on again: without the thread each caller syncs by itself.
            let _ = fs.maintenance.set_merge(current.checkpoint.merge);
        }
        return Err(refusal);
    }
    // Nothing below can fail. (The change to read-write decides some options.)
    let new = &plan.options;
    set(fs, new);
    // (Setting it begins anew: only where something changed.)
    let began = (current.access.read_only, current.background.init_itable)
        != (new.access.read_only, new.background.init_itable);
    if began && !new.access.read_only {
        fs.lazy_init.set(new.background.init_itable);
    }
    Ok(())
}

fn unfrozen(outcome: extol_vfs::Result<Result<(), RemountError>>) -> Result<(), RemountError> {
    outcome.unwrap_or_else(|_| refuse("the volume is frozen: thaw it first"))
}

fn set(fs: &MountedFs, o: &MountOptions) {
    let journal = &fs.vol.journal;
    fs.runtime.set(o);
    journal.set_barrier(o.journal.barrier.unwrap_or(true));
    journal.set_commit_interval(o.journal.commit);
    journal.set_batching(o.journal.batching);
    journal.set_fua(o.journal.fua);
    // (Without a log the plan refuses it; a volume opened read-only has none and may have the
    // option.)
    let _ = journal.set_async_checkpoint(o.journal.async_checkpoint.filter(|_| journal.has_log()));
    // (The plan knows whether the volume can have them; one that was opened read-only has no source
    // and keeps them off.)
    let _ = journal.set_fast_commits(o.journal.fast_commit == Some(true));
    journal.io_priority().set(o.journal.ioprio);
    fs.maintenance.priority().set(o.checkpoint.ioprio);
    fs.enforce(o.quota);
    fs.vol.alloc.set_discard(o.space.discard.then(|| Arc::clone(&fs.vol.dev)));
}

/// `rw` → `ro`.
fn to_read_only(fs: &Arc<MountedFs>, threads: &mut Threads) -> Result<(), RemountError> {
    if let Some(why) = fs.read_only_reason() {
        // An error has stopped the volume: it is read-only, but not clean.
        return refuse(format!("cannot remount read-only: {why}"));
    }
    if fs.orphans.len() > 0 {
        return refuse("cannot remount read-only: unlinked files are still open; close them first");
    }
    let failed = |e: &dyn std::fmt::Display| refuse(format!("cannot remount read-only: {e}"));
    match write_everything(fs) {
        Err(e) => return failed(&e),
        Ok(Err(lost)) => {
            fs.vol.journal.thaw();
            return failed(&lost);
        }
        Ok(Ok(())) => {}
    }
    fs.vol.journal.rest();
    fs.remounted_ro.store(true, Ordering::Release);
    fs.read_only.store(true, Ordering::Release);
    if let Err(e) = write_superblock(&*fs.vol.dev, &fs.clean_superblock()) {
        fs.read_only.store(false, Ordering::Release);
        fs.remounted_ro.store(false, Ordering::Release);
        fs.vol.journal.resume();
        return failed(&e);
    }
    if let Some(mmp) = threads.mmp.take() {
        mmp.release();
    }
    Ok(())
}

/// `ro` → `rw`.
fn to_read_write(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    warnings: &mut Vec<String>,
) -> Result<(), RemountError> {
    if !fs.remounted_ro.load(Ordering::Acquire) || fs.vol.journal.check_aborted().is_err() {
        let why = fs.vol.journal.abort_reason().unwrap_or_else(|| "an error stopped it".into());
        return refuse(format!(
            "cannot remount read-write: {why}; unmount, run e2fsck, mount again"
        ));
    }
    let mut sb = fs.sb.read(Clone::clone);
    if sb.state.contains(State::ERROR) {
        warnings.push("the volume has errors noted: unmount it and run e2fsck".into());
    }
    if let Some(guard) = &fs.guard {
        // While this mount was read-only, another system may have changed the volume.
        let observed = guard.check_now().map_err(OpenError::new).and_then(|()| {
            let access = fs.options.lock().access.clone();
            if access.nommp {
                return Ok(None);
            }
            let waiting = access.waiting;
            let seen = Observed::observe(guard.below(), &fs.vol.geo, &sb, waiting.as_ref())?;
            seen.map(|seen| seen.take(guard, waiting.as_ref())).transpose()
        });
        threads.mmp = match observed {
            Ok(mmp) => mmp,
            Err(e) => return refuse(format!("cannot remount read-write: {e}")),
        };
    }
    fs.maintenance.set_mmp(threads.mmp.as_ref().map(HeldClaim::paused));
    sb.wtime = fs.clock.wall().as_secs();
    // In memory it still says "mounted".
    if let Err(e) = write_superblock(&*fs.vol.dev, &sb) {
        if let Some(mmp) = threads.mmp.take() {
            mmp.release();
        }
        return refuse(format!("cannot remount read-write: {e}"));
    }
    fs.remounted_ro.store(false, Ordering::Release);
    fs.read_only.store(false, Ordering::Release);
    fs.vol.journal.resume();
    Ok(())
}

#[cfg(test)]
mod tests;
