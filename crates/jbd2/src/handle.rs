//! A handle: one operation's membership in the running transaction.
//!
//! Credits are the number of blocks the operation may still change for the first time in this
//! transaction. A block that the transaction already holds costs nothing. Running out is a mistake
//! in a budget, not in the data: the handle then takes what it needs from the log's slack and
//! counts an overdraft (tests demand zero).
//!
//! An operation that fails for want of a metadata block after it has changed others cannot be
//! finished, and what it did is not sound. Its handle is dropped instead of stopped, and that
//! aborts the journal, so nothing of it becomes durable. (An operation that can take back what it
//! did does so, and stops its handle.)
//!
//! Never start a commit, or wait for one, with a handle open: the commit waits for the handle.

use std::any::Any;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_sync::atomic::Ordering;

use crate::cache::{Buf, Seal};
use crate::fast::source::Notes;
use crate::journal::{Joined, Journal};
use crate::planted;
use crate::transaction::Transaction;
use crate::types::{JournalError, Result, Tid};

fn lost() -> JournalError {
    JournalError::Aborted("handle lost its transaction".into())
}

/// One operation's membership in the running transaction. Dropping it ends it.
#[derive(Debug)]
pub struct Handle {
    journal: Arc<Journal>,
    /// `None` once stopped.
    tx: Option<Arc<Transaction>>,
    credits: u32,
    /// Credits left for changes that the operation does not know of.
    aside: u32,
    /// It has changed something in its transaction.
    changed: bool,
    /// Metadata reads of this thread that had failed when it began.
    failed_reads: u64,
    /// What it changed in its transaction, for fast commits.
    notes: Option<Notes>,
}

impl Handle {
    pub(crate) fn new(journal: Arc<Journal>, joined: Joined) -> Self {
        crate::order::opened();
        let failed_reads = crate::order::failed_reads();
        let Joined { tx, credits, aside } = joined;
        Self { journal, tx: Some(tx), credits, aside, changed: false, failed_reads, notes: None }
    }

    /// The transaction it belongs to (another one after a restart).
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tx.as_ref().map_or(Tid(0), |tx| tx.tid)
    }

    /// The journal it belongs to.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Credits left.
    #[must_use]
    pub fn credits(&self) -> u32 {
        self.credits
    }

    fn charge(&mut self) {
        if self.credits > 0 {
            self.credits -= 1;
        } else {
            self.journal.overdraw(1);
        }
    }

    /// Changes a block. The first change in a transaction costs one credit. The closure must leave
    /// the checksum right: a snapshot may be taken at any moment after it.
    ///
    /// # Errors
    /// If the journal was aborted.
    pub fn modify<R>(&mut self, buf: &Arc<Buf>, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.change(buf, None, Self::charge, f)
    }

    /// As [`modify`](Self::modify), for a change that the operation does not know of: it costs one
    /// of the credits that every handle has beside those of its operation
    /// ([`Journal::set_side_credits`]).
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn modify_aside<R>(&mut self, buf: &Arc<Buf>, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.change(buf, None, Self::charge_aside, f)
    }

    fn charge_aside(&mut self) {
        match self.aside.checked_sub(1) {
            Some(left) => self.aside = left,
            None => self.charge(),
        }
    }

    /// As [`modify`](Self::modify), but the checksum is `seal`'s business, once, when the
    /// transaction closes. Until then the block in memory has an old one.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn modify_sealed<R>(
        &mut self,
        buf: &Arc<Buf>,
        seal: Seal,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.change(buf, Some(seal), Self::charge, f)
    }

    fn change<R>(
        &mut self,
        buf: &Arc<Buf>,
        seal: Option<Seal>,
        charge: fn(&mut Self),
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.journal.check_aborted()?;
        // (Not a reference of our own: all threads would count it on one word.)
        let tx = self.tx.as_ref().ok_or_else(lost)?;
        self.changed = true;
        let mut state = buf.state.lock();
        let first_change = state.tx != Some(tx.tid);
        if first_change {
            state.tx = Some(tx.tid);
            tx.blocks.lock().push(Arc::clone(buf));
            tx.dirty.fetch_add(1, Ordering::AcqRel);
            let mut revokes = tx.revokes.lock();
            if !revokes.is_empty() {
                revokes.remove(&buf.nr());
            }
        }
        state.seal = seal;
        let bytes: &mut Vec<u8> = Arc::make_mut(&mut state.data);
        let result = f(bytes);
        drop(state);
        if first_change {
            charge(self);
        }
        Ok(result)
    }

    /// A block whose old contents do not matter: zeros, already in the transaction. Cancels a
    /// pending revoke.
    ///
    /// # Errors
    /// If the journal was aborted or the number is past the end of the volume.
    pub fn create(&mut self, nr: BlockNr) -> Result<Arc<Buf>> {
        let buf = match self.journal.cache.cached(nr) {
            Some(buf) => buf,
            None => self.journal.cache.fresh(nr)?,
        };
        self.modify(&buf, |bytes| bytes.fill(0))?;
        buf.set_verified();
        Ok(buf)
    }

    /// The block was freed. It leaves this transaction and the cache. With `revoke`, copies of it
    /// in the log are not replayed once this transaction is durable: needed whenever the block may
    /// come back as unjournalled data.
    ///
    /// # Errors
    /// If the journal was aborted.
    pub fn forget(&mut self, nr: BlockNr, revoke: bool) -> Result<()> {
        self.journal.check_aborted()?;
        let tx = Arc::clone(self.tx.as_ref().ok_or_else(lost)?);
        self.changed = true;
        if let Some(buf) = self.journal.cache.forget(nr) {
            let mut state = buf.state.lock();
            if state.tx == Some(tx.tid) {
                state.tx = None;
                tx.dirty.fetch_sub(1, Ordering::AcqRel);
                drop(state);
                self.credits += 1;
            }
        }
        let revoke = revoke && !planted::has(planted::Bug::RevokeForgotten);
        if revoke && self.journal.has_log() {
            let mut revokes = tx.revokes.lock();
            let new_block =
                revokes.insert(nr) && revokes.len() % self.journal.revokes_per_block() == 1;
            drop(revokes);
            if new_block {
                self.charge();
            }
        }
        Ok(())
    }

    /// Asks for more credits in the same transaction. `Ok(false)`: no room, restart instead.
    ///
    /// # Errors
    /// If the journal was aborted.
    pub fn extend(&mut self, credits: u32) -> Result<bool> {
        let granted = self.journal.extend(credits)?;
        if granted {
            self.credits += credits;
        }
        Ok(granted)
    }

    /// Lets everything done so far commit on its own and joins a transaction (usually the next)
    /// with `credits`.
    ///
    /// # Errors
    /// If the journal was aborted, or `credits` never fit; the handle is over then.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        let old = self.tid();
        self.leave(true);
        self.journal.request_commit(old);
        crate::order::wanted();
        let Joined { tx, credits, aside } = self.journal.join(credits)?;
        crate::order::opened();
        self.tx = Some(tx);
        (self.credits, self.aside) = (credits, aside);
        self.changed = false;
        Ok(())
    }

    /// Makes sure that at least `credits` are left, and beside them those that every handle has:
    /// extends, else restarts. True if it restarted.
    ///
    /// # Errors
    /// As [`extend`](Self::extend) and [`restart`](Self::restart).
    pub fn ensure(&mut self, credits: u32) -> Result<bool> {
        let aside = self.journal.side_credits().saturating_sub(self.aside);
        let missing = credits.saturating_sub(self.credits);
        if missing + aside == 0 {
            return Ok(false);
        }
        if self.extend(missing + aside)? {
            self.credits -= aside;
            self.aside += aside;
            return Ok(false);
        }
        self.restart(credits)?;
        Ok(true)
    }

    /// Runs `f` once this transaction is durable (`true`) or will never be (`false`), on the
    /// committing thread, before any waiter for the commit returns.
    pub fn on_commit(&mut self, f: impl FnOnce(bool) + Send + 'static) {
        match &self.tx {
            Some(tx) => tx.callbacks.lock().push(Box::new(f)),
            None => f(false),
        }
    }

    /// Ends the handle.
    ///
    /// # Errors
    /// If the journal was aborted meanwhile: what the handle did will not become durable.
    pub fn stop(mut self) -> Result<()> {
        self.leave(true);
        self.journal.check_aborted()
    }

    /// True if changes are to be [noted](Self::notes): fast commits may need them.
    #[must_use]
    pub fn tracks(&self) -> bool {
        self.journal.fast.tracks()
    }

    /// True if the transaction has changed this block already.
    #[must_use]
    pub fn holds(&self, buf: &Buf) -> bool {
        self.tx.as_ref().is_some_and(|tx| buf.state.lock().tx == Some(tx.tid))
    }

    /// The handle's notes for fast commits, empty at first; `None` if changes are not tracked. All
    /// notes of a handle take effect together, when it ends. `T` is what the
    /// [source](crate::fast::FastSource) takes.
    pub fn notes<T: Any + Send + Default>(&mut self) -> Option<&mut T> {
        if !self.tracks() {
            return None;
        }
        let notes = self.notes.get_or_insert_with(|| Box::new(T::default()));
        let notes = notes.downcast_mut();
        debug_assert!(notes.is_some(), "notes of another type");
        notes
    }

    fn leave(&mut self, finished: bool) {
        if let Some(tx) = self.tx.take() {
            let notes = self.notes.take();
            if (notes.is_some() || (self.changed && !finished))
                && let Some(source) = self.journal.fast.source()
            {
                source.apply(tx.tid, notes, finished);
            }
            crate::order::closed();
            self.journal.leave(self.credits + self.aside);
            (self.credits, self.aside) = (0, 0);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.tx.is_some() && self.changed && self.failed_reads != crate::order::failed_reads() {
            // Before the transaction can be committed.
            let _ = self.journal.abort("metadata cannot be read in the middle of an operation");
        }
        self.leave(false);
    }
}

#[cfg(test)]
mod tests;
