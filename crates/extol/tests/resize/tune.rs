//! Volumes are tuned: against tune2fs on a copy, and with a crash at every write.

use std::collections::BTreeSet;
use std::sync::Arc;

use extol::options::ErrorPolicy;
use extol::tune::{Request, ReservedBlocks, TuneError, Tuned, tune};
use extol_block::{BlockDevice, FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_ondisk::{Incompat, RoCompat, Superblock};
use extol_testkit as testkit;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::crash::write_out;
use super::*;

const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// The request that tune2fs's options stand for.
pub(super) fn request(options: &str) -> Request {
    let mut request = Request::default();
    let words: Vec<_> = options.split(' ').collect();
    let (pairs, rest) = words.as_chunks::<2>();
    assert!(rest.is_empty(), "{options}");
    for [option, value] in pairs {
        let number = || value.parse::<u16>().unwrap();
        match *option {
            "-Q" => request.set_quotas(value).unwrap(),
            "-L" => request.label = Some(value.as_bytes().to_vec()),
            "-M" => request.last_mounted = Some(value.as_bytes().to_vec()),
            "-U" => {
                request.uuid = Some(std::array::from_fn(|i| {
                    [0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55][i.min(10)]
                }))
            }
            "-m" => request.reserved = Some(ReservedBlocks::Percent(value.parse().unwrap())),
            "-r" => request.reserved = Some(ReservedBlocks::Count(value.parse().unwrap())),
            "-u" => request.reserved_uid = Some(number()),
            "-g" => request.reserved_gid = Some(number()),
            "-e" => request.errors = Some(ErrorPolicy::Panic),
            "-c" => request.most_mounts = Some(value.parse().unwrap()),
            "-C" => request.mounts = Some(number()),
            "-i" => request.set_interval(value).unwrap(),
            "-o" => request.set_default_options(value).unwrap(),
            "-O" => request.set_features(value).unwrap(),
            "-J" => request.set_journal(value).unwrap(),
            "-E" => request.set_extended(value).unwrap(),
            other => panic!("{other}"),
        }
    }
    request
}

impl Image {
    pub(super) fn tune(&self, request: &Request) -> Result<Tuned, TuneError> {
        let device = FileDevice::open(&self.path, &OpenOptions::read_write()).unwrap();
        tune(&(Arc::new(device) as SharedDevice), &MountOptions::default(), request)
    }

    pub(super) fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::copy(&self.path, &path).unwrap();
        Self { _dir: dir, path }
    }

    /// What the superblock says of encryption, which dumpe2fs does not show.
    fn ciphers(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()[1024 + 0x254..][..20].to_vec()
    }

    /// What dumpe2fs says of the superblock, but for what each write changes and the state of the
    /// journal.
    pub(super) fn superblock(&self) -> String {
        let (code, text) = run("dumpe2fs", &["-h"], &self.path);
        assert_eq!(code, 0, "{text}");
        let drop = ["Last write time", "Checksum:", "Lifetime writes", "Journal ", "dumpe2fs"];
        let kept = text.lines().filter(|line| !drop.iter().any(|start| line.starts_with(start)));
        kept.map(|line| format!("{line}\n")).collect()
    }
}

const MATRIX: &[(&str, &[&str])] = &[
    (
        "-t ext4 -b 4096 -O ^orphan_file,^metadata_csum_seed",
        &[
            "-L data -e panic -m 1.7 -u 5 -g 6 -M /mnt/x",
            "-r 1000 -c 20 -C 3 -i 3w",
            "-c 0 -i 1 -L ",
            "-o ^acl,discard,journal_data_writeback -E stride=4,stripe_width=16",
            "-O fast_commit,large_dir,stable_inodes",
            "-O encrypt",
            "-O ^dir_nlink,^extra_isize,metadata_csum_seed",
            "-O orphan_file",
            "-L two -O orphan_file,fast_commit -E orphan_file_size=64k",
            "-O ^dir_index",
        ],
    ),
    ("-t ext4 -O orphan_file", &["-O ^orphan_file -L off", "-E force_fsck"]),
    ("-t ext4 -O ^metadata_csum,uninit_bg", &["-U u", "-O orphan_file,fast_commit"]),
    ("-t ext4 -O metadata_csum,metadata_csum_seed", &["-U u", "-O ^metadata_csum_seed"]),
    (
        "-t ext4 -O metadata_csum,metadata_csum_seed",
        &["-O ^metadata_csum", "-O ^metadata_csum,^uninit_bg"],
    ),
    ("-t ext4 -O ^metadata_csum,uninit_bg", &["-O metadata_csum", "-O ^uninit_bg"]),
    ("-t ext3", &["-O metadata_csum", "-O uninit_bg"]),
    ("-t ext3 -O ^dir_index", &["-O dir_index", "-O extent,flex_bg,huge_file,dir_nlink -U u"]),
    ("-t ext2 -b 1024", &["-O extent,dir_nlink,huge_file -U u -L ext2", "-E hash_alg=tea,test_fs"]),
];

/// The superblock gets the values that tune2fs gives a copy, and the copies of it, too.
#[test]
fn tuned_as_tune2fs_does() {
    if !testkit::require(&[testkit::Need::Tool("tune2fs"), testkit::Need::Tool("e2fsck")]) {
        return;
    }
    for (layout, requests) in MATRIX {
        let args: Vec<&str> = layout.split(' ').collect();
        let base = Image::new("140M", &args);
        base.with(|fs| fill_some(fs, 8));
        // tune2fs wants a check that is not older than the last mount, be it by a second.
        let (code, text) = run("e2fsck", &["-fy"], &base.path);
        assert_eq!(code, 0, "{layout}: {text}");
        for options in *requests {
            let what = format!("{layout}: {options}");
            let (ours, theirs) = (base.copy(), base.copy());
            let tuned = ours.tune(&request(options)).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(!tuned.changes.is_empty(), "{what}");
            let words = options.replace("-U u", &format!("-U {UUID}"));
            let words: Vec<&str> = words.split(' ').collect();
            let (code, text) = run("tune2fs", &words, &theirs.path);
            assert_eq!(code, 0, "{what}: {text}");
            // tune2fs asks for an e2fsck after -E force_fsck, and -fn repairs nothing.
            if !options.contains("force_fsck") {
                ours.assert_clean(&what);
            }
            assert_eq!(ours.superblock(), theirs.superblock(), "{what}");
            assert_eq!(ours.ciphers(), theirs.ciphers(), "{what}");
            // Nothing left: the second time changes nothing, not even the time of the last write.
            // (The size of an orphan file is only for one that is made.)
            let again = request(options.split(" -E orphan_file_size").next().unwrap());
            let bytes = std::fs::read(&ours.path).unwrap();
            assert_eq!(ours.tune(&again).unwrap(), Tuned::default(), "{what}");
            assert!(bytes == std::fs::read(&ours.path).unwrap(), "{what}");
            // A copy of the superblock.
            let place = if layout.contains("4096") { 32_768 } else { 8193 };
            let place = format!("superblock={place}");
            let (code, text) = run("dumpe2fs", &["-h", "-o", &place], &ours.path);
            assert_eq!(code, 0, "{what}: {text}");
            for line in ours.superblock().lines().take(8) {
                // (The state of a copy is never that of the volume.)
                assert!(line.starts_with("Filesystem f") || text.contains(line), "{what}: {line}");
            }
            ours.with(|fs| assert_some(fs, 8, &what));
        }
    }
}

/// tune2fs and Extol take back what the other has done.
#[test]
fn tune2fs_takes_it_back() {
    if !testkit::require(&[testkit::Need::Tool("tune2fs"), testkit::Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("40M", &["-t", "ext4", "-O", "^orphan_file,metadata_csum"]);
    image.with(|fs| fill_some(fs, 8));
    let before = image.superblock();
    let features = "orphan_file,fast_commit,project,metadata_csum_seed";
    let off = "^orphan_file,^fast_commit,^project,^metadata_csum_seed";
    for round in 0..2 {
        if round == 0 {
            image.tune(&request(&format!("-O {features}"))).unwrap();
            image.assert_clean("on");
            assert_eq!(run("tune2fs", &["-O", off], &image.path).0, 0);
        } else {
            let theirs = features.replace("project,", "");
            assert_eq!(run("tune2fs", &["-O", &theirs], &image.path).0, 0);
            image.tune(&request(&format!("-O {off}"))).unwrap();
        }
        image.assert_clean("off");
        assert_eq!(image.superblock(), before, "{round}");
    }
    image.with(|fs| assert_some(fs, 8, "back"));
}

/// What cannot be done is refused, and nothing has changed.
#[test]
fn refused_requests_change_nothing() {
    if !testkit::require(&[testkit::Need::Tool("mke2fs")]) {
        return;
    }
    for (layout, options, words) in [
        ("-t ext2", "-O fast_commit", "need a journal"),
        ("-t ext2", "-O metadata_csum_seed", "needs metadata_csum"),
        ("-t ext3 -I 128", "-O project", "128 bytes"),
        (
            "-t ext4 -b 1024 -J size=1",
            "-O fast_commit",
            "1280 blocks (version 2), and this one has 1024",
        ),
        ("-t ext4", "-L 12345678901234567", "at most 16"),
        ("-t ext4", "-r 99999999", "at most half"),
        ("-t ext4 -O stable_inodes", "-U u", "stable_inodes"),
        ("-t ext4 -O encrypt", "-O ^encrypt", "make a new volume"),
        ("-t ext4 -O stable_inodes", "-O ^stable_inodes", "make a new volume"),
        ("-t ext4", "-E mmp_update_interval=5", "no multi-mount protection"),
        ("-t ext4", "-E orphan_file_size=8", "-O orphan_file"),
        ("-t ext4 -O ^orphan_file", "-O orphan_file -E orphan_file_size=64M", "counts blocks"),
        (
            "-t ext4 -O ^orphan_file -J size=4",
            "-O orphan_file -E orphan_file_size=512",
            "too small",
        ),
        ("-t ext4 -O uninit_bg,^metadata_csum,^has_journal,^orphan_file", "-U u", "tune2fs -U"),
        ("-t ext4 -O orphan_file", "-O ^orphan_file -E force_fsck", "to be checked"),
        ("-t ext4 -O journal_dev", "-L x", "external journal"),
        ("-t ext2", "-O metadata_csum", "give it one (-j)"),
        ("-t ext3", "-O metadata_csum -U u", "change alone"),
        ("-t ext4 -O ^orphan_file", "-O ^metadata_csum,orphan_file", "change alone"),
        ("-t ext4 -O mmp", "-O ^metadata_csum,^mmp", "change alone"),
    ] {
        let what = format!("{layout}: {options}");
        let image = Image::new("40M", &layout.split(' ').collect::<Vec<_>>());
        let before = std::fs::read(&image.path).unwrap();
        let error = image.tune(&request(options)).expect_err(&what).to_string();
        assert!(error.contains(words), "{what}: {error}");
        assert!(!error.contains('\n') && error.len() < 250, "{what}: {error}");
        let after = std::fs::read(&image.path).unwrap();
        // (What only the open volume shows leaves the marks of an opening.)
        let state = options.contains("orphan_file_size=64M") || options.contains("size=512");
        assert!(state || before == after, "{what}: it has written");
    }
}

/// (mke2fs makes no such volume.)
#[test]
fn a_volume_that_is_only_read_is_left_to_tune2fs() {
    let image = Image::new("40M", &["-t", "ext4"]);
    let (code, text) = run("debugfs", &["-w", "-R", "feature shared_blocks"], &image.path);
    assert_eq!(code, 0, "{text}");
    let before = std::fs::read(&image.path).unwrap();
    let error = image.tune(&request("-L x")).unwrap_err().to_string();
    assert!(error.contains("shared_blocks; use tune2fs"), "{error}");
    assert!(before == std::fs::read(&image.path).unwrap(), "it has written");
}

/// A feature that the volume has as asked for is nothing to do, whatever it is; any other is
/// switched, or refused with an advice that holds: tune2fs is named if it can do it, and only then.
#[test]
fn each_feature_is_switched_or_refused_with_what_helps() {
    if !testkit::require(&[testkit::Need::Tool("tune2fs")]) {
        return;
    }
    let base = Image::new("40M", &["-t", "ext4"]);
    let bytes = std::fs::read(&base.path).unwrap();
    let has = base.superblock();
    let has = has.lines().find(|line| line.starts_with("Filesystem features:")).unwrap();
    let has: Vec<_> = has.split_whitespace().collect();
    let aliases = ["extents", "uninit_groups", "fname_encoding", "has_snapshot"];
    for name in extol_ondisk::features::Feature::names().chain(aliases) {
        for on in [true, false] {
            let word = format!("{}{name}", if on { "" } else { "^" });
            let image = base.copy();
            let done = image.tune(&request(&format!("-O {word}")));
            let is = has.contains(&name) || name == "extents";
            if is == on {
                assert_eq!(done.expect(&word), Tuned::default(), "{word}");
                assert!(bytes == std::fs::read(&image.path).unwrap(), "{word}");
                continue;
            }
            let Err(error) = done else { continue };
            let line = error.to_string();
            assert!(bytes == std::fs::read(&image.path).unwrap(), "{word}: it has written");
            let (code, text) = run("tune2fs", &["-O", &word], &image.path);
            // (Of 64bit it only says what to use, and ends with 0.)
            let theirs = code == 0 && !text.contains("Please run `resize2fs");
            assert_eq!(line.contains("use tune2fs"), theirs, "{word}: {line}\n{text}");
            let new = ["new volume", "leave it out", "resize2fs", "e2fsck", "mke2fs"];
            assert!(theirs || new.iter().any(|what| line.contains(what)), "{word}: {line}");
        }
    }
}

#[test]
fn what_project_means_for_linux_is_said() {
    let image = Image::new("40M", &["-t", "ext4", "-O", "^project"]);
    let tuned = image.tune(&request("-O project")).unwrap();
    assert!(matches!(&*tuned.notes, [note] if note.contains("quota support")), "{tuned:?}");
    assert_eq!(image.tune(&request("-O project")).unwrap().notes, [""; 0]);
    image.assert_clean("project");
}

/// A plain number counts blocks; a size is rounded up to a whole one.
#[test]
fn sizes_of_orphan_files() {
    let image = Image::new("40M", &["-t", "ext4", "-b", "4096", "-O", "^orphan_file"]);
    for (size, bytes) in [("8", 32_768), ("5K", 8192), ("64K", 65_536)] {
        let image = image.copy();
        let text = format!("-O orphan_file -E orphan_file_size={size}");
        image.tune(&request(&text)).unwrap();
        let (code, said) = run("debugfs", &["-R", "stat <12>"], &image.path);
        assert!(code == 0 && said.contains(&format!("Size: {bytes}\n")), "{size}: {said}");
    }
}

/// A feature that a directory or file depends on stays.
#[test]
fn features_in_use_stay() {
    if !testkit::require(&[testkit::Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("40M", &["-t", "ext4", "-b", "1024"]);
    image.with(|fs| {
        let dir = common::dir(fs, fs.root(), "many");
        for nr in 0..200 {
            common::file(fs, dir, &format!("a-name-of-some-length-{nr}"));
        }
        let ino = common::file(fs, fs.root(), "large");
        fs.write(ino, 3 << 30, b"end").unwrap();
    });
    for (options, words) in
        [("-O ^dir_index", "has an index"), ("-O ^large_file", "2 GiB"), ("-O ^dir_nlink", "")]
    {
        match image.tune(&request(options)) {
            Ok(_) => assert_eq!(words, "", "{options}"),
            Err(error) => {
                let line =
                    error.to_string().replace("is a directory with an index", "has an index");
                assert!(!words.is_empty() && line.contains(words), "{options}: {line}");
            }
        }
        image.assert_clean(options);
    }
}

/// All that a request of these tests can change.
pub(super) fn values(device: &MemDevice) -> String {
    let mut bytes = vec![0; 1024];
    device.read_at(&mut bytes, 1024).unwrap();
    let sb = Superblock::decode(&bytes).unwrap();
    let incompat = sb.feature_incompat - Incompat::NEEDS_RECOVERY;
    let ro = sb.feature_ro_compat - RoCompat::ORPHAN_PRESENT;
    let features = [sb.feature_compat.names(), incompat.names(), ro.names()].concat();
    let orphan_file = sb.orphan_file_inum != 0;
    let (label, uuid, seed) = (sb.label().to_vec(), sb.uuid, sb.checksum_seed);
    let mount_options = sb.default_mount_opts;
    let numbers = (sb.r_blocks_count, sb.errors, sb.checkinterval, mount_options);
    format!("{features:?} {orphan_file} {label:?} {uuid:?} {seed} {numbers:?}")
}

const CRASHES: &[(&str, &str)] = &[
    (
        "-t ext4 -b 1024 -J size=2 -O ^orphan_file",
        "-L new -O orphan_file,fast_commit -r 77 -o ^acl",
    ),
    ("-t ext4 -O orphan_file,fast_commit", "-O ^orphan_file,^fast_commit -i 5 -e panic"),
    ("-t ext4 -O metadata_csum,^metadata_csum_seed", "-U u -L new"),
    ("-t ext4 -O ^metadata_csum,uninit_bg -b 1024 -g 1024 -N 2048", "-U u -r 9"),
    ("-t ext3", "-O extent,huge_file -L new -U u"),
    ("-t ext2", "-O dir_nlink -L new -U u -m 1"),
    (
        "-t ext4 -b 1024 -O metadata_csum,metadata_csum_seed,^orphan_file",
        "-O ^metadata_csum -L new",
    ),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^orphan_file", "-O metadata_csum"),
    ("-t ext4 -O ^metadata_csum,uninit_bg -b 1024 -g 1024 -N 2048", "-O ^uninit_bg"),
    ("-t ext3 -b 1024", "-O metadata_csum"),
    ("-t ext4 -b 1024 -O orphan_file,fast_commit", "-O ^metadata_csum"),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,orphan_file", "-O metadata_csum -L new"),
    ("-t ext3", "-O uninit_bg -r 5"),
    ("-t ext4 -b 1024 -O quota", "-Q ^usrquota,prjquota -L new"),
];

/// After a crash at any write all old values hold or all new ones, and the volume is sound.
#[test]
fn old_or_new_after_a_crash_at_every_write() {
    if !testkit::require(&[testkit::Need::Tool("e2fsck")]) {
        return;
    }
    std::thread::scope(|s| {
        for (nr, (layout, options)) in CRASHES.iter().enumerate() {
            s.spawn(move || crashes(layout, options, nr as u64));
        }
    });
}

fn crashes(layout: &str, options: &str, seed: u64) {
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
    let mut seen = BTreeSet::new();
    for cut in (0..=end).filter(|cut| *cut == 0 || !matches!(log[cut - 1], Event::Mark(_))) {
        for how in 0..3 {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{layout}: {options}: cut {cut} of {end}, {how}");
            let crashed = device.image_at(cut, keep);
            let path = image.path.with_file_name("crashed");
            write_out(&crashed, &path);
            let report = testkit::e2fsck_fix(&testkit::Image::existing(&path));
            assert_eq!(report.unexpected_repairs(), None, "{what}");
            let fixed = MemDevice::from_bytes(&std::fs::read(&path).unwrap());

            let device = Arc::new(crashed);
            let options = MountOptions::default().without_threads();
            let fs = Ext4::open(Arc::clone(&device) as _, &options)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_some(&fs, 8, &what);
            fs.unmount().unwrap();
            drop(fs);
            write_out(&device, &path);
            let (code, text) = run("e2fsck", &["-fn"], &path);
            assert_eq!(code, 0, "{what}: e2fsck says\n{text}");

            let now = values(&device);
            assert!(now == before || now == after, "{what}: {now}\n{before}\n{after}");
            assert_eq!(values(&fixed), now, "{what}: e2fsck");
            assert!(cut < end || now == after, "{what}: it had returned");
            seen.insert(now);
        }
    }
    assert_eq!(seen.len(), 2, "{layout}: {options}");
}
