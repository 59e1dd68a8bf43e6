//! The resize inode: its map is the reservation of descriptor blocks.
//!
//! ```text
//!   inode 7 ─ double indirect block ─► reserved block behind the primary descriptors
//!                 (slot: its index)      └─► its copies in the groups with a superblock, in order
//! ```
//!
//! All numbers have 32 bits. Nothing else reads this inode.

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::{Compat, Geometry, GroupNr, Inode, InodeNr};
use extol_vfs::{FsError, Result};

use super::ResizeError;
use crate::alloc::Run;
use crate::error;
use crate::mounted::MountedFs;
use crate::volume::Volume;

/// Where the inode holds the double indirect block.
const ROOT: usize = 13;
/// Blocks changed beside the lists: the inode and the double indirect block.
pub(crate) const CREDITS: u32 = 2;

/// The resize inode of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    /// The double indirect block.
    root: BlockNr,
}

fn number(bytes: &[u8], index: usize) -> u32 {
    let word = bytes.get(index * 4..).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn put(bytes: &mut [u8], index: usize, value: u32) {
    if let Some(place) = bytes.as_chunks_mut::<4>().0.get_mut(index) {
        *place = value.to_le_bytes();
    }
}

/// The reserved block behind the primary descriptors with this index.
fn primary(geo: &Geometry, index: u32) -> BlockNr {
    geo.super_block().0.plus(1 + u64::from(index))
}

/// Its copy in another group.
fn copy(geo: &Geometry, index: u32, group: GroupNr) -> Option<u32> {
    let from_group = u64::from(group.0) * u64::from(geo.blocks_per_group);
    u32::try_from(primary(geo, index).0 + from_group).ok()
}

fn damaged() -> ResizeError {
    ResizeError::Refused("the resize inode is damaged: run e2fsck and try again".into())
}

/// What so many blocks of the map add to the count of the inode. (With clusters each counts as a
/// whole one, whatever else lies there.)
fn sectors(geo: &Geometry, blocks: u64) -> u64 {
    geo.cluster_blocks(blocks) * u64::from(geo.block_size.bytes() / 512)
}

impl Reserved {
    /// Reads it and checks the whole map; `None` if the volume has none.
    pub fn read(vol: &Volume) -> std::result::Result<Option<Self>, ResizeError> {
        let geo = &vol.geo;
        if !geo.compat().contains(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let inode = vol.read_inode(InodeNr::RESIZE)?;
        let words = || (0..15).map(|index| number(&inode.i_block, index));
        let root = BlockNr(number(&inode.i_block, ROOT).into());
        let others = words().enumerate().any(|(index, word)| index != ROOT && word != 0);
        if others || inode.mode & 0xF000 != 0x8000 || !geo.is_valid_block(root) {
            return Err(damaged());
        }
        let read = |nr| vol.journal.read(nr).map(|buf| buf.data()).map_err(error::journal);
        let map = read(root)?;
        let slots = geo.block_len() / 4;
        for index in (0..geo.reserved_gdt()).map(|i| geo.desc_blocks() + i) {
            let block = primary(geo, index);
            if u64::from(number(&map, index as usize % slots)) != block.0 {
                return Err(damaged());
            }
            let list = read(block)?;
            let mut copies = geo.backup_groups().map(|group| copy(geo, index, group));
            if !copies.by_ref().enumerate().all(|(at, nr)| nr == Some(number(&list, at))) {
                return Err(damaged());
            }
        }
        Ok(Some(Self { root }))
    }

    fn change(vol: &Volume, h: &mut Handle, f: impl FnOnce(&mut Inode)) -> Result<()> {
        vol.modify_inode(h, InodeNr::RESIZE, f)
    }

    /// The first reserved block becomes a descriptor block: it and its copies leave the map.
    /// `geo` is the volume before.
    pub fn take(self, vol: &Volume, h: &mut Handle, geo: &Geometry) -> Result<()> {
        let buf = vol.journal.read(self.root).map_err(error::journal)?;
        let slot = geo.desc_blocks() as usize % (geo.block_len() / 4);
        h.modify(&buf, |map| put(map, slot, 0)).map_err(error::journal)?;
        let freed = sectors(geo, 1 + geo.backup_groups().count() as u64);
        Self::change(vol, h, |inode| inode.blocks = inode.blocks.saturating_sub(freed))
    }

    /// Groups with superblock copies are added: their reserved blocks come into the map, behind
    /// those of the `before` copies that there are. `geo` is the volume with them.
    pub fn add_copies(
        self,
        vol: &Volume,
        h: &mut Handle,
        geo: &Geometry,
        (before, new): (usize, &[GroupNr]),
    ) -> Result<()> {
        let bad = || FsError::Invalid("reserved descriptors would lie beyond 2^32 blocks");
        for index in (0..geo.reserved_gdt()).map(|i| geo.desc_blocks() + i) {
            let buf = vol.journal.read(primary(geo, index)).map_err(error::journal)?;
            let numbers = new.iter().map(|group| copy(geo, index, *group).ok_or_else(bad));
            let numbers = numbers.collect::<Result<Vec<_>>>()?;
            h.modify(&buf, |list| {
                for (at, nr) in (before..).zip(&numbers) {
                    put(list, at, *nr);
                }
            })
            .map_err(error::journal)?;
        }
        let added = sectors(geo, u64::from(geo.reserved_gdt()) * new.len() as u64);
        Self::change(vol, h, |inode| inode.blocks = inode.blocks.saturating_add(added))
    }

    /// A copy is left by the map, in which another one has its place.
    pub fn lose_copy(self, geo: &Geometry, vol: &Volume, h: &mut Handle) -> Result<()> {
        let freed = sectors(geo, geo.reserved_gdt().into());
        Self::change(vol, h, |inode| inode.blocks = inode.blocks.saturating_sub(freed))
    }

    /// How many lists [`cut`](Self::cut) changes.
    pub fn lists_cut(geo: &Geometry, smaller: &Geometry) -> u32 {
        Self::changed_lists(geo, smaller).count() as u32
    }

    /// The lists that the cut changes: those of blocks that were descriptors, and all if copies go.
    fn changed_lists(geo: &Geometry, smaller: &Geometry) -> impl Iterator<Item = u32> + use<> {
        let kept = smaller.desc_blocks()..smaller.desc_blocks() + smaller.reserved_gdt();
        let fewer = smaller.backup_groups().count() != geo.backup_groups().count();
        let before = geo.desc_blocks();
        kept.filter(move |index| fewer || *index < before)
    }

    /// The volume is cut: descriptor blocks of no more use are reserved, those that are too many
    /// are not any more, and copies in groups that go leave the lists. `geo` is the volume before.
    pub fn cut(
        self,
        vol: &Volume,
        h: &mut Handle,
        (geo, smaller): (&Geometry, &Geometry),
    ) -> Result<()> {
        let slots = geo.block_len() / 4;
        let copies = smaller.backup_groups().count();
        let kept = smaller.desc_blocks()..smaller.desc_blocks() + smaller.reserved_gdt();
        let map = vol.journal.read(self.root).map_err(error::journal)?;
        h.modify(&map, |map| {
            map.fill(0);
            for index in kept {
                // (All of its numbers have 32 bits, as read.)
                put(map, index as usize % slots, primary(geo, index).0 as u32);
            }
        })
        .map_err(error::journal)?;
        for index in Self::changed_lists(geo, smaller) {
            let bad = || FsError::Invalid("reserved descriptors would lie beyond 2^32 blocks");
            let numbers = smaller.backup_groups().map(|nr| copy(geo, index, nr).ok_or_else(bad));
            let numbers = numbers.collect::<Result<Vec<_>>>()?;
            let list = vol.journal.read(primary(geo, index)).map_err(error::journal)?;
            h.modify(&list, |list| {
                list.fill(0);
                numbers.iter().enumerate().for_each(|(at, nr)| put(list, at, *nr));
            })
            .map_err(error::journal)?;
        }
        let blocks = u64::from(smaller.reserved_gdt()) * (1 + copies as u64) + 1;
        Self::change(vol, h, |inode| inode.blocks = sectors(geo, blocks))
    }

    /// Where the double indirect block lies.
    pub fn root(self) -> BlockNr {
        self.root
    }

    /// Moves the double indirect block to a block that was taken. Credits: [`CREDITS`] and 4.
    pub fn move_root(self, vol: &Volume, h: &mut Handle, to: Run) -> Result<()> {
        let bytes = vol.journal.read(self.root).map_err(error::journal)?.data();
        vol.alloc.commit_take(h, to)?;
        let new = h.create(to.start).map_err(error::journal)?;
        h.modify(&new, |place| place.copy_from_slice(&bytes)).map_err(error::journal)?;
        h.forget(self.root, true).map_err(error::journal)?;
        vol.alloc.free(h, Run { start: self.root, len: 1 })?;
        let nr = u32::try_from(to.start.0).map_err(|_| FsError::NoSpace)?;
        Self::change(vol, h, |inode| put(&mut inode.i_block, ROOT, nr))
    }

    /// The feature goes: the map is empty by now but for its root, which becomes free.
    pub fn remove(self, fs: &MountedFs, h: &mut Handle) -> Result<()> {
        h.forget(self.root, true).map_err(error::journal)?;
        fs.vol.alloc.free(h, Run { start: self.root, len: 1 })?;
        Self::change(&fs.vol, h, |inode| {
            inode.i_block = [0; extol_ondisk::inode::I_BLOCK_LEN];
            inode.blocks = 0;
        })
    }
}

/// True if all numbers that [`Reserved::add_copies`] writes fit: into 32 bits, and into the lists.
pub(super) fn has_room(geo: &Geometry, new: &[GroupNr]) -> bool {
    let last = geo.desc_blocks() + geo.reserved_gdt();
    geo.backup_groups().count() <= geo.block_len() / 4
        && new.iter().all(|group| copy(geo, last, *group).is_some())
}
