//! Who waits for a fast commit: requests in batches. Bookkeeping only, behind the journal's state lock.
//!
//! ```text
//!   batch    7: served      8: being written     9: open, new asks join it
//! ```
//!
//! A request remembers the number of its batch and is served once that batch is. One batch is written at a time.

use crate::batching::Batcher;
use crate::types::Tid;

use super::Ask;
use super::area::Area;

/// The journal's state of fast commits.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub area: Option<Area>,
    /// Transactions from this one on are known to the source as a whole; none: fast commits are off.
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
}

/// What a leader takes.
#[derive(Debug)]
pub(crate) struct Batch {
    pub number: u64,
    pub asks: Vec<Ask>,
    pub requests: u32,
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

    /// A request joins the open batch; gives its number.
    pub fn join(&mut self, ask: Ask, now_ns: u64) -> u64 {
        self.asks.push(ask);
        self.waiting += 1;
        self.asked_ns.get_or_insert(now_ns);
        self.open
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
        Batch { number, asks: std::mem::take(&mut self.asks), requests: std::mem::take(&mut self.waiting) }
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
        let (a, b) = (queue.join(ask(1), 5), queue.join(ask(2), 6));
        assert_eq!((a, b, queue.waiting, queue.asked_ns), (1, 1, 2, Some(5)));
        queue.gathered = true;
        let batch = queue.take();
        assert_eq!((batch.number, batch.requests, &batch.asks[..]), (1, 2, &[ask(1), ask(2)][..]));
        assert_eq!((queue.waiting, queue.asked_ns, queue.gathered), (0, None, false));
        let c = queue.join(ask(3), 9);
        assert!(!queue.is_served(a) && !queue.is_served(c));
        queue.serve(batch.number, batch.asks);
        assert!(queue.is_served(a) && queue.is_served(b) && !queue.is_served(c));
        queue.leave(a);
        assert_eq!(queue.waiting, 1, "of a batch that is not open any more");
        queue.leave(c);
        assert_eq!(queue.take().asks, [], "nobody asks for it any more");
    }
}
