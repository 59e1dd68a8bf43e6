//! What was expanded from a compressed file, as a device, for reading.
//!
//! Expanding needs decoders, which this crate has none of: the caller expands the file once into
//! another one, most likely without a name, and gives that ([`Claimed::with_contents`]).
//!
//! [`Claimed::with_contents`]: super::Claimed::with_contents

use std::fs::File;
use std::io;

use super::read_only::ReadOnly;
use crate::{DeviceError, DeviceOp, Result, SharedDevice, sys};

/// The contents of a compressed file.
#[derive(Debug)]
pub(super) struct Expanded {
    contents: File,
    size: u64,
    /// The compressed file, which stays locked.
    inner: SharedDevice,
}

impl Expanded {
    pub fn new(contents: File, inner: SharedDevice) -> io::Result<Self> {
        Ok(Self { size: contents.metadata()?.len(), contents, inner })
    }
}

impl ReadOnly for Expanded {
    const REFUSAL: &'static str = "a compressed image is only read: expand it first";

    fn inner(&self) -> &SharedDevice {
        &self.inner
    }

    fn disk_size(&self) -> u64 {
        self.size
    }

    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let len = buf.len();
        let read = sys::read_exact_at(&self.contents, buf, at);
        read.map_err(|error| DeviceError::new(DeviceOp::Read, at, len as u64, error))?;
        Ok(len)
    }
}
