//! Data checksums: file data and the records that map it, durable with one flush.
//!
//! Data must not be missing where a record says that it is. The plain way is two trips: data,
//! flush, records, flush. With a checksum one is enough: the fast commit says which bytes its
//! blocks of data must hold, and recovery compares.
//!
//! ```text
//!   data ─┐                            ┌─ all there: the fast commit counts
//!   HEAD … records PAD TAIL ── FLUSH ┤
//!                                      └─ crash before the end of the flush: any part may be there. If bytes are missing,
//!                                         the fast commit was not acknowledged, and recovery drops it
//! ```
//!
//! A checksum is a block, how many of its bytes, and their CRC-32C. It is kept in the value of a
//! PAD, a tag that Linux and e2fsck skip (its bytes are in the sum of the TAIL like all others).
//! They do not compare: if *they* recover after such a crash, a file whose fsync had not returned
//! may have its new size with the old contents of its blocks. So the file system gives checksums
//! only for blocks whose old contents may be seen: zeros that are on the medium, or the file's own
//! bytes.
//!
//! Only the last fast commit on the medium is compared, for the flush of each is over before the
//! next one is written. So what is overwritten later on does not matter, with one exception: the
//! blocks of the last one. Before other bytes go there, another fast commit is written behind it,
//! if need be an empty one (`about_to_overwrite`).
//!
//! ```text
//!   (deferred: with its data, still to be written)
//!   fresh   written to the device, in no fast commit, not flushed      a flush makes it forgotten
//!   flying  in the fast commit that is being written                   becomes last
//!   last    in the newest fast commit on the medium                    forgotten with the next one, or a full commit
//! ```
//!
//! Bytes behind those that a checksum counts may change at any time: a file that grows by less than
//! a block rewrites the block, and the bytes before its old end stay the same.
//!
//! Invariants
//! - DK-1: a fast commit whose data was not flushed before it carries a checksum for each block of
//!   data that it needs and that needs an order (`Journal::fast_commit`: what needs one and has no
//!   checksum is *ordered*, and ordered data is flushed first).
//! - DK-2: from the moment a fast commit with checksums is written until another one, or the full
//!   commit, is durable, their bytes on the device stay (`about_to_overwrite`). Its file's writer
//!   calls that, with the inode locked, and blocks change their file only by a full commit.
//! - DK-3: the flush of the fast commit that carries a checksum begins behind the write of its
//!   block. That write has returned before the set of fresh checksums knows it
//!   (`note_checksummed_write`), or goes out with the fast commit itself (`take_off`; see
//!   `crate::journal::deferred`).
//! - DK-4: the sets are bounded ([`MOST`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extol_block::BlockNr;
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::rank::{Mutex, Rank};

use super::{DataChecksum, SyncKey};
use crate::journal::Journal;
use crate::types::{Result, Tid};

/// Most checksums in one fast commit: four megabytes of data in blocks of 4 KiB. Recovery reads no
/// more.
pub(crate) const MOST: usize = 1024;
/// What is known of the blocks whose data may be on its way.
#[derive(Debug, Default)]
struct Sets {
    /// With the number of the data write behind which it counts.
    fresh: BTreeMap<u64, (DataChecksum, u64)>,
    flying: BTreeMap<u64, DataChecksum>,
    last: BTreeMap<u64, DataChecksum>,
    /// The transaction of `flying` and `last`.
    tid: Tid,
}

/// The journal's checksums. The lock is a leaf.
#[derive(Debug, Default)]
pub(crate) struct DataChecksums {
    sets: Mutex<Sets, { Rank::DataChecksums as u8 }>,
    /// There may be some.
    any: AtomicBool,
}

impl DataChecksums {
    /// Data was written and noted as write number `write`. False: there are too many.
    fn add(&self, checksums: &[DataChecksum], write: u64) -> bool {
        let mut sets = self.sets.lock();
        if sets.fresh.len() + checksums.len() > MOST {
            return false;
        }
        sets.fresh.extend(checksums.iter().map(|w| (w.block.0, (*w, write))));
        self.any.store(true, Ordering::Release);
        true
    }

    /// A flush has covered so many data writes.
    pub fn flushed(&self, writes: u64) {
        if self.any.load(Ordering::Acquire) {
            self.sets.lock().fresh.retain(|_, (_, write)| *write > writes);
        }
    }

    /// For a fast commit of `tid` that is about to be written, together with data that has
    /// checksums as well.
    pub fn take_off(
        &self,
        tid: Tid,
        with: impl Iterator<Item = DataChecksum>,
    ) -> Vec<DataChecksum> {
        let mut with = with.peekable();
        if !self.any.load(Ordering::Acquire) && with.peek().is_none() {
            return Vec::new();
        }
        let mut sets = self.sets.lock();
        let fresh = std::mem::take(&mut sets.fresh);
        sets.flying = fresh.into_iter().map(|(block, (checksum, _))| (block, checksum)).collect();
        sets.flying.extend(with.map(|checksum| (checksum.block.0, checksum)));
        sets.tid = tid;
        self.any.store(true, Ordering::Release);
        sets.flying.values().copied().collect()
    }

    /// The fast commit is going to be written without them, behind a flush, or not at all.
    pub fn not_needed(&self) {
        self.sets.lock().flying.clear();
    }

    /// The fast commit is durable.
    pub fn landed(&self) {
        if self.any.load(Ordering::Acquire) {
            let mut sets = self.sets.lock();
            sets.last = std::mem::take(&mut sets.flying);
        }
    }

    /// Fast commits up to transaction `tid` are void.
    pub fn forget(&self, tid: Tid) {
        if self.any.load(Ordering::Acquire) {
            let mut sets = self.sets.lock();
            if tid.at_least(sets.tid) {
                sets.last.clear();
                sets.flying.clear();
            }
            self.any.store(!sets.fresh.is_empty() || !sets.last.is_empty(), Ordering::Release);
        }
    }

    /// Other bytes go to these blocks. `same`: the bytes that a checksum counts stay as they are.
    fn disturbed(
        &self,
        first: BlockNr,
        blocks: u32,
        same: impl Fn(&DataChecksum) -> bool,
    ) -> Disturbed {
        let mut found = Disturbed::default();
        if !self.any.load(Ordering::Acquire) {
            return found;
        }
        let range = first.0..first.0.saturating_add(blocks.into());
        let mut sets = self.sets.lock();
        let others = |w: &&DataChecksum| !same(w);
        let other = sets.fresh.range(range.clone()).map(|(_, (w, _))| w).filter(others);
        let dropped: Vec<u64> = other.map(|w| w.block.0).collect();
        for block in dropped {
            if let Entry::Occupied(fresh) = sets.fresh.entry(block) {
                fresh.remove();
                found.fresh = true;
            }
        }
        let sent = [&sets.flying, &sets.last].into_iter().flat_map(|set| set.range(range.clone()));
        found.sent = sent.map(|(_, w)| w).any(|w| !same(w)).then_some(sets.tid);
        found
    }
}

/// What an overwrite meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Disturbed {
    /// A checksum in no fast commit yet, which is dropped.
    fresh: bool,
    /// A checksum in a fast commit of this transaction.
    sent: Option<Tid>,
}

impl Journal {
    /// True if data with checksums saves a flush: fast commits are written, to the device that also
    /// holds the data, and must be durable.
    #[must_use]
    pub fn wants_data_checksums(&self) -> bool {
        self.barrier() && self.fast.tracks() && self.log.get().is_some_and(|log| !log.is_external())
    }

    /// File data was written to the device, the write has returned, and nothing that is told of it
    /// later depends on it being on the medium: it only has to be there when an fsync returns.
    ///
    /// Gives its number, for [`is_covered`](Self::is_covered).
    pub fn note_free_write(&self) -> u64 {
        self.data_writes.returned()
    }

    /// True if a flush that began behind that write has ended.
    #[must_use]
    pub fn is_covered(&self, write: u64) -> bool {
        self.data_writes.covered() >= write
    }

    /// File data was written to the device, and the write has returned. It must be on the medium
    /// before what maps it counts, and can be compared. Old contents of the blocks may be seen
    /// after a crash.
    ///
    /// Gives its number, for [`is_covered`](Self::is_covered).
    pub fn note_checksummed_write(&self, checksums: &[DataChecksum]) -> u64 {
        let write = self.data_writes.returned();
        if !self.wants_data_checksums() || !self.fast.checksums.add(checksums, write) {
            self.ordered_writes.returned();
        }
        write
    }

    /// Must be called before other bytes are written to blocks of a file, by the caller that keeps
    /// others from writing there. `same` says whether a block will begin with the bytes that a
    /// checksum counts, as it does now. May write a fast commit.
    ///
    /// # Errors
    /// As [`make_durable_for`](Self::make_durable_for).
    pub fn about_to_overwrite(
        &self,
        first: BlockNr,
        blocks: u32,
        same: impl Fn(&DataChecksum) -> bool,
    ) -> Result<()> {
        let found = self.fast.checksums.disturbed(first, blocks, same);
        if found.fresh {
            // The first bytes need their order still, and recovery cannot compare them any more.
            self.ordered_writes.returned();
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::has(crate::planted::Bug::ChecksummedDataOverwritten) {
            return Ok(());
        }
        match found.sent {
            None => Ok(()),
            // Then the last fast commit is another one, or the transaction is in the log.
            Some(tid) => {
                self.fast.counters.settled.add(1);
                self.wait_fast(tid, SyncKey::NONE)
            }
        }
    }

    pub(crate) fn ordered_data_is_dirty(&self) -> bool {
        self.ordered_writes.is_dirty()
    }
}

#[cfg(test)]
mod tests;
