//! A volume that an error has stopped becomes writable again, in place.
//!
//! A remount with `rw` does what an unmount and a mount do, and keeps the handle:
//!
//! ```text
//!   no operation under way ─► the stopped mount ends, writes nothing more (fence)
//!       ─► the volume is opened as by a mount: recovery of the log, from the device alone
//!       ─► references of the front end move over ─► operations go on
//! ```
//!
//! What was acknowledged is in the log or in place, so recovery brings it. What was only in memory
//! is lost, as at a power cut: the error had said so to every fsync. The front end may have cached
//! it: [`Ext4::take_outdated`] lists the inodes of which it has to drop everything.
//!
//! References. A front end knows inodes by number, and a number may mean something else than
//! before: the file was never durable, or its deletion was not. An inode is the same if generation
//! and kind are. The references on all others are *lost*: every operation with such a number gives
//! `Stale` until the front end has given them all back, and no new inode gets the number
//! ([`InodeTable::adopt`](crate::inodes::InodeTable::adopt)). Files that were deleted while they
//! were open are among these: recovery frees them.
//!
//! Durability. A program that wrote before the volume was stopped may call fsync after it was
//! opened again. Its changes are gone, so that fsync fails: an inode that comes back with other
//! times or another size than it had in memory, or that had dirty pages or changes that are in no
//! commit, is *undone* ([`InodeTable::tells_undone`](crate::inodes::InodeTable::tells_undone)). So
//! does the first sync of the volume.
//!
//! The page cache below. After a failed flush of a buffered device Linux marks pages as clean that
//! it did not write: reads show them until they are evicted, and the medium holds something else.
//! Recovery and every later read must see the medium, so the pages are dropped first
//! ([`BlockDevice::drop_page_cache`](extol_block::BlockDevice::drop_page_cache)). Direct devices
//! read from the medium anyway.
//!
//! Invariants
//! - RO-1: nothing is written by the stopped mount once recovery begins: its fence is closed
//!   (`mount::close::abandon`).
//! - RO-2: an opening that fails changes nothing but what recovery has written: the volume stays
//!   stopped, readable as it was, and a later remount tries again ([`Ext4::reopen`]).
//! - RO-3: no reference is taken or given back between the end of one state and the beginning of
//!   the next: no operation is under way ([`Current::stop_all`](super::current::Current)).
//! - RO-4: no fsync and no sync succeeds for changes that were lost ([`compare`]).
//! - RO-5: what is read afterwards is on the medium, or was written afterwards.
//! - RO-6: a shutdown on purpose is not mended: it stands for a power cut.
//! - RO-7: a volume that another program has, or has had since this mount began, is not opened
//!   again in place: it takes e2fsck and a new mount ([`keep_others_out`], GD-6). A device that was
//!   cut is the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_block::BlockDevice;
use extol_ondisk::superblock::State;
use extol_ondisk::{Inode, InodeNr, Time};
use extol_vfs::RemountError;

use super::Ext4;
use crate::inodes::{Continuity, InodeState};
use crate::maintenance;
use crate::mount::threads::Threads;
use crate::mount::{self, Purpose, close};
use crate::mounted::MountedFs;
use crate::options::MountOptions;
use crate::remount;

fn refuse<T>(why: impl std::fmt::Display) -> Result<T, RemountError> {
    Err(RemountError(format!("cannot remount read-write: {why}")))
}

impl Ext4 {
    /// Opens the volume again if an error has stopped it and the list asks for `rw`. `None`: it is
    /// a remount like any other.
    pub(super) fn reopen(
        &self,
        threads: &mut Threads,
        list: &str,
    ) -> Option<Result<Vec<String>, RemountError>> {
        let old = Arc::clone(&self.fs());
        let asked = list.split(',').any(|word| word == "rw");
        (asked && old.is_stopped()).then(|| self.reopen_stopped(&old, threads, list))
    }

    fn reopen_stopped(
        &self,
        old: &Arc<MountedFs>,
        threads: &mut Threads,
        list: &str,
    ) -> Result<Vec<String>, RemountError> {
        let (options, mut warnings) = remount::parse(old, list)?;
        if old.vol.journal.failure().is_none() {
            return refuse("the volume was shut down; unmount it and mount it again");
        }
        keep_others_out(old, &*self.device)?;
        if let Some(log) = &old.options.lock().journal.device {
            log.keep_others_out().or_else(|e| refuse(e.source))?;
        }
        if self.sizes_cached.load(Ordering::Acquire) {
            return refuse(
                "with writeback_cache the kernel keeps sizes of files that may be lost; unmount \
                 the volume and mount it again",
            );
        }
        // What waits for a thaw must end. (The mark of a thaw cannot be written, nor need it be.)
        let _ = maintenance::thaw(old);
        let Some(mut stopped) = self.current.stop_all() else {
            return refuse("operations are still under way; try again");
        };
        close::abandon(old, threads);
        self.device.drop_page_cache();
        if let Some(log) = &old.options.lock().journal.device {
            log.drop_page_cache();
        }
        let options = for_a_mount(old, options);
        let (new, new_threads, _) =
            match mount::open(Purpose::Use, Arc::clone(&self.device), &options) {
                Ok(opened) => opened,
                Err(e) => {
                    if let Some(guard) = &old.guard {
                        guard.after_failed_reopening();
                    }
                    return refuse(e);
                }
            };
        let outdated = new.table.adopt(&old.table, &new.vol, |ino| compare(old, &new, ino));
        if old.freeze_gate.refuses() {
            new.freeze_gate.refuse();
        }
        *threads = new_threads;
        stopped.replace(&new);
        drop(stopped);
        self.outdated.lock().extend(outdated);
        if new.sb.read(|sb| sb.state.contains(State::ERROR)) {
            warnings.push("the volume has errors noted: unmount it and run e2fsck".into());
        }
        Ok(warnings)
    }

    /// The inodes of which a front end must drop all that it caches; empty the next time.
    pub(super) fn outdated(&self) -> Vec<u32> {
        std::mem::take(&mut self.outdated.lock())
    }
}

/// Err if another program has the volume, or has had it since this mount began (RO-7).
fn keep_others_out(old: &MountedFs, device: &dyn BlockDevice) -> Result<(), RemountError> {
    let unchanged = old.guard.as_ref().map_or(Ok(()), |guard| guard.check_before_reopening());
    unchanged.or_else(refuse)?;
    device.keep_others_out().or_else(|e| refuse(e.source))
}

/// The options of a stopped mount for the mount that follows it.
pub(super) fn for_a_mount(old: &MountedFs, mut options: MountOptions) -> MountOptions {
    options.access.read_only = false;
    // The options in force name a data mode also where there is no journal.
    options.journal.data_mode = options.journal.data_mode.filter(|_| old.vol.journal.has_log());
    options
}

/// What is left of the inode that a number meant before.
fn compare(old: &MountedFs, new: &MountedFs, ino: u32) -> Continuity {
    let Ok(now) = new.vol.read_inode(InodeNr(ino)) else { return Continuity::Lost };
    if now.links == 0 {
        return Continuity::Lost;
    }
    let whole = match old.table.used(ino) {
        Some(cell) => match cell.read_any() {
            Ok(st) if identity(&st.node.raw) != identity(&now) => return Continuity::Lost,
            Ok(st) => changes(&st.node.raw) == changes(&now) && !is_ahead(old, &st),
            Err(_) => return Continuity::Lost,
        },
        None => match old.vol.read_inode(InodeNr(ino)) {
            Ok(was) if identity(&was) == identity(&now) => changes(&was) == changes(&now),
            _ => return Continuity::Lost,
        },
    };
    if whole { Continuity::Whole } else { Continuity::Undone }
}

/// Generation and kind.
fn identity(inode: &Inode) -> (u32, u16) {
    const KIND: u16 = 0o170_000;
    (inode.generation, inode.mode & KIND)
}

/// What most changes of an inode change, but for the time of the last access.
fn changes(inode: &Inode) -> (u64, Time, Time) {
    (inode.size, inode.mtime, inode.ctime)
}

/// True if an inode has data in memory only, or changes that are in no commit. (Two changes may
/// have the same times: the clock of the times is coarse.)
fn is_ahead(old: &MountedFs, st: &InodeState) -> bool {
    let deferred = st.deferred.as_ref().is_some_and(|deferred| !deferred.is_written());
    let in_running = st.is_changed && st.sync_tid.after(old.vol.journal.committed());
    let recorded = || old.tracker.has_recorded(st.sync_tid, st.node.ino.0);
    !st.pages.is_empty() || deferred || (in_running && !recorded())
}
