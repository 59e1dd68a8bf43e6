//! Features × block sizes × sizes: e2fsck checks each step, and the size is the one that resize2fs
//! gives to a copy. `EXTOL_LONG=1` does all of it, else each feature meets one block
//! size and one way of sizes.

use super::*;

/// Options of mke2fs. Groups have 8 MiB, whatever the block size is.
const FEATURES: [&[&str]; 11] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-O", "^resize_inode"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode"],
    &["-t", "ext4", "-O", "^flex_bg"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode,^flex_bg,^64bit"],
    &["-t", "ext4", "-O", "^64bit"],
    &["-t", "ext4", "-O", "sparse_super2"],
    &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-G", "4"],
    &["-t", "ext4", "-O", "inline_data,fast_commit,orphan_file", "-G", "64"],
    &["-t", "ext3"],
];
const BLOCK_SIZES: [u64; 3] = [1024, 2048, 4096];
const GROUP: u64 = 8 << 20;
const START: u64 = 28 << 20;

/// Where the volume goes from its first size, one after the other, in bytes: the ends of groups and
/// odd ones, and some behind which a last group has too few blocks to be made.
const WAYS: [&[u64]; 3] = [
    &[5 * GROUP, 17 * GROUP + (20 << 10), 16 * GROUP - (4 << 10), 5 * GROUP + (3 << 20)],
    &[40 * GROUP + (5 << 20), 33 * GROUP + (40 << 10), 6 * GROUP, 5 * GROUP - (1 << 20)],
    &[4 * GROUP - (12 << 10), 130 * GROUP, 64 * GROUP + (4 << 10), 8 * GROUP + (7 << 20)],
];

/// A text that says where in it each part is.
fn long_text() -> String {
    (0..90_000).map(|nr| format!("{nr:015}\n")).collect()
}

/// A volume whose files lie behind a hole.
fn volume(scratch: &Scratch, features: &[&str], block: u64) -> Image {
    let (size, group) = (block.to_string(), (GROUP / block).to_string());
    let options = [features, &["-b", &size, "-g", &group, "-N", "512", "-J", "size=4"]].concat();
    let image = Image::mke2fs(scratch.path(), "a.img", START, &options);
    let put = |name: &str, bytes: &[u8]| {
        let file = scratch.path().join(name);
        std::fs::write(&file, bytes).expect("write");
        run_ok(extol().arg("put").arg(&image.path).arg(&file).arg(format!("/{name}")));
        std::fs::remove_file(&file).expect("remove");
    };
    put("pad", &vec![1; 4 << 20]);
    put("text", long_text().as_bytes());
    make_files(&image);
    run_ok(tool("debugfs").args(["-w", "-R", "rm /pad"]).arg(&image.path));
    image
}

/// The blocks that resize2fs gives a copy.
fn beside(scratch: &Scratch, image: &Image, blocks: u64) -> u64 {
    let copy = Image { path: scratch.path().join("copy.img"), journal: None };
    run_ok(tool("cp").arg("--sparse=always").arg(&image.path).arg(&copy.path));
    run_ok(tool("resize2fs").arg("-f").arg(&copy.path).arg(blocks.to_string()));
    self::blocks(&copy)
}

fn cell(features: &[&str], block: u64, way: &[u64]) {
    let scratch = Scratch::new();
    let image = volume(&scratch, features, block);
    for bytes in way {
        let (before, wish) = (blocks(&image), bytes / block);
        let what = format!("{features:?}, blocks of {block}, from {before} to {wish}");
        let theirs = beside(&scratch, &image, wish);
        run_ok(&mut resize(&image.path, &wish.to_string()));
        assert_eq!(blocks(&image), theirs, "{what}: not as resize2fs");
        assert_ne!(theirs, before, "{what}");
        assert!(image.size() >= theirs * block, "{what}: the image is too short");
        e2fsck(&image).assert_clean(&what);
        let text = run_ok(extol().arg("cat").arg(&image.path).arg("/text"));
        assert!(text == long_text(), "{what}: another text");
        assert_eq!(run_ok(extol().arg("cat").arg(&image.path).arg("/file")), "contents");
    }
}

#[test]
fn sizes_are_those_of_resize2fs() {
    if !require(&NEEDS) {
        return;
    }
    let long = std::env::var_os("EXTOL_LONG").is_some();
    for (nr, features) in FEATURES.iter().enumerate() {
        for (size, block) in BLOCK_SIZES.iter().enumerate() {
            for (way, sizes) in WAYS.iter().enumerate() {
                if long || (size == nr % 3 && way == (nr + nr / 3) % 3) {
                    cell(features, *block, sizes);
                }
            }
        }
    }
}
