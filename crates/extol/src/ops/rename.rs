//! Rename: replace, NOREPLACE, EXCHANGE, WHITEOUT.
//!
//! Locks. A rename between two directories, or of a directory, takes the volume's rename lock
//! first: only such renames move directories, so the tree's shape stands still while we look who is
//! whose ancestor. Then the two directories, the ancestor first (or the smaller inode number if
//! neither is), then the two inodes that the names stand for, by number. A directory can not be
//! moved below itself, and an ancestor of the source can not be replaced: both are found before
//! anything is locked that could close a circle.

use std::sync::Arc;

use crate::fast_commit::{self, Delta, Reason};
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_vfs::{Creds, FsError, NewNode, Rdev, RenameFlags, Result};

use super::create::{self, Promise, check_dir, drop_dir_link};
use super::names::{check_entry, check_removable, drop_link, entry_kind};
use super::{check_name, delete, with_space};
use crate::dir;
use crate::error;
use crate::inline;
use crate::inodes::{Cell, InodeState, WriteGuard};
use crate::mounted::MountedFs;
use crate::orphan;

/// Blocks that two new entries may add.
const BLOCKS: u64 = 20;

/// Deeper than any path; a walk that is longer runs in a circle.
const MAX_DEPTH: u32 = 65_536;

/// Renames.
pub(crate) fn rename(
    fs: &MountedFs,
    dir: u32,
    name: &[u8],
    new_dir: u32,
    new_name: &[u8],
    flags: RenameFlags,
) -> Result<()> {
    for n in [name, new_name] {
        if matches!(n, b"." | b"..") {
            return Err(FsError::Busy);
        }
        check_name(n)?;
    }
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if exchange && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT) {
        return Err(FsError::Invalid("EXCHANGE with NOREPLACE or WHITEOUT"));
    }
    fs.check_writable()?;
    let mut still = (dir != new_dir).then(|| fs.rename.lock());
    let outcome = loop {
        let r = Rename { fs, dir, name, new_dir, new_name, flags, still: still.is_some() };
        match with_space(fs, || r.run())? {
            Outcome::HoldStill => still = Some(fs.rename.lock()),
            Outcome::Done(gone) => break gone,
        }
    };
    drop(still);
    if let Some(gone) = outcome {
        delete::delete_if_unused(fs, &gone);
    }
    Ok(())
}

enum Outcome {
    /// Renamed; what had the new name is to be deleted, if nobody knows it.
    Done(Option<Arc<Cell>>),
    /// Nothing done yet: the rename lock is needed.
    HoldStill,
}

struct Rename<'a> {
    fs: &'a MountedFs,
    dir: u32,
    name: &'a [u8],
    new_dir: u32,
    new_name: &'a [u8],
    flags: RenameFlags,
    /// The rename lock is held.
    still: bool,
}

/// The two directories, locked; the second is `None` if they are the same.
struct Dirs<'a> {
    from: WriteGuard<'a>,
    to: Option<WriteGuard<'a>>,
}

impl Dirs<'_> {
    fn to(&mut self) -> &mut InodeState {
        match &mut self.to {
            Some(to) => to,
            None => &mut self.from,
        }
    }

    fn to_ref(&self) -> &InodeState {
        match &self.to {
            Some(to) => to,
            None => &self.from,
        }
    }
}

impl Rename<'_> {
    /// Directories from `ino` up to the root, itself included. The rename lock is held.
    fn ancestors(&self, ino: u32) -> Result<Vec<u32>> {
        let mut chain = vec![ino];
        let mut at = ino;
        while at != InodeNr::ROOT.0 {
            let cell = self.fs.cell(at)?;
            let st = cell.read()?;
            if !st.is_dir() {
                return Err(FsError::NotADirectory);
            }
            if st.node.raw.links == 0 {
                // Removed, but still referenced.
                return Err(FsError::NotFound);
            }
            let Some((parent, _)) = dir::lookup(&self.fs.vol, &st.node, b"..")? else {
                return Err(FsError::corrupt("directory without '..'").in_inode(at.into()));
            };
            at = parent.0;
            chain.push(at);
            if chain.len() > MAX_DEPTH as usize {
                return Err(FsError::corrupt("directories form a circle").in_inode(ino.into()));
            }
        }
        Ok(chain)
    }

    fn run(&self) -> Result<Outcome> {
        let fs = self.fs;
        let from_cell = fs.cell(self.dir)?;
        let to_cell = fs.cell(self.new_dir)?;
        let mut from_above = Vec::new();
        let mut to_above = Vec::new();
        let mut dirs = if self.dir == self.new_dir {
            Dirs { from: from_cell.write()?, to: None }
        } else {
            from_above = self.ancestors(self.dir)?;
            to_above = self.ancestors(self.new_dir)?;
            let from_first = if to_above.contains(&self.dir) {
                true
            } else if from_above.contains(&self.new_dir) {
                false
            } else {
                self.dir < self.new_dir
            };
            if from_first {
                let from = from_cell.write()?;
                Dirs { from, to: Some(to_cell.write()?) }
            } else {
                let to = to_cell.write()?;
                Dirs { from: from_cell.write()?, to: Some(to) }
            }
        };
        check_dir(&dirs.from)?;
        check_dir(dirs.to_ref())?;
        let known = to_cell.absent(self.new_name);
        let from_spot = dir::seek(&fs.vol, &dirs.from.node, self.name)?;
        let (source, _) = from_spot.entry.ok_or(FsError::NotFound)?;
        let to_spot = dir::seek_again(&fs.vol, &dirs.to_ref().node, self.new_name, known)?;
        let target = to_spot.entry.map(|(ino, _)| ino);
        let exchange = self.flags.contains(RenameFlags::EXCHANGE);
        if to_above.contains(&source.0) || source.0 == self.new_dir {
            return Err(FsError::Invalid("a directory cannot be moved into itself"));
        }
        match target {
            Some(_) if self.flags.contains(RenameFlags::NOREPLACE) => return Err(FsError::Exists),
            Some(t) if from_above.contains(&t.0) || t.0 == self.dir => {
                return Err(if exchange {
                    FsError::Invalid("a directory cannot be moved into itself")
                } else {
                    FsError::NotEmpty
                });
            }
            None if exchange => return Err(FsError::NotFound),
            Some(t) if t == source => return Ok(Outcome::Done(None)),
            _ => {}
        }
        // The directories are locked already: waiting for them once more would last for ever.
        for ino in [Some(source), target].into_iter().flatten() {
            check_entry(fs, InodeNr(self.dir), ino)?;
            check_entry(fs, InodeNr(self.new_dir), ino)?;
        }
        let source_cell = fs.cell(source.0)?;
        let target_cell = target.map(|t| fs.cell(t.0)).transpose()?;
        // The kind of an inode that has a name does not change. Directories are locked below
        // directories by one thread at a time: in a damaged volume each may be listed in the other.
        let is_dir = source_cell.is_dir();
        let target_is_dir = target_cell.as_ref().map(|t| t.is_dir());
        if (is_dir || target_is_dir == Some(true)) && !self.still {
            return Ok(Outcome::HoldStill);
        }
        let target_first = target_is_dir
            .is_some_and(|target_is_dir| (!target_is_dir, target) < (!is_dir, Some(source)));
        let (mut source_st, target_st) = match &target_cell {
            Some(t) if target_first => {
                let t = t.write()?;
                (source_cell.write()?, Some(t))
            }
            Some(t) => {
                let s = source_cell.write()?;
                (s, Some(t.write()?))
            }
            None => (source_cell.write()?, None),
        };
        check_removable(&dirs.from, &source_st)?;
        self.check_project(dirs.to_ref(), &source_st)?;
        if exchange {
            let mut target_st = target_st.ok_or(FsError::NotFound)?;
            check_removable(dirs.to_ref(), &target_st)?;
            self.check_project(&dirs.from, &target_st)?;
            self.exchange(&mut dirs, &mut source_st, &mut target_st)?;
            return Ok(Outcome::Done(None));
        }
        let mut target_st = target_st;
        if let Some(t) = &target_st {
            check_removable(dirs.to_ref(), t)?;
            match (source_st.is_dir(), t.is_dir()) {
                (true, false) => return Err(FsError::NotADirectory),
                (false, true) => return Err(FsError::IsADirectory),
                (true, true) if !dir::is_empty(&fs.vol, &t.node)? => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        self.replace(&mut dirs, (&from_spot, &to_spot), &mut source_st, target_st.as_deref_mut())?;
        let gone = target_st.as_ref().is_some_and(|t| t.node.raw.links == 0);
        drop(target_st);
        Ok(Outcome::Done(target_cell.filter(|_| gone)))
    }

    fn check_project(&self, to: &InodeState, st: &InodeState) -> Result<()> {
        let inherits = to.node.raw.flags.contains(InodeFlags::PROJINHERIT);
        if inherits && to.node.raw.projid != st.node.raw.projid {
            return Err(FsError::CrossDevice);
        }
        Ok(())
    }

    fn replace(
        &self,
        dirs: &mut Dirs<'_>,
        (from, to): (&dir::Spot, &dir::Spot),
        source: &mut InodeState,
        target: Option<&mut InodeState>,
    ) -> Result<()> {
        let fs = self.fs;
        let vol = &fs.vol;
        let kind = entry_kind(source)?;
        let is_dir = kind == FileType::Directory;
        let moves = dirs.to.is_some();
        let grows = is_dir && moves && target.is_none();
        if grows {
            create::add_dir_link(fs, &mut dirs.to().node.raw.clone())?;
        }
        let whiteout = if self.flags.contains(RenameFlags::WHITEOUT) { 2 } else { 1 };
        let promise = Promise::make(fs, BLOCKS)?;
        let credits = whiteout * (dir::credits_add(vol, &dirs.to_ref().node) + 3)
            + 2 * dir::credits_remove()
            + orphan::CREDITS
            + inline::CREDITS
            + 5;
        let end = target.as_ref().map(|target| delete::End::of(fs, target));
        let credits = credits + end.map_or(0, delete::End::credits);
        let mut h = fs.start(credits)?;
        let mut white = None;
        if self.flags.contains(RenameFlags::WHITEOUT) {
            let node = NewNode::CharDevice(Rdev::default());
            white = Some(create::make(fs, &mut h, &dirs.from, &node, 0, 0, Creds::default())?);
        }
        let named = match &target {
            Some(_) => {
                dir::replace(vol, &mut h, &mut dirs.to().node, self.new_name, source.node.ino, kind)
                    .map(|()| true)
            }
            None => {
                let node = &mut dirs.to().node;
                dir::add_at(vol, &mut h, node, self.new_name, to, source.node.ino, kind)
            }
        };
        let in_place = match named {
            Ok(in_place) => in_place,
            Err(e) => {
                if let Some(mut white) = white {
                    create::unmake(fs, &mut h, &mut white);
                }
                dirs.to().store(fs, &mut h, true)?;
                if !matches!(e, FsError::Io(_)) {
                    // (What could not be read could not be undone either.)
                    let _ = h.stop();
                }
                return Err(e);
            }
        };
        match &mut white {
            Some(white) => {
                let ino = white.node.ino;
                dir::replace(
                    vol,
                    &mut h,
                    &mut dirs.from.node,
                    self.name,
                    ino,
                    FileType::CharDevice,
                )?;
                white.store(fs, &mut h, true)?;
            }
            // (Where the new name went may have been where the old one is.)
            None if moves || in_place => {
                dir::remove_at(vol, &mut h, &mut dirs.from.node, self.name, from)?;
            }
            None => {
                dir::remove(vol, &mut h, &mut dirs.from.node, self.name)?;
            }
        }
        if is_dir {
            // The path of everything below it is another now.
            fast_commit::note(&mut h, Delta::AllUnfit { reason: Reason::DirRename });
            fs.dirs_moved.note(h.tid());
        }
        if is_dir && moves {
            dir::set_dotdot(vol, &mut h, &mut source.node, dirs.to_ref().node.ino)?;
            drop_dir_link(&mut dirs.from.node.raw);
            if target.is_none() {
                create::add_dir_link(fs, &mut dirs.to().node.raw)?;
            }
        } else if is_dir && target.is_some() {
            // One subdirectory took another's name.
            drop_dir_link(&mut dirs.from.node.raw);
        }
        let now = fs.now();
        source.node.raw.ctime = now;
        source.store(fs, &mut h, true)?;
        if let (Some(target), Some(end)) = (target, end) {
            drop_link(fs, &mut h, target, end)?;
        }
        self.store_dirs(dirs, &mut h)?;
        let stopped = h.stop().map_err(error::journal);
        drop(promise);
        stopped
    }

    fn store_dirs(&self, dirs: &mut Dirs<'_>, h: &mut extol_jbd2::Handle) -> Result<()> {
        let now = self.fs.now();
        for st in [Some(&mut dirs.from), dirs.to.as_mut()].into_iter().flatten() {
            st.node.raw.mtime = now;
            st.node.raw.ctime = now;
            st.store(self.fs, h, true)?;
        }
        Ok(())
    }

    fn exchange(&self, dirs: &mut Dirs<'_>, a: &mut InodeState, b: &mut InodeState) -> Result<()> {
        let fs = self.fs;
        let vol = &fs.vol;
        let (a_kind, b_kind) = (entry_kind(a)?, entry_kind(b)?);
        let moves = dirs.to.is_some();
        let (a_dir, b_dir) = (a_kind == FileType::Directory, b_kind == FileType::Directory);
        if moves && a_dir && !b_dir {
            create::add_dir_link(fs, &mut dirs.to().node.raw.clone())?;
        }
        if moves && b_dir && !a_dir {
            create::add_dir_link(fs, &mut dirs.from.node.raw.clone())?;
        }
        let mut h = fs.start(4 * dir::credits_remove() + 6)?;
        dir::replace(vol, &mut h, &mut dirs.to().node, self.new_name, a.node.ino, a_kind)?;
        dir::replace(vol, &mut h, &mut dirs.from.node, self.name, b.node.ino, b_kind)?;
        if a_dir || b_dir {
            fast_commit::note(&mut h, Delta::AllUnfit { reason: Reason::CrossRename });
            fs.dirs_moved.note(h.tid());
        }
        if moves {
            if a_dir {
                dir::set_dotdot(vol, &mut h, &mut a.node, dirs.to_ref().node.ino)?;
            }
            if b_dir {
                dir::set_dotdot(vol, &mut h, &mut b.node, dirs.from.node.ino)?;
            }
            if a_dir && !b_dir {
                drop_dir_link(&mut dirs.from.node.raw);
                create::add_dir_link(fs, &mut dirs.to().node.raw)?;
            }
            if b_dir && !a_dir {
                drop_dir_link(&mut dirs.to().node.raw);
                create::add_dir_link(fs, &mut dirs.from.node.raw)?;
            }
        }
        let now = fs.now();
        for st in [a, b] {
            st.node.raw.ctime = now;
            st.store(fs, &mut h, true)?;
        }
        self.store_dirs(dirs, &mut h)?;
        h.stop().map_err(error::journal)
    }
}
