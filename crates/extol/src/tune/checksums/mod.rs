//! Checksums come or go: `metadata_csum`, of all metadata, and `uninit_bg`, of descriptors only.
//!
//! A checksum of a block, an inode or a leaf stands where a volume without the feature has nothing.
//! So they are written while the volume is without it, in transactions of their own (`blocks.rs`,
//! `inodes.rs`), and mean nothing yet. What the feature changes the meaning of is in the
//! transaction with the superblock:
//!
//! ```text
//!   on    room in full leaves ─► tails of leaves, extent blocks, attribute blocks, inodes ─┐
//!   off   bitmaps and inode tables of groups that never had any (no descriptor checksums)  ┤
//!                                                                                          ▼
//!         one transaction: superblock, all descriptors, index nodes of directories (their limits),
//!                          blocks of the orphan file
//! ```
//!
//! After a crash before the last transaction the volume is without the change, sound, and the
//! request can be repeated; from then on recovery completes it (TU-1). What has been written before
//! is written again by a repeat.
//!
//! Switched off, checksums stay where they are and are not looked at: a tail is an unused entry.
//! But in the orphan file e2fsck wants zeros instead. The block of multi-mount protection, which is
//! in no transaction, gets its checksum with those that mean nothing yet (`mmp.rs`).
//!
//! Invariants
//! - TC-1: no block changes its meaning for a volume without the feature before the last
//!   transaction.
//! - TC-2: nothing is written between the checksum of a block and the last transaction that changes
//!   the block: inodes come behind all that changes inodes, and descriptors last.

mod blocks;
mod inodes;
mod plan;

use std::sync::atomic::AtomicBool;

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::{
    Geometry, GroupDesc, GroupFlags, GroupNr, InodeNr, InodeSeed, RoCompat, Superblock, bitmap,
    orphan_file,
};
use extol_vfs::{FsError, Result as FsResult};

use super::{Result, refuse};
use crate::alloc::Allocator;
use crate::dir::IndexNode;
use crate::error;
use crate::fast_commit::{self, Delta, Reason};
use crate::mounted::MountedFs;
use crate::services::lazy_init;

/// What has checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Covered {
    Nothing,
    Descriptors,
    All,
}

impl Covered {
    pub fn of(sb: &Superblock) -> Self {
        let has = |bit| sb.feature_ro_compat.contains(bit);
        match (has(RoCompat::METADATA_CSUM), has(RoCompat::UNINIT_BG)) {
            (true, _) => Self::All,
            (false, true) => Self::Descriptors,
            (false, false) => Self::Nothing,
        }
    }
}

/// A change of what has checksums.
pub(super) struct Switch {
    from: Covered,
    to: Covered,
    new: Geometry,
    nodes: usize,
    /// The orphan file, if its checksums change.
    orphans: Vec<BlockNr>,
}

/// What the last transaction changes beside superblock and descriptors.
pub(super) struct Ready {
    nodes: Vec<(IndexNode, Option<InodeSeed>)>,
}

impl Switch {
    /// What a new superblock asks for. Nothing is written.
    pub fn plan(fs: &MountedFs, sb: &Superblock) -> Result<Option<Self>> {
        let from = fs.sb.read(Covered::of);
        let to = Covered::of(sb);
        if from == to {
            return Ok(None);
        }
        let new = Geometry::new(sb, None).map_err(error::ondisk)?;
        let orphans = match from == Covered::All || to == Covered::All {
            true => fs.orphans.file_blocks(),
            false => Vec::new(),
        };
        let mut switch = Self { from, to, new, nodes: 0, orphans };
        switch.nodes = switch.index(fs)?.nodes.len();
        Ok(Some(switch))
    }

    /// Credits of [`finish`](Self::finish).
    pub fn credits(&self, fs: &MountedFs) -> u32 {
        let others = u32::try_from(self.nodes + self.orphans.len()).unwrap_or(u32::MAX);
        fs.vol.geo.desc_blocks().saturating_add(others)
    }

    /// The nodes of all indexes, where they change.
    fn index(&self, fs: &MountedFs) -> Result<Ready> {
        let mut nodes = Vec::new();
        if (self.from == Covered::All) != (self.to == Covered::All) {
            let all = self.to == Covered::All;
            inodes::each_directory(fs, &mut |dir| {
                let seed = all.then(|| self.new.fs_seed.inode(dir.ino, dir.raw.generation));
                let (found, _) = crate::dir::parts(&fs.vol, dir)?;
                nodes.extend(found.into_iter().map(|node| (node, seed, dir.ino)));
                Ok(())
            })?;
        }
        if let Some((_, _, ino)) = nodes.iter().find(|(node, ..)| !node.fits(&self.new)) {
            return refuse(format!(
                "the index of directory {ino} is full and has no room for a checksum: add a file \
                 to it, or let e2fsck -fD write it anew"
            ));
        }
        Ok(Ready { nodes: nodes.into_iter().map(|(node, seed, _)| (node, seed)).collect() })
    }

    /// Writes all that means nothing yet.
    pub fn prepare(&mut self, fs: &MountedFs) -> Result<Ready> {
        if self.to == Covered::Nothing {
            settle(fs)?;
        }
        if self.to == Covered::All {
            blocks::write(fs, &self.new)?;
            inodes::write(fs, &self.new)?;
            super::mmp::add_checksum(fs, &self.new)?;
        }
        let ready = self.index(fs)?;
        self.nodes = ready.nodes.len();
        Ok(ready)
    }

    /// The rest, in the transaction with the superblock.
    pub fn finish(&self, fs: &MountedFs, h: &mut Handle, ready: &Ready) -> FsResult<()> {
        for (node, seed) in &ready.nodes {
            node.convert(&fs.vol, h, &self.new, *seed)?;
        }
        if let Some(ino) = fs.orphans.file_inode() {
            let seed = self.new.fs_seed.inode(ino, fs.vol.read_inode(ino)?.generation);
            self.orphans.iter().try_for_each(|nr| self.orphan_block(fs, h, *nr, seed))?;
        }
        super::descriptors(fs, h, &self.new, &|desc| self.descriptor(fs, desc))
    }

    fn orphan_block(
        &self,
        fs: &MountedFs,
        h: &mut Handle,
        nr: BlockNr,
        seed: InodeSeed,
    ) -> FsResult<()> {
        let buf = fs.vol.journal.read(nr).map_err(error::journal)?;
        h.modify(&buf, |block| match self.to {
            Covered::All => orphan_file::set_csum(block, nr, seed),
            _ => orphan_file::clear_csum(block),
        })
        .map_err(error::journal)
    }

    /// What becomes of a descriptor. Bitmaps have checksums in it.
    fn descriptor(&self, fs: &MountedFs, desc: &mut GroupDesc) -> FsResult<()> {
        match (self.from, self.to) {
            (_, Covered::Nothing) => (desc.flags, desc.itable_unused) = (GroupFlags::empty(), 0),
            // (All slots of all tables were looked at up to now.)
            (Covered::Nothing, _) => {
                (desc.flags, desc.itable_unused) = (GroupFlags::INODE_ZEROED, 0);
            }
            _ => {}
        }
        (desc.block_bitmap_csum, desc.inode_bitmap_csum) = (0, 0);
        if self.to != Covered::All {
            return Ok(());
        }
        let read = |block| -> FsResult<_> {
            Ok(fs.vol.journal.read(BlockNr(block)).map_err(error::journal)?.data())
        };
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            desc.block_bitmap_csum =
                bitmap::block_bitmap_csum(&self.new, &read(desc.block_bitmap)?);
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            desc.inode_bitmap_csum =
                bitmap::inode_bitmap_csum(&self.new, &read(desc.inode_bitmap)?);
        }
        Ok(())
    }
}

/// A transaction of a step.
fn step<T>(
    fs: &MountedFs,
    credits: u32,
    work: impl FnOnce(&mut Handle) -> FsResult<T>,
) -> FsResult<T> {
    fs.transact(credits, |h| {
        fast_commit::note(h, Delta::AllIneligible { reason: Reason::Attributes });
        work(h)
    })
}

/// Writes the bitmaps and the inode tables that were never written.
fn settle(fs: &MountedFs) -> FsResult<()> {
    for nr in (0..fs.vol.geo.groups()).map(GroupNr) {
        lazy_init::zero_now(fs, nr, &AtomicBool::new(false))?;
        step(fs, Allocator::INITIALISE_CREDITS, |h| fs.vol.alloc.initialise(h, nr))?;
    }
    Ok(())
}

/// The slots of a group's inode table that may hold inodes.
fn used_slots(fs: &MountedFs, nr: GroupNr) -> FsResult<std::ops::Range<u32>> {
    let geo = &fs.vol.geo;
    let desc = fs.vol.alloc.group_desc(nr)?;
    let used = match geo.has_gdt_csum() {
        true if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
        true => geo.inodes_per_group.saturating_sub(desc.itable_unused),
        false => geo.inodes_per_group,
    };
    let first = nr.0 * geo.inodes_per_group + 1;
    Ok(first..first + used)
}

/// An inode that is in use but cannot be.
fn broken(ino: InodeNr) -> FsError {
    FsError::corrupt("inode that cannot be read").in_inode(u64::from(ino.0))
}
