//! The thread: one for all volumes, alive while there is work, and out of the way of all else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use extol::Ext4;
use extol::device::{BlockDevice, MemDevice, Result as DeviceResult, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::resize::Target;
use extol::vfs::FileSystem as _;
use extol_devices::CountingDevice;

use crate::rig::*;

/// The thread belongs to the process, and so do these tests: one at a time.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    wait_for("the thread of another test ends", || threads() == 0);
    guard
}

/// How many threads of this process zero inode tables.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "extol-lazyinit").count()
}

/// A device on which zeroing waits for a sign.
#[derive(Debug)]
struct Gated {
    inner: MemDevice,
    gate: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Gated {
    fn new(inner: MemDevice) -> Arc<Self> {
        Arc::new(Self { inner, gate: Mutex::new((false, 0)), changed: Condvar::new() })
    }

    /// Lets zeroing through from now on.
    fn open_gate(&self) {
        self.gate.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn close_gate(&self) {
        self.gate.lock().unwrap().0 = false;
    }

    /// How many have come to zero something.
    fn came(&self) -> u64 {
        self.gate.lock().unwrap().1
    }
}

impl BlockDevice for Gated {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.inner.discard(offset, len)
    }
    fn zero_range(&self, offset: u64, len: u64) -> DeviceResult<()> {
        let mut gate = self.gate.lock().unwrap();
        gate.1 += 1;
        self.changed.notify_all();
        // Not for ever: a test that fails would hang in its unmount.
        let patience = std::time::Duration::from_secs(20);
        gate = self.changed.wait_timeout_while(gate, patience, |gate| !gate.0).unwrap().0;
        drop(gate);
        self.inner.zero_range(offset, len)
    }
}

fn gated(disk: &Disk) -> Arc<Gated> {
    Gated::new(disk.inner().snapshot())
}

fn open_gated(device: &Arc<Gated>, text: &str) -> Arc<Ext4> {
    Ext4::open(Arc::clone(device) as SharedDevice, &with_thread(text)).expect("mount")
}

fn as_disk(device: &Gated) -> Disk {
    Arc::new(CountingDevice::new(device.inner.snapshot()))
}

#[test]
fn l5_one_thread_for_all_volumes() {
    let _alone = alone();
    let devices: Vec<_> = (0..3).map(|_| gated(&ours(""))).collect();
    let volumes: Vec<_> = devices.iter().map(|d| open_gated(d, "init_itable=0")).collect();
    wait_for("a step", || devices.iter().any(|d| d.came() > 0));
    assert_eq!(threads(), 1);
    // It is held up by one of them; it is still the only one.
    assert_eq!(devices.iter().map(|d| d.came()).sum::<u64>(), 1);
    devices.iter().for_each(|d| d.open_gate());
    for fs in &volumes {
        wait_for("all groups", || fs.stats().lazy_init.state == "done");
        assert_eq!(fs.stats().lazy_init.groups_zeroed_now, GROUPS);
    }
    wait_for("the thread ends", || threads() == 0);
    let fourth = gated(&ours(""));
    let fs = open_gated(&fourth, "init_itable=0");
    wait_for("a step of the fourth", || fourth.came() > 0);
    assert_eq!(threads(), 1, "started again");
    fourth.open_gate();
    wait_for("all groups of the fourth", || fs.stats().lazy_init.state == "done");
    wait_for("the thread ends again", || threads() == 0);
    for fs in volumes.into_iter().chain([fs]) {
        fs.unmount().unwrap();
    }
    for device in devices.iter().chain([&fourth]) {
        assert_all_zeroed(&as_disk(device));
    }
}

#[test]
fn no_thread_where_nothing_is_to_do() {
    let _alone = alone();
    let done = ours("");
    let fs = open(&done, &by_hand(""));
    assert_eq!(all_steps(&fs), GROUPS);
    fs.unmount().unwrap();
    drop(fs);
    let undone = ours("");
    for (disk, text, state) in
        [(&done, "", "done"), (&undone, "noinit_itable", "off"), (&undone, "ro", "off")]
    {
        let fs = open(disk, &with_thread(text));
        assert_eq!((threads(), fs.stats().lazy_init.state.as_str()), (0, state), "{text}");
        fs.unmount().unwrap();
    }
}

/// Inodes are made while their group is being zeroed: they go elsewhere or wait, and none is lost.
#[test]
fn l2_inodes_of_a_group_that_is_being_zeroed() {
    let _alone = alone();
    let device = gated(&ours(""));
    let fs = open_gated(&device, "init_itable=0");
    wait_for("the first step", || device.came() > 0);
    // Group 0 is closed: files of the root go to other groups, at once.
    let (per_group, root) = (64, fs.root());
    for f in 0..40 {
        assert!(file(&fs, root, &format!("a{f}")) > per_group, "in the group that is being zeroed");
    }
    let free = fs.stats().free_inodes;
    // To the last inode: one creation has to wait for the group.
    let ended = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let (fs, ended) = (&fs, &ended);
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for f in 0..free / 4 {
                        made.push((format!("b{t}-{f}"), file(fs, root, &format!("b{t}-{f}"))));
                    }
                    ended.store(true, Ordering::SeqCst);
                    made
                })
            })
            .collect();
        // Only the inodes of the closed group are left.
        wait_for("the other groups are full", || fs.stats().free_inodes <= u64::from(per_group));
        device.open_gate();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(made.len() as u64, free / 4 * 4);
    wait_for("all groups", || fs.stats().lazy_init.state == "done");
    fs.unmount().unwrap();
    drop(fs);
    let disk = as_disk(&device);
    assert_all_zeroed(&disk);
    assert_clean(&disk, "full of inodes");
    let fs = open(&disk, &by_hand("ro"));
    for (name, ino) in &made {
        assert_eq!(fs.lookup(root, name.as_bytes()).unwrap().id.ino, *ino, "{name}");
    }
}

#[test]
fn l2_creates_and_removals_beside_it() {
    let _alone = alone();
    for round in 0..4 {
        let disk = ours("");
        let fs = open(&disk, &with_thread("init_itable=0"));
        let root = fs.root();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let fs = &fs;
                scope.spawn(move || {
                    let home = dir(fs, root, &format!("t{t}"));
                    for f in 0..60 {
                        let name = format!("f{f}");
                        file(fs, home, &name);
                        if (f + round) % 3 == 0 {
                            fs.unlink(home, name.as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        wait_for("all groups", || fs.stats().lazy_init.state == "done");
        fs.unmount().unwrap();
        drop(fs);
        assert_all_zeroed(&disk);
        assert_clean(&disk, "worked on meanwhile");
    }
}

/// Unmount waits for the piece under way and for no more; the volume is not kept open.
#[test]
fn l4_unmount_in_the_middle() {
    let _alone = alone();
    let device = gated(&ours(""));
    let fs = open_gated(&device, "init_itable=4000000000");
    wait_for("a step", || device.came() > 0);
    let came = std::thread::scope(|scope| {
        let ending = scope.spawn(|| fs.unmount());
        while fs.stats().lazy_init.state == "done" || !ending.is_finished() && device.came() == 0 {
            std::thread::yield_now();
        }
        let came = device.came();
        device.open_gate();
        ending.join().unwrap().unwrap();
        came
    });
    let stats = fs.stats().lazy_init;
    assert_eq!(stats.state, "stopped", "{stats:?}");
    wait_for("the thread ends with its last request", || threads() == 0);
    let weak = Arc::downgrade(&fs);
    drop(fs);
    assert!(weak.upgrade().is_none(), "something keeps the volume open");
    let disk = as_disk(&device);
    assert!(tables(&disk).wrong.is_empty());
    assert_clean(&disk, "closed in the middle");
    assert!(came >= 1);
    let fs = open(&disk, &by_hand(""));
    let done = fs.stats().lazy_init.groups_done;
    assert_eq!(all_steps(&fs), GROUPS - done);
    fs.unmount().unwrap();
    assert_all_zeroed(&disk);
}

#[test]
fn l8_off_and_on_while_it_runs() {
    let _alone = alone();
    let device = gated(&ours(""));
    device.open_gate();
    let fs = open_gated(&device, "init_itable=4000000000");
    wait_for("the first group", || fs.stats().lazy_init.groups_done == 1);
    let waiting = fs.stats().lazy_init;
    assert_eq!((waiting.state.as_str(), threads()), ("waiting", 1), "{waiting:?}");
    assert!(waiting.next_due_ms.is_some_and(|ms| ms > 1000), "{waiting:?}");
    fs.remount("noinit_itable").unwrap();
    assert_eq!(fs.stats().lazy_init.state, "off");
    wait_for("the thread ends", || threads() == 0);
    device.close_gate();
    let came = device.came();
    fs.remount("init_itable=0").unwrap();
    wait_for("a step", || device.came() > came);
    // Off in the middle of a step: it ends first, and nothing follows.
    std::thread::scope(|scope| {
        let off = scope.spawn(|| fs.remount("noinit_itable"));
        device.open_gate();
        off.join().unwrap().unwrap();
    });
    let came = device.came();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!((device.came(), fs.stats().lazy_init.state.as_str()), (came, "off"));
    fs.remount("init_itable=0").unwrap();
    wait_for("the rest", || fs.stats().lazy_init.state == "done");
    fs.unmount().unwrap();
    drop(fs);
    assert_all_zeroed(&as_disk(&device));
}

/// After a crash nothing is written any more, and the thread is gone.
#[test]
fn a_crash_ends_it() {
    let _alone = alone();
    let device = gated(&ours(""));
    device.open_gate();
    let fs = open_gated(&device, "init_itable=1000000");
    wait_for("the first group", || fs.stats().lazy_init.groups_done == 1);
    fs.crash();
    let came = device.came();
    wait_for("the thread ends", || threads() == 0);
    assert_eq!((device.came(), fs.stats().lazy_init.state.as_str()), (came, "stopped"));
    drop(fs);
    assert!(tables(&as_disk(&device)).wrong.is_empty());
}

/// The tables of new groups are zeroed, too, though all others had been done.
#[test]
fn a_volume_that_grows_begins_again() {
    let _alone = alone();
    let device = garbage(SIZE);
    // (The log of so small a volume cannot hold a change of all reserved lists.)
    let options = lazily("^resize_inode");
    let half = MkfsOptions { size: Some(SIZE / 2), inodes: Some(512), ..options };
    mkfs(&device, &half, &mut |_| {}).expect("mkfs");
    let device = Gated::new(device);
    device.open_gate();
    let fs = open_gated(&device, "init_itable=0");
    let done = |groups: u64| {
        let stats = fs.stats().lazy_init;
        (stats.state.as_str(), stats.groups_total, stats.groups_done) == ("done", groups, groups)
    };
    wait_for("all are done", || done(GROUPS / 2));
    fs.grow(Target::Device, &mut |_| true).expect("grow");
    wait_for("the new ones are done", || done(GROUPS));
    fs.unmount().expect("unmount");
    assert_all_zeroed(&as_disk(&device));
    assert_clean(&as_disk(&device), "grown");
}
