//! Random mixes of all operations.

use extol::vfs::Fallocate;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use crate::variant::Variant;

pub(super) fn all() -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Mix),
        Box::new(SyncMix),
        Box::new(Threads { share: false }),
        Box::new(Threads { share: true }),
        Box::new(OneFile),
    ]
}

/// One thread, syncs now and then.
#[derive(Debug)]
struct Mix;

impl Workload for Mix {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn about(&self) -> &'static str {
        "all operations at random, a sync now and then"
    }

    fn suits(&self, variant: &Variant) -> bool {
        let own = variant.has_feature("quota") || variant.is_encrypted() || variant.has_spellings();
        own || !variant.lazy_tables && !variant.grows && !variant.small_groups
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        (0..rounds).try_for_each(|_| any(actor, 14))
    }

    fn quick(&self) -> usize {
        160
    }
}

/// One thread, many syncs: many small transactions.
#[derive(Debug)]
struct SyncMix;

impl Workload for SyncMix {
    fn name(&self) -> &'static str {
        "sync-mix"
    }

    fn about(&self) -> &'static str {
        "all operations at random, half of them syncs: the log wraps"
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        (0..rounds).try_for_each(|_| any(actor, 50))
    }

    fn quick(&self) -> usize {
        900
    }
}

/// Several threads and the background services.
#[derive(Debug)]
struct Threads {
    /// In one directory.
    share: bool,
}

impl Workload for Threads {
    fn name(&self) -> &'static str {
        if self.share { "shared" } else { "threads" }
    }

    fn about(&self) -> &'static str {
        if self.share {
            "three threads at the same time in one directory, each with its own names, and the \
                services"
        } else {
            "three threads at the same time, each with its own directory, and the services"
        }
    }

    fn actors(&self) -> usize {
        3
    }

    fn share(&self) -> bool {
        self.share
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        (0..rounds).try_for_each(|_| any(actor, 20))
    }

    fn quick(&self) -> usize {
        60
    }
}

/// Several threads that write the same blocks of the same file.
#[derive(Debug)]
struct OneFile;

impl Workload for OneFile {
    fn name(&self) -> &'static str {
        "one-file"
    }

    fn about(&self) -> &'static str {
        "three threads at the same time in one file, each with bytes of its own in its blocks, and \
            a little of everything else"
    }

    fn actors(&self) -> usize {
        3
    }

    fn has_common(&self) -> bool {
        true
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        for _ in 0..rounds {
            match below(actor, 100) {
                0..=54 => {
                    let (at, len) = (below(actor, 16_000), 1 + below(actor, 1000));
                    actor.write_common(at, len)?;
                }
                55..=89 => {
                    let data_only = below(actor, 2) == 0;
                    actor.sync_common(data_only)?;
                }
                _ => any(actor, 20)?,
            }
        }
        Ok(())
    }

    fn quick(&self) -> usize {
        70
    }
}

/// Largest file.
const MOST: usize = 48 << 10;

fn below(actor: &mut Actor, n: usize) -> usize {
    actor.rng().random_range(0..n.max(1))
}

fn choose(actor: &mut Actor, from: &[String]) -> Option<String> {
    from.choose(actor.rng()).cloned()
}

/// A name that is free, in some directory.
fn free_name(actor: &mut Actor) -> String {
    let mut dirs = actor.tree().paths(|k| *k == Kind::Dir);
    dirs.push(String::new());
    loop {
        let dir = choose(actor, &dirs).unwrap_or_default();
        let nr = below(actor, 60);
        // Long names fill directory blocks.
        let tail = if nr.is_multiple_of(3) {
            "-with-a-name-that-is-quite-long-so-that-blocks-fill"
        } else {
            ""
        };
        let path =
            if dir.is_empty() { format!("n{nr}{tail}") } else { format!("{dir}/n{nr}{tail}") };
        if actor.tree().get(&path).is_none() && path.matches('/').count() < 4 {
            return path;
        }
    }
}

/// One random operation; of a hundred, `syncs` are syncs.
fn any(actor: &mut Actor, syncs: usize) -> Done {
    let tree = actor.tree();
    let files = tree.paths(|k| *k == Kind::File);
    let dirs = tree.paths(|k| *k == Kind::Dir);
    if below(actor, 100) < syncs {
        return sync(actor, &files, &dirs);
    }
    let Some(file) = choose(actor, &files) else {
        let name = free_name(actor);
        return actor.create(&name).map(drop);
    };
    let size = actor.size(&file);
    let crowded = files.len() > 40;
    match below(actor, 100) {
        0..=11 if !crowded => {
            let name = free_name(actor);
            actor.create(&name)?;
            let len = 1 + below(actor, 6000);
            if below(actor, 3) > 0 && actor.tree().get(&name).is_some() {
                actor.append(&name, len)?;
            }
            Ok(())
        }
        12..=30 if size < MOST => {
            let len = 1 + below(actor, 9000);
            actor.append(&file, len).map(drop)
        }
        31..=46 => {
            let at = below(actor, size + 2000);
            let len = 1 + below(actor, 5000);
            actor.write(&file, at, len).map(drop)
        }
        47..=53 => {
            let len = if below(actor, 3) == 0 { 0 } else { below(actor, size + 3000) };
            actor.truncate(&file, len).map(drop)
        }
        54..=60 => {
            let mode = [
                Fallocate::Allocate { keep_size: false },
                Fallocate::Allocate { keep_size: true },
                Fallocate::PunchHole,
                Fallocate::ZeroRange { keep_size: false },
            ][below(actor, 4)];
            let at = below(actor, size + 1000);
            let len = 1 + below(actor, 12_000);
            actor.allocate(&file, mode, at, len).map(drop)
        }
        61..=68 => {
            let to = if below(actor, 2) == 0 { choose(actor, &files) } else { None };
            let to = to.unwrap_or_else(|| free_name(actor));
            actor.rename(&file, &to).map(drop)
        }
        69..=71 if !dirs.is_empty() => {
            let (from, to) = (choose(actor, &dirs).unwrap_or_default(), free_name(actor));
            if to.starts_with(&format!("{from}/")) {
                Ok(())
            } else {
                actor.rename(&from, &to).map(drop)
            }
        }
        72..=75 => {
            let to = free_name(actor);
            actor.link(&file, &to).map(drop)
        }
        76..=78 if dirs.len() < 8 => {
            let name = free_name(actor);
            actor.mkdir(&name).map(drop)
        }
        79..=81 => match dirs.iter().find(|d| actor.tree().is_empty_dir(d)) {
            Some(dir) => actor.rmdir(dir).map(drop),
            None => Ok(()),
        },
        82..=83 => {
            let name = free_name(actor);
            let long = if below(actor, 2) == 0 { "x".repeat(90) } else { "short".to_owned() };
            actor.symlink(&long, &name).map(drop)
        }
        84..=85 => match choose(actor, &tree.paths(|k| matches!(k, Kind::Symlink(_)))) {
            Some(link) => actor.unlink(&link).map(drop),
            None => Ok(()),
        },
        _ => actor.unlink(&file).map(drop),
    }
}

fn sync(actor: &mut Actor, files: &[String], dirs: &[String]) -> Done {
    match below(actor, 12) {
        0 => actor.syncfs(),
        1 | 2 => {
            let dir = choose(actor, dirs).unwrap_or_default();
            actor.fsync(&dir)
        }
        n => match choose(actor, files) {
            Some(file) if n < 6 => actor.fdatasync(&file),
            Some(file) => actor.fsync(&file),
            None => actor.syncfs(),
        },
    }
}
