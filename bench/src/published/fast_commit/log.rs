//! How many bytes of log one fsync needs: read from the journal's counters before the change and
//! after the fsync, one at a time, so nothing is shared and nothing is estimated. On memory: times
//! do not matter here.

use extol_devices::DeviceStats;
use serde::Serialize;
use serde_json::json;

use super::{FEATURE, FastCommit, OFF, Part, Steps};
use crate::contender::{Contender, Session};
use crate::report::{Cell, Goal, Report, Table};
use crate::target::Target;
use crate::{BenchError, Result};

/// What most fsyncs of a small new file may write to the log.
const BLOCK: u64 = 4096;
/// The part of them that must.
const SHARE: f64 = 0.8;
/// Mean of the log's bytes with fast commits, as a part of that without.
const LOG_PART: f64 = 0.25;

/// A change that is made durable; the number is how often it was made before.
type Change = fn(&dyn Target, u64) -> std::io::Result<()>;

/// Name and change. The first is the one that the goals are about.
const CHANGES: [(&str, Change); 7] = [
    ("new file of 4 KiB, fsync", |t, n| {
        let file = t.create(&format!("new/{n}"))?;
        file.write_at(&[b'n'; 4096], 0)?;
        file.sync(false)
    }),
    ("append 4 KiB, fsync", |t, n| {
        let file = if n == 0 { t.create("grows")? } else { t.open("grows")? };
        file.write_at(&[b'a'; 4096], n * 4096)?;
        file.sync(false)
    }),
    ("overwrite 4 KiB, fsync", |t, n| {
        let file = if n == 0 { t.create("stays")? } else { t.open("stays")? };
        file.write_at(&[b'o'; 4096], 0)?;
        file.sync(false)
    }),
    ("overwrite 4 KiB, fdatasync", |t, n| {
        let file = if n == 0 { t.create("data")? } else { t.open("data")? };
        file.write_at(&[b'o'; 4096], 0)?;
        file.sync(true)
    }),
    ("new file, fsync, rename over the old one, fsync of the directory", |t, _| {
        let file = t.create("safe/new")?;
        file.write_at(&[b's'; 4096], 0)?;
        file.sync(false)?;
        t.rename("safe/new", "safe/old")?;
        t.sync_dir("safe")
    }),
    ("new file of 4 KiB, fsync of the directory", |t, n| {
        t.create(&format!("names/{n}"))?.write_at(&[b'd'; 4096], 0)?;
        t.sync_dir("names")
    }),
    ("new directory, fsync of its parent", |t, n| {
        t.create_dir(&format!("dirs/{n}"))?;
        t.sync_dir("dirs")
    }),
];

/// What all repetitions of one change cost.
#[derive(Clone, Debug, Serialize)]
struct Costs {
    /// Log bytes: mean, percentiles, the most.
    mean: f64,
    p50: u64,
    p99: u64,
    max: u64,
    /// Part of them with at most one block.
    one_block: f64,
    /// Per change.
    flushes: f64,
    /// Per change.
    durable_writes: f64,
    /// Bytes written to the device per change, data and home writes too.
    device_bytes: f64,
}

impl Costs {
    fn of(mut log_bytes: Vec<u64>, before: DeviceStats, after: DeviceStats) -> Option<Self> {
        log_bytes.sort_unstable();
        let n = log_bytes.len();
        let max = *log_bytes.last()?;
        let per = |grown: u64| grown as f64 / n as f64;
        // The smallest that so many of 100 do not exceed.
        let at = |percent: usize| log_bytes[(n * percent).div_ceil(100).max(1) - 1];
        Some(Self {
            mean: per(log_bytes.iter().sum()),
            p50: at(50),
            p99: at(99),
            max,
            one_block: per(log_bytes.iter().filter(|b| **b <= BLOCK).count() as u64),
            flushes: per(after.flushes - before.flushes),
            durable_writes: per(after.fua_writes - before.fua_writes),
            device_bytes: per(after.write_bytes - before.write_bytes),
        })
    }
}

impl FastCommit {
    pub(super) fn log(
        &self,
        report: &mut Report,
        steps: &mut Steps<'_>,
    ) -> Result<serde_json::Value> {
        let Some(medium) = self.media_of(Part::Log)?.into_iter().next() else {
            return Err(BenchError("no medium".into()));
        };
        let conduct = self.conduct.on(&medium);
        let mut volume = conduct.volume.clone();
        volume.features.push(FEATURE.into());
        let mut sides = Vec::new();
        for options in [OFF, FEATURE] {
            steps.one(format!("log bytes per fsync: {options}"));
            let session =
                Session::start(&Contender::Library(options.into()), &conduct.place, &volume)?;
            sides.push(self.measure(&session)?);
            session.finish()?;
        }
        let mut table = Table::new(
            "log bytes of one change, one thread",
            &[
                "change",
                "side",
                "mean",
                "p50",
                "p99",
                "max",
                "at most 4 KiB %",
                "flushes",
                "FUA",
                "bytes",
                "/ nofast",
            ],
        );
        let mut results = Vec::new();
        for (n, (change, _)) in CHANGES.iter().enumerate() {
            let [without, with] = [&sides[0][n], &sides[1][n]];
            let part = with.mean / without.mean;
            for (side, costs) in [(OFF, without), (FEATURE, with)] {
                let is_goal = n == 0 && side == FEATURE;
                table.row(vec![
                    (*change).into(),
                    side.into(),
                    Cell::number(costs.mean, 0),
                    Cell::number(costs.p50 as f64, 0),
                    Cell::number(costs.p99 as f64, 0),
                    Cell::number(costs.max as f64, 0),
                    Cell::number(costs.one_block * 100.0, 1)
                        .missed_if(is_goal && costs.one_block <= SHARE),
                    Cell::number(costs.flushes, 2),
                    Cell::number(costs.durable_writes, 2),
                    Cell::number(costs.device_bytes, 0),
                    Cell::number((side == FEATURE).then_some(part), 3)
                        .missed_if(is_goal && part > LOG_PART),
                ]);
            }
            if n == 0 {
                let what = "new file of 4 KiB: part of fsyncs with at most 4 KiB of log";
                report.goals.push(Goal::at_least(what, with.one_block, SHARE));
                let what = "new file of 4 KiB: mean log bytes per fsync, with / without";
                report.goals.push(Goal::at_most(what, part, LOG_PART));
            }
            results.push(json!({ "change": change, OFF: without, FEATURE: with }));
        }
        report.tables.push(table);
        Ok(results.into())
    }

    /// All changes, one after the other, on one volume.
    fn measure(&self, session: &Session) -> Result<Vec<Costs>> {
        let target = &**session.target();
        let nothing = || BenchError("no counters: only a volume in this process has them".into());
        let failed = |e: std::io::Error| BenchError(e.to_string());
        let written = || {
            let stats = session.volume().ok_or_else(nothing)?.stats();
            let fast = &stats.journal.fast_commit;
            Ok(u64::from(stats.block_size)
                * (stats.journal.logged_blocks + fast.blocks + fast.cleared))
        };
        for dir in ["new", "safe", "names", "dirs"] {
            target.create_dir(dir).map_err(failed)?;
        }
        // The commit that makes the directories durable is not counted.
        target.sync().map_err(failed)?;
        CHANGES
            .iter()
            .map(|(_, change)| {
                let device = session.device_stats().ok_or_else(nothing)?;
                let mut log_bytes = Vec::new();
                let mut last: u64 = written()?;
                for n in 0..self.syncs {
                    if self.conduct.limits.cancel.is_set() {
                        return Err(BenchError("interrupted".into()));
                    }
                    change(target, n).map_err(failed)?;
                    let now = written()?;
                    log_bytes.push(now - last);
                    last = now;
                }
                let after = session.device_stats().ok_or_else(nothing)?;
                Costs::of(log_bytes, device, after)
                    .ok_or_else(|| BenchError("no change was made".into()))
            })
            .collect()
    }
}
