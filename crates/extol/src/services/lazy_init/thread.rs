//! One thread for all volumes that this process has open. It starts with the first request and ends
//! with the last.
//!
//! Invariants
//! - LI-5: there is a thread exactly while there are requests: both change under the one lock
//!   (`register`, `run`).
//! - LI-6: a cancelled request has no step any more, not even the rest of one: [`Ticket::cancel`]
//!   waits for a step under way. No other caller waits for a step.
//!
//! The lock is a leaf; no step runs under it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use extol_task::{Clock, SystemClock};

use super::schedule::{self, Next, Ns};

/// Linux shows at most 15 characters.
const NAME: &str = "extol-lazyinit";

/// What becomes of a request after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// The next step is at this time.
    Again(Ns),
    /// It was the last.
    End,
}

/// Work that is done in steps.
pub(super) trait Request: Send + Sync + std::fmt::Debug {
    /// Does a bounded piece of work.
    fn step(&self) -> After;
}

struct Entry {
    id: u64,
    due: Ns,
    running: bool,
    request: Arc<dyn Request>,
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    next_id: u64,
    alive: bool,
}

impl List {
    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.id == id)
    }
}

static LIST: Mutex<List> = Mutex::new(List { entries: Vec::new(), next_id: 0, alive: false });
/// A request came or went, or a step ended.
static CHANGED: Condvar = Condvar::new();
static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);

/// The time that requests are due by.
pub(super) fn now() -> Ns {
    CLOCK.now_ns()
}

/// A place in the list.
#[derive(Debug)]
pub(super) struct Ticket(u64);

/// Puts a request into the list; starts the thread if it is the first.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn register(request: Arc<dyn Request>, due: Ns) -> std::io::Result<Ticket> {
    let mut list = LIST.lock();
    if !list.alive {
        // It cannot look at the list before the lock is given back.
        std::thread::Builder::new().name(NAME.into()).spawn(run)?;
        list.alive = true;
    }
    let id = list.next_id;
    list.next_id += 1;
    list.entries.push(Entry { id, due, running: false, request });
    drop(list);
    CHANGED.notify_all();
    Ok(Ticket(id))
}

impl Ticket {
    /// Takes the request out of the list. It may be gone already.
    pub fn cancel(self) {
        let mut list = LIST.lock();
        while list.find(self.0).is_some_and(|e| e.running) {
            CHANGED.wait(&mut list);
        }
        let gone =
            list.entries.iter().position(|e| e.id == self.0).map(|at| list.entries.swap_remove(at));
        drop(list);
        CHANGED.notify_all();
        // Not under the lock: this may be the last reference on its volume.
        drop(gone);
    }
}

fn run() {
    let mut list = LIST.lock();
    loop {
        match schedule::next(
            list.entries.iter().map(|e| if e.running { Ns::MAX } else { e.due }),
            now(),
        ) {
            Next::End => {
                list.alive = false;
                return;
            }
            Next::Wait(ns) => {
                CHANGED.wait_for(&mut list, Duration::from_nanos(ns));
            }
            Next::Step(at) => {
                let Some(entry) = list.entries.get_mut(at) else { continue };
                entry.running = true;
                let (id, request) = (entry.id, Arc::clone(&entry.request));
                drop(list);
                // A bug in one volume's step must not end the thread of the others, nor leave a
                // cancelling thread waiting.
                let after = catch_unwind(AssertUnwindSafe(|| request.step())).unwrap_or(After::End);
                drop(request);
                list = LIST.lock();
                let mut gone = None;
                if let Some(at) = list.entries.iter().position(|e| e.id == id) {
                    match after {
                        After::Again(due) => {
                            list.entries[at].running = false;
                            list.entries[at].due = due;
                        }
                        After::End => gone = Some(list.entries.swap_remove(at)),
                    }
                }
                CHANGED.notify_all();
                if gone.is_some() {
                    drop(list);
                    drop(gone);
                    list = LIST.lock();
                }
            }
        }
    }
}
