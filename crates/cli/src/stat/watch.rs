//! `extol stat --watch`: samples at an interval, with rates.

use std::time::{Duration, Instant};

use extol::Stats;
use extol_cli_common::{Failure, Result, json_line, print, print_json};

use super::{Served, value};
use crate::args::StatArgs;
use crate::interrupt;

/// Interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What happened per second between two samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Operations.
    pub operations: f64,
    /// Commits.
    pub commits: f64,
    /// Fast commits.
    pub fast_commits: f64,
    /// Durable requests (fsync, syncs, synchronous writes) that were answered.
    pub syncs: f64,
    /// Blocks written to the log.
    pub logged_blocks: f64,
    /// Blocks checkpointed.
    pub home_blocks: f64,
    /// Device flushes.
    pub flushes: f64,
    /// Waits for log space.
    pub space_waits: f64,
    /// Durable requests that one commit served, on average.
    pub batch: f64,
}

impl Rates {
    /// From two samples, `seconds` apart.
    pub fn between(before: &Stats, after: &Stats, seconds: f64) -> Self {
        let (a, b) = (&before.journal, &after.journal);
        let seconds = seconds.max(1e-3);
        let per_second = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
        let (x, y) = (&a.distributions.batch_size, &b.distributions.batch_size);
        let served = y.count.saturating_sub(x.count);
        Self {
            operations: per_second(before.operations, after.operations),
            commits: per_second(a.transactions, b.transactions),
            fast_commits: per_second(a.fast_commit.commits, b.fast_commit.commits),
            syncs: per_second(
                a.distributions.sync_wait_ns.count,
                b.distributions.sync_wait_ns.count,
            ),
            logged_blocks: per_second(a.logged_blocks, b.logged_blocks),
            home_blocks: per_second(a.checkpointed_blocks, b.checkpointed_blocks),
            flushes: per_second(a.flushes, b.flushes),
            space_waits: per_second(a.space_waits, b.space_waits),
            batch: if served == 0 {
                0.0
            } else {
                y.sum.saturating_sub(x.sum) as f64 / served as f64
            },
        }
    }

    fn render(&self) -> String {
        format!(
            "per second: {:.0} operations, {:.1} commits, {:.1} fast commits, \
             {:.1} durable requests ({:.1} per commit), {:.0} blocks logged, \
             {:.0} blocks home, {:.1} flushes, {:.1} space waits\n",
            self.operations,
            self.commits,
            self.fast_commits,
            self.syncs,
            self.batch,
            self.logged_blocks,
            self.home_blocks,
            self.flushes,
            self.space_waits
        )
    }
}

/// Shows a volume every `seconds` until interrupted. With `--json`, one line per sample.
pub fn run(served: &Served, seconds: f64, args: &StatArgs) -> Result<()> {
    interrupt::catch()?;
    let period = Duration::from_secs_f64(seconds.clamp(0.1, 1e6));
    let mut last: Option<(Instant, Stats)> = None;
    while !interrupt::came() {
        let now = Instant::now();
        if args.json {
            print_json(json_line(&value(&served.json()?)?)?)?;
        } else {
            let shown = served.shown()?;
            let mut screen = String::new();
            if let Some((then, before)) = &last {
                screen.push('\n');
                screen.push_str(
                    &Rates::between(before, &shown.stats, now.duration_since(*then).as_secs_f64())
                        .render(),
                );
            }
            screen.push_str(&shown.text(args.all));
            print(screen)?;
            last = Some((now, shown.stats));
        }
        while now.elapsed() < period && !interrupt::came() {
            std::thread::sleep(POLL_INTERVAL.min(period.saturating_sub(now.elapsed())));
        }
    }
    // The end is told without a line: there is no other one.
    interrupt::check().map_err(|failure| Failure::silent(failure.code))
}
