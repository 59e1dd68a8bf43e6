//! Looking for the next request for a moment before going to sleep for it.
//!
//! Who asks once mostly asks again at once: a file of `tar` is eleven requests, one after the
//! other. A worker that sleeps in between has to be woken for each, and its processor with it; in a
//! virtual machine that is an interrupt from one processor to another and a way out of the guest,
//! and takes several times as long as the request. So a worker looks for a next one itself for as
//! long as waking it would take, through the second descriptor, which never waits, and gives the
//! processor away after each look:
//!
//! ```text
//!   reply ─► look ─► give way ─► look ─► give way ─► … ─► FOR is over: sleep in read
//!             │          │
//!             │          └─ others had the processor meanwhile: sleep, and do not look before the next REST requests
//!             └─ a request: work
//! ```
//!
//! Where programs want all processors there is nobody to be woken, and looking would take time from
//! them: that shows in how long giving way takes. An idle mount does not look: it costs [`FOR`] at
//! most after each request.

use std::time::Duration;

/// What waking a worker takes on a virtual processor that sleeps, or a little more.
const FOR: Duration = Duration::from_micros(50);
/// Giving way takes less where nobody else wants the processor.
const OTHERS: Duration = Duration::from_micros(3);
/// Requests without a look after others wanted it.
const REST: u32 = 100;

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// A request of so many bytes.
    Found(usize),
    /// None is there.
    Nothing,
    /// None will come this way.
    Never,
}

/// One worker's.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    rest: u32,
}

impl Spin {
    /// Looks for a request for a while. `None`: the worker is to sleep until one comes.
    pub fn watch(
        &mut self,
        clock: impl Fn() -> Duration,
        mut look: impl FnMut() -> Look,
        give_way: impl FnMut(),
    ) -> Option<usize> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let look = || match look() {
            Look::Found(size) => Some(Some(size)),
            Look::Never => Some(None),
            Look::Nothing => None,
        };
        match look_around(FOR, OTHERS, clock, look, give_way) {
            Ok(found) => found,
            Err(InVain::Over) => None,
            Err(InVain::Others) => {
                self.rest = REST;
                None
            }
        }
    }
}

/// Why nothing was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InVain {
    /// The time is over.
    Over,
    /// Others wanted the processor.
    Others,
}

/// Looks for so long, giving way after each look, until there is something or giving way has taken
/// more than `others`.
pub(crate) fn look_around<T>(
    span: Duration,
    others: Duration,
    clock: impl Fn() -> Duration,
    mut look: impl FnMut() -> Option<T>,
    mut give_way: impl FnMut(),
) -> Result<T, InVain> {
    let end = clock() + span;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        let before = clock();
        if before >= end {
            return Err(InVain::Over);
        }
        give_way();
        if clock() > before + others {
            return Err(InVain::Others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Watches with these looks and with giving way taking so many nanoseconds. How it ended, and
    /// how often it looked.
    fn watch(spin: &mut Spin, looks: impl Fn(u32) -> Look, away_ns: u64) -> (Option<usize>, u32) {
        let (now, looked) = (Cell::new(0), Cell::new(0));
        let look = || {
            now.set(now.get() + 300);
            looked.set(looked.get() + 1);
            looks(looked.get())
        };
        let found =
            spin.watch(|| Duration::from_nanos(now.get()), look, || now.set(now.get() + away_ns));
        (found, looked.get())
    }

    #[test]
    fn it_finds_what_comes_soon_and_gives_up_after_a_while() {
        let mut spin = Spin::default();
        let soon = |n| if n == 20 { Look::Found(80) } else { Look::Nothing };
        assert_eq!(watch(&mut spin, soon, 400), (Some(80), 20));
        let (found, looks) = watch(&mut spin, |_| Look::Nothing, 400);
        assert_eq!(found, None);
        assert!((60..80).contains(&looks), "{looks} looks in {FOR:?}");
        assert_eq!(watch(&mut spin, soon, 400), (Some(80), 20), "it goes on with that");
    }

    #[test]
    fn it_leaves_the_processor_to_those_who_want_it() {
        let mut spin = Spin::default();
        assert_eq!(watch(&mut spin, |_| Look::Nothing, 40_000), (None, 1));
        for _ in 0..REST {
            assert_eq!(watch(&mut spin, |_| Look::Found(1), 400), (None, 0), "it rests");
        }
        assert_eq!(watch(&mut spin, |_| Look::Found(1), 400), (Some(1), 1));
    }

    #[test]
    fn it_does_not_look_where_nothing_comes() {
        assert_eq!(watch(&mut Spin::default(), |_| Look::Never, 400), (None, 1));
    }
}
