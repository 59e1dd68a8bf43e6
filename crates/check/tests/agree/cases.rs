//! Cases that chance does not make: each is made on purpose, and e2fsck says what it is.

use std::path::Path;
use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions};
use extol_check::Report;
use extol_testkit::{Image, Need, Scratch, e2fsck, new_e2fsck, require, run_ok, tool};

use crate::checker::report_on;
use crate::compare;
use crate::editor::{ImageEditor, Part, le16, le32};
use crate::images::variant;

const MIB: u64 = 1 << 20;

/// The report on an image, which is damaged if either version of e2fsck says so.
#[track_caller]
pub fn checked(image: &Image, what: &str) -> Report {
    let device = FileDevice::open(&image.path, &OpenOptions::read_only()).expect("open image");
    let report = report_on(Arc::new(device), None).expect("a report");
    let (old, new) = (e2fsck(image), new_e2fsck(image));
    let agrees = (old.code != 0 || new.code != 0) == (report.errors_of_e2fsck > 0);
    let codes = format!("e2fsck {}, the new one {}", old.code, new.code);
    assert!(agrees, "{what}: {codes}\n{}\n{}\n{report}", old.output, new.output);
    report
}

fn able() -> bool {
    let tools = ["mke2fs", "e2fsck", "debugfs", "tune2fs"].map(Need::Tool);
    require(&[&tools[..], &[Need::NewE2fsck]].concat())
}

fn debugfs(path: &Path, commands: &[&str]) {
    for command in commands {
        run_ok(tool("debugfs").args(["-w", "-R", command]).arg(path));
    }
}

/// The list of bad blocks may name what has a copy or can be moved.
#[test]
fn bad_blocks_on_metadata() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    // Group 0: superblock, descriptors, the first and the last reserved one; bitmaps; table.
    // Then the same in group 1, and a block of no use.
    let group = [0, 1, 2, 257, 258, 259, 260, 300];
    let places = [1, 8193].map(|first| group.map(|at| first + at)).concat();
    let (mut errors, mut notes) = (0, 0);
    for block in places.into_iter().chain([8192]) {
        let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &options);
        let commands = [
            &format!("sif <1> block[0] {block}")[..],
            "sif <1> size 1024",
            "sif <1> blocks 2",
            &format!("setb {block}"),
        ];
        debugfs(&image.path, &commands);
        let report = checked(&image, &format!("block {block}"));
        errors += u64::from(report.errors > 0);
        notes += u64::from(report.notes > 0);
        image.remove();
    }
    assert!(errors > 4 && notes > 4, "{errors} errors, {notes} notes");
}

#[test]
fn an_orphan_file_without_a_journal() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext4", "-O", "orphan_file"];
    let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &options);
    run_ok(tool("tune2fs").args(["-O", "^has_journal"]).arg(&image.path));
    let report = checked(&image, "no journal");
    assert_eq!((report.errors, report.errors_of_e2fsck), (1, 1), "{report}");
}

/// What only inodes of the Hurd have, on regular files and on others; and their count of blocks,
/// which e2fsck does not look at.
#[test]
fn fields_of_the_hurd() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext2", "-b", "1024", "-o", "hurd", "-O", "^filetype"];
    let fields = ["translator 3000", "translator 99999", "translator 1", "frag 1", "fsize 2"];
    let source = scratch.path().join("source");
    std::fs::write(&source, b"contents").expect("write");
    let (mut errors, mut clean) = (0, 0);
    for name in ["file", "link", "fifo"] {
        for field in fields.into_iter().chain(["blocks 40", "blocks 0"]) {
            let image = Image::mke2fs(scratch.path(), "a.img", 4 * MIB, &options);
            let write = format!("write {} file", source.display());
            let set = format!("sif {name} {field}");
            debugfs(&image.path, &[&write, "symlink link target", "mknod fifo p", &set]);
            let report = checked(&image, &set);
            errors += u64::from(report.errors_of_e2fsck > 0);
            clean += u64::from(report.errors_of_e2fsck == 0);
            image.remove();
        }
    }
    assert!(errors >= 9 && clean >= 9, "{errors} with errors, {clean} without");
}

/// The list of bad blocks names a block of an inode table in which no inode is in use.
#[test]
fn bad_blocks_in_tables_that_are_written() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let kinds: [&[&str]; 2] = [&["-t", "ext2"], &["-t", "ext4"]];
    let mut errors = Vec::new();
    for kind in kinds {
        let options = [kind, &["-b", "1024", "-I", "128", "-N", "1024"]].concat();
        let image = Image::mke2fs(scratch.path(), "a.img", 4 * MIB, &options);
        let table = run_ok(tool("debugfs").args(["-R", "imap <1000>"]).arg(&image.path));
        let block = table.split("block ").last().and_then(|rest| rest.split(',').next());
        let block = block.expect("a block");
        let set = format!("sif <1> block[0] {block}");
        debugfs(&image.path, &[&set, "sif <1> size 1024", "sif <1> blocks 2"]);
        errors.push(checked(&image, kind[1]).errors_of_e2fsck > 0);
        image.remove();
    }
    assert_eq!(errors, [true, false], "with checksums the end of the table was never written");
}

/// Quota files that are none, or not those of the superblock.
#[test]
fn quota_files_that_are_invalid_or_wrong() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext4", "-b", "1024", "-O", "quota,project"];
    let source = scratch.path().join("source");
    std::fs::write(&source, b"contents").expect("write");
    let uncounted = format!("write {} uncounted", source.display());
    let edits = [
        "ssv usr_quota_inum 0",
        "ssv usr_quota_inum 11",
        "ssv usr_quota_inum 99999",
        "ssv grp_quota_inum 3",
        "ssv prj_quota_inum 0",
        "ssv prj_quota_inum 2000",
        "sif <3> mode 0040755",
        "sif <3> links_count 0",
        "sif <3> size 0",
        "sif <4> size 1024",
        "sif <4> size 6000",
        "sif <4> uid 5",
        "clri <3>",
        "clri <4>",
        "clri <12>",
        "sif <12> flags 0",
        "feature -quota",
        "feature -project",
        &uncounted,
    ];
    let mut errors = 0;
    for edit in edits {
        let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &options);
        debugfs(&image.path, &[edit]);
        errors += u64::from(checked(&image, edit).errors > 0);
        image.remove();
    }
    assert!(errors > 9, "only {errors} of {} edits are damage", edits.len());
}

/// No encrypted name is shorter than a block of the cipher.
#[test]
fn encrypted_names_that_are_too_short() {
    if !able() || !require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
        return;
    }
    let scratch = Scratch::in_memory();
    for name in ["encrypt", "encrypt-no-csum"] {
        let mut v = compare::volume(&scratch, variant(name), 5);
        let is_secret = |part: &&Part| matches!(part, Part::DirBlock(..));
        let mut found = 0;
        for part in v.parts.clone().iter().filter(is_secret) {
            let (at, len) = v.range(*part);
            // The third entry, behind `.` and `..`, where these are.
            let third = 24;
            let is_first = le16(&v.bytes, at + 4) == 12 && v.bytes[at + 6] == 1;
            let is_name = is_first && le32(&v.bytes, at + third) != 0 && third + 24 < len;
            if !is_name || v.bytes[at + third + 6] < 16 {
                continue;
            }
            v.write(at + third + 6, &[15]);
            v.fix(*part);
            let report = checked(&v.image, name);
            found += usize::from(report.has(extol_check::Kind::Encryption));
            v.restore();
        }
        assert!(found > 0, "no encrypted directory in {name}");
        v.image.remove();
    }
}

/// The inode that holds an attribute's value has another size than the value: longer than the value
/// can be, and so long that it cannot be read as one.
#[test]
fn sizes_of_attribute_values() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let mut v = compare::volume(&scratch, variant("ea-inode"), 5);
    let is_value = |v: &ImageEditor, ino: u32| le32(v.inode_bytes(ino), 0x20) & 0x20_0000 != 0;
    let inodes = le32(&v.bytes, 1024);
    let values: Vec<u32> = (12..=inodes).filter(|ino| is_value(&v, *ino)).collect();
    assert!(!values.is_empty(), "no value in an inode");
    for ino in values {
        let size = le32(v.inode_bytes(ino), 4);
        for wrong in [size - 1, size + 1, size.next_multiple_of(1024) + 1, 65_537, 0x00FF_35B0, 1] {
            let at = v.inode_at(ino) + 4;
            v.put32(at, wrong);
            v.fix(Part::Inode(ino));
            let report = checked(&v.image, &format!("inode {ino} of {size} says {wrong}"));
            assert!(report.has(extol_check::Kind::XattrInode), "{report}");
            v.restore();
        }
    }
    v.image.remove();
}
