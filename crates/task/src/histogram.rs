//! A histogram that many threads fill at once, for the percentiles of waiting times and batch
//! sizes.
//!
//! Values fall into buckets of about 6 % width: each power of two is divided into sixteen parts.
//! Recording takes a few atomic additions and no lock, so every handle and every fsync can be
//! recorded. Zeros are the most frequent value (no wait at all), so they are counted in a
//! [`Tally`]. A reader does not stop the writers: the counts of two buckets may be a few records
//! apart.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::Tally;

/// Each power of two is divided into this many buckets.
const PARTS: usize = 16;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Values below `PARTS` have a bucket each; then `PARTS` buckets for each of the other powers of
/// two.
const BUCKETS: usize = PARTS + (64 - PART_BITS as usize) * PARTS;

/// Counts of values, by size.
pub struct Histogram {
    zeros: Tally,
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("max", &self.max).finish_non_exhaustive()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            zeros: Tally::default(),
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

fn bucket_of(value: u64) -> usize {
    let bits = 63 - (value | 1).leading_zeros();
    match bits.checked_sub(PART_BITS) {
        None => value as usize,
        Some(shift) => ((shift as usize + 1) << PART_BITS) + (value >> shift) as usize - PARTS,
    }
}

/// The largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let shift = (bucket >> PART_BITS) - 1;
    let first = ((bucket & (PARTS - 1)) + PARTS) as u64;
    (first << shift) + ((1 << shift) - 1)
}

impl Histogram {
    /// Counts a value.
    pub fn record(&self, value: u64) {
        if value == 0 {
            self.zeros.add();
            return;
        }
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    /// What was recorded so far.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let mut counts: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        if let Some(zeros) = counts.first_mut() {
            *zeros += self.zeros.total();
        }
        let count = counts.iter().sum();
        let max = self.max.load(Ordering::Relaxed);
        let at = |parts_of_10000: u64| {
            // The smallest value that is not exceeded by so large a part of the records.
            let rank = (u128::from(count) * u128::from(parts_of_10000)).div_ceil(10_000) as u64;
            let mut seen = 0;
            counts
                .iter()
                .position(|n| {
                    seen += n;
                    seen >= rank.max(1)
                })
                .map_or(0, |bucket| upper_bound(bucket).min(max))
        };
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for (bucket, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let power = upper_bound(bucket).checked_next_power_of_two().unwrap_or(u64::MAX);
            match buckets.last_mut() {
                Some((le, total)) if *le == power => *total += n,
                _ => buckets.push((power, *n)),
            }
        }
        Distribution {
            count,
            sum: self.sum.load(Ordering::Relaxed),
            p50: at(5_000),
            p90: at(9_000),
            p99: at(9_900),
            p999: at(9_990),
            max,
            buckets,
        }
    }
}

/// The contents of a [`Histogram`] at one time. Percentiles are exact to 6 %, in the unit that was
/// recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Median.
    pub p50: u64,
    /// Nine of ten are at most this.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// Counts by powers of two: (at most this, how many); empty ones are left out.
    pub buckets: Vec<(u64, u64)>,
}

impl Distribution {
    /// The mean, 0 if nothing was recorded.
    #[must_use]
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        let mut last = None;
        for bucket in 0..BUCKETS {
            let upper = upper_bound(bucket);
            assert_eq!(bucket_of(upper), bucket, "upper bound {upper}");
            let lower = last.map_or(0, |l: u64| l + 1);
            assert_eq!(bucket_of(lower), bucket, "lower bound {lower}");
            assert!(upper - lower <= lower / 15, "{lower}..={upper} is too wide");
            last = Some(upper);
        }
        assert_eq!(last, Some(u64::MAX));
    }

    #[test]
    fn percentiles() {
        let h = Histogram::default();
        assert_eq!(h.distribution(), Distribution::default());
        for value in 1..=1000 {
            h.record(value);
        }
        let d = h.distribution();
        assert_eq!((d.count, d.sum, d.max, d.mean()), (1000, 500_500, 1000, 500));
        for (got, want) in [(d.p50, 500), (d.p90, 900), (d.p99, 990), (d.p999, 999)] {
            assert!(got >= want && got <= want + want / 15, "{got} for {want}");
        }
        assert_eq!(d.buckets.iter().map(|b| b.1).sum::<u64>(), 1000);
        assert_eq!(
            d.buckets.iter().map(|b| b.0).collect::<Vec<_>>(),
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
        );
        h.record(u64::MAX);
        assert_eq!(h.distribution().max, u64::MAX);
    }
}
