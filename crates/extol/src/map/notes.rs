//! What fast commits are told of changes of maps (EL-2 in `fast_commit/eligibility.rs`).

use extol_jbd2::{Handle, planted};
use extol_ondisk::InodeFlags;
use extol_ondisk::inode::I_BLOCK_LEN;

use super::{MappedRun, Progress};
use crate::fast_commit::delta::{Delta, note};
use crate::fast_commit::eligibility::note_ineligible;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::volume::Volume;

/// True if the handle's changes of this map are of interest; if the map has tree blocks, before or
/// after, that is noted.
fn is_flat(h: &mut Handle, node: &Node, before: &[u8; I_BLOCK_LEN]) -> bool {
    if !node.raw.is_regular() || !h.tracks() {
        return false;
    }
    let levels = |root: &[u8; I_BLOCK_LEN]| u16::from_le_bytes([root[6], root[7]]);
    let flat = node.raw.flags.contains(InodeFlags::EXTENTS)
        && levels(before) == 0
        && levels(&node.raw.i_block) == 0;
    let flat = flat || planted::has(planted::Bug::TreesRecorded);
    if !flat {
        note_ineligible(h, node.ino, Reason::ExtentTree);
    }
    flat
}

/// Notes that `len` blocks from `lblk` on were mapped. `before`: the root of the map before that.
pub(super) fn inserted(h: &mut Handle, node: &Node, before: &[u8; I_BLOCK_LEN], run: MappedRun) {
    if is_flat(h, node, before) {
        let MappedRun { lblk, pblk, len, unwritten } = run;
        note(h, Delta::Mapped { ino: node.ino.0, lblk, len, start: pblk.0, unwritten });
    }
}

/// Notes that blocks of `from..to` became written or unwritten, perhaps not all of them.
pub(super) fn converted(
    vol: &Volume,
    h: &mut Handle,
    node: &Node,
    before: &[u8; I_BLOCK_LEN],
    from: u32,
    to: u32,
) {
    if !is_flat(h, node, before) {
        return;
    }
    // (There are no more than four.)
    let mut runs = Vec::new();
    match super::iterate(vol, node, from, to, &mut |run| {
        runs.push(run);
        true
    }) {
        Ok(()) => runs.into_iter().for_each(|run| inserted(h, node, before, run)),
        Err(_) => note_ineligible(h, node.ino, Reason::Failed),
    }
}

/// Notes that `from..to` was unmapped, as far as `progress` tells. `end`: the first block behind
/// the map before that.
pub(super) fn removed(
    h: &mut Handle,
    node: &Node,
    before: &[u8; I_BLOCK_LEN],
    (from, to): (u32, u32),
    progress: Option<Progress>,
) {
    if !is_flat(h, node, before) {
        return;
    }
    let from = match progress {
        Some(Progress::Done) => from,
        Some(Progress::Restart { at }) => at,
        None => return note_ineligible(h, node.ino, Reason::Failed),
    };
    let to = to.min(super::end_of_root(before));
    if from < to {
        note(h, Delta::Unmapped { ino: node.ino.0, lblk: from, len: to - from });
    }
}
