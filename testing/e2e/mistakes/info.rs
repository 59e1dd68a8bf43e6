//! What `extol info` shows is what dumpe2fs shows.

use std::os::unix::fs::FileExt as _;

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

/// Fields that few volumes have: all of them in each of these.
#[test]
fn info_shows_the_fields_that_dumpe2fs_shows() {
    if !require(&["mke2fs", "dumpe2fs", "debugfs"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let features = "^metadata_csum,casefold,encrypt,quota,project,verity,ea_inode,orphan_file";
    for (n, code) in [(0, 0_u8), (1, 1), (2, 5), (3, 17), (4, 18), (5, 255)] {
        let args = ["-t", "ext4", "-O", features, "-E", "encoding_flags=strict"];
        let image = Image::mke2fs(scratch.path(), &format!("{n}.img"), 64 << 20, &args);
        for field in [
            "encrypt_pw_salt 01020304-0506-0708-090a-0b0c0d0e0f10",
            "snapshot_inum 7",
            "snapshot_id 8",
            "snapshot_r_blocks_count 9",
            "snapshot_list 10",
            "error_count 3",
            "first_error_time 20200101",
            "first_error_ino 12",
            "last_error_time 20210101",
            "last_error_block 13",
            "overhead_clusters 77",
        ] {
            run_ok(tool("debugfs").args(["-w", "-R", &format!("ssv {field}"), text(&image.path)]));
        }
        // debugfs has no names for the errors' numbers.
        let file = std::fs::OpenOptions::new().write(true).open(&image.path).unwrap();
        file.write_all_at(&[code, code], 1024 + 0x27A).unwrap();
        let path = text(&image.path);
        let theirs = header(&run_ok(tool("dumpe2fs").args(["-h", path]).env("TZ", "UTC")));
        assert!(theirs.iter().any(|line| line.starts_with("Encryption PW Salt")), "{theirs:#?}");
        assert_eq!(header(&extol_ok(&["info", "-h", path])), theirs, "{code}");
        let shown = extol_ok(&["info", path]);
        assert!(shown.contains("Encoding of names      utf8-12.1 strict\n"), "{shown}");
        let json = extol_ok(&["info", "--json", path]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["encoding"], "utf8-12.1");
        assert_eq!(json["encoding_flags"], serde_json::json!(["strict"]));
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
