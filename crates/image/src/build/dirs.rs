//! All blocks of a directory, made at once from its entries.
//!
//! ```text
//!  one block or no dir_index:  [. .. entries] [entries] …            in the order given
//!  more:   root │ index nodes, top level first │ leaves              in the order of hashes
//!          0      1 …
//! ```
//!
//! Leaves are filled to their end: nothing was ever divided. Entries with equal hashes stay in one
//! leaf if they fit into one; otherwise the leaves after the first say so in the lowest bit of
//! their key. The result depends on nothing but the entries and the hash seed.

use extol_ondisk::dirent::{self, NewEntry, entry_len};
use extol_ondisk::htree::{self, DxBlock, DxEntry, DxInfo, DxKind, Hasher};
use extol_ondisk::{Compat, FileType, Geometry, InodeNr, InodeSeed};
use std::ops::Range;

/// Too many names for the index of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexFull;

/// An entry in the order of hashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Hashed {
    hash: u32,
    minor: u32,
    /// Index in the caller's list.
    nr: u32,
}

/// Which entry goes into which block.
#[derive(Debug)]
pub(super) struct Shape {
    /// Entries in the order of hashes; empty in a linear directory.
    order: Vec<Hashed>,
    /// Entries of each leaf (in a linear directory: of each block), as ranges of the order.
    leaves: Vec<Range<u32>>,
    /// Nodes of each level between root and leaves, top level first. `None`: linear.
    nodes: Option<Vec<u32>>,
    /// Blocks behind the last one with entries.
    empty: u32,
}

/// Bytes of `.` and `..`.
fn dots_len() -> usize {
    entry_len(1) + entry_len(2)
}

/// Bytes that entries may use in a leaf: with fast_commit less, as a full leaf is divided then, and
/// a fast commit cannot hold that.
fn leaf_limit(geo: &Geometry) -> usize {
    let area = dirent::area_len(geo);
    if geo.compat().contains(Compat::FAST_COMMIT) { area / 4 * 3 } else { area }
}

impl Shape {
    /// The shape of a directory that gets an index when it needs more than one block.
    pub(super) fn new(geo: &Geometry, entries: &[NewEntry<'_>]) -> Result<Self, IndexFull> {
        let area = dirent::area_len(geo);
        let used: usize = entries.iter().map(|e| entry_len(e.name.len())).sum();
        if used + dots_len() <= area || !geo.compat().contains(Compat::DIR_INDEX) {
            return Ok(Self::linear(geo, entries, 1));
        }
        let hasher = Hasher::default_for(geo);
        let hash = |name: &[u8]| {
            let hash = hasher.hash(name);
            (hash.hash, hash.minor)
        };
        Self::indexed(geo, entries, leaf_limit(geo), hash)
    }

    /// The shape of a directory without an index, of `least` blocks or more.
    pub(super) fn linear(geo: &Geometry, entries: &[NewEntry<'_>], least: u32) -> Self {
        let area = dirent::area_len(geo);
        let mut leaves = Vec::new();
        let (mut first, mut used) = (0, dots_len());
        for (nr, entry) in (0..).zip(entries) {
            let len = entry_len(entry.name.len());
            if used + len > area {
                leaves.push(first..nr);
                (first, used) = (nr, 0);
            }
            used += len;
        }
        leaves.push(first..entries.len() as u32);
        let empty = least.saturating_sub(leaves.len() as u32);
        Self { order: Vec::new(), leaves, nodes: None, empty }
    }

    fn indexed(
        geo: &Geometry,
        entries: &[NewEntry<'_>],
        limit: usize,
        hash: impl Fn(&[u8]) -> (u32, u32),
    ) -> Result<Self, IndexFull> {
        let mut order: Vec<Hashed> = (0..)
            .zip(entries)
            .map(|(nr, entry)| {
                let (hash, minor) = hash(entry.name);
                Hashed { hash, minor, nr }
            })
            .collect();
        order.sort_unstable_by(|a, b| {
            let name = |h: &Hashed| entries.get(h.nr as usize).map(|e| e.name);
            (a.hash, a.minor).cmp(&(b.hash, b.minor)).then_with(|| name(a).cmp(&name(b)))
        });
        let len = |h: &Hashed| entries.get(h.nr as usize).map_or(0, |e| entry_len(e.name.len()));
        let leaves = fill_leaves(&order, limit, len);

        let root = u32::from(DxKind::Root.limit(geo));
        let node = u32::from(DxKind::Node.limit(geo));
        let mut nodes = Vec::new();
        let mut below = leaves.len() as u32;
        while below > root {
            below = below.div_ceil(node);
            nodes.insert(0, below);
        }
        if nodes.len() > usize::from(htree::max_levels(geo)) {
            return Err(IndexFull);
        }
        Ok(Self { order, leaves, nodes: Some(nodes), empty: 0 })
    }

    /// Blocks of the directory.
    pub(super) fn blocks(&self) -> u32 {
        let index = self.nodes.as_ref().map_or(0, |nodes| 1 + nodes.iter().sum::<u32>());
        index + self.leaves.len() as u32 + self.empty
    }

    /// True if the directory has an index.
    #[cfg(test)]
    pub(super) fn is_indexed(&self) -> bool {
        self.nodes.is_some()
    }

    /// Gives all blocks one after the other to `put`. `entries` are those that the shape was made
    /// from.
    pub(super) fn write(
        &self,
        dir: &Dir<'_>,
        entries: &[NewEntry<'_>],
        mut put: impl FnMut(&[u8]),
    ) {
        let mut block = vec![0; dir.geo.block_len()];
        let Some(nodes) = &self.nodes else {
            for (nr, leaf) in self.leaves.iter().enumerate() {
                let part = entries.get(leaf.start as usize..leaf.end as usize);
                dir.leaf(&mut block, nr == 0, part.unwrap_or_default());
                put(&block);
            }
            for _ in 0..self.empty {
                dir.leaf(&mut block, false, &[]);
                put(&block);
            }
            return;
        };
        self.write_index(dir, nodes, &mut block, &mut put);
        let mut packed = Vec::new();
        for leaf in &self.leaves {
            packed.clear();
            packed.extend(self.part(leaf).iter().filter_map(|h| entries.get(h.nr as usize)));
            dir.leaf(&mut block, false, &packed);
            put(&block);
        }
    }

    fn part(&self, leaf: &Range<u32>) -> &[Hashed] {
        self.order.get(leaf.start as usize..leaf.end as usize).unwrap_or_default()
    }

    /// The lowest hash of a leaf; odd if names with that hash are in the leaf before it as well.
    fn key(&self, leaf: usize) -> u32 {
        let start = self.leaves.get(leaf).map_or(0, |leaf| leaf.start as usize);
        let hash = |at: usize| self.order.get(at).map(|h| h.hash);
        let continued = start > 0 && hash(start) == hash(start - 1);
        hash(start).unwrap_or_default() | u32::from(continued)
    }

    /// The root and the nodes.
    fn write_index(
        &self,
        dir: &Dir<'_>,
        nodes: &[u32],
        block: &mut [u8],
        put: &mut impl FnMut(&[u8]),
    ) {
        let geo = dir.geo;
        let per_node = usize::from(DxKind::Node.limit(geo));
        // How many leaves are below an entry of a level: of the lowest one a single leaf.
        let spans: Vec<usize> =
            (0..=nodes.len()).rev().map(|levels| per_node.pow(levels as u32)).collect();
        let counts = nodes.iter().copied().chain([self.leaves.len() as u32]);
        // The first block of what the entries of a level point at.
        let mut first_below = 1;
        for (level, (below, span)) in counts.zip(spans).enumerate() {
            let all: Vec<DxEntry> = (0..below)
                .map(|nr| DxEntry { hash: self.key(nr as usize * span), block: first_below + nr })
                .collect();
            first_below += below;
            if level == 0 {
                let info = DxInfo {
                    hash_version: Hasher::default_for(geo).version.to_disk(),
                    levels: nodes.len() as u8,
                };
                htree::init_root(block, geo, dir.own, dir.parent, dir.kind, info, 1);
                dir.index(block, DxKind::Root, all);
                put(block);
                continue;
            }
            for part in all.chunks(per_node) {
                dirent::init_area(block);
                dir.index(block, DxKind::Node, part.to_vec());
                put(block);
            }
        }
    }
}

/// Divides entries among leaves, in order.
fn fill_leaves(order: &[Hashed], limit: usize, len: impl Fn(&Hashed) -> usize) -> Vec<Range<u32>> {
    let mut leaves: Vec<Range<u32>> = Vec::new();
    let (mut first, mut used) = (0, 0);
    let mut at: u32 = 0;
    for group in order.chunk_by(|a, b| a.hash == b.hash) {
        let bytes: usize = group.iter().map(&len).sum();
        if used + bytes > limit && used > 0 {
            leaves.push(first..at);
            (first, used) = (at, 0);
        }
        if bytes <= limit {
            used += bytes;
            at += group.len() as u32;
            continue;
        }
        for entry in group {
            if used + len(entry) > limit {
                leaves.push(first..at);
                (first, used) = (at, 0);
            }
            used += len(entry);
            at += 1;
        }
    }
    leaves.push(first..at);
    leaves
}

/// What the blocks of one directory have in common.
pub(super) struct Dir<'a> {
    pub(super) geo: &'a Geometry,
    pub(super) own: InodeNr,
    pub(super) parent: InodeNr,
    /// The type in `.` and `..`, on volumes that record types.
    pub(super) kind: Option<FileType>,
    /// Seed of the checksums, with metadata_csum.
    pub(super) seed: Option<InodeSeed>,
}

impl Dir<'_> {
    /// A block of entries; with `dots` the first one of a linear directory.
    fn leaf(&self, block: &mut [u8], dots: bool, entries: &[NewEntry<'_>]) {
        block.fill(0);
        let area = &mut block[..dirent::area_len(self.geo)];
        if dots {
            let dot = |name, ino| NewEntry { name, ino, file_type: self.kind, hash: None };
            let first = [dot(&b"."[..], self.own), dot(&b".."[..], self.parent)];
            let all = [&first, entries].concat();
            let fits = dirent::pack(area, &all);
            debug_assert!(fits, "the shape counted other bytes");
        } else if entries.is_empty() {
            dirent::init_area(area);
        } else {
            let fits = dirent::pack(area, entries);
            debug_assert!(fits, "the shape counted other bytes");
        }
        if let Some(seed) = self.seed {
            dirent::set_csum(block, seed);
        }
    }

    /// Puts entries into an index block.
    fn index(&self, block: &mut [u8], kind: DxKind, entries: Vec<DxEntry>) {
        DxBlock { kind, limit: kind.limit(self.geo), entries }.encode_into(block);
        if let Some(seed) = self.seed {
            htree::set_csum(block, kind, seed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::tests::geometry;
    use proptest::prelude::*;

    fn entries(names: &[Vec<u8>]) -> Vec<NewEntry<'_>> {
        (20..)
            .zip(names)
            .map(|(ino, name)| NewEntry {
                name,
                ino: InodeNr(ino),
                file_type: Some(FileType::Regular),
                hash: None,
            })
            .collect()
    }

    /// Reads a directory back through its index: every name, found by its hash.
    fn check(geo: &Geometry, shape: &Shape, all: &[NewEntry<'_>], hash: impl Fn(&[u8]) -> u32) {
        let seed = geo.has_metadata_csum().then(|| geo.fs_seed.inode(InodeNr(12), 0));
        let dir = Dir {
            geo,
            own: InodeNr(12),
            parent: InodeNr(2),
            kind: Some(FileType::Directory),
            seed,
        };
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        shape.write(&dir, all, |block| blocks.push(block.to_vec()));
        assert_eq!(blocks.len() as u32, shape.blocks());
        let area = dirent::area_len(geo);
        if !shape.is_indexed() {
            let entries = blocks.iter().flat_map(|block| dirent::iter(&block[..area]));
            let entries = entries.map(|entry| entry.expect("entry"));
            let found = entries.filter(|entry| entry.is_used() && !entry.is_dot()).count();
            assert_eq!(found, all.len());
            return;
        }
        let info = htree::decode_info(&blocks[0], geo).expect("root");
        // Leaves in order, with their keys.
        let mut level = vec![(0, 0u32)];
        for depth in 0..=info.levels {
            let kind = if depth == 0 { DxKind::Root } else { DxKind::Node };
            level = level
                .iter()
                .flat_map(|(key, at)| {
                    let bytes = &blocks[*at as usize];
                    if let Some(seed) = seed {
                        htree::verify_csum(bytes, kind, seed).expect("checksum");
                    }
                    let block = DxBlock::decode(bytes, kind, geo).expect("index block");
                    let mut below: Vec<(u32, u32)> =
                        block.entries.iter().map(|e| (e.hash, e.block)).collect();
                    below[0].0 = *key;
                    below
                })
                .collect();
        }
        let mut seen = 0;
        for (nr, (key, at)) in level.iter().enumerate() {
            let end = level.get(nr + 1).map_or(u32::MAX, |(key, _)| *key);
            let block = &blocks[*at as usize];
            if let Some(seed) = seed {
                dirent::verify_csum(block, seed).expect("checksum");
            }
            // (A directory without names has an unused entry.)
            let entries = dirent::iter(&block[..area]).map(|entry| entry.expect("entry"));
            for entry in entries.filter(dirent::Entry::is_used) {
                let hash = hash(entry.name);
                assert!(hash >= *key & !1, "{hash:x} below {key:x}");
                assert!(hash < end || (end & 1 == 1 && hash == end & !1), "{hash:x} {end:x}");
                seen += 1;
            }
        }
        assert_eq!(seen, all.len());
        let first = level[1..].iter().map(|(_, at)| *at).min();
        assert_eq!(first, level.get(1).map(|(_, at)| *at), "leaves are in the order of hashes");
    }

    #[test]
    fn small_and_large_directories() {
        for block_size in [1024, 2048, 4096] {
            let geo = geometry(block_size, 1 << 20);
            for count in [0, 1, 10, 60, 61, 300, 5000, 40_000] {
                let names: Vec<Vec<u8>> =
                    (0..count).map(|i| format!("file-{i}").into_bytes()).collect();
                let all = entries(&names);
                let shape = Shape::new(&geo, &all).expect("shape");
                let hasher = Hasher::default_for(&geo);
                check(&geo, &shape, &all, |name| hasher.hash(name).hash);
                if count > 1000 {
                    let used: usize = names.iter().map(|n| entry_len(n.len())).sum();
                    let least = used.div_ceil(dirent::area_len(&geo)) as u32;
                    assert!(shape.leaves.len() as u32 <= least + least / 30 + 1, "full leaves");
                }
            }
        }
    }

    #[test]
    fn an_index_that_is_too_small_is_refused() {
        let geo = geometry(1024, 1 << 20);
        let names: Vec<Vec<u8>> = (0..60_000).map(|i| format!("{i:0>255}").into_bytes()).collect();
        let all = entries(&names);
        assert_eq!(Shape::new(&geo, &all).err(), Some(IndexFull));
        let linear = Shape::linear(&geo, &all[..100], 4);
        assert_eq!(linear.blocks(), 34);
        assert_eq!(Shape::linear(&geo, &all[..1], 16).blocks(), 16);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// With hashes of few values many are equal, and more than a leaf holds.
        #[test]
        fn equal_hashes(
            lens in prop::collection::vec(1usize..=255, 0..2000),
            values in 1u32..2000,
            bits in 10u32..=12,
        ) {
            let geo = geometry(1 << bits, 1 << 20);
            let names: Vec<Vec<u8>> = lens
                .iter()
                .enumerate()
                .map(|(i, len)| {
                    let mut name = i.to_string().into_bytes();
                    name.resize((*len).max(name.len()), b'x');
                    name
                })
                .collect();
            let hash = |name: &[u8]| {
                let n = name.iter().take_while(|c| c.is_ascii_digit());
                let n = n.fold(0u32, |n, c| n * 10 + u32::from(c - b'0'));
                (n.wrapping_mul(0x9E37_79B1) % values) * 2
            };
            let all = entries(&names);
            let limit = dirent::area_len(&geo);
            let shape = Shape::indexed(&geo, &all, limit, |n| (hash(n), 0)).expect("shape");
            check(&geo, &shape, &all, hash);
        }
    }
}
