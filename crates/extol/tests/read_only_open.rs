//! What a read-only open costs: no thread, little memory, and of a volume of 1 TiB few reads.
//!
//! This is a program of its own, with one test: it counts the threads and the memory of the
//! process. With `--nocapture` it says how long each opening took, too.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use extol::{Ext4, FileSystem as _, MountOptions};
use extol_testkit::{Need, require};

const MOST: usize = 10 << 20;

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Bytes of a field of /proc/self/status.
fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

fn run(program: &str, args: &[&str], path: &Path, size: Option<&str>) {
    let out = Command::new(program).args(args).arg(path).args(size).output().unwrap();
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_read_only_open_of_a_large_volume_is_cheap() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-J", "size=4"], &image, Some("1T"));
    run("debugfs", &["-w", "-R", "mkdir one"], &image, None);
    let options = MountOptions::default().read_only();
    let (before, others) = (memory("VmRSS:"), threads());
    for round in 0..3 {
        let begin = Instant::now();
        let fs = Ext4::open_path(&image, &options).unwrap();
        let opened = begin.elapsed();
        let names: Vec<_> = fs.read_dir("/").unwrap().map(|e| e.unwrap().file_name()).collect();
        eprintln!("opened in {opened:?}, listed behind {:?}", begin.elapsed());
        assert!(names.iter().any(|name| name == "one"), "{names:?}");
        assert_eq!(threads(), others, "round {round}");
        let used = memory("VmRSS:").saturating_sub(before);
        eprintln!("{used} bytes of memory more");
        assert!(used < MOST, "{used} bytes");
        // What waits for the journal finds nothing to wait for.
        fs.sync().unwrap();
        fs.unmount().unwrap();
    }
    // A volume that becomes writable has the threads, and what it then writes is durable.
    let fs = Ext4::open_path(&image, &options).unwrap();
    fs.remount("rw").unwrap();
    assert!(threads() >= others + 2, "{} threads", threads());
    fs.create_dir("/two").unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let fs = Ext4::open_path(&image, &options).unwrap();
    assert!(fs.metadata("/two").unwrap().is_dir());
}
