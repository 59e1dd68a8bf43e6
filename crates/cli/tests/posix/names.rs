//! Names: rename with its flags, links, limits, and the errnos of unlink and rmdir.

use crate::transcript::Transcript;
use crate::{compare, compare_prepared};
use extol_testkit::{debugfs, run_ok, tool};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Kind, links and size class of a name, or its absence.
fn look(t: &mut Transcript, root: &Path, name: &str) {
    let seen = root.join(name).symlink_metadata().map(|m| {
        (
            format!("{:?}", m.file_type()).replace("FileType ", ""),
            m.nlink(),
            if m.is_dir() { 0 } else { m.size() },
        )
    });
    t.note(name, seen);
}

fn look_all(t: &mut Transcript, root: &Path) {
    let mut names: Vec<String> = root
        .read_dir()
        .expect("readdir")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    t.value("names", &names);
    for name in names {
        look(t, root, &name);
    }
}

#[test]
fn rename_in_all_variants() {
    compare(&["-t", "ext4"], |root, t| {
        let p = |name: &str| root.join(name);
        for name in ["a", "b", "c"] {
            std::fs::write(p(name), name.repeat(name.as_bytes()[0] as usize)).unwrap();
        }
        std::fs::create_dir_all(p("dir/sub/deeper")).unwrap();
        std::fs::create_dir_all(p("empty")).unwrap();
        std::fs::create_dir_all(p("full/x")).unwrap();
        std::fs::hard_link(p("a"), p("a-link")).unwrap();
        symlink("a", p("sym")).unwrap();

        let mut go = |from: &str, to: &str, flags: RenameFlags| {
            let done = rustix::fs::renameat_with(CWD, p(from), CWD, p(to), flags);
            t.note(&format!("rename {from} {to} {flags:?}"), done);
        };
        let plain = RenameFlags::empty();
        go("a", "b", RenameFlags::NOREPLACE);
        go("missing", "b", plain);
        go("a", "a", plain);
        go("a", "a-link", plain);
        go("a", "b", plain);
        go("b", "c", RenameFlags::EXCHANGE);
        go("b", "nothing", RenameFlags::EXCHANGE);
        go("b", "dir", RenameFlags::EXCHANGE);
        go("b", "dir", RenameFlags::EXCHANGE);
        go("b", "c", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
        go("b", "new", RenameFlags::NOREPLACE);
        go("new", "b", plain);
        go("dir", "b", plain);
        go("b", "dir", plain);
        go("dir", "dir/sub/inside", plain);
        go("dir", "dir", plain);
        go("dir/sub", "full", plain);
        go("dir/sub", "empty", plain);
        go("empty/deeper", "up", plain);
        go("up", "dir/down", plain);
        go("dir/down/..", "x", plain);
        go("dir/.", "x", plain);
        go("b", "dir/missing/x", plain);
        go("b", "c/x", plain);
        go("sym", "sym2", plain);
        go("empty", "dir/down", RenameFlags::EXCHANGE);
        go("c", "gone", RenameFlags::WHITEOUT);
        go(".", "x", plain);
        go("b", &"n".repeat(256), plain);
        go("b", &"n".repeat(255), plain);
        look_all(t, root);
        look_all(t, &p("dir"));
        look_all(t, &p("full"));
        t.note("read", std::fs::read_to_string(p("gone")));
        t.note("dotdot", p("dir/down/..").canonicalize().map(|c| c.ends_with("dir")));
    });
}

#[test]
fn a_directory_that_moves_has_the_right_parent_and_links() {
    compare(&["-t", "ext4"], |root, t| {
        for parent in ["one", "two"] {
            std::fs::create_dir(root.join(parent)).unwrap();
        }
        for n in 0..300 {
            // Large enough for a hash tree, so that `..` sits in its root block.
            std::fs::create_dir_all(root.join(format!("one/child/{n:060}"))).unwrap();
        }
        t.note("move", std::fs::rename(root.join("one/child"), root.join("two/moved")));
        let inode = |path: &str| std::fs::metadata(root.join(path)).unwrap().ino();
        assert_eq!(inode("two/moved/.."), inode("two"));
        for name in ["one", "two", "two/moved", "."] {
            look(t, root, name);
        }
        t.note("remove", std::fs::remove_dir_all(root.join("two")));
        look(t, root, ".");
    });
}

#[test]
fn unnamed_files_get_a_name_once() {
    compare(&["-t", "ext4"], |root, t| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let mode = Mode::from_raw_mode(0o640);
        let file = rustix::fs::open(root, flags, mode).unwrap();
        t.note("write", rustix::io::write(&file, b"contents"));
        let stat = rustix::fs::fstat(&file).unwrap();
        t.value("links, size", (stat.st_nlink, stat.st_size));
        let by_fd = |fd: &rustix::fd::OwnedFd| {
            use std::os::fd::AsRawFd;
            format!("/proc/self/fd/{}", fd.as_raw_fd())
        };
        let link = |fd: &rustix::fd::OwnedFd, name: &str| {
            rustix::fs::linkat(CWD, by_fd(fd), CWD, root.join(name), AtFlags::SYMLINK_FOLLOW)
        };
        t.note("link", link(&file, "named"));
        t.note("link again", link(&file, "second"));
        look_all(t, root);
        t.note("read", std::fs::read_to_string(root.join("named")));

        let closed = rustix::fs::open(root, flags | OFlags::EXCL, mode).unwrap();
        t.note("link of an exclusive one", link(&closed, "never"));
        t.note("in a file", rustix::fs::open(root.join("named"), flags, mode).map(drop));
        t.note("read-only", rustix::fs::open(root, OFlags::TMPFILE | OFlags::RDONLY, mode).map(drop));

        // A file that lost its last name cannot get one again.
        let lost = rustix::fs::open(root.join("lost"), OFlags::CREATE | OFlags::RDWR, mode).unwrap();
        std::fs::remove_file(root.join("lost")).unwrap();
        t.note("link of a deleted file", link(&lost, "back"));
        look_all(t, root);
    });
}

#[test]
fn errnos_of_unlink_rmdir_mkdir_and_link() {
    compare(&["-t", "ext4"], |root, t| {
        let p = |name: &str| root.join(name);
        std::fs::write(p("file"), b"x").unwrap();
        std::fs::create_dir_all(p("dir/full")).unwrap();
        symlink("dir", p("to-dir")).unwrap();
        symlink("loop2", p("loop1")).unwrap();
        symlink("loop1", p("loop2")).unwrap();
        symlink("nowhere", p("dangling")).unwrap();
        let mode = Mode::from_raw_mode(0o755);
        for name in [
            "file",
            "dir",
            "dir/full",
            "to-dir",
            "missing",
            "file/x",
            "loop1/x",
            "dangling/x",
            ".",
            "dir/.",
            "dir/..",
        ] {
            t.note(&format!("mkdir {name}"), rustix::fs::mkdir(p(name), mode));
            t.note(&format!("open {name}"), rustix::fs::open(p(name), OFlags::RDONLY, mode).map(drop));
            t.note(
                &format!("open nofollow {name}"),
                rustix::fs::open(p(name), OFlags::RDONLY | OFlags::NOFOLLOW, mode).map(drop),
            );
            t.note(
                &format!("open directory {name}"),
                rustix::fs::open(p(name), OFlags::RDONLY | OFlags::DIRECTORY, mode).map(drop),
            );
            t.note(&format!("open write {name}"), rustix::fs::open(p(name), OFlags::WRONLY, mode).map(drop));
            let exclusive = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            t.note(&format!("open excl {name}"), rustix::fs::open(p(name), exclusive, mode).map(drop));
            t.note(&format!("link to {name}"), rustix::fs::link(p("file"), p(name)));
            t.note(&format!("symlink {name}"), symlink("x", p(name)));
            t.note(
                &format!("link of {name}"),
                rustix::fs::link(p(name), p(&format!("link-{}", name.replace('/', "-")))),
            );
            t.note(&format!("rmdir {name}"), rustix::fs::rmdir(p(name)));
            t.note(&format!("unlink {name}"), rustix::fs::unlink(p(name)));
        }
        t.note("rmdir with a slash", rustix::fs::rmdir(p("dir/")));
        t.note("readlink of a file", rustix::fs::readlink(p("file"), Vec::new()));
        t.note(
            "truncate a directory",
            rustix::fs::open(p("dir"), OFlags::WRONLY | OFlags::TRUNC, mode).map(drop),
        );
        look_all(t, root);
    });
}

#[test]
fn lengths_of_names_and_targets() {
    for block_size in ["1024", "4096"] {
        compare(&["-t", "ext4", "-b", block_size], |root, t| {
            for len in [1, 254, 255, 256, 300] {
                let path = root.join("n".repeat(len));
                t.note(&format!("create {len}"), File::create(&path).map(drop));
                t.note(&format!("mkdir {len}"), std::fs::create_dir(root.join("d".repeat(len))));
                t.note(&format!("lookup {len}"), path.metadata().map(|m| m.len()));
            }
            for len in [1, 59, 60, 61, 1000, 1022, 1023, 1024, 1025, 2000, 4094, 4095] {
                let path = root.join(format!("sym{len}"));
                t.note(&format!("symlink {len}"), symlink("t".repeat(len), &path));
                t.note(&format!("readlink {len}"), std::fs::read_link(&path).map(|p| p.as_os_str().len()));
                t.note(&format!("size {len}"), path.symlink_metadata().map(|m| (m.size(), m.blocks())));
            }
        });
    }
}

/// 65000 names would take long to make; debugfs sets the count instead.
#[test]
fn too_many_links() {
    let prepare = |image: &extol_testkit::Image| {
        for request in ["write /dev/null file", "mkdir dir", "sif file links_count 64998"] {
            run_ok(tool("debugfs").args(["-w", "-R", request]).arg(&image.path));
        }
        assert!(debugfs(image, "stat file").contains("Links: 64998"), "debugfs must have set the count");
    };
    // The link count is wrong on purpose, so e2fsck has something to say.
    compare_prepared(
        &["-t", "ext4"],
        prepare,
        |_| false,
        |root, t| {
            for n in 0..4 {
                t.note(
                    &format!("link {n}"),
                    std::fs::hard_link(root.join("file"), root.join(format!("link{n}"))),
                );
            }
            look(t, root, "file");
            t.note("unlink", std::fs::remove_file(root.join("link0")));
            t.note("link again", std::fs::hard_link(root.join("file"), root.join("again")));
            look(t, root, "file");
        },
    );
}

/// With dir_nlink an indexed directory of more than 65000 subdirectories counts one link, for ever.
#[test]
fn a_directory_with_uncountable_subdirectories() {
    for (features, name) in [("dir_nlink", "with"), ("^dir_nlink", "without")] {
        let prepare = |image: &extol_testkit::Image| {
            // Linux fills the directory until it is indexed; then the count is set just below the limit.
            let scratch = extol_testkit::Scratch::new();
            let mount = extol_testkit::KernelMount::mount(image, &scratch.dir("prepare"), &[]);
            for n in 0..40 {
                std::fs::create_dir_all(mount.path().join(format!("dir/{n:0200}"))).unwrap();
            }
            mount.unmount();
            run_ok(tool("debugfs").args(["-w", "-R", "sif dir links_count 64998"]).arg(&image.path));
        };
        compare_prepared(
            &["-t", "ext4", "-b", "1024", "-O", features],
            prepare,
            |_| false,
            |root, t| {
                t.value("feature", name);
                let dir = root.join("dir");
                for n in 0..4 {
                    t.note(&format!("mkdir {n}"), std::fs::create_dir(dir.join(format!("more{n}"))));
                    look(t, root, "dir");
                }
                t.note("rmdir", std::fs::remove_dir(dir.join("more0")));
                look(t, root, "dir");
                std::fs::create_dir(root.join("outside")).unwrap();
                t.note("move in", std::fs::rename(root.join("outside"), dir.join("inside")));
                look(t, root, "dir");
            },
        );
    }
}
