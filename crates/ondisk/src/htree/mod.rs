//! Hashed directories: a tree of hash ranges over ordinary directory blocks.
//!
//! ```text
//!  block 0 (root)                                    node block
//!  "." ".." info limit count  (hash,block)…  tail    fake entry limit count (hash,…)…
//!  0   12   24   32    34     36                     0          8     10    12
//!  (a leaf is an ordinary directory block)
//! ```
//!
//! To an implementation without dir_index, root and nodes look like blocks with only unused room.
//! Entry `i` covers the hashes from its own to the next one's; entry 0 has no hash of its own
//! (limit and count lie there) and covers everything below. A hash with its lowest bit set says
//! that the names with that hash (without the bit) go on from the block before. Names hash to even
//! numbers.

mod hash;

pub use hash::{HashVersion, Hasher, NameHash};

use crate::bytes::{get8, get16, get32, put8, put16, put32};
use crate::checksum::{InodeSeed, crc32c};
use crate::dirent;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::Incompat;
use crate::geometry::Geometry;
use crate::ids::InodeNr;
use crate::inode::FileType;

/// The hash version of directories that are encrypted and casefolded: SipHash by a key, which
/// stands behind each name.
pub const SIP_HASH: u8 = 6;

const ENTRY_LEN: usize = 8;
const TAIL_LEN: usize = 8;
const INFO_AT: usize = 24;
/// Blocks of a directory are numbered with 28 bits.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// Which kind of index block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DxKind {
    /// Block 0 of the directory.
    Root,
    /// Any other.
    Node,
}

impl DxKind {
    /// Offset of limit and count.
    #[must_use]
    pub fn count_at(self) -> usize {
        match self {
            Self::Root => 32,
            Self::Node => 8,
        }
    }

    /// Entries such a block has room for.
    #[must_use]
    pub fn limit(self, geo: &Geometry) -> u16 {
        self.limit_with(geo, 0)
    }

    /// [`limit`](Self::limit) in a directory with hashes of so many bytes behind its names. Linux
    /// counts them for the one entry that hides a node, too. (e2fsck 1.47.0 does not, and takes
    /// such nodes for damage.)
    #[must_use]
    pub fn limit_with(self, geo: &Geometry, hash_len: usize) -> u16 {
        let tail = if geo.has_metadata_csum() { TAIL_LEN } else { 0 };
        let hidden = if self == Self::Node { hash_len } else { 0 };
        ((geo.block_len() - self.count_at() - hidden - tail) / ENTRY_LEN) as u16
    }
}

/// The tree's parameters in its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DxInfo {
    /// Hash version as on disk.
    pub hash_version: u8,
    /// Levels of nodes between root and leaves.
    pub levels: u8,
}

/// Most levels of nodes between root and leaves.
#[must_use]
pub fn max_levels(geo: &Geometry) -> u8 {
    if geo.incompat().contains(Incompat::LARGE_DIR) { 2 } else { 1 }
}

/// An entry of an index block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DxEntry {
    /// Lowest hash below; 0 in the first entry.
    pub hash: u32,
    /// Block of the directory: a node or a leaf.
    pub block: u32,
}

/// A checked index block in editable form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DxBlock {
    /// Root or node.
    pub kind: DxKind,
    /// Entries there is room for.
    pub limit: u16,
    /// Entries, at least one, in order of hash.
    pub entries: Vec<DxEntry>,
}

/// Decodes the parameters in the root block of a hashed directory, without its entries.
///
/// # Errors
/// Not a root, or a tree that cannot be used.
pub fn decode_info(block: &[u8], geo: &Geometry) -> Result<DxInfo> {
    ensure(block.len() == geo.block_len(), "directory block is cut short")?;
    let shape =
        usize::from(get16(block, 4)) == 12 && usize::from(get16(block, 16)) == geo.block_len() - 12;
    let info = get32(block, INFO_AT) == 0 && get8(block, INFO_AT + 5) == 8;
    ensure(shape && info, "hashed directory has a bad root")?;
    ensure(get8(block, INFO_AT + 7) & 1 == 0, "hashed directory has unknown flags")?;
    let out = DxInfo { hash_version: get8(block, INFO_AT + 4), levels: get8(block, INFO_AT + 6) };
    ensure(out.levels <= max_levels(geo), "hashed directory is too deep")?;
    Ok(out)
}

impl DxBlock {
    /// Decodes the entries of a root or node block and checks them. The checksum is checked apart:
    /// [`verify_csum`].
    ///
    /// # Errors
    /// Wrong limit or count, hashes out of order.
    pub fn decode(block: &[u8], kind: DxKind, geo: &Geometry) -> Result<Self> {
        Self::decode_with(block, kind, geo, 0)
    }

    /// [`decode`](Self::decode) in a directory with hashes of so many bytes behind its names.
    ///
    /// # Errors
    /// Those of [`decode`](Self::decode).
    pub fn decode_with(
        block: &[u8],
        kind: DxKind,
        geo: &Geometry,
        hash_len: usize,
    ) -> Result<Self> {
        ensure(block.len() == geo.block_len(), "directory block is cut short")?;
        if kind == DxKind::Node {
            let len = usize::from(get16(block, 4));
            let whole = len == block.len() || (block.len() == 65536 && matches!(len, 0 | 65535));
            ensure(get32(block, 0) == 0 && whole, "hashed directory has a bad node")?;
        }
        let at = kind.count_at();
        let (limit, count) = (get16(block, at), get16(block, at + 2));
        ensure(
            limit == kind.limit_with(geo, hash_len),
            "hashed directory block has a wrong limit",
        )?;
        ensure(count >= 1 && count <= limit, "hashed directory block has a wrong count")?;
        let entries: Vec<DxEntry> = (0..usize::from(count))
            .map(|i| DxEntry {
                hash: if i == 0 { 0 } else { get32(block, at + i * ENTRY_LEN) },
                block: get32(block, at + i * ENTRY_LEN + 4) & BLOCK_MASK,
            })
            .collect();
        let ordered = entries.windows(2).all(|w| w[0].hash <= w[1].hash);
        ensure(ordered, "hashed directory block is out of order")?;
        Ok(Self { kind, limit, entries })
    }

    /// An index block with one entry.
    #[must_use]
    pub fn new(kind: DxKind, geo: &Geometry, first: u32) -> Self {
        Self { kind, limit: kind.limit(geo), entries: vec![DxEntry { hash: 0, block: first }] }
    }

    /// Writes limit, count and entries; zeros the room behind them, keeps everything before.
    pub fn encode_into(&self, block: &mut [u8]) {
        debug_assert!(self.entries.len() <= usize::from(self.limit));
        let at = self.kind.count_at();
        if let Some(room) = block.get_mut(at..) {
            room.fill(0);
        }
        for (i, e) in self.entries.iter().enumerate() {
            put32(block, at + i * ENTRY_LEN, if i == 0 { 0 } else { e.hash });
            put32(block, at + i * ENTRY_LEN + 4, e.block);
        }
        put16(block, at, self.limit);
        put16(block, at + 2, self.entries.len() as u16);
    }

    /// Inserts an entry behind index `after`.
    ///
    /// # Errors
    /// No room, or no such index.
    pub fn insert(&mut self, after: usize, hash: u32, block: u32) -> Result<()> {
        let full = self.entries.len() >= usize::from(self.limit);
        ensure(!full && after < self.entries.len(), "hashed directory block has no such place")?;
        self.entries.insert(after + 1, DxEntry { hash, block });
        Ok(())
    }
}

/// Makes `block` a root: dots, info, and one entry that leads to directory block `first`.
pub fn init_root(
    block: &mut [u8],
    geo: &Geometry,
    own: InodeNr,
    parent: InodeNr,
    kind: Option<FileType>,
    info: DxInfo,
    first: u32,
) {
    dirent::init_dots(block, own, parent, kind);
    put_info(block, info);
    DxBlock::new(DxKind::Root, geo, first).encode_into(block);
}

/// Writes the info of a root block.
pub fn put_info(block: &mut [u8], info: DxInfo) {
    put32(block, INFO_AT, 0);
    put8(block, INFO_AT + 4, info.hash_version);
    put8(block, INFO_AT + 5, 8);
    put8(block, INFO_AT + 6, info.levels);
    put8(block, INFO_AT + 7, 0);
}

/// Where the tail of an index block lies and how many bytes of it the checksum covers.
fn csum_places(block: &[u8], kind: DxKind) -> Option<(usize, usize)> {
    let at = kind.count_at();
    let (limit, count) = (usize::from(get16(block, at)), usize::from(get16(block, at + 2)));
    let tail = at + limit * ENTRY_LEN;
    (count <= limit && tail + TAIL_LEN <= block.len()).then_some((tail, at + count * ENTRY_LEN))
}

fn csum(block: &[u8], seed: InodeSeed, tail: usize, covered: usize) -> u32 {
    let sum = seed.crc(block.get(..covered).unwrap_or_default());
    let sum = crc32c(sum, block.get(tail..tail + 4).unwrap_or_default());
    crc32c(sum, &[0; 4])
}

/// Verifies the checksum of an index block. Only call with metadata_csum.
///
/// # Errors
/// A wrong checksum, or no room for one.
pub fn verify_csum(block: &[u8], kind: DxKind, seed: InodeSeed) -> Result<()> {
    let (tail, covered) = csum_places(block, kind)
        .ok_or(OnDiskError::bad("hashed directory block without a checksum"))?;
    ensure_csum("hashed directory block", get32(block, tail + 4), csum(block, seed, tail, covered))
}

/// Brings the checksum of an index block up to date. Only call with metadata_csum.
pub fn set_csum(block: &mut [u8], kind: DxKind, seed: InodeSeed) {
    let Some((tail, covered)) = csum_places(block, kind) else {
        debug_assert!(false, "hashed directory block without room for its checksum");
        return;
    };
    let sum = csum(block, seed, tail, covered);
    put32(block, tail + 4, sum);
}
