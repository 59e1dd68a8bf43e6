//! Permissions: owners, groups, sticky and set-id bits, umask, ACLs.

use extol_testkit::acl;
use rustix::fs::{FallocateFlags, FileType, OFlags};

use super::{ANY, Case, EXT4, LAYOUTS, PLAIN, RW, by, case, chmod, chown, mkdir, owner, put};
use crate::Transcript;
use crate::posix::{Caller, Fd, Posix, Time};

pub(super) const CASES: &[Case] = &[
    case("ordinary permissions", EXT4, ordinary),
    case("search permission", EXT4, search),
    case("sticky directories", EXT4, sticky),
    case("set-group directories", LAYOUTS, set_group),
    case("set-id bits go", EXT4, set_id),
    case("set-id bits go by the hand of others", EXT4, set_id_by_others),
    case("file capabilities go", EXT4, capabilities),
    case("chown", EXT4, chowns),
    case("umask", EXT4, umask),
    case("inherited ACLs", LAYOUTS, inherited_acls),
    case("ACLs decide and follow the mode", &["ext4", "small"], acls),
];

const NONE: u32 = u32::MAX;

fn ordinary(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o755);
    for mode in [0o600, 0o644, 0o060, 0o006, 0o444, 0o222, 0o111, 0o000] {
        let path = format!("file{mode:o}");
        let path = path.as_str();
        put(fs, path, b"x");
        chmod(fs, path, mode);
        chown(fs, path, 1000, 2000);
        for (caller, uid, gid, groups) in [
            ("root", 0, 0, &[][..]),
            ("owner", 1000, 1, &[]),
            ("group", 5, 2000, &[]),
            ("member", 5, 1, &[2000]),
            ("other", 5, 1, &[]),
        ] {
            let id = Caller { uid, gid, groups: groups.to_vec(), umask: 0o022 };
            fs.as_user(&id, &mut |fs| {
                t.note(&format!("{caller} reads {mode:o}"), fs.try_open(path, OFlags::RDONLY, 0));
                t.note(&format!("{caller} writes {mode:o}"), fs.try_open(path, OFlags::WRONLY, 0));
                t.note("executes", fs.access(path, 1));
                t.note(&format!("{caller} chmods"), fs.chmod(path, mode));
                t.note(&format!("{caller} chgrps"), fs.chown(path, None, Some(2000)));
                t.note(&format!("{caller} touches"), fs.utimens(path, Time::Now, Time::Now));
                if uid != 0 {
                    t.note(&format!("{caller} gives away"), fs.chown(path, Some(7), None));
                }
            });
        }
    }
    mkdir(fs, "dir");
    chown(fs, "dir", 1000, 1000);
    put(fs, "dir/file", b"x");
    for mode in [0o777, 0o755, 0o700, 0o711, 0o744, 0o722] {
        chmod(fs, "dir", mode);
        by(fs, 5, 5, |fs| {
            let new = format!("dir/new{mode:o}");
            t.note(&format!("list {mode:o}"), fs.names("dir").map(|n| n.len()));
            t.note("look inside", fs.stat("dir/file").map(|s| s.size));
            t.note("create", fs.try_open(&new, OFlags::CREATE | OFlags::EXCL | RW, 0o644));
            t.note(
                "create an old one",
                fs.try_open("dir/file", OFlags::CREATE | OFlags::RDONLY, 0o644),
            );
            t.note("mkdir", fs.mkdir("dir/sub", 0o755));
            t.note("mkdir of an old one", fs.mkdir("dir/file", 0o755));
            t.note("rename", fs.rename(&new, "dir/renamed", PLAIN));
            t.note("remove", fs.unlink("dir/renamed"));
            t.note("remove nothing", fs.unlink("dir/nothing"));
            t.note("rmdir", fs.rmdir("dir/sub"));
            t.note("tmpfile", fs.try_open("dir", OFlags::TMPFILE | RW, 0o644));
        });
    }
}

fn search(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "a/b");
    put(fs, "a/b/file", b"x");
    chmod(fs, ".", 0o755);
    for (outer, inner) in
        [(0o755, 0o755), (0o644, 0o755), (0o755, 0o644), (0o711, 0o711), (0o000, 0o755)]
    {
        chmod(fs, "a", outer);
        chmod(fs, "a/b", inner);
        by(fs, 1000, 1000, |fs| {
            t.note(&format!("{outer:o} {inner:o} stat"), fs.stat("a/b/file").map(|s| s.size));
            t.note("missing", fs.stat("a/b/missing").map(drop));
            t.note("through a file", fs.stat("a/b/file/x").map(drop));
            t.note("dot dot", fs.stat("a/b/..").map(drop));
            t.note("open", fs.try_open("a/b/file", OFlags::RDONLY, 0));
            t.note("list", fs.names("a/b"));
            t.note("link", fs.link("a/b/file", "a/link"));
        });
    }
    // A directory that moves to another parent must be writable itself.
    chmod(fs, ".", 0o777);
    mkdir(fs, "to");
    chmod(fs, "to", 0o777);
    by(fs, 1000, 1000, |fs| {
        fs.mkdir("own", 0o555).unwrap();
        t.note("move a read-only directory", fs.rename("own", "to/own", PLAIN));
        t.note("rename it in place", fs.rename("own", "own2", PLAIN));
    });
}

fn sticky(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o755);
    mkdir(fs, "tmp");
    chmod(fs, "tmp", 0o1777);
    mkdir(fs, "tmp/others");
    by(fs, 1000, 1000, |fs| {
        put(fs, "tmp/mine", b"x");
        fs.mkdir("tmp/dir", 0o777).unwrap();
        fs.symlink("x", "tmp/link").unwrap();
    });
    by(fs, 1001, 1001, |fs| {
        for name in ["tmp/mine", "tmp/dir", "tmp/link", "tmp/others"] {
            t.note("unlink a stranger's", fs.unlink(name));
            t.note("rmdir a stranger's", fs.rmdir(name));
            t.note("rename a stranger's", fs.rename(name, "tmp/yours", PLAIN));
        }
        put(fs, "tmp/other", b"x");
        t.note("replace a stranger's", fs.rename("tmp/other", "tmp/mine", PLAIN));
        t.note("exchange", fs.rename("tmp/other", "tmp/mine", rustix::fs::RenameFlags::EXCHANGE));
        t.note("one's own", fs.rename("tmp/other", "tmp/other2", PLAIN));
    });
    by(fs, 1000, 1000, |fs| {
        t.note("unlink one's own", fs.unlink("tmp/mine"));
        t.note("rmdir one's own", fs.rmdir("tmp/dir"));
        t.note("rename one's own", fs.rename("tmp/link", "tmp/link2", PLAIN));
    });
    // The owner of the directory may.
    chown(fs, "tmp", 1002, 1002);
    by(fs, 1002, 1002, |fs| t.note("the directory's owner", fs.unlink("tmp/other2")));
    t.note("names", fs.names("tmp"));
    // All may set the sticky bit on a directory of theirs; on files it stays for owners.
    by(fs, 1000, 1000, |fs| t.note("chmod", fs.chmod("tmp/link2", 0o1777)));
    put(fs, "file", b"");
    chown(fs, "file", 1000, 1000);
    by(fs, 1000, 1000, |fs| t.note("sticky file", fs.chmod("file", 0o1644)));
    owner(t, fs, "file");
}

fn set_group(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o755);
    mkdir(fs, "shared");
    chown(fs, "shared", 0, 3000);
    chmod(fs, "shared", 0o2777);
    by(fs, 1000, 1000, |fs| {
        put(fs, "shared/file", b"x");
        fs.mkdir("shared/dir", 0o755).unwrap();
        fs.mkdir("shared/sgid", 0o2755).unwrap();
        fs.symlink("x", "shared/link").unwrap();
        fs.mknod("shared/fifo", FileType::Fifo, 0o644, (0, 0)).unwrap();
        fs.try_open("shared/tool", OFlags::CREATE | OFlags::WRONLY, 0o2775).unwrap();
        fs.try_open("shared/plain", OFlags::CREATE | OFlags::WRONLY, 0o2664).unwrap();
        let unnamed = fs.open("shared", OFlags::TMPFILE | RW, 0o2755).unwrap();
        t.note("unnamed", fs.fstat(unnamed).map(|s| (format!("{:o}", s.mode), s.gid)));
        fs.close(unnamed);
    });
    let member = Caller { uid: 1000, gid: 1000, groups: vec![3000], umask: 0o022 };
    fs.as_user(&member, &mut |fs| {
        fs.try_open("shared/member", OFlags::CREATE | OFlags::WRONLY, 0o2775).unwrap();
        t.note("chmod", fs.chmod("shared/member", 0o2775));
    });
    for name in ["file", "dir", "sgid", "link", "fifo", "tool", "plain", "member"] {
        owner(t, fs, &format!("shared/{name}"));
    }
    // Moving in changes nothing.
    put(fs, "outside", b"");
    t.note("move in", fs.rename("outside", "shared/moved", PLAIN));
    owner(t, fs, "shared/moved");
}

/// Writing and giving away take set-id bits off; root's hand too takes them off on chown.
fn set_id(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o777);
    for (path, mode) in
        [("suid", 0o4755), ("sgid", 0o2755), ("sgid-noexec", 0o2745), ("both", 0o6777)]
    {
        put(fs, path, &[1; 9000]);
        chown(fs, path, 1000, 1000);
        let mut go = |what: &str, act: &mut (dyn FnMut(&dyn Posix, &mut Transcript) + Send)| {
            chmod(fs, path, mode);
            by(fs, 1000, 1000, |fs| act(fs, t));
            t.value(what, format!("{:o}", fs.stat(path).unwrap().mode));
        };
        go("write", &mut |fs, t| {
            let fd = fs.open(path, OFlags::WRONLY | OFlags::APPEND, 0).unwrap();
            t.note("write", fs.write(fd, b"y"));
            t.note("sync", fs.fsync(fd));
            fs.close(fd);
        });
        go("truncating open", &mut |fs, t| {
            t.note("open", fs.try_open(path, RW | OFlags::TRUNC, 0))
        });
        go("truncate", &mut |fs, t| {
            let fd = fs.open(path, RW, 0).unwrap();
            t.note("truncate", fs.ftruncate(fd, 5000));
            fs.close(fd);
        });
        go("fallocate", &mut |fs, t| {
            let fd = fs.open(path, RW, 0).unwrap();
            t.note("allocate", fs.fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, 20_000));
            fs.close(fd);
        });
        go("chgrp", &mut |fs, t| t.note("chgrp", fs.chown(path, None, Some(1000))));
        go("touch", &mut |fs, t| t.note("touch", fs.utimens(path, Time::Now, Time::Now)));
        go("rename", &mut |fs, t| {
            t.note("rename", fs.rename(path, "elsewhere", PLAIN));
            t.note("rename", fs.rename("elsewhere", path, PLAIN));
        });
        chmod(fs, path, mode);
        let fd = fs.open(path, RW, 0).unwrap();
        t.note("root writes", fs.write(fd, b"z"));
        t.note("root truncates", fs.ftruncate(fd, 3));
        fs.close(fd);
        owner(t, fs, path);
        chmod(fs, path, mode);
        chown(fs, path, 1001, 1001);
        owner(t, fs, path);
        chmod(fs, path, mode);
        let outsider = Caller { uid: 1001, gid: 77, groups: vec![78], umask: 0o022 };
        fs.as_user(&outsider, &mut |fs| {
            t.note("set-group without being in the group", fs.chmod(path, 0o2755));
        });
        owner(t, fs, path);
    }
    // Directories keep their bits.
    mkdir(fs, "dir");
    chmod(fs, "dir", 0o6777);
    chown(fs, "dir", 1000, 1000);
    owner(t, fs, "dir");
}

/// What may be written by all, by users inside and outside of the file's group.
fn set_id_by_others(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o777);
    put(fs, "file", &[1; 20_000]);
    chown(fs, "file", 1000, 3000);
    let users = [
        ("a stranger", Caller { uid: 1001, gid: 1001, groups: vec![], umask: 0o022 }),
        ("of the group", Caller { uid: 1001, gid: 3000, groups: vec![], umask: 0o022 }),
        ("a member", Caller { uid: 1001, gid: 1001, groups: vec![5, 3000, 7], umask: 0o022 }),
        ("the owner, outside", Caller { uid: 1000, gid: 1000, groups: vec![], umask: 0o022 }),
        ("root", Caller::user(0, 0)),
    ];
    type Act = fn(&dyn Posix, Fd) -> rustix::io::Result<()>;
    let acts: [(&str, Act); 6] = [
        ("write", |fs, fd| fs.pwrite(fd, 10, b"y").map(drop)),
        ("append", |fs, fd| fs.pwrite(fd, 30_000, b"y").map(drop)),
        ("truncate", |fs, fd| fs.ftruncate(fd, 15_000)),
        ("allocate", |fs, fd| fs.fallocate(fd, FallocateFlags::empty(), 0, 40_000)),
        ("keep size", |fs, fd| fs.fallocate(fd, FallocateFlags::KEEP_SIZE, 0, 50_000)),
        ("punch", |fs, fd| {
            fs.fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
        }),
    ];
    for mode in [0o2766, 0o6666, 0o6777, 0o4666, 0o2676] {
        for (caller, user) in &users {
            for (what, act) in acts {
                chmod(fs, "file", mode);
                fs.as_user(user, &mut |fs| {
                    let fd = fs.open("file", RW, 0).unwrap();
                    t.note(&format!("{mode:o} {caller} {what}"), act(fs, fd));
                    t.note("sync", fs.fsync(fd));
                    fs.close(fd);
                });
                t.value("mode", format!("{:o}", fs.stat("file").unwrap().mode));
            }
        }
    }
    // The owner gives the file to another of its groups; root gives it away.
    let owner_in = Caller { uid: 1000, gid: 1000, groups: vec![3000, 3001], umask: 0o022 };
    for mode in [0o2766, 0o6666, 0o6777] {
        for (caller, user) in [("in both groups", &owner_in), ("root", &users[4].1)] {
            chmod(fs, "file", mode);
            fs.as_user(user, &mut |fs| {
                t.note(&format!("{caller} chgrps"), fs.chown("file", None, Some(3001)))
            });
            owner(t, fs, "file");
            chown(fs, "file", 1000, 3000);
        }
        let outside = Caller { groups: vec![3001], ..owner_in.clone() };
        chmod(fs, "file", mode);
        fs.as_user(&outside, &mut |fs| t.note("from outside", fs.chown("file", None, Some(3001))));
        owner(t, fs, "file");
        chown(fs, "file", 1000, 3000);
    }
    fs.mknod("fifo", FileType::Fifo, 0o666, (0, 0)).unwrap();
    chmod(fs, "fifo", 0o6777);
    t.note("a fifo", fs.chown("fifo", Some(1), Some(1)));
    owner(t, fs, "fifo");
}

/// A change of the contents or the owner takes them off, also one by root.
fn capabilities(fs: &dyn Posix, t: &mut Transcript) {
    const NAME: &str = "security.capability";
    let value = [&[1, 0, 0, 2, 0, 4, 0, 0][..], &[0; 12]].concat();
    chmod(fs, ".", 0o777);
    put(fs, "file", &[1; 20_000]);
    type Act = fn(&dyn Posix) -> rustix::io::Result<()>;
    let acts: [(&str, Act); 6] = [
        ("write", |fs| at_file(fs, &|fs, fd| fs.pwrite(fd, 10, b"y").map(drop))),
        ("truncate", |fs| at_file(fs, &|fs, fd| fs.ftruncate(fd, 15_000))),
        ("allocate", |fs| {
            at_file(fs, &|fs, fd| fs.fallocate(fd, FallocateFlags::empty(), 0, 40_000))
        }),
        ("punch", |fs| {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            at_file(fs, &|fs, fd| fs.fallocate(fd, punch, 0, 4096))
        }),
        ("chgrp", |fs| fs.chown("file", None, Some(1000))),
        ("chmod", |fs| fs.chmod("file", 0o666)),
    ];
    for uid in [1000, 0] {
        for (what, act) in acts {
            chown(fs, "file", 1000, 1000);
            chmod(fs, "file", 0o666);
            t.note("set", fs.setxattr("file", NAME, &value, ANY));
            by(fs, uid, uid, |fs| t.note(&format!("{uid} {what}"), act(fs)));
            t.note("then", fs.getxattr("file", NAME, 100).map(|value| value.len()));
        }
    }
}

/// Something done to an open file.
fn at_file(
    fs: &dyn Posix,
    act: &dyn Fn(&dyn Posix, Fd) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let fd = fs.open("file", RW, 0)?;
    let done = act(fs, fd);
    fs.close(fd);
    done
}

fn chowns(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o777);
    put(fs, "file", b"");
    fs.symlink("file", "link").unwrap();
    t.note("far ids", fs.chown("file", Some(4_000_000_000), Some(70_000)));
    owner(t, fs, "file");
    t.note("lchown", fs.lchown("link", Some(12), Some(34)));
    owner(t, fs, "link");
    owner(t, fs, "file");
    t.note("through the link", fs.chown("link", Some(1000), Some(1000)));
    owner(t, fs, "link");
    owner(t, fs, "file");
    let member = Caller { uid: 1000, gid: 1000, groups: vec![2000, 3000], umask: 0o022 };
    fs.as_user(&member, &mut |fs| {
        for (uid, gid) in [
            (None, Some(2000)),
            (None, Some(4000)),
            (Some(1000), Some(3000)),
            (Some(1001), None),
            (Some(1000), None),
            (None, None),
        ] {
            t.note(&format!("{uid:?} {gid:?}"), fs.chown("file", uid, gid));
        }
    });
    owner(t, fs, "file");
    by(fs, 1001, 2000, |fs| {
        t.note("a stranger, nothing", fs.chown("file", None, None));
        t.note("a stranger, its group", fs.chown("file", None, Some(2000)));
        t.note("a stranger chmods", fs.chmod("file", 0o777));
    });
}

fn umask(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o777);
    for umask in [0o000, 0o022, 0o077, 0o137, 0o777] {
        let caller = Caller { uid: 1000, gid: 1000, groups: Vec::new(), umask };
        fs.as_user(&caller, &mut |fs| {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            fs.try_open(&format!("file{umask:o}"), flags, 0o666).unwrap();
            fs.try_open(&format!("all{umask:o}"), flags, 0o7777).unwrap();
            fs.mkdir(&format!("dir{umask:o}"), 0o1777).unwrap();
            fs.mknod(&format!("fifo{umask:o}"), FileType::Fifo, 0o666, (0, 0)).unwrap();
            fs.symlink("x", &format!("link{umask:o}")).unwrap();
            let unnamed = fs.open(".", OFlags::TMPFILE | RW, 0o666).unwrap();
            t.note("unnamed", fs.fstat(unnamed).map(|s| format!("{:o}", s.mode)));
            fs.close(unnamed);
        });
        for name in ["file", "all", "dir", "fifo", "link"] {
            owner(t, fs, &format!("{name}{umask:o}"));
        }
    }
}

/// With a default ACL the umask does not count.
fn inherited_acls(fs: &dyn Posix, t: &mut Transcript) {
    let lists = [
        acl(&[(1, 7, NONE), (2, 6, 1234), (4, 5, NONE), (16, 7, NONE), (32, 4, NONE)]),
        acl(&[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)]),
        acl(&[(1, 7, NONE), (4, 7, NONE), (8, 7, 99), (16, 5, NONE), (32, 7, NONE)]),
    ];
    for (n, list) in lists.iter().enumerate() {
        let dir = format!("acl{n}");
        mkdir(fs, &dir);
        chmod(fs, &dir, 0o777);
        t.note("set", fs.setxattr(&dir, "system.posix_acl_default", list, ANY));
        let caller = Caller { uid: 1000, gid: 1000, groups: Vec::new(), umask: 0o077 };
        fs.as_user(&caller, &mut |fs| {
            fs.try_open(&format!("{dir}/file"), OFlags::CREATE | OFlags::WRONLY, 0o664).unwrap();
            fs.mkdir(&format!("{dir}/dir"), 0o755).unwrap();
            fs.mknod(&format!("{dir}/fifo"), FileType::Fifo, 0o640, (0, 0)).unwrap();
            fs.symlink("x", &format!("{dir}/link")).unwrap();
            let unnamed = fs.open(&dir, OFlags::TMPFILE | RW, 0o666).unwrap();
            t.note("unnamed", fs.fstat(unnamed).map(|s| format!("{:o}", s.mode)));
            t.note("named", fs.link_fd(unnamed, &format!("{dir}/named")));
            fs.close(unnamed);
        });
        for name in ["file", "dir", "fifo", "link", "named"] {
            let path = format!("{dir}/{name}");
            owner(t, fs, &path);
            for attribute in ["system.posix_acl_access", "system.posix_acl_default"] {
                t.note(attribute, fs.getxattr(&path, attribute, 4096));
            }
        }
        t.note("remove", fs.removexattr(&dir, "system.posix_acl_default"));
        t.note("gone", fs.getxattr(&dir, "system.posix_acl_default", 4096));
        t.note("list", fs.listxattr(&dir, 4096));
    }
}

fn acls(fs: &dyn Posix, t: &mut Transcript) {
    const ACCESS: &str = "system.posix_acl_access";
    chmod(fs, ".", 0o755);
    put(fs, "file", b"x");
    chown(fs, "file", 1000, 1000);
    let rules = [
        (1, 6, NONE),
        (2, 4, 1001),
        (2, 0, 1002),
        (4, 4, NONE),
        (8, 6, 2001),
        (16, 6, NONE),
        (32, 0, NONE),
    ];
    let set = |value: &[u8]| fs.setxattr("file", ACCESS, value, ANY);
    let get = || fs.getxattr("file", ACCESS, 4096);
    t.note("set", set(&acl(&rules)));
    owner(t, fs, "file");
    let attempts = |t: &mut Transcript| {
        for (uid, gid) in [(1000, 1), (1001, 1), (1002, 1), (5, 2001), (5, 1000), (5, 5)] {
            by(fs, uid, gid, |fs| {
                t.note(&format!("{uid}/{gid} reads"), fs.try_open("file", OFlags::RDONLY, 0));
                t.note(&format!("{uid}/{gid} writes"), fs.try_open("file", OFlags::WRONLY, 0));
            });
        }
    };
    attempts(t);
    // chmod changes the mask, not the group's entry.
    chmod(fs, "file", 0o640);
    t.note("after chmod", get());
    attempts(t);
    t.note("list", fs.listxattr("file", 4096));
    // An ACL that says no more than the mode is stored as the mode alone.
    t.note("set minimal", set(&acl(&[(1, 7, NONE), (4, 5, NONE), (32, 1, NONE)])));
    owner(t, fs, "file");
    t.note("get", get());
    t.note("garbage", set(b"nonsense"));
    t.note("empty", set(b""));
    t.note("wrong version", set(&[9, 0, 0, 0]));
    t.note("without owner", set(&acl(&[(4, 5, NONE), (32, 1, NONE)])));
    t.note("without mask", set(&acl(&[(1, 7, NONE), (2, 7, 5), (4, 5, NONE), (32, 1, NONE)])));
    t.note("twice", set(&acl(&[(1, 7, NONE), (1, 7, NONE), (4, 5, NONE), (32, 1, NONE)])));
    t.note("more than rwx", set(&acl(&[(1, 15, NONE), (4, 5, NONE), (32, 1, NONE)])));
    t.note("default on a file", fs.setxattr("file", "system.posix_acl_default", &acl(&rules), ANY));
    by(fs, 5, 5, |fs| {
        t.note("by a stranger", fs.setxattr("file", ACCESS, &acl(&rules), ANY));
        t.note("removed by a stranger", fs.removexattr("file", ACCESS));
    });
    by(fs, 1000, 5, |fs| t.note("by the owner", fs.setxattr("file", ACCESS, &acl(&rules), ANY)));
    t.note("set again", set(&acl(&rules)));
    t.note("remove", fs.removexattr("file", ACCESS));
    t.note("remove again", fs.removexattr("file", ACCESS));
    owner(t, fs, "file");
    let mut many = vec![(1u16, 7u16, NONE), (4, 5, NONE), (16, 7, NONE), (32, 1, NONE)];
    many.extend((0..400).map(|n| (2, 5, 10_000 + n)));
    many.sort();
    t.note("more than fits", set(&acl(&many)));
    owner(t, fs, "file");
    // Setting a list by an owner outside of the group takes set-group-id off.
    put(fs, "tool", b"");
    chown(fs, "tool", 1000, 4000);
    chmod(fs, "tool", 0o2755);
    by(fs, 1000, 1000, |fs| {
        t.note("on a set-group file", fs.setxattr("tool", ACCESS, &acl(&rules), ANY))
    });
    owner(t, fs, "tool");
}
