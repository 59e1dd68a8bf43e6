//! The fast-commit area: which blocks hold fast commits of which transaction. Arithmetic only.
//!
//! ```text
//!   | HEAD(T)   TAIL | … TAIL | … | … TAIL |  free for T  | never used |
//!   0                                       used           limit        end
//! ```
//!
//! The area belongs to one transaction at a time. The first fast commit of the next one begins at
//! block 0 again, and only once that block is known to hold nothing: there readers decide whether
//! the area is worth reading.
//!
//! Readers go on to the end of the area, and one block further if all of it holds valid fast
//! commits. So the last usable block stays free.

use std::ops::Range;

use crate::planted;
use crate::types::Tid;

/// Where the next fast commit goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Log block.
    pub at: u32,
    /// Blocks left for it.
    pub left: u32,
    /// It is the first of its transaction.
    pub first: bool,
}

/// Bookkeeping of the area.
#[derive(Clone, Debug)]
pub(crate) struct Area {
    start: u32,
    limit: u32,
    /// Whose fast commits it holds, and how many blocks of them.
    holds: Option<Tid>,
    used: u32,
    /// The first block is known to hold nothing.
    is_clear: bool,
}

impl Area {
    /// The area of blocks `range`; their contents are not known. `None` if it has no room for a
    /// fast commit.
    pub fn new(range: &Range<u32>) -> Option<Self> {
        let limit = range.end.checked_sub(range.start)?.checked_sub(1)?;
        (limit > 0).then_some(Self {
            start: range.start,
            limit,
            holds: None,
            used: 0,
            is_clear: false,
        })
    }

    /// Blocks that one transaction may use.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Where a fast commit of `tid` goes. `None` if the first block may hold something of another
    /// transaction, or if there is no block left.
    pub fn place(&self, tid: Tid) -> Option<Place> {
        let first = self.holds != Some(tid);
        let early = planted::has(planted::Bug::FastOnEmptyLog);
        if first && !self.is_clear && !early {
            return None;
        }
        let used = if first { 0 } else { self.used };
        let left = self.limit - used;
        (left > 0).then_some(Place { at: self.start + used, left, first })
    }

    /// `blocks` of the area are about to be written for `tid`.
    pub fn take(&mut self, tid: Tid, blocks: u32) {
        if self.holds != Some(tid) {
            self.used = 0;
        }
        self.holds = Some(tid);
        self.used = (self.used + blocks).min(self.limit);
        self.is_clear = false;
    }

    /// The first block may hold something that counts for nothing any more.
    pub fn needs_clearing(&self) -> bool {
        !self.is_clear
    }

    /// The first block was cleared.
    pub fn cleared(&mut self) {
        (self.holds, self.used, self.is_clear) = (None, 0, true);
    }

    /// The area was written by others, or discarded.
    pub fn forget(&mut self) {
        (self.holds, self.used, self.is_clear) = (None, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transaction_after_the_other() {
        // Ten blocks are behind the log's end; the one between is not in the range.
        let mut area = Area::new(&(101..110)).unwrap();
        assert_eq!(area.limit(), 8, "two fewer than the superblock says");
        assert_eq!(area.place(Tid(5)), None, "the contents of the first block are not known");
        assert!(area.needs_clearing());
        area.cleared();
        assert_eq!(area.place(Tid(5)), Some(Place { at: 101, left: 8, first: true }));
        area.take(Tid(5), 3);
        assert_eq!(area.place(Tid(5)), Some(Place { at: 104, left: 5, first: false }));
        area.take(Tid(5), 5);
        assert_eq!(area.place(Tid(5)), None, "full");
        assert_eq!(area.place(Tid(6)), None, "not cleared");
        area.cleared();
        assert_eq!(area.place(Tid(6)), Some(Place { at: 101, left: 8, first: true }));
        area.forget();
        assert!(area.needs_clearing());
        assert_eq!(area.place(Tid(6)), None);
    }

    #[test]
    fn areas_without_room() {
        assert!(Area::new(&(5..5)).is_none());
        assert!(Area::new(&(5..6)).is_none());
        assert_eq!(Area::new(&(5..7)).unwrap().limit(), 1);
    }
}
