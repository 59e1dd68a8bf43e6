//! `extol defrag`: files of a mount and of a volume that is not mounted become one piece. debugfs
//! says how they lie, e2fsck that the volume is sound.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, debugfs, e2fsck, extol_ok, extol_path, refused, require, run,
    run_extol, sync_volume, text, tool,
};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("debugfs"), Need::Tool("e2fsck")];

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed ^ (at / 1024) as u8 ^ (at % 251) as u8).collect()
}

/// Makes files in pieces: only the places of every second small file are free, until they are
/// there.
fn make_pieces(dir: &Path) {
    let mut small = Vec::new();
    for len in [8192, 1024] {
        for nr in 0.. {
            let path = dir.join(format!("small {len} {nr}"));
            let made =
                fs::write(&path, vec![1; len]).and_then(|()| fs::File::open(&path)?.sync_all());
            if made.is_err() {
                let _ = fs::remove_file(&path);
                break;
            }
            small.push(path);
        }
    }
    small.iter().step_by(2).for_each(|path| fs::remove_file(path).unwrap());
    sync(dir);
    fs::create_dir(dir.join("sub")).unwrap();
    for (name, seed, len) in
        [("one", 3, 200_000), ("sub/two", 5, 150_000), ("sub/three", 7, 90_000)]
    {
        fs::write(dir.join(name), bytes(seed, len)).unwrap();
        fs::File::open(dir.join(name)).unwrap().sync_all().unwrap();
    }
    small.iter().skip(1).step_by(2).for_each(|path| fs::remove_file(path).unwrap());
    fs::hard_link(dir.join("sub/three"), dir.join("sub/three again")).unwrap();
    fs::write(dir.join("whole"), b"a few bytes").unwrap();
    sync(dir);
}

fn sync(dir: &Path) {
    sync_volume(dir).unwrap();
}

/// Extents of a file, as debugfs prints them.
fn extents(image: &Image, path: &str) -> usize {
    let shown = debugfs(image, &format!("ex \"{path}\""));
    // (Each line begins with its level and the depth of the tree.)
    let is_leaf = |line: &&str| {
        let (level, rest) = line.split_once('/').unwrap_or_default();
        let depth = rest.split_whitespace().next().unwrap_or_default();
        level.trim().parse::<u32>().is_ok_and(|level| depth.parse() == Ok(level))
    };
    shown.lines().filter(is_leaf).count()
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&extol_ok(args)).unwrap()
}

#[test]
fn files_become_one_piece() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let args = ["-t", "ext4", "-b", "1024", "-m", "0", "-N", "20000"];
    let image = Image::mke2fs(scratch.path(), "disk.img", 24 << 20, &args);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    make_pieces(&dir);

    // On the mount, while the file is open.
    let one = dir.join("one");
    let mut open = fs::File::open(&one).unwrap();
    let looked = extol_ok(&["defrag", "-n", "-v", text(&one)]);
    assert!(looked.contains("extents, 1 would do\n1 file, 1 in pieces: "), "{looked}");
    let before = fs::metadata(&one).unwrap();
    let done = json(&["defrag", "--json", text(&one)]);
    let file = &done["files"][0];
    assert!(file["extents_before"].as_u64().unwrap() > 5, "{done}");
    assert_eq!((&file["extents_after"], &file["outcome"]), (&1.into(), &"moved".into()), "{done}");
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert_eq!(read, bytes(3, 200_000));
    assert_eq!(fs::read(&one).unwrap(), read);
    let after = fs::metadata(&one).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    let again = extol_ok(&["defrag", text(&one)]);
    assert_eq!(again, "1 file, 0 in pieces, 0 moved: 1 extent before, 1 after\n");
    drop(open);

    // A directory: each file once, and no other mount.
    let looked = json(&["defrag", "-c", "--json", "-v", text(&dir)]);
    assert_eq!(looked["total"]["files"], 4, "{looked}");
    assert_eq!(looked["total"]["in_pieces"], 2, "{looked}");
    let named = looked["files"].as_array().unwrap();
    assert!(named.iter().all(|file| file["outcome"].is_null()), "{looked}");
    refused(&["defrag", text(&dir.join("nothing"))], 32, &["nothing"]);
    mount.unmount();
    e2fsck(&image).assert_clean("defragmented on the mount");
    assert_eq!(extents(&image, "/one"), 1);

    // What may not be read is named, and passed over; lost+found is passed over.
    if require(&[Need::Tool("setpriv")]) {
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        fs::create_dir(dir.join("sub/private")).unwrap();
        fs::write(dir.join("sub/private/file"), "x").unwrap();
        fs::set_permissions(dir.join("sub/private"), fs::Permissions::from_mode(0o700)).unwrap();
        let defrag = |path: &Path| {
            let mut command = tool("setpriv");
            command.args(["--bounding-set", "-dac_override,-dac_read_search"]);
            command.arg(extol_path()).arg("defrag").arg("-n").arg(path);
            run(&mut command, std::time::Duration::from_secs(20))
        };
        let give = |path: &str| chown(dir.join(path), Some(65534), Some(65534)).unwrap();
        let whole = defrag(&dir);
        assert!(whole.success(), "{}", whole.output);
        give("lost+found");
        let done = defrag(&dir);
        assert_eq!((done.code, &done.output), (Some(0), &whole.output));
        let typed = defrag(&dir.join("lost+found"));
        assert_eq!(typed.code, Some(32), "{}", typed.output);
        give("sub/private");
        let done = defrag(&dir);
        assert_eq!(done.code, Some(32), "{}", done.output);
        assert!(done.stderr.contains("sub/private: Permission denied"), "{}", done.output);
        assert!(done.output.contains("; 1 directory was not read\n"), "{}", done.output);
        let files = |text: &str| text.split(" file").next().and_then(|n| n.parse::<u64>().ok());
        assert_eq!(files(&done.output).map(|n| n + 1), files(&whole.output), "{}", done.output);
        mount.unmount();
    }

    // Not mounted.
    assert!(extents(&image, "/sub/two") > 5);
    let done = extol_ok(&["defrag", "-v", text(&image.path), "/sub/two"]);
    assert!(
        done.starts_with("/sub/two: ") && done.contains(" extents before, 1 after\n"),
        "{done}"
    );
    let done = json(&["defrag", "--json", text(&image.path)]);
    assert_eq!(done["total"]["moved"], 1, "{done}");
    assert_eq!(done["total"]["extents_after"], done["total"]["extents_best"], "{done}");
    e2fsck(&image).assert_clean("defragmented");
    for (path, seed, len) in
        [("/one", 3, 200_000), ("/sub/two", 5, 150_000), ("/sub/three again", 7, 90_000)]
    {
        assert_eq!(extents(&image, path), 1, "{path}");
        let copy = scratch.join("copy");
        extol_ok(&["cp", text(&image.path), path, text(&copy)]);
        assert_eq!(fs::read(&copy).unwrap(), bytes(seed, len), "{path}");
        fs::remove_file(&copy).unwrap();
    }
    let missing = run_extol(&["defrag", text(&image.path), "/one", "/nothing"]);
    assert!(!missing.success() && missing.stderr.contains("/nothing"), "{missing:?}");
    assert!(missing.output.contains("1 file, 0 in pieces"), "{missing:?}");
}
