//! Looks at the superblock on the device: requests while it does not answer, and what other
//! programs change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, MemDevice, SharedDevice};
use extol_ondisk::Superblock;
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use extol_sync::plain::{Condvar, Mutex};
use extol_vfs::{FileSystem, VolumeControl};

/// A device whose reads of the superblock wait while it is stuck.
#[derive(Debug)]
struct Stuck {
    inner: MemDevice,
    is_stuck: Mutex<bool>,
    freed: Condvar,
    waiting: AtomicU64,
}

impl Stuck {
    fn set(&self, is_stuck: bool) {
        *self.is_stuck.lock() = is_stuck;
        self.freed.notify_all();
    }
}

impl BlockDevice for Stuck {
    extol_block::pass_on!(shape, abilities, writes, ends, length);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        if offset == SUPERBLOCK_OFFSET {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut stuck = self.is_stuck.lock();
            self.freed.wait_while(&mut stuck, |stuck| *stuck);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        self.inner.read_at(buf, offset)
    }
}

fn volume() -> (Arc<Stuck>, Arc<Ext4>) {
    let inner = MemDevice::new(16 << 20);
    mkfs(&inner, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let device = Arc::new(Stuck {
        inner,
        is_stuck: Mutex::new(false),
        freed: Condvar::new(),
        waiting: AtomicU64::new(0),
    });
    let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &MountOptions::default()).unwrap();
    (device, fs)
}

/// Calls until the result is as wanted; the device is looked at within seconds.
fn within_seconds(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// LK-1: before a look, while one is under way, and behind it.
#[test]
fn a_device_that_does_not_answer_holds_up_no_statfs() {
    let (device, fs) = volume();
    // The next check is due.
    std::thread::sleep(Duration::from_millis(1100));
    device.set(true);
    let (told, answered) = std::sync::mpsc::channel();
    let asking = std::thread::spawn({
        let (device, fs) = (Arc::clone(&device), Arc::clone(&fs));
        move || {
            let ask = || {
                fs.statfs().unwrap();
                fs.identity().unwrap();
                fs.tunables().unwrap();
            };
            ask();
            let looks = within_seconds(|| device.waiting.load(Ordering::SeqCst) == 1);
            ask();
            told.send(looks).unwrap();
        }
    });
    let looked = answered.recv_timeout(Duration::from_secs(40));
    device.set(false);
    asking.join().unwrap();
    assert_eq!(looked, Ok(true), "all answered, and another thread looks");
    fs.unmount().unwrap();
}

/// As `tune2fs -L outside -r 300` does it, on a volume that writes nothing.
#[test]
fn what_another_program_changes_is_shown_without_a_write() {
    let (device, fs) = volume();
    let before = fs.statfs().unwrap();
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.inner.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    let mut sb = Superblock::decode(&bytes).unwrap();
    let more = 300;
    sb.r_blocks_count += more;
    sb.volume_name = *b"outside\0\0\0\0\0\0\0\0\0";
    device.inner.write_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
    let shown = within_seconds(|| {
        let now = fs.statfs().unwrap();
        now.blocks_available + more == before.blocks_available
            && now.blocks_free == before.blocks_free
    });
    assert!(shown, "{before:?}, {:?}", fs.statfs());
    assert_eq!(fs.identity().unwrap().label, b"outside");
    assert_eq!(fs.tunables().unwrap().reserved_blocks, sb.r_blocks_count);
    fs.unmount().unwrap();
}
