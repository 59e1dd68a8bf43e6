use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extol::vfs::{CheckpointFlags, FileSystem, FsError};
use extol::vfs::{Mountable as _, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_devices::RecordingDevice;

use crate::common::*;

fn volume(options: &str) -> (Arc<RecordingDevice>, Arc<Ext4>) {
    volume_of(&["-t", "ext4", "-J", "size=4"], options)
}

fn volume_of(mke2fs: &[&str], options: &str) -> (Arc<RecordingDevice>, Arc<Ext4>) {
    let dev = Arc::new(RecordingDevice::new(image("32M", mke2fs).snapshot()));
    let fs = Ext4::open(Arc::clone(&dev) as _, &MountOptions::parse(options).unwrap()).unwrap();
    (dev, fs)
}

/// The copy is sound as it lies: e2fsck has nothing to do, and a mount nothing to recover.
fn assert_sound(dev: MemDevice, what: &str) -> Arc<Ext4> {
    let dev = Arc::new(dev);
    assert_clean(&dev, what);
    let bytes = dev.to_bytes();
    assert_eq!(bytes[1024 + 0x60] & 4, 0, "{what}: needs recovery");
    open(&dev, "ro,norecovery")
}

/// Writers of all kinds run, the volume is frozen and thawed again and again. Nothing is written
/// meanwhile.
#[test]
fn nothing_is_written_while_frozen() {
    for options in
        ["strictatime", "checkpoint=nomerge,data=journal", "commit=1,async_checkpoint=90"]
    {
        let (dev, fs) = volume(options);
        let end = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let root = fs.root();
        let threads: Vec<_> = (0..6)
            .map(|t| {
                let (fs, end, done) = (Arc::clone(&fs), Arc::clone(&end), Arc::clone(&done));
                let home = dir(&fs, root, &format!("home-{t}"));
                std::thread::spawn(move || {
                    let mut i = 0u64;
                    while !end.load(Ordering::SeqCst) {
                        let name = format!("f{}", i % 7);
                        if i % 7 == 6 {
                            // A file that ends with its last reference.
                            let ino = file(&fs, home, &name);
                            fs.write(ino, 0, &[1; 20_000]).unwrap();
                            fs.unlink(home, name.as_bytes()).unwrap();
                            fs.forget(ino, 1);
                        } else {
                            let ino = match fs.lookup(home, name.as_bytes()) {
                                Ok(attr) => attr.id.ino,
                                Err(_) => file(&fs, home, &name),
                            };
                            fs.write(ino, i % 5 * 3000, &i.to_le_bytes().repeat(300)).unwrap();
                            match t {
                                0 => fs.fsync(ino, false).unwrap(),
                                1 => fs.sync().unwrap(),
                                2 => fs.checkpoint(CheckpointFlags::ZERO_OUT).unwrap(),
                                _ => drop(fs.read(ino, 0, &mut [0; 9000]).unwrap()),
                            }
                            fs.forget(ino, 1);
                        }
                        i += 1;
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for round in 0..6 {
            let before = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < before + 30 {
                std::thread::yield_now();
            }
            fs.freeze().unwrap();
            let position = dev.position();
            assert_eq!(fs.freeze(), Err(FsError::Busy));
            // What does not change the volume works.
            fs.sync().unwrap();
            fs.checkpoint(CheckpointFlags::empty()).unwrap();
            fs.fsync(root, false).unwrap();
            let (copy, orphans) = (dev.current(), fs.stats().orphans);
            for t in 0..6 {
                let home = fs.lookup(root, format!("home-{t}").as_bytes()).unwrap().id.ino;
                fs.readdir(home, 0, &mut |_| true).unwrap();
                if let Ok(attr) = fs.lookup(home, b"f0") {
                    fs.read(attr.id.ino, 0, &mut [0; 100]).unwrap();
                    fs.forget(attr.id.ino, 1);
                }
                fs.forget(home, 1);
            }
            std::thread::sleep(std::time::Duration::from_millis(if round == 0 {
                1500
            } else {
                10
            }));
            assert_eq!(dev.position(), position, "{options}: written while frozen");
            fs.thaw().unwrap();
            assert!(matches!(fs.thaw(), Err(FsError::Invalid(_))));
            if orphans == 0 {
                assert_sound(copy, options).unmount().unwrap();
            } else {
                // Files without a name that were in use: a mount deletes them, as Linux does.
                let copy = Arc::new(copy);
                open(&copy, "").unmount().unwrap();
                assert_clean(&copy, options);
            }
        }
        end.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        fs.unmount().unwrap();
        assert_clean(&Arc::new(dev.current()), "afterwards");
    }
}

/// A crash at any moment around freeze and thaw loses nothing that was acknowledged: the flag is
/// durable before the log is used again, and is cleared only when the log is empty (MN-3).
#[test]
fn crashes_around_a_freeze() {
    let (dev, fs) = volume("commit=3600");
    let mut promised = Vec::new();
    let promise = |name: &str| {
        let ino = file(&fs, fs.root(), name);
        fs.write(ino, 0, name.as_bytes()).unwrap();
        fs.fsync(ino, false).unwrap();
        (dev.position(), name.to_owned())
    };
    promised.push(promise("before"));
    fs.freeze().unwrap();
    fs.thaw().unwrap();
    promised.push(promise("after"));
    fs.freeze().unwrap();
    fs.thaw().unwrap();
    promised.push(promise("again"));
    let from = promised[0].0;
    for cut in from..=dev.position() {
        for keep in [0, 1, 2] {
            // Nothing, every second write, and all of what is not durable.
            let crashed = Arc::new(dev.image_at(cut, |i| keep == 2 || (keep == 1 && i % 2 == 0)));
            let after = open(&crashed, "");
            for (at, name) in promised.iter().filter(|(at, _)| *at <= cut) {
                let found = after.lookup(after.root(), name.as_bytes());
                assert!(
                    found.is_ok(),
                    "{name}, promised at {at}, is lost at {cut} of {}",
                    dev.position()
                );
            }
            after.unmount().unwrap();
            if keep == 0 && cut % 4 == 0 {
                assert_clean(&crashed, "after recovery");
            }
        }
    }
    fs.unmount().unwrap();
}

/// An unmount ends a freeze; a waiting change passes or gets an error, and the volume is clean.
#[test]
fn a_frozen_volume_is_unmounted() {
    for mke2fs in [
        &["-t", "ext4", "-J", "size=4"][..],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "mmp,orphan_file", "-J", "size=4"],
    ] {
        if mke2fs.contains(&"mmp,orphan_file") && std::env::var_os("EXTOL_LONG").is_none() {
            // The claim takes seconds.
            continue;
        }
        let (dev, fs) = volume_of(mke2fs, "");
        let ino = file(&fs, fs.root(), "file");
        fs.write(ino, 0, b"before").unwrap();
        fs.freeze().unwrap();
        let seen = assert_sound(dev.current(), "frozen");
        assert_eq!(
            seen.read(seen.lookup(seen.root(), b"file").unwrap().id.ino, 0, &mut [0; 9]),
            Ok(6)
        );
        seen.unmount().unwrap();
        let waiting: Vec<_> = (0..4)
            .map(|t| {
                let fs = Arc::clone(&fs);
                std::thread::spawn(move || fs.write(ino, 10 * t, b"after"))
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs.unmount().unwrap();
        for thread in waiting {
            let written = thread.join().unwrap();
            assert!(
                matches!(written, Ok(5) | Err(FsError::ReadOnly | FsError::Io(_))),
                "{written:?}"
            );
        }
        assert_clean(&Arc::new(dev.current()), "unmounted while frozen");
    }
}

/// A front end that must not wait gets an error, and nothing has changed.
#[test]
fn refused_instead_of_waiting() {
    let (_, fs) = volume("");
    fs.refuse_when_frozen();
    let ino = file(&fs, fs.root(), "file");
    fs.freeze().unwrap();
    assert_eq!(fs.write(ino, 0, b"x"), Err(FsError::Frozen));
    assert_eq!(fs.unlink(fs.root(), b"file"), Err(FsError::Frozen));
    assert_eq!(fs.checkpoint(CheckpointFlags::ZERO_OUT), Err(FsError::Frozen));
    assert_eq!(fs.getattr(ino).unwrap().size, 0);
    let waiting = {
        let fs = Arc::clone(&fs);
        std::thread::spawn(move || fs.wait_thawed())
    };
    fs.thaw().unwrap();
    waiting.join().unwrap();
    assert_eq!(fs.write(ino, 0, b"x"), Ok(1));
    fs.unmount().unwrap();
}
