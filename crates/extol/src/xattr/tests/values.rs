//! Values in inodes of their own: as Linux stores them, shared as Linux shares them.

use std::path::Path;

use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_ondisk::{Incompat, Inode, InodeFlags, InodeNr};
use extol_testkit::require;
use extol_vfs::FsError;
use rustix::fs::{XattrFlags, setxattr};

use super::lab::{FILES, Lab, NEEDS_LINUX, remove};
use super::{Model, compare_with_linux, random, seen};
use crate::fast_commit::eligibility::Change;
use crate::node::Node;
use crate::xattr::{count_values, drop_all, drop_value};

fn large(seed: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + seed) >> 3) as u8).collect()
}

/// The entries of an inode whose values are in inodes of their own.
fn entries(lab: &Lab, node: &Node) -> Vec<XattrEntry> {
    let mut all = format::parse_ibody(&node.raw.tail).unwrap();
    if node.raw.file_acl != 0 {
        let buf = lab.vol.journal.read(extol_block::BlockNr(node.raw.file_acl)).unwrap();
        all.extend(format::parse_block(&buf.data()).unwrap().1);
    }
    all.retain(XattrEntry::has_inode);
    all
}

fn value_of(lab: &Lab, entry: &XattrEntry) -> (InodeNr, Inode) {
    let ino = InodeNr(entry.value_inum);
    (ino, lab.vol.read_inode(ino).unwrap())
}

fn users(lab: &Lab, node: &Node) -> u64 {
    format::stated_users(&value_of(lab, &entries(lab, node)[0]).1)
}

#[test]
fn random_with_values_in_inodes() {
    random(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"], 21);
    random(&["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal,ea_inode"], 22);
    random(
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal,ea_inode,inline_data,^metadata_csum"],
        23,
    );
    random(&["-t", "ext2", "-b", "1024", "-O", "ea_inode"], 24);
}

#[test]
fn equal_values_are_one_inode() {
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"]);
    let (at_start, inodes) = (lab.free(), lab.vol.alloc.free_inodes());
    let mut nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
    let value = large(1, 5000);
    let blocks = nodes[0].raw.blocks;
    for node in &mut nodes {
        lab.set(node, "user.large", &value).unwrap();
        assert_eq!(node.raw.blocks, blocks + 10, "each pays for the value");
    }
    assert_eq!(users(&lab, &nodes[0]), FILES as u64);
    assert_eq!(lab.free(), at_start - 5);
    assert_eq!(lab.vol.alloc.free_inodes(), inodes - 1);
    let (_, raw) = value_of(&lab, &entries(&lab, &nodes[3])[0]);
    assert!(raw.flags.contains(InodeFlags::EA_INODE) && raw.links == 1 && raw.size == 5000);
    assert_eq!(raw.mode, 0o100_600);
    lab.fsck("one value");

    // The same under another name, another value, and the old one again.
    lab.set(&mut nodes[2], "user.again", &value).unwrap();
    assert_eq!(users(&lab, &nodes[0]), FILES as u64 + 1);
    lab.set(&mut nodes[2], "user.large", &large(2, 65_536)).unwrap();
    assert_eq!(users(&lab, &nodes[0]), FILES as u64);
    lab.fsck("two values");
    lab.set(&mut nodes[2], "user.large", &value).unwrap();
    lab.change(&mut nodes[2], |vol, h, node, values| remove(vol, h, node, values, b"user.again"))
        .unwrap();
    assert_eq!(lab.free(), at_start - 5);
    lab.fsck("one value again");

    // A value that fits goes back to its name.
    lab.set(&mut nodes[0], "user.large", b"short").unwrap();
    assert_eq!(nodes[0].raw.blocks, blocks);
    for node in &mut nodes {
        lab.change(node, drop_all).unwrap();
    }
    assert_eq!((lab.free(), lab.vol.alloc.free_inodes()), (at_start, inodes));
}

#[test]
fn a_shared_block_is_one_user() {
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal,ea_inode"]);
    let at_start = lab.free();
    let mut nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
    let value = large(1, 5000);
    for node in &mut nodes {
        lab.set(node, "user.large", &value).unwrap();
    }
    assert_eq!((lab.users(&nodes[0]), users(&lab, &nodes[0])), (FILES as u32, 1));
    lab.fsck("shared");
    // A copy of the block is another user.
    lab.set(&mut nodes[1], "user.more", b"x").unwrap();
    assert_eq!((lab.users(&nodes[1]), users(&lab, &nodes[1])), (1, 2));
    lab.set(&mut nodes[2], "user.large", &large(2, 3000)).unwrap();
    assert_eq!((users(&lab, &nodes[0]), users(&lab, &nodes[2])), (2, 1));
    lab.fsck("copies");
    // And one less when it is equal again.
    lab.change(&mut nodes[1], |vol, h, node, values| remove(vol, h, node, values, b"user.more"))
        .unwrap();
    assert_eq!(users(&lab, &nodes[1]), 1);
    lab.fsck("joined");
    for node in &mut nodes {
        lab.change(node, drop_all).unwrap();
    }
    assert_eq!(lab.free(), at_start);
}

#[test]
fn values_that_linux_made() {
    if !require(&NEEDS_LINUX) {
        return;
    }
    let lab = Lab::new(&["-t", "ext4", "-O", "^has_journal,ea_inode"]);
    let at_start = lab.free();
    let value = large(3, 20_000);
    lab.save();
    lab.with_linux(&[], |root| {
        for name in ["f0", "f1"] {
            let path = root.join(name);
            setxattr(&path, "user.large", &value, XattrFlags::empty()).unwrap();
            setxattr(&path, "user.small", b"x", XattrFlags::empty()).unwrap();
        }
    });
    let lab = Lab::open(lab.scratch, lab.image);
    let mut nodes = [lab.node("f0"), lab.node("f1"), lab.node("f2")];
    assert_eq!(lab.get(&nodes[0], "user.large").unwrap(), value);
    assert_eq!(lab.get(&nodes[0], "user.small").unwrap(), b"x");
    // What was read is known, and shared.
    lab.set(&mut nodes[2], "user.mine", &value).unwrap();
    assert_eq!(users(&lab, &nodes[1]), 3);
    lab.fsck("with Linux's value");
    for node in &mut nodes {
        while count_values(&lab.vol, node) > 0 {
            assert_eq!(lab.change(node, drop_value), Ok(true));
        }
        lab.change(node, drop_all).unwrap();
    }
    assert_eq!(lab.free(), at_start);
    lab.fsck("nothing left");
}

#[test]
fn linux_shares_our_values() {
    if !require(&NEEDS_LINUX) {
        return;
    }
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"]);
    let mut models = vec![Model::new(); FILES];
    for (i, model) in models.iter_mut().enumerate() {
        let mut node = lab.node(&format!("f{i}"));
        let value = large(i as u32 % 3, 1000 + 6000 * (i as u32 % 3));
        // (The last byte but one of the name is not ASCII: there are two hashes of such names.)
        let name = "user.l\u{e4}rge";
        lab.set(&mut node, name, &value).unwrap();
        model.insert(name.as_bytes().to_vec(), value);
    }
    compare_with_linux(&lab, &models);
    let name = "user.l\u{e4}rge";
    lab.with_linux(&[], |root| {
        let value = &models[1][name.as_bytes()];
        // Linux knows a value once it has read it.
        let mut buffer = vec![0; 65_536];
        rustix::fs::getxattr(root.join("f1"), name, &mut buffer).unwrap();
        setxattr(root.join("f0"), name, value, XattrFlags::empty()).unwrap();
        rustix::fs::removexattr(root.join("f2"), name).unwrap();
    });
    let lab = Lab::open(lab.scratch, lab.image);
    lab.fsck("changed by Linux");
    assert_eq!(users(&lab, &lab.node("f0")), 5);
    assert!(seen(&lab, &lab.node("f2")).is_empty());
}

/// A value of the old form: without checksum and count, for one inode.
#[test]
fn values_of_the_old_form() {
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"]);
    let at_start = lab.free();
    let mut node = lab.node("f0");
    let value = large(1, 5000);
    lab.set(&mut node, "user.large", &value).unwrap();
    let (ino, mut raw) = value_of(&lab, &entries(&lab, &node)[0]);
    raw.mtime.sec = node.ino.0.into();
    raw.generation = node.raw.generation;
    format::set_stated_hash(&mut raw, 0);
    format::set_stated_users(&mut raw, 0);
    lab.run(&mut node, |vol, h, node| {
        node.raw.blocks -= 10;
        vol.write_inode(h, ino, &raw, Change::default())
    })
    .unwrap();
    lab.fsck("the old form");
    assert_eq!(lab.get(&node, "user.large").unwrap(), value);
    lab.set(&mut node, "user.large", &large(2, 5000)).unwrap();
    lab.fsck("the new form");
    lab.change(&mut node, drop_all).unwrap();
    assert_eq!(lab.free(), at_start);
}

#[test]
fn without_the_feature_nothing_is_read() {
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"]);
    let mut node = lab.node("f0");
    lab.set(&mut node, "user.large", &large(1, 5000)).unwrap();
    lab.set(&mut node, "user.small", b"x").unwrap();
    lab.save();
    let mut bytes = std::fs::read(&lab.image.path).unwrap();
    let mut sb = extol_ondisk::Superblock::decode(&bytes[1024..2048]).unwrap();
    sb.feature_incompat.remove(Incompat::EA_INODE);
    bytes[1024..2048].copy_from_slice(&sb.encode());
    std::fs::write(&lab.image.path, bytes).unwrap();
    if require(&NEEDS_LINUX) {
        lab.with_linux(&[], |root: &Path| {
            let mut buffer = [0; 10];
            let small = rustix::fs::getxattr(root.join("f0"), "user.small", &mut buffer);
            assert_eq!(small, Err(rustix::io::Errno::UCLEAN));
        });
    }
    let lab = Lab::open(lab.scratch, lab.image);
    let mut node = lab.node("f0");
    assert!(matches!(lab.get(&node, "user.small"), Err(FsError::Corrupt { .. })));
    assert!(matches!(lab.get(&node, "user.large"), Err(FsError::Corrupt { .. })));
    assert!(matches!(lab.set(&mut node, "user.new", b"x"), Err(FsError::Corrupt { .. })));
}
