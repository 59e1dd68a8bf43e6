//! Attributes on volumes in memory, checked by a model, by e2fsck and by Linux.

pub(crate) mod lab;
mod lists;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

use extol_block::BlockNr;
use extol_ondisk::Incompat;
use extol_testkit::{Tree, require};
use extol_vfs::{FsError, XattrSet};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{CREDITS, drop_all, get, list, set};
use crate::node::Node;
use lab::{FILES, Lab, NEEDS_LINUX, remove};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn seen(lab: &Lab, node: &Node) -> Model {
    let names = list(&lab.vol, node).unwrap();
    let count = names.len();
    let all: Model =
        names.into_iter().map(|n| (n.clone(), get(&lab.vol, node, &n).unwrap())).collect();
    assert_eq!(all.len(), count, "a name twice");
    all
}

const NAMES: [&str; 9] = [
    "user.a",
    "user.b",
    "user.a_longer_name_than_the_others",
    "security.label",
    "security.other",
    "trusted.overlay.opaque",
    "trusted.x",
    "user.ab",
    "user.zz",
];

/// Values of all lengths up to `most`, many of them the same.
fn some_value(rng: &mut SmallRng, most: usize) -> Vec<u8> {
    let len = match rng.random_range(0..10) {
        0 => 0,
        1..5 => rng.random_range(1..24),
        5..7 => rng.random_range(1..200),
        7..9 => [60, 300, 700][rng.random_range(0..3)],
        _ => rng.random_range(1..most),
    };
    vec![if rng.random_bool(0.7) { b'v' } else { rng.random() }; len]
}

fn play(
    lab: &Lab,
    nodes: &mut [Node],
    models: &mut [Model],
    rng: &mut SmallRng,
    operations: usize,
) {
    let mut full = 0;
    let large = lab.vol.geo.incompat().contains(Incompat::EA_INODE);
    let most = if large { 9000 } else { lab.vol.geo.block_len() + 100 };
    for _ in 0..operations {
        let i = rng.random_range(0..nodes.len());
        let (node, model) = (&mut nodes[i], &mut models[i]);
        let name = NAMES[rng.random_range(0..NAMES.len())];
        let key = name.as_bytes().to_vec();
        if rng.random_bool(0.3) {
            let result = lab
                .change(node, |vol, h, node, values| remove(vol, h, node, values, name.as_bytes()));
            let wanted =
                if model.remove(&key).is_some() { Ok(()) } else { Err(FsError::NoAttribute) };
            assert_eq!(result, wanted);
        } else {
            let value = some_value(rng, most);
            let how = [XattrSet::Any, XattrSet::Any, XattrSet::Create, XattrSet::Replace]
                [rng.random_range(0..4)];
            let before = node.raw.clone();
            let result = lab.change(node, |vol, h, node, values| {
                set(vol, h, node, values, name.as_bytes(), Some(&value), how)
            });
            match (how, model.contains_key(&key)) {
                (XattrSet::Create, true) => assert_eq!(result, Err(FsError::Exists)),
                (XattrSet::Replace, false) => assert_eq!(result, Err(FsError::NoAttribute)),
                _ if result == Err(FsError::NoSpace) => {
                    full += 1;
                    assert_eq!(node.raw, before);
                }
                _ => {
                    result.unwrap();
                    model.insert(key.clone(), value);
                }
            }
        }
        assert_eq!(lab.get(node, name).ok(), model.get(&key).cloned());
    }
    if large {
        // (A block may be full of values that fit, and then has no room for one more name.)
        assert!(full < operations / 50, "{full} of {operations} did not fit");
    } else {
        assert!(full > 0 && full < operations / 4, "{full} of {operations} did not fit");
    }
}

/// What Linux sees must be what the models say.
fn compare_with_linux(lab: &Lab, models: &[Model]) {
    if !require(&NEEDS_LINUX) {
        return;
    }
    lab.save();
    lab.with_linux(&["ro"], |root| {
        let tree = Tree::of(root);
        for (i, model) in models.iter().enumerate() {
            let theirs = &tree.nodes[Path::new(&format!("f{i}"))].xattrs;
            let lengths = |m: &Model| -> Vec<(String, usize)> {
                m.iter().map(|(n, v)| (String::from_utf8_lossy(n).into_owned(), v.len())).collect()
            };
            assert!(theirs == model, "f{i}: {:?} instead of {:?}", lengths(theirs), lengths(model));
        }
    });
}

/// Sets and removes at random, checks and opens anew, and at last removes all.
pub(super) fn random(mke2fs: &[&str], seed: u64) {
    let mut lab = Lab::new(mke2fs);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut models = vec![Model::new(); FILES];
    let at_start = lab.free();
    for round in 0..3 {
        let mut nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
        for (node, model) in nodes.iter().zip(&models) {
            assert_eq!(&seen(&lab, node), model);
        }
        play(&lab, &mut nodes, &mut models, &mut rng, 1200);
        lab.fsck(&format!("{mke2fs:?} round {round}"));
        compare_with_linux(&lab, &models);
        lab = lab.reopen();
    }
    for i in 0..FILES {
        let mut node = lab.node(&format!("f{i}"));
        let blocks = node.raw.blocks;
        lab.change(&mut node, drop_all).unwrap();
        assert!(node.raw.file_acl == 0 && list(&lab.vol, &node).unwrap().is_empty());
        assert!(node.raw.blocks <= blocks);
    }
    assert_eq!(lab.free(), at_start, "blocks are lost");
    lab.fsck("nothing left");
}

#[test]
fn random_on_small_inodes() {
    random(&["-t", "ext2", "-b", "1024", "-I", "128"], 1);
    random(&["-t", "ext4", "-b", "2048", "-I", "128", "-O", "^has_journal"], 2);
}

#[test]
fn random_on_usual_inodes() {
    random(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], 3);
    random(&["-t", "ext4", "-b", "4096", "-O", "^has_journal,^metadata_csum"], 4);
}

#[test]
fn random_on_large_inodes() {
    random(&["-t", "ext4", "-b", "1024", "-I", "512", "-O", "^has_journal,inline_data"], 5);
}

#[test]
fn names_and_kinds() {
    let lab = Lab::new(&["-t", "ext4", "-O", "^has_journal"]);
    let mut file = lab.node("f0");
    let mut link = lab.node("s");
    assert!(matches!(lab.get(&file, "system.data"), Err(FsError::NotSupported(_))));
    assert!(matches!(lab.set(&mut file, "system.data", b"x"), Err(FsError::NotSupported(_))));
    assert!(matches!(lab.set(&mut file, "other.x", b"x"), Err(FsError::NotSupported(_))));
    assert!(matches!(lab.set(&mut file, "user.", b"x"), Err(FsError::Invalid(_))));
    assert_eq!(lab.set(&mut file, &format!("user.{}", "n".repeat(251)), b"x"), Err(FsError::Range));
    assert_eq!(lab.set(&mut file, &format!("user.{}", "n".repeat(250)), b"x"), Ok(()));
    assert_eq!(lab.set(&mut file, "user.x", &[0; 65537]), Err(FsError::TooBig));
    assert_eq!(lab.set(&mut file, "user.x", &[0; 65536]), Err(FsError::NoSpace));
    assert_eq!(lab.get(&file, "user.x"), Err(FsError::NoAttribute));
    assert_eq!(lab.set(&mut link, "user.x", b"x"), Err(FsError::NotPermitted));
    assert_eq!(lab.get(&link, "user.x"), Err(FsError::NoAttribute));
    assert_eq!(lab.set(&mut link, "trusted.x", b"x"), Ok(()));
    assert_eq!(lab.get(&link, "trusted.x"), Ok(b"x".to_vec()));
    lab.fsck("names");
}

#[test]
fn equal_blocks_are_shared() {
    let lab = Lab::new(&["-t", "ext4", "-I", "128", "-O", "^has_journal"]);
    let at_start = lab.free();
    let mut nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
    for node in &mut nodes {
        lab.set(node, "user.label", b"the same for all").unwrap();
    }
    assert!(nodes.iter().all(|n| n.raw.file_acl == nodes[0].raw.file_acl));
    assert_eq!(lab.users(&nodes[0]), FILES as u32);
    assert_eq!(lab.free(), at_start - 1);
    lab.fsck("shared");

    // One leaves and comes back.
    lab.set(&mut nodes[3], "user.more", b"only here").unwrap();
    assert_ne!(nodes[3].raw.file_acl, nodes[0].raw.file_acl);
    assert_eq!((lab.users(&nodes[0]), lab.users(&nodes[3])), (FILES as u32 - 1, 1));
    assert_eq!(lab.free(), at_start - 2);
    lab.fsck("one left");
    lab.change(&mut nodes[3], |vol, h, node, values| remove(vol, h, node, values, b"user.more"))
        .unwrap();
    assert_eq!(lab.users(&nodes[3]), FILES as u32);
    assert_eq!(lab.free(), at_start - 1);

    for node in &mut nodes {
        lab.change(node, |vol, h, node, values| remove(vol, h, node, values, b"user.label"))
            .unwrap();
        assert_eq!(node.raw.file_acl, 0);
    }
    assert_eq!(lab.free(), at_start);
    lab.fsck("all left");
}

#[test]
fn blocks_that_linux_shared() {
    if !require(&NEEDS_LINUX) {
        return;
    }
    let lab = Lab::new(&["-t", "ext4", "-I", "128", "-O", "^has_journal"]);
    lab.save();
    lab.with_linux(&[], |root| {
        for i in 0..FILES {
            let path = root.join(format!("f{i}"));
            rustix::fs::setxattr(&path, "user.k", b"from Linux", rustix::fs::XattrFlags::empty())
                .unwrap();
        }
    });
    let lab = Lab::open(lab.scratch, lab.image);
    let mut nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
    assert_eq!(lab.users(&nodes[0]), FILES as u32);
    lab.set(&mut nodes[1], "user.k", b"ours").unwrap();
    lab.change(&mut nodes[2], drop_all).unwrap();
    // What Linux built is found by contents: the hashes are the same.
    lab.set(&mut nodes[1], "user.k", b"from Linux").unwrap();
    assert_eq!(nodes[1].raw.file_acl, nodes[0].raw.file_acl);
    assert_eq!(lab.users(&nodes[0]), FILES as u32 - 1);
    lab.fsck("Linux's block");
}

/// Many inodes join and leave the same few blocks at once.
#[test]
fn sharing_by_many_threads() {
    let lab = Lab::new(&["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal"]);
    let at_start = lab.free();
    let nodes: Vec<Node> = (0..FILES).map(|i| lab.node(&format!("f{i}"))).collect();
    let done: Vec<(Node, Model)> = std::thread::scope(|scope| {
        let workers: Vec<_> = nodes
            .into_iter()
            .enumerate()
            .map(|(i, mut node)| {
                let lab = &lab;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(i as u64);
                    let mut model = Model::new();
                    for _ in 0..1500 {
                        let name = ["user.a", "user.b"][rng.random_range(0..2)];
                        if rng.random_bool(0.3) {
                            if model.remove(name.as_bytes()).is_some() {
                                lab.change(&mut node, |vol, h, node, values| {
                                    remove(vol, h, node, values, name.as_bytes())
                                })
                                .unwrap();
                            }
                        } else {
                            let value = vec![b'v'; rng.random_range(1..4)];
                            lab.set(&mut node, name, &value).unwrap();
                            model.insert(name.as_bytes().to_vec(), value);
                        }
                        assert_eq!(seen(lab, &node), model);
                    }
                    (node, model)
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    lab.fsck("many threads");
    compare_with_linux(&lab, &done.iter().map(|(_, model)| model.clone()).collect::<Vec<_>>());
    for (mut node, _) in done {
        lab.change(&mut node, drop_all).unwrap();
    }
    assert_eq!(lab.free(), at_start, "blocks are lost");
}

#[test]
fn hostile_blocks() {
    let lab =
        Lab::new(&["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^has_journal,^metadata_csum"]);
    let mut node = lab.node("f0");
    lab.set(&mut node, "user.first", &[1; 30]).unwrap();
    lab.set(&mut node, "trusted.second", &[2; 300]).unwrap();
    let buf = lab.vol.journal.read(BlockNr(node.raw.file_acl)).unwrap();
    let good = buf.data().to_vec();
    let mut rng = SmallRng::seed_from_u64(11);
    let mut errors = 0;
    for _ in 0..5000 {
        let mut node = node.clone();
        let mut h = lab.vol.journal.start(4 * CREDITS).unwrap();
        let buf = h.create(BlockNr(node.raw.file_acl)).unwrap();
        h.modify(&buf, |b| {
            b.copy_from_slice(&good);
            for _ in 0..rng.random_range(1..5) {
                let at = if rng.random_bool(0.8) {
                    rng.random_range(0..90)
                } else {
                    rng.random_range(0..1024)
                };
                b[at] = [0, 1, 0xFF, rng.random()][rng.random_range(0..4)];
            }
        })
        .unwrap();
        errors += u32::from(list(&lab.vol, &node).is_err());
        let _ = get(&lab.vol, &node, b"trusted.second");
        let mut change = |name: &[u8], value: Option<&[u8]>| {
            let mut values = lab.values();
            let _ = set(&lab.vol, &mut h, &mut node, &mut values, name, value, XattrSet::Any);
        };
        change(b"user.third", Some(&[3; 200]));
        change(b"user.first", None);
        h.stop().unwrap();
    }
    assert!(errors > 500, "{errors}");
    for nr in [1, u64::MAX, lab.vol.geo.blocks()] {
        node.raw.file_acl = nr;
        let Err(FsError::Corrupt { inode: Some(_), block: Some(block), .. }) =
            list(&lab.vol, &node)
        else {
            panic!("block {nr} was accepted");
        };
        assert_eq!(block, nr);
    }
}
