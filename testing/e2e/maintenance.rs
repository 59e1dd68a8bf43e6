//! Requests about a whole mounted volume, through a mount: the ioctls beside Linux's own, and the
//! commands.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use extol_testkit::{
    ExtolMount, Image, KernelMount, MountRequest, Need, Scratch, Shutdown, as_user, e2fsck, extol,
    require, run, shutdown, tool,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
];
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `extol ARGS DIR`: its exit code and what it said. A command that hangs fails.
fn extol_on(args: &[&str], dir: &Path) -> (Option<i32>, String) {
    let done = run(extol().args(args).arg(dir), PATIENCE);
    (done.code, done.output.trim().to_owned())
}

#[track_caller]
fn must(args: &[&str], dir: &Path) {
    assert_eq!(extol_on(args, dir), (Some(0), String::new()), "{args:?}");
}

/// What a request to `dir` is answered with: 0 or the error's number.
fn answer(request: MountRequest, dir: &Path) -> i32 {
    let sent = request.send(&File::open(dir).expect("open the root"));
    sent.map_or_else(|e| e.raw_os_error().unwrap_or(-1), |()| 0)
}

/// Each combination of flags, as root and as another user, with a journal and without: Linux's
/// answers.
#[test]
fn checkpoints_are_answered_as_by_linux() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("extol"), scratch.dir("linux"));
    for (kind, args) in [("ext4", &["-t", "ext4"][..]), ("ext2", &["-t", "ext2"])] {
        let image = Image::mke2fs(scratch.path(), &format!("{kind}.img"), 32 << 20, args);
        let copy = image.copy_as("linux.img");
        let ours = ExtolMount::start(&image.path, &dir, &[]);
        let linux = KernelMount::mount(&copy, &other, &[]);
        for flags in (0..=8).chain([0x10, 0x8000_0000]) {
            let request = MountRequest::Checkpoint(flags);
            assert_eq!(
                answer(request, &dir),
                answer(request, &other),
                "{kind}, flags {flags:#x}, root"
            );
            let user = |dir: &Path| as_user(1000, 1000, &[], 0o22, || answer(request, dir));
            assert_eq!(user(&dir), user(&other), "{kind}, flags {flags:#x}, an ordinary user");
            assert_eq!(user(&dir), 1, "{kind}, flags {flags:#x}");
        }
        let user = |request| as_user(1000, 1000, &[], 0o22, || answer(request, &dir));
        for request in [MountRequest::Freeze, MountRequest::Thaw, MountRequest::Shutdown(0)] {
            assert_eq!(user(request), 1, "{request:?}");
        }
        assert_eq!(answer(MountRequest::Shutdown(3), &dir), 22);
        linux.unmount();
        ours.unmount();
        e2fsck(&image).assert_clean(kind);
    }
}

/// What `extol sync` and `extol checkpoint` promise survives a kill; what the kernel keeps to
/// itself is said.
#[test]
fn commands_keep_their_promises() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image =
        Image::mke2fs(scratch.path(), "disk.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let write = |name: &str| std::fs::write(dir.join(name), [7; 70_000]).expect("write");
    for (name, args) in
        [("one", &["sync"][..]), ("two", &["checkpoint"]), ("three", &["checkpoint", "--zeroout"])]
    {
        let mut mount = ExtolMount::start(&image.path, &dir, &["commit=1000"]);
        write(name);
        std::fs::create_dir(dir.join(format!("dir-{name}"))).expect("mkdir");
        must(args, &dir.join(format!("dir-{name}")));
        mount.kill9();
        drop(mount);
    }
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    for name in ["one", "two", "three"] {
        assert_eq!(std::fs::read(dir.join(name)).expect(name), [7; 70_000], "{name}");
    }
    let stats = extol_on(&["stat", "--json"], &dir).1;
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!(stats["checkpoint_merge"]["enabled"], true, "{stats}");

    must(&["checkpoint", "--discard", "--dry-run"], &dir);
    as_user(1000, 1000, &[], 0o22, || must(&["sync"], &dir));
    let (code, line) = as_user(1000, 1000, &[], 0o22, || extol_on(&["freeze"], &dir));
    assert!(
        code == Some(1)
            && line.ends_with(
                "only root (with CAP_SYS_ADMIN) and the user that mounted it may do this"
            ),
        "{line}"
    );
    assert_eq!(extol_on(&["checkpoint", "--discard", "--zeroout"], &dir).0, Some(1));
    let (code, line) = extol_on(&["sync"], scratch.path());
    assert!(
        code == Some(32) && line.ends_with("is not on a volume that extol has mounted"),
        "{line}"
    );
    // The kernel answers fsfreeze(8) itself; the manual says so.
    if Path::new("/sbin/fsfreeze").exists() {
        let done = run(tool("fsfreeze").arg("-f").arg(&dir), PATIENCE);
        assert_ne!(done.code, Some(0), "fsfreeze reaches FUSE now: {}", done.output);
    }
    mount.unmount();
    e2fsck(&image).assert_clean("at the end");

    for (options, wanted) in [
        (
            "checkpoint=disable,checkpoint=merge",
            "checkpoint=merge cannot be used with checkpoint=disable",
        ),
        ("checkpoint=disable", "checkpoint=disable is not supported"),
        ("journal_ioprio=8", "it is larger than 7"),
        ("ckpt_thread_ioprio=xy", "use be:0 to be:7, rt:0 to rt:7, or idle"),
    ] {
        let failed = ExtolMount::try_start(&image.path, &dir, &[options]).expect_err(options);
        assert_eq!(failed.code, Some(1), "{options}: {}", failed.output);
        assert!(failed.output.contains(wanted), "{options}: {}", failed.output);
    }
}

/// The files that each mode of a shutdown leaves, through a mount.
#[test]
fn shutdowns() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for mode in 0..=3 {
        let image =
            Image::mke2fs(scratch.path(), "disk.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
        let mount = ExtolMount::start(&image.path, &dir, &["commit=1000"]);
        let write = |name: &str| {
            let mut file = File::create(dir.join(name)).expect("create");
            file.write_all(&[1; 20_000]).expect("write");
            file
        };
        write("synced").sync_all().expect("fsync");
        drop(write("left"));
        // The daemon has it, and keeps it.
        rustix::fs::syncfs(File::open(&dir).expect("open")).expect("syncfs");
        if mode < 3 {
            assert_eq!(answer(MountRequest::Shutdown(mode), &dir), 0);
            assert_eq!(answer(MountRequest::Shutdown(mode), &dir), 0, "again");
        } else {
            // Linux's own, whose argument does not arrive.
            shutdown(&dir, Shutdown::Now);
        }
        assert!(File::create(dir.join("new")).is_err(), "mode {mode}");
        mount.unmount();
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        let size = |name: &str| std::fs::metadata(dir.join(name)).ok().map(|m| m.len());
        assert_eq!(size("synced"), Some(20_000), "mode {mode}");
        let left = [Some(20_000), Some(0), None, Some(0)][mode as usize];
        assert_eq!(size("left"), left, "mode {mode}");
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("mode {mode}"));
        image.remove();
    }
}

/// Data that waits for the thaw, in the kernel or in its write(2), is written when the daemon is
/// told to end, and the daemon does end.
#[test]
fn a_frozen_mount_ends_when_told_to() {
    for option in ["nowriteback_cache", "writeback_cache"] {
        if !require(&NEEDS) {
            return;
        }
        let scratch = Scratch::new();
        let dir = scratch.dir("mnt");
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
        let mount = ExtolMount::start(&image.path, &dir, &[option]);
        let mut file = File::create(dir.join("file")).expect("create");
        file.write_all(b"before ").expect("write");
        file.sync_all().expect("fsync");
        must(&["freeze"], &dir);
        let (written, is_written) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            file.write_all(b"and after").expect("write");
            written.send(()).expect("the test waits");
            // With a write-back cache closing waits for the thaw: the kernel writes back first.
            drop(file);
        });
        if option == "writeback_cache" {
            is_written.recv_timeout(PATIENCE).expect("a write to the page cache");
        } else {
            let early = is_written.recv_timeout(Duration::from_millis(200));
            assert!(early.is_err(), "a write must wait for the thaw");
        }
        mount.terminate(rustix::process::Signal::TERM);
        writer.join().expect("no panic");
        e2fsck(&image).assert_clean("after the end");
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        assert_eq!(std::fs::read(dir.join("file")).expect("read"), b"before and after");
        mount.unmount();
    }
}

/// Data of a file had no room on a full volume, and the file is deleted. The next request about the
/// whole volume says so, once, and does what it was asked for all the same.
#[test]
fn an_old_error_is_told_once_and_stops_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for (request, code) in [("sync", 32), ("checkpoint", 0), ("freeze", 0)] {
        let image = Image::mke2fs(scratch.path(), "disk.img", 16 << 20, &["-t", "ext4", "-m", "0"]);
        let mut mount = ExtolMount::start(&image.path, &dir, &[]);
        std::fs::write(dir.join("old"), "old").expect("write");
        must(&["sync"], &dir);
        // Nearly full; then more through a mapping than there is room for, which no call can
        // refuse.
        let mut filler = File::create(dir.join("filler")).expect("create");
        while filler.write_all(&[1; 65536]).and_then(|()| filler.sync_data()).is_ok() {}
        drop(filler);
        let lost = File::create_new(dir.join("lost")).expect("create");
        lost.set_len(1 << 20).expect("grow");
        let lost = File::options().read(true).write(true).open(dir.join("lost")).expect("open");
        extol_testkit::map_write(&rustix::fd::OwnedFd::from(lost), 0, &[2; 1 << 20]).expect("map");
        for name in ["lost", "filler", "old"] {
            std::fs::remove_file(dir.join(name)).expect("unlink");
        }
        std::fs::write(dir.join("new"), "new").expect("write");
        let (ended, said) = extol_on(&[request], &dir);
        assert_eq!(ended, Some(code), "{request}: {said}");
        assert!(
            said.contains("No space left on device") && said.lines().count() == 1,
            "{request}: {said}"
        );
        if request == "freeze" {
            must(&["thaw"], &dir);
        }
        // (A second `sync` would hide what the first left undone.)
        mount.kill9();
        let mut mount = ExtolMount::start(&image.path, &dir, &[]);
        assert_eq!(std::fs::read(dir.join("new")).ok().as_deref(), Some(&b"new"[..]), "{request}");
        assert!(!dir.join("old").exists(), "{request}");
        for request in ["sync", "checkpoint", "sync"] {
            must(&[request], &dir);
        }
        mount.kill9();
        let replayed = run(extol().arg("replay").arg(&image.path), PATIENCE);
        assert!(replayed.success(), "{request}: {}", replayed.output);
        e2fsck(&image).assert_clean(request);
        image.remove();
    }
}
