//! Volumes become smaller.

use super::*;

/// A volume with files in all parts of it: what is in front of them is removed.
fn filled(scratch: &Scratch, mib: u64, options: &[&str]) -> (Image, Tree) {
    let image = Image::mke2fs(scratch.path(), "a.img", mib << 20, options);
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &[]);
    let pad = mount.path().join("pad");
    run_ok(
        tool("dd")
            .args(["if=/dev/zero", "bs=1M"])
            .arg(format!("count={}", mib / 2))
            .arg(format!("of={}", pad.display())),
    );
    run_ok(tool("sync").arg("-f").arg(mount.path()));
    make_tree(mount.path(), &TreeSpec::small(11));
    run_ok(tool("sync").arg("-f").arg(mount.path()));
    std::fs::remove_file(&pad).expect("remove");
    mount.unmount();
    // What is on the disk: what Linux has in memory of an ext3 file with holes may differ.
    let mount = KernelMount::mount(&image, &dir, &[]);
    let tree = Tree::of(mount.path());
    mount.unmount();
    (image, tree)
}

/// Sound for e2fsck, and the same for Linux, which fills it.
fn check(scratch: &Scratch, image: &Image, before: &Tree, what: &str) {
    e2fsck(image).assert_clean(what);
    let mount = KernelMount::mount(image, &scratch.dir("mnt"), &[]);
    before.assert_same(&Tree::of(mount.path()), "before", what);
    let root = std::fs::File::open(mount.path()).expect("open");
    let time = root.metadata().and_then(|about| about.modified()).expect("a time");
    fill(&mount);
    std::fs::remove_file(mount.path().join("big")).expect("remove");
    root.set_modified(time).expect("set a time");
    drop(root);
    mount.unmount();
    e2fsck(image).assert_clean(&format!("{what}, was full"));
}

const SMALLER: [&[&str]; 8] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "meta_bg,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "sparse_super2,orphan_file"],
    &["-t", "ext4", "-b", "2048", "-J", "size=8", "-O", "inline_data,^64bit"],
    &["-t", "ext3", "-b", "1024", "-J", "size=4"],
    // (A journal that lies behind the new end does not move if that takes more than four pieces.)
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=4,location=1000",
        "-O",
        "^flex_bg",
        "-E",
        "stride=700",
    ],
    &["-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^metadata_csum,uninit_bg"],
];

/// Smaller, larger by resize2fs, and smaller again: nothing is lost.
#[test]
fn smaller_and_larger() {
    if !require(&NEEDS) {
        return;
    }
    let long = std::env::var_os("EXTOL_LONG").is_some();
    for (nr, options) in SMALLER.iter().enumerate() {
        let scratch = Scratch::new();
        let (image, before) = filled(&scratch, 300, options);
        let blocks: u64 = if options.contains(&"2048") { 512 } else { 1024 };
        // The last one cuts a group between its metadata.
        let sizes: &[u64] = if long {
            &[170_000, 131_073, 100_000, 65_537, 50_000, 40_961, 36_000, 34_769, 33_500]
        } else {
            &[[100_000, 131_073, 65_537, 50_000][nr % 4], 34_769]
        };
        for size in sizes {
            let what = format!("{options:?} to {size}");
            let size = size * blocks / 1024;
            let said = run_ok(&mut resize(&image.path, &size.to_string()));
            assert!(said.contains(": shrank from "), "{what}: {said}");
            let bytes = std::fs::metadata(&image.path).expect("stat").len();
            assert_eq!(bytes, self::blocks(&image) * (1 << 20) / blocks, "{what}");
            assert!(self::blocks(&image) <= size, "{what}");
            check(&scratch, &image, &before, &what);
            if long {
                run_ok(tool("resize2fs").arg("-f").arg(&image.path).arg("250M"));
                check(&scratch, &image, &before, &format!("{what}, larger"));
            }
        }
        run_ok(tool("resize2fs").arg("-f").arg(&image.path).arg("120M"));
        check(&scratch, &image, &before, &format!("{options:?}, larger"));
        run_ok(&mut resize(&image.path, "200M"));
        run_ok(&mut resize(&image.path, "60M"));
        check(&scratch, &image, &before, &format!("{options:?}, the third time"));
    }
}

#[derive(serde::Deserialize)]
struct Smallest {
    minimum: u64,
    minimum_bytes: u64,
}

/// As small as resize2fs thinks is possible, or smaller; and what is said is what is made.
#[test]
fn minimum_is_that_of_resize2fs_or_less() {
    if !require(&NEEDS) {
        return;
    }
    // (Blocks of 2 KiB: resize2fs names 12 % fewer blocks.)
    for options in SMALLER.iter().filter(|options| !options.contains(&"2048")) {
        let what = format!("{options:?}");
        let scratch = Scratch::new();
        let (image, before) = filled(&scratch, 200, options);
        let untouched = std::fs::read(&image.path).expect("read");
        let said = run_ok(extol().args(["resize", "--print-minimum", "--json"]).arg(&image.path));
        let said: Smallest = serde_json::from_str(&said).expect("JSON");
        assert!(std::fs::read(&image.path).expect("read") == untouched, "{what}: was changed");
        let theirs = run_ok(tool("resize2fs").arg("-P").arg(&image.path));
        let theirs = theirs.lines().find_map(|line| line.split_once(": ")?.1.trim().parse().ok());
        let theirs: u64 = theirs.expect("a number");
        assert!(said.minimum <= theirs, "{what}: {} of {theirs} blocks", said.minimum);
        run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
        assert_eq!(blocks(&image), said.minimum, "{what}");
        assert_eq!(image.size(), said.minimum_bytes, "{what}");
        e2fsck(&image).assert_clean(&what);
        let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &["ro"]);
        before.assert_same(&Tree::of(mount.path()), "before", &what);
        mount.unmount();
        let again = run_ok(extol().args(["resize", "--minimum"]).arg(&image.path));
        assert!(again.contains("nothing to do"), "{what}: {again}");
    }
}

/// What cannot be written to is measured, too: a file of another user, and formats that are read.
#[test]
fn minimum_needs_no_write_access() {
    let needs = [Need::Root, Need::Tool("mke2fs"), Need::Tool("qemu-img"), Need::Tool("gzip")];
    if !require(&[&needs[..], &[Need::Tool("setpriv")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 60 << 20, &["-t", "ext4", "-b", "1024"]);
    make_files(&image);
    let raw = image.path.clone();
    let in_dir = |name: &str| scratch.path().join(name);
    let (qcow2, vmdk, gz) = (in_dir("a.qcow2"), in_dir("a.vmdk"), in_dir("a.img.gz"));
    for (format, to) in [("qcow2", &qcow2), ("vmdk", &vmdk)] {
        run_ok(tool("qemu-img").args(["convert", "-f", "raw", "-O", format]).args([&raw, to]));
    }
    run_ok(tool("gzip").args(["-k", "-1"]).arg(&raw));
    let mut found = std::collections::BTreeSet::new();
    run_ok(tool("chmod").arg("0755").arg(scratch.path()));
    for path in [&raw, &qcow2, &vmdk, &gz] {
        let before = std::fs::read(path).expect("read");
        run_ok(tool("chmod").arg("0444").arg(path));
        let mut command = as_unprivileged(Path::new(extol().get_program()));
        command.args(["resize", "-P", "--json"]).arg(path);
        let said: Smallest = serde_json::from_str(&run_ok(&mut command)).expect("JSON");
        found.insert(said.minimum);
        assert!(std::fs::read(path).expect("read") == before, "{path:?} was changed");
    }
    assert_eq!(found.len(), 1, "{found:?}");
    run_ok(extol().args(["resize", "-M"]).arg(&raw));
    assert_eq!(found.first(), Some(&blocks(&image)));
}

/// A bitmap or table that another tool has put behind the new end moves with the rest.
#[test]
fn group_metadata_moves() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024", "-G", "4", "-J", "size=4"];
    let image = Image::mke2fs(scratch.path(), "a.img", 120 << 20, &options);
    make_files(&image);
    let group = |nr: u32| -> Vec<u64> {
        let text = run_ok(tool("dumpe2fs").arg(&image.path));
        let from = text.find(&format!("\nGroup {nr}:")).expect("a group");
        let part = &text[from..];
        ["Block bitmap at ", "Inode bitmap at ", "Inode table at "]
            .iter()
            .map(|name| {
                let at = part.find(name).expect("a place") + name.len();
                let end = part[at..].find(|c: char| !c.is_ascii_digit()).expect("an end");
                part[at..at + end].parse().expect("a number")
            })
            .collect()
    };
    let bytes = std::fs::read(&image.path).expect("read");
    let mut file = std::fs::File::options().write(true).open(&image.path).expect("open");
    let mut commands = String::new();
    for (nr, base) in [(0, 90_001), (1, 100_001)] {
        let old = group(nr);
        let names = ["block_bitmap", "inode_bitmap", "inode_table"];
        for ((from, name), (to, len)) in
            old.iter().zip(names).zip([(base, 1), (base + 1, 1), (base + 2, 512)])
        {
            use std::os::unix::fs::FileExt as _;
            let at = (*from as usize) << 10;
            file.write_all_at(&bytes[at..at + (len << 10)], (to as u64) << 10).expect("write");
            commands += &format!("freeb {from} {len}\nsetb {to} {len}\nset_bg {nr} {name} {to}\n");
        }
        commands += &format!("set_bg {nr} checksum calc\n");
    }
    std::io::Write::flush(&mut file).expect("flush");
    let script = scratch.path().join("script");
    std::fs::write(&script, commands).expect("write");
    run_ok(tool("debugfs").arg("-w").arg("-f").arg(&script).arg(&image.path));
    drop(e2fsck_fix(&image));
    e2fsck(&image).assert_clean("crafted");
    assert_eq!(group(1), [100_001, 100_002, 100_003]);
    run_ok(&mut resize(&image.path, "60M"));
    e2fsck(&image).assert_clean("moved");
    assert!(group(0).iter().chain(&group(1)).all(|at| *at < 61_440));
    assert_eq!(run_ok(extol().args(["cat"]).arg(&image.path).arg("/file")), "contents");
}

/// Killed at some moment, the volume is sound, of the old or the new size.
#[test]
fn killed_while_it_shrinks() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=4"];
    let (image, before) = filled(&scratch, 300, &options);
    let saved = scratch.path().join("saved");
    let copy = |from: &Path, to: &Path| {
        run_ok(tool("cp").arg("--sparse=always").arg(from).arg(to));
    };
    copy(&image.path, &saved);
    // A run that is left alone shows when the others are to be killed.
    let began = Instant::now();
    run_ok(&mut resize(&image.path, "40M"));
    let takes = began.elapsed();
    let mut states = std::collections::BTreeSet::new();
    for part in 1..=12 {
        copy(&saved, &image.path);
        let mut child =
            resize(&image.path, "40M").stdout(std::process::Stdio::null()).spawn().expect("start");
        std::thread::sleep(takes * part / 12);
        child.kill().expect("kill");
        child.wait().expect("wait");
        let what = format!("killed after {part} of 12 parts of {takes:?}");
        e2fsck_fix(&image).assert_only_recovered(&what);
        e2fsck(&image).assert_clean(&what);
        let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
        before.assert_same(&Tree::of(mount.path()), "before", &what);
        mount.unmount();
        states.insert((blocks(&image), debugfs(&image, "stat <12>")));
        run_ok(&mut resize(&image.path, "40M"));
        assert_eq!(image.size(), 40 << 20, "{what}");
    }
    assert!(states.len() > 1, "all were killed too early, or too late");
}
