//! Names in encrypted directories, as long as their key is not there.
//!
//! Such a directory is listed under [no-key names](NoKeyName), and its entries are found, and
//! removed, by them. No name can be added.

use std::borrow::Cow;

use extol_fscrypt::{MIN_NAME, NoKeyName};
use extol_ondisk::{InodeFlags, dirent};
use extol_vfs::{FsError, Result};

use super::blocks::Blocks;
use super::shape::Shape;
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

/// True if the names in a directory are encrypted.
pub(crate) fn is_encrypted(dir: &Node) -> bool {
    dir.raw.flags.contains(InodeFlags::ENCRYPT)
}

/// The name that an entry has on disk, whose directory lists it as `name`. None: no entry is listed
/// as this.
pub(super) fn stored<'n>(
    vol: &Volume,
    dir: &Node,
    name: &'n [u8],
) -> Result<Option<Cow<'n, [u8]>>> {
    if !is_encrypted(dir) || matches!(name, b"." | b"..") {
        return Ok(Some(Cow::Borrowed(name)));
    }
    let Some(shown) = NoKeyName::parse(name) else { return Ok(None) };
    if let Some(whole) = shown.whole() {
        // (Shorter ones are not listed, and could be `..`.)
        let whole = (whole.len() >= MIN_NAME).then(|| whole.to_vec());
        return Ok(whole.map(Cow::Owned));
    }
    // The rest of it is only known by its hash.
    Ok(search(vol, dir, &shown)?.map(Cow::Owned))
}

/// Searches all entries. Damage hides only what is in the same block.
fn search(vol: &Volume, dir: &Node, shown: &NoKeyName) -> Result<Option<Vec<u8>>> {
    if inline::is_inline(dir) {
        let inside = inline::dir_entries(vol, dir)?.entries;
        return Ok(inside.into_iter().map(|entry| entry.name).find(|name| shown.matches(name)));
    }
    let mut blocks = Blocks::new(vol, dir);
    let mut damage = None;
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        match search_leaf(&mut blocks, lblk, shown) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error @ FsError::Corrupt { .. }) => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    damage.map_or(Ok(None), Err)
}

fn search_leaf(
    blocks: &mut Blocks<'_, '_>,
    lblk: u32,
    shown: &NoKeyName,
) -> Result<Option<Vec<u8>>> {
    if blocks.index_node(lblk)?.is_some() {
        return Ok(None);
    }
    let Some((buf, problem)) = blocks.leaf_to_list(lblk)? else { return Ok(None) };
    let data = buf.data();
    for entry in dirent::iter(blocks.shape.area(&data)) {
        let entry = entry.map_err(|e| blocks.shape.bad(e))?;
        if entry.is_used() && shown.matches(entry.name) {
            return Ok(Some(entry.name.to_vec()));
        }
    }
    problem.map_or(Ok(None), Err)
}

/// How an entry is shown whose directory hashes it to this.
pub(super) fn shown(shape: &Shape<'_>, stored: &[u8], hash: [u32; 2]) -> Result<Vec<u8>> {
    NoKeyName::shown(hash, stored).map_err(|e| shape.corrupt(e.to_string()))
}
