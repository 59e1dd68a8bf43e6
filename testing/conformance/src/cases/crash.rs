//! What is there after a remount and after a crash.

use rustix::fs::OFlags;

use super::{ANY, Case, LAYOUTS, PLAIN, Run, look, mkdir, put};
use crate::Transcript;
use crate::posix::{Posix, Remount, Time};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "everything is there after a remount",
        volumes: LAYOUTS,
        run: Run::Remounting(remount),
    },
    // A volume without a journal promises nothing.
    Case {
        name: "what was synced survives a crash",
        volumes: &["ext4", "1k", "inline", "ext3"],
        run: Run::Remounting(crash),
    },
    Case {
        name: "deleted open files leak nothing",
        volumes: &["ext4", "1k", "inline", "ext3"],
        run: Run::Remounting(orphans),
    },
];

fn remount(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "r/dir");
    put(fs, "r/file", &[7; 12_345]);
    fs.chmod("r/file", 0o4711).unwrap();
    fs.chown("r/file", Some(1234), Some(70_000)).unwrap();
    fs.setxattr("r/file", "user.x", b"value", ANY).unwrap();
    fs.utimens(
        "r/file",
        Time::At(1_000_000_000, 123_456_789),
        Time::At(2_000_000_000, 987_654_321),
    )
    .unwrap();
    fs.link("r/file", "r/dir/link").unwrap();
    fs.symlink("nowhere", "r/symlink").unwrap();
    fs.mknod("r/device", rustix::fs::FileType::CharacterDevice, 0o600, (10, 200)).unwrap();
    let lost = fs.open("r/lost", OFlags::CREATE | OFlags::RDWR, 0o600).unwrap();
    fs.unlink("r/lost").unwrap();
    fs.close(lost);
    let ino = fs.stat("r/file").unwrap().ino;
    fs.remount(Remount::Clean);
    let s = fs.stat("r/file").unwrap();
    t.value("same inode", s.ino == ino);
    t.value("stat", (format!("{:o}", s.mode), s.uid, s.gid, s.nlink, s.size, s.atime, s.mtime));
    t.value("contents", fs.get("r/file").unwrap() == vec![7; 12_345]);
    t.note("attribute", fs.getxattr("r/file", "user.x", 100));
    t.note("link", fs.readlink("r/symlink"));
    t.note("device", fs.lstat("r/device").map(|s| s.rdev));
    t.note("names", fs.names("r"));
    t.note("remove", fs.remove_all("r"));
}

fn crash(fs: &dyn Posix, t: &mut Transcript) {
    let sync = |path: &str| {
        let fd = fs.open(path, OFlags::RDONLY, 0).unwrap();
        fs.fsync(fd).unwrap();
        fs.close(fd);
    };
    mkdir(fs, "c/dir");
    put(fs, "c/file", b"synced");
    sync("c/file");
    sync("c");
    fs.remount(Remount::Crash);
    t.note("file", fs.text("c/file"));
    // The replacement of a file: one of both, and after fsync of the directory the new one.
    put(fs, "c/new", b"replacement");
    sync("c/new");
    fs.rename("c/new", "c/file", PLAIN).unwrap();
    sync("c");
    fs.remount(Remount::Crash);
    t.note("replaced", fs.text("c/file"));
    look(t, fs, "c/new");
    // Appends.
    let fd = fs.open("c/log", OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND, 0o600).unwrap();
    for n in 0..20u8 {
        fs.write(fd, &[n; 1000]).unwrap();
        fs.fdatasync(fd).unwrap();
    }
    sync("c");
    fs.remount(Remount::Crash);
    let log = fs.get("c/log").unwrap();
    t.value(
        "log",
        (
            log.len(),
            log.chunks(1000).enumerate().all(|(n, c)| c.iter().all(|b| usize::from(*b) == n)),
        ),
    );
    // Links, attributes, modes.
    fs.link("c/file", "c/dir/link").unwrap();
    fs.setxattr("c/file", "user.x", b"1", ANY).unwrap();
    fs.chmod("c/file", 0o640).unwrap();
    sync("c/file");
    sync("c/dir");
    fs.remount(Remount::Crash);
    look(t, fs, "c/dir/link");
    t.note("attribute", fs.getxattr("c/dir/link", "user.x", 10));
    t.note("mode", fs.stat("c/file").map(|s| format!("{:o}", s.mode)));
    t.note("remove", fs.remove_all("c"));
    fs.sync().unwrap();
    fs.remount(Remount::Crash);
    t.note("gone", fs.stat("c").map(drop));
}

fn orphans(fs: &dyn Posix, t: &mut Transcript) {
    fs.sync().unwrap();
    let before = fs.statfs().unwrap();
    mkdir(fs, "o");
    for n in 0..40 {
        let path = format!("o/f{n}");
        put(fs, &path, &[7; 30_000]);
        fs.open(&path, OFlags::RDWR, 0).unwrap();
        fs.unlink(&path).unwrap();
    }
    let unnamed = fs.open("o", OFlags::TMPFILE | OFlags::RDWR, 0o600).unwrap();
    fs.write(unnamed, &[1; 50_000]).unwrap();
    fs.fsync(unnamed).unwrap();
    fs.sync().unwrap();
    fs.remount(Remount::Crash);
    t.note("names", fs.names("o"));
    t.note("rmdir", fs.rmdir("o"));
    // The kernel may tell a mount only later that it has forgotten the directory.
    let mut leaked = (0, 0);
    for _ in 0..50 {
        fs.sync().unwrap();
        let after = fs.statfs().unwrap();
        leaked = (
            before.free as i64 - after.free as i64,
            before.files_free as i64 - after.files_free as i64,
        );
        if leaked == (0, 0) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    t.value("leaked", leaked);
}
