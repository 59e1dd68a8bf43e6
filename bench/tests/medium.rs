//! `extol-bench medium`: Linux's ext4 on an emulated medium.

use extol_bench::medium::{READY, Served, Stats};
use extol_block::{BlockDevice as _, Direct, FileDevice, Fua, OpenOptions, ScatteredWrite};
use extol_devices::Profile;
use extol_testkit::{
    KernelMount, LoopDevice, Need, Scratch, mounted_type, require, run, run_ok, tool, unmount,
};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, IoSlice, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];

fn bin() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_extol-bench"))
}

fn mke2fs(device: &Path) {
    run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(device));
}

/// Fails unless the volume is clean.
fn e2fsck(volume: &Path) {
    run_ok(tool("e2fsck").arg("-fn").arg(volume));
}

/// A server of our own, killed if the test fails.
struct Server(Child);

impl Server {
    fn start(args: &[&str], dir: &Path) -> Self {
        let mut command = Command::new(bin());
        command.arg("medium").args(args).arg(dir);
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut server = Self(child);
        let mut line = String::new();
        let out = server.0.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), format!("{READY}{}", dir.join("disk").display()));
        server
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("wait") {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A medium of 16 MiB in memory, and it as a device without the page cache. (What comes first is to
/// be dropped last.)
fn served(profile: &str) -> (Scratch, Served, FileDevice) {
    let scratch = Scratch::in_memory();
    let backing = scratch.join("backing.img");
    std::fs::File::create(&backing).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let medium = Served::start_over(bin(), &profile.parse().expect("a profile"), &backing)
        .expect("it comes up");
    let how = OpenOptions::read_write().direct(Direct::On);
    let device = FileDevice::open(medium.device(), &how).expect("open");
    (scratch, medium, device)
}

#[test]
fn linux_runs_on_a_cloud_disk_and_every_fsync_is_a_flush() {
    const FILES: u64 = 10;
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let cloud = Profile::by_name("cloud").expect("known");
    let medium = Served::start(bin(), &cloud, 128 << 20).expect("it comes up");
    let (device, disk) = (medium.device().to_owned(), medium.disk());
    mke2fs(&device);
    let mount = KernelMount::mount_device(&device, &scratch.dir("mnt"), &[]);
    let stats = || -> Stats { medium.stats().expect("the server answers") };
    let before = stats();
    for i in 0..FILES {
        let mut file = std::fs::File::create(mount.path().join(format!("f{i}"))).expect("create");
        file.write_all(&[i as u8; 5000]).expect("write");
        file.sync_all().expect("fsync");
    }
    let after = stats();
    let (flushes, writes) = (after.flushes - before.flushes, after.writes - before.writes);
    assert!(flushes >= FILES && writes >= FILES, "{flushes} flushes, {writes} writes");
    assert!(after.write_bytes - before.write_bytes >= FILES * 5000);
    assert!(
        after.modelled_seconds - before.modelled_seconds >= FILES as f64 * 0.001,
        "{before:?} {after:?}"
    );
    run_ok(tool("fstrim").arg(mount.path()));
    assert!(stats().discards > after.discards, "free space reaches the medium as discards");
    mount.unmount();
    e2fsck(&disk);
    drop(medium);
    assert!(!disk.exists() && !disk.parent().expect("a directory").exists(), "nothing stays");
    let loops = run(
        tool("losetup").args(["--noheadings", "--output", "BACK-FILE"]),
        Duration::from_secs(20),
    );
    assert!(!loops.output.contains(disk.to_str().expect("UTF-8")), "{}", loops.output);
}

#[test]
fn requests_through_the_loop_device_wait_side_by_side() {
    if !require(&NEEDS) {
        return;
    }
    // The medium takes one at a time, 50 ms each. Of four that come together the last waits for 200
    // ms, so all together get 500 ms from the model; if something on the way let one through at a
    // time, it would be 200 ms.
    let profile = "custom:latency=50ms,depth=1";
    let (_scratch, medium, device) = served(profile);
    // On a busy machine four threads may come one after the other; not every time, though.
    let side_by_side = |op| {
        let before = medium.stats().expect("the server answers").modelled_seconds;
        let together = Barrier::new(4);
        std::thread::scope(|s| {
            for i in 0..4 {
                let (device, together) = (&device, &together);
                s.spawn(move || {
                    together.wait();
                    match op {
                        "read" => device.read_at(&mut [0; 4096], i << 20).expect("read"),
                        _ => device.write_at(&[1; 4096], i << 20).expect("write"),
                    }
                });
            }
        });
        medium.stats().expect("the server answers").modelled_seconds - before > 0.22
    };
    for op in ["read", "write"] {
        assert!((0..20).any(|_| side_by_side(op)), "each {op} waited for the one before");
    }
}

#[test]
fn durable_batches_on_a_block_device_are_their_writes_and_one_flush_behind_them() {
    if !require(&NEEDS) {
        return;
    }
    // A write takes 20 ms, a flush 50, and others go on beside either: a flush that did not wait
    // for the writes would show.
    let profile = "custom:latency=20ms,flush=50ms,depth=16";
    let (_scratch, medium, device) = served(profile);
    assert_ne!(device.fua(), Fua::Flush);
    for round in 0..4u8 {
        let bytes = [round + 1; 4096];
        let bufs = [IoSlice::new(&bytes)];
        // One alone, then three.
        for offsets in [&[0][..], &[1 << 20, 2 << 20, 3 << 20]] {
            let writes: Vec<_> =
                offsets.iter().map(|&offset| ScatteredWrite { offset, bufs: &bufs }).collect();
            let before = medium.stats().expect("the server answers");
            let start = Instant::now();
            device.write_scattered_fua(&writes).expect("write");
            let took = start.elapsed();
            let after = medium.stats().expect("the server answers");
            let (made, flushed) = (after.writes - before.writes, after.flushes - before.flushes);
            assert_eq!(made, writes.len() as u64);
            // (More, if a write of three was late.)
            assert!((1..=made).contains(&flushed), "{flushed} flushes for {made} writes");
            assert!(
                took >= Duration::from_millis(70),
                "{took:?}: the flush did not wait for the writes"
            );
            for &offset in offsets {
                let mut back = [0; 4096];
                device.read_at(&mut back, offset).expect("read");
                assert_eq!(back, bytes);
            }
        }
    }
}

#[test]
fn a_signal_waits_for_the_last_user_and_the_backing_file_stays() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, backing) = (scratch.join("medium"), scratch.join("backing.img"));
    let args = [
        "--profile",
        "raid:flush=100us",
        "--size",
        "32M",
        "--backing",
        backing.to_str().expect("UTF-8"),
    ];
    let mut server = Server::start(&args, &dir);
    let device = LoopDevice::attach_with(&dir.join("disk"), &["--direct-io=on"]);
    server.signal(Signal::TERM);
    let start = Instant::now();
    while mounted_type(&dir).is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "still in sight");
        std::thread::sleep(Duration::from_millis(5));
    }
    mke2fs(device.path());
    drop(device);
    assert!(server.ended().success());
    assert!(!dir.exists(), "it made the directory");
    e2fsck(&backing);

    // Without --size it is as large as the file; a directory that was there stays, and an unmount
    // is an end.
    let dir = scratch.dir("other");
    let mut server = Server::start(&["--profile", "nvme", "--backing", args[5]], &dir);
    assert_eq!(std::fs::metadata(dir.join("disk")).expect("stat").len(), 32 << 20);
    // No page cache: what is written to the file is there at once, as it was written.
    let mut file = std::fs::File::options().write(true).open(dir.join("disk")).expect("open");
    for _ in 0..3 {
        file.write_all(&[0; 4096]).expect("write");
    }
    let stats = std::fs::read(dir.join("stats")).expect("read");
    let stats: Stats = serde_json::from_slice(&stats).expect("json");
    assert_eq!((stats.writes, stats.write_bytes, stats.flushes), (3, 3 * 4096, 0));
    drop(file);
    unmount(&dir);
    assert!(server.ended().success() && dir.exists());
}

#[test]
fn a_server_whose_owner_dies_takes_its_loop_device_along() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.join("medium");
    let mut server = Server::start(&["--until-eof", "--profile", "ramdisk", "--size", "16M"], &dir);
    // It is not detached: its owner is gone.
    std::mem::forget(LoopDevice::attach_with(&dir.join("disk"), &["--direct-io=on"]));
    drop(server.0.stdin.take());
    assert!(server.ended().success());
    assert!(!dir.exists());
    let loops = run(
        tool("losetup").args(["--noheadings", "--output", "BACK-FILE"]),
        Duration::from_secs(20),
    );
    assert!(!loops.output.contains(dir.to_str().expect("UTF-8")), "{}", loops.output);
}

#[test]
fn mistakes_are_one_line_and_leave_nothing() {
    let scratch = Scratch::new();
    let dir = scratch.join("medium");
    for (args, part) in [
        (["--profile", "floppy", "--size", "1G"], "use one of sata, raid"),
        (["--profile", "cloud:flush=1", "--size", "1G"], "1.5ms"),
        (["--profile", "cloud", "--size", "much"], "bad size"),
    ] {
        let mut command = Command::new(bin());
        command.arg("medium").args(args).arg(&dir);
        let done = run(&mut command, Duration::from_secs(20));
        assert_eq!(done.code, Some(1), "{}", done.output);
        assert!(done.output.contains(part) && done.output.lines().count() == 1, "{}", done.output);
        assert!(!dir.exists());
    }
}
