//! `extol replay` does all that a mount does: afterwards there is nothing to find, for Extol's
//! checker and for e2fsck.
//!
//! The volumes are left behind by Linux (shut down by its ioctl) and by Extol (killed) while files
//! without a name are open and a file of many extents is being truncated.

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, Shutdown, dump_super, e2fsck, extol, require,
    run, run_ok, shutdown,
};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("fusermount3"),
];

/// Kinds of volumes: with and without an orphan file, fast commits, checksums, extents.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-O", "^orphan_file,^fast_commit"],
    &["-t", "ext4", "-O", "orphan_file,^fast_commit"],
    &["-t", "ext4", "-O", "^orphan_file,fast_commit"],
    &["-t", "ext4", "-O", "orphan_file,fast_commit"],
    &["-t", "ext4", "-O", "orphan_file,^metadata_csum,^64bit", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-I", "128"],
];

/// Leaves work for a recovery: files without a name that are open, one that is being truncated, and
/// some that are gone since the last sync. `stop` ends the mount while they are.
fn interrupt(dir: &Path, sync: &dyn Fn(), stop: impl FnOnce()) {
    let name = |nr: usize| dir.join(format!("f{nr}"));
    for nr in 0..60 {
        std::fs::write(name(nr), vec![nr as u8; nr * 3000]).expect("write");
    }
    std::os::unix::fs::symlink("x".repeat(200), dir.join("link")).expect("symlink");
    let split = OpenOptions::new().create(true).truncate(true).write(true).open(dir.join("split"));
    let split = split.expect("create");
    for nr in 0..3000 {
        split.write_all_at(b"x", nr * 8192).expect("write");
    }
    sync();
    let held: Vec<File> = (0..40).map(|nr| File::open(name(nr)).expect("open")).collect();
    for nr in 0..40 {
        std::fs::remove_file(name(nr)).expect("unlink");
    }
    sync();
    std::fs::remove_file(dir.join("link")).expect("unlink");
    for nr in 40..50 {
        std::fs::remove_file(name(nr)).expect("unlink");
    }
    File::open(name(50)).and_then(|file| file.sync_all()).expect("fsync");
    let truncate = std::thread::spawn(move || split.set_len(5000));
    std::thread::sleep(Duration::from_millis(3));
    stop();
    let _ = truncate.join().expect("a thread that truncates");
    drop(held);
}

/// Free blocks and inodes as the superblock says, and as the groups say.
fn free_counts(image: &Image) -> [(u64, u64); 2] {
    let number = |text: &str| text.trim().parse::<u64>().expect("a number");
    let text = run_ok(extol_testkit::tool("dumpe2fs").arg(&image.path));
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        number(line.and_then(|line| line.split(':').nth(1)).expect("a field"))
    };
    let (mut blocks, mut inodes) = (0, 0);
    for line in text.lines().filter(|line| line.contains(" free blocks, ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        blocks += number(words[0]);
        inodes += number(words[3]);
    }
    [(field("Free blocks"), field("Free inodes")), (blocks, inodes)]
}

fn verify(image: &Image, what: &str) {
    let mounts = |image: &Image| {
        let text = dump_super(image);
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        (line("Mount count"), line("Last mount time"), line("Last mounted on"))
    };
    let before = mounts(image);
    let said = run_ok(extol().arg("replay").arg(&image.path));
    let check = run(extol().arg("check").arg(&image.path), Duration::from_secs(60));
    let is_clean = check.success() && check.output.contains("clean: ");
    assert!(is_clean, "{what}: {said}\n{}", check.output);
    let fsck = e2fsck(image);
    fsck.assert_clean(what);
    assert!(!fsck.output.contains("orphan"), "{what}: {}", fsck.output);
    let [super_counts, group_counts] = free_counts(image);
    assert_eq!(
        super_counts, group_counts,
        "{what}: free blocks and inodes of superblock and groups"
    );
    assert_eq!(before, mounts(image), "{what}: a replay is no mount");
    assert!(said.contains("deleted or truncated files finished"), "{what}: {said}");
    let once = std::fs::read(&image.path).expect("read");
    run_ok(extol().arg("replay").arg(&image.path));
    assert!(
        once == std::fs::read(&image.path).expect("read"),
        "{what}: a second replay changes something"
    );
}

#[test]
fn after_linux() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for (kind, how) in KINDS.iter().flat_map(|kind| {
        [Shutdown::Now, Shutdown::FlushLog].into_iter().map(move |how| (kind, how))
    }) {
        let image = Image::mke2fs(scratch.path(), "linux.img", 128 << 20, kind);
        let dir = scratch.dir("linux");
        let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
        let root = File::open(&dir).expect("open the mount point");
        interrupt(&dir, &|| rustix::fs::syncfs(&root).expect("syncfs"), || shutdown(&dir, how));
        drop(root);
        mount.unmount();
        assert!(dump_super(&image).contains("needs_recovery"), "{kind:?}");
        verify(&image, &format!("Linux, {kind:?}, {how:?}"));
        image.remove();
    }
}

#[test]
fn after_extol() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for kind in KINDS {
        let image = Image::mke2fs(scratch.path(), "extol.img", 128 << 20, kind);
        let dir = scratch.dir("extol");
        let mut mount = ExtolMount::start(&image.path, &dir, &[]);
        let sync = || {
            run_ok(extol().arg("sync").arg(&dir));
        };
        interrupt(&dir, &sync, || mount.kill9());
        assert!(dump_super(&image).contains("needs_recovery"), "{kind:?}");
        verify(&image, &format!("Extol, {kind:?}"));
        image.remove();
    }
}

/// What is left after the log came home by other hands: orphans on a volume that needs no recovery.
#[test]
fn with_the_log_at_home() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    for kind in &KINDS[..2] {
        let image = Image::mke2fs(scratch.path(), "home.img", 128 << 20, kind);
        let dir = scratch.dir("home");
        let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
        let root = File::open(&dir).expect("open the mount point");
        interrupt(&dir, &|| rustix::fs::syncfs(&root).expect("syncfs"), || {
            shutdown(&dir, Shutdown::Now)
        });
        drop(root);
        mount.unmount();
        // (-n: it reads the bitmaps before it replays, and writeback may have brought newer
        // descriptors home than those.)
        let mut debugfs = extol_testkit::tool("debugfs");
        debugfs.args(["-n", "-w", "-R", "journal_run"]).arg(&image.path);
        let done = run(&mut debugfs, Duration::from_secs(60));
        assert!(!dump_super(&image).contains("needs_recovery"), "{kind:?}: {done:?}");
        verify(&image, &format!("log at home, {kind:?}"));
        image.remove();
    }
}
