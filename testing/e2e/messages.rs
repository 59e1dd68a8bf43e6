//! What messages say: names that can be copied, codes of what is not allowed, waits, copies of the
//! superblock.

use extol_testkit::{
    Finished, Image, Need, Rig, Scratch, as_unprivileged, extol, require, run, run_extol, text,
    tool,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A failure with this code and one line that has these words.
#[track_caller]
fn failed(done: &Finished, code: i32, words: &[&str]) {
    assert_eq!((done.code, done.stderr.lines().count()), (Some(code), 1), "{}", done.output);
    for word in words {
        assert!(done.stderr.contains(word), "no {word:?}: {}", done.output);
    }
}

/// What a message shows of a name is a word of a shell for it.
#[test]
fn names_can_be_copied() {
    let scratch = Scratch::new();
    for name in [&b"f\xfe"[..], b"a b", b"it's", b"$(x)", b"n\xff\n.img"] {
        let path = scratch.path().join(OsStr::from_bytes(name));
        for command in ["ls", "umount", "info"] {
            let done = run(extol().arg(command).arg(&path), LIMIT);
            failed(&done, 32, &[": No such file or directory"]);
            let word = done.stderr.trim_start_matches("extol: ");
            let word = word.trim_end().trim_end_matches(": No such file or directory");
            let script = format!("printf %s {word}");
            let shell = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(shell.stdout, path.as_os_str().as_bytes(), "{command}: {word}");
        }
    }
}

#[test]
fn what_is_not_allowed_has_one_code() {
    if !require(&[Need::Root, Need::UserMounts, Need::Tool("setpriv"), Need::Tool("mke2fs")]) {
        return;
    }
    let rig = Rig::new();
    let program = rig.give_away();
    let (image, dir) = (text(&rig.image.path), text(&rig.dir));
    let secret = rig.image.copy_as("secret.img");
    let roots = rig.scratch.dir("roots");
    let mode = |path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    };
    mode(secret.path.as_path(), 0o600);
    mode(&roots, 0o700);
    let (secret, new, below) = (text(&secret.path), roots.join("new.img"), roots.join("below"));
    for (words, code) in [
        (&["ls", secret][..], 1),
        (&["info", secret], 1),
        (&["mount", secret, dir], 1),
        (&["check", secret], 8),
        (&["mkfs", text(&new), "8M"], 1),
        (&["mount", image, text(&below)], 1),
        (&["mount", image, text(&roots)], 1),
        (&["mount", "--metrics", "127.0.0.1:80", image, dir], 1),
    ] {
        let done = run(as_unprivileged(&program).args(words), LIMIT);
        assert_eq!(done.code, Some(code), "{words:?}: {}", done.output);
        assert_eq!(done.stderr.lines().count(), 1, "{words:?}: {}", done.output);
    }
    // Not even root is let into the mount of a user.
    let done = run(as_unprivileged(&program).args(["mount", image, dir]), LIMIT);
    assert!(done.success(), "{}", done.output);
    let done = run_extol(&["mount", image, dir]);
    failed(&done, 32, &[&format!("{image} is mounted there by user "), ": unmount it first"]);
    assert!(run_extol(&["umount", dir]).success());
}

#[test]
fn what_a_remount_cannot_change_has_one_code() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs")]) {
        return;
    }
    let rig = Rig::new();
    rig.mount(&[]);
    for option in ["cache_mb=9", "uid=3", "data=journal", "noacl", "journal_path=/x", "metrics=:0"]
    {
        failed(&run_extol(&["remount", "-o", option, text(&rig.dir)]), 1, &[]);
    }
    assert!(rig.unmount(&[]).success());
}

/// An open waits for another process, which may be about to end, and says so.
#[test]
fn a_wait_for_an_image_is_told() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("flock")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let mut lock = tool("flock");
    let mut lock = lock.arg(&image.path).args(["sh", "-c", "echo; sleep 2"]);
    lock = lock.stdout(std::process::Stdio::piped());
    let mut holder = lock.spawn().unwrap();
    std::io::Read::read(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let done = run_extol(&["ls", text(&image.path)]);
    holder.wait().unwrap();
    assert_eq!(done.code, Some(0), "{}", done.output);
    let said = format!("{}: is in use by ", image.path.display());
    assert!(done.stderr.contains(&said) && done.stderr.contains("waiting"), "{}", done.output);
}

/// The advice names the copy that is there, and none where there is none.
#[test]
fn a_damaged_superblock_is_told_with_its_copy() {
    if !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    for (size, len, advice) in [
        ("1024", 16 << 20, "e2fsck -b 8193 -B 1024"),
        ("2048", 64 << 20, "e2fsck -b 16384 -B 2048"),
        ("4096", 256 << 20, "e2fsck -b 32768 -B 4096"),
        ("4096", 64 << 20, "there is no copy of it in the usual places"),
    ] {
        let image = Image::mke2fs(scratch.path(), "a.img", len, &["-t", "ext4", "-b", size]);
        image.write_at(1024, &[0; 1024]);
        failed(&run_extol(&["ls", text(&image.path)]), 32, &[advice]);
        let done = run_extol(&["ls", "-o", "sb=3", text(&image.path)]);
        failed(&done, 32, &["no superblock 3 KiB from the start", "sb= is in KiB"]);
        image.remove();
    }
    let done = run_extol(&["mkfs", "-t", "ext5", text(&scratch.join("a.img")), "8M"]);
    failed(&done, 1, &["did you mean \"ext4\"?"]);
}
