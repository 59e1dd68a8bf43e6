//! Files that lose their last name, or never had one.

use extol_ondisk::fast_commit::FcRecord;
use extol_vfs::{Creds, FileSystem, NewNode, RenameFlags, XattrSet};

use super::{BLOCK, Rig, kinds};
use crate::fast_commit::{Collected, Reason};

/// The names in records of one kind.
fn told(records: &[FcRecord], kind: &str) -> Vec<(u32, String, u32)> {
    let entry = |record: &FcRecord| match (record, kind) {
        (FcRecord::Link(e), "link") | (FcRecord::Unlink(e), "unlink") => {
            Some((e.parent, String::from_utf8_lossy(&e.name).into_owned(), e.ino))
        }
        _ => None,
    };
    records.iter().filter_map(entry).collect()
}

/// Neither Linux nor e2fsck can be told that a file is gone, so it gets a name elsewhere, and
/// nothing in it.
#[test]
fn deleted_files_keep_a_name() {
    let rig = Rig::new();
    let (a, b) = (rig.file("a"), rig.file("b"));
    rig.write(a, 0, 3 * BLOCK);
    rig.fs.fsync(a, false).unwrap();
    rig.commit();
    rig.fs.unlink(rig.root, b"a").unwrap();
    let Collected::Records(records) = rig.ask(rig.root) else { panic!("refused") };
    assert_eq!(kinds(&records), format!("LINK:#{a} UNLINK:a DEL0+3 INODE"));
    assert_eq!(told(&records, "link"), [(11, format!("#{a}"), a)]);
    let Some(FcRecord::Inode { image, .. }) = records.last() else { panic!("{records:?}") };
    assert_eq!((image[0], image[1], image[4], image[0x1A]), (0, 0x80, 0, 1), "mode, size, links");
    assert_eq!(rig.ask(rig.root), Collected::Nothing);
    assert_eq!(rig.ask(a), Collected::Nothing);
    // Another file takes the place of one that was written since and is still open.
    let c = rig.file("c");
    rig.write(b, 0, 5 * BLOCK);
    rig.rename((rig.root, "c"), (rig.root, "b"), RenameFlags::empty());
    assert_eq!(rig.fs.getattr(b).unwrap().nlink, 0);
    let Collected::Records(records) = rig.ask(c) else { panic!("refused") };
    assert_eq!(kinds(&records), format!("INODE LINK:#{b} UNLINK:b CREAT:b INODE INODE"));
    // It may be written, but it cannot come back.
    rig.write(b, 0, 1);
    assert_eq!(rig.ask(b), Collected::Nothing);
    rig.fs.link(b, rig.root, b"again").unwrap();
    rig.refused(b, Reason::Deleted);
    rig.fs.unlink(rig.root, b"again").unwrap();
    rig.fs.forget(b, 2);
    rig.fs.unlink(rig.root, b"b").unwrap();
    rig.fs.forget(c, 1);
    assert_eq!(
        rig.records(rig.root),
        format!("LINK:#{b} LINK:#{c} UNLINK:again UNLINK:b DEL0+5 INODE INODE")
    );
}

#[test]
fn unnamed_files() {
    let rig = Rig::new();
    let t = rig.fs.create_unnamed(rig.root, 0o600, 0, Creds::default()).unwrap().id.ino;
    assert_eq!(rig.ask(t), Collected::Nothing);
    rig.fs.link(t, rig.root, b"t").unwrap();
    rig.refused(t, Reason::Deleted);
    let t = rig.fs.create_unnamed(rig.root, 0o600, 0, Creds::default()).unwrap().id.ino;
    rig.commit();
    rig.fs.link(t, rig.root, b"t2").unwrap();
    rig.refused(t, Reason::Deleted);
}

/// What no record takes from a deleted file.
#[test]
fn deleted_files_that_are_a_full_commit() {
    let rig = Rig::new();
    let gone = |name: &str| {
        rig.fs.unlink(rig.root, name.as_bytes()).unwrap();
    };
    let (tree, value, open) = (rig.file("tree"), rig.file("value"), rig.file("open"));
    for ino in [tree, open] {
        (0..6).for_each(|i| rig.write(ino, 2 * i * BLOCK, 1));
        rig.fs.fsync(ino, false).unwrap();
    }
    rig.fs.setxattr(value, b"user.x", b"1", XattrSet::Any).unwrap();
    rig.commit();
    gone("tree");
    rig.fs.forget(tree, 1);
    rig.refused(rig.root, Reason::ExtentTree);
    gone("value");
    rig.fs.forget(value, 1);
    rig.refused(rig.root, Reason::Xattr);
    gone("open");
    rig.refused(rig.root, Reason::Deleted);
}

/// There is room for so many names where deleted files go, and for no other name behind
/// them.
#[test]
fn the_place_of_deleted_files() {
    let rig = Rig::with(&["-N", "2000"], "");
    // Four blocks of 4 KiB, 20 bytes a name.
    let names: Vec<String> = (0..900).map(|n| format!("f{n}")).collect();
    let files: Vec<u32> = names.iter().map(|name| rig.file(name)).collect();
    rig.commit();
    let remove = |n: usize| {
        rig.fs.unlink(rig.root, names[n].as_bytes()).unwrap();
        rig.fs.forget(files[n], 1);
        rig.ask(rig.root)
    };
    let most = (0..900).take_while(|n| matches!(remove(*n), Collected::Records(_))).count();
    assert_eq!(most, (4096 - 12 - 24) / 20 + 3 * ((4096 - 12) / 20));
    rig.refused(rig.root, Reason::Deleted);
    // Each transaction has as many; but now another name comes.
    assert!(matches!(remove(850), Collected::Records(_)));
    let own = rig.make(11, "own", NewNode::Regular);
    rig.refused(own, Reason::DirectoryGrew);
    remove(851);
    rig.refused(rig.root, Reason::Deleted);
    assert!(rig.fs.create(11, b"#5", NewNode::Regular, 0o644, 0, Creds::default()).is_ok());
    let placeholder_dir = || crate::mount::fast_commit::placeholder_dir(rig.fs.inner()).unwrap();
    assert_eq!(placeholder_dir(), None, "a name like those of deleted files");
    rig.fs.unlink(11, b"#5").unwrap();
    assert_eq!(
        placeholder_dir().map(|place| (place.dir, place.places as usize)),
        Some((11, most - 1))
    );
}

/// A name that is put there counts even in a transaction that is ineligible as a whole.
#[test]
fn the_place_of_deleted_files_is_lost_unsaid() {
    let lost = |name: Option<&str>| {
        let rig = Rig::new();
        let gone = rig.file("gone");
        let (_, b) = (rig.dir("a"), rig.dir("b"));
        rig.commit();
        rig.rename((rig.root, "a"), (b, "a"), RenameFlags::empty());
        if let Some(name) = name {
            rig.make(11, name, NewNode::Regular);
        }
        rig.commit();
        rig.fs.unlink(rig.root, b"gone").unwrap();
        rig.fs.forget(gone, 1);
        rig.ask(rig.root)
    };
    assert!(matches!(lost(None), Collected::Records(_)));
    assert_eq!(lost(Some("own")), Collected::Full(Reason::Deleted));
}
