//! How many sync at the same time, and how soon they are back.
//!
//! No thread is told from another: behind FUSE the threads that ask are the daemon's, and which of
//! them takes a program's next request is chance. Counting needs no names. When a commit ends,
//! everybody who takes part is somewhere: served by this commit, or waiting for the next one, or at
//! work on what will be synced later. The first two are the crowd; the third come too late to wait
//! for.

use super::mean::SlowMean;

/// How many commits are looked back on. Who was still at work at the end of one is usually seen at
/// another's.
const LOOK_BACK: usize = 4;

/// The syncing threads as a mass.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    sizes: [u32; LOOK_BACK],
    next: usize,
    /// Served by the commit that ended last.
    served: u32,
    /// Requests since then.
    back: u32,
    ended_ns: u64,
    returns: SlowMean,
}

impl Crowd {
    /// The largest crowd at the end of the last few commits.
    pub fn size(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Average time from the end of a commit until a whole crowd is back with new requests.
    pub fn return_ns(&self) -> u64 {
        self.returns.get()
    }

    /// The end of the last commit.
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns
    }

    /// Somebody asks for durability.
    pub fn asked(&mut self, now_ns: u64) {
        self.back += 1;
        if self.back == self.served {
            self.took(now_ns.saturating_sub(self.ended_ns));
        }
    }

    /// A commit ended that served some, while others wait for the next one.
    pub fn ended(&mut self, now_ns: u64, served: u32, waiting: u32) {
        if self.back < self.served {
            // Not everybody came back in time: go by the pace of those who did.
            let so_far = now_ns.saturating_sub(self.ended_ns);
            let all = so_far.saturating_mul(u64::from(self.served)) / u64::from(self.back.max(1));
            self.took(all.min(so_far.saturating_mul(4)));
        }
        self.ended_ns = now_ns;
        self.served = served;
        self.back = 0;
        self.sizes[self.next] = served + waiting;
        self.next = (self.next + 1) % LOOK_BACK;
    }

    /// Until now everybody was held up by something else: how long they took to come back says
    /// nothing.
    pub fn interrupted(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
        self.served = 0;
        self.back = 0;
    }

    /// Nothing happened for so long that nobody is left.
    pub fn forget(&mut self) {
        *self = Self { ended_ns: self.ended_ns, ..Self::default() };
    }

    /// Those served last took so long; the whole crowd, at their pace, takes longer.
    fn took(&mut self, ns: u64) {
        let served = self.served.max(1);
        self.returns.add(ns.saturating_mul(u64::from(self.size().max(served))) / u64::from(served));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_a_crowd_of_one() {
        let mut crowd = Crowd::default();
        assert_eq!(crowd.size(), 0);
        for i in 0..10 {
            crowd.asked(i * 100 + 40);
            crowd.ended(i * 100 + 100, 1, 0);
            assert_eq!(crowd.size(), 1);
        }
        assert_eq!(crowd.return_ns(), 40);
    }

    #[test]
    fn alternating_groups_are_one_crowd() {
        let mut crowd = Crowd::default();
        for i in 0..10 {
            let group = if i % 2 == 0 { 3 } else { 5 };
            for _ in 0..group {
                crowd.asked(i * 100 + 10);
            }
            crowd.ended(i * 100 + 100, 8 - group, group);
        }
        assert_eq!(crowd.size(), 8);
    }

    #[test]
    fn who_left_is_forgotten() {
        let mut crowd = Crowd::default();
        crowd.ended(100, 4, 4);
        for i in 2..5 {
            crowd.ended(i * 100, 1, 0);
            assert_eq!(crowd.size(), 8);
        }
        crowd.ended(500, 1, 0);
        assert_eq!(crowd.size(), 1);
        crowd.ended(600, 2, 0);
        crowd.forget();
        assert_eq!((crowd.size(), crowd.return_ns(), crowd.ended_ns()), (0, 0, 600));
    }

    #[test]
    fn return_times() {
        let mut crowd = Crowd::default();
        crowd.ended(1000, 2, 2);
        crowd.asked(1010);
        assert_eq!(crowd.return_ns(), 0, "one of two");
        crowd.asked(1030);
        assert_eq!(crowd.return_ns(), 60, "two of four took 30");
        crowd.asked(1050);
        assert_eq!(crowd.return_ns(), 60, "each is counted once");
        let mut late = Crowd::default();
        late.ended(1000, 4, 0);
        late.asked(1100);
        late.asked(1200);
        late.ended(1300, 2, 0);
        assert_eq!(late.return_ns(), 600, "half of them took 300");
        late.ended(1400, 2, 0);
        assert_eq!(late.return_ns(), (600 * 3 + 2 * 100 * 2) / 4, "nobody came: as if one had");
    }

    #[test]
    fn who_was_held_up_is_not_slow() {
        let mut crowd = Crowd::default();
        crowd.ended(1000, 2, 2);
        crowd.asked(1010);
        crowd.interrupted(9000);
        (0..4).for_each(|_| crowd.asked(9010));
        crowd.ended(9500, 4, 0);
        assert_eq!((crowd.return_ns(), crowd.size()), (0, 4));
        (0..4).for_each(|_| crowd.asked(9520));
        assert_eq!(crowd.return_ns(), 20);
    }
}
