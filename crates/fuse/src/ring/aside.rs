//! What takes long and must not hold up a thread with several entries: done by other threads.
//!
//! The kernel may hand a request to any entry of a thread that is with it, also while the thread is
//! busy. So a thread with more than the entry at hand never waits itself: what waits (a commit to
//! be led, a read, a change of a frozen volume) is a job for this pool. A thread of the pool that
//! has nothing to do for [`PATIENCE`] goes.
//!
//! - A job is begun at once: there is an idle thread for it, or a new one ([`Aside::push`]). Jobs
//!   may wait for other requests, so they never wait for each other. There are at most as many as
//!   there are entries.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extol_sync::Condvar;
use extol_vfs::Job;
use parking_lot::Mutex;

use super::processor;
use crate::session::Shared;

/// How long an idle thread stays.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Aside {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Job>,
    /// Threads that sleep, or are about to take a job.
    idle: usize,
    /// The mount has ended.
    ended: bool,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        write!(f, "{} tasks, {} idle threads", state.tasks.len(), state.idle)
    }
}

impl Aside {
    /// One more. False if there is nobody idle who would do it.
    fn push(&self, task: Job) -> bool {
        let mut state = self.state.lock();
        state.tasks.push_back(task);
        let found = state.idle >= state.tasks.len();
        drop(state);
        if found {
            self.wake.notify_one();
        }
        found
    }

    /// The next one of a thread; `None`: it is to go.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        if state.tasks.is_empty() {
            state.idle += 1;
            let mut patient = true;
            while state.tasks.is_empty() && !state.ended && patient {
                patient = !self.wake.wait_for(&mut state, PATIENCE).timed_out();
            }
            state.idle -= 1;
        }
        state.tasks.pop_front()
    }

    /// Idle threads go.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.wake.notify_all();
    }
}

/// Has a task done by another thread.
pub(crate) fn give(shared: &Arc<Shared>, task: Job) {
    if shared.rings.aside.push(task) {
        return;
    }
    shared.pool.lock().ring_threads += 1;
    let mine = Arc::clone(shared);
    let started = thread::Builder::new().name("fuse-aside".into()).spawn(move || {
        processor::anywhere(&mine.rings.all);
        while let Some(task) = mine.rings.aside.next() {
            run(task);
        }
        mine.ring_ended(None);
    });
    if started.is_err() {
        shared.ring_ended(None);
        // Nobody to be had: better late than never.
        let aside = &shared.rings.aside;
        let task = aside.state.lock().tasks.pop_front();
        task.into_iter().for_each(run);
    }
}

/// A panic is the end of this job alone; who waits for it is told by what it drops.
fn run(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn idle_threads_are_used_and_no_job_waits_for_another() {
        let aside = Aside::default();
        let (begun, told) = channel();
        thread::scope(|scope| {
            assert!(!aside.push(Box::new(|| ())), "nobody is there");
            for _ in 0..2 {
                let (aside, begun) = (&aside, begun.clone());
                scope.spawn(move || {
                    while let Some(task) = aside.next() {
                        run(task);
                        begun.send(()).unwrap();
                    }
                });
            }
            told.recv().unwrap();
            while aside.state.lock().idle < 2 {
                thread::yield_now();
            }
            // Two find somebody, at the same time; a third does not.
            let (go, wait) = channel::<()>();
            let wait = Arc::new(Mutex::new(wait));
            let blocked = || -> Job {
                let wait = Arc::clone(&wait);
                Box::new(move || {
                    let _ = wait.lock().recv();
                })
            };
            assert!(aside.push(blocked()) && aside.push(blocked()));
            while aside.state.lock().idle > 0 {
                thread::yield_now();
            }
            assert!(!aside.push(Box::new(|| ())));
            drop(go);
            for _ in 0..3 {
                told.recv().unwrap();
            }
            aside.end();
        });
        assert!(aside.state.lock().tasks.is_empty());
    }
}
