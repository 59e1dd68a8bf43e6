//! Records: what a fast commit says about inodes, ranges and names.

use std::sync::Arc;

use super::number::{ADD_RANGE, CREAT, DEL_RANGE, INODE, LINK, UNLINK};
use super::{MAX_EXTENT, MAX_NAME, MIN_INODE, TL_SIZE};
use crate::bytes::{get16, get32};

/// One record of a fast commit. `B` holds names and images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FcRecord<B = Arc<[u8]>> {
    /// A mapped range of a file.
    AddRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks: at most 32768, or 32767 if unwritten.
        len: u32,
        /// First physical block.
        start: u64,
        /// The extent reads as zeros.
        unwritten: bool,
    },
    /// A range of a file that is a hole.
    DelRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks.
        len: u32,
    },
    /// A new inode's first name.
    Creat(FcEntry<B>),
    /// A further name of an inode.
    Link(FcEntry<B>),
    /// A name that is gone.
    Unlink(FcEntry<B>),
    /// The image of an inode.
    Inode {
        /// Inode.
        ino: u32,
        /// First bytes of its on-disk form.
        image: B,
    },
}

/// A directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FcEntry<B = Arc<[u8]>> {
    /// Directory.
    pub parent: u32,
    /// Inode.
    pub ino: u32,
    /// Name, 1 to 255 bytes.
    pub name: B,
}

/// A record that no block can hold: too large for the block size, or with a length or number out of
/// range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FcUnwritable;

impl<B: AsRef<[u8]>> FcRecord<B> {
    /// Appends the record's tag to `out`.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), FcUnwritable> {
        match self {
            Self::AddRange { ino, block, len, start, unwritten } => {
                let most = MAX_EXTENT - u32::from(*unwritten);
                if *len == 0 || *len > most || *start >> 48 != 0 {
                    return Err(FcUnwritable);
                }
                let len = (*len + if *unwritten { MAX_EXTENT } else { 0 }) as u16;
                let (high, low) = ((*start >> 32) as u16, *start as u32);
                begin(out, ADD_RANGE, 16);
                put32(out, [*ino, *block]);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&high.to_le_bytes());
                put32(out, [low]);
            }
            Self::DelRange { ino, block, len } => {
                begin(out, DEL_RANGE, 12);
                put32(out, [*ino, *block, *len]);
            }
            Self::Creat(entry) => entry.encode(CREAT, out)?,
            Self::Link(entry) => entry.encode(LINK, out)?,
            Self::Unlink(entry) => entry.encode(UNLINK, out)?,
            Self::Inode { ino, image } => {
                let image = image.as_ref();
                if image.len() < MIN_INODE || image.len() > usize::from(u16::MAX) - 4 {
                    return Err(FcUnwritable);
                }
                begin(out, INODE, 4 + image.len());
                put32(out, [*ino]);
                out.extend_from_slice(image);
            }
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]>> FcEntry<B> {
    fn encode(&self, tag: u16, out: &mut Vec<u8>) -> Result<(), FcUnwritable> {
        let name = self.name.as_ref();
        if !(1..=MAX_NAME).contains(&name.len()) {
            return Err(FcUnwritable);
        }
        begin(out, tag, 8 + name.len());
        put32(out, [self.parent, self.ino]);
        out.extend_from_slice(name);
        Ok(())
    }
}

fn begin(out: &mut Vec<u8>, tag: u16, len: usize) {
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&(len as u16).to_le_bytes());
}

fn put32<const N: usize>(out: &mut Vec<u8>, values: [u32; N]) {
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

impl<'a> FcRecord<&'a [u8]> {
    /// The record of that tag number with this value. `None`: it makes no sense.
    pub(super) fn decode(tag: u16, value: &'a [u8]) -> Option<Self> {
        let entry = || {
            let name = value.get(8..)?;
            (1..=MAX_NAME).contains(&name.len()).then(|| FcEntry {
                parent: get32(value, 0),
                ino: get32(value, 4),
                name,
            })
        };
        match tag {
            ADD_RANGE if value.len() == 16 => {
                let raw_len = u32::from(get16(value, 8));
                let unwritten = raw_len > MAX_EXTENT;
                Some(Self::AddRange {
                    ino: get32(value, 0),
                    block: get32(value, 4),
                    len: if unwritten { raw_len - MAX_EXTENT } else { raw_len },
                    start: u64::from(get16(value, 10)) << 32 | u64::from(get32(value, 12)),
                    unwritten,
                })
            }
            DEL_RANGE if value.len() == 12 => Some(Self::DelRange {
                ino: get32(value, 0),
                block: get32(value, 4),
                len: get32(value, 8),
            }),
            CREAT => entry().map(Self::Creat),
            LINK => entry().map(Self::Link),
            UNLINK => entry().map(Self::Unlink),
            INODE if value.len() >= 4 + MIN_INODE => {
                Some(Self::Inode { ino: get32(value, 0), image: value.get(4..)? })
            }
            _ => None,
        }
    }
}

/// Records as bytes, one tag behind the other: what the journal writes without looking into it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FcRecords {
    bytes: Vec<u8>,
}

impl FcRecords {
    /// These records.
    ///
    /// # Errors
    /// If one of them cannot be said.
    pub fn encode<B: AsRef<[u8]>>(records: &[FcRecord<B>]) -> Result<Self, FcUnwritable> {
        let mut bytes = Vec::new();
        records.iter().try_for_each(|record| record.encode(&mut bytes))?;
        Ok(Self { bytes })
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The tags, whole.
    pub(super) fn tags(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let size = TL_SIZE + usize::from(get16(rest, 2));
            let (tag, later) = rest.split_at_checked(size)?;
            rest = later;
            Some(tag)
        })
    }
}
