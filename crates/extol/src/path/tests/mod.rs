//! Paths on a volume in memory.

mod lists;
mod opens;

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use extol_block::MemDevice;
use extol_vfs::Mountable as _;
use extol_vfs::{
    Creds, Fallocate, FileKind, FileSystem as _, FsError, NewNode, Rdev, RenameFlags, SetAttr,
    SetTime, Timestamp, XattrSet,
};

use crate::mkfs::{MkfsOptions, mkfs};
use crate::ops::delete::tests::handles;
use crate::ops::names::lookup_cached_while;
use crate::path::OpenOptions;
use crate::{Ext4, MountOptions};

fn volume() -> Arc<Ext4> {
    let device = Arc::new(MemDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    Ext4::open(device, &MountOptions::default()).unwrap()
}

/// Files have the traits of those of std, and errors become its errors.
#[test]
fn like_files_of_std() {
    use std::io;
    use std::os::unix::fs::FileExt;

    fn work(fs: &Arc<Ext4>) -> io::Result<()> {
        let file = fs.create_file("a")?;
        FileExt::write_all_at(&file, b"hello", 3)?;
        let mut back = [7; 8];
        FileExt::read_exact_at(&file, &mut back, 0)?;
        assert_eq!(&back, b"\0\0\0hello");
        let attr: crate::Metadata = fs.metadata("a")?;
        assert!(attr.is_file() && !attr.is_dir() && !attr.is_symlink());
        assert_eq!(attr.mode(), 0o100_644);
        fs.open_file("none", OpenOptions::new().read(true)).map(drop)?;
        Ok(())
    }
    let fs = volume();
    let error = work(&fs).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), FsError::NotFound.to_string());
    let device = Arc::new(MemDevice::new(8 << 20));
    let error = Ext4::open(device, &MountOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (io::ErrorKind::InvalidData, 22));
    assert!(!io::Error::from(error).to_string().is_empty());
    let error = Ext4::open_path("/none", &MountOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (io::ErrorKind::NotFound, 2));
}

/// A path through a directory does not wait for its lock, which a thread that adds a name holds.
#[test]
fn a_path_leads_through_a_directory_that_is_being_changed() {
    let fs = volume();
    fs.create_dir_all("a/b").unwrap();
    fs.write_file("a/b/file", b"1").unwrap();
    let a = fs.metadata("a").unwrap().id.ino;
    let cell = fs.inner().cell(a).unwrap();
    let guard = cell.write().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let walker = std::thread::spawn({
        let fs = Arc::clone(&fs);
        move || {
            let file = fs.open_file("a/b/file", OpenOptions::new().read(true));
            let _ = tell.send(file.map(|file| file.metadata().unwrap().size));
        }
    });
    let size = told.recv_timeout(std::time::Duration::from_secs(20));
    drop(guard);
    walker.join().unwrap();
    assert_eq!(size.expect("it waits for the lock").unwrap(), 1);
    // A directory with another name, or a new one with its name, is not taken for it.
    fs.rename_path("a/b", "c").unwrap();
    let gone = fs.open_file("a/b/file", OpenOptions::new().read(true));
    assert!(matches!(gone, Err(FsError::NotFound)));
    fs.create_dir_all("a/b").unwrap();
    let other = fs.open_file("a/b/file", OpenOptions::new().read(true));
    assert!(matches!(other, Err(FsError::NotFound)));
    fs.write_file("a/b/file", b"22").unwrap();
    assert_eq!(fs.read_file("a/b/file").unwrap(), b"22");
    assert_eq!(fs.read_file("c/file").unwrap(), b"1");
    fs.write_file("plain", b"").unwrap();
    for _ in 0..2 {
        let through = fs.open_file("plain/file", OpenOptions::new().read(true));
        assert!(matches!(through, Err(FsError::NotADirectory)));
    }
    finish(&fs);
}

/// What the dentry cache knows of a path is used without a reference, and only as long as it is so.
#[test]
fn a_cached_path_is_found_without_a_search() {
    let fs = volume();
    fs.create_dir_all("a/b").unwrap();
    fs.write_file("a/b/file", b"1").unwrap();
    assert_eq!(fs.lookup_cached(b"a/b/file"), Some(fs.metadata("a/b/file").unwrap()));
    assert_eq!(fs.lookup_cached(b"//a/b//file").unwrap().size, 1);
    fs.write_file("a/b/file", b"22").unwrap();
    assert_eq!(fs.lookup_cached(b"a/b/file").unwrap().size, 2);
    for unknown in
        [&b"a/b/file/"[..], b"a/./b/file", b"a/b/../b/file", b"a/b/none", b"a/b/file/x", b"/", b""]
    {
        assert_eq!(fs.lookup_cached(unknown), None, "{}", String::from_utf8_lossy(unknown));
    }
    assert_eq!(fs.metadata("a/b/file/"), Err(FsError::NotADirectory));
    fs.symlink("b/file", "a/link").unwrap();
    for _ in 0..2 {
        assert_eq!(fs.metadata("a/link").unwrap().kind, FileKind::Regular);
        assert_eq!(fs.symlink_metadata("a/link").unwrap().kind, FileKind::Symlink);
    }
    let old = fs.metadata("a/b/file").unwrap().id;
    fs.rename_path("a/b", "a/c").unwrap();
    assert_eq!(
        (fs.lookup_cached(b"a/b/file"), fs.metadata("a/b/file")),
        (None, Err(FsError::NotFound))
    );
    assert_eq!(fs.metadata("a/c/file").unwrap().id, old);
    fs.remove_file("a/c/file").unwrap();
    assert_eq!(
        (fs.lookup_cached(b"a/c/file"), fs.metadata("a/c/file")),
        (None, Err(FsError::NotFound))
    );
    assert!(!fs.exists("a/link") && fs.exists("a/c"));
    finish(&fs);
}

/// A name of the path is removed, or leads elsewhere, while the inode at its end is read.
#[test]
fn a_cached_path_that_changes_meanwhile_does_not_count() {
    let fs = volume();
    let after = |what: &dyn Fn()| lookup_cached_while(fs.inner(), b"a/b/file", what);
    let make = || {
        fs.create_dir_all("a/b").unwrap();
        fs.write_file("a/b/file", b"1").unwrap();
        assert_eq!(after(&|| {}), Some(fs.metadata("a/b/file").unwrap()));
    };
    make();
    assert_eq!(after(&|| fs.remove_file("a/b/file").unwrap()), None);
    make();
    fs.write_file("other", b"22").unwrap();
    assert_eq!(after(&|| fs.rename_path("other", "a/b/file").unwrap()), None);
    assert_eq!(fs.lookup_cached(b"a/b/file"), None, "not cached yet");
    assert_eq!(fs.metadata("a/b/file").unwrap().size, 2);
    assert_eq!(after(&|| fs.rename_path("a", "c").unwrap()), None);
    make();
    assert_eq!(after(&|| fs.remove_dir_all("a/b").unwrap()), None);
    finish(&fs);
}

/// No inode is referenced, and unmounting works.
fn finish(fs: &Arc<Ext4>) {
    assert_eq!(fs.stats().inodes_known, 0, "references were not given back");
    fs.unmount().unwrap();
}

#[test]
fn times_of_a_file_without_a_name_need_no_transaction_and_come_with_its_first_link() {
    let device = Arc::new(MemDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let alone = MountOptions::default().without_threads();
    let fs = Ext4::open(device.clone(), &alone).unwrap();
    let file = fs.create_unnamed_file("/").unwrap();
    let time = Timestamp { sec: 1_000_000, nsec: 7 };
    let times = SetAttr {
        mtime: Some(SetTime::At(time)),
        ctime: Some(SetTime::At(time)),
        ..SetAttr::default()
    };
    let set = || _ = fs.setattr(file.inode().ino(), &times).unwrap();
    assert_eq!(handles(&fs, set), 0);
    assert_eq!(file.metadata().unwrap().ctime, time);
    assert!(handles(&fs, || file.link_to("/f").unwrap()) > 0);
    drop(file);
    finish(&fs);
    let fs = Ext4::open(device, &MountOptions::default()).unwrap();
    assert_eq!(fs.inode("/f").unwrap().attr().unwrap().mtime, time);
    finish(&fs);
}

#[test]
fn whole_files() {
    let fs = volume();
    fs.write_file("a", "first contents").unwrap();
    fs.write_file("/a", "second").unwrap();
    assert_eq!(fs.read_file("a").unwrap(), b"second");
    let big: Vec<u8> = (0..2_500_000u32).map(|i| (i / 3) as u8).collect();
    fs.write_file("//big", &big).unwrap();
    assert!(fs.read_file("/./big").unwrap() == big);
    assert_eq!(fs.read_file("/lost+found"), Err(FsError::IsADirectory));
    assert_eq!(fs.read_file("/none"), Err(FsError::NotFound));
    assert_eq!(fs.read_file(""), Err(FsError::NotFound));
    assert_eq!(fs.read_file("a/b"), Err(FsError::NotADirectory));
    assert_eq!(fs.read_file("a/"), Err(FsError::NotADirectory));
    assert_eq!(fs.read_file("a/."), Err(FsError::NotADirectory));
    assert_eq!(
        fs.read_file([b'x'; 256].iter().map(|b| char::from(*b)).collect::<String>()),
        Err(FsError::NameTooLong)
    );
    finish(&fs);
}

#[test]
fn directories() {
    let fs = volume();
    fs.create_dir_all("/x/y//z/").unwrap();
    fs.create_dir_all("x/y/z").unwrap();
    fs.create_dir_all("/").unwrap();
    assert_eq!(fs.create_dir("/x"), Err(FsError::Exists));
    assert_eq!(fs.create_dir("/"), Err(FsError::Exists));
    assert_eq!(fs.create_dir("/q/r"), Err(FsError::NotFound));
    fs.write_file("/x/f", "").unwrap();
    assert_eq!(fs.create_dir_all("/x/f"), Err(FsError::NotADirectory));
    assert_eq!(fs.create_dir_all("/x/f/g"), Err(FsError::NotADirectory));
    assert_eq!(fs.remove_dir("/x/y"), Err(FsError::NotEmpty));
    assert_eq!(fs.remove_dir("/x/f"), Err(FsError::NotADirectory));
    assert_eq!(fs.remove_file("/x/y/z"), Err(FsError::IsADirectory));
    assert_eq!(fs.remove_file("/x/y/z/."), Err(FsError::IsADirectory));
    assert_eq!(fs.remove_file("/x/y/z/.."), Err(FsError::IsADirectory));
    assert!(matches!(fs.remove_dir("/x/y/z/."), Err(FsError::Invalid(_))));
    assert_eq!(fs.remove_dir("/x/y/z/.."), Err(FsError::NotEmpty));
    assert_eq!(fs.remove_dir("/"), Err(FsError::Busy));
    assert_eq!(fs.remove_dir_all("/"), Err(FsError::Busy));
    fs.remove_dir("/x/y/z/").unwrap();
    for i in 0..700 {
        fs.write_file(format!("/x/y/{i}"), "").unwrap();
    }
    let mut names: Vec<u32> = fs
        .read_dir("/x/y")
        .unwrap()
        .map(|e| e.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    names.sort_unstable();
    assert!(names.iter().copied().eq(0..700));
    assert!(matches!(fs.read_dir("/x/f"), Err(FsError::NotADirectory)));
    fs.create_dir_all("/x/y/deep/er").unwrap();
    fs.symlink("/x", "/x/y/deep/up").unwrap();
    let walked: Vec<_> = fs.walk("/x").unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(walked.len(), 3 + 700 + 3);
    let up = walked.iter().find(|e| e.path().ends_with("deep/up")).unwrap();
    assert_eq!((up.attr().kind, up.depth()), (FileKind::Symlink, 3));
    assert_eq!(fs.walk("/x/f").unwrap().count(), 1);
    fs.remove_dir_all("/x").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 1);
    assert_eq!(fs.remove_dir_all("/x"), Err(FsError::NotFound));
    finish(&fs);
}

#[test]
fn walks_are_bounded() {
    let fs = volume();
    let (name, owner) = ([b'n'; 255], Creds::default());
    let mut dir = fs.root();
    for _ in 0..300 {
        dir = fs.create(dir, &name, NewNode::Directory, 0o755, 0, owner).unwrap().id.ino;
    }
    let walked: Vec<_> = fs.walk("/").unwrap().collect();
    let errors: Vec<_> = walked.iter().filter_map(|item| item.as_ref().err()).collect();
    assert!(matches!(errors[..], [FsError::NotSupported(_)]), "{errors:?}");
    // (And lost+found, before or behind them: the order is the volume's own.)
    let found = walked.iter().filter(|item| item.is_ok()).count();
    assert!((256..259).contains(&found), "{found}");
    fs.unmount().unwrap();
}

#[test]
fn links() {
    let fs = volume();
    fs.create_dir_all("/a/b").unwrap();
    fs.write_file("/a/b/f", "1").unwrap();
    fs.symlink("b/f", "/a/rel").unwrap();
    fs.symlink("/a/b", "/a/b/abs").unwrap();
    fs.symlink("../../../../../../a/b/./f", "/a/b/out").unwrap();
    fs.symlink("/../a", "/top").unwrap();
    for path in
        ["/a/rel", "/a/b/abs/f", "/a/b/abs/abs/abs/out", "/top/rel", "top/b/../rel", "/../../a/rel"]
    {
        assert_eq!(fs.read_file(path).unwrap(), b"1", "{path}");
    }
    // `..` behind a link is the parent of where it leads.
    fs.symlink("/a/b", "/far").unwrap();
    assert_eq!(fs.read_file("/far/../rel").unwrap(), b"1");
    // Through a dangling link a file is made at its target, unless it must be new.
    fs.symlink("/a/made", "/dangling").unwrap();
    let new = OpenOptions::new().write(true).create_new(true).clone();
    assert_eq!(fs.open_file("/dangling", &new).unwrap_err(), FsError::Exists);
    assert_eq!(fs.read_file("/dangling"), Err(FsError::NotFound));
    fs.write_file("/dangling", "2").unwrap();
    assert_eq!(fs.read_file("/a/made").unwrap(), b"2");
    let stay = OpenOptions::new().read(true).follow(false).clone();
    assert_eq!(fs.open_file("/dangling", &stay).unwrap_err(), FsError::SymlinkLoop);
    assert!(fs.exists("/dangling") && !fs.exists("/nowhere"));
    assert_eq!(fs.read_link("/far").unwrap().to_str(), Some("/a/b"));
    assert!(matches!(fs.read_link("/a"), Err(FsError::Invalid(_))));
    assert_eq!(fs.symlink_metadata("/far").unwrap().kind, FileKind::Symlink);
    assert_eq!(fs.symlink_metadata("/far/").unwrap().kind, FileKind::Directory);
    assert_eq!(fs.metadata("/far").unwrap().kind, FileKind::Directory);
    assert_eq!(fs.metadata("/a/rel/"), Err(FsError::NotADirectory));
    // A chain of 40 links works, one of 41 does not, a circle neither.
    fs.symlink("/a/b/f", "/l1").unwrap();
    for i in 2..=41 {
        fs.symlink(format!("l{}", i - 1), format!("/l{i}")).unwrap();
    }
    assert_eq!(fs.read_file("/l40").unwrap(), b"1");
    assert_eq!(fs.read_file("/l41"), Err(FsError::SymlinkLoop));
    fs.symlink("circle/x", "/circle").unwrap();
    assert_eq!(fs.read_file("/circle"), Err(FsError::SymlinkLoop));
    // Names are removed, not what they lead to.
    fs.remove_file("/far").unwrap();
    fs.remove_dir_all("/top").unwrap();
    assert!(fs.exists("/a/b/f"));
    fs.hard_link("/a/b/f", "/second").unwrap();
    assert_eq!(fs.metadata("/second").unwrap().nlink, 2);
    fs.hard_link("/a/rel", "/second-link").unwrap();
    assert_eq!(fs.symlink_metadata("/second-link").unwrap().kind, FileKind::Symlink);
    assert_eq!(fs.hard_link("/a", "/dir"), Err(FsError::NotPermitted));
    assert_eq!(fs.hard_link("/second", "/a"), Err(FsError::Exists));
    assert_eq!(fs.hard_link("/second", "/new/"), Err(FsError::NotFound));
    finish(&fs);
}

#[test]
fn renames() {
    let fs = volume();
    fs.create_dir_all("/d/e").unwrap();
    fs.write_file("/f", "f").unwrap();
    fs.write_file("/g", "g").unwrap();
    fs.rename_path("/f", "/d/f").unwrap();
    fs.rename_with("/d/f", "/g", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs.read_file("/g").unwrap(), fs.read_file("/d/f").unwrap()),
        (b"f".to_vec(), b"g".to_vec())
    );
    assert_eq!(fs.rename_with("/g", "/d/f", RenameFlags::NOREPLACE), Err(FsError::Exists));
    assert!(matches!(fs.rename_path("/d", "/d/e/x"), Err(FsError::Invalid(_))));
    assert_eq!(fs.rename_path("/g", "/d"), Err(FsError::IsADirectory));
    assert_eq!(fs.rename_path("/g", "/new/"), Err(FsError::NotADirectory));
    assert_eq!(fs.rename_path("/", "/x"), Err(FsError::Busy));
    assert_eq!(fs.rename_path("/d", "/"), Err(FsError::Busy));
    assert_eq!(fs.rename_path("/none", "/x"), Err(FsError::NotFound));
    fs.rename_path("/d/", "/moved/").unwrap();
    assert_eq!(fs.read_file("/moved/f").unwrap(), b"g");
    finish(&fs);
}

#[test]
fn open_files() {
    let fs = volume();
    let mut file = fs.create_file("/f").unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::End(-5)).unwrap();
    let mut word = String::new();
    file.read_to_string(&mut word).unwrap();
    assert_eq!(word, "world");
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    file.set_len(5).unwrap();
    file.write_at(b"!", 5).unwrap();
    let mut more = fs.open_file("/f", OpenOptions::new().append(true)).unwrap();
    more.write_all(b"?").unwrap();
    assert_eq!(more.read_at(&mut [0], 0), Err(FsError::AccessDenied));
    assert_eq!(more.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(fs.read_file("/f").unwrap(), b"hello!?");
    let reader = fs.open_file("/f", OpenOptions::new().read(true)).unwrap();
    assert_eq!(reader.write_at(b"x", 0), Err(FsError::AccessDenied));
    assert_eq!(reader.set_len(0), Err(FsError::AccessDenied));
    // It lives until the last one that has it open.
    fs.remove_file("/f").unwrap();
    assert!(!fs.exists("/f"));
    drop((file, more));
    let mut buf = [0; 5];
    assert_eq!(reader.read_at(&mut buf, 0).unwrap(), 5);
    assert_eq!((&buf, reader.metadata().unwrap().nlink), (b"hello", 0));
    let free = fs.stats().free_inodes;
    drop(reader);
    assert_eq!(fs.stats().free_inodes, free + 1);
    // A file without a name gets one.
    let temp = fs.create_unnamed_file("/").unwrap();
    temp.write_all_at(b"temporary", 0).unwrap();
    temp.allocate(Fallocate::PunchHole, 0, 4).unwrap();
    temp.link_to("/kept").unwrap();
    temp.sync_all().unwrap();
    drop(temp);
    assert_eq!(fs.read_file("/kept").unwrap(), b"\0\0\0\0orary");
    // What cannot be opened.
    let write = OpenOptions::new().write(true).clone();
    assert_eq!(fs.open_file("/", &write).unwrap_err(), FsError::IsADirectory);
    assert_eq!(fs.open_file("/no", &write).unwrap_err(), FsError::NotFound);
    assert_eq!(
        fs.open_file("/no/", write.clone().create(true)).unwrap_err(),
        FsError::IsADirectory
    );
    assert!(matches!(fs.open_file("/kept", &OpenOptions::new()), Err(FsError::Invalid(_))));
    fs.open_file("/", OpenOptions::new().read(true)).unwrap().sync_all().unwrap();
    finish(&fs);
}

#[test]
fn unused_inode_numbers_leave_nothing_in_memory() {
    let fs = volume();
    let cached = fs.stats().inodes_cached;
    for ino in 12..1000 {
        assert_eq!(fs.open_by_number(ino), Err(FsError::Stale));
    }
    assert_eq!(fs.open_by_number(u32::MAX), Err(FsError::Stale));
    assert_eq!(fs.stats().inodes_cached, cached);
    fs.write_file("/f", "x").unwrap();
    let id = fs.metadata("/f").unwrap().id;
    assert_eq!(fs.open_by_number(id.ino).unwrap().id, id);
    fs.forget(id.ino, 1);
    finish(&fs);
}

#[test]
fn attributes() {
    let fs = volume();
    fs.write_file("/f", "x").unwrap();
    fs.symlink("f", "/l").unwrap();
    fs.set_permissions("/l", 0o4711).unwrap();
    fs.chown("/l", Some(7), None).unwrap();
    fs.lchown("/l", Some(8), Some(9)).unwrap();
    let time = Timestamp { sec: -5, nsec: 7 };
    fs.set_times("/f", None, Some(SetTime::At(time))).unwrap();
    let f = fs.metadata("/l").unwrap();
    assert_eq!((f.perm, f.uid, f.gid, f.mtime), (0o4711, 7, 0, time));
    let l = fs.symlink_metadata("/l").unwrap();
    assert_eq!((l.uid, l.gid), (8, 9));
    fs.set_xattr("/l", "user.a", "1", XattrSet::Any).unwrap();
    assert_eq!(fs.set_xattr("/f", "user.a", "2", XattrSet::Create), Err(FsError::Exists));
    assert_eq!(fs.get_xattr("/f", "user.a").unwrap(), b"1");
    assert_eq!(fs.list_xattrs("/f").unwrap(), [b"user.a"]);
    fs.remove_xattr("/f", "user.a").unwrap();
    assert_eq!(fs.get_xattr("/f", "user.a"), Err(FsError::NoAttribute));
    let null = Rdev { major: 1, minor: 3 };
    let owner = Creds { uid: 1, gid: 2 };
    let node = fs.create_node("/null", NewNode::CharDevice(null), 0o666, owner).unwrap();
    let attr = node.attr().unwrap();
    assert_eq!((attr.rdev, attr.uid, attr.gid, attr.perm), (null, 1, 2, 0o666));
    drop(node);
    finish(&fs);
}

#[test]
fn files_of_a_removed_directory_go_with_their_names() {
    let fs = volume();
    fs.create_dir("/d").unwrap();
    (0..10).for_each(|n| fs.write_file(format!("/d/{n}"), "contents").unwrap());
    fs.sync().unwrap();
    // The directory itself is in use, and an orphan first.
    assert_eq!(handles(&fs, || fs.remove_dir_all("/d").unwrap()), 10 + 2);
    finish(&fs);
}

/// A small volume with a directory in another one, whose entry was changed by `change` (inode,
/// length, kind, name).
fn with_an_entry(change: impl Fn(&mut [u8], u32)) -> Arc<Ext4> {
    let device = Arc::new(MemDevice::new(8 << 20));
    let options = MkfsOptions {
        features: vec!["^metadata_csum,^inline_data".into()],
        ..MkfsOptions::default()
    };
    mkfs(&*device, &options, &mut |_| {}).unwrap();
    let fs = Ext4::open(device.clone(), &MountOptions::default()).unwrap();
    fs.create_dir_all("/outer/circle").unwrap();
    let (outer, circle) =
        (fs.metadata("/outer").unwrap().id.ino, fs.metadata("/outer/circle").unwrap().id.ino);
    fs.unmount().unwrap();
    let mut bytes = device.to_bytes();
    let places: Vec<_> = bytes
        .windows(14)
        .enumerate()
        .filter(|(_, w)| w.ends_with(b"circle"))
        .map(|(i, _)| i)
        .collect();
    for at in places {
        // In its directory, and in the log.
        assert_eq!(bytes[at..at + 4], circle.to_le_bytes());
        change(&mut bytes[at..at + 14], outer);
    }
    Ext4::open(Arc::new(MemDevice::from_bytes(&bytes)), &MountOptions::default()).unwrap()
}

#[test]
fn a_circle_of_directories_ends_the_walk() {
    // The entry "circle" names the directory that it is in.
    let fs = with_an_entry(|entry, outer| entry[..4].copy_from_slice(&outer.to_le_bytes()));
    let walked: Vec<_> = fs.walk("/").unwrap().collect();
    assert_eq!(walked.iter().filter(|e| matches!(e, Err(FsError::Corrupt { .. }))).count(), 1);
    assert!(matches!(fs.remove_dir_all("/outer"), Err(FsError::Corrupt { .. })));
}

#[test]
fn a_directory_that_is_listed_as_a_file_is_removed_as_what_it_is() {
    let fs = with_an_entry(|entry, _| {
        assert_eq!(entry[7], 2);
        entry[7] = 1;
    });
    fs.write_file("/outer/circle/f", "").unwrap();
    fs.remove_dir_all("/outer").unwrap();
    assert!(!fs.exists("/outer"));
}
