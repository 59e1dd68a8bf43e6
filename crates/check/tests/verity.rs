//! Files of fs-verity: sound ones are clean, and one flipped bit of one is an error that e2fsck
//! passes over.

use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{EnableVerity, Fallocate, FileSystem as _, SetAttr, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice as _, MemDevice};
use extol_check::{CheckOptions, Kind, Report, check};
use extol_testkit::{Image, Need, Scratch, e2fsck, require};

const LEN: usize = 300_000;

/// A volume with three files, and the places of the blocks of the first, of the file and of the
/// volume.
fn volume() -> (Arc<MemDevice>, Vec<(u64, u64)>) {
    let device = Arc::new(MemDevice::new(24 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push("verity".to_owned());
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    let fs = Ext4::open(Arc::clone(&device) as _, &MountOptions::default()).expect("open");
    let how = EnableVerity { algorithm: 1, block_size: 1024, ..EnableVerity::default() };
    let mut places = Vec::new();
    for (name, len) in [("/file", LEN), ("/empty", 0), ("/sparse", 0)] {
        fs.write_file(name, (0..len).map(|i| (i / 7) as u8).collect::<Vec<_>>()).expect("write");
        let ino = fs.inode(name).expect("inode").ino();
        if name == "/sparse" {
            let size = Some(5 << 20);
            fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }).expect("a hole");
            fs.write(ino, 1 << 20, b"x").expect("write");
            let allocate = Fallocate::Allocate { keep_size: true };
            fs.fallocate(ino, allocate, 2 << 20, 64 << 10).expect("unwritten blocks");
        }
        fs.enable_verity(ino, &how).expect("enable");
        if places.is_empty() {
            for extent in fs.fiemap(ino, 0, 1 << 40).expect("fiemap") {
                for at in (0..extent.len).step_by(1024) {
                    places.push((extent.logical + at, extent.physical + at));
                }
            }
        }
    }
    fs.unmount().expect("unmount");
    (device, places)
}

fn report(device: &MemDevice) -> Report {
    check(Arc::new(device.snapshot()), &CheckOptions::default(), &mut |_| {}).expect("a report")
}

#[test]
fn one_flipped_bit_of_a_verified_file_is_an_error() {
    let (device, places) = volume();
    let sound = report(&device);
    assert!(sound.is_clean(), "{sound}");
    assert!(places.len() > 300, "contents, tree and descriptor");
    let scratch = Scratch::new();
    for (nr, (at, place)) in places.iter().enumerate() {
        let damaged = device.snapshot();
        let mut byte = [0];
        damaged.read_at(&mut byte, place + 9).expect("read");
        damaged.write_at(&[byte[0] ^ 1], place + 9).expect("write");
        let report = report(&damaged);
        let found: Vec<_> = report.findings.iter().filter(|f| f.kind == Kind::Verity).collect();
        assert_eq!(found.len(), 1, "byte {at} of the file: {report}");
        assert_eq!(report.findings.len(), 1, "{report}");
        assert!(found[0].beyond_e2fsck && !report.is_clean());
        let in_contents = *at < LEN as u64;
        let text = &found[0].what;
        assert_eq!(text.contains("contents have changed"), in_contents, "{text}");
        if in_contents {
            assert!(text.ends_with(&format!("byte {at}")), "{text}");
        }
        if nr.is_multiple_of(100) && require(&[Need::Tool("e2fsck")]) {
            let image = Image::existing(scratch.join("image"));
            std::fs::write(&image.path, damaged.to_bytes()).expect("write");
            e2fsck(&image).assert_clean("e2fsck looks at no contents");
        }
    }
}
