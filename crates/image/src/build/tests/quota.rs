//! Quota files of volumes that are built with files.

use super::*;
use extol_ondisk::quota::Kind;

/// Values of attributes in inodes of their own count for each file that has them, and so do blocks
/// of attributes that are shared.
fn with_values() -> Made {
    let mut source = everything();
    for i in 0..40u32 {
        source.add(format!("values/{i}"), What::File(noise(i as usize * 90, i)));
        source.with("user.large", &noise(20_000, i % 3)).with("user.other", &noise(9000, 7));
        source.with("user.shared", &noise(700, 5));
    }
    source
}

#[test]
fn each_owner_pays_for_its_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("img");
    for words in [
        "-b 4096 -O quota,project,ea_inode",
        "-b 1024 -O quota,ea_inode -I 128",
        "-b 1024 -O quota,ea_inode,bigalloc,^has_journal -C 16384",
    ] {
        let (device, _) = made(&with_values(), 200 << 20, &options(words)).expect(words);
        check(&device, words);
        if harness::have("e2fsck") {
            std::fs::write(&path, device.to_bytes()).expect("image");
            harness::assert_clean(&path, words);
        }
    }
}

/// A lost+found of the source has an owner of its own; the size of the files follows from the ids.
#[test]
fn nothing_is_counted_for_ids_that_own_nothing() {
    let mut source = Made::default();
    source.add("a", What::Dir).add("lost+found", What::Dir);
    source.add("lost+found/file", What::File(noise(3000, 1)));
    let options = options("-b 1024 -O quota -E root_owner=4294967294:70000");
    let (device, _) = made(&source, 30 << 20, &options).expect("built");
    check(&device, "a lost+found of the source");
    let tree = list(&mut source, &options).expect("list");
    let owners = needs::owners(&tree);
    let files = owners.contents(Kind::User).expect("contents");
    // Four levels and the data are in one branch each but for those ids that differ early.
    assert!(files.len() >= 9 << 10, "{}", files.len());
    assert!(owners.contents(Kind::Project).expect("contents").len() == 6 << 10);
}

/// The smallest volume has room for its quota files.
#[test]
fn quota_files_are_measured() {
    let mut source = Made::default();
    for i in 0..300u32 {
        source.add(format!("{i}"), What::File(noise(1500, i)));
    }
    let mut options = options("-b 1024 -O quota,project");
    options.size = SizeWish::AsNeeded(Free::Bytes(0));
    let tree = list(&mut source, &options).expect("list");
    let measured = measure(&source, &tree, &options, &mut go_on).expect("measured");
    let device = Arc::new(MemDevice::new(measured.bytes));
    let built = build_tree(&device, &source, &tree, Some(&measured), &options, &mut go_on);
    let built = built.expect("built");
    check(&device, "measured");
    assert_eq!(built.volume.free_blocks * 1024, measured.free);
}
