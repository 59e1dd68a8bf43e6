//! Open files: space of deleted ones, and many appending at once.

use crate::{NEEDS, subject};
use extol_testkit::{Image, Scratch, e2fsck, over_io_uring, require};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

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
    let mut held = free();
    // No syncfs waits for what the kernel writes back to a FUSE server. Through one device the data
    // goes ahead of the statfs; over io_uring each processor has a queue of its own, and the statfs
    // may overtake it.
    let start = std::time::Instant::now();
    while over_io_uring() && before.0 - held.0 < 50 * 48 && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        held = free();
    }
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
        let image =
            Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-O", features]);
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
            assert!(
                start.elapsed().as_secs() < 10,
                "{before:?} before, {:?} with {features}",
                counts(&dir)
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        mount.unmount();
        e2fsck(&image).assert_clean("after the orphans were freed");
    }
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
