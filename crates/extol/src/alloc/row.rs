//! What a row of groups may have: a search passes a full row with one look.
//!
//! A *row* is the groups of one descriptor block (64 of them, usually). A volume of 16 TiB has
//! 131072 groups; when it is nearly full, whoever needs a block or an inode would look at all of
//! them, each time. So each row has two bounds: how long its longest free run may be, and whether
//! it may have a free inode.
//!
//! ```text
//!   raise   with a group's lock held, after that group's own hint was raised
//!   lower   by a search that found nothing in the row: to what the groups' hints say now
//! ```
//!
//! Invariant: a bound is never below the hint of one of its groups, once whoever raised that hint
//! has let go of the group's lock. A bound that is too low would hide free blocks; one that is too
//! high costs a look. So `lower` gives up if anybody raised the bound since it began to look: each
//! raise changes the upper half of the word ([`Bound::lower`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_jbd2::Buf;

/// What is known of a row.
#[derive(Debug)]
pub(super) struct Row {
    /// For the longest run of free blocks.
    pub blocks: Bound,
    /// Not 0: there may be free inodes.
    pub inodes: Bound,
    /// The block of the descriptors, once one was changed. (As long as what is known of its groups,
    /// which takes more room.)
    pub home: OnceLock<Arc<Buf>>,
}

impl Row {
    /// Nothing is known yet: anything may be there.
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

    /// It is at least so much.
    pub fn raise(&self, value: u32) {
        let raised =
            |word: u64| (word >> 32).wrapping_add(1) << 32 | u64::from(value.max(word as u32));
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(raised(word)));
    }

    /// `look` says how much it is; that counts unless it was raised meanwhile.
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
    fn a_raise_while_somebody_looks_wins() {
        let bound = Bound::new();
        bound.lower(|| 7);
        assert_eq!(bound.get(), 7);
        bound.raise(5);
        assert_eq!(bound.get(), 7);
        bound.lower(|| {
            // Below the bound, so the value stays; the look is out of date all the same.
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
