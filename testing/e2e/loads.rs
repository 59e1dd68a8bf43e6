//! Programs in common use: dbench, postmark, fio with verification, and a source tree unpacked by
//! tar. Each ends with a clean e2fsck.

use extol_testkit::{
    Finished, Image, KernelMount, Mounted, Need, Scratch, Subject, Tree, e2fsck, require, run,
    run_ok, tool,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

fn ready(program: &'static str) -> bool {
    require(&[
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool(program),
    ])
}

fn long() -> bool {
    std::env::var("EXTOL_LONG").is_ok()
}

fn mounted(scratch: &Scratch, size: u64, args: &[&str], options: &[&str]) -> (Image, Mounted) {
    let image = Image::mke2fs(scratch.path(), "a.img", size, args);
    let subject = Subject::under_test();
    let mount = subject.mount(&image, &scratch.dir("mnt"), options);
    (image, mount)
}

#[track_caller]
fn succeeded(done: &Finished) {
    assert!(done.success(), "{} ended with {:?}:\n{}", done.command, done.code, done.output);
}

#[test]
fn dbench() {
    if !ready("dbench") {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 1 << 30, &["-t", "ext4"], &[]);
    let seconds = if long() { "300" } else { "12" };
    let mut command = tool("dbench");
    command.args(["-t", seconds, "-D"]).arg(mount.path()).arg("6");
    let done = run(&mut command, LIMIT * 2);
    succeeded(&done);
    assert!(done.output.contains("Throughput"), "{}", done.output);
    mount.unmount();
    e2fsck(&image).assert_clean("after dbench");
}

/// The same with every write synchronous, which makes each operation an fsync.
#[test]
fn dbench_synchronous() {
    if !ready("dbench") {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 512 << 20, &["-t", "ext4", "-b", "1024"], &[]);
    let mut command = tool("dbench");
    command
        .args(["-s", "-S", "-t", if long() { "120" } else { "5" }, "-D"])
        .arg(mount.path())
        .arg("4");
    let done = run(&mut command, LIMIT);
    succeeded(&done);
    mount.unmount();
    e2fsck(&image).assert_clean("after synchronous dbench");
}

#[test]
fn postmark() {
    if !ready("postmark") {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 512 << 20, &["-t", "ext4"], &[]);
    let (files, transactions) = if long() { (30_000, 200_000) } else { (5000, 20_000) };
    let script = format!(
        "set location {}\n\
         set number {files}\n\
         set transactions {transactions}\n\
         set subdirectories 20\n\
         set size 500 20000\n\
         set seed 7\n\
         set buffering false\n\
         run\n\
         quit\n",
        mount.path().display()
    );
    let config = scratch.join("postmark.cfg");
    std::fs::write(&config, script).unwrap();
    let done = run(tool("postmark").arg(&config), LIMIT * 2);
    succeeded(&done);
    assert!(
        done.output.contains("transactions") && !done.output.contains("Error"),
        "{}",
        done.output
    );
    let left = mount
        .path()
        .read_dir()
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name() != "lost+found")
        .count();
    assert_eq!(left, 0, "postmark deletes all it made");
    mount.unmount();
    e2fsck(&image).assert_clean("after postmark");
}

/// One fio job file: its own section lines, verified while running and by a second run after a
/// remount.
fn fio(args: &[&str], options: &[&str], job: &str) {
    if !ready("fio") {
        return;
    }
    let scratch = Scratch::new();
    let (image, mount) = mounted(&scratch, 512 << 20, args, options);
    let dir = mount.path().to_owned();
    let start = |more: &[&str]| {
        let mut command = tool("fio");
        command.current_dir(scratch.path());
        command.args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randrepeat=1",
            "--fallocate=none",
            "--group_reporting",
        ]);
        command
            .arg(format!("--directory={}", dir.display()))
            .args(more)
            .args(job.split_whitespace());
        let done = run(&mut command, LIMIT);
        succeeded(&done);
        assert!(!done.output.contains("verify: bad"), "{}", done.output);
    };
    start(&[]);
    mount.unmount();
    e2fsck(&image).assert_clean("after fio");
    let subject = Subject::under_test();
    let mount = subject.mount(&image, &dir, options);
    start(&["--verify_only"]);
    mount.unmount();
    let mount = KernelMount::mount(&image, &dir, &[]);
    start(&["--verify_only"]);
    mount.unmount();
}

#[test]
fn fio_random_writes() {
    fio(
        &["-t", "ext4"],
        &[],
        "--name=random --rw=randwrite --bs=4k --size=24m --numjobs=4 --ioengine=psync --fsync=64 \
            --end_fsync=1",
    );
}

#[test]
fn fio_small_blocks() {
    fio(
        &["-t", "ext4", "-b", "1024"],
        &[],
        "--name=mixed --rw=randwrite --bs=1536 --size=9m --numjobs=3 --ioengine=psync \
            --end_fsync=1",
    );
}

#[test]
fn fio_mmap() {
    fio(
        &["-t", "ext4"],
        &[],
        "--name=map --rw=randwrite --bs=4k --size=16m --numjobs=2 --ioengine=mmap --end_fsync=1",
    );
}

#[test]
fn fio_direct() {
    fio(
        &["-t", "ext4"],
        &[],
        "--name=direct --rw=randwrite --bs=4k --size=16m --numjobs=2 --direct=1 --ioengine=libaio \
            --iodepth=16 --end_fsync=1",
    );
}

#[test]
fn fio_block_mapped() {
    fio(
        &["-t", "ext3", "-b", "1024"],
        &[],
        "--name=sequential --rw=write --bs=64k --size=70m --ioengine=psync --end_fsync=1",
    );
}

#[test]
fn fio_data_journal() {
    fio(
        &["-t", "ext4"],
        &["data=journal"],
        "--name=journal --rw=randwrite --bs=4k --size=12m --numjobs=2 --ioengine=psync --fsync=32 \
            --end_fsync=1",
    );
}

/// Rust sources of the dependencies, or of this repository where they are not at hand.
fn source_tree() -> PathBuf {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cargo")));
    let registry = home.map(|h| h.join("registry/src")).filter(|p| p.is_dir());
    registry.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

/// tar writes the archive from Linux and unpacks it on the mount; both trees must be the same, also
/// to Linux, and the volume must be empty after `rm -r`.
#[test]
fn a_source_tree_from_tar() {
    if !ready("tar") {
        return;
    }
    let scratch = Scratch::new();
    let archive = scratch.join("sources.tar");
    let source = source_tree();
    run_ok(
        tool("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("--exclude=./target")
            .arg("-C")
            .arg(&source)
            .arg("."),
    );
    // Room for three copies, whatever tree this machine has: files take whole blocks, small ones
    // need many inodes.
    let size = (std::fs::metadata(&archive).unwrap().len() * 6).max(512 << 20);
    let (image, mount) = mounted(&scratch, size, &["-t", "ext4", "-i", "4096"], &[]);
    let unpack = |dir: &Path| {
        std::fs::create_dir(dir).unwrap();
        run_ok(tool("tar").arg("-xf").arg(&archive).arg("-C").arg(dir));
    };
    let reference = scratch.join("reference");
    unpack(&reference);
    let expected = Tree::of(&reference);
    std::fs::remove_dir_all(&reference).unwrap();
    let on_mount = mount.path().join("sources");
    unpack(&on_mount);
    // Two at once into other directories, and one of them is removed meanwhile.
    std::thread::scope(|scope| {
        for n in 0..2 {
            let dir = mount.path().join(format!("copy{n}"));
            scope.spawn(move || {
                unpack(&dir);
                std::fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    expected.assert_same(&Tree::of(&on_mount), "the reference", "the tree on the mount");
    mount.unmount();
    e2fsck(&image).assert_clean("after tar");
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &[]);
    expected.assert_same(&Tree::of(&on_mount), "the reference", "the tree as Linux sees it");
    mount.unmount();
    let mount = Subject::under_test().mount(&image, &dir, &[]);
    std::fs::remove_dir_all(&on_mount).unwrap();
    mount.unmount();
    e2fsck(&image).assert_clean("after rm -r");
}
