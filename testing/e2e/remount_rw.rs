//! `ro` → `rw` for a mount that was made read-only: it catches up with recovery and becomes
//! writable, or stays as it is.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use extol_testkit::{
    CrashLoad, ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown, Tree, TreeSpec,
    dump_super, e2fsck, extol, extol_path, make_tree, require, run, shutdown, tool,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("fusermount3"),
];
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-O", "^orphan_file,^fast_commit"],
    &["-t", "ext4", "-O", "orphan_file,fast_commit"],
    &["-t", "ext4", "-O", "fast_commit,^metadata_csum,^64bit", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
];

/// Runs `extol ARGS`: its exit code and what it said.
fn extol_on(args: &[&str], last: &Path) -> (Option<i32>, String) {
    let done = run(extol().args(args).arg(last), Duration::from_secs(60));
    (done.code, done.output.trim().to_owned())
}

#[track_caller]
fn must(args: &[&str], last: &Path) {
    let (code, said) = extol_on(args, last);
    assert_eq!(code, Some(0), "{args:?}: {said}");
}

/// A volume that Linux left behind a crash: with a log, fast commits where it has them, and files
/// without a name.
fn dirty(scratch: &Scratch, kind: &[&str]) -> Image {
    let image = Image::mke2fs(scratch.path(), "dirty.img", 128 << 20, kind);
    let dir = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    make_tree(&dir, &TreeSpec::small(7));
    let names: Vec<_> = (0..20).map(|nr| dir.join(format!("open{nr}"))).collect();
    names.iter().for_each(|name| std::fs::write(name, [3; 30_000]).expect("write"));
    let root = File::open(&dir).expect("open");
    rustix::fs::syncfs(&root).expect("syncfs");
    let held: Vec<_> = names.iter().map(|name| File::open(name).expect("open")).collect();
    names.iter().for_each(|name| std::fs::remove_file(name).expect("unlink"));
    rustix::fs::syncfs(&root).expect("syncfs");
    drop(root);
    let load = CrashLoad::start(&dir, 2, 20, 3);
    load.wait_for(40, Duration::from_secs(60));
    load.freeze();
    shutdown(&dir, Shutdown::Now);
    let _ = load.finish();
    drop(held);
    mount.unmount();
    assert!(dump_super(&image).contains("needs_recovery"), "{kind:?}");
    image
}

/// All that a mount does is done, and the tree is the one that was seen.
#[test]
fn a_dirty_volume_is_recovered_and_written() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for kind in KINDS {
        let what = format!("{kind:?}");
        let image = dirty(&scratch, kind);
        let before = std::fs::read(&image.path).expect("read");
        let mut mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        let seen = Tree::of(&dir);
        assert!(std::fs::write(dir.join("early"), "no").is_err(), "{what}");
        assert!(
            before == std::fs::read(&image.path).expect("read"),
            "{what}: a read-only mount writes"
        );
        must(&["remount", "-o", "rw"], &dir);
        seen.assert_same(&Tree::of(&dir), "mounted read-only", "read-write");
        std::fs::write(dir.join("new"), "new").expect("write");
        std::fs::create_dir(dir.join("sub")).expect("mkdir");
        std::fs::write(dir.join("sub/file"), vec![5; 300_000]).expect("write");
        must(&["sync"], &dir);
        // What it promises from now on is kept.
        let fsynced = File::create(dir.join("fsynced")).expect("create");
        rustix::io::write(&fsynced, b"kept").expect("write");
        fsynced.sync_all().expect("fsync");
        mount.kill9();
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        assert_eq!(std::fs::read(dir.join("new")).expect("read"), b"new", "{what}");
        assert_eq!(std::fs::read(dir.join("sub/file")).expect("read"), vec![5; 300_000], "{what}");
        assert_eq!(std::fs::read(dir.join("fsynced")).expect("read"), b"kept", "{what}");
        // Once more, from our own crash; and to and fro.
        for list in ["rw", "ro", "rw", "ro"] {
            must(&["remount", "-o", list], &dir);
            let written = std::fs::write(dir.join("again"), list);
            assert_eq!(written.is_ok(), list == "rw", "{what}: {written:?}");
        }
        e2fsck(&image).assert_clean(&what);
        must(&["remount", "-o", "rw"], &dir);
        mount.unmount();
        e2fsck(&image).assert_clean(&what);
        let (code, said) = extol_on(&["check"], &image.path);
        assert!(code == Some(0) && said.contains("clean: "), "{what}: {said}");
        image.remove();
    }
}

/// A clean volume, with and without a journal, on an image and on a device, by mount(8)'s way.
#[test]
fn a_clean_volume_becomes_writable() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, tools) = (scratch.dir("mnt"), scratch.dir("bin"));
    let helper = tools.join("mount.extol");
    std::os::unix::fs::symlink(extol_path(), &helper).expect("symlink");
    for kind in [&["-t", "ext4"][..], &["-t", "ext2"], &["-t", "ext4", "-O", "fast_commit"]] {
        let image = Image::mke2fs(scratch.path(), "clean.img", 64 << 20, kind);
        let device = LoopDevice::attach(&image.path);
        for source in [&image.path, &device.path().to_owned()] {
            let mount = ExtolMount::start(source, &dir, &["ro"]);
            let done = run(
                Command::new(&helper).arg(source).arg(&dir).args(["-o", "remount,rw"]),
                Duration::from_secs(60),
            );
            assert!(done.success(), "{kind:?}, {}: {}", source.display(), done.output);
            std::fs::write(dir.join("file"), "text").expect("write");
            // No other may write now.
            let (code, said) = extol_on(&["replay"], &image.path);
            assert!(code == Some(32) && said.lines().count() == 1, "{kind:?}: {code:?}, {said}");
            mount.unmount();
            if source == &image.path {
                e2fsck(&image).assert_clean(&format!("{kind:?}"));
            }
        }
        device.detach();
        e2fsck(&image).assert_clean(&format!("{kind:?}"));
        image.remove();
    }
}

/// Where it cannot be, it stays read-only and readable, and the next try may succeed.
#[test]
fn refusals_leave_it_read_only() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, other) = (scratch.dir("mnt"), scratch.dir("other"));
    let refused = |what: &str| {
        let (code, said) = extol_on(&["remount", "-o", "rw"], &dir);
        assert!(code == Some(32) && said.contains("cannot remount read-write"), "{code:?}: {said}");
        assert!(said.contains(what) && said.lines().count() == 1, "not {what}: {said}");
        assert!(std::fs::write(dir.join("no"), "no").is_err());
        assert!(dir.join("lost+found").is_dir());
    };
    let image = dirty(&scratch, KINDS[1]);

    // Another reader.
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    let reader = ExtolMount::start(&image.path, &other, &["ro"]);
    refused("is open in another process");
    reader.unmount();
    must(&["remount", "-o", "rw"], &dir);
    mount.unmount();
    e2fsck(&image).assert_clean("after another reader");
    image.remove();

    // Something else was seen.
    let image = dirty(&scratch, KINDS[1]);
    let before = std::fs::read(&image.path).expect("read");
    let mount = ExtolMount::start(&image.path, &dir, &["ro", "norecovery"]);
    refused("norecovery");
    mount.unmount();
    assert!(before == std::fs::read(&image.path).expect("read"), "a refusal writes");

    // The device refuses writes.
    let device = LoopDevice::attach_with(&image.path, &["-r"]);
    let mount = ExtolMount::start(device.path(), &dir, &["ro"]);
    let seen = Tree::of(&dir);
    refused("");
    seen.assert_same(&Tree::of(&dir), "before", "after the refusal");
    mount.unmount();
    device.detach();
    assert!(before == std::fs::read(&image.path).expect("read"), "a refusal writes");

    // Extol can only read it.
    let image = Image::mke2fs(scratch.path(), "shared.img", 64 << 20, &["-t", "ext4"]);
    let _ = run(
        tool("debugfs").args(["-w", "-R", "feature shared_blocks"]).arg(&image.path),
        Duration::from_secs(60),
    );
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    refused("shared_blocks");
    mount.unmount();

    // An orphan list that cannot be.
    let image = Image::mke2fs(scratch.path(), "list.img", 64 << 20, KINDS[0]);
    let _ = run(
        tool("debugfs").args(["-w", "-R", "set_super_value last_orphan 2"]).arg(&image.path),
        Duration::from_secs(60),
    );
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    refused("orphan");
    refused("");
    mount.unmount();
}
