//! Tests of the whole file system on images that mke2fs made, checked by e2fsck.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extol::vfs::{Creds, FileSystem};
use extol_block::MemDevice;

use extol::{Ext4, MountOptions};

/// An image made by mke2fs, in memory.
pub fn image(size: &str, args: &[&str]) -> Arc<MemDevice> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let out =
        Command::new("mke2fs").args(["-q", "-F"]).args(args).arg(&path).arg(size).output().unwrap();
    assert!(out.status.success(), "mke2fs: {}", String::from_utf8_lossy(&out.stderr));
    Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()))
}

/// What `e2fsck -fn` says.
pub fn e2fsck(dev: &MemDevice) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, dev.to_bytes()).unwrap();
    check(&path)
}

pub fn check(path: &Path) -> (i32, String) {
    let out = Command::new("e2fsck").arg("-fn").arg(path).output().unwrap();
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap_or(-1), text)
}

pub fn assert_clean(dev: &MemDevice, what: &str) {
    let (code, text) = e2fsck(dev);
    assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
}

pub fn open(dev: &Arc<MemDevice>, options: &str) -> Arc<Ext4> {
    Ext4::open(Arc::clone(dev) as _, &MountOptions::parse(options).unwrap()).unwrap()
}

pub fn file(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), extol::vfs::NewNode::Regular, 0o644, 0, Creds::default())
        .unwrap()
        .id
        .ino
}

pub fn dir(fs: &Ext4, parent: u32, name: &str) -> u32 {
    fs.create(parent, name.as_bytes(), extol::vfs::NewNode::Directory, 0o755, 0, Creds::default())
        .unwrap()
        .id
        .ino
}
