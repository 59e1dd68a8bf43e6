//! Volumes without a log: commits write home.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extol_block::{BlockDevice, BlockNr, BlockSize, DeviceOp, MemDevice};
use extol_devices::{Fault, FaultDevice};
use extol_jbd2::{Journal, JournalConfig, Services};
use extol_task::SystemClock;

use super::{BS, byte, fill};
use crate::devices::Tape;
use crate::lab::{FS_BLOCKS, in_time};

fn without_log(device: Arc<dyn BlockDevice>) -> Arc<Journal> {
    Journal::open(JournalConfig {
        device,
        block_size: BlockSize::new(BS as u32).unwrap(),
        blocks: FS_BLOCKS,
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(3600),
        async_commit: false,
        cache_bytes: 64 * 1024,
        clock: Arc::new(SystemClock::new()),
    })
    .unwrap()
}

#[test]
fn without_a_log_commits_write_home() {
    let tape = Tape::new(MemDevice::new(FS_BLOCKS * BS), None, None);
    let journal = without_log(tape.device(false));
    assert!(!journal.has_log() && !journal.checkpoint_step().unwrap());
    let given_back = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&given_back);
    fill(&journal, [100, 101, 300], 1);
    let mut h = journal.start(3).unwrap();
    let buf = h.create(BlockNr(200)).unwrap();
    h.modify(&buf, |b| b.fill(2)).unwrap();
    h.forget(BlockNr(101), true).unwrap();
    h.on_commit(move |durable| flag.store(durable, Ordering::SeqCst));
    h.stop().unwrap();
    assert_eq!(tape.fs.position(), 0, "nothing is written before the commit");
    journal.commit_all().unwrap();
    assert!(given_back.load(Ordering::SeqCst));
    let durable = tape.fs.image_at(tape.fs.position(), |_| false);
    let bytes = [100, 101, 200, 300].map(|nr| byte(&durable, nr));
    assert_eq!(bytes, [1, 0, 2, 1]);
    // The buffers are idle: they can leave the cache and come back.
    for nr in 1000..2900 {
        journal.read(BlockNr(nr)).unwrap();
    }
    assert!(journal.stats().cached_blocks < 1000);
    assert_eq!(journal.read(BlockNr(100)).unwrap().data()[0], 1);
    journal.note_data_write();
    let flushes = journal.stats().flushes;
    journal.freeze().unwrap();
    assert_eq!(journal.stats().flushes, flushes + 1);
    journal.thaw();

    // Largest transactions, with the services.
    in_time("without a log", move || {
        let _services = Services::start(&journal).unwrap();
        let max = journal.max_credits();
        for round in 0..4 {
            fill(&journal, (0..u64::from(max)).map(|i| 100 + i), round);
        }
        journal.commit_all().unwrap();
        assert_eq!(byte(&tape.fs.current(), 101), 3);
    });
}

#[test]
fn without_a_log_errors_abort() {
    for op in [DeviceOp::Write, DeviceOp::Flush] {
        let device = Arc::new(FaultDevice::new(MemDevice::new(FS_BLOCKS * BS), []));
        let journal = without_log(device.clone());
        fill(&journal, [100], 1);
        device.arm(Fault::once(op, 0));
        assert!(journal.commit_all().is_err());
        assert!(journal.start(1).is_err() && journal.freeze().is_err());
    }
}
