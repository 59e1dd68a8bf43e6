//! A journal in memory for the unit tests: blocks of 1 KiB, the smallest log, a clock that the test
//! moves.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{BlockNr, BlockSize, MemDevice};
use extol_task::TestClock;

use crate::format::{Features, JournalSuperblock};
use crate::{Journal, JournalConfig, LogConfig, LogMap, Tid};

pub(crate) const BLOCKS: u64 = 4000;
pub(crate) const LOG_BLOCKS: u32 = 1024;
pub(crate) const FIRST_TID: Tid = Tid(100);
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Rig {
    pub journal: Arc<Journal>,
    pub device: Arc<MemDevice>,
    pub clock: Arc<TestClock>,
}

pub(crate) fn block_size() -> BlockSize {
    BlockSize::new(1024).unwrap()
}

pub(crate) fn rig() -> Rig {
    let device = Arc::new(MemDevice::new(BLOCKS * 1024));
    let map = LogMap::from_extents(block_size(), vec![(0, 2500, LOG_BLOCKS)]).unwrap();
    let features = Features { incompat: 0x13, ..Features::default() };
    let superblock = JournalSuperblock::new(block_size(), LOG_BLOCKS, 1, features, [1; 16]);
    let clock = Arc::new(TestClock::default());
    let journal = Journal::open(JournalConfig {
        device: device.clone(),
        block_size: block_size(),
        blocks: BLOCKS,
        log: Some(LogConfig {
            device: device.clone(),
            external: false,
            map,
            superblock,
            next_tid: FIRST_TID,
        }),
        barrier: true,
        commit_interval: INTERVAL,
        async_commit: false,
        cache_bytes: 8 << 20,
        clock: clock.clone(),
    })
    .unwrap();
    Rig { journal, device, clock }
}

impl Rig {
    /// Fills blocks in one transaction.
    pub fn fill(&self, blocks: impl IntoIterator<Item = u64>, byte: u8) -> Tid {
        let blocks: Vec<u64> = blocks.into_iter().collect();
        let mut h = self.journal.start(blocks.len() as u32).unwrap();
        for nr in blocks {
            let buf = h.create(BlockNr(nr)).unwrap();
            h.modify(&buf, |b| b.fill(byte)).unwrap();
        }
        let tid = h.tid();
        h.stop().unwrap();
        tid
    }

    /// Credits charged to the running transaction.
    pub fn charged(&self) -> u32 {
        self.journal.state.lock().tx.running.as_ref().map_or(0, |r| r.credits)
    }
}
