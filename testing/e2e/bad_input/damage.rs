//! Bits that flip on the volume.
//!
//! One base volume with something of everything; each case flips a bit or fills a few bytes in one
//! structure of a copy, mounts it, walks everything, and tries to change things. With metadata
//! checksums the caller may see only EUCLEAN and EIO (and EROFS and ENOSPC as their consequences).
//! Without them wrong bytes can look right, so there only panics, hangs and deaths of the daemon
//! count.

use super::text;
use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, Shutdown, TreeSpec, debugfs, make_tree, require,
    run_ok, shutdown, tool,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 1024;

/// Where things lie on the base volume, as byte ranges.
struct Places {
    ranges: Vec<(&'static str, u64, u64)>,
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect()
}

impl Places {
    fn of(image: &Image) -> Self {
        let mut ranges = vec![("superblock", 1024, 1024), ("descriptors", 2 * BLOCK, 512)];
        let dump = run_ok(tool("dumpe2fs").arg(&image.path));
        // The first group's line of each kind is enough: the groups are alike.
        for (what, key) in [
            ("block bitmap", "Block bitmap at "),
            ("inode bitmap", "Inode bitmap at "),
            ("inode table", "Inode table at "),
        ] {
            let line = dump.lines().find(|l| l.contains(key)).expect("a group in dumpe2fs");
            let from = numbers(line.split(key).nth(1).unwrap())[0];
            let blocks = if what == "inode table" { 100 } else { 4 };
            ranges.push((what, from * BLOCK, blocks * BLOCK));
        }
        for (what, path) in [
            ("root directory", "/"),
            ("hash tree", "/wide"),
            ("directory", "/d00"),
            ("journal", "<8>"),
        ] {
            let blocks =
                numbers(debugfs(image, &format!("blocks {path}")).lines().last().unwrap_or(""));
            for block in blocks.iter().take(3) {
                ranges.push((what, block * BLOCK, BLOCK));
            }
        }
        let stat = debugfs(image, "stat /sparse/comb");
        let tree = stat.split("(ETB").skip(1).filter_map(|t| numbers(t).get(1).copied());
        ranges.extend(tree.map(|block| ("extent tree", block * BLOCK, BLOCK)));
        let xattr = debugfs(image, "stat /xattr/large");
        if let Some(line) = xattr.lines().find(|l| l.contains("File ACL:")) {
            let block = numbers(line.split("File ACL:").nth(1).unwrap())[0];
            ranges.push(("attribute block", block * BLOCK, 128));
        }
        assert!(ranges.iter().any(|(what, ..)| *what == "extent tree"), "{stat}");
        Self { ranges }
    }
}

/// A volume in use: a tree, and a log with transactions in it.
fn base(scratch: &Scratch, features: &str) -> Image {
    let image = Image::mke2fs(
        scratch.path(),
        "base.img",
        48 << 20,
        &["-t", "ext4", "-b", "1024", "-O", features],
    );
    let mount = KernelMount::mount(&image, &scratch.dir("base"), &["noinit_itable"]);
    make_tree(
        mount.path(),
        &TreeSpec { files: 60, wide: 400, large: 1 << 20, ..TreeSpec::small(9) },
    );
    mount.unmount();
    image
}

/// Walks everything and changes a little; the errnos met.
fn use_it(dir: &Path) -> Vec<(String, i32)> {
    let mut errors = Vec::new();
    let mut note = |what: &str, path: &Path, e: &std::io::Error| {
        errors.push((format!("{what} {}", path.display()), e.raw_os_error().unwrap_or(0)));
    };
    let mut dirs = vec![dir.to_owned()];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        let entries = match dir.read_dir() {
            Ok(entries) => entries,
            Err(e) => {
                note("readdir", &dir, &e);
                continue;
            }
        };
        for entry in entries {
            seen += 1;
            if seen > 20_000 {
                // A damaged directory may show itself as its own child without end.
                return errors;
            }
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(e) => {
                    note("readdir", &dir, &e);
                    break;
                }
            };
            match path.symlink_metadata() {
                Err(e) => note("lstat", &path, &e),
                Ok(meta) if meta.is_dir() && path.components().count() < 100 => dirs.push(path),
                Ok(meta) if meta.is_symlink() => {
                    if let Err(e) = std::fs::read_link(&path) {
                        note("readlink", &path, &e);
                    }
                }
                // Huge sizes are possible now: read the ends only.
                Ok(meta) if meta.is_file() => {
                    match File::open(&path) {
                        Err(e) => note("open", &path, &e),
                        Ok(file) => {
                            let mut buffer = vec![0; 65_536];
                            for at in [0, meta.len() / 2, meta.len().saturating_sub(4096)] {
                                if let Err(e) = file.read_at(&mut buffer, at) {
                                    note("read", &path, &e);
                                }
                            }
                        }
                    }
                    let mut list = vec![0; 4096];
                    if let Err(e) = rustix::fs::llistxattr(&path, &mut list[..]) {
                        note("listxattr", &path, &e.into());
                    }
                }
                Ok(_) => {}
            }
        }
    }
    let mut try_it = |what: &str, path: &Path, done: std::io::Result<()>| {
        if let Err(e) = done {
            note(what, path, &e);
        }
    };
    for n in 0..12 {
        let path = dir.join(format!("new{n}"));
        try_it(
            "create",
            &path,
            File::create(&path)
                .and_then(|mut f| f.write_all(&vec![n; 20_000]).and_then(|()| f.sync_all())),
        );
        let path = dir.join(format!("newdir{n}"));
        try_it("mkdir", &path, std::fs::create_dir(&path));
    }
    for name in [
        "large",
        "d00",
        "wide/entry-00003",
        "sparse/comb",
        "links/first",
        "xattr/large",
        "new1",
        "newdir1",
    ] {
        let path = dir.join(name);
        if let Ok(meta) = path.symlink_metadata() {
            if meta.is_dir() {
                let _ = std::fs::remove_dir_all(&path);
            } else {
                try_it(
                    "truncate",
                    &path,
                    File::options().write(true).open(&path).and_then(|f| f.set_len(1000)),
                );
                try_it("unlink", &path, std::fs::remove_file(&path));
            }
        }
    }
    errors
}

/// One damaged copy: refused with one line, or mounted and used without harm to the daemon.
fn one_case(scratch: &Scratch, image: &Image, strict: bool, what: &str) {
    let dir = scratch.dir("mnt");
    let mount = match ExtolMount::try_start(&image.path, &dir, &[]) {
        Ok(mount) => mount,
        Err(e) => {
            assert_eq!(e.code, Some(32), "{what}: {}", e.output);
            assert!(!e.output.contains("panicked"), "{what}: {}", e.output);
            let last = e.output.lines().last().unwrap_or("");
            assert!(
                last.starts_with("extol: ") && last.contains(text(&image.path)),
                "{what}: {}",
                e.output
            );
            return;
        }
    };
    let errors = use_it(&dir);
    assert!(
        mount.pid().is_some_and(|p| Path::new(&format!("/proc/{p}/stat")).exists()),
        "{what}: the daemon is gone"
    );
    let code = mount.end();
    assert!(code.is_some(), "{what}: the daemon died of a signal");
    if strict {
        // EUCLEAN, EIO, EROFS, ENOSPC.
        let strange: Vec<_> =
            errors.iter().filter(|(_, e)| ![117, 5, 30, 28].contains(e)).collect();
        assert!(strange.is_empty(), "{what}: {strange:?}");
    }
}

fn flips(features: &str, strict: bool, seed: u64) {
    if !require(&[
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("debugfs"),
    ]) {
        return;
    }
    let scratch = Scratch::new();
    let base = base(&scratch, features);
    let places = Places::of(&base);
    let mut rng = SmallRng::seed_from_u64(seed);
    let rounds = if std::env::var("EXTOL_LONG").is_ok() { 100 } else { 4 };
    for round in 0..rounds {
        for (what, start, len) in &places.ranges {
            let copy = base.copy_as("damaged.img");
            let at = start + rng.random_range(0..*len);
            let case = if rng.random_range(0..3) == 0 {
                let value = if rng.random() { 0xff } else { 0 };
                copy.write_at(at, &[value; 16]);
                format!("{what}: 16 bytes of {value:#x} at {at}, round {round}")
            } else {
                let bit = rng.random_range(0..8);
                copy.flip_bit(at, bit);
                format!("{what}: bit {bit} of byte {at}, round {round}")
            };
            one_case(&scratch, &copy, strict, &case);
        }
    }
}

#[test]
fn flipped_bits_with_checksums() {
    flips("metadata_csum", true, 11);
}

#[test]
fn flipped_bits_without_checksums() {
    flips("^metadata_csum", false, 12);
}

/// Damage in a log that must be replayed.
#[test]
fn flipped_bits_in_a_dirty_log() {
    if !require(&[
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("mke2fs"),
        Need::Tool("debugfs"),
    ]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(
        scratch.path(),
        "base.img",
        48 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=2"],
    );
    let dir = scratch.dir("base");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    for n in 0..40 {
        std::fs::write(dir.join(format!("f{n}")), b"x").unwrap();
    }
    File::open(&dir).unwrap().sync_all().unwrap();
    shutdown(&dir, Shutdown::FlushLog);
    mount.unmount();
    let first = numbers(debugfs(&image, "blocks <8>").lines().last().unwrap_or(""))[0];
    let mut rng = SmallRng::seed_from_u64(13);
    for round in 0..if std::env::var("EXTOL_LONG").is_ok() { 1000 } else { 40 } {
        let copy = image.copy_as("damaged.img");
        // The journal's superblock, and the first blocks of the log.
        let at = first * BLOCK
            + if round % 4 == 0 {
                rng.random_range(0..128)
            } else {
                rng.random_range(1024..30 * 1024)
            };
        let bit = rng.random_range(0..8);
        copy.flip_bit(at, bit);
        one_case(&scratch, &copy, false, &format!("log: bit {bit} of byte {at}"));
    }
}
