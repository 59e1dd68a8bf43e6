//! Features that `extol tune` switches, beside tune2fs and Linux.

use std::time::Duration;

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, dump_super, e2fsck, require, run, run_extol,
    run_ok, text, tool,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("dumpe2fs"),
];

/// The superblocks that tune2fs and Extol make of the same volume.
#[test]
fn casefold_comes_and_goes_as_with_tune2fs() {
    if !require(&[&NEEDS[..], &[Need::Tool("tune2fs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let first = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &["-t", "ext4"]);
    let second = Image::existing(scratch.join("b.img"));
    std::fs::copy(&first.path, &second.path).unwrap();
    // (The second argument: what both refuse.)
    for (words, refused) in [
        (&["-E", "encoding_flags=strict"][..], true),
        (&["-O", "casefold", "-E", "encoding=latin1"], true),
        (&["-O", "casefold"], false),
        (&["-E", "encoding=utf8"], true),
        (&["-O", "^casefold"], false),
        (&["-E", "encoding=utf8-12.1,encoding_flags=strict"], false),
        (&["-O", "^casefold"], false),
        (&["-E", "encoding=utf8"], false),
    ] {
        let ours = run_extol(&[&["tune"], words, &[text(&first.path)]].concat());
        let mut theirs = tool("tune2fs");
        theirs.args(words).arg(&second.path);
        let theirs = run(&mut theirs, Duration::from_secs(60));
        assert_eq!([ours.success(), theirs.success()], [!refused; 2], "{words:?}: {ours:?}");
        e2fsck(&first).assert_clean("tuned");
        for name in ["Filesystem features", "Character encoding"] {
            let found = [&first, &second].map(|image| line(image, name));
            assert_eq!(found[0], found[1], "{words:?}");
        }
        let flags = [&first, &second].map(|image| super_bytes(image, 0x27C, 4));
        assert_eq!(flags[0], flags[1], "{words:?}");
    }
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&first.path, &dir, &[]);
    std::fs::create_dir(dir.join("folded")).unwrap();
    run_ok(tool("chattr").arg("+F").arg(dir.join("folded")));
    std::fs::write(dir.join("folded/Name"), "x").unwrap();
    assert_eq!(std::fs::read(dir.join("folded/nAME")).unwrap(), b"x");
    let live = run_extol(&["tune", "-E", "encoding=utf8", text(&dir)]);
    assert!(!live.success() && live.output.contains("unmount it"), "{}", live.output);
    mount.unmount();
    let needed = run_extol(&["tune", "-O", "^casefold", text(&first.path)]);
    assert!(!needed.success() && needed.output.contains("is casefolded (+F)"), "{needed:?}");
}

/// Linux and Extol mount a volume with the mark, and read it only.
#[test]
fn a_volume_becomes_read_only_and_writable_again() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    for args in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, args);
        let path = text(&image.path);
        let tune = |words: &[&str]| run_extol(&[&["tune"], words, &[path]].concat());
        let done = tune(&["-O", "read-only", "-L", "marked"]);
        let label = line(&image, "Filesystem volume name");
        assert!(label.as_ref().is_some_and(|label| label.ends_with("marked")), "{label:?}");
        assert!(done.success() && done.output.contains("features: read-only"), "{done:?}");
        e2fsck(&image).assert_clean("marked");
        let linux = KernelMount::mount(&image, &dir, &[]);
        assert!(std::fs::write(dir.join("file"), "x").is_err());
        linux.unmount();
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        mount.unmount();
        for words in [&["-L", "x"][..], &["-O", "^read-only", "-L", "x"]] {
            let refused = tune(words);
            assert!(!refused.success() && refused.output.contains("marked as read-only"));
        }
        assert_eq!(line(&image, "Filesystem volume name"), label);
        let done = tune(&["-O", "^read-only"]);
        assert!(done.success() && done.output.contains("features: ^read-only"), "{done:?}");
        e2fsck(&image).assert_clean("not marked");
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        std::fs::write(dir.join("file"), "x").unwrap();
        mount.unmount();
        e2fsck(&image).assert_clean("written");
    }
}

/// A line of dumpe2fs; none if it has no such.
fn line(image: &Image, name: &str) -> Option<String> {
    dump_super(image).lines().find(|line| line.starts_with(name)).map(str::to_owned)
}

/// Bytes of the superblock.
fn super_bytes(image: &Image, at: usize, len: usize) -> Vec<u8> {
    let bytes = std::fs::read(&image.path).unwrap();
    bytes[1024 + at..][..len].to_vec()
}

/// Bytes of the block of multi-mount protection.
fn mmp_bytes(image: &Image, at: usize, bytes: &[u8]) {
    let block: usize = line(image, "MMP block number").unwrap()[26..].trim().parse().unwrap();
    let mut all = std::fs::read(&image.path).unwrap();
    all[block * 4096 + at..][..bytes.len()].copy_from_slice(bytes);
    std::fs::write(&image.path, all).unwrap();
}

#[test]
fn a_block_of_multi_mount_protection_is_set_free() {
    if !require(&[&NEEDS[..], &[Need::Tool("tune2fs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-b", "4096", "-O", "mmp,^metadata_csum"];
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &args);
    let path = text(&image.path);
    let tune = |words: &[&str]| run_extol(&[&["tune"], words, &[path]].concat());
    for (seq, said) in [(7_u32, "of host"), (0xE24D_4D50, "of a checker"), (0xFFFF_FFFF, "of host")]
    {
        mmp_bytes(&image, 4, &seq.to_le_bytes());
        mmp_bytes(&image, 0x10, b"host\0");
        let before = std::fs::read(&image.path).unwrap();
        for (words, why) in [
            (&["-E", "clear_mmp"][..], "needs -f"),
            (&["-f", "-L", "x", "-E", "clear_mmp"], "goes alone"),
        ] {
            let refused = tune(words);
            assert!(!refused.success() && refused.output.contains(why), "{refused:?}");
        }
        assert!(std::fs::read(&image.path).unwrap() == before);
        let done = tune(&["-f", "-E", "clear_mmp"]);
        assert!(done.success() && done.output.contains(said), "{seq:x}: {done:?}");
        // Nothing waits for another host now.
        e2fsck(&image).assert_clean("set free");
    }
    mmp_bytes(&image, 0, &[0; 4]);
    let done = tune(&["-f", "-E", "clear_mmp"]);
    assert!(done.success() && done.output.contains("damaged -> free"), "{done:?}");
    assert!(tune(&["-f", "-E", "clear_mmp"]).output.contains("nothing to do"));
    e2fsck(&image).assert_clean("made anew");
    let linux = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
    linux.unmount();
    run_ok(tool("tune2fs").args(["-O", "^mmp", path]));
    let none = tune(&["-f", "-E", "clear_mmp"]);
    assert!(!none.success() && none.output.contains("no multi-mount protection"), "{none:?}");
}
