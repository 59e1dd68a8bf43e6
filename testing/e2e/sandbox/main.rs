//! The sandbox of a mount's daemon: what it has given away, that everything works without, and the
//! ways to mount.

use extol_testkit::{
    ExtolMount, Image, LoopDevice, MountFailed, Need, Scratch, as_unprivileged, daemon_of, e2fsck,
    extol, extol_copy, extol_ok, extol_path, mounted_type, offers_io_uring, require, run,
    run_extol, run_ok, text, tool,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod rights;
mod ways;
mod works;

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);

fn image(scratch: &Scratch) -> Image {
    Image::mke2fs(scratch.path(), "a.img", 96 << 20, &["-t", "ext4", "-O", "fast_commit"])
}

/// Both ways for requests to come, as far as this machine has them.
fn transports() -> &'static [&'static str] {
    if offers_io_uring() { &["noio_uring", "io_uring"] } else { &["noio_uring"] }
}

/// The line of `extol stat` about this transport.
fn comes_over(transport: &str) -> String {
    let device = if transport == "io_uring" { "io_uring" } else { "/dev/fuse" };
    format!("requests come over   {device}\n")
}

/// What `/proc` says of each thread.
fn threads(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a live daemon");
    let lines = |text: String| {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
    };
    tasks
        .flatten()
        .filter_map(|t| std::fs::read_to_string(t.path().join("status")).ok())
        .map(lines)
        .collect()
}

fn capabilities(status: &BTreeMap<String, String>, which: &str) -> u64 {
    u64::from_str_radix(&status[which], 16).expect("hexadecimal")
}

/// CAP_SYS_NICE, if this process has it.
fn kept() -> u64 {
    let own = threads(std::process::id()).pop().expect("this process");
    capabilities(&own, "CapPrm") & (1 << 23)
}

#[track_caller]
fn assert_confined(pid: u32, kept: u64) {
    let threads = threads(pid);
    assert!(threads.len() > 4, "{}", threads.len());
    for status in threads {
        let name = &status["Name"];
        assert_eq!(capabilities(&status, "CapEff"), kept, "{name}");
        assert_eq!(capabilities(&status, "CapPrm"), kept, "{name}");
        assert_eq!(capabilities(&status, "CapInh"), 0, "{name}");
        assert_eq!(status["NoNewPrivs"], "1", "{name}");
        assert_eq!(status["Seccomp"], "2", "{name}");
        // "open" ends when the volume is open.
        assert_ne!(name, "open");
    }
}

/// The process that serves the mount on `dir`, and its monitor.
fn processes(dir: &Path) -> (u32, Option<u32>) {
    let daemon = daemon_of(dir).as_raw_nonzero().get().unsigned_abs();
    (daemon, children(daemon).first().copied())
}

fn children(pid: u32) -> Vec<u32> {
    let list =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("send a signal");
}

#[track_caller]
fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn noise(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 7) as u8).collect()
}

/// Threads that write, fsync, read, rename and delete, large and small.
fn load(dir: &Path) {
    std::thread::scope(|scope| {
        for t in 0..6 {
            scope.spawn(move || {
                let own = dir.join(format!("d{t}"));
                std::fs::create_dir_all(&own).unwrap();
                for i in 0..20 {
                    let (path, other) = (own.join(format!("f{i}")), own.join(format!("g{i}")));
                    let bytes = noise(i + t, if i % 5 == 0 { 3 << 20 } else { 9000 });
                    std::fs::write(&path, &bytes).unwrap();
                    File::open(&path).unwrap().sync_all().unwrap();
                    std::fs::rename(&path, &other).unwrap();
                    assert!(std::fs::read(&other).unwrap() == bytes);
                    if i % 2 == 0 {
                        std::fs::remove_file(&other).unwrap();
                    }
                }
            });
        }
    });
}
