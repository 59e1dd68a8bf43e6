//! The options of mke2fs, e2fsck, dumpe2fs and ls as people and scripts type them: what is taken
//! does the same as there, what is refused is named, and every mistake is one line.

use extol_testkit::{
    Image, KernelMount, Need, Scratch, Tree, TreeSpec, debugfs, e2fsck, extol, extol_ok,
    extol_path, make_tree, refused, require, run_extol, run_ok, text, tool,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const SEED: &str = "hash_seed=01234567-89ab-cdef-0123-456789abcdef";

/// The lines of `dumpe2fs -h`, without what depends on the moment.
fn dumped(image: &Path) -> Vec<String> {
    lines(&run_ok(tool("dumpe2fs").arg("-h").arg(image).env("TZ", "UTC")))
}

fn lines(text: &str) -> Vec<String> {
    let kept = |line: &&str| {
        let moment = ["Filesystem created", "Last write", "Last checked", "Lifetime", "Checksum:"];
        !moment.iter().any(|name| line.starts_with(name)) && !line.starts_with("dumpe2fs ")
    };
    text.lines().filter(kept).map(|line| line.trim_end().to_owned()).collect()
}

#[track_caller]
fn same(ours: &[String], theirs: &[String], what: &str) {
    let both = ours.iter().zip(theirs);
    if let Some((a, b)) = both.clone().find(|(a, b)| a != b) {
        panic!("{what}:\n extol: {a}\n other: {b}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}: {ours:#?}\n{theirs:#?}");
}

/// The same words for both, and the same volume by dumpe2fs.
#[test]
fn mkfs_as_mke2fs() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("dumpe2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours.img"), scratch.join("theirs.img"));
    // (What older releases of mke2fs do not know is left out on both sides.)
    let features = "^orphan_file,^metadata_csum_seed";
    let config = scratch.join("mke2fs.conf");
    std::fs::write(
        &config,
        "[defaults]\n base_features = sparse_super,large_file,filetype,resize_inode,dir_index,\
         ext_attr\n default_mntopts = acl,user_xattr\n enable_periodic_fsck = 0\n blocksize = \
         4096\n inode_size = 256\n inode_ratio = 16384\n[fs_types]\n ext3 = {\n features = \
         has_journal\n }\n ext4 = {\n features = has_journal,extent,huge_file,flex_bg,\
         metadata_csum,64bit,dir_nlink,extra_isize\n }\n small = {\n blocksize = 1024\n \
         inode_ratio = 4096\n }\n news = {\n inode_ratio = 4096\n }\n largefile = {\n \
         inode_ratio = 1048576\n blocksize = -1\n }\n",
    )
    .unwrap();
    for (args, size) in [
        ("", "64M"),
        ("-F -F -q", "64m"),
        ("-b 2048", "32768"),
        ("-b 2k", "32768"),
        ("-b -2048", "65536"),
        ("-b 1024 -g 4096 -G 4", "65536"),
        ("-i 16k -I 512 -m 2.5 -L label -M /srv/x -e panic", "131072s"),
        ("-N 4000 -j -J size=8", "200M"),
        ("-J size=4,location=30000", "200M"),
        ("-T news", "700M"),
        ("-T news,largefile -v", "700M"),
        ("-t ext3 -T small -K", "700M"),
        ("-t ext2 -r 1 -o Linux", "64M"),
        ("-D", "64M"),
        ("-L an-overlong-label-of-a-volume", "64M"),
    ] {
        for path in [&ours, &theirs] {
            let _ = std::fs::remove_file(path);
        }
        let words = || args.split_whitespace();
        run_ok(
            extol()
                .arg("mkfs")
                .args(words())
                .args(["-U", UUID, "-E", SEED, "-O", features])
                .arg(&ours)
                .arg(size),
        );
        std::fs::File::create(&theirs).unwrap();
        let mut mke2fs = tool("mke2fs");
        if !args.contains("-t ") {
            mke2fs.args(["-t", "ext4"]);
        }
        mke2fs.args(words()).args(["-U", UUID, "-E", SEED, "-O", features, "-F"]);
        run_ok(mke2fs.arg(&theirs).arg(size).env("MKE2FS_CONFIG", &config));
        same(&dumped(&ours), &dumped(&theirs), args);
        e2fsck(&Image::existing(&ours)).assert_clean(args);
    }
    // Without -t the type may stand in the list of usages.
    let path = scratch.join("ext3.img");
    extol_ok(&["mkfs", "-q", "-T", "ext3,news", text(&path), "64M"]);
    assert!(extol_ok(&["info", "-h", text(&path)]).contains("has_journal"));
    assert!(!extol_ok(&["info", "-h", text(&path)]).contains("extent"));
}

#[test]
fn mkfs_warns_and_tells() {
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    let long = "0123456789-123456";
    let done = run_extol(&["mkfs", "-q", "-L", long, text(&path), "16M"]);
    assert_eq!(done.code, Some(0), "{}", done.output);
    assert!(done.stderr.contains("warning") && done.stderr.contains("'0123456789-12345'"));
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    let dir = format!("/{}", "x".repeat(64));
    let done = run_extol(&["mkfs", "-q", "-F", "-M", &dir, text(&path), "16M"]);
    assert!(done.success() && done.stderr.contains("64 bytes"), "{}", done.output);
    // A character is not cut in two.
    let done = run_extol(&["mkfs", "-q", "-F", "-L", "abcdefghijklmno\u{e9}", text(&path)]);
    assert!(done.success() && done.stderr.contains("'abcdefghijklmno'"), "{}", done.output);
    let shown = extol_ok(&["mkfs", "-F", "-v", "-U", "time", text(&path)]);
    assert!(shown.contains("features: ") && shown.contains("inode size"), "{shown}");
    let uuid = shown.lines().find_map(|line| line.strip_prefix("UUID: ")).expect("a UUID");
    assert_eq!(uuid.as_bytes()[14], b'1', "the version of {uuid}");
    // What would be made, of a file that is not there.
    let missing = scratch.join("missing.img");
    assert!(extol_ok(&["mkfs", "-n", text(&missing), "10T"]).contains("2684354560 4k blocks"));
    assert!(!missing.exists());
    assert!(extol_ok(&["mkfs", "-n", text(&path), "1G"]).contains("262144 4k blocks"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 16 << 20, "a dry run");
    assert!(extol_ok(&["mkfs", "-V"]).starts_with("extol"));
}

/// The contents of a directory, with all that belongs to them.
#[test]
fn mkfs_takes_a_directory() {
    let needs = [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("e2fsck")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    let top = dir.join("top");
    std::fs::create_dir(&top).unwrap();
    let spec = TreeSpec { large: 1 << 20, sparse_to: 30 << 20, ..TreeSpec::small(5) };
    make_tree(&top, &spec);
    for args in [&[][..], &["-b", "1024"], &["-t", "ext3"], &["-t", "ext2"]] {
        let image = Image::existing(dir.join("out.img"));
        let _ = std::fs::remove_file(&image.path);
        let mut words = vec!["mkfs", "-q", "-d", text(&dir), "-E", "root_perms=0711"];
        words.extend(args);
        words.extend([text(&image.path), "64M"]);
        // The image in the directory does not go into itself: neither when it is made, nor later.
        let done = run_extol(&words);
        assert!(done.success() && done.stderr.is_empty(), "{}", done.output);
        words.insert(1, "-F");
        let done = run_extol(&words);
        let left_out = "out.img: is the image itself and is left out";
        assert!(done.success() && done.stderr.contains(left_out), "{}", done.output);
        assert!(!extol_ok(&["ls", text(&image.path)]).contains("out.img"));
        words.remove(1);
        let other = Image::existing(scratch.join("out.img"));
        let _ = std::fs::remove_file(&other.path);
        std::fs::remove_file(&image.path).unwrap_or_default();
        *words.iter_mut().rev().nth(1).unwrap() = text(&other.path);
        extol_ok(&words);
        e2fsck(&other).assert_clean("filled");
        // Once more over what is there.
        words.insert(1, "-F");
        extol_ok(&words);
        e2fsck(&other).assert_clean("filled again");
        let mnt = scratch.dir("mnt");
        let linux = KernelMount::mount(&other, &mnt, &["ro"]);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&mnt).unwrap());
        assert_eq!(mode & 0o7777, 0o711);
        Tree::of(&top).assert_same(&Tree::of(&mnt.join("top")), "the directory", "the volume");
        linux.unmount();
    }
    // Too small: said once, and no file is left behind.
    let small = scratch.join("small.img");
    let done = run_extol(&["mkfs", "-q", "-d", text(&dir), text(&small), "1M"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.lines().count() <= 2 && done.stderr.contains("larger SIZE"), "{done:?}");
    assert!(!small.exists());
    let none = scratch.join("none");
    refused(&["mkfs", "-d", text(&none), text(&small), "8M"], 32, &["none"]);
    assert!(!small.exists());
}

#[test]
fn info_as_dumpe2fs() {
    let tools = ["mke2fs", "dumpe2fs", "tune2fs", "debugfs"].map(Need::Tool);
    if !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    for (n, args) in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "mmp,fast_commit,project,quota", "-E", "stride=4,stripe_width=8"],
        &["-t", "ext4", "-b", "1024", "-L", "label", "-M", "/mnt/x", "-e", "panic", "-m", "0"],
        &["-t", "ext4", "-O", "meta_bg,^resize_inode,bigalloc"],
        &["-t", "ext4", "-O", "sparse_super2,metadata_csum_seed", "-E", "test_fs"],
        &["-t", "ext3", "-I", "128"],
        &["-t", "ext2"],
        &["-t", "ext2", "-r", "0", "-O", "none"],
    ]
    .into_iter()
    .enumerate()
    {
        let image = Image::mke2fs(scratch.path(), &format!("{n}.img"), 400 << 20, args);
        let path = text(&image.path);
        let compare = |what: &str| {
            let theirs = run_ok(tool("dumpe2fs").args(["-h", path]).env("TZ", "UTC"));
            let ours = extol_ok(&["info", "-h", path]);
            let all = |text: &str| -> Vec<String> {
                let kept = |line: &&str| !line.is_empty() && !line.starts_with("dumpe2fs ");
                let lines = text.lines().filter(kept);
                lines.map(|line| line.trim_end().to_owned()).collect()
            };
            same(&all(&ours), &all(&theirs), what);
        };
        compare(&format!("{args:?}"));
        let theirs = run_ok(tool("dumpe2fs").args(["-g", path]));
        let table = theirs.find("group:").expect("a table");
        assert!(
            theirs[table..].starts_with(&extol_ok(&["info", "-g", path])),
            "{args:?}: {theirs}"
        );
        if n == 0 {
            run_ok(
                tool("tune2fs")
                    .args(["-c", "20", "-i", "8d", "-o", "journal_data_ordered,nobarrier,debug"])
                    .arg(path),
            );
            for field in [
                "mtime 1700000000",
                "kbytes_written 9000000",
                "error_count 3",
                "first_error_time 1700000001",
                "first_error_ino 12",
                "last_error_time 1700000002",
                "state 2",
            ] {
                run_ok(tool("debugfs").args(["-w", "-R", &format!("ssv {field}"), path]));
            }
            compare("used");
        }
    }
    // A copy of the superblock, by the number of its block.
    let path = scratch.join("0.img");
    let path = text(&path);
    let copy = ["-h", "-o", "superblock=8193", "-o", "blocksize=1024", path];
    let theirs = lines(&run_ok(tool("dumpe2fs").args(copy).env("TZ", "UTC")));
    let theirs: Vec<String> = theirs.into_iter().filter(|line| !line.is_empty()).collect();
    assert!(theirs.iter().any(|line| line == "Block count:              409600"), "{theirs:?}");
    for options in ["superblock=8193,blocksize=1024", "superblock=8193", "sb=8193"] {
        let ours = lines(&extol_ok(&["info", "-h", "-o", options, path]));
        same(&ours, &theirs, options);
    }
    refused(&["info", "-o", "superblock=5", path], 32, &["0.img", "block 5"]);
    refused(&["info", "-o", "superblock=x", path], 1, &["\"x\"", "superblock"]);
    for (option, word) in [("-b", "bad blocks"), ("-i", "e2image"), ("-m", "-h"), ("-x", "-g")] {
        refused(&["info", option, path], 1, &[option, word]);
    }
    assert!(extol_ok(&["info", "--help"]).contains("dumpe2fs"));
    assert!(extol_ok(&["info", "-f", path]).contains("Label"));
}

#[test]
fn check_as_e2fsck() {
    let needs =
        [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs"), Need::Tool("debugfs")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let path = text(&image.path);
    for options in [
        &["-n"][..],
        &["-f", "-n"],
        &["-fnv"],
        &["-ftt"],
        &["-p"],
        &["-a", "-C0"],
        &["-fn", "-E", "nodiscard,readahead_kb=64"],
    ] {
        let done = run_extol(&[&["check"], options, &[path]].concat());
        assert_eq!(done.code, Some(0), "{options:?}: {}", done.output);
    }
    assert!(run_extol(&["check", "-t", path]).output.contains("time: "));
    for (options, words) in [
        (&["-y"][..], &["-y", "e2fsck -fy", "a.img"][..]),
        (&["-B", "4096"], &["-b <BLOCK>"]),
        (&["-p", "-b", "32768"], &["cannot be used with"]),
        (&["-b", "x"], &["\"x\"", "whole number"]),
        (&["-c"], &["-c"]),
        (&["-l", "list"], &["-l"]),
        (&["-D"], &["-D", "e2fsck -fD"]),
        (&["-z", "undo"], &["-z"]),
        (&["-E", "discard"], &["-E discard", "e2fsck"]),
        (&["-E", "journal_only"], &["extol replay"]),
        (&["-p", "-n"], &["cannot be used with"]),
        (&["-C", "77"], &["-C 77", "descriptor"]),
        (&["-C", "x"], &["-C", "\"x\"", "whole number"]),
    ] {
        refused(&[&["check"], options, &[path]].concat(), 16, words);
    }
    // For a program that shows the progress.
    let log = scratch.join("progress");
    let script = format!("{} check -C 3 {path} 3>{}", extol_path().display(), log.display());
    run_ok(Command::new("sh").args(["-c", &script]));
    let progress = std::fs::read_to_string(&log).unwrap();
    for pass in ["1 ", "2 ", "5 "] {
        assert!(progress.lines().any(|line| line.starts_with(pass)), "{progress}");
    }
    assert!(progress.lines().all(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        words.len() == 4 && number(1) <= number(2) && words[3] == path
    }));

    // -p brings the journal home, and nothing else.
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&image, &dir, &["noinit_itable"]);
    std::fs::write(dir.join("file"), "text").unwrap();
    run_ok(Command::new("sync").arg("-f").arg(&dir));
    let crashed = image.copy_as("crashed.img");
    mount.unmount();
    let crashed_path = text(&crashed.path);
    let before = std::fs::read(&crashed.path).unwrap();
    assert_eq!(run_extol(&["check", crashed_path]).code, Some(0));
    assert!(std::fs::read(&crashed.path).unwrap() == before, "a check changes nothing");
    let done = run_extol(&["check", "-p", crashed_path]);
    assert!(done.success() && done.output.contains("journal replayed"), "{}", done.output);
    e2fsck(&crashed).assert_clean("after check -p");
    assert!(extol_ok(&["info", crashed_path]).contains("Needs recovery         no"));
    run_ok(tool("debugfs").args(["-w", "-R", "sif /file links_count 3", crashed_path]));
    for options in [&["-p"][..], &["-fn"]] {
        let done = run_extol(&[&["check"], options, &[crashed_path]].concat());
        assert_eq!(done.code, Some(4), "{options:?}: {}", done.output);
    }
    assert!(debugfs(&crashed, "stat /file").contains("Links: 3"), "nothing is repaired");
}

#[test]
fn ls_as_ls() {
    if !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let path = text(&image.path);
    let dir = scratch.dir("d");
    let stamp = |name: &str, size: u64, sec: u64| {
        let file = std::fs::File::create(dir.join(name)).unwrap();
        file.set_len(size).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(sec)).unwrap();
    };
    stamp("a", 2000, 100);
    stamp("b", 10, 300);
    stamp("c", 3_000_000, 200);
    stamp(".dot", 0, 0);
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::fs::File::open(dir.join("sub")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
    extol_ok(&["put", path, text(&dir), "/"]);
    let names = |options: &[&str]| -> Vec<String> {
        let shown = extol_ok(&[&["ls"], options, &[path, "/d"]].concat());
        shown.lines().map(str::to_owned).collect()
    };
    assert_eq!(names(&["-1"]), ["a", "b", "c", "link", "sub"]);
    assert_eq!(names(&["-r"]), ["sub", "link", "c", "b", "a"]);
    assert_eq!(names(&["-A"]), [".dot", "a", "b", "c", "link", "sub"]);
    assert_eq!(names(&["-F"]), ["a", "b", "c", "link@", "sub/"]);
    assert_eq!(names(&["-d"]), ["/d"]);
    let files =
        |all: Vec<String>| -> String { all.into_iter().filter(|name| name.len() == 1).collect() };
    assert_eq!(files(names(&["-t"])), "bca");
    assert_eq!(files(names(&["-tr"])), "acb");
    assert_eq!(files(names(&["-S"])), "cab");
    assert_eq!(files(names(&["-S", "-t"])), "bca", "the last one holds");
    let long = names(&["-lh"]);
    for size in [" 2.0K ", " 10 ", " 2.9M "] {
        assert!(long.iter().any(|line| line.contains(size)), "{size}: {long:#?}");
    }
    assert!(long.iter().any(|line| line.ends_with("link -> a")), "{long:#?}");
    assert_eq!(names(&["-n"]), names(&["-l"]));
    assert_eq!(names(&["-h"]), names(&[]), "no help");
    assert!(extol_ok(&["ls", "--help"]).contains("powers of 1024"));
    refused(&["ls", path, "/d/a/"], 32, &["/d/a/", "not a directory"]);
    // A volume without names for what went wrong: its own is told.
    let zero = |at: u64| image.write_at(at, &[0; 256]);
    let root = debugfs(&image, "imap <2>");
    let number = |after: &str| -> u64 {
        let rest = root.split(after).nth(1).expect("a place").trim_start();
        let word = rest.split([',', ' ', '\n']).next().expect("a word");
        word.strip_prefix("0x")
            .map_or_else(|| word.parse(), |hex| u64::from_str_radix(hex, 16))
            .expect("number")
    };
    let table = number("located at block");
    zero(table * u64::from(block_size(&image.path)) + number("offset"));
    let done = run_extol(&["ls", path]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains("a.img: ") && !done.stderr.contains(" /: "), "{}", done.stderr);
}

fn block_size(image: &Path) -> u32 {
    let shown = extol_ok(&["info", "-h", text(image)]);
    let line = shown.lines().find_map(|line| line.strip_prefix("Block size:")).expect("a size");
    line.trim().parse().expect("a number")
}

/// The same kind of mistake has the same code in every command, and one line that quotes what was
/// typed.
#[test]
fn mistakes() {
    let scratch = Scratch::new();
    let image: PathBuf = scratch.join("a.img");
    let new: PathBuf = scratch.join("new.img");
    let (path, new) = (text(&image), text(&new));
    extol_ok(&["mkfs", "-q", path, "16M"]);
    for (size, words) in [
        ("", "empty"),
        ("0", "size 0"),
        ("-5M", "negative"),
        ("lots", "\"lots\""),
        ("1.5G", "whole"),
        ("10 XB", "unit"),
        ("99999999999999T", "too large"),
        ("99999999999999999999", "too large"),
    ] {
        refused(&["mkfs", new, size], 1, &[words]);
    }
    for size in ["16MiB", "16m", "16 MiB", "16777216b", "16384"] {
        assert!(extol_ok(&["mkfs", "-n", new, size]).contains("16384 1k blocks"), "{size}");
    }
    assert!(extol_ok(&["mkfs", "-n", "-b", "1024", new, "16MB"]).contains("15625 1k blocks"));
    let mount = |options: &str, words: &[&str]| {
        refused(&["mount", "-f", "-o", options, path, text(&scratch.dir("mnt"))], 1, words);
    };
    for option in ["cache_mb", "dirty_mb", "data_cache_mb", "readahead_kb"] {
        for (value, word) in [
            ("lots", "\"lots\""),
            ("-5M", "negative"),
            ("", "empty"),
            ("1.5G", "whole"),
            ("9999P", "too large"),
            ("2P", "larger than"),
        ] {
            // (A value that is too large for a number of bytes, or for the option.)
            let word = if word == "too large" { "larger than" } else { word };
            mount(&format!("{option}={value}"), &[option, word]);
        }
    }
    for (args, words) in [
        (&["mkf", path][..], &["'mkf'", "did you mean 'mkfs'"][..]),
        (&["ls", "--jsn", path], &["--jsn", "extol ls --help"]),
        (&["umont", path], &["did you mean 'umount'"]),
        (&["moutn", path], &["did you mean 'mount'"]),
        (&["chekpoint", path], &["did you mean 'checkpoint'"]),
        (&["info", "--jsn", path], &["--jsn", "did you mean '--json'"]),
        (&["cp", "--presrve=all", path, "a", "b"], &["did you mean '--preserve'"]),
        (&["cp", path, "/a"], &["/a", "where to"]),
        (&["put", path, "/a"], &["/a", "where to"]),
        (&["cat", path], &["PATHS"]),
        (&["mkfs", "-b", "x", new], &["-b", "\"x\""]),
        (&["mkfs", "-N", "-3", new], &["-N", "\"-3\""]),
        (&["mkfs", "-O", "frob", new, "8M"], &["'frob'"]),
        (&["mkfs", "-b", "3000", new, "8M"], &["3000"]),
        (&["mkfs", new, "10K"], &["new.img", "small"]),
        (&["mkfs", new], &["new.img", "size"]),
        (&["rm", path, "/"], &["/: cannot be removed"]),
    ] {
        refused(args, 1, words);
    }
    for (args, words) in [
        (&["ls", path, "none"][..], &["none", "no such file"][..]),
        (&["cat", path, "none"], &["none", "no such file"]),
        (&["cat", path, "/"], &["/: is a directory"]),
        (&["rm", path, "none"], &["none", "no such file"]),
        (&["mkfs", path], &["a.img", "-F"]),
        (&["mkdir", path, "/"], &["/: file exists"]),
        (&["mkdir", path, "x/y"], &["x/y", "no such file", "make all with -p"]),
        (&["cp", path, "none", "."], &["none", "no such file"]),
        (&["cp", path, "/lost+found", "no/such/dir"], &["no/such/dir: No such file"]),
        (&["cp", path, "/a", "/b", "no"], &["no: No such file"]),
        (&["cp", path, "/a", "/b", "/etc/passwd"], &["/etc/passwd: Not a directory"]),
        (&["put", path, "none", "/"], &["extol: none: No such file"]),
        (&["put", path, "/etc/passwd", "/no/dir"], &["/no/dir", "no such file"]),
        (&["put", path, "/etc/passwd", "/no/"], &["/no/", "no such file"]),
        (&["put", path, "/etc/passwd", "/etc/group", "/no"], &["/no", "no such file"]),
        (&["ls", "none.img"], &["none.img: No such file"]),
        (&["info", "none.img"], &["none.img: No such file"]),
        (&["replay", "none.img"], &["none.img: No such file"]),
        (&["log", "none.img"], &["none.img: No such file"]),
        (&["mkfs", "none/x.img", "8M"], &["none/x.img: No such file"]),
        (&["mkfs", text(scratch.path()), "8M"], &["is a directory"]),
    ] {
        refused(args, 32, words);
    }
    refused(&["check", "none.img"], 8, &["none.img: No such file"]);
    refused(&["check", "--jsn", path], 16, &["did you mean '--json'", "extol check --help"]);
    extol_ok(&["mkdir", "-p", path, "p/../q/r"]);
    assert!(extol_ok(&["ls", path]).contains("p\nq\n"));
}
