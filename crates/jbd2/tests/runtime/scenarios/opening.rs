//! What can be opened.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{BlockDevice, MemDevice};
use extol_jbd2::{Journal, JournalConfig, JournalError, LogConfig, Tid};
use extol_task::SystemClock;

use super::{after_crash, byte, fill, free};
use crate::lab::{FS_BLOCKS, PLAIN, VARIANTS, Variant};

fn config(variant: &Variant, device: &Arc<MemDevice>) -> JournalConfig {
    let log = LogConfig {
        device: device.clone(),
        external: false,
        map: variant.map(),
        superblock: variant.superblock(),
        next_tid: Tid(variant.first_tid),
    };
    JournalConfig {
        device: device.clone(),
        block_size: variant.size(),
        blocks: FS_BLOCKS,
        log: Some(log),
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: variant.is_async,
        cache_bytes: 1 << 20,
        clock: Arc::new(SystemClock::new()),
    }
}

#[test]
fn unsafe_configurations_are_refused() {
    let device = Arc::new(PLAIN.media().0);
    let mut dirty = config(&PLAIN, &device);
    dirty.log.as_mut().unwrap().superblock.start = 1;
    assert!(matches!(Journal::open(dirty), Err(JournalError::Unsupported(_))), "not recovered");
    let sumless = Variant { is_async: true, ..VARIANTS[1] };
    assert!(matches!(Journal::open(config(&sumless, &device)), Err(JournalError::Unsupported(_))));
    Journal::open(config(&PLAIN, &device)).unwrap();
}

/// A version-1 superblock has no room for the features that the log is written with: it becomes
/// version 2.
#[test]
fn version_1_superblocks_become_version_2() {
    let device = Arc::new(PLAIN.media().0);
    let at = PLAIN.map().superblock_offset().unwrap();
    let mut raw = PLAIN.superblock().encode();
    raw[7] = 3;
    // What lies behind a version-1 superblock means nothing.
    raw[0x24..].fill(0xEE);
    device.write_at(&raw, at).unwrap();
    let mut config = config(&PLAIN, &device);
    let log = config.log.as_mut().unwrap();
    log.superblock = PLAIN.journal_superblock(&*device);
    assert!(!log.superblock.v2);
    log.superblock.features = PLAIN.superblock().features;
    let journal = Journal::open(config).unwrap();
    fill(&journal, [100, 101], 1);
    journal.commit_all().unwrap();
    free(&journal, 101, true);
    journal.commit_all().unwrap();
    let sb = PLAIN.journal_superblock(&*device);
    assert!(sb.v2 && sb.features.has_csum_v3() && sb.features.has_revoke());
    let image = after_crash(&PLAIN, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (1, 0));
}
