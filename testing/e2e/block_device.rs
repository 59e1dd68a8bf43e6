//! Mounts of block devices: the kernel sees the device below them (`fuseblk`).

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extol_testkit::{
    ExtolMount, Finished, Image, KernelMount, LoopDevice, Need, Scratch, debugfs, e2fsck, extol,
    mounted_type, require, run, tool, unmount,
};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Loop];

/// An image, a loop device over it, and a mount of that.
struct Bed {
    scratch: Scratch,
    image: Image,
    device: LoopDevice,
}

impl Bed {
    fn new() -> Option<Self> {
        if !require(&NEEDS) {
            return None;
        }
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-b", "4096"]);
        let device = LoopDevice::attach(&image.path);
        Some(Self { scratch, image, device })
    }

    fn mount(&self) -> ExtolMount {
        let dir = self.scratch.path().join("mnt");
        std::fs::create_dir_all(&dir).unwrap();
        let mount = ExtolMount::start(self.device.path(), &dir, &[]);
        assert_eq!(mounted_type(&dir).as_deref(), Some("fuseblk.extol"));
        mount
    }
}

fn extol_on(args: &[&str], path: &Path) -> Finished {
    run(extol().args(args).arg(path), Duration::from_secs(60))
}

/// syncfs(2) makes what it promises durable: a daemon that is killed behind it loses nothing.
#[test]
fn syncfs_reaches_the_daemon() {
    let Some(bed) = Bed::new() else { return };
    let mut mount = bed.mount();
    std::fs::write(mount.path().join("synced"), vec![7; 100_000]).unwrap();
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    std::fs::write(mount.path().join("not synced"), b"x").unwrap();
    mount.kill9();
    let mount = bed.mount();
    assert_eq!(std::fs::read(mount.path().join("synced")).unwrap(), vec![7; 100_000]);
    mount.unmount();
    e2fsck(&bed.image).assert_clean("after a crash behind syncfs");
}

/// Threads that call syncfs(2) at the same moment, as `sync -f` does, share checkpoints, and `extol
/// stat` shows it: of 64 requests at most a third cost one.
#[test]
fn concurrent_syncfs_share_checkpoints() {
    const CALLERS: u64 = 64;
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount();
    let merged = || -> (u64, u64) {
        let stat = extol_on(&["stat", "--json"], mount.path());
        let json: serde_json::Value = serde_json::from_str(&stat.output).expect("JSON");
        let count = |name| json["checkpoint_merge"][name].as_u64().expect("a counter");
        (count("total"), count("issued"))
    };
    let before = merged();
    let start = std::sync::Barrier::new(CALLERS as usize);
    std::thread::scope(|scope| {
        for n in 0..CALLERS {
            let (dir, start) = (mount.path(), &start);
            scope.spawn(move || {
                let mut file = File::create(dir.join(format!("f{n}"))).unwrap();
                start.wait();
                file.write_all(&[n as u8; 5000]).unwrap();
                rustix::fs::syncfs(&file).unwrap();
            });
        }
    });
    let after = merged();
    let (requests, checkpoints) = (after.0 - before.0, after.1 - before.1);
    assert_eq!(requests, CALLERS, "each of them is a request");
    assert!((1..=CALLERS / 3).contains(&checkpoints), "{checkpoints} checkpoints");
    mount.unmount();
}

/// umount(8) returns when the volume is closed, whatever the daemon does afterwards.
#[test]
fn umount_waits_for_the_daemon() {
    let Some(bed) = Bed::new() else { return };
    for round in 0..5 {
        let mount = bed.mount();
        let content = vec![round; 20 << 20];
        std::fs::write(mount.path().join("large"), &content).unwrap();
        unmount(mount.path());
        // At once: with an ordinary FUSE mount the daemon is still writing.
        e2fsck(&bed.image).assert_clean("right behind umount");
        let linux = KernelMount::mount_device(bed.device.path(), mount.path(), &[]);
        assert!(std::fs::read(linux.path().join("large")).unwrap() == content);
        linux.unmount();
        mount.ended();
    }
}

/// The kernel's claim on the device keeps other writers out, as the daemon's own did.
#[test]
fn the_device_is_claimed() {
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount();
    let exclusive = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
        rustix::fs::open(bed.device.path(), flags, rustix::fs::Mode::empty())
    };
    assert_eq!(exclusive().unwrap_err(), rustix::io::Errno::BUSY);
    let second = bed.scratch.dir("second");
    let linux = run(tool("mount").args(["-t", "ext4"]).arg(bed.device.path()).arg(&second), LONG);
    assert!(!linux.success(), "Linux must not mount it: {}", linux.output);
    let again = extol_on(&["mkfs", "-F"], bed.device.path());
    assert!(!again.success() && again.output.contains("is mounted at"), "{}", again.output);
    // The image below the device, too.
    let other = ExtolMount::try_start(&bed.image.path, &second, &[]).unwrap_err();
    assert_eq!(other.code, Some(32), "{}", other.output);
    mount.unmount();
    exclusive().expect("free again");
}

/// FIBMAP says where the blocks of a file are, of one that was just written, too.
#[test]
fn fibmap_finds_blocks() {
    let Some(bed) = Bed::new() else { return };
    let mount = bed.mount();
    let path = mount.path().join("file");
    // filefrag(8) counts where a file goes on elsewhere: other files take the blocks between.
    let file = File::create(&path).unwrap();
    for n in 0..4_u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[3; 4096], n * 4096).unwrap();
        file.sync_all().unwrap();
        std::fs::write(mount.path().join(format!("between{n}")), vec![4; 300 << 10]).unwrap();
        rustix::fs::syncfs(&file).unwrap();
    }
    let found = run(tool("filefrag").arg("-B").arg(&path), LONG);
    assert!(found.success(), "{}", found.output);
    drop(file);
    mount.unmount();
    let place = |n: u64| -> u64 {
        debugfs(&bed.image, &format!("bmap file {n}")).trim().parse().expect("a block")
    };
    let pieces = 1 + (1..4).filter(|n| place(*n) != place(n - 1) + 1).count();
    assert!(pieces > 1, "the file lies in one piece, so nothing is compared: {}", found.output);
    let line = format!("{pieces} extents found");
    assert!(found.output.contains(&line), "{line} in {}", found.output);
}

/// `-o loop`: the same for an image; the device is gone behind the unmount.
#[test]
fn an_image_through_a_loop_device() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["loop"]);
    assert_eq!(mounted_type(&dir).as_deref(), Some("fuseblk.extol"));
    std::fs::write(dir.join("file"), b"kept\n").unwrap();
    assert_eq!(loop_devices(&image.path).len(), 1);
    mount.unmount();
    goes_away(&image.path);
    e2fsck(&image).assert_clean("through a loop device");
    assert_eq!(debugfs(&image, "cat file").trim(), "kept");
    // A volume that cannot be mounted leaves none either.
    let mut file = File::options().write(true).open(&image.path).unwrap();
    file.write_all(&[0; 4096]).unwrap();
    let failed = ExtolMount::try_start(&image.path, &dir, &["loop"]).unwrap_err();
    assert_eq!(failed.code, Some(32), "{}", failed.output);
    goes_away(&image.path);
}

/// A dead daemon does not keep its mount: umount(8) takes it away, and the device is free.
#[test]
fn a_dead_daemon_is_unmounted() {
    let Some(bed) = Bed::new() else { return };
    let mut mount = bed.mount();
    std::fs::write(mount.path().join("file"), b"x").unwrap();
    let dir: PathBuf = mount.path().to_owned();
    mount.kill9();
    assert_eq!(mounted_type(&dir), None);
    bed.mount().unmount();
}

/// The kernel detaches a loop device behind its last close, which may take a moment.
fn goes_away(image: &Path) {
    let start = std::time::Instant::now();
    while !loop_devices(image).is_empty() {
        assert!(start.elapsed() < LONG / 6, "a loop device is left behind");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const LONG: Duration = Duration::from_secs(60);

fn loop_devices(image: &Path) -> Vec<String> {
    let found = run(tool("losetup").arg("-j").arg(image), LONG);
    found.output.lines().map(str::to_owned).collect()
}
