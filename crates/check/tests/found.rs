//! What findings name: a user finds the file, the block and the group that they are about.

use std::path::Path;
use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions};
use extol_check::{CheckOptions, Finding, Kind, Report, Severity, check};
use extol_testkit::{Image, Need, Scratch, debugfs as shown, require, run_ok, tool};

const MIB: u64 = 1 << 20;

fn debugfs(path: &Path, command: &str) {
    run_ok(tool("debugfs").args(["-w", "-R", command]).arg(path));
}

fn report(image: &Image) -> Report {
    let device = FileDevice::open(&image.path, &OpenOptions::read_only()).expect("open");
    check(Arc::new(device), &CheckOptions::default(), &mut |_| {}).expect("a report")
}

/// A volume with the files `/dir/one` and `/dir/two`.
fn volume(scratch: &Scratch, options: &[&str]) -> Image {
    let image = Image::mke2fs(scratch.path(), "a.img", 8 * MIB, options);
    let source = scratch.path().join("source");
    std::fs::write(&source, vec![b'x'; 9000]).expect("write");
    debugfs(&image.path, "mkdir dir");
    for name in ["dir/one", "dir/two"] {
        debugfs(&image.path, &format!("write {} {name}", source.display()));
    }
    image
}

fn of<'r>(report: &'r Report, kind: Kind, path: &str) -> Vec<&'r Finding> {
    let is_meant = |f: &&Finding| f.kind == kind && f.path.as_deref() == Some(path);
    report.findings.iter().filter(is_meant).collect()
}

#[test]
fn both_owners_of_a_block_are_named() {
    if !require(&["mke2fs", "debugfs"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::in_memory();
    for options in [&["-t", "ext2", "-b", "1024"][..], &["-t", "ext4", "-b", "1024"]] {
        let image = volume(&scratch, options);
        let block = shown(&image, "bmap dir/one 2");
        let block: u64 = block.split_whitespace().next().expect("a word").parse().expect("block");
        match options[1] {
            "ext2" => debugfs(&image.path, &format!("sif dir/two block[3] {block}")),
            // The extent's place.
            _ => debugfs(&image.path, &format!("sif dir/two block[5] {}", block - 2)),
        };
        let report = report(&image);
        let first = of(&report, Kind::BlockShared, "/dir/one");
        let second = of(&report, Kind::BlockShared, "/dir/two");
        assert_eq!((first.len(), second.len()), (1, 1), "{report}");
        assert_eq!(first[0].severity, Severity::Note);
        assert_eq!(second[0].severity, Severity::Error);
        assert_eq!(first[0].block, second[0].block, "{report}");
        image.remove();
    }
}

#[test]
fn a_wrong_count_of_users_names_one_of_them() {
    if !require(&["mke2fs", "debugfs"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum"];
    let image = volume(&scratch, &options);
    debugfs(&image.path, "ea_set dir/two user.name value");
    let said = shown(&image, "stat dir/two");
    let block = said.split("File ACL: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let block: u64 = block.expect("a number").parse().expect("a block");
    image.write_at(block * 1024 + 4, &3_u32.to_le_bytes());
    let report = report(&image);
    let found = of(&report, Kind::XattrRefcount, "/dir/two");
    assert_eq!(found.len(), 1, "{report}");
    assert_eq!(found[0].block, Some(block));
}

/// The guide says what to do about findings of each kind.
#[test]
fn every_kind_is_in_the_guide() {
    let guide = include_str!("../../../docs/guide/troubleshooting.md");
    let begin = guide.find("| kind | what to do |").expect("the table");
    let table: String = guide[begin..].lines().take_while(|line| line.starts_with('|')).collect();
    let names: Vec<&str> = table.split('`').skip(1).step_by(2).collect();
    for kind in Kind::ALL {
        let is_there = names.iter().any(|name| match name.strip_suffix('…') {
            Some(begin) => kind.name().starts_with(begin),
            None => kind.name() == *name,
        });
        assert!(is_there, "{kind} is not in the guide");
    }
}
