//! Multi-mount protection comes or goes: a block, and the superblock that names it.
//!
//! Its block is written in place and durable before the transaction that names it. When it goes,
//! the superblock is at home without it before the block is free: Linux claims the volume as the
//! superblock says before it replays the log, and at the end writes to the block that it claimed. A
//! crash in between leaves one block in use for nothing, which e2fsck -p gives back.
//!
//! A volume that gets checksums has that of the block before it has the feature: the block is in no
//! transaction. One that loses them keeps it, and nothing looks at it.

use extol_block::{BlockDevice as _, BlockNr, SharedDevice};
use extol_jbd2::Handle;
use extol_ondisk::mmp::{Mmp, SEQ_CLEAN, SEQ_FSCK};
use extol_ondisk::{Geometry, Incompat, Superblock};
use extol_vfs::{FsError, bytes_text, plain};

use super::{Change, Request, Result, Tuned, refuse};
use crate::alloc::Run;
use crate::error::{self, OpenError};
use crate::mounted::MountedFs;
use crate::superblock::geometry;

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

/// Gives the block its checksum, of a volume that is about to have the feature.
pub(super) fn add_checksum(fs: &MountedFs, new: &Geometry) -> std::result::Result<(), FsError> {
    let sb = fs.sb.read(Superblock::clone);
    if !sb.feature_incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    if let Some(claim) = fs.guard.as_ref().and_then(|guard| guard.claim()) {
        return claim.add_checksums(new).map_err(|e| FsError::Io(e.line()));
    }
    let (vol, geo) = (&fs.vol, &fs.vol.geo);
    let place = BlockNr(sb.mmp_block).offset(geo.block_size);
    let mut bytes = vec![0; geo.block_len()];
    vol.dev.read_at(&mut bytes, place).map_err(error::device)?;
    let mmp = Mmp::decode(&bytes, geo).map_err(error::ondisk)?;
    mmp.encode_into(&mut bytes, new);
    vol.dev.write_fua(&bytes, place).map_err(error::device)
}

/// Says in the block that no host has the volume. It may be damaged.
pub(super) fn clear(device: &SharedDevice, sb: &Superblock, request: &Request) -> Result<Tuned> {
    if *request != (Request { clear_mmp: true, ..Request::default() }) {
        return refuse("clear_mmp goes alone: ask for the rest afterwards");
    }
    if !sb.feature_incompat.contains(Incompat::MMP) {
        return refuse("the volume has no multi-mount protection: clear_mmp is for it");
    }
    let geo = geometry(&**device, sb)?;
    let block = BlockNr(sb.mmp_block);
    if !geo.is_valid_block(block) || block.0 <= geo.super_block().0.0 {
        return refuse(format!("block {} cannot be that of multi-mount protection", block.0));
    }
    let mut bytes = vec![0; geo.block_len()];
    device.read_at(&mut bytes, block.offset(geo.block_size)).map_err(OpenError::from)?;
    let found = Mmp::decode(&bytes, &geo);
    let before = match &found {
        Ok(mmp) if mmp.seq == SEQ_CLEAN => return Ok(Tuned::default()),
        Ok(mmp) if mmp.seq == SEQ_FSCK => "of a checker".to_owned(),
        Ok(mmp) => {
            let name = mmp.nodename.split(|byte| *byte == 0).next().unwrap_or_default();
            format!("of {}", plain(&bytes_text(name)))
        }
        Err(_) => "damaged".to_owned(),
    };
    let mut mmp = found.unwrap_or(Mmp {
        seq: SEQ_CLEAN,
        time: 0,
        nodename: [0; 64],
        bdevname: [0; 32],
        check_interval: sb.mmp_update_interval.max(MIN_CHECK),
    });
    mmp.seq = SEQ_CLEAN;
    mmp.check_interval = mmp.check_interval.min(sb.mmp_update_interval.max(MIN_CHECK));
    mmp.encode_into(&mut bytes, &geo);
    device.write_fua(&bytes, block.offset(geo.block_size)).map_err(OpenError::from)?;
    let change = Change { property: "multi_mount_protection", before, after: "free".into() };
    Ok(Tuned { changes: vec![change], notes: Vec::new() })
}

/// Frees the block, which the superblock names no more.
pub(super) fn free(fs: &MountedFs, block: BlockNr) -> Result<()> {
    fs.transact(CREDITS, |h| fs.vol.alloc.free(h, Run { start: block, len: 1 }))?;
    Ok(fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?)
}
