//! Open files: flags, positions, appending, deleted while open.

use rustix::fs::{OFlags, SeekFrom};

use super::{Case, EXT4, LAYOUTS, RW, case, look_all, put, runs};
use crate::Transcript;
use crate::posix::{Fd, Posix};

pub(super) const CASES: &[Case] = &[
    case("a file deleted while open", LAYOUTS, deleted_while_open),
    case("ways to open", EXT4, ways_to_open),
    case("positions", LAYOUTS, positions),
    case("appending", LAYOUTS, appending),
    case("two handles", EXT4, two_handles),
    case("wrong handles", EXT4, wrong_handles),
];

fn text(fs: &dyn Posix, fd: Fd, at: u64, len: usize) -> crate::posix::Result<String> {
    fs.pread(fd, at, len).map(|b| String::from_utf8_lossy(&b).into_owned())
}

fn deleted_while_open(fs: &dyn Posix, t: &mut Transcript) {
    let file = fs.create("file").unwrap();
    fs.write(file, &[1; 10_000]).unwrap();
    t.note("unlink", fs.unlink("file"));
    t.note("write", fs.pwrite(file, 9_000, &[2; 50_000]));
    runs(t, fs, file);
    t.note("truncate", fs.ftruncate(file, 100));
    t.note("grow", fs.ftruncate(file, 5000));
    runs(t, fs, file);
    t.note("fsync", fs.fsync(file));
    t.note("stat", fs.fstat(file).map(|s| (s.nlink, s.size)));
    t.note("chmod", fs.fchmod(file, 0o600));
    t.note("mode", fs.fstat(file).map(|s| format!("{:o}", s.mode)));
    // A new file of the same name is another file.
    put(fs, "file", b"new");
    t.note("new file", fs.text("file"));
    t.value("another inode", fs.fstat(file).unwrap().ino != fs.stat("file").unwrap().ino);
    fs.close(file);
    look_all(t, fs, ".");
}

fn ways_to_open(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"0123456789");
    let create = OFlags::CREATE | OFlags::WRONLY;
    t.note("create an old one", fs.try_open("file", create, 0o600));
    t.note("contents", fs.text("file"));
    t.note("exclusive", fs.try_open("file", create | OFlags::EXCL, 0o600));
    t.note("exclusive new", fs.try_open("new", create | OFlags::EXCL, 0o600));
    t.note("mode", fs.stat("new").map(|s| format!("{:o}", s.mode)));
    t.note("truncating", fs.try_open("file", RW | OFlags::TRUNC, 0));
    t.note("size", fs.stat("file").map(|s| (s.size, s.blocks)));
    let read_only = fs.open("file", OFlags::RDONLY, 0).unwrap();
    t.note("write to a read-only handle", fs.write(read_only, b"x"));
    t.note("pwrite to it", fs.pwrite(read_only, 0, b"x"));
    t.note("truncate it", fs.ftruncate(read_only, 5));
    t.note("fsync it", fs.fsync(read_only));
    fs.close(read_only);
    let write_only = fs.open("file", OFlags::WRONLY, 0).unwrap();
    t.note("read from a write-only handle", fs.read(write_only, 4));
    fs.close(write_only);
    t.note("a directory for writing", fs.try_open(".", OFlags::WRONLY, 0));
    t.note("a directory truncating", fs.try_open(".", OFlags::RDONLY | OFlags::TRUNC, 0));
    t.note("a directory creating", fs.try_open(".", create, 0o600));
    t.note("create and directory", fs.try_open("dir", OFlags::CREATE | OFlags::DIRECTORY, 0o700));
    let dir = fs.open(".", OFlags::RDONLY, 0).unwrap();
    t.note("read a directory", fs.read(dir, 4));
    fs.close(dir);
    for (name, flag) in [
        ("noatime", OFlags::NOATIME),
        ("dsync", OFlags::DSYNC),
        ("sync", OFlags::SYNC),
        ("nonblock", OFlags::NONBLOCK),
        ("path", OFlags::PATH),
    ] {
        let opened = fs.open("file", RW | flag, 0);
        t.note(name, opened.map(drop));
        if let Ok(fd) = opened {
            t.note("write", fs.write(fd, name.as_bytes()));
            t.note("stat", fs.fstat(fd).map(|s| s.size));
            fs.close(fd);
        }
    }
    t.note("read-only and truncate", fs.try_open("file", OFlags::RDONLY | OFlags::TRUNC, 0));
    t.note("size", fs.stat("file").map(|s| s.size));
    super::chmod(fs, "file", 0o666);
    super::by(fs, 1000, 1000, |fs| {
        t.note("noatime by a stranger", fs.try_open("file", OFlags::RDONLY | OFlags::NOATIME, 0));
    });
}

fn positions(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    t.note("write", fs.write(fd, b"0123456789"));
    t.note("here", fs.lseek(fd, SeekFrom::Current(0)));
    t.note("read at the end", fs.read(fd, 5));
    t.note("back", fs.lseek(fd, SeekFrom::Start(3)));
    t.note("read", fs.read(fd, 3));
    t.note("pread does not move", text(fs, fd, 0, 4));
    t.note("here", fs.lseek(fd, SeekFrom::Current(0)));
    t.note("pwrite does not move", fs.pwrite(fd, 9, b"abc"));
    t.note("here", fs.lseek(fd, SeekFrom::Current(0)));
    t.note("from the end", fs.lseek(fd, SeekFrom::End(-2)));
    t.note("read over the end", fs.read(fd, 100));
    t.note("past the end", fs.lseek(fd, SeekFrom::End(5000)));
    t.note("read there", fs.read(fd, 10));
    t.note("size is as before", fs.fstat(fd).map(|s| s.size));
    t.note("write there", fs.write(fd, b"far"));
    t.note("before the start", fs.lseek(fd, SeekFrom::Current(-100_000)));
    t.note("here", fs.lseek(fd, SeekFrom::Current(0)));
    t.note("negative", fs.lseek(fd, SeekFrom::Start(u64::MAX)));
    t.note("write of nothing far away", fs.pwrite(fd, 1 << 30, b""));
    t.note("pread at a negative place", fs.pread(fd, u64::MAX, 1));
    t.note("pwrite at a negative place", fs.pwrite(fd, u64::MAX, b"x"));
    runs(t, fs, fd);
    fs.close(fd);
}

fn appending(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"start");
    let append = fs.open("file", RW | OFlags::APPEND, 0).unwrap();
    let plain = fs.open("file", RW, 0).unwrap();
    t.note("here", fs.lseek(append, SeekFrom::Current(0)));
    t.note("append", fs.write(append, b"-one"));
    t.note("here", fs.lseek(append, SeekFrom::Current(0)));
    t.note("pwrite appends, too", fs.pwrite(append, 0, b"-two"));
    t.note("here", fs.lseek(append, SeekFrom::Current(0)));
    t.note("by another", fs.pwrite(plain, 20, b"far"));
    t.note("append behind it", fs.write(append, b"-three"));
    t.note("go back", fs.lseek(append, SeekFrom::Start(0)));
    t.note("read", fs.read(append, 5));
    t.note("append", fs.write(append, b"-four"));
    t.note("shorter", fs.ftruncate(append, 7));
    t.note("append", fs.write(append, b"!"));
    t.note("contents", text(fs, plain, 0, 100));
    for n in 0..50u8 {
        fs.write(append, &[n; 333]).unwrap();
    }
    runs(t, fs, plain);
    fs.close(append);
    fs.close(plain);
}

fn two_handles(fs: &dyn Posix, t: &mut Transcript) {
    let a = fs.create("file").unwrap();
    let b = fs.open("file", RW, 0).unwrap();
    t.note("write", fs.write(a, b"from a"));
    t.note("seen at once", text(fs, b, 0, 100));
    t.note("its own position", fs.write(b, b"FROM"));
    t.note("contents", text(fs, a, 0, 100));
    t.note("truncate by b", fs.ftruncate(b, 2));
    t.note("a sees it", fs.fstat(a).map(|s| s.size));
    t.note("a writes behind", fs.write(a, b"+"));
    t.note("zeros between", fs.pread(b, 0, 100));
    t.note("by path", fs.put("file", b"anew"));
    t.note("both see it", text(fs, a, 0, 10));
    fs.close(a);
    t.note("the other lives", text(fs, b, 0, 10));
    fs.close(b);
}

fn wrong_handles(fs: &dyn Posix, t: &mut Transcript) {
    fs.symlink("x", "link").unwrap();
    put(fs, "file", b"x");
    let path = fs.open("link", OFlags::PATH | OFlags::NOFOLLOW, 0).unwrap();
    t.note("stat of a link", fs.fstat(path).map(|s| (s.kind, s.size)));
    t.note("read", fs.pread(path, 0, 1));
    t.note("write", fs.pwrite(path, 0, b"x"));
    t.note("fsync", fs.fsync(path));
    fs.close(path);
    let dir = fs.open(".", OFlags::RDONLY, 0).unwrap();
    t.note("truncate a directory", fs.ftruncate(dir, 0));
    t.note("pwrite to a directory", fs.pwrite(dir, 0, b"x"));
    t.note("pread a directory", fs.pread(dir, 0, 1));
    fs.close(dir);
    let file = fs.open("file", OFlags::RDONLY, 0).unwrap();
    t.note("readdir of a file", fs.readdir(file, 1).map(|e| e.len()));
    t.note("at a file", fs.at(file).unwrap().stat("x").map(drop));
    fs.close(file);
}
