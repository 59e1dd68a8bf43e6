//! File data and the records that map it in one trip to the medium.
//!
//! Data must not be missing where a record says that it is. The plain way is two trips: data,
//! flush, records, flush. With a witness one is enough: the fast commit says which bytes its blocks
//! of data must hold, and recovery compares.
//!
//! ```text
//!   data ─┐                            ┌─ all there: the fast commit counts
//!   HEAD … records WITNESS TAIL ─ FLUSH ┤
//!                                      └─ crash before the end of the flush: any part may be there. If bytes are missing,
//!                                         the fast commit was acknowledged to nobody, and recovery drops it
//! ```
//!
//! A witness is a block, how many of its bytes, and their CRC-32C. It is kept in the value of a
//! PAD, a tag that Linux and e2fsck skip (its bytes are in the sum of the TAIL like all others).
//! They do not compare: if *they* recover after such a crash, a file whose fsync had not returned
//! may have its new size with the old contents of its blocks. So the file system gives witnesses
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
//! Bytes behind those that a witness counts may change at any time: a file that grows by less than
//! a block rewrites the block, and the bytes before its old end stay the same.
//!
//! Invariants
//! - W1: a fast commit whose data was not flushed before it carries a witness for each block of
//!   data that it needs and that needs an order (`Journal::fast_commit`: what needs one and has no
//!   witness is *loose*, and loose data is flushed first).
//! - W2: from the moment a fast commit with witnesses is written until another one, or the full
//!   commit, is durable, their bytes on the device stay (`about_to_overwrite`). Its file's writer
//!   calls that, with the inode locked, and blocks change their file only by a full commit.
//! - W3: the flush of the fast commit that carries a witness begins behind the write of its block.
//!   That write has returned before the set of fresh witnesses knows it (`note_witnessed`), or goes
//!   out with the fast commit itself (`take_off`; see `crate::journal::deferred`).
//! - W4: the sets are bounded ([`MOST`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extol_block::BlockNr;
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::rank::{Mutex, Rank};

use super::Ask;
use crate::format::crc32c;
use crate::journal::Journal;
use crate::types::{Result, Tid};

/// Most witnesses in one fast commit: four megabytes of data in blocks of 4 KiB. Recovery reads no
/// more.
pub(crate) const MOST: usize = 1024;
/// Marks a PAD with witnesses; others hold zeros.
const MARK: &[u8; 8] = b"\xefdata-w1";
/// Bytes of one: the block, how many bytes, their sum.
const SIZE: usize = 16;

/// What a block holds if its write has reached the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    /// Block of the file system.
    pub block: BlockNr,
    /// Bytes from its start that count.
    pub len: u32,
    /// Their CRC-32C.
    pub sum: u32,
}

impl Witness {
    /// Of the first bytes of a block.
    #[must_use]
    pub fn of(block: BlockNr, bytes: &[u8]) -> Self {
        Self { block, len: bytes.len() as u32, sum: crc32c(u32::MAX, bytes) }
    }

    /// True if a block that begins with these bytes is as it says.
    #[must_use]
    pub fn agrees(&self, bytes: &[u8]) -> bool {
        bytes.get(..self.len as usize).is_some_and(|bytes| crc32c(u32::MAX, bytes) == self.sum)
    }

    /// How many fit into the value of a PAD of so many bytes.
    pub(crate) fn fit(value: usize) -> usize {
        value.saturating_sub(MARK.len()) / SIZE
    }

    /// The value of a PAD.
    pub(crate) fn encode(witnesses: &[Self]) -> Vec<u8> {
        let mut value = Vec::with_capacity(MARK.len() + SIZE * witnesses.len());
        value.extend_from_slice(MARK);
        for witness in witnesses {
            value.extend_from_slice(&witness.block.0.to_le_bytes());
            value.extend_from_slice(&witness.len.to_le_bytes());
            value.extend_from_slice(&witness.sum.to_le_bytes());
        }
        value
    }

    /// The witnesses in the value of a PAD; none in one that fills a block.
    pub(crate) fn decode(value: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let entries = value.strip_prefix(MARK).unwrap_or_default();
        entries.chunks_exact(SIZE).filter_map(|entry| {
            let (block, rest) = entry.split_first_chunk()?;
            let (len, rest) = rest.split_first_chunk()?;
            let (sum, _) = rest.split_first_chunk()?;
            Some(Self {
                block: BlockNr(u64::from_le_bytes(*block)),
                len: u32::from_le_bytes(*len),
                sum: u32::from_le_bytes(*sum),
            })
        })
    }
}

/// What is known of the blocks whose data may be on its way.
#[derive(Debug, Default)]
struct Sets {
    /// With the number of the data write behind which it counts.
    fresh: BTreeMap<u64, (Witness, u64)>,
    flying: BTreeMap<u64, Witness>,
    last: BTreeMap<u64, Witness>,
    /// The transaction of `flying` and `last`.
    tid: Tid,
}

/// The journal's witnesses. The lock is a leaf.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    sets: Mutex<Sets, { Rank::DataChecksums as u8 }>,
    /// There may be some.
    any: AtomicBool,
}

impl Witnesses {
    /// Data was written and noted as write number `write`. False: there are too many.
    fn add(&self, witnesses: &[Witness], write: u64) -> bool {
        let mut sets = self.sets.lock();
        if sets.fresh.len() + witnesses.len() > MOST {
            return false;
        }
        sets.fresh.extend(witnesses.iter().map(|w| (w.block.0, (*w, write))));
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
    /// witnesses as well.
    pub fn take_off(&self, tid: Tid, with: impl Iterator<Item = Witness>) -> Vec<Witness> {
        let mut with = with.peekable();
        if !self.any.load(Ordering::Acquire) && with.peek().is_none() {
            return Vec::new();
        }
        let mut sets = self.sets.lock();
        let fresh = std::mem::take(&mut sets.fresh);
        sets.flying = fresh.into_iter().map(|(block, (witness, _))| (block, witness)).collect();
        sets.flying.extend(with.map(|witness| (witness.block.0, witness)));
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

    /// Other bytes go to these blocks. `same`: the bytes that a witness counts stay as they are.
    fn disturbed(&self, first: BlockNr, blocks: u32, same: impl Fn(&Witness) -> bool) -> Disturbed {
        let mut found = Disturbed::default();
        if !self.any.load(Ordering::Acquire) {
            return found;
        }
        let range = first.0..first.0.saturating_add(blocks.into());
        let mut sets = self.sets.lock();
        let others = |w: &&Witness| !same(w);
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
    /// A witness in no fast commit yet, which is dropped.
    fresh: bool,
    /// A witness in a fast commit of this transaction.
    sent: Option<Tid>,
}

impl Journal {
    /// True if data with witnesses saves a trip: fast commits are written, to the device that also
    /// holds the data, and must be durable.
    #[must_use]
    pub fn wants_witnesses(&self) -> bool {
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
    pub fn note_witnessed(&self, witnesses: &[Witness]) -> u64 {
        let write = self.data_writes.returned();
        if !self.wants_witnesses() || !self.fast.witnesses.add(witnesses, write) {
            self.loose_writes.returned();
        }
        write
    }

    /// Must be called before other bytes are written to blocks of a file, by whoever keeps others
    /// from writing there. `same` says whether a block will begin with the bytes that a witness
    /// counts, as it does now. May write a fast commit.
    ///
    /// # Errors
    /// As [`make_durable_for`](Self::make_durable_for).
    pub fn about_to_overwrite(
        &self,
        first: BlockNr,
        blocks: u32,
        same: impl Fn(&Witness) -> bool,
    ) -> Result<()> {
        let found = self.fast.witnesses.disturbed(first, blocks, same);
        if found.fresh {
            // The first bytes need their order still, and nobody can compare them any more.
            self.loose_writes.returned();
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::has(crate::planted::Bug::WitnessOverwritten) {
            return Ok(());
        }
        match found.sent {
            None => Ok(()),
            // Then the last fast commit is another one, or the transaction is in the log.
            Some(tid) => {
                self.fast.counters.settled.add(1);
                self.wait_fast(tid, Ask::SETTLE)
            }
        }
    }

    pub(crate) fn loose_data_is_dirty(&self) -> bool {
        self.loose_writes.is_dirty()
    }
}

#[cfg(test)]
mod tests;
