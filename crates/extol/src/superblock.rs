//! The superblock on a device, outside of the journal: read, checked, written, shown as text.

use extol_block::BlockDevice;
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use extol_ondisk::{Compat, Geometry, Incompat, RoCompat, Superblock};
use extol_vfs::bytes_text;

use crate::error::{OpenError, OpenResult, refuse};

/// Reads a superblock, the primary one or the copy at `sb` KiB.
pub(crate) fn read_superblock(dev: &dyn BlockDevice, sb: Option<u64>) -> OpenResult<Superblock> {
    let at = match sb {
        None | Some(1) => SUPERBLOCK_OFFSET,
        Some(kib) => kib.saturating_mul(1024),
    };
    if dev.size() < at.saturating_add(SUPERBLOCK_LEN as u64) {
        return refuse("not an ext4 volume: too small to hold a superblock");
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    dev.read_at(&mut bytes, at)?;
    Superblock::decode(&bytes).map_err(|e| {
        OpenError::new(match sb.filter(|kib| *kib != 1) {
            Some(kib) => format!("no superblock {kib} KiB from the start ({e}): sb= is in KiB"),
            None => format!("not an ext4 volume, or its superblock is damaged ({e})"),
        })
    })
}

/// Checks what does not need the journal.
pub(crate) fn geometry(dev: &dyn BlockDevice, sb: &Superblock) -> OpenResult<Geometry> {
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("this is an external journal, not a file system");
    }
    let need = u128::from(sb.blocks_count) << (10 + sb.log_block_size.min(20));
    let size = dev.size().min(dev.size_now());
    if need > u128::from(size) {
        return refuse(format!(
            "the volume is truncated: it should have {need} bytes and has {size}"
        ));
    }
    Geometry::new(sb, Some(dev.size()))
        .map_err(|e| OpenError::new(format!("damaged superblock: {e}")))
}

/// Writes the superblock to its place, durably, keeping what else is in the device's sector.
pub(crate) fn write_superblock(dev: &dyn BlockDevice, sb: &Superblock) -> OpenResult<()> {
    dev.write_at(&sb.encode(), SUPERBLOCK_OFFSET)?;
    dev.flush()?;
    Ok(())
}

/// True if inodes are left to be deleted or truncated.
pub(crate) fn has_orphans(sb: &Superblock) -> bool {
    sb.last_orphan != 0 || sb.feature_ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

/// True if the volume has an orphan file.
pub(crate) fn has_orphan_file(geo: &Geometry) -> bool {
    geo.compat().contains(Compat::ORPHAN_FILE)
}

/// Inodes that no name may lead to, whatever their numbers: journal, orphan file, quotas. An
/// element without its feature is 0.
pub(crate) fn internal_inodes(sb: &Superblock) -> [u32; 5] {
    let (compat, ro) = (sb.feature_compat, sb.feature_ro_compat);
    let having = |on: bool, ino: u32| if on { ino } else { 0 };
    [
        having(compat.contains(Compat::HAS_JOURNAL), sb.journal_inum),
        having(compat.contains(Compat::ORPHAN_FILE), sb.orphan_file_inum),
        having(ro.contains(RoCompat::QUOTA), sb.usr_quota_inum),
        having(ro.contains(RoCompat::QUOTA), sb.grp_quota_inum),
        having(ro.contains(RoCompat::QUOTA | RoCompat::PROJECT), sb.prj_quota_inum),
    ]
}

/// A NUL-padded name as text; what is no text is written as `\xNN`.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes_text(bytes.get(..end).unwrap_or_default())
}
