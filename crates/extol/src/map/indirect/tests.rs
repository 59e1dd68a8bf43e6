//! Indirect maps against a model, checked by a walk that shares no code with the map.

use extol_block::BlockNr;
use extol_vfs::FsError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::map::fake::{Fake, Model, Ranges, push_joined};
use crate::map::store::Cached;
use crate::map::{Discard, Progress, credits};

struct Bench {
    io: Fake,
    root: Root,
    model: Model,
    rng: SmallRng,
}

struct Walk<'a> {
    io: &'a Fake,
    runs: Vec<(u32, u64, u64, bool)>,
    used: Ranges,
    total: u64,
}

impl Walk<'_> {
    fn visit(&mut self, nr: u64, level: u32, lblk: u64) {
        if nr == 0 {
            return;
        }
        self.used.add(nr, 1);
        self.total += 1;
        if level == 0 {
            push_joined(&mut self.runs, (lblk as u32, nr, 1, false));
            return;
        }
        let bytes = self.io.read(BlockNr(nr)).unwrap().bytes();
        let p = bytes.len() as u64 / 4;
        let before = self.runs.len();
        let total = self.total;
        for (i, b) in bytes.chunks(4).enumerate() {
            let below = u64::from(u32::from_le_bytes(b.try_into().unwrap()));
            self.visit(below, level - 1, lblk + i as u64 * p.pow(level - 1));
        }
        assert!(self.total > total || before < self.runs.len(), "{nr} holds no pointer");
    }
}

impl Bench {
    fn new(block_size: u32, seed: u64) -> Self {
        Self {
            io: Fake::new(block_size, 1 << 32),
            root: Root { ino: 13, bytes: [0; 60], blocks: 0 },
            model: Model::default(),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    fn check(&self) {
        let mut w = Walk { io: &self.io, runs: Vec::new(), used: Ranges::default(), total: 0 };
        let p = per_block(&self.io);
        for slot in 0..SLOTS {
            let nr = u64::from(pointer(&self.root.bytes, slot));
            match slot {
                0..12 => w.visit(nr, 0, slot as u64),
                12 => w.visit(nr, 1, 12),
                13 => w.visit(nr, 2, 12 + p),
                _ => w.visit(nr, 3, 12 + p + p * p),
            }
        }
        assert_eq!(w.runs, self.model.runs());
        assert_eq!(w.used, self.io.used);
        assert_eq!(self.root.blocks, w.total * self.io.shape().sectors());
    }

    fn insert(&mut self, lblk: u32, pblk: u64, len: u32) {
        let p = per_block(&self.io) as u32;
        let leaves = len / p + 2;
        self.io.begin((leaves + leaves / p + 4) * 3, 0);
        self.io.used.add(pblk, u64::from(len));
        let run = MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten: false };
        insert(&mut self.io, &mut self.root, run).unwrap();
        self.model.insert(lblk, pblk, len, false);
    }

    fn remove(&mut self, from: u32, mut to: u32, data: Discard) {
        let gone = self.model.remove(from, to);
        loop {
            let more = self.rng.random_range(0..40);
            let credits = credits::indirect_step() + Discard::MOST_CREDITS;
            self.io.begin(if data == Discard::Keep { 100_000 } else { credits }, more);
            match remove(&mut self.io, &mut self.root, from, to, data).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } => {
                    assert!(at < to && at > from);
                    to = at;
                }
            }
        }
        if data == Discard::Keep {
            gone.iter().for_each(|&(p, len)| assert!(self.io.used.take(p, u64::from(len))));
        }
    }

    fn check_lookups(&self, from: u32, to: u32) {
        let mut at = from;
        while at < to {
            match lookup(&self.io, &self.root, at).unwrap() {
                Mapping::Hole { len } => {
                    let end = u32::try_from(u64::from(at) + len).unwrap_or(u32::MAX);
                    assert!(self.model.is_hole(at, end), "{at} + {len}");
                    at = end;
                }
                Mapping::Mapped { pblk, len, unwritten } => {
                    assert_eq!(self.model.get(at), Some((pblk.0, unwritten)));
                    assert_eq!(
                        self.model.get(at + len - 1),
                        Some((pblk.0 + u64::from(len) - 1, false))
                    );
                    at += len;
                }
            }
        }
    }

    fn step(&mut self, space: u32, longest: u32) {
        let from = self.rng.random_range(0..space);
        let len = self.rng.random_range(1..=longest).min(space - from);
        match self.rng.random_range(0..10) {
            0..6 => {
                let mut room = 0;
                while room < len && self.model.is_hole(from + room, from + room + 1) {
                    room += 1;
                }
                if room == 0 {
                    return;
                }
                let pblk = loop {
                    let p = self.rng.random_range(1 << 31..(1u64 << 32) - u64::from(room));
                    if self.io.used.is_free(p, u64::from(room)) {
                        break p;
                    }
                };
                self.insert(from, pblk, room);
            }
            6..8 => self.remove(from, from + len, Discard::Free),
            8 => self.remove(from, from + len, Discard::FreeJournalled),
            _ => self.remove(from, from + len, Discard::Keep),
        }
    }
}

#[test]
fn random_changes_keep_the_map_right() {
    for (seed, block_size, space, longest, steps) in [
        (1, 1024, 400, 20, 1500),
        (2, 1024, 70_000, 300, 1500),
        (3, 1024, 16_000_000, 1000, 600),
        (4, 4096, 1_100_000, 3000, 300),
    ] {
        let mut b = Bench::new(block_size, seed);
        for step in 0..steps {
            b.step(space, longest);
            if step % 8 == 0 {
                b.check();
            }
        }
        b.check();
        b.check_lookups(0, u32::MAX);
        b.remove(space / 2, u32::MAX, Discard::Free);
        b.check();
        b.remove(0, u32::MAX, Discard::Free);
        b.check();
        assert_eq!((b.root.bytes, b.root.blocks), ([0; 60], 0));
    }
}

#[test]
fn every_level_and_its_borders() {
    let mut b = Bench::new(1024, 5);
    let p = 256u32;
    let top = layout::max_blocks(b.io.shape().block_size) as u32;
    let borders = [0, 11, 12, 11 + p, 12 + p, 11 + p + p * p, 12 + p + p * p, top - 1];
    for (i, lblk) in borders.into_iter().enumerate() {
        b.insert(lblk, 1_000_000 + 10 * i as u64, 1);
        b.check();
    }
    b.check_lookups(0, u32::MAX);
    assert_eq!(Place::of(top, b.io.shape().block_size), None);
    let run = MappedRun { lblk: top, pblk: BlockNr(77), len: 1, unwritten: false };
    assert_eq!(insert(&mut b.io, &mut b.root, run), Err(FsError::FileTooLarge));
    for lblk in borders.into_iter().rev() {
        b.remove(lblk, lblk + 1, Discard::Free);
        b.check();
    }
}

#[test]
fn no_space_leaves_no_trace() {
    let mut b = Bench::new(1024, 6);
    b.insert(0, 1000, 12);
    // Fails in the leaf, in the second stretch, on the way to the triple map.
    for (lblk, len, space) in
        [(12, 10, 0), (12, 300, 1), (12, 300, 2), (100_000, 1, 2), (0x40_0000, 1, 2)]
    {
        b.io.begin(1000, 0);
        b.io.space = space;
        let (root, used) = (b.root.clone(), b.io.used.clone());
        let run = MappedRun { lblk, pblk: BlockNr(500_000), len, unwritten: false };
        assert_eq!(insert(&mut b.io, &mut b.root, run), Err(FsError::NoSpace));
        assert_eq!((&root, &used), (&b.root, &b.io.used));
        b.check();
    }
    let far = MappedRun { lblk: 500, pblk: BlockNr((1 << 32) - 1), len: 2, unwritten: false };
    assert_eq!(insert(&mut b.io, &mut b.root, far), Err(FsError::NoSpace));
    b.check();
}

#[test]
fn wild_pointers_are_errors() {
    let mut b = Bench::new(1024, 7);
    b.insert(0, 5000, 1000);
    let trees = b.io.tree_blocks();
    for (slot, nr) in [(12usize, u32::MAX), (3, u32::MAX), (13, 0xFFFF_FF00)] {
        let mut root = b.root.clone();
        set_pointer(&mut root.bytes, slot, nr);
        b.io.begin(10_000, 0);
        let lblk = [3, 20, 300][if slot < 12 { 0 } else { slot - 11 }];
        let found = lookup(&b.io, &root, lblk);
        if slot >= 12 {
            assert!(matches!(found, Err(FsError::Corrupt { inode: Some(13), .. })));
        }
    }
    // A block that names itself: the depth bounds the walk, and freeing it twice is an error.
    for nr in trees {
        b.io.damage(nr, |bytes| bytes.fill(0));
        b.io.damage(nr, |bytes| (0..256).for_each(|i| set_pointer(bytes, i, nr as u32)));
    }
    for lblk in 0..2000 {
        let _ = lookup(&b.io, &b.root, lblk);
    }
    b.io.begin(100_000, 0);
    assert!(matches!(
        remove(&mut b.io, &mut b.root, 0, u32::MAX, Discard::Free),
        Err(FsError::Corrupt { inode: Some(13), .. })
    ));
}

#[test]
fn blocks_of_pointers_counted() {
    assert_eq!(map_blocks(12, 256), 0);
    assert_eq!(map_blocks(13, 256), 1);
    assert_eq!(map_blocks(12 + 256, 256), 1);
    assert_eq!(map_blocks(12 + 257, 256), 3);
    assert_eq!(map_blocks(12 + 256 + 65536, 256), 1 + 256 + 1);
    assert_eq!(map_blocks(12 + 256 + 65536 + 1, 256), 1 + 256 + 1 + 3);
    assert_eq!(map_blocks(12 + 256 + 65536 + 256 * 65536, 256), 1 + 257 + 65536 + 256 + 1);
}
