//! Attribute values in inodes of their own, as far as they need the orphan list: what
//! [`Values`] leaves over is put on it in the same handle, and deleted in handles of its own.
//!
//! Linux does not delete such an inode when it finds it there after a crash, and forgets the
//! orphans behind it. So this is only for what no transaction has room for.

use extol_jbd2::Handle;
use extol_ondisk::InodeNr;
use extol_vfs::Result;

use super::delete;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::xattr::{self, Values};

/// The end of a change of attributes of `owner`, which is stored behind it in the same handle: puts
/// values that are left over on the orphan list. Two credits for each, of which there is one as a
/// rule.
pub(crate) fn end(
    fs: &MountedFs,
    h: &mut Handle,
    owner: &mut InodeState,
    values: Values<'_>,
) -> Result<()> {
    owner.values_counted += values.counted();
    for ino in values.into_left() {
        let mut st = state(fs, ino)?;
        fs.orphans.add(&fs.vol, &fs.sb, h, ino.0)?;
        st.store(fs, h, true)?;
        fs.values_left.lock().push(ino.0);
    }
    Ok(())
}

/// Deletes the values that were left over. With no handle open.
pub(crate) fn delete_left(fs: &MountedFs) {
    let left = std::mem::take(&mut *fs.values_left.lock());
    for ino in left {
        // What fails stays on the list.
        let deleted = state(fs, InodeNr(ino)).and_then(|mut st| delete::delete(fs, &mut st));
        let _ = fs.note(deleted);
    }
}

/// The inode, if it holds a value, and so is never in the table of inodes. Nothing else may change
/// it meanwhile.
pub(crate) fn state_of_value(fs: &MountedFs, ino: InodeNr) -> Result<Option<InodeState>> {
    if !xattr::are_values_allowed(&fs.vol) {
        return Ok(None);
    }
    Ok(Some(state(fs, ino)?).filter(InodeState::is_value))
}

fn state(fs: &MountedFs, ino: InodeNr) -> Result<InodeState> {
    let raw = fs.vol.read_inode(ino)?;
    Ok(InodeState::new(Node { ino, raw }, fs.vol.journal.newest()))
}
