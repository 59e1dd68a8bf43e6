//! Which features can be switched, and why not the others.

use extol_ondisk::features::Feature;
use extol_ondisk::{Compat, Incompat, RoCompat};

/// Whether a feature can be switched on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Can {
    /// Both ways.
    Both,
    /// Only on; off for this reason.
    On(&'static str),
    /// Only off; on for this reason.
    Off(&'static str),
    /// Neither: why, and what to use instead.
    Neither(&'static str),
}

/// Why Extol cannot have some features at all.
const NOT_WRITTEN: &str = "Extol does not write such volumes: use tune2fs";

/// What can be done with a feature.
pub(super) fn can(feature: Feature) -> Can {
    use Can::{Both, Neither, On};
    match feature {
        Feature::Compat(bit) => compat(bit),
        Feature::Incompat(Incompat::CSUM_SEED | Incompat::MMP) => Both,
        Feature::Incompat(Incompat::EXTENTS) => On("files have extents, and new ones get them"),
        Feature::Incompat(Incompat::LARGE_DIR) => On("tune2fs cannot do that either"),
        Feature::Incompat(Incompat::FLEX_BG) => {
            On("metadata of groups lies in other groups: make a new volume")
        }
        Feature::Incompat(Incompat::FILETYPE) => {
            Neither("all directories would change: use tune2fs, and then e2fsck -f")
        }
        Feature::Incompat(Incompat::BIT64) => {
            Neither("all descriptors would change: use resize2fs -b or -s")
        }
        Feature::Incompat(Incompat::META_BG | Incompat::INLINE_DATA) => {
            Neither("only mkfs can choose it")
        }
        Feature::Incompat(Incompat::EA_INODE | Incompat::ENCRYPT | Incompat::CASEFOLD)
        | Feature::RoCompat(RoCompat::QUOTA | RoCompat::VERITY | RoCompat::READONLY) => {
            Neither(NOT_WRITTEN)
        }
        Feature::RoCompat(
            RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::PROJECT,
        ) => Both,
        Feature::RoCompat(RoCompat::METADATA_CSUM | RoCompat::UNINIT_BG) => Neither(
            "all metadata would change: use tune2fs, on a volume that e2fsck -f has checked",
        ),
        Feature::RoCompat(RoCompat::SPARSE_SUPER) => {
            Neither("copies of the superblock would go: use tune2fs, and then e2fsck -f")
        }
        _ => Neither("it is not a feature that can be switched"),
    }
}

fn compat(bit: Compat) -> Can {
    use Can::{Both, Neither, Off, On};
    match bit {
        Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE | Compat::DIR_INDEX => Both,
        Compat::STABLE_INODES => On("the numbers of inodes may be part of encrypted contents"),
        Compat::RESIZE_INODE => {
            Off("the blocks behind the descriptors are in use: make a new volume")
        }
        Compat::EXT_ATTR | Compat::SPARSE_SUPER2 => Neither("only mkfs can choose it"),
        _ => Neither("it is not a feature that can be switched"),
    }
}
