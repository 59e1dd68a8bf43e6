//! A directory whose index has three levels, with damage to each of them.

use extol::{Ext4, MountOptions};
use extol_check::Kind;
use extol_ondisk::{Inode, InodeNr, InodeSeed, extent};
use extol_testkit::{Image, Need, Scratch, e2fsck, require};

use crate::cases::checked;
use crate::compare::{self, Tally};
use crate::editor::{ImageEditor, Part, le16, le32};
use crate::images::in_memory;

/// Names of 250 bytes: three fill a block. So many that the root of two levels overflows, and that
/// the node which then is below the new root is divided.
const NAMES: u32 = 30_000;
/// Where the entries of a root and of a node begin: limit and count, then hashes and blocks.
const ROOT: usize = 32;
const NODE: usize = 8;
/// Where a root says how many levels of nodes are below it.
const LEVELS: usize = 30;

/// A node of the index.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Its number in the directory.
    lblk: u32,
    part: Part,
    /// Where its entries begin.
    entries: usize,
}

/// The directory's index, level by level.
struct Index {
    root: Node,
    middle: Vec<Node>,
    lowest: Vec<Node>,
    /// A block with names.
    leaf: u32,
}

impl Index {
    fn of(v: &ImageEditor, ino: u32) -> Self {
        let inode = Inode::decode(v.inode_bytes(ino), InodeNr(ino), &v.geo).expect("an inode");
        let seed = inode.seed(InodeNr(ino), &v.geo);
        let mut blocks = Vec::new();
        blocks_of(v, &inode.i_block, &mut blocks);
        let node = |lblk: u32| node(&blocks, seed, lblk);
        let root = node(0);
        let middle: Vec<Node> = children(v, root).into_iter().map(node).collect();
        let lowest: Vec<Node> =
            middle.iter().flat_map(|middle| children(v, *middle)).map(node).collect();
        assert_eq!(v.bytes[v.range(root.part).0 + LEVELS], 2, "two levels of nodes below the root");
        assert!(middle.len() > 1 && lowest.len() > 123, "{} and {}", middle.len(), lowest.len());
        let leaf = children(v, lowest[0])[0];
        Self { root, middle, lowest, leaf }
    }
}

/// The blocks of a file with extents, in order.
fn blocks_of(v: &ImageEditor, node: &[u8], to: &mut Vec<u64>) {
    match extent::Node::decode(node, &v.geo).expect("a good node").entries {
        extent::Entries::Leaf(all) => {
            all.iter().for_each(|e| to.extend((0..u64::from(e.len)).map(|n| e.start + n)));
        }
        extent::Entries::Index(all) => all.iter().for_each(|i| blocks_of(v, v.block(i.leaf), to)),
    }
}

fn node(blocks: &[u64], seed: InodeSeed, lblk: u32) -> Node {
    let block = blocks[lblk as usize];
    match lblk {
        0 => Node { lblk, part: Part::DxRoot(block, seed), entries: ROOT },
        _ => Node { lblk, part: Part::DxNode(block, seed), entries: NODE },
    }
}

/// Where the entries of a node are in the image, and how many it has.
fn entries(v: &ImageEditor, node: Node) -> (usize, usize) {
    let at = v.range(node.part).0 + node.entries;
    (at, usize::from(le16(&v.bytes, at + 2)))
}

fn children(v: &ImageEditor, node: Node) -> Vec<u32> {
    let (at, count) = entries(v, node);
    (0..count).map(|n| le32(&v.bytes, at + 8 * n + 4)).collect()
}

/// A volume with nothing but the directory, which has the inode behind the first one.
fn volume(scratch: &Scratch, features: &str) -> (ImageEditor, u32) {
    let features = format!("large_dir,^has_journal{features}");
    let options = ["-t", "ext4", "-b", "1024", "-N", "64", "-O", &features];
    let image = Image::mke2fs(scratch.path(), "deep.img", 24 << 20, &options);
    let device = in_memory(&image);
    let fs = Ext4::open(std::sync::Arc::clone(&device), &MountOptions::default()).expect("open");
    fs.create_dir("/deep").expect("mkdir");
    fs.write_file("/deep/first", b"").expect("write");
    for n in 1..NAMES {
        fs.hard_link("/deep/first", format!("/deep/{n:0>250}")).expect("link");
    }
    let ino = fs.inode("/deep").expect("the directory").ino();
    fs.unmount().expect("unmount");
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(&mut bytes, 0).expect("read");
    std::fs::write(&image.path, &bytes).expect("write");
    e2fsck(&image).assert_clean("three levels");
    (ImageEditor::new(image), ino)
}

/// A field gets a value: where it is behind the beginning of the entries, its width, the value.
type Edit = (&'static str, usize, usize, u32);

/// Damage to a node with more than four entries.
fn edits(v: &ImageEditor, index: &Index, node: Node) -> Vec<Edit> {
    let (at, count) = entries(v, node);
    let word = |at: usize| le32(&v.bytes, at);
    let (limit, count) = (u32::from(le16(&v.bytes, at)), count as u32);
    let last = 8 * (count as usize - 1);
    let blocks = v.geo.blocks() as u32;
    vec![
        ("a limit one too large", 0, 2, limit + 1),
        ("a limit one too small", 0, 2, limit - 1),
        ("no limit", 0, 2, 0),
        ("more entries than can be", 2, 2, limit + 1),
        ("far more entries than can be", 2, 2, 0xFFFF),
        ("no entries", 2, 2, 0),
        ("an entry less", 2, 2, count - 1),
        ("an entry more", 2, 2, count + 1),
        ("its first child is itself", 4, 4, node.lblk),
        ("its first child is the root", 4, 4, 0),
        ("its first child is a leaf", 4, 4, index.leaf),
        ("its second child is itself", 12, 4, node.lblk),
        ("its second child is the root", 12, 4, 0),
        ("its second child is its first", 12, 4, word(at + 4)),
        ("its second child is the other node above", 12, 4, index.middle[1].lblk),
        ("its second child is a leaf", 12, 4, index.leaf),
        ("its second child is behind the end", 12, 4, blocks),
        ("its second child is far behind the end", 12, 4, 0x0FFF_FFFF),
        ("its last child is itself", last + 4, 4, node.lblk),
        ("its last child is none", last + 4, 4, 0),
        ("the second hash is 0", 8, 4, 0),
        ("the second hash is that of the third entry", 8, 4, word(at + 16)),
        ("the second hash is behind the third", 8, 4, word(at + 16) + 2),
        ("the third hash is before the second", 16, 4, word(at + 8) - 2),
        ("the last hash is the largest", last, 4, !1),
        ("the last hash is one smaller", last, 4, word(at + last) - 2),
        ("the last hash is one larger", last, 4, word(at + last) + 2),
        ("the last hash says that it goes on", last, 4, word(at + last) | 1),
    ]
}

fn able() -> bool {
    require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::NewE2fsck])
}

/// Each level: what either e2fsck calls damaged is an error, with its checksum right and wrong.
#[test]
fn an_index_of_three_levels_that_is_damaged() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let (mut v, ino) = volume(&scratch, "");
    let index = Index::of(&v, ino);
    assert_eq!(checked(&v.image, "undamaged").errors, 0);
    let (mut damaged, mut tried) = (0, 0);
    // (Below the root there are two nodes, which is too few entries for some of the edits.)
    for node in [index.middle[0], index.middle[1], index.lowest[0], index.lowest[100]] {
        for (what, field, width, value) in edits(&v, &index, node) {
            let at = entries(&v, node).0 + field;
            v.write(at, &value.to_le_bytes()[..width]);
            v.fix(node.part);
            let report = checked(&v.image, &format!("{node:?}: {what}"));
            tried += 1;
            damaged += u32::from(report.errors > 0);
            v.restore();
        }
    }
    assert!(damaged * 10 > tried * 8, "{damaged} of {tried}");
    for node in [index.root, index.middle[0], index.middle[1], index.lowest[0]] {
        let (at, len) = v.range(node.part);
        let sum = at + len - 4;
        v.write(sum, &[!v.bytes[sum]]);
        let report = checked(&v.image, &format!("{node:?}: checksum"));
        assert!(report.has(Kind::HtreeChecksum), "{report}");
        v.restore();
    }
    v.image.remove();
}

/// Random damage, to nodes alone.
#[test]
fn random_damage_to_an_index_of_three_levels() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    for features in ["", ",^metadata_csum"] {
        let (mut v, ino) = volume(&scratch, features);
        let index = Index::of(&v, ino);
        let nodes = [&[index.root][..], &index.middle, &index.lowest[..2]].concat();
        v.parts = nodes.into_iter().map(|node| node.part).collect();
        let mut tally = Tally::default();
        let name = format!("three-levels{features}");
        for seed in 0..rounds() {
            compare::compare(&mut v, &name, seed, &mut tally);
        }
        assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
        assert!(tally.both_bad > tally.tried / 2, "{} of {}", tally.both_bad, tally.tried);
        v.image.remove();
    }
}

fn rounds() -> u64 {
    std::env::var("EXTOL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}
