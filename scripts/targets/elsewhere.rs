//! Uses volumes on another system or processor: `elsewhere IMAGE NEW TAR`. The image is empty and
//! has a journal; `NEW` is made of the archive. What it leaves is checked where the image was made.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use extol::check::{CheckOptions, check};
use extol::device::{self, FileDevice};
use extol::image::build::{BuildOptions, Free, SizeWish};
use extol::image::source::TarSource;
use extol::image::{build_file, mkfs_file};
use extol::mkfs::MkfsOptions;
use extol::vfs::{FileKind, FileSystem as _, RenameFlags, XattrSet};
use extol::{Ext4, MountOptions, OpenOptions};

const NAMES: usize = 500;

fn contents(nr: usize) -> Vec<u8> {
    (0..nr * 37).map(|at| ((at * 31 + nr) % 251) as u8).collect()
}

/// Makes files of all kinds, changes and removes some.
fn fill(image: &Path, options: &MountOptions) {
    let fs = Ext4::open_path(image, options).expect("open");
    fs.create_dir_all("/dir/below/deep").expect("mkdir");
    for nr in 0..NAMES {
        fs.write_file(format!("/dir/file-{nr}"), contents(nr)).expect("write");
    }
    for nr in (0..NAMES).step_by(7) {
        fs.remove_file(format!("/dir/file-{nr}")).expect("remove");
    }
    fs.symlink("dir/file-1", "/link").expect("symlink");
    fs.symlink("/a".repeat(100), "/long link").expect("symlink");
    fs.hard_link("/dir/file-2", "/dir/below/second name").expect("link");
    fs.set_xattr("/link", "user.one", b"value", XattrSet::Any).expect("setxattr");
    fs.set_xattr("/link", "user.large", vec![7; 900], XattrSet::Any).expect("setxattr");
    fs.rename_path("/dir/file-3", "/dir/below/moved").expect("rename");
    let exchange = RenameFlags::EXCHANGE;
    fs.rename_with("/dir/file-4", "/dir/file-5", exchange).expect("exchange");
    fs.set_permissions("/dir/below", 0o2751).expect("chmod");
    fs.chown("/dir/below", Some(70_000), Some(80_000)).expect("chown");
    // A file with a hole, larger than 4 GiB.
    let how = OpenOptions::new().read(true).write(true).create(true).clone();
    let mut file = fs.open_file("/sparse", &how).expect("open");
    file.seek(SeekFrom::Start(5 << 30)).expect("seek");
    file.write_all(b"end").expect("write");
    file.sync_all().expect("fsync");
    file.seek(SeekFrom::End(-4)).expect("seek");
    let mut end = Vec::new();
    file.read_to_end(&mut end).expect("read");
    assert_eq!(end, b"\0end");
    drop(file);
    fs.sync().expect("sync");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for nr in 0..25 {
                    let path = format!("/by-{thread}-{nr}");
                    let file = fs.create_file(&path).expect("create");
                    file.write_all_at(&contents(nr), 0).expect("write");
                    file.sync_all().expect("fsync");
                }
            });
        }
    });
    fs.unmount().expect("unmount");
}

/// Reads what [`fill`] has made.
fn verify(image: &Path, options: &MountOptions) {
    let fs = Ext4::open_path(image, options).expect("open");
    let names: Vec<_> = fs.walk("/").expect("walk").map(|item| item.expect("item")).collect();
    let of_kind = |kind| names.iter().filter(|item| item.attr().kind == kind).count();
    // ("/", lost+found, and three of its own.)
    assert_eq!(of_kind(FileKind::Directory), 5);
    assert_eq!(of_kind(FileKind::Symlink), 2);
    let removed = NAMES.div_ceil(7);
    assert_eq!(of_kind(FileKind::Regular), NAMES - removed + 1 + 1 + 100);
    for nr in (0..NAMES).filter(|nr| nr % 7 != 0) {
        let path = match nr {
            3 => "/dir/below/moved".into(),
            4 => "/dir/file-5".into(),
            5 => "/dir/file-4".into(),
            nr => format!("/dir/file-{nr}"),
        };
        assert_eq!(fs.read_file(&path).expect("read"), contents(nr), "{path}");
    }
    // A path that was joined as this system joins them.
    let joined = Path::new("dir").join("below").join("second name");
    assert_eq!(fs.read_file(joined).expect("read"), contents(2));
    assert_eq!(fs.read_file("/link").expect("read"), contents(1));
    assert_eq!(fs.get_xattr("/dir/file-1", "user.large").expect("getxattr"), [7; 900]);
    let below = fs.metadata("/dir/below").expect("stat");
    assert_eq!((below.perm, below.uid, below.gid), (0o2751, 70_000, 80_000));
    let sparse = fs.metadata("/sparse").expect("stat");
    assert_eq!(sparse.size, (5 << 30) + 3);
    assert!(sparse.blocks < 64);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("clock");
    let age = now.as_secs() as i64 - sparse.mtime.sec;
    assert!((0..3600).contains(&age), "{age} seconds old");
    fs.unmount().expect("unmount");
}

/// Stops in the middle, and recovers.
fn crash(image: &Path, options: &MountOptions) {
    let fs = Ext4::open_path(image, options).expect("open");
    let file = fs.create_file("/synced").expect("create");
    file.write_all_at(b"acknowledged", 0).expect("write");
    file.sync_all().expect("fsync");
    fs.crash();
    drop(file);
    drop(fs);
    // (Read-only, the log is replayed in memory.)
    for options in [MountOptions::default().read_only(), options.clone()] {
        let fs = Ext4::open_path(image, &options).expect("recover");
        assert_eq!(fs.read_file("/synced").expect("read"), b"acknowledged");
        fs.unmount().expect("unmount");
    }
}

/// An image that is open for writing is not opened twice.
fn locks(image: &Path) {
    let fs = Ext4::open_path(image, &MountOptions::default()).expect("open");
    let again = Ext4::open_path(image, &MountOptions::default()).expect_err("it is locked");
    assert_eq!(again.errno(), 16, "{again}");
    fs.unmount().expect("unmount");
}

/// Makes a volume, uses it, and makes one of an archive in its place. The same files give the same
/// bytes on every system.
fn make(new: &Path, tar: &Path) {
    let options = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::default() };
    mkfs_file(new, &options, &mut |_| {}).expect("mkfs");
    fill(new, &MountOptions::default());
    verify(new, &MountOptions::default());
    std::fs::remove_file(new).expect("remove");
    let spool = new.parent().expect("a directory");
    let mut source = TarSource::open(tar, spool).expect("the archive");
    let size = SizeWish::AsNeeded(Free::Bytes(4 << 20));
    let options = BuildOptions { size, ..Default::default() };
    build_file(new, &mut source, &options, &mut |_| ControlFlow::Continue(())).expect("build");
}

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, new, tar] = &arguments[..] else { panic!("elsewhere IMAGE NEW TAR") };
    let image = Path::new(image);
    let options = MountOptions::default();
    fill(image, &options);
    verify(image, &options);
    verify(image, &MountOptions::default().read_only());
    locks(image);
    crash(image, &options);
    let device = FileDevice::open(image, &device::OpenOptions::read_only()).expect("open");
    let report = check(Arc::new(device), &CheckOptions::default(), &mut |_| {}).expect("check");
    assert!(report.is_clean(), "{report:?}");
    make(Path::new(new), Path::new(tar));
    println!("used");
}
