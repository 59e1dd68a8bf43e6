//! Volumes without a journal become smaller with a log that is lent to them: against resize2fs, and
//! with a crash at every write.

use std::ops::Range;
use std::sync::Arc;

use extol::resize::ResizeError;
use extol::tune::tune;
use extol_block::{BlockDevice, MemDevice, SharedDevice};
use extol_check::{CheckOptions, Finding, Kind, Severity};
use extol_devices::{Event, RecordingDevice};
use extol_testkit::{self as testkit, Need};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::crash::write_out;
use super::*;

/// Layouts, with sizes in KiB.
const CASES: &[(&str, u64)] = &[
    // One group.
    ("-t ext4 -b 1024 -O ^has_journal", 6_000),
    ("-t ext4 -b 4096 -O ^has_journal", 24_000),
    ("-t ext2 -b 1024", 6_000),
    // The log moves to another group.
    ("-t ext4 -b 1024 -O ^has_journal", 20_000),
    ("-t ext2 -b 1024", 20_000),
    ("-t ext4 -b 1024 -O ^has_journal,^metadata_csum,uninit_bg,^flex_bg", 28_000),
    ("-t ext4 -b 1024 -O ^has_journal,meta_bg,^resize_inode", 28_000),
    // The last group is full: the volume gets another one first.
    ("-t ext4 -b 4096 -g 4096 -O ^has_journal", 32_768),
];

/// A volume whose files lie behind a hole.
fn volume((layout, kib): (&str, u64)) -> Image {
    let args: Vec<&str> = layout.split(' ').collect();
    let image = Image::new(&format!("{kib}k"), &args);
    image.with(|fs| {
        let ballast = common::file(fs, fs.root(), "ballast");
        let bytes = vec![1; (kib as usize / 2) << 10];
        let mut at = 0;
        while at < bytes.len() {
            at += fs.write(ballast, at as u64, &bytes[at..]).unwrap();
        }
        fs.fsync(ballast, false).unwrap();
        fill_some(fs, 8);
        fs.sync().unwrap();
        fs.unlink(fs.root(), b"ballast").unwrap();
    });
    image.assert_clean(layout);
    image
}

fn features(image: &Image) -> String {
    let (_, text) = run("dumpe2fs", &["-h"], &image.path);
    let line = text.lines().find(|line| line.starts_with("Filesystem features:"));
    line.unwrap().to_owned()
}

#[track_caller]
fn assert_without_journal(image: &Image, before: &str, what: &str) {
    image.assert_clean(what);
    assert_eq!(features(image), before, "{what}");
    let (_, inode) = run("debugfs", &["-R", "stat <8>"], &image.path);
    assert!(inode.contains("Links: 0") && inode.contains("Blockcount: 0"), "{what}: {inode}");
}

#[test]
fn as_small_as_resize2fs_makes_it() {
    if !testkit::require(&[Need::Tool("resize2fs")]) {
        return;
    }
    for case in CASES {
        let what = format!("{case:?}");
        let image = volume(*case);
        let (before, had) = (image.blocks(), features(&image));
        let theirs = Image { _dir: TempDir::new().unwrap(), path: image.path.with_extension("2") };
        std::fs::copy(&image.path, &theirs.path).unwrap();
        let (code, text) = run("resize2fs", &["-f", "-M"], &theirs.path);
        assert_eq!(code, 0, "{what}: {text}");
        let device: Arc<dyn BlockDevice> =
            Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).unwrap()));
        let options = MountOptions::default().without_threads();
        let said = Ext4::minimum(&device, &options, &mut |_| true).unwrap();
        let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap());
        assert_eq!((done.before, done.blocks), (before, image.blocks()), "{what}");
        assert_eq!(said.minimum, done.blocks, "{what}");
        println!("{what}: {} to {}, resize2fs to {}", before, done.blocks, theirs.blocks());
        assert!(done.blocks <= theirs.blocks(), "{what}: {done:?}, not {}", theirs.blocks());
        let bytes = std::fs::metadata(&image.path).unwrap().len();
        assert_eq!(bytes, done.blocks * image.number("Block size"), "{what}");
        assert_without_journal(&image, &had, &what);
        image.with(|fs| assert_some(fs, 8, &what));
        let again = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap());
        assert_eq!(again.blocks, done.blocks, "{what}");
        assert_without_journal(&image, &had, &what);
        image.with(|fs| assert_some(fs, 8, &what));
    }
}

/// Also one at the end of a group, where there is no room for the log behind it.
#[test]
fn a_size_that_is_asked_for() {
    for case in [CASES[3], CASES[4]] {
        for blocks in [5000, 7150, 8000, 8193, 12_000] {
            let what = format!("{case:?} to {blocks}");
            let image = volume(case);
            let had = features(&image);
            let done = image.with(|fs| fs.resize(Target::Blocks(blocks), &mut |_| true).unwrap());
            assert_eq!((done.blocks, image.blocks()), (blocks, blocks), "{what}");
            assert_without_journal(&image, &had, &what);
            image.with(|fs| assert_some(fs, 8, &what));
        }
    }
}

const ADVICE: &str = "give it a journal (extol tune -j), resize it, and take the journal away \
    again (extol tune -O ^has_journal)";

/// What is said where no log can be lent works, with block maps and little room, too.
#[test]
fn with_a_journal_for_the_time_of_it() {
    for case in [("-t ext4 -b 1024 -O ^has_journal", 24_576), ("-t ext2 -b 1024", 24_576)] {
        let (layout, kib) = case;
        let image = Image::new(&format!("{kib}k"), &layout.split(' ').collect::<Vec<_>>());
        let had = features(&image);
        let bytes = contents(1, 588_895);
        let ino = image.with(|fs| {
            let ino = common::file(fs, fs.root(), "a");
            assert_eq!(fs.write(ino, 0, &bytes), Ok(bytes.len()));
            ino
        });
        image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect_err("no room");
        image.tune(&super::tune::request("-O has_journal")).unwrap();
        let to = |image: &Image, target| image.with(|fs| fs.resize(target, &mut |_| true));
        let least = to(&image.copy(), Target::Minimum).unwrap().blocks;
        for blocks in (least..least + 16).step_by(3) {
            let copy = image.copy();
            let what = format!("{case:?} to {blocks}");
            if let Err(e) = to(&copy, Target::Blocks(blocks)) {
                assert!(matches!(e, ResizeError::NoRoom { .. }), "{what}: {e}");
            }
            copy.assert_clean(&what);
        }
        assert_eq!(to(&image, Target::Minimum).unwrap().blocks, least, "{case:?}");
        image.assert_clean("with a journal");
        image.tune(&super::tune::request("-O ^has_journal")).unwrap();
        assert_without_journal(&image, &had, &format!("{case:?}"));
        let mut read = vec![0; bytes.len()];
        assert_eq!(image.with(|fs| fs.read(ino, 0, &mut read)), Ok(bytes.len()));
        assert!(read == bytes, "{case:?}");
    }
}

#[test]
fn refused_before_anything_is_written() {
    let cases: [(&str, u64, Target, &str); 4] = [
        ("-t ext4 -b 1024 -O ^has_journal -g 1024", 6_000, Target::Minimum, ADVICE),
        ("-t ext4 -b 1024 -O ^has_journal", 8_193, Target::Minimum, ADVICE),
        ("-t ext4 -b 1024 -O ^has_journal,sparse_super2", 28_000, Target::Minimum, ADVICE),
        ("-t ext4 -b 1024 -O ^has_journal", 6_000, Target::Blocks(100), "at least"),
    ];
    for (layout, kib, target, words) in cases {
        let image = volume((layout, kib));
        let before = std::fs::metadata(&image.path).unwrap().len();
        let error = image.with(|fs| fs.resize(target, &mut |_| true).unwrap_err()).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{layout}: {error}");
        image.assert_clean(layout);
        assert_eq!(std::fs::metadata(&image.path).unwrap().len(), before, "{layout}");
        image.with(|fs| assert_some(fs, 8, layout));
    }
}

/// A progress that says no leaves the volume as it was.
#[test]
fn stopped_before_it_begins() {
    let image = volume(CASES[3]);
    let (before, had) = (image.blocks(), features(&image));
    let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| false).unwrap());
    assert_eq!((done.blocks, image.blocks()), (before, before));
    assert_without_journal(&image, &had, "stopped");
}

#[test]
fn sound_after_a_crash_at_every_write() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let only = std::env::var("EXTOL_CASE").ok().and_then(|nr| nr.parse::<usize>().ok());
    for (nr, case) in CASES.iter().enumerate().filter(|(nr, _)| only.is_none_or(|o| o == *nr)) {
        crashes(*case, nr as u64);
    }
}

/// What is found where the journal's inode is written before the superblock, or cleared behind it.
fn is_journal_inode(repair: &str) -> bool {
    repair.contains("Journal inode is not in use, but contains data")
}

/// Errors, but for that inode.
fn errors(device: &MemDevice) -> Vec<Finding> {
    let options = CheckOptions { recovery: extol_check::Recovery::InMemory, ..Default::default() };
    let device = Arc::new(device.snapshot());
    let mut found = extol_check::check(device, &options, &mut |_| {}).unwrap().findings;
    found.retain(|finding| finding.severity == Severity::Error);
    // (Its contents count for nothing then.)
    if found.iter().any(|f| f.kind == Kind::InodeReserved && f.inode == Some(8)) {
        found.retain(|finding| finding.inode != Some(8));
    }
    found
}

/// Makes it as small as may be; gives the writes, and which of them did that, too.
fn recorded(image: &Image) -> (Resized, Arc<RecordingDevice>, Range<usize>) {
    let (device, fs) = image.recorded();
    let start = device.position();
    let done = fs.resize(Target::Minimum, &mut |_| true).unwrap();
    let end = device.position();
    fs.unmount().unwrap();
    (done, device, start..end)
}

fn crashes(case: (&str, u64), seed: u64) {
    let image = volume(case);
    let had = features(&image);
    let (done, device, Range { start, end: shrunk }) = recorded(&image);
    let log = device.log();
    // All at the beginning and at the end, where the log is given and taken; else some.
    let every = ((shrunk - start) / 60).max(1);
    let is_edge = |cut: usize| cut < start + 20 || cut + 60 > shrunk;
    let cuts = (start..=shrunk)
        .filter(|cut| *cut == start || !matches!(log[cut - 1], Event::Mark(_)))
        .filter(|cut| is_edge(*cut) || cut.is_multiple_of(every));
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut count, mut lent) = (0_u32, 0);
    for cut in cuts {
        for how in 0..3 {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{case:?}, cut {cut} of {start} to {shrunk}, {how}");
            let crashed = device.image_at(cut, keep);
            let errors = errors(&crashed);
            assert!(errors.is_empty(), "{what}: {errors:#?}");
            count += 1;
            if count.is_multiple_of(11) {
                lent += assert_goes_on(&image, &crashed, &had, done.blocks, &what);
            }
        }
    }
    println!("{case:?}: {count} states, {lent} of some with a lent log");
    assert!(count > 60 && lent > 1, "{case:?}: {count}, {lent}");
}

/// e2fsck repairs nothing, and the same run completes. Gives whether it had a journal.
fn assert_goes_on(image: &Image, crashed: &MemDevice, had: &str, blocks: u64, what: &str) -> u32 {
    let path = image.path.with_file_name("crashed");
    write_out(crashed, &path);
    let report = testkit::e2fsck_fix(&testkit::Image::existing(&path));
    assert_eq!(report.unexpected_repairs_but(is_journal_inode), None, "{what}");
    let again = Image { _dir: TempDir::new().unwrap(), path };
    write_out(crashed, &again.path);
    let has_journal = features(&again).contains("has_journal");
    let done = again.with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap());
    assert!(done.blocks <= blocks + blocks / 8, "{what}: {done:?}, not {blocks}");
    assert_without_journal(&again, had, what);
    again.with(|fs| assert_some(fs, 8, what));
    u32::from(has_journal)
}

/// The log of a run that was interrupted is taken away by `tune -O ^has_journal`. Where that is
/// interrupted, too, e2fsck gives back the blocks, and no resize loses them before.
#[test]
fn a_lent_log_that_tune_takes_away() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for case in [CASES[0], CASES[2]] {
        let image = volume(case);
        let had = features(&image);
        let (_, device, writes) = recorded(&image);
        let left = device.image_at(writes.start.midpoint(writes.end), |_| true);
        write_out(&left, &image.path);
        assert!(features(&image).contains("has_journal"), "{case:?}");
        let device = Arc::new(RecordingDevice::new(left));
        let shared: SharedDevice = Arc::clone(&device) as _;
        tune(&shared, &MountOptions::default(), &super::tune::request("-O ^has_journal")).unwrap();
        let mut refused = 0;
        for cut in 0..=device.position() {
            for keep in [true, false] {
                write_out(&device.image_at(cut, |_| keep), &image.path);
                let what = format!("{case:?}, cut {cut}, {keep}");
                if let Err(e) = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)) {
                    assert!(e.to_string().contains("run e2fsck"), "{what}: {e}");
                    refused += 1;
                    let report = testkit::e2fsck_fix(&testkit::Image::existing(&image.path));
                    assert_eq!(report.code & !1, 0, "{what}: {}", report.output);
                    image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect(&what);
                }
                assert_without_journal(&image, &had, &what);
                image.with(|fs| assert_some(fs, 8, &what));
            }
        }
        assert!(refused > 0, "{case:?}");
    }
}
