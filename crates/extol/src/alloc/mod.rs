//! The allocator of blocks and inodes: which are handed out, and when freed ones may be used again.
//!
//! ```text
//!                        Allocator
//!   take, commit_take    alloc_inode     reserve       trim
//!         │                   │             │            │
//!     blocks.rs           inodes.rs      space.rs     trim.rs
//!     pick.rs (which group) orlov.rs     (counters, reserved)
//!     window.rs (preallocation for a growing file)
//!     synced.rs (files synced as they grow)
//!     zeroed.rs (zeroed blocks for small files under fsync)
//!         ╰───────┬───────────╯
//!             load.rs   bitmaps from disk, first use of UNINIT groups
//!             zones.rs  the volume's own blocks
//!             grow.rs   the volume gets more blocks and groups
//!             table.rs  all groups, descriptors read block by block, bitmaps bounded in memory
//!             row.rs    bounds of many groups together
//!             group.rs  one group: lock, descriptor, bits in memory
//!             pending.rs  freed, not durable
//!             held.rs   deleted inodes that a front end still uses
//!             itable.rs inode tables that mkfs left unzeroed
//!             limit.rs  nothing behind a limit is handed out (shrinking)
//!             cut.rs    bitmaps and inode tables move, groups go (shrinking)
//! ```
//!
//! Data goes to the device before it is mapped (map after write), so handing out blocks has two
//! halves: *take* in memory, without a handle, and *commit_take* in the handle that maps them.
//! Freeing is the mirror image: the bits are cleared on disk within the handle, and in memory once
//! that transaction is durable. The states of a block are drawn in `group.rs`.
//!
//! Exact ENOSPC: an operation reserves the blocks that it may need ([`Allocator::reserve`]), does
//! its work and gives the rest back. Then a take fails only while blocks are *pending*
//! ([`Allocator::pending_free`] is not 0): end the handle, commit, try again.
//!
//! Locking. A group's lock comes after the handle and before buffers; one group at a time. Under
//! it, the bitmap may be read from the device the first time. The counters, the registry of
//! windows, the list of pending frees and the table's lists are leaves. The commit callback takes
//! one group lock after the other.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use extol_block::{BlockNr, SharedDevice};
use extol_jbd2::{Handle, Journal};
use extol_ondisk::{Geometry, GroupDesc, GroupNr, InodeNr, Superblock};
use extol_sync::plain::RwLock;
use extol_sync::rank::{Mutex, Rank};
use extol_vfs::{FsError, Result};

mod bits;
mod blocks;
mod borders;
mod cut;
mod exact;
mod group;
mod grow;
mod grow_only;
mod held;
mod initialise;
mod inodes;
mod itable;
mod limit;
mod load;
mod options;
mod orlov;
mod pending;
mod pick;
mod row;
mod space;
mod stats;
mod supercell;
mod synced;
mod table;
mod trim;
mod window;
mod zeroed;
mod zones;

#[cfg(test)]
mod tests;

pub(crate) use borders::Borders;
pub(crate) use cut::{Cut, Fixed};
pub(crate) use options::{AllocOptions, Report};
pub(crate) use space::Counters;
pub(crate) use supercell::SuperCell;
pub(crate) use synced::Piece;
pub(crate) use table::desc_runs;
pub(crate) use window::Window;
pub(crate) use zeroed::write_zeros;

use held::Held;
use pending::Pending;
use space::Space;
use table::Table;
use window::Registry;

/// Blocks that lie one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Run {
    /// The first.
    pub start: BlockNr,
    /// How many.
    pub len: u32,
}

impl Run {
    /// The block behind the last.
    #[must_use]
    pub fn end(self) -> BlockNr {
        self.start.plus(u64::from(self.len))
    }

    /// All blocks of the clusters that it touches.
    pub fn whole_clusters(self, geo: &Geometry) -> Self {
        let (start, end) = (geo.cluster_start(self.start), geo.cluster_end(self.end()));
        Self { start, len: (end.0 - start.0) as u32 }
    }

    /// The first `len` blocks, and what is left behind them.
    pub fn split(self, len: u32) -> (Self, Option<Self>) {
        let first = Self { start: self.start, len: self.len.min(len) };
        let rest = Self { start: first.end(), len: self.len - first.len };
        (first, (rest.len > 0).then_some(rest))
    }
}

/// Bitmaps in memory take no more than this, whatever [`AllocOptions::resident_groups`] says.
const RESIDENT_BYTES: usize = 8 << 20;

/// The allocator of an open volume. Commit callbacks and windows hold a weak reference.
#[derive(Debug)]
pub(crate) struct Allocator {
    journal: Arc<Journal>,
    geo: Geometry,
    opts: AllocOptions,
    /// Freed blocks are discarded on this device (`discard`).
    discard: RwLock<Option<SharedDevice>>,
    table: Table,
    space: CachePadded<Space>,
    pending: CachePadded<Pending>,
    held: CachePadded<Held>,
    windows: Registry,
    zeroed: CachePadded<zeroed::Zeroed>,
    zeroing: itable::Gate,
    /// Groups counted so far, and how many blocks of them never hold files.
    overhead: extol_sync::plain::Mutex<(u32, u64)>,
    /// Held while free blocks are being discarded or zeroed, and by a request about to fail.
    trim_gate: Mutex<(), { Rank::Trim as u8 }>,
}

impl Allocator {
    /// Blocks that handing out an inode may change: inode bitmap, descriptor, and the block bitmap
    /// if the group was never used.
    pub const ALLOC_INODE_CREDITS: u32 = 3;
    /// Inode bitmap and descriptor.
    pub const FREE_INODE_CREDITS: u32 = 2;

    /// Opens the allocator. Reads no bitmap, and descriptors only if the superblock's counters
    /// cannot be trusted.
    pub fn open(
        journal: Arc<Journal>,
        geo: &Geometry,
        sb: &Superblock,
        opts: AllocOptions,
    ) -> Result<Arc<Self>> {
        let plausible =
            sb.free_blocks_count <= geo.blocks() && sb.free_inodes_count <= geo.inodes();
        let (clusters, inodes) = if opts.trust_counters && plausible {
            let clusters = sb.free_blocks_count / u64::from(geo.cluster_ratio);
            (clusters, u64::from(sb.free_inodes_count))
        } else {
            sum(geo, &journal)?
        };
        let limit = opts.resident_groups.clamp(16, (RESIDENT_BYTES / geo.block_len()).max(16));
        Ok(Arc::new(Self {
            table: Table::new(geo.clone(), limit, opts.before_recovery),
            space: CachePadded::new(Space::new(clusters, inodes, kept_clusters(geo, sb))),
            pending: CachePadded::default(),
            held: CachePadded::default(),
            windows: Registry::new(geo.cluster_ratio),
            zeroed: CachePadded::default(),
            zeroing: itable::Gate::default(),
            overhead: extol_sync::plain::Mutex::default(),
            trim_gate: Mutex::new(()),
            geo: geo.clone(),
            journal,
            discard: RwLock::new(opts.discard.clone()),
            opts,
        }))
    }

    /// From now on freed blocks are discarded on this device (`None`: they are not).
    pub fn set_discard(&self, device: Option<SharedDevice>) {
        *self.discard.write() = device;
    }

    // ---- blocks

    /// So many blocks are kept for root from now on.
    pub fn keep_for_root(&self, blocks: u64) {
        self.space.keep_for_root(blocks / u64::from(self.geo.cluster_ratio));
    }

    /// Marks taken blocks as used on disk. Costs 2 credits: bitmap and descriptor block.
    pub fn commit_take(&self, h: &mut Handle, run: Run) -> Result<()> {
        self.mark_used(h, run, false)
    }

    /// [`commit_take`](Self::commit_take) of blocks that were [reserved](Self::reserve), which ends
    /// with it.
    pub fn commit_reserved(&self, h: &mut Handle, run: Run) -> Result<()> {
        self.mark_used(h, run, true)
    }

    /// One block for metadata, the first of its cluster: take and commit_take. The caller's
    /// operation has reserved it.
    pub fn alloc_meta(&self, h: &mut Handle, goal: BlockNr) -> Result<BlockNr> {
        let run = self.take(self.geo.cluster_end(goal), 1, 1)?;
        match self.commit_take(h, run) {
            Ok(()) => Ok(run.start),
            Err(e) => {
                self.give_back(run);
                Err(e)
            }
        }
    }

    /// Reserves `n` clusters, or fails with `NoSpace`. `root_ok`: those kept for root count too. (A
    /// block of metadata takes a cluster.)
    pub fn reserve(&self, n: u64, root_ok: bool) -> Result<()> {
        self.space.reserve(n, root_ok)
    }

    /// Gives back reserved clusters.
    pub fn unreserve(&self, n: u64) {
        self.space.unreserve(n);
    }

    /// Clusters freed by transactions that are not durable.
    pub fn pending_free(&self) -> u64 {
        self.space.counters().pending
    }

    /// Where the data of an inode's file should begin.
    pub fn inode_goal(&self, ino: InodeNr) -> BlockNr {
        self.goal_of(ino, true)
    }

    /// Where the blocks of a directory, and other metadata of an inode, should begin.
    pub fn meta_goal(&self, ino: InodeNr) -> BlockNr {
        self.goal_of(ino, false)
    }

    /// Blocks that belong to the volume itself although no descriptor names them, such as the
    /// journal's: freeing them is corruption. Call while opening.
    pub fn protect(&self, run: Run) {
        self.table.protect(run);
    }

    /// True if the run touches the volume's own blocks: superblocks, descriptors, bitmaps, inode
    /// tables, the journal. To be checked before each write to a mapped place. `Corrupt` if a
    /// descriptor is bad.
    pub fn is_system(&self, run: Run) -> Result<bool> {
        self.table.is_system(&self.journal, run)
    }

    /// `Corrupt` if the run touches the volume's own blocks.
    pub fn check_not_system(&self, run: Run) -> Result<()> {
        if self.is_system(run)? {
            return Err(
                FsError::corrupt("a mapping names the volume's own metadata").at_block(run.start.0)
            );
        }
        Ok(())
    }

    // ---- inodes

    /// The inode is not handed out until [`release_inode`](Self::release_inode), also once it is
    /// freed: a front end still uses its number.
    pub fn hold_inode(&self, ino: InodeNr) {
        self.held.hold(ino);
    }

    /// Ends [`hold_inode`](Self::hold_inode).
    pub fn release_inode(&self, ino: InodeNr) {
        self.held.release(ino);
    }

    /// If all free inodes are [held](Self::hold_inode): waits at most so long until one is not.
    /// True if it is worth trying again.
    pub fn wait_for_inode(&self, most: std::time::Duration) -> bool {
        self.held.wait(self.counters().free_inodes, most)
    }

    // ---- inode tables

    // ---- counters

    /// All counters at one moment, in clusters.
    pub fn counters(&self) -> Counters {
        self.space.counters()
    }

    /// All counters at one moment, in blocks.
    pub fn block_counters(&self) -> Counters {
        self.space.counters().in_blocks(&self.geo)
    }

    /// Free blocks that are not reserved.
    #[cfg(test)]
    pub fn free_blocks(&self) -> u64 {
        self.counters().free
    }

    #[cfg(test)]
    /// Free inodes.
    pub fn free_inodes(&self) -> u64 {
        self.counters().free_inodes
    }

    /// A group's descriptor with all changes.
    pub fn group_desc(&self, group: GroupNr) -> Result<GroupDesc> {
        self.group(group)?.lock().desc().copied()
    }

    /// First block of a group's inode table; waits for no lock.
    pub fn inode_table(&self, group: GroupNr) -> Result<BlockNr> {
        let found = self.group(group)?;
        match found.inode_table() {
            Some(block) => Ok(block),
            None => Err(found
                .lock()
                .desc()
                .err()
                .unwrap_or_else(|| FsError::corrupt("bad group descriptor"))),
        }
    }

    /// Writes the counters into the superblock (1 credit).
    pub fn flush_super(&self, h: &mut Handle, cell: &SuperCell) -> Result<()> {
        let now = self.block_counters();
        cell.update(h, |sb| {
            sb.free_blocks_count = now.free_on_disk;
            sb.free_inodes_count = u32::try_from(now.free_inodes).unwrap_or(u32::MAX);
            // `tune2fs -r` may have changed it on the device.
            self.keep_for_root(sb.r_blocks_count);
        })
    }
}

impl Allocator {
    fn group(&self, nr: GroupNr) -> Result<&group::Group> {
        self.table.get(&self.journal, nr)
    }

    fn report(&self, e: &FsError) {
        if let Some(Report(f)) = &self.opts.report {
            f(e);
        }
    }
}

/// Clusters that are kept for root.
fn kept_clusters(geo: &Geometry, sb: &Superblock) -> u64 {
    sb.r_blocks_count / u64::from(geo.cluster_ratio)
}

/// Free clusters and inodes, summed over all descriptors that can be decoded.
fn sum(geo: &Geometry, journal: &Journal) -> Result<(u64, u64)> {
    let (mut blocks, mut inodes) = (0, 0);
    table::each_desc(geo, journal, &mut |desc| {
        if let Ok(desc) = desc {
            blocks += u64::from(desc.free_blocks);
            inodes += u64::from(desc.free_inodes);
        }
    })?;
    Ok((blocks, inodes))
}
