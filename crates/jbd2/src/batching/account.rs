//! What waits for others cost those who waited, and what they saved those who came.
//!
//! [`Judge`](super::judge::Judge) compares how many requests are served per second. Where threads
//! sync seldom that says little: what they do between two fsyncs decides it, and chance. But each
//! single wait can be reckoned up:
//!
//! ```text
//!   gather   1st ──w──┐ commit │          n were there at first: each of them loses w
//!            2nd   ───┘ commit │          j came meanwhile: each of them saves what was left
//!   at once  1st commit │                  of the commit that it would have met, c - w
//!            2nd   ─────│ commit │
//! ```
//!
//! A wait at whose end nobody came is all loss. If the last ones together cost more than twice what
//! they saved, nobody waits for a number of commits; that number doubles while it stays so. (Up to
//! twice, as whoever comes late is back late, too, and meets the other again: in simulation waits
//! still pay then.) Where the whole crowd is soon back, as in storms of fsyncs, n is 1, j all the
//! others, and w short, so that this never says no.

/// Waits that count: each one makes those before it weigh less, by one part in so many.
const MEMORY: u64 = 8;
/// Waits after which there is an opinion.
const ENOUGH: u32 = 8;
/// Commits without a wait, at first and at most.
const REST: u32 = 32;
const REST_MOST: u32 = 512;

#[derive(Debug)]
pub(crate) struct Account {
    cost_ns: u64,
    saved_ns: u64,
    waits: u32,
    /// Commits for which nobody waits any more, and how many it will be next time.
    rest: u32,
    next_rest: u32,
    /// Size of the crowd that this was learned with.
    crowd: u32,
}

/// One wait that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub ns: u64,
    /// Requests at its beginning, and who joined them.
    pub before: u32,
    pub joined: u32,
    /// What a commit takes.
    pub commit_ns: u64,
}

impl Default for Account {
    fn default() -> Self {
        Self { cost_ns: 0, saved_ns: 0, waits: 0, rest: 0, next_rest: REST, crowd: 0 }
    }
}

impl Account {
    /// Waits are not worth it at present.
    pub fn rests(&self) -> bool {
        self.rest > 0
    }

    /// Somebody has waited for others.
    pub fn waited(&mut self, w: Waited) {
        let fade = |sum: u64| sum - sum / MEMORY;
        self.cost_ns = fade(self.cost_ns).saturating_add(w.ns.saturating_mul(w.before.into()));
        let left = w.commit_ns.saturating_sub(w.ns);
        self.saved_ns = fade(self.saved_ns).saturating_add(left.saturating_mul(w.joined.into()));
        self.waits += 1;
        if self.waits < ENOUGH {
            return;
        }
        if self.saved_ns < self.cost_ns / 2 {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).min(REST_MOST);
            (self.cost_ns, self.saved_ns, self.waits) = (0, 0, 0);
        } else {
            self.next_rest = REST;
        }
    }

    /// A commit ended, and so many sync.
    pub fn ended(&mut self, crowd: u32) {
        self.rest = self.rest.saturating_sub(1);
        let far = |a: u32, b: u32| a > b.saturating_mul(3);
        if far(crowd, self.crowd) || far(self.crowd, crowd) {
            // Others than those that it was learned with.
            *self = Self { crowd, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: u64 = 1_000_000;

    fn wait(ns: u64, before: u32, joined: u32) -> Waited {
        Waited { ns, before, joined, commit_ns: COMMIT }
    }

    fn of(crowd: u32) -> Account {
        let mut account = Account::default();
        account.ended(crowd);
        account
    }

    /// Commits until there are waits again.
    fn rest(account: &mut Account, crowd: u32) -> u32 {
        let mut commits = 0;
        while account.rests() {
            account.ended(crowd);
            commits += 1;
        }
        commits
    }

    #[test]
    fn where_all_are_soon_back_it_never_says_no() {
        for (ns, before, joined) in
            [(COMMIT / 5, 1, 7), (COMMIT * 3 / 4, 1, 31), (COMMIT / 2, 2, 6), (COMMIT / 2, 1, 1)]
        {
            let mut account = of(before + joined);
            for _ in 0..1000 {
                account.waited(wait(ns, before, joined));
                account.ended(before + joined);
                assert!(!account.rests(), "{ns} ns, {joined} came");
            }
        }
    }

    #[test]
    fn who_waits_for_nobody_does_so_less_and_less() {
        let mut account = of(2);
        let mut rests = Vec::new();
        for _ in 0..6 {
            for n in 1..=ENOUGH {
                assert!(!account.rests(), "after {n}");
                account.waited(wait(COMMIT, 1, 0));
            }
            rests.push(rest(&mut account, 2));
        }
        assert_eq!(rests, [32, 64, 128, 256, 512, 512]);
    }

    /// Every second one meets the other, in the middle of its wait: a quarter of a commit saved,
    /// three quarters lost.
    #[test]
    fn chance_is_not_enough() {
        let mut account = of(2);
        for _ in 0..ENOUGH / 2 {
            account.waited(wait(COMMIT, 1, 0));
            account.waited(wait(COMMIT / 2, 1, 1));
        }
        assert!(account.rests());
    }

    #[test]
    fn what_pays_again_is_learned_anew() {
        let mut account = of(2);
        for _ in 0..3 {
            (0..ENOUGH).for_each(|_| account.waited(wait(COMMIT, 1, 0)));
            rest(&mut account, 2);
        }
        (0..ENOUGH).for_each(|_| account.waited(wait(COMMIT / 10, 1, 1)));
        assert!(!account.rests());
        // It takes some until the good ones are forgotten; then the rest is a short one.
        let bad = (1..100).find(|_| {
            account.waited(wait(COMMIT, 1, 0));
            account.rests()
        });
        assert!(bad.is_some_and(|n| n > 1), "{bad:?}");
        assert_eq!(rest(&mut account, 2), REST);
    }

    #[test]
    fn another_crowd_is_another_matter() {
        let mut account = of(2);
        (0..ENOUGH).for_each(|_| account.waited(wait(COMMIT, 1, 0)));
        account.ended(6);
        assert!(account.rests(), "nearly the same");
        account.ended(7);
        assert!(!account.rests());
    }

    #[test]
    fn times_out_of_all_reason() {
        let mut account = of(2);
        (0..20).for_each(|_| account.waited(wait(u64::MAX, u32::MAX, u32::MAX)));
        assert!(account.rests());
    }
}
