//! The path from the root to a leaf.
//!
//! Every visit of a node checks its header, that its first key is the key its parent gives it (as
//! Linux and e2fsck want it) and that its last entry ends before the next node begins. A block just
//! read from the device is checked in full: checksum, order, ranges. The depth shrinks by one at
//! each step, so a cycle of pointers ends the search.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_vfs::{FsError, Result};
use smallvec::SmallVec;

use super::node::{END_OF_SPACE, MAX_DEPTH, View};
use crate::map::store::{Cached, Store};
use crate::map::{MappedRun, Root};

/// A node on the path.
#[derive(Debug)]
pub(super) struct Step<B> {
    /// The block, or `None` for the root inside the inode.
    pub block: Option<Arc<B>>,
    /// Its number; 0 for the root.
    pub nr: BlockNr,
    /// In an index: the entry of the next node. In a leaf: how many entries begin at or before the
    /// block looked for.
    pub at: usize,
    /// Entries in use.
    pub count: usize,
    /// Entries that fit.
    pub max: usize,
    /// The key that the parent gives this node (0 for the root).
    pub lo: u32,
    /// Where the next node begins.
    pub hi: u64,
}

/// A path from the root down to a leaf. Any change of the tree makes it stale.
#[derive(Debug)]
pub(super) struct Path<B> {
    /// Root first; never empty. (Most trees have at most one level below the root.)
    pub steps: SmallVec<[Step<B>; 2]>,
}

impl<B: Cached> Path<B> {
    /// Finds the leaf where `lblk` is, or would be.
    pub fn descend<S: Store<Block = B>>(io: &S, root: &Root, lblk: u32) -> Result<Self> {
        let depth = View(&root.bytes).depth();
        if depth > MAX_DEPTH {
            return Err(root.corrupt("extent tree is too deep"));
        }
        let mut steps = SmallVec::with_capacity(usize::from(depth) + 1);
        let (mut nr, mut lo, mut hi) = (BlockNr(0), 0, u64::from(END_OF_SPACE));
        for level in (0..=depth).rev() {
            let is_root = level == depth;
            let block = if is_root { None } else { Some(io.read(nr).map_err(|e| root.blame(e))?) };
            let bytes = block.as_ref().map(|b| b.bytes());
            let view = View(bytes.as_ref().map_or(&root.bytes[..], |b| b.as_slice()));
            let blame =
                |e: FsError| if is_root { root.blame(e) } else { root.blame(e.at_block(nr.0)) };
            view.check_header(level).map_err(blame)?;
            let count = view.count();
            match &block {
                Some(b) if !b.is_verified() => {
                    view.check_sum(io.shape().seed).map_err(blame)?;
                    view.check_entries(io.shape(), lo, hi).map_err(blame)?;
                    b.set_verified();
                }
                Some(_) => {}
                None => view.check_entries(io.shape(), lo, hi).map_err(blame)?,
            }
            if !is_root && count > 0 {
                let last_end = if level == 0 {
                    view.extent(count - 1).end()
                } else {
                    u64::from(view.key(count - 1)).saturating_add(1)
                };
                if view.key(0) != lo || last_end > hi {
                    return Err(blame(FsError::corrupt(
                        "extent node does not fit its parent's key range",
                    )));
                }
            }
            let found = view.upper_bound(lblk);
            let at = if level == 0 { found } else { found.saturating_sub(1) };
            let next = (nr, lo, hi);
            if level > 0 {
                nr = view.child(at);
                lo = view.key(at);
                if at + 1 < count {
                    hi = hi.min(u64::from(view.key(at + 1)));
                }
            }
            let max = view.max();
            steps.push(Step { block, nr: next.0, at, count, max, lo: next.1, hi: next.2 });
        }
        Ok(Self { steps })
    }

    /// Levels below the root.
    pub fn depth(&self) -> usize {
        self.steps.len() - 1
    }

    /// The leaf.
    pub fn leaf(&self) -> &Step<B> {
        &self.steps[self.steps.len() - 1]
    }
}

impl<B: Cached> Step<B> {
    /// Calls `f` with the node's bytes.
    pub fn with<R>(&self, root: &Root, f: impl FnOnce(View<'_>) -> R) -> R {
        match &self.block {
            None => f(View(&root.bytes)),
            Some(block) => f(View(&block.bytes())),
        }
    }

    /// The key of entry `i`; behind the last entry, where the next node begins.
    pub fn key_or_end(&self, root: &Root, i: usize) -> u64 {
        if i < self.count { self.with(root, |v| u64::from(v.key(i))) } else { self.hi }
    }

    /// The extents of a leaf, checked against each other and the volume as far as a search uses
    /// them.
    pub fn extent<S: Store>(&self, io: &S, root: &Root, i: usize) -> Result<MappedRun> {
        let run = self.with(root, |v| v.extent(i));
        let next = self.key_or_end(root, i + 1);
        if run.len == 0 || run.end() > next || !io.shape().holds(run.pblk.0, u64::from(run.len)) {
            return Err(
                root.blame(FsError::corrupt("extent of an impossible range").at_block(self.nr.0))
            );
        }
        Ok(run)
    }
}
