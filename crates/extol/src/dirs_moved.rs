//! When a directory last got another place or name, and with it all below it another path.
//!
//! As on Linux, an fsync of a directory makes its path durable, too, also if nothing changed in the
//! directory itself. So it waits for that transaction if it is the newer one. (Any directory's:
//! which of them lies below which would have to be searched for.)
//!
//! Transactions are numbered in a circle, and the last move may be half of it ago or more: nothing
//! is concluded from a number that is not that of a transaction of now ([`DirsMoved::awaited`]).

use std::sync::atomic::{AtomicU32, Ordering};

use extol_jbd2::Tid;

/// The newest transaction in which a directory moved.
#[derive(Debug)]
pub(crate) struct DirsMoved(AtomicU32);

impl DirsMoved {
    /// None since `newest`, the newest transaction that there is.
    pub fn new(newest: Tid) -> Self {
        Self(AtomicU32::new(newest.0))
    }

    /// None moved since `newest`, whatever was noted before.
    pub fn none_since(&self, newest: Tid) {
        self.0.store(newest.0, Ordering::Release);
    }

    /// One moves in transaction `tid`, of which a handle is open: another one's may be the next,
    /// and no other is newer.
    pub fn note(&self, tid: Tid) {
        let older = |old| (old != tid.next().0).then_some(tid.0);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, older);
    }

    /// What an fsync of a directory waits for that was changed last in transaction `own`.
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

    /// A move more than 2^31 transactions ago looks newer than all; who took it for that would wait
    /// for nothing at all.
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
