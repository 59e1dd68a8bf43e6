//! A journal on a device of its own comes, goes and learns a new UUID: for e2fsck and Linux, and
//! with a crash at every write of both devices.

use std::sync::Arc;

use extol::tune::tune;
use extol_block::open::Slice;
use extol_block::{BlockDevice, FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_testkit::{self as testkit, KernelMount, LoopDevice, Need};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::tune::{request, values};
use super::*;

/// Bytes of the volume, and of the journal behind it.
const VOLUME: u64 = 12 << 20;
const LOG: u64 = 2 << 20;

fn opened(path: &Path) -> SharedDevice {
    Arc::new(FileDevice::open(path, &OpenOptions::read_write()).unwrap())
}

fn with_log(log: SharedDevice) -> MountOptions {
    let mut options = MountOptions::default().without_threads();
    options.journal.device = Some(log);
    options
}

/// A journal device, by mke2fs.
fn journal(dir: &Path, block: &str, size: &str) -> PathBuf {
    let path = dir.join("log");
    let size = format!("={size}");
    let args = ["-q", "-F", "-b", block, "-O", "journal_dev", &size];
    let (code, text) = run("mke2fs", &args, &path);
    assert_eq!(code, 0, "{text}");
    path
}

/// e2fsck -fn of a volume with that journal.
fn assert_sound(volume: &Path, log: &Path, what: &str) {
    let args = ["-fn", "-j", log.to_str().unwrap()];
    let (code, text) = run("e2fsck", &args, volume);
    assert_eq!(code, 0, "{what}: {text}");
}

/// Users of a journal device, as dumpe2fs names them.
fn users(log: &Path) -> Vec<String> {
    let (code, text) = run("dumpe2fs", &[], log);
    assert_eq!(code, 0, "{text}");
    let mut lines = text.lines().skip_while(|line| !line.starts_with("Journal users:"));
    let first = lines.next().map(|line| line.trim_start_matches("Journal users:").trim());
    let is_one = |user: &&str| !user.is_empty() && !user.contains("none");
    first.filter(is_one).map(str::to_owned).into_iter().collect()
}

#[test]
fn a_journal_device_comes_and_goes_as_with_tune2fs() {
    if !testkit::require(&[
        Need::Tool("tune2fs"),
        Need::Tool("e2fsck"),
        Need::Root,
        Need::Loop,
        Need::Kernel("ext4"),
    ]) {
        return;
    }
    for layout in ["-t ext4 -b 1024 -O ^has_journal,^orphan_file", "-t ext2 -b 4096"] {
        let image = Image::new("40M", &layout.split(' ').collect::<Vec<_>>());
        image.with(|fs| fill_some(fs, 8));
        let theirs = image.copy();
        let dir = tempfile::tempdir().unwrap();
        let log = match layout.contains("1024") {
            true => journal(dir.path(), "1024", "2M"),
            false => journal(dir.path(), "4096", "16M"),
        };
        let pristine = std::fs::read(&log).unwrap();

        // As tune2fs, which wants a block device.
        let looped = LoopDevice::attach(&log);
        let with = format!("-J device={}", looped.path().display());
        let tuned = image.tune(&request(&with)).unwrap_or_else(|e| panic!("{layout}: {e}"));
        assert_eq!(tuned.changes.len(), 1, "{tuned:?}");
        assert_sound(&image.path, looped.path(), layout);
        let ours = users(&log);
        std::fs::write(&log, &pristine).unwrap();
        let words: Vec<&str> = with.split(' ').collect();
        let (code, text) = run("tune2fs", &words, &theirs.path);
        assert_eq!(code, 0, "{layout}: {text}");
        assert_eq!(image.superblock(), theirs.superblock(), "{layout}");
        assert_eq!((ours.len(), users(&log)), (1, ours.clone()), "{layout}");

        // Linux mounts it, and what it writes is there.
        let mounted = tempfile::tempdir().unwrap();
        let volume = testkit::Image::existing(&image.path);
        let option = format!("journal_path={}", looped.path().display());
        let mount = KernelMount::mount(&volume, mounted.path(), &[&option]);
        std::fs::write(mounted.path().join("linux"), b"linux").unwrap();
        mount.unmount();
        assert_sound(&image.path, looped.path(), layout);

        // A new UUID, for both.
        let change = |options: &str| {
            tune(&opened(&image.path), &with_log(opened(&log)), &request(options)).unwrap();
        };
        change("-U u");
        assert_eq!(users(&log), ["11111111-2222-3333-4444-555555555555"], "{layout}");
        assert_sound(&image.path, looped.path(), layout);
        let mount = KernelMount::mount(&volume, mounted.path(), &[&option]);
        assert_eq!(std::fs::read(mounted.path().join("linux")).unwrap(), b"linux");
        mount.unmount();

        // And it goes: another volume can have the device.
        change("-O ^has_journal");
        assert_eq!(users(&log), [""; 0], "{layout}");
        image.assert_clean(layout);
        image.with(|fs| assert_some(fs, 8, layout));
        let other = Image::new("40M", &layout.split(' ').collect::<Vec<_>>());
        other.tune(&request(&with)).unwrap_or_else(|e| panic!("{layout}: {e}"));
        let refused = image.tune(&request(&with)).expect_err("the other's").to_string();
        assert!(refused.contains("another volume uses it"), "{refused}");
    }
}

#[test]
fn what_cannot_be_the_journal_is_refused() {
    let image = Image::new("40M", &["-t", "ext2", "-b", "4096"]);
    let before = std::fs::read(&image.path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let small = journal(dir.path(), "1024", "2M");
    let device = |path: &Path| format!("-J device={}", path.display());
    for (options, words) in [
        (device(&dir.path().join("none")), "No such file"),
        (device(&small), "blocks have 1024 bytes"),
        (format!("{},size=4", device(&small)), "goes alone"),
        (format!("{} -L x", device(&small)), "goes alone"),
    ] {
        let error = image.tune(&request(&options)).expect_err(&options).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{options}: {error}");
    }
    let other = image.copy();
    let error = image.tune(&request(&device(&other.path))).expect_err("a volume").to_string();
    assert!(error.contains("no journal device"), "{error}");
    assert!(before == std::fs::read(&image.path).unwrap(), "it has written");
}

/// The two devices, as one that is recorded.
struct Pair {
    volume: SharedDevice,
    log: SharedDevice,
}

impl Pair {
    fn of(device: SharedDevice) -> Self {
        let volume = Slice::new(Arc::clone(&device), 0, VOLUME);
        Self { volume: Arc::new(volume), log: Arc::new(Slice::new(device, VOLUME, LOG)) }
    }
}

/// After a crash at any write of a change the volume opens, as before or as asked for, and the
/// change can be repeated.
#[test]
fn a_crash_at_every_write_of_both_devices() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for options in ["-U u", "-O ^has_journal"] {
        crashes(options);
    }
}

fn crashes(options: &str) {
    let image = Image::new("12M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^orphan_file"]);
    image.with(|fs| fill_some(fs, 8));
    let log = journal(image.path.parent().unwrap(), "1024", "2M");
    image.tune(&request(&format!("-J device={}", log.display()))).unwrap();
    let mut bytes = std::fs::read(&image.path).unwrap();
    bytes.extend(std::fs::read(&log).unwrap());
    let base = MemDevice::from_bytes(&bytes);
    let before = values(&base);
    let device = Arc::new(RecordingDevice::new(base));
    let pair = Pair::of(Arc::clone(&device) as _);
    tune(&pair.volume, &with_log(pair.log), &request(options)).unwrap();
    let end = device.position();
    let after = values(&device.image_at(end, |_| true));
    assert_ne!(before, after, "{options}");
    let events = device.log();
    let mut random = SmallRng::seed_from_u64(7);
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..=end).filter(|cut| *cut == 0 || !matches!(events[cut - 1], Event::Mark(_))) {
        for how in 0..3 {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{options}: cut {cut} of {end}, {how}");
            let crashed = Arc::new(device.image_at(cut, keep));
            let pair = Pair::of(Arc::clone(&crashed) as _);
            let has = values(&crashed).contains("has_journal");
            let mount = match has {
                true => with_log(pair.log),
                false => MountOptions::default().without_threads(),
            };
            let fs = Ext4::open(Arc::clone(&pair.volume), &mount)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_some(&fs, 8, &what);
            fs.unmount().unwrap();
            drop(fs);
            let now = values(&crashed);
            assert!(now == before || now == after, "{what}: {now}\n{before}\n{after}");
            assert!(cut < end || now == after, "{what}: it had returned");
            seen.insert(now);
            // Linux and e2fsck ask for the journal's UUID only.
            let mut all = vec![0; (VOLUME + LOG) as usize];
            crashed.read_at(&mut all, 0).unwrap();
            let (volume, journal) = all.split_at(VOLUME as usize);
            std::fs::write(&image.path, volume).unwrap();
            std::fs::write(&log, journal).unwrap();
            match has {
                true => assert_sound(&image.path, &log, &what),
                false => image.assert_clean(&what),
            }
            let again = Pair::of(Arc::clone(&crashed) as _);
            tune(&again.volume, &mount, &request(options))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(values(&crashed), after, "{what}: repeated");
        }
    }
    assert_eq!(seen.len(), 2, "{options}");
}
