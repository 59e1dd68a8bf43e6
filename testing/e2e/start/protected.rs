//! What cannot be written to is mounted read-only, and what is mounted already is named at once.

use crate::{NEEDS, Rig, as_unprivileged, run_extol, text};
use extol_testkit::{LoopDevice, Need, Scratch, mounted_type, require, run, run_ok, tool, unmount};
use std::path::Path;
use std::time::{Duration, Instant};

const EROFS: Option<i32> = Some(30);
const WARNING: &str = "WARNING: source write-protected, mounted read-only.";

#[track_caller]
fn falls_back(source: &Path, dir: &Path) {
    let done = run_extol(&["mount", text(source), text(dir)]);
    assert!(done.success(), "{}", done.output);
    assert_eq!(done.output, format!("extol: {}: {WARNING}\n", dir.display()));
    assert_eq!(std::fs::write(dir.join("new"), b"x").unwrap_err().raw_os_error(), EROFS);
    assert!(dir.join("lost+found").is_dir());
    assert!(run_extol(&["umount", text(dir)]).success());
    let done = run_extol(&["mount", "-w", text(source), text(dir)]);
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
    let done = run_extol(&["mount", "-r", text(source), text(dir)]);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
    assert!(run_extol(&["umount", text(dir)]).success());
}

#[test]
fn write_protected_sources_fall_back_to_read_only() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let rig = Rig::new();
    let device = LoopDevice::attach_with(&rig.image.path, &["-r"]);
    falls_back(device.path(), &rig.dir);
    device.detach();

    // An image on a file system that is mounted read-only.
    let below = Scratch::new();
    let place = below.dir("place");
    run_ok(tool("mount").arg("--bind").arg(rig.scratch.path()).arg(&place));
    run_ok(tool("mount").args(["-o", "remount,bind,ro"]).arg(&place));
    let image = place.join("a.img");
    let outcome = std::panic::catch_unwind(|| falls_back(&image, &below.dir("mnt")));
    unmount(&place);
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A second mount of a volume says at once where the first is, and not after three seconds.
#[test]
fn a_second_mount_names_the_first() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let rig = Rig::new();
    let other = rig.scratch.dir("other");
    rig.mount(&[]);
    let device = LoopDevice::attach(&rig.image.path);
    for (source, command) in [
        (&rig.image.path, "mount"),
        (&device.path().to_owned(), "mount"),
        (&rig.image.path, "replay"),
    ] {
        let began = Instant::now();
        let mut args = vec![command, text(source)];
        args.extend((command == "mount").then(|| text(&other)));
        let done = run_extol(&args);
        let took = began.elapsed();
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(
            done.output.contains(&format!("mounted at {}:", rig.dir.display())),
            "{}",
            done.output
        );
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    device.detach();
    assert!(rig.unmount(&[]).success());
    assert_eq!(mounted_type(&other), None);
}

/// The same for an ordinary user's mounts.
#[test]
fn a_user_is_told_where_it_is_mounted() {
    let needs = [Need::Tool("setpriv"), Need::UserMounts, Need::User("nobody")];
    if !require(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let rig = Rig::new();
    let (program, other) = (rig.open_to_all(), rig.scratch.dir("other"));
    for dir in [&rig.dir, &other] {
        std::os::unix::fs::chown(dir, Some(65534), Some(65534)).unwrap();
    }
    let mount = |dir: &Path| {
        let mut command = as_unprivileged(&program);
        run(command.arg("mount").arg(&rig.image.path).arg(dir), crate::LIMIT)
    };
    let done = mount(&rig.dir);
    assert!(done.success(), "{}", done.output);
    let began = Instant::now();
    let done = mount(&other);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(done.code, Some(32));
    assert!(done.output.contains(&format!("mounted at {}:", rig.dir.display())), "{}", done.output);
    let done = run(as_unprivileged(&program).arg("umount").arg(&rig.dir), crate::LIMIT);
    assert!(done.success() && done.output.is_empty(), "{}", done.output);
}
