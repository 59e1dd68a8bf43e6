//! ADD_RANGE and DEL_RANGE: where the blocks of a file are.
//!
//! Only the map changes here. Which blocks are used is settled at the end.

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::InodeFlags;
use extol_ondisk::fast_commit::FcRecord;
use extol_vfs::{FsError, Result};

use super::{Life, Replay, finished};
use crate::alloc::Run;
use crate::map::{self, Discard, Mapping};
use crate::node::Node;
use crate::volume::Volume;

/// Longest extent; an unwritten one is a block shorter.
const MAX_LEN: u32 = 32_768;

/// Blocks that a record names.
pub(super) fn target(start: u64, len: u32) -> Run {
    Run { start: BlockNr(start), len }
}

fn bad(what: &str, ino: u32) -> FsError {
    FsError::corrupt(what).in_inode(ino.into())
}

impl Replay<'_> {
    /// Sets the free blocks of a range aside, before anything is allocated.
    pub(super) fn claim(&mut self, record: &FcRecord<&[u8]>) -> Result<()> {
        let &FcRecord::AddRange { ino, block, len, start, unwritten } = record else {
            return Ok(());
        };
        let run = target(start, len);
        let fits =
            (1..=MAX_LEN - u32::from(unwritten)).contains(&len) && block.checked_add(len).is_some();
        if !fits || !self.vol.geo.is_valid_range(run.start, u64::from(len)) {
            return Err(bad("a record names impossible blocks", ino).at_block(start));
        }
        self.vol.alloc.check_not_system(run).map_err(|e| e.in_inode(ino.into()))?;
        self.claimed.extend(self.vol.alloc.claim_free(run)?);
        Ok(())
    }

    /// True if ranges of this inode can be replayed.
    fn has_ranges(&mut self, ino: u32) -> Result<bool> {
        let t = self.touch(ino)?;
        if t.life != Life::Alive {
            return Ok(false);
        }
        if !t.node.raw.is_regular() {
            return Err(bad("blocks of something that is no file", ino));
        }
        Ok(true)
    }

    pub(super) fn add_range(
        &mut self,
        ino: u32,
        lblk: u32,
        run: Run,
        unwritten: bool,
    ) -> Result<()> {
        if !self.has_ranges(ino)? {
            return Ok(());
        }
        let (vol, h) = (self.vol, &mut self.h);
        let Some(t) = self.inodes.get_mut(&ino) else { return Ok(()) };
        if t.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
            t.leave_inode(vol)?;
        }
        let node = &mut t.node;
        let mut done = 0;
        while done < run.len {
            let (at, left) = (lblk + done, run.len - done);
            let wanted = run.start.plus(u64::from(done));
            match map::lookup(vol, node, at)? {
                Mapping::Hole { len } => {
                    let now = u32::try_from(len).unwrap_or(u32::MAX).min(left);
                    let run = Run { start: wanted, len: now };
                    leave_other_clusters(vol, h, node, at, run)?;
                    map::insert(vol, h, node, at, run, unwritten)?;
                    done += now;
                }
                Mapping::Mapped { pblk, len, unwritten: is } if pblk == wanted => {
                    let now = len.min(left);
                    if is != unwritten {
                        finished(map::convert(vol, h, node, at, now, !unwritten)?)?;
                    }
                    done += now;
                }
                Mapping::Mapped { len, .. } => {
                    let to = at.saturating_add(len.min(left));
                    finished(map::remove(vol, h, node, at, to, Discard::Keep)?)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn del_range(&mut self, ino: u32, lblk: u32, len: u32) -> Result<()> {
        if !self.has_ranges(ino)? {
            return Ok(());
        }
        let (vol, h) = (self.vol, &mut self.h);
        let Some(t) = self.inodes.get_mut(&ino) else { return Ok(()) };
        if !t.is_file() || len == 0 {
            return Ok(());
        }
        finished(map::remove(vol, h, &mut t.node, lblk, lblk.saturating_add(len), Discard::Keep)?)
    }
}

/// Blocks of the file in the clusters of `lblk..lblk + run.len`, but elsewhere on the volume: the
/// file has other clusters now, and the records say which of their blocks.
fn leave_other_clusters(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    run: Run,
) -> Result<()> {
    let first = lblk - vol.geo.inside_cluster(u64::from(lblk));
    let end = lblk.saturating_add(run.len);
    let last = end - 1 - vol.geo.inside_cluster(u64::from(end - 1));
    for (from, to) in [(first, lblk), (end, last.saturating_add(vol.geo.cluster_ratio))] {
        let mut at = from;
        while let Some(other) = map::next_mapped(vol, node, at, to)? {
            at = other.lblk.saturating_add(other.len);
            if other.pblk.plus(u64::from(lblk)) != run.start.plus(u64::from(other.lblk)) {
                finished(map::remove(vol, h, node, other.lblk, at, Discard::Keep)?)?;
            }
        }
    }
    Ok(())
}
