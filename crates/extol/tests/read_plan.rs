//! Reads that the caller does himself: what he reads by a plan that still holds at the end is what
//! the file has.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{Creds, Fallocate, FileSystem, NewNode, ReadPlan, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::{AlignedBuf, Direct, FileDevice, OpenOptions};
use extol_testkit::{Need, require};
use tempfile::TempDir;

const ROOM: usize = 128 << 10;

/// A new volume on an image.
fn volume(direct: Direct) -> (TempDir, Arc<Ext4>) {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions::read_write().create_size(64 << 20).direct(direct);
    let device = FileDevice::open(dir.path().join("image"), &options).unwrap();
    mkfs(&device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let fs = Ext4::open(Arc::new(device), &MountOptions::parse("").unwrap()).unwrap();
    assert_eq!(fs.reads_from().is_some(), direct == Direct::On);
    (dir, fs)
}

fn file(fs: &Ext4, name: &str) -> u32 {
    let new = NewNode::Regular;
    fs.create(fs.root(), name.as_bytes(), new, 0o644, 0, Creds::default()).unwrap().id.ino
}

/// Does what the plan says.
fn follow(fs: &Ext4, plan: &ReadPlan, buf: &mut [u8]) {
    let file = File::from(fs.reads_from().unwrap().try_clone_to_owned().unwrap());
    for piece in &plan.pieces {
        file.read_exact_at(&mut buf[piece.at..piece.at + piece.len], piece.offset).unwrap();
    }
}

fn planned(fs: &Ext4, ino: u32, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut buf = AlignedBuf::new(ROOM, 4096);
    buf.fill(0xEE);
    let plan = fs.plan_read(ino, offset, &mut buf[..len])?;
    assert!(plan.count <= len && plan.pieces.iter().all(|piece| piece.at + piece.len <= len));
    follow(fs, &plan, &mut buf);
    assert!(fs.still_holds(&plan));
    Some(buf[..plan.count].to_vec())
}

#[test]
fn what_is_planned_is_what_is_read() {
    if !require(&[Need::DirectIo]) {
        return;
    }
    let (_dir, fs) = volume(Direct::On);
    let f = file(&fs, "f");
    let bytes = |n: usize, seed: usize| {
        (0..n).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect::<Vec<u8>>()
    };
    fs.write(f, 0, &bytes(300_000, 1)).unwrap();
    fs.write(f, 1 << 20, &bytes(50_001, 2)).unwrap(); // behind a hole, to an odd end
    fs.fallocate(f, Fallocate::Allocate { keep_size: false }, 600_000, 100_000).unwrap();
    fs.sync().unwrap();
    fs.write(f, 8192 + 5, b"in memory, not on the device").unwrap();
    let mut seen = 0;
    for (offset, len) in [
        (0, 4096),
        (4096, 65536),
        (8192, 4096),
        (290_816, 65536),
        (598_016, 8192),
        ((1 << 20) + 45_056, 8192),
        ((1 << 20) + 49_152, 4096),
        (2 << 20, 4096),
    ] {
        let mut alone = vec![0; len];
        let count = fs.read(f, offset, &mut alone).unwrap();
        let planned = planned(&fs, f, offset, len).expect("whole sectors");
        assert!(planned == alone[..count], "{len} bytes at {offset}");
        seen += count;
    }
    assert!(seen > 100_000);
    // What the kernel would not take, or what is no regular file, is for the ordinary way; so is
    // the end in a sector that has no room.
    assert!(planned(&fs, f, 100, 4096).is_none(), "not at a sector");
    assert!(planned(&fs, f, 0, 1000).is_none(), "no whole sector");
    assert!(planned(&fs, fs.root(), 0, 4096).is_none(), "a directory");
    assert!(planned(&fs, 999_999, 0, 4096).is_none(), "no inode");
    fs.unmount().unwrap();
}

#[test]
fn a_plan_does_not_survive_a_change() {
    if !require(&[Need::DirectIo]) {
        return;
    }
    let (_dir, fs) = volume(Direct::On);
    let (f, g) = (file(&fs, "f"), file(&fs, "g"));
    let mut buf = AlignedBuf::new(ROOM, 4096);
    let cut = || {
        fs.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    };
    let mut plan = |change: &dyn Fn()| {
        fs.write(f, 0, &[7; 100_000]).unwrap();
        fs.fsync(f, false).unwrap();
        let plan = fs.plan_read(f, 0, &mut buf[..65536]).unwrap();
        assert!(!plan.pieces.is_empty());
        change();
        follow(&fs, &plan, &mut buf);
        fs.still_holds(&plan)
    };
    assert!(plan(&|| ()));
    assert!(plan(&|| assert_eq!(fs.write(g, 0, &[1; 4096]).unwrap(), 4096)), "another file");
    assert!(!plan(&|| assert_eq!(fs.write(f, 0, b"other bytes").unwrap(), 11)));
    assert!(!plan(&cut));
    // Cut off, and its blocks are somebody else's: what is read by the plan is not the file's.
    assert!(!plan(&|| {
        cut();
        fs.sync().unwrap();
        fs.write(g, 0, &[9; 1 << 20]).unwrap();
        fs.sync().unwrap();
    }));
    fs.unmount().unwrap();
}

#[test]
fn a_buffered_image_has_no_plans() {
    let (_dir, fs) = volume(Direct::Off);
    let f = file(&fs, "f");
    fs.write(f, 0, &[7; 8192]).unwrap();
    fs.sync().unwrap();
    assert!(fs.reads_from().is_none() && fs.plan_read(f, 0, &mut [0; 8192]).is_none());
    fs.unmount().unwrap();
}
