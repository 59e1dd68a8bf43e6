//! Logs that Linux left behind: recovered by us and by e2fsck, with the same result.

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use extol_jbd2::JournalError;
use extol_jbd2::format::Features;
use extol_jbd2::inspect::{BlockReport, FcTagReport, Outcome, State, inspect};
use extol_jbd2::recovery::recover_to_memory;
use extol_testkit::{
    Image, KernelMount, Need, Scratch, Shutdown, Tree, debugfs, e2fsck_fix, require, run_ok,
    shutdown, tool,
};
use support::{E2FSPROGS, Volume, assert_same_bytes, e2fsck_journal_only};

fn ready() -> bool {
    let linux = [Need::Root, Need::Loop, Need::Kernel("ext4")];
    require(&[&E2FSPROGS[..], &linux[..]].concat())
}

fn commit(dir: &Path) {
    run_ok(tool("sync").arg("-f").arg(dir));
}

/// Makes many transactions: names, data, a block that looks like a journal block, revokes.
fn work(dir: &Path, rounds: Range<usize>) {
    for round in rounds {
        let sub = dir.join(format!("d{round}"));
        std::fs::create_dir(&sub).unwrap();
        for i in 0..12 {
            let mut file =
                File::create(sub.join(format!("file-with-a-long-name-{i:020}"))).unwrap();
            file.write_all(&[0xC0, 0x3B, 0x39, 0x98]).unwrap();
            file.write_all(&vec![round as u8; 3000 * i]).unwrap();
        }
        commit(dir);
        if round % 3 == 1 {
            // Directories are metadata: their blocks are revoked, then used again.
            std::fs::remove_dir_all(dir.join(format!("d{}", round - 1))).unwrap();
            commit(dir);
        }
    }
}

struct Case {
    name: &'static str,
    args: &'static [&'static str],
    options: &'static [&'static str],
    /// Blocks of an external journal.
    external: Option<u64>,
    rounds: usize,
    /// Journal features that Linux must have chosen.
    expect: fn(Features) -> bool,
}

fn cases() -> Vec<Case> {
    let plain = |f: Features| !f.has_csum_v1() && !f.has_csum_v2_or_v3();
    let case = |name, args, options, expect| Case {
        name,
        args,
        options,
        external: None,
        rounds: 8,
        expect,
    };
    vec![
        case("ext4-4k", &["-t", "ext4", "-b", "4096"], &[], |f| f.has_csum_v3() && f.is_64bit()),
        case("ext4-1k", &["-t", "ext4", "-b", "1024"], &[], Features::has_csum_v3),
        case("ext4-32bit", &["-t", "ext4", "-b", "2048", "-O", "^64bit"], &[], |f| {
            f.has_csum_v3() && !f.is_64bit()
        }),
        case("ext3-1k", &["-t", "ext3", "-b", "1024"], &[], plain),
        case("ext4-plain", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], &[], plain),
        case(
            "v1",
            &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
            &["journal_checksum"],
            Features::has_csum_v1,
        ),
        case(
            "v1-async",
            &["-t", "ext4", "-O", "^metadata_csum"],
            &["journal_async_commit", "data=writeback"],
            |f| f.has_csum_v1() && f.has_async_commit(),
        ),
        case("v3-async", &["-t", "ext4"], &["journal_async_commit", "data=writeback"], |f| {
            f.has_csum_v3() && f.has_async_commit()
        }),
        case(
            "data-journal",
            &["-t", "ext4", "-b", "4096"],
            &["data=journal"],
            Features::has_csum_v3,
        ),
        case("data-journal-1k", &["-t", "ext3", "-b", "1024"], &["data=journal"], plain),
        Case {
            rounds: 40,
            ..case(
                "wrap",
                &["-t", "ext4", "-b", "1024", "-J", "size=1"],
                &[],
                Features::has_csum_v3,
            )
        },
        Case {
            rounds: 40,
            ..case(
                "wrap-data",
                &["-t", "ext4", "-b", "4096", "-J", "size=4"],
                &["data=journal"],
                |f| f.has_csum_v3(),
            )
        },
        Case {
            external: Some(2048),
            ..case("external-4k", &["-t", "ext4"], &[], Features::has_csum_v3)
        },
        Case {
            external: Some(4096),
            ..case("external-1k", &["-t", "ext4", "-b", "1024"], &[], Features::has_csum_v3)
        },
        case(
            "fast-commit-unused",
            &["-t", "ext4", "-O", "fast_commit"],
            &[],
            Features::has_fast_commit,
        ),
    ]
}

fn make(scratch: &Scratch, case: &Case) -> Image {
    let bs = if case.args.contains(&"1024") { 1024 } else { 4096 };
    match case.external {
        None => Image::mke2fs(scratch.path(), &format!("{}.img", case.name), 48 << 20, case.args),
        Some(blocks) => {
            let name = format!("{}.img", case.name);
            Image::mke2fs_external(
                scratch.path(),
                &name,
                48 << 20,
                blocks * bs,
                bs as u32,
                case.args,
            )
        }
    }
}

fn crash(scratch: &Scratch, image: &Image, options: &[&str], work: impl FnOnce(&Path)) {
    let mount = KernelMount::mount(
        image,
        &scratch.dir(&format!("mnt-{}", image.path.file_name().unwrap().display())),
        options,
    );
    work(mount.path());
    shutdown(mount.path(), Shutdown::Now);
    mount.unmount();
}

#[test]
fn same_as_e2fsck() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new();
    for case in cases() {
        let image = make(&scratch, &case);
        crash(&scratch, &image, case.options, |dir| {
            work(dir, 0..case.rounds);
            if case.name.starts_with("wrap") {
                work_until_the_log_wraps(&image, dir, case.rounds);
            }
        });
        let (ours, theirs) = (image.copy_as("ours"), image.copy_as("theirs"));

        let volume = Volume::open(&ours);
        let sb = volume.superblock();
        assert!((case.expect)(sb.features), "{}: {:?}", case.name, sb.features.names());
        assert_ne!(sb.start, 0, "{}: nothing to recover", case.name);
        sb.validate(volume.map.block_size(), volume.map.len().into()).unwrap();

        let report = inspect(volume.log(), &volume.map, volume.fs_blocks).unwrap();
        assert_live_blocks_good(&report.blocks, case.name);
        assert_same_tags(&image, &report.blocks, case.name);
        assert_eq!(report.recovery.refused, None, "{}", case.name);

        if case.name.starts_with("wrap") {
            assert!(wraps(&volume), "{}", case.name);
        }
        let recovered = volume.recover().unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert!(
            recovered.replayed_transactions > 0 && recovered.replayed_blocks > 0,
            "{}",
            case.name
        );
        assert_eq!(recovered.replayed_transactions, report.recovery.transactions, "{}", case.name);
        assert_eq!(recovered.replayed_blocks, report.recovery.blocks, "{}", case.name);
        assert_eq!(recovered.revoke_hits, report.recovery.revoked_copies, "{}", case.name);
        // With all data in the journal, Linux needs no revokes.
        if !case.options.contains(&"data=journal") {
            assert!(recovered.revoke_hits > 0, "{}: no revoke", case.name);
        }
        let after = volume.superblock();
        let map = volume.map.clone();
        drop(volume);

        e2fsck_journal_only(&theirs);
        assert_same_bytes(&ours, &theirs, &map, case.name);
        let e2fsck = Volume::open(&theirs).superblock();
        assert_eq!((after.start, after.sequence), (e2fsck.start, e2fsck.sequence), "{}", case.name);

        e2fsck_fix(&ours).assert_only_recovered(case.name);
        let ours_tree =
            KernelMount::mount(&ours, &scratch.dir(&format!("look-{}", case.name)), case.options);
        assert!(Tree::of(ours_tree.path()).len() > 12, "{}", case.name);
        ours_tree.unmount();
        for image in [image, ours, theirs] {
            image.remove();
        }
    }
}

/// Live transactions lie on both sides of the end of the log.
fn wraps(volume: &Volume) -> bool {
    let start = volume.superblock().start;
    let report = inspect(volume.log(), &volume.map, volume.fs_blocks).unwrap();
    report.blocks.iter().any(|block| match block {
        BlockReport::Commit { block, state: State::Live, .. } => *block < start,
        _ => false,
    })
}

fn work_until_the_log_wraps(image: &Image, dir: &Path, done: usize) {
    for round in done..done + 100 {
        work(dir, round..round + 1);
        let copy = image.copy_as("now");
        let enough = wraps(&Volume::open(&copy));
        copy.remove();
        if enough {
            return;
        }
    }
    panic!("the log never wraps");
}

fn assert_live_blocks_good(blocks: &[BlockReport], what: &str) {
    let mut live = 0;
    for block in blocks {
        match block {
            BlockReport::Descriptor { state: State::Live, checksum, tags, .. } => {
                live += 1;
                assert_ne!(*checksum, Outcome::Bad, "{what}: {block:?}");
                assert!(
                    tags.iter().all(|t| t.copy.is_some() && t.checksum != Outcome::Bad),
                    "{what}: {block:?}"
                );
            }
            BlockReport::Revoke { state: State::Live, checksum, records, .. } => {
                assert!(*checksum != Outcome::Bad && records.is_some(), "{what}: {block:?}");
            }
            BlockReport::Commit { state: State::Live, checksum, .. } => {
                assert_ne!(*checksum, Outcome::Bad, "{what}: {block:?}");
            }
            _ => {}
        }
    }
    assert!(live > 0, "{what}");
}

/// Our tags are those that debugfs lists.
fn assert_same_tags(image: &Image, blocks: &[BlockReport], what: &str) {
    let request = match &image.journal {
        Some(journal) => format!("logdump -a -f {}", journal.display()),
        None => "logdump -a".to_owned(),
    };
    let dump = debugfs(image, &request);
    let theirs: BTreeSet<(u64, u32)> = dump
        .lines()
        .filter_map(|line| {
            let (home, rest) =
                line.trim().strip_prefix("FS block ")?.split_once(" logged at journal block ")?;
            Some((home.parse().ok()?, rest.split(' ').next()?.parse().ok()?))
        })
        .collect();
    let ours: BTreeSet<(u64, u32)> = blocks
        .iter()
        .filter_map(|block| match block {
            BlockReport::Descriptor { state: State::Live | State::Incomplete, tags, .. } => {
                Some(tags)
            }
            _ => None,
        })
        .flatten()
        .filter_map(|tag| Some((tag.home, tag.copy?)))
        .collect();
    assert!(!ours.is_empty(), "{what}");
    assert_eq!(ours, theirs, "{what}:\n{dump}");
}

#[test]
fn fast_commits_are_found_and_kept() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new();
    let image =
        Image::mke2fs(scratch.path(), "fc.img", 48 << 20, &["-t", "ext4", "-O", "fast_commit"]);
    crash(&scratch, &image, &[], |dir| {
        work(dir, 0..2);
        for i in 0..3 {
            let mut file = File::create(dir.join(format!("promised-{i}"))).unwrap();
            file.write_all(b"kept").unwrap();
            file.sync_all().unwrap();
        }
    });
    let volume = Volume::open(&image);
    let report = inspect(volume.log(), &volume.map, volume.fs_blocks).unwrap();
    assert_eq!(report.recovery.fast_commits, "complete");
    assert_eq!(report.recovery.refused, None);
    let tags: Vec<&FcTagReport> = report
        .blocks
        .iter()
        .filter_map(|block| match block {
            BlockReport::FastCommit { tags, problem: None, .. } => Some(tags),
            BlockReport::FastCommit { problem, .. } => panic!("{problem:?}"),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(matches!(tags.first(), Some(FcTagReport::Head { features: 0, .. })), "{tags:?}");
    for i in 0..3 {
        let wanted = format!("promised-{i}");
        assert!(
            tags.iter().any(
                |tag| matches!(tag, FcTagReport::Creat { parent: 2, name, .. } if *name == wanted)
            ),
            "{tags:?}"
        );
    }
    let tails: Vec<Outcome> = tags
        .iter()
        .filter_map(|tag| match tag {
            FcTagReport::Tail { checksum, .. } => Some(*checksum),
            _ => None,
        })
        .collect();
    assert!(tails.len() >= 3 && tails.iter().all(|v| *v == Outcome::Good), "{tails:?}");
    // Our first half: the log goes home, the fast commits still count.
    let fast = volume.recover().unwrap().fast_commits.expect("fast commits");
    assert_eq!(fast.commits, report.recovery.fast_commit_count);
    assert!(fast.commits >= 3 && fast.records == report.recovery.fast_commit_records, "{fast:?}");
    let sb = volume.superblock();
    assert_eq!((sb.start, sb.sequence), (sb.first, fast.tid));
    drop(volume);

    // Linux and e2fsck go on from there.
    let other = image.copy_as("e2fsck.img");
    e2fsck_fix(&other).assert_only_recovered("between our halves");
    for (image, name) in [(&image, "linux"), (&other, "e2fsck")] {
        let mount = KernelMount::mount(image, &scratch.dir(name), &[]);
        for i in 0..3 {
            let contents = std::fs::read(mount.path().join(format!("promised-{i}"))).unwrap();
            assert_eq!(contents, b"kept", "{name}");
        }
        mount.unmount();
        e2fsck_fix(image).assert_clean(name);
    }
}

#[test]
fn a_log_with_outdated_fast_commits_is_recovered() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new();
    let image =
        Image::mke2fs(scratch.path(), "old-fc.img", 48 << 20, &["-t", "ext4", "-O", "fast_commit"]);
    crash(&scratch, &image, &[], |dir| {
        work(dir, 0..2);
        let mut file = File::create(dir.join("promised")).unwrap();
        file.write_all(b"kept").unwrap();
        file.sync_all().unwrap();
        File::create(dir.join("later")).unwrap();
        commit(dir);
    });
    let (ours, linux) = (image.copy_as("ours.img"), image.copy_as("linux.img"));
    let recovered = Volume::open(&ours).recover().unwrap();
    assert!(recovered.replayed_transactions > 0 && !recovered.torn_fast_commit);
    let tree = |image: &Image, name: &str| {
        let mount = KernelMount::mount(image, &scratch.dir(name), &[]);
        let tree = Tree::of(mount.path());
        assert!(mount.path().join("promised").exists() && mount.path().join("later").exists());
        mount.unmount();
        tree
    };
    tree(&ours, "a").assert_same(&tree(&linux, "b"), "recovered by us", "recovered by Linux");
    e2fsck_fix(&ours).assert_clean("recovered by us");
}

#[test]
fn the_image_of_a_mounted_volume() {
    if !ready() {
        return;
    }
    // A copy taken under load is a power cut at an uncertain moment; blocks of the copy may be of
    // different ages, which only the log makes consistent. Data is not synced here, so only
    // structure is compared.
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "live.img", 48 << 20, &["-t", "ext4", "-b", "1024"]);
    let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
    work(mount.path(), 0..5);
    File::create(mount.path().join("not-committed")).unwrap();
    let copy = image.copy_as("copy.img");
    mount.unmount();
    let theirs = copy.copy_as("theirs.img");
    let volume = Volume::open(&copy);
    assert!(volume.recover().unwrap().replayed_transactions > 0);
    let map = volume.map.clone();
    drop(volume);
    e2fsck_journal_only(&theirs);
    assert_same_bytes(&copy, &theirs, &map, "copy of a mounted image");
    e2fsck_fix(&copy).assert_only_recovered("copy of a mounted image");
}

#[test]
fn damaged_logs_never_change_the_image_wrongly() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "bits.img", 24 << 20, &["-t", "ext4", "-b", "1024"]);
    crash(&scratch, &image, &[], |dir| work(dir, 0..3));
    let volume = Volume::open(&image);
    let blocks = inspect(volume.log(), &volume.map, volume.fs_blocks).unwrap().blocks;
    // One bit somewhere in each live block, and one in the header of each control block.
    let mut places: Vec<(u32, usize)> = Vec::new();
    for block in &blocks {
        let control = match block {
            BlockReport::Descriptor { block, state: State::Live, tags, .. } => {
                let copies = tags.iter().filter_map(|t| t.copy);
                places.extend(copies.map(|at| (at, at as usize * 9973 % 8192)));
                *block
            }
            BlockReport::Revoke { block, state: State::Live, .. }
            | BlockReport::Commit { block, state: State::Live, .. } => *block,
            _ => continue,
        };
        places.extend([
            (control, control as usize * 9973 % 8192),
            (control, control as usize * 7 % 96),
        ]);
    }
    let recover = || {
        let sb = volume.superblock();
        recover_to_memory(volume.log(), &volume.map, &sb, volume.fs_blocks)
            .map(|(recovered, _)| recovered)
    };
    let whole = recover().unwrap();
    let (mut refused, mut shorter) = (0, 0);
    for (place, bit) in places {
        let offset = volume.map.device_offset(place).unwrap() + bit as u64 / 8;
        image.flip_bit(offset, (bit % 8) as u8);
        let result = recover();
        image.flip_bit(offset, (bit % 8) as u8);
        match result {
            Err(JournalError::Corrupt { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
            Ok(recovered) => {
                // Only whole transactions may be missing, from the end: unless the damaged block
                // was revoked.
                let fewer = recovered.replayed_transactions < whole.replayed_transactions;
                assert!(
                    fewer || recovered.revoke_hits > 0,
                    "bit {bit} of log block {place} went unnoticed"
                );
                shorter += usize::from(fewer);
            }
        }
    }
    assert!(refused > 20 && shorter > 3, "{refused} refused, {shorter} shorter");
}
