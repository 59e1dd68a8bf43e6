//! Moves a file into as few runs as there can be.
//!
//! ```text
//!   count extents ─► take runs that hold all of it ─► fewer? ─► move piece by piece ─► count
//!                                                       └─no─► give them back
//! ```
//!
//! A run does not leave its block group. So a large file gets pieces of half a group, each of which
//! begins where the one before ends if that is free. Unless every piece is found whole, and the
//! file has fewer extents then, nothing is moved: a file is not made worse.
//!
//! The inode is locked for one piece at a time, and its map is looked at anew for each: the file
//! may be read and changed meanwhile. What was taken and is not needed is given back.

use extol_ondisk::InodeFlags;
use extol_vfs::{Defragmented, Fragments, FsError, Outcome, Result};

use super::relocate::{relocate, stretch};
use crate::alloc::Run;
use crate::data::flush;
use crate::inodes::InodeState;
use crate::map::{self, MappedRun};
use crate::mounted::MountedFs;
use crate::ops::files;

/// Clusters beside the data that moving it may take: tree blocks.
const BESIDE: u64 = 8;

/// Counts the extents of a regular file. What is not written back yet does not count.
pub(crate) fn fragments(fs: &MountedFs, ino: u32) -> Result<Fragments> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    count(fs, &st)
}

fn count(fs: &MountedFs, st: &InodeState) -> Result<Fragments> {
    files::check_regular(st)?;
    let mut found = Fragments::default();
    if !st.node.raw.maps_blocks() {
        return Ok(found);
    }
    let most = u64::from(piece(fs));
    let mut last: Option<MappedRun> = None;
    // Blocks of the part without holes.
    let mut part = 0;
    map::iterate(&fs.vol, &st.node, 0, u32::MAX, &mut |run| {
        let follows = last.filter(|last| last.end() == u64::from(run.lblk));
        let joins = follows.filter(|last| last.pblk.plus(u64::from(last.len)) == run.pblk);
        found.extents += u64::from(joins.is_none());
        if follows.is_none() {
            found.best += u64::div_ceil(part, most);
            part = 0;
        }
        part += u64::from(run.len);
        found.blocks += u64::from(run.len);
        last = Some(run);
        true
    })?;
    found.best += part.div_ceil(most);
    found.best = found.best.min(found.extents);
    Ok(found)
}

/// Clusters in which the file has blocks.
fn clusters(fs: &MountedFs, st: &InodeState) -> Result<u64> {
    let ratio = u64::from(fs.vol.geo.cluster_ratio);
    // The first cluster that was not counted.
    let (mut next, mut clusters) = (0, 0);
    if st.node.raw.maps_blocks() {
        map::iterate(&fs.vol, &st.node, 0, u32::MAX, &mut |run| {
            let end = run.end().div_ceil(ratio);
            clusters += end.saturating_sub(next.max(u64::from(run.lblk) / ratio));
            next = end;
            true
        })?;
    }
    Ok(clusters)
}

/// Blocks of the pieces of a large file, of whole clusters.
fn piece(fs: &MountedFs) -> u32 {
    (fs.vol.geo.clusters_per_group / 2).max(1) * fs.vol.geo.cluster_ratio
}

/// Moves a regular file into fewer runs, if the free blocks have room for that.
pub(crate) fn defragment(fs: &MountedFs, ino: u32) -> Result<Defragmented> {
    fs.check_writable()?;
    let cell = fs.cell(ino)?;
    let (before, clusters, immutable) = {
        let mut st = cell.write_for_flush()?;
        files::check_regular(&st)?;
        flush::flush(fs, &mut st)?;
        let immutable = st.node.raw.flags.contains(InodeFlags::IMMUTABLE);
        (count(fs, &st)?, clusters(fs, &st)?, immutable)
    };
    let left = |outcome| Ok(Defragmented { before, after: before, outcome });
    if before.extents <= before.best {
        return left(Outcome::Whole);
    }
    if immutable {
        return left(Outcome::Immutable);
    }
    let Some(mut room) = Room::take(fs, ino, before, clusters)? else {
        return left(Outcome::NoRoom);
    };
    let mut at = Some(0);
    while let Some(from) = at {
        let mut st = cell.write_for_flush()?;
        flush::flush(fs, &mut st)?;
        st.window.empty();
        at = room.move_next(&mut st, from)?;
    }
    drop(room);
    let after = fragments(fs, ino)?;
    Ok(Defragmented { before, after, outcome: Outcome::Moved })
}

/// Runs that were taken and reserved for a file.
struct Room<'a> {
    fs: &'a MountedFs,
    /// Of whole clusters, in order of the file; the first one is next.
    runs: std::collections::VecDeque<Run>,
    /// In clusters.
    reserved: u64,
}

impl<'a> Room<'a> {
    /// Room for the whole file, in runs that make it better. `None`: there is none.
    fn take(fs: &'a MountedFs, ino: u32, before: Fragments, clusters: u64) -> Result<Option<Self>> {
        let reserved = clusters.saturating_add(BESIDE);
        match fs.reserve(reserved) {
            Err(FsError::NoSpace) => return Ok(None),
            reserved => reserved?,
        }
        let geo = &fs.vol.geo;
        let mut room = Self { fs, runs: std::collections::VecDeque::new(), reserved };
        let mut goal = geo.cluster_end(fs.vol.alloc.inode_goal(extol_ondisk::InodeNr(ino)));
        let mut left = geo.cluster_blocks(clusters);
        let mut runs = 0;
        while left > 0 {
            let want = u32::try_from(left).unwrap_or(u32::MAX).min(piece(fs));
            let run = match fs.vol.alloc.take(goal, want, want) {
                Err(FsError::NoSpace) => return Ok(None),
                run => run?,
            };
            runs += u64::from(room.runs.back().is_none_or(|last| last.end() != run.start));
            room.runs.push_back(run);
            left -= u64::from(run.len);
            goal = run.end();
        }
        // Each hole divides a run, each end of a run divides a part between holes.
        let parts = before.best.saturating_sub(before.blocks / u64::from(piece(fs)));
        let after = runs - 1 + parts.max(1);
        Ok((after < before.extents).then_some(room))
    }

    /// Moves the first blocks at or behind `at`; gives where the next step begins. `None`: this was
    /// the last one.
    fn move_next(&mut self, st: &mut InodeState, at: u32) -> Result<Option<u32>> {
        if !st.node.raw.maps_blocks() {
            return Ok(None);
        }
        let Some(run) = map::next_mapped(&self.fs.vol, &st.node, at, u32::MAX)? else {
            return Ok(None);
        };
        let Some(to) = self.runs.pop_front() else { return Ok(None) };
        let from = match stretch(self.fs, st, run) {
            Ok(from) => from.cut(to.len),
            Err(e) => {
                self.runs.push_front(to);
                return Err(e);
            }
        };
        let (to, rest) = to.split(from.len);
        if let Some(rest) = rest {
            self.runs.push_front(rest);
        }
        let (moved, used) = relocate(self.fs, st, &from, to, true);
        if used {
            let clusters = self.fs.vol.geo.clusters(to.len.into());
            self.reserved = self.reserved.saturating_sub(clusters);
        }
        moved?;
        Ok(Some(from.end()))
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        for run in self.runs.drain(..) {
            self.fs.vol.alloc.give_back(run);
        }
        self.fs.vol.alloc.unreserve(self.reserved);
    }
}
