//! Making and removing names: errnos, lengths, special files.

use rustix::fs::{FileType, OFlags};

use super::{Case, EXT4, EXT4_1K, LAYOUTS, case, look, look_all, mkdir, put};
use crate::Transcript;
use crate::posix::Posix;

pub(super) const CASES: &[Case] = &[
    case("errnos of every call on every kind", EXT4, errno_matrix),
    case("lengths of names", EXT4_1K, name_lengths),
    case("lengths of targets", LAYOUTS, target_lengths),
    case("special files", EXT4, special_files),
    case("names of any bytes", EXT4, odd_names),
    case("calls on a removed directory", EXT4, removed_directory),
    case("not empty", LAYOUTS, not_empty),
];

/// What may stand at a path: each kind, missing, behind a file, behind links, dots, trailing
/// slashes.
const PLACES: &[&str] = &[
    "file",
    "file/",
    "file/x",
    "dir",
    "dir/",
    "dir/full",
    "dir/.",
    "dir/..",
    "dir/missing",
    "dir/missing/x",
    "empty",
    "to-dir",
    "to-dir/",
    "to-file",
    "to-file/",
    "dangling",
    "dangling/",
    "dangling/x",
    "loop",
    "loop/x",
    "fifo",
    "fifo/x",
    "missing",
    "missing/",
    "missing/x",
    ".",
];

fn errno_matrix(fs: &dyn Posix, t: &mut Transcript) {
    let fresh = |fs: &dyn Posix| {
        for name in fs.names(".").unwrap() {
            if fs.lstat(&name).unwrap().kind == FileType::Directory {
                fs.remove_all(&name).unwrap();
            } else {
                fs.unlink(&name).unwrap();
            }
        }
        put(fs, "file", b"x");
        mkdir(fs, "dir/full/inside");
        mkdir(fs, "empty");
        fs.symlink("dir", "to-dir").unwrap();
        fs.symlink("file", "to-file").unwrap();
        fs.symlink("nowhere", "dangling").unwrap();
        fs.symlink("loop", "loop").unwrap();
        fs.mknod("fifo", FileType::Fifo, 0o644, (0, 0)).unwrap();
    };
    type Call = (&'static str, fn(&dyn Posix, &str) -> crate::posix::Result<()>);
    let calls: &[Call] = &[
        ("stat", |fs, p| fs.stat(p).map(drop)),
        ("lstat", |fs, p| fs.lstat(p).map(drop)),
        ("access", |fs, p| fs.access(p, 4)),
        ("open", |fs, p| fs.try_open(p, OFlags::RDONLY | OFlags::NONBLOCK, 0)),
        ("open nofollow", |fs, p| {
            fs.try_open(p, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, 0)
        }),
        ("open directory", |fs, p| fs.try_open(p, OFlags::RDONLY | OFlags::DIRECTORY, 0)),
        ("open path", |fs, p| fs.try_open(p, OFlags::PATH | OFlags::NOFOLLOW, 0)),
        ("open write", |fs, p| fs.try_open(p, OFlags::RDWR | OFlags::NONBLOCK, 0)),
        ("open truncate", |fs, p| {
            fs.try_open(p, OFlags::RDWR | OFlags::TRUNC | OFlags::NONBLOCK, 0)
        }),
        ("open create", |fs, p| {
            fs.try_open(p, OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK, 0o644)
        }),
        ("open excl", |fs, p| {
            fs.try_open(p, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o644)
        }),
        ("open tmpfile", |fs, p| fs.try_open(p, OFlags::RDWR | OFlags::TMPFILE, 0o644)),
        ("mkdir", |fs, p| fs.mkdir(p, 0o755)),
        ("mknod", |fs, p| fs.mknod(p, FileType::RegularFile, 0o644, (0, 0))),
        ("symlink", |fs, p| fs.symlink("x", p)),
        ("readlink", |fs, p| fs.readlink(p).map(drop)),
        ("link to", |fs, p| fs.link("file", p)),
        ("link from", |fs, p| fs.link(p, "new-link")),
        ("rename to", |fs, p| fs.rename("file", p, super::PLAIN)),
        ("rename dir to", |fs, p| fs.rename("empty", p, super::PLAIN)),
        ("rename from", |fs, p| fs.rename(p, "new-name", super::PLAIN)),
        ("rmdir", |fs, p| fs.rmdir(p)),
        ("unlink", |fs, p| fs.unlink(p)),
        ("chmod", |fs, p| fs.chmod(p, 0o700)),
        ("chown", |fs, p| fs.chown(p, Some(0), None)),
        ("lchown", |fs, p| fs.lchown(p, Some(0), None)),
        ("utimens", |fs, p| fs.utimens(p, super::SECOND(1), super::SECOND(2))),
        ("getxattr", |fs, p| fs.getxattr(p, "user.none", 10).map(drop)),
        ("setxattr", |fs, p| fs.setxattr(p, "user.x", b"1", super::ANY)),
        ("removexattr", |fs, p| fs.removexattr(p, "user.none")),
        ("listxattr", |fs, p| fs.listxattr(p, 100).map(drop)),
    ];
    fresh(fs);
    for (name, call) in calls {
        for place in PLACES {
            let done = call(fs, place);
            let changed = done.is_ok() && !matches!(*name, "stat" | "lstat" | "access");
            t.note(&format!("{name} {place}"), done);
            if changed {
                fresh(fs);
            }
        }
    }
}

fn name_lengths(fs: &dyn Posix, t: &mut Transcript) {
    for len in [1, 254, 255, 256, 300] {
        let (file, dir, other) = ("n".repeat(len), "d".repeat(len), "o".repeat(len));
        t.note(
            &format!("create {len}"),
            fs.try_open(&file, OFlags::CREATE | OFlags::WRONLY, 0o644),
        );
        t.note(&format!("mkdir {len}"), fs.mkdir(&dir, 0o755));
        t.note(&format!("lookup {len}"), fs.stat(&file).map(|s| s.size));
        t.note(&format!("lookup of none {len}"), fs.stat(&other).map(drop));
        t.note(&format!("rename {len}"), fs.rename(&file, &other, super::PLAIN));
        t.note(&format!("link {len}"), fs.link(&other, &"l".repeat(len)));
        t.note(&format!("symlink {len}"), fs.symlink("x", &"s".repeat(len)));
        t.note(&format!("mknod {len}"), fs.mknod(&"f".repeat(len), FileType::Fifo, 0o644, (0, 0)));
        t.note(&format!("unlink {len}"), fs.unlink(&other));
        t.note(&format!("rmdir {len}"), fs.rmdir(&dir));
        // As an inner part of a path.
        t.note(&format!("inside {len}"), fs.stat(&format!("{dir}/x")).map(drop));
    }
    // Names of more bytes than characters.
    let wide = "ä".repeat(128);
    t.note("256 bytes in 128 characters", fs.mkdir(&wide, 0o755));
    t.note("254 bytes in 127 characters", fs.mkdir(&wide[2..], 0o755));
    look_all(t, fs, ".");
}

fn target_lengths(fs: &dyn Posix, t: &mut Transcript) {
    for len in
        [1, 58, 59, 60, 61, 63, 100, 160, 1000, 1022, 1023, 1024, 1025, 2000, 4094, 4095, 4096]
    {
        let path = format!("sym{len}");
        t.note(&format!("symlink {len}"), fs.symlink(&"t".repeat(len), &path));
        t.note(&format!("readlink {len}"), fs.readlink(&path).map(|p| p.len()));
        t.note(
            &format!("size {len}"),
            fs.lstat(&path).map(|s| (s.size, s.blocks, format!("{:o}", s.mode))),
        );
    }
    t.note("empty target", fs.symlink("", "empty"));
}

fn special_files(fs: &dyn Posix, t: &mut Transcript) {
    let kinds = [
        ("fifo", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
        ("plain", FileType::RegularFile, (0, 0)),
        ("old", FileType::CharacterDevice, (4, 64)),
        ("new", FileType::CharacterDevice, (300, 70_000)),
        ("disk", FileType::BlockDevice, (259, 1_048_575)),
        ("zero", FileType::CharacterDevice, (0, 0)),
        ("fifo", FileType::Fifo, (0, 0)),
        ("directory", FileType::Directory, (0, 0)),
    ];
    for (name, kind, dev) in kinds {
        t.note(name, fs.mknod(name, kind, 0o666, dev));
        let seen = fs
            .lstat(name)
            .map(|s| (s.kind, format!("{:o}", s.mode), s.rdev, s.nlink, s.size, s.blocks));
        t.note("stat", seen);
    }
    t.note("open a socket", fs.try_open("socket", OFlags::RDONLY, 0));
    super::chmod(fs, ".", 0o777);
    super::by(fs, 1000, 1000, |fs| {
        for (name, kind, dev) in kinds {
            t.note(&format!("user {name}"), fs.mknod(&format!("user-{name}"), kind, 0o666, dev));
        }
    });
    for name in ["old", "disk", "fifo", "socket"] {
        t.note("link", fs.link(name, &format!("{name}-link")));
        t.note("rename", fs.rename(name, &format!("{name}-moved"), super::PLAIN));
        look(t, fs, &format!("{name}-link"));
        t.note("unlink", fs.unlink(&format!("{name}-link")));
    }
}

fn odd_names(fs: &dyn Posix, t: &mut Transcript) {
    for name in
        ["...", " ", "a b", "\n", "\u{7f}", "*", "ü", "-rf", ".hidden", "..x", "\\", "\u{1F600}"]
    {
        t.note("create", fs.put(name, name.as_bytes()));
        t.note("read", fs.text(name));
    }
    look_all(t, fs, ".");
    // Case counts.
    put(fs, "Name", b"1");
    put(fs, "name", b"22");
    look(t, fs, "Name");
    look(t, fs, "name");
}

fn removed_directory(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "dir");
    put(fs, "file", b"x");
    let open = fs.open("dir", OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
    let inside = fs.at(open).unwrap();
    t.note("rmdir", fs.rmdir("dir"));
    t.note("create inside", inside.try_open("x", OFlags::CREATE | OFlags::WRONLY, 0o644));
    t.note("mkdir inside", inside.mkdir("y", 0o755));
    t.note("symlink inside", inside.symlink("y", "l"));
    t.note("mknod inside", inside.mknod("f", FileType::Fifo, 0o644, (0, 0)));
    t.note("tmpfile inside", inside.try_open(".", OFlags::TMPFILE | OFlags::RDWR, 0o600));
    t.note("lookup inside", inside.stat("z").map(drop));
    t.note("unlink inside", inside.unlink("z"));
    t.note("rmdir inside", inside.rmdir("z"));
    t.note("rmdir dot", inside.rmdir("."));
    t.note("stat", inside.stat(".").map(|s| s.nlink));
    t.note("links", fs.fstat(open).map(|s| s.nlink));
    t.note("read", fs.readdir(open, 10).map(|e| e.len()));
    t.note("fsync", fs.fsync(open));
    t.note("chmod", fs.fchmod(open, 0o700));
    t.note("same name again", fs.mkdir("dir", 0o755));
    t.note("still gone", inside.mkdir("y", 0o755));
    fs.close(open);
    drop(inside);
    look_all(t, fs, ".");
}

fn not_empty(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "dir/sub");
    put(fs, "dir/file", b"x");
    t.note("full", fs.rmdir("dir"));
    t.note("unlink a directory", fs.unlink("dir/sub"));
    t.note("rmdir a file", fs.rmdir("dir/file"));
    t.note("unlink", fs.unlink("dir/file"));
    t.note("with a directory", fs.rmdir("dir"));
    t.note("inner", fs.rmdir("dir/sub"));
    t.note("empty", fs.rmdir("dir"));
    t.note("gone", fs.rmdir("dir"));
    // Emptied after it was large.
    mkdir(fs, "large");
    for n in 0..200 {
        put(fs, &format!("large/{n:0100}"), b"");
    }
    t.note("large and full", fs.rmdir("large"));
    for n in 0..199 {
        fs.unlink(&format!("large/{n:0100}")).unwrap();
    }
    t.note("one is left", fs.rmdir("large"));
    t.note("the last", fs.unlink(&format!("large/{:0100}", 199)));
    t.note("empty again", fs.rmdir("large"));
    look(t, fs, ".");
}
