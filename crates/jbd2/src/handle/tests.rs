use super::*;
use crate::test_rig::rig;

/// Charged to the transaction: what it holds, and the credits of open handles.
#[test]
fn every_block_is_charged_once() {
    let rig = rig();
    let mut a = rig.journal.start(5).unwrap();
    // A thread has one handle at a time.
    let mut b = std::thread::scope(|s| s.spawn(|| rig.journal.start(3).unwrap()).join().unwrap());
    assert_eq!(rig.charged(), 8);
    let buf = a.create(BlockNr(1)).unwrap();
    b.modify(&buf, |bytes| bytes.fill(1)).unwrap();
    a.modify(&buf, |bytes| bytes.fill(2)).unwrap();
    assert_eq!((a.credits(), b.credits()), (4, 3));
    assert!(a.extend(2).unwrap());
    assert_eq!((a.credits(), rig.charged()), (6, 10));
    assert!(!a.ensure(6).unwrap());
    // Another handle frees it: the credit goes there.
    b.forget(BlockNr(1), false).unwrap();
    assert_eq!(b.credits(), 4);
    a.stop().unwrap();
    assert_eq!(rig.charged(), 4);
    drop(b);
    assert_eq!(rig.charged(), 0);
    assert!(rig.journal.state.lock().tx.running.as_ref().unwrap().tx.is_empty());
}

#[test]
fn revokes_are_charged_by_the_block() {
    let rig = rig();
    let per_block = rig.journal.revokes_per_block() as u64;
    assert_eq!(per_block, 125);
    let mut h = rig.journal.start(10).unwrap();
    for nr in 0..per_block {
        h.forget(BlockNr(nr), true).unwrap();
        h.forget(BlockNr(nr), true).unwrap();
    }
    assert_eq!(h.credits(), 9);
    h.forget(BlockNr(per_block), true).unwrap();
    assert_eq!(h.credits(), 8);
    // Taken again: the revoke is cancelled, the block is charged.
    h.create(BlockNr(per_block)).unwrap();
    assert_eq!(h.credits(), 7);
    h.stop().unwrap();
    let closed = rig.journal.state.lock().tx.running.as_ref().unwrap().tx.close();
    assert_eq!((closed.blocks.len(), closed.revokes.len()), (1, 125));
    closed.blocks[0].buf.state.lock().pending -= 1;
}

#[test]
fn too_small_budgets_are_counted() {
    let rig = rig();
    let mut h = rig.journal.start(1).unwrap();
    for nr in 0..4 {
        h.create(BlockNr(nr)).unwrap();
    }
    assert_eq!((h.credits(), rig.charged(), rig.journal.stats().overdrafts), (0, 4, 3));
    h.stop().unwrap();
    assert_eq!(rig.charged(), 4);
    rig.journal.commit_all().unwrap();
}

#[test]
fn snapshots_do_not_change() {
    let rig = rig();
    rig.fill([1], 1);
    let mut h = rig.journal.start(1).unwrap();
    let buf = rig.journal.read(BlockNr(1)).unwrap();
    let before = buf.data();
    h.modify(&buf, |bytes| bytes.fill(2)).unwrap();
    assert_eq!((before[0], buf.data()[0]), (1, 2));
    // Without a snapshot the bytes stay where they are.
    drop(before);
    let at = buf.data().as_ptr();
    h.modify(&buf, |bytes| bytes.fill(3)).unwrap();
    assert_eq!((at, buf.data()[0]), (buf.data().as_ptr(), 3));
}

#[test]
fn a_block_forgotten_and_created_is_logged_once() {
    let rig = rig();
    let mut h = rig.journal.start(3).unwrap();
    let first = h.create(BlockNr(1)).unwrap();
    h.modify(&first, |bytes| bytes.fill(1)).unwrap();
    h.forget(BlockNr(1), true).unwrap();
    let second = h.create(BlockNr(1)).unwrap();
    h.modify(&second, |bytes| bytes.fill(2)).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    h.stop().unwrap();
    let closed = rig.journal.state.lock().tx.running.as_ref().unwrap().tx.close();
    assert_eq!((closed.blocks.len(), closed.revokes.len()), (1, 0));
    assert_eq!(closed.blocks[0].data[0], 2);
    assert_eq!(first.state.lock().pending, 0);
    assert_eq!(second.state.lock().pending, 1);
}

/// BC-3: the newest change decides how the block gets its checksum, whatever was due before.
#[test]
fn a_seal_is_set_once_when_the_transaction_closes() {
    let rig = rig();
    let mut h = rig.journal.start(3).unwrap();
    let seal = |seed| Seal {
        set: |bytes, nr, seed| (bytes[0], bytes[1]) = (bytes[0] + 1, nr.0 as u8 + seed as u8),
        seed,
    };
    let bufs = [1, 2, 3].map(|nr| h.create(BlockNr(nr)).unwrap());
    for buf in &bufs {
        for _ in 0..5 {
            h.modify_sealed(buf, seal(10), |bytes| bytes[9] += 1).unwrap();
        }
    }
    h.modify_sealed(&bufs[1], seal(20), |_| ()).unwrap();
    h.modify(&bufs[2], |bytes| bytes[1] = 7).unwrap();
    h.stop().unwrap();
    // A snapshot exists: its bytes do not change.
    let seen = bufs[0].data();
    let closed = rig.journal.state.lock().tx.running.as_ref().unwrap().tx.close();
    let first = closed.blocks.iter().map(|b| [b.data[0], b.data[1], b.data[9]]);
    assert_eq!(first.collect::<Vec<_>>(), [[1, 11, 5], [1, 22, 5], [0, 7, 5]]);
    assert_eq!((seen[0], bufs[0].data()[0]), (0, 1), "the block in memory has it, too");
    closed.blocks.iter().for_each(|b| b.buf.state.lock().pending -= 1);
    // And it is not due again.
    let mut h = rig.journal.start(1).unwrap();
    h.modify(&bufs[0], |bytes| bytes[9] = 0).unwrap();
    h.stop().unwrap();
    let closed = rig.journal.state.lock().tx.running.as_ref().unwrap().tx.close();
    assert_eq!(closed.blocks[0].data[..2], [1, 11]);
    closed.blocks[0].buf.state.lock().pending -= 1;
}
