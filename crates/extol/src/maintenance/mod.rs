//! Requests about the whole volume: sync, checkpoint, freeze, thaw, shutdown.
//!
//! ```text
//!   sync ──────────┐    Merger (extol-task):      perform:
//!   checkpoint ────┼──► one thread, with its ─►   write back ─ commit ─ home ─ log empty ─ "clean"
//!   freeze ─ gate ─┘    own I/O priority                sync ends ┘  checkpoint ┘     freeze ┘
//! ```
//!
//! With `checkpoint=merge` (the default) these requests are merged: they wait in a queue, and one
//! thread answers all that are there with one operation, the union of what they ask for. What a
//! checkpoint does contains what a sync does, and a freeze contains both, so each gets at least
//! what it asks for. The thread writes file data back, leads the commit and runs the checkpoint,
//! with the priority `ckpt_thread_ioprio=` (best effort, 3); a caller that is slowed by its I/O
//! priority, nice value or control group slows no other one. With `checkpoint=nomerge`, and without
//! threads, each caller does the work itself; `Merger::ask` decides which.
//!
//! (f2fs, where this comes from, merges plain syncs only. Here the others may come from a caller
//! that is slowed just as well, and exclude changes while they run; so all use the queue.)
//!
//! A **freeze** stops changes at the freeze gate (`freeze_gate.rs`), writes everything, and marks
//! the superblock clean; until the thaw nothing is written to the device, and a copy of it is a
//! sound volume. A sync of a frozen volume has nothing to do.
//!
//! The queue and the state are in `requests.rs`; this file performs the requests.
//!
//! Invariants
//! - MN-1: when a sync returns, what was changed before its call is durable: it is answered by an
//!   operation that begins later (a rule of the merger), or the volume is frozen and nothing is
//!   left to write (`perform`). One that fails because data of a damaged file has no place has made
//!   all else durable (`files::sync_now`).
//! - MN-2: between freeze and thaw nothing is written: changes wait at the gate, reading changes no
//!   time stamps, what an error or the end of an inode must write waits for the thaw (`Deferred`),
//!   no inode is dirty, no handle may open, and the multi-mount protection pauses (`freeze_now`).
//! - MN-3: "clean" is durable after the log is empty (`freeze_now`), and "needs recovery" before
//!   handles may open again (`thaw_now`).
//! - MN-4: the issuing thread never waits for the gate: a holder of the gate may wait for the
//!   thread (`perform`).
//! - MN-5: the issuing thread ends before the volume's last write-out (`StopRequests`, dropped
//!   first in `mount::close`).

pub(crate) mod requests;
pub(crate) mod tune;

use std::sync::Weak;
use std::sync::atomic::Ordering;

use extol_jbd2::Erase;
use extol_ondisk::Compat;
use extol_vfs::{CheckpointFlags, FsError, Result, Shutdown};

use crate::error;
use crate::freeze_gate::Deferred;
use crate::mounted::MountedFs;
use crate::ops::{files, references};
use crate::superblock::write_superblock;
use requests::{Perform, Work};

/// What [`requests::Maintenance`] calls.
pub(crate) fn performer(fs: &Weak<MountedFs>) -> Perform {
    let fs = Weak::clone(fs);
    Box::new(move |work| match fs.upgrade() {
        Some(fs) => perform(&fs, work),
        None => Err(FsError::ReadOnly),
    })
}

/// Does all that was asked for at once.
fn perform(fs: &MountedFs, work: Work) -> Result<()> {
    let state = &fs.maintenance;
    if work.contains(Work::FREEZE) {
        let mut complete = state.complete.write();
        freeze_now(fs)?;
        *complete = true;
        return Ok(());
    }
    let complete = state.complete.read();
    if *complete {
        // (A request to erase the log holds the gate open, so it is not among these.)
        return Ok(());
    }
    let unplaced = files::sync_now(fs)?;
    if work.contains(Work::CHECKPOINT) && fs.check_writable().is_ok() {
        let wanted = [(Work::DISCARD, Erase::Discard), (Work::ZERO, Erase::Zero)];
        let erase: Vec<_> =
            wanted.into_iter().filter(|(w, _)| work.contains(*w)).map(|(_, e)| e).collect();
        fs.vol.journal.checkpoint_all(&erase).map_err(error::journal)?;
    }
    unplaced
}

/// Makes everything durable. Err as well if changes before it were lost, the first time.
pub(crate) fn sync(fs: &MountedFs) -> Result<()> {
    fs.maintenance.ask(Work::empty())?;
    if fs.table.sync_tells_undone() { Err(files::undone()) } else { Ok(()) }
}

/// EXT4_IOC_CHECKPOINT.
pub(crate) fn checkpoint(fs: &MountedFs, flags: CheckpointFlags) -> Result<()> {
    if flags.contains(CheckpointFlags::DISCARD | CheckpointFlags::ZERO_OUT) {
        return Err(FsError::Invalid("the log is either discarded or zeroed"));
    }
    // (The log of a volume opened read-only is closed.)
    let read_only = fs.fixed.read_only();
    let unread = read_only && fs.vol.geo.compat().contains(Compat::HAS_JOURNAL);
    if !fs.vol.journal.has_log() && !unread {
        return Err(FsError::NoJournal);
    }
    if flags.contains(CheckpointFlags::DISCARD) && !read_only && !fs.vol.journal.can_discard_log() {
        return Err(FsError::NotSupported("the journal's device cannot discard"));
    }
    if flags.contains(CheckpointFlags::DRY_RUN) {
        return Ok(());
    }
    let mut work = Work::CHECKPOINT;
    work.set(Work::DISCARD, flags.contains(CheckpointFlags::DISCARD));
    work.set(Work::ZERO, flags.contains(CheckpointFlags::ZERO_OUT));
    if work == Work::CHECKPOINT {
        return fs.maintenance.ask(work);
    }
    // These write to the device, so they wait for a thaw, and a freeze waits for them.
    let _open = fs.freeze_gate.enter()?;
    fs.check_writable()?;
    fs.maintenance.ask(work)
}

/// Stops changes, and makes a copy of the device a sound volume. Until [`thaw`].
pub(crate) fn freeze(fs: &MountedFs) -> Result<()> {
    fs.freeze_gate.close()?;
    // A volume that writes nothing is complete as it is.
    let result = if fs.writes_nothing() {
        *fs.maintenance.complete.write() = true;
        Ok(())
    } else {
        fs.maintenance.ask(Work::FREEZE)
    };
    if result.is_err() {
        open_gate(fs);
    }
    result
}

fn freeze_now(fs: &MountedFs) -> Result<()> {
    // (What is still dirty would be written during the freeze: MN-2.)
    files::sync_now(fs)??;
    fs.check_writable()?;
    let journal = &fs.vol.journal;
    journal.freeze().map_err(error::journal)?;
    let sb = fs.clean_superblock();
    fs.maintenance.pause_mmp(true);
    if let Err(e) = write_superblock(&*fs.vol.dev, &sb) {
        fs.maintenance.pause_mmp(false);
        journal.thaw();
        return Err(FsError::Io(e.line()));
    }
    Ok(())
}

/// Runs `work` while nothing changes the volume and no other request is under way. Fails with
/// `Busy` if the volume is frozen.
pub(crate) fn exclusively<T>(fs: &MountedFs, work: impl FnOnce() -> T) -> Result<T> {
    fs.freeze_gate.close()?;
    let done = {
        let _no_request = fs.maintenance.complete.write();
        work()
    };
    open_gate(fs);
    Ok(done)
}

/// Ends a freeze: changes go on.
pub(crate) fn thaw(fs: &MountedFs) -> Result<()> {
    let result = {
        let mut complete = fs.maintenance.complete.write();
        if !*complete {
            return Err(FsError::Invalid("the volume is not frozen"));
        }
        *complete = false;
        if fs.writes_nothing() { Ok(()) } else { thaw_now(fs) }
    };
    open_gate(fs);
    result
}

fn thaw_now(fs: &MountedFs) -> Result<()> {
    fs.maintenance.pause_mmp(false);
    let sb = fs.sb.read(Clone::clone);
    let result = write_superblock(&*fs.vol.dev, &sb).map_err(|e| {
        // Without the mark no log may be written: the next mount would not look at it.
        let _ = fs.vol.journal.abort(&format!("marking the volume as in use failed: {e}"));
        FsError::Io(e.line())
    });
    fs.vol.journal.thaw();
    result
}

/// Lets changes in, and does what had to wait.
fn open_gate(fs: &MountedFs) {
    for deferred in fs.freeze_gate.open() {
        match deferred {
            Deferred::Unused(ino) => references::unused(fs, ino),
            Deferred::Error(e) => {
                let _ = fs.note::<()>(Err(e));
            }
        }
    }
}

/// EXT4_IOC_SHUTDOWN: nothing is written from then on. The second call changes nothing.
pub(crate) fn shut_down(fs: &MountedFs, how: Shutdown) -> Result<()> {
    if fs.maintenance.is_shut_down() {
        return Ok(());
    }
    let result = match how {
        Shutdown::Sync => {
            let result = freeze(fs);
            if result == Err(FsError::Busy) { Ok(()) } else { result }
        }
        Shutdown::FlushLog => fs.vol.journal.commit_all().map_err(error::journal),
        Shutdown::Now => Ok(()),
    };
    if result.is_ok() || how != Shutdown::Sync {
        fs.maintenance.set_shut_down();
        fs.vol.journal.shut_down("the volume was shut down");
        fs.read_only.store(true, Ordering::Release);
        release(fs);
    }
    result
}

/// The volume ends here: threads that wait for a thaw go on, into the error that every change gets.
pub(crate) fn release(fs: &MountedFs) {
    *fs.maintenance.complete.write() = false;
    fs.maintenance.pause_mmp(false);
    open_gate(fs);
}
