//! Hundreds of damaged journals on devices of their own, with a transaction in them.
//!
//! `EXTOL_SEED=n` runs one case; `EXTOL_CASES=n` so many.

use std::sync::Arc;
use std::time::Duration;

use extol::mkfs::{JournalDevice, MkfsOptions, mkfs};
use extol::vfs::{Creds, FileSystem as _, NewNode};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice as _, MemDevice, SharedDevice};
use extol_hostile::choices::Choices;
use extol_hostile::disk::{Disk, pattern};
use extol_hostile::exercise::{Plan, exercise};
use extol_hostile::layout::{Layout, read};
use extol_hostile::watch::{self, Ended};
use extol_ondisk::checksum::crc32c;

const CASES: u64 = 400;
const LIMIT: Duration = Duration::from_secs(20);
const BLOCK: u64 = 1024;
/// Where the superblock of the journal is: behind that of the device.
const JOURNAL: u64 = 2 * BLOCK;

/// A volume that was not closed, and its log.
fn dirty() -> (MemDevice, MemDevice) {
    let log = Arc::new(MemDevice::new(2 << 20));
    let options = MkfsOptions {
        block_size: Some(BLOCK as u32),
        features: vec!["journal_dev".into()],
        ..MkfsOptions::default()
    };
    mkfs(&*log, &options, &mut |_| {}).expect("a journal device");
    let volume = MemDevice::new(6 << 20);
    let mut options = MkfsOptions { block_size: Some(BLOCK as u32), ..MkfsOptions::default() };
    options.journal.device = Some(JournalDevice { device: log.clone() as SharedDevice, rdev: 0 });
    mkfs(&volume, &options, &mut |_| {}).expect("a volume");
    let disk = Disk::new(volume, false);
    let fs = Ext4::open(disk.clone(), &with(&log, false, "")).expect("open");
    for n in 0..40 {
        let name = format!("file{n}");
        let kind = NewNode::Regular;
        let made = fs.create(fs.root(), name.as_bytes(), kind, 0o644, 0, Creds::default());
        let ino = made.expect("a file").id.ino;
        fs.write(ino, 0, &pattern(3000)).expect("contents");
        fs.fsync(ino, false).expect("fsync");
    }
    fs.crash();
    drop(fs);
    (disk.mem.snapshot(), log.snapshot())
}

fn with(log: &MemDevice, read_only: bool, words: &str) -> MountOptions {
    let mut options = MountOptions::parse(words).expect("options");
    options.journal.device = Some(Disk::new(log.snapshot(), read_only) as SharedDevice);
    options
}

fn damage(log: &MemDevice, rng: &mut Choices) {
    for _ in 0..1 + rng.below(4) {
        let (at, len) = match rng.below(4) {
            // A field of the journal's superblock, of the device's, any word in front.
            0 | 1 => (JOURNAL + 4 * rng.below(26) as u64, 4),
            2 => (BLOCK + rng.below(256) as u64 * 4, 4),
            _ => (JOURNAL + BLOCK + 4 * rng.below(40 * 256) as u64, 1 + rng.below(64)),
        };
        let value = match rng.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << rng.below(32),
            3 => rng.any() % 4096,
            _ => rng.any(),
        };
        let bytes: Vec<u8> = (value as u32).to_be_bytes().into_iter().cycle().take(len).collect();
        log.write_at(&bytes, at).expect("write");
        if at < JOURNAL + BLOCK && !rng.one_in(4) {
            seal(log, at / BLOCK * BLOCK);
        }
    }
}

/// Makes the checksum of a superblock right.
fn seal(log: &MemDevice, at: u64) {
    let mut bytes = read(log, at, BLOCK as usize);
    let place = if at == JOURNAL { 0xFC } else { 0x3FC };
    bytes[place..place + 4].fill(0);
    let sum = if at == JOURNAL { crc32c(!0, &bytes) } else { crc32c(!0, &bytes[..place]) };
    let sum = if at == JOURNAL { sum.to_be_bytes() } else { sum.to_le_bytes() };
    bytes[place..place + 4].copy_from_slice(&sum);
    log.write_at(&bytes, at).expect("write");
}

/// What went wrong, and how many mounts were refused.
fn case(seed: u64, volume: &MemDevice, log: &MemDevice) -> (Vec<String>, usize) {
    let mut rng = Choices::new(seed);
    let log = log.snapshot();
    damage(&log, &mut rng);
    let layout = Layout::of(volume);
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let looked: SharedDevice = Disk::new(volume.snapshot(), true);
    let options = with(&log, true, "");
    let _ = extol::info_with(&looked, &options).map(|info| info.to_string());
    let _ = extol::inspect_journal(&looked, &options);
    let device: SharedDevice = Disk::new(log.snapshot(), true);
    let _ = extol::inspect_journal(&device, &MountOptions::default());
    for (words, read_only) in [("ro", true), ("errors=continue", false)] {
        let disk = Disk::new(volume.snapshot(), read_only);
        let plan = Plan {
            options: with(&log, read_only, words),
            focus: Vec::new(),
            operations: if read_only { 0 } else { 12 },
            script: None,
            threads: 1,
            crash: rng.one_in(2),
            sound: false,
        };
        let out = exercise(&disk, &layout, &plan, &mut rng);
        refused += usize::from(out.refused.is_some());
        wrong.extend(out.wrong);
    }
    (wrong, refused)
}

#[test]
fn damaged_journal_devices() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (volume, log) = dirty();
    let seeds = match number("EXTOL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("EXTOL_CASES").unwrap_or(CASES),
    };
    let (mut refused, mut mounts) = (0, 0);
    for seed in seeds.clone() {
        let (volume, log) = (volume.snapshot(), log.snapshot());
        let mut wrong = match watch::within(LIMIT, move || case(seed, &volume, &log)) {
            Ended::Value((wrong, count), _) => {
                refused += count;
                mounts += 2;
                wrong
            }
            Ended::Panicked => vec!["a panic".into()],
            Ended::TooLong => vec![format!("no end within {LIMIT:?}")],
        };
        wrong.extend(watch::panics());
        assert!(wrong.is_empty(), "EXTOL_SEED={seed}: {wrong:#?}");
    }
    // Both ends are met.
    let one = seeds.end - seeds.start == 1;
    assert!(one || (refused > 0 && refused < mounts), "{refused} of {mounts} mounts refused");
}
