//! Random operations against a model of a file system in memory.
//!
//! A tester does what a seed tells it, on a mount and on the model, and demands the same outcome of every single
//! operation: values, contents, errnos. After each phase the whole tree is compared, the volume is unmounted,
//! checked by e2fsck, and mounted again; the model goes on. With several threads each tester has a directory of its
//! own, while a crowd makes noise in a directory that all share.
//!
//! `EXTOL_SEED=n` repeats a run; `EXTOL_LONG=1` makes it thirty times longer.

mod model;
mod tester;

use extol_testkit::{Image, Need, Scratch, Subject, e2fsck, require};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use tester::Tester;

const NEEDS: [Need; 5] = [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];

fn subject() -> Subject {
    Subject::under_test(env!("CARGO_BIN_EXE_extol"))
}

fn seed(default: u64) -> u64 {
    std::env::var("EXTOL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

fn times() -> usize {
    if std::env::var("EXTOL_LONG").is_ok() { 30 } else { 1 }
}

/// Runs `threads` testers through `phases` phases of `steps` steps.
fn run(args: &[&str], threads: u64, phases: usize, steps: usize, seed: u64) {
    if !require(&NEEDS) {
        return;
    }
    println!("seed {seed}");
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 256 << 20, args);
    let dir = scratch.dir("mnt");
    let mut testers: Vec<Tester> =
        (0..threads).map(|n| Tester::new(&dir, &format!("t{n}"), seed + n)).collect();
    for phase in 0..phases {
        let mount = subject().mount(&image, &dir, &[]);
        std::thread::scope(|scope| {
            for tester in &mut testers {
                scope.spawn(move || {
                    if phase == 0 {
                        tester.begin();
                    }
                    tester.compare();
                    for _ in 0..steps {
                        tester.step();
                    }
                    tester.compare();
                    tester.close_all();
                });
            }
            if threads > 1 {
                for n in 0..2 {
                    let dir = &dir;
                    scope.spawn(move || crowd(dir, seed ^ (n + 1), steps / 2));
                }
            }
        });
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("phase {phase}, seed {seed}"));
    }
    let mount = Subject::Kernel.mount(&image, &dir, &[]);
    testers.iter_mut().for_each(Tester::compare);
    mount.unmount();
}

/// Noise in a shared directory. Outcomes depend on the others; only errors that cannot be explained count.
fn crowd(root: &Path, seed: u64, steps: usize) {
    use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, NotFound};
    let mut rng = SmallRng::seed_from_u64(seed);
    let shared = root.join("shared");
    let _ = std::fs::create_dir(&shared);
    for _ in 0..steps {
        let mut name = || shared.join(format!("n{}", rng.random_range(0..12)));
        let (a, b) = (name(), name());
        let done = match rng.random_range(0..8) {
            0 => std::fs::create_dir(&a),
            1 => std::fs::remove_dir(&a),
            2 => std::fs::remove_file(&a),
            3 => std::fs::rename(&a, &b),
            4 => std::fs::hard_link(&a, &b),
            5 => std::fs::read(&a).map(drop),
            6 => shared.read_dir().map(|d| d.for_each(|e| drop(e.expect("readdir")))),
            _ => std::fs::write(&a, vec![7; rng.random_range(0..30_000)]),
        };
        if let Err(e) = done {
            let explained =
                [AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, NotFound].contains(&e.kind());
            // EPERM is the answer to a hard link on a directory.
            assert!(explained || e.raw_os_error() == Some(1), "{} {}: {e}", a.display(), b.display());
        }
    }
}

#[test]
fn one_thread_4k() {
    run(&["-t", "ext4", "-b", "4096"], 1, 4, 15000 * times(), seed(1));
}

#[test]
fn one_thread_1k() {
    run(&["-t", "ext4", "-b", "1024"], 1, 4, 15000 * times(), seed(2));
}

#[test]
fn one_thread_inline_data() {
    run(&["-t", "ext4", "-b", "1024", "-O", "inline_data"], 1, 4, 15000 * times(), seed(3));
}

#[test]
fn one_thread_ext3() {
    run(&["-t", "ext3", "-b", "1024"], 1, 4, 15000 * times(), seed(4));
}

#[test]
fn one_thread_ext2() {
    run(&["-t", "ext2", "-b", "2048"], 1, 3, 15000 * times(), seed(5));
}

#[test]
fn many_threads_4k() {
    run(&["-t", "ext4"], 5, 3, 6000 * times(), seed(100));
}

#[test]
fn many_threads_1k_small_journal() {
    run(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 5, 3, 6000 * times(), seed(200));
}

#[test]
fn many_threads_data_journal() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4", "-b", "1024"]);
    let dir = scratch.dir("mnt");
    let mut testers: Vec<Tester> =
        (0..3).map(|n| Tester::new(&dir, &format!("t{n}"), seed(300) + n)).collect();
    for (phase, mode) in ["data=journal", "data=writeback", "data=ordered"].into_iter().enumerate() {
        let mount = subject().mount(&image, &dir, &[mode]);
        std::thread::scope(|scope| {
            for tester in &mut testers {
                scope.spawn(move || {
                    if phase == 0 {
                        tester.begin();
                    }
                    tester.compare();
                    for _ in 0..3000 * times() {
                        tester.step();
                    }
                    tester.close_all();
                });
            }
        });
        mount.unmount();
        e2fsck(&image).assert_clean(mode);
    }
}
