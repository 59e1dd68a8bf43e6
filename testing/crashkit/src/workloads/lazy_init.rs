//! Inode tables are zeroed while inodes are made and removed in them.

use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

/// One table after the other, with other work between them, and with and without commits in
/// between.
#[derive(Debug)]
pub(super) struct LazyInit;

impl Workload for LazyInit {
    fn name(&self) -> &'static str {
        "lazy-init"
    }

    fn about(&self) -> &'static str {
        "inode tables are zeroed while inodes come and go"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.lazy_tables
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            // Directories spread over the groups, and their files follow.
            let dir = format!("d{round}");
            if !actor.mkdir(&dir)? {
                // No inode is left, in a long run.
                break;
            }
            let files = actor.rng().random_range(2..9);
            for file in 0..files {
                let name = format!("{dir}/f{file}");
                if actor.create(&name)? && file % 3 == 0 {
                    actor.append(&name, 1500)?;
                }
            }
            if round % 2 == 0 {
                actor.zero_table()?;
            }
            let first = format!("{dir}/f1");
            if actor.tree().get(&first).is_some() {
                actor.unlink(&first)?;
            }
            match round % 3 {
                0 => actor.fsync(&dir)?,
                1 => actor.syncfs()?,
                _ => {}
            }
            if round % 4 == 3 {
                actor.zero_table()?;
            }
        }
        actor.syncfs()
    }

    fn quick(&self) -> usize {
        18
    }
}
