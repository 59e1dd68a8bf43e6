//! What recovery of an undamaged log gives.

use extol_ondisk::{Geometry, Superblock};

use super::*;

#[test]
fn every_variant_with_wrap_escape_and_revoke() {
    for bs in [1024, 2048, 4096] {
        for (compat, incompat) in variants() {
            let mut rig = Rig::new(compat, incompat | 1, bs);
            rig.start(LOG_LEN - 200, 0xFFFF_FFFE);
            let many: Vec<u64> = (100..350).collect();
            let mut first = rig.tx(1, &many);
            first.blocks.push((350, magic_block(&rig)));
            rig.commit(&first);
            let mut second = rig.tx(2, &[100, 101]);
            second.revokes = (102..110).chain([101, 7777]).collect();
            rig.commit(&second);
            let third = rig.tx(3, &[105]);
            rig.commit(&third);

            let (recovered, overlay) = rig.recover().unwrap();
            assert_eq!(recovered.end_tid, Tid(1));
            assert_eq!(recovered.next_tid, Tid(3));
            assert_eq!(recovered.replayed_transactions, 3);
            // 101 ... 109 of the first, 101 of the second transaction.
            assert_eq!(recovered.revoke_hits, 10);
            let mut expected: BTreeMap<u64, Vec<u8>> = first.blocks.into_iter().collect();
            expected.retain(|nr, _| !(101..110).contains(nr));
            expected.insert(100, second.blocks[0].1.clone());
            expected.insert(105, third.blocks[0].1.clone());
            assert_eq!(contents(&overlay, 0..FS_BLOCKS), expected);
            assert_eq!(recovered.replayed_blocks as usize, expected.len());
        }
    }
}

#[test]
fn descriptor_in_the_last_block_of_the_log() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(LOG_LEN - 1, 9);
    let tx = rig.tx(1, &[1, 2, 3]);
    rig.commit(&tx);
    assert_eq!(rig.places[0][0], (LOG_LEN - 1, "descriptor"));
    assert_eq!(rig.places[0][1], (1, "copy"));
    assert_eq!(rig.recover().unwrap().0.replayed_blocks, 3);
}

#[test]
fn log_ends_before_the_fast_commit_area() {
    let mut rig = Rig::new(0, 0x32, 1024);
    assert_eq!(rig.sb.log_end(), LOG_LEN - 60);
    rig.start(LOG_LEN - 65, 9);
    for i in 0..4 {
        let tx = rig.tx(1, &[i]);
        rig.commit(&tx);
    }
    assert_eq!(rig.recover().unwrap().0.replayed_transactions, 4);
}

#[test]
fn block_numbers_beyond_32_bits() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(1, 9);
    let nr = 0x12_3456_7890;
    let tx = Tx { blocks: vec![(nr, rig.data(1))], time: 1, ..Tx::default() };
    rig.commit(&tx);
    let (_, overlay) = recover_to_memory(&rig.device, &rig.map, &rig.sb, nr + 1).unwrap();
    assert_eq!(**overlay.get(BlockNr(nr)).unwrap(), tx.blocks[0].1);
    let error = recover_to_memory(&rig.device, &rig.map, &rig.sb, nr).unwrap_err();
    assert!(error.to_string().contains("behind the end of the device"), "{error}");
}

/// A file system that grew before the crash: the log has blocks behind the end that the superblock
/// at home states, with or without a superblock that counts them.
#[test]
fn the_file_system_may_have_grown() {
    for size in [1024, 4096] {
        let stating = |blocks: u64| {
            let mut sb = Superblock::new_empty();
            sb.first_data_block = u32::from(size == 1024);
            sb.log_block_size = if size == 1024 { 0 } else { 2 };
            (sb.blocks_per_group, sb.clusters_per_group) = (256, 256);
            (sb.inodes_per_group, sb.inode_size, sb.first_ino) = (16, 256, 11);
            sb.blocks_count = blocks;
            sb.inodes_count = 16 * (blocks - u64::from(sb.first_data_block)).div_ceil(256) as u32;
            sb
        };
        let geo = Geometry::new(&stating(1000), None).unwrap();
        let (block, at) = geo.super_block();
        let recover = |grown: u64, home: u64| {
            let mut rig = Rig::new(0, 0x12, size);
            rig.start(1, 9);
            let mut logged = rig.data(1);
            logged[at..at + 1024].copy_from_slice(&stating(grown).encode());
            let first = Tx { blocks: vec![(block.0, logged)], time: 1, ..Tx::default() };
            let second = Tx { blocks: vec![(home, rig.data(2))], time: 2, ..Tx::default() };
            rig.commit(&first);
            rig.commit(&second);
            let fs = FsSize::of(&geo, &rig.device);
            let (_, overlay) = recover_to_memory(&rig.device, &rig.map, &rig.sb, fs)?;
            assert_eq!(**overlay.get(BlockNr(home)).unwrap(), second.blocks[0].1);
            Ok::<_, JournalError>(())
        };
        for (grown, home) in [(1200, 1199), (1200, 1200), (1000, 1000), (900, FS_BLOCKS - 1)] {
            recover(grown, home).expect("on the device");
        }
        for (grown, home) in [(1000, FS_BLOCKS), (FS_BLOCKS * 9, FS_BLOCKS)] {
            let error = recover(grown, home).expect_err("not on the device");
            assert!(error.to_string().contains("behind the end of the device"), "{error}");
        }
    }
}

#[test]
fn an_interrupted_transaction_vanishes() {
    for (compat, incompat) in variants() {
        let mut rig = Rig::new(compat, incompat, 1024);
        rig.start(1, 9);
        let first = rig.tx(1, &[10, 11]);
        rig.commit(&first);
        let second = rig.tx(2, &[10, 12]);
        rig.body(&second);
        let (recovered, overlay) = rig.recover().unwrap();
        assert_eq!((recovered.replayed_transactions, recovered.next_tid), (1, Tid(12)));
        assert_eq!(contents(&overlay, 0..100), first.blocks.into_iter().collect());
    }
}

#[test]
fn revoke_and_copy_in_one_transaction_revokes() {
    let mut rig = Rig::new(0, 0x11, 1024);
    rig.start(1, 9);
    let mut tx = rig.tx(1, &[10, 11]);
    tx.revokes = vec![10];
    rig.commit(&tx);
    let (recovered, overlay) = rig.recover().unwrap();
    assert!(overlay.get(BlockNr(10)).is_none() && overlay.get(BlockNr(11)).is_some());
    assert_eq!(recovered.revoke_hits, 1);
}

#[test]
fn revoke_order_is_modular() {
    // The revoking transaction wrapped around zero.
    let mut rig = Rig::new(0, 0x11, 1024);
    rig.start(1, u32::MAX);
    let first = rig.tx(1, &[10]);
    rig.commit(&first);
    let mut second = rig.tx(2, &[]);
    second.revokes = vec![10];
    rig.commit(&second);
    let third = rig.tx(3, &[11]);
    rig.commit(&third);
    let (_, overlay) = rig.recover().unwrap();
    assert!(overlay.get(BlockNr(10)).is_none() && overlay.get(BlockNr(11)).is_some());
}

#[test]
fn clock_stepped_back_is_no_end() {
    for (compat, incompat) in variants() {
        let mut rig = Rig::new(compat, incompat, 1024);
        rig.start(1, 9);
        for time in [10_000, 6_400, 6_401] {
            let tx = rig.tx(time, &[10]);
            rig.commit(&tx);
        }
        let (recovered, _) = rig.recover().unwrap();
        assert_eq!(recovered.replayed_transactions, 3);
        assert_eq!(recovered.last_commit, Some(CommitTime { sec: 6_401, nsec: 5 }));
    }
}

#[test]
fn leftovers_of_an_older_life() {
    // Behind the head stands a transaction with the right number, but of another journal (other
    // seed), older.
    for (older, ok) in [(true, true), (false, false)] {
        let mut rig = Rig::new(0, 0x12, 1024);
        rig.start(1, 9);
        let tx = rig.tx(100, &[10]);
        rig.commit(&tx);
        rig.format.seed ^= 1;
        let stale = rig.tx(if older { 99 } else { 100 }, &[11, 12]);
        rig.commit(&stale);
        match rig.recover() {
            Ok((recovered, overlay)) => {
                assert!(ok);
                assert_eq!(recovered.end_tid, Tid(10));
                assert_eq!(contents(&overlay, 0..100).len(), 1);
            }
            Err(error) => assert!(!ok, "{error}"),
        }
    }
}

#[test]
fn nothing_to_do_and_errno() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.sb.sequence = Tid(41);
    rig.sb.errno = -5;
    rig.write_superblock();
    let (recovered, overlay) = rig.recover().unwrap();
    assert_eq!((recovered.next_tid, recovered.errno), (Tid(42), -5));
    assert!(overlay.is_empty());
    let before = rig.device.to_bytes();
    recover_to_device(&rig.device, &rig.device, &rig.map, &mut rig.sb, FS_BLOCKS).unwrap();
    wipe(&rig.device, &rig.map, &mut rig.sb).unwrap();
    assert!(rig.device.to_bytes() == before, "a clean journal was written");
}

#[test]
fn refused_superblocks_stay_untouched() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(1, 9);
    let tx = rig.tx(1, &[10]);
    rig.commit(&tx);
    for incompat in [0x12 | 0x40, 0x18] {
        rig.sb.features.incompat = incompat;
        rig.write_superblock();
        let before = rig.device.to_bytes();
        assert!(
            recover_to_device(&rig.device, &rig.device, &rig.map, &mut rig.sb, FS_BLOCKS).is_err()
        );
        assert!(wipe(&rig.device, &rig.map, &mut rig.sb).is_err());
        assert!(rig.device.to_bytes() == before);
    }
    rig.sb.features = Features { compat: 0x8000, incompat: 0x12, ro_compat: 0 };
    rig.write_superblock();
    assert_eq!(rig.recover().unwrap().0.replayed_blocks, 1);
}

#[test]
fn writes_home_then_empties_the_log() {
    let mut rig = Rig::new(0, 0x13, 1024);
    rig.sb.errno = -30;
    rig.sb.head = 77;
    rig.start(1000, 9);
    let first = rig.tx(1, &(100..300).collect::<Vec<_>>());
    rig.commit(&first);
    let mut second = rig.tx(2, &[100]);
    second.revokes = vec![101];
    rig.commit(&second);
    let (_, overlay) = rig.recover().unwrap();
    let recording = RecordingDevice::new(rig.device.snapshot());
    let mut sb = rig.sb.clone();
    let recovered =
        recover_to_device(&recording, &recording, &rig.map, &mut sb, FS_BLOCKS).unwrap();
    let done = recording.current().to_bytes();
    assert_eq!((sb.start, sb.sequence, sb.head, sb.errno), (0, Tid(12), 0, -30));
    assert_eq!(recovered.next_tid, sb.sequence.next());
    assert_eq!(read_superblock(&recording, &rig.map).unwrap().encode(), sb.encode());
    for nr in 0..FS_BLOCKS {
        let at = nr as usize * 1024;
        if let Some(data) = overlay.get(BlockNr(nr)) {
            assert!(done[at..at + 1024] == data[..], "block {nr}");
        }
    }
    assert_eq!(overlay.len(), 199);

    // Power may fail anywhere, with any part of the unflushed writes lost: a second recovery ends
    // the same.
    for cut in 0..=recording.position() {
        for keep in [0usize, 1, 2, 3] {
            let image = recording.image_at(cut, |i| (i + keep) % 3 != 0);
            let mut sb = read_superblock(&image, &rig.map).unwrap();
            recover_to_device(&image, &image, &rig.map, &mut sb, FS_BLOCKS).unwrap();
            assert!(image.to_bytes() == done, "cut at {cut}");
        }
    }
}

#[test]
fn an_overlay_device_reads_like_a_recovered_one() {
    let mut rig = Rig::new(0, 0x12, 2048);
    rig.start(1, 9);
    let tx = rig.tx(1, &[0, 1, 7]);
    rig.commit(&tx);
    let (_, overlay) = rig.recover().unwrap();
    let view = overlay.over(std::sync::Arc::new(rig.device.snapshot()), rig.format.block_size);
    recover_to_device(&rig.device, &rig.device, &rig.map, &mut rig.sb, FS_BLOCKS).unwrap();
    for (offset, len) in [(0, 100_000), (1024, 1024), (2047, 2), (7 * 2048 + 5, 4000), (12_000, 1)]
    {
        let (mut a, mut b) = (vec![1; len], vec![2; len]);
        rig.device.read_at(&mut a, offset).unwrap();
        view.read_at(&mut b, offset).unwrap();
        assert!(a == b, "{len} at {offset}");
    }
    assert!(view.is_read_only());
    assert!(
        view.write_at(&[1], 0).is_err()
            && view.zero_range(0, 1).is_err()
            && view.discard(0, 1).is_err()
    );
    assert!(view.read_at(&mut [0; 2], view.size() - 1).is_err());
}

#[test]
fn wiping_skips_every_number_in_the_log() {
    for damage in [false, true] {
        let mut rig = Rig::new(0, 0x12, 1024);
        rig.start(1, 9);
        for time in 1..=3 {
            let tx = rig.tx(time, &[10]);
            rig.commit(&tx);
        }
        if damage {
            rig.flip(rig.places[1].last().unwrap().0, 8 * 500);
        }
        let before = rig.device.to_bytes();
        let recovered = wipe(&rig.device, &rig.map, &mut rig.sb).unwrap();
        assert!(recovered.next_tid.after(Tid(12)), "{recovered:?}");
        assert_eq!((rig.sb.start, recovered.replayed_blocks), (0, 0));
        assert_eq!(rig.recover().unwrap().0.next_tid, recovered.next_tid);
        let changed: Vec<usize> = before
            .chunks(1024)
            .zip(rig.device.to_bytes().chunks(1024))
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(i, _)| i)
            .collect();
        assert_eq!(changed, [5000], "only the superblock is written");
    }
}

#[test]
fn device_errors() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(1, 9);
    let tx = rig.tx(1, &[10, 11]);
    rig.commit(&tx);
    for op in [DeviceOp::Read, DeviceOp::Write, DeviceOp::Flush] {
        for after in 0..3 {
            let bad = FaultDevice::new(rig.device.snapshot(), [Fault::from_then_on(op, after)]);
            let mut sb = rig.sb.clone();
            match recover_to_device(&bad, &bad, &rig.map, &mut sb, FS_BLOCKS) {
                Err(JournalError::Device(error)) => {
                    assert_eq!(error.op, op);
                    assert_eq!(sb, rig.sb);
                }
                Err(other) => panic!("{other}"),
                Ok(_) => assert!(after > 0),
            }
        }
    }
}
