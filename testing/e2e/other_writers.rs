//! Other programs, systems and hosts that write to a volume while it is mounted here: strangers are
//! noticed, tools are welcome.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use extol_testkit::{
    ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, e2fsck, extol, require, run, run_ok,
    tool,
};
use rustix::process::{Pid, Signal, kill_process};

const NEEDS: [Need; 7] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("tune2fs"),
];
const MIB: u64 = 1 << 20;

/// A new file that is durable, or the error.
fn durable(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(b"written by us")?;
    file.sync_all()
}

fn pid(mount: &ExtolMount) -> Pid {
    let pid = mount.pid().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("a live daemon")
}

/// Writes, has Linux mount the image and write, and writes again, which is refused.
fn linux_writes_beside(image: &Image, dir: &Path, other: &Path) -> KernelMount {
    durable(&dir.join("before")).expect("no other writer");
    // The time of a mount has seconds.
    std::thread::sleep(Duration::from_millis(1100));
    let linux = KernelMount::mount(image, other, &[]);
    durable(&other.join("theirs")).expect("written by Linux");
    std::thread::sleep(Duration::from_millis(1100));
    durable(&dir.join("after")).expect_err("two writers");
    linux
}

/// Linux mounts the image over a loop device that was attached later. The first commit a second
/// later is refused, and what Linux wrote is sound.
#[test]
fn linux_mounts_our_image_and_we_stop() {
    if !require(&NEEDS) {
        return;
    }
    for kind in ["ext4", "ext3", "ext2"] {
        let scratch = Scratch::new();
        let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
        let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", kind]);
        let ours = ExtolMount::start(&image.path, &dir, &[]);
        durable(&dir.join("before")).expect("no other writer");
        // The time of a mount has seconds.
        std::thread::sleep(Duration::from_millis(1100));
        let linux = KernelMount::mount(&image, &other, &[]);
        std::fs::write(other.join("theirs"), b"written by Linux").expect("write");
        std::thread::sleep(Duration::from_millis(1100));
        let refused = durable(&dir.join("after")).expect_err("two writers");
        assert!(refused.raw_os_error().is_some_and(|e| e == 5 || e == 30), "{kind}: {refused}");
        durable(&dir.join("later")).expect_err("read-only now");
        // The daemon looks for another writer four times a second.
        std::thread::sleep(Duration::from_millis(600));
        let log = ours.log();
        assert!(log.contains("another program or system writes to this volume"), "{kind}: {log}");
        ours.end();
        linux.unmount();
        if kind == "ext2" {
            // The mount that was here first had half-done changes of its own; nothing was added to
            // them.
            continue;
        }
        e2fsck(&image).assert_clean(&format!("{kind}, after Linux alone has written"));
    }
}

/// Linux attaches, mounts, unmounts and detaches within the second in which superblocks are not
/// looked at: the next fsync says so, and does not acknowledge what the recovery by Linux, or the
/// next one, makes of the log. Other opens of the image, before and after it, change nothing.
#[test]
fn a_short_mount_by_linux_is_seen_by_the_next_fsync() {
    if !require(&NEEDS) {
        return;
    }
    for (features, options) in [("^fast_commit", &[][..]), ("fast_commit", &["noio_uring"])] {
        let scratch = Scratch::new();
        let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
        let args = ["-t", "ext4", "-O", features];
        let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &args);
        let ours = ExtolMount::start(&image.path, &dir, options);
        // The time of a mount has seconds.
        std::thread::sleep(Duration::from_millis(1100));
        let reader = File::open(&image.path).expect("open the image");
        durable(&dir.join("before")).expect("a reader writes nothing");
        drop(reader);
        // A check of the superblocks has just been made.
        durable(&dir.join("once more")).expect("no other writer");
        KernelMount::mount(&image, &other, &[]).unmount();
        durable(&dir.join("after")).expect_err("two writers");
        durable(&dir.join("later")).expect_err("two writers");
        ours.end();
        let linux = KernelMount::mount(&image, &other, &[]);
        for name in ["before", "once more"] {
            assert_eq!(std::fs::read(other.join(name)).expect(name), b"written by us");
        }
        assert!(!other.join("later").exists());
        linux.unmount();
        e2fsck(&image).assert_clean("after Linux has written");
    }
}

/// The daemon stands still for so long that another host may claim the volume.
#[test]
fn a_host_that_stood_still_writes_nothing_after_another_has_claimed() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
    let args = ["-t", "ext4", "-O", "mmp", "-E", "mmp_update_interval=1"];
    let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &args);
    let ours = ExtolMount::start(&image.path, &dir, &[]);
    durable(&dir.join("before")).expect("no other writer");
    let dirty = File::create(dir.join("dirty")).expect("create");
    kill_process(pid(&ours), Signal::STOP).expect("stop");
    // Linux waits twice for more than ten seconds.
    let linux = KernelMount::try_mount(&image, &other, &[]);
    let linux = linux.inspect_err(|_| {
        let _ = kill_process(pid(&ours), Signal::CONT);
    });
    let linux = linux.unwrap_or_else(|e| panic!("{e}"));
    std::fs::write(other.join("theirs"), b"written by Linux").expect("write");
    kill_process(pid(&ours), Signal::CONT).expect("go on");
    assert!((&dirty).write_all(b"x").and_then(|()| dirty.sync_all()).is_err(), "two writers");
    drop(dirty);
    durable(&dir.join("after")).expect_err("two writers");
    std::thread::sleep(Duration::from_millis(600));
    let log = ours.log();
    assert!(log.contains("claimed by another host"), "{log}");
    ours.end();
    // Nor has the end of Extol's mount released the claim of Linux.
    std::fs::write(other.join("more"), b"written by Linux").expect("write");
    linux.unmount();
    e2fsck(&image).assert_clean("after Linux alone has written");
}

/// A volume that was not left cleanly, with the longest interval there is: the mount says what it
/// waits for, and ends when it is told to.
#[test]
fn a_long_wait_is_said_and_can_be_ended() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("extol");
    let args =
        ["-t", "ext4", "-b", "4096", "-O", "mmp,^metadata_csum", "-E", "mmp_update_interval=300"];
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &args);
    let block =
        image.read_at(1024 + 0x168, 8).try_into().map(u64::from_le_bytes).expect("a number");
    image.write_at(4096 * block + 4, &12_u32.to_le_bytes());
    let log = scratch.join("log");
    let out = File::create(&log).expect("log");
    let mut child = extol()
        .args(["mount", "-f"])
        .arg(&image.path)
        .arg(&dir)
        .stderr(out)
        .spawn()
        .expect("extol runs");
    let start = Instant::now();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    while !said().contains("waiting 360 s") {
        assert!(start.elapsed() < Duration::from_secs(20), "{}", said());
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = std::fs::read(&image.path).expect("image");
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a live process");
    kill_process(pid, Signal::TERM).expect("signal");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("SIGTERM does not end the wait: {}", said());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(!status.success() && said().contains("interrupted"), "{status}: {}", said());
    assert!(before == std::fs::read(&image.path).expect("image"), "nothing was written");
}

/// What the tools change while the volume is mounted is there after the unmount: as on Linux, on a
/// block device and on an image.
#[test]
fn labels_and_tunables_changed_meanwhile_survive() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for features in ["^metadata_csum,^orphan_file", "metadata_csum,metadata_csum_seed"] {
        let mut seen = Vec::new();
        for subject in ["linux", "device", "image"] {
            let args = ["-t", "ext4", "-O", features, "-U", "11111111-2222-3333-4444-555555555555"];
            let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &args);
            let device = (subject != "image").then(|| LoopDevice::attach(&image.path));
            let target = device.as_ref().map_or(&*image.path, LoopDevice::path);
            let mount = match subject {
                "linux" => Err(KernelMount::mount_device(target, &dir, &[])),
                _ => Ok(ExtolMount::start(target, &dir, &[])),
            };
            durable(&dir.join("before")).expect("write");
            run_ok(tool("tune2fs").args(["-L", "first", "-r", "100"]).arg(target));
            durable(&dir.join("between")).expect("write");
            // Long enough for a commit, a checkpoint, and a look.
            std::thread::sleep(Duration::from_millis(1200));
            durable(&dir.join("later")).expect("write");
            std::fs::remove_file(dir.join("before")).expect("remove");
            let more = ["-c", "33", "-i", "7d", "-e", "remount-ro", "-m", "2", "-o", "nodelalloc"];
            run_ok(tool("tune2fs").args(more).args(["-E", "hash_alg=tea,stride=8"]).arg(target));
            run_ok(tool("e2label").arg(target).arg("second"));
            durable(&dir.join("last")).expect("write");
            match mount {
                Ok(ours) => ours.unmount(),
                Err(linux) => linux.unmount(),
            }
            drop(device);
            e2fsck(&image).assert_clean(&format!("{features}, {subject}"));
            let words = [
                "volume name",
                "Reserved block count",
                "Maximum mount",
                "Check interval",
                "Errors behavior",
                "Default mount options",
                "Default directory hash",
                "RAID stride",
                "Filesystem state",
                "Mount count",
            ];
            let text = extol_testkit::dump_super(&image);
            let lines = text.lines().filter(|l| words.iter().any(|w| l.contains(w)));
            seen.push((subject, lines.map(str::to_owned).collect::<Vec<_>>()));
        }
        let (_, linux) = &seen[0];
        assert_eq!(linux.len(), 10, "{linux:?}");
        assert!(linux.iter().any(|l| l.ends_with("second")), "{linux:?}");
        for (subject, ours) in &seen[1..] {
            assert_eq!(ours, linux, "{features}, {subject}");
        }
    }
}

/// `extol remount -o rw`: refused, in one line.
#[track_caller]
fn reopening_is_refused(dir: &Path, why: &str) {
    // By the command, and by a program that asks the daemon alone.
    let told = run(extol().args(["remount", "-o", "rw"]).arg(dir), Duration::from_secs(60));
    assert_eq!((told.code, told.output.lines().count()), (Some(32), 1), "{}", told.output);
    assert!(told.output.contains(why), "{why}: {}", told.output);
    assert!(told.output.contains("cannot remount read-write"), "{}", told.output);
    let refused = extol_fuse::control::remount(dir, "rw").expect("an answer");
    let refused = refused.expect_err("a remount that is refused").to_string();
    assert!(refused.contains(why), "{why}: {refused}");
    let stat = run_ok(extol().arg("stat").arg(dir));
    assert!(stat.lines().next().is_some_and(|line| line.contains(": read-only: ")), "{stat}");
}

/// A volume that stopped because of another writer is not opened again in place, neither while that
/// one goes on nor later, and nothing that it wrote is lost.
#[test]
fn after_another_writer_a_volume_is_not_opened_again() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
    let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", "ext4"]);
    let ours = ExtolMount::start(&image.path, &dir, &[]);
    let linux = linux_writes_beside(&image, &dir, &other);
    let state = run_ok(extol().arg("stat").arg(&dir));
    assert!(state.contains("unmount it everywhere, run e2fsck"), "{state}");
    // One advice.
    assert!(!state.contains("remount"), "{state}");
    let sync = run(extol().arg("sync").arg(&dir), Duration::from_secs(60));
    assert!(sync.code == Some(32) && !sync.output.contains("remount"), "{}", sync.output);
    reopening_is_refused(&dir, "another program or system writes to this volume");
    durable(&other.join("more")).expect("written by Linux");
    linux.unmount();
    reopening_is_refused(&dir, "another program or system writes to this volume");
    ours.end();
    e2fsck(&image).assert_clean("Linux alone has written");
    let linux = KernelMount::mount(&image, &other, &[]);
    for name in ["before", "theirs", "more"] {
        assert_eq!(std::fs::read(other.join(name)).expect(name), b"written by us");
    }
    linux.unmount();
}

/// A volume that stopped for a reason of its own, and that another program has mounted since: the
/// guard of the stopped mount has not seen it yet. While that mount lasts, and after it.
#[test]
fn a_stopped_volume_that_another_has_mounted_is_not_opened_again() {
    if !require(&NEEDS) {
        return;
    }
    for kind in ["ext4", "ext2"] {
        let scratch = Scratch::new();
        let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
        let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", kind]);
        let ours = ExtolMount::start(&image.path, &dir, &[]);
        durable(&dir.join("before")).expect("no other writer");
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        // A mount that writes nothing: the mount table alone tells of it.
        let options: &[&str] = if kind == "ext4" { &["ro", "noload"] } else { &["ro"] };
        let linux = KernelMount::mount(&image, &other, options);
        reopening_is_refused(&dir, &format!("which is mounted at {}", other.display()));
        linux.unmount();
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        durable(&dir.join("between")).expect("opened again");
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        std::thread::sleep(Duration::from_millis(1100));
        let linux = KernelMount::mount(&image, &other, &[]);
        durable(&other.join("theirs")).expect("written by Linux");
        linux.unmount();
        reopening_is_refused(&dir, "another program or system writes to this volume");
        // It stays so.
        reopening_is_refused(&dir, "another program or system writes to this volume");
        ours.end();
        let linux = KernelMount::mount(&image, &other, &[]);
        assert_eq!(std::fs::read(other.join("theirs")).expect(kind), b"written by us");
        linux.unmount();
    }
}

/// The guard of a volume that was opened again notices another mount as the first one does.
#[test]
fn a_volume_opened_again_notices_another_writer() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
    let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", "ext4"]);
    let ours = ExtolMount::start(&image.path, &dir, &[]);
    for _ in 0..2 {
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
    }
    let linux = linux_writes_beside(&image, &dir, &other);
    linux.unmount();
    ours.end();
    e2fsck(&image).assert_clean("Linux alone has written");
}
