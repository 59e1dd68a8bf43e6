//! The mark of an inode whose attributes were read, and the changes that it decides about: TM-1 in
//! [`times`](crate::mounted::times).

use std::sync::atomic::{AtomicBool, Ordering};

use extol_ondisk::Time;

use super::InodeState;

/// The mark of an inode whose attributes were read since its last change.
#[derive(Debug)]
pub(crate) struct Seen(AtomicBool);

impl Seen {
    /// The mark of an inode that comes from the volume.
    pub fn loaded() -> Self {
        Self(AtomicBool::new(true))
    }

    /// The mark of a new inode.
    pub fn new_inode() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Sets the mark. (It is usually set, and the line of the cache stays shared then.)
    pub fn set(&self) {
        if !self.is_set() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&mut self) -> bool {
        std::mem::take(self.0.get_mut())
    }
}

impl InodeState {
    /// The contents change: both times become `now`.
    pub fn touch(&mut self, now: Time) {
        self.node.raw.mtime = now;
        self.set_ctime(now);
    }

    /// The inode changes, at this time.
    pub fn set_ctime(&mut self, now: Time) {
        self.node.raw.ctime = now;
        if self.seen.take() {
            self.node.raw.version = self.node.raw.version.wrapping_add(1);
        }
    }
}
