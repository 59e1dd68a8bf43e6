//! Bitmaps of UNINIT groups, written for a volume that loses the checksums of its descriptors: the
//! flag goes with them.

use extol_jbd2::Handle;
use extol_ondisk::{GroupFlags, GroupNr, bitmap};
use extol_vfs::Result;

use super::Allocator;

impl Allocator {
    /// Credits of [`initialise`](Self::initialise): two bitmaps and the descriptor.
    pub const INITIALISE_CREDITS: u32 = 3;

    /// Writes the bitmaps of a group that were never written. The group says so then.
    pub fn initialise(&self, h: &mut Handle, nr: GroupNr) -> Result<()> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        let desc = *state.desc()?;
        let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        if !self.geo.has_gdt_csum() || !desc.flags.intersects(uninit) {
            return Ok(());
        }
        self.load_blocks(group, &mut state)?;
        let mut desc = *state.desc()?;
        let zones = self.table.zones(&self.journal, nr, &desc);
        self.open_block_bitmap(h, group, &mut desc, &zones, &mut None)?;
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut home = None;
            let buf = self.open_inode_bitmap(h, &mut desc, &mut home)?;
            let sum = bitmap::inode_bitmap_csum(&self.geo, &buf.data());
            self.put_inode_csum(&mut desc, sum);
        }
        state.set_desc(desc);
        self.write_desc(h, group, &desc)
    }
}
