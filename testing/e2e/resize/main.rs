//! `extol resize`: what it makes, Linux mounts and fills, and e2fsck and resize2fs accept.

mod grow;
mod lent;
mod matrix;
mod minimum;
mod mounted;
mod shrink;

#[path = "../../superseded.rs"]
mod superseded;
use superseded::is_superseded;

use extol_testkit::{
    CrashLoad, ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Tree, TreeSpec,
    as_unprivileged, debugfs, e2fsck, e2fsck_fix, extol, make_tree, require, run, run_extol,
    run_ok, text, tool,
};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("resize2fs")];
const LIMIT: Duration = Duration::from_secs(60);

fn resize(image: &Path, size: &str) -> Command {
    let mut command = extol();
    command.arg("resize").arg(image).arg(size);
    command
}

fn blocks(image: &Image) -> u64 {
    let text = extol_testkit::dump_super(image);
    let line = text.lines().find_map(|line| line.strip_prefix("Block count:"));
    line.expect("a count").trim().parse().expect("a number")
}

/// Fills a kernel mount; how many MiB found room.
fn fill(mount: &KernelMount) -> u64 {
    let mut command = tool("dd");
    command
        .args(["if=/dev/zero", "bs=1M"])
        .arg(format!("of={}", mount.path().join("big").display()));
    let done = run(&mut command, LIMIT);
    assert!(!done.success(), "the volume is never full");
    std::fs::metadata(mount.path().join("big")).expect("stat").len() >> 20
}

fn make_files(image: &Image) {
    let file = image.path.with_extension("file");
    std::fs::write(&file, "contents").expect("write");
    run_ok(extol().arg("put").arg(&image.path).arg(&file).arg("/file"));
    std::fs::remove_file(&file).expect("remove");
}

#[test]
fn refused_in_one_line() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 20 << 20, &["-t", "ext4"]);
    let name = image.path.display().to_string();
    let untouched = std::fs::read(&image.path).expect("read");
    let least = format!("at least; extol resize --print-minimum {name} says how small");
    for (args, code, words) in [
        (&["resize", "-M", &name, "30M"][..], 1, "cannot be used with"),
        (&["resize", &name, "0"], 32, &least),
        (&["resize", &name, "1x"], 1, "the unit must be"),
        (&["resize", &name, "16E"], 1, "too large"),
        (&["resize", &name, "15E"], 32, "at most"),
        (&["resize", "-o", "ro", &name, "30M"], 1, "-o ro"),
        (&["resize", "/dev/null", "30M"], 32, "neither a disk image nor a block device"),
        (&["resize", "/", "30M"], 32, "is not on a volume that extol has mounted"),
    ] {
        let done = run_extol(args);
        assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
        assert!(done.stderr.contains(words) && done.stderr.lines().count() == 1, "{done:?}");
    }
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
    let (dir, file) = (mount.path().display().to_string(), mount.path().join("file"));
    std::fs::write(&file, "text").expect("write");
    let file = file.display().to_string();
    let on_mount = format!("to resize the volume that the file is on, name {dir}");
    for (args, code, words) in [
        (&["resize", "-M", &name][..], 32, "only become larger"),
        (&["resize", "-P", &dir], 32, "only become larger"),
        (&["resize", &file, "30M"], 32, &on_mount),
        (&["resize", "-o", "ro", &name], 1, "-o is for volumes that are not"),
        (&["resize", &name, "10M"], 32, "only become larger"),
    ] {
        let done = run_extol(args);
        assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
        assert!(done.stderr.contains(words) && done.stderr.lines().count() == 1, "{done:?}");
    }
    run_ok(extol().args(["freeze"]).arg(mount.path()));
    let done = run_extol(&["resize", &name, "30M"]);
    assert!(done.code == Some(32) && done.stderr.contains("frozen"), "{done:?}");
    run_ok(extol().args(["thaw"]).arg(mount.path()));
    mount.unmount();
    assert_eq!(image.size(), untouched.len() as u64);
}

#[test]
fn a_damaged_volume_is_not_resized() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 20 << 20, &["-t", "ext4"]);
    // A block of a file that the bitmap has as free.
    run_ok(tool("debugfs").args(["-w", "-R", "freeb 4000 10"]).arg(&image.path));
    run_ok(tool("debugfs").args(["-w", "-R", "set_bg 0 free_blocks_count 17"]).arg(&image.path));
    assert!(!e2fsck(&image).is_clean());
    let done = run(&mut resize(&image.path, "30M"), LIMIT);
    assert_eq!(done.code, Some(32), "{done:?}");
    assert!(
        done.stderr.contains("is damaged (") && done.stderr.contains("not resized"),
        "{done:?}"
    );
    assert_eq!(image.size(), 20 << 20);
}
