//! `fsync-batching`: `fs_mark -s 4096 -n 2000 -D 64 -t THREADS` with each policy of group commit,
//! on each medium.
//!
//! The policies take turns within a round, on fresh volumes. A cell ends by time and not by number,
//! so that a slow medium with few threads does not take for ever; rates are per second anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::NOISE;
use crate::contender::{Contender, Medium};
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::subject::SubjectKind;
use crate::versus::{Benchmark, Conduct, Run, Step, Summary, note_late};
use crate::workload::{FsMark, Op, Workload as _, positive, seconds};
use crate::{BenchError, Result};

/// Where Extol runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// In this process.
    Library,
    /// As a mount.
    Mount,
}

impl Backend {
    /// Extol with these mount options.
    #[must_use]
    pub fn with(self, options: &str) -> Contender {
        match self {
            Self::Library => Contender::Library(options.into()),
            Self::Mount => Contender::Mounted(SubjectKind::Extol, options.into()),
        }
    }
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct FsyncBatching {
    /// Media: emulated sata, raid, ramdisk, cloud, nvme; memory, image, or a block device (it is
    /// overwritten).
    #[arg(
        long = "profile",
        value_name = "MEDIUM",
        value_delimiter = ',',
        default_value = "sata,raid,ramdisk,cloud,nvme",
        value_parser = Medium::parse
    )]
    pub media: Vec<Medium>,
    /// Numbers of threads.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64",
        value_parser = positive::<u32>
    )]
    pub threads: Vec<u32>,
    /// Policies.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,static,adaptive",
        value_parser = ["none", "static", "adaptive"]
    )]
    pub policies: Vec<String>,
    /// Others that take part: kernel, fuse2fs, library (each with :OPTIONS), or a directory.
    #[arg(long = "peer", value_name = "TARGET", value_parser = Contender::parse)]
    pub peers: Vec<Contender>,
    /// Seconds per run.
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    /// Volume and rounds; the medium is set for each.
    #[arg(skip)]
    pub conduct: Conduct,
}

/// Medium, threads, files/s with the patch and without it.
const PUBLISHED: [(&str, u32, f64, f64); 15] = [
    ("sata", 2, 24.6, 26.3),
    ("sata", 4, 49.2, 48.1),
    ("sata", 8, 70.1, 67.0),
    ("sata", 16, 104.0, 94.1),
    ("sata", 32, 153.6, 142.7),
    ("raid", 2, 246.4, 222.0),
    ("raid", 4, 480.0, 440.8),
    ("raid", 8, 829.5, 730.8),
    ("raid", 16, 1172.7, 1026.9),
    ("raid", 32, 1816.3, 1650.5),
    ("ramdisk", 2, 2538.3, 1745.6),
    ("ramdisk", 4, 2942.3, 661.9),
    ("ramdisk", 8, 2882.5, 999.8),
    ("ramdisk", 16, 2738.7, 1801.9),
    ("ramdisk", 32, 2541.9, 2394.0),
];

/// What the static policy was beaten by on a ramdisk with four threads.
const RAMDISK_GAIN: f64 = 4.4;

fn published(medium: &str, threads: u32) -> Option<(f64, f64)> {
    PUBLISHED.iter().find(|p| p.0 == medium && p.1 == threads).map(|p| (p.2, p.3))
}

/// All runs of one medium with one number of threads, in the order of the contenders.
struct Row {
    threads: u32,
    runs: Vec<Vec<Run>>,
}

impl Row {
    fn rates(&self, contender: usize) -> Vec<f64> {
        self.runs[contender].iter().map(|r| r.outcome.rate()).collect()
    }

    fn median(&self, contender: usize) -> Option<f64> {
        Spread::of(self.rates(contender)).map(|s| s.median)
    }

    /// `ours` against `theirs`, round by round.
    fn ratio(&self, ours: Option<usize>, theirs: Option<usize>) -> Option<f64> {
        Spread::of_ratios(&self.rates(ours?), &self.rates(theirs?)).map(|s| s.median)
    }

    /// `ours` against the best of the other policies.
    fn to_best_other(&self, ours: Option<usize>, policies: usize) -> Option<f64> {
        let others = (0..policies).filter(|n| Some(*n) != ours).map(|n| self.rates(n));
        smallest_ratio(&self.rates(ours?), others)
    }
}

/// The smallest of the ratios to `others`, round by round. (The policy with the highest median may
/// be `ours`, although another one is quicker in most rounds: so it is not looked for by medians.)
fn smallest_ratio(ours: &[f64], others: impl Iterator<Item = Vec<f64>>) -> Option<f64> {
    let ratios = others.filter_map(|other| Spread::of_ratios(ours, &other));
    ratios.map(|spread| spread.median).min_by(f64::total_cmp)
}

impl Benchmark for FsyncBatching {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.limits.time = Some(self.seconds);
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        if self.policies.is_empty() || self.threads.is_empty() || self.media.is_empty() {
            return Err(BenchError(
                "give at least one medium, one policy and one number of threads".into(),
            ));
        }
        let mut contenders: Vec<Contender> = self
            .policies
            .iter()
            .map(|p| Contender::Library(format!("fsync_batching={p}")))
            .collect();
        contenders.extend(self.peers.iter().cloned());
        let mut report = Report::new("fsync-batching");
        report.set("load", self.load(0).settings().replace("-t 0", "-t THREADS"));
        self.conduct.describe(&mut report);
        report.setting.retain(|(name, _)| name != "medium");
        let names: Vec<String> = self.media.iter().map(Medium::to_string).collect();
        report.set("media", names.join(", "));
        report.set(
            "published",
            "Josef Bacik, \"jbd: improve fsync batching\", 8 January 2009 (raid: Apple Xserve)",
        );

        let per_cell = u64::from(self.conduct.rounds) * contenders.len() as u64;
        let total = per_cell * (self.media.len() * self.threads.len()) as u64;
        let mut done = 0;
        let mut results = BTreeMap::new();
        for medium in &self.media {
            let conduct = self.conduct.on(medium);
            let mut rows = Vec::new();
            for threads in &self.threads {
                let mut told = |step: &Step| {
                    let what = format!("{medium}, {threads} threads: {}", step.what);
                    progress(&Step { done: done + step.done, total, what });
                };
                let runs = conduct.take_turns(&contenders, &self.load(*threads), &mut told)?;
                done += per_cell;
                rows.push(Row { threads: *threads, runs });
            }
            let json: Vec<_> = rows
                .iter()
                .map(|row| {
                    let summaries = contenders
                        .iter()
                        .zip(&row.runs)
                        .map(|(c, r)| Summary::of(c.name(), r, &row.runs[0]))
                        .collect::<Vec<_>>();
                    json!({ "threads": row.threads, "contenders": summaries })
                })
                .collect();
            results.insert(medium.to_string(), json);
            self.describe_medium(&mut report, medium, &contenders, &rows);
        }
        report.results = json!({ "media": results });
        Ok(report)
    }
}

impl FsyncBatching {
    fn load(&self, threads: u32) -> FsMark {
        FsMark { threads, size: 4096, files: 2000, dirs: 64, keep: true, ..FsMark::default() }
    }

    /// Where a policy is among the contenders.
    fn policy(&self, name: &str) -> Option<usize> {
        self.policies.iter().position(|p| p == name)
    }

    fn describe_medium(
        &self,
        report: &mut Report,
        medium: &Medium,
        contenders: &[Contender],
        rows: &[Row],
    ) {
        let key = medium.key();
        let mut columns = vec![
            "threads".to_owned(),
            "published without".into(),
            "with".into(),
            "with/without".into(),
        ];
        columns.extend(self.policies.iter().cloned());
        columns.extend(["adaptive/best other".into(), "adaptive/static".into()]);
        columns.extend(self.peers.iter().map(Contender::name));
        columns.extend(self.peers.iter().map(|p| format!("adaptive/{}", p.name())));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(format!("{medium}: files/s"), &columns);
        let mut details = Table::new(
            format!("{medium}: latency of fsync in us, and cost of one file"),
            &[
                "threads",
                "policy",
                "p50",
                "p99",
                "p99.9",
                "max",
                "transactions",
                "flushes",
                "bytes",
                "CPU us",
            ],
        );
        let (adaptive, fixed) = (self.policy("adaptive"), self.policy("static"));
        let mut deepest_dip = f64::INFINITY;
        let mut previous: Option<f64> = None;
        for row in rows {
            let seed = published(key, row.threads);
            let ratio = row.to_best_other(adaptive, self.policies.len());
            let rate = adaptive.and_then(|a| row.median(a));
            let dip = rate.zip(previous).map(|(now, before)| now / before);
            previous = rate;
            deepest_dip = deepest_dip.min(dip.unwrap_or(f64::INFINITY));
            let gain = row.ratio(adaptive, fixed);
            let wanted = (key == "ramdisk" && row.threads == 4).then_some(RAMDISK_GAIN);
            let mut cells = vec![
                Cell::number(f64::from(row.threads), 0),
                Cell::number(seed.map(|s| s.1), 1),
                Cell::number(seed.map(|s| s.0), 1),
                Cell::number(seed.map(|s| s.0 / s.1), 2),
            ];
            for policy in 0..self.policies.len() {
                let dips = Some(policy) == adaptive && dip.is_some_and(|d| d < 1.0 - NOISE);
                cells.push(Cell::number(row.median(policy), 1).missed_if(dips));
            }
            cells.push(Cell::number(ratio, 3));
            cells.push(
                Cell::number(gain, 2).missed_if(gain.zip(wanted).is_some_and(|(g, w)| g < w)),
            );
            let peers = self.policies.len()..contenders.len();
            cells.extend(peers.clone().map(|p| Cell::number(row.median(p), 1)));
            cells.extend(peers.map(|p| Cell::number(row.ratio(adaptive, Some(p)), 2)));
            table.row(cells);
            if let Some((gain, wanted)) = gain.zip(wanted) {
                let what = "ramdisk, 4 threads: adaptive / static (published: 2942.3 / 661.9)";
                report.goals.push(Goal::at_least(what, gain, wanted));
            }
            for (contender, runs) in contenders.iter().zip(&row.runs) {
                let s = Summary::of(contender.name(), runs, &row.runs[0]);
                let fsync = s.latency.iter().find(|t| t.op == Op::Fsync);
                details.row(vec![
                    Cell::number(f64::from(row.threads), 0),
                    s.name.trim_start_matches("library:fsync_batching=").into(),
                    Cell::micros(fsync.map(|t| t.p50_ns)),
                    Cell::micros(fsync.map(|t| t.p99_ns)),
                    Cell::micros(fsync.map(|t| t.p999_ns)),
                    Cell::micros(fsync.map(|t| t.max_ns)),
                    Cell::number(s.per_unit.transactions, 3),
                    Cell::number(s.per_unit.flushes, 3),
                    Cell::number(s.per_unit.device_bytes, 0),
                    Cell::number(s.per_unit.cpu_us, 1),
                ]);
            }
        }
        if deepest_dip.is_finite() {
            let what =
                format!("{medium}: adaptive against the next smaller number of threads, worst");
            report.goals.push(Goal::at_least(what, deepest_dip, 1.0 - NOISE));
        }
        note_late(
            report,
            &medium.to_string(),
            rows.iter().flat_map(|r| r.runs.iter().flatten().filter_map(|r| r.cost.late)),
        );
        report.charts.push(self.chart(medium, contenders, rows));
        report.tables.push(table);
        report.tables.push(details);
    }

    fn chart(&self, medium: &Medium, contenders: &[Contender], rows: &[Row]) -> Chart {
        let mut series: Vec<(String, Vec<Option<f64>>)> = contenders
            .iter()
            .enumerate()
            .map(|(n, c)| {
                let name = self.policies.get(n).cloned().unwrap_or_else(|| c.name());
                (name, rows.iter().map(|row| row.median(n)).collect())
            })
            .collect();
        let seed: Vec<_> = rows.iter().map(|row| published(medium.key(), row.threads)).collect();
        if seed.iter().any(Option::is_some) {
            series.push(("published with".into(), seed.iter().map(|s| s.map(|s| s.0)).collect()));
            series
                .push(("published without".into(), seed.iter().map(|s| s.map(|s| s.1)).collect()));
        }
        Chart {
            title: format!("{medium}: files per second"),
            x: "threads".into(),
            y: "files per second".into(),
            places: rows.iter().map(|r| r.threads.to_string()).collect(),
            series,
            log: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ours` has the highest median, and is slower than another one in two rounds of three.
    #[test]
    fn the_best_other_is_found_round_by_round() {
        let ours = [110.0, 97.0, 194.0];
        let others = [vec![90.0, 100.0, 200.0], vec![50.0, 50.0, 50.0]];
        assert_eq!(smallest_ratio(&ours, others.into_iter()), Some(0.97));
        assert_eq!(smallest_ratio(&ours, std::iter::empty()), None);
    }
}
