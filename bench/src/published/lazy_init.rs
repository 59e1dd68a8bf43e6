//! `lazy-init`: PostMark while inode tables are zeroed, with the published parameters.
//!
//! Baseline is a lazily made volume with `noinit_itable`; N = 10, 5 and 2 are pauses between two
//! groups, in units of the time that one group takes; the load begins when the first group is done.
//! A last contender has `init_itable` on a volume where nothing is left to do. The medium looks as
//! if it had been used before (it reads as old bytes, not as zeros), so that zeroing is work.
//! Beside it the time of `mkfs` for a sparse image of 1 TiB is taken.

use std::time::{Duration, Instant};

use clap::Args;
use extol::mkfs::{MkfsOptions, mkfs};
use extol_block::{FileDevice, OpenOptions};
use serde_json::json;

use super::NOISE;
use super::fsync_batching::Backend;
use crate::contender::{Medium, Place, Session};
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::{Spread, mean};
use crate::versus::{Benchmark, Conduct, Run, Step};
use crate::workload::{PostMark, Workload as _};
use crate::{BenchError, Result};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct LazyInit {
    /// Values of init_itable=.
    #[arg(long = "wait", value_name = "N", value_delimiter = ',', default_value = "10,5,2")]
    pub multipliers: Vec<u32>,
    /// Part of the published 50000 files and 50000 transactions.
    #[arg(long, default_value = "0.1", value_parser = scale)]
    pub scale: f64,
    /// Where Extol runs.
    #[arg(long = "target", value_name = "TARGET", default_value = "library")]
    pub backend: Backend,
    /// Leave mkfs of 1 TiB out.
    #[arg(long)]
    pub no_mkfs: bool,
    /// Emulated sata, raid, nvme, cloud or ramdisk; memory, image, or a block device (it is
    /// overwritten).
    #[arg(long, default_value = "sata", value_parser = Medium::parse)]
    pub medium: Medium,
    /// Volume and rounds; the medium is that above.
    #[arg(skip)]
    pub conduct: Conduct,
}

fn scale(text: &str) -> std::result::Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| *scale > 0.0 && *scale <= 100.0);
    scale.ok_or_else(|| "it must be above 0 and at most 100".into())
}

/// The published figures: NOPATCH, then with `noinititable`, MULT=10, 5 and 2.
const PUBLISHED: [(&str, [f64; 5]); 13] = [
    ("Total_duration", [130.00, 130.00, 132.40, 137.20, 148.40]),
    ("Duration_of_transactions", [77.80, 77.40, 80.80, 84.60, 95.00]),
    ("Transactions/s", [642.73, 646.15, 618.82, 591.04, 526.38]),
    ("Files_created/s", [575.15, 575.15, 564.67, 544.96, 503.78]),
    ("Creation_alone/s", [1024.83, 1020.58, 1033.17, 1021.09, 1004.24]),
    ("Creation_mixed_with_transaction/s", [318.29, 319.99, 306.45, 292.69, 260.67]),
    ("Read/s", [321.03, 322.74, 309.09, 295.21, 262.92]),
    ("Append/s", [321.69, 323.40, 309.72, 295.81, 263.45]),
    ("Deleted/s", [575.15, 575.15, 564.67, 544.96, 503.78]),
    ("Deletion_alone/s", [1015.03, 1010.82, 1023.29, 1014.00, 994.64]),
    ("Deletion_mixed_with_transaction/s", [324.44, 326.16, 312.37, 298.34, 265.71]),
    ("Read_B/s", [21_179_620.40, 21_179_620.40, 20_793_522.40, 20_067_661.60, 18_551_581.20]),
    ("Write_B/s", [66_279_880.00, 66_279_880.00, 65_071_617.60, 62_800_096.00, 58_055_650.40]),
];

/// Where a multiplier's column is, and how many groups were zeroed.
const COLUMNS: [(u32, usize, u64); 3] = [(10, 2, 156), (5, 3, 324), (2, 4, 748)];

/// The published cost at N = 10, of the total duration.
const COST: f64 = 0.0185;
/// mkfs of 1 TiB, in seconds.
const MKFS: f64 = 1.0;

/// The first group is zeroed sooner than this.
const FIRST: Duration = Duration::from_secs(10);

const ZEROED: &str = "/lazy_init/groups_zeroed_now";

struct Column {
    name: String,
    multiplier: Option<u32>,
    runs: Vec<Run>,
}

impl Column {
    fn figures(&self, name: &str) -> Vec<f64> {
        self.runs.iter().filter_map(|r| r.outcome.figure(name)).collect()
    }

    /// The mean of the changes, and the half of the range in which it lies with 95 % certainty.
    fn mean_change(&self, base: &Self) -> Option<(f64, f64)> {
        let name = "Total_duration";
        let (ours, theirs) = (self.figures(name), base.figures(name));
        mean(ours.iter().zip(&theirs).map(|(a, b)| a / b - 1.0))
    }

    fn median(&self, name: &str) -> Option<f64> {
        Spread::of(self.figures(name)).map(|s| s.median)
    }

    /// Change against the baseline, as a part, round by round.
    fn change(&self, base: &Self, name: &str) -> Option<Spread> {
        Spread::of_ratios(&self.figures(name), &base.figures(name)).map(|s| Spread {
            median: s.median - 1.0,
            min: s.min - 1.0,
            max: s.max - 1.0,
        })
    }

    /// Groups zeroed while the load ran.
    fn zeroed(&self) -> Option<f64> {
        Spread::of(self.runs.iter().filter_map(|r| Some(r.grown(ZEROED)? as f64))).map(|s| s.median)
    }

    fn counter(&self, pointer: &str) -> Option<f64> {
        Spread::of(self.runs.iter().filter_map(|r| Some(r.after.counter(pointer)? as f64)))
            .map(|s| s.median)
    }
}

impl Benchmark for LazyInit {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.place.medium = self.medium.clone();
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let load = self.load();
        let mut report = Report::new("lazy-init");
        report.set("load", load.settings());
        self.conduct.describe(&mut report);
        report.set("published", "Lukas Czerner, \"Lazy itable initialization for Ext4\", v2, 2010");
        let mut columns = vec![Column::new("noinit_itable".into(), None)];
        for n in &self.multipliers {
            columns.push(Column::new(format!("init_itable={n}"), Some(*n)));
        }
        columns.push(Column::new("nothing to do".into(), None));
        let last = columns.len() - 1;
        let total =
            u64::from(self.conduct.rounds) * columns.len() as u64 + u64::from(!self.no_mkfs);
        let mut done = 0;
        // The medium rests before the load while the first group is waited for: as long with all.
        let rest = std::cell::Cell::new(FIRST / 4);
        for round in 0..self.conduct.rounds {
            // None is always the first, or always follows the same one.
            let mut order: Vec<usize> = (0..=last).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for n in order {
                let column = &mut columns[n];
                progress(&Step {
                    done,
                    total,
                    what: format!("round {}: {}", round + 1, column.name),
                });
                let mut conduct = self.conduct.clone();
                conduct.volume.stale = true;
                conduct.volume.lazy = n != last;
                let options = if n == last { "init_itable" } else { &column.name };
                let works = column.multiplier.is_some();
                let ready = |session: &Session| {
                    if !works {
                        return self.rest(rest.get());
                    }
                    let began = Instant::now();
                    self.wait_for_the_first(session)?;
                    rest.set(began.elapsed());
                    Ok(())
                };
                column.runs.push(conduct.run_when(&self.backend.with(options), &load, &ready)?);
                done += 1;
            }
        }
        let seconds = if !self.no_mkfs {
            progress(&Step { done, total, what: "mkfs of 1 TiB".into() });
            Some(mkfs_of_a_tebibyte(&self.conduct.place)?)
        } else {
            None
        };
        Self::describe(&mut report, &columns, seconds);
        Ok(report)
    }
}

impl LazyInit {
    /// The first group is zeroed a random time after the mount; a short load must not be over by
    /// then.
    fn wait_for_the_first(&self, session: &Session) -> Result<()> {
        let end = Instant::now() + FIRST;
        while session.reading().counter(ZEROED) == Some(0) && Instant::now() < end {
            self.rest(Duration::from_millis(20))?;
        }
        // Else the run would show what nothing costs.
        match session.reading().counter(ZEROED) {
            Some(1..) => Ok(()),
            _ => Err(BenchError(format!("no inode table was zeroed in {} s", FIRST.as_secs()))),
        }
    }

    fn rest(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            if self.conduct.limits.cancel.is_set() {
                return Err(BenchError("interrupted".into()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn load(&self) -> PostMark {
        let scaled = |n: f64| (n * self.scale).ceil().max(1.0) as u64;
        PostMark {
            number: scaled(50_000.0),
            transactions: scaled(50_000.0),
            size: (1000, 200_000),
            read: 4096,
            write: 4096,
            ..PostMark::default()
        }
    }

    fn describe(report: &mut Report, columns: &[Column], mkfs_seconds: Option<f64>) {
        let base = &columns[0];
        let mut summary = Table::new(
            "cost of zeroing",
            &[
                "",
                "groups zeroed",
                "groups in all",
                "published groups",
                "published total s",
                "published cost %",
                "total s",
                "cost %",
                "min",
                "max",
                "mean %",
                "±",
                "transactions/s",
                "change %",
            ],
        );
        let percent = |part: Option<f64>| Cell::number(part.map(|p| p * 100.0), 2);
        for column in columns {
            let seed = COLUMNS.iter().find(|c| Some(c.0) == column.multiplier);
            let seed_total = seed.map(|s| PUBLISHED[0].1[s.1]);
            let cost = column.change(base, "Total_duration");
            let mean = column.mean_change(base).filter(|_| column.name != base.name);
            let missed = column.multiplier == Some(10) && cost.is_some_and(|c| c.median > COST);
            summary.row(vec![
                column.name.as_str().into(),
                Cell::number(column.zeroed(), 0),
                Cell::number(column.counter("/lazy_init/groups_total"), 0),
                Cell::number(seed.map(|s| s.2 as f64), 0),
                Cell::number(seed_total, 1),
                percent(seed_total.map(|t| t / PUBLISHED[0].1[0] - 1.0)),
                Cell::number(column.median("Total_duration"), 2),
                percent(cost.map(|c| c.median)).missed_if(missed),
                percent(cost.map(|c| c.min)),
                percent(cost.map(|c| c.max)),
                percent(mean.map(|m| m.0)),
                percent(mean.map(|m| m.1)),
                Cell::number(column.median("Transactions/s"), 1),
                percent(column.change(base, "Transactions/s").map(|c| c.median)),
            ]);
            if let Some(cost) = cost.filter(|_| column.multiplier == Some(10)) {
                let what = "N = 10: cost as a part of the total duration (published: 0.0185)";
                report.goals.push(Goal::at_most(what, cost.median, COST));
                if let Some((_, error)) = mean {
                    let what = "N = 10: error of the mean cost; with more --rounds it is smaller";
                    report.goals.push(Goal::at_most(what, error, COST));
                }
            }
            if let Some(cost) = cost.filter(|_| column.name == "nothing to do") {
                let what = "nothing to do: cost as a part of the total duration";
                report.goals.push(Goal::at_most(what, cost.median, NOISE));
            }
        }
        if let Some(seconds) = mkfs_seconds {
            report.goals.push(Goal::at_most("mkfs of 1 TiB, sparse, in seconds", seconds, MKFS));
        }
        report.tables.push(summary);
        for column in columns.iter().filter(|c| c.multiplier.is_some()) {
            report.tables.push(Self::postmark_table(base, column));
        }
        report.results = json!({
            "mkfs_1tib_s": mkfs_seconds,
            "columns": columns.iter().map(|c| json!({
                "name": c.name,
                "groups_zeroed": c.zeroed(),
                "cost": c.change(base, "Total_duration"),
                "mean_cost": c.mean_change(base),
                "figures": PUBLISHED.iter().map(|(name, _)| (*name, Spread::of(c.figures(name)))).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        });
        let cost = |of: &dyn Fn(&Column) -> Option<f64>| columns.iter().map(of).collect();
        report.charts.push(Chart {
            title: "total duration, more than with noinit_itable".into(),
            x: "options".into(),
            y: "longer by, in per cent".into(),
            places: columns.iter().map(|c| c.name.clone()).collect(),
            series: vec![
                ("Extol".into(), cost(&|c| Some(c.change(base, "Total_duration")?.median * 100.0))),
                (
                    "published".into(),
                    cost(&|c| {
                        let seed = COLUMNS.iter().find(|s| Some(s.0) == c.multiplier)?;
                        Some((PUBLISHED[0].1[seed.1] / PUBLISHED[0].1[0] - 1.0) * 100.0)
                    }),
                ),
            ],
            log: false,
        });
    }

    /// The table as it was published, with our columns.
    fn postmark_table(base: &Column, column: &Column) -> Table {
        let seed = COLUMNS.iter().find(|c| Some(c.0) == column.multiplier).map(|c| c.1);
        let mut table = Table::new(
            column.name.as_str(),
            &[
                "Type",
                "published NOPATCH",
                "MULT",
                "DIFF %",
                "noinit_itable",
                &column.name,
                "diff %",
            ],
        );
        for (name, values) in PUBLISHED {
            let theirs = seed.map(|at| values[at]);
            table.row(vec![
                name.into(),
                Cell::number(values[0], 2),
                Cell::number(theirs, 2),
                Cell::number(theirs.map(|t| (t / values[0] - 1.0) * 100.0), 2),
                Cell::number(base.median(name), 2),
                Cell::number(column.median(name), 2),
                Cell::number(column.change(base, name).map(|c| c.median * 100.0), 2),
            ]);
        }
        table
    }
}

impl Column {
    fn new(name: String, multiplier: Option<u32>) -> Self {
        Self { name, multiplier, runs: Vec::new() }
    }
}

/// Seconds for a lazy mkfs of a new sparse file of 1 TiB.
fn mkfs_of_a_tebibyte(place: &Place) -> Result<f64> {
    let path = place.dir.join(format!("extol-bench-{}-1t.img", std::process::id()));
    let made = || {
        let began = Instant::now();
        let device = FileDevice::open(&path, &OpenOptions::read_write().create_size(1 << 40))
            .map_err(|e| BenchError(format!("{}: {e}", path.display())))?;
        let mut options = MkfsOptions::default();
        options.extended.lazy_itable_init = Some(true);
        options.extended.lazy_journal_init = true;
        mkfs(&device, &options, &mut |_| {})
            .map_err(|e| BenchError(format!("mkfs of 1 TiB: {e}")))?;
        Ok(began.elapsed().as_secs_f64())
    };
    let result = made();
    let _ = std::fs::remove_file(&path);
    result
}
