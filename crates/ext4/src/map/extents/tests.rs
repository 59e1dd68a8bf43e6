//! Extent trees against a model, judged after every step by a validator that shares no code with the tree.

use extol_device::BlockNr;
use extol_ondisk::checksum::crc32c;
use extol_vfs::FsError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::map::fake::{Fake, Model, Ranges, push_joined};
use crate::map::store::Store;
use crate::map::{Discard, Progress, credits};

const END: u32 = u32::MAX;

struct Bench {
    io: Fake,
    root: Root,
    model: Model,
    rng: SmallRng,
    deepest: u16,
}

fn le16(b: &[u8], at: usize) -> u64 {
    u64::from(b[at]) | u64::from(b[at + 1]) << 8
}

fn le32(b: &[u8], at: usize) -> u64 {
    le16(b, at) | le16(b, at + 2) << 16
}

/// What e2fsck would demand of a tree.
struct Validator<'a> {
    io: &'a Fake,
    runs: Vec<(u32, u64, u64, bool)>,
    used: Ranges,
    tree: u64,
    data: u64,
    from: u64,
}

impl Validator<'_> {
    fn node(&mut self, bytes: &[u8], depth: u64, nr: Option<u64>) {
        let max = (bytes.len() as u64 - 12) / 12;
        assert_eq!(
            (le16(bytes, 0), le16(bytes, 4), le16(bytes, 6)),
            (0xF30A, max, depth),
            "header of {nr:?}"
        );
        let count = le16(bytes, 2);
        assert!(count <= max && (count > 0 || (nr.is_none() && depth == 0)), "{count} entries in {nr:?}");
        if let Some(nr) = nr {
            let end = 12 + 12 * max as usize;
            let sum = crc32c(self.io.shape().seed.unwrap().0, &bytes[..end]);
            assert_eq!(u64::from(sum), le32(bytes, end), "checksum of {nr}");
            self.used.add(nr, 1);
            self.tree += 1;
        }
        for i in 0..count as usize {
            let e = &bytes[12 + 12 * i..24 + 12 * i];
            let key = le32(e, 0);
            assert!(key >= self.from, "entry {i} of {nr:?} begins at {key}, before {}", self.from);
            if depth > 0 {
                let child = le32(e, 4) | le16(e, 8) << 32;
                let block = self.io.read(BlockNr(child)).unwrap();
                let below = crate::map::store::Cached::bytes(&*block);
                assert_eq!(le32(&below, 12), key, "first key of {child} and of its parent");
                self.node(&below, depth - 1, Some(child));
            } else {
                let raw = le16(e, 4);
                let (len, unwritten) = if raw > 32768 { (raw - 32768, true) } else { (raw, false) };
                let start = le32(e, 8) | le16(e, 6) << 32;
                assert!(len > 0);
                self.used.add(start, len);
                self.data += len;
                push_joined(&mut self.runs, (key as u32, start, len, unwritten));
                self.from = key + len;
            }
        }
    }
}

impl Bench {
    fn new(block_size: u32, seed: u64) -> Self {
        let mut bytes = [0; 60];
        init(&mut bytes);
        Self {
            io: Fake::new(block_size, 1 << 34),
            root: Root { ino: 12, bytes, blocks: 0 },
            model: Model::default(),
            rng: SmallRng::seed_from_u64(seed),
            deepest: 0,
        }
    }

    fn check(&mut self) {
        let depth = le16(&self.root.bytes, 6);
        self.deepest = self.deepest.max(depth as u16);
        let used = Ranges::default();
        let mut v = Validator { io: &self.io, runs: Vec::new(), used, tree: 0, data: 0, from: 0 };
        v.node(&self.root.bytes, depth, None);
        assert_eq!(v.runs, self.model.runs());
        assert_eq!(v.used, self.io.used, "blocks in use are those of the tree");
        assert_eq!(self.root.blocks, (v.tree + v.data) * self.io.shape().sectors());
        assert_eq!(v.tree, self.io.tree_blocks().len() as u64);
    }

    fn begin(&mut self, credits: u32) {
        let more = if self.rng.random_bool(0.5) { self.rng.random_range(0..60) } else { 0 };
        self.io.begin(credits, more);
    }

    fn splice_credits(&self) -> u32 {
        credits::splice(depth(&self.root.bytes))
    }

    fn data(&mut self, lblk: u32, len: u32) -> u64 {
        let behind = lblk.checked_sub(1).and_then(|l| self.model.get(l)).map(|(p, _)| p + 1);
        if let Some(p) = behind.filter(|_| self.rng.random_bool(0.5))
            && self.io.used.is_free(p, u64::from(len))
        {
            return p;
        }
        loop {
            let p = self.rng.random_range(1 << 32..(1u64 << 34) - u64::from(len));
            if self.io.used.is_free(p, u64::from(len)) {
                return p;
            }
        }
    }

    fn insert(&mut self, lblk: u32, len: u32, unwritten: bool) {
        let pblk = self.data(lblk, len);
        self.insert_at(lblk, pblk, len, unwritten);
    }

    fn insert_at(&mut self, lblk: u32, pblk: u64, len: u32, unwritten: bool) {
        let credits = self.splice_credits();
        self.begin(credits);
        self.io.used.add(pblk, u64::from(len));
        let run = MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten };
        insert(&mut self.io, &mut self.root, run).unwrap();
        self.model.insert(lblk, pblk, len, unwritten);
    }

    fn convert(&mut self, mut from: u32, to: u32, unwritten: bool) {
        self.model.convert(from, to, unwritten);
        loop {
            let credits = self.splice_credits();
            self.begin(credits);
            match convert(&mut self.io, &mut self.root, from, to, unwritten).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } => {
                    assert!(at > from && at < to);
                    from = at;
                }
            }
        }
    }

    fn remove(&mut self, from: u32, mut to: u32, data: Discard) {
        let gone = self.model.remove(from, to);
        loop {
            let credits = self.splice_credits() + Discard::MOST_CREDITS;
            self.begin(if data == Discard::Keep { 100_000 } else { credits });
            let progress = remove(&mut self.io, &mut self.root, from, to, data).unwrap();
            match progress {
                Progress::Done => break,
                Progress::Restart { at } => {
                    assert!(at < to && at > from, "progress: {at} in {from}..{to}");
                    to = at;
                }
            }
        }
        if data == Discard::Keep {
            gone.iter().for_each(|&(p, len)| assert!(self.io.used.take(p, u64::from(len))));
        }
    }

    fn shift(&mut self, mut from: u32, delta: i64) {
        self.model.shift(from, delta);
        let mut to = END;
        loop {
            let credits = self.splice_credits();
            self.begin(credits);
            match shift(&mut self.io, &mut self.root, from, to, delta).unwrap() {
                Progress::Done => break,
                Progress::Restart { at } if delta < 0 => {
                    assert!(at > from);
                    from = at;
                }
                Progress::Restart { at } => {
                    assert!(at <= to);
                    to = at;
                }
            }
        }
    }

    fn check_lookups(&self, space: u32) {
        let mut at = 0;
        while at < space {
            match lookup(&self.io, &self.root, at).unwrap() {
                Mapping::Hole { len } => {
                    let end = (u64::from(at) + len).min(u64::from(END)) as u32;
                    assert!(len > 0 && self.model.is_hole(at, end));
                    at = end;
                }
                Mapping::Mapped { pblk, len, unwritten } => {
                    assert_eq!(self.model.get(at), Some((pblk.0, unwritten)));
                    let last = at + len - 1;
                    assert_eq!(self.model.get(last), Some((pblk.0 + u64::from(len) - 1, unwritten)));
                    at += len;
                }
            }
        }
    }

    fn step(&mut self, space: u32, longest: u32) {
        let from = self.rng.random_range(0..space);
        let len = self.rng.random_range(1..=longest).min(space - from);
        let unwritten = self.rng.random_bool(0.4);
        match self.rng.random_range(0..100) {
            0..55 => {
                let Mapping::Hole { len: room } = lookup(&self.io, &self.root, from).unwrap() else { return };
                self.insert(from, u64::from(len).min(room) as u32, unwritten);
            }
            55..80 => self.convert(from, from + len, unwritten),
            80..90 => self.remove(from, from + len, Discard::Free),
            90..93 => self.remove(from, from + len, Discard::FreeJournalled),
            93..95 => self.remove(from, from + len, Discard::Keep),
            95..98 => {
                self.remove(from, from + len, Discard::Free);
                self.shift(from + len, -i64::from(len));
            }
            _ => {
                if self.model.end() < END - 2 * space {
                    self.shift(from, i64::from(len));
                }
            }
        }
    }
}

#[test]
fn random_changes_keep_the_tree_right() {
    for (seed, block_size, space, longest, steps) in [
        (1, 1024, 400, 6, 1500),
        (2, 1024, 20_000, 4, 4000),
        (3, 1024, 60_000, 3, 4000),
        (4, 4096, 30_000, 3, 3000),
        (5, 2048, 3_000_000, 70_000, 1500),
        (6, 1024, 100_000_000, 30_000, 2500),
    ] {
        let mut b = Bench::new(block_size, seed);
        for step in 0..steps {
            b.step(space, longest);
            if step % 4 == 0 {
                b.check();
            }
        }
        b.check();
        b.check_lookups(space);
        b.remove(0, END, Discard::Free);
        b.check();
        assert_eq!(b.root.blocks, 0);
        assert_eq!(le16(&b.root.bytes, 6), 0, "an empty tree is a leaf");
    }
}

/// Every second block mapped: one extent each, a tree as deep as can be had quickly.
#[test]
fn deep_trees() {
    let mut b = Bench::new(1024, 7);
    let blocks = 40_000u32;
    for i in 0..blocks {
        b.insert_at(2 * i, (1 << 32) + 3 * u64::from(i), 1, false);
    }
    b.check();
    assert_eq!(b.deepest, 3);
    let full = blocks.div_ceil(84);
    let tree = b.io.tree_blocks().len() as u32;
    assert!(tree <= full + full / 84 + 4, "{tree} tree blocks: leaves written in order are full");
    b.check_lookups(2 * blocks);
    // From the end to the front, from the middle, at random.
    for i in (0..20_000u32).rev() {
        b.insert_at(100_000_000 + 2 * i, (2 << 32) + 3 * u64::from(i), 1, true);
    }
    b.check();
    for _ in 0..20_000 {
        let lblk = b.rng.random_range(200_000_000..300_000_000);
        if b.model.is_hole(lblk, lblk + 1) {
            let p = (3 << 32) + 2 * u64::from(lblk);
            b.insert_at(lblk, p, 1, false);
        }
    }
    b.check();
    // All unwritten ones become written and join nobody; then holes are filled so that everything joins.
    b.convert(0, END, false);
    b.check();
    for i in 0..2000u32 {
        b.remove(2 * i, 2 * i + 1, Discard::Free);
    }
    b.check();
    b.shift(100_000_000, -1_000_000);
    b.check();
    b.shift(50_000, 3_000_000);
    b.check();
    for at in [250_000_000, 100_000_000, 50_001, 4_000, 4] {
        b.remove(at, END, Discard::Free);
        b.check();
    }
    b.remove(0, END, Discard::Free);
    b.check();
}

/// Nodes of 20 entries, which no volume has: all five levels with splits and removals at each.
#[test]
fn five_levels() {
    let mut b = Bench::new(256, 14);
    let blocks = 660_000u32;
    for i in 0..blocks {
        b.insert_at(10 * i, (1 << 32) + 3 * u64::from(i), 1, false);
    }
    b.check();
    assert_eq!(b.deepest, 5);
    for _ in 0..100_000 {
        let lblk = b.rng.random_range(0..10 * blocks);
        if b.model.is_hole(lblk, lblk + 1) {
            b.insert_at(lblk, (2 << 32) + 2 * u64::from(lblk), 1, true);
        }
    }
    b.check();
    b.convert(1_000_000, 1_200_000, true);
    b.shift(5_000_001, 77);
    b.check();
    b.remove(3_000_000, 3_100_000, Discard::Free);
    b.shift(3_100_000, -100_000);
    b.check();
    for to in [6_600_000u32, 5_000_000, 3_000_000, 1_000_000, 100_000, 5_000, 600] {
        b.remove(to / 2, to, Discard::Free);
        b.check();
    }
    b.remove(0, END, Discard::Free);
    b.check();
}

#[test]
fn a_file_written_in_order_is_one_extent_per_32768_blocks() {
    let mut b = Bench::new(4096, 8);
    for i in 0..2000u32 {
        b.insert_at(i * 50, (1 << 32) + u64::from(i) * 50, 50, false);
    }
    b.check();
    assert_eq!((le16(&b.root.bytes, 2), le16(&b.root.bytes, 6)), (4, 0));
    b.remove(0, END, Discard::Free);
    for i in 0..2000u32 {
        b.insert_at(i * 50, (1 << 32) + u64::from(i) * 50, 50, true);
    }
    assert_eq!((le16(&b.root.bytes, 2), le16(&b.root.bytes, 6)), (4, 0));
    // Converting one by one as write-back does: two extents at any time, four in the end.
    for i in 0..2000u32 {
        b.convert(i * 50, i * 50 + 50, false);
        assert!(le16(&b.root.bytes, 6) <= 1);
    }
    b.check();
    assert_eq!((le16(&b.root.bytes, 2), le16(&b.root.bytes, 6)), (4, 0), "levels are taken back");
}

#[test]
fn very_long_runs() {
    let mut b = Bench::new(4096, 9);
    b.io.begin(10_000, 0);
    let len = 40_000_000u32;
    b.io.used.add(1 << 32, u64::from(len));
    let run = MappedRun { lblk: 5, pblk: BlockNr(1 << 32), len, unwritten: true };
    insert(&mut b.io, &mut b.root, run).unwrap();
    b.model.insert(5, 1 << 32, len, true);
    b.check();
    b.convert(1000, 30_000_000, false);
    b.check();
    b.convert(0, END, true);
    b.check();
    b.remove(77, 39_000_000, Discard::Free);
    b.check();
}

#[test]
fn no_space_leaves_no_trace() {
    let mut b = Bench::new(1024, 10);
    for i in 0..84 * 4 {
        b.insert_at(2 * i, (1 << 32) + 3 * u64::from(i), 1, false);
    }
    b.check();
    // Four full leaves: one more needs a leaf, and the root is full: a new level too.
    for space in 0..2 {
        b.io.space = space;
        b.io.begin(100, 0);
        let (root, used) = (b.root.clone(), b.io.used.clone());
        let run = MappedRun { lblk: 5000, pblk: BlockNr(2 << 32), len: 1, unwritten: false };
        assert_eq!(insert(&mut b.io, &mut b.root, run), Err(FsError::NoSpace));
        assert_eq!((&root, &used), (&b.root, &b.io.used));
        b.check();
    }
    b.io.space = 0;
    b.io.begin(100, 0);
    let root = b.root.clone();
    b.io.used.add(5 << 31, 100);
    b.model.insert(2000, 5 << 31, 100, false);
    b.io.space = 2;
    let run = MappedRun { lblk: 2000, pblk: BlockNr(5 << 31), len: 100, unwritten: false };
    insert(&mut b.io, &mut b.root, run).unwrap();
    assert_ne!(root, b.root);
    b.check();
    // A hole in the middle of a full leaf's extent needs a block; without one it must fail before it frees.
    for i in 0..83 {
        b.insert_at_full(3000 + 2 * i);
    }
    b.io.space = 0;
    b.io.begin(100, 0);
    let (root, used) = (b.root.clone(), b.io.used.clone());
    assert_eq!(remove(&mut b.io, &mut b.root, 2010, 2020, Discard::Free), Err(FsError::NoSpace));
    assert_eq!((&root, &used), (&b.root, &b.io.used));
    assert_eq!(convert(&mut b.io, &mut b.root, 2010, 2020, true), Err(FsError::NoSpace));
    assert_eq!((&root, &used), (&b.root, &b.io.used));
    b.check();
}

impl Bench {
    fn insert_at_full(&mut self, lblk: u32) {
        self.io.space = u32::MAX;
        self.insert_at(lblk, (3 << 32) + 3 * u64::from(lblk), 1, false);
    }
}

#[test]
fn the_last_block_of_the_space() {
    let mut b = Bench::new(1024, 11);
    b.insert_at(END - 1, 1 << 32, 1, false);
    b.check();
    let beyond = MappedRun { lblk: END - 2, pblk: BlockNr(9 << 30), len: 2, unwritten: false };
    assert_eq!(
        insert(&mut b.io, &mut b.root, MappedRun { lblk: END, len: 1, ..beyond }),
        Err(FsError::FileTooLarge)
    );
    assert_eq!(lookup(&b.io, &b.root, END), Ok(Mapping::Hole { len: 1 }));
    assert_eq!(lookup(&b.io, &b.root, 0), Ok(Mapping::Hole { len: u64::from(END) - 1 }));
    b.io.begin(100, 0);
    assert_eq!(shift(&mut b.io, &mut b.root, 0, END, 1), Err(FsError::FileTooLarge));
    b.check();
    b.remove(0, END, Discard::Free);
    b.check();
}

#[test]
fn refused_shifts_change_nothing() {
    let mut b = Bench::new(1024, 12);
    b.insert_at(10, 1 << 32, 10, false);
    b.insert_at(30, 2 << 32, 10, false);
    for (from, delta) in [(30, -11), (30, -31), (35, -5), (15, -3), (0, i64::from(END)), (0, i64::MIN)] {
        b.io.begin(100, 0);
        assert!(shift(&mut b.io, &mut b.root, from, END, delta).is_err(), "{from} {delta}");
        b.check();
    }
    b.shift(30, -10);
    b.check();
    b.shift(15, 5);
    b.check();
}

/// Whatever bytes are damaged, nothing panics or loops, and what is found is an error or a mapping on the volume.
#[test]
fn damaged_trees_give_errors() {
    for seed in 0..300 {
        let mut b = Bench::new(1024, 1000 + seed);
        for i in 0..600u32 {
            b.insert_at(3 * i, (1 << 32) + 3 * u64::from(i), 2, i % 3 == 0);
        }
        let trees = b.io.tree_blocks();
        let sealed = seed % 3 != 0;
        for _ in 0..b.rng.random_range(1..4) {
            let at = b.rng.random_range(0..60);
            let value: u8 = if b.rng.random_bool(0.5) { 0xFF } else { b.rng.random() };
            if b.rng.random_bool(0.3) {
                b.root.bytes[at] = value;
            } else {
                let nr = trees[b.rng.random_range(0..trees.len())];
                let seed = b.io.shape().seed;
                b.io.damage(nr, |bytes| {
                    bytes[at] = value;
                    if sealed {
                        node::seal(bytes, seed);
                    }
                });
            }
        }
        for lblk in (0..2000).step_by(7) {
            match lookup(&b.io, &b.root, lblk) {
                Ok(Mapping::Mapped { pblk, len, .. }) => {
                    assert!(b.io.shape().holds(pblk.0, u64::from(len)));
                }
                Ok(Mapping::Hole { len }) => assert!(len > 0),
                Err(e) => assert!(matches!(e, FsError::Corrupt { inode: Some(12), .. }), "{e}"),
            }
        }
        b.io.begin(100_000, 0);
        let _ = convert(&mut b.io, &mut b.root, 100, 1500, true);
        let _ = shift(&mut b.io, &mut b.root, 900, END, 10);
        let run = MappedRun { lblk: 900, pblk: BlockNr(5 << 30), len: 10, unwritten: false };
        if matches!(lookup(&b.io, &b.root, 900), Ok(Mapping::Hole { len }) if len >= 10) {
            b.io.used.add(5 << 30, 10);
            let _ = insert(&mut b.io, &mut b.root, run);
        }
        let _ = remove(&mut b.io, &mut b.root, 0, END, Discard::Free);
    }
}

#[test]
fn a_flipped_bit_is_a_checksum_error() {
    let mut b = Bench::new(1024, 13);
    for i in 0..100u32 {
        b.insert_at(2 * i, (1 << 32) + 3 * u64::from(i), 1, false);
    }
    let nr = b.io.tree_blocks()[0];
    // In the block number of an extent: no structure check can see it.
    b.io.damage(nr, |bytes| bytes[12 + 8] ^= 1);
    let errors = (0..200).filter(|&l| lookup(&b.io, &b.root, l).is_err()).count();
    assert!(errors > 0);
}

#[test]
fn runs_join_and_are_cut() {
    let run = |lblk, pblk, len, unwritten| MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten };
    let joined = node::coalesce(&[run(0, 100, 30_000, true), run(30_000, 30_100, 5_000, true)]);
    assert_eq!(joined, [run(0, 100, 32_767, true), run(32_767, 32_867, 2_233, true)]);
    let apart =
        [run(0, 100, 10, true), run(10, 110, 10, false), run(20, 130, 10, false), run(31, 140, 1, false)];
    assert_eq!(node::coalesce(&apart), apart);
    for r in apart {
        assert_eq!(node::View(&[[0; 12], node::extent_entry(&r)].concat()).extent(0), r);
    }
    let longest = run(7, (1 << 48) - 1, 32_768, false);
    assert_eq!(node::View(&[[0; 12], node::extent_entry(&longest)].concat()).extent(0), longest);
}
