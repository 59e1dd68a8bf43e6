//! CREAT, LINK, UNLINK: names in directories.
//!
//! A name that is there already stays as it is, even if it leads elsewhere; a name that is not
//! there need not be removed. (Both happen when records are replayed over a state that some of them
//! have made already.) Links are counted as the names change; an INODE record behind them has the
//! last word.

use extol_ondisk::InodeNr;
use extol_ondisk::fast_commit::FcEntry;
use extol_vfs::{FsError, Result};

use super::{Life, Replay};
use crate::dir;
use crate::fast_commit::placeholder;
use crate::ops::create::{count_dir_link, drop_dir_link};

/// More links than any file has.
const MAX_LINKS: u16 = 65_000;

fn bad(what: &str, ino: u32) -> FsError {
    FsError::corrupt(what).in_inode(ino.into())
}

/// An error for a name that no directory can hold.
fn check(name: &FcEntry<&[u8]>) -> Result<()> {
    let dots = matches!(name.name, b"." | b"..");
    if dots || name.parent == name.ino || name.name.iter().any(|b| matches!(b, 0 | b'/')) {
        return Err(bad("a record has an impossible name", name.parent));
    }
    Ok(())
}

impl Replay<'_> {
    pub(super) fn creat(&mut self, name: &FcEntry<&[u8]>) -> Result<()> {
        check(name)?;
        if !self.touch(name.parent)?.is_live_dir() {
            return Ok(());
        }
        let child = self.touch(name.ino)?;
        if child.life != Life::Alive {
            return Err(bad("a new name leads to an inode that does not exist", name.ino));
        }
        if child.node.raw.is_dir() {
            return self.creat_dir(name);
        }
        if self.add_name(name.parent, name.ino, name.name)? {
            self.touch(name.ino)?.node.raw.links = 1;
        }
        Ok(())
    }

    /// A new directory: `.` and `..`, its links and its parent's.
    fn creat_dir(&mut self, name: &FcEntry<&[u8]>) -> Result<()> {
        let child = self.touch(name.ino)?;
        if child.node.raw.links > 0 {
            // It is there: as a leftover of an earlier replay, with its name.
            return Ok(());
        }
        let (vol, h) = (self.vol, &mut self.h);
        let Some(child) = self.inodes.get_mut(&name.ino) else { return Ok(()) };
        dir::init(vol, h, &mut child.node, InodeNr(name.parent))?;
        child.node.raw.links = 2;
        if !self.put_name(name.parent, name.ino, name.name)? {
            return Err(bad("a new directory has the name of something else", name.ino));
        }
        let has_dir_nlink = self.vol.geo.ro_compat.contains(extol_ondisk::RoCompat::DIR_NLINK);
        count_dir_link(has_dir_nlink, &mut self.touch(name.parent)?.node.raw)
    }

    pub(super) fn link(&mut self, name: &FcEntry<&[u8]>) -> Result<()> {
        check(name)?;
        if !self.touch(name.parent)?.is_live_dir() {
            return Ok(());
        }
        let child = self.touch(name.ino)?;
        if child.life == Life::Absent {
            self.waiting.entry(name.ino).or_default().push((name.parent, name.name.to_vec()));
            return Ok(());
        }
        if child.node.raw.is_dir() {
            return Err(bad("a directory gets a second name", name.ino));
        }
        if name.name == placeholder::name(name.ino) {
            self.placeholders.push((name.parent, name.ino));
        }
        self.add_name(name.parent, name.ino, name.name).map(|_| ())
    }

    /// Adds a name of anything but a directory, and counts it. False if there is such a name.
    pub(super) fn add_name(&mut self, parent: u32, ino: u32, name: &[u8]) -> Result<bool> {
        if !self.touch(parent)?.is_live_dir() || !self.put_name(parent, ino, name)? {
            return Ok(false);
        }
        let child = self.touch(ino)?;
        child.life = Life::Alive;
        if child.node.raw.links >= MAX_LINKS {
            return Err(bad("too many links", ino));
        }
        child.node.raw.links += 1;
        Ok(true)
    }

    /// Adds an entry. False if there is such a name.
    fn put_name(&mut self, parent: u32, ino: u32, name: &[u8]) -> Result<bool> {
        let Some(kind) = self.touch(ino)?.node.raw.kind() else { return Ok(false) };
        self.touch(parent)?;
        let (vol, h) = (self.vol, &mut self.h);
        let Some(dir) = self.inodes.get_mut(&parent) else { return Ok(false) };
        match dir::add(vol, h, &mut dir.node, name, InodeNr(ino), kind) {
            Ok(()) => {}
            Err(FsError::Exists) => return Ok(false),
            Err(e) => return Err(e),
        }
        self.touch(ino)?.names += 1;
        self.changed(parent, ino)?;
        Ok(true)
    }

    /// A directory changed when the inode changed whose name came or went: no record tells its own
    /// times.
    fn changed(&mut self, parent: u32, ino: u32) -> Result<()> {
        let time = self.touch(ino)?.node.raw.ctime;
        let dir = &mut self.touch(parent)?.node.raw;
        dir.mtime = dir.mtime.max(time);
        dir.ctime = dir.ctime.max(time);
        Ok(())
    }

    /// Files that were deleted, and that records had to leave a name: see [`placeholder`].
    pub(super) fn remove_placeholders(&mut self) -> Result<()> {
        for (parent, ino) in std::mem::take(&mut self.placeholders) {
            self.check_room()?;
            let t = self.touch(ino)?;
            let raw = &t.node.raw;
            if t.life != Life::Alive || !placeholder::is_placeholder(raw.mode, raw.size, raw.links)
            {
                continue;
            }
            let name = placeholder::name(ino);
            let Some(dir) = self.inodes.get(&parent).filter(|dir| dir.is_live_dir()) else {
                continue;
            };
            if dir::lookup_stored(self.vol, &dir.node, &name)?
                .is_some_and(|(found, _)| found.0 == ino)
            {
                self.unlink(&FcEntry { parent, ino, name: &name })?;
            }
        }
        Ok(())
    }

    pub(super) fn unlink(&mut self, name: &FcEntry<&[u8]>) -> Result<()> {
        check(name)?;
        if let Some(waiting) = self.waiting.get_mut(&name.ino) {
            waiting.retain(|(parent, other)| (*parent, &other[..]) != (name.parent, name.name));
        }
        if !self.touch(name.parent)?.is_live_dir() || self.touch(name.ino)?.life != Life::Alive {
            return Ok(());
        }
        if name.ino == InodeNr::ROOT.0 {
            return Err(bad("the root is removed", name.ino));
        }
        let (vol, h) = (self.vol, &mut self.h);
        let Some(dir) = self.inodes.get_mut(&name.parent) else { return Ok(()) };
        let Some((found, _)) = dir::lookup_stored(vol, &dir.node, name.name)? else {
            return Ok(());
        };
        let is_it = found.0 == name.ino;
        let Some(child) = self.inodes.get(&name.ino) else { return Ok(()) };
        let child_is_dir = child.node.raw.is_dir();
        if child_is_dir && (!is_it || !dir::is_empty(vol, &child.node)?) {
            return if is_it {
                Err(bad("a directory with names is removed", name.ino))
            } else {
                Ok(())
            };
        }
        let Some(dir) = self.inodes.get_mut(&name.parent) else { return Ok(()) };
        if is_it {
            dir::remove(vol, h, &mut dir.node, name.name)?;
        }
        if child_is_dir {
            drop_dir_link(&mut dir.node.raw);
        }
        if is_it {
            self.changed(name.parent, name.ino)?;
        }
        let child = self.touch(name.ino)?;
        child.names -= i64::from(is_it);
        let links = &mut child.node.raw.links;
        *links = if child_is_dir { 0 } else { links.saturating_sub(1) };
        if *links == 0 {
            child.life = Life::Dead;
        }
        Ok(())
    }
}
