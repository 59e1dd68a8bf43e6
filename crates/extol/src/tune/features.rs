//! Which features can be switched, and why not the others.

use extol_ondisk::features::Feature;
use extol_ondisk::{Compat, Incompat, RoCompat};

/// Why a feature cannot be switched on or off, and what to do instead; `None` if it can.
pub(super) fn why_not(feature: Feature, on: bool) -> Option<&'static str> {
    match feature {
        Feature::Compat(bit) => compat(bit, on),
        Feature::Incompat(bit) => incompat(bit, on),
        Feature::RoCompat(bit) => ro_compat(bit, on),
    }
}

/// Files may need it for ever.
const FILES: &str = "files may depend on it: make a new volume";
const NEW: &str = "only a new volume can be made with it or without it";
const STATE: &str = "it is a state of a volume in use: a mount or e2fsck changes it";
const NO_TOOL: &str = "no tool can do that: leave it out";

fn compat(bit: Compat, on: bool) -> Option<&'static str> {
    match bit {
        Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE | Compat::DIR_INDEX => None,
        Compat::STABLE_INODES => (!on).then_some(
            "the numbers of inodes may be part of encrypted contents: make a new volume",
        ),
        Compat::RESIZE_INODE => {
            on.then_some("the blocks behind the descriptors are in use: make a new volume")
        }
        Compat::EXT_ATTR | Compat::SPARSE_SUPER2 => Some(NEW),
        _ => Some(NO_TOOL),
    }
}

fn incompat(bit: Incompat, on: bool) -> Option<&'static str> {
    match bit {
        Incompat::CSUM_SEED | Incompat::MMP | Incompat::CASEFOLD | Incompat::FILETYPE => None,
        Incompat::EXTENTS | Incompat::LARGE_DIR | Incompat::EA_INODE | Incompat::ENCRYPT => {
            (!on).then_some(FILES)
        }
        Incompat::FLEX_BG => {
            (!on).then_some("metadata of groups lies in other groups: make a new volume")
        }
        Incompat::BIT64 if on => Some("all descriptors would change: use resize2fs -b"),
        Incompat::BIT64 => Some("all descriptors would change: use resize2fs -s"),
        Incompat::META_BG | Incompat::INLINE_DATA => Some(NEW),
        Incompat::NEEDS_RECOVERY => Some(STATE),
        Incompat::JOURNAL_DEV => Some("a device for a journal is made so: mke2fs -O journal_dev"),
        _ => Some(NO_TOOL),
    }
}

fn ro_compat(bit: RoCompat, on: bool) -> Option<&'static str> {
    match bit {
        RoCompat::LARGE_FILE
        | RoCompat::HUGE_FILE
        | RoCompat::DIR_NLINK
        | RoCompat::EXTRA_ISIZE
        | RoCompat::PROJECT
        | RoCompat::QUOTA
        | RoCompat::READONLY => None,
        RoCompat::VERITY => (!on).then_some(FILES),
        RoCompat::METADATA_CSUM | RoCompat::UNINIT_BG => None,
        RoCompat::SPARSE_SUPER if on => None,
        RoCompat::SPARSE_SUPER | RoCompat::BIGALLOC => Some(NEW),
        RoCompat::ORPHAN_PRESENT => Some(STATE),
        _ => Some(NO_TOOL),
    }
}
