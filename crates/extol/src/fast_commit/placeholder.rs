//! Placeholders: names that fast commits leave to deleted files, in `lost+found`.
//!
//! No record says the end of a file: Linux takes no image without links and deletes the file at its
//! last UNLINK, e2fsck frees it only for an image without links. So the records leave it a name,
//! `lost+found/#` and its number (the name that e2fsck gives to files without one), with nothing in
//! it: no blocks, no permissions.
//!
//! ```text
//!   rename a over b     LINK lost+found/#13   UNLINK b (13)   LINK b (12)   UNLINK a (12)
//!                       DEL_RANGE 13   INODE 12, 13
//! ```
//!
//! A placeholder is seen only after a crash before the next full commit. Extol's own recovery
//! removes it at once (`replay`); after one by Linux or e2fsck an empty file stays in `lost+found`.
//!
//! The directory must not grow in a replay, so the mount counts how many such names its blocks
//! hold. Each transaction may use as many. As soon as a process puts names into it, there are no
//! placeholders any more until the next mount; nor are there any while it holds a name that begins
//! with `#`.

use std::sync::Arc;

use extol_ondisk::InodeFlags;

use super::eligibility::at;
use super::{Delta, Reason};

/// Longest name of a file that was deleted.
pub(crate) const NAME_LEN: usize = "#4294967295".len();

/// The directory of placeholders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlaceholderDir {
    /// The directory.
    pub dir: u32,
    /// So many names fit.
    pub places: u32,
}

impl PlaceholderDir {
    /// True if the directory may have less room behind this change than was counted, or may be
    /// gone.
    pub fn is_lost_by(self, delta: &Delta) -> bool {
        match delta {
            Delta::Name { dir, is, .. } => *dir == self.dir && is.is_some(),
            Delta::Ineligible { ino, reason } => {
                *ino == self.dir && !matches!(reason, Reason::Attributes | Reason::Xattr)
            }
            _ => false,
        }
    }
}

/// The name of a deleted file.
pub(crate) fn name(ino: u32) -> Vec<u8> {
    format!("#{ino}").into_bytes()
}

/// A regular file without permissions.
const MODE: u16 = 0o100_000;

/// True for a placeholder as [`image`] makes it.
pub(crate) fn is_placeholder(mode: u16, size: u64, links: u16) -> bool {
    (mode, size, links) == (MODE, 0, 1)
}

/// An image of the deleted file that has a name and nothing else, and the first block behind all
/// that it maps. `None` if no records take that from it.
pub(super) fn image(dead: &[u8]) -> Option<(Arc<[u8]>, u32)> {
    let mut image = dead.to_vec();
    let flags =
        InodeFlags::from_bits_retain(u32::from_le_bytes(*dead.get(at::FLAGS..)?.first_chunk()?));
    let map = dead.get(at::I_BLOCK..)?.first_chunk::<60>()?;
    let levels = u16::from_le_bytes([map[6], map[7]]);
    if !flags.contains(InodeFlags::EXTENTS)
        || flags.intersects(super::eligibility::MEANING)
        || levels > 0
    {
        return None;
    }
    let end = crate::map::end_of_root(map);
    for (at, bytes) in [
        (at::MODE, &MODE.to_le_bytes()[..]),
        (at::SIZE, &[0; 4]),
        (at::DTIME, &[0; 4]),
        (at::LINKS, &[1, 0]),
        (at::BLOCKS, &[0; 4]),
        (at::SIZE_HI, &[0; 4]),
        (at::BLOCKS_HI, &[0; 2]),
    ] {
        image.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    }
    Some((image.into(), end))
}
