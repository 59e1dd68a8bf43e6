//! Times: which call moves which, what can be set, and when a read counts.

use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, RenameFlags};

use super::{ANY, Case, EXT4, LAYOUTS, PLAIN, by, case, chmod, chown, keep, mkdir, put};
use crate::Transcript;
use crate::posix::{Posix, Time};

pub(super) const CASES: &[Case] = &[
    case("which times move", EXT4, which_move),
    case("which times move with blocks", &["inline", "ext3"], which_move),
    case("access times", EXT4, access_times),
    case("times from 1901 to 2446", &["ext4", "ext3", "small"], range),
    case("permission to set times", EXT4, permission_to_set),
    case("times of new files", LAYOUTS, new_files),
    case("times never run backwards", EXT4, forwards),
];

/// Which of the times of each name a change moved.
fn changed(t: &mut Transcript, fs: &dyn Posix, what: &str, paths: &[&str], change: impl FnOnce()) {
    // The time of creation moves never, unless the name is another file's.
    let times = |path: &&str| fs.lstat(path).ok().map(|s| (s.ino, [s.mtime, s.ctime, s.btime]));
    // Times come from the kernel's tick; this is longer than any.
    let before: Vec<_> = paths.iter().map(times).collect();
    std::thread::sleep(Duration::from_millis(11));
    change();
    let word = |path: &&str, before: &Option<(u64, [_; 3])>| match (before, times(path)) {
        (Some((old, _)), Some((new, _))) if *old != new => "another".to_owned(),
        (Some((_, b)), Some((_, a))) => ["m", "c", "b"]
            .iter()
            .enumerate()
            .filter(|(n, _)| a[*n] != b[*n])
            .map(|(_, w)| *w)
            .collect(),
        (b, a) => format!("{}->{}", b.is_some(), a.is_some()),
    };
    let moved: Vec<String> =
        paths.iter().zip(&before).map(|(p, b)| format!("{p} {}", word(p, b))).collect();
    t.value(what, moved);
}

/// What is made later is never older: make(1) depends on it.
fn forwards(fs: &dyn Posix, t: &mut Transcript) {
    let mut backwards = 0;
    for n in 0..300 {
        let (dir, file) = (format!("dir{n}"), format!("file{n}"));
        mkdir(fs, &dir);
        put(fs, &file, b"x");
        let (dir, file) = (fs.stat(&dir).unwrap(), fs.stat(&file).unwrap());
        let in_order =
            dir.mtime <= file.mtime && file.btime <= file.mtime && file.mtime <= file.ctime;
        backwards += u32::from(!in_order);
        let fd = fs.open(&format!("file{n}"), OFlags::WRONLY, 0).unwrap();
        fs.pwrite(fd, 0, b"y").unwrap();
        let again = fs.fstat(fd).unwrap();
        backwards += u32::from(again.mtime < file.mtime || again.mtime < dir.mtime);
        fs.close(fd);
    }
    t.value("backwards", backwards);
}

fn which_move(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "d");
    mkdir(fs, "e");
    put(fs, "d/file", &[1; 9000]);
    let all = ["d", "e", "d/file", "d/other", "d/link"];
    let file = fs.open("d/file", OFlags::RDWR, 0).unwrap();
    let append = fs.open("d/file", OFlags::WRONLY | OFlags::APPEND, 0).unwrap();
    let mut go = |what: &str, change: &mut dyn FnMut()| changed(t, fs, what, &all, change);
    go("write", &mut || assert_eq!(fs.pwrite(file, 0, b"x"), Ok(1)));
    go("write of nothing", &mut || assert_eq!(fs.pwrite(file, 0, b""), Ok(0)));
    go("append", &mut || assert_eq!(fs.write(append, b"x"), Ok(1)));
    go("fsync", &mut || fs.fsync(file).unwrap());
    go("read", &mut || drop(fs.get("d/file").unwrap()));
    go("open and close", &mut || fs.try_open("d/file", OFlags::RDWR, 0).unwrap());
    go("truncate to another size", &mut || fs.ftruncate(file, 100).unwrap());
    go("truncate to the same size", &mut || fs.ftruncate(file, 100).unwrap());
    go("truncate larger", &mut || fs.ftruncate(file, 20_000).unwrap());
    go("chmod", &mut || fs.chmod("d/file", 0o600).unwrap());
    go("chmod to the same", &mut || fs.chmod("d/file", 0o600).unwrap());
    go("chown", &mut || fs.chown("d/file", Some(3), None).unwrap());
    go("chown of nothing", &mut || fs.chown("d/file", None, None).unwrap());
    go("link", &mut || fs.link("d/file", "d/link").unwrap());
    go("rename onto the same inode", &mut || fs.rename("d/file", "d/link", PLAIN).unwrap());
    go("unlink", &mut || fs.unlink("d/link").unwrap());
    go("rename", &mut || fs.rename("d/file", "d/other", PLAIN).unwrap());
    go("rename away", &mut || fs.rename("d/other", "e/other", PLAIN).unwrap());
    go("rename back", &mut || fs.rename("e/other", "d/other", PLAIN).unwrap());
    go("setxattr", &mut || fs.setxattr("d/other", "user.x", b"1", ANY).unwrap());
    go("setxattr of the same", &mut || fs.setxattr("d/other", "user.x", b"1", ANY).unwrap());
    go("removexattr", &mut || fs.removexattr("d/other", "user.x").unwrap());
    go("create", &mut || put(fs, "d/file", b""));
    go("open an old one with O_CREAT", &mut || {
        fs.try_open("d/file", OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
    });
    go("truncating open", &mut || {
        fs.try_open("d/other", OFlags::WRONLY | OFlags::TRUNC, 0).unwrap()
    });
    go("truncating open of an empty file", &mut || {
        fs.try_open("d/other", OFlags::WRONLY | OFlags::TRUNC, 0).unwrap();
    });
    go("mkdir", &mut || fs.mkdir("d/sub", 0o755).unwrap());
    go("rmdir", &mut || fs.rmdir("d/sub").unwrap());
    go("symlink", &mut || fs.symlink("x", "d/link").unwrap());
    go("readlink", &mut || drop(fs.readlink("d/link").unwrap()));
    go("lchown of a link", &mut || fs.lchown("d/link", Some(5), None).unwrap());
    go("exchange", &mut || fs.rename("d/file", "d/other", RenameFlags::EXCHANGE).unwrap());
    go("exchange across", &mut || fs.rename("d/file", "e", RenameFlags::EXCHANGE).unwrap());
    go("exchange again", &mut || fs.rename("d/file", "e", RenameFlags::EXCHANGE).unwrap());
    go("replace", &mut || {
        fs.rename("d/link", "d/file", PLAIN).unwrap();
    });
    go("failed mkdir", &mut || assert!(fs.mkdir("d/file", 0o755).is_err()));
    go("failed rmdir", &mut || assert!(fs.rmdir("d").is_err()));
    go("failed unlink", &mut || assert!(fs.unlink("d/none").is_err()));
    go("readdir", &mut || drop(fs.names("d").unwrap()));
    put(fs, "d/other", &[1; 9000]);
    let other = fs.open("d/other", OFlags::RDWR, 0).unwrap();
    fs.fsync(other).unwrap();
    for (what, mode, at, len) in [
        ("allocate", FallocateFlags::empty(), 0, 4096),
        ("allocate more", FallocateFlags::empty(), 0, 20_000),
        ("allocate, keep size", FallocateFlags::KEEP_SIZE, 20_480, 20_000),
        ("punch", FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096),
        ("punch a hole", FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096),
        ("zero", FallocateFlags::ZERO_RANGE, 4096, 4096),
        ("collapse", FallocateFlags::COLLAPSE_RANGE, 0, 4096),
        ("insert", FallocateFlags::INSERT_RANGE, 0, 4096),
    ] {
        let mut done = Ok(());
        changed(t, fs, what, &all, || done = fs.fallocate(other, mode, at, len));
        t.note(what, done);
    }
    let mut go = |what: &str, change: &mut dyn FnMut()| changed(t, fs, what, &all, change);
    go("set times", &mut || fs.utimens("d/other", Time::At(5, 0), Time::At(6, 0)).unwrap());
    go("set the access time", &mut || fs.utimens("d/other", Time::At(7, 0), Time::Omit).unwrap());
    go("omit both", &mut || fs.utimens("d/other", Time::Omit, Time::Omit).unwrap());
    go("touch", &mut || fs.utimens("d/other", Time::Now, Time::Now).unwrap());
    go("flags", &mut || fs.set_flags("d", 0x40 | keep(fs, "d")).unwrap());
    go("the same flags", &mut || fs.set_flags("d", 0x40 | keep(fs, "d")).unwrap());
    fs.close(file);
    fs.close(append);
    fs.close(other);
}

/// relatime: a read counts if the access time is not newer than the last change, or a day old.
fn access_times(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"contents");
    mkdir(fs, "dir/sub");
    fs.symlink("file", "link").unwrap();
    let now = fs.stat("file").unwrap().mtime.0;
    type Read = (&'static str, fn(&dyn Posix, &str));
    let reads: [Read; 3] = [
        ("file", |fs, p| drop(fs.get(p).unwrap())),
        ("dir", |fs, p| drop(fs.names(p).unwrap())),
        ("link", |fs, p| drop(fs.readlink(p).unwrap())),
    ];
    for (path, read) in reads {
        let mut go = |what: &str| {
            let before = fs.lstat(path).unwrap();
            std::thread::sleep(Duration::from_millis(11));
            read(fs, path);
            let after = fs.lstat(path).unwrap();
            t.value(
                &format!("{path} {what}"),
                (
                    before.atime != after.atime,
                    before.ctime == after.ctime,
                    before.mtime == after.mtime,
                ),
            );
        };
        if path == "link" {
            go("fresh");
            go("again");
            continue;
        }
        go("fresh");
        go("again");
        fs.utimens(path, Time::At(now + 50, 0), Time::Omit).unwrap();
        go("newer than the change");
        fs.utimens(path, Time::At(now - 100, 0), Time::At(now - 200, 0)).unwrap();
        go("older than the status change");
        go("again");
        fs.utimens(path, Time::At(now - 100_000, 0), Time::At(now - 200_000, 0)).unwrap();
        go("a day old");
        chmod(fs, path, 0o755);
        go("after chmod");
        go("again");
    }
    // What does not read does not count.
    put(fs, "quiet", b"");
    let before = fs.stat("quiet").unwrap().atime;
    std::thread::sleep(Duration::from_millis(11));
    drop(fs.stat("quiet"));
    fs.try_open("quiet", OFlags::RDONLY, 0).unwrap();
    t.value("stat and open", before == fs.stat("quiet").unwrap().atime);
    let fd = fs.open("file", OFlags::RDONLY | OFlags::NOATIME, 0).unwrap();
    fs.utimens("file", Time::At(1, 0), Time::Omit).unwrap();
    drop(fs.read(fd, 3));
    t.value("O_NOATIME", fs.stat("file").unwrap().atime);
    fs.close(fd);
    fs.set_flags("file", 0x80 | keep(fs, "file")).unwrap();
    fs.utimens("file", Time::At(1, 0), Time::Omit).unwrap();
    drop(fs.get("file"));
    t.value("chattr +A", fs.stat("file").unwrap().atime);
}

fn range(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "dir");
    put(fs, "file", b"");
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
    for path in ["dir", "file"] {
        for seconds in edges {
            for nanos in [0, 1, 999_999_999] {
                let done = fs.utimens(path, Time::At(seconds, nanos), Time::At(seconds, nanos));
                t.note(&format!("{path} {seconds}.{nanos}"), done);
                t.note("got", fs.stat(path).map(|s| (s.mtime, s.atime)));
            }
        }
        t.note("invalid", fs.utimens(path, Time::At(1, 1_000_000_000), Time::Omit));
        t.note("both invalid", fs.utimens(path, Time::Omit, Time::At(1, 2_000_000_000)));
        t.note("one of them", fs.utimens(path, Time::At(11, 0), Time::Omit));
        t.note("got", fs.stat(path).map(|s| s.atime));
        t.note("the other", fs.utimens(path, Time::Omit, Time::At(22, 0)));
        t.note("got", fs.stat(path).map(|s| (s.atime, s.mtime)));
    }
}

fn permission_to_set(fs: &dyn Posix, t: &mut Transcript) {
    chmod(fs, ".", 0o755);
    for (path, mode) in [("writable", 0o666), ("readable", 0o644), ("none", 0o600)] {
        put(fs, path, b"");
        chmod(fs, path, mode);
        chown(fs, path, 1000, 1000);
        for uid in [1000, 1001] {
            by(fs, uid, uid, |fs| {
                for (what, a, m) in [
                    ("now", Time::Now, Time::Now),
                    ("now and omit", Time::Now, Time::Omit),
                    ("omit and now", Time::Omit, Time::Now),
                    ("then", Time::At(1, 0), Time::At(2, 0)),
                    ("then and now", Time::At(1, 0), Time::Now),
                    ("omit", Time::Omit, Time::Omit),
                ] {
                    t.note(&format!("{path} {uid} {what}"), fs.utimens(path, a, m));
                }
            });
        }
    }
    t.note("missing", fs.utimens("missing", Time::Now, Time::Now));
    t.note("missing, omit", fs.utimens("missing", Time::Omit, Time::Omit));
}

fn new_files(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"");
    mkdir(fs, "dir");
    fs.symlink("x", "link").unwrap();
    for path in ["file", "dir", "link"] {
        let s = fs.lstat(path).unwrap();
        t.value(path, (s.atime == s.mtime, s.mtime == s.ctime, s.atime.0 > 1_500_000_000));
    }
    // A directory's time is about that of its newest name.
    let (dir, link) = (fs.stat(".").unwrap(), fs.lstat("link").unwrap());
    let near = |a: (i64, u32), b: (i64, u32)| (a.0 - b.0).abs() <= 1;
    t.value("the parent's", (near(dir.mtime, link.ctime), near(dir.ctime, link.ctime)));
}
