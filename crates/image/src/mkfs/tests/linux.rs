//! Linux and e2fsprogs work on volumes made here: mount and write, journal devices, growing, used
//! devices.

use super::harness::{Lab, assert_clean, have, open, options, run, text};
use crate::mkfs::{JournalDevice, MkfsOptions, mkfs};
use extol_block::{BlockDevice, SharedDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn image(lab: &Lab, name: &str, size: u64) -> PathBuf {
    let path = lab.path(name);
    let _ = std::fs::remove_file(&path);
    std::fs::File::create(&path).and_then(|f| f.set_len(size)).expect("image");
    path
}

/// A loop device, detached (and unmounted) when dropped.
pub(crate) struct Loop {
    pub(crate) node: String,
    mounted: Option<PathBuf>,
}

impl Loop {
    pub(crate) fn attach(image: &Path) -> Option<Self> {
        let mut last = None;
        // Two processes may be given the same free device, and one of them then fails: ask again.
        for _ in 0..20 {
            match run("losetup", &["--show", "-f", text(image)]) {
                Ok((0, node)) => return Some(Self { node: node.trim().to_owned(), mounted: None }),
                other => last = Some(other),
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        println!("SKIP: no loop device ({last:?}); this test needs root and losetup");
        None
    }

    /// False, with a line that says so, if this machine cannot mount.
    pub(crate) fn mount(&mut self, at: &Path, extra: &str) -> bool {
        std::fs::create_dir_all(at).expect("mount point");
        let (code, words) =
            run("mount", &["-t", "ext4", "-o", extra, &self.node, text(at)]).expect("mount");
        if words.contains("unknown filesystem") || words.contains("permission denied") {
            println!("SKIP: {words}");
            return false;
        }
        assert_eq!(
            code,
            0,
            "mount: {words} {}",
            run("dmesg", &[]).map(|d| tail(&d.1)).unwrap_or_default()
        );
        self.mounted = Some(at.to_owned());
        true
    }

    pub(crate) fn unmount(&mut self) {
        if let Some(at) = self.mounted.take() {
            // A process that another test starts just now may hold a file of the mount for a
            // moment.
            extol_testkit::unmount(&at);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(at) = self.mounted.take() {
            let _ = run("umount", &["-l", text(&at)]);
        }
        let _ = run("losetup", &["-d", &self.node]);
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Some of everything: many files, a large one, links, attributes, a deep directory.
fn write_files(root: &Path) {
    for d in 0..20 {
        let dir = root.join(format!("dir{d}"));
        std::fs::create_dir(&dir).expect("mkdir");
        for f in 0..40 {
            std::fs::write(dir.join(format!("file{f}")), vec![b'x'; f * 100]).expect("write");
        }
    }
    std::fs::write(root.join("large"), vec![7; 3 << 20]).expect("write");
    std::os::unix::fs::symlink("large", root.join("link")).expect("symlink");
    std::fs::hard_link(root.join("large"), root.join("hard")).expect("link");
    std::fs::create_dir_all(root.join("a/b/c/d/e/f")).expect("mkdir -p");
    for d in 0..10 {
        std::fs::remove_dir_all(root.join(format!("dir{d}"))).expect("rm -r");
    }
    assert!(root.join("lost+found").is_dir());
}

#[test]
fn linux_mounts_and_writes() {
    if !have("e2fsck") {
        return;
    }
    let cases = [
        (64, ""),
        (600, ""),
        (64, "-t ext2"),
        (64, "-t ext3"),
        (64, "-b 2048"),
        (64, "-b 4096"),
        (64, "-I 128"),
        (64, "-I 512"),
        (64, "-O ^metadata_csum,uninit_bg"),
        (64, "-O ^flex_bg"),
        (64, "-O ^64bit"),
        (64, "-O meta_bg,^resize_inode"),
        (64, "-O sparse_super2"),
        (64, "-O inline_data"),
        (64, "-O fast_commit"),
        (64, "-O ^has_journal"),
        (64, "-O large_dir,ea_inode"),
        (64, "-E packed_meta_blocks=1"),
        (64, "-r 0 -t ext2 -O none"),
        (64, "-J size=8"),
        (64, "-O bigalloc"),
        (64, "-b 1024 -O bigalloc -C 16384"),
        (200, "-b 4096 -O bigalloc,orphan_file,^flex_bg -C 65536"),
        (300, "-b 1024 -O bigalloc,inline_data -C 2048"),
    ];
    let lab = Lab::new();
    for (mib, args) in cases {
        let path = image(&lab, "mounted.img", mib << 20);
        mkfs(&open(&path), &options(args).expect("options"), &mut |_| {}).expect("mkfs");
        assert_clean(&path, args);
        let Some(mut disk) = Loop::attach(&path) else { return };
        if !disk.mount(&lab.path("mnt"), "rw") {
            return;
        }
        write_files(&lab.path("mnt"));
        disk.unmount();
        drop(disk);
        assert_clean(&path, &format!("{args}, after Linux wrote to it"));
    }
}

/// Nothing of what was on the device before may show through: no discard, inode tables and journal
/// left as they are.
#[test]
fn used_devices_are_no_problem() {
    if !have("e2fsck") {
        return;
    }
    let lab = Lab::new();
    for (byte, args) in [
        (0xA5, "-E nodiscard"),
        (0xFF, "-E nodiscard,lazy_journal_init=1"),
        (0x5A, "-b 4096 -E nodiscard,lazy_itable_init=0"),
        (0xA5, "-t ext3 -E nodiscard"),
        (0xFF, "-t ext2 -E nodiscard"),
        (0xA5, "-O ^metadata_csum,uninit_bg -E nodiscard"),
        (0xFF, "-O fast_commit,inline_data -E nodiscard,lazy_journal_init=1"),
        (0xA5, "-O ^flex_bg,meta_bg,^resize_inode -E nodiscard"),
    ] {
        let path = image(&lab, "used.img", 64 << 20);
        let device = open(&path);
        device.write_at(&vec![byte; 64 << 20], 0).expect("fill");
        mkfs(&device, &options(args).expect("options"), &mut |_| {}).expect("mkfs");
        drop(device);
        assert_clean(&path, args);
        let Some(mut disk) = Loop::attach(&path) else { continue };
        if disk.mount(&lab.path("mnt"), "init_itable=0") {
            write_files(&lab.path("mnt"));
            disk.unmount();
        }
        drop(disk);
        assert_clean(&path, &format!("{args}, after Linux wrote to it"));
    }
}

#[test]
fn journal_devices() {
    if !have("e2fsck") {
        return;
    }
    let lab = Lab::new();
    for (block_size, with_csum) in [(1024, true), (4096, true), (4096, false)] {
        let journal = image(&lab, "journal.img", 16 << 20);
        let args = format!(
            "-b {block_size} -O journal_dev{}",
            if with_csum { "" } else { ",^metadata_csum" }
        );
        let summary =
            mkfs(&open(&journal), &options(&args).expect("options"), &mut |_| {}).expect("mkfs");
        assert!(summary.is_journal && summary.features.contains(&"journal_dev"));
        let (code, words) = run("dumpe2fs", &[text(&journal)]).expect("dumpe2fs");
        assert!(code == 0 && words.contains("Journal number of users:  0"), "{words}");

        let volume = image(&lab, "volume.img", 64 << 20);
        let device: SharedDevice = Arc::new(open(&journal));
        // The block size comes from the journal.
        let mut with = MkfsOptions::default();
        with.journal.device = Some(JournalDevice { device, rdev: 0 });
        let made = mkfs(&open(&volume), &with, &mut |_| {}).expect("mkfs");
        assert_eq!(made.block_size, block_size);
        assert!(made.journal_blocks == 0 && made.features.contains(&"has_journal"));
        let (_, words) = run("dumpe2fs", &[text(&journal)]).expect("dumpe2fs");
        assert!(
            words.contains(&format!("Journal users:            {}", made.uuid_text())),
            "{words}"
        );
        let (code, words) =
            run("e2fsck", &["-fn", "-j", text(&journal), text(&volume)]).expect("e2fsck");
        assert_eq!(code, 0, "{words}");

        let other_size = MkfsOptions { block_size: Some(2048), ..with.clone() };
        let error =
            mkfs(&open(&volume), &other_size, &mut |_| {}).expect_err("block size").to_string();
        assert!(error.contains("not 2048"), "{error}");
        // A second volume may not have it.
        let other = image(&lab, "other.img", 64 << 20);
        let error = mkfs(&open(&other), &with, &mut |_| {}).expect_err("in use").to_string();
        assert!(error.contains("another volume uses it"), "{error}");

        let (Some(journal_disk), Some(mut disk)) = (Loop::attach(&journal), Loop::attach(&volume))
        else {
            return;
        };
        if disk.mount(&lab.path("mnt"), &format!("journal_path={}", journal_disk.node)) {
            write_files(&lab.path("mnt"));
            disk.unmount();
        }
        drop((disk, journal_disk));
        let (code, words) =
            run("e2fsck", &["-fn", "-j", text(&journal), text(&volume)]).expect("e2fsck");
        assert_eq!(code, 0, "{words}");
    }
    let wrong = image(&lab, "wrong.img", 16 << 20);
    let mut with = MkfsOptions::default();
    with.journal.device = Some(JournalDevice { device: Arc::new(open(&wrong)), rdev: 0 });
    let volume = open(&image(&lab, "volume.img", 64 << 20));
    assert!(mkfs(&volume, &with, &mut |_| {}).is_err(), "nothing there");
    mkfs(&open(&wrong), &MkfsOptions::default(), &mut |_| {}).expect("mkfs");
    let error = mkfs(&volume, &with, &mut |_| {}).expect_err("a file system").to_string();
    assert!(error.contains("it holds a file system"), "{error}");
}

#[test]
fn volumes_can_grow_and_shrink() {
    if !["e2fsck", "resize2fs"].iter().all(|p| have(p)) {
        return;
    }
    let lab = Lab::new();
    for args in
        ["", "-t ext3", "-t ext2", "-O meta_bg,^resize_inode", "-O sparse_super2", "-b 4096"]
    {
        let path = image(&lab, "growing.img", 64 << 20);
        mkfs(&open(&path), &options(args).expect("options"), &mut |_| {}).expect("mkfs");
        for size in ["200M", "40M"] {
            if size == "200M" {
                std::fs::File::options()
                    .write(true)
                    .open(&path)
                    .and_then(|f| f.set_len(200 << 20))
                    .expect("grow");
            }
            let (code, words) = run("resize2fs", &["-f", text(&path), size]).expect("resize2fs");
            assert_eq!(code, 0, "{args} to {size}: {words}");
            assert_clean(&path, &format!("{args}, resized to {size}"));
        }
    }
    // While Linux has it mounted.
    let path = image(&lab, "growing.img", 64 << 20);
    mkfs(&open(&path), &MkfsOptions::default(), &mut |_| {}).expect("mkfs");
    let Some(mut disk) = Loop::attach(&path) else { return };
    if disk.mount(&lab.path("mnt"), "rw") {
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|f| f.set_len(200 << 20))
            .expect("grow");
        run("losetup", &["-c", &disk.node]).expect("losetup");
        let (code, words) = run("resize2fs", &[&disk.node]).expect("resize2fs");
        if words.contains("Permission denied") {
            println!("SKIP: resizing a mounted volume is not allowed here");
            return;
        }
        assert_eq!(code, 0, "{words}");
        write_files(&lab.path("mnt"));
        disk.unmount();
        drop(disk);
        assert_clean(&path, "grown while mounted");
    }
}
