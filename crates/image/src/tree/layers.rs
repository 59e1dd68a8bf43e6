//! Layers: archives that are put over each other, of which the upper ones take names of the lower
//! ones away.
//!
//! A whiteout says that a name of the *lower* layers is not there; an opaque directory hides all of
//! them in it. Neither touches what its own layer has put there, and neither depends on where it
//! stands in its layer. So each name carries the number of its layer. A directory of a lower layer
//! in which the present one has put something stays, as a directory that no header describes.

use std::collections::VecDeque;

use super::add::TreeBuilder;
use super::entries::NONE;
use super::resolve::{Missing, Place};
use super::types::{Meta, NodeId};
use crate::error::{BuildError, Result};

impl TreeBuilder {
    /// Begins the next layer.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
        self.hidden.clear();
    }

    /// Takes a name of the lower layers away, with all that they have below it.
    ///
    /// # Errors
    /// A path that cannot be. One that leads nowhere is none.
    pub(crate) fn white_out(&mut self, path: &[u8]) -> Result<()> {
        let Some(Place::Name(dir, name)) = self.lower_place(path)? else { return Ok(()) };
        let Some(entry) = self.entries.find(dir, &name) else { return Ok(()) };
        let node = self.entries.all[entry as usize].node;
        if node == NONE {
            return Ok(());
        }
        if self.node(NodeId(node)).kind.is_dir() {
            self.hide_below(NodeId(node));
        }
        self.hide(entry);
        Ok(())
    }

    /// Takes all names away that the lower layers have in a directory.
    ///
    /// # Errors
    /// A path that cannot be. One that leads nowhere is none.
    pub(crate) fn hide_lower(&mut self, path: &[u8]) -> Result<()> {
        let dir = match self.lower_place(path)? {
            Some(Place::Dir(dir)) => Some(dir),
            Some(Place::Name(dir, name)) => self.child(dir, &name),
            None => None,
        };
        if let Some(dir) = dir.filter(|dir| self.node(*dir).kind.is_dir()) {
            self.hide_below(dir);
        }
        Ok(())
    }

    /// Where a path ends, if it leads somewhere.
    fn lower_place(&mut self, path: &[u8]) -> Result<Option<Place>> {
        match self.resolve(path, Missing::Refuse) {
            Ok(place) => Ok(Some(place)),
            Err(BuildError::Source { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hides names of lower layers in a directory and below it. Each directory is walked once in a
    /// layer: nothing comes back into it from below.
    fn hide_below(&mut self, top: NodeId) {
        let mut dirs = Vec::new();
        let mut ahead = VecDeque::from([top]);
        while let Some(dir) = ahead.pop_front() {
            if !self.hidden.insert(dir) {
                continue;
            }
            dirs.push(dir);
            let mut next = self.node(dir).first;
            while next != NONE {
                let entry = self.entries.all[next as usize];
                if entry.node != NONE && self.node(NodeId(entry.node)).kind.is_dir() {
                    ahead.push_back(NodeId(entry.node));
                }
                next = entry.next;
            }
        }
        // What is below comes first: it decides whether a directory stays.
        for dir in dirs.into_iter().rev() {
            let mut kept = Vec::new();
            let mut next = self.node(dir).first;
            while next != NONE {
                self.hide(next);
                let entry = &mut self.entries.all[next as usize];
                match entry.node == NONE {
                    true => entry.listed = false,
                    false => kept.push(next),
                }
                next = entry.next;
            }
            let mut first = NONE;
            for nr in kept.into_iter().rev() {
                self.entries.all[nr as usize].next = std::mem::replace(&mut first, nr);
            }
            self.nodes[dir.at()].first = first;
        }
    }

    /// Hides one name, if it is of a lower layer and nothing of this layer is below it.
    fn hide(&mut self, nr: u32) {
        let entry = self.entries.all[nr as usize];
        if entry.node == NONE || entry.layer >= self.layer {
            return;
        }
        match self.first_child(NodeId(entry.node)) {
            None => self.entries.all[nr as usize].node = NONE,
            Some(child) => {
                let mtime = self.node(child).meta.mtime;
                self.nodes[entry.node as usize].meta =
                    Meta { mode: 0o755, mtime, ..Meta::default() };
                self.entries.all[nr as usize].layer = self.layer;
            }
        }
    }

    /// The file that was put into a directory first, of those that are there.
    fn first_child(&self, dir: NodeId) -> Option<NodeId> {
        if !self.node(dir).kind.is_dir() {
            return None;
        }
        let (mut next, mut first) = (self.node(dir).first, None);
        while next != NONE {
            let entry = &self.entries.all[next as usize];
            if entry.node != NONE {
                first = Some(NodeId(entry.node));
            }
            next = entry.next;
        }
        first
    }
}
