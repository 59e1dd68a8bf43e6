//! Policies that Extol sets: by the rules of Linux, and Linux uses what is made by them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use extol::encryption::{KeySpec, MasterKey, Policy};
use extol::vfs::{FileSystem as _, Mountable as _, VolumeControl as _};
use extol::{Ext4, FsError, MountOptions, OpenOptions};
use extol_testkit::{
    Image, KernelMount, Scratch, add_encryption_key, e2fsck, encryption_nonce, encryption_policy,
    require, run_ok, set_encryption_policy, tool,
};

use crate::writes::{close, open};
use crate::{KEY_OF_V1, NEEDS, policy};

const INVAL: i32 = 22;

/// The identifier of the key that all tests add.
fn identifier() -> [u8; 16] {
    MasterKey::new(&[7; 64]).unwrap().identifier()
}

fn v2(contents: u8, names: u8, flags: u8, unit: u8) -> Vec<u8> {
    [&[2, contents, names, flags, unit, 0, 0, 0][..], &identifier()].concat()
}

fn v1(contents: u8, names: u8, flags: u8) -> Vec<u8> {
    [&[0, contents, names, flags][..], b"descript"].concat()
}

/// Policies of all kinds, good and bad.
fn policies() -> Vec<Vec<u8>> {
    let mut all = vec![
        [&v2(1, 4, 3, 0)[..8], &[9; 16]].concat(),
        [&[2, 1, 4, 3, 0, 0, 0, 1][..], &identifier()].concat(),
        [&[3, 1, 4, 3, 0, 0, 0, 0][..], &identifier()].concat(),
        [&[1, 1, 4, 3][..], b"descript", &[0; 12]].concat(),
    ];
    let modes = [(1, 4), (5, 6), (7, 8), (9, 9), (1, 10), (1, 6), (5, 4), (4, 4), (0, 0), (2, 4)];
    for (contents, names) in modes {
        all.extend([v2(contents, names, 3, 0), v1(contents, names, 2)]);
    }
    for flags in [0, 4, 8, 16, 32, 12, 24, 64, 128] {
        all.extend([v2(1, 4, flags, 0), v2(9, 9, flags, 0), v1(1, 4, flags), v1(9, 9, flags)]);
    }
    all.extend([0, 8, 9, 10, 11, 12, 13, 255].map(|unit| v2(1, 4, 1, unit)));
    all
}

/// What Extol answers to the bytes of a system call.
fn set(fs: &Arc<Ext4>, path: &str, bytes: &[u8]) -> i32 {
    let ino = fs.metadata(path).unwrap().id.ino;
    let Some(policy) = Policy::from_argument(bytes) else { return INVAL };
    fs.set_encryption(ino, &policy).err().map_or(0, |error| error.errno())
}

fn set_by_linux(path: &Path, bytes: &[u8]) -> i32 {
    set_encryption_policy(path, bytes).err().map_or(0, |error| error.raw_os_error().unwrap())
}

/// Directories that cannot be encrypted, or not by another policy.
const SPECIAL: [&str; 6] = ["", "full", "file", "full/below", "fixed", "lost+found"];

fn compare(features: &str, block_size: &str) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", block_size, "-I", "256", "-O", features];
    let image = Image::mke2fs(scratch.path(), "policies.img", 32 << 20, &options);
    let all = policies();
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    for number in 0..all.len() {
        fs.create_dir(format!("/{number}")).unwrap();
    }
    fs.create_dir("/full").unwrap();
    fs.create_dir("/full/below").unwrap();
    fs.write_file("/file", "x").unwrap();
    fs.create_dir("/fixed").unwrap();
    close(fs);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    run_ok(tool("chattr").arg("+i").arg(at.join("fixed")));
    mount.unmount();

    let copy = image.copy_as("of linux.img");
    let mount = KernelMount::mount(&copy, &at, &[]);
    assert_eq!(add_encryption_key(&at, None, &[7; 64]), identifier());
    let (same, other) = (policy(identifier()), v2(1, 4, 0, 0));
    let mut wanted = Vec::new();
    for (number, bytes) in all.iter().enumerate() {
        let dir = at.join(number.to_string());
        // A second time, and with another policy, or the first that is good.
        let answers = [bytes, bytes, &other].map(|bytes| set_by_linux(&dir, bytes));
        wanted.push((answers, encryption_policy(&dir).ok()));
    }
    let special = SPECIAL.map(|name| set_by_linux(&at.join(name), &same));
    mount.unmount();

    let mut options = MountOptions::default();
    options.keys.add(&[7; 64]).unwrap();
    let fs = Ext4::open_path(&image.path, &options).unwrap();
    for (number, bytes) in all.iter().enumerate() {
        let path = format!("/{number}");
        let answers = [bytes, bytes, &other].map(|bytes| set(&fs, &path, bytes));
        let found = fs.encryption(fs.metadata(&path).unwrap().id.ino).ok();
        let found = found.map(|found| found.context.policy.to_argument());
        assert_eq!((answers, found), wanted[number], "{bytes:?}");
    }
    assert_eq!(SPECIAL.map(|name| set(&fs, &format!("/{name}"), &same)), special);
    close(fs);
    e2fsck(&image).assert_clean("policies");
    let good = wanted.iter().filter(|(answers, _)| answers[0] == 0).count();
    assert!((10..all.len() - 10).contains(&good), "{good}");
}

#[test]
fn a_policy_is_set_where_linux_sets_it() {
    compare("encrypt,stable_inodes", "4096");
}

#[test]
fn a_policy_is_set_where_linux_sets_it_without_stable_inodes_and_with_inline_data() {
    compare("encrypt,inline_data", "1024");
}

#[test]
fn a_volume_without_the_feature_takes_no_policy() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "plain.img", 16 << 20, &["-t", "ext4"]);
    let fs = open(&image, "");
    fs.create_dir("/dir").unwrap();
    let ino = fs.metadata("/dir").unwrap().id.ino;
    let policy = Policy::from_argument(&v2(1, 4, 3, 0)).unwrap();
    assert!(matches!(fs.set_encryption(ino, &policy), Err(FsError::NotSupported(_))));
    assert!(matches!(fs.encryption(ino), Err(FsError::NotSupported(_))));
    close(fs);
}

/// Extol sets the policy of a tree, both write in it, and each reads all of it.
fn shared(options: &[&str], policy: &[u8]) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "shared.img", 32 << 20, options);
    let fs = open(&image, "");
    fs.create_dir("/tree").unwrap();
    // What was there before leaves nothing behind.
    fs.write_file("/tree/by Linux", "in clear text").unwrap();
    fs.remove_file("/tree/by Linux").unwrap();
    assert_eq!(fs.metadata("/tree/by Linux").err(), Some(FsError::NotFound));
    let ino = fs.metadata("/tree").unwrap().id.ino;
    assert_eq!(fs.encryption(ino), Err(FsError::NoAttribute));
    assert_eq!(set(&fs, "/tree", policy), 0);
    let found = fs.encryption(ino).unwrap();
    assert!(found.has_key && found.context.policy.to_argument() == policy);
    assert_eq!(fs.encryption_nonce(ino), Ok(found.context.nonce));
    fs.create_dir("/tree/below").unwrap();
    let long = vec![0xA5; 100_000];
    fs.write_file("/tree/below/by Extol", &long).unwrap();
    close(fs);
    e2fsck(&image).assert_clean("a policy of Extol");

    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    add_encryption_key(&at, None, &[7; 64]);
    add_encryption_key(&at, Some(*b"descript"), &KEY_OF_V1);
    let tree = at.join("tree");
    assert_eq!(encryption_policy(&tree).unwrap(), policy);
    assert_eq!(encryption_nonce(&tree), found.context.nonce);
    assert!(fs::read(tree.join("below/by Extol")).unwrap() == long);
    fs::write(tree.join("by Linux"), "by Linux").unwrap();
    mount.unmount();

    let fs = open(&image, "");
    assert_eq!(fs.read_file("/tree/by Linux").unwrap(), b"by Linux");
    let of_file = fs.encryption(fs.metadata("/tree/by Linux").unwrap().id.ino).unwrap();
    assert_eq!(of_file.context.policy, found.context.policy);
    assert_ne!(of_file.context.nonce, found.context.nonce);
    close(fs);
    e2fsck(&image).assert_clean("both have written");
}

const EXT4: [&str; 6] = ["-t", "ext4", "-I", "256", "-O", "encrypt,stable_inodes"];

#[test]
fn linux_uses_a_tree_of_version_2_that_extol_made() {
    shared(&EXT4, &v2(1, 4, 3, 0));
    shared(&[&EXT4[..], &["-b", "4096"]].concat(), &v2(1, 4, 0, 9));
}

#[test]
fn linux_uses_a_tree_of_version_1_that_extol_made() {
    shared(&EXT4, &v1(1, 4, 2));
}

#[test]
fn linux_uses_a_tree_with_inode_numbers_in_ivs_that_extol_made() {
    shared(&EXT4, &v2(1, 4, 0x0B, 0));
    shared(&EXT4, &v2(1, 4, 0x13, 0));
}

#[test]
fn a_policy_finds_room_outside_a_small_inode() {
    shared(&["-t", "ext4", "-I", "128", "-O", "encrypt"], &v2(1, 4, 3, 0));
    shared(&["-t", "ext2", "-I", "128", "-O", "encrypt"], &v1(1, 4, 0));
}

#[test]
fn a_directory_inside_its_inode_is_encrypted_outside() {
    let options = ["-t", "ext4", "-I", "256", "-O", "encrypt,inline_data"];
    shared(&options, &v2(1, 4, 3, 0));
}

/// As by root in Linux.
#[test]
fn a_policy_is_set_without_its_key() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "early.img", 16 << 20, &EXT4);
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    fs.create_dir("/tree").unwrap();
    assert_eq!(set(&fs, "/tree", &v1(1, 4, 3)), 0);
    let found = fs.encryption(fs.metadata("/tree").unwrap().id.ino).unwrap();
    assert_eq!(found.context.policy.key, KeySpec::Descriptor(*b"descript"));
    assert!(!found.has_key);
    assert_eq!(fs.write_file("/tree/new", "x").unwrap_err(), FsError::NoKey);
    close(fs);
    let fs = open(&image, "");
    fs.write_file("/tree/new", "x").unwrap();
    close(fs);
    e2fsck(&image).assert_clean("a policy without its key");
}

/// What is in memory of a file is written before its key goes; an open file keeps it.
#[test]
fn a_key_is_taken_away_and_comes_again() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "keys.img", 16 << 20, &EXT4);
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    let spec = KeySpec::Identifier(identifier());
    assert_eq!(fs.remove_key(&spec), Err(FsError::NoKey));
    assert!(fs.add_key(&[7; 3], None).is_err());
    assert_eq!(fs.add_key(&[7; 64], None), Ok(spec));
    assert_eq!(fs.add_key(&[7; 64], None), Ok(spec), "a second time it changes nothing");
    let names = |is_there| {
        let all = fs.keys().into_iter().filter(|key| key.is_there == is_there);
        all.map(|key| key.spec).collect::<Vec<_>>()
    };
    assert_eq!(names(true).len(), 2, "an identifier and a descriptor");
    fs.create_dir("/tree").unwrap();
    assert_eq!(set(&fs, "/tree", &v2(1, 4, 3, 0)), 0);
    fs.write_file("/tree/closed", "not written back").unwrap();
    fs.write_file("/tree/open", "open").unwrap();
    let open = fs.open_file("/tree/open", OpenOptions::new().read(true).write(true)).unwrap();
    fs.opened(open.inode().ino()).unwrap();
    open.write_all_at(b"and changed", 0).unwrap();

    assert_eq!(fs.remove_key(&spec), Ok(1));
    assert_eq!((names(true).len(), names(false).len()), (0, 2));
    assert_eq!(fs.metadata("/tree/closed").err(), Some(FsError::NotFound));
    let mut refused = 0;
    for entry in fs.read_dir("/tree").unwrap().map(Result::unwrap) {
        refused += u32::from(fs.read_file(entry.path()) == Err(FsError::NoKey));
    }
    assert_eq!(refused, 1);
    let mut bytes = [0; 11];
    assert_eq!(open.read_at(&mut bytes, 0), Ok(11));
    assert_eq!(&bytes, b"and changed");
    open.write_all_at(b"more", 5000).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.remove_key(&spec), Ok(1), "it is still open");
    fs.closed(open.inode().ino());
    assert_eq!(fs.remove_key(&spec), Ok(0));
    assert_eq!(fs.remove_key(&spec), Err(FsError::NoKey));
    assert_eq!(open.read_at(&mut bytes, 0), Err(FsError::NoKey));
    assert!(fs.keys().is_empty());

    fs.add_key(&[7; 64], None).unwrap();
    assert_eq!(fs.read_file("/tree/closed").unwrap(), b"not written back");
    let all = fs.read_file("/tree/open").unwrap();
    assert_eq!((&all[..11], &all[5000..]), (&b"and changed"[..], &b"more"[..]));
    drop(open);
    close(fs);
    e2fsck(&image).assert_clean("a key went and came");
}
