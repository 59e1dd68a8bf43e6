//! Empties a run of blocks: what files have there moves to other places.
//!
//! ```text
//!   its free blocks are taken ─► for each inode in use: data in the run moves ─► log empty
//!       ─► those are free now, and taken; again, until all are
//! ```
//!
//! Each step leaves a sound volume; a run that cannot be emptied is given back. Only the blocks
//! that files map move: metadata in the run stays, and so the run is not to be had.

use extol_block::BlockNr;
use extol_ondisk::InodeNr;
use extol_vfs::{FsError, Result};

use super::map::take;
use super::mover::settle;
use crate::alloc::Run;
use crate::inodes::InodeState;
use crate::map::{self, MappedRun};
use crate::mounted::MountedFs;
use crate::ops::values;
use crate::resize::relocate::{relocate, stretch};

/// A block that is freed may be handed out before the next round takes it: then it is moved again.
const ROUNDS: u32 = 4;

/// Takes all blocks of the run, and with clusters all that it touches, in memory: they are free on
/// disk, and the log is empty. `None`: they are not to be had, and none is taken.
///
/// The caller keeps all other users of the volume out.
pub(in crate::resize) fn clear(fs: &MountedFs, run: Run) -> Result<Option<Vec<Run>>> {
    settle(fs)?;
    let run = run.whole_clusters(&fs.vol.geo);
    let mut taken = fs.vol.alloc.claim_free(run)?;
    let mut done = Ok(());
    for round in 0..=ROUNDS {
        if taken.iter().map(|run| run.len).sum::<u32>() == run.len {
            return Ok(Some(taken));
        }
        if round == ROUNDS || done.is_err() {
            break;
        }
        done = move_files(fs, run).and_then(|()| settle(fs));
        if done.is_ok() {
            taken.extend(fs.vol.alloc.claim_free(run)?);
        }
    }
    taken.iter().for_each(|run| fs.vol.alloc.give_back(*run));
    match done {
        Ok(()) | Err(FsError::NoSpace) => Ok(None),
        Err(e) => Err(e),
    }
}

fn move_files(fs: &MountedFs, run: Run) -> Result<()> {
    for ino in (1..=fs.vol.geo.inodes()).map(InodeNr) {
        if !fs.vol.alloc.is_inode_used(ino)? || fs.is_internal(ino.0) {
            continue;
        }
        let moved = match values::state_of_value(fs, ino)? {
            Some(mut value) => move_data(fs, &mut value, run),
            None => fs.cell(ino.0).and_then(|cell| {
                let mut st = cell.write()?;
                move_data(fs, &mut st, run)
            }),
        };
        let moved = match moved {
            Err(FsError::Stale) => Ok(()),
            moved => moved,
        };
        moved.map_err(|e| e.in_inode(u64::from(ino.0)))?;
    }
    Ok(())
}

fn move_data(fs: &MountedFs, st: &mut InodeState, run: Run) -> Result<()> {
    st.window.empty();
    if !st.node.raw.maps_blocks() {
        return Ok(());
    }
    let mut at = 0;
    while let Some(mapped) = map::next_mapped(&fs.vol, &st.node, at, u32::MAX)? {
        let Some(part) = inside(mapped, run) else {
            at = mapped.lblk.saturating_add(mapped.len);
            continue;
        };
        let all = stretch(fs, st, part)?;
        let goal = fs.vol.geo.in_place_of(fs.vol.alloc.inode_goal(st.node.ino), all.start);
        let to = take(fs, goal, all.len, 1)?;
        let from = all.cut(to.len);
        relocate(fs, st, &from, to, false).0?;
        at = from.end();
    }
    Ok(())
}

/// The part of a mapped run that lies in the other one.
fn inside(mapped: MappedRun, run: Run) -> Option<MappedRun> {
    let from = mapped.pblk.0.max(run.start.0);
    let to = (mapped.pblk.0 + u64::from(mapped.len)).min(run.end().0);
    let len = u32::try_from(to.checked_sub(from)?).ok().filter(|len| *len > 0)?;
    let before = u32::try_from(from - mapped.pblk.0).ok()?;
    Some(MappedRun { lblk: mapped.lblk.saturating_add(before), pblk: BlockNr(from), len, ..mapped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_in_a_run() {
        let mapped =
            |lblk, pblk, len| MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten: true };
        let run = Run { start: BlockNr(100), len: 10 };
        assert_eq!(inside(mapped(7, 90, 10), run), None);
        assert_eq!(inside(mapped(7, 110, 10), run), None);
        assert_eq!(inside(mapped(7, 90, 11), run), Some(mapped(17, 100, 1)));
        assert_eq!(inside(mapped(7, 90, 90), run), Some(mapped(17, 100, 10)));
        assert_eq!(inside(mapped(7, 105, 90), run), Some(mapped(7, 105, 5)));
        assert_eq!(inside(mapped(7, 102, 3), run), Some(mapped(7, 102, 3)));
    }
}
