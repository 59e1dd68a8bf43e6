//! Steps one by one: what they write, what they leave alone, what stops them.

use std::sync::Arc;

use extol::device::DeviceOp;
use extol::device::{BlockDevice as _, MemDevice, SharedDevice};
use extol::mkfs::mkfs;
use extol::vfs::FileSystem as _;
use extol::vfs::Mountable as _;
use extol::{Ext4, FsError};
use extol_devices::{CountingDevice, Fault, FaultDevice};
use extol_testkit::{KernelMount, Need, require, run_ok, tool};

use crate::rig::*;

#[test]
fn l1_every_table_is_zeroed_and_used_inodes_stay() {
    let kinds: [(&str, Disk); 6] = [
        ("ours", ours("")),
        ("ours, crc16", ours("^metadata_csum,uninit_bg")),
        ("ours, 32 bit, no log", ours("^64bit,^has_journal,^orphan_file")),
        ("mke2fs", theirs(&["-t", "ext4"])),
        ("mke2fs, crc16", theirs(&["-t", "ext4", "-O", "^metadata_csum,uninit_bg"])),
        ("mke2fs, meta_bg", theirs(&["-t", "ext4", "-O", "meta_bg,^resize_inode"])),
    ];
    for (kind, disk) in kinds {
        let before = tables(&disk);
        assert!(before.claimed < 2 && before.unclaimed_zero < 2, "{kind}: {before:?}");
        let fs = open(&disk, &by_hand(""));
        // Used inodes in several groups.
        let mut made = Vec::new();
        for d in 0..6 {
            let home = dir(&fs, fs.root(), &format!("d{d}"));
            made.extend((0..9).map(|f| file(&fs, home, &format!("f{f}"))));
        }
        let attrs: Vec<_> = made.iter().map(|ino| fs.getattr(*ino).unwrap()).collect();
        let steps = all_steps(&fs);
        let stats = fs.stats().lazy_init;
        assert_eq!((stats.groups_total, stats.groups_done), (GROUPS, GROUPS), "{kind}: {stats:?}");
        assert_eq!(
            (stats.groups_zeroed_now, stats.state.as_str()),
            (steps, "done"),
            "{kind}: {stats:?}"
        );
        assert_eq!(steps, GROUPS - u64::from(before.claimed), "{kind}");
        assert!(stats.bytes_zeroed > 0 && stats.skipped_by_read == 0, "{kind}: {stats:?}");
        // And used ones in what was just zeroed.
        for f in 0..200 {
            file(&fs, fs.root(), &format!("later{f}"));
        }
        assert_eq!(fs.init_itables_step(), Ok(None), "{kind}");
        fs.unmount().unwrap();
        drop(fs);
        assert_all_zeroed(&disk);
        let (_scratch, image) = assert_clean(&disk, kind);
        let text = run_ok(tool("dumpe2fs").arg(&image.path));
        assert_eq!(text.matches("ITABLE_ZEROED").count() as u64, GROUPS, "{kind}");
        let fs = open(&disk, &by_hand("ro"));
        for (ino, attr) in made.iter().zip(attrs) {
            assert_eq!(fs.getattr(*ino), Ok(attr), "{kind}: inode {ino}");
        }
    }
}

#[test]
fn l1_linux_mounts_and_writes_afterwards() {
    if !require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
        return;
    }
    let disk = ours("");
    let fs = open(&disk, &by_hand(""));
    assert_eq!(all_steps(&fs), GROUPS);
    fs.unmount().unwrap();
    drop(fs);
    let (scratch, image) = assert_clean(&disk, "before Linux");
    let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &["init_itable=0"]);
    for f in 0..300 {
        std::fs::write(mount.path().join(format!("f{f}")), b"x").unwrap();
    }
    mount.unmount();
    extol_testkit::e2fsck(&image).assert_clean("after Linux");
}

#[test]
fn zero_tables_are_read_and_not_written() {
    // A device that reads zeros, but whose descriptors do not say so.
    let device = MemDevice::new(SIZE);
    mkfs(&device, &lazily(""), &mut |_| {}).unwrap();
    let disk: Disk = Arc::new(CountingDevice::new(device));
    let fs = open(&disk, &by_hand(""));
    let before = disk.stats();
    assert_eq!(all_steps(&fs), GROUPS);
    let stats = fs.stats().lazy_init;
    assert_eq!((stats.skipped_by_read, stats.bytes_zeroed), (GROUPS, 0), "{stats:?}");
    assert_eq!(disk.stats().zeros, before.zeros);
    fs.unmount().unwrap();
    assert_all_zeroed(&disk);
}

#[test]
fn l4_goes_on_where_it_stopped() {
    for crash in [false, true] {
        let disk = ours("");
        let fs = open(&disk, &by_hand(""));
        let first: Vec<_> = (0..5).map(|_| fs.init_itables_step().unwrap().unwrap()).collect();
        assert_eq!(first, [0, 1, 2, 3, 4]);
        fs.sync().unwrap();
        assert_eq!(fs.init_itables_step(), Ok(Some(5)));
        if crash {
            // The flag of the last one is in no transaction that became durable.
            fs.crash();
        } else {
            fs.unmount().unwrap();
        }
        drop(fs);
        let fs = open(&disk, &by_hand(""));
        let done = if crash { 5 } else { 6 };
        assert_eq!(fs.stats().lazy_init.groups_done, done, "crash: {crash}");
        assert_eq!(fs.init_itables_step(), Ok(Some(done as u32)), "crash: {crash}");
        assert_eq!(all_steps(&fs), GROUPS - done - 1);
        fs.unmount().unwrap();
        drop(fs);
        assert_all_zeroed(&disk);
        assert_clean(&disk, "resumed");
    }
}

/// A cached block of the table must not bring old bytes back when an inode is made in it.
#[test]
fn cached_blocks_stay_zero() {
    let disk = ours("");
    let fs = open(&disk, &by_hand(""));
    // An open by number reads any slot; the answer does not matter.
    for ino in 12..1024 {
        if fs.open_by_number(ino).is_ok() {
            fs.forget(ino, 1);
        }
    }
    assert_eq!(all_steps(&fs), GROUPS);
    for f in 0..400 {
        file(&fs, fs.root(), &format!("f{f}"));
    }
    fs.unmount().unwrap();
    drop(fs);
    assert_all_zeroed(&disk);
    assert_clean(&disk, "looked at");
}

#[test]
fn l7_nothing_is_written_where_it_is_off() {
    let plain = ours("^metadata_csum,^uninit_bg");
    let ext3 = theirs(&["-t", "ext3"]);
    let lazy = ours("");
    for (disk, text, total) in
        [(&lazy, "noinit_itable", GROUPS), (&lazy, "ro", 0), (&plain, "", 0), (&ext3, "", 0)]
    {
        let fs = open(disk, &by_hand(text));
        let before = disk.stats().zeros;
        assert_eq!(fs.init_itables_step(), Ok(None), "{text}");
        let stats = fs.stats().lazy_init;
        assert_eq!((stats.state.as_str(), stats.groups_total), ("off", total), "{text}");
        assert_eq!(stats.enabled, text != "noinit_itable");
        fs.unmount().unwrap();
        assert_eq!(disk.stats().zeros, before, "{text}");
    }
    assert_eq!(tables(&lazy).claimed, 0);
    // A volume that an error made read-only.
    let fs = open(&lazy, &by_hand("errors=remount-ro"));
    fs.crash();
    let before = lazy.stats().zeros;
    assert_eq!(fs.init_itables_step(), Ok(None));
    assert_eq!((lazy.stats().zeros, fs.stats().lazy_init.state.as_str()), (before, "stopped"));
}

#[test]
fn l8_set_while_in_use() {
    let disk = ours("");
    let fs = open(&disk, &by_hand(""));
    assert_eq!(fs.stats().lazy_init.multiplier, 10);
    assert_eq!(fs.init_itables_step(), Ok(Some(0)));
    let first = fs.stats().lazy_init;
    assert!(first.first_step_ns > 0 && first.estimated_end_s.is_some(), "{first:?}");
    fs.remount("noinit_itable").unwrap();
    let off = fs.stats().lazy_init;
    assert_eq!((off.state.as_str(), off.enabled, off.groups_done), ("off", false, 1));
    assert_eq!(fs.init_itables_step(), Ok(None));
    fs.remount("init_itable=5").unwrap();
    let on = fs.stats().lazy_init;
    assert_eq!(
        (on.state.as_str(), on.multiplier, on.first_step_ns),
        ("waiting", 5, 0),
        "measured anew"
    );
    assert_eq!(fs.init_itables_step(), Ok(Some(1)));
    assert!(fs.stats().lazy_init.first_step_ns > 0);
    fs.unmount().unwrap();
    assert_eq!(fs.stats().lazy_init.state, "stopped");
}

/// To those that write, a step costs more than it takes.
#[test]
fn pauses_are_longer_while_data_is_written() {
    let disk = ours("");
    let fs = open(&disk, &by_hand("init_itable=100000000"));
    let ino = file(&fs, fs.root(), "f");
    let seconds_left = |written: bool| {
        if written {
            fs.write(ino, 0, &[7; 100_000]).unwrap();
            fs.fsync(ino, false).unwrap();
        }
        fs.init_itables_step().unwrap().expect("a group");
        fs.stats().lazy_init.estimated_end_s.expect("groups are left")
    };
    let before = seconds_left(false);
    let (busy, again) = (seconds_left(true), seconds_left(true));
    let after = seconds_left(false);
    assert!(busy > 10 * before && again > 10 * before, "{before} {busy} {again}");
    assert!(after < before, "{before} {after}: fewer groups, and nothing is written");
}

/// A descriptor that says that used inodes were never used.
#[test]
fn l9_a_wrong_boundary_zeroes_nothing() {
    for (what, unused) in [("past the group", 65u16), ("over used inodes", 64)] {
        let disk = ours("^metadata_csum,uninit_bg");
        let fs = open(&disk, &by_hand("noinit_itable"));
        let made = (0..600).map(|f| file(&fs, fs.root(), &format!("f{f}")));
        let used = made.filter(|ino| (*ino - 1) / 64 == BAD).count();
        assert!(used > 3, "{used} inodes in group {BAD}");
        fs.unmount().unwrap();
        drop(fs);
        set_unused(&disk, unused);
        let table = disk.inner().to_bytes()[table_of_bad_group(&disk)..][..16 << 10].to_vec();
        let fs = open(&disk, &by_hand(""));
        for group in 0..BAD {
            assert_eq!(fs.init_itables_step(), Ok(Some(group)), "{what}");
        }
        let zeros = disk.stats().zeros;
        let error = fs.init_itables_step().expect_err(what);
        assert!(matches!(error, FsError::Corrupt { .. }), "{what}: {error}");
        let stats = fs.stats();
        assert_eq!((stats.lazy_init.state.as_str(), stats.errors_seen), ("stopped", 1), "{what}");
        assert_eq!(stats.lazy_init.error.as_deref(), Some(&*error.to_string()));
        assert_eq!(fs.init_itables_step(), Ok(None), "{what}: the request is gone");
        assert_eq!(disk.stats().zeros, zeros, "{what}");
        drop(fs);
        assert!(
            disk.inner().to_bytes()[table_of_bad_group(&disk)..].starts_with(&table),
            "{what}: zeroed"
        );
    }
}

/// The group whose descriptor is changed.
const BAD: u32 = 3;

/// Its descriptor, on volumes with blocks of 1 KiB: offset and length.
fn bad_desc(disk: &Disk) -> (u64, usize) {
    let mut sb = [0; 1024];
    disk.read_at(&mut sb, 1024).unwrap();
    let wide = u32::from_le_bytes(sb[0x60..0x64].try_into().unwrap()) & 0x80 != 0;
    let len = if wide { 64 } else { 32 };
    (2048 + u64::from(BAD) * len as u64, len)
}

fn table_of_bad_group(disk: &Disk) -> usize {
    let mut bytes = [0; 4];
    disk.read_at(&mut bytes, bad_desc(disk).0 + 8).unwrap();
    u32::from_le_bytes(bytes) as usize * 1024
}

/// Changes its number of unused inodes, and the checksum with it.
fn set_unused(disk: &Disk, unused: u16) {
    use extol_ondisk::checksum::crc16;
    let (at, len) = bad_desc(disk);
    let mut desc = vec![0; len];
    disk.read_at(&mut desc, at).unwrap();
    desc[0x1C..0x1E].copy_from_slice(&unused.to_le_bytes());
    let mut uuid = [0; 16];
    disk.read_at(&mut uuid, 1024 + 0x68).unwrap();
    let sum = crc16(crc16(crc16(!0, &uuid), &BAD.to_le_bytes()), &desc[..0x1E]);
    let sum = crc16(sum, &desc[0x20..]);
    desc[0x1E..0x20].copy_from_slice(&sum.to_le_bytes());
    disk.write_at(&desc, at).unwrap();
}

/// The device fails while zeroing: no flag, the volume stops, and the next mount goes on.
#[test]
fn a_failing_device_sets_no_flag() {
    let disk = ours("");
    let faulty = Arc::new(FaultDevice::new(disk.inner().snapshot(), []));
    let fs = Ext4::open(Arc::clone(&faulty) as SharedDevice, &by_hand("")).unwrap();
    assert_eq!(fs.init_itables_step(), Ok(Some(0)));
    fs.sync().unwrap();
    faulty.arm(Fault::once(DeviceOp::Zero, 0));
    fs.init_itables_step().expect_err("the device failed");
    let stats = fs.stats();
    assert_eq!((stats.lazy_init.state.as_str(), stats.read_only), ("stopped", true));
    drop(fs);
    let disk: Disk = Arc::new(CountingDevice::new(faulty.inner().snapshot()));
    let fs = open(&disk, &by_hand(""));
    assert_eq!(fs.stats().lazy_init.groups_done, 1);
    assert_eq!(all_steps(&fs), GROUPS - 1);
    fs.unmount().unwrap();
    drop(fs);
    assert_all_zeroed(&disk);
}
