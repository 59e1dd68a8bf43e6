//! Fields of the superblock that Linux refuses in every mount, though everything can be found.
//!
//! [`Geometry::new`](crate::Geometry::new) refuses the numbers by which structures are found. The
//! fields here decide nothing of that, so a checker can go on and report them; a mount refuses
//! them, read-only as well, as Linux does.

use super::Superblock;
use crate::features::{Compat, Incompat, RoCompat};
use crate::geometry::GOOD_OLD_INODE_SIZE;

/// The last number of a hash of directories. It is that of encrypted and casefolded directories,
/// whose keys are in no superblock, so it is no default.
const SIPHASH: u8 = 6;

impl Superblock {
    /// The first of the fields that Linux refuses, and its value, as words of a sentence.
    #[must_use]
    pub fn refused_field(&self) -> Option<String> {
        self.refused_clusters()
            .or_else(|| self.refused_extra_isize())
            .or_else(|| self.refused_hash())
            .or_else(|| self.refused_encryption())
            .or_else(|| self.refused_journal())
    }

    /// Without bigalloc clusters are blocks, in both fields.
    fn refused_clusters(&self) -> Option<String> {
        if self.feature_ro_compat.contains(RoCompat::BIGALLOC) {
            return None;
        }
        if self.log_cluster_size != self.log_block_size {
            let (cluster, block) = (self.log_cluster_size, self.log_block_size);
            return Some(format!(
                "log_cluster_size is {cluster} and log_block_size {block}, without bigalloc"
            ));
        }
        let (clusters, blocks) = (self.clusters_per_group, self.blocks_per_group);
        (clusters != blocks).then(|| {
            format!(
                "clusters_per_group is {clusters} and blocks_per_group {blocks}, without bigalloc"
            )
        })
    }

    /// The extra fields of inodes fit into inodes.
    fn refused_extra_isize(&self) -> Option<String> {
        let has_room = self.rev_level > 0 && self.inode_size > GOOD_OLD_INODE_SIZE;
        if !has_room || !self.feature_ro_compat.contains(RoCompat::EXTRA_ISIZE) {
            return None;
        }
        let room = self.inode_size - GOOD_OLD_INODE_SIZE;
        let fields = [
            ("want_extra_isize", self.want_extra_isize),
            ("min_extra_isize", self.min_extra_isize),
        ];
        let (name, bytes) = fields.into_iter().find(|(_, bytes)| *bytes > room)?;
        Some(format!("{name} is {bytes}, and inodes have {room} extra bytes"))
    }

    fn refused_hash(&self) -> Option<String> {
        let hash = self.def_hash_version;
        (hash >= SIPHASH).then(|| format!("def_hash_version is {hash}, which is no default hash"))
    }

    fn refused_encryption(&self) -> Option<String> {
        let level = self.encryption_level;
        let refused = self.feature_incompat.contains(Incompat::ENCRYPT) && level != 0;
        refused.then(|| format!("encryption_level is {level}, which is unknown"))
    }

    fn refused_journal(&self) -> Option<String> {
        let (inode, device) = (self.journal_inum, self.journal_dev);
        let both = self.feature_compat.contains(Compat::HAS_JOURNAL) && inode != 0 && device != 0;
        both.then(|| {
            format!("journal_inum is {inode} and journal_dev {device:#x}: one has to be 0")
        })
    }
}
