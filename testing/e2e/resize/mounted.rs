//! Volumes become larger while they are mounted.

use super::*;

/// Volumes grow while files are written and synced: by a control request, by the image's name and
/// by the kernel's ioctl, through a remount. The daemon is killed while they grow on.
#[test]
fn a_mounted_volume_grows_under_load() {
    if !require(&NEEDS) {
        return;
    }
    let small_groups = ["-t", "ext4", "-b", "1024", "-g", "1024", "-N", "512", "-J", "size=4"];
    for (nr, features) in ["fast_commit", "^resize_inode,meta_bg", "^metadata_csum,orphan_file"]
        .into_iter()
        .enumerate()
    {
        let scratch = Scratch::new();
        let options = [&small_groups[..], &["-O", features]].concat();
        let image = Image::mke2fs(scratch.path(), "a.img", 24 << 20, &options);
        let dir = scratch.dir("mnt");
        let mut mount = ExtolMount::start(&image.path, &dir, &[]);
        let load = CrashLoad::start(&dir, 3, 15, 7 + nr as u64);
        load.wait_for(30, LIMIT);
        for (name, size) in [(&dir, "24600"), (&image.path, "40M"), (&dir, "90000")] {
            let said = run_ok(&mut resize(name, size));
            assert!(said.contains(": grew from "), "{features}: {said}");
            load.wait_for(load.acknowledged() + 10, LIMIT);
        }
        run_ok(extol().args(["remount", "-o", "commit=1"]).arg(&dir));
        run_ok(tool("truncate").args(["-s", "120M"]).arg(&image.path));
        run_ok(tool("resize2fs").arg(&image.path).arg("120M"));
        assert_eq!(statfs_blocks(&dir), Some(120 << 10), "{features}");
        let mut growth = resize(&dir, "60G")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("start");
        std::thread::sleep(Duration::from_millis(150 + 100 * nr as u64));
        mount.kill9();
        growth.wait().expect("wait");
        let promises = load.finish();
        let what = format!("{features}, killed");

        let peer = image.copy_as("peer.img");
        if is_superseded(&peer) {
            run_ok(extol().arg("replay").arg(&peer.path));
            e2fsck(&peer).assert_clean(&what);
        } else {
            e2fsck_fix(&peer).assert_only_recovered(&what);
        }
        let grown = blocks(&peer);
        assert!(grown >= 120 << 10, "{what}: {grown}");
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        assert_eq!(statfs_blocks(&dir), Some(grown), "{what}");
        promises.assert_kept(&dir, &what);
        run_ok(extol().args(["remount", "-o", "ro"]).arg(&dir));
        let refused = run(&mut resize(&dir, "61G"), LIMIT);
        assert!(refused.stderr.contains("read-only"), "{refused:?}");
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        let more = format!("{}", grown + 5000);
        run_ok(&mut resize(&dir, &more));
        mount.unmount();
        e2fsck(&image).assert_clean(&what);
        let linux = KernelMount::mount(&image, &dir, &["noinit_itable"]);
        promises.assert_kept(&dir, &format!("{what}, by Linux"));
        linux.unmount();
    }
}

/// Blocks of the volume that is mounted there.
fn statfs_blocks(dir: &Path) -> Option<u64> {
    let said = run_ok(extol().args(["stat", "--json"]).arg(dir));
    serde_json::from_str::<serde_json::Value>(&said).ok()?["blocks"].as_u64()
}

/// resize2fs and extol resize on a mounted disk that became larger; what is not there is refused.
#[test]
fn a_mounted_disk_that_grew() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 20 << 20, &["-t", "ext4", "-b", "4096"]);
    let disk = LoopDevice::attach(&image.path);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(disk.path(), &dir, &[]);
    make_tree(&dir, &TreeSpec::small(9));
    let before = Tree::of(&dir);
    let lengthen = |mib: u64| {
        let file = std::fs::File::options().write(true).open(&image.path).expect("open");
        file.set_len(mib << 20).expect("longer");
        run_ok(tool("losetup").arg("-c").arg(disk.path()));
    };
    lengthen(300);
    run_ok(tool("resize2fs").arg(disk.path()));
    assert_eq!(statfs_blocks(&dir), Some((300 << 20) / 4096));
    lengthen(700);
    for (size, words) in [("701M", "the device is too small"), ("20M", "only become larger")] {
        let done = run(&mut resize(&dir, size), LIMIT);
        assert_eq!(done.code, Some(32), "{done:?}");
        assert!(done.stderr.contains(words) && done.stderr.lines().count() == 1, "{done:?}");
    }
    let said = run_ok(extol().args(["resize", "--json"]).arg(disk.path()));
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (report["outcome"].as_str(), report["blocks"].as_u64()),
        (Some("grew"), Some(179_200))
    );
    let said = run_ok(extol().arg("resize").arg(&dir));
    assert!(said.contains("nothing to do"), "{said}");
    before.assert_same(&Tree::of(&dir), "before", "grown");
    mount.unmount();
    disk.detach();
    e2fsck(&image).assert_clean("grown");
    let linux = KernelMount::mount(&image, &dir, &[]);
    before.assert_same(&Tree::of(&dir), "before", "grown, by Linux");
    linux.unmount();
}

/// A volume named by its place on a disk ends with its partition, though no length was given; so it
/// does if it grows while it is mounted.
#[test]
fn a_place_on_a_disk_ends_with_its_partition() {
    if !require(&[&NEEDS[..], &[Need::Tool("sfdisk")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    for (label, part) in [("gpt", "L"), ("dos", "83")] {
        let disk = Image::sparse(scratch.join("disk.img"), 100 << 20);
        let table = format!(
            "label: {label}\nstart=2048, size=81920, type={part}\nstart=83968, type={part}\n"
        );
        let script = scratch.join("table");
        std::fs::write(&script, table).expect("write");
        let run_sfdisk = format!("sfdisk -q '{}' <'{}'", disk.path.display(), script.display());
        run_ok(tool("sh").args(["-c", &run_sfdisk]));
        let mke2fs = ["-q", "-t", "ext4", "-E", "offset=1048576"];
        run_ok(tool("mke2fs").args(mke2fs).arg(&disk.path).arg("20M"));
        let behind = vec![0x77; 4 << 20];
        disk.write_at(41 << 20, &behind);
        let place = ["resize", "-o", "offset=1m", text(&disk.path)];
        let said = run_ok(extol().args(&place[..3]).arg(&disk.path).arg("30M"));
        assert!(said.contains("(31457280 bytes)"), "{label}: {said}");
        let done = run_extol(&[&place[..], &["60M"]].concat());
        assert!(done.code == Some(32) && done.stderr.contains("too small"), "{label}: {done:?}");
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&disk.path, &dir, &["offset=1m"]);
        let done = run(&mut resize(&dir, "60M"), LIMIT);
        assert!(done.code == Some(32) && done.stderr.contains("too small"), "{label}: {done:?}");
        let said = run_ok(extol().arg("resize").arg(&dir));
        assert!(said.contains("(41943040 bytes)"), "{label}: {said}");
        mount.unmount();
        let said = run_ok(extol().args(place));
        assert!(said.contains("nothing to do"), "{label}: {said}");
        assert!(disk.read_at(41 << 20, behind.len()) == behind, "{label}: written over");
        // A length that was given is what the user means.
        let more = ["resize", "-o", "offset=1m,sizelimit=99m", text(&disk.path), "50M"];
        assert!(run_ok(extol().args(more)).contains("(52428800 bytes)"), "{label}");
        disk.remove();
    }
}
