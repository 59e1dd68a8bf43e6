//! A volume that an error has stopped becomes writable by a remount: what was acknowledged is
//! there, what was only in memory is not, and a number never means another inode than before.

mod common;

#[path = "reopened/devices.rs"]
mod devices;

use std::sync::Arc;

use common::*;
use devices::HostFile;
use extol::vfs::{CheckpointFlags, FileSystem, FsError, Mountable as _, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::{DeviceOp, MemDevice};
use extol_devices::{Fault, FaultDevice, FaultSpan};

type Disk = Arc<FaultDevice<Arc<MemDevice>>>;

/// A volume on a disk that can be full.
fn rig(args: &[&str], options: &str) -> (Arc<MemDevice>, Disk, Arc<Ext4>) {
    let dev = image("32M", args);
    let disk = Arc::new(FaultDevice::new(Arc::clone(&dev), []));
    let options = MountOptions::parse(options).unwrap();
    let fs = Ext4::open(Arc::clone(&disk) as _, &options).unwrap();
    (dev, disk, fs)
}

fn fill(disk: &Disk, after: u64) {
    let full = Fault {
        op: DeviceOp::Write,
        after,
        span: FaultSpan::FromThenOn,
        errno: rustix::io::Errno::NOSPC.raw_os_error(),
    };
    disk.arm(full);
}

/// Files of which fsync has said that they are durable.
#[derive(Default)]
struct Acknowledged(Vec<(String, Vec<u8>)>);

impl Acknowledged {
    /// Makes files until one cannot be made durable.
    fn until_it_fails(&mut self, fs: &Ext4, prefix: &str) -> FsError {
        for n in 0..200 {
            let (name, contents) = (format!("{prefix}{n}"), vec![n as u8 | 1; 3000 + 17 * n]);
            match durable(fs, &name, &contents) {
                Ok(()) => self.0.push((name, contents)),
                Err(error) => return error,
            }
        }
        panic!("nothing fails");
    }

    fn assert_kept(&self, fs: &Ext4, what: &str) {
        for (name, contents) in &self.0 {
            let attr = fs.lookup(fs.root(), name.as_bytes());
            let attr = attr.unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
            let mut read = vec![0; contents.len() + 1];
            let count = fs.read(attr.id.ino, 0, &mut read).unwrap();
            assert!(read[..count] == **contents, "{what}: {name}");
            fs.forget(attr.id.ino, 1);
        }
    }
}

fn durable(fs: &Ext4, name: &str, contents: &[u8]) -> extol::vfs::Result<()> {
    let new = extol::vfs::NewNode::Regular;
    let creds = extol::vfs::Creds::default();
    let ino = fs.create(fs.root(), name.as_bytes(), new, 0o644, 0, creds)?.id.ino;
    let done = fs.write(ino, 0, contents).and_then(|_| fs.fsync(ino, false));
    fs.forget(ino, 1);
    done
}

const KINDS: &[(&[&str], &str)] = &[
    (&["-t", "ext4", "-O", "fast_commit"], ""),
    (&["-t", "ext4"], "data=journal"),
    (&["-t", "ext3", "-b", "1024"], ""),
    (&["-t", "ext4", "-O", "^has_journal"], ""),
];

/// The disk is full at every point of the work; a remount is refused while it is, and mends the
/// volume afterwards, with all that was acknowledged.
#[test]
fn what_was_acknowledged_comes_back() {
    for (args, options) in KINDS {
        for after in [0, 1, 2, 3, 5, 8, 13, 40] {
            let what = format!("{args:?}, {options}, full after {after} writes");
            let (dev, disk, fs) = rig(args, options);
            let mut kept = Acknowledged::default();
            for n in 0..5 {
                let (name, contents) = (format!("before{n}"), vec![n; 20_000]);
                durable(&fs, &name, &contents).unwrap();
                kept.0.push((name, contents));
            }
            fill(&disk, after);
            let error = kept.until_it_fails(&fs, "during");
            assert!(matches!(error, FsError::Io(_) | FsError::ReadOnly), "{what}: {error}");
            let stats = fs.stats();
            let why = stats.read_only_reason.unwrap_or_default();
            assert!(stats.read_only && stats.stopped, "{what}");
            assert!(why.contains("No space left"), "{what}: {why}");
            // As long as there is no space it stays as it is, readable.
            let refusal = fs.remount("rw").unwrap_err().0;
            assert!(refusal.contains("No space left"), "{what}: {refusal}");
            assert!(fs.is_stopped() && fs.stats().read_only_reason == Some(why), "{what}");
            kept.assert_kept(&fs, &what);

            disk.disarm();
            fs.remount("rw").unwrap_or_else(|e| panic!("{what}: {}", e.0));
            assert!(!fs.is_read_only() && fs.first_error().is_none(), "{what}");
            kept.assert_kept(&fs, &what);
            durable(&fs, "after", b"works").unwrap();
            fs.remount("ro").unwrap();
            fs.remount("rw,commit=3").unwrap();
            assert!(fs.mount_options().contains("commit=3"), "{what}");
            // And once more.
            fill(&disk, after);
            kept.until_it_fails(&fs, "again");
            disk.disarm();
            fs.remount("rw").unwrap_or_else(|e| panic!("{what}: {}", e.0));
            kept.assert_kept(&fs, &what);
            fs.unmount().unwrap();
            if args.contains(&"^has_journal") {
                // What a stop leaves half done only e2fsck finds, as after a power cut.
                continue;
            }
            assert_clean(&dev, &what);
            kept.assert_kept(&open(&dev, "ro"), &what);
        }
    }
}

/// References: to what was durable they go on; to what was not they are stale, and nothing else
/// gets the number before they are given back.
#[test]
fn references_mean_what_they_meant() {
    let (dev, disk, fs) = rig(&["-t", "ext4"], "");
    fs.count_opens();
    let root = fs.root();
    durable(&fs, "kept", b"kept").unwrap();
    durable(&fs, "unlinked", b"back again").unwrap();
    let kept = fs.lookup(root, b"kept").unwrap().id;
    let back = fs.lookup(root, b"unlinked").unwrap().id;
    fs.opened(kept.ino).unwrap();
    fs.checkpoint(CheckpointFlags::empty()).unwrap();
    // Not durable: a new file, and the deletion of another one.
    let home = dir(&fs, root, "home");
    let lost = file(&fs, home, "lost");
    fs.opened(lost).unwrap();
    fs.write(lost, 0, b"never synced").unwrap();
    fs.unlink(root, b"unlinked").unwrap();
    fill(&disk, 0);
    assert!(fs.fsync(kept.ino, false).is_ok() || fs.is_stopped());
    assert!(fs.sync().is_err() && fs.is_stopped());
    disk.disarm();
    fs.remount("rw").unwrap();

    let outdated = fs.take_outdated();
    let must = [root, kept.ino, lost, back.ino];
    assert!(must.iter().all(|ino| outdated.contains(ino)), "{outdated:?}");
    assert!(fs.take_outdated().is_empty(), "told once");
    let mut text = [0; 4];
    assert_eq!(fs.read(kept.ino, 0, &mut text), Ok(4));
    fs.write(kept.ino, 4, b" and changed").unwrap();
    fs.fsync(kept.ino, false).unwrap();
    // It is there again, and is the same.
    let again = fs.lookup(root, b"unlinked").unwrap().id;
    assert_eq!(again, back);
    for gone in [
        fs.read(lost, 0, &mut text).map(drop),
        fs.write(lost, 0, b"x").map(drop),
        fs.getattr(lost).map(drop),
        fs.opened(lost).map(drop),
        fs.fsync(lost, false),
    ] {
        assert_eq!(gone, Err(FsError::Stale));
    }
    let others: Vec<u32> = (0..40).map(|n| file(&fs, root, &format!("other{n}"))).collect();
    assert!(!others.contains(&lost), "a number that is still referred to");
    assert_eq!(fs.lookup(home, b"lost").unwrap_err(), FsError::Stale);
    assert_eq!(fs.lookup(root, b"home").unwrap_err(), FsError::NotFound);
    fs.closed(lost);
    fs.forget(lost, 1);
    let more: Vec<u32> = (0..4000).map(|n| file(&fs, root, &format!("more{n}"))).collect();
    assert!(more.contains(&lost), "it is free again");
    for ino in others.iter().chain(&more) {
        fs.forget(*ino, 1);
    }
    fs.closed(kept.ino);
    fs.unmount().unwrap();
    assert_clean(&dev, "after the remount");
}

/// Threads go on through it: none hangs, none is told that something is durable that is not.
#[test]
fn threads_go_on_through_it() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (dev, disk, fs) = rig(&["-t", "ext4", "-O", "fast_commit"], "");
    let stop = AtomicBool::new(false);
    let kept: Vec<Acknowledged> = std::thread::scope(|scope| {
        let (stop, fs) = (&stop, &fs);
        let work = move |t: usize| {
            let mut kept = Acknowledged::default();
            for n in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let (name, contents) = (format!("t{t}-{n}"), vec![t as u8 + 1; 5000]);
                if durable(fs, &name, &contents).is_ok() {
                    kept.0.push((name, contents));
                } else {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let _ = fs.stats_json();
            }
            kept
        };
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(move || work(t))).collect();
        for after in [20, 5, 0, 33] {
            std::thread::sleep(std::time::Duration::from_millis(30));
            fill(&disk, after);
            while !fs.is_stopped() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert!(fs.remount("rw").is_err());
            disk.disarm();
            fs.remount("rw").unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for kept in &kept {
        assert!(!kept.0.is_empty());
        kept.assert_kept(&fs, "beside remounts");
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "beside remounts");
}

/// A shutdown on purpose stands for a power cut and stays.
#[test]
fn a_shutdown_stays() {
    let (_dev, _disk, fs) = rig(&["-t", "ext4"], "");
    fs.shut_down(extol::vfs::Shutdown::from_number(2).unwrap()).unwrap();
    let refusal = fs.remount("rw").unwrap_err().0;
    assert!(refusal.contains("was shut down"), "{refusal}");
}

/// No fsync says that lost changes are durable: each open from before is told once, others once per
/// file, and the first sync of the volume.
#[test]
fn fsync_tells_what_was_lost() {
    // Times do not tell all changes apart, least of all in inodes of 128 bytes.
    for args in
        [&["-t", "ext4"][..], &["-t", "ext4", "-O", "fast_commit"], &["-t", "ext3", "-I", "128"]]
    {
        let (_dev, _disk, fs) = rig(args, "");
        fs.count_opens();
        let root = fs.root();
        for name in ["whole", "changed", "closed", "moved"] {
            durable(&fs, name, b"durable").unwrap();
        }
        fs.sync().unwrap();
        let find = |name: &str| fs.lookup(root, name.as_bytes()).unwrap().id.ino;
        let (whole, changed, closed) = (find("whole"), find("changed"), find("closed"));
        let opens = [fs.opened(changed).unwrap(), fs.opened(changed).unwrap()];
        let of_whole = fs.opened(whole).unwrap();
        assert_ne!(opens[0], opens[1]);
        fs.write(changed, 0, b"changed").unwrap();
        fs.write(closed, 0, b"changed").unwrap();
        fs.rename(root, b"moved", root, b"lost", extol::vfs::RenameFlags::empty()).unwrap();
        fs.remount("abort").unwrap();
        fs.remount("rw").unwrap();

        let later = fs.opened(changed).unwrap();
        fs.write(changed, 7, b" again").unwrap();
        fs.fsync_open(whole, of_whole, false).unwrap();
        let lost = |result: Result<(), FsError>| matches!(result, Err(FsError::Io(_)));
        for open in opens {
            assert!(lost(fs.fsync_open(changed, open, true)), "{args:?}");
            fs.fsync_open(changed, open, false).unwrap();
        }
        fs.fsync_open(changed, later, false).unwrap();
        for file in [closed, root] {
            assert!(lost(fs.fsync(file, false)), "{args:?}: {file}");
            fs.fsync(file, false).unwrap();
        }
        assert!(lost(fs.sync()), "{args:?}");
        fs.sync().unwrap();
        // Once more, with a file that was told and one that was not.
        fs.write(whole, 0, b"changed").unwrap();
        fs.remount("abort").unwrap();
        fs.remount("rw").unwrap();
        fs.remount("abort").unwrap();
        fs.remount("rw").unwrap();
        assert!(lost(fs.sync()) && lost(fs.fsync_open(whole, of_whole, false)), "{args:?}");
        fs.fsync_open(changed, later, false).unwrap();
        let mut text = [0; 20];
        assert_eq!(fs.read(changed, 0, &mut text), Ok(13));
        assert_eq!(&text[..13], b"durable again");
    }
}

/// The kernel below marks pages as clean that a failed flush has not written: what is read after
/// the remount is on the medium.
#[test]
fn pages_that_no_flush_has_written_are_dropped() {
    for args in [&["-t", "ext4", "-O", "fast_commit"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        for again in [false, true] {
            let what = format!("{args:?}, mounted again: {again}");
            let dev = image("32M", args);
            let host = Arc::new(HostFile::new(Arc::clone(&dev)));
            let options = MountOptions::parse("").unwrap();
            let mut fs = Ext4::open(Arc::clone(&host) as _, &options).unwrap();
            let mut kept = Acknowledged::default();
            for n in 0..20 {
                let (name, contents) = (format!("kept{n}"), vec![n; 9000]);
                durable(&fs, &name, &contents).unwrap();
                kept.0.push((name, contents));
            }
            fs.sync().unwrap();
            host.fail_flushes(true);
            let ino = fs.lookup(fs.root(), b"kept3").unwrap().id.ino;
            fs.write(ino, 0, &[0xEE; 9000]).unwrap();
            assert!(fs.fsync(ino, false).is_err(), "{what}");
            kept.until_it_fails(&fs, "during");
            host.fail_flushes(false);
            if again && args.contains(&"fast_commit") {
                fs.crash();
                drop(fs);
                fs = Ext4::open(Arc::clone(&host) as _, &options).unwrap();
            } else {
                fs.remount("rw").unwrap();
            }
            kept.assert_kept(&fs, &what);
            fs.forget(ino, 1);
            // A file that is not written again is the same when no page is cached any more.
            host.evict();
            kept.assert_kept(&fs, &what);
            fs.crash();
            host.evict();
            let fs = Ext4::open(Arc::clone(&host) as _, &options).unwrap();
            kept.assert_kept(&fs, &what);
        }
    }
}

/// A mount that the front end goes on with behaves as before: it counts opens, and refuses changes
/// while it is frozen; where the front end keeps sizes there is none.
#[test]
fn a_front_end_goes_on() {
    let (dev, _disk, fs) = rig(&["-t", "ext4"], "");
    fs.count_opens();
    fs.refuse_when_frozen();
    let root = fs.root();
    fs.remount("abort").unwrap();
    fs.remount("rw").unwrap();
    let free = || fs.statfs().unwrap().inodes_free;
    let before = free();
    let ino = file(&fs, root, "referenced");
    fs.unlink(root, b"referenced").unwrap();
    assert_eq!(fs.opened(ino), Err(FsError::Stale), "it is deleted though it is referenced");
    assert!(free() + 1 >= before);
    fs.forget(ino, 1);
    fs.freeze().unwrap();
    assert_eq!(fs.unlink(root, b"none"), Err(FsError::Frozen));
    fs.thaw().unwrap();
    fs.caches_sizes();
    fs.remount("abort").unwrap();
    let refusal = fs.remount("rw").unwrap_err().0;
    assert!(refusal.contains("writeback_cache"), "{refusal}");
    assert!(fs.is_stopped());
    drop(fs);
    open(&dev, "").unmount().unwrap();
    assert_clean(&dev, "the front end kept sizes");
}
