//! Multi-mount protection comes or goes: a block, and the superblock that names it.
//!
//! Its block is written in place and durable before the transaction that names it. When it goes,
//! the superblock is at home without it before the block is free: Linux claims the volume as the
//! superblock says before it replays the log, and at the end writes to the block that it claimed. A
//! crash in between leaves one block in use for nothing, which e2fsck -p gives back.

use extol_block::{BlockDevice as _, BlockNr};
use extol_jbd2::Handle;
use extol_ondisk::Superblock;
use extol_ondisk::mmp::{Mmp, SEQ_CLEAN};
use extol_vfs::FsError;

use super::{Result, refuse};
use crate::alloc::Run;
use crate::error;
use crate::mounted::MountedFs;

/// Credits to take or free the block: bitmap and descriptor.
pub(super) const CREDITS: u32 = 2;
/// Shortest interval between checks, in seconds, as mke2fs writes it.
const MIN_CHECK: u16 = 5;

/// A block to be made.
#[derive(Debug)]
pub(super) struct Made {
    block: Run,
    mmp: Mmp,
}

impl Made {
    /// Takes it in memory.
    pub fn plan(fs: &MountedFs, sb: &Superblock) -> Result<Self> {
        let goal = BlockNr(fs.vol.geo.first_data_block);
        let block = match fs.vol.alloc.take(goal, 1, 1) {
            Err(FsError::NoSpace) => return refuse("the volume is full: mmp takes a block"),
            taken => taken?,
        };
        let mut mmp = Mmp {
            seq: SEQ_CLEAN,
            time: fs.now().sec.cast_unsigned(),
            nodename: [0; 64],
            bdevname: [0; 32],
            check_interval: sb.mmp_update_interval.max(MIN_CHECK),
        };
        mmp.bdevname[..5].copy_from_slice(b"extol");
        Ok(Self { block, mmp })
    }

    /// Writes it, durably. Nothing names it yet.
    pub fn write(&self, fs: &MountedFs) -> std::result::Result<(), FsError> {
        let (vol, geo) = (&fs.vol, &fs.vol.geo);
        let mut bytes = vec![0; geo.block_len()];
        self.mmp.encode_into(&mut bytes, geo);
        vol.journal.forget_clean(self.block.start, 1);
        let place = self.block.start.offset(geo.block_size);
        vol.dev.write_fua(&bytes, place).map_err(error::device)
    }

    /// Marks it as used.
    pub fn take(&self, fs: &MountedFs, h: &mut Handle) -> std::result::Result<BlockNr, FsError> {
        fs.vol.alloc.commit_take(h, self.block)?;
        Ok(self.block.start)
    }
}

/// Frees the block, which the superblock names no more.
pub(super) fn free(fs: &MountedFs, block: BlockNr) -> Result<()> {
    fs.transact(CREDITS, |h| fs.vol.alloc.free(h, Run { start: block, len: 1 }))?;
    Ok(fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?)
}
