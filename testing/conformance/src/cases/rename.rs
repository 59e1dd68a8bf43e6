//! rename in all variants.

use rustix::fs::{OFlags, RenameFlags};

use super::{Case, EXT4, EXT4_1K, LAYOUTS, PLAIN, case, look, look_all, mkdir, put};
use crate::Transcript;
use crate::posix::Posix;

pub(super) const CASES: &[Case] = &[
    case("rename in all variants", LAYOUTS, variants),
    case("rename of every kind onto every kind", EXT4, matrix),
    case("rename of one inode onto itself", EXT4, same_inode),
    case("rename of directories into their own", EXT4, own_subtree),
    case("a directory that moves", EXT4_1K, moved_directory),
    case("rename over something open", EXT4, over_open),
];

fn variants(fs: &dyn Posix, t: &mut Transcript) {
    for name in ["a", "b", "c"] {
        put(fs, name, name.repeat(name.as_bytes()[0].into()).as_bytes());
    }
    mkdir(fs, "dir/sub/deeper");
    mkdir(fs, "empty");
    mkdir(fs, "full/x");
    fs.link("a", "a-link").unwrap();
    fs.symlink("a", "sym").unwrap();
    let mut go = |from: &str, to: &str, flags: RenameFlags| {
        t.note(&format!("rename {from} {to} {flags:?}"), fs.rename(from, to, flags));
    };
    let exchange = RenameFlags::EXCHANGE;
    go("a", "b", RenameFlags::NOREPLACE);
    go("missing", "b", PLAIN);
    go("a", "a", PLAIN);
    go("a", "a-link", PLAIN);
    go("a", "b", PLAIN);
    go("b", "c", exchange);
    go("b", "nothing", exchange);
    go("b", "dir", exchange);
    go("b", "dir", exchange);
    go("b", "c", exchange | RenameFlags::NOREPLACE);
    go("b", "c", RenameFlags::from_bits_retain(64));
    go("b", "new", RenameFlags::NOREPLACE);
    go("new", "b", PLAIN);
    go("dir", "b", PLAIN);
    go("b", "dir", PLAIN);
    go("dir", "dir/sub/inside", PLAIN);
    go("dir", "dir", PLAIN);
    go("dir/sub", "full", PLAIN);
    go("dir/sub", "empty", PLAIN);
    go("empty/deeper", "up", PLAIN);
    go("up", "dir/down", PLAIN);
    go("dir/down/..", "x", PLAIN);
    go("dir/.", "x", PLAIN);
    go("b", "dir/missing/x", PLAIN);
    go("b", "c/x", PLAIN);
    go("b", "c/", PLAIN);
    go("b", "newdir/", PLAIN);
    go("dir/down", "dir/down2/", PLAIN);
    go("dir/down2/", "dir/down", PLAIN);
    go("sym", "sym2", PLAIN);
    go("empty", "dir/down", exchange);
    go("c", "gone", RenameFlags::WHITEOUT);
    go(".", "x", PLAIN);
    go("b", "dir/.", PLAIN);
    go("b", ".", RenameFlags::NOREPLACE);
    go("b", &"n".repeat(256), PLAIN);
    go("b", &"n".repeat(255), PLAIN);
    look_all(t, fs, ".");
    look_all(t, fs, "dir");
    look_all(t, fs, "full");
    t.note("read", fs.text("gone"));
    t.value("dotdot", fs.stat("dir/down/..").unwrap().ino == fs.stat("dir").unwrap().ino);
}

fn matrix(fs: &dyn Posix, t: &mut Transcript) {
    const KINDS: [&str; 7] = ["file", "other", "empty", "full", "link", "dangling", "none"];
    let make = |fs: &dyn Posix| {
        let _ = fs.remove_all("m");
        mkdir(fs, "m/empty");
        mkdir(fs, "m/full/x");
        put(fs, "m/file", b"file");
        put(fs, "m/other", b"other");
        fs.symlink("full", "m/link").unwrap();
        fs.symlink("nowhere", "m/dangling").unwrap();
    };
    for flags in [PLAIN, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE] {
        for from in KINDS {
            for to in KINDS {
                make(fs);
                t.note(
                    &format!("{from} {to} {flags:?}"),
                    fs.rename(&format!("m/{from}"), &format!("m/{to}"), flags),
                );
                let seen =
                    |name: &str| fs.lstat(&format!("m/{name}")).map(|s| (s.kind, s.nlink)).ok();
                t.value("after", (seen(from), seen(to), fs.lstat("m").map(|s| s.nlink).unwrap()));
            }
        }
    }
}

fn same_inode(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "a");
    mkdir(fs, "b");
    put(fs, "a/one", b"x");
    fs.link("a/one", "a/two").unwrap();
    fs.link("a/one", "b/three").unwrap();
    for (from, to) in
        [("a/one", "a/one"), ("a/one", "a/two"), ("a/one", "b/three"), ("b/three", "a/two")]
    {
        for flags in [PLAIN, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE] {
            t.note(&format!("{from} {to} {flags:?}"), fs.rename(from, to, flags));
            t.note("links", fs.stat("a/one").map(|s| s.nlink));
        }
    }
    look_all(t, fs, "a");
    look_all(t, fs, "b");
    // Also where the caller could not remove the name.
    super::chmod(fs, "a", 0o755);
    super::by(fs, 1000, 1000, |fs| {
        t.note("by a stranger, onto itself", fs.rename("a/one", "a/one", PLAIN));
        t.note("by a stranger, another name", fs.rename("a/one", "a/two", PLAIN));
        t.note("by a stranger, a new name", fs.rename("a/one", "a/new", PLAIN));
    });
}

fn own_subtree(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "a/b/c");
    put(fs, "a/b/file", b"x");
    for flags in [PLAIN, RenameFlags::NOREPLACE, RenameFlags::EXCHANGE] {
        for (from, to) in [
            ("a", "a/b"),
            ("a", "a/new"),
            ("a", "a/b/c/new"),
            ("a/b", "a"),
            ("a/b/c", "a"),
            ("a/b/file", "a"),
            ("a/b/file", "a/b"),
            ("a/b", "a/b/file"),
            ("a", "a/b/file"),
            ("a/b", "a/b/c"),
            ("a/b/c", "a/b"),
            ("a/missing", "a"),
            ("a", "a/missing/x"),
        ] {
            t.note(&format!("{from} {to} {flags:?}"), fs.rename(from, to, flags));
        }
    }
    look_all(t, fs, ".");
    look_all(t, fs, "a");
    look_all(t, fs, "a/b");
}

fn moved_directory(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "one");
    mkdir(fs, "two");
    for n in 0..150 {
        // Large enough for a hash tree, so that `..` sits in its root block.
        mkdir(fs, &format!("one/child/{n:060}"));
    }
    t.note("move", fs.rename("one/child", "two/moved", PLAIN));
    t.value("parent", fs.stat("two/moved/..").unwrap().ino == fs.stat("two").unwrap().ino);
    for name in ["one", "two", "two/moved", "."] {
        look(t, fs, name);
    }
    t.note("exchange", fs.rename("two/moved", "one", RenameFlags::EXCHANGE));
    t.value("parent", fs.stat("one/..").unwrap().ino == fs.stat(".").unwrap().ino);
    for name in ["one", "two", "two/moved", "."] {
        look(t, fs, name);
    }
    t.note("remove", fs.remove_all("one"));
    look(t, fs, ".");
}

fn over_open(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "old", b"old contents");
    put(fs, "new", b"new");
    let open = fs.open("old", OFlags::RDWR, 0).unwrap();
    t.note("replace", fs.rename("new", "old", PLAIN));
    t.note("links of the old", fs.fstat(open).map(|s| (s.nlink, s.size)));
    t.note(
        "old contents",
        fs.pread(open, 0, 100).map(|b| String::from_utf8_lossy(&b).into_owned()),
    );
    t.note("write to the old", fs.pwrite(open, 3, b"er"));
    t.note("new contents", fs.text("old"));
    t.note("name for the old", fs.link_fd(open, "back"));
    fs.close(open);
    mkdir(fs, "dir");
    mkdir(fs, "other");
    let open = fs.open("dir", OFlags::RDONLY, 0).unwrap();
    t.note("replace a directory", fs.rename("other", "dir", PLAIN));
    t.note("links of the old", fs.fstat(open).map(|s| s.nlink));
    t.note("inside the old", fs.at(open).unwrap().mkdir("x", 0o755));
    fs.close(open);
    look_all(t, fs, ".");
}
