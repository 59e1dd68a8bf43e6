//! Processors: how many the kernel counts, and on which of them a queue worker runs.
//!
//! A queue worker is bound to the processor of its queue while requests are small, so that a
//! request wakes no other processor. While they are large it may run anywhere: all write-back of a
//! file system usually comes from one processor, which should not make all the copies.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Number of processors that the machine can ever have, as the kernel writes them: `0-3`, `0,2-5`.
pub(crate) fn processors() -> io::Result<usize> {
    let unknown = || io::Error::other("cannot tell how many processors there are");
    let list = extol_proc::read("/sys/devices/system/cpu/possible").ok_or_else(unknown)?;
    std::str::from_utf8(&list).ok().and_then(|list| count(list.trim())).ok_or_else(unknown)
}

/// Number of processors in a list. Queues are numbered without holes, so a list with holes is as
/// good as none.
fn count(list: &str) -> Option<usize> {
    let last: usize = match list.split_once('-') {
        Some(("0", last)) => last.parse().ok()?,
        None if list == "0" => 0,
        _ => return None,
    };
    last.checked_add(1)
}

/// Where a queue worker runs.
#[derive(Debug)]
pub(super) struct Affinity {
    own: Option<CpuSet>,
    all: CpuSet,
    bound: bool,
}

impl Affinity {
    /// Binds the calling thread to processor `number`, if that is among those that it may use.
    pub(super) fn to(number: usize) -> Self {
        let all = sched_getaffinity(None).unwrap_or_default();
        let mut own = CpuSet::new();
        let own = (number < CpuSet::MAX_CPU && all.is_set(number)).then(|| {
            own.set(number);
            own
        });
        let mut affinity = Self { own, all, bound: false };
        affinity.settle(false);
        affinity
    }

    /// Leaves the processor after a large request, and comes back after a small one.
    pub(super) fn settle(&mut self, large: bool) {
        let Some(own) = &self.own else { return };
        if self.bound == large {
            // A processor that is switched off cannot be had; the next attempt is at the next
            // change.
            let _ = sched_setaffinity(None, if large { &self.all } else { own });
            self.bound = !large;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, number) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-255", Some(256)), ("", None), ("0,2-3", None)]
        {
            assert_eq!(count(list), number, "{list}");
        }
        assert!(processors().unwrap() > 0);
    }

    #[test]
    fn a_worker_keeps_its_processor_while_requests_are_small() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|&n| all.is_set(n)).unwrap();
            let mut affinity = Affinity::to(first);
            for (large, count) in [(false, 1), (true, all.count()), (true, all.count()), (false, 1)]
            {
                affinity.settle(large);
                let now = sched_getaffinity(None).unwrap();
                assert_eq!((now.count(), now.is_set(first)), (count, true));
            }
            // Not one that the process may use.
            let _ = Affinity::to(CpuSet::MAX_CPU);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }
}
