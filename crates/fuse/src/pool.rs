//! The worker pool of `/dev/fuse`: which threads read requests.
//!
//! *Purpose.* The kernel gives requests to waiting readers in turn. With many readers each request
//! wakes another thread, whose memory is cold, and a small request costs more in thread switches
//! than in work. So only as many workers read as keep the processors busy, however many requests
//! are being served.
//!
//! *States of a worker.* Reading and working workers are *active*; there are at most as many of
//! them as processors.
//!
//! ```text
//!            took a request                finished
//!   reading ────────────────► working ───────────────────► reading           these are active
//!                                │ is going to wait, or takes long
//!                                ▼             finished, room
//!                             waiting ───────────────────► reading
//!                                │ finished, no room
//!                                ▼             woken
//!                              idle ─────────────────────► reading
//! ```
//!
//! A request that always waits (for a device, a commit) makes its worker *waiting* from the start;
//! others do so when they begin to wait ([`Pool::take`]). If no reader is left then, an idle worker
//! is woken or a new one started. All other requests are short as a rule, but may have to wait for
//! a block of a directory, for room in the journal, for a lock. For these there is the *watchdog*,
//! a thread: while no worker reads, it counts a worker that works for longer than [`PATIENCE`] as
//! waiting, so that another one reads. It sleeps while a worker reads.
//!
//! The last worker that became idle is woken first, because its memory is warm. A worker whose
//! buffers grew with large requests ends instead of becoming idle if enough others are, which gives
//! the memory back.
//!
//! *Odd cases.* A worker that waits for other requests (for a thaw, for the kernel to write back)
//! does not count against the limit of threads, and waits only if another worker reads or is going
//! to ([`Pool::wait_for_others`]). Where no thread can be started, the next worker that finishes
//! reads.
//!
//! *Locking.* One lock; it is a leaf. Decisions are made by [`State`], under it; threads are woken
//! and started after it is released.
//!
//! *Invariants*
//! - WP-1: at most `active` workers read or work ([`State::finish`], [`State::call_reader`]).
//! - WP-2: if no worker reads, `active` workers work, or no worker can be had; in the last case the
//!   next one that finishes reads ([`State::call_reader`], [`State::finish`]).
//! - WP-3: a request that takes long does not keep others from being read for longer than twice
//!   [`PATIENCE`] ([`State::overdue`]).
//! - WP-4: workers that wait for other requests leave at least one that serves them
//!   ([`Pool::wait_for_others`]).

use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use extol_sync::plain::Mutex;

/// How long a short request may keep others from being read.
const PATIENCE: Duration = Duration::from_millis(2);
/// Workers with large buffers that may read or be idle beside others.
const LARGE_KEPT: usize = 4;

/// What a worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    /// It reads, or is about to.
    Reading,
    /// It handles a short request, since then.
    Working(Instant),
    /// It handles a request that waits.
    Waiting,
    /// It sleeps until it is woken.
    Idle,
    /// There is no such worker.
    Free,
}

/// A worker of the pool.
#[derive(Debug)]
struct Slot {
    doing: Doing,
    /// Set while it is idle.
    thread: Option<Thread>,
}

/// Number of a worker.
pub(crate) type Id = usize;

/// What is to be done after a change, without the lock.
#[derive(Debug)]
enum Action {
    Nothing,
    /// Wake this worker; it counts as reading.
    Wake(Thread),
    /// Start this worker; it counts as reading.
    Start(Id),
    /// Wake the watchdog.
    Watch,
}

/// What a worker does when it has finished a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    Read,
    Sleep,
    End,
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    /// Idle workers, in the order in which they became idle.
    idle: Vec<Id>,
    reading: usize,
    working: usize,
    alive: usize,
    /// Workers that wait for other requests.
    dependent: usize,
    /// Most workers that read or work.
    active: usize,
    /// Most workers, not counting dependent ones.
    limit: usize,
    /// The watchdog sleeps until it is woken.
    watchdog_sleeps: bool,
    ended: bool,
}

impl State {
    fn add(&mut self) -> Id {
        self.alive += 1;
        self.reading += 1;
        let slot = Slot { doing: Doing::Reading, thread: None };
        match self.slots.iter().position(|slot| slot.doing == Doing::Free) {
            Some(id) => {
                self.slots[id] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }

    /// Changes what a worker does, and the counts with it.
    fn set(&mut self, id: Id, doing: Doing) {
        let before = std::mem::replace(&mut self.slots[id].doing, doing);
        for (doing, change) in [(before, -1), (doing, 1)] {
            let count = match doing {
                Doing::Reading => &mut self.reading,
                Doing::Working(_) => &mut self.working,
                _ => continue,
            };
            *count = count.saturating_add_signed(change);
        }
        if doing == Doing::Free {
            self.alive -= 1;
        }
    }

    /// Makes a worker read if none does and one may (WP-1, WP-2).
    fn call_reader(&mut self, may_start: bool) -> Action {
        if self.reading > 0 || self.ended {
            return Action::Nothing;
        }
        if self.working >= self.active {
            let sleeps = std::mem::take(&mut self.watchdog_sleeps);
            return if sleeps { Action::Watch } else { Action::Nothing };
        }
        while let Some(id) = self.idle.pop() {
            self.set(id, Doing::Reading);
            if let Some(thread) = self.slots[id].thread.take() {
                return Action::Wake(thread);
            }
        }
        if may_start && self.alive < self.limit + self.dependent {
            return Action::Start(self.add());
        }
        Action::Nothing
    }

    /// Called when a reader has taken a request, and before a worker waits.
    fn take(&mut self, id: Id, waits: bool, now: Instant) -> Action {
        self.set(id, if waits { Doing::Waiting } else { Doing::Working(now) });
        self.call_reader(true)
    }

    /// Called when a worker has finished its request; `large`: its buffers have grown.
    fn finish(&mut self, id: Id, large: bool) -> After {
        let was_working = matches!(self.slots[id].doing, Doing::Working(_));
        let surplus = self.alive > self.limit + self.dependent;
        let after = if self.ended {
            After::End
        } else if was_working || self.reading + self.working < self.active {
            if large && self.reading > LARGE_KEPT { After::End } else { After::Read }
        } else if surplus || (large && self.idle.len() >= LARGE_KEPT) {
            After::End
        } else {
            After::Sleep
        };
        match after {
            After::Read => self.set(id, Doing::Reading),
            After::Sleep => {
                self.set(id, Doing::Idle);
                self.slots[id].thread = Some(thread::current());
                self.idle.push(id);
            }
            After::End => self.set(id, Doing::Free),
        }
        after
    }

    /// Counts workers that take long as waiting while no worker reads (WP-3).
    fn overdue(&mut self, now: Instant) -> Action {
        if self.reading > 0 {
            return Action::Nothing;
        }
        let long: Vec<Id> = (0..self.slots.len())
            .filter(|&id| match self.slots[id].doing {
                Doing::Working(since) => now.saturating_duration_since(since) >= PATIENCE,
                _ => false,
            })
            .collect();
        long.iter().for_each(|&id| self.set(id, Doing::Waiting));
        self.call_reader(true)
    }
}

/// Starts the thread of a worker. False if that is not possible.
pub(crate) type Start<'a> = &'a dyn Fn(Id) -> bool;

/// The workers of a mount.
pub(crate) struct Pool {
    state: Mutex<State>,
    watch: Condvar,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.lock().fmt(f)
    }
}

impl Pool {
    /// A pool of at most `limit` workers, of which at most `active` read or work.
    pub(crate) fn new(active: usize, limit: usize) -> Self {
        let state = State {
            slots: Vec::new(),
            idle: Vec::new(),
            reading: 0,
            working: 0,
            alive: 0,
            dependent: 0,
            active,
            limit: limit.max(active),
            watchdog_sleeps: false,
            ended: false,
        };
        Self { state: Mutex::new(state), watch: Condvar::new() }
    }

    /// Starts another worker. False if no thread can be started.
    pub(crate) fn start(&self, start: Start<'_>) -> bool {
        let id = self.state.lock().add();
        let started = start(id);
        if !started {
            self.leave(id);
        }
        started
    }

    /// Called when a worker has read a request (`waits`: one that always waits), and before one
    /// waits for a device.
    pub(crate) fn take(&self, id: Id, waits: bool, start: Start<'_>) {
        let action = self.state.lock().take(id, waits, Instant::now());
        self.act(action, start);
    }

    /// Lets a worker wait for other requests. False if no other worker can handle them; then it has
    /// not waited (WP-4).
    pub(crate) fn wait_for_others(&self, id: Id, wait: &mut dyn FnMut(), start: Start<'_>) -> bool {
        let action = {
            let mut state = self.state.lock();
            state.dependent += 1;
            state.take(id, true, Instant::now())
        };
        self.act(action, start);
        let others = {
            let state = self.state.lock();
            // A worker that is being started counts; if its start fails, this one stops waiting.
            state.alive > state.dependent || state.reading > 0
        };
        if others {
            wait();
        }
        self.state.lock().dependent -= 1;
        others
    }

    /// Called when a worker has finished its request: it sleeps if it is not needed; `large`: its
    /// buffers have grown. False if it is to end.
    pub(crate) fn finish(&self, id: Id, large: bool) -> bool {
        let after = self.state.lock().finish(id, large);
        match after {
            After::Read => true,
            After::End => false,
            After::Sleep => loop {
                thread::park();
                match self.state.lock().slots[id].doing {
                    Doing::Idle => {}
                    doing => break doing == Doing::Reading,
                }
            },
        }
    }

    /// Called when the thread of a worker ends with the connection, or could not be started.
    pub(crate) fn leave(&self, id: Id) {
        self.state.lock().set(id, Doing::Free);
    }

    /// True if a worker other than this one handles a request.
    pub(crate) fn is_busy(&self, except: Option<Id>) -> bool {
        let state = self.state.lock();
        let mut slots = state.slots.iter().enumerate();
        slots.any(|(id, slot)| {
            Some(id) != except && matches!(slot.doing, Doing::Working(_) | Doing::Waiting)
        })
    }

    /// The loop of the watchdog.
    pub(crate) fn watch(&self, start: Start<'_>) {
        loop {
            {
                let mut state = self.state.lock();
                while !state.ended && (state.reading > 0 || state.working == 0) {
                    state.watchdog_sleeps = true;
                    self.watch.wait(&mut state);
                }
                state.watchdog_sleeps = false;
                if state.ended {
                    return;
                }
            }
            thread::sleep(PATIENCE);
            let action = self.state.lock().overdue(Instant::now());
            self.act(action, start);
        }
    }

    /// Called when the connection has ended: idle workers and the watchdog end.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        while let Some(id) = state.idle.pop() {
            state.set(id, Doing::Free);
            if let Some(thread) = state.slots[id].thread.take() {
                thread.unpark();
            }
        }
        self.watch.notify_all();
    }

    fn act(&self, action: Action, start: Start<'_>) {
        match action {
            Action::Nothing => {}
            Action::Wake(thread) => thread.unpark(),
            Action::Watch => {
                self.watch.notify_one();
            }
            Action::Start(id) => {
                if !start(id) {
                    let action = {
                        let mut state = self.state.lock();
                        state.set(id, Doing::Free);
                        // A worker may have become idle since.
                        state.call_reader(false)
                    };
                    self.act(action, start);
                }
            }
        }
    }

    /// Counts a worker as reading that has no thread yet.
    #[cfg(test)]
    pub(crate) fn reserve(&self) -> Id {
        self.state.lock().add()
    }

    /// Workers alive, of which so many read, are idle, and wait for others.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> [usize; 4] {
        let state = self.state.lock();
        [state.alive, state.reading, state.idle.len(), state.dependent]
    }
}

#[cfg(test)]
mod tests;
