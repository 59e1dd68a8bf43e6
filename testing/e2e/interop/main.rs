//! Extol, Linux and e2fsck on the same volumes.
//!
//! For every block size and every kind of volume in the matrix three things are shown:
//!
//! - `tree`: Extol makes a tree; it is the tree that Linux makes from the same instructions;
//!   `e2fsck -fn` is clean; Linux mounts the volume and sees it byte for byte.
//! - `linux_crash`: Linux works on the volume and dies in the middle (shutdown ioctl), or the image
//!   is copied while it is mounted; Extol recovers and sees everything that fsync and sync
//!   promised.
//! - `own_crash`: the subject dies under parallel load (SIGKILL). It recovers its volume itself;
//!   e2fsck recovers a copy; Linux recovers another copy; each finds every acknowledged file with
//!   its contents.

mod kinds;

use extol_testkit::{
    CrashLoad, Image, KernelMount, Need, Promises, Scratch, Shutdown, Subject, Tree, TreeSpec,
    e2fsck, e2fsck_fix, make_tree, require, shutdown, sync_tree,
};
use kinds::Kind;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const NEEDS: [Need; 7] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("e2fsck"),
    Need::Tool("debugfs"),
];

fn subject() -> Subject {
    Subject::under_test()
}

/// What is on a volume of this kind. A FUSE mount with write-back caching shows the times that were
/// set, and not what a small inode makes of them, so those are compared as far as the inode holds
/// them.
fn look(kind: Kind, dir: &Path) -> Tree {
    let tree = Tree::of(dir);
    if kind == Kind::Inode128 { tree.with_coarse_times() } else { tree }
}

/// The tree that Linux makes on a volume of this kind. What it writes behind a cut in an inode it
/// loses as soon as its pages are gone (see `regrow`), so the oracle of volumes with inline_data
/// has none: the result is the same there.
fn oracle(scratch: &Scratch, kind: Kind, block_size: u32, size: u64, spec: &TreeSpec) -> Tree {
    let on = if spec.regrow && kind == Kind::InlineData { Kind::Ext4 } else { kind };
    let image = on.make(scratch.path(), "oracle.img", block_size, size);
    let mount = KernelMount::mount(&image, &scratch.dir("oracle"), &["noinit_itable"]);
    make_tree(mount.path(), spec);
    // Linux 6.18 does not find data that is still in memory with SEEK_DATA on block-mapped files.
    sync(mount.path());
    mount.unmount();
    // From the volume, not from memory.
    let mount = KernelMount::mount(&image, &scratch.dir("oracle"), &["noinit_itable"]);
    let tree = look(kind, mount.path());
    mount.unmount();
    image.remove();
    tree
}

fn tree(kind: Kind, block_size: u32) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let long = std::env::var("EXTOL_LONG").is_ok();
    let (mut spec, size) = match (kind, block_size) {
        _ if long => (TreeSpec::full(42), 768 * MIB),
        // One cell of each directory depth in full size; the others in a size that keeps the run
        // short.
        (Kind::Ext4, 1024) => (TreeSpec::full(42), 512 * MIB),
        (Kind::Ext4 | Kind::Ext3, 4096) => (TreeSpec::standard(43), 384 * MIB),
        _ => (
            TreeSpec { files: 400, wide: 900, large: 6 * MIB, ..TreeSpec::standard(44) },
            256 * MIB,
        ),
    };
    // With Linux as the subject the volume holds what Linux makes of it, see `regrow`.
    spec.regrow = subject().is_extol() || kind != Kind::InlineData;
    let expected = oracle(&scratch, kind, block_size, size, &spec);

    let image = kind.make(scratch.path(), "a.img", block_size, size);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    make_tree(mount.path(), &spec);
    if !subject().is_extol() {
        sync(mount.path());
    }
    expected.assert_same(&look(kind, mount.path()), "the tree by Linux", "the tree by the subject");
    mount.unmount();
    e2fsck(&image).assert_clean("after the subject made the tree");

    let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &["noinit_itable"]);
    expected.assert_same(
        &look(kind, mount.path()),
        "the tree by Linux",
        "the subject's tree as Linux sees it",
    );
    mount.unmount();

    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    expected.assert_same(
        &look(kind, mount.path()),
        "the tree by Linux",
        "the subject's tree after a remount",
    );
    remove_all(mount.path());
    mount.unmount();
    e2fsck(&image).assert_clean("after the subject deleted the tree");
}

fn remove_all(root: &Path) {
    for entry in root.read_dir().expect("read the root") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|n| n == "lost+found") {
            continue;
        }
        let removed = if path.symlink_metadata().expect("lstat").is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        removed.unwrap_or_else(|e| panic!("remove {}: {e}", path.display()));
    }
}

fn sync(dir: &Path) {
    rustix::fs::syncfs(std::fs::File::open(dir).expect("open the mount")).expect("syncfs");
}

/// The part of a tree below one directory.
fn below(tree: &Tree, dir: &str) -> Tree {
    Tree {
        nodes: tree
            .nodes
            .iter()
            .filter(|(p, _)| p.starts_with(dir))
            .map(|(p, n)| (p.clone(), n.clone()))
            .collect(),
    }
}

fn linux_crash(kind: Kind, block_size: u32) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = kind.make(scratch.path(), "a.img", block_size, 192 * MIB);
    let dir = scratch.dir("mnt");

    // A copy taken while Linux has it mounted, just after a sync.
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    let stay = dir.join("stay");
    std::fs::create_dir(&stay).expect("mkdir");
    make_tree(&stay, &TreeSpec { regrow: kind != Kind::InlineData, ..TreeSpec::small(1) });
    sync(&dir);
    let copy = image.copy_as("copy.img");
    let before = look(kind, &dir);
    let by_subject = subject().mount(&copy, &scratch.dir("copy"), &[]);
    before.assert_same(
        &look(kind, by_subject.path()),
        "Linux's live tree",
        "the copy as the subject sees it",
    );
    by_subject.unmount();
    e2fsck(&copy).assert_clean("the copy after its recovery");
    copy.remove();

    // Death in the middle of parallel work. Without a journal there is nothing to recover by, so
    // there the work ends first.
    let load = CrashLoad::start(&dir, 3, 25, 11);
    load.wait_for(120, Duration::from_secs(60));
    let promises = if kind.has_journal() {
        load.freeze();
        shutdown(&dir, Shutdown::Now);
        load.finish()
    } else {
        let promises = load.finish();
        sync(&dir);
        shutdown(&dir, Shutdown::Now);
        promises
    };
    mount.unmount();
    check_recovered(&scratch, kind, &image, &promises, &below(&before, "stay"), "after Linux died");
}

/// The subject mounts a volume that was in use, finds what was promised, and leaves a clean volume
/// behind.
fn check_recovered(
    scratch: &Scratch,
    kind: Kind,
    image: &Image,
    promises: &Promises,
    stay: &Tree,
    what: &str,
) {
    let mount = subject().mount(image, &scratch.dir("mnt"), &[]);
    promises.assert_kept(mount.path(), what);
    stay.assert_same(
        &below(&look(kind, mount.path()), "stay"),
        "the tree before",
        "the tree after the recovery",
    );
    // The recovered volume is usable, not only readable.
    std::fs::write(mount.path().join("after"), b"work goes on").expect("write after a recovery");
    mount.unmount();
    e2fsck(image).assert_clean(what);
}

fn own_crash(kind: Kind, block_size: u32) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = kind.make(scratch.path(), "a.img", block_size, 192 * MIB);
    let dir = scratch.dir("mnt");
    let mount = subject().mount(&image, &dir, &[]);
    let stay = dir.join("stay");
    std::fs::create_dir(&stay).expect("mkdir");
    make_tree(
        &stay,
        &TreeSpec {
            regrow: subject().is_extol() || kind != Kind::InlineData,
            ..TreeSpec::small(2)
        },
    );
    sync_tree(&dir);
    let before = below(&look(kind, &dir), "stay");

    let load = CrashLoad::start(&dir, 4, 40, 13);
    let steps = if std::env::var("EXTOL_LONG").is_ok() { 5000 } else { 250 };
    load.wait_for(steps, Duration::from_secs(120));
    let promises = if kind.has_journal() {
        if !subject().is_extol() {
            load.freeze();
        }
        mount.crash();
        load.finish()
    } else {
        let promises = load.finish();
        sync_tree(&dir);
        mount.crash();
        promises
    };

    // e2fsck recovers a copy.
    let copy = image.copy_as("fsck.img");
    let report = e2fsck_fix(&copy);
    if kind.has_journal() {
        report.assert_only_recovered("a copy recovered by e2fsck");
    } else {
        assert!(report.code & !1 == 0, "e2fsck cannot repair a copy:\n{}", report.output);
    }
    e2fsck(&copy).assert_clean("a copy recovered by e2fsck");
    let kernel = KernelMount::mount(&copy, &scratch.dir("fsck"), &["noinit_itable"]);
    promises.assert_kept(kernel.path(), "after e2fsck recovered");
    before.assert_same(
        &below(&look(kind, kernel.path()), "stay"),
        "the tree before",
        "the tree after e2fsck recovered",
    );
    kernel.unmount();
    copy.remove();

    // Linux recovers a copy.
    if kind.has_journal() {
        let copy = image.copy_as("linux.img");
        let kernel = KernelMount::mount(&copy, &scratch.dir("linux"), &["noinit_itable"]);
        promises.assert_kept(kernel.path(), "after Linux recovered");
        before.assert_same(
            &below(&look(kind, kernel.path()), "stay"),
            "the tree before",
            "the tree after Linux recovered",
        );
        kernel.unmount();
        e2fsck(&copy).assert_clean("a copy recovered by Linux");
        copy.remove();
    }

    // The subject recovers the original.
    check_recovered(&scratch, kind, &image, &promises, &before, "after the subject died");
}

macro_rules! matrix {
    ($($name:ident: $kind:ident $bs:literal;)+) => {
        $(mod $name {
            use super::Kind;

            #[test]
            fn tree() {
                super::tree(Kind::$kind, $bs);
            }

            #[test]
            fn linux_crash() {
                super::linux_crash(Kind::$kind, $bs);
            }

            #[test]
            fn own_crash() {
                super::own_crash(Kind::$kind, $bs);
            }
        })+
    };
}

matrix! {
    ext2_1k: Ext2 1024;
    ext2_2k: Ext2 2048;
    ext2_4k: Ext2 4096;
    ext3_1k: Ext3 1024;
    ext3_2k: Ext3 2048;
    ext3_4k: Ext3 4096;
    ext4_1k: Ext4 1024;
    ext4_2k: Ext4 2048;
    ext4_4k: Ext4 4096;
    without_metadata_csum_1k: NoChecksums 1024;
    without_metadata_csum_2k: NoChecksums 2048;
    without_metadata_csum_4k: NoChecksums 4096;
    inline_data_1k: InlineData 1024;
    inline_data_2k: InlineData 2048;
    inline_data_4k: InlineData 4096;
    external_journal_1k: ExternalJournal 1024;
    external_journal_2k: ExternalJournal 2048;
    external_journal_4k: ExternalJournal 4096;
    inodes_of_128_bytes_1k: Inode128 1024;
    inodes_of_128_bytes_4k: Inode128 4096;
    meta_bg_1k: MetaBg 1024;
    meta_bg_4k: MetaBg 4096;
    orphan_file_1k: OrphanFile 1024;
    orphan_file_4k: OrphanFile 4096;
    sparse_super2_4k: SparseSuper2 4096;
    plain_32_bit_1k: Plain32 1024;
    modern_features_2k: Modern 2048;
}

/// Multiple-mount protection makes every mount wait for some seconds, so it has one short test of
/// its own.
#[test]
fn multiple_mount_protection() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let args = ["-t", "ext4", "-O", "mmp", "-E", "mmp_update_interval=1"];
    let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &args);
    let mount = subject().mount(&image, &dir, &[]);
    std::fs::write(dir.join("file"), b"protected").expect("write");
    mount.unmount();
    e2fsck(&image).assert_clean("after a mount with multiple-mount protection");
    let mount = KernelMount::mount(&image, &dir, &[]);
    assert_eq!(std::fs::read(dir.join("file")).expect("read"), b"protected");
    mount.unmount();
}
