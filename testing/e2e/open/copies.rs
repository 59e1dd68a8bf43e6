//! Volumes whose first superblock is damaged are shown and checked by a copy of it; external
//! journals are shown as what they are.

use extol_testkit::{Image, Need, Scratch, e2fsck, extol_ok, require, run_extol, text};
use serde_json::Value;

use crate::{MIB, failed, schema};

/// `extol info --json`, as its schema has it.
fn info(name: &str, schema: &str) -> Value {
    let said = json(&["info", "--json", name]);
    schema::check(&serde_json::from_str(schema).expect("a schema"), &said, "info");
    said
}

#[test]
fn a_damaged_superblock_has_a_copy() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    for (size, clusters, block) in [
        ("1024", &[][..], 8193),
        ("2048", &[], 16384),
        ("4096", &[], 32768),
        ("1024", &["-O", "bigalloc"], 131_072),
        ("1024", &["-O", "bigalloc", "-C", "4096"], 32768),
    ] {
        let options = [&["-t", "ext4", "-b", size, "-L", "data"], clusters].concat();
        let image = Image::mke2fs(scratch.path(), "a.img", 160 * MIB, &options);
        let path = text(&image.path);
        extol_ok(&["put", path, "/etc/hostname", "/"]);
        let whole = info(path, include_str!("../../../docs/guide/schemas/info.json"));
        assert_eq!(whole.get("superblock_copy"), None);
        image.write_at(1024, &[0; 1024]);

        let found = info(path, include_str!("../../../docs/guide/schemas/info.json"));
        assert_eq!(found["superblock_copy"], block);
        for key in ["label", "uuid", "blocks", "inodes", "journal_blocks"] {
            assert_eq!(found[key], whole[key], "{key}");
        }
        let by = format!("by the copy in block {block}");
        for words in [&["info"][..], &["info", "-h"], &["info", "-g"], &["log"]] {
            let done = run_extol(&[words, &[path]].concat());
            failed(&done, 0, &["its superblock is damaged (", &by]);
        }
        let done = run_extol(&["check", path]);
        assert_eq!(done.code, Some(4), "{}", done.output);
        let line = format!("the copy in block {block} is used");
        assert!(done.output.contains(&line), "{}", done.output);
        assert_eq!(done.output.matches("superblock_bad").count(), 1, "{}", done.output);
        assert!(done.output.contains("1 error"), "{}", done.output);
        // What changes a volume, or serves it, takes no copy by itself.
        failed(&run_extol(&["ls", path]), 32, &["read it with -o sb="]);
        failed(&run_extol(&["rm", path, "/hostname"]), 32, &["e2fsck -b "]);
        // e2fsck agrees, and repairs it by the same copy.
        assert_ne!(e2fsck(&image).code, 0);
        let place = block.to_string();
        let fix = ["-fy", "-b", &place, "-B", size, path];
        let fixed = extol_testkit::run(
            extol_testkit::tool("e2fsck").args(fix),
            std::time::Duration::from_secs(60),
        );
        assert_eq!(fixed.code, Some(1), "{}", fixed.output);
        extol_ok(&["check", path]);
        assert_eq!(extol_ok(&["ls", path]).lines().count(), 2);
        image.remove();
    }
}

/// Where the first copy is lost too, another one can be named.
#[test]
fn another_copy_is_named_for_a_check() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024"];
    let image = Image::mke2fs(scratch.path(), "a.img", 160 * MIB, &options);
    let path = text(&image.path);
    let sound = run_extol(&["check", "-b", "24577", path]);
    assert_eq!(sound.code, Some(0), "{}", sound.output);
    assert!(sound.output.contains("block 24577: this copy of the superblock is used"));
    for at in [1, 8193] {
        image.write_at(1024 * at, &[0; 1024]);
    }
    failed(&run_extol(&["check", path]), 8, &["a.img"]);
    for options in [&["-b", "24577"][..], &["-b", "24577", "-B", "1024"], &["-nfb24577"]] {
        let done = run_extol(&[&["check"], options, &[path]].concat());
        assert_eq!(done.code, Some(4), "{}", done.output);
        let said = "bad magic number: the copy in block 24577 is used";
        assert!(done.output.contains(said), "{}", done.output);
        assert!(done.output.contains("DAMAGED: 1 error"), "{}", done.output);
    }
    failed(&run_extol(&["check", "-b", "8193", path]), 8, &["no superblock in block 8193"]);
    failed(&run_extol(&["check", "-b", "24577", "-B", "2048", path]), 8, &["a.img"]);
    let fix = ["-fy", "-b", "24577", "-B", "1024", path];
    let mut fix_it = extol_testkit::tool("e2fsck");
    let fixed = extol_testkit::run(fix_it.args(fix), std::time::Duration::from_secs(60));
    assert_eq!(fixed.code, Some(1), "{}", fixed.output);
    extol_ok(&["check", path]);
}

/// A copy does not say that there is something to recover: the journal does.
#[test]
fn what_is_in_the_journal_counts_with_a_copy() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let rig = extol_testkit::Rig::with(&["-b", "1024"]);
    rig.mount(&["-o", "nofast_commit"]);
    for n in 0..40 {
        std::fs::create_dir(rig.dir.join(format!("d{n}"))).expect("a directory");
    }
    let file = std::fs::File::create(rig.dir.join("file")).expect("a file");
    file.sync_all().expect("fsync");
    drop(file);
    let taken = rig.image.copy_as("taken.img");
    assert!(rig.unmount(&[]).success());
    let path = text(&taken.path);
    let before: Value = json(&["check", "--json", path]);
    assert!(before["replayed"]["transactions"].as_u64() > Some(0), "{before}");
    taken.write_at(1024, &[0; 1024]);
    let found = json(&["check", "--json", path]);
    assert_eq!(found["replayed"], before["replayed"]);
    assert_eq!(found["counts"], before["counts"]);
    assert_eq!(found["errors"], 1, "{found}");
}

fn json(words: &[&str]) -> Value {
    let done = run_extol(words);
    let said = done.output.strip_suffix(&done.stderr).expect("standard output comes first");
    serde_json::from_str(said).expect("JSON")
}

#[test]
fn an_external_journal_is_shown() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("dumpe2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    for size in ["1024", "4096"] {
        let device = ["-O", "journal_dev", "-b", size, "-L", "log"];
        let journal = Image::mke2fs(scratch.path(), "journal.img", 8 * MIB, &device);
        let name = text(&journal.path);
        let schema = include_str!("../../../docs/guide/schemas/journal-device.json");
        let empty = info(name, schema);
        assert_eq!((&empty["label"], &empty["needs_recovery"]), (&"log".into(), &false.into()));
        assert_eq!(empty["journal_of"], Value::Array(Vec::new()));
        assert!(extol_ok(&["info", name]).contains("an external journal"));

        let volume = scratch.path().join("volume.img");
        let with = format!("device={name}");
        extol_ok(&["mkfs", "-q", "-b", size, "-J", &with, text(&volume), "32M"]);
        let used = info(name, schema);
        let of = info(text(&volume), include_str!("../../../docs/guide/schemas/info.json"));
        assert_eq!(used["journal_of"][0], of["uuid"]);
        let log = json(&["log", "--json", name]);
        let schema = include_str!("../../../docs/guide/schemas/log.json");
        schema::check(&serde_json::from_str(schema).expect("a schema"), &log, "log");
        assert_eq!(log["superblock"]["blocks"], used["journal_blocks"]);
        assert_eq!(log["superblock"]["block_size"].to_string(), size);
        std::fs::remove_file(&volume).expect("the volume");
        journal.remove();
    }
}
