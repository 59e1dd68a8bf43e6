//! `extol umount`: for which processes it waits, and for how long; several mounts, and images.

use extol_testkit::{Finished, Need, Rig, e2fsck, extol, require, run, run_extol, text, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const USER: &str = "nobody";
const LIMIT: Duration = Duration::from_secs(60);

/// A mounted volume.
fn mounted() -> Rig {
    let rig = Rig::new();
    rig.mount(&[]);
    rig
}

/// A mount of an ordinary user by this program: its daemon.
fn mounted_by_user(rig: &Rig, program: &Path) -> Pid {
    let mut mount = extol_testkit::as_unprivileged(program);
    let done = run(mount.arg("mount").arg(&rig.image.path).arg(&rig.dir), LIMIT);
    assert!(done.success(), "{}", done.output);
    let holders = extol_proc::lock_holders(&std::fs::metadata(&rig.image.path).unwrap());
    Pid::from_raw(holders[0].0 as i32).unwrap()
}

fn umount(rig: &Rig, flags: &[&str]) -> (Finished, Duration) {
    let start = Instant::now();
    let done = rig.unmount(flags);
    (done, start.elapsed())
}

/// A process that has a file of the mount open for some time.
fn user(rig: &Rig, seconds: &str) -> Sleeper {
    let file = File::create(rig.dir.join("open")).unwrap();
    let mut sleep = tool("sleep");
    Sleeper(sleep.arg(seconds).current_dir("/").stdin(file).spawn().unwrap())
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

/// Stops all threads of a process: a signal reaches each of them a while after it was sent.
fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read(task.unwrap().path().join("stat")).unwrap();
        let name = stat.iter().rposition(|byte| *byte == b')').unwrap();
        stat[name..].starts_with(b") T")
    };
    wait_until("all threads are stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
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
    let rig = mounted();
    let open = user(&rig, "60");
    let (done, _) = umount(&rig, &[]);
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
    let (done, _) = umount(&rig, &[]);
    let shown = format!("{}: current directory", inside.name());
    assert!(done.output.contains(&shown), "{}", done.output);
    drop(inside);

    // What holds the mount is another mount.
    let below = rig.dir.join("below");
    std::fs::create_dir(&below).unwrap();
    if require(&[Need::Kernel("tmpfs")]) {
        extol_testkit::run_ok(tool("mount").args(["-t", "tmpfs", "none"]).arg(&below));
        let (done, _) = umount(&rig, &[]);
        extol_testkit::unmount(&below);
        let shown = format!("is in use by the mount on {}", text(&below));
        assert!(done.output.contains(&shown), "{}", done.output);
    }
    let (done, _) = umount(&rig, &["-v"]);
    assert!(done.success() && done.output.contains(" is unmounted"), "{}", done.output);
    e2fsck(&rig.image).assert_clean("unmounted");
}

/// With a time limit, files that are closed in time keep nothing; and no wait is silent.
#[test]
fn a_time_limit_is_for_files_as_well() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let open = user(&rig, "3");
    let (done, took) = umount(&rig, &["--timeout", "20"]);
    assert!(done.success(), "{}", done.output);
    assert!(done.output.contains(&open.name()), "{}", done.output);
    assert!(took < Duration::from_secs(10), "{took:?}");

    rig.mount(&[]);
    let open = user(&rig, "60");
    let (done, took) = umount(&rig, &["--timeout", "1.5"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.output.contains(&open.name()), "{}", done.output);
    assert!((1..5).contains(&took.as_secs()), "{took:?}");
    // What has failed is over: it stays mounted when the file is closed.
    drop(open);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(rig.is_mounted());
    for bad in ["-1", "x", "", "inf", "nan"] {
        assert_eq!(umount(&rig, &["--timeout", bad]).0.code, Some(1), "{bad}");
    }
}

/// A file system ends with its last mount, in whatever namespace that is.
#[test]
fn another_mount_namespace_is_named() {
    if !require(&[&NEEDS[..], &[Need::Tool("unshare")]].concat()) {
        return;
    }
    let rig = mounted();
    let daemon = rig.daemon();
    let mut unshare = tool("unshare");
    let inside = Sleeper(unshare.args(["-m", "sleep", "60"]).spawn().unwrap());
    let is_asleep =
        || std::fs::read(format!("/proc/{}/comm", inside.0.id())).unwrap() == b"sleep\n";
    wait_until("it runs", is_asleep);
    let (done, took) = umount(&rig, &["--timeout", "2.5"]);
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
    rig.mount(&[]);
    let mut unshare = tool("unshare");
    let inside = Sleeper(unshare.args(["-m", "sleep", "4"]).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let (done, _) = umount(&rig, &[]);
    assert!(done.success() && done.output.contains(&inside.name()), "{}", done.output);
}

/// A bind mount keeps the file system as well.
#[test]
fn a_bind_mount_is_named() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let bound = rig.scratch.dir("bound");
    extol_testkit::run_ok(tool("mount").arg("--bind").arg(&rig.dir).arg(&bound));
    let (done, _) = umount(&rig, &["--timeout", "1.2"]);
    let shown = format!("the volume is mounted on {} as well", text(&bound));
    assert!(done.code == Some(32) && done.output.contains(&shown), "{}", done.output);
    let done = run_extol(&["umount", text(&bound)]);
    // (Another test may have made a mount namespace meanwhile, and with it a copy of the mount.)
    let copied = done.output.contains("in the mount namespace of sleep");
    assert!(done.success() && (done.output.is_empty() || copied), "{}", done.output);
    e2fsck(&rig.image).assert_clean("unmounted");
}

/// By force, a mount goes though it is in use; what was acknowledged stays.
#[test]
fn force_ends_a_mount_in_use() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let open = File::create(rig.dir.join("synced")).unwrap();
    std::io::Write::write_all(&mut &open, b"synced").unwrap();
    open.sync_all().unwrap();
    let daemon = rig.daemon();
    let (done, _) = umount(&rig, &["--force"]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    assert!(!rig.is_mounted() && open.metadata().is_err());
    assert!(!is_alive(daemon));
    e2fsck(&rig.image).assert_clean("unmounted by force");
    rig.mount(&[]);
    assert_eq!(std::fs::read(rig.dir.join("synced")).unwrap(), b"synced");
    assert_eq!(umount(&rig, &["-f", "-l"]).0.code, Some(1));
}

/// A daemon that does not answer does not hang the command.
#[test]
fn a_daemon_that_does_not_answer_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let mut synced = File::create(rig.dir.join("synced")).unwrap();
    std::io::Write::write_all(&mut synced, b"synced").unwrap();
    synced.sync_all().unwrap();
    // A child of this process would wait for the daemon when it closes its copy.
    drop(synced);
    let daemon = rig.daemon();
    stop(daemon);
    let (done, took) = umount(&rig, &["-f"]);
    let went = !rig.is_mounted();
    let _ = kill_process(daemon, Signal::CONT);
    assert!(done.output.contains("does not answer"), "{}", done.output);
    assert!(went && took < Duration::from_secs(20), "{took:?}: {}", done.output);
    assert_eq!(done.code, Some(32), "the daemon closed nothing: {}", done.output);
    assert!(!is_alive(daemon));
    // It was killed: what was synced is recovered.
    rig.mount(&[]);
    assert_eq!(std::fs::read(rig.dir.join("synced")).unwrap(), b"synced");
    assert!(umount(&rig, &[]).0.success());
    e2fsck(&rig.image).assert_clean("recovered");
}

/// Nor does it without force; a time limit ends the wait.
#[test]
fn a_time_limit_is_for_a_silent_daemon_as_well() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let daemon = rig.daemon();
    stop(daemon);
    let (done, took) = umount(&rig, &["--timeout", "1"]);
    kill_process(daemon, Signal::CONT).unwrap();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let silent = "does not answer";
    assert!(done.code == Some(32) && done.output.contains(silent), "{}", done.output);
    // An unmount that has begun goes on; one that has found the mount in use, by the process that
    // asks the daemon, leaves it.
    if rig.is_mounted() {
        let _ = umount(&rig, &[]);
    }
    wait_until("the daemon ends", || !is_alive(daemon));
    e2fsck(&rig.image).assert_clean("unmounted");
}

#[test]
fn several_mounts_images_and_what_is_no_mount() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let none = rig.scratch.dir("none");
    let (dir, image, none) = (text(&rig.dir), text(&rig.image.path), text(&none));
    let done = run_extol(&["umount", none, dir]);
    assert_eq!((done.code, done.output.lines().count()), (Some(64), 1), "{}", done.output);
    assert!(done.output.contains("none is not a mount point") && !rig.is_mounted());
    rig.mount(&[]);
    let done = run_extol(&["umount", "-v", image]);
    assert!(done.success() && done.output.contains(dir) && !rig.is_mounted(), "{}", done.output);
    for path in [image, none, "/nonexistent"] {
        let done = run_extol(&["umount", path]);
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        let done = run_extol(&["umount", "-q", path]);
        assert_eq!((done.code, done.output.as_str()), (Some(32), ""));
    }
    // Of a directory with a relative name, from within another.
    rig.mount(&[]);
    let mut relative = extol();
    relative.args(["umount", "mnt"]).current_dir(rig.scratch.path()).stdin(Stdio::null());
    let done = run(&mut relative, LIMIT);
    assert!(done.success() && !rig.is_mounted(), "{}", done.output);
}

/// An image that is mounted through a loop device is known by its name; one with several volumes
/// does not say which is meant.
#[test]
fn an_image_below_a_loop_device_is_known() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let rig = Rig::new();
    let (other, image) = (rig.scratch.dir("other"), text(&rig.image.path));
    rig.mount(&["-o", "loop"]);
    let done = run_extol(&["mount", image, text(&other)]);
    let shown = format!("is mounted at {}: unmount it first", text(&rig.dir));
    assert!(done.code == Some(32) && done.output.contains(&shown), "{}", done.output);
    let done = run_extol(&["umount", image]);
    assert!(done.success() && done.output.is_empty() && !rig.is_mounted(), "{}", done.output);

    let whole = rig.scratch.join("whole.img");
    for seek in ["seek=1", "seek=40"] {
        let mut dd = tool("dd");
        dd.arg(format!("if={image}")).arg(format!("of={}", text(&whole)));
        extol_testkit::run_ok(dd.args(["bs=1M", "conv=sparse,notrunc", seek]));
    }
    for with in ["", ",loop"] {
        for (offset, dir) in [("offset=1m,sizelimit=32m", &rig.dir), ("offset=40m", &other)] {
            let options = format!("{offset}{with}");
            extol_testkit::extol_ok(&["mount", "-o", &options, text(&whole), text(dir)]);
        }
        let done = run_extol(&["umount", text(&whole)]);
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(done.output.contains("several volumes") && rig.is_mounted(), "{}", done.output);
        extol_testkit::extol_ok(&["umount", text(&other)]);
        let done = run_extol(&["umount", text(&whole)]);
        assert!(done.success() && !rig.is_mounted(), "{}", done.output);
    }
}

/// What keeps a mount that was taken off lazily is named, and not its daemon alone.
#[test]
fn what_is_left_of_a_mount_is_named() {
    if !require(&[&NEEDS[..], &[Need::Loop, Need::Tool("unshare")]].concat()) {
        return;
    }
    for options in [&[][..], &["-o", "loop"]] {
        let rig = Rig::new();
        rig.mount(options);
        let daemon = rig.daemon();
        let process = extol_proc::Process(daemon.as_raw_nonzero().get().unsigned_abs());
        // Older kernels do not show whose connection it is.
        let shows = !extol_proc::served_by(process).is_empty();
        let again = || {
            let words = [&["mount"], options, &[text(&rig.image.path), text(&rig.dir)]].concat();
            let done = run_extol(&words);
            // (That the open waits for a while is told before.)
            let lines: Vec<&str> = done.output.lines().collect();
            let is_told = |line: &&str| line.contains(": waiting a few seconds for it");
            let (told, why) = lines.split_at(lines.len().saturating_sub(1));
            assert!(told.len() <= 1 && told.iter().all(is_told), "{}", done.output);
            assert_eq!((done.code, why.len()), (Some(32), 1), "{}", done.output);
            why[0].to_owned()
        };
        let open = user(&rig, "60");
        assert!(rig.unmount(&["-l"]).success() && !rig.is_mounted());
        let said = again();
        let shown = format!("in use by {}: /open open", open.name());
        assert!(!shows || said.contains(&shown), "{said}");
        assert!(said.contains(&process.to_string()), "{said}");
        drop(open);
        wait_until("the daemon ends", || !is_alive(daemon));

        rig.mount(options);
        let daemon = rig.daemon();
        let mut unshare = tool("unshare");
        let inside = Sleeper(unshare.args(["-m", "sleep", "60"]).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(rig.unmount(&["--timeout", "0.3"]).code, Some(32));
        let said = again();
        let shown = format!("in the mount namespace of {}", inside.name());
        assert!(!shows || said.contains(&shown), "{said}");
        drop(inside);
        wait_until("the daemon ends", || !is_alive(daemon));
    }
}

/// FUSE lets only the user in that has mounted it, not even root; the end of the daemon is waited
/// for all the same, and its exit report is read.
#[test]
fn root_waits_for_the_daemon_of_a_user() {
    let user = [Need::Tool("setpriv"), Need::UserMounts, Need::User(USER)];
    if !require(&[&NEEDS[..], &user].concat()) {
        return;
    }
    let rig = Rig::with(&["-E", "root_owner=65534:65534"]);
    let program = rig.give_away();
    let mounted = || mounted_by_user(&rig, &program);
    let daemon = mounted();
    let mut write = extol_testkit::as_unprivileged(std::path::Path::new("/bin/dd"));
    write.args(["if=/dev/zero", "bs=1M", "count=20"]).arg(format!("of={}/file", text(&rig.dir)));
    extol_testkit::run_ok(write.current_dir("/"));
    let (done, _) = umount(&rig, &[]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    assert!(!is_alive(daemon), "the unmount has not waited");
    e2fsck(&rig.image).assert_clean("unmounted by root");

    // The others say whose it is, and what to do.
    let daemon = mounted();
    for words in [
        &["stat"][..],
        &["stat", "--json"],
        &["top", "--once"],
        &["remount", "-o", "commit=9"],
        &["remount", "-o", "ro"],
        &["sync"],
        &["checkpoint"],
        &["freeze"],
        &["thaw"],
    ] {
        let done = run_extol(&[words, &[text(&rig.dir)]].concat());
        assert_eq!((done.code, done.output.lines().count()), (Some(1), 1), "{}", done.output);
        let way = format!("sudo -u {USER} extol {} ", words[0]);
        let owner = format!("belongs to {USER}");
        assert!(done.output.contains(&owner), "{}", done.output);
        assert!(done.output.contains(&way), "{}", done.output);
    }
    // And what root alone may, root cannot do here.
    let mut remount = extol_testkit::as_unprivileged(&program);
    let done = run(remount.args(["remount", "-o", "ro"]).arg(&rig.dir).current_dir("/"), LIMIT);
    assert!(
        done.code == Some(1) && done.output.contains("root is not let into"),
        "{}",
        done.output
    );
    assert!(umount(&rig, &[]).0.success() && !is_alive(daemon));

    // Of a daemon that is dead root says that, and not that it may still write.
    let daemon = mounted();
    rustix::process::kill_process(daemon, Signal::KILL).unwrap();
    // (Its first thread may be gone while others still hold its sockets.)
    let image = std::fs::metadata(&rig.image.path).unwrap();
    wait_until("the daemon has the image", || extol_proc::lock_holders(&image).is_empty());
    wait_until("the daemon is alive", || !is_alive(daemon));
    let (done, _) = umount(&rig, &[]);
    assert!(done.success() && done.output.contains("its daemon had died"), "{}", done.output);
    assert_eq!(done.output.lines().count(), 1, "{}", done.output);
}

/// The number of a mount's file system is free again while the daemon of the mount before it still
/// ends: that is not taken for the daemon of the next.
#[test]
fn the_daemon_of_another_volume_is_not_waited_for() {
    let user = [Need::Tool("setpriv"), Need::UserMounts, Need::User(USER)];
    if !require(&[&NEEDS[..], &user].concat()) {
        return;
    }
    let first = Rig::with(&["-E", "root_owner=65534:65534"]);
    let second = Rig::with(&["-E", "root_owner=65534:65534"]);
    let mounted = |rig: &Rig| mounted_by_user(rig, &rig.give_away());
    let stopped = Stopped(mounted(&first));
    stop(stopped.0);
    extol_testkit::run_ok(tool("umount").args(["-f", "-l"]).arg(&first.dir));

    // (Another mount of the machine may have taken the number meanwhile; this test is then the
    // plain case.)
    let daemon = mounted(&second);
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon ends", || !is_alive(daemon));
    let (done, took) = umount(&second, &[]);
    assert!(done.success() && done.output.contains("its daemon had died"), "{}", done.output);
    assert!(took < LIMIT, "{took:?}");
    kill_process(stopped.0, Signal::CONT).unwrap();
    wait_until("the first daemon ends", || !is_alive(stopped.0));
}

/// A process that goes on at the end of the test.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A file that this command inherits does not keep the mount in use.
#[test]
fn inherited_files_are_closed() {
    if !require(&NEEDS) {
        return;
    }
    let rig = mounted();
    let file = File::create(rig.dir.join("open")).unwrap();
    drop(file);
    let script = "exec 9<\"$1/open\"; exec \"$2\" umount \"$1\"";
    let mut shell = tool("sh");
    shell.args(["-c", script, "sh", text(&rig.dir), text(extol_testkit::extol_path())]);
    let done = run(shell.current_dir("/"), LIMIT);
    assert!(done.success() && done.output.is_empty() && !rig.is_mounted(), "{}", done.output);
}

#[test]
fn a_place_that_is_missing_is_told_as_typed() {
    let scratch = extol_testkit::Scratch::new();
    let mut command = extol();
    command.args(["umount", "nodir"]).current_dir(scratch.path()).stdin(Stdio::null());
    let done = run(&mut command, LIMIT);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert_eq!(done.output, "extol: nodir: No such file or directory\n");
}

/// A signal to the process alone also ends what it has started: nothing is unmounted later.
#[test]
fn an_interrupted_unmount_unmounts_nothing() {
    if !require(&NEEDS) {
        return;
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let rig = mounted();
        let user = user(&rig, "60");
        let mut command = extol();
        command.args(["umount", "--timeout", "50", text(&rig.dir)]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let done = child.wait_with_output().unwrap();
        drop(user);
        std::thread::sleep(Duration::from_millis(800));
        assert!(rig.is_mounted(), "unmounted after {signal:?}");
        assert_eq!(done.status.code(), Some(code));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said.lines().last(), Some("extol: interrupted"), "{said}");
        assert!(rig.unmount(&[]).success());
    }
}
