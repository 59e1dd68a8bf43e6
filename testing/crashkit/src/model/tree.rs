//! Names and what they stand for.
//!
//! Paths are relative to the actor's directory, without a leading slash. Two trees are compared as
//! sorted lists of [`Line`]s, in which an inode is named by the first path that leads to it:
//! numbers do not matter, identity does.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::{Deserialize, Serialize};

/// What an inode is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link that says this.
    Symlink(String),
}

/// One name, as it can be compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// Path below the actor's directory.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Link count.
    pub links: u32,
    /// First path of the same inode.
    pub first: String,
}

/// Hash of a list.
#[must_use]
pub fn hash(lines: &[Line]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    hasher.finish()
}

/// Number of an inode in the model. Never used again.
pub type Id = u32;

/// All names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tree {
    names: BTreeMap<String, Id>,
    kinds: BTreeMap<Id, Kind>,
}

/// Directory of a path; empty at the top.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl Tree {
    /// The actor's own directory, which has no name in the tree.
    pub const TOP: Id = 0;

    /// What stands under a name.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Id> {
        self.names.get(path).copied()
    }

    /// Kind of an inode.
    #[must_use]
    pub fn kind(&self, id: Id) -> Option<&Kind> {
        self.kinds.get(&id)
    }

    /// All names with their inodes, sorted.
    pub fn names(&self) -> impl Iterator<Item = (&str, Id)> {
        self.names.iter().map(|(path, id)| (path.as_str(), *id))
    }

    /// Paths of one kind of thing.
    #[must_use]
    pub fn paths(&self, want: impl Fn(&Kind) -> bool) -> Vec<String> {
        let wanted = self.names.iter().filter(|(_, id)| self.kinds.get(id).is_some_and(&want));
        wanted.map(|(path, _)| path.clone()).collect()
    }

    /// True if nothing is in the directory.
    #[must_use]
    pub fn is_empty_dir(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.names.range(below.clone()..).next().is_none_or(|(p, _)| !p.starts_with(&below))
    }

    /// The inode of the directory that holds a path.
    #[must_use]
    pub fn dir_of(&self, path: &str) -> Option<Id> {
        let dir = parent(path);
        if dir.is_empty() { Some(Self::TOP) } else { self.get(dir) }
    }

    /// Adds a name.
    pub fn add(&mut self, path: &str, id: Id, kind: Kind) {
        self.names.insert(path.to_owned(), id);
        self.kinds.insert(id, kind);
    }

    /// Takes a name away; gives its inode.
    pub fn remove(&mut self, path: &str) -> Option<Id> {
        let id = self.names.remove(path)?;
        if !self.names.values().any(|other| *other == id) {
            self.kinds.remove(&id);
        }
        Some(id)
    }

    /// Renames, over what is there. Both names of one inode: nothing happens.
    pub fn rename(&mut self, from: &str, to: &str) {
        let Some(id) = self.get(from) else { return };
        if self.get(to) == Some(id) {
            return;
        }
        let kind = self.kinds.get(&id).cloned().unwrap_or(Kind::File);
        self.remove(to);
        self.names.remove(from);
        self.names.insert(to.to_owned(), id);
        self.kinds.insert(id, kind);
        let below = format!("{from}/");
        let moved: Vec<_> = self
            .names
            .keys()
            .filter(|p| p.starts_with(&below))
            .map(|p| (p.clone(), p[below.len()..].to_owned()))
            .collect();
        for (old, rest) in moved {
            if let Some(id) = self.names.remove(&old) {
                self.names.insert(format!("{to}/{rest}"), id);
            }
        }
    }

    /// The sorted list.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut first: BTreeMap<Id, &str> = BTreeMap::new();
        let mut links: BTreeMap<Id, u32> = BTreeMap::new();
        for (path, id) in self.names() {
            first.entry(id).or_insert(path);
            match self.kinds.get(&id) {
                Some(Kind::Dir) => {
                    *links.entry(id).or_default() += 2;
                    if let Some(above) = self.dir_of(path) {
                        *links.entry(above).or_default() += 1;
                    }
                }
                _ => *links.entry(id).or_default() += 1,
            }
        }
        let line = |(path, id): (&str, Id)| Line {
            path: path.to_owned(),
            kind: self.kinds.get(&id).cloned().unwrap_or(Kind::File),
            links: links.get(&id).copied().unwrap_or(0),
            first: first.get(&id).copied().unwrap_or(path).to_owned(),
        };
        self.names().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_links_and_renames() {
        let mut tree = Tree::default();
        tree.add("d", 1, Kind::Dir);
        tree.add("d/e", 2, Kind::Dir);
        tree.add("d/e/f", 3, Kind::File);
        tree.add("g", 3, Kind::File);
        let lines = tree.lines();
        let shown: Vec<_> =
            lines.iter().map(|l| (l.path.as_str(), l.links, l.first.as_str())).collect();
        assert_eq!(
            shown,
            [("d", 3, "d"), ("d/e", 2, "d/e"), ("d/e/f", 2, "d/e/f"), ("g", 2, "d/e/f")]
        );
        let before = hash(&lines);
        tree.rename("d/e", "x");
        assert_eq!(tree.get("x/f"), Some(3));
        assert!(tree.is_empty_dir("d") && !tree.is_empty_dir("x"));
        assert_ne!(hash(&tree.lines()), before);
        tree.rename("g", "x/f");
        assert_eq!(tree.get("g"), Some(3), "two names of one inode");
        assert_eq!(tree.remove("g"), Some(3));
        assert_eq!(tree.kind(3), Some(&Kind::File));
        tree.remove("x/f");
        assert_eq!(tree.kind(3), None);
    }
}
