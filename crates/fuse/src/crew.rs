//! Who reads requests: as few workers as keep the processors busy, however many requests are on
//! their way.
//!
//! The kernel hands requests to waiting readers in turn. With many readers every request wakes
//! another, cold thread, and most of the time of a small request goes into switching threads. So
//! only [`wanted`](Crew::new) workers are *active*: they read, or work on something that should be
//! over at once. A worker that is going to wait (for a device, a commit, a thaw), or works for
//! others who do not ([`answer`](crate::answer)), *leaves* the active ones; where that, or the next
//! request, leaves nobody to read, another is called. When it is done, it comes back if there is
//! room, and sleeps if there is none.
//!
//! ```text
//!            take a request                    done
//!   reading ────────────────► working ───────────────────► reading          these are active
//!                                │ will wait, or took long
//!                                ▼             done, room
//!                              away ─────────────────────► reading
//!                                │ done, no room
//!                                ▼             called
//!                             asleep ────────────────────► reading
//! ```
//!
//! 1. Never more than `wanted` are active ([`step`]: `Back` and `Call` look).
//! 2. If nobody reads, either `wanted` workers are active and working, or somebody is being called,
//!    or nobody is to be had ([`Event::CallFailed`]); in the last case whoever is done reads
//!    ([`step`]).
//! 3. A worker that should be done at once and is not counts as away: somebody looks after a while
//!    (`worker::tend`), so what a request waits for never keeps others from being read for long.
//!
//! Both numbers are in one word, so that a decision is about one moment; there is no lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many are active, and how many of those read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Roll {
    active: u32,
    reading: u32,
}

impl Roll {
    fn pack(self) -> u64 {
        u64::from(self.active) << 32 | u64::from(self.reading)
    }

    fn unpack(word: u64) -> Self {
        Self { active: (word >> 32) as u32, reading: word as u32 }
    }
}

/// What happens to one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// It has read a request that should be over at once.
    Take,
    /// It has read a request for which it is going to wait.
    TakeAndLeave,
    /// It is going to wait after all, or takes long.
    Leave,
    /// It waits longer, being away already.
    Wait,
    /// It is done, and was active.
    Done,
    /// It is done, and was away.
    Back,
    /// The worker that was to be called cannot be had.
    CallFailed,
}

/// What to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Fine,
    /// Nobody reads now, and nobody needs to for a moment.
    Unread,
    /// Call another worker, who already counts as one that reads.
    Call,
    /// Sleep until called.
    Sleep,
}

/// Decides: how many there are afterwards, and what is to be done.
fn step(wanted: u32, mut now: Roll, event: Event) -> (Roll, Verdict) {
    match event {
        Event::Take => now.reading -= 1,
        Event::TakeAndLeave | Event::CallFailed => {
            now.reading -= 1;
            now.active -= 1;
        }
        Event::Leave => now.active -= 1,
        Event::Wait => {}
        Event::Done => now.reading += 1,
        Event::Back if now.active >= wanted => return (now, Verdict::Sleep),
        Event::Back => {
            now.active += 1;
            now.reading += 1;
        }
    }
    if now.reading > 0 || event == Event::CallFailed {
        return (now, Verdict::Fine);
    }
    if now.active >= wanted {
        return (now, Verdict::Unread);
    }
    (Roll { active: now.active + 1, reading: 1 }, Verdict::Call)
}

/// The numbers, and what changes them.
#[derive(Debug)]
pub(crate) struct Crew {
    roll: AtomicU64,
    wanted: u32,
}

impl Crew {
    /// `wanted` active workers at most, of whom `first` begin to read.
    pub(crate) fn new(wanted: u32, first: u32) -> Self {
        let roll = Roll { active: first, reading: first };
        Self { roll: AtomicU64::new(roll.pack()), wanted: wanted.max(first) }
    }

    fn happen(&self, event: Event) -> Verdict {
        let mut word = self.roll.load(Ordering::SeqCst);
        loop {
            let (roll, verdict) = step(self.wanted, Roll::unpack(word), event);
            match self.roll.compare_exchange_weak(
                word,
                roll.pack(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return verdict,
                Err(other) => word = other,
            }
        }
    }

    /// A reader has a request, and leaves the active ones if it will wait.
    pub(crate) fn take(&self, leaves: bool) -> Verdict {
        self.happen(if leaves { Event::TakeAndLeave } else { Event::Take })
    }

    /// A worker that was active is going to wait.
    pub(crate) fn leave(&self) -> Verdict {
        self.happen(Event::Leave)
    }

    /// A worker that is away goes on waiting: is there somebody who reads?
    pub(crate) fn wait(&self) -> Verdict {
        self.happen(Event::Wait)
    }

    /// An active worker is done and reads again.
    pub(crate) fn done(&self) {
        self.happen(Event::Done);
    }

    /// A worker that was away is done: it reads, or sleeps.
    pub(crate) fn back(&self) -> Verdict {
        self.happen(Event::Back)
    }

    /// Nobody could be called.
    pub(crate) fn call_failed(&self) {
        self.happen(Event::CallFailed);
    }

    /// How many read.
    pub(crate) fn readers(&self) -> usize {
        Roll::unpack(self.roll.load(Ordering::SeqCst)).reading as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(crew: &Crew) -> (u32, u32) {
        let Roll { active, reading } = Roll::unpack(crew.roll.load(Ordering::SeqCst));
        (active, reading)
    }

    #[test]
    fn short_requests_wake_nobody_else() {
        let crew = Crew::new(2, 2);
        assert_eq!(crew.take(false), Verdict::Fine);
        assert_eq!(crew.take(false), Verdict::Unread);
        assert_eq!(crew.readers(), 0);
        crew.done();
        crew.done();
        assert_eq!(roll(&crew), (2, 2));
    }

    #[test]
    fn somebody_is_called_when_all_wait() {
        let crew = Crew::new(2, 2);
        // One still reads.
        assert_eq!(crew.take(true), Verdict::Fine);
        assert_eq!(roll(&crew), (1, 1));
        // That one gets a request, a short one even: now nobody would read.
        assert_eq!(crew.take(false), Verdict::Call);
        assert_eq!(roll(&crew), (2, 1));
        assert_eq!(crew.take(true), Verdict::Call);
        assert_eq!(roll(&crew), (2, 1));
        crew.done();
        assert_eq!(roll(&crew), (2, 2));
        assert_eq!(crew.back(), Verdict::Sleep);
        assert_eq!(crew.back(), Verdict::Sleep);
        assert_eq!(roll(&crew), (2, 2));
    }

    #[test]
    fn who_takes_long_is_replaced() {
        let crew = Crew::new(2, 2);
        crew.take(false);
        assert_eq!(crew.take(false), Verdict::Unread);
        assert_eq!(crew.leave(), Verdict::Call);
        assert_eq!(roll(&crew), (2, 1));
        assert_eq!(crew.leave(), Verdict::Fine);
        assert_eq!(crew.back(), Verdict::Fine, "there is room for one");
        assert_eq!(crew.back(), Verdict::Sleep);
    }

    #[test]
    fn when_nobody_can_be_had_the_next_who_is_done_reads() {
        let crew = Crew::new(2, 2);
        crew.take(true);
        assert_eq!(crew.take(true), Verdict::Call);
        crew.call_failed();
        assert_eq!(roll(&crew), (0, 0));
        assert_eq!(crew.wait(), Verdict::Call, "asked again, in case there is somebody by now");
        crew.call_failed();
        assert_eq!(crew.back(), Verdict::Fine);
        assert_eq!(roll(&crew), (1, 1));
        assert_eq!(crew.wait(), Verdict::Fine);
    }

    /// Any sequence keeps the rules: never too many active, and never nobody who reads while there
    /// is room.
    #[test]
    fn rules_hold_for_every_short_history() {
        fn explore(now: Roll, away: u32, called: u32, depth: u32) {
            let wanted = 2;
            assert!(now.active <= wanted && now.reading <= now.active);
            assert!(now.reading > 0 || now.active == wanted || called == 0);
            if depth == 0 {
                return;
            }
            let working = now.active - now.reading;
            let possible = [
                (Event::Take, now.reading > called, 0),
                (Event::TakeAndLeave, now.reading > called, 1),
                (Event::Leave, working > 0, 1),
                (Event::Done, working > 0, 0),
                (Event::Back, away > 0, -1),
                (Event::Wait, away > 0, 0),
            ];
            for (event, may, change) in possible {
                if !may {
                    continue;
                }
                let (next, verdict) = step(wanted, now, event);
                let away = away.saturating_add_signed(change);
                assert!(next.reading > 0 || next.active == wanted, "{now:?} {event:?}");
                explore(next, away, called + u32::from(verdict == Verdict::Call), depth - 1);
                if verdict == Verdict::Call {
                    let (next, _) = step(wanted, next, Event::CallFailed);
                    explore(next, away, called, depth - 1);
                }
            }
            if called > 0 {
                explore(now, away, called - 1, depth - 1);
            }
        }
        explore(Roll { active: 2, reading: 2 }, 0, 0, 8);
    }
}
