//! The decoders of single structures. The first byte of an input chooses a geometry, the rest is
//! the structure; where it has a checksum inside, that is made right. What a decoder accepts must
//! survive encoding: the same fields come back.

use std::sync::OnceLock;

use extol_block::{BlockNr, BlockSize};
use extol_ondisk::htree::{DxBlock, DxKind, Hasher};
use extol_ondisk::{
    Compat, Geometry, GroupDesc, GroupNr, Incompat, Inode, InodeNr, RoCompat, Superblock, bitmap,
    checksum,
};
use extol_ondisk::{
    acl as acls, dirent as entries, extent as extents, htree as index, indirect as pointers,
};
use extol_ondisk::{mmp as guard, orphan_file as orphans, xattr as attributes};

const INO: InodeNr = InodeNr(12);
const NR: BlockNr = BlockNr(77);

/// Small and large blocks and descriptors, with and without checksums, every kind of large feature.
fn geometries() -> &'static [Geometry] {
    static ALL: OnceLock<Vec<Geometry>> = OnceLock::new();
    ALL.get_or_init(|| {
        let csum = RoCompat::METADATA_CSUM | RoCompat::EXTRA_ISIZE | RoCompat::HUGE_FILE;
        let wide = Incompat::FILETYPE | Incompat::EXTENTS | Incompat::BIT64;
        let plain = RoCompat::SPARSE_SUPER | RoCompat::EXTRA_ISIZE;
        [
            (0, 256, wide, csum),
            (2, 256, wide | Incompat::FLEX_BG | Incompat::LARGE_DIR, csum | RoCompat::PROJECT),
            (0, 128, Incompat::FILETYPE, RoCompat::SPARSE_SUPER),
            (0, 256, Incompat::FILETYPE | Incompat::EXTENTS, plain | RoCompat::UNINIT_BG),
            (6, 512, wide | Incompat::INLINE_DATA, plain),
            (2, 4096, wide | Incompat::META_BG, csum),
        ]
        .map(|(log, inode_size, incompat, ro_compat)| {
            let mut sb = Superblock::new_empty();
            sb.log_block_size = log;
            sb.first_data_block = u32::from(log == 0);
            sb.blocks_per_group = 8192;
            sb.clusters_per_group = 8192;
            sb.blocks_count = 4 * 8192 + 700 + u64::from(sb.first_data_block);
            sb.inodes_per_group = 512;
            sb.inodes_count = 5 * 512;
            sb.inode_size = inode_size;
            sb.first_ino = 11;
            sb.desc_size = if incompat.contains(Incompat::BIT64) { 64 } else { 32 };
            sb.checksum_type = 1;
            (sb.min_extra_isize, sb.want_extra_isize) = (32, 32);
            sb.uuid = *b"a uuid of a test";
            sb.feature_compat = Compat::DIR_INDEX | Compat::EXT_ATTR;
            (sb.feature_incompat, sb.feature_ro_compat) = (incompat, ro_compat);
            Geometry::new(&sb, None).expect("sound")
        })
        .to_vec()
    })
}

fn split(input: &[u8]) -> Option<(&'static Geometry, &[u8])> {
    let (first, rest) = input.split_first()?;
    let all = geometries();
    Some((&all[usize::from(*first) % all.len()], rest))
}

/// A whole block: the input, then zeros.
fn block(geo: &Geometry, bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(geo.block_len(), 0);
    block
}

pub(super) fn superblock(input: &[u8]) {
    let mut bytes = input.to_vec();
    let _ = Superblock::decode(&bytes);
    bytes.resize(1024, 0);
    bytes[0x38..0x3A].copy_from_slice(&0xEF53u16.to_le_bytes());
    let sum = checksum::crc32c(!0, &bytes[..0x3FC]);
    bytes[0x3FC..].copy_from_slice(&sum.to_le_bytes());
    let Ok(sb) = Superblock::decode(&bytes) else { return };
    let again = Superblock::decode(&sb.encode()).expect("what was encoded decodes");
    assert_eq!(sb.encode(), again.encode());
    let _ = (sb.block_bytes(), sb.label(), sb.fs_seed());
    for size in [None, Some(1 << 20), Some(1 << 40)] {
        if let Ok(geo) = Geometry::new(&sb, size) {
            geometry(&geo);
        }
    }
}

/// A geometry that was accepted answers everything, and its answers lie inside the volume.
fn geometry(geo: &Geometry) {
    assert!(geo.groups() > 0 && geo.blocks() > 0 && geo.inodes() > 0 && geo.inodes_per_group > 0);
    for group in [0, 1, 2, geo.groups() / 2, geo.groups() - 1]
        .map(GroupNr)
        .into_iter()
        .filter(|g| g.0 < geo.groups())
    {
        let (first, len) = (geo.group_first_block(group), geo.group_blocks(group));
        assert!(len > 0 && geo.is_valid_range(first, u64::from(len)), "{group:?}");
        assert_eq!(geo.group_of_block(first), group);
        assert_eq!(geo.group_of_inode(geo.inode_at(group, 0)), (group, 0));
        let (_, offset) = geo.desc_block(group);
        assert!(offset + usize::from(geo.desc_size) <= geo.block_len());
        let _ = (geo.has_super(group), geo.base_meta_blocks(group), geo.group_desc_blocks(group));
        let _ = (geo.group_clusters(group), geo.inode_at(group, geo.inodes_per_group - 1));
    }
    for n in [0, 1, geo.blocks() - 1, geo.blocks(), u64::MAX] {
        let _ = (geo.group_of_block(BlockNr(n)), geo.is_valid_range(BlockNr(n), 9));
    }
    let _ = (geo.group_of_inode(InodeNr(0)), geo.group_of_inode(InodeNr(u32::MAX)));
    let _ =
        (geo.desc_blocks(), geo.groups_per_flex(), geo.inodes_per_block(), geo.descs_per_block());
    assert!(geo.backup_groups().take(1000).all(|g| g.0 < geo.groups()));
    let mut bytes = vec![0; usize::from(geo.inode_size)];
    Inode::new_empty(geo).encode_into(&mut bytes, INO, geo);
    assert!(Inode::decode(&bytes, INO, geo).is_ok());
}

pub(super) fn group_desc(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let group = GroupNr(u32::from(rest.first().copied().unwrap_or(0)) % 6);
    let _ = GroupDesc::decode(rest, geo, group);
    let mut bytes = rest.to_vec();
    bytes.resize(usize::from(geo.desc_size), 0);
    seal_desc(&mut bytes, geo, group);
    let Ok(desc) = GroupDesc::decode(&bytes, geo, group) else { return };
    let mut out = bytes.clone();
    desc.encode_into(&mut out, geo, group);
    assert_eq!(out, bytes, "{desc:?}");
}

fn seal_desc(bytes: &mut [u8], geo: &Geometry, group: GroupNr) {
    bytes[0x1E..0x20].fill(0);
    let number = group.0.to_le_bytes();
    let sum = if geo.has_metadata_csum() {
        checksum::crc32c(checksum::crc32c(geo.fs_seed.0, &number), bytes) as u16
    } else if geo.has_gdt_csum() {
        let sum = checksum::crc16(checksum::crc16(!0, &geo.uuid), &number);
        let sum = checksum::crc16(sum, &bytes[..0x1E]);
        if geo.incompat().contains(Incompat::BIT64) {
            checksum::crc16(sum, &bytes[0x20..])
        } else {
            sum
        }
    } else {
        return;
    };
    bytes[0x1E..0x20].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn inode(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let _ = Inode::decode(rest, INO, geo);
    let mut bytes = rest.to_vec();
    bytes.resize(usize::from(geo.inode_size), 0);
    if geo.has_metadata_csum() {
        seal_inode(&mut bytes, geo);
    }
    let Ok(inode) = Inode::decode(&bytes, INO, geo) else { return };
    let mut out = bytes.clone();
    inode.encode_into(&mut out, INO, geo);
    let mut again = Inode::decode(&out, INO, geo).expect("what was encoded decodes");
    // Numbers of blocks beyond 48 bits of sectors are stored in units of blocks.
    again.flags = inode.flags;
    assert_eq!(again, inode);
    let _ = (inode.kind(), inode.rdev(), inode.is_fast_symlink(), inode.maps_blocks());
    let _ = attributes::parse_ibody(&inode.tail);
    let mut extra = inode;
    extra.expand_extra(geo);
    extra.encode_into(&mut out, INO, geo);
    assert!(Inode::decode(&out, INO, geo).is_ok());
}

fn seal_inode(bytes: &mut [u8], geo: &Geometry) {
    let generation = u32::from_le_bytes(bytes[0x64..0x68].try_into().expect("four bytes"));
    let extra = bytes.len() > 128 && u16::from_le_bytes([bytes[0x80], bytes[0x81]]) >= 4;
    bytes[0x7C..0x7E].fill(0);
    if extra {
        bytes[0x82..0x84].fill(0);
    }
    let sum = geo.fs_seed.inode(INO, generation).crc(bytes).to_le_bytes();
    bytes[0x7C..0x7E].copy_from_slice(&sum[..2]);
    if extra {
        bytes[0x82..0x84].copy_from_slice(&sum[2..]);
    }
}

pub(super) fn extent(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    for bytes in [rest.to_vec(), block(geo, rest), block(geo, rest)[..60].to_vec()] {
        let seed = geo.fs_seed.inode(INO, 0);
        let _ = extents::verify_csum(&bytes, seed);
        let Ok(node) = extents::Node::decode(&bytes, geo) else { continue };
        assert!(node.len() <= usize::from(node.max));
        let mut out = bytes.clone();
        node.encode_into(&mut out);
        assert_eq!(extents::Node::decode(&out, geo).as_ref(), Ok(&node));
        if bytes.len() == geo.block_len()
            && node.max <= extents::block_max(geo)
            && geo.has_metadata_csum()
        {
            extents::set_csum(&mut out, seed);
            assert!(extents::verify_csum(&out, seed).is_ok());
        }
        if let extents::Entries::Leaf(list) = &node.entries {
            for e in list {
                assert!(e.len >= 1 && geo.is_valid_range(BlockNr(e.start), u64::from(e.len)));
            }
        }
    }
}

pub(super) fn indirect(input: &[u8]) {
    let mut bytes = input.to_vec();
    bytes.resize(input.len().max(6), 0);
    let size = BlockSize::new(1024 << (bytes[0] % 7)).expect("a block size");
    let number = u32::from_le_bytes(bytes[1..5].try_into().expect("four bytes"));
    match pointers::path(number, size) {
        Some(path) => {
            let slots = path.slots();
            assert!(slots[0] < 15 && slots[1..].iter().all(|s| *s < pointers::pointers(size)));
            assert!(slots.len() == path.depth() + 1);
            // The way leads to where it came from.
            let spans = (0..path.depth()).rev().map(|level| pointers::span(level, size));
            let inside: u64 =
                slots[1..].iter().zip(spans).map(|(s, span)| u64::from(*s) * span).sum();
            let n = u64::from(pointers::pointers(size));
            let first = match slots[0] {
                direct @ 0..=12 => u64::from(direct),
                13 => 12 + n,
                _ => 12 + n + n * n,
            };
            assert_eq!(first + inside, u64::from(number));
        }
        None => assert!(u64::from(number) >= pointers::max_blocks(size)),
    }
    let slot = u32::from(bytes[5]);
    let _ = pointers::pointer(&bytes, slot);
    if (slot as usize + 1) * 4 <= bytes.len() {
        pointers::set_pointer(&mut bytes, slot, number);
        assert_eq!(pointers::pointer(&bytes, slot), number);
    }
}

pub(super) fn dirent(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let whole = block(geo, rest);
    for area in [rest, &whole[..entries::area_len(geo)], &whole[..60]] {
        let all: Vec<_> = entries::iter(area).collect();
        let sound = all.iter().all(Result::is_ok);
        let _ = entries::is_empty(area);
        for e in all.iter().flatten() {
            assert!(e.offset + 8 + e.name.len() <= area.len());
        }
        for name in [&b"a name"[..], &[b'n'; 255]] {
            let mut copy = area.to_vec();
            let found = entries::find(area, name);
            let added = entries::add(&mut copy, name, INO, None);
            assert!(sound || found.is_err() || added.is_err() || copy.len() == area.len());
            if added == Ok(true) && sound {
                assert!(entries::find(&copy, name).is_ok_and(|e| e.is_some()));
                let before = entries::iter(area).count();
                assert!(
                    entries::iter(&copy).all(|e| e.is_ok())
                        && entries::iter(&copy).count() <= before + 1
                );
                assert!(entries::replace(&mut copy, name, InodeNr(13), None).is_ok());
                assert!(entries::remove(&mut copy, name).is_ok_and(|e| e.is_some()));
                assert!(entries::iter(&copy).all(|e| e.is_ok()));
            }
        }
    }
    let mut sealed = whole.clone();
    let seed = geo.fs_seed.inode(INO, 0);
    let _ = entries::verify_csum(&whole, seed);
    entries::init_area(&mut sealed[..geo.block_len() - 12]);
    entries::set_csum(&mut sealed, seed);
}

pub(super) fn htree(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let whole = block(geo, rest);
    let seed = geo.fs_seed.inode(INO, 0);
    if let Ok(info) = index::decode_info(&whole, geo) {
        assert!(info.levels <= index::max_levels(geo));
        if let Some(hasher) = Hasher::new(geo, info.hash_version) {
            let _ = hasher.hash(rest);
        }
    }
    let _ = index::decode_info(rest, geo);
    for kind in [DxKind::Root, DxKind::Node] {
        let _ = (DxBlock::decode(rest, kind, geo), index::verify_csum(rest, kind, seed));
        let _ = index::verify_csum(&whole, kind, seed);
        let Ok(mut dx) = DxBlock::decode(&whole, kind, geo) else { continue };
        let mut out = whole.clone();
        dx.encode_into(&mut out);
        assert_eq!(DxBlock::decode(&out, kind, geo).as_ref(), Ok(&dx));
        // Without the feature there is no room for one.
        if geo.has_metadata_csum() {
            index::set_csum(&mut out, kind, seed);
            assert!(index::verify_csum(&out, kind, seed).is_ok());
        }
        for hash in [0, 1, 0x1234_5678, u32::MAX] {
            let room = dx.entries.len() < usize::from(dx.limit);
            assert_eq!(dx.insert(0, hash, 3).is_ok(), room);
        }
    }
}

pub(super) fn xattr(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    if let Ok(mut list) = attributes::parse_ibody(rest) {
        let in_inodes = list.iter().any(|e| e.value_inum != 0);
        assert_eq!(attributes::ibody_names_inodes(rest), in_inodes);
        assert!(list.iter().map(|e| e.value.len()).all(|len| len <= rest.len()));
        list.truncate(50);
        if let Some(built) = attributes::build_ibody(&list, 1 << 16) {
            assert!(
                in_inodes
                    || attributes::parse_ibody(&built).is_ok_and(|again| again.len() == list.len())
            );
        }
    }
    let _ = attributes::parse_block(rest);
    let whole = block(geo, rest);
    let mut sealed = whole.clone();
    attributes::set_csum(&mut sealed, NR, geo.fs_seed);
    assert!(attributes::verify_csum(&sealed, NR, geo.fs_seed).is_ok());
    let Ok((header, mut list)) = attributes::parse_block(&whole) else { return };
    // Values may overlap in the block, so together they may need more room than there is.
    if let Some(built) = attributes::build_block(&mut list, geo.block_len(), header.refcount) {
        let (again, same) = attributes::parse_block(&built).expect("what was built parses");
        assert_eq!((again.refcount, same.len()), (header.refcount, list.len()));
        assert!(same.iter().zip(&list).all(|(a, b)| a.name == b.name && a.value == b.value));
    }
}

pub(super) fn acl(input: &[u8]) {
    for (decoded, own) in
        [(acls::Acl::from_disk(input), true), (acls::Acl::from_xattr(input), false)]
    {
        let Ok(list) = decoded else { continue };
        let _ = list.is_valid();
        assert!(list.entries.len() <= input.len() / 4);
        let encoded = if own { list.to_disk() } else { list.to_xattr() };
        let again =
            if own { acls::Acl::from_disk(&encoded) } else { acls::Acl::from_xattr(&encoded) };
        assert_eq!(again, Ok(list));
    }
}

pub(super) fn orphan_file(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let seed = geo.fs_seed.inode(INO, 0);
    let _ = (orphans::verify(rest, NR, Some(seed)), orphans::verify(rest, NR, None));
    let _ = (orphans::find_free(rest, 0), orphans::find_free(rest, u32::MAX));
    let mut whole = block(geo, rest);
    let slots = orphans::slots(geo.block_size);
    if let Some(slot) = orphans::find_free(&whole, 3) {
        assert!((3..slots).contains(&slot) && orphans::get(&whole, slot).0 == 0);
        orphans::set(&mut whole, slot, INO);
        assert_eq!(orphans::get(&whole, slot), INO);
    }
    if orphans::verify(&whole, NR, None).is_ok() {
        orphans::set_csum(&mut whole, NR, seed);
        assert!(orphans::verify(&whole, NR, Some(seed)).is_ok());
    }
}

pub(super) fn mmp(input: &[u8]) {
    let Some((geo, rest)) = split(input) else { return };
    let _ = guard::Mmp::decode(rest, geo);
    let mut whole = block(geo, rest);
    whole[..4].copy_from_slice(&0x004D_4D50u32.to_le_bytes());
    let sum = geo.fs_seed.crc(&whole[..0x3FC]);
    whole[0x3FC..0x400].copy_from_slice(&sum.to_le_bytes());
    let decoded = guard::Mmp::decode(&whole, geo).expect("magic and checksum are right");
    let mut out = whole.clone();
    decoded.encode_into(&mut out, geo);
    assert_eq!(out, whole);
}

/// Searches agree with looking at one bit after the other.
pub(super) fn bitmap(input: &[u8]) {
    let Some((head, bytes)) = input.split_at_checked(6) else { return };
    let word = |at: usize| u32::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (from, to) = (word(0), word(2));
    let bits = bytes.len() as u32 * 8;
    // Bits behind the end count as set.
    let slow = |set: bool| (from..to).find(|n| bitmap::test(bytes, *n) == set);
    let (zero, one) = (bitmap::find_zero(bytes, from, to), bitmap::find_set(bytes, from, to));
    assert_eq!((zero, one), (slow(false), slow(true)));
    assert_eq!(
        bitmap::count_zeros(bytes, bits),
        (0..bits).filter(|n| !bitmap::test(bytes, *n)).count() as u32
    );
    let _ = bitmap::count_zeros(bytes, to);
    let mut copy = bytes.to_vec();
    bitmap::set_range(&mut copy, from.min(bits), to.min(bits));
    assert!((from..to.min(bits)).all(|n| bitmap::test(&copy, n)));
    bitmap::clear_range(&mut copy, from.min(bits), to.min(bits));
    assert!((from..to.min(bits)).all(|n| !bitmap::test(&copy, n)));
}
