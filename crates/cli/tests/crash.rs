//! Crash after crash: one volume, killed again and again under load. Each time the log is recovered by Extol, and now
//! and then a copy by Linux and by e2fsck; what was promised in any life must hold in all later ones.

use extol_testkit::{
    CrashLoad, Image, KernelMount, Need, Promises, Scratch, Subject, e2fsck, e2fsck_fix, require,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

fn lives(image: impl Fn(&Scratch) -> Image, options: &[&str], seed: u64) {
    let needs = [
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
    ];
    if !require(&needs) {
        return;
    }
    let subject = Subject::under_test(env!("CARGO_BIN_EXE_extol"));
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut kept: Vec<Promises> = Vec::new();
    for life in 0..if std::env::var("EXTOL_LONG").is_ok() { 200 } else { 16 } {
        let mount = subject.mount(&image, &dir, options);
        for (n, promises) in kept.iter().enumerate() {
            promises.assert_kept(&dir, &format!("life {life}, promises of life {n}, seed {seed}"));
        }
        // Old work makes room.
        while kept.len() > 3 {
            kept.remove(0).forget(&dir);
        }
        let load = CrashLoad::start(&dir, rng.random_range(1..6), 15, seed << 8 | life);
        load.wait_for(rng.random_range(1..150), Duration::from_secs(120));
        if !subject.is_extol() {
            load.freeze();
        }
        mount.crash();
        kept.push(load.finish());

        if life % 4 == 1 {
            let copy = image.copy_as("linux.img");
            let linux = KernelMount::mount(&copy, &other, &["noinit_itable"]);
            for promises in &kept {
                promises.assert_kept(&other, &format!("life {life}, recovered by Linux, seed {seed}"));
            }
            linux.unmount();
            e2fsck(&copy).assert_clean("recovered by Linux");
            copy.remove();
        }
        if life % 4 == 3 {
            let copy = image.copy_as("fsck.img");
            e2fsck_fix(&copy).assert_only_recovered(&format!("life {life}, seed {seed}"));
            let linux = KernelMount::mount(&copy, &other, &["noinit_itable"]);
            for promises in &kept {
                promises.assert_kept(&other, &format!("life {life}, recovered by e2fsck, seed {seed}"));
            }
            linux.unmount();
            copy.remove();
        }
    }
    let mount = subject.mount(&image, &dir, options);
    for promises in &kept {
        promises.assert_kept(&dir, &format!("at last, seed {seed}"));
    }
    mount.unmount();
    e2fsck(&image).assert_clean("at last");
}

fn mke2fs<'a>(args: &'a [&'a str]) -> impl Fn(&Scratch) -> Image + 'a {
    move |scratch| Image::mke2fs(scratch.path(), "a.img", 128 << 20, args)
}

#[test]
fn ordered() {
    lives(mke2fs(&["-t", "ext4"]), &[], 1);
}

/// A log of 1 MiB wraps and is checkpointed all the time.
#[test]
fn small_log() {
    lives(mke2fs(&["-t", "ext4", "-b", "1024", "-J", "size=1"]), &[], 2);
}

#[test]
fn data_in_the_log() {
    lives(mke2fs(&["-t", "ext4", "-b", "4096", "-J", "size=8"]), &["data=journal"], 3);
}

#[test]
fn asynchronous_commit() {
    lives(mke2fs(&["-t", "ext4"]), &["data=writeback", "journal_async_commit"], 4);
}

#[test]
fn without_checksums() {
    lives(mke2fs(&["-t", "ext3", "-b", "1024"]), &[], 5);
}

#[test]
fn log_checksums_without_metadata_checksums() {
    lives(mke2fs(&["-t", "ext4", "-O", "^metadata_csum"]), &["journal_checksum"], 6);
}

#[test]
fn external_log() {
    let image = |scratch: &Scratch| {
        Image::mke2fs_external(scratch.path(), "a.img", 128 << 20, 8 << 20, 4096, &["-t", "ext4"])
    };
    lives(image, &[], 7);
}

#[test]
fn small_files_inside_inodes() {
    lives(mke2fs(&["-t", "ext4", "-b", "1024", "-O", "inline_data,orphan_file"]), &["commit=1"], 8);
}
