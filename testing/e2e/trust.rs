//! What a process gets from a mount that the kernel would not have given it: inode flags,
//! append-only files, control of the volume.
//!
//! The attackers are those that the kernel lets reach the daemon: ordinary users, root behind a
//! read-only bind mount, root without capabilities, root of another user namespace (a process of
//! its own: this test binary again, see [`in_namespace`]).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extol_testkit::{
    ExtolMount, Finished, Image, KernelMount, MountRequest, Need, Scratch, as_user, e2fsck, extol,
    extol_path, raw_ioctl, raw_ioctl_shared, require, run, tool, unmount, without_capabilities,
};
use rustix::fs::{IFlags, OFlags};
use rustix::mount::{MountFlags, mount_bind, mount_remount};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);
const MODES: [&str; 2] = ["writeback_cache", "nowriteback_cache"];

const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_32: u32 = 0x4004_6602;
const FSSETXATTR: u32 = 0x401c_5820;
const EXTENTS: u32 = 0x8_0000;
const IMMUTABLE: u32 = 0x10;

/// A mount that all users may enter.
struct Rig {
    scratch: Scratch,
    image: Image,
    mount: ExtolMount,
}

fn rig(options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let options = [&["allow_other"], options].concat();
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &options);
    Rig { scratch, image, mount }
}

impl Rig {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    fn end(self) {
        self.mount.unmount();
        e2fsck(&self.image).assert_clean("at the end");
    }
}

/// A file of a user, with these bytes.
fn file_of(path: &Path, uid: u32, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
}

fn flags(path: &Path) -> IFlags {
    rustix::fs::ioctl_getflags(File::open(path).unwrap()).unwrap()
}

fn set_flags(path: &Path, flags: IFlags) {
    rustix::fs::ioctl_setflags(File::open(path).unwrap(), flags).unwrap();
}

/// The number of an error; 0: none.
fn code<T>(result: std::io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

/// Tries to make a file immutable in every way that there is.
fn make_immutable(path: &Path) -> [i32; 3] {
    let file = File::open(path).unwrap();
    let flags = EXTENTS | IMMUTABLE;
    let mut xattr = [0; 28];
    xattr[0] = 8;
    [
        code(raw_ioctl(&file, SETFLAGS_32, &mut flags.to_ne_bytes())),
        code(raw_ioctl(&file, SETFLAGS, &mut u64::from(flags).to_ne_bytes())),
        code(raw_ioctl(&file, FSSETXATTR, &mut xattr)),
    ]
}

/// Tries to control the volume, in every way that there is.
fn control(dir: &Path) -> Vec<i32> {
    let root = File::open(dir).unwrap();
    let send = |request: MountRequest| code(request.send(&root));
    let ask = |name: &str| {
        let mut answer = [0; 4096];
        rustix::fs::getxattr(dir, name, &mut answer[..]).map_or_else(|e| e.raw_os_error(), |_| 0)
    };
    let mut range = [0xff; 24];
    vec![
        send(MountRequest::Checkpoint(2)),
        send(MountRequest::Freeze),
        send(MountRequest::Thaw),
        ask("user.extol.remount:commit=77"),
        ask("user.extol.freeze"),
        ask("user.extol.checkpoint:2"),
        code(raw_ioctl(&root, 0xc018_5879, &mut range)),
        code(raw_ioctl(&root, 0x4100_9432, &mut [0; 256])),
        send(MountRequest::Shutdown(2)),
        ask("user.extol.shutdown:2"),
    ]
}

const PERM: i32 = 1;
const NODATA: i32 = 61;

/// All of [`control`] was refused, and so was what the kernel checks.
#[track_caller]
fn assert_powerless(dir: &Path, what: &str) {
    assert_eq!(control(dir), [PERM; 10], "{what}");
    for name in
        ["trusted.extol.freeze", "trusted.extol.shutdown:2", "trusted.extol.remount:commit=77"]
    {
        let mut answer = [0; 4096];
        let refused = rustix::fs::getxattr(dir, name, &mut answer[..]).unwrap_err();
        assert_eq!(refused.raw_os_error(), NODATA, "{what}: {name}");
    }
    // Looking and syncing stay open to all.
    for command in ["stat", "sync"] {
        let done = run(extol().arg(command).arg(dir), LIMIT);
        assert!(done.success(), "{what}: {command}: {}", done.output);
    }
}

/// Runs the test `name` of this binary as root of a user namespace of its own, with a directory to
/// work on.
fn in_namespace(name: &str, dir: &Path) -> Finished {
    let exe = std::env::current_exe().unwrap();
    let mut command = tool("unshare");
    command
        .arg("-Ur")
        .arg(exe)
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("EXTOL_TRUST_DIR", dir);
    run(&mut command, LIMIT)
}

fn given_dir() -> Option<PathBuf> {
    std::env::var_os("EXTOL_TRUST_DIR").map(PathBuf::from)
}

#[test]
#[ignore = "a part of flags_need_what_the_kernel_checks"]
fn make_immutable_in_namespace() {
    let Some(dir) = given_dir() else { return };
    for name in ["victim", "own", "."] {
        let [native, long, extended] = make_immutable(&dir.join(name));
        assert!(native != 0 && long != 0 && extended != 0, "{name}: {native} {long} {extended}");
    }
}

#[test]
#[ignore = "a part of control_needs_rights_over_the_mount"]
fn control_in_namespace() {
    let Some(dir) = given_dir() else { return };
    assert_powerless(&dir, "root of another user namespace");
}

/// FS_IOC32_SETFLAGS of a process reaches the daemon unchecked, from each process that can open a
/// file for reading.
#[test]
fn flags_need_what_the_kernel_checks() {
    if !require(&[&NEEDS[..], &[Need::Tool("unshare")]].concat()) {
        return;
    }
    let rig = rig(&[]);
    let dir = rig.mount.path().to_owned();
    file_of(&rig.path("victim"), 1000, b"a victim's");
    file_of(&rig.path("own"), 0, b"root's");
    let intact = |what: &str| {
        for name in ["victim", "own", "."] {
            assert!(!flags(&rig.path(name)).contains(IFlags::IMMUTABLE), "{what}: {name}");
        }
    };
    let names = ["victim", "own", "."].map(|name| rig.path(name));
    for (what, uid) in [("a stranger", 2000), ("the owner", 1000)] {
        as_user(uid, uid, &[], 0o22, || {
            for path in &names {
                assert!(!make_immutable(path).contains(&0), "{what}: {}", path.display());
            }
        });
        intact(what);
    }
    without_capabilities(|| {
        names.iter().for_each(|path| assert!(!make_immutable(path).contains(&0)))
    });
    intact("root without capabilities");
    let done = in_namespace("make_immutable_in_namespace", &dir);
    assert!(done.success() && done.output.contains("1 passed"), "{}", done.output);
    intact("root of another user namespace");

    let bind = rig.scratch.dir("bind");
    mount_bind(&dir, &bind).unwrap();
    mount_remount(&bind, MountFlags::BIND | MountFlags::RDONLY, c"").unwrap();
    let through = ["victim", "own", "."].map(|name| make_immutable(&bind.join(name)));
    unmount(&bind);
    assert!(!through.concat().contains(&0), "{through:?}");
    intact("a read-only bind mount");

    // The owner may; the flag is there and is taken off again.
    set_flags(&rig.path("victim"), IFlags::from_bits_retain(EXTENTS) | IFlags::IMMUTABLE);
    assert!(flags(&rig.path("victim")).contains(IFlags::IMMUTABLE));
    set_flags(&rig.path("victim"), IFlags::from_bits_retain(EXTENTS));
    as_user(1000, 1000, &[], 0o22, || {
        set_flags(&names[0], IFlags::from_bits_retain(EXTENTS) | IFlags::NODUMP);
    });
    rig.end();
}

/// Some kernels pass on what a process said if the answer to their own request is EOPNOTSUPP, read
/// from its memory again. An owner without the right to set `i` has a flag that is not supported
/// there first.
#[test]
fn flags_that_change_under_the_kernel_are_refused() {
    if !require(&NEEDS) {
        return;
    }
    let rig = rig(&[]);
    let path = rig.path("own");
    file_of(&path, 1000, b"x");
    let argument = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let set = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                argument.store(u64::from(EXTENTS | 0x80_0000), Ordering::Relaxed);
                argument.store(u64::from(EXTENTS | IMMUTABLE), Ordering::Relaxed);
            }
        });
        let tries = || {
            let file = File::open(&path).unwrap();
            (0..1000).any(|_| {
                let _ = raw_ioctl_shared(&file, SETFLAGS, &argument);
                flags(&path).contains(IFlags::IMMUTABLE)
            })
        };
        let set = as_user(1000, 1000, &[], 0o22, tries);
        stop.store(true, Ordering::Relaxed);
        set
    });
    assert!(!set, "an owner without CAP_LINUX_IMMUTABLE has set +i");
    rig.end();
}

/// Data that the kernel's cache accepted before a file got a flag is written; what comes later is
/// refused where the kernel asks.
#[test]
fn accepted_data_outlives_flags_set_later() {
    if !require(&NEEDS) {
        return;
    }
    for mode in MODES {
        let rig = rig(&[mode]);
        for (name, flag) in [("immutable", IFlags::IMMUTABLE), ("append", IFlags::APPEND)] {
            let path = rig.path(name);
            file_of(&path, 1000, &[1; 10_000]);
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let body = vec![7; 1 << 20];
            file.write_all_at(&body, 0).unwrap();
            set_flags(&path, IFlags::from_bits_retain(EXTENTS) | flag);
            assert_eq!(code(file.sync_all()), 0, "{mode}, {name}");
            let refused = file.write_at(b"later", 0);
            if mode == "nowriteback_cache" {
                assert_eq!(code(refused), PERM, "{name}");
            }
            drop(file);
            std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                bytes.len() == body.len() && bytes[5..] == body[5..],
                "{mode}, {name}: data is lost"
            );
        }
        let Rig { mount, image, scratch: _scratch } = rig;
        mount.unmount();
        e2fsck(&image).assert_clean(mode);
    }
}

/// O_APPEND, which the open of an append-only file insists on, can be switched off later: the place
/// of each write decides.
#[test]
fn append_only_files_are_only_appended_to() {
    if !require(&NEEDS) {
        return;
    }
    for mode in MODES {
        let rig = rig(&[mode]);
        let path = rig.path("log");
        file_of(&path, 1000, b"0123456789");
        set_flags(&path, IFlags::from_bits_retain(EXTENTS) | IFlags::APPEND);
        let overwrite = || {
            let file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
            let _ = rustix::fs::fcntl_setfl(&file, OFlags::empty());
            assert_eq!(code(file.write_at(b"evil", 0)), PERM, "{mode}");
            assert_eq!(code(file.write_at(b"evil", 9)), PERM, "{mode}: the last byte");
            assert_eq!(code(file.set_len(0)), PERM, "{mode}");
            let punch =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            let punched =
                rustix::fs::fallocate(&file, punch, 0, 4096).map_err(std::io::Error::from);
            assert_eq!(code(punched), PERM, "{mode}");
            let owned = file.try_clone().unwrap().into();
            assert!(
                extol_testkit::map_write(&owned, 0, b"evil").is_err(),
                "{mode}: a writable mapping"
            );
            rustix::fs::fcntl_setfl(&file, OFlags::APPEND).unwrap();
            assert_eq!(code((&file).write_all_at_end(b"-more")), 0, "{mode}");
            assert_eq!(code(file.sync_all()), 0, "{mode}");
        };
        as_user(1000, 1000, &[], 0o22, overwrite);
        as_user(0, 0, &[], 0o22, overwrite);
        let direct =
            OpenOptions::new().append(true).custom_flags(libc_direct()).open(&path).unwrap();
        let _ = rustix::fs::fcntl_setfl(&direct, OFlags::DIRECT);
        assert_ne!(code(direct.write_at(&[0; 4096], 0)), 0, "{mode}: O_DIRECT");
        std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789-more-more", "{mode}");
        drop(direct);
        rig.end();
    }
}

fn libc_direct() -> i32 {
    OFlags::DIRECT.bits().cast_signed()
}

trait AppendAll {
    fn write_all_at_end(self, bytes: &[u8]) -> std::io::Result<()>;
}

impl AppendAll for &File {
    fn write_all_at_end(mut self, bytes: &[u8]) -> std::io::Result<()> {
        std::io::Write::write_all(&mut self, bytes)
    }
}

/// Root without capabilities and root of another user namespace, with a bind mount, control
/// nothing. Root does.
#[test]
fn control_needs_rights_over_the_mount() {
    if !require(&[&NEEDS[..], &[Need::Tool("unshare"), Need::Tool("setpriv")]].concat()) {
        return;
    }
    let rig = rig(&[]);
    let bind = rig.scratch.dir("bind");
    mount_bind(rig.mount.path(), &bind).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        without_capabilities(|| assert_powerless(&bind, "root without capabilities"));
        as_user(1000, 1000, &[], 0o22, || assert_powerless(&bind, "an ordinary user"));
        let done = in_namespace("control_in_namespace", &bind);
        assert!(done.success() && done.output.contains("1 passed"), "{}", done.output);
        for command in [
            &["freeze"][..],
            &["checkpoint", "--zeroout"],
            &["thaw"],
            &["remount", "-o", "commit=77"],
        ] {
            let mut bare = tool("setpriv");
            bare.args(["--bounding-set=-all", "--inh-caps=-all"])
                .arg(extol_path())
                .args(command)
                .arg(&bind);
            let done = run(&mut bare, LIMIT);
            assert!(
                !done.success() && done.output.trim().lines().count() == 1,
                "{command:?}: {}",
                done.output
            );
        }
    }));
    unmount(&bind);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    std::fs::write(rig.path("alive"), "yes").unwrap();
    let stats = run(extol().args(["stat", "--json"]).arg(rig.mount.path()), LIMIT).output;
    assert!(!stats.contains("commit=77"), "{stats}");
    for command in
        [&["checkpoint", "--zeroout"][..], &["freeze"], &["thaw"], &["remount", "-o", "commit=77"]]
    {
        let done = run(extol().args(command).arg(rig.mount.path()), LIMIT);
        assert!(done.success(), "{command:?}: {}", done.output);
    }
    let root = File::open(rig.mount.path()).unwrap();
    for request in [MountRequest::Checkpoint(0), MountRequest::Freeze, MountRequest::Thaw] {
        assert_eq!(code(request.send(&root)), 0, "{request:?}, as a program sends it");
    }
    drop(root);
    rig.end();
}

/// Names of `trusted.` attributes are for CAP_SYS_ADMIN, as on Linux.
#[test]
fn trusted_names_are_not_told() {
    if !require(&NEEDS) {
        return;
    }
    let rig = rig(&[]);
    let path = rig.path("file");
    file_of(&path, 1000, b"x");
    rustix::fs::setxattr(&path, "trusted.secret", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.open", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let names = || {
        let mut list = [0; 100];
        let len = rustix::fs::listxattr(&path, &mut list[..]).unwrap();
        String::from_utf8_lossy(&list[..len]).replace('\0', " ")
    };
    assert_eq!(names(), "trusted.secret user.open ");
    assert_eq!(without_capabilities(names), "user.open ");
    assert_eq!(as_user(1000, 1000, &[], 0o22, names), "user.open ");
    rig.end();
}

/// The user of the mount controls the volume, but not from another user namespace.
#[test]
fn the_mounter_controls_the_mount() {
    if !require(
        &[&NEEDS[..], &[Need::UserMounts, Need::Tool("unshare"), Need::Tool("setpriv")]].concat(),
    ) {
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    for path in [&image.path, &dir] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
    }
    let user = |words: &[&str]| {
        let mut command = tool("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=-all"]);
        command.args(words);
        run(&mut command, LIMIT)
    };
    let (extol, at) = (extol_path().to_str().unwrap(), dir.to_str().unwrap());
    let mounted = user(&[extol, "mount", image.path.to_str().unwrap(), at]);
    assert!(mounted.success(), "{}", mounted.output);
    let outcome = std::panic::catch_unwind(|| {
        for command in
            [&["checkpoint"][..], &["freeze"], &["thaw"], &["remount", "-o", "commit=77"]]
        {
            let done = user(&[&[extol], command, &[at]].concat());
            assert!(done.success(), "{command:?}: {}", done.output);
            let done = user(&[&["unshare", "-Ur", extol], command, &[at]].concat());
            assert!(!done.success(), "{command:?} from another user namespace: {}", done.output);
        }
    });
    let down = user(&[extol, "umount", at]);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    assert!(down.success(), "{}", down.output);
    e2fsck(&image).assert_clean("at the end");
}

/// The process that writes decides whether reserved blocks are used, not the owner of the file.
#[test]
fn reserved_blocks_are_for_the_writing_user() {
    if !require(&[&NEEDS[..], &[Need::Loop, Need::Kernel("ext4")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let args = ["-t", "ext4", "-m", "25", "-b", "4096", "-O", "^has_journal"];
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &args);
    let copy = image.copy_as("linux.img");
    let fill = |dir: &Path| {
        let path = dir.join("roots");
        std::fs::write(&path, b"").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        file_of(&dir.join("users"), 1000, b"");
        let append = |path: &Path| -> (u64, i32) {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let mut at = 0;
            let ended = loop {
                match file.write_at(&[7; 64 << 10], at) {
                    Ok(n) => at += n as u64,
                    Err(error) => break error.raw_os_error().unwrap(),
                }
            };
            (at, ended)
        };
        let (by_user, ended) = as_user(1000, 1000, &[], 0o22, || append(&path));
        assert_eq!(ended, 28);
        let space = rustix::fs::statvfs(dir).unwrap();
        let kept = space.f_bfree;
        let made =
            as_user(1000, 1000, &[], 0o22, || code(std::fs::create_dir(dir.join("users-dir"))));
        // Root, into a file of the user.
        let (by_root, ended) = append(&dir.join("users"));
        assert_eq!(ended, 28);
        (by_user, kept, made, by_root)
    };
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let dir = scratch.dir("mnt");
    let linux = KernelMount::mount(&copy, &dir, &[]);
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let (their_user, their_kept, _, their_root) = fill(&dir);
    linux.unmount();
    let ours = ExtolMount::start(&image.path, &dir, &["allow_other", "nowriteback_cache"]);
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    let (by_user, kept, made, by_root) = fill(&dir);
    println!(
        "user {by_user} (Linux {their_user}), kept {kept} ({their_kept}), root {by_root} \
            ({their_root})"
    );
    assert!(kept >= 2000, "a quarter of 8192 blocks is root's: {kept} are free");
    assert_eq!(made, 28, "a directory needs a block");
    assert!(by_root >= 2000 << 12, "root has got {by_root} bytes of them");
    ours.unmount();
    e2fsck(&image).assert_clean("at the end");
}
