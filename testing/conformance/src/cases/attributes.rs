//! Extended attributes and chattr flags.

use rustix::fs::{OFlags, RenameFlags, XattrFlags};

use super::{ANY, Case, EXT4, PLAIN, SECOND, by, case, chmod, keep, mkdir, put};
use crate::Transcript;
use crate::posix::{Posix, Time};

pub(super) const CASES: &[Case] = &[
    case("extended attributes", &["ext4", "1k", "inline", "small", "values"], extended),
    case("attributes on every kind", EXT4, on_every_kind),
    case("attributes of others", EXT4, of_others),
    case("values that do not fit", &["ext4", "small", "values"], too_large),
    case("values in inodes", &["values"], in_inodes),
    case("immutable and append-only", &["ext4", "inline"], marked),
    case("other flags", EXT4, other_flags),
    case("every flag", &["ext4", "inline", "ext3"], every_flag),
    case("flags of immutable files", EXT4, flags_of_immutable),
];

/// Room enough for any list or value.
const ROOM: usize = 65_536;

fn extended(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"some contents");
    let set = |name: &str, value: &[u8], flags| fs.setxattr("file", name, value, flags);
    let get = |name: &str| fs.getxattr("file", name, ROOM);
    let list = || fs.listxattr("file", ROOM);
    t.note("none yet", list());
    t.note("get missing", get("user.x"));
    t.note("create", set("user.x", b"1", XattrFlags::CREATE));
    t.note("create again", set("user.x", b"2", XattrFlags::CREATE));
    t.note("replace", set("user.x", b"three", XattrFlags::REPLACE));
    t.note("replace missing", set("user.y", b"2", XattrFlags::REPLACE));
    t.note("both", set("user.y", b"2", XattrFlags::REPLACE | XattrFlags::CREATE));
    t.note("unknown flag", set("user.y", b"2", XattrFlags::from_bits_retain(8)));
    t.note("empty value", set("user.empty", b"", ANY));
    t.note("trusted", set("trusted.t", b"t", ANY));
    t.note("security", set("security.test", b"s", ANY));
    t.note("unknown class", set("nonsense.x", b"s", ANY));
    t.note("no class", set("plain", b"s", ANY));
    t.note("nothing", set("", b"s", ANY));
    t.note("empty name", set("user.", b"s", ANY));
    t.note("empty trusted", set("trusted.", b"s", ANY));
    t.note("system", set("system.none", b"s", ANY));
    t.note("get unknown class", get("nonsense.x"));
    t.note("get empty name", get("user."));
    t.note("remove unknown class", fs.removexattr("file", "nonsense.x"));
    t.note("remove empty name", fs.removexattr("file", "user."));
    t.note("get", get("user.x"));
    t.note("into a short buffer", fs.getxattr("file", "user.x", 3));
    t.note("into an exact buffer", fs.getxattr("file", "user.x", 5));
    t.note("size", fs.getxattr("file", "user.x", 0).map(|v| v.len()));
    t.note("list into a short buffer", fs.listxattr("file", 3));
    t.note("list", list());
    for len in [200, 249, 250, 251, 300] {
        t.note(&format!("name of {len}"), set(&format!("user.{}", "n".repeat(len)), b"", ANY));
        t.note("get", get(&format!("user.{}", "n".repeat(len))));
    }
    t.note("list", list());
    // Growing values move from the inode into a block, and then no longer fit.
    for len in [10, 40, 100, 200, 500, 800, 1000, 2000, 3000, 4000, 5000, 65_536, 65_537] {
        t.note(&format!("value of {len}"), set("user.grow", &vec![7; len], ANY));
        t.note("got", get("user.grow").map(|v| v.len()));
    }
    t.note("shrink", set("user.grow", b"small", ANY));
    for n in 0..40 {
        t.note(&format!("many {n}"), set(&format!("user.many{n}"), &[n; 30], ANY));
    }
    t.note("list", list());
    for n in (0..40).step_by(2) {
        t.note(&format!("remove {n}"), fs.removexattr("file", &format!("user.many{n}")));
    }
    t.note("remove missing", fs.removexattr("file", "user.missing"));
    t.note("list", list());
    t.note("contents", fs.text("file"));
    let fd = fs.open("file", OFlags::RDONLY, 0).unwrap();
    fs.fsync(fd).unwrap();
    fs.close(fd);
    t.note("space", fs.stat("file").map(|s| s.blocks));
}

/// Values that only fit into inodes of their own: shared, replaced, moved to names and back.
fn in_inodes(fs: &dyn Posix, t: &mut Transcript) {
    let large = |seed: u8, len: usize| -> Vec<u8> { (0..len).map(|i| i as u8 ^ seed).collect() };
    let files = ["a", "b", "c", "dir", "link"];
    files[..3].iter().for_each(|name| put(fs, name, b"some contents"));
    mkdir(fs, "dir");
    fs.symlink("a", "link").unwrap();
    let look = |t: &mut Transcript| {
        for path in files {
            t.note(&format!("list of {path}"), fs.listxattr(path, ROOM));
            t.note(&format!("blocks of {path}"), fs.lstat(path).map(|s| s.blocks));
        }
    };
    for path in files {
        t.note(path, fs.setxattr(path, "trusted.same", &large(1, 5000), ANY));
        t.note(path, fs.setxattr(path, "trusted.own", &large(path.as_bytes()[0], 3000), ANY));
    }
    look(t);
    for (path, len) in [("a", 65_536), ("a", 1), ("a", 700), ("b", 65_537), ("dir", 900)] {
        t.note(
            &format!("{len} for {path}"),
            fs.setxattr(path, "trusted.same", &large(2, len), ANY),
        );
        t.note("got", fs.getxattr(path, "trusted.same", ROOM).map(|v| v == large(2, len)));
    }
    look(t);
    for n in 0..30 {
        t.note("one more", fs.setxattr("c", &format!("user.n{n}"), &large(n, 1200), ANY));
    }
    look(t);
    t.note("into a short buffer", fs.getxattr("c", "user.n3", 100));
    t.note("size", fs.getxattr("c", "user.n3", 0).map(|v| v.len()));
    t.note("replace", fs.setxattr("c", "user.n3", &large(9, 2000), XattrFlags::REPLACE));
    t.note("create", fs.setxattr("c", "user.n3", &large(9, 2000), XattrFlags::CREATE));
    for n in (0..30).step_by(3) {
        t.note("remove", fs.removexattr("c", &format!("user.n{n}")));
    }
    // (e2fsck takes the target of a short link with a value in an inode for a map.)
    for name in ["trusted.same", "trusted.own"] {
        t.note("remove", fs.removexattr("link", name));
    }
    look(t);
    let fd = fs.open("c", OFlags::RDONLY, 0).unwrap();
    fs.fsync(fd).unwrap();
    fs.close(fd);
    t.note("unlink", fs.unlink("b"));
    t.note("rename", fs.rename("c", "a", RenameFlags::empty()));
    t.note("kept", fs.getxattr("a", "user.n4", ROOM).map(|v| v == large(4, 1200)));
}

fn on_every_kind(fs: &dyn Posix, t: &mut Transcript) {
    use rustix::fs::FileType;
    put(fs, "file", b"");
    mkdir(fs, "dir");
    fs.symlink("x", "link").unwrap();
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("char", FileType::CharacterDevice),
        ("socket", FileType::Socket),
    ] {
        fs.mknod(name, kind, 0o666, (1, 3)).unwrap();
    }
    for path in ["file", "dir", "link", "fifo", "char", "socket"] {
        for name in [
            "user.x",
            "trusted.x",
            "security.x",
            "system.posix_acl_access",
            "system.posix_acl_default",
        ] {
            let list = extol_testkit::acl(&[(1, 6, u32::MAX), (4, 4, u32::MAX), (32, 0, u32::MAX)]);
            let value = if name.starts_with("system") { list.as_slice() } else { b"1" };
            t.note(&format!("set {name} on {path}"), fs.setxattr(path, name, value, ANY));
            t.note(&format!("get {name} of {path}"), fs.getxattr(path, name, 100));
            t.note(&format!("remove {name} of {path}"), fs.removexattr(path, name));
        }
        t.note(&format!("list of {path}"), fs.listxattr(path, ROOM));
    }
}

fn of_others(fs: &dyn Posix, t: &mut Transcript) {
    for (path, mode) in [("open", 0o666), ("readable", 0o644), ("closed", 0o600)] {
        put(fs, path, b"x");
        chmod(fs, path, mode);
        for name in ["user.x", "trusted.x", "security.x"] {
            fs.setxattr(path, name, b"1", ANY).unwrap();
        }
    }
    mkdir(fs, "sticky");
    chmod(fs, "sticky", 0o1777);
    mkdir(fs, "shared");
    chmod(fs, "shared", 0o777);
    chmod(fs, ".", 0o777);
    by(fs, 1000, 1000, |fs| {
        put(fs, "own", b"");
        for path in ["open", "readable", "closed", "own", "sticky", "shared"] {
            t.note(&format!("list of {path}"), fs.listxattr(path, ROOM));
            for name in ["user.x", "trusted.x", "security.x", "user.none", "trusted.none"] {
                t.note(&format!("get {name} of {path}"), fs.getxattr(path, name, 100));
                t.note(&format!("set {name} on {path}"), fs.setxattr(path, name, b"2", ANY));
                t.note(&format!("remove {name} of {path}"), fs.removexattr(path, name));
            }
        }
    });
}

fn too_large(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"");
    let mut fitted = 0;
    for n in 0..200 {
        match fs.setxattr("file", &format!("user.attribute-{n:03}"), &[9; 64], ANY) {
            Ok(()) => fitted += 1,
            Err(e) => {
                t.note(&format!("number {n}"), Err::<(), _>(e));
                break;
            }
        }
    }
    t.value("fitted", fitted);
    t.note("a small one", fs.setxattr("file", "user.s", b"1", ANY));
    t.note("a larger value instead", fs.setxattr("file", "user.attribute-000", &[8; 3000], ANY));
    t.note("the old value", fs.getxattr("file", "user.attribute-000", ROOM).map(|v| v.len()));
    t.note("remove", fs.removexattr("file", "user.attribute-001"));
    t.note("its place is free", fs.setxattr("file", "user.attribute-xxx", &[9; 64], ANY));
    t.note("list", fs.listxattr("file", ROOM).map(|l| l.len()));
    for len in [65_535, 65_536, 65_537, 100_000] {
        t.note(&format!("{len}"), fs.setxattr("file", "user.huge", &vec![1; len], ANY));
    }
}

fn marked(fs: &dyn Posix, t: &mut Transcript) {
    for (name, flag) in [("immutable", 0x10), ("append", 0x20)] {
        let (dir, file) = (name, format!("{name}/file"));
        let file = file.as_str();
        mkdir(fs, dir);
        put(fs, file, b"before");
        put(fs, "other", b"x");
        let before = fs.open(file, OFlags::RDWR, 0).unwrap();
        let extents = keep(fs, file);
        t.note("set", fs.set_flags(file, flag | extents));
        t.value("flags", fs.get_flags(file).map(|f| f & 0xff).unwrap());
        t.note("open to write", fs.try_open(file, OFlags::WRONLY, 0));
        let append = fs.open(file, OFlags::WRONLY | OFlags::APPEND, 0);
        t.note("open to append", append.map(drop));
        if let Ok(fd) = append {
            t.note("append", fs.write(fd, b"+"));
            t.note("fsync", fs.fsync(fd));
            t.note("truncate", fs.ftruncate(fd, 1));
            fs.close(fd);
        }
        t.note("open to truncate", fs.try_open(file, OFlags::WRONLY | OFlags::TRUNC, 0));
        t.note(
            "truncating append",
            fs.try_open(file, OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC, 0),
        );
        t.note("truncate a handle from before", fs.ftruncate(before, 3));
        t.note("access", fs.access(file, 2));
        t.note("unlink", fs.unlink(file));
        t.note("rename", fs.rename(file, "away", PLAIN));
        t.note("replace", fs.rename("other", file, PLAIN));
        t.note("exchange", fs.rename("other", file, rustix::fs::RenameFlags::EXCHANGE));
        t.note("link", fs.link(file, "link"));
        t.note("chmod", fs.chmod(file, 0o600));
        t.note("chown", fs.chown(file, Some(1), None));
        t.note("setxattr", fs.setxattr(file, "user.x", b"1", ANY));
        t.note("removexattr", fs.removexattr(file, "user.x"));
        for (what, time) in [("touch", Time::Now), ("set times", SECOND(5)), ("omit", Time::Omit)] {
            t.note(what, fs.utimens(file, time, time));
        }
        by(fs, 1000, 1000, |fs| {
            t.note("touch by a stranger", fs.utimens(file, Time::Now, Time::Now));
            t.note("chmod by a stranger", fs.chmod(file, 0o666));
            t.note("clear by a stranger", fs.set_flags(file, extents));
        });
        t.note("read", fs.text(file));
        fs.close(before);
        t.note("set on the directory", fs.set_flags(dir, flag | keep(fs, dir)));
        t.note("create inside", fs.put(&format!("{dir}/new"), b"x"));
        t.note("mkdir inside", fs.mkdir(&format!("{dir}/newdir"), 0o755));
        t.note("symlink inside", fs.symlink("x", &format!("{dir}/newlink")));
        t.note("link inside", fs.link("other", &format!("{dir}/other")));
        t.note("move inside", fs.rename("other", &format!("{dir}/moved"), PLAIN));
        t.note("tmpfile inside", fs.try_open(dir, OFlags::TMPFILE | OFlags::RDWR, 0o600));
        t.note("unlink inside", fs.unlink(&format!("{dir}/new")));
        t.note("rmdir inside", fs.rmdir(&format!("{dir}/newdir")));
        t.note("rename inside", fs.rename(&format!("{dir}/new"), &format!("{dir}/newer"), PLAIN));
        t.note("setxattr", fs.setxattr(dir, "user.x", b"1", ANY));
        t.note("rmdir itself", fs.rmdir(dir));
        t.note("rename itself", fs.rename(dir, "moved", PLAIN));
        t.note("clear", fs.set_flags(file, extents));
        t.note("clear the directory", fs.set_flags(dir, keep(fs, dir)));
        t.note("names", fs.names(dir));
        t.note("clean up", fs.remove_all(dir));
    }
}

/// Set and cleared one by one, on a file and on a directory: success, an error, or a flag that
/// stays as it was.
fn every_flag(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"a body");
    put(fs, "empty", b"");
    mkdir(fs, "dir");
    // Not 0x4000 (journalled data): what Linux wants for it is CAP_SYS_RESOURCE, which root may
    // lack.
    for bit in (0..32).filter(|bit| *bit != 14) {
        for path in ["file", "empty", "dir"] {
            let before = fs.get_flags(path).unwrap();
            if bit == 19 && path != "empty" {
                continue; // Linux converts the map of a file that has blocks.
            }
            t.note(&format!("{path} {bit}"), fs.set_flags(path, before ^ (1 << bit)));
            t.note("flags", fs.get_flags(path).map(|f| format!("{f:#x}")));
            t.note("back", fs.set_flags(path, before));
            t.note("flags", fs.get_flags(path).map(|f| format!("{f:#x}")));
        }
    }
    t.note("write", fs.put("empty", &[7; 9000]));
    t.note("read", fs.get("empty").map(|bytes| bytes.len()));
}

fn flags_of_immutable(fs: &dyn Posix, t: &mut Transcript) {
    const IMMUTABLE: u32 = 0x10;
    put(fs, "file", b"x");
    mkdir(fs, "dir");
    for path in ["file", "dir"] {
        let plain = fs.get_flags(path).unwrap();
        t.note("set", fs.set_flags(path, plain | IMMUTABLE));
        t.note("again", fs.set_flags(path, plain | IMMUTABLE));
        t.note("with another", fs.set_flags(path, plain | IMMUTABLE | 0x40));
        t.note("flags", fs.get_flags(path).map(|f| format!("{f:#x}")));
        t.note("another instead", fs.set_flags(path, plain | 0x40));
        t.note("flags", fs.get_flags(path).map(|f| format!("{f:#x}")));
    }
}

fn other_flags(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"x");
    mkdir(fs, "dir");
    const NODUMP: u32 = 0x40;
    const NOATIME: u32 = 0x80;
    const DIRSYNC: u32 = 0x1_0000;
    // Not 0x4000 (journalled data): what Linux wants for it is CAP_SYS_RESOURCE, which root may
    // lack.
    for flag in
        [0x1, 0x2, 0x4, 0x8, NODUMP, NOATIME, 0x1000, 0x8000, DIRSYNC, 0x2_0000, 0x80_0000, 1 << 31]
    {
        for path in ["file", "dir"] {
            t.note(&format!("set {flag:#x}"), fs.set_flags(path, flag | keep(fs, path)));
            t.note("flags", fs.get_flags(path).map(|f| format!("{f:#x}")));
        }
    }
    // Children of a directory inherit some of its flags.
    t.note("set", fs.set_flags("dir", NODUMP | NOATIME | DIRSYNC | 0x8 | keep(fs, "dir")));
    put(fs, "dir/file", b"x");
    mkdir(fs, "dir/dir");
    fs.symlink("x", "dir/link").unwrap();
    for path in ["dir/file", "dir/dir", "file"] {
        t.note("inherited", fs.get_flags(path).map(|f| format!("{f:#x}")));
    }
    t.note("of a link", fs.get_flags("dir/link"));
    chmod(fs, "file", 0o666);
    by(fs, 1000, 1000, |fs| {
        t.note("set by a stranger", fs.set_flags("file", NODUMP | keep(fs, "file")));
    });
    super::chown(fs, "file", 1000, 1000);
    by(fs, 1000, 1000, |fs| {
        t.note("set by the owner", fs.set_flags("file", NODUMP | keep(fs, "file")));
        t.note("immutable by the owner", fs.set_flags("file", 0x10 | NODUMP | keep(fs, "file")));
        t.note("journalled by the owner", fs.set_flags("file", 0x4000 | keep(fs, "file")));
    });
    t.note("flags", fs.get_flags("file").map(|f| format!("{f:#x}")));
}
