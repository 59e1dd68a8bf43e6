//! Volumes after a crash: the checker sees the volume as recovery in memory leaves it, and orphans
//! belong to that.

use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, FileSystem as _, MountOptions, OpenOptions};
use extol_block::{BlockDevice as _, MemDevice, SharedDevice};
use extol_check::{CheckError, CheckOptions, Kind, Recovery, Report, Severity, check};
use extol_jbd2::format::JournalSuperblock;
use extol_ondisk::superblock::State;
use extol_ondisk::{Incompat, Superblock};
use extol_testkit::{Image, Need, Scratch, require, run_ok, tool};

fn volume(features: &str) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(24 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push(features.to_owned());
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    device
}

fn report_on(device: MemDevice, recovery: Recovery) -> Result<Report, CheckError> {
    let opts = CheckOptions { recovery, ..CheckOptions::default() };
    check(Arc::new(device), &opts, &mut |_| {})
}

/// Works on a volume, loses power, and gives what is on the device.
fn crashed(features: &str) -> MemDevice {
    let device = volume(features);
    let fs =
        Ext4::open(Arc::clone(&device) as SharedDevice, &MountOptions::default()).expect("open");
    for n in 0..200 {
        fs.write_file(format!("/file-{n}"), vec![n as u8; 500]).expect("write");
    }
    let mut open = Vec::new();
    for n in 0..12 {
        let file =
            fs.open_file(format!("/file-{n}"), OpenOptions::new().read(true)).expect("open file");
        fs.remove_file(format!("/file-{n}")).expect("unlink");
        open.push(file);
    }
    let root =
        fs.open_file("/file-100", OpenOptions::new().read(true).write(true)).expect("open file");
    root.sync_all().expect("fsync");
    fs.write_file("/not-synced", b"x").expect("write");
    let image = device.snapshot();
    fs.crash();
    image
}

#[test]
fn a_crash_leaves_a_sound_volume_with_orphans() {
    for features in ["metadata_csum", "orphan_file", "^metadata_csum", "^64bit"] {
        let image = crashed(features);
        let report = report_on(image.snapshot(), Recovery::InMemory).expect("a report");
        assert!(report.is_clean(), "{features}: {report}");
        let replayed = report.replayed.expect("a replay");
        assert!(replayed.transactions > 0 && replayed.blocks > 0);
        assert_eq!(report.counts.orphans, 12, "{features}: {report}");
        let note = report.findings.iter().find(|f| f.kind == Kind::OrphanList).expect("a note");
        assert_eq!(note.severity, Severity::Note);
        // Without the log, the orphans are not found.
        let raw = report_on(image.snapshot(), Recovery::Ignore).expect("a report");
        assert!(raw.replayed.is_none());
        assert_eq!(raw.counts.orphans, 0);
    }
}

/// Linux, e2fsck and Extol do not follow the list of orphans of a volume that is marked as damaged,
/// or whose journal was aborted: what it names is damage.
#[test]
fn orphans_of_a_damaged_volume_are_damage() {
    let superblock = |image: &MemDevice| {
        let mut bytes = [0; 1024];
        image.read_at(&mut bytes, 1024).expect("read");
        let mut sb = Superblock::decode(&bytes).expect("superblock");
        sb.state |= State::ERROR;
        image.write_at(&sb.encode(), 1024).expect("write");
    };
    let journal = |image: &MemDevice| {
        let bytes = image.to_bytes();
        let is_superblock =
            |at: &usize| bytes[*at..].starts_with(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]);
        let at = (0..bytes.len()).step_by(1024).find(is_superblock).expect("a log");
        let mut jsb = JournalSuperblock::decode(&bytes[at..at + 1024]).expect("its superblock");
        jsb.errno = -5;
        image.write_at(&jsb.encode(), at as u64).expect("write");
    };
    for (features, damage) in [
        ("metadata_csum", &superblock as &dyn Fn(&MemDevice)),
        ("^metadata_csum", &journal),
        ("orphan_file", &superblock),
        ("orphan_file", &journal),
    ] {
        let image = crashed(features);
        damage(&image);
        let report = report_on(image.snapshot(), Recovery::InMemory).expect("a report");
        assert!(report.has(Kind::InodeDeletion), "{features}: {report}");
        assert!(report.findings.iter().any(|f| f.kind == Kind::State), "{features}: {report}");
        assert_eq!(report.counts.orphans, 0, "{features}: {report}");
    }
}

/// Without checksums, the bytes behind the magic number of the orphan file are zero: no mount
/// clears them. And an orphan file that the superblock does not call in use is not read by one.
#[test]
fn an_orphan_file_that_the_next_mount_does_not_mend() {
    for (at, word) in [(1020, 0x80_u8), (0, 20)] {
        let image = Arc::new(crashed("^metadata_csum,orphan_file"));
        let fs =
            Ext4::open(Arc::clone(&image) as SharedDevice, &MountOptions::default()).expect("open");
        fs.unmount().expect("unmount");
        let report = report_on(image.snapshot(), Recovery::InMemory).expect("a report");
        assert!(report.is_clean(), "{report}");
        let bytes = image.to_bytes();
        let block = (0..bytes.len())
            .step_by(1024)
            .find(|block| bytes[block + 1016..].starts_with(&0x0B10_CA04_u32.to_le_bytes()));
        let block = block.expect("the orphan file");
        image.write_at(&[word], (block + at) as u64).expect("write");
        // Also behind a log that is to be replayed.
        for dirty in [false, true] {
            let mut bytes = [0; 1024];
            image.read_at(&mut bytes, 1024).expect("read");
            let mut sb = Superblock::decode(&bytes).expect("superblock");
            sb.feature_incompat.set(Incompat::NEEDS_RECOVERY, dirty);
            image.write_at(&sb.encode(), 1024).expect("write");
            let report = report_on(image.snapshot(), Recovery::InMemory).expect("a report");
            assert!(report.has(Kind::OrphanFile), "byte {at}, dirty {dirty}: {report}");
        }
    }
}

/// A directory that is removed while it is in use has no size any more, but still its blocks,
/// and a parent that may be gone.
#[test]
fn a_removed_directory_in_use_is_an_orphan() {
    for features in ["metadata_csum", "orphan_file", "inline_data"] {
        let device = volume(features);
        let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &MountOptions::default())
            .expect("open");
        fs.create_dir_all("/dir/inner").expect("mkdir");
        let dir = fs.lookup(fs.root(), b"dir").expect("lookup").id.ino;
        fs.lookup(dir, b"inner").expect("lookup");
        fs.rmdir(dir, b"inner").expect("rmdir");
        fs.forget(dir, 1);
        fs.rmdir(fs.root(), b"dir").expect("rmdir of its parent, which is not in use");
        fs.sync().expect("sync");
        fs.crash();
        let report = report_on(device.snapshot(), Recovery::InMemory).expect("a report");
        assert!(report.is_clean() && report.counts.orphans == 1, "{features}: {report}");
    }
}

/// Links and directories whose deletion was cut between their blocks and their inode: Linux leaves
/// such orphans, and so does Extol.
#[test]
fn an_unfinished_deletion_is_an_orphan() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("e2fsck")]) {
        return;
    }
    let long = format!("symlink /gone {}", "x".repeat(80));
    // The block of a hashed directory is its root.
    let hashed = ["sif <12> flags 0x81000", "sif / links_count 3"];
    for (make, more) in [(&long[..], &[][..]), ("mkdir /gone", &[]), ("mkdir /gone", &hashed[..1])]
    {
        unfinished_deletion(make, more, make.starts_with("mkdir").then_some(hashed[1]));
    }
}

fn unfinished_deletion(make: &str, more: &[&str], root: Option<&str>) {
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4", "-b", "1024"]);
    debugfs(&image, make);
    // What is left when the block is gone: an empty extent tree.
    let empty =
        ["block[0] 0xF30A", "block[1] 4", "block[2] 0", "block[3] 0", "block[4] 0", "block[5] 0"];
    let all = ["size 0", "blocks 0"].iter().chain(&empty).map(|field| format!("sif <12> {field}"));
    let all: Vec<_> = all.chain(more.iter().copied().chain(root).map(str::to_owned)).collect();
    cut_short(&image, 0, &all);
}

/// A directory with an index whose last leaves are gone.
#[test]
fn an_unfinished_truncation_has_lost_leaves() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("e2fsck")]) {
        return;
    }
    const NAMES: usize = 60;
    let scratch = Scratch::new();
    let gone = scratch.path().join("tree/gone");
    std::fs::create_dir_all(&gone).expect("a directory");
    let name = |n: usize| format!("{}{n}", "long".repeat(14));
    for n in 0..NAMES {
        std::fs::write(gone.join(name(n)), []).expect("a file");
    }
    let tree = gone.parent().expect("the tree").to_str().expect("a path");
    let image =
        Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4", "-b", "1024", "-d", tree]);
    // This gives the directory its index; blocks stay when names go.
    let indexed = tool("e2fsck").arg("-fyD").arg(&image.path).output().expect("e2fsck");
    assert!(indexed.status.success(), "{indexed:?}");
    for n in 0..NAMES {
        debugfs(&image, &format!("rm /gone/{}", name(n)));
    }
    run_ok(tool("e2fsck").arg("-fn").arg(&image.path));
    let blocks = blocks_of(&image);
    assert!(blocks.len() >= 5 && blocks.is_sorted_by(|a, b| a + 1 == *b), "one extent: {blocks:?}");
    for left in 1..blocks.len() {
        let copy = Image { path: scratch.path().join(format!("{left}.img")), ..image.clone() };
        std::fs::copy(&image.path, &copy.path).expect("a copy");
        let size = [("size", left * 1024), ("blocks", left * 2), ("block[4]", left)];
        let mut all: Vec<_> =
            size.iter().map(|(field, n)| format!("sif <12> {field} {n}")).collect();
        all.push("sif / links_count 3".into());
        cut_short(&copy, left, &all);
    }
}

/// Inode 12, `/gone`, is a deletion that was cut when so many of its blocks were left, which
/// `fields` say.
fn cut_short(image: &Image, left: usize, fields: &[String]) {
    let about = format!("{left} blocks left, {fields:?}");
    let freed: Vec<_> = blocks_of(image).into_iter().skip(left).collect();
    for command in ["sif <12> links_count 0", "unlink /gone"]
        .into_iter()
        .chain(fields.iter().map(String::as_str))
    {
        debugfs(image, command);
    }
    for block in &freed {
        debugfs(image, &format!("freeb {block}"));
    }
    let stats = debugfs(image, "stats");
    let free =
        stats.split(" free block").next().and_then(|before| before.split_whitespace().last());
    let free: usize = free.and_then(|n| n.parse().ok()).expect("the free blocks of group 0");
    debugfs(image, &format!("set_bg 0 free_blocks_count {}", free + freed.len()));
    debugfs(image, "set_bg 0 checksum calc");
    let report = || {
        let bytes = std::fs::read(&image.path).expect("the image");
        let device = MemDevice::new(bytes.len() as u64);
        device.write_at(&bytes, 0).expect("write");
        report_on(device, Recovery::InMemory).expect("a report")
    };
    assert!(!report().is_clean(), "{about}: it is not yet on the orphan list");
    debugfs(image, "ssv last_orphan 12");
    debugfs(image, "feature needs_recovery");
    let found = report();
    assert!(found.is_clean() && found.counts.orphans == 1, "{about}: {found}");
    // e2fsck deletes it without a question, and then finds nothing.
    let status = tool("e2fsck").arg("-fp").arg(&image.path).status().expect("e2fsck");
    assert_eq!(status.code(), Some(1), "{about}");
    run_ok(tool("e2fsck").arg("-fn").arg(&image.path));
}

fn blocks_of(image: &Image) -> Vec<u32> {
    // (On standard error debugfs prints its version.)
    let listed = debugfs(image, "blocks /gone");
    listed
        .lines()
        .next()
        .expect("its blocks")
        .split_whitespace()
        .map(|n| n.parse().expect("a block"))
        .collect()
}

fn debugfs(image: &Image, command: &str) -> String {
    run_ok(tool("debugfs").args(["-w", "-R", command]).arg(&image.path))
}

#[test]
fn damage_is_seen_behind_a_recovery() {
    let image = crashed("metadata_csum");
    // A mark in the bitmap of group 0 that no transaction covers would be replayed over: change
    // what was never logged, the reserved descriptors' inode.
    let device = Arc::new(image);
    let before = report_on(device.snapshot(), Recovery::InMemory).expect("a report");
    assert!(before.is_clean());
    // Names are found in directory blocks: turn one name of the root into one that cannot be, in
    // all copies.
    let bytes = device.to_bytes();
    let mut places = 0;
    for at in (0..bytes.len() - 8).step_by(4) {
        if bytes[at..].starts_with(b"file-150") {
            device.write_at(b"file/150", at as u64).expect("write");
            places += 1;
        }
    }
    assert!(places >= 1);
    let report = report_on(device.snapshot(), Recovery::InMemory).expect("a report");
    // The log's own checksums or the directory's: one of them must see it.
    assert!(!report.is_clean(), "{report}");
}

#[test]
fn a_torn_log_is_refused_or_ends_early() {
    let image = crashed("metadata_csum");
    let bytes = image.to_bytes();
    // Every block with the magic number of the log.
    let blocks: Vec<usize> = (0..bytes.len())
        .step_by(1024)
        .filter(|&at| bytes[at..].starts_with(&[0xC0, 0x3B, 0x39, 0x98]))
        .collect();
    assert!(blocks.len() > 3);
    for &at in blocks.iter().skip(1) {
        let device = image.snapshot();
        device.write_at(&[0xEE; 512], at as u64 + 512).expect("write");
        let report = report_on(device, Recovery::InMemory).expect("a report");
        // A log that ends earlier is as sound as it was then.
        assert!(report.is_clean() || report.has(Kind::JournalReplay), "block {at}: {report}");
    }
}

#[test]
fn a_dirty_volume_needs_its_external_journal() {
    let image = crashed("metadata_csum");
    let mut bytes = [0; 1024];
    image.read_at(&mut bytes, 1024).expect("read");
    let mut sb = Superblock::decode(&bytes).expect("superblock");
    (sb.journal_inum, sb.journal_uuid) = (0, [7; 16]);
    image.write_at(&sb.encode(), 1024).expect("write");
    assert!(matches!(
        report_on(image.snapshot(), Recovery::InMemory),
        Err(CheckError::Unsupported(_))
    ));
    let opts =
        CheckOptions { journal: Some(Arc::new(image.snapshot())), ..CheckOptions::default() };
    let other = check(Arc::new(image), &opts, &mut |_| {});
    assert!(matches!(other, Err(CheckError::Unsupported(_))));
}
