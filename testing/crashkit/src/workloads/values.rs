//! Attributes whose values lie in inodes of their own, or fit where their names are: set, replaced,
//! shared by files and by blocks, removed, and deleted with their files.
//!
//! What they hold is not part of the model. The checker counts the users of every value, and
//! compares its bytes with its checksum.

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Values;

const NAMES: [&str; 4] = ["user.a", "user.b", "trusted.c", "security.d"];
/// Most files at a time.
const MOST: usize = 12;

impl Workload for Values {
    fn name(&self) -> &'static str {
        "values"
    }

    fn about(&self) -> &'static str {
        "large attributes come, go and are shared"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.has_feature("ea_inode")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            let files = actor.tree().paths(|kind| *kind == Kind::File);
            let chance = actor.rng().random_range(0..100);
            match files.choose(actor.rng()).cloned() {
                Some(file) if chance < 65 || files.len() >= MOST && chance < 75 => {
                    change(actor, &file)?;
                }
                Some(file) if chance < 75 || files.len() >= MOST && chance < 85 => {
                    actor.unlink(&file)?;
                }
                Some(file) if chance < 80 => {
                    actor.append(&file, 700)?;
                }
                Some(file) if chance < 87 => actor.fsync(&file)?,
                _ if chance < 90 => actor.syncfs()?,
                _ => {
                    actor.create(&format!("f{round}"))?;
                }
            }
        }
        Ok(())
    }

    fn quick(&self) -> usize {
        160
    }
}

/// Changes an attribute: few contents, so that files have the same ones.
fn change(actor: &mut Actor, file: &str) -> Done {
    let rng = actor.rng();
    let name = NAMES[rng.random_range(0..NAMES.len())];
    let len = [20, 300, 900, 3000, 9000, 20_000][rng.random_range(0..6)];
    let value = vec![rng.random_range(1..3u8); len];
    let set = rng.random_bool(0.75);
    actor.change_xattr(file, name, set.then_some(&value))
}
