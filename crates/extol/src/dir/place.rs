//! Where a name is in the blocks of a directory, or where it could be put.

use std::borrow::Cow;
use std::sync::Arc;

use extol_jbd2::{Buf, Handle};
use extol_ondisk::dirent::{self, NewEntry};
use extol_vfs::Result;

use super::blocks::{self, Blocks};
use super::leaf::{self, Hit};
use super::shape::{BlockKind, Shape};
use super::sought::Sought;
use crate::fast_commit::eligibility;

/// Where a name is.
pub(super) struct Found {
    pub buf: Arc<Buf>,
    pub kind: BlockKind,
    pub hit: Hit,
}

impl Found {
    /// The name that the entry has: in a casefolded directory perhaps not the one that was asked
    /// for.
    pub fn name<'n>(&self, shape: &Shape<'_>, asked: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if !shape.has_spellings() {
            return Ok(Cow::Borrowed(asked));
        }
        let data = self.buf.data();
        let area = match self.kind {
            BlockKind::Leaf => shape.area(&data),
            BlockKind::Index(_) => &data[..],
        };
        let entry = dirent::entry_at(area, self.hit.at).map_err(|e| shape.bad(e))?;
        Ok(Cow::Owned(entry.name.to_vec()))
    }
}

/// Where a missing name could be put.
pub(super) struct Vacant {
    pub buf: Arc<Buf>,
    /// The entry that has room.
    pub room: usize,
}

/// What a search found: the name, or perhaps room for it.
pub(super) enum Place {
    Found(Found),
    Vacant(Option<Vacant>),
}

/// Searches one leaf; a hole has no names. In a damaged leaf a name may be found, but is never
/// missing.
pub(super) fn scan_leaf(
    blocks: &mut Blocks<'_, '_>,
    lblk: u32,
    sought: &Sought<'_>,
) -> Result<Place> {
    let Some((buf, problem)) = blocks.leaf_to_list(lblk)? else { return Ok(Place::Vacant(None)) };
    if let Some(problem) = problem {
        let found = leaf::scan(blocks.shape.area(&buf.data()), &blocks.shape, sought)
            .ok()
            .and_then(|s| s.found);
        let hit = found.filter(|hit| blocks.shape.inode(hit.ino).is_ok()).ok_or(problem)?;
        return Ok(Place::Found(Found { buf, kind: BlockKind::Leaf, hit }));
    }
    let scan = leaf::scan(blocks.shape.area(&buf.data()), &blocks.shape, sought)?;
    Ok(match scan.found {
        Some(hit) => Place::Found(Found { buf, kind: BlockKind::Leaf, hit }),
        None => {
            let room = scan.room.filter(|_| !scan.is_filled(&blocks.shape, sought.name));
            Place::Vacant(room.map(|room| Vacant { buf, room }))
        }
    })
}

/// Notes for fast commits that a leaf is about to change.
pub(super) fn note_room(h: &mut Handle, shape: &Shape<'_>, buf: &Buf, added: Option<&[u8]>) {
    eligibility::room(h, shape.ino, shape.leaf(buf), buf, |bytes| shape.area(bytes), added);
}

/// Adds an entry to a leaf that has room for it.
pub(super) fn put_in_leaf(
    h: &mut Handle,
    shape: &Shape<'_>,
    vacant: &Vacant,
    new: NewEntry<'_>,
) -> Result<()> {
    note_room(h, shape, &vacant.buf, Some(new.name));
    let added = blocks::modify_leaf(h, shape, &vacant.buf, |bytes| {
        dirent::add_at(shape.area_mut(bytes), vacant.room, &new)
    })?;
    if !added.map_err(|e| shape.bad(e))? {
        return Err(shape.corrupt("no room in a directory block that had room"));
    }
    Ok(())
}
