//! Between the fast commits of one transaction and those of the next: the area is cleared, and what
//! e2fsck writes from memory goes home.
//!
//! ```text
//!   … fast commits of T │ full commit of T: log  FLUSH  record
//!                       │            waiters return ┘
//!                       │ blocks home, block 0 cleared  FLUSH   role given up
//!                       │ fast commits of T+1 …
//! ```
//!
//! Both only need the record to be durable, so one flush is enough. If T had no fast commits there
//! is nothing to clear, and perhaps T+1 will have none: then the blocks go home before the
//! first that is wanted.
//!
//! Between the record and that flush lies the one window in which the area holds fast commits of a
//! transaction that is in the log: Linux and Extol skip them, e2fsck drops the log
//! (`docs/design/fast-commit-peers.md`, "The area").

use std::ops::Range;
use std::sync::Arc;

use extol_block::BlockNr;

use super::area::{Area, Place};
use crate::journal::Journal;
use crate::log::Log;
use crate::planted;
use crate::types::Result;

impl Journal {
    /// After a full commit: what fast commits left in the area counts for nothing any more, and
    /// more of them will come. So what the first of these needs at home goes there with the same
    /// flush. The caller has the role.
    pub(crate) fn clear_after_commit(&self, log: &Log) -> Result<()> {
        let patched = &self.patched();
        // A flush for the log's device is none for that of the blocks.
        let together =
            self.barrier() && !log.is_external() && self.checkpoint.has_unwritten(patched);
        if together && let Some(block) = log.cleared_block() {
            return self.clear_area_by(|| {
                self.write_and_flush(|| self.send_home(patched, Some(block)).map(drop))
            });
        }
        self.clear_area(log)
    }

    /// The area's first block holds what counts for nothing: makes it hold nothing. The caller has
    /// the role.
    pub(crate) fn clear_area(&self, log: &Log) -> Result<()> {
        self.clear_area_by(|| self.write_durably(log, |fua| log.clear_area(fua)))
    }

    fn clear_area_by(&self, clear: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.state.lock().fast.area.as_ref().is_some_and(Area::needs_clearing) {
            return Ok(());
        }
        let skip = planted::has(planted::Bug::AreaNotCleared);
        if !skip {
            clear()?;
        }
        self.fast.counters.cleared.add(1);
        let mut state = self.state.lock();
        if let Some(area) = &mut state.fast.area {
            area.cleared();
        }
        self.fast.checksums.forget(state.tx.committed);
        Ok(())
    }

    /// See [`Journal::set_patched_blocks`]. Nothing is committed in full before the next first fast
    /// commit, so the later ones find it done, and mostly that first one, too
    /// (`clear_after_commit`).
    pub(super) fn write_patched_home(&self, place: Place) -> Result<()> {
        if place.first { self.bring_home(&self.patched()) } else { Ok(()) }
    }

    fn patched(&self) -> Arc<Vec<Range<BlockNr>>> {
        if planted::has(planted::Bug::PatchedNotHome) {
            return Arc::default();
        }
        self.fast.patched()
    }
}
