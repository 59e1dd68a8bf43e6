//! Volumes whose device is shorter than they are: copies that did not finish, disks that were
//! imaged in part.
//!
//! What is there is worth reading, and most of a volume's metadata lies at its start. So such a
//! volume is opened where nothing is written: [`Truncated`] is as long as the volume should be, and
//! what is missing is an I/O error at the place where it is needed. A write could land in what the
//! rest of the volume says is something else, so it is refused, at the open already.
//!
//! The superblock is not trusted: the descriptors of the groups that it states must be no larger
//! than what is there, so that a small file does not make a large volume.

use std::io;

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result, SharedDevice, pass_on};
use extol_ondisk::{Geometry, Incompat};

use crate::superblock::{read_superblock, truncation};

/// A device that ends before the volume on it does, for reading.
#[derive(Debug)]
struct Truncated {
    inner: SharedDevice,
    /// Bytes that the volume should have.
    size: u64,
}

/// The remark on a volume that is read all the same, if its device is too short for it. `place`:
/// the superblock, as [`MountOptions`](crate::MountOptions) has it.
pub fn truncated(device: &SharedDevice, place: Option<u64>) -> Option<String> {
    let (need, size) = (missing(device, place)?, device.size());
    Some(format!(
        "the volume is truncated: it should have {need} bytes and has {size}; it is only read, and \
         what is missing cannot be"
    ))
}

/// Bytes that the volume on a device should have, if that is shorter.
fn missing(device: &SharedDevice, place: Option<u64>) -> Option<u64> {
    let sb = read_superblock(&**device, place).ok()?;
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return None;
    }
    let need = sb.blocks_count.checked_mul(u64::from(sb.block_bytes()))?;
    if need <= device.size() {
        return None;
    }
    let geo = Geometry::new(&sb, Some(need)).ok()?;
    let descriptors = u64::from(geo.groups()).checked_mul(u64::from(geo.desc_size))?;
    (descriptors <= device.size()).then_some(need)
}

/// A device that is as long as the volume on it. It is only read if it had to be lengthened for
/// that.
pub(crate) fn whole(device: &SharedDevice, place: Option<u64>) -> SharedDevice {
    match missing(device, place) {
        None => SharedDevice::clone(device),
        Some(size) => std::sync::Arc::new(Truncated { inner: SharedDevice::clone(device), size }),
    }
}

impl Truncated {
    fn read_only(&self) -> DeviceError {
        let why = truncation(self.size.into(), self.inner.size());
        let why = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why);
        DeviceError::new(DeviceOp::Open, 0, 0, why)
    }
}

impl BlockDevice for Truncated {
    pass_on!(abilities);

    fn size(&self) -> u64 {
        self.size
    }

    fn size_now(&self) -> u64 {
        // What was cut since then is missing as well.
        let now = self.inner.size_now();
        if now < self.inner.size() { now } else { self.size }
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn table_sector(&self) -> u64 {
        self.inner.table_sector()
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    fn object(&self) -> Option<usize> {
        self.inner.object()
    }

    fn drop_page_cache(&self) {
        self.inner.drop_page_cache();
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn write_refusal(&self) -> Option<String> {
        Some(truncation(self.size.into(), self.inner.size()))
    }

    fn make_writable(&self) -> Result<()> {
        Err(self.read_only())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.inner.size()) {
            let why = io::Error::other("it lies behind the end of the truncated volume");
            return Err(DeviceError::new(DeviceOp::Read, offset, len, why));
        }
        self.inner.read_at(buf, offset)
    }

    fn data_from(&self, at: u64) -> Result<Option<std::ops::Range<u64>>> {
        if at < self.inner.size()
            && let Some(run) = self.inner.data_from(at)?
        {
            return Ok(Some(run));
        }
        // (What is missing need not have been zeros.)
        let start = at.max(self.inner.size());
        Ok((start < self.size).then_some(start..self.size))
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        Err(self.read_only())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(self.read_only())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(self.read_only())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::MemDevice;
    use extol_vfs::FsError;

    use super::*;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::{Ext4, MountOptions};

    const MIB: usize = 1 << 20;

    /// A volume of 64 MiB with files that hold their numbers, and its bytes.
    fn volume(features: &[&str]) -> Vec<u8> {
        let device = Arc::new(MemDevice::new(64 * MIB as u64));
        let mut options = MkfsOptions::default();
        options.features.extend(features.iter().map(|feature| (*feature).to_owned()));
        mkfs(&*device, &options, &mut |_| {}).unwrap();
        let fs = Ext4::open(device.clone(), &MountOptions::default()).unwrap();
        for nr in 0..40_u8 {
            fs.write_file(format!("/f{nr}"), vec![nr; MIB]).unwrap();
        }
        fs.unmount().unwrap();
        let mut bytes = vec![0; 64 * MIB];
        device.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn what_is_there_is_read() {
        let bytes = volume(&[]);
        let cut: SharedDevice = Arc::new(MemDevice::from_bytes(&bytes[..32 * MIB]));
        let why = Ext4::open(cut.clone(), &MountOptions::default()).unwrap_err().to_string();
        assert!(why.contains("should have 67108864 bytes and has 33554432"), "{why}");
        assert!(why.contains("-o ro"), "{why}");
        let fs = Ext4::open(cut.clone(), &MountOptions::default().read_only()).unwrap();
        assert!(fs.notes().iter().any(|note| note.contains("is truncated")), "{:?}", fs.notes());
        let (mut whole, mut missing) = (0, 0);
        for nr in 0..40_u8 {
            match fs.read_file(format!("/f{nr}")) {
                Ok(bytes) => {
                    assert!(bytes == vec![nr; MIB], "{nr}");
                    whole += 1;
                }
                Err(error) => {
                    assert!(matches!(error, FsError::Io(_)), "{nr}: {error}");
                    missing += 1;
                }
            }
        }
        assert!(whole >= 10 && missing >= 10 && whole + missing == 40, "{whole} {missing}");
        assert!(fs.create_dir("/new").is_err());
        fs.unmount().unwrap();
        assert!(crate::info(&cut).is_ok() && crate::header(&cut, None).is_ok());
    }

    /// A superblock on a few bytes states the largest volume that there can be.
    #[test]
    fn a_small_file_is_no_large_volume() {
        let mut bytes = volume(&["^metadata_csum"]);
        bytes.truncate(MIB);
        let blocks: u64 = 1 << 40;
        bytes[1024 + 4..][..4].copy_from_slice(&(blocks as u32).to_le_bytes());
        bytes[1024 + 0x150..][..4].copy_from_slice(&((blocks >> 32) as u32).to_le_bytes());
        let device: SharedDevice = Arc::new(MemDevice::from_bytes(&bytes));
        assert_eq!(truncated(&device, None), None);
        assert!(Ext4::open(device, &MountOptions::default().read_only()).is_err());
    }
}
