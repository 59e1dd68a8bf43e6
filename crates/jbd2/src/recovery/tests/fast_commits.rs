//! Fast commits in the journal.

use extol_ondisk::fast_commit::{FcEntry, FcRecord, FcRecords, FcWriter};

use super::*;

/// The log ends before transaction 10, with a fast-commit area behind it.
fn rig() -> Rig {
    let mut rig = Rig::new(0, 0x32, 1024);
    rig.start(1, 9);
    let tx = rig.tx(1, &[10]);
    rig.commit(&tx);
    rig
}

fn link(ino: u32) -> FcRecord {
    FcRecord::Link(FcEntry { parent: 2, ino, name: vec![b'n'; 200].into() })
}

/// The blocks of one fast commit.
fn chain(tid: u32, first: bool, inos: std::ops::Range<u32>) -> Vec<u8> {
    let records: Vec<FcRecord> = inos.map(link).collect();
    let records = FcRecords::encode(&records).unwrap();
    FcWriter::chain(BlockSize::new(1024).unwrap(), tid, first, &records, &[]).unwrap().bytes
}

fn put(rig: &Rig, at: u32, bytes: &[u8]) {
    let area = rig.sb.fc_range().unwrap().start;
    for (n, block) in (area + at..).zip(bytes.chunks(1024)) {
        rig.device.write_at(block, rig.map.device_offset(n).unwrap()).unwrap();
    }
}

/// The inodes that the records of a recovered log name.
fn records(rig: &Rig, fast: FastLog) -> Result<Vec<u32>> {
    let mut inos = Vec::new();
    let sb = read_superblock(&rig.device, &rig.map).unwrap();
    fast.each(&rig.device, &rig.map, &sb, |tag| {
        let FcRecord::Link(name) = tag else { panic!("{tag:?}") };
        inos.push(name.ino);
        Ok::<(), JournalError>(())
    })?;
    Ok(inos)
}

/// What counts: the inodes, and whether the first fast commit is torn.
fn counts(rig: &Rig) -> (Vec<u32>, bool) {
    let recovered = rig.recover().unwrap().0;
    assert_eq!(recovered.replayed_transactions, 1, "never costs a transaction");
    let next = if recovered.fast_commits.is_some() { 10 } else { 12 };
    assert_eq!((recovered.end_tid, recovered.next_tid), (Tid(10), Tid(next)));
    let inos = recovered.fast_commits.map_or_else(Vec::new, |fast| {
        assert_eq!(fast.tid, Tid(10));
        let inos = records(rig, fast).unwrap();
        assert_eq!(fast.records, inos.len() as u64);
        inos
    });
    (inos, recovered.torn_fast_commit)
}

#[test]
fn only_those_of_the_next_transaction_count() {
    let rig = rig();
    assert_eq!(counts(&rig), (vec![], false));
    for tid in [8, 9, 11] {
        put(&rig, 0, &chain(tid, true, 20..22));
        assert_eq!(counts(&rig), (vec![], false), "{tid}");
    }
    put(&rig, 0, &chain(10, true, 20..22));
    assert_eq!(counts(&rig), (vec![20, 21], false));
    // Behind it one of an older transaction, then again one that would count.
    put(&rig, 1, &chain(9, false, 30..31));
    put(&rig, 2, &chain(10, false, 31..32));
    assert_eq!(counts(&rig), (vec![20, 21], false));
    put(&rig, 1, &chain(10, false, 30..31));
    assert_eq!(counts(&rig), (vec![20, 21, 30, 31], false));
}

#[test]
fn a_torn_fast_commit_costs_only_itself() {
    // Each block of three, each of its sectors old or of zeros.
    let chains = [chain(10, true, 20..30), chain(10, false, 30..40), chain(10, false, 40..41)];
    let blocks = [3, 3, 1];
    let places = [0, 3, 6];
    let inos = [0..0u32, 20..30, 20..40, 20..41];
    for torn in 0..3 {
        for block in 0..blocks[torn] {
            for sector in 0..2 {
                let rig = rig();
                for (place, bytes) in places.iter().zip(&chains) {
                    put(&rig, *place, bytes);
                }
                assert_eq!(counts(&rig).0.len(), 21);
                let area = rig.sb.fc_range().unwrap().start;
                let at = rig.map.device_offset(area + places[torn] + block).unwrap() + sector * 512;
                let mut old = vec![0; 512];
                rig.device.read_at(&mut old, at).unwrap();
                rig.device.write_at(&[0; 512], at).unwrap();
                // Zeros behind a TAIL are what is there anyway.
                if old.iter().all(|b| *b == 0) {
                    continue;
                }
                let first_gone = torn == 0 && block == 0 && sector == 0;
                let (got, is_torn) = counts(&rig);
                assert_eq!(got, inos[torn].clone().collect::<Vec<_>>(), "{torn} {block} {sector}");
                assert_eq!(is_torn, torn == 0 && !first_gone);
            }
        }
    }
}

#[test]
fn unknown_features_refuse_without_a_change() {
    let mut rig = rig();
    let mut writer = FcWriter::new(BlockSize::new(1024).unwrap());
    writer.head(4, 10);
    writer.tail(10);
    put(&rig, 0, &writer.into_bytes());
    let before = rig.device.to_bytes();
    let error =
        recover_to_device(&rig.device, &rig.device, &rig.map, &mut rig.sb, FS_BLOCKS).unwrap_err();
    assert!(
        matches!(&error, JournalError::Unsupported(what) if what.contains("unknown kind")),
        "{error}"
    );
    assert!(rig.device.to_bytes() == before);
    // Of another transaction they mean nothing.
    let mut writer = FcWriter::new(BlockSize::new(1024).unwrap());
    writer.head(4, 9);
    writer.tail(9);
    put(&rig, 0, &writer.into_bytes());
    assert_eq!(counts(&rig), (vec![], false));
}

/// Older kernels end PAD and TAIL one byte before the block's end.
#[test]
fn blocks_filled_in_the_old_way() {
    let rig = rig();
    let tag = |tag: u16, value: &[u8]| {
        [&tag.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
    };
    let name =
        |ino: u32| tag(4, &[&2u32.to_le_bytes()[..], &ino.to_le_bytes(), &[b'n'; 200]].concat());
    let head = tag(9, &[&0u32.to_le_bytes()[..], &10u32.to_le_bytes()].concat());
    let mut first = [head, name(20), name(21), name(22), name(23)].concat();
    let pad = 1023 - first.len() - 4;
    first.extend(tag(7, &vec![0; pad]));
    assert_eq!(first.len(), 1023);
    let mut second = name(24);
    let len = 1023 - second.len() - 4;
    second.extend(8u16.to_le_bytes());
    second.extend((len as u16).to_le_bytes());
    second.extend(10u32.to_le_bytes());
    let sum = crc32c(crc32c(0, &first), &second);
    second.extend(sum.to_le_bytes());
    first.resize(1024, 0);
    second.resize(1024, 0);
    put(&rig, 0, &first);
    put(&rig, 1, &second);
    assert_eq!(counts(&rig), ((20..25).collect(), false));
}

/// The area full to its last usable block, and to the very last one.
#[test]
fn a_full_area() {
    let rig = rig();
    let usable = rig.sb.fc_range().unwrap().len() as u32;
    for n in 0..usable {
        put(&rig, n, &chain(10, n == 0, 100 + n..101 + n));
    }
    assert_eq!(counts(&rig).0, (100..100 + usable).collect::<Vec<_>>());
}

#[test]
fn the_log_is_free_and_the_fast_commits_stay() {
    // Where the log would begin anew lies a block of an interrupted commit of the same transaction,
    // or an older one.
    for (head, tid) in [(1, 10), (1, 9), (700, 10), (700, 7), (700, 11)] {
        let mut rig = Rig::new(0, 0x22, 1024);
        if head != 1 {
            // Leftovers of a whole transaction at the beginning.
            rig.start(1, tid);
            let old = rig.tx(1, &[50]);
            rig.commit(&old);
        }
        rig.start(head, 9);
        let tx = rig.tx(1, &[10]);
        rig.commit(&tx);
        put(&rig, 0, &chain(10, true, 20..22));
        let mut sb = read_superblock(&rig.device, &rig.map).unwrap();
        let recovered =
            recover_to_device(&rig.device, &rig.device, &rig.map, &mut sb, FS_BLOCKS).unwrap();
        assert_eq!((recovered.replayed_blocks, recovered.next_tid), (1, Tid(10)));
        let on_disk = read_superblock(&rig.device, &rig.map).unwrap();
        assert!(on_disk.encode() == sb.encode());
        assert_eq!((sb.start, sb.sequence), (sb.first, Tid(10)));
        assert!(
            sb.features.has_fast_commit() && sb.features.incompat & Features::INCOMPAT_REVOKE != 0
        );
        // Again, as after a crash: nothing in the log, the same fast commits.
        let again = rig.recover().unwrap();
        assert!(again.1.is_empty());
        assert_eq!(
            (again.0.replayed_transactions, again.0.fast_commits),
            (0, recovered.fast_commits)
        );
        assert_eq!(records(&rig, again.0.fast_commits.unwrap()).unwrap(), [20, 21]);
        // And once the transaction is in the log they are void.
        clear_fast_commits(&rig.device, &rig.map, &sb).unwrap();
        assert_eq!(rig.recover().unwrap().0.fast_commits, None);
    }
}

#[test]
fn recovery_with_fast_commits_can_be_interrupted() {
    let rig = rig();
    put(&rig, 0, &chain(10, true, 20..22));
    let recording = RecordingDevice::new(rig.device.snapshot());
    let mut sb = read_superblock(&recording, &rig.map).unwrap();
    recover_to_device(&recording, &recording, &rig.map, &mut sb, FS_BLOCKS).unwrap();
    let end = recording.position();
    for cut in 0..=end {
        let image = recording.image_at(cut, |_| true);
        let sb = read_superblock(&image, &rig.map).unwrap();
        let (recovered, overlay) = recover_to_memory(&image, &rig.map, &sb, FS_BLOCKS).unwrap();
        assert_eq!(recovered.fast_commits.map(|fast| fast.records), Some(2), "after {cut} events");
        let mut home = vec![0; 1024];
        image.read_at(&mut home, 10 * 1024).unwrap();
        let seen = overlay.get(BlockNr(10)).map_or(home, |block| block.to_vec());
        assert!(seen == rig.data(10 * 1000 + 1), "after {cut} events");
    }
}

#[test]
fn an_area_that_changes_between_two_looks() {
    let rig = rig();
    put(&rig, 0, &chain(10, true, 20..30));
    let fast = rig.recover().unwrap().0.fast_commits.unwrap();
    assert_eq!(records(&rig, fast).unwrap().len(), 10);
    for n in 0..3 {
        rig.flip(rig.sb.fc_range().unwrap().start + n, 3000);
        let result = records(&rig, fast);
        rig.flip(rig.sb.fc_range().unwrap().start + n, 3000);
        assert!(matches!(result, Err(JournalError::Corrupt { .. })), "{n}");
    }
}
