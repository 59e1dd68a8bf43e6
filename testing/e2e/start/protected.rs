//! What cannot be written to is mounted read-only, and what is mounted already is named at once.

use crate::{NEEDS, Rig, as_unprivileged, run_extol, text};
use extol_testkit::{
    Image, KernelMount, LoopDevice, Need, Scratch, e2fsck, mounted_type, require, run, run_ok,
    tool, unmount,
};
use std::path::Path;
use std::time::{Duration, Instant};

const EROFS: Option<i32> = Some(30);
const PROTECTED: &str = "source write-protected";

#[track_caller]
fn falls_back(source: &Path, dir: &Path, why: &str) {
    let done = run_extol(&["mount", text(source), text(dir)]);
    assert!(done.success(), "{}", done.output);
    let warning = format!("WARNING: {why}, mounted read-only.");
    assert_eq!(done.output, format!("extol: {}: {warning}\n", dir.display()));
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
    falls_back(device.path(), &rig.dir, PROTECTED);
    device.detach();

    // An image on a file system that is mounted read-only.
    let below = Scratch::new();
    let place = below.dir("place");
    run_ok(tool("mount").arg("--bind").arg(rig.scratch.path()).arg(&place));
    run_ok(tool("mount").args(["-o", "remount,bind,ro"]).arg(&place));
    let image = place.join("a.img");
    let outcome = std::panic::catch_unwind(|| falls_back(&image, &below.dir("mnt"), PROTECTED));
    unmount(&place);
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// The feature that forbids to write, and what is not written in any case: shared blocks, and
/// volumes of the Hurd.
#[test]
fn volumes_that_are_only_read() {
    let tools = ["mke2fs", "debugfs", "e2fsck"].map(Need::Tool);
    if !require(&[&NEEDS[..], &tools].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let with_file = |name: &str, options: &[&str], commands: &[&str]| {
        let image = Image::mke2fs(scratch.path(), name, 16 << 20, options);
        let file = scratch.path().join("file");
        std::fs::write(&file, vec![b'x'; 5000]).expect("a file");
        let put = ["one", "two"].map(|name| format!("write {} {name}", text(&file)));
        for command in put.iter().map(String::as_str).chain(commands.iter().copied()) {
            run_ok(tool("debugfs").args(["-w", "-R", command]).arg(&image.path));
        }
        image
    };
    let reads = |image: &Image| {
        let path = text(&image.path);
        let done = run_extol(&["mount", path, text(&dir)]);
        assert_eq!(done.code, Some(32), "{}", done.output);
        assert!(done.output.contains("mount with -o ro"), "{}", done.output);
        assert!(run_extol(&["mount", "-r", path, text(&dir)]).success());
        for name in ["one", "two"] {
            let bytes = std::fs::read(dir.join(name)).expect("a file");
            assert!(bytes.len() == 5000 && bytes.iter().all(|byte| *byte == b'x'), "{name}");
        }
        assert!(run_extol(&["umount", text(&dir)]).success());
        e2fsck(image).assert_clean("only read");
        let done = run_extol(&["check", path]);
        assert!(done.success(), "{}", done.output);
    };
    let image = with_file("a.img", &["-t", "ext4"], &["feature read-only"]);
    falls_back(&image.path, &dir, "the volume has the feature read-only");

    // (ext2 has block maps, which debugfs can change.)
    let share = ["feature shared_blocks"];
    let image = with_file("b.img", &["-t", "ext2", "-b", "1024"], &share);
    let of = |name: &str| {
        let bmap = format!("bmap {name} 1");
        // (Its version is the second line.)
        let said = run_ok(tool("debugfs").args(["-R", &bmap]).arg(&image.path));
        said.lines().next().expect("a block").to_owned()
    };
    let block = of("one");
    assert_ne!(block, of("two"));
    let set = format!("sif two block[1] {block}");
    run_ok(tool("debugfs").args(["-w", "-R", &set]).arg(&image.path));
    // (The block that was given up is free.)
    let fixed = run(tool("e2fsck").args(["-fy"]).arg(&image.path), Duration::from_secs(60));
    assert!(fixed.code < Some(4), "{}", fixed.output);
    assert_eq!(of("two"), block, "e2fsck has parted them");
    reads(&image);

    reads(&with_file("c.img", &["-t", "ext2", "-o", "hurd"], &[]));
}

/// Linux neither writes nor verifies checksums of inodes on volumes of other systems; e2fsck wants
/// them all the same. Extol writes and does not verify them.
#[test]
fn inodes_without_checksums_on_volumes_of_others() {
    let tools = ["mke2fs", "e2fsck"].map(Need::Tool);
    if !require(&[&NEEDS[..], &[Need::Loop, Need::Kernel("ext4")], &tools].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let options = ["-t", "ext4", "-o", "FreeBSD"];
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &options);
    let by_extol = |name: &str| {
        assert!(run_extol(&["mount", text(&image.path), text(&dir)]).success());
        std::fs::write(dir.join(name), name).expect("a file");
        for entry in std::fs::read_dir(&dir).expect("a directory") {
            entry.expect("an entry").metadata().expect("metadata");
        }
        assert!(run_extol(&["umount", text(&dir)]).success());
    };
    by_extol("one");
    e2fsck(&image).assert_clean("written by Extol");
    let linux = KernelMount::mount(&image, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("one")).expect("a file"), b"one");
    std::fs::write(dir.join("two"), "two").expect("a file");
    linux.unmount();
    assert_ne!(e2fsck(&image).code, 0, "Linux writes checksums by now");
    by_extol("three");
    let linux = KernelMount::mount(&image, &dir, &["ro"]);
    for name in ["one", "two", "three"] {
        assert_eq!(std::fs::read(dir.join(name)).expect("a file"), name.as_bytes());
    }
    linux.unmount();
    let fixed = run(tool("e2fsck").args(["-fy"]).arg(&image.path), Duration::from_secs(60));
    assert_eq!(fixed.code, Some(1), "{}", fixed.output);
    by_extol("four");
    e2fsck(&image).assert_clean("with checksums again");
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
