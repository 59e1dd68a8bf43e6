//! Faults while a volume is in use: at the n-th request, for every n, reads, writes, flushes fail,
//! once or from then on; writes end half way; the device is full, or gone. What was acknowledged
//! survives, nothing is acknowledged that does not, no thread waits for ever, and the volume and
//! the next mount report the error.
//!
//! CI takes some of the requests; `EXTOL_LONG=1` takes every one.

mod device;
mod devices;
mod ledger;
mod listing;
mod run;

use std::process::Command;

use device::{Fault, Kind};
use devices::{Base, Side, Variant};
use run::run;

const VARIANTS: [Variant; 4] = [
    Variant { name: "ordered", options: "errors=continue", external: false },
    Variant { name: "writeback", options: "data=writeback,errors=remount-ro", external: false },
    Variant { name: "data=journal", options: "data=journal,errors=continue", external: false },
    Variant { name: "external", options: "errors=panic", external: true },
];

const KINDS: [(Kind, bool); 11] = [
    (Kind::Read, false),
    (Kind::Read, true),
    (Kind::Write, false),
    (Kind::Write, true),
    (Kind::Flush, false),
    (Kind::Flush, true),
    (Kind::Fua, false),
    (Kind::Fua, true),
    (Kind::Short, false),
    (Kind::NoSpace, true),
    (Kind::Gone, true),
];

fn is_long() -> bool {
    std::env::var_os("EXTOL_LONG").is_some()
}

/// Every n-th request fails, in every way.
fn matrix(variant: Variant) {
    let base = Base::new(variant.external);
    let sides: &[Side] =
        if variant.external { &[Side::Volume, Side::Log] } else { &[Side::Volume] };
    for side in sides {
        for (i, (kind, forever)) in KINDS.into_iter().enumerate() {
            let (mut nth, mut runs, mut aborts, mut states) = (0, 0, 0, 0);
            loop {
                let outcome = run(variant, &base, *side, Fault { kind, nth, forever }, 0);
                states += outcome.states;
                if !outcome.struck {
                    break;
                }
                runs += 1;
                aborts += u64::from(outcome.aborted);
                nth += if is_long() { 1 } else { 23 + i as u64 };
            }
            println!(
                "{} {side:?} {kind:?}{}: {runs} faults in {nth} requests, {aborts} aborts, \
                 {states} states",
                variant.name,
                if forever { " for ever" } else { "" }
            );
            // Of an external log nothing is read, and of its volume nothing is written with FUA.
            assert!(runs > 0 || variant.external, "{kind:?} never happened");
        }
    }
}

#[test]
fn ordered() {
    matrix(VARIANTS[0]);
}

#[test]
fn writeback() {
    matrix(VARIANTS[1]);
}

#[test]
fn data_in_the_log() {
    matrix(VARIANTS[2]);
}

#[test]
fn external_log() {
    matrix(VARIANTS[3]);
}

/// The same with random delays at locks (`crates/sync/src/shake.rs`), which are switched on for a
/// process. `scripts/shake.sh` tries more seeds, and more tests.
#[test]
fn many_threads_shaken() {
    const SHAKE: &str = "EXTOL_SHAKE";
    if !cfg!(debug_assertions) || std::env::var_os(SHAKE).is_some() {
        println!("no delays in a release build, and none twice");
        return;
    }
    for seed in 1..=2 {
        let mut test = Command::new(std::env::current_exe().unwrap());
        let out =
            test.args(["--exact", "many_threads"]).env(SHAKE, seed.to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains("1 passed"), "{SHAKE}={seed}:\n{text}");
    }
}

/// Several threads with all services.
#[test]
fn many_threads() {
    for variant in VARIANTS {
        let base = Base::new(variant.external);
        for (kind, forever) in KINDS {
            let count = if is_long() { 40 } else { 2 };
            for n in 0..count {
                let side = if n % 2 == 0 { Side::Volume } else { Side::Log };
                run(variant, &base, side, Fault { kind, nth: n * n * 7, forever }, 4);
            }
        }
    }
}
