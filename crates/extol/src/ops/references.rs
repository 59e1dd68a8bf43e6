//! The end of references on inodes.

use super::delete;
use crate::freeze_gate::Deferred;
use crate::mounted::MountedFs;

/// Gives references on an inode back. The caller holds no lock.
pub(crate) fn forget(fs: &MountedFs, ino: u32, n: u64) {
    if fs.table.release(&fs.vol, ino, n) {
        unused(fs, ino);
    }
}

/// The last reference on an inode has gone: it may have to be deleted.
pub(crate) fn unused(fs: &MountedFs, ino: u32) {
    // The removal of the last name of a referenced inode puts it on the orphan list first and then
    // asks for references once more, so one of the two sees the other.
    if !fs.orphans.contains(ino) {
        return;
    }
    if let Some(_open) = fs.freeze_gate.enter_or(|| Deferred::Unused(ino))
        && let Some(cell) = fs.table.cached(ino)
    {
        delete::delete_if_unused(fs, &cell);
    }
}
