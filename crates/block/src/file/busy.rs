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
//!   file: all of it, or as a part of it what the device shows. A partition of a loop device is a
//!   part of the file below that.
//! - *Parts of a disk image* (partitions, windows): several may be in use at a time. An open of a
//!   part takes the `flock` shared, also for writing, so that no writer has the whole image; then
//!   ([`claim_part`]) a lock on its range, exclusive for a writer, shared for a reader. A reader of
//!   the whole image locks the whole range as well. The first [`QEMU_BYTES`] are left out: QEMU
//!   would take a reader's lock there for its own.
//! - *QEMU on a disk image*: its own locks, which are taken here as well (`qemu.rs`).
//!
//! Not kept out here: a loop device attached later to an image that is open, and file systems
//! without `flock` ([`Claims::locked`]). The file system's guard watches for those; an open of the
//! image makes it look at once (`opens.rs`). Before a
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

use super::device_users::{device_holder, is_mounted, numbers_below};
use super::holder::{self, MountedAt};
use super::qemu;
use crate::sys::{self, RangeLock, lock_range};
use extol_proc::{DeviceNumber, LoopDevice, Process, Shown as _};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for a volume that is in use. Requests of a killed process take milliseconds, on
/// a disk under heavy load up to a second or two.
const PATIENCE: Duration = Duration::from_secs(3);

/// Repeats `attempt` while its result is busy, for up to [`PATIENCE`].
pub(super) fn patiently<T>(mut attempt: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
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
    patiently(|| sys::open_exclusively(path), |opened| is_busy(opened) && !is_mounted(path))
}

/// True if an open failed because the device is held.
pub(super) fn is_busy(opened: &std::io::Result<File>) -> bool {
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

/// Where QEMU keeps its locks: bytes 100 to 163 and 200 to 263.
const QEMU_BYTES: u64 = 264;

/// The range lock of an image, all of it or a part.
fn locked_range(part: &Range<u64>) -> Range<u64> {
    part.start.max(QEMU_BYTES)..part.end
}

/// Which part of an image an open uses.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The image is shared with the users of other parts.
    is_part: bool,
    /// Set once it is known.
    range: OnceLock<Range<u64>>,
    /// Loop devices that are in use, with the line to say if they show this part.
    busy_loops: Mutex<Vec<(LoopDevice, String)>>,
}

/// What keeps others away.
#[derive(Debug)]
pub(super) struct Claims {
    pub loops: Loops,
    pub part: Part,
    /// The file below a loop device.
    backing: Option<Backing>,
    /// The file system of a disk image has locks. (True for block devices, which need none.)
    pub locked: bool,
}

/// The file below a loop device.
#[derive(Debug)]
struct Backing {
    file: File,
    /// Where the device begins in it.
    offset: u64,
    locked: Below,
}

/// What is locked of the file below a loop device.
#[derive(Debug)]
enum Below {
    /// All of it.
    Whole,
    /// What the device shows. Several volumes may lie in one file.
    Part(Range<u64>),
    /// Nothing: it is no file, or has no locks.
    Nothing,
}

impl Claims {
    /// For an open that claims nothing.
    pub fn none() -> Self {
        Self { loops: Loops::default(), part: Part::default(), backing: None, locked: true }
    }

    /// How much of the file below a loop device is left for the device. `None`: it is none, or the
    /// file is not known.
    pub fn size_below(&self) -> Option<u64> {
        let Backing { file, offset, .. } = self.backing.as_ref()?;
        Some(file.metadata().ok()?.len().saturating_sub(*offset))
    }
}

/// Claims the opened file or device; of a file only the whole, or for a part ([`claim_part`]) what
/// can be claimed before it is known. The error names the holder and what to do.
pub(super) fn claim(
    file: &File,
    is_block_device: bool,
    read_only: bool,
    is_part: bool,
) -> Result<Claims, String> {
    if is_block_device {
        let backing = claim_backing_file(file, read_only)?;
        return Ok(Claims { backing, ..Claims::none() });
    }
    let is_part = is_part && sys::HAS_RANGE_LOCKS;
    let locked = lock(file, read_only || is_part)?;
    if !read_only {
        not_served_by_other(file)?;
    }
    let part = Part { is_part, ..Part::default() };
    let loops = Loops::default();
    if is_part && !read_only {
        *part.busy() = claim_loops(file, |number| !loops.has(number), &loops);
    } else if !read_only {
        claim_new_loops(file, &loops, None, &part)?;
    } else if !is_part && locked {
        lock_part(file, &(0..u64::MAX), true, None)?;
    }
    if locked {
        qemu::claim(file, read_only, is_part)?;
    }
    Ok(Claims { loops, part, locked, ..Claims::none() })
}

/// Names of a part, as mounts show them.
pub(super) type Names<'n> = &'n dyn Fn() -> Vec<OsString>;

/// Claims the part of an image that is used.
pub(super) fn claim_part(
    file: &File,
    claims: &Claims,
    read_only: bool,
    range: Range<u64>,
    names: Names<'_>,
) -> Result<(), String> {
    if !claims.part.is_part || claims.part.range.get().is_some() {
        return Ok(());
    }
    if claims.locked {
        lock_part(file, &range, read_only, Some(names))?;
    }
    let busy = std::mem::take(&mut *claims.part.busy());
    if let Some((_, why)) = busy.into_iter().find(|(device, _)| device.overlaps(&range)) {
        return Err(why);
    }
    claims
        .loops
        .held()
        .retain(|(number, _)| LoopDevice::of(*number).is_none_or(|device| device.overlaps(&range)));
    let _ = claims.part.range.set(range);
    Ok(())
}

impl Part {
    fn busy(&self) -> MutexGuard<'_, Vec<(LoopDevice, String)>> {
        self.busy_loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a loop device shows something of it.
    fn is_shown_by(&self, device: &LoopDevice) -> bool {
        self.range.get().is_none_or(|range| device.overlaps(range))
    }
}

/// Locks a part of an image, or all of it. A file system without locks is no error.
fn lock_part(
    file: &File,
    part: &Range<u64>,
    read_only: bool,
    names: Option<Names<'_>>,
) -> Result<(), String> {
    let kind = if read_only { RangeLock::Shared } else { RangeLock::Exclusive };
    let range = locked_range(part);
    let meta = file.metadata().map_err(|error| error.to_string())?;
    let attempt = || lock_range(file, &range, kind);
    let is_held = |done: &std::io::Result<()>| {
        let held = [libc::EAGAIN, libc::EACCES];
        done.as_ref().is_err_and(|e| e.raw_os_error().is_some_and(|code| held.contains(&code)))
    };
    let mount = || holder::mounted_part(&meta, names);
    let done = patiently(attempt, |done| is_held(done) && mount().is_none());
    if !is_held(&done) {
        return Ok(());
    }
    let what = if names.is_some() { "this part of it is" } else { "a part of it is" };
    let how = if read_only { "open for writing in" } else { "open in" };
    Err(mount().map(|at| at.sentence()).unwrap_or_else(|| {
        let process = holder::named(&holder::living_holders(&meta));
        format!("{what} {how} another process{process}: unmount it there first")
    }))
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
    writer: &File,
    is_block_device: bool,
    claims: &Claims,
) -> Result<Loops, String> {
    let below = |backing: &Backing| matches!(backing.locked, Below::Whole);
    let below = claims.backing.as_ref().filter(|backing| below(backing));
    let locked = if is_block_device { below.map(|backing| &backing.file) } else { Some(file) };
    // (This process has it mounted, too: the mount table does not show which mount is the other's.)
    let is_part = claims.part.is_part && !is_block_device;
    let raise = |file: &File| {
        if !is_part {
            // (The own range lock goes with the descriptor that reads; the flock keeps others out.)
            return lock_beside(file, false, |_| None).map(|_| ());
        }
        Ok(())
    };
    let mut more = locked.map_or(Ok(()), raise).map(|()| Loops::default());
    if more.is_ok() && !is_block_device {
        more = not_served_by_other(file).and_then(|()| {
            let loops = Loops::default();
            claim_new_loops(file, &loops, None, &claims.part)?;
            Ok(loops)
        });
    }
    if let Some(Backing { file, locked: Below::Part(range), .. }) = &claims.backing
        && more.is_ok()
    {
        more = lock_below(file, range, false).and(more);
    }
    if more.is_ok() && is_part && claims.locked {
        more = raise_part(file, writer, claims).and(more);
    }
    if more.is_ok() && !is_block_device && claims.locked {
        qemu::release(file);
        let claimed = qemu::claim(writer, false, is_part);
        if claimed.is_err() {
            let _ = qemu::claim(file, true, is_part);
        }
        more = claimed.and(more);
    }
    if more.is_err() {
        // The kernel may have dropped the lock. If a writer has come since, this stays without one.
        let _ = locked.map(|file| lock(file, true));
    }
    more
}

/// Exchanges the lock of a part: the shared one of the descriptor that reads for an exclusive one
/// of that which writes.
fn raise_part(reader: &File, writer: &File, claims: &Claims) -> Result<(), String> {
    let Some(range) = claims.part.range.get() else { return Ok(()) };
    let _ = lock_range(reader, &locked_range(range), RangeLock::Unlocked);
    let raised = lock_part(writer, range, false, Some(&Vec::new));
    if raised.is_err() {
        let _ = lock_range(reader, &locked_range(range), RangeLock::Shared);
    }
    raised
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
            None if holder::is_own(&meta) => {
                "is open in this process already: close it first".to_owned()
            }
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

/// For a loop device: opens its backing file, and locks of it what the device shows, against an
/// Extol on that file.
fn claim_backing_file(device: &File, read_only: bool) -> Result<Option<Backing>, String> {
    let Ok(meta) = device.metadata() else { return Ok(None) };
    let Some(LoopDevice { backing: path, offset, size, .. }) =
        LoopDevice::of(DeviceNumber::of(meta.rdev()))
    else {
        return Ok(None);
    };
    // (A lock for a writer needs a descriptor for writing.)
    let opened = File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path));
    let (Ok(file), below) = (opened, format!("its backing file {}", path.shown())) else {
        return Ok(None);
    };
    let meta = file.metadata().map_err(|error| format!("{below}: {error}"))?;
    let shown = offset..offset.saturating_add(size);
    // (A device has whole sectors.)
    let is_whole = offset == 0 && shown.end >= meta.len() & !511;
    let locked = if is_whole {
        lock(&file, read_only).map_err(|why| format!("{below} {why}"))?;
        Below::Whole
    } else if meta.is_file() && lock(&file, true).map_err(|why| format!("{below} {why}"))? {
        lock_below(&file, &shown, read_only).map_err(|why| format!("{below}: {why}"))?;
        Below::Part(shown)
    } else {
        Below::Nothing
    };
    Ok(Some(Backing { file, offset, locked }))
}

/// Locks what a loop device shows of its file. Where the file cannot be written, as a reader: that
/// keeps away from a writer, too.
fn lock_below(file: &File, part: &Range<u64>, read_only: bool) -> Result<(), String> {
    let mode = rustix::fs::fcntl_getfl(file).unwrap_or(rustix::fs::OFlags::RDONLY);
    let is_reader = !mode.contains(rustix::fs::OFlags::RDWR);
    lock_part(file, part, read_only || is_reader, Some(&Vec::new))
}

/// Claims the loop devices over this file, or over the part of it that is used, that were attached
/// since the image was claimed. Fails if one is in use.
pub(super) fn claim_new_loops(
    file: &File,
    loops: &Loops,
    more: Option<&Loops>,
    part: &Part,
) -> Result<(), String> {
    let is_new = |number| !loops.has(number) && !more.is_some_and(|more| more.has(number));
    let busy = claim_loops(file, is_new, loops);
    match busy.into_iter().find(|(device, _)| part.is_shown_by(device)) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

/// Claims the new loop devices over a file. Gives those that are in use, with the line for each.
fn claim_loops(
    file: &File,
    is_new: impl Fn(DeviceNumber) -> bool,
    loops: &Loops,
) -> Vec<(LoopDevice, String)> {
    let Ok(meta) = file.metadata() else { return Vec::new() };
    let over = extol_proc::loop_devices_over(meta.dev(), meta.ino());
    let mut busy = Vec::new();
    for device in over.into_iter().filter(|device| is_new(device.number)) {
        let node = device.node.as_path();
        let why = match hold_exclusively(node) {
            Ok(claimed) => {
                loops.held().push((device.number, claimed));
                continue;
            }
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => device_holder(node),
            Err(_) => match holder::kernel_mount(&numbers_below(&device.sysfs)) {
                Some(at) => at.sentence(),
                None => continue,
            },
        };
        let why = format!("backs {}, which {why}", node.shown());
        busy.push((device, why));
    }
    busy
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
        assert_eq!(refused, "is open in this process already: close it first");
        let line = locked_by(&[Process(4_000_000_000)], false);
        assert!(line.starts_with("is open in another process, process 4000000000: "), "{line}");
        drop(other);
        assert_eq!(lock_beside(file.as_file(), false, |_| None), Ok(true));
    }
}
