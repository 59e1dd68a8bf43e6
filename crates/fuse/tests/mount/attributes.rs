//! Attributes, rights and extended attributes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use extol_fuse::{DAEMON_XATTR, STATS_XATTR};
use rustix::fs::{AtFlags, CWD, XattrFlags};

use super::{as_ordinary_user, mount, over_io_uring};

#[test]
fn attributes_and_times() {
    let Some(mut m) = mount() else { return };
    let path = m.path("f");
    fs::write(&path, "abc").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let stat = |path: &Path| fs::metadata(path).unwrap();
    assert_eq!((stat(&path).mode(), stat(&path).uid(), stat(&path).gid()), (0o100_640, 12, 34));
    for (sec, nsec) in [(0, 0), (-2, 800_000_000), (1 << 33, 5), (i64::MIN, 0), (i64::MAX, 0)] {
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec },
            last_modification: rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        assert_eq!((stat(&path).mtime(), stat(&path).mtime_nsec()), (sec, nsec));
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        assert_eq!((stat(&path).mtime(), stat(&path).atime_nsec()), (sec, nsec));
    }
    assert!(stat(&path).created().is_ok());
    let statfs = rustix::fs::statvfs(m.dir.path()).unwrap();
    assert_eq!(
        (statfs.f_blocks, statfs.f_bfree, statfs.f_bavail, statfs.f_files),
        (1000, 700, 600, 500)
    );
    m.unmount();
}

#[test]
fn the_mask_reaches_the_file_system() {
    let Some(mut m) = mount() else { return };
    as_ordinary_user(&format!(
        "umask 027; cd {}; touch f; mkdir d; mkfifo p",
        m.dir.path().display()
    ));
    for (name, perm) in [("f", 0o640), ("d", 0o750), ("p", 0o640)] {
        let stat = fs::metadata(m.path(name)).unwrap();
        assert_eq!((stat.mode() & 0o7777, stat.uid()), (perm, 65534), "{name}");
    }
    m.unmount();
}

#[test]
fn permissions_are_checked() {
    let Some(mut m) = mount() else { return };
    fs::write(m.path("secret"), "x").unwrap();
    fs::set_permissions(m.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = as_ordinary_user(&format!("cat {}", m.path("secret").display()));
    assert!(said.contains("Permission denied"), "{said}");
    m.unmount();
}

#[test]
fn set_id_bits_go_when_they_must() {
    let Some(mut m) = mount() else { return };
    let path = m.path("prog");
    let perm = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let reset = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, "x").unwrap();
    let shown = path.display();
    for script in [
        format!("echo y >> {shown}"),
        format!("dd if=/dev/zero of={shown} bs=4k count=1 oflag=direct conv=notrunc 2>&1"),
        format!("truncate -s 1 {shown}"),
        format!(": > {shown}"),
        format!("fallocate -l 9000 {shown}"),
    ] {
        reset();
        assert_eq!(perm(), 0o6777);
        let said = as_ordinary_user(&script);
        assert_eq!(perm(), 0o777, "{script}: {said}");
    }
    // Root keeps them on writing, and loses them on chown as every user does.
    reset();
    File::options().append(true).open(&path).unwrap().write_all(b"z").unwrap();
    assert_eq!(perm(), 0o6777);
    std::os::unix::fs::chown(&path, Some(5), None).unwrap();
    assert_eq!(perm(), 0o777);
    m.unmount();
}

#[test]
fn extended_attributes() {
    let Some(mut m) = mount() else { return };
    let path = m.path("f");
    fs::write(&path, "").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.a", b"one", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"two", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    assert_eq!(set("user.b", b"two", XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
    set("user.a", b"three", XattrFlags::REPLACE).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
    let mut small = [0; 3];
    assert_eq!(
        rustix::fs::getxattr(&path, "user.a", &mut small[..]),
        Err(rustix::io::Errno::RANGE)
    );
    let mut room = [0; 30];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room[..]), Ok(5));
    assert_eq!(&room[..5], b"three");
    assert_eq!(rustix::fs::listxattr(&path, &mut room[..]), Ok(7));
    assert_eq!(&room[..7], b"user.a\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(rustix::io::Errno::NODATA));

    let mut text = [0; 500];
    let len = rustix::fs::getxattr(m.dir.path(), STATS_XATTR, &mut text[..]).unwrap();
    let stats = std::str::from_utf8(&text[..len]).unwrap();
    let fuse = stats.strip_prefix("{\"handles\":0,\"fuse\":{\"transport\":\"").expect(stats);
    let requests =
        fuse.strip_prefix(if over_io_uring() { "io_uring" } else { "device" }).expect(stats);
    assert!(requests.starts_with("\",\"requests\":{\"lookup\":"), "{stats}");
    assert!(stats.contains("\"removexattr\":2"), "{stats}");
    let len = rustix::fs::getxattr(m.dir.path(), DAEMON_XATTR, &mut text[..]).unwrap();
    assert_eq!(std::str::from_utf8(&text[..len]).unwrap(), std::process::id().to_string());
    assert_eq!(rustix::fs::listxattr(m.dir.path(), &mut text[..]), Ok(0));
    assert_eq!(
        rustix::fs::getxattr(&path, STATS_XATTR, &mut text[..]),
        Err(rustix::io::Errno::NODATA)
    );
    assert!(rustix::fs::setxattr(m.dir.path(), STATS_XATTR, b"", XattrFlags::empty()).is_err());
    m.unmount();
}

#[test]
fn flags_and_project_ids() {
    let Some(mut m) = mount() else { return };
    fs::write(m.path("f"), "").unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).arg(m.path("f")).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("chattr", &["+d"]);
    run("chattr", &["-p", "77"]);
    let listed = run("lsattr", &["-p", "-v"]);
    let fields: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(fields[0], "77");
    assert!(fields[2].contains('d'), "{listed}");
    m.unmount();
}
