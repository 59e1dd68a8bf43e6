//! The volume becomes smaller: all that lies behind the new end moves in front of it, then the end
//! is cut off by one transaction.
//!
//! ```text
//!   plan ─► limit ─► inode tables, bitmaps, resize inode ─► files ─► nothing is left? ─► log empty
//!        ─► the cut: superblock, resize inode, bitmaps of groups that stay ─► log empty ─► closed
//!   opened again with the new size ─► copies of superblock and descriptors ─► device cut
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `mover` | finds what files have behind the limit, inode by inode, and moves it |
//! | `map` | what an inode's map has there: data, tree blocks |
//! | `others` | attribute blocks, the orphan file, the MMP block |
//! | `journal` | moves the log |
//! | `clear` | empties a run of blocks |
//! | `fixed` | bitmaps and inode tables of groups that stay, the map of the resize inode |
//! | `cut` | the transaction |
//! | `least` | how small the volume can be |
//! | `inodes`, `survey` | gives inodes other numbers, and finds what leads to them |
//!
//! The limit itself is the allocator's (`alloc/limit.rs`). Until the cut the volume has its old
//! size, and a run that ends early leaves a sound volume whose end is emptied in part. All
//! descriptors that the cut leaves are in place before it: next to the new superblock there are
//! descriptors that name only what is there, whether the log was replayed or not.
//!
//! Inode tables of groups that go may lie in groups that stay, and need their room until the cut.
//! So the way to a small size may take several cuts.
//!
//! A dry run does the same in memory, but for the data of files.

mod clear;
mod cut;
mod fixed;
mod inodes;
mod journal;
mod least;
mod map;
mod mover;
mod others;
mod survey;

pub(super) use clear::clear;
pub(crate) use inodes::move_inodes;
use journal::shorten_journal;
pub(crate) use journal::{map as journal_map, move_journal};
pub use mover::Vacated;
pub(super) use mover::settle;
pub(crate) use mover::vacate;

use extol_block::BlockNr;
use extol_vfs::FsError;

use super::plan::smaller::{Smaller, smaller, worthwhile};
use super::reserved::Reserved;
use super::{ResizeError, ResizeProgress, refuse};
use crate::mounted::MountedFs;
use least::least;

type Result<T> = std::result::Result<T, ResizeError>;

/// How small the volume is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// So many blocks.
    Blocks(u64),
    /// As small as what is in use allows.
    Least,
}

/// Makes the volume smaller, as near to the aim as the room in front of the end allows. Gives how
/// many blocks it has then (as many as before: it could not be cut); `None` if `progress` has
/// stopped it before the cut. After a cut the volume must be closed and opened again ([`finish`]);
/// then more may go: what the groups had in others that went is free.
///
/// The caller keeps all other users of the volume out.
pub(crate) fn shrink(
    fs: &MountedFs,
    aim: Aim,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<u64>> {
    fs.check_writable()?;
    let Some(_one) = fs.resizing.try_lock() else {
        return Err(ResizeError::Busy);
    };
    if !fs.vol.journal.has_log() {
        return refuse(
            "a volume without a journal cannot be made smaller: a crash would damage it; give it \
             one first (extol tune -j)",
        );
    }
    if aim == Aim::Least {
        // The number is the same whatever the way there, so the log is as short as may be.
        shorten_journal(fs, cut::most_credits(fs)?)?;
    }
    let minimum = least(fs)?;
    let mut target = match aim {
        Aim::Least => minimum,
        Aim::Blocks(blocks) => worthwhile(&fs.vol.geo, blocks),
    };
    if target < minimum {
        return Err(ResizeError::TooSmall { minimum });
    }
    let (now, mut step, mut first) = (fs.vol.geo.blocks(), 0, None);
    let done = loop {
        if target >= now {
            break first.filter(|_| aim != Aim::Least).map_or(Ok(Some(now)), Err);
        }
        match shrink_to(fs, target, progress) {
            Err(e @ ResizeError::NoRoom { .. }) => {
                first.get_or_insert(e);
                // What is left would have fitted into as many blocks more. Near the old size
                // half the rest is tried: a size that has room is not to be passed over.
                step = fs.vol.alloc.used_behind(BlockNr(target))?.max(1).max(step * 2);
                let half = target.midpoint(now).max(target + 1);
                target = worthwhile_above(fs, target.saturating_add(step).min(half));
            }
            done => break done,
        }
    };
    if !matches!(done, Ok(Some(blocks)) if blocks < fs.vol.geo.blocks()) {
        // (After an error nothing is written any more, or all is as before.)
        mover::settle(fs).and_then(|()| fs.vol.alloc.set_limit(None)).ok();
    }
    done
}

/// The first size from this one on with a last group that makes sense.
fn worthwhile_above(fs: &MountedFs, target: u64) -> u64 {
    let geo = &fs.vol.geo;
    (target..=geo.blocks()).find(|size| worthwhile(geo, *size) == *size).unwrap_or(geo.blocks())
}

fn shrink_to(
    fs: &MountedFs,
    target: u64,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<u64>> {
    let plan = smaller(&fs.sb.read(Clone::clone), &fs.vol.geo, target)?;
    let reserved = Reserved::read(&fs.vol)?;
    mover::settle(fs)?;
    fs.vol.alloc.set_limit(Some(BlockNr(target)))?;
    match emptied(fs, &plan, reserved, progress) {
        Ok(None) => Ok(None),
        Ok(Some(reserved)) => cut::cut(fs, &plan, reserved).map(|()| Some(target)),
        Err(ResizeError::Fs(FsError::NoSpace)) => Err(ResizeError::NoRoom {
            what: "what files have behind it finds no room",
            blocks: target,
        }),
        Err(e) => Err(e),
    }
}

/// Moves everything in front of the limit. `None` if `progress` has stopped it.
fn emptied(
    fs: &MountedFs,
    plan: &Smaller,
    reserved: Option<Reserved>,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<Option<Reserved>>> {
    let limit = BlockNr(plan.geo.blocks());
    fixed::check_reserved_inodes(fs, limit)?;
    let all = fs.vol.alloc.used_behind(limit)?;
    if !progress(ResizeProgress { done: 0, all }) {
        return Ok(None);
    }
    let transaction = cut::expected_credits(fs, plan, reserved)?;
    move_journal(fs, limit.0, transaction, &mut |done, all| {
        progress(ResizeProgress { done, all })
    })?;
    let mut goes_on = true;
    move_inodes(fs, plan.geo.inodes().into(), &mut |done, all| {
        goes_on = progress(ResizeProgress { done, all });
        goes_on
    })?;
    if !goes_on {
        return Ok(None);
    }
    fixed::check_inodes_moved(fs, plan.geo.groups())?;
    let mut told = 0;
    let mut tell = |moved: u64| {
        told = moved.max(told);
        progress(ResizeProgress { done: told, all: all.max(told) })
    };
    fixed::move_tables(fs, limit, plan.geo.groups())?;
    let reserved = match reserved {
        Some(reserved) if reserved.root() >= limit => fixed::move_root(fs, reserved)?,
        reserved => reserved,
    };
    let (_, all_moved) = mover::empty(fs, limit, &mut tell)?;
    Ok(all_moved.then_some(reserved))
}

/// Brings the copies of superblock and descriptors up to date, after the volume was opened with its
/// new size.
pub(crate) fn finish(fs: &MountedFs) -> Result<()> {
    super::backups::update(fs, 0)?;
    fs.vol.journal.checkpoint_all(&[]).map_err(crate::error::journal)?;
    Ok(())
}
