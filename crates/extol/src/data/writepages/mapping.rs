//! The steps by which written blocks are mapped, in the handle of the caller.

use extol_jbd2::Handle;
use extol_vfs::{FsError, Result};

use crate::alloc::Run;
use crate::data::order::Purpose;
use crate::inodes::InodeState;
use crate::map::{self, Progress};
use crate::volume::Volume;

/// Marks the clusters of a run that is about to be mapped as used, from the reserved ones as far as
/// they go.
pub(super) fn commit(
    vol: &Volume,
    h: &mut Handle,
    run: Run,
    reserved: u64,
    used: &mut u64,
) -> Result<()> {
    let len = clusters(vol, run);
    if reserved.saturating_sub(*used) < len {
        // `uncommit` may have lost a reservation.
        return vol.alloc.commit_take(h, run);
    }
    vol.alloc.commit_reserved(h, run)?;
    *used += len;
    Ok(())
}

fn clusters(vol: &Volume, run: Run) -> u64 {
    vol.geo.clusters_touched(run.start.0, u64::from(run.len))
}

/// Undoes [`commit`] of a run that could not be mapped; reserves its clusters again if there
/// is room.
pub(super) fn uncommit(vol: &Volume, h: &mut Handle, run: Run, used: &mut u64) {
    let len = clusters(vol, run);
    if vol.alloc.free(h, run).is_ok() && *used >= len && vol.alloc.reserve(len, true).is_ok() {
        *used -= len;
    }
}

/// Maps a run of written blocks, from a block of the file on.
pub(super) fn insert(
    vol: &Volume,
    h: &mut Handle,
    st: &mut InodeState,
    (lblk, run): (u32, Run),
    purpose: Purpose,
) -> Result<()> {
    match purpose {
        Purpose::Limited => map::insert_limited(vol, h, &mut st.node, lblk, run),
        Purpose::Fsync | Purpose::Other => map::insert(vol, h, &mut st.node, lblk, run, false),
    }
}

/// Marks a range inside one extent as written. The handle's credits suffice.
pub(super) fn convert(
    vol: &Volume,
    h: &mut Handle,
    st: &mut InodeState,
    lblk: u32,
    len: u32,
) -> Result<()> {
    match map::convert(vol, h, &mut st.node, lblk, len, true)? {
        Progress::Done => Ok(()),
        Progress::Restart { .. } => {
            Err(FsError::Io("no journal credits to convert an extent".into()))
        }
    }
}

/// Credits of `commit_take` for a run of this length: bitmap and descriptor of each of its groups.
pub(in crate::data) fn credits_for_groups(len: u32, per_group: u32) -> u32 {
    2 * (len / per_group.max(1) + 2)
}
