//! The workers of one queue: how many wait for requests, and when there is to be another.
//!
//! What a worker has once registered with the kernel stays there, so workers are only ever added,
//! and none sleeps or ends before the mount does: an idle one is handed requests. (The kernel takes
//! the one that was busy last, whose memory is warm.)
//!
//! 1. A worker counts as idle from its beginning, before it is registered, until it takes a
//!    request, and again from when it is done ([`Queue::take`], [`Queue::done`]). So two who find
//!    nobody idle do not both call one ([`Queue::hire`]).
//! 2. Where a request that will wait leaves nobody idle, another worker is hired at once; where one
//!    that should be over at once does, the tender looks after a while ([`Queue::neglected`]).
//! 3. Never more than the limit, not counting those that wait for other requests ([`may_hire`]):
//!    whoever may finish only when another request of the same queue has been answered always finds
//!    a worker for that.
//! 4. Whoever waits for other requests does so after every registration before was followed by a
//!    stir, and every registration while somebody waits is ([`Queue::registered`],
//!    [`Queue::to_be_stirred`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::slot::Slot;

/// Decides whether there is to be another worker.
fn may_hire(idle: u32, alive: usize, waiting: usize, limit: usize) -> bool {
    idle == 0 && alive < limit.saturating_add(waiting)
}

/// What came of an attempt to have an idle worker.
#[derive(Debug)]
pub(super) enum Hired {
    /// There is one.
    Nobody,
    /// Start this one; it counts as idle already.
    New(Arc<Slot>),
    /// There are enough.
    TooMany,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    idle: AtomicU32,
    staff: Mutex<Staff>,
}

#[derive(Debug, Default)]
struct Staff {
    slots: Vec<Arc<Slot>>,
    /// How many of them wait for other requests.
    waiting: usize,
    /// A worker has been registered since the queue was stirred, so requests may wait though it is
    /// idle.
    stale: bool,
    /// Looks in a row at which nobody was idle and somebody at the same request, which should have
    /// been over at once.
    looks: usize,
}

impl Queue {
    /// Takes a worker on that is there already, and counts as idle.
    pub(super) fn join(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        self.staff.lock().slots.push(Arc::clone(&slot));
        self.idle.fetch_add(1, Ordering::SeqCst);
        slot
    }

    /// Takes another worker on, if nobody is idle and there may be one.
    pub(super) fn hire(&self, limit: usize) -> Hired {
        let mut staff = self.staff.lock();
        let idle = self.idle.load(Ordering::SeqCst);
        if may_hire(idle, staff.slots.len(), staff.waiting, limit) {
            let slot = Arc::new(Slot::default());
            staff.slots.push(Arc::clone(&slot));
            self.idle.fetch_add(1, Ordering::SeqCst);
            return Hired::New(slot);
        }
        if idle == 0 { Hired::TooMany } else { Hired::Nobody }
    }

    /// A worker that counts as idle is no more.
    pub(super) fn leave(&self, slot: &Arc<Slot>) {
        self.staff.lock().slots.retain(|other| !Arc::ptr_eq(other, slot));
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }

    /// An idle worker has a request. True if nobody is idle now.
    pub(super) fn take(&self) -> bool {
        self.idle.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// It is done.
    pub(super) fn done(&self) {
        self.idle.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a worker as one that waits for other requests, or (-1) no longer.
    pub(super) fn waits(&self, change: isize) {
        let mut staff = self.staff.lock();
        staff.waiting = staff.waiting.saturating_add_signed(change);
    }

    /// A worker that was hired is registered. True if the queue is to be stirred: because it was
    /// hired where a request may take for ever (`stuck`), or somebody waits for other requests. If
    /// not, that waits until somebody does.
    pub(super) fn registered(&self, stuck: bool) -> bool {
        let mut staff = self.staff.lock();
        let stir = stuck || staff.waiting > 0;
        staff.stale |= !stir;
        stir
    }

    /// True if the queue is to be stirred, now that somebody waits for other requests; that is told
    /// once.
    pub(super) fn to_be_stirred(&self) -> bool {
        std::mem::take(&mut self.staff.lock().stale)
    }

    /// True if somebody is idle.
    pub(super) fn attended(&self) -> bool {
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// A look at the queue: true if there should be another worker, because nobody is idle and
    /// somebody is at the same request as at the look before. The more workers there are, the
    /// longer that must have been so: they may only be waiting for the processor.
    pub(super) fn neglected(&self) -> bool {
        let mut staff = self.staff.lock();
        let mut long = false;
        // All of them are looked at, so that the next look knows.
        for slot in &staff.slots {
            long |= slot.same_request() && !slot.is_away();
        }
        staff.looks = if long && !self.attended() { staff.looks + 1 } else { 0 };
        staff.looks >= staff.slots.len().max(1)
    }

    /// True if there are so many workers.
    pub(super) fn has(&self, many: usize) -> bool {
        self.staff.lock().slots.len() >= many
    }

    /// Workers alive.
    #[cfg(test)]
    pub(super) fn alive(&self) -> usize {
        self.staff.lock().slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_is_hired_when_nobody_is_idle() {
        let queue = Queue::default();
        let first = queue.join();
        assert!(matches!(queue.hire(2), Hired::Nobody));
        assert!(queue.take() && !queue.attended());
        let Hired::New(second) = queue.hire(2) else { panic!("there is room for two") };
        assert!(matches!(queue.hire(2), Hired::Nobody), "who was hired counts");
        assert!(queue.take());
        assert!(matches!(queue.hire(2), Hired::TooMany));
        queue.waits(1);
        assert!(matches!(queue.hire(2), Hired::New(_)), "one of the two waits for a third");
        assert!(queue.take());
        assert!(matches!(queue.hire(2), Hired::TooMany));
        queue.waits(-1);
        queue.done();
        queue.leave(&second);
        assert_eq!((queue.alive(), queue.attended()), (2, false));
        queue.done();
        assert!(queue.attended());
        queue.leave(&first);
        assert_eq!(queue.alive(), 1);
    }

    #[test]
    fn a_queue_is_stirred_where_somebody_waits_for_it() {
        let queue = Queue::default();
        assert!(!queue.to_be_stirred());
        assert!(queue.registered(true), "at once");
        assert!(!queue.to_be_stirred());
        assert!(!queue.registered(false), "nobody waits yet");
        queue.waits(1);
        assert_eq!([queue.to_be_stirred(), queue.to_be_stirred()], [true, false]);
        assert!(queue.registered(false), "somebody waits");
        assert!(!queue.to_be_stirred());
    }

    #[test]
    fn who_takes_long_is_noticed() {
        let queue = Queue::default();
        let [first, second] = [queue.join(), queue.join()];
        queue.take();
        first.begin(false);
        for _ in 0..4 {
            assert!(!queue.neglected(), "one is idle");
        }
        queue.take();
        second.begin(false);
        assert_eq!([queue.neglected(), queue.neglected(), queue.neglected()], [false, true, true]);
        first.end();
        first.begin(false);
        assert!(queue.neglected(), "the second is at the same request still");
        second.end();
        second.begin(false);
        // Each look sees one that is where it was; there must be as many looks as workers.
        first.end();
        first.begin(false);
        assert!(!queue.neglected(), "both have another request");
        assert_eq!([queue.neglected(), queue.neglected()], [false, true]);
        queue.done();
        assert!(!queue.neglected(), "between two requests");
    }
}
