//! Moves the log in front of a limit.
//!
//! Linux and e2fsck read the map of the journal's inode before they replay the log, and go on with
//! that. So no transaction may change which blocks the log has: the switch is one sector, written
//! in place while the log is empty.
//!
//! ```text
//!   1 transactions  [ old log │ new log, map blocks ]          the log uses the old blocks
//!   2 in place        an empty log in the new blocks, the map of 3 in the map blocks; flush
//!   3 one sector    [ new log │ old log, map blocks of 1 ]     flush; the log uses the new blocks
//!   4 transactions  [ new log ]                                the rest is freed
//! ```
//!
//! The inode has the same blocks in 2 and 3, in another order: map blocks of the one are data of
//! the other. The superblock of a log says how many blocks it uses, so what follows does no harm.
//! Each state is sound, for e2fsck and Linux too, and nothing has to be finished: what a crash
//! leaves behind the log is freed by the next move.
//!
//! Odd cases
//! - There is no room for a log as long as the old one: it becomes shorter, but not shorter than
//!   Linux accepts, or than what comes next needs for its transactions.
//! - More extents than the inode holds get one map block, of both maps. More than that has room for
//!   are not moved: two map blocks would go home one by one.
//! - An inode larger than a sector cannot be switched: refused.
//! - The copy of the map in the superblock follows in the transactions. After 3 it is that of 1,
//!   which leads to an empty log as well.
//!
//! Invariants
//! - JM-1: the log is empty from 2 until 3 is durable (`Journal::move_log`), so either map leads to
//!   an empty log.
//! - JM-2: the old log is freed by a transaction in the new one.
//! - JM-3: while a transaction goes home, e2fsck and Linux find all blocks of the log by the map as
//!   it is at home by then: map blocks that get longer go there before the inode, and those that
//!   get shorter behind it (`Journal::set_home_last`).

use extol_block::BlockNr;
use extol_jbd2::{Handle, JournalError, LogMap, planted};
use extol_ondisk::extent::{self, Entries, Node as ExtentNode};
use extol_ondisk::{Compat, InodeFlags, InodeNr};
use extol_vfs::FsError;

use super::super::{ResizeError, refuse};
use super::journal_map::{self, Blocks, Map};
use super::mover::settle;
use crate::alloc::Run;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::fast_commit::{self, Delta, Reason};
use crate::map::{self, Discard, Progress};
use crate::mounted::MountedFs;
use crate::node::Node;

type Result<T> = std::result::Result<T, ResizeError>;

/// Bytes that a device writes whole.
const SECTOR: usize = 512;
/// Most blocks that one transaction adds to the journal's inode.
const PIECE: u32 = 2048;
/// Blocks of the shortest log that Linux accepts.
const SHORTEST: u32 = 1024;
/// A transaction has at most the log's blocks by this number, less a few.
const SHARE: u32 = 4;
const SPARE: u32 = 16;
/// Map blocks that a journal can have: more is damage.
const MOST_NODES: usize = 1 << 16;

/// Moves the log, if some of it lies at or behind block `limit`, in front of it. The allocator
/// hands out nothing from there on. A log that becomes shorter still holds a transaction of so many
/// blocks, if the old one does.
pub(crate) fn move_journal(
    fs: &MountedFs,
    limit: u64,
    transaction: u32,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    fs.check_writable()?;
    let ino = fs.sb.read(|sb| sb.journal_inum);
    if ino == 0 || !fs.vol.journal.has_log() {
        return Ok(());
    }
    settle(fs)?;
    let mut file = JournalFile::read(fs, InodeNr(ino))?;
    let blocks = fs.vol.journal.log_blocks();
    file.cut(blocks)?;
    if !file.is_behind(limit)? {
        return settle(fs).map_err(Into::into);
    }
    if usize::from(fs.vol.geo.inode_size) > SECTOR {
        let what = "inodes are too large to move the journal";
        return Err(ResizeError::NoRoom { what, blocks: limit });
    }
    let old = file.runs()?;
    let (log, nodes) = file.take(blocks, limit, transaction)?;
    // The map blocks go home before the inode that has more blocks (JM-3).
    if !planted::has(planted::Bug::JournalMapLate) {
        fs.vol.journal.set_home_last(Some(fs.vol.inode_buf(InodeNr(ino))?.0.nr()));
    }
    let appended = file.append(log.iter().chain(&nodes));
    let home = settle(fs);
    fs.vol.journal.set_home_last(None);
    appended?;
    home?;
    progress(1, 3);
    file.switch(&log, &nodes, limit)?;
    progress(2, 3);
    old.iter().for_each(|run| fs.vol.alloc.unprotect(*run));
    let len = log.iter().map(|run| run.len).sum();
    file.cut(len)?;
    log.iter().for_each(|run| fs.vol.alloc.protect(*run));
    settle(fs)?;
    progress(3, 3);
    Ok(())
}

/// The file that holds the log.
struct JournalFile<'a> {
    fs: &'a MountedFs,
    node: Node,
}

impl<'a> JournalFile<'a> {
    fn read(fs: &'a MountedFs, ino: InodeNr) -> Result<Self> {
        let node = Node { ino, raw: fs.vol.read_inode(ino)? };
        Ok(Self { fs, node })
    }

    fn blocks(&self) -> u32 {
        let blocks = self.node.raw.size >> self.fs.vol.geo.block_size.bits();
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    fn has_extents(&self) -> bool {
        self.node.raw.flags.contains(InodeFlags::EXTENTS)
    }

    fn runs(&self) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        map::iterate(&self.fs.vol, &self.node, 0, u32::MAX, &mut |run| {
            runs.push(Run { start: run.pblk, len: run.len });
            true
        })?;
        Ok(runs)
    }

    /// The blocks of its map.
    fn nodes(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        if self.has_extents() {
            self.extent_nodes(&self.node.raw.i_block, u16::MAX, &mut found)?;
        } else {
            let words = self.node.raw.i_block.as_chunks::<4>().0.iter().skip(12);
            for (word, level) in words.zip(1..) {
                self.indirect_nodes(u32::from_le_bytes(*word), level, &mut found)?;
            }
        }
        Ok(found)
    }

    fn extent_nodes(&self, bytes: &[u8], above: u16, found: &mut Vec<u64>) -> Result<()> {
        let vol = &self.fs.vol;
        let node = ExtentNode::decode(bytes, &vol.geo).map_err(error::ondisk)?;
        let Entries::Index(children) = node.entries else { return Ok(()) };
        if node.depth >= above || found.len() + children.len() > MOST_NODES {
            return Err(damaged().into());
        }
        for child in children {
            found.push(child.leaf);
            let bytes = vol.journal.read(BlockNr(child.leaf)).map_err(error::journal)?.data();
            self.extent_nodes(&bytes, node.depth, found)?;
        }
        Ok(())
    }

    fn indirect_nodes(&self, nr: u32, level: u32, found: &mut Vec<u64>) -> Result<()> {
        if nr == 0 {
            return Ok(());
        }
        if found.len() >= MOST_NODES {
            return Err(damaged().into());
        }
        found.push(nr.into());
        if level > 1 {
            let nr = BlockNr(nr.into());
            let bytes = self.fs.vol.journal.read(nr).map_err(error::journal)?.data();
            for word in bytes.as_chunks::<4>().0 {
                self.indirect_nodes(u32::from_le_bytes(*word), level - 1, found)?;
            }
        }
        Ok(())
    }

    fn is_behind(&self, limit: u64) -> Result<bool> {
        let data = self.runs()?.iter().any(|run| run.end().0 > limit);
        Ok(data || self.nodes()?.iter().any(|nr| *nr >= limit))
    }

    /// Frees what lies behind the first `keep` blocks, so that the map is whole at any time on the
    /// device (JM-3): of the map blocks that stay, one is changed at a time.
    fn cut(&mut self, keep: u32) -> Result<()> {
        let vol = &self.fs.vol;
        if self.has_extents() {
            let leaf = self.nodes()?.first().copied().map(BlockNr);
            return self.cut_once(keep, leaf);
        }
        let per = vol.geo.block_len() as u64 / 4;
        let (mut first, mut levels) = (12, 1);
        while u64::from(keep) > first + per.pow(levels) && levels < 3 {
            first += per.pow(levels);
            levels += 1;
        }
        for level in (1..=levels).rev() {
            let rest = u64::from(keep).saturating_sub(first);
            let to = match rest {
                0 => u64::from(keep),
                rest => first + rest.next_multiple_of(per.pow(level - 1)),
            };
            let Ok(to) = u32::try_from(to) else { continue };
            let last = match rest {
                0 => None,
                _ => Some(self.node_above(u64::from(to) - 1 - first, levels, level)?),
            };
            self.cut_once(to, last)?;
        }
        Ok(())
    }

    /// The map block at this level above a block of the tree with so many.
    fn node_above(&self, at: u64, levels: u32, level: u32) -> Result<BlockNr> {
        let vol = &self.fs.vol;
        let per = vol.geo.block_len() as u64 / 4;
        let word = |bytes: &[u8], at: u64| {
            let words = bytes.as_chunks::<4>().0;
            let word = usize::try_from(at).ok().and_then(|at| words.get(at));
            BlockNr(word.map_or(0, |word| u32::from_le_bytes(*word)).into())
        };
        let mut nr = word(&self.node.raw.i_block, u64::from(11 + levels));
        for above in (level + 1..=levels).rev() {
            let bytes = vol.journal.read(nr).map_err(error::journal)?.data();
            nr = word(&bytes, at / per.pow(above - 1) % per);
        }
        if nr.0 == 0 { Err(damaged().into()) } else { Ok(nr) }
    }

    /// Frees what lies behind the first `keep` blocks. The block `last` goes home last.
    fn cut_once(&mut self, keep: u32, last: Option<BlockNr>) -> Result<()> {
        let journal = &self.fs.vol.journal;
        if self.blocks() <= keep {
            return Ok(());
        }
        if !planted::has(planted::Bug::JournalMapEarly) {
            journal.set_home_last(last);
        }
        let done = self.free_behind(keep);
        let home = journal.checkpoint_all(&[]).map_err(error::journal);
        journal.set_home_last(None);
        done.and(home.map_err(Into::into))
    }

    fn free_behind(&mut self, keep: u32) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let mut at = 0;
        for run in self.runs()? {
            let kept = keep.saturating_sub(at).min(run.len);
            if kept < run.len {
                let start = run.start.plus(u64::from(kept));
                vol.alloc.unprotect(Run { start, len: run.len - kept });
            }
            at = at.saturating_add(run.len);
        }
        let mut to = self.blocks();
        let step = map::credits_for_remove_step(&self.node) + 2;
        let mut h = fs.start(step)?;
        loop {
            not_fast(&mut h);
            let done = map::remove(vol, &mut h, &mut self.node, keep, to, Discard::Free);
            if let Ok(Progress::Restart { at }) = done {
                to = at;
                self.store(&mut h, at.max(keep))?;
                h.restart(step).map_err(error::journal)?;
                continue;
            }
            if let Err(e) = done {
                let _ = vol.journal.abort("the end of the journal could not be freed");
                return Err(e.into());
            }
            self.store(&mut h, keep)?;
            return Ok(h.stop().map_err(error::journal)?);
        }
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

    /// Takes blocks for a log of `want` blocks, or of as many as there are, and for its map.
    fn take(&self, want: u32, limit: u64, transaction: u32) -> Result<(Vec<Run>, Vec<Run>)> {
        let vol = &self.fs.vol;
        let (old_runs, old_nodes) = (self.runs()?.len(), self.nodes()?.len());
        // As many as one map block names, beside the old ones and map blocks that are data.
        let most = match self.has_extents() {
            true => {
                let long = 2 * self.blocks() as usize / usize::from(extent::MAX_LEN);
                let others = old_runs + long + 2;
                usize::from(extent::block_max(&vol.geo)).saturating_sub(others)
            }
            false => usize::MAX,
        };
        if most == 0 || self.has_extents() && old_nodes > 1 {
            return pieces(limit);
        }
        let mut log = self.gather(want, most)?;
        let found: u32 = log.iter().map(|run| run.len).sum();
        let old = u64::from(self.blocks()) + u64::from(found);
        let extents = old_runs + log.len() + old as usize / usize::from(extent::MAX_LEN);
        let per = vol.geo.block_len() as u64 / 4;
        let wanted = match self.has_extents() {
            true if old_nodes > 0 => 1,
            // (The map that has both logs takes one of the two by itself.)
            true if extents > journal_map::IN_INODE => 2,
            true => 0,
            // (Map blocks that are not used are data, and so are those of the old map.)
            false => journal_map::indirect_nodes(old + old / (per / 8).max(1) + 16, per),
        };
        let mut nodes = self.gather(u32::try_from(wanted).unwrap_or(u32::MAX), usize::MAX)?;
        let mut short = wanted - nodes.iter().map(|run| u64::from(run.len)).sum::<u64>();
        // The log is shorter then.
        while short > 0
            && let Some(last) = log.pop()
        {
            let len = u32::try_from(short).unwrap_or(u32::MAX).min(last.len);
            let (rest, node) = last.split(last.len - len);
            short -= u64::from(len);
            if rest.len > 0 {
                log.push(rest);
            }
            nodes.extend(if last.len == len { Some(last) } else { node });
        }
        let found: u32 = log.iter().map(|run| run.len).sum();
        let fast = vol.geo.compat().contains(Compat::FAST_COMMIT);
        let shortest = SHORTEST.max(transaction.saturating_add(SPARE).saturating_mul(SHARE));
        let fast = if fast { self.fs.vol.journal.fast_blocks() } else { 0 };
        let least = shortest.saturating_add(fast);
        let all = || log.iter().chain(&nodes);
        if found < least.min(want) || all().any(|run| run.end().0 > limit) {
            all().for_each(|run| vol.alloc.give_back(*run));
            return Err(ResizeError::NoRoom { what: "the journal finds no room", blocks: limit });
        }
        if self.has_extents()
            && wanted == 2
            && let Some(last) = nodes.pop()
        {
            let (one, rest) = last.split(1);
            vol.alloc.give_back(one);
            nodes.extend(rest);
        }
        Ok((log, nodes))
    }

    /// Takes up to `want` blocks, in few pieces, at most so many.
    fn gather(&self, want: u32, most: usize) -> Result<Vec<Run>> {
        let alloc = &self.fs.vol.alloc;
        let mut runs: Vec<Run> = Vec::new();
        let mut left = want;
        let mut least = want;
        while left > 0 && least > 0 && runs.len() < most {
            let goal =
                runs.last().map_or(BlockNr(self.fs.vol.geo.first_data_block), |run| run.end());
            match alloc.take(goal, left, least.min(left)) {
                Ok(run) => {
                    left -= run.len;
                    runs.push(run);
                }
                Err(FsError::NoSpace) => least = least.min(left) / 2,
                Err(e) => {
                    runs.iter().for_each(|run| alloc.give_back(*run));
                    return Err(e.into());
                }
            }
        }
        Ok(runs)
    }

    /// Maps these runs, which were taken, behind the end.
    fn append<'r>(&mut self, runs: impl Iterator<Item = &'r Run>) -> Result<()> {
        let mut left: Vec<Run> = runs.copied().collect();
        left.reverse();
        while let Some(run) = left.pop() {
            let (now, rest) = run.split(run.len.min(PIECE));
            left.extend(rest);
            if let Err(e) = self.append_one(now) {
                left.iter().for_each(|run| self.fs.vol.alloc.give_back(*run));
                return Err(e);
            }
        }
        Ok(())
    }

    fn append_one(&mut self, run: Run) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let end = self.blocks();
        let credits = map::credits_for_insert(&self.node, run.len, vol.geo.block_size.bytes()) + 6;
        if credits > vol.journal.max_credits() {
            vol.alloc.give_back(run);
            return refuse("the journal is too small to be moved");
        }
        let mut h = match fs.start(credits) {
            Ok(h) => h,
            Err(e) => {
                vol.alloc.give_back(run);
                return Err(e.into());
            }
        };
        not_fast(&mut h);
        let done = vol
            .alloc
            .commit_take(&mut h, run)
            .and_then(|()| map::insert(vol, &mut h, &mut self.node, end, run, false))
            .and_then(|()| self.store(&mut h, end + run.len));
        if let Err(e) = done {
            // The new blocks are in use for nothing.
            let _ = vol.journal.abort("the journal's inode could not get more blocks");
            return Err(e.into());
        }
        Ok(h.stop().map_err(error::journal)?)
    }

    /// Steps 2 and 3.
    fn switch(&mut self, log: &[Run], nodes: &[Run], limit: u64) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let size = vol.geo.block_size;
        let old_nodes = self.nodes()?;
        let other = self.other_map(log, nodes, &old_nodes);
        let (map, blocks) = other?.map_or_else(|| pieces(limit), Ok)?;
        let mut raw = self.node.raw.clone();
        raw.i_block = map.i_block;
        raw.size = blocks << size.bits();
        let mut at = 0;
        let extents = log.iter().map(|run| {
            let first = at;
            at += run.len;
            (first, run.start.0, run.len)
        });
        let log_map = LogMap::from_extents(size, extents.collect()).map_err(error::journal)?;
        // Nothing of what changes below the cache may be in it.
        let in_nodes = map.nodes.iter().map(|(nr, _)| *nr);
        for nr in old_nodes.into_iter().chain(in_nodes) {
            vol.journal.forget_clean(BlockNr(nr), 1);
        }
        vol.journal
            .move_log(log_map, || {
                for (nr, bytes) in &map.nodes {
                    vol.dev.write_at(bytes, BlockNr(*nr).offset(size))?;
                }
                if !planted::has(planted::Bug::LogSwitchNotFlushed) {
                    vol.dev.flush()?;
                }
                let (buf, at) = vol
                    .inode_buf(self.node.ino)
                    .map_err(|e| JournalError::Unsupported(e.to_string()))?;
                let (nr, mut block) = (buf.nr(), buf.data().to_vec());
                drop(buf);
                let slot = at..at + usize::from(vol.geo.inode_size);
                if let Some(slot) = block.get_mut(slot) {
                    raw.encode_into(slot, self.node.ino, &vol.geo);
                }
                let first = at / SECTOR * SECTOR;
                let sector = block.get(first..first + SECTOR).unwrap_or_default();
                vol.dev.write_at(sector, nr.offset(size) + first as u64)?;
                vol.dev.flush()?;
                match vol.journal.forget_clean(nr, 1) {
                    true => Ok(()),
                    false => Err(JournalError::Unsupported("the inode is in use".into())),
                }
            })
            .map_err(error::journal)?;
        *self = Self::read(fs, self.node.ino)?;
        Ok(())
    }

    /// The map with the new log in front: all blocks that the inode has, in another order. Gives
    /// how many of them are data, too; `None` if the inode cannot hold it.
    fn other_map(
        &self,
        log: &[Run],
        nodes: &[Run],
        old_nodes: &[u64],
    ) -> Result<Option<(Map, u64)>> {
        let geo = &self.fs.vol.geo;
        let places: Vec<u64> = nodes.iter().flat_map(|run| run.start.0..run.end().0).collect();
        let appended: u32 = log.iter().chain(nodes).map(|run| run.len).sum();
        let mut old = Vec::new();
        let mut left = self.blocks().saturating_sub(appended);
        for run in self.runs()? {
            let len = run.len.min(left);
            left -= len;
            old.push((run.start.0, len));
        }
        for used in 0..=places.len() {
            let (used, unused) = places.split_at(used);
            let mut data: Vec<Blocks> = log.iter().map(|run| (run.start.0, run.len)).collect();
            data.extend(old.iter().filter(|(_, len)| *len > 0));
            data.extend(old_nodes.iter().chain(unused).map(|nr| (*nr, 1)));
            let data = joined(data);
            let map = match self.has_extents() {
                true => {
                    let seed = self.node.raw.seed(self.node.ino, geo);
                    journal_map::by_extents(&data, used, geo, seed)
                }
                false => journal_map::by_blocks(&data, used, geo.block_len()),
            };
            if let Some(map) = map {
                let blocks = data.iter().map(|(_, len)| u64::from(*len)).sum();
                return Ok(Some((map, blocks)));
            }
        }
        Ok(None)
    }
}

fn pieces<T>(limit: u64) -> Result<T> {
    let what = "the journal, or the free space, is in too many pieces for the journal to move";
    Err(ResizeError::NoRoom { what, blocks: limit })
}

/// Neighbours become one run.
fn joined(blocks: Vec<Blocks>) -> Vec<Blocks> {
    let mut all: Vec<Blocks> = Vec::new();
    for (start, len) in blocks {
        match all.last_mut() {
            Some((first, n)) if *first + u64::from(*n) == start => *n += len,
            _ => all.push((start, len)),
        }
    }
    all
}

/// No fast commit can stand for this transaction.
fn not_fast(h: &mut Handle) {
    fast_commit::note(h, Delta::AllIneligible { reason: Reason::Resize });
}

fn damaged() -> FsError {
    FsError::corrupt("the journal's map makes no sense")
}
