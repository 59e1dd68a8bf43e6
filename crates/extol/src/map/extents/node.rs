//! One node of an extent tree as bytes: the root inside the inode, or a tree block.
//!
//! ```text
//!  0      2        4    6      8           12        24        36
//!  magic  entries  max  depth  generation  entry 0   entry 1   …   checksum (in blocks,
//!                                                                  behind entry max-1)
//! ```
//!
//! Leaf and index entries are both 12 bytes that begin with the first logical block they cover, so
//! moving, finding and splitting entries is the same code for all levels. Nodes are changed in
//! place: a change moves bytes within the node and never decodes the rest of it. Reads outside the
//! slice give zeros; nothing here can panic.

use std::ops::Range;

use extol_block::BlockNr;
use extol_ondisk::InodeSeed;
use extol_ondisk::extent::{self, Extent, ExtentHeader, ExtentIndex, MAGIC};
use extol_vfs::{FsError, Result};

use super::Few;
use crate::error;
use crate::map::MappedRun;
use crate::map::store::Shape;

/// Bytes of the header, and of an entry.
pub(in crate::map) const UNIT: usize = extent::ENTRY_LEN;
/// Levels below the root at most.
pub(in crate::map) const MAX_DEPTH: u16 = extent::MAX_DEPTH;
/// Longest unwritten extent; written ones may be a block longer.
pub(in crate::map) const MAX_UNWRITTEN: u32 = extent::MAX_UNWRITTEN_LEN as u32;
/// One past the last logical block that an extent can map.
pub(in crate::map) const END_OF_SPACE: u32 = extent::MAX_BLOCKS;

/// An entry's bytes.
pub(in crate::map) type Entry = [u8; UNIT];

fn get16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn put(bytes: &mut [u8], at: usize, src: &[u8]) {
    if let Some(dst) = bytes.get_mut(at..at + src.len()) {
        dst.copy_from_slice(src);
    }
}

/// Entries that fit in a node of this many bytes. (A block keeps at least 4 bytes for the checksum,
/// whatever its size.)
pub(in crate::map) fn capacity(bytes: usize) -> usize {
    bytes.saturating_sub(UNIT) / UNIT
}

/// Read access to a node.
#[derive(Clone, Copy)]
pub(in crate::map) struct View<'a>(pub &'a [u8]);

impl View<'_> {
    /// Entries in use; never more than fit.
    pub fn count(self) -> usize {
        usize::from(get16(self.0, 2)).min(capacity(self.0.len()))
    }

    /// Entries that the node may hold; never more than fit.
    pub fn max(self) -> usize {
        usize::from(get16(self.0, 4)).min(capacity(self.0.len()))
    }

    /// Levels below this node.
    pub fn depth(self) -> u16 {
        get16(self.0, 6)
    }

    /// Bytes of entry `i`.
    pub fn entry(self, i: usize) -> Entry {
        let at = UNIT + i * UNIT;
        self.0.get(at..at + UNIT).and_then(|b| b.try_into().ok()).unwrap_or_default()
    }

    /// Bytes of some entries.
    pub fn entries(self, range: Range<usize>) -> Vec<Entry> {
        range.map(|i| self.entry(i)).collect()
    }

    /// First logical block of entry `i`.
    pub fn key(self, i: usize) -> u32 {
        ExtentIndex::read(self.0, UNIT + i * UNIT).block
    }

    /// Entry `i` of a leaf.
    pub fn extent(self, i: usize) -> MappedRun {
        run_of(Extent::read(self.0, UNIT + i * UNIT))
    }

    /// The block that entry `i` of an index points to.
    pub fn child(self, i: usize) -> BlockNr {
        BlockNr(ExtentIndex::read(self.0, UNIT + i * UNIT).leaf)
    }

    /// How many entries begin at or before `lblk`.
    pub fn upper_bound(self, lblk: u32) -> usize {
        let (mut lo, mut hi) = (0, self.count());
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if self.key(mid) <= lblk {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        lo
    }

    /// The header alone: cheap, done at every visit.
    pub fn check_header(self, depth: u16) -> Result<()> {
        let cap = capacity(self.0.len());
        let (count, max) = (usize::from(get16(self.0, 2)), usize::from(get16(self.0, 4)));
        let what = if get16(self.0, 0) != MAGIC {
            "extent node without magic number"
        } else if self.depth() != depth {
            "extent node of the wrong depth"
        } else if max > cap || max + 2 < cap {
            "extent node with an impossible capacity"
        } else if count > max {
            "extent node with more entries than fit"
        } else if count == 0 && depth > 0 {
            "extent index without entries"
        } else {
            return Ok(());
        };
        Err(FsError::corrupt(what))
    }

    /// All entries: done once when a block was read, and always for the root. The keys must lie in
    /// `lo..hi`.
    pub fn check_entries(self, shape: &Shape, lo: u32, hi: u64) -> Result<()> {
        let mut from = u64::from(lo);
        for i in 0..self.count() {
            let key = u64::from(self.key(i));
            if key < from {
                return Err(FsError::corrupt("extent entries out of order or overlapping"));
            }
            if self.depth() == 0 {
                let e = self.extent(i);
                from = key + u64::from(e.len);
                if e.len == 0 || !shape.holds(e.pblk.0, u64::from(e.len)) {
                    return Err(FsError::corrupt("extent of an impossible range"));
                }
            } else {
                from = key + 1;
                if !shape.holds(self.child(i).0, 1) {
                    return Err(FsError::corrupt("extent index points outside the volume"));
                }
            }
        }
        if from > hi {
            return Err(FsError::corrupt("extent entries reach into the next node"));
        }
        Ok(())
    }

    /// The block's checksum, if the volume has them.
    pub fn check_sum(self, seed: Option<InodeSeed>) -> Result<()> {
        seed.map_or(Ok(()), |seed| extent::verify_csum(self.0, seed).map_err(error::ondisk))
    }
}

fn run_of(e: Extent) -> MappedRun {
    MappedRun {
        lblk: e.block,
        pblk: BlockNr(e.start),
        len: u32::from(e.len),
        unwritten: e.unwritten,
    }
}

/// A leaf entry. The length must fit.
pub(in crate::map) fn extent_entry(run: &MappedRun) -> Entry {
    let mut e = Entry::default();
    let len = run.len as u16;
    Extent { block: run.lblk, len, start: run.pblk.0, unwritten: run.unwritten }.write(&mut e, 0);
    e
}

/// An index entry.
pub(in crate::map) fn index_entry(key: u32, child: BlockNr) -> Entry {
    let mut e = Entry::default();
    ExtentIndex { block: key, leaf: child.0 }.write(&mut e, 0);
    e
}

/// First logical block of an entry.
pub(in crate::map) fn key_of(e: &Entry) -> u32 {
    ExtentIndex::read(e, 0).block
}

/// Longest extent of this state.
pub(in crate::map) fn max_len(unwritten: bool) -> u32 {
    u32::from(Extent::max_len(unwritten))
}

/// Writes a whole node, with the largest capacity that fits.
pub(in crate::map) fn write(bytes: &mut [u8], depth: u16, entries: &[Entry]) {
    debug_assert!(entries.len() <= capacity(bytes.len()));
    bytes.fill(0);
    let (entries_now, max) = (entries.len() as u16, capacity(bytes.len()) as u16);
    ExtentHeader { entries: entries_now, max, depth, generation: 0 }.encode_into(bytes);
    for (i, e) in entries.iter().enumerate() {
        put(bytes, UNIT + i * UNIT, e);
    }
}

/// Replaces `del` entries at `at` by `ins`, moving the entries behind them. False, and nothing
/// done, if the result does not fit: the block has changed since the path was searched.
pub(in crate::map) fn splice(bytes: &mut [u8], at: usize, del: usize, ins: &[Entry]) -> bool {
    let count = View(bytes).count();
    if at + del > count || count - del + ins.len() > View(bytes).max() {
        return false;
    }
    let (from, to) = (UNIT + (at + del) * UNIT, UNIT + (at + ins.len()) * UNIT);
    bytes.copy_within(from..UNIT + count * UNIT, to);
    for (i, e) in ins.iter().enumerate() {
        put(bytes, UNIT + (at + i) * UNIT, e);
    }
    let now = count - del + ins.len();
    if now < count {
        bytes[UNIT + now * UNIT..UNIT + count * UNIT].fill(0);
    }
    put(bytes, 2, &(now as u16).to_le_bytes());
    true
}

/// Changes the first logical block of entry `at`.
pub(in crate::map) fn set_key(bytes: &mut [u8], at: usize, key: u32) {
    put(bytes, UNIT + at * UNIT, &key.to_le_bytes());
}

/// Changes the block that entry `at` of an index points to.
pub(in crate::map) fn set_child(bytes: &mut [u8], at: usize, child: BlockNr) {
    let key = View(bytes).key(at);
    put(bytes, UNIT + at * UNIT, &index_entry(key, child));
}

/// Brings a block's checksum up to date.
pub(in crate::map) fn seal(bytes: &mut [u8], seed: Option<InodeSeed>) {
    if let Some(seed) = seed
        && ExtentHeader::decode(bytes).is_ok()
    {
        extent::set_csum(bytes, seed);
    }
}

/// Joins neighbours that continue each other in the file and on the volume, in the same state, and
/// cuts what is too long for one extent. The runs must be in order.
pub(super) fn coalesce(runs: &[MappedRun]) -> Few<MappedRun> {
    let mut joined: Few<(MappedRun, u64)> = Few::with_capacity(runs.len());
    for run in runs.iter().filter(|r| r.len > 0) {
        match joined.last_mut() {
            Some((last, len))
                if last.unwritten == run.unwritten
                    && u64::from(last.lblk) + *len == u64::from(run.lblk)
                    && last.pblk.0 + *len == run.pblk.0 =>
            {
                *len += u64::from(run.len);
            }
            _ => joined.push((*run, u64::from(run.len))),
        }
    }
    let mut out = Few::with_capacity(joined.len());
    for (mut run, mut left) in joined {
        while left > 0 {
            run.len = left.min(u64::from(max_len(run.unwritten))) as u32;
            out.push(run);
            left -= u64::from(run.len);
            run = MappedRun {
                lblk: run.lblk.wrapping_add(run.len),
                pblk: run.pblk.plus(run.len.into()),
                ..run
            };
        }
    }
    out
}
