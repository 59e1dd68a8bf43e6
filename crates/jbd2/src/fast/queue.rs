//! The queue of requests for fast commits, in batches. Bookkeeping only, behind the journal's state
//! lock.
//!
//! ```text
//!   batch    7: served      8: being written     9: open, new requests join it
//! ```
//!
//! A request remembers the number of its batch and is served once that batch is. One batch is
//! written at a time.
//!
//! One thread of the open batch sleeps ready to lead it (`set_next_leader`): the end of the batch
//! before wakes only that one. All the others sleep on the [`BatchWaiters`] of their batch, which
//! wake at the same time, and need no lock to see that they are served.

use std::sync::Arc;

use extol_sync::Bell;
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::thread;

use crate::batching::Batcher;
use crate::types::Tid;

use super::area::Area;
use super::source::SyncKey;

/// The threads that wait for the same thing: the members of a batch, or waiters for the full commit
/// of a transaction.
#[derive(Debug, Default)]
pub(crate) struct BatchWaiters {
    served: AtomicBool,
    pub bell: Bell,
}

impl BatchWaiters {
    /// It is durable. (A thread that is woken otherwise has to look again.)
    pub fn is_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// It became durable: wakes the waiters.
    pub fn serve(&self) {
        self.served.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// A member of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub batch: u64,
    pub waiters: Arc<BatchWaiters>,
}

/// The journal's state of fast commits.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub area: Option<Area>,
    /// Transactions from this one on are known to the source as a whole; none: fast commits are
    /// off.
    pub from: Option<Tid>,
    pub batcher: Batcher,
    /// Requests of the open batch: what they ask for, how many they are, and when the first came.
    keys: Vec<SyncKey>,
    pub waiting: u32,
    pub asked_ns: Option<u64>,
    /// A leader has waited for others to join the open batch, or does.
    pub has_waited: bool,
    /// Number of the open batch, and of the newest served one.
    open: u64,
    served: u64,
    /// Of the open batch, and of those taken, while a thread may sleep there.
    waiters: Arc<BatchWaiters>,
    taken: Vec<Arc<BatchWaiters>>,
    /// A thread sleeps ready to lead the batch of this number.
    next_leader: Option<u64>,
}

/// What a leader takes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub number: u64,
    pub keys: Vec<SyncKey>,
    pub requests: u32,
    pub waiters: Arc<BatchWaiters>,
}

impl Queue {
    /// With an area of these blocks, or none. Fast commits are off.
    pub fn new(area: Option<Area>) -> Self {
        Self { area, open: 1, ..Self::default() }
    }

    /// Fast commits of `tid` are wanted, and the source knows all that it changed.
    pub fn covers(&self, tid: Tid) -> bool {
        self.area.is_some() && self.from.is_some_and(|from| tid.at_least(from))
    }

    /// A request joins the open batch.
    pub fn join(&mut self, key: SyncKey, now_ns: u64) -> Ticket {
        self.keys.push(key);
        self.waiting += 1;
        self.asked_ns.get_or_insert(now_ns);
        self.batcher.asked(thread::current().id());
        Ticket { batch: self.open, waiters: Arc::clone(&self.waiters) }
    }

    /// A member of this batch is about to sleep. True: as the one that will lead it; else it
    /// sleeps on the waiters.
    pub fn set_next_leader(&mut self, number: u64) -> bool {
        let yes = number == self.open && self.next_leader != Some(number);
        if yes {
            self.next_leader = Some(number);
        }
        yes
    }

    /// It was woken.
    pub fn clear_next_leader(&mut self, number: u64) {
        if self.next_leader == Some(number) {
            self.next_leader = None;
        }
    }

    /// All waiters look again.
    pub fn wake(&self) {
        self.taken.iter().for_each(|waiters| waiters.bell.ring());
        self.waiters.bell.ring();
    }

    /// A request goes another way.
    pub fn leave(&mut self, number: u64) {
        if number == self.open {
            self.waiting = self.waiting.saturating_sub(1);
            if self.waiting == 0 {
                self.take();
            }
        }
    }

    /// Takes the open batch; the next one is open.
    pub fn take(&mut self) -> Batch {
        let number = self.open;
        self.open += 1;
        self.has_waited = false;
        self.asked_ns = None;
        let waiters = std::mem::take(&mut self.waiters);
        self.taken.retain(|waiters| Arc::strong_count(waiters) > 1);
        self.taken.push(Arc::clone(&waiters));
        Batch {
            number,
            keys: std::mem::take(&mut self.keys),
            requests: std::mem::take(&mut self.waiting),
            waiters,
        }
    }

    /// A batch was served. Its list can be used again.
    pub fn serve(&mut self, number: u64, mut keys: Vec<SyncKey>) {
        self.served = number;
        if self.keys.capacity() == 0 {
            keys.clear();
            self.keys = keys;
        }
    }

    pub fn is_served(&self, number: u64) -> bool {
        self.served >= number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches() {
        let mut queue = Queue::new(None);
        let Ticket { batch: a, waiters } = queue.join(SyncKey(1), 5);
        let b = queue.join(SyncKey(2), 6).batch;
        assert!(queue.set_next_leader(a) && !queue.set_next_leader(b), "one is enough");
        assert_eq!((a, b, queue.waiting, queue.asked_ns), (1, 1, 2, Some(5)));
        queue.has_waited = true;
        let batch = queue.take();
        assert_eq!(
            (batch.number, batch.requests, &batch.keys[..]),
            (1, 2, &[SyncKey(1), SyncKey(2)][..])
        );
        assert_eq!((queue.waiting, queue.asked_ns, queue.has_waited), (0, None, false));
        assert!(!queue.set_next_leader(b), "it is led already");
        let c = queue.join(SyncKey(3), 9).batch;
        assert!(queue.set_next_leader(c));
        queue.clear_next_leader(a);
        assert!(!queue.set_next_leader(c), "of another batch");
        queue.clear_next_leader(c);
        assert!(queue.set_next_leader(c));
        let rings = waiters.bell.rings();
        queue.wake();
        assert!(waiters.bell.rings() != rings && !waiters.is_served(), "to look again");
        batch.waiters.serve();
        assert!(waiters.is_served());
        assert!(!queue.is_served(a) && !queue.is_served(c));
        queue.serve(batch.number, batch.keys);
        assert!(queue.is_served(a) && queue.is_served(b) && !queue.is_served(c));
        queue.leave(a);
        assert_eq!(queue.waiting, 1, "of a batch that is not open any more");
        queue.leave(c);
        assert_eq!(queue.take().keys, [], "no request is left");
    }
}
