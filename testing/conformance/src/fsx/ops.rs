//! The operations of a seed.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fs::FallocateFlags;

pub(super) const ALLOCATE: FallocateFlags = FallocateFlags::empty();
pub(super) const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
pub(super) const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(KEEP);
pub(super) const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
pub(super) const COLLAPSE: FallocateFlags = FallocateFlags::COLLAPSE_RANGE;
pub(super) const INSERT: FallocateFlags = FallocateFlags::INSERT_RANGE;

/// The file stays below this.
const MOST: u64 = 400_000;

/// One operation on the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub enum Op {
    Write { at: u64, len: usize, seed: u64 },
    Append { len: usize, seed: u64 },
    MapWrite { at: u64, len: usize, seed: u64 },
    Read { at: u64, len: usize },
    MapRead { at: u64, len: usize },
    Copy { from: u64, to: u64, len: usize },
    Truncate { size: u64 },
    Allocate { mode: FallocateFlags, at: u64, len: u64 },
    Fsync,
    Fdatasync,
    Reopen,
    DropCaches,
    Remount,
    Crash,
}

/// Bytes of a seed; never zero, so that they differ from holes.
pub(super) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes.iter_mut().for_each(|b| *b |= 1);
    bytes
}

/// A place, mostly near the end of a block, a page or a larger piece.
fn place(rng: &mut SmallRng, most: u64) -> u64 {
    let unit = [1, 1024, 4096, 4096, 65_536][rng.random_range(0..5)];
    let near = rng.random_range(0..=most / unit) * unit;
    let off = [0, 0, 0, 1, 2, 511, 512][rng.random_range(0..7)];
    if rng.random() { near.saturating_add(off).min(most) } else { near.saturating_sub(off) }
}

fn length(rng: &mut SmallRng) -> u64 {
    let most = [10, 600, 5000, 20_000, 120_000][rng.random_range(0..5)];
    place(rng, most).max(1)
}

/// `count` operations.
pub(super) fn generate(seed: u64, count: usize, crashes: bool) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0xF5E);
    // The size as it would be without errors: to aim at the end of the file.
    let mut size = 0u64;
    let mut ops = Vec::with_capacity(count);
    while ops.len() < count {
        let near_end = size > 0 && rng.random_range(0..4) == 0;
        let at = if near_end {
            size - size.min(rng.random_range(0..9000))
        } else {
            place(&mut rng, MOST * 3 / 4)
        };
        let len = length(&mut rng).min(MOST - at);
        let seed = rng.next_u64();
        let op = match rng.random_range(0..200) {
            0..50 => Op::Write { at, len: len as usize, seed },
            50..58 if size + len < MOST => Op::Append { len: len as usize, seed },
            58..78 => Op::MapWrite { at, len: len as usize, seed },
            78..98 => Op::Read { at, len: len as usize },
            98..110 => Op::MapRead { at, len: len as usize },
            110..116 => {
                let to = place(&mut rng, MOST / 2);
                Op::Copy { from: at, to, len: len.min(MOST - to) as usize }
            }
            116..132 => Op::Truncate { size: at },
            132..138 => Op::Allocate { mode: ALLOCATE, at, len },
            138..142 => Op::Allocate { mode: KEEP, at, len },
            142..152 => Op::Allocate { mode: PUNCH, at, len },
            152..158 => Op::Allocate { mode: ZERO, at, len },
            158..162 => Op::Allocate { mode: ZERO | KEEP, at, len },
            162..168 => Op::Allocate {
                mode: COLLAPSE,
                at: at / 4096 * 4096,
                len: len.div_ceil(4096) * 4096,
            },
            168..174 if size + len + 8192 < MOST => {
                Op::Allocate { mode: INSERT, at: at / 4096 * 4096, len: len.div_ceil(4096) * 4096 }
            }
            174..180 => Op::Fsync,
            180..183 => Op::Fdatasync,
            183..188 => Op::Reopen,
            188..195 => Op::DropCaches,
            195..197 => Op::Remount,
            197..200 if crashes => Op::Crash,
            _ => continue,
        };
        size = match op {
            Op::Write { at, len, .. } => size.max(at + len as u64),
            Op::Append { len, .. } => size + len as u64,
            Op::Copy { from, to, len } if from < size => {
                size.max(to + (len as u64).min(size - from))
            }
            Op::Truncate { size } => size,
            Op::Allocate { mode, at, len } if mode == COLLAPSE && at + len < size => size - len,
            Op::Allocate { mode, at, len } if mode == INSERT && at < size => size + len,
            Op::Allocate { mode, at, len } if mode == ALLOCATE || mode == ZERO => {
                size.max(at + len)
            }
            _ => size,
        };
        ops.push(op);
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same() {
        assert_eq!(generate(7, 500, true), generate(7, 500, true));
        assert_ne!(generate(7, 500, true), generate(8, 500, true));
        assert!(!generate(7, 2000, false).contains(&Op::Crash));
    }

    #[test]
    fn places_lie_near_edges() {
        let mut rng = SmallRng::seed_from_u64(1);
        let near =
            (0..1000).filter(|_| matches!(place(&mut rng, MOST) % 1024, 0..3 | 1021..)).count();
        assert!(near > 400, "{near} of 1000");
    }
}
