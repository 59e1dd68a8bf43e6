//! Paths are bytes. A mount on a path that is no text, which any user can make, disturbs nothing;
//! and a volume with such paths is mounted, looked after and unmounted as every other.

use extol_testkit::{
    Finished, Image, KernelMount, LoopDevice, Need, Scratch, e2fsck, extol, extol_copy,
    mounted_type, require, run, run_extol, run_ok, tool,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NEEDS: [Need; 4] = [Need::Root, Need::Loop, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);
/// No text, and every character that the kernel's tables escape.
const ODD: &[u8] = b"\xff \\040\t\n#,\xc3(";

fn odd(dir: &Path, prefix: &str) -> PathBuf {
    dir.join(OsStr::from_bytes(&[prefix.as_bytes(), ODD].concat()))
}

fn odd_dir(dir: &Path, prefix: &str) -> PathBuf {
    let path = odd(dir, prefix);
    std::fs::create_dir(&path).expect("mkdir");
    path
}

/// An image of that name.
fn odd_image(scratch: &Scratch, prefix: &str) -> Image {
    let image = Image::mke2fs(scratch.path(), "plain.img", 32 << 20, &["-t", "ext4"]);
    let path = odd(scratch.path(), prefix);
    std::fs::rename(&image.path, &path).expect("rename");
    Image { path, ..image }
}

/// A tmpfs, unmounted in the end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(source: &OsStr, dir: PathBuf) -> Self {
        run_ok(tool("mount").args(["-t", "tmpfs"]).arg(source).arg(&dir));
        Self(dir)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = tool("umount").arg("-l").arg(&self.0).output();
    }
}

fn ask(words: &[&str], path: &Path) -> Finished {
    let words: Vec<OsString> = words.iter().map(OsString::from).chain([path.into()]).collect();
    run_extol(&words)
}

#[track_caller]
fn ok(words: &[&str], path: &Path) {
    let done = ask(words, path);
    assert!(done.success(), "{words:?}: {}", done.output);
}

/// Every command about a mounted volume, with two mounts of other file systems whose directories
/// and sources are no text.
#[track_caller]
fn whole_life(scratch: &Scratch, image: &Path, dir: &Path) {
    let _others = [
        Tmpfs::mount(OsStr::from_bytes(ODD), odd_dir(scratch.path(), "other")),
        Tmpfs::mount(OsStr::from_bytes(b"\xfe"), odd_dir(scratch.path(), "further")),
    ];
    let mount = || run(extol().arg("mount").arg(image).arg(dir), LIMIT);
    let done = mount();
    assert!(done.success(), "{}", done.output);
    std::fs::write(dir.join("file"), "x").unwrap();
    for words in [
        &["stat"][..],
        &["stat", "--json"],
        &["top", "--once", "--interval", "0.1"],
        &["sync"],
        &["checkpoint"],
        &["freeze"],
        &["thaw"],
        &["remount", "-o", "commit=9"],
        &["remount", "-o", "noatime,ro"],
        &["remount", "-o", "rw"],
    ] {
        ok(words, dir);
    }
    // The one line of each refusal says where it is mounted.
    let other = odd_dir(scratch.path(), "second");
    let again = run(extol().arg("mount").arg(image).arg(other), LIMIT);
    assert_eq!((again.code, again.output.lines().count()), (Some(32), 1), "{}", again.output);
    assert!(again.output.contains(" is mounted at "), "{}", again.output);
    let checked = ask(&["check"], image);
    assert_eq!(checked.code, Some(8), "{}", checked.output);
    assert!(checked.output.contains(" is mounted at "), "{}", checked.output);
    ok(&["umount"], dir);
    assert_eq!(mounted_type(dir), None);
    ok(&["check"], image);
}

#[test]
fn other_mounts_disturb_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
    whole_life(&scratch, &image.path, &scratch.dir("mnt"));
    e2fsck(&image).assert_clean("after the unmount");
}

#[test]
fn a_volume_may_have_such_names() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = odd_image(&scratch, "image");
    whole_life(&scratch, &image.path, &odd_dir(scratch.path(), "mnt"));
    e2fsck(&image).assert_clean("after the unmount");
}

/// A kernel's mount of a loop device is seen, whatever the file below it is called.
#[test]
fn a_loop_device_over_such_a_file_is_seen() {
    if !require(&[&NEEDS[..], &[Need::Kernel("ext4")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = odd_image(&scratch, "image");
    let device = LoopDevice::attach(&image.path);
    let dir = odd_dir(scratch.path(), "kernel");
    let mount = KernelMount::mount_device(device.path(), &dir, &[]);
    let refused = run(extol().arg("mount").arg(&image.path).arg(scratch.dir("mnt")), LIMIT);
    assert_eq!(refused.code, Some(32), "{}", refused.output);
    assert!(refused.output.contains("backs /dev/loop"), "{}", refused.output);
    let checked = ask(&["check"], &image.path);
    assert_eq!(checked.code, Some(8), "{}", checked.output);
    assert!(checked.output.contains("is mounted at"), "{}", checked.output);
    mount.unmount();
    device.wait_until_unmounted();
    device.detach();
    ok(&["check"], &image.path);
}

#[test]
fn a_user_may_use_such_names() {
    let needs = [Need::Tool("setpriv"), Need::UserMounts, Need::User("nobody")];
    if !require(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (odd_image(&scratch, "image"), odd_dir(scratch.path(), "mnt"));
    let program = extol_copy(scratch.path());
    for path in [&image.path, &dir] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let as_user = |words: &[&OsStr]| {
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        run(command.args(words), LIMIT)
    };
    let (image, dir) = (image.path.as_os_str(), dir.as_os_str());
    for words in [
        &["mount".as_ref(), image, dir][..],
        &["sync".as_ref(), dir],
        &["remount".as_ref(), "-o".as_ref(), "commit=9".as_ref(), dir],
        &["umount".as_ref(), dir],
    ] {
        let done = as_user(words);
        assert!(done.success(), "{words:?}: {}", done.output);
    }
    assert_eq!(mounted_type(Path::new(dir)), None);
}
