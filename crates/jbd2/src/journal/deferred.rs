//! File data whose write is left to the commit that makes it durable.
//!
//! An fsync of a small file writes data, then records that map it, then flushes. Neither write
//! waits for the other, so the data need not go first: it is left here, and the leader of the
//! commit takes along what all its members have left, in one batch with its own blocks. A group of
//! files is two or three writes at the same time and a flush, however many they are, and a member
//! sleeps once, not twice. That goes for fast commits and for full ones, whose flush comes between
//! those writes and the commit record.
//!
//! ```text
//!   fsync of A: defer ─┐               with the records
//!   fsync of B: defer ─┼─► waiting ─ take ─► being written ─► written ─ flush ─► durable
//!   fsync of C: defer ─┘               or alone, for a thread that needs it on the device
//! ```
//!
//! The data is needed there by the next thread that takes the file's lock (to read, change or free
//! it), by a flush on behalf of file data, and by the fsync itself if it is still deferred. What
//! waits is bounded ([`MOST`]): the thread that passes the bound writes.
//!
//! | data | in a fast commit | in a full one |
//! |---|---|---|
//! | with checksums | beside the records, which carry them | before the flush |
//! | needs no order | beside the records | before the flush |
//! | ordered (DD-5) | before a flush of its own, the records behind it | before the flush |
//!
//! One thread at a time writes what was deferred, all of it. So what was deferred first is written
//! first, or in the same batch, and a number says what is written.
//!
//! Invariants
//! - DD-1: data is deferred before the handle that maps it is opened, and a leader takes what waits
//!   behind collecting its records (`Journal::chain`), a full commit behind closing its transaction
//!   (`write_closed`). So no record goes to the log whose data was left behind.
//! - DD-2: of blocks whose data waits or is on its way no other thread writes or reads: they belong
//!   to one file, whose lock waits for it ([`DeferredWrite::finish`]), and until a file's data is
//!   written it frees nothing.
//! - DD-3: a checksum is known to others (`DataChecksums::add`) only when its write has returned; a
//!   leader puts the checksums of what it has taken into its own fast commit alone, whose flush
//!   comes behind both writes.
//! - DD-4: the thread that takes writes, or puts back (`DeferredBatch::drop`). A failed write
//!   aborts the journal before any thread learns that it is over.
//! - DD-5: ordered data is marked: a leader that has taken some does without checksums and flushes
//!   first (`Journal::chain`), and any other writer counts it as any other ordered write before it
//!   is over (`DeferredBatch::write`). Where commits do not flush before their record none is
//!   deferred ([`Journal::commits_after_data`]).
//!
//! Locking: a leaf lock, not held while writing.

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockNr, ScatteredWrite};
use extol_ondisk::fast_commit::DataChecksum;
use extol_sync::Condvar;
use extol_sync::atomic::{AtomicU64, Ordering};
use extol_sync::rank::{Mutex, Rank};

use super::Journal;
use crate::types::Result;

/// Most bytes that wait: a batch that a disk writes in a millisecond or two.
const MOST: usize = 1 << 20;
/// Batches remembered that no flush may have covered yet.
const REMEMBERED: usize = 32;

/// A write that waits.
#[derive(Debug)]
struct Write {
    start: BlockNr,
    data: Vec<u8>,
    checksums: Vec<DataChecksum>,
    /// It must be on the medium before what maps it, and cannot be compared.
    ordered: bool,
}

#[derive(Debug, Default)]
struct Waiting {
    writes: Vec<Write>,
    bytes: usize,
    /// A thread writes what was taken.
    busy: bool,
    /// Writes up to this number are in the data write of that number, oldest first; and up to this
    /// they are durable.
    written: Vec<(u64, u64)>,
    durable: u64,
}

/// The journal's deferred writes.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    waiting: Mutex<Waiting, { Rank::Deferred as u8 }>,
    /// A batch was written.
    returned: Condvar,
    /// Up to this number all are written, or lost in an abort.
    done: AtomicU64,
    /// The number of the newest one there is; changed with the lock held.
    newest: AtomicU64,
}

/// One deferred write, and all before it.
#[derive(Clone, Debug)]
pub struct DeferredWrite {
    journal: Arc<Journal>,
    number: u64,
}

impl DeferredWrite {
    /// True if the data is on the device (or lost: the journal is aborted then).
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.journal.deferred.done.load(Ordering::Acquire) >= self.number
    }

    /// Returns once the data is on the device; a failure aborts the journal. May be called with a
    /// handle open.
    pub fn finish(&self) {
        let _ = self.journal.write_deferred_up_to(self.number);
    }

    /// Returns once the data is durable.
    ///
    /// # Errors
    /// If the write or the flush fails (which aborts the journal), or the journal was aborted
    /// before.
    pub fn make_durable(&self) -> Result<()> {
        self.journal.make_deferred_durable(self.number)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// What a writer has taken. Dropped unwritten it waits again.
pub(crate) struct DeferredBatch<'a> {
    journal: &'a Journal,
    writes: Vec<Write>,
    upto: u64,
}

impl Deferred {
    /// The data write behind which a flush makes that deferred one durable.
    fn data_write(&self, number: u64) -> u64 {
        let waiting = self.waiting.lock();
        if number <= waiting.durable {
            return 0;
        }
        waiting.written.iter().find(|(upto, _)| *upto >= number).map_or(0, |(_, write)| *write)
    }
}

impl Journal {
    /// Leaves a write of whole blocks to the commit that makes it durable. Without checksums it
    /// needs no order. The caller holds the lock of the file whose blocks they are; the next holder
    /// must [finish](DeferredWrite::finish) it first.
    pub fn defer(
        self: &Arc<Self>,
        start: BlockNr,
        data: Vec<u8>,
        checksums: Vec<DataChecksum>,
    ) -> DeferredWrite {
        self.push(Write { start, data, checksums, ordered: false })
    }

    /// As that, for data that must be on the medium before what maps it counts, and has no
    /// checksums. Only where [commits keep that order](Self::commits_after_data).
    pub fn defer_ordered(self: &Arc<Self>, start: BlockNr, data: Vec<u8>) -> DeferredWrite {
        debug_assert!(self.commits_after_data());
        self.push(Write { start, data, checksums: Vec::new(), ordered: true })
    }

    fn push(self: &Arc<Self>, write: Write) -> DeferredWrite {
        let mut waiting = self.deferred.waiting.lock();
        waiting.bytes += write.data.len();
        let bytes = waiting.bytes;
        waiting.writes.push(write);
        let number = self.deferred.newest.fetch_add(1, Ordering::AcqRel) + 1;
        drop(waiting);
        self.fast.counters.deferred.add(1);
        if bytes > MOST {
            // An error is an abort, which the caller meets soon enough.
            let _ = self.write_deferred();
        }
        DeferredWrite { journal: Arc::clone(self), number }
    }

    /// Writes all that was deferred so far.
    pub(crate) fn write_deferred(&self) -> Result<()> {
        self.write_deferred_up_to(self.deferred.newest.load(Ordering::Acquire))
    }

    fn write_deferred_up_to(&self, number: u64) -> Result<()> {
        self.take_deferred(number).write()
    }

    pub(crate) fn make_deferred_durable(&self, number: u64) -> Result<()> {
        self.write_deferred_up_to(number)?;
        self.flush_written(self.deferred.data_write(number))
    }

    /// Takes all that waits, for the caller to write, as soon as no other thread is writing;
    /// nothing if everything up to `number` is written then.
    fn take_deferred(&self, number: u64) -> DeferredBatch<'_> {
        let is_done = || self.deferred.done.load(Ordering::Acquire) >= number;
        if is_done() {
            return DeferredBatch::nothing(self);
        }
        let mut waiting = self.deferred.waiting.lock();
        while waiting.busy {
            self.deferred.returned.wait(waiting.bare());
        }
        if is_done() {
            return DeferredBatch::nothing(self);
        }
        let writes = std::mem::take(&mut waiting.writes);
        waiting.bytes = 0;
        waiting.busy = !writes.is_empty();
        DeferredBatch { journal: self, writes, upto: self.deferred.newest.load(Ordering::Acquire) }
    }

    /// As that, whatever waits: for a leader that has collected its records (DD-1).
    pub(crate) fn take_all_deferred(&self) -> DeferredBatch<'_> {
        self.take_deferred(self.deferred.newest.load(Ordering::Acquire))
    }
}

impl<'a> DeferredBatch<'a> {
    pub fn nothing(journal: &'a Journal) -> Self {
        Self { journal, writes: Vec::new(), upto: 0 }
    }
}

impl DeferredBatch<'_> {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The checksums of the data.
    pub fn checksums(&self) -> impl Iterator<Item = DataChecksum> + '_ {
        self.writes.iter().flat_map(|write| write.checksums.iter().copied())
    }

    /// Some of it must be on the medium before what maps it.
    pub fn is_ordered(&self) -> bool {
        self.writes.iter().any(|write| write.ordered)
    }

    /// Writes it. Its checksums are left for the next fast commit.
    pub fn write(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.send(&[], false)?;
        if self.is_ordered() {
            // Before any thread learns that it was written (`over`).
            self.journal.writes.ordered.returned();
        }
        let checksums: Vec<DataChecksum> = self.checksums().collect();
        let write = match &checksums[..] {
            [] => self.journal.note_unordered_write(),
            checksums => self.journal.note_checksummed_write(checksums),
        };
        self.returned(write);
        Ok(())
    }

    /// Writes it and, at the same time, these blocks to the same device. The caller takes care of
    /// the checksums, or flushes before anything counts on the data. `fua`: all of it is durable
    /// when this returns, and nothing else waits for a flush.
    pub fn write_with(mut self, others: &[ScatteredWrite<'_>], fua: bool) -> Result<()> {
        self.send(others, fua)?;
        if !self.is_empty() {
            let writes = &self.journal.writes.data;
            self.returned(if fua { writes.covered() } else { writes.returned() });
        }
        Ok(())
    }

    /// The bug: it says that it wrote, flushes, and writes.
    pub fn write_behind(mut self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let writes = std::mem::take(&mut self.writes);
        self.returned(self.journal.note_unordered_write());
        flush()?;
        self.writes = writes;
        let sent = self.send(&[], false);
        self.writes.clear();
        sent
    }

    fn send(&mut self, others: &[ScatteredWrite<'_>], fua: bool) -> Result<()> {
        if self.is_empty() && others.is_empty() {
            return Ok(());
        }
        let block_size = self.journal.block_size();
        self.writes.sort_unstable_by_key(|write| write.start);
        let bufs: Vec<IoSlice<'_>> =
            self.writes.iter().map(|write| IoSlice::new(&write.data)).collect();
        let mut jobs = Vec::with_capacity(others.len() + 4);
        let mut first = 0;
        for (i, write) in self.writes.iter().enumerate() {
            let end = write.start.offset(block_size) + write.data.len() as u64;
            let goes_on =
                self.writes.get(i + 1).is_some_and(|next| next.start.offset(block_size) == end);
            if !goes_on {
                let offset = self.writes[first].start.offset(block_size);
                jobs.push(ScatteredWrite { offset, bufs: &bufs[first..=i] });
                first = i + 1;
            }
        }
        jobs.extend_from_slice(others);
        let journal = self.journal;
        if let Err(e) = journal.write_batch_to_device(&jobs, fua) {
            if self.is_empty() {
                return Err(e.into());
            }
            let error = journal.abort_by("writing file data failed", &e.into());
            self.over();
            return Err(error);
        }
        Ok(())
    }

    /// The write has returned. A flush that covers so many data writes makes it durable.
    fn returned(&mut self, write: u64) {
        let covered = self.journal.writes.data.covered();
        {
            let mut waiting = self.journal.deferred.waiting.lock();
            let durable = waiting.written.partition_point(|(_, write)| *write <= covered);
            let last = waiting.written.drain(..durable).next_back();
            waiting.durable = last.map_or(waiting.durable, |(upto, _)| upto);
            if waiting.written.len() == REMEMBERED {
                // They count as written by the next one.
                waiting.written.remove(0);
            }
            // Never before an older one.
            let write = waiting.written.last().map_or(write, |(_, last)| write.max(*last));
            waiting.written.push((self.upto, write));
        }
        self.over();
    }

    /// It is not this one's any more.
    fn over(&mut self) {
        self.writes.clear();
        let deferred = &self.journal.deferred;
        let mut waiting = deferred.waiting.lock();
        deferred.done.store(self.upto, Ordering::Release);
        waiting.busy = false;
        deferred.returned.notify_all();
    }
}

impl Drop for DeferredBatch<'_> {
    fn drop(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        let deferred = &self.journal.deferred;
        let mut waiting = deferred.waiting.lock();
        let mut writes = std::mem::take(&mut self.writes);
        writes.append(&mut waiting.writes);
        waiting.bytes = writes.iter().map(|write| write.data.len()).sum();
        waiting.writes = writes;
        waiting.busy = false;
        deferred.returned.notify_all();
    }
}
