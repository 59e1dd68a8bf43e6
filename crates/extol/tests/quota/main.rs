//! Volumes with quota files: whatever happens, usage is what the inodes say. e2fsck computes it
//! anew and compares.

#[path = "../common/acl.rs"]
mod acl;
#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod features;
mod guest;
mod limits;
mod looking_after;
mod shown;
mod trees;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use common::*;
use extol::tune::{Request, TuneError, tune};
use extol::vfs::{
    Attr, Creds, Fallocate, FileSystem, FsError, NewNode, RenameFlags, SetAttr, XattrSet,
};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_devices::RecordingDevice;

const ROOT: u32 = 2;

fn opened(dev: &Arc<MemDevice>, words: &str) -> Arc<Ext4> {
    let options = MountOptions::parse(words).unwrap().without_threads();
    Ext4::open(Arc::clone(dev) as _, &options).unwrap()
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(below)) as u32
    }

    fn owner(&mut self) -> Creds {
        // Few that meet often, and many that are new.
        let id = |n: u32| if n < 200 { n % 5 } else { n.wrapping_mul(0x9E37_79B1) };
        Creds { uid: id(self.roll(300)), gid: id(self.roll(300)) }
    }
}

/// What may fail: the state of the tree is left to chance.
fn may<T>(result: Result<T, FsError>, what: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(
            FsError::Exists
            | FsError::NotFound
            | FsError::NoSpace
            | FsError::QuotaExceeded
            | FsError::NotEmpty
            | FsError::NoAttribute
            | FsError::NotPermitted
            // Directories of another project.
            | FsError::CrossDevice
            | FsError::NotSupported(_)
            | FsError::Invalid(_),
        ) => None,
        Err(e) => panic!("{what}: {e}"),
    }
}

/// What is made is not held.
fn made(fs: &Ext4, result: Result<Attr, FsError>, what: &str) {
    if let Some(attr) = may(result, what) {
        fs.forget(attr.id.ino, 1);
    }
}

fn attribute(dice: &mut Dice) -> &'static [u8] {
    [b"user.a", b"user.b", b"user.c"][dice.roll(3) as usize]
}

/// One change by chance among a few names of one directory.
fn step(fs: &Ext4, dir: u32, dice: &mut Dice) {
    let name = format!("f{}", dice.roll(24)).into_bytes();
    let other = format!("f{}", dice.roll(24)).into_bytes();
    let creds = dice.owner();
    let file = fs.lookup(dir, &name).ok().filter(|attr| attr.nlink > 0);
    let ino = file.as_ref().map(|attr| attr.id.ino);
    let at = u64::from(dice.roll(200)) * 700;
    match (dice.roll(16), ino) {
        (0..=2, None) => {
            made(fs, fs.create(dir, &name, NewNode::Regular, 0o644, 0, creds), "create")
        }
        (3, None) => {
            let target = vec![b'x'; dice.roll(300) as usize + 1];
            made(fs, fs.create(dir, &name, NewNode::Symlink(target), 0o777, 0, creds), "symlink");
        }
        (4, None) => made(fs, fs.create(dir, &name, NewNode::Fifo, 0o644, 0, creds), "fifo"),
        (5, None) => {
            if let Some(attr) = may(fs.create_unnamed(dir, 0o600, 0, creds), "unnamed") {
                may(fs.write(attr.id.ino, at, &[7; 3000]), "write");
                if dice.roll(2) == 0 {
                    may(fs.link(attr.id.ino, dir, &name), "link");
                }
                fs.forget(attr.id.ino, 1);
            }
        }
        (0..=3, Some(ino)) => drop(may(fs.write(ino, at, &vec![5; 5000]), "write")),
        (4, Some(ino)) => {
            let set = SetAttr { size: Some(at / 3), ..SetAttr::default() };
            may(fs.setattr(ino, &set), "truncate");
        }
        (5, Some(ino)) => {
            let mode = match dice.roll(3) {
                0 => Fallocate::Allocate { keep_size: true },
                1 => Fallocate::PunchHole,
                _ => Fallocate::ZeroRange { keep_size: false },
            };
            may(fs.fallocate(ino, mode, at, 9000), "fallocate");
        }
        (6, Some(ino)) => {
            let set = SetAttr { uid: Some(creds.uid), gid: Some(creds.gid), ..SetAttr::default() };
            may(fs.setattr(ino, &set), "chown");
        }
        (7, Some(ino)) => {
            let set = SetAttr { project: Some(creds.uid % 9), ..SetAttr::default() };
            may(fs.setattr(ino, &set), "project");
        }
        (8, Some(ino)) => {
            // (Few values, so that inodes share them, and some longer than a block.)
            let value = vec![b'v'; 400 * dice.roll(8) as usize];
            may(fs.setxattr(ino, attribute(dice), &value, XattrSet::Any), "setxattr");
        }
        (9, Some(ino)) => drop(may(fs.removexattr(ino, attribute(dice)), "removexattr")),
        (10, Some(ino)) => drop(may(fs.link(ino, dir, &other), "link")),
        (11, Some(_)) => {
            may(fs.rename(dir, &name, dir, &other, RenameFlags::empty()), "rename");
        }
        (12 | 13, Some(_)) => drop(may(fs.unlink(dir, &name), "unlink")),
        (14, Some(ino)) => drop(may(fs.fsync(ino, false), "fsync")),
        (15, _) => {
            let sub = format!("d{}", dice.roll(6)).into_bytes();
            match fs.lookup(dir, &sub) {
                Ok(attr) => {
                    fs.forget(attr.id.ino, 1);
                    may(fs.rmdir(dir, &sub), "rmdir");
                }
                Err(_) => {
                    let new = fs.create(dir, &sub, NewNode::Directory, 0o2755, 0, creds);
                    made(fs, new, "mkdir");
                }
            }
        }
        _ => {}
    }
    if let Some(ino) = ino {
        fs.forget(ino, 1);
    }
}

/// Directories of several owners, one of which gives its project to what is made in it.
fn directories(fs: &Ext4) -> Vec<u32> {
    (0..3)
        .map(|n| {
            let name = format!("dir{n}").into_bytes();
            let creds = Creds { uid: 1000 + n, gid: 2000 + n };
            let attr = fs.create(ROOT, &name, NewNode::Directory, 0o755, 0, creds).unwrap();
            if n == 0 {
                const PROJINHERIT: u32 = 0x2000_0000;
                let flags = Some(attr.flags | PROJINHERIT);
                let set = SetAttr { flags, project: Some(77), ..SetAttr::default() };
                // (Volumes without projects refuse it.)
                let _ = fs.setattr(attr.id.ino, &set);
            }
            attr.id.ino
        })
        .collect()
}

fn work(fs: &Ext4, seed: u64, steps: u32) {
    let mut dice = Dice(seed);
    let dirs = directories(fs);
    for _ in 0..steps {
        let dir = dirs[dice.roll(3) as usize];
        step(fs, dir, &mut dice);
    }
    let stats = fs.stats();
    assert_eq!(stats.journal.overdrafts, 0, "a budget was too small");
}

/// Usage by debugfs: bytes and inodes of each id.
fn used(dev: &MemDevice, kind: &str) -> BTreeMap<u32, (u64, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, dev.to_bytes()).unwrap();
    let command = format!("list_quota {kind}");
    let out = Command::new("debugfs").args(["-R", &command]).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let rows = text.lines().skip(1).map(|line| {
        let words: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (words[0] as u32, (words[1], words[4]))
    });
    rows.collect()
}

const FORMS: [(&str, &str); 13] = [
    ("-t ext4 -b 1024 -O quota,project", ""),
    ("-t ext4 -b 4096 -O quota,project", ""),
    ("-t ext4 -b 1024 -O quota -E quotatype=grpquota", ""),
    ("-t ext4 -b 1024 -O quota,project,fast_commit", ""),
    ("-t ext4 -b 1024 -O quota,project,orphan_file,inline_data", ""),
    ("-t ext4 -b 2048 -O quota,project,^has_journal", ""),
    ("-t ext4 -b 1024 -O quota,^metadata_csum,^extents,^64bit -I 128", ""),
    ("-t ext4 -b 1024 -O quota,project", "data=journal"),
    ("-t ext4 -b 1024 -O quota,project", "nodelalloc"),
    ("-t ext4 -b 1024 -O quota,project,ea_inode", ""),
    ("-t ext4 -b 1024 -O quota,project,bigalloc -C 8192", ""),
    ("-t ext4 -b 4096 -O quota,bigalloc,inline_data -C 16384", "nodelalloc"),
    ("-t ext4 -b 1024 -O quota,project,bigalloc,ea_inode,fast_commit -C 2048", ""),
];

#[test]
fn usage_follows_every_kind_of_change() {
    for (form, options) in FORMS {
        let args: Vec<&str> = form.split(' ').collect();
        let dev = image("48M", &args);
        for round in 0..3 {
            let fs = opened(&dev, options);
            if round == 0 {
                work(&fs, 1, 1500);
            } else {
                let mut dice = Dice(round);
                let dir = fs.lookup(ROOT, b"dir1").unwrap().id.ino;
                (0..300).for_each(|_| step(&fs, dir, &mut dice));
                fs.forget(dir, 1);
            }
            fs.unmount().unwrap();
            assert_clean(&dev, &format!("{form} {options}, round {round}"));
        }
    }
}

#[test]
fn a_file_moves_to_its_new_owner_with_all_that_it_has() {
    let dev = image("32M", &["-t", "ext4", "-b", "1024", "-O", "quota,project"]);
    let fs = opened(&dev, "");
    let creds = Creds { uid: 10, gid: 20 };
    let attr = fs.create(ROOT, b"file", NewNode::Regular, 0o644, 0, creds).unwrap();
    fs.write(attr.id.ino, 0, &[1; 10_000]).unwrap();
    let set = SetAttr { uid: Some(11), project: Some(5), ..SetAttr::default() };
    fs.setattr(attr.id.ino, &set).unwrap();
    fs.unmount().unwrap();
    assert_clean(&dev, "moved");
    let users = used(&dev, "user");
    assert_eq!((users[&10], users[&11]), ((0, 0), (10 << 10, 1)));
    assert_eq!(used(&dev, "group")[&20], (10 << 10, 1));
    assert_eq!(used(&dev, "project")[&5], (10 << 10, 1));
}

#[test]
fn a_quota_file_grows_with_the_ids() {
    for (size, more) in [("1024", ""), ("4096", ""), ("1024", "bigalloc")] {
        let features = format!("quota,project,{more}");
        let dev = image("48M", &["-t", "ext4", "-b", size, "-O", &features]);
        let fs = opened(&dev, "");
        for n in 0..1000u32 {
            let creds = Creds { uid: n.wrapping_mul(0x0101_0101), gid: n };
            let name = format!("file {n}").into_bytes();
            fs.create(ROOT, &name, NewNode::Regular, 0o644, 0, creds).unwrap();
        }
        assert_eq!(fs.stats().journal.overdrafts, 0);
        fs.unmount().unwrap();
        assert_clean(&dev, size);
        assert_eq!(used(&dev, "user").len(), 1000);
    }
}

#[test]
fn usage_is_right_after_a_crash_at_any_moment() {
    for (form, options) in [0, 1, 3, 4, 9, 10, 12].map(|n| FORMS[n]) {
        let args: Vec<&str> = form.split(' ').collect();
        let base = image("16M", &args);
        let dev = Arc::new(RecordingDevice::new(base.snapshot()));
        let parsed = MountOptions::parse(options).unwrap().without_threads();
        let fs = Ext4::open(Arc::clone(&dev) as _, &parsed).unwrap();
        work(&fs, 3, 400);
        let end = dev.position();
        let mut dice = Dice(9);
        for cut in (0..24).map(|n| end * n / 24 + 1) {
            let crashed = Arc::new(dev.image_at(cut.min(end), |_| dice.roll(2) == 0));
            let what = format!("{form}, cut at {cut} of {end}");
            let after = opened(&crashed, options);
            after.unmount().unwrap();
            assert_clean(&crashed, &what);
        }
    }
}

#[test]
fn e2fsck_finds_the_usage_that_its_own_recovery_leaves() {
    let form = ["-t", "ext4", "-b", "1024", "-O", "quota,project,fast_commit"];
    let base = image("16M", &form);
    let dev = Arc::new(RecordingDevice::new(base.snapshot()));
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
    work(&fs, 5, 400);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let end = dev.position();
    for cut in (1..=16).map(|n| end * n / 16) {
        std::fs::write(&path, dev.image_at(cut, |_| true).to_bytes()).unwrap();
        let out = Command::new("e2fsck").arg("-fy").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(!text.contains("Update quota info"), "cut at {cut} of {end}: {text}");
    }
}

#[test]
fn a_volume_with_a_damaged_quota_file_is_not_mounted_read_write() {
    let dev = image("16M", &["-t", "ext4", "-b", "1024", "-O", "quota"]);
    let mut bytes = dev.to_bytes();
    let magic = 0xD9C0_1F11u32.to_le_bytes();
    let at = bytes.windows(4).position(|four| four == magic).unwrap();
    bytes[at] ^= 1;
    let dev = Arc::new(MemDevice::from_bytes(&bytes));
    let options = MountOptions::default().without_threads();
    let refused = Ext4::open(Arc::clone(&dev) as _, &options).unwrap_err().to_string();
    assert!(refused.contains("quota") && refused.contains("run e2fsck"), "{refused}");
    assert_eq!(dev.to_bytes(), bytes);
    let fs = opened(&dev, "ro");
    assert_eq!(fs.lookup(ROOT, b"lost+found").unwrap().id.ino, 11);
}

fn tuned(dev: &Arc<MemDevice>, features: &str) -> Result<(), TuneError> {
    let mut request = Request::default();
    request.set_features(features).unwrap();
    let device: extol_block::SharedDevice = Arc::clone(dev) as _;
    tune(&device, &MountOptions::default(), &request).map(drop)
}

#[test]
fn tune_makes_quota_files_of_what_there_is_and_takes_them_away() {
    for form in [
        "-b 1024",
        "-b 4096 -O orphan_file",
        "-b 1024 -O ^metadata_csum,^extents,^64bit",
        "-b 1024 -O ea_inode",
        "-b 1024 -O bigalloc,ea_inode -C 8192",
    ] {
        let args: Vec<&str> = ["-t", "ext4"].into_iter().chain(form.split(' ')).collect();
        let dev = image("48M", &args);
        let fs = opened(&dev, "");
        work(&fs, 11, 600);
        fs.unmount().unwrap();
        tuned(&dev, "quota").unwrap();
        assert_clean(&dev, &format!("{form}: with quota"));
        let users = used(&dev, "user");
        assert!(users.len() > 5, "{users:?}");
        let fs = opened(&dev, "");
        let creds = Creds { uid: 4_000_000_000, gid: 1 };
        fs.create(ROOT, b"new", NewNode::Regular, 0o644, 0, creds).unwrap();
        fs.unmount().unwrap();
        assert_clean(&dev, &format!("{form}: and another id"));
        assert_eq!(used(&dev, "user")[&4_000_000_000], (0, 1));
        tuned(&dev, "project").unwrap();
        assert_clean(&dev, &format!("{form}: with projects"));
        assert_eq!(used(&dev, "project").len(), 1);
        tuned(&dev, "^quota").unwrap();
        assert_clean(&dev, &format!("{form}: without quota"));
        tuned(&dev, "quota").unwrap();
        assert_clean(&dev, &format!("{form}: with all again"));
        assert_eq!(used(&dev, "project").len(), 1);
    }
}

#[test]
fn an_orphan_file_comes_and_goes_beside_quota_files() {
    let dev = image("48M", &["-t", "ext4", "-b", "1024", "-O", "quota,project,^orphan_file"]);
    tuned(&dev, "orphan_file").unwrap();
    assert_clean(&dev, "with an orphan file");
    tuned(&dev, "^orphan_file").unwrap();
    assert_clean(&dev, "without an orphan file");
}
