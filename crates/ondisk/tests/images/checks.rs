//! What must hold on every image.

use crate::image::Image;
use crate::run;
use extol_ondisk::BlockNr;
use extol_ondisk::htree::{DxBlock, DxKind, Hasher};
use extol_ondisk::{
    FileType, GroupDesc, GroupFlags, GroupNr, Incompat, Inode, InodeFlags, InodeNr, Superblock,
    bitmap, dirent, htree, mmp, orphan_file,
};
use std::collections::HashMap;
use std::path::Path;

pub fn check_super(image: &Image) {
    assert_eq!(image.sb.encode()[..], image.bytes[1024..2048]);
    for group in image.geo.backup_groups() {
        let copy = image.block(image.geo.group_first_block(group));
        let sb = Superblock::decode(copy).expect("superblock copy");
        assert_eq!(sb.uuid, image.sb.uuid);
        assert_eq!(sb.block_group_nr, group.0 as u16);
        assert_eq!(sb.encode()[..], copy[..1024]);
    }
}

pub fn check_groups(image: &Image) {
    let geo = &image.geo;
    let (mut free_blocks, mut free_inodes) = (0u64, 0u32);
    for group in (0..geo.groups()).map(GroupNr) {
        let desc = image.desc(group);
        let bytes = image.desc_bytes(group);
        let mut copy = bytes.to_vec();
        desc.encode_into(&mut copy, geo, group);
        assert_eq!(copy, bytes, "{group:?}");
        let changed = GroupDesc { free_blocks: desc.free_blocks.saturating_sub(1), ..desc };
        changed.encode_into(&mut copy, geo, group);
        assert_eq!(GroupDesc::decode(&copy, geo, group), Ok(changed));

        let blocks = image.block(BlockNr(desc.block_bitmap));
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            assert!(bitmap::block_bitmap_ok(geo, &desc, blocks), "block bitmap of {group:?}");
            assert_eq!(bitmap::count_zeros(blocks, geo.group_clusters(group)), desc.free_blocks);
            let base = geo.base_meta_blocks(group).div_ceil(geo.cluster_ratio);
            assert!((0..base).all(|n| bitmap::test(blocks, n)), "start of {group:?}");
        }
        let inodes = image.block(BlockNr(desc.inode_bitmap));
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            assert!(bitmap::inode_bitmap_ok(geo, &desc, inodes), "inode bitmap of {group:?}");
            assert_eq!(bitmap::count_zeros(inodes, geo.inodes_per_group), desc.free_inodes);
        }
        free_blocks += u64::from(desc.free_blocks) * u64::from(geo.cluster_ratio);
        free_inodes += desc.free_inodes;
    }
    assert_eq!(free_blocks, image.sb.free_blocks_count);
    assert_eq!(free_inodes, image.sb.free_inodes_count);
}

/// "a-b" or "a".
fn span(text: &str) -> (u64, u64) {
    let text = text.trim_end_matches([',', ')']);
    let (a, b) = text.split_once('-').unwrap_or((text, text));
    (a.parse().expect("number"), b.parse().expect("number"))
}

/// Compares places with what dumpe2fs prints.
pub fn check_dumpe2fs(image: &Image, path: &Path) {
    let geo = &image.geo;
    let text = run("dumpe2fs", &[&path.to_string_lossy()], &[0]);
    let mut group = GroupNr(0);
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let mut groups = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |what: &str| {
            line.split_once(what).map(|(_, rest)| rest.split_whitespace().next().unwrap_or(""))
        };
        if let Some(rest) = line.strip_prefix("Group ").filter(|_| line.contains("(Blocks ")) {
            group = GroupNr(rest.split(':').next().unwrap_or("").trim().parse().expect("group"));
            let (first, last) = span(after("(Blocks ").expect("blocks"));
            assert_eq!(geo.group_first_block(group), BlockNr(first));
            assert_eq!(u64::from(geo.group_blocks(group)), last - first + 1);
            assert_eq!(geo.group_of_block(BlockNr(last)), group);
            groups += 1;
        }
        if let Some(at) = after("superblock at ") {
            assert!(geo.has_super(group), "{line}");
            if group.0 > 0 {
                assert_eq!(geo.group_first_block(group), BlockNr(span(at).0));
            }
            *seen.entry(group.0).or_default() += 1;
        }
        if let Some(at) = after("Group descriptors at ").or(after("Group descriptor at ")) {
            let (first, last) = span(at);
            assert_eq!(u64::from(geo.group_desc_blocks(group)), last - first + 1, "{line}");
            *seen.entry(group.0).or_default() += (last - first + 1) as u32;
            if group.0 == 0 {
                assert_eq!(geo.desc_block(group), (BlockNr(first), 0));
            }
        }
        if let Some(at) = after("Reserved GDT blocks at ") {
            let (first, last) = span(at);
            *seen.entry(group.0).or_default() += (last - first + 1) as u32;
        }
        if words.first() == Some(&"Block")
            && words.get(1) == Some(&"bitmap")
            && words.get(2) == Some(&"at")
        {
            assert_eq!(image.desc(group).block_bitmap, span(words[3]).0);
        }
        if let Some(at) = after("Inode bitmap at ") {
            assert_eq!(image.desc(group).inode_bitmap, span(at).0);
        }
        if let Some(at) = after("Inode table at ") {
            let (first, last) = span(at);
            assert_eq!(image.desc(group).inode_table, first);
            assert_eq!(u64::from(geo.inode_table_blocks), last - first + 1);
        }
        if let Some(list) = line.strip_prefix("Filesystem features:") {
            let mut theirs: Vec<&str> =
                list.split_whitespace().filter(|n| *n != "(none)").collect();
            let mut ours = image.sb.feature_compat.names();
            ours.extend(image.sb.feature_incompat.names());
            ours.extend(image.sb.feature_ro_compat.names());
            theirs.sort_unstable();
            ours.sort_unstable();
            assert_eq!(ours, theirs);
        }
    }
    assert_eq!(groups, geo.groups());
    for g in 0..geo.groups() {
        let boot = u32::from(g == 0 && geo.block_len() == 1024 && geo.first_data_block == 0);
        let ours = geo.base_meta_blocks(GroupNr(g));
        assert_eq!(ours, boot + seen.get(&g).copied().unwrap_or(0), "start of group {g}");
    }
}

/// All inodes and what hangs on them. Returns how many directories were hashed.
pub fn check_inodes(image: &Image) -> u32 {
    let geo = &image.geo;
    let mut hashed = 0;
    for ino in image.used_inodes() {
        let bytes = image.inode_bytes(ino);
        let inode = image.inode(ino);
        let mut copy = vec![0xEE; bytes.len()];
        inode.encode_into(&mut copy, ino, geo);
        if bytes.iter().any(|&b| b != 0) {
            assert_eq!(copy, bytes, "{ino:?}");
        }
        if geo.has_metadata_csum() && bytes.iter().any(|&b| b != 0) {
            let mut bad = bytes.to_vec();
            bad[4] ^= 1;
            assert!(Inode::decode(&bad, ino, geo).expect_err("bad checksum").is_checksum());
        }
        if ino != InodeNr::ROOT && ino < geo.first_ino {
            continue;
        }
        image.xattrs(ino, &inode);
        if inode.kind() == Some(FileType::Directory)
            && !inode.flags.contains(InodeFlags::INLINE_DATA)
        {
            hashed += u32::from(check_directory(image, ino, &inode));
        } else if inode.maps_blocks() {
            let blocks = image.file_blocks(ino, &inode);
            let whole = inode.size.div_ceil(u64::from(geo.block_size.bytes()));
            if inode.size == 700_000 {
                assert_eq!(blocks.len() as u64, whole);
            }
        }
    }
    hashed
}

/// Every block of a directory; true if it is hashed.
pub fn check_directory(image: &Image, ino: InodeNr, inode: &Inode) -> bool {
    let geo = &image.geo;
    let seed = inode.seed(ino, geo);
    let blocks: HashMap<u32, BlockNr> = image.file_blocks(ino, inode).into_iter().collect();
    let is_hashed = inode.flags.contains(InodeFlags::INDEX);
    let mut index_blocks = Vec::new();
    if is_hashed {
        let root = image.block(blocks[&0]);
        let info = htree::decode_info(root, geo).expect("root");
        let hasher = Hasher::new(geo, info.hash_version).expect("hash version");
        let mut level = vec![(0u32, 0u32, u32::MAX)];
        for depth in 0..=info.levels {
            let kind = if depth == 0 { DxKind::Root } else { DxKind::Node };
            let mut below = Vec::new();
            for (block, low, high) in level {
                index_blocks.push(block);
                let bytes = image.block(blocks[&block]);
                let dx = DxBlock::decode(bytes, kind, geo).expect("index block");
                if geo.has_metadata_csum() {
                    htree::verify_csum(bytes, kind, seed).expect("index checksum");
                }
                let mut copy = bytes.to_vec();
                dx.encode_into(&mut copy);
                if geo.has_metadata_csum() {
                    htree::set_csum(&mut copy, kind, seed);
                    htree::verify_csum(&copy, kind, seed).expect("index checksum");
                }
                let used = kind.count_at() + 8 * dx.entries.len();
                assert_eq!(copy[..used], bytes[..used]);
                for (i, e) in dx.entries.iter().enumerate() {
                    let from = if i == 0 { low } else { e.hash };
                    let to = dx.entries.get(i + 1).map_or(high, |next| next.hash);
                    below.push((e.block, from, to));
                }
            }
            level = below;
        }
        for (leaf, low, high) in level {
            for entry in dirent::iter(&image.block(blocks[&leaf])[..dirent::area_len(geo)]) {
                let entry = entry.expect("chain");
                if entry.is_used() {
                    let h = hasher.hash(entry.name).hash;
                    assert!(h >= low & !1 && h <= high, "{h:x} is not in {low:x}..{high:x}");
                }
            }
        }
    }
    for (n, &nr) in &blocks {
        if index_blocks.contains(n) {
            continue;
        }
        let bytes = image.block(nr);
        if geo.has_metadata_csum() {
            dirent::verify_csum(bytes, seed).expect("directory checksum");
            let mut copy = bytes.to_vec();
            dirent::set_csum(&mut copy, seed);
            assert_eq!(copy, bytes);
        }
        for entry in dirent::iter(&bytes[..dirent::area_len(geo)]) {
            let entry = entry.expect("chain");
            if entry.is_used() {
                let kind = image.inode(entry.ino).kind();
                let typed = geo.incompat().contains(Incompat::FILETYPE);
                assert_eq!(entry.file_type, if typed { kind } else { None }, "{:?}", entry.name);
            }
        }
    }
    is_hashed
}

pub fn check_orphan_file_and_mmp(image: &Image) {
    let geo = &image.geo;
    if image.sb.orphan_file_inum != 0 {
        let ino = InodeNr(image.sb.orphan_file_inum);
        let inode = image.inode(ino);
        let seed = geo.has_metadata_csum().then(|| inode.seed(ino, geo));
        let blocks = image.file_blocks(ino, &inode);
        assert!(!blocks.is_empty());
        for (_, nr) in blocks {
            orphan_file::verify(image.block(nr), nr, seed).expect("orphan block");
            let mut copy = image.block(nr).to_vec();
            if let Some(seed) = seed {
                orphan_file::set_csum(&mut copy, nr, seed);
            }
            assert_eq!(copy, image.block(nr));
            assert_eq!(orphan_file::find_free(&copy, 0), Some(0));
        }
    }
    if geo.incompat().contains(Incompat::MMP) {
        let block = image.block(BlockNr(image.sb.mmp_block));
        let found = mmp::Mmp::decode(block, geo).expect("MMP block");
        assert_eq!(found.seq, mmp::SEQ_CLEAN);
        let mut copy = block.to_vec();
        found.encode_into(&mut copy, geo);
        assert_eq!(copy, block);
    }
}
