//! The operations of a tester, and how the next one is chosen.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::{FallocateFlags, RenameFlags};

use super::model::Model;

/// Files stay below this size, so that the model stays small.
const MAX_SIZE: u64 = 200_000;
/// And trees below this number of names.
const MAX_NAMES: usize = 250;

/// One operation; paths are below the tester's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub enum Op {
    Create {
        path: String,
        mode: u32,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        len: usize,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        flags: RenameFlags,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        seed: u64,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Write {
        path: String,
        at: u64,
        len: usize,
        seed: u64,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        path: String,
        mode: FallocateFlags,
        at: u64,
        len: u64,
    },
    Read {
        path: String,
        at: u64,
        len: usize,
    },
    List {
        path: String,
    },
    /// Keeps a file open, whatever happens to its name.
    Hold {
        path: String,
    },
    WriteHeld {
        n: usize,
        at: u64,
        len: usize,
        seed: u64,
    },
    ReadHeld {
        n: usize,
        at: u64,
        len: usize,
    },
    Release {
        n: usize,
    },
    Fsync {
        path: String,
    },
    Sync,
    Remount,
    Crash,
}

/// Bytes of a value or of a write; never zero.
pub(super) fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes.iter_mut().for_each(|b| *b |= 1);
    bytes
}

/// Mostly something that exists, sometimes something that does not.
fn some_path(rng: &mut SmallRng, paths: &[(String, usize)], model: &Model) -> String {
    let (path, id) = &paths[rng.random_range(0..paths.len())];
    if !path.is_empty() && (model.is_link(*id) || rng.random_range(0..3) > 0) {
        return path.clone();
    }
    let name = match rng.random_range(0..8) {
        0 => format!("{}{}", "long-".repeat(rng.random_range(1..40)), rng.random_range(0..4)),
        _ => format!("n{}", rng.random_range(0..14)),
    };
    // Not too deep.
    if path.is_empty() || path.matches('/').count() > 4 { name } else { format!("{path}/{name}") }
}

fn offset(rng: &mut SmallRng) -> u64 {
    match rng.random_range(0..4) {
        0 => 0,
        1 => rng.random_range(0..200),
        2 => rng.random_range(0..40u64) * 1024,
        _ => rng.random_range(0..MAX_SIZE / 2),
    }
}

fn length(rng: &mut SmallRng) -> u64 {
    match rng.random_range(0..4) {
        0 => rng.random_range(1..150),
        1 => rng.random_range(1..10u64) * 1024,
        2 => rng.random_range(1..5000),
        _ => rng.random_range(1..MAX_SIZE / 4),
    }
}

/// The next operation. Once a tree has many names, most go again.
pub(super) fn next(rng: &mut SmallRng, model: &Model, held: usize) -> Op {
    let paths = model.paths();
    let mut path = some_path(rng, &paths, model);
    let other = some_path(rng, &paths, model);
    let seed = rng.next_u64();
    if paths.len() > MAX_NAMES && rng.random_range(0..3) > 0 {
        // The deepest names come last.
        let (path, id) = paths[paths.len() - 1 - rng.random_range(0..paths.len() / 4)].clone();
        return if model.is_dir(id) { Op::Rmdir { path } } else { Op::Unlink { path } };
    }
    // Half of what is about contents meets a file.
    let kind = rng.random_range(0..104);
    if (17..=52).contains(&kind) && rng.random() {
        let files: Vec<&String> = paths
            .iter()
            .filter(|(_, id)| model.shown(*id).kind == rustix::fs::FileType::RegularFile)
            .map(|p| &p.0)
            .collect();
        if !files.is_empty() {
            path.clone_from(files[rng.random_range(0..files.len())]);
        }
    }
    let n = rng.random_range(0..held.max(1));
    match kind {
        0..=9 => Op::Create { path, mode: rng.random_range(0..8) << 6 | 0o600 },
        10..=16 => Op::Mkdir { path, mode: 0o700 },
        17..=34 => Op::Write { path, at: offset(rng), len: length(rng) as usize, seed },
        35..=40 => Op::Truncate { path, size: offset(rng) },
        41..=45 => {
            let keep = FallocateFlags::KEEP_SIZE;
            let modes = [
                FallocateFlags::empty(),
                keep,
                FallocateFlags::PUNCH_HOLE | keep,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::ZERO_RANGE | keep,
            ];
            let mode = modes[rng.random_range(0..modes.len())];
            Op::Allocate { path, mode, at: offset(rng), len: length(rng) }
        }
        46..=52 => Op::Read { path, at: offset(rng), len: length(rng) as usize },
        53..=59 => Op::Unlink { path },
        60..=63 => Op::Rmdir { path },
        64..=74 => {
            let flags = match rng.random_range(0..6) {
                0 => RenameFlags::NOREPLACE,
                1 => RenameFlags::EXCHANGE,
                _ => RenameFlags::empty(),
            };
            Op::Rename { from: path, to: other, flags }
        }
        75..=78 => Op::Link { from: path, to: other },
        79..=81 => Op::Symlink { path, len: rng.random_range(1..200) },
        82..=84 => Op::Chmod { path, mode: rng.random_range(0..0o7777u32 + 1) | 0o700 },
        85..=87 => {
            let name = format!("user.a{}", rng.random_range(0..4));
            Op::SetXattr { path, name, len: rng.random_range(1..180), seed: seed % 5 }
        }
        88..=89 => Op::RemoveXattr { path, name: format!("user.a{}", rng.random_range(0..4)) },
        90..=92 => Op::Hold { path },
        93..=94 if held > 0 => {
            Op::WriteHeld { n, at: offset(rng), len: length(rng) as usize, seed }
        }
        95 if held > 0 => Op::ReadHeld { n, at: offset(rng), len: length(rng) as usize },
        96 if held > 0 => Op::Release { n },
        97..=99 => Op::List { path },
        103 if rng.random_range(0..8) == 0 => Op::Sync,
        _ => Op::Fsync { path },
    }
}
