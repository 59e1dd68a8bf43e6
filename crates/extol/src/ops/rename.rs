//! Rename: replace, NOREPLACE, EXCHANGE, WHITEOUT.
//!
//! Locking: a rename between two directories, or of a directory, takes the volume's rename lock
//! first. Only such renames move directories, so the tree keeps its shape while ancestors are
//! compared. Then come the two directories, the ancestor first (or the smaller inode number if
//! neither is one), then the two inodes that the names lead to, by number. A directory cannot be
//! moved below itself, and an ancestor of the source cannot be replaced: both are checked before
//! anything is locked that could close a circle.

use std::sync::Arc;

use extol_jbd2::Handle;
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_vfs::{Creds, FsError, NewNode, Rdev, RenameFlags, Result};

use super::create::{self, check_dir, drop_dir_link};
use super::names::{check_entry, check_removable, drop_link, entry_kind};
use super::reserve::Reservation;
use super::{check_name, delete, with_space};
use crate::dir;
use crate::encrypted;
use crate::error;
use crate::fast_commit::{self, Delta, Reason};
use crate::inodes::{Cell, InodeState, WriteGuard};
use crate::mounted::MountedFs;
use crate::orphan;

/// Blocks that two new entries may add.
const BLOCKS: u64 = 20;

/// Deeper than any path: a longer chain of parents is a circle.
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
    let mut lock = (dir != new_dir).then(|| fs.rename.lock());
    let outcome = loop {
        let has_lock = lock.is_some();
        let r = Rename { fs, dir, name, new_dir, new_name, flags, has_lock };
        match with_space(fs, || r.run())? {
            Outcome::NeedsLock => lock = Some(fs.rename.lock()),
            Outcome::Done(gone) => break gone,
        }
    };
    drop(lock);
    if let Some(gone) = outcome {
        delete::delete_if_unused(fs, &gone);
    }
    Ok(())
}

enum Outcome {
    /// Renamed; the inode that had the new name is to be deleted, if it is not referenced.
    Done(Option<Arc<Cell>>),
    /// Nothing done yet: the rename lock is needed.
    NeedsLock,
}

struct Rename<'a> {
    fs: &'a MountedFs,
    dir: u32,
    name: &'a [u8],
    new_dir: u32,
    new_name: &'a [u8],
    flags: RenameFlags,
    /// The rename lock is held.
    has_lock: bool,
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

/// The directories from the two directories up to the root, themselves included. Empty if they are
/// the same.
#[derive(Default)]
struct Ancestors {
    from: Vec<u32>,
    to: Vec<u32>,
}

/// Locks the inodes that the two names lead to: directories first, then by number.
fn lock_files<'s, 't>(
    source: &'s Cell,
    target: Option<&'t Cell>,
) -> Result<(WriteGuard<'s>, Option<WriteGuard<'t>>)> {
    let Some(target) = target else { return Ok((source.write()?, None)) };
    // (The kind of an inode that has a name does not change.)
    if (!target.is_dir(), target.ino) < (!source.is_dir(), source.ino) {
        let target = target.write()?;
        Ok((source.write()?, Some(target)))
    } else {
        let source = source.write()?;
        Ok((source, Some(target.write()?)))
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
        let (from_cell, to_cell) = (fs.cell(self.dir)?, fs.cell(self.new_dir)?);
        let (mut dirs, above) = self.lock_dirs(&from_cell, &to_cell)?;
        check_dir(&dirs.from)?;
        check_dir(dirs.to_ref())?;
        let from_spot = dir::seek(&fs.vol, &dirs.from.node, self.name)?;
        let (source, _) = from_spot.entry.ok_or(FsError::NotFound)?;
        let to_spot = dir::seek(&fs.vol, &dirs.to_ref().node, self.new_name)?;
        let target = to_spot.entry.map(|(ino, _)| ino);
        self.check_places(source, target, &above)?;
        if target == Some(source) {
            return Ok(Outcome::Done(None));
        }
        encrypted::check_add(&fs.vol, &dirs.from.node)?;
        encrypted::check_add(&fs.vol, &dirs.to_ref().node)?;
        // The directories are locked: a damaged volume must not make this thread lock one again.
        for ino in [Some(source), target].into_iter().flatten() {
            check_entry(fs, InodeNr(self.dir), ino)?;
            check_entry(fs, InodeNr(self.new_dir), ino)?;
        }
        let source_cell = fs.cell(source.0)?;
        let target_cell = target.map(|t| fs.cell(t.0)).transpose()?;
        // Directories are locked below directories by one thread at a time: on a damaged volume
        // each may be listed in the other.
        let any_dir = source_cell.is_dir() || target_cell.as_ref().is_some_and(|t| t.is_dir());
        if any_dir && !self.has_lock {
            return Ok(Outcome::NeedsLock);
        }
        let (mut source_st, mut target_st) = lock_files(&source_cell, target_cell.as_deref())?;
        check_removable(&dirs.from, &source_st)?;
        self.check_policy(dirs.to_ref(), &source_st)?;
        self.check_project(dirs.to_ref(), &source_st)?;
        if let Some(target_st) = &target_st {
            check_removable(dirs.to_ref(), target_st)?;
        }
        if self.flags.contains(RenameFlags::EXCHANGE) {
            let mut target_st = target_st.ok_or(FsError::NotFound)?;
            self.check_policy(&dirs.from, &target_st)?;
            self.check_project(&dirs.from, &target_st)?;
            let spots = (&from_spot, &to_spot);
            self.exchange(&mut dirs, spots, &mut source_st, &mut target_st)?;
            return Ok(Outcome::Done(None));
        }
        if let Some(target_st) = &target_st {
            self.check_replaceable(&source_st, target_st)?;
        }
        self.replace(&mut dirs, (&from_spot, &to_spot), &mut source_st, target_st.as_deref_mut())?;
        let gone = target_st.as_ref().is_some_and(|t| t.node.raw.links == 0);
        drop(target_st);
        Ok(Outcome::Done(target_cell.filter(|_| gone)))
    }

    /// Locks the two directories, the ancestor first, and gives their ancestors.
    fn lock_dirs<'c>(&self, from: &'c Cell, to: &'c Cell) -> Result<(Dirs<'c>, Ancestors)> {
        if self.dir == self.new_dir {
            return Ok((Dirs { from: from.write()?, to: None }, Ancestors::default()));
        }
        let above =
            Ancestors { from: self.ancestors(self.dir)?, to: self.ancestors(self.new_dir)? };
        let from_first = above.to.contains(&self.dir)
            || (!above.from.contains(&self.new_dir) && self.dir < self.new_dir);
        let dirs = if from_first {
            let from = from.write()?;
            Dirs { from, to: Some(to.write()?) }
        } else {
            let to = to.write()?;
            Dirs { from: from.write()?, to: Some(to) }
        };
        Ok((dirs, above))
    }

    /// Checks that the flags allow the rename, and that it moves no directory below itself.
    fn check_places(
        &self,
        source: InodeNr,
        target: Option<InodeNr>,
        above: &Ancestors,
    ) -> Result<()> {
        let exchange = self.flags.contains(RenameFlags::EXCHANGE);
        if above.to.contains(&source.0) || source.0 == self.new_dir {
            return Err(FsError::Invalid("a directory cannot be moved into itself"));
        }
        match target {
            Some(_) if self.flags.contains(RenameFlags::NOREPLACE) => Err(FsError::Exists),
            Some(t) if above.from.contains(&t.0) || t.0 == self.dir => {
                if exchange {
                    Err(FsError::Invalid("a directory cannot be moved into itself"))
                } else {
                    Err(FsError::NotEmpty)
                }
            }
            None if exchange => Err(FsError::NotFound),
            _ => Ok(()),
        }
    }

    /// Checks that the source may take the place of the target.
    fn check_replaceable(&self, source: &InodeState, target: &InodeState) -> Result<()> {
        match (source.is_dir(), target.is_dir()) {
            (true, false) => Err(FsError::NotADirectory),
            (false, true) => Err(FsError::IsADirectory),
            (true, true) if !dir::is_empty(&self.fs.vol, &target.node)? => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    fn check_project(&self, to: &InodeState, st: &InodeState) -> Result<()> {
        let inherits = to.node.raw.flags.contains(InodeFlags::PROJINHERIT);
        if inherits && to.node.raw.projid != st.node.raw.projid {
            return Err(FsError::CrossDevice);
        }
        Ok(())
    }

    /// An encrypted directory gets only what is encrypted by the same policy.
    fn check_policy(&self, to: &InodeState, st: &InodeState) -> Result<()> {
        let stays = self.dir == self.new_dir;
        match stays || encrypted::may_name(&self.fs.vol, &to.node, &st.node)? {
            true => Ok(()),
            false => Err(FsError::CrossDevice),
        }
    }

    /// Journal credits of [`replace`](Self::replace), the deletion of the target not included.
    fn credits(&self, dirs: &Dirs<'_>) -> u32 {
        let new_names = if self.flags.contains(RenameFlags::WHITEOUT) { 2 } else { 1 };
        new_names * (dir::credits_add(&self.fs.vol, &dirs.to_ref().node) + 3)
            + 2 * dir::REMOVE_CREDITS
            + orphan::CREDITS
            + 5
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
        let is_dir = entry_kind(source)? == FileType::Directory;
        let moves = dirs.to.is_some();
        let grows = is_dir && moves && target.is_none();
        if grows {
            create::add_dir_link(fs, &mut dirs.to().node.raw.clone())?;
        }
        let reserved = Reservation::make(fs, BLOCKS)?;
        let end = target.as_ref().map(|target| delete::End::of(fs, target));
        let mut h = fs.start(self.credits(dirs) + end.map_or(0, delete::End::credits))?;
        let mut white = None;
        if self.flags.contains(RenameFlags::WHITEOUT) {
            let node = NewNode::CharDevice(Rdev::default());
            let owner = Creds::default();
            white = Some(create::make(fs, &mut h, &dirs.from, &node, None, (0, 0), owner)?);
        }
        let in_place = match self.name_target(&mut h, dirs, to, source, target.is_some()) {
            Ok(in_place) => in_place,
            Err(e) => {
                if let Some(mut white) = white {
                    create::unmake(fs, &mut h, &mut white);
                }
                dirs.to().store(fs, &mut h, true)?;
                if !matches!(e, FsError::Io(_)) {
                    // (After a failed read nothing is undone.)
                    let _ = h.stop();
                }
                return Err(e);
            }
        };
        self.drop_old_name(&mut h, dirs, from, white, moves || in_place)?;
        if is_dir {
            // Everything below it has another path now.
            fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::DirRename });
            fs.dirs_moved.note(h.tid());
        }
        if is_dir && moves {
            dir::set_dotdot(vol, &mut h, &mut source.node, dirs.to_ref().node.ino)?;
            drop_dir_link(&mut dirs.from.node.raw);
            if target.is_none() {
                create::add_dir_link(fs, &mut dirs.to().node.raw)?;
            }
        } else if is_dir && target.is_some() {
            // One subdirectory took the name of another.
            drop_dir_link(&mut dirs.from.node.raw);
        }
        source.node.raw.ctime = fs.now();
        source.store(fs, &mut h, true)?;
        if let (Some(target), Some(end)) = (target, end) {
            drop_link(fs, &mut h, target, end)?;
        }
        self.store_dirs(dirs, &mut h)?;
        let stopped = h.stop().map_err(error::journal);
        drop(reserved);
        stopped
    }

    /// Makes the new name lead to the source. True if every other name is where it was.
    fn name_target(
        &self,
        h: &mut Handle,
        dirs: &mut Dirs<'_>,
        to: &dir::Spot,
        source: &InodeState,
        exists: bool,
    ) -> Result<bool> {
        let (vol, node) = (&self.fs.vol, &mut dirs.to().node);
        let (ino, kind) = (source.node.ino, entry_kind(source)?);
        if exists {
            dir::replace(vol, h, node, to.on_disk(self.new_name), ino, kind).map(|()| true)
        } else {
            dir::add_at(vol, h, node, self.new_name, to, ino, kind)
        }
    }

    /// Removes the old name, or makes it lead to the whiteout. `in_place`: it is where it was
    /// found.
    fn drop_old_name(
        &self,
        h: &mut Handle,
        dirs: &mut Dirs<'_>,
        from: &dir::Spot,
        white: Option<InodeState>,
        in_place: bool,
    ) -> Result<()> {
        let (vol, node) = (&self.fs.vol, &mut dirs.from.node);
        let name = from.on_disk(self.name);
        match white {
            Some(mut white) => {
                let kind = FileType::CharDevice;
                dir::replace(vol, h, node, name, white.node.ino, kind)?;
                white.store(self.fs, h, true)
            }
            None if in_place => dir::remove_at(vol, h, node, self.name, from).map(drop),
            None => dir::remove(vol, h, node, name).map(drop),
        }
    }

    fn store_dirs(&self, dirs: &mut Dirs<'_>, h: &mut Handle) -> Result<()> {
        let now = self.fs.now();
        for st in [Some(&mut dirs.from), dirs.to.as_mut()].into_iter().flatten() {
            st.touch(now);
            st.store(self.fs, h, true)?;
        }
        Ok(())
    }

    fn exchange(
        &self,
        dirs: &mut Dirs<'_>,
        (from, to): (&dir::Spot, &dir::Spot),
        a: &mut InodeState,
        b: &mut InodeState,
    ) -> Result<()> {
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
        let mut h = fs.start(4 * dir::REMOVE_CREDITS + 6)?;
        let (name, new_name) = (from.on_disk(self.name), to.on_disk(self.new_name));
        dir::replace(vol, &mut h, &mut dirs.to().node, new_name, a.node.ino, a_kind)?;
        dir::replace(vol, &mut h, &mut dirs.from.node, name, b.node.ino, b_kind)?;
        if a_dir || b_dir {
            fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::CrossRename });
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
