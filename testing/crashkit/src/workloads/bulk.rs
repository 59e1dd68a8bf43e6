//! Large pieces of data, which go to the device without becoming pages.
//!
//! They fall on all that can be there: nothing (the file grows), written blocks, blocks that were
//! only allocated, a hole; a block in part at the end; and space that a file left a moment ago.
//! Between them are small writes into the same blocks, and fsyncs of these files and of others.

use extol::vfs::Fallocate;

use super::Workload;
use crate::actor::{Actor, Done};

/// What goes to the device at once, whatever the size of a block.
const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Bulk;

impl Workload for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }

    fn about(&self) -> &'static str {
        "large pieces straight to the device"
    }

    fn run(&self, actor: &mut Actor, rounds: usize) -> Done {
        work(actor, rounds)
    }

    fn quick(&self) -> usize {
        16
    }
}

fn work(actor: &mut Actor, rounds: usize) -> Done {
    actor.create("note")?;
    for round in 0..rounds {
        let file = format!("large{}", round % 3);
        if actor.tree().get(&file).is_none() {
            actor.create(&file)?;
        }
        one(actor, &file, round)?;
        // A small write into what was large.
        let middle = actor.size(&file) / 2;
        actor.write(&file, middle, 700)?;
        match round % 4 {
            0 => actor.fsync(&file)?,
            1 => actor.fdatasync(&file)?,
            2 => {
                actor.append("note", 90)?;
                actor.fsync("note")?;
            }
            _ => {}
        }
        match round % 7 {
            3 => drop(actor.truncate(&file, 5000)?),
            6 => drop(actor.unlink(&file)?),
            _ => {}
        }
    }
    actor.syncfs()
}

/// A large piece, and what has to be there for it.
fn one(actor: &mut Actor, file: &str, round: usize) -> Done {
    let len = PIECE + round % 3 * 20_480 + round % 2 * 777;
    let end = actor.size(file).next_multiple_of(4096);
    let at = match round % 5 {
        // Behind the end, of which the last block may be full in part.
        0 => end,
        // Over what is there.
        1 => 0,
        // Where there are blocks, but nothing was written.
        2 => {
            actor.allocate(
                file,
                Fallocate::Allocate { keep_size: round.is_multiple_of(2) },
                end,
                PIECE,
            )?;
            end
        }
        // Behind a hole.
        3 => end + (64 << 10),
        // Over part of what is there, a hole, and on.
        _ => {
            actor.allocate(file, Fallocate::PunchHole, end / 2, 30_000)?;
            (end / 2).next_multiple_of(4096)
        }
    };
    actor.write(file, at, len).map(drop)
}
