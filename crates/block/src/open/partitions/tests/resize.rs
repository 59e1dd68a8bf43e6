//! Partitions get other lengths; the power may be cut at any write.

use std::ffi::OsStr;

use super::super::resize::{Layout, Step};
use super::*;

const SECTOR: u64 = 512;

/// The partitions of a disk that are to be there, as number, first sector and sectors.
type Places = Vec<(u32, u64, u64)>;

/// A GPT with partitions 1 and 2 on a disk of 4 MiB, in another order than that of their numbers.
fn two_in_gpt() -> MemDevice {
    let device = disk();
    gpt(&device, SECTOR, 64, 1063);
    let mut entries = vec![0; 128 * 128];
    device.read_at(&mut entries, 2 * SECTOR).unwrap();
    let (first, rest) = entries.split_at_mut(128);
    rest[..128].copy_from_slice(first);
    rest[16] = 8;
    rest[32..40].copy_from_slice(&3000_u64.to_le_bytes());
    rest[40..48].copy_from_slice(&3999_u64.to_le_bytes());
    let end = SIZE / SECTOR - 1;
    for (here, table) in [(1, 2), (end, end - 32)] {
        header(&device, SECTOR, here, table, &entries, |_| {});
        device.write_at(&entries, table * SECTOR).unwrap();
    }
    assert_eq!(places(&read_table(&device).unwrap()), [(1, 64, 1000), (2, 3000, 1000)]);
    device
}

fn bytes(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn of_bytes(bytes: &[u8]) -> MemDevice {
    let device = MemDevice::new(bytes.len() as u64);
    device.write_at(bytes, 0).unwrap();
    device
}

fn write_sectors(device: &MemDevice, step: &Step, arrives: &mut dyn FnMut() -> bool) {
    for (at, contents) in step {
        for (n, sector) in (0..).zip(contents.chunks(SECTOR as usize)) {
            if arrives() {
                device.write_at(sector, at + n * SECTOR).unwrap();
            }
        }
    }
}

/// Plays a change with a power cut in each step, behind which any of the step's sectors are there.
fn cut_everywhere(device: &MemDevice, part: &str, len: u64, old: &Places, new: &Places) {
    let layout = Layout::read(device, OsStr::new(part)).unwrap();
    let ends: Vec<_> =
        read_table(device).unwrap().parts.iter().map(|p| p.start..p.start + p.len).collect();
    let steps = layout.plan(len, device.size()).unwrap();
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    let mut seen = [0; 2];
    for (done, step) in steps.iter().enumerate() {
        for (at, contents) in step {
            let range = *at..at + contents.len() as u64;
            let is_apart = |part: &Range<u64>| range.end <= part.start || part.end <= range.start;
            assert!(ends.iter().all(is_apart), "PR-3: {range:?} is of a partition");
        }
        for state in 0..200 {
            let cut = of_bytes(&bytes(device));
            steps[..done].iter().for_each(|step| write_sectors(&cut, step, &mut || true));
            let mut left = state;
            let mut in_order = || {
                left -= 1;
                left >= 0
            };
            // Some sectors in their order, or any of them.
            match state {
                0..70 => write_sectors(&cut, step, &mut in_order),
                _ => write_sectors(&cut, step, &mut || next() % 4 > 0),
            }
            let table = read_table(&cut).unwrap_or_else(|| panic!("step {done}, state {state}"));
            let found = places(&table);
            assert!(found == *old || found == *new, "step {done}, state {state}: {found:?}");
            seen[usize::from(found == *new)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "both tables are seen: {seen:?}");
}

#[test]
fn a_cut_leaves_the_old_table_or_the_new_one() {
    let (old, new) = (vec![(1, 64, 1000), (2, 3000, 1000)], vec![(1, 64, 2936), (2, 3000, 1000)]);
    cut_everywhere(&two_in_gpt(), "1", 2936 * SECTOR, &old, &new);
    let new = vec![(1, 64, 1000), (2, 3000, 500)];
    cut_everywhere(&two_in_gpt(), "2", 500 * SECTOR, &old, &new);
    // On a disk that became longer, by less than the copy has and by more, the copy moves.
    for more in [3, 40, 9000] {
        let short = two_in_gpt();
        let device = MemDevice::new(SIZE + more * SECTOR);
        device.write_at(&bytes(&short), 0).unwrap();
        let last = SIZE / SECTOR + more - 33;
        let new = vec![(1, 64, 1000), (2, 3000, last - 3000)];
        cut_everywhere(&device, "2", (last - 3000) * SECTOR, &old, &new);
    }
    let device = disk();
    entry(&device, 0, 0, (0x83, 64, 100));
    entry(&device, 0, 2, (0x83, 1000, 100));
    let old = vec![(1, 64, 100), (3, 1000, 100)];
    cut_everywhere(&device, "1", 936 * SECTOR, &old, &vec![(1, 64, 936), (3, 1000, 100)]);
}

/// What another partition, the disk or the table has no room for is refused, and nothing written.
#[test]
fn what_has_no_room_is_refused() {
    let refused = |device: &MemDevice, part: &str, sectors: u64, words: &str| {
        let before = bytes(device);
        let refused = resize_partition(device, OsStr::new(part), sectors * SECTOR).unwrap_err();
        assert!(refused.contains(words), "{refused}");
        assert!(before == bytes(device), "{refused}");
    };
    let device = two_in_gpt();
    refused(&device, "1", 2937, "partition 1 can have 1503232 bytes at most: partition 2");
    refused(&device, "3", 1, "there is no partition 3");
    let done = resize_partition(&device, OsStr::new("1"), 2936 * SECTOR).unwrap();
    assert_eq!(done, PartitionResized { number: 1, before: 512_000, bytes: 1_503_232 });
    refused(&device, "1", 2937, "partition 1 has no room: partition 2 (");
    // A disk in memory becomes longer.
    resize_partition(&device, OsStr::new("2"), 20_000 * SECTOR).unwrap();
    let table = read_table(&device).unwrap();
    assert_eq!(places(&table), [(1, 64, 2936), (2, 3000, 20_000)]);
    assert!(!table.is_copy && !table.copy_is_damaged);
    assert_eq!(device.size() % (1 << 20), 0);
    // A damaged first table, a hybrid, a logical partition, and numbers of an MBR.
    device.write_at(&[0], 2 * SECTOR).unwrap();
    refused(&device, "2", 5000, "first partition table is damaged");
    let device = two_in_gpt();
    entry(&device, 0, 1, (0x83, 64, 1000));
    refused(&device, "2", 500, "hybrid");
    let device = disk();
    entry(&device, 0, 0, (0x83, 64, 100));
    entry(&device, 0, 1, (0x05, 1000, 4000));
    entry(&device, 1000 * SECTOR, 0, (0x83, 10, 50));
    refused(&device, "5", 60, "sfdisk -N 5");
    refused(&device, "2", 4100, "sfdisk -N 2");
    refused(&device, "1", 937, "partition 2 (extended) follows it");
    let device = disk();
    entry(&device, 0, 0, (0x83, 64, 100));
    refused(&device, "1", u64::from(u32::MAX) + 1, "at most");
}

/// Entries that make no sense may be partitions of others: nothing is moved over them.
#[test]
fn odd_entries_are_refused() {
    let device = two_in_gpt();
    let mut entries = vec![0; 128 * 128];
    device.read_at(&mut entries, 2 * SECTOR).unwrap();
    entries[3 * 128] = 1;
    let end = SIZE / SECTOR - 1;
    for (here, table) in [(1, 2), (end, end - 32)] {
        header(&device, SECTOR, here, table, &entries, |_| {});
        device.write_at(&entries, table * SECTOR).unwrap();
    }
    let refused = resize_partition(&device, OsStr::new("1"), 2000 * SECTOR).unwrap_err();
    assert!(refused.contains("make no sense"), "{refused}");
    let device = disk();
    entry(&device, 0, 0, (0x83, 64, 100));
    entry(&device, 0, 1, (0x83, 100, 100));
    let refused = resize_partition(&device, OsStr::new("1"), 200 * SECTOR).unwrap_err();
    assert!(refused.contains("overlaps"), "{refused}");
}
