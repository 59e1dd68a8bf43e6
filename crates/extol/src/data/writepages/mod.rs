//! Writes a run of file blocks: takes free blocks, writes the data, maps the blocks.
//!
//! ```text
//!   write_blocks ──► for each part of the run with one mapping
//!                      hole      ─ take free blocks ─ write ─► Insert ─┐
//!                      unwritten ─ write ───────────────────► Convert ─┼─► map_changes: one handle
//!                      written   ─ write in place                      ┘
//! ```
//!
//! The write comes before the handle, so data is on the device before it is mapped (DA-2, and the
//! module's story in [`super`]). `map_changes` makes the changes; `journalled.rs` is the other way,
//! through the log (data=journal).

mod journalled;
mod mapping;

use std::io::IoSlice;

use extol_block::BlockNr;
use extol_ondisk::fast_commit::DataChecksum;
use extol_vfs::Result;
use smallvec::{SmallVec, smallvec};

use super::cache::LARGE;
use super::encryption;
use super::order::{self, Order, Purpose, SMALL, Target};
use crate::alloc::{self, Run};
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, Mapping, NewBlocks};
use crate::mounted::MountedFs;
use crate::throttle::Room;

pub(super) use journalled::write_journalled;
use mapping::{commit, convert, uncommit};

pub(super) use mapping::credits_for_groups;

/// Most mapping changes of one handle: keeps handles short.
const MAX_CHANGES: usize = 16;
/// Most blocks mapped by one handle: a bound on the groups it touches.
const MAX_BLOCKS: u32 = 8192;
/// Most blocks of one fsync that count as a small piece of a growing synced file. For more, a full
/// commit costs little beside the data, and bulk data needs no place of its own.
const LARGEST_SYNCED: u32 = 256;

/// The bytes of consecutive file blocks.
pub(crate) enum Source<'a> {
    /// One buffer.
    Bytes(&'a [u8]),
    /// A buffer for every block.
    Pages(&'a [Vec<u8>]),
}

impl Source<'_> {
    fn slices(&self, from: u32, len: u32, bs: usize) -> SmallVec<[IoSlice<'_>; 4]> {
        let (from, len) = (from as usize, len as usize);
        match self {
            Self::Bytes(bytes) => {
                bytes.get(from * bs..(from + len) * bs).map(IoSlice::new).into_iter().collect()
            }
            Self::Pages(pages) => pages
                .get(from..from + len)
                .unwrap_or_default()
                .iter()
                .map(|p| IoSlice::new(p))
                .collect(),
        }
    }

    /// The bytes of a block.
    fn block(&self, at: u32, bs: usize) -> &[u8] {
        let at = at as usize;
        match self {
            Self::Bytes(bytes) => bytes.get(at * bs..(at + 1) * bs).unwrap_or_default(),
            Self::Pages(pages) => pages.get(at).map_or(&[], |p| p),
        }
    }
}

/// A mapping change that waits for its handle.
#[derive(Clone, Copy, Debug)]
enum MapChange {
    /// `is_new`: into clusters that were taken for it.
    Insert {
        lblk: u32,
        run: Run,
        is_new: bool,
    },
    Convert {
        lblk: u32,
        len: u32,
    },
}

impl MapChange {
    fn end(self) -> u32 {
        match self {
            Self::Insert { lblk, run, .. } => lblk.saturating_add(run.len),
            Self::Convert { lblk, len } => lblk.saturating_add(len),
        }
    }
}

/// Writes `blocks` blocks of the file from `lblk` on, and maps those that are not mapped. The
/// caller holds `reserved` reserved clusters ([`crate::alloc::Allocator::reserve`]), one for every
/// new one ([`map::fresh_clusters`]). The second part of the result is how many of them were used,
/// also on an error.
pub(super) fn write_blocks(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    reserved: u64,
    purpose: Purpose,
) -> (Result<()>, u64) {
    let bs = fs.vol.geo.block_len();
    let bytes = match encryption::encrypt(fs, st, lblk, blocks, |at| source.block(at, bs)) {
        Ok(bytes) => bytes,
        Err(e) => return (Err(e), 0),
    };
    let encrypted = bytes.as_deref().map(Source::Bytes);
    let mut writer = BlockWriter {
        fs,
        st,
        total: blocks,
        changes: SmallVec::new(),
        unmapped: 0,
        reserved,
        used: 0,
        purpose,
        checksums: encrypted.is_none() && fs.vol.journal.wants_data_checksums(),
    };
    let result = writer.run(lblk, blocks, encrypted.as_ref().unwrap_or(source));
    (result, writer.used)
}

/// Maps a written run, of new clusters, in the hole of that length from `lblk` on; otherwise as
/// [`write_blocks`].
pub(super) fn map_written(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    run: Run,
    reserved: u64,
) -> (Result<()>, u64) {
    let changes = smallvec![MapChange::Insert { lblk, run, is_new: true }];
    let (total, purpose) = (run.len, Purpose::Other);
    let (unmapped, used, checksums) = (total, 0, false);
    let mut writer =
        BlockWriter { fs, st, total, changes, unmapped, reserved, used, purpose, checksums };
    let result = writer.map_changes();
    if result.is_err() {
        writer.undo();
    }
    (result, writer.used)
}

struct BlockWriter<'a> {
    fs: &'a MountedFs,
    st: &'a mut InodeState,
    /// Blocks to write in all.
    total: u32,
    changes: SmallVec<[MapChange; 4]>,
    /// Blocks written and not mapped.
    unmapped: u32,
    reserved: u64,
    used: u64,
    purpose: Purpose,
    /// Fast commits may carry checksums of this data.
    checksums: bool,
}

impl BlockWriter<'_> {
    fn run(&mut self, lblk: u32, blocks: u32, source: &Source<'_>) -> Result<()> {
        let result = self.write_all(lblk, blocks, source).and_then(|()| self.map_changes());
        if result.is_err() {
            self.undo();
        }
        result
    }

    /// Gives back blocks that are not mapped.
    fn undo(&mut self) {
        // A deferred write must not reach blocks that another file may get, and recovery must not
        // check data there.
        self.st.end_deferred();
        for change in std::mem::take(&mut self.changes) {
            if let MapChange::Insert { run, is_new, .. } = change {
                let _ = self.fs.vol.journal.about_to_overwrite(run.start, run.len, |_| false);
                if is_new {
                    self.fs.vol.alloc.give_back(run);
                }
            }
        }
    }

    fn write_all(&mut self, lblk: u32, blocks: u32, source: &Source<'_>) -> Result<()> {
        let vol = &self.fs.vol;
        let mut at = 0;
        while at < blocks {
            let here = lblk + at;
            let left = (blocks - at).min(self.max_write());
            let len = match map::lookup(vol, &self.st.node, here)? {
                Mapping::Mapped { pblk, len, unwritten } => {
                    let len = len.min(left);
                    check_not_system(self.fs, self.st, pblk, len)?;
                    let target = if unwritten {
                        Target::Unknown
                    } else {
                        let end = u64::from(here + len) << vol.geo.block_size.bits();
                        Target::Written {
                            grows: end.min(self.st.node.raw.size) > self.st.disk_size,
                        }
                    };
                    let run = Run { start: pblk, len };
                    self.about_to_overwrite(at, run, source)?;
                    self.write(here, at, run, source, target)?;
                    if unwritten {
                        self.changes.push(MapChange::Convert { lblk: here, len });
                    }
                    len
                }
                Mapping::Hole { len } => {
                    let want = u32::try_from(len).unwrap_or(u32::MAX).min(left).min(MAX_BLOCKS);
                    let (run, target, is_new) = self.place(here, want)?;
                    if !is_new {
                        // Its blocks may have been the file's before.
                        self.about_to_overwrite(at, run, source)?;
                    }
                    self.fs.note_data(run);
                    self.changes.push(MapChange::Insert { lblk: here, run, is_new });
                    #[cfg(feature = "planted-bugs")]
                    if extol_jbd2::planted::has(extol_jbd2::planted::Bug::MapBeforeWrite) {
                        // As if another thread committed in between.
                        self.map_changes()?;
                        vol.journal.commit_all().map_err(error::journal)?;
                    }
                    self.write(here, at, run, source, target)?;
                    self.prepare_window(run.len)?;
                    run.len
                }
            };
            self.unmapped += len;
            at += len;
            if self.changes.len() >= MAX_CHANGES || (self.unmapped >= MAX_BLOCKS && at < blocks) {
                self.map_changes()?;
            }
        }
        Ok(())
    }

    /// The run, which is the source's blocks from `at` on, is about to be written in place.
    fn about_to_overwrite(&self, at: u32, run: Run, source: &Source<'_>) -> Result<()> {
        let vol = &self.fs.vol;
        let block = |w: &DataChecksum| {
            let i = u32::try_from(w.block.0.saturating_sub(run.start.0)).unwrap_or(u32::MAX);
            source.block(at.saturating_add(i), vol.geo.block_len())
        };
        vol.journal
            .about_to_overwrite(run.start, run.len, |w| w.matches(block(w)))
            .map_err(error::journal)
    }

    /// Blocks for a hole from `here` on. The last part: they were taken for it, and do not lie in a
    /// cluster that the file has.
    fn place(&mut self, here: u32, want: u32) -> Result<(Run, Target, bool)> {
        let vol = &self.fs.vol;
        let end = match self.changes.last() {
            Some(MapChange::Insert { lblk, run, .. }) if lblk + run.len == here => Some(run.end()),
            _ => None,
        };
        let inside = vol.geo.inside_cluster(u64::from(here));
        if let Some(start) = end.filter(|_| inside > 0) {
            // The rest of a cluster that is about to be mapped.
            let len = want.min(vol.geo.cluster_ratio - inside);
            return Ok((Run { start, len }, Target::Unknown, false));
        }
        let want = match map::new_blocks(vol, &self.st.node, here, want)? {
            NewBlocks::Shared(run) => {
                check_not_system(self.fs, self.st, run.start, run.len)?;
                return Ok((run, Target::Unknown, false));
            }
            NewBlocks::Fresh(len) => len,
        };
        let goal = match end {
            Some(end) => end,
            None => map::goal(vol, &self.st.node, here)?,
        };
        let (run, target) = self.take(here, goal, want)?;
        Ok((run, target, true))
    }

    /// Makes all changes and stores the inode, with the size that they reach (DA-2).
    fn map_changes(&mut self) -> Result<()> {
        let vol = &self.fs.vol;
        let bs = vol.geo.block_size.bytes();
        self.unmapped = 0;
        if self.changes.is_empty() {
            return Ok(());
        }
        let credits = self.changes.iter().fold(2, |sum, change| {
            sum + match change {
                MapChange::Insert { run, .. } => {
                    map::credits_for_insert(&self.st.node, run.len, bs)
                        + credits_for_groups(run.len, vol.geo.blocks_per_group)
                }
                MapChange::Convert { .. } => map::credits_for_convert(&self.st.node),
            }
        });
        let mut h = self.fs.start(credits)?;
        let mut result = Ok(());
        let mut reached = 0;
        while let Some(change) = self.changes.first().copied() {
            let mut committed = false;
            result = match change {
                MapChange::Insert { lblk, run, is_new: false } => {
                    committed = true;
                    mapping::insert(vol, &mut h, self.st, (lblk, run), self.purpose)
                }
                MapChange::Insert { lblk, run, is_new: true } => {
                    commit(vol, &mut h, run, self.reserved, &mut self.used).and_then(|()| {
                        committed = true;
                        let mapped =
                            mapping::insert(vol, &mut h, self.st, (lblk, run), self.purpose);
                        mapped.inspect_err(|_| uncommit(vol, &mut h, run, &mut self.used))
                    })
                }
                MapChange::Convert { lblk, len } => convert(vol, &mut h, self.st, lblk, len),
            };
            if result.is_err() {
                if committed {
                    self.changes.remove(0);
                }
                break;
            }
            reached = reached.max(change.end());
            self.changes.remove(0);
        }
        let end = u64::from(reached) << vol.geo.block_size.bits();
        self.st.disk_size = self.st.disk_size.max(end.min(self.st.node.raw.size));
        let stored = self.st.store(self.fs, &mut h, true);
        let stopped = h.stop().map_err(error::journal);
        result.and(stored).and(stopped)
    }

    /// Most blocks of one write ([`crate::throttle`]).
    fn max_write(&self) -> u32 {
        let bits = self.fs.vol.geo.block_size.bits();
        let bytes = self.fs.throttle.max_write(self.st.node.ino.0);
        bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes >> bits).unwrap_or(u32::MAX).max(1))
    }

    /// Waits, or flushes, if an fsync would have too much to flush after this write
    /// ([`crate::throttle`]).
    fn throttle(&self, bytes: u64) -> Result<()> {
        let fs = self.fs;
        if fs.throttle.room(self.st.node.ino.0, bytes) == Room::FlushFirst {
            let began = fs.clock.now_ns();
            fs.vol.journal.flush_data().map_err(error::journal)?;
            fs.throttle.flushed_first(began);
        }
        Ok(())
    }

    /// Describes a new piece of a file under fsync whose map lies in its inode; `None` for all
    /// others. (Files with tree blocks are committed in full.)
    fn synced_piece(&self, here: u32, goal: BlockNr, want: u32) -> Option<alloc::Piece> {
        let vol = &self.fs.vol;
        if self.purpose != Purpose::Fsync
            || self.total > LARGEST_SYNCED
            || !vol.journal.tracks_changes()
        {
            return None;
        }
        let mapped = map::extents_in_root(&self.st.node)?;
        let taken =
            self.changes.iter().filter(|change| matches!(change, MapChange::Insert { .. })).count();
        let end = match self.changes.last() {
            Some(MapChange::Insert { lblk, run, .. }) => lblk + run.len,
            _ => map::end_of_root(&self.st.node.raw.i_block),
        };
        let small = want <= SMALL && self.checksums;
        Some(alloc::Piece { want, goal, extents: mapped + taken, appends: here == end, small })
    }

    /// Blocks for a new piece.
    fn take(&mut self, here: u32, goal: BlockNr, want: u32) -> Result<(Run, Target)> {
        let alloc = &self.fs.vol.alloc;
        let Some(piece) = self.synced_piece(here, goal, want) else {
            // The kernel writes a new file back from several threads, so its first blocks may come
            // later.
            let first = self.changes.is_empty() && map::extents_in_root(&self.st.node) == Some(0);
            if first
                && here > 0
                && let Some(run) = alloc.take_behind(&mut self.st.window, goal, here, want)
            {
                return Ok((run, Target::Unknown));
            }
            return Ok((alloc.take_for(&mut self.st.window, goal, want, 1)?, Target::Unknown));
        };
        let (run, zeroed) = alloc.take_synced(&mut self.st.window, piece)?;
        Ok((run, if zeroed { Target::Zeroed } else { Target::Unknown }))
    }

    /// Zeroes blocks ahead for the next small pieces of a growing synced file: they need no flush
    /// before the commit.
    fn prepare_window(&mut self, blocks: u32) -> Result<()> {
        let vol = &self.fs.vol;
        let small = self.purpose == Purpose::Fsync && blocks <= SMALL && self.checksums;
        if !small || map::extents_in_root(&self.st.node).is_none() {
            return Ok(());
        }
        let prepared = vol.alloc.prepare_window(&mut self.st.window, blocks, &*vol.dev);
        prepared.map_err(|e| self.fs.data_write_failed(e))
    }

    /// Writes `run.len` blocks of the source from its block `at` on, the blocks of the file from
    /// `lblk` on.
    fn write(
        &mut self,
        lblk: u32,
        at: u32,
        run: Run,
        source: &Source<'_>,
        target: Target,
    ) -> Result<()> {
        let vol = &self.fs.vol;
        let bs = vol.geo.block_len();
        let bytes = u64::from(run.len) * bs as u64;
        self.throttle(bytes)?;
        let slices = source.slices(at, run.len, bs);
        let order = order::decide(target, run.len, self.purpose, self.checksums);
        let size = self.st.node.raw.size;
        let checksums = order::checksums(order, run.start, run.len, |i| {
            let left = size.saturating_sub(u64::from(lblk + i) * bs as u64);
            let block = source.block(at + i, bs);
            block.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(block)
        });
        if let Some(cache) =
            self.fs.data_cache.as_ref().filter(|_| (self.total as usize) < LARGE / bs)
        {
            cache.prepare(run.start, run.len);
        }
        if order::may_defer(run.len, self.purpose) && vol.journal.commits_after_data() {
            let mut data = Vec::with_capacity(run.len as usize * bs);
            slices.iter().for_each(|slice| data.extend_from_slice(slice));
            self.st.deferred = Some(match order {
                Order::Ordered => vol.journal.defer_ordered(run.start, data),
                Order::Unordered | Order::Checksummed => {
                    vol.journal.defer(run.start, data, checksums)
                }
            });
            return Ok(());
        }
        let place = run.start.offset(vol.geo.block_size);
        let result = vol.dev.write_vectored_at(&slices, place);
        let order = if result.is_ok() { order } else { Order::Ordered };
        order::note(vol, order, &checksums);
        result.map_err(|e| self.fs.data_write_failed(e))
    }
}

/// Err if the file's map names blocks that hold the volume's own metadata.
pub(super) fn check_not_system(
    fs: &MountedFs,
    st: &InodeState,
    start: BlockNr,
    len: u32,
) -> Result<()> {
    fs.vol.alloc.check_not_system(Run { start, len }).map_err(|e| e.in_inode(st.node.ino.0.into()))
}
