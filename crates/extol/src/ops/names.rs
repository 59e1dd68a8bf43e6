//! Names: lookup, link, unlink, rmdir, readlink.

use std::sync::Arc;

use extol_fscrypt::Policy;
use extol_jbd2::Handle;
use extol_ondisk::{FileType, Incompat, InodeFlags, InodeNr};
use extol_vfs::{Attr, FileId, FileKind, FsError, Result};
use smallvec::SmallVec;

use super::create::{ENTRY_BLOCKS, LINK_MAX, check_dir, drop_dir_link};
use super::files::{touch_atime, wants_atime};
use super::reserve::Reservation;
use super::{check_name, delete, with_space};
use crate::dir::{self, Dentry};
use crate::encrypted;
use crate::error;
use crate::inodes::{Cell, InodeState};
use crate::mounted::{MountedFs, kind_of};
use crate::ops::references;
use crate::orphan;

/// Finds a name and takes a reference on its inode.
pub(crate) fn lookup(fs: &MountedFs, dir: u32, name: &[u8]) -> Result<Attr> {
    if name.len() > super::NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    match fs.vol.dentries.positive(dir, name).and_then(|dentry| refer(fs, dir, dentry)) {
        // Deleted meanwhile: the search finds nothing, or another inode.
        None | Some(Err(FsError::Stale)) => {}
        Some(result) => return result,
    }
    let cell = fs.cell(dir)?;
    let (ino, cached, policy) = {
        let parent = cell.read()?;
        if !parent.is_dir() {
            return Err(FsError::NotADirectory);
        }
        if dir::is_known_missing(&fs.vol, &parent.node, name) {
            return Err(FsError::NotFound);
        }
        let Some((ino, _)) = dir::lookup(&fs.vol, &parent.node, name)? else {
            dir::note_missing(&fs.vol, &parent.node, name);
            return Err(FsError::NotFound);
        };
        let mut policy = None;
        if !matches!(name, b"." | b"..") {
            check_entry(fs, parent.node.ino, ino)?;
            if encrypted::is_encrypted(&parent.node) {
                policy = Some(encrypted::policy(&fs.vol, &parent.node)?);
            }
        }
        // Under the parent's lock, so that the inode is not deleted before the reference.
        let cached = fs.table.refer(ino.0);
        dir::note_found(&fs.vol, &parent.node, name, ino);
        (ino.0, cached, policy)
    };
    let attr = attr_or_forget(fs, ino, cached, dir)?;
    if let Some(policy) = policy {
        let checked = check_policy(fs, ino, attr.kind, policy);
        checked.inspect_err(|_| references::forget(fs, ino, 1))?;
    }
    Ok(attr)
}

/// Refuses what an encrypted directory of this policy does not have, as Linux does: a regular file
/// when it is opened.
fn check_policy(fs: &MountedFs, ino: u32, kind: FileKind, policy: Option<Policy>) -> Result<()> {
    let cell = fs.cell(ino)?;
    let fits = encrypted::fits(&fs.vol, policy, &cell.read()?.node)?;
    if fits {
        return Ok(());
    }
    if kind != FileKind::Regular {
        return Err(FsError::NotPermitted);
    }
    fs.table.note_misplaced(ino);
    Ok(())
}

/// Takes a reference on what an entry of a listing leads to. `Stale`: it must be [looked
/// up](lookup), as every entry of an encrypted directory.
pub(crate) fn open_entry(fs: &MountedFs, dir: u32, ino: u32) -> Result<Attr> {
    if fs.vol.geo.incompat().contains(Incompat::ENCRYPT)
        && encrypted::is_encrypted(&fs.cell(dir)?.read()?.node)
    {
        return Err(FsError::Stale);
    }
    open_by_number(fs, ino)
}

/// Takes a reference on the inode of a dentry. `None` if the dentry is not valid any more (DC-3).
pub(crate) fn refer(fs: &MountedFs, dir: u32, dentry: Dentry) -> Option<Result<Attr>> {
    let cell = fs.table.refer(dentry.ino);
    if !fs.vol.dentries.is_valid(dentry) {
        references::forget(fs, dentry.ino, 1);
        return None;
    }
    Some(attr_or_forget(fs, dentry.ino, cell, dir))
}

/// The attributes of what a directory names. The caller's reference on it goes with an error.
fn attr_or_forget(fs: &MountedFs, ino: u32, cached: Option<Arc<Cell>>, dir: u32) -> Result<Attr> {
    attr_of_entry(fs, ino, cached, dir).inspect_err(|_| references::forget(fs, ino, 1))
}

fn attr_of_entry(fs: &MountedFs, ino: u32, cached: Option<Arc<Cell>>, dir: u32) -> Result<Attr> {
    attr_in(fs, &*fs.loaded(ino, cached)?, dir)
}

fn attr_in(fs: &MountedFs, cell: &Cell, dir: u32) -> Result<Attr> {
    let ino = cell.ino;
    let st = cell.read()?;
    if st.node.raw.links == 0 && !fs.orphans.contains(ino) {
        return Err(FsError::corrupt(format!("an entry of directory {dir} names an unused inode"))
            .in_inode(ino.into()));
    }
    entry_kind(&st)?;
    cell.note_named(&st);
    Ok(fs.attr(&st))
}

/// The attributes of what a path leads to, if every name of it is in the dentry cache and the inode
/// is in memory. Takes no reference (DC-4).
pub(crate) fn lookup_cached(fs: &MountedFs, path: &[u8]) -> Option<Attr> {
    lookup_cached_while(fs, path, || {})
}

/// [`lookup_cached`]; tests change the path in `meanwhile`.
pub(crate) fn lookup_cached_while(
    fs: &MountedFs,
    path: &[u8],
    meanwhile: impl FnOnce(),
) -> Option<Attr> {
    if path.ends_with(b"/") {
        return None;
    }
    let (mut dir, mut ino) = (0, InodeNr::ROOT.0);
    let mut dentries = SmallVec::<[Dentry; 8]>::new();
    for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
        let dentry = fs.vol.dentries.positive(ino, name)?;
        (dir, ino) = (ino, dentry.ino);
        dentries.push(dentry);
    }
    if dentries.is_empty() || fs.is_internal(ino) {
        return None;
    }
    let attr = attr_in(fs, &*fs.table.used(ino)?, dir).ok()?;
    meanwhile();
    let is_valid = dentries.iter().all(|dentry| fs.vol.dentries.is_valid(*dentry));
    (is_valid && attr.kind != FileKind::Symlink).then_some(attr)
}

/// Takes a reference on a directory by its dentry, without its lock: many paths lead through a few
/// directories, and threads that add names in them hold that lock. `None`: it must be
/// [looked up](lookup).
pub(crate) fn dir_cached(fs: &MountedFs, dir: u32, name: &[u8]) -> Option<FileId> {
    let dentry = fs.vol.dentries.positive(dir, name)?;
    let cell = fs.table.refer(dentry.ino);
    let generation = if fs.vol.dentries.is_valid(dentry) {
        fs.loaded(dentry.ino, cell).ok().and_then(|cell| cell.dir_generation())
    } else {
        None
    };
    if generation.is_none() {
        references::forget(fs, dentry.ino, 1);
    }
    generation.map(|generation| FileId { ino: dentry.ino, generation })
}

/// Takes a reference on an inode by number.
pub(crate) fn open_by_number(fs: &MountedFs, ino: u32) -> Result<Attr> {
    if fs.is_internal(ino) {
        return Err(FsError::Stale);
    }
    fs.table.retain(ino);
    let result = fs.cell(ino).and_then(|cell| {
        let st = cell.read()?;
        if (st.node.raw.links == 0 && !fs.orphans.contains(ino)) || st.kind().is_none() {
            drop(st);
            // Not in use: the cell must not stay for a caller that tries numbers.
            fs.table.kill(&cell);
            return Err(FsError::Stale);
        }
        Ok(fs.attr(&st))
    });
    result.inspect_err(|_| {
        fs.table.release(&fs.vol, ino, 1);
    })
}

/// Adds a name; takes a reference.
pub(crate) fn link(fs: &MountedFs, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
    check_name(name)?;
    fs.check_writable()?;
    let parent_cell = fs.cell(dir)?;
    let cell = fs.cell(ino)?;
    // (Asked without its lock: see `Cell::is_dir`.)
    if dir == ino || cell.is_dir() {
        return Err(FsError::NotPermitted);
    }
    with_space(fs, || {
        let mut parent = parent_cell.write()?;
        check_dir(&parent)?;
        let mut st = cell.write()?;
        if st.node.raw.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(FsError::NotPermitted);
        }
        if st.node.raw.links >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        if st.node.raw.links == 0 && !fs.orphans.contains(ino) {
            return Err(FsError::NotFound);
        }
        let projects = parent.node.raw.flags.contains(InodeFlags::PROJINHERIT);
        if projects && parent.node.raw.projid != st.node.raw.projid {
            return Err(FsError::Invalid("the directory belongs to another project"));
        }
        let spot = dir::seek(&fs.vol, &parent.node, name)?;
        if spot.entry.is_some() {
            return Err(FsError::Exists);
        }
        encrypted::check_add(&fs.vol, &parent.node)?;
        if !encrypted::may_name(&fs.vol, &parent.node, &st.node)? {
            return Err(FsError::CrossDevice);
        }
        let reserved = Reservation::make(fs, ENTRY_BLOCKS)?;
        let credits = dir::credits_add(&fs.vol, &parent.node) + orphan::CREDITS + 2;
        let mut h = fs.start(credits)?;
        let kind = entry_kind(&st)?;
        let added = dir::add_at(&fs.vol, &mut h, &mut parent.node, name, &spot, st.node.ino, kind);
        let now = fs.now();
        if added.is_ok() {
            if st.node.raw.links == 0 {
                fs.orphans.remove(&fs.vol, &fs.sb, &mut h, ino)?;
                st.node.raw.dtime = 0;
            }
            st.node.raw.links += 1;
            st.node.raw.ctime = now;
            st.store(fs, &mut h, true)?;
            parent.touch(now);
        }
        parent.store(fs, &mut h, true)?;
        let stopped = h.stop().map_err(error::journal);
        drop(reserved);
        added.and(stopped)?;
        fs.table.retain(ino);
        dir::note_found(&fs.vol, &parent.node, name, InodeNr(ino));
        Ok(fs.attr(&st))
    })
}

/// The inode that an entry names, still to be locked, and where the entry is.
fn entry_cell(fs: &MountedFs, parent: &InodeState, name: &[u8]) -> Result<(Arc<Cell>, dir::Spot)> {
    let spot = dir::seek(&fs.vol, &parent.node, name)?;
    let (ino, _) = spot.entry.ok_or(FsError::NotFound)?;
    check_entry(fs, parent.node.ino, ino)?;
    Ok((fs.cell(ino.0)?, spot))
}

/// Checks where an entry leads: no name but `.` and `..` leads to the directory it is in, to the
/// root, or to an inode of the volume itself.
pub(crate) fn check_entry(fs: &MountedFs, dir: InodeNr, ino: InodeNr) -> Result<()> {
    if fs.is_internal(ino.0) {
        return Err(FsError::corrupt("a directory names an inode of the volume itself")
            .in_inode(ino.0.into()));
    }
    if ino == dir || ino == InodeNr::ROOT {
        return Err(FsError::corrupt("a directory is listed below itself").in_inode(ino.0.into()));
    }
    Ok(())
}

/// Checks that an entry of `parent` may be removed.
pub(crate) fn check_removable(parent: &InodeState, st: &InodeState) -> Result<()> {
    if parent.node.raw.flags.contains(InodeFlags::APPEND)
        || st.node.raw.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// Drops one link of an inode, in the caller's handle: at zero it is deleted at once if `end`
/// allows it, else it becomes an orphan. Stores it. [`delete::delete_if_unused`] must follow,
/// without locks.
pub(crate) fn drop_link(
    fs: &MountedFs,
    h: &mut Handle,
    st: &mut InodeState,
    end: delete::End,
) -> Result<()> {
    st.node.raw.ctime = fs.now();
    if st.is_dir() {
        st.node.raw.links = 0;
        st.node.raw.size = 0;
    } else {
        st.node.raw.links = st.node.raw.links.saturating_sub(1);
    }
    if st.node.raw.links == 0 {
        if end.is_at_once() && delete::at_once(fs, h, st) {
            return Ok(());
        }
        fs.orphans.add(&fs.vol, &fs.sb, h, st.node.ino.0)?;
    }
    st.store(fs, h, true)
}

/// Removes the entry at `spot`, and the link that it is.
fn remove_entry(
    fs: &MountedFs,
    parent: &mut InodeState,
    name: &[u8],
    spot: &dir::Spot,
    st: &mut InodeState,
) -> Result<()> {
    let end = delete::End::of(fs, st);
    fs.transact(dir::REMOVE_CREDITS + orphan::CREDITS + 2 + end.credits(), |h| {
        dir::remove_at(&fs.vol, h, &mut parent.node, name, spot)?;
        parent.touch(fs.now());
        if st.is_dir() {
            drop_dir_link(&mut parent.node.raw);
        }
        parent.store(fs, h, true)?;
        drop_link(fs, h, st, end)
    })
}

/// Removes the name of a non-directory.
pub(crate) fn unlink(fs: &MountedFs, dir: u32, name: &[u8]) -> Result<()> {
    match name {
        b"." | b".." => return Err(FsError::IsADirectory),
        _ => check_name(name)?,
    }
    fs.check_writable()?;
    let parent_cell = fs.cell(dir)?;
    let cell = {
        let mut parent = parent_cell.write()?;
        check_dir(&parent)?;
        let (cell, spot) = entry_cell(fs, &parent, name)?;
        // Asked without its lock: see `Cell::is_dir`.
        if cell.is_dir() {
            return Err(FsError::IsADirectory);
        }
        let mut st = cell.write()?;
        check_removable(&parent, &st)?;
        remove_entry(fs, &mut parent, name, &spot, &mut st)?;
        drop(st);
        cell
    };
    delete::delete_if_unused(fs, &cell);
    Ok(())
}

/// Removes an empty directory.
pub(crate) fn rmdir(fs: &MountedFs, dir: u32, name: &[u8]) -> Result<()> {
    match name {
        b"." => return Err(FsError::Invalid("'.' cannot be removed")),
        b".." => return Err(FsError::NotEmpty),
        _ => check_name(name)?,
    }
    fs.check_writable()?;
    let parent_cell = fs.cell(dir)?;
    let cell = {
        // Directories are locked below directories by one thread at a time: on a damaged volume
        // each may be listed in the other.
        let _lock = fs.rename.lock();
        let mut parent = parent_cell.write()?;
        check_dir(&parent)?;
        let (cell, spot) = entry_cell(fs, &parent, name)?;
        if !cell.is_dir() {
            return Err(FsError::NotADirectory);
        }
        let mut st = cell.write()?;
        check_removable(&parent, &st)?;
        if !dir::is_empty(&fs.vol, &st.node)? {
            return Err(FsError::NotEmpty);
        }
        remove_entry(fs, &mut parent, name, &spot, &mut st)?;
        drop(st);
        cell
    };
    delete::delete_if_unused(fs, &cell);
    Ok(())
}

/// Target of a symbolic link.
pub(crate) fn readlink(fs: &MountedFs, ino: u32) -> Result<Vec<u8>> {
    let cell = fs.cell(ino)?;
    let (target, touch) = {
        let st = cell.read()?;
        if kind_of(st.kind()) != FileKind::Symlink {
            return Err(FsError::Invalid("not a symbolic link"));
        }
        (encrypted::target(&fs.vol, &st.node)?, wants_atime(fs, &st))
    };
    if touch {
        touch_atime(fs, &cell);
    }
    Ok(target)
}

/// The kind that an entry of the inode records.
pub(crate) fn entry_kind(st: &InodeState) -> Result<FileType> {
    st.kind().ok_or_else(|| {
        FsError::corrupt("inode has an impossible mode").in_inode(st.node.ino.0.into())
    })
}
