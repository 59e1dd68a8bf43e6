//! Reserved clusters of dirty pages (bigalloc).
//!
//! One page holds the reservation of its cluster; the others there need none. So what writes or
//! drops pages takes care of those in the same cluster at both edges of the range:
//!
//! ```text
//!   pages      R . . . │ . R . .        R: holds the reservation of its cluster
//!   written        ╰────────╯           takes both along: afterwards the file has the clusters
//!   dropped        ╰────────╯           the second one goes to a page that stays, if there is one
//! ```
//!
//! Without bigalloc no range has edges.

use super::delalloc::Page;
use crate::inodes::InodeState;
use crate::map::{self, Mapping};
use crate::mounted::MountedFs;

/// The parts of clusters that `from..to` cuts off: those in front of it and those behind.
fn edges(fs: &MountedFs, from: u32, to: u32) -> [(u32, u32); 2] {
    let geo = &fs.vol.geo;
    let start = from - geo.inside_cluster(u64::from(from));
    let inside = geo.inside_cluster(u64::from(to));
    let end = if inside == 0 { to } else { (to - inside).saturating_add(geo.cluster_ratio) };
    [(start, from), (to, end)]
}

/// True if a page in a hole needs no reservation of its own.
pub(super) fn is_held(fs: &MountedFs, st: &InodeState, lblk: u32) -> extol_vfs::Result<bool> {
    if !fs.vol.geo.has_clusters() {
        return Ok(false);
    }
    let [(start, _), (_, end)] = edges(fs, lblk, lblk.saturating_add(1));
    Ok(st.pages.holds_reserved(start, end)
        || map::next_mapped(&fs.vol, &st.node, start, end)?.is_some())
}

/// `from..to` is about to be written: the reservations of its clusters that other pages hold.
pub(super) fn take_edges(fs: &MountedFs, st: &mut InodeState, from: u32, to: u32) -> u64 {
    if !fs.vol.geo.has_clusters() {
        return 0;
    }
    edges(fs, from, to).into_iter().map(|(from, to)| st.pages.take_reserved(from, to)).sum()
}

/// Pages of `from..to` are about to be dropped: reservations that others need go to those.
pub(super) fn leave_edges(fs: &MountedFs, st: &mut InodeState, from: u32, to: u32) {
    if !fs.vol.geo.has_clusters() || from >= to {
        return;
    }
    let [before, behind] = edges(fs, from, to);
    // Inside the range, the parts of the same clusters.
    let head = (from, to.min(before.0.saturating_add(fs.vol.geo.cluster_ratio)));
    let tail = (from.max(to - fs.vol.geo.inside_cluster(u64::from(to))), to);
    for (edge, part) in [(before, head), (behind, tail)] {
        if edge.0 < edge.1
            && st.pages.holds_reserved(part.0, part.1)
            && !st.pages.holds_reserved(edge.0, edge.1)
            && st.pages.give_reserved(edge.0, edge.1)
        {
            st.pages.take_reserved(part.0, part.1);
        }
    }
}

/// Puts pages of `from..to` back that were not written, or not mapped. Clusters that the file still
/// lacks get the `left` reserved ones; what is left of those is given back.
pub(super) fn put_back(
    fs: &MountedFs,
    st: &mut InodeState,
    (from, to): (u32, u32),
    pages: impl Iterator<Item = (u32, Page)>,
    mut left: u64,
) {
    for (lblk, mut page) in pages {
        let lookup = map::lookup(&fs.vol, &st.node, lblk);
        page.hole = page.hole && !matches!(lookup, Ok(Mapping::Mapped { .. }));
        page.reserved = page.hole && left > 0 && !is_held(fs, st, lblk).unwrap_or(false);
        left -= u64::from(page.reserved);
        st.pages.insert(lblk, page);
    }
    for (from, to) in edges(fs, from, to) {
        let lacks = from < to && left > 0 && !is_held(fs, st, from).unwrap_or(false);
        if lacks && st.pages.give_reserved(from, to) {
            left -= 1;
        }
    }
    fs.unreserve_data(st, left);
}
