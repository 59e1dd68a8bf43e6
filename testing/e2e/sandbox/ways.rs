//! The ways to mount.

use super::*;

const AS_USER: [Need; 3] = [Need::Tool("setpriv"), Need::User("nobody"), Need::UserMounts];
const UNPRIVILEGED: u32 = 65534;

/// `extol …` as another user, which cannot reach the program where it was built.
struct Unprivileged {
    program: PathBuf,
}

impl Unprivileged {
    fn new(scratch: &Scratch) -> Self {
        Self { program: extol_copy(scratch.path()) }
    }

    fn command(&self, program: &str) -> Command {
        as_unprivileged(Path::new(program))
    }

    fn extol(&self) -> Command {
        self.command(text(&self.program))
    }
}

fn give(path: &Path) {
    let (uid, gid) =
        (rustix::fs::Uid::from_raw(UNPRIVILEGED), rustix::fs::Gid::from_raw(UNPRIVILEGED));
    rustix::fs::chown(path, Some(uid), Some(gid)).unwrap();
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples")
}

/// An ordinary user's daemon has no_new_privs and needs a set-user-id program to unmount.
#[test]
fn an_ordinary_users_mount_is_unmounted_by_a_signal() {
    if !require(&[&NEEDS[..], &AS_USER].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, user) = (scratch.dir("mnt"), Unprivileged::new(&scratch));
    let options = ["-t", "ext4", "-E", "root_owner=65534:65534"];
    // It has to hold the program.
    let size = 2 * user.program.metadata().unwrap().len().next_multiple_of(16 << 20);
    let image = Image::mke2fs(scratch.path(), "a.img", size, &options);
    give(&image.path);
    give(&dir);
    let mounted = || {
        let mut command = user.extol();
        command.args(["mount", "-f"]).arg(&image.path).arg(&dir);
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        mount.wait_until_started();
        mount
    };
    let mount = mounted();
    let sh = |script: &str| run_ok(user.command("sh").args(["-c", script]).current_dir("/"));
    let shown = sh(&format!("{} stat --all {}", user.program.display(), dir.display()));
    assert!(
        shown.contains("no capabilities, no groups, no_new_privs, seccomp, Landlock"),
        "{shown}"
    );
    sh(&format!("cp {} {1}/copy && cmp {0} {1}/copy", user.program.display(), dir.display()));
    assert_confined(mount.pid().unwrap(), 0);
    // Not for others of the same user either.
    let environ = format!("/proc/{}/environ", mount.pid().unwrap());
    assert_eq!(std::fs::metadata(&environ).unwrap().uid(), 0);
    assert!(!run(user.command("cat").arg(&environ), LIMIT).success());
    mount.terminate(Signal::TERM);
    e2fsck(&image).assert_clean("after SIGTERM");

    // While it is in use.
    let mount = mounted();
    let pid = mount.pid().unwrap();
    let script = format!("exec 3<{}/copy; read line", dir.display());
    let mut user = user.command("sh");
    let mut user = user
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("a user of the mount");
    let fd = format!("/proc/{}/fd/3", user.id());
    wait_until("the open file", || {
        std::fs::read_link(&fd).is_ok_and(|path| path.ends_with("copy"))
    });
    signal(pid, Signal::TERM);
    wait_until("the mount to be out of sight", || mounted_type(&dir).is_none());
    assert!(is_running(pid));
    drop(user.stdin.take());
    user.wait().unwrap();
    mount.ended();
    e2fsck(&image).assert_clean("after SIGTERM in use");
}

/// A mount that was made by a process with the right to, and is served by one without any.
#[test]
fn an_unprivileged_daemon_serves_what_another_has_mounted() {
    if !require(&[&NEEDS[..], &AS_USER].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir, user) = (image(&scratch), scratch.dir("mnt"), Unprivileged::new(&scratch));
    give(&image.path);
    let ways = transports().iter().flat_map(|transport| [(transport, false), (transport, true)]);
    for (transport, by_path) in ways {
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let number = device.as_raw_fd();
        let data = format!(
            "fd={number},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
        );
        let data = std::ffi::CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("extol", &dir, "fuse.extol", flags, data.as_c_str()).unwrap();
        rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
        let mut command = user.extol();
        command.args(["mount", "-f", "-v", "-o", transport]);
        if by_path {
            command.arg(&image.path).arg(format!("/dev/fd/{number}"));
        } else {
            command.arg(format!("--fd={number}")).arg(&image.path);
        }
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        // Now only the daemon has it.
        drop(device);
        let shown = extol_ok(&["stat", "--all", text(&dir)]);
        assert!(shown.contains(&comes_over(transport)), "{}\n{shown}", mount.log());
        load(&dir);
        assert_confined(mount.pid().unwrap(), 0);
        assert_eq!(children(mount.pid().unwrap()), []);
        if by_path {
            // It cannot unmount: it closes the volume, and the mount stays without a daemon.
            let pid = mount.pid().unwrap();
            signal(pid, Signal::TERM);
            wait_until("the daemon's end", || !is_running(pid));
            drop(mount);
        } else {
            mount.unmount();
        }
        e2fsck(&image).assert_clean("after --fd");
    }
    for bad in ["--fd=1", "--fd=99", "--fd=-1"] {
        let done = run_extol(&["mount", "-f", bad, text(&image.path)]);
        assert!(
            done.code == Some(1) && done.output.trim().lines().count() == 1,
            "{bad} {}",
            done.output
        );
    }
    let done = run_extol(&["mount", "-f", text(&image.path), "/dev/fd/x"]);
    assert_eq!(done.code, Some(1), "{}", done.output);
}

/// `mount.fuse3` opens and mounts the device, drops its rights, and starts `extol IMAGE /dev/fd/N`.
#[test]
fn mount_fuse3_drops_privileges() {
    if !require(&[&NEEDS[..], &[Need::Tool("mount.fuse3")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let source = format!("{}#{}", extol_path().display(), image.path.display());
    let options = "drop_privileges,allow_other,default_permissions,nosuid,nodev";
    let done = run(tool("mount.fuse3").arg(&source).arg(&dir).args(["-o", options]), LIMIT);
    assert!(done.success(), "{}", done.output);
    wait_until("the root", || dir.join("lost+found").is_dir());
    let (pid, _) = processes(&dir);
    load(&dir);
    assert_confined(pid, 0);
    extol_ok(&["umount", text(&dir)]);
    wait_until("the daemon's end", || !is_running(pid));
    e2fsck(&image).assert_clean("after mount.fuse3");
}

#[test]
fn in_a_user_namespace() {
    if !require(&[&NEEDS[..], &AS_USER, &[Need::Tool("unshare")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, user) = (image(&scratch), Unprivileged::new(&scratch));
    give(&image.path);
    let script = scratch.join("extol-in-user-namespace.sh");
    std::fs::copy(examples().join("extol-in-user-namespace.sh"), &script).unwrap();
    let within = |work: &str| {
        let mut command = user.command("sh");
        command.arg(&script).arg(&image.path).args(["sh", "-c", work]).env("EXTOL", &user.program);
        run(command.env("TMPDIR", scratch.dir("tmp")), LIMIT)
    };
    give(&scratch.dir("tmp"));
    let probe = run(user.command("unshare").args(["-Urm", "true"]), LIMIT);
    if !probe.success() {
        println!("SKIP: ordinary users may not make user namespaces here");
        return;
    }
    let done = within("echo hello >$MNT/a && \"$EXTOL\" stat --all $MNT | grep ^sandbox");
    assert!(
        done.success() && done.output.contains("no_new_privs, seccomp, Landlock"),
        "{}",
        done.output
    );
    let done = within("cat $MNT/a; exit 7");
    assert!(
        done.output.contains("hello") && done.code == Some(7),
        "{:?} {}",
        done.code,
        done.output
    );
    e2fsck(&image).assert_clean("after a user namespace");
}

#[test]
fn the_unit_is_well_formed_and_hardened() {
    if !require(&[Need::Tool("systemd-analyze")]) {
        return;
    }
    let scratch = Scratch::new();
    let text = std::fs::read_to_string(examples().join("extol-mount@.service")).unwrap();
    // Programs that are not installed here would be found missing.
    let text = text.replace("/usr/local/bin/extol", self::text(extol_path()));
    let unit = scratch.join("extol-mount@test.service");
    std::fs::write(&unit, &text).unwrap();
    let verified = run(tool("systemd-analyze").args(["verify", "--man=no"]).arg(&unit), LIMIT);
    assert!(verified.success() && verified.output.trim().is_empty(), "{}", verified.output);
    let done = run(
        tool("systemd-analyze").args(["security", "--offline=true", "--threshold=50"]).arg(&unit),
        LIMIT,
    );
    assert!(done.success(), "{}", done.output);
}
