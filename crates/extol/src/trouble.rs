//! What an error does to the volume: what is written down, and what stops.
//!
//! | what happened | `errors=continue` | `errors=remount-ro` | `errors=panic` |
//! |---|---|---|---|
//! | damaged metadata, or metadata that cannot be read | noted; goes on | journal aborted, noted, read-only | and the process is asked to end |
//! | the journal was aborted (something could not be written) | noted, read-only | the same | and the process is asked to end |
//!
//! *Noted* means: the state "errors", a count, and place and time of the first and the last error,
//! in the superblock. While the journal lives the note is a change like any other. After an abort
//! nothing of the transactions may be written any more, and yet the next mount must know. So the
//! note goes straight to its place, as a mark that a device lets through after a failure
//! ([`extol_block::BlockDevice::write_mark`]).
//!
//! Invariants
//! - E1: a mark changes only the error record and the state bit of the superblock *as the device
//!   holds it*: it neither clears "needs recovery" nor brings anything of a transaction
//!   (`Fs::mark`). Recovery does not lose the record again (`mount::journal::after`).
//! - E2: a mark is written when no commit and no checkpoint writes any more (`Journal::failure`),
//!   at most once, and never for a shutdown on purpose or a volume opened read-only.
//! - E3: a device that refuses the mark changes nothing: the volume is read-only all the same, and
//!   the journal's own error number, which may lie on another device, says enough to the next
//!   mount.
//! - E4: who meets an error after an abort has met what the abort left half done in memory (a bit
//!   that is set and not taken back, say), which proves nothing about the volume: it is the abort
//!   that is noted (`Fs::error`).
//! - E5: that the volume is read-only acknowledges nothing. Who syncs asks the journal whether it
//!   was aborted, and writes what is dirty unless the volume was closed in order
//!   (`ops::files::sync_now`, `ops::files::begin_fsync`); an error aborts the journal before it
//!   makes the volume read-only.
//!
//! Everything here runs at the entry of an operation that is over: no handle, no inode lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::BlockDevice;
use extol_ondisk::Superblock;
use extol_ondisk::superblock::{SUPERBLOCK_OFFSET, State};
use extol_vfs::{FsError, Result};
use parking_lot::Mutex;

use crate::fs::Fs;
use crate::mount::{OpenResult, read_superblock};
use crate::options::ErrorPolicy;
use crate::whole::Deferred;

/// The on-disk number of EIO.
const IO: u8 = 2;
/// The on-disk number of EFSCORRUPTED.
const CORRUPTED: u8 = 5;

/// One error, as the superblock remembers it.
#[derive(Clone, Copy, Debug)]
struct Note<'a> {
    what: &'a str,
    code: u8,
    ino: u32,
    block: u64,
}

impl Note<'_> {
    fn put(&self, sb: &mut Superblock, now: u64) {
        let func = function_name(self.what);
        sb.state |= State::ERROR;
        sb.error_count = sb.error_count.saturating_add(1);
        if sb.first_error_time == 0 {
            sb.first_error_time = now;
            sb.first_error_ino = self.ino;
            sb.first_error_block = self.block;
            sb.first_error_func = func;
            sb.first_error_line = 0;
            sb.first_error_errcode = self.code;
        }
        sb.last_error_time = now;
        sb.last_error_ino = self.ino;
        sb.last_error_block = self.block;
        sb.last_error_func = func;
        sb.last_error_line = 0;
        sb.last_error_errcode = self.code;
    }
}

/// What became of the errors of this mount.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// Errors noted.
    seen: AtomicU64,
    /// Code, inode and block of the error that aborts the journal, if it is not one of the
    /// journal's own.
    cause: OnceLock<(u8, u32, u64)>,
    /// The mark of an abort was tried.
    marked: AtomicBool,
    /// The process is asked to end.
    panic_wanted: AtomicBool,
    /// The first one, for people.
    first: Mutex<Option<String>>,
    /// Where others put theirs.
    post: Arc<Post>,
}

/// Errors of those who hold locks and may not note them themselves: the allocator's, about groups
/// that it leaves out from then on. The operation that met one goes on elsewhere; whichever ends
/// next notes it.
#[derive(Debug, Default)]
pub(crate) struct Post {
    waiting: AtomicBool,
    errors: Mutex<Vec<FsError>>,
}

impl Post {
    pub fn put(&self, error: &FsError) {
        self.errors.lock().push(error.clone());
        self.waiting.store(true, Ordering::Release);
    }

    fn take(&self) -> Vec<FsError> {
        if !self.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut errors = self.errors.lock();
        self.waiting.store(false, Ordering::Release);
        std::mem::take(&mut *errors)
    }
}

impl Trouble {
    pub fn new(post: Arc<Post>) -> Self {
        Self { post, ..Self::default() }
    }

    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub fn panic_wanted(&self) -> bool {
        self.panic_wanted.load(Ordering::Acquire)
    }

    pub fn first(&self) -> Option<String> {
        self.first.lock().clone()
    }
}

impl Fs {
    /// Looks at the result of an operation: what is wrong with the volume or its device is noted
    /// and treated as `errors=` says.
    pub fn note<T>(&self, result: Result<T>) -> Result<T> {
        let posted = self.trouble.post.take();
        posted.iter().for_each(|error| self.note_error(error));
        if let Err(error) = &result {
            if !posted.contains(error) {
                self.note_error(error);
            }
            self.note_abort();
        }
        result
    }

    fn note_error(&self, error: &FsError) {
        if !matches!(error, FsError::Corrupt { .. } | FsError::Io(_)) {
            return;
        }
        // A frozen volume stays as it is; whatever this error stops cannot go on before the thaw
        // anyway.
        let Some(_open) = self.whole.gate.enter_or(|| Deferred::Error(error.clone())) else {
            return;
        };
        match error {
            FsError::Corrupt { what, inode, block } => {
                let ino = inode.and_then(|i| u32::try_from(i).ok()).unwrap_or(0);
                self.error(
                    &error.to_string(),
                    Note { what, code: CORRUPTED, ino, block: block.unwrap_or(0) },
                );
            }
            FsError::Io(what) => {
                if let Some(block) = self.vol.journal.take_failed_read() {
                    let note =
                        Note { what: "reading metadata failed", code: IO, ino: 0, block: block.0 };
                    self.error(what, note);
                }
            }
            _ => {}
        }
    }

    fn error(&self, text: &str, note: Note<'_>) {
        if !self.writes_nothing() && self.vol.journal.check_aborted().is_err() {
            return self.note_abort();
        }
        self.trouble.seen.fetch_add(1, Ordering::AcqRel);
        self.trouble.first.lock().get_or_insert_with(|| text.to_owned());
        if self.writes_nothing() {
            self.ask_for_the_end();
        } else if self.live.errors() != ErrorPolicy::Continue {
            // What the failed operation changed before it met the error must not become durable.
            // (Who finds the volume read-only must find the journal aborted, too: E5.)
            let _ = self.trouble.cause.set((note.code, note.ino, note.block));
            let _ = self.vol.journal.abort(note.what);
            self.read_only.store(true, Ordering::Release);
            self.stop(note);
        } else if self.check_writable().is_ok()
            && let Ok(mut h) = self.start(1)
        {
            let now = self.now().sec.cast_unsigned();
            let _ = self.sb.update(&mut h, |sb| note.put(sb, now));
            let _ = h.stop();
        }
    }

    /// If the journal was aborted by a failure: the volume is read-only from now on, and says so to
    /// the next mount.
    pub fn note_abort(&self) {
        if self.writes_nothing()
            || self.vol.journal.check_aborted().is_ok()
            || self.trouble.marked.load(Ordering::Acquire)
        {
            return;
        }
        let Some(why) = self.vol.journal.failure() else { return };
        self.read_only.store(true, Ordering::Release);
        self.trouble.first.lock().get_or_insert_with(|| why.clone());
        let (code, ino, block) = self.trouble.cause.get().copied().unwrap_or((IO, 0, 0));
        self.stop(Note { what: &why, code, ino, block });
    }

    fn stop(&self, note: Note<'_>) {
        if self.trouble.marked.swap(true, Ordering::AcqRel) {
            return;
        }
        self.ask_for_the_end();
        if self.vol.journal.failure().is_some() {
            let _ = self.mark(note);
        }
    }

    fn ask_for_the_end(&self) {
        if self.live.errors() == ErrorPolicy::Panic {
            self.trouble.panic_wanted.store(true, Ordering::Release);
        }
    }

    fn mark(&self, note: Note<'_>) -> OpenResult<()> {
        let mut sb = read_superblock(&*self.vol.dev, None)?;
        // Earlier notes of this mount may be in memory and in the log only.
        self.sb.read(|newest| sb.copy_error_record(newest));
        note.put(&mut sb, self.now().sec.cast_unsigned());
        Ok(self.vol.dev.write_mark(&sb.encode(), SUPERBLOCK_OFFSET)?)
    }
}

fn function_name(what: &str) -> [u8; 32] {
    let mut func = [0; 32];
    for (to, from) in func.iter_mut().zip(what.bytes().take(31)) {
        *to = from;
    }
    func
}

#[cfg(test)]
mod tests;
