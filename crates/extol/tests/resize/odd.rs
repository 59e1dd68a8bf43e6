//! Volumes with something that cannot move, or that is damaged, do not become smaller: a line says
//! why.

use extol::resize::ResizeError;
use extol_testkit::{Need, require};

use super::*;

/// The blocks on the list of bad ones stay where they are: so does the end behind them.
#[test]
fn bad_blocks_stay_in_the_volume() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("list");
    // Some more than an inode names by itself.
    let bad: Vec<String> = (0..20).map(|nr| (50_000 + 2 * nr).to_string()).collect();
    std::fs::write(&list, bad.join("\n")).unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=2", "-l", list.to_str().unwrap()];
    let image = Image::new("90M", &args);
    image.with(|fs| fill_some(fs, 8));
    let listed = || run("debugfs", &["-R", "blocks <1>"], &image.path).1;
    let before = listed();
    assert!(before.contains("50038"), "{before}");
    let error = image.with(|fs| fs.resize(Target::Blocks(40_000), &mut |_| true).unwrap_err());
    assert!(matches!(error.cause(), ResizeError::NoRoom { .. }), "{error:?}");
    assert!(error.to_string().contains("list of bad blocks"), "{error}");
    image.assert_clean("refused");
    let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap());
    assert!((50_039..60_000).contains(&done.blocks), "{done:?}");
    image.assert_clean("as small as its bad blocks allow");
    assert_eq!(listed(), before);
    image.with(|fs| assert_some(fs, 8, "its files"));
}

/// Damage in a group that goes ends the resize with an error, also where the volume was not checked
/// before.
#[test]
fn a_damaged_group_that_goes_is_refused() {
    if !require(&[Need::Tool("debugfs")]) {
        return;
    }
    for damage in [
        "set_bg 8 free_inodes_count 7",
        "set_bg 8 inode_bitmap 999999",
        "set_bg 8 inode_bitmap 5000",
        "set_bg 8 block_bitmap 999999",
        "set_bg 8 inode_table 20",
    ] {
        let image = Image::new("90M", &["-t", "ext3", "-b", "1024", "-J", "size=2"]);
        image.with(|fs| fill_some(fs, 8));
        let before = image.blocks();
        let (code, text) = run("debugfs", &["-w", "-R", damage], &image.path);
        assert_eq!(code, 0, "{text}");
        let fs = image.open();
        let done = fs.resize(Target::Bytes(20 << 20), &mut |_| true);
        let _ = fs.unmount();
        let error = done.expect_err(damage);
        assert!(!matches!(error, ResizeError::Partly { .. }), "{damage}: {error}");
        let line = error.to_string();
        assert!(line.contains("block group 8"), "{damage}: {line}");
        assert_eq!(image.blocks(), before, "{damage}");
    }
}
