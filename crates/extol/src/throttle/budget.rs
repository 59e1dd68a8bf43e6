//! How many bytes may wait in the device's cache, decided from how long flushes take. Pure.

/// Until a flush was timed: a guess for a SATA disk.
const FIRST: u64 = 8 << 20;
/// With less, a writer waits for flushes most of the time.
const LEAST: u64 = 1 << 20;
/// More in a few milliseconds is memory, not a device.
const MOST: u64 = 64 << 20;
/// A flush of no more bytes shows what a flush costs by itself.
const NEARLY_EMPTY: u64 = 256 << 10;
/// A shorter limit costs the writer more than it gives the fsync.
const LEAST_LIMIT_NS: u64 = 2_000_000;

/// Bytes that may be written to the device and not be flushed.
///
/// A flush of a full budget may take twice as long as an empty one. If it takes longer the budget
/// shrinks in proportion, by half at most; if not, it grows by an eighth (TH-3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    bytes: u64,
    /// Time of a nearly empty flush, averaged over about eight; 0: not known.
    empty_ns: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: FIRST, empty_ns: 0 }
    }
}

impl Budget {
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// How long a flush of a full budget may take.
    fn limit_ns(self) -> u64 {
        self.empty_ns.saturating_mul(2).max(LEAST_LIMIT_NS)
    }

    /// A flush took `took_ns`, with `bytes` written since the one before.
    pub(super) fn flushed(&mut self, bytes: u64, took_ns: u64) {
        if bytes <= NEARLY_EMPTY {
            let before = if self.empty_ns == 0 { took_ns } else { self.empty_ns };
            // A single slow flush counts little.
            let took = took_ns.min(before.saturating_mul(4)).max(1);
            self.empty_ns = before - before / 8 + took.div_ceil(8);
        } else if bytes >= self.bytes / 2 {
            let limit = self.limit_ns();
            let next = if took_ns > limit {
                let fits = u128::from(self.bytes) * u128::from(limit) / u128::from(took_ns);
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

    /// A device that writes `rate` bytes in a millisecond, and whose empty flushes take `empty_ns`.
    fn settle(rate: u64, empty_ns: u64) -> Budget {
        let mut budget = Budget::default();
        for _ in 0..200 {
            budget.flushed(4096, empty_ns);
            budget.flushed(budget.bytes(), empty_ns + budget.bytes() * 1_000_000 / rate);
        }
        budget
    }

    #[test]
    fn a_flush_takes_twice_as_long_as_an_empty_one_or_two_milliseconds() {
        for (rate, empty_ns, expected) in [
            // 500 MB/s and 0.4 ms: 1.6 ms remain for data.
            (500_000, 400_000, 800_000..1_200_000),
            (2_000_000, 400_000, 2_400_000..4_000_000),
            // A network disk, 4 ms: another 4 ms.
            (500_000, 4_000_000, 1_500_000..2_500_000),
        ] {
            let bytes = settle(rate, empty_ns).bytes();
            let expected = expected.start.max(LEAST)..expected.end.max(LEAST + 1);
            assert!(expected.contains(&bytes), "{rate} {empty_ns}: {bytes}");
        }
        assert_eq!(settle(50_000, 400_000).bytes(), LEAST, "a slow device");
        assert_eq!(settle(1 << 40, 1000).bytes(), MOST, "memory");
    }

    #[test]
    fn flushes_of_part_of_the_budget_do_not_change_it() {
        let mut budget = Budget::default();
        budget.flushed(FIRST / 4, 1);
        budget.flushed(FIRST / 4, 1_000_000_000);
        assert_eq!(budget.bytes(), FIRST);
    }

    #[test]
    fn one_slow_flush_changes_little() {
        let mut budget = settle(500_000, 4_000_000);
        let (bytes, limit) = (budget.bytes(), budget.limit_ns());
        budget.flushed(4096, 1_000_000_000);
        assert!(budget.limit_ns() < limit * 3 / 2);
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
