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
//! | `lend` | a log for a volume that has none |
//! | `clear` | empties a run of blocks |
//! | `fixed` | bitmaps and inode tables of groups that stay, the map of the resize inode |
//! | `cut` | the transaction |
//! | `least` | how small the volume can be |
//! | `inodes`, `survey`, `holders` | gives inodes other numbers, and finds what leads to them |
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
mod holders;
mod inodes;
mod journal;
mod least;
mod lend;
mod map;
mod mover;
mod others;
mod survey;

pub(super) use clear::clear;
pub(crate) use inodes::move_inodes;
pub(crate) use journal::{map as journal_map, move_journal};
use journal::{shorten_journal, spare_blocks};
pub(crate) use lend::{
    clear_unused as clear_unused_journal, give as lend_log, has_unused as has_unused_journal,
    is_lent, size_with_room, swallow, tail, take_back,
};
pub use mover::Vacated;
pub(crate) use mover::vacate;
pub(super) use mover::{handle, settle};

use extol_block::BlockNr;
use extol_vfs::FsError;

use super::plan::smaller::{Smaller, smaller, worthwhile};
use super::reserved::Reserved;
use super::{ResizeError, ResizeProgress, refuse};
use crate::mounted::MountedFs;
pub(crate) use least::least;

type Result<T> = std::result::Result<T, ResizeError>;

/// How small the volume is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// So many blocks.
    Blocks(u64),
    /// As small as what is in use allows.
    Least,
}

/// What a run has reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reached {
    /// Blocks that the volume has, without a journal that is lent: that is still behind them. As
    /// many as before: it could not become smaller.
    pub blocks: u64,
    /// The end was cut off: the volume must be closed and opened again ([`finish`]). Then more may
    /// go: what the groups had in others that went is free.
    pub is_cut: bool,
}

/// Makes the volume smaller, as near to the aim as the room in front of the end allows. `None` if
/// `progress` has stopped it before the cut.
///
/// The caller keeps all other users of the volume out.
pub(crate) fn shrink(
    fs: &MountedFs,
    aim: Aim,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<Reached>> {
    fs.check_writable()?;
    let Some(_one) = fs.resizing.try_lock() else {
        return Err(ResizeError::Busy);
    };
    if !fs.vol.journal.has_log() {
        return refuse("the journal is not in use: a crash would damage the volume");
    }
    let lent = if lend::is_lent(fs)? { Some(Lent::of(fs)?) } else { None };
    let transaction = cut::most_credits(&fs.vol)?;
    let spare = match lent {
        Some(lent) => lent.blocks,
        None => spare_blocks(fs, transaction)?.into(),
    };
    let minimum = least(fs, spare)?;
    let wish = match aim {
        Aim::Least => minimum,
        Aim::Blocks(blocks) => worthwhile(&fs.vol.geo, blocks),
    };
    if wish < minimum {
        return Err(ResizeError::TooSmall { minimum });
    }
    if lent.is_none() && (aim == Aim::Least || wish < least(fs, 0)?) {
        // The minimum is the same whatever the way there, so the log is as short as may be.
        shorten_journal(fs, transaction)?;
    }
    let now = lent.map_or(fs.vol.geo.blocks(), |lent| lent.end);
    let with_room = |target| match lent {
        Some(lent) => lent.with_room(fs, target),
        None => target,
    };
    let mut target = match lent.filter(|_| wish > minimum) {
        Some(lent) => lent.with_room_below(fs, wish).max(minimum),
        None => wish,
    };
    target = with_room(target);
    let (mut step, mut first) = (0, None);
    let done = loop {
        if target >= now {
            let same = Reached { blocks: now, is_cut: false };
            break first.filter(|_| aim != Aim::Least).map_or(Ok(Some(same)), Err);
        }
        match shrink_to(fs, target, lent, progress) {
            Err(e @ ResizeError::NoRoom { .. }) => {
                first.get_or_insert(e);
                // What is left would have fitted into as many blocks more. Near the old size
                // half the rest is tried: a size that has room is not to be passed over.
                let left = fs.vol.alloc.used_behind(BlockNr(target))?;
                let left = left.saturating_sub(lent.map_or(0, |lent| lent.blocks));
                step = left.max(1).max(step * 2);
                let half = target.midpoint(now).max(target + 1);
                let next = worthwhile_above(fs, target.saturating_add(step).min(half));
                target = with_room(next);
            }
            done => break done,
        }
    };
    if !matches!(done, Ok(Some(Reached { is_cut: true, .. }))) {
        // (After an error nothing is written any more, or all is as before.)
        mover::settle(fs).and_then(|()| fs.vol.alloc.set_limit(None)).ok();
    }
    done
}

/// A log that is lent, and goes in the end.
#[derive(Clone, Copy, Debug)]
struct Lent {
    /// Blocks of the journal's inode.
    blocks: u64,
    /// Blocks that it takes to move.
    room: u64,
    /// Where the volume ends without it.
    end: u64,
    /// It is behind all else that is in use.
    is_last: bool,
}

impl Lent {
    fn of(fs: &MountedFs) -> Result<Self> {
        lend::keep_log(fs)?;
        let tail = lend::tail(fs)?;
        let end = tail.unwrap_or_else(|| fs.vol.geo.blocks());
        let blocks = lend::blocks(fs)?;
        // (A block map has more map blocks on the way.)
        let room = if lend::has_extents(&fs.vol.geo) { blocks } else { blocks + blocks / 16 + 16 };
        Ok(Self { blocks, room, end, is_last: tail.is_some() })
    }

    /// Where the block group ends that is the last one of a volume with so many blocks.
    fn group_end(fs: &MountedFs, target: u64) -> u64 {
        let geo = &fs.vol.geo;
        let last = geo.group_of_block(BlockNr(target.saturating_sub(1)));
        geo.group_first_block(last).0 + u64::from(geo.group_blocks(last))
    }

    /// True if the log is behind such an end, or has room there, in the same group.
    fn has_room(self, fs: &MountedFs, target: u64) -> bool {
        let end = Self::group_end(fs, target);
        self.is_last && end > self.end || end.saturating_sub(target) >= self.room
    }

    /// The first size from this one on for which the log has room behind it.
    fn with_room(self, fs: &MountedFs, target: u64) -> u64 {
        match self.has_room(fs, target) {
            true => target,
            false => worthwhile_above(fs, Self::group_end(fs, target) + 1),
        }
    }

    /// The last one up to this one, in the same group.
    fn with_room_below(self, fs: &MountedFs, target: u64) -> u64 {
        let most = Self::group_end(fs, target).saturating_sub(self.room);
        if self.has_room(fs, target) { target } else { most.min(target) }
    }
}

/// The first size from this one on with a last group that makes sense.
fn worthwhile_above(fs: &MountedFs, target: u64) -> u64 {
    let geo = &fs.vol.geo;
    (target..=geo.blocks()).find(|size| worthwhile(geo, *size) == *size).unwrap_or(geo.blocks())
}

fn shrink_to(
    fs: &MountedFs,
    target: u64,
    lent: Option<Lent>,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<Reached>> {
    let (sb, geo) = (fs.sb.read(Clone::clone), &fs.vol.geo);
    let end = lent.map_or(target, |_| Lent::group_end(fs, target));
    let is_cut = end < geo.blocks();
    let plan = match is_cut {
        true => smaller(&sb, geo, end)?,
        false => Smaller { sb, geo: geo.clone() },
    };
    let reserved = Reserved::read(&fs.vol)?;
    mover::settle(fs)?;
    fs.vol.alloc.set_limit(Some(BlockNr(target)))?;
    match emptied(fs, &plan, reserved, (target, lent), progress) {
        Ok(None) => Ok(None),
        Ok(Some(reserved)) => {
            if is_cut {
                cut::cut(fs, &plan, reserved)?;
            }
            Ok(Some(Reached { blocks: target, is_cut }))
        }
        Err(ResizeError::Fs(FsError::NoSpace)) => Err(ResizeError::NoRoom {
            what: "what files have behind it finds no room",
            blocks: target,
        }),
        Err(e) => Err(e),
    }
}

/// Moves everything in front of the target, but a log that is lent behind it. `None` if `progress`
/// has stopped it.
fn emptied(
    fs: &MountedFs,
    plan: &Smaller,
    reserved: Option<Reserved>,
    (target, lent): (u64, Option<Lent>),
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Option<Option<Reserved>>> {
    let limit = BlockNr(target);
    fixed::check_reserved_inodes(fs, limit)?;
    let all = fs.vol.alloc.used_behind(limit)?;
    if !progress(ResizeProgress { done: 0, all }) {
        return Ok(None);
    }
    let transaction = cut::expected_credits(fs, plan, reserved)?;
    if lent.is_none() {
        move_journal(fs, limit.0, transaction, &mut |done, all| {
            progress(ResizeProgress { done, all })
        })?;
    }
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
    if all_moved && lent.is_some() {
        lend::move_behind(fs, target, plan.geo.blocks(), transaction)?;
    }
    Ok(all_moved.then_some(reserved))
}

/// Brings the copies of superblock and descriptors up to date, after the volume was opened with its
/// new size.
pub(crate) fn finish(fs: &MountedFs) -> Result<()> {
    super::backups::update(fs, 0)?;
    fs.vol.journal.checkpoint_all(&[]).map_err(crate::error::journal)?;
    Ok(())
}
