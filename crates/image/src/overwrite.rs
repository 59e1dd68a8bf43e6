//! The rule for what a new volume would take the place of: something that can be told (a file
//! system, partitions, a disk image, a member of a RAID) is overwritten only if the caller says so,
//! and a device that is in use never is.
//!
//! - OW-1: nothing is written, and no file is lengthened, before the device was looked at. [`mkfs`]
//!   and [`build_tree`] look themselves, so that no caller can forget it.
//!
//! [`mkfs`]: crate::mkfs::mkfs()
//! [`build_tree`]: crate::build::build_tree

use extol_block::open::{self, Opened};
use extol_block::{BlockDevice, Claim, DeviceError, DeviceOp, Result as DeviceResult, check_range};

use crate::mkfs::{MkfsError, MkfsOptions, Result};

/// The start of a device.
#[derive(Debug)]
struct Start<'d> {
    device: &'d dyn BlockDevice,
    len: u64,
}

impl BlockDevice for Start<'_> {
    fn size(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        check_range(DeviceOp::Read, offset, buf.len() as u64, self.len)?;
        self.device.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        let why = std::io::ErrorKind::ReadOnlyFilesystem.into();
        Err(DeviceError::new(DeviceOp::Write, offset, buf.len() as u64, why))
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

/// The loss that a volume of `size` bytes (without a size: of the whole device) would be, as a
/// noun: `"an ext4 file system labelled 'data'"`. `None`: nothing that can be told.
#[must_use]
pub fn loss(device: &dyn BlockDevice, size: Option<u64>) -> Option<String> {
    let len = size.unwrap_or(u64::MAX).min(device.size());
    open::contents(&Start { device, len })
}

/// The loss on an opened part of a disk, as the end of a sentence whose beginning names it: the
/// partitions that the part touches, or what it holds.
#[must_use]
pub fn loss_in(opened: &Opened, size: Option<u64>) -> Option<Loss> {
    if let Some(start) = opened.start() {
        let len = size.unwrap_or(u64::MAX).min(opened.device.size());
        let others = open::in_range(&*opened.disk, &(start..start.saturating_add(len)));
        if !others.is_empty() {
            return Some(Loss::Others(others));
        }
    }
    loss(&*opened.device, size).map(Loss::Contents)
}

/// What would be lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// What the device or part holds.
    Contents(String),
    /// Partitions in its range.
    Others(Vec<String>),
}

/// Refuses a device that holds something, unless the options say that it may be lost.
pub(crate) fn check(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<()> {
    if options.overwrite || options.force {
        return Ok(());
    }
    match loss(device, options.size) {
        Some(what) => Err(MkfsError::Holds { place: "the device".into(), what }),
        None => Ok(()),
    }
}

/// Refuses a device that is in use in this process or would lose something, and claims it until the
/// result is dropped.
pub(crate) fn claim(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<Option<Claim>> {
    if options.dry_run {
        return Ok(None);
    }
    let claim = Claim::take(device, true)?;
    check(device, options)?;
    Ok(Some(claim))
}
