//! qcow2 images, as QEMU has them, with tables of two levels that map clusters of the disk to
//! clusters of the file.
//!
//! ```text
//!  header ── L1 ──▶ L2 table ──▶ cluster of data       0: nothing here: the backing file, or zeros
//!     │                      └─▶ packed cluster        zero flag: zeros, whatever is below
//!     └── refcount table ──▶ refcount block            one count for each cluster of the file
//! ```
//!
//! Reading is in this file, the header in `header.rs`. What writes is in `write.rs`: see there for
//! the order of writes. It begins with a comparison of all refcounts with all references
//! (`refcounts.rs`).
//!
//! Locking: `state` is held shared while clusters that exist are read or written, exclusively
//! while mappings change. So no cluster is freed or moved under a request.
//!
//! - No number of the file is used before it is checked: tables and clusters are aligned, and
//!   inside of the file.
//! - Memory is bounded: the first table and the header by their most bytes, tables of the second
//!   level by [`MOST_TABLES`] bytes of those that are not dirty.

mod header;
mod refcounts;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extol_sync::plain::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use flate2::{Decompress, FlushDecompress, Status};

use crate::{BlockDevice, DeviceError, DeviceOp, Result, SharedDevice, check_range};

use super::damaged;
use super::numbers::Numbers;
pub(super) use header::{HEAD, Header};
use refcounts::Refcounts;

/// Most bytes of tables of the second level that are kept beside the dirty ones.
const MOST_TABLES: u64 = 64 << 20;

const COPIED: u64 = 1 << 63;
const PACKED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// The place in an entry of either level.
const PLACE: u64 = 0x00FF_FFFF_FFFF_FE00;

/// A qcow2 image as a device.
#[derive(Debug)]
pub struct Qcow2 {
    inner: SharedDevice,
    header: Header,
    backing: Option<SharedDevice>,
    state: RwLock<State>,
    /// It accepts writes.
    writes: AtomicBool,
    /// Tables are to be written before a flush is one.
    is_dirty: AtomicBool,
    /// The packed cluster that was read last: its entry and its bytes.
    unpacked: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
}

/// The tables.
#[derive(Debug)]
struct State {
    l1: Vec<u64>,
    /// Tables of the second level, by their number.
    tables: BTreeMap<usize, L2>,
    /// Entries of the first level that are to be written.
    dirty_l1: BTreeSet<usize>,
    /// What writing needs.
    refcounts: Option<Refcounts>,
    /// Clusters that nothing refers to as soon as the tables are durable.
    freed: Vec<u64>,
}

/// A table of the second level.
#[derive(Debug)]
struct L2 {
    entries: Vec<u64>,
    /// It is to be written.
    is_dirty: bool,
    /// Nothing durable refers to it.
    is_new: bool,
}

/// Where a cluster of the disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cluster {
    /// In the backing file, or nowhere.
    Below,
    Zeros,
    At(u64),
    Packed(u64),
}

/// A part of a request that lies in one cluster, or in several that follow each other in the file.
struct Piece {
    cluster: Cluster,
    /// Where it begins in the cluster.
    shift: u64,
    range: Range<usize>,
}

impl Qcow2 {
    /// True if a file begins as such an image.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        Header::is_one(first)
    }

    /// Opens an image over the device that it overlays.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        inner: SharedDevice,
        backing: Option<SharedDevice>,
    ) -> std::result::Result<Self, String> {
        let header = read_header(&*inner)?;
        let len = usize::try_from(header.l1_entries * 8).map_err(|_| "it is too large")?;
        let mut bytes = vec![0; len];
        if len > 0 {
            inner.read_at(&mut bytes, header.l1_at).map_err(|_| "it is cut short")?;
        }
        let state = State {
            l1: words(&bytes),
            tables: BTreeMap::new(),
            dirty_l1: BTreeSet::new(),
            refcounts: None,
            freed: Vec::new(),
        };
        let image = Self {
            header,
            backing,
            state: RwLock::new(state),
            writes: AtomicBool::new(false),
            is_dirty: AtomicBool::new(false),
            unpacked: Mutex::new(None),
            inner,
        };
        if !image.inner.is_read_only() {
            image.begin_writing()?;
        }
        Ok(image)
    }

    /// The version of the format, and the bytes of a cluster.
    #[must_use]
    pub fn format(&self) -> (u32, u64) {
        (self.header.version, self.header.cluster())
    }

    /// The clusters of one table, from `offset` to `end` at most.
    fn span(&self, offset: u64, end: u64) -> (usize, u64) {
        let bits = self.header.cluster_bits * 2 - 3;
        let table = offset >> bits;
        (usize::try_from(table).unwrap_or(usize::MAX), end.min((table + 1) << bits))
    }

    /// The state with a table of the second level in memory, if there is one.
    fn with_table(&self, table: usize) -> Result<RwLockReadGuard<'_, State>> {
        let state = self.state.read();
        if state.place(table) == 0 || state.tables.contains_key(&table) {
            return Ok(state);
        }
        drop(state);
        let mut state = self.state.write();
        self.load(&mut state, table)?;
        Ok(RwLockWriteGuard::downgrade(state))
    }

    /// Reads a table of the second level.
    fn load(&self, state: &mut State, table: usize) -> Result<()> {
        let place = state.place(table);
        if place == 0 || state.tables.contains_key(&table) {
            return Ok(());
        }
        let cluster = self.header.cluster();
        self.check_place(place, cluster)?;
        if state.tables.len() as u64 >= (MOST_TABLES / cluster).max(1) {
            state.tables.retain(|_, table| table.is_dirty);
        }
        let mut bytes = vec![0; cluster as usize];
        self.inner.read_at(&mut bytes, place)?;
        let entries = words(&bytes);
        state.tables.insert(table, L2 { entries, is_dirty: false, is_new: false });
        Ok(())
    }

    /// Refuses a place for metadata that is not aligned or not inside the file.
    fn check_place(&self, at: u64, len: u64) -> Result<()> {
        let cluster = self.header.cluster();
        let end = at.checked_add(len).filter(|end| *end <= self.inner.size());
        match end {
            Some(_) if at.is_multiple_of(cluster) && at >= cluster => Ok(()),
            _ => Err(damaged(at, "a table is not inside of it")),
        }
    }

    /// What an entry of the second level says.
    fn cluster(&self, entry: u64) -> Result<Cluster> {
        if entry & PACKED != 0 {
            return Ok(Cluster::Packed(entry));
        }
        // (Version 2 has no zero flag.)
        if entry & ZERO != 0 && self.header.version >= 3 {
            return Ok(Cluster::Zeros);
        }
        match entry & PLACE {
            0 => Ok(Cluster::Below),
            at if at.is_multiple_of(self.header.cluster()) && at >= self.header.cluster() => {
                Ok(Cluster::At(at))
            }
            at => Err(damaged(at, "a cluster is in no place for one")),
        }
    }

    /// Divides `offset..end`, which one table maps, where it is divided in the file.
    fn pieces(&self, state: &State, table: usize, offset: u64, end: u64) -> Result<Vec<Piece>> {
        let size = self.header.cluster();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = offset;
        while at < end {
            let shift = at % size;
            let next = end.min(at - shift + size);
            let cluster = self.cluster(state.entry(table, self.index(at)))?;
            let range = (at - offset) as usize..(next - offset) as usize;
            match (pieces.last_mut(), cluster) {
                (Some(last), Cluster::Below | Cluster::Zeros) if last.cluster == cluster => {
                    last.range.end = range.end;
                }
                (
                    Some(Piece { cluster: Cluster::At(from), shift, range: done }),
                    Cluster::At(to),
                ) if *from + *shift + done.len() as u64 == to => {
                    done.end = range.end;
                }
                _ => pieces.push(Piece { cluster, shift, range }),
            }
            at = next;
        }
        Ok(pieces)
    }

    /// The number of a cluster in its table.
    fn index(&self, offset: u64) -> usize {
        (offset >> self.header.cluster_bits) as usize & (self.header.l2_entries() as usize - 1)
    }

    /// Fills `buf` with what is at `offset` of the disk, `shift` bytes into a cluster.
    fn read_piece(&self, cluster: Cluster, shift: u64, buf: &mut [u8], offset: u64) -> Result<()> {
        match cluster {
            Cluster::Zeros => buf.fill(0),
            Cluster::Below => {
                let size = self.backing.as_ref().map_or(0, |backing| backing.size());
                let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
                let (there, rest) = buf.split_at_mut(len);
                rest.fill(0);
                if let Some(backing) = self.backing.as_ref().filter(|_| len > 0) {
                    backing.read_at(there, offset)?;
                }
            }
            Cluster::At(at) => {
                // (The last cluster of a file may be cut where it has only zeros.)
                let at = at + shift;
                let len = self.inner.size().saturating_sub(at).min(buf.len() as u64) as usize;
                let (there, rest) = buf.split_at_mut(len);
                rest.fill(0);
                if len > 0 {
                    self.inner.read_at(there, at)?;
                }
            }
            Cluster::Packed(entry) => {
                let bytes = self.unpack(entry)?;
                let part = bytes.get(shift as usize..shift as usize + buf.len());
                buf.copy_from_slice(part.ok_or_else(|| damaged(offset, "a cluster is short"))?);
            }
        }
        Ok(())
    }

    /// Where a packed cluster is in the file.
    fn packed_place(&self, entry: u64) -> Range<u64> {
        let bits = 62 - (self.header.cluster_bits - 8);
        let at = entry & ((1 << bits) - 1);
        let sectors = (entry & (PACKED - 1)) >> bits;
        at..(at / 512 + sectors + 1) * 512
    }

    /// The bytes of a packed cluster.
    fn unpack(&self, entry: u64) -> Result<Arc<Vec<u8>>> {
        let entry = entry & !COPIED;
        if let Some((of, bytes)) = &*self.unpacked.lock()
            && *of == entry
        {
            return Ok(bytes.clone());
        }
        let place = self.packed_place(entry);
        let end = place.end.min(self.inner.size());
        let len = end.checked_sub(place.start).filter(|len| *len > 0);
        let len = len.ok_or_else(|| damaged(place.start, "a packed cluster is not inside it"))?;
        // (At most two clusters: the field has so many bits.)
        let mut packed = vec![0; len as usize];
        self.inner.read_at(&mut packed, place.start)?;
        let mut bytes = vec![0; self.header.cluster() as usize];
        let mut inflate = Decompress::new(false);
        let done = inflate.decompress(&packed, &mut bytes, FlushDecompress::Finish);
        let is_whole = inflate.total_out() == bytes.len() as u64;
        if !is_whole || !matches!(done, Ok(Status::Ok | Status::StreamEnd | Status::BufError)) {
            return Err(damaged(place.start, "a packed cluster cannot be unpacked"));
        }
        let bytes = Arc::new(bytes);
        *self.unpacked.lock() = Some((entry, bytes.clone()));
        Ok(bytes)
    }
}

impl State {
    /// Where a table of the second level is; 0: nowhere.
    fn place(&self, table: usize) -> u64 {
        self.l1.get(table).map_or(0, |entry| entry & PLACE)
    }

    /// An entry of a table that is in memory, or of one that is nowhere.
    fn entry(&self, table: usize, index: usize) -> u64 {
        let table = self.tables.get(&table);
        table.and_then(|table| table.entries.get(index)).copied().unwrap_or(0)
    }
}

/// The header of an image.
pub(super) fn read_header(file: &dyn BlockDevice) -> std::result::Result<Header, String> {
    let mut first = vec![0; HEAD.min(usize::try_from(file.size()).unwrap_or(HEAD))];
    file.read_at(&mut first, 0).map_err(|_| "its header cannot be read")?;
    Header::parse(&first, file.size())
}

/// Big-endian words.
fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| Numbers(word).be64(0)).collect()
}

impl BlockDevice for Qcow2 {
    fn size(&self) -> u64 {
        self.header.size
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn is_read_only(&self) -> bool {
        !self.writes.load(Ordering::Acquire)
    }

    fn write_refusal(&self) -> Option<String> {
        self.refusal().map(|why| format!("a qcow2 image; {why}"))
    }

    fn make_writable(&self) -> Result<()> {
        self.become_writable()
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    fn keep_others_out(&self) -> Result<()> {
        self.inner.keep_others_out()
    }

    fn drop_page_cache(&self) {
        self.inner.drop_page_cache();
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(DeviceOp::Read, offset, buf.len() as u64, self.header.size)?;
        let end = offset + buf.len() as u64;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let (table, next) = self.span(at, end);
            let (part, more) = rest.split_at_mut((next - at) as usize);
            let state = self.with_table(table)?;
            for piece in self.pieces(&state, table, at, next)? {
                let place = at + piece.range.start as u64;
                let into = part.get_mut(piece.range).unwrap_or_default();
                self.read_piece(piece.cluster, piece.shift, into, place)?;
            }
            (at, rest) = (next, more);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_durably(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.settle()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.drop_clusters(offset, len)
    }

    fn can_discard(&self) -> bool {
        !self.is_read_only() && (self.backing.is_none() || self.header.version >= 3)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.zero(offset, len)
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        if bytes == self.header.size {
            return Ok(());
        }
        let why = "the size of a qcow2 image is changed by qemu-img resize (a smaller one by \
                   qemu-img resize --shrink)";
        let why = io::Error::new(io::ErrorKind::Unsupported, why);
        Err(DeviceError::new(DeviceOp::Resize, 0, bytes, why))
    }
}

impl Drop for Qcow2 {
    fn drop(&mut self) {
        self.close();
    }
}
