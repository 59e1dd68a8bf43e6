//! Finding names in a directory of any form.

use std::borrow::Cow;

use extol_ondisk::dirent::{self, MAX_NAME};
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use super::blocks::Blocks;
use super::htree;
use super::index_path::IndexError;
use super::place::{Found, Place};
use super::shape::{BlockKind, Shape};
use super::sought::Sought;
use super::{linear, misplaced, names};
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(FsError::Invalid("empty name")),
        1..=MAX_NAME => Ok(()),
        _ => Err(FsError::NameTooLong),
    }
}

/// An entry: the inode, and its type where the volume records types.
type Entry = (InodeNr, Option<FileType>);

/// The result of a search, so that a change of the name need not search again. Valid as long as the
/// caller keeps the directory locked and changes nothing else in it.
pub(crate) struct Spot {
    /// Where the name leads.
    pub entry: Option<Entry>,
    pub(super) place: Place,
    /// The name on disk, if it is another one.
    pub(super) stored: Option<Vec<u8>>,
}

impl Spot {
    /// The name on disk of what users call `name`, for which this was found.
    pub fn on_disk<'n>(&'n self, name: &'n [u8]) -> &'n [u8] {
        self.stored.as_deref().unwrap_or(name)
    }
}

/// Finds a name, or room for it.
pub(crate) fn seek(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Spot> {
    check_name(name)?;
    let Some(stored) = names::stored(vol, dir, name)? else {
        return Ok(Spot { entry: None, place: Place::Vacant(None), stored: None });
    };
    let shape = Shape::of(vol, dir);
    let sought = Sought::new(vol, dir, &shape, &stored.name)?.with_hash(stored.hash);
    let spot = seek_stored(vol, dir, &sought)?;
    Ok(match stored.name {
        Cow::Borrowed(_) => spot,
        Cow::Owned(on_disk) => Spot { stored: Some(on_disk), ..spot },
    })
}

/// [`seek`] of a name as it is on disk.
fn seek_stored(vol: &Volume, dir: &Node, sought: &Sought<'_>) -> Result<Spot> {
    let shape = Shape::of(vol, dir);
    sought.check(&shape)?;
    if inline::is_inline(dir) {
        let inside = inline::dir_entries(vol, dir)?;
        let entry = match sought.name {
            b"." => Some((dir.ino, Some(FileType::Directory))),
            b".." => Some((inside.parent, Some(FileType::Directory))),
            _ => {
                let mut entries = inside.entries.iter();
                entries.find(|e| sought.is(&e.name, || None)).map(|e| (e.ino, Some(e.kind)))
            }
        };
        return Ok(Spot { entry, place: Place::Vacant(None), stored: None });
    }
    let place = seek_in_blocks(vol, dir, sought)?;
    let entry = match &place {
        Place::Found(found) => Some((shape.inode(found.hit.ino)?, found.hit.file_type)),
        Place::Vacant(_) => None,
    };
    Ok(Spot { entry, place, stored: None })
}

/// Finds a name: the inode, and its type where the volume records types.
pub(crate) fn lookup(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Option<Entry>> {
    seek(vol, dir, name).map(|spot| spot.entry)
}

/// Finds a name as it is on disk, which may be encrypted.
pub(crate) fn lookup_stored(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Option<Entry>> {
    check_name(name)?;
    let sought = Sought::new(vol, dir, &Shape::of(vol, dir), name)?;
    seek_stored(vol, dir, &sought).map(|spot| spot.entry)
}

pub(super) fn find(vol: &Volume, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    let sought = Sought::new(vol, dir, &Shape::of(vol, dir), name)?;
    match seek_in_blocks(vol, dir, &sought)? {
        Place::Found(found) => Ok(Some(found)),
        Place::Vacant(_) => Ok(None),
    }
}

/// Finds a name, or room where [`add`](super::add) would put it.
fn seek_in_blocks(vol: &Volume, dir: &Node, sought: &Sought<'_>) -> Result<Place> {
    let mut blocks = Blocks::new(vol, dir);
    if matches!(sought.name, b"." | b"..") {
        return linear::find_dots(&mut blocks, sought.name);
    }
    let mut damage = None;
    if blocks.shape.indexed && blocks.shape.blocks > 0 {
        match htree::find(&mut blocks, sought) {
            Ok(Place::Vacant(room)) => {
                let found = misplaced::find(&mut blocks, sought)?;
                return Ok(found.map_or(Place::Vacant(room), Place::Found));
            }
            Ok(found) => return Ok(found),
            // The name may be in a leaf to which a damaged node led.
            Err(IndexError::Other(e @ FsError::Corrupt { .. })) => damage = Some(e),
            Err(IndexError::Other(e)) => return Err(e),
            Err(IndexError::Structure(_) | IndexError::NoHash) => {}
        }
    }
    let place = linear::find(&mut blocks, sought)?;
    if let (Place::Vacant(_), Some(e)) = (&place, damage) {
        return Err(e);
    }
    match place {
        // The index is dropped before a name is added (DR-4).
        Place::Vacant(_) if dir.raw.flags.contains(InodeFlags::INDEX) => Ok(Place::Vacant(None)),
        place => Ok(place),
    }
}

/// True if the directory has no names but `.` and `..`.
pub(crate) fn is_empty(vol: &Volume, dir: &Node) -> Result<bool> {
    if inline::is_inline(dir) {
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
    if inline::is_inline(dir) || blocks.shape.indexed {
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
