//! Requests whose process has a signal to handle: INTERRUPT.
//!
//! The kernel sends it for any request that a signal finds in the daemon, through `/dev/fuse` also
//! where the request came over io_uring, and goes on waiting for the reply. Most requests are
//! short, or must not end half done, and take no notice. A long one registers itself
//! ([`Interrupts::begin`]), asks now and then ([`Running::is_interrupted`]) and answers EINTR.
//!
//! *Odd case.* The kernel sends INTERRUPT once, and another thread may read it before the request
//! has registered itself. So the last ones that met no request are kept.
//!
//! *Locking.* One lock, a leaf.

use std::collections::{HashMap, VecDeque};

use extol_sync::plain::Mutex;

/// INTERRUPTs that met no request and are kept.
const KEPT: usize = 64;

/// The requests that can be interrupted, by their number in the protocol.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// True for those that are interrupted.
    running: HashMap<u64, bool>,
    early: VecDeque<u64>,
}

impl Interrupts {
    /// A signal has come for the process that waits for this request.
    pub(crate) fn note(&self, unique: u64) {
        let mut state = self.0.lock();
        match state.running.get_mut(&unique) {
            Some(is_interrupted) => *is_interrupted = true,
            None => {
                if state.early.len() == KEPT {
                    state.early.pop_front();
                }
                state.early.push_back(unique);
            }
        }
    }

    /// Registers a request until the result is dropped.
    pub(crate) fn begin(&self, unique: u64) -> Running<'_> {
        let mut state = self.0.lock();
        let is_interrupted = state.early.contains(&unique);
        state.running.insert(unique, is_interrupted);
        Running { all: self, unique }
    }
}

/// A request that can be interrupted.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    all: &'a Interrupts,
    unique: u64,
}

impl Running<'_> {
    /// True once its process has a signal to handle.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.all.0.lock().running.get(&self.unique).copied().unwrap_or(false)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.0.lock().running.remove(&self.unique);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_interrupt_counts() {
        let all = Interrupts::default();
        let (one, two) = (all.begin(1), all.begin(2));
        all.note(2);
        assert!(!one.is_interrupted() && two.is_interrupted());
        drop((one, two));
        assert!(all.0.lock().running.is_empty());
    }

    #[test]
    fn an_early_interrupt_is_kept_for_a_while() {
        let all = Interrupts::default();
        all.note(7);
        assert!(all.begin(7).is_interrupted());
        (100..100 + KEPT as u64).for_each(|unique| all.note(unique));
        assert!(!all.begin(7).is_interrupted());
        assert_eq!(all.0.lock().early.len(), KEPT);
    }
}
