//! Feature bits and their names as mke2fs, tune2fs and dumpe2fs spell them.
//!
//! The three words differ in what an implementation that does not know a bit must do: `compat`
//! nothing, `ro_compat` not write, `incompat` not mount.

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Compat: u32 {
        /// Directory preallocation (never used).
        const DIR_PREALLOC = 0x1;
        /// Inodes for AFS-like servers (never used).
        const IMAGIC_INODES = 0x2;
        /// Has a journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Blocks reserved for growing the descriptor table.
        const RESIZE_INODE = 0x10;
        /// Hashed directories.
        const DIR_INDEX = 0x20;
        /// Lazy block groups (never used).
        const LAZY_BG = 0x40;
        /// Snapshot exclude inode (never merged).
        const EXCLUDE_INODE = 0x80;
        /// Snapshot exclude bitmap (never merged).
        const EXCLUDE_BITMAP = 0x100;
        /// Superblock copies only in two named groups.
        const SPARSE_SUPER2 = 0x200;
        /// Fast commits.
        const FAST_COMMIT = 0x400;
        /// Inodes are never renumbered.
        const STABLE_INODES = 0x800;
        /// Orphans in a file of their own.
        const ORPHAN_FILE = 0x1000;
    }

    /// Features that an implementation must know in order to read or write.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Incompat: u32 {
        /// Compression (never merged).
        const COMPRESSION = 0x1;
        /// Directory entries hold the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const NEEDS_RECOVERY = 0x4;
        /// This is an external journal, not a file system.
        const JOURNAL_DEV = 0x8;
        /// Descriptors spread over meta groups.
        const META_BG = 0x10;
        /// Files may be mapped by extents.
        const EXTENTS = 0x40;
        /// 64-bit block numbers (`64bit`).
        const BIT64 = 0x80;
        /// Multiple-mount protection.
        const MMP = 0x100;
        /// Groups pool their metadata.
        const FLEX_BG = 0x200;
        /// Large attribute values in inodes of their own.
        const EA_INODE = 0x400;
        /// Data in directory entries (Lustre).
        const DIRDATA = 0x1000;
        /// Checksum seed stored in the superblock.
        const CSUM_SEED = 0x2000;
        /// Three-level hashed directories, larger than 2 GiB.
        const LARGE_DIR = 0x4000;
        /// Small files inside the inode.
        const INLINE_DATA = 0x8000;
        /// Encryption.
        const ENCRYPT = 0x10000;
        /// Case-insensitive directories.
        const CASEFOLD = 0x20000;
    }

    /// Features that an implementation must know in order to write.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RoCompat: u32 {
        /// Superblock copies only in groups 0, 1 and powers of 3, 5, 7.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never used).
        const BTREE_DIR = 0x4;
        /// Block counts in units of blocks, 48 bits wide.
        const HUGE_FILE = 0x8;
        /// Descriptor checksums (crc16) and uninitialised groups (`uninit_bg`).
        const UNINIT_BG = 0x10;
        /// More than 65000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes have a guaranteed extra area.
        const EXTRA_ISIZE = 0x40;
        /// Has a snapshot (never merged).
        const SNAPSHOT = 0x80;
        /// Quota files are hidden inodes.
        const QUOTA = 0x100;
        /// Allocation in clusters.
        const BIGALLOC = 0x200;
        /// Checksums (crc32c) on all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas (never merged).
        const REPLICA = 0x800;
        /// Never to be written.
        const READONLY = 0x1000;
        /// Project ids and quota.
        const PROJECT = 0x2000;
        /// Blocks shared between files (Android).
        const SHARED_BLOCKS = 0x4000;
        /// fs-verity files.
        const VERITY = 0x8000;
        /// The orphan file may hold orphans.
        const ORPHAN_PRESENT = 0x10000;
    }
}

macro_rules! named {
    ($flags:ident, $($bit:ident = $name:literal),+ $(,)?) => {
        impl $flags {
            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$bit, $name)),+];

            /// Names of the known bits that are set, in bit order.
            #[must_use]
            pub fn names(self) -> Vec<&'static str> {
                let set = Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit));
                set.map(|(_, name)| *name).collect()
            }

            /// The bit with this name.
            #[must_use]
            pub fn from_feature_name(name: &str) -> Option<Self> {
                Self::NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
            }

            /// Bits that have no name here.
            #[must_use]
            pub fn unknown(self) -> u32 {
                self.difference(Self::all()).bits()
            }
        }
    };
}

named!(
    Compat,
    DIR_PREALLOC = "dir_prealloc",
    IMAGIC_INODES = "imagic_inodes",
    HAS_JOURNAL = "has_journal",
    EXT_ATTR = "ext_attr",
    RESIZE_INODE = "resize_inode",
    DIR_INDEX = "dir_index",
    LAZY_BG = "lazy_bg",
    EXCLUDE_INODE = "exclude_inode",
    EXCLUDE_BITMAP = "snapshot_bitmap",
    SPARSE_SUPER2 = "sparse_super2",
    FAST_COMMIT = "fast_commit",
    STABLE_INODES = "stable_inodes",
    ORPHAN_FILE = "orphan_file",
);

named!(
    Incompat,
    COMPRESSION = "compression",
    FILETYPE = "filetype",
    NEEDS_RECOVERY = "needs_recovery",
    JOURNAL_DEV = "journal_dev",
    META_BG = "meta_bg",
    EXTENTS = "extent",
    BIT64 = "64bit",
    MMP = "mmp",
    FLEX_BG = "flex_bg",
    EA_INODE = "ea_inode",
    DIRDATA = "dirdata",
    CSUM_SEED = "metadata_csum_seed",
    LARGE_DIR = "large_dir",
    INLINE_DATA = "inline_data",
    ENCRYPT = "encrypt",
    CASEFOLD = "casefold",
);

named!(
    RoCompat,
    SPARSE_SUPER = "sparse_super",
    LARGE_FILE = "large_file",
    BTREE_DIR = "btree_dir",
    HUGE_FILE = "huge_file",
    UNINIT_BG = "uninit_bg",
    DIR_NLINK = "dir_nlink",
    EXTRA_ISIZE = "extra_isize",
    SNAPSHOT = "snapshot",
    QUOTA = "quota",
    BIGALLOC = "bigalloc",
    METADATA_CSUM = "metadata_csum",
    REPLICA = "replica",
    READONLY = "read-only",
    PROJECT = "project",
    SHARED_BLOCKS = "shared_blocks",
    VERITY = "verity",
    ORPHAN_PRESENT = "orphan_present",
);

/// One bit of any of the three words.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// A compatible feature.
    Compat(Compat),
    /// An incompatible feature.
    Incompat(Incompat),
    /// A read-only compatible feature.
    RoCompat(RoCompat),
}

impl Feature {
    /// The feature with this name, as mke2fs and tune2fs accept it (`extents` and `uninit_groups`
    /// too).
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = match name {
            "extents" => "extent",
            "uninit_groups" | "gdt_csum" => "uninit_bg",
            "snapshot_bitmap" | "exclude_bitmap" => "snapshot_bitmap",
            "csum_seed" => "metadata_csum_seed",
            "fname_encoding" => "casefold",
            "has_snapshot" => "snapshot",
            other => other,
        };
        Compat::from_feature_name(name)
            .map(Self::Compat)
            .or_else(|| Incompat::from_feature_name(name).map(Self::Incompat))
            .or_else(|| RoCompat::from_feature_name(name).map(Self::RoCompat))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let names = match self {
            Self::Compat(bit) => bit.names(),
            Self::Incompat(bit) => bit.names(),
            Self::RoCompat(bit) => bit.names(),
        };
        names.first().copied().unwrap_or_default()
    }

    /// The names of all features.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let compat = Compat::NAMES.iter().map(|(_, name)| *name);
        let incompat = Incompat::NAMES.iter().map(|(_, name)| *name);
        compat.chain(incompat).chain(RoCompat::NAMES.iter().map(|(_, name)| *name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits() {
        assert_eq!(Feature::parse("64bit"), Some(Feature::Incompat(Incompat::BIT64)));
        assert_eq!(Feature::parse("extents"), Some(Feature::Incompat(Incompat::EXTENTS)));
        assert_eq!(
            Feature::parse("metadata_csum"),
            Some(Feature::RoCompat(RoCompat::METADATA_CSUM))
        );
        assert_eq!(Feature::parse("no_such_thing"), None);
        for name in Feature::names() {
            assert_eq!(Feature::parse(name).map(Feature::name), Some(name));
        }
        assert_eq!((Compat::HAS_JOURNAL | Compat::DIR_INDEX).names(), ["has_journal", "dir_index"]);
        assert_eq!(Incompat::from_bits_retain(0x8000_0002).unknown(), 0x8000_0000);
        assert_eq!(Compat::NAMES.len(), Compat::all().iter().count());
        assert_eq!(Incompat::NAMES.len(), Incompat::all().iter().count());
        assert_eq!(RoCompat::NAMES.len(), RoCompat::all().iter().count());
    }
}
