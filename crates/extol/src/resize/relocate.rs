//! Moves one mapped run of a file; with clusters, all that the file has in a row of them.
//!
//! ```text
//!   data        read old ─ write new ─► handle: bitmap, map, inode; the old blocks are freed
//!   unwritten   nothing to copy      ─► the same
//!   metadata    handle: new block in the cache with the old one's bytes, then the same; the old
//!   block is revoked
//! ```
//!
//! Metadata are the blocks of directories and long symbolic links, attribute values in inodes of
//! their own, blocks of quota files, and file data that goes through the log. Their bytes do not
//! depend on where they lie.

use std::sync::atomic::Ordering;

use extol_block::{AlignedBuf, BlockNr};
use extol_jbd2::{Handle, planted};
use extol_ondisk::InodeNr;
use extol_vfs::{FsError, Result};

use crate::alloc::Run;
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, Discard, MappedRun, Stretch};
use crate::mounted::MountedFs;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// Alignment that direct I/O accepts on every device.
const ALIGN: usize = 4096;
/// Most blocks of data that one handle maps.
const DATA_STEP: u32 = 8192;
/// Most blocks of metadata that one handle copies.
const METADATA_STEP: u32 = 32;

/// How the bytes of a file get to a new place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    Data,
    Metadata,
    Nothing,
}

/// Most blocks of this file that one [`relocate`] takes. (A cluster may have more.)
fn step(fs: &MountedFs, st: &InodeState) -> u32 {
    let most = if is_metadata(fs, st) { METADATA_STEP } else { DATA_STEP };
    most.min(fs.vol.geo.blocks_per_group).max(1)
}

/// What moves with the beginning of a run that the file maps.
pub(super) fn stretch(fs: &MountedFs, st: &InodeState, run: MappedRun) -> Result<Stretch> {
    Stretch::of(&fs.vol, &st.node, run, step(fs, st))
}

fn is_metadata(fs: &MountedFs, st: &InodeState) -> bool {
    !st.is_regular() || st.is_value() || fs.journals_data(st) || is_quota_file(fs, st.node.ino)
}

/// True for the inode of a quota file.
pub(super) fn is_quota_file(fs: &MountedFs, ino: InodeNr) -> bool {
    fs.quotas.get().is_some_and(|quotas| quotas.has(ino))
}

/// Moves the blocks of `from` to `to`, which is as long and was taken. `reserved`: its clusters
/// were reserved, too. On an error they are given back (and reserved no more if the second part of
/// the result says so).
pub(super) fn relocate(
    fs: &MountedFs,
    st: &mut InodeState,
    from: &Stretch,
    to: Run,
    reserved: bool,
) -> (Result<()>, bool) {
    let how = match is_metadata(fs, st) {
        _ if from.pieces().iter().all(|piece| piece.unwritten) => Copy::Nothing,
        true => Copy::Metadata,
        false => Copy::Data,
    };
    let how = match how {
        Copy::Data if fs.measuring.load(Ordering::Relaxed) => Copy::Nothing,
        how => how,
    };
    let late_block = planted::has(planted::Bug::QuotaBlockLate) && is_quota_file(fs, st.node.ino);
    let how = if late_block { Copy::Data } else { how };
    let late = how == Copy::Data && planted::has(planted::Bug::MapBeforeCopy) || late_block;
    if how == Copy::Data
        && !late
        && let Err(e) = copy_all(fs, from, to)
    {
        fs.vol.alloc.give_back(to);
        return (Err(e), false);
    }
    let done = remap(fs, st, from, to, reserved, how);
    if late && done.0.is_ok() {
        let written = fs
            .vol
            .journal
            .commit_all()
            .map_err(error::journal)
            .and_then(|()| copy_all(fs, from, to));
        return (written, done.1);
    }
    done
}

/// Copies data on the device.
fn copy_all(fs: &MountedFs, from: &Stretch, to: Run) -> Result<()> {
    for piece in from.pieces().iter().filter(|piece| !piece.unwritten) {
        copy(fs, piece.pblk, Run { start: from.place(piece, to.start), len: piece.len })?;
    }
    if fs.vol.journal.commits_after_data() || planted::has(planted::Bug::CopyNotFlushed) {
        return Ok(());
    }
    // (An asynchronous commit goes to the device together with what it maps, and without a log
    // nothing orders the writes.)
    fs.vol.journal.flush_data().map_err(error::journal)
}

fn copy(fs: &MountedFs, from: BlockNr, to: Run) -> Result<()> {
    let vol = &fs.vol;
    let size = vol.geo.block_size;
    vol.alloc.check_not_system(Run { start: from, ..to })?;
    let all = u64::from(to.len) * u64::from(size.bytes());
    let most = usize::try_from(all).unwrap_or(PIECE).min(PIECE);
    let mut buf = AlignedBuf::new(most, ALIGN);
    let mut at = 0;
    while at < all {
        let len = usize::try_from(all - at).unwrap_or(most).min(most);
        let part = buf.get_mut(..len).unwrap_or_default();
        vol.dev.read_at(part, from.offset(size) + at).map_err(error::device)?;
        let written = vol.dev.write_at(part, to.start.offset(size) + at);
        if !planted::has(planted::Bug::CopyNotFlushed) {
            vol.journal.note_data_write();
        }
        written.map_err(|e| fs.data_write_failed(e))?;
        at += len as u64;
    }
    Ok(())
}

/// The transaction that maps the new blocks and frees the old ones.
fn remap(
    fs: &MountedFs,
    st: &mut InodeState,
    from: &Stretch,
    to: Run,
    reserved: bool,
    how: Copy,
) -> (Result<()>, bool) {
    let copies = if how == Copy::Metadata { from.blocks() } else { 0 };
    let pieces = u32::try_from(from.pieces().len()).unwrap_or(u32::MAX);
    let credits = map::credits_for_relocate(&st.node, from.len, pieces) + 2 + 1 + copies;
    let mut h = match start(fs, credits) {
        Ok(h) => h,
        Err(e) => {
            fs.vol.alloc.give_back(to);
            return (Err(e), false);
        }
    };
    let taken = match reserved {
        true => fs.vol.alloc.commit_reserved(&mut h, to),
        false => fs.vol.alloc.commit_take(&mut h, to),
    };
    if let Err(e) = taken {
        fs.vol.alloc.give_back(to);
        return (Err(e), false);
    }
    let moved = in_handle(fs, &mut h, st, from, to, how);
    let undone = if moved.is_err() { fs.vol.alloc.free(&mut h, to) } else { Ok(()) };
    // (The map of the inode is as it was if that failed, but perhaps not its tree.)
    let stored = st.store(fs, &mut h, true);
    let stopped = h.stop().map_err(error::journal);
    (moved.and(undone).and(stored).and(stopped), reserved)
}

/// A handle. A cluster with very many pieces, or blocks of metadata, has no transaction.
fn start(fs: &MountedFs, credits: u32) -> Result<Handle> {
    if fs.vol.geo.has_clusters() && credits > fs.vol.journal.max_credits() {
        return Err(FsError::NotSupported("moving a cluster in so many pieces by this journal"));
    }
    fs.start(credits)
}

fn in_handle(
    fs: &MountedFs,
    h: &mut Handle,
    st: &mut InodeState,
    from: &Stretch,
    to: Run,
    how: Copy,
) -> Result<()> {
    let vol = &fs.vol;
    if how == Copy::Metadata {
        for piece in from.pieces().iter().filter(|piece| !piece.unwritten) {
            copy_metadata(fs, h, piece, from.place(piece, to.start))?;
        }
    }
    let data = if is_metadata(fs, st) { Discard::FreeJournalled } else { Discard::Free };
    let moved = map::relocate(vol, h, &mut st.node, from, to.start, data);
    if moved.is_err() && how == Copy::Metadata {
        for piece in from.pieces().iter().filter(|piece| !piece.unwritten) {
            let to = from.place(piece, to.start);
            for i in 0..u64::from(piece.len) {
                h.forget(to.plus(i), true).map_err(error::journal)?;
            }
        }
    }
    moved
}

fn copy_metadata(fs: &MountedFs, h: &mut Handle, piece: &MappedRun, to: BlockNr) -> Result<()> {
    let vol = &fs.vol;
    vol.alloc.check_not_system(Run { start: piece.pblk, len: piece.len })?;
    for i in 0..u64::from(piece.len) {
        let old = vol.journal.read(piece.pblk.plus(i)).map_err(error::journal)?.data();
        let new = h.create(to.plus(i)).map_err(error::journal)?;
        h.modify(&new, |bytes| bytes.copy_from_slice(&old)).map_err(error::journal)?;
    }
    Ok(())
}
