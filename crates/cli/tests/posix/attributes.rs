//! Extended attributes, chattr flags, and times.

use crate::compare;
use crate::transcript::Transcript;
use extol_testkit::as_user;
use rustix::fs::{AtFlags, CWD, IFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn list(path: &Path) -> rustix::io::Result<BTreeSet<String>> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names)?;
    let text = String::from_utf8_lossy(&names[..len]).into_owned();
    Ok(text.split('\0').filter(|n| !n.is_empty()).map(str::to_owned).collect())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 65536];
    let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

#[test]
fn extended_attributes() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-I", "128", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data"],
    ] {
        compare(args, |root, t| {
            let file = root.join("file");
            std::fs::write(&file, b"some contents").unwrap();
            let set = |name: &str, value: &[u8], flags: XattrFlags| {
                rustix::fs::lsetxattr(&file, name, value, flags)
            };
            let any = XattrFlags::empty();
            t.note("none yet", list(&file));
            t.note("get missing", get(&file, "user.x"));
            t.note("create", set("user.x", b"1", XattrFlags::CREATE));
            t.note("create again", set("user.x", b"2", XattrFlags::CREATE));
            t.note("replace", set("user.x", b"three", XattrFlags::REPLACE));
            t.note("replace missing", set("user.y", b"2", XattrFlags::REPLACE));
            t.note("empty value", set("user.empty", b"", any));
            t.note("trusted", set("trusted.t", b"t", any));
            t.note("security", set("security.test", b"s", any));
            t.note("unknown class", set("nonsense.x", b"s", any));
            t.note("no class", set("plain", b"s", any));
            t.note("empty name", set("user.", b"s", any));
            t.note("get", get(&file, "user.x"));
            t.note("into a short buffer", rustix::fs::lgetxattr(&file, "user.x", &mut [0u8; 3][..]));
            t.note("size", rustix::fs::lgetxattr_query(&file, "user.x"));
            t.note("list into a short buffer", rustix::fs::llistxattr(&file, &mut [0u8; 3][..]));
            t.note("list", list(&file));
            for len in [200, 249, 250, 251] {
                t.note(&format!("name of {len}"), set(&format!("user.{}", "n".repeat(len)), b"", any));
            }
            t.note("list", list(&file));
            // Growing values move from the inode into a block, and then no longer fit.
            for len in [10, 40, 100, 200, 500, 800, 1000, 2000, 3000, 4000, 5000, 65_536, 65_537] {
                t.note(&format!("value of {len}"), set("user.grow", &vec![7; len], any));
                t.value("got", get(&file, "user.grow").map(|v| v.len()));
            }
            t.note("shrink", set("user.grow", b"small", any));
            for n in 0..40 {
                t.note(&format!("many {n}"), set(&format!("user.many{n}"), &[n; 30], any));
            }
            t.note("list", list(&file));
            for n in (0..40).step_by(2) {
                t.note(&format!("remove {n}"), rustix::fs::lremovexattr(&file, format!("user.many{n}")));
            }
            t.note("remove missing", rustix::fs::lremovexattr(&file, "user.missing"));
            t.note("list", list(&file));
            t.note("contents", std::fs::read_to_string(&file));
            t.value("space", {
                File::open(&file).unwrap().sync_all().unwrap();
                file.metadata().unwrap().blocks()
            });

            let link = root.join("link");
            std::os::unix::fs::symlink("x", &link).unwrap();
            t.note("user on a link", rustix::fs::lsetxattr(&link, "user.x", b"1", any));
            t.note("trusted on a link", rustix::fs::lsetxattr(&link, "trusted.x", b"1", any));
            t.note("list of a link", list(&link));
            rustix::fs::chmod(root, Mode::from_raw_mode(0o777)).unwrap();
            as_user(1000, 1000, &[], 0o022, || {
                t.note("list as a user", list(&file));
                t.note("trusted as a user", get(&file, "trusted.t"));
                t.note("user of a stranger", get(&file, "user.x"));
                t.note("set on a stranger's", rustix::fs::lsetxattr(&file, "user.x", b"1", any));
                std::fs::write(root.join("own"), b"").unwrap();
                t.note("set on one's own", rustix::fs::lsetxattr(root.join("own"), "user.x", b"1", any));
            });
        });
    }
}

/// The flag of files mapped by extents: it must be handed back as it was read.
const EXTENTS: IFlags = IFlags::from_bits_retain(0x80000);

fn set_flags(path: &Path, flags: IFlags) -> rustix::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?;
    rustix::fs::ioctl_setflags(&file, flags)
}

fn get_flags(path: &Path) -> rustix::io::Result<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?;
    rustix::fs::ioctl_getflags(&file).map(|f| format!("{:#x}", f.bits()))
}

#[test]
fn immutable_and_append_only() {
    compare(&["-t", "ext4"], |root, t| {
        for (name, flag) in [("immutable", IFlags::IMMUTABLE), ("append", IFlags::APPEND)] {
            let dir = root.join(name);
            std::fs::create_dir(&dir).unwrap();
            let file = dir.join("file");
            std::fs::write(&file, b"before").unwrap();
            std::fs::write(root.join("other"), b"x").unwrap();
            t.note("flags", get_flags(&file));
            t.note("set", set_flags(&file, flag | EXTENTS));
            t.note("flags", get_flags(&file));
            t.note("open to write", File::options().write(true).open(&file).map(drop));
            t.note(
                "open to append",
                File::options().append(true).open(&file).and_then(|mut f| f.write(b"+")),
            );
            t.note("open to truncate", File::create(&file).map(drop));
            t.note(
                "truncate",
                rustix::fs::open(&file, OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC, Mode::empty())
                    .map(drop),
            );
            t.note("unlink", std::fs::remove_file(&file));
            t.note("rename", std::fs::rename(&file, root.join("away")));
            t.note("replace", std::fs::rename(root.join("other"), &file));
            t.note("link", std::fs::hard_link(&file, root.join("link")));
            t.note("chmod", rustix::fs::chmod(&file, Mode::from_raw_mode(0o600)));
            t.note("chown", rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(1)), None));
            t.note("setxattr", rustix::fs::setxattr(&file, "user.x", b"1", XattrFlags::empty()));
            t.note("fsync", File::open(&file).and_then(|f| f.sync_all()));
            for nanos in [rustix::fs::UTIME_NOW, 5] {
                let time = Timespec { tv_sec: 5, tv_nsec: nanos };
                let both = Timestamps { last_access: time, last_modification: time };
                t.note("touch", rustix::fs::utimensat(CWD, &file, &both, AtFlags::empty()));
            }
            t.note("read", std::fs::read_to_string(&file));
            t.note("set on the directory", set_flags(&dir, flag | EXTENTS));
            t.note("create inside", std::fs::write(dir.join("new"), b"x"));
            t.note("mkdir inside", std::fs::create_dir(dir.join("newdir")));
            t.note("unlink inside", std::fs::remove_file(dir.join("new")));
            t.note("rmdir inside", std::fs::remove_dir(dir.join("newdir")));
            t.note("rename inside", std::fs::rename(dir.join("new"), dir.join("newer")));
            t.note("rmdir itself", std::fs::remove_dir(&dir));
            t.note("rename itself", std::fs::rename(&dir, root.join("moved")));
            as_user(1000, 1000, &[], 0o022, || t.note("clear as a user", set_flags(&file, EXTENTS)));
            t.note("clear", set_flags(&file, EXTENTS));
            t.note("clear the directory", set_flags(&dir, EXTENTS));
            t.note("clean up", std::fs::remove_dir_all(&dir));
        }
    });
}

#[test]
fn other_flags() {
    compare(&["-t", "ext4"], |root, t| {
        let (file, dir) = (root.join("file"), root.join("dir"));
        std::fs::write(&file, b"x").unwrap();
        std::fs::create_dir(&dir).unwrap();
        let keep = EXTENTS;
        for flag in [
            IFlags::NODUMP,
            IFlags::NOATIME,
            IFlags::SYNC,
            IFlags::DIRSYNC,
            IFlags::TOPDIR,
            IFlags::UNRM,
            IFlags::COMPRESSED,
        ] {
            for path in [&file, &dir] {
                t.note(&format!("set {flag:?}"), set_flags(path, flag | keep));
                t.note("flags", get_flags(path));
            }
        }
        // Children of a directory inherit some of its flags.
        t.note("set", set_flags(&dir, IFlags::NODUMP | IFlags::NOATIME | IFlags::DIRSYNC | keep));
        std::fs::write(dir.join("file"), b"x").unwrap();
        std::fs::create_dir(dir.join("dir")).unwrap();
        for path in [dir.join("file"), dir.join("dir"), file.clone()] {
            t.note("inherited", get_flags(&path));
        }
        rustix::fs::chmod(&file, Mode::from_raw_mode(0o666)).unwrap();
        as_user(1000, 1000, &[], 0o022, || {
            t.note("set by a stranger", set_flags(&file, IFlags::NODUMP | keep))
        });
    });
}

/// Which of the three times of each name a change moved.
fn changed(t: &mut Transcript, what: &str, paths: &[&Path], change: impl FnOnce()) {
    let times = |path: &&Path| {
        let m = path.symlink_metadata().ok()?;
        Some([(m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())])
    };
    // Times come from the kernel's tick; a step of 20 ms is longer than any.
    let before: Vec<_> = paths.iter().map(times).collect();
    std::thread::sleep(std::time::Duration::from_millis(20));
    change();
    let moved: Vec<String> = paths
        .iter()
        .zip(before)
        .map(|(path, before)| {
            let word = match (before, times(path)) {
                (Some([m, c]), Some([m2, c2])) => {
                    format!("{}{}", if m == m2 { "" } else { "m" }, if c == c2 { "" } else { "c" })
                }
                (b, a) => format!("{}->{}", b.is_some(), a.is_some()),
            };
            format!("{} {word}", path.file_name().unwrap_or_default().display())
        })
        .collect();
    t.value(what, moved);
}

#[test]
fn which_times_move() {
    compare(&["-t", "ext4"], |root, t| {
        let dir = root.join("d");
        let (file, other, link) = (dir.join("file"), dir.join("other"), dir.join("link"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&file, b"contents").unwrap();
        let all: [&Path; 4] = [&dir, &file, &other, &link];
        let handle = File::options().read(true).write(true).open(&file).unwrap();
        changed(t, "write", &all, || handle.write_all_at(b"x", 0).unwrap());
        changed(t, "fsync", &all, || handle.sync_all().unwrap());
        changed(t, "read", &all, || drop(std::fs::read(&file).unwrap()));
        changed(t, "truncate to another size", &all, || handle.set_len(100).unwrap());
        changed(t, "truncate to the same size", &all, || handle.set_len(100).unwrap());
        changed(t, "chmod", &all, || rustix::fs::chmod(&file, Mode::from_raw_mode(0o600)).unwrap());
        changed(t, "chown", &all, || {
            rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(3)), None).unwrap()
        });
        changed(t, "link", &all, || std::fs::hard_link(&file, &link).unwrap());
        changed(t, "unlink", &all, || std::fs::remove_file(&link).unwrap());
        changed(t, "rename", &all, || std::fs::rename(&file, &other).unwrap());
        changed(t, "setxattr", &all, || {
            rustix::fs::setxattr(&other, "user.x", b"1", XattrFlags::empty()).unwrap()
        });
        changed(t, "removexattr", &all, || rustix::fs::removexattr(&other, "user.x").unwrap());
        changed(t, "create", &all, || drop(File::create(&file).unwrap()));
        changed(t, "truncating open", &all, || drop(File::create(&other).unwrap()));
        changed(t, "truncating open of an empty file", &all, || drop(File::create(&file).unwrap()));
        changed(t, "mkdir", &all, || std::fs::create_dir(dir.join("sub")).unwrap());
        changed(t, "rmdir", &all, || std::fs::remove_dir(dir.join("sub")).unwrap());
        changed(t, "symlink", &all, || std::os::unix::fs::symlink("x", &link).unwrap());
        changed(t, "exchange", &all, || {
            rustix::fs::renameat_with(CWD, &file, CWD, &other, rustix::fs::RenameFlags::EXCHANGE).unwrap();
        });
        changed(t, "fallocate", &all, || {
            rustix::fs::fallocate(&handle, rustix::fs::FallocateFlags::empty(), 0, 10_000).unwrap();
        });
        changed(t, "set times", &all, || handle.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap());
        changed(t, "flags", &all, || set_flags(&dir, IFlags::NODUMP | EXTENTS).unwrap());
    });
}

#[test]
fn times_from_1901_to_2446() {
    {
        // Directories: of files, a FUSE mount with write-back caching shows the times that were set, unchanged.
        compare(&["-t", "ext4"], |root, t| {
            let path = root.join("dir");
            std::fs::create_dir(&path).unwrap();
            let edges = [
                -(1i64 << 31) - 1,
                -(1 << 31),
                -1,
                0,
                (1 << 31) - 1,
                1 << 31,
                (1 << 32) - 1,
                1 << 32,
                3 << 32,
                15_032_385_535,
                15_032_385_536,
                1 << 40,
            ];
            for seconds in edges {
                for nanos in [0, 1, 999_999_999] {
                    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
                    let both = Timestamps { last_access: time, last_modification: time };
                    t.note(
                        &format!("set {seconds}.{nanos}"),
                        rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()),
                    );
                    let m = path.metadata().unwrap();
                    t.value("got", (m.mtime(), m.mtime_nsec(), m.atime(), m.atime_nsec()));
                }
            }
            let invalid = Timespec { tv_sec: 1, tv_nsec: 1_000_000_000 };
            let both = Timestamps { last_access: invalid, last_modification: invalid };
            t.note("invalid", rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty()));
        });
    }
}
