use super::*;
use crate::cache::BlockCache;
use crate::test_rig::block_size;
use extol_device::MemDevice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn cache() -> BlockCache {
    BlockCache::new(Arc::new(MemDevice::new(1 << 20)), block_size(), 1000, 0)
}

/// What `Transaction::close` gives for these blocks.
fn snapshots(cache: &BlockCache, blocks: &[u64], byte: u8) -> Vec<Snapshot> {
    let one = |nr: &u64| {
        let buf = cache.read(BlockNr(*nr)).unwrap();
        buf.state.lock().pending += 1;
        Snapshot { buf, data: Arc::new(vec![byte; 1024]) }
    };
    blocks.iter().map(one).collect()
}

fn pending(cache: &BlockCache, nr: u64) -> u32 {
    cache.read(BlockNr(nr)).unwrap().state.lock().pending
}

#[test]
fn newer_versions_replace_older_ones() {
    let (cache, list) = (cache(), CheckpointList::default());
    list.committed(Tid(u32::MAX), 10, snapshots(&cache, &[1, 2, 3], 1), &[]);
    list.committed(Tid(0), 20, snapshots(&cache, &[2], 2), &[]);
    list.committed(Tid(1), 30, snapshots(&cache, &[2, 3, 4], 3), &[]);
    assert_eq!(list.waiting(), [(Tid(u32::MAX), 10, 1), (Tid(0), 20, 0), (Tid(1), 30, 3)]);
    assert_eq!((1..5).map(|nr| pending(&cache, nr)).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert_eq!(list.oldest(), Some((Tid(u32::MAX), 10)), "finished ones behind an unfinished one stay");

    let work = list.begin(Tid(0));
    assert_eq!(work.iter().map(|w| (w.nr.0, w.data[0])).collect::<Vec<_>>(), [(1, 1)], "only what they need");
    list.end(&work, true);
    assert_eq!(list.oldest(), Some((Tid(1), 30)));
    let work = list.begin(Tid(1));
    assert_eq!(work.iter().map(|w| (w.nr.0, w.data[0])).collect::<Vec<_>>(), [(2, 3), (3, 3), (4, 3)]);
    list.end(&work, false);
    assert_eq!((list.oldest(), list.len()), (Some((Tid(1), 30)), 3), "a failed write is not done");
    let work = list.begin(Tid(1));
    list.end(&work, true);
    assert_eq!((list.oldest(), list.len()), (None, 0));
    assert!((1..5).all(|nr| pending(&cache, nr) == 0), "no snapshot is on its way any more");
}

#[test]
fn replaced_while_being_written() {
    let (cache, list) = (cache(), CheckpointList::default());
    list.committed(Tid(5), 10, snapshots(&cache, &[1, 2], 1), &[]);
    let work = list.begin(Tid(5));
    list.committed(Tid(6), 20, snapshots(&cache, &[1], 2), &[]);
    list.end(&work, true);
    assert_eq!(list.waiting(), [(Tid(5), 10, 0), (Tid(6), 20, 1)], "the newer version still waits");
    assert_eq!((pending(&cache, 1), pending(&cache, 2)), (1, 0));
    let work = list.begin(Tid(6));
    assert_eq!(work[0].data[0], 2);
    list.end(&work, true);
    assert_eq!(list.oldest(), None);
}

/// K2, also if a newer version came in between. Catches: not waiting; forgetting that a write is under way when the
/// entry is replaced.
#[test]
fn a_revoke_waits_for_the_write_under_way() {
    for replaced in [false, true] {
        let (cache, list) = (cache(), CheckpointList::default());
        list.committed(Tid(5), 10, snapshots(&cache, &[1, 2], 1), &[]);
        let work = list.begin(Tid(5));
        if replaced {
            list.committed(Tid(6), 20, snapshots(&cache, &[1], 2), &[]);
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                list.committed(Tid(if replaced { 7 } else { 6 }), 30, Vec::new(), &[BlockNr(1), BlockNr(77)]);
                done.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(30));
            assert!(!done.load(Ordering::SeqCst));
            // Also if the write failed: it may have reached the device.
            list.end(&work, !replaced);
        });
        assert_eq!(pending(&cache, 1), 0);
        assert!(list.begin(Tid(100)).iter().all(|w| w.nr != BlockNr(1)), "freed blocks do not go home");
    }
}
