//! What goes into an image: names, metadata and where the contents are, in memory.
//!
//! A source fills a [`TreeBuilder`], edits change it, and [`TreeBuilder::finish`] makes the
//! [`Tree`], which does not change any more. No name of a source ever reaches the file system of
//! the host: names, links and their targets are looked up in here only.
//!
//! ```text
//!  entry ──► resolve (parents, links) ──► entries, nodes ──► finish ──► Tree
//!            names clamped at the root    one index of all    sorted, numbered in layout order
//!                                         names, by hash      files without a name left out
//! ```
//!
//! Hard links are several entries with one node, so there are no cycles by construction: a
//! directory has one entry. An entry is found by a hash of its directory and its name; the hash is
//! keyed at random, so a source cannot choose names that collide.
//!
//! - TE-1: the finished tree depends on what was added, and not on hash keys or addresses.
//! - TE-2: nodes are numbered in layout order: a directory, then the files in it by bytes of their
//!   names, then its subdirectories in the same way. A file with several names has the place of the
//!   first one.
//! - TE-3: what a source can make grow (entries, names, attributes) is bounded by [`Limits`].
//! - TE-4: a file costs at most 120 bytes beside its name.

mod add;
mod entries;
mod finish;
mod layers;
mod limits;
mod resolve;
#[cfg(test)]
mod tests;
mod types;
mod walk;

pub use add::TreeBuilder;
pub use extol_verity::{Algorithm as HashAlgorithm, Salt};
pub use limits::Limits;
pub use types::{
    DataRef, Kind, Meta, NameRef, Node, NodeId, Note, OtherTimes, TimesId, VerityTrees, XattrSet,
    XattrSetId,
};

/// The longest name of an entry.
pub const MAX_NAME: usize = 255;
/// The longest target of a symbolic link that Linux takes.
pub const MAX_TARGET: usize = 4095;
/// The most remarks that are kept. The rest is counted.
const MAX_NOTES: usize = 100;

/// A name in a directory, in the finished tree.
#[derive(Clone, Copy, Debug)]
struct Name {
    parent: NodeId,
    at: u32,
    node: NodeId,
    len: u8,
}

/// A finished tree.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// By parent, and by bytes of the name in each.
    names: Vec<Name>,
    bytes: Vec<u8>,
    xattrs: Vec<XattrSet>,
    times: Vec<OtherTimes>,
    verity: VerityTrees,
    notes: Vec<Note>,
    /// Remarks that were not kept.
    more_notes: u64,
}

impl Tree {
    /// The root directory.
    #[must_use]
    pub fn root(&self) -> NodeId {
        NodeId::ROOT
    }

    /// The file of that number.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.at()]
    }

    /// How many files there are, the root directory among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never true: there is a root directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many names there are: more than files if some have several.
    #[must_use]
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// All files, in layout order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(nr, node)| (NodeId(nr as u32), node))
    }

    /// The entries of a directory, by bytes of their names. Nothing for what is none.
    pub fn children(&self, dir: NodeId) -> impl ExactSizeIterator<Item = (&[u8], NodeId)> {
        self.entries(dir).iter().map(|name| (self.name(name), name.node))
    }

    fn entries(&self, dir: NodeId) -> &[Name] {
        let node = self.node(dir);
        if !node.kind.is_dir() {
            return &[];
        }
        let rest = &self.names[node.first as usize..];
        &rest[..rest.partition_point(|name| name.parent == dir)]
    }

    fn name(&self, name: &Name) -> &[u8] {
        &self.bytes[name.at as usize..][..usize::from(name.len)]
    }

    /// The entry of that name in a directory.
    #[must_use]
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let entries = self.entries(dir);
        let at = entries.binary_search_by(|entry| self.name(entry).cmp(name)).ok()?;
        Some(entries[at].node)
    }

    /// The file of that path. Links are not followed.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty());
        parts.try_fold(NodeId::ROOT, |dir, part| self.child(dir, part))
    }

    /// Bytes that the tree keeps: the target of a link.
    ///
    /// # Panics
    /// If the reference is not of this tree.
    #[must_use]
    pub fn bytes(&self, name: NameRef) -> &[u8] {
        &self.bytes[name.at as usize..][..usize::from(name.len)]
    }

    /// Extended attributes, by ascending name; names with their prefix, as `getfattr` shows them.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn xattrs(&self, id: XattrSetId) -> &XattrSet {
        &self.xattrs[id.0 as usize]
    }

    /// The times beside mtime that the source states.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn times(&self, id: TimesId) -> OtherTimes {
        self.times[id.0 as usize]
    }

    /// How the trees of files of fs-verity are made.
    #[must_use]
    pub fn verity(&self) -> &VerityTrees {
        &self.verity
    }

    /// Remarks about the source, and how many more there were.
    #[must_use]
    pub fn notes(&self) -> (&[Note], u64) {
        (&self.notes, self.more_notes)
    }

    /// The first path of a file, for messages; without a slash in front. Reads all names.
    #[must_use]
    pub fn path(&self, id: NodeId) -> Vec<u8> {
        let Some(at) = self.names.iter().position(|name| name.node == id) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        // The name of a directory comes before the names in it.
        let mut wanted = id;
        for name in self.names[..=at].iter().rev() {
            if name.node == wanted {
                parts.push(self.name(name));
                wanted = name.parent;
            }
        }
        parts.reverse();
        parts.join(&b'/')
    }
}
