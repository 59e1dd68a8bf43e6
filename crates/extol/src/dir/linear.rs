//! Directories without an index, or with one that cannot be used: every block is searched.

use extol_jbd2::Handle;
use extol_ondisk::dirent::NewEntry;
use extol_vfs::{FsError, Result};

use super::blocks::{self, Blocks};
use super::place::{Found, Place, Vacant, note_room, put_in_leaf, scan_leaf};
use super::shape::BlockKind;
use super::sought::Sought;
use super::{htree, leaf};
use crate::node::Node;
use crate::volume::Volume;

/// Most blocks that adding one name appends: the two leaves of a new index.
pub(super) const MAX_NEW: u32 = 2;

/// Most unreadable blocks behind which a search goes on: the device may take long over each.
const MAX_UNREADABLE: u32 = 64;

/// Finds a name other than `.` and `..`, or the first leaf with room for it.
///
/// # Errors
/// A damaged block does not hide names in others: the search goes on behind it. Only if it finds
/// nothing is that an error, since the name may be in that block.
pub(super) fn find(blocks: &mut Blocks<'_, '_>, sought: &Sought<'_>) -> Result<Place> {
    let mut vacant = None;
    let mut damage = None;
    let mut unreadable_left = MAX_UNREADABLE;
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        match find_in(blocks, lblk, sought) {
            Ok(Place::Vacant(here)) => vacant = vacant.or(here),
            Ok(found) => return Ok(found),
            Err(error @ FsError::Corrupt { .. }) => {
                damage.get_or_insert(error);
            }
            Err(error @ FsError::Io(_)) if unreadable_left > 0 => {
                unreadable_left -= 1;
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    damage.map_or(Ok(Place::Vacant(vacant)), Err)
}

fn find_in(blocks: &mut Blocks<'_, '_>, lblk: u32, sought: &Sought<'_>) -> Result<Place> {
    // An index node holds no names.
    if blocks.index_node(lblk)?.is_some() {
        return Ok(Place::Vacant(None));
    }
    scan_leaf(blocks, lblk, sought)
}

/// Finds `.` or `..`, which only the first block has.
pub(super) fn find_dots(blocks: &mut Blocks<'_, '_>, name: &[u8]) -> Result<Place> {
    let Some((buf, kind)) = blocks.any(0)? else { return Ok(Place::Vacant(None)) };
    let data = buf.data();
    let area = match kind {
        BlockKind::Leaf => blocks.shape.area(&data),
        BlockKind::Index(_) => &data[..],
    };
    let found = leaf::scan(area, &blocks.shape, &Sought::exactly(name))?.found;
    drop(data);
    Ok(found.map_or(Place::Vacant(None), |hit| Place::Found(Found { buf, kind, hit })))
}

enum Room {
    /// A place for the name, and whether its leaf is filled.
    Leaf(Vacant, bool),
    Hole(u32),
    None,
}

/// Adds a name: where there is room, else in a hole, else in an index built for it (with
/// `may_index`), else in a new block.
pub(super) fn add(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    new: NewEntry<'_>,
    may_index: bool,
) -> Result<()> {
    let mut blocks = Blocks::new(vol, dir);
    let shape = blocks.shape;
    let count = blocks.shape.blocks;
    if count == 0 {
        return Err(shape.corrupt("directory without blocks"));
    }
    let may_index = count == 1 && may_index && shape.dir_index;
    let sought = Sought::new(vol, blocks.dir(), &shape, new.name)?;
    let fresh = match find_room(&mut blocks, &sought)? {
        Room::Leaf(vacant, is_filled) => {
            if may_index && is_filled {
                match htree::build(vol, h, dir, new) {
                    Ok(true) => return Ok(()),
                    Ok(false) | Err(FsError::NoSpace) => {}
                    Err(e) => return Err(e),
                }
            }
            return put_in_leaf(h, &shape, &vacant, new);
        }
        Room::Hole(lblk) => blocks::fill(vol, h, dir, &[lblk])?,
        Room::None => {
            if may_index && htree::build(vol, h, dir, new)? {
                return Ok(());
            }
            blocks::append(vol, h, dir, 1)?
        }
    };
    for block in fresh {
        note_room(h, &shape, &block.buf, Some(new.name));
        let only = [leaf::Hashed { hash: 0, entry: new }];
        blocks::modify_leaf(h, &shape, &block.buf, |bytes| leaf::fill(bytes, &shape, &only))?;
    }
    Ok(())
}

/// The first leaf with room for a name, else the first hole. [`FsError::Exists`] if the name is
/// there. Damage ends the search.
fn find_room(blocks: &mut Blocks<'_, '_>, sought: &Sought<'_>) -> Result<Room> {
    let shape = blocks.shape;
    let mut room = Room::None;
    let mut at = 0;
    while at < shape.blocks {
        let next = blocks.next(at)?;
        if next != Some(at) && matches!(room, Room::None) {
            room = Room::Hole(at);
        }
        let Some(lblk) = next else { break };
        at = lblk + 1;
        let Some(buf) = blocks.leaf(lblk)? else { continue };
        let scan = leaf::scan(shape.area(&buf.data()), &shape, sought)?;
        if scan.found.is_some() {
            return Err(FsError::Exists);
        }
        if let Some(at) = scan.room
            && !matches!(room, Room::Leaf(..))
        {
            let is_filled = scan.is_filled(&shape, sought.name);
            room = Room::Leaf(Vacant { buf, room: at }, is_filled);
        }
    }
    Ok(room)
}
