//! Files: block maps that are circles, bombs or lies.

use extol::FsError;
use extol::vfs::{FileSystem, SetAttr};
use extol_check::Kind as Finding;
use extol_hostile::disk::pattern;
use extol_hostile::layout::{Kind, le32};

use crate::craft::{Craft, put16, put32};
use crate::prove::{Case, message};

/// An index entry's child, of a node or of the inode's root.
fn lead_to(b: &mut [u8], at: usize, child: u32) {
    put32(b, at + 4, child);
    put16(b, at + 8, 0);
}

fn remove(fs: &std::sync::Arc<extol::Ext4>, path: &str) -> Vec<String> {
    let file = fs.inode(path).map(|i| i.ino());
    let mut said = Vec::new();
    if let Ok(ino) = file {
        said.extend(message(fs.fiemap(ino, 0, u64::MAX)));
        said.extend(message(fs.setattr(ino, &SetAttr { size: Some(100), ..SetAttr::default() })));
    }
    said.extend(message(fs.remove_file(path)));
    said.extend(message(fs.sync()));
    said
}

/// "deep" is a chain of three nodes below its root: of depth 2, 1, 0.
fn deep(child_of: usize, child: usize) -> Case {
    let v = Craft::new("ext4-1k");
    let ino = v.ino("deep");
    let nodes = v.all(ino, |k| k == Kind::Extents);
    let to = v.block_of(nodes[child]);
    v.edit(nodes[child_of], |b| lead_to(b, 12, to));
    Case::new("extents", v)
        .focus(&[ino])
        .then(|fs| remove(fs, "/t/deep"))
        .says(&["extent", "inode"])
}

#[test]
fn an_extent_node_that_points_to_itself() {
    deep(0, 0).finds(&[Finding::ExtentNode, Finding::BlockShared]).prove();
    deep(1, 1).finds(&[Finding::ExtentNode, Finding::BlockShared]).prove();
}

#[test]
fn an_extent_node_that_points_to_an_ancestor() {
    deep(1, 0).finds(&[Finding::ExtentNode, Finding::BlockShared]).prove();
}

#[test]
fn extent_nodes_that_lie_about_depth() {
    for (node, depth) in [(0, 5), (0, 0), (1, 2), (2, 1), (2, 0xFFFF)] {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("deep");
        v.edit(v.all(ino, |k| k == Kind::Extents)[node], |b| put16(b, 6, depth));
        Case::new("depth", v)
            .focus(&[ino])
            .says(&["extent", "inode"])
            .finds(&[Finding::ExtentNode])
            .prove();
    }
    for depth in [0, 2, 5, 6, 0xFFFF] {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("deep");
        v.edit_ino(ino, |b| put16(b, 0x28 + 6, depth));
        Case::new("depth of the root", v)
            .focus(&[ino])
            .says(&["inode"])
            .then(|fs| remove(fs, "/t/deep"))
            .prove();
    }
}

/// Each node leads to the next one 84 times: 84 to the fourth ways through six blocks.
#[test]
fn an_extent_tree_that_is_a_bomb() {
    let v = Craft::new("ext4-1k");
    let ino = v.ino("deep");
    let nodes = v.all(ino, |k| k == Kind::Extents);
    for (level, node) in nodes.iter().enumerate() {
        let next = v.block_of(*node) + 1;
        let last = level + 1 == nodes.len();
        v.edit(*node, |b| {
            put16(b, 2, 84);
            put16(b, 4, 84);
            let step: u32 = [84 * 84, 84, 1][level];
            for i in 0..84u32 {
                let at = 12 + 12 * i as usize;
                put32(b, at, i * step);
                if last {
                    put16(b, at + 4, 1);
                    put16(b, at + 6, 0);
                    put32(b, at + 8, next);
                } else {
                    lead_to(b, at, next);
                }
            }
        });
    }
    v.edit_ino(ino, |b| {
        put16(b, 0x28 + 2, 4);
        let child = v.block_of(nodes[0]);
        for i in 0..4u32 {
            put32(b, 0x28 + 12 + 12 * i as usize, i * 84 * 84 * 84);
            lead_to(b, 0x28 + 12 + 12 * i as usize, child);
        }
        put32(b, 0x6C, 0xFF);
    });
    Case::new("extent bomb", v)
        .focus(&[ino])
        .then(|fs| remove(fs, "/t/deep"))
        .finds(&[Finding::BlockShared, Finding::ExtentOrder])
        .prove();
}

/// Every pointer of an indirect block names the block itself.
#[test]
fn a_block_map_that_is_a_bomb() {
    for slot in [12, 13, 14] {
        let v = Craft::new("ext3");
        let ino = v.ino("many-extents");
        let own = v.all(ino, |k| k == Kind::Indirect)[0];
        let nr = v.block_of(own);
        v.edit(own, |b| b.chunks_exact_mut(4).for_each(|w| w.copy_from_slice(&nr.to_le_bytes())));
        v.edit_ino(ino, |b| {
            put32(b, 0x28 + 4 * slot, nr);
            put32(b, 0x6C, 3);
        });
        Case::new("indirect bomb", v)
            .focus(&[ino])
            .then(|fs| remove(fs, "/t/many-extents"))
            .finds(&[Finding::BlockShared])
            .prove();
    }
}

/// Extents over everything that is not theirs: nothing of it is written or freed.
#[test]
fn file_extents_over_metadata() {
    let places = |v: &Craft| {
        let block = |kind| v.block_of(v.all(0, |k| k == kind)[0]);
        let mut all = vec![1, 2, block(Kind::BlockBitmap(0)), block(Kind::InodeBitmap(0))];
        all.push((v.all(2, |k| k == Kind::Inode)[0].at / v.bs() as u64) as u32);
        all.push((v.base.layout.log[5] / v.bs() as u64) as u32);
        all
    };
    for i in 0..6 {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("whole");
        let to = places(&v)[i];
        v.edit_ino(ino, |b| put32(b, 0x28 + 12 + 8, to));
        Case::new("extents over metadata", v)
            .focus(&[ino])
            .then(|fs| {
                let mut said = Vec::new();
                if let Ok(file) = fs.inode("/t/whole") {
                    said.extend(message(fs.write(file.ino(), 0, &pattern(40 << 10))));
                    said.extend(message(fs.fsync(file.ino(), false)));
                }
                said.extend(remove(fs, "/t/whole"));
                said
            })
            .says(&["inode"])
            .finds(&[Finding::BlockOnMetadata, Finding::BlockShared])
            .prove();
    }
}

/// Two files, one map: what one frees, the other must not free again.
#[test]
fn two_files_with_the_same_blocks() {
    let v = Craft::new("ext4-1k");
    let (a, b) = (v.ino("extents"), v.ino("sparse"));
    let from = extol_hostile::layout::read(&v.dev, v.all(a, |k| k == Kind::Inode)[0].at, 256);
    v.edit_ino(b, |raw| raw[0x28..0x64].copy_from_slice(&from[0x28..0x64]));
    Case::new("shared blocks", v)
        .focus(&[a, b])
        .then(|fs| [remove(fs, "/t/extents"), remove(fs, "/t/sparse")].concat())
        .finds(&[Finding::BlockShared])
        .prove();
}

/// Sizes that no volume could hold.
#[test]
fn sizes_that_lie() {
    for (name, high) in
        [("small1", 0xFFFF_u32), ("small1", 0x7FFF_FFFF), ("sparse", 0xFFF), ("slow-link", 0x1000)]
    {
        let v = Craft::new("ext4-1k");
        let ino = v.ino(name);
        v.edit_ino(ino, |b| {
            assert!(le32(b, 0x6C) == 0);
            put32(b, 0x6C, high);
        });
        Case::new("size", v)
            .focus(&[ino])
            .then(|fs| {
                let mut said = Vec::new();
                for path in ["/t/small1", "/t/sparse", "/t/slow-link"] {
                    if fs.symlink_metadata(path).is_ok_and(|attr| attr.size > 1 << 40) {
                        said.extend(message(fs.read_file(path)));
                        said.extend(message(fs.read_link(path)));
                    }
                }
                said
            })
            .says(if name == "slow-link" { &[] } else { &["too large"] })
            .prove();
    }
}

/// Links that lead to themselves, and to each other.
#[test]
fn links_in_a_circle() {
    let v = Craft::new("ext4-1k");
    let ino = v.ino("fast-link");
    v.edit_ino(ino, |b| {
        b[0x28..0x64].fill(0);
        b[0x28..0x28 + 12].copy_from_slice(b"../t/fast-li");
        b[0x28 + 12..0x28 + 14].copy_from_slice(b"nk");
        put32(b, 4, 14);
    });
    Case::new("links", v)
        .focus(&[ino])
        .then(|fs| {
            for path in ["/t/fast-link", "/t/fast-link/x", "/t/one/../fast-link"] {
                let result = fs.read_file(path);
                assert!(matches!(result, Err(FsError::SymlinkLoop)), "{path}: {result:?}");
            }
            vec!["circle".into()]
        })
        .says(&["circle"])
        .prove();
}

/// Attributes: entries without an end, values behind the end, users that lie, a value in the inode
/// that asks for it.
#[test]
fn attributes_that_lie() {
    let v = Craft::new("ext4-1k");
    let ino = v.ino("small2");
    v.edit(v.all(ino, |k| k == Kind::Attributes)[0], |b| b[32..1020].fill(1));
    Case::new("entries without an end", v)
        .focus(&[ino])
        .says(&["attribute"])
        .finds(&[Finding::XattrBlock, Finding::XattrEntry])
        .prove();
    for users in [0u32, 1, 1024, u32::MAX] {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("small2");
        v.edit(v.all(ino, |k| k == Kind::Attributes)[0], |b| put32(b, 4, users));
        Case::new("users", v)
            .focus(&[ino])
            .finds(&[Finding::XattrRefcount, Finding::XattrBlock])
            .prove();
    }
    for own in [true, false] {
        let v = Craft::new("ea-inode");
        let ino = v.ino("small1");
        let to = if own { ino } else { 8 };
        v.edit(v.all(ino, |k| k == Kind::Attributes)[0], |b| put32(b, 36, to));
        Case::new("value in an inode", v).focus(&[ino]).says(&["attribute value", "inode"]).prove();
    }
}
