//! What an fsync needs beside itself, and the records for all of it.
//!
//! ```text
//!   file ──► every changed name that led or leads to it ──► the other inode of that name
//!            ──► its names ──► …
//!   directory ──► every changed name in it ──► …
//! ```
//!
//! An inode's image counts its links, so it is true only together with all its changed names; a
//! name that led to one inode and leads to another changes both. Nothing else ties two inodes
//! together: blocks and numbers that one frees are not given to another before the transaction is
//! committed in full. So replaying a closure, and nothing else of the transaction, leaves a
//! consistent volume.
//!
//! Invariants
//! - FL-1: whatever the closure contains is eligible (`Plan::make`), and so are the directories
//!   that its names are in.
//! - FL-2: after the records, each inode of the closure has as many names as its image counts
//!   (`Plan::count`).
//! - FL-3: a file that lost all its names gets a placeholder, as long as there is
//!   room (`Plan::add_placeholders`).
//! - FL-4: only what was recorded is forgotten (`Plan::forget`).

use std::sync::Arc;

use extol_jbd2::planted;
use extol_ondisk::fast_commit::{FcEntry, FcRecord};

use super::changes::Changes;
use super::names::{Change, Name};
use super::order::{Step, order};
use super::placeholder::{self, PlaceholderDir};
use super::{Map, Reason, Set, SyncTarget};

/// What there is for a fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Collected {
    /// Nothing that is not recorded.
    Nothing,
    /// These records.
    Records(Vec<FcRecord>),
    /// No records say it.
    Full(Reason),
}

/// What the targets need, or why no record says it.
pub(super) fn collect(
    changes: &mut Changes,
    targets: &[SyncTarget],
    place: Option<PlaceholderDir>,
) -> Collected {
    let plan = Plan::make(changes, targets).and_then(|mut plan| {
        plan.add_placeholders(changes, place)?;
        Ok((plan.records(changes)?, plan))
    });
    match plan {
        Err(reason) => Collected::Full(reason),
        Ok((records, _)) if records.is_empty() => Collected::Nothing,
        Ok((records, plan)) => {
            plan.forget(changes);
            Collected::Records(records)
        }
    }
}

/// The closure: inodes and names in the order they were found.
#[derive(Debug, Default)]
struct Plan {
    inodes: Vec<u32>,
    names: Vec<(Name, Change)>,
    known: Set<u32>,
    known_names: Set<Name>,
    /// Deleted files: the image of each, and how far its map reaches.
    placeholders: Map<u32, (Arc<[u8]>, u32)>,
}

impl Plan {
    fn make(changes: &Changes, targets: &[SyncTarget]) -> Result<Self, Reason> {
        if let Some(reason) = changes.all {
            return Err(reason);
        }
        let mut plan = Self::default();
        for target in targets.iter().filter(|target| changes.wants(target)) {
            if let Some(reason) = changes.ineligible(target.ino) {
                return Err(reason);
            }
            if changes.is_changed(target.ino) {
                plan.add(target.ino);
            }
            for (name, change) in changes.names.inside(target.ino) {
                plan.add_name(changes, &name, change)?;
            }
        }
        let mut at = 0;
        while let Some(&ino) = plan.inodes.get(at) {
            at += 1;
            if let Some(reason) = changes.ineligible(ino) {
                return Err(reason);
            }
            for (name, change) in changes.names.of(ino) {
                plan.add_name(changes, name, change)?;
                if planted::has(planted::Bug::NamesForgotten) {
                    break;
                }
            }
        }
        Ok(plan)
    }

    fn add(&mut self, ino: u32) {
        if self.known.insert(ino) {
            self.inodes.push(ino);
        }
    }

    fn add_name(&mut self, changes: &Changes, name: &Name, change: Change) -> Result<(), Reason> {
        if self.known_names.insert(name.clone()) {
            if let Some(reason) = changes.names_ineligible(name.dir) {
                return Err(reason);
            }
            self.names.push((name.clone(), change));
            change.ends().for_each(|ino| self.add(ino));
        }
        Ok(())
    }

    /// Gives each deleted file of the closure another name.
    fn add_placeholders(
        &mut self,
        changes: &Changes,
        place: Option<PlaceholderDir>,
    ) -> Result<(), Reason> {
        for &ino in &self.inodes {
            let Some(inode) = changes.inodes.get(&ino).filter(|inode| inode.links == 0) else {
                continue;
            };
            let used =
                changes.placeholders + u32::try_from(self.placeholders.len()).unwrap_or(u32::MAX);
            let place =
                place.filter(|place| used < place.places && !inode.born).ok_or(Reason::Deleted)?;
            let (image, end) = placeholder::image(&inode.image).ok_or(Reason::Deleted)?;
            self.placeholders.insert(ino, (image, end.max(inode.ranges.end())));
            let name = Name { dir: place.dir, name: placeholder::name(ino).into() };
            self.names.push((name, Change { recorded: None, current: Some(ino) }));
        }
        Ok(())
    }

    /// Names that each inode of the closure has before it.
    fn count(&self, changes: &Changes) -> Result<Map<u32, u32>, Reason> {
        let mut links = Map::default();
        for &ino in &self.inodes {
            // An operation that changes a name writes the inode; if one did not, it is not known
            // what the inode should be.
            let inode = changes.inodes.get(&ino).ok_or(Reason::Failed)?;
            let mut before = i64::from(inode.links);
            for (_, change) in changes.names.of(ino) {
                before += i64::from(change.recorded == Some(ino))
                    - i64::from(change.current == Some(ino));
            }
            if !inode.born && !self.placeholders.contains_key(&ino) && !inode.ranges.is_sayable() {
                return Err(Reason::HoleInFront);
            }
            let right = if inode.born { before == 0 } else { before > 0 };
            if !right || inode.links == 0 && !self.placeholders.contains_key(&ino) {
                return Err(Reason::Failed);
            }
            links.insert(ino, u32::try_from(before).map_err(|_| Reason::Failed)?);
        }
        Ok(links)
    }

    fn records(&self, changes: &Changes) -> Result<Vec<FcRecord>, Reason> {
        let steps = order(&self.names, self.count(changes)?).ok_or(Reason::CrossRename)?;
        let mut out = Vec::with_capacity(self.inodes.len() * 4 + steps.len());
        let image = |ino: u32, out: &mut Vec<FcRecord>| {
            if let Some((image, _)) = self.placeholders.get(&ino) {
                out.push(FcRecord::Inode { ino, image: image.clone() });
            } else if let Some(inode) = changes.inodes.get(&ino) {
                out.push(FcRecord::Inode { ino, image: inode.image.clone() });
            }
        };
        let ranges = |ino: u32, out: &mut Vec<FcRecord>| {
            if let Some(&(_, end)) = self.placeholders.get(&ino) {
                if end > 0 {
                    out.push(FcRecord::DelRange { ino, block: 0, len: end });
                }
            } else if let Some(inode) = changes.inodes.get(&ino) {
                inode.ranges.records(ino, out);
            }
        };
        let is_born = |ino: u32| changes.inodes.get(&ino).is_some_and(|inode| inode.born);
        // An inode must be there before its first name.
        let mut unnamed = Set::<u32>::default();
        for &ino in self.inodes.iter().filter(|ino| is_born(**ino)) {
            image(ino, &mut out);
            ranges(ino, &mut out);
            unnamed.insert(ino);
        }
        for step in steps {
            if matches!(step, Step::Unlink(..)) && planted::has(planted::Bug::UnlinkForgotten) {
                continue;
            }
            let entry =
                |name: &Name, ino| FcEntry { parent: name.dir, ino, name: Arc::clone(&name.name) };
            out.push(match step {
                Step::Unlink(name, ino) => FcRecord::Unlink(entry(name, ino)),
                Step::Link(name, ino) if unnamed.remove(&ino) => FcRecord::Creat(entry(name, ino)),
                Step::Link(name, ino) => FcRecord::Link(entry(name, ino)),
            });
        }
        for &ino in &self.inodes {
            if !is_born(ino) {
                ranges(ino, &mut out);
            }
            // Behind the ranges, because Linux counts an inode's blocks here; behind the names,
            // because they count links.
            image(ino, &mut out);
        }
        Ok(out)
    }

    fn forget(&self, changes: &mut Changes) {
        for ino in &self.inodes {
            changes.inodes.remove(ino);
        }
        for (name, _) in self.names.iter().filter(|(name, _)| self.known_names.contains(name)) {
            changes.names.forget(name);
        }
        changes.placeholders += u32::try_from(self.placeholders.len()).unwrap_or(u32::MAX);
    }
}
