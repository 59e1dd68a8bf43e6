use super::*;
use crate::contender::{Contender, Place, VolumeSpec};
use crate::spread::Spread;
use crate::workload::{FsMark, FsyncLatency, Limits, Metadata};

fn speed(dir: &std::path::Path) -> Speed {
    Speed {
        parts: Part::ALL.iter().map(|(_, part)| *part).collect(),
        media: Vec::new(),
        size: 1 << 20,
        files: 10,
        loadfile: None,
        conduct: Conduct {
            place: Place { medium: Medium::Memory, dir: dir.into(), extol: "extol".into() },
            volume: VolumeSpec { size: 64 << 20, journal_mib: Some(4), ..VolumeSpec::default() },
            rounds: 2,
            limits: Limits::default(),
        },
    }
}

/// Goals of a part on a medium: which ratios, and how large.
fn goals(part: Part, medium: &str) -> Vec<String> {
    let medium = Medium::parse(medium).unwrap();
    let contests = speed(std::path::Path::new("/")).plan(part, &medium);
    let goal = |contest: &Contest, want: &Want| {
        let name = |n: usize| contest.players[n].entry.name.clone();
        match want {
            Want::Ratio { of, to, metric, at_least } => {
                assert!(contest.metrics.contains(metric), "a goal that is not shown");
                format!("{} {} {at_least}", name(*of), name(*to))
            }
            Want::Beside { of, at_most } | Want::Flushes { of, at_most } => {
                format!("{} {at_most}", name(*of))
            }
        }
    };
    contests.iter().flat_map(|c| c.wants.iter().map(move |w| goal(c, w))).collect()
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

/// A contest of two libraries, which need nothing of the machine.
#[test]
fn a_contest_is_played_judged_and_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let speed = speed(scratch.path());
    let player = |name: &str, load: Arc<dyn Workload>, optional| Player {
        entry: Entry::new(name, Contender::Library(String::new()), &[]),
        load,
        optional,
    };
    let load: Arc<dyn Workload> = Arc::new(Metadata { threads: 1, files: 5, shared: false });
    let mut absent = player("absent", Arc::clone(&load), true);
    absent.entry.contender = Contender::Library("frob".into());
    let storms = Contest {
        title: "storms".into(),
        players: vec![player("a", Arc::clone(&load), false), player("b", load, false), absent],
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
    let contest = |title: &str, load: &Arc<dyn Workload>, want| Contest {
        title: title.into(),
        players: vec![player("a", Arc::clone(load), false)],
        metrics: vec![Metric::Rate],
        wants: vec![want],
        untimed: false,
    };
    let contests = vec![
        storms,
        contest("beside", &latency, Want::Beside { of: 0, at_most: 1e9 }),
        contest("fsync", &fsync, Want::Flushes { of: 0, at_most: 1e9 }),
    ];
    let mut report = Report::new("speed");
    let mut told = 0;
    let mut played = Vec::new();
    for contest in contests {
        let runs = speed.turns(&Medium::Memory, &contest, &mut report, &mut |_| told += 1).unwrap();
        played.push(Played { contest, runs });
    }
    assert_eq!((told, played[0].runs[1].len(), played[0].runs[2].len()), (10, 2, 0));
    let json = show::part(&mut report, "part", Part::Isolation, &Medium::Memory, &played);
    assert!(json.pointer("/0/players/1/summary/phases/0/rate/median").is_some(), "{json:#}");
    let met: Vec<bool> = report.goals.iter().map(|g| g.met).collect();
    assert_eq!(met, [true, false, true, true]);
    assert!(report.notes.iter().any(|n| n.contains("frob")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|n| n.contains("not measured")), "{:?}", report.notes);
    let text = report.text();
    assert!(text.contains("storms: create") && text.contains("MISSED") && text.contains("a / b"), "{text}");
    assert_eq!(
        report.tables[0].rows.iter().filter(|r| r.iter().any(crate::report::Cell::is_missed)).count(),
        1
    );
    assert!(report.html().contains("<svg"));
}

#[test]
fn steps_from_one_number_of_threads_to_the_next() {
    assert_eq!(show::steps(&[Some(1.0), Some(2.0), None, Some(3.0)]), [Some(2.0), None, None]);
    assert_eq!(Spread::of(show::steps(&[Some(2.0), Some(1.0)]).into_iter().flatten()).unwrap().min, 0.5);
}
