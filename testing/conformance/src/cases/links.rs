//! Hard links, their limits, and files without a name.

use rustix::fs::OFlags;

use super::{Case, EXT4, PLAIN, RW, case, look, look_all, mkdir, put};
use crate::Transcript;
use crate::posix::Posix;

pub(super) const CASES: &[Case] = &[
    case("hard links", EXT4, hard_links),
    case("unnamed files get a name once", EXT4, unnamed),
    Case { name: "too many links", volumes: &["links"], run: super::Run::Remounting(too_many) },
    Case {
        name: "too many directories",
        volumes: &["dirs", "dirs-"],
        run: super::Run::Remounting(uncountable),
    },
];

fn hard_links(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", b"x");
    mkdir(fs, "dir/sub");
    for n in 0..30 {
        t.note("link", fs.link("file", &format!("dir/link{n}")));
    }
    look(t, fs, "file");
    t.note("link of a directory", fs.link("dir", "dir2"));
    t.note("onto a name", fs.link("file", "dir/link0"));
    t.note("onto a directory", fs.link("file", "dir"));
    t.note("onto itself", fs.link("file", "file"));
    t.note("unlink the first", fs.unlink("file"));
    look(t, fs, "dir/link3");
    t.note("remove", fs.remove_all("dir"));
    look_all(t, fs, ".");
    // A stranger may not link what it could not write (protected_hardlinks).
    super::chmod(fs, ".", 0o777);
    for (name, mode) in
        [("open", 0o666), ("closed", 0o644), ("set-uid", 0o4777), ("set-gid", 0o2777)]
    {
        put(fs, name, b"x");
        super::chmod(fs, name, mode);
        super::by(fs, 1000, 1000, |fs| t.note(name, fs.link(name, &format!("{name}-link"))));
    }
}

fn unnamed(fs: &dyn Posix, t: &mut Transcript) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = fs.open(".", flags, 0o640).unwrap();
    t.note("write", fs.write(file, b"contents"));
    t.note("stat", fs.fstat(file).map(|s| (s.kind, format!("{:o}", s.mode), s.nlink, s.size)));
    look_all(t, fs, ".");
    t.note("onto a name", fs.put("taken", b"x").and_then(|()| fs.link_fd(file, "taken")));
    t.note("link", fs.link_fd(file, "named"));
    t.note("links", fs.fstat(file).map(|s| s.nlink));
    t.note("link again", fs.link_fd(file, "second"));
    t.note("unlink", fs.unlink("named"));
    look_all(t, fs, ".");
    t.note("read", fs.text("second"));
    fs.close(file);

    let closed = fs.open(".", flags | OFlags::EXCL, 0o640).unwrap();
    t.note("link of an exclusive one", fs.link_fd(closed, "never"));
    t.note("in a file", fs.try_open("second", flags, 0o640));
    t.note("read-only", fs.try_open(".", OFlags::TMPFILE | OFlags::RDONLY, 0o640));
    t.note("in nothing", fs.try_open("missing", flags, 0o640));
    fs.close(closed);

    // A file that lost its last name cannot get one again.
    let lost = fs.open("lost", OFlags::CREATE | RW, 0o640).unwrap();
    fs.unlink("lost").unwrap();
    t.note("link of a deleted file", fs.link_fd(lost, "back"));
    fs.close(lost);
    mkdir(fs, "dir");
    let dir = fs.open("dir", OFlags::RDONLY, 0).unwrap();
    t.note("link of an open directory", fs.link_fd(dir, "dir2"));
    fs.close(dir);
    look_all(t, fs, ".");
}

fn too_many(fs: &dyn Posix, t: &mut Transcript) {
    for n in 0..4 {
        t.note(&format!("link {n}"), fs.link("file", &format!("link{n}")));
    }
    look(t, fs, "file");
    put(fs, "other", b"x");
    t.note("rename needs no link", fs.rename("link1", "renamed", PLAIN));
    t.note("unlink", fs.unlink("link0"));
    t.note("link again", fs.link("file", "again"));
    t.note("and again", fs.link("file", "again2"));
    look(t, fs, "file");
}

/// With dir_nlink an indexed directory of more than 65000 subdirectories counts one link, for ever.
fn uncountable(fs: &dyn Posix, t: &mut Transcript) {
    for n in 0..4 {
        t.note(&format!("mkdir {n}"), fs.mkdir(&format!("dir/more{n}"), 0o755));
        look(t, fs, "dir");
    }
    t.note("rmdir", fs.rmdir("dir/more0"));
    look(t, fs, "dir");
    fs.mkdir("outside", 0o755).unwrap();
    t.note("move in", fs.rename("outside", "dir/inside", PLAIN));
    look(t, fs, "dir");
    fs.mkdir("outside2", 0o755).unwrap();
    t.note("move in", fs.rename("outside2", "dir/inside2", PLAIN));
    look(t, fs, "dir");
    t.note("move out", fs.rename("dir/inside", "out", PLAIN));
    look(t, fs, "dir");
}
