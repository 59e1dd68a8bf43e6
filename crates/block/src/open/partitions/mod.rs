//! Partition tables: GPT, MBR with logical partitions, and hybrids of both.
//!
//! A table is hostile input: all numbers are checked before they are used, chains are bounded, and
//! what a table says of places is never used to read outside of the device. As Linux has it:
//!
//! - A GPT counts only with a protective entry in the MBR. If its first header is damaged, the copy
//!   at the end of the device is taken, and that is said.
//! - Of a hybrid MBR the GPT holds; the entries of the MBR beside the protective one show parts of
//!   the same partitions.
//! - Logical partitions have the numbers from 5, in the order of their chain.

mod gpt;
mod mbr;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;

use extol_proc::{Shown as _, bytes_of, os_str};

use super::found::{Found, identify_with};
use crate::BlockDevice;

/// Most partitions whose contents are looked at, and that a table has in a list.
const MOST: usize = 256;
/// Most partitions that a line names.
const MOST_IN_LINE: usize = 8;

/// A kind of table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// A master boot record.
    #[default]
    Mbr,
}

impl TableKind {
    /// A word for lists, as blkid(8) has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Gpt => "gpt",
            Self::Mbr => "dos",
        }
    }

    /// What a disk with one is.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Gpt => "a GPT disk",
            Self::Mbr => "an MBR disk",
        }
    }
}

/// The partitions of a disk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Table {
    /// Its kind.
    pub kind: TableKind,
    /// In the order of their numbers.
    pub parts: Vec<Partition>,
    /// The GPT is the copy at the end of the device, because the first one is damaged.
    pub is_copy: bool,
    /// The copy at the end is damaged, and the first GPT is not.
    pub copy_is_damaged: bool,
    /// The MBR beside the GPT has entries of its own.
    pub is_hybrid: bool,
    /// Where the table itself is.
    pub(super) records: Vec<(Record, Range<u64>)>,
}

/// A part of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// An MBR, or a GPT at the start of the disk.
    First,
    /// The copy of a GPT.
    Copy,
    /// What says where a logical partition is.
    Logical,
}

impl Record {
    fn what(self) -> &'static str {
        match self {
            Self::First => "the partition table",
            Self::Copy => "the copy of the partition table at the end of the disk",
            Self::Logical => "the records of logical partitions",
        }
    }
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number, from 1.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// Its type: the GUID of a GPT, `0x83` of an MBR.
    pub type_id: String,
    /// Its name in a GPT.
    pub name: String,
    /// Its GUID in a GPT, the disk's signature and the number of an MBR, as `PARTUUID=` has them.
    pub uuid: String,
    /// What it holds.
    pub found: Found,
}

impl Partition {
    /// What it is meant for, by its type; empty if that is not known.
    #[must_use]
    pub fn purpose(&self) -> &'static str {
        let known = PURPOSES.iter().find(|(id, _)| *id == self.type_id);
        known.map_or("", |(_, purpose)| purpose)
    }

    /// Where it ends, in bytes.
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// True if a byte is in it.
    fn has(&self, offset: u64) -> bool {
        (self.start..self.end()).contains(&offset)
    }

    /// True if it is for the logical partitions of an MBR.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.purpose() == EXTENDED
    }

    /// Its name in the table, or the label of its file system.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        if self.name.is_empty() { self.found.label() } else { self.name.as_bytes() }
    }
}

/// What a partition for others is meant for.
const EXTENDED: &str = "extended";

/// Types of partitions: GUIDs and the bytes of MBRs.
const PURPOSES: &[(&str, &str)] = &[
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux file system"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM-64)"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "Linux server data"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft basic data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("0x83", "Linux"),
    ("0x82", "Linux swap"),
    ("0x8e", "Linux LVM"),
    ("0xfd", "Linux RAID"),
    ("0x05", EXTENDED),
    ("0x0f", EXTENDED),
    ("0x85", EXTENDED),
    ("0xef", "EFI system"),
    ("0xee", "GPT"),
    ("0x07", "NTFS or exFAT"),
    ("0x0b", "FAT32"),
    ("0x0c", "FAT32"),
    ("0x06", "FAT16"),
    ("0x0e", "FAT16"),
];

/// The partition table of a device, with what is in the partitions. `is_boot`: its first sector is
/// the boot sector of a file system, and no MBR.
pub(super) fn table_of(device: &dyn BlockDevice, is_boot: bool) -> Option<Table> {
    let mut table = read_table(device).filter(|table| !is_boot || table.kind != TableKind::Mbr)?;
    for part in table.parts.iter_mut().take(MOST) {
        part.found = contents(device, part);
    }
    Some(table)
}

/// What a partition holds.
pub(super) fn contents(device: &dyn BlockDevice, part: &Partition) -> Found {
    identify_with(&Part { inner: device, part: (part.start, part.len) }, false)
}

/// What of a partition table and its partitions a range of a disk has, in words, beside the
/// partition that the range is or begins.
pub fn in_range(device: &dyn BlockDevice, range: &Range<u64>) -> Vec<String> {
    read_table(device).map_or_else(Vec::new, |table| table.in_range(device, range))
}

/// The partition table of a device, in its sectors; a GPT may count in others.
pub(super) fn read_table(device: &dyn BlockDevice) -> Option<Table> {
    let sector = device.table_sector();
    let mbr = mbr::Sector::read(device, 0)?;
    let mut table = if mbr.is_protective() {
        let sizes = [sector, 512, 4096];
        let is_hybrid = mbr.has_own_entries();
        gpt::read(device, &sizes, is_hybrid)?
    } else {
        mbr::read(device, &mbr, sector)?
    };
    table.parts.truncate(MOST);
    Some(table)
}

/// True if the MBR says that there is a GPT, and neither of the two can be read.
pub(super) fn is_lost_gpt(device: &dyn BlockDevice) -> bool {
    mbr::Sector::read(device, 0).is_some_and(|mbr| mbr.is_protective())
        && read_table(device).is_none()
}

impl Table {
    /// Where what begins at `offset` has to end: with the partition that holds it, and before the
    /// next one, or before the copy of a GPT. `None`: nothing is there or behind it.
    pub(super) fn end_behind(&self, offset: u64) -> Option<u64> {
        let ends = self.parts.iter().map(|part| (part.start, part.end()));
        // (A logical partition lies in an extended one.)
        let inner = ends.filter(|(start, end)| (*start..*end).contains(&offset)).max();
        let next = self.parts.iter().map(|part| part.start).filter(|start| *start > offset);
        let records = self.records.iter().map(|(_, range)| range.start);
        let is_in_own = self.parts.iter().any(|part| !part.is_extended() && part.has(offset));
        let records = records.filter(|start| *start > offset && !is_in_own);
        inner.map(|(_, end)| end).into_iter().chain(next).chain(records).min()
    }

    /// What of the table and its partitions a range of the disk has, in words, beside the partition
    /// that the range is or begins.
    fn in_range(&self, device: &dyn BlockDevice, range: &Range<u64>) -> Vec<String> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let is_own = |part: &Partition| part.start == range.start && range.end <= part.end();
        let parts = self.parts.iter().filter(|part| {
            overlaps(&(part.start..part.end())) && !is_own(part) && !part.is_extended()
        });
        let mut found: Vec<String> = parts
            .map(|part| {
                let is_whole = range.start <= part.start && part.end() <= range.end;
                let part = Partition { found: contents(device, part), ..part.clone() };
                let of = if is_whole { "" } else { "a piece of " };
                format!("{of}partition {}", one_in_line(&part))
            })
            .collect();
        for (record, _) in self.records.iter().filter(|(_, place)| overlaps(place)) {
            let what = record.what().to_owned();
            if !found.contains(&what) {
                found.push(what);
            }
        }
        found
    }

    /// The partition of this number, or of this name: its name in the table, else the label of its
    /// file system, else its UUID, else that of its file system.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, device: &dyn BlockDevice, name: &OsStr) -> Result<&Partition, String> {
        let bytes = bytes_of(name);
        let number = extol_proc::number::<u32>(bytes).filter(|_| !bytes.starts_with(b"+"));
        if let Some(number) = number {
            let part = self.parts.iter().find(|part| part.number == number);
            return part.ok_or_else(|| format!("there is no partition {number}"));
        }
        let label = |part: &&Partition| contents(device, part).label() == bytes;
        let all = || self.parts.iter();
        let mut found: Vec<&Partition> =
            all().filter(|part| part.name.as_bytes() == bytes).collect();
        if found.is_empty() {
            found = all().filter(label).collect();
        }
        if found.is_empty() {
            let is_it = |part: &&Partition| part.uuid.as_bytes().eq_ignore_ascii_case(bytes);
            found = all().filter(is_it).collect();
        }
        if found.is_empty() {
            let is_it = |part: &&Partition| match contents(device, part) {
                Found::Ext(ext) => ext.uuid_text().as_bytes().eq_ignore_ascii_case(bytes),
                _ => false,
            };
            found = all().filter(is_it).collect();
        }
        match found[..] {
            [part] => Ok(part),
            [] => Err(format!("there is no partition {}", name.shown())),
            [one, two, ..] => Err(format!(
                "partitions {} and {} have the name {}: say the number",
                one.number,
                two.number,
                name.shown()
            )),
        }
    }

    /// The first partition that holds an ext4 volume.
    #[must_use]
    pub fn first_volume(&self) -> Option<&Partition> {
        self.parts.iter().find(|part| matches!(part.found, Found::Ext(_)))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.what())?;
        let shown = self.parts.iter().take(MOST_IN_LINE).map(one_in_line);
        let mut shown: Vec<String> = shown.collect();
        match self.parts.len() {
            0 => return f.write_str(" without partitions"),
            1 => f.write_str(" with partition ")?,
            _ => f.write_str(" with partitions ")?,
        }
        match self.parts.len().saturating_sub(MOST_IN_LINE) {
            0 => {}
            more => shown.push(format!("{more} more")),
        }
        match shown.split_last() {
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} and {last}", rest.join(", ")),
            None => Ok(()),
        }
    }
}

/// `1 (ext4, root)`.
fn one_in_line(part: &Partition) -> String {
    let word = match part.found.word() {
        "" => part.purpose(),
        word => word,
    };
    let label = part.label();
    let label = os_str(label).shown().to_string();
    match (word, part.label().is_empty()) {
        ("", true) => part.number.to_string(),
        (word, true) => format!("{} ({word})", part.number),
        ("", false) => format!("{} ({label})", part.number),
        (word, false) => format!("{} ({word}, {label})", part.number),
    }
}

/// A part of a borrowed device, for reading.
#[derive(Debug)]
struct Part<'d> {
    inner: &'d dyn BlockDevice,
    part: (u64, u64),
}

impl BlockDevice for Part<'_> {
    fn size(&self) -> u64 {
        let (start, len) = self.part;
        len.min(self.inner.size().saturating_sub(start))
    }

    fn table_sector(&self) -> u64 {
        self.inner.table_sector()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> crate::Result<()> {
        crate::check_range(crate::DeviceOp::Read, offset, buf.len() as u64, self.size())?;
        self.inner.read_at(buf, self.part.0 + offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> crate::Result<()> {
        crate::check_writable(crate::DeviceOp::Write, offset, buf.len() as u64, true)
    }

    fn flush(&self) -> crate::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> crate::Result<()> {
        crate::check_writable(crate::DeviceOp::Discard, offset, len, true)
    }

    fn zero_range(&self, offset: u64, len: u64) -> crate::Result<()> {
        crate::check_writable(crate::DeviceOp::Zero, offset, len, true)
    }
}

/// Bytes of a sector as numbers.
fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
