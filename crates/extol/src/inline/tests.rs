//! Inline files and directories, checked by models, by e2fsck and by Linux.

use std::collections::BTreeMap;

use extol_jbd2::Handle;
use extol_ondisk::{FileType, InodeFlags, InodeNr};
use extol_testkit::require;
use extol_vfs::{FsError, XattrSet};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::inline;
use crate::map::{self, Discard, Progress};
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr::tests::lab::{Lab, NEEDS_LINUX};
use crate::xattr::{CREDITS, list, set};

fn inline_lab(inode_size: &str) -> Lab {
    Lab::new(&["-t", "ext4", "-I", inode_size, "-O", "^has_journal,inline_data"])
}

/// Frees the blocks of a file, so that it can begin again inside its inode.
fn empty_file(lab: &Lab, name: &str) -> Node {
    let mut node = lab.node(name);
    if node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        lab.run(&mut node, |_, _, node| inline::clear(node)).unwrap();
    } else {
        let done = lab
            .run(&mut node, |vol, h, node| map::remove(vol, h, node, 0, u32::MAX, Discard::Free))
            .unwrap();
        assert!(matches!(done, Progress::Done));
    }
    node.raw.size = 0;
    node
}

#[test]
fn inline_files() {
    for (size, most) in [("256", 60 + 68), ("512", 60 + 324)] {
        let lab = inline_lab(size);
        let mut contents = BTreeMap::new();
        let lengths = [0, 1, 59, 60, 61, 100, most - 1, most, most + 1];
        for (i, len) in lengths.into_iter().enumerate() {
            let mut node = empty_file(&lab, &format!("f{i}"));
            assert_eq!(inline::max_size(&lab.vol, &node), most);
            let data: Vec<u8> = (0..len).map(|b| b'0' + (b % 10) as u8).collect();
            let before = node.clone();
            let fits = lab.run(&mut node, |vol, _, node| inline::write(vol, node, &data)).unwrap();
            assert_eq!(fits, len <= most);
            if !fits {
                assert_eq!(node.raw, before.raw);
                continue;
            }
            node.raw.size = len as u64;
            lab.run(&mut node, |_, _, _| Ok(())).unwrap();
            assert_eq!(inline::read(&node).unwrap(), data);
            contents.insert(format!("f{i}"), data);
        }
        lab.fsck("inline files");
        if require(&NEEDS_LINUX) {
            lab.with_linux(&["ro"], |root| {
                for (name, data) in &contents {
                    assert_eq!(&std::fs::read(root.join(name)).unwrap(), data);
                }
            });
        }
    }
}

#[test]
fn inline_file_among_attributes() {
    let lab = inline_lab("256");
    let mut node = empty_file(&lab, "f0");
    lab.set(&mut node, "user.a", b"12345678").unwrap();
    // Entry (16 + 4) and value (8) are taken from what the contents could have.
    assert_eq!(inline::max_size(&lab.vol, &node), 60 + 68 - 28);
    let data = vec![b'd'; 90];
    assert!(lab.run(&mut node, |vol, _, node| inline::write(vol, node, &data)).unwrap());
    node.raw.size = 90;
    assert_eq!(list(&lab.vol, &node).unwrap(), [b"user.a"]);
    // No room beside the contents: goes to a block.
    lab.set(&mut node, "user.b", &[b'b'; 40]).unwrap();
    assert_ne!(node.raw.file_acl, 0);
    assert_eq!(inline::read(&node).unwrap(), data);
    lab.fsck("contents and attributes");
    lab.run(&mut node, |_, _, node| inline::clear(node)).unwrap();
    assert_eq!(list(&lab.vol, &node).unwrap().len(), 2);
    node.raw.size = 0;
    map::init(&lab.vol.geo, &mut node.raw);
    lab.run(&mut node, |_, _, _| Ok(())).unwrap();
    lab.fsck("contents gone");
}

#[test]
fn inline_directories() {
    for size in ["256", "512"] {
        let mut lab = inline_lab(size);
        let file = lab.node("f0").ino;
        let mut model: BTreeMap<Vec<u8>, InodeNr> = BTreeMap::new();
        let mut rng = SmallRng::seed_from_u64(7);
        let mut refused = 0;
        let save_links = |lab: &Lab, links: usize| {
            let mut node = lab.node("f0");
            node.raw.links = 1 + links as u16;
            lab.run(&mut node, |_, _, _| Ok(())).unwrap();
        };
        for round in 0..6 {
            let mut node = lab.node("d");
            assert!(node.raw.flags.contains(InodeFlags::INLINE_DATA));
            for _ in 0..150 {
                let name = vec![b'a' + rng.random_range(0..26u8); rng.random_range(1..20)];
                if model.remove(&name).is_some() {
                    assert_eq!(
                        lab.run(&mut node, |_, _, n| inline::dir_remove(n, &name)),
                        Ok(file)
                    );
                    let again = lab.run(&mut node, |_, _, n| inline::dir_remove(n, &name));
                    assert_eq!(again, Err(FsError::NotFound));
                } else {
                    let before = node.raw.clone();
                    let kind = FileType::Regular;
                    if lab
                        .run(&mut node, |v, _, n| inline::dir_add(v, n, &name, file, kind))
                        .unwrap()
                    {
                        model.insert(name, file);
                    } else {
                        refused += 1;
                        assert_eq!(node.raw, before);
                    }
                }
                let found = inline::dir_entries(&lab.vol, &node).unwrap();
                assert_eq!(found.parent, InodeNr::ROOT);
                let found: BTreeMap<Vec<u8>, InodeNr> =
                    found.entries.into_iter().map(|e| (e.name, e.ino)).collect();
                assert_eq!(found, model);
            }
            save_links(&lab, model.len());
            lab.fsck(&format!("inline directory, round {round}"));
            if require(&NEEDS_LINUX) {
                lab.with_linux(&["ro"], |root| {
                    let mut names: Vec<Vec<u8>> = std::fs::read_dir(root.join("d"))
                        .unwrap()
                        .map(|e| e.unwrap().file_name().into_encoded_bytes())
                        .collect();
                    names.sort();
                    assert!(names.iter().eq(model.keys()));
                });
            }
            lab = lab.reopen();
        }
        assert!(refused > 0);
        let mut node = lab.node("d");
        lab.run(&mut node, |vol, _, node| inline::dir_drop(vol, node)).unwrap();
        assert!(
            !node.raw.flags.contains(InodeFlags::INLINE_DATA)
                && node.raw.flags.contains(InodeFlags::EXTENTS)
        );
    }
}

/// Directories that Linux made inside inodes, with names in both parts.
#[test]
fn inline_directories_of_linux() {
    if !require(&NEEDS_LINUX) {
        return;
    }
    let lab = inline_lab("256");
    lab.save();
    lab.with_linux(&[], |root| {
        std::fs::create_dir(root.join("new")).unwrap();
        for i in 0..6 {
            std::fs::write(root.join(format!("new/name{i:04}")), b"").unwrap();
        }
        std::fs::remove_file(root.join("new/name0001")).unwrap();
        std::fs::write(root.join("small"), [b's'; 100]).unwrap();
    });
    let lab = Lab::open(lab.scratch, lab.image);
    let mut node = lab.node("new");
    assert!(node.raw.flags.contains(InodeFlags::INLINE_DATA) && node.raw.size > 60);
    let names: Vec<Vec<u8>> =
        inline::dir_entries(&lab.vol, &node).unwrap().entries.into_iter().map(|e| e.name).collect();
    let wanted: Vec<Vec<u8>> =
        [0, 2, 3, 4, 5].iter().map(|i| format!("name{i:04}").into_bytes()).collect();
    assert_eq!(names, wanted);
    assert_eq!(inline::read(&lab.node("small")).unwrap(), [b's'; 100]);

    // Extol and Linux change each other's areas.
    let other = lab.node("small").ino;
    let set = |v: &Volume, _: &mut Handle, n: &mut Node| {
        inline::dir_replace(v, n, b"name0004", other, FileType::Regular)
    };
    lab.run(&mut node, set).unwrap();
    assert_eq!(
        lab.run(&mut node, |v, _, n| inline::dir_replace(v, n, b"no", other, FileType::Regular)),
        Err(FsError::NotFound)
    );
    lab.save();
    lab.with_linux(&["ro"], |root| {
        assert_eq!(std::fs::read(root.join("new/name0004")).unwrap(), [b's'; 100])
    });
}

#[test]
fn hostile_inline_directories() {
    let lab = inline_lab("256");
    let good = lab.node("d");
    let mut rng = SmallRng::seed_from_u64(3);
    let mut errors = 0;
    for _ in 0..20_000 {
        let mut node = good.clone();
        for _ in 0..rng.random_range(1..6) {
            match rng.random_range(0..3) {
                0 => node.raw.i_block[rng.random_range(0..60)] = rng.random(),
                1 => {
                    let at = rng.random_range(0..node.raw.tail.len());
                    node.raw.tail[at] = rng.random();
                }
                _ => node.raw.size = rng.random(),
            }
        }
        let mut h = lab.vol.journal.start(CREDITS).unwrap();
        errors += u32::from(inline::dir_entries(&lab.vol, &node).is_err());
        let _ = inline::read(&node);
        let _ = inline::max_size(&lab.vol, &node);
        let _ = inline::dir_add(&lab.vol, &mut node, b"some name", InodeNr(12), FileType::Regular);
        let _ = inline::dir_remove(&mut node, b"some name");
        let _ = set(
            &lab.vol,
            &mut h,
            &mut node,
            &mut lab.values(),
            b"trusted.x",
            Some(b"y"),
            XattrSet::Any,
        );
        let _ = list(&lab.vol, &node);
    }
    assert!(errors > 1000, "{errors}");
}
