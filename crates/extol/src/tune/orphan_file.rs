//! The orphan file comes or goes.

use extol_jbd2::Handle;
use extol_ondisk::{Inode, InodeNr, Superblock, orphan_file};
use extol_vfs::FsError;

use super::{Result, refuse};
use crate::alloc::Allocator;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::map;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::orphan;

/// Credits to drop the file: its inode and the list.
pub(super) const DROP_CREDITS: u32 = orphan::CREDITS + 1;
/// Largest, in bytes.
const MOST_BYTES: u32 = 8 << 20;
/// Blocks changed beside bitmaps, descriptors and the file: inode and map.
const OTHERS: u32 = 16;
/// Of the credits that are left, one for each block, and for each run of them a bitmap and a
/// descriptor.
const CREDITS_PER_BLOCK: u32 = 3;

/// An orphan file to be made.
#[derive(Debug)]
pub(super) struct Made {
    blocks: u32,
}

impl Made {
    /// With so many blocks, or (0) as many as are usual for the size of the volume and fit into a
    /// transaction with so many credits.
    pub fn plan(fs: &MountedFs, blocks: u32, credits: u32) -> Result<Self> {
        let most = credits.saturating_sub(OTHERS + 64) / CREDITS_PER_BLOCK;
        let limit = orphan_file::MAX_BLOCKS.min(MOST_BYTES / fs.vol.geo.block_size.bytes());
        if blocks > limit {
            return refuse(format!(
                "an orphan file of {blocks} blocks is too large: at most {limit} blocks of {} \
                 bytes; a plain number for orphan_file_size= counts blocks",
                fs.vol.geo.block_size.bytes()
            ));
        }
        let usual = match fs.vol.geo.blocks() {
            0..131_072 => 32,
            blocks @ 131_072..2_097_152 => (blocks / 4096) as u32,
            _ => 512,
        };
        let blocks = if blocks == 0 { usual.min(most).min(limit) } else { blocks };
        if blocks == 0 || blocks > most {
            return refuse(format!(
                "the journal is too small for an orphan file of {} blocks, at most {most} fit: \
                 give -E orphan_file_size=",
                blocks.max(1)
            ));
        }
        let free = fs.vol.alloc.counters().free;
        if fs.vol.geo.clusters(blocks.into()) + u64::from(OTHERS) > free {
            return refuse(format!(
                "the volume is full: an orphan file of {blocks} blocks does not fit"
            ));
        }
        if fs.vol.alloc.counters().free_inodes == 0 {
            return refuse("the volume has no free inode for an orphan file");
        }
        Ok(Self { blocks })
    }

    pub fn credits(&self) -> u32 {
        Allocator::ALLOC_INODE_CREDITS + OTHERS + CREDITS_PER_BLOCK * self.blocks
    }

    /// Makes it; all its slots are free.
    pub fn make(&self, fs: &MountedFs, h: &mut Handle) -> std::result::Result<InodeNr, FsError> {
        let vol = &fs.vol;
        let ino = vol.alloc.alloc_inode(h, InodeNr::ROOT, false, false)?;
        if let Some(quotas) = fs.quotas.get() {
            quotas.exempt(ino);
        }
        let mut raw = Inode::new_empty(&vol.geo);
        raw.mode = 0o100_600;
        raw.links = 1;
        raw.size = u64::from(self.blocks) << vol.geo.block_size.bits();
        let now = fs.now();
        (raw.atime, raw.ctime, raw.mtime, raw.crtime) = (now, now, now, now);
        map::init(&vol.geo, &mut raw);
        let mut node = Node { ino, raw };
        let seed =
            vol.geo.has_metadata_csum().then(|| vol.geo.fs_seed.inode(ino, node.raw.generation));
        let mut goal = vol.alloc.meta_goal(ino);
        for lblk in 0..self.blocks {
            let nr = map::insert_meta(vol, h, &mut node, lblk, goal)?;
            goal = nr.plus(1);
            let buf = h.create(nr).map_err(error::journal)?;
            h.modify(&buf, |block| {
                orphan_file::init(block);
                if let Some(seed) = seed {
                    orphan_file::set_csum(block, nr, seed);
                }
            })
            .map_err(error::journal)?;
        }
        vol.write_inode(h, ino, &node.raw, Change { data: true, born: true, ..Change::default() })?;
        Ok(ino)
    }
}

/// Puts the orphan file on the list of orphans.
pub(super) fn drop_it(
    fs: &MountedFs,
    h: &mut Handle,
    before: &Superblock,
) -> std::result::Result<(), FsError> {
    let ino = InodeNr(before.orphan_file_inum);
    if !fs.orphans.leave_file() {
        return Err(FsError::Busy);
    }
    fs.orphans.add(&fs.vol, &fs.sb, h, ino.0)?;
    if let Some(quotas) = fs.quotas.get() {
        // Whatever frees it takes it from its owners' usage.
        quotas.adopt(&fs.vol, h, ino)?;
    }
    // It is the only one: the list ends with it.
    fs.vol.modify_inode(h, ino, |raw| (raw.links, raw.dtime) = (0, 0))
}
