//! The header of a qcow2 image: a pure function of its first bytes.

use crate::open::numbers::Numbers;

const MAGIC: &[u8; 4] = b"QFI\xFB";
/// Bytes from the start that the header, its extensions and the name of the backing file are in.
pub(in crate::open) const HEAD: usize = 64 << 10;
/// Most bytes of an image, as an ext4 volume has them.
const MOST_BYTES: u64 = 1 << 60;
/// Most bytes of the first table, as QEMU has it.
const MOST_L1: u64 = 32 << 20;
/// Most bytes of the table of refcount blocks, as QEMU has it.
const MOST_REFCOUNT_TABLE: u64 = 8 << 20;

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const LONG_L2: u64 = 1 << 4;

/// Most snapshots, as QEMU has them.
const MOST_SNAPSHOTS: u32 = 65536;

/// The extension that names the format of the backing file.
const BACKING_FORMAT: u32 = 0xE279_2ACA;
/// Bytes of a header of version 2.
const HEADER_2: usize = 72;
/// Bytes of the shortest header of version 3.
const HEADER_3: usize = 104;

/// What the header says, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::open) struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// Bytes of the disk.
    pub size: u64,
    pub backing: Option<BackingName>,
    pub l1_entries: u64,
    pub l1_at: u64,
    pub refcounts_at: u64,
    /// Bytes of the table of refcount blocks.
    pub refcounts_len: u64,
    refcount_order: u32,
    snapshots: u32,
    incompatible: u64,
    autoclear: u64,
}

/// The backing file that an image names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::open) struct BackingName {
    pub name: Vec<u8>,
    /// Empty: not said.
    pub format: Vec<u8>,
}

impl Header {
    /// True if a file begins as such an image.
    pub fn is_one(first: &[u8]) -> bool {
        first.starts_with(MAGIC)
    }

    /// Reads the first bytes of an image of `file_len` bytes.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub fn parse(first: &[u8], file_len: u64) -> Result<Self, String> {
        let n = Numbers(first);
        if !Self::is_one(first) || first.len() < HEADER_2 {
            return Err("its header is cut short".to_owned());
        }
        let version = n.be32(4);
        let header_len = match version {
            2 => HEADER_2,
            3 => usize::try_from(n.be32(100)).unwrap_or(usize::MAX),
            1 => {
                let why = "version 1 of the format (qcow) is not supported: convert it";
                return Err(format!("{why} (qemu-img convert -f qcow -O qcow2)"));
            }
            other => return Err(format!("version {other} of the format is not known")),
        };
        let cluster_bits = n.be32(20);
        let is_short = version == 3 && header_len < HEADER_3;
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged("its clusters have a size that none has"));
        }
        if is_short || header_len > first.len() || header_len > 1 << cluster_bits {
            return Err(damaged("its header is not as long as one is"));
        }
        let more = |at: usize, len: usize| version == 3 && at + len <= header_len;
        let wide = |at: usize| if more(at, 8) { n.be64(at) } else { 0 };
        let header = Self {
            version,
            cluster_bits,
            size: n.be64(24),
            backing: None,
            l1_entries: n.be32(36).into(),
            l1_at: n.be64(40),
            refcounts_at: n.be64(48),
            refcounts_len: u64::from(n.be32(56)) << cluster_bits,
            refcount_order: if version == 3 { n.be32(96) } else { 4 },
            snapshots: n.be32(60),
            incompatible: wide(72),
            autoclear: wide(88),
        };
        header.check_features(n.be32(32), if more(104, 1) { first[104] } else { 0 })?;
        header.check_numbers(file_len)?;
        if header.size == 0 {
            return Err("its disk has no bytes".to_owned());
        }
        header.check_snapshots(n.be64(64), file_len)?;
        let backing = header.backing_name(first, header_len)?;
        Ok(Self { backing, ..header })
    }

    /// What nothing here can read.
    fn check_features(&self, encryption: u32, compression: u8) -> Result<(), String> {
        let known = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | LONG_L2;
        let has = |bit: u64| self.incompatible & bit != 0;
        let (what, how) = match () {
            () if encryption != 0 => {
                ("it is encrypted", "decrypt a copy (qemu-img convert with --object secret)")
            }
            () if has(EXTERNAL_DATA) => {
                ("its data are in a file of their own", "copy it (qemu-img convert -O qcow2)")
            }
            () if has(LONG_L2) => {
                ("it has subclusters (extended_l2)", "copy it (qemu-img convert -O qcow2)")
            }
            () if has(COMPRESSION_TYPE) || compression != 0 => {
                ("its clusters are packed by zstd", "copy it (qemu-img convert -O qcow2)")
            }
            () if self.incompatible & !known != 0 => (
                "it has features that are not known",
                "see qemu-img info, or copy it (qemu-img convert -O qcow2)",
            ),
            () => return Ok(()),
        };
        Err(format!("{what}, which is not supported: {how}"))
    }

    /// True if a table of the file is aligned, and inside of it.
    fn is_inside(&self, at: u64, len: u64, file_len: u64) -> bool {
        at.is_multiple_of(self.cluster())
            && at >= self.cluster()
            && at.checked_add(len).is_some_and(|end| end <= file_len)
    }

    fn check_numbers(&self, file_len: u64) -> Result<(), String> {
        let l1_len = self.l1_entries * 8;
        let wanted = self.size.div_ceil(self.cluster() * self.l2_entries());
        let what = match () {
            () if self.size > MOST_BYTES => "its disk is larger than one can be",
            () if l1_len > MOST_L1 => "its L1 table is longer than one can be",
            () if self.l1_entries < wanted => "its L1 table is too short for its disk",
            () if l1_len > 0 && !self.is_inside(self.l1_at, l1_len, file_len) => {
                "its L1 table is not inside of it"
            }
            () if self.refcount_order > 6 => "its refcounts have a size that none has",
            () if self.refcounts_len > MOST_REFCOUNT_TABLE.max(self.cluster()) => {
                "its refcount table is longer than one can be"
            }
            () => return Ok(()),
        };
        Err(damaged(what))
    }

    fn check_snapshots(&self, at: u64, file_len: u64) -> Result<(), String> {
        let least = u64::from(self.snapshots) * 40;
        if self.snapshots == 0
            || (self.snapshots <= MOST_SNAPSHOTS && self.is_inside(at, least, file_len))
        {
            return Ok(());
        }
        Err(damaged("its snapshot table is not inside of it"))
    }

    /// The name of the backing file, and its format from the extensions. All of them lie in the
    /// first cluster, the name behind the extensions.
    fn backing_name(&self, first: &[u8], header_len: usize) -> Result<Option<BackingName>, String> {
        let n = Numbers(first);
        let cluster = usize::try_from(self.cluster()).unwrap_or(usize::MAX);
        let (at, len) = (n.be64(8), n.be32(16));
        let wrong = || damaged("the name of its backing file is not inside its first cluster");
        let at = usize::try_from(at).ok().filter(|at| *at <= cluster).ok_or_else(wrong)?;
        let format = backing_format(first, header_len, if at == 0 { cluster } else { at })?;
        if at == 0 || len == 0 {
            return Ok(None);
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= 1023).ok_or_else(wrong)?;
        let end = at.checked_add(len).filter(|end| *end <= cluster && at >= header_len);
        let name = end.and_then(|end| first.get(at..end)).ok_or_else(wrong)?;
        if name.contains(&0) {
            return Err(damaged("the name of its backing file has a zero byte in it"));
        }
        Ok(Some(BackingName { name: name.to_vec(), format }))
    }

    /// Why it cannot be written to, and what to do.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check_writer(&self) -> Result<(), &'static str> {
        let has = |bit: u64| self.incompatible & bit != 0;
        Err(match () {
            () if has(CORRUPT) => "it is marked as corrupt: repair it (qemu-img check -r all)",
            () if has(DIRTY) => {
                "its refcounts are not up to date: bring them there (qemu-img check -r all)"
            }
            () if self.snapshots != 0 => {
                "it has snapshots, and is only read: delete them (qemu-img snapshot -d), or copy \
                 it (qemu-img convert -O qcow2)"
            }
            () if self.autoclear != 0 => {
                "it has bitmaps, which a change would make wrong: remove them (qemu-img bitmap \
                 --remove), or copy it (qemu-img convert -O qcow2)"
            }
            () if self.refcount_order != 4 => {
                "its refcounts (refcount_bits) do not have 16 bits: copy it (qemu-img convert -O \
                 qcow2)"
            }
            () => return Ok(()),
        })
    }

    pub fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries of a table of the second level.
    pub fn l2_entries(&self) -> u64 {
        1 << (self.cluster_bits - 3)
    }

    /// Refcounts of a block of them.
    pub fn refcounts_of_block(&self) -> u64 {
        1 << (self.cluster_bits - 1)
    }
}

/// The format of the backing file by the extensions between the header and `end`; empty: not said.
fn backing_format(first: &[u8], header_len: usize, end: usize) -> Result<Vec<u8>, String> {
    let n = Numbers(first);
    let mut format = Vec::new();
    let mut next = header_len;
    while next < end.min(first.len()) {
        let (kind, len) = (n.be32(next), n.be32(next + 4));
        if kind == 0 {
            break;
        }
        let data = next + 8;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let last = data.checked_add(len).filter(|last| *last <= end);
        let last = last.ok_or_else(|| damaged("an extension of its header is too long"))?;
        if kind == BACKING_FORMAT {
            format = first.get(data..last).unwrap_or_default().to_vec();
        }
        next = last.next_multiple_of(8);
    }
    Ok(format)
}

/// What is wrong with an image that cannot be opened.
fn damaged(what: &str) -> String {
    format!("its header is damaged: {what}")
}
