//! Ids come that the quota files do not know, while only the end of the volume has room: blocks of
//! those files lie there, and move when it becomes smaller.

use extol::vfs::Fallocate;
use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct ShrinkOwners;

/// Files of a round.
const FILES: u32 = 24;
/// Thousandths of its size that the volume has while the front is filled.
const SMALL: u64 = 600;
/// Bytes of a file that fills the front.
const BALLAST: usize = 512 << 10;

impl Workload for ShrinkOwners {
    fn name(&self) -> &'static str {
        "shrink-owners"
    }

    fn about(&self) -> &'static str {
        "the volume becomes smaller, and quota files move"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.small_groups && variant.has_feature("quota")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            // All room of a small volume is taken: what comes when it has grown lies at the end.
            actor.resize(SMALL)?;
            let ballast = fill(actor)?;
            actor.resize(1000)?;
            owners(actor, round)?;
            for file in ballast {
                actor.unlink(&file)?;
            }
            if round % 2 == 0 {
                actor.syncfs()?;
            }
            let per_mille = actor.rng().random_range(SMALL - 100..=SMALL);
            actor.resize(per_mille)?;
            change(actor, round)?;
            if round % 3 == 2 {
                actor.resize(1000)?;
            } else {
                actor.grow(4000)?;
                change(actor, round)?;
            }
        }
        actor.syncfs()
    }

    fn quick(&self) -> usize {
        3
    }
}

/// Takes all room; which files have it.
fn fill(actor: &mut Actor) -> Done<Vec<String>> {
    let mut files = Vec::new();
    let mut bytes = BALLAST;
    while bytes >= 1024 {
        let file = format!("ballast{}", files.len());
        if !actor.create(&file)? {
            break;
        }
        files.push(file.clone());
        let how = Fallocate::Allocate { keep_size: true };
        if !actor.allocate(&file, how, 0, bytes)? {
            bytes /= 2;
        }
    }
    actor.syncfs()?;
    Ok(files)
}

/// New files of owners that had nothing before, and without those of the round before.
fn owners(actor: &mut Actor, round: usize) -> Done {
    for nr in 0..FILES {
        if let Some(before) = round.checked_sub(1) {
            let old = file(before, nr);
            if nr % 3 != 0 && actor.tree().get(&old).is_some() {
                actor.unlink(&old)?;
            }
        }
        let new = file(round, nr);
        if actor.create(&new)? {
            let id = 1000 + round as u32 * 1000 + nr;
            actor.change_owners(&new, (id, id + 7, id + 9))?;
            let len = actor.rng().random_range(500..6000);
            actor.append(&new, len)?;
        }
    }
    Ok(())
}

/// Some of these files become longer, or another owner's.
fn change(actor: &mut Actor, round: usize) -> Done {
    for nr in (0..FILES).step_by(4) {
        let path = file(round, nr);
        if actor.tree().get(&path).is_none() {
            continue;
        }
        actor.append(&path, 2000)?;
        if nr % 8 == 0 {
            let id = actor.rng().random_range(1000..1000 + FILES);
            actor.change_owners(&path, (id, id, 7))?;
        }
        if nr == 4 {
            actor.fsync(&path)?;
        }
    }
    Ok(())
}

fn file(round: usize, nr: u32) -> String {
    format!("n{round}.{nr}")
}
