//! Holes of disk images, and changes of their size.

use super::FileDevice;
use super::discard::is_unsupported;
use super::open::length;
use super::transfer::retry;
use crate::{BlockDevice as _, DeviceError, DeviceOp, Result};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl FileDevice {
    /// The first range of data behind `at`. A block device does not tell its holes.
    pub(super) fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.size();
        if at >= size {
            return Ok(None);
        }
        let start = match retry(|| rustix::fs::seek(self.file(), SeekFrom::Data(at))) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(e) if is_unsupported(e) => return Ok(Some(at..size)),
            Err(e) => return Err(e.into()),
        };
        if start >= size {
            return Ok(None);
        }
        let end = retry(|| rustix::fs::seek(self.file(), SeekFrom::Hole(start)))?;
        // (A file that another process changes may give any answer.)
        Ok(Some(start.max(at)..end.clamp(start.saturating_add(1), size)))
    }

    /// Changes the size of a disk image, or takes over that of a disk.
    pub(super) fn change_size(&self, bytes: u64) -> Result<()> {
        let refused = |e: io::Error| DeviceError::new(DeviceOp::Resize, 0, bytes, e);
        let why = |kind, why: String| refused(io::Error::new(kind, why));
        if self.is_block_device {
            let now = length(self.file()).map_err(refused)?;
            if now < bytes {
                return Err(why(io::ErrorKind::Unsupported, format!("the disk has {now} bytes")));
            }
            self.size.store(now, Ordering::Release);
            return Ok(());
        }
        if !bytes.is_multiple_of(self.alignment() as u64) {
            let text = format!("it must be a multiple of {} bytes", self.alignment());
            return Err(why(io::ErrorKind::InvalidInput, text));
        }
        let old = self.size();
        // Requests keep inside of what is there at every instant.
        self.size.store(bytes.min(old), Ordering::Release);
        let changed = retry(|| rustix::fs::ftruncate(self.file(), bytes));
        self.size.store(if changed.is_ok() { bytes } else { old }, Ordering::Release);
        changed.map_err(|e| refused(e.into()))?;
        self.file().sync_all().map_err(|e| DeviceError::new(DeviceOp::Flush, 0, bytes, e))
    }
}
