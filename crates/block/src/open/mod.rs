//! One place that turns a name into a device: [`OpenName`] is what was written, [`open`] gives the
//! device of the volume, [`identify`] says what a device holds.
//!
//! ```text
//!   name.rs, tags.rs        disk.img:2, LABEL=data      which file, which part of it
//!        │
//!   FileDevice              disk.img                    locked, before a byte of it is looked at
//!   NetworkDevice           nbd://host/export           connected (base.rs)
//!        │
//!   android.rs, expanded.rs a sparse or compressed image what it holds, for reading
//!   qcow2/, backing.rs      disk.qcow2              what it holds
//!   vmdk.rs, vhdx/          disk.vmdk               what it holds, for reading (read_only.rs)
//!        │
//!   partitions/, slice.rs   bytes 1 MiB to 3 GiB        a range of it
//!        ▼
//!   the device of the volume
//! ```
//!
//! - OP-1: the locks and claims of the file are taken before any byte of it is decoded, and hold
//!   while a layer above it lives. Of a partition they are on its range (`file/busy.rs`).
//! - OP-4: what was found is said in words ([`explain`]), and e2fsck with a superblock copy is
//!   advised only if such a copy was found, with its real block.
//!
//! [`claim`] and [`Claimed::decode`] are the two halves of [`open`]: what a volume holds may be
//! decoded in a sandbox, in which nothing can be opened.

mod android;
mod android_write;
#[cfg(feature = "formats")]
mod backing;
mod base;
mod claimed;
mod expanded;
mod explain;
mod found;
mod name;
mod numbers;
mod partitions;
#[cfg(feature = "formats")]
mod qcow2;
mod read_only;
mod signatures;
mod slice;
mod tags;
#[cfg(feature = "formats")]
mod vhdx;
#[cfg(feature = "formats")]
mod vmdk;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_proc::{Shown as _, os_str};

use crate::{BlockDevice, DeviceError, FileDevice, SharedDevice};

pub use android::AndroidSparse;
pub use android_write::write_android_sparse;
#[cfg(feature = "network")]
pub use base::dialer;
pub use base::{Base, is_address};
pub use claimed::{Claimed, claim, open};
pub use explain::{Damaged, damaged_superblock, explain, explain_device};
pub use found::{Ext, Found, Known, contents, identify, member, superblock_copy};
pub use name::{Backing, OpenName, Window};
pub use partitions::{Partition, Table, TableKind, in_range};
#[cfg(feature = "formats")]
pub use qcow2::Qcow2;
pub use slice::Slice;
pub use tags::resolve;
#[cfg(feature = "formats")]
pub use {vhdx::Vhdx, vmdk::Vmdk};

/// An open volume.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The device of the volume.
    pub device: SharedDevice,
    /// The file or device of another host below it.
    pub base: Base,
    /// What the volume is all or a part of: the file, or what is packed in it.
    pub disk: SharedDevice,
    /// What is between them, from the file up.
    pub layers: Vec<Layer>,
}

impl Opened {
    /// True if all of a file or a device is the volume, as it is or packed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.layers.iter().all(|layer| layer.container().is_some())
    }

    /// Where in the disk the volume begins, if it is a part of it.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        match self.layers.last()? {
            Layer::Window(start, _) => Some(*start),
            Layer::Partition(part) => Some(part.start),
            _ => None,
        }
    }

    /// What the volume is packed in.
    #[must_use]
    pub fn container(&self) -> Option<Known> {
        self.layers.iter().find_map(Layer::container)
    }
}

/// What is between a file and the device of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layer {
    /// An Android sparse image, which is only read.
    AndroidSparse,
    /// A compressed file, which is only read.
    Expanded(Known),
    /// A VMDK image, which is only read.
    Vmdk,
    /// A VHDX image, which is only read.
    Vhdx,
    /// A qcow2 image.
    Qcow2 {
        /// The version of the format.
        version: u32,
        /// Bytes of a cluster.
        cluster: u64,
        /// The files below it, the nearest first.
        backing: Vec<PathBuf>,
    },
    /// A part by its place: offset and bytes.
    Window(u64, u64),
    /// A partition.
    Partition(Partition),
}

impl Layer {
    /// What a layer is that packs a whole volume or disk, and what unpacks it.
    #[must_use]
    pub fn container(&self) -> Option<Known> {
        match self {
            Self::AndroidSparse => Some(signatures::ANDROID_SPARSE),
            Self::Expanded(known) => Some(*known),
            Self::Vmdk => Some(signatures::VMDK),
            Self::Vhdx => Some(signatures::VHDX),
            Self::Qcow2 { .. } => Some(signatures::QCOW2),
            Self::Window(..) | Self::Partition(_) => None,
        }
    }
}

/// Why a name cannot be opened: one line, which names what was written.
#[derive(Debug)]
pub enum OpenFailed {
    /// The file or device cannot be opened; the error names it.
    Device(DeviceError),
    /// The name leads to no volume.
    Name {
        /// As it was written.
        name: PathBuf,
        /// What kind of error.
        kind: io::ErrorKind,
        /// What is wrong, and what to do.
        why: String,
    },
}

impl OpenFailed {
    fn name(name: &Path, kind: io::ErrorKind, why: impl Into<String>) -> Self {
        Self::Name { name: name.to_owned(), kind, why: why.into() }
    }

    /// What kind of error.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Device(error) => error.source.kind(),
            Self::Name { kind, .. } => *kind,
        }
    }
}

impl fmt::Display for OpenFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Name { name, why, .. } => write!(f, "{}: {why}", name.shown()),
        }
    }
}

impl std::error::Error for OpenFailed {}

impl From<DeviceError> for OpenFailed {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// The part that a name names of what an image or a device of another host holds.
fn with_part(
    name: &OpenName,
    image: SharedDevice,
    base: Base,
    mut layers: Vec<Layer>,
) -> Result<Opened, OpenFailed> {
    let device = match part(name, &*image)? {
        None => image.clone(),
        Some((layer, start, len)) => {
            layers.push(layer);
            Arc::new(Slice::new(image.clone(), start, len))
        }
    };
    Ok(Opened { device, base, disk: image, layers })
}

/// A disk image by its format: what is written there is its disk, and not the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskImage {
    /// What it is.
    pub known: Known,
    /// It can only be read.
    pub is_read_only: bool,
}

/// What a regular file is as a disk image, by its first bytes. (For what is decided before it is
/// opened.) Of formats that nothing here decodes it is none.
#[must_use]
pub fn disk_image(path: &Path) -> Option<DiskImage> {
    use std::io::Read as _;
    let mut first = [0; 8];
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()?.read_exact(&mut first).ok()?;
    let read_only = |known| Some(DiskImage { known, is_read_only: true });
    match () {
        #[cfg(feature = "formats")]
        () if Qcow2::is_one(&first) => {
            Some(DiskImage { known: signatures::QCOW2, is_read_only: false })
        }
        #[cfg(feature = "formats")]
        () if Vmdk::is_one(&first) => read_only(signatures::VMDK),
        #[cfg(feature = "formats")]
        () if Vhdx::is_one(&first) => read_only(signatures::VHDX),
        () if AndroidSparse::is_one(&first) => read_only(signatures::ANDROID_SPARSE),
        () => None,
    }
}

/// True if the first bytes of a file are those of an image.
fn begins_as(file: &dyn BlockDevice, is_one: impl Fn(&[u8]) -> bool) -> bool {
    let mut first = [0; 8];
    file.read_at(&mut first, 0).is_ok() && is_one(&first)
}

/// The error for an image whose tables are damaged.
#[cfg(feature = "formats")]
fn damaged(at: u64, what: &str) -> DeviceError {
    let why = io::Error::new(io::ErrorKind::InvalidData, format!("the image is damaged: {what}"));
    DeviceError::new(crate::DeviceOp::Read, at, 0, why)
}

/// The part of a device that a name names, and its place.
fn part(
    name: &OpenName,
    device: &dyn BlockDevice,
) -> Result<Option<(Layer, u64, u64)>, OpenFailed> {
    Ok(match &name.part {
        None if name.window.is_all() => None,
        None => {
            let (offset, len) = window(name, device)?;
            Some((Layer::Window(offset, len), offset, len))
        }
        Some(part) => {
            let part = partition(name, part, device)?;
            let (start, len) = (part.start, part.len);
            Some((Layer::Partition(part), start, len))
        }
    })
}

/// What mounts of this part may show as their source. A partition has several names.
fn names(name: &OpenName, file: &FileDevice, layer: &Layer) -> Vec<OsString> {
    let absolute = |part: Option<&OsStr>| {
        let part = part.map(OsStr::to_owned);
        OpenName { part, ..name.clone() }.absolute().ok().map(PathBuf::into_os_string)
    };
    let Layer::Partition(part) = layer else {
        return absolute(None).into_iter().collect();
    };
    let found = partitions::contents(file, part);
    let number = part.number.to_string();
    let parts = [number.as_bytes(), part.name.as_bytes(), part.uuid.as_bytes(), found.label()];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.filter_map(|part| absolute(Some(&os_str(part)))).collect()
}

/// The part of a file that a window shows. Without a limit it ends where a partition does that it
/// begins in, and where the next one or the copy of a GPT begins: a volume in it must not grow over
/// the others.
fn window(name: &OpenName, file: &dyn BlockDevice) -> Result<(u64, u64), OpenFailed> {
    let Window { offset, limit } = name.window;
    let rest = file.size().saturating_sub(offset);
    if rest == 0 {
        let why = format!("offset={offset} is not inside it: it has {} bytes", file.size());
        return Err(OpenFailed::name(&name.typed, io::ErrorKind::InvalidInput, why));
    }
    // (As losetup has it, a limit of 0 is none.)
    let limit = limit.filter(|limit| *limit != 0).or_else(|| {
        let table = partitions::read_table(file)?;
        Some(table.end_behind(offset)? - offset)
    });
    Ok((offset, limit.map_or(rest, |limit| limit.min(rest))))
}

/// The partition that a name names.
fn partition(
    name: &OpenName,
    part: &OsStr,
    file: &dyn BlockDevice,
) -> Result<Partition, OpenFailed> {
    let fail = |why: String| OpenFailed::name(&name.typed, io::ErrorKind::NotFound, why);
    let Some(table) = partitions::read_table(file) else {
        let what = match found::identify(file) {
            Found::Ext(ext) => format!("it holds an {} file system, and no partitions", ext.kind),
            Found::Known(lost) if lost == signatures::LOST_GPT => {
                let part = "-o offset= names a part by its place";
                return Err(fail(format!("it is {}: {}; {part}", lost.what, lost.advice)));
            }
            Found::Known(known) if known.advice.is_empty() => {
                return Err(fail(format!("it is {}, and has no partitions", known.what)));
            }
            // (What is to be done with it comes first: there may be partitions in it.)
            Found::Known(known) => {
                return Err(fail(format!("it is {}: {}", known.what, known.advice)));
            }
            found => match found.contents() {
                Some(what) => format!("it holds {what}, and no partitions"),
                None => "it has no partition table".to_owned(),
            },
        };
        return Err(fail(format!("{what}: say {}", name.path.shown())));
    };
    let found = table.find(file, part).map_err(|why| {
        let has = match table.parts.len() {
            1 => "1 partition".to_owned(),
            count => format!("{count} partitions"),
        };
        let (path, kind) = (name.path.shown(), table.kind.what());
        fail(format!("{why}: {path} is {kind} with {has} (extol info {path} lists them)"))
    })?;
    if found.is_extended() {
        let inside = table.parts.iter().find(|part| part.number > 4);
        let advice = inside.map_or_else(
            || "it has none yet".to_owned(),
            |part| format!("say {}:{}", name.path.shown(), part.number),
        );
        let number = found.number;
        let why = format!("partition {number} is an extended one, which only has others in it");
        return Err(fail(format!("{why}: {advice}")));
    }
    let (end, size) = (found.start.saturating_add(found.len), file.size());
    if end > size {
        let why = format!("partition {} ends at byte {end}, and the disk at {size}", found.number);
        let advice = format!("was it cut? (truncate -s {end} lengthens an image)");
        return Err(fail(format!("{why}: {advice}")));
    }
    Ok(found.clone())
}
