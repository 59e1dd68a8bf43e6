//! The queue of requests about the whole volume, and the state of a freeze and a shutdown. The
//! function that performs a request is a parameter ([`Perform`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bitflags::bitflags;
use extol_block::{IoPriority, PriorityGroup};
use extol_sync::plain::{Mutex, RwLock};
use extol_task::{Clock, Issue, MergeStats, Merger};
use extol_vfs::{FsError, Result};

bitflags! {
    /// What is asked for beside a sync, which every request gets.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Work: u8 {
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

/// Does what was asked for.
pub(crate) type Perform = Box<dyn Fn(Work) -> Result<()> + Send + Sync>;

/// The work, for the merger.
pub(super) struct Issuer {
    perform: Perform,
    priority: PriorityGroup,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("priority", &self.priority).finish_non_exhaustive()
    }
}

impl Issue for Issuer {
    type Ask = u8;
    type Answer = Result<()>;

    fn join(a: u8, b: u8) -> u8 {
        a | b
    }

    fn issue(&self, ask: u8) -> Result<()> {
        (self.perform)(Work::from_bits_truncate(ask))
    }

    fn broken() -> Result<()> {
        Err(FsError::Io("internal error while the volume was written".into()))
    }

    fn begin(&self) -> Box<dyn Send> {
        Box::new(self.priority.join())
    }
}

/// State of the requests about the whole volume.
#[derive(Debug)]
pub(crate) struct Maintenance {
    requests: Arc<Merger<Issuer>>,
    /// Frozen, and all is written. Held while a request works, so that a freeze and a sync do not
    /// overlap.
    pub(super) complete: RwLock<bool>,
    /// Pauses the multi-mount protection; held while that writes.
    mmp_paused: Mutex<Option<Arc<Mutex<bool>>>>,
    shut_down: AtomicBool,
    threads: bool,
}

/// Stops the issuing thread when dropped.
#[derive(Debug)]
pub(crate) struct StopRequests(Arc<Merger<Issuer>>);

impl Drop for StopRequests {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Maintenance {
    /// With `threads` requests can be merged, by a thread with that priority.
    pub fn new(
        perform: Perform,
        clock: &Arc<dyn Clock>,
        priority: IoPriority,
        threads: bool,
    ) -> Self {
        let issuer = Issuer { perform, priority: PriorityGroup::new(priority) };
        Self {
            requests: Merger::new(issuer, Arc::clone(clock)),
            complete: RwLock::new(false),
            mmp_paused: Mutex::new(None),
            shut_down: AtomicBool::new(false),
            threads,
        }
    }

    /// What ends the thread.
    pub fn stopper(&self) -> StopRequests {
        StopRequests(Arc::clone(&self.requests))
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

    /// The volume was shut down on purpose.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    pub(super) fn set_shut_down(&self) {
        self.shut_down.store(true, Ordering::Release);
    }

    /// The multi-mount protection was claimed anew, or given back.
    pub fn set_mmp(&self, paused: Option<Arc<Mutex<bool>>>) {
        *self.mmp_paused.lock() = paused;
    }

    pub(super) fn pause_mmp(&self, paused: bool) {
        if let Some(mmp) = &*self.mmp_paused.lock() {
            *mmp.lock() = paused;
        }
    }

    pub(super) fn ask(&self, work: Work) -> Result<()> {
        self.requests.ask(work.bits())
    }
}
