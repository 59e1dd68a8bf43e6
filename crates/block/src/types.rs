//! Requests and errors of the device layer.

use std::fmt;
use std::io::{self, IoSlice};

/// One write of a batch that goes to
/// [`BlockDevice::write_scattered`](crate::BlockDevice::write_scattered).
#[derive(Clone, Copy, Debug)]
pub struct ScatteredWrite<'a> {
    /// Byte offset on the device.
    pub offset: u64,
    /// The bytes, one buffer after the other.
    pub bufs: &'a [IoSlice<'a>],
}

impl ScatteredWrite<'_> {
    /// Bytes in all buffers.
    #[must_use]
    pub fn len(&self) -> u64 {
        crate::total_len(self.bufs)
    }

    /// True if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bufs.iter().all(|b| b.is_empty())
    }
}

/// The operation of a device that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceOp {
    /// Opening or probing.
    Open,
    /// A read.
    Read,
    /// A write.
    Write,
    /// A cache flush.
    Flush,
    /// A discard.
    Discard,
    /// Zeroing a range.
    Zero,
    /// Changing the size.
    Resize,
}

impl fmt::Display for DeviceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Zero => "zero",
            Self::Resize => "resize",
        })
    }
}

/// A failed device operation.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.describe())]
pub struct DeviceError {
    /// The operation.
    pub op: DeviceOp,
    /// Byte offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// The kind of the reason, and the error itself inside.
impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

impl DeviceError {
    /// A new error.
    #[must_use]
    pub fn new(op: DeviceOp, offset: u64, len: u64, source: io::Error) -> Self {
        Self { op, offset, len, source }
    }

    /// True if the device does not support the operation (mostly discard): no failure.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
    }

    /// True if there is no room for the bytes below the device: a sparse image lies on a full file
    /// system, or a thin device has no blocks left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    fn describe(&self) -> String {
        let Self { op, offset, len, source } = self;
        match op {
            // The source names the file and says what to do.
            DeviceOp::Open => source.to_string(),
            DeviceOp::Flush => format!("flush of the device failed: {source}"),
            DeviceOp::Resize => format!("resizing the device to {len} bytes failed: {source}"),
            _ => format!("{op} of {len} bytes at {offset} failed: {source}"),
        }
    }
}

impl Clone for DeviceError {
    fn clone(&self) -> Self {
        let source = match self.source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.source.kind(), self.source.to_string()),
        };
        Self { op: self.op, offset: self.offset, len: self.len, source }
    }
}

/// How a batch of durable writes reaches the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fua {
    /// As ordinary writes with one flush behind them.
    #[default]
    Flush,
    /// Each write is made durable, by a flush of its own where the medium knows no FUA.
    PerWrite,
    /// The medium knows FUA: it writes these bytes through and leaves the rest of its cache alone.
    Native,
}

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;
