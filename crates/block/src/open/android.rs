//! Android sparse images: a header, then chunks of data, of a repeated word, of nothing, and
//! checksums. Read in place through an index of the chunks.
//!
//! All numbers are checked when the index is made: chunks lie inside of the file, follow each other
//! without a gap, and together are as long as the header says. There are at most [`MOST_CHUNKS`].
//! The checksums of such images are optional, and most programs write none; they are not compared.

use std::sync::Arc;

use super::numbers::Numbers;
use super::read_only::ReadOnly;
use crate::{BlockDevice as _, Result, SharedDevice};

pub(super) const MAGIC: u32 = 0xED26_FF3A;
pub(super) const HEADER: usize = 28;
pub(super) const CHUNK_HEADER: usize = 12;
/// Most chunks of an image.
const MOST_CHUNKS: u32 = 1 << 20;
/// Most bytes of an image, as an ext4 volume has them.
const MOST_BYTES: u64 = 1 << 60;

pub(super) const RAW: u16 = 0xCAC1;
pub(super) const FILL: u16 = 0xCAC2;
const SKIP: u16 = 0xCAC3;
const SUM: u16 = 0xCAC4;

/// What a chunk's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Data {
    /// Those at this place of the file.
    At(u64),
    /// This word again and again.
    Word([u8; 4]),
}

/// Chunks that are not all zeros.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: u64,
    len: u64,
    data: Data,
}

/// An Android sparse image as a device, for reading.
#[derive(Clone, Debug)]
pub struct AndroidSparse {
    inner: SharedDevice,
    size: u64,
    chunks: Arc<[Chunk]>,
}

impl AndroidSparse {
    /// True if a file begins as such an image.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        first.starts_with(&MAGIC.to_le_bytes())
    }

    /// Reads the index of an image.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(inner: SharedDevice) -> std::result::Result<Self, String> {
        let read = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            let what = |_| "the image is cut short".to_owned();
            inner.read_at(&mut bytes, at).map_err(what).map(|()| bytes)
        };
        let bytes = read(0, HEADER)?;
        let header = Numbers(&bytes);
        let (header_len, chunk_len) = (header.le16(8), header.le16(10));
        let block = u64::from(header.le32(12));
        let (blocks, count) = (u64::from(header.le32(16)), header.le32(20));
        if header.le32(0) != MAGIC || header.le16(4) != 1 {
            return Err("its version is not known".to_owned());
        }
        let is_sound = usize::from(header_len) >= HEADER
            && usize::from(chunk_len) >= CHUNK_HEADER
            && block > 0
            && block.is_multiple_of(4);
        let size = block.checked_mul(blocks).filter(|size| *size <= MOST_BYTES && is_sound);
        let size = size.ok_or("its header is damaged")?;
        if count > MOST_CHUNKS {
            return Err(format!("it has {count} chunks, and {MOST_CHUNKS} are the most"));
        }
        let mut chunks = Vec::new();
        let (mut at, mut start) = (u64::from(header_len), 0);
        for n in 0..count {
            let damaged = || format!("its chunk {n} is damaged");
            let bytes = read(at, CHUNK_HEADER)?;
            let chunk = Numbers(&bytes);
            let (kind, total) = (chunk.le16(0), u64::from(chunk.le32(8)));
            let len = block.checked_mul(chunk.le32(4).into()).ok_or_else(damaged)?;
            let data_len = total.checked_sub(chunk_len.into()).ok_or_else(damaged)?;
            let data_at = at + u64::from(chunk_len);
            let data = match (kind, data_len) {
                (RAW, stored) if stored == len => Some(Data::At(data_at)),
                (FILL, 4) => Some(Data::Word(read(data_at, 4)?.try_into().map_err(|_| damaged())?)),
                (SKIP, 0) => None,
                (SUM, 4) if len == 0 => None,
                _ => return Err(damaged()),
            };
            let end = at.checked_add(total).filter(|end| *end <= inner.size());
            at = end.ok_or("the image is cut short")?;
            if let Some(data) = data.filter(|data| len > 0 && *data != Data::Word([0; 4])) {
                chunks.push(Chunk { start, len, data });
            }
            start += len;
            if start > size {
                return Err(damaged());
            }
        }
        if start != size {
            return Err(format!("its chunks have {start} bytes, and it should have {size}"));
        }
        Ok(Self { inner, size, chunks: chunks.into() })
    }
}

impl ReadOnly for AndroidSparse {
    const REFUSAL: &'static str =
        "an Android sparse image is only read: make a raw image of it (simg2img)";

    fn inner(&self) -> &SharedDevice {
        &self.inner
    }

    fn disk_size(&self) -> u64 {
        self.size
    }

    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize> {
        let next = self.chunks.partition_point(|chunk| chunk.start + chunk.len <= at);
        let next = self.chunks.get(next);
        let chunk = next.filter(|chunk| chunk.start <= at);
        let end = chunk.map(|chunk| chunk.start + chunk.len).or(next.map(|next| next.start));
        let len = end.unwrap_or(self.size).saturating_sub(at).min(buf.len() as u64) as usize;
        let part = buf.get_mut(..len).unwrap_or_default();
        match chunk.map(|chunk| (chunk.data, at - chunk.start)) {
            None => part.fill(0),
            Some((Data::At(place), from)) => self.inner.read_at(part, place + from)?,
            Some((Data::Word(word), from)) => {
                for (n, byte) in part.iter_mut().enumerate() {
                    *byte = word[(from as usize + n) % 4];
                }
            }
        }
        Ok(part.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    const BLOCK: u32 = 1024;

    /// An image of these chunks: kind, blocks, data.
    fn image(blocks: u32, chunks: &[(u16, u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        for half in [1_u16, 0, 28, 12] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [BLOCK, blocks, u32::try_from(chunks.len()).unwrap(), 0] {
            bytes.extend(word.to_le_bytes());
        }
        for (kind, blocks, data) in chunks {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0, 0]);
            bytes.extend(blocks.to_le_bytes());
            bytes.extend((12 + u32::try_from(data.len()).unwrap()).to_le_bytes());
            bytes.extend(*data);
        }
        bytes
    }

    fn open(bytes: &[u8]) -> std::result::Result<AndroidSparse, String> {
        AndroidSparse::new(Arc::new(MemDevice::from_bytes(bytes)))
    }

    #[test]
    fn chunks_are_put_together() {
        let raw: Vec<u8> = (0..2048_u32).map(|n| n.to_le_bytes()[0] ^ 7).collect();
        let chunks: &[(u16, u32, &[u8])] = &[
            (SKIP, 1, &[]),
            (RAW, 2, &raw),
            (FILL, 3, b"abcd"),
            (FILL, 1, &[0; 4]),
            (SUM, 0, &[1, 2, 3, 4]),
            (RAW, 2, &raw),
        ];
        let device = open(&image(9, chunks)).unwrap();
        let words = b"abcd".repeat(768);
        let zeros = [0; 1024];
        let all = [&zeros, &raw[..], &words, &zeros, &raw].concat();
        assert_eq!(device.size(), 9 * 1024);
        for (at, len) in
            [(0, 9216), (0, 0), (9216, 0), (1023, 2), (3071, 3), (5000, 4000), (3077, 5)]
        {
            let mut buf = vec![0xEE; len];
            device.read_at(&mut buf, at as u64).unwrap();
            assert_eq!(buf, all[at..at + len], "{at} {len}");
        }
        assert!(device.read_at(&mut [0; 2], 9215).is_err() && device.write_at(&[0], 0).is_err());
        assert!(device.make_writable().unwrap_err().to_string().contains("simg2img"));
    }

    #[test]
    fn impossible_images_are_refused() {
        let sound = image(2, &[(RAW, 1, &[1; 1024]), (SKIP, 1, &[])]);
        assert!(open(&sound).is_ok());
        for len in [0, 27, 28, 39, 1000, sound.len() - 1] {
            assert!(open(&sound[..len]).is_err(), "{len}");
        }
        for (at, value) in [(4, 2), (8, 20), (10, 3), (12, 1), (12, 0), (16, 3), (20, 3), (28, 9)] {
            let mut bytes = sound.clone();
            bytes[at] = value;
            bytes[13] = if at == 12 { 0 } else { bytes[13] };
            assert!(open(&bytes).is_err(), "{at} {value}");
        }
        let many = [(SKIP, u32::MAX, &[][..]); 3];
        assert!(open(&image(2, &many)).is_err());
        for wrong in
            [(RAW, 2, &[1; 1024][..]), (FILL, 2, &[1; 8]), (SKIP, 2, &[1]), (SUM, 2, &[1; 4])]
        {
            assert!(open(&image(2, &[wrong])).is_err(), "{wrong:?}");
        }
        let mut bytes = sound;
        bytes[20..24].fill(0xFF);
        assert!(open(&bytes).unwrap_err().contains("chunks"));
    }
}
