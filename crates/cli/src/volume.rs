//! The only file that opens volumes: everything that the command needs of the library, with errors
//! as lines.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use extol::mkfs::{JournalDevice, MkfsError, MkfsProgress};
use extol_block::{
    BlockDevice, DeviceError, Direct, FileDevice, MemDevice, OpenOptions, SharedDevice,
};
use extol_check::{CheckOptions, Recoverer, Recovery};
use extol_cli_common::{Failure, Result, counted, warn};
use extol_fuse::{BlockMount, Claim};
use extol_jbd2::inspect::JournalReport;
use extol_ondisk::GroupDesc;
use extol_proc::{DeviceNumber, MountTable, Process, Shown as _};

use crate::interrupt::{self, Interruptible};
use crate::sandbox;

pub use extol::mkfs::{FsType, MkfsOptions, OnError, Stage, Summary};
pub use extol_vfs::Size;

pub use extol::{Ext4 as Volume, Header, Info, MountOptions as VolumeOptions, Replayed};

/// A wait for a volume that is in use is told when it is so long: two short commands may meet.
const SILENT_WAIT: Duration = Duration::from_millis(250);

/// Opens a volume; recovers it first if it must and may.
pub fn open(source: &Path, options: &VolumeOptions) -> Result<Arc<Volume>> {
    let device = open_device(source, options)?;
    Volume::open(device, &with_wait_messages(options)).map_err(|error| about(source, error))
}

/// As [`open`], for a mount; with what a mount of a block device needs. All of it is read in the
/// sandbox, if there is one. A volume that is not trusted is opened only if it has no damage.
pub fn open_for_mount(
    source: &Path,
    options: &VolumeOptions,
    untrusted: bool,
) -> Result<(Arc<Volume>, Option<BlockMount>)> {
    let device = open_device(source, options)?;
    let mut options = with_wait_messages(options);
    if options.journal.device.is_none()
        && let Some(path) = &options.journal.path
    {
        let journal = open_told(path, &open_options(&options));
        let journal = journal.map_err(|error| cannot_open(path, &error))?;
        options.journal.device = Some(Arc::new(journal));
    }
    let shared = Arc::clone(&device) as SharedDevice;
    let volume = sandbox::inside(|| {
        if untrusted {
            require_clean(source, &shared, options.journal.device.as_ref())?;
        }
        Volume::open(shared, &options).map_err(|error| about(source, error))
    })?;
    let block = device.is_block_device().then(|| BlockMount {
        device: source.to_owned(),
        block_size: volume.block_size(),
        claim: Arc::new(DeviceClaim(device)),
    });
    Ok((volume, block))
}

/// Refuses a volume that is damaged.
fn require_clean(
    source: &Path,
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
) -> Result<()> {
    let opts = CheckOptions {
        recovery: Recovery::InMemory,
        journal: journal.cloned(),
        fast_commits: Some(Recoverer(recovered)),
        ..CheckOptions::default()
    };
    let about = |what: &dyn std::fmt::Display| Failure::about(source.shown(), what);
    let report =
        extol_check::check(device.clone(), &opts, &mut |_| {}).map_err(|error| about(&error))?;
    if report.is_clean() {
        return Ok(());
    }
    Err(about(&format_args!(
        "is damaged ({}) and not mounted with -o untrusted: extol check lists the damage",
        counted(report.errors, "error")
    )))
}

/// Options with which an opening prints what it waits for.
fn with_wait_messages(options: &VolumeOptions) -> VolumeOptions {
    let mut options = options.clone();
    options.access.waiting.get_or_insert_with(crate::signals::waiting);
    options
}

/// The claim of an open block device.
#[derive(Debug)]
struct DeviceClaim(Arc<FileDevice>);

impl Claim for DeviceClaim {
    fn release(&self) {
        self.0.release_claim();
    }

    fn take(&self) -> std::io::Result<()> {
        self.0.claim_again().map_err(std::io::Error::other)
    }
}

fn open_options(options: &VolumeOptions) -> OpenOptions {
    if options.access.read_only { OpenOptions::read_only() } else { OpenOptions::read_write() }
}

fn open_device(source: &Path, options: &VolumeOptions) -> Result<Arc<FileDevice>> {
    let direct = match options.access.direct {
        None => Direct::Auto,
        Some(true) => Direct::On,
        Some(false) => Direct::Off,
    };
    let how = open_options(options).direct(direct);
    open_told(source, &how).map(Arc::new).map_err(|error| cannot_open(source, &error))
}

/// True if a volume that was to be written to lies on something that is write-protected: a device,
/// or a file on a file system that is mounted read-only.
pub fn is_write_protected(source: &Path) -> bool {
    let how = OpenOptions::read_write().exclusive(false).direct(Direct::Off);
    FileDevice::open(source, &how)
        .is_err_and(|error| error.source.kind() == ErrorKind::ReadOnlyFilesystem)
}

/// The failure for reading a volume that the kernel has mounted read-write, itself or through a
/// loop device, or that fuse2fs has: what is read may be half written. (Where another Extol writes
/// it, the open fails.)
pub fn written_by_others(source: &Path) -> Option<Failure> {
    let meta = std::fs::metadata(source).ok()?;
    let loops = match meta.file_type().is_block_device() {
        true => Vec::new(),
        false => extol_proc::loop_devices_over(meta.dev(), meta.ino()),
    };
    if let Some(server) = extol_proc::other_server_over(&meta) {
        return Some(Failure::about(source.shown(), server));
    }
    let table = MountTable::own().ok()?;
    let of = |number| mounted_writable(&table, number);
    if meta.file_type().is_block_device() {
        let dir = of(DeviceNumber::of(meta.rdev()))?;
        return Some(Failure::about(source.shown(), is_mounted_at(&dir)));
    }
    loops.iter().find_map(|device| {
        let dir = of(device.number)?;
        let why = format!("backs {}, which {}", device.node.shown(), is_mounted_at(&dir));
        Some(Failure::about(source.shown(), why))
    })
}

fn is_mounted_at(dir: &Path) -> String {
    let dir = dir.shown();
    format!("is mounted at {dir}: unmount it first (umount {dir})")
}

/// Where a device is mounted, if the file system is writable.
fn mounted_writable(table: &MountTable, device: DeviceNumber) -> Option<PathBuf> {
    // The options of the file system itself: a read-only mount of a writable one is still a
    // writable one.
    let is_writable = |options: &[OsString]| options.iter().any(|option| option == "rw");
    let mut mounts = table.iter();
    let mount =
        mounts.find(|mount| mount.device == device && is_writable(&mount.volume_options))?;
    Some(mount.dir.clone())
}

/// Writes everything and closes a volume. The error is what may be lost.
pub fn close(volume: &Volume) -> std::result::Result<(), String> {
    volume.unmount().map_err(|error| error.to_string())
}

/// What a volume is, by the superblock and the external journal that the options name.
pub fn info(source: &Path, options: &VolumeOptions) -> Result<Info> {
    let mut options = options.clone();
    // As the volume: even if it is mounted.
    if let Some(path) = options.journal.path.take() {
        options.journal.device = Some(open_shared(&path)?);
    }
    extol::info_with(&open_shared(source)?, &options).map_err(|error| about(source, error))
}

/// The superblocks of a volume; with `groups` also the descriptors of its groups.
pub fn header(source: &Path, place: Option<u64>, groups: bool) -> Result<(Header, Vec<GroupDesc>)> {
    let device = open_shared(source)?;
    let about = |error| about(source, error);
    let header = extol::header(&device, place).map_err(about)?;
    let descriptors = match groups {
        true => extol::group_descriptors(&device, &header).map_err(about)?,
        false => Vec::new(),
    };
    Ok((header, descriptors))
}

/// Where the superblock copy in block `block` of a volume is, in KiB, if blocks of unknown size are
/// tried one after another.
pub fn find_superblock(source: &Path, block: u64) -> Result<u64> {
    let device = open_shared(source)?;
    let places = (0..7).filter_map(|size| block.checked_mul(1 << size));
    let found = places.into_iter().find(|place| {
        // The place fits what stands there.
        extol::header(&device, Some(*place)).is_ok_and(|header| {
            let size = header.superblock.block_bytes() / 1024;
            block.checked_mul(size.into()) == Some(*place)
        })
    });
    found.ok_or_else(|| about(source, format!("there is no superblock in block {block}")))
}

/// The contents of a volume's journal.
pub fn journal(source: &Path, options: &VolumeOptions) -> Result<JournalReport> {
    extol::inspect_journal(&open_shared(source)?, options).map_err(|error| about(source, error))
}

/// Replays a volume's journal; with `dry_run` in memory only.
pub fn replay(source: &Path, options: &VolumeOptions, dry_run: bool) -> Result<Replayed> {
    let done = if dry_run {
        extol::recovered(&open_shared(source)?, options).map(|(_, replayed)| replayed)
    } else {
        extol::replay(&device(source, &OpenOptions::read_write())?, options)
    };
    done.map_err(|error| about(source, error))
}

/// A volume as it will be after recovery. It is not changed.
pub fn recovered(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
) -> std::result::Result<SharedDevice, String> {
    let options = VolumeOptions::default().read_only().with_journal(journal.cloned());
    extol::recovered(device, &options).map(|(device, _)| device).map_err(|error| error.to_string())
}

/// Makes a volume; with `direct` only if O_DIRECT can be used. `confirm` is asked before something
/// is overwritten.
pub fn mkfs(
    target: &Path,
    mut options: MkfsOptions,
    direct: bool,
    confirm: impl FnOnce(&str) -> Result<()>,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    let existed = target.exists();
    let how = if options.dry_run { OpenOptions::read_only() } else { OpenOptions::read_write() };
    let mut how = how.direct(if direct { Direct::On } else { Direct::Auto });
    how.create_size = options.size;
    if !existed && options.size.is_none() {
        return Err(Failure::usage(format_args!(
            "{} does not exist: give a size to make it",
            target.shown()
        )));
    }
    if let Some(size) = options.size.filter(|size| options.dry_run && grows(target, *size)) {
        // Nothing is written, so it takes no memory.
        return mkfs_on(target, &MemDevice::new(size), &mut options, progress);
    }
    let made = make(target, &how, &mut options, confirm, progress);
    if made.is_err() && !existed {
        remove_made(target);
    }
    made
}

/// Opens an image that is to be replaced, so that nothing else uses it meanwhile. `confirm` is
/// asked if something would be lost, unless `force`.
pub fn claim_for_mkfs(
    target: &Path,
    force: bool,
    confirm: impl FnOnce(&str) -> Result<()>,
) -> Result<FileDevice> {
    let how = OpenOptions::read_write().direct(Direct::Off);
    let device = open_told(target, &how).map_err(|error| cannot_open(target, &error))?;
    if !force && let Some(contents) = extol::mkfs::existing_contents(&device) {
        confirm(&format!("{} holds {contents}", target.shown()))?;
    }
    Ok(device)
}

/// Removes a new image, which is of no use. Of a symbolic link it is what the link names; the link
/// was there before.
pub fn remove_made(target: &Path) {
    if let Ok(file) = std::fs::canonicalize(target) {
        let _ = std::fs::remove_file(file);
    }
}

/// True if a volume of this size is made in a file that is not there or that is shorter.
fn grows(target: &Path, size: u64) -> bool {
    match std::fs::metadata(target) {
        Ok(file) => file.is_file() && file.len() < size,
        Err(_) => true,
    }
}

fn make(
    target: &Path,
    how: &OpenOptions,
    options: &mut MkfsOptions,
    confirm: impl FnOnce(&str) -> Result<()>,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    if how.create_size.is_some() && !target.exists() {
        interrupt::catch()?;
    }
    let device = open_told(target, how).map_err(|error| cannot_open(target, &error))?;
    if device.is_block_device() {
        options.sector_size = Some(device.sector_size());
    }
    if !options.dry_run
        && !options.force
        && let Some(contents) = extol::mkfs::existing_contents(&device)
    {
        confirm(&format!("{} holds {contents}", target.shown()))?;
    }
    // (Only now: a signal ends the question above.)
    interrupt::catch()?;
    mkfs_on(target, &Interruptible::new(device), options, progress)
}

fn mkfs_on(
    target: &Path,
    device: &dyn BlockDevice,
    options: &mut MkfsOptions,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    if let Some(path) = &options.journal.device_path {
        options.journal.device = Some(journal_device(path, options.dry_run)?);
    }
    extol::mkfs::mkfs(device, options, progress).map_err(|error| match error {
        MkfsError::Refused(_) => Failure { code: Failure::USAGE, ..about(target, error) },
        _ => about(target, error),
    })
}

fn journal_device(path: &Path, dry_run: bool) -> Result<JournalDevice> {
    let how = if dry_run { OpenOptions::read_only() } else { OpenOptions::read_write() };
    let device = open_told(path, &how).map_err(|error| cannot_open(path, &error))?;
    let rdev = if device.is_block_device() {
        std::fs::metadata(path).map_or(0, |metadata| metadata.rdev())
    } else {
        0
    };
    Ok(JournalDevice { device: Arc::new(device), rdev })
}

/// A device for reading, even if it is mounted.
fn open_shared(source: &Path) -> Result<SharedDevice> {
    device(source, &OpenOptions::read_only().exclusive(false))
}

/// Opens a device or an image. An open waits for a while where another process uses it: it may be
/// about to end. That wait is told.
pub fn open_told(path: &Path, how: &OpenOptions) -> extol_block::Result<FileDevice> {
    let (opened, is_open) = mpsc::channel::<()>();
    let shown = path.to_owned();
    let tell = move || {
        if is_open.recv_timeout(SILENT_WAIT) == Err(RecvTimeoutError::Timeout) {
            tell_wait(&shown);
        }
    };
    let teller = std::thread::Builder::new().spawn(tell);
    let device = FileDevice::open(path, how);
    drop(opened);
    // (Without a thread nothing is told.)
    let _ = teller.map(std::thread::JoinHandle::join);
    device
}

/// Says what an open waits for.
fn tell_wait(path: &Path) {
    let Ok(file) = std::fs::metadata(path) else { return };
    let holders = extol_proc::volume_holders(&file).into_iter();
    let mut holders = holders.filter(|process| *process != Process::own());
    let path = path.shown();
    match holders.next() {
        Some(holder) => {
            warn(format_args!("{path}: is in use by {holder}: waiting a few seconds for it"));
        }
        // It may be in another container; or the device is slow.
        None => warn(format_args!("{path}: waiting until it can be opened")),
    }
}

fn device(source: &Path, how: &OpenOptions) -> Result<SharedDevice> {
    match open_told(source, how) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(cannot_open(source, &error)),
    }
}

/// The failure for something that cannot be opened: not allowed, or another reason.
fn cannot_open(path: &Path, error: &DeviceError) -> Failure {
    Failure { code: Failure::code_of(error.source.kind()), ..about(path, error) }
}

/// The line for an error about a volume, which names it once.
pub fn about(source: &Path, error: impl std::fmt::Display) -> Failure {
    let (source, error) = (source.shown().to_string(), error.to_string());
    if !source.is_empty() && error.contains(&source) {
        Failure::new(error)
    } else {
        Failure::about(source, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_told_apart() {
        let line = "36 35 98:0 /mnt1 /mnt/my\\040disk rw,noatime master:1 - ext4 /dev/loop0 \
                    rw,errors=continue";
        let found =
            |line: &str, number| mounted_writable(&MountTable::parse(line.as_bytes()), number);
        let number = |major, minor| DeviceNumber { major, minor };
        assert_eq!(found(line, number(98, 0)), Some(PathBuf::from("/mnt/my disk")));
        assert_eq!(found(line, number(98, 1)), None);
        assert_eq!(found(&line.replace(" rw,errors", " ro,errors"), number(98, 0)), None);
        assert_eq!(found("nonsense", number(98, 0)), None);
    }
}
