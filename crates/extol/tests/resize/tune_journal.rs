//! The journal comes and goes, and so do multi-mount protection and the resize inode: as tune2fs
//! does it, for e2fsck and Linux, and with a crash at every write.

use std::sync::Arc;

use extol::tune::{Request, tune};
use extol_block::{BlockDevice, MemDevice, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_ondisk::{Compat, Superblock};
use extol_testkit::{self as testkit, KernelMount, Need};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::crash::write_out;
use super::tune::{request, values};
use super::*;

/// Makes a journal: layout, and options of tune2fs.
const MADE: &[(&str, &str)] = &[
    ("-t ext2 -b 1024", "-J size=4"),
    ("-t ext2 -b 4096", "-O has_journal"),
    ("-t ext4 -O ^has_journal,^orphan_file", "-J size=8 -O fast_commit"),
    ("-t ext4 -b 1024 -O ^has_journal,^orphan_file,^metadata_csum,uninit_bg", "-J size=6"),
    ("-t ext4 -b 2048 -I 128 -O ^has_journal,^orphan_file,^64bit", "-O has_journal -L new"),
];

fn linux() -> bool {
    testkit::require(&[Need::Root, Need::Loop, Need::Kernel("ext4")])
}

/// Linux mounts it, finds the files, and makes one.
fn linux_takes(path: &Path, what: &str) {
    let image = testkit::Image::existing(path);
    let dir = tempfile::tempdir().unwrap();
    let mount = KernelMount::mount(&image, dir.path(), &[]);
    for nr in [1, 6] {
        let bytes = std::fs::read(dir.path().join(format!("file{nr}"))).unwrap();
        assert_eq!(bytes, contents(nr, 3000 + 517 * nr as usize), "{what}: file {nr}");
    }
    std::fs::write(dir.path().join("linux"), contents(9, 90_000)).unwrap();
    mount.unmount();
}

#[test]
fn a_journal_is_made_as_tune2fs_makes_it() {
    if !testkit::require(&[Need::Tool("tune2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let linux = linux();
    for (layout, options) in MADE {
        let what = format!("{layout}: {options}");
        let base = Image::new("70M", &layout.split(' ').collect::<Vec<_>>());
        base.with(|fs| fill_some(fs, 8));
        let (ours, theirs) = (base.copy(), base.copy());
        let tuned = ours.tune(&request(options)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let features = tuned.changes.iter().find(|change| change.property == "features");
        assert!(features.is_some_and(|change| change.after.contains("has_journal")), "{what}");
        ours.assert_clean(&what);
        let words: Vec<&str> = options.split(' ').collect();
        let (code, text) = run("tune2fs", &words, &theirs.path);
        assert_eq!(code, 0, "{what}: {text}");
        assert_eq!(ours.superblock(), theirs.superblock(), "{what}");
        ours.with(|fs| assert_some(fs, 8, &what));
        ours.assert_clean(&what);
        if linux {
            linux_takes(&ours.path, &what);
            ours.assert_clean(&what);
        }
        // And it goes again.
        let feature = if options.contains("orphan_file") { ",^orphan_file" } else { "" };
        ours.tune(&request(&format!("-O ^has_journal{feature}"))).unwrap();
        ours.assert_clean(&what);
        let blocks = base.number("Free blocks")
            - u64::from(linux) * 90_000_u64.div_ceil(base.number("Block size"));
        assert!(ours.number("Free blocks").abs_diff(blocks) <= 2, "{what}");
        ours.with(|fs| assert_some(fs, 8, &what));
        if linux {
            linux_takes(&ours.path, &what);
            ours.assert_clean(&what);
        }
    }
}

/// What a crash may leave to e2fsck -p in a volume that has no journal, with what it asks.
const WITHOUT: &[&str] = &["Journal inode is not in use, but contains data"];
const GOING: &[&str] = &[
    "Journal inode is not in use, but contains data",
    "Block bitmap differences",
    "Free blocks count wrong",
    "bitmap does not match checksum",
    "Group descriptor",
];

const CRASHES: &[(&str, &str, &[&str])] = &[
    ("-t ext2 -b 1024", "-J size=2 -L new", WITHOUT),
    ("-t ext4 -b 1024 -O ^has_journal,^orphan_file", "-J size=2 -O fast_commit -m 1", WITHOUT),
    (
        "-t ext4 -b 1024 -O ^has_journal,^orphan_file,^metadata_csum,uninit_bg",
        "-J size=2 -O orphan_file",
        WITHOUT,
    ),
    ("-t ext3 -b 1024 -J size=2", "-O ^has_journal", GOING),
    ("-t ext4 -b 1024 -J size=2 -O fast_commit,orphan_file", "-O ^has_journal,^orphan_file", GOING),
];

#[test]
fn a_crash_while_the_journal_comes_or_goes() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let linux = linux();
    std::thread::scope(|s| {
        for (nr, case) in CRASHES.iter().enumerate() {
            s.spawn(move || crashes(case, nr as u64, linux));
        }
    });
}

fn has_journal(device: &MemDevice) -> bool {
    let mut bytes = vec![0; 1024];
    device.read_at(&mut bytes, 1024).unwrap();
    Superblock::decode(&bytes).unwrap().feature_compat.contains(Compat::HAS_JOURNAL)
}

fn crashes((layout, options, known): &(&str, &str, &[&str]), seed: u64, linux: bool) {
    let image = Image::new("16M", &layout.split(' ').collect::<Vec<_>>());
    image.with(|fs| fill_some(fs, 8));
    let base = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
    let before = values(&base);
    let device = Arc::new(RecordingDevice::new(base));
    let shared: SharedDevice = Arc::clone(&device) as _;
    tune(&shared, &MountOptions::default(), &request(options)).unwrap();
    let end = device.position();
    let after = values(&device.image_at(end, |_| true));
    assert_ne!(before, after, "{layout}: {options}");
    let log = device.log();
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut old, mut new) = (0, 0);
    for cut in (0..=end).filter(|cut| *cut == 0 || !matches!(log[cut - 1], Event::Mark(_))) {
        for how in 0..3 {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{layout}: {options}: cut {cut} of {end}, {how}");
            let crashed = device.image_at(cut, keep);
            let without = !has_journal(&crashed);
            let path = image.path.with_file_name("crashed");
            write_out(&crashed, &path);
            // e2fsck asks nothing, where there is a journal, and else nothing but what is known.
            let report = testkit::e2fsck_fix(&testkit::Image::existing(&path));
            let may_be = |line: &str| without && known.iter().any(|known| line.contains(known));
            assert_eq!(report.unexpected_repairs_but(may_be), None, "{what}");
            let fixed = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
            let now = values(&fixed);
            let between = options.contains("^orphan_file") && now.contains("\"has_journal\"");
            assert!(now == before || now == after || between, "{what}: {now}\n{before}\n{after}");
            assert!(cut < end || now == after, "{what}: it had returned");
            (old, new) = (old + u32::from(now == before), new + u32::from(now == after));
            let options = MountOptions::default().without_threads();
            let fs = Ext4::open(Arc::clone(&fixed) as _, &options).unwrap();
            assert_some(&fs, 8, &what);
            fs.unmount().unwrap();
            // So does Extol without e2fsck, and what is then to be done is the same.
            let recovered = Arc::new(crashed.snapshot());
            let fs = Ext4::open(Arc::clone(&recovered) as _, &options)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_some(&fs, 8, &what);
            fs.unmount().unwrap();
            assert_eq!(values(&recovered), now, "{what}");
            if !without {
                write_out(&recovered, &path);
                let (code, text) = run("e2fsck", &["-fn"], &path);
                assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
            }
            if linux && how == 0 {
                write_out(&crashed, &path);
                linux_takes(&path, &what);
                if !without {
                    let (code, text) = run("e2fsck", &["-fn"], &path);
                    assert_eq!(code, 0, "{what}: after Linux, e2fsck says\n{text}");
                }
            }
        }
    }
    assert!(old > 3 && new > 3, "{layout}: {options}: {old} {new}");
}

/// What is refused has changed nothing.
#[test]
fn refused_journals_change_nothing() {
    if !testkit::require(&[Need::Tool("mke2fs")]) {
        return;
    }
    for (layout, options, words) in [
        ("-t ext4", "-J size=4", "a journal already"),
        ("-t ext2", "-J size=39", "too full"),
        ("-t ext2 -b 4096", "-J size=2", "1024 to 10240000 blocks"),
        ("-t ext2", "-J size=4,fast_commit_size=64", "add -O fast_commit"),
        ("-t ext2", "-J size=4,location=1T", "blocks"),
        ("-t ext2", "-O mmp", "give it one (-j)"),
        ("-t ext2", "-O ^resize_inode", "give it one (-j)"),
        ("-t ext4 -O orphan_file", "-O ^has_journal", "^has_journal,^orphan_file"),
        ("-t ext4 -O ^orphan_file", "-O ^has_journal -E force_fsck", "run e2fsck first"),
        ("-t ext4 -O ^orphan_file", "-O ^has_journal,orphan_file", "let both go"),
    ] {
        let what = format!("{layout}: {options}");
        let image = Image::new("40M", &layout.split(' ').collect::<Vec<_>>());
        let before = image.superblock();
        let error = image.tune(&request(options)).expect_err(&what).to_string();
        assert!(error.contains(words), "{what}: {error}");
        assert!(!error.contains('\n') && error.len() < 250, "{what}: {error}");
        assert_eq!(image.superblock(), before, "{what}");
        image.assert_clean(&what);
    }
}

/// Many small holes: more extents than the inode holds, and none that is long enough.
#[test]
fn a_journal_in_many_pieces() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for layout in ["-t ext2 -b 1024", "-t ext4 -b 1024 -O ^has_journal,^orphan_file"] {
        let image = Image::new("24M", &layout.split(' ').collect::<Vec<_>>());
        image.with(|fs| {
            fill_some(fs, 8);
            let ino = common::file(fs, fs.root(), "holes");
            let mut at = 0;
            while fs.write(ino, at, &[1; 64 << 10]).is_ok_and(|done| done == 64 << 10) {
                at += 64 << 10;
                fs.fsync(ino, false).unwrap();
            }
            for hole in (0..at).step_by(160 << 10) {
                fs.fallocate(ino, extol::vfs::Fallocate::PunchHole, hole, 80 << 10).unwrap();
            }
        });
        image.tune(&request("-J size=2")).unwrap();
        image.assert_clean(layout);
        image.with(|fs| assert_some(fs, 8, layout));
        image.assert_clean(layout);
        if linux() {
            linux_takes(&image.path, layout);
            image.assert_clean(layout);
        }
        let (_, text) = run("debugfs", &["-R", "ex <8>"], &image.path);
        assert!(layout.contains("ext2") || text.lines().count() > 6, "{text}");
        image.tune(&request("-O ^has_journal")).unwrap();
        image.assert_clean(layout);
    }
}

/// The blocks behind the descriptors become free, at any crash all of them or none.
#[test]
fn the_resize_inode_goes() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for layout in ["-t ext4 -b 1024 -g 1024", "-t ext3 -b 4096"] {
        let image = Image::new("40M", &layout.split(' ').collect::<Vec<_>>());
        image.with(|fs| fill_some(fs, 8));
        let base = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
        let free = image.number("Free blocks");
        let device = Arc::new(RecordingDevice::new(base));
        let shared: SharedDevice = Arc::clone(&device) as _;
        tune(&shared, &MountOptions::default(), &request("-O ^resize_inode")).unwrap();
        let path = image.path.with_file_name("crashed");
        for cut in 0..=device.position() {
            let crashed = Arc::new(device.image_at(cut, |_| true));
            let options = MountOptions::default().without_threads();
            let fs = Ext4::open(Arc::clone(&crashed) as _, &options).unwrap();
            assert_some(&fs, 8, layout);
            fs.unmount().unwrap();
            write_out(&crashed, &path);
            let (code, text) = run("e2fsck", &["-fn"], &path);
            assert_eq!(code, 0, "{layout}: cut {cut}: e2fsck says\n{text}");
        }
        let tuned = Image { _dir: tempfile::tempdir().unwrap(), path };
        assert!(tuned.number("Free blocks") > free, "{layout}");
        assert!(!tuned.superblock().contains("resize_inode"), "{layout}");
        if linux() {
            linux_takes(&tuned.path, layout);
            tuned.assert_clean(layout);
        }
    }
}

/// Sets the block of multi-mount protection to "not in use", without its checksum.
fn release_mmp(device: &MemDevice) {
    let mut bytes = vec![0; 1024];
    device.read_at(&mut bytes, 1024).unwrap();
    let sb = Superblock::decode(&bytes).unwrap();
    if sb.mmp_block != 0 {
        let at = sb.mmp_block * u64::from(sb.block_bytes()) + 4;
        device.write_at(&extol_ondisk::mmp::SEQ_CLEAN.to_le_bytes(), at).unwrap();
    }
}

/// Multi-mount protection comes and goes. Between superblock and bitmap a crash leaves one block.
#[test]
fn multi_mount_protection_comes_and_goes() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image =
        Image::new("16M", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^orphan_file"]);
    image.with(|fs| fill_some(fs, 8));
    let free = image.number("Free blocks");
    let path = image.path.with_file_name("crashed");
    // (With an interval of 1 s no claim waits.)
    for options in ["-O mmp -E mmp_update_interval=1", "-O ^mmp"] {
        let base = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
        let device = Arc::new(RecordingDevice::new(base));
        let shared: SharedDevice = Arc::clone(&device) as _;
        tune(&shared, &MountOptions::default(), &request(options)).unwrap();
        let mut left = 0;
        for cut in 0..=device.position() {
            let what = format!("{options}: cut {cut}");
            let crashed = Arc::new(device.image_at(cut, |_| true));
            release_mmp(&crashed);
            let without_threads = MountOptions::default().without_threads();
            let fs = Ext4::open(Arc::clone(&crashed) as _, &without_threads).unwrap();
            assert_some(&fs, 8, &what);
            fs.unmount().unwrap();
            write_out(&crashed, &path);
            let (code, text) = run("e2fsck", &["-fn"], &path);
            if code != 0 && options.contains("^mmp") {
                let lines = text.lines().filter(|line| line.contains("differences"));
                assert_eq!(lines.count(), 1, "{what}: e2fsck says\n{text}");
                left += 1;
            } else {
                assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
            }
        }
        assert!(left < 12, "{options}: {left}");
        std::fs::copy(&path, &image.path).unwrap();
        image.assert_clean(options);
        let on = !options.contains('^');
        assert_eq!(image.superblock().contains(" mmp "), on, "{options}");
        assert_eq!(image.number("Free blocks"), free - u64::from(on), "{options}");
        if on {
            let (_, text) = run("dumpe2fs", &["-h"], &image.path);
            assert!(text.contains("mmp_sequence: 0xff4d4d50"), "{text}");
            assert!(image.tune(&Request::default()).is_ok());
        }
    }
}
