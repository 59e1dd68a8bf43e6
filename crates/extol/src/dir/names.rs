//! Names in encrypted directories: what users call an entry, and the name it has on disk.
//!
//! As long as the key is not there, the directory is listed under [no-key names](NoKeyName), and
//! its entries are found, and removed, by them.

use std::borrow::Cow;

use extol_fscrypt::{FileKey, MIN_NAME, NoKeyName, decrypted_name, encrypted_name};
use extol_ondisk::dirent::{self, MAX_NAME};
use extol_ondisk::htree::NameHash;
use extol_vfs::{FsError, Result};

use super::blocks::Blocks;
use super::shape::Shape;
use crate::encrypted;
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

/// The name of an entry on disk.
pub(super) struct Stored<'n> {
    pub name: Cow<'n, [u8]>,
    /// Its hash, as a no-key name says it.
    pub hash: Option<NameHash>,
}

/// The name that an entry has on disk which users call `name`. None: no entry is called this.
pub(super) fn stored<'n>(vol: &Volume, dir: &Node, name: &'n [u8]) -> Result<Option<Stored<'n>>> {
    if !encrypted::is_encrypted(dir) || matches!(name, b"." | b"..") {
        return Ok(Some(Stored { name: Cow::Borrowed(name), hash: None }));
    }
    if let Some(key) = encrypted::names_key(vol, dir)? {
        let name = encrypted_name(&key, name, MAX_NAME);
        return Ok(name.map(|name| Stored { name: Cow::Owned(name), hash: None }));
    }
    let Some(shown) = NoKeyName::parse(name) else { return Ok(None) };
    let [hash, minor] = shown.hash;
    let hash = Some(NameHash { hash, minor });
    if let Some(whole) = shown.whole() {
        // (Shorter ones are not listed, and could be `..`.)
        let whole = (whole.len() >= MIN_NAME).then(|| whole.to_vec());
        return Ok(whole.map(|name| Stored { name: Cow::Owned(name), hash }));
    }
    // The rest of it is only known by its hash.
    Ok(search(vol, dir, &shown)?.map(|name| Stored { name: Cow::Owned(name), hash }))
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

/// The name of an entry.
pub(super) fn plain(shape: &Shape<'_>, key: &FileKey, stored: &[u8]) -> Result<Vec<u8>> {
    let name = decrypted_name(key, stored).map_err(|e| shape.corrupt(e.to_string()))?;
    if !dirent::is_legal_name(&name) || matches!(&name[..], b"." | b"..") {
        return Err(shape.corrupt("an encrypted name that is none"));
    }
    Ok(name)
}
