//! What a look finds against what a walk finds, while names come and go; and bytes of all kinds.

use extol_block::{BlockDevice as _, MemDevice};
use extol_ondisk::dirent::{self, NewEntry};
use extol_ondisk::{FileType, Geometry, InodeNr, Superblock};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::mkfs::{MkfsOptions, mkfs};

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
        searchable: false,
        dir_index: true,
        blocks: 1,
    }
}

/// One leaf and what is noted about it.
struct Leaf<'g> {
    shape: Shape<'g>,
    area: Vec<u8>,
    note: Note,
}

impl Leaf<'_> {
    /// Looks, and walks, which must tell the same.
    fn look(&mut self, name: &[u8]) -> Scan {
        let walked = leaf::scan(&self.area, &self.shape, name).unwrap();
        let (looked, note) = look(&self.area, &self.shape, name, self.note).unwrap();
        assert_eq!(looked.found, walked.found, "{name:?}");
        if walked.found.is_none() {
            assert_eq!((looked.room, looked.used), (walked.room, walked.used), "{name:?}");
            assert_eq!(LeafNote::read(note).map(|note| note.used), Some(walked.used));
        }
        self.note = note;
        looked
    }

    fn add(&mut self, name: &[u8], ino: u32, scan: &Scan) -> bool {
        let Some(room) = scan.room else { return false };
        let kind = Some(FileType::Regular);
        assert!(dirent::add_at(&mut self.area, room, name, InodeNr(ino), kind).unwrap());
        self.note = LeafNote::added(self.note, name);
        true
    }

    fn remove(&mut self, name: &[u8], hit: Hit) {
        assert_eq!(dirent::remove_at(&mut self.area, hit.before, hit.at, name), Some(hit.ino));
        self.note = LeafNote::removed(self.note, name, hit.before.unwrap_or(hit.at));
    }
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
fn a_look_finds_what_a_walk_finds() {
    let geo = geometry();
    let mut rng = SmallRng::seed_from_u64(11);
    let (mut found, mut absent, mut full, mut mimicked) = (0, 0, 0, 0);
    for len in [1024 - dirent::TAIL_LEN, 4096 - dirent::TAIL_LEN, 4096, 65536] {
        let mut leaf = Leaf { shape: shape(&geo), area: vec![0; len], note: None };
        dirent::init_area(&mut leaf.area);
        let mut names: Vec<Vec<u8>> = Vec::new();
        for step in 0..4000 {
            if rng.random_range(0..200) == 0 {
                // Somebody who knows nothing of notes.
                leaf.note = None;
            }
            let known = !names.is_empty() && rng.random_bool(0.5);
            let name = if known {
                names[rng.random_range(0..names.len())].clone()
            } else {
                a_name(&mut rng, &names)
            };
            let scan = leaf.look(&name);
            assert_eq!(scan.found.is_some(), names.contains(&name));
            match scan.found {
                Some(hit) => {
                    found += 1;
                    mimicked += usize::from(
                        name.len() >= WORD && {
                            let first = Words::of(&name).unwrap().place(&leaf.area, &name, 0);
                            first != Some(hit.at)
                        },
                    );
                    // It grows, and then shrinks.
                    if rng.random_bool(if step < 2500 { 0.3 } else { 0.9 }) {
                        leaf.remove(&name, hit);
                        names.retain(|n| *n != name);
                    }
                }
                None => {
                    absent += 1;
                    if leaf.add(&name, step + 1, &scan) {
                        names.push(name);
                    } else {
                        full += 1;
                    }
                }
            }
        }
    }
    assert!(
        found > 1000 && absent > 1000 && full > 100 && mimicked > 0,
        "{found} {absent} {full} {mimicked}"
    );
}

/// Each part of a word in which a name ends, and each place in the words that are compared at once.
#[test]
fn names_of_all_lengths_at_all_places() {
    let geo = geometry();
    for len in 1..=60usize {
        let mut leaf = Leaf { shape: shape(&geo), area: vec![0; 4096], note: None };
        let names: Vec<Vec<u8>> =
            (0..40u8).map(|i| [vec![b'a' + i; len], vec![i + 1]].concat()).collect();
        let entry = |name| NewEntry { name, ino: InodeNr(5), file_type: Some(FileType::Fifo) };
        let entries: Vec<NewEntry<'_>> = names.iter().map(|name| entry(name)).collect();
        assert!(dirent::pack(&mut leaf.area, &entries));
        for name in &names {
            let hit = leaf.look(name).found.expect("it is there");
            assert_eq!((hit.ino, hit.file_type), (InodeNr(5), Some(FileType::Fifo)));
            let mut other = name.clone();
            other[len / 2] ^= 0x80;
            assert_eq!(leaf.look(&other).found, None);
        }
    }
}

/// The first of two with the same name counts, as it does for a walk.
#[test]
fn of_two_the_first_is_found() {
    let geo = geometry();
    let mut leaf = Leaf { shape: shape(&geo), area: vec![0; 1024], note: None };
    let entry = |name, ino| NewEntry { name, ino: InodeNr(ino), file_type: None };
    let twice = [entry(&b"other"[..], 2), entry(&b"twice"[..], 3), entry(&b"twice"[..], 4)];
    assert!(dirent::pack(&mut leaf.area, &twice));
    assert_eq!(leaf.look(b"twice").found.map(|hit| hit.ino), Some(InodeNr(3)));
}

/// Whatever the bytes and the note say, a look stays inside and ends, and does not find what is not
/// there.
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
        let note = NonZeroU64::new(if round % 3 == 0 { 0 } else { rng.random_range(0..1 << 34) });
        if let Ok((Scan { found: Some(hit), .. }, _)) = look(&area, &shape, name, note) {
            let place = hit.at + HEADER_LEN;
            assert_eq!(&area[place..place + name.len()], name);
        }
    }
}
