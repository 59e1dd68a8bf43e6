//! Work on a volume that is not open, by the name that the commands take: what it is, its size and
//! its properties. The libraries for other languages offer these.
//!
//! ```
//! use extol::by_name;
//! use extol::resize::Target;
//! use extol::tune::Request;
//! # use extol::image::mkfs_file;
//! # use extol::mkfs::MkfsOptions;
//! use extol::MountOptions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # mkfs_file(&image, &MkfsOptions::default().with(|o| o.size = Some(16 << 20)), &mut |_| {})?;
//! let mut request = Request::default();
//! request.label = Some(b"data".to_vec());
//! by_name::tune(&image, &MountOptions::default(), &request, false)?;
//! let options = MountOptions::default();
//! by_name::resize(&image, &options, Target::Bytes(24 << 20), false, &mut |_| true)?;
//! let info = by_name::info(&image)?;
//! assert_eq!((&info.label[..], info.blocks * u64::from(info.block_size)), ("data", 24 << 20));
//! # Ok(())
//! # }
//! ```

use std::path::Path;
use std::sync::Arc;

use extol_block::open::{self, OpenName, Window};
use extol_block::{OpenOptions, SharedDevice};
use extol_vfs::Resized;

use crate::check::{CheckOptions, check};
use crate::error::{OpenError, OpenResult};
use crate::ext4::Ext4;
use crate::info::{self, Info};
use crate::options::MountOptions;
use crate::resize::{ResizeError, ResizeProgress, Target};
use crate::tune::{self, Request, TuneError, Tuned};

fn device(name: &Path, how: &OpenOptions) -> OpenResult<SharedDevice> {
    Ok(open::open(&OpenName::parse(name, Window::default())?, how)?.device)
}

/// Reads a volume's superblock. A volume that is in use can be read, too.
///
/// # Errors
/// If it cannot be opened, or is no ext4 volume.
pub fn info(name: impl AsRef<Path>) -> OpenResult<Info> {
    let name = name.as_ref();
    let device = device(name, &OpenOptions::read_only().exclusive(false))?;
    info::info(&device).map_err(|error| error.of(name))
}

/// Refuses a volume that is damaged: what moves its blocks could spread that.
fn require_sound(device: &SharedDevice, options: &MountOptions) -> Result<(), String> {
    let how = CheckOptions::default().with(|o| o.journal.clone_from(&options.journal.device));
    let report = check(Arc::clone(device), &how, &mut |_| {}).map_err(|error| error.to_string())?;
    match report.is_clean() {
        true => Ok(()),
        false => Err(format!(
            "the volume is damaged ({} errors) and stays as it is: a check lists the damage, and \
             force goes on all the same",
            report.errors
        )),
    }
}

/// Makes a volume larger or smaller, as [`Ext4::resize`]; a damaged one only with `force`. It is
/// not in use.
///
/// # Errors
/// As [`Ext4::resize`]; if it cannot be opened.
pub fn resize(
    name: impl AsRef<Path>,
    options: &MountOptions,
    target: Target,
    force: bool,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Resized, ResizeError> {
    let name = name.as_ref();
    let named = |error: OpenError| error.of(name);
    let device = device(name, &OpenOptions::read_write()).map_err(named)?;
    if !force {
        require_sound(&device, options).map_err(ResizeError::Refused)?;
    }
    let fs = Ext4::open(device, &options.clone().without_threads()).map_err(named)?;
    let resized = fs.resize(target, progress);
    let closed = fs.unmount();
    let resized = resized?;
    closed?;
    Ok(resized)
}

/// Changes properties of a volume, as [`tune()`](tune::tune); where that could spread damage, a
/// damaged one only with `force`. It is not in use.
///
/// # Errors
/// As [`tune()`](tune::tune); if it cannot be opened.
pub fn tune(
    name: impl AsRef<Path>,
    options: &MountOptions,
    request: &Request,
    force: bool,
) -> Result<Tuned, TuneError> {
    let name = name.as_ref();
    let named = |error: OpenError| error.of(name);
    let device = device(name, &OpenOptions::read_write()).map_err(named)?;
    if !force && request.may_spread_damage() && !tune::is_done(&device, request)? {
        require_sound(&device, options).map_err(TuneError::Refused)?;
    }
    tune::tune(&device, &options.clone().without_threads(), request)
}
