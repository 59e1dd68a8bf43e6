//! Writes into preallocated space when no block is left for the extent tree.
//!
//! A written block in the middle of an unwritten extent splits it, which may take a new tree block.
//! If there is none, the rest of the extent is zeroed on the device and all of it becomes written:
//! no split, and preallocated space can be used to the last block. Not for extents that reach
//! behind the end of the file: written blocks must not lie there.

use extol_vfs::{FsError, Result};

use super::encryption;
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, MappedRun, Mapping, Progress};
use crate::mounted::MountedFs;

/// Longer extents are not zeroed.
const MOST: u32 = 32_768;

/// Makes the whole unwritten extent around `lblk` written. The data of `lblk` is on the device.
pub(crate) fn around(fs: &MountedFs, st: &mut InodeState, lblk: u32) -> Result<()> {
    let vol = &fs.vol;
    let bs = vol.geo.block_len();
    let Mapping::Mapped { unwritten: true, len: behind, .. } = map::lookup(vol, &st.node, lblk)?
    else {
        return Err(FsError::NoSpace);
    };
    let mut run: Option<MappedRun> = None;
    map::iterate(vol, &st.node, lblk.saturating_sub(MOST), lblk.saturating_add(1), &mut |r| {
        run = Some(r);
        true
    })?;
    let run = run.filter(|r| r.unwritten && r.lblk <= lblk).ok_or(FsError::NoSpace)?;
    let end = lblk.saturating_add(behind);
    let len = end - run.lblk;
    if len > MOST || u64::from(end) > st.node.raw.size.div_ceil(bs as u64) {
        return Err(FsError::NoSpace);
    }
    let key = encryption::key(fs, st)?;
    let zero = |from: u32, to: u32| {
        let at = run.pblk.plus(u64::from(from - run.lblk));
        encryption::zeros(fs, key.as_deref(), (from, at), to - from)
    };
    let zeroed = zero(run.lblk, lblk).and_then(|()| zero(lblk + 1, end));
    vol.journal.note_data_write();
    zeroed.map_err(|e| fs.data_write_failed(e))?;
    let mut h = fs.start(map::credits_for_convert(&st.node) + 1)?;
    let converted = map::convert(vol, &mut h, &mut st.node, run.lblk, len, true);
    if matches!(converted, Ok(Progress::Done)) {
        st.disk_size = st.disk_size.max(st.node.raw.size.min(u64::from(end) * bs as u64));
    }
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)?;
    match converted? {
        Progress::Done => Ok(()),
        Progress::Restart { .. } => {
            Err(FsError::Io("no journal credits to convert an extent".into()))
        }
    }
}
