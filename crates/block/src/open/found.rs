//! What a device holds, by its content: ext2, ext3 and ext4, partitions, and what cannot be such a
//! volume and is to be named. Pure reads, of at most 5 MiB, with no error but I/O: what cannot be
//! read is not recognised.
//!
//! The order decides where several signatures stand:
//!
//! 1. What makes an ext4 superblock beside it an old one, or one that others write: RAID, LVM,
//!    LUKS, bcache. Each is confirmed by more than its magic number.
//! 2. An ext4 superblock.
//! 3. A partition table (`partitions.rs`).
//! 4. The other signatures of [`SIGNATURES`].

use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, uuid_text};
use extol_ondisk::{Compat, Incompat, RoCompat, Superblock};
use std::fmt;

use super::partitions::{self, Table};
use super::signatures::{FIRST, LOST_GPT, SIGNATURES, Signature};
use crate::BlockDevice;

/// Bytes from the start that signatures are looked for in.
const HEAD: usize = 272 << 10;
/// Bytes at the end.
const TAIL: usize = 132 << 10;

/// What a device holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// An ext2, ext3 or ext4 file system.
    Ext(Ext),
    /// The external journal of one.
    Journal,
    /// Partitions.
    Table(Table),
    /// Something else, and what to do with it.
    Known(Known),
    /// Zeros: at the start, at the end, and at even places of all data between.
    Zeros,
    /// Nothing that is known.
    Unknown,
    /// It cannot be read.
    NoAccess,
}

/// An ext2, ext3 or ext4 file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ext {
    /// `ext2`, `ext3` or `ext4`, by its features.
    pub kind: &'static str,
    /// Its label.
    pub label: Vec<u8>,
    /// Its UUID.
    pub uuid: [u8; 16],
}

impl Ext {
    /// Its UUID in its usual form.
    #[must_use]
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

/// Something that is no ext4 volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// A word for lists: `xfs`, `swap`.
    pub word: &'static str,
    /// What it is, with its article: `an XFS file system`.
    pub what: &'static str,
    /// What makes an ext4 volume of it that can be named; empty if nothing does.
    pub advice: &'static str,
}

impl Found {
    /// A word for lists of partitions: `ext4`, `swap`; empty if nothing is known.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ext(ext) => ext.kind,
            Self::Journal => "jbd",
            Self::Table(table) => table.kind.word(),
            Self::Known(known) => known.word,
            Self::Zeros | Self::Unknown | Self::NoAccess => "",
        }
    }

    /// The label of a file system.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        match self {
            Self::Ext(ext) => &ext.label,
            _ => &[],
        }
    }

    /// What is lost if it is overwritten, with its article. `None`: nothing that is known.
    #[must_use]
    pub fn contents(&self) -> Option<String> {
        match self {
            Self::Zeros | Self::Unknown | Self::NoAccess => None,
            found => Some(found.to_string()),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ext(ext) if ext.label.is_empty() => write!(f, "an {} file system", ext.kind),
            Self::Ext(ext) => {
                write!(f, "an {} file system labelled '{}'", ext.kind, text(&ext.label))
            }
            Self::Journal => f.write_str("an ext4 journal"),
            Self::Table(table) => table.fmt(f),
            Self::Known(known) => f.write_str(known.what),
            Self::Zeros => f.write_str("nothing but zeros"),
            Self::Unknown => f.write_str("nothing that is known"),
            Self::NoAccess => f.write_str("nothing that can be read"),
        }
    }
}

/// A label as text: what is none is written `\xNN`, what acts on a terminal `\u{NN}`.
fn text(label: &[u8]) -> String {
    let mut text = String::new();
    for chunk in label.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_unicode()) } else { text.push(c) }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Finds out what a device holds.
pub fn identify(device: &dyn BlockDevice) -> Found {
    identify_with(device, true)
}

/// As [`identify`]; partitions are looked for if `tables`.
pub(super) fn identify_with(device: &dyn BlockDevice, tables: bool) -> Found {
    let Some(probe) = Probe::read(device) else { return Found::NoAccess };
    let find = |list: &[Signature]| {
        let found = list.iter().find(|signature| signature.is_in(&probe));
        found.map(|signature| Found::Known(signature.known))
    };
    if let Some(found) = find(FIRST) {
        return found;
    }
    if let Some(found) = ext(&probe) {
        return found;
    }
    // (A file system in place of partitions may have a boot sector like theirs.)
    let boot = find(super::signatures::BOOT_SECTORS);
    if tables && let Some(table) = partitions::table_of(device, boot.is_some()) {
        return Found::Table(table);
    }
    if tables && boot.is_none() && partitions::is_lost_gpt(device) {
        return Found::Known(LOST_GPT);
    }
    if let Some(found) = boot.or_else(|| find(SIGNATURES)) {
        return found;
    }
    if probe.is_zero() && is_zero_within(device) { Found::Zeros } else { Found::Unknown }
}

/// What is lost if a device is overwritten, with its article: what it holds, or the volume of
/// which only the first superblock is gone. `None`: nothing that is known.
pub fn contents(device: &dyn BlockDevice) -> Option<String> {
    let found = identify(device);
    let may_have_copy = matches!(found, Found::Zeros | Found::Unknown);
    found.contents().or_else(|| {
        let (_, _, copy) = may_have_copy.then(|| find_copy(device)).flatten()?;
        let volume = of_superblock(&copy).contents()?;
        Some(format!("{volume}, whose first superblock is damaged"))
    })
}

/// Bytes that are looked at in one place between the start and the end.
const LOOK: u64 = 4096;
/// Places in a run of data, and in all of them.
const LOOKS_IN_RUN: u64 = 64;
const LOOKS: u64 = 1024;

/// True if zeros stand at even places of each run of data (the first and the last of them at its
/// ends). With more runs than are looked at nothing is sure.
fn is_zero_within(device: &dyn BlockDevice) -> bool {
    let (mut at, mut looks) = (0, 0);
    let mut buffer = [0; LOOK as usize];
    loop {
        let run = match device.data_from(at) {
            Ok(Some(run)) if run.start < run.end => run,
            Ok(_) => return true,
            Err(_) => return false,
        };
        let last = (run.end - run.start).saturating_sub(1) / LOOK;
        let count = (last + 1).min(LOOKS_IN_RUN);
        looks += count;
        if looks > LOOKS {
            return false;
        }
        for nr in 0..count {
            let step = last / (count - 1).max(1);
            let block = if nr + 1 == count { last } else { nr * step };
            let start = run.start + block * LOOK;
            let len = usize::try_from((run.end - start).min(LOOK)).unwrap_or(0);
            let Some(bytes) = buffer.get_mut(..len) else { return false };
            if device.read_at(bytes, start).is_err() || bytes.iter().any(|byte| *byte != 0) {
                return false;
            }
        }
        at = run.end;
    }
}

/// The ext2, ext3 or ext4 file system, or the journal, whose superblock stands in its place.
fn ext(probe: &Probe) -> Option<Found> {
    let at = usize::try_from(SUPERBLOCK_OFFSET).ok()?;
    let sb = Superblock::decode(probe.head.get(at..at + SUPERBLOCK_LEN)?).ok()?;
    Some(of_superblock(&sb))
}

/// What a superblock is of.
pub(super) fn of_superblock(sb: &Superblock) -> Found {
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return Found::Journal;
    }
    // As blkid(8) has it: what ext3 does not know is ext4.
    let old_incompat = Incompat::FILETYPE | Incompat::NEEDS_RECOVERY | Incompat::META_BG;
    let old_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE;
    let is_ext4 = !old_incompat.contains(sb.feature_incompat)
        || !old_ro_compat.contains(sb.feature_ro_compat);
    let kind = match (is_ext4, sb.feature_compat.contains(Compat::HAS_JOURNAL)) {
        (true, _) => "ext4",
        (false, true) => "ext3",
        (false, false) => "ext2",
    };
    Found::Ext(Ext { kind, label: sb.label().to_vec(), uuid: sb.uuid })
}

/// The bytes of a device in which signatures are looked for.
pub(super) struct Probe {
    pub size: u64,
    pub head: Vec<u8>,
    /// The last bytes, if the device is longer than the head.
    tail: Vec<u8>,
}

impl Probe {
    fn read(device: &dyn BlockDevice) -> Option<Self> {
        let size = device.size();
        let head_len = usize::try_from(size).unwrap_or(HEAD).min(HEAD);
        let mut head = vec![0; head_len];
        device.read_at(&mut head, 0).ok()?;
        let rest = size - head_len as u64;
        let mut tail = vec![0; usize::try_from(rest).unwrap_or(TAIL).min(TAIL)];
        // A device that cannot read its end is known by its start.
        let at = size - tail.len() as u64;
        if device.read_at(&mut tail, at).is_err() {
            tail.clear();
        }
        Some(Self { size, head, tail })
    }

    /// `len` bytes at a place near the start or near the end.
    pub fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let part = |from: &'_ [u8], at: u64| -> Option<std::ops::Range<usize>> {
            let start = usize::try_from(at).ok()?;
            let end = start.checked_add(len)?;
            (end <= from.len()).then_some(start..end)
        };
        if let Some(range) = part(&self.head, at) {
            return self.head.get(range);
        }
        let start = self.size - self.tail.len() as u64;
        let range = part(&self.tail, at.checked_sub(start)?)?;
        self.tail.get(range)
    }

    /// A little-endian number.
    pub fn le32(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(at, 4)?.try_into().ok()?))
    }

    /// A little-endian number.
    pub fn le16(&self, at: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(at, 2)?.try_into().ok()?))
    }

    /// A little-endian number.
    pub fn le64(&self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(at, 8)?.try_into().ok()?))
    }

    fn is_zero(&self) -> bool {
        self.head.iter().chain(&self.tail).all(|byte| *byte == 0)
    }
}

/// What a device belongs to, though its start may look like a volume: a RAID, a volume group, an
/// encrypted volume.
pub fn member(device: &dyn BlockDevice) -> Option<Known> {
    let probe = Probe::read(device)?;
    FIRST.iter().find(|signature| signature.is_in(&probe)).map(|signature| signature.known)
}

/// Sizes of blocks for which copies of the superblock are looked for.
const COPY_BLOCK_SIZES: [u64; 4] = [4096, 1024, 2048, 65536];

/// Blocks of a cluster, likewise: none, those of bigalloc by default, and the others.
const COPY_CLUSTERS: [u64; 12] = [1, 16, 2, 4, 8, 32, 64, 128, 256, 512, 1024, 2048];

/// The block of the first copy of the superblock, and the size of blocks, if one is found where
/// mke2fs puts it for some size: at the start of group 1, of as many blocks or clusters as a bitmap
/// of one block has bits. It must be of this device: a copy in an image that lies on it is not
/// taken.
pub fn superblock_copy(device: &dyn BlockDevice) -> Option<(u64, u64)> {
    find_copy(device).map(|(block, size, _)| (block, size))
}

fn find_copy(device: &dyn BlockDevice) -> Option<(u64, u64, Superblock)> {
    let sizes = |cluster| COPY_BLOCK_SIZES.into_iter().map(move |size| (size, cluster));
    COPY_CLUSTERS.into_iter().flat_map(sizes).find_map(|(size, cluster)| {
        // (Block 0 of a volume with blocks of 1024 bytes and no clusters belongs to no group.)
        let block = size * 8 * cluster + u64::from(size == 1024 && cluster == 1);
        let mut bytes = [0; SUPERBLOCK_LEN];
        if device.size() < block * size + SUPERBLOCK_LEN as u64 {
            return None;
        }
        device.read_at(&mut bytes, block * size).ok()?;
        let copy = Superblock::decode(&bytes).ok()?;
        let is_its = u64::from(copy.block_bytes()) == size && copy.block_group_nr == 1;
        is_its.then_some((block, size, copy))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    const SIZE: u64 = 4 << 20;

    /// Places, and the bytes there.
    type Bytes<'b> = &'b [(u64, &'b [u8])];

    fn with(bytes: Bytes<'_>) -> MemDevice {
        let device = MemDevice::new(SIZE);
        for (at, bytes) in bytes {
            device.write_at(bytes, *at).unwrap();
        }
        device
    }

    /// A superblock in place; `nr` is the number of its group.
    fn superblock(nr: u16, log_block_size: u32) -> Vec<u8> {
        let mut sb = Superblock::new_empty();
        sb.blocks_count = 100;
        sb.log_block_size = log_block_size;
        sb.block_group_nr = nr;
        sb.feature_incompat = Incompat::EXTENTS;
        sb.volume_name[..4].copy_from_slice(b"data");
        sb.encode().to_vec()
    }

    #[test]
    fn signatures_are_known() {
        let cases: &[(&str, Bytes<'_>)] = &[
            ("xfs", &[(0, b"XFSB")]),
            ("btrfs", &[(65_600, b"_BHRfS_M")]),
            ("luks", &[(0, b"LUKS\xBA\xBE\0\x02")]),
            ("lvm", &[(512, b"LABELONE"), (536, b"LVM2 001")]),
            ("swap", &[(4086, b"SWAPSPACE2")]),
            ("swap", &[(65_526, b"SWAPSPACE2")]),
            ("linux_raid", &[(4096, b"\xFC\x4E\x2B\xA9\x01\0\0\0"), (4240, b"\x08")]),
            ("ntfs", &[(3, b"NTFS    "), (510, b"\x55\xAA")]),
            ("fat", &[(82, b"FAT32   "), (11, b"\0\x02"), (16, b"\x02"), (510, b"\x55\xAA")]),
            ("qcow2", &[(0, b"QFI\xFB")]),
            ("gzip", &[(0, b"\x1F\x8B\x08")]),
            ("zstd", &[(0, b"\x28\xB5\x2F\xFD")]),
            ("tar", &[(257, b"ustar")]),
            ("vhd", &[(SIZE - 512, b"conectix")]),
            ("gpt", &[(SIZE - 512, b"EFI PART\0\0\x01\0")]),
            ("ddf_raid", &[(SIZE - 512, b"\xDE\x11\xDE\x11"), (SIZE - 480, b"01.02.00")]),
            ("", &[(SIZE - 512, b"\xDE\x11\xDE\x11")]),
            ("isw_raid", &[(SIZE - 1024, b"Intel Raid ISM Cfg Sig. 1.3")]),
            ("minix", &[(1024, b"\x20\0\x64\0\x01\0\x01\0\x08\0\0\0"), (1040, b"\x8F\x13\x01")]),
            ("minix", &[(1030, b"\x01\0\x01\0\x08\0\0\0"), (1048, b"\x5A\x4D\0\0\0\x04")]),
            ("ufs", &[(8192 + 1372, b"\x54\x19\x01\0")]),
            ("ufs", &[(65_536 + 1372, b"\x19\x54\x01\x19")]),
            ("bsd", &[(512, b"\x57\x45\x56\x82"), (644, b"\x57\x45\x56\x82")]),
            ("sun", &[(508, b"\xDA\xBE\xDA\xBE")]),
            ("", &[(508, b"\xDA\xBE\xDA\xBF")]),
            ("", &[(512, b"\x57\x45\x56\x82")]),
            ("", &[(1040, b"\x8F\x13\x01")]),
            ("", &[(0, b"LUKS\xBA\xBE\0\x07")]),
            ("", &[(4096, b"\xFC\x4E\x2B\xA9\x01\0\0\0"), (4240, b"\x09")]),
            ("", &[(512, b"LABELONE")]),
            ("", &[(82, b"FAT32   ")]),
            ("", &[(0, b"XFS")]),
        ];
        for (word, bytes) in cases {
            assert_eq!(identify(&with(bytes)).word(), *word, "{bytes:?}");
        }
        for size in [0, 1, 511, 1024, 2047, 4096] {
            assert_eq!(identify(&MemDevice::new(size)), Found::Zeros, "{size}");
        }
        // Old and new RAID superblocks at the end.
        let magic = 0xA92B_4EFC_u32.to_le_bytes();
        let old = with(&[(SIZE - 65_536, &magic), (SIZE - 65_528, &[90])]);
        let at = SIZE - 8192;
        let place = (at / 512).to_le_bytes();
        let new = with(&[(at, &magic), (at + 4, &[1]), (at + 144, &place)]);
        for device in [old, new] {
            assert_eq!(identify(&device).word(), "linux_raid");
            device.write_at(&superblock(0, 0), 1024).unwrap();
            assert_eq!(identify(&device).word(), "linux_raid", "not that of its member");
            assert!(member(&device).is_some());
        }
    }

    #[test]
    fn a_volume_is_told_from_what_was_there_before() {
        let volume = superblock(0, 0);
        let device = with(&[(1024, &volume), (65_600, b"_BHRfS_M"), (0, b"XFSB")]);
        assert_eq!(identify(&device).to_string(), "an ext4 file system labelled 'data'");
        assert_eq!((identify(&device).word(), member(&device)), ("ext4", None));
        let device = with(&[(1024, &volume), (0, b"LUKS\xBA\xBE\0\x01")]);
        assert_eq!(identify(&device).word(), "luks");
    }

    #[test]
    fn zeros_are_told_from_data_further_on() {
        let size = 64 << 20;
        let device = MemDevice::new(size);
        assert_eq!(identify(&device), Found::Zeros);
        device.write_at(&[0; 8192], 20 << 20).unwrap();
        assert_eq!(identify(&device), Found::Zeros, "written, but zeros");
        device.write_at(&[7; 8192], 40 << 20).unwrap();
        assert_eq!(identify(&device), Found::Unknown);
        assert_eq!(contents(&device), None);
    }

    #[test]
    fn a_volume_without_its_first_superblock_is_a_loss() {
        let device = MemDevice::new(16 << 20);
        device.write_at(&superblock(1, 0), 8193 * 1024).unwrap();
        let lost = "an ext4 file system labelled 'data', whose first superblock is damaged";
        assert_eq!(contents(&device).as_deref(), Some(lost));
        device.write_at(b"text", 0).unwrap();
        assert_eq!(contents(&device).as_deref(), Some(lost));
        device.write_at(b"XFSB", 0).unwrap();
        assert_eq!(contents(&device).as_deref(), Some("an XFS file system"));
    }

    #[test]
    fn a_copy_is_one_of_this_volume() {
        let place = 8193 * 1024;
        let device = MemDevice::new(16 << 20);
        device.write_at(&superblock(1, 0), place).unwrap();
        assert_eq!(superblock_copy(&device), Some((8193, 1024)));
        for (nr, size) in [(0, 0), (3, 0), (1, 2)] {
            device.write_at(&superblock(nr, size), place).unwrap();
            assert_eq!(superblock_copy(&device), None, "{nr} {size}");
        }
    }
}
