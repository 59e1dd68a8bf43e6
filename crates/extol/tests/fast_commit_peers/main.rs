//! Fast commits that Extol writes, the power cut behind them, and what Linux, e2fsck and Extol make
//! of the volume.

mod rig;
mod spellings;

use std::os::unix::fs::MetadataExt;

use extol::FileSystem as _;
use extol::vfs::VolumeControl as _;
use extol::vfs::{Creds, Fallocate, NewNode};
use extol_jbd2::inspect::{FcOutcome, FcTagReport};
use extol_testkit::e2fsck;
use rig::{BLOCK, Rig, holds, lacks, names};

/// Create, write, fsync is one block behind an empty fast commit, no full commit, and each peer
/// recovers the file. The next fsync of the same transaction is a block of its own, without a HEAD,
/// with a checksum of its own.
#[test]
fn small_files() {
    let Some(rig) = Rig::new("") else { return };
    let one = rig.commits(|| {
        rig.put("/new", b"contents");
        rig.fsync("/new");
    });
    assert_eq!(one, (1, 0), "fast and full commits");
    assert_eq!(rig.counters().blocks, 2);
    let cut = rig.cut();
    let valid = cut.valid();
    assert_eq!(valid.len(), 2);
    assert_eq!(names(&valid[0]), ["head", "tail"]);
    assert_eq!(names(&valid[1]), ["inode", "add", "creat", "inode", "tail"]);
    cut.assert_recovered("one fast commit", |dir| holds(dir, "new", b"contents"));

    let two = rig.commits(|| {
        rig.put("/new", b"longer contents");
        rig.fsync("/new");
    });
    assert_eq!((two, rig.counters().blocks), ((1, 0), 3));
    let cut = rig.cut();
    let valid = cut.valid();
    assert_eq!(valid.len(), 3);
    assert!(
        !names(&valid[2]).contains(&"head") && names(&valid[2]).last() == Some(&"tail"),
        "{valid:?}"
    );
    cut.assert_recovered("two fast commits", |dir| holds(dir, "new", b"longer contents"));
}

/// Of three fast commits the last is torn: each peer replays the two before it.
#[test]
fn the_last_one_is_torn() {
    let Some(rig) = Rig::new("") else { return };
    for name in ["/a", "/b", "/c"] {
        rig.put(name, name.as_bytes());
        rig.fsync(name);
    }
    let cut = rig.cut();
    let report = cut.report();
    // In front of them is an empty one.
    let third = report.fast_commits[3].block;
    let at = cut.offset_of(third);
    cut.image.flip_bit(at + 60, 3);
    let outcomes: Vec<_> = cut.report().fast_commits.iter().map(|commit| commit.outcome).collect();
    assert_eq!(outcomes, [FcOutcome::Valid, FcOutcome::Valid, FcOutcome::Valid, FcOutcome::Torn]);
    cut.assert_recovered("the last one is torn", |dir| {
        holds(dir, "a", b"/a");
        holds(dir, "b", b"/b");
        lacks(dir, "c");
    });
}

/// After a full commit no peer finds the fast commits that it made void, and e2fsck does not
/// lose the log over them.
#[test]
fn void_ones_are_cleared() {
    let Some(rig) = Rig::new("") else { return };
    rig.put("/a", b"fast");
    rig.fsync("/a");
    assert_eq!(rig.commits(|| rig.fs.sync().unwrap()).1, 1);
    rig.put("/b", b"full");
    rig.fs.sync().unwrap();
    let cut = rig.cut();
    let report = cut.report();
    assert_eq!((report.recovery.fast_commits, cut.valid().len()), ("none", 0));
    assert!(report.recovery.transactions >= 2, "the log holds them: {:?}", report.recovery);
    cut.assert_recovered("void ones are cleared", |dir| {
        holds(dir, "a", b"fast");
        holds(dir, "b", b"full");
    });
}

/// What is made durable behind a freeze and thaw is found: the log is live again before a fast
/// commit counts on it.
#[test]
fn freeze_and_thaw() {
    let Some(rig) = Rig::new("") else { return };
    rig.fs.freeze().unwrap();
    rig.fs.thaw().unwrap();
    rig.put("/a", b"behind the thaw");
    rig.fsync("/a");
    rig.cut().assert_recovered("freeze and thaw, first", |dir| holds(dir, "a", b"behind the thaw"));
    let again = rig.commits(|| {
        rig.put("/b", b"and then");
        rig.fsync("/b");
    });
    assert_eq!(again, (1, 0), "the full commit made fast ones possible again");
    rig.cut().assert_recovered("freeze and thaw", |dir| holds(dir, "b", b"and then"));
}

/// Files that are made while another thread commits in full all the time, each with an fsync:
/// all are there.
#[test]
fn beside_full_commits() {
    let Some(rig) = Rig::new("") else { return };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                rig.fs.sync().unwrap();
            }
        });
        for i in 0..40 {
            let name = format!("/f{i}");
            rig.put(&name, name.as_bytes());
            rig.fsync(&name);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    rig.cut().assert_recovered("beside full commits", |dir| {
        for i in 0..40 {
            holds(dir, &format!("f{i}"), format!("/f{i}").as_bytes());
        }
    });
}

/// A file made and removed before the fsync of another one leaves no trace in the records: an
/// UNLINK of what never was stops e2fsck's replay.
#[test]
fn what_came_and_went() {
    let Some(rig) = Rig::new("") else { return };
    rig.put("/dead", b"never seen");
    rig.fs.remove_file("/dead").unwrap();
    rig.put("/other", b"kept");
    rig.fsync("/other");
    let cut = rig.cut();
    let named = |tag: &FcTagReport| match tag {
        FcTagReport::Creat { name, .. }
        | FcTagReport::Link { name, .. }
        | FcTagReport::Unlink { name, .. } => name == "dead",
        _ => false,
    };
    assert!(!cut.valid().iter().flatten().any(named), "{:?}", cut.valid());
    cut.assert_recovered("what came and went", |dir| {
        holds(dir, "other", b"kept");
        lacks(dir, "dead");
    });
}

/// Rename over a file that is there: new contents under the name, link counts right, nothing
/// leaks.
#[test]
fn rename_over() {
    let Some(rig) = Rig::new("") else { return };
    rig.put("/target", &[b'o'; 3000]);
    rig.put("/kept", b"two names");
    rig.fs.hard_link("/kept", "/second").unwrap();
    rig.fs.sync().unwrap();
    // The target's last name goes.
    rig.put("/temporary", b"new");
    rig.fs.rename_path("/temporary", "/target").unwrap();
    rig.fsync("/target");
    rig.cut().assert_recovered("rename over", |dir| {
        holds(dir, "target", b"new");
        lacks(dir, "temporary");
        assert_eq!(dir.join("target").metadata().unwrap().nlink(), 1);
    });
    // The target keeps a name.
    rig.fs.sync().unwrap();
    rig.put("/temporary", b"newer");
    rig.fs.rename_path("/temporary", "/second").unwrap();
    rig.fsync("/second");
    rig.cut().assert_recovered("rename over, two names", |dir| {
        holds(dir, "second", b"newer");
        holds(dir, "kept", b"two names");
        assert_eq!(dir.join("kept").metadata().unwrap().nlink(), 1);
        lacks(dir, "temporary");
    });
}

/// A deleted file is recovered empty and with a name in `lost+found`: Linux and e2fsck leave it
/// there, Extol removes it. One fast commit each.
#[test]
fn deleted_files() {
    let Some(rig) = Rig::new("") else { return };
    let data = |n: u8| vec![n; 3 * BLOCK as usize + 100];
    for n in 0..6 {
        rig.put(&format!("/file{n}"), &data(n));
    }
    rig.fs.hard_link("/file5", "/file5b").unwrap();
    let open =
        rig.fs.open_file("/file4", extol::OpenOptions::new().read(true).write(true)).unwrap();
    rig.fs.sync().unwrap();
    let fsync_root = || rig.fs.fsync(rig.fs.root(), false).unwrap();

    // Saved as editors do: new file, fsync, rename over, fsync of the directory.
    let commits = rig.commits(|| {
        rig.put("/save", b"saved");
        rig.fsync("/save");
        rig.fs.rename_path("/save", "/file0").unwrap();
        fsync_root();
    });
    assert_eq!(commits, (2, 0), "saved");
    // Removed; and removed and made again.
    let commits = rig.commits(|| {
        rig.fs.remove_file("/file1").unwrap();
        fsync_root();
        rig.fs.remove_file("/file2").unwrap();
        rig.put("/file2", b"again");
        rig.fsync("/file2");
    });
    assert_eq!(commits, (2, 0), "removed");
    let seen = |dir: &std::path::Path| {
        holds(dir, "file0", b"saved");
        lacks(dir, "save");
        lacks(dir, "file1");
        holds(dir, "file2", b"again");
        holds(dir, "file3", &data(3));
        for left in std::fs::read_dir(dir.join("lost+found")).unwrap() {
            let left = left.unwrap();
            assert!(left.file_name().to_string_lossy().starts_with('#'));
            let about = left.metadata().unwrap();
            assert_eq!(
                (about.len(), about.blocks(), about.nlink(), about.mode()),
                (0, 0, 1, 0o100_000)
            );
        }
    };
    rig.cut().assert_recovered("deleted files", seen);
    // Still open, with more data than before; and one whose two names go.
    let commits = rig.commits(|| {
        open.write_all_at(&data(9), 5 * BLOCK).unwrap();
        open.sync_all().unwrap();
        rig.fs.remove_file("/file4").unwrap();
        rig.put("/file4", b"another");
        rig.fsync("/file4");
        open.write_all_at(&data(9), 9 * BLOCK).unwrap();
        open.sync_all().unwrap();
        rig.fs.remove_file("/file5").unwrap();
        rig.fs.remove_file("/file5b").unwrap();
        fsync_root();
    });
    assert_eq!(commits, (3, 0), "open, and two names");
    rig.cut().assert_recovered("more deleted files", |dir| {
        seen(dir);
        holds(dir, "file4", b"another");
        lacks(dir, "file5");
        lacks(dir, "file5b");
    });
    // Extol's recovery leaves nothing of it.
    let cut = rig.cut();
    let fs = extol::Ext4::open_path(&cut.image.path, &extol::MountOptions::default()).unwrap();
    assert_eq!(fs.read_dir("/lost+found").unwrap().count(), 0);
    fs.unmount().unwrap();
}

/// Shortened, lengthened, written at a new place: no stale data, and the bitmaps are right.
#[test]
fn shorter_and_longer() {
    let Some(rig) = Rig::new("") else { return };
    rig.put("/a", &[b'x'; 8 * BLOCK as usize]);
    rig.fs.sync().unwrap();
    let file = rig.fs.open_file("/a", extol::OpenOptions::new().read(true).write(true)).unwrap();
    let commits = rig.commits(|| {
        file.set_len(1500).unwrap();
        file.set_len(6 * BLOCK).unwrap();
        file.write_all_at(b"new", 4 * BLOCK).unwrap();
        file.sync_all().unwrap();
    });
    assert_eq!(commits, (1, 0));
    let cut = rig.cut();
    let tags = cut.valid().concat();
    assert!(names(&tags).contains(&"del") && names(&tags).contains(&"add"), "{tags:?}");
    let mut expected = vec![0; 6 * BLOCK as usize];
    expected[..1500].fill(b'x');
    expected[4 * BLOCK as usize..][..3].copy_from_slice(b"new");
    cut.assert_recovered("shorter and longer", |dir| holds(dir, "a", &expected));
}

/// A file of one piece that loses all of it and gets another one further on: e2fsck cannot replay
/// that (`fast_commit/ranges.rs`), so it is a full commit. With a second piece, or in two fast
/// commits, it can.
#[test]
fn emptied_and_filled_further_on() {
    for (once, pieces) in [(true, 1), (false, 1), (true, 2)] {
        let Some(rig) = Rig::new("") else { return };
        rig.put("/a", &[b'x'; BLOCK as usize]);
        let file =
            rig.fs.open_file("/a", extol::OpenOptions::new().read(true).write(true)).unwrap();
        if pieces == 2 {
            file.write_all_at(b"behind", 8 * BLOCK).unwrap();
        }
        rig.fs.sync().unwrap();
        let (fast, full) = rig.commits(|| {
            file.set_len(0).unwrap();
            if !once {
                file.sync_all().unwrap();
            }
            file.write_all_at(b"new", BLOCK + 400).unwrap();
            file.sync_all().unwrap();
        });
        assert_eq!((fast, full), if once { (0, 1) } else { (2, 0) }, "{pieces} pieces");
        let mut expected = vec![0; BLOCK as usize + 400];
        expected.extend(b"new");
        rig.cut().assert_recovered("emptied and filled", |dir| holds(dir, "a", &expected));
    }
}

/// Unwritten blocks are written, then made durable: the data is there, not zeros.
#[test]
fn unwritten_becomes_written() {
    let Some(rig) = Rig::new("") else { return };
    let file = rig.fs.create_file("/a").unwrap();
    file.allocate(Fallocate::Allocate { keep_size: false }, 0, 8 * BLOCK).unwrap();
    rig.fs.sync().unwrap();
    let commits = rig.commits(|| {
        file.write_all_at(&[b'w'; 2 * BLOCK as usize], 2 * BLOCK).unwrap();
        file.sync_all().unwrap();
    });
    assert_eq!(commits, (1, 0));
    let mut expected = vec![0; 8 * BLOCK as usize];
    expected[2 * BLOCK as usize..4 * BLOCK as usize].fill(b'w');
    rig.cut().assert_recovered("unwritten becomes written", |dir| holds(dir, "a", &expected));
}

/// A name in the place of one that went: replay of the new name alone would find no room for it,
/// and give the directory a block (which Linux and e2fsck both do wrongly).
#[test]
fn a_full_directory_does_not_grow_in_replay() {
    let Some(rig) = Rig::with("", &["^dir_index"]) else { return };
    let path = |n: u32| format!("/sub/{n:0>244}");
    rig.fs.create_dir("/sub").unwrap();
    // Three of them fill a block.
    (0..3).for_each(|n| rig.put(&path(n), b"there before"));
    rig.fs.sync().unwrap();
    let commits = rig.commits(|| {
        rig.fs.remove_file(path(0)).unwrap();
        rig.put(&path(3), b"in its place");
        rig.fsync(&path(3));
    });
    let dir = rig.fs.inode("/sub").unwrap().ino();
    assert_eq!(rig.fs.getattr(dir).unwrap().size, BLOCK, "it has not grown");
    assert_eq!(commits, (0, 1));
    rig.cut().assert_recovered("room", |dir| {
        lacks(dir, &path(0)[1..]);
        holds(dir, &path(3)[1..], b"in its place");
    });
}

/// Names are synced while their directory is divided. When the block of the base has no room left,
/// a full commit is needed, and after it there is room again.
#[test]
fn a_directory_that_is_divided_meanwhile() {
    let Some(rig) = Rig::new("") else { return };
    rig.fs.create_dir("/sub").unwrap();
    rig.put("/sub/first", b"first");
    rig.fs.sync().unwrap();
    let path = |n: u32| format!("/sub/{n:0>16}");
    let add = |names: std::ops::Range<u32>| {
        rig.commits(|| {
            for n in names {
                rig.put(&path(n), path(n).as_bytes());
                rig.fsync(&path(n));
            }
        })
    };
    let check = |what: &str, names: u32| {
        let seen = |dir: &std::path::Path| {
            holds(dir, "sub/first", b"first");
            (0..names).for_each(|n| holds(dir, &path(n)[1..], path(n).as_bytes()));
            assert_eq!(std::fs::read_dir(dir.join("sub")).unwrap().count() as u32, names + 1);
        };
        rig.cut().assert_recovered(what, seen);
    };
    // 24 bytes each, and the block has 1012.
    assert_eq!(add(0..40), (40, 0));
    let dir = rig.fs.inode("/sub").unwrap().ino();
    assert!(rig.fs.getattr(dir).unwrap().size > BLOCK, "it has grown");
    check("divided", 40);
    assert_eq!(add(40..42).1, 1, "no room in the base");
    let (fast, full) = add(42..60);
    assert!(fast >= 17 && full <= 1, "{fast} fast commits, {full} full ones");
    check("divided again", 60);
}

/// What Linux or e2fsck would replay wrongly is committed in full, and is right.
#[test]
fn what_cannot_be_fast() {
    let Some(rig) = Rig::new("") else { return };
    rig.fs.create_dir("/empty").unwrap();
    rig.fs.sync().unwrap();
    type Step<'a> = (&'a str, &'a str, Box<dyn Fn() + 'a>);
    let steps: Vec<Step<'_>> = vec![
        ("mkdir", "/dir", Box::new(|| rig.fs.create_dir("/dir").unwrap())),
        (
            "file in it",
            "/sub/file",
            Box::new(|| {
                rig.fs.create_dir("/sub").unwrap();
                rig.put("/sub/file", b"inside");
            }),
        ),
        ("rmdir", "/", Box::new(|| rig.fs.remove_dir("/empty").unwrap())),
        ("symlink", "/", Box::new(|| rig.fs.symlink("old", "/link").unwrap())),
        (
            "mknod",
            "/",
            Box::new(|| {
                rig.fs.create_node("/pipe", NewNode::Fifo, 0o600, Creds::default()).unwrap();
            }),
        ),
        (
            "O_TMPFILE",
            "/named",
            Box::new(|| {
                let file = rig.fs.create_unnamed_file("/").unwrap();
                file.write_all_at(b"named later", 0).unwrap();
                file.link_to("/named").unwrap();
            }),
        ),
    ];
    for (what, ask, step) in steps {
        let commits = rig.commits(|| {
            step();
            let inode = rig.fs.inode(ask).unwrap();
            extol::FileSystem::fsync(&*rig.fs, inode.ino(), false).unwrap();
        });
        assert_eq!(commits.0, 0, "{what} is no fast commit");
        assert!(commits.1 > 0, "{what} is committed in full");
    }
    let counted: u64 = rig.counters().reasons.iter().map(|(_, n)| n).sum();
    assert!(counted >= 6, "{:?}", rig.counters().reasons);
    rig.cut().assert_recovered("what cannot be fast", |dir| {
        assert!(dir.join("dir").is_dir());
        holds(dir, "sub/file", b"inside");
        lacks(dir, "empty");
        assert_eq!(std::fs::read_link(dir.join("link")).unwrap(), std::path::Path::new("old"));
        holds(dir, "named", b"named later");
        assert_eq!(dir.join("pipe").metadata().unwrap().mode(), 0o010_600);
    });
}

/// A volume that was closed in order has an empty log without the fast-commit bit, so that
/// every e2fsck takes it.
#[test]
fn closed_in_order() {
    let Some(rig) = Rig::new("") else { return };
    rig.put("/a", b"a");
    rig.fsync("/a");
    assert!(
        rig.cut().report().superblock.fast_commit.is_some(),
        "the bit is there while it is open"
    );
    rig.fs.unmount().unwrap();
    let cut = rig.cut();
    let report = cut.report();
    assert_eq!(report.superblock.start, 0);
    assert!(!report.superblock.features.iter().any(|name| name.contains("fast")), "{report:?}");
    e2fsck(&cut.image).assert_clean("closed in order");
    cut.assert_recovered("closed in order", |dir| holds(dir, "a", b"a"));
}
