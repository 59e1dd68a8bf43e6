//! Linux reads back what was put in, and goes on from there.

use super::*;
use crate::mkfs::tests::linux::Loop;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Builds into a file.
fn image(dir: &Path, source: &Made, size: u64, words: &str) -> std::path::PathBuf {
    let path = dir.join("img");
    let _ = std::fs::remove_file(&path);
    std::fs::File::create(&path).and_then(|f| f.set_len(size)).expect("image");
    let device = harness::open(&path);
    build(&device, &mut source.clone(), &options(words), &mut go_on).expect("built");
    path
}

#[test]
fn linux_reads_everything_back() {
    if !harness::have("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let source = everything();
    for words in [
        "-b 4096",
        "-b 1024",
        "-t ext2 -b 2048",
        "-b 4096 -O ^metadata_csum -I 128",
        "-b 1024 -O bigalloc -C 8192",
    ] {
        let path = image(dir.path(), &source, 100 << 20, words);
        let Some(mut attached) = Loop::attach(&path) else { return };
        let at = dir.path().join("mnt");
        if !attached.mount(&at, "ro") {
            return;
        }
        let tree = list(&mut source.clone(), &options("")).expect("list");
        for (name, what, xattrs) in &source.entries {
            let place = at.join(OsStr::from_bytes(name));
            let found = place.symlink_metadata().unwrap_or_else(|e| panic!("{place:?}: {e}"));
            let node =
                tree.node(tree.find(name.strip_prefix(b".").unwrap_or(name)).expect("in the tree"));
            assert_eq!((found.uid(), found.gid()), (node.meta.uid, node.meta.gid), "{place:?}");
            assert_eq!(found.mode() & 0o7777, u32::from(node.meta.mode), "{place:?}");
            assert_eq!(found.mtime(), node.meta.mtime.sec);
            if !words.contains("-I 128") {
                assert_eq!(found.mtime_nsec(), i64::from(node.meta.mtime.nsec), "{place:?}");
            }
            let times = tree.times(node.meta.times);
            assert_eq!(found.atime(), times.atime.unwrap_or(node.meta.mtime).sec);
            let nlink = u64::from(node.nlink) + u64::from(name == b".");
            assert_eq!(found.nlink(), nlink, "{place:?}");
            for (name, value) in xattrs {
                let mut buf = vec![0; 4096];
                let len = rustix::fs::lgetxattr(&place, *name, &mut buf[..]).expect("attribute");
                assert_eq!(&buf[..len], value, "{name} of {place:?}");
            }
            let kind = found.file_type();
            match what {
                What::Dir => assert!(kind.is_dir()),
                What::File(bytes) => {
                    assert!(&std::fs::read(&place).expect("read") == bytes, "{place:?}");
                }
                What::Sparse(size, pieces) => {
                    assert_eq!(found.size(), *size);
                    let blocks = 8 * pieces.len() as u64 * 5;
                    assert!(found.blocks() <= blocks, "{place:?}: {} sectors", found.blocks());
                    let file = std::fs::File::open(&place).expect("open");
                    for (start, bytes) in pieces {
                        let mut buf = vec![0; bytes.len()];
                        file.read_exact_at(&mut buf, *start).expect("read");
                        assert!(&buf == bytes, "{place:?}");
                    }
                }
                What::Link(target) => {
                    let read = std::fs::read_link(&place).expect("link");
                    assert_eq!(read.as_os_str().as_bytes(), target);
                }
                What::Hard(to) => {
                    assert_eq!(found.ino(), at.join(to).metadata().expect("stat").ino());
                }
                What::Char(major, minor) => {
                    assert!(kind.is_char_device());
                    assert_eq!(found.rdev(), rustix::fs::makedev(*major, *minor));
                }
                What::Block(major, minor) => {
                    assert!(kind.is_block_device());
                    assert_eq!(found.rdev(), rustix::fs::makedev(*major, *minor));
                }
                What::Fifo => assert!(kind.is_fifo()),
                What::Socket => assert!(kind.is_socket()),
            }
        }
        attached.unmount();
        drop(attached);
        harness::assert_clean(&path, words);
    }
}

/// Full leaves and nodes are legal: Linux finds every name, and divides them when names come.
#[test]
fn linux_goes_on_in_full_directories() {
    if !harness::have("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut source = Made::default();
    for i in 0..30_000 {
        source.add(format!("d/a name of some length, number {i}"), What::File(Vec::new()));
    }
    for words in [
        "-b 1024",
        "-b 4096",
        "-b 1024 -O ^metadata_csum",
        "-b 1024 -O large_dir",
        "-b 1024 -O bigalloc -C 2048",
    ] {
        let path = image(dir.path(), &source, 60 << 20, words);
        let Some(mut attached) = Loop::attach(&path) else { return };
        let at = dir.path().join("mnt");
        if !attached.mount(&at, "rw") {
            return;
        }
        let d = at.join("d");
        for i in 0..30_000 {
            let name = d.join(format!("a name of some length, number {i}"));
            assert!(name.symlink_metadata().is_ok(), "{words}: {name:?}");
        }
        for i in 0..1000 {
            std::fs::write(d.join(format!("new {i}")), b"x").expect("create");
            std::fs::remove_file(d.join(format!("a name of some length, number {}", i * 17)))
                .expect("unlink");
        }
        assert_eq!(std::fs::read_dir(&d).expect("list").count(), 30_000);
        attached.unmount();
        drop(attached);
        harness::assert_clean(&path, words);
    }
}

/// A directory of this machine, beside what mke2fs -d makes of it.
#[test]
fn a_directory_of_the_host() {
    if !harness::have("e2fsck") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("a/b/c")).expect("mkdir");
    for i in 0..500 {
        std::fs::write(root.join(format!("a/{i}")), noise(i * 13, 1)).expect("write");
    }
    let mut source = DirSource::open(&root, DirOptions::default()).expect("source");
    let path = dir.path().join("img");
    std::fs::File::create(&path).and_then(|f| f.set_len(30 << 20)).expect("image");
    let device = harness::open(&path);
    let built = build(&device, &mut source, &options(""), &mut go_on).expect("built");
    assert_eq!(built.files, 504);
    harness::assert_clean(&path, "a directory");
}

/// Attributes that do not fit into a block.
#[test]
fn long_attributes_are_read_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut source = Made::default();
    source.add(".", What::Dir);
    for i in 0..40usize {
        source
            .add(format!("file {i}"), What::File(noise(10, i as u32)))
            .with("user.long", &noise(65_536 - 700 * (i % 5), 1))
            .with("user.longer", &noise(3000, 1))
            .with("user.short", b"x");
    }
    // One block of attributes is too small for so many files.
    for i in 0..1100 {
        source.add(format!("shared/{i}"), What::Fifo).with("trusted.v", &noise(9000, 7));
        source.with("trusted.fill", &noise(900, 1)).with("trusted.more", &noise(85, 1));
    }
    let refused = made(&source, 40 << 20, &options("-b 1024"));
    let error = refused.expect_err("too long").to_string();
    assert!(error.contains("-O ea_inode"), "{error}");
    for words in ["-b 1024 -O ea_inode", "-b 4096 -O ea_inode", "-b 1024 -I 128 -O ea_inode"] {
        let (device, built) = made(&source, 40 << 20, &options(words)).expect(words);
        check(&device, words);
        assert!(built.notes.is_empty(), "{words}: {:?}", built.notes);
        let path = image(dir.path(), &source, 40 << 20, words);
        if harness::have("e2fsck") {
            harness::assert_clean(&path, words);
        }
        let Some(mut attached) = Loop::attach(&path) else { return };
        let at = dir.path().join("mnt");
        if !attached.mount(&at, "ro") {
            return;
        }
        for (name, _, xattrs) in source.entries.iter().filter(|(_, _, xattrs)| !xattrs.is_empty()) {
            let place = at.join(OsStr::from_bytes(name));
            for (name, value) in xattrs {
                let mut buf = vec![0; 65_536];
                let len = rustix::fs::lgetxattr(&place, *name, &mut buf[..]).expect("attribute");
                assert!(&buf[..len] == value, "{name} of {place:?}");
            }
        }
    }
}
