//! Erasing the log: what it holds of former transactions (names, contents of directories, with
//! `data=journal` of files) is made unreadable. The volume does not need any of it: the log is
//! emptied first.
//!
//! ```text
//!   handles kept out ─ commit, write home, mark empty (durable) ─ zero or discard [first, end) ─ flush ─ handles let in
//! ```
//!
//! Invariant
//! - ER-1: no block is erased before the superblock that says "empty" is durable: a crash at any
//!   moment finds either the whole log, or one that is not read (`Journal::checkpoint_all`, which
//!   erases only between `freeze` and `thaw`).
//!
//! The fast-commit area belongs to what is erased; the superblock and what lies before the log's
//! first block do not.

use crate::journal::Journal;
use crate::log::Log;
use crate::types::Result;

/// How the log is erased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erase {
    /// The device is told that the blocks hold nothing; what they read as is its affair.
    Discard,
    /// The blocks read as zeros.
    Zero,
}

impl Journal {
    /// True if the log's device may be able to discard; false also without a log.
    #[must_use]
    pub fn can_discard_log(&self) -> bool {
        self.log.get().is_some_and(Log::can_discard)
    }

    /// Empties the log, so that the volume is complete without it, and erases it if that is wanted.
    /// Handles are kept out meanwhile; never call it with one open.
    ///
    /// # Errors
    /// If the journal was aborted, or the device fails. (If it only cannot discard, the log is
    /// empty all the same.)
    pub fn checkpoint_all(&self, erase: &[Erase]) -> Result<()> {
        self.freeze()?;
        let erased = match self.log.get() {
            Some(log) if !erase.is_empty() => {
                if let Some(area) = &mut self.state.lock().fast.area {
                    area.forget();
                }
                erase.iter().try_for_each(|how| log.erase(*how)).and_then(|()| log.flush())
            }
            _ => Ok(()),
        };
        self.thaw();
        erased
    }
}
