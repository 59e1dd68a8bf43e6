//! Disk images on Windows, by what `std` has of files.
//!
//! All I/O goes through the page cache of the system. A flush is `FlushFileBuffers`, which reaches
//! the medium. An image that is open is locked, all of it, also where a part of it is used
//! (`LockFileEx`): a reader keeps writers away, a writer everything else. Such a lock is mandatory:
//! no other program reads what a writer has locked.
//!
//! Block devices (`\\.\PhysicalDrive0`) are not opened: nothing here keeps the system's own volumes
//! away from them, and they take whole sectors only.

mod options;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::windows::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use options::{Direct, OpenOptions};
use options::{describe, refuse};

use crate::coalesce::FlushCoalescer;
use crate::{BlockDevice, DeviceError, DeviceOp, Result, check_range, check_writable, sys};

/// A disk image. Closing it (drop) does not flush.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    read_only: bool,
    /// Other writers are kept out, or that was not wanted.
    locked: bool,
    flushes: FlushCoalescer,
}

/// Locks an image, all of it. False if its file system has no locks.
fn lock(file: &File, path: &Path, read_only: bool) -> Result<bool> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => {
            let why = "is open already, in this process or in another one: close it there first";
            Err(refuse(path, io::ErrorKind::ResourceBusy, why))
        }
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
        Err(TryLockError::Error(e)) => Err(refuse(path, e.kind(), describe(&e))),
    }
}

impl FileDevice {
    /// Opens with these options. The error names the path and what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let failed = |e: io::Error| refuse(path, e.kind(), describe(&e));
        if options.direct == Direct::On {
            let why = "direct I/O is not possible on this system";
            return Err(refuse(path, io::ErrorKind::Unsupported, why));
        }
        let create = options.create_size.filter(|_| !options.read_only);
        let mut open = File::options();
        open.read(true).write(!options.read_only).create(create.is_some());
        let file = open.open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(refuse(path, io::ErrorKind::InvalidInput, "is not a disk image"));
        }
        let locked = !options.exclusive || lock(&file, path, options.read_only)?;
        // (Its last user may have changed it before it was locked.)
        let mut size = file.metadata().map_err(failed)?.len();
        if let Some(wanted) = create.filter(|wanted| *wanted > size) {
            file.set_len(wanted).map_err(failed)?;
            size = wanted;
        }
        if size == 0 && !options.may_be_empty {
            return Err(refuse(path, io::ErrorKind::InvalidInput, "is empty"));
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            size: size.into(),
            read_only: options.read_only,
            locked,
            flushes: FlushCoalescer::new(),
        })
    }

    /// Lengthens a disk image to `bytes`.
    ///
    /// # Errors
    /// If it cannot be so long.
    pub fn lengthen(&mut self, bytes: u64, _direct: Direct) -> Result<()> {
        let set = self.file.set_len(bytes);
        set.map_err(|e| refuse(&self.path, e.kind(), describe(&e)))?;
        self.size = bytes.into();
        Ok(())
    }

    /// Does nothing: all of the image is claimed.
    ///
    /// # Errors
    /// None.
    pub fn claim_part(
        &mut self,
        _range: Range<u64>,
        _names: &dyn Fn(&Self) -> Vec<OsString>,
        _direct: Direct,
    ) -> Result<()> {
        Ok(())
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False: it is a disk image.
    pub fn is_block_device(&self) -> bool {
        false
    }

    /// Does nothing: that is for block devices.
    pub fn release_claim(&self) {}

    /// Does nothing: that is for block devices.
    ///
    /// # Errors
    /// None.
    pub fn claim_again(&self) -> Result<()> {
        Ok(())
    }

    /// 1, as of every disk image.
    pub fn sector_size(&self) -> u32 {
        1
    }

    /// False.
    pub fn is_direct(&self) -> bool {
        false
    }
}

/// Writes all of the buffer.
fn write_all(file: &File, mut buf: &[u8], mut at: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.seek_write(buf, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => (buf, at) = (&buf[n..], at + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn size_now(&self) -> u64 {
        self.file.metadata().map_or_else(|_| self.size(), |meta| meta.len())
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Fails: a name may lead to another file by now, and `std` does not tell files apart here.
    fn make_writable(&self) -> Result<()> {
        match self.read_only {
            true => {
                let why = "was opened read-only: close it, and open it for writing";
                Err(refuse(&self.path, io::ErrorKind::ReadOnlyFilesystem, why))
            }
            false => Ok(()),
        }
    }

    fn is_locked(&self) -> bool {
        self.locked
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_range(DeviceOp::Read, offset, len, self.size())?;
        let read = sys::read_exact_at(&self.file, buf, offset);
        read.map_err(|e| DeviceError::new(DeviceOp::Read, offset, len, e))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, self.size())?;
        let written = write_all(&self.file, buf, offset);
        written.map_err(|e| DeviceError::new(DeviceOp::Write, offset, len, e))
    }

    /// One write where there are many small ones: each is a call of the system.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        match bufs {
            [one] => self.write_at(one, offset),
            _ => self.write_at(&crate::joined(bufs), offset),
        }
    }

    fn fua_is_flush(&self) -> bool {
        true
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let sync = || {
            let synced = self.file.sync_all();
            synced.map_err(|e| DeviceError::new(DeviceOp::Flush, 0, self.size(), e))
        };
        self.flushes.run(sync)
    }

    fn can_discard(&self) -> bool {
        false
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        check_writable(DeviceOp::Resize, 0, bytes, self.is_read_only())?;
        let old = self.size();
        // Requests keep inside of what is there at every instant.
        self.size.store(bytes.min(old), Ordering::Release);
        let changed = self.file.set_len(bytes);
        self.size.store(if changed.is_ok() { bytes } else { old }, Ordering::Release);
        changed.map_err(|e| DeviceError::new(DeviceOp::Resize, 0, bytes, e))?;
        let synced = self.file.sync_all();
        synced.map_err(|e| DeviceError::new(DeviceOp::Flush, 0, bytes, e))
    }
}
