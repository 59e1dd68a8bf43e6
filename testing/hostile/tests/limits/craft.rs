//! Volumes made bad by hand: a structure's bytes are changed and its checksum is made right.

use extol_block::{BlockDevice, MemDevice};
use extol_hostile::base::{Base, VARIANTS, base};
use extol_hostile::layout::{Kind, Target, read};
use extol_hostile::seal;

/// A volume and what is where on it.
pub struct Craft {
    pub base: &'static Base,
    pub dev: MemDevice,
}

pub fn put16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}

pub fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

pub fn put32_be(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_be_bytes());
}

impl Craft {
    pub fn new(variant: &str) -> Self {
        let which = VARIANTS.iter().position(|v| v.name == variant).expect("a variant");
        let base = base(which);
        Self { base, dev: base.image.snapshot() }
    }

    /// Bytes of a block.
    pub fn bs(&self) -> usize {
        self.base.layout.geo.block_len()
    }

    /// The inode with this name, anywhere on the volume.
    pub fn ino(&self, name: &str) -> u32 {
        let all = &self.base.layout.names;
        *all.iter()
            .find(|(_, n)| n.name == name.as_bytes())
            .unwrap_or_else(|| panic!("no {name}"))
            .0
    }

    /// The structures of this kind that belong to an inode (0: to none).
    pub fn all(&self, ino: u32, is: impl Fn(Kind) -> bool) -> Vec<Target> {
        let found: Vec<_> = self
            .base
            .layout
            .targets
            .iter()
            .filter(|t| t.ino == ino && is(t.kind))
            .copied()
            .collect();
        assert!(!found.is_empty(), "inode {ino} has no such structure");
        found
    }

    /// Changes one structure.
    pub fn edit(&self, t: Target, change: impl FnOnce(&mut [u8])) {
        let mut b = read(&self.dev, t.at, t.len);
        change(&mut b);
        seal::seal(&self.base.layout, &t, &mut b);
        self.dev.write_at(&b, t.at).expect("write");
    }

    /// Changes an inode.
    pub fn edit_ino(&self, ino: u32, change: impl FnOnce(&mut [u8])) {
        self.edit(self.all(ino, |k| k == Kind::Inode)[0], change);
    }

    /// Changes the superblock.
    pub fn edit_super(&self, change: impl FnOnce(&mut [u8])) {
        self.edit(self.base.layout.targets[0], change);
    }

    /// A bitmap becomes this, and its descriptor agrees (with right free counts if `count`).
    pub fn bitmap(&self, kind: Kind, fill: u8, count: bool) {
        let t = self.all(0, |k| k == kind)[0];
        self.dev.write_at(&vec![fill; t.len], t.at).expect("write");
        seal::bitmap(&self.base.layout, &self.dev, &t, count);
    }

    /// The block where something lies.
    pub fn block_of(&self, t: Target) -> u32 {
        (t.at / self.bs() as u64) as u32
    }
}
