//! Passes 3 and 4: is every directory reachable from the root, does `..` lead back, and has every
//! inode as many names as it states?

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;

use extol_ondisk::{Compat, InodeNr, RoCompat};

use crate::dirs::Read;
use crate::error::Result;
use crate::inodes::{Info, Inodes};
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;
use crate::xattr::value_inode;

/// Most links that an inode can state.
const LINK_MAX: u32 = 65_000;
const ROOT: u32 = InodeNr::ROOT.0;

/// Pass 3.
pub(crate) fn directories(inodes: &Inodes, dirs: &[Read], out: &mut Findings) {
    let root = inodes.get(ROOT);
    if !root.is_some_and(|info| info.is_used() && info.is_dir()) {
        out.push(Finding::error(Kind::RootMissing, "there is no root directory").inode(ROOT));
        return;
    }
    let mut reached: HashSet<u32> = HashSet::from([ROOT]);
    for dir in dirs {
        let Some(info) = inodes.get(dir.ino) else { continue };
        if info.has(Info::ORPHAN) {
            continue;
        }
        climb(inodes, dir.ino, &mut reached, out);
        let parent = info.parent.load(Relaxed);
        if dir.dotdot != parent && parent != 0 {
            let what = format!("'..' leads to inode {}, the parent is {parent}", dir.dotdot);
            out.push(Finding::error(Kind::DotDot, what).inode(dir.ino));
        }
    }
}

/// Goes up from a directory to one that is known to be reached.
fn climb(inodes: &Inodes, from: u32, reached: &mut HashSet<u32>, out: &mut Findings) {
    let mut at = from;
    let mut on_the_way = HashSet::new();
    while reached.insert(at) {
        on_the_way.insert(at);
        let parent = inodes.get(at).map_or(0, |info| info.parent.load(Relaxed));
        if parent == 0 {
            out.push(
                Finding::error(Kind::Unattached, "no directory contains this directory").inode(at),
            );
            return;
        }
        if on_the_way.contains(&parent) {
            out.push(Finding::error(Kind::DirLoop, "the directory contains itself").inode(at));
            return;
        }
        at = parent;
    }
}

/// Pass 4. `value_refs`: how many attributes name an inode as their value.
pub(crate) fn links(
    vol: &Vol,
    inodes: &Inodes,
    value_refs: &HashMap<u32, u64>,
    out: &mut Findings,
) -> Result<()> {
    let first = vol.geo.first_ino.0;
    for (ino, info) in inodes.used() {
        let hidden = ino == vol.sb.prj_quota_inum
            || vol.compat(Compat::ORPHAN_FILE) && ino == vol.sb.orphan_file_inum
            || ino == InodeNr::BAD_BLOCKS.0
            || ino > ROOT && ino < first;
        if hidden || info.has(Info::IMAGIC) {
            continue;
        }
        let mut found = info.found.load(Relaxed);
        if info.has(Info::ORPHAN) {
            if found != 0 {
                let what = format!("the inode is deleted but has {found} names");
                out.push(Finding::error(Kind::LinkCount, what).inode(ino));
            }
            continue;
        }
        if found == 0
            && info.has(Info::EA_INODE)
            && let Some(&refs) = value_refs.get(&ino)
        {
            found = 1;
            value_inode(vol, ino, refs, out)?;
        }
        if found == 0 {
            out.push(
                Finding::error(Kind::Unattached, "the inode is in use but has no name").inode(ino),
            );
            continue;
        }
        if info.is_dir() && found > LINK_MAX {
            if !vol.ro_compat(RoCompat::DIR_NLINK) {
                let what =
                    format!("a directory with {found} links, but the feature dir_nlink is not set");
                out.push(Finding::error(Kind::FeatureMissing, what).inode(ino));
            }
            found = 1;
        }
        let links = u32::from(info.links);
        // A directory that once had too many links to count keeps the value 1.
        let uncounted = info.is_dir() && info.has(Info::INDEX) && links == 1 && found > 1;
        if found != links && !uncounted {
            let what = format!("the inode states {links} links, but has {found}");
            out.push(Finding::error(Kind::LinkCount, what).inode(ino));
        }
    }
    Ok(())
}
