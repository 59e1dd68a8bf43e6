//! The journal: who may join which transaction, who commits, who waits, and what happens after a failure.
//!
//! All decisions are made under one small lock ([`State`]); no I/O happens under it. Commits are led by whoever
//! needs one first: a thread that calls [`Journal::commit_wait`] becomes the committer if nobody else is, so an fsync
//! costs no thread switch. Everybody who arrives meanwhile joins the next transaction and is served by one commit.
//!
//! Invariants
//! - J1: at most one transaction runs and at most one is being committed (`State::running`, `State::committer`).
//! - J2: a handle joins only if the log can take the whole transaction (`Journal::join` asks for space for the largest
//!   transaction), so a commit never waits for a checkpoint. Only a transaction that overdrew its credits by more
//!   than the slack may have to (`Journal::lead_commit`).
//! - J3: after the first failed write or flush nothing is acknowledged any more (`Journal::abort` before any waiter is
//!   woken, `State::aborted` is checked before `committed`).
//! - J4: a waiter returns only when every transaction up to its own is durable, also if its own turned out to hold
//!   nothing (`Journal::commit_wait`).
//! - J5: the log is named live in its superblock before the first commit record is durable (`State::log_empty`).
//!
//! Lock order: `checkpointing`, then `State`, then the leaves (transaction lists, buffers, checkpoint list, superblock).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extol_device::{BlockNr, BlockSize, SharedDevice};
use extol_service::{Clock, Wakeup};
use parking_lot::{Condvar, Mutex};

use crate::cache::{BlockCache, Buf};
use crate::checkpoint::CheckpointList;
use crate::handle::Handle;
use crate::log::Log;
use crate::space::LogSpace;
use crate::stats::{Counters, JournalStats};
use crate::transaction::{Callback, Running, Transaction};
use crate::types::{JournalError, Result, Tid};

/// Blocks that stay free beside the largest transaction: control blocks of rounding, and overdrafts.
const SLACK: u32 = 32;
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

pub(crate) struct State {
    pub running: Option<Running>,
    /// Somebody is committing.
    pub committer: bool,
    /// The transaction being committed, and its first log block.
    pub committing: Option<(Tid, u32)>,
    /// Newest durable transaction.
    pub committed: Tid,
    /// Commit at least up to here.
    pub wanted: Option<Tid>,
    pub next_tid: Tid,
    pub space: Option<LogSpace>,
    /// The superblock on disk says "empty".
    pub log_empty: bool,
    /// Handles that wait for log space.
    pub space_waiters: u32,
    /// While not zero no handle may join (freeze, flush, close).
    pub barriers: u32,
    pub aborted: Option<Arc<str>>,
}

impl State {
    /// What waits for a transaction that will never be durable: to be told so, once its last handle is gone. (They
    /// may hold the journal alive, so they must not stay.)
    fn lost_callbacks(&mut self) -> Vec<Callback> {
        match (&self.aborted, &self.running) {
            (Some(_), Some(r)) if r.handles == 0 => std::mem::take(&mut *r.tx.callbacks.lock()),
            _ => Vec::new(),
        }
    }
}

/// A journal over one device, with the metadata cache that belongs to it. See the module's story.
pub struct Journal {
    pub(crate) device: SharedDevice,
    pub(crate) cache: BlockCache,
    pub(crate) log: Option<Log>,
    pub(crate) state: Mutex<State>,
    /// A transaction was replaced, space came free, or a barrier went down.
    pub(crate) can_join: Condvar,
    /// A commit ended.
    pub(crate) done: Condvar,
    /// The locked transaction lost its last handle.
    pub(crate) drained: Condvar,
    pub(crate) checkpoint: CheckpointList,
    /// One checkpoint at a time.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) counters: Counters,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commit_wakeup: Wakeup,
    pub(crate) checkpoint_wakeup: Wakeup,
    barrier: AtomicBool,
    commit_interval_ns: AtomicU64,
    pub(crate) async_commit: bool,
    max_transaction: u32,
    space_needed: u32,
    pub(crate) pinned_max: usize,
    is_aborted: AtomicBool,
    /// No services run: whoever waits for a commit or for log space does the work.
    in_callers: AtomicBool,
    /// Data writes begun by the file system, and how many of them a flush has covered.
    data_writes: AtomicU64,
    flushed_writes: AtomicU64,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens a journal whose log is empty (recover first). Starts no thread; see [`crate::Services`].
    ///
    /// # Errors
    /// If the log is too small to hold a transaction.
    pub fn open(config: JournalConfig) -> Result<Arc<Self>> {
        let cache =
            BlockCache::new(Arc::clone(&config.device), config.block_size, config.blocks, config.cache_bytes);
        // Committed versions that wait to go home pin memory beside the cache: a quarter of its bound.
        let pinned_max = config.cache_bytes / 4;
        let (log, space, next_tid) = match config.log {
            Some(log) => {
                let next = log.next_tid;
                let (log, space) = Log::open(log, config.block_size)?;
                (Some(log), Some(space), next)
            }
            None => (None, None, Tid(1)),
        };
        if config.async_commit && log.as_ref().is_some_and(|log| !log.has_checksums()) {
            // Nothing else would tell recovery that a commit record overtook its transaction.
            return Err(JournalError::Unsupported("asynchronous commits need journal checksums".into()));
        }
        let by_memory = u32::try_from(pinned_max / config.block_size.len()).unwrap_or(u32::MAX).max(256);
        let (max_transaction, space_needed) = match (&log, &space) {
            (Some(log), Some(space)) => {
                let max = (space.len() / 4).min(by_memory);
                (max, max + log.overhead(max) + SLACK)
            }
            _ => (NO_LOG_MAX.min(by_memory), 0),
        };
        if space.as_ref().is_some_and(|s| space_needed >= s.len()) {
            return Err(JournalError::Unsupported("the journal is too small".into()));
        }
        Ok(Arc::new(Self {
            cache,
            log,
            state: Mutex::new(State {
                running: None,
                committer: false,
                committing: None,
                committed: next_tid.previous(),
                wanted: None,
                next_tid,
                space,
                log_empty: true,
                space_waiters: 0,
                barriers: 0,
                aborted: None,
            }),
            can_join: Condvar::new(),
            done: Condvar::new(),
            drained: Condvar::new(),
            checkpoint: CheckpointList::default(),
            checkpointing: Mutex::new(()),
            counters: Counters::default(),
            clock: config.clock,
            commit_wakeup: Wakeup::new(),
            checkpoint_wakeup: Wakeup::new(),
            barrier: AtomicBool::new(config.barrier),
            commit_interval_ns: AtomicU64::new(
                u64::try_from(config.commit_interval.as_nanos()).unwrap_or(u64::MAX),
            ),
            async_commit: config.async_commit,
            max_transaction,
            space_needed,
            pinned_max,
            is_aborted: AtomicBool::new(false),
            in_callers: AtomicBool::new(false),
            data_writes: AtomicU64::new(0),
            flushed_writes: AtomicU64::new(0),
            device: config.device,
        }))
    }

    /// No [`crate::Services`] will run: from now on a handle that waits for log space writes blocks home itself, and one
    /// that finds the transaction full commits it. Nothing is committed by time.
    pub fn work_in_callers(&self) {
        self.in_callers.store(true, Ordering::Relaxed);
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

    /// The block if it is in memory (file blocks of data=journal are newer there than on the device).
    #[must_use]
    pub fn cached(&self, nr: BlockNr) -> Option<Arc<Buf>> {
        self.cache.cached(nr)
    }

    /// True if there is a log (false: ext2, commits write home directly).
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Most credits that one handle may ask for.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        self.max_transaction
    }

    pub(crate) fn space_needed(&self) -> u32 {
        self.space_needed
    }

    pub(crate) fn revokes_per_block(&self) -> usize {
        self.log.as_ref().map_or(1, Log::revokes_per_block)
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

    // ---- handles ------------------------------------------------------------------------------------------------

    /// Joins the running transaction. Sleeps while it is locked or the log is full, so take every inode lock that the
    /// operation needs before. `credits`: blocks that it may change.
    ///
    /// # Errors
    /// If the journal was aborted, or no transaction ever has room for `credits`.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        let (tx, credits) = self.join(credits)?;
        Ok(Handle::new(Arc::clone(self), tx, credits))
    }

    pub(crate) fn join(&self, credits: u32) -> Result<(Arc<Transaction>, u32)> {
        if credits > self.max_transaction {
            return Err(JournalError::TooManyCredits { wanted: credits, max: self.max_transaction });
        }
        let mut waited_since = None;
        let mut state = self.state.lock();
        let tx = loop {
            if let Some(why) = &state.aborted {
                return Err(JournalError::Aborted(why.to_string()));
            }
            if let Some(r) = &mut state.running
                && r.handles == 0
                && !r.locked
                && r.credits.saturating_add(credits) > self.max_transaction
                && r.tx.is_empty()
            {
                // Charged for revokes that were cancelled since. It holds nothing, so nobody would ever commit it.
                r.credits = 0;
            }
            let full = match &state.running {
                _ if state.barriers > 0 => false,
                Some(r) if r.locked => false,
                Some(r) if r.credits.saturating_add(credits) > self.max_transaction => true,
                _ => {
                    if state.space.as_ref().is_none_or(|s| s.free() >= self.space_needed) {
                        break self.join_running(&mut state, credits);
                    }
                    let since = self.clock.now_ns();
                    state.space_waiters += 1;
                    if self.works_in_callers() {
                        drop(state);
                        let stepped = self.checkpoint_step();
                        state = self.state.lock();
                        if matches!(stepped, Ok(false)) && state.committer {
                            // Another caller's commit takes the space, and will be there for the next step.
                            self.done.wait(&mut state);
                        }
                    } else {
                        self.checkpoint_wakeup.wake();
                        self.can_join.wait(&mut state);
                    }
                    state.space_waiters -= 1;
                    self.counters.space_waits.add(1);
                    self.counters.space_wait_ns.add(self.clock.now_ns().saturating_sub(since));
                    continue;
                }
            };
            waited_since.get_or_insert_with(|| self.clock.now_ns());
            if full && let Some(tid) = state.running.as_ref().map(|r| r.tx.tid) {
                if self.works_in_callers() && !state.committer {
                    state = self.lead_commit(state);
                    continue;
                }
                self.want(&mut state, tid);
            }
            self.can_join.wait(&mut state);
        };
        drop(state);
        if let Some(since) = waited_since {
            self.counters.wait_ns.add(self.clock.now_ns().saturating_sub(since));
        }
        Ok((tx, credits))
    }

    fn join_running(&self, state: &mut State, credits: u32) -> Arc<Transaction> {
        let running = match &mut state.running {
            Some(running) => running,
            none => {
                let tid = state.next_tid;
                state.next_tid = tid.next();
                // The commit service must see the new transaction to time it.
                self.commit_wakeup.wake();
                none.insert(Running {
                    tx: Arc::new(Transaction::new(tid)),
                    locked: false,
                    handles: 0,
                    credits: 0,
                    began_ns: self.clock.now_ns(),
                    joined: 0,
                    requested_ns: None,
                })
            }
        };
        running.handles += 1;
        running.joined += 1;
        running.credits += credits;
        Arc::clone(&running.tx)
    }

    /// A handle ends; `unused` credits come back.
    pub(crate) fn leave(&self, unused: u32) {
        let mut state = self.state.lock();
        let Some(running) = &mut state.running else {
            debug_assert!(false, "a handle outlived its transaction");
            return;
        };
        running.handles -= 1;
        running.credits = running.credits.saturating_sub(unused);
        if running.handles == 0 && (running.locked || state.barriers > 0) {
            self.drained.notify_all();
        }
        let lost = state.lost_callbacks();
        drop(state);
        lost.into_iter().for_each(|callback| callback(false));
    }

    pub(crate) fn extend(&self, credits: u32) -> Result<bool> {
        self.check_aborted()?;
        let mut state = self.state.lock();
        let Some(running) = &mut state.running else { return Ok(false) };
        if running.locked || running.credits.saturating_add(credits) > self.max_transaction {
            return Ok(false);
        }
        running.credits += credits;
        Ok(true)
    }

    /// A budget was too small: take from the slack and count it.
    pub(crate) fn overdraw(&self, credits: u32) {
        self.counters.overdrafts.add(u64::from(credits));
        if let Some(running) = &mut self.state.lock().running {
            running.credits += credits;
        }
    }

    // ---- commits ------------------------------------------------------------------------------------------------

    fn want(&self, state: &mut State, tid: Tid) {
        if state.wanted.is_none_or(|w| tid.after(w)) {
            state.wanted = Some(tid);
        }
        let now = self.clock.now_ns();
        if let Some(running) = &mut state.running
            && running.tx.tid == tid
        {
            running.requested_ns.get_or_insert(now);
        }
        self.commit_wakeup.wake();
    }

    /// Asks for the commit of `tid` without waiting.
    pub fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if !state.committed.at_least(tid) {
            self.want(&mut state, tid);
        }
    }

    /// Returns once `tid` is durable. Never call it with a handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that.
    pub fn commit_wait(&self, tid: Tid) -> Result<()> {
        crate::order::assert_no_handle("waiting for a commit");
        let mut state = self.state.lock();
        loop {
            if let Some(why) = &state.aborted {
                return Err(JournalError::Aborted(why.to_string()));
            }
            if state.committed.at_least(tid) {
                return Ok(());
            }
            let running = state.running.as_ref().filter(|r| r.tx.tid == tid);
            let nothing_there = match running {
                Some(r) => !r.locked && r.handles == 0 && r.tx.is_empty(),
                None => state.committing.is_none_or(|(c, _)| c != tid),
            };
            if nothing_there {
                // What came before it may still be on its way.
                if running.is_none() || state.committing.is_none() {
                    return Ok(());
                }
                self.done.wait(&mut state);
                continue;
            }
            if running.is_some_and(|r| r.requested_ns.is_none()) {
                let now = self.clock.now_ns();
                if let Some(r) = &mut state.running {
                    r.requested_ns = Some(now);
                }
            }
            if state.committer {
                self.done.wait(&mut state);
            } else {
                state = self.lead_commit(state);
            }
        }
    }

    /// Commits the running transaction, if there is one with anything in it, and waits.
    ///
    /// # Errors
    /// As [`commit_wait`](Self::commit_wait).
    pub fn commit_all(&self) -> Result<()> {
        // With nothing on its way this is the last durable one, and only an abort can be told.
        self.commit_wait(self.newest())
    }

    /// The newest transaction that exists: every change made so far is in it or in an older one.
    #[must_use]
    pub fn newest(&self) -> Tid {
        let state = self.state.lock();
        match (&state.running, state.committing) {
            (Some(r), _) => r.tx.tid,
            (None, Some((tid, _))) => tid,
            (None, None) => state.committed,
        }
    }

    /// Newest durable transaction.
    #[must_use]
    pub fn committed(&self) -> Tid {
        self.state.lock().committed
    }

    // ---- durability of file data -----------------------------------------------------------------------------

    /// The file system wrote file data to the device; the write has returned.
    pub fn note_data_write(&self) {
        self.data_writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes all file data written so far durable; does nothing if a later flush has already done so.
    ///
    /// # Errors
    /// If the flush fails (the journal is aborted then), or was aborted before.
    pub fn flush_data(&self) -> Result<()> {
        self.check_aborted()?;
        if !self.data_is_dirty() || !self.barrier() {
            self.counters.flushes_saved.add(1);
            return Ok(());
        }
        self.flush_device()?;
        // If another thread's flush failed meanwhile, it may have been told about our data instead of us.
        self.check_aborted()
    }

    pub(crate) fn data_is_dirty(&self) -> bool {
        self.data_writes.load(Ordering::Acquire) > self.flushed_writes.load(Ordering::Acquire)
    }

    /// Flushes the file system's device and remembers what that covered. A failure aborts.
    pub(crate) fn flush_device(&self) -> Result<()> {
        let covered = self.data_writes.load(Ordering::Acquire);
        self.counters.flushes.add(1);
        match self.device.flush() {
            Ok(()) => {
                self.data_flushed(covered);
                Ok(())
            }
            Err(e) => Err(self.abort(&format!("flush failed: {e}"))),
        }
    }

    pub(crate) fn data_writes_begun(&self) -> u64 {
        self.data_writes.load(Ordering::Acquire)
    }

    pub(crate) fn data_flushed(&self, covered: u64) {
        self.flushed_writes.fetch_max(covered, Ordering::AcqRel);
    }

    // ---- failure ------------------------------------------------------------------------------------------------

    /// Err if the journal was aborted.
    ///
    /// # Errors
    /// The reason of the abort.
    pub fn check_aborted(&self) -> Result<()> {
        if !self.is_aborted.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state.lock();
        Err(JournalError::Aborted(state.aborted.as_deref().unwrap_or("unknown").to_owned()))
    }

    /// Stops the journal for good: nothing is written any more, every waiter gets the error, the log stays as it is
    /// for the next mount's recovery. Returns the error for the caller to pass on.
    pub fn abort(&self, why: &str) -> JournalError {
        self.abort_with(why, Some(5))
    }

    /// As [`abort`](Self::abort), but leaves no error mark in the log (shutdown on purpose).
    pub fn shut_down(&self, why: &str) {
        let _ = self.abort_with(why, None);
    }

    fn abort_with(&self, why: &str, errno: Option<i32>) -> JournalError {
        let mut state = self.state.lock();
        let first = state.aborted.is_none();
        let reason: Arc<str> = state.aborted.get_or_insert_with(|| why.into()).clone();
        self.is_aborted.store(true, Ordering::Release);
        self.can_join.notify_all();
        self.done.notify_all();
        let lost = state.lost_callbacks();
        drop(state);
        lost.into_iter().for_each(|callback| callback(false));
        if first
            && let Some(errno) = errno
            && let Some(log) = &self.log
        {
            // Best effort: the device may be what failed.
            let _ = log.write_errno(errno);
        }
        JournalError::Aborted(reason.to_string())
    }

    /// Why the journal was aborted, if it was.
    #[must_use]
    pub fn abort_reason(&self) -> Option<String> {
        self.state.lock().aborted.as_deref().map(str::to_owned)
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let c = &self.counters;
        let state = self.state.lock();
        let space = state.space.as_ref();
        JournalStats {
            transactions: c.transactions.get(),
            requested: c.requested.get(),
            max_transaction_blocks: self.max_transaction,
            wait_ns: c.wait_ns.get(),
            request_delay_ns: c.request_delay_ns.get(),
            running_ns: c.running_ns.get(),
            locked_ns: c.locked_ns.get(),
            flushing_ns: c.flushing_ns.get(),
            logging_ns: c.logging_ns.get(),
            average_commit_ns: c.average_commit_ns.get(),
            handles: c.handles.get(),
            blocks: c.blocks.get(),
            logged_blocks: c.logged_blocks.get(),
            revoked_blocks: c.revoked_blocks.get(),
            overdrafts: c.overdrafts.get(),
            checkpoints: c.checkpoints.get(),
            checkpointed_blocks: c.checkpointed_blocks.get(),
            space_waits: c.space_waits.get(),
            space_wait_ns: c.space_wait_ns.get(),
            flushes: c.flushes.get(),
            flushes_saved: c.flushes_saved.get(),
            committed_tid: state.committed.0,
            running_tid: state.running.as_ref().map(|r| r.tx.tid.0),
            log_blocks: space.map_or(0, LogSpace::len),
            log_free: space.map_or(0, LogSpace::free),
            log_head: space.map_or(0, LogSpace::head),
            log_tail: space.map_or(0, LogSpace::tail),
            checkpoint_blocks: self.checkpoint.len() as u64,
            cached_blocks: self.cache.len() as u64,
            cache_hits: self.cache.hits.load(Ordering::Relaxed),
            cache_misses: self.cache.misses.load(Ordering::Relaxed),
            aborted: state.aborted.as_deref().map(str::to_owned),
        }
    }

    /// Is the block's number within the volume?
    #[must_use]
    pub fn in_range(&self, nr: BlockNr) -> bool {
        self.cache.in_range(nr)
    }
}
