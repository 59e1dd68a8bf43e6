//! Inodes: where they go, the last one, groups used for the first time.

use super::super::bits::Span;
use super::super::group::InodeMap;
use super::*;

#[test]
fn inodes_to_the_last_and_again() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -N 512", "20M");
    let free = rig.alloc.free_inodes();
    let mut all = Vec::new();
    for i in 0..free {
        all.push(rig.new_inode(2, i % 7 == 0, true).unwrap());
    }
    assert_eq!(rig.new_inode(2, false, false), Err(FsError::NoSpace));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    // The only free inode is one whose freeing is not durable.
    rig.free_inode(all[3], false).unwrap();
    assert_eq!(rig.new_inode(2, false, false), Ok(all[3]));
    rig.commit();
    assert_eq!(
        rig.new_inode(2, false, false),
        Err(FsError::NoSpace),
        "the commit must not give it back"
    );
    rig.free_inode(all[3], false).unwrap();
    rig.free_inode(all[5], false).unwrap();
    rig.commit();
    assert_eq!(rig.alloc.free_inodes(), 2);
    let again: BTreeSet<_> = (0..2).map(|_| rig.new_inode(2, false, false).unwrap()).collect();
    assert_eq!(again, BTreeSet::from([all[3], all[5]]));
    for (i, &ino) in all.iter().enumerate() {
        rig.free_inode(ino, i % 7 == 0).unwrap();
    }
    rig.unmount();
    rig.fsck();
}

#[test]
fn a_freed_inode_waits_for_its_commit() {
    let rig = clean(VARIANTS[0].0, VARIANTS[0].1);
    let ino = rig.new_inode(2, false, false).unwrap();
    rig.free_inode(ino, false).unwrap();
    assert_ne!(rig.new_inode(2, false, false).unwrap(), ino);
    rig.commit();
    assert_eq!(rig.new_inode(2, false, false).unwrap(), ino);
}

#[test]
fn directories_spread_and_files_follow() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -G 2 -N 16384", "128M");
    let groups: BTreeSet<u32> = (0..40)
        .map(|_| rig.geo.group_of_inode(rig.new_inode(2, true, true).unwrap()).0.0)
        .collect();
    assert!(groups.len() >= 4, "40 top-level directories in {groups:?}");
    let dir = rig.new_inode(2, true, true).unwrap();
    let home = rig.geo.group_of_inode(dir).0;
    for _ in 0..20 {
        assert_eq!(rig.geo.group_of_inode(rig.new_inode(dir.0, false, false).unwrap()).0, home);
    }
    let child = rig.geo.group_of_inode(rig.new_inode(dir.0, true, false).unwrap()).0;
    assert_eq!(child.0 / 2, home.0 / 2, "an uncrowded child stays in the flexible group");
    assert!(rig.geo.group_of_block(rig.alloc.inode_goal(dir)).0.abs_diff(home.0) <= 1);
}

#[test]
fn first_use_of_uninitialised_groups() {
    for (args, size) in [VARIANTS[1], VARIANTS[2]] {
        let rig = clean(args, size);
        let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        let desc = |g| rig.alloc.group_desc(g).unwrap();
        let virgin = (1..rig.geo.groups()).map(GroupNr).filter(|&g| desc(g).flags.contains(uninit));
        let virgin: Vec<GroupNr> = virgin.collect();
        assert!(virgin.len() >= 2, "{args}");
        // The bytes in the bitmaps' blocks must not matter.
        for &g in &virgin {
            for block in [desc(g).block_bitmap, desc(g).inode_bitmap] {
                let junk = vec![0xA5; rig.geo.block_len()];
                rig.disk.write_at(&junk, BlockNr(block).offset(rig.geo.block_size)).unwrap();
            }
        }
        let run = rig.own(rig.geo.group_first_block(virgin[0]).0, 3, 3).unwrap();
        assert_eq!(rig.geo.group_of_block(run.start), virgin[0]);
        assert!(!desc(virgin[0]).flags.contains(GroupFlags::BLOCK_UNINIT));
        let ipg = rig.geo.inodes_per_group;
        let parent = rig.geo.inode_at(virgin[1], 0);
        let mut inodes = Vec::new();
        while !inodes.iter().any(|&i| rig.geo.group_of_inode(i).0 == virgin[1]) {
            inodes.push(rig.new_inode(parent.0, false, false).unwrap());
        }
        assert_eq!(inodes.len(), 1, "files go to their parent's group first");
        let now = desc(virgin[1]);
        assert!(!now.flags.intersects(uninit));
        assert_eq!((now.itable_unused, now.free_inodes), (ipg - 1, ipg - 1));
        rig.unmount();
        rig.dump();
        rig.free(run).unwrap();
        inodes.into_iter().for_each(|i| rig.free_inode(i, false).unwrap());
        rig.unmount();
        rig.fsck();
    }
}

/// IT-4.
#[test]
fn blocks_of_the_table_are_read_ahead_where_all_inodes_are_free() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -N 2048", "20M");
    let per_block = rig.geo.inodes_per_block();
    let take = || rig.new_inode(2, false, false).unwrap();
    let first = take();
    let (group, _) = rig.geo.group_of_inode(first);
    let table = rig.alloc.inode_table(group).unwrap();
    let place = |ino| {
        let (at, bit) = rig.geo.group_of_inode(ino);
        assert_eq!(at, group);
        (bit % per_block, table.plus(u64::from(bit / per_block)))
    };
    let cached = |block| rig.journal.cached(block).is_some();
    let mut taken = vec![first];
    while place(taken[taken.len() - 1]).0 != per_block - 1 {
        taken.push(take());
    }
    let reads = || rig.disk.reads.load(Ordering::Relaxed);
    let before = reads();
    let (_, block) = place(take());
    assert!((0..4).all(|n| cached(block.plus(n))) && !cached(block.plus(4)), "a few at first");
    assert_eq!(reads(), before + 1);
    // The last of them is changed in memory; one behind them is in use.
    let last = block.plus(3);
    rig.disk.write_at(&[7; 1024], last.offset(rig.geo.block_size)).unwrap();
    while place(take()) != (per_block - 1, last) {}
    assert_eq!(reads(), before + 1, "all were in memory");
    assert_eq!(rig.journal.read(last).unwrap().data()[0], 0);
    let next = last.plus(1);
    assert_eq!(place(take()), (0, next));
    let ahead = (0..).take_while(|n| cached(next.plus(*n))).count();
    assert!(ahead > 16, "{ahead} when the ones before were needed");
    assert_eq!(reads(), before + 2);
}

#[test]
fn no_block_with_a_busy_inode_is_read_ahead() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -N 2048", "20M");
    let group = rig.geo.group_of_inode(rig.new_inode(2, false, false).unwrap()).0;
    let desc = rig.alloc.group_desc(group).unwrap();
    let shared = &rig.alloc;
    let found = shared.group(group).unwrap();
    let mut map = shared.read_inode_map(found, &found.lock()).unwrap();
    let per_block = rig.geo.inodes_per_block();
    let start = map.busy.next_zero(map.first_free).unwrap().next_multiple_of(per_block);
    let unread = |map: &InodeMap, bit| shared.unread(&desc, map, bit).map(|(_, count)| count);
    assert_eq!(unread(&map, start), Some(4));
    map.busy.set(Span { start: start + 2 * per_block + 1, len: 1 });
    assert_eq!(unread(&map, start), Some(2));
    assert_eq!(unread(&map, start + 2 * per_block), None);
    assert_eq!(unread(&map, start + 3 * per_block), Some(4));
    let end = rig.geo.inodes_per_group - 1;
    assert_eq!(unread(&map, end), Some(1), "not behind the table");
}
