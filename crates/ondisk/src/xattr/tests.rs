use super::block::csum;
use super::*;
use crate::bytes::put32;
use crate::checksum::FsSeed;
use crate::ids::BlockNr;

fn sample() -> Vec<XattrEntry> {
    vec![
        XattrEntry::new(index::USER, b"foo", b"bar"),
        XattrEntry::new(index::USER, b"empty", b""),
        XattrEntry::new(index::SECURITY, b"selinux", b"system_u:object_r:file_t:s0\0"),
        XattrEntry::new(index::USER, b"fob", &[7; 100]),
    ]
}

#[test]
fn hashes_and_checksum() {
    assert_eq!(entry_hash(b"foo", b"bar"), 0x95FD_6163);
    assert_eq!(entry_hash(b"foo", b""), 0x0001_958F);
    let seed = FsSeed(0x2636_F714);
    let mut block = vec![0; 1024];
    assert_eq!(csum(&block, BlockNr(1000), seed), 0x42E6_4A66);
    set_csum(&mut block, BlockNr(1000), seed);
    verify_csum(&block, BlockNr(1000), seed).unwrap();
    assert!(verify_csum(&block, BlockNr(1001), seed).is_err());
}

#[test]
fn round_trips() {
    let strip = |all: &[XattrEntry]| -> Vec<(u8, Vec<u8>, Vec<u8>)> {
        all.iter().map(|e| (e.index, e.name.clone(), e.value.clone())).collect()
    };
    let entries = sample();
    let space = ibody_space(&entries);
    let body = build_ibody(&entries, space).unwrap();
    assert_eq!(strip(&parse_ibody(&body).unwrap()), strip(&entries));
    assert_eq!(build_ibody(&entries, space - 4), None);
    assert_eq!(build_ibody(&[], 96), Some(vec![0; 96]));
    assert!(parse_ibody(&[0; 96]).unwrap().is_empty() && parse_ibody(&[]).unwrap().is_empty());

    let mut sorted = entries.clone();
    let block = build_block(&mut sorted, 1024, 3).unwrap();
    let (header, read) = parse_block(&block).unwrap();
    assert_eq!(header.refcount, 3);
    assert_eq!(strip(&read), strip(&sorted));
    let names: Vec<&[u8]> = read.iter().map(|e| &e.name[..]).collect();
    assert_eq!(names, [&b"fob"[..], b"foo", b"empty", b"selinux"]);
    assert!(read.iter().all(|e| e.hash == entry_hash(&e.name, &e.value)));
    assert!(
        build_block(&mut sorted, 256, 1).is_some() && build_block(&mut sorted, 128, 1).is_none()
    );
}

#[test]
fn hostile_areas() {
    let body = build_ibody(&sample(), 256).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut b = body.clone();
        b[at..at + bytes.len()].copy_from_slice(bytes);
        parse_ibody(&b)
    };
    assert!(with(4, &[255]).is_err(), "name beyond the area");
    assert!(with(6, &[0, 0]).is_err(), "value over the entries");
    assert!(with(6, &[0xFC, 0xFF]).is_err(), "value outside");
    assert!(with(12, &[0xFF, 0xFF, 0, 0]).is_err(), "value too long");
    assert!(with(12, &[0xFF, 0xFF, 0xFF, 0xFF]).is_err(), "value much too long");
    assert!(with(20, &[0]).is_err(), "zero in a name");
    let mut nameless = vec![0; 64];
    put32(&mut nameless, 0, MAGIC);
    nameless[6] = 32;
    assert!(parse_ibody(&nameless).is_err(), "built anew it would be the end of the list");
    let mut endless = vec![1; 64];
    put32(&mut endless, 0, MAGIC);
    assert!(parse_ibody(&endless).is_err());
    assert!(parse_block(&[0; 1024]).is_err() && parse_block(&[]).is_err());
    let mut block = build_block(&mut sample(), 1024, 1).unwrap();
    block[4] = 0;
    assert!(parse_block(&block).is_err(), "no users");
}
