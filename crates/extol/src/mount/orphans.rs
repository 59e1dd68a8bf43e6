//! Finishing what was interrupted: orphans found at mount are deleted or truncated.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fast_commit::Reason;
use extol_ondisk::superblock::State;
use extol_ondisk::{InodeFlags, InodeNr, RoCompat, Superblock};
use extol_vfs::Result;

use crate::data::truncate;
use crate::error::{self, OpenResult, refuse};
use crate::fast_commit::eligibility;
use crate::mounted::MountedFs;
use crate::ops::{delete, values};
use crate::orphan;
use crate::superblock::has_orphan_file;

/// Finishes all orphans; returns how many there are. Those of a read-only volume are left alone.
pub(crate) fn finish(fs: &Arc<MountedFs>) -> OpenResult<u32> {
    if fs.read_only.load(Ordering::Acquire) {
        return Ok(0);
    }
    let (head, damaged, file) =
        fs.sb.read(|sb| (sb.last_orphan, sb.state.contains(State::ERROR), sb.orphan_file_inum));
    let mut found = Vec::new();
    if head != 0 {
        if damaged {
            // As Linux: on a damaged volume the list cannot be trusted; e2fsck finds what it named.
            fs.transact(1, |h| fs.sb.update(h, |sb| sb.last_orphan = 0))?;
        } else {
            found = fs.orphans.read_list(&fs.vol, head)?;
        }
    }
    if has_orphan_file(&fs.vol.geo) {
        let ino = InodeNr(file);
        if !fs.vol.geo.is_valid_inode(ino) {
            return refuse("corrupt volume: the orphan file has no inode");
        }
        let raw = fs.vol.read_inode(ino)?;
        let listed = fs.orphans.open_file(&fs.vol, &crate::node::Node { ino, raw })?;
        found.extend(listed);
        if fs.vol.journal.has_log() {
            // From here on the file is in use: the next mount must read it.
            let mark = |sb: &mut Superblock| sb.feature_ro_compat |= RoCompat::ORPHAN_PRESENT;
            fs.transact(1, |h| fs.sb.update(h, mark))?;
        } else {
            fs.orphans.use_list();
        }
    }
    let mut seen = std::collections::HashSet::with_capacity(found.len());
    for ino in found {
        if ino > fs.vol.geo.inodes()
            || fs.is_internal(ino)
            || ino == InodeNr::ROOT.0
            || !seen.insert(ino)
        {
            return refuse(format!(
                "corrupt volume: the orphan list names inode {ino}; run e2fsck"
            ));
        }
        finish_one(fs, ino)?;
    }
    Ok(u32::try_from(seen.len()).unwrap_or(u32::MAX))
}

fn finish_one(fs: &Arc<MountedFs>, ino: u32) -> Result<()> {
    let value = values::state_of_value(fs, InodeNr(ino))?;
    if let Some(mut value) = value.filter(|value| value.node.raw.links == 0) {
        return delete::delete(fs, &mut value);
    }
    let cell = fs.cell(ino)?;
    let mut st = cell.write()?;
    if st.node.raw.links == 0 {
        delete::delete(fs, &mut st)?;
        drop(st);
        fs.table.kill(&cell);
        return Ok(());
    }
    // An interrupted truncate, or an interrupted begin of fs-verity: the size is what is to stay.
    let is_verity = st.node.raw.flags.contains(InodeFlags::VERITY);
    if st.is_regular() && st.node.raw.maps_blocks() && !is_verity {
        let from = u32::try_from(st.node.raw.size.div_ceil(fs.vol.geo.block_len() as u64))
            .unwrap_or(u32::MAX);
        truncate::unmap(fs, &mut st, from, u32::MAX, false)?;
    }
    let mut h = fs.start(orphan::CREDITS + 1)?;
    fs.orphans.remove(&fs.vol, &fs.sb, &mut h, ino)?;
    eligibility::note_ineligible(&mut h, st.node.ino, Reason::Attributes);
    st.node.raw.dtime = 0;
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)
}
