//! A device in memory.
//!
//! Sparse: bytes live in chunks of 64 KiB that are allocated by the first write into them, so a
//! device of a tebibyte costs only what was written. Chunks are spread over shards, each a map
//! behind its own reader/writer lock; two threads meet only when their chunks fall into the same
//! shard. A chunk is an `Arc`: [`MemDevice::snapshot`] shares all chunks, and the first write on
//! either side copies the one that it changes.
//!
//! The memory is "durable" at once: there is no cache to lose. To test crashes, put it under a
//! `RecordingDevice` (testing/devices).

use crate::{BlockDevice, DeviceOp, Result, check_range};
use extol_sync::plain::RwLock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CHUNK: usize = 64 << 10;
const SHARDS: usize = 64;

type Chunks = HashMap<u64, Arc<Vec<u8>>>;

/// A block device in memory.
pub struct MemDevice {
    size: AtomicU64,
    shards: Vec<RwLock<Chunks>>,
}

impl MemDevice {
    /// A device of `size` zero bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { size: size.into(), shards }
    }

    /// A device with these contents.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (nr, part) in (0u64..).zip(bytes.chunks(CHUNK)) {
            if part.iter().any(|b| *b != 0) {
                let mut chunk = part.to_vec();
                chunk.resize(CHUNK, 0);
                device.shard(nr).write().insert(nr, Arc::new(chunk));
            }
        }
        device
    }

    /// The whole contents. Allocates all of [`size`](BlockDevice::size).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let copy = self.snapshot();
        let mut bytes = vec![0; usize::try_from(copy.size()).unwrap_or(usize::MAX)];
        for shard in &copy.shards {
            for (nr, chunk) in &*shard.read() {
                let start = *nr as usize * CHUNK;
                let end = bytes.len().min(start + CHUNK);
                bytes[start..end].copy_from_slice(&chunk[..end - start]);
            }
        }
        bytes
    }

    /// An independent device with the contents of one instant. Cheap: memory is shared until one
    /// side writes.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        // All shards are locked before the first is copied, or the copy could have half of a write
        // across two shards.
        let locked: Vec<_> = self.shards.iter().map(RwLock::read).collect();
        let shards = locked.iter().map(|shard| RwLock::new(Chunks::clone(shard))).collect();
        Self { size: self.size().into(), shards }
    }

    /// Bytes of memory in use for contents.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64 * CHUNK as u64).sum()
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        &self.shards[(chunk % SHARDS as u64) as usize]
    }
}

/// Cuts a range into (chunk number, offset in the chunk, length).
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (chunk, inside) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
        let n = (end - at).min((CHUNK - inside) as u64);
        at += n;
        Some((chunk, inside, n as usize))
    })
}

impl std::fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemDevice").field("size", &self.size()).finish_non_exhaustive()
    }
}

impl BlockDevice for MemDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(DeviceOp::Read, offset, buf.len() as u64, self.size())?;
        let mut rest = buf;
        for (nr, inside, n) in pieces(offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(n);
            match self.shard(nr).read().get(&nr) {
                Some(chunk) => part.copy_from_slice(&chunk[inside..inside + n]),
                None => part.fill(0),
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_range(DeviceOp::Write, offset, len, self.size())?;
        let mut rest = buf;
        for (nr, inside, n) in pieces(offset, len) {
            let (part, behind) = rest.split_at(n);
            let mut shard = self.shard(nr).write();
            let chunk = shard.entry(nr).or_insert_with(|| Arc::new(vec![0; CHUNK]));
            Arc::make_mut(chunk)[inside..inside + n].copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_range(DeviceOp::Discard, offset, len, self.size())?;
        self.zero_range(offset, len)
    }

    fn discard_zeroes(&self) -> bool {
        true
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        check_range(DeviceOp::Zero, offset, len, self.size())?;
        if len / CHUNK as u64 > self.allocated() / CHUNK as u64 {
            // The range has more chunks than exist: visits those that exist.
            let wanted = offset / CHUNK as u64..=(offset + len - 1) / CHUNK as u64;
            let existing =
                self.shards.iter().flat_map(|s| s.read().keys().copied().collect::<Vec<_>>());
            for nr in existing.filter(|nr| wanted.contains(nr)).collect::<Vec<_>>() {
                let start = (nr * CHUNK as u64).max(offset);
                let end = ((nr + 1) * CHUNK as u64).min(offset + len);
                self.zero_piece(nr, (start % CHUNK as u64) as usize, (end - start) as usize);
            }
        } else {
            for (nr, inside, n) in pieces(offset, len) {
                self.zero_piece(nr, inside, n);
            }
        }
        Ok(())
    }

    fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        if at >= size {
            return Ok(None);
        }
        let chunks = self.shards.iter().flat_map(|s| s.read().keys().copied().collect::<Vec<_>>());
        let first = chunks.filter(|nr| (nr + 1) * CHUNK as u64 > at).min();
        Ok(first.map(|nr| (nr * CHUNK as u64).max(at)..((nr + 1) * CHUNK as u64).min(size)))
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        let old = self.size();
        if bytes < old {
            // What is added later reads as zeros.
            self.zero_range(bytes, old - bytes)?;
        }
        self.size.store(bytes, Ordering::Release);
        Ok(())
    }
}

impl MemDevice {
    fn zero_piece(&self, nr: u64, inside: usize, n: usize) {
        let mut shard = self.shard(nr).write();
        if n == CHUNK {
            shard.remove(&nr);
        } else if let Some(chunk) = shard.get_mut(&nr) {
            Arc::make_mut(chunk)[inside..inside + n].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, IoSliceMut};

    #[test]
    fn reads_back_what_was_written_across_chunks() {
        let d = MemDevice::new(4 * CHUNK as u64 + 100);
        let data: Vec<u8> = (0..2 * CHUNK + 50).map(|i| (i % 251) as u8).collect();
        d.write_at(&data, CHUNK as u64 - 7).expect("write");
        let mut back = vec![1; data.len() + 20];
        d.read_at(&mut back, CHUNK as u64 - 17).expect("read");
        assert!(back[..10].iter().chain(&back[data.len() + 10..]).all(|b| *b == 0));
        assert_eq!(back[10..data.len() + 10], data);
        assert_eq!(MemDevice::from_bytes(&d.to_bytes()).to_bytes(), d.to_bytes());
    }

    #[test]
    fn vectored_equals_plain() {
        let d = MemDevice::new(1000);
        d.write_vectored_at(&[IoSlice::new(b"abc"), IoSlice::new(b""), IoSlice::new(b"defg")], 10)
            .expect("write");
        let (mut a, mut b) = ([0; 5], [0; 2]);
        d.read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 10)
            .expect("read");
        assert_eq!((&a, &b), (b"abcde", b"fg"));
    }

    #[test]
    fn the_end_is_the_end() {
        let d = MemDevice::new(1000);
        d.write_at(&[1; 10], 990).expect("last bytes");
        d.write_at(&[], 1000).expect("nothing at the end");
        for offset in [991, 1000, u64::MAX, u64::MAX - 4] {
            assert!(d.write_at(&[1; 10], offset).is_err());
            assert!(d.read_at(&mut [0; 10], offset).is_err());
            assert!(d.discard(offset, 10).is_err());
            assert!(d.zero_range(offset, 10).is_err());
        }
    }

    #[test]
    fn sparse_and_zeroing_gives_memory_back() {
        let d = MemDevice::new(1 << 40);
        d.write_at(&[1; 3 * CHUNK], CHUNK as u64 / 2 + (1 << 39)).expect("write");
        assert_eq!(d.allocated(), 4 * CHUNK as u64);
        d.zero_range(1 << 39, 2 * CHUNK as u64).expect("zero");
        assert_eq!(d.allocated(), 2 * CHUNK as u64);
        d.discard(0, 1 << 40).expect("discard");
        assert_eq!(d.allocated(), 0);
        d.write_at(&[7; 100], 50).expect("write");
        d.zero_range(60, 1 << 30).expect("zero a huge range, partly");
        let mut back = [1; 100];
        d.read_at(&mut back, 50).expect("read");
        assert!(back[..10].iter().all(|b| *b == 7) && back[10..].iter().all(|b| *b == 0));
        d.zero_range(0, 0).expect("nothing");
    }

    #[test]
    fn a_cut_part_comes_back_as_zeros() {
        let d = MemDevice::new(3 * CHUNK as u64);
        d.write_at(&[1; 3 * CHUNK], 0).expect("write");
        d.set_size(CHUNK as u64 + 5).expect("cut");
        assert_eq!(d.size(), CHUNK as u64 + 5);
        assert!(d.write_at(&[1], CHUNK as u64 + 5).is_err());
        d.set_size(4 * CHUNK as u64).expect("grow");
        let bytes = d.to_bytes();
        assert!(bytes[..CHUNK + 5].iter().all(|b| *b == 1));
        assert!(bytes[CHUNK + 5..].iter().all(|b| *b == 0) && bytes.len() == 4 * CHUNK);
    }

    #[test]
    fn data_is_found_behind_holes() {
        let d = MemDevice::new(10 * CHUNK as u64);
        assert_eq!(d.data_from(0).expect("holes"), None);
        d.write_at(&[1; 10], 7 * CHUNK as u64 + 3).expect("write");
        let chunk = 7 * CHUNK as u64..8 * CHUNK as u64;
        assert_eq!(d.data_from(0).expect("data"), Some(chunk.clone()));
        assert_eq!(d.data_from(chunk.start + 5).expect("data"), Some(chunk.start + 5..chunk.end));
        assert_eq!(d.data_from(chunk.end).expect("a hole"), None);
        assert_eq!(d.data_from(u64::MAX).expect("nothing"), None);
    }

    #[test]
    fn no_data_is_behind_the_end_in_the_last_chunk() {
        let end = CHUNK as u64 + 5;
        let d = MemDevice::new(end);
        d.write_at(&[1; 3], end - 3).expect("write");
        assert_eq!(d.data_from(end - 1).expect("data"), Some(end - 1..end));
        assert_eq!(d.data_from(end).expect("the end"), None);
        assert_eq!(d.data_from(end + 1).expect("behind it"), None);
    }

    #[test]
    fn snapshots_are_independent() {
        let d = MemDevice::new(1 << 20);
        d.write_at(b"before", 0).expect("write");
        let old = d.snapshot();
        d.write_at(b"behind", 0).expect("write");
        let mut back = [0; 6];
        old.read_at(&mut back, 0).expect("read");
        assert_eq!(&back, b"before");
        old.write_at(b"other!", 0).expect("write");
        d.read_at(&mut back, 0).expect("read");
        assert_eq!(&back, b"behind");
    }

    #[test]
    fn many_threads_keep_their_own_ranges() {
        let d = MemDevice::new(1 << 24);
        std::thread::scope(|s| {
            for t in 0..8u8 {
                let d = &d;
                s.spawn(move || {
                    for i in 0..200u64 {
                        let at = (i * 8 + u64::from(t)) * 4096;
                        d.write_at(&[t + 1; 4096], at).expect("write");
                        let mut back = [0; 4096];
                        d.read_at(&mut back, at).expect("read");
                        assert!(back.iter().all(|b| *b == t + 1));
                    }
                });
            }
        });
    }
}
