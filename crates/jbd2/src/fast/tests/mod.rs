//! Fast commits over a device that writes down every change, with a source that gives what the test
//! wants.

mod async_sync;
mod crash;
mod data_checksum;
mod deferred;
mod full;
mod order;
mod requests;

use std::any::Any;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr, MemDevice, ScatteredWrite, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_ondisk::fast_commit::{DataChecksum, FcRecord, FcRecords};
use extol_sync::plain::Mutex;
use extol_task::TestClock;

use super::source::FastCommits;
use super::*;
use crate::format::{Features, JournalSuperblock};
use crate::recovery::read_superblock;
use crate::test_rig::{FIRST_TID, INTERVAL, block_size};
use crate::types::Tid;
use crate::{JournalConfig, LogConfig, LogMap};

const BS: u64 = 1024;
const BLOCKS: u64 = 4000;
const LOG_AT: u64 = 2500;
const LOG_BLOCKS: u32 = 1024;
const FC_BLOCKS: u32 = 8;

/// Gives the answers that the test has put into it, in their order; then "nothing".
#[derive(Debug, Default)]
struct Answers {
    answers: Mutex<Vec<Collected>>,
    asked: Mutex<Vec<(Tid, Vec<SyncKey>)>>,
    applied: Mutex<Vec<(Tid, usize, bool)>>,
    closed: Mutex<Vec<Tid>>,
}

impl FastSource for Answers {
    fn apply(&self, tid: Tid, notes: Option<Notes>, finished: bool) {
        let notes = notes.map_or(0, |notes| notes.downcast::<Vec<u32>>().unwrap().len());
        self.applied.lock().push((tid, notes, finished));
    }

    fn collect(&self, tid: Tid, asks: &[SyncKey]) -> Collected {
        self.asked.lock().push((tid, asks.to_vec()));
        let mut answers = self.answers.lock();
        if answers.is_empty() { Collected::Nothing } else { answers.remove(0) }
    }

    fn closed(&self, tid: Tid) -> Box<dyn Any + Send> {
        self.closed.lock().push(tid);
        Box::new(())
    }

    fn reasons(&self) -> &'static [&'static str] {
        &["first", "second"]
    }
}

impl Answers {
    fn then(&self, answer: Collected) {
        self.answers.lock().push(answer);
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// Does what the test has put here while a flush is under way: too late for that flush.
#[derive(Default)]
struct Beside(Mutex<Option<Hook>>);

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

/// True: a durable write by itself is a write and a flush, as on a direct block device.
#[derive(Debug)]
struct Hooked(Arc<RecordingDevice>, Arc<Beside>, bool);

impl BlockDevice for Hooked {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> extol_block::Result<()> {
        self.0.write_vectored_at(bufs, offset)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        if self.2 {
            self.0.write_at(buf, offset)?;
            return self.0.flush();
        }
        self.0.write_fua(buf, offset)
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> extol_block::Result<()> {
        self.0.write_scattered_fua(writes)
    }

    fn fua(&self) -> extol_block::Fua {
        self.0.fua()
    }

    fn fua_is_flush(&self) -> bool {
        self.2 || self.0.fua_is_flush()
    }

    fn flush(&self) -> extol_block::Result<()> {
        self.0.flush()?;
        // Not under the lock: it may leave another one.
        let hook = self.1.0.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.0.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.0.zero_range(offset, len)
    }
}

/// A journal with an area, on devices that write down.
struct Rig {
    journal: Arc<Journal>,
    beside: Arc<Beside>,
    fs: Arc<RecordingDevice>,
    log: Arc<RecordingDevice>,
    source: Arc<Answers>,
    clock: Arc<TestClock>,
    map: LogMap,
}

#[derive(Clone, Copy)]
struct Shape {
    external: bool,
    barrier: bool,
    /// The devices know durable writes.
    fua: bool,
    /// Fast commits make use of that.
    each: bool,
    /// Only batches of them are more than writes and a flush.
    batches: bool,
}

const PLAIN: Shape =
    Shape { external: false, barrier: true, fua: true, each: false, batches: false };

impl Rig {
    fn new(shape: Shape) -> Self {
        let len = LOG_BLOCKS + FC_BLOCKS;
        let map = if shape.external {
            LogMap::identity(block_size(), len + 3)
        } else {
            LogMap::from_extents(block_size(), vec![(0, LOG_AT, len)]).unwrap()
        };
        let features = Features { incompat: 0x33, ..Features::default() };
        let first = map.superblock_block() + 1;
        let mut superblock =
            JournalSuperblock::new(block_size(), map.len(), first, features, [1; 16]);
        superblock.num_fc_blocks = FC_BLOCKS;
        superblock.mark_empty(FIRST_TID.previous());
        let disk = || {
            let disk = MemDevice::new(BLOCKS * BS);
            disk.write_at(&superblock.encode(), map.superblock_offset().unwrap()).unwrap();
            let disk = RecordingDevice::new(disk);
            if shape.fua { disk } else { disk.without_fua() }
        };
        let fs = Arc::new(disk());
        let log = if shape.external { Arc::new(disk()) } else { Arc::clone(&fs) };
        superblock.features = features;
        let clock = Arc::new(TestClock::default());
        let beside = Arc::new(Beside::default());
        let hooked = |disk: &Arc<RecordingDevice>| {
            Arc::new(Hooked(Arc::clone(disk), Arc::clone(&beside), shape.batches))
        };
        let (device, log_device): (SharedDevice, SharedDevice) = (hooked(&fs), hooked(&log));
        let journal = Journal::open(JournalConfig {
            device,
            block_size: block_size(),
            blocks: BLOCKS,
            log: Some(LogConfig {
                device: log_device,
                external: shape.external,
                map: map.clone(),
                superblock,
                next_tid: FIRST_TID,
            }),
            barrier: shape.barrier,
            commit_interval: INTERVAL,
            async_commit: false,
            cache_bytes: 8 << 20,
            clock: clock.clone(),
        })
        .unwrap();
        journal.set_fua(if shape.each { FuaPolicy::Always } else { FuaPolicy::Never });
        let source = Arc::new(Answers::default());
        journal.set_fast_source(source.clone());
        Self { journal, beside, fs, log, source, clock, map }
    }

    /// With a first full commit behind it, so that fast ones are possible.
    fn live(shape: Shape) -> Self {
        let rig = Self::new(shape);
        rig.change(5);
        rig.journal.commit_all().unwrap();
        rig
    }

    /// One block changes.
    fn change(&self, nr: u64) -> Tid {
        let mut h = self.journal.start(1).unwrap();
        let buf = h.create(BlockNr(nr)).unwrap();
        h.modify(&buf, |b| b.fill(nr as u8)).unwrap();
        if let Some(notes) = h.notes::<Vec<u32>>() {
            notes.push(1);
        }
        let tid = h.tid();
        h.stop().unwrap();
        tid
    }

    /// File data is written in place.
    fn write_data(&self) {
        self.fs.write_at(&[7; 512], 100 * BS).unwrap();
        self.journal.note_data_write();
    }

    /// A change and an fsync of inode `ino` that is to be answered so.
    fn fsync(&self, ino: u32, answer: Collected) {
        let tid = self.change(5);
        self.source.then(answer);
        self.journal.make_durable_for(tid, ask(ino)).unwrap();
    }

    fn area(&self) -> Range<u64> {
        let area = self.journal.log.get().unwrap().area().unwrap();
        let at = |n: u32| self.map.device_offset(n).unwrap();
        at(area.start)..at(area.end - 1) + BS
    }

    /// What happened on the log's device since then, in words: `data`, `fc3`, `fc3!` (FUA),
    /// `flush`, `sb`, `sb!`, `log`.
    fn story(&self, since: usize) -> String {
        story(&self.log, since, &self.map, self.area())
    }

    fn stats(&self) -> FastCommitStats {
        self.journal.stats().fast_commit
    }

    /// The superblock on the medium as a crash now would leave it, without anything that is not
    /// durable.
    fn durable_superblock(&self) -> JournalSuperblock {
        read_superblock(&self.log.image_at(self.log.position(), |_| false), &self.map).unwrap()
    }
}

fn story(device: &RecordingDevice, since: usize, map: &LogMap, area: Range<u64>) -> String {
    let superblock = map.superblock_offset().unwrap();
    let words = device.log().into_iter().skip(since).map(|event| match event {
        Event::Flush => "flush".to_owned(),
        Event::Settled { .. } => "settled".to_owned(),
        Event::Write { offset, fua, data } => {
            let what = match offset {
                _ if offset == superblock => "sb".to_owned(),
                _ if area.contains(&offset) => {
                    let n = (offset - area.start) / BS;
                    let zero = if data.iter().all(|b| *b == 0) { "zero" } else { "fc" };
                    match data.len() as u64 / BS {
                        1 => format!("{zero}{n}"),
                        blocks => format!("{zero}{n}-{}", n + blocks - 1),
                    }
                }
                _ if map.device_offset(0).is_some_and(|at| offset >= at && at > 0) => {
                    "log".to_owned()
                }
                _ => "data".to_owned(),
            };
            format!("{what}{}", if fua { "!" } else { "" })
        }
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn ask(ino: u32) -> SyncKey {
    SyncKey(ino.into())
}

fn said(records: &[FcRecord]) -> Collected {
    Collected::Records(FcRecords::encode(records).unwrap())
}

/// Records that take `blocks` blocks as a fast commit.
fn records(blocks: usize) -> Collected {
    let one = FcRecord::Inode { ino: 12, image: vec![9; 900].into() };
    said(&vec![one; blocks])
}
