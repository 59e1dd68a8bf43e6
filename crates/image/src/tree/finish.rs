//! The end of making a tree: names sorted, files numbered in layout order.

use super::add::TreeBuilder;
use super::entries::NONE;
use super::types::{Node, NodeId};
use super::{Name, Tree};

impl TreeBuilder {
    /// Ends it. Files without a name are left out.
    #[must_use]
    pub fn finish(mut self) -> Tree {
        let mut new_of = vec![NONE; self.nodes.len()];
        let (mut names, live) = self.walk(&mut new_of);
        for name in &mut names {
            name.node = NodeId(new_of[name.node.at()]);
        }
        sort_nodes(&mut self.nodes, new_of, live);
        let mut tree = Tree {
            nodes: self.nodes,
            names,
            bytes: self.entries.bytes,
            xattrs: self.xattrs,
            times: self.times,
            verity: self.verity,
            notes: self.notes,
            more_notes: self.more_notes,
        };
        count_links(&mut tree);
        tree
    }

    /// Walks all directories in layout order. Gives the names in that order, which still have the
    /// old numbers of their files, and how many files there are; files get their new numbers.
    fn walk(&mut self, new_of: &mut [u32]) -> (Vec<Name>, u32) {
        let mut names = Vec::with_capacity(self.entries.all.len());
        let mut live = 0;
        let mut number = |old: u32| {
            let new = &mut new_of[old as usize];
            if *new == NONE {
                *new = live;
                live += 1;
            }
            NodeId(*new)
        };
        let (mut dirs, mut here) = (vec![NodeId::ROOT.0], Vec::new());
        while let Some(dir) = dirs.pop() {
            let parent = number(dir);
            let first = names.len() as u32;
            self.list(NodeId(dir), &mut here);
            self.nodes[dir as usize].first = first;
            let below = dirs.len();
            for &nr in &here {
                let entry = &self.entries.all[nr as usize];
                if self.nodes[entry.node as usize].kind.is_dir() {
                    // Numbered when the walk comes to it.
                    dirs.push(entry.node);
                } else {
                    number(entry.node);
                }
                let node = NodeId(entry.node);
                names.push(Name { parent, at: entry.at, node, len: entry.len });
            }
            dirs[below..].reverse();
        }
        (names, live)
    }

    /// The entries of a directory, by bytes of their names.
    pub(super) fn list(&self, dir: NodeId, into: &mut Vec<u32>) {
        into.clear();
        let mut next = self.node(dir).first;
        while next != NONE {
            let entry = &self.entries.all[next as usize];
            if entry.node != NONE {
                into.push(next);
            }
            next = entry.next;
        }
        into.sort_unstable_by(|&a, &b| self.entries.name(a).cmp(self.entries.name(b)));
    }
}

/// Puts files where their numbers say, in place; those without one are dropped.
fn sort_nodes(nodes: &mut Vec<Node>, mut new_of: Vec<u32>, live: u32) {
    let mut unused = live;
    for new in &mut new_of {
        if *new == NONE {
            *new = unused;
            unused += 1;
        }
    }
    for at in 0..nodes.len() {
        while new_of[at] as usize != at {
            let to = new_of[at] as usize;
            nodes.swap(at, to);
            new_of.swap(at, to);
        }
    }
    nodes.truncate(live as usize);
    nodes.shrink_to_fit();
}

fn count_links(tree: &mut Tree) {
    for node in &mut tree.nodes {
        node.nlink = if node.kind.is_dir() { 2 } else { 0 };
    }
    for name in &tree.names {
        if tree.nodes[name.node.at()].kind.is_dir() {
            tree.nodes[name.parent.at()].nlink += 1;
        } else {
            tree.nodes[name.node.at()].nlink += 1;
        }
    }
}
