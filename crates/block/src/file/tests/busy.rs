//! Two writers of one volume: what is refused, and what is waited for.

use super::*;
use extol_proc::Shown as _;

fn assert_busy(result: Result<FileDevice>, words: &[&str]) {
    let error = result.expect_err("must be refused");
    let text = error.to_string();
    assert_eq!(error.source.kind(), io::ErrorKind::ResourceBusy, "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} missing in: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn two_writers_of_an_image_are_refused() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let (rw, ro) = (OpenOptions::read_write(), OpenOptions::read_only());
    let first = open(&path, &rw);
    assert_busy(FileDevice::open(&path, &rw), &["disk.img", "this process", "close it"]);
    assert_busy(FileDevice::open(&path, &ro), &["disk.img", "this process"]);
    open(&path, &ro.clone().exclusive(false));
    drop(first);
    let readers = [open(&path, &ro), open(&path, &ro)];
    assert_busy(FileDevice::open(&path, &rw), &["this process"]);
    drop(readers);
    open(&path, &rw);
}

/// A killed process releases a volume late (the kernel still has its last requests): the next open
/// waits.
#[test]
fn a_late_release_is_waited_for() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let disk = Loop::attach(&path, &[]);
    for node in std::iter::once(path.as_path()).chain(disk.iter().map(|d| Path::new(&d.node))) {
        let held = open(node, &OpenOptions::read_write());
        let (let_go, came) =
            (std::sync::atomic::AtomicBool::new(false), std::time::Duration::from_millis(300));
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(came);
                let_go.store(true, Ordering::SeqCst);
                drop(held);
            });
            open(node, &OpenOptions::read_write());
            assert!(let_go.load(Ordering::SeqCst), "opened beside another writer");
        });
    }
}

#[test]
fn two_writers_of_a_block_device_are_refused() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    let rw = OpenOptions::read_write();
    let device = open(&disk.node, &rw);
    assert_busy(FileDevice::open(&disk.node, &rw), &[&disk.node, "in use"]);
    assert_busy(FileDevice::open(&path, &rw), &["disk.img", "this process"]);
    assert_busy(FileDevice::open(&path, &OpenOptions::read_only()), &["disk.img", "this process"]);
    drop(device);

    let by_file = open(&path, &rw);
    assert_busy(FileDevice::open(&disk.node, &rw), &[&disk.node]);
    drop(by_file);
    open(&disk.node, &rw);
}

#[test]
fn a_device_mounted_by_the_kernel_is_refused() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 8 * MIB);
    if let Err(why) = run("mke2fs", &["-q", "-F", "-t", "ext4", path.to_str().expect("utf-8")]) {
        println!("SKIP: no mke2fs ({why})");
        return;
    }
    let Some(mut disk) = Loop::attach(&path, &[]) else { return };
    let rw = OpenOptions::read_write();
    for options in ["rw", "ro"] {
        if !disk.mount(options) {
            return;
        }
        let at = format!("mounted at {}", disk.mount.as_ref().expect("mounted").path().shown());
        assert_busy(FileDevice::open(&disk.node, &rw), &[&disk.node, &at, "unmount it first"]);
        assert_busy(
            FileDevice::open(&path, &rw),
            &["disk.img", &disk.node, &at, "unmount it first"],
        );
        for reader in [Path::new(&disk.node), &path] {
            let device = open(reader, &OpenOptions::read_only());
            let mut magic = [0; 2];
            device.read_at(&mut magic, 1024 + 0x38).expect("read");
            assert_eq!(magic, [0x53, 0xEF]);
        }
        disk.unmount();
    }
    // And the reverse: while the image is open, its loop device cannot be mounted.
    let device = open(&path, &rw);
    let target = TempDir::new().expect("dir");
    let mount = run("mount", &[&disk.node, target.path().to_str().expect("utf-8")]);
    if mount.is_ok() {
        run("umount", &[target.path().to_str().expect("utf-8")]).expect("umount");
    }
    assert!(mount.is_err(), "the kernel mounted a volume that is open here");
    drop(device);
    assert!(disk.mount("rw"), "and afterwards it can");
    disk.unmount();
}
