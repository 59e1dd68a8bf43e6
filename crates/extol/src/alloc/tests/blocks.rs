//! Blocks: full volumes, reserved blocks, windows, trim.

use super::*;

#[test]
fn full_to_the_last_block_and_back() {
    let rig = clean(VARIANTS[6].0, "20M");
    let free = rig.alloc.free_blocks();
    let mut window = Window::default();
    let first = rig.alloc.take_for(&mut window, BlockNr(5000), 64, 1).unwrap();
    assert!(window.blocks() > 0, "a large request takes ahead");
    let mut runs = vec![first];
    let mut got = u64::from(first.len);
    loop {
        match rig.alloc.take(BlockNr(1), 1000, 1) {
            Ok(run) => {
                got += u64::from(run.len);
                runs.push(run);
            }
            Err(e) => {
                assert_eq!(e, FsError::NoSpace);
                break;
            }
        }
    }
    assert_eq!(got, free, "windows were emptied for the last blocks");
    assert_eq!(window.blocks(), 0);
    window.empty();
    let mut h = rig.journal.start(200).unwrap();
    for &run in &runs {
        rig.alloc.commit_take(&mut h, run).unwrap();
    }
    h.stop().unwrap();
    assert_eq!(rig.alloc.free_blocks(), 0);
    assert_eq!(rig.alloc.pending_free(), 0);
    assert_eq!(rig.alloc.reserve(1, true), Err(FsError::NoSpace));

    for &run in &runs {
        rig.free(run).unwrap();
    }
    assert_eq!(rig.alloc.pending_free(), free);
    assert_eq!(rig.alloc.take(BlockNr(1), 1, 1), Err(FsError::NoSpace), "not before the commit");
    rig.alloc.reserve(free, true).unwrap();
    assert_eq!(rig.alloc.reserve(1, true), Err(FsError::NoSpace));
    rig.commit();
    assert_eq!(rig.alloc.pending_free(), 0);
    let run = rig.own(1, 10, 10).unwrap();
    rig.free(run).unwrap();
    rig.alloc.unreserve(free);
    rig.unmount();
    assert_eq!(rig.alloc.free_blocks(), free);
    rig.fsck();
}

#[test]
fn blocks_kept_for_root() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -m 10", "20M");
    let counters = rig.alloc.counters();
    assert_eq!(counters.free - counters.available, 2048);
    assert_eq!(rig.alloc.reserve(counters.available + 1, false), Err(FsError::NoSpace));
    rig.alloc.reserve(counters.available, false).unwrap();
    rig.alloc.reserve(2048, true).unwrap();
    let run = rig.alloc.take(BlockNr(1), 10, 10).unwrap();
    let mut h = rig.handle();
    rig.alloc.commit_reserved(&mut h, run).unwrap();
    h.stop().unwrap();
    assert_eq!(rig.alloc.counters().reserved, counters.free - 10);
    assert_eq!(rig.alloc.counters().free, 0);
}

#[test]
fn runs_that_cross_groups_are_freed_in_pieces() {
    let rig = clean(
        "-t ext4 -O ^has_journal,^resize_inode,sparse_super2 -b 1024 -g 1024 -E num_backup_sb=0",
        "20M",
    );
    // A border of two groups without metadata of their own.
    let second = (2..rig.geo.groups() - 1).map(GroupNr).find(|&g| {
        let zones =
            |g| rig.alloc.table.zones(&rig.journal, g, &rig.alloc.group_desc(g).unwrap()).len();
        zones(g) == 0 && zones(GroupNr(g.0 - 1)) == 0
    });
    let border = rig.geo.group_first_block(second.unwrap()).0;
    let a = rig.own(border - 10, 10, 10).unwrap();
    let b = rig.own(border, 5, 5).unwrap();
    assert_eq!((a.start.0, b.start.0), (border - 10, border));
    rig.free(Run { start: a.start, len: 15 }).unwrap();
    rig.unmount();
    rig.fsck();
}

#[test]
fn growing_files_stay_in_one_piece() {
    let rig = clean("-t ext4 -O ^has_journal -b 4096", "400M");
    let mut files: Vec<(Window, Vec<Run>)> = (0..3).map(|_| Default::default()).collect();
    for _ in 0..100 {
        for (window, runs) in &mut files {
            let goal = runs.last().map_or(BlockNr(40_000), |r: &Run| r.end());
            let run = rig.alloc.take_for(window, goal, 16, 1).unwrap();
            match runs.last_mut().filter(|last| last.end() == run.start) {
                Some(last) => last.len += run.len,
                None => runs.push(run),
            }
        }
    }
    for (_, runs) in &files {
        assert_eq!(runs.iter().map(|r| r.len).sum::<u32>(), 1600);
        assert!(runs.len() <= 8, "three files growing at once: {} pieces", runs.len());
    }
    // A file written alone lies in one run.
    drop(files);
    let mut window = Window::default();
    let mut next = rig.alloc.take_for(&mut window, BlockNr(70_000), 8, 8).unwrap().end();
    for _ in 0..500 {
        let run = rig.alloc.take_for(&mut window, next, 8, 8).unwrap();
        assert_eq!(run.start, next);
        next = run.end();
    }
}

#[test]
fn trim_finds_free_blocks_only() {
    let rig = clean(VARIANTS[0].0, VARIANTS[0].1);
    let (free, _) = rig.dump();
    let keep = rig.own(20_000, 30, 30).unwrap();
    let gone = rig.own(25_000, 30, 30).unwrap();
    rig.free(gone).unwrap();
    let taken = rig.alloc.take(BlockNr(30_000), 30, 30).unwrap();
    let done = rig.alloc.trim(&*rig.disk, BlockNr(0), u64::MAX, 1, &mut |_| true).unwrap();
    let bs = u64::from(rig.geo.block_size.bytes());
    let mut discarded = BTreeSet::new();
    for (offset, len) in std::mem::take(&mut *rig.disk.discards.lock()) {
        assert_eq!((offset % bs, len % bs), (0, 0));
        assert!((offset / bs..(offset + len) / bs).all(|b| discarded.insert(b)));
    }
    assert_eq!(done, discarded.len() as u64);
    let busy: BTreeSet<u64> = [keep, gone, taken].into_iter().flat_map(blocks_of).collect();
    assert_eq!(discarded, &free - &busy, "not what is used, taken, or freed without a commit");
    rig.commit();
    let done = rig.alloc.trim(&*rig.disk, gone.start, 30, 1, &mut |_| true).unwrap();
    assert_eq!(done, 30);
    assert_eq!(
        rig.alloc.trim(&*rig.disk, gone.start, 30, 31, &mut |_| true).unwrap(),
        0,
        "too short"
    );
    rig.alloc.give_back(taken);
    rig.free(keep).unwrap();
    rig.unmount();
    rig.fsck();
}

/// Two groups are locked in ascending order only.
#[cfg(debug_assertions)]
#[test]
fn groups_ascend() {
    let row = Arc::new(super::super::row::Row::new());
    let group =
        |nr| super::super::group::Group::new(GroupNr(nr), &row, Err(FsError::NoSpace), 0, 0);
    let (low, high) = (group(3), group(4));
    {
        let _low = low.lock();
        drop(high.lock());
    }
    let _high = high.lock();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(low.lock())));
    assert!(refused.is_err(), "group 3 was locked inside group 4");
}
