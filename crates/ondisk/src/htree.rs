//! Hashed directories: a tree of hash ranges over ordinary directory blocks.
//!
//! ```text
//!  block 0 (root)                                    node block                         leaf = directory block
//!  "." ".." info limit count  (hash,block)…  tail    fake entry limit count (hash,…)…
//!  0   12   24   32    34     36                     0          8     10    12
//! ```
//!
//! To a reader that knows nothing of hashes, root and nodes look like blocks with only unused room.
//! Entry `i` covers the hashes from its own to the next one's; entry 0 has no hash of its own
//! (limit and count lie there) and covers everything below. A hash with its lowest bit set says
//! that the names with that hash (without the bit) go on from the block before. Names hash to even
//! numbers.

use crate::bytes::{get8, get16, get32, put8, put16, put32};
use crate::checksum::{InodeSeed, crc32c};
use crate::dirent;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::Incompat;
use crate::geometry::Geometry;
use crate::ids::InodeNr;
use crate::inode::FileType;

const ENTRY_LEN: usize = 8;
const TAIL_LEN: usize = 8;
const INFO_AT: usize = 24;
/// Blocks of a directory are numbered with 28 bits.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// A hash function of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashVersion {
    /// The first one; weak.
    Legacy,
    /// Half of MD4's rounds; the usual one.
    HalfMd4,
    /// Tiny encryption algorithm.
    Tea,
}

impl HashVersion {
    /// From the number in a dx root or the superblock. 3 to 5, which stand for the unsigned
    /// versions in memory, are not valid on disk, but old kernels wrote them.
    #[must_use]
    pub fn from_disk(n: u8) -> Option<Self> {
        match n {
            0 | 3 => Some(Self::Legacy),
            1 | 4 => Some(Self::HalfMd4),
            2 | 5 => Some(Self::Tea),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub fn to_disk(self) -> u8 {
        match self {
            Self::Legacy => 0,
            Self::HalfMd4 => 1,
            Self::Tea => 2,
        }
    }
}

/// How a volume hashes names in one directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hasher {
    /// Function.
    pub version: HashVersion,
    /// Characters above 127 count as positive.
    pub unsigned: bool,
    /// Seed of the volume; zeros mean the standard one.
    pub seed: [u32; 4],
}

/// Hash of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameHash {
    /// The hash that the tree is ordered by; even.
    pub hash: u32,
    /// A second one that orders names with the same first.
    pub minor: u32,
}

impl Hasher {
    /// The hasher for a directory whose root names this version.
    #[must_use]
    pub fn new(geo: &Geometry, disk_version: u8) -> Option<Self> {
        let version = HashVersion::from_disk(disk_version)?;
        let unsigned = (geo.hash_unsigned && disk_version < 3) || (3..=5).contains(&disk_version);
        Some(Self { version, unsigned, seed: geo.hash_seed })
    }

    /// The hasher for new directories: the volume's default, or half-MD4 if that is unknown.
    #[must_use]
    pub fn default_for(geo: &Geometry) -> Self {
        Self::new(geo, geo.def_hash_version).unwrap_or(Self {
            version: HashVersion::HalfMd4,
            unsigned: geo.hash_unsigned,
            seed: geo.hash_seed,
        })
    }

    /// Hashes a name.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let mut state = if self.seed == [0; 4] {
            [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476]
        } else {
            self.seed
        };
        let (hash, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, self.unsigned), 0),
            HashVersion::HalfMd4 => {
                let mut rest = name;
                while !rest.is_empty() {
                    half_md4(&mut state, &words::<8>(rest, self.unsigned));
                    rest = rest.get(32..).unwrap_or_default();
                }
                (state[1], state[2])
            }
            HashVersion::Tea => {
                let mut rest = name;
                while !rest.is_empty() {
                    tea(&mut state, &words::<4>(rest, self.unsigned));
                    rest = rest.get(16..).unwrap_or_default();
                }
                (state[0], state[1])
            }
        };
        let hash = hash & !1;
        // The greatest value marks the end of a directory.
        NameHash { hash: if hash == 0xFFFF_FFFE { 0xFFFF_FFFC } else { hash }, minor }
    }
}

fn widen(c: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(c) } else { c as i8 as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut h0, mut h1) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
    for &c in name {
        let mut h = h1.wrapping_add(h0 ^ widen(c, unsigned).wrapping_mul(7_152_373));
        if h & 0x8000_0000 != 0 {
            h = h.wrapping_sub(0x7FFF_FFFF);
        }
        h1 = h0;
        h0 = h;
    }
    h0 << 1
}

/// Packs the first `4 * N` bytes of what is left of a name into words; padding repeats the length
/// that is left.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let pad = (rest.len() as u32 & 0xFF).wrapping_mul(0x0101_0101);
    let mut out = [pad; N];
    for (word, chunk) in out.iter_mut().zip(rest.chunks(4)) {
        *word = chunk.iter().fold(pad, |w, &c| widen(c, unsigned).wrapping_add(w << 8));
    }
    out
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5A82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, turns) in rounds {
        for (step, &word) in order.iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
            // The four words take turns: what was `a` becomes the newest and moves to the second
            // place.
            (a, b, c, d) = (d, sum.rotate_left(turns[step % 4]), b, c);
        }
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut v0, mut v1) = (state[0], state[1]);
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mix = |v: u32, k0: u32, k1: u32| {
            (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
        };
        v0 = v0.wrapping_add(mix(v1, key[0], key[1]));
        v1 = v1.wrapping_add(mix(v0, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(v0);
    state[1] = state[1].wrapping_add(v1);
}

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
        let tail = if geo.has_metadata_csum() { TAIL_LEN } else { 0 };
        ((geo.block_len() - self.count_at() - tail) / ENTRY_LEN) as u16
    }
}

/// What the root says of the tree.
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
    if geo.incompat.contains(Incompat::LARGE_DIR) { 2 } else { 1 }
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

/// Decodes what the root block of a hashed directory says, without its entries.
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
        ensure(block.len() == geo.block_len(), "directory block is cut short")?;
        if kind == DxKind::Node {
            let len = usize::from(get16(block, 4));
            let whole = len == block.len() || (block.len() == 65536 && matches!(len, 0 | 65535));
            ensure(get32(block, 0) == 0 && whole, "hashed directory has a bad node")?;
        }
        let at = kind.count_at();
        let (limit, count) = (get16(block, at), get16(block, at + 2));
        ensure(limit == kind.limit(geo), "hashed directory block has a wrong limit")?;
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

    /// Index of the entry whose range holds a hash.
    #[must_use]
    pub fn search(&self, hash: u32) -> usize {
        self.entries.partition_point(|e| e.hash <= hash).max(1) - 1
    }

    /// True if there is no room for another entry.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= usize::from(self.limit)
    }

    /// Inserts an entry behind index `after`.
    ///
    /// # Errors
    /// No room, or no such index.
    pub fn insert(&mut self, after: usize, hash: u32, block: u32) -> Result<()> {
        if self.is_full() || after >= self.entries.len() {
            return Err(OnDiskError::bad("hashed directory block has no such place"));
        }
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

/// Makes `block` an empty-looking node: the fake entry that hides it. Entries follow by
/// [`DxBlock::encode_into`].
pub fn init_node(block: &mut [u8]) {
    dirent::init_area(block);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(version: HashVersion, unsigned: bool, seed: [u32; 4], name: &str) -> (u32, u32) {
        let h = Hasher { version, unsigned, seed }.hash(name.as_bytes());
        (h.hash, h.minor)
    }

    #[test]
    fn hashes() {
        use HashVersion::{HalfMd4, Legacy, Tea};
        assert_eq!(hash(HalfMd4, false, [0; 4], "foo"), (0x74C6_57AC, 0x85A8_D812));
        assert_eq!(hash(Tea, false, [0; 4], "foo"), (0x901B_3376, 0x4878_F6AE));
        assert_eq!(hash(Legacy, false, [0; 4], "foo").0, 0x9F57_EF58);
        let name = "f\u{f6}\u{f6}";
        assert_eq!(hash(HalfMd4, false, [0; 4], name), (0x8F2E_E650, 0xBDAD_3697));
        assert_eq!(hash(HalfMd4, true, [0; 4], name), (0x8697_3340, 0x4631_5381));
        assert_eq!(hash(Tea, false, [0; 4], name), (0x74F1_2C86, 0xA821_399A));
        assert_eq!(hash(Tea, true, [0; 4], name), (0x10F3_4EE6, 0xD3FC_B075));
        assert_eq!(hash(Legacy, false, [0; 4], name).0, 0x3A22_CDCC);
        assert_eq!(hash(Legacy, true, [0; 4], name).0, 0x1AFE_D3CC);
        let seed = [0x3322_1100, 0x7766_5544, 0xBBAA_9988, 0xFFEE_DDCC];
        let long = "hello_world_this_is_a_long_name_0123456789";
        assert_eq!(hash(HalfMd4, false, seed, long), (0xC23F_B5C2, 0x5BB4_E873));
        assert_eq!(hash(Tea, false, seed, long), (0x8098_67C0, 0xEF5C_BACF));
    }
}
