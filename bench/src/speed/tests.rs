use super::plan::THREADS;
use super::*;
use crate::Programs;
use crate::contender::{Contender, Cost, Place, Reading, VolumeSpec};
use crate::spread::Spread;
use crate::workload::options::defaults;
use crate::workload::{FsMark, FsyncLatency, Limits, Metadata, Outcome, Timings};

fn speed(dir: &std::path::Path) -> Speed {
    Speed {
        parts: Part::value_variants().to_vec(),
        size: 1 << 20,
        files: 10,
        conduct: Conduct {
            place: Place { medium: Medium::Memory, dir: dir.into(), programs: Programs::default() },
            volume: VolumeSpec { size: 64 << 20, journal_mib: Some(4), ..VolumeSpec::default() },
            rounds: 2,
            limits: Limits::default(),
        },
        ..defaults()
    }
}

/// Goals of a part on a medium: which ratios, and how large.
fn goals(part: Part, medium: &str) -> Vec<String> {
    let medium = Medium::parse(medium).unwrap();
    let comparisons = speed(std::path::Path::new("/")).plan(part, &medium);
    let goal = |comparison: &Comparison, want: &Want| {
        let name = |n: usize| comparison.participants[n].entry.name.clone();
        match want {
            Want::Ratio { of, to, metric, at_least } => {
                assert!(comparison.metrics.contains(metric), "a goal that is not shown");
                format!("{} {} {at_least}", name(*of), name(*to))
            }
            Want::Beside { of, at_most } | Want::Flushes { of, at_most } => {
                format!("{} {at_most}", name(*of))
            }
        }
    };
    comparisons.iter().flat_map(|c| c.wants.iter().map(move |w| goal(c, w))).collect()
}

#[test]
fn every_target_is_a_goal() {
    assert_eq!(goals(Part::FsyncMount, "image"), ["mount Linux FC 0.7", "mount fuse2fs 10"]);
    assert_eq!(goals(Part::FsyncMount, "memory"), ["mount Linux FC 0.7"]);
    assert_eq!(goals(Part::FsyncMount, "sata"), ["mount Linux FC 1"]);
    let metadata = goals(Part::MetadataMount, "image");
    let count = |text: &str| metadata.iter().filter(|g| *g == text).count();
    assert_eq!((count("mount noop 0.8"), count("mount fuse2fs 8"), metadata.len()), (5, 5, 10));
    assert_eq!(
        goals(Part::LoadsMount, "image"),
        ["mount fuse2fs 5", "mount fuse2fs 5", "mount fuse2fs 3", "mount fuse2fs 10"]
    );
    assert_eq!(
        goals(Part::DataMount, "image"),
        ["mount Linux FC 0.8", "mount Linux FC 0.8", "mount Linux FC 0.6"]
    );
    assert_eq!(
        goals(Part::FsyncLibrary, "image"),
        [
            "library Linux FC 1",
            "library 2.1",
            "library Linux FC 2",
            "library 2.1",
            "library Linux FC 2",
            "library 2.1",
            "library raw 0.5"
        ]
    );
    assert_eq!(goals(Part::MetadataLibrary, "image"), vec!["library Linux FC 1"; 6]);
    assert_eq!(goals(Part::DataLibrary, "image"), vec!["library raw 0.9"; 2]);
    assert_eq!(goals(Part::Isolation, "image"), ["library 3", "mount 3"]);
}

/// A comparison of two libraries, which need nothing of the machine.
#[test]
fn a_contest_is_played_compared_and_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let speed = speed(scratch.path());
    let participant = |name: &str, load: Arc<dyn Workload>, optional| Participant {
        entry: Entry::new(name, Contender::Library(String::new()), &[]),
        load,
        optional,
    };
    let load: Arc<dyn Workload> = Arc::new(Metadata {
        threads: 1,
        files: 5,
        least: std::time::Duration::ZERO,
        ..Metadata::default()
    });
    let mut absent = participant("absent", Arc::clone(&load), true);
    absent.entry.contender = Contender::Library("frob".into());
    let metadata = Comparison {
        title: "metadata".into(),
        participants: vec![
            participant("a", Arc::clone(&load), false),
            participant("b", load, false),
            absent,
        ],
        metrics: vec![Metric::Phase("create"), Metric::Phase("stat")],
        wants: vec![
            Want::Ratio { of: 0, to: 1, metric: Metric::Phase("stat"), at_least: 1e-9 },
            Want::Ratio { of: 0, to: 1, metric: Metric::Phase("create"), at_least: 1e9 },
            Want::Ratio { of: 0, to: 2, metric: Metric::Phase("create"), at_least: 1.0 },
        ],
        untimed: true,
    };
    let latency: Arc<dyn Workload> =
        Arc::new(FsyncLatency { calls: 5, writer_size: 4 << 20, ..FsyncLatency::default() });
    let fsync: Arc<dyn Workload> = Arc::new(FsMark { files: 5, size: 4096, ..FsMark::default() });
    let comparison = |title: &str, load: &Arc<dyn Workload>, want| Comparison {
        title: title.into(),
        participants: vec![participant("a", Arc::clone(load), false)],
        metrics: vec![Metric::Rate],
        wants: vec![want],
        untimed: false,
    };
    let comparisons = vec![
        metadata,
        comparison("beside", &latency, Want::Beside { of: 0, at_most: 1e9 }),
        comparison("fsync", &fsync, Want::Flushes { of: 0, at_most: 1e9 }),
    ];
    let mut report = Report::new("speed");
    let mut told = 0;
    let mut measured = Vec::new();
    for comparison in comparisons {
        let runs =
            speed.turns(&Medium::Memory, &comparison, &mut report, &mut |_| told += 1).unwrap();
        measured.push(Measured { comparison, runs });
    }
    assert_eq!((told, measured[0].runs[1].len(), measured[0].runs[2].len()), (10, 2, 0));
    let json = show::part(&mut report, "part", Part::Isolation, &Medium::Memory, &measured);
    assert!(json.pointer("/0/participants/1/summary/phases/0/rate/median").is_some(), "{json:#}");
    let met: Vec<bool> = report.goals.iter().map(|g| g.met).collect();
    assert_eq!(met, [true, false, true, true]);
    assert!(report.notes.iter().any(|n| n.contains("frob")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|n| n.contains("not measured")), "{:?}", report.notes);
    let text = report.text();
    assert!(
        text.contains("metadata: create") && text.contains("MISSED") && text.contains("a / b"),
        "{text}"
    );
    assert_eq!(
        report.tables[0]
            .rows
            .iter()
            .filter(|r| r.iter().any(crate::report::Cell::is_missed))
            .count(),
        1
    );
    assert!(report.html().contains("<svg"));
}

#[test]
fn steps_from_one_number_of_threads_to_the_next() {
    assert_eq!(show::steps(&[Some(1.0), Some(2.0), None, Some(3.0)]), [Some(2.0), None, None]);
    assert_eq!(
        Spread::of(show::steps(&[Some(2.0), Some(1.0)]).into_iter().flatten()).unwrap().min,
        0.5
    );
}

/// Contests of a part: participants, in order, comparison by comparison.
fn participants_of(part: Part, medium: &str) -> Vec<Vec<String>> {
    let comparisons = speed(std::path::Path::new("/")).plan(part, &Medium::parse(medium).unwrap());
    comparisons
        .iter()
        .map(|c| c.participants.iter().map(|p| p.entry.name.clone()).collect())
        .collect()
}

#[test]
fn further_options_are_those_of_the_mount_and_of_what_does_nothing() {
    let mut speed = speed(std::path::Path::new("/"));
    speed.options = vec!["nowriteback_cache".into()];
    let comparisons = speed.plan(Part::FsyncMount, &Medium::Image);
    let eight: Vec<_> =
        comparisons[3].participants.iter().map(|p| p.entry.contender.name()).collect();
    assert_eq!(
        eight,
        ["mount:fast_commit,nowriteback_cache", "kernel", "fuse2fs", "noop:nowriteback_cache"],
        "peers keep theirs"
    );
    let isolation = speed.plan(Part::Isolation, &Medium::Image);
    let names: Vec<_> =
        isolation[0].participants.iter().map(|p| p.entry.contender.name()).collect();
    assert_eq!(names[..2], ["node:fast_commit", "mount:fast_commit,nowriteback_cache"]);
}

/// What FUSE allows is measured beside every target of a mount.
#[test]
fn what_does_nothing_takes_part_wherever_fuse_is_measured() {
    let has = |participants: &Vec<String>| participants.iter().any(|name| name == "noop");
    for part in [Part::FsyncMount, Part::MetadataMount, Part::LoadsMount, Part::DataMount] {
        assert!(participants_of(part, "image").iter().all(has), "{part:?}");
    }
    let slow: Vec<bool> = participants_of(Part::FsyncMount, "cloud").iter().map(has).collect();
    assert_eq!(
        slow,
        THREADS.map(|n| n == 8),
        "of a slow medium it says nothing new with other numbers of threads"
    );
    for part in [Part::FsyncLibrary, Part::MetadataLibrary, Part::DataLibrary] {
        assert!(!participants_of(part, "image").iter().any(has), "{part:?}");
    }
}

/// A run of so many files in a second.
fn run_of(files: u64) -> Run {
    let outcome = Outcome {
        unit: "files",
        done: files,
        elapsed: std::time::Duration::from_secs(1),
        written: 0,
        read: 0,
        figures: Vec::new(),
        timings: Timings::default(),
        phases: Vec::new(),
    };
    let (cost, before, after) = (Cost::default(), Reading::default(), Reading::default());
    Run { outcome, cost, before, after, unmount: std::time::Duration::ZERO }
}

/// The mount misses ten times fuse2fs, and so does what does nothing; it misses 0.7 of Linux, which
/// that one reaches. The mount falls with 32 threads, what does nothing with 16.
#[test]
fn what_does_nothing_is_shown_beside_each_goal() {
    let scratch = tempfile::tempdir().unwrap();
    let mut comparisons = speed(scratch.path()).plan(Part::FsyncMount, &Medium::Image);
    // A goal that is a comparison with the baseline has none beside it.
    comparisons[3].wants.push(Want::Ratio { of: 0, to: 3, metric: Metric::Rate, at_least: 0.8 });
    let rates = [
        [10, 20, 0, 40],
        [20, 40, 0, 60],
        [30, 60, 0, 80],
        [50, 100, 10, 76],
        [60, 120, 0, 57],
        [54, 120, 0, 57],
    ];
    let measured =
        comparisons.into_iter().zip(rates).map(|(comparison, [mount, linux, fuse2fs, noop])| {
            let rate = |name: &str| match name {
                "mount" => mount,
                "noop" => noop,
                "fuse2fs" => fuse2fs,
                _ => linux,
            };
            let runs =
                comparison.participants.iter().map(|p| vec![run_of(rate(&p.entry.name))]).collect();
            Measured { comparison, runs }
        });
    let mut report = Report::new("speed");
    show::part(
        &mut report,
        "fsync-mount",
        Part::FsyncMount,
        &Medium::Image,
        &measured.collect::<Vec<_>>(),
    );
    let shown: Vec<(f64, Option<(f64, bool)>)> = report
        .goals
        .iter()
        .map(|g| (g.measured, g.baseline.as_ref().map(|y| (y.measured, y.met))))
        .collect();
    assert_eq!(
        shown,
        [
            (0.5, Some((0.76, true))),
            (5.0, Some((7.6, false))),
            (50.0 / 76.0, None),
            (0.9, Some((0.75, false)))
        ]
    );
    let text = report.text();
    assert!(text.contains("(what does nothing reaches 7.60 of 10)"), "{text}");
    assert!(text.contains("(what does nothing meets it with 0.76 of 0.7)"), "{text}");
    assert!(text.contains("does nothing, files/s"), "{text}");
}
