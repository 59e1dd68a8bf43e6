//! Partition tables, as their makers see them.

use crate::disk::{DOS, Disk, volume_uuid};
use crate::{MIB, failed};
use extol_testkit::{
    Image, LoopDevice, Need, Scratch, extol_ok, require, run_extol, run_ok, text, tool,
};

/// The tables of several programs, as those see them, and volumes in each partition as Linux and
/// e2fsck see them.
#[test]
fn partitions_are_those_of_their_makers() {
    let tools = ["sfdisk", "sgdisk", "parted", "e2fsck", "losetup"].map(Need::Tool);
    if !require(&[&tools[..], &[Need::Root, Need::Loop]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let gpt = "label: gpt\nsize=20M,name=\"my root\"\nsize=10M,type=swap,name=s\nsize=20M\n";
    let empty = "label: gpt\n";
    let made = [
        ("gpt", Disk::new(&scratch, "gpt.img", 64, gpt)),
        ("gpt", Disk::new(&scratch, "sgdisk.img", 64, empty)),
        ("gpt", Disk::new(&scratch, "hybrid.img", 64, gpt)),
        ("dos", Disk::new(&scratch, "dos.img", 160, DOS)),
        ("dos", Disk::new(&scratch, "parted.img", 64, empty)),
    ];
    let path = |n: usize| &made[n].1.image.path;
    run_ok(tool("sgdisk").args(["-Z"]).arg(path(1)));
    run_ok(tool("sgdisk").args(["-a1", "-n1:100:+9M", "-n5:40000:+9M", "-c5:five"]).arg(path(1)));
    run_ok(tool("sgdisk").args(["--hybrid=1:3"]).arg(path(2)));
    let mut parted = tool("parted");
    parted
        .args(["-s"])
        .arg(path(4))
        .args(["mklabel", "msdos", "mkpart", "primary", "1MiB", "20MiB"]);
    run_ok(
        parted
            .args(["mkpart", "extended", "20MiB", "60MiB", "mkpart", "logical", "21MiB", "40MiB"]),
    );
    for (kind, disk) in &made {
        let (said, places) = disk.shown();
        assert_eq!(places, disk.places(), "{}", disk.name());
        assert_eq!(said["table"], *kind);
        assert_eq!(said["is_hybrid"], disk.name().ends_with("hybrid.img"), "{}", disk.name());
        for (number, start, bytes) in places.iter().filter(|(_, _, bytes)| *bytes > 8 * MIB) {
            let is_extended = said["partitions"].as_array().expect("partitions").iter();
            let mut is_extended = is_extended.filter(|part| part["purpose"] == "extended");
            let name = disk.part(number);
            if is_extended.any(|part| part["number"] == *number) {
                let words = ["is an extended one", &format!("say {}", disk.part(5))];
                failed(&run_extol(&["mkfs", "-q", "-F", &name]), 32, &words);
                failed(&run_extol(&["info", &name]), 32, &words);
                continue;
            }
            extol_ok(&["mkfs", "-q", "-L", &format!("vol{number}"), &name]);
            extol_ok(&["put", &name, "/etc/hostname", "/"]);
            extol_ok(&["check", &name]);
            // The neighbours are whole: each is looked at again at the end.
            let place = ["--offset", &start.to_string(), "--sizelimit", &bytes.to_string()];
            let device = LoopDevice::attach_with(&disk.image.path, &place);
            run_ok(tool("e2fsck").args(["-fn"]).arg(device.path()));
            device.detach();
        }
        assert_eq!(disk.shown().1, places, "the table is whole");
        for (number, ..) in &places {
            let label = format!("vol{number}");
            let by_label = run_extol(&["ls", &disk.part(&label)]);
            if by_label.success() {
                assert_eq!(by_label.output, extol_ok(&["ls", &disk.part(number)]));
                extol_ok(&["check", &disk.part(number)]);
            }
        }
    }
    let disk = &made[0].1;
    assert_eq!(extol_ok(&["ls", &disk.part("my root")]), extol_ok(&["ls", &disk.part(1)]));
    let done = run_extol(&["ls", disk.name()]);
    let line = "a GPT disk with partitions 1 (ext4, my root), 2 (ext4, s) and 3 (ext4, vol3): say";
    let line = line.replace("my root", "'my root'");
    failed(&done, 32, &[&line, &format!("say {}:1", disk.name())]);
    let lists = format!("{0} is a GPT disk with 3 partitions (extol info {0} ", disk.name());
    for part in ["9", "none"] {
        let done = run_extol(&["ls", &disk.part(part)]);
        failed(&done, 32, &[&format!("no partition {part}"), &lists]);
        assert!(!done.output.contains("vol3"), "the table is listed: {}", done.output);
    }
    failed(&run_extol(&["mkfs", "-q", disk.name()]), 32, &["a GPT disk", "-F overwrites it"]);
    failed(&run_extol(&["mkfs", "-q", &disk.part(1)]), 32, &["labelled 'vol1'", "-F"]);
    let uuid = volume_uuid(&disk.part(1));
    for uuid in [uuid.to_uppercase(), uuid] {
        assert_eq!(extol_ok(&["ls", &disk.part(uuid)]), extol_ok(&["ls", &disk.part(1)]));
    }

    // A partition is filled in place.
    let filled = scratch.dir("tree");
    std::fs::write(filled.join("in tree"), "x").expect("write");
    extol_ok(&["mkfs", "-q", "-F", "-d", text(&filled), &disk.part(3)]);
    assert!(extol_ok(&["ls", &disk.part(3)]).contains("in tree"));
    extol_ok(&["check", &disk.part(3)]);

    // The copy of a GPT.
    let first = disk.image.read_at(512, 512);
    let last = disk.image.size() - 512;
    let copy = disk.image.read_at(last, 512);
    let state = || {
        let (said, places) = disk.shown();
        assert_eq!(places.len(), 3);
        (said["is_copy"] == true, said["copy_is_damaged"] == true)
    };
    assert_eq!(state(), (false, false));
    disk.image.write_at(last, &[0xFF; 512]);
    assert_eq!(state(), (false, true));
    assert!(extol_ok(&["info", disk.name()]).contains("copy of its table at its end is damaged"));
    disk.image.write_at(last, &copy);
    disk.image.write_at(512, &[0xFF; 512]);
    assert_eq!(state(), (true, false));
    extol_ok(&["ls", &disk.part(1)]);
    // Both are lost, or the start of the disk.
    disk.image.write_at(last, &[0xFF; 512]);
    failed(&run_extol(&["ls", disk.name()]), 32, &["whose tables are both damaged", "gdisk"]);
    failed(&run_extol(&["ls", &disk.part(1)]), 32, &["are both damaged", "-o offset="]);
    failed(&run_extol(&["mkfs", "-q", disk.name()]), 32, &["a GPT disk", "-F overwrites it"]);
    disk.image.write_at(last, &copy);
    disk.image.write_at(0, &[0; 1024]);
    failed(&run_extol(&["mkfs", "-q", disk.name()]), 32, &["the copy of a GPT at its end", "-F"]);
    disk.image.write_at(512, &first);
}

/// The numbers of an MBR count the sectors of its device, in all that is shown and said.
#[test]
fn sectors_of_4096_bytes_are_counted() {
    if !require(&[Need::Root, Need::Loop, Need::Tool("sfdisk"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    for (kind, script) in [("dos", DOS), ("gpt", "label: gpt\nsize=40M\nsize=50M\nsize=1M\n")] {
        let image = Image::sparse(scratch.join(kind), 160 * MIB);
        let device = LoopDevice::attach_with(&image.path, &["-b", "4096"]);
        let disk = Disk::on_device(&scratch, &device, script);
        let last = if kind == "dos" { 5 } else { 2 };
        for (number, label) in [(1, "first"), (last, "last")] {
            extol_ok(&["mkfs", "-q", "-L", label, &disk.part(number)]);
        }
        let (said, places) = disk.shown();
        assert_eq!(places, disk.places(), "{kind}");
        assert_eq!(said["table"], kind);
        for part in said["partitions"].as_array().expect("partitions") {
            let Some(label) = part["label"].as_str().filter(|label| !label.is_empty()) else {
                continue;
            };
            assert_eq!(part["holds"], "ext4", "{said}");
            // The place that is shown is that of the volume.
            let place = format!("offset={}", part["start"]);
            let shown = extol_ok(&["info", "-o", &place, disk.name()]);
            assert!(shown.contains(label), "{shown}");
            let size = format!("--sizelimit={}", part["bytes"]);
            let place = format!("--offset={}", part["start"]);
            let volume = LoopDevice::attach_with(&image.path, &[&place, &size]);
            run_ok(tool("e2fsck").args(["-fn"]).arg(volume.path()));
            volume.detach();
        }
        let listed = run_extol(&["ls", disk.name()]);
        failed(&listed, 32, &["1 (ext4, first)", "(ext4, last)", &format!("say {}", disk.part(1))]);
        disk.image.write_at(places[0].1 + 1024, &[0; 1024]);
        failed(&run_extol(&["ls", disk.name()]), 32, &[&format!("say {}", disk.part(last))]);
        device.detach();
    }
}

/// A disk that was cut is no disk with shorter partitions; a name with a `/` is one, too.
#[test]
fn a_cut_disk_is_refused() {
    if !require(&[Need::Tool("sfdisk"), Need::Tool("sgdisk")]) {
        return;
    }
    let scratch = Scratch::new();
    let disk = Disk::new(&scratch, "disk.img", 64, "label: gpt\nsize=20M,name=a/b\nsize=20M\n");
    for part in [disk.part(1), disk.part(2)] {
        extol_ok(&["mkfs", "-q", &part]);
    }
    assert_eq!(extol_ok(&["ls", &disk.part("a/b")]), extol_ok(&["ls", &disk.part(1)]));
    let (_, start, bytes) = disk.places()[1];
    let end = start + bytes;
    let file = std::fs::File::options().write(true).open(&disk.image.path).expect("open");
    file.set_len(end - 4096).expect("cut");
    let before = std::fs::read(&disk.image.path).expect("read");
    let words = [&format!("ends at byte {end}"), &format!("truncate -s {end}")];
    let words = words.map(String::as_str);
    for command in [&["ls"][..], &["mkfs", "-q", "-F"], &["check"]] {
        let part = disk.part(2);
        let done = run_extol(&[command, &[&part]].concat());
        failed(&done, if command[0] == "check" { 8 } else { 32 }, &words);
    }
    assert!(std::fs::read(&disk.image.path).expect("read") == before, "it was written to");
    extol_ok(&["ls", &disk.part(1)]);
    file.set_len(end).expect("lengthen");
    extol_ok(&["check", &disk.part(2)]);
}

/// What mkfs refuses to overwrite, or cannot make, is not lengthened.
#[test]
fn a_refused_mkfs_changes_nothing() {
    if !require(&[Need::Tool("mkswap"), Need::Tool("sfdisk")]) {
        return;
    }
    let scratch = Scratch::new();
    let swap = Image::sparse(scratch.join("swap"), 8 * MIB);
    run_ok(tool("mkswap").arg("-q").arg(&swap.path));
    let disk = Disk::new(&scratch, "disk.img", 64, "label: gpt\nsize=20M\n");
    let noise = Image::sparse(scratch.join("noise"), 4 * MIB);
    noise.write_at(0, &[7; 4096]);
    let dir = scratch.dir("dir");
    std::fs::write(dir.join("file"), vec![1; 3 << 20]).expect("write");
    std::fs::hard_link(&noise.path, scratch.join("other name")).expect("link");
    let (noise_name, dir) = (text(&noise.path), text(&dir));
    let cases: &[(&Image, i32, &[&str])] = &[
        (&swap, 32, &["-q", text(&swap.path), "64M"]),
        (&disk.image, 32, &["-q", disk.name(), "1G"]),
        (&noise, 1, &["-q", "-b", "3000", noise_name, "64M"]),
        (&noise, 1, &["-q", "-O", "bogus", noise_name, "64M"]),
        (&noise, 1, &["-q", "-F", "-N", "4G", noise_name, "64M"]),
        (&noise, 1, &["-q", "-F", "-I", "64", "-d", dir, noise_name, "64M"]),
    ];
    for (image, code, words) in cases {
        let before = std::fs::read(&image.path).expect("read");
        let done = run_extol(&[&["mkfs"], *words].concat());
        assert_eq!(done.code, Some(*code), "{words:?}: {}", done.output);
        assert!(!done.output.contains("is lost"), "{words:?}: {}", done.output);
        assert!(std::fs::read(&image.path).expect("read") == before, "{words:?} has changed it");
    }
    // What is not refused is lengthened, also a file without a byte.
    extol_ok(&["mkfs", "-q", "-F", noise_name, "64M"]);
    let empty = Image { path: scratch.join("empty"), journal: None };
    std::fs::write(&empty.path, "").expect("make");
    extol_ok(&["mkfs", "-q", text(&empty.path), "64M"]);
    for image in [&noise, &empty] {
        assert_eq!(image.size(), 64 << 20);
        extol_ok(&["check", text(&image.path)]);
    }
}

/// A tag is the name of all of its device for mkfs as for the other commands.
#[test]
fn mkfs_takes_a_tag() {
    if !require(&[Need::Root, Need::Loop]) {
        return;
    }
    let scratch = Scratch::new();
    let label = format!("tag{}", std::process::id());
    let tag = |kind: &str, value: &str| format!("{kind}={value}");
    let image = Image::sparse(scratch.join("a.img"), 32 * MIB);
    let device = LoopDevice::attach(&image.path);
    let name = text(device.path());
    extol_ok(&["mkfs", "-q", "-L", &label, name]);
    let uuid = volume_uuid(name);
    for tag in [tag("LABEL", &label), tag("UUID", &uuid)] {
        failed(&run_extol(&["mkfs", "-q", &tag]), 32, &[name, &label, "-F overwrites it"]);
        extol_ok(&["mkfs", "-q", "-F", "-L", &label, "-U", &uuid, &tag, "8M"]);
        extol_ok(&["mkfs", "-q", "-F", "-L", &label, "-U", &uuid, &tag]);
        extol_ok(&["check", &tag]);
        let said = extol_ok(&["info", "--json", &tag]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let bytes = said["blocks"].as_u64().zip(said["block_size"].as_u64());
        assert_eq!(bytes.map(|(blocks, size)| blocks * size), Some(32 * MIB), "all of the device");
    }
    device.detach();
    for size in [&[][..], &["8M"]] {
        let done = run_extol(&[&["mkfs", "-q", &tag("LABEL", &label)][..], size].concat());
        failed(&done, 32, &["no such volume"]);
    }
    assert!(!std::path::Path::new(&tag("LABEL", &label)).exists(), "a file of that name");
}

/// A volume is made in a part of an image, and asks before it takes half of a partition.
#[test]
fn mkfs_takes_a_part_by_its_place() {
    if !require(&[Need::Tool("sfdisk")]) {
        return;
    }
    let scratch = Scratch::new();
    let plain = Image::sparse(scratch.join("plain"), 40 * MIB);
    plain.write_at(0, &vec![7; 40 << 20]);
    let name = text(&plain.path);
    extol_ok(&["mkfs", "-q", "-o", "offset=2m,sizelimit=16m", "-o", "linux", name]);
    extol_ok(&["check", "-o", "offset=2m", name]);
    extol_ok(&["mkfs", "-q", "-E", "offset=20971520,stride=4", name, "8M"]);
    extol_ok(&["check", "-o", "offset=20m", name]);
    for (at, len) in [(0, 2 << 20), (18 << 20, 2 << 20), (28 << 20, 12 << 20)] {
        assert!(plain.read_at(at, len).iter().all(|byte| *byte == 7), "written at {at}");
    }
    let missing = scratch.join("missing");
    extol_ok(&["mkfs", "-q", "-o", "offset=1m", text(&missing), "8M"]);
    extol_ok(&["check", "-o", "offset=1m", text(&missing)]);
    let done = run_extol(&["mkfs", "-o", "no-system", name]);
    failed(&done, 1, &["-o", "no-system"]);

    let disk = Disk::new(&scratch, "disk.img", 64, "label: gpt\nsize=20M\nsize=20M\n");
    let (_, start, bytes) = disk.places()[0];
    let first = format!("offset={start},sizelimit={bytes}");
    extol_ok(&["mkfs", "-q", "-o", &first, disk.name()]);
    extol_ok(&["check", &disk.part(1)]);
    disk.image.write_at(start, &vec![0; usize::try_from(bytes).unwrap()]);
    let pieces = "a piece of partition 2 (Linux file system)";
    for (place, has) in [
        ("offset=30m", pieces),
        ("sizelimit=1m,offset=512k", "a piece of partition 1 (Linux file system)"),
        ("sizelimit=512k", "the partition table"),
        ("offset=42m,sizelimit=22m", "the copy of the partition table at the end"),
    ] {
        let done = run_extol(&["mkfs", "-q", "-o", place, disk.name()]);
        failed(&done, 32, &["this part of", has, "-F overwrites it"]);
    }
    // What is between them is taken without a question, up to the copy.
    let empty = scratch.dir("empty");
    extol_ok(&["mkfs", "-q", "-o", "offset=45m", disk.name(), "10M"]);
    extol_ok(&["mkfs", "-q", "-F", "-o", "offset=45m", disk.name()]);
    extol_ok(&["mkfs", "-q", "-F", "-d", text(&empty), "-o", "offset=45m", disk.name()]);
    extol_ok(&["resize", "-o", "offset=45m", disk.name()]);
    let sound = run_ok(tool("sfdisk").arg("-V").arg(&disk.image.path));
    assert!(sound.contains("No errors detected"), "{sound}");
    // The table is that of the disk in an image.
    if require(&[Need::Tool("qemu-img")]) {
        let packed = scratch.join("disk.qcow2");
        let convert = ["convert", "-O", "qcow2", disk.name(), text(&packed)];
        run_ok(tool("qemu-img").args(convert));
        let done = run_extol(&["mkfs", "-q", "-o", "offset=30m", text(&packed)]);
        failed(&done, 32, &["this part of", pieces, "-F overwrites it"]);
    }
    // The place of a partition alone is the partition.
    extol_ok(&["mkfs", "-q", "-o", &format!("offset={start}"), disk.name()]);
    extol_ok(&["check", &disk.part(1)]);
}
