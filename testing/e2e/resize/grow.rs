//! Volumes that are not mounted become larger.

use super::*;

#[test]
fn linux_fills_what_grew() {
    if !require(&NEEDS) {
        return;
    }
    for (options, mib) in [
        (&["-t", "ext4", "-b", "4096"][..], 300),
        (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 300),
        (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode,meta_bg"], 200),
        (&["-t", "ext3", "-b", "1024", "-E", "resize=100000"], 300),
        (&["-t", "ext2", "-b", "2048"], 200),
    ] {
        let what = format!("{options:?}");
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 20 << 20, options);
        let dir = scratch.dir("mnt");
        let mount = KernelMount::mount(&image, &dir, &[]);
        make_tree(mount.path(), &TreeSpec::small(7));
        mount.unmount();
        // What is on the disk: what Linux has in memory of an ext3 file with holes may differ.
        let mount = KernelMount::mount(&image, &dir, &[]);
        let before = Tree::of(mount.path());
        mount.unmount();
        let said = run_ok(&mut resize(&image.path, &format!("{mib}M")));
        assert!(said.contains(": grew from "), "{what}: {said}");
        assert_eq!(image.size(), mib << 20, "{what}");
        e2fsck(&image).assert_clean(&what);
        let mount = KernelMount::mount(&image, &dir, &[]);
        before.assert_same(&Tree::of(mount.path()), "before", &what);
        let room = fill(&mount);
        assert!(room > mib * 3 / 4, "{what}: {room} MiB");
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("{what}, full"));
        for size in [format!("{}M", mib + 100), format!("{}M", mib + 5)] {
            run_ok(tool("resize2fs").arg("-f").arg(&image.path).arg(&size));
            e2fsck(&image).assert_clean(&format!("{what}, resize2fs to {size}"));
        }
    }
}

/// The file system below the image is full in the middle of the way, or from the beginning.
#[test]
fn a_full_host_leaves_a_sound_volume() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let small = scratch.dir("small");
    run_ok(tool("mount").args(["-t", "tmpfs", "-o", "size=60m", "none"]).arg(&small));
    let _unmount = Unmount(&small);
    for (options, left, size) in [
        (&["-b", "1024", "-O", "meta_bg,^resize_inode"][..], 8 << 20, "200G"),
        (&["-b", "1024"], 8 << 20, "20G"),
        (&["-b", "1024"], 0, "1G"),
        (&["-b", "4096", "-O", "^has_journal"], 1 << 20, "1T"),
    ] {
        let what = format!("{options:?}, {left} bytes left");
        let image = Image::mke2fs(&small, "a.img", 33 << 20, options);
        make_files(&image);
        let before = blocks(&image);
        let pad = small.join("pad");
        let free = run_ok(tool("stat").args(["-f", "-c", "%a"]).arg(&small));
        let free = free.trim().parse::<u64>().expect("a number") * 4096 - left;
        std::fs::write(&pad, vec![1; free as usize]).expect("pad");
        let done = run_extol(&["resize", text(&image.path), size]);
        assert_eq!(done.code, Some(32), "{what}: {}", done.output);
        // (That the volume is read-only then is not the reason.)
        assert!(!done.output.contains("is read-only"), "{what}: {}", done.output);
        std::fs::remove_file(&pad).expect("remove");
        let grown = blocks(&image);
        assert!(grown >= before, "{what}");
        // Its log may be there to replay, and the error is recorded; nothing else is wrong.
        let fixed = e2fsck_fix(&image);
        assert_eq!(fixed.unexpected_repairs(), None, "{what}: {}", fixed.output);
        assert_eq!(run_ok(extol().args(["cat"]).arg(&image.path).arg("/file")), "contents");
        run_ok(&mut resize(&image.path, "1G"));
        e2fsck(&image).assert_clean(&what);
        image.remove();
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = tool("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_grew() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "4096"];
    let image = Image::mke2fs(scratch.path(), "a.img", 20 << 20, &options);
    let disk = LoopDevice::attach(&image.path);
    let too_large = run(&mut resize(disk.path(), "100M"), LIMIT);
    assert_eq!(too_large.code, Some(32), "{too_large:?}");
    assert!(too_large.stderr.contains("the device is too small"), "{too_large:?}");
    std::fs::File::options()
        .write(true)
        .open(&image.path)
        .and_then(|file| file.set_len(150 << 20))
        .expect("longer");
    run_ok(tool("losetup").arg("-c").arg(disk.path()));
    run_ok(extol().arg("resize").arg(disk.path()));
    disk.detach();
    assert_eq!(blocks(&image), (150 << 20) / 4096);
    e2fsck(&image).assert_clean("grown");
}

/// Killed at some moment, the volume is sound, and what it held is there.
#[test]
fn killed_on_the_way() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let mut sizes = std::collections::BTreeSet::new();
    for ms in [5, 20, 40, 80, 120, 200, 300, 500] {
        let options = ["-t", "ext4", "-b", "1024", "-N", "4096"];
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &options);
        run_ok(extol().arg("put").arg(&image.path).args(["/etc/passwd", "/"]));
        let mut child =
            resize(&image.path, "200G").stdout(std::process::Stdio::null()).spawn().expect("start");
        std::thread::sleep(Duration::from_millis(ms));
        child.kill().expect("kill");
        child.wait().expect("wait");
        let what = format!("killed after {ms} ms");
        let report = extol_testkit::e2fsck_fix(&image);
        report.assert_only_recovered(&what);
        e2fsck(&image).assert_clean(&what);
        sizes.insert(blocks(&image));
        assert!(debugfs(&image, "cat /passwd").contains("root"), "{what}");
        image.remove();
    }
    assert!(sizes.len() > 1, "all were killed too early, or too late: {sizes:?}");
}
