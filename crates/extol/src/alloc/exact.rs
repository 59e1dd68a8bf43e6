//! Blocks and inodes with given numbers, for the replay of fast commits.
//!
//! ```text
//!   claim_free      takes all free blocks of the ranges that the records name
//!   commit_claimed  marks those that files map in the end as used on disk
//! ```
//!
//! Blocks claimed and not committed are free again with the next mount.

use extol_jbd2::Handle;
use extol_ondisk::{GroupFlags, InodeNr, bitmap};
use extol_vfs::{FsError, Result};

use super::bits::{self, Span};
use super::group::State;
use super::{Allocator, Run};
use crate::error;

impl Allocator {
    /// Marks blocks that [`claim_free`](Self::claim_free) took as used on disk.
    pub fn commit_claimed(&self, h: &mut Handle, run: Run) -> Result<()> {
        for (nr, span) in bits::split(&self.geo, run.start, u64::from(run.len)) {
            self.commit_take(h, self.run_of(nr, span))?;
        }
        Ok(())
    }

    /// True if the inode is marked as used on disk.
    pub fn is_inode_used(&self, ino: InodeNr) -> Result<bool> {
        let (nr, bit) = self.geo.group_of_inode(ino);
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_inodes(group, &mut state)?;
        Ok(state.inodes.as_ref().is_some_and(|map| map.busy.test(bit)))
    }

    /// Takes, in memory, the free blocks of `run`. Returns them as runs.
    pub fn claim_free(&self, run: Run) -> Result<Vec<Run>> {
        let mut claimed = Vec::new();
        for (nr, span) in bits::split(&self.geo, run.start, u64::from(run.len)) {
            let group = self.group(nr)?;
            let mut state = group.lock();
            self.load_blocks(group, &mut state)?;
            let Some(map) = &mut state.blocks else { continue };
            let mut at = span.start;
            while let Some(free) = map.busy.next_run(at, span.end()) {
                group.mark_taken(map, free);
                claimed.push(self.run_of(nr, free));
                at = free.end();
            }
        }
        Ok(claimed)
    }

    /// Marks an inode as used on disk (`was_dir` is `None`), or changes the directory count for a
    /// used one. Returns the inodes in front of it whose slots become part of the used table and
    /// may hold arbitrary bytes.
    pub fn mark_inode(
        &self,
        h: &mut Handle,
        ino: InodeNr,
        was_dir: Option<bool>,
        is_dir: bool,
    ) -> Result<std::ops::Range<u32>> {
        let (nr, bit) = self.geo.group_of_inode(ino);
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_inodes(group, &mut state)?;
        let mut desc = *state.desc()?;
        let mut gap = 0..0;
        if was_dir.is_none() {
            // Both bitmaps at once, as for any new inode.
            if self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
                self.load_blocks(group, &mut state)?;
                desc = *state.desc()?;
                if let State { blocks: Some(blocks), .. } = &mut *state {
                    self.open_block_bitmap(h, group, &mut desc, &blocks.zones, &mut blocks.home)?;
                }
            }
            let Some(map) = state.inodes.as_mut().filter(|map| !map.busy.test(bit)) else {
                return Err(FsError::corrupt("a new inode is in use").in_inode(ino.0.into()));
            };
            let buf = self.open_inode_bitmap(h, &mut desc, &mut map.home)?;
            map.busy.set(Span { start: bit, len: 1 });
            let sum = h
                .modify(buf, |bytes| {
                    bitmap::set(bytes, bit);
                    bitmap::inode_bitmap_csum(&self.geo, bytes)
                })
                .map_err(error::journal)?;
            self.put_inode_csum(&mut desc, sum);
            desc.free_inodes = desc.free_inodes.saturating_sub(1);
            if self.geo.has_gdt_csum() {
                let per_group = self.geo.inodes_per_group;
                let behind = per_group.saturating_sub(bit.saturating_add(1));
                let used = per_group.saturating_sub(desc.itable_unused);
                if used < bit && !desc.flags.contains(GroupFlags::INODE_ZEROED) {
                    gap = self.geo.inode_at(nr, used).0..ino.0;
                }
                desc.itable_unused = desc.itable_unused.min(behind);
            }
            self.space.inode_taken(false);
        }
        match (was_dir.unwrap_or(false), is_dir) {
            (false, true) => desc.used_dirs = desc.used_dirs.saturating_add(1),
            (true, false) => desc.used_dirs = desc.used_dirs.saturating_sub(1),
            _ => {}
        }
        self.write_desc(h, group, &desc)?;
        state.set_desc(desc);
        Ok(gap)
    }
}
