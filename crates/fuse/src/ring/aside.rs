//! What takes long and must not hold up a thread with several entries: done by other threads.
//!
//! The kernel may hand a request to any entry of a thread that is with it, also while the thread is
//! busy. So a thread with more than the entry at hand never waits itself: what waits (a commit to
//! be led, a read, a change of a frozen volume) is a job for this pool. A thread of the pool that
//! has nothing to do for [`PATIENCE`] goes.
//!
//! Who has led commits looks for the next task for a moment before it sleeps: the group that comes
//! next is being made at that moment, by threads that have their processor to themselves
//! ([`steer`](super::steer)), and waking somebody for it would take them a tenth of what its files
//! take. Who looks in vain too often does so more rarely ([`Luck`]). While he looks, all of an
//! fsync is his, the data's places and their notes for the log included
//! ([`fsync_then`](extol_vfs::FileSystem::fsync_then)): the processor of those who ask is the busy
//! one.
//!
//! - A job is begun at once: there is an idle thread for it, or a new one ([`Aside::push`]). Jobs
//!   may wait for other requests, so they never wait for each other. There are at most as many as
//!   there are entries.
//! - Nobody sleeps over a task: who looked and goes to sleep finds it under the lock under which it
//!   was left ([`Aside::next`]).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use extol_vfs::Job;
use parking_lot::Mutex;

use super::Rings;
use super::processor::OTHERS;
use super::steer::Place;
use crate::session::Shared;
use crate::spin::look_around;

/// How long an idle thread stays.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long who has led looks for the next task: as long as a small group takes to be made, and
/// somebody to be woken.
const LOOK: Duration = Duration::from_micros(60);
/// A job for the pool.
pub(super) enum Task {
    /// Leads commits: not where most requests are ([`steer`](super::steer)).
    Lead(Job),
    Other(Job),
}

#[derive(Default)]
pub(crate) struct Aside {
    state: Mutex<State>,
    wake: Condvar,
    /// How many tasks there are, for those who look.
    there: AtomicUsize,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Threads that sleep, or are about to take a job.
    idle: usize,
    /// How many of them look, and need not be woken.
    looking: usize,
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
    fn push(&self, task: Task) -> bool {
        let mut state = self.state.lock();
        state.tasks.push_back(task);
        self.there.store(state.tasks.len(), Ordering::Relaxed);
        let (found, seen) = (state.idle >= state.tasks.len(), state.looking >= state.tasks.len());
        drop(state);
        if found && !seen {
            self.wake.notify_one();
        }
        found
    }

    /// True if there are more threads that look than tasks.
    fn is_watched(&self) -> bool {
        let state = self.state.lock();
        state.looking > state.tasks.len()
    }

    /// Looks for a task for a while, giving way to others. True if there is one.
    fn look(&self) -> bool {
        let began = Instant::now();
        let look = || (self.there.load(Ordering::Relaxed) > 0).then_some(());
        look_around(LOOK, OTHERS, || began.elapsed(), look, thread::yield_now).is_ok()
    }

    /// The next one of a thread; `None`: it is to go. With `luck` it looks before it sleeps.
    fn next(&self, luck: Option<&mut Luck>) -> Option<Task> {
        let mut state = self.state.lock();
        if !state.tasks.is_empty() {
            return self.take(&mut state);
        }
        state.idle += 1;
        if let Some(luck) = luck
            && luck.may_look()
        {
            state.looking += 1;
            drop(state);
            luck.looked(self.look());
            state = self.state.lock();
            state.looking -= 1;
        }
        let mut patient = true;
        while state.tasks.is_empty() && !state.ended && patient {
            patient = !self.wake.wait_for(&mut state, PATIENCE).timed_out();
        }
        state.idle -= 1;
        self.take(&mut state)
    }

    fn take(&self, state: &mut State) -> Option<Task> {
        let task = state.tasks.pop_front();
        self.there.store(state.tasks.len(), Ordering::Relaxed);
        task
    }

    /// Idle threads go.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.wake.notify_all();
    }
}

/// How often a thread of the pool has looked in vain.
#[derive(Debug, Default)]
struct Luck(i32);

impl Luck {
    /// So many looks in vain are made up for by those before them.
    const MOST: i32 = 8;
    /// So many times a thread without luck does not look.
    const REST: i32 = 32;

    fn may_look(&mut self) -> bool {
        let may = self.0 >= 0;
        if !may {
            self.0 += 1;
        }
        may
    }

    fn looked(&mut self, found: bool) {
        self.0 = match found {
            true => (self.0 + 1).min(Self::MOST),
            false if self.0 == 0 => -Self::REST,
            false => self.0 - 1,
        };
    }
}

/// Has commits led by another thread.
pub(crate) fn lead(shared: &Arc<Shared>, job: Job) {
    give(shared, Task::Lead(job));
}

/// Has a task done by another thread.
pub(super) fn give(shared: &Arc<Shared>, task: Task) {
    if shared.rings.aside.push(task) {
        return;
    }
    shared.pool.lock().ring_threads += 1;
    let mine = Arc::clone(shared);
    let started = thread::Builder::new().name("fuse-aside".into()).spawn(move || {
        let mut place = Place::anywhere(&mine.rings.all);
        let (mut luck, mut led) = (Luck::default(), false);
        while let Some(task) = mine.rings.aside.next(led.then_some(&mut luck)) {
            led = matches!(task, Task::Lead(_));
            place.avoid(mine.rings.avoided(&task));
            run(task);
        }
        mine.ring_ended(None);
    });
    if started.is_err() {
        shared.ring_ended(None);
        // Nobody to be had: better late than never.
        let aside = &shared.rings.aside;
        let task = aside.take(&mut aside.state.lock());
        task.into_iter().for_each(run);
    }
}

impl Rings {
    /// True if somebody looks who would find one more task at once.
    pub(crate) fn has_helper(&self) -> bool {
        self.aside.is_watched()
    }

    /// The processor on which a task is not to be done.
    fn avoided(&self, task: &Task) -> Option<usize> {
        match task {
            Task::Lead(_) => self.steer.avoided(self.queues.iter().map(|queue| &queue.requests)),
            Task::Other(_) => None,
        }
    }
}

/// A panic is the end of this job alone; who waits for it is told by what it drops.
fn run(task: Task) {
    let (Task::Lead(job) | Task::Other(job)) = task;
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
            assert!(!aside.push(Task::Other(Box::new(|| ()))), "nobody is there");
            for _ in 0..2 {
                let (aside, begun) = (&aside, begun.clone());
                scope.spawn(move || {
                    while let Some(task) = aside.next(None) {
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
            let blocked = || -> Task {
                let wait = Arc::clone(&wait);
                Task::Lead(Box::new(move || {
                    let _ = wait.lock().recv();
                }))
            };
            assert!(aside.push(blocked()) && aside.push(blocked()));
            while aside.state.lock().idle > 0 {
                thread::yield_now();
            }
            assert!(!aside.push(Task::Other(Box::new(|| ()))));
            drop(go);
            for _ in 0..3 {
                told.recv().unwrap();
            }
            aside.end();
        });
        assert!(aside.state.lock().tasks.is_empty());
    }

    /// Who looks is there for one task more, and not for two.
    #[test]
    fn who_looks_is_there_for_one_task() {
        let aside = Aside::default();
        assert!(!aside.is_watched());
        {
            let mut state = aside.state.lock();
            (state.idle, state.looking) = (2, 1);
        }
        assert!(aside.is_watched());
        assert!(aside.push(Task::Other(Box::new(|| ()))));
        assert!(!aside.is_watched(), "the other one sleeps");
    }

    #[test]
    fn who_has_no_luck_looks_rarely() {
        let mut luck = Luck::default();
        for _ in 0..100 {
            assert!(luck.may_look());
            luck.looked(true);
        }
        for _ in 0..=Luck::MOST {
            assert!(luck.may_look());
            luck.looked(false);
        }
        for _ in 0..3 {
            let rests = (0..).take_while(|_| !luck.may_look()).count();
            assert_eq!(rests as i32, Luck::REST);
            luck.looked(false);
        }
    }

    /// Tasks that come at any moment, while somebody looks, is about to sleep, or sleeps: all are
    /// done, by two threads that take turns.
    #[test]
    fn every_task_is_found() {
        const TASKS: usize = 20_000;
        let aside = Aside::default();
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut luck = Luck::default();
                    while aside.next(Some(&mut luck)).is_some() {
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while aside.state.lock().idle < 2 {
                thread::yield_now();
            }
            for n in 0..TASKS {
                // Mostly one at a time, so that somebody who slept over it would be noticed.
                aside.push(Task::Other(Box::new(|| ())));
                let deadline = Instant::now() + PATIENCE / 2;
                while n % 8 != 0 && done.load(Ordering::SeqCst) <= n {
                    assert!(Instant::now() < deadline, "task {n}");
                    if n % 3 == 0 {
                        thread::yield_now();
                    }
                }
                if n % 1000 == 0 {
                    thread::sleep(2 * LOOK);
                }
            }
            while done.load(Ordering::SeqCst) < TASKS {
                thread::yield_now();
            }
            aside.end();
        });
    }
}
