//! Options of other programs that mount, as root and as an ordinary user; tags as sources; dead
//! mounts.

use extol_testkit::{
    Finished, Need, Rig, as_unprivileged, extol, extol_ok, mounted_type, require, run, run_extol,
    run_ok, text, tool,
};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const USER: [Need; 3] = [Need::Tool("setpriv"), Need::UserMounts, Need::User("nobody")];
const LIMIT: Duration = Duration::from_secs(60);

/// A volume and a directory that an ordinary user may mount; its root directory is root's.
struct User {
    rig: Rig,
    program: PathBuf,
}

impl std::ops::Deref for User {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl User {
    fn new() -> Self {
        let rig = Rig::with(&["-L", "extol options"]);
        let program = rig.give_away();
        Self { rig, program }
    }

    fn user(&self, words: &[&str]) -> Finished {
        run(as_unprivileged(&self.program).args(words), LIMIT)
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
        run(as_unprivileged(Path::new("/bin/sh")).args(["-c", script]).current_dir("/"), LIMIT)
    }
}

/// What libfuse's programs are given works for an ordinary user, in one list and word by word.
#[test]
fn a_user_may_give_what_fuse_takes() {
    if !require(&[&NEEDS[..], &USER].concat()) {
        return;
    }
    let rig = User::new();
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
    // One mistake, one code.
    for options in ["loop", "loop,offset=1m", "sizelimit=8m,loop"] {
        let done = rig.user_mount(options);
        assert_eq!(done.code, Some(1), "{options}: {}", done.output);
        let line = "need a loop device, which only root can make";
        assert!(done.output.replace("needs", "need").contains(line), "{options}: {}", done.output);
    }
    // FUSE does not let the helper in to mount over this one.
    assert!(rig.user_mount("rw").success());
    let other = rig.scratch.join("other.img");
    extol_ok(&["mkfs", "-q", text(&other), "16M"]);
    std::os::unix::fs::chown(&other, Some(65534), Some(65534)).expect("give it away");
    let done = rig.user(&["mount", text(&other), text(&rig.dir)]);
    let line = format!("{} is mounted there: unmount it first", rig.image.path.display());
    assert!(
        done.code == Some(32) && done.output.contains(&line),
        "{:?} {}",
        done.code,
        done.output
    );
    rig.user_umount();
}

/// Messages name what was typed.
#[test]
fn paths_are_told_as_typed() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::with(&["-O", "fast_commit"]);
    let above = rig.dir.parent().expect("a directory above");
    let name = rig.dir.file_name().expect("a name").display().to_string();
    let image = rig.image.path.strip_prefix(above).expect("the image beside").display().to_string();
    let here = |words: &[&str]| run(extol().args(words).current_dir(above), LIMIT);
    let said = |words: &[&str], start: &str| {
        let done = here(words);
        assert!(done.output.starts_with(&format!("extol: {start}")), "{words:?}: {}", done.output);
    };
    said(&["umount", &name], &format!("{name} is not a mount point"));
    said(
        &["mount", "-v", "-o", "data=journal,fast_commit", &image, &name],
        &format!("{image}: data=journal disables fast commits"),
    );
    let again = here(&["mount", &image, &name]);
    assert!(
        again.output.starts_with(&format!("extol: {image}: is mounted at ")),
        "{}",
        again.output
    );
    said(&["remount", "-o", "data=ordered", &name], &format!("{name}: "));
    let file = std::fs::File::create(rig.dir.join("file")).expect("a file");
    said(&["umount", &name], &format!("{name} is in use"));
    drop(file);
    said(&["umount", "-v", &name], &format!("{name} ("));
}

/// An image whose files are root's: with `fakeroot` its user may do everything, with `uid=` what
/// the shown owner may.
#[test]
fn a_user_has_the_rights_that_the_options_give() {
    if !require(&[&NEEDS[..], &USER].concat()) {
        return;
    }
    let rig = User::new();
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
    let rig = User::new();
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
    for (options, kind) in [
        ("offset=3m,sizelimit=32m", "fuse.extol"),
        ("offset=3m,sizelimit=32m,loop", "fuseblk.extol"),
    ] {
        extol_ok(&["mount", "-o", options, text(&whole), dir]);
        assert_eq!(mounted_type(&rig.dir).as_deref(), Some(kind));
        extol_ok(&["umount", dir]);
    }
}

/// A dead mount is told by `mount` and `stat`, with the way to get rid of it.
#[test]
fn a_dead_mount_is_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = User::new();
    let (image, dir) = (text(&rig.image.path), text(&rig.dir));
    extol_ok(&["mount", image, dir]);
    let daemon = rig.daemon();
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

/// In a mount namespace whose `fstab`, `fuse.conf` and helpers are the test's: the script runs as
/// root, with a shell function `user` for the ordinary one; `$dir` is the mount point.
fn in_namespace(rig: &User, fstab: &str, fuse_conf: &str, script: &str) -> Finished {
    let tools = rig.scratch.dir("bin");
    let helper = tools.join("mount.extol");
    let _ = std::os::unix::fs::symlink(&rig.program, helper);
    for (name, contents) in [("fstab", fstab), ("fuse.conf", fuse_conf)] {
        std::fs::write(rig.scratch.join(name), contents).unwrap();
    }
    let prelude = "cd \"$1\"; dir=$1/mnt; extol=$1/extol
        mount -t overlay -o lowerdir=bin:/usr/sbin none /usr/sbin
        mount --bind fstab /etc/fstab
        touch /etc/fuse.conf; mount --bind fuse.conf /etc/fuse.conf
        user() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }
        other() { setpriv --reuid=1 --regid=1 --clear-groups \"$@\"; }\n";
    let mut unshare = tool("unshare");
    unshare.args(["-m", "sh", "-ec", &format!("{prelude}{script}"), "sh"]);
    run(unshare.arg(rig.scratch.path()), LIMIT)
}

const NAMESPACE: [Need; 2] = [Need::Tool("unshare"), Need::Kernel("overlay")];

/// mount(8) finds the partition, and starts the helper as the ordinary user.
#[test]
fn a_user_mounts_a_partition_by_fstab() {
    let tools = [Need::Loop, Need::Tool("sfdisk"), Need::Tool("partx")];
    if !require(&[&NEEDS[..], &USER, &NAMESPACE, &tools].concat()) {
        return;
    }
    let rig = User::new();
    let disk = rig.scratch.join("disk.img");
    std::fs::File::create(&disk).and_then(|file| file.set_len(40 << 20)).unwrap();
    let uuid = format!("e8701000-0000-4000-8000-{:012x}", std::process::id());
    let table = format!("label: gpt\nstart=2048, size=65536, uuid={uuid}\n");
    std::fs::write(rig.scratch.join("table"), table).unwrap();
    let mut sfdisk = tool("sh");
    sfdisk.args(["-c", "PATH=$PATH:/usr/sbin:/sbin; sfdisk -q disk.img <table"]);
    run_ok(sfdisk.current_dir(rig.scratch.path()));
    let device = extol_testkit::LoopDevice::attach(&disk);
    run_ok(tool("partx").arg("-u").arg(device.path()));
    let part = PathBuf::from(format!("{}p1", text(device.path())));
    run_ok(tool("mke2fs").args(["-q", "-t", "ext4", "-E", "root_owner=65534:65534"]).arg(&part));
    std::os::unix::fs::chown(&part, Some(65534), Some(65534)).unwrap();
    let dir = text(&rig.dir);
    for (options, fits) in
        [("user,noauto", true), ("users,noauto,commit=9", true), ("noauto", false)]
    {
        let fstab = format!("PARTUUID={uuid} {dir} extol {options} 0 0\n");
        let script = "user mount \"$dir\"; grep \" $dir \" /proc/self/mountinfo
            user sh -c \"echo kept >$dir/file; cat $dir/file\"; user $extol umount \"$dir\"";
        let done = in_namespace(&rig, &fstab, "", script);
        assert_eq!(done.success(), fits, "{options}: {}", done.output);
        if fits {
            let shown = format!(" - fuse.extol {} rw,user_id=65534", text(&part));
            assert!(done.output.contains(&shown), "{options}: {}", done.output);
            assert!(done.output.ends_with("kept\n"), "{options}: {}", done.output);
        }
    }
    run_ok(tool("partx").arg("-d").arg(device.path()));
    device.detach();
}

/// `allow_root` of an ordinary user takes `user_allow_other` in fuse.conf; then root is let in, and
/// no other user.
#[test]
fn a_user_lets_root_in() {
    if !require(&[&NEEDS[..], &USER, &NAMESPACE].concat()) {
        return;
    }
    let rig = User::new();
    let script = "user $extol mount -o allow_root a.img \"$dir\"
        ls \"$dir\"; $extol stat \"$dir\" | head -1; $extol sync \"$dir\"
        $extol remount -o noatime \"$dir\"; grep \" $dir \" /proc/self/mountinfo
        other ls \"$dir\" 2>&1 && echo let in; other $extol stat \"$dir\" && echo let in
        user ls \"$dir\"; $extol umount \"$dir\"";
    let done = in_namespace(&rig, "", "user_allow_other\n", script);
    let dir = text(&rig.dir);
    assert!(done.success() && done.output.contains("lost+found"), "{}", done.output);
    assert!(done.output.contains(&format!("{dir}: read-write")), "{}", done.output);
    assert!(done.output.contains("noatime"), "{}", done.output);
    assert_eq!(done.output.matches("ermission denied").count(), 2, "{}", done.output);
    assert!(!done.output.contains("let in"), "{}", done.output);
    // Without: one line that names the file.
    let script = "user $extol mount -o allow_root a.img \"$dir\"";
    let done = in_namespace(&rig, "", "", script);
    assert_eq!((done.code, done.output.lines().count()), (Some(1), 1), "{}", done.output);
    assert!(done.output.contains("user_allow_other"), "{}", done.output);
}
