//! Names that lead elsewhere than the base says.
//!
//! A name is in here only while what it leads to differs from what was recorded, so a file made and
//! removed again between two fsyncs leaves nothing behind (and no record removes a name that the
//! base does not have).
//!
//! ```text
//!   dirs     directory ──► name ──► where it led, where it leads
//!   inodes   inode ──► the names that led or lead to it
//! ```
//!
//! Every operation on a name comes by, fsyncs are few: a change is a look-up in two tables. A
//! thread that collects gets names in order, so that the records of an fsync do not depend on the
//! tables.
//!
//! Invariants
//! - NM-1: `recorded != current` for every name (`Names::change`).
//! - NM-2: `inodes` has exactly the two ends of every name that are inodes (`Names::put`,
//!   `Names::take`).
//! - NM-3: no directory and no inode is in the tables without a name, and `count` is the number of
//!   names (`Names::put`, `Names::take`).

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::{Map, Set};

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
    /// The inodes at its ends. (They are never the same one, by NM-1.)
    pub fn ends(self) -> impl Iterator<Item = u32> {
        self.recorded.into_iter().chain(self.current)
    }
}

/// The names of one inode: nearly always one, which needs no table of its own.
#[derive(Debug)]
enum Ends {
    One(Name),
    Many(Set<Name>),
}

impl Ends {
    fn add(&mut self, name: Name) {
        match self {
            Self::One(first) => *self = Self::Many([first.clone(), name].into_iter().collect()),
            Self::Many(names) => {
                names.insert(name);
            }
        }
    }

    /// Takes a name out; true if none is left.
    fn remove(&mut self, name: &Name) -> bool {
        match self {
            Self::One(only) => only == name,
            Self::Many(names) => {
                names.remove(name);
                names.is_empty()
            }
        }
    }

    /// In order.
    fn sorted(&self) -> Vec<&Name> {
        match self {
            Self::One(name) => vec![name],
            Self::Many(names) => {
                let mut names: Vec<&Name> = names.iter().collect();
                names.sort_unstable();
                names
            }
        }
    }
}

type Dir = Map<Arc<[u8]>, Change>;

/// All names that changed.
#[derive(Debug, Default)]
pub(super) struct Names {
    dirs: Map<u32, Dir>,
    inodes: Map<u32, Ends>,
    count: usize,
}

impl Names {
    /// A name led to `was` and leads to `is` now.
    pub fn change(&mut self, dir: u32, name: Arc<[u8]>, was: Option<u32>, is: Option<u32>) {
        let name = Name { dir, name };
        let before = self.take(&name);
        let recorded = before.map_or(was, |before| before.recorded);
        if recorded != is {
            self.put(name, Change { recorded, current: is });
        }
    }

    /// The name is recorded as it is now.
    pub fn forget(&mut self, name: &Name) {
        self.take(name);
    }

    fn put(&mut self, name: Name, change: Change) {
        self.dirs.entry(name.dir).or_default().insert(Arc::clone(&name.name), change);
        self.count += 1;
        for ino in change.ends() {
            match self.inodes.entry(ino) {
                Entry::Occupied(mut ends) => ends.get_mut().add(name.clone()),
                Entry::Vacant(place) => {
                    place.insert(Ends::One(name.clone()));
                }
            }
        }
    }

    fn take(&mut self, name: &Name) -> Option<Change> {
        let Entry::Occupied(mut dir) = self.dirs.entry(name.dir) else { return None };
        let change = dir.get_mut().remove(&name.name)?;
        if dir.get().is_empty() {
            dir.remove();
        }
        self.count -= 1;
        for ino in change.ends() {
            if let Entry::Occupied(mut ends) = self.inodes.entry(ino)
                && ends.get_mut().remove(name)
            {
                ends.remove();
            }
        }
        Some(change)
    }

    /// The change of a name.
    pub fn get(&self, name: &Name) -> Option<Change> {
        self.dirs.get(&name.dir)?.get(&name.name).copied()
    }

    /// True if a changed name led or leads to an inode.
    pub fn has_end(&self, ino: u32) -> bool {
        self.inodes.contains_key(&ino)
    }

    /// True if a name in a directory changed.
    pub fn has_inside(&self, dir: u32) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// The changed names that led or lead to an inode, in order.
    pub fn of(&self, ino: u32) -> impl Iterator<Item = (&Name, Change)> {
        let names = self.inodes.get(&ino).map(Ends::sorted).unwrap_or_default();
        names.into_iter().filter_map(|name| Some((name, self.get(name)?)))
    }

    /// The changed names in a directory, in order.
    pub fn inside(&self, dir: u32) -> impl Iterator<Item = (Name, Change)> {
        let names = self.dirs.get(&dir).into_iter().flatten();
        let mut names: Vec<(Name, Change)> =
            names.map(|(name, change)| (Name { dir, name: Arc::clone(name) }, *change)).collect();
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        names.into_iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    /// The tables against a plain list of what was recorded and what is there.
    #[test]
    fn tables_agree_with_a_list() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut names = Names::default();
        // Where it led when it was recorded, where it leads.
        type Leads = (Option<u32>, Option<u32>);
        let mut model: BTreeMap<(u32, Vec<u8>), Leads> = BTreeMap::new();
        for _ in 0..20_000 {
            let key = (rng.random_range(2..5), vec![b'a' + rng.random_range(0..5)]);
            let name = Name { dir: key.0, name: key.1.clone().into() };
            let entry = model.entry(key).or_default();
            if rng.random_ratio(1, 5) {
                names.forget(&name);
                entry.0 = entry.1;
            } else {
                let is = rng.random_ratio(2, 3).then(|| rng.random_range(20..24));
                names.change(name.dir, Arc::clone(&name.name), entry.1, is);
                entry.1 = is;
            }
            let changed: Vec<_> = model.iter().filter(|(_, (was, is))| was != is).collect();
            assert_eq!(names.len(), changed.len());
            for dir in 2..5 {
                let want: Vec<_> = changed.iter().filter(|((d, _), _)| *d == dir).collect();
                let got: Vec<_> = names.inside(dir).collect();
                assert_eq!(names.has_inside(dir), !want.is_empty());
                assert_eq!(got.len(), want.len());
                for ((name, change), ((_, text), ends)) in got.iter().zip(want) {
                    assert_eq!(
                        (&name.name[..], change.recorded, change.current),
                        (&text[..], ends.0, ends.1)
                    );
                }
            }
            for ino in 20..24 {
                let leads = |end: &Option<u32>| *end == Some(ino);
                let want: Vec<_> =
                    changed.iter().filter(|(_, (was, is))| leads(was) || leads(is)).collect();
                let got: Vec<_> =
                    names.of(ino).map(|(name, _)| (name.dir, name.name.to_vec())).collect();
                assert_eq!(names.has_end(ino), !want.is_empty());
                assert_eq!(got, want.iter().map(|(key, _)| (*key).clone()).collect::<Vec<_>>());
            }
        }
    }
}
