//! A partition gets another length: its end moves, its start and all that is in it stay.
//!
//! ```text
//!   Layout (what the disk has) ─ plan (pure) ─► steps ─ a flush behind each ─► the disk
//! ```
//!
//! The end of a partition may move up to the next partition, or to the end of the disk. A GPT has a
//! copy of itself there; on a disk that became longer since, the copy moves to the new end first.
//!
//! Odd cases, all refused in one line before anything is written: a first GPT that is damaged, a
//! hybrid MBR (the same partition stands in two tables), logical partitions, entries that make no
//! sense or overlap, more than an MBR can count.
//!
//! Whatever writes of a step arrive before a crash, one table is whole and names either the old end
//! or the new one, and all other partitions as they were:
//!
//! - PR-1: the copy of a GPT is written and durable before the first GPT is touched.
//! - PR-2: the table of an MBR is one sector, and written as one.
//! - PR-3: no byte of a partition is written. The copy lies behind the end of every partition.
//!
//! The caller holds the lock of the whole disk, makes a volume larger behind this and smaller
//! before it.

use std::ffi::OsStr;

use super::{Found, Partition, Table, TableKind, contents, gpt, mbr, one_in_line, read_table};
use crate::BlockDevice;

/// What a partition can become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRoom {
    /// The partition, with what it holds.
    pub partition: Partition,
    /// The most bytes that it can have on the disk as it is.
    pub most: u64,
    /// What is behind it then.
    pub bound: Bound,
}

/// What ends the room of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The next partition, in words.
    Partition(String),
    /// The end of the disk.
    Disk,
    /// The largest number of sectors that an MBR has room for.
    Count,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionResized {
    /// The number of the partition.
    pub number: u32,
    /// Its bytes before.
    pub before: u64,
    /// Its bytes now.
    pub bytes: u64,
}

/// Looks what a partition can become.
///
/// # Errors
/// One line: there is no such partition, or its table cannot be changed.
pub fn room_of(device: &dyn BlockDevice, part: &OsStr) -> Result<PartitionRoom, String> {
    Layout::read(device, part).map(|layout| layout.room(device.size()))
}

/// Moves the end of a partition so that it has `bytes`, rounded up to sectors. A disk that can
/// become longer does, if no other partition is in the way.
///
/// # Errors
/// One line. What the line does not say otherwise is as it was.
pub fn resize_partition(
    device: &dyn BlockDevice,
    part: &OsStr,
    bytes: u64,
) -> Result<PartitionResized, String> {
    let layout = Layout::read(device, part)?;
    let old = layout.partition.clone();
    let bytes = bytes.max(1).checked_next_multiple_of(layout.sector);
    let bytes = bytes.ok_or("it cannot have so many bytes")?;
    let number = old.number;
    let done = PartitionResized { number, before: old.len, bytes };
    if bytes == old.len {
        return Ok(done);
    }
    let room = layout.room(device.size());
    if bytes > room.most {
        let needed = layout.disk_for(bytes).filter(|_| room.bound == Bound::Disk);
        let needed = needed.ok_or_else(|| room.refusal())?;
        device.set_size(needed).map_err(|error| {
            let (has, why) = (device.size(), error.source);
            format!("partition {number} needs a disk of {needed} bytes, and it has {has}: {why}")
        })?;
    }
    for step in layout.plan(bytes, device.size())? {
        let wrong = |error| format!("the partition table: {error}");
        for (at, contents) in step {
            device.write_at(&contents, at).map_err(wrong)?;
        }
        device.flush().map_err(wrong)?;
    }
    Ok(done)
}

impl PartitionRoom {
    /// True if the partition holds an ext4 volume.
    #[must_use]
    pub fn holds_volume(&self) -> bool {
        matches!(self.partition.found, Found::Ext(_))
    }

    /// Why it cannot have more.
    #[must_use]
    pub fn refusal(&self) -> String {
        let (number, most) = (self.partition.number, self.most);
        match &self.bound {
            Bound::Partition(next) if most == self.partition.len => {
                format!("partition {number} has no room: partition {next} follows it")
            }
            Bound::Partition(next) => {
                format!(
                    "partition {number} can have {most} bytes at most: partition {next} follows it"
                )
            }
            Bound::Disk => format!("partition {number} can have {most} bytes at most on this disk"),
            Bound::Count => {
                format!("partition {number} can have {most} bytes at most in an MBR: use a GPT")
            }
        }
    }
}

/// Writes that may arrive in any order: places and bytes.
pub(super) type Step = Vec<(u64, Vec<u8>)>;

/// What of a table matters for the change of a partition.
pub(super) struct Layout {
    partition: Partition,
    /// Bytes of a sector.
    sector: u64,
    /// Where the next partition begins, and that one in words.
    next: Option<(u64, String)>,
    /// Where the last partition ends.
    last_end: u64,
    table: Kind,
}

enum Kind {
    Gpt(gpt::Gpt),
    /// The sector of the MBR.
    Mbr(Vec<u8>),
}

impl Layout {
    pub(super) fn read(device: &dyn BlockDevice, part: &OsStr) -> Result<Self, String> {
        let table = read_table(device).ok_or("there is no partition table")?;
        let found = table.find(device, part)?.clone();
        let number = found.number;
        refuse_odd(&table, &found)?;
        let (table_kind, sector) = match table.kind {
            TableKind::Gpt => {
                let gpt = gpt::Gpt::read(device).ok_or("the first partition table is damaged")?;
                if gpt.used_entries() != table.parts.len() {
                    return Err("its partition table has entries that make no sense".into());
                }
                let sector = gpt.sector();
                (Kind::Gpt(gpt), sector)
            }
            TableKind::Mbr => {
                let sector = device.table_sector();
                let mut bytes = vec![0; sector as usize];
                device.read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
                (Kind::Mbr(bytes), sector)
            }
        };
        // (A logical partition lies in an extended one.)
        let is_logical = |part: &Partition| table.kind == TableKind::Mbr && part.number > 4;
        let is_other = |part: &&Partition| part.number != number && !is_logical(part);
        let others = || table.parts.iter().filter(is_other);
        if others().any(|other| other.start < found.end() && found.start < other.end()) {
            return Err(format!("partition {number} overlaps another one"));
        }
        let next = others().filter(|other| other.start >= found.end());
        let next = next.min_by_key(|other| other.start).map(|other| {
            let shown = Partition { found: contents(device, other), ..other.clone() };
            (other.start, one_in_line(&shown))
        });
        let last_end = table.parts.iter().map(Partition::end).max().unwrap_or(0);
        let partition = Partition { found: contents(device, &found), ..found };
        Ok(Self { partition, sector, next, last_end, table: table_kind })
    }

    /// What the partition can become on a disk of so many bytes.
    fn room(&self, disk: u64) -> PartitionRoom {
        let start = self.partition.start;
        let disk_end = match &self.table {
            Kind::Gpt(gpt) => gpt.usable_end(disk),
            Kind::Mbr(_) => disk - disk % self.sector,
        };
        let most_sectors = match &self.table {
            Kind::Gpt(_) => u64::MAX,
            Kind::Mbr(_) => u64::from(u32::MAX),
        };
        let (end, bound) = match &self.next {
            Some((next, shown)) if *next <= disk_end => (*next, Bound::Partition(shown.clone())),
            _ => (disk_end, Bound::Disk),
        };
        let most = end.saturating_sub(start);
        let counted = most_sectors.saturating_mul(self.sector);
        let (most, bound) = if counted < most { (counted, Bound::Count) } else { (most, bound) };
        PartitionRoom { partition: self.partition.clone(), most, bound }
    }

    /// How long a disk must be for so many bytes of the partition. `None`: no disk would do.
    fn disk_for(&self, bytes: u64) -> Option<u64> {
        let end = self.partition.start.checked_add(bytes)?.max(self.last_end);
        let disk = match &self.table {
            Kind::Gpt(gpt) => end.checked_add(gpt.copy_len())?,
            Kind::Mbr(_) => end,
        };
        let disk = disk.checked_next_multiple_of(DISK_UNIT)?;
        (self.room(disk).most >= bytes).then_some(disk)
    }

    /// The steps after which the partition has so many bytes, on a disk of `disk` bytes.
    pub(super) fn plan(&self, bytes: u64, disk: u64) -> Result<Vec<Step>, String> {
        let room = self.room(disk);
        if bytes > room.most {
            return Err(room.refusal());
        }
        let number = self.partition.number;
        match &self.table {
            Kind::Gpt(gpt) => gpt.with_length(number, bytes, disk),
            Kind::Mbr(sector) => {
                let sectors = u32::try_from(bytes / self.sector).map_err(|_| room.refusal())?;
                let changed = mbr::with_length(sector, number, sectors);
                let changed = changed.ok_or("its partition table has no such entry")?;
                Ok(vec![vec![(0, changed)]])
            }
        }
    }
}

/// A disk becomes longer in such units.
const DISK_UNIT: u64 = 1 << 20;

/// Refuses tables in which more than one entry would have to change.
fn refuse_odd(table: &Table, found: &Partition) -> Result<(), String> {
    let number = found.number;
    if table.is_copy {
        return Err("its first partition table is damaged: repair it first (sgdisk -e)".into());
    }
    if table.is_hybrid {
        return Err("it is a hybrid of MBR and GPT: change that with sgdisk".into());
    }
    if found.is_extended() || (table.kind == TableKind::Mbr && number > 4) {
        return Err(format!(
            "partition {number} is extended or logical: sfdisk -N {number} changes its length"
        ));
    }
    Ok(())
}
