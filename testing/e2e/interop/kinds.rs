//! The kinds of volumes in the matrix.

use extol_testkit::Image;
use std::path::Path;

/// A kind of volume, as `mke2fs` makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext2,
    Ext3,
    Ext4,
    /// Older ext4: groups with uninit_bg checksums only.
    NoChecksums,
    InlineData,
    ExternalJournal,
    Inode128,
    MetaBg,
    OrphanFile,
    SparseSuper2,
    /// Block numbers of 32 bits, and groups that keep their metadata to themselves.
    Plain32,
    /// The checksum seed in the superblock, directories of three levels, large inodes.
    Modern,
}

impl Kind {
    pub fn make(self, dir: &Path, name: &str, block_size: u32, size: u64) -> Image {
        let args: &[&str] = match self {
            Self::Ext2 => &["-t", "ext2"],
            Self::Ext3 => &["-t", "ext3"],
            Self::Ext4 => &["-t", "ext4"],
            Self::NoChecksums => &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
            Self::InlineData => &["-t", "ext4", "-O", "inline_data"],
            Self::ExternalJournal => {
                return Image::mke2fs_external(
                    dir,
                    name,
                    size,
                    16 << 20,
                    block_size,
                    &["-t", "ext4"],
                );
            }
            Self::Inode128 => &["-t", "ext4", "-I", "128"],
            Self::MetaBg => &["-t", "ext4", "-O", "meta_bg,^resize_inode"],
            Self::OrphanFile => &["-t", "ext4", "-O", "orphan_file"],
            Self::SparseSuper2 => &["-t", "ext4", "-O", "sparse_super2", "-g", "8192"],
            Self::Plain32 => &["-t", "ext4", "-O", "^64bit,^flex_bg"],
            Self::Modern => &["-t", "ext4", "-O", "metadata_csum_seed,large_dir", "-I", "512"],
        };
        let bs = block_size.to_string();
        Image::mke2fs(dir, name, size, &[args, &["-b", &bs]].concat())
    }

    pub fn has_journal(self) -> bool {
        self != Self::Ext2
    }
}
