use crate::BlockSize;

use super::*;

fn bs() -> BlockSize {
    BlockSize::new(1024).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn entry(parent: u32, ino: u32, name: &[u8]) -> FcEntry {
    FcEntry { parent, ino, name: name.into() }
}

fn fast_commit(records: &[FcRecord]) -> Result<FcChain, FcUnwritable> {
    FcWriter::chain(bs(), 6, true, &FcRecords::encode(records)?, &[])
}

/// A record of exactly `size` bytes, from 16 + 0 on: an UNLINK, or an INODE if that is too long for
/// a name.
fn record_of(size: usize) -> FcRecord {
    if size <= 12 + MAX_NAME {
        FcRecord::Unlink(entry(2, 12, &vec![b'x'; size - 12]))
    } else {
        FcRecord::Inode { ino: 12, image: vec![0x5A; size - 8].into() }
    }
}

#[test]
fn bytes_of_a_small_fast_commit() {
    let chain = fast_commit(&[]).unwrap();
    let expected = unhex("09000800 00000000 06000000 0800F003 06000000 8EB965CD");
    assert_eq!(chain.bytes.len(), 1024);
    assert_eq!(chain.bytes[..24], expected);
    assert!(chain.bytes[24..].iter().all(|b| *b == 0));
    assert_eq!(chain.used, 24);
}

#[test]
fn bytes_of_records() {
    let records = [
        FcRecord::DelRange { ino: 12, block: 3, len: 5 },
        FcRecord::AddRange { ino: 12, block: 8, len: 2, start: 1000, unwritten: false },
        FcRecord::Link(entry(2, 12, b"ab")),
    ];
    let chain = fast_commit(&records).unwrap();
    let expected = unhex(
        "0900 0800 00000000 06000000
         0200 0C00 0C000000 03000000 05000000
         0100 1000 0C000000 08000000 0200 0000 E8030000
         0400 0A00 02000000 0C000000 6162
         0800 BE03 06000000 5855410C",
    );
    assert_eq!(chain.bytes[..expected.len()], expected);
    assert_eq!((chain.used, chain.bytes.len()), (74, 1024));
    let mut odd = FcWriter::new(bs());
    odd.record(&FcRecord::AddRange {
        ino: 1,
        block: 2,
        len: 7,
        start: 0x1234_5678_9ABC,
        unwritten: true,
    })
    .unwrap();
    odd.record(&FcRecord::Creat(entry(2, 3, b"c"))).unwrap();
    odd.record(&FcRecord::Unlink(entry(2, 3, b"c"))).unwrap();
    let expected = unhex(
        "0100 1000 01000000 02000000 0780 3412 BC9A7856
         0300 0900 02000000 03000000 63
         0500 0900 02000000 03000000 63",
    );
    let bytes = odd.into_bytes();
    assert_eq!((bytes.len(), &bytes[..expected.len()]), (1024, &expected[..]));
}

/// Records that leave 4, 3 and 0 bytes of a block.
#[test]
fn four_bytes_are_kept_for_a_pad() {
    // HEAD takes 12.
    for (left, fits) in [(4, true), (3, false), (0, false)] {
        let size = 1024 - 12 - left;
        let chain = fast_commit(&[record_of(size)]).unwrap();
        if fits {
            assert_eq!(chain.bytes.len(), 2048);
            assert_eq!(chain.bytes[1020..1024], [7, 0, 0, 0], "a PAD of no bytes ends the block");
            assert_eq!(chain.bytes[1024..1028], [8, 0, 0xFC, 3], "TAIL is alone in the next");
        } else {
            assert_eq!(chain.bytes[12..16], [7, 0, 0xF0, 3], "a PAD of 1008 bytes");
            assert!(chain.bytes[16..1024].iter().all(|b| *b == 0));
            assert_eq!(chain.bytes[1024..1026], [6, 0]);
            assert_eq!(chain.bytes.len(), 3072, "nor is there room for the TAIL");
        }
    }
}

#[test]
fn a_tail_at_the_last_possible_place() {
    let chain = fast_commit(&[record_of(1024 - 16 - 12)]).unwrap();
    assert_eq!(chain.bytes.len(), 1024);
    assert_eq!(chain.bytes[1008..1016], [8, 0, 12, 0, 6, 0, 0, 0]);
    assert_eq!(chain.bytes[1020..], [0; 4]);
    let chain = fast_commit(&[record_of(1024 - 15 - 12)]).unwrap();
    assert_eq!(chain.bytes.len(), 2048);
    assert_eq!(chain.bytes[1009..1013], [7, 0, 11, 0]);
    assert_eq!(chain.bytes[1024..1032], [8, 0, 0xFC, 3, 6, 0, 0, 0], "bs - 4");
}

#[test]
fn what_no_block_can_hold() {
    let mut writer = FcWriter::new(bs());
    let range =
        |len, start, unwritten| FcRecord::AddRange { ino: 12, block: 0, len, start, unwritten };
    let too_large = 1024 - 12 + 1;
    for (name, record) in [
        ("image", FcRecord::Inode { ino: 12, image: vec![0; too_large].into() }),
        ("short image", FcRecord::Inode { ino: 12, image: vec![0; 127].into() }),
        ("no name", FcRecord::Link(entry(2, 12, b""))),
        ("long name", FcRecord::Creat(entry(2, 12, &[b'n'; 256]))),
        ("no blocks", range(0, 5, false)),
        ("extent", range(32769, 5, false)),
        ("unwritten extent", range(32768, 5, true)),
        ("far away", range(1, 1 << 48, false)),
    ] {
        assert_eq!(writer.record(&record), Err(FcUnwritable), "{name}");
        assert!(fast_commit(&[record]).is_err(), "{name}");
    }
    for record in [
        FcRecord::Inode { ino: 12, image: vec![0; too_large - 1].into() },
        FcRecord::Link(entry(2, 12, &[b'n'; 255])),
        range(32768, 5, false),
        range(32767, (1 << 48) - 1, true),
    ] {
        assert_eq!(writer.record(&record), Ok(()));
    }
}

/// All chains that random records make are read back as they were, later ones behind earlier ones.
#[test]
fn what_is_written_is_read_back() {
    let mut x = 7u32;
    let mut next = |below: usize| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as usize % below
    };
    for block in [1024u32, 4096, 65536] {
        let size = BlockSize::new(block).unwrap();
        let (mut area, mut written) = (Vec::new(), Vec::new());
        for n in 0..40 {
            let records: Vec<FcRecord> = (0..next(60))
                .map(|i| match next(6) {
                    0 => FcRecord::AddRange {
                        ino: i as u32,
                        block: next(1 << 20) as u32,
                        len: 1 + next(32767) as u32,
                        start: next(1 << 24) as u64 * 77,
                        unwritten: next(2) == 1,
                    },
                    1 => FcRecord::DelRange { ino: 9, block: 3, len: u32::MAX - 3 },
                    2 => FcRecord::Creat(entry(2, i as u32, &vec![b'c'; 1 + next(255)])),
                    3 => FcRecord::Link(entry(2, i as u32, &vec![b'l'; 1 + next(255)])),
                    4 => FcRecord::Unlink(entry(2, i as u32, &vec![b'u'; 1 + next(255)])),
                    _ => FcRecord::Inode { ino: 12, image: vec![n as u8; 128 + next(800)].into() },
                })
                .collect();
            let chain = FcRecords::encode(&records)
                .and_then(|encoded| FcWriter::chain(size, 77, n == 0, &encoded, &[]))
                .unwrap();
            assert_eq!(chain.bytes.len() % block as usize, 0);
            assert!(chain.used <= chain.bytes.len());
            area.extend(chain.bytes);
            written.extend(records);
        }
        let (mut read, mut heads, mut tails, mut reader) = (Vec::new(), 0, 0, FcReader::new());
        for bytes in area.chunks(block as usize) {
            let result = reader.block(bytes, |_, tag| {
                read.push(match tag {
                    FcTag::Record(record) => owned(record),
                    FcTag::Pad(_) => return true,
                    FcTag::Head { features, tid } => {
                        assert_eq!((features, tid), (0, 77));
                        heads += 1;
                        return true;
                    }
                    FcTag::Tail { tid, stated, actual } => {
                        assert_eq!((tid, stated), (77, actual));
                        tails += 1;
                        return true;
                    }
                });
                true
            });
            assert_eq!(result, Ok(()));
        }
        assert_eq!((heads, tails), (1, 40));
        assert!(read == written);
    }
}

fn owned(record: FcRecord<&[u8]>) -> FcRecord {
    let entry = |e: FcEntry<&[u8]>| entry(e.parent, e.ino, e.name);
    match record {
        FcRecord::AddRange { ino, block, len, start, unwritten } => {
            FcRecord::AddRange { ino, block, len, start, unwritten }
        }
        FcRecord::DelRange { ino, block, len } => FcRecord::DelRange { ino, block, len },
        FcRecord::Creat(e) => FcRecord::Creat(entry(e)),
        FcRecord::Link(e) => FcRecord::Link(entry(e)),
        FcRecord::Unlink(e) => FcRecord::Unlink(entry(e)),
        FcRecord::Inode { ino, image } => FcRecord::Inode { ino, image: image.into() },
    }
}

fn fc_tags(block: &[u8]) -> (Vec<String>, Option<FcError>) {
    let mut tags = Vec::new();
    let error = FcReader::new()
        .block(block, |_, tag| {
            tags.push(format!("{tag:?}"));
            true
        })
        .err();
    (tags, error)
}

#[test]
fn fast_commit_vectors() {
    let mut block = unhex("09000800 00000000 06000000 0800F003 06000000 8EB965CD");
    block.resize(1024, 0);
    assert!(FcReader::begins_with_head(&block));
    let (tags, error) = fc_tags(&block);
    assert_eq!(error, None);
    assert_eq!(
        tags,
        [
            "Head { features: 0, tid: 6 }".to_owned(),
            format!("Tail {{ tid: 6, stated: {0}, actual: {0} }}", 0xCD65_B98Eu32)
        ]
    );

    let mut block = unhex(
        "0900 0800 00000000 06000000
         0200 0C00 0C000000 03000000 05000000
         0100 1000 0C000000 08000000 0200 0000 E8030000
         0400 0A00 02000000 0C000000 6162
         0800 BE03 06000000 5855410C",
    );
    block.resize(1024, 0);
    let mut seen = Vec::new();
    FcReader::new()
        .block(&block, |at, tag| {
            seen.push((at, format!("{tag:?}")));
            if let FcTag::Tail { stated, actual, .. } = tag {
                assert_eq!(stated, actual);
            }
            true
        })
        .unwrap();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[1], (12, "Record(DelRange { ino: 12, block: 3, len: 5 })".to_owned()));
    assert_eq!(
        seen[2],
        (
            28,
            "Record(AddRange { ino: 12, block: 8, len: 2, start: 1000, unwritten: false })"
                .to_owned()
        )
    );
    assert_eq!(
        seen[3],
        (48, "Record(Link(FcEntry { parent: 2, ino: 12, name: [97, 98] }))".to_owned())
    );
}

#[test]
fn bad_fast_commit_tags() {
    let check = |bytes: &str, tag: u16| {
        let mut block = unhex(bytes);
        block.resize(64, 0);
        assert_eq!(fc_tags(&block).1.map(|e| e.tag), Some(tag), "{bytes}");
    };
    check("0900 0800 00000000 06000000", 0); // ends in tag 0
    check("0A00 0000", 10); // unknown
    check("0900 0700", 9); // wrong length
    check("0300 0800", 3); // no name
    check("0600 2000", 6); // no room for an inode
    check("0700 FFFF", 7); // longer than the block
    assert_eq!(fc_tags(&[7, 0, 0]), (vec![], None));
}

#[test]
fn no_bytes_panic() {
    let mut x = 1u64;
    for round in 0..400usize {
        let len = if round % 5 == 0 { round % 50 } else { 1024 };
        let mut block: Vec<u8> = (0..len)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 56) as u8
            })
            .collect();
        if round % 2 == 0 && len > 1 {
            block[..2].copy_from_slice(&[round as u8 % 11, 0]);
        }
        fc_tags(&block);
        assert!(DataChecksum::decode(&block).count() <= len / 16);
    }
}
