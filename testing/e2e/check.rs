//! `extol check` on the command line: results, exit codes of fsck(8), messages, and that nothing is
//! changed. (That the results are right is shown in `crates/check/tests`, against e2fsck.)

use extol_testkit::{
    CrashLoad, ExtolMount, Finished, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown,
    e2fsck, extol, extol_path, require, run, run_ok, shutdown, tool,
};
use std::time::Duration;

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
];

/// Runs `extol check` on an image; the image must be as before.
#[track_caller]
fn check(image: &Image, args: &[&str]) -> Finished {
    let before = std::fs::read(&image.path).expect("read the image");
    let done = run(extol().arg("check").args(args).arg(&image.path), Duration::from_secs(120));
    assert!(std::fs::read(&image.path).expect("read the image") == before, "the image was changed");
    done
}

#[track_caller]
fn code(done: &Finished, expected: i32) {
    assert_eq!(done.code, Some(expected), "{}: {}", done.command, done.output);
}

/// A volume with a file of several blocks, `/dir/file`; its inode number.
fn volume(scratch: &Scratch) -> (Image, u32) {
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4", "-b", "1024"]);
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    std::fs::create_dir(dir.join("dir")).unwrap();
    std::fs::write(dir.join("dir/file"), vec![7; 50_000]).unwrap();
    let ino =
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(dir.join("dir/file")).unwrap());
    mount.unmount();
    (image, u32::try_from(ino).expect("an inode number"))
}

fn debugfs(image: &Image, command: &str) {
    run_ok(tool("debugfs").args(["-w", "-R", command]).arg(&image.path));
}

#[test]
fn sound_and_damaged_volumes() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, ino) = volume(&scratch);
    let sound = check(&image, &[]);
    code(&sound, 0);
    assert!(sound.output.starts_with("clean: 0 errors"), "{}", sound.output);
    assert_eq!(sound.output.lines().count(), 1, "{}", sound.output);

    // Checksums are right again, the count is not.
    debugfs(&image, "sif /dir/file links_count 3");
    let damaged = check(&image, &[]);
    code(&damaged, 4);
    assert_ne!(e2fsck(&image).code, 0);
    let line =
        damaged.output.lines().find(|l| l.contains("link_count")).expect("the wrong link count");
    assert!(line.contains(&format!("inode {ino} (/dir/file)")), "{line}");
    assert!(damaged.output.contains("DAMAGED: 1 error,"), "{}", damaged.output);

    let done = check(&image, &["--json"]);
    code(&done, 4);
    let json: serde_json::Value = serde_json::from_str(&done.output).expect("JSON");
    assert_eq!(json["errors"], 1);
    let finding = &json["findings"][0];
    assert_eq!(finding["kind"], "link_count");
    assert_eq!(finding["inode"], ino);
    assert_eq!(finding["path"], "/dir/file");

    // A checksum that does not fit: the inode's first byte in the table.
    let (other, ino) = volume(&scratch);
    let group = run_ok(tool("debugfs").args(["-R", &format!("imap <{ino}>")]).arg(&other.path));
    let number = |after: &str| -> u64 {
        let rest = group.split(after).nth(1).expect("debugfs says where the inode is").trim_start();
        let word = rest.split([',', ' ', '\n']).next().expect("a word");
        word.strip_prefix("0x")
            .map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16))
            .expect("number")
    };
    other.flip_bit(number("located at block") * 1024 + number("offset"), 0);
    let damaged = check(&other, &[]);
    code(&damaged, 4);
    assert!(damaged.output.contains(&format!("inode {ino}")), "{}", damaged.output);
}

/// A volume that was not unmounted is checked as it will be after recovery.
#[test]
fn volumes_that_need_recovery() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    let load = CrashLoad::start(&dir, 2, 20, 3);
    load.wait_for(60, Duration::from_secs(60));
    load.freeze();
    shutdown(&dir, Shutdown::Now);
    drop(load.finish());
    mount.unmount();
    let done = check(&image, &["--json"]);
    code(&done, 0);
    let json: serde_json::Value = serde_json::from_str(&done.output).expect("JSON");
    assert!(json["replayed"]["transactions"].as_u64().is_some_and(|n| n > 0), "{}", done.output);
    let as_is = check(&image, &["--as-is"]);
    assert_eq!(as_is.code == Some(0), e2fsck(&image).code == 0, "{}", as_is.output);
}

/// What e2fsck leaves in reserved inodes of a table that was overwritten: nothing reads it, and the
/// exit code is e2fsck's.
#[test]
fn what_e2fsck_leaves_is_no_damage() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, _) = volume(&scratch);
    for ino in [5, 6, 7, 9, 10] {
        debugfs(&image, &format!("sif <{ino}> file_acl 4294967000"));
    }
    assert_eq!(e2fsck(&image).code, 0);
    let done = check(&image, &[]);
    code(&done, 0);
    assert!(done.output.contains("clean: 0 errors, 5 notes"), "{}", done.output);
    assert!(done.output.contains("note: xattr_block: inode 7: "), "{}", done.output);

    // The same field of an inode with a name is damage for both.
    debugfs(&image, "sif /dir/file file_acl 4294967000");
    assert_ne!(e2fsck(&image).code, 0);
    code(&check(&image, &[]), 4);
}

/// An error that e2fsck passes over is told as one: a root of an extent tree that claims a depth
/// and has no entries.
#[test]
fn what_e2fsck_passes_over_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, _) = volume(&scratch);
    // Magic, no entries, room for four, depth 1.
    debugfs(&image, "write /dev/null empty");
    debugfs(&image, "sif empty block[0] 0x0000f30a");
    debugfs(&image, "sif empty block[1] 0x00010004");
    let done = check(&image, &[]);
    assert_eq!(e2fsck(&image).code, 0);
    code(&done, 4);
    assert!(done.output.contains("DAMAGED, though e2fsck accepts it: 1 "), "{}", done.output);
}

/// A volume whose journal lies elsewhere names the option for it.
#[test]
fn an_external_journal_is_asked_for() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let log = Image::mke2fs(scratch.path(), "log.img", 16 << 20, &["-O", "journal_dev"]);
    let device = LoopDevice::attach(&log.path);
    let journal = format!("device={}", device.path().display());
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-J", &journal]);
    drop(device);
    debugfs(&image, "feature needs_recovery");
    let done = check(&image, &[]);
    code(&done, 8);
    assert!(done.output.contains("--journal FILE"), "{}", done.output);
    let option = format!("journal_path={}", log.path.display());
    let info = |args: &[&str]| {
        run(extol().arg("info").args(args).arg(&image.path), Duration::from_secs(30))
    };
    assert!(info(&[]).output.contains("journal_path="), "{}", info(&[]).output);
    let with = info(&["-o", &option]);
    code(&with, 0);
    assert!(!with.output.contains("journal_path="), "{}", with.output);
    let other = info(&["-o", "journal_path=/dev/null"]);
    code(&other, 32);
    code(&info(&["-h", "-o", &option]), 1);
}

#[test]
fn what_cannot_be_checked() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let nothing = Image::sparse(scratch.path().join("zeros.img"), 1 << 20);
    let done = check(&nothing, &[]);
    code(&done, 8);
    assert!(
        done.stderr.contains("zeros.img") && done.stderr.trim_end().lines().count() == 1,
        "{}",
        done.output
    );
    let usage = run(extol().args(["check", "--frob", "x"]), Duration::from_secs(30));
    code(&usage, 16);
    let missing = run(extol().args(["check", "no/such.img"]), Duration::from_secs(30));
    code(&missing, 8);

    // Mounted: by Linux, by Extol.
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    let done = check(&image, &[]);
    code(&done, 8);
    assert!(done.stderr.contains(dir.to_str().unwrap()), "{}", done.output);
    code(&check(&image, &["--mounted"]), 0);
    mount.unmount();
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    code(&check(&image, &[]), 8);
    mount.unmount();
    code(&check(&image, &[]), 0);
}

/// A terminal gets a progress bar, a log file gets none.
#[test]
fn the_bar_is_for_a_terminal() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("script")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 256 << 20, &["-t", "ext4", "-N", "262144"]);
    let command = format!("{} check {}", extol_path().display(), image.path.display());
    let seen = run_ok(tool("script").args(["-qec", &command, "/dev/null"]));
    assert!(seen.contains("checking") && seen.contains('%') && seen.contains("clean"), "{seen:?}");
    let quiet = check(&image, &[]);
    assert!(!quiet.output.contains("checking"), "{}", quiet.output);
}
