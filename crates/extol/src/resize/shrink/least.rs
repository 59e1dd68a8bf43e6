//! How small the volume can be: everything in use fits in front of the end.

use extol_ondisk::{Geometry, GroupNr};

use super::super::ResizeError;
use super::super::plan::smaller::{overhead, smaller, worthwhile};
use crate::alloc::{Fixed, Run};
use crate::mounted::MountedFs;

/// The fewest blocks by the numbers alone: room for all blocks of files and all inodes in use.
/// (Extents that must be divided may take more.) `spare` blocks of the log will go, too.
pub(crate) fn least(fs: &MountedFs, spare: u64) -> Result<u64, ResizeError> {
    let geo = &fs.vol.geo;
    let sb = fs.sb.read(Clone::clone);
    let now = fs.vol.alloc.counters();
    let in_use = (geo.blocks() - geo.first_data_block).saturating_sub(fixed(fs, geo)?);
    let free = geo.cluster_blocks(now.free_on_disk);
    let in_use = in_use.saturating_sub(free).saturating_sub(spare);
    let inodes = u64::from(geo.inodes()).saturating_sub(now.free_inodes);
    let by_inodes = inodes.div_ceil(geo.inodes_per_group.into()).max(1);
    let room = |groups: u64| -> Result<u64, ResizeError> {
        let end = end_of(geo, groups);
        let with = if end < geo.blocks() { smaller(&sb, geo, end)?.geo } else { geo.clone() };
        Ok((with.blocks() - geo.first_data_block).saturating_sub(fixed(fs, &with)?))
    };
    let (mut low, mut high) = (by_inodes, u64::from(geo.groups()));
    while low < high {
        let middle = low.midpoint(high);
        if room(middle)? < in_use { low = middle + 1 } else { high = middle }
    }
    let spare = room(low)?.saturating_sub(in_use);
    let full = end_of(geo, low).min(geo.blocks());
    let start = end_of(geo, low - 1);
    // The last group has as many blocks as are needed, but not fewer than make sense.
    let mut least = full.saturating_sub(spare).max(start + 1);
    while worthwhile(geo, least) < least && least < full {
        least += 1;
    }
    Ok(least)
}

/// Blocks that no file can have, of the volume or a smaller one. With clusters those that metadata
/// touches, as it lies now.
fn fixed(fs: &MountedFs, geo: &Geometry) -> Result<u64, ResizeError> {
    if !geo.has_clusters() {
        return Ok(overhead(geo));
    }
    let mut runs = Vec::new();
    let mut add = |run: Run| {
        let run = run.whole_clusters(geo);
        runs.push((run.start.0, run.end().0));
    };
    for nr in (0..geo.groups()).map(GroupNr) {
        let (start, len) = (geo.group_first_block(nr), geo.base_meta_blocks(nr));
        add(Run { start, len });
        let desc = fs.vol.alloc.group_desc(nr)?;
        Fixed::ALL.iter().for_each(|what| add(what.run(geo, &desc)));
    }
    runs.sort_unstable();
    let (mut blocks, mut behind) = (0, 0);
    for (start, end) in runs {
        blocks += end.saturating_sub(start.max(behind));
        behind = behind.max(end);
    }
    Ok(blocks)
}

/// Where so many groups end.
fn end_of(geo: &Geometry, groups: u64) -> u64 {
    let nr = u32::try_from(groups).map_or(GroupNr(u32::MAX), GroupNr);
    geo.group_first_block(nr).0
}
