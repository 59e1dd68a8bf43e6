//! Zeroed blocks: when they may be used, where they lie, and that none is lost.

use super::*;

const NEAR: BlockNr = BlockNr(3000);

fn zeroed(rig: &Rig, want: u32, at: Option<BlockNr>) -> Option<Run> {
    rig.alloc.take_zeroed(want, want, at, NEAR)
}

fn filled(rig: &Rig) -> Run {
    assert_eq!(zeroed(rig, 4, None), None, "there were none");
    assert!(rig.alloc.wants_zeroed());
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert!(!rig.alloc.wants_zeroed());
    assert_eq!(zeroed(rig, 4, None), None, "no flush has covered their zeros");
    rig.journal.flush_data().unwrap();
    zeroed(rig, 4, None).expect("zeroed blocks")
}

fn bytes_at(rig: &Rig, run: Run) -> Vec<u8> {
    let mut bytes = vec![1; run.len as usize * rig.geo.block_len()];
    rig.disk.read_at(&mut bytes, run.start.offset(rig.geo.block_size)).unwrap();
    bytes
}

/// Takes all blocks; returns how many.
fn take_all(rig: &Rig) -> u64 {
    std::iter::from_fn(|| rig.alloc.take(BlockNr(1), 8192, 1).ok())
        .map(|run| u64::from(run.len))
        .sum()
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

/// A refill is zero to its last byte.
#[test]
fn all_of_them_are_zeros() {
    let rig = clean("-t ext4 -b 4096", "64M");
    let garbage = vec![0xA5; 64 * 4096];
    rig.disk.write_at(&garbage, NEAR.offset(rig.geo.block_size)).unwrap();
    let first = filled(&rig);
    let rest = zeroed(&rig, 28, None).expect("32 at first");
    assert_eq!(rest.start, first.end());
    assert!(bytes_at(&rig, rest).iter().all(|b| *b == 0));
}

/// A device that calls `before` just before zeros are written, which may fail.
struct BeforeZeros<'a> {
    rig: &'a Rig,
    before: &'a (dyn Fn() + Sync),
    fails: bool,
}

impl std::fmt::Debug for BeforeZeros<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeforeZeros").field("fails", &self.fails).finish_non_exhaustive()
    }
}

impl BlockDevice for BeforeZeros<'_> {
    fn size(&self) -> u64 {
        self.rig.disk.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        self.rig.disk.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        (self.before)();
        if self.fails {
            let broken = std::io::Error::other("broken");
            return Err(DeviceError::new(DeviceOp::Write, offset, buf.len() as u64, broken));
        }
        self.rig.disk.write_at(buf, offset)
    }

    fn flush(&self) -> extol_block::Result<()> {
        self.rig.disk.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.rig.disk.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.rig.disk.zero_range(offset, len)
    }
}

/// ZB-1: a flush that began before the zeros were written does not cover them.
#[test]
fn an_earlier_flush_does_not_cover_them() {
    let rig = clean("-t ext4 -b 4096", "64M");
    assert_eq!(zeroed(&rig, 4, None), None);
    let before = || rig.journal.flush_data().unwrap();
    rig.alloc.refill_zeroed(&BeforeZeros { rig: &rig, before: &before, fails: false }).unwrap();
    assert_eq!(zeroed(&rig, 4, None), None, "no flush has covered their zeros");
    rig.journal.flush_data().unwrap();
    assert!(zeroed(&rig, 4, None).is_some());
}

/// Blocks whose zeros could not be written are free, and are not handed out as zeroed.
#[test]
fn those_that_could_not_be_zeroed() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    assert_eq!(zeroed(&rig, 4, None), None);
    rig.alloc.refill_zeroed(&BeforeZeros { rig: &rig, before: &|| {}, fails: true }).unwrap_err();
    rig.journal.flush_data().unwrap();
    assert_eq!((zeroed(&rig, 1, None), rig.alloc.windows.blocks()), (None, 0));
    assert_eq!(take_all(&rig), rig.alloc.counters().free);
}

/// While zeros are being written no request fails for lack of space: it waits, and gets these
/// blocks.
#[test]
fn no_request_fails_meanwhile() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    assert_eq!(zeroed(&rig, 4, None), None);
    let (free, taken) = (rig.alloc.counters().free, AtomicU64::new(0));
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (alloc, taken) = (&rig.alloc, &taken);
        scope.spawn(move || {
            begun.recv().unwrap();
            while let Ok(run) = alloc.take(BlockNr(1), 8192, 1) {
                taken.fetch_add(run.len.into(), Ordering::Relaxed);
            }
        });
        // All but those that are being zeroed.
        let others_are_taken = || {
            begin.send(()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            while taken.load(Ordering::Relaxed) < free - 32 {
                assert!(Instant::now() < deadline, "{taken:?} of {free}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        rig.alloc
            .refill_zeroed(&BeforeZeros { rig: &rig, before: &others_are_taken, fails: false })
            .unwrap();
    });
    assert_eq!(taken.into_inner(), free);
}

/// The rest of a refill that is too short for a request is given back when the next one is ready.
#[test]
fn remains_are_given_back() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    filled(&rig);
    assert!(zeroed(&rig, 26, None).is_some());
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    rig.journal.flush_data().unwrap();
    assert!(zeroed(&rig, 4, None).is_some(), "two are left, and new ones are there");
    assert_eq!(take_all(&rig), rig.alloc.counters().free - 4 - 26 - 4);
}

/// Each refill is twice as long, and nothing is zeroed before a first request.
#[test]
fn refills_follow_the_demand() {
    let rig = clean("-t ext4 -b 4096", "64M");
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert_eq!(rig.alloc.windows.blocks(), 0);
    filled(&rig);
    let mut held = vec![rig.alloc.windows.blocks()];
    for _ in 0..60 {
        for _ in 0..4 {
            let _ = zeroed(&rig, 4, None);
        }
        rig.alloc.refill_zeroed(&*rig.disk).unwrap();
        rig.journal.flush_data().unwrap();
        held.push(rig.alloc.windows.blocks());
    }
    assert_eq!(held[0], 28, "32 at first");
    let most = *held.iter().max().unwrap();
    assert!((256..=512).contains(&most), "{held:?}");
}

/// A request without other space gets the blocks of the pool.
#[test]
fn given_back_under_pressure() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    filled(&rig);
    assert_eq!(take_all(&rig), rig.alloc.counters().free - 4, "all but those that were handed out");
    assert_eq!(zeroed(&rig, 1, None), None);
    rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    assert_eq!(rig.alloc.windows.blocks(), 0, "nothing is left to take");
}
