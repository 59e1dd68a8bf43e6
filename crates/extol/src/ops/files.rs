//! Contents and durability: read, write, fallocate, seek, fiemap, fsync, sync.

use std::sync::Arc;

use crate::fast_commit::SyncTarget;
use extol_jbd2::{DeferredWrite, JournalError, Tid};
use extol_ondisk::{Incompat, InodeFlags};
use extol_vfs::{Author, Done, Fallocate, FileExtent, FsError, Job, OpenNr, Result, Seek};

use super::reserve::Reservation;
use super::{values, with_space};
use crate::data;
use crate::error;
use crate::inodes::{Cell, InodeState};
use crate::mounted::MountedFs;
use crate::options::Atime;
use crate::services::zeroed;
use crate::xattr;

/// A day: relatime updates an access time that is older.
const DAY: i64 = 86_400;

/// Dirty blocks whose write does not take long: one small write.
const AT_ONCE: usize = 16;

/// Reads, for an open file with what was read ahead for it.
pub(crate) fn read(
    fs: &MountedFs,
    ino: u32,
    offset: u64,
    buf: &mut [u8],
    ahead: Option<&data::readahead::FileReadahead>,
) -> Result<usize> {
    let cell = fs.cell(ino)?;
    let (n, touch) = {
        let st = cell.read()?;
        check_regular(&st)?;
        check_key(fs, &st)?;
        if let Some(ahead) = ahead {
            ahead.begin(fs, &cell, &st, offset, buf.len());
        }
        let n = data::read::read_with(fs, &st, offset, buf, ahead)?;
        (n, wants_atime(fs, &st))
    };
    if touch {
        touch_atime(fs, &cell);
    }
    Ok(n)
}

/// Refuses to open a file whose key is not there, and in a build without fs-verity one of that.
pub(crate) fn check_open(fs: &MountedFs, ino: u32) -> Result<()> {
    #[cfg(not(feature = "verity"))]
    super::verity::check_open(fs, ino)?;
    if fs.vol.geo.incompat().contains(Incompat::ENCRYPT) {
        check_key(fs, &*fs.cell(ino)?.read_any()?)?;
    }
    Ok(())
}

/// Refuses access to the contents of an encrypted file whose key is not there.
pub(crate) fn check_key(fs: &MountedFs, st: &InodeState) -> Result<()> {
    data::encryption::key(fs, st).map(drop)
}

pub(crate) fn check_regular(st: &InodeState) -> Result<()> {
    if st.is_dir() {
        return Err(FsError::IsADirectory);
    }
    if !st.is_regular() {
        return Err(FsError::Invalid("not a regular file"));
    }
    Ok(())
}

/// True if a read should change the access time.
pub(crate) fn wants_atime(fs: &MountedFs, st: &InodeState) -> bool {
    let raw = &st.node.raw;
    if raw.flags.contains(InodeFlags::NOATIME) || (st.is_dir() && fs.runtime.nodiratime.load()) {
        return false;
    }
    match fs.runtime.atime.load() {
        Atime::Never => false,
        Atime::Strict => true,
        Atime::Relative => {
            raw.atime <= raw.mtime || raw.atime <= raw.ctime || fs.now().sec - raw.atime.sec >= DAY
        }
    }
}

/// Changes the access time in memory; write-back stores it with the next change, or after a while.
pub(crate) fn touch_atime(fs: &MountedFs, cell: &Arc<Cell>) {
    if fs.check_writable().is_err() {
        return;
    }
    // (Does not wait.)
    let Some(_open) = fs.freeze_gate.try_enter() else { return };
    if let Some(mut st) = cell.try_write_times() {
        st.node.raw.atime = fs.now();
        st.lazy_times = true;
        fs.dirty.add(cell, fs.clock.now_ns());
    }
}

/// Writes.
pub(crate) fn write(
    fs: &MountedFs,
    ino: u32,
    offset: u64,
    bytes: &[u8],
    author: Author,
) -> Result<usize> {
    write_at(fs, ino, Some(offset), bytes, author).map(|(_, written)| written)
}

/// Writes at the end of the file. Gives the offset, too.
pub(crate) fn append(fs: &MountedFs, ino: u32, bytes: &[u8]) -> Result<(u64, usize)> {
    write_at(fs, ino, None, bytes, Author::Owner)
}

/// Err if the file is one of fs-verity (VE-3) or becomes one, or its `chattr` flags refuse a write
/// at `offset`. The latter do not refuse the writeback of a cache: the write may be older than the
/// flags, and the last page of an append-only file is written back as a whole.
fn check_marks(st: &InodeState, offset: u64, author: Author) -> Result<()> {
    let marks = st.node.raw.flags;
    if marks.contains(InodeFlags::VERITY) {
        return Err(FsError::NotPermitted);
    }
    if st.enables_verity {
        return Err(FsError::TextBusy);
    }
    let refused = marks.contains(InodeFlags::IMMUTABLE)
        || (marks.contains(InodeFlags::APPEND) && offset < st.node.raw.size);
    if refused && author != Author::Cache { Err(FsError::NotPermitted) } else { Ok(()) }
}

/// Writes at an offset, or at the end of the file: of that, no other write is in between, as it is
/// found and written with the lock of the inode held.
fn write_at(
    fs: &MountedFs,
    ino: u32,
    offset: Option<u64>,
    bytes: &[u8],
    author: Author,
) -> Result<(u64, usize)> {
    fs.check_writable()?;
    let cell = fs.cell(ino)?;
    let written = {
        let mut st = cell.write_behind_flush()?;
        check_regular(&st)?;
        check_key(fs, &st)?;
        let offset = offset.unwrap_or(st.node.raw.size);
        check_marks(&st, offset, author)?;
        st.reserve = fs.reserve_right(author);
        let n = with_space(fs, || data::write::write(fs, &cell, &mut st, offset, bytes))?;
        if !fs.runtime.sync.load() && !st.node.raw.flags.contains(InodeFlags::SYNC) {
            return Ok((offset, n));
        }
        (offset, n)
    };
    make_durable_at_once(fs, ino)?;
    Ok(written)
}

/// Makes the changes of names in a directory durable on mounts with `sync` or `dirsync`, and in
/// directories with the chattr flag `S` or `D`.
pub(crate) fn names_changed(fs: &MountedFs, dir: u32) -> Result<()> {
    // All threads that make names in a directory contend for its lock: it is taken once more only
    // where it must be.
    let must_sync = fs.runtime.dirsync()
        || fs.table.may_have_sync_dirs() && {
            let cell = fs.cell(dir)?;
            let st = cell.read()?;
            st.node.raw.flags.intersects(InodeFlags::SYNC.union(InodeFlags::DIRSYNC))
        };
    if must_sync { make_durable_at_once(fs, dir) } else { Ok(()) }
}

/// Clears set-id bits and file capabilities, if there are any.
pub(crate) fn kill_privileges(fs: &MountedFs, ino: u32, outsider: bool) -> Result<()> {
    const CAPABILITY: &[u8] = b"security.capability";
    let cell = fs.cell(ino)?;
    let drop_bits = |st: &InodeState| {
        let mode = st.node.raw.mode;
        let gid = if outsider || mode & 0o010 != 0 { 0o2000 } else { 0 };
        mode & (0o4000 | gid)
    };
    {
        let st = cell.read()?;
        if st.is_dir()
            || (drop_bits(&st) == 0 && xattr::get(&fs.vol, &st.node, CAPABILITY).is_err())
        {
            return Ok(());
        }
    }
    fs.check_writable()?;
    let mut st = cell.write()?;
    if st.node.raw.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(FsError::NotPermitted);
    }
    let _reserved = Reservation::make(fs, 1)?;
    let mut h = fs.start(xattr::credits(&fs.vol, &st.node, 0) + 1)?;
    let (node, mut large, any) = (&mut st.node, fs.values(), extol_vfs::XattrSet::Any);
    match xattr::set(&fs.vol, &mut h, node, &mut large, CAPABILITY, None, any) {
        Ok(()) | Err(FsError::NoAttribute) => {}
        Err(e) => return Err(e),
    }
    values::end(fs, &mut h, &mut st, large)?;
    st.node.raw.mode &= !drop_bits(&st);
    st.node.raw.ctime = fs.now();
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)?;
    values::delete_left(fs);
    Ok(())
}

/// fallocate(2).
pub(crate) fn fallocate(
    fs: &MountedFs,
    ino: u32,
    mode: Fallocate,
    (offset, len): (u64, u64),
    author: Author,
) -> Result<()> {
    fs.check_writable()?;
    let cell = fs.cell(ino)?;
    with_space(fs, || {
        let mut st = cell.write()?;
        check_regular(&st)?;
        check_key(fs, &st)?;
        let flags = st.node.raw.flags;
        if flags.intersects(InodeFlags::IMMUTABLE.union(InodeFlags::VERITY))
            || (flags.contains(InodeFlags::APPEND) && !matches!(mode, Fallocate::Allocate { .. }))
        {
            return Err(FsError::NotPermitted);
        }
        if st.enables_verity {
            return Err(FsError::TextBusy);
        }
        st.reserve = fs.reserve_right(author);
        data::fallocate::fallocate(fs, &cell, &mut st, mode, offset, len)
    })
}

/// SEEK_DATA and SEEK_HOLE.
pub(crate) fn seek(fs: &MountedFs, ino: u32, offset: u64, what: Seek) -> Result<u64> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    check_regular(&st)?;
    data::seek::seek(fs, &st, offset, what)
}

/// Extents of a byte range.
pub(crate) fn fiemap(fs: &MountedFs, ino: u32, offset: u64, len: u64) -> Result<Vec<FileExtent>> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    if !st.node.raw.maps_blocks() && !st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(Vec::new());
    }
    data::seek::fiemap(fs, &st, offset, len)
}

/// An fsync whose data is on the device, or on its way.
struct Synced {
    tid: Tid,
    journalled: bool,
    /// Data that another thread writes.
    deferred: Option<DeferredWrite>,
}

impl Synced {
    /// Ends it, with the result of the journal.
    fn end(self, fs: &MountedFs, result: extol_jbd2::Result<()>) -> Result<()> {
        result.map_err(lost)?;
        if !self.journalled {
            zeroed::after_fsync(fs);
        }
        Ok(())
    }
}

/// The journal's error, which is not "read-only": the caller's data may be lost.
fn lost(error: JournalError) -> FsError {
    match error {
        JournalError::InBatch => FsError::Busy,
        error => FsError::Io(error.to_string()),
    }
}

/// An fsync by itself behind a change (`sync`, `dirsync`, the flags of chattr). Within a batch it
/// is left to the batch's commit.
fn make_durable_at_once(fs: &MountedFs, ino: u32) -> Result<()> {
    if fs.vol.journal.has_batch() { Ok(()) } else { make_durable(fs, ino, false) }
}

/// Makes a file durable, through one open of it.
pub(crate) fn fsync(fs: &MountedFs, (ino, open): (u32, OpenNr), data_only: bool) -> Result<()> {
    make_durable(fs, ino, data_only).and_then(|()| check_whole(fs, ino, open))
}

/// Err if changes that an fsync would have to make durable are lost.
fn check_whole(fs: &MountedFs, ino: u32, open: OpenNr) -> Result<()> {
    if fs.table.tells_undone(ino, open) { Err(undone()) } else { Ok(()) }
}

/// Changes were lost when a stopped volume was opened again.
pub(crate) fn undone() -> FsError {
    FsError::Io("changes that were not durable when the volume was stopped are lost".into())
}

/// [`fsync`] of the changes that are in memory now.
fn make_durable(fs: &MountedFs, ino: u32, data_only: bool) -> Result<()> {
    let mut synced = begin_fsync(fs, ino, data_only)?;
    let journal = &fs.vol.journal;
    let deferred = synced.deferred.take();
    let result = if synced.journalled {
        journal.make_durable(journal.newest())
    } else {
        journal.make_durable_for(synced.tid, SyncTarget { ino, data_only }.key())
    };
    let result = result.and_then(|()| deferred.map_or(Ok(()), |deferred| deferred.make_durable()));
    synced.end(fs, result)
}

/// [`fsync`] that calls `done` when the file is durable: see
/// [`Mountable::fsync_then`](extol_vfs::Mountable). If it takes long, all of it becomes a job.
pub(crate) fn fsync_then(
    fs: &Arc<MountedFs>,
    (ino, open): (u32, OpenNr),
    data_only: bool,
    done: Done,
    lead: &mut dyn FnMut(Job),
) {
    let is_long = |st: &InodeState| st.pages.len() > AT_ONCE || fs.journals_data(st);
    let takes_long = || fs.cell(ino).and_then(|cell| Ok(is_long(&*cell.read()?))).unwrap_or(false);
    if takes_long() {
        let its = Arc::clone(fs);
        lead(Box::new(move || sync_then(&its, (ino, open), data_only, done, &mut |job| job())));
    } else {
        sync_then(fs, (ino, open), data_only, done, lead);
    }
}

fn sync_then(
    fs: &Arc<MountedFs>,
    (ino, open): (u32, OpenNr),
    data_only: bool,
    done: Done,
    lead: &mut dyn FnMut(Job),
) {
    let mut synced = match begin_fsync(fs, ino, data_only) {
        Ok(synced) => synced,
        Err(error) => return done(fs.note(Err(error))),
    };
    let its = Arc::clone(fs);
    let done: Done = Box::new(move |result| {
        done(its.note(result.and_then(|()| check_whole(&its, ino, open))));
    });
    let journal = &fs.vol.journal;
    if synced.journalled {
        let result = journal.make_durable(journal.newest());
        return done(synced.end(fs, result));
    }
    let (tid, deferred, its) = (synced.tid, synced.deferred.take(), Arc::clone(fs));
    let done = Box::new(move |result| done(synced.end(&its, result)));
    journal.make_durable_for_then(tid, SyncTarget { ino, data_only }.key(), deferred, done, lead);
}

/// Writes dirty data to the device.
fn begin_fsync(fs: &MountedFs, ino: u32, data_only: bool) -> Result<Synced> {
    let cell = fs.cell(ino)?;
    fs.vol.journal.check_aborted().map_err(lost)?;
    fs.throttle.fsynced(ino);
    let mut st = cell.write_for_flush()?;
    if !fs.writes_nothing() {
        data::flush::flush_for_fsync(fs, &mut st)?;
    }
    let tid = if data_only { st.datasync_tid } else { st.sync_tid };
    Ok(Synced {
        tid: if st.is_dir() { fs.dirs_moved.awaited(tid, || fs.vol.journal.newest()) } else { tid },
        journalled: fs.journals_data(&st),
        deferred: st.deferred.clone(),
    })
}

/// Makes everything durable, the superblock's counters included. Callers come through
/// `maintenance::sync`.
///
/// The data of a damaged file may have no place. It stays in memory, and an fsync of the file fails
/// as well; the inner result is the first such error. All other data is durable all the same.
pub(crate) fn sync_now(fs: &MountedFs) -> Result<Result<()>> {
    fs.vol.journal.check_aborted().map_err(lost)?;
    if fs.writes_nothing() {
        return Ok(Ok(()));
    }
    let unplaced = data::writeback::flush_all(fs);
    fs.transact(1, |h| fs.vol.alloc.flush_super(h, &fs.sb))?;
    fs.vol.journal.make_all_durable().map_err(lost)?;
    Ok(unplaced)
}

#[cfg(test)]
mod tests;
