//! Walks over a tree that is being made.

use std::rc::Rc;

use super::add::TreeBuilder;
use super::entries::NONE;
use super::types::{Kind, NodeId};

impl TreeBuilder {
    /// Removes names, with all that is below them. `state` is what is known of the root directory
    /// and `enter` what follows from it for a directory in it; `is_out` says which names go.
    pub(crate) fn prune<S>(
        &mut self,
        state: S,
        is_out: impl Fn(&S, &[u8], bool) -> bool,
        enter: impl Fn(&S, &[u8]) -> S,
    ) {
        let mut here = Vec::new();
        let mut dirs = vec![(NONE, Rc::new(state))];
        while let Some((entry, mut state)) = dirs.pop() {
            let mut dir = NodeId::ROOT;
            if entry != NONE {
                dir = NodeId(self.entries.all[entry as usize].node);
                state = Rc::new(enter(&state, self.entries.name(entry)));
            }
            self.list(dir, &mut here);
            for &nr in &here {
                let node = NodeId(self.entries.all[nr as usize].node);
                let is_dir = self.node(node).kind.is_dir();
                if is_out(&state, self.entries.name(nr), is_dir) {
                    self.entries.all[nr as usize].node = NONE;
                } else if is_dir {
                    dirs.push((nr, Rc::clone(&state)));
                }
            }
        }
    }

    /// The regular files with a name that matches, or that is below one that does. States are as
    /// for [`prune`](Self::prune).
    pub(crate) fn files_in<S>(
        &self,
        state: S,
        matches: impl Fn(&S, &[u8], bool) -> bool,
        enter: impl Fn(&S, &[u8]) -> S,
    ) -> Vec<NodeId> {
        let (mut files, mut here) = (Vec::new(), Vec::new());
        // With each directory: that everything in it matches.
        let mut dirs = vec![(NodeId::ROOT, Rc::new(state), false)];
        while let Some((dir, state, all)) = dirs.pop() {
            self.list(dir, &mut here);
            for &nr in &here {
                let node = NodeId(self.entries.all[nr as usize].node);
                let (kind, name) = (self.node(node).kind, self.entries.name(nr));
                let matches = all || matches(&state, name, kind.is_dir());
                if kind.is_dir() {
                    dirs.push((node, Rc::new(enter(&state, name)), matches));
                } else if matches && matches!(kind, Kind::File { .. }) {
                    files.push(node);
                }
            }
        }
        files
    }

    /// All files that have a name, each once, in an order that depends on the names only.
    pub(crate) fn live(&self) -> Vec<NodeId> {
        let mut seen = vec![false; self.nodes.len()];
        let (mut files, mut dirs, mut here) = (Vec::new(), vec![NodeId::ROOT], Vec::new());
        while let Some(dir) = dirs.pop() {
            files.push(dir);
            self.list(dir, &mut here);
            for &nr in here.iter().rev() {
                let node = NodeId(self.entries.all[nr as usize].node);
                if self.node(node).kind.is_dir() {
                    dirs.push(node);
                } else if !std::mem::replace(&mut seen[node.at()], true) {
                    files.push(node);
                }
            }
        }
        files
    }

    /// Tells of all files with a path of each: the first of its names, with a slash in front; in
    /// an order that depends on the names only.
    #[cfg(feature = "selinux")]
    pub(crate) fn each_path(&self, tell: &mut dyn FnMut(NodeId, &[u8])) {
        let mut seen = vec![false; self.nodes.len()];
        let (mut path, mut here) = (Vec::new(), Vec::new());
        let mut left = vec![(NONE, 0)];
        while let Some((nr, above)) = left.pop() {
            path.truncate(above);
            let mut id = NodeId::ROOT;
            if nr != NONE {
                id = NodeId(self.entries.all[nr as usize].node);
                path.push(b'/');
                path.extend_from_slice(self.entries.name(nr));
            }
            if !std::mem::replace(&mut seen[id.at()], true) {
                tell(id, if path.is_empty() { b"/" } else { &path });
            }
            if self.node(id).kind.is_dir() {
                self.list(id, &mut here);
                left.extend(here.iter().rev().map(|&nr| (nr, path.len())));
            }
        }
    }

    /// A path of a file, for messages; without a slash in front. Reads all names.
    pub(crate) fn path_of(&self, id: NodeId) -> Vec<u8> {
        let mut entry_of = vec![NONE; self.nodes.len()];
        for (nr, entry) in self.entries.all.iter().enumerate().rev() {
            if entry.node != NONE {
                entry_of[entry.node as usize] = nr as u32;
            }
        }
        let (mut parts, mut nr) = (Vec::new(), entry_of[id.at()]);
        while nr != NONE {
            parts.push(self.entries.name(nr));
            nr = entry_of[self.entries.all[nr as usize].parent.at()];
        }
        parts.reverse();
        parts.join(&b'/')
    }
}
