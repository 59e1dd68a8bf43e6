//! Which features Extol can write, and which it must not touch.

use extol_ondisk::superblock::CREATOR_HURD;
use extol_ondisk::{Geometry, Incompat, RoCompat, Superblock};

use crate::error::{OpenResult, refuse};

/// Incompatible features that Extol reads and writes.
const WRITABLE: Incompat = Incompat::FILETYPE
    .union(Incompat::NEEDS_RECOVERY)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::EA_INODE)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD)
    .union(Incompat::INLINE_DATA);

/// Read-only-compatible features that Extol keeps right when it writes.
const RO_WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::BTREE_DIR)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::UNINIT_BG)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::QUOTA)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// Revisions of the superblock that exist.
const NEWEST_REVISION: u32 = 1;

/// Refuses what cannot be mounted this way, with the names of the features.
pub(crate) fn check(sb: &Superblock, geo: &Geometry, read_only: bool) -> OpenResult<()> {
    let unknown = sb.feature_incompat.bits() & !WRITABLE.bits();
    if unknown != 0 {
        return refuse(format!(
            "cannot mount: the volume uses features that Extol does not know ({})",
            names(Incompat::from_bits_retain(unknown).names(), unknown)
        ));
    }
    if geo.has_metadata_csum()
        && sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM)
        && sb.checksum_type != 1
    {
        return refuse("cannot mount: the volume uses an unknown checksum algorithm");
    }
    let casefold = sb.feature_incompat.contains(Incompat::CASEFOLD);
    if casefold && sb.encoding != Superblock::UTF8_12_1 {
        return refuse(format!(
            "cannot mount: the volume has names in the unknown encoding {}",
            sb.encoding
        ));
    }
    let of_hurd = sb.creator_os == CREATOR_HURD;
    let hurd = Incompat::BIT64.union(Incompat::EA_INODE);
    if of_hurd && sb.feature_incompat.intersects(hurd) {
        return refuse(format!(
            "cannot mount: a volume of the Hurd cannot have {}",
            (sb.feature_incompat & hurd).names().join(", ")
        ));
    }
    if read_only {
        return Ok(());
    }
    if of_hurd {
        return refuse(
            "cannot mount read-write: Extol does not write volumes of the Hurd; mount with -o ro",
        );
    }
    if sb.rev_level > NEWEST_REVISION {
        return refuse(format!(
            "cannot mount read-write: the volume has the unknown revision {}; mount with -o ro",
            sb.rev_level
        ));
    }
    if let Some(odd) = geo.odd_clusters() {
        return refuse(format!("cannot mount read-write: the volume has {odd}; mount with -o ro"));
    }
    if geo.has_clusters() && !sb.feature_incompat.contains(Incompat::EXTENTS) {
        return refuse(
            "cannot mount read-write: the volume has bigalloc without extents; mount with -o ro",
        );
    }
    let ro = sb.feature_ro_compat.bits() & !RO_WRITABLE.bits();
    if ro == 0 {
        return Ok(());
    }
    refuse(format!(
        "cannot mount read-write: Extol does not write volumes with {}; mount with -o ro",
        names(RoCompat::from_bits_retain(ro).names(), ro)
    ))
}

fn names(list: Vec<&'static str>, bits: u32) -> String {
    if list.is_empty() { format!("feature bits {bits:#x}") } else { list.join(", ") }
}
