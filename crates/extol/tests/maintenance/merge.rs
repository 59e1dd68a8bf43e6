use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use extol::vfs::VolumeControl as _;
use extol::vfs::{CheckpointFlags, FileSystem, FsError, Result};
use extol::{Ext4, MountOptions};
use extol_block::{DeviceOp, IoPriority, MemDevice};
use extol_devices::Fault;

use crate::common::*;
use crate::stopped_flush::{FlushStopDevice, PATIENCE};

fn open_on(dev: &Arc<FlushStopDevice>, options: &str) -> Arc<Ext4> {
    Ext4::open(Arc::clone(dev) as _, &MountOptions::parse(options).unwrap()).unwrap()
}

fn volume() -> (Arc<FlushStopDevice>, Arc<Ext4>) {
    let dev = FlushStopDevice::new(&image("32M", &["-t", "ext4", "-J", "size=4"]));
    let fs = open_on(&dev, "commit=3600");
    (dev, fs)
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A thread that makes a file and asks for all to be durable, by one call or another.
fn caller(fs: &Arc<Ext4>, i: usize) -> JoinHandle<Result<()>> {
    let fs = Arc::clone(fs);
    std::thread::spawn(move || {
        let ino = file(&fs, fs.root(), &format!("file-{i}"));
        fs.write(ino, 0, &[i as u8; 3000])?;
        if i % 5 == 4 { fs.checkpoint(CheckpointFlags::empty()) } else { fs.sync() }
    })
}

/// All files of the callers are on the medium, even if everything that is not durable now is lost.
fn assert_durable(dev: &FlushStopDevice, files: std::ops::Range<usize>, clean: bool) {
    let recording = dev.recording();
    let crashed = recording.image_at(recording.position(), |_| false);
    assert_files(&Arc::new(crashed), files, clean);
}

fn assert_files(dev: &Arc<MemDevice>, files: std::ops::Range<usize>, clean: bool) {
    if clean {
        assert_clean(dev, "as it lies");
    }
    let fs = open(dev, "");
    for i in files {
        let ino = fs
            .lookup(fs.root(), format!("file-{i}").as_bytes())
            .unwrap_or_else(|e| panic!("file-{i}: {e}"));
        let mut bytes = [0; 3001];
        assert_eq!(fs.read(ino.id.ino, 0, &mut bytes), Ok(3000), "file-{i}");
        assert!(bytes[..3000].iter().all(|b| *b == i as u8), "file-{i}");
    }
    fs.unmount().unwrap();
}

/// One request under way and ninety-nine waiting cost two operations, and each caller finds durable
/// what it did before its call (MN-1).
#[test]
fn a_hundred_requests_cost_two_operations() {
    let (dev, fs) = volume();
    let (hold, arrived) = dev.hold_flushes();
    let mut callers = vec![caller(&fs, 0)];
    arrived.recv_timeout(PATIENCE).expect("the first one flushes");
    let transactions = fs.stats().journal.transactions;
    callers.extend((1..100).map(|i| caller(&fs, i)));
    wait_for("all wait", || fs.stats().checkpoint_merge.queued == 100);
    drop(hold);
    for caller in callers {
        caller.join().unwrap().unwrap();
    }
    assert_durable(&dev, 0..100, false);
    let stats = fs.stats();
    let merge = stats.checkpoint_merge;
    assert!(merge.enabled);
    assert_eq!((merge.queued, merge.total), (0, 100));
    assert!(merge.issued <= 3, "{merge:?}");
    assert!(merge.peak_time_ms >= merge.cur_time_ms);
    // The flush that stops, and those of the files made meanwhile.
    assert!(
        stats.journal.transactions <= transactions + 4,
        "{} transactions",
        stats.journal.transactions
    );
    assert!(merge.line().starts_with("CP merge (Queued:    0, Issued:    "), "{}", merge.line());
    fs.unmount().unwrap();
    assert_files(&Arc::new(dev.recording().current()), 0..100, true);
}

/// Every caller that waits for a failing flush gets the error.
#[test]
fn a_failure_reaches_all_callers() {
    let (dev, fs) = volume();
    let (hold, arrived) = dev.hold_flushes();
    let mut callers = vec![caller(&fs, 0)];
    arrived.recv_timeout(PATIENCE).expect("the first one flushes");
    callers.extend((1..20).map(|i| caller(&fs, i)));
    wait_for("all wait", || fs.stats().checkpoint_merge.queued == 20);
    dev.arm(Fault::from_then_on(DeviceOp::Flush, 0));
    drop(hold);
    for caller in callers {
        let error = caller.join().unwrap().unwrap_err();
        assert!(matches!(error, FsError::Io(_) | FsError::ReadOnly), "{error}");
    }
    assert_eq!(fs.stats().checkpoint_merge.queued, 0);
    assert!(fs.sync().is_err(), "and later ones, too");
    assert!(fs.unmount().is_err());
}

/// An unmount answers the waiting requests before its last write-out (MN-5).
#[test]
fn an_unmount_answers_waiting_requests() {
    let (dev, fs) = volume();
    let (hold, arrived) = dev.hold_flushes();
    let mut callers = vec![caller(&fs, 0)];
    arrived.recv_timeout(PATIENCE).expect("the first one flushes");
    callers.extend((1..20).map(|i| caller(&fs, i)));
    wait_for("all wait", || fs.stats().checkpoint_merge.queued == 20);
    let unmount = {
        let fs = Arc::clone(&fs);
        std::thread::spawn(move || fs.unmount())
    };
    wait_for("the thread is told to end", || !fs.stats().checkpoint_merge.enabled);
    drop(hold);
    for caller in callers {
        caller.join().unwrap().unwrap();
    }
    unmount.join().unwrap().unwrap();
    let merge = fs.stats().checkpoint_merge;
    assert_eq!((merge.queued, merge.total, merge.enabled), (0, 20, false));
    assert!(fs.remount("checkpoint=merge").is_err(), "a closed volume starts nothing");
    assert_files(&Arc::new(dev.recording().current()), 0..20, true);
}

/// On and off during requests: every request ends, and all is durable when it returns.
#[test]
fn on_and_off_under_load() {
    let (dev, fs) = volume();
    let callers: Vec<_> = (0..4)
        .map(|t| {
            let fs = Arc::clone(&fs);
            std::thread::spawn(move || {
                for i in 0..10 {
                    caller(&fs, t * 10 + i).join().unwrap().unwrap();
                }
            })
        })
        .collect();
    let mut on = true;
    while callers.iter().any(|caller| !caller.is_finished()) {
        on = !on;
        fs.remount(if on { "checkpoint=merge" } else { "checkpoint=nomerge" }).unwrap();
        assert_eq!(fs.stats().checkpoint_merge.enabled, on);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(fs.stats().checkpoint_merge.queued, 0);
    assert_durable(&dev, 0..40, false);
    fs.unmount().unwrap();
}

/// Without merging, and without threads, callers do it themselves.
#[test]
fn directly() {
    for threads in [true, false] {
        let dev = FlushStopDevice::new(&image("32M", &["-t", "ext4", "-J", "size=4"]));
        let mut options = MountOptions::parse("checkpoint=nomerge").unwrap();
        options.background.threads = threads;
        let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
        for i in 0..5 {
            caller(&fs, i).join().unwrap().unwrap();
        }
        assert_durable(&dev, 0..5, false);
        let merge = fs.stats().checkpoint_merge;
        assert_eq!((merge.enabled, merge.issued, merge.total), (false, 0, 0));
        fs.remount("checkpoint=merge").unwrap();
        assert_eq!(fs.stats().checkpoint_merge.enabled, threads);
        caller(&fs, 5).join().unwrap().unwrap();
        assert_eq!(fs.stats().checkpoint_merge.total, u64::from(threads));
        fs.unmount().unwrap();
    }
}

/// Priorities of this process's threads of that name.
fn priorities(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named = tasks.filter_map(|task| {
        let task = task.ok()?;
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let id = task.file_name().to_str()?.parse().ok()?;
        let priority = IoPriority::of_thread(id).ok()??;
        (comm.trim() == name).then(|| priority.to_string())
    });
    named.collect()
}

/// The threads of the volume have a priority of their own, and take another at once.
#[test]
fn the_threads_have_their_priorities() {
    let dev = FlushStopDevice::new(&image("32M", &["-t", "ext4", "-J", "size=4"]));
    // Levels that no other test here uses.
    let fs = open_on(&dev, "ckpt_thread_ioprio=be:6,journal_ioprio=1");
    let has = |name: &str, priority: &str| {
        wait_for(&format!("{name} has {priority}"), || {
            priorities(name).iter().any(|p| p == priority)
        });
    };
    has("extol-ckpt", "be,6");
    has("extol-commit", "be,1");
    fs.remount("ckpt_thread_ioprio=idle,journal_ioprio=5").unwrap();
    has("extol-ckpt", "idle");
    has("extol-commit", "be,5");
    // Also a thread that starts later.
    fs.remount("checkpoint=nomerge").unwrap();
    wait_for("gone", || !priorities("extol-ckpt").iter().any(|p| p == "idle"));
    fs.remount("checkpoint=merge").unwrap();
    has("extol-ckpt", "idle");
    fs.unmount().unwrap();
}
