//! Limits: what is refused, to the byte, and what is not.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extol::quotas::{Entry, Kind, Limits};
use extol::vfs::{
    Author, Creds, Fallocate, FileSystem, FsError, Mountable, NewNode, SetAttr, XattrSet,
    acting_for,
};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_devices::RecordingDevice;

use crate::common::*;
use crate::{Dice, FORMS, ROOT, opened, work};

pub const USER: Creds = Creds { uid: 1000, gid: 1000 };
const ENFORCED: &str = "usrquota,grpquota,prjquota";
pub const NONE: Limits =
    Limits { space_soft: None, space_hard: None, inode_soft: None, inode_hard: None };

pub fn volume(size: &str, form: &str) -> Arc<MemDevice> {
    let args: Vec<&str> = form.split(' ').collect();
    // (Inodes of 128 bytes have no project.)
    let features = if form.contains("-I 128") { "quota" } else { "quota,project" };
    image(size, &[&["-t", "ext4", "-O", features], &args[..]].concat())
}

pub fn entry(fs: &Ext4, kind: Kind, id: u32) -> Entry {
    let quotas = fs.quotas().unwrap();
    let quota = quotas.into_iter().find(|quota| quota.kind == kind).unwrap();
    quota.entries.into_iter().find(|entry| entry.id == id).unwrap_or(Entry::new(id))
}

/// A directory of the user, made before there were limits; and its block.
pub fn home(fs: &Ext4) -> u32 {
    let attr = fs.create(ROOT, b"home", NewNode::Directory, 0o755, 0, USER).unwrap();
    attr.id.ino
}

pub fn new_file(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Regular, 0o644, 0, USER).unwrap().id.ino
}

/// Writes until it is refused; how much was written, and why it ended.
fn fill(fs: &Ext4, ino: u32, piece: usize, most: u64) -> (u64, Option<FsError>) {
    let bytes = vec![7; piece];
    let mut at = 0;
    while at < most {
        match fs.write_as(ino, at, &bytes, Author::Process(USER)) {
            Ok(0) => panic!("nothing is written and nothing is wrong"),
            Ok(n) => at += n as u64,
            Err(e) => return (at, Some(e)),
        }
    }
    (at, None)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_file_is_written_up_to_the_hard_limit_to_the_block() {
    for (form, options) in [
        ("-b 1024", ""),
        ("-b 4096", ""),
        ("-b 1024", "nodelalloc"),
        ("-b 1024", "data=journal"),
        ("-b 1024 -O bigalloc -C 4096", ""),
        ("-b 1024 -O inline_data", ""),
        ("-b 2048 -O ^has_journal", ""),
    ] {
        // The last one is so long that it goes to the device at once.
        for piece in [700, 5000, 100 << 10, 3 << 20] {
            let what = format!("{form} {options}, pieces of {piece}");
            let dev = volume("32M", form);
            let fs = opened(&dev, &format!("{ENFORCED},{options}"));
            let dir = home(&fs);
            let ino = new_file(&fs, dir, "file");
            let before = entry(&fs, Kind::User, 1000).space;
            let hard = before / 1024 + 2000;
            let limits = Limits { space_hard: Some(hard), ..NONE };
            fs.set_limits(Kind::User, &[1000], limits).unwrap();
            let (written, why) = fill(&fs, ino, piece, 8 << 20);
            assert_eq!(why, Some(FsError::QuotaExceeded), "{what}");
            assert_eq!(written, 2000 << 10, "{what}");
            // What there is may be changed, and root is not limited.
            assert_eq!(fs.write_as(ino, 5, b"five", Author::Process(USER)), Ok(4), "{what}");
            let root = Author::Process(Creds::default());
            assert_eq!(fs.write_as(ino, written, &[1; 9000], root), Ok(9000), "{what}");
            fs.sync().unwrap();
            let after = entry(&fs, Kind::User, 1000);
            assert!(after.space > hard << 10 && after.space < (hard + 80) << 10, "{after:?}");
            // Less is allowed, and then more.
            let cut = SetAttr { size: Some(1000 << 10), ..SetAttr::default() };
            fs.setattr(ino, &cut).unwrap();
            let more = fs.write_as(ino, 1 << 20, &[1; 3000], Author::Process(USER));
            assert_eq!(more, Ok(3000), "{what}");
            fs.unmount().unwrap();
            assert_clean(&dev, &what);
        }
    }
}

#[test]
fn every_kind_of_inode_counts_and_a_refused_one_leaves_nothing() {
    for form in [
        "-b 1024",
        "-b 1024 -O fast_commit",
        "-b 1024 -I 128 -O quota,^has_journal,^extents,^64bit",
    ] {
        let dev = volume("16M", form);
        let fs = opened(&dev, "usrquota,grpquota");
        let dir = home(&fs);
        fs.set_limits(Kind::Group, &[1000], Limits { inode_hard: Some(4), ..NONE }).unwrap();
        for n in 0..3 {
            new_file(&fs, dir, &n.to_string());
        }
        let kinds = [
            NewNode::Regular,
            NewNode::Directory,
            NewNode::Fifo,
            NewNode::Symlink(b"x".to_vec()),
            NewNode::Symlink(vec![b'x'; 200]),
        ];
        for new in kinds {
            let refused = fs.create(dir, b"more", new.clone(), 0o644, 0, USER);
            assert_eq!(refused.unwrap_err(), FsError::QuotaExceeded, "{new:?}");
        }
        let unnamed = fs.create_unnamed(dir, 0o600, 0, USER);
        assert_eq!(unnamed.unwrap_err(), FsError::QuotaExceeded);
        assert_eq!(fs.lookup(dir, b"more").unwrap_err(), FsError::NotFound);
        // Another group, and root in this group.
        let other = Creds { uid: 1000, gid: 1001 };
        let attr = fs.create(dir, b"other", NewNode::Regular, 0o644, 0, other).unwrap();
        let root = Creds { uid: 0, gid: 1000 };
        fs.create(dir, b"of root", NewNode::Regular, 0o644, 0, root).unwrap();
        let moved = SetAttr { gid: Some(1000), ..SetAttr::default() };
        let by_user = acting_for(Some(USER), || fs.setattr(attr.id.ino, &moved));
        assert_eq!(by_user.unwrap_err(), FsError::QuotaExceeded);
        assert_eq!(fs.getattr(attr.id.ino).unwrap().gid, 1001);
        acting_for(Some(root), || fs.setattr(attr.id.ino, &moved)).unwrap();
        assert_eq!(entry(&fs, Kind::Group, 1000).inodes, 6);
        for name in [&b"other"[..], b"of root", b"0"] {
            fs.unlink(dir, name).unwrap();
        }
        fs.forget(attr.id.ino, 1);
        // (What is not forgotten is in use.)
        fs.unmount().unwrap();
        assert_clean(&dev, form);
        let fs = opened(&dev, "usrquota,grpquota");
        assert_eq!(entry(&fs, Kind::Group, 1000).inodes, 3);
        let dir = fs.lookup(ROOT, b"home").unwrap().id.ino;
        new_file(&fs, dir, "again");
        fs.unmount().unwrap();
        assert_clean(&dev, form);
    }
}

#[test]
fn blocks_of_directories_links_and_attributes_count() {
    let dev = volume("16M", "-b 1024");
    let fs = opened(&dev, ENFORCED);
    let dir = home(&fs);
    let ino = new_file(&fs, dir, "file");
    let space = entry(&fs, Kind::User, 1000).space >> 10;
    fs.set_limits(Kind::User, &[1000], Limits { space_hard: Some(space), ..NONE }).unwrap();
    let create = |name: &str, new| fs.create(dir, name.as_bytes(), new, 0o644, 0, USER);
    let refused = create("sub", NewNode::Directory).unwrap_err();
    assert_eq!(refused, FsError::QuotaExceeded);
    let refused = create("link", NewNode::Symlink(vec![b'x'; 200])).unwrap_err();
    assert_eq!(refused, FsError::QuotaExceeded);
    create("short", NewNode::Symlink(b"short".to_vec())).unwrap();
    let set = || acting_for(Some(USER), || fs.setxattr(ino, b"user.a", &[1; 200], XattrSet::Any));
    assert_eq!(set(), Err(FsError::QuotaExceeded));
    assert_eq!(fs.getxattr(ino, b"user.a"), Err(FsError::NoAttribute));
    // A directory grows up to the end of its block, and is whole then.
    let mut made = 0;
    let why = loop {
        match create(&format!("name {made}"), NewNode::Fifo) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(why, FsError::QuotaExceeded);
    assert!((20..80).contains(&made), "{made}");
    let linked = acting_for(Some(USER), || fs.link(ino, dir, b"a longer name than any of those"));
    assert_eq!(linked.unwrap_err(), FsError::QuotaExceeded);
    assert_eq!(entry(&fs, Kind::User, 1000).space, space << 10);
    // Root may, whosever directory it is.
    let by_root = acting_for(Some(Creds::default()), || fs.link(ino, dir, b"by root, with a name"));
    by_root.unwrap();
    let limits = Limits { space_hard: Some(space + 20), ..NONE };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    assert_eq!(set(), Ok(()));
    fs.unmount().unwrap();
    assert_clean(&dev, "with blocks refused");
}

#[test]
fn preallocation_goes_up_to_the_limit_and_may_exceed_a_soft_one() {
    let dev = volume("16M", "-b 1024");
    let fs = opened(&dev, ENFORCED);
    let dir = home(&fs);
    let ino = new_file(&fs, dir, "file");
    let space = entry(&fs, Kind::User, 1000).space >> 10;
    let (soft, hard) = (Some(space + 10), Some(space + 100));
    fs.set_limits(Kind::User, &[1000], Limits { space_soft: soft, space_hard: hard, ..NONE })
        .unwrap();
    let allocate = |len| {
        let mode = Fallocate::Allocate { keep_size: true };
        fs.fallocate_as(ino, mode, 0, len, Author::Process(USER))
    };
    assert_eq!(allocate(50 << 10), Ok(()));
    assert!(entry(&fs, Kind::User, 1000).space_time > now());
    assert_eq!(allocate(200 << 10), Err(FsError::QuotaExceeded));
    assert_eq!(entry(&fs, Kind::User, 1000).space, (space + 100) << 10);
    // Space that is there already is written.
    assert_eq!(fill(&fs, ino, 4096, 96 << 10), (96 << 10, None));
    fs.unmount().unwrap();
    assert_clean(&dev, "preallocated");
}

#[test]
fn a_soft_limit_holds_once_its_time_is_over() {
    let dev = volume("16M", "-b 1024");
    let fs = opened(&dev, ENFORCED);
    let dir = home(&fs);
    fs.set_grace(Kind::User, Some(2), Some(2)).unwrap();
    let limits = Limits { inode_soft: Some(2), ..NONE };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    new_file(&fs, dir, "one");
    assert_eq!(entry(&fs, Kind::User, 1000).inode_time, 0);
    new_file(&fs, dir, "two");
    let time = entry(&fs, Kind::User, 1000).inode_time;
    assert!((now()..now() + 4).contains(&time), "{time}");
    // (Its clock may be a tick behind.)
    while now() <= time {
        std::thread::sleep(Duration::from_millis(50));
    }
    let create = |name: &[u8]| fs.create(dir, name, NewNode::Fifo, 0o644, 0, USER);
    assert_eq!(create(b"three").unwrap_err(), FsError::QuotaExceeded);
    fs.unlink(dir, b"two").unwrap();
    let two = fs.quotas().unwrap().len();
    assert_eq!(two, 3);
    fs.unmount().unwrap();
    // The file is gone with its last reference.
    let fs = opened(&dev, ENFORCED);
    assert_eq!(entry(&fs, Kind::User, 1000).inode_time, 0);
    let dir = fs.lookup(ROOT, b"home").unwrap().id.ino;
    fs.create(dir, b"three", NewNode::Fifo, 0o644, 0, USER).unwrap();
    fs.unmount().unwrap();
    assert_clean(&dev, "times");
}

/// The time begins with the write, not when delayed allocation posts what it takes.
#[test]
fn a_soft_limit_holds_for_data_that_is_not_written_yet() {
    let dev = volume("32M", "-b 1024");
    let fs = opened(&dev, &format!("{ENFORCED},commit=3600"));
    let dir = home(&fs);
    fs.set_grace(Kind::User, Some(2), Some(2)).unwrap();
    let space = entry(&fs, Kind::User, 1000).space >> 10;
    let soft = Limits { space_soft: Some(space + 100), ..NONE };
    fs.set_limits(Kind::User, &[1000], soft).unwrap();
    let ino = new_file(&fs, dir, "file");
    let began = now();
    assert_eq!(fill(&fs, ino, 1024, 200 << 10), (200 << 10, None));
    while now() <= began + 3 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let more = fs.write_as(ino, 200 << 10, &[1; 1024], Author::Process(USER));
    assert_eq!(more.unwrap_err(), FsError::QuotaExceeded);
    fs.fsync(ino, false).unwrap();
    let time = entry(&fs, Kind::User, 1000).space_time;
    assert!((began + 1..=began + 3).contains(&time), "{time}, began {began}");
    // Below it, the time ends, and may begin again.
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    acting_for(Some(USER), || fs.setattr(ino, &empty)).unwrap();
    assert_eq!(fill(&fs, ino, 1024, 200 << 10), (200 << 10, None));
    fs.fsync(ino, false).unwrap();
    assert!(entry(&fs, Kind::User, 1000).space_time > time);
    fs.unmount().unwrap();
    assert_clean(&dev, "times of promises");
}

#[test]
fn data_that_is_not_written_yet_counts_and_moves_with_its_file() {
    let dev = volume("32M", "-b 1024");
    let fs = opened(&dev, ENFORCED);
    let dir = home(&fs);
    let ino = new_file(&fs, dir, "file");
    let space = entry(&fs, Kind::User, 1000).space >> 10;
    let hard = |limit| Limits { space_hard: Some(limit), ..NONE };
    fs.set_limits(Kind::User, &[1000], hard(space + 100)).unwrap();
    fs.set_limits(Kind::Project, &[5], hard(59)).unwrap();
    assert_eq!(fill(&fs, ino, 1024, 60 << 10), (60 << 10, None));
    let other = new_file(&fs, dir, "other");
    assert_eq!(fill(&fs, other, 1024, 60 << 10), (40 << 10, Some(FsError::QuotaExceeded)));
    let to = |project| SetAttr { project: Some(project), ..SetAttr::default() };
    let moved = acting_for(Some(USER), || fs.setattr(ino, &to(5)));
    assert_eq!(moved.unwrap_err(), FsError::QuotaExceeded);
    acting_for(Some(USER), || fs.setattr(other, &to(5))).unwrap();
    assert_eq!(
        fs.write_as(other, 40 << 10, &[1; 30 << 10], Author::Process(Creds::default())),
        Ok(30 << 10)
    );
    // Dropped data makes room at once.
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.setattr(other, &cut).unwrap();
    assert_eq!(fill(&fs, other, 1024, 60 << 10), (40 << 10, Some(FsError::QuotaExceeded)));
    fs.sync().unwrap();
    assert_eq!(entry(&fs, Kind::User, 1000).space, (space + 100) << 10);
    assert_eq!(entry(&fs, Kind::Project, 5).space, 40 << 10);
    fs.unmount().unwrap();
    assert_clean(&dev, "moved");
}

#[test]
fn limits_hold_only_with_their_options() {
    let dev = volume("16M", "-b 1024");
    let fs = opened(&dev, "");
    let dir = home(&fs);
    fs.set_limits(Kind::User, &[1000], Limits { inode_hard: Some(1), ..NONE }).unwrap();
    new_file(&fs, dir, "one");
    fs.remount("prjquota,grpquota").unwrap();
    new_file(&fs, dir, "two");
    fs.remount("quota").unwrap();
    assert!(fs.mount_options().contains("usrquota,grpquota,prjquota"), "{}", fs.mount_options());
    let create = |name: &[u8]| fs.create(dir, name, NewNode::Fifo, 0o644, 0, USER);
    assert_eq!(create(b"three").unwrap_err(), FsError::QuotaExceeded);
    fs.remount("noquota").unwrap();
    assert!(!fs.mount_options().contains("quota"), "{}", fs.mount_options());
    create(b"three").unwrap();
    fs.unmount().unwrap();
    assert_clean(&dev, "with and without limits");
}

#[test]
fn limits_without_a_quota_inode_are_refused() {
    let without = image("16M", &["-t", "ext4"]);
    let groups = image("16M", &["-t", "ext4", "-O", "quota", "-E", "quotatype=grpquota"]);
    for (dev, option, features) in [
        (&without, "usrquota", "-O quota"),
        (&without, "quota", "-O quota"),
        (&groups, "usrquota", "-Q usrquota"),
        (&groups, "grpquota,prjquota", "-Q prjquota"),
    ] {
        let before = dev.to_bytes();
        let options = MountOptions::parse(option).unwrap();
        let refused = Ext4::open(Arc::clone(dev) as _, &options).unwrap_err().to_string();
        assert!(refused.contains("no quota inode for") && refused.ends_with(features), "{refused}");
        assert!(dev.to_bytes() == before, "{option}");
        let fs = opened(dev, "");
        let refused = fs.remount(option).unwrap_err().to_string();
        assert!(refused.contains("no quota inode for"), "{refused}");
        fs.remount(&format!("ro,{option}")).unwrap();
        let refused = fs.remount("rw").unwrap_err().to_string();
        assert!(refused.contains("no quota inode for"), "{refused}");
        fs.remount("rw,noquota").unwrap();
        fs.unmount().unwrap();
    }
}

#[test]
fn threads_share_a_limit_and_none_is_lost() {
    let dev = volume("64M", "-b 1024");
    let fs = opened(&dev, ENFORCED);
    let dirs: Vec<u32> = (0..4)
        .map(|n| {
            let name = format!("dir{n}").into_bytes();
            fs.create(ROOT, &name, NewNode::Directory, 0o755, 0, Creds::default()).unwrap().id.ino
        })
        .collect();
    let limits = Limits { space_hard: Some(3000), inode_hard: Some(300), ..NONE };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    let made: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = dirs
            .iter()
            .map(|dir| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut made = 0;
                    while fs
                        .create(*dir, made.to_string().as_bytes(), NewNode::Regular, 0o644, 0, USER)
                        .is_ok()
                    {
                        made += 1;
                    }
                    made
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 300);
    let written: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = dirs
            .iter()
            .map(|dir| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut written = 0;
                    for n in 0.. {
                        let Ok(attr) = fs.lookup(*dir, n.to_string().as_bytes()) else { break };
                        let (done, why) = fill(fs, attr.id.ino, 3000, 24_000);
                        fs.fsync(attr.id.ino, false).unwrap();
                        written += done.div_ceil(1024);
                        if why.is_some() {
                            break;
                        }
                    }
                    written
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(written, 3000);
    assert_eq!(entry(&fs, Kind::User, 1000).space, 3000 << 10);
    fs.unmount().unwrap();
    assert_clean(&dev, "by threads");
}

/// Limits of a few ids that [`work`] uses.
fn limit(fs: &Ext4) {
    let limits = Limits {
        space_soft: Some(20),
        space_hard: Some(60),
        inode_soft: Some(4),
        inode_hard: Some(8),
    };
    for kind in Kind::ALL {
        fs.set_limits(kind, &[0, 1, 2, 3, 4], limits).unwrap();
    }
}

#[test]
fn usage_and_limits_are_right_after_work_and_after_a_crash_at_any_moment() {
    for (form, options) in [FORMS[0], FORMS[3], FORMS[4], FORMS[7], FORMS[8]] {
        let args: Vec<&str> = form.split(' ').collect();
        let base = image("16M", &args);
        let fs = opened(&base, "");
        limit(&fs);
        fs.unmount().unwrap();
        let dev = Arc::new(RecordingDevice::new(base.snapshot()));
        let words = format!("{ENFORCED},{options}");
        let parsed = MountOptions::parse(&words).unwrap().without_threads();
        let fs = Ext4::open(Arc::clone(&dev) as _, &parsed).unwrap();
        work(&fs, 13, 500);
        let times = fs.quotas().unwrap().into_iter().flat_map(|quota| quota.entries);
        assert!(times.filter(|e| e.space_time > 0 || e.inode_time > 0).count() > 2);
        let end = dev.position();
        let mut dice = Dice(9);
        for cut in (0..=16).map(|n| (end * n / 16).max(1)) {
            let crashed = Arc::new(dev.image_at(cut.min(end), |_| dice.roll(2) == 0));
            let what = format!("{form} {options}, cut at {cut} of {end}");
            let after = opened(&crashed, &words);
            for kind in Kind::ALL {
                for id in 0..5 {
                    let entry = entry(&after, kind, id);
                    let limits = [entry.space_soft, entry.space_hard];
                    assert_eq!(limits, [20, 60], "{what}: {entry:?}");
                    let limits = [entry.inode_soft, entry.inode_hard];
                    assert_eq!(limits, [4, 8], "{what}: {entry:?}");
                    let inodes = entry.inodes > 4;
                    assert!(id == 0 || !inodes || entry.inode_time > 0, "{what}: {entry:?}");
                }
            }
            after.unmount().unwrap();
            assert_clean(&crashed, &what);
        }
    }
}
