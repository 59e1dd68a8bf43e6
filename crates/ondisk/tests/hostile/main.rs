//! No bytes make a decoder panic, loop or allocate without bound. (Overflow checks are on in this
//! profile.)

mod random;
mod structures;

use extol_ondisk::superblock::SuperFlags;
use extol_ondisk::{
    BlockNr, Compat, Geometry, GroupNr, Incompat, InodeNr, RoCompat, Superblock, htree,
};

/// A volume of 1 KiB blocks and 5 groups, the last one short.
fn sound() -> Superblock {
    let mut sb = Superblock::new_empty();
    sb.blocks_count = 4 * 8192 + 100 + 1;
    sb.first_data_block = 1;
    sb.blocks_per_group = 8192;
    sb.clusters_per_group = 8192;
    sb.inodes_per_group = 512;
    sb.inodes_count = 5 * 512;
    sb.inode_size = 256;
    sb.first_ino = 11;
    sb.desc_size = 64;
    sb.checksum_type = 1;
    sb.min_extra_isize = 32;
    sb.want_extra_isize = 32;
    sb.uuid = std::array::from_fn(|i| i as u8);
    sb.feature_incompat = Incompat::FILETYPE | Incompat::EXTENTS | Incompat::BIT64;
    sb.feature_ro_compat = RoCompat::METADATA_CSUM
        | RoCompat::SPARSE_SUPER
        | RoCompat::HUGE_FILE
        | RoCompat::EXTRA_ISIZE;
    sb
}

fn geometry(change: impl FnOnce(&mut Superblock)) -> Geometry {
    let mut sb = sound();
    change(&mut sb);
    Geometry::new(&sb, None).expect("sound")
}

#[test]
fn superblock_round_trip() {
    let mut sb = sound();
    sb.mtime = 0x12_3456_789A;
    sb.r_blocks_count = 1;
    sb.hash_seed = [1, 2, 3, 4];
    let bytes = sb.encode();
    let back = Superblock::decode(&bytes).expect("decodes");
    assert_eq!(
        (back.mtime, back.hash_seed, back.blocks_count),
        (sb.mtime, sb.hash_seed, sb.blocks_count)
    );
    assert_eq!(back.encode(), bytes);
    for at in 0..1024 {
        let mut bad = bytes;
        bad[at] ^= 0x40;
        assert!(Superblock::decode(&bad).is_err(), "byte {at}");
    }
    assert!(Superblock::decode(&bytes[..1023]).is_err());
}

#[test]
fn geometry_refuses() {
    type Change = fn(&mut Superblock);
    let cases: &[(&str, Change)] = &[
        ("no inodes per group", |s| s.inodes_per_group = 0),
        ("too many inodes per group", |s| s.inodes_per_group = 8 * 1024 + 8),
        ("odd inodes per group", |s| s.inodes_per_group = 513),
        ("inode count", |s| s.inodes_count += 1),
        ("no blocks per group", |s| s.blocks_per_group = 0),
        ("too many blocks per group", |s| s.blocks_per_group = 8 * 1024 + 8),
        ("huge blocks per group", |s| s.blocks_per_group = u32::MAX),
        ("descriptor size", |s| s.desc_size = 96),
        ("small descriptors", |s| s.desc_size = 32),
        ("no descriptors", |s| s.desc_size = 0),
        ("large descriptors", |s| s.desc_size = 2048),
        ("small inodes", |s| s.inode_size = 64),
        ("no inode size", |s| s.inode_size = 0),
        ("odd inodes", |s| s.inode_size = 384),
        ("inodes larger than blocks", |s| s.inode_size = 2048),
        ("first block", |s| s.first_data_block = 0),
        ("first block beyond the end", |s| s.first_data_block = u32::MAX),
        ("first block for large blocks", |s| s.log_block_size = 2),
        ("block size", |s| s.log_block_size = 7),
        ("huge block size", |s| s.log_block_size = u32::MAX),
        ("no blocks", |s| s.blocks_count = 0),
        ("one block", |s| s.blocks_count = 1),
        ("beyond the device", |s| s.blocks_count = 40 << 10),
        ("group overflow", |s| s.blocks_count = u64::MAX),
        ("first inode", |s| s.first_ino = 3),
        ("first inode beyond the end", |s| s.first_ino = 1 << 20),
        ("flexible groups", |s| {
            s.feature_incompat |= Incompat::FLEX_BG;
            s.log_groups_per_flex = 32;
        }),
        ("first meta group", |s| {
            s.feature_incompat |= Incompat::META_BG;
            s.first_meta_bg = 2;
        }),
        ("reserved descriptors", |s| s.reserved_gdt_blocks = 257),
        ("cluster smaller than a block", |s| {
            s.feature_ro_compat |= RoCompat::BIGALLOC;
            s.log_block_size = 1;
            s.first_data_block = 0;
        }),
        ("cluster size", |s| {
            s.feature_ro_compat |= RoCompat::BIGALLOC;
            s.log_cluster_size = 40;
        }),
        ("clusters per group", |s| {
            s.feature_ro_compat |= RoCompat::BIGALLOC;
            s.log_cluster_size = 4;
        }),
        ("journal device", |s| s.feature_incompat |= Incompat::JOURNAL_DEV),
        ("reserved blocks", |s| s.r_blocks_count = 1 << 40),
    ];
    let device = Some(34 << 20);
    assert!(Geometry::new(&sound(), device).is_ok());
    for (what, change) in cases {
        let mut sb = sound();
        change(&mut sb);
        assert!(Geometry::new(&sb, device).is_err(), "{what}");
    }
}

#[test]
fn geometry_places() {
    let geo = geometry(|_| {});
    assert_eq!(
        (geo.groups(), geo.group_blocks(GroupNr(4)), geo.group_blocks(GroupNr(5))),
        (5, 100, 0)
    );
    assert_eq!(geo.group_of_block(BlockNr(8193)), GroupNr(1));
    assert_eq!(geo.group_of_inode(InodeNr(513)), (GroupNr(1), 0));
    assert_eq!(geo.inode_at(GroupNr(1), 0), InodeNr(513));
    assert!(geo.is_valid_block(BlockNr(1)) && !geo.is_valid_block(BlockNr(0)));
    assert!(geo.is_valid_range(BlockNr(32868), 1) && !geo.is_valid_range(BlockNr(32868), 2));
    assert!(!geo.is_valid_range(BlockNr(u64::MAX), 2) && !geo.is_valid_range(BlockNr(5), 0));
    let many = geometry(|s| {
        s.blocks_count = 400 * 8192 + 1;
        s.inodes_count = 400 * 512;
    });
    let with_super: Vec<u32> = (0..400).filter(|&g| many.has_super(GroupNr(g))).collect();
    assert_eq!(with_super, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    let two = geometry(|s| {
        s.feature_compat = Compat::SPARSE_SUPER2;
        s.backup_bgs = [1, 4];
    });
    assert_eq!(two.backup_groups().collect::<Vec<_>>(), [GroupNr(1), GroupNr(4)]);
}

#[test]
fn unsigned_hash_flag() {
    let geo = geometry(|s| s.flags = SuperFlags::UNSIGNED_HASH);
    let hasher = htree::Hasher::new(&geo, 1).expect("known");
    assert_eq!(hasher.hash("f\u{f6}\u{f6}".as_bytes()).hash, 0x8697_3340);
    assert!(htree::Hasher::new(&geo, 6).is_none());
}
