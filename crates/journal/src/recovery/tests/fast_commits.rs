//! Fast commits in the journal.

use super::*;

/// Writes a fast commit of `tid` to the area: HEAD, TAIL.
fn fast_commit(rig: &Rig, tid: u32, features: u32, broken: bool) {
    let mut block = vec![0; rig.bs()];
    let mut bytes = vec![9, 0, 8, 0];
    bytes.extend(features.to_le_bytes());
    bytes.extend(tid.to_le_bytes());
    bytes.extend([8, 0]);
    bytes.extend((rig.bs() as u16 - 24 + 8).to_le_bytes());
    bytes.extend(tid.to_le_bytes());
    let sum = crc32c(0, &bytes) ^ u32::from(broken);
    bytes.extend(sum.to_le_bytes());
    block[..bytes.len()].copy_from_slice(&bytes);
    let first = rig.sb.fc_range().unwrap().start;
    rig.device.write_at(&block, rig.map.device_offset(first).unwrap()).unwrap();
}

#[test]
fn fast_commits_that_count_are_refused_without_a_change() {
    let mut rig = Rig::new(0, 0x32, 1024);
    rig.start(1, 9);
    let tx = rig.tx(1, &[10]);
    rig.commit(&tx);
    // Area of zeros; older; complete; torn; with unknown features.
    assert!(!rig.recover().unwrap().0.torn_fast_commit);
    fast_commit(&rig, 9, 0, false);
    assert!(!rig.recover().unwrap().0.torn_fast_commit);
    fast_commit(&rig, 10, 0, true);
    assert!(rig.recover().unwrap().0.torn_fast_commit);
    for (features, words) in [(0, "fast-commit blocks"), (1, "unknown kind")] {
        fast_commit(&rig, 10, features, false);
        let before = rig.device.to_bytes();
        let error =
            recover_to_device(&rig.device, &rig.device, &rig.map, &mut rig.sb, FS_BLOCKS).unwrap_err();
        assert!(matches!(&error, JournalError::Unsupported(what) if what.contains(words)), "{error}");
        assert!(rig.device.to_bytes() == before);
    }
}

#[test]
fn a_fast_commit_of_several_blocks() {
    let mut rig = Rig::new(0, 0x32, 1024);
    rig.start(1, 9);
    let tx = rig.tx(1, &[10]);
    rig.commit(&tx);
    let mut first = vec![9, 0, 8, 0, 0, 0, 0, 0, 10, 0, 0, 0, 7, 0];
    first.extend((1024u16 - 16).to_le_bytes());
    first.resize(1024, 0);
    let mut second = vec![8, 0];
    second.extend((1024u16 - 4).to_le_bytes());
    second.extend(10u32.to_le_bytes());
    let sum = crc32c(crc32c(0, &first), &second);
    second.extend(sum.to_le_bytes());
    second.resize(1024, 0);
    let area = rig.sb.fc_range().unwrap().start;
    let put = |n: u32, b: &[u8]| rig.device.write_at(b, rig.map.device_offset(area + n).unwrap()).unwrap();
    put(0, &first);
    assert!(rig.recover().unwrap().0.torn_fast_commit, "the second block is missing");
    put(1, &second);
    assert!(matches!(rig.recover().unwrap_err(), JournalError::Unsupported(_)));
}
