//! The GUID partition table.

use std::ops::Range;

use extol_ondisk::superblock::uuid_text;

use super::resize::Step;
use super::{MOST, Partition, Record, Table, TableKind, le32, le64, mbr};
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

/// A GPT as its bytes, to be changed.
pub(super) struct Gpt {
    header: Header,
    /// The sector of the first header.
    header_bytes: Vec<u8>,
    entries: Vec<u8>,
    /// The place of a sound copy: its header and its entries.
    copy: Option<(u64, u64)>,
    /// The sector of the protective MBR.
    mbr: Vec<u8>,
}

impl Gpt {
    /// The first GPT of a disk. `None`: it is damaged, or there is none.
    pub(super) fn read(device: &dyn BlockDevice) -> Option<Self> {
        let sizes = [device.table_sector(), 512, 4096];
        let (header, _) = sizes.iter().find_map(|sector| table(device, *sector, 1))?;
        let mut header_bytes = vec![0; usize::try_from(header.sector).ok()?];
        device.read_at(&mut header_bytes, header.sector).ok()?;
        let mut entries = vec![0; header.entry_size as usize * header.entries as usize];
        device.read_at(&mut entries, header.entries_at * header.sector).ok()?;
        let copy = table(device, header.sector, header.other).map(|(c, _)| (c.here, c.entries_at));
        let mut mbr = vec![0; header_bytes.len()];
        device.read_at(&mut mbr, 0).ok()?;
        Some(Self { header, header_bytes, entries, copy, mbr })
    }

    pub(super) fn sector(&self) -> u64 {
        self.header.sector
    }

    /// How many entries are in use, those that make no sense among them.
    pub(super) fn used_entries(&self) -> usize {
        let is_used = |entry: &&[u8]| entry.iter().take(16).any(|byte| *byte != 0);
        self.entries.chunks_exact(self.header.entry_size as usize).filter(is_used).count()
    }

    /// Bytes of the copy: entries, then the header in the last sector.
    pub(super) fn copy_len(&self) -> u64 {
        let sector = self.sector();
        (self.entries.len() as u64).next_multiple_of(sector) + sector
    }

    /// Where the copy belongs on a disk of so many bytes, in sectors: its header and its entries. A
    /// sound copy that ends the disk stays.
    fn copy_place(&self, disk: u64) -> Option<(u64, u64)> {
        let last = (disk / self.sector()).checked_sub(1)?;
        let own = self.copy.filter(|(here, entries)| *here == last && entries < here);
        let entries = (last + 1).checked_sub(self.copy_len() / self.sector())?;
        Some(own.unwrap_or((last, entries)))
    }

    /// Where the last partition can end, in bytes, on a disk of so many bytes.
    pub(super) fn usable_end(&self, disk: u64) -> u64 {
        self.copy_place(disk).map_or(0, |(_, entries)| entries.saturating_mul(self.sector()))
    }

    /// The steps after which a partition has so many bytes: the copy (PR-1), the first GPT, and the
    /// protective MBR.
    pub(super) fn with_length(
        &self,
        number: u32,
        bytes: u64,
        disk: u64,
    ) -> Result<Vec<Step>, String> {
        let sector = self.sector();
        let no_entry = || "its partition table has no such entry".to_owned();
        let no_room = || "its disk has no room for a copy of the partition table".to_owned();
        let size = self.header.entry_size as usize;
        let mut entries = self.entries.clone();
        let at = (number as usize).checked_sub(1).and_then(|n| n.checked_mul(size));
        let entry = at.and_then(|at| entries.get_mut(at..at.checked_add(size)?));
        let entry = entry.ok_or_else(no_entry)?;
        let last = (le64(entry, 32) + bytes / sector).checked_sub(1).ok_or_else(no_entry)?;
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        let (copy_at, copy_entries) = self.copy_place(disk).ok_or_else(no_room)?;
        let moves = self.copy.is_none_or(|(here, _)| here != copy_at);
        let usable = match moves || last > self.header.last_usable {
            true => copy_entries.checked_sub(1).ok_or_else(no_room)?,
            false => self.header.last_usable,
        };
        let first = self.header_with(&entries, usable, (1, copy_at), self.header.entries_at);
        let copy = self.header_with(&entries, usable, (copy_at, 1), copy_entries);
        let mut steps = vec![
            vec![(copy_entries * sector, entries.clone()), (copy_at * sector, copy)],
            vec![(self.header.entries_at * sector, entries), (sector, first)],
        ];
        if moves {
            // (A protective entry counts the sectors of the disk, as far as it can.)
            let sectors = u32::try_from(disk / sector - 1).unwrap_or(u32::MAX);
            steps.push(vec![(0, mbr::with_protective_length(&self.mbr, sectors))]);
        }
        Ok(steps)
    }

    /// A sector with a header: for these entries, which begin at `entries_at`; `here` is its place
    /// and that of the other one.
    fn header_with(
        &self,
        entries: &[u8],
        last_usable: u64,
        here: (u64, u64),
        entries_at: u64,
    ) -> Vec<u8> {
        let mut bytes = self.header_bytes.clone();
        let len = le32(&bytes, 12) as usize;
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(16, &[0; 4]);
        put(24, &here.0.to_le_bytes());
        put(32, &here.1.to_le_bytes());
        put(48, &last_usable.to_le_bytes());
        put(72, &entries_at.to_le_bytes());
        put(88, &crc32(entries).to_le_bytes());
        let sum = crc32(bytes.get(..len).unwrap_or_default());
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
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
