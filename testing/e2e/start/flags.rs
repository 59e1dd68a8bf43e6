//! Set-user-id programs and device files on a mount work only where they were asked for.

use crate::{NEEDS, Rig, as_unprivileged, extol_path, run_extol, text};
use extol_testkit::{Need, mounted_type, require, run_ok, tool};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What an ordinary user gets out of a mount: root's identity, and a device.
fn gains(dir: &Path) -> (bool, bool) {
    let id = as_unprivileged(&dir.join("id")).arg("-u").output().expect("run");
    let read = as_unprivileged(Path::new("/bin/head"))
        .args(["-c1"])
        .arg(dir.join("zero"))
        .output()
        .expect("run");
    (String::from_utf8_lossy(&id.stdout).trim() == "0", read.status.success())
}

/// A volume that makes an ordinary user root, if the mount lets it.
fn hostile() -> Rig {
    let rig = Rig::new();
    rig.mount(&[]);
    std::fs::copy("/usr/bin/id", rig.dir.join("id")).unwrap();
    std::fs::set_permissions(rig.dir.join("id"), PermissionsExt::from_mode(0o4755)).unwrap();
    run_ok(tool("mknod").args(["-m", "666"]).arg(rig.dir.join("zero")).args(["c", "1", "5"]));
    assert!(rig.unmount(&[]).success());
    let _ = rig.open_to_all();
    rig
}

/// However it is mounted: by the command, by mount helpers, by a remount.
#[test]
fn nosuid_and_nodev_are_the_default() {
    let needs = [Need::Tool("setpriv"), Need::Tool("mknod"), Need::User("nobody")];
    if !require(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let rig = hostile();
    let (image, dir) = (text(&rig.image.path), text(&rig.dir));
    for (options, expected) in [
        ("rw", (false, false)),
        ("defaults", (false, false)),
        ("suid", (true, false)),
        ("dev", (false, true)),
        ("suid,dev", (true, true)),
        ("allow_suid,allow_dev", (true, true)),
        ("suid,dev,owner", (false, false)),
        ("user,exec", (false, false)),
        ("user,suid,dev,exec", (true, true)),
    ] {
        rig.mount(&["-o", options]);
        assert_eq!(gains(&rig.dir), expected, "-o {options}");
        assert!(rig.unmount(&[]).success());
    }

    let (tools, helper) = (rig.scratch.dir("bin"), rig.scratch.dir("bin").join("mount.fuse.extol"));
    std::os::unix::fs::symlink(extol_path(), &helper).unwrap();
    std::os::unix::fs::symlink(extol_path(), tools.join("extol")).unwrap();
    // What mount(8) hands over for `defaults`, for `user` and for `owner`.
    for (options, expected) in [
        ("rw", (false, false)),
        ("rw,noexec,nosuid,nodev,user", (false, false)),
        ("rw,nosuid,nodev", (false, false)),
        ("rw,allow_suid", (true, false)),
    ] {
        run_ok(Command::new(&helper).args([image, dir, "-o", options]));
        assert_eq!(gains(&rig.dir), expected, "the helper with {options}");
        assert!(rig.unmount(&[]).success());
    }
    if require(&[Need::Tool("mount.fuse3")]) {
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        for (options, expected) in [("rw", (false, false)), ("suid,dev", (true, true))] {
            let mut mount = tool("mount.fuse3");
            mount.env("PATH", &path).args([&format!("extol#{image}"), dir, "-o", options]);
            run_ok(&mut mount);
            assert_eq!(mounted_type(&rig.dir).as_deref(), Some("fuse.extol"));
            assert_eq!(gains(&rig.dir), expected, "mount.fuse3 with {options}");
            assert!(rig.unmount(&[]).success());
        }
    }

    rig.mount(&[]);
    for (options, expected) in [
        ("commit=7", (false, false)),
        ("suid,dev", (true, true)),
        ("owner", (false, false)),
        ("allow_suid", (true, false)),
        ("user", (false, false)),
    ] {
        let done = run_extol(&["remount", "-o", options, dir]);
        assert!(done.success(), "{}", done.output);
        assert_eq!(gains(&rig.dir), expected, "remounted with {options}");
    }
    assert!(rig.unmount(&[]).success());
}

/// From fstab, by mount(8): with a helper of its own, and with `mount.fuse3`.
#[test]
fn mount_8_has_the_same_default() {
    let needs = [Need::Kernel("overlay"), Need::Tool("unshare"), Need::Tool("mount.fuse3")];
    if !require(&[&NEEDS[..], &needs].concat()) {
        return;
    }
    let rig = Rig::new();
    let fstab = rig.scratch.join("fstab");
    for (helper, name) in [("mount.fuse.extol", "own"), ("extol", "fuse3")] {
        let tools = rig.scratch.dir(name);
        std::os::unix::fs::symlink(extol_path(), tools.join(helper)).unwrap();
        for (options, expected) in [
            ("defaults", "nosuid,nodev"),
            ("noatime,suid,dev", "nosuid,nodev"),
            ("user", "nosuid,nodev,noexec"),
            ("user,exec", "nosuid,nodev"),
            ("owner", "nosuid,nodev"),
            ("allow_suid,allow_dev", ""),
        ] {
            let (image, dir) = (text(&rig.image.path), text(&rig.dir));
            let line = format!("{image} {dir} fuse.extol {options},noauto 0 0\n");
            std::fs::write(&fstab, line).unwrap();
            // In a namespace of its own, where programs of the system may be added.
            let script = "mount -t overlay -o lowerdir=\"$1\":/usr/sbin none /usr/sbin; mount -T \
                          \"$2\" \"$3\"; grep \" $3 \" /proc/self/mountinfo; \"$0\" umount \"$3\"";
            let mut mount = tool("unshare");
            mount
                .args(["-m", "sh", "-ec", script])
                .arg(extol_path())
                .args([&tools, &fstab, &rig.dir]);
            let shown = run_ok(&mut mount);
            let flags: Vec<_> =
                shown.split(' ').nth(5).expect("a line of mountinfo").split(',').collect();
            for flag in ["nosuid", "nodev", "noexec"] {
                let wanted = expected.split(',').any(|word| word == flag);
                assert_eq!(flags.contains(&flag), wanted, "{helper} with {options}: {shown}");
            }
        }
    }
}
