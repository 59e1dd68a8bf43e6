//! What happened, in the words of fast commits: or why there are none for it.
//!
//! Every change of an inode is assessed by the bytes of its slot before and after, whatever made
//! it; changes of maps and directories are noted where they are made. Which reader needs each rule,
//! and what would go wrong without it, is said in `docs/design/fast-commit.md`.
//!
//! Invariants
//! - EL-1: an inode is noted as a change only with an image that replay can put over the base:
//!   everything of it that an image does not carry is as it was, or the inode is ineligible
//!   (`assess`).
//! - EL-2: whatever changed in a map without tree blocks is noted block by block; a map with tree
//!   blocks is ineligible (`map/notes.rs`).
//! - EL-3: a directory is ineligible for names as soon as one of them might not find room when it
//!   is replayed (`room`, which comes before each first change of a block; `divided`).
//! - EL-4: in a casefolded directory all that is noted of a name has one spelling, or the directory
//!   is ineligible: readers take two for one name (`note_spelling`, `Changes::spelling`).

use std::sync::Arc;

use extol_jbd2::{Buf, Handle, planted};
use extol_ondisk::dirent::{self, entry_len};
use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::xattr;
use extol_ondisk::{FileType, Geometry, GroupFlags, Inode, InodeFlags, InodeNr};

use super::delta::{Delta, note};
use super::reason::Reason;
use crate::alloc::Allocator;
use crate::node::Node;

/// Fields of the old part of an inode, and where the extra size is.
pub(super) mod at {
    pub const MODE: usize = 0x00;
    pub const SIZE: usize = 0x04;
    pub const DTIME: usize = 0x14;
    pub const GID: usize = 0x18;
    pub const LINKS: usize = 0x1A;
    pub const BLOCKS: usize = 0x1C;
    pub const FLAGS: usize = 0x20;
    pub const I_BLOCK: usize = 0x28;
    pub const ACL: usize = 0x68;
    pub const SIZE_HI: usize = 0x6C;
    pub const BLOCKS_HI: usize = 0x74;
    pub const ACL_HI: usize = 0x76;
    pub const OWNER_HI: usize = 0x78;
    pub const CHECKSUM: usize = 0x7C;
    pub const EXTRA: usize = 0x80;
    pub const CRTIME: usize = 0x90;
}

/// Length of the old part.
const OLD: usize = 128;
/// An empty extent tree: magic number, no entries of four, no levels.
const EMPTY_TREE: [u8; 8] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0];

/// Flags that decide what the bytes of a file mean.
pub(super) const MEANING: InodeFlags = InodeFlags::ENCRYPT
    .union(InodeFlags::VERITY)
    .union(InodeFlags::EA_INODE)
    .union(InodeFlags::DAX)
    .union(InodeFlags::CASEFOLD);
/// Flags that come and go with the form of a directory.
const FORM: InodeFlags =
    InodeFlags::INDEX.union(InodeFlags::INLINE_DATA).union(InodeFlags::EXTENTS);

/// What the writer of an inode knows of the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Change {
    /// It matters to fdatasync.
    pub data: bool,
    /// The slot held no inode in use.
    pub born: bool,
    /// The inode is not in use any more.
    pub gone: bool,
    /// How many more attribute values in inodes of their own count in the inode than when it was
    /// written before.
    pub values: i64,
}

/// What a write of an inode was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    /// For regular files: the image and the links it counts.
    image: Option<(Arc<[u8]>, u16)>,
    how: Change,
    /// A checker that came to look at the slot as it was before would take it for an inode.
    remains: bool,
    ineligible: Option<Reason>,
}

/// True if writes of this inode are assessed: those of the volume itself have no names and no
/// fsync.
pub(crate) fn is_watched(h: &Handle, ino: InodeNr, geo: &Geometry) -> bool {
    (ino >= geo.first_ino || ino == InodeNr::ROOT) && h.tracks()
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn flags(bytes: &[u8]) -> InodeFlags {
    InodeFlags::from_bits_retain(word(bytes, at::FLAGS))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

/// True if no reader takes the slot for an inode in use: never written, or cleanly deleted.
fn is_free(slot: &[u8]) -> bool {
    half(slot, at::LINKS) == 0 && (half(slot, at::MODE) == 0 || word(slot, at::DTIME) != 0)
}

/// Assesses a write: the slot's bytes before, what was written, and the bytes it became.
pub(crate) fn assess(before: &[u8], inode: &Inode, after: &[u8], how: Change) -> Written {
    let mut written =
        Written { image: None, how, remains: how.born && !is_free(before), ineligible: None };
    written.ineligible = match inode.kind() {
        Some(FileType::Directory) => assess_directory(before, inode, after, how.born),
        Some(FileType::Regular) => {
            let len = (OLD + usize::from(inode.extra_isize)).min(after.len());
            written.image = Some((after.get(..len).unwrap_or_default().into(), inode.links));
            assess_file(before, inode, after, how.born)
        }
        _ => Some(Reason::DataJournalling),
    };
    written
}

/// Why what happened to a directory's inode matters. Its times, size and links follow from its
/// names.
fn assess_directory(before: &[u8], inode: &Inode, after: &[u8], born: bool) -> Option<Reason> {
    if born || inode.links == 0 {
        return Some(Reason::Directory);
    }
    let same = |from: usize, to: usize| before.get(from..to) == after.get(from..to);
    let changed = flags(before) ^ inode.flags;
    // (A directory that gets an index is replayed without it: its names find room in the old form,
    // or are ineligible.)
    if changed.intersects(FORM)
        && !(changed == InodeFlags::INDEX && inode.flags.contains(InodeFlags::INDEX))
    {
        return Some(Reason::DirectoryGrew);
    }
    let changed = changed - InodeFlags::INDEX;
    let end = OLD + usize::from(inode.extra_isize);
    // (Entries of an inline directory are among its attributes, and ineligible for that.)
    let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
    if !same_acl(before, after) || !inline && !same(end, after.len()) {
        return Some(Reason::Xattr);
    }
    let old_part =
        same(at::MODE, at::SIZE) && same(at::GID, at::LINKS) && same(at::OWNER_HI, at::CHECKSUM);
    let extra =
        after.len() == OLD || same(at::EXTRA, at::EXTRA + 2) && same(at::CRTIME.min(end), end);
    (!changed.is_empty() || !old_part || !extra).then_some(Reason::Attributes)
}

fn same_acl(before: &[u8], after: &[u8]) -> bool {
    let same = |from: usize, to: usize| before.get(from..to) == after.get(from..to);
    same(at::ACL, at::ACL + 4) && same(at::ACL_HI, at::OWNER_HI)
}

/// Why a write of a regular file cannot be said by its image.
fn assess_file(before: &[u8], inode: &Inode, after: &[u8], born: bool) -> Option<Reason> {
    let is_dead = inode.links == 0;
    if !is_dead && !born && half(before, at::LINKS) == 0 {
        // It was deleted, or had no name yet, and now has one.
        return Some(Reason::Deleted);
    }
    let old = if born { inode.flags } else { flags(before) };
    let changed = old ^ inode.flags;
    if changed.contains(InodeFlags::JOURNAL_DATA) {
        return Some(Reason::JournalFlag);
    }
    if inode.flags.contains(InodeFlags::JOURNAL_DATA) {
        return Some(Reason::DataJournalling);
    }
    if (old | inode.flags).contains(InodeFlags::INLINE_DATA) {
        return Some(Reason::InlineData);
    }
    if !(old & inode.flags).contains(InodeFlags::EXTENTS) {
        return Some(Reason::ExtentTree);
    }
    if changed.intersects(MEANING) || inode.dtime != 0 && !is_dead {
        return Some(Reason::Attributes);
    }
    if after.len() > OLD {
        if inode.extra_isize < 4 {
            return Some(Reason::Attributes);
        }
        if !born && half(before, at::EXTRA) != inode.extra_isize {
            return Some(Reason::Xattr);
        }
    }
    if inode.file_acl != 0 {
        // Replay counts the blocks of the map only, Linux's as well as e2fsck's: one is missing
        // then.
        return Some(Reason::Xattr);
    }
    let end = OLD + usize::from(inode.extra_isize);
    let (was, is) = (before.get(end..).unwrap_or_default(), after.get(end..).unwrap_or_default());
    if xattr::ibody_names_inodes(is) {
        // As with a block of attributes: these values count as well.
        return Some(Reason::Xattr);
    }
    if !born {
        return (!same_acl(before, after) || was != is).then_some(Reason::Xattr);
    }
    if !is_zero(is) {
        return Some(Reason::Xattr);
    }
    let map = before.get(at::I_BLOCK..at::I_BLOCK + I_BLOCK_LEN).unwrap_or_default();
    let extra = half(before, at::EXTRA);
    let known = is_free(before) && (after.len() == OLD || extra == 0 || extra == inode.extra_isize);
    let clean = known && is_zero(was) && (is_zero(map) || map.starts_with(&EMPTY_TREE));
    (!clean).then_some(Reason::UsedSlot)
}

/// Notes a write of an inode.
pub(crate) fn note_inode(
    h: &mut Handle,
    ino: InodeNr,
    written: Written,
    geo: &Geometry,
    alloc: &Allocator,
) {
    let Written { image, how: Change { data, born, .. }, remains, ineligible } = written;
    if remains && !is_table_zeroed(ino, geo, alloc) {
        // Inodes are handed out from the front. Replaying any of those behind this one without this
        // one would make a checker look at its slot as it was before.
        note(h, Delta::AllIneligible { reason: Reason::UsedSlot });
    }
    if let Some((image, links)) = image {
        note(h, Delta::Inode { ino: ino.0, image, born, data, links });
    }
    if let Some(reason) = ineligible {
        note(h, Delta::Ineligible { ino: ino.0, reason });
    }
}

/// True if all slots behind the last that was ever used hold zeros.
fn is_table_zeroed(ino: InodeNr, geo: &Geometry, alloc: &Allocator) -> bool {
    let (group, _) = geo.group_of_inode(ino);
    !geo.has_gdt_csum()
        || alloc.group_desc(group).is_ok_and(|desc| desc.flags.contains(GroupFlags::INODE_ZEROED))
}

/// Notes that an inode is ineligible.
pub(crate) fn note_ineligible(h: &mut Handle, ino: InodeNr, reason: Reason) {
    note(h, Delta::Ineligible { ino: ino.0, reason });
}

/// Notes that a name of a directory, as its entry has it, leads elsewhere.
pub(crate) fn note_name(
    h: &mut Handle,
    dir: &Node,
    name: &[u8],
    was: Option<InodeNr>,
    is: Option<InodeNr>,
) {
    if !h.tracks() {
        return;
    }
    let number = |ino: Option<InodeNr>| ino.map(|ino| ino.0);
    note(h, Delta::Name { dir: dir.ino.0, name: name.into(), was: number(was), is: number(is) });
    let flags = dir.raw.flags;
    if flags.contains(InodeFlags::INLINE_DATA) {
        note_ineligible(h, dir.ino, Reason::InlineData);
    }
    if flags.contains(InodeFlags::ENCRYPT) && !planted::has(planted::Bug::SecretsInFastCommit) {
        note_ineligible(h, dir.ino, Reason::EncryptedName);
    }
    if flags.contains(InodeFlags::CASEFOLD) {
        note_spelling(h, dir.ino, name);
    }
}

/// Notes which spelling of a name the entry has. Of some malformed names e2fsck finds no folded
/// form.
fn note_spelling(h: &mut Handle, dir: InodeNr, name: &[u8]) {
    match extol_casefold::fold(name).filter(|_| extol_casefold::is_valid(name)) {
        Some(folded) => {
            let (folded, name) = (folded.into(), name.into());
            note(h, Delta::Spelling { dir: dir.0, folded, name });
        }
        None => note_ineligible(h, dir, Reason::Spelling),
    }
}

/// The gaps of a block of entries that can hold a name, in bytes.
fn gaps(area: &[u8]) -> Box<[u16]> {
    let gaps =
        dirent::iter(area).map_while(Result::ok).map(|entry| entry.rec_len - entry.used_len());
    gaps.filter(|gap| *gap >= entry_len(1))
        .map(|gap| u16::try_from(gap).unwrap_or(u16::MAX))
        .collect()
}

/// Notes that the block `buf` of entries, `area`, is going to be changed; perhaps to get the name
/// `added`. Must come before every change that can be the first of its transaction.
pub(crate) fn room(
    h: &mut Handle,
    dir: InodeNr,
    leaf: u64,
    buf: &Buf,
    area: impl FnOnce(&[u8]) -> &[u8],
    added: Option<&[u8]>,
) {
    if !h.tracks() {
        return;
    }
    let gaps = (!h.holds(buf)).then(|| gaps(area(&buf.data())));
    let need = added.map_or(0, |name| u32::try_from(entry_len(name.len())).unwrap_or(u32::MAX));
    if gaps.is_some() || need > 0 {
        note(h, Delta::Room { dir: dir.0, leaf, gaps, need });
    }
}

/// Notes that names of a block of entries go to a new one, `into`.
pub(crate) fn divided(h: &mut Handle, dir: InodeNr, leaf: u64, into: &Buf) {
    note(h, Delta::Divided { dir: dir.0, leaf, into: into.nr().0 });
}
