//! Attribute values in inodes of their own (feature ea_inode). `docs/design/ea-inode.md` tells how
//! they are stored, and why they are made and deleted in the handle of the operation.
//!
//! ```text
//!   entry in an inode ──┐
//!   entry in a block  ──┼──► value inode: users = 3
//!   entry in a block  ──┘
//! ```
//!
//! An entry of a block is one user, however many inodes share the block.
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | users, and what entries cost |
//! | `read` | contents, checked |
//! | `make` | finding an inode that has the value, or making one |
//!
//! Invariants
//! - VA-1: at the end of a handle each value inode counts the entries that name it, and one with
//!   users has one link. Users are added before the entries of a copy are to be seen, and taken
//!   away after the old entries are gone, so the count never falls below the entries.
//! - VA-2: the contents of a value inode never change while it has users.
//! - VA-3: a noted value is only a hint: a change that finds it looks at the inode and at every
//!   byte, under the lock under which the last user deletes it.
//! - VA-4: a damaged value (no such inode, another kind of inode, no users) is never changed.

mod make;
mod read;

use extol_jbd2::Handle;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_ondisk::{Incompat, Inode, InodeFlags, InodeNr, Time};
use extol_vfs::{FsError, Result};

use crate::alloc::Allocator;
use crate::fast_commit::eligibility::{self, Change};
use crate::fast_commit::reason::Reason;
use crate::map::{self, Discard, Progress};
use crate::node::Node;
use crate::volume::Volume;
pub(super) use make::obtain;
pub(super) use read::read;

/// Credits for the end of a value: its inode, the inode's number, and the blocks of a map in which
/// one step suffices.
const END: u32 = 1 + Allocator::FREE_INODE_CREDITS + 36;
/// Runs of blocks for which a new value has credits from the beginning.
const RUNS: u32 = 8;
/// Tree blocks of a new value's map: itself, bitmap, descriptor.
const TREE: u32 = 6;

/// Knows which inodes are on the orphan list.
pub(crate) trait OrphanCheck {
    /// True if it is.
    fn is_orphan(&self, ino: InodeNr) -> bool;
}

/// What a change of attributes needs for values in inodes of their own.
pub(crate) struct Values<'a> {
    orphans: &'a dyn OrphanCheck,
    now: Time,
    /// Values without users that the transaction has no room to delete: the caller puts them on the
    /// orphan list in the same handle.
    left: Vec<InodeNr>,
    /// How many more of them count in the owner.
    counted: i64,
}

impl<'a> Values<'a> {
    /// For one handle.
    pub fn new(orphans: &'a dyn OrphanCheck, now: Time) -> Self {
        Self { orphans, now, left: Vec::new(), counted: 0 }
    }

    /// How many more values count in the owner than before: it is written with that.
    #[must_use]
    pub fn counted(&self) -> i64 {
        self.counted
    }

    /// An attribute of that [`charge`] counts in its owner.
    pub(super) fn count(&mut self, owner: &mut Node, charge: Option<u64>) {
        owner.raw.blocks = owner.raw.blocks.saturating_add(charge.unwrap_or(0));
        self.counted += i64::from(charge.is_some());
    }

    /// An attribute of that [`charge`] counts in its owner no more.
    pub(super) fn discount(&mut self, owner: &mut Node, charge: Option<u64>) {
        owner.raw.blocks = owner.raw.blocks.saturating_sub(charge.unwrap_or(0));
        self.counted -= i64::from(charge.is_some());
    }

    /// Values that are to be put on the orphan list.
    #[must_use]
    pub fn into_left(self) -> Vec<InodeNr> {
        self.left
    }
}

/// True if the volume may have such values.
pub(crate) fn are_allowed(vol: &Volume) -> bool {
    vol.geo.incompat().contains(Incompat::EA_INODE)
}

/// Refuses entries that no volume like this one has.
pub(super) fn check_entries(vol: &Volume, owner: &Node, entries: &[XattrEntry]) -> Result<()> {
    let bad = |what: &str| Err(FsError::corrupt(what).in_inode(owner.ino.0.into()));
    for entry in entries.iter().filter(|entry| entry.has_inode()) {
        if !are_allowed(vol) {
            return bad("attribute value in an inode, without the feature ea_inode");
        }
        let ino = InodeNr(entry.value_inum);
        if !vol.geo.is_valid_inode(ino) || ino < vol.geo.first_ino {
            return bad("attribute value in an inode that does not exist");
        }
    }
    Ok(())
}

/// True if the values of a block leave room for names. (As Linux does it: where a value may be in
/// an inode, it takes none of the first eighth of a block, of 1024 bytes at most.)
pub(super) fn leaves_names_room(vol: &Volume, entries: &[XattrEntry]) -> bool {
    let reserve = (vol.geo.block_len() / 8).min(1024);
    let values: usize = entries.iter().map(|e| e.value.len().next_multiple_of(4)).sum();
    !are_allowed(vol) || values + reserve <= vol.geo.block_len()
}

/// Credits that a new value of this length adds to a change of an attribute.
pub(super) fn credits_to_make(vol: &Volume, len: usize) -> u32 {
    let blocks = blocks_to_make(vol, len);
    blocks + 2 * blocks.min(RUNS) + TREE + Allocator::ALLOC_INODE_CREDITS + 1
}

/// Blocks of a value of this length.
pub(super) fn blocks_to_make(vol: &Volume, len: usize) -> u32 {
    u32::try_from(len.div_ceil(vol.geo.block_len())).unwrap_or(u32::MAX)
}

/// Credits for one user less of a value.
pub(super) const RELEASE: u32 = END;

/// The inode of a value, if it is one: used, marked, and of the right kind.
fn load(vol: &Volume, ino: InodeNr) -> Option<Node> {
    if !vol.geo.is_valid_inode(ino) || ino < vol.geo.first_ino {
        return None;
    }
    let raw = vol.read_inode(ino).ok()?;
    is_value(&raw).then_some(Node { ino, raw })
}

pub(crate) fn is_value(raw: &Inode) -> bool {
    raw.flags.contains(InodeFlags::EA_INODE) && raw.is_regular() && raw.links == 1
}

fn write(vol: &Volume, h: &mut Handle, node: &Node, born: bool) -> Result<()> {
    eligibility::note_ineligible(h, node.ino, Reason::Xattr);
    vol.write_inode(h, node.ino, &node.raw, Change { data: true, born, ..Change::default() })
}

/// 512-byte units for which an entry's value counts in the inode that has it, `None` if it is not
/// in an inode of its own.
pub(super) fn charge(vol: &Volume, owner: &Node, entry: &XattrEntry) -> Option<u64> {
    if !entry.has_inode() {
        return None;
    }
    let old_form = is_old_form(vol, owner, entry);
    let cluster = vol.geo.block_len() as u64 * u64::from(vol.geo.cluster_ratio.max(1));
    Some(if old_form { 0 } else { u64::from(entry.value_size).next_multiple_of(cluster) / 512 })
}

/// True if the value of an entry is of the form without a count, which names `owner`.
pub(super) fn is_old_form(vol: &Volume, owner: &Node, entry: &XattrEntry) -> bool {
    entry.has_inode()
        && load(vol, InodeNr(entry.value_inum)).is_some_and(|value| {
            format::is_old_form(&value.raw, entry, owner.ino, owner.raw.generation)
        })
}

/// One more user of the value that an entry names.
pub(super) fn add_user(vol: &Volume, h: &mut Handle, entry: &XattrEntry) -> Result<()> {
    if !entry.has_inode() {
        return Ok(());
    }
    let _users = vol.sharing.values.lock();
    match load(vol, InodeNr(entry.value_inum)) {
        Some(value) => count(vol, h, value, 1),
        None => Ok(()),
    }
}

fn count(vol: &Volume, h: &mut Handle, mut value: Node, by: i64) -> Result<()> {
    let users = format::stated_users(&value.raw).saturating_add_signed(by);
    format::set_stated_users(&mut value.raw, users);
    write(vol, h, &value, false)
}

/// One user less of the value that an entry of `owner` named. The last one deletes it.
pub(super) fn release(
    vol: &Volume,
    h: &mut Handle,
    values: &mut Values<'_>,
    owner: &Node,
    entry: &XattrEntry,
) -> Result<()> {
    if !entry.has_inode() {
        return Ok(());
    }
    let mut noted = vol.sharing.values.lock();
    let Some(mut value) = load(vol, InodeNr(entry.value_inum)) else { return Ok(()) };
    // (In the old form there is no count.)
    let old_form = format::is_old_form(&value.raw, entry, owner.ino, owner.raw.generation);
    let users = if old_form { 1 } else { format::stated_users(&value.raw) };
    match users {
        0 => return Ok(()),
        1 => {}
        _ => return count(vol, h, value, -1),
    }
    noted.remove(format::stated_hash(&value.raw), value.ino);
    // Nothing names it any more, and nothing finds it.
    drop(noted);
    end(vol, h, values, &mut value)
}

/// Deletes a value that has no users, or leaves it to the orphan list.
fn end(vol: &Volume, h: &mut Handle, values: &mut Values<'_>, value: &mut Node) -> Result<()> {
    format::set_stated_users(&mut value.raw, 0);
    value.raw.links = 0;
    let finish = Allocator::FREE_INODE_CREDITS + 1;
    let room = finish + map::credits_for_remove_step(value);
    let missing = room.saturating_sub(h.credits());
    let is_gone = (missing == 0 || h.extend(missing).map_err(crate::error::journal)?)
        && map::remove(vol, h, value, 0, u32::MAX, Discard::FreeJournalled)? == Progress::Done;
    if !is_gone {
        values.left.push(value.ino);
        return write(vol, h, value, false);
    }
    value.raw.size = 0;
    value.raw.blocks = 0;
    if !value.raw.flags.contains(InodeFlags::EXTENTS) {
        value.raw.i_block = [0; 60];
    }
    // A small number would be read as a link of the orphan list.
    value.raw.dtime = u32::try_from(values.now.sec).unwrap_or(u32::MAX).max(1);
    write(vol, h, value, false)?;
    // Last (DL-4).
    vol.alloc.free_inode(h, value.ino, false)
}
