//! The volume's counters of free space, and reserved blocks. All count clusters, which are blocks
//! unless the volume has bigalloc.
//!
//! ```text
//!   free (sum of the descriptors)
//!   ├── lost        in groups whose bitmap is bad: not usable
//!   ├── pending     freed by a transaction that is not durable: usable after its commit
//!   └── the rest    free on disk and in memory, or taken in memory and not mapped
//!   reserved        for delayed allocation and operations under way
//! ```
//!
//! Blocks are reserved ([`Space::reserve`]) while `free - lost - reserved` (minus the blocks kept
//! for root) allows it. Pending and taken blocks count as free there: taken blocks stay reserved
//! until they are mapped, and a commit makes pending ones usable. So a volume is full exactly when
//! its last block is reserved. One small lock holds all counters, for a few instructions at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use extol_ondisk::Geometry;
use extol_sync::plain::Mutex;
use extol_vfs::{FsError, Result};

/// What the lock protects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    free: u64,
    lost: u64,
    pending: u64,
    reserved: u64,
    free_inodes: u64,
    pending_inodes: u64,
}

/// Counters of free space.
#[derive(Debug)]
pub(super) struct Space {
    numbers: Mutex<Numbers>,
    root_blocks: AtomicU64,
}

/// The counters at one moment. (Of blocks: see [`Counters::in_blocks`].)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Free blocks as the descriptors count them (what the superblock stores).
    pub free_on_disk: u64,
    /// Free blocks that are not reserved: what statfs shows as free.
    pub free: u64,
    /// The same without the blocks kept for root.
    pub available: u64,
    /// Reserved.
    pub reserved: u64,
    /// Freed, usable after the next commit.
    pub pending: u64,
    /// In groups whose bitmap is bad.
    pub lost: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

impl Counters {
    /// What counts clusters, in blocks.
    pub fn in_blocks(self, geo: &Geometry) -> Self {
        Self {
            free_on_disk: geo.cluster_blocks(self.free_on_disk),
            free: geo.cluster_blocks(self.free),
            available: geo.cluster_blocks(self.available),
            reserved: geo.cluster_blocks(self.reserved),
            pending: geo.cluster_blocks(self.pending),
            lost: geo.cluster_blocks(self.lost),
            free_inodes: self.free_inodes,
        }
    }
}

impl Space {
    pub fn new(free: u64, free_inodes: u64, root_blocks: u64) -> Self {
        let numbers = Numbers { free, free_inodes, ..Numbers::default() };
        Self { numbers: Mutex::new(numbers), root_blocks: AtomicU64::new(root_blocks) }
    }

    fn root_blocks(&self) -> u64 {
        self.root_blocks.load(Ordering::Relaxed)
    }

    /// So many blocks are kept for root from now on.
    pub fn keep_for_root(&self, blocks: u64) {
        self.root_blocks.store(blocks, Ordering::Relaxed);
    }

    pub fn counters(&self) -> Counters {
        let n = *self.numbers.lock();
        let free = n.free.saturating_sub(n.lost.saturating_add(n.reserved));
        Counters {
            free_on_disk: n.free,
            free,
            available: free.saturating_sub(self.root_blocks()),
            reserved: n.reserved,
            pending: n.pending,
            lost: n.lost,
            free_inodes: n.free_inodes,
        }
    }

    pub fn reserve(&self, blocks: u64, root_ok: bool) -> Result<()> {
        let kept = if root_ok { 0 } else { self.root_blocks() };
        let mut n = self.numbers.lock();
        let not_free = n.lost.saturating_add(n.reserved).saturating_add(kept);
        if blocks > n.free.saturating_sub(not_free) {
            return Err(FsError::NoSpace);
        }
        n.reserved += blocks;
        Ok(())
    }

    pub fn unreserve(&self, blocks: u64) {
        let mut n = self.numbers.lock();
        debug_assert!(
            blocks <= n.reserved,
            "giving back {blocks} of {} reserved blocks",
            n.reserved
        );
        n.reserved = n.reserved.saturating_sub(blocks);
    }

    /// Blocks were mapped on disk; `reserved` of them had been reserved.
    pub fn mapped(&self, blocks: u64, reserved: u64) {
        let mut n = self.numbers.lock();
        debug_assert!(
            reserved <= n.reserved,
            "{reserved} blocks mapped of {} reserved",
            n.reserved
        );
        n.free = n.free.saturating_sub(blocks);
        n.reserved = n.reserved.saturating_sub(reserved);
    }

    /// Blocks were freed on disk and wait for their commit.
    pub fn freed(&self, blocks: u64) {
        let mut n = self.numbers.lock();
        n.free = n.free.saturating_add(blocks);
        n.pending = n.pending.saturating_add(blocks);
    }

    /// Freed blocks became usable.
    pub fn settled(&self, blocks: u64) {
        let mut n = self.numbers.lock();
        n.pending = n.pending.saturating_sub(blocks);
    }

    /// A group with this many free blocks is bad.
    pub fn lose(&self, blocks: u64) {
        let mut n = self.numbers.lock();
        n.lost = n.lost.saturating_add(blocks);
    }

    /// Corrects the free count of a group whose descriptor was wrong.
    pub fn correct(&self, was: u64, is: u64) {
        let mut n = self.numbers.lock();
        n.free = n.free.saturating_sub(was).saturating_add(is);
    }

    /// The volume grew by so many free blocks and inodes.
    pub fn add(&self, blocks: u64, inodes: u64) {
        let mut n = self.numbers.lock();
        n.free = n.free.saturating_add(blocks);
        n.free_inodes = n.free_inodes.saturating_add(inodes);
    }

    /// The volume was cut: so many blocks and inodes are free on what is left.
    pub fn cut(&self, free: u64, free_inodes: u64) {
        let mut n = self.numbers.lock();
        (n.free, n.free_inodes) = (free, free_inodes);
    }

    pub fn inode_taken(&self, was_pending: bool) {
        let mut n = self.numbers.lock();
        n.free_inodes = n.free_inodes.saturating_sub(1);
        if was_pending {
            n.pending_inodes = n.pending_inodes.saturating_sub(1);
        }
    }

    pub fn inode_freed(&self) {
        let mut n = self.numbers.lock();
        n.free_inodes = n.free_inodes.saturating_add(1);
        n.pending_inodes = n.pending_inodes.saturating_add(1);
    }

    pub fn inodes_settled(&self, inodes: u64) {
        let mut n = self.numbers.lock();
        n.pending_inodes = n.pending_inodes.saturating_sub(inodes);
    }

    pub fn pending_inodes(&self) -> u64 {
        self.numbers.lock().pending_inodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_exactly_when_the_last_block_is_reserved() {
        let space = Space::new(100, 5, 10);
        space.reserve(90, false).unwrap();
        assert_eq!(space.reserve(1, false), Err(FsError::NoSpace));
        space.reserve(10, true).unwrap();
        assert_eq!(space.reserve(1, true), Err(FsError::NoSpace));
        space.mapped(60, 60);
        assert_eq!(space.counters().free_on_disk, 40);
        assert_eq!(space.counters().free, 0);
        space.freed(5);
        assert_eq!(space.counters().pending, 5);
        space.reserve(5, true).unwrap();
        assert_eq!(space.reserve(1, true), Err(FsError::NoSpace));
        space.settled(5);
        assert_eq!(space.counters().pending, 0);
        space.unreserve(45);
        assert_eq!(space.counters().available, 35);
    }

    #[test]
    fn lost_groups_do_not_count() {
        let space = Space::new(100, 5, 0);
        space.lose(30);
        assert_eq!(space.counters().free, 70);
        assert_eq!(space.reserve(71, true), Err(FsError::NoSpace));
        assert_eq!(space.counters().free_on_disk, 100);
    }
}
