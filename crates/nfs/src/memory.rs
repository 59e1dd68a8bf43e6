//! The memory of requests and replies, and its owners.
//!
//! A request takes memory for itself and its reply before it is worked on, and one that is long
//! before it is read. The reply keeps its part until its peer has taken it, so that peers that ask
//! and do not read come to a stop within the budget.
//!
//! ```text
//!   budget ├──────── any request ────────┤ small ones only │
//!          at most 1/2 for one client, 1/8 for one connection, and one request whatever it takes
//! ```
//!
//! *No deadlock.* Nothing waits for memory while it holds some. Each hold ends: with the work on
//! its request, when its reply is taken, or when the time for that is over.
//!
//! - NF-5: all holds together are no more than the budget ([`may_take`]), but for results that turn
//!   out longer than they were asked for. The budget is never too small for one request.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_sync::Condvar;
use extol_sync::plain::Mutex;

use crate::client::Client;
use crate::limits;

/// A request that is not long takes so many bytes at most, and has an eighth of the budget that
/// long ones cannot have.
const SMALL: usize = 32 << 10;

/// The owner of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) client: Client,
    /// The number of the connection.
    pub(crate) connection: usize,
}

/// The budget.
#[derive(Debug)]
pub(crate) struct Memory {
    total: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    by_client: HashMap<Client, usize>,
    by_connection: HashMap<usize, usize>,
    waiting: usize,
}

/// Bytes that are held, in all and by an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    all: usize,
    client: usize,
    connection: usize,
}

/// True if a request may have so many bytes of a budget of which this is held (NF-5).
fn may_take(bytes: usize, total: usize, held: Held) -> bool {
    let part = total / 8;
    let most = if bytes > SMALL { total - part } else { total };
    let within = |held: usize, share: usize| held == 0 || held + bytes <= share;
    held.all + bytes <= most && within(held.connection, part) && within(held.client, total / 2)
}

impl Memory {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        let total = total.max(limits::MEMORY_LEAST);
        Arc::new(Self { total, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Takes memory for a request, and waits for it at most so long.
    pub(crate) fn take(
        self: &Arc<Self>,
        owner: Owner,
        bytes: usize,
        time: Duration,
    ) -> Option<Hold> {
        let end = Instant::now() + time;
        let mut state = self.state.lock();
        state.waiting += 1;
        let mut is_late = false;
        let may = loop {
            if may_take(bytes, self.total, state.of(owner)) {
                break true;
            }
            if is_late {
                break false;
            }
            is_late = self.changed.wait_until(&mut state, end).timed_out();
        };
        state.waiting -= 1;
        if may {
            state.change(owner, 0, bytes);
        }
        may.then(|| Hold { memory: Arc::clone(self), owner, bytes })
    }

    /// Bytes that a client holds.
    pub(crate) fn held_by(&self, client: Client) -> usize {
        self.state.lock().by_client.get(&client).copied().unwrap_or(0)
    }

    /// Bytes that are held, and requests that wait for some.
    #[cfg(test)]
    pub(crate) fn held_and_waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.held, state.waiting)
    }
}

impl State {
    fn of(&self, owner: Owner) -> Held {
        Held {
            all: self.held,
            client: self.by_client.get(&owner.client).copied().unwrap_or(0),
            connection: self.by_connection.get(&owner.connection).copied().unwrap_or(0),
        }
    }

    fn change(&mut self, owner: Owner, before: usize, now: usize) {
        self.held = self.held + now - before;
        change_entry(&mut self.by_client, owner.client, before, now);
        change_entry(&mut self.by_connection, owner.connection, before, now);
    }
}

/// Changes the sum of an owner, which has no entry if it holds nothing.
fn change_entry<K: Eq + Hash + Copy>(
    sums: &mut HashMap<K, usize>,
    key: K,
    before: usize,
    now: usize,
) {
    let sum = sums.entry(key).or_default();
    *sum = *sum + now - before;
    if *sum == 0 {
        sums.remove(&key);
    }
}

/// Memory that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    memory: Arc<Memory>,
    owner: Owner,
    bytes: usize,
}

impl Hold {
    /// Holds so many bytes from now on, without a wait.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let mut state = self.memory.state.lock();
        state.change(self.owner, self.bytes, bytes);
        let wakes = state.waiting > 0 && bytes < self.bytes;
        self.bytes = bytes;
        drop(state);
        if wakes {
            self.memory.changed.notify_all();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTAL: usize = 16 << 20;
    const LONG: usize = 1 << 20;

    fn owner(address: u8, connection: usize) -> Owner {
        Owner { client: Client::of([10, 0, 0, address].into()), connection }
    }

    /// Takes requests of so many bytes for connections of a client, until one would wait.
    fn fill(memory: &Arc<Memory>, address: u8, bytes: usize) -> Vec<Hold> {
        let first = usize::from(address) * 1000;
        let holds = (first..first + 1000)
            .map_while(|connection| memory.take(owner(address, connection), bytes, Duration::ZERO));
        holds.collect()
    }

    #[test]
    fn all_holds_are_within_the_budget_and_each_has_a_share() {
        let memory = Memory::new(TOTAL);
        let one = fill(&memory, 1, LONG);
        assert_eq!(one.len(), 8, "half for one client");
        let other = fill(&memory, 2, LONG);
        assert_eq!(other.len(), 6, "an eighth for small ones");
        let small = fill(&memory, 3, SMALL);
        assert_eq!(small.len(), (2 << 20) / SMALL);
        assert_eq!(memory.held_and_waiting(), (TOTAL, 0));
        drop((one, other, small));
        assert_eq!(memory.held_and_waiting(), (0, 0));
        let state = memory.state.lock();
        assert!(state.by_client.is_empty() && state.by_connection.is_empty());
    }

    #[test]
    fn a_connection_has_an_eighth_and_one_request_whatever_it_takes() {
        let memory = Memory::new(TOTAL);
        let take = |bytes| memory.take(owner(1, 7), bytes, Duration::ZERO);
        let holds: Vec<_> = std::iter::from_fn(|| take(LONG)).take(100).collect();
        assert_eq!(holds.len(), 2);
        drop(holds);
        // One request is more than the share of a small budget.
        let memory = Memory::new(0);
        let take = || memory.take(owner(1, 7), LONG + SMALL, Duration::ZERO);
        let hold = take().expect("a request");
        assert!(take().is_none());
        drop(hold);
        assert!(take().is_some());
    }

    #[test]
    fn memory_that_is_given_back_is_taken_by_what_waits() {
        let memory = Memory::new(TOTAL);
        let mut held = fill(&memory, 1, LONG);
        std::thread::scope(|scope| {
            let wait = || memory.take(owner(1, 999_999), LONG, Duration::from_secs(60));
            let waiting = scope.spawn(wait);
            while memory.held_and_waiting().1 == 0 {
                std::thread::yield_now();
            }
            held.pop();
            assert!(waiting.join().expect("a thread").is_some());
        });
    }
}
