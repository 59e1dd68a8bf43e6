//! Zeroed blocks: when they may be used, where they lie, and that they are nobody's loss.

use super::*;

const NEAR: BlockNr = BlockNr(3000);

fn filled(rig: &Rig) -> Run {
    assert_eq!(rig.alloc.take_zeroed(4, None, NEAR), None, "there were none");
    assert!(rig.alloc.wants_zeroed());
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert!(!rig.alloc.wants_zeroed());
    assert_eq!(rig.alloc.take_zeroed(4, None, NEAR), None, "their zeros are on their way");
    rig.journal.flush_data().unwrap();
    rig.alloc.take_zeroed(4, None, NEAR).expect("zeroed blocks")
}

fn bytes_at(rig: &Rig, run: Run) -> Vec<u8> {
    let mut bytes = vec![1; run.len as usize * rig.geo.block_len()];
    rig.disk.read_at(&mut bytes, run.start.offset(rig.geo.block_size)).unwrap();
    bytes
}

#[test]
fn only_behind_a_flush_and_one_behind_the_other() {
    let rig = clean("-t ext4 -b 4096", "64M");
    let garbage = vec![0xA5; 64 * 4096];
    rig.disk.write_at(&garbage, NEAR.offset(rig.geo.block_size)).unwrap();
    let before = rig.alloc.counters();
    let first = filled(&rig);
    assert!(first.start >= NEAR && first.start.0 < NEAR.0 + 64);
    assert!(bytes_at(&rig, first).iter().all(|b| *b == 0));
    assert_eq!(rig.alloc.take_zeroed(2, None, NEAR).unwrap().start, first.end());
    let next = first.end().plus(2);
    assert_eq!(rig.alloc.take_zeroed(2, Some(first.start), NEAR), None, "not where the file goes on");
    assert_eq!(rig.alloc.take_zeroed(2, Some(next), NEAR), Some(Run { start: next, len: 2 }));
    assert_eq!(rig.alloc.counters().free, before.free, "they are still free");
}

/// Each refill is twice as long, and nothing is zeroed for nobody.
#[test]
fn as_many_as_are_used() {
    let rig = clean("-t ext4 -b 4096", "64M");
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert_eq!(rig.alloc.shared.windows.blocks(), 0);
    filled(&rig);
    let mut held = vec![rig.alloc.shared.windows.blocks()];
    for _ in 0..60 {
        for _ in 0..4 {
            let _ = rig.alloc.take_zeroed(4, None, NEAR);
        }
        rig.alloc.refill_zeroed(&*rig.disk).unwrap();
        rig.journal.flush_data().unwrap();
        held.push(rig.alloc.shared.windows.blocks());
    }
    assert_eq!(held[0], 28, "32 at first");
    let most = *held.iter().max().unwrap();
    assert!((256..=512).contains(&most), "{held:?}");
}

/// Who is short of space gets them, and then they are nobody's any more.
#[test]
fn given_back_under_pressure() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    filled(&rig);
    let mut taken = 0;
    while let Ok(run) = rig.alloc.take(BlockNr(1), 8192, 1) {
        taken += u64::from(run.len);
    }
    assert_eq!(taken, rig.alloc.counters().free - 4, "all but those that were handed out");
    assert_eq!(rig.alloc.take_zeroed(1, None, NEAR), None);
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert_eq!(rig.alloc.shared.windows.blocks(), 0, "nothing is left to take");
}

/// A file that grows: what its window holds is zeroed, a part at a time, and used behind a flush.
#[test]
fn ahead_of_a_growing_file() {
    let rig = clean("-t ext4 -b 4096", "64M");
    let garbage = vec![0xA5; 512 * 4096];
    rig.disk.write_at(&garbage, NEAR.offset(rig.geo.block_size)).unwrap();
    let mut window = Window::default();
    let (first, zeroed) = rig.alloc.take_for_synced(&mut window, NEAR, 1).unwrap();
    assert!(!zeroed);
    rig.alloc.zero_ahead(&window, &*rig.disk).unwrap();
    assert_eq!(rig.journal.stats().flushes, 0, "nothing is held for a first piece");
    let (second, zeroed) = rig.alloc.take_for_synced(&mut window, first.end(), 1).unwrap();
    assert!(!zeroed && window.blocks() == 8);
    rig.alloc.zero_ahead(&window, &*rig.disk).unwrap();
    let ahead = Run { start: second.end(), len: 8 };
    assert!(bytes_at(&rig, ahead).iter().all(|b| *b == 0));
    let (third, zeroed) = rig.alloc.take_for_synced(&mut window, second.end(), 1).unwrap();
    assert!(!zeroed, "its zeros are on their way");
    rig.journal.flush_data().unwrap();
    assert_eq!(rig.alloc.take_zeroed_for(&mut window, third.end(), 1, true), None, "the window goes first");
    let mut at = third.end();
    let mut trips = Vec::new();
    for _ in 0..120 {
        let (run, zeroed) = rig.alloc.take_for_synced(&mut window, at, 1).unwrap();
        trips.push(if zeroed { 1 } else { 2 });
        rig.alloc.zero_ahead(&window, &*rig.disk).unwrap();
        rig.journal.flush_data().unwrap();
        at = run.end();
    }
    let two: Vec<usize> = (0..120).filter(|i| trips[*i] == 2).collect();
    assert_eq!(two, [7, 24, 57], "only the first piece of a new window: {trips:?}");
}

/// Who is short of space empties the window, and then nothing that it held is taken for zeros.
#[test]
fn an_emptied_window_holds_no_zeros() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    let mut window = Window::default();
    let (first, _) = rig.alloc.take_for_synced(&mut window, NEAR, 1).unwrap();
    let (second, _) = rig.alloc.take_for_synced(&mut window, first.end(), 1).unwrap();
    rig.alloc.zero_ahead(&window, &*rig.disk).unwrap();
    rig.journal.flush_data().unwrap();
    let mut taken = Vec::new();
    while let Ok(run) = rig.alloc.take(BlockNr(1), 8192, 1) {
        taken.push(run);
    }
    assert_eq!(window.blocks(), 0);
    rig.alloc.zero_ahead(&window, &*rig.disk).unwrap();
    // Somebody wrote there meanwhile, and gave it back.
    taken.drain(..).for_each(|run| rig.alloc.give_back(run));
    let (again, zeroed) = rig.alloc.take_for_synced(&mut window, second.end(), 1).unwrap();
    assert_eq!(again.start, second.end(), "the same place");
    assert!(!zeroed);
}
