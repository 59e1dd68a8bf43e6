//! Options of other programs that mount, as root and as an ordinary user; tags as sources; dead
//! mounts.

use extol_testkit::{
    Finished, Image, Need, Scratch, extol_ok, extol_path, mounted_type, require, run, run_extol,
    run_ok, text, tool,
};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const USER: [Need; 3] = [Need::Tool("setpriv"), Need::UserMounts, Need::User("nobody")];
const LIMIT: Duration = Duration::from_secs(60);

/// A volume and a directory that an ordinary user may mount; its root directory is root's.
struct Rig {
    scratch: Scratch,
    image: Image,
    dir: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let scratch = Scratch::new();
        let args = &["-t", "ext4", "-L", "extol options"];
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, args);
        let dir = scratch.dir("mnt");
        std::fs::copy(extol_path(), scratch.join("extol")).unwrap();
        std::fs::set_permissions(scratch.join("extol"), PermissionsExt::from_mode(0o755)).unwrap();
        for path in [&image.path, &dir] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
        Self { scratch, image, dir }
    }

    fn as_user(&self, program: &Path) -> Command {
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    }

    fn user(&self, words: &[&str]) -> Finished {
        run(self.as_user(&self.scratch.join("extol")).args(words), LIMIT)
    }

    fn user_mount(&self, options: &str) -> Finished {
        self.user(&["mount", "-o", options, text(&self.image.path), text(&self.dir)])
    }

    #[track_caller]
    fn user_umount(&self) {
        let done = self.user(&["umount", text(&self.dir)]);
        assert!(done.success(), "{}", done.output);
    }

    fn sh(&self, script: &str) -> Finished {
        run(self.as_user(Path::new("/bin/sh")).args(["-c", script]).current_dir("/"), LIMIT)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if mounted_type(&self.dir).is_some() {
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

/// What libfuse's programs are given works for an ordinary user, in one list and word by word.
#[test]
fn a_user_may_give_what_fuse_takes() {
    if !require(&[&NEEDS[..], &USER].concat()) {
        return;
    }
    let rig = Rig::new();
    for options in [
        "relatime,nodiratime",
        "strictatime",
        "lazytime",
        "noatime,sync,dirsync,noexec",
        "default_permissions,kernel_cache,big_writes,auto_cache,fsname=x,subtype=y,nonempty",
        "rw,user=nobody,_netdev,nofail,x-systemd.automount,comment=a",
    ] {
        let done = rig.user_mount(options);
        assert!(done.success() && done.output.is_empty(), "{options}: {}", done.output);
        assert_eq!(mounted_type(&rig.dir).as_deref(), Some("fuse.extol"), "{options}");
        rig.user_umount();
    }
    let done = rig.user_mount("nosymfollow");
    assert_eq!((done.code, done.output.lines().count()), (Some(0), 1), "{}", done.output);
    assert!(done.output.contains("nosymfollow has no effect"), "{}", done.output);
    rig.user_umount();
    let done = rig.user_mount("noatme");
    assert!(done.output.contains("did you mean \"noatime\"?"), "{}", done.output);
    assert_eq!(done.code, Some(1));
}

/// An image whose files are root's: with `fakeroot` its user may do everything, with `uid=` what
/// the shown owner may.
#[test]
fn a_user_has_the_rights_that_the_options_give() {
    if !require(&[&NEEDS[..], &USER].concat()) {
        return;
    }
    let rig = Rig::new();
    let dir = text(&rig.dir);
    assert!(rig.user_mount("rw").success());
    assert!(!rig.sh(&format!("echo x > {dir}/file")).success(), "the root directory is root's");
    rig.user_umount();

    assert!(rig.user_mount("fakeroot").success());
    let done = rig.sh(&format!(
        "echo x > {dir}/file && chown 0:0 {dir}/file && chmod 600 {dir}/file && cat {dir}/file"
    ));
    assert!(done.success() && done.output == "x\n", "{}", done.output);
    rig.user_umount();

    assert!(rig.user_mount("uid=65534,gid=65534,umask=027").success());
    let done = rig.sh(&format!("stat -c %u:%g:%a {dir} {dir}/file && cat {dir}/file"));
    let shown = "65534:65534:750\n65534:65534:750\nx\n";
    assert!(done.success() && done.output == shown, "{}", done.output);
    rig.user_umount();

    // The volume has kept its own.
    extol_ok(&["mount", text(&rig.image.path), dir]);
    let meta = std::fs::metadata(rig.dir.join("file")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (0, 0, 0o600));
    extol_ok(&["umount", dir]);
    // With allow_root, a mount of root is root's.
    extol_ok(&["mount", "-o", "allow_root", text(&rig.image.path), dir]);
    assert!(!rig.sh(&format!("ls {dir}")).success());
    assert!(std::fs::read_dir(&rig.dir).is_ok());
    extol_ok(&["umount", dir]);
}

/// A volume is found by its label and its UUID, and a part of an image is mounted by its offset.
#[test]
fn tags_and_parts_of_images() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let rig = Rig::new();
    let dir = text(&rig.dir);
    let device = extol_testkit::LoopDevice::attach(&rig.image.path);
    extol_ok(&["mount", "LABEL=extol options", dir]);
    extol_ok(&["umount", dir]);
    device.detach();
    let done = run_extol(&["mount", "LABEL=extol options", dir]);
    assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);

    let whole = rig.scratch.join("whole.img");
    run_ok(
        tool("dd")
            .arg(format!("if={}", text(&rig.image.path)))
            .arg(format!("of={}", text(&whole)))
            .args(["bs=1M", "seek=3", "conv=sparse"]),
    );
    extol_ok(&["mount", "-o", "offset=3m,sizelimit=32m", text(&whole), dir]);
    assert_eq!(mounted_type(&rig.dir).as_deref(), Some("fuseblk.extol"));
    extol_ok(&["umount", dir]);
}

/// A dead mount is told by `mount` and `stat`, with the way to get rid of it.
#[test]
fn a_dead_mount_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    let (image, dir) = (text(&rig.image.path), text(&rig.dir));
    extol_ok(&["mount", image, dir]);
    let mut number = [0; 32];
    let len = rustix::fs::getxattr(&rig.dir, "user.extol.daemon", &mut number[..]).unwrap();
    let number = std::str::from_utf8(&number[..len]).unwrap().parse().unwrap();
    let daemon = rustix::process::Pid::from_raw(number).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    while std::fs::metadata(&rig.dir).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    for words in [&["mount", image, dir][..], &["stat", dir], &["sync", dir]] {
        let done = run_extol(words);
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        let way = format!("extol umount {dir}");
        assert!(done.output.contains("has died") && done.output.contains(&way), "{}", done.output);
    }
    let done = run_extol(&["umount", dir]);
    assert!(done.success() && done.output.contains("had died"), "{}", done.output);
    extol_ok(&["mount", image, dir]);
    extol_ok(&["umount", dir]);
}
