//! What an archive is read from: a file that can be read in place, or a stream.

use std::io::{self, Read};
use std::sync::Arc;

use super::header::BLOCK;
use crate::error::{BuildError, Result};
use crate::source::pieces::{HolderNr, Pieces};
use crate::source::spool::Spool;

/// How much of a file is read at once for its headers.
const AHEAD: usize = 16 << 10;
/// How much of a stream is spooled at once.
const CHUNK: usize = 256 << 10;

/// What an archive is read from.
pub(in crate::source) struct Input<'i> {
    /// The archive's name, for messages.
    name: Vec<u8>,
    /// Where it begins.
    start: u64,
    /// Where it is read next.
    at: u64,
    from: From<'i>,
}

enum From<'i> {
    /// A range of a file. Contents stay where they are.
    File { file: Arc<std::fs::File>, holder: HolderNr, end: u64, ahead: Vec<u8>, ahead_at: u64 },
    /// A stream. Contents go to a spool.
    Stream { stream: Box<dyn Read + 'i>, spool: &'i mut Spool, holder: HolderNr, chunk: Vec<u8> },
}

impl<'i> Input<'i> {
    /// A range of a file.
    pub fn file(
        pieces: &Pieces,
        holder: HolderNr,
        range: std::ops::Range<u64>,
        name: &[u8],
    ) -> Self {
        let file = Arc::clone(pieces.file(holder));
        let from =
            From::File { file, holder, end: range.end, ahead: Vec::new(), ahead_at: range.start };
        Self { name: name.to_owned(), start: range.start, at: range.start, from }
    }

    /// A stream, and the spool that is that holder.
    pub fn stream(
        stream: Box<dyn Read + 'i>,
        spool: &'i mut Spool,
        holder: HolderNr,
        name: &[u8],
    ) -> Self {
        let from = From::Stream { stream, spool, holder, chunk: Vec::new() };
        Self { name: name.to_owned(), start: 0, at: 0, from }
    }

    /// The archive's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Where it is read next.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// An error of reading it.
    pub fn failed(&self, error: io::Error) -> BuildError {
        match error.downcast::<BuildError>() {
            Ok(error) => error,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                BuildError::entry(&self.name, "is cut off: the archive ends within an entry")
            }
            Err(error) => BuildError::entry(&self.name, error),
        }
    }

    /// The next block. `None` at the end of what there is.
    pub fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let done = self.read(&mut block).map_err(|error| self.failed(error))?;
        match done {
            0 => Ok(None),
            BLOCK => Ok(Some(block)),
            short if self.at == self.start + short as u64 => {
                let why = "is no tar archive, or cut off within its first header";
                Err(BuildError::entry(&self.name, why))
            }
            _ => Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// True if nothing but zeros comes next, as far as that.
    pub fn begins_with_zeros(&mut self, len: usize) -> Result<bool> {
        let mut bytes = vec![0; len];
        let done = self.read(&mut bytes).map_err(|error| self.failed(error))?;
        Ok(bytes.iter().take(done).all(|byte| *byte == 0))
    }

    /// So many bytes, and what is left of their last block.
    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len.next_multiple_of(BLOCK)];
        let done = self.read(&mut bytes).map_err(|error| self.failed(error))?;
        if done < bytes.len() {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Passes over so many bytes of contents, and what is left of their last block. Gives the place
    /// where they can be read later.
    pub fn contents(&mut self, len: u64) -> Result<(HolderNr, u64)> {
        self.pass(len, true)
    }

    /// Passes over contents that are not needed.
    pub fn skip(&mut self, len: u64) -> Result<()> {
        self.pass(len, false).map(|_| ())
    }

    fn pass(&mut self, len: u64, keep: bool) -> Result<(HolderNr, u64)> {
        let too_long = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let padded = len.checked_next_multiple_of(BLOCK as u64);
        let Some(next) = padded.and_then(|padded| self.at.checked_add(padded)) else {
            return Err(self.failed(too_long()));
        };
        let place = match &mut self.from {
            From::File { holder, end, .. } => {
                // The last block need not be whole if nothing follows.
                if self.at + len > *end {
                    return Err(self.failed(too_long()));
                }
                (*holder, self.at)
            }
            From::Stream { spool, holder, .. } => {
                let place = (*holder, spool.len());
                self.drain(len, next - self.at, keep)?;
                place
            }
        };
        self.at = next;
        Ok(place)
    }

    /// Reads bytes of a stream, of which the first ones go to the spool.
    fn drain(&mut self, contents: u64, padded: u64, keep: bool) -> Result<()> {
        let From::Stream { stream, spool, chunk, .. } = &mut self.from else { return Ok(()) };
        chunk.resize(CHUNK, 0);
        let (mut left, mut kept) = (padded, if keep { contents } else { 0 });
        while left > 0 {
            let want = left.min(CHUNK as u64) as usize;
            let done = match read_some(stream, &mut chunk[..want]) {
                Ok(done) => done,
                Err(error) => return Err(self.failed(error)),
            };
            let part = kept.min(done as u64) as usize;
            if part > 0 {
                spool.put(&chunk[..part])?;
            }
            kept -= part as u64;
            left -= done as u64;
            if done < want {
                if padded - left < contents {
                    return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
                }
                break;
            }
        }
        Ok(())
    }

    /// Reads what is behind the archive, so that a checksum at its end is checked and a program
    /// that writes the stream is not interrupted.
    pub fn finish(&mut self) -> Result<()> {
        let From::Stream { stream, chunk, .. } = &mut self.from else { return Ok(()) };
        chunk.resize(CHUNK, 0);
        loop {
            match read_some(stream, chunk) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let done = match &mut self.from {
            From::Stream { stream, .. } => read_some(stream, buf)?,
            From::File { file, end, ahead, ahead_at, .. } => {
                let mut done = 0;
                while done < buf.len() {
                    let at = self.at + done as u64;
                    let inside = at.checked_sub(*ahead_at).filter(|at| *at < ahead.len() as u64);
                    let Some(inside) = inside else {
                        let len = end.saturating_sub(at).min(AHEAD as u64) as usize;
                        ahead.resize(len, 0);
                        let got = crate::source::read_full(file, at, ahead)?;
                        ahead.truncate(got);
                        *ahead_at = at;
                        if got == 0 {
                            break;
                        }
                        continue;
                    };
                    let there = &ahead[inside as usize..];
                    let len = there.len().min(buf.len() - done);
                    buf[done..done + len].copy_from_slice(&there[..len]);
                    done += len;
                }
                done
            }
        };
        self.at += done as u64;
        Ok(done)
    }
}

/// Reads until the buffer is full or the stream ends.
fn read_some(stream: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match stream.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
