//! The journal comes or goes.
//!
//! A volume without a journal has nothing that makes several writes one, so the first transaction
//! of the new log is the one that takes the log's own blocks:
//!
//! ```text
//!   1 free blocks   an empty log of zeros, blocks of its map; flush
//!   2 inode 8       maps them, and is not in use yet; flush
//!   3 the new log   one transaction: bitmaps, descriptors, superblock; flush
//!   4 superblock    has_journal, needs_recovery: one write; flush
//!   5 home          what the transaction holds; the log is empty
//! ```
//!
//! What else the request changes is in that transaction.
//!
//! A journal that goes is empty first. Then nothing makes several writes one any more:
//!
//! ```text
//!   1 superblock    no has_journal, not clean: one write; flush
//!   2 in place      the blocks of inode 8 are free, and the inode is empty
//!   3 superblock    clean
//! ```
//!
//! Odd cases: between 2 and 4 on the way in, and behind 1 on the way out, inode 8 holds what no
//! feature speaks of. Linux does not look at it, and e2fsck -p clears it without a question. On the
//! way out the volume is marked as not clean meanwhile, as any volume without a journal that
//! changes: e2fsck -p gives back the blocks that a crash leaves behind.
//!
//! Invariants
//! - TJ-1: nothing that the old volume uses is written before the superblock of 4, but for the slot
//!   of inode 8, which nothing reads without the feature (`Made::begin`).
//! - TJ-2: the transaction is durable before the superblock that sends readers to it, and goes home
//!   behind it (`Made::enter`). From 4 on recovery completes the change.
//! - TJ-3: blocks of the old log are freed only when no superblock names it (`remove`): a log whose
//!   blocks others may take is never replayed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_block::{BlockDevice, BlockNr, SharedDevice};
use extol_jbd2::format::{
    FAST_COMMIT_RATIO, Features, JournalSuperblock, MAX_LOG_BLOCKS, MIN_LOG_BLOCKS,
    usual_log_blocks,
};
use extol_jbd2::{LogConfig, LogMap, recovery};
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Geometry, Incompat, Inode, InodeNr, Superblock, extent};
use extol_vfs::FsError;

use super::request::NewJournal;
use super::{Result, finish, open, refuse};
use crate::alloc::Run;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::map::{self, Discard, Progress};
use crate::mount::{close, journal as log};
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::options::MountOptions;
use crate::resize::{journal_map, update_copies};
use crate::superblock::write_superblock;

type FsResult<T> = std::result::Result<T, FsError>;

/// A transaction has at most the log's blocks by this number, less a few.
const SHARE: u32 = 4;
const SPARE: u32 = 16;
/// Blocks that stay free beside the log and its map.
const OTHERS: u64 = 16;
/// Map blocks that the inode names.
const MOST_NODES: usize = journal_map::IN_INODE;

/// A journal to be made, in blocks that were taken in memory.
#[derive(Debug)]
pub(super) struct Made {
    log: Vec<Run>,
    nodes: Vec<Run>,
    /// Blocks of the log, and how many of them are for fast commits.
    blocks: u32,
    fast: u32,
    inode: Inode,
    map: journal_map::Map,
}

/// Blocks of the log, and of its area for fast commits.
fn size(geo: &Geometry, wish: &NewJournal, fast: bool) -> Result<(u32, u32)> {
    let bytes = u64::from(geo.block_size.bytes());
    let usual = usual_log_blocks(geo.blocks());
    let asked = wish.size_mib.map(|mib| (u64::from(mib) << 20) / bytes);
    let Some(log) = asked.or(usual.map(u64::from)) else {
        return refuse(format!(
            "the volume is too small for a journal of the usual size: give -J size= (at least \
             {MIN_LOG_BLOCKS} blocks)"
        ));
    };
    if wish.fast_commit_kib.is_some() && !fast {
        return refuse("fast_commit_size= is for a journal with fast commits: add -O fast_commit");
    }
    let usual = usual.unwrap_or(MIN_LOG_BLOCKS) / FAST_COMMIT_RATIO;
    let fast = match wish.fast_commit_kib {
        _ if !fast => 0,
        Some(kib) => ((u64::from(kib) << 10) / bytes).max(1),
        None => u64::from(usual).max(1),
    };
    match (u32::try_from(log + fast), u32::try_from(fast)) {
        (Ok(total), Ok(fast)) if log >= MIN_LOG_BLOCKS.into() && total <= MAX_LOG_BLOCKS => {
            Ok((total, fast))
        }
        _ => refuse(format!(
            "a journal of {log} blocks cannot be: it must have {MIN_LOG_BLOCKS} to \
             {MAX_LOG_BLOCKS} blocks"
        )),
    }
}

impl Made {
    /// Finds the place for it. Only memory changes.
    pub fn plan(fs: &MountedFs, wish: &NewJournal, fast: bool) -> Result<Self> {
        let geo = &fs.vol.geo;
        let (blocks, fast) = size(geo, wish, fast)?;
        let per = u64::from(geo.block_size.bytes()) / 4;
        let has_extents = geo.incompat().contains(Incompat::EXTENTS);
        let most_nodes = match has_extents {
            true => MOST_NODES as u64,
            false => journal_map::indirect_nodes(blocks.into(), per),
        };
        let free = fs.vol.alloc.block_counters().free;
        // (A map block takes a cluster.)
        let others = geo.cluster_blocks(most_nodes + OTHERS);
        let want = u64::from(blocks) + others;
        if want > free {
            return refuse(format!(
                "the volume is too full: a journal of {blocks} blocks needs {want} free blocks, \
                 and there are {free}; free some, or give a smaller -J size="
            ));
        }
        let goal = match wish.location {
            None => geo.blocks() / 2,
            Some(place) => match place.bytes(geo.block_size.bytes().into()) {
                Ok(bytes) => bytes >> geo.block_size.bits(),
                Err(error) => return refuse(format!("option location: {error}")),
            },
        };
        if goal >= geo.blocks() {
            return refuse(format!("location={goal}: the volume has {} blocks", geo.blocks()));
        }
        let log = gather(fs, geo.cluster_start(BlockNr(goal)), blocks)?;
        let pieces: usize =
            log.iter().map(|run| (run.len as usize).div_ceil(extent::MAX_LEN.into())).sum();
        let nodes = match (has_extents, pieces) {
            (false, _) => u32::try_from(most_nodes).unwrap_or(u32::MAX),
            (true, ..=journal_map::IN_INODE) => 0,
            (true, pieces) => pieces.div_ceil(extent::block_max(geo).into()) as u32,
        };
        let behind = log.last().map_or(BlockNr(goal), |run| run.end());
        let behind = geo.cluster_end(behind);
        let nodes = match nodes {
            0 => Vec::new(),
            nodes if geo.has_clusters() => {
                let each = (0..nodes).map(|_| gather(fs, behind, 1));
                each.collect::<Result<Vec<_>>>()?.concat()
            }
            nodes => gather(fs, behind, nodes)?,
        };
        Self::map(fs, (log, nodes), blocks, fast)
    }

    fn map(
        fs: &MountedFs,
        (log, nodes): (Vec<Run>, Vec<Run>),
        blocks: u32,
        fast: u32,
    ) -> Result<Self> {
        let geo = &fs.vol.geo;
        let mut inode = Inode::new_empty(geo);
        inode.mode = 0o100_600;
        inode.links = 1;
        inode.size = u64::from(blocks) << geo.block_size.bits();
        let now = fs.now();
        (inode.atime, inode.ctime, inode.mtime, inode.crtime) = (now, now, now, now);
        map::init(geo, &mut inode);
        let data: Vec<_> = log.iter().map(|run| (run.start.0, run.len)).collect();
        let places: Vec<u64> = nodes.iter().flat_map(|run| run.start.0..run.end().0).collect();
        let map = match geo.incompat().contains(Incompat::EXTENTS) {
            true => {
                let seed = inode.seed(InodeNr::JOURNAL, geo);
                journal_map::by_extents(&data, &places, geo, seed)
            }
            false => journal_map::by_blocks(&data, &places, geo.block_len()),
        };
        let Some(map) = map else {
            return refuse(
                "the free space is in too many pieces, or too far behind, for a journal: give a \
                 smaller -J size=",
            );
        };
        inode.i_block = map.i_block;
        let all = log.iter().chain(&nodes).map(|run| u64::from(run.whole_clusters(geo).len));
        inode.blocks = all.sum::<u64>() * u64::from(geo.block_size.bytes() / 512);
        Ok(Self { log, nodes, blocks, fast, inode, map })
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.log.iter().chain(&self.nodes)
    }

    /// Credits to take its blocks: a bitmap and a descriptor for each run.
    pub fn credits(&self) -> u32 {
        u32::try_from(2 * self.runs().count()).unwrap_or(u32::MAX)
    }

    /// What a transaction in it can hold.
    pub fn max_credits(&self) -> u32 {
        ((self.blocks - self.fast) / SHARE).saturating_sub(SPARE)
    }

    /// Steps 1 and 2. From here on transactions go to the new log.
    pub fn begin(&self, fs: &MountedFs) -> FsResult<()> {
        let vol = &fs.vol;
        let (geo, size) = (&vol.geo, vol.geo.block_size);
        let dev: &dyn BlockDevice = &*vol.dev;
        for run in self.runs() {
            vol.journal.forget_clean(run.start, run.len.into());
        }
        for run in &self.log {
            dev.zero_range(run.start.offset(size), u64::from(run.len) << size.bits())
                .map_err(error::device)?;
        }
        for (place, bytes) in &self.map.nodes {
            dev.write_at(bytes, BlockNr(*place).offset(size)).map_err(error::device)?;
        }
        let mut at = 0;
        let extents = self.log.iter().map(|run| {
            let first = at;
            at += run.len;
            (first, run.start.0, run.len)
        });
        let map = LogMap::from_extents(size, extents.collect()).map_err(error::journal)?;
        let mut superblock = JournalSuperblock::new(
            size,
            self.blocks,
            1,
            Features::default(),
            fs.sb.read(|sb| sb.uuid),
        );
        superblock.num_fc_blocks = self.fast;
        let place = map.superblock_offset().unwrap_or_default();
        dev.write_at(&superblock.encode(), place).map_err(error::device)?;
        dev.flush().map_err(error::device)?;
        fs.transact(1, |h| {
            // (A crash of an earlier time may have left one there.)
            vol.clear_inode(h, InodeNr::JOURNAL)?;
            vol.write_inode(
                h,
                InodeNr::JOURNAL,
                &self.inode,
                Change { data: true, born: true, ..Change::default() },
            )
        })?;
        vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
        let next_tid = recovery::wipe(dev, &map, &mut superblock).map_err(error::journal)?.next_tid;
        log::features(&mut superblock, geo, &fs.options.lock().clone());
        let device = Arc::clone(&vol.dev);
        let config = LogConfig { device, external: false, map, superblock, next_tid };
        vol.journal.attach(config).map_err(error::journal)
    }

    /// Says in the transaction of step 3 which blocks it has, and in the superblock where it is.
    pub fn take(&self, fs: &MountedFs, h: &mut extol_jbd2::Handle) -> FsResult<()> {
        self.runs().try_for_each(|run| fs.vol.alloc.commit_take(h, *run))
    }

    /// What the superblock says of it while it is in use.
    pub fn describe(&self, fs: &MountedFs, sb: &mut Superblock) {
        forget(sb);
        // (Without a journal "valid" is off while the volume is open.)
        if fs.fixed.was_valid.load(Ordering::Acquire) {
            sb.state |= State::VALID;
        }
        sb.feature_compat |= Compat::HAS_JOURNAL;
        sb.feature_incompat |= Incompat::NEEDS_RECOVERY;
        sb.journal_inum = InodeNr::JOURNAL.0;
        sb.jnl_backup_type = 1;
        if sb.overhead_clusters != 0 {
            let clusters = fs.vol.geo.clusters(self.blocks.into()) as u32;
            sb.overhead_clusters = sb.overhead_clusters.saturating_add(clusters);
        }
        let words = self.inode.i_block.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w));
        let size = [(self.inode.size >> 32) as u32, self.inode.size as u32];
        sb.jnl_blocks.iter_mut().zip(words.chain(size)).for_each(|(to, word)| *to = word);
    }

    /// The end of step 3, and step 4.
    pub fn enter(&self, fs: &MountedFs) -> FsResult<()> {
        fs.vol.journal.commit_all().map_err(error::journal)?;
        let sb = fs.sb.read(Superblock::clone);
        write_superblock(&*fs.vol.dev, &sb).map_err(|e| FsError::Io(e.line()))
    }
}

/// Takes `want` blocks in memory, in few pieces, from `goal` on.
fn gather(fs: &MountedFs, goal: BlockNr, want: u32) -> Result<Vec<Run>> {
    let alloc = &fs.vol.alloc;
    let mut runs: Vec<Run> = Vec::new();
    let (mut left, mut least) = (want, want);
    while left > 0 {
        let goal = runs.last().map_or(goal, |run| run.end());
        match alloc.take(goal, left, least.min(left)) {
            Ok(run) => {
                left -= run.len;
                runs.push(run);
            }
            Err(FsError::NoSpace) if least > 1 => least = least.min(left) / 2,
            Err(FsError::NoSpace) => {
                return refuse(format!(
                    "the volume is too full: a journal of {want} blocks finds no room; give a \
                     smaller -J size="
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(runs)
}

/// The superblock knows of no journal.
pub(super) fn forget(sb: &mut Superblock) {
    sb.feature_compat.remove(Compat::HAS_JOURNAL);
    sb.feature_incompat.remove(Incompat::NEEDS_RECOVERY);
    (sb.journal_inum, sb.journal_dev, sb.journal_uuid) = (0, 0, [0; 16]);
    (sb.jnl_backup_type, sb.jnl_blocks) = (0, [0; 17]);
}

/// Takes the journal away, and the feature of fast commits with it.
pub(super) fn remove(device: &SharedDevice, options: &MountOptions) -> Result<()> {
    let (fs, mut threads) = open(device, options)?;
    let was_valid = fs.fixed.was_valid.load(Ordering::Acquire);
    let left = leave(&fs);
    close::abandon(&fs, &mut threads);
    left?;
    drop(fs);
    let (fs, mut threads) = open(device, options)?;
    let done = free(&fs);
    fs.fixed.was_valid.store(was_valid && done.is_ok(), Ordering::Release);
    let closed = finish(&fs, &mut threads, &done);
    done.and(closed)
}

/// Empties the log, and writes the superblock without it.
fn leave(fs: &Arc<MountedFs>) -> Result<()> {
    close::write_everything(fs)??;
    let before = fs.clean_superblock();
    let mut sb = before.clone();
    forget(&mut sb);
    if sb.overhead_clusters != 0 {
        let blocks = fs.vol.read_inode(InodeNr::JOURNAL)?.size >> fs.vol.geo.block_size.bits();
        let clusters = u32::try_from(fs.vol.geo.clusters(blocks)).unwrap_or(u32::MAX);
        sb.overhead_clusters = sb.overhead_clusters.saturating_sub(clusters).max(1);
    }
    sb.feature_compat.remove(Compat::FAST_COMMIT);
    sb.state.remove(State::VALID);
    if let Some(guard) = &fs.guard {
        guard.note_change(&before.encode(), &sb.encode());
    }
    write_superblock(&*fs.vol.dev, &sb).map_err(|e| FsError::Io(e.line()).into())
}

/// Frees what inode 8 has.
fn free(fs: &MountedFs) -> Result<()> {
    fs.check_writable()?;
    let (vol, ino) = (&fs.vol, InodeNr::JOURNAL);
    let mut node = Node { ino, raw: vol.read_inode(ino)? };
    let mut to = u32::try_from(node.raw.size >> vol.geo.block_size.bits()).unwrap_or(u32::MAX);
    loop {
        let step = map::credits_for_remove_step(&node) + 2;
        let done = fs.transact(step, |h| {
            let done = map::remove(vol, h, &mut node, 0, to, Discard::Free)?;
            vol.write_inode(h, ino, &node.raw, Change::default())?;
            Ok(done)
        })?;
        match done {
            Progress::Restart { at } => to = at,
            _ => break,
        }
    }
    fs.transact(1, |h| vol.clear_inode(h, ino))?;
    vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
    Ok(update_copies(fs, u32::MAX)?)
}
