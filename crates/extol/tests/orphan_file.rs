//! An orphan file on a volume without a journal. Linux mounts it, finishes what the file names, and
//! puts nothing into it; e2fsck calls it damaged. Extol must leave what Linux leaves.

use std::path::Path;
use std::sync::Arc;

use extol::vfs::{Creds, FileSystem as _, NewNode, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::{FileDevice, MemDevice, OpenOptions};
use extol_check::{CheckOptions, Kind, Recovery, Report};
use extol_ondisk::{RoCompat, Superblock};
use extol_testkit::{Image, KernelMount, Need, Scratch, debugfs, e2fsck, require, run_ok, tool};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("tune2fs"),
    Need::Tool("e2fsck"),
];
const SIZE: u64 = 16 << 20;
const SUPERBLOCK: usize = 1024;
/// Of the file that is removed while it is open.
const LEN: usize = 300_000;
/// With and without checksums behind the magic number of its blocks.
const FEATURES: [&str; 2] = ["orphan_file", "orphan_file,^metadata_csum"];

/// A volume that has lost its journal.
fn volume(dir: &Path, features: &str) -> Image {
    let args = ["-t", "ext4", "-b", "1024", "-O", features];
    let image = Image::mke2fs(dir, "volume.img", SIZE, &args);
    run_ok(tool("tune2fs").args(["-O", "^has_journal"]).arg(&image.path));
    image
}

fn superblock(image: &Image) -> Superblock {
    Superblock::decode(&image.read_at(SUPERBLOCK as u64, SUPERBLOCK)).expect("a superblock")
}

/// What says that the orphan file is in use.
fn is_present(image: &Image) -> bool {
    superblock(image).feature_ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

fn set_present(image: &Image, present: bool) {
    let mut sb = superblock(image);
    sb.feature_ro_compat.set(RoCompat::ORPHAN_PRESENT, present);
    image.write_at(SUPERBLOCK as u64, &sb.encode()[..]);
}

/// The report of the checker, which must object where e2fsck does.
#[track_caller]
fn checked(image: &Image, what: &str) -> Report {
    let device = FileDevice::open(&image.path, &OpenOptions::read_only()).expect("open image");
    let options = CheckOptions { recovery: Recovery::Ignore, ..CheckOptions::default() };
    let report = extol_check::check(Arc::new(device), &options, &mut |_| {}).expect("a report");
    let theirs = e2fsck(image);
    let agrees = (theirs.code != 0) == (report.errors_of_e2fsck > 0);
    assert!(agrees, "{what}: {}\n{report}", theirs.output);
    report
}

/// The report on a volume with no damage but that it has an orphan file and no journal.
#[track_caller]
fn assert_only_the_file(image: &Image, what: &str) {
    let report = checked(image, what);
    assert!(report.errors == 1 && report.has(Kind::OrphanFile), "{what}: {report}");
}

/// Removes a file that is open, by Linux, and takes the image as a crash leaves it.
fn crashed_by_linux(scratch: &Scratch, image: &Image, name: &str) -> Image {
    let mount = KernelMount::mount(image, &scratch.dir("mnt"), &[]);
    let path = mount.path().join("removed");
    std::fs::write(&path, vec![7; LEN]).expect("write");
    std::fs::write(mount.path().join("kept"), b"kept").expect("write");
    let held = std::fs::File::open(&path).expect("open");
    std::fs::remove_file(&path).expect("remove");
    run_ok(tool("sync").arg("-f").arg(mount.path()));
    let crashed = image.copy_as(name);
    drop(held);
    mount.unmount();
    crashed
}

/// The same by Extol. `frozen`: with an empty log.
fn crashed_by_extol(image: &Image, name: &str, frozen: bool) -> Image {
    let device = Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).expect("read")));
    let fs = Ext4::open(Arc::clone(&device) as _, &MountOptions::default()).expect("open");
    fs.write_file("/kept", b"kept").expect("write");
    let made = fs.create(fs.root(), b"removed", NewNode::Regular, 0o644, 0, Creds::default());
    fs.write(made.expect("create").id.ino, 0, &vec![7; LEN]).expect("write");
    fs.sync().expect("sync");
    fs.unlink(fs.root(), b"removed").expect("unlink");
    fs.sync().expect("sync");
    if frozen {
        fs.freeze().expect("freeze");
    }
    let crashed = Image::sparse(image.path.with_file_name(name), SIZE);
    crashed.write_at(0, &device.to_bytes());
    if frozen {
        fs.thaw().expect("thaw");
    }
    fs.crash();
    crashed
}

/// True if the orphan file names an inode.
fn names_an_inode(image: &Image) -> bool {
    let said = debugfs(image, &format!("cat <{}>", superblock(image).orphan_file_inum));
    // (The magic number is at the end of each block.)
    said.bytes().next().is_some_and(|byte| byte != 0)
}

fn mount_by_linux(scratch: &Scratch, image: &Image) {
    KernelMount::mount(image, &scratch.dir("mnt"), &[]).unmount();
}

fn mount_by_extol(image: &Image) {
    let fs = Ext4::open_path(&image.path, &MountOptions::default()).expect("open");
    fs.unmount().expect("unmount");
}

/// What Linux and what Extol make of a volume that they mount read-write and unmount again: both
/// must leave the same, of which e2fsck's words are returned. Then each mounts what the other left.
#[track_caller]
fn mounted_by_both(scratch: &Scratch, image: &Image, what: &str) -> String {
    let (by_linux, by_extol) = (image.copy_as("linux.img"), image.copy_as("extol.img"));
    mount_by_linux(scratch, &by_linux);
    mount_by_extol(&by_extol);
    let told = |what: &str| {
        let told = [&by_linux, &by_extol].map(|image| {
            checked(image, what);
            let name = image.path.display().to_string();
            e2fsck(image).output.replace(&name, "the volume")
        });
        assert_eq!(told[0], told[1], "{what}");
        let present = [&by_linux, &by_extol].map(is_present);
        assert_eq!(present, [false, false], "{what}: orphan_present");
        let [told, _] = told;
        told
    };
    let first = told(what);
    mount_by_extol(&by_linux);
    mount_by_linux(scratch, &by_extol);
    assert_eq!(told(&format!("{what}, crosswise")), first, "{what}");
    by_linux.remove();
    by_extol.remove();
    first
}

#[test]
fn it_is_mounted_and_left_as_it_was() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for features in FEATURES {
        let image = volume(scratch.path(), features);
        assert_only_the_file(&image, features);
        let before = e2fsck(&image).output.replace(&image.path.display().to_string(), "the volume");
        assert_eq!(mounted_by_both(&scratch, &image, features), before, "{features}");
    }
}

/// Linux records nothing: what was removed while it was open is lost to both, until e2fsck.
#[test]
fn a_crash_of_linux() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for features in FEATURES {
        let image = volume(scratch.path(), features);
        let crashed = crashed_by_linux(&scratch, &image, "crashed.img");
        assert!(!is_present(&crashed), "{features}");
        assert_only_the_file(&image, features);
        let report = checked(&crashed, features);
        assert!(report.errors > 1, "{features}: {report}");
        let told = mounted_by_both(&scratch, &crashed, features);
        assert!(told.contains("has zero dtime"), "{features}: {told}");
    }
}

/// Extol records it on the list, which both read: Linux would write a block of the file without its
/// checksum, and refuse the volume from then on.
#[test]
fn a_crash_of_extol() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for features in FEATURES {
        let image = volume(scratch.path(), features);
        let crashed = crashed_by_extol(&image, "crashed.img", false);
        assert!(!is_present(&crashed) && !names_an_inode(&crashed), "{features}");
        assert_ne!(superblock(&crashed).last_orphan, 0, "{features}");
        checked(&crashed, features);
        let told = mounted_by_both(&scratch, &crashed, features);
        assert!(told.contains(": 13/"), "{features}: the file is deleted: {told}");
    }
}

/// What the file names since there was a journal is deleted, whether the superblock says that the
/// file is in use or not.
#[test]
fn a_journal_that_went_behind_a_crash() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for features in FEATURES {
        let args = ["-t", "ext4", "-b", "1024", "-O", features];
        let image = Image::mke2fs(scratch.path(), "volume.img", SIZE, &args);
        let crashed = crashed_by_extol(&image, "crashed.img", true);
        let features_away = "feature -has_journal -needs_recovery";
        run_ok(tool("debugfs").args(["-w", "-R", features_away]).arg(&crashed.path));
        assert!(is_present(&crashed) && names_an_inode(&crashed), "{features}");
        for present in [true, false] {
            set_present(&crashed, present);
            let what = format!("{features}, orphan_present {present}");
            checked(&crashed, &what);
            if features.contains("^metadata_csum") {
                mounted_by_both(&scratch, &crashed, &what);
            }
            let copy = crashed.copy_as("copy.img");
            mount_by_extol(&copy);
            checked(&copy, &what);
            assert!(!names_an_inode(&copy) && !is_present(&copy), "{what}");
            let told = e2fsck(&copy).output;
            assert!(told.contains(": 13/") && !told.contains("is not clean"), "{what}: {told}");
            mount_by_linux(&scratch, &copy);
        }
    }
}
