//! The log on its device: encoding a transaction into blocks, writing them, and keeping the
//! superblock.
//!
//! ```text
//!   ... | revoke | revoke | descriptor | copy | copy | ... | descriptor | copy | commit | ...
//! ```
//!
//! The superblock names the tail. It is written plainly when an empty log becomes live (the first
//! commit record's flush covers it) and with FUA when the tail moves or the log becomes empty.
//! While it names a tail it carries the FAST_COMMIT bit if there is an area for fast commits, used
//! or not.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_block::{BlockNr, BlockSize, ScatteredWrite, SharedDevice};
use extol_sync::rank::{Mutex, Rank};

use crate::format::{
    CommitBlock, CommitTime, DescriptorWriter, Features, Format, JournalSuperblock, RevokeWriter,
    SUPERBLOCK_SIZE, V1Sum, escape,
};
use crate::log_map::LogMap;
use crate::planted;
use crate::space::{LogRun, LogSpace};
use crate::transaction::Closed;
use crate::types::{JournalError, Result, Tid};

/// Blocks that stay free beside a transaction and its control blocks: rounding, and overdrafts.
const SLACK: u32 = if cfg!(feature = "model") { 4 } else { 32 };
/// Most pieces of one vectored write.
const MAX_PIECES: usize = 512;

/// A recovered log: empty, or with nothing but fast commits of the next transaction.
#[derive(Debug)]
pub struct LogConfig {
    /// The device that holds it.
    pub device: SharedDevice,
    /// It is not the file system's device.
    pub external: bool,
    /// Where its blocks are.
    pub map: LogMap,
    /// Its superblock, as recovery left it, with the features that this mount wants.
    pub superblock: JournalSuperblock,
    /// Id of the first transaction to write.
    pub next_tid: Tid,
}

/// How the superblock is written.
#[derive(Clone, Copy)]
enum How {
    /// A later flush makes it durable.
    Plainly,
    /// Durable on return.
    Durably,
    /// Durable on return, also after a failure.
    AsMark,
}

/// How the log is erased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erase {
    /// The device is told that the blocks hold nothing; what they read as is its affair.
    Discard,
    /// The blocks read as zeros.
    Zero,
}

#[derive(Debug)]
struct Super {
    sb: JournalSuperblock,
    /// The whole block that holds it: bytes behind the superblock survive.
    block: Vec<u8>,
}

/// Where a log is.
#[derive(Debug)]
struct Place {
    map: LogMap,
    /// The fast-commit area, if there is one: while it is live, the log says so.
    area: Option<Range<u32>>,
    /// Where it is since it was moved.
    next: OnceLock<Box<Self>>,
}

/// A live log.
#[derive(Debug)]
pub(crate) struct Log {
    device: SharedDevice,
    external: bool,
    /// The first one. (Those before the last are never used again, but a thread may still look at
    /// one.)
    first_place: Place,
    format: Format,
    superblock: Mutex<Super, { Rank::LogSuperblock as u8 }>,
    /// Time of the last commit record: they never go backwards.
    last_time: Mutex<CommitTime, { Rank::LogSuperblock as u8 }>,
}

/// Bytes of one log block.
enum Piece {
    Control(Vec<u8>),
    Copy(Arc<Vec<u8>>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Control(v) => v,
            Self::Copy(v) => v,
        }
    }
}

/// A transaction ready for the log: blocks and their places. The last one is the commit record.
pub(crate) struct Image {
    pieces: Vec<(u32, Piece)>,
}

impl Image {
    /// Log blocks.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }
}

/// What goes to which places of the log's device: (byte offset, buffers one after the other).
pub(crate) struct Places<'a>(Vec<(u64, Vec<IoSlice<'a>>)>);

impl Places<'_> {
    /// For a batch with others.
    pub fn writes(&self) -> Vec<ScatteredWrite<'_>> {
        self.0.iter().map(|(offset, bufs)| ScatteredWrite { offset: *offset, bufs }).collect()
    }
}

impl Log {
    /// Takes over an empty log, or one that holds nothing but the fast commits of its next
    /// transaction.
    pub fn open(config: LogConfig, block_size: BlockSize) -> Result<(Self, LogSpace)> {
        let mut sb = config.superblock;
        let only_fast_commits = sb.start == sb.first && sb.sequence == config.next_tid;
        if sb.start != 0 && !only_fast_commits {
            return Err(JournalError::Unsupported(
                "the journal must be recovered before it is used".into(),
            ));
        }
        if !sb.v2 {
            // Version 1 has no place for features, and without revokes no log is safe. On disk it
            // becomes version 2 when the log becomes live.
            let old = sb;
            sb = JournalSuperblock::new(block_size, old.maxlen, old.first, old.features, old.uuid);
            (sb.block_size, sb.sequence, sb.errno) = (old.block_size, old.sequence, old.errno);
        }
        sb.validate(block_size, u64::from(config.map.len()))?;
        let format = sb.format()?;
        let mut block = vec![0; block_size.len()];
        config.map.read(&*config.device, config.map.superblock_block(), &mut block)?;
        let (first, end) = (sb.first, sb.log_end());
        if first >= end {
            return Err(JournalError::corrupt("the log has no blocks", 0u32));
        }
        let area = sb.fc_range();
        let wraps = area.is_none();
        let wraps = wraps || planted::has(planted::Bug::LogWraps);
        let space = LogSpace::empty(first, end, wraps);
        let log = Self {
            device: config.device,
            external: config.external,
            first_place: Place { map: config.map, area, next: OnceLock::new() },
            format,
            superblock: Mutex::new(Super { sb, block }),
            last_time: Mutex::default(),
        };
        Ok((log, space))
    }

    fn place(&self) -> &Place {
        let mut place = &self.first_place;
        while let Some(next) = place.next.get() {
            place = next;
        }
        place
    }

    /// Blocks of the whole journal, as its superblock says.
    pub fn maxlen(&self) -> u32 {
        self.superblock.lock().sb.maxlen
    }

    /// Blocks that are for fast commits, if there is an area.
    pub fn fast_blocks(&self) -> u32 {
        self.place().area.as_ref().map_or(0, |_| self.superblock.lock().sb.fc_blocks())
    }

    /// Writes an empty log into the blocks of `map`, durably, calls `switch`, and goes on there.
    /// Only for an empty log that nothing is written to meanwhile. Gives its space. (A log that
    /// begins in the same block has a valid superblock at any time.)
    pub fn move_to(&self, map: LogMap, switch: impl FnOnce() -> Result<()>) -> Result<LogSpace> {
        let size = map.block_size();
        let old = self.place();
        // (`switch` reads blocks: not under this lock.)
        let (mut sb, mut block) = {
            let s = self.superblock.lock();
            (s.sb.clone(), s.block.clone())
        };
        sb.maxlen = map.len();
        if old.area.is_some() {
            sb.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
        }
        sb.validate(size, u64::from(map.len()))?;
        let space = LogSpace::empty(sb.first, sb.log_end(), old.area.is_none());
        let area = sb.fc_range();
        sb.mark_empty(sb.sequence);
        if let Some(bytes) = block.get_mut(..SUPERBLOCK_SIZE) {
            bytes.copy_from_slice(&sb.encode());
        }
        // What was in these blocks must not be taken for a transaction.
        let place = map.offset(map.superblock_block())?;
        let stays = old.map.offset(old.map.superblock_block())? == place;
        let mut n = u32::from(stays);
        while n < map.len() {
            let run = map.contiguous(n).max(1);
            self.device.zero_range(map.offset(n)?, u64::from(run) << size.bits())?;
            n = n.saturating_add(run);
        }
        self.device.write_at(&block, place)?;
        if !planted::has(planted::Bug::LogSwitchNotFlushed) {
            self.device.flush()?;
        }
        switch()?;
        *self.superblock.lock() = Super { sb, block };
        let _ = old.next.set(Box::new(Place { map, area, next: OnceLock::new() }));
        Ok(space)
    }

    /// The superblock says that there is nothing in the log.
    pub fn is_empty(&self) -> bool {
        self.superblock.lock().sb.start == 0
    }

    pub fn is_external(&self) -> bool {
        self.external
    }

    pub fn revokes_per_block(&self) -> usize {
        RevokeWriter::capacity(&self.format) as usize
    }

    /// A damaged or incomplete transaction can be told from an intact one.
    pub fn has_checksums(&self) -> bool {
        let f = self.format.features;
        f.has_csum_v1() || f.has_csum_v2_or_v3()
    }

    /// Control blocks that a transaction of `blocks` blocks may need, a few revokes included.
    pub fn overhead(&self, blocks: u32) -> u32 {
        blocks / DescriptorWriter::capacity(&self.format).max(1) + 4
    }

    /// Free log blocks that a transaction of `blocks` blocks asks for: with its control blocks, and
    /// slack for overdrafts.
    pub fn room_for(&self, blocks: u32) -> u32 {
        blocks.saturating_add(self.overhead(blocks)).saturating_add(SLACK)
    }

    /// Log blocks that this transaction takes.
    pub fn blocks_for(&self, closed: &Closed) -> u32 {
        let copies = closed.blocks.len();
        let descriptors = copies.div_ceil(DescriptorWriter::capacity(&self.format).max(1) as usize);
        let revokes = closed.revokes.len().div_ceil(self.revokes_per_block().max(1));
        u32::try_from(copies + descriptors + revokes + 1).unwrap_or(u32::MAX)
    }

    /// Makes the blocks of a transaction, for the places in `run`.
    pub fn encode(&self, closed: &Closed, wall: Duration, run: LogRun) -> Result<Image> {
        let format = &self.format;
        let tid = closed.tid;
        let mut blocks = Vec::with_capacity(closed.blocks.len() + 8);
        let mut sum = V1Sum::new();
        let v1 = format.features.has_csum_v1();

        let per_block = self.revokes_per_block().max(1);
        for some in closed.revokes.chunks(per_block) {
            let mut writer = RevokeWriter::new(format, tid);
            for nr in some {
                writer.push(*nr)?;
            }
            blocks.push(Piece::Control(writer.finish()));
        }
        let per_block = DescriptorWriter::capacity(format).max(1) as usize;
        for some in closed.blocks.chunks(per_block) {
            let mut writer = DescriptorWriter::new(format, tid);
            let mut copies = Vec::with_capacity(some.len());
            for snapshot in some {
                let escaped = escape(&snapshot.data);
                let bytes = escaped.as_deref().unwrap_or(&snapshot.data);
                writer.push(snapshot.buf.nr(), bytes, escaped.is_some())?;
                copies.push(match escaped {
                    Some(bytes) => Piece::Control(bytes),
                    None => Piece::Copy(Arc::clone(&snapshot.data)),
                });
            }
            blocks.push(Piece::Control(writer.finish()));
            if v1 {
                sum.update(blocks.last().map_or(&[][..], Piece::bytes));
                copies.iter().for_each(|c| sum.update(c.bytes()));
            }
            blocks.append(&mut copies);
        }
        let time = self.commit_time(wall);
        blocks.push(Piece::Control(CommitBlock::encode(format, tid, time, sum)));

        let count = blocks.len();
        let pieces: Vec<_> = run.zip(blocks).collect();
        if pieces.len() != count {
            let what =
                format!("transaction {tid} needs {count} blocks, {} were set apart", pieces.len());
            return Err(JournalError::corrupt(what, 0u32));
        }
        Ok(Image { pieces })
    }

    fn commit_time(&self, wall: Duration) -> CommitTime {
        let mut last = self.last_time.lock();
        let now = CommitTime { sec: wall.as_secs(), nsec: wall.subsec_nanos() };
        *last = now.max(*last);
        *last
    }

    /// Where some blocks of an image go, in as few pieces as the map allows.
    pub fn places<'a>(&self, image: &'a Image, which: Range<usize>) -> Result<Places<'a>> {
        let mut rest = image.pieces.get(which).unwrap_or_default();
        let mut places = Places(Vec::with_capacity(1));
        while let Some((first, _)) = rest.first() {
            let most = (self.place().map.contiguous(*first) as usize).min(MAX_PIECES);
            let run = rest
                .iter()
                .zip(0..)
                .take(most)
                .take_while(|((n, _), i)| *n == first + i)
                .count()
                .max(1);
            let (now, later) = rest.split_at(run);
            places.0.push((
                self.place().map.offset(*first)?,
                now.iter().map(|(_, p)| IoSlice::new(p.bytes())).collect(),
            ));
            rest = later;
        }
        Ok(places)
    }

    /// Writes some blocks of the log.
    pub fn write(&self, places: &Places<'_>) -> Result<()> {
        places.0.iter().try_for_each(|(at, bufs)| Ok(self.device.write_vectored_at(bufs, *at)?))
    }

    /// Writes the commit record, durable on return if `fua`.
    pub fn write_record(&self, image: &Image, fua: bool) -> Result<()> {
        let Some((n, piece)) = image.pieces.last() else { return Ok(()) };
        let at = self.place().map.offset(*n)?;
        if fua {
            self.device.write_fua(piece.bytes(), at)?;
        } else {
            self.device.write_at(piece.bytes(), at)?;
        }
        Ok(())
    }

    /// A durable write is a write and a whole flush, of the file system's device, too.
    pub fn fua_is_flush(&self) -> bool {
        !self.external && self.device.fua_is_flush()
    }

    /// Flushes the log's device.
    pub fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    /// Names the tail: the log is live.
    pub fn write_tail(&self, tid: Tid, block: u32, fua: bool) -> Result<()> {
        self.update(if fua { How::Durably } else { How::Plainly }, |sb| {
            sb.sequence = tid;
            sb.start = block;
            sb.head = 0;
            if self.place().area.is_some() {
                sb.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
            }
        })
    }

    /// The blocks for fast commits.
    pub fn area(&self) -> Option<Range<u32>> {
        self.place().area.clone()
    }

    /// The device block behind the last one of the fast-commit area.
    pub fn behind_area(&self) -> Option<BlockNr> {
        let last = self.place().area.as_ref()?.end.checked_sub(1)?;
        self.place().map.device_block(last).map(|nr| nr.plus(1))
    }

    /// Writes whole blocks of the fast-commit area from `first` on; the last write is durable on
    /// return if `fua`.
    pub fn write_fast(&self, first: u32, bytes: &[u8], fua: bool) -> Result<()> {
        let places = self.fast_places(first, bytes)?;
        if !fua {
            return self.write(&places);
        }
        // Each has one buffer.
        for (at, bufs) in &places.0 {
            for bytes in bufs {
                self.device.write_fua(bytes, *at)?;
            }
        }
        Ok(())
    }

    /// Where on the device the parts of these whole blocks go, which lie in the fast-commit area
    /// from `first` on.
    pub fn fast_places<'a>(&self, first: u32, bytes: &'a [u8]) -> Result<Places<'a>> {
        let block = self.place().map.block_size().len();
        let (mut n, mut rest) = (first, bytes);
        let mut places = Places(Vec::with_capacity(1));
        while !rest.is_empty() {
            let most = (self.place().map.contiguous(n) as usize).max(1) * block;
            let (now, later) = rest.split_at(most.min(rest.len()));
            places.0.push((self.place().map.offset(n)?, vec![IoSlice::new(now)]));
            n += (now.len() / block) as u32;
            rest = later;
        }
        Ok(places)
    }

    /// Makes sure that the fast-commit area begins with nothing; `fua`: durably.
    pub fn clear_area(&self, fua: bool) -> Result<()> {
        let Some(area) = &self.place().area else { return Ok(()) };
        self.write_fast(area.start, &vec![0; self.place().map.block_size().len()], fua)
    }

    /// The same as a block of the device, which is to be written.
    pub fn cleared_block(&self) -> Option<(BlockNr, Arc<Vec<u8>>)> {
        let nr = self.place().map.device_block(self.place().area.as_ref()?.start)?;
        Some((nr, Arc::new(vec![0; self.place().map.block_size().len()])))
    }

    /// Marks the log empty; `next` is the id of the next transaction. (Readers start with `next +
    /// 1` at their next mount: one number is skipped.)
    pub fn write_empty(&self, next: Tid) -> Result<()> {
        self.update(How::Durably, |sb| sb.mark_empty(next))
    }

    /// Leaves an error mark for the next mount. Everything else is as in the last superblock that
    /// was written for sure, so recovery finds the log as it would without the mark.
    pub fn write_errno(&self, errno: i32) -> Result<()> {
        self.update(How::AsMark, |sb| sb.errno = -errno)
    }

    /// Changes the superblock; in memory only once it is written.
    fn update(&self, how: How, change: impl FnOnce(&mut JournalSuperblock)) -> Result<()> {
        let mut s = self.superblock.lock();
        let mut sb = s.sb.clone();
        change(&mut sb);
        if let Some(bytes) = s.block.get_mut(..SUPERBLOCK_SIZE) {
            bytes.copy_from_slice(&sb.encode());
        }
        let at = self.place().map.offset(self.place().map.superblock_block())?;
        match how {
            How::Plainly => self.device.write_at(&s.block, at)?,
            How::Durably => self.device.write_fua(&s.block, at)?,
            How::AsMark => self.device.write_mark(&s.block, at)?,
        }
        s.sb = sb;
        Ok(())
    }

    /// The device may be able to discard.
    pub fn can_discard(&self) -> bool {
        self.device.can_discard()
    }

    /// Erases every block behind the superblock, the fast-commit area included. Only for an empty
    /// log.
    pub fn erase(&self, how: Erase) -> Result<()> {
        let (first, end) = {
            let s = self.superblock.lock();
            debug_assert_eq!(s.sb.start, 0, "a live log");
            (s.sb.first, s.sb.maxlen)
        };
        let block = self.place().map.block_size().len() as u64;
        let mut n = first;
        while n < end {
            let run = self.place().map.contiguous(n).min(end - n);
            let (at, len) = (self.place().map.offset(n)?, u64::from(run) * block);
            match how {
                Erase::Discard => self.device.discard(at, len)?,
                Erase::Zero => self.device.zero_range(at, len)?,
            }
            n += run.max(1);
        }
        Ok(())
    }
}
