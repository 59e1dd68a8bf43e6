//! Blocks of entries: scanning and dividing them.

use extol_block::{BlockDevice as _, MemDevice};
use extol_ondisk::{Geometry, Superblock};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::mkfs::{MkfsOptions, mkfs};

fn items(hashes_and_lengths: &[(u32, usize)]) -> Vec<Hashed<'static>> {
    static NAME: [u8; 255] = [b'n'; 255];
    let item = |&(hash, len): &(u32, usize)| Hashed {
        hash,
        entry: NewEntry { name: &NAME[..len], ino: InodeNr(12), file_type: None, hash: None },
    };
    hashes_and_lengths.iter().map(item).collect()
}

#[test]
fn divided_near_the_middle() {
    let items = items(&[(2, 4), (4, 4), (6, 4), (8, 4)]);
    assert_eq!(divide_within(&items, 48), Some(Division::Fits));
    assert_eq!(divide_within(&items, 47), Some(Division::Split(2, 6)));
    assert_eq!(divide_within(&items, 12), None);
}

#[test]
fn divided_by_size_not_by_number() {
    let items = items(&[(2, 4), (4, 4), (6, 4), (8, 4), (10, 250)]);
    assert_eq!(divide_within(&items, 270), Some(Division::Split(4, 10)));
}

#[test]
fn equal_hashes_stay_together_if_they_can() {
    let group = items(&[(2, 4), (6, 4), (6, 4), (6, 4), (8, 4)]);
    assert_eq!(divide_within(&group, 50), Some(Division::Split(1, 6)));
    // The new block continues the hash.
    let chain = items(&[(6, 4), (6, 4), (6, 4), (6, 4)]);
    assert_eq!(divide_within(&chain, 40), Some(Division::Split(2, 7)));
}

/// Whatever a block holds, an entry read as one word is what [`dirent::entry_at`] makes of it.
#[test]
fn one_word_tells_what_decoding_tells() {
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut good, mut bad) = (0, 0);
    for len in [1024, 4096 - dirent::TAIL_LEN, 65536] {
        for round in 0..400 {
            let mut area = vec![0; len];
            let names: Vec<Vec<u8>> =
                (0..20).map(|i| vec![b'a' + i; rng.random_range(1..=40)]).collect();
            let entries: Vec<NewEntry<'_>> = names
                .iter()
                .map(|name| NewEntry {
                    name,
                    ino: InodeNr(rng.random_range(1..90)),
                    file_type: None,
                    hash: None,
                })
                .collect();
            assert!(dirent::pack(&mut area, &entries));
            for _ in 0..round % 8 {
                let at = rng.random_range(0..1000);
                area[at] = [0, 1, 4, 7, 12, 255][rng.random_range(0..6)];
            }
            let mut at = 0;
            while at < area.len() {
                match (head(&area, at), dirent::entry_at(&area, at)) {
                    (Ok(head), Ok(entry)) => {
                        let told = (head.ino, head.rec_len, head.name_len);
                        assert_eq!(told, (entry.ino, entry.rec_len, entry.name.len()));
                        assert_eq!(FileType::from_code(head.type_code), entry.file_type);
                        at += head.rec_len;
                        good += 1;
                    }
                    (Err(_), Err(_)) => {
                        bad += 1;
                        break;
                    }
                    (head, entry) => panic!("{:?}, {entry:?} at {at}", head.map(|h| h.rec_len)),
                }
            }
        }
    }
    assert!(good > 1000 && bad > 100, "{good} and {bad}");
}

fn geometry() -> Geometry {
    let device = MemDevice::new(16 << 20);
    mkfs(&device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let mut bytes = vec![0; 1024];
    device.read_at(&mut bytes, 1024).unwrap();
    Geometry::new(&Superblock::decode(&bytes).unwrap(), Some(16 << 20)).unwrap()
}

fn shape(geo: &Geometry) -> Shape<'_> {
    let (ino, seed) = (InodeNr(12), None);
    Shape {
        geo,
        ino,
        seed,
        filetype: true,
        indexed: false,
        encrypted: false,
        decrypts: false,
        folds: false,
        hash_len: 0,
        dir_index: true,
        leaf_limit: dirent::area_len(geo),
        blocks: 1,
    }
}

/// What [`scan`] must find, by decoding entry after entry: the name, and the first room for it.
fn by_decoding(area: &[u8], name: &[u8]) -> (Option<(usize, InodeNr)>, Option<usize>) {
    let mut room = None;
    for entry in dirent::iter(area).map(|entry| entry.unwrap()) {
        if entry.is_used() && entry.name == name {
            return (Some((entry.offset, entry.ino)), room);
        }
        if entry.rec_len - entry.used_len() >= entry_len(name.len()) {
            room = room.or(Some(entry.offset));
        }
    }
    (None, room)
}

/// A name that begins or ends as many others do, or holds what looks like the entry of another.
fn a_name(rng: &mut SmallRng, others: &[Vec<u8>]) -> Vec<u8> {
    let n = rng.random_range(0..300u32);
    match rng.random_range(0..6) {
        0 => format!("{}", n % 40).into_bytes(),
        1 => format!("file-{n:04}.txt").into_bytes(),
        2 => format!("{n:016}").into_bytes(),
        3 => vec![b'x'; rng.random_range(1..=255)],
        4 => format!("{}{n}", "directory ".repeat(n as usize % 20)).into_bytes(),
        _ => {
            let inner =
                others.get(n as usize % others.len().max(1)).map_or(&b"name"[..], Vec::as_slice);
            let mut name = vec![b'.'; 4 * rng.random_range(1..4)];
            name.extend([1, 1, 1, 1, 16, 1, inner.len() as u8, 1]);
            name.extend_from_slice(inner);
            name.truncate(255);
            name
        }
    }
}

#[test]
fn a_scan_finds_the_name_or_the_first_room_for_it() {
    let geo = geometry();
    let shape = shape(&geo);
    let mut rng = SmallRng::seed_from_u64(11);
    let (mut found, mut absent, mut full) = (0, 0, 0);
    for len in [1024 - dirent::TAIL_LEN, 4096 - dirent::TAIL_LEN, 4096, 65536] {
        let mut area = vec![0; len];
        dirent::init_area(&mut area);
        let mut names: Vec<Vec<u8>> = Vec::new();
        for step in 0..4000 {
            let known = !names.is_empty() && rng.random_bool(0.5);
            let name = if known {
                names[rng.random_range(0..names.len())].clone()
            } else {
                a_name(&mut rng, &names)
            };
            let scan = scan(&area, &shape, &Sought::exactly(&name)).unwrap();
            let seen = (scan.found.map(|hit| (hit.at, hit.ino)), scan.room);
            assert_eq!(seen, by_decoding(&area, &name), "{name:?}");
            assert_eq!(scan.found.is_some(), names.contains(&name));
            let kind = Some(FileType::Regular);
            match (scan.found, scan.room) {
                (Some(hit), _) => {
                    found += 1;
                    // It grows, and then shrinks.
                    if rng.random_bool(if step < 2500 { 0.3 } else { 0.9 }) {
                        let gone = dirent::remove_at(&mut area, hit.before, hit.at, &name);
                        assert_eq!(gone, Some(hit.ino));
                        names.retain(|n| *n != name);
                    }
                }
                (None, Some(room)) => {
                    absent += 1;
                    let ino = InodeNr(step + 1);
                    let new = NewEntry { name: &name, ino, file_type: kind, hash: None };
                    assert!(dirent::add_at(&mut area, room, &new).unwrap());
                    names.push(name);
                }
                (None, None) => (absent, full) = (absent + 1, full + 1),
            }
        }
    }
    assert!(found > 1000 && absent > 1000 && full > 100, "{found} {absent} {full}");
}

#[test]
fn names_of_all_lengths_at_all_places() {
    let geo = geometry();
    let shape = shape(&geo);
    for len in 1..=60usize {
        let mut area = vec![0; 4096];
        let names: Vec<Vec<u8>> =
            (0..40u8).map(|i| [vec![b'a' + i; len], vec![i + 1]].concat()).collect();
        let file_type = Some(FileType::Fifo);
        let entry = |name| NewEntry { name, ino: InodeNr(5), file_type, hash: None };
        let entries: Vec<NewEntry<'_>> = names.iter().map(|name| entry(name)).collect();
        assert!(dirent::pack(&mut area, &entries));
        for name in &names {
            let hit =
                scan(&area, &shape, &Sought::exactly(name)).unwrap().found.expect("it is there");
            assert_eq!((hit.ino, hit.file_type), (InodeNr(5), Some(FileType::Fifo)));
            let mut other = name.clone();
            other[len / 2] ^= 0x80;
            assert_eq!(scan(&area, &shape, &Sought::exactly(&other)).unwrap().found, None);
        }
    }
}

#[test]
fn of_two_equal_names_the_first_is_found() {
    let geo = geometry();
    let mut area = vec![0; 1024];
    let entry = |name, ino| NewEntry { name, ino: InodeNr(ino), file_type: None, hash: None };
    let twice = [entry(&b"other"[..], 2), entry(&b"twice"[..], 3), entry(&b"twice"[..], 4)];
    assert!(dirent::pack(&mut area, &twice));
    let hit = scan(&area, &shape(&geo), &Sought::exactly(b"twice")).unwrap().found;
    assert_eq!(hit.map(|hit| hit.ino), Some(InodeNr(3)));
}

/// Whatever the bytes say, a scan stays inside and ends, and does not find what is not there.
#[test]
fn any_bytes() {
    let geo = geometry();
    let shape = shape(&geo);
    let mut rng = SmallRng::seed_from_u64(5);
    for round in 0..20_000u32 {
        let len = [0, 4, 12, 64, 200, 1024][rng.random_range(0..6)];
        let mut area: Vec<u8> =
            (0..len).map(|_| [0, 0, 1, 4, 8, 12, 16, b'n', 255][rng.random_range(0..9)]).collect();
        let name = [&b"nnnn"[..], b"nn", b"name", &[b'n'; 255]][round as usize % 4];
        if let Some(rest) = area.get_mut(20..) {
            let at = rng.random_range(0..=rest.len());
            let len = name.len().min(rest.len() - at);
            rest[at..at + len].copy_from_slice(&name[..len]);
        }
        if let Ok(Scan { found: Some(hit), .. }) = scan(&area, &shape, &Sought::exactly(name)) {
            let place = hit.at + dirent::HEADER_LEN;
            assert_eq!(&area[place..place + name.len()], name);
        }
    }
}
