//! Mistakes: the same kind has the same exit code whatever the command, the line names what was
//! typed, and what was there before is there afterwards.

mod info;
mod kinds;

use extol_testkit::{
    ExtolMount, Fuse2fsMount, Image, KernelMount, LoopDevice, Need, Scratch, extol, extol_ok,
    refused, require, run, run_extol, run_ok, text,
};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A volume that is written to elsewhere: the same line and code, whether Extol or the kernel has
/// it mounted.
#[test]
fn what_is_mounted_is_not_used() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, out, file) = (scratch.dir("mnt"), scratch.dir("out"), scratch.join("file"));
    std::fs::write(&file, "text").unwrap();
    let commands: &[&[&str]] = &[
        &["ls", "IMAGE"],
        &["ls", "--json", "IMAGE"],
        &["cat", "IMAGE", "/a"],
        &["cp", "IMAGE", "/a", text(&out)],
        &["put", "IMAGE", text(&file), "/"],
        &["rm", "IMAGE", "/a"],
        &["mkdir", "IMAGE", "/b"],
        &["mv", "IMAGE", "/a", "/b"],
        &["chmod", "IMAGE", "644", "/a"],
        &["getxattr", "IMAGE", "/a"],
        &["replay", "IMAGE"],
        &["mkfs", "IMAGE"],
        &["mkfs", "-F", "IMAGE"],
        &["mkfs", "-F", "-d", text(&out), "IMAGE"],
        &["mount", "IMAGE", text(&out)],
        &["check", "IMAGE"],
    ];
    let try_all = |image: &Path, by: &str| {
        for command in commands {
            let line: Vec<&str> =
                command.iter().map(|w| if *w == "IMAGE" { text(image) } else { w }).collect();
            let code = if command[0] == "check" { 8 } else { 32 };
            let more: &[&str] = if command[0] == "check" { &["or use --mounted"] } else { &[] };
            let at = format!("is mounted at {}{by}", dir.display());
            let words = [text(image), &at, ": unmount it first"];
            refused(&line, code, &[&words, more].concat());
        }
    };
    let image = Image::mke2fs(scratch.path(), "extol.img", 32 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    try_all(&image.path, ":");
    assert_eq!(run_extol(&["check", "--mounted", text(&image.path)]).code, Some(0));
    mount.unmount();
    let image = Image::mke2fs(scratch.path(), "linux.img", 32 << 20, &["-t", "ext4"]);
    let device = LoopDevice::attach(&image.path);
    let mount = KernelMount::mount_device(device.path(), &dir, &[]);
    try_all(&image.path, ":");
    try_all(device.path(), ":");
    mount.unmount();
    // What the kernel only reads can be read.
    let mount = KernelMount::mount_device(device.path(), &dir, &["ro"]);
    assert!(extol_ok(&["ls", text(&image.path)]).contains("lost+found"));
    mount.unmount();
    device.detach();
    // fuse2fs locks nothing.
    if require(&[Need::Tool("fuse2fs")]) {
        let mount = Fuse2fsMount::start(&image.path, &dir, &[]);
        try_all(&image.path, " by fuse2fs (");
        mount.unmount();
        assert!(extol_ok(&["ls", text(&image.path)]).contains("lost+found"));
    }
}

/// Where a volume does not come to be, the file that was there stays as it is.
#[test]
fn a_volume_that_cannot_be_filled_replaces_nothing() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("large"), vec![7; 12 << 20]).unwrap();
    let image = Image::mke2fs(scratch.path(), "a.img", 8 << 20, &["-t", "ext4", "-L", "old"]);
    let path = text(&image.path);
    let before = (std::fs::read(&image.path).unwrap(), std::fs::metadata(&image.path).unwrap());
    refused(&["mkfs", "-d", text(&dir), path], 32, &[path, "-F overwrites it"]);
    let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), path, "8M"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains(&format!("{path}: is too small")), "{}", done.output);
    let after = std::fs::metadata(&image.path).unwrap();
    assert!(std::fs::read(&image.path).unwrap() == before.0, "the old volume was changed");
    assert_eq!((after.ino(), after.len()), (before.1.ino(), before.1.len()));
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // With room for it the new one takes the place, with the old one's mode; also by a link.
    std::os::unix::fs::symlink("a.img", scratch.join("link")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&image.path, mode).unwrap();
    let link = scratch.join("link");
    extol_ok(&["mkfs", "-q", "-F", "-d", text(&dir), text(&link), "64M"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let after = std::fs::metadata(&image.path).unwrap();
    assert_eq!((after.mode() & 0o7777, after.len()), (0o640, 64 << 20));
    assert!(extol_ok(&["ls", "-l", path]).contains("large"));
    // A file with two names is overwritten in place, and so is a device: not before all is known.
    std::fs::hard_link(&image.path, scratch.join("other")).unwrap();
    let before = std::fs::read(&image.path).unwrap();
    let fails = |place: &str| {
        let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), place, "8M"]);
        assert_eq!(done.code, Some(32), "{}", done.output);
        assert!(done.stderr.contains("is too small"), "{}", done.output);
        assert!(done.stderr.contains(&format!("; {place} stays as it was")), "{}", done.output);
        assert!(std::fs::read(&image.path).unwrap() == before, "{place}: the volume was changed");
    };
    fails(path);
    if require(&[Need::Root, Need::Loop]) {
        let device = LoopDevice::attach(&image.path);
        fails(text(device.path()));
        device.detach();
    }
}

/// A volume inside the directory that it is made of.
#[test]
fn an_image_does_not_go_into_itself_when_it_is_replaced() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("file"), "text").unwrap();
    let image = dir.join("a.img");
    extol_ok(&["mkfs", "-q", text(&image), "16M"]);
    let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), text(&image)]);
    let notes = done.stderr.lines().filter(|line| line.contains("note: ")).count();
    assert!(done.success() && notes == 1, "{}", done.output);
    assert!(done.stderr.contains("a.img: is the image itself and is left out"), "{}", done.output);
    assert_eq!(extol_ok(&["ls", "-a", text(&image)]), "file\nlost+found\n");
}

#[test]
fn an_attribute_that_is_too_large_is_named() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    let file = dir.join("file");
    std::fs::write(&file, "text").unwrap();
    let set = |name: &str, len: usize| {
        rustix::fs::setxattr(&file, name, &vec![b'x'; len], rustix::fs::XattrFlags::empty())
    };
    if set("user.large", 3000).is_err() {
        println!("SKIP: this file system keeps no attributes of 3000 bytes");
        return;
    }
    let image = scratch.join("a.img");
    for command in [
        &["mkfs", "-q", "-b", "1024", "-d", text(&dir), text(&image), "16M"][..],
        &["put", text(&image), text(&file), "/"],
    ] {
        if command[0] == "put" {
            extol_ok(&["mkfs", "-q", "-b", "1024", text(&image), "16M"]);
        }
        let named = ["file: the attribute user.large", "3000 bytes", "blocks of 1024 bytes"];
        refused(command, 32, &named);
    }
    // Each fits, both do not.
    set("user.large", 500).unwrap();
    set("user.more", 600).unwrap();
    refused(&["put", text(&image), text(&file), "/"], 32, &["user.", "one block of 1024 bytes"]);
    let large = scratch.join("large.img");
    extol_ok(&["mkfs", "-q", "-b", "4096", "-d", text(&dir), text(&large), "16M"]);
}

#[test]
fn mkfs_says_what_is_wrong() {
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    let new = text(&path);
    for (options, words) in [
        ("-E strid=4", "did you mean \"stride=\"?"),
        ("-O has_journl", "did you mean \"has_journal\"?"),
        ("-O 64bti", "did you mean \"64bit\"?"),
        ("-J siz=4", "did you mean \"size=\"?"),
        ("-J size=0", "less than 1M"),
        ("-T smal", "did you mean \"small\"?"),
        ("-t etx4", "did you mean \"ext4\"?"),
        ("-N 0", "less than 1"),
        ("-E revision=2", "larger than 1"),
        ("-g 99M", "blocks per group"),
    ] {
        let line: Vec<&str> =
            ["mkfs"].into_iter().chain(options.split(' ')).chain([new, "16M"]).collect();
        refused(&line, 1, &[words]);
        assert!(!path.exists(), "{options}");
    }
    // Too small is one line.
    for size in ["0", "1s", "4K", "10K"] {
        refused(&["mkfs", new, size], 1, &["give a larger SIZE"]);
        assert!(!path.exists(), "{size}");
    }
    extol_ok(&["mkfs", "-q", "-E", "revision=1", "-g", "8K", new, "16M"]);
    assert!(extol_ok(&["info", "-h", new]).contains("Blocks per group:         8192"));
    let done = run_extol(&["mkfs", "-q", "-F", "-b", "8192", new]);
    assert!(done.success() && done.stderr.contains("warning: blocks of 8192 bytes"), "{done:?}");
}

/// A label that is no text is shown the same way everywhere, and can be given.
#[test]
fn labels_that_are_no_text() {
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    let image = text(&path);
    let label = std::ffi::OsStr::from_bytes(b"a\xffb");
    run_ok(extol().args(["mkfs", "-q", "-L"]).arg(label).args([image, "16M"]));
    let shown = "a\\xffb";
    assert!(extol_ok(&["info", image]).contains(shown));
    assert!(extol_ok(&["info", "-h", image]).contains(shown));
    assert!(extol_ok(&["info", "--json", image]).contains("a\\\\xffb"));
    refused(&["mkfs", image], 32, &[shown]);
    let long = std::ffi::OsStr::from_bytes(b"\xff23456789-1234567");
    let done = run(extol().args(["mkfs", "-q", "-F", "-L"]).arg(long).arg(&path), LIMIT);
    assert!(done.stderr.contains("'\\xff23456789-123456'"), "{}", done.output);
}
