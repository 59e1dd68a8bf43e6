//! When a request is done: the timing model, without a clock and without data.
//!
//! Time is the time since the medium was made, given by the caller, never going back. Every request
//! gets its end when it comes; nothing that comes later changes it. On its way it passes, in this
//! order:
//!
//! 1. a slot of the queue: with `depth` requests under way it waits for the first of them to end;
//! 2. the cap on requests, a bucket that `burst` requests empty and that fills at `iops` per
//!    second;
//! 3. the link, which carries the data of one request after the other at `bandwidth`;
//! 4. the disk, if there is one ([`super::disk`]);
//! 5. the latency, which requests spend side by side.
//!
//! Requests are cut into pieces of at most half a megabyte, as operating systems do, and the pieces
//! pass one by one.
//!
//! A flush on a medium without a volatile cache takes its cost; flushes take turns. On a disk with
//! a volatile cache it waits for all requests under way, the cache is written back, then comes the
//! cost, and until then no other request begins: that is what the command does to a SATA disk.
//!
//! # Invariants
//!
//! 1. At most `depth` requests are between start and end at any moment ([`Model::admit`] pops
//!    before it lets one in).
//! 2. An end is never before `now` ([`Model::request`], [`Model::flush`]).
//! 3. Between the start and the end of a flush that closes the disk no request begins (`closed`).

use super::disk::Disk;
use super::profile::Profile;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Longest piece of a request (bytes).
pub(super) const MAX_REQUEST: u64 = 512 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Read,
    Write,
    /// A write that is durable when it ends. Only for media that know it; others get a write and a
    /// flush.
    WriteFua,
    Zero,
    Discard,
}

#[derive(Debug)]
pub(super) struct Model {
    profile: Profile,
    /// Ends of the requests that hold a slot.
    slots: BinaryHeap<Reverse<Duration>>,
    /// When the link has carried everything so far.
    link: Duration,
    /// When the bucket of the cap will be full again.
    refilled: Duration,
    /// When the last flush ends.
    flushed: Duration,
    /// No request begins before.
    closed: Duration,
    disk: Option<Disk>,
    /// The latest time seen.
    now: Duration,
}

impl Model {
    pub(super) fn new(profile: Profile, size: u64) -> Self {
        let disk = profile.mechanics.map(|mechanics| Disk::new(mechanics, size));
        let zero = Duration::ZERO;
        Self {
            profile,
            slots: BinaryHeap::new(),
            link: zero,
            refilled: zero,
            flushed: zero,
            closed: zero,
            disk,
            now: zero,
        }
    }

    /// When a request that comes now is done.
    pub(super) fn request(&mut self, op: Op, offset: u64, len: u64, now: Duration) -> Duration {
        self.now = self.now.max(now);
        let mut end = self.now;
        let mut done = 0;
        while done < len {
            let carried = matches!(op, Op::Read | Op::Write | Op::WriteFua);
            let heavy = carried || (op == Op::Zero && !self.profile.fast_zero);
            // What moves no data is one command, however long.
            let part = if heavy { (len - done).min(MAX_REQUEST) } else { len };
            end = end.max(self.piece(op, offset + done, part, heavy));
            done += part;
        }
        end
    }

    fn piece(&mut self, op: Op, offset: u64, len: u64, heavy: bool) -> Duration {
        let start = self.admit();
        let mut arrived = start;
        // Zeros are made inside a disk; without one they come over the link, as
        // writes.
        let over_link = heavy && (op != Op::Zero || self.disk.is_none());
        if over_link && let Some(rate) = self.profile.bandwidth {
            arrived = start.max(self.link) + rate.time(len);
            self.link = arrived;
        }
        if let Some(disk) = &mut self.disk {
            arrived = match op {
                Op::Read => arrived.max(disk.read(offset, len, start)),
                Op::Write | Op::WriteFua | Op::Zero if heavy => disk.write(offset, len, arrived),
                _ => {
                    disk.discard(offset, len, start);
                    arrived
                }
            };
        }
        let mut end = arrived + self.profile.latency;
        if op == Op::WriteFua {
            end += self.profile.flush;
        }
        self.slots.push(Reverse(end));
        end
    }

    /// When a request that comes now begins.
    fn admit(&mut self) -> Duration {
        while self.slots.peek().is_some_and(|Reverse(end)| *end <= self.now) {
            self.slots.pop();
        }
        let mut start = self.now.max(self.closed);
        if self.slots.len() >= self.profile.depth as usize
            && let Some(Reverse(end)) = self.slots.pop()
        {
            start = start.max(end);
        }
        if let Some(iops) = self.profile.iops {
            let interval = iops.interval();
            start = start.max(self.refilled.saturating_sub(interval * (iops.burst.max(1) - 1)));
            self.refilled = self.refilled.max(start) + interval;
        }
        start
    }

    /// When a flush that comes now is done.
    pub(super) fn flush(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        let mut start = self.now.max(self.flushed);
        match &mut self.disk {
            Some(disk) if disk.is_volatile() => {
                // The slots hold no more than `depth` ends, and the last of all is among them.
                start = self.slots.iter().map(|Reverse(end)| *end).fold(start, Duration::max);
                self.flushed = disk.write_back(start) + self.profile.flush;
                self.closed = self.flushed;
            }
            _ => self.flushed = start + self.profile.flush,
        }
        self.flushed
    }
}
