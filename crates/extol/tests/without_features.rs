//! What a build without the features `encryption` and `verity` says of such files: what Linux says
//! without `CONFIG_FS_ENCRYPTION` and `CONFIG_FS_VERITY`. Nothing is tested where they are on:
//! `cargo test -p extol --no-default-features --test without_features` (scripts/crates.sh).

#![cfg(not(any(feature = "encryption", feature = "verity")))]

use std::sync::Arc;

use extol::options::Keys;
use extol::vfs::{
    EnableVerity, FileKind, FileSystem, FsError, Mountable, VerityPart, VolumeControl,
};
use extol::{Ext4, MountOptions, OpenOptions};
use extol_testkit::{Image, Need, Scratch, e2fsck, require, run_ok, tool};

/// A volume with a file of fs-verity, an encrypted directory, and a file in it, as debugfs marks
/// them: what proves and encrypts them is not there.
fn volume(dir: &Scratch) -> Option<(Arc<Ext4>, Image)> {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("e2fsck")]) {
        return None;
    }
    let features = ["-t", "ext4", "-O", "encrypt,verity"];
    let image = Image::mke2fs(dir.path(), "disk.img", 16 << 20, &features);
    let contents = dir.path().join("contents");
    std::fs::write(&contents, "of the file").expect("file");
    let from = contents.to_str().expect("UTF-8");
    for request in [
        &format!("write {from} verity"),
        "mkdir secret",
        &format!("write {from} secret/file"),
        &format!("write {from} plain"),
        "set_inode_field verity flags 0x180000",
        "set_inode_field secret flags 0x80800",
        "set_inode_field secret/file flags 0x80800",
    ] {
        run_ok(tool("debugfs").args(["-w", "-R", request]).arg(&image.path));
    }
    let options = MountOptions::default();
    Some((Ext4::open_path(&image.path, &options).expect("such a volume is opened"), image))
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, FsError>) {
    let error = result.expect_err("refused");
    assert_eq!(error.errno(), 95, "EOPNOTSUPP: {error}");
}

#[test]
fn a_file_of_verity_is_refused_at_open() {
    let dir = Scratch::new();
    let Some((fs, image)) = volume(&dir) else { return };
    let ino = fs.lookup(fs.root(), b"verity").expect("its name is there").id.ino;
    assert_eq!(fs.metadata("/verity").expect("so are its attributes").size, 11);
    assert_refused(fs.open_file("/verity", &OpenOptions::new().read(true)));
    assert_refused(fs.read_file("/verity"));
    assert_refused(fs.opened(ino));
    assert_refused(fs.read(ino, 0, &mut [0; 4]));
    assert_refused(fs.measure_verity(ino));
    assert_refused(fs.read_verity(ino, VerityPart::Descriptor, 0, &mut [0; 4]));
    let how = EnableVerity { algorithm: 1, block_size: 4096, salt: vec![], signature: vec![] };
    let plain = fs.lookup(fs.root(), b"plain").expect("lookup").id.ino;
    assert_refused(fs.enable_verity(plain, &how));
    assert_eq!(fs.read_file("/plain").expect("others are read"), b"of the file");
    fs.remove_file("/verity").expect("it can be removed, as in Linux");
    fs.unmount().expect("close");
    assert!(!e2fsck(&image).output.contains("verity"));
}

#[test]
fn no_key_is_accepted_and_encrypted_directories_are_refused() {
    assert!(Keys::default().add(&[1; 64]).expect_err("refused").to_string().contains("built"));
    let dir = Scratch::new();
    let Some((fs, _image)) = volume(&dir) else { return };
    assert!(fs.add_key(&[1; 64], None).is_err());
    assert_eq!(fs.metadata("/secret").expect("its attributes are there").kind, FileKind::Directory);
    assert_refused(fs.read_dir("/secret").and_then(|mut dir| dir.next().expect("an entry")));
    assert_refused(fs.read_file("/secret/file"));
    assert_refused(fs.write_file("/secret/new", "x"));
    assert_refused(fs.create_dir("/secret/new"));
    let secret = fs.lookup(fs.root(), b"secret").expect("lookup").id.ino;
    assert_refused(fs.encryption(secret));
    fs.unmount().expect("close");
}
