//! Deferred data, which waits for the leader of a commit, fast or full: every operation on its file
//! sees it.

#[path = "common/mod.rs"]
#[allow(dead_code)]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use extol::vfs::{FileSystem, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, MemDevice, Result};
use extol_sync::plain::{Condvar, Mutex};

/// Holds up the flushes of a device.
#[derive(Debug, Default)]
struct Valve {
    shut: Mutex<bool>,
    opened: Condvar,
    /// Flushes that wait there.
    held: Mutex<usize>,
}

impl Valve {
    fn set(&self, shut: bool) {
        *self.shut.lock() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        *self.held.lock() += 1;
        self.opened.wait_while(&mut self.shut.lock(), |shut| *shut);
        *self.held.lock() -= 1;
    }
}

/// Opens the valve when dropped, also by a failed test.
struct Open<'a>(&'a Valve);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[derive(Debug)]
struct Held(Arc<MemDevice>, Arc<Valve>);

impl BlockDevice for Held {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.1.pass();
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.0.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.0.zero_range(offset, len)
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Rig {
    dev: Arc<MemDevice>,
    valve: Arc<Valve>,
    fs: Arc<Ext4>,
}

impl Rig {
    /// With fast commits the pool has zeroed blocks, so that the data of small files has checksums.
    /// Without, none has.
    fn new(fast_commits: bool) -> Self {
        let features = if fast_commits { "fast_commit" } else { "^fast_commit" };
        let dev = image("64M", &["-t", "ext4", "-O", features]);
        let valve = Arc::new(Valve::default());
        let held = Arc::new(Held(Arc::clone(&dev), Arc::clone(&valve)));
        // No leader waits for other syncers.
        let options = MountOptions::parse("max_batch_time=0").unwrap();
        let rig = Self { fs: Ext4::open(held as _, &options).unwrap(), dev, valve };
        let fast = || rig.fs.stats().journal.fast_commit;
        let began = Instant::now();
        for n in 0..if fast_commits { u32::MAX } else { 0 } {
            let (file, before) =
                (rig.written(&format!("first{n}"), n as u8 | 1), fast().checksummed);
            rig.fs.fsync(file, false).unwrap();
            if fast().checksummed > before && n > 20 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{:?}", fast());
        }
        rig
    }

    fn written(&self, name: &str, byte: u8) -> u32 {
        let ino = file(&self.fs, self.fs.root(), name);
        assert_eq!(self.fs.write(ino, 0, &[byte; 5000]).unwrap(), 5000);
        ino
    }

    fn content(&self, ino: u32) -> Vec<u8> {
        let mut bytes = vec![0; 6000];
        let len = self.fs.read(ino, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// Calls `look` while the data of a file waits behind the flush of another one; returns the
    /// file's contents in the end.
    fn beside(&self, look: impl FnOnce(u32)) -> Vec<u8> {
        let (first, second) = (self.written("leads", 1), self.written("follows", 2));
        let held = || *self.valve.held.lock();
        wait_until("the device is quiet", || held() == 0);
        self.valve.set(true);
        std::thread::scope(|scope| {
            let open = Open(&self.valve);
            let leader = scope.spawn(|| self.fs.fsync(first, false));
            wait_until("the leader flushes", || held() > 0);
            let deferred = || self.fs.stats().journal.fast_commit.deferred;
            let before = deferred();
            let follower = scope.spawn(|| self.fs.fsync(second, false));
            wait_until("the follower has deferred its data", || deferred() > before);
            look(second);
            drop(open);
            leader.join().unwrap().unwrap();
            follower.join().unwrap().unwrap();
        });
        let content = self.content(second);
        let fs = &self.fs;
        for name in ["leads", "follows"] {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        content
    }
}

#[test]
fn read_changed_cut_and_mapped() {
    [true, false].into_iter().for_each(look_in_every_way);
}

fn look_in_every_way(fast: bool) {
    let rig = Rig::new(fast);
    let fs = &rig.fs;
    let whole = vec![2; 5000];
    let content = rig
        .beside(|ino| assert!(rig.content(ino) == whole, "what is read is not what was written"));
    assert!(content == whole);
    let content = rig.beside(|ino| assert_eq!(fs.write(ino, 100, &[3; 100]).unwrap(), 100));
    assert!(
        content[..100] == [2; 100]
            && content[100..200] == [3; 100]
            && content[200..] == whole[200..]
    );
    let content = rig.beside(|ino| {
        let cut = SetAttr { size: Some(10), ..SetAttr::default() };
        fs.setattr(ino, &cut).unwrap();
    });
    assert_eq!(content, [2; 10]);
    // Blocks that were freed hold other data by the end.
    let content = rig.beside(|ino| {
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr(ino, &cut).unwrap();
        fs.write(ino, 0, &[4; 3000]).unwrap();
    });
    assert_eq!(content, [4; 3000]);
    fs.unmount().unwrap();
    assert_clean(&rig.dev, "after all");
}
