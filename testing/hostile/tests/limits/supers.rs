//! Superblocks with absurd numbers: refused after a handful of reads, with the reason.

use extol::MountOptions;
use extol_block::SharedDevice;
use extol_hostile::disk::Disk;

use crate::craft::{Craft, put16, put32};
use crate::prove::Case;

/// Reads before a volume whose superblock makes no sense is refused.
const READS: u64 = 8;

#[test]
fn superblocks_with_absurd_numbers() {
    type Change = fn(&mut [u8]);
    let refused: &[(&str, Change)] = &[
        ("no blocks", |b| put32(b, 0x04, 0)),
        ("2^32 blocks", |b| put32(b, 0x04, u32::MAX)),
        ("2^63 blocks", |b| put32(b, 0x150, u32::MAX)),
        ("first block", |b| put32(b, 0x14, 0)),
        ("first block at the end", |b| put32(b, 0x14, u32::MAX)),
        ("block size", |b| put32(b, 0x18, 7)),
        ("absurd block size", |b| put32(b, 0x18, u32::MAX)),
        ("block size of 2^31", |b| put32(b, 0x18, 21)),
        ("no blocks per group", |b| put32(b, 0x20, 0)),
        ("blocks per group", |b| put32(b, 0x20, u32::MAX)),
        ("odd blocks per group", |b| put32(b, 0x20, 9)),
        ("no inodes per group", |b| put32(b, 0x28, 0)),
        ("inodes per group", |b| put32(b, 0x28, u32::MAX)),
        ("inodes", |b| put32(b, 0x00, u32::MAX)),
        ("no inodes", |b| put32(b, 0x00, 0)),
        ("inode size", |b| put16(b, 0x58, 0)),
        ("large inodes", |b| put16(b, 0x58, 0x8000)),
        ("first inode", |b| put32(b, 0x54, u32::MAX)),
        ("descriptor size", |b| put16(b, 0xFE, 0xFFFF)),
        ("no descriptor size", |b| put16(b, 0xFE, 0)),
        ("flexible groups", |b| b[0x174] = 255),
        ("reserved descriptors", |b| put16(b, 0xCE, 0xFFFF)),
        ("reserved blocks", |b| put32(b, 0x154, u32::MAX)),
        ("features", |b| put32(b, 0x60, u32::MAX)),
        ("revision", |b| put32(b, 0x4C, u32::MAX)),
        ("checksum type", |b| b[0x175] = 77),
    ];
    for variant in ["ext4-1k", "ext4-1k-nocsum"] {
        for (name, change) in refused {
            let v = Craft::new(variant);
            v.edit_super(change);
            let disk = Disk::new(v.dev.snapshot(), false);
            let shared: SharedDevice = disk.clone();
            let opened = extol::Ext4::open(shared, &MountOptions::default());
            // Without checksums, or without 64 bits, some of these fields do not count.
            if let Err(error) = &opened {
                assert!(!error.to_string().is_empty());
                assert!(
                    disk.requests() <= READS,
                    "{name}: {} requests before {error}",
                    disk.requests()
                );
            } else {
                assert!(variant != "ext4-1k", "{variant}: {name} is believed");
            }
            drop(opened);
            Case::new(name, v).prove();
        }
    }
}

/// What is not refused is at least bounded.
#[test]
fn superblocks_with_odd_numbers() {
    type Change = fn(&mut [u8]);
    let odd: &[(&str, Change)] = &[
        ("meta groups", |b| put32(b, 0x60, 0x2C2 | 0x10)),
        ("first meta group", |b| put32(b, 0x104, u32::MAX)),
        ("orphan file", |b| put32(b, 0x280, u32::MAX)),
        ("hash version", |b| b[0xFC] = 255),
        ("backup groups", |b| put32(b, 0x24C, u32::MAX)),
        ("MMP block", |b| {
            put32(b, 0x60, 0x3C2);
            put32(b, 0x168, u32::MAX);
        }),
        ("free blocks", |b| put32(b, 0x0C, u32::MAX)),
        ("free inodes", |b| put32(b, 0x10, u32::MAX)),
        ("extra size", |b| put16(b, 0x15E, 0xFFFF)),
        ("snapshot", |b| put32(b, 0x184, u32::MAX)),
        ("error count", |b| put32(b, 0x194, u32::MAX)),
        ("RAID stride", |b| put32(b, 0x164, u32::MAX)),
        ("preallocation", |b| put16(b, 0xCC, 0xFFFF)),
        ("last group of meta", |b| put32(b, 0x270, u32::MAX)),
    ];
    for (name, change) in odd {
        let v = Craft::new("ext4-1k");
        v.edit_super(change);
        Case::new(name, v).prove();
    }
}
