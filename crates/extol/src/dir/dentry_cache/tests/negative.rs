//! Negative dentries, and everything that may happen between a lookup and the next operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use extol_block::MemDevice;
use extol_check::CheckOptions;
use extol_vfs::{Creds, FileSystem as _, FsError, NewNode, RenameFlags};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

const SMALL_BLOCKS: u32 = 1024;

fn volume() -> (Arc<MemDevice>, Arc<Ext4>) {
    let device = Arc::new(MemDevice::new(64 << 20));
    let options = MkfsOptions { block_size: Some(SMALL_BLOCKS), ..MkfsOptions::default() };
    mkfs(&*device, &options, &mut |_| {}).unwrap();
    let options = MountOptions::default().without_threads();
    (Arc::clone(&device), Ext4::open(device, &options).unwrap())
}

fn close(device: &Arc<MemDevice>, fs: &Ext4) {
    fs.unmount().unwrap();
    let report =
        extol_check::check(Arc::<MemDevice>::clone(device), &CheckOptions::default(), &mut |_| {});
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn make(fs: &Ext4, name: &str) -> Result<u32, FsError> {
    let made = fs.create(fs.root(), name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default());
    made.map(|attr| {
        fs.forget(attr.id.ino, 1);
        attr.id.ino
    })
}

fn miss(fs: &Ext4, name: &str) {
    assert_eq!(fs.lookup(fs.root(), name.as_bytes()).err(), Some(FsError::NotFound), "{name}");
}

fn find(fs: &Ext4, name: &str) -> Option<u32> {
    let found = fs.lookup(fs.root(), name.as_bytes()).ok()?;
    fs.forget(found.id.ino, 1);
    Some(found.id.ino)
}

/// Blocks that were looked up by `work`.
fn blocks(fs: &Ext4, work: impl FnOnce()) -> u64 {
    let now = || fs.stats().journal.cache_hits;
    let before = now();
    work();
    now() - before
}

#[test]
fn a_second_lookup_searches_nothing() {
    let (device, fs) = volume();
    for n in 0..300 {
        make(&fs, &format!("name{n}")).unwrap();
    }
    assert!(blocks(&fs, || miss(&fs, "none")) > 0);
    assert_eq!(blocks(&fs, || miss(&fs, "none")), 0);
    // Changes of other names do not matter.
    make(&fs, "other").unwrap();
    fs.unlink(fs.root(), b"name7").unwrap();
    assert_eq!(blocks(&fs, || miss(&fs, "none")), 0);
    let made = make(&fs, "none").unwrap();
    assert_eq!(find(&fs, "none"), Some(made));
    let from = make(&fs, "from").unwrap();
    miss(&fs, "to");
    let root = fs.root();
    fs.rename(root, b"from", root, b"to", RenameFlags::empty()).unwrap();
    assert_eq!((find(&fs, "from"), find(&fs, "to")), (None, Some(from)));
    close(&device, &fs);
}

/// The number of a directory with a negative dentry becomes that of a directory, and of a file.
#[test]
fn the_number_of_a_removed_directory_is_used_again() {
    let (device, fs) = volume();
    let root = fs.root();
    let make_as = |name: &str, node| {
        let made = fs.create(root, name.as_bytes(), node, 0o755, 0, Creds::default()).unwrap();
        fs.forget(made.id.ino, 1);
        made.id.ino
    };
    let dir = make_as("dir", NewNode::Directory);
    let nothing = |err| assert_eq!(fs.lookup(dir, b"none").err(), Some(err));
    nothing(FsError::NotFound);
    fs.rmdir(root, b"dir").unwrap();
    fs.sync().unwrap();
    let again = (0..8).map(|n| make_as(&format!("d{n}"), NewNode::Directory));
    let n = again.into_iter().position(|ino| ino == dir).expect("the lowest number is taken first");
    nothing(FsError::NotFound);
    let made = fs.create(dir, b"none", NewNode::Regular, 0o644, 0, Creds::default()).unwrap();
    assert_eq!(fs.lookup(dir, b"none").map(|attr| attr.id.ino), Ok(made.id.ino));
    fs.forget(made.id.ino, 2);
    fs.unlink(dir, b"none").unwrap();
    nothing(FsError::NotFound);
    fs.rmdir(root, format!("d{n}").as_bytes()).unwrap();
    fs.sync().unwrap();
    let mut files = (0..200).map(|n| make_as(&format!("f{n}"), NewNode::Regular));
    assert!(files.any(|ino| ino == dir), "the number is free");
    nothing(FsError::NotADirectory);
    close(&device, &fs);
}

#[test]
fn each_way_to_make_the_name_counts() {
    let (device, fs) = volume();
    for n in 0..100 {
        make(&fs, &format!("name{n}")).unwrap();
    }
    // Another thread makes it first.
    miss(&fs, "one");
    make(&fs, "one").unwrap();
    assert_eq!(make(&fs, "one").err(), Some(FsError::Exists));
    // It is moved there, or the first attempt fails for another reason.
    miss(&fs, "two");
    let root = fs.root();
    fs.rename(root, b"one", root, b"two", RenameFlags::empty()).unwrap();
    assert_eq!(make(&fs, "two").err(), Some(FsError::Exists));
    miss(&fs, "three");
    let nothing = NewNode::Symlink(Vec::new());
    assert!(fs.create(root, b"three", nothing, 0o777, 0, Creds::default()).is_err());
    make(&fs, "three").unwrap();
    assert_eq!(make(&fs, "three").err(), Some(FsError::Exists));
    // The block is dropped from memory.
    miss(&fs, "four");
    fs.sync().unwrap();
    fs.inner().vol.journal.drop_idle();
    make(&fs, "four").unwrap();
    assert!(find(&fs, "four").is_some());
    close(&device, &fs);
}

/// Names of many lengths in small blocks, which fill up, are divided and emptied between a lookup
/// and the operation behind it.
#[test]
fn any_order_of_lookups_and_changes() {
    for seed in 0..4 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (device, fs) = volume();
        let root = fs.root();
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        let name = |rng: &mut SmallRng| {
            let n: u32 = rng.random_range(0..150);
            format!("{n:0len$}", len = 4 + (n as usize * 37) % 200)
        };
        for step in 0..6000 {
            let (a, b) = (name(&mut rng), name(&mut rng));
            for _ in 0..rng.random_range(0..3) {
                let asked = if rng.random() { a.clone() } else { name(&mut rng) };
                assert_eq!(find(&fs, &asked), model.get(&asked).copied(), "{asked} in step {step}");
            }
            match rng.random_range(0..10) {
                0..5 => match make(&fs, &a) {
                    Ok(ino) => assert_eq!(model.insert(a, ino), None),
                    Err(e) => assert!(
                        e == FsError::Exists && model.contains_key(&a),
                        "{e} in step {step}"
                    ),
                },
                5 => {
                    let Some(ino) = model.get(&b).copied() else { continue };
                    match fs.link(ino, root, a.as_bytes()) {
                        Ok(attr) => {
                            fs.forget(attr.id.ino, 1);
                            assert_eq!(model.insert(a, ino), None);
                        }
                        Err(e) => {
                            assert!(
                                e == FsError::Exists && model.contains_key(&a),
                                "{e} in step {step}"
                            )
                        }
                    }
                }
                6..8 => {
                    let done =
                        fs.rename(root, b.as_bytes(), root, a.as_bytes(), RenameFlags::empty());
                    assert_eq!(done.is_ok(), model.contains_key(&b), "{done:?} in step {step}");
                    // (Two names of one file stay.)
                    if done.is_ok() && model.get(&a) != model.get(&b) {
                        let ino = model.remove(&b).unwrap();
                        model.insert(a, ino);
                    }
                }
                _ => {
                    assert_eq!(fs.unlink(root, a.as_bytes()).is_ok(), model.remove(&a).is_some());
                }
            }
        }
        let mut listed = BTreeMap::new();
        fs.readdir(root, 0, &mut |entry| {
            let name = String::from_utf8(entry.name).unwrap();
            if !matches!(name.as_str(), "." | ".." | "lost+found") {
                assert_eq!(listed.insert(name, entry.ino), None);
            }
            true
        })
        .unwrap();
        assert_eq!(listed, model);
        close(&device, &fs);
    }
}
