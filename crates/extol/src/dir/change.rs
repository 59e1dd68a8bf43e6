//! Changing the names of a directory of any form.
//!
//! Each change of a name first drops the name's dentry (DC-2).

use std::borrow::Cow;

use extol_jbd2::Handle;
use extol_ondisk::dirent::{self, NewEntry};
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use super::blocks;
use super::htree;
use super::index_path::IndexError;
use super::linear;
use super::place::{Found, Place, note_room, put_in_leaf};
use super::search::{Spot, check_name, find, lookup_stored};
use super::shape::{BlockKind, Shape, count};
use super::sought::Sought;
use crate::fast_commit::eligibility;
use crate::inline;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;

/// Journal credits that [`add`] needs, the directory's inode not included: the leaf and the index
/// nodes above it, and for every block that may be appended the block itself, a bitmap, a group
/// descriptor and the change of the block map.
pub(crate) fn credits_add(vol: &Volume, dir: &Node) -> u32 {
    let depth = u32::from(extol_ondisk::htree::max_levels(&vol.geo)) + 1;
    let appended = htree::MAX_NEW.max(linear::MAX_NEW);
    1 + depth + appended * (3 + map::credits_for_insert(dir, 1, vol.geo.block_size.bytes()))
}

/// Journal credits that [`remove`], [`replace`] and [`set_dotdot`] need, the directory's inode not
/// included: one block.
pub(crate) const REMOVE_CREDITS: u32 = 1;

/// Adds a name, as it is on disk. [`FsError::Exists`] if it is there already.
pub(crate) fn add(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    name: &[u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<()> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(FsError::Exists);
    }
    vol.dentries.remove(dir.ino.0, name);
    let shape = Shape::of(vol, dir);
    let sought = Sought::new(vol, dir, &shape, name)?;
    sought.check(&shape)?;
    let new = sought.entry(ino, shape.stored_type(kind))?;
    if !inline::is_inline(dir) {
        add_to_blocks(vol, h, dir, new)?;
    } else if lookup_stored(vol, dir, name)?.is_some() {
        return Err(FsError::Exists);
    } else if shape.hash_len > 0 || !inline::dir_add(vol, dir, name, ino, kind)? {
        add_outside(vol, h, dir, Some(new))?;
    }
    eligibility::note_name(h, dir, name, None, Some(ino));
    Ok(())
}

/// [`add`] of a name that was just searched for. True if it went where there was room, and every
/// other name is where it was.
pub(crate) fn add_at(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    name: &[u8],
    spot: &Spot,
    ino: InodeNr,
    kind: FileType,
) -> Result<bool> {
    let name = spot.on_disk(name);
    let Place::Vacant(Some(vacant)) = &spot.place else {
        return add(vol, h, dir, name, ino, kind).map(|()| false);
    };
    vol.dentries.remove(dir.ino.0, name);
    let shape = Shape::of(vol, dir);
    let new = Sought::new(vol, dir, &shape, name)?.entry(ino, shape.stored_type(kind))?;
    put_in_leaf(h, &shape, vacant, new)?;
    eligibility::note_name(h, dir, name, None, Some(ino));
    Ok(true)
}

fn add_to_blocks(vol: &Volume, h: &mut Handle, dir: &mut Node, new: NewEntry<'_>) -> Result<()> {
    let shape = Shape::of(vol, dir);
    if shape.indexed {
        return match htree::add(vol, h, dir, new) {
            Err(IndexError::Structure(_)) if shape.seed.is_none() => {
                dir.raw.flags.remove(InodeFlags::INDEX);
                linear::add(vol, h, dir, new, false)
            }
            result => result.map_err(|e| e.into_fs(&shape)),
        };
    }
    if !shape.dir_index {
        // An index of a time when the volume had the feature: changes made here do not follow it.
        dir.raw.flags.remove(InodeFlags::INDEX);
    }
    linear::add(vol, h, dir, new, true)
}

/// Moves all entries of a directory from its inode to a block. Credits: those of [`add`].
pub(crate) fn leave_inode(vol: &Volume, h: &mut Handle, dir: &mut Node) -> Result<()> {
    add_outside(vol, h, dir, None)
}

/// Moves all entries of a directory from its inode to a block, and adds one for which there is no
/// room in the inode.
fn add_outside(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    new: Option<NewEntry<'_>>,
) -> Result<()> {
    let inside = inline::dir_entries(vol, dir)?;
    let before = dir.raw.clone();
    let shape = Shape::of(vol, dir);
    let moved = (|| {
        inline::dir_drop(vol, dir)?;
        init(vol, h, dir, inside.parent)?;
        for entry in &inside.entries {
            let sought = Sought::new(vol, dir, &shape, &entry.name)?;
            let old = sought.entry(entry.ino, shape.stored_type(entry.kind))?;
            add_to_blocks(vol, h, dir, old)?;
        }
        new.map_or(Ok(()), |new| add_to_blocks(vol, h, dir, new))
    })();
    if moved.is_err() {
        if !inline::is_inline(dir) {
            let _ = map::remove(vol, h, dir, 0, count(vol, dir), map::Discard::Free)?;
        }
        dir.raw = before;
    }
    moved
}

/// Removes a name, as it is on disk, and gives the inode it led to. [`FsError::NotFound`] if it is
/// not there.
pub(crate) fn remove(vol: &Volume, h: &mut Handle, dir: &mut Node, name: &[u8]) -> Result<InodeNr> {
    check_ordinary(name)?;
    vol.dentries.remove(dir.ino.0, name);
    let (ino, stored) = if inline::is_inline(dir) {
        let stored = name_inside(vol, dir, name)?;
        (inline::dir_remove(dir, &stored)?, stored)
    } else {
        let found = find(vol, dir, name)?.ok_or(FsError::NotFound)?;
        remove_from_block(vol, h, dir, name, &found)?
    };
    eligibility::note_name(h, dir, &stored, Some(ino), None);
    Ok(ino)
}

/// [`remove`] of a name that was just searched for.
pub(crate) fn remove_at(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    name: &[u8],
    spot: &Spot,
) -> Result<InodeNr> {
    let name = spot.on_disk(name);
    let Place::Found(found) = &spot.place else { return remove(vol, h, dir, name) };
    check_ordinary(name)?;
    vol.dentries.remove(dir.ino.0, name);
    let (ino, stored) = remove_from_block(vol, h, dir, name, found)?;
    eligibility::note_name(h, dir, &stored, Some(ino), None);
    Ok(ino)
}

/// Gives the inode, and the name that the entry had.
fn remove_from_block<'n>(
    vol: &Volume,
    h: &mut Handle,
    dir: &Node,
    name: &'n [u8],
    found: &Found,
) -> Result<(InodeNr, Cow<'n, [u8]>)> {
    let shape = Shape::of(vol, dir);
    let name = found.name(&shape, name)?;
    if found.kind == BlockKind::Leaf {
        note_room(h, &shape, &found.buf, None);
    }
    let removed = blocks::modify(h, &shape, &found.buf, found.kind, |bytes| {
        let area = shape.entries_mut(found.kind, bytes);
        match dirent::remove_at(area, found.hit.before, found.hit.at, &name) {
            Some(ino) => Ok(Some(ino)),
            None => dirent::remove(area, &name),
        }
    })?;
    let ino = removed.map_err(|e| shape.bad(e))?.ok_or(FsError::NotFound)?;
    Ok((ino, name))
}

/// The name as an inline directory has it.
fn name_inside<'n>(vol: &Volume, dir: &Node, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
    let shape = Shape::of(vol, dir);
    if !shape.has_spellings() {
        return Ok(Cow::Borrowed(name));
    }
    let sought = Sought::new(vol, dir, &shape, name)?;
    let entries = inline::dir_entries(vol, dir)?.entries;
    let its = entries.into_iter().find(|entry| sought.is(&entry.name, || None));
    its.map(|entry| Cow::Owned(entry.name)).ok_or(FsError::NotFound)
}

fn check_ordinary(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(FsError::Invalid("'.' and '..' cannot be removed"));
    }
    Ok(())
}

/// Lets a name, as it is on disk, lead to another inode. [`FsError::NotFound`] if it is not there.
pub(crate) fn replace(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    name: &[u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<()> {
    check_ordinary(name)?;
    vol.dentries.remove(dir.ino.0, name);
    let (old, stored) = if inline::is_inline(dir) {
        let stored = name_inside(vol, dir, name)?;
        (inline::dir_replace(vol, dir, &stored, ino, kind)?, stored)
    } else {
        point_to(vol, h, dir, name, ino, kind)?
    };
    eligibility::note_name(h, dir, &stored, Some(old), Some(ino));
    Ok(())
}

/// Gives the inode that it led to, and the name that the entry has.
fn point_to<'n>(
    vol: &Volume,
    h: &mut Handle,
    dir: &Node,
    name: &'n [u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<(InodeNr, Cow<'n, [u8]>)> {
    let found = find(vol, dir, name)?.ok_or(FsError::NotFound)?;
    let shape = Shape::of(vol, dir);
    let name = found.name(&shape, name)?;
    if found.kind == BlockKind::Leaf {
        note_room(h, &shape, &found.buf, None);
    }
    let replaced = blocks::modify(h, &shape, &found.buf, found.kind, |b| {
        dirent::replace(shape.entries_mut(found.kind, b), &name, ino, shape.stored_type(kind))
    })?;
    let old = replaced.map_err(|e| shape.bad(e))?.ok_or(FsError::NotFound)?;
    Ok((old, name))
}

/// Lets `..` lead to another directory.
pub(crate) fn set_dotdot(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    parent: InodeNr,
) -> Result<()> {
    if inline::is_inline(dir) {
        inline::dir_set_dotdot(dir, parent);
        return Ok(());
    }
    match point_to(vol, h, dir, b"..", parent, FileType::Directory) {
        Err(FsError::NotFound) => Err(Shape::of(vol, dir).corrupt("directory without '..'")),
        result => result.map(|_| ()),
    }
}

/// Makes an inode without contents an empty directory: one block, or inside the inode if the caller
/// has set its INLINE_DATA flag. Three credits, the inode not included: the block, its bitmap and
/// group descriptor.
pub(crate) fn init(vol: &Volume, h: &mut Handle, dir: &mut Node, parent: InodeNr) -> Result<()> {
    if inline::is_inline(dir) {
        return inline::dir_init(dir, parent);
    }
    let fresh = blocks::append(vol, h, dir, 1)?;
    let shape = Shape::of(vol, dir);
    let kind = shape.stored_type(FileType::Directory);
    for block in fresh {
        blocks::modify_leaf(h, &shape, &block.buf, |bytes| {
            dirent::init_dots(shape.area_mut(bytes), shape.ino, parent, kind);
        })?;
    }
    Ok(())
}
