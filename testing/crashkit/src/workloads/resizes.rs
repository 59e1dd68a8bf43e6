//! The volume becomes smaller, and as large as before.
//!
//! Files lie in all groups, so that everything has to move that there is; and directories, so that
//! inodes have to.

use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Shrink {
    /// The end lies among inode tables first.
    pub moves_tables: bool,
}

impl Workload for Shrink {
    fn name(&self) -> &'static str {
        if self.moves_tables { "shrink-tables" } else { "shrink" }
    }

    fn about(&self) -> &'static str {
        "the volume becomes smaller, and larger again"
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            files(actor, round)?;
            if round % 2 == 0 {
                actor.syncfs()?;
            }
            // First between the metadata of a group that stays; then so small that the log moves.
            let per_mille = match round % 4 {
                0 if self.moves_tables => 502,
                0 => 730,
                2 => actor.rng().random_range(550..950),
                _ => actor.rng().random_range(250..450),
            };
            actor.resize(per_mille)?;
            let file = format!("after{}", round % 2);
            if actor.tree().get(&file).is_none() {
                actor.create(&file)?;
            }
            actor.append(&file, 5000)?;
            actor.fsync(&file)?;
            if round % 2 == 1 {
                grow_in_steps(actor, round)?;
            }
        }
        actor.syncfs()
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.small_groups && variant.has_far_tables() == self.moves_tables
    }

    fn quick(&self) -> usize {
        6
    }
}

/// As large as at first, by way of some sizes; in between what is new is used, and given back.
fn grow_in_steps(actor: &mut Actor, round: usize) -> Done {
    for step in 0..2 {
        let blocks = actor.rng().random_range(200..2500);
        actor.grow(blocks)?;
        let file = format!("grown{step}");
        if actor.tree().get(&file).is_some() {
            actor.unlink(&file)?;
        }
        if actor.create(&file)? {
            let len = actor.rng().random_range(20_000..200_000);
            actor.append(&file, len)?;
        }
        if (round + step).is_multiple_of(2) {
            actor.fsync(&file)?;
        }
    }
    actor.resize(1000).map(drop)
}

/// New files, and fewer of the old ones: in front of them blocks become free.
fn files(actor: &mut Actor, round: usize) -> Done {
    for nr in 0..5 {
        let dir = format!("d{round}.{nr}");
        if !actor.mkdir(&dir)? {
            continue;
        }
        for step in 0..4 {
            let file = format!("{dir}/f{step}");
            if actor.create(&file)? {
                let len = actor.rng().random_range(1_000..40_000);
                actor.append(&file, len)?;
            }
        }
        let link = format!("{dir}/link");
        actor.symlink(&"x/".repeat(60), &link)?;
    }
    if round > 0 {
        for nr in 0..5 {
            for step in 0..3 {
                let file = format!("d{}.{nr}/f{step}", round - 1);
                if actor.tree().get(&file).is_some() {
                    actor.unlink(&file)?;
                }
            }
        }
    }
    Ok(())
}
