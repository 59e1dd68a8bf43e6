//! Parts of one image, used beside each other.

use crate::disk::{Disk, volume_uuid};
use crate::{MIB, failed, schema};
use extol_testkit::{
    Image, KernelMount, LoopDevice, Need, Rig, Scratch, as_unprivileged, daemon_of, extol_ok,
    require, run_extol, run_ok, text, tool,
};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A loop device shows a part of an image: a mount of that part keeps others from it, and the
/// other way round.
#[test]
fn a_loop_device_over_a_part_is_kept_out() {
    if !require(&[Need::Root, Need::Fuse, Need::Loop, Need::Tool("sfdisk")]) {
        return;
    }
    let scratch = Scratch::new();
    let disk = Disk::new(&scratch, "disk.img", 96, "label: gpt\nsize=32M\nsize=32M\n");
    for number in [1, 2] {
        extol_ok(&["mkfs", "-q", &disk.part(number)]);
    }
    let places = disk.places();
    let over = |nr: usize| {
        let (_, start, bytes) = places[nr];
        let place = ["--offset", &start.to_string(), "--sizelimit", &bytes.to_string()];
        LoopDevice::attach_with(&disk.image.path, &place)
    };
    let dir = scratch.dir("mnt");
    extol_ok(&["mount", &disk.part(2), text(&dir)]);
    let (one, two) = (over(0), over(1));
    let second = text(two.path());
    let before = disk.image.read_at(places[1].1, 4096);
    let refused = |device: &str| {
        for words in [
            &["put", device, "/etc/hostname", "/"][..],
            &["mkfs", "-q", "-F", device],
            &["ls", device],
            &["mount", device, text(&scratch.dir("other"))],
        ] {
            failed(&run_extol(words), 32, &["disk.img", "is mounted at ", text(&dir)]);
        }
    };
    refused(second);
    assert!(disk.image.read_at(places[1].1, 4096) == before, "it was written to");
    extol_ok(&["put", text(one.path()), "/etc/hostname", "/"]);
    one.detach();
    two.detach();
    // The kernel's own partitions of a loop device.
    let whole = LoopDevice::attach_with(&disk.image.path, &["--partscan"]);
    let part = |nr: u32| format!("{}p{nr}", text(whole.path()));
    if Path::new(&part(2)).exists() {
        refused(&part(2));
        assert!(extol_ok(&["ls", &part(1)]).contains("hostname"));
    }
    whole.detach();
    extol_ok(&["umount", text(&dir)]);
    // The device is first.
    let two = over(1);
    extol_ok(&["mount", text(two.path()), text(&dir)]);
    let done = run_extol(&["put", &disk.part(2), "/etc/hostname", "/"]);
    assert!(!done.success() && done.output.contains("is mounted at "), "{}", done.output);
    extol_ok(&["put", &disk.part(1), "/etc/fstab", "/"]);
    extol_ok(&["umount", text(&dir)]);
    // A reader becomes a writer only where no other reader is.
    extol_ok(&["mount", "-o", "ro", text(two.path()), text(&dir)]);
    assert!(extol_ok(&["ls", text(two.path())]).contains("lost+found"));
    extol_ok(&["remount", "-o", "rw", text(&dir)]);
    std::fs::write(dir.join("file"), "x").expect("write");
    extol_ok(&["umount", text(&dir)]);
    two.detach();
    extol_ok(&["check", &disk.part(2)]);
}

/// Without udev the tags of partitions are those of the table of their disk.
#[test]
fn tags_of_partitions_name_them() {
    if !require(&[Need::Root, Need::Loop, Need::Tool("sfdisk"), Need::Tool("partx")]) {
        return;
    }
    let scratch = Scratch::new();
    let label = format!("tag{}", std::process::id());
    let tag = |kind: &str, value: &str| format!("{kind}={value}");
    for (kind, sectors) in [("gpt", "512"), ("dos", "512"), ("gpt", "4096"), ("dos", "4096")] {
        let image = Image::sparse(scratch.join(&format!("{kind}{sectors}")), 96 * MIB);
        let device = LoopDevice::attach_with(&image.path, &["--partscan", "-b", sectors]);
        let names = [&format!(",name={label}one"), &format!(",name=\"{label} two\"")];
        let named = if kind == "gpt" { names.map(String::as_str) } else { [""; 2] };
        let script = format!("label: {kind}\nsize=32M{}\nsize=32M{}\n", named[0], named[1]);
        let disk = Disk::on_device(&scratch, &device, &script);
        run_ok(tool("partx").arg("-u").arg(device.path()));
        let (said, _) = disk.shown();
        for (number, name) in [(1, "one"), (2, " two")] {
            let title = format!("{}{}{sectors}{number}", std::process::id(), &kind[..1]);
            extol_ok(&["mkfs", "-q", "-L", &title, &disk.part(number)]);
            let uuid = said["partitions"][number - 1]["uuid"].as_str().expect("a UUID");
            let volume = volume_uuid(&disk.part(number));
            let mut tags = vec![tag("PARTUUID", uuid), tag("PARTUUID", &uuid.to_uppercase())];
            if kind == "gpt" {
                tags.push(tag("PARTLABEL", &format!("{label}{name}")));
            }
            tags.extend([tag("LABEL", &title), tag("UUID", &volume)]);
            for tag in &tags {
                assert_eq!(volume_uuid(tag), volume, "{kind}, {sectors}: {tag}");
            }
            // Other commands take the same names.
            for (nr, tag) in tags.iter().enumerate() {
                extol_ok(&["put", tag, "/etc/hostname", &format!("/by{nr}")]);
            }
            let there = extol_ok(&["ls", &tags[0]]);
            assert!((0..tags.len()).all(|nr| there.contains(&format!("by{nr}"))), "{there}");
            extol_ok(&["check", &tags[0]]);
        }
        run_ok(tool("partx").arg("-d").arg(device.path()));
        device.detach();
    }
}

/// A file that has the name of a partition is that file.
#[test]
fn a_file_of_that_name_is_meant() {
    if !require(&[Need::Tool("sfdisk")]) {
        return;
    }
    let scratch = Scratch::new();
    let disk = Disk::new(&scratch, "disk.img", 64, "label: gpt\nsize=20M\nsize=20M\n");
    extol_ok(&["mkfs", "-q", "-L", "inside", &disk.part(1)]);
    extol_ok(&["mkfs", "-q", "-L", "file", text(&scratch.join("file")), "16M"]);
    std::fs::rename(scratch.join("file"), scratch.join("disk.img:1")).expect("rename");
    let label = |name: &str| {
        let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", name])).expect("JSON");
        let schema = include_str!("../../../docs/guide/schemas/info.json");
        schema::check(&serde_json::from_str(schema).expect("a schema"), &said, "info");
        assert_eq!(said.get("part").is_some(), said["label"] == "inside");
        said["label"].as_str().expect("a label").to_owned()
    };
    assert_eq!(label(&disk.part(1)), "file");
    std::fs::remove_file(scratch.join("disk.img:1")).expect("remove");
    assert_eq!(label(&disk.part(1)), "inside");
    let both = run_extol(&["ls", "-o", "offset=1m", &disk.part(1)]);
    failed(&both, 1, &["offset= and sizelimit= cannot be used with a partition"]);
}

/// Partitions of one image are mounted at a time, each once, and nothing has the whole image then.
#[test]
fn partitions_are_mounted_beside_each_other() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("sfdisk"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let script = "label: gpt\nstart=2048,size=32M,name=root\nstart=67585,size=65537,name=home\n";
    let disk = Disk::new(&scratch, "disk.img", 96, script);
    let (root, home) = (disk.part(1), disk.part("home"));
    for name in [&root, &home] {
        extol_ok(&["mkfs", "-q", "-b", "1024", name]);
    }
    let (at_root, at_home) = (scratch.dir("root"), scratch.dir("home"));
    extol_ok(&["mount", &root, text(&at_root)]);
    extol_ok(&["mount", "-o", "ro", &home, text(&at_home)]);
    let source = |dir: &Path| run_ok(tool("findmnt").args(["-no", "SOURCE"]).arg(dir));
    assert_eq!(source(&at_root).trim(), root);
    let in_use = |words: &[&str]| {
        let done = run_extol(words);
        assert!(done.output.contains("is mounted at "), "{words:?}: {}", done.output);
        assert_eq!(done.code, Some(if words[0] == "check" { 8 } else { 32 }), "{words:?}");
    };
    let other = scratch.dir("other");
    in_use(&["mount", &root, text(&other)]);
    in_use(&["mount", &disk.part("root"), text(&other)]);
    in_use(&["put", &root, "/etc/hostname", "/"]);
    in_use(&["ls", &root]);
    in_use(&["mkfs", "-q", "-F", &home]);
    in_use(&["mkfs", "-q", "-F", disk.name()]);
    in_use(&["check", disk.name()]);
    // A reader beside the reader.
    assert!(extol_ok(&["ls", &home]).contains("lost+found"));
    assert!(extol_ok(&["ls", &disk.part(2)]).contains("lost+found"));
    extol_ok(&["remount", "-o", "rw", text(&at_home)]);
    in_use(&["ls", &disk.part(2)]);
    for dir in [&at_root, &at_home] {
        std::fs::write(dir.join("file"), vec![7; 3 << 20]).expect("write");
        std::fs::File::open(dir.join("file")).and_then(|file| file.sync_all()).expect("sync");
    }
    // One dies, the other goes on; then it is recovered.
    let daemon = daemon_of(&at_root);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).expect("kill");
    while std::fs::metadata(&at_root).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    extol_ok(&["umount", text(&at_root)]);
    std::fs::write(at_home.join("more"), "more").expect("write");
    extol_ok(&["umount", &home]);
    extol_ok(&["replay", &root]);
    for name in [&root, &home] {
        extol_ok(&["check", name]);
        assert_eq!(extol_ok(&["cat", name, "/file"]).len(), 3 << 20);
    }
    // Through a loop device, so that the kernel has a block device.
    if require(&[Need::Loop]) {
        extol_ok(&["mount", "-o", "loop", &root, text(&at_root)]);
        let kind = extol_testkit::mounted_type(&at_root);
        assert_eq!(kind.as_deref(), Some("fuseblk.extol"));
        assert_eq!(std::fs::metadata(at_root.join("file")).expect("file").size(), 3 << 20);
        extol_ok(&["umount", text(&at_root)]);
    }
}

/// What Linux has mounted of an image keeps Extol from that part of it alone.
#[test]
fn linux_and_extol_have_a_part_each() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Kernel("ext4"), Need::Tool("sfdisk")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let disk = Disk::new(&scratch, "disk.img", 96, "label: dos\nsize=32M\nsize=32M\n");
    let places = disk.places();
    for number in [1, 2] {
        extol_ok(&["mkfs", "-q", &disk.part(number)]);
    }
    let place = ["--offset", &places[0].1.to_string(), "--sizelimit", &places[0].2.to_string()];
    let device = LoopDevice::attach_with(&disk.image.path, &place);
    let (linux, extol) = (scratch.dir("linux"), scratch.dir("extol"));
    let mount = KernelMount::mount_device(device.path(), &linux, &[]);
    let one = disk.part(1);
    for words in [&["put", &one, "/etc/hostname", "/"][..], &["ls", &one], &["check", &one]] {
        let done = run_extol(words);
        assert!(!done.success() && done.output.contains("is mounted at "), "{}", done.output);
    }
    extol_ok(&["mount", &disk.part(2), text(&extol)]);
    std::fs::write(extol.join("a"), "a").expect("write");
    std::fs::write(linux.join("b"), "b").expect("write");
    extol_ok(&["umount", text(&extol)]);
    mount.unmount();
    device.detach();
    assert!(extol_ok(&["ls", &disk.part(1)]).contains('b'));
    for number in [1, 2] {
        extol_ok(&["check", &disk.part(number)]);
    }
}

/// `offset=` and `sizelimit=`, of every command, for root and for an ordinary user.
#[test]
fn a_part_is_named_by_its_place() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("sfdisk")]) {
        return;
    }
    let rig = Rig::new();
    let scratch = Scratch::new();
    let whole = scratch.join("whole.img");
    let bytes = std::fs::read(&rig.image.path).expect("image");
    let image = Image::sparse(&whole, bytes.len() as u64 + 5 * MIB);
    image.write_at(3 * MIB + 512, &bytes);
    let place = format!("offset={},sizelimit={}", 3 * MIB + 512, bytes.len());
    let on = |words: &[&str]| {
        let (command, rest) = words.split_first().expect("a command");
        let words = [&[*command, "-o", &place, text(&whole)], rest].concat();
        extol_ok(&words)
    };
    on(&["put", "/etc/hostname", "/"]);
    assert!(on(&["ls"]).contains("hostname"));
    assert_eq!(on(&["cat", "/hostname"]).as_bytes(), std::fs::read("/etc/hostname").expect("file"));
    on(&["mkdir", "/dir"]);
    on(&["rm", "/hostname"]);
    on(&["check"]);
    on(&["replay"]);
    on(&["log"]);
    assert!(on(&["info"]).contains("at byte 3146240"));
    let dir = scratch.dir("mnt");
    on(&["mount", text(&dir)]);
    std::fs::write(dir.join("file"), "contents").expect("write");
    extol_ok(&["umount", text(&whole)]);
    on(&["check"]);
    assert_eq!(image.read_at(0, 3 << 20), vec![0; 3 << 20], "written before the part");
    let end = 3 * MIB + 512 + bytes.len() as u64;
    let rest = usize::try_from(image.size() - end).expect("a length");
    assert_eq!(image.read_at(end, rest), vec![0; rest], "written behind the part");
    let none = run_extol(&["ls", "-o", "offset=1g", text(&whole)]);
    failed(&none, 1, &["offset=1073741824 is not inside it"]);
    let cut = run_extol(&["ls", "-o", "offset=3146240,sizelimit=1m", text(&whole)]);
    failed(&cut, 32, &["the volume is truncated"]);
    let bad = run_extol(&["check", "-o", "sb=1", text(&whole)]);
    failed(&bad, 16, &["only offset=, sizelimit=, expand= and backing="]);

    if require(&[Need::UserMounts, Need::Tool("setpriv")]) {
        let program = scratch.join("extol");
        // (By another process: a fork of this one could have the copy open for writing.)
        run_ok(tool("cp").args([text(extol_testkit::extol_path()), text(&program)]));
        let user = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534));
        for path in [&whole, &dir] {
            user(path).expect("chown");
        }
        open_to_all(scratch.path());
        let mut mount = as_unprivileged(&program);
        let mount = mount.args(["mount", "-o", &place, text(&whole), text(&dir)]);
        run_ok(mount);
        assert_eq!(extol_testkit::mounted_type(&dir).as_deref(), Some("fuse.extol"));
        extol_ok(&["umount", text(&dir)]);
    }
}

/// A directory that other users may enter.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("mode");
}
