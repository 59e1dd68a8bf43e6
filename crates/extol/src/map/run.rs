//! Values of the mapping code.

use extol_block::BlockNr;
use extol_ondisk::{Inode, InodeFlags};
use extol_vfs::{FsError, Result};

use super::clusters::Left;
use super::store::{Shape, StoreMut};
use crate::node::Node;

/// What a block of a file is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// Not mapped.
    Hole {
        /// For at least this many blocks.
        len: u64,
    },
    /// Mapped to blocks of the volume.
    Mapped {
        /// Where.
        pblk: BlockNr,
        /// For this many blocks.
        len: u32,
        /// Allocated, but reads as zeros.
        unwritten: bool,
    },
}

/// Neighbouring blocks of a file that are neighbours on the volume too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MappedRun {
    /// First block in the file.
    pub lblk: u32,
    /// First block on the volume.
    pub pblk: BlockNr,
    /// How many.
    pub len: u32,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl MappedRun {
    /// The block in the file behind the run.
    pub fn end(&self) -> u64 {
        u64::from(self.lblk) + u64::from(self.len)
    }

    /// The parts before `lblk` and from there on; either may be empty.
    pub(super) fn split(self, lblk: u32) -> (Self, Self) {
        let head = lblk.saturating_sub(self.lblk).min(self.len);
        let tail = Self {
            lblk: self.lblk.saturating_add(head),
            pblk: self.pblk.plus(u64::from(head)),
            len: self.len - head,
            ..self
        };
        (Self { len: head, ..self }, tail)
    }

    /// The part from `lblk` on.
    pub(super) fn tail(self, lblk: u32) -> Self {
        self.split(lblk).1
    }
}

/// How far an operation came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Progress {
    /// To its end.
    Done,
    /// The handle's credits ran out: write the inode, restart the handle, and go on here.
    Restart {
        /// Where: see the operation.
        at: u32,
    },
}

/// What a removal does with data blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discard {
    /// They stay taken. Not bounded by credits: this undoes what the same transaction did.
    Keep,
    /// Freed. Blocks of anything but ordinary files, of files with the journal-data flag and of
    /// attribute values are revoked too.
    Free,
    /// Freed and revoked: the log may hold copies of them (data=journal).
    FreeJournalled,
}

/// Groups that one step of a removal may touch.
const STEP_GROUPS: u64 = 4;
/// Blocks that one step may revoke.
const STEP_REVOKES: u32 = 1024;
/// Fewest revoke records in a block (1 KiB blocks, 64-bit numbers).
const REVOKES_PER_BLOCK: u32 = 125;

impl Discard {
    /// Credits that [`credits`](Self::credits) never exceeds for a
    /// [`last_piece`](Self::last_piece).
    pub(super) const MOST_CREDITS: u32 =
        2 * STEP_GROUPS as u32 + STEP_REVOKES / REVOKES_PER_BLOCK + 2;

    /// Credits for `blocks` blocks, fewer than a group has, in so many pieces.
    pub(super) fn credits_of_few(pieces: u32, blocks: u32) -> u32 {
        pieces * (2 * 2 + 2) + blocks / REVOKES_PER_BLOCK
    }

    /// The choice for this inode.
    pub(super) fn of(self, raw: &Inode) -> Self {
        let through_log = InodeFlags::JOURNAL_DATA.union(InodeFlags::EA_INODE);
        let journalled = raw.flags.intersects(through_log) || !raw.is_regular();
        if self == Self::Free && journalled { Self::FreeJournalled } else { self }
    }

    /// The end of `run` that one step can free.
    pub(super) fn last_piece(self, shape: &Shape, run: MappedRun) -> MappedRun {
        if self == Self::Keep || run.len == 0 {
            return run;
        }
        let last = run.pblk.0 + u64::from(run.len) - 1;
        let reach = shape.group.saturating_mul(STEP_GROUPS - 1);
        let lowest = shape.group_start(last).saturating_sub(reach).max(run.pblk.0);
        let mut len = (last - lowest + 1) as u32;
        if self == Self::FreeJournalled {
            len = len.min(STEP_REVOKES);
        }
        run.tail(run.lblk + (run.len - len))
    }

    /// Credits that freeing `piece` may cost: bitmap and descriptor of each group, revoke blocks.
    pub(super) fn credits(self, shape: &Shape, piece: MappedRun) -> u32 {
        let groups = shape.groups(piece.pblk.0, u64::from(piece.len)) as u32;
        match self {
            Self::Keep => 0,
            Self::Free => groups.saturating_mul(2),
            Self::FreeJournalled => groups.saturating_mul(2) + piece.len / REVOKES_PER_BLOCK + 2,
        }
    }

    /// Ensures credits for a step; false if the caller is to restart.
    pub(super) fn reserve<S: StoreMut>(self, io: &mut S, credits: u32) -> Result<bool> {
        if self == Self::Keep { Ok(true) } else { io.reserve(credits) }
    }

    /// Frees or keeps the clusters that the file leaves with `piece`.
    pub(super) fn discard<S: StoreMut>(
        self,
        io: &mut S,
        piece: MappedRun,
        left: &Left,
    ) -> Result<()> {
        if self == Self::Keep {
            return Ok(());
        }
        if left.clusters > 0 {
            io.free(left.start.0, left.clusters.saturating_mul(io.shape().ratio))?;
        }
        if self == Self::FreeJournalled {
            for nr in piece.pblk.0..piece.pblk.0 + u64::from(piece.len) {
                io.forget(BlockNr(nr), true)?;
            }
        }
        Ok(())
    }
}

/// The part of the map that lies in the inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Root {
    /// Inode number, for errors.
    pub ino: u64,
    /// `i_block`.
    pub bytes: [u8; 60],
    /// Space used, in 512-byte units.
    pub blocks: u64,
}

impl Root {
    /// An inode's.
    pub fn of(node: &Node) -> Self {
        Self { ino: u64::from(node.ino.0), bytes: node.raw.i_block, blocks: node.raw.blocks }
    }

    /// Counts new clusters of the file. (A tree block has one of its own.)
    pub fn count(&mut self, shape: &Shape, clusters: u32) {
        let sectors = u64::from(clusters).saturating_mul(shape.sectors());
        self.blocks = self.blocks.saturating_add(sectors);
    }

    /// Counts freed clusters. (A count that was too low ends at zero.)
    pub fn uncount(&mut self, shape: &Shape, clusters: u32) {
        let sectors = u64::from(clusters).saturating_mul(shape.sectors());
        self.blocks = self.blocks.saturating_sub(sectors);
    }

    /// A corruption in this inode.
    pub fn corrupt(&self, what: &'static str) -> FsError {
        self.blame(FsError::corrupt(what))
    }

    /// Adds the inode to a corruption.
    pub fn blame(&self, e: FsError) -> FsError {
        e.in_inode(self.ino)
    }
}
