//! Walking paths: links in chains, loops, lengths.

use rustix::fs::OFlags;

use super::{Case, EXT4, LAYOUTS, case, mkdir, put};
use crate::Transcript;
use crate::posix::Posix;

pub(super) const CASES: &[Case] = &[
    case("chains of symbolic links", EXT4, chains),
    case("the longest path", EXT4, longest_path),
    case("links inside paths", LAYOUTS, inner_links),
    case("deep directories", EXT4, deep),
];

fn chains(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "link0", b"end");
    for n in 1..=45 {
        fs.symlink(&format!("link{}", n - 1), &format!("link{n}")).unwrap();
    }
    for n in [1, 2, 39, 40, 41, 45] {
        t.note(&format!("read through {n}"), fs.text(&format!("link{n}")));
        t.note(&format!("stat through {n}"), fs.stat(&format!("link{n}")).map(|s| s.size));
        t.note("lstat", fs.lstat(&format!("link{n}")).map(|s| s.size));
    }
    fs.symlink("loop2", "loop1").unwrap();
    fs.symlink("loop1", "loop2").unwrap();
    t.note("a loop of two", fs.stat("loop1").map(drop));
    t.note("inside a loop", fs.stat("loop1/x").map(drop));
    t.note("create through a loop", fs.try_open("loop1", OFlags::CREATE | OFlags::WRONLY, 0o644));
    t.note("unlink one", fs.unlink("loop1"));
    t.note("dangling", fs.stat("loop2").map(drop));
    t.note("create through it", fs.put("loop2", b"made"));
    t.note("made", fs.text("loop1"));
    // Many links in one path, each followed once.
    mkdir(fs, "d");
    fs.symlink(".", "d/here").unwrap();
    put(fs, "d/file", b"x");
    for n in [10, 39, 40, 41] {
        let path = format!("d/{}file", "here/".repeat(n));
        t.note(&format!("{n} links in a path"), fs.stat(&path).map(|s| s.size));
    }
}

fn longest_path(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"x");
    for len in [4000, 4094, 4095, 4096, 5000] {
        // `././…/file` of exactly this length.
        let mut path = "./".repeat((len - 4) / 2) + "file";
        if path.len() < len {
            path.insert(0, '/');
            path = path.replacen("/./", ".//", 1);
        }
        t.value("length", path.len());
        t.note(&format!("stat {len}"), fs.stat(&path).map(|s| s.size));
        t.note(&format!("open {len}"), fs.try_open(&path, OFlags::RDONLY, 0));
        t.note(&format!("rename {len}"), fs.rename(&path, "file", super::PLAIN));
        t.note(&format!("mkdir {len}"), fs.mkdir(&path, 0o755));
    }
    t.note("empty", fs.stat("").map(drop));
    t.note("mkdir empty", fs.mkdir("", 0o755));
    t.note("many slashes", fs.stat(".////file").map(|s| s.size));
}

fn inner_links(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "a/b/c");
    put(fs, "a/b/c/file", b"contents");
    fs.symlink("a/b", "short").unwrap();
    fs.symlink("../b/c", "a/b/up").unwrap();
    fs.symlink(&format!("{}a/b/c", "./".repeat(40)), "long").unwrap();
    for path in [
        "short/c/file",
        "a/b/up/file",
        "short/up/file",
        "long/file",
        "short/../b/c/file",
        "long/../../b/c/file",
    ] {
        t.note(path, fs.text(path));
    }
    t.note("mkdir through a link", fs.mkdir("short/new", 0o755));
    t.note("rename through links", fs.rename("short/new", "long/moved", super::PLAIN));
    t.note("found", fs.stat("a/b/c/moved").map(|s| s.nlink));
    t.note("rmdir of a link", fs.rmdir("short"));
    t.note("unlink of a link", fs.unlink("short"));
    t.note("hard link of a symbolic link", fs.link("long", "long2"));
    t.note("links", fs.lstat("long2").map(|s| (s.kind, s.nlink)));
}

fn deep(fs: &dyn Posix, t: &mut Transcript) {
    let mut path = String::from("d");
    for n in 0..120 {
        if n > 0 {
            path.push_str("/d");
        }
        fs.mkdir(&path, 0o755).unwrap();
    }
    put(fs, &format!("{path}/file"), b"deep");
    t.note("read", fs.text(&format!("{path}/file")));
    t.note("up again", fs.stat(&format!("{path}{}", "/..".repeat(119))).map(|s| s.nlink));
    t.note("into itself", fs.rename("d", &format!("{path}/x"), super::PLAIN));
    t.note("out", fs.rename(&format!("{path}/file"), "file", super::PLAIN));
    t.note("remove", fs.remove_all("d"));
    super::look_all(t, fs, ".");
}
