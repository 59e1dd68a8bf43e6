//! A volume in a partition grows with it. sgdisk, sfdisk and parted accept each table, and what
//! they say of all other partitions stays.

use super::*;
use extol_testkit::extol_ok;

const TOOLS: [Need; 5] = [
    Need::Tool("sfdisk"),
    Need::Tool("sgdisk"),
    Need::Tool("parted"),
    Need::Tool("qemu-img"),
    Need::Tool("mke2fs"),
];
const MIB: u64 = 1 << 20;

/// A raw image with these partitions, in the words of sfdisk.
fn disk(scratch: &Scratch, name: &str, mib: u64, table: &str) -> Image {
    let image = Image::sparse(scratch.join(name), mib * MIB);
    let script = scratch.join("table");
    std::fs::write(&script, table).expect("write");
    let line = format!("sfdisk -q {} <{}", text(&image.path), text(&script));
    run_ok(tool("sh").args(["-c", &line]));
    image
}

/// What sfdisk says of the partitions: start, sectors and all that does not change.
fn places(image: &Path) -> Vec<(u64, u64, String)> {
    let json = run_ok(tool("sfdisk").arg("--json").arg(image));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let parts = json["partitiontable"]["partitions"].as_array().expect("partitions").clone();
    let number = |part: &serde_json::Value, name: &str| part[name].as_u64().expect("a number");
    parts
        .iter()
        .map(|part| {
            let rest = format!("{} {} {}", part["type"], part["uuid"], part["name"]);
            (number(part, "start"), number(part, "size"), rest)
        })
        .collect()
}

/// The tools have nothing to say against a table.
fn assert_sound(image: &Path, is_gpt: bool) {
    let said = run(tool("sfdisk").args(["--verify"]).arg(image), LIMIT);
    assert!(said.success() && said.output.contains("No errors detected"), "{}", said.output);
    let said = run(tool("parted").args(["-s"]).arg(image).arg("print"), LIMIT);
    assert!(said.success() && !said.output.contains("Warning"), "{}", said.output);
    if is_gpt {
        let said = run(tool("sgdisk").arg("-v").arg(image), LIMIT);
        assert!(said.output.contains("No problems found"), "{}", said.output);
    }
}

const GPT: &str = "label: gpt\nsize=32M,name=boot\nsize=64M,name=root,bootable\n";
const MBR: &str = "label: dos\nsize=32M,type=c\nsize=64M,bootable\n";

#[test]
fn a_partition_grows_with_its_volume() {
    if !require(&TOOLS) {
        return;
    }
    for (table, is_gpt) in [(GPT, true), (MBR, false)] {
        let scratch = Scratch::new();
        let image = disk(&scratch, "a.img", 128, table);
        let name = format!("{}:2", text(&image.path));
        extol_ok(&["mkfs", "-q", &name]);
        std::fs::write(scratch.join("f"), vec![7; 3 << 20]).expect("write");
        extol_ok(&["put", &name, text(&scratch.join("f")), "/f"]);
        image.write_at(MIB, b"of the first partition");
        let before = places(&image.path);

        // Within the disk, on a disk that becomes longer, and once more.
        for (size, mib) in [("80M", 80), ("+1G", 1104), ("1105M", 1105)] {
            let said = extol_ok(&["resize", &name, size]);
            assert!(said.contains(&format!("to {} bytes", mib * MIB)), "{said}");
            let now = places(&image.path);
            assert_eq!(now[0], before[0], "{size}");
            assert_eq!((now[1].0, now[1].1), (before[1].0, mib * MIB / 512), "{size}");
            assert_eq!(now[1].2, before[1].2, "{size}");
            assert_sound(&image.path, is_gpt);
            assert!(extol_ok(&["check", &name]).contains("clean: 0 errors"));
        }
        extol_ok(&["get", &name, "/f", text(&scratch.join("back"))]);
        assert!(std::fs::read(scratch.join("back")).expect("read") == vec![7; 3 << 20]);
        assert_eq!(image.read_at(MIB, 22), b"of the first partition");

        // Smaller: the volume, then the partition, not the other way round.
        let done = run_extol(&["resize", "--partition-only", &name, "-1G"]);
        assert!(done.code == Some(32) && done.stderr.contains("would cut"), "{}", done.output);
        extol_ok(&["resize", &name, "-1G"]);
        let json = extol_ok(&["resize", "--json", "--partition-only", &name, "-1G"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&json["partition"]["number"], &json["partition"]["bytes"]),
            (&2.into(), &(81 * MIB).into())
        );
        assert_eq!(places(&image.path)[1].1, 81 * MIB / 512);
        assert_sound(&image.path, is_gpt);
        // All the room, for the partition alone.
        extol_ok(&["resize", "-q", "--partition-only", &name]);
        assert!(places(&image.path)[1].1 > 1100 * MIB / 512);
        assert_sound(&image.path, is_gpt);
        assert!(extol_ok(&["resize", &name]).contains("grew from"));
        assert!(extol_ok(&["check", &name]).contains("clean: 0 errors"));
    }
}

/// A disk that became longer by any length has its copy at the end afterwards; so has a qcow2
/// image.
#[test]
fn the_copy_of_a_gpt_moves() {
    if !require(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    for sectors in [1, 33, 34, 1000] {
        let image = disk(&scratch, "a.img", 128, GPT);
        let name = format!("{}:root", text(&image.path));
        extol_ok(&["mkfs", "-q", &name]);
        let file = std::fs::File::options().write(true).open(&image.path).expect("open");
        file.set_len(128 * MIB + sectors * 512).expect("lengthen");
        extol_ok(&["resize", "-q", &name, "+1M"]);
        assert_sound(&image.path, true);
        image.remove();
    }
    let image = disk(&scratch, "raw.img", 128, GPT);
    let packed = scratch.join("a.qcow2");
    let mut convert = tool("qemu-img");
    run_ok(convert.args(["convert", "-q", "-O", "qcow2"]).arg(&image.path).arg(&packed));
    let name = format!("{}:2", text(&packed));
    extol_ok(&["mkfs", "-q", &name]);
    let done = run_extol(&["resize", &name, "+10G"]);
    assert_eq!((done.code, done.stderr.lines().count()), (Some(32), 1), "{}", done.output);
    assert!(done.stderr.contains("qemu-img resize"), "{}", done.output);
    run_ok(tool("qemu-img").args(["resize", "-q"]).arg(&packed).arg("+10G"));
    let said = extol_ok(&["resize", &name, "+10G"]);
    assert!(said.lines().count() == 2 && said.contains("partition 2 grew from 67108864"), "{said}");
    run_ok(tool("qemu-img").arg("check").arg(&packed));
    assert!(extol_ok(&["check", &name]).contains("clean: 0 errors"));
    let raw = scratch.join("again.img");
    run_ok(tool("qemu-img").args(["convert", "-q", "-O", "raw"]).arg(&packed).arg(&raw));
    assert_sound(&raw, true);
}

#[test]
fn a_partition_without_room_is_refused() {
    if !require(&TOOLS) {
        return;
    }
    let scratch = Scratch::new();
    let refused = |words: &[&str], said: &str| {
        let done = run_extol(words);
        assert_eq!((done.code, done.stderr.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(done.stderr.contains(said), "not {said:?}: {}", done.output);
    };
    let image = disk(&scratch, "a.img", 128, GPT);
    let path = text(&image.path);
    let (boot, root) = (format!("{path}:boot"), format!("{path}:root"));
    extol_ok(&["mkfs", "-q", &boot]);
    extol_ok(&["mkfs", "-q", &root]);
    let before = std::fs::read(path).expect("read");
    refused(&["resize", &boot, "+1M"], "partition 1 has no room: partition 2 (ext4, root)");
    refused(&["resize", "--partition-only", &boot, "1K"], "would cut");
    refused(&["resize", &format!("{path}:3"), "+1M"], "there is no partition 3");
    let done = run_extol(&["resize", "--partition-only", path, "+1M"]);
    assert!(done.code == Some(1) && done.stderr.contains("is about a partition"));
    assert!(std::fs::read(path).expect("read") == before, "refused, and written");

    // A damaged volume stays as it is, and its partition as well.
    image.write_at(33 * MIB + 4096, &[0xFF; 4096]);
    let before = std::fs::read(path).expect("read");
    refused(&["resize", &root, "+1M"], "");
    assert!(std::fs::read(path).expect("read") == before, "damaged, and written");
    image.remove();

    let image = disk(&scratch, "b.img", 128, "label: dos\nsize=32M\ntype=5\nsize=32M\nsize=8M\n");
    let logical = format!("{}:5", text(&image.path));
    extol_ok(&["mkfs", "-q", &logical]);
    refused(&["resize", &logical, "+1M"], "sfdisk -N 5");
    // While another partition is in use the table stays.
    if require(&[Need::Root, Need::Fuse]) {
        let first = format!("{}:1", text(&image.path));
        extol_ok(&["mkfs", "-q", &first]);
        let mount = ExtolMount::start(Path::new(&logical), &scratch.dir("mnt"), &[]);
        refused(&["resize", &first, "+1M"], "is mounted at");
        mount.unmount();
    }
}
