//! What a device holds, and tables of partitions.
//!
//! An input is a size and a list of places with their bytes: `SIZE PLACE LENGTH BYTES… PLACE …`.
//! SIZE is one byte, in units of 64 KiB. A place is two bytes: quarters of sectors from the start,
//! or, with the highest bit, from the end. So an input of a few hundred bytes fills every corner of
//! a device.
//!
//! | target | what holds |
//! |---|---|
//! | `container` | an Android sparse image is refused, or can be read from end to end |
//! | `identify` | nothing panics, and what is said of a device is one line |
//! | `qcow2` | an image is refused, or behaves as a device; one that can be written to keeps what was written, and can be written to again |
//! | `vmdk` | an image is refused, or behaves as a device |
//! | `vhdx` | the same, with the sums of the image and of the entries of its log made right |
//! | `partition_table` | the same, with the sums of a GPT made right; partitions have places, numbers of their own, and a bound |

use std::sync::Arc;

use extol_block::open::{
    AndroidSparse, Found, Qcow2, Slice, Vhdx, Vmdk, explain_device, identify as found, member,
    superblock_copy,
};
use extol_block::{BlockDevice, MemDevice, SharedDevice};
use extol_devices::OnlyRead;

const UNIT: u64 = 64 << 10;
const PLACE: u64 = 128;

/// The device that an input describes.
fn device(input: &[u8]) -> Option<MemDevice> {
    let (size, mut rest) = input.split_first()?;
    let device = MemDevice::new((u64::from(*size) + 1) * UNIT);
    while let [low, high, len, more @ ..] = rest {
        let place = u64::from(u16::from_le_bytes([*low, *high & 0x7F])) * PLACE;
        let from_end = *high & 0x80 != 0;
        let (bytes, more) = more.split_at(more.len().min(usize::from(*len)));
        let at = if from_end { device.size().checked_sub(place) } else { Some(place) };
        // (What is not on the device is left out.)
        let _ = at.map(|at| device.write_at(bytes, at));
        rest = more;
    }
    Some(device)
}

/// What is said of any device.
pub(super) fn identify(input: &[u8]) {
    let Some(device) = device(input) else { return };
    let what = found(&device);
    let said = what.to_string();
    assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
    assert_eq!(what.contents().is_some(), !matches!(what, Found::Zeros | Found::Unknown));
    if let Some(known) = member(&device) {
        assert_eq!(what, Found::Known(known), "what it belongs to comes first");
    }
    if let Some((block, size)) = superblock_copy(&device) {
        assert!(block * size < device.size());
    }
    let explained = explain_device(&device, "disk.img", "disk.img", true);
    let is_volume = matches!(what, Found::Ext(_) | Found::Journal);
    assert!(!is_volume || explained.is_none(), "{explained:?}");
    if matches!(what, Found::Known(_) | Found::Table(_))
        && let Some(line) = explained
    {
        assert!(!line.contains("e2fsck"), "{line}");
    }
    table(&device, &what);
}

/// What is packed: the bytes of a file as they are.
pub(super) fn container(input: &[u8]) {
    let file: SharedDevice = Arc::new(MemDevice::from_bytes(input));
    let Ok(image) = AndroidSparse::new(file) else { return };
    let size = image.size();
    let mut buf = vec![0xEE; 70_000];
    let places = [0, 1, size / 3, size.saturating_sub(70_000), size.saturating_sub(1)];
    for at in places.into_iter().filter(|at| *at <= size) {
        let len = usize::try_from(size.saturating_sub(at)).unwrap_or(buf.len()).min(buf.len());
        let part = &mut buf[..len];
        assert!(image.read_at(part, at).is_ok(), "{at} {len}");
        // The same byte by byte.
        for n in [0, len / 2, len.saturating_sub(1)] {
            let mut one = [0];
            if let Some(byte) = part.get(n) {
                assert!(image.read_at(&mut one, at + n as u64).is_ok() && one == [*byte]);
            }
        }
    }
    assert!(image.read_at(&mut [0], size).is_err() && image.write_at(&[0], 0).is_err());
}

/// Reads at some places of a disk, which may be large. Reading twice gives the same.
fn read_some(image: &dyn BlockDevice) {
    let size = image.size();
    let places = [0, 511, 65_000, size / 3, size / 2, size.saturating_sub(3000)];
    for at in places.into_iter().filter(|at| *at < size) {
        let len = usize::try_from(size - at).unwrap_or(usize::MAX).min(140_000);
        let (mut one, mut two) = (vec![0xEE; len], vec![0x11; len]);
        let is_read = image.read_at(&mut one, at).is_ok();
        assert_eq!(is_read, image.read_at(&mut two, at).is_ok());
        assert!(!is_read || one == two, "{at}");
    }
    assert!(image.read_at(&mut [0], size).is_err());
}

pub(super) fn qcow2(input: &[u8]) {
    let Some(device) = device(input) else { return };
    let below: SharedDevice = Arc::new(MemDevice::from_bytes(&[7; 70_000]));
    if let Ok(image) = Qcow2::new(Arc::new(OnlyRead(device.snapshot())), Some(below)) {
        read_some(&image);
    }
    let device = Arc::new(device);
    let Ok(image) = Qcow2::new(device.clone(), None) else { return };
    read_some(&image);
    let size = image.size();
    let mut kept = Vec::new();
    for (n, at) in (1..).zip([0, 70_000, size / 2, size.saturating_sub(600)]) {
        let len = usize::try_from(size.saturating_sub(at)).unwrap_or(600).min(600);
        if image.write_at(&vec![n; len], at).is_ok() {
            kept.retain(|(other, len, _): &(u64, usize, u8)| other + *len as u64 <= at);
            kept.push((at, len, n));
        }
    }
    let _ = image.discard(size / 3, size / 100);
    let _ = image.zero_range(size / 4, (size / 100).min(1 << 20));
    if image.flush().is_err() {
        return;
    }
    let emptied = size / 4..size / 3 + size / 100 + (1 << 20);
    drop(image);
    let image = Qcow2::new(device, None).expect("it can be written to again");
    let stays =
        |(at, len, _): &(u64, usize, u8)| at + *len as u64 <= emptied.start || *at >= emptied.end;
    for (at, len, n) in kept.into_iter().filter(stays) {
        let mut buf = vec![0; len];
        image.read_at(&mut buf, at).expect("what was written");
        assert!(buf.iter().all(|byte| *byte == n), "{at}");
    }
}

pub(super) fn vmdk(input: &[u8]) {
    let Some(device) = device(input) else { return };
    if let Ok(image) = Vmdk::new(Arc::new(OnlyRead(device))) {
        read_some(&image);
    }
}

pub(super) fn vhdx(input: &[u8]) {
    let Some(device) = device(input) else { return };
    for (at, len) in [(64, 4096), (128, 4096), (192, 65_536), (256, 65_536)] {
        seal_part(&device, at << 10, len);
    }
    for header in [64 << 10, 128 << 10] {
        seal_log(&device, header);
    }
    if let Ok(image) = Vhdx::new(Arc::new(OnlyRead(device))) {
        read_some(&image);
    }
}

/// Makes the sum of a part of a VHDX image right.
fn seal_part(device: &MemDevice, at: u64, len: usize) {
    let mut bytes = vec![0; len];
    if device.read_at(&mut bytes, at).is_ok() {
        bytes[4..8].fill(0);
        let sum = !extol_ondisk::checksum::crc32c(!0, &bytes);
        let _ = device.write_at(&sum.to_le_bytes(), at + 4);
    }
}

/// Makes the sums of the entries right in the log that a header names, which may go on at its
/// start.
fn seal_log(device: &MemDevice, header: u64) {
    let mut place = [0; 12];
    if device.read_at(&mut place, header + 68).is_err() {
        return;
    }
    let [len, low, high] = [0, 4, 8].map(|at| {
        u64::from(u32::from_le_bytes([place[at], place[at + 1], place[at + 2], place[at + 3]]))
    });
    let at = high << 32 | low;
    let mut log = vec![0; usize::try_from(len.min(device.size())).unwrap_or(0)];
    if !log.len().is_multiple_of(4096) || device.read_at(&mut log, at).is_err() {
        return;
    }
    for entry in (0..log.len()).step_by(4096).filter(|at| log[*at..].starts_with(b"loge")) {
        let len = u32::from_le_bytes([8, 9, 10, 11].map(|n| log[entry + n])) as usize;
        if len < 8 || len > log.len() {
            continue;
        }
        let mut bytes = [&log[entry..], &log[..entry]].concat();
        bytes.truncate(len);
        bytes[4..8].fill(0);
        let sum = !extol_ondisk::checksum::crc32c(!0, &bytes);
        let _ = device.write_at(&sum.to_le_bytes(), at + entry as u64 + 4);
    }
}

/// Tables of partitions, of which the sums are right.
pub(super) fn partition_table(input: &[u8]) {
    let Some(device) = device(input) else { return };
    for sector in [512, 4096] {
        for lba in [1, (device.size() / sector) - 1] {
            seal(&device, sector, lba);
        }
    }
    let what = found(&device);
    table(&device, &what);
}

fn table(device: &MemDevice, what: &Found) {
    let Found::Table(table) = what else { return };
    assert!(table.parts.len() <= 256, "{}", table.parts.len());
    let shared: SharedDevice = Arc::new(device.snapshot());
    let mut last = 0;
    for part in &table.parts {
        assert!(part.number > last, "{part:?}");
        last = part.number;
        assert!(part.start > 0 && part.start.checked_add(part.len).is_some(), "{part:?}");
        let slice = Slice::new(Arc::clone(&shared), part.start, part.len);
        assert!(slice.size() <= part.len && slice.size() <= device.size(), "{part:?}");
        let found = table.find(device, std::ffi::OsStr::new(&part.number.to_string()));
        assert_eq!(found, Ok(part));
    }
    assert!(!table.to_string().contains('\n'));
}

/// Makes the sums of a GPT right, as far as its numbers are possible.
fn seal(device: &MemDevice, sector: u64, lba: u64) {
    let mut header = [0; 512];
    let at = lba * sector;
    if device.read_at(&mut header, at).is_err() || !header.starts_with(b"EFI PART") {
        return;
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
    let (entries, size) = (u64::from(number(80)), u64::from(number(84)));
    let place = u64::from(number(72)).saturating_mul(sector);
    let mut table = vec![0; usize::try_from((entries * size).min(1 << 18)).unwrap_or(0)];
    if device.read_at(&mut table, place).is_ok() {
        let sum = crc32(&table).to_le_bytes();
        header[88..92].copy_from_slice(&sum);
    }
    header[24..32].copy_from_slice(&lba.to_le_bytes());
    let len = usize::try_from(u32::from_le_bytes(header[12..16].try_into().expect("four")));
    header[16..20].fill(0);
    if let Some(covered) = len.ok().and_then(|len| header.get(..len)) {
        let sum = crc32(covered).to_le_bytes();
        header[16..20].copy_from_slice(&sum);
    }
    let _ = device.write_at(&header, at);
}

/// CRC-32, bit by bit: another implementation than that under test.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 }
        })
    })
}
