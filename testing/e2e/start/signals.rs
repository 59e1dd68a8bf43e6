//! SIGTERM ends a daemon in every state.

use crate::{LIMIT, NEEDS, Rig, extol, extol_path, text, until};
use extol_testkit::{ExtolMount, Need, e2fsck, require, run_ok, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

const TERM: Signal = Signal::TERM;

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Starts a mount whose system call `wait` takes two seconds the `nth` time (which nothing can
/// shorten), and ends it meanwhile.
#[track_caller]
fn interrupted_in(rig: &Rig, wait: &str, nth: u32, args: &[&str]) {
    let log = rig.scratch.join("strace.log");
    let mut strace = tool("strace");
    strace.args(["-f", "-qqq", "-o", text(&log), "-e", &format!("trace={wait}"), "-e"]);
    strace
        .arg(format!("inject={wait}:delay_enter=2000000:when={nth}"))
        .arg(extol_path())
        .args(["mount", "-f"]);
    strace.args(args).args([&rig.image.path, &rig.dir]);
    // The daemon's signals are not strace's.
    let child = strace
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("strace");
    // (strace has children of its own at first.)
    let traced = || {
        let list =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).ok()?;
        let name =
            |n: &&str| std::fs::read_to_string(format!("/proc/{n}/comm")).unwrap_or_default();
        list.split_whitespace().find(|n| name(n) == "extol\n").and_then(|n| n.parse().ok())
    };
    until(wait, LIMIT, || std::fs::read_to_string(&log).is_ok_and(|log| log.contains(wait)));
    std::thread::sleep(Duration::from_millis(100));
    let daemon = traced().and_then(Pid::from_raw).expect("the daemon waits");
    kill_process(daemon, TERM).unwrap();
    let began = std::time::Instant::now();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(began.elapsed() < Duration::from_secs(10), "{wait}: {:?}", began.elapsed());
    // (strace has something to say, too; and an open that is delayed says so.)
    let other = |line: &&str| !line.contains("strace") && !line.contains("waiting until it can be");
    let lines: Vec<_> = said.lines().filter(other).collect();
    assert_eq!(
        (done.status.code(), &lines[..]),
        (Some(143), &["extol: interrupted"][..]),
        "{said}"
    );
    until("nothing is mounted", Duration::from_secs(5), || !rig.is_mounted());
}

/// While it opens the volume, recovers it, or waits in mount(2).
#[test]
fn while_it_starts() {
    if !require(&[&NEEDS[..], &[Need::Tool("strace")]].concat()) {
        return;
    }
    let rig = Rig::new();
    for (wait, nth, args) in [
        ("flock", 1, &[][..]),
        ("mount", 1, &[]),
        // Recovery writes; the volume has been in use, and was not closed.
        ("pwritev", 1, &["-o", "nodirect"]),
    ] {
        if wait == "pwritev" {
            let mut mount = ExtolMount::start(&rig.image.path, &rig.dir, &["nodirect"]);
            let mut file = std::fs::File::create(rig.dir.join("file")).unwrap();
            file.write_all(b"contents").and_then(|()| file.sync_all()).unwrap();
            drop(file);
            mount.kill9();
        }
        interrupted_in(&rig, wait, nth, args);
        let mount = ExtolMount::start(&rig.image.path, &rig.dir, &[]);
        mount.unmount();
        e2fsck(&rig.image).assert_clean(wait);
    }
}

/// The same in the background: the waiting command reports it, and nothing stays.
#[test]
fn while_it_starts_in_the_background() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    // Another process reads the volume: the start waits for three seconds.
    let lock = std::fs::File::open(&rig.image.path).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut command = extol();
    command.arg("mount").args([&rig.image.path, &rig.dir]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let began = std::time::Instant::now();
    kill_process(pid(&child), TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_millis(2400), "{:?}", began.elapsed());
    // It had said what it waits for.
    let said = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((done.status.code(), lines.len()), (Some(143), 2), "{said}");
    assert!(lines[0].contains("waiting a few seconds") && lines[1] == "extol: interrupted");
    assert!(!rig.is_mounted());
}

/// While it serves, is frozen, has been detached, is being unmounted, closes.
#[test]
fn while_it_serves() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let start = || {
        let mount = ExtolMount::start(&rig.image.path, &rig.dir, &[]);
        // It stands before it is served.
        std::fs::metadata(rig.dir.join("lost+found")).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        mount
    };
    let data = vec![5; 1 << 20];

    start().terminate(TERM);

    let mount = start();
    std::fs::write(rig.dir.join("frozen"), &data).unwrap();
    run_ok(extol().arg("freeze").arg(&rig.dir));
    mount.terminate(TERM);
    e2fsck(&rig.image).assert_clean("frozen");

    // Detached by others, with a file open: the first signal leaves it to the processes that have
    // the file, the second does not.
    let mount = start();
    let daemon = Pid::from_raw(mount.pid().unwrap() as i32).unwrap();
    let mut open = std::fs::File::create(rig.dir.join("open")).unwrap();
    open.write_all(&data).unwrap();
    run_ok(tool("umount").arg("-l").arg(&rig.dir));
    kill_process(daemon, TERM).unwrap();
    // (Within a second it is the same one.)
    kill_process(daemon, TERM).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    open.write_all(&data).unwrap();
    open.sync_all().expect("the mount is still served");
    kill_process(daemon, TERM).unwrap();
    mount.ended();
    drop(open);
    e2fsck(&rig.image).assert_clean("detached");

    // Being unmounted: what the kernel still holds is not lost.
    let mount = start();
    assert_eq!(std::fs::read(rig.dir.join("open")).unwrap().len(), 2 * data.len());
    for n in 0..6 {
        std::fs::write(rig.dir.join(format!("last-{n}")), &data).unwrap();
    }
    let daemon = Pid::from_raw(mount.pid().unwrap() as i32).unwrap();
    let mut unmount = tool("umount").arg(&rig.dir).spawn().unwrap();
    until("the mount is out of sight", LIMIT, || !rig.is_mounted());
    let _ = kill_process(daemon, TERM);
    assert!(unmount.wait().unwrap().success());
    mount.ended();
    e2fsck(&rig.image).assert_clean("unmounting");
    let mount = start();
    for n in 0..6 {
        assert!(std::fs::read(rig.dir.join(format!("last-{n}"))).unwrap() == data, "last-{n}");
    }
    mount.unmount();
}

/// What others have mounted on the directory since is not taken off in its place.
#[test]
fn other_mounts_stay() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let rig = Rig::new();
    let mount = ExtolMount::start(&rig.image.path, &rig.dir, &[]);
    let daemon = Pid::from_raw(mount.pid().unwrap() as i32).unwrap();
    let open = std::fs::File::create(rig.dir.join("open")).unwrap();
    run_ok(tool("umount").arg("-l").arg(&rig.dir));
    run_ok(tool("mount").args(["-t", "tmpfs", "none"]).arg(&rig.dir));
    kill_process(daemon, TERM).unwrap();
    // (Two within a second are one.)
    std::thread::sleep(Duration::from_millis(1200));
    kill_process(daemon, TERM).unwrap();
    mount.ended();
    drop(open);
    assert_eq!(extol_testkit::mounted_type(&rig.dir).as_deref(), Some("tmpfs"));
}
