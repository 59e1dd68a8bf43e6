//! Revoked and freed blocks, and their reuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::{BlockDevice, BlockNr, DeviceOp, MemDevice};
use extol_jbd2::Tid;

use super::{BS, ROOMY, a_moment, after_crash, background, byte, fill, free, gated};
use crate::lab::{PLAIN, VARIANTS, until};

/// Catches: revokes not written; a revoked block still in the checkpoint list.
#[test]
fn freed_metadata_reused_as_data() {
    for variant in VARIANTS.into_iter().filter(|v| !v.external && v.block_size == 1024) {
        let (journal, device) = variant.in_memory();
        fill(&journal, [100], 0xAA);
        journal.commit_all().unwrap();
        free(&journal, 100, true);
        journal.commit_all().unwrap();
        device.write_at(&[0xDD; BS as usize], 100 * BS).unwrap();
        journal.note_data_write();
        fill(&journal, [50], 1);
        journal.commit_all().unwrap();
        let image = after_crash(&variant, &device);
        assert_eq!((byte(&image, 100), byte(&image, 50)), (0xDD, 1), "{}", variant.name);
        journal.freeze().unwrap();
        assert_eq!(
            (byte(&*device, 100), byte(&*device, 50)),
            (0xDD, 1),
            "{}: late home write",
            variant.name
        );
    }
}

/// The block comes back in a later transaction.
#[test]
fn revoked_and_taken_again() {
    let (journal, device) = ROOMY.in_memory();
    fill(&journal, [100, 101], 1);
    journal.commit_all().unwrap();
    let mut h = journal.start(4).unwrap();
    h.forget(BlockNr(100), true).unwrap();
    let buf = h.create(BlockNr(100)).unwrap();
    assert!(buf.data().iter().all(|b| *b == 0) && buf.is_verified());
    h.modify(&buf, |b| b.fill(2)).unwrap();
    h.forget(BlockNr(101), true).unwrap();
    h.stop().unwrap();
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (2, 0), "100 is replayed, 101 is not");
    fill(&journal, [101], 3);
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (2, 3), "the newer copy counts");
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 100), byte(&*device, 101)), (2, 3));
}

/// Journalled and freed in one transaction, fresh and with an older copy in the log.
#[test]
fn journalled_and_freed_in_one_transaction() {
    let (journal, device) = ROOMY.in_memory();
    for nr in [100, 101] {
        device.write_at(&[0x11; BS as usize], nr * BS).unwrap();
    }
    fill(&journal, [101], 0xAA);
    journal.commit_all().unwrap();
    let mut h = journal.start(4).unwrap();
    for nr in [100, 101] {
        let buf = h.create(BlockNr(nr)).unwrap();
        h.modify(&buf, |b| b.fill(0xBB)).unwrap();
        h.forget(BlockNr(nr), true).unwrap();
    }
    assert_eq!(h.credits(), 3, "forgetting gives the credits back; the revoke block costs one");
    h.stop().unwrap();
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (0x11, 0x11));
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 100), byte(&*device, 101)), (0x11, 0x11));
    assert_eq!(journal.stats().overdrafts, 0);
}

/// A home write of a block under way while the block is freed: the block is not given back before
/// it ended (CP-2). Catches: `CheckpointList::committed` not waiting for the write.
#[test]
fn freed_blocks_wait_for_late_home_writes() {
    let (journal, gate, device) = gated(PLAIN);
    fill(&journal, 100..130, 0xAA);
    journal.commit_all().unwrap();
    gate.close_range(DeviceOp::Write, 0..1000 * BS);
    let j = Arc::clone(&journal);
    let (checkpoint, _) = background(move || j.checkpoint_step());
    gate.wait_for_a_thread();

    let given_back = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&given_back);
    let mut h = journal.start(2).unwrap();
    h.forget(BlockNr(110), true).unwrap();
    h.on_commit(move |durable| flag.store(durable, Ordering::SeqCst));
    let tid = h.tid();
    h.stop().unwrap();
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_wait(tid));
    // The record itself does not wait.
    until("the record is written", || after_crash_tid(&device) == Some(tid));
    a_moment();
    assert!(
        !given_back.load(Ordering::SeqCst),
        "the old home write would hit the new owner's data"
    );
    gate.open();
    commit.join().unwrap().unwrap();
    assert!(given_back.load(Ordering::SeqCst));
    assert!(checkpoint.join().unwrap().unwrap());
    device.write_at(&[0xDD; BS as usize], 110 * BS).unwrap();
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 109), byte(&*device, 110)), (0xAA, 0xDD));
}

fn after_crash_tid(device: &MemDevice) -> Option<Tid> {
    PLAIN.recover(&device.snapshot(), None).ok().map(|r| r.end_tid.previous())
}
