//! Makes a file one of fs-verity.

use std::sync::{Arc, OnceLock};

use extol_ondisk::InodeFlags;
use extol_verity::ext4::Layout;
use extol_verity::{Builder, Descriptor, Params, VerityError};
use extol_vfs::{FsError, Result};

use crate::data::{flush, read, truncate, write};
use crate::fast_commit::Reason;
use crate::fast_commit::eligibility;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map;
use crate::mounted::MountedFs;
use crate::orphan;

/// Bytes of the contents that are read at once.
const STEP: usize = 256 << 10;

/// An error of building.
struct Stop(FsError);

impl From<VerityError> for Stop {
    fn from(error: VerityError) -> Self {
        Self(match error {
            VerityError::TooLarge => FsError::FileTooLarge,
            _ => FsError::Invalid("parameters of fs-verity"),
        })
    }
}

/// Makes a regular file one of fs-verity, with tree and descriptor. The caller has checked flags
/// and parameters. On an error the file is what it was.
pub(crate) fn enable(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    params: Params,
    signature: Vec<u8>,
) -> Result<()> {
    let size = st.node.raw.size;
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        let contents = inline::read(&st.node)?;
        write::move_out(fs, st, &contents)?;
    }
    if !st.node.raw.flags.contains(InodeFlags::EXTENTS) {
        return Err(FsError::NotSupported("fs-verity of a file without extents"));
    }
    flush::flush(fs, st)?;
    // Linux hashes the last block as it is on the device.
    write::zero_tail(fs, cell, st, size)?;
    flush::flush(fs, st)?;
    // The last mapped block leads to the descriptor: nothing else may be behind the end.
    st.window.empty();
    truncate::unmap_behind(fs, st, size)?;
    let was_orphan = fs.orphans.contains(st.node.ino.0);
    if !was_orphan {
        begin(fs, st)?;
    }
    let built = build(fs, cell, st, params, signature);
    let done = built.and_then(|()| finish(fs, st, was_orphan));
    if done.is_err() {
        undo(fs, st, was_orphan);
    }
    done
}

/// From here on a crash takes away all behind the end.
fn begin(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    fs.transact(orphan::CREDITS + 1, |h| {
        fs.orphans.add(&fs.vol, &fs.sb, h, st.node.ino.0)?;
        eligibility::note_ineligible(h, st.node.ino, Reason::Attributes);
        st.store(fs, h, true)
    })
}

/// Writes tree and descriptor.
fn build(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    params: Params,
    signature: Vec<u8>,
) -> Result<()> {
    let size = st.node.raw.size;
    let stopped = |e: VerityError| Stop::from(e).0;
    let mut builder = Builder::new(&params, size).map_err(stopped)?;
    let len = extol_verity::DESCRIPTOR_LEN + signature.len();
    let tree = builder.tree().size();
    let block_size = fs.vol.geo.block_size.bytes();
    let layout = Layout::new(size, tree, len, block_size).map_err(stopped)?;
    if layout.end > map::max_file_size(&fs.vol.geo, st.node.raw.flags) {
        return Err(FsError::FileTooLarge);
    }
    let mut buf = vec![0; STEP];
    let mut at = 0;
    while at < size {
        let n = read::read(fs, st, at, &mut buf)?;
        if n == 0 {
            return Err(FsError::Io("the file ends before its size".into()));
        }
        let mut write = |place: u64, block: &[u8]| put(fs, cell, st, layout.tree + place, block);
        builder.push(&buf[..n], &mut write)?;
        at += n as u64;
    }
    let mut write =
        |place: u64, block: &[u8]| put(fs, cell, st, layout.tree + place, block).map_err(Stop);
    let root = builder.finish(&mut write).map_err(|stop| stop.0)?;
    let descriptor = Descriptor::new(params, size, &root, signature).map_err(stopped)?;
    put(fs, cell, st, layout.descriptor, &descriptor.to_bytes())?;
    let length = u32::try_from(len).map_err(|_| FsError::FileTooLarge)?;
    put(fs, cell, st, layout.length, &length.to_le_bytes())?;
    flush::flush(fs, st)
}

/// Writes bytes behind the end of the file, into pages.
fn put(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    at: u64,
    mut bytes: &[u8],
) -> Result<()> {
    let bs = fs.vol.geo.block_len();
    let mut at = at;
    while !bytes.is_empty() {
        let lblk = u32::try_from(at / bs as u64).map_err(|_| FsError::FileTooLarge)?;
        let inside = (at % bs as u64) as usize;
        let (part, rest) = bytes.split_at(bytes.len().min(bs - inside));
        write::put_behind(fs, cell, st, lblk, inside, part)?;
        bytes = rest;
        at += part.len() as u64;
    }
    if fs.dirty.bytes() > fs.runtime.dirty_bytes.load() {
        flush::flush(fs, st)?;
    }
    Ok(())
}

/// Sets the flag (VE-2): all else was written.
fn finish(fs: &MountedFs, st: &mut InodeState, was_orphan: bool) -> Result<()> {
    let done = fs.transact(orphan::CREDITS + 1, |h| {
        if !was_orphan {
            end_orphan(fs, st, h)?;
        }
        st.node.raw.flags |= InodeFlags::VERITY;
        st.store(fs, h, true)
    });
    st.verity = OnceLock::new();
    if done.is_err() {
        st.node.raw.flags -= InodeFlags::VERITY;
    }
    done
}

fn end_orphan(fs: &MountedFs, st: &mut InodeState, h: &mut extol_jbd2::Handle) -> Result<()> {
    fs.orphans.remove(&fs.vol, &fs.sb, h, st.node.ino.0)?;
    eligibility::note_ineligible(h, st.node.ino, Reason::Attributes);
    st.node.raw.dtime = 0;
    Ok(())
}

/// Takes away what was written. If that fails, too, the file stays an orphan, and the next mount
/// does it.
fn undo(fs: &MountedFs, st: &mut InodeState, was_orphan: bool) {
    let size = st.node.raw.size;
    let behind = size.div_ceil(fs.vol.geo.block_len() as u64);
    let behind = u32::try_from(behind).unwrap_or(u32::MAX);
    truncate::drop_pages(fs, st, behind, u32::MAX);
    let cut = truncate::unmap_behind(fs, st, size);
    if cut.is_ok() && !was_orphan && fs.orphans.contains(st.node.ino.0) {
        let _ = fs.transact(orphan::CREDITS + 1, |h| {
            end_orphan(fs, st, h)?;
            st.store(fs, h, true)
        });
    }
}
