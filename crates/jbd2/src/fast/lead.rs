//! Fast commits: joining a batch, leading its commit, and the order in which it becomes durable.
//!
//! ```text
//!   make_durable_for ─ durable already? ── yes ─► return
//!        │ no
//!   can T have one? ── no, or a full commit is on its way ─► wait for the full commit
//!        │ yes
//!   join the open batch ─ role taken, or a leader gathers? ── yes ──► sleep until the batch is served ─┐ look again
//!        │ no                                                                                         │
//!   policy: wait ── gather: sleep on gathered ── all syncers joined, or time is over ───────────┤
//!        │ go                                                                                         │
//!   take the role and the batch ─ collect ─ nothing ─────────────────────────────► served ────────────┤
//!                                    ├──── records, and room ─► write ─► durable ─► served ────────────┤
//!                                    └──── no way, no room ─► full commit, for the whole batch ────────┘
//! ```
//!
//! The leader has the same role as one that commits in full (`State::committer`), so there is one
//! at a time, of either kind. (Async requests in a batch are in [`super::async_sync`].) The
//! transaction stays open: handles join and end while it is at work. It locks nothing while it
//! collects and writes. A request that comes meanwhile joins the next batch; its first member is
//! woken to lead it.
//!
//! What is durable when, for a fast commit of blocks `b0 … bn`:
//!
//! ```text
//!   [FLUSH, if file data needs it]   b0 … bn FUA
//! ```
//!
//! File data needs it unless the fast commit carries its checksums (see [`super::data_checksum`])
//! or it needs no order; then the flush is the one behind `b0 … bn`, and one flush is enough (or
//! each of its writes is FUA, see [`super::fua`]). Data that was left to the leader goes out with
//! the first of these writes (`crate::journal::deferred`).
//!
//! Of a later one any part may be torn: its TAIL's sum covers all its blocks, and a reader that
//! finds a wrong sum, or anything else, behind a good fast commit stops there and has lost nothing.
//! Of the first, torn blocks cost the whole log on Linux and with e2fsck. So the first is an empty
//! one, a few bytes at the beginning of block 0 (and zeros, which are there already), and goes out
//! together with the one that is wanted. Whichever sectors are lost, readers find no fast commit,
//! or the empty one (`chain`).
//!
//! The flush is the one of the file system's device and covers file data, too; with an external
//! journal each device is flushed if it has something to flush. Where a durable write is a write
//! and a flush, that flush covers what others have written meanwhile, so theirs is saved
//! (`Journal::write_durably`). Without barriers the writes are plain, in the same order.
//!
//! Invariants
//! - FC-1: a fast commit of T counts on T-1: it is written only while T runs and nothing is being
//!   committed, so T-1 is durable (`fast_commit`, which has the role).
//! - FC-2: only where recovery will look: the superblock on the medium names a live log with the
//!   FAST_COMMIT bit. The first full commit behind a mount or a thaw makes it so
//!   (`State::log_empty`, looked at by `can_be_fast`; the bit: `Log::write_tail`).
//! - FC-3: the area's first block holds nothing when the log becomes live, and when the first fast
//!   commit of a transaction is written; after a full commit that made fast commits void it is
//!   cleared before the role is given up (`Journal::clear_after_commit`, `Area::place`). So no fast
//!   commit of another life of the log is ever taken for one that counts, and e2fsck, which gives
//!   up the whole log when the area begins with another transaction's, finds none.
//! - FC-4: the last write of a fast commit makes it count, and all that it needs is durable before
//!   or within it: file data of the inodes in it before, or with a checksum, by which recovery sees
//!   whether it is (`write_chain`); its own are covered by its sum, and of the first of a
//!   transaction no part can be missing (`chain`).
//! - FC-5: at most two blocks fewer than the area has belong to one transaction (`Area`).
//! - FC-6: what the source gave is durable before the batch is told so, or the transaction is
//!   committed in full next, with no other fast commit in between, or the journal is aborted
//!   (`lead_fast`).
//! - FC-7: a transaction with a fast commit is not empty: it will be committed, and a freeze waits
//!   for that (`Transaction::has_fast`).
//! - FC-8: the blocks that e2fsck writes from memory behind a fast commit are home as committed
//!   before one counts (`clear_after_commit`, `write_patched_home` in `clear_area.rs`).
//! - FC-9: no thread sleeps on in a batch: it is served, or a full commit, an abort or the end of
//!   fast commits wakes it. A thread that was woken to lead and goes another way wakes the rest
//!   (`next_step`). Async requests have a thread that sleeps for them all (AS-2 and AS-3 in
//!   [`super::async_sync`]).

use std::sync::Arc;

use extol_block::ScatteredWrite;
use extol_sync::atomic::Ordering;
use extol_sync::rank::Guard;
use extol_sync::thread;

use super::area::Place;
use super::queue::{Batch, BatchWaiters};
use super::{Collected, DataChecksum, FastSource, FcRecords, MOST_CHECKSUMS, SyncKey};
use crate::journal::wait::{Gathering, Purpose, nothing_to_commit};
use crate::journal::{Journal, State, Taken};
use crate::types::{JournalError, Result, Tid};
use extol_ondisk::fast_commit::{FcChain, FcWriter};

/// A member of a batch.
#[derive(Clone)]
pub(super) struct Ticket {
    pub(super) batch: u64,
    waiters: Arc<BatchWaiters>,
}

/// What a waiter does next.
pub(super) enum NextStep<'a> {
    /// What it waits for has happened, or never will.
    Over(Result<()>),
    /// It needs the full commit.
    Full,
    /// It has slept, or led: it has to look again.
    Again(Guard<'a, State>),
}

/// The blocks of a fast commit, and the data that goes with them.
struct Written<'a> {
    chain: FcChain,
    blocks: u32,
    data: Data,
    taken: Taken<'a>,
}

/// The file data that a fast commit needs, as far as it was not flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// It must be flushed first.
    FlushFirst,
    /// The fast commit says what it is.
    Checksummed,
    /// It needs no order.
    Free,
}

/// What became of a batch.
enum Outcome {
    /// It became durable with so many blocks.
    Written(u32),
    /// There was nothing to write.
    Durable,
    /// As the source says, or because there is no room.
    Full(Option<u8>),
    /// The journal was aborted.
    Lost,
}

impl Journal {
    /// Returns once what `ask` names is durable, as it was after all operations on it that have
    /// ended in transaction `tid` or before, and all file data written before the call: by a fast
    /// commit if that can be, else as [`make_durable`](Self::make_durable). Never call it with a
    /// handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that, or a write or flush fails (which aborts it).
    pub fn make_durable_for(&self, tid: Tid, key: SyncKey) -> Result<()> {
        let began = self.clock.now_ns();
        let written = self.data_written();
        self.wait_fast(tid, key)?;
        self.flush_written(written)?;
        self.counters.distributions.sync_wait.record(self.clock.now_ns().saturating_sub(began));
        Ok(())
    }

    pub(super) fn wait_fast(&self, tid: Tid, key: SyncKey) -> Result<()> {
        crate::order::assert_no_handle("waiting for a fast commit");
        let mut ticket = None;
        let mut state = self.state.lock();
        loop {
            state = match self.next_step(state, tid, key, &mut ticket) {
                NextStep::Again(state) => state,
                NextStep::Over(result) => return result,
                NextStep::Full => return self.wait_for(tid, Purpose::Durability),
            };
        }
    }

    /// What a waiter for a fast commit of `tid` does next: joins the open batch, sleeps,
    /// gathers, or leads.
    pub(super) fn next_step<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        key: SyncKey,
        ticket: &mut Option<Ticket>,
    ) -> NextStep<'a> {
        if let Some(why) = &state.aborted {
            return NextStep::Over(Err(JournalError::Aborted(why.to_string())));
        }
        if state.committed.at_least(tid)
            || ticket.as_ref().is_some_and(|t: &Ticket| state.fast.is_served(t.batch))
        {
            return NextStep::Over(Ok(()));
        }
        let may = if ticket.is_none() {
            self.may_join(&state, tid)
        } else {
            self.can_be_fast(&state, tid)
        };
        if !may {
            match ticket {
                Some(Ticket { batch, .. }) => {
                    state.fast.leave(*batch);
                    self.wake_fast(&state);
                }
                None => self.not_fast(&state, tid),
            }
            return NextStep::Full;
        }
        let Ticket { batch, waiters } = match ticket {
            Some(known) => known,
            None => ticket.insert(self.enter(&mut state, key)),
        };
        let batch = *batch;
        if state.committer || state.gathering.is_some() {
            // A leader that gathers leads afterwards, or wakes all.
            if state.committer && state.fast.stands_by(batch) {
                self.fast.lead.wait(state.bare());
                state.fast.stood_by(batch);
                return NextStep::Again(state);
            }
            let seen = waiters.bell.rings();
            drop(state);
            waiters.bell.wait(seen);
            if waiters.is_served() {
                return NextStep::Over(Ok(()));
            }
            return NextStep::Again(self.state.lock());
        }
        let whose = Gathering::Fast(batch);
        NextStep::Again(match self.policy(&state, whose) {
            Some(gather) if !full_is_coming(&state) => self.gather(state, whose, gather),
            _ => self.lead_fast(state, tid),
        })
    }

    /// Counts a request for `tid` that goes to a full commit at once, if that is for want of a live
    /// log.
    pub(super) fn not_fast(&self, state: &State, tid: Tid) {
        if state.log_empty && state.fast.covers(tid) {
            self.fast.counters.failed.add(1);
        }
    }

    /// A request for `tid` may join a batch now.
    pub(super) fn may_join(&self, state: &State, tid: Tid) -> bool {
        self.can_be_fast(state, tid) && !full_is_coming(state)
    }

    /// A fast commit may serve a request for `tid` now.
    fn can_be_fast(&self, state: &State, tid: Tid) -> bool {
        #[cfg(feature = "planted-bugs")]
        let early = crate::planted::has(crate::planted::Bug::FastOnEmptyLog);
        #[cfg(not(feature = "planted-bugs"))]
        let early = false;
        state.fast.covers(tid)
            && (!state.log_empty || early)
            && state.running.as_ref().is_some_and(|r| r.tx.tid == tid && !r.locked)
            && !nothing_to_commit(state)
    }

    /// Joins the open batch.
    pub(super) fn enter(&self, state: &mut State, key: SyncKey) -> Ticket {
        let now = self.clock.now_ns();
        let (batch, waiters) = state.fast.join(key, now);
        state.fast.batcher.asked(thread::current().id());
        let complete = |(whose, gather): (Gathering, crate::batching::Gather)| {
            whose == Gathering::Fast(batch) && state.fast.waiting >= gather.enough
        };
        if state.gathering.is_some_and(complete) {
            self.end_batch_wait(state);
        }
        Ticket { batch, waiters }
    }

    /// Serves the open batch, which asks for things of `tid`, the running transaction. No other
    /// thread has the role.
    fn lead_fast<'a>(&'a self, mut state: Guard<'a, State>, tid: Tid) -> Guard<'a, State> {
        debug_assert!(!state.committer && state.committing.is_none());
        let c = &self.fast.counters;
        let batch = state.fast.take();
        if full_is_coming(&state) {
            return self.fall_back(state, &batch);
        }
        let place = state.fast.area.as_ref().and_then(|area| area.place(tid));
        let (Some(place), Some(source)) = (place, self.fast.source()) else {
            c.failed.add(u64::from(batch.requests));
            return self.fall_back(state, &batch);
        };
        if let Some(running) = &state.running {
            running.tx.has_fast.store(true, Ordering::Relaxed);
        }
        state.committer = true;
        drop(state);

        let began = self.clock.now_ns();
        let waiters = Arc::clone(&batch.waiters);
        let outcome = self.fast_commit(&**source, tid, place, &batch);
        let mut state = self.state.lock();
        match outcome {
            Outcome::Full(reason) => {
                match reason {
                    Some(reason) => {
                        c.ineligible.add(u64::from(batch.requests));
                        c.count(reason, batch.requests);
                    }
                    None => c.failed.add(u64::from(batch.requests)),
                }
                state.committer = false;
                return self.fall_back(state, &batch);
            }
            // All waiters were told.
            Outcome::Lost => {
                self.release_role(&mut state);
                return state;
            }
            Outcome::Written(blocks) => {
                if let Some(area) = &mut state.fast.area {
                    area.take(tid, blocks);
                }
                let now = self.clock.now_ns();
                let took = now.saturating_sub(began);
                self.counters.distributions.fast_commit.record(took);
                let waiting = state.fast.waiting;
                state.fast.batcher.ended(now, took, batch.requests, waiting);
            }
            Outcome::Durable => {}
        }
        state.fast.serve(batch.number, batch.keys);
        self.release_role(&mut state);
        // One of the next batch is ready to lead it, and goes first. The others need no lock to
        // know that they are served.
        self.fast.lead.notify_all();
        drop(state);
        waiters.serve();
        self.state.lock()
    }

    /// Collects and writes. The caller has the role.
    fn fast_commit(
        &self,
        source: &dyn FastSource,
        tid: Tid,
        place: Place,
        batch: &Batch,
    ) -> Outcome {
        let c = &self.fast.counters;
        let requests = u64::from(batch.requests);
        let records = match source.collect(tid, &batch.keys) {
            Collected::Full(reason) => return Outcome::Full(Some(reason)),
            Collected::Records(records) => records,
            Collected::Nothing => FcRecords::default(),
        };
        if records.is_empty() && !batch.keys.contains(&SyncKey::NONE) {
            // Each request flushes its own file data; flushes at the same time are merged.
            c.skipped.add(requests);
            return Outcome::Durable;
        }
        let lost = |e| {
            let _ = self.abort(&format!("fast commit of transaction {tid} failed: {e}"));
            Outcome::Lost
        };
        if let Err(e) = self.write_patched_home(place) {
            return lost(e);
        }
        let Some(Written { chain, blocks, data, taken }) = self.chain(tid, place, &records) else {
            return Outcome::Full(None);
        };
        if let Err(e) = self.write_chain(place, &chain.bytes, data, taken) {
            return lost(e);
        }
        self.fast.checksums.landed();
        c.commits.add(1);
        c.one_trip.add(u64::from(data == Data::Checksummed));
        c.heads.add(u64::from(place.first));
        c.blocks.add(u64::from(blocks));
        c.bytes.add(chain.used as u64);
        c.requests.add(requests);
        self.counters.distributions.batch_size.record(requests);
        Outcome::Written(blocks)
    }

    /// The blocks of a fast commit, with checksums for the data that its records map (DK-1) if that
    /// is possible.
    fn chain(&self, tid: Tid, place: Place, records: &FcRecords) -> Option<Written<'_>> {
        let block = self.block_size();
        let with = |checksums: &[DataChecksum]| {
            let mut chain = FcWriter::chain(block, tid.0, false, records, checksums).ok()?;
            if place.first {
                chain = chain
                    .behind(FcWriter::chain(block, tid.0, true, &FcRecords::default(), &[]).ok()?);
            }
            #[cfg(feature = "planted-bugs")]
            if place.first && crate::planted::has(crate::planted::Bug::FirstNotEmpty) {
                chain = FcWriter::chain(block, tid.0, true, records, checksums).ok()?;
            }
            let blocks = u32::try_from(chain.bytes.len() / block.len()).ok()?;
            (blocks <= place.left).then_some((chain, blocks))
        };
        // The data was written and noted, or deferred, before the records were collected.
        let taken = self.take_all_deferred();
        let mut data = Data::FlushFirst;
        let mut made = None;
        let checksums = self.fast.checksums.take_off(tid, taken.checksums());
        let ordered = taken.is_ordered();
        #[cfg(feature = "planted-bugs")]
        let ordered = ordered && !crate::planted::has(crate::planted::Bug::OrderedDataForgotten);
        let ordered = ordered || self.ordered_data_is_dirty();
        if self.wants_data_checksums() && !ordered && checksums.len() <= MOST_CHECKSUMS {
            made = with(&checksums);
            data = if checksums.is_empty() { Data::Free } else { Data::Checksummed };
        }
        if made.is_none() {
            self.fast.checksums.not_needed();
            data = Data::FlushFirst;
            made = with(&[]);
        }
        made.map(|(chain, blocks)| Written { chain, blocks, data, taken })
    }

    /// Writes the blocks of a fast commit and the data that was left to it; durable on return.
    fn write_chain(&self, place: Place, bytes: &[u8], data: Data, taken: Taken<'_>) -> Result<()> {
        let Some(log) = self.log.get() else { return Ok(()) };
        // Without data it saves waking up between write and flush, where a durable write by itself
        // is these two.
        let together = !taken.is_empty() || (log.fua_is_flush() && self.may_use_fua());
        if data != Data::FlushFirst && together && !log.is_external() {
            self.counters.flushes_saved.add(1);
            #[cfg(feature = "planted-bugs")]
            if crate::planted::has(crate::planted::Bug::DataLeftBehind) && !taken.is_empty() {
                return taken.write_behind(|| {
                    self.write_and_flush(|| log.write_fast(place.at, bytes, false))
                });
            }
            let records = log.fast_places(place.at, bytes)?;
            if !self.barrier() {
                return taken.write_with(&records.writes());
            }
            return self.write_together(taken, &records.writes());
        }
        taken.write_with(&[])?;
        if self.barrier() {
            let flush = data == Data::FlushFirst && self.data_is_dirty();
            #[cfg(feature = "planted-bugs")]
            let flush = flush && !crate::planted::has(crate::planted::Bug::FastWithoutFlush);
            if flush {
                self.flush_device()?;
            } else {
                self.counters.flushes_saved.add(1);
            }
        }
        // A flush that failed elsewhere may have taken our error with it.
        self.check_aborted()?;
        if self.barrier() && data != Data::FlushFirst && self.data_is_dirty() {
            // The same flush for the data.
            return self.write_and_flush(|| log.write_fast(place.at, bytes, false));
        }
        self.write_durably(log, |fua| log.write_fast(place.at, bytes, fua))
    }

    /// Data and records, durable on return: by FUA or by a flush behind them ([`super::fua`]).
    fn write_together(&self, taken: Taken<'_>, records: &[ScatteredWrite<'_>]) -> Result<()> {
        if !self.may_use_fua() {
            return self.write_and_flush(|| taken.write_with(records));
        }
        self.fast.counters.by_fua.add(1);
        taken.write_durably_with(records)?;
        self.check_aborted()
    }

    /// A full commit serves the batch. The role is free.
    fn fall_back<'a>(&'a self, mut state: Guard<'a, State>, batch: &Batch) -> Guard<'a, State> {
        let now = self.clock.now_ns();
        if let Some(running) = &mut state.running {
            running.requested_ns.get_or_insert(now);
            running.waiting += batch.requests;
        }
        self.lead_commit(state)
    }

    /// All waiters for a fast commit look again.
    pub(crate) fn wake_fast(&self, state: &State) {
        self.fast.lead.notify_all();
        state.fast.wake();
    }
}

/// The full commit of the running transaction was asked for, and will serve all requests.
fn full_is_coming(state: &State) -> bool {
    state.wanted.is_some() || state.running.as_ref().is_some_and(|r| r.waiting > 0)
}
