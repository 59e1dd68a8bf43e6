//! The device under the volume: memory that watches what is written where.
//!
//! File data that the tests write has a pattern. Once a volume is open, a write that begins with
//! the pattern, or that writes only a part of a block, must not touch the volume's own metadata: a
//! corrupt mapping was believed.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockDevice, MemDevice, Result};
use parking_lot::Mutex;

/// What all file data consists of.
pub const PATTERN: &[u8; 8] = b"XtolData";

/// `len` bytes of file data.
#[must_use]
pub fn pattern(len: usize) -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(len).collect()
}

/// A stretch of metadata, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// Does the file system also write parts of its blocks?
    pub partial: bool,
    /// Is it the log?
    pub log: bool,
    /// Is it still to be zeroed (a table of inodes)?
    pub unzeroed: bool,
}

/// Memory that watches.
#[derive(Debug)]
pub struct Disk {
    /// The contents.
    pub mem: MemDevice,
    /// Every write is a mistake.
    pub read_only: bool,
    block: AtomicU64,
    zones: Mutex<Vec<Zone>>,
    found: Mutex<Vec<String>>,
    requests: AtomicU64,
}

impl Disk {
    /// A disk that nothing was asked of yet.
    #[must_use]
    pub fn new(mem: MemDevice, read_only: bool) -> Arc<Self> {
        Arc::new(Self {
            mem,
            read_only,
            block: AtomicU64::new(1),
            zones: Mutex::default(),
            found: Mutex::default(),
            requests: AtomicU64::new(0),
        })
    }

    /// From now on file data must stay out of these.
    pub fn guard(&self, block: u64, mut zones: Vec<Zone>) {
        zones.sort_by_key(|z| z.start);
        self.block.store(block, Ordering::Relaxed);
        *self.zones.lock() = zones;
    }

    /// File data may go anywhere again.
    pub fn unguard(&self) {
        self.zones.lock().clear();
    }

    /// Reads and writes (also discards and the like) so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// What was seen and must not be.
    pub fn found(&self) -> Vec<String> {
        std::mem::take(&mut *self.found.lock())
    }

    fn look(&self, first: &[u8], offset: u64, len: u64, gone: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if len == 0 {
            return;
        }
        if self.read_only {
            self.found
                .lock()
                .push(format!("write of {len} bytes at {offset} on a read-only mount"));
            return;
        }
        let zones = self.zones.lock();
        if zones.is_empty() {
            return;
        }
        let is_data = first.len() >= 16 && first[..16].chunks(8).all(|c| c == PATTERN);
        let block = self.block.load(Ordering::Relaxed);
        let is_part = len < block;
        if !is_data && !is_part && !gone {
            return;
        }
        let from = zones.partition_point(|z| z.end <= offset);
        for z in zones[from..].iter().take_while(|z| z.start < offset + len) {
            let is_meant = z.unzeroed && (gone || is_part);
            if is_data || !is_meant && (gone || !z.partial) {
                let what = if is_data { "file data" } else { "zeros or a part of a block" };
                if std::env::var_os("EXTOL_SEED").is_some() {
                    eprintln!("{z:?}\n{}", std::backtrace::Backtrace::force_capture());
                }
                self.found
                    .lock()
                    .push(format!("{what} written at {offset}+{len}, block {}", offset / block));
                return;
            }
        }
    }
}

impl BlockDevice for Disk {
    fn size(&self) -> u64 {
        self.mem.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.mem.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.look(buf, offset, buf.len() as u64, false);
        self.mem.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.look(buf, at, buf.len() as u64, false);
            at += buf.len() as u64;
        }
        self.mem.write_vectored_at(bufs, offset)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.look(&[], offset, len, true);
        self.mem.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.look(&[], offset, len, true);
        self.mem.zero_range(offset, len)
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.look(&[], bytes, 1, false);
        self.mem.set_size(bytes)
    }
}
