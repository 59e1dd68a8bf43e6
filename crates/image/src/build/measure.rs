//! How large a volume must be for its files.
//!
//! The data is read once to see which blocks are zeros; then volumes of different sizes are planned
//! and laid out in memory, as the builder does it, until the smallest one is found that has room
//! for everything. Nothing is estimated, so the volume built afterwards has exactly the free space
//! that was asked for.

use super::digest::Content;
use super::layout::{Full, data_blocks};
use super::needs::Needs;
use super::pipeline::{self, DataRun, Sink};
use super::{
    BuildOptions, Free, INODE_PER, Prepared, Progress, SizeWish, bytes, lay_out, plan, seed,
    threads, verity, wanted,
};
use crate::error::{BuildError, Result};
use crate::mkfs::MkfsOptions;
use crate::source::Source;
use crate::tree::{NodeId, Tree};
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// The size of a volume.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Bytes of it that stay free.
    pub free: u64,
    /// What the files hold, as a UUID that comes from it.
    pub(super) content: [u8; 16],
}

/// Which blocks of each file are not zeros.
#[derive(Debug)]
struct DataMap {
    content: Content,
    block_len: u64,
    /// Files of which some blocks are zeros.
    runs: HashMap<NodeId, Vec<(u32, u32)>>,
    /// Runs of the file that is being read.
    now: Vec<(u32, u32)>,
    size: u64,
    /// Blocks of all runs.
    blocks: u64,
}

impl Sink for DataMap {
    fn begin(&mut self, _: NodeId, size: u64) -> Result<()> {
        self.now.clear();
        self.size = size;
        Ok(())
    }

    fn data(&mut self, id: NodeId, run: DataRun, _: &mut dyn FnMut(Range<u64>)) -> Result<()> {
        self.content.data(id, run);
        self.blocks += u64::from(run.len);
        match self.now.last_mut() {
            Some((block, len)) if *block + *len == run.block => *len += run.len,
            _ => self.now.push((run.block, run.len)),
        }
        Ok(())
    }

    fn end(&mut self, id: NodeId) -> Result<()> {
        let whole = self.size.div_ceil(self.block_len);
        if !matches!(self.now[..], [(0, len)] if u64::from(len) == whole) {
            self.runs.insert(id, self.now.clone());
        }
        Ok(())
    }
}

impl DataMap {
    fn read(
        source: &dyn Source,
        tree: &Tree,
        options: &BuildOptions,
        content: Content,
        block_len: u32,
        progress: Progress<'_>,
    ) -> Result<Self> {
        let mut map = Self {
            content,
            block_len: block_len.into(),
            runs: HashMap::new(),
            now: Vec::new(),
            size: 0,
            blocks: 0,
        };
        let threads = threads(options.threads);
        pipeline::run(tree, source, block_len as usize, threads, &mut map, None, progress)?;
        Ok(map)
    }
}

/// Reads all files, and says how large the volume must be.
///
/// # Errors
/// A source that cannot be read, options that make no sense, files that fit into no volume.
pub fn measure(
    source: &dyn Source,
    tree: &Tree,
    options: &BuildOptions,
    progress: Progress<'_>,
) -> Result<Measured> {
    let wanted = wanted(options, tree, None);
    if let SizeWish::AsNeeded(Free::Bytes(free)) = options.size
        && wanted.inodes.is_some_and(|inodes| inodes > u32::MAX.into())
        && options.mkfs.inodes.is_none()
    {
        return Err(BuildError::Refused(format!(
            "{free} bytes are more free space than a volume has inodes for, one for each \
             {INODE_PER} bytes: ask for less, or for fewer inodes (-i, -N)"
        )));
    }
    // Of the size nothing depends here but whether there is room at all.
    let start = bytes(tree).saturating_mul(2).saturating_add(tree.len() as u64 * 8192);
    let start = start.saturating_add(1 << 30).saturating_add(match options.size {
        SizeWish::AsNeeded(Free::Bytes(free)) => free.saturating_add(free / 8),
        _ => 0,
    });
    let mkfs = MkfsOptions { size: Some(start), ..wanted.clone() };
    let Prepared { mut mkfs, plan, content, .. } =
        Prepared::new(mkfs, tree, start, options.mkfs.inodes)?;
    let block_len = plan.geo.block_size.bytes();
    mkfs.block_size = Some(block_len);
    // (That plan may have asked for more.)
    mkfs.inodes = wanted.inodes;
    let map = DataMap::read(source, tree, options, content, block_len, progress)?;
    let free = match options.size {
        SizeWish::AsNeeded(free) => free,
        SizeWish::Given => Free::Bytes(0),
    };
    let search = Search { tree, mkfs: &mkfs, map: &map, free, given: options.mkfs.inodes };
    let (blocks, free) = search.smallest()?;
    Ok(Measured {
        bytes: blocks * u64::from(block_len),
        free: free * u64::from(block_len),
        content: map.content.uuid(),
    })
}

/// The smallest size of a volume with these options, for a message.
pub(super) fn smallest(
    source: &dyn Source,
    tree: &Tree,
    options: &BuildOptions,
    block_len: u32,
) -> Result<u64> {
    let mut mkfs = wanted(options, tree, None);
    mkfs.block_size = Some(block_len);
    let start = u64::from(block_len) << 30;
    let content = seed(&mut mkfs, tree, start)?;
    let mut ignored = |_| ControlFlow::Continue(());
    let map = DataMap::read(source, tree, options, content, block_len, &mut ignored)?;
    let free = Free::Bytes(0);
    let search = Search { tree, mkfs: &mkfs, map: &map, free, given: options.mkfs.inodes };
    Ok(search.smallest()?.0 * u64::from(block_len))
}

/// The search for the smallest volume.
struct Search<'a> {
    tree: &'a Tree,
    mkfs: &'a MkfsOptions,
    map: &'a DataMap,
    free: Free,
    /// Inodes that the caller asked for.
    given: Option<u64>,
}

/// Why a size does not do.
enum Unfit {
    /// There is no room.
    Small,
    /// mkfs refuses it.
    Refused(BuildError),
    /// No size does: a file cannot be stored with these options.
    Never(BuildError),
}

impl Search<'_> {
    /// Blocks of the volume, and how many of them stay free.
    fn smallest(&self) -> Result<(u64, u64)> {
        let mut needs = None;
        let least = self.map.blocks;
        let mut low = least;
        let mut more = self.map.blocks / 8 + 1024;
        let mut high = low;
        let mut found = loop {
            high += more;
            match self.fits(high, &mut needs) {
                Ok(found) => break found,
                Err(Unfit::Never(error)) => return Err(error),
                // (Too small a size may be refused for another reason than room.)
                Err(Unfit::Refused(error)) if high >> 32 != 0 && high / 4 > least => {
                    return Err(error);
                }
                Err(Unfit::Small) if high >> 48 != 0 => {
                    return Err(BuildError::Refused("no volume is large enough".into()));
                }
                Err(_) => low = high,
            }
            more *= 2;
        };
        while low + 1 < found.0 {
            let middle = low + (found.0 - low) / 2;
            match self.fits(middle, &mut needs) {
                Ok(smaller) => found = smaller,
                Err(_) => low = middle,
            }
        }
        Ok(found)
    }

    /// Tries a number of blocks. Gives how many of them the volume uses (a last group that is too
    /// small is cut off), and how many are free afterwards.
    fn fits(
        &self,
        blocks: u64,
        needs: &mut Option<Needs>,
    ) -> std::result::Result<(u64, u64), Unfit> {
        let refused = |error| Unfit::Refused(error);
        let bytes = blocks * self.map.block_len;
        let mut mkfs = MkfsOptions { size: Some(bytes), ..self.mkfs.clone() };
        let plan = plan(&mut mkfs, self.tree, bytes, self.given).map_err(refused)?;
        if needs.is_none() {
            *needs = Some(Needs::new(self.tree, &plan).map_err(Unfit::Never)?);
        }
        let Some(needs) = needs else { return Err(Unfit::Small) };
        let mut layout = lay_out(&plan, self.tree, needs).map_err(|Full| Unfit::Small)?;
        for (id, node) in self.tree.nodes() {
            let blocks = data_blocks(&node.kind, self.map.block_len);
            if blocks == 0 {
                continue;
            }
            let behind = verity::behind(self.tree, id, &plan.geo);
            let whole = [(0, blocks as u32)];
            let runs = self.map.runs.get(&id).map_or(&whole[..], |runs| runs);
            let most = blocks + behind.map_or(0, |(_, len)| u64::from(len));
            let placed = layout.place_data(id, most, runs.iter().copied().chain(behind));
            placed.map_err(|Full| Unfit::Small)?;
        }
        let all = plan.geo.blocks() - plan.geo.first_data_block;
        let used = layout.space().count_in(0..plan.geo.blocks());
        let wanted = match self.free {
            Free::Bytes(bytes) => bytes.div_ceil(self.map.block_len),
            Free::Percent(percent) => (used as f64 * percent / 100.0).ceil() as u64,
        };
        let free = all - used;
        if free >= wanted { Ok((plan.geo.blocks(), free)) } else { Err(Unfit::Small) }
    }
}
