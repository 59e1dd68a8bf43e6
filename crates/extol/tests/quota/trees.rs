//! Blocks of extent trees: preallocation, directories, and written data that is mapped at once ask
//! limits for them, as in Linux; data that waits in memory does not, as what was accepted must get
//! a place.

use extol::quotas::{Kind, Limits};
use extol::vfs::{Creds, Fallocate, FileSystem, FsError, NewNode, directly};
use extol::{Ext4, MountOptions};
use extol_guest::{End, Guest};
use extol_testkit::{Image, Need, Scratch, e2fsck, require};

use crate::common::assert_clean;
use crate::limits::{NONE, USER, entry, home, new_file, volume};
use crate::{ROOT, opened};

/// Stands for a file that is open with it, among mount options.
const DIRECT: &str = "O_DIRECT";
/// Blocks that lie apart: the fifth extent needs a tree block.
const EXTENTS: u64 = 5;

#[test]
fn preallocation_needs_room_for_its_tree_blocks() {
    for (form, cluster) in [("-b 1024", 1024), ("-b 1024 -O bigalloc -C 4096", 4096)] {
        // One that is enough for all, and one that is too small by one cluster.
        for missing in [0, 1] {
            let what = format!("{form}, {missing} too few");
            let dev = volume("16M", form);
            let fs = opened(&dev, "usrquota");
            let dir = home(&fs);
            let ino = new_file(&fs, dir, "file");
            let before = entry(&fs, Kind::User, 1000).space;
            let hard = (before + (EXTENTS + 1 - missing) * cluster) / 1024;
            let limits = Limits { space_hard: Some(hard), ..NONE };
            fs.set_limits(Kind::User, &[1000], limits).unwrap();
            let mode = Fallocate::Allocate { keep_size: false };
            let done = (0..EXTENTS)
                .take_while(|nr| match fs.fallocate(ino, mode, nr * 2 * cluster, 1024) {
                    Ok(()) => true,
                    Err(e) => {
                        assert_eq!(e, FsError::QuotaExceeded, "{what}");
                        false
                    }
                })
                .count() as u64;
            assert_eq!(done, EXTENTS - missing, "{what}");
            let clusters = if missing == 0 { EXTENTS + 1 } else { EXTENTS - 1 };
            let used = entry(&fs, Kind::User, 1000).space;
            assert_eq!(used, before + clusters * cluster, "{what}");
            fs.unmount().unwrap();
            assert_clean(&dev, &what);
        }
    }
}

/// Written data is accepted when its own blocks fit; the tree block comes with write-back.
#[test]
fn written_data_gets_its_tree_blocks() {
    let dev = volume("16M", "-b 1024");
    let fs = opened(&dev, "usrquota");
    let dir = home(&fs);
    let ino = new_file(&fs, dir, "file");
    let before = entry(&fs, Kind::User, 1000).space;
    let limits = Limits { space_hard: Some(before / 1024 + EXTENTS), ..NONE };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    for nr in 0..EXTENTS {
        assert_eq!(fs.write(ino, nr * 2048, &[7; 1024]), Ok(1024));
    }
    fs.fsync(ino, false).unwrap();
    assert_eq!(entry(&fs, Kind::User, 1000).space, before + (EXTENTS + 1) * 1024);
    assert_eq!(fs.write(ino, 99 << 10, &[7; 10]), Err(FsError::QuotaExceeded));
    fs.unmount().unwrap();
    assert_clean(&dev, "written data");
}

/// Without delayed allocation it is refused with the tree block, and nothing of it is left.
#[test]
fn data_that_is_mapped_at_once_is_refused_with_its_tree_blocks() {
    for (form, options, block) in [
        ("-b 1024", "nodelalloc", 1024),
        ("-b 1024", "data=journal", 1024),
        ("-b 4096 -O ^has_journal", "nodelalloc", 4096),
        ("-b 1024 -O bigalloc -C 4096", "nodelalloc", 4096),
        ("-b 1024", DIRECT, 1024),
    ] {
        // Whole blocks, parts of blocks.
        for piece in [1024, 100] {
            for missing in [0, 1] {
                let what = format!("{form} {options}, {piece} bytes, {missing} too few");
                let dev = volume("24M", form);
                let fs = opened(&dev, &format!("usrquota,{}", options.replace(DIRECT, "")));
                let dir = home(&fs);
                let ino = new_file(&fs, dir, "file");
                let before = entry(&fs, Kind::User, 1000).space;
                let hard = (before + (EXTENTS + 1 - missing) * block) / 1024;
                let limits = Limits { space_hard: Some(hard), ..NONE };
                fs.set_limits(Kind::User, &[1000], limits).unwrap();
                let write = |nr| {
                    let write = || fs.write(ino, nr * 2 * block, &vec![7; piece]);
                    if options == DIRECT { directly(write) } else { write() }
                };
                for nr in 0..EXTENTS - missing {
                    assert_eq!(write(nr), Ok(piece), "{what}: {nr}");
                }
                assert_eq!(write(EXTENTS), Err(FsError::QuotaExceeded), "{what}");
                let all = if missing == 0 { EXTENTS + 1 } else { EXTENTS - 1 };
                assert_eq!(entry(&fs, Kind::User, 1000).space, before + all * block, "{what}");
                let size = (EXTENTS - missing - 1) * 2 * block + piece as u64;
                assert_eq!(fs.getattr(ino).unwrap().size, size, "{what}");
                // What there is may be changed, and is read.
                assert_eq!(fs.write(ino, 5, b"five"), Ok(4), "{what}");
                let mut bytes = [0; 12];
                fs.read(ino, 0, &mut bytes).unwrap();
                assert_eq!(bytes, *b"\x07\x07\x07\x07\x07five\x07\x07\x07", "{what}");
                fs.unmount().unwrap();
                assert_clean(&dev, &what);
                let fs = opened(&dev, "usrquota");
                let mut bytes = [0; 9];
                fs.read(ino, 2 * block, &mut bytes).unwrap();
                assert_eq!(bytes, [7; 9], "{what}");
                assert_eq!(fs.wrong_usage(), Ok(Vec::new()), "{what}");
                fs.unmount().unwrap();
            }
        }
    }
}

#[test]
fn large_writes_that_are_mapped_at_once_end_where_the_limit_is() {
    let dev = volume("24M", "-b 1024");
    let fs = opened(&dev, "usrquota,nodelalloc");
    let dir = home(&fs);
    let ino = new_file(&fs, dir, "file");
    let before = entry(&fs, Kind::User, 1000).space;
    let limits = Limits { space_hard: Some(before / 1024 + 500), ..NONE };
    fs.set_limits(Kind::User, &[1000], limits).unwrap();
    let (mut at, piece) = (0, vec![9; 300 << 10]);
    while let Ok(n) = fs.write(ino, at, &piece) {
        assert!(n > 0);
        at += n as u64;
    }
    // (It is in one piece, which needs no tree block.)
    assert_eq!(at, 500 << 10);
    assert_eq!(entry(&fs, Kind::User, 1000).space, before + (500 << 10));
    fs.unmount().unwrap();
    assert_clean(&dev, "large writes");
}

/// Names so long that a block of 1 KiB holds three.
fn long(nr: u32) -> String {
    format!("{nr:0>250}")
}

/// A directory of the user whose four blocks lie apart: the fifth needs a tree block.
fn scattered(fs: &Ext4) -> u32 {
    let make =
        |name: &[u8]| fs.create(ROOT, name, NewNode::Directory, 0o755, 0, USER).unwrap().id.ino;
    let dirs = [make(b"dir"), make(b"beside")];
    for nr in 0..12 {
        for dir in dirs {
            let made = fs.create(dir, long(nr).as_bytes(), NewNode::Regular, 0o644, 0, USER);
            fs.forget(made.unwrap().id.ino, 1);
        }
    }
    assert_eq!(fs.getattr(dirs[0]).unwrap().size, 4096);
    dirs.into_iter().for_each(|dir| fs.forget(dir, 1));
    fs.sync().unwrap();
    dirs[0]
}

#[test]
fn a_directory_needs_room_for_its_tree_blocks() {
    for form in ["-b 1024 -O ^dir_index", "-b 1024 -O ^dir_index,^extents,^64bit"] {
        for room in [1, 2] {
            let what = format!("{form}, room for {room}");
            let dev = volume("16M", form);
            let fs = opened(&dev, "usrquota");
            let dir = scattered(&fs);
            let before = entry(&fs, Kind::User, 1000).space;
            let limits = Limits { space_hard: Some(before / 1024 + room), ..NONE };
            fs.set_limits(Kind::User, &[1000], limits).unwrap();
            let create = |nr| fs.create(dir, long(nr).as_bytes(), NewNode::Regular, 0o644, 0, USER);
            let mut made = 12;
            while let Ok(attr) = create(made) {
                fs.forget(attr.id.ino, 1);
                made += 1;
            }
            assert_eq!(create(made).unwrap_err(), FsError::QuotaExceeded, "{what}");
            let used = entry(&fs, Kind::User, 1000).space - before;
            let mapped_by_blocks = form.contains("^extents");
            match (room, mapped_by_blocks) {
                // (Twelve blocks are in the inode.)
                (room, true) => assert_eq!(used, room * 1024, "{what}"),
                (1, _) => assert_eq!((used, made), (0, 12), "{what}"),
                _ => assert!(used == 2048 && made > 12, "{what}: {used}, {made}"),
            }
            fs.unmount().unwrap();
            assert_clean(&dev, &what);
        }
    }
}

#[test]
fn linux_lets_a_directory_grow_as_far() {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("setpriv")]) {
        return;
    }
    for room in [1, 2, 3] {
        let scratch = Scratch::new();
        let args = ["-t", "ext4", "-b", "1024", "-O", "quota,^dir_index"];
        let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &args);
        let options = MountOptions::parse("usrquota").unwrap();
        let fs = Ext4::open_path(&image.path, &options).unwrap();
        scattered(&fs);
        let before = entry(&fs, Kind::User, 1000).space;
        let limits = Limits { space_hard: Some(before / 1024 + room), ..NONE };
        fs.set_limits(Kind::User, &[1000], limits).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        // The same, on a copy.
        let copy = scratch.path().join("b.img");
        std::fs::copy(&image.path, &copy).unwrap();
        let fs = Ext4::open_path(&copy, &options).unwrap();
        let dir = fs.lookup(ROOT, b"dir").unwrap().id.ino;
        let ours = (12..40)
            .take_while(|nr| {
                let name = long(*nr);
                let made = fs.create(dir, name.as_bytes(), NewNode::Regular, 0o644, 0, USER);
                made.is_ok_and(|attr| {
                    fs.forget(attr.id.ino, 1);
                    true
                })
            })
            .count();
        let used = entry(&fs, Kind::User, 1000).space;
        fs.unmount().unwrap();
        drop(fs);
        let report = Guest::new()
            .drive(&image.path)
            .program("setpriv")
            .module("quota_v2")
            .try_run(
                "mount -t ext4 -o usrquota /dev/vda /mnt || exit 1
                 nr=12
                 while setpriv --reuid 1000 --regid 1000 --clear-groups \
                     touch \"/mnt/dir/$(printf %0250d $nr)\" 2>/dev/null; do
                     nr=$((nr + 1))
                 done
                 echo $((nr - 12))",
            )
            .unwrap();
        assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
        assert_eq!(report.lines(), [ours.to_string()], "room for {room}");
        e2fsck(&image).assert_clean("after Linux");
        let fs = Ext4::open_path(&image.path, &options).unwrap();
        assert_eq!(entry(&fs, Kind::User, 1000).space, used, "room for {room}");
        fs.unmount().unwrap();
    }
}

#[test]
fn linux_asks_at_the_same_blocks() {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("setpriv")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(
        scratch.path(),
        "a.img",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "quota"],
    );
    let open = || Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
    let fs = open();
    for (uid, blocks) in [(1000, EXTENTS), (1001, EXTENTS + 1), (1002, EXTENTS)] {
        let name = format!("home{uid}").into_bytes();
        let creds = Creds { uid, gid: 0 };
        let dir = fs.create(ROOT, &name, NewNode::Directory, 0o755, 0, creds).unwrap();
        fs.forget(dir.id.ino, 1);
        // (And its directory.)
        let limits = Limits { space_hard: Some(blocks + 1), ..NONE };
        fs.set_limits(Kind::User, &[uid], limits).unwrap();
    }
    assert_eq!(USER.uid, 1000);
    fs.unmount().unwrap();
    drop(fs);
    let report = Guest::new()
        .drive(&image.path)
        .program("setpriv")
        .program("fallocate")
        .module("quota_v2")
        .try_run(
            "mount -t ext4 -o usrquota /dev/vda /mnt || exit 1
             as() { uid=$1; shift; setpriv --reuid $uid --clear-groups \"$@\" 2>/dev/null; }
             for uid in 1000 1001; do
                 for nr in 0 1 2 3 4; do
                     as $uid fallocate -o $((nr * 2048)) -l 1024 /mnt/home$uid/f || echo $uid: $nr
                 done
             done
             for nr in 0 1 2 3 4; do
                 as 1002 dd if=/dev/zero of=/mnt/home1002/f bs=1024 count=1 seek=$((nr * 2)) \\
                     conv=notrunc || echo 1002: $nr
             done
             sync
             stat -c '%n %b' /mnt/home*/f",
        )
        .unwrap();
    assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
    let lines = ["1000: 4", "/mnt/home1000/f 8", "/mnt/home1001/f 12", "/mnt/home1002/f 12"];
    assert_eq!(report.lines(), lines);
    e2fsck(&image).assert_clean("after Linux");
    let fs = open();
    assert_eq!(fs.wrong_usage(), Ok(Vec::new()));
    fs.unmount().unwrap();
}

#[test]
fn linux_asks_for_tree_blocks_of_data_that_it_maps_at_once() {
    if !require(&[Need::Guest, Need::Tool("mke2fs"), Need::Tool("setpriv")]) {
        return;
    }
    for options in ["nodelalloc", "data=journal", DIRECT] {
        let (options, flag, is_direct) = match options {
            DIRECT => ("", "oflag=direct", true),
            options => (options, "", false),
        };
        let scratch = Scratch::new();
        let args = ["-t", "ext4", "-b", "1024", "-O", "quota"];
        let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &args);
        let mount_options = format!("usrquota,{options}").trim_end_matches(',').to_owned();
        let mounted = MountOptions::parse(&mount_options).unwrap();
        let copy = scratch.path().join("b.img");
        let fs = Ext4::open_path(&image.path, &mounted).unwrap();
        for (uid, blocks) in [(1000, EXTENTS), (1001, EXTENTS + 1)] {
            let (name, creds) = (format!("home{uid}"), Creds { uid, gid: 0 });
            let dir = fs.create(ROOT, name.as_bytes(), NewNode::Directory, 0o755, 0, creds);
            fs.forget(dir.unwrap().id.ino, 1);
            let limits = Limits { space_hard: Some(blocks + 1), ..NONE };
            fs.set_limits(Kind::User, &[uid], limits).unwrap();
        }
        fs.unmount().unwrap();
        drop(fs);
        std::fs::copy(&image.path, &copy).unwrap();
        let report = Guest::new()
            .drive(&image.path)
            .program("setpriv")
            // (That of the small tools knows no O_DIRECT.)
            .program("dd")
            .module("quota_v2")
            .try_run(&format!(
                "mount -t ext4 -o {mount_options} /dev/vda /mnt || exit 1
                 for uid in 1000 1001; do
                     for nr in 0 1 2 3 4; do
                         setpriv --reuid $uid --clear-groups dd if=/dev/zero bs=1024 count=1 \\
                             of=/mnt/home$uid/f seek=$((nr * 2)) conv=notrunc {flag} \\
                             2>/dev/null || echo $uid: $nr
                     done
                 done
                 sync
                 stat -c '%n %b %s' /mnt/home*/f"
            ))
            .unwrap();
        assert_eq!(report.end, End::Code(0), "{}\n{}", report.output, report.console);
        let fs = Ext4::open_path(&copy, &mounted).unwrap();
        let mut ours = Vec::new();
        let mut shown = Vec::new();
        for uid in [1000, 1001] {
            let creds = Creds { uid, gid: 0 };
            let home = fs.lookup(ROOT, format!("home{uid}").as_bytes()).unwrap().id.ino;
            let file = fs.create(home, b"f", NewNode::Regular, 0o644, 0, creds).unwrap().id.ino;
            for nr in 0..EXTENTS {
                let write = || fs.write(file, nr * 2048, &[0; 1024]);
                let written = if is_direct { directly(write) } else { write() };
                if written.is_err() {
                    ours.push(format!("{uid}: {nr}"));
                }
            }
            fs.sync().unwrap();
            let attr = fs.getattr(file).unwrap();
            shown.push(format!("/mnt/home{uid}/f {} {}", attr.blocks, attr.size));
        }
        ours.append(&mut shown);
        fs.unmount().unwrap();
        assert_eq!(report.lines(), ours, "{options} {flag}");
        e2fsck(&image).assert_clean("after Linux");
    }
}
