//! What is below all layers of a volume: a file or disk of this host, or an export of another one.

use std::path::Path;
use std::sync::Arc;

use crate::{BlockDevice, FileDevice, SharedDevice};
#[cfg(feature = "network")]
use crate::{DeviceError, DeviceOp, NetworkDevice, OpenOptions};

use super::name::OpenName;

/// A file or device that nothing shares yet.
#[derive(Debug)]
#[cfg_attr(
    feature = "network",
    expect(clippy::large_enum_variant, reason = "there is one, for the time of opening")
)]
pub(super) enum Unshared {
    File(FileDevice),
    #[cfg(feature = "network")]
    Network(NetworkDevice),
}

impl Unshared {
    pub fn file(&self) -> Option<&FileDevice> {
        match self {
            Self::File(file) => Some(file),
            #[cfg(feature = "network")]
            Self::Network(_) => None,
        }
    }

    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::File(file) => file,
            #[cfg(feature = "network")]
            Self::Network(device) => device,
        }
    }

    #[cfg(feature = "network")]
    pub fn network(&self) -> Option<&NetworkDevice> {
        match self {
            Self::File(_) => None,
            Self::Network(device) => Some(device),
        }
    }
}

/// The file or device below all layers.
#[derive(Clone, Debug)]
pub enum Base {
    /// A disk image or a block device.
    File(Arc<FileDevice>),
    /// An export of an NBD server.
    #[cfg(feature = "network")]
    Network(Arc<NetworkDevice>),
}

impl Base {
    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<FileDevice>> {
        match self {
            Self::File(file) => Some(file),
            #[cfg(feature = "network")]
            Self::Network(_) => None,
        }
    }

    /// As a device.
    #[must_use]
    pub fn device(&self) -> SharedDevice {
        match self {
            Self::File(file) => file.clone(),
            #[cfg(feature = "network")]
            Self::Network(device) => device.clone(),
        }
    }

    /// The block device, if it is one of this host.
    #[must_use]
    pub fn block_device(&self) -> Option<&Arc<FileDevice>> {
        self.file().filter(|file| file.is_block_device())
    }

    /// The export, if it is one of another host.
    #[cfg(feature = "network")]
    #[must_use]
    pub fn network(&self) -> Option<&NetworkDevice> {
        match self {
            Self::File(_) => None,
            Self::Network(device) => Some(device),
        }
    }

    /// The path or address that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            #[cfg(feature = "network")]
            Self::Network(device) => device.path(),
        }
    }
}

/// Connects to the export that a name is the address of.
#[cfg(feature = "network")]
pub(super) fn connect(
    name: &OpenName,
    how: &OpenOptions,
) -> Option<Result<NetworkDevice, DeviceError>> {
    let uri = name.address.as_ref()?;
    let opened = NetworkDevice::open(uri, how.read_only, name.window.offset);
    Some(opened.map_err(|error| {
        use extol_proc::Shown as _;
        let line = format!("{}: {error}", name.path.shown());
        DeviceError::new(DeviceOp::Open, 0, 0, std::io::Error::new(error.kind(), line))
    }))
}

/// True if a name is the address of a device of another host.
#[must_use]
pub fn is_address(name: &Path) -> bool {
    super::name::scheme(name).is_some_and(|_| OpenName::is_network(name))
}

/// What connects to the server of an address.
///
/// # Errors
/// It is no address, or the host is not found.
#[cfg(feature = "network")]
pub fn dialer(name: &Path) -> std::io::Result<extol_nbd::Dialer> {
    let no_address = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let name = OpenName::parse(name, super::Window::default()).map_err(|_| no_address())?;
    let uri = name.address.ok_or_else(no_address)?;
    extol_nbd::Dialer::new(&uri).map_err(extol_nbd::Error::into_io)
}
