//! Which features Extol can write, which it can read, and which it must not touch.

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
    .union(Incompat::INLINE_DATA)
    .union(Incompat::CASEFOLD);

/// Incompatible features that are safe to read around: names or contents may look odd, nothing is
/// misread.
const READABLE: Incompat = Incompat::EA_INODE.union(Incompat::ENCRYPT);

/// Read-only-compatible features that Extol keeps right when it writes.
const RO_WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::UNINIT_BG)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::ORPHAN_PRESENT);

/// Revisions of the superblock that exist.
const NEWEST_REVISION: u32 = 1;

/// Refuses what cannot be mounted this way, with the names of the features.
pub(crate) fn check(sb: &Superblock, geo: &Geometry, read_only: bool) -> OpenResult<()> {
    let unknown = sb.feature_incompat.bits() & !WRITABLE.union(READABLE).bits();
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
    if read_only {
        return Ok(());
    }
    if sb.rev_level > NEWEST_REVISION {
        return refuse(format!(
            "cannot mount read-write: the volume has the unknown revision {}; mount with -o ro",
            sb.rev_level
        ));
    }
    let incompat = sb.feature_incompat & READABLE;
    let ro = sb.feature_ro_compat.bits() & !RO_WRITABLE.bits();
    if incompat.is_empty() && ro == 0 {
        return Ok(());
    }
    let mut list = incompat.names();
    list.extend(RoCompat::from_bits_retain(ro).names());
    refuse(format!(
        "cannot mount read-write: Extol does not write volumes with {}; mount with -o ro",
        names(list, ro)
    ))
}

fn names(list: Vec<&'static str>, bits: u32) -> String {
    if list.is_empty() { format!("feature bits {bits:#x}") } else { list.join(", ") }
}
