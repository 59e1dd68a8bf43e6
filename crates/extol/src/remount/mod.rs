//! Remount: options change while the volume is in use.
//!
//! ```text
//!   list ─► plan: parsed on top of the options in force, every word by the table below ─► apply ─► the new options
//!              │ refused: nothing was touched                             │ fails: what was done is undone
//! ```
//!
//! Read-only and back. `ro` writes everything home, empties and freezes the log, and marks the
//! volume clean, as an unmount does; the journal rests, and whoever wants to change something is
//! refused. `rw` marks the volume as mounted and wakes the journal. A volume that was *opened*
//! read-only has no log and no right to write yet: `ro_to_rw.rs`.
//!
//! Invariants
//! - M1: a refusal changes nothing: parsing works on a copy ([`Plan::parse`]), and in [`apply`] the
//!   steps that can fail come first.
//! - M2: while the journal rests, nothing is written, and no operation that began before is still
//!   under way: all that change something pass the gate, which is closed meanwhile
//!   ([`maintenance::exclusively`]).
//! - M3: "needs recovery" is durable before the journal wakes, and cleared only after it rests
//!   ([`wake`], [`rest`]).
//!
//! Lock order: the mount's `threads`, then the gate, then everything else.

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
use crate::superblock::write_superblock;
use plan::{Able, Plan};

/// How often, and how long apart, going read-only looks whether unlinked files are still in use.
/// (Who closed the last one need not have told us yet.)
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(50);

fn refuse<T>(why: impl Into<String>) -> Result<T, RemountError> {
    Err(RemountError(why.into()))
}

/// Changes options; gives warnings for the user.
pub(crate) fn remount(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    list: &str,
) -> Result<Vec<String>, RemountError> {
    let current = fs.options.lock().clone();
    let mut plan = {
        let obstacle = fs.no_fast_commits.lock();
        Plan::parse(
            &current,
            list,
            Able { log: fs.vol.journal.has_log(), no_fast_commits: obstacle.as_ref() },
        )?
    };
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
    let moved = match (current.access.read_only, new.access.read_only) {
        (false, true) => {
            for _ in 0..LOOKS {
                if fs.orphans.len() == 0 {
                    break;
                }
                std::thread::sleep(LOOK);
            }
            fs.lazy_init.stop();
            unfrozen(maintenance::exclusively(fs, || rest(fs, threads)))
                .inspect_err(|_| fs.lazy_init.set(current.background.init_itable))
        }
        (true, false) if fs.fixed.read_only() => {
            unfrozen(maintenance::exclusively(fs, || ro_to_rw::upgrade(fs, threads, plan)))
        }
        (true, false) => {
            unfrozen(maintenance::exclusively(fs, || wake(fs, threads, &mut plan.warnings)))
        }
        _ => Ok(()),
    };
    if let Err(refusal) = moved {
        if merge {
            // Off again never fails; on again: without the thread everybody syncs alone, which is
            // as right.
            let _ = fs.maintenance.set_merge(current.checkpoint.merge);
        }
        return Err(refusal);
    }
    // Nothing below can fail. (Rising has a say in some options.)
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
    fs.vol.alloc.set_discard(o.space.discard.then(|| Arc::clone(&fs.vol.dev)));
}

/// `rw` → `ro`.
fn rest(fs: &Arc<MountedFs>, threads: &mut Threads) -> Result<(), RemountError> {
    if fs.check_writable().is_err() {
        // An error was faster.
        return Ok(());
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
fn wake(
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
        // While this mount rested, another system may have changed what is in memory here.
        let looked = guard.check_now().map_err(OpenError).and_then(|()| {
            let waiting = fs.options.lock().access.waiting.clone();
            let observed = Observed::observe(guard.below(), &fs.vol.geo, &sb, waiting.as_ref())?;
            observed.map(|observed| observed.take(guard, waiting.as_ref())).transpose()
        });
        threads.mmp = match looked {
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
