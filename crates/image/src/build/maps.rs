//! The block map of one file, once its blocks have their places.
//!
//! Where the blocks lie is known only when the last one was read, so the blocks of the map itself
//! (extent nodes, or indirect blocks) come behind the data. How many of them there are follows from
//! the runs alone ([`node_count`]); [`encode`] fills them.

use extol_block::BlockNr;
use extol_ondisk::extent::{self, Entries, Extent, ExtentIndex, Node};
use extol_ondisk::{Geometry, Incompat, InodeSeed};

/// Blocks of a file that lie side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// First block in the file.
    pub(super) block: u32,
    /// Number of blocks.
    pub(super) len: u32,
    /// First block on the volume.
    pub(super) start: u64,
}

/// Entries in the root of an extent tree.
const ROOT_ENTRIES: u64 = 4;
/// Pointers to data in an inode without extents.
const DIRECT: u64 = 12;

fn uses_extents(geo: &Geometry) -> bool {
    geo.incompat().contains(Incompat::EXTENTS)
}

/// Number of blocks that a file can have.
pub(super) fn most_blocks(geo: &Geometry) -> u64 {
    if uses_extents(geo) {
        return u64::from(extent::MAX_BLOCKS);
    }
    let p = geo.block_len() as u64 / 4;
    (DIRECT + p + p * p + p * p * p).min(u64::from(u32::MAX))
}

/// Adds a run behind those of a file; one that goes on where the last one ends is joined to it.
pub(super) fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last)
            if last.block + last.len == run.block
                && last.start + u64::from(last.len) == run.start =>
        {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}

/// How many blocks the map of a file needs besides its inode.
pub(super) fn node_count(geo: &Geometry, runs: &[Run]) -> u64 {
    if uses_extents(geo) {
        let extents = runs.iter().map(|r| u64::from(r.len.div_ceil(extent::MAX_LEN.into()))).sum();
        return extent_nodes(geo, extents);
    }
    let mut count = 0;
    pointers(geo, runs, &mut |_| {
        count += 1;
        0
    });
    count
}

fn extent_nodes(geo: &Geometry, extents: u64) -> u64 {
    let (mut level, mut all) = (extents, 0);
    while level > ROOT_ENTRIES {
        level = level.div_ceil(u64::from(extent::block_max(geo)));
        all += level;
    }
    all
}

/// The most that the map of a file with so many blocks in one piece can need.
pub(super) fn most_nodes(geo: &Geometry, blocks: u64) -> u64 {
    if uses_extents(geo) {
        return extent_nodes(geo, blocks.div_ceil(extent::MAX_LEN.into()));
    }
    let p = geo.block_len() as u64 / 4;
    if blocks <= DIRECT { 0 } else { 3 + blocks / p + blocks / (p * p) + 2 }
}

/// A map, ready to be written.
#[derive(Debug)]
pub(super) struct Map {
    /// For the inode.
    pub(super) i_block: [u8; 60],
    /// The other blocks of the map.
    pub(super) nodes: Vec<(BlockNr, Vec<u8>)>,
}

/// Makes the map. `places`: as many blocks as [`node_count`] says. `seed`: of the checksums, with
/// metadata_csum.
pub(super) fn encode(
    geo: &Geometry,
    runs: &[Run],
    places: &mut dyn Iterator<Item = u64>,
    seed: Option<InodeSeed>,
) -> Map {
    if !uses_extents(geo) {
        return pointers(geo, runs, &mut |_| places.next().unwrap_or_default());
    }
    let max = usize::from(extent::block_max(geo));
    let mut nodes = Vec::new();
    let mut depth = 0;
    let mut level = Entries::Leaf(extents(runs));
    loop {
        let parts: Vec<(u32, Entries)> = match &level {
            Entries::Leaf(all) if all.len() as u64 > ROOT_ENTRIES => {
                all.chunks(max).map(|p| (p[0].block, Entries::Leaf(p.to_vec()))).collect()
            }
            Entries::Index(all) if all.len() as u64 > ROOT_ENTRIES => {
                all.chunks(max).map(|p| (p[0].block, Entries::Index(p.to_vec()))).collect()
            }
            _ => break,
        };
        let mut above = Vec::new();
        for (block, entries) in parts {
            let at = places.next().unwrap_or_default();
            let mut bytes = vec![0; geo.block_len()];
            Node { max: max as u16, depth, generation: 0, entries }.encode_into(&mut bytes);
            if let Some(seed) = seed {
                extent::set_csum(&mut bytes, seed);
            }
            nodes.push((BlockNr(at), bytes));
            above.push(ExtentIndex { block, leaf: at });
        }
        level = Entries::Index(above);
        depth += 1;
    }
    let mut i_block = [0; 60];
    Node { max: ROOT_ENTRIES as u16, depth, generation: 0, entries: level }
        .encode_into(&mut i_block);
    Map { i_block, nodes }
}

/// Runs in pieces that an extent can name.
fn extents(runs: &[Run]) -> Vec<Extent> {
    let mut all = Vec::with_capacity(runs.len());
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let len = (run.len - done).min(extent::MAX_LEN.into());
            all.push(Extent {
                block: run.block + done,
                len: len as u16,
                start: run.start + u64::from(done),
                unwritten: false,
            });
            done += len;
        }
    }
    all
}

/// The old map: `take` gives a place to each block of pointers, one that leads to others first.
fn pointers(geo: &Geometry, runs: &[Run], take: &mut dyn FnMut(u64) -> u64) -> Map {
    let per_block = geo.block_len() as u64 / 4;
    let mut map = Pointers { runs, per_block, take, nodes: Vec::new() };
    let mut i_block = [0; 60];
    let mut first = 0;
    for (slot, place) in i_block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let level = slot.saturating_sub(11) as u32;
        *place = map.subtree(first, level).to_le_bytes();
        first += per_block.pow(level);
    }
    Map { i_block, nodes: map.nodes }
}

struct Pointers<'a> {
    runs: &'a [Run],
    per_block: u64,
    take: &'a mut dyn FnMut(u64) -> u64,
    nodes: Vec<(BlockNr, Vec<u8>)>,
}

impl Pointers<'_> {
    /// What points at the file's blocks from `first` on, as many as a pointer of this level leads
    /// to; 0 for a hole.
    fn subtree(&mut self, first: u64, level: u32) -> u32 {
        let span = self.per_block.pow(level);
        let at = self.runs.partition_point(|r| u64::from(r.block) + u64::from(r.len) <= first);
        let Some(run) = self.runs.get(at) else { return 0 };
        if u64::from(run.block) >= first + span {
            return 0;
        }
        if level == 0 {
            // A volume without extents has fewer than 2^32 blocks.
            return (run.start + first - u64::from(run.block)) as u32;
        }
        let place = (self.take)(first);
        let nr = self.nodes.len();
        self.nodes.push((BlockNr(place), Vec::new()));
        let mut bytes = vec![0; self.per_block as usize * 4];
        let below = span / self.per_block;
        for (i, pointer) in (0u64..).zip(bytes.as_chunks_mut::<4>().0) {
            *pointer = self.subtree(first + i * below, level - 1).to_le_bytes();
        }
        if let Some((_, place)) = self.nodes.get_mut(nr) {
            *place = bytes;
        }
        place as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::tests::{geometry, geometry_of};
    use extol_ondisk::InodeNr;

    fn run(block: u32, len: u32, start: u64) -> Run {
        Run { block, len, start }
    }

    /// The extents that a tree leads to.
    fn read(geo: &Geometry, map: &Map, seed: InodeSeed) -> Vec<Run> {
        let mut found = Vec::new();
        let mut todo = vec![map.i_block.to_vec()];
        while let Some(bytes) = todo.pop() {
            match Node::decode(&bytes, geo).expect("node").entries {
                Entries::Leaf(all) => {
                    for e in all {
                        push(&mut found, run(e.block, e.len.into(), e.start));
                    }
                }
                Entries::Index(all) => {
                    for index in all.iter().rev() {
                        let (_, node) =
                            map.nodes.iter().find(|(at, _)| at.0 == index.leaf).expect("place");
                        extent::verify_csum(node, seed).expect("checksum");
                        todo.push(node.clone());
                    }
                }
            }
        }
        found
    }

    #[test]
    fn extent_trees_of_all_depths() {
        let geo = geometry(1024, 1 << 20);
        let seed = geo.fs_seed.inode(InodeNr(20), 0);
        for (count, nodes) in [(0, 0), (1, 0), (4, 0), (5, 1), (84, 1), (85, 2), (336, 4), (337, 6)]
        {
            let runs: Vec<Run> =
                (0..count).map(|i| run(i * 3, 2, 1000 + u64::from(i) * 5)).collect();
            assert_eq!(node_count(&geo, &runs), nodes, "{count} extents");
            let mut places = 500_000..500_000 + nodes;
            let map = encode(&geo, &runs, &mut places, Some(seed));
            assert_eq!((places.next(), map.nodes.len() as u64), (None, nodes));
            assert_eq!(read(&geo, &map, seed), runs);
        }
        let long = [run(0, 4 * 32768, 100)];
        assert_eq!(node_count(&geo, &long), 0);
        assert_eq!(node_count(&geo, &[run(0, 4 * 32768 + 1, 100)]), 1);
        assert!(most_nodes(&geo, 4 * 32768 + 1) >= 1);
    }

    #[test]
    fn old_maps_with_holes() {
        let geo = geometry_of("-t ext2 -b 1024", 1 << 20);
        // Direct, single, double and triple indirect, and a hole from each to the next.
        let runs =
            [run(3, 2, 100), run(20, 1, 200), run(12 + 256 + 300, 700, 300), run(70_000, 1, 5)];
        let count = node_count(&geo, &runs);
        // 1 single; 1 double and those of blocks 256 to 999; 1 triple, 1 double, 1 single.
        assert_eq!(count, 1 + 1 + 3 + 3);
        let mut places = 5000..5000 + count;
        let map = encode(&geo, &runs, &mut places, None);
        assert_eq!(places.next(), None);
        let word = |bytes: &[u8], at: usize| {
            bytes.as_chunks::<4>().0.get(at).map_or(0, |b| u32::from_le_bytes(*b))
        };
        assert_eq!((word(&map.i_block, 3), word(&map.i_block, 4)), (100, 101));
        assert_eq!((word(&map.i_block, 0), word(&map.i_block, 12)), (0, 5000));
        assert_eq!(word(&map.nodes[0].1, 8), 200);
        assert_eq!(word(&map.i_block, 14), 5005);
        assert!(map.nodes.iter().all(|(_, bytes)| bytes.len() == 1024));
        assert_eq!(node_count(&geo, &[run(0, 12, 100)]), 0);
        assert!(most_nodes(&geo, 1000) >= node_count(&geo, &[run(0, 1000, 100)]));
        assert_eq!(most_blocks(&geo), 12 + 256 + 256 * 256 + 256 * 256 * 256);
    }
}
