//! The quota files of a new volume: what its inodes use.

use super::filemap::{BlockImage, FileMap};
use super::options::MkfsOptions;
use super::{MkfsError, Result};
use extol_block::BlockNr;
use extol_ondisk::quota::{Entry, InMemory, Kind, QuotaFile, Version};
use extol_ondisk::{Inode, OnDiskError, RoCompat};
use std::collections::BTreeMap;

/// What each user, group and project has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage([BTreeMap<u32, Entry>; 3]);

impl Usage {
    /// Counts an inode, with so many attribute values in inodes of their own.
    pub(crate) fn count(&mut self, inode: &Inode, values: u64) {
        let space = inode.blocks.saturating_mul(512);
        self.add([inode.uid, inode.gid, inode.projid], space, 1 + values);
    }

    /// Knows that these ids will have something: the size of the files follows from the ids.
    pub(crate) fn expect(&mut self, uid: u32, gid: u32) {
        self.add([uid, gid, 0], 0, 1);
    }

    fn add(&mut self, owners: [u32; 3], space: u64, inodes: u64) {
        for (id, all) in owners.into_iter().zip(&mut self.0) {
            let entry = all.entry(id).or_insert(Entry::new(id));
            entry.space = entry.space.saturating_add(space);
            entry.inodes = entry.inodes.saturating_add(inodes);
        }
    }

    /// The contents of a quota file.
    pub(crate) fn contents(&self, kind: Kind) -> Result<Vec<u8>> {
        let all = Kind::ALL.into_iter().zip(&self.0).filter(|(of, _)| *of == kind);
        let made = || {
            let mut file = QuotaFile::create(InMemory::default(), kind, Version::V1)?;
            for (_, entries) in all {
                entries.values().try_for_each(|entry| file.set(entry).map(drop))?;
            }
            Ok(file.into_blocks().0)
        };
        made().map_err(|e: OnDiskError| MkfsError::Refused(format!("no quota files: {e}")))
    }
}

/// The quota files that were planned, by the kinds of their owners.
#[derive(Debug, Default)]
pub(crate) struct QuotaFiles {
    pub(crate) maps: Vec<(Kind, FileMap)>,
    pub(crate) usage: Usage,
}

impl QuotaFiles {
    /// Their blocks.
    pub(crate) fn blocks(&self, block_len: usize) -> Result<Vec<BlockImage>> {
        let mut blocks = Vec::new();
        for (kind, map) in &self.maps {
            let bytes = self.usage.contents(*kind)?;
            debug_assert_eq!(map.len(), bytes.len().div_ceil(block_len) as u64);
            for (nr, part) in (0..).zip(bytes.chunks(block_len)) {
                let mut block = vec![0; block_len];
                block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                let at = map.block(nr).unwrap_or(BlockNr(0));
                blocks.push((at, block));
            }
        }
        Ok(blocks)
    }
}

/// The kinds of quota files that a volume gets: by default those for users and groups, and that for
/// projects where there are some.
pub(super) fn kinds(options: &MkfsOptions, features: RoCompat) -> Vec<Kind> {
    let chosen = &options.extended.quota_types;
    let is_made = |kind: &Kind| match kind {
        Kind::Project => features.contains(RoCompat::PROJECT),
        kind => chosen.is_empty() || chosen.contains(kind),
    };
    let quota = features.contains(RoCompat::QUOTA);
    Kind::ALL.into_iter().filter(|kind| quota && is_made(kind)).collect()
}
