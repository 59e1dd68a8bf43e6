//! Blocks that an operation reserves before it changes anything.

use extol_vfs::{FsError, Result};

use crate::mounted::MountedFs;

/// Reserved blocks, released when this goes out of scope.
pub(crate) struct Reservation<'a> {
    fs: &'a MountedFs,
    blocks: u64,
}

impl<'a> Reservation<'a> {
    /// Reserves `blocks` blocks, the most that the operation can need. If there are fewer, and
    /// there is no other reservation, as many as there are: the operation then fails only if it
    /// really needs more.
    pub fn make(fs: &'a MountedFs, blocks: u64) -> Result<Self> {
        if fs.reserve(blocks).is_ok() {
            return Ok(Self { fs, blocks });
        }
        let counters = fs.vol.alloc.counters();
        if counters.reserved > 0 {
            return Err(FsError::NoSpace);
        }
        let blocks = blocks.min(counters.free);
        fs.vol.alloc.reserve(blocks, true)?;
        Ok(Self { fs, blocks })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.fs.vol.alloc.unreserve(self.blocks);
    }
}
