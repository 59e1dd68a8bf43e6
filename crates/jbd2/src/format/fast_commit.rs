//! Fast-commit blocks as bytes: packed little-endian tags, never across a block boundary.
//!
//! ```text
//! | le16 tag | le16 length of the value | value |   HEAD ... TAIL, then zeros to the end of the block
//! ```
//!
//! Only their outer form is known here; what inodes and extents mean is the file system's business.

use super::bytes::{le16, le32};
use crate::Tid;

const TL_SIZE: usize = 4;
const MAX_NAME: usize = 255;
const MIN_INODE: usize = 128;

/// One decoded tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FcTag<'a> {
    /// A mapped range of a file.
    AddRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks.
        len: u32,
        /// First physical block.
        start: u64,
        /// The extent reads as zeros.
        unwritten: bool,
    },
    /// A range of a file that became a hole.
    DelRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks.
        len: u32,
    },
    /// A new inode and its name.
    Creat(FcName<'a>),
    /// A new name of an inode.
    Link(FcName<'a>),
    /// A removed name.
    Unlink(FcName<'a>),
    /// The image of an inode.
    Inode {
        /// Inode.
        ino: u32,
        /// First bytes of its on-disk form.
        image: &'a [u8],
    },
    /// Fills the rest of a block, or holds what other readers need not know.
    Pad(&'a [u8]),
    /// Ends a fast commit.
    Tail {
        /// Transaction on top of which it counts.
        tid: Tid,
        /// Stated checksum.
        stated: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// Begins the first fast commit of a transaction.
    Head {
        /// Features that a reader must know; none exist.
        features: u32,
        /// Transaction on top of which it counts.
        tid: Tid,
    },
}

/// A directory entry in a tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FcName<'a> {
    /// Directory.
    pub parent: u32,
    /// Inode.
    pub ino: u32,
    /// Name.
    pub name: &'a [u8],
}

/// A tag that makes no sense; what follows cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FcError {
    /// The tag.
    pub tag: u16,
    /// Its stated length.
    pub len: u16,
    /// Where in the block it is.
    pub offset: usize,
}

/// Iterates the tags of fast-commit blocks, block by block, and keeps the running checksum between
/// them.
#[derive(Clone, Debug, Default)]
pub struct FcReader {
    crc: u32,
}

impl FcReader {
    /// A reader at the start of the area.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if `block` is worth reading as the first of the area: it begins with a HEAD.
    #[must_use]
    pub fn begins_with_head(block: &[u8]) -> bool {
        le16(block, 0) == 9
    }

    /// Gives each tag of `block` with its offset to `each`, which says whether to go on. Stops with
    /// an error at the first tag that is none.
    pub fn block<'a>(
        &mut self,
        block: &'a [u8],
        mut each: impl FnMut(usize, FcTag<'a>) -> bool,
    ) -> Result<(), FcError> {
        let mut at = 0;
        while at + TL_SIZE <= block.len() {
            let (tag, len) = (le16(block, at), le16(block, at + 2));
            let error = FcError { tag, len, offset: at };
            let value_at = at + TL_SIZE;
            let value = block.get(value_at..value_at + usize::from(len)).ok_or(error)?;
            let end = value_at + value.len();
            let decoded =
                self.decode(tag, value, block.get(at..end).unwrap_or_default()).ok_or(error)?;
            if !each(at, decoded) {
                return Ok(());
            }
            at = end;
        }
        Ok(())
    }

    /// Decodes one tag and adds its bytes to the sum. A TAIL ends the sum and starts it anew.
    fn decode<'a>(&mut self, tag: u16, value: &'a [u8], whole: &[u8]) -> Option<FcTag<'a>> {
        let name = || {
            let name = value.get(8..)?;
            (1..=MAX_NAME).contains(&name.len()).then(|| FcName {
                parent: le32(value, 0),
                ino: le32(value, 4),
                name,
            })
        };
        let decoded = match tag {
            1 if value.len() == 16 => {
                let raw_len = u32::from(le16(value, 8));
                let unwritten = raw_len > 32768;
                FcTag::AddRange {
                    ino: le32(value, 0),
                    block: le32(value, 4),
                    len: if unwritten { raw_len - 32768 } else { raw_len },
                    start: u64::from(le16(value, 10)) << 32 | u64::from(le32(value, 12)),
                    unwritten,
                }
            }
            2 if value.len() == 12 => {
                FcTag::DelRange { ino: le32(value, 0), block: le32(value, 4), len: le32(value, 8) }
            }
            3 => FcTag::Creat(name()?),
            4 => FcTag::Link(name()?),
            5 => FcTag::Unlink(name()?),
            6 if value.len() >= 4 + MIN_INODE => {
                FcTag::Inode { ino: le32(value, 0), image: value.get(4..)? }
            }
            7 => FcTag::Pad(value),
            8 if value.len() >= 8 => {
                let actual = super::crc32c(self.crc, whole.get(..TL_SIZE + 4)?);
                self.crc = 0;
                return Some(FcTag::Tail {
                    tid: Tid(le32(value, 0)),
                    stated: le32(value, 4),
                    actual,
                });
            }
            9 if value.len() == 8 => {
                FcTag::Head { features: le32(value, 0), tid: Tid(le32(value, 4)) }
            }
            _ => return None,
        };
        self.crc = super::crc32c(self.crc, whole);
        Some(decoded)
    }
}
