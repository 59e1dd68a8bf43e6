//! A device below a volume that is opened again.

use std::collections::BTreeMap;
use std::sync::Arc;

use extol_block::{BlockDevice, DeviceError, DeviceOp, MemDevice, Result};
use extol_sync::plain::Mutex;

const PAGE: u64 = 512;

/// A buffered file: what is written lies in a page cache before it is on the medium. A flush that
/// fails writes nothing and marks the pages as clean, as Linux does.
#[derive(Debug)]
pub struct HostFile {
    medium: Arc<MemDevice>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// Contents of cached pages, and whether they are dirty.
    cached: BTreeMap<u64, (Vec<u8>, bool)>,
    flushes_fail: bool,
}

impl HostFile {
    pub fn new(medium: Arc<MemDevice>) -> Self {
        Self { medium, pages: Mutex::default() }
    }

    /// From now on flushes fail, or not.
    pub fn fail_flushes(&self, fail: bool) {
        self.pages.lock().flushes_fail = fail;
    }

    /// Memory is short: all clean pages go.
    pub fn evict(&self) {
        self.pages.lock().cached.retain(|_, (_, dirty)| *dirty);
    }
}

impl BlockDevice for HostFile {
    fn size(&self) -> u64 {
        self.medium.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn drop_page_cache(&self) {
        let _ = self.flush();
        self.evict();
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let pages = self.pages.lock();
        self.medium.read_at(buf, offset)?;
        let end = offset + buf.len() as u64;
        for (nr, (bytes, _)) in pages.cached.range(offset / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = ((nr * PAGE).max(offset), ((nr + 1) * PAGE).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - nr * PAGE) as usize..(to - nr * PAGE) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut pages = self.pages.lock();
        let end = offset + buf.len() as u64;
        for nr in offset / PAGE..end.div_ceil(PAGE) {
            let mut old = vec![0; PAGE as usize];
            self.medium.read_at(&mut old, nr * PAGE)?;
            let (from, to) = ((nr * PAGE).max(offset), ((nr + 1) * PAGE).min(end));
            let (bytes, dirty) = pages.cached.entry(nr).or_insert((old, false));
            bytes[(from - nr * PAGE) as usize..(to - nr * PAGE) as usize]
                .copy_from_slice(&buf[(from - offset) as usize..(to - offset) as usize]);
            *dirty = true;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut pages = self.pages.lock();
        let fails = pages.flushes_fail;
        for (nr, (bytes, dirty)) in &mut pages.cached {
            if std::mem::take(dirty) && !fails {
                self.medium.write_at(bytes, nr * PAGE)?;
            }
        }
        if fails {
            let error = std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            return Err(DeviceError::new(DeviceOp::Flush, 0, 0, error));
        }
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.write_at(&vec![0; len as usize], offset)
    }
}
