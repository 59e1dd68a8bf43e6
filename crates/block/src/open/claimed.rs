//! A file or device between its opening and the search for the volume in it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "network")]
use super::base;
use super::base::{Base, Unshared};
use super::expanded::Expanded;
use super::found::Known;
use super::{
    AndroidSparse, Layer, OpenFailed, OpenName, Opened, Slice, begins_as, disk_image, names, part,
    signatures, with_part,
};
#[cfg(feature = "formats")]
use super::{Qcow2, Vhdx, Vmdk, backing};
use crate::{BlockDevice, Direct, FileDevice, OpenOptions, SharedDevice};

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
