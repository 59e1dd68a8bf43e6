//! VMDK images in one file: a disk in grains, which tables of two levels find, packed or not. Only
//! read.
//!
//! A description in the image may name other files; none is opened. An image that needs one is
//! refused, as is one that other files lie under.

use std::collections::BTreeMap;
use std::sync::Arc;

use extol_sync::plain::Mutex;
use flate2::{Decompress, FlushDecompress};

use super::numbers::Numbers;
use super::read_only::{ReadOnly, in_unit};
use crate::{BlockDevice as _, Result, SharedDevice};

const MAGIC: &[u8; 4] = b"KDMV";
const SECTOR: u64 = 512;
const HEADER: usize = 512;
/// Most bytes of a disk, as an ext4 volume has them.
const MOST_BYTES: u64 = 1 << 60;
/// Most bytes of the first table.
const MOST_DIRECTORY: u64 = 64 << 20;
/// Most bytes of a grain.
const MOST_GRAIN: u64 = 1 << 20;
/// Most bytes of a description.
const MOST_TEXT: u64 = 1 << 20;
/// Tables of the second level that are kept.
const MOST_TABLES: usize = 4096;
/// The tables are found by a copy of the header at the end.
const AT_END: u64 = u64::MAX;

const ZEROS_FLAG: u32 = 1 << 2;
const PACKED_FLAG: u32 = 1 << 16;

/// A VMDK image as a device, for reading.
#[derive(Debug)]
pub struct Vmdk {
    inner: SharedDevice,
    size: u64,
    grain: u64,
    /// Entries of a table of the second level.
    entries: u64,
    directory: Vec<u32>,
    flags: u32,
    tables: Mutex<BTreeMap<usize, Arc<Vec<u32>>>>,
    /// The packed grain that was read last: its place and its bytes.
    unpacked: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
}

impl Vmdk {
    /// True if a file begins as such an image.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        first.starts_with(MAGIC)
    }

    /// Reads the first tables of an image.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub fn new(inner: SharedDevice) -> std::result::Result<Self, String> {
        let read = |at: u64, len: u64| {
            let mut bytes = vec![0; usize::try_from(len).map_err(|_| DAMAGED)?];
            inner.read_at(&mut bytes, at).map_err(|_| "it is cut short")?;
            Ok::<_, String>(bytes)
        };
        let mut header = read(0, HEADER as u64)?;
        let first = Numbers(&header);
        let (text_at, text_len) = (first.le64(28), first.le64(36));
        if first.le64(56) == AT_END {
            let at = inner.size() / SECTOR * SECTOR;
            let at = at.checked_sub(2 * SECTOR).ok_or("it is cut short")?;
            header = read(at, HEADER as u64)?;
        }
        let n = Numbers(&header);
        if !Self::is_one(&header) || !(1..=3).contains(&n.le32(4)) {
            return Err("its header is damaged, or of a version that is not known".to_owned());
        }
        let flags = n.le32(8);
        let bytes = |at: usize| n.le64(at).checked_mul(SECTOR).filter(|b| *b <= MOST_BYTES);
        let (size, grain) = (bytes(12).ok_or(DAMAGED)?, bytes(20).ok_or(DAMAGED)?);
        let entries = u64::from(n.le32(44));
        let is_sound = grain.is_power_of_two()
            && (4096..=MOST_GRAIN).contains(&grain)
            && (1..=8192).contains(&entries)
            && size > 0;
        if !is_sound {
            return Err(DAMAGED.to_owned());
        }
        if flags & PACKED_FLAG != 0 && n.le16(77) != 1 {
            return Err("its grains are packed in a way that is not known".to_owned());
        }
        let text_len = text_len.checked_mul(SECTOR).filter(|len| *len <= MOST_TEXT);
        let text = match text_at.checked_mul(SECTOR) {
            Some(at) if text_at > 0 => read(at, text_len.ok_or(DAMAGED)?)?,
            _ => return Err("its description is in another file, which is not read".to_owned()),
        };
        check_text(&text)?;
        let wanted = size.div_ceil(grain * entries) * 4;
        if wanted > MOST_DIRECTORY {
            return Err("its tables are too large".to_owned());
        }
        let directory = read(bytes(56).ok_or(DAMAGED)?, wanted)?;
        Ok(Self {
            size,
            grain,
            entries,
            directory: words(&directory),
            flags,
            tables: Mutex::default(),
            unpacked: Mutex::default(),
            inner,
        })
    }

    /// The sector of the grain at `offset`; 0: nowhere.
    fn sector(&self, offset: u64) -> Result<u32> {
        let number = offset / self.grain;
        let (table, index) = ((number / self.entries) as usize, (number % self.entries) as usize);
        let at = match self.directory.get(table) {
            None | Some(0) => return Ok(0),
            Some(sector) => u64::from(*sector) * SECTOR,
        };
        let mut tables = self.tables.lock();
        if let Some(found) = tables.get(&table) {
            return Ok(found.get(index).copied().unwrap_or(0));
        }
        if tables.len() >= MOST_TABLES {
            tables.clear();
        }
        let mut bytes = vec![0; self.entries as usize * 4];
        self.inner.read_at(&mut bytes, at)?;
        let found = Arc::new(words(&bytes));
        tables.insert(table, found.clone());
        Ok(found.get(index).copied().unwrap_or(0))
    }

    /// The bytes of a packed grain.
    fn unpack(&self, at: u64) -> Result<Arc<Vec<u8>>> {
        if let Some((of, bytes)) = &*self.unpacked.lock()
            && *of == at
        {
            return Ok(bytes.clone());
        }
        let mut marker = [0; 12];
        self.inner.read_at(&mut marker, at)?;
        let len = u64::from(Numbers(&marker).le32(8));
        // (What cannot be made smaller may get a little larger.)
        if len > self.grain * 2 {
            return Err(super::damaged(at, "a grain is longer than it can be"));
        }
        let mut packed = vec![0; len as usize];
        self.inner.read_at(&mut packed, at + 12)?;
        let mut bytes = vec![0; self.grain as usize];
        let mut inflate = Decompress::new(true);
        let done = inflate.decompress(&packed, &mut bytes, FlushDecompress::Finish);
        // (The last grain of a disk may be short.)
        if done.is_err() || inflate.total_out() == 0 {
            return Err(super::damaged(at, "a grain cannot be unpacked"));
        }
        let bytes = Arc::new(bytes);
        *self.unpacked.lock() = Some((at, bytes.clone()));
        Ok(bytes)
    }

    /// Fills `buf` with bytes of one grain.
    fn read_grain(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let shift = offset % self.grain;
        match self.sector(offset)? {
            0 => buf.fill(0),
            1 if self.flags & ZEROS_FLAG != 0 => buf.fill(0),
            sector if self.flags & PACKED_FLAG != 0 => {
                let bytes = self.unpack(u64::from(sector) * SECTOR)?;
                let part = bytes.get(shift as usize..shift as usize + buf.len());
                buf.copy_from_slice(part.unwrap_or(&vec![0; buf.len()]));
            }
            sector => self.inner.read_at(buf, u64::from(sector) * SECTOR + shift)?,
        }
        Ok(())
    }
}

const DAMAGED: &str = "its header is damaged";

/// Refuses an image that is not all of its disk, by its description.
fn check_text(text: &[u8]) -> std::result::Result<(), String> {
    let text = String::from_utf8_lossy(text);
    let lines = text.split(['\n', '\0']).map(str::trim);
    let (mut kind, mut extents) = (None, 0);
    for line in lines {
        if let Some((name, value)) = line.split_once('=') {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                "createType" => kind = Some(value.to_owned()),
                "parentCID" if !value.eq_ignore_ascii_case("ffffffff") => {
                    return Err("it lies over another image, which is not read".to_owned());
                }
                _ => {}
            }
        }
        extents += usize::from(["RW ", "RDONLY "].iter().any(|word| line.starts_with(word)));
    }
    match kind.as_deref() {
        Some("monolithicSparse" | "streamOptimized") if extents == 1 => Ok(()),
        _ => Err("it is in several files, or of a kind that is not supported".to_owned()),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| Numbers(word).le32(0)).collect()
}

impl ReadOnly for Vmdk {
    const REFUSAL: &'static str =
        "a VMDK image is only read: make a raw image of it (qemu-img convert -O raw)";

    fn inner(&self) -> &SharedDevice {
        &self.inner
    }

    fn disk_size(&self) -> u64 {
        self.size
    }

    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let part = in_unit(buf, at, self.grain);
        self.read_grain(part, at)?;
        Ok(part.len())
    }
}
