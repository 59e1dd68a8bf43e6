//! No bytes make a decoder panic, loop or allocate without bound. (Overflow checks are on in this
//! profile.)

use extol_ondisk::htree::{DxBlock, DxKind};
use extol_ondisk::superblock::SuperFlags;
use extol_ondisk::{BlockNr, BlockSize};
use extol_ondisk::{
    Compat, FsSeed, Geometry, GroupDesc, GroupFlags, GroupNr, Incompat, Inode, InodeFlags, InodeNr,
    InodeSeed, RoCompat, Superblock, Time, acl, bitmap, dirent, extent, htree, indirect, mmp,
    orphan_file, xattr,
};
use proptest::prelude::*;

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
        ("Hurd", |s| s.creator_os = 1),
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
        (geo.groups, geo.group_blocks(GroupNr(4)), geo.group_blocks(GroupNr(5))),
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
fn descriptor_checksum_vectors() {
    let geo = geometry(|_| {});
    let mut bytes = [0; 64];
    GroupDesc::default().encode_into(&mut bytes, &geo, GroupNr(3));
    assert_eq!(bytes[0x1E..0x20], 0xBB0Eu16.to_le_bytes());
    let short = geometry(|s| {
        s.feature_incompat.remove(Incompat::BIT64);
        s.feature_ro_compat = RoCompat::UNINIT_BG;
    });
    let mut bytes = [0; 32];
    GroupDesc::default().encode_into(&mut bytes, &short, GroupNr(3));
    assert_eq!(bytes[0x1E..0x20], 0x12B8u16.to_le_bytes());
}

#[test]
fn descriptor_refuses() {
    let geo = geometry(|_| {});
    let good = GroupDesc {
        block_bitmap: 8200,
        inode_bitmap: 8201,
        inode_table: 8202,
        free_blocks: 8000,
        free_inodes: 512,
        itable_unused: 512,
        flags: GroupFlags::INODE_ZEROED,
        ..GroupDesc::default()
    };
    let decode = |desc: GroupDesc| {
        let mut bytes = [0; 64];
        desc.encode_into(&mut bytes, &geo, GroupNr(1));
        GroupDesc::decode(&bytes, &geo, GroupNr(1))
    };
    assert_eq!(decode(good), Ok(good));
    for bad in [
        GroupDesc { block_bitmap: 0, ..good },
        GroupDesc { block_bitmap: 100, ..good },
        GroupDesc { inode_bitmap: 1 << 40, ..good },
        GroupDesc { inode_table: u64::MAX, ..good },
        GroupDesc { inode_table: 16384 - 10, ..good },
        GroupDesc { free_blocks: 8193, ..good },
        GroupDesc { free_inodes: 513, ..good },
        GroupDesc { used_dirs: 513, ..good },
        GroupDesc { itable_unused: 0xFFFF_FFFF, ..good },
    ] {
        assert!(decode(bad).is_err_and(|e| !e.is_checksum()), "{bad:?}");
    }
    let mut bytes = [0; 64];
    good.encode_into(&mut bytes, &geo, GroupNr(1));
    assert!(GroupDesc::decode(&bytes, &geo, GroupNr(2)).is_err_and(|e| e.is_checksum()));
    assert!(GroupDesc::decode(&bytes[..63], &geo, GroupNr(1)).is_err());
}

#[test]
fn times() {
    for (sec, low, extra) in [
        (0i64, 0u32, 0u32),
        (-1, 0xFFFF_FFFF, 0),
        (Time::MIN_SEC, 0x8000_0000, 0),
        (0x7FFF_FFFF, 0x7FFF_FFFF, 0),
        (0x8000_0000, 0x8000_0000, 1),
        (0xFFFF_FFFF, 0xFFFF_FFFF, 1),
        (0x1_0000_0000, 0, 1),
        (0x2_0000_0000, 0, 2),
        (Time::MAX_SEC, 0x7FFF_FFFF, 3),
    ] {
        let time = Time { sec, nsec: 999_999_999 };
        assert_eq!(time.to_words(), (low, extra | 999_999_999 << 2), "{sec}");
        assert_eq!(Time::from_words(low, extra | 999_999_999 << 2), time);
    }
    assert_eq!(Time { sec: i64::MAX, nsec: 0 }.to_words(), (0x7FFF_FFFF, 3));
    assert_eq!(Time { sec: i64::MIN, nsec: u32::MAX }.to_words(), (0x8000_0000, 999_999_999 << 2));
    assert_eq!(Time { sec: 1 << 33, nsec: 5 }.to_word(), 0x7FFF_FFFF);
    assert_eq!(Time::from_words(0, u32::MAX).nsec, 999_999_999);
}

#[test]
fn inode_fields() {
    let geo = geometry(|_| {});
    let mut inode = Inode::new_empty(&geo);
    inode.mode = 0x81A4;
    inode.links = 1;
    inode.uid = 0x1_2345;
    inode.gid = 0xFFFF_FFFE;
    inode.size = 0x123_4567_89AB;
    inode.mtime = Time { sec: -1, nsec: 1 };
    inode.crtime = Time { sec: 1 << 32, nsec: 7 };
    inode.version = 0xAABB_CCDD_EEFF;
    inode.file_acl = 0x1234_5678_9ABC;
    inode.projid = 77;
    inode.tail[3] = 9;
    let round = |inode: &Inode| {
        let mut bytes = vec![0x77; 256];
        inode.encode_into(&mut bytes, InodeNr(12), &geo);
        assert!(Inode::decode(&bytes, InodeNr(13), &geo).is_err_and(|e| e.is_checksum()));
        (Inode::decode(&bytes, InodeNr(12), &geo).expect("decodes"), bytes)
    };
    assert_eq!(round(&inode).0, inode);

    // Block counts: 48 bits as they are, beyond that in units of blocks.
    inode.blocks = 0xFFFF_FFFF_FFFF;
    assert_eq!(round(&inode).0, inode);
    inode.blocks += 1;
    let (back, bytes) = round(&inode);
    assert_eq!(back.blocks, inode.blocks);
    assert!(back.flags.contains(InodeFlags::HUGE_FILE));
    assert_eq!(bytes[0x1C..0x20], [0; 4]);
    assert_eq!(bytes[0x74..0x76], [0, 0x80]);
    assert_eq!(round(&back).1, bytes);

    // Large inode without extra fields.
    inode.blocks = 8;
    inode.extra_isize = 0;
    inode.raw_extra.clear();
    inode.tail = vec![0; 128];
    let (mut back, bytes) = round(&inode);
    assert_eq!((back.extra_isize, back.tail.len(), back.projid), (0, 128, 0));
    assert_eq!((back.mtime, back.crtime), (Time { sec: -1, nsec: 0 }, Time::default()));
    assert_eq!(bytes[0x80..], [0; 128]);
    back.adopt_extra(&geo);
    assert_eq!((back.extra_isize, back.tail.len()), (32, 96));
    assert_eq!(round(&back).0, back);

    // Half of the extra fields.
    inode.extra_isize = 12;
    inode.tail = vec![5; 116];
    let (back, _) = round(&inode);
    assert_eq!((back.atime, back.mtime.nsec), (inode.atime, 1));
    assert_eq!((back.crtime, back.tail.len()), (Time::default(), 116));

    for bad in [2u16, 129, 0xFFFF, 126] {
        let mut bytes = bytes.clone();
        bytes[0x80..0x82].copy_from_slice(&bad.to_le_bytes());
        assert!(Inode::decode(&bytes, InodeNr(12), &geo).is_err_and(|e| !e.is_checksum()), "{bad}");
    }
    assert!(Inode::decode(&[0; 256], InodeNr(12), &geo).is_ok());
    assert!(Inode::decode(&[0; 255], InodeNr(12), &geo).is_err());
}

#[test]
fn extent_node_refuses() {
    let geo = geometry(|s| s.feature_ro_compat.remove(RoCompat::METADATA_CSUM));
    let e = |block, len, start| extent::Extent { block, len, start, unwritten: false };
    let decode = |all: Vec<extent::Extent>| {
        let node =
            extent::Node { max: 4, depth: 0, generation: 0, entries: extent::Entries::Leaf(all) };
        let mut bytes = [0; 60];
        node.encode_into(&mut bytes);
        (extent::Node::decode(&bytes, &geo), bytes)
    };
    assert!(decode(vec![e(0, 5, 100), e(5, 32, 200), e(1 << 31, 1, 300)]).0.is_ok());
    assert!(decode(vec![e(0, 5, 100), e(4, 1, 200)]).0.is_err(), "overlap");
    assert!(decode(vec![e(9, 1, 100), e(4, 1, 200)]).0.is_err(), "order");
    assert!(decode(vec![e(u32::MAX, 1, 100)]).0.is_err(), "beyond the largest file");
    assert!(decode(vec![e(u32::MAX - 1, 1, 100)]).0.is_ok());
    assert!(decode(vec![e(0, 1, 0)]).0.is_err(), "boot block");
    assert!(decode(vec![e(0, 2, 32868)]).0.is_err(), "beyond the volume");
    let (_, good) = decode(vec![e(0, 5, 100)]);
    for (at, value) in [(0, 0u8), (2, 5), (4, 0), (4, 5), (6, 6), (6, 1), (16, 0)] {
        let mut bytes = good;
        bytes[at] = value;
        assert!(extent::Node::decode(&bytes, &geo).is_err(), "byte {at} = {value}");
    }
    let unwritten = extent::Extent { block: 1, len: 32767, start: 5, unwritten: true };
    let mut bytes = [0; 12];
    unwritten.write(&mut bytes, 0);
    assert_eq!(bytes[4..6], [0xFF, 0xFF]);
    assert_eq!(extent::Extent::read(&bytes, 0), unwritten);
    e(1, 32768, 5).write(&mut bytes, 0);
    assert_eq!(extent::Extent::read(&bytes, 0), e(1, 32768, 5));
}

/// Feeds bytes to everything that decodes.
fn feed(bytes: &[u8], geo: &Geometry) {
    let nr = InodeNr(12);
    let _ = Superblock::decode(bytes);
    for group in [GroupNr(0), GroupNr(geo.groups - 1), GroupNr(u32::MAX)] {
        let _ = GroupDesc::decode(bytes, geo, group);
    }
    if let Ok(inode) = Inode::decode(bytes, nr, geo) {
        let mut out = vec![0; usize::from(geo.inode_size)];
        inode.encode_into(&mut out, nr, geo);
        let _ = (inode.kind(), inode.rdev(), inode.is_fast_symlink(), inode.maps_blocks());
        let _ = xattr::parse_ibody(&inode.tail);
    }
    if let Ok(node) = extent::Node::decode(bytes, geo) {
        let mut out = bytes.to_vec();
        node.encode_into(&mut out);
        let _ = (extent::search_leaf(bytes, 77), extent::search_index(bytes, 77));
    }
    let _ = (extent::search_leaf(bytes, 77), extent::search_index(bytes, 77));
    let _ = extent::verify_csum(bytes, InodeSeed(1));
    let _ = dirent::iter(bytes).count();
    let mut copy = bytes.to_vec();
    let _ = dirent::add(&mut copy, b"a name", nr, None);
    let _ = dirent::remove(&mut copy, b"a name");
    let _ = dirent::replace(&mut copy, b"x", nr, None);
    let _ = (dirent::is_empty(bytes), dirent::verify_csum(bytes, InodeSeed(1)));
    let _ = htree::decode_info(bytes, geo);
    for kind in [DxKind::Root, DxKind::Node] {
        let _ = htree::verify_csum(bytes, kind, InodeSeed(1));
        if let Ok(mut dx) = DxBlock::decode(bytes, kind, geo) {
            let at = dx.search(0x1234_5678);
            let _ = dx.insert(at, 0x1234_5678, 3);
        }
    }
    let _ = htree::Hasher::default_for(geo).hash(bytes);
    let _ = (xattr::parse_ibody(bytes), xattr::parse_block(bytes));
    let _ = xattr::verify_csum(bytes, BlockNr(5), FsSeed(7));
    let _ = (acl::Acl::from_disk(bytes), acl::Acl::from_xattr(bytes));
    let _ = (
        orphan_file::verify(bytes, BlockNr(5), Some(InodeSeed(1))),
        orphan_file::find_free(bytes, 3),
    );
    let _ = mmp::Mmp::decode(bytes, geo);
    let _ = bitmap::find_zero_run(bytes, 3, u32::MAX, 9);
    let _ = (bitmap::count_zeros(bytes, 5000), bitmap::find_set(bytes, 9, 4));
}

/// Asks a geometry everything.
fn ask(geo: &Geometry) {
    for group in [0, 1, 2, geo.groups / 2, geo.groups - 1, geo.groups, u32::MAX].map(GroupNr) {
        let _ = (geo.group_first_block(group), geo.group_blocks(group), geo.group_clusters(group));
        let _ = (geo.has_super(group), geo.desc_block(group), geo.base_meta_blocks(group));
        let _ = geo.inode_at(group, 5);
    }
    for n in [0, 1, geo.blocks - 1, geo.blocks, u64::MAX] {
        let _ = (geo.group_of_block(BlockNr(n)), geo.is_valid_range(BlockNr(n), 9));
    }
    for n in [0, 1, geo.inodes, u32::MAX] {
        let _ = geo.group_of_inode(InodeNr(n));
    }
    let _ = (geo.desc_blocks(), geo.groups_per_flex(), geo.inodes_per_block());
    let mut bytes = vec![0; usize::from(geo.inode_size)];
    Inode::new_empty(geo).encode_into(&mut bytes, InodeNr(11), geo);
}

/// Valid beginnings, so that random bytes get past magic numbers.
fn seeds() -> Vec<Vec<u8>> {
    let mut dir = vec![0; 1024];
    dirent::init_dots(&mut dir, InodeNr(2), InodeNr(2), None);
    let geo = geometry(|_| {});
    let mut root = vec![0; 1024];
    let info = htree::DxInfo { hash_version: 1, levels: 1 };
    htree::init_root(&mut root, &geo, InodeNr(2), InodeNr(2), None, info, 1);
    let mut node = vec![0; 1024];
    htree::init_node(&mut node);
    DxBlock::new(DxKind::Node, &geo, 7).encode_into(&mut node);
    let mut entries = vec![
        xattr::XattrEntry::new(1, b"name", b"value"),
        xattr::XattrEntry::new(6, b"x", &[1; 99]),
    ];
    let block = xattr::build_block(&mut entries, 1024, 2).expect("fits");
    let body = xattr::build_ibody(&entries, 1024).expect("fits");
    let mut leaf = vec![0; 1024];
    let all = (0..20)
        .map(|i| extent::Extent { block: i * 9, len: 4, start: 100, unwritten: i % 2 == 1 })
        .collect();
    extent::Node { max: 84, depth: 0, generation: 0, entries: extent::Entries::Leaf(all) }
        .encode_into(&mut leaf);
    let mut orphans = vec![0; 1024];
    orphan_file::init(&mut orphans);
    vec![vec![0; 1024], sound().encode().to_vec(), dir, root, node, block, body, leaf, orphans]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..2100), csum in any::<bool>()) {
        let geo = geometry(|s| if !csum { s.feature_ro_compat.remove(RoCompat::METADATA_CSUM) });
        feed(&bytes, &geo);
    }

    #[test]
    fn changed_bytes(
        seed in 0usize..9,
        edits in proptest::collection::vec((0usize..1024, any::<u8>()), 1..12),
        cut in 0usize..1100,
    ) {
        let geo = geometry(|s| s.feature_ro_compat.remove(RoCompat::METADATA_CSUM));
        let mut bytes = seeds().swap_remove(seed);
        for (at, value) in edits {
            bytes[at] = value;
        }
        feed(&bytes, &geo);
        bytes.truncate(cut);
        feed(&bytes, &geo);
    }

    #[test]
    fn changed_superblock(
        edits in proptest::collection::vec(
            (0usize..160, prop_oneof![Just(0u32), Just(1), Just(u32::MAX), Just(0x8000_0000), any::<u32>(), 0u32..4096]),
            1..5,
        ),
    ) {
        let mut bytes = sound().encode();
        // No checksum, or every change would stop there.
        bytes[0x64..0x68].copy_from_slice(&1u32.to_le_bytes());
        for (word, value) in edits {
            bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[0x64..0x68].iter_mut().skip(1).take(1).for_each(|b| *b &= !4);
        if let Ok(sb) = Superblock::decode(&bytes) {
            let _ = sb.encode();
            if let Ok(geo) = Geometry::new(&sb, None) {
                ask(&geo);
            }
        }
    }

    #[test]
    fn any_block_number(block in any::<u32>(), log in 10u32..17) {
        let bs = BlockSize::new(1 << log).expect("size");
        if let Some(path) = indirect::path(block, bs) {
            let n = indirect::pointers(bs);
            prop_assert!(path.slots()[0] < 15 && path.slots()[1..].iter().all(|&s| s < n));
            prop_assert!(path.in_same_block >= 1);
        } else {
            prop_assert!(u64::from(block) >= indirect::max_blocks(bs));
        }
    }
}

#[test]
fn unsigned_hash_flag() {
    let geo = geometry(|s| s.flags = SuperFlags::UNSIGNED_HASH);
    let hasher = htree::Hasher::new(&geo, 1).expect("known");
    assert_eq!(hasher.hash("f\u{f6}\u{f6}".as_bytes()).hash, 0x8697_3340);
    assert!(htree::Hasher::new(&geo, 6).is_none());
}
