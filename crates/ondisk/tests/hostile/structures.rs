//! Descriptors, inodes and extent nodes at their limits.

use extol_ondisk::{
    GroupDesc, GroupFlags, GroupNr, Incompat, Inode, InodeFlags, InodeNr, RoCompat, Time, extent,
};

use super::geometry;

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
    back.expand_extra(&geo);
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
