//! What an error does to the volume: what is recorded, and what stops.
//!
//! | what happens | `errors=continue` | `errors=remount-ro` |
//! |---|---|---|
//! | damaged or unreadable metadata | recorded; goes on | journal aborted, recorded, read-only |
//! | the journal is aborted (a write failed) | recorded, read-only | the same |
//!
//! `errors=panic` does what `remount-ro` does, and asks for the end of the process.
//!
//! *Recorded* means: the state "errors", a count, and place and time of the first and the last
//! error, in the superblock. While the journal lives the record is a change like any other. After
//! an abort nothing of the transactions may be written any more, and yet the next mount must know.
//! So the record goes straight to its place, as a mark that a device lets through after a failure
//! ([`extol_block::BlockDevice::write_mark`]).
//!
//! The state is in `record.rs`; this file decides.
//!
//! Invariants
//! - ES-1: a mark changes only the error record and the state bit of the superblock *as the device
//!   holds it*: it neither clears "needs recovery" nor brings anything of a transaction (`mark`).
//!   Recovery does not lose the record again (`mount::journal::after`).
//! - ES-2: a mark is written when no commit and no checkpoint writes any more (`Journal::failure`),
//!   at most once, and never for a shutdown on purpose or a volume opened read-only.
//! - ES-3: a device that refuses the mark changes nothing: the volume is read-only all the same,
//!   and the journal's own error number, which may lie on another device, says enough to the next
//!   mount.
//! - ES-4: an error met after an abort comes from what the abort left half done in memory (a bit
//!   that is set and not taken back, say), which proves nothing about the volume: the abort is what
//!   is recorded (`record_error`), and the operation fails with `Io` (`half_done`).
//! - ES-5: that the volume is read-only acknowledges nothing. A sync asks the journal whether it
//!   was aborted, and writes what is dirty unless the volume was closed in order
//!   (`ops::files::sync_now`, `ops::files::begin_fsync`); an error aborts the journal before it
//!   makes the volume read-only.
//! - ES-6: what another writer changed below this mount looks like damage. Before damage is
//!   recorded the guard looks once more. If it finds another writer, that is the error, for the
//!   operation, too (`damage_or_another_writer`).
//!
//! Locking: everything here runs when an operation is over, without handle and inode lock.

pub(crate) mod record;

use std::sync::atomic::Ordering;

use extol_ondisk::superblock::SUPERBLOCK_OFFSET;
use extol_vfs::{FsError, Result};

use crate::error::OpenResult;
use crate::freeze_gate::Deferred;
use crate::mounted::MountedFs;
use crate::options::ErrorPolicy;
use crate::superblock::read_superblock;
use record::{CORRUPTED, ErrorRecord, IO};

impl MountedFs {
    /// Looks at the result of an operation: what is wrong with the volume or its device is recorded
    /// and treated as `errors=` says.
    pub fn note<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.map_err(|error| self.half_done(self.damage_or_another_writer(error)));
        let pending = self.error_state.pending.take();
        let pending: Vec<FsError> =
            pending.into_iter().map(|error| self.damage_or_another_writer(error)).collect();
        pending.iter().for_each(|error| self.note_error(error));
        if let Err(error) = &result {
            if !pending.contains(error) {
                self.note_error(error);
            }
            self.note_abort();
        }
        result
    }

    /// The failure that made the volume read-only, in place of the error that it is.
    pub fn cause_of(&self, error: FsError) -> FsError {
        if error != FsError::ReadOnly {
            return error;
        }
        self.note_abort();
        self.error_state.first().map_or(error, FsError::Io)
    }

    /// Damage, or the other writer that is the reason for it.
    fn damage_or_another_writer(&self, error: FsError) -> FsError {
        if let (FsError::Corrupt { .. }, Some(guard)) = (&error, &self.guard)
            && let Err(why) = guard.look_for_another_writer()
        {
            self.heed_guard();
            return FsError::Io(why);
        }
        error
    }

    /// Whether a failure aborted the journal of a volume that may write.
    fn was_aborted(&self) -> bool {
        !self.writes_nothing() && self.vol.journal.check_aborted().is_err()
    }

    /// Damage that is met after an abort by a failure is what the abort left half done (ES-4): the
    /// operation fails with the failure.
    fn half_done(&self, error: FsError) -> FsError {
        let by_damage = || self.error_state.cause.get().is_some_and(|cause| cause.0 == CORRUPTED);
        if matches!(error, FsError::Corrupt { .. }) && self.was_aborted() && !by_damage() {
            return FsError::Io(format!(
                "the volume was stopped in the middle of a change: {error}"
            ));
        }
        error
    }

    fn note_error(&self, error: &FsError) {
        if !matches!(error, FsError::Corrupt { .. } | FsError::Io(_)) {
            return;
        }
        // A frozen volume stays as it is; what this error stops cannot go on before the thaw.
        let Some(_open) = self.freeze_gate.enter_or(|| Deferred::Error(error.clone())) else {
            return;
        };
        match error {
            FsError::Corrupt { what, inode, block } => {
                let ino = inode.and_then(|i| u32::try_from(i).ok()).unwrap_or(0);
                let block = block.unwrap_or(0);
                self.record_error(
                    &error.to_string(),
                    ErrorRecord { what, code: CORRUPTED, ino, block },
                );
            }
            FsError::Io(what) => {
                if let Some(block) = self.vol.journal.take_failed_read() {
                    let read = "reading metadata failed";
                    let record = ErrorRecord { what: read, code: IO, ino: 0, block: block.0 };
                    self.record_error(what, record);
                }
            }
            _ => {}
        }
    }

    fn record_error(&self, text: &str, record: ErrorRecord<'_>) {
        if self.was_aborted() {
            return self.note_abort();
        }
        let state = &self.error_state;
        state.seen.fetch_add(1, Ordering::AcqRel);
        state.first.lock().get_or_insert_with(|| text.to_owned());
        if self.writes_nothing() {
            self.ask_for_the_end();
        } else if self.runtime.errors.load() != ErrorPolicy::Continue {
            // What the failed operation changed before it met the error must not become durable.
            // (A thread that finds the volume read-only must find the journal aborted, too: ES-5.)
            let _ = state.cause.set((record.code, record.ino, record.block));
            let _ = self.vol.journal.abort(record.what);
            self.read_only.store(true, Ordering::Release);
            self.stop(record);
        } else if self.check_writable().is_ok()
            && let Ok(mut h) = self.start(1)
        {
            let now = self.now().sec.cast_unsigned();
            let _ = self.sb.update(&mut h, |sb| record.put(sb, now));
            let _ = h.stop();
        }
    }

    /// After an abort by a failure: the volume is read-only from now on, and says so to the next
    /// mount.
    pub fn note_abort(&self) {
        let state = &self.error_state;
        if !self.was_aborted() || state.marked.load(Ordering::Acquire) {
            return;
        }
        let Some(failure) = self.vol.journal.failure() else { return };
        self.read_only.store(true, Ordering::Release);
        // A device that was cut fails, too: that is the reason to be told.
        let cut = self.guard.as_ref().and_then(|guard| {
            guard.check_sizes();
            guard.lost().map(str::to_owned)
        });
        let why = cut.unwrap_or(failure);
        state.first.lock().get_or_insert_with(|| why.clone());
        let (code, ino, block) = state.cause.get().copied().unwrap_or((IO, 0, 0));
        self.stop(ErrorRecord { what: &why, code, ino, block });
    }

    fn stop(&self, record: ErrorRecord<'_>) {
        if self.error_state.marked.swap(true, Ordering::AcqRel) {
            return;
        }
        self.ask_for_the_end();
        if self.vol.journal.failure().is_some() {
            let _ = self.mark(record);
        }
    }

    fn ask_for_the_end(&self) {
        if self.runtime.errors.load() == ErrorPolicy::Panic {
            self.error_state.panic_wanted.store(true, Ordering::Release);
        }
    }

    fn mark(&self, record: ErrorRecord<'_>) -> OpenResult<()> {
        let mut sb = read_superblock(&*self.vol.dev, None)?;
        // Earlier records of this mount may be in memory and in the log only.
        self.sb.read(|newest| sb.copy_error_record(newest));
        record.put(&mut sb, self.now().sec.cast_unsigned());
        Ok(self.vol.dev.write_mark(&sb.encode(), SUPERBLOCK_OFFSET)?)
    }
}

#[cfg(test)]
mod tests;
