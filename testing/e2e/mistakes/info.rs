//! What `extol info` shows is what dumpe2fs shows.

use extol_testkit::{Image, KernelMount, Need, Scratch, extol_ok, require, run_ok, text, tool};

/// What dumpe2fs shows of features that Extol only reads, and of a journal device.
#[test]
fn info_shows_what_dumpe2fs_shows() {
    let tools = ["mke2fs", "dumpe2fs"].map(Need::Tool);
    if !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    for (n, args) in [
        &["-t", "ext4", "-O", "casefold"][..],
        &["-t", "ext4", "-O", "encrypt,verity,ea_inode,large_dir,stable_inodes"],
        &["-t", "ext4", "-O", "bigalloc,quota,project", "-C", "65536"],
        &["-t", "ext4", "-O", "64bit,meta_bg,^resize_inode,^has_journal,uninit_bg,^metadata_csum"],
        &["-O", "journal_dev"],
        &["-O", "journal_dev", "-b", "4096"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = Image::mke2fs(scratch.path(), &format!("{n}.img"), 64 << 20, args);
        let path = text(&image.path);
        let theirs = header(&run_ok(tool("dumpe2fs").args(["-h", path]).env("TZ", "UTC")));
        assert_eq!(header(&extol_ok(&["info", "-h", path])), theirs, "{args:?}");
    }
}

/// The lines of `dumpe2fs -h`.
fn header(text: &str) -> Vec<String> {
    let kept = |line: &&str| !line.trim().is_empty() && !line.starts_with("dumpe2fs ");
    text.lines().filter(kept).map(|line| line.trim_end().to_owned()).collect()
}

/// A journal that Linux has used has checksums.
#[test]
fn info_shows_the_journal_as_dumpe2fs() {
    let needs = [
        Need::Root,
        Need::Loop,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("dumpe2fs"),
        Need::Tool("tune2fs"),
    ];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    for (n, args) in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "fast_commit"],
        &["-t", "ext4", "-O", "^metadata_csum", "-J", "size=4"],
        &["-t", "ext3"],
        &["-t", "ext4", "-b", "1024", "-E", "root_owner=1:2"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = Image::mke2fs(scratch.path(), &format!("{n}.img"), 64 << 20, args);
        let path = text(&image.path);
        let dir = scratch.dir("mnt");
        let options: &[&str] = if n == 2 { &["journal_checksum"] } else { &[] };
        let mount = KernelMount::mount(&image, &dir, options);
        std::fs::write(dir.join("file"), "text").unwrap();
        mount.unmount();
        run_ok(tool("tune2fs").args(["-u", "1", "-g", "2", path]));
        let theirs = header(&run_ok(tool("dumpe2fs").args(["-h", path]).env("TZ", "UTC")));
        let ours = header(&extol_ok(&["info", "-h", path]));
        assert_eq!(ours, theirs, "{args:?}");
        let has_checksum = ours.iter().any(|line| line.starts_with("Journal checksum:"));
        // (ext3 has none, and without metadata_csum a log has those of old.)
        assert_eq!(has_checksum, n != 2 && n != 3, "{args:?}: {ours:#?}");
    }
}
