//! How large a volume must be.

use super::*;

fn as_needed(words: &str, free: Free) -> BuildOptions {
    BuildOptions { size: SizeWish::AsNeeded(free), ..options(words) }
}

/// A volume of the measured size holds everything, with the free space that was asked for; one of a
/// block less does not.
#[test]
fn the_measured_size_is_the_smallest() {
    let mut source = everything();
    for words in [
        "",
        "-b 1024",
        "-t ext2",
        "-b 1024 -O ^has_journal",
        "-b 2048 -t ext3 -g 4096",
        "-b 1024 -O bigalloc -C 8192",
    ] {
        for free in [Free::Bytes(0), Free::Percent(10.0), Free::Bytes(64 << 20)] {
            let options = as_needed(words, free);
            let tree = list(&mut source, &options).expect("list");
            let measured = measure(&source, &tree, &options, &mut go_on).expect("measure");
            let (device, built) = made(&source, measured.bytes, &options).expect("built");
            check(&device, words);
            let block = u64::from(built.volume.block_size);
            assert_eq!(built.volume.blocks * block, measured.bytes, "{words}");
            assert_eq!(built.volume.free_blocks * block, measured.free, "{words}");
            let wanted = match free {
                Free::Bytes(bytes) => bytes,
                Free::Percent(percent) => {
                    ((measured.bytes - measured.free) as f64 * percent / 100.0) as u64
                }
            };
            assert!(measured.free >= wanted, "{words} {free:?}: {}", measured.free);
            assert!(measured.free < wanted + (300 << 10), "{words} {free:?}: {}", measured.free);
        }
    }
}

#[test]
fn a_volume_that_is_too_small_is_refused_with_the_size_that_is_not() {
    let source = everything();
    for (words, size) in [("-b 4096", 8 << 20), ("-b 1024", 6 << 20), ("-b 1024", 2 << 20)] {
        let options = options(words);
        let error = made(&source, size, &options).expect_err("too small");
        let BuildError::TooSmall { size: given, needed } = error else { panic!("{error}") };
        assert_eq!(given, size);
        assert!(needed < 24 << 20, "{words}: {needed}");
        let (device, _) = made(&source, needed, &options).expect("the size that was named");
        check(&device, words);
    }
    let few = made(&source, 100 << 20, &options("-N 100")).expect_err("too few inodes");
    assert!(few.to_string().starts_with("100 inodes are too few"), "{few}");
}

/// A journal that is asked for by name is made, though the files alone would take less.
#[test]
fn a_journal_that_is_named_is_made_or_refused() {
    let mut source = Made::default();
    source.add("f", What::File(vec![1; 5000]));
    let free = Free::Percent(10.0);
    let blocks = |options: &BuildOptions| {
        let mut source = source.clone();
        let tree = list(&mut source, options).expect("list");
        let measured = measure(&source, &tree, options, &mut go_on).expect("measure");
        let (device, built) = made(&source, measured.bytes, options).expect("built");
        check(&device, "a journal by name");
        (built.volume.blocks, built.volume.journal_blocks)
    };
    let (small, none) = blocks(&as_needed("", free));
    assert!(small < 2048 && none == 0, "{small} {none}");
    for words in ["-b 4096 -O has_journal", "-b 4096 -O fast_commit"] {
        let (large, some) = blocks(&as_needed(words, free));
        assert!((2048..2400).contains(&large) && some >= 1024, "{words}: {large} {some}");
        let error = made(&source, 4 << 20, &options(words)).expect_err("too small").to_string();
        assert!(error.contains("at least 2048 blocks of"), "{error}");
    }
}

/// Files that fill a volume of many obstacles to its end.
#[test]
fn small_groups_are_filled() {
    let mut source = Made::default();
    for i in 0..300 {
        source.add(format!("f{i}"), What::File(noise(1 + i * 977, i as u32)));
    }
    for words in [
        "-b 1024 -g 256",
        "-b 1024 -g 512 -G 2",
        "-b 1024 -g 256 -t ext2 -O ^sparse_super,^resize_inode",
    ] {
        let options = as_needed(words, Free::Bytes(0));
        let tree = list(&mut source, &options).expect("list");
        let measured = measure(&source, &tree, &options, &mut go_on).expect("measure");
        let (device, built) = made(&source, measured.bytes, &options).expect("built");
        check(&device, words);
        // Inodes are given out in whole blocks of a table, the same number in each group.
        let free = built.volume.free_blocks;
        assert!(free < u64::from(built.volume.groups) * 6, "{words}: {free}");
    }
}
