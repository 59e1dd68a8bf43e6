//! `extol umount` fails if the daemon could not write everything, and says what.

use crate::{LIMIT, NEEDS, Rig, as_unprivileged, run_extol, text, until};
use extol_testkit::{Image, Need, Scratch, e2fsck, require, run, run_ok, tool, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;

/// A volume on a disk that is full soon; a write to it fails, which aborts the journal.
fn full(small: &Path) -> Image {
    let image = Image::sparse(small.join("a.img"), 64 << 20);
    run_ok(
        tool("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-J", "size=4", "-E", "root_owner=65534:65534"])
            .arg(&image.path),
    );
    image
}

fn fill(dir: &Path) {
    for n in 0..64 {
        let mut file = std::fs::File::create(dir.join(format!("file-{n}"))).unwrap();
        if file.write_all(&vec![7; 1 << 20]).and_then(|()| file.sync_all()).is_err() {
            return;
        }
    }
    panic!("nothing failed");
}

#[test]
fn what_is_lost_is_told() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (small, dir) = (scratch.small_disk("small", "24m"), scratch.dir("mnt"));
    let image = full(&small);
    assert!(run_extol(&["mount", text(&image.path), text(&dir)]).success());
    fill(&dir);
    let done = run_extol(&["umount", text(&dir)]);
    unmount(&small);
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
    let names = ["extol: ", "a.img: "];
    assert!(names.iter().all(|name| done.output.contains(name)), "{}", done.output);
    assert!(done.output.contains("No space left"), "{}", done.output);
}

/// How many processes are connected to this daemon for its exit report. They have the name of the
/// socket on which it listens.
fn reports_wanted(daemon: Pid) -> usize {
    let name = format!(" @extol/{}/", daemon.as_raw_nonzero());
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().filter(|line| line.contains(&name)).count().saturating_sub(1)
}

/// A daemon that ends otherwise does not pass for one that has written everything.
#[test]
fn a_daemon_that_is_killed_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    // The unmount connects to the daemon, and waits half a second for a file that is open;
    // meanwhile the daemon is killed. On a busy machine that may come too late: then once more.
    let mut tries = 0;
    let done = loop {
        rig.mount(&[]);
        let open = std::fs::File::create(rig.dir.join("file")).unwrap();
        let daemon = rig.daemon();
        let done = std::thread::scope(|scope| {
            let unmount = scope.spawn(|| rig.unmount(&[]));
            until("it is connected", LIMIT, || unmount.is_finished() || reports_wanted(daemon) > 0);
            kill_process(daemon, Signal::KILL).unwrap();
            drop(open);
            unmount.join().unwrap()
        });
        tries += 1;
        if tries == 20 || !done.output.contains("is in use") {
            break done;
        }
        assert!(rig.unmount(&[]).success());
    };
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
    assert!(done.output.contains("before it had closed the volume"), "{}", done.output);
    assert!(!rig.is_mounted());
    rig.mount(&[]);

    // One that was dead before is told, too.
    kill_process(rig.daemon(), Signal::KILL).unwrap();
    until("it is dead", LIMIT, || std::fs::metadata(&rig.dir).is_err());
    let done = rig.unmount(&[]);
    assert_eq!((done.code, done.output.lines().count()), (Some(0), 1), "{}", done.output);
    assert!(done.output.contains("had died"), "{}", done.output);
    rig.mount(&[]);
    let done = rig.unmount(&[]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    e2fsck(&rig.image).assert_clean("recovered");
}

/// An ordinary user hears it, too.
#[test]
fn a_user_is_told_what_is_lost() {
    let needs =
        [Need::Kernel("tmpfs"), Need::Tool("setpriv"), Need::UserMounts, Need::User("nobody")];
    if !require(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let rig = Rig::new();
    let program = rig.open_to_all();
    std::os::unix::fs::chown(&rig.dir, Some(65534), Some(65534)).unwrap();
    let small = rig.scratch.small_disk("small", "24m");
    let image = full(&small);
    std::os::unix::fs::chown(&image.path, Some(65534), Some(65534)).unwrap();
    let mut mount = as_unprivileged(&program);
    mount.args(["mount", "-o", "default_permissions"]).arg(&image.path).arg(&rig.dir);
    let done = run(&mut mount, LIMIT);
    assert!(done.success(), "{}", done.output);
    let script = format!("dd if=/dev/zero of={}/file bs=1M count=40 conv=fsync", text(&rig.dir));
    let done = run(as_unprivileged(Path::new("/bin/sh")).arg("-c").arg(script), LIMIT);
    assert!(!done.success(), "nothing failed: {}", done.output);
    let done = run(as_unprivileged(&program).arg("umount").arg(&rig.dir), LIMIT);
    unmount(&small);
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
    assert!(done.output.contains("No space left"), "{}", done.output);
}
