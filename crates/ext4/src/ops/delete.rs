//! The end of an inode: when its last name and its last reference are gone.
//!
//! ```text
//!   unlink: links 0, on the orphan list          (one transaction)
//!   last reference: unmap everything, attributes  (as many as it takes)
//!                   off the list, inode free      (the last one)
//! ```
//!
//! A symbolic link goes in one transaction, its block and the inode together: with its block gone and the inode still
//! there, it would look like a short link inside the inode, with an impossible target. (Linux and e2fsck free such an
//! orphan without a word, but nobody has to rely on that.)

use std::sync::Arc;

use extol_journal::Handle;
use extol_ondisk::{FileType, InodeFlags};
use extol_vfs::Result;

use crate::alloc::Allocator;
use crate::data::truncate;
use crate::error;
use crate::fs::Fs;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Discard, Progress};
use crate::orphan;
use crate::xattr;

/// Deletes the inode if it has no name and nobody refers to it. Errors are noted: the orphan list remembers the inode.
pub(crate) fn delete_if_unused(fs: &Fs, cell: &Arc<Cell>) {
    let Ok(mut st) = cell.write() else { return };
    if st.node.raw.links > 0 || fs.table.is_referenced(cell.ino) || fs.check_writable().is_err() {
        return;
    }
    if !fs.orphans.contains(cell.ino) {
        // Never had a name on disk, or is already gone.
        return;
    }
    let result = fs.note(delete(fs, &mut st));
    drop(st);
    if result.is_ok() {
        fs.table.kill(cell);
    }
}

/// Frees everything that the inode has, and the inode. It is on the orphan list until the last transaction.
pub(crate) fn delete(fs: &Fs, st: &mut InodeState) -> Result<()> {
    let vol = &fs.vol;
    let was_dir = st.is_dir();
    let is_link = FileType::from_mode(st.node.raw.mode) == Some(FileType::Symlink);
    truncate::drop_pages(fs, st, 0, u32::MAX);
    fs.dirty.remove(st.node.ino.0);
    vol.alloc.release(&mut st.window);
    if st.node.raw.maps_blocks() {
        st.node.raw.size = 0;
        st.disk_size = 0;
        if st.node.raw.blocks > 0 && !is_link {
            truncate::unmap(fs, st, 0, u32::MAX, false)?;
        }
    }
    let credits = inline::CREDITS + xattr::CREDITS + Allocator::FREE_INODE_CREDITS + orphan::CREDITS + 1;
    let mut h = if is_link && st.node.raw.maps_blocks() && st.node.raw.blocks > 0 {
        unmap_link(fs, st, credits)?
    } else {
        fs.start(credits)?
    };
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        inline::clear(vol, &mut h, &mut st.node)?;
    }
    xattr::drop_all(vol, &mut h, &mut st.node)?;
    fs.orphans.remove(fs, &mut h, st.node.ino.0)?;
    vol.alloc.free_inode(&mut h, st.node.ino, was_dir)?;
    let raw = &mut st.node.raw;
    raw.size = 0;
    raw.links = 0;
    raw.blocks = 0;
    // An empty extent header stays (e2fsck takes its absence for garbage); so does a device number.
    let device = matches!(FileType::from_mode(raw.mode), Some(FileType::CharDevice | FileType::BlockDevice));
    if !device && !raw.flags.contains(InodeFlags::EXTENTS) {
        raw.i_block = [0; 60];
    }
    // Linux's mark of a deleted inode; never 0, which would mean "in use".
    raw.dtime = u32::try_from(fs.now().sec).unwrap_or(u32::MAX).max(1);
    st.disk_size = 0;
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)
}

/// Frees the block of a symbolic link, and leaves `credits` for the rest in the same transaction.
fn unmap_link(fs: &Fs, st: &mut InodeState, credits: u32) -> Result<Handle> {
    let vol = &fs.vol;
    let step = map::credits_for_remove_step(&st.node);
    let mut h = fs.start(credits + step)?;
    loop {
        match map::remove(vol, &mut h, &mut st.node, 0, u32::MAX, Discard::Free) {
            // One block below a root without levels is less than a step.
            Ok(Progress::Done) => return Ok(h),
            // A damaged link may have more.
            Ok(Progress::Restart { .. }) => {
                st.store(fs, &mut h, true)?;
                h.restart(credits + step).map_err(error::journal)?;
            }
            Err(e) => {
                st.store(fs, &mut h, true)?;
                return Err(e);
            }
        }
    }
}
