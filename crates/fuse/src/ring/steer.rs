//! Where those run who lead commits: not on the processor that has most of the requests.
//!
//! Threads that ask, the queue that answers them, and who leads their commits all take processor
//! time, and wake each other. Whoever leads is woken where the last one of these runs, and there he
//! takes turns with threads that make the next group meanwhile. So he is sent away from there:
//!
//! ```text
//!   processor 0: callers ◄──► queue 0          processor 1: who leads ◄──► device's interrupts and threads
//!                    │  fsync                        ▲
//!                    ╰────────────── group ──────────╯
//! ```
//!
//! Which processor has most is counted by the queues, and looked at when somebody is given commits
//! to lead ([`busiest`]): some hundred of them under load, or the one at hand. Others who do what
//! takes long run where there is room.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::thread::CpuSet;

use super::processor;

/// Requests between two looks.
const ENOUGH: u32 = 256;

/// Requests of a queue so far, on a line of their own: the queue's processor writes it with each.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Count(AtomicU32);

impl Count {
    pub(super) fn one_more(&self) {
        // Threads of one queue may do this at the same moment; then one is not counted.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// A mount's.
#[derive(Debug, Default)]
pub(super) struct Steer(Mutex<Look>);

/// The last look.
#[derive(Debug, Default)]
struct Look {
    /// What the queues had counted.
    counts: Vec<u32>,
    /// What came to each since then: room for it, for nothing is to be allocated where a commit
    /// waits.
    since: Vec<u32>,
    busiest: Option<usize>,
}

impl Steer {
    /// The processor to be avoided by who leads.
    pub(super) fn avoided<'a>(&self, counts: impl Iterator<Item = &'a Count>) -> Option<usize> {
        let mut look = self.0.lock();
        let Look { counts: before, since, busiest: avoided } = &mut *look;
        since.clear();
        for (n, count) in counts.enumerate() {
            if before.len() <= n {
                before.push(0);
            }
            since.push(count.0.load(Ordering::Relaxed).wrapping_sub(before[n]));
        }
        if since.iter().fold(0, |sum: u32, &n| sum.saturating_add(n)) >= ENOUGH {
            for (before, since) in before.iter_mut().zip(since.iter()) {
                *before = before.wrapping_add(*since);
            }
            *avoided = busiest(since, *avoided);
        }
        *avoided
    }
}

/// Decides which queue had most, of so many requests each. The one that had most before stays if it
/// has four fifths of that: nobody is to be sent to and fro.
fn busiest(since: &[u32], before: Option<usize>) -> Option<usize> {
    let most = (0..since.len()).max_by_key(|&n| since[n])?;
    let stays = |&n: &usize| {
        since.get(n).is_some_and(|&its| u64::from(its) * 5 >= u64::from(since[most]) * 4)
    };
    before.filter(stays).or(Some(most))
}

/// Where a thread runs that does what takes long.
#[derive(Debug)]
pub(super) struct Place {
    all: CpuSet,
    avoided: Option<usize>,
}

impl Place {
    /// Lets the calling thread run on all of these.
    pub(super) fn anywhere(all: &CpuSet) -> Self {
        processor::anywhere(all);
        Self { all: *all, avoided: None }
    }

    /// Lets it run on all but one of them, if there are others.
    pub(super) fn avoid(&mut self, avoided: Option<usize>) {
        if self.avoided == avoided {
            return;
        }
        self.avoided = avoided;
        let mut others = self.all;
        if let Some(avoided) = avoided.filter(|&n| n < CpuSet::MAX_CPU) {
            others.unset(avoided);
        }
        processor::anywhere(if others.count() > 0 { &others } else { &self.all });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn the_busiest_is_not_changed_lightly() {
        for (since, before, busiest_now) in [
            (&[][..], None, None),
            (&[0, 0], Some(1), Some(1)),
            (&[10, 30, 20], None, Some(1)),
            (&[100, 110], Some(0), Some(0)),
            (&[100, 130], Some(0), Some(1)),
            (&[u32::MAX, 1], Some(1), Some(0)),
            (&[5], Some(3), Some(0)),
        ] {
            assert_eq!(busiest(since, before), busiest_now, "{since:?} {before:?}");
        }
    }

    #[test]
    fn few_requests_decide_nothing() {
        let (steer, counts) = (Steer::default(), [Count::default(), Count::default()]);
        let ask = |number: usize, many: u32| (0..many).for_each(|_| counts[number].one_more());
        assert_eq!(steer.avoided(counts.iter()), None);
        ask(1, ENOUGH - 1);
        assert_eq!(steer.avoided(counts.iter()), None);
        ask(0, 1);
        assert_eq!(steer.avoided(counts.iter()), Some(1));
        ask(0, ENOUGH - 1);
        assert_eq!(steer.avoided(counts.iter()), Some(1), "not yet");
        ask(0, 1);
        assert_eq!(steer.avoided(counts.iter()), Some(0), "what came since the last look counts");
    }

    #[test]
    fn a_thread_avoids_one_processor_as_long_as_there_are_others() {
        std::thread::spawn(|| {
            let all = processor::allowed();
            let now = || sched_getaffinity(None).unwrap();
            let mut place = Place::anywhere(&all);
            let first = (0..CpuSet::MAX_CPU).find(|&n| all.is_set(n)).unwrap();
            place.avoid(Some(first));
            let left = all.count() - 1;
            assert_eq!(now().count(), if left > 0 { left } else { 1 });
            assert_eq!(now().is_set(first), left == 0);
            for nobody in [None, Some(CpuSet::MAX_CPU), Some(CpuSet::MAX_CPU - 1)] {
                place.avoid(nobody);
                assert_eq!(now().count(), all.count(), "{nobody:?}");
            }
            let mut alone = CpuSet::new();
            alone.set(first);
            let mut place = Place::anywhere(&alone);
            place.avoid(Some(first));
            assert_eq!((now().count(), now().is_set(first)), (1, true));
        })
        .join()
        .unwrap();
    }
}
