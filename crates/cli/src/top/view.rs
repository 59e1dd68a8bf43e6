//! The data of the dashboard: the newest counters, rates, and the rates of the last minutes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use extol::Stats;
use extol_task::Distribution;

use crate::stat::Rates;

/// Rates kept for the curves.
const HISTORY: usize = 240;
/// Periods that the keys choose from.
const PERIODS: [u64; 8] = [100, 200, 500, 1000, 2000, 5000, 10_000, 60_000];

/// The state of the dashboard.
#[derive(Debug)]
pub struct View {
    dir: String,
    period: Duration,
    paused: bool,
    last: Option<(Instant, Stats)>,
    /// Durable requests of the last period.
    recent_syncs: Distribution,
    rates: Rates,
    commits: VecDeque<u64>,
    syncs: VecDeque<u64>,
    home: VecDeque<u64>,
}

impl View {
    /// A mount on `dir`, sampled every `seconds`.
    pub fn new(dir: &str, seconds: f64) -> Self {
        Self {
            dir: extol_vfs::plain(dir).into_owned(),
            period: Duration::from_secs_f64(seconds.clamp(0.1, 3600.0)),
            paused: false,
            last: None,
            recent_syncs: Distribution::default(),
            rates: Rates::default(),
            commits: VecDeque::new(),
            syncs: VecDeque::new(),
            home: VecDeque::new(),
        }
    }

    /// Adds a sample.
    pub fn feed(&mut self, now: Instant, stats: Stats) {
        if let Some((then, before)) = &self.last {
            let seconds = now.saturating_duration_since(*then).as_secs_f64();
            self.rates = Rates::between(before, &stats, seconds);
            let (a, b) = (&before.journal.distributions, &stats.journal.distributions);
            self.recent_syncs = since(&a.sync_wait_ns, &b.sync_wait_ns);
            let add = |curve: &mut VecDeque<u64>, rate: f64| {
                if curve.len() == HISTORY {
                    curve.pop_front();
                }
                curve.push_back(rate.round() as u64);
            };
            add(&mut self.commits, self.rates.commits);
            add(&mut self.syncs, self.rates.syncs);
            add(&mut self.home, self.rates.home_blocks);
        }
        self.last = Some((now, stats));
    }

    pub fn dir(&self) -> &str {
        &self.dir
    }

    pub fn stats(&self) -> Option<&Stats> {
        self.last.as_ref().map(|(_, stats)| stats)
    }

    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// Latency of durable requests since the sample before; percentiles are powers of two.
    pub fn recent_syncs(&self) -> &Distribution {
        &self.recent_syncs
    }

    /// The newest rates of commits, durable requests, and blocks written home, at most `width` of
    /// them.
    pub fn curves(&self, width: usize) -> [Vec<u64>; 3] {
        [&self.commits, &self.syncs, &self.home]
            .map(|curve| curve.iter().skip(curve.len().saturating_sub(width)).copied().collect())
    }

    pub fn period(&self) -> Duration {
        self.period
    }

    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Pauses, or goes on.
    pub fn pause(&mut self) {
        self.paused = !self.paused;
    }

    /// Samples more often.
    pub fn faster(&mut self) {
        let shorter =
            PERIODS.iter().rev().map(|ms| Duration::from_millis(*ms)).find(|p| *p < self.period);
        self.period = shorter.unwrap_or(self.period);
    }

    /// Samples less often.
    pub fn slower(&mut self) {
        let longer = PERIODS.iter().map(|ms| Duration::from_millis(*ms)).find(|p| *p > self.period);
        self.period = longer.unwrap_or(self.period);
    }
}

/// The part of a distribution between two samples, as exact as its powers of two.
fn since(before: &Distribution, after: &Distribution) -> Distribution {
    let buckets: Vec<(u64, u64)> = after
        .buckets
        .iter()
        .map(|(le, n)| {
            let old = before.buckets.iter().find(|(other, _)| other == le).map_or(0, |(_, n)| *n);
            (*le, n.saturating_sub(old))
        })
        .filter(|(_, n)| *n > 0)
        .collect();
    let count: u64 = buckets.iter().map(|(_, n)| n).sum();
    let at = |parts: u64| {
        let rank = (u128::from(count) * u128::from(parts)).div_ceil(1000) as u64;
        let mut seen = 0;
        let found = buckets.iter().find(|(_, n)| {
            seen += n;
            seen >= rank
        });
        found.map_or(0, |(le, _)| *le)
    };
    Distribution {
        count,
        sum: after.sum.saturating_sub(before.sum),
        p50: at(500),
        p90: at(900),
        p99: at(990),
        p999: at(999),
        max: at(1000),
        buckets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_between_two_samples() {
        let histogram = extol_task::Histogram::default();
        histogram.record(1_000_000);
        let before = histogram.distribution();
        assert_eq!(since(&before, &before), Distribution { sum: 0, ..Distribution::default() });
        for _ in 0..99 {
            histogram.record(100);
        }
        histogram.record(3000);
        let recent = since(&before, &histogram.distribution());
        assert_eq!((recent.count, recent.p50, recent.p99, recent.max), (100, 128, 128, 4096));
    }

    #[test]
    fn periods() {
        let mut view = View::new("/mnt", 1.0);
        view.slower();
        assert_eq!(view.period(), Duration::from_secs(2));
        for _ in 0..20 {
            view.faster();
        }
        assert_eq!(view.period(), Duration::from_millis(100));
        for _ in 0..20 {
            view.slower();
        }
        assert_eq!(view.period(), Duration::from_secs(60));
    }
}
