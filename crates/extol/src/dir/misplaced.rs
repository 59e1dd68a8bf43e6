//! Names that are not where their hash says.
//!
//! Linux 6.12, and what got the same change, folded names without leaving out what Unicode calls
//! ignorable. A name that has such a code point was put into the index by another hash than that
//! of its folded form now. Linux since 6.15 searches all of a casefolded directory when its index
//! does not have a name, unless the superblock says that there are no such names. Each new name
//! would cost that, so a directory is looked through once: nothing that Extol adds is misplaced.
//! (e2fsck takes such a name for a damaged index, and puts it where it belongs.) In a directory
//! that is encrypted too, where hashes stand behind names, such a name is not searched for.

use extol_ondisk::dirent;
use extol_vfs::{FsError, Result};

use super::blocks::Blocks;
use super::place::{Found, Place};
use super::sought::Sought;
use super::{htree, linear};

/// Finds a name that the index of a directory does not have where it belongs.
pub(super) fn find(blocks: &mut Blocks<'_, '_>, sought: &Sought<'_>) -> Result<Option<Found>> {
    let shape = blocks.shape;
    if !shape.folds || !shape.geo.has_other_folding || sought.is_bytes() || !has_any(blocks)? {
        return Ok(None);
    }
    match linear::find(blocks, sought)? {
        Place::Found(found) => Ok(Some(found)),
        Place::Vacant(_) => Ok(None),
    }
}

/// True if the directory has a misplaced name. What is damaged in it hides none but its own.
fn has_any(blocks: &mut Blocks<'_, '_>) -> Result<bool> {
    let dir = (blocks.dir().ino.0, blocks.dir().raw.generation);
    let known = &blocks.vol.misplaced;
    if let Some(known) = known.get(dir) {
        return Ok(known);
    }
    let has_any = match look_through(blocks) {
        Err(FsError::Corrupt { .. } | FsError::Io(_)) => return Ok(false),
        has_any => has_any?,
    };
    known.insert(dir, has_any);
    Ok(has_any)
}

fn look_through(blocks: &mut Blocks<'_, '_>) -> Result<bool> {
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        if blocks.index_node(lblk)?.is_some() {
            continue;
        }
        let Some(buf) = blocks.leaf(lblk)? else { continue };
        let data = buf.data();
        for entry in dirent::iter(blocks.shape.area(&data)) {
            let entry = entry.map_err(|e| blocks.shape.bad(e))?;
            if !entry.is_used() || !extol_casefold::has_ignored(entry.name) {
                continue;
            }
            let sought = Sought::folded(entry.name);
            let is_there = matches!(htree::find(blocks, &sought),
                Ok(Place::Found(found)) if found.buf.nr() == buf.nr());
            if !is_there {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
