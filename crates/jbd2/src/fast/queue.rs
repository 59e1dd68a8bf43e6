//! Who waits for a fast commit: requests in batches. Bookkeeping only, behind the journal's state
//! lock.
//!
//! ```text
//!   batch    7: served      8: being written     9: open, new asks join it
//! ```
//!
//! A request remembers the number of its batch and is served once that batch is. One batch is
//! written at a time.
//!
//! Of the open batch one sleeps ready to lead it (`stands_by`): the end of the one before it wakes
//! only that one. All the others sleep on the [`Seat`] of their batch, which wakes them at the same
//! time, and those who find themselves served need no lock any more.

use std::sync::Arc;

use extol_sync::Bell;
use extol_sync::atomic::{AtomicBool, Ordering};

use crate::batching::Batcher;
use crate::types::Tid;

use super::Ask;
use super::area::Area;
use super::pledge::Pledges;

/// Where those sleep who wait for the same thing: the members of a batch, or who waits for the full
/// commit of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    served: AtomicBool,
    pub bell: Bell,
}

impl Seat {
    /// It is durable. (Who is woken otherwise has to look again.)
    pub fn is_served(&self) -> bool {
        self.served.load(Ordering::Acquire)
    }

    /// It became durable: wakes those who wait.
    pub fn serve(&self) {
        self.served.store(true, Ordering::Release);
        self.bell.ring();
    }
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
    asks: Vec<Ask>,
    pub waiting: u32,
    pub asked_ns: Option<u64>,
    /// A leader has waited for others to join the open batch, or does.
    pub gathered: bool,
    /// Number of the open batch, and of the newest served one.
    open: u64,
    served: u64,
    /// Of the open batch, and of those taken, while somebody may sleep there.
    seat: Arc<Seat>,
    taken: Vec<Arc<Seat>>,
    /// Somebody sleeps ready to lead the batch of this number.
    leader: Option<u64>,
    /// Members that nobody sleeps for.
    pub pledges: Pledges,
}

/// What a leader takes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub number: u64,
    pub asks: Vec<Ask>,
    pub requests: u32,
    pub seat: Arc<Seat>,
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

    /// A request joins the open batch; gives its number and its seat.
    pub fn join(&mut self, ask: Ask, now_ns: u64) -> (u64, Arc<Seat>) {
        self.asks.push(ask);
        self.waiting += 1;
        self.asked_ns.get_or_insert(now_ns);
        (self.open, Arc::clone(&self.seat))
    }

    /// Should a member of this batch sleep ready to lead it? Else it sleeps on the seat.
    pub fn stands_by(&mut self, number: u64) -> bool {
        let yes = number == self.open && self.leader != Some(number);
        if yes {
            self.leader = Some(number);
        }
        yes
    }

    /// It was woken.
    pub fn stood_by(&mut self, number: u64) {
        if self.leader == Some(number) {
            self.leader = None;
        }
    }

    /// Everybody who sleeps on a seat looks again.
    pub fn wake(&self) {
        self.taken.iter().for_each(|seat| seat.bell.ring());
        self.seat.bell.ring();
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
        self.gathered = false;
        self.asked_ns = None;
        let seat = std::mem::take(&mut self.seat);
        self.taken.retain(|seat| Arc::strong_count(seat) > 1);
        self.taken.push(Arc::clone(&seat));
        Batch {
            number,
            asks: std::mem::take(&mut self.asks),
            requests: std::mem::take(&mut self.waiting),
            seat,
        }
    }

    /// A batch was served. Its list can be used again.
    pub fn serve(&mut self, number: u64, mut asks: Vec<Ask>) {
        self.served = number;
        if self.asks.capacity() == 0 {
            asks.clear();
            self.asks = asks;
        }
    }

    pub fn is_served(&self, number: u64) -> bool {
        self.served >= number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(ino: u32) -> Ask {
        Ask { ino, data_only: false }
    }

    #[test]
    fn batches() {
        let mut queue = Queue::new(None);
        let ((a, seat), (b, _)) = (queue.join(ask(1), 5), queue.join(ask(2), 6));
        assert!(queue.stands_by(a) && !queue.stands_by(b), "one is enough");
        assert_eq!((a, b, queue.waiting, queue.asked_ns), (1, 1, 2, Some(5)));
        queue.gathered = true;
        let batch = queue.take();
        assert_eq!((batch.number, batch.requests, &batch.asks[..]), (1, 2, &[ask(1), ask(2)][..]));
        assert_eq!((queue.waiting, queue.asked_ns, queue.gathered), (0, None, false));
        assert!(!queue.stands_by(b), "it is led already");
        let (c, _) = queue.join(ask(3), 9);
        assert!(queue.stands_by(c));
        queue.stood_by(a);
        assert!(!queue.stands_by(c), "of another batch");
        queue.stood_by(c);
        assert!(queue.stands_by(c));
        let rings = seat.bell.rings();
        queue.wake();
        assert!(seat.bell.rings() != rings && !seat.is_served(), "to look again");
        batch.seat.serve();
        assert!(seat.is_served());
        assert!(!queue.is_served(a) && !queue.is_served(c));
        queue.serve(batch.number, batch.asks);
        assert!(queue.is_served(a) && queue.is_served(b) && !queue.is_served(c));
        queue.leave(a);
        assert_eq!(queue.waiting, 1, "of a batch that is not open any more");
        queue.leave(c);
        assert_eq!(queue.take().asks, [], "nobody asks for it any more");
    }
}
