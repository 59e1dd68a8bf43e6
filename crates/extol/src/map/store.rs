//! What a block map needs of the volume: tree blocks, free blocks, credits.
//!
//! The mapping code uses these traits, so tests drive it without a device, with errors and
//! shortages at any point. [`Reader`] and [`Writer`] implement them with the block cache, handles
//! and the allocator of an open volume.

use std::sync::Arc;

use extol_block::{BlockNr, BlockSize};
use extol_jbd2::{Buf, Handle};
use extol_ondisk::{Geometry, InodeNr, InodeSeed};
use extol_vfs::{FsError, Result};

use crate::alloc::Run;
use crate::error;
use crate::node::Node;
use crate::quota::usage::Ids;
use crate::volume::Volume;

/// Numbers of the volume and the inode that the mapping code computes with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes in a block.
    pub block_size: BlockSize,
    /// First block that may hold anything of a file.
    pub first: u64,
    /// Number of blocks of the volume.
    pub blocks: u64,
    /// Blocks in a group.
    pub group: u64,
    /// Blocks in a cluster, a power of two.
    pub ratio: u32,
    /// Seed of tree blocks' checksums, if the volume has metadata_csum.
    pub seed: Option<InodeSeed>,
}

impl Shape {
    /// The numbers for an inode of a volume.
    pub fn of(geo: &Geometry, node: &Node) -> Self {
        Self {
            block_size: geo.block_size,
            first: geo.first_data_block,
            blocks: geo.blocks(),
            group: u64::from(geo.blocks_per_group).max(1),
            ratio: geo.cluster_ratio,
            seed: geo.has_metadata_csum().then(|| geo.fs_seed.inode(node.ino, node.raw.generation)),
        }
    }

    /// True if all blocks of the range lie on the volume.
    pub fn holds(&self, start: u64, len: u64) -> bool {
        start > 0
            && start >= self.first
            && start.checked_add(len).is_some_and(|end| end <= self.blocks)
    }

    /// 512-byte units in a cluster.
    pub fn sectors(&self) -> u64 {
        u64::from(self.block_size.bytes() / 512) * u64::from(self.ratio)
    }

    /// How many groups the range touches.
    pub fn groups(&self, start: u64, len: u64) -> u64 {
        let last = start.saturating_add(len.max(1) - 1);
        let group = |nr: u64| nr.saturating_sub(self.first) / self.group;
        group(last) - group(start) + 1
    }

    /// First block of the group that `nr` lies in.
    pub fn group_start(&self, nr: u64) -> u64 {
        let inside = nr.saturating_sub(self.first);
        self.first + (inside - inside % self.group)
    }
}

/// A cached tree block.
pub(super) trait Cached {
    /// A snapshot of its bytes. Drop it before changing the block, or the change has to copy.
    fn bytes(&self) -> Arc<Vec<u8>>;
    /// True if the bytes were checked since they were read.
    fn is_verified(&self) -> bool;
    /// Marks the bytes as checked.
    fn set_verified(&self);
}

/// Read access to tree blocks.
pub(super) trait Store {
    /// A cached block.
    type Block: Cached;
    /// Numbers.
    fn shape(&self) -> &Shape;
    /// Reads a block; the number need not have been checked.
    fn read(&self, nr: BlockNr) -> Result<Arc<Self::Block>>;
}

/// Changes within one transaction.
pub(super) trait StoreMut: Store {
    /// Changes a block; the closure leaves its checksum right.
    fn modify(&mut self, block: &Arc<Self::Block>, f: impl FnOnce(&mut [u8])) -> Result<()>;
    /// A new block of zeros, verified, already in the transaction.
    fn create(&mut self, nr: BlockNr) -> Result<Arc<Self::Block>>;
    /// The block no longer belongs to this file; `revoke` if the log may hold copies of it.
    fn forget(&mut self, nr: BlockNr, revoke: bool) -> Result<()>;
    /// Takes one block for a tree node.
    fn alloc(&mut self, goal: BlockNr) -> Result<BlockNr>;
    /// Frees the clusters that the blocks lie in.
    fn free(&mut self, start: u64, len: u32) -> Result<()>;
    /// Where tree blocks go when the tree has none yet.
    fn inode_goal(&self) -> BlockNr;
    /// Makes sure that `credits` are left; false if the transaction has no more.
    fn reserve(&mut self, credits: u32) -> Result<bool>;
}

impl Cached for Buf {
    fn bytes(&self) -> Arc<Vec<u8>> {
        self.data()
    }

    fn is_verified(&self) -> bool {
        Buf::is_verified(self)
    }

    fn set_verified(&self) {
        Buf::set_verified(self);
    }
}

/// A volume, for reading one inode's map.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    vol: &'a Volume,
    shape: Shape,
}

impl<'a> Reader<'a> {
    /// For the map of `node`.
    pub fn new(vol: &'a Volume, node: &Node) -> Self {
        Self { vol, shape: Shape::of(&vol.geo, node) }
    }
}

impl Store for Reader<'_> {
    type Block = Buf;

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read(&self, nr: BlockNr) -> Result<Arc<Buf>> {
        if !self.shape.holds(nr.0, 1) {
            return Err(FsError::corrupt("block map points outside the volume").at_block(nr.0));
        }
        self.vol.journal.read(nr).map_err(error::journal)
    }
}

/// A volume and a handle, for changing one inode's map.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    reader: Reader<'a>,
    h: &'a mut Handle,
    ino: InodeNr,
    /// The owners whose limits must allow tree blocks.
    pub limited: Option<Ids>,
}

impl<'a> Writer<'a> {
    /// For the map of `node`; tree blocks come without a look at limits.
    pub fn new(vol: &'a Volume, h: &'a mut Handle, node: &Node) -> Self {
        Self { reader: Reader::new(vol, node), h, ino: node.ino, limited: None }
    }
}

impl Store for Writer<'_> {
    type Block = Buf;

    fn shape(&self) -> &Shape {
        &self.reader.shape
    }

    fn read(&self, nr: BlockNr) -> Result<Arc<Buf>> {
        // It may be changed.
        self.reader.vol.alloc.check_not_system(Run { start: nr, len: 1 })?;
        self.reader.read(nr)
    }
}

impl StoreMut for Writer<'_> {
    fn modify(&mut self, block: &Arc<Buf>, f: impl FnOnce(&mut [u8])) -> Result<()> {
        self.h.modify(block, f).map_err(error::journal)
    }

    fn create(&mut self, nr: BlockNr) -> Result<Arc<Buf>> {
        self.h.create(nr).map_err(error::journal)
    }

    fn forget(&mut self, nr: BlockNr, revoke: bool) -> Result<()> {
        self.h.forget(nr, revoke).map_err(error::journal)
    }

    fn alloc(&mut self, goal: BlockNr) -> Result<BlockNr> {
        if let Some(ids) = self.limited {
            self.reader.vol.promise_block(self.ino, ids)?;
        }
        self.reader.vol.alloc.alloc_meta(self.h, goal)
    }

    fn free(&mut self, start: u64, len: u32) -> Result<()> {
        self.reader.vol.alloc.free(self.h, Run { start: BlockNr(start), len })
    }

    fn inode_goal(&self) -> BlockNr {
        self.reader.vol.alloc.meta_goal(self.ino)
    }

    fn reserve(&mut self, credits: u32) -> Result<bool> {
        let left = self.h.credits();
        if left >= credits {
            return Ok(true);
        }
        self.h.extend(credits - left).map_err(error::journal)
    }
}
