//! Loads bitmaps, initializes those of UNINIT groups, and writes descriptors.
//!
//! A bitmap is good if its checksum is right (metadata_csum), all fixed metadata in the group is
//! marked as used, and it has as many free blocks as the descriptor says. Else the group is bad.
//!
//! UNINIT groups (uninit_bg, metadata_csum): the bitmap's block holds arbitrary bytes. In memory
//! the bitmap is initialized with only fixed metadata used and all inodes free (so the first group
//! cannot be UNINIT). The first change writes it through a buffer that was never read, with ones
//! behind the last real bit, and clears the flag in the descriptor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_block::BlockNr;
use extol_jbd2::{Buf, Handle};
use extol_ondisk::{GroupDesc, GroupFlags, bitmap};
use extol_vfs::{FsError, Result};

use super::Allocator;
use super::bits::{Bits, Span};
use super::group::{BlockMap, Group, Home, InodeMap, State};
use crate::error;

impl Allocator {
    /// True if the flag is set and the volume has the feature.
    pub(super) fn is_uninit(&self, desc: &GroupDesc, flag: GroupFlags) -> bool {
        self.geo.has_gdt_csum() && desc.flags.contains(flag)
    }

    /// The first group has the root and the reserved inodes: it was used when the volume was made.
    fn check_first(&self, group: &Group, desc: &GroupDesc, flag: GroupFlags) -> Result<()> {
        if group.nr.0 == 0 && self.is_uninit(desc, flag) {
            return Err(FsError::corrupt("the first block group is marked as never used"));
        }
        Ok(())
    }

    /// Makes sure that the group's block bitmap is in memory and good.
    pub(super) fn load_blocks(&self, group: &Group, state: &mut State) -> Result<()> {
        group.recent.store(true, Ordering::Relaxed);
        if let Some(e) = &state.bad_blocks {
            return Err((**e).clone());
        }
        if state.blocks.is_some() {
            return Ok(());
        }
        match self.read_block_map(group, state) {
            Ok(map) => {
                let longest = map.busy.largest().len;
                group.longest.store(longest, Ordering::Relaxed);
                group.row.blocks.raise(longest);
                state.blocks = Some(Box::new(map));
                if state.inodes.is_none() {
                    self.table.came_in(group.nr);
                }
                Ok(())
            }
            Err(e) => Err(self.spoil_blocks(group, state, e)),
        }
    }

    fn read_block_map(&self, group: &Group, state: &mut State) -> Result<BlockMap> {
        let mut desc = *state.desc()?;
        let bits = self.geo.group_clusters(group.nr);
        self.check_first(group, &desc, GroupFlags::BLOCK_UNINIT)?;
        let zones = self.table.zones(&self.journal, group.nr, &desc);
        let mut busy = if self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
            let mut busy = Bits::zeros(bits);
            zones.iter().for_each(|&zone| busy.set(zone));
            let free = busy.count_zeros();
            if free != desc.free_blocks {
                self.space.correct(u64::from(desc.free_blocks), u64::from(free));
                group.free.store(free, Ordering::Relaxed);
                desc.free_blocks = free;
                state.set_desc(desc);
            }
            busy
        } else {
            let bad = |what: &str| {
                FsError::corrupt(format!("block bitmap of group {}: {what}", group.nr.0))
                    .at_block(desc.block_bitmap)
            };
            let buf = self.journal.read(BlockNr(desc.block_bitmap)).map_err(error::journal)?;
            let data = buf.data();
            if !buf.is_verified() {
                if !bitmap::block_bitmap_ok(&self.geo, &desc, &data) {
                    return Err(bad("wrong checksum"));
                }
                buf.set_verified();
            }
            let busy = Bits::from_bytes(&data, bits);
            if !zones.iter().all(|&zone| busy.all_set(zone)) {
                return Err(bad("metadata is not marked as used"));
            }
            let free = busy.count_zeros();
            if free != desc.free_blocks {
                return Err(bad(&format!(
                    "{free} free blocks, but its descriptor says {}",
                    desc.free_blocks
                )));
            }
            busy
        };
        let usable = self.table.usable(group.nr);
        if usable < bits {
            busy.set(Span { start: usable, len: bits - usable });
            group.free.store(busy.count_zeros(), Ordering::Relaxed);
        }
        let first_free = busy.next_zero(0).unwrap_or(bits);
        Ok(BlockMap { busy, zones, taken: 0, pending: 0, first_free, usable, home: None })
    }

    /// Marks the group's block bitmap as bad. Returns the error.
    pub(super) fn spoil_blocks(&self, group: &Group, state: &mut State, why: FsError) -> FsError {
        if state.bad_blocks.is_none() {
            let free = state.desc().map_or(0, |d| u64::from(d.free_blocks));
            self.space.lose(free);
            group.close_blocks();
            state.bad_blocks = Some(Box::new(why.clone()));
            self.report(&why);
        }
        why
    }

    /// Makes sure that the group's inode bitmap is in memory and good.
    pub(super) fn load_inodes(&self, group: &Group, state: &mut State) -> Result<()> {
        group.recent.store(true, Ordering::Relaxed);
        if let Some(e) = &state.bad_inodes {
            return Err((**e).clone());
        }
        if state.inodes.is_some() {
            return Ok(());
        }
        match self.read_inode_map(group, state) {
            Ok(map) => {
                let free = map.busy.count_zeros();
                group.free_inodes.store(free, Ordering::Relaxed);
                group.row.inodes.raise(free);
                state.inodes = Some(Box::new(map));
                if state.blocks.is_none() {
                    self.table.came_in(group.nr);
                }
                Ok(())
            }
            Err(e) => Err(self.spoil_inodes(group, state, e)),
        }
    }

    pub(super) fn read_inode_map(&self, group: &Group, state: &State) -> Result<InodeMap> {
        let desc = *state.desc()?;
        self.check_first(group, &desc, GroupFlags::INODE_UNINIT)?;
        let bits = self.geo.inodes_per_group;
        let mut busy = if self.is_uninit(&desc, GroupFlags::INODE_UNINIT) {
            Bits::zeros(bits)
        } else {
            let buf = self.journal.read(BlockNr(desc.inode_bitmap)).map_err(error::journal)?;
            let data = buf.data();
            if !buf.is_verified() {
                if !bitmap::inode_bitmap_ok(&self.geo, &desc, &data) {
                    let what = format!("inode bitmap of group {}: wrong checksum", group.nr.0);
                    return Err(FsError::corrupt(what).at_block(desc.inode_bitmap));
                }
                buf.set_verified();
            }
            Bits::from_bytes(&data, bits)
        };
        // Reserved inodes are never handed out, also if the bitmap has them as free.
        let before = group.nr.0.saturating_mul(bits);
        let reserved = (self.geo.first_ino.0 - 1).saturating_sub(before).min(bits);
        busy.set(Span { start: 0, len: reserved });
        let first_free = busy.next_zero(0).unwrap_or(bits);
        Ok(InodeMap { busy, pending: BTreeMap::new(), first_free, home: None })
    }

    /// Marks the group's inode bitmap as bad. Returns the error.
    pub(super) fn spoil_inodes(&self, group: &Group, state: &mut State, why: FsError) -> FsError {
        if state.bad_inodes.is_none() {
            group.close_inodes();
            state.bad_inodes = Some(Box::new(why.clone()));
            self.report(&why);
        }
        why
    }

    /// The buffer of the block bitmap, for a change. Initializes the bitmap of an UNINIT group and
    /// clears the flag in `desc`, which the caller writes.
    pub(super) fn open_block_bitmap<'m>(
        &self,
        h: &mut Handle,
        group: &Group,
        desc: &mut GroupDesc,
        zones: &[Span],
        home: &'m mut Home,
    ) -> Result<&'m Arc<Buf>> {
        let block = BlockNr(desc.block_bitmap);
        if !self.is_uninit(desc, GroupFlags::BLOCK_UNINIT) {
            return self.kept(home, block);
        }
        let bits = self.geo.group_clusters(group.nr);
        let buf = h.create(block).map_err(error::journal)?;
        let sum = h.modify(&buf, |bytes| {
            bytes.fill(0);
            zones.iter().for_each(|zone| bitmap::set_range(bytes, zone.start, zone.end()));
            bitmap::set_range(bytes, bits, self.bits_per_block());
            bitmap::block_bitmap_csum(&self.geo, bytes)
        });
        self.put_block_csum(desc, sum.map_err(error::journal)?);
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        Ok(home.insert(buf))
    }

    /// The same for the inode bitmap.
    pub(super) fn open_inode_bitmap<'m>(
        &self,
        h: &mut Handle,
        desc: &mut GroupDesc,
        home: &'m mut Home,
    ) -> Result<&'m Arc<Buf>> {
        let block = BlockNr(desc.inode_bitmap);
        if !self.is_uninit(desc, GroupFlags::INODE_UNINIT) {
            return self.kept(home, block);
        }
        let buf = h.create(block).map_err(error::journal)?;
        h.modify(&buf, |bytes| {
            bytes.fill(0);
            bitmap::set_range(bytes, self.geo.inodes_per_group, self.bits_per_block());
        })
        .map_err(error::journal)?;
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        // An UNINIT group has no used inode; this number may be wrong.
        desc.itable_unused = self.geo.inodes_per_group;
        Ok(home.insert(buf))
    }

    /// The kept buffer; read at the first use.
    fn kept<'m>(&self, home: &'m mut Home, block: BlockNr) -> Result<&'m Arc<Buf>> {
        let buf = match home.take() {
            Some(buf) => buf,
            None => self.journal.read(block).map_err(error::journal)?,
        };
        Ok(home.insert(buf))
    }

    pub(super) fn bits_per_block(&self) -> u32 {
        self.geo.block_size.bytes().saturating_mul(8)
    }

    pub(super) fn put_block_csum(&self, desc: &mut GroupDesc, sum: u32) {
        if self.geo.has_metadata_csum() {
            desc.block_bitmap_csum = sum;
        }
    }

    pub(super) fn put_inode_csum(&self, desc: &mut GroupDesc, sum: u32) {
        if self.geo.has_metadata_csum() {
            desc.inode_bitmap_csum = sum;
        }
    }

    /// Writes a descriptor into its block.
    pub(super) fn write_desc(&self, h: &mut Handle, group: &Group, desc: &GroupDesc) -> Result<()> {
        let (block, at) = self.geo.desc_block(group.nr);
        let home = &group.row.home;
        let buf = match home.get() {
            Some(buf) => buf,
            None => {
                let buf = self.journal.read(block).map_err(error::journal)?;
                home.get_or_init(|| buf)
            }
        };
        h.modify(buf, |bytes| {
            if let Some(slot) = bytes.get_mut(at..at + usize::from(self.geo.desc_size)) {
                desc.encode_into(slot, &self.geo, group.nr);
            }
        })
        .map_err(error::journal)
    }
}
