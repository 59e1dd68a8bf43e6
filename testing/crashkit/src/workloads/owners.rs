//! Files of many owners: made, written, given to others, with attributes, directories that hand
//! down their project, files without a name; ids that the quota files do not know yet, so that
//! these grow.
//!
//! Owners are not part of the model. The checker counts what all inodes use, and compares that with
//! the quota files.

use extol::vfs::Fallocate;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct Owners;

/// Most files at a time.
const MOST: usize = 20;
/// Largest file, about.
const LARGE: usize = 40_000;

impl Workload for Owners {
    fn name(&self) -> &'static str {
        "owners"
    }

    fn about(&self) -> &'static str {
        "files of many owners, groups and projects, old and new"
    }

    fn suits(&self, variant: &Variant) -> bool {
        variant.has_feature("quota")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        actor.mkdir("p")?;
        actor.hand_down_project("p", 7)?;
        (0..rounds).try_for_each(|round| any(actor, round))
    }

    fn quick(&self) -> usize {
        200
    }
}

/// One of a few ids, seldom one that has owned nothing before.
fn id(actor: &mut Actor, round: usize) -> u32 {
    match actor.rng().random_range(0..12) {
        0 => 100_000 + round as u32 * 70_001,
        n => [0, 7, 1000, 1001][n % 4],
    }
}

fn any(actor: &mut Actor, round: usize) -> Done {
    let files = actor.tree().paths(|kind| *kind == Kind::File);
    let chance = actor.rng().random_range(0..100);
    let Some(file) = files.choose(actor.rng()).cloned() else { return make(actor, round) };
    let size = actor.size(&file);
    match chance {
        0..=17 if files.len() < MOST => make(actor, round),
        0..=29 => actor.unlink(&file).map(drop),
        30..=44 => {
            let owners = (id(actor, round), id(actor, round), id(actor, round));
            actor.change_owners(&file, owners)
        }
        45..=54 if size < LARGE => {
            let len = actor.rng().random_range(1..9000);
            actor.append(&file, len).map(drop)
        }
        55..=66 if size > 0 => overwrite(actor, &file, size),
        67..=71 => {
            let len = actor.rng().random_range(0..=size);
            actor.truncate(&file, len).map(drop)
        }
        72..=75 => {
            let (at, len) =
                (actor.rng().random_range(0..LARGE), actor.rng().random_range(1..12_000));
            let mode = match actor.rng().random_bool(0.5) {
                true => Fallocate::Allocate { keep_size: true },
                false => Fallocate::PunchHole,
            };
            actor.allocate(&file, mode, at, len).map(drop)
        }
        76..=79 => {
            let len = [30, 700, 5000][actor.rng().random_range(0..3)];
            let value = vec![actor.rng().random_range(1..3u8); len];
            actor.change_xattr(&file, "user.a", (len > 30).then_some(&value))
        }
        80..=82 => {
            actor.hold(&file)?;
            actor.unlink(&file)?;
            actor.write_nameless(2000)?;
            actor.release()
        }
        83..=86 => actor.syncfs(),
        _ => actor.fsync(&file),
    }
}

/// What leaves the usage as it is: once it is durable, a fast commit may hold the next change.
fn overwrite(actor: &mut Actor, file: &str, size: usize) -> Done {
    for _ in 0..actor.rng().random_range(1..4) {
        let at = actor.rng().random_range(0..size);
        actor.write(file, at, (size - at).min(3000))?;
        if actor.rng().random_bool(0.6) {
            actor.fsync(file)?;
        }
    }
    Ok(())
}

/// A file, a link or a directory with an owner of its own.
fn make(actor: &mut Actor, round: usize) -> Done {
    let below = if actor.rng().random_bool(0.4) { "p/" } else { "" };
    let path = format!("{below}n{round}");
    let done = match actor.rng().random_range(0..10) {
        0 => actor.symlink(&"x".repeat(90), &path)?,
        1 => actor.mkdir(&path)?,
        _ => actor.create(&path)? && actor.append(&path, 3000)?,
    };
    let project = if below.is_empty() { id(actor, round) } else { 7 };
    let owners = (id(actor, round), id(actor, round), project);
    if done { actor.change_owners(&path, owners) } else { Ok(()) }
}
