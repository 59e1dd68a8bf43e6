//! Contents of encrypted files: pages hold them as users see them, and the device as they are
//! encrypted.
//!
//! ```text
//!   reader ◄── copy ── dirty pages ── encrypt ──► buffer ── write, defer ──► device
//!      ▲                                                                       │
//!      ╰───────────────────────── decrypt ◄── data cache, readahead ◄──────────╯
//! ```
//!
//! A block is decrypted when it is read (`read::unverified`), and encrypted into a buffer of its
//! own when it is written (`write_blocks`, `batch`, and what changes a part of a block here).
//! Nothing else brings contents to the device: those of an encrypted file are neither inside its
//! inode (`write::write`) nor in the log ([`MountedFs::journals_data`]).
//!
//! Blocks of zeros are not zeros on the device. What is zeroed there is a hole or unwritten, or
//! goes through [`zero_part`] and [`zeros`].
//!
//! Data checksums ([`super::order`]) do not help here: they count the bytes of a block in front of
//! the end of the file, and those change when the rest of their data unit does.

use std::sync::Arc;

use extol_block::{AlignedBuf, BlockNr};
use extol_fscrypt::FileKey;
use extol_vfs::Result;

use super::order;
use super::read;
use crate::alloc::write_zeros;
use crate::encrypted;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// Alignment of memory for direct I/O.
const PAGE: usize = 4096;
/// Most bytes that are encrypted, or decrypted, together.
pub(super) const TOGETHER: usize = 1 << 20;

/// The key of the contents of a file; none if they are not encrypted.
///
/// # Errors
/// [`extol_vfs::FsError::NoKey`] if the key is not there.
pub(crate) fn key(fs: &MountedFs, st: &InodeState) -> Result<Option<Arc<FileKey>>> {
    if !st.is_regular() || !encrypted::is_encrypted(&st.node) {
        return Ok(None);
    }
    if let Some(key) = st.key.get() {
        return Ok(Some(Arc::clone(key)));
    }
    let key = match fs.vol.keys.lent(st.node.ino.0) {
        Some(key) => key,
        None => Arc::new(encrypted::contents_key(&fs.vol, &st.node)?),
    };
    Ok(Some(Arc::clone(st.key.get_or_init(|| key))))
}

/// Number of the data unit that a block begins with.
fn unit(fs: &MountedFs, key: &FileKey, lblk: u32) -> u64 {
    let per_block = fs.vol.geo.block_len() / key.unit();
    u64::from(lblk) * per_block as u64
}

/// What goes to the device for `blocks` blocks of the file from `lblk` on, of which `plain` gives
/// each; none if it is that.
pub(super) fn encrypt<'a>(
    fs: &MountedFs,
    st: &InodeState,
    lblk: u32,
    blocks: u32,
    plain: impl Fn(u32) -> &'a [u8],
) -> Result<Option<AlignedBuf>> {
    let Some(key) = key(fs, st)? else { return Ok(None) };
    let bs = fs.vol.geo.block_len();
    let mut bytes = AlignedBuf::new(blocks as usize * bs, PAGE);
    for (at, block) in (0..blocks).zip(bytes.chunks_exact_mut(bs)) {
        block.copy_from_slice(plain(at));
    }
    key.encrypt(unit(fs, &key, lblk), &mut bytes);
    Ok(Some(bytes))
}

/// Reads a part of an encrypted file as users see it. `whole` reads whole blocks from a place on,
/// and decrypts them.
pub(super) fn read_blocks(
    fs: &MountedFs,
    offset: u64,
    buf: &mut [u8],
    mut whole: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let bs = fs.vol.geo.block_len() as u64;
    let mut done = 0;
    while done < buf.len() {
        let at = offset + done as u64;
        let from = at / bs * bs;
        let end = (offset + buf.len() as u64).next_multiple_of(bs).min(from + TOGETHER as u64);
        let inside = (at - from) as usize;
        let k = (buf.len() - done).min((end - at) as usize);
        let part = &mut buf[done..done + k];
        if inside == 0 && (k as u64).is_multiple_of(bs) {
            whole(from, part)?;
        } else {
            let mut blocks = AlignedBuf::new((end - from) as usize, PAGE);
            whole(from, &mut blocks)?;
            part.copy_from_slice(&blocks[inside..inside + k]);
        }
        done += k;
    }
    Ok(())
}

/// Zeros `from..to` of a written block of the file that has no page. False: the file is not
/// encrypted, and nothing was done.
pub(super) fn zero_part(
    fs: &MountedFs,
    st: &InodeState,
    (lblk, pblk): (u32, BlockNr),
    (from, to): (usize, usize),
) -> Result<bool> {
    let Some(key) = key(fs, st)? else { return Ok(false) };
    let bs = fs.vol.geo.block_len();
    let mut block = AlignedBuf::new(bs, PAGE);
    read::unverified(fs, st, u64::from(lblk) * bs as u64, &mut block, None)?;
    if block[from..to].iter().all(|byte| *byte == 0) {
        return Ok(true);
    }
    block[from..to].fill(0);
    key.encrypt(unit(fs, &key, lblk), &mut block);
    order::about_to_change(&fs.vol, pblk, 0)?;
    let result = fs.vol.dev.write_at(&block, pblk.offset(fs.vol.geo.block_size));
    fs.vol.journal.note_data_write();
    result.map_err(|e| fs.data_write_failed(e))?;
    Ok(true)
}

/// Writes blocks that read as zeros: those of the file from `lblk` on are at `pblk`.
pub(super) fn zeros(
    fs: &MountedFs,
    key: Option<&FileKey>,
    (lblk, pblk): (u32, BlockNr),
    blocks: u32,
) -> extol_block::Result<()> {
    let geo = &fs.vol.geo;
    let bs = geo.block_len();
    let Some(key) = key else {
        return write_zeros(&*fs.vol.dev, pblk.offset(geo.block_size), blocks as usize * bs);
    };
    let most = u32::try_from(TOGETHER / bs).unwrap_or(1).max(1);
    let mut at = 0;
    while at < blocks {
        let len = (blocks - at).min(most);
        let mut bytes = AlignedBuf::new(len as usize * bs, PAGE);
        key.encrypt(unit(fs, key, lblk + at), &mut bytes);
        fs.vol.dev.write_at(&bytes, pblk.plus(u64::from(at)).offset(geo.block_size))?;
        at += len;
    }
    Ok(())
}
