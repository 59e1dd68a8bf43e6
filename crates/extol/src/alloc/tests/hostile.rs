//! Wrong requests and wrong bytes.

use super::*;

#[test]
fn what_must_not_be_freed() {
    let rig = clean(VARIANTS[0].0, VARIANTS[0].1);
    let desc = rig.alloc.group_desc(GroupNr(3)).unwrap();
    assert_eq!(rig.alloc.inode_table(GroupNr(3)).unwrap(), BlockNr(desc.inode_table));
    let run = rig.own(20_000, 8, 8).unwrap();
    let one = |block: u64| Run { start: BlockNr(block), len: 1 };
    let corrupt = |run: Run| match rig.free(run) {
        Err(FsError::Corrupt { what, .. }) => what,
        other => panic!("{run:?}: {other:?}"),
    };
    // Superblock, descriptors, a neighbour's bitmaps and table in the first group of the flexible
    // group.
    for block in
        [1, 2, desc.block_bitmap, desc.inode_bitmap, desc.inode_table, desc.inode_table + 5]
    {
        assert!(corrupt(one(block)).contains("metadata"), "block {block}");
    }
    for bad in [
        one(0),
        one(rig.geo.blocks()),
        one(u64::MAX),
        Run { len: 0, ..run },
        Run { len: u32::MAX, ..run },
    ] {
        assert!(corrupt(bad).contains("not on the volume"));
    }
    assert!(corrupt(Run { len: 9, ..run }).contains("free"));
    rig.alloc.protect(one(30_000));
    rig.free(run).unwrap();
    assert!(corrupt(run).contains("free"), "twice");
    rig.commit();
    assert!(corrupt(run).contains("free"), "twice");
    for ino in [0, 2, 8, rig.geo.inodes() + 1, u32::MAX, 500] {
        assert!(
            matches!(rig.free_inode(InodeNr(ino), false), Err(FsError::Corrupt { .. })),
            "inode {ino}"
        );
    }
    rig.unmount();
    rig.fsck();
}

#[test]
fn a_bad_bitmap_costs_its_group_only() {
    let rig = clean(VARIANTS[0].0, VARIANTS[0].1);
    let victim = (1..rig.geo.groups())
        .map(GroupNr)
        .find(|&g| !rig.alloc.group_desc(g).unwrap().flags.contains(GroupFlags::BLOCK_UNINIT));
    let victim = victim.unwrap();
    let desc = rig.alloc.group_desc(victim).unwrap();
    rig.disk
        .write_at(&[0x55], BlockNr(desc.block_bitmap).offset(rig.geo.block_size) + 900)
        .unwrap();
    let goal = rig.geo.group_first_block(victim);
    let run = rig.own(goal.0 + 4000, 10, 10).unwrap();
    assert_ne!(rig.geo.group_of_block(run.start), victim);
    assert_eq!(rig.alloc.counters().lost, u64::from(desc.free_blocks));
    assert_eq!(rig.reports.lock().len(), 1);
    assert!(matches!(&rig.reports.lock()[0], FsError::Corrupt { what, block: Some(b), .. }
        if what.contains("checksum") && *b == desc.block_bitmap));
    let inside = Run { start: goal.plus(8000), len: 1 };
    assert!(matches!(rig.free(inside), Err(FsError::Corrupt { .. })));
    let rest = rig.alloc.free_blocks();
    let mut got = 0;
    while let Ok(run) = rig.alloc.take(BlockNr(1), 500, 1) {
        got += u64::from(run.len);
    }
    assert_eq!(got, rest, "everything else can be used");
}

#[test]
fn nonsense_on_disk_never_panics() {
    for seed in 0..40u64 {
        let (args, size) = VARIANTS[seed as usize % VARIANTS.len()];
        let rig = clean(args, size);
        let mut rng = SmallRng::seed_from_u64(seed);
        // Descriptors and bitmaps of the first groups lie near the front.
        for _ in 0..rng.random_range(1..200) {
            let at = rng.random_range(2048..rig.geo.block_len() as u64 * 300);
            rig.disk.write_at(&[rng.random()], at).unwrap();
        }
        let mut runs = Vec::new();
        for _ in 0..60 {
            let mut h = rig.handle();
            let goal = BlockNr(rng.random_range(0..rig.geo.blocks()));
            match rng.random_range(0..5) {
                0 => drop(rig.alloc.alloc_inode(
                    &mut h,
                    InodeNr(rng.random()),
                    rng.random(),
                    rng.random(),
                )),
                1 => drop(rig.alloc.free_inode(
                    &mut h,
                    InodeNr(rng.random_range(0..5000)),
                    rng.random(),
                )),
                2 => drop(
                    rig.alloc.free(&mut h, Run { start: goal, len: rng.random_range(0..3000) }),
                ),
                _ => {
                    if let Ok(run) = rig.alloc.take(goal, rng.random_range(1..3000), 1) {
                        match rig.alloc.commit_take(&mut h, run) {
                            Ok(()) => runs.push(run),
                            Err(_) => rig.alloc.give_back(run),
                        }
                    }
                }
            }
            if rng.random_range(0..8) == 0
                && let Some(run) = runs.pop()
            {
                drop(rig.alloc.free(&mut h, run));
            }
            h.stop().unwrap();
        }
        let _ = rig.alloc.trim(&*rig.disk, BlockNr(0), u64::MAX, 1, &mut |_| true);
        rig.commit();
        rig.alloc.stats();
    }
}
