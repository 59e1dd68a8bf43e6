//! `extol::fuse`: a volume that the program itself mounts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extol::fuse::{self, MountConfig, MountError};
use extol::{Ext4, MountOptions};
use extol_proc::MountTable;
use extol_testkit::{Image, Need, Scratch, debugfs, e2fsck, require, run_ok, tool};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Tool("debugfs")];

/// A volume on an image, and a directory to mount it on.
struct Volume {
    fs: Arc<Ext4>,
    image: Image,
    mnt: PathBuf,
    _dir: Scratch,
}

impl Volume {
    fn new(options: &str) -> Self {
        let dir = Scratch::new();
        let image = Image::mke2fs(dir.path(), "disk.img", 32 << 20, &["-t", "ext4"]);
        let options = MountOptions::parse(options).expect("options");
        let fs = Ext4::open_path(&image.path, &options).expect("open");
        let mnt = dir.path().join("mnt");
        fs::create_dir(&mnt).expect("mount point");
        Self { fs, image, mnt, _dir: dir }
    }

    fn mount(&self) -> fuse::Mounted {
        fuse::mount(&self.fs, &self.mnt, &MountConfig::default()).expect("mount")
    }

    fn is_mounted(&self) -> bool {
        MountTable::own().expect("mounts").top(&self.mnt).is_some()
    }

    /// Closes the volume, and has e2fsprogs read what is on it.
    fn assert_holds(self, file: &str, contents: &str) {
        self.fs.unmount().expect("close");
        e2fsck(&self.image).assert_clean("after the mount");
        assert!(debugfs(&self.image, &format!("cat {file}")).contains(contents));
    }
}

#[test]
fn what_system_calls_write_is_in_the_volume() {
    if !require(&NEEDS) {
        return;
    }
    let volume = Volume::new("");
    let mut mounted = volume.mount();
    assert!(volume.is_mounted());
    assert_eq!(mounted.dir(), volume.mnt.canonicalize().expect("path"));
    let file = volume.mnt.join("file");
    fs::write(&file, "by the kernel").expect("write");
    assert_eq!(volume.fs.read_file("/file").expect("read"), b"by the kernel");

    let open = File::open(&file).expect("open");
    assert!(matches!(mounted.unmount(), Err(MountError::Busy { .. })));
    assert!(volume.is_mounted(), "a refused unmount changes nothing");
    drop(open);
    mounted.unmount().expect("unmount");
    mounted.unmount().expect("the second time there is nothing to do");
    assert!(!volume.is_mounted());
    volume.fs.write_file("/later", "by the library").expect("the volume is still open");
    volume.assert_holds("/file", "by the kernel");
}

#[test]
fn a_dropped_mount_is_gone_and_open_files_are_served_to_their_end() {
    if !require(&NEEDS) {
        return;
    }
    let volume = Volume::new("");
    drop(volume.mount());
    assert!(!volume.is_mounted());

    let mounted = volume.mount();
    let mut open = File::create(volume.mnt.join("file")).expect("create");
    drop(mounted);
    assert!(!volume.is_mounted(), "it is out of sight");
    open.write_all(b"behind its end").expect("write");
    open.sync_all().expect("sync");
    drop(open);
    // The threads of the mount give the volume up.
    let begin = Instant::now();
    while Arc::strong_count(&volume.fs) > 1 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the mount has not ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    volume.assert_holds("/file", "behind its end");
}

#[test]
fn an_unmount_by_another_program_ends_the_wait() {
    if !require(&NEEDS) {
        return;
    }
    let volume = Volume::new("");
    let mounted = volume.mount();
    fs::write(volume.mnt.join("file"), "kept").expect("write");
    run_ok(tool("umount").arg(&volume.mnt));
    mounted.wait().expect("end");
    volume.assert_holds("/file", "kept");
}

#[test]
fn a_volume_that_is_read_only_is_mounted_so() {
    if !require(&NEEDS) {
        return;
    }
    let volume = Volume::new("ro");
    let mut mounted = volume.mount();
    let refused = fs::write(volume.mnt.join("file"), "x").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(volume.mnt.join("lost+found").is_dir());
    mounted.unmount().expect("unmount");
}
