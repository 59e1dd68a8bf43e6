use std::sync::Arc;

use super::*;
use crate::contender::Contender;
use crate::speed::Participant;
use crate::versus::Entry;
use crate::workload::{Metadata, Workload};

fn guard(against: bool) -> Guard {
    let against = against.then(|| "/bin/true".into());
    Guard { against, medium: Medium::Memory, ..defaults() }
}

fn names(comparison: &Comparison) -> Vec<&str> {
    comparison.participants.iter().map(|p| p.entry.name.as_str()).collect()
}

#[test]
fn every_load_runs_beside_fuse2fs_and_the_other_build() {
    let titles = |all: &[Comparison]| {
        let row = |c: &Comparison| match c.metrics[0] {
            Metric::Rate => c.title.clone(),
            Metric::Phase(name) => name.to_owned(),
        };
        all.iter().map(row).collect::<Vec<_>>()
    };
    let alone = guard(false).comparisons();
    let loads = [
        "fsync, 1 thread",
        "fsync, 8 threads",
        "dbench, 2 clients",
        "dbench, 10 clients",
        "postmark",
        "untar",
        "stat",
    ];
    assert_eq!(titles(&alone), loads);
    assert!(alone.iter().all(|c| names(c) == ["mount", "fuse2fs"] && c.wants.is_empty()));
    let beside = guard(true).comparisons();
    assert_eq!(titles(&beside), loads);
    assert!(beside.iter().all(|c| names(c) == ["mount", "fuse2fs", "before"]));
    assert!(beside.iter().all(|c| c.wants.len() == c.metrics.len()));
}

/// One load of two libraries, called a mount and the other build, whose times are set.
#[test]
fn a_load_that_fell_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let mut speed: Speed = defaults();
    speed.conduct.place.dir = scratch.path().into();
    speed.conduct.volume.size = 64 << 20;
    speed.conduct.volume.journal_mib = Some(4);
    speed.conduct.rounds = 1;
    let participant = |name: &str, files| Participant {
        entry: Entry::new(name, Contender::Library(String::new()), &[]),
        load: Arc::new(Metadata { threads: 1, files, least: Duration::ZERO, ..Metadata::default() })
            as Arc<dyn Workload>,
        optional: false,
    };
    let comparison = Comparison {
        title: "metadata".into(),
        participants: vec![participant("mount", 10), participant("before", 10)],
        metrics: vec![Metric::Phase("stat")],
        wants: Vec::new(),
        untimed: true,
    };
    let mut report = Report::new("guard");
    let runs = speed.turns(&Medium::Memory, &comparison, &mut report, &mut |_| {}).unwrap();
    let mut measured = vec![Measured { comparison, runs }];
    let stat = |n: usize, measured: &mut Vec<Measured>, ns: u64| {
        for phase in &mut measured[0].runs[n][0].outcome.phases {
            (phase.done, phase.elapsed) = (1000.0, Duration::from_nanos(ns));
        }
    };
    stat(0, &mut measured, 1_000_000);
    stat(1, &mut measured, 900_000);
    assert_eq!(fallen(&measured), "no load fell by a fifth");
    stat(0, &mut measured, 2_000_000);
    assert_eq!(fallen(&measured), "fell by a fifth or more: metadata: stat (0.45)");
    measured[0].comparison.want_no_fall();
    show::beside(&mut report, "guard, memory", &measured);
    let text = report.text();
    assert!(text.contains("MISSED") && text.contains("mount / before"), "{text}");
}
