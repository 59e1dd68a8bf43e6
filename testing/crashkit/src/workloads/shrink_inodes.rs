//! Inodes get lower numbers, while files and directories come and go.
//!
//! Directories lie in each other and move, files have names in several of them, and some are
//! removed, so that low numbers are free.

use rand::Rng as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::variant::Variant;

#[derive(Debug)]
pub(super) struct ShrinkInodes;

impl Workload for ShrinkInodes {
    fn name(&self) -> &'static str {
        "shrink-inodes"
    }

    fn about(&self) -> &'static str {
        "inodes get lower numbers"
    }

    fn suits(&self, variant: &Variant) -> bool {
        // (Those have many groups.)
        variant.lazy_tables
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for round in 0..rounds {
            let made = grow(actor, round)?;
            match round % 3 {
                1 if made => actor.fsync(&format!("d{round}"))?,
                0 => actor.syncfs()?,
                _ => {}
            }
            let percent = actor.rng().random_range(20..80);
            actor.renumber(percent)?;
            if made {
                change(actor, round)?;
            }
            if round >= 2 {
                shrink(actor, round - 2)?;
            }
        }
        actor.syncfs()
    }

    fn quick(&self) -> usize {
        8
    }
}

/// A directory with files, and with another directory that has children. False: there is no room
/// for it. (What else finds no room is not there.)
fn grow(actor: &mut Actor, round: usize) -> Done<bool> {
    let dir = format!("d{round}");
    if !actor.mkdir(&dir)? {
        return Ok(false);
    }
    for nr in 0..6 {
        let file = format!("{dir}/a name that takes its room {nr}");
        if !actor.create(&file)? {
            continue;
        }
        if nr % 2 == 0 {
            actor.append(&file, 1500)?;
        }
        if nr % 3 == 0 {
            actor.set_xattr(&file, &[7; 200])?;
        }
        actor.link(&file, &format!("link {round} {nr}"))?;
    }
    actor.symlink(&"x/".repeat(60), &format!("{dir}/to"))?;
    if actor.mkdir(&format!("{dir}/inner"))? {
        for nr in 0..2 {
            if actor.mkdir(&format!("{dir}/inner/{nr}"))? {
                actor.create(&format!("{dir}/inner/{nr}/file"))?;
            }
        }
    }
    Ok(true)
}

/// What has moved is used.
fn change(actor: &mut Actor, round: usize) -> Done {
    let is_there = |actor: &Actor, path: &str| actor.tree().get(path).is_some();
    let file = format!("d{round}/a name that takes its room 0");
    if is_there(actor, &file) {
        actor.append(&file, 700)?;
        if round.is_multiple_of(2) {
            actor.fsync(&file)?;
        }
    }
    let inner = format!("d{round}/inner");
    if is_there(actor, &format!("{inner}/1")) {
        actor.create(&format!("{inner}/1/new"))?;
    }
    if round > 0 {
        let (from, to) = (format!("{inner}/0"), format!("d{}/inner", round - 1));
        if is_there(actor, &from) && is_there(actor, &to) {
            actor.rename(&from, &format!("{to}/from {round}"))?;
        }
        let link = format!("link {round} 3");
        if is_there(actor, &link) {
            actor.unlink(&link)?;
        }
    }
    Ok(())
}

/// Low numbers become free.
fn shrink(actor: &mut Actor, round: usize) -> Done {
    for nr in [1, 2, 4] {
        let file = format!("d{round}/a name that takes its room {nr}");
        let link = format!("link {round} {nr}");
        for name in [file, link] {
            if actor.tree().get(&name).is_some() {
                actor.unlink(&name)?;
            }
        }
    }
    let name = format!("d{round}/to");
    if actor.tree().get(&name).is_some() {
        actor.unlink(&name)?;
    }
    Ok(())
}
