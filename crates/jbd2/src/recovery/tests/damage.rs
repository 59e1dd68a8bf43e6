//! Damaged and hostile logs: refused or shortened, never replayed wrongly.

use super::*;

#[test]
fn copies_into_the_log_are_refused() {
    for nr in [5000, 5599, 3000, 3499] {
        let mut rig = Rig::new(0, 0, 1024);
        rig.start(1, 9);
        let tx = rig.tx(1, &[nr]);
        rig.commit(&tx);
        assert!(rig.recover().unwrap_err().to_string().contains("in the log itself"), "{nr}");
    }
}

/// What a damaged log may give: the undamaged contents, or those without the last transactions, or
/// an error.
fn damaged(rig: &Rig, states: &[BTreeMap<u64, Vec<u8>>]) -> &'static str {
    match rig.recover() {
        Err(_) => "refused",
        Ok((_, overlay)) => {
            let got = contents(&overlay, 0..FS_BLOCKS);
            assert!(states.contains(&got), "silently wrong");
            if states.last() == Some(&got) { "same" } else { "vanished" }
        }
    }
}

#[test]
fn any_bit_of_the_last_transaction() {
    for (compat, incompat) in [(1, 0x1), (0, 0x13), (0, 0x9), (1, 0x5), (0, 0x17)] {
        let mut rig = Rig::new(compat, incompat, 1024);
        rig.start(1, 9);
        let mut states = vec![BTreeMap::new()];
        for time in 1..=2 {
            let mut tx = rig.tx(time, &[10, 20 + time]);
            tx.revokes = vec![20];
            rig.commit(&tx);
            let mut state = states.last().unwrap().clone();
            state.extend(tx.blocks);
            states.push(state);
        }
        let places = rig.places.last().unwrap().clone();
        let mut outcomes = BTreeMap::new();
        for (block, what) in places {
            // A v1 sum does not cover revoke blocks, and of the commit block only its own value.
            let covered = if compat == 0 { true } else { matches!(what, "descriptor" | "copy") };
            if !covered {
                continue;
            }
            // Behind the last field of a commit record nothing counts: that part may be torn off.
            let counts = if what == "commit" { 0x3C } else { 1024 };
            for bit in (0..counts * 8).step_by(3) {
                rig.flip(block, bit);
                *outcomes.entry((what, damaged(&rig, &states))).or_insert(0) += 1;
                rig.flip(block, bit);
            }
        }
        assert!(outcomes.keys().all(|(_, outcome)| *outcome != "same"), "{outcomes:?}");
        assert_eq!(damaged(&rig, &states), "same");
        if incompat & 0x4 != 0 {
            // Async commit: an incomplete last transaction is normal.
            assert!(!outcomes.contains_key(&("copy", "refused")), "{outcomes:?}");
        } else {
            assert!(!outcomes.contains_key(&("copy", "vanished")), "{outcomes:?}");
        }
    }
}

#[test]
fn a_flipped_copy_in_the_middle_is_refused() {
    for (compat, incompat) in [(1, 0), (0, 0x12), (0, 0x8), (1, 0x4), (0, 0x14)] {
        let mut rig = Rig::new(compat, incompat, 1024);
        rig.start(1, 9);
        for time in 1..=3 {
            let tx = rig.tx(time, &[10, 20 + time]);
            rig.commit(&tx);
        }
        for (block, what) in rig.places[1].clone() {
            if what == "copy" {
                rig.flip(block, 77);
                let error = rig.recover().unwrap_err();
                assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
                rig.flip(block, 77);
            }
        }
    }
}

#[test]
fn a_damaged_copy_that_was_revoked_does_not_matter() {
    let mut rig = Rig::new(0, 0x11, 1024);
    rig.start(1, 9);
    let first = rig.tx(1, &[10, 11]);
    rig.commit(&first);
    let mut second = rig.tx(2, &[]);
    second.revokes = vec![10];
    rig.commit(&second);
    let copy = rig.places[0][1];
    assert_eq!(copy.1, "copy");
    rig.flip(copy.0, 3);
    let (recovered, overlay) = rig.recover().unwrap();
    assert_eq!(recovered.replayed_blocks, 1);
    assert!(overlay.get(BlockNr(11)).is_some());
}

#[test]
fn checksum_over_the_unescaped_block_is_refused() {
    let mut rig = Rig::new(0, 0x12, 1024);
    rig.start(1, 9);
    let data = magic_block(&rig);
    let format = rig.format;
    let mut w = DescriptorWriter::new(&format, rig.tid);
    w.push(BlockNr(10), &data, true).unwrap();
    rig.places.push(Vec::new());
    rig.put(&w.finish(), "descriptor");
    rig.put(&escape(&data).unwrap(), "copy");
    rig.put(&CommitBlock::encode(&format, rig.tid, CommitTime::default(), V1Sum::new()), "commit");
    assert!(
        rig.recover().unwrap_err().to_string().contains("wrong checksum of the copy of block 10")
    );
}

#[test]
fn async_commit_ends_at_the_first_bad_commit() {
    let mut rig = Rig::new(0, 0x14, 1024);
    rig.start(1, 9);
    for time in 1..=3 {
        let tx = rig.tx(time, &[10 + time]);
        rig.commit(&tx);
    }
    let commit_of = |rig: &Rig, n: usize| rig.places[n].last().unwrap().0;
    // Two bad commits at the end: the log ends before the first of them.
    rig.flip(commit_of(&rig, 1), 8 * 0x38);
    rig.flip(commit_of(&rig, 2), 8 * 0x38);
    let (recovered, overlay) = rig.recover().unwrap();
    assert_eq!((recovered.end_tid, recovered.replayed_transactions), (Tid(10), 1));
    assert_eq!(contents(&overlay, 0..100).len(), 1);
    // The last one intact again: the one before it is corrupt.
    rig.flip(commit_of(&rig, 2), 8 * 0x38);
    assert!(rig.recover().unwrap_err().to_string().contains("later transaction 11"));
}

#[test]
fn a_log_full_of_itself_ends() {
    // Descriptors without end that claim more copies than the log has, all with the expected
    // transaction.
    for (compat, incompat) in variants() {
        let mut rig = Rig::new(compat, incompat, 1024);
        rig.start(5, 9);
        rig.places.push(Vec::new());
        let mut block = vec![0; 1024];
        crate::format::Header { kind: crate::format::BlockKind::Descriptor, tid: Tid(9) }
            .encode_into(&mut block);
        for _ in 1..LOG_LEN {
            rig.put(&block, "descriptor");
        }
        assert_eq!(rig.recover().unwrap().0.replayed_transactions, 0);
        // Commits of all the same transaction: only the first is expected.
        let commit = CommitBlock::encode(&rig.format, Tid(9), CommitTime::default(), V1Sum::new());
        for _ in 1..LOG_LEN {
            rig.put(&commit, "commit");
        }
        assert_eq!(rig.recover().unwrap().0.replayed_transactions, 1);
        // Commits with rising numbers all around the log.
        rig.start(5, 9);
        for tid in 0..LOG_LEN - 1 {
            rig.put(
                &CommitBlock::encode(
                    &rig.format,
                    Tid(9 + tid),
                    CommitTime::default(),
                    V1Sum::new(),
                ),
                "commit",
            );
        }
        assert_eq!(rig.recover().unwrap().0.replayed_transactions, LOG_LEN - 1);
    }
}

#[test]
fn a_torn_commit_record_counts() {
    // The first sector of the record reached the disk, the rest is what lay there before.
    for incompat in [0x12, 0x8] {
        let mut rig = Rig::new(0, incompat, 1024);
        rig.start(1, 9);
        let tx = rig.tx(1, &[10]);
        rig.commit(&tx);
        let record = rig.places[0].last().unwrap().0;
        for bit in (512 * 8..1024 * 8).step_by(7) {
            rig.flip(record, bit);
        }
        assert_eq!(rig.recover().unwrap().0.replayed_transactions, 1);
    }
}
