//! Volumes that Linux crashed on: one copy is recovered by us, one by Linux, and both must be the
//! same and sound.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use extol::{Ext4, MountOptions, inspect_journal};
use extol_block::{FileDevice, SharedDevice};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, Shutdown, Tree, e2fsck, require, run_ok, shutdown, tool,
};
use rustix::fs::FallocateFlags;

fn ready() -> bool {
    require(&[
        Need::Root,
        Need::Loop,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("e2fsck"),
    ])
}

/// What is on the volume before the last full commit, and what fast commits do with it.
struct Load {
    name: &'static str,
    base: fn(&Path),
    fast: fn(&Path),
    /// Linux writes records of this that it cannot replay, or not well: new directories without
    /// links, and no mount at all with an inode that has no name, or (sometimes) with tree blocks.
    linux_is_wrong: bool,
}

fn write(path: impl AsRef<Path>, len: usize, seed: u8) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![seed; len]).unwrap();
    file
}

fn synced(path: impl AsRef<Path>, len: usize, seed: u8) {
    write(path, len, seed).sync_all().unwrap();
}

fn sync(path: impl AsRef<Path>) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn open(path: impl AsRef<Path>) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn nothing(_: &Path) {}

fn three_files(dir: &Path) {
    for i in 0..3u8 {
        write(dir.join(format!("f{i}")), 50_000, i + 1);
    }
}

/// Every other block mapped: a tree with blocks of its own.
fn fragmented(dir: &Path) {
    let file = File::create(dir.join("frag")).unwrap();
    for i in 0..400u64 {
        file.write_all_at(&[7; 1024], i * 8192).unwrap();
    }
}

fn loads() -> Vec<Load> {
    let load = |name, base, fast| {
        let wrong = ["deep tree", "unnamed", "directories", "tmpfile"];
        Load { name, base, fast, linux_is_wrong: wrong.contains(&name) }
    };
    vec![
        load("create", nothing, |dir| {
            for i in 0..4u8 {
                synced(dir.join(format!("new-{i}")), 10_000 * usize::from(i), i + 1);
            }
        }),
        load("append", three_files, |dir| {
            for i in 0..3u8 {
                let file = OpenOptions::new().append(true).open(dir.join("f1")).unwrap();
                (&file).write_all(&vec![i + 10; 30_000]).unwrap();
                file.sync_all().unwrap();
            }
        }),
        load("truncate", three_files, |dir| {
            open(dir.join("f0")).set_len(100).unwrap();
            open(dir.join("f1")).set_len(200_000).unwrap();
            sync(dir.join("f0"));
            sync(dir.join("f1"));
            let file = open(dir.join("f2"));
            file.set_len(10_000).unwrap();
            file.set_len(60_000).unwrap();
            file.write_all_at(&[9; 5000], 40_000).unwrap();
            file.sync_all().unwrap();
        }),
        load("punch", three_files, |dir| {
            let file = open(dir.join("f2"));
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, 9000, 22_000).unwrap();
            file.sync_all().unwrap();
        }),
        load("unwritten", three_files, |dir| {
            let file = open(dir.join("f0"));
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 300_000).unwrap();
            file.sync_all().unwrap();
            file.write_all_at(&[8; 4096], 102_400).unwrap();
            file.sync_all().unwrap();
        }),
        load("rename", three_files, |dir| {
            fs::rename(dir.join("f0"), dir.join("f1")).unwrap();
            sync(dir.join("f1"));
            fs::rename(dir.join("f2"), dir.join("g2")).unwrap();
            synced(dir.join("f2"), 3000, 5);
        }),
        load("replace", three_files, |dir| {
            for round in 0..3u8 {
                synced(dir.join("tmp"), 20_000, round + 20);
                fs::rename(dir.join("tmp"), dir.join("f1")).unwrap();
                sync(dir.join("f1"));
            }
        }),
        load("links", three_files, |dir| {
            fs::hard_link(dir.join("f0"), dir.join("h0")).unwrap();
            sync(dir.join("h0"));
            fs::remove_file(dir.join("f0")).unwrap();
            fs::remove_file(dir.join("f2")).unwrap();
            sync(dir.join("h0"));
        }),
        load(
            "many names",
            |dir| fs::create_dir(dir.join("d")).unwrap(),
            |dir| {
                for i in 0..120u8 {
                    let name = format!("{}-{i}", "long-".repeat(20));
                    synced(dir.join("d").join(name), 100, i);
                }
            },
        ),
        load("deep tree", fragmented, |dir| {
            let file = open(dir.join("frag"));
            for i in 0..300u64 {
                file.write_all_at(&[3; 1024], i * 8192 + 4096).unwrap();
            }
            file.sync_all().unwrap();
            file.set_len(900_000).unwrap();
            file.sync_all().unwrap();
        }),
        load("unnamed", three_files, |dir| {
            // A file that loses its name, and one that was never durable.
            let gone = open(dir.join("f0"));
            fs::remove_file(dir.join("f0")).unwrap();
            write(dir.join("short"), 5000, 3);
            fs::remove_file(dir.join("short")).unwrap();
            synced(dir.join("kept"), 5000, 4);
            drop(gone);
        }),
        load("directories", three_files, |dir| {
            fs::create_dir(dir.join("d")).unwrap();
            synced(dir.join("d/x"), 5000, 4);
            fs::create_dir(dir.join("d/e")).unwrap();
            synced(dir.join("d/e/y"), 100, 4);
            synced(dir.join("z"), 100, 4);
        }),
        load("tmpfile", three_files, |dir| {
            let file =
                OpenOptions::new().write(true).custom_flags(libc_tmpfile()).open(dir).unwrap();
            (&file).write_all(&[5; 9000]).unwrap();
            synced(dir.join("other"), 100, 4);
        }),
        load("attributes", three_files, |dir| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(dir.join("f0"), fs::Permissions::from_mode(0o640)).unwrap();
            std::os::unix::fs::chown(dir.join("f1"), Some(1000), Some(100_000)).unwrap();
            sync(dir.join("f0"));
            sync(dir.join("f1"));
        }),
    ]
}

fn libc_tmpfile() -> i32 {
    i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).unwrap()
}

fn device(image: &Image, write: bool) -> SharedDevice {
    let how = if write {
        extol_block::OpenOptions::read_write()
    } else {
        extol_block::OpenOptions::read_only()
    };
    Arc::new(FileDevice::open(&image.path, &how).unwrap())
}

/// Opens and closes a volume with Extol.
fn recover(image: &Image, options: &str) {
    let options = MountOptions::parse(options).unwrap();
    let volume = Ext4::open(device(image, !options.access.read_only), &options).unwrap();
    volume.unmount().unwrap();
}

/// What the kernel shows, if it can mount the volume.
fn tree(image: &Image, scratch: &Scratch, name: &str) -> Result<Tree, String> {
    let mount = KernelMount::try_mount(image, &scratch.dir(name), &[])?;
    let tree = timeless(Tree::of(mount.path()));
    mount.unmount();
    Ok(tree)
}

/// Without the times of directories: no record has them. Linux gives a directory the time of the
/// replay, we that of the last name whose record we saw.
fn timeless(mut tree: Tree) -> Tree {
    tree.nodes.values_mut().filter(|node| node.kind == 'd').for_each(|node| node.mtime = (0, 0));
    tree
}

/// A volume on which Linux crashed behind fast commits, and what it showed just before.
fn crashed(scratch: &Scratch, load: &Load, block: &str) -> (Image, Tree) {
    let image = Image::mke2fs(
        scratch.path(),
        &format!("{}.img", load.name.replace(' ', "-")),
        24 << 20,
        &["-t", "ext4", "-b", block, "-O", "fast_commit"],
    );
    let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
    (load.base)(mount.path());
    run_ok(tool("sync").arg("-f").arg(mount.path()));
    // The first one after a mount is a full one.
    synced(mount.path().join("first"), 10, 1);
    (load.fast)(mount.path());
    let live = timeless(Tree::of(mount.path()));
    shutdown(mount.path(), Shutdown::Now);
    mount.unmount();
    (image, live)
}

/// Everything that was there at the last fsync is there: a fast commit of Linux holds all changes
/// up to it.
#[test]
fn as_linux_left_them_and_recovers_them() {
    if !ready() {
        return;
    }
    let scratch = Scratch::in_memory();
    let mut with_fast_commits = 0;
    for (load, block) in loads().iter().zip(["1024", "4096"].iter().cycle()) {
        let what = format!("{} with blocks of {block}", load.name);
        let (image, live) = crashed(&scratch, load, block);
        let report = inspect_journal(&device(&image, false), &MountOptions::default()).unwrap();
        with_fast_commits += u32::from(report.recovery.fast_commit_count > 0);
        assert_eq!(report.recovery.refused, None, "{what}");

        let before = fs::read(&image.path).unwrap();
        recover(&image, "ro");
        assert!(fs::read(&image.path).unwrap() == before, "{what}: changed by reading");

        let theirs = image.copy_as("theirs.img");
        recover(&image, "");
        e2fsck(&image).assert_clean(&what);
        let ours = tree(&image, &scratch, "ours").unwrap();
        ours.assert_same(&live, &format!("{what}: ours"), "before the crash");
        match tree(&theirs, &scratch, "theirs") {
            // Kernels differ in what they can replay of their own records.
            _ if load.linux_is_wrong => {}
            Ok(linux) => ours.assert_same(&linux, &format!("{what}: ours"), "Linux"),
            Err(error) => panic!("{what}: {error}"),
        }
        image.remove();
        theirs.remove();
    }
    assert!(with_fast_commits >= 12, "{with_fast_commits} volumes with fast commits");
}
