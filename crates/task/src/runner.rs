//! The thread of a service: it steps, sleeps and stops.
//!
//! ```text
//!   start ──► step ──┬── More ─────────────────────────────────► step
//!                    ╰── Idle ──► sleep ──┬── woken, time over ─► step
//!                                         ╰── stop ─────────────► the thread ends
//! ```
//!
//! A stop is also noticed before each step.
//!
//! A wake-up that comes during a step is not lost: `woken` is cleared before the step, and the
//! thread sleeps only while it is clear. The lock is a leaf and not held during a step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_sync::thread::{self, JoinHandle};
use extol_sync::{Condvar, Mutex};

/// What a step achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is more to do: step again at once.
    More,
    /// Nothing to do until woken, or until this much time has passed.
    Idle(Option<Duration>),
}

/// A background task.
pub trait Service: Send {
    /// Does a bounded piece of work: a stop waits until it returns.
    fn step(&mut self) -> Progress;
}

#[derive(Default)]
struct State {
    stop: bool,
    woken: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Wakes a runner. Cheap to clone.
#[derive(Clone, Default)]
pub struct Wakeup(Arc<Shared>);

impl Wakeup {
    /// A wake-up for a [`Runner`] that is started later.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the runner step soon, also if it sleeps.
    pub fn wake(&self) {
        self.0.state.lock().woken = true;
        self.0.changed.notify_all();
    }

    /// Makes the thread end before its next step.
    fn stop(&self) {
        self.0.state.lock().stop = true;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wakeup")
    }
}

/// A thread that runs one service until it is stopped (or dropped).
pub struct Runner {
    wakeup: Wakeup,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl Runner {
    /// Starts a thread called `name` that steps `service` whenever `wakeup` is woken or its idle
    /// time is over.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn start<S: Service + 'static>(
        name: &str,
        wakeup: &Wakeup,
        mut service: S,
    ) -> std::io::Result<Self> {
        let shared = Arc::clone(&wakeup.0);
        let handle = thread::Builder::new().name(name.into()).spawn(move || {
            loop {
                {
                    let mut state = shared.state.lock();
                    if state.stop {
                        return;
                    }
                    state.woken = false;
                }
                let Progress::Idle(timeout) = service.step() else { continue };
                let deadline = timeout.map(|t| Instant::now() + t);
                let mut state = shared.state.lock();
                while !state.stop && !state.woken {
                    match deadline {
                        Some(at) => {
                            if shared.changed.wait_until(&mut state, at).timed_out() {
                                break;
                            }
                        }
                        None => shared.changed.wait(&mut state),
                    }
                }
            }
        })?;
        Ok(Self { wakeup: wakeup.clone(), thread: Some(handle) })
    }

    /// Stops the thread and waits for its end.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.wakeup.stop();
        if let Some(handle) = self.thread.take()
            && handle.thread().id() != thread::current().id()
        {
            let _ = handle.join();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Count(Arc<AtomicU32>);
    impl Service for Count {
        fn step(&mut self) -> Progress {
            self.0.fetch_add(1, Ordering::SeqCst);
            Progress::Idle(None)
        }
    }

    #[test]
    fn steps_when_woken_and_stops() {
        let n = Arc::new(AtomicU32::new(0));
        let wakeup = Wakeup::new();
        let runner = Runner::start("t", &wakeup, Count(Arc::clone(&n))).unwrap();
        while n.load(Ordering::SeqCst) < 1 {
            std::thread::yield_now();
        }
        wakeup.wake();
        while n.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        runner.stop();
        assert!(wakeup.0.state.lock().stop);
    }
}
