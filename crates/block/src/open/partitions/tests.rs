//! Tables built by hand. What programs make of them is compared in testing/e2e/open.

use super::*;
use crate::MemDevice;

const SIZE: u64 = 4 << 20;

fn disk() -> MemDevice {
    MemDevice::new(SIZE)
}

/// An entry of an MBR: type, first sector, sectors.
fn entry(device: &MemDevice, at: u64, n: u64, (kind, start, sectors): (u8, u32, u32)) {
    let mut bytes = [0; 16];
    bytes[4] = kind;
    bytes[8..12].copy_from_slice(&start.to_le_bytes());
    bytes[12..].copy_from_slice(&sectors.to_le_bytes());
    device.write_at(&bytes, at + 446 + 16 * n).unwrap();
    device.write_at(&[0x55, 0xAA], at + 510).unwrap();
}

fn places(table: &Table) -> Vec<(u32, u64, u64)> {
    table.parts.iter().map(|part| (part.number, part.start / 512, part.len / 512)).collect()
}

#[test]
fn logical_partitions_follow_their_chain() {
    let device = disk();
    entry(&device, 0, 0, (0x83, 64, 100));
    entry(&device, 0, 1, (0x05, 1000, 4000));
    device.write_at(&[1, 2, 3, 4], 440).unwrap();
    for (record, next) in [(1000_u32, Some(1500)), (1500, Some(2000)), (2000, None)] {
        entry(&device, u64::from(record) * 512, 0, (0x83, 10, 50));
        if let Some(next) = next {
            entry(&device, u64::from(record) * 512, 1, (0x05, next - 1000, 500));
        }
    }
    let table = read_table(&device).unwrap();
    let logical = [(5, 1010, 50), (6, 1510, 50), (7, 2010, 50)];
    assert_eq!(places(&table), [&[(1, 64, 100), (2, 1000, 4000)][..], &logical].concat());
    assert_eq!((table.kind, &*table.parts[2].uuid), (TableKind::Mbr, "04030201-05"));

    // A chain that turns back, and one that leaves its partition, end there.
    for next in [0, 500, u32::MAX] {
        entry(&device, 1500 * 512, 1, (0x05, next, 500));
        assert_eq!(places(&read_table(&device).unwrap()).len(), 4, "{next}");
    }
    // A logical partition that leaves the extended one is none.
    entry(&device, 1000 * 512, 0, (0x83, 10, u32::MAX));
    assert_eq!(read_table(&device).unwrap().parts.len(), 3);
}

/// A disk of sectors of 4096 bytes.
#[derive(Debug)]
struct BigSectors {
    inner: MemDevice,
}

impl BlockDevice for BigSectors {
    crate::pass_on!(reads, writes, ends);

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn table_sector(&self) -> u64 {
        4096
    }
}

#[test]
fn a_table_counts_in_the_sectors_of_its_device() {
    let inner = disk();
    entry(&inner, 0, 0, (0x83, 64, 100));
    entry(&inner, 0, 1, (0x05, 200, 400));
    entry(&inner, 200 * 4096, 0, (0x83, 10, 50));
    let small = read_table(&inner).unwrap();
    assert_eq!(places(&small), [(1, 64, 100), (2, 200, 400)]);
    let disk: crate::SharedDevice = std::sync::Arc::new(BigSectors { inner });
    let all = [(1, 64 * 8, 100 * 8), (2, 200 * 8, 400 * 8), (5, 210 * 8, 50 * 8)];
    assert_eq!(places(&read_table(&*disk).unwrap()), all);
    // What is shown, and what is said.
    let Found::Table(shown) = crate::open::identify(&*disk) else { panic!("no table") };
    assert_eq!(places(&shown), all);
    let said = crate::open::explain_device(&*disk, "d", "d", true).unwrap();
    assert!(said.contains("partitions 1 (Linux), 2 (extended) and 5 (Linux)"), "{said}");
    // A device over it has the same sectors.
    let over = crate::open::Slice::new(disk, 0, SIZE);
    assert_eq!(places(&read_table(&over).unwrap()), all);
}

#[test]
fn what_is_no_table_is_none() {
    let device = disk();
    assert_eq!(read_table(&device), None);
    // A boot sector: its bytes are code, or there is no entry and no signature.
    device.write_at(&[0x55, 0xAA], 510).unwrap();
    assert_eq!(read_table(&device), None);
    entry(&device, 0, 0, (0x83, 64, 100));
    assert!(read_table(&device).is_some());
    device.write_at(&[0x33], 446).unwrap();
    assert_eq!(read_table(&device), None, "no flag is so");
    // A partition behind the end, and one at the table itself.
    for start in [0, 9000, u32::MAX] {
        let device = disk();
        entry(&device, 0, 0, (0x83, start, 100));
        assert_eq!(read_table(&device), None, "{start}");
    }
    assert_eq!(read_table(&MemDevice::new(100)), None);
}

/// A GPT with one partition; `sector` is the size of sectors.
fn gpt(device: &MemDevice, sector: u64, first: u64, last: u64) {
    entry(device, 0, 0, (0xEE, 1, u32::MAX));
    let mut entries = vec![0; 128 * 128];
    entries[..16].copy_from_slice(&[0xAF; 16]);
    entries[16..32].copy_from_slice(&[7; 16]);
    entries[32..40].copy_from_slice(&first.to_le_bytes());
    entries[40..48].copy_from_slice(&last.to_le_bytes());
    for (n, unit) in "root".encode_utf16().enumerate() {
        entries[56 + 2 * n..58 + 2 * n].copy_from_slice(&unit.to_le_bytes());
    }
    let end = SIZE / sector - 1;
    let table_len = (128 * 128_u64).div_ceil(sector);
    for (here, table) in [(1, 2), (end, end - table_len)] {
        header(device, sector, here, table, &entries, |_| {});
        device.write_at(&entries, table * sector).unwrap();
    }
}

fn header(
    device: &MemDevice,
    sector: u64,
    here: u64,
    table: u64,
    entries: &[u8],
    change: impl Fn(&mut [u8]),
) {
    let end = SIZE / sector - 1;
    let mut bytes = vec![0; 92];
    bytes[..8].copy_from_slice(b"EFI PART");
    bytes[12] = 92;
    bytes[24..32].copy_from_slice(&here.to_le_bytes());
    bytes[40..48].copy_from_slice(&34_u64.to_le_bytes());
    bytes[48..56].copy_from_slice(&(end - 34).to_le_bytes());
    bytes[72..80].copy_from_slice(&table.to_le_bytes());
    bytes[80] = 128;
    bytes[84] = 128;
    bytes[88..].copy_from_slice(&gpt::crc32(entries).to_le_bytes());
    change(&mut bytes);
    let sum = gpt::crc32(&bytes);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    device.write_at(&bytes, here * sector).unwrap();
}

#[test]
fn a_gpt_is_read_or_its_copy() {
    for sector in [512, 4096] {
        let device = disk();
        gpt(&device, sector, 40, 99);
        let table = read_table(&device).unwrap();
        let part = &table.parts[0];
        assert_eq!((part.number, part.start, part.len), (1, 40 * sector, 60 * sector));
        assert_eq!((&*part.name, table.is_copy, table.is_hybrid), ("root", false, false));
        assert_eq!(part.uuid, "07070707-0707-0707-0707-070707070707");
        device.write_at(&[0xFF], sector + 20).unwrap();
        let copy = read_table(&device).unwrap();
        assert_eq!((copy.is_copy, &copy.parts), (true, &table.parts));
        // Without the protective entry it is not in force.
        device.write_at(&[0], 450).unwrap();
        assert_eq!(read_table(&device), None);
    }
    let device = disk();
    gpt(&device, 512, 40, 99);
    entry(&device, 0, 1, (0x83, 40, 60));
    let table = read_table(&device).unwrap();
    assert!(table.is_hybrid && table.parts.len() == 1 && table.kind == TableKind::Gpt);
}

/// Everything that a range of a disk has of others is named, and a part ends before it.
#[test]
fn a_part_ends_before_what_belongs_to_the_disk() {
    const FIRST: &str = "the partition table";
    const COPY: &str = "the copy of the partition table at the end of the disk";
    for sector in [512, 4096] {
        let device = disk();
        gpt(&device, sector, 40, 99);
        let at = |sectors: std::ops::Range<u64>| {
            in_range(&device, &(sectors.start * sector..sectors.end * sector))
        };
        let end = SIZE / sector;
        let copy = end - 1 - (128 * 128_u64).div_ceil(sector);
        assert_eq!(at(100..copy), [""; 0]);
        assert_eq!(at(40..100), [""; 0], "the partition itself");
        assert_eq!(at(40..60), [""; 0], "its start");
        assert_eq!(at(50..60), ["a piece of partition 1 (root)"]);
        assert_eq!(at(100..copy + 1), [COPY]);
        assert_eq!(at(end - 1..end), [COPY]);
        assert_eq!(at(0..1), [FIRST]);
        assert_eq!(at(2..3), [FIRST]);
        assert_eq!(at(0..end).len(), 3);
        let ends = |from: u64| {
            read_table(&device).unwrap().end_behind(from * sector).map(|end| end / sector)
        };
        assert_eq!(
            [ends(39), ends(50), ends(100), ends(copy)].map(Option::unwrap_or_default),
            [40, 100, copy, end - 1]
        );
        // A copy that is damaged is none; one that the first header does not know of is.
        device.write_at(&[0xFF], (end - 1) * sector + 20).unwrap();
        assert_eq!((at(100..end), ends(100)), (Vec::new(), None));
    }
    let device = disk();
    entry(&device, 0, 0, (0x05, 1000, 4000));
    for (record, next) in [(1000_u32, Some(1500)), (1500, None)] {
        entry(&device, u64::from(record) * 512, 0, (0x83, 10, 50));
        if let Some(next) = next {
            entry(&device, u64::from(record) * 512, 1, (0x05, next - 1000, 500));
        }
    }
    assert_eq!(in_range(&device, &(1100 * 512..1501 * 512)), ["the records of logical partitions"]);
    assert_eq!(read_table(&device).unwrap().end_behind(1100 * 512), Some(1500 * 512));
    assert_eq!(in_range(&device, &(0..512)), [FIRST]);
    assert_eq!(in_range(&disk(), &(0..SIZE)), [""; 0]);
}

type Change<'c> = &'c dyn Fn(&mut [u8]);

/// Numbers that a sound sum vouches for are checked all the same.
#[test]
fn impossible_numbers_are_refused() {
    let device = disk();
    gpt(&device, 512, 40, 99);
    device.write_at(&[0; 512], SIZE - 512).unwrap();
    let mut entries = vec![0; 128 * 128];
    device.read_at(&mut entries, 1024).unwrap();
    let with = |change: Change<'_>| {
        header(&device, 512, 1, 2, &entries, change);
        read_table(&device)
    };
    assert!(with(&|_| {}).is_some());
    let changes: [Change<'_>; 8] = [
        &|bytes| bytes[83] = 0xFF,
        &|bytes| bytes[81] = 0x10,
        &|bytes| bytes[84] = 127,
        &|bytes| bytes[87] = 0x80,
        &|bytes| bytes[72..80].fill(0xFF),
        &|bytes| bytes[72] = 1,
        &|bytes| bytes[40..48].fill(0xFF),
        &|bytes| bytes[24] = 2,
    ];
    for (n, change) in changes.iter().enumerate() {
        assert_eq!(with(change), None, "{n}");
    }
    // A partition over the table itself, behind the end, or turned round.
    for (first, last) in [(2, 99), (40, 39), (40, SIZE / 512), (u64::MAX, u64::MAX)] {
        let device = disk();
        gpt(&device, 512, first, last);
        assert_eq!(read_table(&device).unwrap().parts, [], "{first} {last}");
    }
}

#[test]
fn partitions_are_found_by_number_and_name() {
    let device = disk();
    gpt(&device, 512, 40, 99);
    let table = read_table(&device).unwrap();
    let find = |name: &str| table.find(&device, OsStr::new(name)).map(|part| part.number);
    let uuid = "07070707-0707-0707-0707-070707070707";
    assert_eq!((find("1"), find("root"), find(uuid)), (Ok(1), Ok(1), Ok(1)));
    assert!(find("2").unwrap_err().contains("no partition 2") && find("Root").is_err());
    let mut two = table.clone();
    two.parts.push(Partition { number: 2, ..table.parts[0].clone() });
    let why = two.find(&device, OsStr::new("root")).unwrap_err();
    assert!(why.contains("1 and 2") && why.contains("number"), "{why}");
    assert_eq!(two.to_string(), "a GPT disk with partitions 1 (root) and 2 (root)");
    two.parts = (1..=300).map(|number| Partition { number, ..table.parts[0].clone() }).collect();
    assert!(two.to_string().ends_with(" and 292 more"), "{two}");
}
