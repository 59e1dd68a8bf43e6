//! Where the blocks of each file lie: directories, long links and attributes first, then the data
//! of files, all in the order of the tree.
//!
//! With bigalloc a file has whole clusters, a block of it the same place in its cluster as in the
//! file; a block of a map or of attributes has a cluster of its own.

use super::gaps::Gaps;
use super::maps::{self, Run};
use super::needs::Needs;
use crate::mkfs::Space;
use crate::tree::{Kind, NodeId, Tree, XattrSetId};
use extol_block::BlockNr;
use extol_ondisk::{Geometry, Incompat, extent};
use std::collections::HashMap;
use std::ops::Range;

/// The volume has no room for its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// The blocks of one file. Most are one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    None,
    /// From its first block on.
    One {
        start: u64,
        len: u32,
    },
    /// By its index among those with more to say.
    Many(u32),
}

/// A file of several runs, or with blocks for its map.
#[derive(Clone, Debug, Default)]
struct Spread {
    runs: Vec<Run>,
    nodes: Vec<u64>,
}

/// The blocks of a file and of its map.
#[derive(Debug)]
pub(super) struct Blocks<'a> {
    pub(super) runs: std::borrow::Cow<'a, [Run]>,
    pub(super) nodes: &'a [u64],
}

impl Blocks<'_> {
    /// How many are taken for them: whole clusters.
    pub(super) fn taken(&self, geo: &Geometry) -> u64 {
        let mut clusters = self.nodes.len() as u64;
        let mut before = None;
        for run in self.runs.iter() {
            let (first, len) = (u64::from(run.block), u64::from(run.len));
            // Runs with a hole between them may lie in one cluster.
            let shared = before == Some(geo.cluster_start(BlockNr(first)));
            clusters += geo.clusters_touched(first, len) - u64::from(shared);
            before = Some(geo.cluster_start(BlockNr(first + len.saturating_sub(1))));
        }
        geo.cluster_blocks(clusters)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Layout {
    geo: Geometry,
    gaps: Gaps,
    places: Vec<Place>,
    spread: Vec<Spread>,
    /// Blocks of lost+found, if the tree has none.
    lost_and_found: Place,
    /// Blocks of attributes, each for as many users as may share one.
    xattrs: HashMap<XattrSetId, Vec<u64>>,
    /// Blocks of attribute values in inodes of their own.
    values: Vec<Place>,
    /// Runs of the file that is being placed.
    runs: Vec<Run>,
    /// The first blocks of its last cluster, in the file and on the volume.
    cluster: Option<(BlockNr, BlockNr)>,
}

impl Layout {
    /// Places everything but the data of files. `lost_and_found`: blocks of a lost+found that the
    /// tree does not have.
    pub(super) fn new(
        geo: &Geometry,
        space: Space,
        tree: &Tree,
        needs: &Needs,
        lost_and_found: u64,
    ) -> Result<Self, Full> {
        let mut layout = Self {
            geo: geo.clone(),
            gaps: Gaps::new(space, geo.block_len() as u64),
            places: vec![Place::None; tree.len()],
            spread: Vec::new(),
            lost_and_found: Place::None,
            xattrs: HashMap::new(),
            values: Vec::new(),
            runs: Vec::new(),
            cluster: None,
        };
        let cluster = geo.cluster_blocks(1);
        let mut users: HashMap<XattrSetId, u64> = HashMap::new();
        for ((id, node), blocks) in tree.nodes().zip(&needs.blocks) {
            if *blocks > 0 {
                let place = layout.place_all(u64::from(*blocks))?;
                layout.set(id, place);
            }
            if id == NodeId::ROOT && lost_and_found > 0 {
                layout.lost_and_found = layout.place_all(lost_and_found)?;
            }
            if let Some(stored) = needs.sets.get(&node.meta.xattrs) {
                let user = users.entry(node.meta.xattrs).or_default();
                let places = layout.xattrs.entry(node.meta.xattrs).or_default();
                if stored.needs_block(*user) {
                    layout.gaps.begin(cluster);
                    places.push(layout.gaps.take(cluster).ok_or(Full)?.start);
                }
                *user += 1;
            }
        }
        for (_, value) in needs.values.iter() {
            let place = layout.place_all(value.len().div_ceil(geo.block_len()) as u64)?;
            layout.values.push(place);
        }
        Ok(layout)
    }

    fn set(&mut self, id: NodeId, place: Place) {
        if let Some(slot) = self.places.get_mut(id.0 as usize) {
            *slot = place;
        }
    }

    /// Places what is known whole.
    fn place_all(&mut self, blocks: u64) -> Result<Place, Full> {
        self.begin(blocks);
        self.add(0, blocks as u32, |_| {})?;
        self.finish()
    }

    /// Begins a file of at most so many blocks.
    pub(super) fn begin(&mut self, most: u64) {
        self.runs.clear();
        self.cluster = None;
        let geo = &self.geo;
        self.gaps.begin(geo.cluster_blocks(geo.clusters(most) + maps::most_nodes(geo, most)));
    }

    /// Places blocks of the file. `put` is told where they lie, run by run.
    pub(super) fn add(
        &mut self,
        mut block: u32,
        mut len: u32,
        mut put: impl FnMut(Range<u64>),
    ) -> Result<(), Full> {
        while len > 0 {
            let got = self.take(block, len)?;
            let count = (got.end - got.start) as u32;
            maps::push(&mut self.runs, Run { block, len: count, start: got.start });
            put(got);
            block += count;
            len -= count;
        }
        Ok(())
    }

    /// Takes up to `len` blocks in a row for the file's blocks from `block` on: of the cluster that
    /// the file has there, or of new ones.
    fn take(&mut self, block: u32, len: u32) -> Result<Range<u64>, Full> {
        let (nr, len) = (BlockNr(block.into()), u64::from(len));
        let (first, inside) =
            (self.geo.cluster_start(nr), u64::from(self.geo.inside_cluster(nr.0)));
        let got = match self.cluster {
            Some((has, at)) if has == first => at.0..at.0 + self.geo.cluster_blocks(1),
            _ => {
                let clusters = self.geo.clusters_touched(nr.0, len);
                self.gaps.take(self.geo.cluster_blocks(clusters)).ok_or(Full)?
            }
        };
        let start = got.start + inside;
        let got = start..got.end.min(start + len);
        let last = BlockNr(nr.0 + (got.end - got.start) - 1);
        let place = BlockNr(got.end - 1);
        self.cluster = Some((self.geo.cluster_start(last), self.geo.cluster_start(place)));
        Ok(got)
    }

    /// Ends the file: places its map.
    fn finish(&mut self) -> Result<Place, Full> {
        let mut nodes = Vec::new();
        let mut left = maps::node_count(&self.geo, &self.runs);
        while left > 0 {
            let got = self.gaps.take(self.geo.cluster_blocks(left)).ok_or(Full)?;
            left -= self.geo.clusters(got.end - got.start);
            nodes.extend(got.step_by(self.geo.cluster_blocks(1) as usize));
        }
        let extents = self.geo.incompat().contains(Incompat::EXTENTS);
        match self.runs[..] {
            [] => Ok(Place::None),
            [Run { block: 0, len, start }]
                if nodes.is_empty() && (!extents || len <= u32::from(extent::MAX_LEN)) =>
            {
                Ok(Place::One { start, len })
            }
            _ => {
                let nr = self.spread.len() as u32;
                self.spread.push(Spread { runs: self.runs.clone(), nodes });
                Ok(Place::Many(nr))
            }
        }
    }

    /// Ends a file of the tree.
    pub(super) fn end(&mut self, id: NodeId) -> Result<(), Full> {
        let place = self.finish()?;
        self.set(id, place);
        Ok(())
    }

    /// Places the data of a file by its runs.
    pub(super) fn place_data(
        &mut self,
        id: NodeId,
        blocks: u64,
        runs: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<(), Full> {
        self.begin(blocks);
        for (block, len) in runs {
            self.add(block, len, |_| {})?;
        }
        self.end(id)
    }

    /// The blocks of a file.
    pub(super) fn blocks(&self, id: NodeId) -> Blocks<'_> {
        self.blocks_at(self.places.get(id.0 as usize).copied().unwrap_or(Place::None))
    }

    /// The blocks of a lost+found that the tree does not have.
    pub(super) fn lost_and_found(&self) -> Blocks<'_> {
        self.blocks_at(self.lost_and_found)
    }

    fn blocks_at(&self, place: Place) -> Blocks<'_> {
        match place {
            Place::None => Blocks { runs: Vec::new().into(), nodes: &[] },
            Place::One { start, len } => {
                Blocks { runs: vec![Run { block: 0, len, start }].into(), nodes: &[] }
            }
            Place::Many(nr) => match self.spread.get(nr as usize) {
                Some(spread) => Blocks { runs: (&spread.runs[..]).into(), nodes: &spread.nodes },
                None => Blocks { runs: Vec::new().into(), nodes: &[] },
            },
        }
    }

    /// The blocks of a set of attributes.
    pub(super) fn xattrs(&self, set: XattrSetId) -> &[u64] {
        self.xattrs.get(&set).map_or(&[], |places| places)
    }

    /// The blocks of the attribute value with this number.
    pub(super) fn value(&self, nr: usize) -> Blocks<'_> {
        self.blocks_at(self.values.get(nr).copied().unwrap_or(Place::None))
    }

    /// What is in use.
    pub(super) fn space(&self) -> &Space {
        self.gaps.space()
    }
}

/// The blocks that the data of a file has at most; 0 for what is none.
pub(super) fn data_blocks(kind: &Kind, block_len: u64) -> u64 {
    match kind {
        Kind::File { size, .. } => size.div_ceil(block_len),
        _ => 0,
    }
}
