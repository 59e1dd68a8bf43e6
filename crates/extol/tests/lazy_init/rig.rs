//! Volumes whose inode tables hold old contents.

use std::sync::Arc;

use extol::device::{BlockDevice, MemDevice, SharedDevice};
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{Creds, FileSystem as _, NewNode};
use extol::{Ext4, MountOptions};
use extol_check::{InodeTables, inode_tables};
use extol_devices::CountingDevice;
use extol_testkit::{Image, Scratch, e2fsck, run_ok, tool};

pub type Disk = Arc<CountingDevice<MemDevice>>;

pub const GARBAGE: u8 = 0xA7;

/// A device full of old contents.
pub fn garbage(size: u64) -> MemDevice {
    let device = MemDevice::new(size);
    let piece = vec![GARBAGE; 1 << 20];
    for at in (0..size).step_by(piece.len()) {
        device.write_at(&piece[..piece.len().min((size - at) as usize)], at).expect("write");
    }
    device
}

/// Options of Extol's mkfs for small groups, tables not zeroed.
pub fn lazily(features: &str) -> MkfsOptions {
    let mut options = MkfsOptions {
        block_size: Some(1024),
        blocks_per_group: Some(1024),
        inodes: Some(1024),
        features: vec![features.to_owned()],
        ..MkfsOptions::default()
    };
    options.set_extended("lazy_itable_init=1,nodiscard").expect("options");
    options
}

/// 16 MiB in 16 groups with 64 inodes each: the table has 16 blocks.
pub const SIZE: u64 = 16 << 20;
pub const GROUPS: u64 = 16;

pub fn ours(features: &str) -> Disk {
    let device = garbage(SIZE);
    mkfs(&device, &lazily(features), &mut |_| {}).expect("mkfs");
    Arc::new(CountingDevice::new(device))
}

/// As [`ours`], made by mke2fs.
pub fn theirs(args: &[&str]) -> Disk {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    std::fs::write(&path, vec![GARBAGE; SIZE as usize]).expect("write");
    run_ok(
        tool("mke2fs")
            .args(["-q", "-F", "-b", "1024", "-g", "1024", "-N", "1024"])
            .args(["-E", "lazy_itable_init=1,nodiscard"])
            .args(args)
            .arg(&path),
    );
    Arc::new(CountingDevice::new(MemDevice::from_bytes(&std::fs::read(&path).expect("read"))))
}

/// Mount options without threads: the test makes the steps.
pub fn by_hand(text: &str) -> MountOptions {
    with_thread(text).without_threads()
}

/// With the thread, and no start delay.
pub fn with_thread(text: &str) -> MountOptions {
    let mut options = parse(text);
    options.background.init_itable_delay = Some(std::time::Duration::ZERO);
    options
}

fn parse(text: &str) -> MountOptions {
    MountOptions::parse(text).expect("options")
}

pub fn open(disk: &Disk, options: &MountOptions) -> Arc<Ext4> {
    Ext4::open(Arc::clone(disk) as SharedDevice, options).expect("mount")
}

pub fn tables(disk: &Disk) -> InodeTables {
    inode_tables(Arc::new(disk.inner().snapshot())).expect("tables")
}

/// All tables are zeroed and say so.
#[track_caller]
pub fn assert_all_zeroed(disk: &Disk) {
    let seen = tables(disk);
    assert_eq!((seen.claimed, &seen.wrong[..]), (seen.groups, &[][..]), "{seen:?}");
    assert_eq!(u64::from(seen.groups), GROUPS);
}

/// Steps until there is nothing left; how many.
pub fn all_steps(fs: &Ext4) -> u64 {
    let mut steps = 0;
    while fs.init_itables_step().expect("a step").is_some() {
        steps += 1;
    }
    steps
}

pub fn file(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default())
        .expect("create")
        .id
        .ino
}

pub fn dir(fs: &Ext4, parent: u32, name: &str) -> u32 {
    fs.create(parent, name.as_bytes(), NewNode::Directory, 0o755, 0, Creds::default())
        .expect("mkdir")
        .id
        .ino
}

/// `e2fsck -fn` is silent; returns an image for more checks.
#[track_caller]
pub fn assert_clean(disk: &Disk, what: &str) -> (Scratch, Image) {
    let scratch = Scratch::new();
    let path = scratch.join("image");
    std::fs::write(&path, disk.inner().to_bytes()).expect("write");
    let image = Image::existing(path);
    e2fsck(&image).assert_clean(what);
    (scratch, image)
}

/// Waits for a condition; the machine may be busy.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{what}: not within 30 s");
}
