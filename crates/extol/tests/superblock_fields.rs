//! A superblock that Linux does not mount Extol does not mount: each field gets values that cannot
//! be, and both are asked.

use std::path::Path;

use extol::{Ext4, MountOptions};
use extol_ondisk::checksum::crc32c;
use extol_testkit::{Image, KernelMount, Need, Scratch, require};

const NEEDS: [Need; 4] = [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")];
const SUPERBLOCK: usize = 1024;
const CHECKSUM: usize = 0x3FC;
const RO_COMPAT: usize = 0x64;
const METADATA_CSUM: u32 = 0x400;

/// How a volume is mounted at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mounts {
    Refused,
    ReadOnly,
    ReadWrite,
}

/// A field: name, place, bytes, values.
type Field = (&'static str, usize, usize, &'static [u64]);

/// Fields of any volume. A block has 1024 bytes, a group 8192 blocks, an inode 256 bytes.
const FIELDS: &[Field] = &[
    ("inodes_count", 0x00, 4, &[0, 100, 1 << 31]),
    ("blocks_count", 0x04, 4, &[0, 1, 100, 8192, 16_385, 1 << 31]),
    ("r_blocks_count", 0x08, 4, &[9000, 1 << 31]),
    ("free_blocks_count", 0x0C, 4, &[1 << 31]),
    ("free_inodes_count", 0x10, 4, &[1 << 31]),
    ("first_data_block", 0x14, 4, &[0, 2, 100, 20_000]),
    ("log_block_size", 0x18, 4, &[1, 2, 3, 6, 7, 20, 100, u32::MAX as u64]),
    ("log_cluster_size", 0x1C, 4, &[1, 2, 4, 20, 21, 30, 31, 100, u32::MAX as u64]),
    ("blocks_per_group", 0x20, 4, &[0, 8, 4096, 8191, 16_384, 65_536]),
    ("clusters_per_group", 0x24, 4, &[0, 8, 100, 4096, 32_768]),
    ("inodes_per_group", 0x28, 4, &[0, 8, 15, 20, 4096, 32_776]),
    ("state", 0x3A, 2, &[0, 2, 4, 0xFF]),
    ("errors", 0x3C, 2, &[0, 7]),
    ("minor_rev_level", 0x3E, 2, &[9]),
    ("creator_os", 0x48, 4, &[1, 2, 5]),
    ("rev_level", 0x4C, 4, &[0, 2, 100]),
    ("first_ino", 0x54, 4, &[0, 5, 10, 12, 1_000_000_000]),
    ("inode_size", 0x58, 2, &[0, 64, 128, 200, 512, 2048, 4096]),
    ("block_group_nr", 0x5A, 2, &[1, 0xFFFF]),
    ("algorithm_usage_bitmap", 0xC8, 4, &[1]),
    ("reserved_gdt_blocks", 0xCE, 2, &[0, 1, 257, 1025, 0xFFFF]),
    ("journal_inum", 0xE0, 4, &[0, 7, 100, 1 << 31]),
    ("journal_dev", 0xE4, 4, &[0x801]),
    ("last_orphan", 0xE8, 4, &[5, 1 << 31]),
    ("def_hash_version", 0xFC, 1, &[0, 3, 5, 6, 7, 100]),
    ("desc_size", 0xFE, 2, &[0, 32, 48, 63, 96, 128, 1024, 2048]),
    ("first_meta_bg", 0x104, 4, &[1, 1000]),
    ("min_extra_isize", 0x15C, 2, &[1, 30, 128, 129, 132, 0xFFFF]),
    ("want_extra_isize", 0x15E, 2, &[1, 30, 33, 128, 129, 132, 0xFFFF]),
    ("flags", 0x160, 4, &[0, 3, 4]),
    ("raid_stride", 0x164, 2, &[0xFFFF]),
    ("mmp_block", 0x168, 8, &[5]),
    ("raid_stripe_width", 0x170, 4, &[1_000_000_000]),
    ("log_groups_per_flex", 0x174, 1, &[0, 1, 31, 32, 200]),
    ("checksum_type", 0x175, 1, &[0, 2, 255]),
    ("encryption_level", 0x176, 1, &[1]),
    ("overhead_clusters", 0x248, 4, &[1 << 31]),
    ("lpf_ino", 0x268, 4, &[1 << 31]),
    ("encoding", 0x27C, 2, &[2]),
    ("orphan_file_inum", 0x280, 4, &[0, 2, 100, 1 << 31]),
];

/// Volumes, by the arguments of mke2fs; and the fields that are tried on each.
const VOLUMES: &[(&[&str], &[Field])] = &[
    (&["-O", "^orphan_file"], FIELDS),
    (&["-O", "^metadata_csum,^64bit,^orphan_file"], FIELDS),
    (&["-O", "^dir_index,^flex_bg,^extra_isize,^orphan_file"], FIELDS),
    (
        &["-O", "bigalloc,^resize_inode", "-C", "16384"],
        &[
            ("log_cluster_size", 0x1C, 4, &[0, 3, 5, 20, 21, 30, 31, 100]),
            ("clusters_per_group", 0x24, 4, &[0, 8, 100, 4096, 32_768]),
            ("blocks_per_group", 0x20, 4, &[0, 8, 8192, 8191, 1 << 31]),
            ("first_data_block", 0x14, 4, &[1, 2, 16]),
            ("blocks_count", 0x04, 4, &[32_767, 32_753]),
        ],
    ),
    (&["-O", "encrypt"], &[("encryption_level", 0x176, 1, &[0, 1, 255])]),
    (&["-O", "meta_bg,^resize_inode"], &[("first_meta_bg", 0x104, 4, &[1, 2, 3, 1 << 31])]),
    (&["-O", "mmp"], &[("mmp_block", 0x168, 8, &[0, 5, 1 << 20, 1 << 40])]),
    (
        &["-O", "orphan_file"],
        &[("orphan_file_inum", 0x280, 4, &[0, 2, 11, 100, 1_000_000, 1 << 31])],
    ),
];

/// What Extol does not write though Linux does: numbers that are too large for the volume, volumes
/// of the Hurd, and a part of a cluster at the end.
const STRICTER: &[&str] =
    &["r_blocks_count", "first_ino", "last_orphan", "creator_os", "blocks_count"];

/// What Extol reads though Linux refuses it. The log and the orphan file of a volume that was
/// closed in order hold nothing, and reading puts nothing there.
const READ_ALL_THE_SAME: &[&str] = &["journal_inum", "orphan_file_inum"];

fn linux(image: &Image, dir: &Path) -> Mounts {
    let copy = image.copy_as("linux.img");
    let tries = [(&[][..], Mounts::ReadWrite), (&["ro"], Mounts::ReadOnly)];
    let mounted = tries.into_iter().find(|(options, _)| {
        KernelMount::try_mount(&copy, dir, options).is_ok_and(|mount| {
            let written = std::fs::write(dir.join("file"), "contents").is_ok();
            mount.unmount();
            written || !options.is_empty()
        })
    });
    copy.remove();
    mounted.map_or(Mounts::Refused, |(_, mounts)| mounts)
}

fn extol(image: &Image) -> Mounts {
    let options = MountOptions::default();
    if let Ok(fs) = Ext4::open_path(&image.path, &options) {
        fs.unmount().unwrap();
        return Mounts::ReadWrite;
    }
    match Ext4::open_path(&image.path, &options.read_only()) {
        Ok(fs) => {
            fs.unmount().unwrap();
            Mounts::ReadOnly
        }
        Err(_) => Mounts::Refused,
    }
}

/// The superblock with a value in a field, its checksum made right.
fn with_value(mut bytes: Vec<u8>, (at, len): (usize, usize), value: u64) -> Vec<u8> {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    let features = u32::from_le_bytes(bytes[RO_COMPAT..RO_COMPAT + 4].try_into().unwrap());
    if features & METADATA_CSUM != 0 {
        let sum = crc32c(!0, &bytes[..CHECKSUM]);
        bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

#[test]
fn what_linux_refuses_is_refused() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::in_memory();
    let dir = scratch.dir("mnt");
    let (mut laxer, mut stricter, mut refused) = (Vec::new(), Vec::new(), 0);
    for (args, fields) in VOLUMES {
        let args = [&["-t", "ext4", "-b", "1024"], *args].concat();
        let base = Image::mke2fs(scratch.path(), "base.img", 32 << 20, &args);
        let sound = base.read_at(SUPERBLOCK as u64, SUPERBLOCK);
        assert_eq!((linux(&base, &dir), extol(&base)), (Mounts::ReadWrite, Mounts::ReadWrite));
        for (name, at, len, values) in *fields {
            for value in *values {
                let image = base.copy_as("changed.img");
                let bytes = with_value(sound.clone(), (*at, *len), *value);
                image.write_at(SUPERBLOCK as u64, &bytes);
                let (theirs, ours) = (linux(&image, &dir), extol(&image));
                image.remove();
                let what = format!("{} {name} {value}", args[5]);
                refused += usize::from(theirs == Mounts::Refused);
                let is_read = ours == Mounts::ReadOnly && READ_ALL_THE_SAME.contains(name);
                if ours > theirs && !is_read {
                    laxer.push(format!("{what}: Linux {theirs:?}, Extol {ours:?}"));
                } else if ours < theirs && !STRICTER.contains(name) {
                    stricter.push(what);
                }
            }
        }
        base.remove();
    }
    assert!(laxer.is_empty(), "{}", laxer.join("\n"));
    assert!(stricter.is_empty(), "only Extol refuses {stricter:?}");
    assert!(refused > 100, "Linux refuses {refused}");
}
