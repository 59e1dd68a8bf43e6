//! Reads file data: from dirty pages, readahead, the data cache or the device.

use extol_block::{AlignedBuf, BlockNr};
use extol_vfs::{FsError, Result};

use super::cache::LARGE;
use super::encryption;
use super::readahead::{FileReadahead, Next};
use super::verity;
use crate::error;
use crate::inline;
use crate::inodes::InodeState;
use crate::map::{self, Mapping};
use crate::mounted::MountedFs;
use extol_ondisk::InodeFlags;

/// Alignment of memory for direct I/O.
const PAGE: usize = 4096;

/// Reads at `offset`; the count is short only at the end of the file.
pub(crate) fn read(fs: &MountedFs, st: &InodeState, offset: u64, buf: &mut [u8]) -> Result<usize> {
    read_with(fs, st, offset, buf, None)
}

/// As [`read`], with readahead of an open file, after [`FileReadahead::begin`].
pub(crate) fn read_with(
    fs: &MountedFs,
    st: &InodeState,
    offset: u64,
    buf: &mut [u8],
    ahead: Option<&FileReadahead>,
) -> Result<usize> {
    let size = st.node.raw.size;
    if offset >= size || buf.is_empty() {
        return Ok(0);
    }
    let n = usize::try_from(size - offset).unwrap_or(usize::MAX).min(buf.len());
    let buf = &mut buf[..n];
    if st.node.raw.flags.contains(InodeFlags::VERITY) {
        return verity::read(fs, st, offset, buf, ahead).map(|()| n);
    }
    // (An encrypted file with this flag is damaged, and has no key.)
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) && encryption::key(fs, st)?.is_none() {
        let data = inline::read(&st.node)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = data.get(from..).unwrap_or_default();
        let k = part.len().min(n);
        buf[..k].copy_from_slice(&part[..k]);
        buf[k..].fill(0);
        return Ok(n);
    }
    unverified(fs, st, offset, buf, ahead)?;
    Ok(n)
}

/// Reads a part that ends inside the file from pages and blocks: as it is there, decrypted.
pub(super) fn unverified(
    fs: &MountedFs,
    st: &InodeState,
    offset: u64,
    buf: &mut [u8],
    ahead: Option<&FileReadahead>,
) -> Result<()> {
    let Some(key) = encryption::key(fs, st)? else {
        return pieces(fs, st, offset, buf, &mut |pblk, inside, part, at| {
            read_mapped(fs, st, pblk, inside, part, ahead.map(|ahead| (ahead, at)))
        });
    };
    encryption::read_blocks(fs, offset, buf, |from, blocks| {
        pieces(fs, st, from, blocks, &mut |pblk, inside, part, at| {
            read_mapped(fs, st, pblk, inside, part, ahead.map(|ahead| (ahead, at)))?;
            key.decrypt(at / key.unit() as u64, part);
            Ok(())
        })
    })
}

/// Reads what a file of fs-verity has behind its end; holes are zeros.
pub(super) fn behind(fs: &MountedFs, st: &InodeState, offset: u64, buf: &mut [u8]) -> Result<()> {
    unverified(fs, st, offset, buf, None)
}

/// Splits a read at `offset` that ends inside the file: fills in dirty pages and holes, and passes
/// each part that lies on the device to `mapped` (block, bytes behind its start, part, file
/// offset).
fn pieces<'b>(
    fs: &MountedFs,
    st: &InodeState,
    offset: u64,
    mut rest: &'b mut [u8],
    mapped: &mut dyn FnMut(BlockNr, usize, &'b mut [u8], u64) -> Result<()>,
) -> Result<()> {
    let bs = fs.vol.geo.block_len() as u64;
    let mut at = offset;
    while !rest.is_empty() {
        let lblk = u32::try_from(at / bs).map_err(|_| FsError::FileTooLarge)?;
        let inside = (at % bs) as usize;
        if let Some(page) = st.pages.get(lblk) {
            let bytes = &page.data[inside..];
            let part = next_piece(&mut rest, bytes.len());
            part.copy_from_slice(&bytes[..part.len()]);
            at += part.len() as u64;
            continue;
        }
        // As many blocks as share one mapping and have no dirty page.
        let wanted = ((inside + rest.len()) as u64).div_ceil(bs);
        let clean = st.pages.next(lblk).map_or(u64::from(u32::MAX), |l| u64::from(l - lblk));
        let mapping = map::lookup(&fs.vol, &st.node, lblk)?;
        let len = match mapping {
            Mapping::Hole { len } => len,
            Mapping::Mapped { len, .. } => u64::from(len),
        }
        .min(wanted)
        .min(clean)
        .max(1);
        let part = next_piece(&mut rest, usize::try_from(len * bs).unwrap_or(usize::MAX) - inside);
        let k = part.len() as u64;
        match mapping {
            Mapping::Mapped { pblk, unwritten: false, .. } => mapped(pblk, inside, part, at)?,
            _ => part.fill(0),
        }
        at += k;
    }
    Ok(())
}

/// Takes at most `most` bytes off the front of `rest`.
fn next_piece<'b>(rest: &mut &'b mut [u8], most: usize) -> &'b mut [u8] {
    let all = std::mem::take(rest);
    let (part, others) = all.split_at_mut(most.min(all.len()));
    *rest = others;
    part
}

/// Reads `part` from `inside` bytes behind the start of block `pblk`. `ahead`: readahead of the
/// file, and the part's file offset.
fn read_mapped(
    fs: &MountedFs,
    st: &InodeState,
    pblk: BlockNr,
    inside: usize,
    part: &mut [u8],
    ahead: Option<(&FileReadahead, u64)>,
) -> Result<()> {
    let vol = &fs.vol;
    let bs = vol.geo.block_len();
    if !fs.journals_data(st) {
        let place = pblk.offset(vol.geo.block_size).saturating_add(inside as u64);
        let mut done = 0;
        while done < part.len() {
            let rest = &mut part[done..];
            let next = match ahead {
                Some((ahead, at)) => ahead.next(at + done as u64, rest),
                None => Next::Read(rest.len()),
            };
            let at = place.saturating_add(done as u64);
            done += match next {
                Next::Copied(n) => {
                    if let Some(cache) =
                        fs.data_cache.as_ref().filter(|c| c.takes_file(st.node.raw.size))
                    {
                        cache.insert(at, &rest[..n], &cache.write_counts(at, n));
                    }
                    n
                }
                Next::Read(n) => {
                    read_clean(fs, at, &mut rest[..n])?;
                    n
                }
            };
        }
        return Ok(());
    }
    // Journalled data may be newer in the block cache than in place.
    let mut done = 0;
    while done < part.len() {
        let from = inside + done;
        let nr = pblk.plus((from / bs) as u64);
        let skip = from % bs;
        let k = (bs - skip).min(part.len() - done);
        match vol.journal.cached(nr) {
            Some(buf) => part[done..done + k].copy_from_slice(&buf.data()[skip..skip + k]),
            None => {
                let at = nr.offset(vol.geo.block_size) + skip as u64;
                vol.dev.read_at(&mut part[done..done + k], at).map_err(error::device)?;
            }
        }
        done += k;
    }
    Ok(())
}

/// Reads file data at byte `at` of the device, from the data cache as far as it is there.
fn read_clean(fs: &MountedFs, at: u64, part: &mut [u8]) -> Result<()> {
    let dev = &fs.vol.dev;
    let Some(cache) = &fs.data_cache else { return dev.read_at(part, at).map_err(error::device) };
    let found = cache.copy(at, part);
    let (part, at) = (&mut part[found..], at.saturating_add(found as u64));
    if part.is_empty() {
        return Ok(());
    }
    if part.len() >= LARGE {
        return dev.read_at(part, at).map_err(error::device);
    }
    // Whole blocks, so that the cache can keep them.
    let bs = fs.vol.geo.block_len();
    let inside = (at % bs as u64) as usize;
    let (from, len) = (at - inside as u64, (inside + part.len()).next_multiple_of(bs));
    let counts = cache.write_counts(from, len);
    if len == part.len() {
        dev.read_at(part, at).map_err(error::device)?;
        cache.insert(at, part, &counts);
        return Ok(());
    }
    let mut whole = AlignedBuf::new(len, PAGE);
    dev.read_at(&mut whole, from).map_err(error::device)?;
    cache.insert(from, &whole, &counts);
    part.copy_from_slice(&whole[inside..inside + part.len()]);
    Ok(())
}

/// One whole block of the file as a caller would read it: zeros for holes and behind the end.
pub(crate) fn block(fs: &MountedFs, st: &InodeState, lblk: u32) -> Result<Vec<u8>> {
    let bs = fs.vol.geo.block_len();
    let mut bytes = vec![0; bs];
    read(fs, st, u64::from(lblk) * bs as u64, &mut bytes)?;
    Ok(bytes)
}
