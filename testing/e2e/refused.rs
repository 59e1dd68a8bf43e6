//! What is refused has written nothing, and `extol info` has said so before.

use std::path::Path;
use std::time::Duration;

use extol_testkit::{ExtolMount, Image, Need, Scratch, extol, require, run, sync_volume, tool};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("tune2fs")];
const MIB: u64 = 1 << 20;

fn outcome(args: &[&Path]) -> (bool, String) {
    let done = run(extol().args(args), Duration::from_secs(60));
    (done.success(), done.output)
}

fn debugfs(image: &Image, requests: &[&str]) {
    for request in requests {
        // (It has no exit codes; what it could not do shows as a case that is not refused.)
        let _ = run(
            tool("debugfs").args(["-w", "-R", request]).arg(&image.path),
            Duration::from_secs(20),
        );
    }
}

/// A kind of damage, and whether Extol must refuse it.
struct Case {
    name: &'static str,
    mke2fs: &'static [&'static str],
    /// Mounted, written to, and killed.
    dirty: bool,
    debugfs: &'static [&'static str],
    harm: fn(&Image),
}

const SUPER: u64 = 1024;

fn nothing(_: &Image) {}

/// Where debugfs says that a block of an inode is.
fn block_of(image: &Image, ino: &str, block: u32) -> u64 {
    let request = format!("bmap {ino} {block}");
    let done =
        run(tool("debugfs").args(["-R", &request]).arg(&image.path), Duration::from_secs(20));
    let number = done.output.lines().find_map(|l| l.trim().parse::<u64>().ok());
    number.unwrap_or_else(|| panic!("{request}: {}", done.output)) * 4096
}

/// Unlinked files that are still open when the daemon dies are orphans.
fn leave_dirty(image: &Image, scratch: &Scratch) {
    let dir = scratch.dir("dirty");
    let mut mount = ExtolMount::start(&image.path, &dir, &[]);
    let mut open = Vec::new();
    for i in 0..4 {
        let path = dir.join(format!("file{i}"));
        let file = std::fs::File::create(&path).expect("create");
        std::io::Write::write_all(&mut &file, &[7; 10_000]).expect("write");
        file.sync_all().expect("sync");
        std::fs::remove_file(&path).expect("remove");
        open.push(file);
    }
    std::fs::write(dir.join("kept"), b"contents").expect("write");
    sync_volume(&dir).expect("sync");
    mount.kill9();
}

const CASES: &[Case] = &[
    Case { name: "sound", mke2fs: &[], dirty: false, debugfs: &[], harm: nothing },
    Case { name: "dirty", mke2fs: &[], dirty: true, debugfs: &[], harm: nothing },
    Case {
        name: "root is a file",
        mke2fs: &[],
        dirty: false,
        debugfs: &["sif <2> mode 0100644"],
        harm: nothing,
    },
    Case {
        name: "root is a file, dirty",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &["sif <2> mode 0100644"],
        harm: nothing,
    },
    Case { name: "no root", mke2fs: &[], dirty: false, debugfs: &["clri <2>"], harm: nothing },
    Case {
        name: "journal inode is none",
        mke2fs: &[],
        dirty: false,
        debugfs: &["clri <8>"],
        harm: nothing,
    },
    Case {
        name: "journal inode is a directory",
        mke2fs: &[],
        dirty: false,
        debugfs: &["sif <8> mode 040755"],
        harm: nothing,
    },
    Case {
        name: "journal inode is impossible",
        mke2fs: &[],
        dirty: false,
        debugfs: &["ssv journal_inum 999999"],
        harm: nothing,
    },
    Case {
        name: "journal is none",
        mke2fs: &[],
        dirty: false,
        debugfs: &[],
        harm: |image| {
            image.write_at(block_of(image, "<8>", 0), &[0; 4096]);
        },
    },
    Case {
        name: "journal of an unknown kind",
        mke2fs: &[],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            image.write_at(block_of(image, "<8>", 0) + 0x28, &[0xFF; 4]);
        },
    },
    Case {
        name: "journal with a wrong size",
        mke2fs: &[],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            image.write_at(block_of(image, "<8>", 0) + 0x10, &[0x7F; 4]);
        },
    },
    Case {
        name: "journal has an errno",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            image.write_at(block_of(image, "<8>", 0) + 0x20, &[0xFF, 0xFF, 0xFF, 0xFB]);
        },
    },
    Case {
        name: "needs recovery without a journal",
        mke2fs: &["-O", "^has_journal"],
        dirty: false,
        debugfs: &["feature needs_recovery"],
        harm: nothing,
    },
    Case {
        name: "quota file with a wrong magic number",
        mke2fs: &["-O", "quota"],
        dirty: false,
        debugfs: &[],
        harm: |image| image.flip_bit(block_of(image, "<3>", 0), 1),
    },
    Case {
        name: "quota inode that is a directory, dirty",
        mke2fs: &["-O", "quota"],
        dirty: true,
        debugfs: &["ssv usr_quota_inum 11"],
        harm: nothing,
    },
    Case {
        name: "unknown feature",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            image.write_at(SUPER + 0x63, &[0x40]);
        },
    },
    Case {
        name: "external journal that is not there",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: false,
        debugfs: &["ssv journal_inum 0"],
        harm: nothing,
    },
    Case {
        name: "truncated",
        mke2fs: &[],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            let file = std::fs::File::options().write(true).open(&image.path).expect("image");
            file.set_len(40 * MIB).expect("truncate");
        },
    },
    Case {
        name: "superblock's checksum",
        mke2fs: &["-O", "metadata_csum"],
        dirty: true,
        debugfs: &[],
        harm: |image| image.flip_bit(SUPER + 0x79, 1),
    },
    Case {
        name: "impossible geometry",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &[],
        harm: |image| image.write_at(SUPER + 0x28, &[0xFF; 4]),
    },
    Case {
        name: "descriptors",
        mke2fs: &[],
        dirty: false,
        debugfs: &[],
        harm: |image| image.write_at(4096, &[0xEE; 4096]),
    },
    Case {
        name: "descriptors, dirty",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &[],
        harm: |image| image.write_at(4096, &[0xEE; 4096]),
    },
    Case {
        name: "orphan list leads nowhere",
        mke2fs: &["-O", "^orphan_file"],
        dirty: false,
        debugfs: &["ssv last_orphan 999999"],
        harm: nothing,
    },
    Case {
        name: "orphan list leads to the root",
        mke2fs: &["-O", "^orphan_file"],
        dirty: false,
        debugfs: &["ssv last_orphan 2"],
        harm: nothing,
    },
    Case {
        name: "orphan list leads to the journal",
        mke2fs: &["-O", "^orphan_file"],
        dirty: false,
        debugfs: &["ssv last_orphan 8"],
        harm: nothing,
    },
    Case {
        name: "orphan file has no inode",
        mke2fs: &["-O", "orphan_file"],
        dirty: false,
        debugfs: &["ssv orphan_file_inum 0"],
        harm: nothing,
    },
    Case {
        name: "orphan file is damaged",
        mke2fs: &["-O", "orphan_file"],
        dirty: true,
        debugfs: &[],
        harm: |image| {
            image.write_at(block_of(image, "<12>", 0), &[0xEE; 4096]);
        },
    },
    Case {
        name: "inode table is damaged, dirty",
        mke2fs: &["-O", "^metadata_csum"],
        dirty: true,
        debugfs: &["clri <2>"],
        harm: nothing,
    },
    Case {
        name: "e2fsck has it",
        mke2fs: &["-O", "mmp", "-E", "mmp_update_interval=1"],
        dirty: false,
        debugfs: &["set_mmp_value seq 0xE24D4D50"],
        harm: nothing,
    },
    Case {
        name: "MMP block is damaged",
        mke2fs: &["-O", "mmp", "-E", "mmp_update_interval=1"],
        dirty: false,
        debugfs: &["ssv mmp_block 0"],
        harm: nothing,
    },
];

#[test]
fn what_is_refused_has_written_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let source = scratch.join("source");
    std::fs::write(&source, b"new contents").expect("source");
    let (mut refusals, mut wrong) = (0, Vec::new());
    for case in CASES {
        let args = [&["-t", "ext4", "-b", "4096", "-J", "size=4"], case.mke2fs].concat();
        let args = if case.mke2fs.contains(&"^has_journal") {
            &[&args[..4], &args[6..]].concat()
        } else {
            &args
        };
        let image = Image::mke2fs(scratch.path(), "a.img", 48 * MIB, args);
        if case.dirty {
            leave_dirty(&image, &scratch);
        }
        debugfs(&image, case.debugfs);
        (case.harm)(&image);
        let before = std::fs::read(&image.path).expect("image");
        let unchanged = |what: &str, wrong: &mut Vec<String>| {
            let now = std::fs::read(&image.path).expect("image");
            if let Some(at) = now.iter().zip(&before).position(|(a, b)| a != b) {
                wrong.push(format!("{}: {what} was refused and has written at {at:#x}", case.name));
            }
        };
        let (info_ok, info) = outcome(&["info".as_ref(), image.path.as_ref()]);
        unchanged("info", &mut wrong);
        let promised =
            info_ok && info.lines().any(|l| l.starts_with("Read-write") && l.ends_with("yes"));
        let commands: [(&str, Vec<&Path>); 4] = [
            ("put", vec!["put".as_ref(), image.path.as_ref(), source.as_ref(), "/put".as_ref()]),
            ("mkdir", vec!["mkdir".as_ref(), image.path.as_ref(), "/dir".as_ref()]),
            ("rm", vec!["rm".as_ref(), "-r".as_ref(), image.path.as_ref(), "/lost+found".as_ref()]),
            ("replay", vec!["replay".as_ref(), image.path.as_ref()]),
        ];
        for (name, args) in commands {
            let (ok, said) = outcome(&args);
            if !ok {
                refusals += 1;
                unchanged(name, &mut wrong);
                if promised {
                    wrong.push(format!("{}: info promised, {name} said: {said}", case.name));
                }
            }
            std::fs::write(&image.path, &before).expect("image");
        }
        match ExtolMount::try_start(&image.path, &dir, &[]) {
            Ok(mount) => {
                if !promised {
                    wrong.push(format!("{}: info did not promise: {info}", case.name));
                }
                mount.end();
            }
            Err(failed) => {
                refusals += 1;
                unchanged("mount", &mut wrong);
                if promised {
                    wrong.push(format!(
                        "{}: info promised, mount said: {}",
                        case.name, failed.output
                    ));
                }
            }
        }
        let expected = matches!(case.name, "sound" | "dirty");
        assert!(!expected || promised, "{}: {info}", case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refusals > 60, "only {refusals} refusals");
}
