//! Every load on every kind of volume: no state may be wrong. Prints its counts.
//!
//! `EXTOL_SEED=n` runs other loads. A failure prints the command that tries its state again.

use extol_crashkit::campaign::Campaign;
use extol_crashkit::record::Recording;
use extol_crashkit::report::{Report, Row};
use extol_crashkit::tape::Change;
use extol_crashkit::variant::{VARIANTS, Variant};
use extol_crashkit::workloads::{self, Workload};
use extol_testkit::{Need, require};
use std::time::Instant;

fn seed() -> u64 {
    std::env::var("EXTOL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

/// States of one load on one kind of volume.
const MOST: u64 = 220;

fn sweep(loads: &[Box<dyn Workload>], seed: u64) {
    let e2fsck = require(&[Need::Tool("e2fsck")]);
    let linux = require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]);
    let began = Instant::now();
    let mut report = Report::default();
    for (i, load) in loads.iter().enumerate() {
        for (j, kind) in VARIANTS.iter().enumerate() {
            // Those with fast commits have a test of their own.
            if !load.suits(kind) || kind.fast_blocks.is_some() {
                continue;
            }
            // Each pair meets empty volumes in one run and volumes with a past in the next.
            let mut campaign = Campaign::quick(&**load, *kind, seed + (i + j) as u64 % 2);
            campaign.max_states = MOST;
            campaign.again_every = 170;
            campaign.e2fsck_every = if e2fsck { 110 } else { 0 };
            campaign.linux_every = if linux { 300 } else { 0 };
            report.add(campaign.run(&mut |_, _, _| {}).unwrap_or_else(|e| panic!("{e}")));
        }
    }
    report.wall_seconds = began.elapsed().as_secs_f64();
    println!("{}\n{}", report.table(), report.summary());
    for failure in &report.total().failures {
        println!("FAILED {}\nreplay: {}", failure.what, failure.replay);
    }
    let total = report.total();
    assert!(total.failures.is_empty(), "{} states are wrong, see above", total.failures.len());
    assert!(total.distinct > 100 * report.rows.len() as u64, "{}", report.summary());
    assert!(total.second_states > 10 * report.rows.len() as u64, "{}", report.summary());
    // The journal met everything that it is there for.
    assert!(report.rows.iter().any(|r| r.wraps_percent > 100), "the log never wraps");
    assert!(report.rows.iter().any(|r| r.revokes > 50), "nothing is revoked");
}

#[test]
fn every_load_on_every_kind_of_volume() {
    sweep(&workloads::all(), seed());
}

/// Fast commits: their own loads on every kind of volume that has them, and the classics on one.
#[test]
fn fast_commits() {
    let e2fsck = require(&[Need::Tool("e2fsck")]);
    let linux = require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]);
    let mut report = Report::default();
    for (i, load) in workloads::all().iter().enumerate() {
        for (j, kind) in VARIANTS.iter().enumerate().filter(|(_, kind)| kind.fast_blocks.is_some())
        {
            let own = !load.suits(&VARIANTS[0]);
            if !load.suits(kind) || !(own || kind.name == "fc") {
                continue;
            }
            let mut campaign = Campaign::quick(&**load, *kind, seed() + (i + j) as u64 % 2);
            campaign.max_states = 50;
            campaign.again_every = 45;
            campaign.e2fsck_every = if e2fsck { 15 } else { 0 };
            campaign.linux_every = if linux { 45 } else { 0 };
            report.add(campaign.run(&mut |_, _, _| {}).unwrap_or_else(|e| panic!("{e}")));
        }
    }
    println!("{}\n{}", report.table(), report.summary());
    for failure in &report.total().failures {
        println!("FAILED {}\nreplay: {}", failure.what, failure.replay);
    }
    let total = report.total();
    assert!(total.failures.is_empty(), "{} states are wrong, see above", total.failures.len());
    assert!(
        report.rows.iter().filter(|r| r.workload == "closures").all(|r| r.fast_commits > 0),
        "no fast commits somewhere"
    );
    assert!(total.fallbacks > 0, "everything was a fast commit");
    assert!(
        report.rows.iter().filter(|r| r.workload == "owners").all(|r| r.fast_commits > 0),
        "no fast commits with quota files"
    );
    let each = |r: &Row| (r.variant == "fc-fua").then_some(r.by_fua);
    assert!(
        report.rows.iter().filter_map(each).sum::<u64>() > 50,
        "all with a flush\n{}",
        report.table()
    );
    // What others are not asked about is the exception.
    assert!(total.superseded * 4 <= total.e2fsck + 4, "{}", report.table());
}

/// What a one-line replay rests on: the same seed makes the same changes at the same places.
#[test]
fn a_run_repeats() {
    let shape = |variant: &Variant, seed: u64| -> Vec<(usize, u64, usize)> {
        let load = workloads::by_name("sync-mix").expect("a load");
        let recording = Recording::of(&*load, variant, seed, 150, None).expect("a run");
        let shape = |e: &extol_crashkit::tape::Event| match &e.change {
            Change::Write { offset, data } => (e.device, *offset, data.len()),
            Change::Zero { offset, len } => (10 + e.device, *offset, *len as usize),
            Change::Size(bytes) => (40 + e.device, *bytes, 0),
            Change::Flush { open } => (20 + e.device, 0, open.len()),
            Change::Settled { writes } => (30 + e.device, writes.start as u64, writes.len()),
        };
        recording.events.iter().map(shape).collect()
    };
    // (Over many groups new directories of the root are spread at random.)
    let load = workloads::by_name("sync-mix").expect("a load");
    for variant in VARIANTS.iter().filter(|variant| load.suits(variant)) {
        for seed in [seed(), seed() + 1] {
            assert_eq!(
                shape(variant, seed),
                shape(variant, seed),
                "{} with seed {seed}",
                variant.name
            );
        }
    }
}
