//! A journal on devices that the test controls.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use extol_block::{BlockDevice, BlockSize, MemDevice, SharedDevice};
use extol_jbd2::format::{Features, JournalSuperblock};
use extol_jbd2::recovery::{Recovered, read_superblock, recover_to_device};
use extol_jbd2::{FreeThreshold, Journal, JournalConfig, LogConfig, LogMap, Result, Tid};
use extol_task::{Clock, SystemClock};

/// Blocks of the file system's device.
pub const FS_BLOCKS: u64 = 3000;
/// Blocks of the log: the fewest that the format allows.
pub const LOG_BLOCKS: u32 = 1024;
/// Tests write below this block; behind it lies the log (in two pieces).
pub const USABLE: u64 = 1500;

/// What a log looks like and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub compat: u32,
    pub incompat: u32,
    pub block_size: u32,
    pub is_async: bool,
    pub external: bool,
    pub barrier: bool,
    pub first_tid: u32,
    pub cache_bytes: usize,
    /// `async_checkpoint=`.
    pub async_checkpoint: Option<u64>,
}

const REVOKE: u32 = Features::INCOMPAT_REVOKE;
const WIDE: u32 = Features::INCOMPAT_64BIT;
const V2: u32 = Features::INCOMPAT_CSUM_V2;
const V3: u32 = Features::INCOMPAT_CSUM_V3;
const ASYNC: u32 = Features::INCOMPAT_ASYNC_COMMIT;

/// Today's default with blocks of 1 KiB: checksums v3, 64 bits.
pub const PLAIN: Variant = Variant {
    name: "v3",
    compat: 0,
    incompat: REVOKE | WIDE | V3,
    block_size: 1024,
    is_async: false,
    external: false,
    barrier: true,
    first_tid: 7,
    // Few committed blocks may wait to go home: the checkpoint runs all the time.
    cache_bytes: 64 * 1024,
    async_checkpoint: None,
};

/// Every kind of log that is written.
pub const VARIANTS: [Variant; 12] = [
    PLAIN,
    Variant { name: "none", incompat: REVOKE, ..PLAIN },
    Variant {
        name: "none, 64bit, tid wraps",
        incompat: REVOKE | WIDE,
        first_tid: u32::MAX - 5,
        ..PLAIN
    },
    Variant { name: "v1", compat: Features::COMPAT_CHECKSUM, incompat: REVOKE, ..PLAIN },
    Variant { name: "v2", incompat: REVOKE | V2, ..PLAIN },
    Variant { name: "v3, 2 KiB, tid wraps", block_size: 2048, first_tid: u32::MAX - 3, ..PLAIN },
    Variant { name: "external", external: true, ..PLAIN },
    Variant { name: "v3 async", incompat: REVOKE | WIDE | V3 | ASYNC, is_async: true, ..PLAIN },
    Variant {
        name: "v1 async, external",
        compat: Features::COMPAT_CHECKSUM,
        incompat: REVOKE | ASYNC,
        is_async: true,
        external: true,
        ..PLAIN
    },
    Variant { name: "no barriers", barrier: false, ..PLAIN },
    Variant { name: "checkpoint at 90 %", async_checkpoint: Some(90), ..PLAIN },
    Variant {
        name: "external, checkpoint at 60 %",
        external: true,
        async_checkpoint: Some(60),
        ..PLAIN
    },
];

impl Variant {
    pub fn size(&self) -> BlockSize {
        BlockSize::new(self.block_size).unwrap()
    }

    pub fn map(&self) -> LogMap {
        if self.external {
            return LogMap::identity(self.size(), LOG_BLOCKS + 2);
        }
        LogMap::from_extents(self.size(), vec![(0, 2300, 500), (500, USABLE, LOG_BLOCKS - 500)])
            .unwrap()
    }

    pub fn superblock(&self) -> JournalSuperblock {
        let features = Features { compat: self.compat, incompat: self.incompat, ro_compat: 0 };
        let first = self.map().superblock_block() + 1;
        let mut sb =
            JournalSuperblock::new(self.size(), self.map().len(), first, features, [0x5A; 16]);
        sb.sequence = Tid(self.first_tid).previous();
        sb
    }

    /// A fresh device for the file system and, if there is one, for the log, with an empty log.
    pub fn media(&self) -> (MemDevice, Option<MemDevice>) {
        let fs = MemDevice::new(FS_BLOCKS * u64::from(self.block_size));
        let log = self
            .external
            .then(|| MemDevice::new(u64::from(self.map().len()) * u64::from(self.block_size)));
        let at = self.map().superblock_offset().unwrap();
        log.as_ref().unwrap_or(&fs).write_at(&self.superblock().encode(), at).unwrap();
        (fs, log)
    }

    /// A journal over these devices, whose log is empty.
    pub fn open(&self, fs: SharedDevice, log: SharedDevice) -> Arc<Journal> {
        self.open_with(fs, log, Arc::new(SystemClock::new()), Duration::from_secs(3600))
    }

    pub fn open_with(
        &self,
        fs: SharedDevice,
        log: SharedDevice,
        clock: Arc<dyn Clock>,
        commit_interval: Duration,
    ) -> Arc<Journal> {
        let log = LogConfig {
            device: log,
            external: self.external,
            map: self.map(),
            superblock: self.superblock(),
            next_tid: Tid(self.first_tid),
        };
        let config = JournalConfig {
            device: fs,
            block_size: self.size(),
            blocks: FS_BLOCKS,
            log: Some(log),
            barrier: self.barrier,
            commit_interval,
            async_commit: self.is_async,
            cache_bytes: self.cache_bytes,
            clock,
        };
        let journal = Journal::open(config).unwrap();
        journal.set_async_checkpoint(self.async_checkpoint.and_then(FreeThreshold::new)).unwrap();
        journal
    }

    /// A journal over memory with an internal log.
    pub fn in_memory(&self) -> (Arc<Journal>, Arc<MemDevice>) {
        assert!(!self.external);
        let device = Arc::new(self.media().0);
        (self.open(device.clone(), device.clone()), device)
    }

    /// Recovers what a crash left.
    pub fn recover(
        &self,
        fs: &dyn BlockDevice,
        log: Option<&dyn BlockDevice>,
    ) -> Result<Recovered> {
        let log = log.unwrap_or(fs);
        let mut sb = read_superblock(log, &self.map())?;
        recover_to_device(log, fs, &self.map(), &mut sb, FS_BLOCKS)
    }

    pub fn journal_superblock(&self, log: &dyn BlockDevice) -> JournalSuperblock {
        read_superblock(log, &self.map()).unwrap()
    }
}

/// Runs `f` on its own thread. Fails if it is not done in time: a thread waits for ever.
pub fn in_time<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(f());
    });
    match result.recv_timeout(Duration::from_secs(60)) {
        Ok(value) => {
            thread.join().unwrap();
            value
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("the thread sent nothing"),
        },
    }
}

/// Polls until `condition` holds. Fails after a long time.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}: does not happen");
}

/// Seeds for a random test: a few, or as many as `EXTOL_SOAK` says.
pub fn seeds(from: u64) -> impl Iterator<Item = u64> {
    let count = std::env::var("EXTOL_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    (0..count).map(move |i| from + 100_000 * i)
}

/// A small random number generator: the same numbers for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// Below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
