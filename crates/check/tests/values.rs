//! Attribute values in inodes of their own: what makes them unsound, and what does not. (On random
//! damage the checker is compared with e2fsck in `agree`. Most of this e2fsck passes over, and
//! Linux refuses.)

use std::io::Write as _;
use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::XattrSet;
use extol::{Ext4, FileSystem as _, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_check::{CheckOptions, Kind, Report, check};
use extol_testkit::{Need, Scratch, require, run_ok, tool};

const LEN: usize = 5000;

/// Two files and a symbolic link with values in inodes: 12 and 13 share one.
fn volume() -> MemDevice {
    let device = Arc::new(MemDevice::new(16 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push("ea_inode,^has_journal,^orphan_file".to_owned());
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    let fs =
        Ext4::open(Arc::clone(&device) as SharedDevice, &MountOptions::default()).expect("open");
    for name in ["/a", "/b", "/c"] {
        fs.write_file(name, b"contents").expect("write");
    }
    fs.symlink("target", "/link").expect("symlink");
    for (name, attribute, byte) in
        [("/a", "user.v", 1), ("/b", "user.v", 1), ("/link", "trusted.v", 2)]
    {
        let ino = fs.symlink_metadata(name).expect("the file").id.ino;
        fs.setxattr(ino, attribute.as_bytes(), &[byte; LEN], XattrSet::Any).expect("setxattr");
    }
    fs.unmount().expect("unmount");
    device.snapshot()
}

fn report(device: MemDevice) -> Report {
    check(Arc::new(device), &CheckOptions::default(), &mut |_| {}).expect("a report")
}

/// The volume after commands of debugfs.
fn edited(commands: &str) -> MemDevice {
    let scratch = Scratch::in_memory();
    let path = scratch.join("image");
    std::fs::write(&path, volume().to_bytes()).expect("write");
    let script = scratch.join("commands");
    let mut file = std::fs::File::create(&script).expect("create");
    file.write_all(commands.as_bytes()).expect("write");
    run_ok(tool("debugfs").arg("-w").arg("-f").arg(&script).arg(&path));
    MemDevice::from_bytes(&std::fs::read(&path).expect("read"))
}

#[track_caller]
fn must_find(device: MemDevice, what: &str) {
    let report = report(device);
    let found = report.findings.iter().any(|f| f.kind == Kind::XattrInode && f.what.contains(what));
    assert!(found, "'{what}' is not in: {report}");
}

#[test]
fn a_short_link_with_a_value_is_sound() {
    let report = report(volume());
    assert!(report.is_clean() && report.notes == 0, "{report}");
}

#[test]
fn damage_that_linux_refuses_is_found() {
    if !require(&[Need::Tool("debugfs")]) {
        return;
    }
    // The value inodes are the first that are free behind the files.
    let value = 16;
    must_find(edited(&format!("link <{value}> /stray\n")), "which is for attributes");
    must_find(edited("sif /c flags 0x280000\n"), "which is for attributes");
    must_find(edited("feature -ea_inode\n"), "the feature ea_inode is not set");
    must_find(edited(&format!("sif <{value}> version 7\n")), "states 7 users, but has 2");
    must_find(edited(&format!("sif <{value}> mode 020600\n")), "something else than a regular");
}

#[test]
fn a_value_in_an_inode_that_is_empty_is_found() {
    let mut bytes = volume().to_bytes();
    // The entries of both files: one character, `user.`, no offset, the inode, the size.
    let entry = [&[1, 1, 0, 0][..], &16_u32.to_le_bytes(), &(LEN as u32).to_le_bytes()].concat();
    let at = bytes.windows(entry.len()).position(|w| w == entry).expect("an entry");
    bytes[at + 8..at + 12].fill(0);
    must_find(MemDevice::from_bytes(&bytes), "the value is empty");
}

#[test]
fn a_flipped_bit_in_a_value_is_found() {
    let device = volume();
    let mut bytes = device.to_bytes();
    // (The link's value: the longest run of its byte.)
    let at = bytes.windows(LEN).position(|w| w.iter().all(|b| *b == 2)).expect("the value");
    bytes[at + 4321] ^= 0x10;
    must_find(MemDevice::from_bytes(&bytes), "does not match its checksum");
}

/// Linux reads no attribute of such an inode, and neither does Extol.
#[test]
fn a_zero_byte_in_a_name_is_found() {
    let device = Arc::new(MemDevice::new(16 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push("^metadata_csum,^has_journal,^orphan_file".to_owned());
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    let open = |device: &Arc<MemDevice>| {
        Ext4::open(Arc::clone(device) as SharedDevice, &MountOptions::default()).expect("open")
    };
    let fs = open(&device);
    fs.write_file("/a", b"contents").expect("write");
    let ino = fs.symlink_metadata("/a").expect("the file").id.ino;
    fs.setxattr(ino, b"user.entitled", b"v", XattrSet::Any).expect("setxattr");
    fs.unmount().expect("unmount");
    drop(fs);
    let mut bytes = device.to_bytes();
    let at = bytes.windows(8).position(|window| window == b"entitled").expect("the name");
    // (The hash in front of the name; 0 is none.)
    bytes[at - 4..at].fill(0);
    bytes[at + 3] = 0;
    let device = Arc::new(MemDevice::from_bytes(&bytes));
    let report = report(device.snapshot());
    let found = |f: &extol_check::Finding| f.kind == Kind::XattrEntry && f.what.contains("zero");
    assert!(report.findings.iter().any(found), "{report}");
    assert!(open(&device).listxattr(ino).is_err());
    let scratch = Scratch::in_memory();
    let path = scratch.join("image");
    std::fs::write(&path, &bytes).expect("write");
    run_ok(tool("e2fsck").arg("-fn").arg(&path));
}
