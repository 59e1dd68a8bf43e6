//! Keeps two writers of one volume apart.
//!
//! - *Kernel mounts, dm, swap, another Extol on a block device*: an open with `O_EXCL`, which all
//!   of them use. For a `fuseblk` mount the kernel takes over the claim.
//! - *Another Extol on a disk image*: `flock`, exclusive for a writer, shared for a reader.
//! - *A kernel mount of a loop device over the image*: the image's loop devices are looked up in
//!   sysfs and opened with `O_EXCL`. A busy one refuses the open; idle ones stay claimed while the
//!   image is open, so that they cannot be mounted.
//! - *Extol on a loop device, another on its image*: opening a loop device also locks its backing
//!   file.
//!
//! Not kept out here: a loop device attached later to an image that is open, and file systems
//! without `flock` ([`Claims::locked`]). The file system's guard watches for those.
//!
//! A killed process releases its locks late: requests given to an io_uring hold the file, and with
//! it the lock, until the kernel has finished them, after the process is gone. Opening the volume
//! before that would be wrong (those writes still arrive), and failing at once would let a start
//! after a crash succeed or fail by timing. So an open that finds the volume busy tries again for
//! up to [`PATIENCE`] ([`patiently`]), unless a living Extol has it mounted (`holder.rs`).
//!
//! A reader of a mounted device or image is allowed; it may see inconsistent data.
//!
//! Loop devices that permissions hide (those of other users) are looked up in the mount table.

use super::holder::{self, unescape};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a volume that is in use. Requests of a killed process take milliseconds, on
/// a disk under heavy load up to a second or two.
const PATIENCE: Duration = Duration::from_secs(3);

/// Repeats `attempt` while its result is busy, for up to [`PATIENCE`].
fn patiently<T>(mut attempt: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    loop {
        let result = attempt();
        if !is_busy(&result) || Instant::now() >= end {
            return result;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Opens a block device exclusively: no mount, no swap, no other exclusive open beside this one.
/// The file is only the claim: I/O uses another descriptor, so that the claim can be given to the
/// kernel ([`FileDevice::release_claim`](super::FileDevice::release_claim)).
pub(super) fn hold_exclusively(path: &Path) -> std::io::Result<File> {
    let attempt = || {
        let mut open = File::options();
        open.read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path)
    };
    patiently(attempt, |opened| is_busy(opened) && !is_mounted(path))
}

/// True if an open failed because the device is held.
fn is_busy(opened: &std::io::Result<File>) -> bool {
    opened.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}

/// What keeps others away.
#[derive(Debug)]
pub(super) struct Claims {
    /// Files to keep open.
    pub files: Vec<File>,
    /// The file system of a disk image has locks. (True for block devices, which need none.)
    pub locked: bool,
}

/// Claims the opened file or device. The error names the holder and what to do.
pub(super) fn claim(file: &File, is_block_device: bool, read_only: bool) -> Result<Claims, String> {
    if is_block_device {
        let files = claim_backing_file(file, read_only)?.into_iter().collect();
        return Ok(Claims { files, locked: true });
    }
    let locked = lock(file, read_only)?;
    let files = if read_only { Vec::new() } else { claim_loop_devices(file)? };
    Ok(Claims { files, locked })
}

/// Makes shared locks exclusive: that of a disk image, or those on the file behind a block device
/// (`claims`). On an error they are shared again.
pub(super) fn claim_more(
    file: &File,
    is_block_device: bool,
    claims: &[File],
) -> Result<Vec<File>, String> {
    let locked = if is_block_device { claims } else { std::slice::from_ref(file) };
    // (This process has it mounted, too: the mount table does not show which mount is the other's.)
    let raise = |file| lock_beside(file, false, || None).map(|_| ());
    let mut more = locked.iter().try_for_each(raise).map(|()| Vec::new());
    if more.is_ok() && !is_block_device {
        more = claim_loop_devices(file);
    }
    if more.is_err() {
        // The kernel may have dropped the lock. If a writer has come since, this stays without one.
        locked.iter().for_each(|file| drop(lock(file, true)));
    }
    more
}

/// Takes the advisory lock on a disk image. False if its file system has none.
fn lock(file: &File, read_only: bool) -> Result<bool, String> {
    lock_beside(file, read_only, || holder::mounted_by_living(file))
}

/// As [`lock`]; `holder` returns where a living Extol has the file mounted.
fn lock_beside(
    file: &File,
    read_only: bool,
    holder: impl Fn() -> Option<String>,
) -> Result<bool, String> {
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let attempt = || super::transfer::retry(|| rustix::fs::flock(file, operation));
    let stays = |result: &_| *result == Err(Errno::WOULDBLOCK) && holder().is_none();
    locked(patiently(attempt, stays), read_only, holder)
}

/// Evaluates the result of flock(2). `holder` returns where a living Extol has the file mounted.
fn locked(
    result: Result<(), Errno>,
    read_only: bool,
    holder: impl FnOnce() -> Option<String>,
) -> Result<bool, String> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(match holder() {
            Some(dir) => format!("is mounted at {dir}: unmount it first (extol umount {dir})"),
            None if read_only => {
                "is open for writing in another process: unmount it there first".into()
            }
            None => "is open in another process: unmount it there first, or open it read-only if \
                     that one only reads"
                .into(),
        }),
        // A file system without locks.
        Err(_) => Ok(false),
    }
}

/// For a whole loop device: locks its backing file against an Extol on that file.
fn claim_backing_file(device: &File, read_only: bool) -> Result<Option<File>, String> {
    let Ok(meta) = device.metadata() else { return Ok(None) };
    let sysfs = PathBuf::from(format!("/sys/dev/block/{}/loop", device_number(meta.rdev())));
    let offset = std::fs::read_to_string(sysfs.join("offset")).unwrap_or_default();
    let Some(path) = backing_file(&sysfs) else { return Ok(None) };
    if offset.trim() != "0" {
        // Several volumes may lie in one file.
        return Ok(None);
    }
    let Ok(backing) = File::open(&path) else { return Ok(None) };
    lock(&backing, read_only)
        .map_err(|why| format!("its backing file {} {why}", path.display()))?;
    Ok(Some(backing))
}

/// Claims all loop devices over this file; fails if one is in use.
fn claim_loop_devices(file: &File) -> Result<Vec<File>, String> {
    let mut claims = Vec::new();
    let (Ok(meta), Ok(devices)) = (file.metadata(), std::fs::read_dir("/sys/block")) else {
        return Ok(claims);
    };
    for entry in devices.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|n| n.starts_with("loop")) else { continue };
        let Some(backing) = backing_file(&entry.path().join("loop")) else { continue };
        let same = std::fs::metadata(backing)
            .is_ok_and(|b| b.dev() == meta.dev() && b.ino() == meta.ino());
        if !same {
            continue;
        }
        let node = Path::new("/dev").join(name);
        match hold_exclusively(&node) {
            Ok(claimed) => claims.push(claimed),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                return Err(format!("backs {}, which {}", node.display(), device_holder(&node)));
            }
            Err(_) => {
                if let Some(dir) = numbers_below(&entry.path()).iter().find_map(|n| mount_point(n))
                {
                    return Err(format!("backs {}, which {}", node.display(), mounted_at(&dir)));
                }
            }
        }
    }
    Ok(claims)
}

/// True if the kernel refuses writes to this block device. (Opening it for writing succeeds.)
pub(super) fn is_write_protected(device: &File) -> bool {
    let number = device.metadata().map(|meta| device_number(meta.rdev()));
    number.is_ok_and(|n| {
        std::fs::read_to_string(format!("/sys/dev/block/{n}/ro"))
            .is_ok_and(|text| text.trim() == "1")
    })
}

/// Names what holds a block device, as the end of a sentence that begins with its path.
pub(super) fn device_holder(path: &Path) -> String {
    match mounted_device(path) {
        Some(dir) => mounted_at(&dir),
        None => match std::fs::metadata(path).ok().and_then(|meta| holder::mount_of(&meta)) {
            Some(dir) => format!("is mounted at {dir}: unmount it first (extol umount {dir})"),
            None => "is in use by another process or by the kernel: \
                 stop that one first, or open it read-only"
                .into(),
        },
    }
}

/// True if the kernel has a block device mounted.
fn is_mounted(path: &Path) -> bool {
    mounted_device(path).is_some()
}

/// Where a block device, or a partition of it, is mounted.
fn mounted_device(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    let sysfs = PathBuf::from(format!("/sys/dev/block/{}", device_number(meta.rdev())));
    numbers_below(&sysfs).iter().find_map(|n| mount_point(n))
}

fn mounted_at(dir: &str) -> String {
    format!("is mounted at {dir}: unmount it first (umount {dir}), or open it read-only")
}

/// `major:minor` of a device in sysfs and of its partitions.
fn numbers_below(sysfs: &Path) -> Vec<String> {
    let number =
        |dir: &Path| std::fs::read_to_string(dir.join("dev")).ok().map(|s| s.trim().to_owned());
    let parts = std::fs::read_dir(sysfs).into_iter().flatten().flatten().map(|e| e.path());
    number(sysfs).into_iter().chain(parts.filter_map(|dir| number(&dir))).collect()
}

fn device_number(rdev: u64) -> String {
    format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// The file under a loop device, given its `loop` folder in sysfs.
fn backing_file(sysfs: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(sysfs.join("backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Where a device is mounted, by the mount table of this process.
fn mount_point(number: &str) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        // id, parent, major:minor, root, mount point
        let (device, dir) = (fields.nth(2)?, fields.nth(1)?);
        (device == number).then(|| unescape(dir))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_locks_differs_from_a_file_in_use() {
        for none in [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL] {
            assert_eq!(locked(Err(none), false, || None), Ok(false));
        }
        assert_eq!(locked(Ok(()), false, || None), Ok(true));
        assert!(locked(Err(Errno::WOULDBLOCK), false, || None).is_err());
    }

    #[test]
    fn finds_the_root_mount() {
        // Every process has something mounted; take the first entry of the table.
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("mount table");
        let first: Vec<&str> = table.lines().next().expect("a mount").split(' ').collect();
        assert!(mount_point(first[2]).is_some());
        assert_eq!(mount_point("4095:1048575"), None);
    }
}
