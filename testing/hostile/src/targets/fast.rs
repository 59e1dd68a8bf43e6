//! Recovery of fast commits of any kind. An input is
//!
//! ```text
//!   0    bit 0: the rest are choices that make records, else the bytes of the area;
//!        bit 1: crash afterwards; bit 2: three threads
//!   1..  choices, or bytes
//! ```

use extol::MountOptions;
use extol_block::{MemDevice, SharedDevice};
use extol_check::{CheckOptions, Kind, Recovery, Report};

use crate::base;
use crate::choices::Choices;
use crate::disk::Disk;
use crate::exercise::{Plan, exercise};
use crate::fast::{Maker, crashed, make_right};

/// Records of one input.
const MOST: usize = 300;
/// Requests of recovery and all that follows it; the base has 6144 blocks.
const MAX_REQUESTS: u64 = 100_000;
/// What replay must never make, whatever the records say: it has to refuse.
const NEVER: &[Kind] =
    &[Kind::BlockShared, Kind::BlockOnMetadata, Kind::GroupChecksum, Kind::InodeChecksum];

pub(super) fn fast_commit(input: &[u8]) {
    let Some((shape, rest)) = input.split_first() else { return };
    let base = base::fast();
    let block = base.layout.geo.block_len();
    let mut choices = Choices::from_bytes(rest);
    let area = if shape & 1 == 1 {
        Maker::new(base).area(&mut choices, MOST)
    } else {
        let mut area = rest.to_vec();
        area.resize(rest.len().next_multiple_of(block), 0);
        make_right(&mut area, block);
        area
    };
    run(&crashed(base, &area), *shape);
}

fn run(dev: &MemDevice, shape: u8) {
    let base = base::fast();
    let plan = |options: &str, operations| Plan {
        options: MountOptions::parse(options).expect("options"),
        focus: Vec::new(),
        operations,
        script: None,
        threads: if shape & 4 != 0 && operations > 0 { 3 } else { 1 },
        crash: shape & 2 != 0,
        sound: false,
    };
    let use_it = |disk: &std::sync::Arc<Disk>, options: &str, operations| {
        let out = exercise(disk, &base.layout, &plan(options, operations), &mut Choices::new(7));
        assert!(out.wrong.is_empty(), "{:?}", out.wrong);
        assert!(disk.requests() <= MAX_REQUESTS, "{} requests", disk.requests());
        out
    };
    // Looking changes nothing.
    let disk = Disk::new(dev.snapshot(), true);
    let shared: SharedDevice = disk.clone();
    let seen = extol::inspect_journal(&shared, &MountOptions::default());
    assert!(seen.is_ok(), "{seen:?}");
    use_it(&disk, "ro", 0);
    assert!(disk.found().is_empty(), "a read-only mount writes");
    // Without a mount.
    let disk = Disk::new(dev.snapshot(), false);
    let shared: SharedDevice = disk.clone();
    let replayed = extol::replay(&shared, &MountOptions::default());
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests of a replay", disk.requests());
    if replayed.is_ok() {
        verify(&disk.mem, "replay");
    }
    // With all that follows.
    let disk = Disk::new(dev.snapshot(), false);
    let out = use_it(&disk, "errors=continue", 12);
    if out.refused.is_none() && shape & 2 == 0 && out.errors.is_empty() {
        verify(&disk.mem, "a mount");
    }
    use_it(&Disk::new(disk.mem.snapshot(), false), "errors=continue", 2);
}

/// The checker holds, and finds nothing that replay must not make.
fn verify(dev: &MemDevice, what: &str) {
    let disk = Disk::new(dev.snapshot(), true);
    let options =
        CheckOptions { recovery: Recovery::InMemory, max_findings: 200, ..CheckOptions::default() };
    let report: Option<Report> = extol_check::check(disk.clone(), &options, &mut |_| {}).ok();
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests of the checker", disk.requests());
    let findings = report.iter().flat_map(|r| &r.findings);
    let bad: Vec<String> =
        findings.filter(|f| NEVER.contains(&f.kind)).map(ToString::to_string).collect();
    assert!(bad.is_empty(), "after {what}: {}", bad.join("\n"));
}
