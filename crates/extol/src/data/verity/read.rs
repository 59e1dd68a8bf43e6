//! Reads contents that are verified, and what proves them.

use std::sync::Arc;

use extol_ondisk::InodeFlags;
use extol_verity::ext4::{self, LENGTH_LEN};
use extol_verity::{Descriptor, Failed, Verifier};
use extol_vfs::{FsError, Result, VerityPart};

use crate::data::read::{self, behind};
use crate::data::readahead::FileReadahead;
use crate::inodes::InodeState;
use crate::map;
use crate::mounted::MountedFs;
use crate::verity::FileVerity;

/// An error that is the file's own: the volume may be in order.
fn failed(st: &InodeState, what: impl std::fmt::Display) -> FsError {
    FsError::Io(format!("fs-verity: {what} (inode {})", st.node.ino.0))
}

/// Reads at `offset` a part of the contents that ends inside the file, and verifies it (VE-1).
pub(crate) fn read(
    fs: &MountedFs,
    st: &InodeState,
    offset: u64,
    buf: &mut [u8],
    ahead: Option<&FileReadahead>,
) -> Result<()> {
    let result = load(fs, st).and_then(|file| verified(fs, st, &file, offset, buf, ahead));
    if result.is_err() {
        buf.fill(0);
    }
    result
}

fn verified(
    fs: &MountedFs,
    st: &InodeState,
    file: &FileVerity,
    offset: u64,
    mut rest: &mut [u8],
    ahead: Option<&FileReadahead>,
) -> Result<()> {
    let size = st.node.raw.size;
    let len = file.verifier.descriptor().params().block_len();
    let mut at = offset;
    while !rest.is_empty() {
        let inside = (at % len as u64) as usize;
        let whole = rest.len() - rest.len() % len;
        let n = if inside == 0 && whole > 0 {
            let (blocks, _) = rest.split_at_mut(whole);
            read::unverified(fs, st, at, blocks, ahead)?;
            for (i, block) in (at / len as u64..).zip(blocks.chunks(len)) {
                verify(fs, st, file, i, block)?;
            }
            whole
        } else {
            let begin = at - inside as u64;
            let there = usize::try_from(size - begin).unwrap_or(usize::MAX).min(len);
            let mut block = vec![0; len];
            read::unverified(fs, st, begin, &mut block[..there], ahead)?;
            verify(fs, st, file, begin / len as u64, &block)?;
            let n = rest.len().min(len - inside);
            rest[..n].copy_from_slice(&block[inside..inside + n]);
            n
        };
        rest = &mut rest[n..];
        at += n as u64;
    }
    Ok(())
}

fn verify(
    fs: &MountedFs,
    st: &InodeState,
    file: &FileVerity,
    index: u64,
    block: &[u8],
) -> Result<()> {
    let tree = tree_at(st)?;
    let read = |at: u64, bytes: &mut [u8]| behind(fs, st, tree + at, bytes);
    let at = || index.saturating_mul(block.len() as u64);
    file.verifier.verify(index, block, &fs.verified.of(file), read).map_err(|e| match e {
        Failed::Data => failed(st, format_args!("the contents at byte {} have changed", at())),
        Failed::Tree(nr) => {
            failed(st, format_args!("block {nr} of the tree is wrong, above byte {}", at()))
        }
        Failed::Outside => failed(st, format_args!("the tree has nothing for byte {}", at())),
        Failed::Read(e) => e,
    })
}

fn tree_at(st: &InodeState) -> Result<u64> {
    ext4::tree_at(st.node.raw.size).map_err(|e| failed(st, e))
}

/// What verifies the file, from memory or from its descriptor.
pub(crate) fn load(fs: &MountedFs, st: &InodeState) -> Result<Arc<FileVerity>> {
    if let Some(file) = st.verity.get() {
        return Ok(Arc::clone(file));
    }
    let descriptor = descriptor(fs, st)?.without_signature();
    if descriptor.params().block_size() > fs.vol.geo.block_size.bytes() {
        return Err(failed(st, "the blocks of the tree are longer than those of the volume"));
    }
    let verifier = Verifier::new(descriptor).map_err(|e| failed(st, e))?;
    Ok(Arc::clone(st.verity.get_or_init(|| fs.verified.file(verifier))))
}

/// Reads the descriptor.
fn descriptor(fs: &MountedFs, st: &InodeState) -> Result<Descriptor> {
    let raw = &st.node.raw;
    if !raw.flags.contains(InodeFlags::EXTENTS) || raw.flags.contains(InodeFlags::INLINE_DATA) {
        return Err(failed(st, "the file has no extents"));
    }
    let bits = fs.vol.geo.block_size.bits();
    let from = u32::try_from(tree_at(st)? >> bits).unwrap_or(u32::MAX);
    let mut end = 0;
    map::iterate(&fs.vol, &st.node, from, u32::MAX, &mut |run| {
        end = (u64::from(run.lblk) + u64::from(run.len)) << bits;
        true
    })?;
    let mut length = [0; LENGTH_LEN as usize];
    if end > 0 {
        behind(fs, st, end - LENGTH_LEN, &mut length)?;
    }
    let block_size = fs.vol.geo.block_size.bytes();
    let (at, len) = ext4::locate(raw.size, end, u32::from_le_bytes(length), block_size)
        .map_err(|e| failed(st, e))?;
    let mut bytes = vec![0; len];
    behind(fs, st, at, &mut bytes)?;
    Descriptor::parse(&bytes, raw.size).map_err(|e| failed(st, e))
}

/// Reads a part of what is behind the contents. (As it is: a reader of the tree verifies it.)
pub(crate) fn part(
    fs: &MountedFs,
    st: &InodeState,
    part: VerityPart,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let bytes = match part {
        VerityPart::Tree => {
            let size = load(fs, st)?.verifier.tree().size();
            let n = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let n = n.min(buf.len());
            behind(fs, st, tree_at(st)?.saturating_add(offset), &mut buf[..n])?;
            return Ok(n);
        }
        VerityPart::Descriptor => descriptor(fs, st)?.without_signature().to_bytes(),
        VerityPart::Signature => match descriptor(fs, st)?.signature() {
            [] => return Err(FsError::NoAttribute),
            signature => signature.to_vec(),
        },
    };
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = bytes.get(from..).unwrap_or_default();
    let n = rest.len().min(buf.len());
    buf[..n].copy_from_slice(&rest[..n]);
    Ok(n)
}
