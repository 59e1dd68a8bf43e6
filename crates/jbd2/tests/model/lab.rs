//! A journal on a [`Medium`] with the smallest log, and what a crash must leave.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{BlockNr, BlockSize, FailLatch, MemDevice};
use extol_jbd2::fast::FuaPolicy;
use extol_jbd2::format::{Features, JournalSuperblock, MIN_LOG_BLOCKS};
use extol_jbd2::recovery::{read_superblock, recover_to_device};
use extol_jbd2::{
    FreeThreshold, Handle, Journal, JournalConfig, JournalError, LogConfig, LogMap, Services, Tid,
};
use extol_ondisk::fast_commit::FcRecord;
use extol_task::TestClock;

use crate::explore::below;
use crate::medium::{Medium, any};

pub const BS: usize = 1024;
/// Blocks that scenarios use.
pub const HOME: u64 = 16;
const FIRST_TID: Tid = Tid(u32::MAX - 2);

/// Which threads commit and checkpoint: the services' threads, or those that need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Services,
    Callers,
    /// None: only threads that ask for durability commit.
    Askers,
}

pub struct Lab {
    pub journal: Arc<Journal>,
    pub medium: Arc<Medium>,
    pub clock: Arc<TestClock>,
    services: Option<Services>,
}

/// What a crash leaves, recovered: the byte of each home block.
#[derive(Debug)]
pub struct Volume(Vec<u8>);

impl Volume {
    /// The first byte of a block.
    pub fn first_of(&self, nr: u64) -> u8 {
        self.0[nr as usize * BS]
    }

    /// The byte that fills a block.
    pub fn at(&self, nr: u64) -> u8 {
        byte(&self.0[nr as usize * BS..][..BS], nr)
    }
}

/// The byte that fills a block; a mixture of two versions is a failure.
pub fn byte(block: &[u8], nr: u64) -> u8 {
    assert!(block.iter().all(|b| *b == block[0]), "block {nr} is a mixture");
    block[0]
}

fn size() -> BlockSize {
    BlockSize::new(BS as u32).unwrap()
}

/// Blocks behind the log, for fast commits: three of a transaction fit.
const FC_BLOCKS: u32 = 5;
const BLOCKS: u64 = HOME + MIN_LOG_BLOCKS as u64 + FC_BLOCKS as u64;

fn map() -> LogMap {
    LogMap::from_extents(size(), vec![(0, HOME, MIN_LOG_BLOCKS + FC_BLOCKS)]).unwrap()
}

impl Lab {
    /// Checkpoints only for log space.
    pub fn new(work: Work) -> Self {
        Self::with(work, 8 << 20)
    }

    /// With a cache of no size every committed block is to go home at once.
    pub fn with(work: Work, cache_bytes: usize) -> Self {
        Self::open(work, cache_bytes, false)
    }

    /// With an area for fast commits.
    pub fn fast(work: Work) -> Self {
        Self::open(work, 8 << 20, true)
    }

    fn open(work: Work, cache_bytes: usize, fast: bool) -> Self {
        let blocks = BLOCKS;
        let medium = Medium::new(blocks as usize * BS);
        let medium = Arc::new(if below(2) == 0 { medium } else { medium.without_fua() });
        let features = Features {
            incompat: Features::INCOMPAT_REVOKE
                | Features::INCOMPAT_64BIT
                | Features::INCOMPAT_CSUM_V3,
            ..Features::default()
        };
        let mut superblock = JournalSuperblock::new(size(), MIN_LOG_BLOCKS, 1, features, [7; 16]);
        superblock.sequence = FIRST_TID.previous();
        if fast {
            superblock.maxlen += FC_BLOCKS;
            superblock.num_fc_blocks = FC_BLOCKS;
        }
        medium.preset(map().superblock_offset().unwrap() as usize, &superblock.encode());
        if fast {
            superblock.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
        }
        let device = Arc::new(FailLatch::new(Arc::clone(&medium)));
        let clock = Arc::new(TestClock::default());
        let journal = Journal::open(JournalConfig {
            device: device.clone(),
            block_size: size(),
            blocks,
            log: Some(LogConfig {
                device,
                external: false,
                map: map(),
                superblock,
                next_tid: FIRST_TID,
            }),
            barrier: true,
            commit_interval: Duration::from_secs(5),
            async_commit: false,
            cache_bytes,
            clock: clock.clone(),
        })
        .unwrap();
        let fua = fast && below(2) == 0;
        journal.set_fua(if fua { FuaPolicy::Always } else { FuaPolicy::Never });
        let services = match work {
            Work::Services => Some(Services::start(&journal).unwrap()),
            Work::Callers => {
                journal.work_in_callers();
                None
            }
            Work::Askers => None,
        };
        Self { journal, medium, services, clock }
    }

    /// Services or callers, and any reason for a checkpoint.
    pub fn any() -> Self {
        let work = if below(2) == 0 { Work::Services } else { Work::Callers };
        let lab = Self::with(work, if below(3) == 0 { 0 } else { 8 << 20 });
        if below(2) == 0 {
            lab.journal.set_async_checkpoint(FreeThreshold::new(99)).unwrap();
        }
        lab
    }

    /// Ends the services' threads.
    pub fn stop_services(&mut self) {
        self.services.take();
    }

    /// The volume if the power goes now. Of what is not durable any subset survives, or nothing.
    pub fn crash(&self) -> Volume {
        crash(&self.medium)
    }
}

/// As [`Lab::crash`].
pub fn crash(medium: &Medium) -> Volume {
    let nothing = below(2) == 0;
    let image = MemDevice::from_bytes(&medium.crash(|| !nothing && any()));
    let mut superblock = read_superblock(&image, &map()).unwrap();
    let found = recover_to_device(&image, &image, &map(), &mut superblock, BLOCKS).unwrap();
    let mut bytes = image.to_bytes();
    if let Some(fast) = found.fast_commits {
        let put = |record: FcRecord<&[u8]>| {
            if let FcRecord::DelRange { ino, block, .. } = record {
                bytes[ino as usize * BS..][..BS].fill(block as u8);
            }
            Ok::<(), JournalError>(())
        };
        fast.each(&image, &map(), &superblock, put).unwrap();
    }
    Volume(bytes)
}

/// True if the log is marked empty on the medium whatever the cache of the device loses.
pub fn log_is_empty(medium: &Medium) -> bool {
    let image = MemDevice::from_bytes(&medium.crash(|| false));
    read_superblock(&image, &map()).unwrap().start == 0
}

/// The byte that fills a home block on the medium, as reads of the device see it.
pub fn home(medium: &Medium, nr: u64) -> u8 {
    byte(&medium.live()[nr as usize * BS..][..BS], nr)
}

/// Fills a block within a handle.
pub fn put(h: &mut Handle, nr: u64, value: u8) -> Result<(), JournalError> {
    let buf = h.journal().read(BlockNr(nr))?;
    h.modify(&buf, |b| b.fill(value))
}

/// Adds one to a block within a handle; gives its new value.
pub fn add(h: &mut Handle, nr: u64) -> Result<u8, JournalError> {
    let buf = h.journal().read(BlockNr(nr))?;
    h.modify(&buf, |b| {
        let value = byte(b, nr) + 1;
        b.fill(value);
        value
    })
}

/// Fills some blocks in one transaction.
pub fn fill(journal: &Arc<Journal>, blocks: &[u64], value: u8) -> Result<Tid, JournalError> {
    let mut h = journal.start(blocks.len() as u32)?;
    for nr in blocks {
        put(&mut h, *nr, value)?;
    }
    let tid = h.tid();
    h.stop()?;
    Ok(tid)
}
