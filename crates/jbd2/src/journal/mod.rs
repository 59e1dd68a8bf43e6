//! The journal: joining transactions, committing, waiting, and what happens after a failure.
//!
//! All decisions are made under one small lock ([`State`]); no I/O happens under it. Commits are
//! led by the thread that needs one first: a thread that calls [`Journal::commit_wait`] becomes the
//! committer if there is none, so an fsync costs no thread switch. Requests that come meanwhile
//! join the next transaction and are served by one commit.
//!
//! Invariants
//! - JN-1: at most one transaction runs and at most one is being committed (`Transactions`,
//!   `Role`). A fast commit has the same role while it is written, and so has a
//!   checkpoint that goes back to the log's beginning.
//! - JN-2: the free log space holds all that the running transaction was promised: its blocks, the
//!   credits of its open handles, their control blocks and some slack (`State::has_room`, asked
//!   before credits are given by `join` and `extend`). Free in a log that does not wrap is what
//!   lies before its end. Only a commit takes space, and it takes it for this transaction, so it
//!   never waits for a checkpoint. Only a transaction that overdrew its credits by more than the
//!   slack may have to (`Journal::lead_commit`).
//! - JN-3: after the first failed write or flush nothing is acknowledged any more (`Journal::abort`
//!   before any waiter is woken, `Failure::check` comes before `committed`).
//! - JN-4: a waiter returns only when every transaction up to its own is durable, also if its own
//!   turned out to hold nothing (`Journal::commit_wait`).
//! - JN-5: the log is named live in its superblock before the first commit record is durable
//!   (`LogState::empty`), and the fast-commit area begins with nothing before that
//!   (`write_to_log`).
//! - JN-6: a durable request waits for others to join at most `max_batch_time`, and never while the
//!   journal is aborted, frozen or out of room, or the commit is wanted now: each of these calls
//!   `Journal::end_batch_wait`. One leader waits at a time, once per transaction or batch of a
//!   fast commit; a thread that waits on `done` meanwhile is woken by the commit that follows, or
//!   by the leader if there is nothing to commit any more (`Journal::batch_wait`).
//!
//! Lock order: docs/design/lock-order.md.
//!
//! | file | part |
//! | --- | --- |
//! | `mod` | what the journal is made of, opening, properties |
//! | `join` | handles come and go |
//! | `wait` | requests and waits for a commit, and the wait for other requests |
//! | `state` | what the lock holds, and what follows from it |
//! | `writes` | which writes in place a flush has covered |
//! | `data` | file data: kinds of writes, and flushes for them |
//! | `deferred` | file data whose write is left to the commit that makes it durable |
//! | `failure` | abort and shutdown |
//! | `batch` | many handles in one commit or none (BA-1 to BA-3) |
//! | `report` | the numbers of [`JournalStats`](crate::JournalStats) |
//!
//! The commit itself is in `crate::commit`, the fast commit (FC-1 to FC-9) in `crate::fast::lead`,
//! checkpoint and freeze in `crate::checkpoint`.

mod batch;
mod data;
pub(crate) mod deferred;
mod failure;
mod join;
mod report;
pub(crate) mod state;
pub(crate) mod wait;
mod writes;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use extol_block::{BlockNr, BlockSize, PriorityGroup, SharedDevice};
use extol_sync::Condvar;
use extol_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use extol_sync::rank::{Mutex, Rank};
use extol_task::{Clock, Wakeup};

pub use self::batch::Batch;
use self::deferred::Deferred;
pub use self::deferred::DeferredWrite;
pub(crate) use self::join::Joined;
use self::state::{Failure, Gate, LogState, Role, State, SyncRequests, Transactions};
use self::writes::Writes;
use crate::batching::Batching;
use crate::cache::{BlockCache, Buf};
use crate::checkpoint::list::CheckpointList;
use crate::checkpoint::policy::FreeThreshold;
use crate::checkpoint::rounds::Rounds;
use crate::fast::area::Area;
use crate::fast::async_requests::AsyncRequests;
use crate::fast::queue::Queue;
use crate::fast::source::FastCommits;
use crate::log::Log;
use crate::planted;
use crate::space::LogSpace;
use crate::stats::Counters;
use crate::types::{JournalError, Result, Tid};

/// Without a log, how many blocks one "transaction" may hold.
const NO_LOG_MAX: u32 = 8192;

/// How a journal is opened.
pub struct JournalConfig {
    /// The file system's device.
    pub device: SharedDevice,
    /// Its block size.
    pub block_size: BlockSize,
    /// Its blocks.
    pub blocks: u64,
    /// The recovered, empty log; `None` for a volume without one.
    pub log: Option<crate::log::LogConfig>,
    /// Flush the device where order needs it (`barrier`).
    pub barrier: bool,
    /// Longest age of a transaction (`commit=`).
    pub commit_interval: Duration,
    /// Send the commit record together with the rest (`journal_async_commit`).
    pub async_commit: bool,
    /// Bound on the metadata cache, in bytes.
    pub cache_bytes: usize,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for JournalConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalConfig").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

/// A journal over one device, with the metadata cache that belongs to it. See the module's story.
pub struct Journal {
    pub(crate) device: SharedDevice,
    pub(crate) cache: BlockCache,
    /// None: a volume without one, or one that is only read, which may get it
    /// ([`Journal::attach`]).
    pub(crate) log: OnceLock<Log>,
    pub(crate) state: CachePadded<Mutex<State, { Rank::JournalState as u8 }>>,
    /// A transaction was replaced, space came free, or a barrier went down.
    pub(crate) can_join: Condvar,
    /// A commit ended: for waiters for no transaction in particular.
    pub(crate) done: Condvar,
    /// The leader that waits for others has no reason left to.
    pub(crate) batch_complete: Condvar,
    /// The locked transaction lost its last handle.
    pub(crate) drained: Condvar,
    pub(crate) checkpoint: CheckpointList,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Mutex<Rounds, { Rank::Checkpointing as u8 }>,
    pub(crate) counters: CachePadded<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commit_wakeup: Wakeup,
    pub(crate) checkpoint_wakeup: Wakeup,
    barrier: AtomicBool,
    commit_interval_ns: AtomicU64,
    pub(crate) async_commit: bool,
    max_transaction: AtomicU32,
    /// Credits of every handle beside those that its operation asks for.
    side_credits: AtomicU32,
    space_needed: AtomicU32,
    pub(crate) pinned_max: usize,
    is_aborted: AtomicBool,
    /// No services run: a thread that waits for a commit or for log space does the work.
    in_callers: AtomicBool,
    /// See [`Journal::leave_no_mark_when_full`].
    unmarked_when_full: AtomicBool,
    stopped_by_full: AtomicBool,
    pub(crate) writes: Writes,
    pub(crate) deferred: CachePadded<Deferred>,
    /// Of the threads in [`crate::Services`].
    io_priority: PriorityGroup,
    /// One more than the number of the block that goes home last; 0: none.
    home_last: AtomicU64,
    home_first: AtomicU64,
    pub(crate) fast: FastCommits,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("device", &self.device).finish_non_exhaustive()
    }
}

/// How many blocks a transaction may hold so that its snapshots fit into memory.
fn by_memory(pinned_max: usize, block_size: BlockSize) -> u32 {
    u32::try_from(pinned_max / block_size.len()).unwrap_or(u32::MAX).max(256)
}

/// The most blocks of a transaction, and the room in the log that it may need.
fn measure(log: &Log, space: &LogSpace, by_memory: u32, async_commit: bool) -> Result<(u32, u32)> {
    if async_commit && !log.has_checksums() {
        // Nothing else would tell recovery that a commit record overtook its transaction.
        return Err(JournalError::Unsupported(
            "asynchronous commits need journal checksums".into(),
        ));
    }
    let max = (space.len() / 4).min(by_memory);
    let needed = log.room_for(max);
    if needed >= space.len() {
        let why = "the journal is too small: make a larger one (extol tune -O ^has_journal, then \
                   extol tune -J size=)";
        return Err(JournalError::Unsupported(why.into()));
    }
    Ok((max, needed))
}

impl Journal {
    /// Opens a journal whose log is empty (recover first). Starts no thread; see
    /// [`crate::Services`].
    ///
    /// # Errors
    /// If the log is too small to hold a transaction.
    pub fn open(config: JournalConfig) -> Result<Arc<Self>> {
        let cache = BlockCache::new(
            Arc::clone(&config.device),
            config.block_size,
            config.blocks,
            config.cache_bytes,
        );
        // Committed versions that wait to go home pin memory beside the cache: a quarter of its
        // bound.
        let pinned_max = config.cache_bytes / 4;
        let (log, space, next_tid) = match config.log {
            Some(log) => {
                let next = log.next_tid;
                let (log, space) = Log::open(log, config.block_size)?;
                (Some(log), Some(space), next)
            }
            None => (None, None, Tid(1)),
        };
        let by_memory = by_memory(pinned_max, config.block_size);
        let (max_transaction, space_needed) = match (&log, &space) {
            (Some(log), Some(space)) => measure(log, space, by_memory, config.async_commit)?,
            _ => (NO_LOG_MAX.min(by_memory), 0),
        };
        let log_empty = log.as_ref().is_none_or(Log::is_empty);
        let area = log.as_ref().and_then(Log::area).and_then(|range| Area::new(&range));
        Ok(Arc::new(Self {
            cache,
            log: log.map_or_else(OnceLock::new, OnceLock::from),
            state: CachePadded::new(Mutex::new(State {
                tx: Transactions::new(next_tid),
                role: Role::default(),
                log: LogState { space, empty: log_empty, waiters: 0, threshold: None },
                gate: Gate::default(),
                failure: Failure::default(),
                sync: SyncRequests::default(),
                fast: Queue::new(area),
                async_requests: AsyncRequests::default(),
            })),
            can_join: Condvar::new(),
            done: Condvar::new(),
            batch_complete: Condvar::new(),
            drained: Condvar::new(),
            checkpoint: CheckpointList::default(),
            checkpointing: Mutex::default(),
            counters: CachePadded::default(),
            clock: config.clock,
            commit_wakeup: Wakeup::new(),
            checkpoint_wakeup: Wakeup::new(),
            barrier: AtomicBool::new(config.barrier),
            commit_interval_ns: AtomicU64::new(
                u64::try_from(config.commit_interval.as_nanos()).unwrap_or(u64::MAX),
            ),
            async_commit: config.async_commit,
            max_transaction: AtomicU32::new(max_transaction),
            side_credits: AtomicU32::new(0),
            space_needed: AtomicU32::new(space_needed),
            pinned_max,
            is_aborted: AtomicBool::new(false),
            in_callers: AtomicBool::new(false),
            unmarked_when_full: AtomicBool::new(false),
            stopped_by_full: AtomicBool::new(false),
            writes: Writes::default(),
            deferred: CachePadded::default(),
            io_priority: PriorityGroup::default(),
            fast: FastCommits::default(),
            home_last: AtomicU64::new(0),
            home_first: AtomicU64::new(0),
            device: config.device,
        }))
    }

    /// Gives a log to a journal that was opened without one because the volume was only read. It
    /// has been recovered, and nothing has been changed here yet;
    /// [`FastSource`](crate::fast::FastSource) and the rest are set afterwards.
    ///
    /// # Errors
    /// As [`Journal::open`]; or if there is one.
    pub fn attach(&self, config: crate::log::LogConfig) -> Result<()> {
        let next_tid = config.next_tid;
        let (log, space) = Log::open(config, self.block_size())?;
        let by_memory = by_memory(self.pinned_max, self.block_size());
        let (max_transaction, space_needed) = measure(&log, &space, by_memory, self.async_commit)?;
        let (log_empty, area) = (log.is_empty(), log.area().and_then(|range| Area::new(&range)));
        let mut state = self.state.lock();
        if self.has_log() || state.tx.running.is_some() {
            return Err(JournalError::Unsupported("the journal is in use".into()));
        }
        self.max_transaction.store(max_transaction, Ordering::Relaxed);
        self.space_needed.store(space_needed, Ordering::Relaxed);
        (state.log.space, state.log.empty, state.fast.area) = (Some(space), log_empty, area);
        state.tx = Transactions::new(next_tid);
        let _ = self.log.set(log);
        Ok(())
    }

    /// The log, which is empty, has this space from now on.
    pub(crate) fn use_moved(&self, log: &Log, space: LogSpace) -> Result<()> {
        let by_memory = by_memory(self.pinned_max, self.block_size());
        let (max_transaction, space_needed) = measure(log, &space, by_memory, self.async_commit)?;
        let mut state = self.state.lock();
        self.max_transaction.store(max_transaction, Ordering::Relaxed);
        self.space_needed.store(space_needed, Ordering::Relaxed);
        state.log.space = Some(space);
        state.fast.area = log.area().and_then(|range| Area::new(&range));
        Ok(())
    }

    /// No [`crate::Services`] will run: from now on a handle that waits for log space writes blocks
    /// home itself, and one that finds the transaction full commits it. Nothing is committed by
    /// time.
    pub fn work_in_callers(&self) {
        self.in_callers.store(true, Ordering::Relaxed);
    }

    /// The I/O priority of the threads that commit and checkpoint (`journal_ioprio=`).
    #[must_use]
    pub fn io_priority(&self) -> &PriorityGroup {
        &self.io_priority
    }

    pub(crate) fn works_in_callers(&self) -> bool {
        self.in_callers.load(Ordering::Relaxed)
    }

    /// The file system's block size.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.cache.block_size()
    }

    /// Reads a metadata block through the cache.
    ///
    /// # Errors
    /// If the device fails or the number is past the end of the volume.
    pub fn read(&self, nr: BlockNr) -> Result<Arc<Buf>> {
        self.cache.read(nr)
    }

    /// Reads neighbouring blocks into memory at once, up to the first that is there. No thread may
    /// change one of them meanwhile.
    pub fn read_ahead(&self, first: BlockNr, count: u64) {
        self.cache.read_ahead(first, count);
    }

    /// Reads neighbouring blocks from the device, past the cache: for a journal that was just
    /// opened, since changes that are not at home are not seen. `bytes` are whole blocks.
    ///
    /// # Errors
    /// If the device fails or a block is past the end of the volume.
    pub fn read_home(&self, start: BlockNr, bytes: &mut [u8]) -> Result<()> {
        let size = self.cache.block_size();
        let last = start.plus((bytes.len() / size.len()).saturating_sub(1) as u64);
        self.cache.check(last)?;
        Ok(self.device.read_at(bytes, start.offset(size))?)
    }

    /// The block that the device could not read last, if it was not taken since.
    #[must_use]
    pub fn take_failed_read(&self) -> Option<BlockNr> {
        self.cache.take_failed_read()
    }

    /// The block if it is in memory (file blocks of data=journal are newer there than on the
    /// device).
    #[must_use]
    pub fn cached(&self, nr: BlockNr) -> Option<Arc<Buf>> {
        self.cache.cached(nr)
    }

    /// Drops every unused block from memory. When frozen these are all blocks of a file
    /// whose lock the caller has: what is written to them from now on without the journal must not
    /// be hidden by what they held.
    pub fn drop_idle(&self) {
        self.cache.drop_idle();
    }

    /// The caller has changed these blocks on the device behind the cache's back: drops what is
    /// remembered of them. No transaction may have changed any of them since they were last at
    /// home, and none may be about to. False if one has, all the same; that one stays.
    pub fn forget_clean(&self, first: BlockNr, count: u64) -> bool {
        self.cache.forget_clean(first, count)
    }

    /// True if there is a log (false: ext2, commits write home directly).
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.get().is_some()
    }

    /// Most credits that one handle may ask for.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        self.max_transaction.load(Ordering::Relaxed).saturating_sub(self.side_credits())
    }

    /// Every handle from now on has so many credits more, for changes that operations do not know
    /// of ([`Handle::modify_aside`](crate::Handle::modify_aside)).
    pub fn set_side_credits(&self, credits: u32) {
        self.side_credits.store(credits, Ordering::Relaxed);
    }

    pub(crate) fn side_credits(&self) -> u32 {
        self.side_credits.load(Ordering::Relaxed)
    }

    pub(crate) fn space_needed(&self) -> u32 {
        self.space_needed.load(Ordering::Relaxed)
    }

    pub(crate) fn revokes_per_block(&self) -> usize {
        self.log.get().map_or(1, Log::revokes_per_block)
    }

    pub(crate) fn barrier(&self) -> bool {
        self.barrier.load(Ordering::Relaxed)
    }

    /// Turns flushes on or off (`barrier`, `nobarrier`).
    pub fn set_barrier(&self, on: bool) {
        self.barrier.store(on, Ordering::Relaxed);
    }

    /// Changes the commit interval for the next transaction.
    pub fn set_commit_interval(&self, interval: Duration) {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        self.commit_interval_ns.store(ns, Ordering::Relaxed);
        self.commit_wakeup.wake();
    }

    pub(crate) fn commit_interval_ns(&self) -> u64 {
        self.commit_interval_ns.load(Ordering::Relaxed)
    }

    /// Changes how fsyncs wait for each other, at once: a leader that waits for others now commits.
    pub fn set_batching(&self, batching: Batching) {
        let mut state = self.state.lock();
        state.sync.batcher.set(batching);
        state.fast.batcher.set(batching);
        self.end_batch_wait(&mut state);
    }

    /// Turns the asynchronous checkpoint on or off, or changes its threshold.
    ///
    /// # Errors
    /// If it is to be on and there is no log.
    pub fn set_async_checkpoint(&self, threshold: Option<FreeThreshold>) -> Result<()> {
        if threshold.is_some() && self.log.get().is_none() {
            return Err(JournalError::Unsupported("async_checkpoint needs a journal".into()));
        }
        self.state.lock().log.threshold = threshold;
        self.checkpoint_wakeup.wake();
        Ok(())
    }

    /// From now on this block is written home only behind a flush that covers all other blocks of
    /// its transaction and of older ones: what it says is true of what is at home, whatever the
    /// log holds.
    pub fn set_home_last(&self, block: Option<BlockNr>) {
        self.home_last.store(block.map_or(0, |nr| nr.0.saturating_add(1)), Ordering::Release);
    }

    /// From now on this block is written home, and flushed, before any other block.
    pub fn set_home_first(&self, block: Option<BlockNr>) {
        self.home_first.store(block.map_or(0, |nr| nr.0.saturating_add(1)), Ordering::Release);
    }

    pub(crate) fn home_first(&self) -> Option<BlockNr> {
        if planted::has(planted::Bug::CutHomeLate) {
            return None;
        }
        self.home_first.load(Ordering::Acquire).checked_sub(1).map(BlockNr)
    }

    pub(crate) fn home_last(&self) -> Option<BlockNr> {
        if planted::has(planted::Bug::SuperblockHomeFirst) {
            return None;
        }
        self.home_last.load(Ordering::Acquire).checked_sub(1).map(BlockNr)
    }

    /// The volume has so many blocks from now on, if it had fewer. What lies in the new ones is on
    /// the device.
    pub fn extend_to(&self, blocks: u64) {
        self.cache.extend_to(blocks);
    }

    /// Is the block's number within the volume?
    #[must_use]
    pub fn in_range(&self, nr: BlockNr) -> bool {
        self.cache.in_range(nr)
    }
}
