//! Extent trees against a model, checked after every step by a validator that shares no code with
//! the tree.

mod bench;
mod clusters;

use bench::{Bench, END, le16};
use extol_block::BlockNr;
use extol_ondisk::checksum::crc32c;
use extol_vfs::FsError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::map::fake::{Fake, Model, Ranges, push_joined};
use crate::map::store::Store;
use crate::map::{Discard, Progress, credits};

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
    // All unwritten extents become written and join none; then holes are filled so that all join.
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
    // Converting one by one as writeback does: two extents at any time, four in the end.
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
    // A hole in the middle of a full leaf's extent needs a block; without one it must fail before
    // it frees.
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
    for (from, delta) in
        [(30, -11), (30, -31), (35, -5), (15, -3), (0, i64::from(END)), (0, i64::MIN)]
    {
        b.io.begin(100, 0);
        assert!(shift(&mut b.io, &mut b.root, from, END, delta).is_err(), "{from} {delta}");
        b.check();
    }
    b.shift(30, -10);
    b.check();
    b.shift(15, 5);
    b.check();
}

/// Whatever bytes are damaged, nothing panics or loops, and what is found is an error or a mapping
/// on the volume.
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
    assert_eq!(joined[..], [run(0, 100, 32_767, true), run(32_767, 32_867, 2_233, true)]);
    let apart = [
        run(0, 100, 10, true),
        run(10, 110, 10, false),
        run(20, 130, 10, false),
        run(31, 140, 1, false),
    ];
    assert_eq!(node::coalesce(&apart)[..], apart);
    for r in apart {
        assert_eq!(node::View(&[[0; 12], node::extent_entry(&r)].concat()).extent(0), r);
    }
    let longest = run(7, (1 << 48) - 1, 32_768, false);
    assert_eq!(node::View(&[[0; 12], node::extent_entry(&longest)].concat()).extent(0), longest);
}
