//! Files of fs-verity: what lies behind their ends.
//!
//! How many blocks that takes depends on the size of a file alone, so it gets them with those of
//! its contents. The hashes come when the contents are on the volume: they are read back from there
//! in order, whatever order they were written in.

use super::layout::Layout;
use super::maps::Run;
use super::{BuildProgress, BuildStage, Progress};
use crate::error::{BuildError, Result};
use crate::tree::{Kind, NodeId, Tree, VerityTrees};
use extol_block::{AlignedBuf, BlockDevice};
use extol_ondisk::Geometry;
use extol_verity::ext4::Layout as Places;
use extol_verity::{Builder, DESCRIPTOR_LEN, Descriptor, Params, VerityError};

/// Bytes of contents that are read at once.
const STEP: u64 = 1 << 20;
/// Buffers are aligned for any device.
const ALIGN: usize = 4096;
/// Bytes of a block of a tree: with larger ones Linux takes none on most machines.
const LARGEST_BLOCK: u32 = 4096;

fn params(how: &VerityTrees, geo: &Geometry) -> std::result::Result<Params, VerityError> {
    let block_size = how.block_size.unwrap_or(largest_block(geo.block_size.bytes()));
    Params::new(how.algorithm, block_size, how.salt.clone())
}

fn largest_block(block_len: u32) -> u32 {
    block_len.min(LARGEST_BLOCK)
}

/// Checks that a volume with blocks of so many bytes can have its files of fs-verity.
pub(super) fn check(tree: &Tree, extents: bool, block_len: u32) -> Result<()> {
    if !tree.nodes().any(|(_, node)| node.meta.verity) {
        return Ok(());
    }
    let refuse = |why: String| Err(BuildError::Refused(why));
    if !extents {
        return refuse("files of fs-verity need the feature extent".into());
    }
    let most = largest_block(block_len);
    match tree.verity().block_size {
        Some(size) if size > most => refuse(format!(
            "blocks of {size} bytes are too large for the trees of fs-verity: Linux takes {most} \
             on this volume"
        )),
        Some(size) => Params::new(tree.verity().algorithm, size, tree.verity().salt.clone())
            .map_or_else(|error| refuse(error.to_string()), |_| Ok(())),
        None => Ok(()),
    }
}

/// The places of what is behind the end of a file of so many bytes, and the builder of its tree.
fn begin(
    size: u64,
    how: &VerityTrees,
    geo: &Geometry,
) -> std::result::Result<(Places, Builder), VerityError> {
    let builder = Builder::new(&params(how, geo)?, size)?;
    let tree = builder.tree().size();
    Ok((Places::new(size, tree, DESCRIPTOR_LEN, geo.block_size.bytes())?, builder))
}

fn places(tree: &Tree, id: NodeId, geo: &Geometry) -> Option<Places> {
    let node = tree.node(id);
    match node.kind {
        Kind::File { size, .. } if node.meta.verity => {
            begin(size, tree.verity(), geo).ok().map(|(at, _)| at)
        }
        _ => None,
    }
}

/// Where all that belongs to a file ends; 0 if nothing is behind its contents.
pub(super) fn end(tree: &Tree, id: NodeId, geo: &Geometry) -> u64 {
    let node = tree.node(id);
    let is_there = node.meta.verity && matches!(node.kind, Kind::File { .. });
    places(tree, id, geo).map_or(if is_there { u64::MAX } else { 0 }, |places| places.end)
}

/// The blocks behind the contents of a file: the first one, and how many.
pub(super) fn behind(tree: &Tree, id: NodeId, geo: &Geometry) -> Option<(u32, u32)> {
    let block = geo.block_len() as u64;
    let places = places(tree, id, geo)?;
    // (The end is within what a file can have.)
    Some(((places.tree / block) as u32, ((places.end - places.tree) / block) as u32))
}

/// Writes the trees and descriptors of all files that have some. Gives the number of bytes.
pub(super) fn write(
    device: &dyn BlockDevice,
    tree: &Tree,
    layout: &Layout,
    geo: &Geometry,
    progress: Progress<'_>,
) -> Result<u64> {
    let files = || {
        tree.nodes().filter_map(|(id, node)| match node.kind {
            Kind::File { size, .. } if node.meta.verity => Some((id, size)),
            _ => None,
        })
    };
    let total = files().fold(0, |sum: u64, (_, size)| sum.saturating_add(size));
    let (mut done, mut written) = (0, 0);
    let mut buffer = AlignedBuf::new(STEP as usize, ALIGN);
    for (id, size) in files() {
        let blocks = layout.blocks(id);
        let file = OnVolume { device, runs: &blocks.runs, block_len: geo.block_len() as u64 };
        let mut told = |bytes: u64| {
            done += bytes;
            match progress(BuildProgress { stage: BuildStage::Verity, done, total }) {
                std::ops::ControlFlow::Continue(()) => Ok(()),
                std::ops::ControlFlow::Break(()) => Err(BuildError::Stopped),
            }
        };
        written +=
            file.enable(size, (tree.verity(), geo), &mut buffer, &mut told).map_err(|stop| {
                match stop {
                    Stop::Build(error) => error,
                    Stop::Verity(error) => BuildError::entry(&tree.path(id), error),
                }
            })?;
    }
    Ok(written)
}

/// Why a tree was not made.
enum Stop {
    Build(BuildError),
    Verity(VerityError),
}

impl From<VerityError> for Stop {
    fn from(error: VerityError) -> Self {
        Self::Verity(error)
    }
}

impl From<BuildError> for Stop {
    fn from(error: BuildError) -> Self {
        Self::Build(error)
    }
}

/// A file whose blocks have their places.
struct OnVolume<'a> {
    device: &'a dyn BlockDevice,
    runs: &'a [Run],
    block_len: u64,
}

impl OnVolume<'_> {
    /// Writes all that is behind the contents.
    fn enable(
        &self,
        size: u64,
        (how, geo): (&VerityTrees, &Geometry),
        buffer: &mut AlignedBuf,
        told: &mut dyn FnMut(u64) -> Result<()>,
    ) -> std::result::Result<u64, Stop> {
        let (places, mut builder) = begin(size, how, geo)?;
        self.clear(&places, builder.tree().size())?;
        let mut put = |at: u64, block: &[u8]| self.write(places.tree + at, block);
        let mut at = 0;
        while at < size {
            let part = &mut buffer[..(size - at).min(STEP) as usize];
            self.read(at, part)?;
            builder.push(part, &mut put)?;
            at += part.len() as u64;
            told(part.len() as u64)?;
        }
        let root = builder.finish(&mut |at, block: &[u8]| put(at, block).map_err(Stop::from))?;
        let descriptor = Descriptor::new(params(how, geo)?, size, &root, Vec::new())?;
        let mut block = vec![0; (places.end - places.descriptor) as usize];
        let length = (places.length - places.descriptor) as usize;
        block[..DESCRIPTOR_LEN].copy_from_slice(&descriptor.to_bytes());
        block[length..].copy_from_slice(&(DESCRIPTOR_LEN as u32).to_le_bytes());
        self.write(places.descriptor, &block)?;
        Ok(places.end - places.tree)
    }

    /// Clears the block in which the tree ends: it may be larger than one of the tree.
    fn clear(&self, places: &Places, tree: u64) -> Result<()> {
        if tree.is_multiple_of(self.block_len) {
            return Ok(());
        }
        let zeros = vec![0; self.block_len as usize];
        self.write(places.tree + tree / self.block_len * self.block_len, &zeros)
    }

    /// Reads contents; holes are zeros.
    fn read(&self, at: u64, part: &mut [u8]) -> Result<()> {
        part.fill(0);
        let end = at + part.len() as u64;
        for run in self.runs {
            let start = u64::from(run.block) * self.block_len;
            let from = start.max(at);
            let to = (start + u64::from(run.len) * self.block_len).min(end);
            if from < to {
                let place = run.start * self.block_len + (from - start);
                let into = &mut part[(from - at) as usize..(to - at) as usize];
                self.device.read_at(into, place)?;
            }
        }
        Ok(())
    }

    /// Writes bytes of one block of the file.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let block = at / self.block_len;
        let nr =
            self.runs.partition_point(|run| u64::from(run.block) + u64::from(run.len) <= block);
        let run = self.runs.get(nr).filter(|run| u64::from(run.block) <= block);
        let Some(run) = run else {
            return Err(BuildError::Refused("a tree of fs-verity has no place".into()));
        };
        let place = (run.start + block - u64::from(run.block)) * self.block_len;
        Ok(self.device.write_at(bytes, place + at % self.block_len)?)
    }
}
