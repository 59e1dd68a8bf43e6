//! The master boot record, and the chain of extended boot records.

use super::{Partition, Record, Table, TableKind, le32};
use crate::BlockDevice;
use crate::open::found::Found;

/// Most logical partitions.
const MOST_LOGICAL: u32 = 128;
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
const PROTECTIVE: u8 = 0xEE;

/// A boot record.
pub(super) struct Sector {
    signature: u32,
    entries: [Entry; 4],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flag: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.sectors != 0
    }
}

impl Sector {
    /// The record at this place. `None`: there is none.
    pub fn read(device: &dyn BlockDevice, at: u64) -> Option<Self> {
        let mut bytes = [0; 512];
        device.read_at(&mut bytes, at).ok()?;
        if bytes[510..] != [0x55, 0xAA] {
            return None;
        }
        let entries = [446, 462, 478, 494].map(|at| Entry {
            flag: bytes[at],
            kind: bytes[at + 4],
            start: le32(&bytes, at + 8),
            sectors: le32(&bytes, at + 12),
        });
        // What is no table, but program code, has other flags.
        let is_table = entries.iter().all(|entry| matches!(entry.flag, 0 | 0x80));
        is_table.then_some(Self { signature: le32(&bytes, 440), entries })
    }

    /// True if it says that there is a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// True if it has other entries beside that.
    pub fn has_own_entries(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_used() && entry.kind != PROTECTIVE)
    }
}

/// The partitions of a disk with an MBR alone.
pub(super) fn read(device: &dyn BlockDevice, mbr: &Sector, sector: u64) -> Option<Table> {
    let end = device.size() / sector;
    let mut parts = Vec::new();
    let mut records = vec![(Record::First, 0..sector)];
    for (number, entry) in (1..).zip(mbr.entries).filter(|(_, entry)| entry.is_used()) {
        // (What begins behind the end is no table, or the disk was cut.)
        if entry.start == 0 || u64::from(entry.start) >= end {
            return None;
        }
        parts.push(part(number, entry, 0, sector, mbr.signature));
        if EXTENDED.contains(&entry.kind) && parts.iter().all(|part| part.number < 5) {
            let here = logical(device, entry, sector, mbr.signature, &mut parts);
            let place = |here: u64| (Record::Logical, here * sector..(here + 1) * sector);
            records.extend(here.into_iter().map(place));
        }
    }
    if parts.is_empty() && mbr.signature == 0 {
        return None;
    }
    parts.sort_by_key(|part| part.number);
    Some(Table { kind: TableKind::Mbr, parts, records, ..Table::default() })
}

/// The logical partitions in an extended one. Each record of the chain is farther than the last
/// one, so the chain ends. Gives the sectors of the records.
fn logical(
    device: &dyn BlockDevice,
    extended: Entry,
    sector: u64,
    signature: u32,
    parts: &mut Vec<Partition>,
) -> Vec<u64> {
    let mut records = Vec::new();
    let first = u64::from(extended.start);
    let end = first + u64::from(extended.sectors);
    let mut here = first;
    for _ in 0..MOST_LOGICAL {
        let Some(record) = Sector::read(device, here * sector) else { break };
        records.push(here);
        let is_data = |entry: &&Entry| entry.is_used() && !EXTENDED.contains(&entry.kind);
        for entry in record.entries.iter().take(2).filter(is_data) {
            let start = here + u64::from(entry.start);
            let is_inside = entry.start != 0 && start + u64::from(entry.sectors) <= end;
            let number = parts.iter().map(|part| part.number).max().unwrap_or(0).max(4) + 1;
            if is_inside {
                parts.push(part(number, *entry, here, sector, signature));
            }
        }
        let is_next = |entry: &&Entry| entry.is_used() && EXTENDED.contains(&entry.kind);
        let Some(next) = record.entries.iter().take(2).find(is_next) else { break };
        let next = first + u64::from(next.start);
        if next <= here || next >= end {
            break;
        }
        here = next;
    }
    records
}

fn part(number: u32, entry: Entry, base: u64, sector: u64, signature: u32) -> Partition {
    Partition {
        number,
        start: (base + u64::from(entry.start)) * sector,
        len: u64::from(entry.sectors) * sector,
        type_id: format!("0x{:02x}", entry.kind),
        name: String::new(),
        uuid: format!("{signature:08x}-{number:02x}"),
        found: Found::Unknown,
    }
}
