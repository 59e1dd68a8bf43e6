//! Requests and replies as bytes. All numbers are big-endian.

use std::ops::Range;

use crate::{Error, Result};

/// Bytes of a request before its data.
pub const REQUEST_LEN: usize = 28;
/// Bytes of the shorter of both reply heads.
pub const SIMPLE_LEN: usize = 16;
/// Bytes of the head of a chunk of a structured reply.
pub const CHUNK_LEN: usize = 20;
/// Most bytes of an error text or of other small contents.
pub const MOST_SMALL: u32 = 64 << 10;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

bitflags::bitflags! {
    /// What an export can do.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ExportFlags: u16 {
        /// The other flags count.
        const HAS_FLAGS = 1;
        /// It refuses changes.
        const READ_ONLY = 1 << 1;
        /// It has a cache that a flush makes durable.
        const FLUSH = 1 << 2;
        /// Single requests can be made durable.
        const FUA = 1 << 3;
        /// It is a disk that turns.
        const ROTATIONAL = 1 << 4;
        /// Ranges can be discarded.
        const TRIM = 1 << 5;
        /// Ranges can be zeroed.
        const WRITE_ZEROES = 1 << 6;
        /// Replies to reads can be one chunk.
        const DONT_FRAGMENT = 1 << 7;
        /// A flush on one connection covers what was written on all.
        const MULTI_CONN = 1 << 8;
        /// Bits that later versions define.
        const _ = !0;
    }

    /// How a request is carried out.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RequestFlags: u16 {
        /// Durable before the reply.
        const FUA = 1;
        /// Zeros keep their space.
        const NO_HOLE = 1 << 1;
        /// The reply is one chunk.
        const DONT_FRAGMENT = 1 << 2;
        /// Block status: one extent.
        const ONE_EXTENT = 1 << 3;
        /// Zeros only if that is faster than writing them.
        const FAST_ZERO = 1 << 4;
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Command {
    /// Bytes.
    Read = 0,
    /// New bytes.
    Write = 1,
    /// The end of the connection, without a reply.
    Disconnect = 2,
    /// That what was written is durable.
    Flush = 3,
    /// That the contents of a range have no value any more.
    Trim = 4,
    /// Zeros.
    WriteZeroes = 6,
    /// Which ranges are holes or zeros.
    BlockStatus = 7,
}

impl Command {
    /// True if bytes of the device change.
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// How.
    pub flags: RequestFlags,
    /// What its reply carries as well.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub len: u32,
}

impl Request {
    /// Its bytes, without data.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Numbers of bytes that a peer sent; what is not there is against the rules.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| Error::protocol("a message is shorter than its contents"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// The head of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// A whole reply; data of a read follow if there is no error.
    Simple {
        /// The cookie of the request.
        cookie: u64,
        /// Zero, or the error.
        error: u32,
    },
    /// A chunk of a reply; `len` bytes follow.
    Chunk {
        /// The cookie of the request.
        cookie: u64,
        /// It is the last chunk.
        is_last: bool,
        /// What follows.
        kind: ChunkKind,
        /// Bytes that follow.
        len: u32,
    },
}

/// What a chunk has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkKind {
    /// Nothing: the end.
    None,
    /// Bytes of a read.
    Data,
    /// A range that reads as zeros.
    Hole,
    /// Extents of a metadata context.
    BlockStatus,
    /// An error.
    Error,
    /// An error at an offset.
    ErrorAt,
}

impl Head {
    /// How many bytes the head has that begins with these.
    ///
    /// # Errors
    /// It begins like no reply.
    pub fn len_of(first: [u8; 4]) -> Result<usize> {
        match u32::from_be_bytes(first) {
            SIMPLE_MAGIC => Ok(SIMPLE_LEN),
            CHUNK_MAGIC => Ok(CHUNK_LEN),
            other => Err(Error::protocol(format!("a reply begins with {other:#x}"))),
        }
    }

    /// Decodes a whole head.
    ///
    /// # Errors
    /// It is none, or of an unknown kind.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut bytes = Bytes(bytes);
        match bytes.u32()? {
            SIMPLE_MAGIC => {
                let error = bytes.u32()?;
                Ok(Self::Simple { cookie: bytes.u64()?, error })
            }
            CHUNK_MAGIC => {
                let (flags, kind) = (bytes.u16()?, bytes.u16()?);
                let (cookie, len) = (bytes.u64()?, bytes.u32()?);
                Ok(Self::Chunk { cookie, is_last: flags & 1 != 0, kind: chunk_kind(kind)?, len })
            }
            other => Err(Error::protocol(format!("a reply begins with {other:#x}"))),
        }
    }

    /// The cookie of the request.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        match self {
            Self::Simple { cookie, .. } | Self::Chunk { cookie, .. } => *cookie,
        }
    }
}

fn chunk_kind(number: u16) -> Result<ChunkKind> {
    const ERROR_BIT: u16 = 1 << 15;
    Ok(match number {
        0 => ChunkKind::None,
        1 => ChunkKind::Data,
        2 => ChunkKind::Hole,
        5 => ChunkKind::BlockStatus,
        n if n == ERROR_BIT | 2 => ChunkKind::ErrorAt,
        // (An unknown kind with this bit is an error all the same, and begins like one.)
        n if n & ERROR_BIT != 0 => ChunkKind::Error,
        other => return Err(Error::protocol(format!("a chunk is of the unknown kind {other}"))),
    })
}

/// The error in a chunk of one.
///
/// # Errors
/// It is too short, or no error.
pub fn decode_error(contents: &[u8]) -> Result<i32> {
    let mut bytes = Bytes(contents);
    let code = bytes.u32()?;
    let text = bytes.u16()?;
    bytes.take(text.into())?;
    match code {
        0 => Err(Error::protocol("an error reply has no error")),
        code => Ok(errno(code)),
    }
}

/// The range of a chunk that is a hole.
///
/// # Errors
/// It has another length.
pub fn decode_hole(contents: &[u8]) -> Result<(u64, u32)> {
    let mut bytes = Bytes(contents);
    let hole = (bytes.u64()?, bytes.u32()?);
    if !bytes.0.is_empty() || hole.1 == 0 {
        return Err(Error::protocol("the chunk of a hole has a wrong length"));
    }
    Ok(hole)
}

/// The error number of Linux for one of NBD's; what the protocol does not know is an I/O error.
#[must_use]
pub fn errno(code: u32) -> i32 {
    match code {
        // EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, EOPNOTSUPP, ESHUTDOWN
        1 | 5 | 12 | 22 | 28 | 75 | 95 | 108 => code.cast_signed(),
        _ => 5,
    }
}

/// Which bytes of a read have come. Chunks may come in any order, and each byte comes once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    range: Range<u64>,
    /// Sorted, apart from each other.
    come: Vec<Range<u64>>,
}

/// Most pieces that a reply may be in at a time.
const MOST_PIECES: usize = 4096;

impl Coverage {
    /// Nothing of this range has come.
    #[must_use]
    pub fn new(offset: u64, len: u32) -> Self {
        Self { range: offset..offset.saturating_add(len.into()), come: Vec::new() }
    }

    /// Notes that a piece comes: where in the request it begins.
    ///
    /// # Errors
    /// It is empty, not inside of the range, or some of it came before.
    pub fn add(&mut self, offset: u64, len: u64) -> Result<usize> {
        let end = offset.checked_add(len).filter(|end| *end <= self.range.end);
        let Some(end) = end.filter(|_| len > 0 && offset >= self.range.start) else {
            return Err(Error::protocol(format!(
                "{len} bytes at {offset} come where {} at {} were asked for",
                self.range.end - self.range.start,
                self.range.start
            )));
        };
        let at = self.come.partition_point(|piece| piece.end <= offset);
        if self.come.get(at).is_some_and(|next| next.start < end) {
            return Err(Error::protocol("bytes of a reply come twice"));
        }
        let joins_next = self.come.get(at).is_some_and(|next| next.start == end);
        let joins_last = at > 0 && self.come.get(at - 1).is_some_and(|last| last.end == offset);
        match (joins_last, joins_next) {
            (true, true) => {
                let next = self.come.remove(at);
                self.come[at - 1].end = next.end;
            }
            (true, false) => self.come[at - 1].end = end,
            (false, true) => self.come[at].start = offset,
            (false, false) if self.come.len() == MOST_PIECES => {
                return Err(Error::protocol("a reply comes in too many pieces"));
            }
            (false, false) => self.come.insert(at, offset..end),
        }
        Ok((offset - self.range.start) as usize)
    }

    /// True if all bytes have come.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.range.is_empty() || self.come == [self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_the_bytes_of_the_protocol() {
        let request = Request {
            command: Command::WriteZeroes,
            flags: RequestFlags::FUA | RequestFlags::FAST_ZERO,
            cookie: 0x0102_0304_0506_0708,
            offset: 0x1000,
            len: 0x200,
        };
        let expected = [
            0x25, 0x60, 0x95, 0x13, 0, 0x11, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10,
            0, 0, 0, 2, 0,
        ];
        assert_eq!(request.encode(), expected);
    }

    #[test]
    fn errors_that_are_not_of_the_protocol_are_errors_of_io() {
        assert_eq!((errno(28), errno(13), errno(u32::MAX)), (28, 5, 5));
        assert_eq!(decode_error(&[0, 0, 0, 28, 0, 2, b'n', b'o']), Ok(28));
        for bad in [&[0u8; 6][..], &[0, 0, 0, 28, 0, 2, b'n'], &[0, 0, 0, 28]] {
            assert!(matches!(decode_error(bad), Err(Error::Protocol(_))), "{bad:?}");
        }
    }

    #[test]
    fn bytes_that_come_twice_or_elsewhere_are_refused() {
        let mut come = Coverage::new(1000, 100);
        assert_eq!(come.add(1050, 50), Ok(50));
        for (at, len) in [(999, 1), (1099, 2), (1050, 1), (1040, 11), (1000, 0), (u64::MAX, 2)] {
            assert!(come.add(at, len).is_err(), "{len} at {at}");
        }
        assert!(!come.is_whole());
        assert_eq!(come.add(1000, 49), Ok(0));
        assert!(!come.is_whole());
        assert_eq!(come.add(1049, 1), Ok(49));
        assert!(come.is_whole());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Head::decode(&bytes);
            let _ = decode_error(&bytes);
            let _ = decode_hole(&bytes);
        }

        #[test]
        fn a_read_is_whole_once_each_byte_has_come(
            order in proptest::sample::subsequence((0..16u64).collect::<Vec<_>>(), 0..=16)
                .prop_shuffle(),
        ) {
            let mut come = Coverage::new(64, 16 * 4);
            for piece in &order {
                prop_assert_eq!(come.add(64 + piece * 4, 4), Ok(*piece as usize * 4));
                prop_assert!(come.add(64 + piece * 4 + 3, 1).is_err());
            }
            prop_assert_eq!(come.is_whole(), order.len() == 16);
        }
    }
}
