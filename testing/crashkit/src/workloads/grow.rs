//! The volume grows: by parts of a group, by groups, and into descriptor blocks that it did not
//! have. In between, or at the same time, files are written into what is new.

use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Grow {
    pub actors: usize,
}

impl Workload for Grow {
    fn name(&self) -> &'static str {
        if self.actors == 1 { "grow" } else { "grow-mounted" }
    }

    fn about(&self) -> &'static str {
        if self.actors == 1 {
            "the volume grows, and its new blocks are used"
        } else {
            "the volume grows while it is written to"
        }
    }

    fn actors(&self) -> usize {
        self.actors
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.grows
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            // Large ones lie in the new groups soon, and names need new inodes there.
            let file = format!("file{}", round % 5);
            if actor.tree().get(&file).is_some() {
                actor.unlink(&file)?;
            }
            actor.create(&file)?;
            let len = actor.rng().random_range(1000..200_000);
            actor.write(&file, 0, len)?;
            if round % 2 == 0 {
                actor.fsync(&file)?;
            }
            let dir = format!("dir{round}");
            if actor.mkdir(&dir)? {
                let name = format!("{dir}/name");
                actor.create(&name)?;
                actor.fsync(&name)?;
            }
            let blocks = match round % 3 {
                0 => actor.rng().random_range(1..300),
                1 => actor.rng().random_range(300..1500),
                _ => actor.rng().random_range(1000..4000),
            };
            actor.grow(blocks / self.actors as u64)?;
            if round % 4 == 3 {
                actor.syncfs()?;
            }
        }
        actor.syncfs()
    }

    fn quick(&self) -> usize {
        9
    }
}
