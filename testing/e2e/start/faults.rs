//! A failed start is a failed start: whatever cannot be had, the mount works, or there is none.
//!
//! strace makes the Nth call of a system call fail, in every thread of the daemon, for all N that
//! there are. (The first calls are the loader's, which gives up by itself.)

use crate::{LIMIT, NEEDS, Rig, extol, extol_path, text, until};
use extol_testkit::{Need, e2fsck, require, run, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// What the daemon asks the kernel for while it starts, and what it may hear. (Not `write`: every
/// thread would lose a reply.)
const CALLS: [(&str, &str); 16] = [
    ("openat", "EMFILE"),
    ("read", "EMFILE"),
    ("clone3", "EAGAIN"),
    ("mount", "EPERM"),
    ("mmap", "ENOMEM"),
    ("socket", "EMFILE"),
    ("socketpair", "EMFILE"),
    ("bind", "ENOMEM"),
    ("listen", "ENOBUFS"),
    ("pipe2", "EMFILE"),
    ("execve", "EMFILE"),
    ("fcntl", "EMFILE"),
    ("flock", "ENOLCK"),
    ("ioctl", "EMFILE"),
    ("statx", "ENOMEM"),
    ("io_uring_setup", "EMFILE"),
];
/// The loader and the runtime give up in their own words.
const THEIRS: [&str; 4] =
    ["shared libraries", "panicked", "memory allocation", "fatal runtime error"];

/// True if the call was made that often.
#[track_caller]
fn injected(rig: &Rig, call: &str, error: &str, nth: u32, options: &str) -> bool {
    let what = format!("{call} fails with {error}, number {nth}, {options}");
    let log = rig.scratch.join("strace.log");
    let mut strace = tool("strace");
    // (What the daemon starts goes on untraced. A clean environment takes no other start.)
    strace.args([
        "-f",
        "-b",
        "execve",
        "-qqq",
        "-o",
        text(&log),
        "-e",
        &format!("trace={call}"),
        "-e",
    ]);
    strace.arg(format!("inject={call}:error={error}:when={nth}")).arg(extol_path());
    strace.args(["mount", "-f", "--clean", "-o", options]).args([&rig.image.path, &rig.dir]);
    let mut child = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("strace");
    let worked = works(rig, &mut child, &what);
    if worked {
        // (What fails each thread once may also fail it later, which ends the mount by itself.)
        let _ = rig.unmount(&[]);
    }
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if !(worked && done.status.success()) {
        until(&what, Duration::from_secs(5), || !rig.is_mounted());
        assert!(!done.status.success(), "{what}");
        if done.status.code().is_some_and(|code| code < 127)
            && !THEIRS.iter().any(|way| said.contains(way))
        {
            assert!(said.starts_with("extol: ") && said.lines().count() == 1, "{what}: {said}");
        }
    }
    std::fs::read_to_string(&log).unwrap_or_default().contains("INJECTED")
}

/// True if the mount comes up and does what a mount does; false if its daemon ends.
#[track_caller]
fn works(rig: &Rig, child: &mut Child, what: &str) -> bool {
    let start = Instant::now();
    let script = "echo x > \"$0/file\" && cat \"$0/file\" && sync \"$0/file\"";
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        let mut use_it = tool("timeout");
        use_it.args(["10", "sh", "-c", script]).arg(&rig.dir);
        if rig.is_mounted()
            && run(&mut use_it, LIMIT).success()
            && child.try_wait().unwrap().is_none()
        {
            return true;
        }
        if start.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            panic!("{what}: it neither works nor ends");
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn every_call_may_fail(options: &str, calls: &[(&str, &str)]) {
    let rig = Rig::new();
    for (call, error) in calls {
        for nth in 1.. {
            // A directory has been looked at for the file: what the test itself did is not there
            // any more.
            if !injected(&rig, call, error, nth, options) {
                break;
            }
            assert!(nth < 200, "{call} is called for ever");
        }
    }
    e2fsck(&rig.image).assert_clean("after failed starts");
}

#[test]
fn every_call_of_the_start_may_fail() {
    if !require(&[&NEEDS[..], &[Need::Tool("strace")]].concat()) {
        return;
    }
    every_call_may_fail("noio_uring", &CALLS);
}

/// What is promised to the kernel with INIT is there, or the mount is not.
#[test]
fn every_call_of_the_start_may_fail_over_io_uring() {
    if !require(&[&NEEDS[..], &[Need::Tool("strace"), Need::IoUring]].concat()) {
        return;
    }
    let ring = [
        ("io_uring_setup", "EMFILE"),
        ("io_uring_register", "ENOMEM"),
        ("io_uring_enter", "EBADF"),
        ("eventfd2", "EMFILE"),
        ("clone3", "EAGAIN"),
        ("mmap", "ENOMEM"),
    ];
    every_call_may_fail("io_uring", &ring);
}

/// In the background, with little memory: the daemon may end anywhere, without a word of its own.
#[test]
fn little_memory() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let mut worked = 0;
    // With less the kernel or the loader ends the program before it begins.
    for kib in (24_750..600_000).step_by(14_750) {
        let script = format!("ulimit -v {kib}; exec \"$0\" mount -o noio_uring \"$1\" \"$2\"");
        let words = [text(extol_path()), text(&rig.image.path), text(&rig.dir)];
        let done = run(tool("sh").args(["-c", &script]).args(words), LIMIT);
        if done.success() {
            worked += 1;
            // (It may still run out of memory later, and end; that is told.)
            let _ = std::fs::write(rig.dir.join("file"), b"x");
            let done = rig.unmount(&[]);
            assert!(done.success() || !done.output.is_empty(), "{kib} KiB");
            until("nothing is mounted", LIMIT, || !rig.is_mounted());
        } else {
            // (The kernel may kill it before its first instruction.)
            assert!(!done.output.is_empty() || done.code.is_none(), "{kib} KiB: not a word");
            assert!(!rig.is_mounted(), "{kib} KiB: {}", done.output);
        }
    }
    assert!(worked > 0, "never enough");
}

/// A daemon that is killed while it starts leaves no mount: in the foreground its cleanup process
/// unmounts.
#[test]
fn killed_while_it_starts() {
    if !require(&[&NEEDS[..], &[Need::Tool("strace")]].concat()) {
        return;
    }
    let rig = Rig::new();
    let killed = (1..100).take_while(|nth| killed(&rig, *nth)).count();
    assert!(killed > 5, "{killed} calls");
}

/// Kills the daemon when one of its threads makes its `nth` thread. False if there are not that
/// many.
#[track_caller]
fn killed(rig: &Rig, nth: u32) -> bool {
    let what = format!("killed at {nth}");
    let log = rig.scratch.join("strace.log");
    let mut strace = tool("strace");
    // (The cleanup process and the monitor are not traced. In a clean environment the program is
    // not started again.)
    strace.args(["-f", "-b", "execve", "-qqq", "-o", text(&log), "-e", "trace=clone3", "-e"]);
    strace.arg(format!("inject=clone3:signal=KILL:when={nth}")).arg(extol_path());
    strace.args(["mount", "-f", "--clean", "-o", "noio_uring"]).args([&rig.image.path, &rig.dir]);
    let mut child = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace");
    let worked = works(rig, &mut child, &what);
    if worked {
        assert!(rig.unmount(&[]).success(), "{what}");
    }
    let _ = child.wait();
    until(&what, Duration::from_secs(5), || !rig.is_mounted());
    !worked
}

/// In the background its parent does that, before it says that there is no mount.
#[test]
fn killed_while_its_parent_waits() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let mut in_time = 0;
    for _ in 0..100 {
        let mut command = extol();
        command.args(["mount", "-o", "noio_uring"]).args([&rig.image.path, &rig.dir]);
        let mut parent = command.stderr(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", parent.id());
        // As soon as the mount is there, which is before it answers.
        while !rig.is_mounted() && parent.try_wait().unwrap().is_none() {}
        let list = std::fs::read_to_string(&children).unwrap_or_default();
        let daemon =
            list.split_whitespace().next().and_then(|n| n.parse().ok()).and_then(Pid::from_raw);
        match daemon {
            Some(daemon) => kill_process(daemon, Signal::KILL).unwrap(),
            None => {
                let _ = rig.unmount(&[]);
            }
        }
        if parent.wait().unwrap().success() {
            // Too late: it was mounted.
            let _ = tool("umount").arg("-l").arg(&rig.dir).output();
            until("the volume is free", LIMIT, || !rig.is_mounted());
        } else {
            assert!(!rig.is_mounted(), "a dead mount is left");
            in_time += 1;
        }
        if in_time == 5 {
            return;
        }
    }
    assert!(in_time > 0, "never killed in time");
}
