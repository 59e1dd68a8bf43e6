//! Extended attributes: in the inode behind its extra fields, and in one block that inodes with
//! equal attributes share.
//!
//! ```text
//!  in the inode:  magic │ entry │ entry │ … │ 0000 │   free   │ value │ value │   offsets count from the first entry
//!  in a block:    32-byte header │ entry │ … │ 0000 │  free   │ value │ value │   offsets count from the block
//! ```
//!
//! An entry is 16 bytes and its name, padded to 4; values are padded to 4 and fill the space from
//! its end. A value may instead be in an inode of its own (`value_inum`). Entries in a block are
//! sorted by (index, length of name, name) and have hashes, by which equal blocks are found.
//!
//! Both areas are rebuilt as a whole when they change: parse, edit the list, build.

use crate::bytes::{get8, get16, get32, put, put8, put16, put32};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use extol_block::BlockNr;

/// Magic number of both areas.
pub const MAGIC: u32 = 0xEA02_0000;
/// Header of a block.
pub const BLOCK_HEADER_LEN: usize = 32;
/// Header of the area in an inode.
pub const IBODY_HEADER_LEN: usize = 4;
/// An entry without its name.
pub const ENTRY_LEN: usize = 16;
/// Most inodes that share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// Longest value that an attribute inode holds.
pub const MAX_INODE_VALUE: u32 = 1 << 24;
const END_LEN: usize = 4;
const CHECKSUM_AT: usize = 0x10;

/// Name spaces, as numbered on disk.
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`
    pub const ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`
    pub const ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// Lustre.
    pub const LUSTRE: u8 = 5;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.`
    pub const SYSTEM: u8 = 7;
    /// `system.richacl`
    pub const RICHACL: u8 = 8;
    /// Encryption context.
    pub const ENCRYPTION: u8 = 9;
    /// `gnu.` (Hurd)
    pub const HURD: u8 = 10;
}

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XattrEntry {
    /// Name space.
    pub index: u8,
    /// Name without the prefix of its name space.
    pub name: Vec<u8>,
    /// Value; empty if it is in an inode of its own.
    pub value: Vec<u8>,
    /// Inode of the value, 0 if it is here.
    pub value_inum: u32,
    /// Length of the value.
    pub value_size: u32,
    /// Hash as stored. Built anew for values that are here.
    pub hash: u32,
}

impl XattrEntry {
    /// An attribute with its value here.
    #[must_use]
    pub fn new(index: u8, name: &[u8], value: &[u8]) -> Self {
        let value_size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        Self {
            index,
            name: name.to_vec(),
            value: value.to_vec(),
            value_inum: 0,
            value_size,
            hash: 0,
        }
    }

    /// Bytes it needs in an area.
    #[must_use]
    pub fn space(&self) -> usize {
        entry_space(self.name.len()) + self.value.len().next_multiple_of(4)
    }

    /// True for this attribute.
    #[must_use]
    pub fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

fn entry_space(name_len: usize) -> usize {
    ENTRY_LEN + name_len.next_multiple_of(4)
}

/// Bytes that entries take in an inode's area, with header and end mark.
#[must_use]
pub fn ibody_space(entries: &[XattrEntry]) -> usize {
    IBODY_HEADER_LEN + END_LEN + entries.iter().map(XattrEntry::space).sum::<usize>()
}

/// Bytes that entries take in a block, with header and end mark.
#[must_use]
pub fn block_space(entries: &[XattrEntry]) -> usize {
    BLOCK_HEADER_LEN + END_LEN + entries.iter().map(XattrEntry::space).sum::<usize>()
}

/// Entries from `first` on; value offsets count from `base`.
fn parse(area: &[u8], base: usize, first: usize) -> Result<Vec<XattrEntry>> {
    // First the entries up to their end, then the values, which must lie behind it.
    let mut heads = Vec::new();
    let mut at = first;
    loop {
        ensure(at + END_LEN <= area.len(), "attribute entries without an end")?;
        if get32(area, at) == 0 {
            break;
        }
        ensure(at + ENTRY_LEN <= area.len(), "attribute entry is cut short")?;
        let name_len = usize::from(get8(area, at));
        let next = at + entry_space(name_len);
        ensure(next + END_LEN <= area.len(), "attribute entry is cut short")?;
        heads.push(at);
        at = next;
    }
    let values_from = at + END_LEN;
    let mut out = Vec::with_capacity(heads.len());
    for at in heads {
        let start = at + ENTRY_LEN;
        let name = area.get(start..start + usize::from(get8(area, at))).unwrap_or_default();
        ensure(!name.contains(&0), "attribute name with a zero byte")?;
        // Built anew, such an entry would look like the end of the list and hide what follows it.
        ensure(!name.is_empty() || get8(area, at + 1) != 0, "attribute without a name")?;
        let (value_inum, value_size) = (get32(area, at + 4), get32(area, at + 8));
        ensure(value_size <= MAX_INODE_VALUE, "attribute value is too long")?;
        let value = if value_inum == 0 && value_size > 0 {
            let from = base + usize::from(get16(area, at + 2));
            let to = from + value_size as usize;
            ensure(from >= values_from, "attribute value overlaps the entries")?;
            ensure(to.next_multiple_of(4) <= area.len(), "attribute value is outside its area")?;
            area.get(from..to).unwrap_or_default().to_vec()
        } else {
            Vec::new()
        };
        out.push(XattrEntry {
            index: get8(area, at + 1),
            name: name.to_vec(),
            value,
            value_inum,
            value_size,
            hash: get32(area, at + 12),
        });
    }
    Ok(out)
}

/// Attributes in an inode's tail: none if it has no attribute header.
///
/// # Errors
/// Entries or values that leave the area.
pub fn parse_ibody(tail: &[u8]) -> Result<Vec<XattrEntry>> {
    if tail.len() < IBODY_HEADER_LEN + END_LEN || get32(tail, 0) != MAGIC {
        return Ok(Vec::new());
    }
    parse(tail, IBODY_HEADER_LEN, IBODY_HEADER_LEN)
}

/// Header of an attribute block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Inodes that share the block.
    pub refcount: u32,
    /// Hash of all entries; 0 if it may not be shared.
    pub hash: u32,
}

impl BlockHeader {
    /// Decodes and checks the header.
    ///
    /// # Errors
    /// Not an attribute block.
    pub fn decode(block: &[u8]) -> Result<Self> {
        ensure(block.len() > BLOCK_HEADER_LEN, "attribute block is cut short")?;
        ensure(get32(block, 0) == MAGIC, "attribute block has a bad magic number")?;
        ensure(get32(block, 8) == 1, "attribute block of more than one block")?;
        let header = Self { refcount: get32(block, 4), hash: get32(block, 12) };
        ensure(header.refcount > 0, "attribute block without users")?;
        Ok(header)
    }

    /// Changes the number of users in a block. The checksum is apart: [`set_csum`].
    pub fn put_refcount(block: &mut [u8], refcount: u32) {
        put32(block, 4, refcount);
    }
}

/// Attributes in a block. The checksum is checked apart: [`verify_csum`].
///
/// # Errors
/// Not an attribute block, or entries or values that leave it.
pub fn parse_block(block: &[u8]) -> Result<(BlockHeader, Vec<XattrEntry>)> {
    let header = BlockHeader::decode(block)?;
    Ok((header, parse(block, 0, BLOCK_HEADER_LEN)?))
}

/// Fills `area` (zeros) with entries from `first` on and values from its end.
fn build(area: &mut [u8], base: usize, first: usize, entries: &[XattrEntry], hashed: bool) {
    let mut at = first;
    let mut end = area.len() & !3;
    for e in entries {
        let name_len = e.name.len().min(255);
        let mut offset = 0;
        if e.value_inum == 0 && !e.value.is_empty() {
            end -= e.value.len().next_multiple_of(4);
            offset = end - base;
            put(area, end, &e.value);
        }
        put8(area, at, name_len as u8);
        put8(area, at + 1, e.index);
        put16(area, at + 2, offset as u16);
        put32(area, at + 4, e.value_inum);
        put32(area, at + 8, e.value_size);
        let hash = match (e.value_inum, hashed) {
            (0, true) => entry_hash(&e.name, &e.value),
            (0, false) => 0,
            _ => e.hash,
        };
        put32(area, at + 12, hash);
        put(area, at + ENTRY_LEN, &e.name[..name_len]);
        at += entry_space(name_len);
    }
}

/// The attribute area of an inode: `space` bytes, or `None` if the entries do not fit. No entries
/// give zeros.
#[must_use]
pub fn build_ibody(entries: &[XattrEntry], space: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; space];
    if entries.is_empty() {
        return Some(out);
    }
    if ibody_space(entries) > space & !3 {
        return None;
    }
    put32(&mut out, 0, MAGIC);
    build(&mut out, IBODY_HEADER_LEN, IBODY_HEADER_LEN, entries, false);
    Some(out)
}

/// An attribute block with a user count and hashes, without checksum; `None` if the entries do not
/// fit. Sorts the entries.
#[must_use]
pub fn build_block(entries: &mut [XattrEntry], block_len: usize, refcount: u32) -> Option<Vec<u8>> {
    if block_space(entries) > block_len {
        return None;
    }
    entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    let mut out = vec![0; block_len];
    put32(&mut out, 0, MAGIC);
    put32(&mut out, 4, refcount);
    put32(&mut out, 8, 1);
    build(&mut out, 0, BLOCK_HEADER_LEN, entries, true);
    let hash = block_hash(&out, entries);
    put32(&mut out, 12, hash);
    Some(out)
}

/// Hash of a block: over the stored hashes of its entries. One entry without a hash makes it 0.
fn block_hash(block: &[u8], entries: &[XattrEntry]) -> u32 {
    let mut at = BLOCK_HEADER_LEN;
    let mut hash = 0u32;
    for e in entries {
        let entry = get32(block, at + 12);
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
        at += entry_space(e.name.len().min(255));
    }
    hash
}

/// Hash of an entry whose value is here.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let named = name.iter().fold(0u32, |h, &c| h.rotate_left(5) ^ u32::from(c));
    value.chunks(4).fold(named, |h, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

fn csum(block: &[u8], nr: BlockNr, seed: FsSeed) -> u32 {
    let sum = crc32c(seed.0, &nr.0.to_le_bytes());
    let sum = crc32c(sum, block.get(..CHECKSUM_AT).unwrap_or_default());
    let sum = crc32c(sum, &[0; 4]);
    crc32c(sum, block.get(CHECKSUM_AT + 4..).unwrap_or_default())
}

/// Verifies the checksum of an attribute block. Only call with metadata_csum.
///
/// # Errors
/// A wrong checksum.
pub fn verify_csum(block: &[u8], nr: BlockNr, seed: FsSeed) -> Result<()> {
    ensure_csum("attribute block", get32(block, CHECKSUM_AT), csum(block, nr, seed))
}

/// Brings the checksum of an attribute block up to date. Only call with metadata_csum.
pub fn set_csum(block: &mut [u8], nr: BlockNr, seed: FsSeed) {
    let sum = csum(block, nr, seed);
    put32(block, CHECKSUM_AT, sum);
}

/// Checks the value of an attribute inode against the hash that the inode holds in its access time.
///
/// # Errors
/// A wrong hash.
pub fn verify_inode_value(value: &[u8], stored: u32, seed: FsSeed) -> Result<()> {
    if seed.crc(value) == stored {
        Ok(())
    } else {
        Err(OnDiskError::Checksum {
            what: "attribute value",
            found: stored,
            wanted: seed.crc(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<XattrEntry> {
        vec![
            XattrEntry::new(index::USER, b"foo", b"bar"),
            XattrEntry::new(index::USER, b"empty", b""),
            XattrEntry::new(index::SECURITY, b"selinux", b"system_u:object_r:file_t:s0\0"),
            XattrEntry::new(index::USER, b"fob", &[7; 100]),
        ]
    }

    #[test]
    fn hashes_and_checksum() {
        assert_eq!(entry_hash(b"foo", b"bar"), 0x95FD_6163);
        assert_eq!(entry_hash(b"foo", b""), 0x0001_958F);
        let seed = FsSeed(0x2636_F714);
        let mut block = vec![0; 1024];
        assert_eq!(csum(&block, BlockNr(1000), seed), 0x42E6_4A66);
        set_csum(&mut block, BlockNr(1000), seed);
        verify_csum(&block, BlockNr(1000), seed).unwrap();
        assert!(verify_csum(&block, BlockNr(1001), seed).is_err());
    }

    #[test]
    fn round_trips() {
        let strip = |all: &[XattrEntry]| -> Vec<(u8, Vec<u8>, Vec<u8>)> {
            all.iter().map(|e| (e.index, e.name.clone(), e.value.clone())).collect()
        };
        let entries = sample();
        let space = ibody_space(&entries);
        let body = build_ibody(&entries, space).unwrap();
        assert_eq!(strip(&parse_ibody(&body).unwrap()), strip(&entries));
        assert_eq!(build_ibody(&entries, space - 4), None);
        assert_eq!(build_ibody(&[], 96), Some(vec![0; 96]));
        assert!(parse_ibody(&[0; 96]).unwrap().is_empty() && parse_ibody(&[]).unwrap().is_empty());

        let mut sorted = entries.clone();
        let block = build_block(&mut sorted, 1024, 3).unwrap();
        let (header, read) = parse_block(&block).unwrap();
        assert_eq!(header.refcount, 3);
        assert_eq!(strip(&read), strip(&sorted));
        let names: Vec<&[u8]> = read.iter().map(|e| &e.name[..]).collect();
        assert_eq!(names, [&b"fob"[..], b"foo", b"empty", b"selinux"]);
        assert!(read.iter().all(|e| e.hash == entry_hash(&e.name, &e.value)));
        assert!(
            build_block(&mut sorted, 256, 1).is_some()
                && build_block(&mut sorted, 128, 1).is_none()
        );
    }

    #[test]
    fn hostile_areas() {
        let body = build_ibody(&sample(), 256).unwrap();
        let with = |at: usize, bytes: &[u8]| {
            let mut b = body.clone();
            b[at..at + bytes.len()].copy_from_slice(bytes);
            parse_ibody(&b)
        };
        assert!(with(4, &[255]).is_err(), "name beyond the area");
        assert!(with(6, &[0, 0]).is_err(), "value over the entries");
        assert!(with(6, &[0xFC, 0xFF]).is_err(), "value outside");
        assert!(with(12, &[0xFF, 0xFF, 0, 0]).is_err(), "value too long");
        assert!(with(12, &[0xFF, 0xFF, 0xFF, 0xFF]).is_err(), "value much too long");
        assert!(with(20, &[0]).is_err(), "zero in a name");
        let mut nameless = vec![0; 64];
        put32(&mut nameless, 0, MAGIC);
        nameless[6] = 32;
        assert!(parse_ibody(&nameless).is_err(), "built anew it would be the end of the list");
        let mut endless = vec![1; 64];
        put32(&mut endless, 0, MAGIC);
        assert!(parse_ibody(&endless).is_err());
        assert!(parse_block(&[0; 1024]).is_err() && parse_block(&[]).is_err());
        let mut block = build_block(&mut sample(), 1024, 1).unwrap();
        block[4] = 0;
        assert!(parse_block(&block).is_err(), "no users");
    }
}
