use super::*;
use extol_block::{BlockDevice, DeviceOp, MemDevice};
use extol_devices::{CountingDevice, Fault, FaultDevice};

const BLOCKS: u64 = 4000;
/// The smallest cache: eight buffers in each shard.
const FEWEST: usize = 8 * SHARDS;

fn size() -> BlockSize {
    BlockSize::new(1024).unwrap()
}

fn cache(dev: SharedDevice) -> BlockCache {
    BlockCache::new(dev, size(), BLOCKS, 0)
}

fn memory() -> Arc<MemDevice> {
    Arc::new(MemDevice::new(BLOCKS * 1024))
}

#[test]
fn stays_within_its_bound() {
    let cache = cache(memory());
    for round in 0..3 {
        for nr in 0..BLOCKS {
            cache.read(BlockNr(nr)).unwrap();
        }
        assert!(cache.len() <= FEWEST, "round {round}: {} buffers", cache.len());
    }
    // Held ones stay, and the bound comes back when they are let go.
    let held: Vec<_> = (0..2000).map(|nr| cache.read(BlockNr(nr)).unwrap()).collect();
    assert!(cache.len() >= 2000);
    assert!(
        held.iter().all(|b| Arc::ptr_eq(b, &cache.read(b.nr()).unwrap())),
        "BC-1: one buffer per block"
    );
    drop(held);
    for nr in 0..BLOCKS {
        cache.read(BlockNr(nr)).unwrap();
    }
    assert!(cache.len() <= FEWEST);
}

#[test]
fn changed_and_waiting_blocks_stay() {
    let device = memory();
    let cache = cache(device.clone());
    for (nr, tx, pending) in [(1, Some(Tid(7)), 0), (2, None, 1), (3, Some(Tid(7)), 2)] {
        let buf = cache.read(BlockNr(nr)).unwrap();
        let mut state = buf.state.lock();
        state.data = Arc::new(vec![9; 1024]);
        (state.tx, state.pending) = (tx, pending);
    }
    for _ in 0..3 {
        for nr in 100..BLOCKS {
            cache.read(BlockNr(nr)).unwrap();
        }
    }
    for nr in 1..=3 {
        assert_eq!(
            cache.read(BlockNr(nr)).unwrap().data()[0],
            9,
            "BC-2: block {nr} came from the device"
        );
    }
    // At home at last: it may leave, and comes back from the device.
    cache.read(BlockNr(2)).unwrap().state.lock().pending = 0;
    for _ in 0..3 {
        for nr in 100..BLOCKS {
            cache.read(BlockNr(nr)).unwrap();
        }
    }
    assert_eq!(cache.read(BlockNr(2)).unwrap().data()[0], 0);
}

#[test]
fn neighbours_are_read_at_once_and_never_over_what_is_newer() {
    let device = Arc::new(CountingDevice::new(MemDevice::new(BLOCKS * 1024)));
    (0..BLOCKS).for_each(|nr| device.write_at(&[nr as u8; 1024], nr * 1024).unwrap());
    let cache = cache(device.clone());
    let buf = cache.read(BlockNr(9)).unwrap();
    buf.state.lock().data = Arc::new(vec![77; 1024]);
    cache.read_ahead(BlockNr(5), 20);
    assert_eq!(device.stats().reads, 2, "four blocks in one piece");
    let first = |nr| (cache.read(BlockNr(nr)).unwrap().data()[0], device.stats().reads);
    assert_eq!([5, 8, 9].map(first), [(5, 2), (8, 2), (77, 2)]);
    assert!(!cache.read(BlockNr(5)).unwrap().is_verified());
    assert!(cache.cached(BlockNr(10)).is_none(), "behind one that was there");
    cache.read_ahead(BlockNr(5), 20);
    assert_eq!(device.stats().reads, 2, "all there");
    cache.read_ahead(BlockNr(BLOCKS - 2), 20);
    assert_eq!(first(BLOCKS - 1), (((BLOCKS - 1) % 256) as u8, 3), "and not past the end");
    cache.read_ahead(BlockNr(BLOCKS), 1);
    cache.read_ahead(BlockNr(100), BLOCKS);
    assert!(cache.len() <= 8 + FEWEST / 16, "{} buffers", cache.len());
}

#[test]
fn what_cannot_be_read_ahead_is_read_when_it_is_needed() {
    let device =
        Arc::new(FaultDevice::new(MemDevice::new(BLOCKS * 1024), [Fault::once(DeviceOp::Read, 0)]));
    let cache = cache(device);
    cache.read_ahead(BlockNr(5), 20);
    assert_eq!(cache.len(), 0);
    assert!(cache.read(BlockNr(5)).is_ok());
}

#[test]
fn one_thread_loads_for_all() {
    let device = Arc::new(CountingDevice::new(MemDevice::new(BLOCKS * 1024)));
    let cache = cache(device.clone());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for nr in 0..300 {
                    assert_eq!(cache.read(BlockNr(nr)).unwrap().data().len(), 1024);
                }
            });
        }
    });
    assert_eq!(device.stats().reads, 300);
}

#[test]
fn a_failed_load_leaves_nothing() {
    let device = Arc::new(FaultDevice::new(MemDevice::new(BLOCKS * 1024), []));
    let cache = cache(device.clone());
    device.arm(Fault::once(DeviceOp::Read, 0));
    assert!(matches!(cache.read(BlockNr(5)), Err(JournalError::Device(_))));
    assert!(cache.cached(BlockNr(5)).is_none());
    cache.read(BlockNr(5)).unwrap();
    assert!(cache.cached(BlockNr(5)).is_some());
    // Every waiter for a load that fails gets an answer.
    device.arm(Fault::from_then_on(DeviceOp::Read, 0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(cache.read(BlockNr(6)).is_err()));
        }
    });
    assert!(matches!(cache.read(BlockNr(BLOCKS)), Err(JournalError::Corrupt { .. })));
    assert!(matches!(cache.fresh(BlockNr(u64::MAX)), Err(JournalError::Corrupt { .. })));
}

#[test]
fn forgotten_blocks_leave_and_snapshots_live_on() {
    let device = memory();
    device.write_at(&[3; 1024], 7 * 1024).unwrap();
    let cache = cache(device);
    let old = cache.read(BlockNr(7)).unwrap().data();
    let forgotten = cache.forget(BlockNr(7)).unwrap();
    assert!(cache.forget(BlockNr(7)).is_none());
    let fresh = cache.fresh(BlockNr(7)).unwrap();
    assert!(!Arc::ptr_eq(&fresh, &forgotten) && fresh.is_verified());
    assert_eq!((old[0], fresh.data()[0], cache.read(BlockNr(7)).unwrap().data()[0]), (3, 0, 0));
    // Coming and going leaves no names behind.
    for _ in 0..5000 {
        cache.forget(BlockNr(7));
        cache.fresh(BlockNr(7)).unwrap();
    }
    let names: usize = cache.shards.iter().map(|s| s.lock().clock.len()).sum();
    assert!(names < 200, "{names} names for one block");
}
