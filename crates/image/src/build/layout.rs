//! Where the blocks of each file lie: directories, long links and attributes first, then the data
//! of files, all in the order of the tree.

use super::gaps::Gaps;
use super::maps::{self, Run};
use super::needs::Needs;
use crate::mkfs::Space;
use crate::tree::{Kind, NodeId, Tree, XattrSetId};
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
    /// How many they are.
    pub(super) fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum::<u64>() + self.nodes.len() as u64
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
        };
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
                    layout.gaps.begin(1);
                    places.push(layout.gaps.take(1).ok_or(Full)?.start);
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
        self.gaps.begin(most + maps::most_nodes(&self.geo, most));
    }

    /// Places blocks of the file. `put` is told where they lie, run by run.
    pub(super) fn add(
        &mut self,
        mut block: u32,
        mut len: u32,
        mut put: impl FnMut(Range<u64>),
    ) -> Result<(), Full> {
        while len > 0 {
            let got = self.gaps.take(len.into()).ok_or(Full)?;
            let count = (got.end - got.start) as u32;
            maps::push(&mut self.runs, Run { block, len: count, start: got.start });
            put(got);
            block += count;
            len -= count;
        }
        Ok(())
    }

    /// Ends the file: places its map.
    fn finish(&mut self) -> Result<Place, Full> {
        let mut nodes = Vec::new();
        let mut left = maps::node_count(&self.geo, &self.runs);
        while left > 0 {
            let got = self.gaps.take(left).ok_or(Full)?;
            left -= got.end - got.start;
            nodes.extend(got);
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
