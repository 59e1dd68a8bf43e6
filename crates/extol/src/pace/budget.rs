//! How much may wait in the device's cache, decided from what flushes cost. Pure: numbers in,
//! numbers out.

/// The first guess: what a SATA disk writes in some 20 ms, an SSD in 10.
const FIRST: u64 = 8 << 20;
/// Below this the writer would wait for flushes most of the time.
const LEAST: u64 = 1 << 20;
/// More than this in a few milliseconds is memory, not a device.
const MOST: u64 = 64 << 20;
/// A flush of no more than this shows what flushing costs by itself.
const LITTLE: u64 = 256 << 10;
/// A flush may always take so long: less is not worth a slower writer.
const LEAST_GOAL_NS: u64 = 2_000_000;
/// The cost of a flush by itself follows what is measured by this part.
const FOLLOWS: u64 = 8;

/// Bytes that may be written to the device and not be flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    bytes: u64,
    /// What a flush with little to write takes; 0: not known.
    alone_ns: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: FIRST, alone_ns: 0 }
    }
}

impl Budget {
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// How long a flush may take: twice of what it takes alone.
    fn goal_ns(self) -> u64 {
        self.alone_ns.saturating_mul(2).max(LEAST_GOAL_NS)
    }

    /// A flush took so long, with so many bytes written since the one before.
    pub(crate) fn flushed(&mut self, bytes: u64, took_ns: u64) {
        if bytes <= LITTLE {
            if self.alone_ns == 0 {
                self.alone_ns = took_ns;
            }
            // One that was held up by something else does not say much.
            let took = took_ns.min(self.alone_ns.saturating_mul(4)).max(1);
            self.alone_ns = self.alone_ns - self.alone_ns / FOLLOWS + took.div_ceil(FOLLOWS);
        } else if bytes >= self.bytes / 2 {
            let goal = self.goal_ns();
            let next = if took_ns > goal {
                let fits = u128::from(self.bytes) * u128::from(goal) / u128::from(took_ns.max(1));
                // By half at most: it may have been one slow flush.
                u64::try_from(fits).unwrap_or(u64::MAX).max(self.bytes / 2)
            } else {
                self.bytes + self.bytes / 8
            };
            self.bytes = next.clamp(LEAST, MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that writes `rate` bytes in a millisecond, and whose flushes take `alone_ns`
    /// besides.
    fn settle(rate: u64, alone_ns: u64) -> Budget {
        let mut budget = Budget::default();
        for _ in 0..200 {
            budget.flushed(4096, alone_ns);
            budget.flushed(budget.bytes(), alone_ns + budget.bytes() * 1_000_000 / rate);
        }
        budget
    }

    #[test]
    fn a_flush_takes_twice_as_long_as_alone_or_two_milliseconds() {
        for (rate, alone_ns, expected) in [
            // 500 MB/s and 0.4 ms: 1.6 ms remain for data.
            (500_000, 400_000, 800_000..1_200_000),
            (2_000_000, 400_000, 2_400_000..4_000_000),
            // A network disk, 4 ms: another 4 ms.
            (500_000, 4_000_000, 1_500_000..2_500_000),
        ] {
            let bytes = settle(rate, alone_ns).bytes();
            let expected = expected.start.max(LEAST)..expected.end.max(LEAST + 1);
            assert!(expected.contains(&bytes), "{rate} {alone_ns}: {bytes}");
        }
        assert_eq!(settle(50_000, 400_000).bytes(), LEAST, "a slow device");
        assert_eq!(settle(1 << 40, 1000).bytes(), MOST, "memory");
    }

    #[test]
    fn flushes_of_part_of_the_budget_say_nothing_about_it() {
        let mut budget = Budget::default();
        budget.flushed(FIRST / 4, 1);
        budget.flushed(FIRST / 4, 1_000_000_000);
        assert_eq!(budget.bytes(), FIRST);
    }

    #[test]
    fn one_slow_flush_does_not_spoil_it() {
        let mut budget = settle(500_000, 4_000_000);
        let (bytes, goal) = (budget.bytes(), budget.goal_ns());
        budget.flushed(4096, 1_000_000_000);
        assert!(budget.goal_ns() < goal * 3 / 2);
        budget.flushed(bytes, 1_000_000_000);
        assert!(budget.bytes() >= bytes / 2);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut budget = Budget::default();
        for took in [0, 1, u64::MAX] {
            for bytes in [0, 1, u64::MAX] {
                budget.flushed(bytes, took);
                assert!((LEAST..=MOST).contains(&budget.bytes()));
            }
        }
    }
}
