//! What the dentry cache may know of a directory: nothing, if the directory is casefolded (DR-7) or
//! encrypted. One of its names stands for many, and a change of it would have to empty the slots of
//! them all.

use extol_ondisk::InodeNr;

use super::shape::folds;
use crate::encrypted;
use crate::node::Node;
use crate::volume::Volume;

/// True if each entry has one name only.
fn has_single_names(vol: &Volume, dir: &Node) -> bool {
    !folds(vol, dir) && !encrypted::is_encrypted(dir)
}

/// Notes where a name leads, with the directory's lock held (DC-1).
pub(crate) fn note_found(vol: &Volume, dir: &Node, name: &[u8], ino: InodeNr) {
    if has_single_names(vol, dir) {
        vol.dentries.insert(dir.ino.0, name, ino.0);
    }
}

/// Notes that a name is not there, with the directory's lock held (DC-1).
pub(crate) fn note_missing(vol: &Volume, dir: &Node, name: &[u8]) {
    if has_single_names(vol, dir) {
        vol.dentries.insert_negative(dir.ino.0, name);
    }
}

/// True if the directory is known not to have the name, with its lock held (DC-5). What was known
/// before it became casefolded says nothing of other spellings.
pub(crate) fn is_known_missing(vol: &Volume, dir: &Node, name: &[u8]) -> bool {
    has_single_names(vol, dir) && vol.dentries.is_negative(dir.ino.0, name)
}
