//! Damage, by kind of structure: fields get values that are likely to matter, checksums are mostly
//! put right, so that the damage is seen for what it is.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

use crate::editor::{ImageEditor, Part, le16, le32};

/// Fields of a superblock: offset and width.
const SUPER: &[(usize, usize)] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 4),
    (0x30, 4),
    (0x34, 2),
    (0x36, 2),
    (0x38, 2),
    (0x3A, 2),
    (0x3C, 2),
    (0x3E, 2),
    (0x40, 4),
    (0x44, 4),
    (0x48, 4),
    (0x4C, 4),
    (0x50, 2),
    (0x54, 4),
    (0x58, 2),
    (0x5A, 2),
    (0x5C, 4),
    (0x60, 4),
    (0x64, 4),
    (0x68, 4),
    (0xCC, 1),
    (0xCD, 1),
    (0xCE, 2),
    (0xD0, 4),
    (0xE0, 4),
    (0xE4, 4),
    (0xE8, 4),
    (0xEC, 4),
    (0xFC, 1),
    (0xFD, 1),
    (0xFE, 2),
    (0x100, 4),
    (0x104, 4),
    (0x108, 4),
    (0x10C, 4),
    (0x150, 4),
    (0x154, 4),
    (0x158, 4),
    (0x15C, 2),
    (0x15E, 2),
    (0x160, 4),
    (0x164, 2),
    (0x166, 2),
    (0x168, 4),
    (0x170, 4),
    (0x174, 1),
    (0x175, 1),
    (0x176, 1),
    (0x178, 4),
    (0x180, 4),
    (0x194, 4),
    (0x240, 4),
    (0x244, 4),
    (0x248, 4),
    (0x24C, 4),
    (0x250, 4),
    (0x268, 4),
    (0x26C, 4),
    (0x270, 4),
    (0x274, 1),
    (0x27C, 2),
    (0x280, 4),
];
const DESC: &[(usize, usize)] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 2),
    (0x0E, 2),
    (0x10, 2),
    (0x12, 2),
    (0x14, 4),
    (0x18, 2),
    (0x1A, 2),
    (0x1C, 2),
    (0x1E, 2),
    (0x20, 4),
    (0x2C, 2),
    (0x2E, 2),
    (0x30, 2),
    (0x32, 2),
    (0x38, 2),
    (0x3A, 2),
];
const INODE: &[(usize, usize)] = &[
    (0x00, 2),
    (0x00, 2),
    (0x02, 2),
    (0x04, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x14, 4),
    (0x18, 2),
    (0x1A, 2),
    (0x1A, 2),
    (0x1C, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x20, 4),
    (0x20, 4),
    (0x24, 4),
    (0x64, 4),
    (0x68, 4),
    (0x68, 4),
    (0x6C, 4),
    (0x70, 4),
    (0x74, 2),
    (0x76, 2),
    (0x78, 2),
    (0x7C, 2),
    (0x7E, 2),
    (0x80, 2),
    (0x82, 2),
    (0x84, 4),
    (0x98, 4),
    (0x9C, 4),
];
const JOURNAL: &[(usize, usize)] = &[
    (0x00, 4),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x18, 4),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x28, 4),
    (0x2C, 4),
    (0x40, 4),
    (0x50, 1),
    (0x54, 4),
    (0x58, 4),
    (0xFC, 4),
];

/// Damages one thing (or, sometimes, two) and names it.
pub fn damage(v: &mut ImageEditor, rng: &mut SmallRng) -> String {
    let mut what = one(v, rng);
    if rng.random_ratio(1, 12) {
        what = format!("{what}; {}", one(v, rng));
    }
    what
}

fn one(v: &mut ImageEditor, rng: &mut SmallRng) -> String {
    let part = pick(v, rng);
    let before = v.range(part);
    let what = match part {
        Part::Super => field(v, rng, part, SUPER),
        Part::Desc(_) => field(v, rng, part, DESC),
        Part::Inode(ino) => inode(v, rng, ino),
        Part::FreeInode(_) => field(v, rng, part, INODE),
        Part::BlockBitmap(_) | Part::InodeBitmap(_) => bits(v, rng, part),
        Part::DirBlock(..) => dir_block(v, rng, part),
        Part::DxRoot(..) => {
            let places = [
                (0, 4),
                (4, 2),
                (6, 1),
                (7, 1),
                (8, 1),
                (9, 1),
                (12, 4),
                (16, 2),
                (18, 1),
                (19, 1),
                (24, 4),
                (28, 1),
                (29, 1),
                (30, 1),
                (31, 1),
            ];
            if rng.random_bool(0.5) {
                field(v, rng, part, &places)
            } else {
                index(v, rng, part, 32)
            }
        }
        Part::DxNode(..) => {
            if rng.random_bool(0.2) {
                field(v, rng, part, &[(0, 4), (4, 2), (6, 1), (7, 1)])
            } else {
                index(v, rng, part, 8)
            }
        }
        Part::Extents(..) => {
            let (at, len) = v.range(part);
            node(v, rng, at, len)
        }
        Part::Indirect(_) => {
            let slot = rng.random_range(0..v.geo.block_len() / 4).min(rng.random_range(0..64)) * 4;
            field(v, rng, part, &[(slot, 4)])
        }
        Part::Xattrs(_) => xattrs(v, rng, before.0, before.1, 32),
        Part::Symlink(_) => field(v, rng, part, &[(0, 1), (5, 1), (299, 4), (61, 2)]),
        Part::JournalSuper(_) => field(v, rng, part, JOURNAL),
        Part::Orphans(_, _) => {
            let end = v.geo.block_len();
            field(v, rng, part, &[(0, 4), (4, 4), (end - 12, 4), (end - 8, 4), (end - 4, 4)])
        }
        Part::Mmp(_) => field(v, rng, part, &[(0, 4), (4, 4), (8, 4), (0x70, 2), (0x3FC, 4)]),
        Part::ReservedGdt(_) => field(v, rng, part, &[(0, 4), (4, 4), (40, 4)]),
    };
    let fix = rng.random_ratio(9, 10);
    if fix {
        v.fix(part);
    }
    format!("{part:?} {what}{}", if fix { "" } else { " (checksum left)" })
}

/// A part, with structures that hold more getting more of the damage.
fn pick(v: &ImageEditor, rng: &mut SmallRng) -> Part {
    let class = rng.random_range(0..100);
    let of = |test: fn(&Part) -> bool| v.parts.iter().copied().filter(&test).collect::<Vec<_>>();
    let list = match class {
        0..=6 => vec![Part::Super],
        7..=14 => of(|p| matches!(p, Part::Desc(_))),
        15..=19 => of(|p| matches!(p, Part::BlockBitmap(_) | Part::InodeBitmap(_))),
        20..=47 => of(|p| matches!(p, Part::Inode(_))),
        48..=50 => v.free_inodes.iter().map(|&ino| Part::FreeInode(ino)).collect(),
        51..=65 => of(|p| matches!(p, Part::DirBlock(..))),
        66..=74 => of(|p| matches!(p, Part::DxRoot(..) | Part::DxNode(..))),
        75..=81 => of(|p| matches!(p, Part::Extents(..) | Part::Indirect(_))),
        82..=89 => of(|p| matches!(p, Part::Xattrs(_))),
        90..=91 => of(|p| matches!(p, Part::Symlink(_))),
        92..=94 => of(|p| matches!(p, Part::JournalSuper(_))),
        _ => of(|p| matches!(p, Part::Orphans(..) | Part::Mmp(_) | Part::ReservedGdt(_))),
    };
    *list.choose(rng).unwrap_or_else(|| v.parts.choose(rng).expect("parts"))
}

/// A value that is likely to matter in place of another.
fn value(v: &ImageEditor, rng: &mut SmallRng, old: u32, width: usize) -> u32 {
    let new = match rng.random_range(0..12) {
        0 => 0,
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => !0,
        4..=6 => old ^ 1 << rng.random_range(0..width as u32 * 8),
        7 => rng.random(),
        8 => rng.random_range(0..v.geo.blocks() as u32),
        9 => rng.random_range(0..v.geo.inodes() / 8),
        10 => old.wrapping_mul(2),
        _ => rng.random_range(0..20),
    };
    match width {
        1 => new & 0xFF,
        2 => new & 0xFFFF,
        _ => new,
    }
}

fn get(v: &ImageEditor, at: usize, width: usize) -> u32 {
    match width {
        1 => u32::from(v.bytes[at]),
        2 => u32::from(le16(&v.bytes, at)),
        _ => le32(&v.bytes, at),
    }
}

fn put(v: &mut ImageEditor, at: usize, width: usize, new: u32) {
    v.write(at, &new.to_le_bytes()[..width]);
}

fn change(v: &mut ImageEditor, rng: &mut SmallRng, at: usize, width: usize) -> String {
    let old = get(v, at, width);
    let new = value(v, rng, old, width);
    put(v, at, width, new);
    format!("{old:#x} -> {new:#x}")
}

fn field(v: &mut ImageEditor, rng: &mut SmallRng, part: Part, fields: &[(usize, usize)]) -> String {
    let (at, len) = v.range(part);
    let fields: Vec<_> = fields.iter().filter(|(offset, width)| offset + width <= len).collect();
    let (offset, width) = **fields.choose(rng).expect("fields");
    format!("+{offset:#x}: {}", change(v, rng, at + offset, width))
}

fn inode(v: &mut ImageEditor, rng: &mut SmallRng, ino: u32) -> String {
    let (at, len) = v.range(Part::Inode(ino));
    let extents = le32(&v.bytes, at + 0x20) & 0x8_0000 != 0;
    let extra = if len > 128 { 128 + usize::from(le16(&v.bytes, at + 0x80)) } else { len };
    match rng.random_range(0..10) {
        0..=4 => field(v, rng, Part::Inode(ino), INODE),
        5 | 6 if extents => node(v, rng, at + 0x28, 60),
        7 | 8 if extra + 30 < len && le32(&v.bytes, at + extra) == 0xEA02_0000 => {
            xattrs(v, rng, at + extra, len - extra, 4)
        }
        9 => {
            // Another inode's bytes.
            let parts: Vec<u32> = v
                .parts
                .iter()
                .filter_map(|p| if let Part::Inode(n) = p { Some(*n) } else { None })
                .filter(|&n| v.kind(n).is_some())
                .collect();
            let other = *parts.choose(rng).expect("inodes");
            let bytes = v.inode_bytes(other).to_vec();
            v.write(at, &bytes);
            format!("copied from {other}")
        }
        _ => {
            let slot = rng.random_range(0..15) * 4;
            field(v, rng, Part::Inode(ino), &[(0x28 + slot, 4)])
        }
    }
}

/// An extent node.
fn node(v: &mut ImageEditor, rng: &mut SmallRng, at: usize, len: usize) -> String {
    let entries = usize::from(le16(&v.bytes, at + 2)).clamp(1, (len - 12) / 12);
    let entry = 12 + 12 * rng.random_range(0..entries);
    let places = [
        (0, 2),
        (2, 2),
        (4, 2),
        (6, 2),
        (entry, 4),
        (entry, 4),
        (entry + 4, 2),
        (entry + 4, 2),
        (entry + 6, 2),
        (entry + 8, 4),
        (entry + 8, 4),
    ];
    let (offset, width) = *places.choose(rng).expect("places");
    format!("extent node +{offset}: {}", change(v, rng, at + offset, width))
}

fn bits(v: &mut ImageEditor, rng: &mut SmallRng, part: Part) -> String {
    let (at, len) = v.range(part);
    let byte =
        if rng.random_bool(0.3) { rng.random_range(0..len) } else { rng.random_range(0..len / 8) };
    let old = v.bytes[at + byte];
    let new = old ^ 1 << rng.random_range(0..8);
    v.write(at + byte, &[new]);
    format!("byte {byte}: {old:#x} -> {new:#x}")
}

fn dir_block(v: &mut ImageEditor, rng: &mut SmallRng, part: Part) -> String {
    let (at, len) = v.range(part);
    let mut starts = vec![0];
    loop {
        let last = starts[starts.len() - 1];
        let next = last + usize::from(le16(&v.bytes, at + last + 4)).max(8);
        if next + 8 > len || starts.len() > 500 {
            break;
        }
        starts.push(next);
    }
    let entry = *starts.choose(rng).expect("entries");
    match rng.random_range(0..10) {
        0..=2 => format!("entry {entry} inode: {}", change(v, rng, at + entry, 4)),
        3 | 4 => format!("entry {entry} length: {}", change(v, rng, at + entry + 4, 2)),
        5 => format!("entry {entry} name length: {}", change(v, rng, at + entry + 6, 1)),
        6 => format!("entry {entry} type: {}", change(v, rng, at + entry + 7, 1)),
        7 | 8 => {
            let n = rng.random_range(0..usize::from(v.bytes[at + entry + 6]).max(1));
            if entry + 9 + n >= len {
                return "nothing".into();
            }
            let new = *[0, b'/', b'.', b'z', 0xFF].choose(rng).expect("bytes");
            v.write(at + entry + 8 + n, &[new]);
            format!("entry {entry} name byte {n} -> {new:#x}")
        }
        _ => {
            // A name as that of the entry before it.
            let other = *starts.choose(rng).expect("entries");
            let (a, b) = (v.bytes[at + entry + 6], v.bytes[at + other + 6]);
            if a == b && entry != other {
                let name = v.bytes[at + other + 8..at + other + 8 + usize::from(b)].to_vec();
                v.write(at + entry + 8, &name);
                format!("entry {entry} gets the name of {other}")
            } else {
                format!("entry {entry} inode: {}", change(v, rng, at + entry, 4))
            }
        }
    }
}

/// Entries of an index block.
fn index(v: &mut ImageEditor, rng: &mut SmallRng, part: Part, from: usize) -> String {
    let (at, len) = v.range(part);
    let count = usize::from(le16(&v.bytes, at + from + 2)).clamp(1, (len - from) / 8 - 1);
    let entry = from + 8 * rng.random_range(0..count);
    let places = [(from, 2), (from + 2, 2), (entry, 4), (entry + 4, 4), (entry + 4, 4)];
    let (offset, width) = *places.choose(rng).expect("places");
    format!("index +{offset}: {}", change(v, rng, at + offset, width))
}

fn xattrs(v: &mut ImageEditor, rng: &mut SmallRng, at: usize, len: usize, first: usize) -> String {
    let mut starts = Vec::new();
    let mut entry = first;
    while entry + 16 <= len && le32(&v.bytes, at + entry) != 0 && starts.len() < 100 {
        starts.push(entry);
        entry += (16 + usize::from(v.bytes[at + entry]) + 3) & !3;
    }
    let Some(&entry) = starts.choose(rng) else {
        return format!("attributes +0: {}", change(v, rng, at, 4));
    };
    let value = usize::from(le16(&v.bytes, at + entry + 2)) + if first == 4 { 4 } else { 0 };
    let mut places = vec![
        (entry, 1),
        (entry + 1, 1),
        (entry + 2, 2),
        (entry + 4, 4),
        (entry + 8, 4),
        (entry + 12, 4),
        (entry + 16, 1),
        (0, 4),
    ];
    if first == 32 {
        places.extend([(4, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 4)]);
    }
    if value + 4 < len {
        places.push((value, 4));
    }
    let (offset, width) = *places.choose(rng).expect("places");
    format!("attributes +{offset}: {}", change(v, rng, at + offset, width))
}
