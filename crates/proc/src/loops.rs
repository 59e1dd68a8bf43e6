//! Loop devices and the files below them, from sysfs.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::mounts::DeviceNumber;
use crate::text::{read, read_number};

/// A loop device with a file below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopDevice {
    /// Its directory in sysfs.
    pub sysfs: PathBuf,
    /// Its file in `/dev`.
    pub node: PathBuf,
    /// Its number.
    pub number: DeviceNumber,
    /// The file below it, as it was called when the device was attached.
    pub backing: PathBuf,
    /// Where in the file the device begins, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
}

impl LoopDevice {
    /// The loop device with this number, or the partition of one as a device over its file.
    /// `None`: there is none, or it has no file.
    #[must_use]
    pub fn of(number: DeviceNumber) -> Option<Self> {
        let sysfs = std::fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        if !sysfs.join("partition").exists() {
            return Self::in_sysfs(sysfs);
        }
        let disk = Self::in_sysfs(sysfs.parent()?.to_owned())?;
        disk.with_partitions().into_iter().find(|part| part.number == number)
    }

    fn in_sysfs(sysfs: PathBuf) -> Option<Self> {
        let backing = OsString::from_vec(read(sysfs.join("loop/backing_file"))?).into();
        let number = DeviceNumber::parse(&read(sysfs.join("dev"))?)?;
        let offset = read_number(sysfs.join("loop/offset")).unwrap_or(0);
        let size = read_number::<u64>(sysfs.join("size")).unwrap_or(u64::MAX).saturating_mul(512);
        let node = Path::new("/dev").join(sysfs.file_name()?);
        Some(Self { sysfs, node, number, backing, offset, size })
    }

    /// True if it shows a byte of this part of its file.
    #[must_use]
    pub fn overlaps(&self, part: &Range<u64>) -> bool {
        self.offset < part.end && part.start < self.offset.saturating_add(self.size)
    }

    /// The device and its partitions, each as a device over the file.
    #[must_use]
    pub fn with_partitions(&self) -> Vec<Self> {
        let entries = std::fs::read_dir(&self.sysfs).into_iter().flatten().flatten();
        let partition = |entry: std::fs::DirEntry| {
            let sysfs = entry.path();
            let sectors = |name| read_number::<u64>(sysfs.join(name));
            let start = sectors("partition").and_then(|_| sectors("start"))?.saturating_mul(512);
            Some(Self {
                node: Path::new("/dev").join(sysfs.file_name()?),
                number: DeviceNumber::parse(&read(sysfs.join("dev"))?)?,
                backing: self.backing.clone(),
                offset: self.offset.saturating_add(start),
                size: sectors("size")?.saturating_mul(512),
                sysfs,
            })
        };
        std::iter::once(self.clone()).chain(entries.filter_map(partition)).collect()
    }

    /// All that have a file.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let is_loop = |name: &OsStr| name.as_bytes().starts_with(b"loop");
        entries
            .filter(|entry| is_loop(&entry.file_name()))
            .filter_map(|entry| Self::in_sysfs(entry.path()))
            .collect()
    }
}

/// The loop devices over a file, which is known by its device and inode number.
#[must_use]
pub fn loop_devices_over(dev: u64, ino: u64) -> Vec<LoopDevice> {
    let over = |device: &LoopDevice| {
        let file = std::fs::metadata(&device.backing);
        file.is_ok_and(|file| file.dev() == dev && file.ino() == ino)
    };
    LoopDevice::all().into_iter().filter(over).collect()
}
