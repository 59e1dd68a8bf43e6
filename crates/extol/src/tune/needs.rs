//! What depends on a feature that is switched off: a look at all inodes.

use extol_ondisk::{Compat, Incompat, features::Feature};
use extol_ondisk::{FileType, Inode, InodeFlags, InodeNr, RoCompat};

use super::{Result, refuse};
use crate::mounted::MountedFs;

/// Refuses if an inode depends on one of the features.
pub(super) fn check(fs: &MountedFs, features: &[Feature]) -> Result<()> {
    if features.is_empty() {
        return Ok(());
    }
    let geo = &fs.vol.geo;
    // All but the first, which lists bad blocks.
    for ino in (InodeNr::ROOT.0..=geo.inodes()).map(InodeNr) {
        // A slot that cannot be read holds no inode: the volume was found sound.
        let Ok(inode) = fs.vol.read_inode(ino) else { continue };
        if inode.links == 0 {
            continue;
        }
        if ino == InodeNr::RESIZE
            && features.contains(&Feature::RoCompat(RoCompat::LARGE_FILE))
            && inode.size > i32::MAX as u64
        {
            return refuse("the resize inode is as long as a large file and needs large_file");
        }
        if let Some(why) = features.iter().find_map(|feature| why_needed(*feature, &inode)) {
            return refuse(format!("inode {} {why}", ino.0));
        }
    }
    Ok(())
}

/// Why an inode needs a feature, and what to do.
fn why_needed(feature: Feature, inode: &Inode) -> Option<&'static str> {
    let kind = inode.kind();
    let is_dir = kind == Some(FileType::Directory);
    let has = |flag| inode.flags.contains(flag);
    match feature {
        Feature::RoCompat(RoCompat::LARGE_FILE)
            if kind == Some(FileType::Regular) && inode.size > i32::MAX as u64 =>
        {
            Some("has 2 GiB or more and needs large_file: make it smaller or delete it")
        }
        Feature::RoCompat(RoCompat::HUGE_FILE)
            if has(InodeFlags::HUGE_FILE) || inode.blocks > u64::from(u32::MAX) =>
        {
            Some("has 2 TiB or more and needs huge_file: make it smaller or delete it")
        }
        Feature::RoCompat(RoCompat::DIR_NLINK) if is_dir && inode.links == 1 => {
            Some("has more subdirectories than can be counted and needs dir_nlink: remove some")
        }
        Feature::Incompat(Incompat::CASEFOLD) if has(InodeFlags::CASEFOLD) => Some(
            "is casefolded (+F) and needs casefold: move what is in it to another directory and \
             remove it",
        ),
        Feature::Compat(Compat::DIR_INDEX) if is_dir && has(InodeFlags::INDEX) => Some(
            "is a directory with an index and needs dir_index: tune2fs -O ^dir_index, and then \
             e2fsck -fD, remove the indexes",
        ),
        _ => None,
    }
}
