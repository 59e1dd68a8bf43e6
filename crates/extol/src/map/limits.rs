//! How large a file may be.

use extol_ondisk::{Geometry, InodeFlags, RoCompat};

use super::extents::node::END_OF_SPACE;
use super::indirect;

/// Number of logical blocks that a file with these flags can have: every block that the map can
/// name and the inode's block count can count, if there are no holes.
pub(super) fn max_blocks(geo: &Geometry, flags: InodeFlags) -> u32 {
    let bs = u64::from(geo.block_size.bytes());
    let huge = geo.ro_compat.contains(RoCompat::HUGE_FILE);
    // i_blocks: 32 bits of 512-byte units, or 48 bits of blocks.
    let counted = if huge { (1u64 << 48) - 1 } else { u64::from(u32::MAX) / (bs / 512) };
    if flags.contains(InodeFlags::EXTENTS) {
        return counted.min(u64::from(END_OF_SPACE)) as u32;
    }
    // The largest n for which n data blocks and the blocks that map them can be counted.
    let (mut lo, mut hi) = (0, extol_ondisk::indirect::max_blocks(geo.block_size));
    while lo < hi {
        let mid = lo + (hi - lo).div_ceil(2);
        if mid + indirect::map_blocks(mid, bs / 4) <= counted {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    lo as u32
}

/// Largest size in bytes of a file with these flags.
pub(crate) fn max_file_size(geo: &Geometry, flags: InodeFlags) -> u64 {
    u64::from(max_blocks(geo, flags)) << geo.block_size.bits()
}
