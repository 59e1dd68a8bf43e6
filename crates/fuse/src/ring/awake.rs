//! Keeping processors awake for a thread that asks alone.
//!
//! A thread that asks for one thing after another (`tar`, `rm -r`, a mail program) sleeps until
//! each reply. The reply wakes it, and where another processor is idle the scheduler takes it
//! there. But an idle processor has been halted, and waking it takes several times as long as the
//! request: on a virtual machine 50 us in place of 14. So while somebody asks alone, *pollers* run
//! on the processor where it asks and on the one where it was before, from which it came and to
//! which it mostly goes: threads of the policy SCHED_IDLE that do nothing but give way. The
//! scheduler counts such a processor as idle, but it has not been halted.
//!
//! ```text
//!           a streak: ENOUGH chunks of CHUNK requests of one thread, and no chunk of another's between
//!    off ────────────────────────────────────────────────────────────────────────────────────────────► on
//!     ▲                                                                                                 │
//!     ╰──────────── a request of another thread, or none at all for as long as `halt_poll` says ────────╯
//! ```
//!
//! With two threads that ask there is nobody to be woken on an idle processor, and pollers would
//! only take time from them and from all that works for them (a dbench of two clients did two
//! thirds of what it does without). Whatever happens here is a matter of time alone.
//!
//! 1. A mount without requests does not poll: the last poll is `halt_poll` after the last request
//!    ([`decide`]).
//! 2. A streak is of one thread ([`Streak::after`]). One that ends has to be earned again.
//! 3. A poller that did not get its processor back at once rests, so it takes no more than a glance
//!    per [`REST`] from others ([`decide`]).
//! 4. Pollers keep nothing of the mount, and end with it ([`Awake::end`]).
//!
//! Each queue counts its own requests, on its own processor; what all share is read with each
//! request and written with each chunk.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use super::processor::{OTHERS, Seat};

/// Requests of one thread in a row at one queue that are told to all.
const CHUNK: u32 = 32;
/// Such chunks in a row until it counts as alone: more than are made while another waits for a disk
/// once.
const ENOUGH: u32 = 8;
/// How long a poller leaves a processor alone that others want: with 0.2 ms an fsync's commit was
/// slower, with 1 ms nothing is lost.
const REST: Duration = Duration::from_millis(1);

/// How many chunks of requests a thread has made while nobody else made one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Streak {
    asker: u32,
    chunks: u32,
}

impl Streak {
    fn unpack(word: u64) -> Self {
        let (asker, chunks) = halves(word);
        Self { asker, chunks }
    }

    fn pack(self) -> u64 {
        both(self.asker, self.chunks)
    }

    fn is_on(self) -> bool {
        self.chunks >= ENOUGH
    }

    /// After a request of `asker`, its `many`th in a row at a queue. (Not every one is told of that
    /// ends others' chunks: two askers with a queue each are known by their chunks.)
    fn after(self, asker: u32, many: u32) -> Self {
        let mine = self.asker == asker;
        match self.is_on() {
            true if mine => self,
            true => Self { asker, chunks: 0 },
            false if many == 0 || !many.is_multiple_of(CHUNK) => self,
            false => Self { asker, chunks: if mine { self.chunks + 1 } else { 1 } },
        }
    }
}

/// The queue at which the asker is, and the one at which it was before, after it has asked `here`.
fn places(word: u64, here: u32) -> (u32, u32) {
    let (last, before) = halves(word);
    if last == here { (here, before) } else { (here, last) }
}

/// Two numbers that change together.
fn both(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// What a poller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    GiveWay,
    Rest,
    Sleep,
}

/// Decides, from how long there has been no request and how long giving way took the last time.
fn decide(on: bool, silence: Duration, took: Duration, span: Duration) -> Step {
    if !on || silence >= span {
        Step::Sleep
    } else if took > OTHERS {
        Step::Rest
    } else {
        Step::GiveWay
    }
}

/// A mount's; without queues, nobody polls.
#[derive(Debug, Default)]
pub(super) struct Awake(Arc<State>);

#[derive(Debug, Default)]
struct State {
    span: Duration,
    all: CpuSet,
    /// A [`Streak`].
    streak: AtomicU64,
    /// Requests while a streak was on.
    beats: AtomicU32,
    /// Where its asker was meanwhile ([`places`]).
    places: AtomicU64,
    over: AtomicBool,
    seats: Vec<Processor>,
}

/// A queue's processor. (A line of its own for each: it is written with each request.)
#[derive(Debug, Default)]
#[repr(align(128))]
struct Processor {
    /// Who asked last, and how often in a row.
    asker: AtomicU32,
    many: AtomicU32,
    /// Its poller sleeps until it is called.
    asleep: AtomicBool,
    /// `None` inside: there is none to be had.
    poller: OnceLock<Option<Thread>>,
}

impl Processor {
    /// A request of `asker`: how many it is in a row.
    fn count(&self, asker: u32) -> u32 {
        // Threads of one queue may do this at the same moment; then a number is wrong, and a streak
        // takes longer or less long.
        let many = match self.asker.load(Ordering::Relaxed) == asker {
            true => self.many.load(Ordering::Relaxed).wrapping_add(1),
            false => 1,
        };
        self.asker.store(asker, Ordering::Relaxed);
        self.many.store(many, Ordering::Relaxed);
        many
    }
}

impl Awake {
    /// For so many queues. Pollers poll for `span` after a request; with zero, never.
    pub(super) fn new(queues: usize, span: Duration, all: CpuSet) -> Self {
        let queues = if span.is_zero() { 0 } else { queues };
        let seats = (0..queues).map(|_| Processor::default()).collect();
        Self(Arc::new(State { span, all, seats, ..State::default() }))
    }

    /// A thread has asked at a queue (0: nobody is known to have, as when the kernel writes back).
    pub(super) fn asked(&self, number: usize, asker: u32) {
        let state = &*self.0;
        let Some(seat) = state.seats.get(number).filter(|_| asker != 0) else { return };
        let many = seat.count(asker);
        let word = state.streak.load(Ordering::Relaxed);
        let streak = Streak::unpack(word).after(asker, many);
        if streak.pack() != word {
            state.streak.store(streak.pack(), Ordering::Relaxed);
        }
        if streak.is_on() {
            state.beats.fetch_add(1, Ordering::Relaxed);
            let word = state.places.load(Ordering::Relaxed);
            let (here, before) = places(word, number as u32);
            if both(here, before) != word {
                state.places.store(both(here, before), Ordering::Relaxed);
            }
            self.call(number);
            self.call(before as usize);
        }
    }

    /// The poller of a queue's processor polls, if there can be one.
    fn call(&self, number: usize) {
        let Some(seat) = self.0.seats.get(number) else { return };
        let poller = seat.poller.get_or_init(|| start(&self.0, number));
        if seat.asleep.load(Ordering::Relaxed)
            && seat.asleep.swap(false, Ordering::SeqCst)
            && let Some(poller) = poller
        {
            poller.unpark();
        }
    }

    /// The mount has ended.
    pub(super) fn end(&self) {
        self.0.over.store(true, Ordering::SeqCst);
        for poller in self.0.seats.iter().filter_map(|seat| seat.poller.get()).flatten() {
            poller.unpark();
        }
    }
}

/// Starts the poller of a processor; `None` if there can be none.
fn start(state: &Arc<State>, number: usize) -> Option<Thread> {
    if number >= CpuSet::MAX_CPU || !state.all.is_set(number) {
        return None;
    }
    let mine = Arc::clone(state);
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let poller = thread::Builder::new().name(format!("fuse-poll{number}")).spawn(move || {
        // With any other policy it would take as much as those for whom it is there.
        if set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle).is_ok() {
            let _ = Seat::take(number, &mine.all);
            mine.poll(number);
        }
    });
    poller.ok().map(|poller| poller.thread().clone())
}

impl State {
    /// Nobody has asked for a while: a streak that is on is over.
    fn silent(&self, word: u64) {
        let streak = Streak::unpack(word);
        if streak.is_on() {
            let over = Streak { chunks: 0, ..streak }.pack();
            let _ = self.streak.compare_exchange(word, over, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn poll(&self, number: usize) {
        let seat = &self.seats[number];
        let mut beats = self.beats.load(Ordering::Relaxed);
        let mut since = Instant::now();
        let (mut now, mut took) = (since, Duration::ZERO);
        while !self.over.load(Ordering::SeqCst) {
            let streak = self.streak.load(Ordering::Relaxed);
            let latest = self.beats.load(Ordering::Relaxed);
            if latest != beats {
                (beats, since) = (latest, now);
            }
            match decide(Streak::unpack(streak).is_on(), now - since, took, self.span) {
                Step::GiveWay => thread::yield_now(),
                Step::Rest => {
                    thread::sleep(REST);
                    // What came meanwhile counts as if it had come at the end.
                    now = Instant::now();
                }
                Step::Sleep => {
                    self.silent(streak);
                    seat.asleep.store(true, Ordering::SeqCst);
                    while seat.asleep.load(Ordering::SeqCst) && !self.over.load(Ordering::SeqCst) {
                        thread::park();
                    }
                    now = Instant::now();
                    since = now;
                }
            }
            let before = std::mem::replace(&mut now, Instant::now());
            took = now - before;
        }
    }
}

#[cfg(test)]
mod tests;
