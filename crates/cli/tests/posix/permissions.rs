//! Who may do what: owners, groups, sticky and set-id bits, umask, ACLs.

use crate::compare;
use crate::transcript::Transcript;
use extol_testkit::{acl, as_user};
use rustix::fs::{Gid, Mode, OFlags, Uid, XattrFlags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const NONE: u32 = u32::MAX;

fn chmod(path: &Path, mode: u32) {
    rustix::fs::chmod(path, Mode::from_raw_mode(mode)).unwrap();
}

fn chown(path: &Path, uid: u32, gid: u32) {
    rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
}

fn look(t: &mut Transcript, path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    t.note(&name, path.symlink_metadata().map(|m| (format!("{:o}", m.mode()), m.uid(), m.gid())));
}

#[test]
fn ordinary_permissions() {
    compare(&["-t", "ext4"], |root, t| {
        chmod(root, 0o755);
        for mode in [0o600, 0o644, 0o060, 0o006, 0o444, 0o222, 0o000] {
            let path = root.join(format!("file{mode:o}"));
            std::fs::write(&path, b"x").unwrap();
            chmod(&path, mode);
            chown(&path, 1000, 2000);
            for (who, uid, gid, groups) in [
                ("owner", 1000, 1, &[][..]),
                ("group", 5, 2000, &[]),
                ("member", 5, 1, &[2000]),
                ("other", 5, 1, &[]),
            ] {
                as_user(uid, gid, groups, 0o022, || {
                    t.note(&format!("{who} reads {mode:o}"), File::open(&path).map(drop));
                    t.note(
                        &format!("{who} writes {mode:o}"),
                        File::options().write(true).open(&path).map(drop),
                    );
                    let chmod = rustix::fs::chmod(&path, Mode::from_raw_mode(mode));
                    t.note(&format!("{who} chmods"), chmod);
                    let chown = rustix::fs::chown(&path, None, Some(Gid::from_raw(2000)));
                    t.note(&format!("{who} chgrps"), chown);
                    t.note(
                        &format!("{who} gives away"),
                        rustix::fs::chown(&path, Some(Uid::from_raw(7)), None),
                    );
                    t.note(
                        &format!("{who} touches"),
                        File::open(&path).and_then(|f| f.set_modified(std::time::SystemTime::now())),
                    );
                });
            }
        }
        let dir = root.join("dir");
        std::fs::create_dir(&dir).unwrap();
        chown(&dir, 1000, 1000);
        std::fs::write(dir.join("file"), b"x").unwrap();
        for mode in [0o777, 0o755, 0o700, 0o711, 0o744, 0o722] {
            chmod(&dir, mode);
            as_user(5, 5, &[], 0o022, || {
                t.note(&format!("list {mode:o}"), dir.read_dir().map(|d| d.count()));
                t.note("look inside", dir.join("file").metadata().map(|m| m.len()));
                t.note("create", File::create_new(dir.join(format!("new{mode:o}"))).map(drop));
                t.note("remove", std::fs::remove_file(dir.join(format!("new{mode:o}"))));
            });
        }
    });
}

#[test]
fn sticky_and_set_id_bits() {
    compare(&["-t", "ext4"], |root, t| {
        chmod(root, 0o755);
        let tmp = root.join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        chmod(&tmp, 0o1777);
        as_user(1000, 1000, &[], 0o022, || std::fs::write(tmp.join("mine"), b"x").unwrap());
        as_user(1001, 1001, &[], 0o022, || {
            t.note("unlink a stranger's", std::fs::remove_file(tmp.join("mine")));
            t.note("rename a stranger's", std::fs::rename(tmp.join("mine"), tmp.join("yours")));
            std::fs::write(tmp.join("other"), b"x").unwrap();
            t.note("replace a stranger's", std::fs::rename(tmp.join("other"), tmp.join("mine")));
        });
        as_user(1000, 1000, &[], 0o022, || {
            t.note("unlink one's own", std::fs::remove_file(tmp.join("mine")))
        });

        // A set-group directory hands its group down, and to directories the bit as well.
        let shared = root.join("shared");
        std::fs::create_dir(&shared).unwrap();
        chown(&shared, 0, 3000);
        chmod(&shared, 0o2777);
        as_user(1000, 1000, &[], 0o022, || {
            std::fs::write(shared.join("file"), b"x").unwrap();
            std::fs::create_dir(shared.join("dir")).unwrap();
            std::os::unix::fs::symlink("x", shared.join("link")).unwrap();
            let tool = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::open(shared.join("tool"), tool, Mode::from_raw_mode(0o2775)).unwrap();
        });
        for name in ["file", "dir", "link", "tool"] {
            look(t, &shared.join(name));
        }

        // Writing and giving away take set-id bits off; root's hand too takes them off on chown.
        for (name, mode) in [("suid", 0o4755), ("sgid", 0o2755), ("sgid-noexec", 0o2745), ("both", 0o6777)] {
            let path = root.join(name);
            std::fs::write(&path, b"x").unwrap();
            chown(&path, 1000, 1000);
            chmod(&path, mode);
            as_user(1000, 1000, &[], 0o022, || {
                let mut file = File::options().append(true).open(&path).unwrap();
                t.note("write", file.write(b"y"));
                t.note("sync", file.sync_all());
            });
            look(t, &path);
            chmod(&path, mode);
            as_user(1000, 1000, &[], 0o022, || t.note("truncate", File::create(&path).map(drop)));
            look(t, &path);
            chmod(&path, mode);
            chown(&path, 1001, 1001);
            look(t, &path);
            chmod(&path, mode);
            as_user(1001, 77, &[78], 0o022, || {
                t.note(
                    "set-group without being in the group",
                    rustix::fs::chmod(&path, Mode::from_raw_mode(0o2755)),
                );
            });
            look(t, &path);
        }
    });
}

#[test]
fn umask_and_inherited_acls() {
    compare(&["-t", "ext4"], |root, t| {
        chmod(root, 0o777);
        for umask in [0o000, 0o022, 0o077, 0o137] {
            as_user(1000, 1000, &[], umask, || {
                let mode = Mode::from_raw_mode(0o666);
                let flags = OFlags::CREATE | OFlags::WRONLY;
                rustix::fs::open(root.join(format!("file{umask:o}")), flags, mode).unwrap();
                rustix::fs::mkdir(root.join(format!("dir{umask:o}")), Mode::from_raw_mode(0o777)).unwrap();
            });
            look(t, &root.join(format!("file{umask:o}")));
            look(t, &root.join(format!("dir{umask:o}")));
        }
        // With a default ACL the umask does not count.
        let dir = root.join("acl");
        std::fs::create_dir(&dir).unwrap();
        chmod(&dir, 0o777);
        let default = acl(&[(1, 7, NONE), (2, 6, 1234), (4, 5, NONE), (16, 7, NONE), (32, 4, NONE)]);
        rustix::fs::setxattr(&dir, "system.posix_acl_default", &default, XattrFlags::empty()).unwrap();
        as_user(1000, 1000, &[], 0o077, || {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            rustix::fs::open(dir.join("file"), flags, Mode::from_raw_mode(0o664)).unwrap();
            rustix::fs::mkdir(dir.join("dir"), Mode::from_raw_mode(0o755)).unwrap();
            rustix::fs::mknodat(
                rustix::fs::CWD,
                dir.join("fifo"),
                rustix::fs::FileType::Fifo,
                Mode::from_raw_mode(0o640),
                0,
            )
            .unwrap();
            std::os::unix::fs::symlink("x", dir.join("link")).unwrap();
        });
        for name in ["file", "dir", "fifo", "link"] {
            look(t, &dir.join(name));
            for attribute in ["system.posix_acl_access", "system.posix_acl_default"] {
                let mut value = vec![0; 4096];
                let got = rustix::fs::lgetxattr(dir.join(name), attribute, &mut value[..]);
                t.note(attribute, got.map(|n| value[..n].to_vec()));
            }
        }
    });
}

#[test]
fn acls_decide_and_follow_the_mode() {
    compare(&["-t", "ext4"], |root, t| {
        chmod(root, 0o755);
        let path = root.join("file");
        std::fs::write(&path, b"x").unwrap();
        chown(&path, 1000, 1000);
        let rules = [
            (1, 6, NONE),
            (2, 4, 1001),
            (2, 0, 1002),
            (4, 4, NONE),
            (8, 6, 2001),
            (16, 6, NONE),
            (32, 0, NONE),
        ];
        let set =
            |value: &[u8]| rustix::fs::setxattr(&path, "system.posix_acl_access", value, XattrFlags::empty());
        let get = || {
            let mut value = vec![0; 4096];
            rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..])
                .map(|n| value[..n].to_vec())
        };
        t.note("set", set(&acl(&rules)));
        look(t, &path);
        let attempts = |t: &mut Transcript| {
            for (uid, gid) in [(1000, 1), (1001, 1), (1002, 1), (5, 2001), (5, 1000), (5, 5)] {
                as_user(uid, gid, &[], 0o022, || {
                    t.note(&format!("{uid}/{gid} reads"), File::open(&path).map(drop));
                    t.note(&format!("{uid}/{gid} writes"), File::options().write(true).open(&path).map(drop));
                });
            }
        };
        attempts(t);
        // chmod changes the mask, not the group's entry.
        chmod(&path, 0o640);
        t.note("after chmod", get());
        attempts(t);
        // An ACL that says no more than the mode is stored as the mode alone.
        t.note("set minimal", set(&acl(&[(1, 7, NONE), (4, 5, NONE), (32, 1, NONE)])));
        look(t, &path);
        t.note("get", get());
        t.note("garbage", set(b"nonsense"));
        t.note("without owner", set(&acl(&[(4, 5, NONE), (32, 1, NONE)])));
        t.note("without mask", set(&acl(&[(1, 7, NONE), (2, 7, 5), (4, 5, NONE), (32, 1, NONE)])));
        t.note(
            "default on a file",
            rustix::fs::setxattr(&path, "system.posix_acl_default", &acl(&rules), XattrFlags::empty()),
        );
        as_user(5, 5, &[], 0o022, || t.note("by a stranger", set(&acl(&rules))));
        t.note("set again", set(&acl(&rules)));
        t.note("remove", rustix::fs::removexattr(&path, "system.posix_acl_access"));
        t.note("remove again", rustix::fs::removexattr(&path, "system.posix_acl_access"));
        look(t, &path);
        let mut many = vec![(1u16, 7u16, NONE), (4, 5, NONE), (16, 7, NONE), (32, 1, NONE)];
        many.extend((0..400).map(|n| (2, 5, 10_000 + n)));
        many.sort();
        t.note("more than fits", set(&acl(&many)));
        let mode = path.metadata().unwrap().permissions().mode();
        t.value("mode", format!("{mode:o}"));
    });
}
