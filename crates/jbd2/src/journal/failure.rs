//! Abort and shutdown.
//!
//! The first failure decides: its reason is what every caller gets. It is set under the state lock
//! before any waiter is woken, and every waiter looks at it before anything else, so nothing is
//! acknowledged afterwards.

use std::sync::Arc;

use extol_sync::atomic::Ordering;

use super::Journal;
use crate::types::{JournalError, Result};

impl Journal {
    /// Err if the journal was aborted.
    ///
    /// # Errors
    /// The reason of the abort.
    pub fn check_aborted(&self) -> Result<()> {
        if !self.is_aborted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.state.lock().failure.check()
    }

    /// Stops the journal for good: nothing is written any more, every waiter gets the error, the
    /// log stays as it is for the next mount's recovery. Returns the error for the caller to pass
    /// on.
    pub fn abort(&self, why: &str) -> JournalError {
        self.abort_with(why, Some(5))
    }

    /// As [`abort`](Self::abort), but leaves no error mark in the log (shutdown on purpose).
    pub fn shut_down(&self, why: &str) {
        let _ = self.abort_with(why, None);
    }

    /// A device that is full (a sparse image on a full file system) stops the journal as
    /// [`shut_down`](Self::shut_down) does, if there is a log to recover from.
    pub fn leave_no_mark_when_full(&self) {
        self.unmarked_when_full.store(true, Ordering::Relaxed);
    }

    /// As [`abort`](Self::abort), because the device failed: `what` says in what.
    pub fn abort_by(&self, what: &str, error: &JournalError) -> JournalError {
        let full = matches!(error, JournalError::Device(error) if error.is_full());
        let unmarked = full && self.has_log() && self.unmarked_when_full.load(Ordering::Relaxed);
        if unmarked && self.check_aborted().is_ok() {
            self.stopped_by_full.store(true, Ordering::Relaxed);
        }
        self.abort_with(&format!("{what}: {error}"), (!unmarked).then_some(5))
    }

    /// True if a full device has stopped it, without a mark.
    #[must_use]
    pub fn is_stopped_by_full(&self) -> bool {
        self.stopped_by_full.load(Ordering::Relaxed)
    }

    fn abort_with(&self, why: &str, errno: Option<i32>) -> JournalError {
        let mut state = self.state.lock();
        let first = state.failure.reason.is_none();
        state.failure.is_error |= first && errno.is_some();
        let reason = Arc::clone(state.failure.reason.get_or_insert_with(|| why.into()));
        self.is_aborted.store(true, Ordering::Release);
        self.can_join.notify_all();
        self.wake_done(&state);
        self.wake_fast(&state);
        self.end_batch_wait(&mut state);
        let lost = state.lost_callbacks();
        drop(state);
        lost.into_iter().for_each(|callback| callback(false));
        if first
            && let Some(errno) = errno
            && let Some(log) = self.log.get()
        {
            // Best effort: the device may be what failed.
            let _ = log.write_errno(errno);
        }
        JournalError::Aborted(reason.to_string())
    }

    /// Why the journal was aborted, if that was no shutdown on purpose. Returns when no commit and
    /// no checkpoint writes any more, so that a mark written next stays the newest. Never call it
    /// with a handle open.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.check_aborted().err()?;
        let _one = self.checkpointing.lock();
        let mut state = self.state.lock();
        while state.role.taken {
            self.done.wait(state.bare());
        }
        state
            .failure
            .is_error
            .then(|| state.failure.reason.as_deref().unwrap_or("unknown").to_owned())
    }

    /// Why the journal was aborted, if it was.
    #[must_use]
    pub fn abort_reason(&self) -> Option<String> {
        self.state.lock().failure.reason.as_deref().map(str::to_owned)
    }
}
