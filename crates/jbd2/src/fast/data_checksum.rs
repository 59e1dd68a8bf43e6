//! Data checksums: file data and the records that map it, durable with one flush.
//!
//! Data must not be missing where a record says that it is. The plain way is two flushes: data,
//! flush, records, flush. With a checksum one is enough: the fast commit says which bytes its
//! blocks of data must hold, and recovery compares.
//!
//! ```text
//!   data ─┐                          ┌─ all there: the fast commit counts
//!   HEAD … records PAD TAIL ── FLUSH ┤
//!                                    └─ crash before the end of the flush: any part may be there.
//!                                       If bytes are missing, the fast commit was not
//!                                       acknowledged, and recovery drops it
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
//!   (deferred   with its data, still to be written)
//!   unflushed   written to the device, in no fast commit     forgotten by a flush
//!   writing     in the fast commit that is being written     becomes last
//!   last        in the newest fast commit on the medium      forgotten by the next or a full one
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
//!   block. That write has returned before the set of unflushed checksums knows it
//!   (`note_checksummed_write`), or goes out with the fast commit itself (`begin`; see
//!   `crate::journal::deferred`).
//! - DK-4: the sets are bounded ([`MOST_DATA_CHECKSUMS`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extol_block::BlockNr;
use extol_ondisk::fast_commit::DataChecksum;
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::rank::{Mutex, Rank};

use crate::format::MOST_DATA_CHECKSUMS;
use crate::types::Tid;

/// What is known of the blocks whose data may be on its way.
#[derive(Debug, Default)]
struct Sets {
    /// With the number of the data write behind which it counts.
    unflushed: BTreeMap<u64, (DataChecksum, u64)>,
    writing: BTreeMap<u64, DataChecksum>,
    last: BTreeMap<u64, DataChecksum>,
    /// The transaction of `writing` and `last`.
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
    pub fn add(&self, checksums: &[DataChecksum], write: u64) -> bool {
        let mut sets = self.sets.lock();
        if sets.unflushed.len() + checksums.len() > MOST_DATA_CHECKSUMS {
            return false;
        }
        sets.unflushed.extend(checksums.iter().map(|w| (w.block.0, (*w, write))));
        self.any.store(true, Ordering::Release);
        true
    }

    /// A flush has covered so many data writes.
    pub fn flushed(&self, writes: u64) {
        if self.any.load(Ordering::Acquire) {
            self.sets.lock().unflushed.retain(|_, (_, write)| *write > writes);
        }
    }

    /// For a fast commit of `tid` that is about to be written, together with data that has
    /// checksums as well.
    pub fn begin(&self, tid: Tid, with: impl Iterator<Item = DataChecksum>) -> Vec<DataChecksum> {
        let mut with = with.peekable();
        if !self.any.load(Ordering::Acquire) && with.peek().is_none() {
            return Vec::new();
        }
        let mut sets = self.sets.lock();
        let unflushed = std::mem::take(&mut sets.unflushed);
        sets.writing =
            unflushed.into_iter().map(|(block, (checksum, _))| (block, checksum)).collect();
        sets.writing.extend(with.map(|checksum| (checksum.block.0, checksum)));
        sets.tid = tid;
        self.any.store(true, Ordering::Release);
        sets.writing.values().copied().collect()
    }

    /// The fast commit is going to be written without them, behind a flush, or not at all.
    pub fn give_up(&self) {
        self.sets.lock().writing.clear();
    }

    /// The fast commit is durable.
    pub fn ended(&self) {
        if self.any.load(Ordering::Acquire) {
            let mut sets = self.sets.lock();
            sets.last = std::mem::take(&mut sets.writing);
        }
    }

    /// Fast commits up to transaction `tid` are void.
    pub fn forget(&self, tid: Tid) {
        if self.any.load(Ordering::Acquire) {
            let mut sets = self.sets.lock();
            if tid.at_least(sets.tid) {
                sets.last.clear();
                sets.writing.clear();
            }
            self.any.store(!sets.unflushed.is_empty() || !sets.last.is_empty(), Ordering::Release);
        }
    }

    /// Other bytes go to these blocks. `same`: the bytes that a checksum counts stay as they are.
    pub fn overwritten(
        &self,
        first: BlockNr,
        blocks: u32,
        same: impl Fn(&DataChecksum) -> bool,
    ) -> Overwritten {
        let mut found = Overwritten::default();
        if !self.any.load(Ordering::Acquire) {
            return found;
        }
        let range = first.0..first.0.saturating_add(blocks.into());
        let mut sets = self.sets.lock();
        let others = |w: &&DataChecksum| !same(w);
        let other = sets.unflushed.range(range.clone()).map(|(_, (w, _))| w).filter(others);
        let dropped: Vec<u64> = other.map(|w| w.block.0).collect();
        for block in dropped {
            if let Entry::Occupied(unflushed) = sets.unflushed.entry(block) {
                unflushed.remove();
                found.unflushed = true;
            }
        }
        let sent = [&sets.writing, &sets.last].into_iter().flat_map(|set| set.range(range.clone()));
        found.sent = sent.map(|(_, w)| w).any(|w| !same(w)).then_some(sets.tid);
        found
    }
}

/// What an overwrite meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Overwritten {
    /// A checksum in no fast commit yet, which is dropped.
    pub unflushed: bool,
    /// A checksum in a fast commit of this transaction.
    pub sent: Option<Tid>,
}

#[cfg(test)]
mod tests;
