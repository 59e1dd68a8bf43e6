//! The connection, the device or the image below a mount goes away or is cut.

use crate::{EIO, EROFS, NEEDS, Promised, becomes, stopped, synced};
use extol_testkit::{
    ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown, e2fsck, extol, require,
    run, run_ok, shutdown, tool, unmount,
};
use std::fs::File;
use std::time::Duration;
use std::time::Instant;

/// The administrator aborts the connection: the daemon closes the volume, takes the dead mount off
/// and says that it was not unmounted.
#[test]
fn an_aborted_connection_is_a_failure() {
    if !require(&NEEDS) {
        return;
    }
    for sandbox in [true, false] {
        let scratch = Scratch::new();
        let (dir, connections) = (scratch.dir("mnt"), scratch.dir("connections"));
        run_ok(tool("mount").args(["-t", "fusectl", "none"]).arg(&connections));
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let mut command = extol();
        command.args(["mount", "-f"]).args((!sandbox).then_some("--no-sandbox"));
        command.arg(&image.path).arg(&dir);
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        synced(&dir.join("file"), b"kept").unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&dir).unwrap());
        let minor = rustix::fs::minor(device);
        std::fs::write(connections.join(minor.to_string()).join("abort"), "1").unwrap();
        unmount(&connections);
        let began = Instant::now();
        while extol_testkit::mounted_type(&dir).is_some() {
            assert!(began.elapsed() < Duration::from_secs(10), "a dead mount stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = dir.with_extension("log");
        let ended = mount.end();
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert_eq!(ended, Some(32), "{log}");
        assert!(log.contains("the connection to the kernel was aborted"), "{log}");
        e2fsck(&image).assert_clean("aborted");
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"kept");
        mount.unmount();
    }
}

/// The device below the mount goes away: the file system that the image lies on is shut down. Once
/// with the image itself, once with a loop device over it.
#[test]
fn a_device_that_goes_away() {
    if !require(&[&NEEDS[..], &[Need::Kernel("ext4")]].concat()) {
        return;
    }
    for over_loop in [false, true] {
        let scratch = Scratch::new();
        let (below, dir) = (scratch.dir("below"), scratch.dir("mnt"));
        let host = Image::mke2fs(scratch.path(), "host.img", 128 << 20, &["-t", "ext4"]);
        let mut linux = KernelMount::mount(&host, &below, &["noinit_itable"]);
        let image = Image::mke2fs(&below, "a.img", 48 << 20, &["-t", "ext4", "-J", "size=4"]);
        File::open(&image.path).and_then(|f| f.sync_all()).unwrap();
        let device = over_loop.then(|| LoopDevice::attach(&image.path));
        let source = device.as_ref().map_or(&*image.path, LoopDevice::path);
        let mount = ExtolMount::start(source, &dir, &["errors=remount-ro"]);
        let mut promised = Promised::default();
        assert!(promised.until_it_fails(&dir, 10, 100_000).is_none());
        shutdown(&below, Shutdown::Now);
        let began = Instant::now();
        let failed =
            (0..50).find_map(|n| synced(&dir.join(format!("late-{n}")), &[7; 50_000]).err());
        let failed = failed.expect("a device that is gone");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        assert!(began.elapsed() < Duration::from_secs(20), "the error took {:?}", began.elapsed());
        stopped(mount, &promised, false);
        drop(device);
        linux.unmount();
        // It is back, with what was durable.
        linux = KernelMount::mount(&host, &below, &["noinit_itable"]);
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        promised.assert_kept(&dir, "the device is back");
        mount.unmount();
        e2fsck(&image).assert_clean("the device is back");
        linux.unmount();
    }
}

/// The image, or the file below a loop device, is cut: that is told by the sizes, and not as
/// another writer; nothing is written that makes the file longer again.
#[test]
fn an_image_that_is_cut_is_told_so() {
    if !require(&NEEDS) {
        return;
    }
    const LEN: u64 = 48 << 20;
    for offset in [None, Some(0), Some(1 << 20)] {
        let scratch = Scratch::new();
        let dir = scratch.dir("mnt");
        let image = Image::mke2fs(scratch.path(), "a.img", LEN, &["-t", "ext4"]);
        let before = offset.unwrap_or(0);
        let whole = scratch.join("whole.img");
        let mut bytes = vec![0; usize::try_from(before).unwrap()];
        bytes.extend(std::fs::read(&image.path).unwrap());
        std::fs::write(&whole, bytes).unwrap();
        let device = offset
            .map(|offset| LoopDevice::attach_with(&whole, &["--offset", &offset.to_string()]));
        let source = device.as_ref().map_or(&*whole, LoopDevice::path);
        let mount = ExtolMount::start(source, &dir, &[]);
        synced(&dir.join("file"), b"synced").unwrap();
        run_ok(extol().arg("sync").arg(&dir));
        let cut = before + (2 << 20);
        File::options().write(true).open(&whole).and_then(|file| file.set_len(cut)).unwrap();
        let sizes = format!("was cut to {} of {LEN} bytes", 2 << 20);
        let said = || run_ok(extol().arg("stat").arg(&dir)).lines().next().map(str::to_owned);
        // A write behind the end makes the file longer: the daemon is given the time to look, which
        // it does every second.
        let limit = Instant::now() + Duration::from_secs(20);
        while !said().is_some_and(|line| line.contains(&sizes)) {
            assert!(Instant::now() < limit, "{:?}", said());
            std::thread::sleep(Duration::from_millis(100));
        }
        let late = |n| synced(&dir.join(format!("late-{n}")), &[7; 50_000]).err();
        let failed = (0..50).find_map(late).expect("a device that was cut");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        let said = run_ok(extol().arg("stat").arg(&dir));
        assert!(said.lines().next().is_some_and(|line| line.contains(&sizes)), "{said}");
        assert!(!said.contains("another program"), "{said}");
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert!(refused.code == Some(32) && refused.output.contains(&sizes), "{}", refused.output);
        assert!(!said.contains("extol remount"), "{said}");
        assert_eq!(std::fs::metadata(&whole).unwrap().len(), cut, "it was written behind the end");
        // Nor is it mended by its old size: what was cut off is lost.
        File::options().write(true).open(&whole).and_then(|f| f.set_len(before + LEN)).unwrap();
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert!(refused.code == Some(32) && refused.output.contains(&sizes), "{}", refused.output);
        assert!(mount.end().is_some_and(|code| code != 0), "an unmount that loses nothing?");
        drop(device);
    }
}

/// A cut below a mount that nothing changes is found within a second or two, without a request.
#[test]
fn a_cut_below_an_idle_mount_is_found() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 48 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    synced(&dir.join("file"), b"synced").unwrap();
    run_ok(extol().arg("checkpoint").arg(&dir));
    File::options().write(true).open(&image.path).and_then(|f| f.set_len(2 << 20)).unwrap();
    let began = Instant::now();
    while !mount.log().contains("was cut to 2097152 of 50331648 bytes") {
        assert!(began.elapsed() < Duration::from_secs(5), "not found: {}", mount.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    becomes(&dir, "ro");
    let said = run_ok(extol().arg("stat").arg(&dir));
    let first = said.lines().next().unwrap_or_default();
    assert!(first.contains(": read-only: the device below the volume was cut to "), "{said}");
    assert_eq!(File::create(dir.join("later")).unwrap_err().raw_os_error(), Some(EROFS));
    assert_eq!(std::fs::metadata(&image.path).unwrap().len(), 2 << 20, "it was written");
    assert!(mount.end().is_some_and(|code| code != 0), "an unmount that loses nothing?");
}
