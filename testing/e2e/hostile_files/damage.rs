//! One bad entry, inode or block hides nothing but itself.

use super::{NEEDS, extol_in_part, made_by, text};
use extol::{Ext4, FsError, MountOptions};
use extol_block::{FileDevice, OpenOptions};
use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, debugfs, require, run, run_ok, tool,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MOUNTS: [Need; 3] = [Need::Loop, Need::Fuse, Need::Kernel("ext4")];

/// Names of a directory as getdents gives them, and how it ends.
fn names(dir: &Path) -> (BTreeSet<String>, Option<i32>) {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        match entry {
            Ok(entry) => assert!(names.insert(entry.file_name().into_string().unwrap())),
            Err(error) => return (names, error.raw_os_error()),
        }
    }
    (names, None)
}

/// Files `NAME000` and so on in `/d`, of long names, so that the directory has many blocks.
fn filled(scratch: &Scratch, args: &[&str], files: usize) -> Image {
    let payload = scratch.join("payload");
    std::fs::write(&payload, "contents").unwrap();
    let mut requests = vec!["mkdir d".to_owned(), "mkdir d/sub".to_owned(), "cd d".to_owned()];
    let name = "n".repeat(60);
    requests.extend((0..files).map(|n| format!("write {} {name}{n:03}", payload.display())));
    let image = made_by(scratch, args, &requests);
    if !args.contains(&"^dir_index") {
        run_ok(tool("e2fsck").args(["-fyD"]).arg(&image.path));
    }
    image
}

fn block_of(image: &Image, index: usize) -> u64 {
    let found = debugfs(image, &format!("bmap /d {index}"));
    found.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a block of /d")
}

/// Entries in use in a block.
fn entries(image: &Image, block: u64) -> usize {
    let bytes = image.read_at(block, 1024);
    let (mut at, mut count) = (0, 0);
    while let Some([a, b, c, d, low, high, ..]) = bytes.get(at..) {
        count += usize::from([a, b, c, d] != [&0; 4]);
        at += usize::from(u16::from_le_bytes([*low, *high])).max(12);
    }
    count
}

/// An inode that is gone, and an entry with an impossible number.
#[test]
fn a_bad_entry() {
    if !require(&[&NEEDS[..], &MOUNTS].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = filled(&scratch, &["-O", "^metadata_csum,^dir_index"], 30);
    let name = "n".repeat(60);
    run_ok(tool("debugfs").args(["-w", "-R", &format!("clri /d/{name}005")]).arg(&image.path));
    let block = image.read_at(block_of(&image, 1) * 1024, 1024);
    let at = block
        .windows(63)
        .position(|w| w == format!("{name}020").as_bytes())
        .expect("in this block");
    image.write_at(block_of(&image, 1) * 1024 + at as u64 - 8, &[0xEE; 4]);

    let listed = extol_in_part(&["ls", "-lR", text(&image.path)]);
    let unknown = |number: u32| {
        let line =
            listed.output.lines().find(|line| line.ends_with(&format!(" {name}{number:03}")));
        line.is_some_and(|line| line.starts_with("??????????   ?     ?     ?          ?"))
    };
    assert!(unknown(5) && unknown(20) && !unknown(21), "{}", listed.output);
    let whole = listed
        .output
        .lines()
        .filter(|line| line.contains(&name) && line.starts_with("-rw"))
        .count();
    assert_eq!(whole, 28, "{}", listed.output);
    assert!(listed.output.contains("/d/sub:"));
    for number in ["005", "020"] {
        assert!(
            listed.stderr.contains(&format!("extol: /d/{name}{number}: corrupt volume")),
            "{}",
            listed.stderr
        );
    }

    // As the kernel shows it, or better.
    let kernel = KernelMount::mount(&image, &scratch.dir("kernel"), &["ro"]);
    let (by_kernel, _) = names(&kernel.path().join("d"));
    kernel.unmount();
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    let (by_extol, end) = names(&dir.join("d"));
    assert!(by_kernel.len() < 31 && by_extol.is_superset(&by_kernel), "{by_kernel:?} {by_extol:?}");
    assert_eq!((by_extol.len(), end), (31, Some(117)));
    let ls = run(tool("ls").arg("-l").arg(dir.join("d")), Duration::from_secs(30));
    assert_eq!(
        ls.output.lines().filter(|line| line.starts_with("-rw")).count(),
        28,
        "{}",
        ls.output
    );
    assert_eq!(
        ls.output.lines().filter(|line| line.starts_with("-?????????")).count(),
        2,
        "{}",
        ls.output
    );
    mount.unmount();

    let dest = scratch.dir("dest");
    let done = extol_in_part(&["cp", "-r", text(&image.path), "/d", text(&dest)]);
    assert_eq!(names(&dest.join("d")).0.len(), 29, "{}", done.output);
    assert!(
        done.stderr.contains(&format!("dest/d/{name}005: on the volume: corrupt volume")),
        "{}",
        done.stderr
    );

    let done = extol_in_part(&["rm", "-r", text(&image.path), "/d"]);
    assert!(
        done.stderr.contains(&format!("extol: /d/{name}020: corrupt volume")),
        "{}",
        done.stderr
    );
    let left = extol_in_part(&["ls", "-l", text(&image.path), "/d"]);
    assert_eq!(
        left.output.lines().filter(|line| line.starts_with("??????????")).count(),
        2,
        "{}",
        left.output
    );
    assert!(!left.output.contains("-rw"), "{}", left.output);
}

/// A file and a link whose blocks cannot be found.
#[test]
fn a_bad_file() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let payload = scratch.join("payload");
    std::fs::write(&payload, vec![7; 5000]).unwrap();
    let write = |name: &str| format!("write {} d/{name}", payload.display());
    let image = made_by(
        &scratch,
        &["-O", "^metadata_csum"],
        &[
            "mkdir d".into(),
            write("bad"),
            write("good"),
            format!("symlink d/link {}", "t".repeat(200)),
            "set_inode_field d/bad block[0] 0".into(),
            "set_inode_field d/link block[0] 0".into(),
        ],
    );
    let listed = extol_in_part(&["ls", "-l", text(&image.path), "/d"]);
    assert!(
        listed.output.lines().any(|line| line.starts_with("lrwxrwxrwx") && line.ends_with(" link"))
    );
    assert!(listed.stderr.starts_with("extol: /d/link: corrupt volume"), "{}", listed.stderr);
    assert_eq!(listed.output.lines().filter(|line| line.starts_with("-rw")).count(), 2);

    let dest = scratch.dir("dest");
    let done = extol_in_part(&["cp", text(&image.path), "/d", text(&dest)]);
    assert_eq!(done.stderr.lines().count(), 2, "{}", done.stderr);
    for name in ["bad", "link"] {
        let line = format!("dest/d/{name}: on the volume: corrupt volume");
        assert!(done.stderr.contains(&line), "{}", done.stderr);
    }
    assert_eq!(std::fs::read(dest.join("d/good")).unwrap(), vec![7; 5000]);
    // What could not be read is not there as zeros.
    assert_eq!(std::fs::read(dest.join("d/bad")).unwrap(), b"");
    extol_in_part(&["cat", text(&image.path), "/d/bad", "/d/good"]);
}

/// A user of the library gets so many entries, and then the error.
fn in_the_library(image: &Image, left: usize, what: &str) {
    let device = FileDevice::open(&image.path, &OpenOptions::read_only()).unwrap();
    let options = MountOptions::default().read_only();
    let fs = Ext4::open(Arc::new(device), &options).unwrap();
    let mut listed: Vec<_> = fs.read_dir("/d").unwrap().collect();
    assert!(matches!(listed.pop(), Some(Err(FsError::Corrupt { .. }))), "{what}");
    assert_eq!(listed.iter().filter(|entry| entry.is_ok()).count(), left, "{what}");
    assert_eq!(listed.len(), left, "{what}");
    let walked: Vec<_> = fs.walk("/d").unwrap().collect();
    let whole = walked.iter().filter(|item| item.is_ok()).count();
    assert_eq!((whole, walked.len()), (left + 1, left + 2), "{what}");
    fs.unmount().unwrap();
}

/// A block in the middle, of a directory with and without an index, and the index itself.
#[test]
fn a_bad_block() {
    if !require(&[&NEEDS[..], &MOUNTS].concat()) {
        return;
    }
    for (args, index) in [
        (&["-O", "metadata_csum,^dir_index"][..], 2),
        (&["-O", "^metadata_csum,^dir_index"], 2),
        (&["-O", "metadata_csum"], 2),
        (&["-O", "metadata_csum"], 0),
    ] {
        let scratch = Scratch::new();
        let image = filled(&scratch, args, 60);
        let block = block_of(&image, index) * 1024;
        let inside =
            if index == 0 && !args[1].contains("^dir_index") { 0 } else { entries(&image, block) };
        image.write_at(block + 4, &[0xFF; 40]);
        let what = format!("{args:?}, block {index} with {inside} names");
        // With the root of the index, `..` is unreadable, too.
        let left = 61 - inside;
        assert!(left >= 40, "{what}");

        let listed = extol_in_part(&["ls", "-l", text(&image.path), "/d"]);
        assert_eq!(
            listed.output.lines().filter(|l| l.starts_with(['-', 'd'])).count(),
            left,
            "{what}: {}",
            listed.output
        );
        assert!(listed.stderr.contains("extol: /d: corrupt volume"), "{what}: {}", listed.stderr);

        in_the_library(&image, left, &what);
        let kernel = KernelMount::mount(&image, &scratch.dir("kernel"), &["ro"]);
        let (by_kernel, _) = names(&kernel.path().join("d"));
        kernel.unmount();
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        let (by_extol, end) = names(&dir.join("d"));
        assert!(by_extol.is_superset(&by_kernel), "{what}: {by_kernel:?} {by_extol:?}");
        assert_eq!((by_extol.len(), end), (left, Some(117)), "{what}");
        // Once more: what the kernel keeps of the first time hides nothing.
        assert_eq!(names(&dir.join("d")), (by_extol.clone(), Some(117)), "{what}");
        for name in &by_extol {
            dir.join("d")
                .join(name)
                .symlink_metadata()
                .unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
        }
        mount.unmount();

        let dest = scratch.dir("dest");
        let done = extol_in_part(&["cp", text(&image.path), "/d", text(&dest)]);
        assert_eq!(names(&dest.join("d")).0.len(), left, "{what}: {}", done.output);
        assert!(
            done.stderr.contains("dest/d: on the volume: corrupt volume"),
            "{what}: {}",
            done.stderr
        );
        let done = extol_in_part(&["rm", "-r", text(&image.path), "/d"]);
        assert!(done.stderr.contains("extol: /d: corrupt volume"), "{what}: {}", done.stderr);
        let after = extol_in_part(&["ls", text(&image.path), "/d"]);
        assert_eq!(
            after.output.lines().filter(|l| !l.starts_with("extol: ")).count(),
            0,
            "{what}: {}",
            after.output
        );
    }
}
