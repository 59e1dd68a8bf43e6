//! The names of a tree that is being made, and the index that finds them.

use std::hash::{BuildHasher as _, RandomState};

use super::types::NodeId;

/// No entry, no node.
pub(super) const NONE: u32 = u32::MAX;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub parent: NodeId,
    /// Where the name begins.
    pub at: u32,
    /// The file, or [`NONE`] if the name was removed. It keeps its place then.
    pub node: u32,
    /// The next entry of the directory.
    pub next: u32,
    pub len: u8,
    /// In the list of its directory.
    pub listed: bool,
    /// The layer that has put it there.
    pub layer: u16,
}

/// All names. Entries are never taken out of the index: a removed name has no node.
#[derive(Debug)]
pub(super) struct Entries {
    pub all: Vec<Entry>,
    pub bytes: Vec<u8>,
    /// Open addressing: numbers of entries, or [`NONE`]. Its length is a power of two, and at most
    /// three quarters of it are used.
    slots: Vec<u32>,
    keys: RandomState,
}

impl Entries {
    pub fn new() -> Self {
        Self { all: Vec::new(), bytes: Vec::new(), slots: vec![NONE; 64], keys: RandomState::new() }
    }

    pub fn name(&self, entry: u32) -> &[u8] {
        let entry = &self.all[entry as usize];
        &self.bytes[entry.at as usize..][..usize::from(entry.len)]
    }

    /// The slot where the search for a name ends, and what is in it.
    fn search(&self, parent: NodeId, name: &[u8]) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let mut slot = self.keys.hash_one((parent.0, name)) as usize & mask;
        loop {
            let nr = self.slots[slot];
            if nr == NONE || self.all[nr as usize].parent == parent && self.name(nr) == name {
                return (slot, nr);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The entry of a name, removed or not.
    pub fn find(&self, parent: NodeId, name: &[u8]) -> Option<u32> {
        let (_, nr) = self.search(parent, name);
        (nr != NONE).then_some(nr)
    }

    /// Adds an entry whose name is not there. Its bytes go to the end of `bytes`.
    pub fn insert(&mut self, parent: NodeId, name: &[u8], layer: u16) -> u32 {
        if (self.all.len() + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let nr = self.all.len() as u32;
        let (slot, _) = self.search(parent, name);
        self.slots[slot] = nr;
        let (at, len) = (self.bytes.len() as u32, name.len() as u8);
        self.bytes.extend_from_slice(name);
        self.all.push(Entry { parent, at, node: NONE, next: NONE, len, listed: false, layer });
        nr
    }

    fn grow(&mut self) {
        self.slots = vec![NONE; self.slots.len() * 2];
        for nr in 0..self.all.len() as u32 {
            let parent = self.all[nr as usize].parent;
            let mask = self.slots.len() - 1;
            let mut slot = self.keys.hash_one((parent.0, self.name(nr))) as usize & mask;
            while self.slots[slot] != NONE {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = nr;
        }
    }
}
