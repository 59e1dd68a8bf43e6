//! `extol tune` switches checksums, and features that e2fsck completes, beside tune2fs and Linux.

use std::fs;
use std::path::Path;
use std::time::Duration;

use extol_testkit::{
    Image, KernelMount, Need, Scratch, dump_super, e2fsck, e2fsck_fix, new_e2fsck, require, run,
    run_extol, text, tool,
};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs"), Need::Tool("tune2fs")];

/// Names of directories whose blocks are full in many ways.
fn names() -> Vec<String> {
    let long = (0..3000).map(|n| format!("{n}-{}", "x".repeat(n * 7 % 100)));
    let short = (0..2000).map(|n| format!("{n:04}"));
    long.chain(short).collect()
}

/// Directories with and without an index, attributes in blocks, and a deep extent tree.
fn fill(dir: &Path) {
    for name in names() {
        fs::write(dir.join("large").join(&name), "").unwrap();
    }
    for n in 0..300 {
        fs::write(dir.join("small").join(format!("{n:04}")), "").unwrap();
    }
    let file = fs::File::create(dir.join("holes")).unwrap();
    for n in 0..2000_u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", n * 8192).unwrap();
    }
    let attribute = tool("setfattr")
        .args(["-n", "user.long", "-v", &"v".repeat(700)])
        .arg(dir.join("holes"))
        .status();
    assert!(attribute.unwrap().success());
}

fn look(dir: &Path) {
    let found = fs::read_dir(dir.join("large")).unwrap().count();
    assert_eq!(found, names().len());
    assert!(names().iter().all(|name| dir.join("large").join(name).exists()));
    assert_eq!(fs::read_dir(dir.join("small")).unwrap().count(), 300);
    assert_eq!(fs::read(dir.join("holes")).unwrap().iter().filter(|b| **b == b'x').count(), 2000);
}

fn tune(image: &Image, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let done = run_extol(&[&["tune"], &words[..], &[text(&image.path)]].concat());
    assert!(done.success(), "{words:?}: {done:?}");
}

fn assert_sound(image: &Image, what: &str) {
    e2fsck(image).assert_clean(what);
    new_e2fsck(image).assert_clean(what);
    let check = run_extol(&["check", text(&image.path)]);
    assert!(check.success(), "{what}: {check:?}");
}

/// Linux reads and changes the volume after each switch, and reports nothing.
#[test]
fn checksums_come_and_go_under_full_directories() {
    if !require(&[&NEEDS[..], &[Need::Tool("setfattr")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for layout in [
        "-t ext4 -b 1024 -O ^metadata_csum",
        "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg,64bit",
        "-t ext3 -b 1024 -O ^dir_index",
        "-t ext4 -b 1024 -O ^metadata_csum,fast_commit,inline_data",
    ] {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::mke2fs(scratch.path(), "a.img", 80 << 20, &args);
        let linux = KernelMount::mount(&image, &dir, &[]);
        fs::create_dir(dir.join("large")).unwrap();
        fs::create_dir(dir.join("small")).unwrap();
        fill(&dir);
        linux.unmount();
        for (round, words) in [
            "-O metadata_csum",
            "-O ^metadata_csum",
            "-O metadata_csum,metadata_csum_seed",
            "-O ^metadata_csum,^uninit_bg",
            "-O uninit_bg",
            "-O ^uninit_bg",
        ]
        .into_iter()
        .enumerate()
        {
            let what = format!("{layout}: {words}");
            tune(&image, words);
            assert_sound(&image, &what);
            let linux = KernelMount::mount(&image, &dir, &[]);
            look(&dir);
            let more = dir.join("large").join(format!("more-{round}"));
            fs::write(&more, &what).unwrap();
            fs::remove_file(&more).unwrap();
            fs::create_dir(dir.join(format!("new-{round}"))).unwrap();
            linux.unmount();
            assert_sound(&image, &what);
        }
        image.remove();
    }
}

/// As tune2fs, which only changes the superblock: e2fsck makes the rest fit.
#[test]
fn what_e2fsck_completes_is_left_to_it() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for (layout, words) in [
        ("-t ext4", "-O ^filetype"),
        ("-t ext4 -O ^filetype", "-O filetype"),
        ("-t ext2 -O ^sparse_super,^resize_inode -b 1024", "-O sparse_super"),
    ] {
        let args: Vec<&str> = layout.split(' ').collect();
        let ours = Image::mke2fs(scratch.path(), "a.img", 60 << 20, &args);
        let theirs = ours.copy_as("b.img");
        let words: Vec<&str> = words.split(' ').collect();
        let done = run_extol(&[&["tune"], &words[..], &[text(&ours.path)]].concat());
        assert!(done.success() && done.output.contains("run e2fsck -f now"), "{done:?}");
        let theirs_done =
            run(tool("tune2fs").args(&words).arg(&theirs.path), Duration::from_secs(60));
        assert!(theirs_done.success(), "{theirs_done:?}");
        let shown = [&ours, &theirs].map(|image| {
            let text = dump_super(image);
            let keep = |line: &&str| line.starts_with("Filesystem features");
            text.lines().filter(keep).map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(shown[0], shown[1], "{layout}");
        let _ = e2fsck_fix(&ours);
        assert_sound(&ours, layout);
        ours.remove();
        theirs.remove();
    }
}
