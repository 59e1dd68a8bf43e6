//! Names that lead elsewhere than the base says.
//!
//! A name is in here only while what it leads to differs from what was recorded, so a file made and removed again
//! between two fsyncs leaves nothing behind (and no record removes a name that the base does not have).
//!
//! Invariants
//! - M1: `recorded != current` for every name (`Names::change`).
//! - M2: `by_inode` has exactly the two ends of every name that are inodes (`Names::change`, `Names::forget`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Name {
    pub dir: u32,
    pub name: Arc<[u8]>,
}

/// Where a name led, and leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// In the base and the fast commits on it.
    pub recorded: Option<u32>,
    /// Now.
    pub current: Option<u32>,
}

impl Change {
    /// The inodes at its ends.
    pub fn ends(self) -> impl Iterator<Item = u32> {
        self.recorded.into_iter().chain(self.current)
    }
}

/// All names that changed.
#[derive(Debug, Default)]
pub(super) struct Names {
    by_name: BTreeMap<Name, Change>,
    by_inode: BTreeSet<(u32, Name)>,
}

impl Names {
    /// A name led to `was` and leads to `is` now.
    pub fn change(&mut self, dir: u32, name: &[u8], was: Option<u32>, is: Option<u32>) {
        let name = Name { dir, name: name.into() };
        let before = self.by_name.get(&name).copied();
        let recorded = before.map_or(was, |b| b.recorded);
        if let Some(before) = before {
            self.drop_ends(&name, before);
        }
        if recorded == is {
            self.by_name.remove(&name);
            return;
        }
        let change = Change { recorded, current: is };
        for ino in change.ends() {
            self.by_inode.insert((ino, name.clone()));
        }
        self.by_name.insert(name, change);
    }

    /// The name is recorded as it is now.
    pub fn forget(&mut self, name: &Name) {
        if let Some(change) = self.by_name.remove(name) {
            self.drop_ends(name, change);
        }
    }

    fn drop_ends(&mut self, name: &Name, change: Change) {
        for ino in change.ends() {
            self.by_inode.remove(&(ino, name.clone()));
        }
    }

    /// The change of a name.
    pub fn get(&self, name: &Name) -> Option<Change> {
        self.by_name.get(name).copied()
    }

    /// The changed names that led or lead to an inode.
    pub fn of(&self, ino: u32) -> impl Iterator<Item = (&Name, Change)> {
        let first = (ino, Name { dir: 0, name: Arc::from([]) });
        let range = self.by_inode.range(first..).take_while(move |(i, _)| *i == ino);
        range.filter_map(|(_, name)| Some((name, self.get(name)?)))
    }

    /// The changed names in a directory.
    pub fn inside(&self, dir: u32) -> impl Iterator<Item = (&Name, Change)> {
        let first = Name { dir, name: Arc::from([]) };
        self.by_name.range(first..).take_while(move |(n, _)| n.dir == dir).map(|(n, c)| (n, *c))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }
}
