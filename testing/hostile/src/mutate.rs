//! Damage: one structure, one field, one nasty value at a time, or something worse.

mod fields;

use extol_block::{BlockDevice, MemDevice};
use extol_ondisk::htree::DxKind;

use fields::{
    ATTRIBUTES, DESC, DX_NODE, DX_ROOT, EXTENTS, INODE, JOURNAL_COMMIT, JOURNAL_DESC,
    JOURNAL_REVOKE, JOURNAL_SUPER, SUPER, get, put,
};

use crate::choices::Choices;
use crate::layout::{Kind, Layout, Target, le16, read};
use crate::seal;

/// What was done to an image: for messages.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// One line for each change.
    pub log: Vec<String>,
    /// Inodes that should be looked at.
    pub inodes: Vec<u32>,
}

/// Damages images of one volume.
#[derive(Debug)]
pub struct Mutator<'a> {
    /// What is where.
    pub layout: &'a Layout,
    /// The image.
    pub dev: &'a MemDevice,
    /// What chooses.
    pub rng: &'a mut Choices,
    /// What was done so far.
    pub damage: Damage,
}

impl Mutator<'_> {
    /// Does damage to one structure or a few.
    pub fn run(&mut self) {
        let n = match self.rng.below(20) {
            0..10 => 1,
            10..17 => 2 + self.rng.below(2),
            _ => 4 + self.rng.below(9),
        };
        for _ in 0..n {
            self.step();
        }
    }

    /// Does one damage.
    pub fn step(&mut self) {
        match self.rng.below(12) {
            0 => self.whole_blocks(),
            1 => self.steal_map(),
            2 => self.lying_bitmap(),
            3 => self.wrong_entry(),
            _ => self.field(),
        }
    }

    /// Kinds first, so that the few structures of rare kinds get their share.
    fn target(&mut self) -> Target {
        let class = |t: &Target| std::mem::discriminant(&t.kind);
        let mut classes: Vec<_> = Vec::new();
        for t in &self.layout.targets {
            if !classes.contains(&class(t)) {
                classes.push(class(t));
            }
        }
        // The superblock mostly gives volumes that are refused at once.
        let wanted = loop {
            let wanted = *self.rng.pick(&classes);
            if wanted != class(&self.layout.targets[0]) || self.rng.one_in(3) {
                break wanted;
            }
        };
        let of: Vec<_> = self.layout.targets.iter().filter(|t| class(t) == wanted).collect();
        **self.rng.pick(&of)
    }

    fn nasty(&mut self, old: u64, width: i8, own: u64) -> u64 {
        let bits = u32::from(width.unsigned_abs()) * 8;
        let max = u64::MAX >> (64 - bits);
        let layout = self.layout;
        let v = match self.rng.below(22) {
            0 => 0,
            1 => 1,
            2 => max,
            3 => max - 1,
            4 => old.wrapping_add(1),
            5 => old.wrapping_sub(1),
            6 | 7 => old ^ 1 << self.rng.below(bits as usize),
            8 => old.wrapping_mul(2),
            9 => 1 << self.rng.below(bits as usize),
            10 => (1u64 << self.rng.below(bits as usize)).wrapping_sub(1),
            11 => self.rng.any(),
            12 => self.rng.any() % 16,
            13 => old.wrapping_add(self.rng.any() % 64).wrapping_sub(32),
            14 | 15 => *self.rng.pick(&layout.blocks),
            16 => own,
            17 => u64::from(*self.rng.pick(&layout.inodes)),
            18 => u64::from(*self.rng.pick(&[
                1u32,
                2,
                5,
                7,
                8,
                10,
                11,
                12,
                layout.geo.inodes(),
                layout.geo.inodes() + 1,
            ])),
            19 => layout.geo.blocks().wrapping_sub(self.rng.any() % 3),
            20 => self.rng.any() % layout.geo.blocks(),
            _ => old.swap_bytes() >> (64 - bits),
        };
        v & max
    }

    fn note(&mut self, t: &Target, what: String) {
        self.damage.log.push(format!("{:?} inode {} at {:#x}: {what}", t.kind, t.ino, t.at));
        if t.ino != 0 {
            self.damage.inodes.push(t.ino);
        }
    }

    /// One field, or some bytes, of one structure.
    fn field(&mut self) {
        let t = self.target();
        let right = self.rng.one_in(2);
        self.damage_to(&t, right);
    }

    /// Damages one structure; its checksum is made right if `right`.
    pub fn damage_to(&mut self, t: &Target, right: bool) {
        let mut b = read(self.dev, t.at, t.len);
        if let Kind::JournalCopy { home, tag } = t.kind {
            let inner = self.layout.in_block(home);
            if inner.is_empty() {
                self.scribble(t, &mut b);
            } else {
                let inner = *self.rng.pick(&inner);
                let from = (inner.at % t.len as u64) as usize;
                let len = inner.len.min(t.len - from);
                let mut part = b[from..from + len].to_vec();
                self.change(&inner, &mut part);
                if right {
                    seal::seal(self.layout, &inner, &mut part);
                }
                b[from..from + len].copy_from_slice(&part);
            }
            let _ = self.dev.write_at(&b, t.at);
            if right {
                seal::log_copy(self.layout, self.dev, tag, &b);
            }
            return;
        }
        self.change(t, &mut b);
        if right {
            seal::seal(self.layout, t, &mut b);
        }
        let _ = self.dev.write_at(&b, t.at);
        if right && matches!(t.kind, Kind::BlockBitmap(_) | Kind::InodeBitmap(_)) {
            let count = !self.rng.one_in(4);
            seal::bitmap(self.layout, self.dev, t, count);
        }
    }

    fn change(&mut self, t: &Target, b: &mut [u8]) {
        if self.rng.one_in(12) {
            return self.scribble(t, b);
        }
        let bs = self.layout.geo.block_len() as u64;
        let own = t.at / bs;
        let random_word = (self.rng.below(b.len() / 4) * 4, 4);
        let field = match t.kind {
            Kind::Super => *self.rng.pick(SUPER),
            Kind::Desc(_) => *self.rng.pick(DESC),
            Kind::Inode => *self.rng.pick(INODE),
            Kind::Extents => {
                let (at, width) = *self.rng.pick(EXTENTS);
                let count = usize::from(le16(b, 2)).max(1);
                (if at >= 12 { at % 12 + 12 + 12 * self.rng.below(count) } else { at }, width)
            }
            Kind::Leaf => return self.entry(t, b),
            Kind::Index(DxKind::Root) => *self.rng.pick(DX_ROOT),
            Kind::Index(DxKind::Node) => *self.rng.pick(DX_NODE),
            Kind::Attributes => *self.rng.pick(ATTRIBUTES),
            Kind::Orphans => {
                if self.rng.one_in(5) {
                    (b.len() - 8 + 4 * self.rng.below(2), 4)
                } else {
                    (4 * self.rng.below(6), 4)
                }
            }
            Kind::JournalSuper => *self.rng.pick(JOURNAL_SUPER),
            Kind::JournalDesc => *self.rng.pick(JOURNAL_DESC),
            Kind::JournalCommit => *self.rng.pick(JOURNAL_COMMIT),
            Kind::JournalRevoke => *self.rng.pick(JOURNAL_REVOKE),
            Kind::BlockBitmap(_) | Kind::InodeBitmap(_) => (self.rng.below(b.len().min(512)), 1),
            // Most of what these have is at their beginning.
            Kind::Own if self.rng.one_in(2) => (self.rng.below(64), 1),
            Kind::Own | Kind::Indirect | Kind::JournalCopy { .. } => random_word,
        };
        let old = get(b, field);
        let new = self.nasty(old, field.1, own);
        put(b, field, new);
        self.note(t, format!("{:#x}/{} {old:#x} -> {new:#x}", field.0, field.1));
    }

    /// Some bytes become something else.
    fn scribble(&mut self, t: &Target, b: &mut [u8]) {
        let from = self.rng.below(b.len());
        let len = 1 + self.rng.below((b.len() - from).min(64));
        let how = self.rng.below(4);
        for x in &mut b[from..from + len] {
            *x = match how {
                0 => 0,
                1 => 0xFF,
                2 => *x ^ 0x55,
                _ => self.rng.any() as u8,
            };
        }
        self.note(t, format!("{len} bytes from {from} scribbled ({how})"));
    }

    /// One field of one directory entry.
    fn entry(&mut self, t: &Target, b: &mut [u8]) {
        let mut at = 0;
        let mut places = Vec::new();
        while at + 8 <= b.len() && places.len() < 1000 {
            places.push(at);
            let len = usize::from(le16(b, at + 4));
            if len < 8 {
                break;
            }
            at += len;
        }
        let at = if places.is_empty() { 0 } else { *self.rng.pick(&places) };
        let field =
            *self.rng.pick(&[(0, 4), (0, 4), (4, 2), (4, 2), (6, 1), (7, 1), (8, 1), (9, 1)]);
        let field = (at + field.0, field.1);
        let old = get(b, field);
        let new = match field.1 {
            1 if self.rng.one_in(2) => u64::from(*self.rng.pick(&[0, b'/', b'.', 255, 1, 2])),
            _ => self.nasty(old, field.1, u64::from(t.ino)),
        };
        put(b, field, new);
        self.note(t, format!("entry at {at}, field {}: {old:#x} -> {new:#x}", field.0 - at));
    }

    /// Two blocks change places, or one lies twice.
    fn whole_blocks(&mut self) {
        let bs = self.layout.geo.block_len();
        let (a, b) = (self.target(), self.target());
        if a.len != bs || b.len != bs || a.at == b.at {
            return self.field();
        }
        let (left, right) = (read(self.dev, a.at, bs), read(self.dev, b.at, bs));
        let swap = self.rng.one_in(2);
        let mut left_there = left;
        let mut right_there = right;
        if self.rng.one_in(2) {
            seal::seal(self.layout, &Target { kind: a.kind, ..b }, &mut left_there);
            seal::seal(self.layout, &Target { kind: b.kind, ..a }, &mut right_there);
        }
        let _ = self.dev.write_at(&left_there, b.at);
        if swap {
            let _ = self.dev.write_at(&right_there, a.at);
        }
        self.note(
            &a,
            format!("copied to {:#x} ({:?} of inode {}), swapped: {swap}", b.at, b.kind, b.ino),
        );
        self.note(&b, "overwritten".into());
    }

    /// One inode gets the block map (and perhaps more) of another.
    fn steal_map(&mut self) {
        let inodes: Vec<Target> =
            self.layout.targets.iter().filter(|t| t.kind == Kind::Inode).copied().collect();
        let (a, b) = (*self.rng.pick(&inodes), *self.rng.pick(&inodes));
        let (from, mut to) = (read(self.dev, a.at, a.len), read(self.dev, b.at, b.len));
        let range = match self.rng.below(4) {
            0 => 0x20..0x64,
            1 => 0x00..0x64,
            2 => 0x68..0x6C,
            _ => 0x28..0x64,
        };
        to[range.clone()].copy_from_slice(&from[range.clone()]);
        if !self.rng.one_in(4) {
            seal::seal(self.layout, &b, &mut to);
        }
        let _ = self.dev.write_at(&to, b.at);
        self.note(&b, format!("bytes {range:x?} of inode {}", a.ino));
        self.damage.inodes.push(a.ino);
    }

    /// A bitmap that is wrong although its checksum is right.
    fn lying_bitmap(&mut self) {
        let maps: Vec<Target> = self
            .layout
            .targets
            .iter()
            .filter(|t| matches!(t.kind, Kind::BlockBitmap(_) | Kind::InodeBitmap(_)))
            .copied()
            .collect();
        let t = *self.rng.pick(&maps);
        let mut b = read(self.dev, t.at, t.len);
        let from = self.rng.below(t.len.min(1024));
        let len = (1 + self.rng.below(200)).min(t.len - from);
        let fill = *self.rng.pick(&[0, 0xFF, 0x55]);
        b[from..from + len].fill(fill);
        let _ = self.dev.write_at(&b, t.at);
        seal::bitmap(self.layout, self.dev, &t, true);
        self.note(&t, format!("{len} bytes from {from} are {fill:#x}, counts agree"));
    }

    /// A directory entry leads to another inode: itself, an ancestor, a reserved inode, another
    /// file.
    fn wrong_entry(&mut self) {
        let leaves: Vec<Target> =
            self.layout.targets.iter().filter(|t| t.kind == Kind::Leaf).copied().collect();
        if leaves.is_empty() {
            return self.field();
        }
        let t = *self.rng.pick(&leaves);
        let mut b = read(self.dev, t.at, t.len);
        let used: Vec<(usize, u32)> =
            extol_ondisk::dirent::iter(&b[..extol_ondisk::dirent::area_len(&self.layout.geo)])
                .flatten()
                .filter(|e| e.is_used())
                .map(|e| (e.offset, e.ino.0))
                .collect();
        if used.is_empty() {
            return;
        }
        let (at, old) = *self.rng.pick(&used);
        let new = match self.rng.below(5) {
            0 => t.ino,
            1 => *self.rng.pick(&self.layout.dirs),
            2 => *self.rng.pick(&self.layout.inodes),
            3 => self.rng.below(13) as u32,
            _ => self.layout.names.get(&t.ino).map_or(2, |n| n.parent),
        };
        put(&mut b, (at, 4), u64::from(new));
        if !self.rng.one_in(4) {
            seal::seal(self.layout, &t, &mut b);
        }
        let _ = self.dev.write_at(&b, t.at);
        self.note(&t, format!("entry at {at}: inode {old} -> {new}"));
        self.damage.inodes.push(new);
    }
}
