//! Files become files of fs-verity, synced or not before and after, while others are written, made
//! durable and deleted: blocks of trees come from deleted files and go to new ones.

use extol::vfs::EnableVerity;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Verity;

/// Most files at a time.
const MOST: usize = 10;

impl Workload for Verity {
    fn name(&self) -> &'static str {
        "verity"
    }

    fn about(&self) -> &'static str {
        "files become files of fs-verity"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.has_feature("verity")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        (0..rounds).try_for_each(|round| any(actor, round))
    }

    fn quick(&self) -> usize {
        130
    }
}

fn any(actor: &mut Actor, round: usize) -> Done {
    let files = actor.tree().paths(|kind| *kind == Kind::File);
    let Some(file) = files.choose(actor.rng()).cloned() else { return make(actor, round) };
    let is_verified = actor.is_verified(&file);
    match actor.rng().random_range(0..100) {
        0..=24 if files.len() < MOST => make(actor, round),
        0..=19 => actor.unlink(&file).map(drop),
        20..=54 if !is_verified => enable(actor, &file),
        20..=69 if !is_verified => actor.append(&file, 1500).map(drop),
        20..=39 => actor.unlink(&file).map(drop),
        40..=49 => actor.rename(&file, &format!("r{round}")).map(drop),
        50..=92 => actor.fsync(&file),
        _ => actor.syncfs(),
    }
}

fn make(actor: &mut Actor, round: usize) -> Done {
    let name = format!("f{round}");
    if !actor.create(&name)? {
        return Ok(());
    }
    // Nothing, what fits an inode, a block, trees of one level and of two.
    let len = *[0, 50, 900, 5000, 40_000, 90_000].choose(actor.rng()).unwrap_or(&0);
    if len > 0 {
        actor.write(&name, 0, len)?;
    }
    if actor.rng().random_bool(0.4) { actor.fsync(&name) } else { Ok(()) }
}

fn enable(actor: &mut Actor, file: &str) -> Done {
    let algorithm = actor.rng().random_range(1..3);
    let salt = vec![7; actor.rng().random_range(0..33)];
    let how = EnableVerity { algorithm, block_size: 1024, salt, signature: Vec::new() };
    if actor.enable_verity(file, &how)? && actor.rng().random_bool(0.5) {
        actor.fsync(file)?;
    }
    Ok(())
}
