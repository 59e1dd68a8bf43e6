//! Whole volumes. An input is a recipe:
//!
//! ```text
//!   0    which base (see `base::VARIANTS`)
//!   1    options
//!   2    shape: bit 0 crash at the end, bit 1 read-only first, bit 2 by several threads,
//!        bits 4.. rounds of reading
//!   3    number of changes (at most 15)
//!   4..8 seed of the walk
//!   then 12 bytes for each change: they choose structure, field and value
//!   then the operations, a few bytes each, until the input ends
//! ```
//!
//! So a fuzzer that exchanges, inserts or removes twelve bytes exchanges, inserts or removes one
//! change.

use std::sync::Arc;

use extol::MountOptions;
use extol_block::{MemDevice, SharedDevice};
use extol_check::{CheckOptions, Recovery, Report};

use crate::base::{self, Base, VARIANTS};
use crate::choices::Choices;
use crate::disk::Disk;
use crate::exercise::{Outcome, Plan, exercise};
use crate::mutate::{Damage, Mutator};

/// Bytes of a change.
pub const RECORD: usize = 12;
/// Bytes before the first change.
pub const HEAD: usize = 8;
/// Most operations of an input.
const MAX_OPERATIONS: usize = 60;
/// Most reads and writes of everything that is done with one input: the bases have 12 288 blocks at
/// most, and no operation has a reason to look at a block of the volume more than a few times.
pub(super) const MAX_REQUESTS: u64 = 400_000;

const OPTIONS: &[&str] = &[
    "errors=continue",
    "errors=continue,commit=3600",
    "errors=remount-ro",
    "errors=continue,nodelalloc",
    "errors=continue,lazytime,discard",
    "errors=continue,cache_mb=4,dirty_mb=1,data_cache_mb=1,inode_cache=64",
    "errors=continue,data=journal",
    "errors=continue,norecovery,ro",
];

/// An input taken apart and carried out.
pub(super) struct Recipe {
    base: &'static Base,
    options: &'static str,
    shape: u8,
    seed: u64,
    pub(super) operations: Vec<u8>,
    pub(super) dev: MemDevice,
    pub(super) damage: Damage,
}

impl Recipe {
    pub(super) fn new(input: &[u8]) -> Option<Self> {
        let (head, rest) = input.split_at_checked(HEAD)?;
        let which = usize::from(head[0]) % VARIANTS.len();
        let base = base::base(which);
        let mut options = VARIANTS[which].options(OPTIONS[usize::from(head[1]) % OPTIONS.len()]);
        if base.layout.journal.is_none() && options.contains("data=") {
            options = OPTIONS[0];
        }
        let changes = (usize::from(head[3]) % 16).min(rest.len() / RECORD);
        let (records, operations) = rest.split_at(changes * RECORD);
        let dev = base.image.snapshot();
        let mut damage = Damage::default();
        for record in records.chunks(RECORD) {
            let mut choices = Choices::from_bytes(record);
            let mut mutator =
                Mutator { layout: &base.layout, dev: &dev, rng: &mut choices, damage };
            mutator.step();
            damage = mutator.damage;
        }
        Some(Self {
            base,
            options,
            shape: head[2],
            seed: u64::from(u32::from_le_bytes(head[4..8].try_into().ok()?)),
            operations: operations.to_vec(),
            dev,
            damage,
        })
    }

    fn has(&self, bit: u8) -> bool {
        self.shape & 1 << bit != 0
    }

    fn plan(&self, options: &str, operations: usize) -> Plan {
        Plan {
            options: MountOptions::parse(options).expect("options"),
            focus: self.damage.inodes.clone(),
            operations,
            script: (operations == MAX_OPERATIONS).then(|| Choices::from_bytes(&self.operations)),
            threads: if self.has(2) && operations > 0 { 3 } else { 1 },
            crash: self.has(0),
            sound: false,
        }
    }

    fn exercise(&self, disk: &Arc<Disk>, plan: &Plan) -> Outcome {
        let out = exercise(disk, &self.base.layout, plan, &mut Choices::new(self.seed));
        assert!(out.wrong.is_empty(), "{:?}\n{}", out.wrong, self.damage.log.join("\n"));
        assert!(
            disk.requests() <= MAX_REQUESTS,
            "{} requests\n{}",
            disk.requests(),
            self.damage.log.join("\n")
        );
        out
    }
}

pub(super) fn verify(dev: &MemDevice) -> Option<Report> {
    let disk = Disk::new(dev.snapshot(), true);
    let options = CheckOptions {
        recovery: Recovery::InMemory,
        threads: 1,
        max_findings: 20,
        ..CheckOptions::default()
    };
    let report = extol_check::check(disk.clone(), &options, &mut |_| {}).ok();
    assert!(disk.found().is_empty(), "the checker writes");
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests of the checker", disk.requests());
    report
}

/// Open, walk everything, write, fsync, close; look at the result and open it again. What the
/// checker calls clean before, it must call clean afterwards.
pub fn volume(input: &[u8]) {
    let Some(recipe) = Recipe::new(input) else { return };
    let before = verify(&recipe.dev);
    if recipe.has(1) {
        recipe.exercise(&Disk::new(recipe.dev.snapshot(), true), &recipe.plan("ro", 0));
    }
    let disk = Disk::new(recipe.dev.snapshot(), recipe.options.ends_with(",ro"));
    let out = recipe.exercise(&disk, &recipe.plan(recipe.options, MAX_OPERATIONS));
    let after = verify(&disk.mem);
    let noticed = out.refused.is_some()
        || out.errors.keys().any(|e| e.starts_with("corrupt") || e.starts_with("I/O"));
    // A crash without a journal leaves what it leaves.
    let lost = recipe.has(0) && recipe.base.layout.journal.is_none();
    if before.as_ref().is_some_and(Report::is_clean) && !noticed && !lost {
        assert!(
            after.as_ref().is_some_and(Report::is_clean),
            "clean before, and afterwards: {}\n{}",
            after.map_or("no report".into(), |r| r.to_string()),
            recipe.damage.log.join("\n")
        );
    }
    recipe.exercise(&Disk::new(disk.mem.snapshot(), false), &recipe.plan("errors=continue", 4));
}

/// The checker on a damaged volume: as it will be after recovery, and as it lies.
pub fn check(input: &[u8]) {
    let Some(recipe) = Recipe::new(input) else { return };
    for recovery in [Recovery::InMemory, Recovery::Ignore] {
        let disk = Disk::new(recipe.dev.snapshot(), true);
        let paths = recipe.has(3);
        let options = CheckOptions {
            recovery,
            threads: 1,
            max_findings: 50,
            paths,
            ..CheckOptions::default()
        };
        if let Ok(report) = extol_check::check(disk.clone(), &options, &mut |_| {}) {
            assert!(report.findings.len() <= 50 && report.to_string().len() < 1 << 20);
            assert_eq!(report.is_clean(), report.errors == 0);
        }
        assert!(disk.found().is_empty(), "the checker writes");
        assert!(
            disk.requests() <= MAX_REQUESTS,
            "{} requests\n{}",
            disk.requests(),
            recipe.damage.log.join("\n")
        );
    }
}

/// Looking at the log (`extol log`), at the volume (`extol info`), and recovering without a mount
/// (`extol replay`).
pub fn log(input: &[u8]) {
    let Some(recipe) = Recipe::new(input) else { return };
    let disk = Disk::new(recipe.dev.snapshot(), true);
    let shared: SharedDevice = disk.clone();
    let info = extol::info(&shared).map(|info| info.to_string());
    let seen = extol::inspect_journal(&shared, &MountOptions::default());
    assert!(disk.found().is_empty(), "looking at the log writes");
    let disk = Disk::new(recipe.dev.snapshot(), false);
    let shared: SharedDevice = disk.clone();
    let replayed = extol::replay(&shared, &MountOptions::default());
    assert!(info.is_ok() || replayed.is_err());
    if let (Ok(seen), Ok(replayed)) = (&seen, &replayed)
        && replayed.was_needed
    {
        assert_eq!(seen.recovery.refused, None);
        assert_eq!(u64::from(seen.recovery.transactions), u64::from(replayed.transactions));
    }
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests", disk.requests());
}

/// Words of a request, and one byte for each in the input.
const TUNE: &[(char, &str)] = &[
    ('O', "orphan_file"),
    ('O', "^orphan_file"),
    ('O', "fast_commit,large_dir"),
    ('O', "^fast_commit"),
    ('O', "^dir_index"),
    ('O', "dir_index"),
    ('O', "^large_file,^huge_file,^dir_nlink"),
    ('O', "metadata_csum_seed"),
    ('O', "^metadata_csum_seed"),
    ('O', "extent,flex_bg"),
    ('E', "orphan_file_size=3"),
    ('E', "stride=4,hash_alg=tea"),
    ('o', "^acl,discard"),
    ('i', "3w"),
    ('U', ""),
    ('r', ""),
];

/// Words for the last bytes: what takes and frees blocks. (Not mmp: a claim waits.)
const TUNE_BLOCKS: &[(char, &str)] = &[
    ('O', "has_journal"),
    ('O', "^has_journal"),
    ('O', "^has_journal,^orphan_file"),
    ('O', "^resize_inode"),
    ('J', "size=1"),
    ('J', "size=4,location=2000"),
];

/// Tuning of a damaged volume. What the checker calls clean before, it must call clean afterwards,
/// whether the request was taken or not.
pub fn tune(input: &[u8]) {
    use extol::tune::{Request, ReservedBlocks};
    let Some(recipe) = Recipe::new(input) else { return };
    let mut request =
        Request::from_text(&String::from_utf8_lossy(&recipe.operations)).unwrap_or_default();
    for byte in recipe.operations.iter().take(8) {
        let table = if *byte < 0xF0 { TUNE } else { TUNE_BLOCKS };
        let (kind, list) = table[usize::from(*byte) % table.len()];
        let taken = match kind {
            'O' => request.set_features(list),
            'E' => request.set_extended(list),
            'J' => request.set_journal(list),
            'o' => request.set_default_options(list),
            'i' => request.set_interval(list),
            'U' => {
                request.uuid = Some([*byte; 16]);
                Ok(())
            }
            _ => {
                request.reserved = Some(ReservedBlocks::Count((*byte).into()));
                Ok(())
            }
        };
        taken.expect("a word of the list");
    }
    let before = verify(&recipe.dev);
    let disk = Disk::new(recipe.dev.snapshot(), false);
    let shared: SharedDevice = disk.clone();
    let tuned = extol::tune::tune(&shared, &MountOptions::default(), &request);
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests", disk.requests());
    if before.as_ref().is_some_and(Report::is_clean) {
        let after = verify(&disk.mem);
        assert!(
            after.as_ref().is_some_and(Report::is_clean),
            "clean before, and after {request:?} ({tuned:?}): {}\n{}",
            after.map_or("no report".into(), |r| r.to_string()),
            recipe.damage.log.join("\n")
        );
    }
}
