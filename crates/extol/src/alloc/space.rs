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
//! Blocks are reserved ([`Space::reserve`]) while `free - lost - reserved` allows it. Two parts of
//! that are kept back: for root, and for maps. A [`Claim`] says which of them it may count on.
//! Pending and taken blocks count as free there: taken blocks stay reserved
//! until they are mapped, and a commit makes pending ones usable. So a volume is full exactly when
//! its last block is reserved.
//!
//! The blocks kept for maps (Linux: `s_resv_clusters`) serve space that is promised already: a
//! write into preallocated space, and a hole punched in the middle of an extent, split extents, and
//! the tree then needs a block, on a full volume as well. Volumes without extents keep none.
//!
//! Invariant
//! - SP-1: data, names and attributes never take a block kept for maps: their reservations leave
//!   those out, and what takes a block without a reservation asks [`Space::check_room`] before.
//!
//! One small lock holds all counters, for a few instructions at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use extol_ondisk::{Geometry, Incompat, Superblock};
use extol_sync::plain::Mutex;
use extol_vfs::{FsError, Result};

/// The counters that the lock protects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    free: u64,
    lost: u64,
    pending: u64,
    reserved: u64,
    free_inodes: u64,
    pending_inodes: u64,
}

impl Numbers {
    /// Clusters that are free and not reserved.
    fn left(&self) -> u64 {
        self.free.saturating_sub(self.lost.saturating_add(self.reserved))
    }
}

/// Which free clusters a reservation may count on; each kind counts on those of the ones before it
/// as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Claim {
    /// The clusters that every user may have.
    User,
    /// Those kept for root.
    Root,
    /// Those kept for maps.
    Map,
}

/// Clusters that are kept back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub root: u64,
    pub maps: u64,
}

impl Kept {
    /// The most clusters that are kept for maps, whatever the size of the volume.
    const MOST_FOR_MAPS: u64 = 4096;

    /// What a volume with this superblock keeps back: for maps one cluster in fifty, as Linux does.
    pub fn of(geo: &Geometry, sb: &Superblock) -> Self {
        let clusters = |blocks: u64| blocks / u64::from(geo.cluster_ratio);
        let extents = sb.feature_incompat.contains(Incompat::EXTENTS);
        let maps = if extents { clusters(sb.blocks_count) / 50 } else { 0 };
        Self { root: clusters(sb.r_blocks_count), maps: maps.min(Self::MOST_FOR_MAPS) }
    }
}

/// Counters of free space.
#[derive(Debug)]
pub(super) struct Space {
    numbers: Mutex<Numbers>,
    kept_for_root: AtomicU64,
    kept_for_maps: AtomicU64,
    /// How many are kept for maps, whatever the superblock says; `u64::MAX`: as it says.
    set_for_maps: AtomicU64,
}

/// The counters at one moment. (Of blocks: see [`Counters::in_blocks`].)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Free blocks as the descriptors count them (what the superblock stores).
    pub free_on_disk: u64,
    /// Free blocks that are not reserved: what statfs shows as free.
    pub free: u64,
    /// The same without the blocks kept for maps: those that root may use.
    pub for_root: u64,
    /// The same without the blocks kept for root: those that every user may use.
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
            for_root: geo.cluster_blocks(self.for_root),
            available: geo.cluster_blocks(self.available),
            reserved: geo.cluster_blocks(self.reserved),
            pending: geo.cluster_blocks(self.pending),
            lost: geo.cluster_blocks(self.lost),
            free_inodes: self.free_inodes,
        }
    }
}

impl Space {
    pub fn new(free: u64, free_inodes: u64, kept: Kept) -> Self {
        let numbers = Numbers { free, free_inodes, ..Numbers::default() };
        Self {
            numbers: Mutex::new(numbers),
            kept_for_root: AtomicU64::new(kept.root),
            kept_for_maps: AtomicU64::new(kept.maps),
            set_for_maps: AtomicU64::new(u64::MAX),
        }
    }

    /// Keeps so much back from now on.
    pub fn keep(&self, kept: Kept) {
        self.keep_for_root(kept.root);
        let set = self.set_for_maps.load(Ordering::Relaxed);
        let maps = if set == u64::MAX { kept.maps } else { set };
        self.kept_for_maps.store(maps, Ordering::Relaxed);
    }

    /// Keeps so many clusters for maps until the volume is closed.
    pub fn keep_for_maps(&self, clusters: u64) {
        self.set_for_maps.store(clusters, Ordering::Relaxed);
        self.kept_for_maps.store(clusters, Ordering::Relaxed);
    }

    /// Keeps so many clusters for root from now on.
    pub fn keep_for_root(&self, clusters: u64) {
        self.kept_for_root.store(clusters, Ordering::Relaxed);
    }

    /// Clusters that are kept from a claim.
    fn kept_from(&self, claim: Claim) -> u64 {
        let maps = self.kept_for_maps.load(Ordering::Relaxed);
        match claim {
            Claim::User => self.kept_for_root.load(Ordering::Relaxed).saturating_add(maps),
            Claim::Root => maps,
            Claim::Map => 0,
        }
    }

    pub fn counters(&self) -> Counters {
        let n = *self.numbers.lock();
        let free = n.left();
        Counters {
            free_on_disk: n.free,
            free,
            for_root: free.saturating_sub(self.kept_from(Claim::Root)),
            available: free.saturating_sub(self.kept_from(Claim::User)),
            reserved: n.reserved,
            pending: n.pending,
            lost: n.lost,
            free_inodes: n.free_inodes,
        }
    }

    /// Reserves `clusters` by a claim and, with them or not at all, `maps` more for their map.
    pub fn reserve(&self, clusters: u64, claim: Claim, maps: u64) -> Result<()> {
        let kept = self.kept_from(claim);
        let mut n = self.numbers.lock();
        let left = n.left();
        let all = clusters.saturating_add(maps);
        if all > left || (clusters > 0 && clusters > left.saturating_sub(kept)) {
            return Err(FsError::NoSpace);
        }
        n.reserved += all;
        Ok(())
    }

    /// Reserves what is left, but at most so many clusters; returns how many.
    pub fn reserve_up_to(&self, most: u64, claim: Claim) -> u64 {
        let kept = self.kept_from(claim);
        let mut n = self.numbers.lock();
        let clusters = n.left().saturating_sub(kept).min(most);
        n.reserved += clusters;
        clusters
    }

    /// Err if no block is free but those kept for maps. An operation that has reserved what it
    /// takes passes always (SP-1).
    pub fn check_room(&self) -> Result<()> {
        let n = *self.numbers.lock();
        let free = n.free.saturating_sub(n.lost);
        if free > self.kept_from(Claim::Root) { Ok(()) } else { Err(FsError::NoSpace) }
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

    fn space(free: u64, root: u64, maps: u64) -> Space {
        Space::new(free, 5, Kept { root, maps })
    }

    #[test]
    fn full_exactly_when_the_last_block_is_reserved() {
        let space = space(100, 10, 0);
        space.reserve(90, Claim::User, 0).unwrap();
        assert_eq!(space.reserve(1, Claim::User, 0), Err(FsError::NoSpace));
        space.reserve(10, Claim::Root, 0).unwrap();
        assert_eq!(space.reserve(1, Claim::Root, 0), Err(FsError::NoSpace));
        space.mapped(60, 60);
        assert_eq!(space.counters().free_on_disk, 40);
        assert_eq!(space.counters().free, 0);
        space.freed(5);
        assert_eq!(space.counters().pending, 5);
        space.reserve(5, Claim::Root, 0).unwrap();
        assert_eq!(space.reserve(1, Claim::Root, 0), Err(FsError::NoSpace));
        space.settled(5);
        assert_eq!(space.counters().pending, 0);
        space.unreserve(45);
        assert_eq!(space.counters().available, 35);
    }

    #[test]
    fn lost_groups_do_not_count() {
        let space = space(100, 0, 0);
        space.lose(30);
        assert_eq!(space.counters().free, 70);
        assert_eq!(space.reserve(71, Claim::Root, 0), Err(FsError::NoSpace));
        assert_eq!(space.counters().free_on_disk, 100);
    }

    #[test]
    fn only_maps_take_what_is_kept_for_them() {
        let space = space(100, 10, 20);
        assert_eq!((space.counters().for_root, space.counters().available), (80, 70));
        assert_eq!(space.reserve(71, Claim::User, 0), Err(FsError::NoSpace));
        assert_eq!(space.reserve(81, Claim::Root, 0), Err(FsError::NoSpace));
        space.reserve(80, Claim::Root, 5).unwrap();
        assert_eq!(space.reserve(1, Claim::Root, 0), Err(FsError::NoSpace));
        space.reserve(0, Claim::User, 10).unwrap();
        assert_eq!(space.reserve_up_to(9, Claim::Map), 5);
        assert_eq!(space.reserve(0, Claim::User, 1), Err(FsError::NoSpace));
        // What was reserved passes, and nothing more once it is taken.
        space.check_room().unwrap();
        space.mapped(80, 80);
        assert_eq!(space.check_room(), Err(FsError::NoSpace));
    }
}
