//! The bare device: a file is a range of it.
//!
//! What a medium allows, without a file system: reads and writes go to the device at once (direct
//! I/O where it can), a sync is a flush. A file gets the next free range when it is made, of the
//! size that it is made with; nothing is written down, nothing is ever freed. Names beyond that
//! (directories, removing, renaming, listing) are refused with one line.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockDevice as _, DeviceError, SharedDevice};
use parking_lot::Mutex;

use super::{DirItem, Target, TargetFile};

/// Ranges begin at multiples of this.
const STEP: u64 = 1 << 20;
/// A file that does not say how large it gets has this part of the device.
const PART: u64 = 16;

/// The device.
#[derive(Debug)]
pub struct Raw {
    device: SharedDevice,
    ranges: Mutex<Ranges>,
}

#[derive(Debug, Default)]
struct Ranges {
    known: BTreeMap<String, Arc<Range>>,
    free: u64,
}

/// A file.
#[derive(Debug)]
struct Range {
    start: u64,
    room: u64,
    /// Behind the last byte written.
    size: AtomicU64,
}

struct Handle {
    device: SharedDevice,
    range: Arc<Range>,
}

fn failed(error: DeviceError) -> io::Error {
    io::Error::other(error.to_string())
}

fn refused<T>(what: &str) -> io::Result<T> {
    let line =
        format!("the raw device has no {what}; it can take part in seq, rand and fsync-latency");
    Err(io::Error::new(io::ErrorKind::Unsupported, line))
}

impl Raw {
    /// Uses this device; what is on it is overwritten.
    #[must_use]
    pub fn new(device: SharedDevice) -> Self {
        Self { device, ranges: Mutex::default() }
    }

    fn handle(&self, range: Arc<Range>) -> Box<dyn TargetFile> {
        Box::new(Handle { device: Arc::clone(&self.device), range })
    }
}

impl Target for Raw {
    fn create_dir(&self, _: &str) -> io::Result<()> {
        refused("directories")
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        self.create_bulk(path, self.device.size() / PART, true)
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn TargetFile>> {
        let found = self.ranges.lock().known.get(path).cloned();
        found.map(|range| self.handle(range)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create_bulk(&self, path: &str, size: u64, _direct: bool) -> io::Result<Box<dyn TargetFile>> {
        let mut ranges = self.ranges.lock();
        let room = size.max(1).next_multiple_of(STEP);
        if ranges.known.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, path.to_owned()));
        }
        if room > self.device.size().saturating_sub(ranges.free) {
            let line = format!(
                "{path} of {room} bytes does not fit on the device of {} bytes any more",
                self.device.size()
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, line));
        }
        let range = Arc::new(Range { start: ranges.free, room, size: AtomicU64::new(0) });
        ranges.free += room;
        ranges.known.insert(path.to_owned(), Arc::clone(&range));
        Ok(self.handle(range))
    }

    fn open_bulk(&self, path: &str, _direct: bool) -> io::Result<Box<dyn TargetFile>> {
        self.open(path)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused("names to remove")
    }

    fn remove_dir(&self, _: &str) -> io::Result<()> {
        refused("directories")
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused("names to change")
    }

    fn link(&self, _: &str, _: &str) -> io::Result<()> {
        refused("links")
    }

    fn symlink(&self, _: &str, _: &str) -> io::Result<()> {
        refused("links")
    }

    fn chmod(&self, _: &str, _: u16) -> io::Result<()> {
        refused("modes")
    }

    fn set_times(&self, _: &str, _: i64) -> io::Result<()> {
        refused("times")
    }

    fn size_of(&self, _: &str) -> io::Result<u64> {
        refused("attributes")
    }

    fn entries(&self, _: &str) -> io::Result<Vec<DirItem>> {
        refused("directories")
    }

    fn list(&self, _: &str) -> io::Result<usize> {
        refused("directories")
    }

    fn touch(&self, _: &str) -> io::Result<()> {
        refused("times")
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        refused("directories")
    }

    fn sync(&self) -> io::Result<()> {
        self.device.flush().map_err(failed)
    }
}

impl TargetFile for Handle {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        if end > self.range.room {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the range on the raw device is full; give a larger --volume",
            ));
        }
        self.device.write_at(data, self.range.start + offset).map_err(failed)?;
        self.range.size.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.len()?.saturating_sub(offset);
        let count = left.min(buf.len() as u64) as usize;
        self.device.read_at(&mut buf[..count], self.range.start + offset).map_err(failed)?;
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.range.size.load(Ordering::Relaxed))
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.device.flush().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::MemDevice;

    fn raw(size: u64) -> Raw {
        Raw::new(Arc::new(MemDevice::new(size)))
    }

    #[test]
    fn files_are_ranges_that_do_not_meet() {
        let raw = raw(8 << 20);
        let a = raw.create_bulk("a", 3 << 20, true).unwrap();
        let b = raw.create_bulk("b", 1, true).unwrap();
        a.write_at(&[1; 4096], (3 << 20) - 4096).unwrap();
        b.write_at(&[2; 4096], 0).unwrap();
        let mut buf = [0; 8192];
        let again = raw.open("a").unwrap();
        assert_eq!(again.read_at(&mut buf, (3 << 20) - 4096).unwrap(), 4096);
        assert_eq!((buf[0], buf[4095], buf[4096]), (1, 1, 0));
        assert_eq!(b.read_at(&mut buf, 0).unwrap(), 4096);
        assert_eq!((buf[0], a.len().unwrap()), (2, 3 << 20));
        assert_eq!(a.write_at(&[1], 3 << 20).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let error = raw.create_bulk("c", 5 << 20, true).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(raw.create("a").is_err() && raw.open("d").is_err());
    }

    #[test]
    fn what_a_device_does_not_have_is_one_line() {
        let error = raw(1 << 20).create_dir("x").unwrap_err().to_string();
        assert!(
            error.contains("no directories") && error.contains("seq") && !error.contains('\n'),
            "{error}"
        );
    }
}
