//! Remounts of an open volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::{MemDevice, SharedDevice};
use extol_vfs::VolumeControl as _;
use extol_vfs::{Creds, FileSystem, FsError, NewNode};

use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

fn volume() -> SharedDevice {
    let device = MemDevice::new(32 << 20);
    mkfs(&device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    Arc::new(device)
}

fn open(device: &SharedDevice, list: &str) -> Arc<Ext4> {
    Ext4::open(Arc::clone(device), &MountOptions::parse(list).unwrap()).unwrap()
}

fn create(fs: &Ext4, name: &str) -> Result<u32, FsError> {
    let root = fs.root();
    fs.create(root, name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default()).map(|a| a.id.ino)
}

fn state(device: &SharedDevice) -> String {
    crate::info(device).unwrap().state
}

#[test]
fn read_only_and_back() {
    let device = volume();
    let fs = open(&device, "");
    let a = create(&fs, "a").unwrap();
    fs.write(a, 0, b"before").unwrap();
    assert!(crate::info(&device).unwrap().needs_recovery);
    for round in 0..3 {
        fs.remount("ro").unwrap();
        assert!(fs.is_read_only());
        assert_eq!(fs.mount_options(), "ro,relatime");
        assert!(!crate::info(&device).unwrap().needs_recovery, "clean while it rests");
        assert_eq!(state(&device), "clean");
        assert_eq!(create(&fs, "b").unwrap_err(), FsError::ReadOnly);
        assert_eq!(fs.write(a, 0, b"x").unwrap_err(), FsError::ReadOnly);
        fs.sync().unwrap();
        fs.fsync(a, false).unwrap();
        // What a crash would leave now can be opened without recovery, and holds everything.
        let again = open(&device, "ro");
        let found = again.lookup(again.root(), b"a").unwrap();
        let mut bytes = [0; 6];
        again.read(found.id.ino, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"before");
        assert!(fs.remount("rw").unwrap_err().0.contains("open in this process"));
        drop(again);
        fs.remount("rw").unwrap();
        assert!(!fs.is_read_only());
        assert!(crate::info(&device).unwrap().needs_recovery, "marked before the first change");
        create(&fs, &format!("c{round}")).unwrap();
    }
    fs.unmount().unwrap();
    assert_eq!(state(&device), "clean");
}

#[test]
fn a_volume_that_rests_is_closed_in_order() {
    let device = volume();
    let fs = open(&device, "");
    create(&fs, "a").unwrap();
    fs.remount("ro").unwrap();
    fs.unmount().unwrap();
    assert_eq!(state(&device), "clean");
    assert!(fs.remount("rw").unwrap_err().0.contains("closed"));
    let fs = open(&device, "ro");
    fs.lookup(fs.root(), b"a").unwrap();
    fs.remount("rw").unwrap();
    create(&fs, "b").unwrap();
    fs.remount("ro").unwrap();
    assert_eq!(state(&device), "clean");
}

#[test]
fn unlinked_files_in_use_keep_it_writable() {
    let device = volume();
    let fs = open(&device, "");
    let a = create(&fs, "a").unwrap();
    fs.unlink(fs.root(), b"a").unwrap();
    assert!(fs.remount("ro,commit=9").unwrap_err().0.contains("unlinked"));
    assert_eq!(fs.mount_options(), "rw,relatime", "a refusal changes nothing");
    fs.write(a, 0, b"still there").unwrap();
    fs.forget(a, 1);
    fs.remount("ro").unwrap();
    fs.unmount().unwrap();
    assert_eq!(state(&device), "clean");
}

#[test]
fn a_bad_word_leaves_everything() {
    let device = volume();
    let fs = open(&device, "commit=7");
    for list in [
        "commit=9,frob",
        "ro,data=journal",
        "noatime,async_checkpoint=0x",
        "nobarrier,journal_path=/x",
    ] {
        fs.remount(list).unwrap_err();
        assert_eq!(fs.mount_options(), "rw,relatime,commit=7", "{list}");
        assert!(!fs.is_read_only(), "{list}");
    }
    fs.remount("async_checkpoint=30,max_batch_time=0").unwrap();
    let stats = fs.stats();
    assert_eq!(stats.mount_options, "rw,relatime,commit=7,max_batch_time=0,async_checkpoint=30");
    assert_eq!(stats.journal.async_checkpoint.threshold.map(|t| t.percent()), Some(30));
    assert_eq!(stats.journal.batching.max_us, 0);
    assert!(stats.options.contains(&"data=ordered".to_owned()));
    assert!(stats.options.contains(&"barrier".to_owned()));
}

#[test]
fn fast_commits_go_on_and_off() {
    let device = MemDevice::new(32 << 20);
    let options = MkfsOptions { features: vec!["fast_commit".into()], ..MkfsOptions::default() };
    mkfs(&device, &options, &mut |_| {}).unwrap();
    let device: SharedDevice = Arc::new(device);
    let fs = open(&device, "");
    assert_eq!(fs.mount_options(), "rw,relatime", "on by default");
    assert!(fs.options().contains(&"fast_commit".to_owned()) && fs.notes().is_empty());
    for (list, shown) in [
        ("nofast_commit", "rw,relatime,nofast_commit"),
        ("ro", "ro,relatime,nofast_commit"),
        ("rw,fast_commit", "rw,relatime"),
    ] {
        assert_eq!(fs.remount(list).unwrap(), [] as [&str; 0], "{list}");
        assert_eq!(fs.mount_options(), shown);
        assert!(
            !shown.contains("nofast_commit") || !fs.stats().journal.fast_commit.enabled,
            "{list}"
        );
    }
    create(&fs, "a").unwrap();
    fs.unmount().unwrap();
    let fs = open(&device, "nofast_commit");
    assert!(!fs.stats().journal.fast_commit.enabled);
    assert_eq!(fs.mount_options(), "rw,relatime,nofast_commit");
    fs.unmount().unwrap();

    let fs = open(&device, "data=journal,fast_commit");
    assert_eq!(fs.notes(), ["data=journal disables fast commits"]);
    assert!(fs.options().contains(&"nofast_commit".to_owned()));
    assert_eq!(fs.remount("fast_commit").unwrap(), ["data=journal disables fast commits"]);
    assert!(fs.options().contains(&"nofast_commit".to_owned()));
    fs.unmount().unwrap();

    let device = volume();
    let error =
        Ext4::open(Arc::clone(&device), &MountOptions::parse("fast_commit").unwrap()).unwrap_err();
    assert!(error.to_string().contains("extol tune -O fast_commit"), "{error}");
    let fs = open(&device, "");
    assert!(fs.remount("fast_commit").unwrap_err().0.contains("extol tune -O fast_commit"));
    assert_eq!(fs.mount_options(), "rw,relatime");
}

#[test]
fn a_frozen_volume_is_left_alone() {
    let device = volume();
    let fs = open(&device, "");
    fs.freeze().unwrap();
    assert!(fs.remount("ro").unwrap_err().0.contains("thaw it first"));
    fs.remount("commit=9").unwrap();
    fs.thaw().unwrap();
    fs.remount("ro").unwrap();
    // Read-only is as good as frozen, and both end in order.
    fs.freeze().unwrap();
    assert!(fs.remount("rw").unwrap_err().0.contains("thaw it first"));
    fs.thaw().unwrap();
    assert_eq!(create(&fs, "a").unwrap_err(), FsError::ReadOnly);
    fs.remount("rw").unwrap();
    create(&fs, "a").unwrap();
    fs.unmount().unwrap();
    assert_eq!(state(&device), "clean");
}

#[test]
fn abort_stops_the_volume() {
    let device = volume();
    let fs = open(&device, "");
    create(&fs, "a").unwrap();
    fs.remount("abort").unwrap();
    assert_eq!(create(&fs, "b").unwrap_err(), FsError::ReadOnly);
    // It is read-only, but not because everything was written.
    let refused = fs.remount("ro").expect_err("not clean").0;
    assert!(refused.contains("cannot remount read-only: abort was asked for"), "{refused}");
    // It is opened again; the error stays noted.
    let warnings = fs.remount("rw").unwrap();
    assert!(warnings.iter().any(|line| line.contains("run e2fsck")), "{warnings:?}");
    create(&fs, "b").unwrap();
    fs.unmount().unwrap();
}

/// Threads create, write, sync and remove while the volume goes read-only and back: an operation
/// succeeds or says "read-only", and what succeeded is there in the end.
#[test]
fn under_load() {
    let device = volume();
    let fs = open(&device, "");
    let stop = AtomicBool::new(false);
    let made: Vec<String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|t| {
                let (fs, stop) = (&fs, &stop);
                scope.spawn(move || {
                    let mut made = Vec::new();
                    let mut refused = 0;
                    for i in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let name = format!("f{t}-{i}");
                        let ino = match create(fs, &name) {
                            Ok(ino) => ino,
                            Err(FsError::ReadOnly) => {
                                refused += 1;
                                std::thread::yield_now();
                                continue;
                            }
                            Err(e) => panic!("create: {e}"),
                        };
                        match fs.write(ino, 0, name.as_bytes()) {
                            Ok(_) if i % 3 == 0 => fs.fsync(ino, false).unwrap(),
                            Ok(_) | Err(FsError::ReadOnly) => {}
                            Err(e) => panic!("write: {e}"),
                        }
                        fs.forget(ino, 1);
                        // The volume has inodes for so many.
                        let goes = i % 2 == 0 || made.len() > 200;
                        if goes && fs.unlink(fs.root(), name.as_bytes()).is_ok() {
                            continue;
                        }
                        made.push(name);
                    }
                    let _ = refused;
                    made
                })
            })
            .collect();
        let lists = [
            "ro",
            "rw,async_checkpoint=30",
            "commit=1,noasync_checkpoint",
            "max_batch_time=0",
            "ro",
            "rw,nobarrier",
            "barrier,min_batch_time=2000",
            "noatime,lazytime",
            "max_batch_time=15000,discard",
            "checkpoint=nomerge",
            "checkpoint=merge,nodiscard",
            "max_batch_time=0,dirty_mb=1",
        ];
        for list in lists.iter().cycle().take(36) {
            if let Err(e) = fs.remount(list) {
                assert!(e.0.contains("unlinked"), "{list}: {e}");
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    });
    fs.remount("rw").unwrap();
    fs.unmount().unwrap();
    let fs = open(&device, "ro");
    for name in &made {
        fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
