//! Inode tables that claim to be zeroed. A false claim is no damage (those slots are not read as
//! inodes as long as the descriptors are good), so it is no finding of the check: a function of its
//! own reads it.

use extol_block::SharedDevice;
use extol_ondisk::GroupFlags;

use crate::CheckError;
use crate::bytes::is_zero;
use crate::error::Result;
use crate::open::{places, read_volume};
use crate::report::Findings;

/// Claims about the inode tables of a volume, and their contents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InodeTables {
    /// Groups of the volume; 0 if it keeps no such record.
    pub groups: u32,
    /// Groups whose descriptor claims that the table is zeroed.
    pub claimed: u32,
    /// Of those, the ones where a block without a used inode is not zero.
    pub wrong: Vec<u32>,
    /// Groups that make no such claim, but whose blocks without used inodes are zero all the same.
    pub unclaimed_zero: u32,
}

/// Looks at all inode tables, as they lie: no journal is replayed.
///
/// # Errors
/// If the device cannot be read, or its superblock is not that of a volume.
pub fn inode_tables(device: SharedDevice) -> Result<InodeTables> {
    let Some(mut vol) = read_volume(device, &mut Findings::new(0))? else {
        return Err(CheckError::NoFileSystem("its superblock is damaged".into()));
    };
    places(&mut vol, &mut Findings::new(0));
    let mut seen = InodeTables::default();
    if !vol.geo.has_gdt_csum() {
        return Ok(seen);
    }
    for (nr, group) in (0..).zip(&vol.groups) {
        seen.groups += 1;
        let claimed = group.has(GroupFlags::INODE_ZEROED);
        seen.claimed += u32::from(claimed);
        let used = u64::from(vol.scanned_inodes(nr)) * u64::from(vol.geo.inode_size);
        let first = used.div_ceil(vol.geo.block_len() as u64);
        let mut zero = group.table_ok;
        for block in first..u64::from(vol.geo.inode_table_blocks) {
            zero = zero && is_zero(&vol.block(group.inode_table + block)?);
        }
        if claimed && !zero {
            seen.wrong.push(nr);
        }
        seen.unclaimed_zero += u32::from(!claimed && zero);
    }
    Ok(seen)
}
