//! Requests about the whole volume: sync, checkpoint, freeze, thaw, shutdown.
//!
//! ```text
//!   sync ─────────────┐
//!   checkpoint ───────┼─► Merger (extol-task) ─► perform: write back ─ commit ─ home ─ log empty ─ "clean" ─► all answered
//!   freeze ─ gate ────┘      one thread, with its        └ sync ends here ┘      └ checkpoint ┘     └ freeze
//!                            own I/O priority
//! ```
//!
//! With `checkpoint=merge` (the default) these requests are merged: they wait in a queue, and one
//! thread answers all that are there with one operation, the union of what was asked for. What a
//! checkpoint does contains what a sync does, and a freeze contains both, so each gets at least
//! what it wanted. The thread writes file data back, leads the commit and writes home, with the
//! priority `ckpt_thread_ioprio=` (best effort, 3); a caller whom the system holds back by I/O
//! priority, nice value or control group holds back nobody else. With `checkpoint=nomerge`, and
//! without threads, everybody does it alone; `Merger::ask` decides which.
//!
//! (In f2fs, where this comes from, only plain syncs are merged and the others act in their
//! callers. Here they may come from a caller that is held back just as well, and keep everybody out
//! while they last; so all go the same way.)
//!
//! A **freeze** stops changes at the gate (`gate.rs`), has everything written, and writes a
//! superblock that says "clean"; until the thaw nothing is written to the device, and a copy of it
//! is a sound volume. A sync of a frozen volume has nothing to do.
//!
//! Invariants
//! - W1: when a sync has returned, what was changed before it was called is durable: it is answered
//!   by an operation that began afterwards (G1 of the merger), or the volume is frozen, and then
//!   nothing is left to write (`perform`). One that fails because data of a damaged file has no
//!   place has made all else durable (`files::sync_now`).
//! - W2: between freeze and thaw nothing is written: changes wait at the gate, reading changes no
//!   time stamps, what an error or the end of an inode must write waits for the thaw (`Deferred`),
//!   no inode is dirty, no handle may open, and the multi-mount protection pauses (`freeze_now`).
//! - W3: "clean" is durable after the log is empty (`freeze_now`), and "needs recovery" before
//!   handles may open again (`thaw`).
//! - W4: the issuing thread never waits for the gate: whoever holds the gate may wait for the
//!   thread (`perform`).
//! - W5: the issuing thread is gone before the volume's last write-out (`Stop`, dropped first in
//!   `mount::close`).

mod gate;
pub(crate) mod tune;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bitflags::bitflags;
use extol_block::{IoPriority, PriorityGroup};
use extol_jbd2::Erase;
use extol_ondisk::Compat;
use extol_task::{Clock, Issue, MergeStats, Merger};
use extol_vfs::{CheckpointFlags, FsError, Result, Shutdown};
use parking_lot::{Mutex, RwLock};

use crate::error;
use crate::fs::Fs;
use crate::mount::{clean_superblock, write_superblock};
use crate::ops::{delete, files};

pub(crate) use gate::{Deferred, Gate};

bitflags! {
    /// What is asked for beside a sync, which everybody gets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Work: u8 {
        /// Write home, and mark the log empty.
        const CHECKPOINT = 1;
        /// Discard the log's blocks.
        const DISCARD = 2;
        /// Zero the log's blocks.
        const ZERO = 4;
        /// Leave the journal frozen, and the superblock clean.
        const FREEZE = 8;
    }
}

/// The work, for the merger.
#[derive(Debug)]
pub(crate) struct Issuer {
    fs: Weak<Fs>,
    priority: PriorityGroup,
}

impl Issue for Issuer {
    type Ask = u8;
    type Answer = Result<()>;

    fn join(a: u8, b: u8) -> u8 {
        a | b
    }

    fn issue(&self, ask: u8) -> Result<()> {
        match self.fs.upgrade() {
            Some(fs) => perform(&fs, Work::from_bits_truncate(ask)),
            None => Err(FsError::ReadOnly),
        }
    }

    fn broken() -> Result<()> {
        Err(FsError::Io("internal error while the volume was written".into()))
    }

    fn begin(&self) -> Box<dyn Send> {
        Box::new(self.priority.join())
    }
}

/// What the whole volume's requests need.
#[derive(Debug)]
pub(crate) struct Whole {
    pub gate: Gate,
    requests: Arc<Merger<Issuer>>,
    /// Frozen, and everything is written. Held while a request works, so that a freeze and a sync
    /// do not meet.
    complete: RwLock<bool>,
    /// Pauses the multi-mount protection; held while that writes.
    mmp_paused: Mutex<Option<Arc<Mutex<bool>>>>,
    shut: AtomicBool,
    threads: bool,
}

/// Stops the issuing thread when dropped.
#[derive(Debug)]
pub(crate) struct Stop(Arc<Merger<Issuer>>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Whole {
    pub fn new(
        fs: &Weak<Fs>,
        clock: &Arc<dyn Clock>,
        priority: IoPriority,
        threads: bool,
        mmp_paused: Option<Arc<Mutex<bool>>>,
    ) -> Self {
        let issuer = Issuer { fs: Weak::clone(fs), priority: PriorityGroup::new(priority) };
        Self {
            gate: Gate::default(),
            requests: Merger::new(issuer, Arc::clone(clock)),
            complete: RwLock::new(false),
            mmp_paused: Mutex::new(mmp_paused),
            shut: AtomicBool::new(false),
            threads,
        }
    }

    /// What ends the thread.
    pub fn stopper(&self) -> Stop {
        Stop(Arc::clone(&self.requests))
    }

    /// Merges from now on, or not. Without background threads nothing changes.
    pub fn set_merge(&self, on: bool) -> std::io::Result<()> {
        match on {
            true if self.threads => self.requests.start("extol-ckpt"),
            true => Ok(()),
            false => {
                self.requests.stop();
                Ok(())
            }
        }
    }

    /// The priority of the issuing thread.
    pub fn priority(&self) -> &PriorityGroup {
        &self.requests.issuer().priority
    }

    pub fn stats(&self) -> MergeStats {
        self.requests.stats()
    }

    /// Changes wait for a thaw.
    pub fn is_frozen(&self) -> bool {
        self.gate.is_closed()
    }

    /// The volume was shut down on purpose.
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// The multi-mount protection was claimed anew.
    pub fn set_mmp(&self, paused: Option<Arc<Mutex<bool>>>) {
        *self.mmp_paused.lock() = paused;
    }

    fn ask(&self, work: Work) -> Result<()> {
        self.requests.ask(work.bits())
    }

    fn pause_mmp(&self, paused: bool) {
        if let Some(mmp) = &*self.mmp_paused.lock() {
            *mmp.lock() = paused;
        }
    }
}

/// Everything that was asked for at once.
fn perform(fs: &Fs, work: Work) -> Result<()> {
    let whole = &fs.whole;
    if work.contains(Work::FREEZE) {
        let mut complete = whole.complete.write();
        freeze_now(fs)?;
        *complete = true;
        return Ok(());
    }
    let complete = whole.complete.read();
    if *complete {
        // Whoever wants the log erased keeps the gate open, so it is not one of them.
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

/// Makes everything durable.
pub(crate) fn sync(fs: &Fs) -> Result<()> {
    fs.whole.ask(Work::empty())
}

/// EXT4_IOC_CHECKPOINT.
pub(crate) fn checkpoint(fs: &Fs, flags: CheckpointFlags) -> Result<()> {
    if flags.contains(CheckpointFlags::DISCARD | CheckpointFlags::ZERO_OUT) {
        return Err(FsError::Invalid("the log is either discarded or zeroed"));
    }
    // (A volume that is only read has its log closed.)
    let read_only = fs.limits.read_only();
    let unread = read_only && fs.vol.geo.compat.contains(Compat::HAS_JOURNAL);
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
        return fs.whole.ask(work);
    }
    // These write to the device, so they wait for a thaw, and a freeze for them.
    let _open = fs.whole.gate.enter()?;
    fs.check_writable()?;
    fs.whole.ask(work)
}

/// Stops changes, and makes a copy of the device a sound volume. Until [`thaw`].
pub(crate) fn freeze(fs: &Fs) -> Result<()> {
    fs.whole.gate.close()?;
    // Nothing is written by a volume that is read-only, so it is complete as it is.
    let result = if fs.writes_nothing() {
        *fs.whole.complete.write() = true;
        Ok(())
    } else {
        fs.whole.ask(Work::FREEZE)
    };
    if result.is_err() {
        open_gate(fs);
    }
    result
}

fn freeze_now(fs: &Fs) -> Result<()> {
    // (What is still dirty would be written later: W2.)
    files::sync_now(fs)??;
    fs.check_writable()?;
    let journal = &fs.vol.journal;
    journal.freeze().map_err(error::journal)?;
    let sb = clean_superblock(fs);
    fs.whole.pause_mmp(true);
    if let Err(e) = write_superblock(&*fs.vol.dev, &sb) {
        fs.whole.pause_mmp(false);
        journal.thaw();
        return Err(FsError::Io(e.0));
    }
    Ok(())
}

/// Runs `work` while nothing changes the volume and no whole-volume request is under way. Fails
/// with `Busy` if the volume is frozen.
pub(crate) fn alone<T>(fs: &Fs, work: impl FnOnce() -> T) -> Result<T> {
    fs.whole.gate.close()?;
    let done = {
        let _no_request = fs.whole.complete.write();
        work()
    };
    open_gate(fs);
    Ok(done)
}

/// Ends a freeze: changes go on.
pub(crate) fn thaw(fs: &Fs) -> Result<()> {
    let result = {
        let mut complete = fs.whole.complete.write();
        if !*complete {
            return Err(FsError::Invalid("the volume is not frozen"));
        }
        *complete = false;
        if fs.writes_nothing() { Ok(()) } else { thaw_now(fs) }
    };
    open_gate(fs);
    result
}

fn thaw_now(fs: &Fs) -> Result<()> {
    fs.whole.pause_mmp(false);
    let sb = fs.sb.read(Clone::clone);
    let result = write_superblock(&*fs.vol.dev, &sb).map_err(|e| {
        // Without the mark no log may be written: the next mount would not look at it.
        let _ = fs.vol.journal.abort(&format!("marking the volume as in use failed: {e}"));
        FsError::Io(e.0)
    });
    fs.vol.journal.thaw();
    result
}

/// Lets changes in, and makes up for what had to wait.
fn open_gate(fs: &Fs) {
    for deferred in fs.whole.gate.open() {
        match deferred {
            Deferred::Unused(ino) => unused(fs, ino),
            Deferred::Error(e) => {
                let _ = fs.note::<()>(Err(e));
            }
        }
    }
}

/// Gives references on an inode back. No lock may be held.
pub(crate) fn forget(fs: &Fs, ino: u32, n: u64) {
    if fs.table.release(&fs.vol, ino, n) {
        unused(fs, ino);
    }
}

/// The last reference on an inode has gone: it may have to be deleted.
pub(crate) fn unused(fs: &Fs, ino: u32) {
    // Who takes the last name of a referenced inode puts it on the list first and then asks for
    // references once more, so one of the two sees the other.
    if !fs.orphans.contains(ino) {
        return;
    }
    if let Some(_open) = fs.whole.gate.enter_or(|| Deferred::Unused(ino))
        && let Some(cell) = fs.table.cached(ino)
    {
        delete::delete_if_unused(fs, &cell);
    }
}

/// EXT4_IOC_SHUTDOWN: nothing is written from then on. The second time changes nothing.
pub(crate) fn shut_down(fs: &Fs, how: Shutdown) -> Result<()> {
    if fs.whole.is_shut() {
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
        fs.whole.shut.store(true, Ordering::Release);
        fs.vol.journal.shut_down("the volume was shut down");
        fs.read_only.store(true, Ordering::Release);
        release(fs);
    }
    result
}

/// The volume ends here: whoever waits for a thaw goes on, into the error that everybody gets.
pub(crate) fn release(fs: &Fs) {
    *fs.whole.complete.write() = false;
    fs.whole.pause_mmp(false);
    open_gate(fs);
}
