//! Crash after crash: one volume, killed again and again under load. Each time the log is recovered
//! by Extol, and now and then a copy by Linux and by e2fsck; what was promised in any life must
//! hold in all later ones.
//!
//! Some lives end with a kill during the unmount instead, and some recoveries are killed before one
//! may finish. `EXTOL_LIVES=n` sets the number of lives of each variant (`scripts/kill.sh`),
//! `EXTOL_ROUNDS=file` gets a line for each.

use extol_testkit::{
    CrashLoad, Image, KernelMount, Mounted, Need, Promises, Scratch, Subject, e2fsck, e2fsck_fix,
    extol, require, run, tool,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[path = "../superseded.rs"]
mod superseded;
use superseded::is_superseded;

fn number_of_lives() -> u64 {
    let given = std::env::var("EXTOL_LIVES").ok().and_then(|n| n.parse().ok());
    given.unwrap_or(if std::env::var_os("EXTOL_LONG").is_some() { 200 } else { 16 })
}

/// A line for `scripts/kill.sh`.
fn tell(line: &str) {
    if let Some(path) = std::env::var_os("EXTOL_ROUNDS") {
        let file = std::fs::File::options().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("the list of rounds");
    }
}

/// Unmounts, and kills the daemon before it may be ready. True if it was not.
fn kill_in_unmount(mount: Mounted, delay: Duration) -> bool {
    let dir = mount.path().to_owned();
    let pid = mount.as_extol().and_then(|m| m.pid()).expect("a daemon");
    let unmount = std::thread::spawn(move || run(tool("umount").arg(dir), Duration::from_secs(60)));
    std::thread::sleep(delay);
    // A process that has ended and was not waited for is a zombie.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let lived = !state.contains(") Z ");
    mount.crash();
    let _ = unmount.join().expect("umount");
    lived
}

/// Begins a recovery, by a mount or without one, and kills it before it may be ready. True if it
/// was not.
fn kill_in_recovery(image: &Image, dir: &Path, mounting: bool, delay: Duration) -> bool {
    let mut command = extol();
    command.args(if mounting { &["mount", "-f"][..] } else { &["replay"][..] });
    if let Some(journal) = &image.journal {
        command.arg("-o").arg(format!("journal_path={}", journal.display()));
    }
    command.arg(&image.path).args(mounting.then_some(dir));
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().expect("start extol");
    std::thread::sleep(delay);
    let lived = child.try_wait().expect("look at extol").is_none();
    let _ = child.kill();
    let began = Instant::now();
    while child.try_wait().expect("look at extol").is_none() {
        if began.elapsed() > Duration::from_secs(30) {
            // Ends its connection, and with that its wait.
            let _ = tool("umount").arg("-f").arg(dir).output();
            panic!("extol does not die of SIGKILL: it waits for its own mount");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = tool("umount").arg("-l").arg(dir).output();
    lived
}

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
    let subject = Subject::under_test();
    let scratch = Scratch::new();
    let image = image(&scratch);
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut kept: Vec<Promises> = Vec::new();
    for life in 0..number_of_lives() {
        let (mut in_recovery, mut in_unmount) = (0, 0);
        while life > 0 && subject.is_extol() && rng.random_bool(0.4) {
            let delay = Duration::from_micros(rng.random_range(500..25_000));
            in_recovery += u64::from(kill_in_recovery(&image, &dir, rng.random(), delay));
        }
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
        if subject.is_extol() && rng.random_bool(0.25) {
            kept.push(load.finish());
            let delay = Duration::from_micros(rng.random_range(500..40_000));
            in_unmount = u64::from(kill_in_unmount(mount, delay));
        } else {
            mount.crash();
            kept.push(load.finish());
        }
        let ask_e2fsck = life % 4 == 3 && !is_superseded(&image);
        let (by_linux, by_e2fsck) = (u64::from(life % 4 == 1), u64::from(ask_e2fsck));
        let promises = kept.last().map_or(0, |p| p.acknowledged);

        if life % 4 == 1 {
            let copy = image.copy_as("linux.img");
            let linux = KernelMount::mount(&copy, &other, &["noinit_itable"]);
            for promises in &kept {
                promises
                    .assert_kept(&other, &format!("life {life}, recovered by Linux, seed {seed}"));
            }
            linux.unmount();
            e2fsck(&copy).assert_clean("recovered by Linux");
            copy.remove();
        }
        if ask_e2fsck {
            let copy = image.copy_as("fsck.img");
            e2fsck_fix(&copy).assert_only_recovered(&format!("life {life}, seed {seed}"));
            let linux = KernelMount::mount(&copy, &other, &["noinit_itable"]);
            for promises in &kept {
                promises
                    .assert_kept(&other, &format!("life {life}, recovered by e2fsck, seed {seed}"));
            }
            linux.unmount();
            copy.remove();
        }
        // (Counted once it has been checked; the next life looks at it again.)
        tell(&format!("{seed} {promises} {in_recovery} {in_unmount} {by_linux} {by_e2fsck}"));
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

/// Most fsyncs are fast commits, and the rest of a small log goes round.
#[test]
fn fast_commits() {
    lives(
        mke2fs(&[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "fast_commit",
            "-J",
            "size=1,fast_commit_size=16",
        ]),
        &[],
        9,
    );
}

#[test]
fn fast_commits_in_an_external_log() {
    let image = |scratch: &Scratch| {
        let args = &["-t", "ext4", "-O", "fast_commit"];
        Image::mke2fs_external(scratch.path(), "a.img", 128 << 20, 8 << 20, 4096, args)
    };
    lives(image, &[], 10);
}

/// The kernel gathers writes, and sends them at an fsync.
#[test]
fn with_a_write_back_cache() {
    lives(mke2fs(&["-t", "ext4", "-O", "fast_commit"]), &["writeback_cache"], 11);
}
