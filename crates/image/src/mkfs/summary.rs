//! What mkfs made, for the caller to show.

use super::plan::Plan;
use extol_ondisk::superblock::uuid_text;
use extol_ondisk::{Compat, Incompat, RoCompat, Superblock};
use extol_vfs::{bytes_text, plain};
use std::fmt;

/// What the caller may want to know about a new volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notes {
    /// What was asked for and not done.
    pub warnings: Vec<String>,
    /// What was decided without being asked for.
    pub notes: Vec<String>,
}

/// A new volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Blocks reserved for the super-user.
    pub reserved_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Bytes per inode.
    pub inode_size: u16,
    /// Groups.
    pub groups: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Blocks of the internal journal, fast-commit area included; 0 without one.
    pub journal_blocks: u32,
    /// Blocks that hold copies of the superblock.
    pub backup_superblocks: Vec<u64>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Label.
    pub label: String,
    /// Features, as dumpe2fs names them.
    pub features: Vec<&'static str>,
    /// True for a journal device.
    pub is_journal: bool,
    /// Things that are not as one might expect.
    pub notes: Notes,
}

/// `ext2`, `ext3` or `ext4`.
pub(crate) fn kind(sb: &Superblock) -> &'static str {
    let old_incompat = Incompat::FILETYPE | Incompat::NEEDS_RECOVERY | Incompat::META_BG;
    let old_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    if !old_incompat.contains(sb.feature_incompat) || !old_ro_compat.contains(sb.feature_ro_compat)
    {
        "ext4"
    } else if sb.feature_compat.contains(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

fn features(sb: &Superblock) -> Vec<&'static str> {
    [sb.feature_compat.names(), sb.feature_incompat.names(), sb.feature_ro_compat.names()].concat()
}

impl Summary {
    pub(crate) fn of_journal_device(sb: &Superblock, notes: Notes) -> Self {
        Self {
            block_size: sb.block_bytes(),
            blocks: sb.blocks_count,
            free_blocks: 0,
            reserved_blocks: 0,
            inodes: 0,
            inode_size: sb.inode_size,
            groups: 0,
            blocks_per_group: sb.blocks_per_group,
            inodes_per_group: 0,
            journal_blocks: 0,
            backup_superblocks: Vec::new(),
            uuid: sb.uuid,
            label: bytes_text(sb.label()),
            features: features(sb),
            is_journal: true,
            notes,
        }
    }

    pub(crate) fn of_plan(plan: &Plan) -> Self {
        let (sb, geo) = (&plan.sb, &plan.geo);
        Self {
            free_blocks: sb.free_blocks_count,
            reserved_blocks: sb.r_blocks_count,
            inodes: geo.inodes(),
            groups: geo.groups(),
            inodes_per_group: geo.inodes_per_group,
            journal_blocks: plan.journal.as_ref().map_or(0, |j| j.size.total()),
            backup_superblocks: geo.backup_groups().map(|g| geo.group_first_block(g).0).collect(),
            is_journal: false,
            ..Self::of_journal_device(sb, plan.notes.clone())
        }
    }

    /// How it is laid out, line by line.
    #[must_use]
    pub fn details(&self) -> String {
        let label = if self.label.is_empty() { "<none>".into() } else { plain(&self.label) };
        let mut text = format!("label: {label}\nfeatures: {}\n", self.features.join(" "));
        if !self.is_journal {
            text += &format!(
                "groups: {} of {} blocks and {} inodes\ninode size: {} bytes\n\
                 free blocks: {}, reserved for root: {}\n",
                self.groups,
                self.blocks_per_group,
                self.inodes_per_group,
                self.inode_size,
                self.free_blocks,
                self.reserved_blocks
            );
        }
        text
    }

    /// The UUID in its usual form.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.block_size / 1024;
        if self.is_journal {
            return write!(
                f,
                "journal device with {} {kib}k blocks, UUID {}",
                self.blocks,
                self.uuid_text()
            );
        }
        writeln!(f, "file system with {} {kib}k blocks and {} inodes", self.blocks, self.inodes)?;
        write!(f, "UUID: {}", self.uuid_text())?;
        if self.journal_blocks > 0 {
            write!(f, "\njournal: {} blocks", self.journal_blocks)?;
        }
        if !self.backup_superblocks.is_empty() {
            let all: Vec<String> =
                self.backup_superblocks.iter().map(ToString::to_string).collect();
            write!(f, "\nsuperblock copies on blocks: {}", all.join(", "))?;
        }
        Ok(())
    }
}
