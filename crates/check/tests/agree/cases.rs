//! Cases that chance does not make: each is made on purpose, and e2fsck says what it is.

use std::path::Path;
use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions};
use extol_check::Report;
use extol_testkit::{Image, Need, Scratch, e2fsck, require, run_ok, tool};

use crate::checker::report_on;

const MIB: u64 = 1 << 20;

/// The report on an image, which is damaged if e2fsck says so.
#[track_caller]
fn checked(image: &Image, what: &str) -> Report {
    let device = FileDevice::open(&image.path, &OpenOptions::read_only()).expect("open image");
    let report = report_on(Arc::new(device)).expect("a report");
    let theirs = e2fsck(image);
    let agrees = (theirs.code != 0) == (report.errors_of_e2fsck > 0);
    assert!(agrees, "{what}: e2fsck {}\n{}\n{report}", theirs.code, theirs.output);
    report
}

fn able() -> bool {
    require(&["mke2fs", "e2fsck", "debugfs", "tune2fs"].map(Need::Tool))
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
