//! Requests and replies as bytes.
//!
//! A [`Request`] borrows the buffer that it was read into. [`Args`] decodes it field by field; if
//! it is too short the request fails with `EIO`, and no other one does. A [`Reply`] is the write
//! buffer: handlers append fields after the space for the header, and the transport sends the whole
//! at once.

use std::ops::{Deref, DerefMut};

use crate::abi::{IN_HEADER, OUT_HEADER};
use crate::buffer::Buffer;
use crate::errno::{Errno, Result};

/// One request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) nodeid: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The calling thread, in the numbers of the mount's pid namespace; 0 if it is in none that is
    /// visible from there.
    pub(crate) pid: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Takes the header apart. `None` if the bytes cannot be a request (then there is nothing to
    /// answer).
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut args = Args(bytes);
        let len = args.u32().ok()? as usize;
        let opcode = args.u32().ok()?;
        let unique = args.u64().ok()?;
        let nodeid = args.u64().ok()?;
        let uid = args.u32().ok()?;
        let gid = args.u32().ok()?;
        let pid = args.u32().ok()?;
        let extensions = usize::from(args.u16().ok()?) * 8;
        let end = len.checked_sub(extensions)?;
        (len == bytes.len()).then_some(())?;
        let body = bytes.get(IN_HEADER..end)?;
        Some(Self { opcode, unique, nodeid, uid, gid, pid, body })
    }

    /// The fields behind the header.
    pub(crate) fn args(&self) -> Args<'a> {
        Args(self.body)
    }
}

/// A cursor over the fields of a request.
#[derive(Debug)]
pub(crate) struct Args<'a>(pub(crate) &'a [u8]);

impl<'a> Args<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Errno(libc::EIO))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Passes over fields of no interest.
    pub(crate) fn skip(&mut self, bytes: usize) -> Result<()> {
        self.0 = self.0.get(bytes..).ok_or(Errno(libc::EIO))?;
        Ok(())
    }

    /// A NUL-terminated name.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno(libc::EIO))?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(name)
    }

    /// Exactly `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let bytes = self.0.get(..len).ok_or(Errno(libc::EIO))?;
        self.0 = self.0.get(len..).unwrap_or_default();
        Ok(bytes)
    }
}

/// The reply that is being put together. Its memory is reused from request to request.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    /// At least `len` bytes; grows when needed and keeps its size, so that reads need no zeroing.
    /// The body begins a page.
    buf: Memory<'a>,
    len: usize,
    /// Inodes on each of which this reply carries one reference.
    pub(crate) references: Vec<u32>,
    /// The file that it says is open.
    pub(crate) opened: Option<Opened>,
}

/// A file that a reply says is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) ino: u32,
    /// For writing.
    pub(crate) writes: bool,
}

/// Where a reply stands.
#[derive(Debug)]
enum Memory<'a> {
    /// In memory of its own.
    Own(Buffer),
    /// In borrowed memory: see [`Reply::lent`].
    Lent(&'a mut [u8]),
}

impl Deref for Memory<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Lent(bytes) => bytes,
        }
    }
}

/// Room for the bodies of most replies.
const SMALL: usize = 512;

impl Default for Reply<'_> {
    fn default() -> Self {
        let buf = Memory::Own(Buffer::new(OUT_HEADER + SMALL, OUT_HEADER));
        Self { buf, len: OUT_HEADER, references: Vec::new(), opened: None }
    }
}

impl<'a> Reply<'a> {
    /// A reply put together in `memory`, which has room for the header at least. One that needs
    /// more takes memory of its own.
    pub(crate) fn lent(memory: &'a mut [u8]) -> Self {
        let buf = Memory::Lent(memory);
        Self { buf, len: OUT_HEADER, references: Vec::new(), opened: None }
    }

    /// The body, if it is in memory of its own.
    pub(crate) fn own_body(&self) -> Option<&[u8]> {
        matches!(self.buf, Memory::Own(_)).then(|| &self.buf[OUT_HEADER..self.len])
    }

    /// Forgets what was put together.
    pub(crate) fn clear(&mut self) {
        self.truncate_body(0);
        self.references.clear();
        self.opened = None;
    }

    /// Bytes put together behind the header.
    pub(crate) fn body_len(&self) -> usize {
        self.len - OUT_HEADER
    }

    /// Appends room for `size` bytes of unspecified contents.
    pub(crate) fn room(&mut self, size: usize) -> &mut [u8] {
        let start = self.len;
        self.len += size;
        if self.buf.len() < self.len {
            let mut larger = Buffer::new(self.len.max(2 * self.buf.len()), OUT_HEADER);
            larger[..start].copy_from_slice(&self.buf[..start]);
            self.buf = Memory::Own(larger);
        }
        &mut self.buf[start..start + size]
    }

    /// Cuts the body to `size` bytes.
    pub(crate) fn truncate_body(&mut self, size: usize) {
        self.len = self.len.min(OUT_HEADER + size);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.room(bytes.len()).copy_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(&mut self, size: usize) -> &mut Self {
        self.room(size).fill(0);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Writes the header and gives all bytes. `code` is 0, a negative errno, or the code of a
    /// notification.
    pub(crate) fn finish(&mut self, unique: u64, code: i32) -> &[u8] {
        let header = header(self.body_len(), unique, code);
        self.buf[..OUT_HEADER].copy_from_slice(&header);
        &self.buf[..self.len]
    }
}

/// The header of a reply with a body of so many bytes.
pub(crate) fn header(body: usize, unique: u64, code: i32) -> [u8; OUT_HEADER] {
    let len = u32::try_from(OUT_HEADER + body).unwrap_or(u32::MAX);
    let mut header = [0; OUT_HEADER];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&code.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u32, extensions: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(len.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(99_u64.to_ne_bytes());
        bytes.extend(5_u64.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(extensions.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn takes_requests_apart() {
        let bytes = request(46, 0, b"ab\0c\0z");
        let request = Request::parse(&bytes).unwrap();
        assert_eq!((request.opcode, request.unique, request.nodeid), (7, 99, 5));
        let mut args = request.args();
        assert_eq!(args.name().unwrap(), b"ab");
        assert_eq!(args.name().unwrap(), b"c");
        assert_eq!(args.name(), Err(Errno(libc::EIO)));
        assert_eq!(args.bytes(1).unwrap(), b"z");
        assert_eq!(args.u16(), Err(Errno(libc::EIO)));
    }

    #[test]
    fn refuses_lengths_that_lie() {
        let body = [0_u8; 16];
        assert!(Request::parse(&request(56, 0, &body)).is_some());
        assert_eq!(Request::parse(&request(56, 1, &body)).unwrap().body.len(), 8);
        assert!(Request::parse(&request(55, 0, &body)).is_none());
        assert!(Request::parse(&request(57, 0, &body)).is_none());
        assert!(Request::parse(&request(56, 3, &body)).is_none());
        assert!(Request::parse(&request(56, 65535, &body)).is_none());
        assert!(Request::parse(&body).is_none());
    }

    #[test]
    fn replies_reuse_their_memory() {
        let mut reply = Reply::default();
        reply.clear();
        reply.u32(1).u64(2);
        assert_eq!(reply.finish(3, 0).len(), 28);
        reply.clear();
        reply.room(100)[..4].copy_from_slice(b"data");
        reply.truncate_body(4);
        assert_eq!(
            reply.finish(3, -5)[16..].as_ptr().addr() % 4096,
            0,
            "data may be read straight into it"
        );
        let bytes = reply.finish(3, -5);
        assert_eq!(bytes.len(), 20);
        assert_eq!(&bytes[4..8], (-5_i32).to_ne_bytes());
        assert_eq!(&bytes[16..], b"data");
    }
}
