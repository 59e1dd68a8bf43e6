//! Moves the log in front of a limit.
//!
//! Linux and e2fsck read the map of the journal's inode before they replay the log, and go on with
//! that. So no transaction may change which blocks the log has: the switch is one sector, written
//! in place while the log is empty.
//!
//! ```text
//!   1 transaction   [ old log │ new log, map blocks ]          the log uses the old blocks
//!   2 in place        an empty log in the new blocks, the map of 3 in the map blocks; flush
//!   3 one sector    [ new log │ old log, map blocks of 1 ]     flush; the log uses the new blocks
//!   4 transaction   [ new log ]                                the rest is freed
//! ```
//!
//! The inode has the same blocks in 2 and 3, in another order: map blocks of the one are data of
//! the other. The superblock of a log says how many blocks it uses, so what follows does no harm.
//! Each state is sound, for e2fsck and Linux too, and nothing has to be finished: what a crash
//! leaves behind the log is freed by the next move.
//!
//! A log becomes shorter in place: its superblock says so, in one sector and while it is empty, and
//! then what is behind it is freed.
//!
//! | file | what |
//! | --- | --- |
//! | `blocks` | which blocks the file has |
//! | `room` | takes blocks for the new log, and maps them behind the old one |
//! | `remap` | gives the file another map, in steps 1 and 4 |
//! | `switch` | the exchange of the maps, steps 2 and 3 |
//! | `shorten` | makes the log shorter, and frees what is behind it |
//! | `tail` | gets blocks behind the log |
//! | `map` | makes the map of a file from its blocks |
//!
//! Odd cases
//! - There is no room for a log as long as the old one: it becomes shorter, but not shorter than
//!   Linux accepts, or than what comes next needs for its transactions.
//! - More extents than the inode holds get one map block. More than that has room for are not
//!   moved.
//! - With clusters a log that moves has no map block, before and after, and is made of whole
//!   clusters: a map block would take one, of which the log could use a block only.
//! - An inode larger than a sector cannot be switched: refused.
//! - The copy of the map in the superblock follows in the transactions. After 3 it is that of 1,
//!   which leads to an empty log as well.
//!
//! Invariants
//! - JM-1: the log is empty from 2 until 3 is durable (`Journal::move_log`), so either map leads to
//!   an empty log.
//! - JM-2: the old log is freed by a transaction in the new one.
//! - JM-3: e2fsck and Linux find all blocks of the log by the map as it is on the device at any
//!   time, within a recovery too: no map block of the inode changes. Another map is written to
//!   blocks that are none of the map that is there, and then the inode, in one sector, names it
//!   (`JournalFile::remap`).

pub(super) mod blocks;
pub(crate) mod map;
mod remap;
mod room;
mod shorten;
mod switch;
mod tail;

use extol_jbd2::Handle;
use extol_ondisk::{Compat, InodeNr, extent};
use extol_vfs::FsError;

use super::super::ResizeError;
use super::mover::settle;
use super::survey;
use crate::alloc::Run;
use crate::fast_commit::eligibility::Change;
use crate::fast_commit::{self, Delta, Reason};
use crate::mounted::MountedFs;
use crate::node::Node;

type Result<T> = std::result::Result<T, ResizeError>;

/// Bytes that a device writes whole.
const SECTOR: usize = 512;
/// Blocks of the shortest log that Linux accepts.
const SHORTEST: u32 = 1024;
/// A transaction has at most the log's blocks by this number, less a few.
const SHARE: u32 = 4;
const SPARE: u32 = 16;

/// Moves the log, if some of it lies at or behind block `limit`, in front of it. The allocator
/// hands out nothing from there on. A log that becomes shorter still holds a transaction of so many
/// blocks, if the old one does.
pub(crate) fn move_journal(
    fs: &MountedFs,
    limit: u64,
    transaction: u32,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    move_log(fs, &Place { limit, within: None, transaction }, progress)
}

/// Where the log is to be.
pub(super) struct Place {
    /// In front of this block.
    pub limit: u64,
    /// In these blocks.
    pub within: Option<Run>,
    /// It holds a transaction of so many blocks.
    pub transaction: u32,
}

/// Moves the log to a place, unless it is there.
pub(super) fn move_log(
    fs: &MountedFs,
    place: &Place,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let Some(mut file) = JournalFile::open(fs)? else { return Ok(()) };
    let limit = place.limit;
    if file.is_at(place)? {
        return Ok(());
    }
    if usize::from(fs.vol.geo.inode_size) > SECTOR {
        let what = "inodes are too large to move the journal";
        return Err(ResizeError::NoRoom { what, blocks: limit });
    }
    file.fit_clusters(place)?;
    let blocks = fs.vol.journal.log_blocks();
    let old = file.runs()?;
    let new = file.take(blocks, place)?;
    file.append(&new, limit)?;
    progress(1, 3);
    file.switch(&new, limit)?;
    progress(2, 3);
    old.iter().for_each(|run| fs.vol.alloc.unprotect(*run));
    let len = new.log.iter().map(|run| run.len).sum();
    file.cut(len)?;
    new.log.iter().for_each(|run| fs.vol.alloc.protect(*run));
    progress(3, 3);
    Ok(())
}

/// The blocks by which the log can become shorter while it holds a transaction of so many.
pub(super) fn spare_blocks(fs: &MountedFs, transaction: u32) -> Result<u32> {
    if !fs.vol.journal.has_log() || fs.sb.read(|sb| sb.journal_inum) == 0 {
        return Ok(0);
    }
    Ok(fs.vol.journal.log_blocks().saturating_sub(shortest(fs, transaction)?))
}

/// Makes the log as short as it may be while it holds a transaction of so many blocks.
pub(super) fn shorten_journal(fs: &MountedFs, transaction: u32) -> Result<()> {
    let Some(mut file) = JournalFile::open(fs)? else { return Ok(()) };
    let keep = shortest(fs, transaction)?;
    if keep < fs.vol.journal.log_blocks() {
        file.shorten(keep)?;
    }
    Ok(settle(fs)?)
}

/// The shortest log that holds a transaction of so many blocks, and the move of any inode.
fn shortest(fs: &MountedFs, transaction: u32) -> Result<u32> {
    let journal = &fs.vol.journal;
    let shortest = shortest_plain(transaction);
    let shortest = match survey::largest_move(fs, shortest / SHARE - SPARE)? {
        0 => shortest,
        blocks => shortest.max(journal.log_for_alone(blocks)),
    };
    let fast = fs.vol.geo.compat().contains(Compat::FAST_COMMIT);
    let all = shortest.saturating_add(if fast { journal.fast_blocks() } else { 0 });
    let ratio = fs.vol.geo.cluster_ratio;
    Ok(all.checked_next_multiple_of(ratio).unwrap_or(all))
}

/// The same without an area for fast commits, for inodes that move by transactions of usual size.
pub(super) fn shortest_plain(transaction: u32) -> u32 {
    transaction.saturating_add(SPARE).saturating_mul(SHARE).max(SHORTEST)
}

/// The file that holds the log.
pub(super) struct JournalFile<'a> {
    fs: &'a MountedFs,
    node: Node,
}

impl<'a> JournalFile<'a> {
    /// The file of a volume that has its log inside, without what a move has left behind the log.
    pub(super) fn open(fs: &'a MountedFs) -> Result<Option<Self>> {
        fs.check_writable()?;
        let ino = fs.sb.read(|sb| sb.journal_inum);
        if ino == 0 || !fs.vol.journal.has_log() {
            return Ok(None);
        }
        settle(fs)?;
        let mut file = Self::read(fs, InodeNr(ino))?;
        file.cut(fs.vol.journal.log_blocks())?;
        Ok(Some(file))
    }

    pub(super) fn read(fs: &'a MountedFs, ino: InodeNr) -> Result<Self> {
        let node = Node { ino, raw: fs.vol.read_inode(ino)? };
        Ok(Self { fs, node })
    }

    fn blocks(&self) -> u32 {
        let blocks = self.node.raw.size >> self.fs.vol.geo.block_size.bits();
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// With clusters, makes a log shorter that needs map blocks, or ends inside a cluster.
    fn fit_clusters(&mut self, place: &Place) -> Result<()> {
        let geo = &self.fs.vol.geo;
        let fits = |file: &Self| -> Result<bool> {
            let whole = file.blocks().is_multiple_of(geo.cluster_ratio);
            Ok(whole && file.nodes()?.is_empty())
        };
        if !geo.has_clusters() || fits(self)? {
            return Ok(());
        }
        let most = u32::from(extent::MAX_LEN).min(self.fs.vol.journal.log_blocks());
        let keep = (most / geo.cluster_ratio * geo.cluster_ratio)
            .max(shortest(self.fs, place.transaction)?);
        if keep < self.fs.vol.journal.log_blocks() {
            self.shorten(keep)?;
        }
        if fits(self)? { Ok(()) } else { pieces(place.limit) }
    }

    fn has_extents(&self) -> bool {
        blocks::has_extents(&self.node)
    }

    fn runs(&self) -> Result<Vec<Run>> {
        Ok(blocks::runs(&self.fs.vol, &self.node)?)
    }

    /// The blocks of its map.
    fn nodes(&self) -> Result<Vec<u64>> {
        Ok(blocks::nodes(&self.fs.vol, &self.node)?)
    }

    fn is_at(&self, place: &Place) -> Result<bool> {
        let start = place.within.map_or(0, |within| within.start.0);
        let all = blocks::all(&self.fs.vol, self.node.ino)?;
        Ok(all.iter().all(|run| run.start.0 >= start && run.end().0 <= place.limit))
    }

    /// Writes the inode, which has so many blocks, and its copy in the superblock.
    fn store(&mut self, h: &mut Handle, blocks: u32) -> std::result::Result<(), FsError> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let raw = &mut self.node.raw;
        raw.size = u64::from(blocks) << vol.geo.block_size.bits();
        vol.write_inode(h, self.node.ino, raw, Change::default())?;
        fs.sb.update(h, |sb| {
            if sb.jnl_backup_type == 1 {
                let words = raw.i_block.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w));
                let size = [(raw.size >> 32) as u32, raw.size as u32];
                sb.jnl_blocks.iter_mut().zip(words.chain(size)).for_each(|(to, word)| *to = word);
            }
        })
    }
}

fn pieces<T>(limit: u64) -> Result<T> {
    let what = "the journal, or the free space, is in too many pieces for the journal to move";
    Err(ResizeError::NoRoom { what, blocks: limit })
}

/// No fast commit can stand for this transaction.
fn not_fast(h: &mut Handle) {
    fast_commit::note(h, Delta::AllIneligible { reason: Reason::Resize });
}
