//! The GUID partition table.

use std::ops::Range;

use extol_ondisk::superblock::uuid_text;

use super::{MOST, Partition, Record, Table, TableKind, le32, le64};
use crate::BlockDevice;
use crate::open::found::Found;

const HEADER_LEN: usize = 92;
const MOST_ENTRIES: u32 = 1024;
const ENTRY_SIZES: std::ops::RangeInclusive<u32> = 128..=4096;

/// A header whose checksum and numbers are right.
struct Header {
    sector: u64,
    /// Its own sector.
    here: u64,
    entries_at: u64,
    entries: u32,
    entry_size: u32,
    entries_sum: u32,
    first_usable: u64,
    last_usable: u64,
    /// Where the other one is.
    other: u64,
}

/// The table of the first size of sectors for which there is one: the first one of the device, else
/// its copy.
pub(super) fn read(device: &dyn BlockDevice, sectors: &[u64], is_hybrid: bool) -> Option<Table> {
    let gpt = |parts| Table { kind: TableKind::Gpt, parts, is_hybrid, ..Table::default() };
    if let Some((header, parts)) = sectors.iter().find_map(|sector| table(device, *sector, 1)) {
        let copy = table(device, header.sector, header.other);
        let copy_is_damaged = copy.is_none();
        let copy =
            copy.or_else(|| table(device, header.sector, last_sector(device, header.sector)?));
        let mut records = header.records(Record::First).to_vec();
        if let Some((copy, _)) = copy {
            records.extend(copy.records(Record::Copy));
        }
        return Some(Table { copy_is_damaged, records, ..gpt(parts) });
    }
    let last = |sector: &u64| table(device, *sector, last_sector(device, *sector)?);
    let (copy, parts) = sectors.iter().find_map(last)?;
    let mut records = vec![(Record::First, 0..copy.sector)];
    records.extend(copy.records(Record::Copy));
    Some(Table { is_copy: true, records, ..gpt(parts) })
}

fn last_sector(device: &dyn BlockDevice, sector: u64) -> Option<u64> {
    (device.size() / sector).checked_sub(1)
}

impl Header {
    /// Where it is, with the protective MBR before the first one, and where its entries are.
    fn records(&self, record: Record) -> [(Record, Range<u64>); 2] {
        let lba = self.here;
        let start = if lba == 1 { 0 } else { lba * self.sector };
        let entries_at = self.entries_at * self.sector;
        let len = u64::from(self.entries) * u64::from(self.entry_size);
        let end = entries_at + len.next_multiple_of(self.sector);
        [(record, start..(lba + 1) * self.sector), (record, entries_at..end)]
    }
}

fn table(device: &dyn BlockDevice, sector: u64, lba: u64) -> Option<(Header, Vec<Partition>)> {
    let header = header(device, sector, lba)?;
    let size = header.entry_size as usize;
    let mut entries = vec![0; size * header.entries as usize];
    device.read_at(&mut entries, header.entries_at * sector).ok()?;
    if crc32(&entries) != header.entries_sum {
        return None;
    }
    let numbered = (1..).zip(entries.chunks_exact(size));
    let parts = numbered.filter_map(|(number, entry)| partition(&header, number, entry));
    let parts = parts.take(MOST).collect();
    Some((header, parts))
}

fn header(device: &dyn BlockDevice, sector: u64, lba: u64) -> Option<Header> {
    let mut bytes = vec![0; 512];
    device.read_at(&mut bytes, lba.checked_mul(sector)?).ok()?;
    let len = le32(&bytes, 12) as usize;
    if !bytes.starts_with(b"EFI PART") || !(HEADER_LEN..=512).contains(&len) {
        return None;
    }
    let sum = le32(&bytes, 16);
    bytes.get_mut(16..20)?.fill(0);
    if crc32(bytes.get(..len)?) != sum || le64(&bytes, 24) != lba {
        return None;
    }
    let header = Header {
        sector,
        here: lba,
        entries_at: le64(&bytes, 72),
        entries: le32(&bytes, 80),
        entry_size: le32(&bytes, 84),
        entries_sum: le32(&bytes, 88),
        first_usable: le64(&bytes, 40),
        last_usable: le64(&bytes, 48),
        other: le64(&bytes, 32),
    };
    let table_len = u64::from(header.entries) * u64::from(header.entry_size);
    let end = header.entries_at.checked_mul(sector)?.checked_add(table_len)?;
    let is_sound = header.entries <= MOST_ENTRIES
        && ENTRY_SIZES.contains(&header.entry_size)
        && header.entry_size.is_multiple_of(8)
        && header.entries_at >= 2
        && end <= device.size()
        // (Sectors 0 and 1 are the protective MBR and the first header.)
        && header.first_usable >= 2
        && header.first_usable <= header.last_usable;
    is_sound.then_some(header)
}

/// A used entry whose place is between the table and its copy.
fn partition(header: &Header, number: u32, entry: &[u8]) -> Option<Partition> {
    let kind = guid(entry.get(..16)?)?;
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    if first < header.first_usable || last < first || last > header.last_usable {
        return None;
    }
    let end = last.checked_add(1)?.checked_mul(header.sector)?;
    let start = first * header.sector;
    let name = entry.get(56..128)?.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let name: Vec<u16> = name.take_while(|unit| *unit != 0).collect();
    Some(Partition {
        number,
        start,
        len: end - start,
        type_id: kind,
        name: String::from_utf16_lossy(&name),
        uuid: guid(entry.get(16..32)?).unwrap_or_default(),
        found: Found::Unknown,
    })
}

/// A GUID as text; its first three fields are little-endian. `None`: all zeros.
fn guid(bytes: &[u8]) -> Option<String> {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut ordered = [0; 16];
    for (byte, at) in ordered.iter_mut().zip(ORDER) {
        *byte = *bytes.get(at)?;
    }
    Some(uuid_text(&ordered))
}

/// CRC-32 as zlib and GPT have it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut value = n as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xEDB8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum: u32, byte| {
        let [low, ..] = sum.to_le_bytes();
        sum >> 8 ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn checksums_are_those_of_zlib() {
        assert_eq!(super::crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(super::crc32(b""), 0);
    }
}
