//! Options of mke2fs for odd devices and systems, beside mke2fs, e2fsck and Linux.

use std::path::Path;
use std::time::Duration;

use extol_testkit::{
    Image, KernelMount, Need, Scratch, debugfs, dump_super, e2fsck, e2fsck_fix, require, run,
    run_extol, run_ok, text, tool,
};

const NEEDS: [Need; 2] = [Need::Tool("mke2fs"), Need::Tool("dumpe2fs")];
/// What makes the volumes of both programs comparable.
const SAME: [&str; 6] = [
    "-U",
    "11111111-2222-3333-4444-555555555555",
    "-E",
    "hash_seed=11111111-2222-3333-4444-555555555555",
    "-O",
    "^metadata_csum_seed,^orphan_file",
];

fn extol(args: &[&str], image: &Path, size: &str) {
    let made = run_extol(&[&["mkfs", "-q"], args, &[text(image), size]].concat());
    assert!(made.success(), "{args:?}: {made:?}");
}

/// Both programs leave out the same blocks, and count the same ones as free.
#[test]
fn bad_blocks_are_left_out_as_by_mke2fs() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let list = scratch.join("bad");
    let numbers: Vec<String> = (300..630).map(|n| (n * 13).to_string()).collect();
    std::fs::write(&list, numbers.join("\n")).unwrap();
    for kind in ["ext2", "ext3", "ext4"] {
        let args = [&["-b", "1024", "-t", kind, "-l", text(&list)], &SAME[..]].concat();
        let ours = scratch.join("ours.img");
        extol(&args, &ours, "20M");
        let theirs = Image::mke2fs(scratch.path(), "theirs.img", 20 << 20, &args);
        let ours = Image::existing(ours);
        e2fsck(&ours).assert_clean(kind);
        let shown = [&ours, &theirs].map(|image| {
            let text = dump_super(image);
            let keep = |line: &&str| {
                line.starts_with("Free ")
                    || line.starts_with("Overhead")
                    || line.starts_with("Filesystem f")
            };
            text.lines().filter(keep).map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(shown[0], shown[1], "{kind}");
        let named = debugfs(&ours, "stat <1>");
        assert!(named.contains("Size: 337920"), "{named}");
        let check = run_extol(&["check", text(&ours.path)]);
        assert!(check.success(), "{check:?}");
        ours.remove();
        theirs.remove();
    }
    let target = scratch.join("c.img");
    for (number, words) in [("1", "must be good"), ("5", "^resize_inode"), ("x", "no number")] {
        std::fs::write(&list, number).unwrap();
        let args = ["mkfs", "-b", "1024", "-l", text(&list), text(&target), "20M"];
        let refused = run_extol(&args);
        assert!(refused.output.contains(words), "{number}: {refused:?}");
        assert!(!target.exists(), "{number}");
    }
    for test in [&["-c"][..], &["-c", "-c"]] {
        extol(test, &target, "20M");
        let image = Image::existing(&target);
        e2fsck(&image).assert_clean("tested");
        assert!(debugfs(&image, "stat <1>").contains("Size: 0"));
        image.remove();
    }
}

/// Superblocks and descriptors are lost, and e2fsck finds all files behind new ones.
#[test]
fn new_superblocks_bring_files_back() {
    if !require(&[&NEEDS[..], &[Need::Root, Need::Loop, Need::Kernel("ext4")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    for kind in ["ext2", "ext4"] {
        let args = [&["-t", kind], &SAME[..]].concat();
        extol(&args, &path, "40M");
        let image = Image::existing(&path);
        let dir = scratch.dir("mnt");
        let linux = KernelMount::mount(&image, &dir, &[]);
        let contents = vec![7; 300_000];
        std::fs::create_dir(dir.join("d")).unwrap();
        std::fs::write(dir.join("d/file"), &contents).unwrap();
        linux.unmount();
        // (Blocks have 1024 bytes, and a group 8192 of them.)
        for group in [0, 1, 3] {
            image.write_at((1 + group * 8192) * 1024, &[0xEE; 2048]);
        }
        let boot = [5; 1024];
        image.write_at(0, &boot);
        assert!(!run_extol(&["info", text(&path)]).success());
        extol(&[&["-F", "-S"], &args[..]].concat(), &path, "40M");
        assert_eq!(image.read_at(0, 1024), boot);
        let _ = e2fsck_fix(&image);
        e2fsck(&image).assert_clean(kind);
        let linux = KernelMount::mount(&image, &dir, &[]);
        assert!(std::fs::read(dir.join("d/file")).unwrap() == contents, "{kind}");
        linux.unmount();
        image.remove();
    }
    let nothing = run_extol(&["mkfs", "-S", text(&path), "40M"]);
    assert!(nothing.output.contains("for a volume that is there"), "{nothing:?}");
    assert!(!path.exists());
}

#[test]
fn volumes_of_other_systems_are_those_of_mke2fs() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    for system in ["linux", "hurd", "GNU", "freebsd", "lites", "2"] {
        let args = [&["-o", system], &SAME[..]].concat();
        let ours = scratch.join("ours.img");
        extol(&args, &ours, "40M");
        let ours = Image::existing(ours);
        let theirs = Image::mke2fs(
            scratch.path(),
            "theirs.img",
            40 << 20,
            &[&["-t", "ext4"], &args[..]].concat(),
        );
        e2fsck(&ours).assert_clean(system);
        let shown = [&ours, &theirs].map(|image| {
            let text = dump_super(image);
            let differs =
                ["created", "checked", "write time", "hecksum:", "Lifetime", "volume name"];
            let keep = |line: &&str| !differs.iter().any(|word| line.contains(word));
            text.lines().filter(keep).map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(shown[0], shown[1], "{system}");
        ours.remove();
        theirs.remove();
    }
    let target = scratch.join("c.img");
    let refused = run_extol(&["mkfs", "-o", "hurd", "-O", "huge_file", text(&target), "20M"]);
    assert!(refused.output.contains("does not know the feature huge_file"), "{refused:?}");
}

#[test]
fn android_images_hold_what_raw_ones_do() {
    if !require(&[&NEEDS[..], &[Need::Tool("simg2img")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    std::fs::write(tree.join("file"), vec![9; 70_000]).unwrap();
    let (sparse, raw) = (scratch.join("a.simg"), scratch.join("b.img"));
    for source in [&[][..], &["-d", text(&tree)]] {
        let args =
            [&["-E", "android_sparse,root_selinux=u:object_r:rootfs:s0", "-F"], source, &SAME[..]];
        for _ in 0..2 {
            extol(&args.concat(), &sparse, "40M");
        }
        run_ok(tool("simg2img").arg(&sparse).arg(&raw));
        let image = Image::existing(&raw);
        assert_eq!(image.size(), 40 << 20);
        e2fsck(&image).assert_clean("expanded");
        let label = debugfs(&image, "ea_list <2>");
        assert!(label.contains("u:object_r:rootfs:s0"), "{label}");
        let there = debugfs(&image, "stat /file").contains("Size: 70000");
        assert_eq!(there, !source.is_empty());
        assert!(std::fs::metadata(&sparse).unwrap().len() < 20 << 20);
        let info = run_extol(&["info", text(&sparse)]);
        assert!(info.success(), "{info:?}");
        image.remove();
    }
    let left = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 2, "the tree and the image");
    let refused = run_extol(&["mkfs", "-E", "android_sparse", text(&scratch.join("c"))]);
    assert!(refused.output.contains("give the size"), "{refused:?}");
}

#[test]
fn a_volume_is_made_behind_an_offset_of_a_new_file() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    extol(&["-E", "offset=1048576"], &path, "20M");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 21 << 20);
    let checked = run(
        tool("e2fsck").args(["-fn", &format!("{}?offset=1048576", text(&path))]),
        Duration::from_secs(60),
    );
    assert!(checked.success(), "{checked:?}");
}
