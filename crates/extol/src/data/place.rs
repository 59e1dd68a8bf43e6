//! Placing a run of file blocks: take, write, map.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::fast_commit::DataChecksum;
use extol_vfs::{FsError, Result};
use smallvec::{SmallVec, smallvec};

use super::cache::LARGE;
use super::order::{self, Order, Purpose, SMALL, Target};
use crate::alloc::{self, Run};
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, Mapping, Progress};
use crate::mounted::MountedFs;
use crate::pace::Room;
use crate::volume::Volume;

/// Mapping changes gathered before one handle makes them: keeps handles short.
const MAX_PIECES: usize = 16;
/// Most blocks mapped by one handle: a bound on the groups it touches.
const MAX_BLOCKS: u32 = 8192;
/// Most blocks of one fsync for which its file counts as one that grows by small synced pieces:
/// with a megabyte at a time, a full commit makes no difference, and bulk data is not worth a place
/// of its own.
const LARGEST_SYNCED: u32 = 256;

/// The bytes of consecutive file blocks.
pub(crate) enum Source<'a> {
    /// One buffer.
    Bytes(&'a [u8]),
    /// A buffer for every block.
    Pages(&'a [Vec<u8>]),
    /// In a pipe, from which they are taken in order: nobody sees them here.
    Pipe(BorrowedFd<'a>),
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
            Self::Pipe(_) => SmallVec::new(),
        }
    }

    /// The bytes of a block; none if nobody sees them, so that they agree with no checksum.
    fn block(&self, at: u32, bs: usize) -> &[u8] {
        let at = at as usize;
        match self {
            Self::Bytes(bytes) => bytes.get(at * bs..(at + 1) * bs).unwrap_or_default(),
            Self::Pages(pages) => pages.get(at).map_or(&[], |p| p),
            Self::Pipe(_) => &[],
        }
    }
}

/// A mapping change that waits for its handle.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Insert { lblk: u32, run: Run },
    Convert { lblk: u32, len: u32 },
}

impl Piece {
    fn end(self) -> u32 {
        match self {
            Self::Insert { lblk, run } => lblk.saturating_add(run.len),
            Self::Convert { lblk, len } => lblk.saturating_add(len),
        }
    }
}

/// Writes `blocks` blocks of the file from `lblk` on, and maps what is not mapped. The caller holds
/// `promised` promises ([`crate::alloc::Allocator::reserve`]), one for every block that falls in a
/// hole; what was mapped has used up its promise. Returns how many promises were used, also on an
/// error (as the second part).
pub(crate) fn place(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    promised: u64,
    purpose: Purpose,
) -> (Result<()>, u64) {
    let mut placer = Placer {
        fs,
        st,
        total: blocks,
        pieces: SmallVec::new(),
        blocks: 0,
        promised,
        used: 0,
        purpose,
    };
    let result = placer.run(lblk, blocks, source);
    (result, placer.used)
}

/// Maps a run that was written, for the hole of that length from `lblk` on; the rest as for
/// [`place`]. What could not be mapped is given back.
pub(super) fn map_written(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    run: Run,
    promised: u64,
) -> (Result<()>, u64) {
    let pieces = smallvec![Piece::Insert { lblk, run }];
    let (total, purpose) = (run.len, Purpose::Other);
    let mut placer = Placer { fs, st, total, pieces, blocks: total, promised, used: 0, purpose };
    let result = placer.apply();
    if result.is_err() {
        placer.undo();
    }
    (result, placer.used)
}

struct Placer<'a> {
    fs: &'a MountedFs,
    st: &'a mut InodeState,
    /// Blocks to write in all.
    total: u32,
    /// (One, mostly.)
    pieces: SmallVec<[Piece; 4]>,
    /// Blocks written and not mapped yet.
    blocks: u32,
    promised: u64,
    used: u64,
    purpose: Purpose,
}

impl Placer<'_> {
    fn run(&mut self, lblk: u32, blocks: u32, source: &Source<'_>) -> Result<()> {
        let result = self.write_all(lblk, blocks, source).and_then(|()| self.apply());
        if result.is_err() {
            self.undo();
        }
        result
    }

    /// Gives back what is not mapped.
    fn undo(&mut self) {
        // What waits to be written must not be written to blocks that are somebody else's by then,
        // nor be looked for there.
        self.st.settle_for_good();
        for piece in std::mem::take(&mut self.pieces) {
            if let Piece::Insert { run, .. } = piece {
                let _ = self.fs.vol.journal.about_to_overwrite(run.start, run.len, |_| false);
                self.fs.vol.alloc.give_back(run);
            }
        }
    }

    fn write_all(&mut self, lblk: u32, blocks: u32, source: &Source<'_>) -> Result<()> {
        let vol = &self.fs.vol;
        let bs = vol.geo.block_len();
        let mut at = 0;
        while at < blocks {
            let here = lblk + at;
            let left = (blocks - at).min(self.most());
            let len = match map::lookup(vol, &self.st.node, here)? {
                Mapping::Mapped { pblk, len, unwritten } => {
                    let len = len.min(left);
                    check_place(self.fs, self.st, pblk, len)?;
                    let target = if unwritten {
                        Target::Unknown
                    } else {
                        let end = u64::from(here + len) << vol.geo.block_size.bits();
                        Target::Written {
                            grows: end.min(self.st.node.raw.size) > self.st.disk_size,
                        }
                    };
                    let block = |w: &DataChecksum| {
                        let i = u32::try_from(w.block.0.saturating_sub(pblk.0)).unwrap_or(u32::MAX);
                        source.block(at.saturating_add(i), bs)
                    };
                    vol.journal
                        .about_to_overwrite(pblk, len, |w| w.matches(block(w)))
                        .map_err(error::journal)?;
                    self.write(here, at, Run { start: pblk, len }, source, target)?;
                    if unwritten {
                        self.pieces.push(Piece::Convert { lblk: here, len });
                    }
                    len
                }
                Mapping::Hole { len } => {
                    let want = u32::try_from(len).unwrap_or(u32::MAX).min(left).min(MAX_BLOCKS);
                    let goal = match self.pieces.last() {
                        Some(Piece::Insert { lblk, run }) if lblk + run.len == here => run.end(),
                        _ => map::goal(vol, &self.st.node, here)?,
                    };
                    let (run, target) = self.take(here, goal, want)?;
                    self.pieces.push(Piece::Insert { lblk: here, run });
                    #[cfg(feature = "planted-bugs")]
                    if extol_jbd2::planted::has(extol_jbd2::planted::Bug::MapBeforeWrite) {
                        // As if another thread's fsync came in between.
                        self.apply()?;
                        vol.journal.commit_all().map_err(error::journal)?;
                    }
                    self.write(here, at, run, source, target)?;
                    self.tend(run.len)?;
                    run.len
                }
            };
            self.blocks += len;
            at += len;
            if self.pieces.len() >= MAX_PIECES || (self.blocks >= MAX_BLOCKS && at < blocks) {
                self.apply()?;
            }
        }
        Ok(())
    }

    /// Blocks to write in one piece.
    fn most(&self) -> u32 {
        let bits = self.fs.vol.geo.block_size.bits();
        let piece = self.fs.pace.piece(self.st.node.ino.0);
        piece.map_or(u32::MAX, |bytes| u32::try_from(bytes >> bits).unwrap_or(u32::MAX).max(1))
    }

    /// Waits for its turn, if others should not have to wait for this ([`crate::pace`]).
    fn keep_pace(&self, bytes: u64) -> Result<()> {
        let fs = self.fs;
        if fs.pace.room(self.st.node.ino.0, bytes) == Room::Flush {
            let began = fs.clock.now_ns();
            fs.vol.journal.flush_data().map_err(error::journal)?;
            fs.pace.was_held(began);
        }
        Ok(())
    }

    /// What is to be known of a new piece of a file that is being synced, if its map lies in its
    /// inode. (Files whose map needs tree blocks are committed in full.)
    fn synced(&self, here: u32, goal: BlockNr, want: u32) -> Option<alloc::Piece> {
        let vol = &self.fs.vol;
        if self.purpose != Purpose::Fsync
            || self.total > LARGEST_SYNCED
            || !vol.journal.tracks_changes()
        {
            return None;
        }
        let mapped = map::extents_in_root(&self.st.node)?;
        let taken =
            self.pieces.iter().filter(|piece| matches!(piece, Piece::Insert { .. })).count();
        let end = match self.pieces.last() {
            Some(Piece::Insert { lblk, run }) => lblk + run.len,
            _ => map::end_of_root(&self.st.node.raw.i_block),
        };
        let small = want <= SMALL && vol.journal.wants_data_checksums();
        Some(alloc::Piece { want, goal, extents: mapped + taken, appends: here == end, small })
    }

    /// Blocks for a new piece.
    fn take(&mut self, here: u32, goal: BlockNr, want: u32) -> Result<(Run, Target)> {
        let alloc = &self.fs.vol.alloc;
        let Some(piece) = self.synced(here, goal, want) else {
            // The kernel writes a new file back from several threads, and its beginning may come
            // late.
            let first = self.pieces.is_empty() && map::extents_in_root(&self.st.node) == Some(0);
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

    /// The file grows: its next pieces will need one trip.
    fn tend(&mut self, blocks: u32) -> Result<()> {
        let vol = &self.fs.vol;
        let small =
            self.purpose == Purpose::Fsync && blocks <= SMALL && vol.journal.wants_data_checksums();
        if !small || map::extents_in_root(&self.st.node).is_none() {
            return Ok(());
        }
        let tended = vol.alloc.tend(&mut self.st.window, blocks, &*vol.dev);
        tended.map_err(|e| self.fs.data_write_failed(e))
    }

    /// Writes `run.len` blocks of the source from its block `at` on, which are those of the file
    /// from `lblk` on.
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
        self.keep_pace(bytes)?;
        let slices = source.slices(at, run.len, bs);
        let order =
            order::decide(target, run.len, self.purpose, vol.journal.wants_data_checksums());
        let size = self.st.node.raw.size;
        let checksums = order::checksums(order, run.start, run.len, |i| {
            let left = size.saturating_sub(u64::from(lblk + i) * bs as u64);
            let block = source.block(at + i, bs);
            block.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(block)
        });
        if let Some(cache) =
            self.fs.data_cache.as_ref().filter(|_| (self.total as usize) < LARGE / bs)
        {
            cache.want(run.start, run.len);
        }
        let unsynced = self.st.unsynced;
        self.st.unsynced = unsynced.saturating_add(bytes);
        if order::may_wait(run.len, self.purpose) && vol.journal.commits_after_data() {
            let mut data = Vec::with_capacity(run.len as usize * bs);
            slices.iter().for_each(|slice| data.extend_from_slice(slice));
            self.st.deferred = Some(match order {
                Order::Loose => vol.journal.defer_ordered(run.start, data),
                Order::Free | Order::Checksummed => vol.journal.defer(run.start, data, checksums),
            });
            return Ok(());
        }
        let turn = self.fs.pace.turn(self.st.node.ino.0, unsynced, bytes);
        let place = run.start.offset(vol.geo.block_size);
        let result = match source {
            Source::Pipe(pipe) => vol.dev.write_piped(*pipe, run.len as usize * bs, place),
            _ => vol.dev.write_vectored_at(&slices, place),
        };
        drop(turn);
        let order = if result.is_ok() { order } else { Order::Loose };
        order::note(vol, order, &checksums);
        result.map_err(|e| self.fs.data_write_failed(e))
    }

    /// Maps what was written.
    fn apply(&mut self) -> Result<()> {
        let vol = &self.fs.vol;
        let bs = vol.geo.block_size.bytes();
        self.blocks = 0;
        if self.pieces.is_empty() {
            return Ok(());
        }
        let credits = self.pieces.iter().fold(2, |sum, piece| {
            sum + match piece {
                Piece::Insert { run, .. } => {
                    map::credits_for_insert(&self.st.node, run.len, bs)
                        + fs_groups(run.len, vol.geo.blocks_per_group)
                }
                Piece::Convert { .. } => map::credits_for_convert(&self.st.node),
            }
        });
        let mut h =
            vol.journal.start(credits.min(vol.journal.max_credits())).map_err(error::journal)?;
        let mut result = Ok(());
        let mut reached = 0;
        while let Some(piece) = self.pieces.first().copied() {
            let mut committed = false;
            result = match piece {
                Piece::Insert { lblk, run } => {
                    commit(vol, &mut h, run, self.promised, &mut self.used).and_then(|()| {
                        committed = true;
                        map::insert(vol, &mut h, &mut self.st.node, lblk, run, false).inspect_err(
                            |_| {
                                uncommit(vol, &mut h, run, &mut self.used);
                            },
                        )
                    })
                }
                Piece::Convert { lblk, len } => convert_all(vol, &mut h, self.st, lblk, len),
            };
            if result.is_err() {
                if committed {
                    self.pieces.remove(0);
                }
                break;
            }
            reached = reached.max(piece.end());
            self.pieces.remove(0);
        }
        let end = u64::from(reached) << vol.geo.block_size.bits();
        self.st.disk_size = self.st.disk_size.max(end.min(self.st.node.raw.size));
        let stored = self.st.store(self.fs, &mut h, true);
        let stopped = h.stop().map_err(error::journal);
        result.and(stored).and(stopped)
    }
}

/// Sets the bits of a run that is about to be mapped, with as many of the caller's promises as are
/// left.
fn commit(vol: &Volume, h: &mut Handle, run: Run, promised: u64, used: &mut u64) -> Result<()> {
    let len = u64::from(run.len);
    if promised.saturating_sub(*used) < len {
        // A promise was lost when its block could not be mapped (`uncommit`).
        return vol.alloc.commit_take(h, run);
    }
    vol.alloc.commit_reserved(h, run)?;
    *used += len;
    Ok(())
}

/// The run could not be mapped: frees it in the same transaction, and takes the promises back if
/// there is still room.
fn uncommit(vol: &Volume, h: &mut Handle, run: Run, used: &mut u64) {
    let len = u64::from(run.len);
    if vol.alloc.free(h, run).is_ok() && *used >= len && vol.alloc.reserve(len, true).is_ok() {
        *used -= len;
    }
}

/// File data may go to these blocks, which its map names: they are not the volume's own.
pub(crate) fn check_place(fs: &MountedFs, st: &InodeState, start: BlockNr, len: u32) -> Result<()> {
    fs.vol.alloc.check_not_system(Run { start, len }).map_err(|e| e.in_inode(st.node.ino.0.into()))
}

/// Marks a range inside one extent as written; its budget always suffices.
fn convert_all(
    vol: &Volume,
    h: &mut Handle,
    st: &mut InodeState,
    lblk: u32,
    len: u32,
) -> Result<()> {
    match map::convert(vol, h, &mut st.node, lblk, len, true)? {
        Progress::Done => Ok(()),
        Progress::Restart { .. } => {
            Err(FsError::Io("no journal credits to convert an extent".into()))
        }
    }
}

/// Credits of `commit_take` for a run of this length: bitmap and descriptor of every group it
/// touches.
pub(crate) fn fs_groups(len: u32, per_group: u32) -> u32 {
    2 * (len / per_group.max(1) + 2)
}

/// Writes blocks through the log (data=journal): one transaction for up to a quarter of the
/// largest, then the next.
pub(crate) fn place_journalled(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    promised: u64,
    _: Purpose,
) -> (Result<()>, u64) {
    let mut used = 0;
    let result = journal_blocks(fs, st, lblk, blocks, source, promised, &mut used);
    (result, used)
}

fn journal_blocks(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    promised: u64,
    used: &mut u64,
) -> Result<()> {
    let vol = &fs.vol;
    let bs = vol.geo.block_len();
    let most = (vol.journal.max_credits() / 4).max(1);
    let mut at = 0;
    while at < blocks {
        let here = lblk + at;
        let left = (blocks - at).min(most);
        let mapping = map::lookup(vol, &st.node, here)?;
        let (len, tree) = match mapping {
            Mapping::Mapped { len, unwritten, .. } => {
                (len.min(left), if unwritten { map::credits_for_convert(&st.node) } else { 0 })
            }
            Mapping::Hole { len } => {
                let len = u32::try_from(len).unwrap_or(u32::MAX).min(left);
                (len, map::credits_for_insert(&st.node, len, vol.geo.block_size.bytes()))
            }
        };
        let mut taken = None;
        let start = match mapping {
            Mapping::Mapped { pblk, .. } => {
                check_place(fs, st, pblk, len)?;
                pblk
            }
            Mapping::Hole { .. } => {
                let goal = map::goal(vol, &st.node, here)?;
                let run = vol.alloc.take_for(&mut st.window, goal, len, 1)?;
                taken = Some(run);
                run.start
            }
        };
        let len = taken.map_or(len, |run| run.len);
        let credits = len + tree + fs_groups(len, vol.geo.blocks_per_group) + 2;
        let started = vol.journal.start(credits.min(vol.journal.max_credits()));
        let mut h = match started {
            Ok(h) => h,
            Err(e) => {
                taken.into_iter().for_each(|run| vol.alloc.give_back(run));
                return Err(error::journal(e));
            }
        };
        if let Some(run) = taken {
            commit(vol, &mut h, run, promised, used)?;
            if let Err(e) = map::insert(vol, &mut h, &mut st.node, here, run, false) {
                uncommit(vol, &mut h, run, used);
                let _ = st.store(fs, &mut h, true);
                return Err(e);
            }
        } else if let Mapping::Mapped { unwritten: true, .. } = mapping {
            convert_all(vol, &mut h, st, here, len)?;
        }
        for i in 0..len {
            let buf = h.create(start.plus(u64::from(i))).map_err(error::journal)?;
            let bytes = source.block(at + i, bs);
            h.modify(&buf, |b| b.copy_from_slice(bytes)).map_err(error::journal)?;
        }
        at += len;
        let end = u64::from(lblk + at) << vol.geo.block_size.bits();
        st.disk_size = st.disk_size.max(end.min(st.node.raw.size));
        st.store(fs, &mut h, true)?;
        h.stop().map_err(error::journal)?;
    }
    Ok(())
}
