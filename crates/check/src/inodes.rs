//! What the later passes need to know of every inode: a few bytes each, up to the last one in use
//! of each group.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use extol_ondisk::{FileType, InodeSeed};

use crate::map::Run;

/// One inode, as the scan of the inode tables saw it.
#[derive(Debug, Default)]
pub(crate) struct Info {
    /// Links that it states.
    pub links: u16,
    /// Code of its type in directory entries; 0: none.
    pub kind: u8,
    pub bits: u8,
    /// Names that were found.
    pub found: AtomicU32,
    /// For a directory: the one that it was found in.
    pub parent: AtomicU32,
}

impl Info {
    /// In use.
    pub(crate) const USED: u8 = 1;
    /// Holds an attribute's value.
    pub(crate) const EA_INODE: u8 = 2;
    /// A hashed directory.
    pub(crate) const INDEX: u8 = 4;
    /// Waits for its deletion.
    pub(crate) const ORPHAN: u8 = 8;
    /// Made for AFS-like servers, and not checked further.
    pub(crate) const IMAGIC: u8 = 16;

    pub(crate) fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    pub(crate) fn set(&mut self, bit: u8) {
        self.bits |= bit;
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory as u8
    }

    pub(crate) fn is_used(&self) -> bool {
        self.has(Self::USED)
    }

    /// Notes that a name was found for it.
    pub(crate) fn count_name(&self) {
        // Saturates far beyond what a link count can hold.
        let _ = self.found.fetch_update(Relaxed, Relaxed, |n| n.checked_add(1));
    }
}

/// All inodes.
#[derive(Debug)]
pub(crate) struct Inodes {
    per_group: u32,
    groups: Vec<Vec<Info>>,
}

impl Inodes {
    pub(crate) fn new(per_group: u32, groups: Vec<Vec<Info>>) -> Self {
        Self { per_group, groups }
    }

    /// An inode; `None` if it lies behind the last one in use of its group, or nowhere.
    pub(crate) fn get(&self, ino: u32) -> Option<&Info> {
        let n = ino.checked_sub(1)?;
        self.groups.get((n / self.per_group) as usize)?.get((n % self.per_group) as usize)
    }

    /// The inodes of a group.
    pub(crate) fn group(&self, group: u32) -> &[Info] {
        self.groups.get(group as usize).map_or(&[], Vec::as_slice)
    }

    /// All inodes in use with their numbers.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u32, &Info)> {
        let per_group = self.per_group;
        (0u32..).zip(&self.groups).flat_map(move |(group, infos)| {
            let first = group.wrapping_mul(per_group).wrapping_add(1);
            (first..).zip(infos).filter(|(_, info)| info.is_used())
        })
    }
}

/// A directory that pass 2 has to read.
#[derive(Debug)]
pub(crate) struct Dir {
    pub ino: u32,
    pub seed: InodeSeed,
    pub content: DirContent,
    /// Hashed, and its root was good enough to go on.
    pub hashed: bool,
    /// A hash stands behind each name.
    pub stores_hashes: bool,
    /// Names that are equal but for case are one name.
    pub folds: bool,
    pub encrypted: bool,
    pub orphan: bool,
}

/// Where a directory's entries are.
#[derive(Debug)]
pub(crate) enum DirContent {
    /// In blocks, ascending; `blocks` is the number of the last one plus 1.
    Blocks { runs: Vec<Run>, blocks: u64 },
    /// In the inode: 60 bytes, then those in the attribute.
    Inline(Vec<u8>),
}
