//! Random bytes, and valid structures with changes, through every decoder.

use extol_ondisk::htree::{DxBlock, DxKind};
use extol_ondisk::quota::{Entry, InMemory, Kind, QuotaFile};
use extol_ondisk::{
    BlockNr, BlockSize, FsSeed, Geometry, GroupDesc, GroupNr, Inode, InodeNr, InodeSeed, RoCompat,
    Superblock, acl, bitmap, dirent, extent, htree, indirect, mmp, orphan_file, xattr,
};
use proptest::prelude::*;

use super::{geometry, sound};

/// Feeds bytes to everything that decodes.
fn feed(bytes: &[u8], geo: &Geometry) {
    let nr = InodeNr(12);
    let _ = Superblock::decode(bytes);
    for group in [GroupNr(0), GroupNr(geo.groups() - 1), GroupNr(u32::MAX)] {
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
    }
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
            let _ = dx.insert(0, 0x1234_5678, 3);
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
    for kind in Kind::ALL {
        if let Ok(mut file) = QuotaFile::open(InMemory(bytes.to_vec()), kind) {
            let _ = (file.verify(), file.entries(), file.get(5), file.remove(5));
            let _ = file.set(&Entry::new(7));
        }
    }
    let _ = bitmap::find_zero(bytes, 3, u32::MAX);
    let _ = (bitmap::count_zeros(bytes, 5000), bitmap::find_set(bytes, 9, 4));
}

/// Asks a geometry everything.
fn ask(geo: &Geometry) {
    for group in [0, 1, 2, geo.groups() / 2, geo.groups() - 1, geo.groups(), u32::MAX].map(GroupNr)
    {
        let _ = (geo.group_first_block(group), geo.group_blocks(group), geo.group_clusters(group));
        let _ = (geo.has_super(group), geo.desc_block(group), geo.base_meta_blocks(group));
        let _ = geo.inode_at(group, 5);
    }
    for n in [0, 1, geo.blocks() - 1, geo.blocks(), u64::MAX] {
        let _ = (geo.group_of_block(BlockNr(n)), geo.is_valid_range(BlockNr(n), 9));
    }
    for n in [0, 1, geo.inodes(), u32::MAX] {
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
    dirent::init_area(&mut node);
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
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

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
            (
                0usize..160,
                prop_oneof![
                    Just(0u32),
                    Just(1),
                    Just(u32::MAX),
                    Just(0x8000_0000),
                    any::<u32>(),
                    0u32..4096
                ],
            ),
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
        } else {
            prop_assert!(u64::from(block) >= indirect::max_blocks(bs));
        }
    }
}
