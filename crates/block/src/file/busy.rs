//! Keeps two writers of one volume apart.
//!
//! - *Kernel mounts, dm, swap, another Extol on a block device*: an open with `O_EXCL`, which all
//!   of them use. For a `fuseblk` mount the kernel takes over the claim.
//! - *Another Extol on a disk image*: `flock`, exclusive for a writer, shared for a reader.
//! - *A kernel mount of a loop device over the image*: the image's loop devices are looked up in
//!   sysfs and opened with `O_EXCL`. A busy one refuses the open; idle ones stay claimed while the
//!   image is open, so that they cannot be mounted.
//! - *fuse2fs and its kind on a disk image*, which lock nothing: a process that serves a mount of
//!   FUSE and has the image open for writing refuses the open.
//! - *Extol on a loop device, another on its image*: opening a loop device also locks its backing
//!   file.
//!
//! Not kept out here: a loop device attached later to an image that is open, and file systems
//! without `flock` ([`Claims::locked`]). The file system's guard watches for those. Before a
//! stopped volume is opened again, loop devices attached meanwhile are looked up like the first
//! ones ([`claim_new_loops`]); a sandbox may allow no more than the look at the mount table.
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

use super::holder::{self, MountedAt};
use extol_proc::{DeviceNumber, LoopDevice, Process, Shown as _};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// Loop devices over an image, to keep open.
#[derive(Debug, Default)]
pub(super) struct Loops(Mutex<Vec<(DeviceNumber, File)>>);

impl Loops {
    fn held(&self) -> MutexGuard<'_, Vec<(DeviceNumber, File)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, device: DeviceNumber) -> bool {
        self.held().iter().any(|(number, _)| *number == device)
    }
}

/// What keeps others away.
#[derive(Debug)]
pub(super) struct Claims {
    pub loops: Loops,
    /// The file below a loop device.
    backing: Option<Backing>,
    /// The file system of a disk image has locks. (True for block devices, which need none.)
    pub locked: bool,
}

/// The file below a loop device.
#[derive(Debug)]
struct Backing {
    file: File,
    /// Where the device begins in it. Elsewhere than at 0 it is not locked: several volumes may lie
    /// in one file.
    offset: u64,
}

impl Claims {
    /// For an open that claims nothing.
    pub fn none() -> Self {
        Self { loops: Loops::default(), backing: None, locked: true }
    }

    /// How much of the file below a loop device is left for the device. `None`: it is none, or the
    /// file is not known.
    pub fn size_below(&self) -> Option<u64> {
        let Backing { file, offset } = self.backing.as_ref()?;
        Some(file.metadata().ok()?.len().saturating_sub(*offset))
    }
}

/// Claims the opened file or device. The error names the holder and what to do.
pub(super) fn claim(file: &File, is_block_device: bool, read_only: bool) -> Result<Claims, String> {
    if is_block_device {
        let backing = claim_backing_file(file, read_only)?;
        return Ok(Claims { backing, ..Claims::none() });
    }
    let locked = lock(file, read_only)?;
    if !read_only {
        not_served_by_other(file)?;
    }
    let loops = if read_only { Loops::default() } else { claim_loop_devices(file)? };
    Ok(Claims { loops, locked, ..Claims::none() })
}

/// Fails if another FUSE file system than Extol has the image mounted for writing.
fn not_served_by_other(file: &File) -> Result<(), String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    extol_proc::other_server_over(&meta).map_or(Ok(()), |server| Err(server.to_string()))
}

/// Makes shared locks exclusive: that of a disk image, or those on the file behind a block device
/// (`claims`). On an error they are shared again.
pub(super) fn claim_more(
    file: &File,
    is_block_device: bool,
    claims: &Claims,
) -> Result<Loops, String> {
    let below = claims.backing.as_ref().filter(|backing| backing.offset == 0);
    let locked = if is_block_device { below.map(|backing| &backing.file) } else { Some(file) };
    // (This process has it mounted, too: the mount table does not show which mount is the other's.)
    let raise = |file| lock_beside(file, false, |_| None).map(|_| ());
    let mut more = locked.map_or(Ok(()), raise).map(|()| Loops::default());
    if more.is_ok() && !is_block_device {
        more = not_served_by_other(file).and_then(|()| claim_loop_devices(file));
    }
    if more.is_err() {
        // The kernel may have dropped the lock. If a writer has come since, this stays without one.
        let _ = locked.map(|file| lock(file, true));
    }
    more
}

/// Takes the advisory lock on a disk image. False if its file system has none.
fn lock(file: &File, read_only: bool) -> Result<bool, String> {
    lock_beside(file, read_only, holder::mounted_by_living)
}

/// As [`lock`]; `mount` returns where a living Extol has the file mounted.
fn lock_beside(
    file: &File,
    read_only: bool,
    mount: impl Fn(&Metadata) -> Option<MountedAt>,
) -> Result<bool, String> {
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    let meta = file.metadata().map_err(|error| error.to_string())?;
    let attempt = || super::transfer::retry(|| rustix::fs::flock(file, operation));
    let stays = |result: &_| *result == Err(Errno::WOULDBLOCK) && mount(&meta).is_none();
    match patiently(attempt, stays) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(match mount(&meta) {
            Some(at) => at.sentence(),
            None => {
                let holders = holder::living_holders(&meta);
                holder::left_behind(&holders).unwrap_or_else(|| locked_by(&holders, read_only))
            }
        }),
        // A file system without locks.
        Err(_) => Ok(false),
    }
}

/// What keeps the lock, as the end of a sentence that begins with the volume.
fn locked_by(holders: &[Process], read_only: bool) -> String {
    let process = holder::named(holders);
    if read_only {
        format!("is open for writing in another process{process}: unmount it there first")
    } else {
        format!(
            "is open in another process{process}: unmount it there first, or open it read-only \
             if that one only reads"
        )
    }
}

/// For a loop device: opens its backing file, and locks it, if all of it is the device, against an
/// Extol on that file.
fn claim_backing_file(device: &File, read_only: bool) -> Result<Option<Backing>, String> {
    let Ok(meta) = device.metadata() else { return Ok(None) };
    let Some(LoopDevice { backing: path, offset, .. }) =
        LoopDevice::of(DeviceNumber::of(meta.rdev()))
    else {
        return Ok(None);
    };
    let Ok(file) = File::open(&path) else { return Ok(None) };
    if offset == 0 {
        lock(&file, read_only).map_err(|why| format!("its backing file {} {why}", path.shown()))?;
    }
    Ok(Some(Backing { file, offset }))
}

/// Claims all loop devices over this file; fails if one is in use.
fn claim_loop_devices(file: &File) -> Result<Loops, String> {
    let loops = Loops::default();
    claim_new_loops(file, &loops, None)?;
    Ok(loops)
}

/// Claims those that were attached since the image was claimed.
pub(super) fn claim_new_loops(
    file: &File,
    loops: &Loops,
    more: Option<&Loops>,
) -> Result<(), String> {
    let Ok(meta) = file.metadata() else { return Ok(()) };
    let is_new = |number| !loops.has(number) && !more.is_some_and(|more| more.has(number));
    let over = extol_proc::loop_devices_over(meta.dev(), meta.ino());
    for device in over.into_iter().filter(|device| is_new(device.number)) {
        let node = device.node.as_path();
        match hold_exclusively(node) {
            Ok(claimed) => loops.held().push((device.number, claimed)),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                return Err(format!("backs {}, which {}", node.shown(), device_holder(node)));
            }
            Err(_) => {
                if let Some(at) = holder::kernel_mount(&numbers_below(&device.sysfs)) {
                    return Err(format!("backs {}, which {}", node.shown(), at.sentence()));
                }
            }
        }
    }
    Ok(())
}

/// Err if a loop device over this image is in use, but for what `daemon` claims itself. For a
/// process that asks the daemon of the image to write again: it may see and open what the daemon's
/// sandbox does not allow.
///
/// # Errors
/// One line that names the image and what uses it.
pub fn check_loop_devices(image: &Path, daemon: Option<Process>) -> crate::Result<()> {
    let Ok(meta) = std::fs::metadata(image) else { return Ok(()) };
    for device in extol_proc::loop_devices_over(meta.dev(), meta.ino()) {
        let node = device.node.as_path();
        let mut open = File::options();
        let opened = open.read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(node);
        let is_its = || {
            let users = extol_proc::device_users(device.number).users;
            daemon.is_none_or(|daemon| users.iter().any(|user| user.process == daemon))
        };
        let why = match holder::kernel_mount(&numbers_below(&device.sysfs)) {
            Some(at) => at.sentence(),
            None if is_busy(&opened) && !is_its() => device_holder(node),
            None => continue,
        };
        let why = format!("backs {}, which {why}", node.shown());
        return Err(super::open::refuse(image, std::io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// True if the kernel refuses writes to this block device. (Opening it for writing succeeds.)
pub(super) fn is_write_protected(device: &File) -> bool {
    let number = device.metadata().map(|meta| DeviceNumber::of(meta.rdev()));
    number.is_ok_and(|n| extol_proc::read_number(format!("/sys/dev/block/{n}/ro")) == Some(1))
}

/// Names what holds a block device, as the end of a sentence that begins with its path.
pub(super) fn device_holder(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else { return "is in use".into() };
    let mounted = mounted_device(path).or_else(|| holder::mount_of(&meta));
    if let Some(at) = mounted {
        return at.sentence();
    }
    let users = extol_proc::device_users(DeviceNumber::of(meta.rdev())).users;
    let users: Vec<_> = users.into_iter().map(|user| user.process).collect();
    if let Some(at) = holder::mount_elsewhere(&meta, &users) {
        return at.sentence();
    }
    if let Some(line) = holder::left_behind(&users) {
        return line;
    }
    let process = holder::named(&users);
    format!(
        "is in use by another process{process} or by the kernel: stop that one first, or open it \
         read-only"
    )
}

/// True if the kernel has a block device mounted.
fn is_mounted(path: &Path) -> bool {
    mounted_device(path).is_some()
}

/// Where a block device, or a partition of it, is mounted.
fn mounted_device(path: &Path) -> Option<MountedAt> {
    let number = DeviceNumber::of(std::fs::metadata(path).ok()?.rdev());
    holder::kernel_mount(&numbers_below(Path::new(&format!("/sys/dev/block/{number}"))))
}

/// The numbers of a device in sysfs and of its partitions.
fn numbers_below(sysfs: &Path) -> Vec<DeviceNumber> {
    let number = |dir: &Path| DeviceNumber::parse(&extol_proc::read(dir.join("dev"))?);
    let parts = std::fs::read_dir(sysfs).into_iter().flatten().flatten().map(|e| e.path());
    number(sysfs).into_iter().chain(parts.filter_map(|dir| number(&dir))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_holds_the_lock_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = File::open(file.path()).unwrap();
        rustix::fs::flock(&other, FlockOperation::LockExclusive).unwrap();
        let refused = lock_beside(file.as_file(), true, |_| None).unwrap_err();
        assert!(refused.starts_with("is open for writing in another process: "), "{refused}");
        let line = locked_by(&[Process(4_000_000_000)], false);
        assert!(line.starts_with("is open in another process, process 4000000000: "), "{line}");
        drop(other);
        assert_eq!(lock_beside(file.as_file(), false, |_| None), Ok(true));
    }

    /// A mount that the kernel has made of a device is found by the device's number.
    #[test]
    fn finds_the_root_mount() {
        let table = extol_proc::MountTable::own().expect("mount table");
        let first = table.iter().next().expect("a mount");
        assert!(holder::kernel_mount(&[first.device]).is_some());
        let none = DeviceNumber { major: 4095, minor: 1_048_575 };
        assert_eq!(holder::kernel_mount(&[none]), None);
    }
}
