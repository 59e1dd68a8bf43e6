//! Which writes in place a flush has covered: file data, and blocks that a checkpoint wrote home.
//!
//! Each kind is counted when a write has returned; a flush covers those counted before it began. So
//! a second flush for the same writes can be left out: the covered count never passes what was read
//! before the flush was asked for.
//!
//! ```text
//!   home writes  ──┤1   ──┤2        ──┤3
//!   commit's flush          ├───────────┤   covers 2: the tail may pass what 1 and 2 wrote, not 3
//! ```

use crossbeam_utils::CachePadded;
use extol_sync::atomic::{AtomicU64, Ordering};

/// Writes of one kind.
#[derive(Debug)]
pub(crate) struct Coverage {
    returned: AtomicU64,
    covered: AtomicU64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { returned: AtomicU64::new(0), covered: AtomicU64::new(0) }
    }
}

impl Coverage {
    /// One more has returned. Gives their number: a flush that begins from now on covers so many.
    pub fn returned(&self) -> u64 {
        self.returned.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How many a flush has covered.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    /// How many have returned.
    pub fn now(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }

    pub fn is_dirty(&self) -> bool {
        self.now() > self.covered()
    }

    /// True if that is more than before.
    fn flushed(&self, count: u64) -> bool {
        self.covered.fetch_max(count, Ordering::AcqRel) < count
    }
}

/// What a flush that begins now covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    pub data: u64,
    ordered: u64,
    home: u64,
}

/// The writes of a journal's file system to its device.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// File data, of all kinds.
    pub data: CachePadded<Coverage>,
    /// Of the file data, what must be on the medium before what maps it, and has no checksum.
    pub ordered: Coverage,
    /// Blocks that a checkpoint wrote home.
    pub home: Coverage,
}

impl Writes {
    /// A write waits for a flush.
    pub fn are_dirty(&self) -> bool {
        self.data.is_dirty() || self.ordered.is_dirty() || self.home.is_dirty()
    }

    /// What a flush covers if it begins now or later.
    pub fn begun(&self) -> Covered {
        Covered { data: self.data.now(), ordered: self.ordered.now(), home: self.home.now() }
    }

    /// A flush succeeded that began after `covered` was read. True, for file data and for home
    /// writes, if that covers more of them than before.
    pub fn flushed(&self, covered: Covered) -> (bool, bool) {
        self.ordered.flushed(covered.ordered);
        (self.data.flushed(covered.data), self.home.flushed(covered.home))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_had_returned_when_it_began() {
        let writes = Writes::default();
        assert!(!writes.are_dirty());
        assert_eq!(
            (writes.home.returned(), writes.home.returned(), writes.data.returned()),
            (1, 2, 1)
        );
        let covered = writes.begun();
        assert_eq!(writes.home.returned(), 3);
        assert_eq!(writes.flushed(covered), (true, true));
        assert_eq!(writes.flushed(covered), (false, false), "nothing new");
        assert_eq!((writes.home.covered(), writes.data.is_dirty()), (2, false));
        assert!(writes.home.is_dirty() && writes.are_dirty());
    }
}
