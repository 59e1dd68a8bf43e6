//! What goes wrong outside of Extol: wrong arguments, missing rights, volumes that are busy, cut
//! short, foreign or damaged, a machine without FUSE, a full disk below the image. Always one clear
//! line and the right exit code, or EUCLEAN or EIO to the caller; never a panic, never a hang.

mod damage;

use extol_testkit::{
    ExtolMount, Finished, Image, KernelMount, LoopDevice, Need, Scratch, as_unprivileged, e2fsck,
    e2fsck_fix, extol, extol_copy, extol_path, require, resize_small_disk, run, run_ok, text, tool,
    unmount,
};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NEEDS: [Need; 4] = [Need::Root, Need::Loop, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(30);

fn run_briefly(args: &[&str]) -> Finished {
    run(extol().args(args), LIMIT)
}

/// The command failed with this exit code and one line that contains these words.
#[track_caller]
fn one_line(done: &Finished, code: i32, words: &[&str]) {
    let show = format!("{}\nended with {:?}:\n{}", done.command, done.code, done.output);
    assert_eq!(done.code, Some(code), "{show}");
    let lines: Vec<&str> = done.output.lines().filter(|l| !l.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "one line, not {}: {show}", lines.len());
    assert!(lines[0].starts_with("extol: ") || lines[0].starts_with("mount.extol: "), "{show}");
    for word in words {
        assert!(
            lines[0].to_lowercase().contains(&word.to_lowercase()),
            "{word:?} is missing: {show}"
        );
    }
}

#[test]
fn wrong_arguments() {
    for args in [
        &[][..],
        &["frobnicate"],
        &["mount"],
        &["mount", "only-a-source"],
        &["mount", "--no-such-option", "a", "b"],
        &["umount"],
        &["info"],
        &["stat"],
        &["mkfs"],
        &["cat"],
    ] {
        let done = run_briefly(args);
        assert_eq!(done.code, Some(1), "{args:?}: {}", done.output);
        assert!(
            !done.output.is_empty() && !done.output.contains("panicked"),
            "{args:?}: {}",
            done.output
        );
    }
    let scratch = Scratch::new();
    let (image, dir) = (scratch.join("a.img"), scratch.dir("mnt"));
    File::create(&image).unwrap();
    for (options, word) in [
        ("frob", "frob"),
        ("commit=soon", "commit"),
        ("commit=-1", "commit"),
        ("data=sideways", "data"),
        ("errors=ignore", "errors"),
        ("cache_mb=lots", "cache_mb"),
        ("data=ordered,journal_async_commit", ""),
    ] {
        let done = run_briefly(&["mount", "-f", "-o", options, text(&image), text(&dir)]);
        assert!(matches!(done.code, Some(1 | 32)), "{options}: {:?} {}", done.code, done.output);
        one_line(&done, done.code.unwrap(), &[word]);
    }
}

#[test]
fn help_is_no_error() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["mount", "--help"],
        &["mkfs", "--help"],
        &["stat", "--help"],
    ] {
        let done = run_briefly(args);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.output);
        assert!(done.stderr.is_empty() && !done.output.is_empty(), "{args:?}");
    }
}

#[test]
fn places_that_are_none() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    let (image, file) = (text(&image.path).to_owned(), scratch.join("file"));
    std::fs::write(&file, b"x").unwrap();
    let missing = scratch.join("missing");
    let mount = |source: &str, dir: &Path| run_briefly(&["mount", "-f", source, text(dir)]);
    one_line(&mount(text(&missing), &dir), 32, &["missing"]);
    one_line(&mount(text(&dir), &dir), 32, &[]);
    one_line(&mount("/dev/null", &dir), 32, &["/dev/null"]);
    let done = mount(&image, &missing);
    one_line(
        &done,
        done.code.filter(|c| [1, 32].contains(c)).expect("an exit code of mount(8)"),
        &["missing"],
    );
    let done = mount(&image, &file);
    one_line(
        &done,
        done.code.filter(|c| [1, 32].contains(c)).expect("an exit code of mount(8)"),
        &["file"],
    );
    let done = run_briefly(&["umount", text(&dir)]);
    one_line(
        &done,
        done.code.filter(|c| [1, 32].contains(c)).expect("an exit code of umount(8)"),
        &["mnt"],
    );
    let done = run_briefly(&["stat", text(&dir)]);
    one_line(&done, done.code.filter(|c| [1, 32].contains(c)).expect("an error"), &[]);
}

#[test]
fn not_ext4() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let file = |name: &str, bytes: &[u8], size: u64| {
        let path = scratch.join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        file.set_len(size).unwrap();
        path
    };
    let noise: Vec<u8> =
        (0..1u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let sources: [PathBuf; 5] = [
        file("empty", b"", 0),
        file("short", b"x", 100),
        file("barely", b"", 2047),
        file("zeros", b"", 16 << 20),
        file("noise", &noise, 1 << 20),
    ];
    for source in &sources {
        let name = text(source.file_name().map(Path::new).unwrap());
        for command in [&["mount", "-f"][..], &["mount", "-f", "-o", "ro"], &["mount"]] {
            let done = run_briefly(&[command, &[text(source), text(&dir)]].concat());
            one_line(&done, 32, &[name]);
        }
        for command in ["info", "log", "replay", "ls"] {
            one_line(&run_briefly(&[command, text(source)]), 32, &[]);
        }
    }
    // Another file system's image.
    let swap = file("swap", b"", 16 << 20);
    if tool("mkswap").arg(&swap).output().is_ok_and(|o| o.status.success()) {
        one_line(&run_briefly(&["mount", "-f", text(&swap), text(&dir)]), 32, &[]);
    }
}

#[test]
fn cut_short() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    for size in [63 << 20, 32 << 20, 1 << 20, 100_000, 3000] {
        let copy = image.copy_as("short.img");
        File::options().write(true).open(&copy.path).unwrap().set_len(size).unwrap();
        one_line(&run_briefly(&["mount", "-f", text(&copy.path), text(&dir)]), 32, &["short.img"]);
    }
}

#[test]
fn features_that_are_not_supported() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let feature = "shared_blocks";
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let set = format!("feature {feature}");
    run_ok(tool("debugfs").args(["-w", "-R", &set]).arg(&image.path));
    one_line(&run_briefly(&["mount", "-f", text(&image.path), text(&dir)]), 32, &[feature]);
    // Read-only it works, or it is refused as clearly.
    match ExtolMount::try_start(&image.path, &dir, &["ro"]) {
        Ok(mount) => {
            let names = dir.read_dir().unwrap().count();
            assert_eq!(names, 1, "lost+found");
            assert_eq!(std::fs::write(dir.join("x"), b"x").unwrap_err().raw_os_error(), Some(30));
            mount.unmount();
        }
        Err(e) => {
            assert_eq!(e.code, Some(32));
            assert!(e.output.contains(feature) && e.output.lines().count() == 1, "{}", e.output);
        }
    }
    e2fsck(&image).assert_clean(feature);
    // Bits without a meaning yet: the last byte of s_feature_incompat and of
    // s_feature_ro_compat.
    for (offset, readable) in [(1024 + 0x63, false), (1024 + 0x67, true)] {
        let image = Image::mke2fs(
            scratch.path(),
            "a.img",
            16 << 20,
            &["-t", "ext4", "-O", "^metadata_csum"],
        );
        image.flip_bit(offset, 6);
        one_line(&run_briefly(&["mount", "-f", text(&image.path), text(&dir)]), 32, &["feature"]);
        let read_only = ExtolMount::try_start(&image.path, &dir, &["ro"]);
        assert_eq!(read_only.is_ok(), readable, "a read-only mount");
        if let Ok(mount) = read_only {
            mount.unmount();
        }
    }
}

/// Fast commits in the log of a volume that Linux has mounted: a copy of it has all that fsync
/// promised.
#[test]
fn fast_commits_of_linux_are_replayed() {
    if !require(&[&NEEDS[..], &[Need::Kernel("ext4")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image =
        Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4", "-O", "fast_commit"]);
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    let mut file = File::create(dir.join("promised")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    for _ in 0..5 {
        file.write_all(&[7; 5000]).unwrap();
        file.sync_all().unwrap();
    }
    let copy = image.copy_as("copy.img");
    drop(file);
    mount.unmount();
    for options in [&["ro"][..], &[]] {
        let mount = ExtolMount::start(&copy.path, &dir, options);
        assert_eq!(std::fs::read(dir.join("promised")).unwrap(), [7; 25_000]);
        mount.unmount();
    }
    e2fsck(&copy).assert_clean("recovered and closed");
}

#[test]
fn busy() {
    if !require(&[&NEEDS[..], &[Need::Kernel("ext4")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = |source: &Path| run_briefly(&["mount", "-f", text(source), text(&other)]);

    // Linux has it mounted, over a loop device.
    let linux = KernelMount::mount(&image, &dir, &[]);
    one_line(&mount(&image.path), 32, &["a.img"]);
    one_line(&mount(linux.device().unwrap()), 32, &["loop"]);
    one_line(&run_briefly(&["replay", text(&image.path)]), 32, &[]);
    linux.unmount();
    e2fsck(&image).assert_clean("after refused mounts");

    // Another Extol has it.
    let first = ExtolMount::start(&image.path, &dir, &[]);
    one_line(&mount(&image.path), 32, &["a.img"]);
    one_line(&run_briefly(&["rm", text(&image.path), "/lost+found"]), 32, &[]);
    std::fs::write(dir.join("file"), b"still works").unwrap();
    first.unmount();

    // Extol has a block device: Linux must not get it.
    let device = LoopDevice::attach(&image.path);
    let first = ExtolMount::start(device.path(), &dir, &[]);
    one_line(&mount(device.path()), 32, &["loop"]);
    let linux = run(tool("mount").args(["-t", "ext4"]).arg(device.path()).arg(&other), LIMIT);
    assert!(!linux.success(), "Linux mounted a device that Extol has open");
    first.unmount();
    drop(device);
    e2fsck(&image).assert_clean("after it was busy");
}

#[test]
fn without_rights() {
    if !require(&[&NEEDS[..], &[Need::Tool("setpriv"), Need::User("nobody")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    // The binary may lie where other users cannot reach it.
    let copy = extol_copy(scratch.path());
    let as_user = |args: &[&str]| run(as_unprivileged(&copy).args(args), LIMIT);
    let chmod =
        |mode| rustix::fs::chmod(&image.path, rustix::fs::Mode::from_raw_mode(mode)).unwrap();
    chmod(0o600);
    for command in ["info", "log", "ls", "replay"] {
        one_line(&as_user(&[command, text(&image.path)]), 1, &["permission denied"]);
    }
    let done = as_user(&["mount", "-f", text(&image.path), text(&dir)]);
    assert!(matches!(done.code, Some(1 | 2 | 32)), "{:?} {}", done.code, done.output);
    one_line(&done, done.code.unwrap(), &[]);
    // Looking needs no right to write.
    chmod(0o444);
    let before = std::fs::read(&image.path).unwrap();
    for command in ["info", "log", "ls"] {
        let done = as_user(&[command, text(&image.path)]);
        assert_eq!(done.code, Some(0), "{}", done.output);
    }
    one_line(&as_user(&["rm", text(&image.path), "/lost+found"]), 1, &[]);
    assert!(before == std::fs::read(&image.path).unwrap(), "looking must change nothing");

    // A read-only block device: `ro` works, `-w` is refused.
    let device = LoopDevice::attach_with(&image.path, &["-r"]);
    one_line(&run_briefly(&["mount", "-f", "-w", text(device.path()), text(&dir)]), 32, &[]);
    let mount = ExtolMount::start(device.path(), &dir, &["ro"]);
    assert!(dir.join("lost+found").is_dir());
    mount.unmount();
}

#[test]
fn without_fuse() {
    if !require(&[&NEEDS[..], &[Need::Tool("unshare")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    // A private mount table in which /dev holds nothing.
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let mut command = tool("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(extol_path())
        .args(["mount", "-f"])
        .arg(&image.path)
        .arg(&dir);
    one_line(&run(&mut command, LIMIT), 2, &["fuse"]);
    let mut command = tool("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(extol_path())
        .arg("mount")
        .arg(&image.path)
        .arg(&dir);
    one_line(&run(&mut command, LIMIT), 2, &["fuse"]);
}

/// The image lies on a disk that is full. What was promised stays; what cannot be written is an
/// error; the volume can be repaired once there is room.
#[test]
fn a_full_disk_below_the_image() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (small, dir) = (scratch.small_disk("small", "12m"), scratch.dir("mnt"));
    let image = Image::sparse(small.join("a.img"), 64 << 20);
    run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=4"]).arg(&image.path));
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let mut file = File::create(dir.join("promised")).unwrap();
    file.write_all(b"before the disk was full").and_then(|()| file.sync_all()).unwrap();
    drop(file);
    let mut failed = None;
    for n in 0..60 {
        let done = File::create(dir.join(format!("f{n}"))).and_then(|mut file| {
            file.write_all(&vec![0x77; 1 << 20])?;
            file.sync_all()
        });
        if let Err(e) = done {
            failed = Some(e);
            break;
        }
    }
    let failed = failed.expect("60 MiB do not fit on 12 MiB");
    assert!(matches!(failed.raw_os_error(), Some(5 | 28 | 30)), "{failed}");
    assert_eq!(std::fs::read(dir.join("promised")).unwrap(), b"before the disk was full");
    mount.end();
    resize_small_disk(&small, "100m");
    let report = e2fsck_fix(&image);
    assert!(report.code & !1 == 0, "{}", report.output);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("promised")).unwrap(), b"before the disk was full");
    std::fs::write(dir.join("after"), b"works").unwrap();
    mount.unmount();
    e2fsck(&image).assert_clean("after the disk was full");
    unmount(&small);
}
