//! Images in containers: Android sparse, compressed, qcow2, VMDK, VHDX.

use crate::disk::{Disk, disk_json};
use crate::{failed, schema};
use extol_testkit::{Need, Rig, daemon_of, extol_ok, require, run_extol, run_ok, text, tool};
use rustix::process::Pid;
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// Android sparse images, of volumes and of disks, are read as what they hold, and not written to.
#[test]
fn android_images_are_read() {
    let tools = ["img2simg", "sfdisk", "mke2fs"].map(Need::Tool);
    if !require(&[&tools[..], &[Need::Root, Need::Fuse]].concat()) {
        return;
    }
    let rig = Rig::new();
    rig.mount(&[]);
    for n in 0..40 {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(|k| (k * n).to_le_bytes()).collect();
        std::fs::write(rig.dir.join(format!("file{n}")), bytes).expect("write");
    }
    assert!(rig.unmount(&[]).success());
    let raw = text(&rig.image.path);
    let packed = rig.scratch.join("a.simg");
    run_ok(tool("img2simg").args([raw, text(&packed)]));
    let name = text(&packed);
    assert!(std::fs::metadata(&packed).expect("made").len() < rig.image.size());
    let before = std::fs::read(&packed).expect("read");
    assert_eq!(extol_ok(&["ls", "-lR", name]), extol_ok(&["ls", "-lR", raw]));
    extol_ok(&["check", name]);
    let info = extol_ok(&["info", name]);
    assert!(info.contains("Packed in              an Android sparse image"), "{info}");
    is_only_read(name, "make a raw image of it (simg2img)");
    let (all, same) = (rig.scratch.join("all"), rig.scratch.join("same"));
    extol_ok(&["cp", "-r", name, "/", text(&all)]);
    extol_ok(&["cp", "-r", raw, "/", text(&same)]);
    run_ok(tool("diff").args(["-r", text(&all), text(&same)]));
    let simg2img = "is only read: make a raw image of it (simg2img)";
    failed(&run_extol(&["put", name, "/etc/hostname", "/"]), 32, &[simg2img]);
    failed(&run_extol(&["replay", name]), 32, &[simg2img]);
    for args in [&["mkfs", "-q", name][..], &["mkfs", "-qF", "-d", "/etc/apt", name]] {
        failed(&run_extol(args), 32, &[simg2img]);
    }
    failed(&run_extol(&["mount", "-w", name, text(&rig.dir)]), 32, &[simg2img]);
    for options in ["ro", "untrusted"] {
        extol_ok(&["mount", "-o", options, name, text(&rig.dir)]);
        assert_eq!(std::fs::read(rig.dir.join("file7")).expect("read").len(), 400_000);
        let remount = run_extol(&["remount", "-o", "rw", text(&rig.dir)]);
        assert!(!remount.success(), "{}", remount.output);
        extol_ok(&["umount", text(&rig.dir)]);
    }
    assert!(std::fs::read(&packed).expect("read") == before, "it was written to");

    let disk = Disk::new(&rig.scratch, "disk.img", 64, "label: gpt\nsize=40M,name=root\n");
    extol_ok(&["mkfs", "-q", &disk.part(1)]);
    extol_ok(&["put", &disk.part(1), "/etc/hostname", "/"]);
    let packed = rig.scratch.join("disk.simg");
    run_ok(tool("img2simg").args([disk.name(), text(&packed)]));
    let part = format!("{}:root", text(&packed));
    assert!(extol_ok(&["ls", &part]).contains("hostname"));
    failed(&run_extol(&["ls", text(&packed)]), 32, &["a GPT disk with partition 1 (ext4, root)"]);
    is_only_read(&part, "make a raw image of it (simg2img)");
    is_packed_disk(text(&packed), "sparse", "an Android sparse image");
    let unpacked = disk_json(disk.name());
    assert!(unpacked.get("container").is_none() && unpacked.get("backing").is_none());
    for (program, what) in [("gzip", "gzip"), ("xz", "an xz file"), ("zstd", "zstd")] {
        if !require(&[Need::Tool(program)]) {
            continue;
        }
        let packed = rig.scratch.join(program);
        let line = format!("{program} -1 -c {} >{}", disk.name(), text(&packed));
        run_ok(tool("sh").args(["-c", &line]));
        is_packed_disk(text(&packed), program, what);
        is_only_read(&format!("{}:1", text(&packed)), "expand it first");
    }

    let file = std::fs::File::options().write(true).open(&packed).expect("open");
    file.set_len(std::fs::metadata(&packed).expect("made").len() - 1).expect("cut");
    failed(&run_extol(&["ls", &part]), 32, &["an Android sparse image", "cut short"]);
}

/// It is said that a volume cannot be written to, and why.
fn is_only_read(name: &str, why: &str) {
    let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", name])).expect("JSON");
    let refused = said["refused"].as_str().unwrap_or_default();
    assert!(refused.contains("only read") && refused.contains(why), "{name}: {said}");
    let line = format!("{:<22} {refused}", "Read-write with Extol");
    let text = extol_ok(&["info", name]);
    assert!(text.lines().any(|found| found == line), "no \"{line}\": {text}");
}

/// Compressed images are expanded for reading; what is cut, and what becomes too large, is refused.
#[test]
fn compressed_images_are_read() {
    let tools = ["gzip", "xz", "zstd", "mke2fs"].map(Need::Tool);
    if !require(&[&tools[..], &[Need::Root, Need::Fuse]].concat()) {
        return;
    }
    let rig = Rig::new();
    let raw = text(&rig.image.path);
    extol_ok(&["put", raw, "/etc/hostname", "/"]);
    let listed = extol_ok(&["ls", "-lR", raw]);
    let before = rig.image.read_at(0, 32 << 20);
    for (program, end) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        let packed = rig.scratch.join(&format!("a.{end}"));
        let line =
            format!("{program} -c {raw} >{0} && {program} -c </dev/null >>{0}", text(&packed));
        run_ok(tool("sh").args(["-c", &line]));
        let name = text(&packed);
        assert_eq!(extol_ok(&["ls", "-lR", name]), listed);
        extol_ok(&["check", name]);
        let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", name])).expect("JSON");
        assert_eq!(said["container"], program);
        is_only_read(name, "expand it first");
        let only_read = format!("which is only read: expand it first ({program} -d)");
        failed(&run_extol(&["put", name, "/etc/hostname", "/"]), 32, &[&only_read]);
        failed(&run_extol(&["mount", name, text(&rig.dir)]), 32, &[&only_read]);
        failed(&run_extol(&["mkfs", "-q", name]), 32, &[program, "-F overwrites it"]);
        for options in ["ro", "untrusted"] {
            extol_ok(&["mount", "-o", options, name, text(&rig.dir)]);
            assert!(rig.dir.join("hostname").exists());
            extol_ok(&["umount", text(&rig.dir)]);
        }
        // An empty volume is far larger than what it is packed in; zeros behind it are padding.
        let large = rig.scratch.join("large.img");
        extol_ok(&["mkfs", "-q", text(&large), "8G"]);
        let line = format!("{program} -1 -c {} >{name}", text(&large));
        let packed_large = rig.scratch.join("large");
        if program == "zstd" {
            run_ok(tool("sh").args(["-c", &line.replace(name, text(&packed_large))]));
            extol_ok(&["check", text(&packed_large)]);
            let bytes = std::fs::read(&packed_large).expect("read");
            std::fs::write(&packed_large, &bytes[..bytes.len() - 9]).expect("cut");
            let done = run_extol(&["ls", text(&packed_large)]);
            failed(&done, 32, &["zstd: it is damaged, or cut short"]);
            std::fs::remove_file(&packed_large).expect("remove");
        }
        std::fs::remove_file(&large).expect("remove");
        if program == "gzip" {
            let file = std::fs::File::options().write(true).open(&packed).expect("open");
            let len = file.metadata().expect("length").len();
            file.set_len(len + 100_000).expect("lengthen");
            assert_eq!(extol_ok(&["ls", "-lR", name]), listed);
            file.set_len(len).expect("cut");
        }
        failed(&run_extol(&["ls", "-o", "expand=0", name]), 1, &["expand", "less than 1"]);
        let bound = ["-o", "expand=31m"];
        let done = run_extol(&[&["ls"], &bound[..], &[name]].concat());
        failed(&done, 32, &["when it is expanded", "allow more with -o expand=SIZE"]);
        let mount = [&["mount"], &bound[..], &["-o", "ro", name, text(&rig.dir)]].concat();
        failed(&run_extol(&mount), 32, &["when it is expanded"]);
        extol_ok(&["check", "-o", "expand=32m", name]);
        let bytes = std::fs::read(&packed).expect("read");
        std::fs::write(&packed, &bytes[..bytes.len() / 2]).expect("cut");
        failed(&run_extol(&["ls", name]), 32, &[program]);
    }
    assert!(rig.image.read_at(0, 32 << 20) == before, "the image was written to");
    let left = std::fs::read_dir(rig.scratch.path()).expect("list").count();
    assert_eq!(left, 5, "nothing is left beside the images");
}

/// qcow2 images are made, mounted and changed as raw ones are, and what QEMU says of them is sound;
/// what lies under one is opened where that is allowed.
#[test]
fn qcow2_images_are_used() {
    let schema = include_str!("../../../docs/guide/schemas/info.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let tools = ["qemu-img", "qemu-io", "e2fsck", "sfdisk"].map(Need::Tool);
    if !require(&[&tools[..], &[Need::Root, Need::Fuse]].concat()) {
        return;
    }
    let rig = Rig::new();
    let dir = text(&rig.dir);
    let at = |name: &str| text(&rig.scratch.join(name)).to_owned();
    let qemu_img = |args: &[&str]| run_ok(tool("qemu-img").args(args));
    let image = at("a.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "256M"]);
    extol_ok(&["mkfs", "-q", &image]);
    extol_ok(&["put", &image, "/etc/hostname", "/"]);
    qemu_img(&["check", "-q", &image]);
    extol_ok(&["mount", &image, dir]);
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    for n in 0..5 {
        std::fs::write(rig.dir.join(format!("big{n}")), &bytes).expect("write");
    }
    std::fs::remove_file(rig.dir.join("big1")).expect("remove");
    run_ok(tool("fstrim").arg(dir));
    run_ok(tool("sync").arg(rig.dir.join("big4")));
    // QEMU sees that it is in use, and is seen.
    assert!(!tool("qemu-img").args(["check", &image]).output().expect("run").status.success());
    let daemon = daemon_of(&rig.dir);
    run_ok(tool("kill").args(["-9", &daemon.to_string()]));
    run_ok(tool("umount").args(["-l", dir]));
    // Its locks are there until it has ended.
    has_ended(daemon);
    let check = || tool("qemu-img").args(["check", "-q", &image]).status().expect("run").code();
    // (1: the locks of requests under way are there for a moment longer.)
    let began = Instant::now();
    while check() == Some(1) && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let code = check();
    assert!(matches!(code, Some(0 | 3)), "after a crash: {code:?}");
    extol_ok(&["mount", &image, dir]);
    assert!(std::fs::read(rig.dir.join("big4")).expect("read") == bytes);
    extol_ok(&["umount", dir]);
    assert!(extol_ok(&["check", &image]).contains("clean"));
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", &image, &at("raw")]);
    run_ok(tool("e2fsck").args(["-fn", &at("raw")]));
    let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", &image])).expect("JSON");
    schema::check(&schema, &said, "info");
    assert_eq!(said["container"], "qcow2");
    assert!(said["refused"].is_null(), "{said}");
    let grown = run_extol(&["resize", &image, "300M"]);
    assert!(grown.code != Some(0) && grown.stderr.contains("qemu-img resize"), "{}", grown.output);

    // A layer over it, here and elsewhere.
    let over = at("over.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", &image, "-F", "qcow2", &over]);
    let before = std::fs::read(&image).expect("read");
    extol_ok(&["put", &over, "/etc/passwd", "/"]);
    assert!(extol_ok(&["ls", &over, "/"]).contains("passwd"));
    assert!(std::fs::read(&image).expect("read") == before, "the file below was written to");
    let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", &over])).expect("JSON");
    schema::check(&schema, &said, "info");
    assert_eq!(said["backing"].as_array().map(Vec::len), Some(1));
    qemu_img(&["check", "-q", &over]);
    failed(&run_extol(&["ls", "-o", "backing=none", &over]), 1, &["backing=none"]);
    failed(&run_extol(&["mount", "-o", "untrusted", &over, dir]), 1, &["backing=none"]);
    std::fs::create_dir(rig.scratch.join("sub")).expect("mkdir");
    std::fs::rename(&over, at("sub/over.qcow2")).expect("move");
    let over = at("sub/over.qcow2");
    failed(&run_extol(&["ls", &over]), 1, &["not in the directory", "backing=PATH"]);
    let allowed = format!("backing={image}");
    assert!(extol_ok(&["ls", "-o", &allowed, &over, "/"]).contains("passwd"));
    extol_ok(&["mount", "-o", &allowed, &over, dir]);
    std::fs::write(rig.dir.join("new"), b"new").expect("write");
    extol_ok(&["umount", dir]);

    // A partition in it.
    run_ok(
        tool("sh")
            .args(["-c", "printf 'label: gpt\nsize=20M\nname=root' | sfdisk -q $0"])
            .arg(&rig.image.path),
    );
    let disk = at("disk.qcow2");
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", text(&rig.image.path), &disk]);
    failed(&run_extol(&["ls", &disk]), 32, &["a GPT disk with partitions 1"]);
    let part = format!("{disk}:root");
    let said = is_packed_disk(&disk, "qcow2", "a qcow2 image (version 3, clusters of 64K)");
    assert!(said.get("backing").is_none(), "{said}");
    let above = at("above.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", &disk, "-F", "qcow2", &above]);
    let said = is_packed_disk(&above, "qcow2", &format!("over {disk}"));
    assert_eq!(said["backing"], serde_json::json!([disk]));
    extol_ok(&["mkfs", "-q", "-F", &part]);
    extol_ok(&["mount", &part, dir]);
    std::fs::write(rig.dir.join("new"), b"new").expect("write");
    extol_ok(&["umount", dir]);
    assert!(extol_ok(&["ls", &part, "/"]).contains("new"));
    qemu_img(&["check", "-q", &disk]);

    // What cannot be written to is still read.
    qemu_img(&["snapshot", "-c", "one", &image]);
    failed(&run_extol(&["put", &image, "/etc/passwd", "/"]), 32, &["snapshots", "qemu-img"]);
    extol_ok(&["ls", &image]);
    is_only_read(&image, "it has snapshots");
    // An image that QEMU has open.
    let mut machine = tool("qemu-io");
    let mut machine =
        machine.args(["-f", "raw", "-c", "sleep 60000", &at("raw")]).spawn().expect("qemu-io");
    let inode = std::fs::metadata(at("raw")).expect("stat").ino();
    let start = std::time::Instant::now();
    let has_locked = || {
        let locks = std::fs::read_to_string("/proc/locks").expect("locks");
        locks.lines().any(|line| line.contains(&format!(":{inode} ")))
    };
    while !has_locked() {
        assert!(start.elapsed().as_secs() < 20, "qemu-io does not lock the image");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let busy = run_extol(&["put", &at("raw"), "/etc/passwd", "/"]);
    machine.kill().expect("kill");
    machine.wait().expect("wait");
    assert!(busy.stderr.contains("QEMU"), "{}", busy.output);
}

/// Waits for the end of a process that was killed.
fn has_ended(daemon: Pid) {
    let start = std::time::Instant::now();
    let status = format!("/proc/{daemon}/status");
    let runs = |text: String| !text.contains("State:\tZ");
    while std::fs::read_to_string(&status).is_ok_and(runs) {
        assert!(start.elapsed().as_secs() < 20, "the daemon {daemon} has not ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// It is said what a disk with partitions is packed in. The JSON.
fn is_packed_disk(name: &str, word: &str, what: &str) -> Value {
    let said = disk_json(name);
    assert_eq!(said["container"], word);
    let text = extol_ok(&["info", name]);
    let first = text.lines().next().expect("a line");
    assert!(first.contains(", packed in ") && first.contains(what), "{text}");
    said
}

/// `mkfs`, with `-d` and without, makes the volume on the disk of an image: the image stays one.
#[test]
fn mkfs_writes_into_the_disk_of_an_image() {
    if !require(&[Need::Tool("qemu-img"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("scratch");
    let at = |name: &str| text(&scratch.path().join(name)).to_owned();
    let qemu_img = |args: &[&str]| run_ok(tool("qemu-img").args(args));
    let files = at("files");
    std::fs::create_dir(&files).expect("mkdir");
    std::fs::write(scratch.path().join("files/one"), vec![1; 300_000]).expect("write");
    let (base, image, over) = (at("base.qcow2"), at("a.qcow2"), at("over.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", &base, "64M"]);
    extol_ok(&["mkfs", "-q", &base]);
    let below = std::fs::read(&base).expect("read");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "64M"]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", &base, "-F", "qcow2", &over]);
    for (name, force) in [(&image, "-q"), (&over, "-qF")] {
        let planned = extol_ok(&["mkfs", "-n", "-F", "-d", &files, name]);
        assert!(planned.contains("65536") || planned.contains("16384"), "{planned}");
        extol_ok(&["mkfs", force, "-d", &files, name]);
        qemu_img(&["check", "-q", "-f", "qcow2", name]);
        assert!(extol_ok(&["ls", name, "/"]).contains("one"));
        failed(&run_extol(&["mkfs", "-q", "-d", &files, name]), 32, &["-F overwrites it"]);
        let before = std::fs::read(name).expect("read");
        for size in [&["32M"][..], &["128M"], &["--free", "10%"]] {
            for fill in [&["-d", &files][..], &[]] {
                if fill.is_empty() && size.len() > 1 {
                    continue;
                }
                let args = [&["mkfs", "-qF"][..], fill, &[name], size].concat();
                failed(&run_extol(&args), 1, &["a disk of 67108864 bytes", "qemu-img resize"]);
            }
        }
        assert!(std::fs::read(name).expect("read") == before, "a refusal wrote to it");
        extol_ok(&["mkfs", "-qF", "-d", &files, name, "64M"]);
        qemu_img(&["convert", "-f", "qcow2", "-O", "raw", name, &at("raw")]);
        run_ok(tool("e2fsck").args(["-fn", &at("raw")]));
    }
    assert!(std::fs::read(&base).expect("read") == below, "the file below was written to");
    assert_eq!(std::fs::read(&over).expect("read").get(..4), Some(&b"QFI\xfb"[..]));
}

/// VMDK and VHDX images are read, and a writer is told what to do.
#[test]
fn vmdk_and_vhdx_are_read() {
    if !require(&[Need::Tool("qemu-img"), Need::Tool("mke2fs"), Need::Root, Need::Fuse]) {
        return;
    }
    let rig = Rig::new();
    let raw = text(&rig.image.path);
    extol_ok(&["put", raw, "/etc/hostname", "/"]);
    let listed = extol_ok(&["ls", "-lR", raw]);
    for (format, option) in [("vmdk", "subformat=streamOptimized"), ("vhdx", "subformat=dynamic")] {
        let path = rig.scratch.join(format);
        let name = text(&path);
        let args = ["convert", "-f", "raw", "-O", format, "-o", option, raw, name];
        run_ok(tool("qemu-img").args(args));
        assert_eq!(extol_ok(&["ls", "-lR", name]), listed);
        extol_ok(&["check", name]);
        let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", name])).expect("JSON");
        assert_eq!(said["container"], format);
        is_only_read(name, "make a raw image of it (qemu-img convert -O raw)");
        let only_read = "which is only read: make a raw image of it: qemu-img convert -O raw";
        failed(&run_extol(&["put", name, "/etc/hostname", "/"]), 32, &[only_read]);
        let before = std::fs::read(&path).expect("read");
        for args in [&["mkfs", "-q", name][..], &["mkfs", "-qF", "-d", "/etc/apt", name]] {
            failed(&run_extol(args), 32, &[only_read]);
        }
        assert!(std::fs::read(&path).expect("read") == before, "it was written to");
        extol_ok(&["mount", "-o", "ro", name, text(&rig.dir)]);
        assert!(rig.dir.join("hostname").exists());
        extol_ok(&["umount", text(&rig.dir)]);
    }
    // What cannot be read is not said to have no partitions.
    let split = rig.scratch.join("split.vmdk");
    let option = "subformat=monolithicFlat";
    run_ok(tool("qemu-img").args(["convert", "-O", "vmdk", "-o", option, raw, text(&split)]));
    for part in [text(&split), &format!("{}:1", text(&split))] {
        let what = "the description of a VMDK image";
        failed(&run_extol(&["ls", part]), 32, &[what, ": make a raw image of it: qemu-img"]);
    }
}
