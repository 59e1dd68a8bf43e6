//! Makes a volume in a file or on a device, which may hold something that is asked about first.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use extol::image::source;
use extol::mkfs::{JournalDevice, MkfsError, MkfsOptions, MkfsProgress, Summary};
use extol_block::open::{self, OpenName, Opened, Slice};
use extol_block::{BlockDevice, Direct, FileDevice, MemDevice, OpenOptions};
use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use super::told::claim_told;
use super::{Source, about, cannot_open, name, open_part, open_told};
use crate::interrupt::{self, Interruptible};

/// Makes an empty volume, as [`make_volume`].
pub fn mkfs(
    target: Source<'_>,
    options: MkfsOptions,
    direct: bool,
    confirm: impl FnOnce(&str) -> Result<()>,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    make_volume(target, options, direct, confirm, &mut |device, options| {
        extol::mkfs::mkfs(device, options, progress).map_err(|error| match error {
            MkfsError::Refused(_) => Failure { code: Failure::USAGE, ..about(target.path, error) },
            _ => about(target.path, error),
        })
    })
}

/// What makes a volume on a device that is open for it.
pub type Making<'a, T> = &'a mut dyn FnMut(&dyn BlockDevice, &MkfsOptions) -> Result<T>;

/// Opens or makes what a volume is made on; with `direct` only if O_DIRECT can be used. `confirm`
/// is asked before something is overwritten. A new file is removed if `making` fails; one that is
/// there is lengthened only when nothing refuses.
pub fn make_volume<T>(
    target: Source<'_>,
    mut options: MkfsOptions,
    direct: bool,
    confirm: impl FnOnce(&str) -> Result<()>,
    making: Making<'_, T>,
) -> Result<T> {
    refuse_read_only_image(target)?;
    let existed = open::is_address(target.path) || extol_proc::image_of(target.path).exists();
    let is_part = is_part(target);
    if !existed && options.only_superblocks {
        let shown = target.path.shown();
        let why = "does not exist: -S is for a volume that is there";
        return Err(Failure { code: Failure::USAGE, ..Failure::about(shown, why) });
    }
    let behind = target.part.window.offset;
    if let Some(size) = options.size.filter(|_| !existed && behind > 0 && !is_partition(target)) {
        return in_new_file(target, behind.saturating_add(size), options, making);
    }
    if !existed && (options.size.is_none() || is_part) {
        let what = if is_part { "make the image first" } else { "give a size to make it" };
        let shown = target.path.shown();
        return Err(Failure::usage(format_args!("{shown} does not exist: {what}")));
    }
    let is_own = is_own_file(target);
    let longer = options.size.filter(|size| is_own && grows(target.path, *size));
    if let Some(size) = longer.filter(|_| options.dry_run) {
        return planned(size, &options, making);
    }
    let how = if options.dry_run { OpenOptions::read_only() } else { OpenOptions::read_write() };
    let direct = if direct { Direct::On } else { Direct::Auto };
    let mut how = how.direct(direct);
    let longer = longer.filter(|_| existed);
    match longer {
        Some(_) => (how.direct, how.may_be_empty) = (Direct::Off, true),
        None => how.create_size = options.size.filter(|_| !existed),
    }
    if !existed {
        interrupt::catch()?;
    }
    let made = make(target, &how, longer.map(|size| (size, direct)), &mut options, confirm, making);
    if made.is_err() && !existed {
        remove_made(target.path);
    }
    made
}

/// Makes a volume at the end of a file that is not there.
fn in_new_file<T>(
    target: Source<'_>,
    bytes: u64,
    mut options: MkfsOptions,
    making: Making<'_, T>,
) -> Result<T> {
    if options.dry_run {
        return planned(options.size.unwrap_or_default(), &options, making);
    }
    interrupt::catch()?;
    let failed = |error| Failure::system_call(target.path.shown(), error);
    let file = std::fs::File::create_new(target.path).map_err(failed)?;
    let set = file.set_len(bytes).map_err(failed);
    drop(file);
    let how = OpenOptions::read_write();
    let made = set.and_then(|()| make(target, &how, None, &mut options, |_| Ok(()), making));
    if made.is_err() {
        remove_made(target.path);
    }
    made
}

/// True if only a part of a file or device is meant.
fn is_part(target: Source<'_>) -> bool {
    !target.part.window.is_all() || is_partition(target)
}

fn is_partition(target: Source<'_>) -> bool {
    extol_proc::split_part(target.path).is_some()
}

/// True if the target is all of a file or device, whose bytes are the volume's: no part of it, and
/// no disk of an image, where the file has neither the size nor the bytes of the volume.
pub fn is_own_file(target: Source<'_>) -> bool {
    is_whole_file(target) && open::disk_image(extol_proc::image_of(target.path)).is_none()
}

/// True if the target is all of a file or device of this host.
pub fn is_whole_file(target: Source<'_>) -> bool {
    !is_part(target) && !open::is_address(target.path)
}

/// Refuses a target whose disk can only be read.
pub fn refuse_read_only_image(target: Source<'_>) -> Result<()> {
    match open::disk_image(extol_proc::image_of(target.path)) {
        Some(image) if image.is_read_only => {
            let open::Known { what, advice, .. } = image.known;
            let why = format_args!("is {what}, which is only read: {advice}");
            Err(Failure::about(target.path.shown(), why))
        }
        _ => Ok(()),
    }
}

/// Refuses another size for all of the disk of an image than it has.
fn check_disk_size(target: &Path, opened: &Opened, size: Option<u64>) -> Result<()> {
    let disk = opened.device.size();
    let has_own = opened.is_whole() && opened.container().is_some();
    match size.filter(|size| has_own && *size != disk) {
        None => Ok(()),
        Some(size) => Err(Failure::usage(format_args!(
            "{} has a disk of {disk} bytes, and the volume was to have {size}: leave the size \
             (SIZE, --free) out, or change the disk first (qemu-img resize)",
            target.shown()
        ))),
    }
}

/// What a volume of this size would be. Nothing is written, so it takes no memory.
fn planned<T>(size: u64, options: &MkfsOptions, making: Making<'_, T>) -> Result<T> {
    let mut options = MkfsOptions { dry_run: true, ..options.clone() };
    make_on(&MemDevice::new(size), &mut options, making)
}

/// Opens an image that is to be replaced, so that nothing else uses it meanwhile. `confirm` is
/// asked if something would be lost, unless `force`.
pub fn claim_for_mkfs(
    target: &Path,
    force: bool,
    confirm: impl FnOnce(&str) -> Result<()>,
) -> Result<Arc<FileDevice>> {
    let how = OpenOptions { may_be_empty: true, ..OpenOptions::read_write() };
    let name = OpenName { part: None, raw: true, ..name(target.into())? };
    let opened = open_told(&name, &how.direct(Direct::Off));
    let opened = opened.map_err(|error| cannot_open(target, &error))?;
    if !force {
        confirm_loss(target, &opened, None, confirm)?;
    }
    opened.base.file().cloned().ok_or_else(|| {
        let why = "is on another host, and archives are not written there: name a file";
        Failure::about(target.shown(), why)
    })
}

/// True if a device holds anything, known or not.
pub fn holds_something(device: &dyn BlockDevice) -> bool {
    !matches!(open::identify(device), open::Found::Zeros)
}

/// What a device holds that is no source of files.
pub enum NoSource {
    /// An ext2, ext3 or ext4 volume, or a disk in which one may be.
    Volume(String),
    /// What else is known, and what to do with it.
    Known(String),
    /// Nothing that is known.
    Unknown,
}

/// What a device holds if it is no archive. `None`: it may be one.
pub fn no_source(device: &FileDevice) -> Option<NoSource> {
    let mut first = vec![0; device.size().min(512) as usize];
    device.read_at(&mut first, 0).ok().filter(|()| !first.is_empty())?;
    let may_be = source::may_be_archive(&first);
    if may_be && first.iter().any(|byte| *byte != 0) {
        return None;
    }
    match open::identify(device) {
        found @ (open::Found::Ext(_) | open::Found::Table(_)) => {
            Some(NoSource::Volume(found.to_string()))
        }
        _ if may_be => None,
        open::Found::Known(known) if open::disk_image(device.path()).is_some() => {
            Some(NoSource::Volume(known.what.to_owned()))
        }
        found @ open::Found::Known(known) if known.advice.contains("unpack") => {
            Some(NoSource::Known(format!("{found} ({})", known.advice)))
        }
        found => Some(found.contents().map_or(NoSource::Unknown, NoSource::Known)),
    }
}

/// Removes a new image, which is of no use. Of a symbolic link it is what the link names; the link
/// was there before.
fn remove_made(target: &Path) {
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

/// Asks whether what an open target holds may be lost, where a volume of `size` is made.
fn confirm_loss(
    target: &Path,
    opened: &Opened,
    size: Option<u64>,
    confirm: impl FnOnce(&str) -> Result<()>,
) -> Result<()> {
    let shown = target.shown();
    let len = size.unwrap_or(u64::MAX).min(opened.device.size());
    if let Some(start) = opened.start() {
        let range = start..start.saturating_add(len);
        let others = open::in_range(&*opened.disk, &range);
        if !others.is_empty() {
            return confirm(&format!("this part of {shown} has {}", others.join(", ")));
        }
    }
    match open::contents(&Slice::new(opened.device.clone(), 0, len)) {
        Some(contents) => confirm(&format!("{shown} holds {contents}")),
        None => Ok(()),
    }
}

/// Makes a volume. A file that is to be longer (and its I/O direct) was opened without direct I/O.
fn make<T>(
    target: Source<'_>,
    how: &OpenOptions,
    longer: Option<(u64, Direct)>,
    options: &mut MkfsOptions,
    confirm: impl FnOnce(&str) -> Result<()>,
    making: Making<'_, T>,
) -> Result<T> {
    let failed = |error| cannot_open(target.path, &error);
    let name = OpenName { raw: true, ..name(target)? };
    let mut claimed = claim_told(&name, how).map_err(failed)?;
    if let Some((size, direct)) = longer {
        let contents = open::contents(claimed.device());
        if let Some(contents) = contents.filter(|_| !options.force) {
            confirm(&format!("{} holds {contents}", target.path.shown()))?;
        }
        planned(size, options, making)?;
        claimed.lengthen(size, direct).map_err(failed)?;
        let opened = claimed.decode().map_err(failed)?;
        interrupt::catch()?;
        return make_on(&Interruptible::new(opened.device), options, making);
    }
    let opened = claimed.decode().map_err(failed)?;
    check_disk_size(target.path, &opened, options.size)?;
    if let Some(device) = opened.base.block_device() {
        options.sector_size = Some(device.sector_size());
    }
    if !options.dry_run && !options.force {
        confirm_loss(target.path, &opened, options.size, confirm)?;
    }
    // (Only now: a signal ends the question above.)
    interrupt::catch()?;
    make_on(&Interruptible::new(opened.device), options, making)
}

fn make_on<T>(
    device: &dyn BlockDevice,
    options: &mut MkfsOptions,
    making: Making<'_, T>,
) -> Result<T> {
    if let Some(path) = &options.journal.device_path {
        options.journal.device = Some(journal_device(path, options.dry_run)?);
    }
    making(device, options)
}

/// Opens an external journal.
pub fn journal_device(path: &Path, dry_run: bool) -> Result<JournalDevice> {
    let how = if dry_run { OpenOptions::read_only() } else { OpenOptions::read_write() };
    let Opened { device, base, layers, .. } = open_part(path, &how)?;
    let rdev = if layers.is_empty() && base.block_device().is_some() {
        std::fs::metadata(path).map_or(0, |metadata| metadata.rdev())
    } else {
        0
    };
    Ok(JournalDevice { device, rdev })
}
