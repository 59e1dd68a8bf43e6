//! Open files: deleted while open, replaced while open, opened in odd ways.

use crate::transcript::Transcript;
use crate::{NEEDS, compare, subject};
use extol_testkit::{Image, Scratch, e2fsck, require};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

#[test]
fn a_file_deleted_while_open_lives_until_it_is_closed() {
    compare(&["-t", "ext4"], |root, t| {
        let path = root.join("file");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        t.note("unlink", std::fs::remove_file(&path));
        t.note("write", file.write_at(&[2; 50_000], 9_000));
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        t.note("read", file.read_to_end(&mut bytes));
        t.value("contents", (bytes[0], bytes[8_999], bytes[9_000], bytes[58_999]));
        t.note("truncate", file.set_len(100));
        t.note("fsync", file.sync_all());
        let meta = file.metadata().unwrap();
        t.value("links, size", (meta.nlink(), meta.size()));
        t.note("chmod", file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)));

        // A new file of the same name is another file.
        std::fs::write(&path, b"new").unwrap();
        t.note("new file", std::fs::read(&path));
        t.value("another inode", file.metadata().unwrap().ino() != path.metadata().unwrap().ino());

        let old = File::open(&path).unwrap();
        std::fs::write(root.join("aside"), b"replacement").unwrap();
        t.note("replace", std::fs::rename(root.join("aside"), &path));
        let mut text = String::new();
        t.note("old contents", (&old).read_to_string(&mut text).map(|_| text));
        t.note("new contents", std::fs::read_to_string(&path));
    });
}

#[test]
fn a_directory_deleted_while_open_is_empty_and_takes_nothing() {
    compare(&["-t", "ext4"], |root, t| {
        let dir = root.join("dir");
        std::fs::create_dir(&dir).unwrap();
        let open = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        t.note("rmdir", std::fs::remove_dir(&dir));
        let flags = OFlags::CREATE | OFlags::WRONLY;
        t.note("create inside", rustix::fs::openat(&open, "x", flags, Mode::from_raw_mode(0o644)).map(drop));
        t.note("mkdir inside", rustix::fs::mkdirat(&open, "y", Mode::from_raw_mode(0o755)));
        t.note(
            "lookup inside",
            rustix::fs::statat(&open, "z", rustix::fs::AtFlags::empty()).map(|s| s.st_size),
        );
        t.note("links", rustix::fs::fstat(&open).map(|s| s.st_nlink));
        t.note("same name again", std::fs::create_dir(&dir));
    });
}

#[test]
fn space_of_deleted_files_returns_when_they_are_closed() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    let free = || {
        rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
        let v = rustix::fs::statvfs(mount.path()).unwrap();
        (v.f_bfree, v.f_ffree)
    };
    let before = free();
    let mut files = Vec::new();
    for n in 0..50 {
        let path = mount.path().join(format!("f{n}"));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&vec![n; 200_000]).unwrap();
        std::fs::remove_file(&path).unwrap();
        files.push(file);
    }
    let held = free();
    assert!(before.0 - held.0 >= 50 * 48, "{before:?} {held:?}");
    assert_eq!(before.1 - held.1, 50);
    for (n, file) in files.iter().enumerate() {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 199_999).unwrap();
        assert_eq!(usize::from(byte[0]), n);
    }
    drop(files);
    // Closing is asynchronous in FUSE: the daemon learns of it a moment later.
    let start = std::time::Instant::now();
    while free() != before {
        assert!(start.elapsed().as_secs() < 10, "{before:?} before, {:?} after", free());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    mount.unmount();
    e2fsck(&image).assert_clean("after the files were closed");
}

/// Files that are open and deleted at a crash are freed by the next mount.
#[test]
fn a_crash_with_deleted_open_files_leaks_nothing() {
    for features in ["orphan_file", "^orphan_file"] {
        if !require(&NEEDS) {
            return;
        }
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-O", features]);
        let dir = scratch.dir("mnt");
        let counts = |dir: &Path| {
            let v = rustix::fs::statvfs(dir).unwrap();
            (v.f_bfree, v.f_ffree)
        };
        let mount = subject().mount(&image, &dir, &[]);
        let before = counts(&dir);
        let inside = dir.join("inside");
        std::fs::create_dir(&inside).unwrap();
        let mut files = Vec::new();
        for n in 0..120 {
            let path = inside.join(format!("f{n}"));
            std::fs::write(&path, vec![7; 30_000]).unwrap();
            files.push(File::open(&path).unwrap());
        }
        for n in 0..120 {
            std::fs::remove_file(inside.join(format!("f{n}"))).unwrap();
        }
        let cut = File::create(inside.join("cut")).unwrap();
        cut.set_len(1 << 20).unwrap();
        File::open(&inside).unwrap().sync_all().unwrap();
        cut.sync_all().unwrap();
        mount.crash_with_open((files, cut));

        let mount = subject().mount(&image, &dir, &[]);
        std::fs::remove_dir_all(&inside).unwrap();
        let start = std::time::Instant::now();
        while counts(&dir) != before {
            assert!(start.elapsed().as_secs() < 10, "{before:?} before, {:?} with {features}", counts(&dir));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        mount.unmount();
        e2fsck(&image).assert_clean("after the orphans were freed");
    }
}

#[test]
fn ways_to_open() {
    compare(&["-t", "ext4"], |root, t| {
        let path = root.join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let text = || std::fs::read_to_string(&path);

        let append = File::options().append(true).open(&path).unwrap();
        t.note("append ignores the offset", append.write_at(b"ab", 0));
        t.note("contents", text());
        t.note("truncating open", File::create(&path).map(|f| f.metadata().unwrap().len()));
        t.note("exclusive open", File::create_new(&path).map(drop));
        t.note("write to a read-only handle", (&File::open(&path).unwrap()).write(b"x"));
        t.note(
            "read from a write-only handle",
            (&File::options().write(true).open(&path).unwrap()).read(&mut [0; 4]),
        );
        t.note("open a directory for writing", File::options().write(true).open(root).map(drop));
        t.note("read a directory", (&File::open(root).unwrap()).read(&mut [0; 4]));

        let synced =
            File::options().write(true).custom_flags(OFlags::SYNC.bits() as i32).open(&path).unwrap();
        t.note("O_SYNC write", synced.write_at(b"synced", 3));
        t.note("contents", text());
        for flag in [OFlags::NOATIME, OFlags::DSYNC, OFlags::NONBLOCK, OFlags::PATH] {
            let opened = rustix::fs::open(&path, OFlags::RDONLY | flag, Mode::empty());
            t.note(&format!("open {flag:?}"), opened.map(drop));
        }

        // O_DIRECT with whole aligned blocks, and what lies past the end.
        let direct =
            File::options().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path);
        t.note("open O_DIRECT", direct.as_ref().map(drop).map_err(|e| std::io::Error::from(e.kind())));
        t.note("reopen truncated", File::create(&path).map(drop));
        t.note("size", path.metadata().map(|m| (m.len(), m.blocks())));
    });
}

/// Many threads append through handles of their own; every record must arrive whole.
#[test]
fn parallel_appends_lose_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    let path = mount.path().join("log");
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let path = &path;
            scope.spawn(move || {
                let mut file = File::options().append(true).create(true).open(path).unwrap();
                for n in 0..200u8 {
                    file.write_all(&[[thread, n].repeat(50), vec![b'\n']].concat()).unwrap();
                }
            });
        }
    });
    let bytes = std::fs::read(&path).unwrap();
    mount.unmount();
    assert_eq!(bytes.len(), 6 * 200 * 101);
    let mut next = [0u8; 6];
    for record in bytes.chunks(101) {
        let (thread, n) = (record[0], record[1]);
        assert_eq!(record[..100], [thread, n].repeat(50), "a torn record");
        assert_eq!(n, next[usize::from(thread)], "records of a thread are in order");
        next[usize::from(thread)] += 1;
    }
    e2fsck(&image).assert_clean("after parallel appends");
}

/// Special files keep their kind, and pipes work.
#[test]
fn special_files() {
    compare(&["-t", "ext4"], |root, t| {
        use rustix::fs::FileType;
        let mode = Mode::from_raw_mode(0o666);
        let make = |t: &mut Transcript, name: &str, kind: FileType, dev: u64| {
            t.note(name, rustix::fs::mknodat(rustix::fs::CWD, root.join(name), kind, mode, dev));
            let seen = root
                .join(name)
                .symlink_metadata()
                .map(|m| (m.mode(), m.rdev(), m.nlink(), m.size(), m.blocks()));
            t.note("stat", seen);
        };
        make(t, "fifo", FileType::Fifo, 0);
        make(t, "socket", FileType::Socket, 0);
        make(t, "plain", FileType::RegularFile, 0);
        make(t, "old", FileType::CharacterDevice, rustix::fs::makedev(4, 64));
        make(t, "new", FileType::CharacterDevice, rustix::fs::makedev(300, 70_000));
        make(t, "disk", FileType::BlockDevice, rustix::fs::makedev(259, 1_048_575));
        make(t, "zero", FileType::CharacterDevice, 0);
        make(t, "fifo", FileType::Fifo, 0);
        t.note("open a socket", File::open(root.join("socket")).map(drop));
        let pipe = root.join("fifo");
        std::thread::scope(|scope| {
            scope.spawn(|| File::options().write(true).open(&pipe).unwrap().write_all(b"through").unwrap());
            t.note("through the pipe", std::fs::read_to_string(&pipe));
        });
    });
}
