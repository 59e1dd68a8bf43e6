use super::*;
use crate::checksum::InodeSeed;

fn names(area: &[u8]) -> Vec<(String, u32)> {
    iter(area)
        .map(|e| e.expect("chain"))
        .filter(Entry::is_used)
        .map(|e| (String::from_utf8_lossy(e.name).into_owned(), e.ino.0))
        .collect()
}

#[test]
fn add_remove_and_fill() {
    let mut area = vec![0xAA; 1012];
    init_dots(&mut area, InodeNr(12), InodeNr(2), Some(FileType::Directory));
    assert_eq!(&area[..12], [12, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
    assert_eq!(&area[12..24], [2, 0, 0, 0, 0xE8, 3, 2, 2, b'.', b'.', 0, 0]);
    assert!(is_empty(&area).unwrap());
    let mut added = 0;
    while add(&mut area, format!("name{added:03}").as_bytes(), InodeNr(100 + added), None).unwrap()
    {
        added += 1;
    }
    assert_eq!(added, (1012 - 24) / 16);
    assert_eq!(remove(&mut area, b"name005").unwrap(), Some(InodeNr(105)));
    assert_eq!(remove(&mut area, b"name005").unwrap(), None);
    assert_eq!(remove(&mut area, b"name006").unwrap(), Some(InodeNr(106)));
    let too_long = b"a longer name than the others";
    assert!(!add(&mut area, too_long, InodeNr(7), Some(FileType::Fifo)).unwrap());
    assert!(add(&mut area, b"twenty bytes of name", InodeNr(7), Some(FileType::Fifo)).unwrap());
    let hit = find(&area, b"twenty bytes of name").unwrap().unwrap();
    assert_eq!((hit.ino, hit.file_type, hit.rec_len), (InodeNr(7), Some(FileType::Fifo), 32));
    assert_eq!(
        replace(&mut area, b"..", InodeNr(77), Some(FileType::Directory)).unwrap(),
        Some(InodeNr(2))
    );
    assert_eq!(names(&area)[1], ("..".into(), 77));
    assert_eq!(names(&area).len() as u32, 2 + added - 1);
    assert!(!is_empty(&area).unwrap());
}

#[test]
fn first_entry_becomes_unused() {
    let mut area = vec![0; 64];
    init_area(&mut area);
    assert!(add(&mut area, b"a", InodeNr(5), None).unwrap());
    assert!(add(&mut area, b"b", InodeNr(6), None).unwrap());
    assert_eq!(remove(&mut area, b"a").unwrap(), Some(InodeNr(5)));
    assert_eq!(names(&area), [("b".to_owned(), 6)]);
    assert!(add(&mut area, b"c", InodeNr(9), None).unwrap());
    assert_eq!(names(&area)[0], ("c".to_owned(), 9));
}

#[test]
fn changes_at_a_known_place_check_it() {
    let mut area = vec![0; 64];
    init_area(&mut area);
    for (name, ino) in [(b"a", 5), (b"b", 6), (b"c", 7)] {
        assert!(add(&mut area, name, InodeNr(ino), None).unwrap());
    }
    let before = area.clone();
    // Another name, another entry before it, no entry, not the first.
    for (back, at, name) in
        [(Some(0), 12, b"c"), (Some(12), 12, b"b"), (Some(0), 14, b"b"), (None, 12, b"b")]
    {
        assert_eq!(remove_at(&mut area, back, at, name), None);
    }
    assert!(!add_at(&mut area, 0, &new(b"d", 8)).unwrap(), "no room behind the first");
    assert!(add_at(&mut area, 13, &new(b"d", 8)).is_err());
    assert_eq!(area, before);
    let mut by_name = before.clone();
    assert_eq!(remove_at(&mut area, Some(0), 12, b"b"), remove(&mut by_name, b"b").unwrap());
    assert_eq!(area, by_name);
    assert_eq!(remove_at(&mut area, None, 0, b"a"), remove(&mut by_name, b"a").unwrap());
    assert_eq!(area, by_name);
    assert!(add_at(&mut area, 0, &new(b"e", 9)).unwrap());
    assert!(add(&mut by_name, b"e", InodeNr(9), None).unwrap());
    assert_eq!(area, by_name);
}

#[test]
fn whole_64k_block() {
    let mut area = vec![0; 65536];
    init_area(&mut area);
    assert_eq!(get16(&area, 4), 65535);
    assert_eq!(entry_at(&area, 0).unwrap().rec_len, 65536);
    assert!(add(&mut area, b"x", InodeNr(3), None).unwrap());
    assert!(add(&mut area, b"y", InodeNr(4), None).unwrap());
    assert_eq!(names(&area).len(), 2);
}

#[test]
fn packs() {
    let mut area = vec![0; 48];
    let file_type = Some(FileType::Regular);
    let e = |name, ino| NewEntry { name, ino: InodeNr(ino), file_type, hash: None };
    assert!(pack(&mut area, &[e(b"one", 1), e(b"three", 3), e(b"z", 9)]));
    assert_eq!(names(&area), [("one".into(), 1), ("three".into(), 3), ("z".into(), 9)]);
    let before = area.clone();
    assert!(!pack(&mut area, &[e(b"0123456789012345678", 1), e(b"0123456789012345678", 3)]));
    assert_eq!(area, before);
    assert!(pack(&mut area, &[]) && names(&area).is_empty());
}

#[test]
fn hostile_chains() {
    let good = {
        let mut area = vec![0; 64];
        init_dots(&mut area, InodeNr(2), InodeNr(2), None);
        area
    };
    for (at, value) in [(4, 0u8), (4, 13), (4, 4), (4, 68), (5, 1), (6, 5), (16, 56), (6, 0)] {
        let mut area = good.clone();
        area[at] = value;
        assert!(iter(&area).any(|e| e.is_err()), "byte {at} = {value}");
        assert!(add(&mut area.clone(), &[b'n'; 60], InodeNr(3), None).is_err());
        assert!(remove(&mut area, b"none").is_err());
    }
    assert!(entry_at(&good, 63).is_err() && entry_at(&good, 1000).is_err());
}

#[test]
fn tail() {
    let mut block = vec![0; 1024];
    init_area(&mut block[..1012]);
    set_csum(&mut block, InodeSeed(7));
    assert_eq!(&block[1012..1020], [0, 0, 0, 0, 12, 0, 0, 0xDE]);
    verify_csum(&block, InodeSeed(7)).unwrap();
    assert!(verify_csum(&block, InodeSeed(8)).unwrap_err().is_checksum());
    block[1019] = 0;
    assert!(!verify_csum(&block, InodeSeed(7)).unwrap_err().is_checksum());
}

#[test]
fn all_entries_of_an_inode() {
    let mut area = vec![0; 128];
    init_dots(&mut area, InodeNr(20), InodeNr(2), None);
    for (name, ino) in [(b"a", 30), (b"b", 31), (b"c", 30)] {
        assert!(add(&mut area, name, InodeNr(ino), Some(FileType::Regular)).unwrap());
    }
    remove(&mut area, b"c").unwrap();
    add(&mut area, b"d", InodeNr(30), None).unwrap();
    assert_eq!(renumber(&mut area, InodeNr(30), InodeNr(7)).unwrap(), 2);
    assert_eq!(renumber(&mut area, InodeNr(20), InodeNr(8)).unwrap(), 1);
    assert_eq!(renumber(&mut area, InodeNr(30), InodeNr(9)).unwrap(), 0);
    let now = iter(&area).map(|e| e.unwrap()).map(|e| (e.name.to_vec(), e.ino.0, e.file_type));
    let file = Some(FileType::Regular);
    let expected: [(&[u8], _, _); 5] =
        [(b".", 8, None), (b"..", 2, None), (b"a", 7, file), (b"b", 31, file), (b"d", 7, None)];
    assert!(now.eq(expected.map(|(name, ino, kind)| (name.to_vec(), ino, kind))));
    // A broken chain: nothing changes.
    let last = iter(&area).last().unwrap().unwrap().offset;
    area[last + 4] = 6;
    let before = area.clone();
    assert!(renumber(&mut area, InodeNr(7), InodeNr(9)).is_err());
    assert_eq!(area, before);
}

fn new(name: &[u8], ino: u32) -> NewEntry<'_> {
    NewEntry { name, ino: InodeNr(ino), file_type: None, hash: None }
}

/// The bytes are those that Linux writes.
#[test]
fn hashes_stand_behind_their_names() {
    let hash = |n: u32| NameHash { hash: n, minor: !n };
    let hashed = |name, ino| NewEntry { hash: Some(hash(ino * 2)), ..new(name, ino) };
    let mut area = [0xEE; 96];
    init_dots(&mut area, InodeNr(11), InodeNr(2), None);
    assert!(add_at(&mut area, 12, &hashed(b"five!", 20)).unwrap());
    assert!(add_at(&mut area, 32, &hashed(b"four", 21)).unwrap());
    assert!(!add_at(&mut area, 56, &hashed(b"twelve bytes", 22)).unwrap(), "8 are missing");
    let all: Vec<Entry<'_>> = iter(&area).map(Result::unwrap).collect();
    let places: Vec<_> = all.iter().map(|e| (e.offset, e.rec_len)).collect();
    assert_eq!(places, [(0, 12), (12, 20), (32, 24), (56, 40)]);
    assert_eq!(hash_behind(&area, &all[2]), Some(hash(40)));
    assert_eq!(hash_behind(&area, &all[3]), Some(hash(42)));
    assert_eq!(hash_behind(&area, &all[0]), None, "'.' has no room for one");
    let packed = [hashed(b"one", 30), hashed(b"three", 31)];
    assert!(pack(&mut area[..48], &packed) && !pack(&mut area[..40], &packed));
    let all: Vec<Entry<'_>> = iter(&area[..48]).map(Result::unwrap).collect();
    assert_eq!(all.iter().map(|e| e.rec_len).collect::<Vec<_>>(), [20, 28]);
    assert_eq!(hash_behind(&area, &all[1]), Some(hash(62)));
}
