//! Everything moves: from behind a limit in front of it, and files into fewer pieces.
//!
//! In between files of all shapes are written, some of them piece by piece in turn, so that there
//! is something to move, and the blocks that were left are used again at once.

use extol::vfs::Fallocate;
use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct ShrinkData;

impl Workload for ShrinkData {
    fn name(&self) -> &'static str {
        "shrink-data"
    }

    fn about(&self) -> &'static str {
        "blocks move in front of a limit, and files into fewer pieces"
    }

    fn suits(&self, variant: &Variant) -> bool {
        let small = variant.lazy_tables || variant.grows || variant.small_groups;
        // Blocks of quota files do not move.
        !small && !variant.has_feature("quota")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        actor.mkdir("d")?;
        for round in 0..rounds {
            pieces(actor, round)?;
            others(actor, round)?;
            if round % 2 == 0 {
                actor.syncfs()?;
            }
            let percent = actor.rng().random_range(30..95);
            actor.vacate(percent)?;
            let file = format!("pieces{}", round % 2);
            actor.defragment(&file)?;
            // What was left is free, but not before the move is durable.
            let new = format!("new{}", round % 3);
            if actor.tree().get(&new).is_none() {
                actor.create(&new)?;
            }
            let len = actor.rng().random_range(20_000..150_000);
            actor.write(&new, 0, len)?;
            if round % 3 == 0 {
                actor.fsync(&new)?;
            }
            if round % 3 == 2 {
                actor.unlink(&new)?;
            }
        }
        actor.syncfs()
    }

    fn quick(&self) -> usize {
        8
    }
}

/// Two files that grow in turn, and are durable: they lie in pieces.
fn pieces(actor: &mut Actor, round: usize) -> Done {
    for step in 0..8 {
        for nr in 0..2 {
            let file = format!("pieces{nr}");
            if actor.tree().get(&file).is_none() {
                actor.create(&file)?;
            }
            let len = 3000 + 700 * ((round + step) % 3);
            actor.append(&file, len)?;
            if step % 2 == 0 {
                actor.fsync(&file)?;
            }
        }
    }
    let file = format!("pieces{}", round % 2);
    match round % 4 {
        1 => drop(actor.allocate(&file, Fallocate::PunchHole, 9000, 12_000)?),
        3 => drop(actor.truncate(&file, 30_000)?),
        _ => {}
    }
    Ok(())
}

/// Directories that grow, long links, attributes that are shared, blocks that are only allocated,
/// and a tree of extents.
fn others(actor: &mut Actor, round: usize) -> Done {
    for nr in 0..6 {
        let file = format!("d/a file with a long name {round} {nr}");
        if actor.create(&file)? && nr % 3 == 0 {
            actor.set_xattr(&file, &[7; 400])?;
            actor.append(&file, 1500)?;
        }
    }
    let link = format!("link{round}");
    actor.symlink(&"x/".repeat(60), &link)?;
    let sparse = format!("sparse{}", round % 2);
    if actor.tree().get(&sparse).is_none() {
        actor.create(&sparse)?;
    }
    for nr in 0..6 {
        let at = (round * 6 + nr) * 8192;
        actor.write(&sparse, at, 2000)?;
    }
    actor.allocate(&sparse, Fallocate::Allocate { keep_size: true }, 100_000, 60_000)?;
    if round > 3 {
        actor.unlink(&format!("link{}", round - 4))?;
    }
    Ok(())
}
