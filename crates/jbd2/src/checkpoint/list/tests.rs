use super::*;
use crate::cache::BlockCache;
use crate::test_rig::block_size;
use extol_block::MemDevice;
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

/// Writes what transactions up to this one need; gives (block, byte).
fn write(list: &CheckpointList, through: u32, home: bool) -> (Vec<Due>, Vec<(u64, u8)>) {
    let mut batch = list.due(Tid(through), false);
    let work = list.take(&mut batch);
    list.wrote(&batch, home);
    (batch, work.iter().map(|(nr, data)| (nr.0, data[0])).collect())
}

/// (id, first log block, blocks left, blocks unwritten) of all transactions.
fn waiting(list: &CheckpointList) -> Vec<(u32, u32, usize, usize)> {
    list.waiting().iter().map(|t| (t.tid.0, t.start, t.left, t.unwritten)).collect()
}

fn pending(cache: &BlockCache, nr: u64) -> u32 {
    cache.read(BlockNr(nr)).unwrap().state.lock().pending
}

#[test]
fn newer_versions_replace_older_ones() {
    let (cache, list) = (cache(), CheckpointList::default());
    assert_eq!(list.committed(Tid(u32::MAX), 10, snapshots(&cache, &[1, 2, 3], 1), &[]), 0);
    assert_eq!(list.committed(Tid(0), 20, snapshots(&cache, &[2], 2), &[]), 1);
    assert_eq!(list.committed(Tid(1), 30, snapshots(&cache, &[2, 3, 4], 3), &[]), 2);
    assert_eq!(waiting(&list), [(u32::MAX, 10, 1, 1), (0, 20, 0, 0), (1, 30, 3, 3)]);
    assert_eq!((1..5).map(|nr| pending(&cache, nr)).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert_eq!(
        list.oldest(),
        Some((Tid(u32::MAX), 10)),
        "finished ones behind an unfinished one stay"
    );

    let (batch, written) = write(&list, 0, true);
    assert_eq!(written, [(1, 1)], "only what they need");
    assert_eq!(waiting(&list)[0], (u32::MAX, 10, 1, 0));
    assert_eq!((list.oldest(), list.len()), (Some((Tid(u32::MAX), 10)), 4), "not durable yet");
    assert!(list.due(Tid(0), false).is_empty(), "nothing is written twice");
    list.settle(&batch);
    assert_eq!(list.oldest(), Some((Tid(1), 30)));
    let (batch, written) = write(&list, 1, false);
    assert_eq!(written, [(2, 3), (3, 3), (4, 3)]);
    list.settle(&batch);
    assert_eq!((list.oldest(), list.len()), (Some((Tid(1), 30)), 3), "a failed write is not done");
    let (batch, written) = write(&list, 1, true);
    assert_eq!(written.len(), 3);
    list.settle(&batch);
    assert_eq!((list.oldest(), list.len()), (None, 0));
    assert!((1..5).all(|nr| pending(&cache, nr) == 0), "no snapshot is on its way any more");
}

/// A newer version while the older one is being written, and while it waits for a flush.
#[test]
fn replaced_on_the_way() {
    for after_write in [false, true] {
        let (cache, list) = (cache(), CheckpointList::default());
        list.committed(Tid(5), 10, snapshots(&cache, &[1, 2], 1), &[]);
        let mut batch = list.due(Tid(5), false);
        assert_eq!(list.take(&mut batch).len(), 2);
        if after_write {
            list.wrote(&batch, true);
        }
        list.committed(Tid(6), 20, snapshots(&cache, &[1], 2), &[]);
        if !after_write {
            assert!(
                list.due(Tid(6), false).is_empty(),
                "two versions are never written at the same time"
            );
            list.wrote(&batch, true);
        }
        assert_eq!(waiting(&list), [(5, 10, 1, 0), (6, 20, 1, 1)]);
        list.settle(&batch);
        assert_eq!(waiting(&list), [(5, 10, 0, 0), (6, 20, 1, 1)], "the newer version still waits");
        assert_eq!((pending(&cache, 1), pending(&cache, 2)), (1, 0));
        let (batch, written) = write(&list, 6, true);
        assert_eq!(written, [(1, 2)]);
        list.settle(&batch);
        assert_eq!((list.oldest(), list.len()), (None, 0));
    }
}

/// A round that was planned before a newer version came does not write the older one.
#[test]
fn a_plan_may_be_out_of_date() {
    let (cache, list) = (cache(), CheckpointList::default());
    list.committed(Tid(5), 10, snapshots(&cache, &[1, 2, 3], 1), &[]);
    let mut batch = list.due(Tid(5), false);
    list.committed(Tid(6), 20, snapshots(&cache, &[1], 2), &[BlockNr(2)]);
    let work = list.take(&mut batch);
    assert_eq!((work.len(), work[0].0, batch.len()), (1, BlockNr(3), 1));
}

/// Blocks that are about to be logged again can be left out: changed by the running transaction, or
/// being committed.
#[test]
fn hot_blocks_are_spared() {
    let (cache, list) = (cache(), CheckpointList::default());
    list.committed(Tid(5), 10, snapshots(&cache, &[1, 2, 3], 1), &[]);
    cache.read(BlockNr(1)).unwrap().state.lock().tx = Some(Tid(7));
    cache.read(BlockNr(2)).unwrap().state.lock().pending += 1;
    let due = |spare| list.due(Tid(5), spare).iter().map(|d| d.nr.0).collect::<Vec<_>>();
    assert_eq!((due(true), due(false)), (vec![3], vec![1, 2, 3]));
}

/// CP-2, also if a newer version came in between. Catches: not waiting; forgetting that a write is
/// under way when the entry is replaced.
#[test]
fn a_revoke_waits_for_the_write_under_way() {
    for replaced in [false, true] {
        let (cache, list) = (cache(), CheckpointList::default());
        list.committed(Tid(5), 10, snapshots(&cache, &[1, 2], 1), &[]);
        let mut batch = list.due(Tid(5), false);
        list.take(&mut batch);
        if replaced {
            list.committed(Tid(6), 20, snapshots(&cache, &[1], 2), &[]);
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                list.committed(
                    Tid(if replaced { 7 } else { 6 }),
                    30,
                    Vec::new(),
                    &[BlockNr(1), BlockNr(77)],
                );
                done.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(30));
            assert!(!done.load(Ordering::SeqCst));
            // Also if the write failed: it may have reached the device.
            list.wrote(&batch, !replaced);
        });
        assert_eq!(pending(&cache, 1), 0);
        assert!(
            list.due(Tid(100), false).iter().all(|due| due.nr != BlockNr(1)),
            "freed blocks do not go home"
        );
        list.settle(&batch);
        assert_eq!(list.len(), usize::from(replaced));
    }
}
