//! VHDX images: a disk in blocks, which one table finds. Only read.
//!
//! An image whose log is not empty was not closed: what is in the log belongs into its tables
//! (log.rs), and is shown as if it were there (replayed.rs). An image that lies over another one is
//! refused.

mod log;
mod replayed;

use extol_ondisk::checksum::crc32c;

use super::numbers::Numbers;
use super::read_only::{ReadOnly, in_unit};
use crate::{BlockDevice as _, Result, SharedDevice};

const MAGIC: &[u8; 8] = b"vhdxfile";
const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER: usize = 4096;
const REGIONS: [u64; 2] = [192 << 10, 256 << 10];
const REGION_TABLE: usize = 64 << 10;
/// Most bytes of a disk, as an ext4 volume has them.
const MOST_BYTES: u64 = 1 << 60;
/// Most bytes of the table of blocks.
const MOST_TABLE: u64 = 128 << 20;

const BLOCKS: &[u8; 16] = b"\x66\x77\xC2\x2D\x23\xF6\x00\x42\x9D\x64\x11\x5E\x9B\xFD\x4A\x08";
const METADATA: &[u8; 16] = b"\x06\xA2\x7C\x8B\x90\x47\x9A\x4B\xB8\xFE\x57\x5F\x05\x0F\x88\x6E";
const PARAMETERS: &[u8; 16] = b"\x37\x67\xA1\xCA\x36\xFA\x43\x4D\xB3\xB6\x33\xF0\xAA\x44\xE7\x6B";
const DISK_SIZE: &[u8; 16] = b"\x24\x42\xA5\x2F\x1B\xCD\x76\x48\xB2\x11\x5D\xBE\xD8\x3B\xF4\xB8";
const SECTOR_SIZE: &[u8; 16] = b"\x1D\xBF\x41\x81\x6F\xA9\x09\x47\xBA\x47\xF2\x33\xA8\xFA\xAB\x5F";

const HAS_PARENT: u32 = 1 << 1;
/// The lowest bits of an entry: what a block is.
const STATE: u64 = 7;
const PRESENT: u64 = 6;
const PARTLY_PRESENT: u64 = 7;

/// A VHDX image as a device, for reading.
#[derive(Debug)]
pub struct Vhdx {
    inner: SharedDevice,
    size: u64,
    block: u64,
    /// After so many entries for blocks the table has one of another kind.
    ratio: u64,
    table: Vec<u64>,
}

const DAMAGED: &str = "its header is damaged";

impl Vhdx {
    /// True if a file begins as such an image.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        first.starts_with(MAGIC)
    }

    /// Reads the tables of an image.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub fn new(inner: SharedDevice) -> std::result::Result<Self, String> {
        let inner = replayed::replayed(inner.clone(), &newest_header(&inner)?)?;
        let read = |at: u64, len: u64| read_part(&inner, at, len);
        let regions = REGIONS.iter().find_map(|at| {
            let bytes = read(*at, REGION_TABLE as u64).ok()?;
            is_sound(&bytes, b"regi").then_some(bytes)
        });
        let regions = regions.ok_or(DAMAGED)?;
        let (table_at, table_len) = region(&regions, BLOCKS)?;
        let (metadata_at, _) = region(&regions, METADATA)?;
        let metadata = read(metadata_at, REGION_TABLE as u64)?;
        if !metadata.starts_with(b"metadata") {
            return Err("its metadata are damaged".to_owned());
        }
        let item = |id: &[u8; 16], len: u64| {
            let at = item(&metadata, id).and_then(|at| metadata_at.checked_add(at));
            read(at.ok_or("its metadata are damaged")?, len)
        };
        let parameters = item(PARAMETERS, 8)?;
        let (block, flags) = (Numbers(&parameters).le32(0), Numbers(&parameters).le32(4));
        let size = Numbers(&item(DISK_SIZE, 8)?).le64(0);
        let sector = Numbers(&item(SECTOR_SIZE, 4)?).le32(0);
        if flags & HAS_PARENT != 0 {
            return Err("it lies over another image, which is not read".to_owned());
        }
        let is_sound = block.is_power_of_two()
            && (1 << 20..=256 << 20).contains(&block)
            && [512, 4096].contains(&sector)
            && (1..=MOST_BYTES).contains(&size);
        if !is_sound {
            return Err("its metadata are damaged".to_owned());
        }
        let block = u64::from(block);
        let ratio = (u64::from(sector) << 23) / block;
        let blocks = size.div_ceil(block);
        let wanted = (blocks + (blocks - 1) / ratio) * 8;
        if wanted > MOST_TABLE {
            return Err("its table of blocks is too large".to_owned());
        }
        if wanted > table_len {
            return Err("its table of blocks is damaged".to_owned());
        }
        let table = read(table_at, wanted)?;
        let table = table.chunks_exact(8).map(|word| Numbers(word).le64(0)).collect();
        Ok(Self { inner, size, block, ratio, table })
    }

    /// Fills `buf` with bytes of one block.
    fn read_block(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let number = offset / self.block;
        let index = usize::try_from(number + number / self.ratio).unwrap_or(usize::MAX);
        let entry = self.table.get(index).copied().unwrap_or(0);
        match entry & STATE {
            // A block that ends behind what a number of bytes can say is behind the end as well.
            PRESENT => {
                self.inner.read_at(buf, (entry >> 20 << 20).saturating_add(offset % self.block))?;
            }
            PARTLY_PRESENT => return Err(super::damaged(offset, "a block is only partly there")),
            _ => buf.fill(0),
        }
        Ok(())
    }
}

/// Reads some bytes of a file.
fn read_part(file: &SharedDevice, at: u64, len: u64) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = vec![0; usize::try_from(len).map_err(|_| DAMAGED)?];
    file.read_at(&mut bytes, at).map_err(|_| "it is cut short")?;
    Ok(bytes)
}

/// The newer of the two headers.
fn newest_header(file: &SharedDevice) -> std::result::Result<Vec<u8>, String> {
    let headers = HEADERS.iter().filter_map(|at| {
        let bytes = read_part(file, *at, HEADER as u64).ok()?;
        is_sound(&bytes, b"head").then_some(bytes)
    });
    let newest = headers.max_by_key(|bytes| Numbers(bytes).le64(8)).ok_or(DAMAGED)?;
    if Numbers(&newest).le16(66) != 1 {
        return Err("its version is not known".to_owned());
    }
    Ok(newest)
}

/// True if a structure has its signature and its checksum.
fn is_sound(bytes: &[u8], signature: &[u8; 4]) -> bool {
    let sum = crc32c(!0, bytes.get(..4).unwrap_or_default());
    let sum = crc32c(sum, &[0; 4]);
    let sum = crc32c(sum, bytes.get(8..).unwrap_or_default());
    bytes.starts_with(signature) && Numbers(bytes).le32(4) == !sum
}

/// The place and the bytes of a region.
fn region(table: &[u8], id: &[u8; 16]) -> std::result::Result<(u64, u64), String> {
    let entries = table.get(16..).unwrap_or_default().chunks_exact(32);
    let count = usize::try_from(Numbers(table).le32(8)).unwrap_or(usize::MAX);
    let found = entries.take(count).find(|entry| entry.starts_with(id));
    let found = Numbers(found.ok_or(DAMAGED)?);
    Ok((found.le64(16), found.le32(24).into()))
}

/// Where an item of the metadata is in their region.
fn item(metadata: &[u8], id: &[u8; 16]) -> Option<u64> {
    let entries = metadata.get(32..).unwrap_or_default().chunks_exact(32);
    let count = usize::from(Numbers(metadata).le16(10));
    let found = entries.take(count).find(|entry| entry.starts_with(id))?;
    Some(Numbers(found).le32(16).into())
}

impl ReadOnly for Vhdx {
    const REFUSAL: &'static str =
        "a VHDX image is only read: make a raw image of it (qemu-img convert -O raw)";

    fn inner(&self) -> &SharedDevice {
        &self.inner
    }

    fn disk_size(&self) -> u64 {
        self.size
    }

    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let part = in_unit(buf, at, self.block);
        self.read_block(part, at)?;
        Ok(part.len())
    }
}
