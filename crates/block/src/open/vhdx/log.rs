//! The log of a VHDX image that was not closed: which of its entries are to be applied, and what
//! they change.
//!
//! ```text
//!   the log, a ring    | loge desc desc zero | data | data | loge ... | ...
//!   an entry             its header and what it changes, then one sector for each `desc`
//!   the active sequence  entries that follow each other, from the tail that the newest one names
//! ```
//!
//! An entry counts if it has the id that the header names, all its parts have its sequence number,
//! and its sum is right: one that was cut in the middle of its write is none.
//!
//! No sector but its first begins as an entry does: sound entries do not overlap, and a sum over
//! one is made only when all else is right. So the time is bounded by the log's size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use extol_ondisk::checksum::crc32c;

use crate::open::numbers::Numbers;

/// Every part of a log is a multiple of it, and so is every place of a change.
pub(super) const SECTOR: usize = 4096;
const HEADER: usize = 64;
const DESCRIPTOR: usize = 32;
/// What a sector in a log does not hold: it is in the descriptor.
const LEADING: usize = 8;
const TRAILING: usize = 4;

/// A log, and the id that its entries have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log<'l> {
    /// A multiple of [`SECTOR`].
    pub bytes: &'l [u8],
    pub id: &'l [u8],
}

/// An entry of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: usize,
    /// Where the next one would be.
    end: usize,
    sequence: u64,
    /// Where the oldest entry is that was still to be applied.
    tail: usize,
    descriptors: usize,
    /// The file was so long when the entry was written.
    pub flushed_end: u64,
    /// All that the image uses ends before it.
    pub last_end: u64,
}

/// One change of the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'l> {
    Zeros { at: u64, end: u64 },
    Sector { at: u64, parts: [&'l [u8]; 3] },
}

impl<'l> Log<'l> {
    /// The entries that are to be applied, the oldest first. `None`: there is no such sequence.
    pub fn active(&self) -> Option<Vec<Entry>> {
        let places = (0..self.bytes.len()).step_by(SECTOR);
        let entries: BTreeMap<_, _> = places.filter_map(|at| Some((at, self.entry(at)?))).collect();
        let by_end: BTreeMap<_, _> = entries.values().map(|entry| (entry.end, entry)).collect();
        let is_head =
            |entry: &&Entry| entries.get(&entry.end).is_none_or(|next| !next.is_behind(entry));
        let mut heads: Vec<_> = entries.values().filter(is_head).collect();
        heads.sort_by_key(|head| Reverse(head.sequence));
        heads.into_iter().find_map(|head| {
            let mut sequence = vec![*head];
            let mut first = head;
            while first.at != head.tail {
                first = by_end.get(&first.at).copied().filter(|before| first.is_behind(before))?;
                sequence.push(*first);
            }
            sequence.reverse();
            Some(sequence)
        })
    }

    /// What an entry changes, in this order.
    pub fn changes(self, entry: &Entry) -> impl Iterator<Item = Change<'l>> {
        self.decode(*entry).map_while(|change| change)
    }

    /// The entry at a place, if a sound one is there.
    fn entry(&self, at: usize) -> Option<Entry> {
        let header = self.piece(at, HEADER);
        let number = Numbers(header);
        let len = usize::try_from(number.le32(8)).ok()?;
        let tail = usize::try_from(number.le32(12)).ok()?;
        let entry = Entry {
            at,
            end: at.checked_add(len)? % self.bytes.len(),
            sequence: number.le64(16),
            tail,
            descriptors: usize::try_from(number.le32(24)).ok()?,
            flushed_end: number.le64(48),
            last_end: number.le64(56),
        };
        let is_one = header.starts_with(b"loge")
            && header.get(32..48) == Some(self.id)
            && entry.sequence != 0
            && (SECTOR..=self.bytes.len()).contains(&len)
            && len.is_multiple_of(SECTOR)
            && tail.is_multiple_of(SECTOR)
            && tail < self.bytes.len()
            && entry.sectors()? <= len / SECTOR;
        if !is_one {
            return None;
        }
        let mut data = 0;
        for change in self.decode(entry) {
            data += usize::from(matches!(change?, Change::Sector { .. }));
        }
        let is_whole = (entry.sectors()? + data) * SECTOR == len;
        (is_whole && self.sum(at, len) == number.le32(4)).then_some(entry)
    }

    /// What the descriptors of an entry say, up to the first that is not sound.
    fn decode(self, entry: Entry) -> impl Iterator<Item = Option<Change<'l>>> {
        let first = entry.sectors().unwrap_or_default() * SECTOR;
        (0..entry.descriptors).scan(0, move |data, number| {
            let descriptor = self.piece(entry.at + HEADER + number * DESCRIPTOR, DESCRIPTOR);
            let sector = self.piece(entry.at + first + *data * SECTOR, SECTOR);
            let change = change(descriptor, sector, entry.sequence);
            *data += usize::from(matches!(change, Some(Change::Sector { .. })));
            Some(change)
        })
    }

    /// A piece of the ring that lies in one sector.
    fn piece(&self, at: usize, len: usize) -> &'l [u8] {
        let at = at % self.bytes.len();
        self.bytes.get(at..at + len).unwrap_or_default()
    }

    /// The sum of an entry.
    fn sum(&self, at: usize, len: usize) -> u32 {
        let header = self.piece(at, SECTOR);
        let sum = crc32c(!0, header.get(..4).unwrap_or_default());
        let sum = crc32c(sum, &[0; 4]);
        let sum = crc32c(sum, header.get(8..).unwrap_or_default());
        let rest = (SECTOR..len).step_by(SECTOR);
        !rest.fold(sum, |sum, part| crc32c(sum, self.piece(at + part, SECTOR)))
    }
}

impl Entry {
    /// Sectors of the header and the descriptors.
    fn sectors(&self) -> Option<usize> {
        let bytes = self.descriptors.checked_mul(DESCRIPTOR)?.checked_add(HEADER)?;
        Some(bytes.div_ceil(SECTOR))
    }

    /// True if it was written as the next one.
    fn is_behind(&self, before: &Self) -> bool {
        before.sequence.checked_add(1) == Some(self.sequence)
    }
}

/// What a descriptor says, if it is sound and belongs to an entry; `sector` is where its data are
/// if it has some.
fn change<'l>(descriptor: &'l [u8], sector: &'l [u8], sequence: u64) -> Option<Change<'l>> {
    let number = Numbers(descriptor);
    let at = number.le64(16);
    let is_aligned = |number: u64| number.is_multiple_of(SECTOR as u64);
    if number.le64(24) != sequence || !is_aligned(at) {
        return None;
    }
    if descriptor.starts_with(b"zero") {
        let len = number.le64(8);
        return Some(Change::Zeros { at, end: at.checked_add(len).filter(|_| is_aligned(len))? });
    }
    let stamp = Numbers(sector);
    let halves = u64::from(stamp.le32(4)) << 32 | u64::from(stamp.le32(SECTOR - TRAILING));
    let is_sound =
        descriptor.starts_with(b"desc") && sector.starts_with(b"data") && halves == sequence;
    at.checked_add(SECTOR as u64).filter(|_| is_sound)?;
    let leading = descriptor.get(8..8 + LEADING)?;
    let trailing = descriptor.get(4..4 + TRAILING)?;
    Some(Change::Sector { at, parts: [leading, sector.get(LEADING..SECTOR - TRAILING)?, trailing] })
}
