//! Maps written blocks: bitmap bits, extents and size in one handle.

use extol_jbd2::Handle;
use extol_vfs::{FsError, Result};

use super::{BlockWriter, MapChange};
use crate::alloc::Run;
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, Progress};
use crate::volume::Volume;

impl BlockWriter<'_> {
    /// Makes all changes and stores the inode, with the size that they reach (DA-2).
    pub(super) fn map_changes(&mut self) -> Result<()> {
        let vol = &self.fs.vol;
        let bs = vol.geo.block_size.bytes();
        self.unmapped = 0;
        if self.changes.is_empty() {
            return Ok(());
        }
        let credits = self.changes.iter().fold(2, |sum, change| {
            sum + match change {
                MapChange::Insert { run, .. } => {
                    map::credits_for_insert(&self.st.node, run.len, bs)
                        + credits_for_groups(run.len, vol.geo.blocks_per_group)
                }
                MapChange::Convert { .. } => map::credits_for_convert(&self.st.node),
            }
        });
        let mut h = self.fs.start(credits)?;
        let mut result = Ok(());
        let mut reached = 0;
        while let Some(change) = self.changes.first().copied() {
            let mut committed = false;
            result = match change {
                MapChange::Insert { lblk, run } => {
                    commit(vol, &mut h, run, self.reserved, &mut self.used).and_then(|()| {
                        committed = true;
                        map::insert(vol, &mut h, &mut self.st.node, lblk, run, false).inspect_err(
                            |_| {
                                uncommit(vol, &mut h, run, &mut self.used);
                            },
                        )
                    })
                }
                MapChange::Convert { lblk, len } => convert(vol, &mut h, self.st, lblk, len),
            };
            if result.is_err() {
                if committed {
                    self.changes.remove(0);
                }
                break;
            }
            reached = reached.max(change.end());
            self.changes.remove(0);
        }
        let end = u64::from(reached) << vol.geo.block_size.bits();
        self.st.disk_size = self.st.disk_size.max(end.min(self.st.node.raw.size));
        let stored = self.st.store(self.fs, &mut h, true);
        let stopped = h.stop().map_err(error::journal);
        result.and(stored).and(stopped)
    }
}

/// Marks a run that is about to be mapped as used, from the reserved blocks as far as they go.
pub(super) fn commit(
    vol: &Volume,
    h: &mut Handle,
    run: Run,
    reserved: u64,
    used: &mut u64,
) -> Result<()> {
    let len = u64::from(run.len);
    if reserved.saturating_sub(*used) < len {
        // `uncommit` may have lost a reservation.
        return vol.alloc.commit_take(h, run);
    }
    vol.alloc.commit_reserved(h, run)?;
    *used += len;
    Ok(())
}

/// Undoes [`commit`] of a run that could not be mapped; reserves its blocks again if there is room.
pub(super) fn uncommit(vol: &Volume, h: &mut Handle, run: Run, used: &mut u64) {
    let len = u64::from(run.len);
    if vol.alloc.free(h, run).is_ok() && *used >= len && vol.alloc.reserve(len, true).is_ok() {
        *used -= len;
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
