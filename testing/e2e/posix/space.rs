//! Space: volumes filled to the last block and inode, reserved blocks, FITRIM.

use crate::{NEEDS, subject};
use extol_testkit::{Image, Mounted, Need, Scratch, as_user, debugfs, e2fsck, require, trim};
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn mounted(scratch: &Scratch, size: u64, args: &[&str]) -> (Image, Mounted) {
    let image = Image::mke2fs(scratch.path(), "a.img", size, args);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    (image, mount)
}

/// Free blocks and inodes when everything that waits in memory has been written, or has failed to
/// find space.
fn free(dir: &Path) -> (u64, u64) {
    let root = File::open(dir).unwrap();
    let _ = rustix::fs::syncfs(&root);
    let _ = root.sync_all();
    let v = rustix::fs::statvfs(dir).unwrap();
    (v.f_bfree, v.f_ffree)
}

/// Lets the kernel drop the pages of a file that were written back: what is read next comes from
/// the file system.
fn forget_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// A volume takes exactly as many blocks as it says are free, and gives all of them back.
#[test]
fn full_to_the_last_block() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-m", "0"][..],
        &["-t", "ext4", "-m", "0"],
        &["-t", "ext2", "-b", "1024", "-m", "0"],
    ] {
        if !require(&NEEDS) {
            return;
        }
        let scratch = Scratch::new();
        let (image, mount) = mounted(&scratch, 24 << 20, args);
        let dir = mount.path().join("dir");
        let at_first = free(mount.path());
        std::fs::create_dir(&dir).unwrap();
        // Names first, so that the last blocks are needed for data alone.
        let small: Vec<File> =
            (0..100).map(|n| File::create(dir.join(format!("small{n}"))).unwrap()).collect();
        let mut large = File::create(dir.join("large")).unwrap();
        let block = rustix::fs::statvfs(mount.path()).unwrap().f_bsize;
        let mut acknowledged = Vec::new();
        for size in [1 << 20, block as usize] {
            let error = loop {
                let from = large.stream_position().unwrap() as usize;
                // fsync after each write makes the file system say at once whether it had the
                // space.
                if let Err(e) = large.write_all(&vec![0xab; size]).and_then(|()| large.sync_data())
                {
                    break e;
                }
                acknowledged.push(from..from + size);
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        }
        // One block into each small file until that fails as well.
        let mut wrote = 0;
        for file in &small {
            match file.write_all_at(&vec![0xcd; block as usize], 0).and_then(|()| file.sync_all()) {
                Ok(()) => wrote += 1,
                Err(e) => assert_eq!(e.kind(), ErrorKind::StorageFull, "{e}"),
            }
        }
        assert!(wrote < small.len(), "the volume must be full by now");
        let now = free(mount.path());
        if subject().is_extol() {
            assert_eq!(now.0, 0, "blocks left although writes fail");
        }
        let error = std::fs::write(dir.join("small0"), vec![1; 10 * block as usize]).err();
        // The write may be accepted into memory and fail at its fsync; either way something must
        // say so.
        let error =
            error.or_else(|| File::open(dir.join("small0")).and_then(|f| f.sync_all()).err());
        assert!(wrote > 0 || error.is_some(), "a write into a full volume must fail");

        // What was acknowledged is readable, and not only from the kernel's memory. (Of a write
        // whose fsync failed, it may have dropped some pages.)
        forget_pages(&large);
        let bytes = std::fs::read(dir.join("large")).unwrap();
        for range in acknowledged {
            assert!(bytes[range.clone()].iter().all(|b| *b == 0xab), "{range:?}");
        }
        drop((small, large));
        std::fs::remove_dir_all(&dir).unwrap();
        let start = std::time::Instant::now();
        while free(mount.path()) != at_first {
            assert!(
                start.elapsed().as_secs() < 10,
                "{at_first:?} at first, {:?} in the end",
                free(mount.path())
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        mount.unmount();
        e2fsck(&image).assert_clean("after a full volume");
    }
}

/// A write that the kernel keeps in memory, and of which a part only fits when it is written back:
/// fsync fails, or all of it is there.
#[test]
fn a_part_of_what_was_written_fits() {
    if !require(&NEEDS) {
        return;
    }
    for left in [1, 60, 200] {
        let scratch = Scratch::new();
        let (image, mount) = mounted(&scratch, 24 << 20, &["-t", "ext4", "-b", "4096", "-m", "0"]);
        let mut filler = File::create(mount.path().join("filler")).unwrap();
        let mut file = File::create(mount.path().join("file")).unwrap();
        while let free = free(mount.path()).0
            && free > left
        {
            // Mapping blocks are promised too: near the end they make room look smaller than it is.
            let blocks = if free > left + 128 { 64 } else { 1 };
            filler.write_all(&vec![1; blocks << 12]).and_then(|()| filler.sync_data()).unwrap();
        }
        let done = file.write_all(&vec![0xab; 1 << 20]).and_then(|()| file.sync_data());
        forget_pages(&file);
        let bytes = std::fs::read(mount.path().join("file")).unwrap();
        let there = bytes.iter().filter(|b| **b == 0xab).count();
        match done {
            Ok(()) => assert_eq!(there, 1 << 20, "acknowledged with {left} blocks free"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::StorageFull, "{e}"),
        }
        drop((filler, file));
        mount.unmount();
        e2fsck(&image).assert_clean("after a write that fits in part");
    }
}

#[test]
fn full_to_the_last_inode() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 32 << 20, &["-t", "ext4", "-N", "200"]);
    let at_first = free(mount.path());
    let dir = mount.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let mut made = 0;
    let error = loop {
        match File::create(dir.join(format!("f{made}"))) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert_eq!(free(mount.path()).1, 0, "inodes left although creating fails");
    assert_eq!(made + 1, at_first.1);
    assert_eq!(std::fs::create_dir(dir.join("d")).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(
        std::os::unix::fs::symlink("x", dir.join("l")).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(dir.read_dir().unwrap().count() as u64, made, "failed creations leave no name");
    std::fs::hard_link(dir.join("f0"), dir.join("needs-no-inode")).unwrap();
    std::fs::remove_file(dir.join("f1")).unwrap();
    std::fs::write(dir.join("again"), b"one was free").unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(free(mount.path()), at_first);
    mount.unmount();
    e2fsck(&image).assert_clean("after all inodes were used");
}

/// Creating in a full volume fails half-way in many places; nothing may stay behind.
#[test]
fn failing_creations_leave_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 16 << 20, &["-t", "ext4", "-b", "1024", "-m", "0"]);
    let root = mount.path();
    let dir = root.join("dir");
    std::fs::create_dir(&dir).unwrap();
    let mut filler = File::create(root.join("filler")).unwrap();
    while filler.write_all(&[1; 65_536]).and_then(|()| filler.sync_data()).is_ok() {}
    while filler.write_all(&[1; 1024]).and_then(|()| filler.sync_data()).is_ok() {}
    let inodes = free(root).1;
    let mut made = 0u64;
    let mut failed = 0;
    for n in 0..400 {
        let name = format!("{n:03}-{}", "long".repeat(30));
        let done = match n % 4 {
            0 => std::fs::create_dir(dir.join(&name)),
            1 => std::os::unix::fs::symlink("t".repeat(700), dir.join(&name)),
            2 => File::create(dir.join(&name)).map(drop),
            _ => std::fs::hard_link(root.join("filler"), dir.join(&name)).inspect(|()| made -= 1),
        };
        match done {
            Ok(()) => made += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::StorageFull, "{e}");
                failed += 1;
            }
        }
        // A little space now and then, so that different steps are the ones that fail.
        if n % 50 == 49 {
            let len = filler.metadata().unwrap().len();
            filler.set_len(len - 2048).unwrap();
            filler.sync_all().unwrap();
        }
    }
    assert!(failed > 50, "only {failed} failures");
    assert_eq!(free(root).1, inodes - made, "inodes in use");
    drop(filler);
    mount.unmount();
    e2fsck(&image).assert_clean("after failing creations");
}

#[test]
fn the_reserve_is_for_root() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 48 << 20, &["-t", "ext4", "-m", "20"]);
    let root = mount.path();
    rustix::fs::chmod(root, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let before = rustix::fs::statvfs(root).unwrap();
    let reserve = before.f_bfree - before.f_bavail;
    as_user(1000, 1000, &[], 0o022, || {
        let mut file = File::create(root.join("user")).unwrap();
        while file.write_all(&[1; 65_536]).and_then(|()| file.sync_data()).is_ok() {}
        while file.write_all(&[1; 4096]).and_then(|()| file.sync_data()).is_ok() {}
    });
    let after = free(root).0;
    assert!(
        after >= reserve && after < reserve + 64,
        "reserve {reserve}, left by the user {after}"
    );
    let mut file = File::create(root.join("root")).unwrap();
    file.write_all(&vec![2; 4 << 20])
        .and_then(|()| file.sync_all())
        .expect("root may use the reserve");
    drop(file);
    mount.unmount();
    e2fsck(&image).assert_clean("after the reserve was used");
}

/// FITRIM punches holes into the image below; what is in use stays.
#[test]
fn trim_gives_free_space_back() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 96 << 20, &["-t", "ext4"]);
    let root = mount.path();
    let fill = |name: &str| std::fs::write(root.join(name), vec![0x5a; 20 << 20]).unwrap();
    fill("keep");
    fill("drop");
    free(root);
    std::fs::remove_file(root.join("drop")).unwrap();
    free(root);
    let used = || std::fs::metadata(&image.path).unwrap().blocks() * 512;
    let before = used();
    let trimmed = trim(root, 0, u64::MAX, 0).expect("FITRIM");
    assert!(trimmed >= 20 << 20, "{trimmed} bytes trimmed");
    assert!(used() + (15 << 20) < before, "{} bytes in use after, {before} before", used());
    assert!(std::fs::read(root.join("keep")).unwrap().iter().all(|b| *b == 0x5a));
    assert!(trim(root, u64::MAX, 1, 0).is_err(), "a range outside of the volume");
    mount.unmount();
    e2fsck(&image).assert_clean("after FITRIM");
}

/// Lengths of the extents of a file, in blocks, from debugfs.
fn extents(image: &Image, path: &str) -> Vec<u64> {
    let shown = debugfs(image, &format!("dump_extents -l {path}"));
    let lengths = shown.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.iter().rev().find_map(|w| w.parse().ok())
    });
    lengths.collect()
}

/// A file written alone lies in one piece; files that grow side by side lie in few.
#[test]
fn files_lie_together() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 512 << 20, &["-t", "ext4", "-b", "4096"]);
    let root = mount.path();
    let chunk = vec![7; 1 << 16];
    let write = |name: &str, count: usize, each: bool| {
        let mut file = File::create(root.join(name)).unwrap();
        for _ in 0..count {
            file.write_all(&chunk).unwrap();
            if each {
                file.sync_data().unwrap();
            }
        }
        file.sync_all().unwrap();
    };
    // First: what the kernel writes back out of order may leave gaps.
    write("synced", 8 << 4, true);
    write("alone", 48 << 4, false);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let write = &write;
            scope.spawn(move || write(&format!("beside{n}"), 8 << 4, true));
        }
    });
    mount.unmount();
    e2fsck(&image).assert_clean("after appending");
    assert_eq!(extents(&image, "/synced"), [2048], "8 MiB in synced pieces of 64 KiB");
    // On a busy machine the kernel writes the first pieces back out of order, and one may not fit
    // before the next.
    let alone = extents(&image, "/alone");
    assert_eq!(alone.iter().sum::<u64>(), 12_288);
    assert!(alone.len() <= 3, "48 MiB written at once: {alone:?}");
    for n in 0..4 {
        let lengths = extents(&image, &format!("/beside{n}"));
        assert_eq!(lengths.iter().sum::<u64>(), 2048);
        assert!(lengths.len() <= 16, "128 synced pieces, beside three others: {lengths:?}");
    }
}
