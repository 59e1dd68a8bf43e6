//! The bounds that the project promises: memory of an idle and of a busy mount, and the time to
//! mount a large volume.

use extol_testkit::{ExtolMount, Image, KernelMount, Need, Scratch, require};
use std::time::{Duration, Instant};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];
const GIB: u64 = 1 << 30;

/// Bytes that a process has read with read calls so far.
fn bytes_read(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("io counters");
    let line = io.lines().find(|l| l.starts_with("rchar:")).expect("rchar");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn an_idle_mount_is_small() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for size in [GIB, 1024 * GIB] {
        let image = Image::mke2fs(
            scratch.path(),
            "a.img",
            size,
            &["-t", "ext4", "-E", "lazy_itable_init=1"],
        );
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        std::fs::write(dir.join("file"), b"x").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let rss = mount.rss_kib();
        println!("{} GiB: {rss} KiB resident", size / GIB);
        assert!(rss < 30 * 1024, "{rss} KiB resident with a volume of {} GiB", size / GIB);
        mount.unmount();
    }
}

/// Without reading every group: 100 GiB have 800 groups, 1600 bitmaps.
#[test]
fn a_large_clean_volume_mounts_at_once() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1"];
    let image = Image::mke2fs(scratch.path(), "a.img", 100 * GIB, &args);
    let dir = scratch.dir("mnt");
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        let names = dir.read_dir().unwrap().count();
        best = best.min(start.elapsed());
        assert_eq!(names, 1);
        let read = bytes_read(mount.pid().expect("a live daemon"));
        assert!(read < 4 << 20, "{read} bytes read to mount");
        mount.unmount();
    }
    println!("mounted after {best:?}");
    // The promise is 100 ms. Test machines are busy and this is not an optimised build; much more
    // is still a bug.
    let limit = if cfg!(debug_assertions) { 300 } else { 100 };
    assert!(best < Duration::from_millis(limit), "mounted after {best:?}");
}

/// Inodes that the kernel remembers cost little memory in the daemon.
#[test]
fn known_inodes_cost_little() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let count: u64 = if std::env::var("EXTOL_LONG").is_ok() { 1_000_000 } else { 100_000 };
    let inodes = (count + 2000).to_string();
    let image = Image::mke2fs(scratch.path(), "a.img", 2 * GIB, &["-t", "ext4", "-N", &inodes]);
    let dir = scratch.dir("mnt");
    let linux = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                for n in (part..count).step_by(4) {
                    if n / 4 % 1000 == 0 {
                        std::fs::create_dir(dir.join(format!("d{part}-{}", n / 4000))).unwrap();
                    }
                    let path = dir.join(format!("d{part}-{}/{n}", n / 4000));
                    std::fs::File::create(path).unwrap();
                }
            });
        }
    });
    linux.unmount();

    // A small cache, so that what is left is the table of known inodes.
    let mount = ExtolMount::start(&image.path, &dir, &["cache_mb=16", "inode_cache=1000"]);
    let mut known = 0u64;
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        for file in path.read_dir().unwrap() {
            // Asking for attributes makes the kernel look the file up and remember it.
            file.unwrap().metadata().unwrap();
            known += 1;
        }
    }
    assert!(known >= count);
    let rss = mount.rss_kib();
    println!("{known} known inodes: {rss} KiB resident");
    let limit = 64 * 1024 + known * 256 / 1024;
    assert!(rss < limit, "{rss} KiB resident with {known} known inodes, limit {limit} KiB");
    mount.unmount();
}

/// The caches obey their bounds while much more than fits is read and written.
#[test]
fn caches_are_bounded() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 2 * GIB, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["cache_mb=24", "dirty_mb=8"]);
    let mut highest = 0;
    let chunk = vec![0x42; 4 << 20];
    for n in 0..60 {
        std::fs::write(dir.join(format!("f{n}")), &chunk).unwrap();
        highest = highest.max(mount.rss_kib());
    }
    for n in 0..60 {
        let sub = dir.join(format!("d{n}"));
        std::fs::create_dir(&sub).unwrap();
        for m in 0..100 {
            std::fs::write(sub.join(format!("{m}")), b"small").unwrap();
        }
        highest = highest.max(mount.rss_kib());
    }
    for n in 0..60 {
        assert_eq!(std::fs::read(dir.join(format!("f{n}"))).unwrap().len(), chunk.len());
    }
    highest = highest.max(mount.rss_kib());
    println!("{highest} KiB resident at most");
    // The two caches, buffers of requests under way (up to 1 MiB each), and what an idle mount
    // takes.
    assert!(highest < 128 * 1024, "{highest} KiB resident");
    mount.unmount();
}
