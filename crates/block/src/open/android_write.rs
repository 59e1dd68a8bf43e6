//! Writes Android sparse images, of what a device holds.
//!
//! Blocks of one repeated word are a chunk that names the word, zeros among them, so that what is
//! flashed is the device to the last byte.

use std::io::{self, Seek, SeekFrom, Write};

use super::android::{CHUNK_HEADER, FILL, HEADER, MAGIC, RAW};
use crate::{BlockDevice, DeviceError, DeviceOp};

/// Bytes that are read in one request.
const STEP: u64 = 1 << 20;
/// Most bytes of a chunk of data, as it is held in memory.
const MOST_RAW: usize = 16 << 20;

/// A chunk in the making.
enum Chunk {
    Word([u8; 4], u32),
    Raw(Vec<u8>),
}

/// Writes the image to `out`, at its beginning. `block`: bytes of a block, by which the device's
/// size can be divided.
///
/// # Errors
/// A block size of which the size of the device is no multiple, or a read or a write that failed.
pub fn write_android_sparse(
    device: &dyn BlockDevice,
    block: u32,
    out: &mut (impl Write + Seek),
) -> Result<(), DeviceError> {
    let (size, len) = (device.size(), u64::from(block));
    let failed = |why| DeviceError::new(DeviceOp::Write, 0, size, why);
    let blocks = u32::try_from(size / len.max(1)).ok();
    let blocks = blocks.filter(|_| block > 0 && block.is_multiple_of(4) && size % len == 0);
    let Some(blocks) = blocks else {
        let why = "an Android sparse image has fewer than 2^32 blocks, and all of them whole";
        return Err(failed(io::Error::other(why)));
    };
    // The header is written again when the number of chunks is known.
    out.write_all(&header(block, blocks, 0)).map_err(failed)?;
    let (mut chunks, mut chunk) = (0, Chunk::Raw(Vec::new()));
    let step = (STEP / len).max(1) * len;
    let mut bytes = vec![0; step as usize];
    let mut at = 0;
    while at < size {
        let bytes = &mut bytes[..step.min(size - at) as usize];
        device.read_at(bytes, at)?;
        at += bytes.len() as u64;
        for bytes in bytes.chunks_exact(block as usize) {
            let next = match (&mut chunk, word(bytes)) {
                (Chunk::Word(of, count), Some(word)) if *of == word => {
                    *count += 1;
                    continue;
                }
                (Chunk::Raw(all), None) if all.len() + bytes.len() <= MOST_RAW => {
                    all.extend_from_slice(bytes);
                    continue;
                }
                (_, Some(word)) => Chunk::Word(word, 1),
                (_, None) => Chunk::Raw(bytes.to_vec()),
            };
            let done = std::mem::replace(&mut chunk, next);
            chunks += put(out, &done, block).map_err(failed)?;
        }
    }
    chunks += put(out, &chunk, block).map_err(failed)?;
    out.seek(SeekFrom::Start(0)).map_err(failed)?;
    out.write_all(&header(block, blocks, chunks)).map_err(failed)?;
    out.flush().map_err(failed)
}

/// The word that a block repeats, if it repeats one.
fn word(block: &[u8]) -> Option<[u8; 4]> {
    let (words, _) = block.as_chunks::<4>();
    let first = *words.first()?;
    words.iter().all(|word| *word == first).then_some(first)
}

fn header(block: u32, blocks: u32, chunks: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend(MAGIC.to_le_bytes());
    for half in [1, 0, HEADER as u16, CHUNK_HEADER as u16] {
        bytes.extend(half.to_le_bytes());
    }
    for number in [block, blocks, chunks, 0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// Writes a chunk; gives how many there are: none if it is empty.
fn put(out: &mut impl Write, chunk: &Chunk, block: u32) -> io::Result<u32> {
    let (kind, blocks, data) = match chunk {
        Chunk::Word(word, count) => (FILL, *count, &word[..]),
        Chunk::Raw(bytes) if bytes.is_empty() => return Ok(0),
        Chunk::Raw(bytes) => (RAW, (bytes.len() / block as usize) as u32, &bytes[..]),
    };
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&[0; 2])?;
    out.write_all(&blocks.to_le_bytes())?;
    out.write_all(&((CHUNK_HEADER + data.len()) as u32).to_le_bytes())?;
    out.write_all(data)?;
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::super::AndroidSparse;
    use super::super::read_only::ReadOnly as _;
    use super::*;
    use crate::MemDevice;
    use std::io::Cursor;
    use std::sync::Arc;

    #[test]
    fn what_is_written_is_read_again() {
        for (size, parts) in [
            (0, &[][..]),
            (1 << 20, &[][..]),
            (
                3 << 20,
                &[(0, 5000, None), (1 << 20, 9000, Some(*b"abcd")), ((3 << 20) - 1, 1, None)],
            ),
            (40 << 20, &[(4096, 36 << 20, None)]),
        ] {
            let device = MemDevice::new(size);
            for (at, len, word) in parts.iter().copied() {
                let bytes: Vec<u8> = match word {
                    Some(word) => word.repeat(len / 4),
                    None => (0..len).map(|n| (n / 7 + n) as u8 | 1).collect(),
                };
                device.write_at(&bytes, at).expect("a write");
            }
            let mut out = Cursor::new(Vec::new());
            write_android_sparse(&device, 4096, &mut out).expect("an image");
            let image = AndroidSparse::new(Arc::new(MemDevice::from_bytes(out.get_ref())));
            let image = image.expect("a sound image");
            assert_eq!(image.disk_size(), size);
            let (mut found, mut expected) = (vec![1; size as usize], vec![2; size as usize]);
            image.read_at(&mut found, 0).expect("a read");
            device.read_at(&mut expected, 0).expect("a read");
            assert!(found == expected, "{size}");
        }
        let device = MemDevice::new(5000);
        write_android_sparse(&device, 4096, &mut Cursor::new(vec![])).expect_err("half a block");
    }
}
