//! How disk images and block devices are opened, and the error of an open that fails.

use crate::{DeviceError, DeviceOp};
use extol_proc::Shown as _;
use std::io;
use std::path::Path;

/// Whether I/O bypasses the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// Where the file system or device below supports it.
    #[default]
    Auto,
    /// As `Auto` on a block device; a disk image is read through the page cache, which often holds
    /// it: for readers that keep little themselves.
    Devices,
    /// Always; else the open fails.
    On,
    /// Never.
    Off,
}

/// How to open a [`FileDevice`](crate::FileDevice).
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Refuses writes. Needs no write permission, and works beside a mount by the kernel.
    pub read_only: bool,
    /// Whether I/O bypasses the page cache.
    pub direct: Direct,
    /// Refuses a volume that another process writes to (and, for a writer, one that another process
    /// has open).
    pub exclusive: bool,
    /// Uses a part of a disk image, which
    /// [`FileDevice::claim_part`](crate::FileDevice::claim_part) names; the rest is left to
    /// others. Ignored for block devices.
    pub part: bool,
    /// Creates a disk image of this size if the path does not exist, and lengthens a shorter one.
    /// Ignored for block devices and read-only opens.
    pub create_size: Option<u64>,
    /// Opens a disk image without a byte as well, for
    /// [`FileDevice::lengthen`](crate::FileDevice::lengthen).
    pub may_be_empty: bool,
}

impl OpenOptions {
    /// Reading and writing, exclusively, direct where possible.
    #[must_use]
    pub fn read_write() -> Self {
        Self {
            read_only: false,
            direct: Direct::Auto,
            exclusive: true,
            part: false,
            create_size: None,
            may_be_empty: false,
        }
    }

    /// Reading only; fails beside an Extol that writes.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::read_write() }
    }

    /// Sets [`direct`](Self::direct).
    #[must_use]
    pub fn direct(mut self, direct: Direct) -> Self {
        self.direct = direct;
        self
    }

    /// Sets [`exclusive`](Self::exclusive).
    #[must_use]
    pub fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Sets [`part`](Self::part).
    #[must_use]
    pub fn part(mut self, part: bool) -> Self {
        self.part = part;
        self
    }

    /// Sets [`create_size`](Self::create_size).
    #[must_use]
    pub fn create_size(mut self, size: u64) -> Self {
        self.create_size = Some(size);
        self
    }
}

/// An open error that names the path.
pub(super) fn refuse(path: &Path, kind: io::ErrorKind, why: impl std::fmt::Display) -> DeviceError {
    DeviceError::new(DeviceOp::Open, 0, 0, io::Error::new(kind, format!("{}: {why}", path.shown())))
}

/// The system's message without "(os error N)".
pub(super) fn describe(e: &io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
