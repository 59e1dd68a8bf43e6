//! Random operations against models: one file (`fsx`) and a tree (`tree`), by one thread and by
//! many, with remounts and crashes in between; on mounts of Extol and on the library.
//!
//! `EXTOL_SEED=n` runs that seed; `EXTOL_LONG=1` runs many seeds and longer lists.
//! `EXTOL_TEST_SUBJECT=kernel` runs the same on Linux, which must pass as well.

use extol_conformance::known::Side;
use extol_conformance::tree::Load;
use extol_conformance::{Place, fsx, tree};
use extol_testkit::{Need, Subject, require};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];

fn place(side: Side, mke2fs: &'static [&'static str], options: &'static str) -> Place {
    Place { side, subject: Subject::under_test(), mke2fs, options }
}

fn long() -> bool {
    std::env::var_os("EXTOL_LONG").is_some()
}

/// Seeds of a run, and so many operations.
fn seeds(first: u64, many: u64) -> std::ops::Range<u64> {
    match std::env::var("EXTOL_SEED").ok().and_then(|s| s.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None if long() => first..first + many,
        None => first..first + 1,
    }
}

fn run_fsx(side: Side, mke2fs: &'static [&'static str], options: &'static str) {
    if !require(&NEEDS) {
        return;
    }
    let place = place(side, mke2fs, options);
    let mut done = 0;
    for seed in seeds(1, 10) {
        done += fsx::run(&place, seed, if long() { 3000 } else { 1000 })
            .unwrap_or_else(|e| panic!("{e}"));
    }
    println!("fsx on {place}: {done} operations");
}

fn run_tree(side: Side, mke2fs: &'static [&'static str], options: &'static str, load: Load) {
    if !require(&NEEDS) {
        return;
    }
    let place = place(side, mke2fs, options);
    let load = Load { rounds: if long() { load.rounds * 3 } else { load.rounds }, ..load };
    let mut done = 0;
    for seed in seeds(1, 4) {
        done += tree::run(&place, seed, load).unwrap_or_else(|e| panic!("{e}"));
    }
    println!("tree on {place}: {done} operations");
}

const ONE: Load = Load { threads: 1, rounds: 6, steps: 1000 };
const MANY: Load = Load { threads: 4, rounds: 4, steps: 500 };

macro_rules! places {
    ($($test:ident: $mke2fs:expr, $options:expr;)*) => {
        mod fsx_library {
            $(#[test] fn $test() { super::run_fsx(super::Side::Library, $mke2fs, $options); })*
        }
        mod fsx_mount {
            $(#[test] fn $test() { super::run_fsx(super::Side::Mount, $mke2fs, $options); })*
        }
        mod tree_library {
            $(#[test] fn $test() {
                super::run_tree(super::Side::Library, $mke2fs, $options, super::ONE);
            })*
        }
        mod tree_mount {
            $(#[test] fn $test() {
                super::run_tree(super::Side::Mount, $mke2fs, $options, super::ONE);
            })*
        }
        mod many_library {
            $(#[test] fn $test() {
                super::run_tree(super::Side::Library, $mke2fs, $options, super::MANY);
            })*
        }
        mod many_mount {
            $(#[test] fn $test() {
                super::run_tree(super::Side::Mount, $mke2fs, $options, super::MANY);
            })*
        }
    };
}

places! {
    ext4: &["-t", "ext4", "-b", "4096"], "";
    ext4_1k: &["-t", "ext4", "-b", "1024", "-J", "size=1"], "";
    inline_data: &["-t", "ext4", "-b", "4096", "-O", "inline_data"], "";
    ext3: &["-t", "ext3", "-b", "1024"], "";
    ext2: &["-t", "ext2", "-b", "2048"], "";
    data_journal: &["-t", "ext4", "-b", "4096"], "data=journal";
}

/// The same contents with fast commits. (`tree` expects changes of names in their order, which they
/// do not keep: `testing/crashkit` has the rules for them, and its loads.)
mod fast_commit {
    const MKE2FS: &[&str] =
        &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", "size=1,fast_commit_size=16"];

    #[test]
    fn fsx_library() {
        super::run_fsx(super::Side::Library, MKE2FS, "");
    }

    #[test]
    fn fsx_mount() {
        super::run_fsx(super::Side::Mount, MKE2FS, "");
    }

    /// Full commits keep the order, also when the volume has fast commits.
    #[test]
    fn tree_without() {
        super::run_tree(super::Side::Library, MKE2FS, "nofast_commit", super::ONE);
    }
}
