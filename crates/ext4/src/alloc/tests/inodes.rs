//! Inodes: where they go, the last one, groups used for the first time.

use super::super::bits::Bits;
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
    // The only free inode is one whose freeing is not durable: it must do.
    rig.free_inode(all[3], false).unwrap();
    assert_eq!(rig.new_inode(2, false, false), Ok(all[3]));
    rig.commit();
    assert_eq!(rig.new_inode(2, false, false), Err(FsError::NoSpace), "the commit must not give it back");
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
    let groups: BTreeSet<u32> =
        (0..40).map(|_| rig.geo.group_of_inode(rig.new_inode(2, true, true).unwrap()).0.0).collect();
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
        let virgin = (1..rig.geo.groups).map(GroupNr).filter(|&g| desc(g).flags.contains(uninit));
        let virgin: Vec<GroupNr> = virgin.collect();
        assert!(virgin.len() >= 2, "{args}");
        // Whatever lies in the bitmaps' blocks must not matter.
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

/// I4: where the table holds zeros a new inode's block comes into memory without a read, and only there.
#[test]
fn a_table_block_that_was_never_used_is_not_read() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -N 512", "20M");
    let per_block = rig.geo.inodes_per_block();
    let first = rig.new_inode(2, false, false).unwrap();
    let (group, _) = rig.geo.group_of_inode(first);
    let table = rig.alloc.inode_table(group).unwrap();
    let take = || {
        let (at, bit) = rig.geo.group_of_inode(rig.new_inode(2, false, false).unwrap());
        assert_eq!(at, group);
        (bit, table.plus(u64::from(bit / per_block)))
    };
    let fill = || while take().0 % per_block != per_block - 1 {};
    fill();
    let (_, block) = take();
    assert!(rig.journal.cached(block).is_none(), "whether it holds zeros is not known");
    let mut h = rig.handle();
    rig.alloc.set_itable_zeroed(&mut h, group).unwrap();
    h.stop().unwrap();
    take();
    assert!(rig.journal.cached(block).is_none(), "it has an inode");
    fill();
    let (_, block) = take();
    let buf = rig.journal.cached(block).expect("known to hold zeros");
    assert!(buf.data().iter().all(|b| *b == 0));
    let mut h = rig.handle();
    h.modify(&buf, |bytes| bytes[0] = 7).unwrap();
    h.stop().unwrap();
    assert_eq!(take().1, block);
    assert_eq!(rig.journal.read(block).unwrap().data()[0], 7, "what is in memory stays");
}

/// The number of unused inodes is not believed against the bitmap, and never where reserved inodes are.
#[test]
fn a_wrong_number_of_unused_inodes_hides_no_inode() {
    let rig = clean("-t ext4 -O ^has_journal -b 1024 -N 512", "20M");
    let used = (0..20).map(|_| rig.new_inode(2, false, false).unwrap()).last().unwrap();
    let (nr, bit) = rig.geo.group_of_inode(used);
    assert_eq!(nr, GroupNr(0));
    let mut desc = rig.alloc.group_desc(nr).unwrap();
    desc.flags.insert(GroupFlags::INODE_ZEROED);
    let shared = &rig.alloc.shared;
    let group = shared.group(nr).unwrap();
    let map = shared.read_inode_map(group, &group.lock()).unwrap();
    let behind = (bit / rig.geo.inodes_per_block() + 1) * rig.geo.inodes_per_block();
    for unused in [desc.itable_unused, rig.geo.inodes_per_group] {
        desc.itable_unused = unused;
        let known = |bit| shared.never_used(nr, &desc, &map, bit).is_some();
        assert!((0..behind).all(|bit| !known(bit)), "{unused} unused: {used:?} is in use");
        assert!(known(behind), "{unused} unused");
    }
    desc.itable_unused = rig.geo.inodes_per_group + 1;
    assert!(shared.never_used(nr, &desc, &map, behind).is_none(), "more than there are");
    let empty = InodeMap { busy: Bits::zeros(rig.geo.inodes_per_group), ..map };
    desc.itable_unused = rig.geo.inodes_per_group;
    assert!(shared.never_used(nr, &desc, &empty, 0).is_none(), "the block of the root directory");
}
