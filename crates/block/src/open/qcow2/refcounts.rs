//! The refcounts of a qcow2 image that is written to: all of them in memory.
//!
//! Before the first write they are compared with all references, as `qemu-img check` does it. An
//! image in which a cluster is referred to twice, or more often than its refcount says, or an entry
//! has a bit that no entry has, is not written to: a write to one cluster could change another, or
//! a table. Clusters that nothing refers to only waste space.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{COPIED, Cluster, Header, PACKED, PLACE, Qcow2, State, ZERO, words};
use crate::{BlockDevice as _, DeviceOp, Result};

/// Most clusters of a file that is written to: 128 MiB of refcounts.
const MOST_CLUSTERS: u64 = 1 << 26;

/// The refcounts.
#[derive(Debug)]
pub(super) struct Refcounts {
    /// One for each cluster of the file.
    pub counts: Vec<u16>,
    /// Where the blocks of refcounts are; 0: nowhere.
    pub blocks: Vec<u64>,
    /// Blocks that are to be written.
    pub dirty: BTreeSet<usize>,
    /// Entries of the table of blocks that are to be written.
    pub dirty_table: BTreeSet<usize>,
    /// No cluster before it is free.
    pub hint: usize,
    /// Nothing behind this cluster was in use when the image was opened.
    pub end: usize,
}

const TOO_LARGE: &str = "its file is too large to be written to: make a raw image of it (qemu-img \
     convert -O raw)";
const SHORT_TABLE: &str = "its refcount table is too short for a full disk: copy it with larger \
     clusters (qemu-img convert -O qcow2 -o cluster_size=64k)";

impl Refcounts {
    /// Reads all refcounts.
    pub fn load(image: &Qcow2) -> std::result::Result<Self, String> {
        let Header { refcounts_at, refcounts_len, .. } = image.header;
        let cluster = image.header.cluster();
        let in_block = image.header.refcounts_of_block();
        let said = |error: crate::DeviceError| error.to_string();
        if refcounts_len == 0 || image.check_place(refcounts_at, refcounts_len).is_err() {
            return Err(unsound("its refcount table is not inside of it"));
        }
        let mut bytes = vec![0; usize::try_from(refcounts_len).map_err(|_| TOO_LARGE)?];
        image.inner.read_at(&mut bytes, refcounts_at).map_err(said)?;
        let blocks = words(&bytes);
        let mut counts = Vec::new();
        let mut block = vec![0; cluster as usize];
        for (n, at) in (0..).zip(&blocks) {
            if *at == 0 {
                continue;
            }
            if image.check_place(*at, cluster).is_err() {
                return Err(unsound(format_args!("its refcount block {n} ({at:#x}) has no place")));
            }
            image.inner.read_at(&mut block, *at).map_err(said)?;
            let in_use = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last / 2 + 1);
            let end = n * in_block + in_use as u64;
            if in_use > 0 && end > MOST_CLUSTERS {
                return Err(TOO_LARGE.to_owned());
            }
            if in_use > 0 {
                counts.resize((n * in_block) as usize, 0);
                let pairs = block.chunks_exact(2).take(in_use);
                counts.extend(pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]])));
            }
        }
        let end = counts.len();
        let loaded = Self {
            counts,
            blocks,
            dirty: BTreeSet::new(),
            dirty_table: BTreeSet::new(),
            hint: 0,
            end,
        };
        loaded.check_room(&image.header)?;
        Ok(loaded)
    }

    /// Refuses an image whose table cannot name all blocks that a full disk needs: it is never
    /// moved.
    fn check_room(&self, header: &Header) -> std::result::Result<(), String> {
        let data = header.size.div_ceil(header.cluster());
        let tables = data.div_ceil(header.l2_entries()) + 1;
        let most = self.counts.len() as u64 + data + tables;
        let most = most + most.div_ceil(header.refcounts_of_block() - 1) + 1;
        let room = (self.blocks.len() as u64).saturating_mul(header.refcounts_of_block());
        match (most <= room, most <= MOST_CLUSTERS) {
            (false, _) => Err(SHORT_TABLE.to_owned()),
            (_, false) => Err(TOO_LARGE.to_owned()),
            (true, true) => Ok(()),
        }
    }

    /// Compares the refcounts with all references.
    pub fn check(&self, image: &Qcow2, state: &mut State) -> std::result::Result<(), String> {
        let header = &image.header;
        let bits = header.cluster_bits;
        let mut found = References { of: self, seen: vec![0; self.counts.len()], bits };
        found.add(0, 1)?;
        found.add(header.l1_at, state.l1.len() as u64 * 8)?;
        found.add(header.refcounts_at, header.refcounts_len)?;
        for at in self.blocks.iter().filter(|at| **at != 0) {
            found.add(*at, header.cluster())?;
        }
        let mut packed = Vec::new();
        for table in 0..state.l1.len() {
            self.check_table(image, state, table, &mut found, &mut packed)?;
        }
        for range in packed {
            found.add_shared(range)?;
        }
        Ok(())
    }

    /// Compares with what a table of the second level refers to; packed clusters are put into a
    /// list.
    fn check_table(
        &self,
        image: &Qcow2,
        state: &mut State,
        table: usize,
        found: &mut References<'_>,
        packed: &mut Vec<Range<u64>>,
    ) -> std::result::Result<(), String> {
        let said = |error: crate::DeviceError| error.to_string();
        let not_copied = |at: u64| {
            unsound(format_args!("the cluster at {at:#x} has one user and is not marked as such"))
        };
        let entry = state.l1.get(table).copied().unwrap_or(0);
        if entry & !(COPIED | PLACE) != 0 {
            return Err(unsound(format_args!(
                "its L1 entry {table} has reserved bits ({entry:#x})"
            )));
        }
        let place = entry & PLACE;
        if place == 0 {
            return Ok(());
        }
        if entry & COPIED == 0 {
            return Err(not_copied(place));
        }
        if image.check_place(place, image.header.cluster()).is_err() {
            return Err(unsound(format_args!("its L2 table {table} ({place:#x}) has no place")));
        }
        found.add(place, image.header.cluster())?;
        image.load(state, table).map_err(said)?;
        let flags = COPIED | PLACE | if image.header.version >= 3 { ZERO } else { 0 };
        for entry in state.tables.get(&table).iter().flat_map(|table| &table.entries) {
            let wrong = match entry & PACKED {
                0 => entry & !flags,
                _ => entry & COPIED,
            };
            if wrong != 0 {
                let why = format_args!("an entry of its L2 table {table} has reserved bits");
                return Err(unsound(format_args!("{why} ({entry:#x})")));
            }
            match image.cluster(*entry).map_err(|_| {
                let at = entry & PLACE;
                unsound(format_args!("its L2 table {table} names a cluster in no place ({at:#x})"))
            })? {
                Cluster::Packed(entry) => packed.push(image.packed_place(entry)),
                Cluster::Below => {}
                Cluster::Zeros if entry & PLACE == 0 => {}
                _ if entry & COPIED == 0 => return Err(not_copied(entry & PLACE)),
                _ => found.add(entry & PLACE, image.header.cluster())?,
            }
        }
        Ok(())
    }

    /// Takes a free cluster; gives its place. Blocks of refcounts are added on the way.
    pub fn take(&mut self, header: &Header) -> Option<u64> {
        loop {
            let free = self.counts.iter().skip(self.hint).position(|count| *count == 0);
            let at = free.map_or(self.counts.len(), |free| self.hint + free);
            let block = at / header.refcounts_of_block() as usize;
            self.blocks.get(block)?;
            if at >= self.counts.len() {
                self.counts.push(0);
            }
            self.hint = at + 1;
            let place = (at as u64) << header.cluster_bits;
            self.set(header, at, 1);
            let of_block = self.blocks.get_mut(block)?;
            if *of_block != 0 {
                return Some(place);
            }
            *of_block = place;
            self.dirty_table.insert(block);
        }
    }

    /// Drops a reference; gives the place of the cluster if that was the last one.
    pub fn drop_reference(&mut self, header: &Header, at: u64) -> Option<u64> {
        let n = (at >> header.cluster_bits) as usize;
        let count = self.counts.get(n).copied()?.checked_sub(1)?;
        self.set(header, n, count);
        if count > 0 {
            return None;
        }
        self.hint = self.hint.min(n);
        Some((n as u64) << header.cluster_bits)
    }

    fn set(&mut self, header: &Header, n: usize, count: u16) {
        if let Some(slot) = self.counts.get_mut(n) {
            *slot = count;
            self.dirty.insert(n / header.refcounts_of_block() as usize);
        }
    }

    /// The bytes of a block.
    pub fn block(&self, header: &Header, block: usize) -> Vec<u8> {
        let len = header.refcounts_of_block() as usize;
        let counts = self.counts.iter().skip(block * len).take(len);
        let mut bytes: Vec<u8> = counts.flat_map(|count| count.to_be_bytes()).collect();
        bytes.resize(len * 2, 0);
        bytes
    }

    /// Where the last cluster in use ends.
    pub fn used(&self, header: &Header) -> u64 {
        let last = self.counts.iter().rposition(|count| *count != 0);
        last.map_or(0, |last| (last as u64 + 1) << header.cluster_bits)
    }
}

/// References that were found.
struct References<'r> {
    of: &'r Refcounts,
    seen: Vec<u16>,
    bits: u32,
}

impl References<'_> {
    /// Clusters that one thing alone uses.
    fn add(&mut self, at: u64, len: u64) -> std::result::Result<(), String> {
        if len == 0 {
            return Ok(());
        }
        for n in at >> self.bits..=at.saturating_add(len - 1) >> self.bits {
            let count = self.count(n);
            let seen = self.seen(n)?;
            *seen += 1;
            if *seen != 1 {
                return Err(self.wrong(n, "is used twice"));
            }
            if count != 1 {
                return Err(self.wrong(n, &format!("has one user and a refcount of {count}")));
            }
        }
        Ok(())
    }

    /// The clusters of a packed one, which it may share with others.
    fn add_shared(&mut self, range: Range<u64>) -> std::result::Result<(), String> {
        for n in range.start >> self.bits..=(range.end - 1) >> self.bits {
            let count = self.count(n);
            let seen = self.seen(n)?;
            *seen = seen.saturating_add(1);
            if *seen > count {
                return Err(self.wrong(n, &format!("has more users than its refcount, {count}")));
            }
        }
        Ok(())
    }

    fn count(&self, n: u64) -> u16 {
        let n = usize::try_from(n).ok();
        n.and_then(|n| self.of.counts.get(n)).copied().unwrap_or(0)
    }

    fn seen(&mut self, n: u64) -> std::result::Result<&mut u16, String> {
        if n >= self.seen.len() as u64 {
            return Err(self.wrong(n, "is used and has a refcount of 0"));
        }
        Ok(&mut self.seen[n as usize])
    }

    fn wrong(&self, n: u64, what: &str) -> String {
        let at = n.checked_shl(self.bits).unwrap_or(0);
        unsound(format_args!("the cluster at {at:#x} {what}"))
    }
}

/// What is wrong with an image that is not written to.
fn unsound(what: impl std::fmt::Display) -> String {
    format!("it is damaged: {what}: repair it (qemu-img check -r all)")
}

/// Makes a file long enough for clusters up to `end`, in steps: each is durable, so they are longer
/// for a longer file. What is not used of the last one is a hole.
pub(super) fn cover(image: &Qcow2, end: u64) -> Result<()> {
    const STEP: u64 = 16 << 20;
    let size = image.inner.size();
    if end <= size {
        return Ok(());
    }
    let step = STEP.max(image.header.cluster());
    let generous = end.saturating_add(size / 4).checked_next_multiple_of(step);
    match generous.map(|end| image.inner.set_size(end)) {
        // (A file system may have a limit between the two. What fails with a flush is lost.)
        None => {}
        Some(Err(error)) if error.op == DeviceOp::Resize => {}
        Some(done) => return done,
    }
    image.inner.set_size(end.next_multiple_of(step))
}
