//! Zeroed blocks: when they may be used, where they lie, and that they are nobody's loss.

use super::*;

const NEAR: BlockNr = BlockNr(3000);

fn zeroed(rig: &Rig, want: u32, at: Option<BlockNr>) -> Option<Run> {
    rig.alloc.shared.take_zeroed(want, want, at, NEAR)
}

fn filled(rig: &Rig) -> Run {
    assert_eq!(zeroed(rig, 4, None), None, "there were none");
    assert!(rig.alloc.wants_zeroed());
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert!(!rig.alloc.wants_zeroed());
    assert_eq!(zeroed(rig, 4, None), None, "their zeros are on their way");
    rig.journal.flush_data().unwrap();
    zeroed(rig, 4, None).expect("zeroed blocks")
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
    assert_eq!(zeroed(&rig, 2, None).unwrap().start, first.end());
    let next = first.end().plus(2);
    assert_eq!(zeroed(&rig, 2, Some(first.start)), None, "not where the file goes on");
    assert_eq!(zeroed(&rig, 2, Some(next)), Some(Run { start: next, len: 2 }));
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
            let _ = zeroed(&rig, 4, None);
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
    assert_eq!(zeroed(&rig, 1, None), None);
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert_eq!(rig.alloc.shared.windows.blocks(), 0, "nothing is left to take");
}
