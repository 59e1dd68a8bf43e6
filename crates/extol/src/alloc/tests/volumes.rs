//! Whole volumes: contents of the disk, many threads, opening, statistics.

use super::*;

#[test]
fn marks_on_disk_are_what_was_handed_out() {
    for (args, size) in VARIANTS {
        let rig = clean(args, size);
        let (blocks_before, inodes_before) = rig.dump();
        assert_eq!(rig.alloc.free_blocks(), blocks_before.len() as u64, "{args}");
        let mut rng = SmallRng::seed_from_u64(1);
        let (mut blocks, mut inodes) = (BTreeSet::new(), BTreeSet::new());
        let mut runs = Vec::new();
        for _ in 0..150 {
            let run = rig
                .own(rng.random_range(0..rig.geo.blocks()), rng.random_range(1..100), 1)
                .unwrap();
            for block in blocks_of(run) {
                assert!(
                    blocks_before.contains(&block) && blocks.insert(block),
                    "{args}: block {block}"
                );
            }
            runs.push(run);
            let is_dir = rng.random_range(0..4) == 0;
            let ino =
                rig.new_inode(rng.random_range(1..=rig.geo.inodes()), is_dir, is_dir).unwrap();
            assert!(inodes_before.contains(&u64::from(ino.0)), "{args}: {ino:?}");
            assert!(inodes.insert((ino, is_dir)), "{args}: {ino:?} twice");
        }
        rig.unmount();
        let (blocks_now, inodes_now) = rig.dump();
        assert_eq!(&blocks_before - &blocks_now, blocks, "{args}");
        let numbers: BTreeSet<u64> = inodes.iter().map(|(ino, _)| u64::from(ino.0)).collect();
        assert_eq!(&inodes_before - &inodes_now, numbers, "{args}");

        for run in runs {
            rig.free(run).unwrap();
        }
        for &(ino, is_dir) in &inodes {
            rig.free_inode(ino, is_dir).unwrap();
        }
        rig.unmount();
        assert_eq!(rig.dump(), (blocks_before, inodes_before), "{args}");
        rig.fsck();
        assert!(rig.reports.lock().is_empty(), "{args}: {:?}", rig.reports.lock());
        assert_eq!(rig.journal.stats().overdrafts, 0);
    }
}

#[test]
fn threads_share_a_volume() {
    for (args, size) in [VARIANTS[0], VARIANTS[1], VARIANTS[4]] {
        let image = mke2fs(args, size);
        // Few bitmaps in memory, so that they are dropped and read again.
        let opts =
            AllocOptions { trust_counters: true, resident_groups: 1, ..AllocOptions::default() };
        let rig = open(image, opts);
        let before = rig.dump();
        let owned = Mutex::new(BTreeSet::new());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (rig, owned) = (&rig, &owned);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(thread);
                    let mut runs: Vec<Run> = Vec::new();
                    let mut inodes = Vec::new();
                    let mut window = Window::default();
                    let mut goal = BlockNr(rng.random_range(0..rig.geo.blocks()));
                    for step in 0..400 {
                        let taken = match step % 3 {
                            0 => rig
                                .alloc
                                .take(BlockNr(rng.random_range(0..rig.geo.blocks())), 50, 1)
                                .unwrap(),
                            _ => rig.alloc.take_for(&mut window, goal, 7, 1).unwrap(),
                        };
                        if step % 3 != 0 {
                            goal = taken.end();
                        }
                        if step % 10 == 0 {
                            rig.alloc.give_back(taken);
                            window.empty();
                        } else {
                            let mut owned = owned.lock();
                            assert!(
                                blocks_of(taken).all(|b| owned.insert(b)),
                                "a block was handed out twice"
                            );
                            drop(owned);
                            let mut h = rig.handle();
                            rig.alloc.commit_take(&mut h, taken).unwrap();
                            let parent = InodeNr(rng.random_range(1..=rig.geo.inodes()));
                            inodes
                                .push(rig.alloc.alloc_inode(&mut h, parent, false, false).unwrap());
                            h.stop().unwrap();
                            runs.push(taken);
                        }
                        if rng.random_range(0..3) == 0 && !runs.is_empty() {
                            let run = runs.swap_remove(rng.random_range(0..runs.len()));
                            let ino = inodes.swap_remove(rng.random_range(0..inodes.len()));
                            owned.lock().retain(|b| !blocks_of(run).any(|x| x == *b));
                            let mut h = rig.handle();
                            rig.alloc.free(&mut h, run).unwrap();
                            rig.alloc.free_inode(&mut h, ino, false).unwrap();
                            h.stop().unwrap();
                        }
                        if step % 50 == 0 {
                            rig.commit();
                        }
                    }
                    for (run, ino) in runs.into_iter().zip(inodes) {
                        owned.lock().retain(|b| !blocks_of(run).any(|x| x == *b));
                        rig.free(run).unwrap();
                        rig.free_inode(ino, false).unwrap();
                    }
                });
            }
        });
        rig.unmount();
        let stats = rig.alloc.stats();
        assert_eq!((stats.counters.pending, stats.in_windows, stats.counters.lost), (0, 0, 0));
        assert!(stats.resident_groups <= 16, "{stats:?}");
        assert_eq!(rig.dump(), before, "{args}");
        rig.fsck();
        assert!(rig.reports.lock().is_empty(), "{:?}", rig.reports.lock());
    }
}

#[test]
fn counters_of_an_unclean_volume_are_summed() {
    let image = mke2fs(VARIANTS[1].0, VARIANTS[1].1);
    // The counters in the superblock of a volume in use are those of its last clean moment.
    let path = image.path().to_owned();
    let set = Command::new("debugfs")
        .args(["-w", "-R", "ssv free_blocks_count 77"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(set.status.success());
    let rig = open(image, AllocOptions::default());
    assert_eq!(rig.cell.read(|sb| sb.free_blocks_count), 77);
    let (blocks, inodes) = rig.dump();
    assert_eq!(rig.alloc.free_blocks(), blocks.len() as u64);
    assert_eq!(rig.alloc.free_inodes(), inodes.len() as u64);
}

#[test]
fn a_large_clean_volume_opens_at_once() {
    let rig = clean("-t ext4 -O ^has_journal", "100G");
    let began = Instant::now();
    let sb = rig.cell.read(Superblock::clone);
    rig.disk.reads.store(0, Ordering::Relaxed);
    let opts = AllocOptions { trust_counters: true, ..AllocOptions::default() };
    let alloc = Allocator::open(rig.journal.clone(), &rig.geo, &sb, opts).unwrap();
    assert_eq!(rig.disk.reads.load(Ordering::Relaxed), 0);
    let run = alloc.take(alloc.inode_goal(InodeNr::ROOT), 100, 100).unwrap();
    alloc.give_back(run);
    assert!(rig.disk.reads.load(Ordering::Relaxed) <= 2, "one descriptor block, one bitmap");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn overhead_is_what_linux_subtracts() {
    // Size minus `Blocks: Total` of `stat -f` on loop mounts of such images (Linux 6.18).
    for (args, size, journal_blocks, overhead) in [
        ("-t ext4 -O ^has_journal -b 1024", "48M", 0, 4117),
        ("-t ext4 -b 1024", "100M", 4096, 12067),
        ("-t ext2 -b 1024", "33M", 0, 2520),
        ("-t ext4 -O meta_bg,^resize_inode,^has_journal -b 1024 -g 1024", "60M", 0, 3981),
    ] {
        let rig =
            open(mke2fs(args, size), AllocOptions { journal_blocks, ..AllocOptions::default() });
        assert_eq!(rig.alloc.overhead_blocks(), overhead, "{args}");
    }
}

#[test]
fn a_group_and_a_window_cost_little_memory() {
    assert!(size_of::<group::Group>() <= 192, "{} bytes per group", size_of::<group::Group>());
    assert!(size_of::<Window>() <= 40, "{} bytes per open inode", size_of::<Window>());
}
