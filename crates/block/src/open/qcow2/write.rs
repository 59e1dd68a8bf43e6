//! Writes to a qcow2 image.
//!
//! Data are written at once, into clusters that are the disk's already or into free ones. Tables
//! change in memory; a flush writes them, in this order, with a flush of the file after each line:
//!
//! 1. data (long since), refcount blocks, new tables of the second level;
//! 2. entries of the refcount table, if blocks are new;
//! 3. entries of the second and the first level.
//!
//! Then the clusters that lost their last reference are free; their refcounts go with the next
//! flush.
//!
//! - nothing durable refers to a cluster whose refcount, contents or table are not durable.
//!   After a crash at any point clusters may be lost, and nothing else is wrong: the image never
//!   needs a repair before it can be written to again, and no mark is put into it.
//! - a cluster is taken again only when nothing durable refers to it.
//! - a new cluster is written whole: what the request does not fill comes from what was there
//!   before. So a flush keeps what earlier flushes kept.
//! - A flush that fails leaves everything to be written by the next one.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use super::refcounts::{Refcounts, cover};
use super::{COPIED, Cluster, L2, PACKED, PLACE, Qcow2, State, ZERO, damaged};
use crate::{
    BlockDevice as _, DeviceError, DeviceOp, Result, ScatteredWrite, check_range, check_writable,
};

/// Most bytes of dirty tables before they are written.
const MOST_DIRTY: usize = 64 << 20;

/// A cluster that nothing refers to yet.
struct New<'b> {
    /// Its entry in the table.
    index: usize,
    place: u64,
    bytes: Cow<'b, [u8]>,
}

impl Qcow2 {
    /// Reads and checks all that writing needs.
    pub(super) fn begin_writing(&self) -> std::result::Result<(), String> {
        self.header.check_writer()?;
        let mut state = self.state.write();
        if state.refcounts.is_none() {
            let loaded = Refcounts::load(self)?;
            loaded.check(self, &mut state)?;
            // (The last cluster of a file may be cut.)
            let used = loaded.used(&self.header).next_multiple_of(self.inner.alignment() as u64);
            if used > self.inner.size() {
                self.inner.set_size(used).map_err(|error| error.to_string())?;
            }
            state.refcounts = Some(loaded);
        }
        self.writes.store(true, Ordering::Release);
        Ok(())
    }

    /// Why it cannot be written to; `None`: it can.
    pub(super) fn refusal(&self) -> Option<String> {
        let check = || {
            self.header.check_writer()?;
            Refcounts::load(self)?.check(self, &mut self.state.write())
        };
        if !self.is_read_only() {
            return None;
        }
        // Tables of an image that is in use may change while they are looked at.
        let again = |_| {
            self.reread().map_err(|error| error.source.to_string())?;
            check()
        };
        check().or_else(again).err()
    }

    pub(super) fn become_writable(&self) -> Result<()> {
        if !self.is_read_only() {
            return Ok(());
        }
        let fail = |why: String| {
            let why = io::Error::new(io::ErrorKind::Unsupported, why);
            DeviceError::new(DeviceOp::Open, 0, 0, why)
        };
        self.header.check_writer().map_err(|why| fail(why.to_owned()))?;
        self.inner.make_writable()?;
        // (Tables that were read before another process wrote to the file may be old ones.)
        self.reread()?;
        self.begin_writing().map_err(fail)
    }

    /// Reads the tables again.
    fn reread(&self) -> Result<()> {
        let header = super::read_header(&*self.inner).ok();
        if header.as_ref() != Some(&self.header) {
            return Err(damaged(0, "its header was changed while it was open"));
        }
        let mut state = self.state.write();
        let mut bytes = vec![0; state.l1.len() * 8];
        self.inner.read_at(&mut bytes, self.header.l1_at)?;
        state.l1 = super::words(&bytes);
        state.tables.clear();
        *self.unpacked.lock() = None;
        Ok(())
    }

    pub(super) fn write(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, self.header.size)?;
        let end = offset + len;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let (table, next) = self.span(at, end);
            let (part, more) = rest.split_at((next - at) as usize);
            if !self.overwrite(table, part, at, false)? {
                self.write_anew(table, part, at)?;
            }
            (at, rest) = (next, more);
        }
        Ok(())
    }

    /// As [`write`](Self::write), durable when it returns.
    pub(super) fn write_durably(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, self.header.size)?;
        let (table, next) = self.span(offset, offset + len);
        let is_in_one = next == offset + len && len > 0;
        // (A mapping that is not durable makes the data unreachable.)
        if is_in_one
            && !self.is_dirty.load(Ordering::Acquire)
            && self.overwrite(table, buf, offset, true)?
        {
            return Ok(());
        }
        self.write(buf, offset)?;
        self.settle()
    }

    /// Writes where all clusters are the disk's already. False: they are not.
    fn overwrite(&self, table: usize, buf: &[u8], offset: u64, durable: bool) -> Result<bool> {
        let state = self.with_table(table)?;
        if durable && self.is_dirty.load(Ordering::Acquire) {
            return Ok(false);
        }
        let pieces = self.pieces(&state, table, offset, offset + buf.len() as u64)?;
        if !pieces.iter().all(|piece| matches!(piece.cluster, Cluster::At(_))) {
            return Ok(false);
        }
        for piece in pieces {
            let Cluster::At(at) = piece.cluster else { continue };
            let part = buf.get(piece.range).unwrap_or_default();
            match durable {
                true => self.inner.write_fua(part, at + piece.shift)?,
                false => self.inner.write_at(part, at + piece.shift)?,
            }
        }
        Ok(true)
    }

    /// Writes where clusters are missing.
    fn write_anew(&self, table: usize, buf: &[u8], offset: u64) -> Result<()> {
        let mut state = self.state.write();
        self.bound_dirty(&mut state)?;
        self.load(&mut state, table)?;
        let mut new = Vec::new();
        let mut done = 0;
        let written = self
            .place_anew(&mut state, table, buf, offset, &mut new)
            .and_then(|()| self.write_new(&new))
            .and_then(|()| {
                new.iter().try_for_each(|cluster| {
                    self.map(&mut state, table, cluster.index, cluster.place | COPIED)?;
                    done += 1;
                    Ok(())
                })
            });
        if written.is_err() {
            new.iter().skip(done).for_each(|cluster| self.give_back(&mut state, cluster.place));
        }
        written
    }

    /// Finds a place for each cluster that is missing, and writes to those that are not.
    fn place_anew<'b>(
        &self,
        state: &mut State,
        table: usize,
        buf: &'b [u8],
        offset: u64,
        new: &mut Vec<New<'b>>,
    ) -> Result<()> {
        let size = self.header.cluster();
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let shift = at % size;
            let next = end.min(at - shift + size);
            let part = &buf[(at - offset) as usize..(next - offset) as usize];
            let index = self.index(at);
            match self.cluster(state.entry(table, index))? {
                Cluster::At(place) => self.inner.write_at(part, place + shift)?,
                cluster => {
                    let bytes = if part.len() as u64 == size {
                        Cow::Borrowed(part)
                    } else {
                        let mut whole = vec![0; size as usize];
                        self.read_piece(cluster, 0, &mut whole, at - shift)?;
                        whole[shift as usize..shift as usize + part.len()].copy_from_slice(part);
                        Cow::Owned(whole)
                    };
                    new.push(New { index, place: self.take(state)?, bytes });
                }
            }
            at = next;
        }
        Ok(())
    }

    /// Writes new clusters. Those that lie side by side go in one request.
    fn write_new(&self, new: &[New<'_>]) -> Result<()> {
        let size = self.header.cluster();
        let runs = new.chunk_by(|one, next| one.place + size == next.place);
        let runs: Vec<(u64, Vec<IoSlice<'_>>)> = runs
            .map(|run| {
                let bufs = run.iter().map(|cluster| IoSlice::new(&cluster.bytes)).collect();
                (run.first().map_or(0, |first| first.place), bufs)
            })
            .collect();
        let writes: Vec<_> =
            runs.iter().map(|(offset, bufs)| ScatteredWrite { offset: *offset, bufs }).collect();
        self.inner.write_scattered(&writes)
    }

    /// Takes a free cluster.
    fn take(&self, state: &mut State) -> Result<u64> {
        self.is_dirty.store(true, Ordering::Release);
        let refcounts = state.refcounts.as_mut().ok_or_else(|| damaged(0, "no refcounts"))?;
        let full = || {
            let why = io::Error::new(io::ErrorKind::StorageFull, "its refcount table is full");
            DeviceError::new(DeviceOp::Write, 0, 0, why)
        };
        let place = refcounts.take(&self.header).ok_or_else(full)?;
        let end = (refcounts.counts.len() as u64) << self.header.cluster_bits;
        if let Err(error) = cover(self, end) {
            self.give_back(state, place);
            return Err(error);
        }
        Ok(place)
    }

    /// Makes a cluster free that nothing was told of.
    fn give_back(&self, state: &mut State, place: u64) {
        if let Some(refcounts) = &mut state.refcounts {
            refcounts.drop_reference(&self.header, place);
        }
    }

    /// Changes an entry of the second level. What it referred to is free when that is durable.
    fn map(&self, state: &mut State, table: usize, index: usize, entry: u64) -> Result<()> {
        if !state.tables.contains_key(&table) {
            let place = self.take(state)?;
            let entries = vec![0; self.header.l2_entries() as usize];
            state.tables.insert(table, L2 { entries, is_dirty: true, is_new: true });
            if let Some(slot) = state.l1.get_mut(table) {
                *slot = place | COPIED;
            }
            state.dirty_l1.insert(table);
        }
        self.is_dirty.store(true, Ordering::Release);
        let State { tables, freed, .. } = state;
        let Some(found) = tables.get_mut(&table) else { return Ok(()) };
        let Some(slot) = found.entries.get_mut(index) else { return Ok(()) };
        let old = std::mem::replace(slot, entry);
        found.is_dirty = true;
        if old & PACKED != 0 {
            let range = self.packed_place(old & !COPIED);
            let bits = self.header.cluster_bits;
            freed.extend((range.start >> bits..=(range.end - 1) >> bits).map(|n| n << bits));
        } else if old & PLACE != 0 {
            freed.push(old & PLACE);
        }
        Ok(())
    }

    /// Writes the tables before too many are dirty.
    fn bound_dirty(&self, state: &mut State) -> Result<()> {
        let dirty = state.tables.values().filter(|table| table.is_dirty).count();
        if dirty.saturating_mul(self.header.cluster() as usize) > MOST_DIRTY {
            self.write_tables(state)?;
        }
        Ok(())
    }

    /// A flush: see the top of this file.
    pub(super) fn settle(&self) -> Result<()> {
        if !self.is_dirty.load(Ordering::Acquire) {
            return self.inner.flush();
        }
        let mut state = self.state.write();
        self.write_tables(&mut state)
    }

    fn write_tables(&self, state: &mut State) -> Result<()> {
        let header = &self.header;
        let State { l1, tables, dirty_l1, refcounts, freed } = state;
        let Some(refcounts) = refcounts.as_mut() else { return self.inner.flush() };
        for block in &refcounts.dirty {
            let place = refcounts.blocks.get(*block).copied().filter(|place| *place != 0);
            let place = place.ok_or_else(|| damaged(0, "refcounts have no block"))?;
            self.inner.write_at(&refcounts.block(header, *block), place)?;
        }
        let place_of = |table: &usize| l1.get(*table).map_or(0, |entry| entry & PLACE);
        for (n, table) in tables.iter().filter(|(_, table)| table.is_new) {
            self.inner.write_at(&bytes_of(&table.entries), place_of(n))?;
        }
        self.inner.flush()?;
        if !refcounts.dirty_table.is_empty() {
            for n in &refcounts.dirty_table {
                let entry = refcounts.blocks.get(*n).copied().unwrap_or(0);
                self.inner.write_at(&entry.to_be_bytes(), header.refcounts_at + *n as u64 * 8)?;
            }
            self.inner.flush()?;
        }
        let mut is_written = false;
        for (n, table) in tables.iter().filter(|(_, table)| table.is_dirty && !table.is_new) {
            self.inner.write_at(&bytes_of(&table.entries), place_of(n))?;
            is_written = true;
        }
        for n in dirty_l1.iter() {
            let entry = l1.get(*n).copied().unwrap_or(0);
            self.inner.write_at(&entry.to_be_bytes(), header.l1_at + *n as u64 * 8)?;
            is_written = true;
        }
        if is_written {
            self.inner.flush()?;
        }
        refcounts.dirty.clear();
        refcounts.dirty_table.clear();
        dirty_l1.clear();
        for table in tables.values_mut() {
            (table.is_dirty, table.is_new) = (false, false);
        }
        for place in std::mem::take(freed) {
            if let Some(free) = refcounts.drop_reference(header, place) {
                // (Only to save space.)
                let _ = self.inner.discard(free, header.cluster());
            }
        }
        self.is_dirty.store(!refcounts.dirty.is_empty(), Ordering::Release);
        Ok(())
    }

    /// Frees the whole clusters of a range.
    pub(super) fn drop_clusters(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Discard, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Discard, offset, len, self.header.size)?;
        if !self.can_discard() {
            let why = io::Error::new(io::ErrorKind::Unsupported, "it has a backing file");
            return Err(DeviceError::new(DeviceOp::Discard, offset, len, why));
        }
        let whole = self.whole_clusters(offset, len);
        self.empty_clusters(whole.start, whole.end, false)
    }

    /// Makes a range read as zeros.
    pub(super) fn zero(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Zero, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Zero, offset, len, self.header.size)?;
        let mut whole = self.whole_clusters(offset, len);
        if whole.is_empty() || !self.can_discard() {
            whole = offset + len..offset + len;
        }
        self.write_zeros(offset, whole.start)?;
        self.empty_clusters(whole.start, whole.end, true)?;
        self.write_zeros(whole.end, offset + len)
    }

    fn write_zeros(&self, mut at: u64, end: u64) -> Result<()> {
        let zeros = vec![0; (end - at).min(1 << 20) as usize];
        while at < end {
            let len = (end - at).min(zeros.len() as u64);
            self.write(&zeros[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    /// The clusters that lie in a range; the last one of the disk may be short.
    fn whole_clusters(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        let cluster = self.header.cluster();
        let end = offset + len;
        let end = if end == self.header.size { end } else { end / cluster * cluster };
        let start = offset.next_multiple_of(cluster);
        start..end.max(start)
    }

    /// Makes clusters empty. With a backing file they are marked as zeros, if `all` also those that
    /// are nowhere.
    fn empty_clusters(&self, start: u64, end: u64, all: bool) -> Result<()> {
        let cluster = self.header.cluster();
        let mut at = start;
        while at < end {
            let (table, next) = self.span(at, end);
            let mut state = self.state.write();
            self.bound_dirty(&mut state)?;
            self.load(&mut state, table)?;
            let empty = if self.backing.is_some() { ZERO } else { 0 };
            while at < next {
                let index = self.index(at);
                let entry = state.entry(table, index);
                let stays = entry == empty || entry == ZERO || (entry == 0 && !all);
                if !stays {
                    self.map(&mut state, table, index, empty)?;
                }
                at += cluster;
            }
        }
        Ok(())
    }

    /// Writes what is left, and cuts what was added to the file and is not used.
    pub(super) fn close(&mut self) {
        if self.is_read_only() {
            return;
        }
        // (The second one writes the refcounts of what the first one freed.)
        let is_done = self.settle().is_ok() && self.settle().is_ok();
        let state = self.state.get_mut();
        let Some(refcounts) = state.refcounts.as_ref().filter(|_| is_done) else { return };
        let used = refcounts.used(&self.header).next_multiple_of(self.inner.alignment() as u64);
        if refcounts.counts.len() > refcounts.end && used < self.inner.size() {
            let _ = self.inner.set_size(used);
        }
    }
}

/// The bytes of a table.
fn bytes_of(entries: &[u64]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_be_bytes()).collect()
}
