//! What moves at once to another place.

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_vfs::Result;

use super::clusters::{Left, OUT_OF_PLACE};
use super::run::{Discard, MappedRun, Root};
use super::store::{Shape, StoreMut, Writer};
use super::{change, extents, has_extents, indirect, iterate};
use crate::alloc::Run;
use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::volume::Volume;

/// Blocks of a file that move at once: a mapped run; with clusters what is mapped in a row of them,
/// since a cluster moves as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    /// First block in the file, where a cluster begins.
    pub start: u32,
    /// Blocks, of whole clusters.
    pub len: u32,
    /// Where the first one lies.
    pblk: BlockNr,
    /// What is mapped, at the same distances as in the file.
    pieces: Vec<MappedRun>,
}

impl Stretch {
    /// What moves with the beginning of a mapped run of a file, at most so many blocks, or a
    /// cluster. With clusters it begins where the one of the run's first block does.
    pub fn of(vol: &Volume, node: &Node, run: MappedRun, most: u32) -> Result<Self> {
        let geo = &vol.geo;
        let before = geo.inside_cluster(run.lblk.into());
        let start = run.lblk - before;
        let most = most / geo.cluster_ratio * geo.cluster_ratio;
        let len = geo.cluster_blocks(geo.clusters_touched(run.lblk.into(), run.len.into()));
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(most.max(geo.cluster_ratio));
        let bad = || Root::of(node).corrupt(OUT_OF_PLACE).at_block(run.pblk.0);
        let pblk = run.pblk.0.checked_sub(before.into()).map(BlockNr).ok_or_else(bad)?;
        let mut pieces = Vec::new();
        iterate(vol, node, start, start.saturating_add(len), &mut |piece| {
            pieces.push(piece);
            true
        })?;
        let in_place = |piece: &MappedRun| pblk.plus(u64::from(piece.lblk - start)) == piece.pblk;
        if geo.inside_cluster(pblk.0) != 0 || !pieces.iter().all(in_place) {
            return Err(bad());
        }
        Ok(Self { start, len, pblk, pieces })
    }

    /// The first `len` blocks, of whole clusters.
    pub fn cut(mut self, len: u32) -> Self {
        self.len = self.len.min(len);
        let end = self.end();
        self.pieces.retain(|piece| piece.lblk < end);
        for piece in &mut self.pieces {
            piece.len = piece.len.min(end - piece.lblk);
        }
        self
    }

    /// The block of the file behind it.
    pub fn end(&self) -> u32 {
        self.start.saturating_add(self.len)
    }

    /// What is mapped.
    pub fn pieces(&self) -> &[MappedRun] {
        &self.pieces
    }

    /// How many blocks are mapped.
    pub fn blocks(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    /// Where a piece of it lies if it begins at `to`.
    pub fn place(&self, piece: &MappedRun, to: BlockNr) -> BlockNr {
        to.plus(u64::from(piece.lblk - self.start))
    }

    /// The blocks of the volume that it is moved from.
    pub fn old(&self) -> Run {
        Run { start: self.pblk, len: self.len }
    }

    fn maps<S: StoreMut>(
        &self,
        io: &mut S,
        root: &mut Root,
        (count, to): (usize, BlockNr),
    ) -> (usize, Result<()>) {
        for (at, piece) in self.pieces.iter().take(count).enumerate() {
            let place = (piece.lblk, piece.len);
            let to = self.place(piece, to);
            if let Err(e) = extents::relocate(io, root, place, to, |_, _| Ok(())) {
                return (at, Err(e));
            }
        }
        (count, Ok(()))
    }

    /// Maps the pieces to other clusters, and frees the old ones. After an error all is as before.
    fn relocate<S: StoreMut>(
        &self,
        io: &mut S,
        root: &mut Root,
        to: BlockNr,
        data: Discard,
    ) -> Result<()> {
        let (done, moved) = self.maps(io, root, (self.pieces.len(), to));
        let ratio = io.shape().ratio;
        let freed = moved.and_then(|()| {
            let left = Left { start: self.pblk, clusters: self.len / ratio };
            let none = Left { start: self.pblk, clusters: 0 };
            // (All clusters are freed at once, with the first piece.)
            let left = std::iter::once(&left).chain(std::iter::repeat(&none));
            self.pieces
                .iter()
                .zip(left)
                .try_for_each(|(piece, left)| data.discard(io, *piece, left))
        });
        if let Err(e) = freed {
            // (There is room for the extents that there were.)
            self.maps(io, root, (done, self.pblk)).1?;
            return Err(e);
        }
        Ok(())
    }
}

/// Maps the blocks of a stretch to those from `to` on, which the caller has taken in the same
/// transaction and which hold the same bytes. Frees the old ones as `data` says. On an error
/// nothing has changed and the caller still owns the new blocks.
///
/// Credits: [`credits_for_relocate`](super::credits_for_relocate).
pub(crate) fn relocate(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    from: &Stretch,
    to: BlockNr,
    data: Discard,
) -> Result<()> {
    let shape = Shape::of(&vol.geo, node);
    let clusters = shape.ratio > 1;
    if !shape.holds(to.0, u64::from(from.len)) || clusters && !has_extents(node) {
        return Err(Root::of(node).corrupt("mapping of blocks outside the volume"));
    }
    eligibility::note_ineligible(h, node.ino, Reason::BlocksMoved);
    let data = data.of(&node.raw);
    change(vol, h, node, |io, root, extents| {
        if clusters {
            return from.relocate(io, root, to, data);
        }
        let place = (from.start, from.len);
        let leave = |io: &mut Writer<'_>, old: MappedRun| data.discard(io, old, &Left::all(old));
        match extents {
            true => extents::relocate(io, root, place, to, leave),
            false => indirect::relocate(io, root, place, to, leave),
        }
    })
}
