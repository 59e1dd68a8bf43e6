//! Loads.
//!
//! A [`Workload`] is a program for one or more [`Actor`]s. It works through the actors' methods
//! only, so all of it is in their histories. With one actor the run is the same for the same seed;
//! with several they run at the same time.

mod bulk;
mod classics;
mod closures;
mod grow;
mod lazy_init;
mod mixes;
mod owners;
mod resizes;
mod shrink_data;
mod shrink_inodes;
mod shrink_owners;
mod spellings;
mod values;
mod verity;

use crate::actor::{Actor, Done};
use crate::variant::Variant;

/// A load.
pub trait Workload: Send + Sync + std::fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it does, in a few words.
    fn about(&self) -> &'static str;

    /// How many work at the same time, each in a directory of its own. With one it is the whole
    /// volume.
    fn actors(&self) -> usize {
        1
    }

    /// True if they work in one directory, each with names of its own.
    fn share(&self) -> bool {
        false
    }

    /// True if there is a [common](crate::model::Common) file, which all write.
    fn has_common(&self) -> bool {
        false
    }

    /// The work of one actor: `rounds` says how much.
    ///
    /// # Errors
    /// If the file system refused what it must do.
    fn run(&self, actor: &mut Actor, rounds: usize) -> Done;

    /// True if a sweep over all volumes should try this one: volumes that are there for one load
    /// are of no use to others.
    fn suits(&self, variant: &Variant) -> bool {
        !variant.lazy_tables
            && !variant.grows
            && !variant.small_groups
            && !variant.has_feature("quota")
            && !variant.is_encrypted()
            && !variant.has_spellings()
            && !variant.has_feature("verity")
    }

    /// Rounds of a quick run: so many that the log wraps where that is the point.
    fn quick(&self) -> usize;
}

/// Every load.
#[must_use]
pub fn all() -> Vec<Box<dyn Workload>> {
    let mut list = mixes::all();
    list.extend(classics::all());
    list.push(Box::new(bulk::Bulk));
    list.push(Box::new(lazy_init::LazyInit));
    list.extend(closures::all());
    list.push(Box::new(shrink_data::ShrinkData));
    list.push(Box::new(grow::Grow { actors: 1 }));
    list.push(Box::new(grow::Grow { actors: 2 }));
    list.push(Box::new(resizes::Shrink { moves_tables: false }));
    list.push(Box::new(resizes::Shrink { moves_tables: true }));
    list.push(Box::new(shrink_inodes::ShrinkInodes));
    list.push(Box::new(shrink_owners::ShrinkOwners));
    list.push(Box::new(values::Values));
    list.push(Box::new(owners::Owners));
    list.push(Box::new(spellings::Spellings));
    list.push(Box::new(verity::Verity));
    list
}

/// The load of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Workload>> {
    all().into_iter().find(|w| w.name() == name)
}
