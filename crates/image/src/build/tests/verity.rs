//! Files of fs-verity in a volume that is built.

use super::*;
use crate::edits::Pattern;
use crate::tree::VerityTrees;
use extol_block::BlockDevice as _;
use extol_check::{Kind, Report};

/// Files of all sizes and shapes.
const PATTERNS: [&str; 7] =
    ["bin/", "etc/passwd", "zigzag", "/hole", "/empty", "spar*", "many/file number 1*"];

fn with_verity(words: &str) -> BuildOptions {
    let mut options = options(words);
    for pattern in PATTERNS {
        let pattern = Pattern::parse("--verity", pattern.as_bytes()).expect("parses");
        options.edits.verity.push(pattern);
    }
    options
}

fn other_trees() -> VerityTrees {
    let salt = extol_verity::Salt::new(&[0xA5; 32]).expect("a salt");
    VerityTrees { algorithm: extol_verity::Algorithm::Sha512, block_size: Some(1024), salt }
}

fn report(device: &Arc<MemDevice>) -> Report {
    let options = extol_check::CheckOptions::default();
    extol_check::check(device.clone() as _, &options, &mut |_| {}).expect("a report")
}

/// The place of some bytes that the device has once.
fn place(bytes: &[u8], wanted: &[u8]) -> u64 {
    let found = bytes.windows(wanted.len()).position(|part| part == wanted);
    found.expect("the contents are there") as u64
}

#[test]
fn each_bit_of_a_file_that_matches_is_verified() {
    let source = everything();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("img");
    for words in [
        "-b 1024 -E nodiscard",
        "-b 4096 -E nodiscard",
        "-b 16384 -F -E nodiscard",
        "-b 4096 -E nodiscard -O ^metadata_csum,^has_journal",
        "-b 1024 -E nodiscard -O bigalloc -C 8192",
        "-b 4096 -E nodiscard -O bigalloc -C 131072",
    ] {
        // The trees of some of them are made in another way.
        let mut options = with_verity(words);
        if words.contains("bigalloc") {
            options.edits.verity_trees = other_trees();
        }
        // Nothing relies on what the device held before.
        let size = if words.contains("131072") { 600 << 20 } else { 120 << 20 };
        let device = Arc::new(MemDevice::from_bytes(&vec![0xA5; size]));
        build(&device, &mut source.clone(), &options, &mut go_on).expect(words);
        check(&device, words);
        if harness::have("e2fsck") {
            std::fs::write(&path, device.to_bytes()).expect("image");
            harness::assert_clean(&path, words);
        }
        for (contents, is_verified) in [(noise(1_000_000, 3), true), (noise(70_000, 11), false)] {
            let at = place(&device.to_bytes(), &contents[..1000]) + 17;
            device.write_at(&[contents[17] ^ 4], at).expect("write");
            let found = report(&device);
            let kinds: Vec<_> = found.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, if is_verified { vec![Kind::Verity] } else { vec![] }, "{words}");
            device.write_at(&[contents[17]], at).expect("write");
        }
    }
}

#[test]
fn what_is_behind_files_is_measured() {
    let mut source = everything();
    for words in ["-b 1024", "-b 4096", "-b 1024 -O bigalloc -C 8192"] {
        let size = SizeWish::AsNeeded(Free::Bytes(0));
        let options = BuildOptions { size, ..with_verity(words) };
        let tree = list(&mut source, &options).expect("list");
        let measured = measure(&source, &tree, &options, &mut go_on).expect("measure");
        let (device, built) = made(&source, measured.bytes, &options).expect("built");
        check(&device, words);
        assert_eq!(built.volume.free_blocks * u64::from(built.volume.block_size), measured.free);
        // The same with another number of threads.
        let again = BuildOptions { threads: 1, ..options };
        let (other, _) = made(&source, measured.bytes, &again).expect("built");
        assert!(other.to_bytes() == device.to_bytes(), "{words}");
    }
}

#[test]
fn the_volume_is_another_one_than_without() {
    let source = everything();
    let (_, with) = made(&source, 120 << 20, &with_verity("-b 4096")).expect("built");
    let mut options = with_verity("-b 4096");
    options.edits.verity_trees = other_trees();
    let (_, other) = made(&source, 120 << 20, &options).expect("built");
    assert_ne!(with.volume.uuid, other.volume.uuid);
    for (block_size, words) in [(8192, "Linux takes 4096"), (1000, "no power of two")] {
        options.edits.verity_trees.block_size = Some(block_size);
        let error = made(&source, 120 << 20, &options).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
    let (_, without) =
        made(&source, 120 << 20, &super::options("-b 4096 -O verity")).expect("built");
    assert_ne!(with.volume.uuid, without.volume.uuid);
    let error = made(&source, 120 << 20, &with_verity("-t ext2")).expect_err("refused");
    assert_eq!(error.to_string(), "files of fs-verity need the feature extent");
}
