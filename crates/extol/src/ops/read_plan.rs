//! Reads that somebody else does, past the locks: where the blocks of a part of a file lie, and
//! whether that held until they were read.
//!
//! The rule is that of [`read_many`](super::read_many): no lock is held while the device works, and
//! what was read counts only if nobody had the inode's lock for writing since the blocks were
//! looked up ([`Seen::still_holds`]).

use std::sync::Arc;

use extol_block::BlockDevice as _;
use extol_vfs::{ReadPiece, ReadPlan};

use super::files;
use crate::data;
use crate::inodes::Cell;
use crate::mounted::MountedFs;

/// More pieces than this are left to the ordinary way, which needs no list of them.
const MOST_PIECES: usize = 8;

/// A file as it was when blocks of it were looked up.
pub(super) struct Seen {
    cell: Arc<Cell>,
    version: u64,
    touch: bool,
}

impl Seen {
    /// Fills in what needs no device, and hands out the rest ([`data::read::plan`]), with the count
    /// of bytes there will be. `None`: it is to be read in the ordinary way, which also says what
    /// is wrong.
    pub(super) fn plan<'b>(
        fs: &MountedFs,
        ino: u32,
        offset: u64,
        buf: &'b mut [u8],
        missing: &mut dyn FnMut(u64, usize, &'b mut [u8]),
    ) -> Option<(Self, usize)> {
        let cell = fs.cell(ino).ok()?;
        let st = cell.try_read()?;
        files::check_regular(&st).ok()?;
        let count = data::read::plan(fs, &st, offset, buf, missing).ok()??;
        let (version, touch) = (cell.version(), files::wants_atime(fs, &st));
        drop(st);
        Some((Self { cell, version, touch }, count))
    }

    /// True if what was read is what the file has: nobody can have changed it meanwhile.
    pub(super) fn still_holds(&self, fs: &MountedFs) -> bool {
        let holds = self.cell.try_read().is_some_and(|_st| self.cell.version() == self.version);
        if holds && self.touch {
            files::touch_atime(fs, &self.cell);
        }
        holds
    }
}

/// See [`FileSystem::plan_read`](extol_vfs::FileSystem::plan_read).
pub(crate) fn plan_read(fs: &MountedFs, ino: u32, offset: u64, buf: &mut [u8]) -> Option<ReadPlan> {
    let from = fs.vol.dev.reads_from()?;
    let (room, size) = (buf.len(), fs.vol.dev.size());
    let mut pieces = Vec::new();
    let mut fits = true;
    let (seen, count) = Seen::plan(fs, ino, offset, buf, &mut |offset, at, part| {
        // The end of the file may be within a sector: that is read whole, if there is room.
        let len = part.len().next_multiple_of(from.sector);
        fits &= pieces.len() < MOST_PIECES
            && offset.is_multiple_of(from.sector as u64)
            && at.is_multiple_of(from.memory)
            && at.saturating_add(len) <= room
            && offset.checked_add(len as u64).is_some_and(|end| end <= size);
        if fits {
            pieces.push(ReadPiece { offset, at, len });
        }
    })?;
    fits.then(|| ReadPlan { count, pieces, token: Box::new(seen) })
}

/// See [`FileSystem::still_holds`](extol_vfs::FileSystem::still_holds).
pub(crate) fn still_holds(fs: &MountedFs, plan: &ReadPlan) -> bool {
    plan.token.downcast_ref::<Seen>().is_some_and(|seen| seen.still_holds(fs))
}
