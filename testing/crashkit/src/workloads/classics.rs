//! What programs do to keep their data safe.

use super::Workload;
use crate::actor::{Actor, Done};
use crate::model::Kind;
use rand::Rng as _;

type Run = fn(&mut Actor, usize) -> Done;

/// A load that is one function.
#[derive(Debug)]
struct Classic {
    name: &'static str,
    about: &'static str,
    quick: usize,
    run: Run,
}

impl Workload for Classic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        (self.run)(actor, rounds)
    }

    fn quick(&self) -> usize {
        self.quick
    }
}

pub(super) fn all() -> Vec<Box<dyn Workload>> {
    let classic = |name, about, quick, run: Run| {
        Box::new(Classic { name, about, quick, run }) as Box<dyn Workload>
    };
    vec![
        classic(
            "atomic-rename",
            "write a new file, fsync, rename over the old one, fsync the directory",
            12,
            atomic_rename,
        ),
        classic("log-append", "append records to a log, fsync or fdatasync each", 25, log_append),
        classic(
            "rollback-journal",
            "SQLite's: save pages, fsync, overwrite in place, fsync, unlink",
            10,
            rollback_journal,
        ),
        classic(
            "wal",
            "SQLite's: append to the log, fdatasync, copy into the database now and then",
            15,
            wal,
        ),
        classic(
            "maildir",
            "write in tmp, fsync, link into new, unlink, fsync the directories",
            12,
            maildir,
        ),
        classic("new-file", "create in a new directory, fsync file and directory", 15, new_file),
        classic(
            "recycle",
            "metadata blocks are freed and come back as file data: revokes",
            24,
            recycle,
        ),
        classic("orphans", "unlinked while open, and large files cut and removed", 10, orphans),
        classic("fill", "transactions of many blocks until the log wraps", 45, fill),
    ]
}

fn atomic_rename(actor: &mut Actor, rounds: usize) -> Done {
    actor.create("config")?;
    actor.write("config", 0, 3000)?;
    actor.fsync("config")?;
    actor.fsync("")?;
    for round in 0..rounds {
        actor.create("config.tmp")?;
        actor.write("config.tmp", 0, 1500 + round * 333 % 4000)?;
        actor.fsync("config.tmp")?;
        actor.rename("config.tmp", "config")?;
        if round % 3 > 0 {
            actor.fsync("")?;
        }
    }
    Ok(())
}

fn log_append(actor: &mut Actor, rounds: usize) -> Done {
    actor.create("log")?;
    for round in 0..rounds {
        let len = 40 + round * 211 % 1500;
        actor.append("log", len)?;
        match round % 4 {
            0 => actor.fsync("log")?,
            3 => {}
            _ => actor.fdatasync("log")?,
        }
    }
    Ok(())
}

/// Page size of the databases.
const PAGE: usize = 1024;
const PAGES: usize = 24;

fn database(actor: &mut Actor) -> Done {
    actor.create("db")?;
    actor.write("db", 0, PAGE * PAGES)?;
    actor.fsync("db")?;
    actor.fsync("")
}

fn rollback_journal(actor: &mut Actor, rounds: usize) -> Done {
    database(actor)?;
    for _ in 0..rounds {
        let pages: Vec<usize> = (0..3).map(|_| actor.rng().random_range(0..PAGES)).collect();
        let old = actor.bytes("db");
        actor.create("db-journal")?;
        for (i, page) in pages.iter().enumerate() {
            let saved = old[page * PAGE..(page + 1) * PAGE].to_vec();
            actor.write_bytes("db-journal", 64 + i * (PAGE + 8), &saved)?;
        }
        actor.fsync("db-journal")?;
        // The header makes the journal valid, behind its contents.
        actor.write("db-journal", 0, 64)?;
        actor.fsync("db-journal")?;
        actor.fsync("")?;
        for page in pages {
            actor.write("db", page * PAGE, PAGE)?;
        }
        actor.fsync("db")?;
        actor.unlink("db-journal")?;
        actor.fsync("")?;
    }
    Ok(())
}

fn wal(actor: &mut Actor, rounds: usize) -> Done {
    database(actor)?;
    actor.create("db-wal")?;
    actor.fsync("db-wal")?;
    actor.fsync("")?;
    let mut at = 0;
    for round in 0..rounds {
        for _ in 0..2 {
            actor.write("db-wal", at, PAGE + 24)?;
            at += PAGE + 24;
        }
        actor.fdatasync("db-wal")?;
        if round % 5 == 4 {
            for _ in 0..4 {
                let page = actor.rng().random_range(0..PAGES);
                actor.write("db", page * PAGE, PAGE)?;
            }
            actor.fdatasync("db")?;
            // From the start again, over the old frames.
            at = 0;
        }
    }
    actor.truncate("db-wal", 0)?;
    actor.fsync("db-wal")
}

fn maildir(actor: &mut Actor, rounds: usize) -> Done {
    for dir in ["tmp", "new", "cur"] {
        actor.mkdir(dir)?;
    }
    actor.fsync("")?;
    for round in 0..rounds {
        let (tmp, new) = (format!("tmp/{round}.host"), format!("new/{round}.host"));
        actor.create(&tmp)?;
        actor.write(&tmp, 0, 500 + round * 777 % 3000)?;
        actor.fsync(&tmp)?;
        if round % 2 == 0 {
            actor.link(&tmp, &new)?;
            actor.unlink(&tmp)?;
        } else {
            actor.rename(&tmp, &new)?;
        }
        actor.fsync("new")?;
        if round % 3 == 2 {
            actor.rename(&new, &format!("cur/{round}.host:2,S"))?;
            actor.fsync("cur")?;
        }
        if round % 5 == 4 {
            let read = actor.tree().paths(|k| *k == Kind::File);
            if let Some(old) = read.iter().find(|p| p.starts_with("cur/")) {
                actor.unlink(old)?;
                actor.fsync("cur")?;
            }
        }
    }
    Ok(())
}

fn new_file(actor: &mut Actor, rounds: usize) -> Done {
    for round in 0..rounds {
        let dir = format!("d{}", round % 5);
        if actor.tree().get(&dir).is_none() {
            actor.mkdir(&dir)?;
            actor.fsync("")?;
        }
        let file = format!("{dir}/f{round}");
        actor.create(&file)?;
        if round % 2 == 0 {
            actor.append(&file, 700)?;
            actor.fdatasync(&file)?;
        }
        actor.fsync(&dir)?;
    }
    actor.syncfs()
}

fn recycle(actor: &mut Actor, rounds: usize) -> Done {
    // Nearly full, so that what is freed comes back at once.
    actor.create("ballast")?;
    let mut step = 1 << 20;
    while step >= 4096 {
        if !actor.append("ballast", step)? || !room(actor)? {
            step /= 2;
        }
    }
    let end = actor.size("ballast").saturating_sub(40 << 10);
    actor.truncate("ballast", end)?;
    actor.syncfs()?;
    for round in 0..rounds {
        let dir = format!("d{round}");
        if !actor.mkdir(&dir)? {
            continue;
        }
        // Enough names for several blocks.
        for n in 0..18 {
            actor.create(&format!("{dir}/{n}-{}", "y".repeat(120)))?;
        }
        actor.fsync(&dir)?;
        for n in 0..18 {
            let name = format!("{dir}/{n}-{}", "y".repeat(120));
            // (With clusters there may be no space for another block of the directory.)
            if actor.tree().get(&name).is_some() {
                actor.unlink(&name)?;
            }
        }
        actor.rmdir(&dir)?;
        actor.syncfs()?;
        let file = format!("f{}", round % 3);
        if actor.tree().get(&file).is_none() {
            actor.create(&file)?;
        } else {
            actor.truncate(&file, 0)?;
            actor.syncfs()?;
        }
        actor.write(&file, 0, 9000)?;
        actor.fsync(&file)?;
    }
    Ok(())
}

/// False if the volume is full as far as a write of a block can tell.
fn room(actor: &mut Actor) -> Done<bool> {
    actor.syncfs()?;
    actor.create("probe")?;
    let fits = actor.write("probe", 0, 4096)?;
    actor.unlink("probe")?;
    actor.syncfs()?;
    Ok(fits)
}

fn orphans(actor: &mut Actor, rounds: usize) -> Done {
    for round in 0..rounds {
        let (small, large) = (format!("small{round}"), format!("large{}", round % 2));
        actor.create(&small)?;
        actor.append(&small, 3000)?;
        actor.fsync(&small)?;
        actor.hold(&small)?;
        actor.unlink(&small)?;
        actor.write_nameless(5000)?;
        actor.fsync("")?;
        if actor.tree().get(&large).is_none() {
            actor.create(&large)?;
        }
        // With holes, so that the map has many entries: one transaction cannot cut it all.
        for piece in 0..40 {
            actor.write(&large, piece * 7000, 1500)?;
        }
        actor.fsync(&large)?;
        match round % 3 {
            0 => actor.truncate(&large, 10_000)?,
            1 => actor.unlink(&large)?,
            _ => actor.truncate(&large, 0)?,
        };
        if round % 2 == 1 {
            actor.release()?;
        }
        actor.syncfs()?;
    }
    actor.release()
}

fn fill(actor: &mut Actor, rounds: usize) -> Done {
    for round in 0..rounds {
        let dir = format!("d{}", round % 2);
        if actor.tree().get(&dir).is_none() {
            actor.mkdir(&dir)?;
        }
        for n in 0..22 {
            let file = format!("{dir}/{n}-{}", "z".repeat(180));
            if actor.tree().get(&file).is_none() {
                actor.create(&file)?;
                actor.append(&file, 200 + n * 37)?;
            } else if (n + round) % 3 == 0 {
                actor.unlink(&file)?;
            } else {
                actor.append(&file, 900)?;
            }
        }
        actor.syncfs()?;
    }
    Ok(())
}
