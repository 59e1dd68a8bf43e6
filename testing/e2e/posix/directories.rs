//! Reading directories while they change.

use crate::{NEEDS, subject};
use extol_testkit::{Image, Mounted, Need, Scratch, Subject, debugfs, e2fsck, require};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;

type Entries = Vec<(String, u64, u64)>;

/// Up to `count` entries from the present position, with inode and the cookie behind each.
fn read_some(dir: &rustix::fd::OwnedFd, count: usize) -> Entries {
    // A small buffer, so that the kernel is asked often.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut raw = RawDir::new(dir, &mut buffer);
    let mut found = Vec::new();
    while found.len() < count {
        let Some(entry) = raw.next() else { break };
        let entry = entry.expect("readdir");
        found.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.ino(),
            entry.next_entry_cookie(),
        ));
    }
    found
}

fn open_dir(path: &Path) -> rustix::fd::OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
        .expect("open a directory")
}

fn mounted(scratch: &Scratch, args: &[&str]) -> (Image, Mounted) {
    let image = Image::mke2fs(scratch.path(), "a.img", 96 << 20, args);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    (image, mount)
}

/// A name that is in the directory during the whole reading is found exactly once, whatever else
/// comes and goes.
#[test]
fn reading_while_names_come_and_go() {
    for args in
        [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4"], &["-t", "ext2", "-O", "^dir_index"]]
    {
        if !require(&NEEDS) {
            return;
        }
        let scratch = Scratch::new();
        let (image, mount) = mounted(&scratch, args);
        let dir = mount.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        for n in 0..1500 {
            File::create(dir.join(format!("stay-{n:04}"))).unwrap();
            File::create(dir.join(format!("leave-{n:04}"))).unwrap();
        }
        let open = open_dir(&dir);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for round in 0.. {
            let some = read_some(&open, 100);
            let Some(last) = some.last() else { break };
            // Entries left in the buffer are read again from the cookie.
            rustix::fs::seek(&open, SeekFrom::Start(last.2)).unwrap();
            for (name, _, _) in some {
                *seen.entry(name).or_default() += 1;
            }
            for n in 0..30 {
                let _ = std::fs::remove_file(
                    dir.join(format!("leave-{:04}", (round * 97 + n * 13) % 1500)),
                );
                File::create(dir.join(format!("come-{round}-{n}"))).unwrap();
            }
            assert!(round < 2000, "reading does not end");
        }
        for n in 0..1500 {
            let name = format!("stay-{n:04}");
            assert_eq!(seen.get(&name), Some(&1), "{name} with {args:?}");
        }
        let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "listed twice: {twice:?}");
        drop(open);
        mount.unmount();
        e2fsck(&image).assert_clean("after reading while changing");
    }
}

/// A position is good for ever: every cookie, used later and in any order, goes on with the same
/// entry.
#[test]
fn cookies_are_stable() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, &["-t", "ext4", "-b", "1024"]);
    let dir = mount.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    for n in 0..800 {
        File::create(dir.join(format!("file-{n}"))).unwrap();
    }
    let open = open_dir(&dir);
    let all = read_some(&open, usize::MAX);
    assert_eq!(all.len(), 802);
    let check = |entries: &Entries| {
        // What a reader sees of changes since it last was at the start is open; so it starts anew.
        let open = open_dir(&dir);
        read_some(&open, 1);
        for pair in entries.windows(2).rev().step_by(7) {
            rustix::fs::seek(&open, SeekFrom::Start(pair[0].2)).unwrap();
            let next = read_some(&open, 1);
            assert_eq!(next[0].0, pair[1].0, "after {}", pair[0].0);
            assert_eq!(next[0].1, pair[1].1);
        }
    };
    check(&all);
    rustix::fs::seek(&open, SeekFrom::Start(0)).unwrap();
    assert_eq!(read_some(&open, usize::MAX), all, "a second reading gives the same");

    // After changes, and from another mount, the remaining entries still follow each other.
    let removed: BTreeSet<String> = (0..800).step_by(3).map(|n| format!("file-{n}")).collect();
    for name in &removed {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let rest: Entries = all.into_iter().filter(|(name, _, _)| !removed.contains(name)).collect();
    check(&rest);
    drop(open);
    mount.unmount();
    e2fsck(&image).assert_clean("after reading");
}

/// Threads create, delete, rename and read in one directory at the same time.
#[test]
fn parallel_work_in_one_directory() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, &["-t", "ext4", "-b", "1024"]);
    let dir = mount.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let dir = &dir;
            scope.spawn(move || {
                for n in 0..300 {
                    let name = dir.join(format!("t{thread}-{n}"));
                    std::fs::write(&name, format!("{thread} {n}")).unwrap();
                    if n % 3 == 0 {
                        std::fs::rename(&name, dir.join(format!("moved-t{thread}-{n}"))).unwrap();
                    } else if n % 3 == 1 {
                        std::fs::remove_file(&name).unwrap();
                    }
                    if n % 40 == 0 {
                        dir.read_dir().unwrap().for_each(|e| drop(e.unwrap()));
                    }
                }
            });
        }
    });
    let check = |dir: &Path| {
        let names: BTreeSet<String> = dir
            .read_dir()
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names.len(), 6 * 200);
        for thread in 0..6 {
            for n in (0..300).filter(|n| n % 3 != 1) {
                let prefix = if n % 3 == 0 { "moved-" } else { "" };
                let name = format!("{prefix}t{thread}-{n}");
                assert!(names.contains(&name), "{name} is missing");
                assert_eq!(
                    std::fs::read_to_string(dir.join(&name)).unwrap(),
                    format!("{thread} {n}")
                );
            }
        }
    };
    check(&dir);
    mount.unmount();
    e2fsck(&image).assert_clean("after parallel work");
    let mount = Subject::Kernel.mount(&image, &scratch.dir("mnt"), &[]);
    check(&dir);
    mount.unmount();
}

/// Renames across directories in both directions at once: no deadlock, no loop, nothing lost.
#[test]
fn parallel_renames_of_directories() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, &["-t", "ext4"]);
    let root = mount.path();
    for n in 0..4 {
        std::fs::create_dir_all(root.join(format!("p{n}/child{n}"))).unwrap();
        std::fs::write(root.join(format!("p{n}/child{n}/file")), format!("{n}")).unwrap();
    }
    std::thread::scope(|scope| {
        for child in 0..4usize {
            scope.spawn(move || {
                let mut at = child;
                for round in 0..150 {
                    let to = (at + 1 + round % 3) % 4;
                    let (from, new) = (
                        root.join(format!("p{at}/child{child}")),
                        root.join(format!("p{to}/child{child}")),
                    );
                    std::fs::rename(from, new).unwrap();
                    at = to;
                }
            });
        }
        scope.spawn(move || {
            std::fs::create_dir_all(root.join("guest/inside")).unwrap();
            for n in 0..150 {
                let into = root.join(format!("p{}/child1/guest", n % 4));
                let into_itself =
                    std::fs::rename(root.join("guest"), root.join("guest/inside/guest"));
                assert!(into_itself.is_err(), "a directory moved below itself");
                // The child may be elsewhere at the moment; then nothing moves.
                if std::fs::rename(root.join("guest"), &into).is_ok() {
                    while !(0..4).any(|p| {
                        std::fs::rename(root.join(format!("p{p}/child1/guest")), root.join("guest"))
                            .is_ok()
                    }) {}
                }
            }
        });
    });
    assert!(root.join("guest/inside").is_dir());
    for child in 0..4 {
        let homes =
            (0..4).filter(|p| root.join(format!("p{p}/child{child}/file")).exists()).count();
        assert_eq!(homes, 1, "child {child}");
    }
    mount.unmount();
    e2fsck(&image).assert_clean("after parallel renames");
}

/// Enough long names for a hash tree of three levels, which needs large_dir.
#[test]
fn a_directory_of_three_index_levels() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    const NAMES: usize = 48_000;
    let scratch = Scratch::new();
    let (image, mount) =
        mounted(&scratch, &["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "60000"]);
    let dir = mount.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let name = |n: usize| format!("{n:05}-{}", "n".repeat(244));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = &dir;
            scope.spawn(move || {
                for n in (thread..NAMES).step_by(4) {
                    File::create(dir.join(name(n))).unwrap_or_else(|e| panic!("name {n}: {e}"));
                }
            });
        }
    });
    mount.unmount();
    e2fsck(&image).assert_clean("with all names");
    let shown = debugfs(&image, "htree /dir");
    assert!(
        shown.contains("Indirect levels: 2"),
        "{}",
        shown.lines().take(12).collect::<Vec<_>>().join("\n")
    );

    let linux = Subject::Kernel.mount(&image, &dir.with_file_name(""), &[]);
    for n in (0..NAMES).step_by(97) {
        assert!(dir.join(name(n)).exists(), "Linux does not find name {n}");
    }
    linux.unmount();
    let mount = subject().mount(&image, &dir.with_file_name(""), &[]);
    assert_eq!(
        dir.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect::<BTreeSet<_>>().len(),
        NAMES
    );
    for n in (0..NAMES).step_by(2) {
        std::fs::remove_file(dir.join(name(n))).unwrap_or_else(|e| panic!("name {n}: {e}"));
    }
    assert!(!dir.join(name(0)).exists() && dir.join(name(1)).exists());
    mount.unmount();
    e2fsck(&image).assert_clean("with every other name");
}
