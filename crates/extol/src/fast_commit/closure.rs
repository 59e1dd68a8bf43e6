//! What an fsync needs beside itself, and the records for all of it.
//!
//! ```text
//!   file ──► every changed name that led or leads to it ──► the other inode of that name ──► its names ──► …
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
//! - C1: whatever the closure contains is fit (`Plan::make`), and so are the directories that its
//!   names are in.
//! - C2: after the records, each inode of the closure has as many names as its image counts
//!   (`Plan::count`).
//! - C3: a file that lost all its names gets one where such files are parked, as long as there is
//!   room (`Plan::park`).
//! - C4: only what was recorded is forgotten (`Plan::forget`).

use std::sync::Arc;

use extol_jbd2::fast::{Ask, Collected, FcEntry, FcRecord, Reason};

use super::names::{Change, Name};
use super::order::{Step, order};
use super::park::{self, Park};
use super::track::Changes;
use super::{Map, Set};

/// What the asks need, or why it cannot be said.
pub(super) fn collect(changes: &mut Changes, asks: &[Ask], place: Option<Park>) -> Collected {
    let plan = Plan::make(changes, asks).and_then(|mut plan| {
        plan.park(changes, place)?;
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
    parked: Map<u32, (Arc<[u8]>, u32)>,
}

impl Plan {
    fn make(changes: &Changes, asks: &[Ask]) -> Result<Self, Reason> {
        if let Some(reason) = changes.all_unfit() {
            return Err(reason);
        }
        let mut plan = Self::default();
        for ask in asks.iter().filter(|ask| changes.wants(ask)) {
            if let Some(reason) = changes.unfit(ask.ino) {
                return Err(reason);
            }
            if changes.is_changed(ask.ino) {
                plan.add(ask.ino);
            }
            for (name, change) in changes.names.inside(ask.ino) {
                plan.add_name(changes, &name, change)?;
            }
        }
        let mut at = 0;
        while let Some(&ino) = plan.inodes.get(at) {
            at += 1;
            if let Some(reason) = changes.unfit(ino) {
                return Err(reason);
            }
            for (name, change) in changes.names.of(ino) {
                plan.add_name(changes, name, change)?;
                #[cfg(feature = "planted-bugs")]
                if extol_jbd2::planted::has(extol_jbd2::planted::Bug::NamesForgotten) {
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
            if let Some(reason) = changes.names_unfit(name.dir) {
                return Err(reason);
            }
            self.names.push((name.clone(), change));
            change.ends().for_each(|ino| self.add(ino));
        }
        Ok(())
    }

    /// Gives each deleted file of the closure another name.
    fn park(&mut self, changes: &Changes, place: Option<Park>) -> Result<(), Reason> {
        for &ino in &self.inodes {
            let Some(inode) = changes.inode(ino).filter(|inode| inode.links == 0) else { continue };
            let used = changes.parked + u32::try_from(self.parked.len()).unwrap_or(u32::MAX);
            let place =
                place.filter(|place| used < place.places && !inode.born).ok_or(Reason::Deleted)?;
            let (image, end) = park::image(&inode.image).ok_or(Reason::Deleted)?;
            self.parked.insert(ino, (image, end.max(inode.ranges.end())));
            let name = Name { dir: place.dir, name: park::name(ino).into() };
            self.names.push((name, Change { recorded: None, current: Some(ino) }));
        }
        Ok(())
    }

    /// Names that each inode of the closure has before it.
    fn count(&self, changes: &Changes) -> Result<Map<u32, u32>, Reason> {
        let mut links = Map::default();
        for &ino in &self.inodes {
            // Whoever changes a name writes the inode; if somebody did not, nobody knows what it
            // should be.
            let inode = changes.inode(ino).ok_or(Reason::Failed)?;
            let mut before = i64::from(inode.links);
            for (_, change) in changes.names.of(ino) {
                before += i64::from(change.recorded == Some(ino))
                    - i64::from(change.current == Some(ino));
            }
            if !inode.born && !self.parked.contains_key(&ino) && !inode.ranges.is_sayable() {
                return Err(Reason::HoleInFront);
            }
            let right = if inode.born { before == 0 } else { before > 0 };
            if !right || inode.links == 0 && !self.parked.contains_key(&ino) {
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
            if let Some((image, _)) = self.parked.get(&ino) {
                out.push(FcRecord::Inode { ino, image: image.clone() });
            } else if let Some(inode) = changes.inode(ino) {
                out.push(FcRecord::Inode { ino, image: inode.image.clone() });
            }
        };
        let ranges = |ino: u32, out: &mut Vec<FcRecord>| {
            if let Some(&(_, end)) = self.parked.get(&ino) {
                if end > 0 {
                    out.push(FcRecord::DelRange { ino, block: 0, len: end });
                }
            } else if let Some(inode) = changes.inode(ino) {
                inode.ranges.records(ino, out);
            }
        };
        let is_born = |ino: u32| changes.inode(ino).is_some_and(|inode| inode.born);
        // An inode must be there before its first name.
        let mut unnamed = Set::<u32>::default();
        for &ino in self.inodes.iter().filter(|ino| is_born(**ino)) {
            image(ino, &mut out);
            ranges(ino, &mut out);
            unnamed.insert(ino);
        }
        for step in steps {
            #[cfg(feature = "planted-bugs")]
            if matches!(step, Step::Unlink(..))
                && extol_jbd2::planted::has(extol_jbd2::planted::Bug::UnlinkForgotten)
            {
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
            changes.forget(*ino);
        }
        for (name, _) in self.names.iter().filter(|(name, _)| self.known_names.contains(name)) {
            changes.forget_name(name);
        }
        changes.parked += u32::try_from(self.parked.len()).unwrap_or(u32::MAX);
    }
}
