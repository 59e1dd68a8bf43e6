//! The file system that shows a medium: a root directory with two files.
//!
//! ```text
//!   disk    the medium: as large as it is, never more or less
//!   stats   what it was asked and how it went, JSON, made anew by every read
//! ```
//!
//! Each read or write of `disk` is one request of the medium, each fsync one flush, a hole punched
//! is a discard, a zeroed range is a zeroed range. So a loop device on `disk` passes everything on
//! that a block device is asked for: it turns flushes into fsync(2), discards into holes. (It has
//! no durable writes; the kernel's block layer makes a write and a flush of one, as it does for
//! disks without.)
//!
//! Mount it with [`MountConfig::direct_io`](extol_fuse::MountConfig): behind a page cache the
//! medium would see other writes than were made, later, and a flush that comes alone.
//!
//! There is no state here, so no lock; the medium has its own.

use std::sync::Arc;

use extol_block::{BlockDevice as _, DeviceError, SharedDevice};
use extol_devices::EmulatedMedia;
use extol_vfs::{
    Attr, Creds, DirEntry, Fallocate, FileExtent, FileId, FileKind, FileSystem, FsError, Mountable,
    NewNode, RenameFlags, Result, Seek, SetAttr, StatFs, Timestamp, VolumeControl, XattrSet,
};

use super::Stats;

const ROOT: u32 = 1;
const DISK: u32 = 2;
const STATS: u32 = 3;

/// What directory entries say, in the order of their cookies.
const ENTRIES: [(u32, FileKind, &[u8]); 4] = [
    (ROOT, FileKind::Directory, b"."),
    (ROOT, FileKind::Directory, b".."),
    (DISK, FileKind::Regular, b"disk"),
    (STATS, FileKind::Regular, b"stats"),
];

/// A medium as a file system.
#[derive(Debug)]
pub struct MediumFs {
    medium: Arc<EmulatedMedia<SharedDevice>>,
    made: Timestamp,
    uid: u32,
    gid: u32,
}

impl MediumFs {
    /// Shows `medium`, owned by the user of this process.
    #[must_use]
    pub fn new(medium: Arc<EmulatedMedia<SharedDevice>>) -> Self {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            medium,
            made: Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        }
    }

    fn attr(&self, ino: u32) -> Result<Attr> {
        let (kind, perm, size) = match ino {
            ROOT => (FileKind::Directory, 0o755, 0),
            DISK if self.medium.is_read_only() => (FileKind::Regular, 0o400, self.medium.size()),
            DISK => (FileKind::Regular, 0o600, self.medium.size()),
            // As in /proc: its length is not known before it is read.
            STATS => (FileKind::Regular, 0o444, 0),
            _ => return Err(FsError::Stale),
        };
        let (id, owner) = (FileId { ino, generation: 0 }, Creds { uid: self.uid, gid: self.gid });
        Ok(Attr { size, blocks: size / 512, ..Attr::fresh(id, kind, perm, owner, self.made) })
    }

    fn stats(&self) -> String {
        let stats = Stats::of(&self.medium);
        serde_json::to_string_pretty(&stats).unwrap_or_default() + "\n"
    }

    /// `Ok` if the range lies on the disk.
    fn on_disk(&self, ino: u32, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            _ if ino != DISK => Err(FsError::NotPermitted),
            Some(end) if end <= self.medium.size() => Ok(()),
            _ => Err(FsError::NoSpace),
        }
    }
}

fn failed(error: DeviceError) -> FsError {
    match error.is_unsupported() {
        true => FsError::NotSupported("the medium cannot do this"),
        false => FsError::Io(error.to_string()),
    }
}

impl FileSystem for MediumFs {
    fn root(&self) -> u32 {
        ROOT
    }

    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        if dir != ROOT {
            return Err(FsError::NotADirectory);
        }
        let found = ENTRIES.iter().find(|(_, _, known)| *known == name);
        found.map_or(Err(FsError::NotFound), |(ino, _, _)| self.attr(*ino))
    }

    fn retain(&self, _ino: u32) {}

    fn forget(&self, _ino: u32, _n: u64) {}

    fn getattr(&self, ino: u32) -> Result<Attr> {
        self.attr(ino)
    }

    /// Times may be set, and are not kept.
    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr> {
        let now = self.attr(ino)?;
        let changes = set.size.is_some_and(|size| size != now.size)
            || set.perm.is_some_and(|perm| perm != now.perm)
            || set.uid.is_some_and(|uid| uid != now.uid)
            || set.gid.is_some_and(|gid| gid != now.gid)
            || set.flags.is_some()
            || set.project.is_some();
        if changes { Err(FsError::NotPermitted) } else { Ok(now) }
    }

    fn create(&self, _: u32, _: &[u8], _: NewNode, _: u16, _: u16, _: Creds) -> Result<Attr> {
        Err(FsError::NotPermitted)
    }

    fn create_unnamed(&self, _: u32, _: u16, _: u16, _: Creds) -> Result<Attr> {
        Err(FsError::NotPermitted)
    }

    fn link(&self, _: u32, _: u32, _: &[u8]) -> Result<Attr> {
        Err(FsError::NotPermitted)
    }

    fn unlink(&self, _: u32, _: &[u8]) -> Result<()> {
        Err(FsError::NotPermitted)
    }

    fn rmdir(&self, _: u32, _: &[u8]) -> Result<()> {
        Err(FsError::NotPermitted)
    }

    fn rename(&self, _: u32, _: &[u8], _: u32, _: &[u8], _: RenameFlags) -> Result<()> {
        Err(FsError::NotPermitted)
    }

    fn readlink(&self, _: u32) -> Result<Vec<u8>> {
        Err(FsError::Invalid("no symbolic link"))
    }

    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        if dir != ROOT {
            return Err(FsError::NotADirectory);
        }
        for (next, (ino, kind, name)) in (1..).zip(ENTRIES).skip_while(|(next, _)| *next <= cookie)
        {
            if !each(DirEntry { ino, cookie: next, kind: Some(kind), name: name.to_vec() }) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if ino == STATS {
            let text = self.stats();
            let rest = usize::try_from(offset)
                .ok()
                .and_then(|from| text.as_bytes().get(from..))
                .unwrap_or_default();
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            return Ok(count);
        }
        if ino != DISK {
            return Err(FsError::IsADirectory);
        }
        let left = self.medium.size().saturating_sub(offset);
        let count = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.medium.read_at(&mut buf[..count], offset).map_err(failed)?;
        Ok(count)
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8]) -> Result<usize> {
        self.on_disk(ino, offset, data.len() as u64)?;
        self.medium.write_at(data, offset).map_err(failed)?;
        Ok(data.len())
    }

    fn fallocate(&self, ino: u32, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.on_disk(ino, offset, len)?;
        match mode {
            Fallocate::Allocate { .. } => Ok(()),
            // A hole reads as zeros.
            Fallocate::PunchHole if self.medium.discard_zeroes() => {
                self.medium.discard(offset, len).map_err(failed)
            }
            Fallocate::ZeroRange { .. } => self.medium.zero_range(offset, len).map_err(failed),
            _ => Err(FsError::NotSupported("the medium cannot do this")),
        }
    }

    fn seek(&self, ino: u32, offset: u64, what: Seek) -> Result<u64> {
        let size = self.attr(ino)?.size;
        match what {
            _ if offset >= size => Err(FsError::NoDataThere),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn fiemap(&self, _: u32, _: u64, _: u64) -> Result<Vec<FileExtent>> {
        Err(FsError::NotSupported("a medium has no extents"))
    }

    fn fsync(&self, ino: u32, _data_only: bool) -> Result<()> {
        if ino == DISK { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.medium.flush().map_err(failed)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_size: 4096,
            blocks: self.medium.size() / 4096,
            blocks_free: 0,
            blocks_available: 0,
            inodes: 3,
            inodes_free: 0,
            name_max: 255,
        })
    }

    fn getxattr(&self, _: u32, _: &[u8]) -> Result<Vec<u8>> {
        Err(FsError::NoAttribute)
    }

    fn setxattr(&self, _: u32, _: &[u8], _: &[u8], _: XattrSet) -> Result<()> {
        Err(FsError::NotSupported("attributes of a medium"))
    }

    fn listxattr(&self, _: u32) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _: u32, _: &[u8]) -> Result<()> {
        Err(FsError::NoAttribute)
    }
}

impl VolumeControl for MediumFs {
    fn trim(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        Err(FsError::NotSupported("the medium does not know what is free on it"))
    }

    fn stats_json(&self) -> String {
        self.stats()
    }
}

impl Mountable for MediumFs {
    fn open_by_number(&self, ino: u32) -> Result<Attr> {
        self.attr(ino)
    }

    fn kill_privileges(&self, _: u32, _: bool) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::MemDevice;

    fn show(profile: &str) -> MediumFs {
        let inner: SharedDevice = Arc::new(MemDevice::new(1 << 20));
        MediumFs::new(Arc::new(EmulatedMedia::new(inner, profile.parse().expect("a profile"))))
    }

    #[test]
    fn every_request_reaches_the_medium_as_one() {
        let fs = show("ramdisk");
        let disk = fs.lookup(ROOT, b"disk").expect("there").id.ino;
        assert_eq!(fs.write(disk, 4096, &[7; 8192]), Ok(8192));
        fs.fsync(disk, true).expect("fsync");
        fs.fallocate(disk, Fallocate::PunchHole, 4096, 4096).expect("discard");
        fs.fallocate(disk, Fallocate::ZeroRange { keep_size: true }, 8192, 1000).expect("zero");
        let mut buf = [9; 9000];
        assert_eq!(fs.read(disk, 4096, &mut buf), Ok(9000));
        assert!(buf[..5096].iter().all(|b| *b == 0) && buf[5096..8192].iter().all(|b| *b == 7));
        assert_eq!(fs.read(disk, (1 << 20) - 10, &mut buf), Ok(10), "short only at the end");
        assert_eq!(fs.read(disk, 1 << 20, &mut buf), Ok(0));
        let asked = fs.medium.stats();
        assert_eq!((asked.writes, asked.write_bytes, asked.flushes), (1, 8192, 1));
        assert_eq!((asked.discards, asked.zeros), (1, 1));
    }

    #[test]
    fn the_disk_keeps_its_size() {
        let fs = show("ramdisk");
        assert_eq!(fs.write(DISK, 1 << 20, &[1]), Err(FsError::NoSpace));
        assert_eq!(fs.write(DISK, u64::MAX, &[1]), Err(FsError::NoSpace));
        assert_eq!(fs.fallocate(DISK, Fallocate::PunchHole, u64::MAX, 4096), Err(FsError::NoSpace));
        let size = |size| fs.setattr(DISK, &SetAttr { size: Some(size), ..SetAttr::default() });
        assert!(size(1 << 20).is_ok() && size(0).is_err());
        assert!(fs.write(STATS, 0, &[1]).is_err() && fs.read(ROOT, 0, &mut [0]).is_err());
    }

    #[test]
    fn a_medium_without_discard_says_so() {
        let fs = show("sata");
        let punched = fs.fallocate(DISK, Fallocate::PunchHole, 0, 4096);
        assert!(matches!(punched, Err(FsError::NotSupported(_))), "{punched:?}");
    }

    #[test]
    fn the_directory_can_be_read_in_parts() {
        let fs = show("ramdisk");
        let mut names = Vec::new();
        for cookie in 0.. {
            let before = names.len();
            fs.readdir(ROOT, cookie, &mut |entry| {
                names.push(String::from_utf8(entry.name).expect("ascii"));
                false
            })
            .expect("readdir");
            if names.len() == before {
                break;
            }
        }
        assert_eq!(names, [".", "..", "disk", "stats"]);
    }

    #[test]
    fn statistics_are_read_like_a_file() {
        let fs = show("cloud:latency=0");
        fs.fsync(DISK, false).expect("fsync");
        let mut buf = [0; 65536];
        let count = fs.read(STATS, 0, &mut buf).expect("read");
        let stats: Stats = serde_json::from_slice(&buf[..count]).expect("json");
        assert_eq!((stats.flushes, stats.flushes_asked, stats.writes), (1, 1, 0));
        assert!(stats.profile.starts_with("cloud:latency=0,"));
        assert_eq!(fs.read(STATS, 65536, &mut buf), Ok(0));
    }
}
