//! Taking, mapping and freeing blocks. The states of a block are drawn in `group.rs`, the search is
//! in `pick.rs`.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::{Handle, Tid};
use extol_ondisk::{GroupFlags, GroupNr, InodeNr, bitmap};
use extol_vfs::{FsError, Result};

use super::bits::{self, Span};
use super::group::Group;
use super::pick::{self, Answer, Ask, Groups};
use super::window::Window;
use super::{Allocator, Run};
use crate::error;

/// How often windows are emptied before a request fails. Other files may fill theirs meanwhile, but
/// not on a nearly full volume.
const PRESSURE_ROUNDS: u32 = 8;

impl Groups for Allocator {
    fn count(&self) -> u32 {
        self.geo.groups()
    }

    fn bound(&self, group: u32) -> u32 {
        self.group(GroupNr(group)).map_or(0, Group::bound)
    }

    fn ask(&self, group: u32, ask: Ask) -> Answer {
        let nothing = Answer::No { longest: 0, read: false };
        let Ok(group) = self.group(GroupNr(group)) else { return nothing };
        if group.free() == 0 {
            return nothing;
        }
        let mut state = group.lock();
        let read = state.blocks.is_none();
        // A bad group was reported and is skipped.
        if self.load_blocks(group, &mut state).is_err() {
            return Answer::No { longest: 0, read };
        }
        match state.blocks.as_mut().map(|map| group.claim(map, ask)) {
            Some(Ok(run)) => Answer::Run(run),
            Some(Err(longest)) => Answer::No { longest, read },
            None => nothing,
        }
    }

    fn row_len(&self) -> u32 {
        self.geo.descs_per_block()
    }

    fn row_bound(&self, row: u32) -> u32 {
        self.table.chunk(&self.journal, row).map_or(0, |chunk| chunk.row().blocks.get())
    }

    fn lower_row(&self, row: u32) {
        if let Ok(chunk) = self.table.chunk(&self.journal, row) {
            chunk.row().blocks.lower(|| chunk.groups().map(Group::bound).max().unwrap_or(0));
        }
    }
}

impl Allocator {
    /// Takes `min..=want` neighbouring free blocks of one group in memory, best at or near `goal`.
    /// Only memory changes: [`commit_take`](Self::commit_take) or [`give_back`](Self::give_back)
    /// must follow.
    ///
    /// Whole clusters are taken: all that the run touches. The first block lies at the same place
    /// in its cluster as `goal` in the cluster there.
    ///
    /// `NoSpace` if there is no such run; if [`pending_free`](Self::pending_free) is not 0, a
    /// commit may help.
    pub fn take(&self, goal: BlockNr, want: u32, min: u32) -> Result<Run> {
        let want = want.clamp(1, self.geo.blocks_per_group - self.geo.inside_cluster(goal.0));
        let min = min.clamp(1, want);
        if let Some(run) = self.search(goal, want, min) {
            return Ok(run);
        }
        // Before it fails: blocks in windows and in a batch of a trim come back.
        let _no_trim = self.trim_gate.lock();
        for _ in 0..PRESSURE_ROUNDS {
            let emptied = self.empty_windows();
            if let Some(run) = self.search(goal, want, min) {
                return Ok(run);
            }
            if !emptied {
                break;
            }
        }
        Err(FsError::NoSpace)
    }

    pub(super) fn search(&self, goal: BlockNr, want: u32, min: u32) -> Option<Run> {
        let (home, bit) = self.home(goal);
        let (most, least) = (self.clusters_behind(goal, want), self.clusters_behind(goal, min));
        let (group, span) = pick::search(self, home.0, bit, most, least, self.opts.search_reads)?;
        Some(self.part(GroupNr(group), span, goal, want))
    }

    /// How many clusters `blocks` blocks take that begin at the place of `goal` in one.
    fn clusters_behind(&self, goal: BlockNr, blocks: u32) -> u32 {
        let clusters = self.geo.clusters_touched(goal.0, u64::from(blocks));
        u32::try_from(clusters).unwrap_or(u32::MAX).min(self.geo.clusters_per_group)
    }

    /// The blocks of taken clusters from the place of `goal` in the first on, no more than `want`.
    fn part(&self, group: GroupNr, span: Span, goal: BlockNr, want: u32) -> Run {
        let all = self.run_of(group, span);
        let skip = self.geo.inside_cluster(goal.0);
        Run { start: all.start.plus(u64::from(skip)), len: (all.len - skip).min(want) }
    }

    /// The first `want` blocks of a run that was taken, and the clusters behind them that were
    /// taken with it.
    pub(super) fn cut_off(&self, run: Run, want: u32) -> (Run, Option<Run>) {
        let (piece, _) = run.split(want);
        let (from, to) = (self.geo.cluster_end(piece.end()), self.geo.cluster_end(run.end()));
        let rest = Run { start: from, len: (to.0 - from.0) as u32 };
        (piece, (rest.len > 0).then_some(rest))
    }

    /// The group of a goal, and the place of its cluster there.
    fn home(&self, goal: BlockNr) -> (GroupNr, u32) {
        let goal =
            if self.geo.is_valid_block(goal) { goal } else { BlockNr(self.geo.first_data_block) };
        let home = self.geo.group_of_block(goal);
        let inside = goal.0.saturating_sub(self.geo.group_first_block(home).0);
        (home, u32::try_from(inside).unwrap_or(0) / self.geo.cluster_ratio)
    }

    /// Up to `want` blocks that begin exactly there.
    pub(super) fn take_at(&self, start: BlockNr, want: u32) -> Option<Run> {
        if !self.geo.is_valid_block(start) {
            return None;
        }
        let (nr, bit) = self.home(start);
        let group = self.group(nr).ok().filter(|group| group.free() > 0)?;
        let mut state = group.lock();
        self.load_blocks(group, &mut state).ok()?;
        let map = state.blocks.as_mut()?;
        let len = map.busy.run_at(bit, self.clusters_behind(start, want));
        let span = Span { start: bit, len };
        (len > 0).then(|| group.mark_taken(map, span))?;
        Some(self.part(nr, span, start, want))
    }

    /// `want` blocks in the middle of the longest free run of a group, of at least `room` blocks;
    /// preferably in the group of `goal`.
    pub(super) fn take_amid(&self, goal: BlockNr, want: u32, room: u32) -> Option<Run> {
        let (home, _) = self.home(goal);
        let (len, room) = (self.clusters_behind(goal, want), self.clusters_behind(goal, room));
        let (group, span) = pick::amid(self, home.0, len, room, self.opts.search_reads)?;
        Some(self.part(GroupNr(group), span, goal, want))
    }

    pub(super) fn run_of(&self, group: GroupNr, span: Span) -> Run {
        bits::run_of(&self.geo, group, span)
    }

    pub(super) fn empty_windows(&self) -> bool {
        let runs = self.windows.drain();
        runs.iter().for_each(|&run| self.give_back(run));
        !runs.is_empty()
    }

    /// So few blocks are free that none should be taken ahead.
    pub(super) fn is_tight(&self) -> bool {
        let free = self.geo.cluster_blocks(self.space.counters().free);
        free <= self.windows.blocks().saturating_mul(2).saturating_add(self.geo.blocks() / 64)
    }

    /// [`take`](Self::take) for a file that may be growing: continues in its window, and takes
    /// ahead if it grows.
    pub fn take_for(
        self: &Arc<Self>,
        window: &mut Window,
        goal: BlockNr,
        want: u32,
        min: u32,
    ) -> Result<Run> {
        let want = want.clamp(1, self.geo.blocks_per_group);
        if let Some((cut, _)) = window.cut(self, goal, want, min.clamp(1, want)) {
            return Ok(cut);
        }
        window.empty();
        let limit = if self.is_tight() { 0 } else { self.opts.max_window };
        let ahead = window.plan(goal, want, limit);
        let run = self.take(goal, want.saturating_add(ahead), min.min(want))?;
        let (piece, rest) = self.cut_off(run, want);
        window.keep(self, piece, rest);
        Ok(piece)
    }

    /// As that, for a first piece behind `front` missing blocks of the file, whose clusters stay
    /// free for them. `None` if there is no such place.
    pub fn take_behind(
        self: &Arc<Self>,
        window: &mut Window,
        goal: BlockNr,
        front: u32,
        want: u32,
    ) -> Option<Run> {
        let all = front.checked_add(want).filter(|all| *all <= self.geo.blocks_per_group / 2)?;
        let whole = front - self.geo.inside_cluster(front.into());
        if whole == 0 {
            return None;
        }
        window.empty();
        let begin = BlockNr(goal.0.saturating_sub(front.into()));
        let run = self.search(self.geo.cluster_start(begin), all, all)?;
        self.give_back(run.split(whole).0);
        let piece = run.split(front).1?;
        window.keep(self, piece, None);
        Some(piece)
    }

    /// The group of a run that must not cross a border, and its clusters there.
    fn in_one_group(&self, run: Run) -> Option<(GroupNr, Span)> {
        if !self.geo.is_valid_range(run.start, u64::from(run.len)) {
            return None;
        }
        let mut pieces = bits::split(&self.geo, run.start, u64::from(run.len));
        let piece = pieces.next()?;
        pieces.next().is_none().then_some(piece)
    }

    /// Undoes a take: of all clusters that the run touches.
    pub fn give_back(&self, run: Run) {
        let Some((nr, span)) = self.in_one_group(run) else {
            debug_assert!(false, "{run:?} was never taken");
            return;
        };
        let Ok(group) = self.group(nr) else { return };
        let mut state = group.lock();
        let is_bad = state.bad_blocks.is_some();
        let Some(map) = &mut state.blocks else {
            debug_assert!(false, "{run:?} was never taken");
            return;
        };
        debug_assert!(map.taken >= span.len, "{run:?} was never taken");
        map.taken = map.taken.saturating_sub(span.len);
        if !is_bad {
            group.mark_free(map, span);
        }
    }

    pub(super) fn mark_used(&self, h: &mut Handle, run: Run, was_reserved: bool) -> Result<()> {
        let (nr, span) = self.in_one_group(run).ok_or(FsError::Invalid("run crosses a group"))?;
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_blocks(group, &mut state)?;
        let (mut desc, map) = state.parts()?;
        debug_assert!(map.taken >= span.len && map.busy.all_set(span), "{run:?} was never taken");
        let left = desc.free_blocks.checked_sub(span.len);
        let buf = self.open_block_bitmap(h, group, &mut desc, &map.zones, &mut map.home)?;
        let taken = h
            .modify(buf, |bytes| {
                let left =
                    left.filter(|_| bitmap::find_set(bytes, span.start, span.end()).is_none())?;
                bitmap::set_range(bytes, span.start, span.end());
                Some((left, bitmap::block_bitmap_csum(&self.geo, bytes)))
            })
            .map_err(error::journal)?;
        let Some((left, sum)) = taken else {
            let why = FsError::corrupt("a free block is in use on disk").at_block(run.start.0);
            return Err(self.spoil_blocks(group, &mut state, why));
        };
        self.put_block_csum(&mut desc, sum);
        desc.free_blocks = left;
        if let Err(e) = self.write_desc(h, group, &desc) {
            // The journal has failed and will not write this; memory stays consistent.
            let _ = h.modify(buf, |bytes| bitmap::clear_range(bytes, span.start, span.end()));
            return Err(e);
        }
        map.taken = map.taken.saturating_sub(span.len);
        state.set_desc(desc);
        drop(state);
        let clusters = u64::from(span.len);
        self.space.mapped(clusters, if was_reserved { clusters } else { 0 });
        Ok(())
    }

    /// Frees blocks on disk, with all others of the clusters that they lie in; they are handed out
    /// again when this transaction is durable. 2 credits per group touched. Metadata blocks:
    /// `h.forget` them first.
    ///
    /// `Corrupt` if a block is outside the volume, fixed metadata, or free already.
    pub fn free(self: &Arc<Self>, h: &mut Handle, run: Run) -> Result<()> {
        if !self.geo.is_valid_range(run.start, u64::from(run.len)) {
            let what = format!("freeing {} blocks that are not on the volume", run.len);
            return Err(FsError::corrupt(what).at_block(run.start.0));
        }
        for (nr, span) in bits::split(&self.geo, run.start, u64::from(run.len)) {
            self.free_in_group(h, nr, span)?;
        }
        Ok(())
    }

    fn free_in_group(self: &Arc<Self>, h: &mut Handle, nr: GroupNr, span: Span) -> Result<()> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_blocks(group, &mut state)?;
        let (mut desc, map) = state.parts()?;
        let bad = |what: &str| Err(FsError::corrupt(what).at_block(self.run_of(nr, span).start.0));
        if map.in_zone(span) {
            return bad("freeing blocks that hold the volume's own metadata");
        }
        if !map.busy.all_set(span) || self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
            return bad("freeing blocks that are free");
        }
        let buf = self.open_block_bitmap(h, group, &mut desc, &map.zones, &mut map.home)?;
        let sum = h
            .modify(buf, |bytes| {
                if bitmap::find_zero(bytes, span.start, span.end()).is_some() {
                    return None;
                }
                bitmap::clear_range(bytes, span.start, span.end());
                Some(bitmap::block_bitmap_csum(&self.geo, bytes))
            })
            .map_err(error::journal)?;
        let Some(sum) = sum else { return bad("freeing blocks that are free") };
        self.put_block_csum(&mut desc, sum);
        desc.free_blocks = desc.free_blocks.saturating_add(span.len);
        if let Err(e) = self.write_desc(h, group, &desc) {
            let _ = h.modify(buf, |bytes| bitmap::set_range(bytes, span.start, span.end()));
            return Err(e);
        }
        #[cfg(feature = "planted-bugs")]
        if extol_jbd2::planted::has(extol_jbd2::planted::Bug::ReuseBeforeCommit) {
            group.mark_free(map, span);
            state.set_desc(desc);
            self.space.freed(u64::from(span.len));
            self.space.settled(u64::from(span.len));
            return Ok(());
        }
        map.pending += span.len;
        state.set_desc(desc);
        self.space.freed(u64::from(span.len));
        if self.pending.add_blocks(h.tid(), nr, span) {
            self.settle_on_commit(h);
        }
        Ok(())
    }

    /// Registers the callback that gives back what this transaction freed, at its first free.
    pub(super) fn settle_on_commit(self: &Arc<Self>, h: &mut Handle) {
        // Weak: the journal holds the callback, and the allocator the journal.
        let weak = Arc::downgrade(self);
        let tid = h.tid();
        h.on_commit(move |durable| {
            if let Some(shared) = weak.upgrade() {
                shared.settle(tid, durable);
            }
        });
    }

    fn settle(&self, tid: Tid, durable: bool) {
        let freed = self.pending.remove(tid);
        if !durable {
            return;
        }
        let mut total = 0;
        for (nr, span) in freed.blocks {
            let Ok(group) = self.group(nr) else { continue };
            // Still busy in memory, so no write can be under way there.
            self.discard(nr, span);
            let mut state = group.lock();
            let is_bad = state.bad_blocks.is_some();
            let Some(map) = &mut state.blocks else { continue };
            map.pending = map.pending.saturating_sub(span.len);
            total += u64::from(span.len);
            if !is_bad {
                group.mark_free(map, span);
            }
        }
        self.space.settled(total);
        self.settle_inodes(tid, freed.inodes);
        self.table.settled();
    }

    /// Discards freed blocks (mount option `discard`). Errors do no harm.
    fn discard(&self, nr: GroupNr, span: Span) {
        if let Some(dev) = &*self.discard.read() {
            let (bs, run) = (self.geo.block_size, self.run_of(nr, span));
            let bytes = u64::from(run.len) * u64::from(bs.bytes());
            let _ = dev.discard(run.start.offset(bs), bytes);
        }
    }

    /// Where the blocks of an inode should begin: its group. In flexible groups of 4 and more the
    /// first group is left to directories and other metadata, as Linux does.
    pub(super) fn goal_of(&self, ino: InodeNr, is_data: bool) -> BlockNr {
        let (mut group, _) = self.geo.group_of_inode(ino);
        let flex = self.geo.groups_per_flex();
        if flex >= 4 {
            group.0 = group.0 / flex * flex;
            if is_data && group.0.saturating_add(1) < self.geo.groups() {
                group.0 += 1;
            }
        }
        self.geo.group_first_block(GroupNr(group.0.min(self.geo.groups() - 1)))
    }
}
