//! The orphan list and the orphan file.

use extol_ondisk::superblock::State;
use extol_ondisk::{BlockNr, Compat, RoCompat, orphan_file};

use crate::bytes::{is_zero, le32, part};
use crate::error::Result;
use crate::map::Walk;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// After a recovery: finds the inodes that wait for deletion or truncation. There are none on a
/// volume that is marked as damaged: Linux and e2fsck pass over its list and its file, and what
/// they name stays unfinished.
pub(crate) fn find(vol: &mut Vol, out: &mut Findings) -> Result<()> {
    if vol.sb.state.contains(State::ERROR) {
        return Ok(());
    }
    let mut found = std::collections::HashSet::new();
    let mut at = vol.sb.last_orphan;
    while at != 0 {
        let possible = at >= vol.geo.first_ino.0 && at <= vol.geo.inodes();
        if !possible || !found.insert(at) {
            let what = format!("the list of orphans leads to inode {at}, which cannot be");
            out.push(Finding::error(Kind::OrphanList, what).inode(at));
            break;
        }
        let Some(bytes) = vol.inode(at)? else { break };
        at = Raw { b: &bytes, ino: at }.dtime();
    }
    if vol.compat(Compat::ORPHAN_FILE) && vol.ro_compat(RoCompat::ORPHAN_PRESENT) {
        let Some((blocks, _)) = orphan_blocks(vol)? else { return Ok(()) };
        for (_, block) in blocks {
            for slot in 0..orphan_file::slots(vol.geo.block_size) {
                let ino = orphan_file::get(&block, slot).0;
                if ino == 0 {
                    continue;
                }
                if ino < vol.geo.first_ino.0 || ino > vol.geo.inodes() {
                    let what = format!("the orphan file names inode {ino}, which cannot be");
                    let file = vol.sb.orphan_file_inum;
                    out.push(Finding::error(Kind::OrphanFile, what).inode(file));
                } else {
                    found.insert(ino);
                }
            }
        }
    }
    vol.orphans = found;
    Ok(())
}

/// The blocks of the orphan file, and the inode's bytes. `None`: it cannot be read.
#[allow(clippy::type_complexity)]
fn orphan_blocks(vol: &Vol) -> Result<Option<(Vec<(u64, Vec<u8>)>, Vec<u8>)>> {
    let ino = vol.sb.orphan_file_inum;
    let Some(bytes) = vol.inode(ino)? else { return Ok(None) };
    let raw = Raw { b: &bytes, ino };
    let bs = vol.geo.block_len() as u64;
    let wanted = raw.size() / bs;
    if !raw.size().is_multiple_of(bs) || wanted > u64::from(orphan_file::MAX_BLOCKS) {
        return Ok(None);
    }
    let mapped = Walk::new(vol, None, raw, true, &mut Findings::new(0)).run()?;
    let mut blocks = Vec::new();
    for run in mapped.runs {
        for i in 0..run.len {
            if run.lblk + i == blocks.len() as u64 && run.lblk + i < wanted {
                blocks.push((run.pblk + i, vol.block(run.pblk + i)?));
            }
        }
    }
    Ok((blocks.len() as u64 == wanted).then_some((blocks, bytes)))
}

/// The orphan list and the orphan file.
pub(crate) fn check(vol: &Vol, out: &mut Findings) -> Result<()> {
    if vol.recovered {
        if !vol.orphans.is_empty() {
            let what = format!("{} orphans wait for the next mount", vol.orphans.len());
            out.push(Finding::note(Kind::OrphanList, what));
        }
    } else if vol.sb.last_orphan != 0 {
        let what = format!("the list of orphans begins with inode {}", vol.sb.last_orphan);
        out.push(Finding::note(Kind::OrphanList, what));
    }
    if !vol.compat(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    if !vol.compat(Compat::HAS_JOURNAL) {
        // Linux mounts it, and does not use the file.
        let what = "the volume has an orphan file, but no journal";
        out.push(Finding::error(Kind::OrphanFile, what));
    }
    let ino = vol.sb.orphan_file_inum;
    let Some((blocks, bytes)) = orphan_blocks(vol)? else {
        let what = "the orphan file is not whole, or of an impossible size";
        out.push(Finding::error(Kind::OrphanFile, what).inode(ino));
        return Ok(());
    };
    let seed = vol.has_csum().then(|| Raw { b: &bytes, ino }.seed(&vol.geo));
    let mut empty = true;
    for (nr, block) in &blocks {
        if let Err(error) = orphan_file::verify(block, BlockNr(*nr), seed) {
            out.push(Finding::error(Kind::OrphanFile, error.to_string()).inode(ino).block(*nr));
            empty = false;
            continue;
        }
        if !is_zero(part(block, 0, block.len() - 8)) {
            empty = false;
            // After a recovery the next mount finishes what the file names, if it reads the file.
            if !vol.recovered || !vol.ro_compat(RoCompat::ORPHAN_PRESENT) {
                let what = "the orphan file is not empty";
                out.push(Finding::error(Kind::OrphanFile, what).inode(ino).block(*nr));
            }
        }
        // Without checksums there is nothing behind the magic number, and no mount clears it.
        if seed.is_none() && le32(block, block.len() - 4) != 0 {
            let what = "the orphan file has bytes behind the magic number";
            out.push(Finding::error(Kind::OrphanFile, what).inode(ino).block(*nr));
        }
    }
    if empty && vol.ro_compat(RoCompat::ORPHAN_PRESENT) && !vol.recovered {
        let what = "orphan_present is set, but the orphan file is empty";
        out.push(Finding::error(Kind::OrphanFile, what).inode(ino));
    }
    Ok(())
}
