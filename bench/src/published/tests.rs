//! Each benchmark at its smallest, on memory: the right runs are made, and the report has what it
//! promises.

use std::time::Duration;

use super::*;
use crate::Programs;
use crate::contender::{Contender, Medium, Place, VolumeSpec};
use crate::report::Report;
use crate::versus::{Benchmark as _, Conduct, Step};
use crate::workload::options::defaults;
use crate::workload::{Limits, SyncMode};

fn conduct(dir: &std::path::Path, seconds: Option<f64>) -> Conduct {
    Conduct {
        place: Place { medium: Medium::Memory, dir: dir.into(), programs: Programs::default() },
        volume: VolumeSpec { size: 256 << 20, journal_mib: Some(4), ..VolumeSpec::default() },
        rounds: 1,
        limits: Limits { time: seconds.map(Duration::from_secs_f64), ..Limits::default() },
    }
}

/// The steps told, which must be numbered without gap, and the report.
fn told(run: impl FnOnce(&mut dyn FnMut(&Step)) -> crate::Result<Report>) -> (u64, Report) {
    let mut steps: Vec<Step> = Vec::new();
    let report = run(&mut |step| steps.push(step.clone())).unwrap();
    for (n, step) in steps.iter().enumerate() {
        assert_eq!((step.done, step.total), (n as u64, steps.len() as u64), "{}", step.what);
    }
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["bench"], report.bench.as_str());
    assert!(report.html().contains("<svg"));
    (steps.len() as u64, report)
}

fn columns(report: &Report, table: usize) -> Vec<&str> {
    report.tables[table].columns.iter().map(String::as_str).collect()
}

fn cell(report: &Report, table: usize, row: usize, column: &str) -> String {
    let at = columns(report, table).iter().position(|c| *c == column).unwrap();
    report.tables[table].rows[row][at].show()
}

#[test]
fn fsync_batching() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = FsyncBatching {
        media: vec![Medium::parse("ramdisk").unwrap(), Medium::Memory],
        threads: vec![2, 4],
        policies: ["none", "static", "adaptive"].map(str::to_owned).into(),
        peers: vec![Contender::Library("commit=30".into())],
        conduct: conduct(scratch.path(), Some(0.1)),
        ..defaults()
    };
    let (steps, report) = told(|p| bench.run(p));
    assert_eq!(steps, 2 * 2 * 4);
    for column in [
        "threads",
        "published without",
        "with",
        "none",
        "static",
        "adaptive",
        "adaptive/best other",
        "library:commit=30",
    ] {
        assert!(columns(&report, 0).contains(&column), "{column}");
    }
    assert_eq!(
        (cell(&report, 0, 1, "with"), cell(&report, 0, 1, "published without")),
        ("2942.3".into(), "661.9".into())
    );
    assert_eq!(cell(&report, 2, 1, "with"), "-", "nothing was published about memory");
    // Per medium the deepest dip, and the gain on the ramdisk.
    assert_eq!(report.goals.len(), 3);
    assert!(report.goals.iter().any(|g| g.wanted == 4.4));
    let rate = &report.results["media"]["ramdisk"][1]["contenders"][2];
    assert_eq!(rate["name"], "library:fsync_batching=adaptive");
    assert!(rate["rate"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn async_checkpoint() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = AsyncCheckpoint {
        modes: vec![SyncMode::None, SyncMode::Reverse],
        threads: 2,
        files: 5,
        conduct: conduct(scratch.path(), Some(0.05)),
        ..defaults()
    };
    let (steps, report) = told(|p| bench.run(p));
    assert_eq!(steps, 4);
    assert_eq!(cell(&report, 0, 1, "mode"), "3");
    assert_eq!(cell(&report, 0, 1, "with/without"), "1.145");
    assert_ne!(cell(&report, 1, 1, "handle start p99.9 us noasync"), "-");
    assert_ne!(cell(&report, 1, 1, "space waits noasync"), "-");
    assert!(report.goals.iter().any(|g| g.what.contains("mode 3: files/s") && g.wanted == 1.144));
    assert_eq!(report.results["modes"][1]["mode"], 3);
}

#[test]
fn checkpoint_merge() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = CheckpointMerge {
        syncs: 10,
        weights: vec![100, 20],
        throttle: Throttle::Model,
        concurrent: 8,
        writer_size: 1 << 20,
        conduct: conduct(scratch.path(), None),
        ..defaults()
    };
    let (steps, report) = told(|p| bench.run(p));
    assert_eq!(steps, 2 * 2 + 2);
    assert_eq!(
        (cell(&report, 0, 0, "published without"), cell(&report, 0, 1, "published without")),
        ("-".into(), "68".into())
    );
    let run = &report.results["weights"][1]["merge"][0];
    assert!(
        run["seconds"].as_f64().unwrap() > 0.0 && run["transactions"].as_u64().unwrap() > 0,
        "{run}"
    );
    assert!(report.results["concurrent"]["merge"]["transactions"].as_u64().unwrap() >= 1);
    assert_eq!(report.goals.len(), 4);
}

#[test]
fn fast_commit() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = FastCommit {
        parts: vec![Part::Table, Part::Log],
        media: vec![Medium::Memory],
        plain: true,
        syncs: 10,
        conduct: conduct(scratch.path(), Some(0.1)),
        ..defaults()
    };
    let (steps, report) = told(|p| bench.run(p));
    assert_eq!(steps, 4 * 3 + 2);
    for (row, published) in [(0, "192.2"), (1, "112.7"), (2, "21.7"), (3, "78.3")] {
        assert_eq!(cell(&report, 0, row, "diff %"), published);
        assert_ne!(cell(&report, 0, row, "diff % "), "-", "row {row}");
        assert_ne!(cell(&report, 0, row, "no feature"), "-", "row {row}");
    }
    assert_eq!(
        (cell(&report, 0, 1, "published without"), cell(&report, 0, 3, "with")),
        ("33.32".into(), "18617.8".into())
    );
    assert_eq!(report.tables[1].rows.len(), 4 * 3);
    assert_ne!(cell(&report, 1, 0, "log bytes"), "-");
    assert_eq!(cell(&report, 1, 0, "fast commits"), "0.000", "nofast_commit makes none");
    // Blocks of 1 KiB. Without fast commits an fsync of a new file needs a descriptor, metadata and
    // a commit record.
    let log = &report.results["log"][0];
    assert!(log["nofast_commit"]["p50"].as_u64().unwrap() >= 3 * 1024, "{log}");
    assert!(log["fast_commit"]["p50"].as_u64().unwrap() >= 1024, "{log}");
    assert_eq!(report.tables[2].rows.len(), 7 * 2);
    // Gain and log bytes for each load, share and log bytes of a new file.
    assert_eq!(report.goals.len(), 4 * 2 + 2);
    assert!(report.goals.iter().any(|g| g.wanted == 192.0));
}

#[test]
fn lazy_init() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = LazyInit {
        multipliers: vec![10],
        scale: 0.0004,
        conduct: conduct(scratch.path(), None),
        ..defaults()
    };
    let (steps, report) = told(|p| bench.run(p));
    assert_eq!(steps, 3 + 1);
    assert_eq!(report.tables.len(), 2);
    assert_eq!((report.tables[1].rows.len(), cell(&report, 1, 0, "DIFF %")), (13, "1.85".into()));
    assert_eq!(cell(&report, 0, 1, "published groups"), "156");
    assert_eq!(cell(&report, 0, 0, "groups zeroed"), "0");
    assert!(report.results["mkfs_1tib_s"].as_f64().unwrap() > 0.0);
    assert!(cell(&report, 0, 2, "total s") != "-");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
