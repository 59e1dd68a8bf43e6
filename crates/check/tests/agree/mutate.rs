//! Damage, by kind of structure: fields get values that are likely to matter, checksums are mostly
//! put right, so that the damage is seen for what it is.

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;

use crate::editor::{ImageEditor, Part, le16, le32};
use crate::fields::{DESC, INODE, JOURNAL, QUOTA_ENTRY, QUOTA_HEADER, QUOTA_TREE, SUPER};

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
        _ if part.is_block() && rng.random_ratio(1, 16) => whole(v, rng, part),
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
        Part::Quota(..) => quota(v, rng, part),
        Part::Content(_) => {
            let at = rng.random_range(0..before.1);
            field(v, rng, part, &[(at, 1)])
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
        92..=93 => of(|p| matches!(p, Part::JournalSuper(_))),
        94..=96 => of(|p| matches!(p, Part::Quota(..) | Part::Content(_))),
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

/// A whole block: zeros, noise, or what another part holds.
fn whole(v: &mut ImageEditor, rng: &mut SmallRng, part: Part) -> String {
    let (at, len) = v.range(part);
    let (bytes, what) = match rng.random_range(0..4) {
        0 => (vec![0; len], "zeros".to_owned()),
        1 => ((0..len).map(|_| rng.random()).collect(), "noise".to_owned()),
        _ => {
            let blocks: Vec<_> = v.parts.iter().copied().filter(|p| p.is_block()).collect();
            let other = *blocks.choose(rng).expect("blocks");
            let (from, len) = v.range(other);
            (v.bytes[from..from + len].to_vec(), format!("bytes of {other:?}"))
        }
    };
    v.write(at, &bytes);
    what
}

/// A block of a quota file.
fn quota(v: &mut ImageEditor, rng: &mut SmallRng, part: Part) -> String {
    let (at, len) = v.range(part);
    let first = matches!(part, Part::Quota(_, true));
    // Blocks of quota files have 1024 bytes.
    let piece = 1024 * rng.random_range(0..len / 1024);
    let entry = 16 + 72 * rng.random_range(0..14).min(rng.random_range(0..14));
    let in_use = le32(&v.bytes, at + piece + entry + 24) != 0;
    let (from, fields) = match rng.random_range(0..4) {
        0 | 1 if in_use => (entry, QUOTA_ENTRY),
        0 if first && piece == 0 => (0, QUOTA_HEADER),
        _ if first && piece == 0 && rng.random_bool(0.8) => (0, QUOTA_HEADER),
        _ => (0, QUOTA_TREE),
    };
    let fields: Vec<_> = fields.iter().map(|(at, width)| (piece + from + at, *width)).collect();
    field(v, rng, part, &fields)
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
