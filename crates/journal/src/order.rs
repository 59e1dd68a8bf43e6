//! The one rule of lock order that everything else rests on, checked in debug builds: a thread with an open handle must
//! not wait for anything that a commit, or another operation before its handle, may hold.

use std::cell::Cell;

thread_local! {
    static OPEN: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn opened() {
    if cfg!(debug_assertions) {
        OPEN.with(|n| n.set(n.get() + 1));
    }
}

pub(crate) fn closed() {
    if cfg!(debug_assertions) {
        // A handle that was sent to another thread leaves both counts wrong by one; never below zero.
        OPEN.with(|n| n.set(n.get().saturating_sub(1)));
    }
}

/// In debug builds, panics if this thread has a handle open. Call before taking a lock that belongs before handles
/// (an inode's), and before waiting for a commit.
pub fn assert_no_handle(what: &str) {
    if cfg!(debug_assertions) {
        let open = OPEN.with(Cell::get);
        assert_eq!(open, 0, "{what} with a journal handle open");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_no_handle("nothing");
        opened();
        assert!(std::panic::catch_unwind(|| assert_no_handle("a wait")).is_err());
        closed();
        assert_no_handle("nothing");
    }
}
