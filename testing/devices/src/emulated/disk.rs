//! Moving parts: spindles with one head each, and the write cache before them.
//!
//! Story. A write is done when it lies in the cache. Whenever a head has nothing else to do it
//! takes a cached range to its place, always the next one upwards from where it stands (and then
//! from the bottom again), so ranges that lie side by side go in one sweep. A read of something
//! else than cached data needs the head and goes before what still waits in the cache, but not
//! before what the head has begun. A flush of a volatile cache empties it.
//!
//! Nothing runs in the background here: what the heads did meanwhile is worked out when the next
//! request comes ([`Disk::advance`]), in the order in which it would have happened.
//!
//! Getting to an address costs a seek (the shortest is a tenth of the average; it grows with the
//! square root of the distance, so that the mean over random distances is the average: the mean of
//! the root is 8/15) and half a rotation. Within a megabyte there is no seek. Going on where the
//! last transfer ended costs nothing: for a write if the head has just arrived there, for a read
//! always (the disk reads ahead).
//!
//! In an array addresses go round the spindles in stripes of 64 KiB.
//!
//! # Invariants
//!
//! 1. `dirty` is the sum of the lengths in all `waiting` maps ([`Disk::cut`], [`Disk::insert`],
//!    [`Spindle::take`]).
//! 2. Ranges in one `waiting` map do not overlap ([`Disk::insert`] cuts first).
//! 3. `dirty` is at most the size of the cache ([`Disk::write`] makes room).

use super::profile::Mechanics;
use std::collections::BTreeMap;
use std::time::Duration;

/// No seek within this distance (bytes).
const NEAR: u64 = 1 << 20;
const STRIPE: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Disk {
    mechanics: Mechanics,
    /// Bytes on one spindle: the distance of a full seek.
    span: u64,
    spindles: Vec<Spindle>,
    dirty: u64,
}

#[derive(Debug, Default)]
struct Spindle {
    /// Where the head stands: behind the last transfer.
    head: u64,
    /// When it has ended that.
    free: Duration,
    /// Cached ranges by address.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    len: u64,
    /// When it came into the cache.
    since: Duration,
}

/// A part of a request that lies on one spindle.
#[derive(Clone, Copy, Debug)]
struct Piece {
    spindle: usize,
    at: u64,
    len: u64,
}

impl Disk {
    pub(super) fn new(mechanics: Mechanics, size: u64) -> Self {
        let count = mechanics.spindles.max(1);
        Self {
            mechanics,
            span: (size / u64::from(count)).max(1),
            spindles: (0..count).map(|_| Spindle::default()).collect(),
            dirty: 0,
        }
    }

    /// True if a flush has to empty the cache.
    pub(super) fn is_volatile(&self) -> bool {
        !self.mechanics.protected
    }

    /// When a read that begins at `start` has its data.
    pub(super) fn read(&mut self, offset: u64, len: u64, start: Duration) -> Duration {
        self.advance(start);
        let pieces: Vec<Piece> = self.pieces(offset, len).collect();
        let arrivals = pieces.into_iter().map(|piece| {
            let spindle = &mut self.spindles[piece.spindle];
            if spindle.holds(piece) {
                return start;
            }
            let going_on = piece.at == spindle.head;
            let way = if going_on {
                Duration::ZERO
            } else {
                self.mechanics.way(spindle.head, piece.at, self.span)
            };
            spindle.transfer(piece.at, piece.len, start, way, &self.mechanics)
        });
        arrivals.max().unwrap_or(start)
    }

    /// When the cache has taken a write that arrives at `start`.
    pub(super) fn write(&mut self, offset: u64, len: u64, start: Duration) -> Duration {
        self.advance(start);
        self.cut(offset, len);
        if len > self.mechanics.cache {
            let pieces: Vec<Piece> = self.pieces(offset, len).collect();
            let arrivals = pieces.into_iter().map(|piece| {
                let spindle = &mut self.spindles[piece.spindle];
                spindle.put(piece.at, piece.len, start, self.span, &self.mechanics)
            });
            return arrivals.max().unwrap_or(start);
        }
        let mut taken = start;
        while self.dirty + len > self.mechanics.cache {
            let next =
                self.spindles.iter_mut().filter(|s| !s.waiting.is_empty()).min_by_key(|s| s.free);
            let Some(spindle) = next else { break };
            if let Some((at, len, start)) = spindle.take(Duration::MAX) {
                self.dirty -= len;
                taken = taken.max(spindle.put(at, len, start, self.span, &self.mechanics));
            }
        }
        self.insert(offset, len, taken);
        taken
    }

    /// When everything in the cache is in its place, if the heads begin at `start` at the latest.
    pub(super) fn write_back(&mut self, start: Duration) -> Duration {
        self.advance(start);
        let mut end = start;
        for spindle in &mut self.spindles {
            while let Some((at, len, since)) = spindle.take(Duration::MAX) {
                self.dirty -= len;
                spindle.put(at, len, since.max(start), self.span, &self.mechanics);
            }
            end = end.max(spindle.free);
        }
        end
    }

    /// Forgets cached ranges: their contents do not matter any more.
    pub(super) fn discard(&mut self, offset: u64, len: u64, now: Duration) {
        self.advance(now);
        self.cut(offset, len);
    }

    /// What the heads began before `now`.
    fn advance(&mut self, now: Duration) {
        for spindle in &mut self.spindles {
            while let Some((at, len, start)) = spindle.take(now) {
                self.dirty -= len;
                spindle.put(at, len, start, self.span, &self.mechanics);
            }
        }
    }

    fn insert(&mut self, offset: u64, len: u64, since: Duration) {
        let pieces: Vec<Piece> = self.pieces(offset, len).collect();
        for Piece { spindle, at, len } in pieces {
            self.spindles[spindle].waiting.insert(at, Waiting { len, since });
            self.dirty += len;
        }
    }

    /// Takes the range out of the cache, leaving what lies before and behind it.
    fn cut(&mut self, offset: u64, len: u64) {
        let pieces: Vec<Piece> = self.pieces(offset, len).collect();
        for Piece { spindle, at, len } in pieces {
            let waiting = &mut self.spindles[spindle].waiting;
            let end = at + len;
            let touched: Vec<(u64, Waiting)> = waiting
                .range(..end)
                .rev()
                .map(|(start, w)| (*start, *w))
                .take_while(|(start, w)| start + w.len > at)
                .collect();
            for (start, w) in touched {
                waiting.remove(&start);
                self.dirty -= w.len;
                let before = at.saturating_sub(start);
                let behind = (start + w.len).saturating_sub(end);
                for (start, len) in [(start, before), (end, behind)] {
                    if len > 0 {
                        waiting.insert(start, Waiting { len, ..w });
                        self.dirty += len;
                    }
                }
            }
        }
    }

    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let count = self.spindles.len() as u64;
        let end = offset + len;
        let mut from = offset;
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            if count == 1 {
                let piece = Piece { spindle: 0, at: from, len: end - from };
                from = end;
                return Some(piece);
            }
            let (stripe, inside) = (from / STRIPE, from % STRIPE);
            let len = (STRIPE - inside).min(end - from);
            from += len;
            Some(Piece {
                spindle: (stripe % count) as usize,
                at: stripe / count * STRIPE + inside,
                len,
            })
        })
    }
}

impl Spindle {
    /// True if the cache holds all of the piece.
    fn holds(&self, piece: Piece) -> bool {
        let end = piece.at + piece.len;
        let mut missing = end;
        for (start, w) in self.waiting.range(..end).rev() {
            if start + w.len < missing || missing <= piece.at {
                break;
            }
            missing = *start;
        }
        missing <= piece.at
    }

    /// Takes the next cached range upwards from the head out of the cache, if the head can begin
    /// with it before `limit`: where, how long, and when it can begin.
    fn take(&mut self, limit: Duration) -> Option<(u64, u64, Duration)> {
        let next = self.waiting.range(self.head..).next().or_else(|| self.waiting.iter().next());
        let (at, w) = next.map(|(at, w)| (*at, *w))?;
        let start = w.since.max(self.free);
        if start >= limit {
            return None;
        }
        self.waiting.remove(&at);
        Some((at, w.len, start))
    }

    /// Writes to the platter. Gives the end.
    fn put(
        &mut self,
        at: u64,
        len: u64,
        start: Duration,
        span: u64,
        mechanics: &Mechanics,
    ) -> Duration {
        let going_on = at == self.head && start <= self.free;
        let way = if going_on { Duration::ZERO } else { mechanics.way(self.head, at, span) };
        self.transfer(at, len, start, way, mechanics)
    }

    fn transfer(
        &mut self,
        at: u64,
        len: u64,
        start: Duration,
        way: Duration,
        mechanics: &Mechanics,
    ) -> Duration {
        self.free = start.max(self.free) + way + mechanics.media.time(len);
        self.head = at + len;
        self.free
    }
}

impl Mechanics {
    /// Time until the head can transfer at `to`.
    fn way(&self, from: u64, to: u64, span: u64) -> Duration {
        self.seek_time(from.abs_diff(to), span) + Duration::from_secs(60) / self.rpm.max(1) / 2
    }

    fn seek_time(&self, distance: u64, span: u64) -> Duration {
        if distance < NEAR {
            return Duration::ZERO;
        }
        let shortest = self.seek / 10;
        let longest = shortest + (self.seek - shortest) * 15 / 8;
        // The root of the fraction in units of 1/65536.
        let root = ((u128::from(distance.min(span)) << 32) / u128::from(span)).isqrt() as u32;
        shortest + (longest - shortest) * root / 65536
    }
}
