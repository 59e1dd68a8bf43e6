//! Bounds for rows of groups: a search passes a full row with one look.
//!
//! A *row* is the groups of one descriptor block (64, usually). A volume of 16 TiB has 131072
//! groups; when it is nearly full, each search would look at all of them. So each row has two
//! bounds: the longest free run that it may have, and whether it may have a free inode.
//!
//! ```text
//!   raise   with a group's lock held, after that group's own hint was raised
//!   lower   by a search that found nothing in the row: to what the groups' hints say now
//! ```
//!
//! Invariant
//! - AL-2: a bound is never below the hint of one of its groups once the thread that raised that
//!   hint has released the group's lock. A bound too low hides free blocks; one too high costs a
//!   look. So `lower` gives up if the bound was raised since it began to look: each raise changes
//!   the upper half of the word ([`Bound::lower`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_jbd2::Buf;

/// The bounds of a row.
#[derive(Debug)]
pub(super) struct Row {
    /// For the longest run of free blocks.
    pub blocks: Bound,
    /// Not 0: there may be free inodes.
    pub inodes: Bound,
    /// The buffer of the descriptor block, once one was changed.
    pub home: OnceLock<Arc<Buf>>,
}

impl Row {
    /// Bounds that exclude nothing.
    pub fn new() -> Self {
        Self { blocks: Bound::new(), inodes: Bound::new(), home: OnceLock::new() }
    }
}

/// An upper bound: in the lower half its value, in the upper half how often it was raised.
#[derive(Debug)]
pub(super) struct Bound(AtomicU64);

impl Bound {
    fn new() -> Self {
        Self(AtomicU64::new(u64::from(u32::MAX)))
    }

    /// The bound.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed) as u32
    }

    /// Raises it to at least `value`.
    pub fn raise(&self, value: u32) {
        let raised =
            |word: u64| (word >> 32).wrapping_add(1) << 32 | u64::from(value.max(word as u32));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(raised(word)));
    }

    /// Lowers it to what `look` returns, unless it was raised meanwhile (AL-2).
    pub fn lower(&self, look: impl FnOnce() -> u32) {
        let before = self.0.load(Ordering::Acquire);
        let now = look();
        if now < before as u32 {
            let lowered = before >> 32 << 32 | u64::from(now);
            let _ = self.0.compare_exchange(before, lowered, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_during_a_look_wins() {
        let bound = Bound::new();
        bound.lower(|| 7);
        assert_eq!(bound.get(), 7);
        bound.raise(5);
        assert_eq!(bound.get(), 7);
        bound.lower(|| {
            // Below the bound, so the value stays; but the look is stale.
            bound.raise(6);
            0
        });
        assert_eq!(bound.get(), 7);
        bound.lower(|| 6);
        bound.raise(9);
        assert_eq!(bound.get(), 9);
        bound.lower(|| 20);
        assert_eq!(bound.get(), 9, "a look never raises");
    }
}
