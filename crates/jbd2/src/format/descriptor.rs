//! Descriptor blocks: the list of home places of the copies that follow them in the log.
//!
//! ```text
//! | header 12 | tag | uuid 16 | tag | tag | ... | zeros | checksum 4 (v2, v3) |
//! ```
//!
//! A tag is 8 to 16 bytes, by features; its flags are always at offset 6. The first tag of a block
//! is followed by 16 bytes meant for a uuid that is not read (zeros on real disks); the others say
//! SAME_UUID. The last one says LAST_TAG, and readers stop there or where no tag fits any more.

use extol_block::BlockNr;

use super::bytes::{be16, be32, put16, put32};
use super::checksum::crc32c;
use super::header::{BlockKind, HEADER_SIZE, Header};
use super::{Features, Format};
use crate::types::{JournalError, Result, Tid};

const UUID_SIZE: usize = 16;
const FLAGS_AT: usize = 6;

/// Flags of a [`Tag`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TagFlags(pub u16);

impl TagFlags {
    /// The home block begins with the magic; its log copy has zeros there.
    pub const ESCAPE: Self = Self(1);
    /// No uuid follows this tag.
    pub const SAME_UUID: Self = Self(2);
    /// The block was deleted (never written by Linux).
    pub const DELETED: Self = Self(4);
    /// Last tag of its descriptor.
    pub const LAST_TAG: Self = Self(8);

    /// All bits of `other` are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Names of the flags, as debugfs prints them where it does.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (Self::ESCAPE, "ESCAPE"),
            (Self::SAME_UUID, "SAME_UUID"),
            (Self::DELETED, "DELETED"),
            (Self::LAST_TAG, "LAST_TAG"),
        ];
        all.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect()
    }
}

/// One entry of a descriptor: where the copy that follows belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Home block.
    pub block: BlockNr,
    /// Flags.
    pub flags: TagFlags,
    /// Checksum of the log copy; 16 bits of it in v2, 0 without.
    pub checksum: u32,
}

impl Tag {
    /// True if `log_copy` is what transaction `tid` wrote (always without v2 and v3).
    #[must_use]
    pub fn verify(&self, format: &Format, tid: Tid, log_copy: &[u8]) -> bool {
        match tag_checksum(format, tid, log_copy) {
            Some(sum) => sum == self.checksum,
            None => true,
        }
    }
}

/// Checksum that a tag of `tid` carries for `log_copy` (escaped if need be).
fn tag_checksum(format: &Format, tid: Tid, log_copy: &[u8]) -> Option<u32> {
    let sum = || crc32c(crc32c(format.seed, &tid.0.to_be_bytes()), log_copy);
    if format.features.has_csum_v3() {
        Some(sum())
    } else if format.features.has_csum_v2() {
        Some(sum() & 0xFFFF)
    } else {
        None
    }
}

/// Fills one descriptor block. Push until [`is_full`](Self::is_full), then [`finish`](Self::finish)
/// and begin the next.
#[derive(Debug)]
pub struct DescriptorWriter<'f> {
    format: &'f Format,
    tid: Tid,
    block: Vec<u8>,
    used: usize,
    tags: u32,
    last_tag_at: usize,
}

impl<'f> DescriptorWriter<'f> {
    /// An empty descriptor of transaction `tid`.
    #[must_use]
    pub fn new(format: &'f Format, tid: Tid) -> Self {
        let mut block = vec![0; format.block_size.len()];
        Header { kind: BlockKind::Descriptor, tid }.encode_into(&mut block);
        Self { format, tid, block, used: HEADER_SIZE, tags: 0, last_tag_at: 0 }
    }

    /// Tags so far.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.tags
    }

    /// No tag yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tags == 0
    }

    /// Nothing may be pushed any more. Leaves the same room unused as Linux does.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let f = self.format.features;
        self.block.len() - self.used < f.tag_size() + UUID_SIZE + f.tail_size()
    }

    /// Adds the block with home `nr`. `log_copy` is what goes to the log: if `escaped`, the result
    /// of [`escape`](super::escape).
    pub fn push(&mut self, nr: BlockNr, log_copy: &[u8], escaped: bool) -> Result<()> {
        debug_assert!(!self.is_full(), "push to a full descriptor");
        let f: Features = self.format.features;
        let low = nr.0 as u32;
        let high = (nr.0 >> 32) as u32;
        if high != 0 && !f.is_64bit() {
            return Err(JournalError::Unsupported(format!(
                "block {nr} does not fit a 32-bit journal"
            )));
        }
        let mut flags = TagFlags::default();
        if escaped {
            flags = flags.with(TagFlags::ESCAPE);
        }
        if self.tags > 0 {
            flags = flags.with(TagFlags::SAME_UUID);
        }
        let sum = tag_checksum(self.format, self.tid, log_copy).unwrap_or(0);
        let at = self.used;
        put32(&mut self.block, at, low);
        put16(&mut self.block, at + FLAGS_AT, flags.0);
        if f.has_csum_v3() {
            put32(&mut self.block, at + 8, high);
            put32(&mut self.block, at + 12, sum);
        } else {
            put16(&mut self.block, at + 4, sum as u16);
            if f.is_64bit() {
                put32(&mut self.block, at + 8, high);
            }
        }
        self.last_tag_at = at;
        self.used += f.tag_size() + if self.tags == 0 { UUID_SIZE } else { 0 };
        self.tags += 1;
        Ok(())
    }

    /// The block to write, in front of the copies of its tags.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.tags > 0 {
            let at = self.last_tag_at + FLAGS_AT;
            let flags = TagFlags(be16(&self.block, at)).with(TagFlags::LAST_TAG);
            put16(&mut self.block, at, flags.0);
        }
        self.format.set_tail(&mut self.block);
        self.block
    }

    /// Tags that fit a descriptor of this format.
    #[must_use]
    pub fn capacity(format: &Format) -> u32 {
        let f = format.features;
        let room = format.block_size.len() - HEADER_SIZE - UUID_SIZE;
        let reserve = f.tag_size() + UUID_SIZE + f.tail_size();
        // Smallest count that leaves less than `reserve`.
        ((room - reserve) / f.tag_size() + 1) as u32
    }
}

/// Iterates the tags of a descriptor block. Check [`Format::verify_tail`] first.
#[derive(Clone, Debug)]
pub struct DescriptorReader<'a> {
    features: Features,
    block: &'a [u8],
    at: usize,
    done: bool,
}

impl<'a> DescriptorReader<'a> {
    /// Reads `block`, whose header the caller has seen.
    #[must_use]
    pub fn new(format: &Format, block: &'a [u8]) -> Self {
        Self { features: format.features, block, at: HEADER_SIZE, done: false }
    }
}

impl Iterator for DescriptorReader<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let f = self.features;
        let limit = self.block.len().saturating_sub(f.tail_size());
        if self.done || self.at + f.tag_size() > limit {
            return None;
        }
        let low = be32(self.block, self.at);
        let flags = TagFlags(be16(self.block, self.at + FLAGS_AT));
        let high = if f.is_64bit() { be32(self.block, self.at + 8) } else { 0 };
        let checksum = if f.has_csum_v3() {
            be32(self.block, self.at + 12)
        } else {
            u32::from(be16(self.block, self.at + 4))
        };
        self.at += f.tag_size();
        if !flags.contains(TagFlags::SAME_UUID) {
            self.at += UUID_SIZE;
        }
        self.done = flags.contains(TagFlags::LAST_TAG);
        Some(Tag { block: BlockNr(u64::from(high) << 32 | u64::from(low)), flags, checksum })
    }
}
