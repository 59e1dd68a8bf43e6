//! Executes what the policy decided: home writes, one flush, one tail update.

use std::sync::Arc;

use extol_service::{Progress, Service};

use super::policy;
use crate::journal::Journal;
use crate::types::{Result, Tid};

impl Journal {
    /// One step of the checkpoint: asks the policy, writes what it says. False if there was nothing to do.
    ///
    /// # Errors
    /// If a write fails; the journal is aborted then and the tail stays where it is.
    pub fn checkpoint_step(&self) -> Result<bool> {
        self.check_aborted()?;
        let waiting = self.checkpoint.waiting();
        let through = {
            let state = self.state.lock();
            let Some(space) = &state.space else { return Ok(false) };
            let view = policy::View {
                log_len: space.len(),
                log_free: space.free(),
                waiters: state.space_waiters,
                needed: self.space_needed(),
                pinned: self.checkpoint.len() * self.block_size().len(),
                pinned_max: self.pinned_max,
                waiting: &waiting,
            };
            // A checkpoint that ended together with a commit named that as the tail. Nothing is left to write, but the
            // tail may move on, and nobody else would move it.
            let lags = view.is_short() && waiting.is_empty() && state.committing.is_none();
            policy::synchronous(&view).or((lags && space.free() < space.len()).then_some(state.committed))
        };
        match through {
            Some(through) => self.checkpoint_through(through).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes home what transactions up to `through` still need, flushes, and moves the tail.
    pub(crate) fn checkpoint_through(&self, through: Tid) -> Result<()> {
        let _one = self.checkpointing.lock();
        self.check_aborted()?;
        let Some(log) = &self.log else { return Ok(()) };
        let work = self.checkpoint.begin(through);
        if !work.is_empty() {
            let blocks: Vec<_> = work.iter().map(|w| (w.nr, Arc::clone(&w.data))).collect();
            let mut result = crate::home::write(&*self.device, self.block_size(), &blocks)
                .map_err(crate::JournalError::from);
            #[cfg(feature = "planted-bugs")]
            let early = crate::planted::has(crate::planted::Bug::TailTooEarly);
            #[cfg(not(feature = "planted-bugs"))]
            let early = false;
            if result.is_ok() && self.barrier() && !early {
                result = self.flush_device();
            }
            self.checkpoint.end(&work, result.is_ok());
            if let Err(e) = result {
                return Err(self.abort(&format!("checkpoint failed: {e}")));
            }
            self.counters.checkpoints.add(1);
            self.counters.checkpointed_blocks.add(work.len() as u64);
        }
        let tail = {
            let state = self.state.lock();
            let Some(space) = &state.space else { return Ok(()) };
            if state.aborted.is_some() {
                // The log stays as it is.
                drop(state);
                return self.check_aborted();
            }
            let next = state.running.as_ref().map_or(state.next_tid, |r| r.tx.tid);
            let tail = self.checkpoint.oldest().or(state.committing).unwrap_or_else(|| (next, space.head()));
            // Nothing live: leave the superblock alone, unless blocks can be freed.
            (tail.1 != space.tail() && !state.log_empty).then_some(tail)
        };
        if let Some((tid, block)) = tail {
            if let Err(e) = log.write_tail(tid, block, self.barrier()) {
                return Err(self.abort(&format!("moving the log tail failed: {e}")));
            }
            let mut state = self.state.lock();
            if let Some(space) = &mut state.space {
                space.move_tail(block);
            }
            self.can_join.notify_all();
        }
        Ok(())
    }
}

/// Writes committed blocks home when the policy says so.
#[derive(Debug)]
pub(crate) struct CheckpointService(pub Arc<Journal>);

impl Service for CheckpointService {
    fn step(&mut self) -> Progress {
        match self.0.checkpoint_step() {
            Ok(true) => Progress::More,
            Ok(false) | Err(_) => Progress::Idle(None),
        }
    }
}

#[cfg(test)]
mod tests;
