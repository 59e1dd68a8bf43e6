//! What the volumes of single features have beside all else.

use extol::Ext4;
use extol::vfs::{
    Creds, EnableVerity, FileSystem as _, NewNode, SetAttr, VolumeControl as _, XattrSet,
};
use extol_block::{BlockDevice as _, MemDevice};
use extol_fscrypt::MasterKey;
use extol_ondisk::{InodeFlags, Superblock};

use super::{MUST, make_dir, make_file};
use crate::disk::pattern;
use crate::layout::{Kind, Layout, read};

/// The key of encrypted directories.
pub const KEY: [u8; 64] = [7; 64];

fn t(fs: &Ext4, name: &str) -> u32 {
    let t = fs.lookup(fs.root(), b"t").expect(MUST).id.ino;
    if name.is_empty() { t } else { fs.lookup(t, name.as_bytes()).expect(MUST).id.ino }
}

/// Attributes whose values are in inodes of their own, shared by files. (Not for a short link:
/// e2fsck 1.47 takes the blocks of its value for a map.)
pub(super) fn large_values(fs: &Ext4) {
    for (name, seed) in [("small1", 1), ("small3", 1), ("small1", 2), ("slow-link", 2)] {
        let attribute = format!("trusted.large{seed}");
        let value = vec![seed; 4000 * usize::from(seed)];
        fs.setxattr(t(fs, name), attribute.as_bytes(), &value, XattrSet::Any).expect(MUST);
    }
}

/// Casefolded directories, one of them with an index.
pub(super) fn folded(fs: &Ext4) {
    let small = make_dir(fs, t(fs, ""), "folded");
    let flags = fs.getattr(small).expect(MUST).flags | InodeFlags::CASEFOLD.bits();
    let flags = SetAttr { flags: Some(flags), ..SetAttr::default() };
    fs.setattr(small, &flags).expect(MUST);
    let large = make_dir(fs, small, "Large");
    for name in ["Ärger", "STRASSE", "\u{1F600}", "e\u{301}\u{323}", "Ⅸ"] {
        make_file(fs, small, name);
    }
    for i in 0..150 {
        make_file(fs, large, &format!("Name-Of-A-File-{i:04}-Ä"));
    }
}

/// Files of fs-verity: of no block, one, some with holes between them, and a tree of two levels.
pub(super) fn verified(fs: &Ext4) {
    for (nr, name) in ["small0", "small2", "extents", "many-extents"].into_iter().enumerate() {
        let ino = t(fs, name);
        let how = EnableVerity {
            algorithm: 1 + (nr % 2) as u8,
            block_size: 1024,
            salt: vec![nr as u8; 8 * nr],
            signature: vec![9; 100 * nr],
        };
        fs.enable_verity(ino, &how).expect(MUST);
    }
}

/// Owners and projects beside root.
pub(super) fn owned(fs: &Ext4) {
    for (nr, name) in (1..).zip(["small1", "small2", "whole", "nest"]) {
        let owner = SetAttr {
            uid: Some(1000 * nr),
            gid: Some(100 * nr),
            project: Some(10 * nr),
            ..SetAttr::default()
        };
        fs.setattr(t(fs, name), &owner).expect(MUST);
    }
}

/// A directory that [`encrypt`] makes encrypted.
pub(super) fn secret(fs: &Ext4) {
    make_dir(fs, t(fs, ""), "secret");
}

/// Makes the directory "secret" encrypted: a policy of version 2, as Linux stores it.
pub(super) fn encrypt(dev: &MemDevice) {
    /// Where the attributes of an inode of 256 bytes begin, and their first entry.
    const ATTRIBUTES: usize = 128 + 32;
    const ENTRY: usize = ATTRIBUTES + 4;
    let layout = Layout::of(dev);
    let (ino, _) = layout.names.iter().find(|(_, name)| name.name == b"secret").expect(MUST);
    let of_inode = |t: &&crate::layout::Target| t.kind == Kind::Inode && t.ino == *ino;
    let target = layout.targets.iter().find(of_inode).expect(MUST);
    let mut raw = read(dev, target.at, target.len);
    let flags = crate::layout::le32(&raw, 0x20) | InodeFlags::ENCRYPT.bits();
    raw[0x20..0x24].copy_from_slice(&flags.to_le_bytes());
    let identifier = MasterKey::new(&KEY).expect(MUST).identifier();
    let context = [&[2, 1, 4, 3, 0, 0, 0, 0][..], &identifier, &[0xA5; 16]].concat();
    let value = raw.len() - context.len();
    raw[ATTRIBUTES..].fill(0);
    raw[ATTRIBUTES..ENTRY].copy_from_slice(&0xEA02_0000_u32.to_le_bytes());
    // Length and index of the name "c", where the value lies, and how long it is.
    raw[ENTRY] = 1;
    raw[ENTRY + 1] = 9;
    raw[ENTRY + 2..ENTRY + 4].copy_from_slice(&((value - ENTRY) as u16).to_le_bytes());
    raw[ENTRY + 8] = context.len() as u8;
    raw[ENTRY + 16] = b'c';
    raw[value..].copy_from_slice(&context);
    crate::seal::seal(&layout, target, &mut raw);
    dev.write_at(&raw, target.at).expect(MUST);
}

/// What is in the encrypted directory.
pub(super) fn secrets(fs: &Ext4) {
    let secret = t(fs, "secret");
    for len in [1, 16, 33, 150, 255] {
        let ino = make_file(fs, secret, &"n".repeat(len));
        fs.write(ino, 0, &pattern(len * 20)).expect(MUST);
    }
    let many = make_dir(fs, secret, "many");
    for i in 0..60 {
        make_file(fs, many, &format!("a name that is not short, number {i}"));
    }
    for len in [3, 100] {
        let link = NewNode::Symlink(vec![b'y'; len]);
        let name = format!("link{len}");
        fs.create(secret, name.as_bytes(), link, 0o777, 0, Creds::default()).expect(MUST);
    }
    fs.sync().expect(MUST);
}

/// Changes the superblock.
pub(super) fn patch(dev: &MemDevice, change: fn(&mut Superblock)) {
    let mut sb = Superblock::decode(&read(dev, 1024, 1024)).expect(MUST);
    change(&mut sb);
    dev.write_at(&sb.encode(), 1024).expect(MUST);
}
