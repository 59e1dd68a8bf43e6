//! The calls of Linux.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::mounts::DeviceNumber;
use crate::users::Stat;

/// Fills a buffer with random bytes that are fit for keys (getrandom(2)).
pub(crate) fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The target of a link in `/proc`, without a request to its file system (statx(2) with
/// `AT_STATX_DONT_SYNC`).
pub(crate) fn look_at(link: &Path) -> Option<Stat> {
    let asked = StatxFlags::MNT_ID | StatxFlags::TYPE | StatxFlags::INO;
    let stat = rustix::fs::statx(CWD, link, AtFlags::STATX_DONT_SYNC, asked).ok()?;
    let has = StatxFlags::from_bits_retain(stat.stx_mask);
    let kind = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into());
    Some(Stat {
        mount: has.contains(StatxFlags::MNT_ID).then_some(stat.stx_mnt_id),
        dev: DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
        ino: stat.stx_ino,
        rdev: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        is_block_device: kind == rustix::fs::FileType::BlockDevice,
    })
}
