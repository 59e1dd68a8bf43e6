//! Gives inodes behind a limit the lowest free numbers in front of it.
//!
//! ```text
//!   all is written and in place ─► survey ─► for each inode behind the limit, one handle:
//!       new slot ─ its names ─ its own "." ─ ".." of its subdirectories ─ old slot cleared, freed
//! ```
//!
//! What an inode has stays where it is: blocks, attributes, times. With metadata_csum the seed of
//! the checksums of its blocks is made of its number and generation. So it gets the one generation
//! that gives the same seed, and no block of it is written but those that name it. (For a server
//! of NFS it is another file: its handles have number and generation.)
//!
//! Odd cases
//! - A directory whose subdirectories, or a file whose names, are more than a transaction has: it
//!   gets the whole log, which is empty (`handle`). More than that has room for is refused before
//!   anything is changed (`survey`): in between `..` would be wrong in some. A log that becomes
//!   shorter keeps room for the largest one (`shortest`).
//! - A directory with more subdirectories than can be counted has one link, and keeps it.
//! - The value of an attribute has no names: the entries of all attributes that name it change with
//!   it (`holders`).
//! - A name may be in a directory that has got another number meanwhile: `Mover::now` knows it.
//! - Inodes of the volume itself (journal, orphan file, quotas) have low numbers; others are
//!   refused.
//!
//! Invariants
//! - IM-1: an inode moves in one transaction, with all that leads to it. Before and after it the
//!   volume is sound, and nothing says that inodes are moving.
//! - IM-2: no cell of an inode that changes is in memory: all of it is read from the table and
//!   written to the table.
//!
//! The caller keeps all other users of the volume out.

use std::collections::HashMap;

use extol_jbd2::Handle;
use extol_ondisk::InodeNr;
use extol_vfs::FsError;

use super::super::{ResizeError, refuse};
use super::holders::Holders;
use super::mover::{handle, settle};
use super::survey::{self, Behind, OWN_CREDITS};
use crate::dir::{self, Number};
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::fast_commit::{self, Delta, Reason};
use crate::inline;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::xattr;

/// Moves all inodes with numbers above `limit`, a whole number of groups. Gives how many these
/// were. `progress` is told how many of how many are done; if it says false, the rest stays.
pub(crate) fn move_inodes(
    fs: &MountedFs,
    limit: u64,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, ResizeError> {
    fs.check_writable()?;
    let geo = &fs.vol.geo;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    if limit >= geo.inodes() {
        return Ok(0);
    }
    settle(fs)?;
    if fs.orphans.len() > 0 {
        return refuse("files without a name are still in use: close them and try again");
    }
    fs.table.drop_idle();
    let found = survey::survey(fs, limit)?;
    let all = found.len() as u64;
    let groups = limit / geo.inodes_per_group.max(1);
    let mut mover = Mover { fs, groups, now: HashMap::new() };
    let mut moved = 0;
    let mut done = Ok(());
    for (ino, behind) in &found {
        done = mover.one(InodeNr(*ino), behind);
        if done.is_err() {
            break;
        }
        moved += 1;
        if !progress(moved, all) {
            break;
        }
    }
    settle(fs)?;
    done.map(|()| moved)
}

pub(super) struct Mover<'a> {
    pub fs: &'a MountedFs,
    /// New numbers are in the first ones.
    groups: u32,
    /// The numbers of inodes that have moved and that name others: directories, and where there are
    /// values in inodes all.
    now: HashMap<u32, InodeNr>,
}

/// All that a move changes.
struct Move<'a> {
    old: Node,
    is_dir: bool,
    /// Blocks with its names: the directory as it is called now, and which of its blocks.
    places: Vec<(InodeNr, u32)>,
    children: &'a [InodeNr],
    /// Attributes whose value it is.
    holders: Option<&'a Holders>,
}

impl Mover<'_> {
    fn one(&mut self, ino: InodeNr, behind: &Behind) -> Result<(), ResizeError> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let old = Node { ino, raw: vol.read_inode(ino)? };
        let places = behind.places.iter();
        let places: Vec<_> = places.map(|place| (self.number(place.dir), place.lblk)).collect();
        let children = survey::children(fs, &old, behind.is_dir)?;
        let by_number = places.iter().map(|(dir, lblk)| (dir.0, *lblk));
        let holders = behind.holders.as_ref();
        let blocks = survey::blocks(fs, by_number, ino.0, &children)?;
        let blocks = blocks.saturating_add(holders.map_or(0, Holders::len));
        survey::check_credits(fs, ino.0, behind, blocks)?;
        let what = Move { old, is_dir: behind.is_dir, places, children: &children, holders };
        let mut h = handle(fs, blocks + OWN_CREDITS, "the move of an inode")?;
        fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::Resize });
        match self.in_handle(&mut h, &what) {
            Ok(new) => {
                h.stop().map_err(error::journal)?;
                if what.is_dir || xattr::are_values_allowed(vol) {
                    self.now.insert(ino.0, new);
                }
                Ok(())
            }
            Err(e) => {
                // Half of it must not become durable.
                let _ = vol.journal.abort("an inode could not get another number");
                Err(e.in_inode(ino.0.into()).into())
            }
        }
    }

    pub(super) fn number(&self, ino: u32) -> InodeNr {
        self.now.get(&ino).copied().unwrap_or(InodeNr(ino))
    }

    fn in_handle(&self, h: &mut Handle, what: &Move<'_>) -> Result<InodeNr, FsError> {
        let vol = &self.fs.vol;
        let old = what.old.ino;
        let new = vol.alloc.alloc_lowest_inode(h, self.groups, what.is_dir)?;
        self.check_unused([old, new])?;
        let mut node = what.old.clone();
        if vol.geo.has_metadata_csum() {
            let generation = node.raw.generation;
            node.raw.generation = vol.geo.fs_seed.generation_for(old, generation, new);
        }
        for (dir, lblk) in &what.places {
            self.renumber(h, *dir, *lblk, (old, new))?;
        }
        for child in what.children {
            self.renumber(h, *child, 0, (old, new))?;
        }
        if let Some(holders) = what.holders {
            xattr::forget_value(vol, &what.old);
            self.renumber_holders(h, holders, (old, new))?;
        }
        if what.is_dir {
            self.forget_names(&node, new)?;
            if !inline::is_inline(&node) {
                // (By the old number and generation, which give the same seed.)
                dir::renumber(vol, h, &mut what.old.clone(), 0, (old, new))?;
            }
        }
        vol.write_inode(h, new, &node.raw, Change { data: true, born: true, ..Change::default() })?;
        vol.clear_inode(h, old)?;
        vol.alloc.free_inode(h, old, what.is_dir)?;
        Ok(new)
    }

    /// Changes a block of a directory.
    fn renumber(
        &self,
        h: &mut Handle,
        dir: InodeNr,
        lblk: u32,
        numbers: (InodeNr, InodeNr),
    ) -> Result<(), FsError> {
        let vol = &self.fs.vol;
        let mut dir = Node { ino: dir, raw: vol.read_inode(dir)? };
        dir::renumber(vol, h, &mut dir, lblk, numbers)?;
        if inline::is_inline(&dir) {
            self.check_unused([dir.ino])?;
            vol.write_inode(h, dir.ino, &dir.raw, Change::default())?;
        }
        Ok(())
    }

    /// The names of a directory are those of another number.
    fn forget_names(&self, dir: &Node, new: InodeNr) -> Result<(), FsError> {
        let dentries = &self.fs.vol.dentries;
        dir::numbers(&self.fs.vol, dir, &mut |number: Number<'_>| {
            dentries.remove(dir.ino.0, number.name);
            dentries.remove(new.0, number.name);
        })
    }

    /// IM-2.
    pub(super) fn check_unused<const N: usize>(
        &self,
        numbers: [InodeNr; N],
    ) -> Result<(), FsError> {
        let in_use = numbers.iter().find(|ino| self.fs.table.cached(ino.0).is_some());
        in_use.map_or(Ok(()), |_| Err(FsError::Busy))
    }
}
