//! Changes an extent tree: one primitive, [`Editor::splice`], and its helpers.
//!
//! `splice` replaces some neighbouring entries of one node by others and keeps the tree right above
//! and below:
//!
//! ```text
//!  fits                    edit in place; a new first key goes up to the parents
//!  too many, in a block    split in two: at the end of the node only the surplus moves (a file
//!                          written sequentially gets full leaves), elsewhere half; the parent
//!                          gets one entry more
//!  too many, in the root   all entries move to a new block below the root: one level more
//!  none left               the block is freed and the parent loses its entry; an empty root
//!                          is a leaf again
//! ```
//!
//! Blocks for splits are taken before anything changes ([`Editor::prepare`]), so a full volume
//! leaves no trace. When a root has a single child whose entries fit into the root,
//! [`Editor::settle`] pulls them up.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_vfs::{FsError, Result};

use super::Few;
use super::node::{self, Entry, MAX_DEPTH, View};
use super::path::{Path, Step};
use crate::map::store::{Cached, StoreMut};
use crate::map::{MappedRun, Root};

/// A change of one tree.
pub(super) struct Editor<'a, S: StoreMut> {
    /// The volume.
    pub io: &'a mut S,
    /// The inode's part.
    pub root: &'a mut Root,
    /// Blocks taken for splits and not used yet.
    taken: Vec<BlockNr>,
}

impl<'a, S: StoreMut> Editor<'a, S> {
    /// An editor that has taken no blocks.
    pub fn new(io: &'a mut S, root: &'a mut Root) -> Self {
        Self { io, root, taken: Vec::new() }
    }

    /// The leaf where `lblk` is or would be.
    pub fn descend(&self, lblk: u32) -> Result<Path<S::Block>> {
        Path::descend(self.io, self.root, lblk)
    }

    /// Extents `range` of a leaf.
    pub fn extents(
        &self,
        leaf: &Step<S::Block>,
        range: std::ops::Range<usize>,
    ) -> Result<Few<MappedRun>> {
        range.map(|i| leaf.extent(self.io, self.root, i)).collect()
    }

    /// Takes the blocks that a leaf growing by `net` entries may need. Nothing else changes.
    pub fn prepare(&mut self, path: &Path<S::Block>, net: isize) -> Result<()> {
        let mut net = net;
        let mut need = 0;
        for (level, step) in path.steps.iter().enumerate().rev() {
            if step.count.saturating_add_signed(net) <= step.max {
                break;
            }
            need += 1;
            net = 1;
            if level == 0 && path.depth() >= usize::from(MAX_DEPTH) {
                return Err(FsError::FileTooLarge);
            }
        }
        let leaf = path.leaf();
        let goal = if leaf.block.is_some() { leaf.nr.plus(1) } else { self.io.inode_goal() };
        for _ in 0..need {
            match self.io.alloc(goal) {
                Ok(nr) => self.taken.push(nr),
                Err(e) => {
                    self.release()?;
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Frees the blocks that were taken and not used.
    pub fn release(&mut self) -> Result<()> {
        while let Some(nr) = self.taken.pop() {
            self.io.free(nr.0, 1)?;
        }
        Ok(())
    }

    /// Replaces entries `at..at + del` of the leaf by `ins`, with all that follows from it.
    pub fn splice_leaf(
        &mut self,
        path: &Path<S::Block>,
        at: usize,
        del: usize,
        ins: &[Entry],
    ) -> Result<()> {
        self.splice(path, path.depth(), at, del, ins)?;
        debug_assert!(self.taken.is_empty(), "blocks taken and not used");
        if del > ins.len() { self.settle() } else { Ok(()) }
    }

    fn splice(
        &mut self,
        path: &Path<S::Block>,
        level: usize,
        at: usize,
        del: usize,
        ins: &[Entry],
    ) -> Result<()> {
        let step = &path.steps[level];
        let count = (step.count + ins.len()).saturating_sub(del);
        if count == 0 {
            if level == 0 {
                node::write(&mut self.root.bytes, 0, &[]);
                return Ok(());
            }
            self.free_node(step.nr)?;
            return self.splice(path, level - 1, path.steps[level - 1].at, 1, &[]);
        }
        if count <= step.max {
            let mut fits = false;
            self.edit(step, |bytes| fits = node::splice(bytes, at, del, ins))?;
            if !fits {
                return Err(self.root.corrupt("extent node changed while it was worked on"));
            }
            return if at == 0 { self.rekey(path, level) } else { Ok(()) };
        }
        let (depth, mut all) = step.with(self.root, |v| (v.depth(), v.entries(0..step.count)));
        all.splice(at..at + del, ins.iter().copied());
        if level == 0 {
            let nr = self.new_node(depth, &all)?;
            let first = all.first().map_or(0, node::key_of);
            node::write(&mut self.root.bytes, depth + 1, &[node::index_entry(first, nr)]);
            return Ok(());
        }
        let at_end = at + ins.len() == count;
        let cut = if at_end { step.max } else { count / 2 };
        let (left, right) = all.split_at(cut);
        let nr = self.new_node(depth, right)?;
        self.edit(step, |bytes| node::write(bytes, depth, left))?;
        if at == 0 {
            self.rekey(path, level)?;
        }
        let up = index_of(right, nr);
        self.splice(path, level - 1, path.steps[level - 1].at + 1, 0, &[up])
    }

    /// Updates the key of a node in its parents, as far up as it is their first key too.
    fn rekey(&mut self, path: &Path<S::Block>, level: usize) -> Result<()> {
        let key = path.steps[level].with(self.root, |v| v.key(0));
        for step in path.steps[..level].iter().rev() {
            if step.with(self.root, |v| v.key(step.at)) == key {
                break;
            }
            self.edit(step, |bytes| node::set_key(bytes, step.at, key))?;
            if step.at > 0 {
                break;
            }
        }
        Ok(())
    }

    fn edit(&mut self, step: &Step<S::Block>, f: impl FnOnce(&mut [u8])) -> Result<()> {
        match &step.block {
            None => f(&mut self.root.bytes),
            Some(block) => {
                let seed = self.io.shape().seed;
                self.io.modify(block, |bytes| {
                    f(bytes);
                    node::seal(bytes, seed);
                })?;
            }
        }
        Ok(())
    }

    fn new_node(&mut self, depth: u16, entries: &[Entry]) -> Result<BlockNr> {
        let nr = match self.taken.pop() {
            Some(nr) => nr,
            None => self.io.alloc(self.io.inode_goal())?,
        };
        let block: Arc<S::Block> = self.io.create(nr)?;
        let seed = self.io.shape().seed;
        self.io.modify(&block, |bytes| {
            node::write(bytes, depth, entries);
            node::seal(bytes, seed);
        })?;
        block.set_verified();
        self.root.count(self.io.shape(), 1);
        Ok(nr)
    }

    fn free_node(&mut self, nr: BlockNr) -> Result<()> {
        self.io.free(nr.0, 1).map_err(|e| self.root.blame(e))?;
        self.io.forget(nr, true)?;
        self.root.uncount(self.io.shape(), 1);
        Ok(())
    }

    /// Moves the blocks of nodes on the path that lie at or behind `limit` to new ones. Gives how
    /// many.
    pub fn relocate_nodes(&mut self, mut path: Path<S::Block>, limit: BlockNr) -> Result<u32> {
        let mut count = 0;
        for level in 1..path.steps.len() {
            let step = &path.steps[level];
            let (old, Some(block)) = (step.nr, &step.block) else { continue };
            if old < limit {
                continue;
            }
            let bytes = block.bytes();
            let nr = self.io.alloc(self.io.inode_goal())?;
            let moved = self.io.create(nr)?;
            self.io.modify(&moved, |to| to.copy_from_slice(&bytes))?;
            moved.set_verified();
            let above = &path.steps[level - 1];
            self.edit(above, |bytes| node::set_child(bytes, above.at, nr))?;
            self.io.free(old.0, 1).map_err(|e| self.root.blame(e))?;
            self.io.forget(old, true)?;
            let step = &mut path.steps[level];
            (step.nr, step.block) = (nr, Some(moved));
            count += 1;
        }
        Ok(count)
    }

    /// Takes levels away while the root has one child that fits into it.
    pub fn settle(&mut self) -> Result<()> {
        loop {
            let view = View(&self.root.bytes);
            let depth = view.depth();
            if depth == 0 || view.count() != 1 {
                return Ok(());
            }
            let path = self.descend(view.key(0))?;
            let child = &path.steps[1];
            if child.count > node::capacity(self.root.bytes.len()) {
                return Ok(());
            }
            let entries = child.with(self.root, |v| v.entries(0..child.count));
            self.free_node(child.nr)?;
            node::write(&mut self.root.bytes, depth - 1, &entries);
        }
    }
}

fn index_of(entries: &[Entry], nr: BlockNr) -> Entry {
    node::index_entry(entries.first().map_or(0, node::key_of), nr)
}
