//! The backing files of qcow2 images: which are opened, and in what format.
//!
//! - OP-3: a name in an image opens another file only as [`Backing`] says. By default that is a
//!   regular file in the directory of the image, of the same owner: what an image of a stranger can
//!   name there is only what came with it. All are opened for reading.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_proc::{Shown as _, bytes_of, os_str};

use super::qcow2::{self, Header, Qcow2};
use super::{Backing, OpenFailed, OpenName};
use crate::{BlockDevice as _, FileDevice, OpenOptions, SharedDevice};

/// Most files below an image.
const MOST_FILES: usize = 16;

/// A file that an image overlays.
#[derive(Debug)]
pub(super) struct Below {
    pub file: FileDevice,
    is_qcow2: bool,
}

/// Opens the files below an image, the nearest first.
pub(super) fn open_chain(
    name: &OpenName,
    image: &FileDevice,
    how: &OpenOptions,
) -> Result<Vec<Below>, OpenFailed> {
    let mut chain: Vec<Below> = Vec::new();
    let mut wanted = name.backing.clone();
    loop {
        let above = chain.last().map_or(image, |below| &below.file);
        if chain.last().is_some_and(|below| !below.is_qcow2) {
            return Ok(chain);
        }
        // (What is wrong with the image itself is said when it is decoded.)
        let Ok(header) = qcow2::read_header(above) else { return Ok(chain) };
        let Some(backing) = header.backing else { return Ok(chain) };
        let fail = |why: String| {
            let why = format!("is a qcow2 image over the backing file {why}");
            OpenFailed::name(&name.typed, io::ErrorKind::PermissionDenied, why)
        };
        let named = &*os_str(&backing.name);
        if chain.len() == MOST_FILES {
            return Err(fail(format!("{}, and {MOST_FILES} are the most", named.shown())));
        }
        let path = match &wanted {
            Backing::Auto => beside(above.path(), named)
                .map_err(|why| fail(format!("{}, which {why}", named.shown())))?,
            Backing::None => {
                let why = "and backing=none leaves it closed: allow it by backing=auto or \
                           backing=PATH";
                return Err(fail(format!("{}, {why}", named.shown())));
            }
            Backing::Path(path) => path.clone(),
        };
        let ids = [image].into_iter().chain(chain.iter().map(|below| &below.file));
        if ids.map(|file| file_id(file.path())).any(|id| id.is_some() && id == file_id(&path)) {
            let why = "which lies over it in turn: give it another one (qemu-img rebase -u -b)";
            return Err(fail(format!("{}, {why}", path.shown())));
        }
        wanted = if wanted == Backing::None { wanted } else { Backing::Auto };
        let how = OpenOptions { read_only: true, part: false, create_size: None, ..how.clone() };
        let file = FileDevice::open(&path, &how).map_err(|error| {
            let line = error.to_string();
            let why = line.strip_prefix(&format!("{}: ", path.shown())).unwrap_or(&line);
            fail(format!("{}, which cannot be opened: {why}", path.shown()))
        })?;
        let is_qcow2 = match backing.format.as_slice() {
            b"raw" => false,
            b"qcow2" => true,
            b"" => begins_as_qcow2(&file),
            other => {
                let format = String::from_utf8_lossy(other).into_owned();
                let why = "which is not supported there: qemu-img rebase gives it another one";
                let format = format.escape_debug();
                return Err(fail(format!("{} of the format {format}, {why}", path.shown())));
            }
        };
        chain.push(Below { file, is_qcow2 });
    }
}

/// What tells files apart.
#[cfg(unix)]
fn file_id(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|of_file| (of_file.dev(), of_file.ino()))
}

/// What tells files apart.
#[cfg(not(unix))]
fn file_id(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// True if two files have the same owner.
#[cfg(unix)]
fn is_of_same_owner(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    one.uid() == other.uid()
}

/// True: no owner is a number, and a file beside the image is taken for one of its owner.
#[cfg(not(unix))]
fn is_of_same_owner(_one: &Metadata, _other: &Metadata) -> bool {
    true
}

fn begins_as_qcow2(file: &FileDevice) -> bool {
    let mut first = [0; 4];
    file.read_at(&mut first, 0).is_ok() && Header::is_one(&first)
}

/// The file of a name that an image has for it, if it is beside the image and has its owner.
fn beside(image: &Path, named: &OsStr) -> Result<PathBuf, String> {
    const HOW: &str = "say -o backing=PATH to use it";
    let named = bytes_of(named).strip_prefix(b"file:").unwrap_or(bytes_of(named));
    let named = os_str(named);
    let named = Path::new(&named);
    let failed = |error: io::Error| format!("cannot be opened ({error}): {HOW}");
    let image = image.canonicalize().map_err(failed)?;
    let dir = image.parent().unwrap_or(Path::new("/"));
    let Some(last) = named.file_name() else { return Err(format!("is no file: {HOW}")) };
    let parent = dir.join(named.parent().unwrap_or(Path::new("")));
    let parent = parent.canonicalize().map_err(failed)?;
    let path = parent.join(last);
    let of_file = std::fs::symlink_metadata(&path).map_err(failed)?;
    let of_image = std::fs::metadata(&image).map_err(failed)?;
    if parent != dir {
        return Err(format!("is not in the directory of the image: {HOW}"));
    }
    if !of_file.is_file() {
        return Err(format!("is not a regular file: {HOW}"));
    }
    if !is_of_same_owner(&of_file, &of_image) {
        return Err(format!("has another owner than the image: {HOW}"));
    }
    Ok(path)
}

/// The device that the nearest file below an image shows.
pub(super) fn decode_chain(chain: Vec<Below>) -> Result<Option<SharedDevice>, String> {
    let mut below: Option<SharedDevice> = None;
    for Below { file, is_qcow2 } in chain.into_iter().rev() {
        let shown = file.path().shown().to_string();
        let file: SharedDevice = Arc::new(file);
        below = Some(match is_qcow2 {
            false => file,
            true => {
                let image = Qcow2::new(file, below);
                Arc::new(image.map_err(|why| format!("its backing file {shown}: {why}"))?)
            }
        });
    }
    Ok(below)
}
