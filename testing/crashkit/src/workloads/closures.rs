//! Loads for fast commits: few names in few directories, so that what one fsync needs is tangled
//! with what others changed, and only some of it is ever synced.

use extol::vfs::Fallocate;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

pub(super) fn all() -> Vec<Box<dyn Workload>> {
    let load = |name, about, actors, quick, kind| {
        Box::new(Closures { name, about, actors, quick, kind }) as Box<dyn Workload>
    };
    vec![
        load(
            "closures",
            "renames, swaps, links and cuts among few names, some of them synced",
            1,
            240,
            Mix::Names,
        ),
        load("closure-threads", "the same by three threads", 3, 90, Mix::Names),
        load("small-files", "many small files, an fsync of some of them only", 1, 120, Mix::Files),
        load(
            "growing",
            "long names that come and go, most of them synced, so that their directories grow all \
                the time",
            1,
            110,
            Mix::Growing,
        ),
        load(
            "switching",
            "as closures, and fast commits are switched off and on",
            1,
            200,
            Mix::Switches,
        ),
        load(
            "ineligible",
            "as closures, with much that no fast commit can say",
            1,
            160,
            Mix::Ineligible,
        ),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mix {
    Names,
    Files,
    Growing,
    Switches,
    Ineligible,
}

#[derive(Debug)]
struct Closures {
    name: &'static str,
    about: &'static str,
    actors: usize,
    quick: usize,
    kind: Mix,
}

/// Directories of the load.
const DIRS: [&str; 3] = ["", "d/", "e/"];

impl Workload for Closures {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn actors(&self) -> usize {
        self.actors
    }

    fn suits(&self, variant: &Variant) -> bool {
        // (There hardly any change may be a fast commit.)
        variant.fast_blocks.is_some() && !variant.has_feature("quota")
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        actor.mkdir("d")?;
        actor.mkdir("e")?;
        actor.syncfs()?;
        for round in 0..rounds {
            match self.kind {
                Mix::Files => small_file(actor, round)?,
                Mix::Growing => growing(actor, round)?,
                Mix::Names => tangle(actor)?,
                Mix::Switches => {
                    tangle(actor)?;
                    if round % 23 == 22 {
                        actor.remount(if round % 2 == 0 {
                            "nofast_commit"
                        } else {
                            "fast_commit"
                        })?;
                    }
                }
                Mix::Ineligible => {
                    if round % 5 == 4 {
                        ineligible(actor)?;
                    } else {
                        tangle(actor)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn quick(&self) -> usize {
        self.quick
    }
}

fn below(actor: &mut Actor, n: usize) -> usize {
    actor.rng().random_range(0..n.max(1))
}

/// One of few names, which may be taken.
fn some_name(actor: &mut Actor) -> String {
    format!("{}{}", DIRS[below(actor, DIRS.len())], below(actor, 7))
}

fn some_file(actor: &mut Actor) -> Option<String> {
    let files = actor.tree().paths(|k| *k == Kind::File);
    files.choose(actor.rng()).cloned()
}

fn is_free(actor: &Actor, name: &str) -> bool {
    actor.tree().get(name).is_none()
}

fn sync(actor: &mut Actor) -> Done {
    match below(actor, 20) {
        0 => actor.syncfs(),
        1..=4 => {
            let dir = DIRS[below(actor, DIRS.len())].trim_end_matches('/');
            actor.fsync(dir)
        }
        n => match some_file(actor) {
            Some(file) if n < 8 => actor.fdatasync(&file),
            Some(file) => actor.fsync(&file),
            None => Ok(()),
        },
    }
}

/// One random operation on few names, or a sync.
fn tangle(actor: &mut Actor) -> Done {
    if below(actor, 100) < 32 {
        return sync(actor);
    }
    let name = some_name(actor);
    let Some(file) = some_file(actor) else { return actor.create(&name).map(drop) };
    let size = actor.size(&file);
    match below(actor, 100) {
        0..=13 => {
            if is_free(actor, &name) {
                actor.create(&name)?;
                if below(actor, 3) > 0 {
                    let len = 1 + below(actor, 3000);
                    actor.append(&name, len)?;
                }
            }
            Ok(())
        }
        14..=24 => {
            // A block gives room for one more name, so the directory does not grow.
            actor.rename(&file, &name).map(drop)
        }
        25..=31 => {
            // Two files change places, or three.
            let (Some(other), spare) = (some_file(actor), "spare") else { return Ok(()) };
            if other == file || actor.tree().get(&other) == actor.tree().get(&file) {
                return Ok(());
            }
            actor.rename(&file, spare)?;
            actor.rename(&other, &file)?;
            actor.rename(spare, &other).map(drop)
        }
        32..=43 => {
            if is_free(actor, &name) {
                actor.link(&file, &name)?;
            }
            Ok(())
        }
        44..=53 => actor.unlink(&file).map(drop),
        54..=58 => {
            // Made and gone before a sync; then another file is synced.
            if is_free(actor, &name) {
                actor.create(&name)?;
                if below(actor, 2) == 0 {
                    actor.append(&name, 700)?;
                }
                actor.unlink(&name)?;
                if actor.tree().get(&file).is_some() {
                    actor.fsync(&file)?;
                }
            }
            Ok(())
        }
        59..=72 => {
            let len = 1 + below(actor, 4000);
            actor.append(&file, len).map(drop)
        }
        73..=80 => {
            let (at, len) = (below(actor, size + 3000), 1 + below(actor, 3000));
            actor.write(&file, at, len).map(drop)
        }
        81..=88 => {
            let len = if below(actor, 3) == 0 { 0 } else { below(actor, size + 3000) };
            actor.truncate(&file, len)?;
            if below(actor, 3) == 0 { actor.fsync(&file) } else { Ok(()) }
        }
        89..=95 => {
            let modes = [
                Fallocate::Allocate { keep_size: false },
                Fallocate::Allocate { keep_size: true },
                Fallocate::PunchHole,
                Fallocate::ZeroRange { keep_size: false },
            ];
            let mode = modes[below(actor, modes.len())];
            let (at, len) = (below(actor, size + 1000), 1 + below(actor, 9000));
            actor.allocate(&file, mode, at, len).map(drop)
        }
        96..=97 => {
            let mode = 0o600 + below(actor, 64) as u16;
            actor.chmod(&file, mode)
        }
        _ => ineligible(actor),
    }
}

/// Something that no fast commit can say.
fn ineligible(actor: &mut Actor) -> Done {
    let nr = below(actor, 3);
    let (dir, link) = (format!("dir{nr}"), format!("link{nr}"));
    match below(actor, 8) {
        0 => {
            if is_free(actor, &dir) {
                actor.mkdir(&dir)?;
                actor.create(&format!("{dir}/inside"))?;
                if below(actor, 2) == 0 {
                    actor.fsync(&format!("{dir}/inside"))?;
                }
            }
            Ok(())
        }
        1 => {
            if !is_free(actor, &dir) {
                let inside = actor.tree().paths(|_| true);
                for path in inside.iter().filter(|p| p.starts_with(&format!("{dir}/"))) {
                    actor.unlink(path)?;
                }
                actor.rmdir(&dir)?;
            }
            Ok(())
        }
        2 => {
            let to = format!("dir{}", below(actor, 3));
            if !is_free(actor, &dir) && is_free(actor, &to) {
                actor.rename(&dir, &to)?;
            }
            Ok(())
        }
        3 => {
            if is_free(actor, &link) {
                actor.symlink(if nr == 0 { "somewhere/else" } else { "0" }, &link)?;
            } else {
                actor.unlink(&link)?;
            }
            Ok(())
        }
        4 | 5 => match some_file(actor) {
            Some(file) => {
                let value = vec![7; 10 + nr * 60];
                actor.set_xattr(&file, &value)
            }
            None => Ok(()),
        },
        _ => match some_file(actor) {
            // Open while its last name goes.
            Some(file) => {
                actor.hold(&file)?;
                actor.unlink(&file)?;
                actor.write_nameless(2000)?;
                if below(actor, 2) == 0 { actor.release() } else { Ok(()) }
            }
            None => Ok(()),
        },
    }
}

/// Files without a sync between files with one; numbers of inodes and names come back.
fn small_file(actor: &mut Actor, round: usize) -> Done {
    let dir = DIRS[round % DIRS.len()];
    let name = format!("{dir}f{}", round % 40);
    if is_free(actor, &name) {
        actor.create(&name)?;
        let len = 100 + round * 397 % 5000;
        actor.append(&name, len)?;
    } else if round.is_multiple_of(4) {
        actor.unlink(&name)?;
    } else {
        // As editors do.
        let temporary = format!("{dir}new");
        actor.create(&temporary)?;
        actor.append(&temporary, 900)?;
        if !round.is_multiple_of(3) {
            actor.fsync(&temporary)?;
        }
        actor.rename(&temporary, &name)?;
    }
    match round % 7 {
        0 | 3 if actor.tree().get(&name).is_some() => actor.fsync(&name),
        5 => actor.fsync(dir.trim_end_matches('/')),
        _ => Ok(()),
    }
}

/// Names so long that a few of them fill a block.
fn growing(actor: &mut Actor, round: usize) -> Done {
    let dir = DIRS[round % DIRS.len()];
    let len = 60 + below(actor, 3) * 60;
    let name = format!("{dir}{round:0>len$}");
    if !actor.create(&name)? {
        // No inode is left, in a long run: some go.
        for _ in 0..20 {
            if let Some(file) = some_file(actor) {
                actor.unlink(&file)?;
            }
        }
        return actor.syncfs();
    }
    if round.is_multiple_of(3) {
        actor.append(&name, 500)?;
    }
    match below(actor, 10) {
        0 => actor.fsync(dir.trim_end_matches('/')),
        1 => {
            // The first fast commit behind a full one, of several blocks: what was unlinked before
            // the full commit leaves room for the names, so no block is added to the directory.
            let mut names = Vec::new();
            for n in 0..below(actor, 9) {
                let name = format!("{dir}b{n}{round:0>len$}");
                if actor.create(&name)? {
                    names.push(name);
                }
            }
            for name in &names {
                actor.unlink(name)?;
            }
            actor.syncfs()?;
            for name in &names {
                actor.create(name)?;
            }
            actor.fsync(dir.trim_end_matches('/'))
        }
        2 => match some_file(actor) {
            Some(file) => {
                actor.unlink(&file)?;
                actor.fsync(dir.trim_end_matches('/'))
            }
            None => Ok(()),
        },
        3 => match some_file(actor) {
            Some(file) => actor.rename(&file, &format!("{dir}{round:a>len$}")).map(drop),
            None => Ok(()),
        },
        4 => Ok(()),
        _ => actor.fsync(&name),
    }
}
