//! All groups: made at first use, one descriptor block at a time, with bounded bitmaps in memory.
//!
//! A *chunk* is the groups whose descriptors share a block. The first use of any of them reads the
//! block, checks each descriptor and makes all its [`Group`]s. Chunks stay in memory (some hundred
//! bytes per group).
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::BlockNr;
use extol_jbd2::Journal;
use extol_ondisk::{Geometry, GroupDesc, GroupNr, Incompat};
use extol_sync::rank::{Mutex as RankedMutex, Rank};
use extol_vfs::{FsError, Result};
use parking_lot::Mutex;

use super::Run;
use super::bits::{Span, split};
use super::group::{Group, merge};
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
struct Chunk {
    groups: Box<[Group]>,
    row: Arc<Row>,
}

/// The groups of a volume.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) geo: Geometry,
    chunks: Box<[OnceLock<Chunk>]>,
    /// Held while a chunk is made.
    making: RankedMutex<(), { Rank::Descriptors as u8 }>,
    /// Metadata runs by the group in which they lie, if that is not the group they belong to.
    foreign: Mutex<HashMap<GroupNr, Vec<Span>>>,
    /// Metadata that a group's own zones may not show.
    pub(super) strays: Strays,
    resident: Mutex<VecDeque<GroupNr>>,
    limit: usize,
    /// Groups whose descriptors were read, and directories in them: the average for placing
    /// directories.
    known: AtomicU64,
    dirs: AtomicU64,
}

impl Table {
    pub fn new(geo: Geometry, limit: usize) -> Self {
        let chunks = (0..geo.desc_blocks()).map(|_| OnceLock::new()).collect();
        Self {
            geo,
            chunks,
            making: RankedMutex::new(()),
            foreign: Mutex::default(),
            strays: Strays::default(),
            resident: Mutex::default(),
            limit: limit.max(1),
            known: AtomicU64::new(0),
            dirs: AtomicU64::new(0),
        }
    }

    /// The group; reads its descriptor block at its first use.
    pub fn get(&self, journal: &Journal, nr: GroupNr) -> Result<&Group> {
        let per = self.geo.descs_per_block();
        let chunk = self.chunk(journal, nr.0 / per)?;
        chunk
            .groups
            .get((nr.0 % per) as usize)
            .ok_or_else(|| FsError::corrupt(format!("no such block group {}", nr.0)))
    }

    /// The group, if its descriptor block was read.
    pub fn peek(&self, nr: GroupNr) -> Option<&Group> {
        let per = self.geo.descs_per_block();
        self.chunks.get((nr.0 / per) as usize)?.get()?.groups.get((nr.0 % per) as usize)
    }

    /// Groups whose descriptor blocks were read.
    pub fn known(&self) -> impl Iterator<Item = &Group> {
        self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.groups.iter())
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
    pub fn row(&self, journal: &Journal, index: u32) -> Result<(&Row, &[Group])> {
        self.chunk(journal, index).map(|chunk| (&*chunk.row, &*chunk.groups))
    }

    fn chunk(&self, journal: &Journal, index: u32) -> Result<&Chunk> {
        let no_such = || FsError::corrupt(format!("no such descriptor block {index}"));
        let slot = self.chunks.get(index as usize).ok_or_else(no_such)?;
        if let Some(chunk) = slot.get() {
            return Ok(chunk);
        }
        let _making = self.making.lock();
        if slot.get().is_none() {
            let mut descs = read_descs(&self.geo, journal, index)?;
            for (nr, desc) in descs.iter().filter_map(|(nr, desc)| Some((*nr, desc.as_ref().ok()?)))
            {
                self.note_foreign(nr, desc);
            }
            reject_overlaps(&self.geo, &mut descs);
            let row = Arc::new(Row::new());
            let mut groups = Vec::with_capacity(descs.len());
            for (nr, desc) in descs {
                self.known.fetch_add(1, Ordering::Relaxed);
                self.dirs.fetch_add(
                    desc.as_ref().map_or(0, |d| u64::from(d.used_dirs)),
                    Ordering::Relaxed,
                );
                let (blocks, inodes) = (self.geo.group_blocks(nr), self.geo.inodes_per_group);
                groups.push(Group::new(nr, &row, desc, blocks, inodes));
            }
            row.blocks.lower(|| groups.iter().map(Group::bound).max().unwrap_or(0));
            row.inodes.lower(|| groups.iter().map(Group::free_inodes).max().unwrap_or(0));
            // Set under `making`, so this cannot fail.
            let _ = slot.set(Chunk { groups: groups.into(), row });
        }
        slot.get().ok_or_else(no_such)
    }

    fn note_foreign(&self, owner: GroupNr, desc: &GroupDesc) {
        if !self.geo.incompat.contains(Incompat::FLEX_BG) {
            return;
        }
        let flex = self.geo.groups_per_flex();
        for (start, len) in places(&self.geo, desc) {
            for (group, span) in split(&self.geo, BlockNr(start), len) {
                if group != owner {
                    self.add_foreign(group, span);
                }
                if group.0 / flex != owner.0 / flex {
                    self.strays.add(
                        self.geo.group_first_block(group).0 + u64::from(span.start),
                        u64::from(span.len),
                    );
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

    /// All fixed metadata that lies in a group.
    pub fn zones(&self, journal: &Journal, nr: GroupNr, desc: &GroupDesc) -> Box<[Span]> {
        let base = self.geo.base_meta_blocks(nr).min(self.geo.group_blocks(nr));
        let mut spans = vec![Span { start: 0, len: base }];
        for (start, len) in places(&self.geo, desc) {
            spans.extend(
                split(&self.geo, BlockNr(start), len)
                    .filter(|(g, _)| *g == nr)
                    .map(|(_, span)| span),
            );
        }
        if self.geo.incompat.contains(Incompat::FLEX_BG) {
            let flex = self.geo.groups_per_flex();
            let first = nr.0 / flex * flex;
            let last = first.saturating_add(flex - 1).min(self.geo.groups - 1);
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
            let at = zones.partition_point(|z| z.end() <= span.start);
            if zones.get(at).is_some_and(|z| z.overlaps(span)) {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// Groups with bitmaps in memory.
    pub fn resident(&self) -> usize {
        self.resident.lock().len()
    }
}

type Descs = Vec<(GroupNr, Result<GroupDesc>)>;

/// Reads and checks the descriptors of one block.
pub(super) fn read_descs(geo: &Geometry, journal: &Journal, index: u32) -> Result<Descs> {
    let (block, _) = geo.desc_block(first_of(geo, index));
    let data: Arc<Vec<u8>> = journal.read(block).map_err(error::journal)?.data();
    Ok(decode(geo, index, &data))
}

fn first_of(geo: &Geometry, index: u32) -> GroupNr {
    GroupNr(index.saturating_mul(geo.descs_per_block()))
}

fn decode(geo: &Geometry, index: u32, data: &[u8]) -> Descs {
    let per = geo.descs_per_block();
    let first = first_of(geo, index).0;
    let (block, _) = geo.desc_block(GroupNr(first));
    let descs = (first..first.saturating_add(per).min(geo.groups)).map(GroupNr).map(|nr| {
        let (_, at) = geo.desc_block(nr);
        let bytes = data.get(at..at + usize::from(geo.desc_size)).unwrap_or_default();
        let desc = GroupDesc::decode(bytes, geo, nr).map_err(|e| {
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
            decode(geo, index, block).into_iter().for_each(|(_, desc)| each(desc));
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
