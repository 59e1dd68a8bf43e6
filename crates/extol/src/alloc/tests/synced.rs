//! Files synced as they grow: in few extents, beside other files, and with zeroed blocks in front.

use super::*;

const NEAR: BlockNr = BlockNr(3000);

fn bytes_at(rig: &Rig, run: Run) -> Vec<u8> {
    let mut bytes = vec![1; run.len as usize * rig.geo.block_len()];
    rig.disk.read_at(&mut bytes, run.start.offset(rig.geo.block_size)).unwrap();
    bytes
}

/// A growing file, with the map that it would have.
#[derive(Default)]
struct Log {
    window: Window,
    map: Vec<Run>,
    /// Pieces with zeroed blocks, and others.
    zeroed: usize,
    other: usize,
}

impl Log {
    fn goal(&self) -> BlockNr {
        self.map.last().map_or(NEAR, |run| run.end())
    }

    /// Appends one piece. Blocks handed out as zeroed are zero on the medium.
    fn append(&mut self, rig: &Rig, want: u32) {
        let mut left = want;
        while left > 0 {
            let piece = Piece {
                want: left,
                goal: self.goal(),
                extents: self.map.len(),
                appends: true,
                small: true,
            };
            let (run, zeroed) = rig.alloc.take_synced(&mut self.window, piece).unwrap();
            if zeroed {
                self.zeroed += 1;
                assert!(bytes_at(rig, run).iter().all(|b| *b == 0), "{run:?} is not zeroed");
            } else {
                self.other += 1;
            }
            let data = vec![0xD7; run.len as usize * rig.geo.block_len()];
            rig.disk.write_at(&data, run.start.offset(rig.geo.block_size)).unwrap();
            rig.alloc.prepare_window(&mut self.window, run.len, &*rig.disk).unwrap();
            match self.map.last_mut() {
                Some(last) if last.end() == run.start => last.len += run.len,
                _ => self.map.push(run),
            }
            left -= run.len;
        }
        rig.journal.flush_data().unwrap();
        rig.alloc.refill_zeroed(&*rig.disk).unwrap();
    }
}

fn rig(size: &str) -> Rig {
    let rig = clean("-t ext4 -b 4096", size);
    let garbage = vec![0xA5; 8192 * 4096];
    rig.disk.write_at(&garbage, NEAR.offset(rig.geo.block_size)).unwrap();
    rig
}

/// Any number of logs with pieces of any length: each stays in the extents of its inode, and nearly
/// all pieces get zeroed blocks.
#[test]
fn side_by_side() {
    for (logs, want, pieces) in
        [(1, 1, 3000), (2, 1, 3000), (5, 3, 600), (24, 2, 120), (300, 1, 40)]
    {
        let rig = rig("512M");
        let mut logs: Vec<Log> = (0..logs).map(|_| Log::default()).collect();
        for _ in 0..pieces {
            logs.iter_mut().for_each(|log| log.append(&rig, want));
        }
        let most = logs.iter().map(|log| log.map.len()).max().unwrap();
        let two: usize = logs.iter().map(|log| log.other).sum();
        let one: usize = logs.iter().map(|log| log.zeroed).sum();
        let what = format!("{} logs, {pieces} pieces of {want}", logs.len());
        assert!(most <= 3, "{what}: {most} extents");
        assert!(
            two < 2 * logs.len() + 8 && one > two * 4,
            "{what}: {one} with zeroed blocks, {two} without"
        );
    }
}

/// Small files packed beside a growing one do not reach it.
#[test]
fn beside_small_files() {
    let rig = rig("512M");
    let mut log = Log::default();
    for nr in 0..2000 {
        log.append(&rig, 1);
        let mut small = Log::default();
        small.append(&rig, 1);
        if nr % 3 == 0 {
            small.append(&rig, 2);
        }
        if nr % 10 == 0 {
            rig.alloc.take(NEAR, 200, 1).unwrap();
        }
    }
    assert!(log.map.len() <= 3, "{:?}", log.map);
    assert!(log.other < 8, "{}", log.other);
}

/// A file with four extents grows in place.
#[test]
fn a_full_map_goes_on_in_place() {
    let rig = rig("64M");
    let mut log = Log {
        map: (0..4).map(|i| Run { start: BlockNr(3000 + 700 * i), len: 1 }).collect(),
        ..Log::default()
    };
    for _ in 0..600 {
        log.append(&rig, 1);
    }
    assert_eq!(log.map.len(), 4);
    assert!(log.other <= 2, "{}", log.other);
}

/// A window lies in one group; the file continues in the next.
#[test]
fn across_groups() {
    let rig = clean("-t ext4 -b 4096 -O ^has_journal", "512M");
    // The pool lies elsewhere.
    Log::default().append(&rig, 1);
    let end = rig.geo.group_first_block(GroupNr(2));
    let mut log = Log { map: vec![Run { start: BlockNr(end.0 - 41), len: 1 }], ..Log::default() };
    for _ in 0..120 {
        log.append(&rig, 1);
    }
    assert_eq!(log.map, [Run { start: BlockNr(end.0 - 41), len: 121 }]);
    log.window.empty();
}

/// Each new log halves the largest free run.
#[test]
fn far_from_each_other() {
    let rig = rig("512M");
    let mut places: Vec<u64> = Vec::new();
    for _ in 0..4 {
        let run = rig.alloc.take_amid(NEAR, 64, 2048).unwrap();
        assert_eq!(rig.geo.group_of_block(run.start), GroupNr(0), "near its inode");
        places.push(run.start.0);
    }
    places.sort_unstable();
    let apart = places.windows(2).map(|two| two[1] - two[0]).min().unwrap();
    assert!(apart > 3500, "{places:?}");
    assert_eq!(rig.alloc.take_amid(NEAR, 64, 40_000), None, "no group has that");
}

/// After a window was emptied under pressure, its blocks do not count as zeroed.
#[test]
fn an_emptied_window_holds_no_zeros() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    let mut log = Log { map: vec![Run { start: NEAR, len: 1 }; 2], ..Log::default() };
    log.append(&rig, 1);
    assert!(log.window.blocks() > 0);
    let mut taken = Vec::new();
    while let Ok(run) = rig.alloc.take(BlockNr(1), 8192, 1) {
        taken.push(run);
    }
    assert_eq!(log.window.blocks(), 0);
    rig.alloc.prepare_window(&mut log.window, 1, &*rig.disk).unwrap();
    // Written and given back.
    for run in taken {
        let data = vec![0x77; run.len as usize * rig.geo.block_len()];
        rig.disk.write_at(&data, run.start.offset(rig.geo.block_size)).unwrap();
        rig.alloc.give_back(run);
    }
    let (end, before) = (log.goal(), log.zeroed);
    log.append(&rig, 1);
    assert_eq!((log.goal(), log.zeroed), (end.plus(1), before), "the same place, and not zeroed");
}

/// Near a full volume nothing is taken ahead, and the last block can be used.
#[test]
fn to_the_last_block() {
    let rig = clean("-t ext4 -b 1024 -O ^has_journal", "8M");
    let mut logs: Vec<Log> = (0..3).map(|_| Log::default()).collect();
    let free = rig.alloc.counters().free;
    let mut used = 0;
    'full: loop {
        for log in &mut logs {
            let piece = Piece {
                want: 1,
                goal: log.goal(),
                extents: log.map.len(),
                appends: true,
                small: true,
            };
            let Ok((run, _)) = rig.alloc.take_synced(&mut log.window, piece) else { break 'full };
            rig.alloc.prepare_window(&mut log.window, 1, &*rig.disk).unwrap();
            log.map.push(run);
            used += u64::from(run.len);
        }
    }
    assert_eq!(used, free);
}
