//! Thousands of damaged volumes.
//!
//! `EXTOL_SEED=n` runs one case and tells what it does; `EXTOL_LONG=1` runs many more;
//! `EXTOL_CASES=n` so many; `EXTOL_FIRST=n` begins there. Every failure prints the line that runs
//! it again.

use std::time::{Duration, Instant};

use extol::MountOptions;
use extol_block::{MemDevice, SharedDevice};

use extol_hostile::base::{VARIANTS, base};
use extol_hostile::choices::Choices;
use extol_hostile::disk::Disk;
use extol_hostile::exercise::{Outcome, Plan, exercise};
use extol_hostile::mutate::{Damage, Mutator};
use extol_hostile::watch::{self, Ended};

/// Cases of an ordinary run.
const CASES: u64 = 2500;
/// An ordinary run ends after this time even if not all cases had their turn, as on a machine that
/// is far too busy.
const BUDGET: Duration = Duration::from_secs(120);
/// Longest time for one case.
const LIMIT: Duration = Duration::from_secs(20);
/// Most memory for one case.
const MEMORY: u64 = 192 << 20;

const OPTIONS: &[&str] = &[
    "errors=continue",
    "errors=continue",
    "errors=continue",
    "errors=remount-ro",
    "errors=continue,nodelalloc",
    "errors=continue,lazytime,discard",
    "errors=continue,cache_mb=4,dirty_mb=1,data_cache_mb=1,inode_cache=64",
    "errors=continue,data=journal",
    "errors=continue,commit=1",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

struct Report {
    variant: &'static str,
    outcomes: Vec<Outcome>,
}

/// One damaged volume: read-only, then read-write, then opened once more.
fn case(seed: u64, damaged: bool) -> Report {
    let mut rng = Choices::new(seed);
    let which = (seed % VARIANTS.len() as u64) as usize;
    let base = base(which);
    let dev = base.image.snapshot();
    let mut damage = Damage::default();
    if damaged {
        let mut m = Mutator { layout: &base.layout, dev: &dev, rng: &mut rng, damage };
        m.run();
        damage = m.damage;
    }
    let mut outcomes = Vec::new();
    let plan = |options: &str, operations: usize, threads: usize, crash: bool| Plan {
        options: MountOptions::parse(options).unwrap(),
        focus: damage.inodes.clone(),
        operations,
        script: None,
        threads,
        crash,
        sound: !damaged,
    };
    if rng.one_in(4) {
        outcomes.push(Outcome { wrong: look(&dev), ..Outcome::default() });
    }
    if rng.one_in(2) {
        let disk = Disk::new(dev.snapshot(), true);
        outcomes.push(exercise(&disk, &base.layout, &plan("ro", 0, 1, false), &mut rng));
    }
    let disk = Disk::new(dev, false);
    let has_log = base.layout.journal.is_some();
    let options = loop {
        let options = *rng.pick(OPTIONS);
        if has_log || !options.contains("data=") {
            break options;
        }
    };
    let options = VARIANTS[which].options(options);
    let operations = 10 + rng.below(40);
    let (threads, crash) = (if rng.one_in(6) { 3 } else { 1 }, rng.one_in(3));
    outcomes.push(exercise(
        &disk,
        &base.layout,
        &plan(options, operations, threads, crash),
        &mut rng,
    ));
    if rng.one_in(2) {
        let again = Disk::new(disk.mem.snapshot(), false);
        outcomes.push(exercise(
            &again,
            &base.layout,
            &plan(VARIANTS[which].options("errors=continue"), 8, 1, false),
            &mut rng,
        ));
    }
    Report { variant: VARIANTS[which].name, outcomes }
}

/// What only looks at a volume, or only recovers it.
fn look(dev: &MemDevice) -> Vec<String> {
    let shared = || -> SharedDevice { Disk::new(dev.snapshot(), false) };
    let _ = extol::info(&shared()).map(|info| info.to_string());
    let _ = extol::inspect_journal(&shared(), &MountOptions::default());
    let disk = Disk::new(dev.snapshot(), false);
    let replayed = extol::replay(&(disk.clone() as SharedDevice), &MountOptions::default());
    let _ = extol::mkfs::existing_contents(&*shared());
    match replayed {
        Err(e) if dev.to_bytes() != disk.mem.to_bytes() => {
            vec![format!("a replay that is refused ({e}) has written")]
        }
        _ => Vec::new(),
    }
}

fn verify(seed: u64, tell: bool) -> Result<Option<(Report, Duration)>, String> {
    watch::reset_peak();
    let before = watch::memory();
    let ended = watch::within(LIMIT, move || case(seed, true));
    let mut problems = watch::panics();
    let report = match ended {
        Ended::Value(report, took) => {
            for o in &report.outcomes {
                problems.extend(o.wrong.iter().cloned());
            }
            Some((report, took))
        }
        Ended::Panicked => None,
        Ended::TooLong => {
            problems.push(format!("no end within {LIMIT:?}"));
            None
        }
    };
    let grown = watch::peak().saturating_sub(before);
    if grown > MEMORY {
        problems.push(format!("memory grew by {} MiB", grown >> 20));
    }
    if tell || !problems.is_empty() {
        // The damage again, for the message: also if the case did not come back.
        let which = (seed % VARIANTS.len() as u64) as usize;
        let base = base(which);
        let dev = base.image.snapshot();
        let mut m = Mutator {
            layout: &base.layout,
            dev: &dev,
            rng: &mut Choices::new(seed),
            damage: Damage::default(),
        };
        m.run();
        eprintln!("seed {seed} ({}):\n  {}", VARIANTS[which].name, m.damage.log.join("\n  "));
        if let Some((report, took)) = &report {
            eprintln!("  took {took:?}");
            for o in &report.outcomes {
                eprintln!(
                    "  refused {:?}, {} operations, errors {:#?}",
                    o.refused, o.done, o.errors
                );
            }
        }
    }
    if problems.is_empty() {
        return Ok(report);
    }
    Err(format!(
        "{}\n  again: EXTOL_SEED={seed} cargo test -p extol-hostile --test storm damaged_volumes",
        problems.join("\n  ")
    ))
}

/// The bases themselves are in order, and stay so.
#[test]
fn sound_volumes() {
    for (i, v) in VARIANTS.iter().enumerate() {
        for round in 0..2 {
            let seed = i as u64 + round * VARIANTS.len() as u64 * 1000;
            let report = case(seed, false);
            assert_eq!(report.variant, v.name);
            for o in report.outcomes {
                assert!(
                    o.wrong.is_empty() && o.refused.is_none(),
                    "{}: {:?} {:?}",
                    v.name,
                    o.refused,
                    o.wrong
                );
            }
        }
        let disk = Disk::new(base(i).image.snapshot(), false);
        let plan = Plan {
            options: MountOptions::parse(v.options("errors=continue")).unwrap(),
            focus: vec![],
            operations: 60,
            script: None,
            threads: 1,
            crash: false,
            sound: true,
        };
        let out = exercise(&disk, &base(i).layout, &plan, &mut Choices::new(77 + i as u64));
        assert!(out.wrong.is_empty(), "{}: {:?}", v.name, out.wrong);
        if !v.is_clean() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, disk.mem.to_bytes()).unwrap();
        let fsck = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&fsck.stdout).into_owned();
        let bad = text
            .lines()
            .filter(|l| !l.contains("could be narrower") && !l.contains("Optimize? no"));
        assert!(
            fsck.status.success()
                || bad.clone().all(|l| l.starts_with("Pass")
                    || l.contains("e2fsck")
                    || l.contains("files (")),
            "{}:\n{text}",
            v.name
        );
    }
}

#[test]
fn damaged_volumes() {
    if let Some(seed) = number("EXTOL_SEED") {
        if let Err(e) = verify(seed, true) {
            panic!("{e}");
        }
        return;
    }
    let long = std::env::var_os("EXTOL_LONG").is_some();
    let cases = number("EXTOL_CASES").unwrap_or(if long { 200_000 } else { CASES });
    let first = number("EXTOL_FIRST").unwrap_or(0);
    let began = Instant::now();
    let mut failures = Vec::new();
    let (mut refused, mut operations, mut done) = (0, 0, 0u64);
    let mut slowest: Vec<(Duration, u64)> = Vec::new();
    let mut kinds: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for seed in first..first + cases {
        if !long && began.elapsed() > BUDGET && number("EXTOL_CASES").is_none() {
            break;
        }
        done += 1;
        match verify(seed, false) {
            Ok(None) => {}
            Ok(Some((report, took))) => {
                refused += usize::from(report.outcomes.iter().all(|o| o.refused.is_some()));
                operations += report.outcomes.iter().map(|o| o.done).sum::<usize>();
                for o in &report.outcomes {
                    for (e, n) in &o.errors {
                        *kinds
                            .entry(
                                e.split(|c: char| c.is_ascii_digit())
                                    .next()
                                    .unwrap_or("")
                                    .to_owned(),
                            )
                            .or_default() += n;
                    }
                }
                slowest.push((took, seed));
                slowest.sort_unstable_by(|a, b| b.cmp(a));
                slowest.truncate(8);
            }
            Err(e) => {
                eprintln!("{e}");
                failures.push(seed);
                if failures.len() >= number("EXTOL_FAILURES").unwrap_or(1) as usize {
                    break;
                }
            }
        }
    }
    println!(
        "{done} damaged volumes in {:?}: {refused} refused, {operations} operations; slowest \
            {slowest:?}",
        began.elapsed()
    );
    if std::env::var_os("EXTOL_TELL").is_some() {
        println!("{kinds:#?}");
    }
    assert!(failures.is_empty(), "failing seeds: {failures:?}");
}
