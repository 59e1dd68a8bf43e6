//! Writes file blocks through the log (data=journal).

use extol_vfs::Result;

use super::mapping::{commit, convert, credits_for_groups, uncommit};
use super::{Source, check_not_system};
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, Mapping, NewBlocks};
use crate::mounted::MountedFs;

/// As [`write_blocks`](super::write_blocks); counts in `used`. Each handle takes at most a quarter
/// of the largest transaction.
pub(in crate::data) fn write_journalled(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    reserved: u64,
    used: &mut u64,
) -> Result<()> {
    let vol = &fs.vol;
    let bs = vol.geo.block_len();
    let most = (vol.journal.max_credits() / 4).max(1);
    let mut at = 0;
    while at < blocks {
        let here = lblk + at;
        let left = (blocks - at).min(most);
        let mapping = map::lookup(vol, &st.node, here)?;
        let (len, tree) = match mapping {
            Mapping::Mapped { len, unwritten, .. } => {
                (len.min(left), if unwritten { map::credits_for_convert(&st.node) } else { 0 })
            }
            Mapping::Hole { len } => {
                let len = u32::try_from(len).unwrap_or(u32::MAX).min(left);
                (len, map::credits_for_insert(&st.node, len, vol.geo.block_size.bytes()))
            }
        };
        let (mut taken, mut shared) = (None, None);
        let start = match mapping {
            Mapping::Mapped { pblk, .. } => {
                check_not_system(fs, st, pblk, len)?;
                pblk
            }
            Mapping::Hole { .. } => match map::new_blocks(vol, &st.node, here, len)? {
                NewBlocks::Shared(run) => {
                    check_not_system(fs, st, run.start, run.len)?;
                    shared = Some(run);
                    run.start
                }
                NewBlocks::Fresh(len) => {
                    let goal = map::goal(vol, &st.node, here)?;
                    let run = vol.alloc.take_for(&mut st.window, goal, len, 1)?;
                    taken = Some(run);
                    run.start
                }
            },
        };
        let len = taken.or(shared).map_or(len, |run| run.len);
        let credits = len + tree + credits_for_groups(len, vol.geo.blocks_per_group) + 2;
        let mut h = fs.start(credits).inspect_err(|_| {
            taken.into_iter().for_each(|run| vol.alloc.give_back(run));
        })?;
        if let Some(run) = taken {
            commit(vol, &mut h, run, reserved, used)?;
            if let Err(e) = map::insert(vol, &mut h, &mut st.node, here, run, false) {
                uncommit(vol, &mut h, run, used);
                let _ = st.store(fs, &mut h, true);
                return Err(e);
            }
        } else if let Some(run) = shared {
            if let Err(e) = map::insert(vol, &mut h, &mut st.node, here, run, false) {
                let _ = st.store(fs, &mut h, true);
                return Err(e);
            }
        } else if let Mapping::Mapped { unwritten: true, .. } = mapping {
            convert(vol, &mut h, st, here, len)?;
        }
        for i in 0..len {
            let buf = h.create(start.plus(u64::from(i))).map_err(error::journal)?;
            let bytes = source.block(at + i, bs);
            h.modify(&buf, |b| b.copy_from_slice(bytes)).map_err(error::journal)?;
        }
        at += len;
        let end = u64::from(lblk + at) << vol.geo.block_size.bits();
        st.disk_size = st.disk_size.max(end.min(st.node.raw.size));
        st.store(fs, &mut h, true)?;
        h.stop().map_err(error::journal)?;
    }
    Ok(())
}
