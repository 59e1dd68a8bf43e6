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

use crate::{BlockDevice, DeviceError, Direct, FileDevice, OpenOptions, SharedDevice};

pub use android::AndroidSparse;
pub use android_write::write_android_sparse;
use base::Unshared;
#[cfg(feature = "network")]
pub use base::dialer;
pub use base::{Base, is_address};
use expanded::Expanded;
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

/// A file or device that is open and locked. Nothing of its contents was looked at.
#[derive(Debug)]
pub struct Claimed {
    name: OpenName,
    base: Unshared,
    direct: Direct,
    /// What was expanded from the file.
    contents: Option<File>,
    /// The files below an image.
    #[cfg(feature = "formats")]
    backing: Vec<backing::Below>,
}

/// Opens what a name names.
///
/// # Errors
/// One line: it cannot be opened, is in use, or has no such part.
pub fn open(name: &OpenName, how: &OpenOptions) -> Result<Opened, OpenFailed> {
    claim(name, how)?.decode()
}

/// Opens and locks the file or device of a name.
///
/// # Errors
/// It cannot be opened, or is in use.
pub fn claim(name: &OpenName, how: &OpenOptions) -> Result<Claimed, OpenFailed> {
    let mut how = how.clone().part(name.is_part());
    if name.is_part() {
        // The size is that of the part.
        how.create_size = None;
    }
    if how.create_size.is_some() && disk_image(&name.path).is_some() {
        // The size is that of its disk.
        how.create_size = None;
    }
    #[cfg(feature = "network")]
    if let Some(connected) = base::connect(name, &how) {
        return Ok(Claimed {
            name: name.clone(),
            base: Unshared::Network(connected?),
            direct: how.direct,
            contents: None,
            #[cfg(feature = "formats")]
            backing: Vec::new(),
        });
    }
    let file = FileDevice::open(&name.path, &how).map_err(|error| name.failed(error))?;
    Ok(Claimed {
        name: name.clone(),
        #[cfg(feature = "formats")]
        backing: backing::open_chain(name, &file, &how)?,
        base: Unshared::File(file),
        direct: how.direct,
        contents: None,
    })
}

impl Claimed {
    /// Lengthens a disk image that was opened without direct I/O, which is `direct` then.
    ///
    /// # Errors
    /// It cannot be so long, or not be direct.
    pub fn lengthen(&mut self, bytes: u64, direct: Direct) -> Result<(), OpenFailed> {
        self.direct = direct;
        match &mut self.base {
            Unshared::File(file) => {
                file.lengthen(bytes, direct).map_err(|error| self.name.failed(error))
            }
            #[cfg(feature = "network")]
            Unshared::Network(_) => {
                let why = "its size is that of the server";
                Err(OpenFailed::name(&self.name.typed, io::ErrorKind::Unsupported, why))
            }
        }
    }

    /// The file or device.
    #[must_use]
    pub fn device(&self) -> &dyn BlockDevice {
        self.base.device()
    }

    /// The export, if it is one of another host.
    #[cfg(feature = "network")]
    #[must_use]
    pub fn network(&self) -> Option<&crate::NetworkDevice> {
        self.base.network()
    }

    /// Its path or address.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// What the file is, if it is compressed in a way that decoders are known for. (Nothing of it
    /// is decoded for that.)
    #[must_use]
    pub fn compression(&self) -> Option<Known> {
        let file = self.base.file()?;
        let mut first = [0; 6];
        let is_read = !self.name.raw && file.read_at(&mut first, 0).is_ok();
        let is = |signature: &&(Known, &[u8])| first.starts_with(signature.1);
        let found = signatures::COMPRESSED.iter().find(is).filter(|_| is_read);
        found.map(|(known, _)| *known)
    }

    /// Uses what was expanded from the file in its place.
    #[must_use]
    pub fn with_contents(self, contents: File) -> Self {
        Self { contents: Some(contents), ..self }
    }

    /// Finds the part that is the volume, and claims it.
    ///
    /// # Errors
    /// There is no such part, or it is in use.
    pub fn decode(self) -> Result<Opened, OpenFailed> {
        if let Some(known) = self.compression().filter(|_| self.contents.is_some()) {
            return self.unpack(Layer::Expanded(known), known);
        }
        #[cfg(feature = "network")]
        if let Unshared::Network(device) = self.base {
            let device = Arc::new(device);
            return with_part(&self.name, device.clone(), Base::Network(device), vec![]);
        }
        #[cfg(feature = "formats")]
        if begins_as(self.device(), Qcow2::is_one) {
            return self.decode_qcow2();
        }
        #[cfg(feature = "formats")]
        if !self.name.raw && begins_as(self.device(), Vmdk::is_one) {
            return self.unpack(Layer::Vmdk, signatures::VMDK);
        }
        #[cfg(feature = "formats")]
        if !self.name.raw && begins_as(self.device(), Vhdx::is_one) {
            return self.unpack(Layer::Vhdx, signatures::VHDX);
        }
        if !self.name.raw && begins_as(self.device(), AndroidSparse::is_one) {
            return self.unpack(Layer::AndroidSparse, signatures::ANDROID_SPARSE);
        }
        let (name, mut file, direct, _) = self.into_file()?;
        let Some((layer, start, len)) = part(&name, &file)? else {
            let file = Arc::new(file);
            let base = Base::File(file.clone());
            return Ok(Opened { device: file.clone(), disk: file, base, layers: vec![] });
        };
        let names = |file: &FileDevice| names(&name, file, &layer);
        let end = start.saturating_add(len).min(file.size());
        file.claim_part(start..end, &names, direct).map_err(|error| name.failed(error))?;
        let file = Arc::new(file);
        let device: SharedDevice = Arc::new(Slice::new(file.clone(), start, len));
        Ok(Opened { device, disk: file.clone(), base: Base::File(file), layers: vec![layer] })
    }

    /// Its parts, of a file.
    fn into_file(self) -> Result<(OpenName, FileDevice, Direct, Option<File>), OpenFailed> {
        match self.base {
            Unshared::File(file) => Ok((self.name, file, self.direct, self.contents)),
            #[cfg(feature = "network")]
            Unshared::Network(_) => {
                let why = "a device of another host has no format";
                Err(OpenFailed::name(&self.name.typed, io::ErrorKind::Unsupported, why))
            }
        }
    }

    /// Opens what is packed in the file, for reading.
    fn unpack(self, layer: Layer, known: Known) -> Result<Opened, OpenFailed> {
        let (name, mut file, _, contents) = self.into_file()?;
        let fail = |kind, why: String| OpenFailed::name(&name.typed, kind, why);
        if !file.is_read_only() {
            let why = format!("is {}, which is only read: {}", known.what, known.advice);
            return Err(fail(io::ErrorKind::ReadOnlyFilesystem, why));
        }
        claim_all(&name, &mut file)?;
        let file = Arc::new(file);
        let damaged =
            |why: String| fail(io::ErrorKind::InvalidData, format!("is {}; {why}", known.what));
        let packed: SharedDevice = match contents {
            #[cfg(feature = "formats")]
            None if layer == Layer::Vmdk => Arc::new(Vmdk::new(file.clone()).map_err(damaged)?),
            #[cfg(feature = "formats")]
            None if layer == Layer::Vhdx => Arc::new(Vhdx::new(file.clone()).map_err(damaged)?),
            None => Arc::new(AndroidSparse::new(file.clone()).map_err(damaged)?),
            Some(contents) => {
                let expanded = Expanded::new(contents, file.clone());
                Arc::new(expanded.map_err(|error| damaged(error.to_string()))?)
            }
        };
        with_part(&name, packed, Base::File(file), vec![layer])
    }

    /// Opens what a qcow2 image holds.
    #[cfg(feature = "formats")]
    fn decode_qcow2(mut self) -> Result<Opened, OpenFailed> {
        let backing = std::mem::take(&mut self.backing);
        let (name, mut file, ..) = self.into_file()?;
        claim_all(&name, &mut file)?;
        let file = Arc::new(file);
        let paths = backing.iter().map(|below| below.file.path().to_owned()).collect();
        let image =
            backing::decode_chain(backing).and_then(|below| Qcow2::new(file.clone(), below));
        let image = image.map_err(|why| {
            let why = format!("is {}; {why}", signatures::QCOW2.what);
            OpenFailed::name(&name.typed, io::ErrorKind::InvalidData, why)
        })?;
        let (version, cluster) = image.format();
        let layer = Layer::Qcow2 { version, cluster, backing: paths };
        with_part(&name, Arc::new(image), Base::File(file), vec![layer])
    }
}

/// Claims all of the file of an image, whichever part of its contents is wanted.
fn claim_all(name: &OpenName, file: &mut FileDevice) -> Result<(), OpenFailed> {
    let claimed = file.claim_part(0..u64::MAX, &|_| Vec::new(), Direct::Auto);
    claimed.map_err(|error| name.failed(error))
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
