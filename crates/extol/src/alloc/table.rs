//! All groups: made at first use, one descriptor block at a time, with bounded bitmaps in memory.
//!
//! A *chunk* is the groups whose descriptors share a block. The first use of any of them reads the
//! block, checks each descriptor and makes all its [`Group`]s. Chunks stay in memory (some hundred
//! bytes per group). When the volume grows, chunks are added and the last one gets more groups;
//! none moves (`grow_only.rs`).
//!
//! Where the fixed metadata of a group lies is needed when its bitmap comes into memory. With
//! flex_bg, part of it belongs to other groups: bitmaps and inode tables that their descriptors
//! place here. Each chunk notes such *foreign* runs when it is made, and a group makes sure that
//! the chunks of its whole flexible group were made before it asks. (A descriptor may point
//! anywhere; one from outside the flexible group is known as soon as its chunk is.)
//!
//! Residency: the bitmaps of at most `limit` groups stay in memory. A clock hand drops those not
//! used since its last visit. Groups in flight (taken or pending blocks) stay. The hand only
//! *tries* locks, so it may run under the lock of the group that has just come in.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::BlockNr;
use extol_jbd2::Journal;
use extol_ondisk::{Geometry, GroupDesc, GroupNr, Incompat};
use extol_sync::plain::Mutex;
use extol_sync::rank::{Mutex as RankedMutex, Rank};
use extol_vfs::{FsError, Result};

use super::Run;
use super::bits::{Span, run_of, split};
use super::group::{Group, merge};
use super::grow_only::GrowOnly;
use super::row::Row;
use super::zones::{Strays, places, reject_overlaps};
use crate::error;

/// Bytes of descriptors that are read at once when all are wanted.
const AHEAD: usize = 1 << 20;

/// How many groups the hand may look at when one comes in: bounds the time under the newcomer's
/// lock.
const CLOCK_STEPS: usize = 64;

/// The groups of one descriptor block.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Those that exist: the last block's become more when the volume grows.
    groups: GrowOnly<Group, 12>,
    row: Arc<Row>,
}

impl Chunk {
    /// Its bounds.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// The group at this place.
    pub fn group(&self, place: u32) -> Option<&Group> {
        self.groups.get(place)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }
}

/// The groups of a volume.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) geo: Geometry,
    chunks: GrowOnly<Chunk>,
    /// Held while a chunk is made.
    making: RankedMutex<(), { Rank::Descriptors as u8 }>,
    /// Metadata runs by the group in which they lie, if that is not the group they belong to.
    foreign: Mutex<HashMap<GroupNr, Vec<Span>>>,
    /// Metadata that a group's own zones may not show.
    pub(super) strays: Strays,
    resident: Mutex<VecDeque<GroupNr>>,
    limit: usize,
    /// The log was not replayed: descriptors may be newer than the superblock.
    before_recovery: bool,
    /// The first block that is not handed out (`limit.rs`).
    pub(super) end: AtomicU64,
    /// Groups whose descriptors were read, and directories in them: the average for placing
    /// directories.
    known: AtomicU64,
    dirs: AtomicU64,
}

impl Table {
    pub fn new(geo: Geometry, limit: usize, before_recovery: bool) -> Self {
        let chunks = GrowOnly::new(geo.desc_blocks());
        Self {
            geo,
            chunks,
            making: RankedMutex::new(()),
            foreign: Mutex::default(),
            strays: Strays::default(),
            resident: Mutex::default(),
            limit: limit.max(1),
            before_recovery,
            end: AtomicU64::new(u64::MAX),
            known: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
        }
    }

    /// The group; reads its descriptor block at its first use.
    pub fn get(&self, journal: &Journal, nr: GroupNr) -> Result<&Group> {
        let per = self.geo.descs_per_block();
        let (index, place) = (nr.0 / per, nr.0 % per);
        let chunk = self.chunk(journal, index)?;
        if let Some(group) = chunk.group(place) {
            return Ok(group);
        }
        if self.geo.is_valid_group(nr) {
            // The volume grew since the chunk was made.
            self.fill(chunk, journal, index)?;
        }
        chunk.group(place).ok_or_else(|| FsError::corrupt(format!("no such block group {}", nr.0)))
    }

    /// The group, if its descriptor block was read.
    pub fn peek(&self, nr: GroupNr) -> Option<&Group> {
        let per = self.geo.descs_per_block();
        self.chunks.get(nr.0 / per)?.group(nr.0 % per)
    }

    /// Groups whose descriptor blocks were read.
    pub fn known(&self) -> impl Iterator<Item = &Group> {
        self.chunks.iter().flat_map(Chunk::groups)
    }

    /// Directories that `groups` groups have on average.
    pub fn average_dirs(&self, groups: u32) -> u64 {
        let dirs = self.dirs.load(Ordering::Relaxed);
        dirs.saturating_mul(u64::from(groups)) / self.known.load(Ordering::Relaxed).max(1)
    }

    /// A directory was made or removed.
    pub fn count_dir(&self, made: bool) {
        if made {
            self.dirs.fetch_add(1, Ordering::Relaxed);
        } else {
            // Below zero only if a descriptor was wrong; the average only guides placement.
            self.dirs
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(1)))
                .ok();
        }
    }

    /// The bounds and the groups of a descriptor block; reads the block at its first use.
    pub fn chunk(&self, journal: &Journal, index: u32) -> Result<&Chunk> {
        if let Some(chunk) = self.chunks.get(index) {
            return Ok(chunk);
        }
        let no_such = || FsError::corrupt(format!("no such descriptor block {index}"));
        if index >= self.geo.desc_blocks() {
            return Err(no_such());
        }
        let slot = self.chunks.slot(index).ok_or_else(no_such)?;
        let _making = self.making.lock();
        if slot.get().is_none() {
            let descs = self.descs(journal, index)?;
            let groups = GrowOnly::new(u32::try_from(descs.len()).unwrap_or(u32::MAX));
            let chunk = Chunk { groups, row: Arc::new(Row::new()) };
            self.add(&chunk, descs);
            chunk.row.blocks.lower(|| chunk.groups().map(Group::bound).max().unwrap_or(0));
            chunk.row.inodes.lower(|| chunk.groups().map(Group::free_inodes).max().unwrap_or(0));
            // Set under `making`, so this cannot fail.
            let _ = slot.set(chunk);
        }
        slot.get().ok_or_else(no_such)
    }

    /// Adds the groups that a chunk has not yet.
    fn fill(&self, chunk: &Chunk, journal: &Journal, index: u32) -> Result<()> {
        let _making = self.making.lock();
        let descs = self.descs(journal, index)?;
        self.add(chunk, descs);
        Ok(())
    }

    /// The descriptors of one block, with those that are wrong marked as bad.
    fn descs(&self, journal: &Journal, index: u32) -> Result<Descs> {
        let mut descs = read_descs(&self.geo, journal, index, self.before_recovery)?;
        for (nr, desc) in descs.iter().filter_map(|(nr, desc)| Some((*nr, desc.as_ref().ok()?))) {
            if self.peek(nr).is_none() {
                self.note_foreign(nr, desc);
            }
        }
        reject_overlaps(&self.geo, &mut descs);
        Ok(descs)
    }

    /// Makes the groups of a chunk that are not there yet. (`making` is held.)
    fn add(&self, chunk: &Chunk, descs: Descs) {
        let per = self.geo.descs_per_block();
        for (nr, desc) in descs {
            let Some(slot) = chunk.groups.slot(nr.0 % per) else { continue };
            if slot.get().is_some() {
                continue;
            }
            let dirs = desc.as_ref().map_or(0, |d| u64::from(d.used_dirs));
            self.known.fetch_add(1, Ordering::Relaxed);
            self.dirs.fetch_add(dirs, Ordering::Relaxed);
            let blocks = self.usable(nr);
            let inodes = if blocks == 0 { 0 } else { self.geo.inodes_per_group };
            let group = slot.get_or_init(|| Group::new(nr, &chunk.row, desc, blocks, inodes));
            chunk.row.blocks.raise(group.bound());
            chunk.row.inodes.raise(group.free_inodes());
        }
    }

    /// The volume grew: the groups behind `before` of the last descriptor block become known, so
    /// that searches look into them. (Other new ones are read at their first use.)
    pub fn grown(&self, journal: &Journal, before: u32) -> Result<()> {
        let index = before / self.geo.descs_per_block();
        match self.chunks.get(index) {
            Some(chunk) if before < self.geo.groups() => self.fill(chunk, journal, index),
            _ => Ok(()),
        }
    }

    fn note_foreign(&self, owner: GroupNr, desc: &GroupDesc) {
        if !self.geo.incompat().contains(Incompat::FLEX_BG) {
            return;
        }
        let flex = self.geo.groups_per_flex();
        for (start, len) in places(&self.geo, desc) {
            for (group, span) in split(&self.geo, BlockNr(start), len) {
                if group != owner {
                    self.add_foreign(group, span);
                }
                if group.0 / flex != owner.0 / flex {
                    let run = run_of(&self.geo, group, span);
                    self.strays.add(run.start.0, u64::from(run.len));
                }
            }
        }
    }

    fn add_foreign(&self, group: GroupNr, span: Span) {
        let mut foreign = self.foreign.lock();
        let runs = foreign.entry(group).or_default();
        // Bitmaps and tables of neighbouring groups lie side by side, in three rows.
        for run in runs.iter_mut().rev().take(4) {
            if run.end() == span.start {
                run.len += span.len;
                return;
            }
        }
        runs.push(span);
    }

    /// Blocks of the volume itself that no descriptor names (the journal's, for instance).
    pub fn protect(&self, run: Run) {
        self.strays.add(run.start.0, u64::from(run.len));
        for (group, span) in split(&self.geo, run.start, u64::from(run.len)) {
            self.add_foreign(group, span);
        }
    }

    /// Undoes [`protect`](Self::protect): the blocks are about to be freed. (A run of another one
    /// that touched it stays.)
    pub fn unprotect(&self, journal: &Journal, run: Run) {
        self.strays.remove(run.start.0, u64::from(run.len));
        for (nr, gone) in split(&self.geo, run.start, u64::from(run.len)) {
            if let Some(runs) = self.foreign.lock().get_mut(&nr) {
                *runs = runs.iter().flat_map(|run| without(*run, gone)).collect();
            }
            let Some(group) = self.peek(nr) else { continue };
            let mut state = group.lock();
            let Ok(desc) = state.desc().copied() else { continue };
            let zones = self.zones(journal, nr, &desc);
            if let Some(map) = &mut state.blocks {
                map.zones = zones;
            }
        }
    }

    /// All fixed metadata that lies in a group.
    pub fn zones(&self, journal: &Journal, nr: GroupNr, desc: &GroupDesc) -> Box<[Span]> {
        let base = self.geo.base_meta_blocks(nr).min(self.geo.group_blocks(nr));
        let mut spans = vec![Span { start: 0, len: base.div_ceil(self.geo.cluster_ratio) }];
        for (start, len) in places(&self.geo, desc) {
            spans.extend(
                split(&self.geo, BlockNr(start), len)
                    .filter(|(g, _)| *g == nr)
                    .map(|(_, span)| span),
            );
        }
        if self.geo.incompat().contains(Incompat::FLEX_BG) {
            let flex = self.geo.groups_per_flex();
            let first = nr.0 / flex * flex;
            let last = first.saturating_add(flex - 1).min(self.geo.groups() - 1);
            let per = self.geo.descs_per_block();
            for index in first / per..=last / per {
                // A descriptor block that cannot be read adds no zone.
                let _ = self.chunk(journal, index);
            }
        }
        spans.extend(self.foreign.lock().get(&nr).into_iter().flatten());
        merge(spans)
    }

    /// True if the run touches the volume's own metadata. `Corrupt` if a group's descriptor is bad.
    pub fn is_system(&self, journal: &Journal, run: Run) -> Result<bool> {
        if self.strays.touches(run.start.0, u64::from(run.len)) {
            return Ok(true);
        }
        for (nr, span) in split(&self.geo, run.start, u64::from(run.len)) {
            let group = self.get(journal, nr)?;
            let zones = match group.zones.get() {
                Some(zones) => zones,
                None => {
                    let desc = *group.lock().desc()?;
                    group.zones.get_or_init(|| self.zones(journal, nr, &desc))
                }
            };
            // (What was moved away, and unprotected, is in them still.)
            if touch(zones, span) && self.is_zone_now(journal, group, span)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_zone_now(&self, journal: &Journal, group: &Group, span: Span) -> Result<bool> {
        let desc = *group.lock().desc()?;
        Ok(touch(&self.zones(journal, group.nr, &desc), span))
    }

    /// A group's bitmap came into memory: drops others if there are too many. Its lock may be held.
    pub fn came_in(&self, nr: GroupNr) {
        let mut resident = self.resident.lock();
        resident.push_back(nr);
        self.sweep(&mut resident, Some(nr), CLOCK_STEPS);
    }

    /// Groups are no longer in flight: drops bitmaps if there are too many.
    pub fn settled(&self) {
        let mut resident = self.resident.lock();
        let steps = resident.len().saturating_mul(2);
        self.sweep(&mut resident, None, steps);
    }

    fn sweep(&self, resident: &mut VecDeque<GroupNr>, newcomer: Option<GroupNr>, mut steps: usize) {
        while resident.len() > self.limit && steps > 0 {
            steps -= 1;
            let Some(at) = resident.pop_front() else { return };
            let Some(group) = self.peek(at) else { continue };
            let keep = newcomer == Some(at)
                || group.recent.swap(false, Ordering::Relaxed)
                || match group.state.try_lock() {
                    Some(mut state) if state.is_idle() => {
                        state.shrink();
                        false
                    }
                    _ => true,
                };
            if keep {
                resident.push_back(at);
            }
        }
    }

    /// No group has bitmaps in memory any more.
    pub fn forget_resident(&self) {
        self.resident.lock().clear();
    }

    /// Groups with bitmaps in memory.
    pub fn resident(&self) -> usize {
        self.resident.lock().len()
    }
}

fn touch(zones: &[Span], span: Span) -> bool {
    let at = zones.partition_point(|z| z.end() <= span.start);
    zones.get(at).is_some_and(|z| z.overlaps(span))
}

/// What is left of a span.
fn without(span: Span, gone: Span) -> impl Iterator<Item = Span> {
    let part = |from: u32, to: u32| Span { start: from, len: to.saturating_sub(from) };
    let before = part(span.start, span.end().min(gone.start));
    let behind = part(span.start.max(gone.end()), span.end());
    [before, behind].into_iter().filter(|part| part.len > 0)
}

type Descs = Vec<(GroupNr, Result<GroupDesc>)>;

/// Reads and checks the descriptors of one block.
fn read_descs(
    geo: &Geometry,
    journal: &Journal,
    index: u32,
    before_recovery: bool,
) -> Result<Descs> {
    let (block, _) = geo.desc_block(first_of(geo, index));
    let data: Arc<Vec<u8>> = journal.read(block).map_err(error::journal)?.data();
    Ok(match before_recovery {
        true => decode(geo, index, &data, GroupDesc::decode_before_recovery),
        false => decode(geo, index, &data, GroupDesc::decode),
    })
}

fn first_of(geo: &Geometry, index: u32) -> GroupNr {
    GroupNr(index.saturating_mul(geo.descs_per_block()))
}

/// How one descriptor is decoded.
type Decoder = fn(&[u8], &Geometry, GroupNr) -> extol_ondisk::Result<GroupDesc>;

fn decode(geo: &Geometry, index: u32, data: &[u8], decoder: Decoder) -> Descs {
    let per = geo.descs_per_block();
    let first = first_of(geo, index).0;
    let (block, _) = geo.desc_block(GroupNr(first));
    let descs = (first..first.saturating_add(per).min(geo.groups())).map(GroupNr).map(|nr| {
        let (_, at) = geo.desc_block(nr);
        let bytes = data.get(at..at + usize::from(geo.desc_size)).unwrap_or_default();
        let desc = decoder(bytes, geo, nr).map_err(|e| {
            let what = format!("descriptor of block group {}: {e}", nr.0);
            FsError::corrupt(what).at_block(block.0)
        });
        (nr, desc)
    });
    descs.collect()
}

/// Gives all descriptors to `each`, read from the device in large pieces: for a journal that was
/// just opened, when no block is newer in memory. (They do not stay in memory.)
pub(super) fn each_desc(
    geo: &Geometry,
    journal: &Journal,
    each: &mut dyn FnMut(Result<GroupDesc>),
) -> Result<()> {
    let len = geo.block_len();
    let mut bytes = Vec::new();
    for run in desc_runs(geo) {
        bytes.resize(run.len() * len, 0);
        let start = geo.desc_block(first_of(geo, run.start)).0;
        journal.read_home(start, &mut bytes).map_err(error::journal)?;
        for (block, index) in bytes.chunks(len).zip(run) {
            decode(geo, index, block, GroupDesc::decode)
                .into_iter()
                .for_each(|(_, desc)| each(desc));
        }
    }
    Ok(())
}

/// The descriptor blocks of a volume, in runs that lie in one piece and are read at once. (With
/// meta_bg they lie apart.)
pub(crate) fn desc_runs(geo: &Geometry) -> impl Iterator<Item = Range<u32>> + '_ {
    let place = |index: u32| geo.desc_block(first_of(geo, index)).0;
    let most = u32::try_from(AHEAD / geo.block_len()).unwrap_or(1).max(1);
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = place(from);
        let end = from.saturating_add(most).min(geo.desc_blocks());
        let end =
            (from..end).find(|at| place(*at) != start.plus((at - from).into())).unwrap_or(end);
        let run = from..end;
        from = end;
        (!run.is_empty()).then_some(run)
    })
}
