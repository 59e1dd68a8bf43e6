//! Directories: names and the inodes they lead to.
//!
//! A directory is a file whose blocks hold entries. It exists in three forms:
//!
//! ```text
//!   inside the inode     ──full──►  linear: one block    ──full──►  indexed (dir_index): root, nodes, leaves
//!   (inline_data)                   of entries after               block 0 is the root, names are found by hash
//!                                   another                ──full──►  (no dir_index) more blocks
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `blocks` | reading blocks checked, changing them with their checksum, appending |
//! | `leaf`, `index` | a block of entries, an index node |
//! | `linear`, `htree` | the forms: finding and adding |
//! | `dentry_cache` | names that were looked up or made |
//! | `readdir`, `batch` | listing with cookies that stay valid |
//!
//! Rules of the house:
//! * The caller holds the directory's inode lock (exclusive for changes) and passes the inode in a
//!   [`Node`]. What changes in it (size, flags, block map) the caller writes back, once, in the
//!   same handle, also after an error.
//! * A change that fails for want of space changes nothing. `.` and `..` are no ordinary names:
//!   only [`init`] and [`set_dotdot`] write them.
//! * One bad block, entry or node hides nothing but itself: listings and searches go on behind it,
//!   and then end with the error if something is missing. What adds or empties goes no further than
//!   the damage.
//! * A directory whose index makes no sense is still read, from one end to the other. Names can
//!   then be removed. They can be added only without metadata_csum (the index is given up, as an
//!   implementation without it would): with it the volume must be repaired first.
//! * Holes are read as blocks without entries, and filled when a name is added.

mod batch;
mod blocks;
mod dentry_cache;
mod htree;
mod index;
mod leaf;
mod linear;
mod readdir;

use std::sync::Arc;

use extol_jbd2::{Buf, Handle};
use extol_ondisk::dirent::{self, MAX_NAME, NewEntry};
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_vfs::{DirEntry, FileKind, FsError, Result};

use crate::fast_commit::eligibility;
use crate::inline;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;
use blocks::{BlockKind, Blocks, Shape};
pub(crate) use dentry_cache::{Dentry, DentryCache};
use htree::IndexError;
use leaf::Hit;

/// Where a name was found.
struct Found {
    buf: Arc<Buf>,
    kind: BlockKind,
    hit: Hit,
}

/// Where a name could be put that was not found.
struct Vacant {
    buf: Arc<Buf>,
    /// The entry that has room.
    room: usize,
}

/// What a search found: the name, or perhaps a place for it.
enum Place {
    Found(Found),
    Vacant(Option<Vacant>),
}

/// Looks for a name in one leaf; a hole has none. In a damaged one it may be found, but it is never
/// missing.
fn scan_leaf(blocks: &mut Blocks<'_, '_>, lblk: u32, name: &[u8]) -> Result<Place> {
    let Some((buf, problem)) = blocks.leaf_to_list(lblk)? else { return Ok(Place::Vacant(None)) };
    if let Some(problem) = problem {
        let found = leaf::scan(blocks.shape.area(&buf.data()), &blocks.shape, name)
            .ok()
            .and_then(|s| s.found);
        let hit = found.filter(|hit| blocks.shape.inode(hit.ino).is_ok()).ok_or(problem)?;
        return Ok(Place::Found(Found { buf, kind: BlockKind::Leaf, hit }));
    }
    let scan = leaf::scan(blocks.shape.area(&buf.data()), &blocks.shape, name)?;
    Ok(match scan.found {
        Some(hit) => Place::Found(Found { buf, kind: BlockKind::Leaf, hit }),
        None => Place::Vacant(scan.room.map(|room| Vacant { buf, room })),
    })
}

/// Notes that a leaf is going to be changed, for fast commits.
fn note_room(h: &mut Handle, shape: &Shape<'_>, buf: &Buf, added: Option<&[u8]>) {
    eligibility::room(h, shape.ino, shape.leaf(buf), buf, |bytes| shape.area(bytes), added);
}

/// Adds an entry to a leaf that has room for it.
fn put_in_leaf(
    h: &mut Handle,
    shape: &Shape<'_>,
    vacant: &Vacant,
    new: NewEntry<'_>,
) -> Result<()> {
    note_room(h, shape, &vacant.buf, Some(new.name));
    let added = blocks::modify_leaf(h, shape, &vacant.buf, |bytes| {
        dirent::add_at(shape.area_mut(bytes), vacant.room, new.name, new.ino, new.file_type)
    })?;
    if !added.map_err(|e| shape.bad(e))? {
        return Err(shape.corrupt("no room in a directory block that had room"));
    }
    Ok(())
}

/// Finds a name, or a place where [`add`] would put it without more ado.
fn seek_in_blocks(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Place> {
    let mut blocks = Blocks::new(vol, dir);
    if matches!(name, b"." | b"..") {
        return linear::find_dots(&mut blocks, name);
    }
    let mut damage = None;
    if blocks.shape.searchable && blocks.shape.blocks > 0 {
        match htree::find(&mut blocks, name) {
            Ok(place) => return Ok(place),
            // The name may be in a leaf to which a damaged node led.
            Err(IndexError::Fs(e @ FsError::Corrupt { .. })) => damage = Some(e),
            Err(IndexError::Fs(e)) => return Err(e),
            Err(IndexError::Structure(_)) => {}
        }
    }
    let place = linear::find(&mut blocks, name)?;
    if let (Place::Vacant(_), Some(e)) = (&place, damage) {
        return Err(e);
    }
    match place {
        // The index is given up before a name is added.
        Place::Vacant(_) if dir.raw.flags.contains(InodeFlags::INDEX) => Ok(Place::Vacant(None)),
        place => Ok(place),
    }
}

fn find(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    match seek_in_blocks(vol, dir, name)? {
        Place::Found(found) => Ok(Some(found)),
        Place::Vacant(_) => Ok(None),
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(FsError::Invalid("empty name")),
        1..=MAX_NAME => Ok(()),
        _ => Err(FsError::NameTooLong),
    }
}

fn is_inline(dir: &Node) -> bool {
    dir.raw.flags.contains(InodeFlags::INLINE_DATA)
}

fn kind_of(file_type: Option<FileType>) -> Option<FileKind> {
    Some(match file_type? {
        FileType::Regular => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::Symlink => FileKind::Symlink,
    })
}

/// An entry: the inode, and its type where the volume records types.
type Entry = (InodeNr, Option<FileType>);

/// What one search found out about a name, so that a change of it need not search again. Good as
/// long as the caller keeps the directory locked and changes nothing else in it.
pub(crate) struct Spot {
    /// Where the name leads.
    pub entry: Option<Entry>,
    place: Place,
}

/// Finds a name, or where to put it.
pub(crate) fn seek(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Spot> {
    check_name(name)?;
    if is_inline(dir) {
        let inside = inline::dir_entries(vol, dir)?;
        let entry = match name {
            b"." => Some((dir.ino, Some(FileType::Directory))),
            b".." => Some((inside.parent, Some(FileType::Directory))),
            _ => inside.entries.iter().find(|e| e.name == name).map(|e| (e.ino, Some(e.kind))),
        };
        return Ok(Spot { entry, place: Place::Vacant(None) });
    }
    let place = seek_in_blocks(vol, dir, name)?;
    let entry = match &place {
        Place::Found(found) => {
            Some((Shape::of(vol, dir).inode(found.hit.ino)?, found.hit.file_type))
        }
        Place::Vacant(_) => None,
    };
    Ok(Spot { entry, place })
}

/// Finds a name: the inode, and its type where the volume records types.
pub(crate) fn lookup(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Option<Entry>> {
    seek(vol, dir, name).map(|spot| spot.entry)
}

/// Journal credits that [`add`] needs, the directory's inode not included: the leaf and the index
/// nodes above it, and for every block that may be appended the block itself, a bitmap, a group
/// descriptor and the change of the block map.
pub(crate) fn credits_add(vol: &Volume, dir: &Node) -> u32 {
    let depth = u32::from(extol_ondisk::htree::max_levels(&vol.geo)) + 1;
    let appended = htree::MAX_NEW.max(linear::MAX_NEW);
    1 + depth + appended * (3 + insert_credits(vol, dir))
}

/// Journal credits that [`remove`], [`replace`] and [`set_dotdot`] need, the directory's inode not
/// included: one block.
pub(crate) fn credits_remove() -> u32 {
    1
}

fn insert_credits(vol: &Volume, dir: &Node) -> u32 {
    map::credits_for_insert(dir, 1, vol.geo.block_size.bytes())
}

/// Adds a name. [`FsError::Exists`] if it is there already.
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
    let new = NewEntry { name, ino, file_type: shape.stored_type(kind) };
    if !is_inline(dir) {
        add_to_blocks(vol, h, dir, new)?;
    } else if lookup(vol, dir, name)?.is_some() {
        return Err(FsError::Exists);
    } else if !inline::dir_add(vol, h, dir, name, ino, kind)? {
        add_outside(vol, h, dir, new)?;
    }
    eligibility::note_name(h, dir, name, None, Some(ino));
    Ok(())
}

/// [`add`] of a name that was just looked for. True if it went where there was room, and every
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
    let Place::Vacant(Some(vacant)) = &spot.place else {
        return add(vol, h, dir, name, ino, kind).map(|()| false);
    };
    vol.dentries.remove(dir.ino.0, name);
    let shape = Shape::of(vol, dir);
    let new = NewEntry { name, ino, file_type: shape.stored_type(kind) };
    put_in_leaf(h, &shape, vacant, new)?;
    eligibility::note_name(h, dir, name, None, Some(ino));
    Ok(true)
}

fn add_to_blocks(vol: &Volume, h: &mut Handle, dir: &mut Node, new: NewEntry<'_>) -> Result<()> {
    let shape = Shape::of(vol, dir);
    if shape.indexed && !shape.searchable {
        return Err(FsError::NotSupported("adding to a case-insensitive directory"));
    }
    if shape.searchable {
        return match htree::add(vol, h, dir, new) {
            Err(IndexError::Structure(_)) if shape.seed.is_none() => {
                dir.raw.flags.remove(InodeFlags::INDEX);
                linear::add(vol, h, dir, new, false)
            }
            result => result.map_err(|e| e.into_fs(&shape)),
        };
    }
    if !shape.dir_index {
        // Left by somebody who had the feature; the index would not follow our changes.
        dir.raw.flags.remove(InodeFlags::INDEX);
    }
    linear::add(vol, h, dir, new, true)
}

/// Adds a name to a directory that has no more room in its inode: all entries move to a block.
fn add_outside(vol: &Volume, h: &mut Handle, dir: &mut Node, new: NewEntry<'_>) -> Result<()> {
    let inside = inline::dir_entries(vol, dir)?;
    let before = dir.raw.clone();
    let shape = Shape::of(vol, dir);
    let moved = (|| {
        inline::dir_drop(vol, h, dir)?;
        init(vol, h, dir, inside.parent)?;
        for entry in &inside.entries {
            let old = NewEntry {
                name: &entry.name,
                ino: entry.ino,
                file_type: shape.stored_type(entry.kind),
            };
            add_to_blocks(vol, h, dir, old)?;
        }
        add_to_blocks(vol, h, dir, new)
    })();
    if moved.is_err() {
        if !is_inline(dir) {
            let _ = map::remove(vol, h, dir, 0, blocks::count(vol, dir), map::Discard::Free)?;
        }
        dir.raw = before;
    }
    moved
}

/// Removes a name and gives the inode it led to. [`FsError::NotFound`] if it is not there.
pub(crate) fn remove(vol: &Volume, h: &mut Handle, dir: &mut Node, name: &[u8]) -> Result<InodeNr> {
    check_ordinary(name)?;
    vol.dentries.remove(dir.ino.0, name);
    let ino = if is_inline(dir) {
        inline::dir_remove(vol, h, dir, name)?
    } else {
        let found = find(vol, dir, name)?.ok_or(FsError::NotFound)?;
        remove_from_block(vol, h, dir, name, &found)?
    };
    eligibility::note_name(h, dir, name, Some(ino), None);
    Ok(ino)
}

/// [`remove`] of a name that was just looked for.
pub(crate) fn remove_at(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    name: &[u8],
    spot: &Spot,
) -> Result<InodeNr> {
    let Place::Found(found) = &spot.place else { return remove(vol, h, dir, name) };
    check_ordinary(name)?;
    vol.dentries.remove(dir.ino.0, name);
    let ino = remove_from_block(vol, h, dir, name, found)?;
    eligibility::note_name(h, dir, name, Some(ino), None);
    Ok(ino)
}

fn remove_from_block(
    vol: &Volume,
    h: &mut Handle,
    dir: &Node,
    name: &[u8],
    found: &Found,
) -> Result<InodeNr> {
    let shape = Shape::of(vol, dir);
    if found.kind == BlockKind::Leaf {
        note_room(h, &shape, &found.buf, None);
    }
    let removed = blocks::modify(h, &shape, &found.buf, found.kind, |bytes| {
        let area = shape.entries_mut(found.kind, bytes);
        match dirent::remove_at(area, found.hit.before, found.hit.at, name) {
            Some(ino) => Ok(Some(ino)),
            None => dirent::remove(area, name),
        }
    })?;
    removed.map_err(|e| shape.bad(e))?.ok_or(FsError::NotFound)
}

fn check_ordinary(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if matches!(name, b"." | b"..") {
        return Err(FsError::Invalid("'.' and '..' cannot be removed"));
    }
    Ok(())
}

/// Lets a name lead to another inode. [`FsError::NotFound`] if it is not there.
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
    let old = if is_inline(dir) {
        inline::dir_replace(vol, h, dir, name, ino, kind)?
    } else {
        point_to(vol, h, dir, name, ino, kind)?
    };
    eligibility::note_name(h, dir, name, Some(old), Some(ino));
    Ok(())
}

fn point_to(
    vol: &Volume,
    h: &mut Handle,
    dir: &Node,
    name: &[u8],
    ino: InodeNr,
    kind: FileType,
) -> Result<InodeNr> {
    let found = find(vol, dir, name)?.ok_or(FsError::NotFound)?;
    let shape = Shape::of(vol, dir);
    if found.kind == BlockKind::Leaf {
        note_room(h, &shape, &found.buf, None);
    }
    let replaced = blocks::modify(h, &shape, &found.buf, found.kind, |b| {
        dirent::replace(shape.entries_mut(found.kind, b), name, ino, shape.stored_type(kind))
    })?;
    replaced.map_err(|e| shape.bad(e))?.ok_or(FsError::NotFound)
}

/// Lets `..` lead to another directory.
pub(crate) fn set_dotdot(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    parent: InodeNr,
) -> Result<()> {
    if is_inline(dir) {
        return inline::dir_set_dotdot(vol, h, dir, parent);
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
    if is_inline(dir) {
        return inline::dir_init(vol, h, dir, parent);
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

/// True if the directory has no names but `.` and `..`.
pub(crate) fn is_empty(vol: &Volume, dir: &Node) -> Result<bool> {
    if is_inline(dir) {
        return Ok(inline::dir_entries(vol, dir)?.entries.is_empty());
    }
    let mut blocks = Blocks::new(vol, dir);
    if blocks.shape.blocks == 0 {
        return Err(blocks.shape.corrupt("directory without blocks"));
    }
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        if let Some((buf, BlockKind::Leaf)) = blocks.any(lblk)?
            && !dirent::is_empty(blocks.shape.area(&buf.data())).map_err(|e| blocks.shape.bad(e))?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How many names of `len` bytes fit into the blocks of a directory without an index. `None` if it
/// has another form, or a name that begins with `taken`.
pub(crate) fn places(vol: &Volume, dir: &Node, len: usize, taken: u8) -> Result<Option<u32>> {
    let mut blocks = Blocks::new(vol, dir);
    if is_inline(dir) || blocks.shape.indexed {
        return Ok(None);
    }
    let mut places = 0;
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        let Some(buf) = blocks.leaf(lblk)? else { continue };
        for entry in dirent::iter(blocks.shape.area(&buf.data())) {
            let entry = entry.map_err(|e| blocks.shape.bad(e))?;
            if entry.is_used() && entry.name.first() == Some(&taken) {
                return Ok(None);
            }
            places += (entry.rec_len - entry.used_len()) / dirent::entry_len(len);
        }
    }
    Ok(u32::try_from(places).ok())
}

/// Hands the entries behind `cookie` (0: all) to `each` until it returns false; `.` and `..` come
/// first. An entry that `each` refused counts as not taken: the cookie of the one before it leads
/// to it again. Whatever is added or removed between two calls, every name that is there all the
/// time is listed exactly once.
///
/// # Errors
/// What could not be read, after everything that could.
pub(crate) fn iterate(
    vol: &Volume,
    dir: &Node,
    cookie: u64,
    each: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    readdir::iterate(vol, dir, cookie, each)
}

#[cfg(test)]
mod tests;
