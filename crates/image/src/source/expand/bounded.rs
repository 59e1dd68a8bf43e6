//! Decoders within bounds.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

use super::Compression;
use super::zstd::Frames;
use crate::error::BuildError;
use crate::tree::Limits;

/// The most memory for the dictionary of xz and the window of zstd. It is what `xz -9` and
/// `zstd --ultra` need; `zstd --long` with more is refused by the command as well.
const WINDOW: u64 = 128 << 20;
/// Bytes that come out before the ratio counts: a short source may be all zeros.
const EXEMPT: u64 = 1 << 30;

/// A decoder of that format.
pub(super) fn decoder<'r>(
    compression: Compression,
    input: impl BufRead + Send + 'r,
    limits: &Limits,
) -> Box<dyn Read + Send + 'r> {
    let bounds = Bounds { read: 0, given: 0, expand: limits.expand, ratio: limits.expand_ratio };
    let input = Counted { input, count: 0 };
    match compression {
        Compression::Gz => bounded(Members(Some(GzDecoder::new(input))), bounds),
        // The dictionary is not all of its memory.
        Compression::Xz => {
            let reader = XzReader::new_mem_limit(input, true, (WINDOW >> 10) as u32 * 2);
            bounded(Streams(reader), bounds)
        }
        _ => bounded(Frames::new(input, WINDOW), bounds),
    }
}

fn bounded<'r>(decoder: impl Decoder + Send + 'r, bounds: Bounds) -> Box<dyn Read + Send + 'r> {
    Box::new(Bounded { decoder, bounds, ended: false })
}

/// What may come out.
struct Bounds {
    read: u64,
    given: u64,
    expand: u64,
    ratio: u64,
}

impl Bounds {
    fn check(&self) -> Result<(), BuildError> {
        if self.given > self.expand {
            let what = "bytes when it is expanded";
            return Err(BuildError::Limit { what, name: "expand", limit: self.expand });
        }
        if self.given > EXEMPT && self.given / self.ratio.max(1) > self.read {
            let what = "bytes for each of its own when it is expanded";
            return Err(BuildError::Limit { what, name: "expand-ratio", limit: self.ratio });
        }
        Ok(())
    }
}

/// A reader that counts.
struct Counted<R> {
    input: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buf)?;
        self.count += len as u64;
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.count += len as u64;
        self.input.consume(len);
    }
}

/// A decoder that says how much it has read.
trait Decoder: Read {
    fn bytes_in(&self) -> u64;
}

/// The members of a gzip file, one after the other. Zeros behind the last one are padding, as for
/// the command.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.0 else { return Ok(0) };
            let len = member.read(buf)?;
            if len > 0 || buf.is_empty() || at_end(member.get_mut())? {
                return Ok(len);
            }
            self.0 = self.0.take().map(|member| GzDecoder::new(member.into_inner()));
        }
    }
}

/// True if nothing but zeros is left, which are read.
fn at_end(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let is_more = zeros < bytes.len();
        input.consume(zeros);
        if is_more {
            return Ok(false);
        }
    }
}

impl<R: BufRead> Decoder for Members<Counted<R>> {
    fn bytes_in(&self) -> u64 {
        self.0.as_ref().map_or(0, |member| member.get_ref().count)
    }
}

/// The streams of an xz file, one after the other.
struct Streams<R: Read>(XzReader<R>);

impl<R: Read> Read for Streams<R> {
    /// (What the decoder says of damage is of use to its authors.)
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| {
            let is_damage = matches!(
                error.kind(),
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
            );
            match is_damage && error.raw_os_error().is_none() {
                true => io::Error::new(error.kind(), "xz: it is damaged, or cut short"),
                false => error,
            }
        })
    }
}

impl<R: Read> Decoder for Streams<Counted<R>> {
    fn bytes_in(&self) -> u64 {
        self.0.inner().count
    }
}

impl<R: BufRead> Decoder for Frames<Counted<R>> {
    fn bytes_in(&self) -> u64 {
        self.input().count
    }
}

/// A decoder within its bounds.
struct Bounded<D> {
    decoder: D,
    bounds: Bounds,
    ended: bool,
}

impl<D: Decoder> Read for Bounded<D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ended || buf.is_empty() {
            return Ok(0);
        }
        loop {
            match self.decoder.read(buf) {
                Ok(len) => {
                    self.ended = len == 0;
                    self.bounds.given += len as u64;
                    self.bounds.read = self.decoder.bytes_in();
                    if let Err(limit) = self.bounds.check() {
                        self.ended = true;
                        return Err(io::Error::other(limit));
                    }
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error);
                }
            }
        }
    }
}
