//! Trees that Linux encrypted. Without their key Linux and Extol show the same; with it each reads
//! what the other one wrote.

mod ciphers;
mod crash;
mod folded;
mod guest;
mod policies;
mod rules;
mod subject;
mod writes;

use extol::vfs::{Fallocate, FileKind, FileSystem, FsError, RenameFlags, SetAttr};
use extol::{Ext4, MountOptions};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, add_encryption_key, e2fsck, require, set_encryption_policy,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use writes::close;

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs"), Need::Tool("e2fsck")];
const ENOKEY: i32 = 126;
/// A key of version 1 has halves that differ: Linux refuses others in XTS mode.
const KEY_OF_V1: [u8; 64] = *b"a key of sixty-four bytes, no two of its blocks are the same....";

/// What is seen of a file: inode, size, and the target of a symbolic link.
type Seen = (u64, u64, Option<PathBuf>);

/// A policy of version 2: AES-256 in XTS and CTS mode, names padded to 32 bytes.
fn policy(identifier: [u8; 16]) -> Vec<u8> {
    [&[2, 1, 4, 3, 0, 0, 0, 0][..], &identifier].concat()
}

/// An encrypted tree with names of many lengths, some links and files, and a directory of many
/// names.
fn make(scratch: &Scratch, features: &str) -> Image {
    let kind = if features.contains("^extents") { "ext2" } else { "ext4" };
    let options = ["-t", kind, "-b", "1024", "-I", "256", "-N", "4096", "-O", features];
    let image = Image::mke2fs(scratch.path(), "encrypted.img", 32 << 20, &options);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let dir = at.join("dir");
    fs::create_dir(&dir).unwrap();
    let identifier = add_encryption_key(&at, None, &[7; 64]);
    set_encryption_policy(&dir, &policy(identifier)).unwrap();
    for len in 1..=255 {
        let name = OsString::from_vec(vec![b'n'; len]);
        fs::write(dir.join(name), [b'x'; 700]).unwrap();
    }
    for len in [1, 14, 15, 30, 31, 57, 58, 59, 120, 200, 1021] {
        symlink("t".repeat(len), dir.join(format!("link of {len}"))).unwrap();
    }
    fs::create_dir(dir.join("small")).unwrap();
    fs::write(dir.join("small/file"), "contents").unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    for number in 0..600 {
        fs::create_dir(dir.join(format!("many/a rather long name number {number}"))).unwrap();
    }
    mount.unmount();
    image
}

/// What Linux shows of a directory, with the directories in it.
fn linux(dir: &Path) -> BTreeMap<OsString, Seen> {
    let seen = |path: &Path| {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.ino(), meta.len(), fs::read_link(path).ok())
    };
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), seen(&entry.path()))).collect()
}

/// What Extol shows of it. Each name is looked up.
fn extol(fs: &Arc<Ext4>, dir: &Path) -> BTreeMap<OsString, Seen> {
    let seen = |path: &Path| {
        let attr = fs.symlink_metadata(path).unwrap();
        (u64::from(attr.id.ino), attr.size, fs.read_link(path).ok())
    };
    let entries = fs.read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), seen(&entry.path()))).collect()
}

fn open(image: &Image) -> Arc<Ext4> {
    Ext4::open_path(&image.path, &MountOptions::default().read_only()).unwrap()
}

fn compare(features: &str) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, features);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    let dir = linux(&at.join("dir"));
    let mut below = BTreeMap::new();
    for (name, (ino, ..)) in &dir {
        let path = at.join("dir").join(name);
        if path.is_dir() {
            below.insert(*ino, (Path::new("/dir").join(name), linux(&path)));
        }
    }
    mount.unmount();
    assert_eq!((dir.len(), below.len()), (255 + 11 + 2, 2));

    let fs = open(&image);
    assert_eq!(extol(&fs, Path::new("/dir")), dir);
    for (path, names) in below.values() {
        assert_eq!(&extol(&fs, path), names);
    }
    no_contents(&fs, &dir);
    fs.unmount().unwrap();
}

/// Contents cannot be read, and names that are no entry's are not found.
fn no_contents(fs: &Arc<Ext4>, dir: &BTreeMap<OsString, Seen>) {
    let mut files = 0;
    for name in dir.keys() {
        let path = Path::new("/dir").join(name);
        if fs.symlink_metadata(&path).unwrap().kind == FileKind::Regular {
            assert_eq!(fs.read_file(&path), Err(FsError::NoKey));
            files += 1;
        }
        let other = [name.as_bytes(), b"A="].concat();
        let path = Path::new("/dir").join(OsString::from_vec(other));
        assert_eq!(fs.metadata(&path).err(), Some(FsError::NotFound));
    }
    assert_eq!(files, 255);
    assert_eq!(fs.metadata("/dir/small").err(), Some(FsError::NotFound));
    assert_eq!(fs.metadata("/dir/.").unwrap().kind, FileKind::Directory);
}

#[test]
fn a_tree_without_its_key_looks_as_in_linux() {
    compare("encrypt");
}

#[test]
fn a_tree_without_an_index_looks_as_in_linux() {
    compare("encrypt,^extents,^dir_index");
}

/// Everything that needs the key is refused, and changes nothing.
fn refused(fs: &Arc<Ext4>) {
    fs.write_file("/plain", "contents").unwrap();
    let dir = fs.metadata("/dir").unwrap().id.ino;
    let entries: Vec<_> = fs.read_dir("/dir").unwrap().map(Result::unwrap).collect();
    let file = entries.iter().find(|e| e.kind() == Ok(FileKind::Regular)).unwrap();
    let plain = fs.metadata("/plain").unwrap().id.ino;
    let root = fs.root();
    assert_eq!(fs.write_file("/dir/new", "").unwrap_err(), FsError::NoKey);
    assert_eq!(fs.create_dir("/dir/new"), Err(FsError::NoKey));
    assert_eq!(fs.symlink("target", "/dir/new"), Err(FsError::NoKey));
    assert_eq!(fs.create_dir(file.path()), Err(FsError::Exists));
    assert_eq!(fs.link(plain, dir, b"new").err(), Some(FsError::NoKey));
    let none = RenameFlags::empty();
    assert_eq!(fs.rename(root, b"plain", dir, b"new", none), Err(FsError::NoKey));
    let name = file.file_name();
    assert_eq!(fs.rename(dir, name.as_bytes(), root, b"out", none), Err(FsError::NoKey));
    let swap = RenameFlags::EXCHANGE;
    assert_eq!(fs.rename(root, b"plain", dir, name.as_bytes(), swap), Err(FsError::NoKey));
    assert_eq!(fs.write(file.ino(), 0, b"x").err(), Some(FsError::NoKey));
    let shorter = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(fs.setattr(file.ino(), &shorter).err(), Some(FsError::NoKey));
    let keep = Fallocate::Allocate { keep_size: true };
    assert_eq!(fs.fallocate(file.ino(), keep, 0, 9000).err(), Some(FsError::NoKey));
    // What does not concern contents or names is allowed.
    fs.set_permissions(file.path(), 0o600).unwrap();
    fs.hard_link(file.path(), "/linked").unwrap();
    assert_eq!(fs.read_file("/linked"), Err(FsError::NoKey));
    fs.remove_file("/linked").unwrap();
    fs.rename_path("/dir", "/moved").unwrap();
    fs.rename_path("/moved", "/dir").unwrap();
    fs.remove_file("/plain").unwrap();
}

/// Removes one half of the names, and lets Linux remove the other.
fn remove(features: &str) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, features);
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    refused(&fs);
    let mut left = 0;
    for entry in fs.read_dir("/dir").unwrap() {
        let entry = entry.unwrap();
        if entry.ino() % 2 == 0 {
            left += 1;
        } else if entry.kind() == Ok(FileKind::Directory) {
            fs.remove_dir_all(entry.path()).unwrap();
        } else {
            fs.remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(fs.read_dir("/dir").unwrap().count(), left);
    assert!((50..200).contains(&left), "{left}");
    fs.unmount().unwrap();
    e2fsck(&image).assert_clean("one half is removed");

    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    assert_eq!(linux(&at.join("dir")).len(), left);
    add_encryption_key(&at, None, &[7; 64]);
    for entry in fs::read_dir(at.join("dir")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().as_bytes()[0] == b'n' {
            assert!(fs::read(entry.path()).unwrap() == [b'x'; 700]);
        }
    }
    fs::remove_dir_all(at.join("dir")).unwrap();
    mount.unmount();
    e2fsck(&image).assert_clean("all is removed");
}

#[test]
fn names_are_removed_without_the_key_and_nothing_else_is_changed() {
    remove("encrypt");
}

#[test]
fn names_are_removed_without_the_key_where_there_is_no_index() {
    remove("encrypt,^extents,^dir_index");
}

/// All of a tree: what is seen of each file, and the contents of regular ones.
fn everything(root: &Path) -> BTreeMap<PathBuf, (Seen, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for (name, seen) in linux(&root.join(&dir)) {
            let path = dir.join(name);
            let at = root.join(&path);
            let kind = fs::symlink_metadata(&at).unwrap().file_type();
            if kind.is_dir() {
                dirs.push(path.clone());
            }
            let contents = kind.is_file().then(|| fs::read(&at).unwrap());
            found.insert(path, (seen, contents));
        }
    }
    found
}

/// The same as Extol shows it.
fn everything_of(fs: &Arc<Ext4>, root: &Path) -> BTreeMap<PathBuf, (Seen, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for (name, seen) in extol(fs, &root.join(&dir)) {
            let path = dir.join(name);
            let at = root.join(&path);
            let kind = fs.symlink_metadata(&at).unwrap().kind;
            if kind == FileKind::Directory {
                dirs.push(path.clone());
            }
            let contents = (kind == FileKind::Regular).then(|| fs.read_file(&at).unwrap());
            found.insert(path, (seen, contents));
        }
    }
    found
}

/// Adds files with holes, and ends inside of data units.
fn add_files(dir: &Path) {
    for len in [1, 511, 512, 513, 1023, 1024, 1025, 5000, 700_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        fs::write(dir.join(format!("file of {len}")), bytes).unwrap();
    }
    let file = fs::File::create(dir.join("with holes")).unwrap();
    for at in [0, 3000, 9000, 70_001] {
        file.write_all_at(b"data between holes", at).unwrap();
    }
    file.set_len(100_000).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 100_000, 20_000).unwrap();
}

#[test]
fn a_tree_with_its_key_is_read_as_by_linux() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, "encrypt,stable_inodes");
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let identifier = add_encryption_key(&at, None, &[7; 64]);
    add_encryption_key(&at, Some(*b"descript"), &KEY_OF_V1);
    add_files(&at.join("dir"));
    // Padding, the number of the inode in IVs in both forms, smaller data units, and version 1.
    let v2 = |flags, unit| [&[2, 1, 4, flags, unit, 0, 0, 0][..], &identifier].concat();
    let v1 = [&[0, 1, 4, 2][..], b"descript"].concat();
    let policies = [v2(0, 0), v2(0x0B, 0), v2(0x13, 0), v2(1, 9), v1];
    for (number, policy) in policies.iter().enumerate() {
        let dir = at.join(format!("other {number}"));
        fs::create_dir(&dir).unwrap();
        set_encryption_policy(&dir, policy).unwrap();
        add_files(&dir);
        symlink("somewhere else, and rather far away, so that a block is needed", dir.join("link"))
            .unwrap();
    }
    mount.unmount();
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    add_encryption_key(&at, None, &[7; 64]);
    add_encryption_key(&at, Some(*b"descript"), &KEY_OF_V1);
    let wanted = everything(&at);
    mount.unmount();
    assert!(wanted.len() > 800);

    let mut options = MountOptions::default().read_only();
    options.keys.add(&[7; 64]).unwrap();
    options.keys.add_as(*b"descript", &KEY_OF_V1).unwrap();
    let fs = Ext4::open_path(&image.path, &options).unwrap();
    let found = everything_of(&fs, Path::new("/"));
    for (path, wanted) in &wanted {
        assert!(found.get(path) == Some(wanted), "{}", path.display());
    }
    assert_eq!(found.len(), wanted.len());
    assert_eq!(fs.metadata("/dir/no such name").err(), Some(FsError::NotFound));
    fs.unmount().unwrap();
}

#[test]
fn another_key_is_as_good_as_none() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, "encrypt");
    let mut options = MountOptions::default().read_only();
    options.keys.add(&[8; 64]).unwrap();
    let with_other = Ext4::open_path(&image.path, &options).unwrap();
    let listed = extol(&with_other, Path::new("/dir"));
    close(with_other);
    assert_eq!(listed, extol(&open(&image), Path::new("/dir")));
    options.access.read_only = false;
    let to_write = Ext4::open_path(&image.path, &options).unwrap();
    assert_eq!(to_write.write_file("/dir/new", "x").unwrap_err(), FsError::NoKey);
    close(to_write);
}

#[test]
fn linux_refuses_contents_by_the_same_error() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, "encrypt");
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &["ro"]);
    let (name, _) = linux(&at.join("dir")).into_iter().find(|(_, seen)| seen.1 == 700).unwrap();
    let refused = fs::File::open(at.join("dir").join(name)).unwrap_err();
    mount.unmount();
    assert_eq!(refused.raw_os_error(), Some(ENOKEY));
}
