//! Compressed sources: what they are, and decoders with bounds.
//!
//! Compression is told by the first bytes, never by a name. A decoder may be asked for far more
//! than a source has on its medium, so each counts what goes in and what comes out, and stops at
//! the limits. After an error it is not called again: its state means nothing then.

#[cfg(feature = "compressed")]
mod bounded;
#[cfg(feature = "compressed")]
mod zstd;

use std::io::{BufRead, Read};

use crate::error::BuildError;
use crate::tree::Limits;

/// How a source is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all, as far as its first bytes say.
    None,
    /// gzip
    Gz,
    /// xz
    Xz,
    /// Zstandard
    Zst,
    /// A format that is not read here.
    Unknown(&'static str),
}

impl Compression {
    /// How many bytes tell.
    pub const PREFIX: usize = 8;

    /// By the first bytes.
    #[must_use]
    pub fn of(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gz,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zst,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Unknown("bzip2"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Unknown("lz4"),
            [b'L', b'Z', b'I', b'P', ..] => Self::Unknown("lzip"),
            [0x1f, 0x9d, ..] => Self::Unknown("compress"),
            [0x5d, 0, 0, ..] => Self::Unknown("lzma"),
            _ => Self::None,
        }
    }
}

/// Reads what comes out of a compressed stream.
///
/// # Errors
/// A format that is not read here.
pub fn decoder<'r>(
    compression: Compression,
    input: impl BufRead + Send + 'r,
    #[cfg_attr(not(feature = "compressed"), expect(unused_variables))] limits: &Limits,
) -> Result<Box<dyn Read + Send + 'r>, BuildError> {
    match compression {
        Compression::None => Ok(Box::new(input)),
        #[cfg(feature = "compressed")]
        Compression::Gz | Compression::Xz | Compression::Zst => {
            Ok(bounded::decoder(compression, input, limits))
        }
        #[cfg(not(feature = "compressed"))]
        Compression::Gz | Compression::Xz | Compression::Zst => {
            let why = "it is compressed, and this build cannot expand: decompress it first";
            Err(BuildError::Refused(why.into()))
        }
        Compression::Unknown(name) => Err(BuildError::Refused(format!(
            "it is compressed with {name}: decompress it first, or use gzip, xz or zstd"
        ))),
    }
}
