//! Closing a volume: in order, or as a power cut would.
//!
//! ```text
//!   requests end ─ thaw ─ threads end ─ write back ─ counters ─ log empty (durable)
//!     ─ "clean" (durable)
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_vfs::{FsError, Result};

use super::threads::Threads;
use crate::data::writeback;
use crate::mounted::MountedFs;
use crate::ops::delete;
use crate::superblock::write_superblock;
use crate::{error, maintenance};

/// Closes a volume: all blocks are written in place, the log becomes empty, the superblock is
/// marked clean. A second call does nothing.
pub(crate) fn close(fs: &Arc<MountedFs>, threads: &mut Threads) -> Result<()> {
    // Requests that wait are answered; later ones run in their callers, as long as there is
    // something to sync.
    threads.requests.take();
    // A frozen volume ends like any other. (What fails here, fails again below.)
    let _ = maintenance::thaw(fs);
    fs.lazy_init.stop();
    threads.writeback.take();
    threads.refill.take();
    fs.table.release_all(&fs.vol);
    // (A volume that became read-only after an error is not closed in order.)
    let read_only = fs.writes_nothing() || fs.maintenance.is_shut_down();
    let result = if read_only { Ok(Ok(())) } else { write_everything(fs) };
    threads.journal.take();
    let result = match (read_only, result) {
        (true, _) => Ok(()),
        // A step that finds the volume read-only does so because an earlier one has failed.
        (false, Err(FsError::ReadOnly)) => {
            Err(fs.vol.journal.failure().map_or(FsError::ReadOnly, FsError::Io))
        }
        (false, Err(e)) => Err(e),
        (false, Ok(lost)) => {
            let sb = fs.clean_superblock();
            write_superblock(&*fs.vol.dev, &sb).map_err(|e| FsError::Io(e.line())).and(lost)
        }
    };
    fs.note_abort();
    // Nothing may be written any more, although callers may still hold the volume.
    fs.read_only.store(true, Ordering::Release);
    // The log is frozen for good: a late caller that waits for its thaw must not wait for ever.
    fs.vol.journal.shut_down("the volume was closed");
    maintenance::release(fs);
    if let Some(mmp) = threads.mmp.take() {
        mmp.release();
    }
    result
}

/// Ends a mount that an error has stopped, before its volume is opened again: its threads end, and
/// it writes nothing any more.
pub(crate) fn abandon(fs: &MountedFs, threads: &mut Threads) {
    threads.requests.take();
    fs.lazy_init.stop();
    threads.writeback.take();
    threads.refill.take();
    threads.journal.take();
    fs.vol.journal.shut_down("the volume is opened again");
    maintenance::release(fs);
    if let Some(mmp) = threads.mmp.take() {
        mmp.release();
    }
    if let Some(fence) = threads.fence.take() {
        fence.close();
    }
}

/// Stops at once: nothing more is written, not even a mark.
pub(crate) fn crash(fs: &MountedFs, threads: Option<Threads>) {
    fs.vol.journal.shut_down("crashed on purpose");
    fs.read_only.store(true, Ordering::Release);
    fs.lazy_init.stop();
    drop(threads);
    maintenance::release(fs);
}

/// Brings everything home. File data without a place, because its file is damaged, is lost (that is
/// the inner result); all else is closed in order.
pub(crate) fn write_everything(fs: &Arc<MountedFs>) -> Result<Result<()>> {
    fs.check_writable().map_err(|_| {
        FsError::Io(
            fs.vol.journal.abort_reason().unwrap_or_else(|| "the volume is read-only".into()),
        )
    })?;
    let lost = fs.note(writeback::flush_all(fs));
    // Unlinked files have no user left.
    for cell in fs.table.cells() {
        delete::delete_if_unused(fs, &cell);
        if let Ok(mut st) = cell.write() {
            st.window.empty();
        }
    }
    fs.transact(1, |h| fs.vol.alloc.flush_super(h, &fs.sb))?;
    fs.vol.journal.freeze().map_err(error::journal)?;
    fs.vol.journal.flush_data().map_err(error::journal)?;
    Ok(lost)
}
