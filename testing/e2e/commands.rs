//! The commands of the binary, on real volumes and real mounts.

use extol_testkit::{
    CrashLoad, ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown, Tree, TreeSpec,
    dump_super, e2fsck, extol, extol_ok, extol_path, make_tree, mounted_type, require, run, run_ok,
    shutdown, sync_volume, text, tool,
};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("fusermount3"),
];

fn json(output: &str) -> serde_json::Value {
    serde_json::from_str(output).unwrap_or_else(|e| panic!("no JSON ({e}):\n{output}"))
}

/// A volume whose log holds work that is not at home yet, and what was promised on it.
fn dirty(scratch: &Scratch, args: &[&str]) -> (Image, extol_testkit::Promises) {
    let image = Image::mke2fs(scratch.path(), "dirty.img", 96 << 20, args);
    let dir = scratch.dir("dirty");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    let load = CrashLoad::start(&dir, 2, 20, 3);
    load.wait_for(60, Duration::from_secs(60));
    load.freeze();
    shutdown(&dir, Shutdown::Now);
    let promises = load.finish();
    mount.unmount();
    assert!(dump_super(&image).contains("needs_recovery"));
    (image, promises)
}

/// `mount` returns when the mount answers, `umount` when everything is written.
#[test]
fn in_the_background() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    for round in 0..5 {
        extol_ok(&["mount", text(&image.path), text(&dir)]);
        assert_eq!(mounted_type(&dir).as_deref(), Some("fuse.extol"));
        std::fs::write(dir.join(format!("file{round}")), vec![round; 100_000]).unwrap();
        extol_ok(&["umount", text(&dir)]);
        assert_eq!(mounted_type(&dir), None);
        e2fsck(&image).assert_clean("just after umount");
    }
}

#[test]
fn every_way_to_end_is_clean() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    for (n, way) in
        ["SIGTERM", "SIGINT", "umount", "fusermount3 -u", "extol umount"].into_iter().enumerate()
    {
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        let data = vec![n as u8; 300_000];
        std::fs::write(dir.join(way.replace(' ', "-")), &data).unwrap();
        match way {
            "SIGTERM" => mount.terminate(Signal::TERM),
            "SIGINT" => mount.terminate(Signal::INT),
            "umount" => mount.unmount(),
            "extol umount" => {
                extol_ok(&["umount", text(&dir)]);
                mount.ended();
            }
            _ => {
                run_ok(tool("fusermount3").arg("-u").arg(&dir));
                mount.ended();
            }
        }
        e2fsck(&image).assert_clean(way);
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        assert_eq!(std::fs::read(dir.join(way.replace(' ', "-"))).unwrap(), data, "after {way}");
        mount.unmount();
    }
}

/// mount(8) finds helpers by name: `mount.extol` from fstab's `extol`, and `mount.fuse3` for
/// `fuse.extol`.
#[test]
fn as_a_mount_helper() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, tools) = (scratch.dir("mnt"), scratch.dir("bin"));
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let helper = tools.join("mount.extol");
    std::os::unix::fs::symlink(extol_path(), &helper).unwrap();
    std::os::unix::fs::symlink(extol_path(), tools.join("extol")).unwrap();
    run_ok(Command::new(&helper).arg(&image.path).arg(&dir).args(["-o", "rw,noatime,nosuid"]));
    assert_eq!(mounted_type(&dir).as_deref(), Some("fuse.extol"));
    std::fs::write(dir.join("file"), b"x").unwrap();
    extol_ok(&["umount", text(&dir)]);

    if require(&[Need::Tool("mount.fuse3")]) {
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        let mut mount = tool("mount.fuse3");
        mount
            .env("PATH", path)
            .arg(format!("extol#{}", image.path.display()))
            .arg(&dir)
            .args(["-o", "ro"]);
        run_ok(&mut mount);
        assert_eq!(mounted_type(&dir).as_deref(), Some("fuse.extol"));
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"x");
        assert_eq!(std::fs::write(dir.join("new"), b"x").unwrap_err().raw_os_error(), Some(30));
        extol_ok(&["umount", text(&dir)]);
    }
    e2fsck(&image).assert_clean("after helper mounts");
}

#[test]
fn stat_of_a_live_mount() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let transactions = || {
        json(&extol_ok(&["stat", "--json", text(&dir)]))["journal"]["transactions"]
            .as_u64()
            .expect("a number")
    };
    let before = transactions();
    for n in 0..20 {
        let file = std::fs::File::create(dir.join(format!("f{n}"))).unwrap();
        file.sync_all().unwrap();
    }
    assert!(transactions() >= before + 20, "{} transactions, {before} before", transactions());
    // The fields of Linux's /proc/fs/jbd2/*/info.
    let shown = extol_ok(&["stat", "--all", text(&dir)]);
    for field in [
        "transactions (",
        "average:",
        "ms waiting for transaction",
        "ms running transaction",
        "ms transaction was being locked",
        "ms logging transaction",
        "average transaction commit time",
        "handles per transaction",
        "blocks per transaction",
        "logged blocks per transaction",
    ] {
        assert!(shown.contains(field), "{field:?} is missing:\n{shown}");
    }
    mount.unmount();
}

#[test]
fn info_and_log_of_clean_and_dirty_volumes() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let clean = Image::mke2fs(
        scratch.path(),
        "clean.img",
        64 << 20,
        &["-t", "ext4", "-b", "2048", "-L", "a label"],
    );
    let info = json(&extol_ok(&["info", "--json", text(&clean.path)]));
    assert_eq!(info["block_size"], 2048);
    assert_eq!(info["label"], "a label");
    assert_eq!(info["needs_recovery"], false);
    assert!(extol_ok(&["info", text(&clean.path)]).contains("a label"));
    assert_eq!(json(&extol_ok(&["log", "--json", text(&clean.path)]))["recovery"]["needed"], false);

    let (image, _) = dirty(&scratch, &["-t", "ext4"]);
    let before = std::fs::read(&image.path).unwrap();
    let info = json(&extol_ok(&["info", "--json", text(&image.path)]));
    assert_eq!(info["needs_recovery"], true);
    let log = json(&extol_ok(&["log", "--json", text(&image.path)]));
    assert_eq!(log["recovery"]["needed"], true);
    let kinds: Vec<&str> =
        log["blocks"].as_array().unwrap().iter().filter_map(|b| b["kind"].as_str()).collect();
    assert!(kinds.contains(&"descriptor") && kinds.contains(&"commit"), "{kinds:?}");
    let shown = extol_ok(&["log", text(&image.path)]);
    assert!(
        shown.contains("descriptor") && shown.contains("commit") && shown.contains("recovery"),
        "{shown}"
    );
    assert!(before == std::fs::read(&image.path).unwrap(), "looking must change nothing");
}

#[test]
fn replay_recovers_once() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-O", "^64bit,^metadata_csum"],
    ] {
        let (image, promises) = dirty(&scratch, args);
        extol_ok(&["replay", text(&image.path)]);
        assert!(!dump_super(&image).contains("needs_recovery"));
        let report = extol_testkit::e2fsck_fix(&image);
        report.assert_only_recovered("after extol replay");
        e2fsck(&image).assert_clean("after extol replay");
        let once = std::fs::read(&image.path).unwrap();
        extol_ok(&["replay", text(&image.path)]);
        assert!(once == std::fs::read(&image.path).unwrap(), "a second replay must change nothing");
        let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
        promises.assert_kept(mount.path(), "after extol replay");
        mount.unmount();
    }
}

/// Read-only mounts of a volume with work in its log: the recovered view from memory if nothing may
/// be written.
#[test]
fn read_only_mounts_of_a_dirty_volume() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let (image, promises) = dirty(&scratch, &["-t", "ext4"]);
    let before = std::fs::read(&image.path).unwrap();
    let unchanged = || before == std::fs::read(&image.path).unwrap();

    // The device itself is read-only.
    let device = LoopDevice::attach_with(&image.path, &["-r"]);
    let mount = ExtolMount::start(device.path(), &dir, &["ro"]);
    promises.assert_kept(&dir, "from memory");
    assert_eq!(std::fs::write(dir.join("new"), b"x").unwrap_err().raw_os_error(), Some(30));
    mount.unmount();
    drop(device);
    assert!(unchanged(), "a read-only device was written");

    // The view without recovery, whatever it shows.
    let mount = ExtolMount::start(&image.path, &dir, &["ro", "norecovery"]);
    dir.read_dir().unwrap().for_each(drop);
    mount.unmount();
    assert!(unchanged(), "a mount without recovery wrote");

    // `norecovery` means `ro`, also where `rw` is said, and a line says so.
    let mount = ExtolMount::start(&image.path, &dir, &["rw", "norecovery"]);
    assert_eq!(std::fs::write(dir.join("new"), b"x").unwrap_err().raw_os_error(), Some(30));
    assert!(mount.log().contains("norecovery means ro"), "{}", mount.log());
    mount.unmount();
    assert!(unchanged());
    let words = ["mount", "-w", "-o", "norecovery", text(&image.path), text(&dir)];
    let refused = run(extol().args(words), Duration::from_secs(60));
    assert_eq!(refused.code, Some(1), "{}", refused.output);
    assert!(unchanged());

    let mount = ExtolMount::start(&image.path, &dir, &[]);
    promises.assert_kept(&dir, "after the recovery");
    mount.unmount();
    e2fsck(&image).assert_clean("after the recovery");
}

/// What was not synced becomes durable by itself after the commit interval.
#[test]
fn the_commit_interval() {
    if !require(&NEEDS) {
        return;
    }
    // (A disk that is busy with other tests takes longer than the interval.)
    let scratch = Scratch::in_memory();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mut mount = ExtolMount::start(&image.path, &dir, &["commit=1"]);
    std::fs::create_dir(dir.join("unsynced")).unwrap();
    let start = Instant::now();
    let committed = || {
        let stats = json(&extol_ok(&["stat", "--json", text(&dir)]));
        stats["journal"]["running_tid"].is_null()
            && stats["journal"]["transactions"].as_u64() > Some(0)
    };
    while !committed() {
        assert!(start.elapsed() < Duration::from_secs(10), "no commit after ten seconds");
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "committed after {took:?}");
    mount.kill9();
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    assert!(dir.join("unsynced").is_dir());
    mount.unmount();
}

/// fsync of the root directory stands in for syncfs(2), which Linux does not pass on.
#[test]
fn fsync_of_the_root_syncs_everything() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4"]);
    let mut mount = ExtolMount::start(&image.path, &dir, &[]);
    make_tree(&dir, &TreeSpec::small(5));
    sync_volume(&dir).unwrap();
    let before = Tree::of(&dir);
    mount.kill9();
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    before.assert_same(&Tree::of(&dir), "before the crash", "after the crash");
    mount.unmount();
    e2fsck(&image).assert_clean("after the crash");
}

#[test]
fn mkfs_makes_what_linux_and_e2fsck_accept() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let spec = TreeSpec {
        files: 60,
        wide: 150,
        large: 1 << 20,
        sparse_to: 10 << 20,
        ..TreeSpec::small(3)
    };
    for args in [
        &[][..],
        &["-b", "1024"],
        &["-b", "2048", "-L", "label"],
        &["-b", "4096"],
        &["-t", "ext2"],
        &["-t", "ext3", "-b", "1024"],
        &["-O", "^metadata_csum,^64bit"],
        &["-O", "inline_data"],
        &["-O", "meta_bg,^resize_inode"],
        &["-O", "sparse_super2"],
        &["-O", "^flex_bg"],
        &["-O", "^has_journal"],
        &["-I", "128"],
        &["-N", "5000", "-m", "0"],
        &["-J", "size=8"],
        &["-E", "lazy_itable_init=0"],
    ] {
        let path = scratch.join("made.img");
        let _ = std::fs::remove_file(&path);
        let mut words = vec!["mkfs", "-q"];
        words.extend(args);
        words.extend([text(&path), "96M"]);
        extol_ok(&words);
        let image = Image::existing(&path);
        e2fsck(&image).assert_clean(&format!("fresh, {args:?}"));
        let linux = KernelMount::mount(&image, &dir, &["noinit_itable"]);
        make_tree(&dir, &spec);
        linux.unmount();
        e2fsck(&image).assert_clean(&format!("used by Linux, {args:?}"));
        let linux = KernelMount::mount(&image, &dir, &["ro"]);
        let tree = Tree::of(&dir);
        linux.unmount();
        let mount = ExtolMount::start(&path, &dir, &[]);
        tree.assert_same(&Tree::of(&dir), "Linux", "Extol");
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("used by Extol, {args:?}"));
    }
    // What is there is not overwritten by mistake.
    let path = scratch.join("made.img");
    let done =
        run(extol().args(["mkfs", "-q"]).arg(scratch.dir("a-directory")), Duration::from_secs(10));
    assert!(!done.success());
    assert!(path.exists());
}

#[test]
fn files_of_a_volume_that_is_not_mounted() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 96 << 20, &["-t", "ext4"]);
    let volume = text(&image.path);
    let inside = scratch.dir("inside");
    std::fs::create_dir_all(inside.join("sub/deep")).unwrap();
    let data: Vec<u8> = (0..200_000u32).flat_map(|n| n.to_le_bytes()).collect();
    std::fs::write(inside.join("sub/data"), &data).unwrap();
    std::os::unix::fs::symlink("data", inside.join("sub/link")).unwrap();
    std::fs::hard_link(inside.join("sub/data"), inside.join("sub/deep/same")).unwrap();

    extol_ok(&["mkdir", volume, "/new"]);
    extol_ok(&["put", volume, text(&inside.join("sub")), "/new"]);
    e2fsck(&image).assert_clean("after put");
    let listed = extol_ok(&["ls", "-R", volume, "/new"]);
    for name in ["sub", "data", "link", "deep", "same"] {
        assert!(listed.contains(name), "{name} is missing:\n{listed}");
    }
    let done = extol().args(["cat", volume, "/new/sub/data"]).output().unwrap();
    assert!(done.status.success() && done.stdout == data);
    let out = scratch.dir("out");
    extol_ok(&["cp", volume, "/new/sub", text(&out)]);
    let copy = if out.join("sub").is_dir() { out.join("sub") } else { out };
    assert_eq!(std::fs::read(copy.join("deep/same")).unwrap(), data);
    assert_eq!(std::fs::read_link(copy.join("link")).unwrap(), Path::new("data"));

    let linux = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
    assert_eq!(std::fs::read(linux.path().join("new/sub/data")).unwrap(), data);
    linux.unmount();
    extol_ok(&["rm", "-r", volume, "/new"]);
    assert!(!extol_ok(&["ls", volume, "/"]).contains("new"));
    e2fsck(&image).assert_clean("after rm");
    let missing = run(extol().args(["cat", volume, "/nothing"]), Duration::from_secs(10));
    assert_eq!((missing.code, missing.output.lines().count()), (Some(32), 1), "{}", missing.output);
}

/// What `make demo` does behind the build: its commands, and no mount left when one fails.
#[test]
fn the_demonstration() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.path().join("demo-mnt");
    let demo = |image: &Path| {
        let mut script =
            Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo.sh"));
        script.env("DEMO_EXTOL", extol_path()).env("DEMO_IMAGE", image).env("DEMO_DIR", &dir);
        script.env("DEMO_FILES", "40").env("DEMO_THREADS", "4");
        run(&mut script, Duration::from_secs(120))
    };
    let image = scratch.path().join("demo.img");
    for round in ["first", "second"] {
        let done = demo(&image);
        assert!(done.success(), "{round}: {:?}\n{}", done.code, done.output);
        let lines = ["40 files in ", "commits ", "Checking with e2fsck", "What happened"];
        for line in lines {
            assert!(done.output.contains(line), "{round}: {line} is missing:\n{}", done.output);
        }
        assert!(!dir.exists() && mounted_type(&dir).is_none(), "{round}");
    }
    let other = scratch.path().join("other.img");
    std::fs::write(&other, vec![1; 1 << 20]).unwrap();
    let done = demo(&other);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(!done.output.contains("What happened") && !dir.exists(), "{}", done.output);
}
