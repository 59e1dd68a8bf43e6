//! Deletion of an inode: when its last name and its last reference are gone.
//!
//! ```text
//!   unlink: links 0, on the orphan list           (one transaction)
//!   last reference: unmap everything, attributes  (as many as it takes)
//!                   off the list, inode free      (the last one)
//! ```
//!
//! An inode that is not in use when its last name is removed, and that has few blocks, needs
//! neither the list nor a second transaction: it is deleted together with the name ([`at_once`]).
//! Most removed files are of this kind. If that fails half-way, or does not fit, the inode becomes
//! an orphan in the state it has then, in the same transaction. Files and symbolic links are in use
//! if they are open, where the front end counts that; the numbers of those that are only referenced
//! are held (see `inodes.rs`). Any other referenced inode is in use: a directory may be the working
//! directory of a process, and the kernel opens devices and pipes by itself.
//!
//! An orphan with few blocks is deleted in one transaction as well. A symbolic link must be: with
//! its block gone and the inode still there, it would look like a short link inside the inode, with
//! an impossible target. (Linux and e2fsck free such an orphan, but without a guarantee.)
//!
//! Invariants
//! - DL-1: an inode without links is on the orphan list, or its deletion is in the transaction that
//!   removed its last name (`names::drop_link`).
//! - DL-2: no reference is taken while an inode is deleted: names lead to it only under its
//!   directory's lock, and a lookup by number waits for its own lock and then finds it without
//!   links and on no list ([`End::of`] is asked with both locks held, [`delete`] with its own). No
//!   reference opens it: [`InodeTable::hold`](crate::inodes::InodeTable::hold).
//! - DL-3: once its number is free, a thread that still has the cell finds it dead: it is marked
//!   before its lock is released ([`at_once`], [`delete`]). What is listed by number, such as the
//!   dirty files, may be the next inode with that number.
//! - DL-4: the slot of an inode says that it is gone before its number is free: where free inodes
//!   are short, another thread takes the number at once, looks whether its slot is in use, and
//!   writes it ([`finish`], `create::unmake`, `xattr/value`).

use std::sync::Arc;

use extol_jbd2::Handle;
use extol_ondisk::{FileType, InodeFlags};
use extol_vfs::Result;

use super::values;
use crate::alloc::Allocator;
use crate::data::truncate;
use crate::error;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Discard, Progress};
use crate::mounted::MountedFs;
use crate::orphan;
use crate::xattr;

/// Credits of [`finish`].
const FINISH: u32 = xattr::CREDITS + Allocator::FREE_INODE_CREDITS + 1;

/// Most attribute values in inodes of their own that are deleted in one transaction with the inode.
const FEW_VALUES: u32 = 2;

/// What becomes of an inode when a name of it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It has more names, is in use, or has many blocks.
    Later,
    /// It is deleted in the transaction that removes its last name, for so many credits.
    AtOnce(u32),
}

impl End {
    /// For an inode that is about to lose a name; its lock and its directory's are held.
    pub fn of(fs: &MountedFs, st: &InodeState) -> Self {
        let last = st.is_dir() || st.node.raw.links == 1;
        let values = xattr::count_values(&fs.vol, &st.node);
        match unmap_credits(fs, st) {
            Some(unmap)
                if last
                    && values <= FEW_VALUES
                    && !fs.table.is_in_use(st.node.ino.0, needs_open(st)) =>
            {
                Self::AtOnce(unmap + FINISH + xattr::credits_to_drop(values))
            }
            _ => Self::Later,
        }
    }

    /// Credits that it adds to the removal of a name.
    pub fn credits(self) -> u32 {
        match self {
            Self::Later => 0,
            Self::AtOnce(credits) => credits,
        }
    }

    /// True if it is [`at_once`].
    pub fn is_at_once(self) -> bool {
        self != Self::Later
    }
}

/// Credits for unmapping all blocks of the inode, if they are so few that one transaction does it.
fn unmap_credits(fs: &MountedFs, st: &InodeState) -> Option<u32> {
    if !maps(st) {
        return Some(0);
    }
    let all = map::credits_for_remove_all(&st.node, fs.vol.geo.block_size.bytes());
    // One block below a root without levels is less than a step.
    all.or_else(|| st.node.raw.is_symlink().then(|| map::credits_for_remove_step(&st.node)))
}

/// True if such an inode is used only while it is open (or to read the target of a link).
fn needs_open(st: &InodeState) -> bool {
    st.is_regular() || st.node.raw.is_symlink()
}

fn maps(st: &InodeState) -> bool {
    st.node.raw.maps_blocks() && st.node.raw.blocks > 0
}

/// Deletes the inode if it has neither a name nor a reference. Errors are noted: the inode stays on
/// the orphan list.
pub(crate) fn delete_if_unused(fs: &MountedFs, cell: &Arc<Cell>) {
    let Ok(mut st) = cell.write_any() else { return };
    if st.is_deleted {
        drop(st);
        if !fs.table.is_held(cell.ino) {
            fs.table.kill(cell);
        }
        return;
    }
    if st.node.raw.links > 0 || fs.table.is_referenced(cell.ino) || fs.check_writable().is_err() {
        return;
    }
    if !fs.orphans.contains(cell.ino) {
        // It never had a name on disk, or is deleted already.
        return;
    }
    let result = fs.note(delete(fs, &mut st));
    drop(st);
    if result.is_ok() {
        fs.table.kill(cell);
    }
}

/// Deletes an inode that has just lost its last name, in the same handle. False if it must become
/// an orphan instead, as it is now: it has more blocks than it says, or is damaged (which its
/// deletion from the list reports).
pub(crate) fn at_once(fs: &MountedFs, h: &mut Handle, st: &mut InodeState) -> bool {
    let ino = st.node.ino.0;
    if !fs.table.hold(&fs.vol, ino, needs_open(st)) {
        return false;
    }
    let (size, blocks) = (st.node.raw.size, st.node.raw.blocks);
    drop_memory(fs, st);
    let unmapped = !maps(st) || matches!(unmap_step(fs, h, st), Ok(Progress::Done));
    st.is_deleted = unmapped && finish(fs, h, st).is_ok();
    if st.is_deleted {
        // The attributes that the cell tells while the number is held.
        (st.node.raw.size, st.node.raw.blocks) = (size, blocks);
    } else {
        fs.table.undo_hold(&fs.vol, ino);
    }
    st.is_deleted
}

/// Frees everything that the inode has, and the inode. It is on the orphan list until the last
/// transaction.
pub(crate) fn delete(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    drop_memory(fs, st);
    drop_values(fs, st)?;
    let values = xattr::count_values(&fs.vol, &st.node).min(FEW_VALUES);
    let credits = FINISH + orphan::CREDITS + xattr::credits_to_drop(values);
    let mut h = match unmap_credits(fs, st) {
        Some(unmap) if maps(st) => unmap_few(fs, st, unmap + credits)?,
        Some(_) => fs.start(credits)?,
        None => {
            truncate::unmap(fs, st, 0, u32::MAX, false)?;
            fs.start(credits)?
        }
    };
    finish(fs, &mut h, st)?;
    // A thread that waits for its lock (writeback, an access time) must not take the next inode
    // with this number for this one.
    st.is_deleted = true;
    h.stop().map_err(error::journal)?;
    values::delete_left(fs);
    Ok(())
}

/// Drops attributes whose values are in inodes of their own until few are left: there may be
/// hundreds, so each has a handle.
fn drop_values(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    while xattr::count_values(&fs.vol, &st.node) > FEW_VALUES {
        let mut h = fs.start(xattr::credits(&fs.vol, &st.node, 0) + 1)?;
        let mut large = fs.values();
        let is_one_less = xattr::drop_value(&fs.vol, &mut h, &mut st.node, &mut large)?;
        values::end(fs, &mut h, st, large)?;
        st.store(fs, &mut h, true)?;
        h.stop().map_err(error::journal)?;
        if !is_one_less {
            // The others are those of a block that goes on living.
            break;
        }
    }
    Ok(())
}

/// Drops what is only in memory of an inode that is deleted.
fn drop_memory(fs: &MountedFs, st: &mut InodeState) {
    truncate::drop_pages(fs, st, 0, u32::MAX);
    fs.dirty.remove(st.node.ino.0);
    st.window.empty();
    if st.node.raw.maps_blocks() {
        st.node.raw.size = 0;
        st.disk_size = 0;
    }
}

/// Frees the inode, which has no blocks any more but that of its attributes.
fn finish(fs: &MountedFs, h: &mut Handle, st: &mut InodeState) -> Result<()> {
    let vol = &fs.vol;
    let was_dir = st.is_dir();
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        inline::clear(&mut st.node)?;
    }
    let mut large = fs.values();
    xattr::drop_all(vol, h, &mut st.node, &mut large)?;
    values::end(fs, h, st, large)?;
    fs.orphans.remove(&fs.vol, &fs.sb, h, st.node.ino.0)?;
    let raw = &mut st.node.raw;
    raw.size = 0;
    raw.links = 0;
    raw.blocks = 0;
    // An empty extent header stays (e2fsck takes its absence for garbage); so does a device number.
    let device =
        matches!(FileType::from_mode(raw.mode), Some(FileType::CharDevice | FileType::BlockDevice));
    if !device && !raw.flags.contains(InodeFlags::EXTENTS) {
        raw.i_block = [0; 60];
    }
    // As Linux marks a deleted inode; never 0, which would mean "in use".
    raw.dtime = u32::try_from(fs.now().sec).unwrap_or(u32::MAX).max(1);
    st.disk_size = 0;
    st.store_gone(fs, h)?;
    // Last (DL-4).
    vol.alloc.free_inode(h, st.node.ino, was_dir)
}

fn unmap_step(fs: &MountedFs, h: &mut Handle, st: &mut InodeState) -> Result<Progress> {
    let data = if fs.journals_data(st) { Discard::FreeJournalled } else { Discard::Free };
    map::remove(&fs.vol, h, &mut st.node, 0, u32::MAX, data)
}

/// Frees the few blocks of an inode in a handle of `credits`, of which the rest is left.
fn unmap_few(fs: &MountedFs, st: &mut InodeState, credits: u32) -> Result<Handle> {
    let mut h = fs.start(credits)?;
    loop {
        match unmap_step(fs, &mut h, st) {
            Ok(Progress::Done) => return Ok(h),
            // A damaged inode may have more.
            Ok(Progress::Restart { .. }) => {
                st.store(fs, &mut h, true)?;
                h.restart(credits).map_err(error::journal)?;
            }
            Err(e) => {
                st.store(fs, &mut h, true)?;
                return Err(e);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
