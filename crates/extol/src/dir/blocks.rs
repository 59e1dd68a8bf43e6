//! The blocks of one directory: reading them checked, changing them with their checksum, appending
//! new ones.
//!
//! A block is checked once, when it comes from the device ([`Buf::is_verified`]): checksum and
//! structure. That flag does not say as what the block was checked, and a hostile image may name
//! one block in two places. So every function that works on a block's bytes also stays inside them,
//! whatever they hold.
//!
//! Appending takes all blocks that an operation needs before it changes anything else, and gives
//! them back if one is missing, so that a full volume leaves the directory as it was (DR-2).

use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::{Buf, Handle, Seal};
use extol_ondisk::htree::{self, DxKind};
use extol_ondisk::{Incompat, InodeSeed, dirent};
use extol_vfs::{FsError, Result};

use super::shape::{BlockKind, MAX_LARGE_BLOCKS, Shape, count};
use super::{index, leaf};
use crate::alloc::Run;
use crate::error;
use crate::map::{self, Mapping};
use crate::node::Node;
use crate::volume::Volume;

/// Directories of more than 2 GiB need the large_dir feature.
const MAX_BYTES: u64 = 1 << 31;

/// Reads the blocks of a directory; remembers the last mapping.
pub(super) struct Blocks<'v, 'd> {
    /// The volume.
    pub vol: &'v Volume,
    dir: &'d Node,
    pub shape: Shape<'v>,
    mapped: Option<(u32, u32, BlockNr)>,
}

impl<'v, 'd> Blocks<'v, 'd> {
    /// A reader of `dir`.
    pub fn new(vol: &'v Volume, dir: &'d Node) -> Self {
        Self { vol, dir, shape: Shape::of(vol, dir), mapped: None }
    }

    /// The directory.
    pub fn dir(&self) -> &'d Node {
        self.dir
    }

    /// The device block that holds block `lblk`, `None` for a hole.
    fn find(&mut self, lblk: u32) -> Result<Option<BlockNr>> {
        if let Some((first, len, pblk)) = self.mapped
            && let Some(skip) = lblk.checked_sub(first)
            && skip < len
        {
            return Ok(Some(pblk.plus(u64::from(skip))));
        }
        if lblk >= self.shape.blocks {
            return Ok(None);
        }
        match map::lookup(self.vol, self.dir, lblk)? {
            Mapping::Hole { .. } => Ok(None),
            Mapping::Mapped { unwritten: true, .. } => {
                Err(self.shape.corrupt("unwritten block in a directory"))
            }
            Mapping::Mapped { pblk, len, .. } => {
                let len = len.min(self.shape.blocks - lblk);
                let checked = self.vol.alloc.check_not_system(Run { start: pblk, len });
                checked.map_err(|e| e.in_inode(u64::from(self.shape.ino.0)))?;
                self.mapped = Some((lblk, len, pblk));
                Ok(Some(pblk))
            }
        }
    }

    /// The first block at or after `lblk` that is no hole: a directory that claims to be huge has
    /// nothing to read.
    pub fn next(&self, lblk: u32) -> Result<Option<u32>> {
        if let Some((first, len, _)) = self.mapped
            && lblk >= first
            && lblk - first < len
        {
            return Ok(Some(lblk));
        }
        Ok(map::next_mapped(self.vol, self.dir, lblk, self.shape.blocks)?.map(|run| run.lblk))
    }

    fn read(&mut self, lblk: u32) -> Result<Option<Arc<Buf>>> {
        let Some(pblk) = self.find(lblk)? else { return Ok(None) };
        self.vol.journal.read(pblk).map(Some).map_err(error::journal)
    }

    fn verify(&self, buf: &Buf, check: impl FnOnce(&[u8], &Shape<'v>) -> Result<()>) -> Result<()> {
        if !buf.is_verified() {
            check(&buf.data(), &self.shape)
                .map_err(|e| e.in_inode(u64::from(self.shape.ino.0)).at_block(buf.nr().0))?;
            buf.set_verified();
        }
        Ok(())
    }

    /// A block of entries; `None` for a hole.
    pub fn leaf(&mut self, lblk: u32) -> Result<Option<Arc<Buf>>> {
        let Some(buf) = self.read(lblk)? else { return Ok(None) };
        self.verify(&buf, leaf::check)?;
        Ok(Some(buf))
    }

    /// A block of entries to list, also a damaged one, with its problem, as long as its checksum is
    /// right.
    pub fn leaf_to_list(&mut self, lblk: u32) -> Result<Option<(Arc<Buf>, Option<FsError>)>> {
        let Some(buf) = self.read(lblk)? else { return Ok(None) };
        let Err(problem) = self.verify(&buf, leaf::check) else { return Ok(Some((buf, None))) };
        match self.shape.seed {
            Some(seed) if dirent::verify_csum(&buf.data(), seed).is_err() => Err(problem),
            _ => Ok(Some((buf, Some(problem)))),
        }
    }

    /// An index node. Only its checksum is checked here: a node that makes no sense is not the end
    /// of a search.
    pub fn node(&mut self, lblk: u32, kind: DxKind) -> Result<Option<Arc<Buf>>> {
        let Some(buf) = self.read(lblk)? else { return Ok(None) };
        self.verify(&buf, |bytes, shape| check_node(bytes, kind, shape))?;
        Ok(Some(buf))
    }

    /// Any block of the directory, to read it from one end to the other.
    pub fn any(&mut self, lblk: u32) -> Result<Option<(Arc<Buf>, BlockKind)>> {
        if let Some((buf, kind)) = self.index_node(lblk)? {
            return Ok(Some((buf, BlockKind::Index(kind))));
        }
        Ok(self.leaf(lblk)?.map(|buf| (buf, BlockKind::Leaf)))
    }

    /// The block, if it is a part of an index.
    pub fn index_node(&mut self, lblk: u32) -> Result<Option<(Arc<Buf>, DxKind)>> {
        if !self.shape.indexed {
            return Ok(None);
        }
        let Some(buf) = self.read(lblk)? else { return Ok(None) };
        let kind = match lblk {
            0 => DxKind::Root,
            _ if index::looks_like_node(&buf.data()) => DxKind::Node,
            _ => return Ok(None),
        };
        self.verify(&buf, |bytes, shape| check_node(bytes, kind, shape))?;
        Ok(Some((buf, kind)))
    }
}

fn check_node(bytes: &[u8], kind: DxKind, shape: &Shape<'_>) -> Result<()> {
    match shape.seed {
        Some(seed) => htree::verify_csum(bytes, kind, seed).map_err(error::ondisk),
        None => Ok(()),
    }
}

/// Changes a leaf; its checksum follows when the transaction closes.
pub(super) fn modify_leaf<R>(
    h: &mut Handle,
    shape: &Shape<'_>,
    buf: &Arc<Buf>,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    modify(h, shape, buf, BlockKind::Leaf, change)
}

/// Changes a block; its checksum follows when the transaction closes.
pub(super) fn modify<R>(
    h: &mut Handle,
    shape: &Shape<'_>,
    buf: &Arc<Buf>,
    kind: BlockKind,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    let set: fn(&mut [u8], BlockNr, u32) = match kind {
        BlockKind::Leaf => |bytes, _, seed| dirent::set_csum(bytes, InodeSeed(seed)),
        BlockKind::Index(DxKind::Root) => {
            |bytes, _, seed| htree::set_csum(bytes, DxKind::Root, InodeSeed(seed))
        }
        BlockKind::Index(DxKind::Node) => {
            |bytes, _, seed| htree::set_csum(bytes, DxKind::Node, InodeSeed(seed))
        }
    };
    match shape.seed {
        Some(seed) => h.modify_sealed(buf, Seal { set, seed: seed.0 }, change),
        None => h.modify(buf, change),
    }
    .map_err(error::journal)
}

/// A block that was just added to a directory: all zeros, to be filled by the caller.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    /// Where in the directory.
    pub lblk: u32,
    /// The block.
    pub buf: Arc<Buf>,
}

/// Adds `n` blocks to the end of a directory, all or none.
pub(super) fn append(vol: &Volume, h: &mut Handle, dir: &mut Node, n: u32) -> Result<Vec<Fresh>> {
    let first = count(vol, dir);
    let end = u64::from(first) + u64::from(n);
    let bytes = end << vol.geo.block_size.bits();
    if u64::from(first) != dir.raw.size >> vol.geo.block_size.bits() {
        return Err(
            FsError::corrupt("directory larger than its volume").in_inode(u64::from(dir.ino.0))
        );
    }
    let large = vol.geo.incompat().contains(Incompat::LARGE_DIR);
    if (bytes > MAX_BYTES && !large) || end > MAX_LARGE_BLOCKS {
        return Err(FsError::NoSpace);
    }
    let lblks: Vec<u32> = (first..first.saturating_add(n)).collect();
    let fresh = fill(vol, h, dir, &lblks)?;
    dir.raw.size = bytes;
    Ok(fresh)
}

/// Gives blocks to holes (or to the space behind the end) of a directory, all or none.
pub(super) fn fill(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    lblks: &[u32],
) -> Result<Vec<Fresh>> {
    let places = take(vol, dir, lblks)?;
    for (done, place) in places.iter().enumerate() {
        if let Err(e) = map_one(vol, h, dir, *place) {
            give_back(vol, places.get(done + 1..).unwrap_or_default());
            for &lblk in lblks.iter().take(done) {
                let _ = map::remove(vol, h, dir, lblk, lblk.saturating_add(1), map::Discard::Free)?;
            }
            return Err(e);
        }
    }
    places
        .into_iter()
        .map(|Place { lblk, nr, .. }| {
            Ok(Fresh { lblk, buf: h.create(nr).map_err(error::journal)? })
        })
        .collect()
}

/// Where a block of a directory goes.
#[derive(Clone, Copy, Debug)]
struct Place {
    lblk: u32,
    nr: BlockNr,
    /// Its cluster was taken for it.
    is_new: bool,
}

/// Takes blocks for holes, all or none. Those of one cluster share it.
fn take(vol: &Volume, dir: &Node, lblks: &[u32]) -> Result<Vec<Place>> {
    let mut places: Vec<Place> = Vec::with_capacity(lblks.len());
    let mut goal = map::goal(vol, dir, lblks.first().copied().unwrap_or(0))?;
    for &lblk in lblks {
        match place(vol, dir, &places, lblk, goal) {
            Ok(place) => {
                goal = place.nr.plus(1);
                places.push(place);
            }
            Err(e) => {
                give_back(vol, &places);
                return Err(e);
            }
        }
    }
    Ok(places)
}

fn place(vol: &Volume, dir: &Node, taken: &[Place], lblk: u32, goal: BlockNr) -> Result<Place> {
    let start = |lblk: u32| lblk - vol.geo.inside_cluster(u64::from(lblk));
    if let Some(mate) = taken.iter().find(|place| start(place.lblk) == start(lblk)) {
        return Ok(Place { lblk, nr: vol.geo.in_place_of(mate.nr, lblk), is_new: false });
    }
    match map::new_blocks(vol, dir, lblk, 1)? {
        map::NewBlocks::Shared(run) => {
            vol.alloc.check_not_system(run)?;
            Ok(Place { lblk, nr: run.start, is_new: false })
        }
        map::NewBlocks::Fresh(_) => {
            vol.promise(dir, 1)?;
            let run = vol.alloc.take(vol.geo.in_place_of(goal, lblk), 1, 1)?;
            Ok(Place { lblk, nr: run.start, is_new: true })
        }
    }
}

fn give_back(vol: &Volume, places: &[Place]) {
    let new = places.iter().filter(|place| place.is_new);
    new.for_each(|place| vol.alloc.give_back(single(place.nr)));
}

fn map_one(vol: &Volume, h: &mut Handle, dir: &mut Node, place: Place) -> Result<()> {
    let Place { lblk, nr, is_new } = place;
    if !is_new {
        return map::insert(vol, h, dir, lblk, single(nr), false);
    }
    vol.alloc.commit_take(h, single(nr))?;
    map::insert(vol, h, dir, lblk, single(nr), false).inspect_err(|_| {
        // The bits are set but nothing points at the block.
        let _ = vol.alloc.free(h, single(nr));
    })
}

fn single(start: BlockNr) -> Run {
    Run { start, len: 1 }
}
