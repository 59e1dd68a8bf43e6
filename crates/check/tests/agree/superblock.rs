//! The superblock: each field with values that matter, copies that take its place, and copies whose
//! groups have large numbers.

use std::path::Path;
use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions, SharedDevice};
use extol_check::{CheckOptions, Kind, Severity, check};
use extol_ondisk::Superblock;
use extol_testkit::{Image, Need, Scratch, e2fsck, new_e2fsck, require, run_ok, tool};

use crate::checker::report_on;
use crate::editor::{ImageEditor, Part, le32};
use crate::fields::SUPER;

const MIB: u64 = 1 << 20;

fn able() -> bool {
    let tools = ["mke2fs", "e2fsck", "debugfs"].map(Need::Tool);
    require(&[&tools[..], &[Need::NewE2fsck]].concat())
}

fn open(path: &Path) -> SharedDevice {
    Arc::new(FileDevice::open(path, &OpenOptions::read_only()).expect("open image"))
}

/// Values that a field may get in place of another.
fn values(old: u32, width: usize) -> Vec<u32> {
    let most = if width == 4 { u32::MAX } else { (1 << (8 * width)) - 1 };
    let near = [old.wrapping_add(1), old.wrapping_sub(1), old.wrapping_mul(2), old / 2];
    let mut values =
        [&[0, 1, 2, 5, 7, 8, 11, 33, 129, 1 << 15, most, most / 2][..], &near].concat();
    values.iter_mut().for_each(|value| *value &= most);
    values.sort_unstable();
    values.dedup();
    values.retain(|value| *value != old);
    values
}

/// What either e2fsck calls damaged is an error of e2fsck's for the checker, and the reverse, on
/// volumes with copies and without.
#[test]
fn each_field_gets_the_same_result() {
    if !able() {
        return;
    }
    let scratch = Scratch::in_memory();
    let kinds: [&[&str]; 3] = [
        &["-b", "1024", "-O", "^metadata_csum,^64bit"],
        &["-b", "1024", "-g", "1024", "-N", "64"],
        &["-b", "1024", "-O", "bigalloc,^resize_inode,quota,project"],
    ];
    let (mut apart, mut bad, mut clean) = (Vec::new(), 0, 0);
    for kind in kinds {
        let options = [&["-t", "ext4"], kind].concat();
        let image = Image::mke2fs(scratch.path(), "a.img", 4 * MIB, &options);
        let mut v = ImageEditor::new(image);
        for (offset, width) in SUPER {
            let at = v.range(Part::Super).0 + offset;
            let old = le32(&v.bytes, at) & (u32::MAX >> (32 - 8 * width));
            for value in values(old, *width) {
                v.write(at, &value.to_le_bytes()[..*width]);
                v.fix(Part::Super);
                let theirs = [e2fsck(&v.image), new_e2fsck(&v.image)];
                let ours = report_on(Arc::new(v.device()), None);
                v.restore();
                let is_bad = theirs.iter().any(|theirs| theirs.code != 0);
                let common = ours.as_ref().map_or(true, |report| report.errors_of_e2fsck > 0);
                *(if is_bad { &mut bad } else { &mut clean }) += 1;
                if is_bad != common {
                    let codes = theirs.map(|theirs| theirs.code);
                    let ours = ours.map_or_else(|e| e.to_string(), |report| report.to_string());
                    apart
                        .push(format!("{kind:?} {offset:#x}: {old} -> {value}: {codes:?}\n{ours}"));
                }
            }
        }
        v.image.remove();
    }
    assert!(apart.is_empty(), "{} disagreements\n{}", apart.len(), apart.join("\n"));
    assert!(bad > 100 && clean > 100, "{bad} are damage, {clean} are not");
}

/// A superblock without a checksum whose numbers contradict each other: the volume is read by a
/// copy, which may say that it is in group 0.
#[test]
fn a_copy_is_taken_without_checksums() {
    if !able() {
        return;
    }
    const COPY: u64 = 8193 * 1024;
    let scratch = Scratch::in_memory();
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let source = scratch.join("source");
    std::fs::write(&source, b"contents").expect("write");
    for (what, field, group) in [
        ("inodes per group", Some(0x28), None),
        ("blocks per group", Some(0x20), None),
        ("inodes", Some(0x00), None),
        ("inode size", Some(0x58), None),
        ("first blocks", None, None),
        ("first blocks, and group 0 in the copy", None, Some([0; 2])),
        ("inodes per group, and group 0 in the copy", Some(0x28), Some([0; 2])),
    ] {
        let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &options);
        let write = format!("write {} file", source.display());
        run_ok(tool("debugfs").args(["-w", "-R", &write]).arg(&image.path));
        match field {
            Some(field) => image.write_at(1024 + field, &[0; 4]),
            None => image.write_at(0, &[0; 4096]),
        }
        if let Some(number) = group {
            image.write_at(COPY + 0x5A, &number);
        }
        let report = check(open(&image.path), &CheckOptions::default(), &mut |_| {}).expect(what);
        assert!(report.has(Kind::SuperblockBad), "{what}: {report}");
        assert_eq!(report.counts.files, 1, "{what}: {report}");
        assert_eq!(report.counts.inodes_total, 8192, "{what}: {report}");
        assert!(e2fsck(&image).code != 0, "{what}");
        image.remove();
    }
}

/// The field for the number of a group has 16 bits: mke2fs writes the largest number there is,
/// Linux the low bits. Other numbers are not that of the group.
#[test]
fn copies_in_groups_behind_65535() {
    if !able() {
        return;
    }
    let scratch = Scratch::new();
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "1100000",
        "-O",
        "^has_journal,^resize_inode,sparse_super2,meta_bg",
        "-E",
        "lazy_itable_init=1",
    ];
    let image = Image::mke2fs(scratch.path(), "large.img", 513 << 30, &options);
    let sb = Superblock::decode(&image.read_at(1024, 1024)).expect("a superblock");
    let group = sb.backup_bgs[1];
    assert!(group > 0xFFFF, "{group}");
    let at = (1 + u64::from(group) * 8192) * 1024;
    let mut copy = Superblock::decode(&image.read_at(at, 1024)).expect("a copy");
    for (number, is_its) in [(u16::MAX, true), (group as u16, true), (7, false)] {
        copy.block_group_nr = number;
        image.write_at(at, &copy.encode());
        let report =
            check(open(&image.path), &CheckOptions::default(), &mut |_| {}).expect("check");
        let told = report.findings.iter().filter(|found| found.kind == Kind::BackupSuperblock);
        let told: Vec<_> = told.map(|found| (found.severity, found.group)).collect();
        let wanted = if is_its { vec![] } else { vec![(Severity::Note, Some(group))] };
        assert_eq!(told, wanted, "{number}: {report}");
        assert!(report.is_clean(), "{report}");
    }
    image.remove();
}
