//! The other owners of blocks that are claimed twice: the maps are read once more, only if there
//! are such blocks.

use std::collections::BTreeMap;

use extol_ondisk::{Incompat, InodeFlags};

use crate::error::Result;
use crate::inodes::Inodes;
use crate::map::Walk;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// Blocks whose other owners are looked for.
const MOST: usize = 1000;

/// Adds a note for each other owner of the blocks that findings say to be claimed twice.
pub(crate) fn add(vol: &Vol, inodes: &Inodes, out: &mut Findings) -> Result<()> {
    let shared = out.list_mut().iter().filter(|finding| finding.kind == Kind::BlockShared);
    let mut wanted = BTreeMap::new();
    for finding in shared.take(MOST) {
        if let (Some(block), Some(ino)) = (finding.block, finding.inode) {
            wanted.entry(block).or_insert_with(Vec::new).push(ino);
        }
    }
    // A volume whose files do not share blocks has no more than these.
    let mut left = vol.geo.blocks();
    for (ino, _) in inodes.used() {
        if wanted.is_empty() || left == 0 {
            break;
        }
        let Some(bytes) = vol.inode(ino)? else { continue };
        let raw = Raw { b: &bytes, ino };
        let mut note = |first: u64, len: u64| {
            for (block, told) in wanted.range_mut(first..first.saturating_add(len)) {
                if !told.contains(&ino) {
                    told.push(ino);
                    let what = "the block is this inode's, too";
                    out.push(Finding::note(Kind::BlockShared, what).inode(ino).block(*block));
                }
            }
        };
        note(raw.file_acl(&vol.geo), 1);
        let inline = vol.incompat(Incompat::INLINE_DATA) && raw.has(InodeFlags::INLINE_DATA);
        if inline || !raw.maps_blocks(&vol.geo) {
            continue;
        }
        // (What is wrong with the map is reported where it is checked.)
        let mapped = Walk::new(vol, None, raw, true, &mut Findings::new(0)).run()?;
        left = left.saturating_sub(mapped.clusters.max(1));
        for run in mapped.runs {
            note(run.pblk, run.len);
        }
    }
    Ok(())
}
