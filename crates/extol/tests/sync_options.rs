//! `sync`, `dirsync` and the flags of chattr that promise the same: a call that returns is durable
//! without an fsync.

mod common;

use std::sync::Arc;

use common::*;
use extol::Ext4;
use extol::vfs::Mountable as _;
use extol::vfs::{FileSystem, Job, OpenNr, RenameFlags, SetAttr};
use extol_block::MemDevice;

const SYNC: u32 = 0x8;
const DIRSYNC: u32 = 0x1_0000;

fn names(fs: &Ext4, dir: u32) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        true
    })
    .unwrap();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

/// Does `work`, cuts the power, and returns the volume as it is then.
fn after_a_crash(dev: &Arc<MemDevice>, options: &str, work: impl FnOnce(&Ext4)) -> Arc<Ext4> {
    let fs = open(dev, options);
    work(&fs);
    fs.crash();
    drop(fs);
    open(dev, "")
}

#[test]
fn changes_of_names_are_durable() {
    for options in ["dirsync", "sync"] {
        let dev = image("16M", &["-t", "ext4"]);
        let fs = after_a_crash(&dev, options, |fs| {
            let root = fs.root();
            let (a, b) = (dir(fs, root, "a"), dir(fs, root, "b"));
            for name in ["moved", "removed", "kept"] {
                file(fs, a, name);
            }
            fs.link(fs.lookup(a, b"kept").unwrap().id.ino, b, b"linked").unwrap();
            fs.rename(a, b"moved", b, b"there", RenameFlags::default()).unwrap();
            dir(fs, a, "gone");
            fs.rmdir(a, b"gone").unwrap();
            fs.unlink(a, b"removed").unwrap();
        });
        let [a, b] = [b"a", b"b"].map(|name| fs.lookup(fs.root(), name).unwrap().id.ino);
        assert_eq!(names(&fs, a), ["kept"], "{options}");
        assert_eq!(names(&fs, b), ["linked", "there"], "{options}");
        fs.unmount().unwrap();
        assert_clean(&dev, options);
    }
}

#[test]
fn without_the_options_the_commit_comes_later() {
    let dev = image("16M", &["-t", "ext4"]);
    let fs = after_a_crash(&dev, "commit=300", |fs| {
        file(fs, fs.root(), "file");
    });
    assert_eq!(names(&fs, fs.root()), ["lost+found"]);
}

#[test]
fn flags_of_a_directory_do_the_same() {
    for flag in [SYNC, DIRSYNC] {
        let dev = image("16M", &["-t", "ext4"]);
        let fs = after_a_crash(&dev, "commit=300", |fs| {
            let root = fs.root();
            let home = dir(fs, root, "home");
            let flags = fs.getattr(home).unwrap().flags | flag;
            fs.setattr(home, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
            file(fs, home, "file");
            file(fs, root, "later");
        });
        let home = fs.lookup(fs.root(), b"home").unwrap().id.ino;
        assert_eq!(names(&fs, home), ["file"], "flag {flag:#x}");
        assert_eq!(names(&fs, fs.root()), ["home", "lost+found"], "flag {flag:#x}");
        drop(fs);
        // The flag is on the volume, and new directories inherit it.
        let fs = after_a_crash(&dev, "commit=300", |fs| {
            let home = fs.lookup(fs.root(), b"home").unwrap().id.ino;
            let below = dir(fs, home, "below");
            file(fs, below, "file");
        });
        let home = fs.lookup(fs.root(), b"home").unwrap().id.ino;
        assert_eq!(names(&fs, home), ["below", "file"], "flag {flag:#x}");
        let below = fs.lookup(home, b"below").unwrap().id.ino;
        assert_eq!(names(&fs, below), ["file"], "flag {flag:#x}");
    }
}

#[test]
fn writes_of_a_sync_mount_are_durable() {
    let dev = image("16M", &["-t", "ext4"]);
    let fs = after_a_crash(&dev, "sync,commit=300", |fs| {
        let ino = file(fs, fs.root(), "file");
        fs.write(ino, 0, &[7; 5000]).unwrap();
    });
    let mut data = vec![0; 6000];
    let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
    assert_eq!(fs.read(ino, 0, &mut data).unwrap(), 5000);
    assert!(data[..5000].iter().all(|b| *b == 7));
}

/// Async sync requests: each completes once, and its data is durable then. After the volume is gone
/// each fails. Another thread runs the jobs.
#[test]
fn async_sync_requests() {
    const FAST: &[&str] = &["-t", "ext4", "-O", "fast_commit"];
    const FULL: &[&str] = &["-t", "ext4"];
    const NONE: &[&str] = &["-t", "ext4", "-O", "^has_journal"];
    const FILES: usize = 40;
    for features in [FAST, FULL, NONE] {
        let dev = image("32M", features);
        let fs = open(&dev, "");
        let (done, results) = std::sync::mpsc::channel();
        let (give, given) = std::sync::mpsc::channel::<Job>();
        let helper = std::thread::spawn(move || given.into_iter().for_each(|job| job()));
        let sync = |n: usize, data_only: bool| {
            let ino = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap().id.ino;
            let done = done.clone();
            fs.fsync_then(
                (ino, OpenNr::default()),
                data_only,
                Box::new(move |result| done.send((n, result)).unwrap()),
                &mut |job| give.send(job).unwrap(),
            );
        };
        let next = || results.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (fs, sync) = (&fs, &sync);
                scope.spawn(move || {
                    for n in (thread..FILES).step_by(4) {
                        let ino = file(fs, fs.root(), &format!("f{n}"));
                        fs.write(ino, 0, &vec![n as u8 + 1; 1000 * n]).unwrap();
                        sync(n, n % 2 == 0);
                    }
                });
            }
        });
        let mut all: Vec<usize> =
            (0..FILES).map(|_| next()).map(|(n, result)| result.map(|()| n).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..FILES).collect::<Vec<_>>(), "{features:?}");
        fs.crash();
        for n in 0..FILES {
            sync(n, false);
        }
        assert!((0..FILES).map(|_| next()).all(|(_, result)| result.is_err()), "{features:?}");
        drop(give);
        helper.join().unwrap();
        assert!(results.try_recv().is_err(), "completed twice: {features:?}");
        drop(fs);
        if features.contains(&"^has_journal") {
            continue;
        }
        let fs = open(&dev, "");
        for n in 0..FILES {
            let ino = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap().id.ino;
            let mut bytes = vec![0; 1000 * n + 1];
            assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), 1000 * n, "{features:?}");
            assert!(bytes[..1000 * n].iter().all(|byte| *byte == n as u8 + 1), "{features:?}");
        }
        fs.unmount().unwrap();
        assert_clean(&dev, "");
    }
}
