//! Writes what lies behind the end of a volume that grows, before any transaction names it (RZ-1):
//! bitmaps, inode tables that nothing says are unused, and copies of superblock and descriptors.
//!
//! Several steps are written together, so that one flush is enough for all of them. A copy of a
//! descriptor block has what the steps before it in the batch put into the block.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use extol_block::{BlockDevice, BlockNr, DeviceError};
use extol_jbd2::planted;
use extol_ondisk::{Geometry, GroupNr, Superblock};
use extol_vfs::{FsError, Result};

use super::backups;
use super::plan::groups::NewGroup;
use super::plan::{self, Planned, Step};
use crate::error;
use crate::mounted::MountedFs;
use crate::volume::Volume;

/// True if new inode tables are zeroed at once: nothing says that they are not, or it costs
/// nothing. (Else lazy initialisation does it.)
pub(super) fn zeroes_tables(vol: &Volume, geo: &Geometry) -> bool {
    !geo.has_gdt_csum() || vol.dev.discard_zeroes()
}

/// About how many bytes a step writes.
pub(super) fn bytes(vol: &Volume, planned: &Planned) -> u64 {
    let Step::Groups { groups, .. } = &planned.step else { return 0 };
    let geo = &planned.geo;
    let zeros = zeroes_tables(vol, geo) && !vol.dev.discard_zeroes();
    let tables = if zeros { u64::from(geo.inode_table_blocks) } else { 0 };
    let blocks = |group: &NewGroup| tables + u64::from(geo.base_meta_blocks(group.nr)) + 1;
    groups.iter().map(blocks).sum::<u64>() << geo.block_size.bits()
}

/// Writes what the steps need, durably.
pub(super) fn write(fs: &MountedFs, batch: &[Planned]) -> Result<()> {
    let mut writer = Writer { fs, descs: HashMap::new() };
    let mut wrote = false;
    for planned in batch {
        if let Step::Groups { groups, .. } = &planned.step {
            writer.step(planned, groups)?;
            wrote = true;
        }
    }
    let wrote = wrote && !planted::has(planted::Bug::GroupsNotFlushed);
    if wrote { fs.vol.dev.flush().map_err(|e| io(&e)) } else { Ok(()) }
}

fn io(e: &DeviceError) -> FsError {
    FsError::Io(e.to_string())
}

/// Puts the new groups that a descriptor block holds into it.
pub(super) fn put_descs(geo: &Geometry, groups: &[NewGroup], zeroed: bool, bytes: &mut [u8]) {
    for group in groups {
        let (_, at) = geo.desc_block(group.nr);
        if let Some(slot) = bytes.get_mut(at..at + usize::from(geo.desc_size)) {
            group.desc(geo, zeroed).encode_into(slot, geo, group.nr);
        }
    }
}

/// A batch that is being written.
struct Writer<'a> {
    fs: &'a MountedFs,
    /// Descriptor blocks, by their place in the table, with the new groups so far.
    descs: HashMap<u32, Vec<u8>>,
}

impl Writer<'_> {
    fn step(&mut self, planned: &Planned, groups: &[NewGroup]) -> Result<()> {
        let geo = &planned.geo;
        let zeroed = zeroes_tables(&self.fs.vol, geo);
        if let Some(first) = groups.first() {
            // They share a descriptor block.
            let descs = self.desc_block(geo, first.nr.0 / geo.descs_per_block())?;
            put_descs(geo, groups, zeroed, descs);
        }
        if zeroed {
            self.zero_tables(geo, groups)?;
        }
        for group in groups {
            if group.has_block_bitmap(geo) {
                self.put(geo, group.block_bitmap, &group.block_bits(geo))?;
            }
            if group.has_inode_bitmap(geo) {
                self.put(geo, group.inode_bitmap, &group.inode_bits(geo))?;
            }
            self.copies(planned, group.nr)?;
        }
        Ok(())
    }

    fn put(&self, geo: &Geometry, at: u64, bytes: &[u8]) -> Result<()> {
        let at = BlockNr(at).offset(geo.block_size);
        self.fs.vol.dev.write_at(bytes, at).map_err(|e| io(&e))
    }

    /// Zeroes the inode tables; neighbours together.
    fn zero_tables(&self, geo: &Geometry, groups: &[NewGroup]) -> Result<()> {
        let len = u64::from(geo.inode_table_blocks);
        let mut tables: Vec<u64> = groups.iter().map(|group| group.inode_table).collect();
        tables.sort_unstable();
        for run in tables.chunk_by(|a, b| a + len == *b) {
            let Some(first) = run.first() else { continue };
            let bytes = (len * run.len() as u64) << geo.block_size.bits();
            let start = BlockNr(*first).offset(geo.block_size);
            self.fs.vol.dev.zero_range(start, bytes).map_err(|e| io(&e))?;
        }
        Ok(())
    }

    /// The superblock, descriptors and reserved blocks at the start of a new group.
    fn copies(&mut self, planned: &Planned, nr: GroupNr) -> Result<()> {
        let geo = &planned.geo;
        let first = geo.group_first_block(nr);
        let base = u64::from(geo.base_meta_blocks(nr));
        let descs = u64::from(geo.group_desc_blocks(nr));
        let has_super = geo.has_super(nr);
        let reserved = u64::from(has_super) + descs..base;
        if !reserved.is_empty() {
            let start = first.plus(reserved.start).offset(geo.block_size);
            let len = (reserved.end - reserved.start) << geo.block_size.bits();
            self.fs.vol.dev.zero_range(start, len).map_err(|e| io(&e))?;
        }
        if has_super {
            let mut sb = self.fs.sb.read(Superblock::clone);
            plan::apply(&mut sb, &planned.sb);
            self.put(geo, first.0, &backups::superblock_copy(&sb, geo, nr))?;
        }
        for at in 0..descs {
            let block = first.plus(u64::from(has_super) + at);
            let copied = backups::desc_copies(geo, nr).find(|copy| copy.to == block);
            // One that is no copy is the primary one, placed by meta_bg in this group.
            let index = copied.map_or(nr.0 / geo.descs_per_block(), |copy| copy.index);
            let bytes = self.desc_block(geo, index)?.clone();
            self.put(geo, block.0, &bytes)?;
        }
        Ok(())
    }

    /// A descriptor block with the new groups in it.
    fn desc_block(&mut self, geo: &Geometry, index: u32) -> Result<&mut Vec<u8>> {
        let vol = &self.fs.vol;
        Ok(match self.descs.entry(index) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if index < vol.geo.desc_blocks() => {
                let (block, _) = vol.geo.desc_block(GroupNr(index * vol.geo.descs_per_block()));
                let buf = vol.journal.read(block).map_err(error::journal)?;
                new.insert(buf.data().to_vec())
            }
            Entry::Vacant(new) => new.insert(vec![0; geo.block_len()]),
        })
    }
}
