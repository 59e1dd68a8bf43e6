//! Block maps of the files that mkfs makes: extents or the old map, built in one go.
//!
//! ```text
//!  extents: [root: up to 4] → nodes (as many levels as needed) → extents of up to 32768 blocks
//!  old map: 12 direct, then map blocks of one, two and three levels; a map block comes right
//!           before the first block that it maps
//! ```

use super::space::Space;
use super::{MkfsError, Result};
use extol_block::BlockNr;
use extol_ondisk::extent::{self, Entries, Extent, ExtentIndex, Node};
use extol_ondisk::{Geometry, InodeNr, InodeSeed};
use std::ops::Range;

/// A block to write.
pub(crate) type BlockImage = (BlockNr, Vec<u8>);

/// The map of a file.
#[derive(Debug)]
pub(crate) struct FileMap {
    /// For the inode.
    pub(crate) i_block: [u8; 60],
    /// The file's blocks in order.
    pub(crate) runs: Vec<Range<u64>>,
    /// Map blocks (extent nodes or indirect blocks).
    pub(crate) nodes: Vec<BlockImage>,
}

impl FileMap {
    /// Blocks the file takes, map included, in units of 512 bytes.
    pub(crate) fn sectors(&self, geo: &Geometry) -> u64 {
        let clusters = geo.clusters(self.len()) + self.nodes.len() as u64;
        geo.cluster_blocks(clusters) * (geo.block_len() as u64 / 512)
    }

    /// Blocks of the file, without the map.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Device block of a block of the file.
    pub(crate) fn block(&self, nr: u64) -> Option<BlockNr> {
        let mut left = nr;
        for run in &self.runs {
            let len = run.end - run.start;
            if left < len {
                return Some(BlockNr(run.start + left));
            }
            left -= len;
        }
        None
    }
}

pub(crate) fn full() -> MkfsError {
    MkfsError::Refused("the volume is too small for its own files: give a larger SIZE".into())
}

/// Takes `len` blocks from `goal` on as they come and maps them by extents.
///
/// Node blocks are taken when the extent that needs them is mapped, close before the first extent
/// if there is room.
pub(crate) fn by_extents(
    space: &mut Space,
    geo: &Geometry,
    ino: InodeNr,
    goal: u64,
    len: u64,
) -> Result<FileMap> {
    let max = usize::from(extent::block_max(geo));
    let mut extents: Vec<Extent> = Vec::new();
    let mut leaves: Vec<u64> = Vec::new();
    let (mut next, mut block) = (goal, 0u64);
    while block < len {
        let most = (len - block).min(u64::from(extent::MAX_LEN));
        let run = space.take_run(next, most).ok_or_else(full)?;
        let n = run.end - run.start;
        // Files of mkfs are far smaller than 2^32 blocks; a run is at most as long as an extent may
        // be.
        extents.push(Extent {
            block: block as u32,
            len: n as u16,
            start: run.start,
            unwritten: false,
        });
        (next, block) = (run.end, block + n);
        if extents.len() > ROOT_ENTRIES && extents.len() > leaves.len() * max {
            leaves.push(space.take_one(extents[0].start - 1).ok_or_else(full)?);
        }
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for e in &extents {
        match runs.last_mut() {
            Some(run) if run.end == e.start => run.end += u64::from(e.len),
            _ => runs.push(e.start..e.start + u64::from(e.len)),
        }
    }
    let mut tree = TreeBuilder { geo, seed: geo.fs_seed.inode(ino, 0), nodes: Vec::new() };
    let goal = extents.first().map_or(goal, |e| e.start - 1);
    let mut level = if leaves.is_empty() {
        Entries::Leaf(extents)
    } else {
        let places = leaves.into_iter().zip(extents.chunks(max));
        Entries::Index(
            places
                .map(|(at, part)| tree.node(at, 0, Entries::Leaf(part.to_vec()), part[0].block))
                .collect(),
        )
    };
    let mut depth = u16::from(!tree.nodes.is_empty());
    while let Entries::Index(all) = &level
        && all.len() > ROOT_ENTRIES
    {
        let mut above = Vec::new();
        for part in all.chunks(max) {
            let at = space.take_one(goal).ok_or_else(full)?;
            above.push(tree.node(at, depth, Entries::Index(part.to_vec()), part[0].block));
        }
        level = Entries::Index(above);
        depth += 1;
    }
    let mut i_block = [0; 60];
    Node { max: ROOT_ENTRIES as u16, depth, generation: 0, entries: level }
        .encode_into(&mut i_block);
    Ok(FileMap { i_block, runs, nodes: tree.nodes })
}

/// Entries in the root of an extent tree.
const ROOT_ENTRIES: usize = 4;

struct TreeBuilder<'a> {
    geo: &'a Geometry,
    seed: InodeSeed,
    nodes: Vec<BlockImage>,
}

impl TreeBuilder<'_> {
    /// Makes a node block and gives the entry that points at it.
    fn node(&mut self, at: u64, depth: u16, entries: Entries, first: u32) -> ExtentIndex {
        let mut bytes = vec![0; self.geo.block_len()];
        Node { max: extent::block_max(self.geo), depth, generation: 0, entries }
            .encode_into(&mut bytes);
        if self.geo.has_metadata_csum() {
            extent::set_csum(&mut bytes, self.seed);
        }
        self.nodes.push((BlockNr(at), bytes));
        ExtentIndex { block: first, leaf: at }
    }
}

/// Takes `len` blocks and the map blocks they need, as they come, and maps them the old way.
pub(crate) fn by_blocks(space: &mut Space, geo: &Geometry, goal: u64, len: u64) -> Result<FileMap> {
    let builder =
        BlockMapBuilder { given: None, space, geo, goal, left: len, runs: vec![], nodes: vec![] };
    builder.build()
}

/// Maps these blocks, which are taken, the old way; takes the map blocks.
pub(crate) fn of_blocks(space: &mut Space, geo: &Geometry, blocks: &[u64]) -> Result<FileMap> {
    BlockMapBuilder {
        given: Some(blocks.iter()),
        space,
        geo,
        goal: 0,
        left: blocks.len() as u64,
        runs: vec![],
        nodes: vec![],
    }
    .build()
}

struct BlockMapBuilder<'a> {
    /// The blocks of the file, where they are not taken here.
    given: Option<std::slice::Iter<'a, u64>>,
    space: &'a mut Space,
    geo: &'a Geometry,
    goal: u64,
    /// Blocks of the file still to be mapped.
    left: u64,
    runs: Vec<Range<u64>>,
    nodes: Vec<BlockImage>,
}

impl BlockMapBuilder<'_> {
    /// Maps the whole file.
    fn build(mut self) -> Result<FileMap> {
        let mut i_block = [0; 60];
        for (slot, place) in i_block.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            if self.left == 0 {
                break;
            }
            let level = slot.saturating_sub(11) as u32;
            *place = self.subtree(level)?.to_le_bytes();
        }
        if self.left > 0 {
            return Err(full());
        }
        Ok(FileMap { i_block, runs: self.runs, nodes: self.nodes })
    }

    fn take(&mut self, level: u32) -> Result<u32> {
        let given = self.given.as_mut().filter(|_| level == 0);
        let block = match given {
            Some(blocks) => blocks.next().copied(),
            None => self.space.take_one(self.goal),
        };
        let block = block.ok_or_else(full)?;
        self.goal = block;
        u32::try_from(block).map_err(|_| {
            MkfsError::Refused("a file without extents lies beyond 2^32 blocks".into())
        })
    }

    /// Maps as much of the rest as fits below a pointer of `level` (0: one block of data, at most
    /// 3).
    fn subtree(&mut self, level: u32) -> Result<u32> {
        let block = self.take(level)?;
        if level == 0 {
            let at = u64::from(block);
            match self.runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => self.runs.push(at..at + 1),
            }
            self.left -= 1;
            return Ok(block);
        }
        let mut bytes = vec![0; self.geo.block_len()];
        for place in bytes.as_chunks_mut::<4>().0 {
            if self.left == 0 {
                break;
            }
            *place = self.subtree(level - 1)?.to_le_bytes();
        }
        self.nodes.push((BlockNr(u64::from(block)), bytes));
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::tests::geometry;

    #[test]
    fn few_runs_stay_in_the_root() {
        let geo = geometry(4096, 1 << 20);
        let mut space = Space::new(0..1 << 20);
        space.take(10, 2);
        let map = by_extents(&mut space, &geo, InodeNr(8), 8, 70_000).expect("map");
        assert_eq!(map.runs, [8..10, 12..70_010]);
        let root = Node::decode(&map.i_block, &geo).expect("root");
        assert_eq!((root.depth, root.len(), map.nodes.len()), (0, 4, 0));
        assert_eq!(map.sectors(&geo), 70_000 * 8);
        assert_eq!(
            (map.block(1), map.block(2), map.block(70_000)),
            (Some(BlockNr(9)), Some(BlockNr(12)), None)
        );
    }

    #[test]
    fn many_runs_make_a_tree() {
        let geo = geometry(1024, 1 << 20);
        let mut space = Space::new(1..1 << 20);
        for i in 0..1000 {
            space.take(1 + i * 2, 1);
        }
        let map = by_extents(&mut space, &geo, InodeNr(8), 1, 1010).expect("map");
        let root = Node::decode(&map.i_block, &geo).expect("root");
        assert_eq!(root.depth, 2, "12 leaves of 84 extents need a level between them and the root");
        assert_eq!(map.nodes.len(), 13);
        let mut covered = 0;
        for (_, bytes) in &map.nodes {
            if geo.has_metadata_csum() {
                extent::verify_csum(bytes, geo.fs_seed.inode(InodeNr(8), 0)).expect("checksum");
            }
            if let Entries::Leaf(all) = Node::decode(bytes, &geo).expect("node").entries {
                covered += all.iter().map(|e| u64::from(e.len)).sum::<u64>();
            }
        }
        assert_eq!(covered, 1010);
    }

    #[test]
    fn old_map_interleaves_its_blocks() {
        let geo = geometry(1024, 1 << 20);
        let mut space = Space::new(1..1 << 20);
        let map = by_blocks(&mut space, &geo, 1, 12 + 256 + 300).expect("map");
        let pointers: Vec<u32> =
            map.i_block.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        assert_eq!(pointers[..13], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(
            pointers[13],
            14 + 256,
            "double indirect block behind the last block of the single one"
        );
        assert_eq!(pointers[14], 0);
        assert_eq!(map.nodes.len(), 1 + 1 + 2);
        assert_eq!(map.runs, [1..13, 14..270, 272..528, 529..573]);
    }
}
