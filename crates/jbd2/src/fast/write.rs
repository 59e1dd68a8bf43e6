//! Fast commits: what the leader of a batch writes, and in which order it becomes durable.
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

use extol_block::ScatteredWrite;
use extol_ondisk::fast_commit::{DataChecksum, FcChain, FcRecords, FcWriter};

use super::area::Place;
use super::queue::Batch;
use super::source::{Collected, FastSource, SyncKey};
use crate::format::MOST_DATA_CHECKSUMS;
use crate::journal::Journal;
use crate::journal::deferred::DeferredBatch;
use crate::planted;
use crate::types::{Result, Tid};

/// The blocks of a fast commit, and the data that goes with them.
struct Written<'a> {
    chain: FcChain,
    blocks: u32,
    data: Data,
    deferred: DeferredBatch<'a>,
}

/// The file data that a fast commit needs, as far as it was not flushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// It must be flushed first.
    FlushFirst,
    /// The fast commit says what it is.
    Checksummed,
    /// It needs no order.
    Unordered,
}

/// What became of a batch.
pub(super) enum Outcome {
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
    /// Collects and writes. The caller has the role.
    pub(super) fn fast_commit(
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
        let Some(Written { chain, blocks, data, deferred }) = self.chain(tid, place, &records)
        else {
            return Outcome::Full(None);
        };
        if let Err(e) = self.write_chain(place, &chain.bytes, data, deferred) {
            return lost(e);
        }
        self.fast.checksums.ended();
        c.commits.add(1);
        c.checksummed.add(u64::from(data == Data::Checksummed));
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
            if place.first && planted::has(planted::Bug::FirstNotEmpty) {
                chain = FcWriter::chain(block, tid.0, true, records, checksums).ok()?;
            }
            let blocks = u32::try_from(chain.bytes.len() / block.len()).ok()?;
            (blocks <= place.left).then_some((chain, blocks))
        };
        // The data was written and noted, or deferred, before the records were collected.
        let deferred = self.take_all_deferred();
        let mut data = Data::FlushFirst;
        let mut made = None;
        let checksums = self.fast.checksums.begin(tid, deferred.checksums());
        let ordered = deferred.is_ordered();
        let ordered = ordered && !planted::has(planted::Bug::OrderedDataForgotten);
        let ordered = ordered || self.writes.ordered.is_dirty();
        if self.wants_data_checksums() && !ordered && checksums.len() <= MOST_DATA_CHECKSUMS {
            made = with(&checksums);
            data = if checksums.is_empty() { Data::Unordered } else { Data::Checksummed };
        }
        if made.is_none() {
            self.fast.checksums.give_up();
            data = Data::FlushFirst;
            made = with(&[]);
        }
        made.map(|(chain, blocks)| Written { chain, blocks, data, deferred })
    }

    /// Writes the blocks of a fast commit and the data that was left to it; durable on return.
    fn write_chain(
        &self,
        place: Place,
        bytes: &[u8],
        data: Data,
        deferred: DeferredBatch<'_>,
    ) -> Result<()> {
        let Some(log) = self.log.get() else { return Ok(()) };
        // Without data it saves waking up between write and flush, where a durable write by itself
        // is these two.
        let together = !deferred.is_empty() || (log.fua_is_flush() && self.may_use_fua());
        if data != Data::FlushFirst && together && !log.is_external() {
            self.counters.flushes_saved.add(1);
            if planted::has(planted::Bug::DataLeftBehind) && !deferred.is_empty() {
                return deferred.write_behind(|| {
                    self.write_and_flush(|| log.write_fast(place.at, bytes, false))
                });
            }
            let records = log.fast_places(place.at, bytes)?;
            if !self.barrier() {
                return deferred.write_with(&records.writes(), false);
            }
            return self.write_together(deferred, &records.writes());
        }
        deferred.write_with(&[], false)?;
        if self.barrier() {
            let flush = data == Data::FlushFirst && self.writes.data.is_dirty();
            let flush = flush && !planted::has(planted::Bug::FastWithoutFlush);
            if flush {
                self.flush_device()?;
            } else {
                self.counters.flushes_saved.add(1);
            }
        }
        // A flush that failed elsewhere may have taken our error with it.
        self.check_aborted()?;
        if self.barrier() && data != Data::FlushFirst && self.writes.data.is_dirty() {
            // The same flush for the data.
            return self.write_and_flush(|| log.write_fast(place.at, bytes, false));
        }
        self.write_durably(log, |fua| log.write_fast(place.at, bytes, fua))
    }

    /// Data and records, durable on return: by FUA or by a flush behind them ([`super::fua`]).
    fn write_together(
        &self,
        deferred: DeferredBatch<'_>,
        records: &[ScatteredWrite<'_>],
    ) -> Result<()> {
        if !self.may_use_fua() {
            return self.write_and_flush(|| deferred.write_with(records, false));
        }
        self.fast.counters.by_fua.add(1);
        deferred.write_with(records, true)?;
        self.check_aborted()
    }

    /// Does these writes to the file system's device, all at the same time; `fua`: durable when
    /// this returns.
    pub(crate) fn write_batch_to_device(
        &self,
        writes: &[ScatteredWrite<'_>],
        fua: bool,
    ) -> extol_block::Result<()> {
        let fua = fua && !planted::has(planted::Bug::FuaNotDurable);
        match writes {
            all if fua => self.device.write_scattered_fua(all),
            [one] => self.device.write_vectored_at(one.bufs, one.offset),
            all => self.device.write_scattered(all),
        }
    }
}
