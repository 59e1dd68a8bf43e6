//! Files that a command is about to replace or to write over with something else than a volume: an
//! archive, a copy.
//!
//! Such a file may be the very volume that is read, by another name or below other layers, or one
//! that something has mounted. Both are refused before a byte of it changes. What tells it is the
//! file, not its name: device and inode, the locks of this process, and the claims that an open for
//! writing takes (`busy.rs`).

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use extol_proc::{DeviceNumber, LoopDevice, Process};

use super::busy::{self, Claims};
use super::device_users;
use super::{holder, options};

/// Files that are shorter hold no volume. They are not asked about: most files of a copy are small.
const LEAST_VOLUME: u64 = 16 << 10;

/// A file or device that nothing else uses while this lives.
#[derive(Debug)]
pub struct Overwritten {
    _exclusive: Option<File>,
    _claims: Option<Claims>,
    _file: File,
}

/// Claims what `file` is, an existing file or block device that `path` leads to and that is to be
/// replaced or overwritten. `volume`: the file or device of the volume that is open for reading.
///
/// # Errors
/// One line that names `path`: it is that volume or a file below it, or is in use.
pub fn claim_to_overwrite(file: File, path: &Path, volume: &Path) -> crate::Result<Overwritten> {
    let refuse = |why: String| options::refuse(path, std::io::ErrorKind::ResourceBusy, why);
    let meta = file.metadata().map_err(|error| refuse(error.to_string()))?;
    if is_or_shows(&meta, volume) {
        return Err(refuse(ITSELF.into()));
    }
    let is_block = meta.file_type().is_block_device();
    if !is_block && (!meta.is_file() || meta.len() < LEAST_VOLUME) {
        return Ok(Overwritten { _exclusive: None, _claims: None, _file: file });
    }
    let exclusive = if is_block {
        let device = busy::hold_exclusively(path);
        Some(device.map_err(|_| refuse(device_users::device_holder(path)))?)
    } else {
        None
    };
    let claims = busy::claim(&file, is_block, false, false).map_err(&refuse)?;
    if !claims.locked
        && let Some(at) = holder::mount_of(&meta)
    {
        return Err(refuse(at.sentence()));
    }
    Ok(Overwritten { _exclusive: exclusive, _claims: Some(claims), _file: file })
}

/// Err if `file`, to which is written (standard output), is the volume that is open for reading.
///
/// # Errors
/// One line that begins with `name`.
pub fn refuse_itself(file: &File, name: &str, volume: &Path) -> crate::Result<()> {
    match file.metadata() {
        Ok(meta) if is_or_shows(&meta, volume) => {
            let kind = std::io::ErrorKind::ResourceBusy;
            Err(options::refuse(Path::new(name), kind, ITSELF))
        }
        _ => Ok(()),
    }
}

const ITSELF: &str = "is the volume that is read, or a file below it: name another file";

/// True if a file or device is `volume`, shows it, lies below it, or is locked by this process,
/// which is so for every file of an open volume.
fn is_or_shows(meta: &Metadata, volume: &Path) -> bool {
    let kind = meta.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return false;
    }
    let files = below(meta);
    let volume = std::fs::metadata(volume).map(|volume| below(&volume)).unwrap_or_default();
    let is_same = |a: &Metadata| volume.iter().any(|b| identity(a) == identity(b));
    let is_locked = |file: &Metadata| {
        file.is_file() && extol_proc::lock_holders(file).contains(&Process::own())
    };
    files.iter().any(|file| is_same(file) || is_locked(file))
}

/// What tells a file or a device from others.
fn identity(meta: &Metadata) -> (bool, u64, u64) {
    if meta.file_type().is_block_device() {
        (true, meta.rdev(), 0)
    } else {
        (false, meta.dev(), meta.ino())
    }
}

/// A file or device, and the file that a loop device shows.
fn below(meta: &Metadata) -> Vec<Metadata> {
    let mut all = vec![meta.clone()];
    if meta.file_type().is_block_device()
        && let Some(device) = LoopDevice::of(DeviceNumber::of(meta.rdev()))
    {
        all.extend(std::fs::metadata(&device.backing));
    }
    all
}
