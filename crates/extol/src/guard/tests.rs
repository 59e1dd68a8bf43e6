//! Other writers on the device, and changes from outside that are taken over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extol_block::{BlockDevice, MemDevice};
use extol_ondisk::features::Incompat;
use extol_ondisk::superblock::SUPERBLOCK_OFFSET;

use super::*;

const LOG_AT: u64 = 1 << 20;

#[derive(Debug, Default)]
struct FakeTime(AtomicU64);

impl Time for FakeTime {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, how_long: Duration) {
        self.0.fetch_add(u64::try_from(how_long.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

struct Rig {
    disk: Arc<MemDevice>,
    time: Arc<FakeTime>,
    guard: Arc<Guard>,
    guarded: GuardedDevice,
    sb: Superblock,
}

fn rig() -> Rig {
    let disk = Arc::new(MemDevice::new(2 << 20));
    let mut sb = Superblock::new_empty();
    sb.blocks_count = 512;
    sb.log_block_size = 2;
    sb.feature_incompat = Incompat::NEEDS_RECOVERY;
    sb.mtime = 1000;
    disk.write_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
    let below: SharedDevice = Arc::clone(&disk) as _;
    let time = Arc::new(FakeTime::default());
    let guard = Arc::new(Guard::new(Arc::clone(&below), Arc::clone(&time) as _));
    guard.watch(Some(LOG_AT)).unwrap();
    let guarded = GuardedDevice::new(below, Arc::clone(&guard), Part::Volume);
    Rig { disk, time, guard, guarded, sb }
}

impl Rig {
    fn on_device(&self) -> Superblock {
        let mut bytes = [0; 1024];
        self.disk.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        Superblock::decode(&bytes).unwrap()
    }

    /// Another program changes the superblock.
    fn other_writer(&self, change: impl FnOnce(&mut Superblock)) {
        let mut sb = self.on_device();
        change(&mut sb);
        self.disk.write_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
    }

    /// A second later.
    fn next_write(&self) -> Result<(), String> {
        self.time.sleep(Duration::from_millis(1001));
        self.guarded.write_at(&[1; 4096], 1 << 19).map_err(|e| e.to_string())
    }
}

#[test]
fn another_mount_is_seen_within_a_second() {
    type Writer = fn(&Rig);
    let writers: [(&str, Writer); 7] = [
        ("log sequence", |rig| rig.disk.write_at(&[9; 4], LOG_AT + 0x18).unwrap()),
        ("log start", |rig| rig.disk.write_at(&[9; 4], LOG_AT + 0x1C).unwrap()),
        ("time of mount", |rig| rig.other_writer(|sb| sb.mtime += 1)),
        ("recovered", |rig| rig.other_writer(|sb| sb.feature_incompat = Incompat::empty())),
        ("made anew", |rig| rig.other_writer(|sb| sb.inodes_count = 77)),
        ("overwritten", |rig| rig.disk.write_at(&[7; 4096], 0).unwrap()),
        ("zeros", |rig| rig.disk.write_at(&[0; 4096], 0).unwrap()),
    ];
    for (name, other_writer) in writers {
        let rig = rig();
        rig.next_write().unwrap();
        other_writer(&rig);
        let before = rig.disk.to_bytes();
        let error = rig.next_write().expect_err(name);
        let told = if name == "zeros" { "all zeros" } else { "another program or system" };
        assert!(error.contains(told) && !error.contains('\n'), "{name}: {error}");
        assert!(rig.guarded.write_mark(&rig.sb.encode(), SUPERBLOCK_OFFSET).is_err(), "{name}");
        assert!(rig.guarded.flush().is_err(), "{name}");
        assert!(rig.disk.to_bytes() == before, "{name}: something was written");
    }
}

/// An image that another process may have open.
#[derive(Debug)]
struct Shared {
    inner: Arc<MemDevice>,
    open: AtomicBool,
}

impl BlockDevice for Shared {
    extol_block::pass_on!(reads, writes, ends);

    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn others_open_it(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

/// Within the second in which nothing is due, changes and flushes are checked while another process
/// has the image open, and after that the first of them is.
#[test]
fn an_open_by_another_process_makes_a_check_due() {
    for (closes, flushes) in [(false, false), (false, true), (true, false), (true, true)] {
        let plain = rig();
        let open = AtomicBool::new(false);
        let device = Arc::new(Shared { inner: Arc::clone(&plain.disk), open });
        let below: SharedDevice = Arc::clone(&device) as _;
        let guard = Arc::new(Guard::new(Arc::clone(&below), Arc::clone(&plain.time) as _));
        guard.watch(Some(LOG_AT)).unwrap();
        let guarded = GuardedDevice::new(below, Arc::clone(&guard), Part::Volume);
        guarded.write_at(&[1; 4096], 1 << 19).unwrap();
        plain.other_writer(|sb| sb.mtime += 1);
        guarded.write_at(&[1; 4096], 1 << 19).expect("no check is due");
        device.open.store(true, Ordering::Relaxed);
        if closes {
            // The other process has come and gone: told by one answer.
            assert!(guard.is_opened());
            device.open.store(false, Ordering::Relaxed);
        }
        let changed = match flushes {
            true => guarded.flush(),
            false => guarded.write_at(&[2; 4096], 1 << 19),
        };
        let error = changed.expect_err("another writer").to_string();
        assert!(error.contains("mounted a second time"), "{error}");
        // A reader that has the image open is no writer.
        let reader = Arc::new(Shared { inner: Arc::clone(&plain.disk), open: true.into() });
        let below: SharedDevice = reader;
        let guard = Arc::new(Guard::new(Arc::clone(&below), Arc::clone(&plain.time) as _));
        guard.watch(Some(LOG_AT)).unwrap();
        let guarded = GuardedDevice::new(below, guard, Part::Volume);
        guarded.write_at(&[3; 4096], 1 << 19).and_then(|()| guarded.flush()).unwrap();
    }
}

/// A file that was cut, and what is left of it.
#[derive(Debug)]
struct Cut {
    inner: Arc<MemDevice>,
    now: AtomicU64,
}

impl BlockDevice for Cut {
    extol_block::pass_on!(reads, writes, ends);

    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn size_now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
    fn is_read_only(&self) -> bool {
        false
    }
}

/// Before a write behind the end makes the file longer again; by its true name, and not as another
/// writer. What no volume needs may be cut.
#[test]
fn a_cut_below_the_volume_is_told_by_its_sizes() {
    for is_log in [false, true] {
        let rig = rig();
        let size = rig.disk.size();
        let cut = Arc::new(Cut { inner: Arc::clone(&rig.disk), now: AtomicU64::new(size) });
        let below: SharedDevice =
            if is_log { Arc::clone(&rig.disk) as _ } else { Arc::clone(&cut) as _ };
        let guard = Arc::new(Guard::new(Arc::clone(&below), Arc::clone(&rig.time) as _));
        let needed = if is_log {
            // Blocks of 1024 bytes, 100 of them.
            let sizes = [&1024_u32.to_be_bytes()[..], &100_u32.to_be_bytes()].concat();
            rig.disk.write_at(&sizes, LOG_AT + 0x0C).unwrap();
            guard.stand_before_log(Arc::clone(&cut) as _);
            100 << 10
        } else {
            size
        };
        guard.watch(Some(LOG_AT)).unwrap();
        let guarded = GuardedDevice::new(below, guard, Part::Volume);
        let next_write = || {
            rig.time.sleep(Duration::from_millis(1001));
            guarded.write_at(&[1; 4096], 1 << 19).map_err(|e| e.to_string())
        };
        cut.now.store(needed, Ordering::Relaxed);
        next_write().unwrap();
        cut.now.store(needed - 1, Ordering::Relaxed);
        let before = rig.disk.to_bytes();
        let error = next_write().unwrap_err();
        let told = format!("was cut to {} of {needed} bytes", needed - 1);
        assert!(error.contains(&told) && !error.contains("another program"), "{error}");
        // For good.
        cut.now.store(size, Ordering::Relaxed);
        assert!(next_write().is_err() && guarded.flush().is_err());
        assert!(rig.disk.to_bytes() == before, "something was written");
    }
}

/// Before a stopped volume is opened again: another mount is seen also after a failed write, when
/// the contents of both superblocks are in doubt; the mount's own bytes, old or new, are not.
#[test]
fn another_mount_is_seen_before_a_volume_is_opened_again() {
    for failed_write in [false, true] {
        let fresh = || {
            let rig = rig();
            rig.next_write().unwrap();
            if failed_write {
                rig.guard.watch.lock().as_mut().unwrap().set_uncertain();
                rig.other_writer(|sb| sb.feature_incompat = Incompat::empty());
            }
            rig
        };
        let own = fresh();
        own.guard.check_before_reopening().unwrap();
        let rig = fresh();
        rig.other_writer(|sb| sb.mtime += 1);
        let why = rig.guard.check_before_reopening().unwrap_err();
        assert!(why.contains("mounted a second time"), "{why}");
        // For good.
        rig.other_writer(|sb| sb.mtime -= 1);
        assert!(rig.guard.check_before_reopening().is_err() && rig.next_write().is_err());
        // A failed opening is the mount's own, unless it meets another volume.
        own.other_writer(|sb| sb.mtime += 5);
        own.guard.after_failed_reopening();
        own.guard.check_before_reopening().unwrap();
        own.other_writer(|sb| sb.inodes_count += 5);
        own.guard.after_failed_reopening();
        assert!(own.guard.check_before_reopening().is_err());
    }
}

#[test]
fn own_writes_are_not_refused() {
    let rig = rig();
    let mut sb = rig.sb.clone();
    for round in 0..5_u8 {
        sb.mtime += 1;
        sb.free_blocks_count = round.into();
        rig.guard.note_change(&rig.on_device().encode(), &sb.encode());
        // As a checkpoint brings it home: the whole block, among others.
        let mut block = vec![0; 4096];
        block[1024..2048].copy_from_slice(&sb.encode());
        let data = [round; 4096];
        let (first, other) = ([std::io::IoSlice::new(&block)], [std::io::IoSlice::new(&data)]);
        rig.guarded
            .write_scattered(&[
                extol_block::ScatteredWrite { offset: 0, bufs: &first },
                extol_block::ScatteredWrite { offset: 8192, bufs: &other },
            ])
            .unwrap();
        rig.guarded.write_fua(&[round; 4096], LOG_AT).unwrap();
        rig.next_write().unwrap();
        assert_eq!(
            (rig.on_device().free_blocks_count, rig.on_device().mtime),
            (round.into(), sb.mtime)
        );
    }
}

#[test]
fn a_label_from_outside_survives_and_becomes_known() {
    let rig = rig();
    rig.other_writer(|sb| {
        sb.volume_name = *b"outside\0\0\0\0\0\0\0\0\0";
        sb.max_mnt_count = 12;
    });
    let mut sb = rig.sb.clone();
    sb.free_inodes_count = 5;
    // Long before the next check.
    rig.guarded.write_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
    let now = rig.on_device();
    assert_eq!((now.label(), now.max_mnt_count, now.free_inodes_count), (&b"outside"[..], 12, 5));
    assert!(rig.guard.take_outside_change(&mut sb));
    assert_eq!((sb.label(), sb.free_inodes_count), (&b"outside"[..], 5));
    assert!(!rig.guard.take_outside_change(&mut sb), "once");
    // A change on purpose wins, and a stale copy that comes later does not undo it.
    let stale = sb.clone();
    let mut named = sb.clone();
    named.volume_name = *b"inside\0\0\0\0\0\0\0\0\0\0";
    rig.guard.note_change(&sb.encode(), &named.encode());
    rig.guarded.write_at(&named.encode(), SUPERBLOCK_OFFSET).unwrap();
    assert_eq!(rig.on_device().label(), b"inside");
    rig.guarded.write_at(&stale.encode(), SUPERBLOCK_OFFSET).unwrap();
    assert_eq!(rig.on_device().label(), b"inside");
    rig.next_write().unwrap();
}

/// What the mount changed on purpose is in a transaction that never becomes durable.
#[test]
fn a_mark_has_nothing_that_is_not_durable() {
    let rig = rig();
    let mut named = rig.sb.clone();
    named.volume_name = *b"never\0\0\0\0\0\0\0\0\0\0\0";
    named.r_blocks_count = 200;
    rig.guard.note_change(&rig.sb.encode(), &named.encode());
    let mut marked = rig.sb.clone();
    marked.error_count = 1;
    rig.guarded.write_mark(&marked.encode(), SUPERBLOCK_OFFSET).unwrap();
    let now = rig.on_device();
    assert_eq!((now.label(), now.r_blocks_count, now.error_count), (&b""[..], 0, 1));
}

/// An image on a file system without locks.
#[derive(Debug)]
struct Unlocked {
    inner: Arc<MemDevice>,
}

impl BlockDevice for Unlocked {
    extol_block::pass_on!(reads, ends);

    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn is_locked(&self) -> bool {
        false
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.inner.write_at(buf, offset)
    }
}

#[test]
fn a_mount_without_a_lock_says_so() {
    let disk = Arc::new(MemDevice::new(16 << 20));
    crate::mkfs::mkfs(&*disk, &crate::mkfs::MkfsOptions::default(), &mut |_| {}).unwrap();
    let options = crate::MountOptions::default().without_threads();
    let said = |device: SharedDevice| {
        let fs = crate::Ext4::open(device, &options).unwrap();
        fs.notes().iter().any(|note| note.contains("no locks (flock)"))
    };
    assert!(said(Arc::new(Unlocked { inner: Arc::clone(&disk) })));
    assert!(!said(disk));
}

/// Two mounts of one unlocked image: the first one stops, and the volume is the second one's.
#[test]
fn the_first_of_two_mounts_stops() {
    use extol_vfs::{Creds, FileSystem, NewNode};

    let disk = Arc::new(MemDevice::new(16 << 20));
    crate::mkfs::mkfs(&*disk, &crate::mkfs::MkfsOptions::default(), &mut |_| {}).unwrap();
    let open = || {
        let device = Arc::new(Unlocked { inner: Arc::clone(&disk) });
        crate::Ext4::open(device, &crate::MountOptions::default()).unwrap()
    };
    let make = |fs: &crate::Ext4, name: &str| {
        let made =
            fs.create(fs.root(), name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default())?;
        fs.write(made.id.ino, 0, name.as_bytes())?;
        let synced = fs.fsync(made.id.ino, false);
        fs.forget(made.id.ino, 1);
        synced
    };
    let first = open();
    make(&first, "before").unwrap();
    let second = open();
    make(&second, "theirs").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    make(&first, "after").expect_err("two writers");
    let why = first.first_error().expect("it says why");
    assert!(why.contains("another program or system"), "{why}");
    first.unmount().expect_err("what was not written is lost");
    make(&second, "more").unwrap();
    second.unmount().unwrap();
    let fs = open();
    for name in ["before", "theirs", "more"] {
        fs.forget(fs.lookup(fs.root(), name.as_bytes()).expect(name).id.ino, 1);
    }
    fs.unmount().unwrap();
    let report =
        extol_check::check(disk, &extol_check::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
