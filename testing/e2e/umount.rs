//! `extol umount`: for which processes it waits, and for how long; several mounts, and images.

use extol_testkit::{
    Finished, Image, Need, Scratch, e2fsck, extol, extol_ok, mounted_type, require, run, run_extol,
    text, tool,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);

/// A mounted volume.
struct Rig {
    scratch: Scratch,
    image: Image,
    dir: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let rig = Self { scratch, image, dir };
        rig.mount();
        rig
    }

    fn mount(&self) {
        extol_ok(&["mount", text(&self.image.path), text(&self.dir)]);
    }

    fn daemon(&self) -> Pid {
        let mut text = [0; 32];
        let len = rustix::fs::getxattr(&self.dir, "user.extol.daemon", &mut text[..])
            .expect("a live mount");
        let number = std::str::from_utf8(&text[..len]).unwrap().parse().unwrap();
        Pid::from_raw(number).expect("a process")
    }

    fn umount(&self, flags: &[&str]) -> (Finished, Duration) {
        let start = Instant::now();
        let done = run_extol(&[&["umount"], flags, &[text(&self.dir)]].concat());
        (done, start.elapsed())
    }

    fn is_mounted(&self) -> bool {
        mounted_type(&self.dir).is_some()
    }

    /// A process that has a file of the mount open for some time.
    fn user(&self, seconds: &str) -> Sleeper {
        let file = File::create(self.dir.join("open")).unwrap();
        let mut sleep = tool("sleep");
        Sleeper(sleep.arg(seconds).current_dir("/").stdin(file).spawn().unwrap())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

/// A process that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn name(&self) -> String {
        format!("sleep ({})", self.0.id())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_alive(process: Pid) -> bool {
    extol_proc::Process(process.as_raw_nonzero().get().unsigned_abs()).is_alive()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn users_of_the_mount_are_named() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let open = rig.user("60");
    let (done, _) = rig.umount(&[]);
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
    let file = format!("{}: {}/open open", open.name(), text(&rig.dir));
    assert!(
        done.output.contains("is in use by ") && done.output.contains(&file),
        "{}",
        done.output
    );
    drop(open);

    let mut sleep = tool("sleep");
    let inside = Sleeper(sleep.arg("60").current_dir(&rig.dir).spawn().unwrap());
    let (done, _) = rig.umount(&[]);
    let shown = format!("{}: current directory", inside.name());
    assert!(done.output.contains(&shown), "{}", done.output);
    drop(inside);

    // What holds the mount is another mount.
    let below = rig.dir.join("below");
    std::fs::create_dir(&below).unwrap();
    if require(&[Need::Kernel("tmpfs")]) {
        extol_testkit::run_ok(tool("mount").args(["-t", "tmpfs", "none"]).arg(&below));
        let (done, _) = rig.umount(&[]);
        extol_testkit::unmount(&below);
        let shown = format!("is in use by the mount on {}", text(&below));
        assert!(done.output.contains(&shown), "{}", done.output);
    }
    let (done, _) = rig.umount(&["-v"]);
    assert!(done.success() && done.output.contains(" is unmounted"), "{}", done.output);
    e2fsck(&rig.image).assert_clean("unmounted");
}

/// With a time limit, files that are closed in time keep nothing; and no wait is silent.
#[test]
fn a_time_limit_is_for_files_as_well() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let open = rig.user("3");
    let (done, took) = rig.umount(&["--timeout", "20"]);
    assert!(done.success(), "{}", done.output);
    assert!(done.output.contains(&open.name()), "{}", done.output);
    assert!(took < Duration::from_secs(10), "{took:?}");

    rig.mount();
    let open = rig.user("60");
    let (done, took) = rig.umount(&["--timeout", "1.5"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.output.contains(&open.name()), "{}", done.output);
    assert!((1..5).contains(&took.as_secs()), "{took:?}");
    for bad in ["-1", "x", "", "inf", "nan"] {
        assert_eq!(rig.umount(&["--timeout", bad]).0.code, Some(1), "{bad}");
    }
}

/// A file system ends with its last mount, in whatever namespace that is.
#[test]
fn another_mount_namespace_is_named() {
    if !require(&[&NEEDS[..], &[Need::Tool("unshare")]].concat()) {
        return;
    }
    let rig = Rig::new();
    let daemon = rig.daemon();
    let mut unshare = tool("unshare");
    let inside = Sleeper(unshare.args(["-m", "sleep", "60"]).spawn().unwrap());
    let is_asleep =
        || std::fs::read(format!("/proc/{}/comm", inside.0.id())).unwrap() == b"sleep\n";
    wait_until("it runs", is_asleep);
    let (done, took) = rig.umount(&["--timeout", "2.5"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    let shown =
        format!("mounted on {} in the mount namespace of {}", text(&rig.dir), inside.name());
    assert_eq!(done.output.matches(&shown).count(), 2, "a line, and the failure: {}", done.output);
    assert!(took < Duration::from_secs(6), "{took:?}");
    // It is unmounted here; the daemon ends with the other namespace.
    assert!(!rig.is_mounted());
    assert!(is_alive(daemon));
    drop(inside);
    wait_until("the daemon ends", || !is_alive(daemon));
    e2fsck(&rig.image).assert_clean("unmounted");

    // Without a limit it waits, and says for what.
    rig.mount();
    let mut unshare = tool("unshare");
    let inside = Sleeper(unshare.args(["-m", "sleep", "4"]).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let (done, _) = rig.umount(&[]);
    assert!(done.success() && done.output.contains(&inside.name()), "{}", done.output);
}

/// A bind mount keeps the file system as well.
#[test]
fn a_bind_mount_is_named() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let bound = rig.scratch.dir("bound");
    extol_testkit::run_ok(tool("mount").arg("--bind").arg(&rig.dir).arg(&bound));
    let (done, _) = rig.umount(&["--timeout", "1.2"]);
    let shown = format!("it is mounted on {} as well", text(&bound));
    assert!(done.code == Some(32) && done.output.contains(&shown), "{}", done.output);
    let done = run_extol(&["umount", text(&bound)]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    e2fsck(&rig.image).assert_clean("unmounted");
}

/// By force, a mount goes though it is in use; what was acknowledged stays.
#[test]
fn force_ends_a_mount_in_use() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let open = File::create(rig.dir.join("synced")).unwrap();
    std::io::Write::write_all(&mut &open, b"synced").unwrap();
    open.sync_all().unwrap();
    let daemon = rig.daemon();
    let (done, _) = rig.umount(&["--force"]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    assert!(!rig.is_mounted() && open.metadata().is_err());
    assert!(!is_alive(daemon));
    e2fsck(&rig.image).assert_clean("unmounted by force");
    rig.mount();
    assert_eq!(std::fs::read(rig.dir.join("synced")).unwrap(), b"synced");
    assert_eq!(rig.umount(&["-f", "-l"]).0.code, Some(1));
}

/// A daemon that does not answer does not hang the command.
#[test]
fn a_daemon_that_does_not_answer_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let mut synced = File::create(rig.dir.join("synced")).unwrap();
    std::io::Write::write_all(&mut synced, b"synced").unwrap();
    synced.sync_all().unwrap();
    // A child of this process would wait for the daemon when it closes its copy.
    drop(synced);
    let daemon = rig.daemon();
    kill_process(daemon, Signal::STOP).unwrap();
    let (done, took) = rig.umount(&["-f"]);
    let went = !rig.is_mounted();
    let _ = kill_process(daemon, Signal::CONT);
    assert!(done.output.contains("does not answer"), "{}", done.output);
    assert!(went && took < Duration::from_secs(20), "{took:?}: {}", done.output);
    assert_eq!(done.code, Some(32), "the daemon closed nothing: {}", done.output);
    assert!(!is_alive(daemon));
    // It was killed: what was synced is recovered.
    rig.mount();
    assert_eq!(std::fs::read(rig.dir.join("synced")).unwrap(), b"synced");
    assert!(rig.umount(&[]).0.success());
    e2fsck(&rig.image).assert_clean("recovered");
}

/// Nor does it without force; a time limit ends the wait.
#[test]
fn a_time_limit_is_for_a_silent_daemon_as_well() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let daemon = rig.daemon();
    kill_process(daemon, Signal::STOP).unwrap();
    let (done, took) = rig.umount(&["--timeout", "1"]);
    kill_process(daemon, Signal::CONT).unwrap();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let silent = "does not answer";
    assert!(done.code == Some(32) && done.output.contains(silent), "{}", done.output);
    // The unmount goes on.
    wait_until("the daemon ends", || !is_alive(daemon));
    e2fsck(&rig.image).assert_clean("unmounted");
}

#[test]
fn several_mounts_images_and_what_is_no_mount() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let none = rig.scratch.dir("none");
    let (dir, image, none) = (text(&rig.dir), text(&rig.image.path), text(&none));
    let done = run_extol(&["umount", none, dir]);
    assert_eq!((done.code, done.output.lines().count()), (Some(64), 1), "{}", done.output);
    assert!(done.output.contains("none is not a mount point") && !rig.is_mounted());
    rig.mount();
    let done = run_extol(&["umount", "-v", image]);
    assert!(done.success() && done.output.contains(dir) && !rig.is_mounted(), "{}", done.output);
    for path in [image, none, "/nonexistent"] {
        let done = run_extol(&["umount", path]);
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        let done = run_extol(&["umount", "-q", path]);
        assert_eq!((done.code, done.output.as_str()), (Some(32), ""));
    }
    // Of a directory with a relative name, from within another.
    rig.mount();
    let mut relative = extol();
    relative.args(["umount", "mnt"]).current_dir(rig.scratch.path()).stdin(Stdio::null());
    let done = run(&mut relative, LIMIT);
    assert!(done.success() && !rig.is_mounted(), "{}", done.output);
}
