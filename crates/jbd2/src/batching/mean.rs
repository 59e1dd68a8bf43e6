//! Moving averages of times, and the quickest of the last few.

/// A moving average in which a new sample weighs `NEW` quarters; the first sample is taken as it
/// is.
///
/// jbd2 uses (new + 3 × old) / 4; the change that brought the average to ext3 used (3 × new + old)
/// / 4 under the same comment. Extol takes the first: after one commit that took ten times as long
/// as the others, it stands at 3.25 times the usual, the second at 7.75 times, and everybody would
/// wait that much longer for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mean<const NEW: u64>(u64);

/// As jbd2 averages.
pub(crate) type SlowMean = Mean<1>;

impl<const NEW: u64> Mean<NEW> {
    pub fn add(&mut self, sample: u64) {
        self.0 = match self.0 {
            0 => sample,
            old => sample.saturating_mul(NEW).saturating_add(old.saturating_mul(4 - NEW)) / 4,
        };
    }

    /// 0: nothing was measured yet.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The quickest of the last 16 to 32 samples: what a commit costs when nobody disturbs it. On a
/// busy machine the average is mostly time that the committing thread was not running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quickest {
    before: u64,
    now: u64,
    samples: u32,
}

impl Default for Quickest {
    fn default() -> Self {
        Self { before: u64::MAX, now: u64::MAX, samples: 0 }
    }
}

impl Quickest {
    const WINDOW: u32 = 16;

    pub fn add(&mut self, sample: u64) {
        if self.samples == Self::WINDOW {
            *self = Self { before: self.now, ..Self::default() };
        }
        self.now = self.now.min(sample);
        self.samples += 1;
    }

    /// The largest number there is if nothing was measured yet.
    pub fn get(self) -> u64 {
        self.before.min(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after<const NEW: u64>(samples: [u64; 3]) -> [u64; 3] {
        let mut mean = Mean::<NEW>::default();
        samples.map(|sample| {
            mean.add(sample);
            mean.get()
        })
    }

    #[test]
    fn both_formulas() {
        assert_eq!(after::<1>([100_000, 200_000, 400_000]), [100_000, 125_000, 193_750], "jbd2");
        assert_eq!(
            after::<3>([100_000, 200_000, 400_000]),
            [100_000, 175_000, 343_750],
            "ext3 in 2009"
        );
    }

    #[test]
    fn the_quickest_is_forgotten_in_time() {
        let mut quickest = Quickest::default();
        assert_eq!(quickest.get(), u64::MAX);
        quickest.add(3);
        for n in 0..31 {
            quickest.add(100 + n);
            assert_eq!(quickest.get(), 3, "{n} later");
        }
        quickest.add(500);
        assert_eq!(quickest.get(), 115, "the best of the sixteen before");
    }

    #[test]
    fn an_outlier() {
        assert_eq!(after::<1>([1000, 1000, 10_000])[2], 3250);
        assert_eq!(after::<3>([1000, 1000, 10_000])[2], 7750);
        assert!(after::<1>([1, u64::MAX, u64::MAX])[2] > 1, "no overflow");
    }
}
