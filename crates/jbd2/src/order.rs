//! The one rule of lock order that everything else rests on, checked in debug builds: a thread with
//! an open handle must not wait for anything that a commit, or another operation before its handle,
//! may hold. The other rules are those of [`extol_sync::rank`], to which an open handle is one more
//! place in the order.

use std::cell::Cell;

use extol_sync::rank::{self, Rank};

extol_sync::thread_local! {
    static FAILED_READS: Cell<u64> = const { Cell::new(0) };
}

/// A metadata block could not be read for this thread.
pub(crate) fn read_failed() {
    FAILED_READS.with(|n| n.set(n.get() + 1));
}

/// How many metadata blocks could not be read for this thread.
pub(crate) fn failed_reads() -> u64 {
    FAILED_READS.with(Cell::get)
}

/// About to wait for a place in a transaction: nothing that belongs behind a handle may be held.
#[track_caller]
pub(crate) fn wanted() {
    rank::check(Rank::Handle, 0);
}

pub(crate) fn opened() {
    rank::entered(Rank::Handle, 0);
}

#[track_caller]
pub(crate) fn closed() {
    // A handle that was sent to another thread stays noted with the first one.
    rank::left(Rank::Handle, 0);
}

/// In debug builds, panics if this thread has a handle open. Call before taking a lock that belongs
/// before handles (an inode's), and before waiting for a commit.
#[track_caller]
pub fn assert_no_handle(what: &str) {
    assert!(!rank::holds(Rank::Handle), "{what} with a journal handle open");
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn an_open_handle_is_noticed() {
        assert_no_handle("nothing");
        opened();
        assert!(std::panic::catch_unwind(|| assert_no_handle("a wait")).is_err());
        assert!(std::panic::catch_unwind(wanted).is_err(), "handles are never nested");
        closed();
        assert_no_handle("nothing");
        wanted();
    }
}
