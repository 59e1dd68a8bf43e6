//! Fast commits that lie: all of them with right checksums, on a volume that is sound but for them.

use extol_block::BlockSize;
use extol_hostile::base::fast;
use extol_hostile::fast::{TID, crashed, make_right};
use extol_hostile::layout::{Kind, read};
use extol_ondisk::fast_commit::{FcEntry, FcRecord, FcWriter};

use crate::craft::Craft;
use crate::prove::Case;

const BLOCK: usize = 1024;
/// Blocks of the area that may be used.
const AREA: usize = 14;

fn raw(name: &'static str, focus: &[u32], area: &[u8]) {
    Case::new(name, Craft { base: fast(), dev: crashed(fast(), area) }).focus(focus).prove();
}

fn records(name: &'static str, focus: &[u32], records: &[FcRecord]) {
    let mut writer = FcWriter::new(BlockSize::new(BLOCK as u32).expect("a size"));
    writer.head(0, TID.0);
    for record in records {
        writer.record(record).expect("a record that fits");
    }
    writer.tail(TID.0);
    raw(name, focus, &writer.into_bytes());
}

fn ino(name: &str) -> u32 {
    Craft { base: fast(), dev: fast().image.snapshot() }.ino(name)
}

fn image(ino: u32, change: impl FnOnce(&mut [u8])) -> FcRecord {
    let all = &fast().layout.targets;
    let slot = all.iter().find(|t| t.kind == Kind::Inode && t.ino == ino).expect("a slot");
    let mut image = read(&fast().image, slot.at, 160);
    change(&mut image);
    FcRecord::Inode { ino, image: image.into() }
}

fn range(ino: u32, block: u32, len: u32, start: u64) -> FcRecord {
    FcRecord::AddRange { ino, block, len, start, unwritten: false }
}

fn entry(parent: u32, ino: u32, name: &[u8]) -> FcEntry {
    FcEntry { parent, ino, name: name.into() }
}

/// No such inode, one of the reserved ones, one that is free, one of another kind.
#[test]
fn inodes_that_no_record_may_name() {
    let most = fast().layout.geo.inodes();
    for bad in
        [0, 1, 2, 7, 8, 9, 10, most - 1, most + 1, 1 << 31, u32::MAX, ino("fifo"), ino("fast-link")]
    {
        let t = ino("t");
        records("range", &[], &[range(bad, 0, 1, 6000)]);
        records("hole", &[], &[FcRecord::DelRange { ino: bad, block: 0, len: u32::MAX }]);
        records("image", &[], &[FcRecord::Inode { ino: bad, image: vec![0x41; 160].into() }]);
        records("name", &[t], &[FcRecord::Link(entry(t, bad, b"new"))]);
        records("first name", &[t], &[FcRecord::Creat(entry(t, bad, b"new"))]);
        records("no name", &[t], &[FcRecord::Unlink(entry(t, bad, b"small1"))]);
        records("directory", &[], &[FcRecord::Link(entry(bad, ino("small1"), b"new"))]);
    }
}

/// Metadata, the log, the end of the volume; blocks of another file; one block twice.
#[test]
fn blocks_that_no_file_may_have() {
    let (small, whole) = (ino("small1"), ino("whole"));
    let layout = &fast().layout;
    let log = layout.log[5] / BLOCK as u64;
    for start in
        layout.blocks.iter().copied().chain([log, 6143, 6144, u64::from(u32::MAX), (1 << 48) - 1])
    {
        for len in [1, 40, 32768] {
            records("start", &[small], &[range(small, 0, len, start)]);
        }
    }
    records("shared", &[small, whole], &[range(small, 0, 3, 6000), range(whole, 0, 3, 6001)]);
    records("twice", &[small], &[range(small, 0, 3, 6000), range(small, 100, 3, 6000)]);
    records(
        "behind the end",
        &[small],
        &[range(small, u32::MAX, 1, 6000), range(small, u32::MAX - 1, 5, 6000)],
    );
    let every_other: Vec<_> =
        (0..400).map(|n| range(small, 2 * n, 1, 5300 + 2 * u64::from(n))).collect();
    records("many extents", &[small], &every_other);
    let backwards: Vec<_> = every_other.iter().rev().cloned().collect();
    records("backwards", &[small], &backwards);
    let hole = FcRecord::DelRange { ino: whole, block: 0, len: u32::MAX };
    records("holes", &[whole], &[hole.clone(), hole.clone(), range(whole, 0, 3, 6000), hole]);
}

/// Directories that contain themselves, names that are none, names without end.
#[test]
fn names_that_lead_astray() {
    let (t, nest, big, small) = (ino("t"), ino("nest"), ino("big"), ino("small1"));
    let astray: [&[u8]; 6] = [b".", b"..", b"a/b", b"/", b"nul\0nul", &[0xFF; 255]];
    for name in astray {
        for make in [FcRecord::Link, FcRecord::Creat, FcRecord::Unlink] {
            records("name", &[t], &[make(entry(t, small, name))]);
            records("name in a file", &[small], &[make(entry(small, small, name))]);
        }
    }
    for make in [FcRecord::Link, FcRecord::Creat] {
        records("loop", &[t, nest], &[make(entry(nest, t, b"up"))]);
        records("itself", &[nest], &[make(entry(nest, nest, b"me"))]);
        records("the root", &[nest], &[make(entry(nest, 2, b"root"))]);
        records("two parents", &[nest, big], &[make(entry(big, nest, b"here-too"))]);
    }
    records("a directory goes", &[t, nest], &[FcRecord::Unlink(entry(t, nest, b"nest"))]);
    let many: Vec<_> = (0..900)
        .map(|n: u32| FcRecord::Link(entry(big, small, format!("{n}").as_bytes())))
        .collect();
    records("many names", &[big], &many[..880.min(many.len())]);
    let goes = FcRecord::Unlink(entry(t, small, b"small1"));
    records("gone and gone", &[t], &[goes.clone(), goes]);
}

/// Images with absurd fields, of odd lengths.
#[test]
fn images_that_lie() {
    let small = ino("small1");
    for (at, bytes) in [
        (0x00, &[0u8, 0][..]),
        (0x00, &[0xFF, 0xFF]),
        (0x00, &[0xA4, 0x41]),
        (0x04, &[0xFF; 4]),
        (0x6C, &[0xFF; 4]),
        (0x1A, &[0, 0]),
        (0x1A, &[0xFF, 0xFF]),
        (0x1C, &[0xFF; 4]),
        (0x20, &[0; 4]),
        (0x20, &[0xFF; 4]),
        (0x23, &[0x10]),
        (0x28, &[0xFF; 60]),
        (0x68, &[8, 0, 0, 0]),
        (0x80, &[0xFF, 0xFF]),
        (0x80, &[1, 0]),
    ] {
        let lie = image(small, |b| b[at..at + bytes.len()].copy_from_slice(bytes));
        records("field", &[small], std::slice::from_ref(&lie));
        records("field, with a range", &[small], &[lie.clone(), range(small, 0, 2, 6000), lie]);
    }
    for len in [128, 129, 131, 156, 159, 255, 256, 257, 900] {
        let FcRecord::Inode { ino, image } = image(small, |_| ()) else { return };
        let mut image = image.to_vec();
        image.resize(len, 0x55);
        records("length", &[small], &[FcRecord::Inode { ino, image: image.into() }]);
    }
}

/// Tags whose lengths lie, and areas without an end: what is not a fast commit costs nothing.
#[test]
fn areas_that_make_no_sense() {
    let tag = |tag: u16, len: u16| [tag.to_le_bytes(), len.to_le_bytes()].concat();
    let head = [tag(9, 8), vec![0; 8]].concat();
    let fill = |name, piece: &[u8], end: &[u8]| {
        let mut area = head.clone();
        while area.len() + piece.len() + end.len() < AREA * BLOCK {
            // A tag is never split.
            if area.len() % BLOCK + piece.len() > BLOCK {
                area.resize(area.len().next_multiple_of(BLOCK), 0);
            }
            area.extend(piece);
        }
        area.extend(end);
        area.resize(AREA * BLOCK, 0);
        make_right(&mut area, BLOCK);
        raw(name, &[], &area);
    };
    fill("pads", &tag(7, 0), &[tag(8, 8), vec![0; 8]].concat());
    fill("heads", &head.clone(), &[]);
    fill("tails", &[tag(8, 8), vec![0; 8]].concat(), &[]);
    fill("zeros", &[0; 4], &[]);
    for kind in 0..12 {
        for len in [0u16, 1, 3, 8, 9, 12, 16, 1016, 1020, 1021, u16::MAX] {
            let mut area = [head.clone(), tag(kind, len)].concat();
            area.resize(BLOCK, 2);
            area.extend([tag(8, 1020), vec![0; 1020]].concat());
            make_right(&mut area, BLOCK);
            raw("length", &[], &area);
        }
    }
}
