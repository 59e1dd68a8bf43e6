//! Attribute values in inodes of their own, through the whole file system: what a crash leaves,
//! what a deletion frees, what many threads share.

#[path = "common/acl.rs"]
mod acl;
mod common;

use std::sync::Arc;

use common::{assert_clean, file, image, open};
use extol::device::MemDevice;
use extol::vfs::{Creds, FileSystem, NewNode, VolumeControl, XattrSet};
use extol::{Ext4, FsError};

const SMALL_LOG: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "ea_inode"];

fn set(fs: &Ext4, ino: u32, name: &str, value: &[u8]) -> Result<(), FsError> {
    fs.setxattr(ino, name.as_bytes(), value, XattrSet::Any)
}

fn free(fs: &Ext4) -> (u64, u64) {
    fs.sync().unwrap();
    let statfs = fs.statfs().unwrap();
    (statfs.blocks_free, statfs.inodes_free)
}

/// What is on the device when the power fails now.
fn cut(fs: &Ext4, device: &MemDevice) -> Arc<MemDevice> {
    let image = Arc::new(device.snapshot());
    fs.crash();
    image
}

/// What is on the device, with an empty log.
fn frozen(fs: &Ext4, device: &MemDevice) -> Arc<MemDevice> {
    fs.freeze().unwrap();
    let image = Arc::new(device.snapshot());
    fs.thaw().unwrap();
    image
}

#[test]
fn a_value_is_durable_after_a_sync() {
    let device = image("16M", SMALL_LOG);
    let fs = open(&device, "");
    let ino = file(&fs, fs.root(), "f");
    let value: Vec<u8> = (0..65_536u32).map(|i| (i % 251) as u8).collect();
    set(&fs, ino, "user.large", &value).unwrap();
    fs.fsync(ino, false).unwrap();
    set(&fs, ino, "user.lost", &value[1..]).unwrap();
    let device = cut(&fs, &device);
    let fs = open(&device, "");
    assert_eq!(fs.get_xattr("/f", "user.large").unwrap(), value);
    assert_eq!(fs.get_xattr("/f", "user.lost"), Err(FsError::NoAttribute));
    assert_eq!(set(&fs, ino, "user.more", &[0; 65_537]), Err(FsError::TooBig));
    assert_eq!(fs.stats().journal.overdrafts, 0);
    fs.unmount().unwrap();
    assert_clean(&device, "after a crash");
}

/// A deletion takes many transactions of a small log, and none counts a value twice.
#[test]
fn files_with_many_values_are_deleted() {
    let device = image("32M", SMALL_LOG);
    let fs = open(&device, "");
    let at_start = free(&fs);
    for name in ["a", "b"] {
        let ino = file(&fs, fs.root(), name);
        for n in 0..40u8 {
            set(&fs, ino, &format!("user.{n}"), &vec![n; 3000 + 500 * usize::from(n)]).unwrap();
        }
        fs.forget(ino, 1);
    }
    assert_clean(&frozen(&fs, &device), "they share all");
    fs.remove_file("/a").unwrap();
    let image = frozen(&fs, &device);
    fs.remove_file("/b").unwrap();
    assert_eq!(free(&fs), at_start);
    assert_eq!(fs.stats().journal.overdrafts, 0);
    fs.unmount().unwrap();
    assert_clean(&device, "both are deleted");
    let fs = open(&image, "");
    assert_eq!(fs.get_xattr("/b", "user.7").unwrap(), vec![7; 6500]);
    fs.unmount().unwrap();
    assert_clean(&image, "one is deleted");
}

#[test]
fn an_open_file_with_values_is_deleted_by_the_next_mount() {
    for features in ["ea_inode,^orphan_file", "ea_inode,orphan_file"] {
        let device = image("16M", &["-t", "ext4", "-b", "1024", "-O", features]);
        let fs = open(&device, "");
        let at_start = free(&fs);
        let ino = file(&fs, fs.root(), "f");
        for n in 0..20u8 {
            set(&fs, ino, &format!("user.{n}"), &[n; 5000]).unwrap();
        }
        fs.unlink(fs.root(), b"f").unwrap();
        fs.sync().unwrap();
        assert_ne!(free(&fs), at_start, "it is still referenced");
        let device = cut(&fs, &device);
        let fs = open(&device, "");
        assert_eq!(free(&fs), at_start, "{features}");
        fs.unmount().unwrap();
        assert_clean(&device, features);
    }
}

#[test]
fn threads_share_values() {
    let device = image("32M", SMALL_LOG);
    let fs = open(&device, "");
    let at_start = free(&fs);
    let inos: Vec<u32> = (0..8).map(|n| file(&fs, fs.root(), &format!("f{n}"))).collect();
    std::thread::scope(|scope| {
        for part in inos.chunks(2) {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..150usize {
                    for (n, ino) in part.iter().enumerate() {
                        let value = vec![(round % 3) as u8; 4000 + 1000 * ((round + n) % 2)];
                        set(fs, *ino, "user.shared", &value).unwrap();
                        if round % 5 == 4 {
                            fs.removexattr(*ino, b"user.shared").unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(fs.stats().journal.overdrafts, 0);
    assert_clean(&frozen(&fs, &device), "many threads");
    for (n, ino) in inos.into_iter().enumerate() {
        fs.forget(ino, 1);
        fs.remove_file(format!("/f{n}")).unwrap();
    }
    assert_eq!(free(&fs), at_start);
    fs.unmount().unwrap();
    assert_clean(&device, "nothing left");
}

/// A default access list of many users is a value of its own, which new files share.
#[test]
fn long_access_lists_are_inherited() {
    let list = acl::of_many_users();
    let device = image("16M", SMALL_LOG);
    let fs = open(&device, "");
    let dir = common::dir(&fs, fs.root(), "d");
    fs.setxattr(dir, b"system.posix_acl_default", &list, XattrSet::Any).unwrap();
    let sub = common::dir(&fs, dir, "sub");
    assert_eq!(fs.getxattr(sub, b"system.posix_acl_default").unwrap(), list);
    for n in 0..5 {
        let ino = file(&fs, sub, &format!("f{n}"));
        assert_eq!(fs.getxattr(ino, b"system.posix_acl_access").unwrap().len(), list.len());
    }
    fs.set_permissions("/d/sub/f1", 0o600).unwrap();
    let access = fs.get_xattr("/d/sub/f1", "system.posix_acl_access").unwrap();
    assert_ne!(access, fs.get_xattr("/d/sub/f2", "system.posix_acl_access").unwrap());
    assert_eq!(fs.stats().journal.overdrafts, 0);
    fs.unmount().unwrap();
    assert_clean(&device, "long lists");
}

#[test]
fn a_full_volume_refuses_and_keeps_what_there_is() {
    let device = image("4M", SMALL_LOG);
    let fs = open(&device, "");
    let mut inos = Vec::new();
    let refused = loop {
        let n = inos.len();
        inos.push(file(&fs, fs.root(), &format!("f{n}")));
        match set(&fs, inos[n], "user.large", &vec![n as u8; 50_000 - n]) {
            Ok(()) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(refused, FsError::NoSpace);
    assert!(inos.len() > 10, "{}", inos.len());
    assert_eq!(set(&fs, inos[0], "user.large", &[1; 60_000]), Err(FsError::NoSpace));
    assert_eq!(fs.get_xattr("/f0", "user.large").unwrap(), vec![0; 50_000]);
    set(&fs, inos[0], "user.large", b"small").unwrap();
    fs.sync().unwrap();
    set(&fs, inos[0], "user.again", &[1; 45_000]).unwrap();
    fs.unmount().unwrap();
    assert_clean(&device, "full");
}

#[test]
fn no_name_leads_to_a_value() {
    let device = image("8M", SMALL_LOG);
    let fs = open(&device, "");
    let ino = file(&fs, fs.root(), "f");
    set(&fs, ino, "user.large", &[1; 5000]).unwrap();
    // It has the next number.
    let value = fs.getattr(ino + 1);
    assert!(matches!(value, Err(FsError::Corrupt { .. })), "{value:?}");
    let made = fs.create(fs.root(), b"g", NewNode::Regular, 0o644, 0, Creds::default());
    assert_eq!(made.unwrap().id.ino, ino + 2);
    fs.unmount().unwrap();
    assert_clean(&device, "two files");
}

/// Where a crash comes between a change and the deletion of a value for which its transaction had
/// no room.
#[test]
fn a_value_on_the_orphan_list_is_deleted() {
    let scratch = extol_testkit::Scratch::new();
    let contents = scratch.join("contents");
    std::fs::write(&contents, vec![7; 5000]).unwrap();
    let commands = scratch.join("commands");
    let write = format!("write {} v", contents.display());
    let lines = [
        &write[..],
        "sif v flags 0x280000",
        "sif v links_count 0",
        "ssv last_orphan 12",
        "unlink v",
    ];
    std::fs::write(&commands, lines.join("\n") + "\n").unwrap();
    let mke2fs = ["-t", "ext4", "-b", "1024", "-O", "ea_inode"];
    let image = extol_testkit::Image::mke2fs(scratch.path(), "a.img", 8 << 20, &mke2fs);
    let empty = open(&Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).unwrap())), "");
    let mut debugfs = extol_testkit::tool("debugfs");
    extol_testkit::run_ok(debugfs.arg("-w").arg("-f").arg(&commands).arg(&image.path));
    let device = Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).unwrap()));
    let fs = open(&device, "");
    assert_eq!(free(&fs), free(&empty));
    fs.unmount().unwrap();
    assert_clean(&device, "an orphan");
}

/// Contents inside the inode and the names of values compete for the same room.
#[test]
fn inline_files_and_directories_keep_their_values() {
    let mke2fs = ["-t", "ext4", "-b", "1024", "-O", "ea_inode,inline_data"];
    let device = image("8M", &mke2fs);
    let fs = open(&device, "");
    let value = |n: usize| vec![n as u8; 2000 + n];
    for n in 0..4 {
        fs.create_dir(format!("/d{n}")).unwrap();
        fs.write_file(format!("/f{n}"), vec![b'x'; 40 * n]).unwrap();
        for path in [format!("/d{n}"), format!("/f{n}")] {
            fs.set_xattr(path, "user.large", value(n), XattrSet::Any).unwrap();
        }
    }
    assert_clean(&frozen(&fs, &device), "small");
    for n in 0..4 {
        for m in 0..10 {
            fs.write_file(format!("/d{n}/a name of some length {m}"), b"").unwrap();
        }
        fs.write_file(format!("/f{n}"), vec![b'y'; 1000 * n]).unwrap();
        fs.set_xattr(format!("/f{n}"), "user.second", value(n + 1), XattrSet::Any).unwrap();
    }
    for n in 0..4 {
        assert_eq!(fs.get_xattr(format!("/d{n}"), "user.large").unwrap(), value(n));
        assert_eq!(fs.get_xattr(format!("/f{n}"), "user.large").unwrap(), value(n));
        assert_eq!(fs.get_xattr(format!("/f{n}"), "user.second").unwrap(), value(n + 1));
        assert_eq!(fs.read_file(format!("/f{n}")).unwrap(), vec![b'y'; 1000 * n]);
    }
    assert_clean(&frozen(&fs, &device), "grown");
    fs.remove_file("/f1").unwrap();
    fs.unmount().unwrap();
    assert_clean(&device, "one less");
}
