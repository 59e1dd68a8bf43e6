//! The last transaction in which a directory was renamed: it gives the directory, and everything
//! below it, another path.
//!
//! As on Linux, an fsync of a directory also makes its path durable, even if nothing changed in the
//! directory itself. So it waits for that transaction if it is newer. (It waits for
//! the rename of any directory, not only of those above the synced one.)
//!
//! Transaction ids wrap around, and the last rename may be half of the range ago or more. So a
//! noted id counts only if it is not newer than the newest transaction ([`DirsMoved::awaited`]).

use std::sync::atomic::{AtomicU32, Ordering};

use extol_jbd2::Tid;

/// The newest transaction in which a directory was renamed.
#[derive(Debug)]
pub(crate) struct DirsMoved(AtomicU32);

impl DirsMoved {
    /// None renamed since `newest`, the newest transaction.
    pub fn new(newest: Tid) -> Self {
        Self(AtomicU32::new(newest.0))
    }

    /// None renamed since `newest`, whatever was noted before.
    pub fn none_since(&self, newest: Tid) {
        self.0.store(newest.0, Ordering::Release);
    }

    /// A directory is renamed in transaction `tid`, of which a handle is open. Another thread may
    /// have noted the next transaction, but no later one.
    pub fn note(&self, tid: Tid) {
        let older = |old| (old != tid.next().0).then_some(tid.0);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, older);
    }

    /// The transaction that an fsync waits for, of a directory that was last changed in `own`.
    pub fn awaited(&self, own: Tid, newest: impl FnOnce() -> Tid) -> Tid {
        let moved = Tid(self.0.load(Ordering::Acquire));
        if moved.after(own) && newest().at_least(moved) { moved } else { own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_one_is_awaited() {
        let moved = DirsMoved::new(Tid(5));
        assert_eq!(moved.awaited(Tid(3), || Tid(9)), Tid(5));
        moved.note(Tid(9));
        moved.note(Tid(8));
        assert_eq!(
            moved.awaited(Tid(3), || Tid(9)),
            Tid(9),
            "two handles at the end of a transaction"
        );
        assert_eq!(moved.awaited(Tid(9), || panic!("not asked")), Tid(9));
    }

    /// A rename more than 2^31 transactions ago looks newer than all: an fsync that believed it
    /// would wait for nothing at all.
    #[test]
    fn a_move_long_ago_is_no_newer_one() {
        let moved = DirsMoved::new(Tid(5));
        let now = Tid(5u32.wrapping_add(1 << 31).wrapping_add(7));
        assert!(Tid(5).after(now));
        assert_eq!(moved.awaited(now.previous(), || now), now.previous());
        moved.note(now);
        assert_eq!(moved.awaited(now.previous(), || now), now);
    }
}
