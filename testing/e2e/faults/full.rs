//! The disk below an image fills up, or the image may not grow.

use crate::{EIO, EROFS, NEEDS, Promised, comes_back, stopped};
use extol_testkit::{
    ExtolMount, Image, Need, Scratch, e2fsck, extol, extol_ok, extol_path, require,
    resize_small_disk, run, run_ok, text, tool, unmount,
};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The image is sparse, and the file system that it lies on fills up.
#[test]
fn no_space_below_the_image() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    for (options, journal) in [(&[][..], "4"), (&["data=journal"][..], "4"), (&["direct"][..], "8")]
    {
        let scratch = Scratch::new();
        let (small, dir) = (scratch.small_disk("small", "24m"), scratch.dir("mnt"));
        let image = Image::sparse(small.join("a.img"), 64 << 20);
        let size = format!("size={journal}");
        run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", &size]).arg(&image.path));
        let mount = match ExtolMount::try_start(&image.path, &dir, options) {
            Ok(mount) => mount,
            // tmpfs without O_DIRECT.
            Err(e) if options == ["direct"] => {
                println!("skipped direct: {}", e.output.trim());
                unmount(&small);
                continue;
            }
            Err(e) => panic!("{e:?}"),
        };
        let mut promised = Promised::default();
        let failed =
            promised.until_it_fails(&dir, 200, 300_000).expect("60 MB do not fit on 24 MiB");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        assert!(promised.0.len() > 5);
        stopped(mount, &promised, true);
        resize_small_disk(&small, "200m");
        comes_back(&image, &scratch, &promised);
        // The daemon closes the image a moment after its mount has gone.
        unmount(&small);
    }
}

/// A recovery on a full disk says that it is full.
#[test]
fn a_replay_on_a_full_host_says_why() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (small, dir) = (scratch.small_disk("small", "24m"), scratch.dir("mnt"));
    let image = Image::sparse(small.join("a.img"), 64 << 20);
    run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=4"]).arg(&image.path));
    let mut mount = ExtolMount::start(&image.path, &dir, &[]);
    let mut promised = Promised::default();
    assert!(promised.until_it_fails(&dir, 20, 100_000).is_none());
    mount.kill9();
    // Space that the image has is left to it; all other is taken.
    let ballast = small.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    drop(file);
    for args in [&["replay"][..], &["mount"]] {
        let mut command = extol();
        command.args(args).arg(&image.path);
        if args == ["mount"] {
            command.arg(&dir);
        }
        let done = run(&mut command, Duration::from_secs(60));
        assert!(done.code == Some(32) || done.success(), "{args:?}: {}", done.output);
        if !done.success() {
            assert!(done.output.contains("No space left on device"), "{args:?}: {}", done.output);
        }
        if args == ["mount"] && done.success() {
            let _ = run(extol().arg("umount").arg(&dir), Duration::from_secs(60));
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    run_ok(extol().arg("replay").arg(&image.path));
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    promised.assert_kept(&dir, "replayed");
    mount.unmount();
    e2fsck(&image).assert_clean("replayed");
    unmount(&small);
}

/// A tree for a volume that its host has no room for: nothing more is tried once that is known, and
/// the file that was there stays.
#[test]
fn a_tree_on_a_full_host_is_given_up() {
    if !require(&[Need::Root, Need::Kernel("tmpfs"), Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (small, tree) = (scratch.small_disk("small", "10m"), scratch.dir("tree"));
    std::fs::write(tree.join("a"), vec![7; 30 << 20]).unwrap();
    for number in 0..50 {
        std::fs::write(tree.join(format!("b{number}")), "text").unwrap();
    }
    let path = small.join("a.img");
    std::fs::write(&path, "what was there").unwrap();
    let mut command = extol();
    command.args(["mkfs", "-q", "-F", "-d"]).arg(&tree).arg(&path).arg("64M");
    let done = run(&mut command, Duration::from_secs(60));
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains("No space left on device"), "{}", done.output);
    assert!(done.stderr.lines().count() <= 4, "{}", done.output);
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
    unmount(&small);
}

/// A put, and a script, for which the host has no room: one line, the volume is as before and needs
/// no check, and the host has its room back.
#[test]
fn a_put_on_a_full_host_leaves_the_volume_whole() {
    if !require(&[Need::Root, Need::Kernel("tmpfs"), Need::Tool("qemu-img")]) {
        return;
    }
    let scratch = Scratch::new();
    let source = |name: &str, len: usize| {
        let path = scratch.join(name);
        std::fs::write(&path, vec![7; len]).expect("a source");
        path
    };
    let (large, small) = (source("large", 30 << 20), source("small", 2 << 20));
    for qcow2 in [false, true] {
        let host = scratch.small_disk("small disk", "16m");
        let path = host.join("a.img");
        if qcow2 {
            run_ok(tool("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("64M"));
            extol_ok(&["mkfs", "-q", text(&path)]);
        } else {
            extol_ok(&["mkfs", "-q", text(&path), "64M"]);
        }
        extol_ok(&["put", text(&path), text(&small), "/before"]);
        let taken = || std::fs::metadata(&path).expect("the image").blocks() * 512;
        let before = taken();
        let put = ["put", text(&path), text(&large), "/"];
        for round in 0..3 {
            let done = run(extol().args(put), LIMIT);
            assert_eq!(done.code, Some(32), "{}", done.output);
            assert_eq!(done.stderr.lines().count(), 1, "{}", done.output);
            assert!(done.stderr.contains("lies on is full"), "{}", done.output);
            let left = taken();
            assert!(left <= before + (5 << 20), "{qcow2} {round}: {before} {left}");
            let names = extol_ok(&["ls", text(&path), "/"]);
            assert_eq!(names.split_whitespace().collect::<Vec<_>>(), ["before", "lost+found"]);
            let checked = extol_ok(&["check", text(&path)]);
            assert!(checked.contains(" 0 notes"), "{checked}");
            if !qcow2 {
                e2fsck(&Image::existing(&path)).assert_clean("after a failed put");
            }
        }
        let script = scratch.join("script");
        let lines = format!("mkdir /new\nput {} /new/large\n", text(&large));
        std::fs::write(&script, lines).expect("a script");
        let done = run(extol().args(["edit", "-f", text(&script)]).arg(&path), LIMIT);
        assert_eq!((done.code, done.stderr.lines().count()), (Some(32), 1), "{}", done.output);
        let words = ["line 2: ", "No space left on device", "Nothing was changed"];
        assert!(words.iter().all(|word| done.stderr.contains(word)), "{}", done.output);
        assert!(!extol_ok(&["ls", text(&path), "/"]).contains("new"));
        let checked = extol_ok(&["check", text(&path)]);
        assert!(checked.contains(" 0 notes"), "{checked}");
        assert!(taken() <= before + (5 << 20), "{qcow2}: {before} {}", taken());
        // The volume is as good as before.
        extol_ok(&["put", text(&path), text(&small), "/after"]);
        unmount(&host);
    }
}

/// The daemon may not make files larger than so much: RLIMIT_FSIZE is an error, not the end of the
/// daemon.
#[test]
fn a_limit_on_the_size_of_files() {
    if !require(&[&NEEDS[..], &[Need::Tool("prlimit")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let mut command = tool("prlimit");
    command.arg(format!("--fsize={}", 40 << 20)).arg("--").arg(extol_path()).args(["mount", "-f"]);
    let mount = ExtolMount::spawn(
        {
            command.arg(&image.path).arg(&dir);
            command
        },
        &dir,
    )
    .unwrap();
    let mut promised = Promised::default();
    let failed = promised.until_it_fails(&dir, 300, 300_000).expect("60 MB are behind the limit");
    assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
    stopped(mount, &promised, true);
    comes_back(&image, &scratch, &promised);
}
