//! Finds the inodes behind a limit, and what leads to them.
//!
//! One pass over the inodes in use, and one over the blocks of all directories. Memory is needed
//! for what has to move, not for the rest. Nothing is changed here: a volume that cannot be worked
//! on is refused as a whole.

use std::collections::{BTreeMap, HashSet};

use extol_ondisk::xattr::stated_users;
use extol_ondisk::{Compat, FileType, InodeNr};

use super::super::{ResizeError, refuse};
use super::holders::{self, Holders};
use super::mover::LARGER_LOG;
use crate::alloc::Allocator;
use crate::dir::{self, Number};
use crate::inline;
use crate::mounted::MountedFs;
use crate::node::Node;

type Result<T> = std::result::Result<T, ResizeError>;

/// Blocks that every move changes, beside those that lead to the inode: its slots, bitmaps and
/// descriptors.
pub(super) const OWN_CREDITS: u32 =
    Allocator::ALLOC_INODE_CREDITS + Allocator::FREE_INODE_CREDITS + 2;

/// A block of a directory that has a name of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The directory, by the number that it had at the time of the survey.
    pub dir: u32,
    pub lblk: u32,
}

/// An inode behind the limit.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub is_dir: bool,
    /// Blocks with its names.
    pub places: Vec<Place>,
    /// Of the value of an attribute: what names it.
    pub holders: Option<Holders>,
    links: u16,
    names: u32,
    subdirs: u32,
}

/// What a survey found: by number.
pub(super) type Survey = BTreeMap<u32, Behind>;

/// Looks at the whole volume, whose blocks are all at home.
pub(super) fn survey(fs: &MountedFs, limit: u32) -> Result<Survey> {
    let (mut found, free) = inodes(fs, limit)?;
    if found.is_empty() {
        return Ok(found);
    }
    if fs.vol.geo.compat().contains(Compat::STABLE_INODES) {
        return refuse(
            "the volume has the feature stable_inodes: its files are encrypted by inode number, so \
             it cannot lose inodes",
        );
    }
    if found.len() as u64 > free {
        return refuse(format!(
            "{} inodes are in use behind the new end, and {free} are free in front of it: remove \
             files, or choose a larger size",
            found.len()
        ));
    }
    for ino in (1..=fs.vol.geo.inodes()).map(InodeNr) {
        if fs.vol.alloc.is_inode_used(ino)? && !fs.is_internal(ino.0) {
            let node = Node { ino, raw: fs.vol.read_inode(ino)? };
            if node.raw.is_dir() {
                directory(fs, &node, limit, &mut found)?;
            }
            holders::note(fs, &node, limit, &mut found)?;
        }
    }
    for (ino, behind) in &found {
        check(fs, *ino, behind)?;
    }
    Ok(found)
}

/// The inodes in use behind the limit, and how many are free in front of it.
fn inodes(fs: &MountedFs, limit: u32) -> Result<(Survey, u64)> {
    let mut found = Survey::new();
    let mut free = 0;
    for ino in (1..=fs.vol.geo.inodes()).map(InodeNr) {
        let is_used = fs.vol.alloc.is_inode_used(ino)?;
        if ino.0 <= limit {
            free += u64::from(!is_used);
        } else if is_used {
            if fs.is_internal(ino.0) {
                return refuse(format!(
                    "inode {ino} is behind the new end, and belongs to the volume itself: turn \
                     its feature off (extol tune -O ^orphan_file, -Q ^prjquota) and on again \
                     afterwards, or choose a larger size"
                ));
            }
            let raw = fs.vol.read_inode(ino)?;
            let is_value = holders::is_value(fs, &raw);
            let behind = Behind {
                is_dir: raw.is_dir(),
                holders: is_value.then(Holders::default),
                links: raw.links,
                ..Behind::default()
            };
            found.insert(ino.0, behind);
        }
    }
    Ok((found, free))
}

/// Notes what a directory says about inodes behind the limit.
fn directory(fs: &MountedFs, dir: &Node, limit: u32, found: &mut Survey) -> Result<()> {
    let mut damaged = false;
    let mut subdirs = 0;
    let mut unread = None;
    let is_behind = dir.ino.0 > limit;
    dir::numbers(&fs.vol, dir, &mut |number: Number<'_>| {
        if matches!(number.name, b"." | b"..") {
            return;
        }
        if is_behind {
            match is_dir(fs, number) {
                Ok(is_dir) => subdirs += u32::from(is_dir),
                Err(e) => unread = Some(e),
            }
        }
        if number.ino.0 > limit {
            let place = Place { dir: dir.ino.0, lblk: number.lblk };
            match found.get_mut(&number.ino.0) {
                None => damaged = true,
                Some(behind) => {
                    behind.names = behind.names.saturating_add(1);
                    if behind.places.last() != Some(&place) {
                        behind.places.push(place);
                    }
                }
            }
        }
    })?;
    if let Some(e) = unread {
        return Err(e.into());
    }
    if damaged {
        return refuse(format!(
            "directory inode {} has a name of a file that is deleted: run e2fsck -f and try again",
            dir.ino
        ));
    }
    if let Some(own) = found.get_mut(&dir.ino.0) {
        own.subdirs = subdirs;
    }
    Ok(())
}

/// True if an entry leads to a directory.
pub(super) fn is_dir(fs: &MountedFs, number: Number<'_>) -> extol_vfs::Result<bool> {
    match number.kind {
        Some(kind) => Ok(kind == FileType::Directory),
        None => Ok(fs.vol.read_inode(number.ino)?.is_dir()),
    }
}

/// Refuses an inode whose names are not as many as it counts, or too many for one transaction.
fn check(fs: &MountedFs, ino: u32, behind: &Behind) -> Result<()> {
    if let Some(holders) = &behind.holders {
        holders::check(fs, ino, holders)?;
        return check_credits(fs, ino, behind, holders.len());
    }
    let expected = if behind.is_dir { 1 } else { u32::from(behind.links) };
    if behind.names != expected || expected == 0 {
        return refuse(format!(
            "inode {ino} has {} names, but counts {expected}: run e2fsck -f and try again",
            behind.names
        ));
    }
    if fs.table.is_referenced(ino) {
        return refuse(format!("the file with inode {ino} is in use: close it and try again"));
    }
    let most = fs.vol.journal.max_credits_alone();
    let bound = (behind.places.len() as u64) + u64::from(behind.subdirs) + 1;
    if bound + u64::from(OWN_CREDITS) <= u64::from(most) {
        return Ok(());
    }
    let raw = fs.vol.read_inode(InodeNr(ino))?;
    let children = children(fs, &Node { ino: InodeNr(ino), raw }, behind.is_dir)?;
    let places = behind.places.iter().map(|place| (place.dir, place.lblk));
    let blocks = blocks(fs, places, ino, &children)?;
    check_credits(fs, ino, behind, blocks)
}

/// Refuses a transaction that the log cannot hold.
pub(super) fn check_credits(fs: &MountedFs, ino: u32, behind: &Behind, blocks: u32) -> Result<()> {
    let most = fs.vol.journal.max_credits_alone();
    if blocks.saturating_add(OWN_CREDITS) <= most {
        return Ok(());
    }
    let what = match behind {
        Behind { holders: Some(_), .. } => "the attributes whose value it is",
        Behind { is_dir: true, .. } => "its subdirectories",
        Behind { is_dir: false, .. } => "its names",
    };
    refuse(format!(
        "the journal is too small: inode {ino} has to move, which takes a transaction of {} \
         blocks with {what}, and this journal holds {most}; {LARGER_LOG}",
        blocks.saturating_add(OWN_CREDITS)
    ))
}

/// The most blocks that the move of an inode can take, if that is more than a transaction has in
/// any log. Inodes of the first group never move.
pub(super) fn largest_move(fs: &MountedFs, usual: u32) -> Result<u32> {
    let geo = &fs.vol.geo;
    let mut most = 0;
    for ino in (geo.inodes_per_group + 1..=geo.inodes()).map(InodeNr) {
        if !fs.vol.alloc.is_inode_used(ino)? || fs.is_internal(ino.0) {
            continue;
        }
        let raw = fs.vol.read_inode(ino)?;
        let is_dir = raw.is_dir();
        // (A directory with one link has more subdirectories than can be counted.)
        let blocks = match raw.links {
            1 if is_dir => children(fs, &Node { ino, raw }, true)?.len(),
            _ if holders::is_value(fs, &raw) => {
                usize::try_from(stated_users(&raw)).unwrap_or(usize::MAX)
            }
            links => links.into(),
        };
        most = most.max(u32::try_from(blocks).unwrap_or(u32::MAX));
    }
    let most = most.saturating_add(OWN_CREDITS);
    Ok(if most > usual { most } else { 0 })
}

/// The subdirectories of a directory.
pub(super) fn children(fs: &MountedFs, node: &Node, is_dir_itself: bool) -> Result<Vec<InodeNr>> {
    let mut children = Vec::new();
    let mut unread = None;
    if is_dir_itself {
        dir::numbers(&fs.vol, node, &mut |number: Number<'_>| {
            if !matches!(number.name, b"." | b"..") {
                match is_dir(fs, number) {
                    Ok(true) => children.push(number.ino),
                    Ok(false) => {}
                    Err(e) => unread = Some(e),
                }
            }
        })?;
    }
    unread.map_or(Ok(children), |e| Err(e.into()))
}

/// How many blocks lead to an inode: those with its names, its own `.`, and `..` of its
/// subdirectories. (They are read, so that none is found bad in the middle of a transaction.)
pub(super) fn blocks(
    fs: &MountedFs,
    places: impl Iterator<Item = (u32, u32)>,
    ino: u32,
    children: &[InodeNr],
) -> Result<u32> {
    let own = Node { ino: InodeNr(ino), raw: fs.vol.read_inode(InodeNr(ino))? };
    let dot = (own.raw.is_dir() && !inline::is_inline(&own)).then_some((ino, 0));
    let children = children.iter().map(|child| (child.0, 0));
    let mut blocks = HashSet::new();
    for (dir, lblk) in places.chain(dot).chain(children) {
        let ino = InodeNr(dir);
        let node = Node { ino, raw: fs.vol.read_inode(ino)? };
        blocks.insert(dir::place(&fs.vol, &node, lblk)?);
    }
    Ok(u32::try_from(blocks.len()).unwrap_or(u32::MAX))
}
