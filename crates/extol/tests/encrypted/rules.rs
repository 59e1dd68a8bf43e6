//! What an encrypted directory takes, and what not: Linux and Extol answer the same.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use extol::path::DirItem;
use extol::vfs::{Creds, Fallocate, FileKind, NewNode};
use extol::{Ext4, FsError, MountOptions, OpenOptions};
use extol_testkit::{
    Image, KernelMount, Scratch, add_encryption_key, e2fsck, require, run_ok,
    set_encryption_policy, tool,
};

use crate::subject::{Change, Extol, Linux, Subject};
use crate::writes::{self, Kind, close, open};
use crate::{KEY_OF_V1, NEEDS, policy};

const PERM: i32 = 1;
const XDEV: i32 = 18;

/// Two trees by different policies, and a plain one, with the same in each.
fn make(scratch: &Scratch) -> Image {
    let options = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "encrypt"];
    let image = Image::mke2fs(scratch.path(), "rules.img", 32 << 20, &options);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let identifier = add_encryption_key(&at, None, &[7; 64]);
    for (name, flags) in [("plain", None), ("one", Some(3)), ("other", Some(0))] {
        let dir = at.join(name);
        fs::create_dir(&dir).unwrap();
        if let Some(flags) = flags {
            let mut policy = policy(identifier);
            policy[3] = flags;
            set_encryption_policy(&dir, &policy).unwrap();
        }
        for file in ["a", "b", "c", "d"] {
            fs::write(dir.join(file), name).unwrap();
        }
        fs::create_dir_all(dir.join("dir/below")).unwrap();
        fs::create_dir(dir.join("empty")).unwrap();
        symlink("target", dir.join("link")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let cwd = rustix::fs::CWD;
        rustix::fs::mknodat(cwd, dir.join("fifo"), fifo, 0o600.into(), 0).unwrap();
    }
    mount.unmount();
    image
}

/// Each with what Linux answers (0: it is done).
fn changes() -> Vec<(Change, i32)> {
    let rename = |from: &str, to: &str| Change::Rename { from: from.into(), to: to.into() };
    let link = |from: &str, to: &str| Change::Link { from: from.into(), to: to.into() };
    let swap = |from: &str, to: &str| Change::Exchange { from: from.into(), to: to.into() };
    vec![
        (rename("plain/a", "one/new"), XDEV),
        (rename("plain/a", "one/a"), XDEV),
        (rename("other/a", "one/new"), XDEV),
        (rename("other/dir", "one/new"), XDEV),
        (rename("other/link", "one/new"), XDEV),
        (rename("plain/dir", "one/empty"), XDEV),
        (rename("one/a", "plain/out"), 0),
        (rename("plain/out", "one/a"), 0),
        (rename("one/dir", "plain/out"), 0),
        (rename("plain/out", "one/dir"), 0),
        (rename("one/dir", "one/empty"), 0),
        (rename("one/empty/below", "one/dir"), 0),
        (rename("plain/fifo", "one/from the plain one"), 0),
        (rename("other/fifo", "one/from the other"), 0),
        (swap("one/b", "plain/b"), XDEV),
        (swap("plain/b", "one/b"), XDEV),
        (swap("one/b", "other/b"), XDEV),
        (swap("one/b", "one/dir"), 0),
        (swap("one/fifo", "plain/fifo"), 2),
        (link("plain/c", "one/new"), XDEV),
        (link("other/c", "one/new"), XDEV),
        (link("other/link", "one/new"), XDEV),
        (link("one/c", "plain/new"), 0),
        (link("plain/new", "one/back"), 0),
        (link("one/c", "one/empty/deep"), 0),
    ]
}

#[test]
fn an_encrypted_directory_takes_what_linux_lets_it_take() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch);
    let copy = image.copy_as("of linux.img");
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&copy, &at, &[]);
    add_encryption_key(&at, None, &[7; 64]);
    for (change, wanted) in changes() {
        assert_eq!(Linux(&at).make(&change).err().unwrap_or(0), wanted, "Linux: {change:?}");
    }
    let wanted = Linux(&at).seen();
    mount.unmount();

    let fs = open(&image, "");
    let extol = Extol(&fs, Path::new("/"));
    for (change, wanted) in changes() {
        assert_eq!(extol.make(&change).err().unwrap_or(0), wanted, "Extol: {change:?}");
    }
    let file = fs.open_file("/one/d", OpenOptions::new().write(true)).unwrap();
    file.set_len(9000).unwrap();
    for mode in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        let refused = file.allocate(mode, 1024, 1024).unwrap_err();
        assert!(matches!(refused, FsError::NotSupported(_)), "{refused}");
    }
    drop(file);
    fs.write_file("/one/d", "one").unwrap();
    close(fs);
    e2fsck(&image).assert_clean("Extol's changes");
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    add_encryption_key(&at, None, &[7; 64]);
    assert!(Linux(&at).seen() == wanted);
    mount.unmount();
}

/// A file without a name inherits the policy, and then gets a name only where it may have one.
#[test]
fn a_file_without_a_name_is_encrypted() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch);
    let fs = open(&image, "");
    let file = fs.create_unnamed_file("/one").unwrap();
    file.write_all_at(b"not named", 0).unwrap();
    let refused = file.link_to("/other/new").unwrap_err();
    assert_eq!(refused.errno(), XDEV);
    file.link_to("/one/new").unwrap();
    drop(file);
    let pipe = fs.create_node("/one/pipe", NewNode::Fifo, 0o600, Creds::default()).unwrap();
    drop(pipe);
    close(fs);
    e2fsck(&image).assert_clean("a file that was not named");
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    add_encryption_key(&at, None, &[7; 64]);
    assert_eq!(fs::read(at.join("one/new")).unwrap(), b"not named");
    assert!(fs::symlink_metadata(at.join("one/pipe")).is_ok());
    mount.unmount();
}

/// A directory that got a name in a tree of another policy, without Linux.
#[test]
fn what_does_not_belong_into_an_encrypted_directory_is_refused() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch);
    for request in ["ln /plain/dir /one/sixteen-letters-", "ln /plain/a /one/-srettel-neetxis"] {
        let said = run_ok(tool("debugfs").args(["-w", "-R", request]).arg(&image.path));
        assert!(!said.contains("ln:"), "{said}");
    }
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    let of_linux = entries_with_errors(|| {
        let entries = fs::read_dir(at.join("one")).unwrap().map(Result::unwrap);
        entries.map(|e| (e.file_name(), stat(&e.path()))).collect()
    });
    let opened_by_linux = entries_with_errors(|| {
        let entries = fs::read_dir(at.join("one")).unwrap().map(Result::unwrap);
        let files = entries.filter(|e| e.path().is_file());
        let open = |path: &Path| fs::File::open(path).err();
        files
            .map(|e| (e.file_name(), open(&e.path()).map_or(0, |e| e.raw_os_error().unwrap())))
            .collect()
    });
    mount.unmount();
    let fs = Ext4::open_path(&image.path, &MountOptions::default().read_only()).unwrap();
    let of_extol = entries_with_errors(|| {
        let entries = fs.read_dir("/one").unwrap().map(Result::unwrap);
        let error = |e: &DirItem| fs.symlink_metadata(e.path()).err();
        entries.map(|e| (e.file_name(), error(&e).map_or(0, |e| e.errno()))).collect()
    });
    assert_eq!(of_extol, of_linux);
    assert_eq!(of_linux.iter().filter(|(_, error)| *error == PERM).count(), 1);
    // A regular file is seen, and not opened.
    let is_file = |e: &DirItem| e.metadata().is_ok_and(|attr| attr.kind == FileKind::Regular);
    let of_extol = entries_with_errors(|| {
        let entries = fs.read_dir("/one").unwrap().map(Result::unwrap).filter(is_file);
        let error = |e: &DirItem| fs.read_file(e.path()).err();
        entries.map(|e| (e.file_name(), error(&e).map_or(0, |e| e.errno()))).collect()
    });
    close(fs);
    assert_eq!(of_extol, opened_by_linux);
    assert_eq!(opened_by_linux.iter().filter(|(_, error)| *error == PERM).count(), 1);
}

type Answers = Vec<(std::ffi::OsString, i32)>;

fn entries_with_errors(list: impl FnOnce() -> Answers) -> Answers {
    let mut all = list();
    all.sort();
    all
}

fn stat(path: &Path) -> i32 {
    fs::symlink_metadata(path).err().map_or(0, |error| error.raw_os_error().unwrap())
}

/// In policies of version 1 a short key is one for names, and for the longer keys of contents not.
#[test]
fn a_key_that_is_too_short_for_contents_makes_directories_alone() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let kind = Kind { features: "encrypt", block_size: "1024", inode_size: "256", policy: None };
    let image = writes::make(&scratch, &kind);
    let mut options = MountOptions::default();
    options.keys.add_as(*b"descript", &KEY_OF_V1[..32]).unwrap();
    let fs = Ext4::open_path(&image.path, &options).unwrap();
    fs.create_dir("/tree/dir").unwrap();
    assert_eq!(fs.write_file("/tree/dir/new", "x").unwrap_err(), FsError::NoKey);
    assert_eq!(fs.create_unnamed_file("/tree").err(), Some(FsError::NoKey));
    fs.symlink("target", "/tree/dir/link").unwrap();
    close(fs);
    e2fsck(&image).assert_clean("nothing is left of the file");
    let fs = writes::open(&image, "");
    assert_eq!(fs.read_link("/tree/dir/link").unwrap(), Path::new("target"));
    assert_eq!(fs.read_dir("/tree/dir").unwrap().count(), 1);
    close(fs);
}
