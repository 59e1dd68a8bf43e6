//! Second and third pass: which copies count, and bringing them home.
//!
//! The second pass reads only control blocks and lists every copy of the accepted transactions. The
//! revoke blocks of a transaction are read when its commit is reached: a record cancels all copies
//! of its block up to and including this transaction, never later ones, and records of blocks
//! without a copy need not be remembered. What is remembered is so bounded by the number of copies,
//! which is bounded by the log.
//!
//! The third pass reads the newest surviving copy of each block, in log order, and gives it to a
//! [`ReplaySink`]. Everything that can be checked is checked before the first block is given.

use std::collections::HashMap;

use extol_block::{BlockDevice, BlockNr};
use extol_ondisk::{Geometry, Superblock};

use super::scan::{BadCopy, Scanned};
use super::walk::Walk;
use crate::format::{
    BlockKind, DescriptorReader, JournalSuperblock, RevokeReader, Tag, TagFlags, unescape,
};
use crate::log_map::LogMap;
use crate::types::{JournalError, Result, Tid};

/// Receives the blocks of a replay: each home block at most once, with its final contents.
pub trait ReplaySink {
    /// One block.
    fn block(&mut self, nr: BlockNr, data: &[u8], tid: Tid) -> Result<()>;

    /// All blocks were given, or all but one that may be there only behind these. What they became
    /// must be durable when this returns, if it is to last.
    fn finish(&mut self) -> Result<()>;
}

/// A copy in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) tag: Tag,
    pub(crate) tid: Tid,
    pub(crate) at: u32,
}

/// The size of the file system that a log belongs to.
///
/// One that grew before the crash has logged blocks behind the end that its superblock at home
/// states. Linux logs bitmaps and descriptors of new groups before the superblock that counts them,
/// so the last transaction may have such blocks though no superblock of the log counts them either:
/// what bounds a home block is the device.
#[derive(Clone, Copy, Debug)]
pub struct FsSize {
    /// Blocks, as its superblock at home states them.
    blocks: u64,
    /// Blocks of its device.
    most: u64,
    /// Where its superblock lies, if a copy of it in the log may state more.
    superblock: Option<(BlockNr, usize)>,
}

impl FsSize {
    /// Of a file system that may have grown in transactions that are only in the log.
    #[must_use]
    pub fn of(geo: &Geometry, device: &dyn BlockDevice) -> Self {
        let most = device.size() >> geo.block_size.bits();
        let blocks = geo.blocks();
        Self { blocks, most: most.max(blocks), superblock: Some(geo.super_block()) }
    }
}

impl From<u64> for FsSize {
    fn from(blocks: u64) -> Self {
        Self { blocks, most: blocks, superblock: None }
    }
}

/// What is known of a home block.
#[derive(Clone, Copy, Debug)]
struct Home {
    newest: usize,
    revoked: Option<Tid>,
}

/// What a replay will do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The copies to replay, in log order.
    pub(crate) copies: Vec<Copy>,
    /// Copies that a revoke record cancelled.
    pub(crate) revoked: u32,
    /// Revoke records.
    pub(crate) records: u64,
    /// Where the copy of the superblock is.
    pub(crate) order: Order,
}

/// In which order blocks go home: at every moment the superblock there counts only descriptors that
/// are there, so that whatever reads them before a replay finds sound ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// That of the log.
    Log,
    /// The file system grew: its superblock goes home behind a flush of all else.
    SuperblockLast,
    /// It became smaller: the superblock goes home first, and is flushed.
    SuperblockFirst,
}

/// Where copies may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    pub(crate) fs: FsSize,
    /// The log, if it is on the file system's own device: no copy may go there.
    pub(crate) log: Option<&'a LogMap>,
}

impl Plan {
    /// Second pass over the transactions that `scanned` accepted.
    pub(crate) fn make(
        device: &dyn BlockDevice,
        map: &LogMap,
        sb: &JournalSuperblock,
        scanned: &Scanned,
        limits: Limits<'_>,
    ) -> Result<Self> {
        let mut collector = Collector {
            walk: Walk::new(device, map, sb)?,
            copies: Vec::new(),
            homes: HashMap::new(),
            records: 0,
        };
        collector.run(scanned.end)?;
        collector.check_bad(&scanned.bad_copies)?;
        let order = collector.order(limits.fs)?;
        let Collector { copies, homes, records, .. } = collector;
        let mut revoked = 0;
        let mut live = Vec::new();
        for (i, copy) in copies.iter().enumerate() {
            let Some(home) = homes.get(&copy.tag.block.0) else { continue };
            if is_revoked(home, copy.tid) {
                revoked += 1;
            } else if home.newest == i {
                check_home(copy, limits)?;
                live.push(*copy);
            }
        }
        let superblock = limits.fs.superblock.map(|(block, _)| block);
        match order {
            Order::Log => {}
            Order::SuperblockLast => live.sort_by_key(|copy| Some(copy.tag.block) == superblock),
            Order::SuperblockFirst => live.sort_by_key(|copy| Some(copy.tag.block) != superblock),
        }
        Ok(Self { copies: live, revoked, records, order })
    }

    /// Third pass. Gives the number of blocks.
    pub(crate) fn replay(
        &self,
        device: &dyn BlockDevice,
        map: &LogMap,
        sb: &JournalSuperblock,
        sink: &mut dyn ReplaySink,
    ) -> Result<u32> {
        let mut walk = Walk::new(device, map, sb)?;
        let mut block = Vec::new();
        let mut count = 0;
        for copy in &self.copies {
            block.clear();
            block.extend_from_slice(walk.read(copy.at)?);
            if !copy.tag.verify(&walk.format, copy.tid, &block) {
                return Err(changed(copy.at));
            }
            if copy.tag.flags.contains(TagFlags::ESCAPE) {
                unescape(&mut block);
            }
            let flushes_before = match self.order {
                Order::Log => false,
                Order::SuperblockLast => count + 1 == self.copies.len() as u32,
                Order::SuperblockFirst => count == 1,
            };
            if flushes_before {
                sink.finish()?;
            }
            sink.block(copy.tag.block, &block, copy.tid)?;
            count += 1;
        }
        sink.finish()?;
        Ok(count)
    }
}

fn changed(at: u32) -> JournalError {
    JournalError::corrupt("the log reads differently a second time", at)
}

fn is_revoked(home: &Home, tid: Tid) -> bool {
    home.revoked.is_some_and(|revoked| !tid.after(revoked))
}

fn check_home(copy: &Copy, limits: Limits<'_>) -> Result<()> {
    let nr = copy.tag.block;
    let problem = if nr.0 >= limits.fs.most {
        "is behind the end of the device"
    } else if limits.log.is_some_and(|log| log.contains(nr)) {
        "is in the log itself"
    } else {
        return Ok(());
    };
    let what = format!("block {nr} of transaction {} {problem}", copy.tid.0);
    Err(JournalError::corrupt(what, copy.at))
}

struct Collector<'a> {
    walk: Walk<'a>,
    copies: Vec<Copy>,
    homes: HashMap<u64, Home>,
    records: u64,
}

impl Collector<'_> {
    fn run(&mut self, end: Tid) -> Result<()> {
        let mut block = Vec::new();
        let mut revokes = Vec::new();
        while self.walk.tid != end {
            let position = self.walk.position();
            let (at, kind) = self.walk.control(&mut block)?.ok_or_else(|| changed(position))?;
            match kind {
                BlockKind::Descriptor => self.descriptor(at, &block)?,
                BlockKind::Revoke => revokes.push(at),
                _ => {
                    for at in revokes.drain(..) {
                        self.revoke(at)?;
                    }
                    self.walk.tid = self.walk.tid.next();
                }
            }
        }
        Ok(())
    }

    fn descriptor(&mut self, at: u32, block: &[u8]) -> Result<()> {
        if !self.walk.format.verify_tail(block) {
            return Err(changed(at));
        }
        let tid = self.walk.tid;
        for tag in DescriptorReader::new(&self.walk.format, block) {
            let copy_at = self.walk.pass().ok_or_else(|| changed(at))?;
            let newest = self.copies.len();
            self.copies.push(Copy { tag, tid, at: copy_at });
            self.homes
                .entry(tag.block.0)
                .and_modify(|home| home.newest = newest)
                .or_insert(Home { newest, revoked: None });
        }
        Ok(())
    }

    /// Applies the records of a revoke block of the present transaction.
    fn revoke(&mut self, at: u32) -> Result<()> {
        let (format, tid) = (self.walk.format, self.walk.tid);
        let block = self.walk.read(at)?;
        if !format.verify_tail(block) {
            return Err(changed(at));
        }
        let records = RevokeReader::new(&format, block).ok_or_else(|| JournalError::Corrupt {
            what: format!(
                "revoke block of transaction {} states more records than it holds",
                tid.0
            ),
            block: at.into(),
        })?;
        for nr in records {
            self.records += 1;
            if let Some(home) = self.homes.get_mut(&nr.0) {
                home.revoked = Some(tid);
            }
        }
        Ok(())
    }

    /// The order, by the sizes that superblocks in the log and at home state.
    fn order(&mut self, fs: FsSize) -> Result<Order> {
        let Some((block, offset)) = fs.superblock else { return Ok(Order::Log) };
        let mut bytes = Vec::new();
        let mut newest = None;
        for copy in self.copies.iter().filter(|copy| copy.tag.block == block) {
            bytes.clear();
            bytes.extend_from_slice(self.walk.read(copy.at)?);
            if !copy.tag.verify(&self.walk.format, copy.tid, &bytes) {
                // Revoked, or the plan is refused.
                continue;
            }
            if copy.tag.flags.contains(TagFlags::ESCAPE) {
                unescape(&mut bytes);
            }
            let logged = bytes.get(offset..).and_then(|bytes| Superblock::decode(bytes).ok());
            let Some(blocks) = logged.map(|sb| sb.blocks_count) else { continue };
            if blocks > fs.blocks {
                return Ok(Order::SuperblockLast);
            }
            newest = Some(blocks);
        }
        let is_smaller = newest.is_some_and(|blocks| blocks < fs.blocks);
        Ok(if is_smaller { Order::SuperblockFirst } else { Order::Log })
    }

    /// A bad copy is corruption unless it was revoked.
    fn check_bad(&self, bad: &[BadCopy]) -> Result<()> {
        let fatal = bad
            .iter()
            .find(|bad| self.homes.get(&bad.home).is_none_or(|home| !is_revoked(home, bad.tid)));
        fatal.map_or(Ok(()), |bad| Err(bad.error.clone()))
    }
}
