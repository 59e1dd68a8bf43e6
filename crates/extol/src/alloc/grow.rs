//! The volume grows: the last group gets more blocks, or groups are added.
//!
//! What is on the device changes in the caller's handle. What is in memory is published at the same
//! time (`extol_ondisk::geometry`): other threads may take new blocks at once, in the same
//! transaction or a later one.

use extol_jbd2::Handle;
use extol_ondisk::{Geometry, GroupNr, bitmap};
use extol_vfs::Result;

use super::Allocator;
use super::bits::Span;
use crate::error;

impl Allocator {
    /// The last group becomes as long as it is in `larger`, where all else is as it was. Costs 2
    /// credits: bitmap and descriptor block.
    pub fn extend_last(&self, h: &mut Handle, larger: &Geometry) -> Result<()> {
        let nr = GroupNr(self.geo.groups() - 1);
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_blocks(group, &mut state)?;
        let (mut desc, map) = state.parts()?;
        let (from, to) = (self.geo.group_clusters(nr), larger.group_clusters(nr));
        let buf = self.open_block_bitmap(h, group, &mut desc, &map.zones, &mut map.home)?;
        let sum = h.modify(buf, |bytes| {
            bitmap::clear_range(bytes, from, to);
            bitmap::block_bitmap_csum(&self.geo, bytes)
        });
        self.put_block_csum(&mut desc, sum.map_err(error::journal)?);
        let added = Span { start: from, len: to.saturating_sub(from) };
        desc.free_blocks = desc.free_blocks.saturating_add(added.len);
        self.write_desc(h, group, &desc)?;
        map.busy.lengthen(to);
        self.geo.grow_to(larger);
        group.mark_free(map, added);
        state.set_desc(desc);
        self.space.add(added.len.into(), 0);
        Ok(())
    }

    /// `larger` has more groups, whose descriptors are written. `free`: their blocks and inodes.
    pub fn add_groups(&self, larger: &Geometry, free: (u64, u64)) -> Result<()> {
        let before = self.geo.groups();
        self.geo.grow_to(larger);
        self.table.grown(&self.journal, before)?;
        self.space.add(free.0, free.1);
        Ok(())
    }
}
