//! The state behind the handle, which is replaced when a stopped volume is opened again.
//!
//! Every operation holds the state for reading, however long it takes; it is replaced while no
//! operation is under way. There is a lock per lane, each with the state in it, so that threads do
//! not contend for one cache line ([`extol_task::tally`](extol_task::lane) has the lanes).
//!
//! An operation takes the lock once: what it changes and what it makes durable are of one state.
//!
//! Locking: the outermost lock. An operation may begin inside another one of the same thread (a
//! listing that looks names up), so it is held recursively. One operation may wait for another; so
//! [`Current::stop_all`] does not wait for ever, and lets go of every lane if it fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use extol_sync::plain::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use extol_task::{LANES, lane};

use crate::mounted::MountedFs;

/// How long operations under way may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state that operations use.
pub(super) struct Current([CachePadded<RwLock<Arc<MountedFs>>>; LANES]);

/// The state, for one operation.
pub(crate) type Held<'a> = RwLockReadGuard<'a, Arc<MountedFs>>;

/// No operation is under way, and none begins.
pub(super) struct Stopped<'a>(Vec<RwLockWriteGuard<'a, Arc<MountedFs>>>);

impl Current {
    pub fn new(fs: &Arc<MountedFs>) -> Self {
        Self(std::array::from_fn(|_| CachePadded::new(RwLock::new(Arc::clone(fs)))))
    }

    pub fn get(&self) -> Held<'_> {
        self.0[lane() % LANES].read_recursive()
    }

    /// Waits until no operation is under way. `None` if one takes too long.
    pub fn stop_all(&self) -> Option<Stopped<'_>> {
        let end = Instant::now() + PATIENCE;
        self.0.iter().map(|lane| lane.try_write_until(end)).collect::<Option<_>>().map(Stopped)
    }
}

impl Stopped<'_> {
    /// From now on operations use this state.
    pub fn replace(&mut self, fs: &Arc<MountedFs>) {
        for lane in &mut self.0 {
            **lane = Arc::clone(fs);
        }
    }
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
