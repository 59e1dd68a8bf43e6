//! Byte literals of every structure and round trips over every variant.

use extol_block::{BlockNr, BlockSize};

use super::bytes::{be16, be32, put32};
use super::*;
use crate::Tid;

fn bs(bytes: u32) -> BlockSize {
    BlockSize::new(bytes).unwrap()
}

fn format(compat: u32, incompat: u32, block_size: u32) -> Format {
    let uuid = std::array::from_fn(|i| i as u8);
    Format::new(Features { compat, incompat, ro_compat: 0 }, bs(block_size), uuid)
}

/// Every checksum version, both widths of numbers, four block sizes.
fn variants() -> Vec<Format> {
    let mut all = Vec::new();
    for size in [1024, 2048, 4096, 65536] {
        for (compat, incompat) in [(0, 0), (1, 0), (0, 0x8), (0, 0x10)] {
            all.push(format(compat, incompat, size));
            all.push(format(compat, incompat | 0x2, size));
        }
    }
    all
}

fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<u8> = s.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect()
}

const V3_64: u32 = 0x12;

#[test]
fn worked_transaction() {
    let f = format(0, V3_64, 1024);
    let mut revoke = RevokeWriter::new(&f, Tid(6));
    revoke.push(BlockNr(1001)).unwrap();
    let revoke = revoke.finish();
    assert_eq!(revoke[..24], hex("C03B3998 00000005 00000006 00000018 00000000000003E9"));
    assert!(revoke[24..1020].iter().all(|b| *b == 0));
    assert_eq!(revoke[1020..], hex("C30BAC4E"));

    let data = [0x5A; 1024];
    let mut descriptor = DescriptorWriter::new(&f, Tid(6));
    descriptor.push(BlockNr(1000), &data, false).unwrap();
    let descriptor = descriptor.finish();
    assert_eq!(
        descriptor[..28],
        hex("C03B3998 00000001 00000006 000003E8 00000008 00000000 44E832EC")
    );
    assert!(descriptor[28..1020].iter().all(|b| *b == 0));
    assert_eq!(descriptor[1020..], hex("157E2A03"));

    let commit = CommitBlock::encode(&f, Tid(6), CommitTime { sec: 1, nsec: 2 }, V1Sum::new());
    assert_eq!(commit[..20], hex("C03B3998 00000002 00000006 00000000 3A3434D9"));
    assert!(commit[20..48].iter().all(|b| *b == 0));
    assert_eq!(commit[48..60], hex("0000000000000001 00000002"));
    assert!(commit[60..].iter().all(|b| *b == 0));
}

#[test]
fn empty_control_blocks() {
    let f = format(0, V3_64, 1024);
    assert_eq!(DescriptorWriter::new(&f, Tid(6)).finish()[1020..], hex("BEA74744"));
    let revoke = RevokeWriter::new(&f, Tid(6)).finish();
    assert_eq!(be32(&revoke, 12), 16);
    assert_eq!(revoke[1020..], hex("C18E4FA1"));
}

#[test]
fn tag_layouts() {
    let copy = [0x5A; 1024];
    let second_tag = |compat, incompat| {
        let f = format(compat, incompat, 1024);
        let mut w = DescriptorWriter::new(&f, Tid(6));
        w.push(BlockNr(7), &copy, false).unwrap();
        w.push(BlockNr(0x01020304), &copy, true).unwrap();
        let at = 12 + f.features.tag_size() + 16;
        w.finish()[at..at + f.features.tag_size()].to_vec()
    };
    // Flags: ESCAPE, SAME_UUID, LAST_TAG. The v2 sum is the low half of the v3 sum.
    assert_eq!(second_tag(0, 0), hex("01020304 0000 000B"));
    assert_eq!(second_tag(1, 0), hex("01020304 0000 000B"));
    assert_eq!(second_tag(0, 0x2), hex("01020304 0000 000B 00000000"));
    assert_eq!(second_tag(0, 0x8), hex("01020304 32EC 000B 0000"));
    assert_eq!(second_tag(0, 0xA), hex("01020304 32EC 000B 00000000 0000"));
    assert_eq!(second_tag(0, 0x10), hex("01020304 0000000B 00000000 44E832EC"));
}

#[test]
fn descriptor_capacities() {
    for (incompat, size, tags) in
        [(0x12, 4096, 253), (0x10, 2048, 125), (0x10, 1024, 61), (0, 4096, 506), (0x2, 4096, 337)]
    {
        let f = format(0, incompat, size);
        assert_eq!(DescriptorWriter::capacity(&f), tags);
        let mut w = DescriptorWriter::new(&f, Tid(1));
        while !w.is_full() {
            w.push(BlockNr(1), &[], false).unwrap();
        }
        assert_eq!(w.len(), tags);
    }
    for f in variants() {
        let mut w = DescriptorWriter::new(&f, Tid(1));
        while !w.is_full() {
            w.push(BlockNr(1), &[], false).unwrap();
        }
        assert_eq!(w.len(), DescriptorWriter::capacity(&f), "{f:?}");
    }
}

#[test]
fn revoke_overflow() {
    // 509 records fill a block of a v3 64-bit journal; the next goes to another one.
    let f = format(0, V3_64, 4096);
    assert_eq!(RevokeWriter::capacity(&f), 509);
    let mut first = RevokeWriter::new(&f, Tid(3));
    let mut n = 0;
    while !first.is_full() {
        first.push(BlockNr(n)).unwrap();
        n += 1;
    }
    assert_eq!(n, 509);
    let mut second = RevokeWriter::new(&f, Tid(3));
    second.push(BlockNr(n)).unwrap();
    assert_eq!(be32(&first.finish(), 12), 16 + 8 * 509);
    assert_eq!(be32(&second.finish(), 12), 24);
    assert_eq!(RevokeWriter::capacity(&format(0, V3_64, 1024)), 125);
}

#[test]
fn round_trips() {
    for f in variants() {
        let wide = if f.features.is_64bit() { 0x1_2345_6789 } else { 0x2345_6789 };
        let numbers: Vec<BlockNr> =
            (0..DescriptorWriter::capacity(&f)).map(|i| BlockNr(wide + u64::from(i))).collect();
        let copy = vec![0x5A; f.block_size.len()];
        let mut w = DescriptorWriter::new(&f, Tid(u32::MAX));
        for (i, nr) in numbers.iter().enumerate() {
            w.push(*nr, &copy, i % 3 == 0).unwrap();
        }
        let block = w.finish();
        assert!(f.verify_tail(&block));
        let tags: Vec<Tag> = DescriptorReader::new(&f, &block).collect();
        assert_eq!(tags.iter().map(|t| t.block).collect::<Vec<_>>(), numbers);
        for (i, tag) in tags.iter().enumerate() {
            assert!(tag.verify(&f, Tid(u32::MAX), &copy));
            assert_eq!(tag.verify(&f, Tid(0), &copy), !f.features.has_csum_v2_or_v3());
            assert_eq!(tag.flags.contains(TagFlags::ESCAPE), i % 3 == 0);
            assert_eq!(tag.flags.contains(TagFlags::SAME_UUID), i > 0);
            assert_eq!(tag.flags.contains(TagFlags::LAST_TAG), i + 1 == tags.len());
        }

        let mut w = RevokeWriter::new(&f, Tid(9));
        let numbers: Vec<BlockNr> =
            (0..RevokeWriter::capacity(&f)).map(|i| BlockNr(wide + u64::from(i))).collect();
        for nr in &numbers {
            assert!(!w.is_full());
            w.push(*nr).unwrap();
        }
        assert!(w.is_full());
        let block = w.finish();
        assert!(f.verify_tail(&block));
        assert_eq!(RevokeReader::new(&f, &block).unwrap().collect::<Vec<_>>(), numbers);

        let mut sum = V1Sum::new();
        sum.update(&copy);
        let time = CommitTime { sec: 1 << 33, nsec: 999_999_999 };
        let block = CommitBlock::encode(&f, Tid(9), time, sum);
        let commit = CommitBlock::decode(&block).unwrap();
        assert_eq!((commit.tid, commit.time), (Tid(9), time));
        assert!(commit.verify(&f, &block, sum));
        assert_eq!(commit.verify(&f, &block, V1Sum::new()), !f.features.has_csum_v1());
    }
}

#[test]
fn numbers_too_wide_for_the_journal() {
    let f = format(0, 0x10, 1024);
    assert!(DescriptorWriter::new(&f, Tid(1)).push(BlockNr(1 << 32), &[], false).is_err());
    assert!(RevokeWriter::new(&f, Tid(1)).push(BlockNr(1 << 32)).is_err());
}

#[test]
fn flipped_bits_are_seen() {
    let f = format(0, V3_64, 1024);
    let mut w = DescriptorWriter::new(&f, Tid(6));
    w.push(BlockNr(1), &[1; 1024], false).unwrap();
    let descriptor = w.finish();
    let commit = CommitBlock::encode(&f, Tid(6), CommitTime { sec: 1, nsec: 2 }, V1Sum::new());
    for bit in 0..1024 * 8 {
        let flip = |block: &[u8]| {
            let mut bad = block.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        };
        assert!(!f.verify_tail(&flip(&descriptor)), "bit {bit}");
        let bad = flip(&commit);
        let intact = CommitBlock::decode(&bad).is_some_and(|c| c.verify(&f, &bad, V1Sum::new()));
        // Behind the last field nothing counts: that part may be torn off.
        assert_eq!(intact, bit >= 8 * 0x3C, "bit {bit}");
    }
}

#[test]
fn unused_v1_sum_is_accepted() {
    let f = format(1, 0, 1024);
    let mut block = CommitBlock::encode(&f, Tid(6), CommitTime::default(), V1Sum::new());
    assert_eq!((block[12], block[13], be32(&block, 16)), (1, 4, u32::MAX));
    block[12..20].fill(0);
    let mut sum = V1Sum::new();
    sum.update(b"something");
    assert!(CommitBlock::decode(&block).unwrap().verify(&f, &block, sum));
}

#[test]
fn endless_descriptor_ends() {
    // No LAST_TAG anywhere: the reader stops where no tag fits.
    for f in variants() {
        let block = vec![0xF0; f.block_size.len()];
        let count = DescriptorReader::new(&f, &block).count();
        assert!(count > 0 && count <= f.block_size.len() / f.features.tag_size());
        assert_eq!(DescriptorReader::new(&f, &block[..12]).count(), 0);
        assert_eq!(DescriptorReader::new(&f, &[]).count(), 0);
    }
}

#[test]
fn revoke_counts() {
    let f = format(0, V3_64, 1024);
    let mut block = vec![0; 1024];
    for (count, records) in
        [(0, Some(0)), (15, Some(0)), (23, Some(0)), (24, Some(1)), (1020, Some(125)), (1021, None)]
    {
        put32(&mut block, 12, count);
        assert_eq!(RevokeReader::new(&f, &block).map(Iterator::count), records, "{count}");
    }
    put32(&mut block, 12, u32::MAX);
    assert!(RevokeReader::new(&f, &block).is_none());
    assert!(RevokeReader::new(&f, &[]).is_none_or(|mut r| r.next().is_none()));
}

#[test]
fn no_bytes_panic() {
    let mut x = 1u64;
    for f in variants().iter().filter(|f| f.block_size.len() <= 4096) {
        for round in 0..50 {
            let len = if round % 5 == 0 { round } else { f.block_size.len() };
            let mut block: Vec<u8> = (0..len)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (x >> 56) as u8
                })
                .collect();
            if round % 2 == 0 && len > 12 {
                put32(&mut block, 0, MAGIC);
                put32(&mut block, 4, round as u32 % 7);
            }
            let _ = f.verify_tail(&block);
            let tags = DescriptorReader::new(f, &block).count();
            assert!(tags <= len / 8);
            RevokeReader::new(f, &block).map(Iterator::count);
            if let Some(c) = CommitBlock::decode(&block) {
                let _ = c.verify(f, &block, V1Sum::new());
            }
            let _ = Header::decode(&block);
            let _ = JournalSuperblock::decode(&block).map(|sb| {
                let _ = sb.validate(f.block_size, u64::MAX);
                sb.fc_range()
            });
        }
    }
    assert_eq!(be16(&[1], 0), 0);
}
