//! Mistakes: the same kind has the same exit code whatever the command, the line names what was
//! typed, and what was there before is there afterwards.

use extol_testkit::{
    ExtolMount, Fuse2fsMount, Image, KernelMount, LoopDevice, Need, Scratch, extol, extol_ok,
    refused, require, run, run_extol, run_ok, text, tool,
};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A kind of mistake, its exit code, and what its line says. `check` has the codes of fsck(8).
struct Kind {
    name: &'static str,
    code: i32,
    of_check: i32,
    words: &'static [&'static str],
    /// Command lines; `IMAGE` and the like stand for paths.
    lines: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "an unknown option",
        code: 1,
        of_check: 16,
        words: &["--frobnicate"],
        lines: &[
            "mount --frobnicate IMAGE DIR",
            "umount --frobnicate DIR",
            "remount --frobnicate DIR",
            "stat --frobnicate DIR",
            "top --frobnicate DIR",
            "sync --frobnicate DIR",
            "checkpoint --frobnicate DIR",
            "freeze --frobnicate DIR",
            "thaw --frobnicate DIR",
            "info --frobnicate IMAGE",
            "log --frobnicate IMAGE",
            "replay --frobnicate IMAGE",
            "check --frobnicate IMAGE",
            "mkfs --frobnicate IMAGE",
            "ls --frobnicate IMAGE",
            "cat --frobnicate IMAGE /a",
            "cp --frobnicate IMAGE /a DIR",
            "put --frobnicate IMAGE IMAGE /",
            "rm --frobnicate IMAGE /a",
            "mkdir --frobnicate IMAGE /a",
        ],
    },
    Kind {
        name: "an unknown mount option",
        code: 1,
        of_check: 16,
        words: &["frobnicate"],
        lines: &[
            "mount -o frobnicate IMAGE DIR",
            "log -o frobnicate IMAGE",
            "replay -o frobnicate IMAGE",
            "info -o frobnicate IMAGE",
            "ls -o frobnicate IMAGE",
            "rm -o frobnicate IMAGE /a",
        ],
    },
    Kind {
        name: "a negative number",
        code: 1,
        of_check: 16,
        words: &["must not be negative"],
        lines: &[
            "mount -o offset=-1 IMAGE DIR",
            "mount -o sizelimit=-5M IMAGE DIR",
            "mount -o cache_size=-5 IMAGE DIR",
            "mount -o commit=-1 IMAGE DIR",
            "mount -o inode_cache=-1 IMAGE DIR",
            "mount -o max_threads=-1 IMAGE DIR",
            "mount -o uid=-1 IMAGE DIR",
            "mount --fd -1 IMAGE",
            "umount --timeout -1 DIR",
            "top --interval -1 DIR",
            "stat --watch -1 DIR",
            "check --limit -1 IMAGE",
            "check -C -1 IMAGE",
            "info -o superblock=-1 IMAGE",
            "ls -o sb=-1 IMAGE",
            "mkfs NEW -5M",
            "mkfs -g -1 NEW 10M",
            "mkfs -N -1 NEW 10M",
            "mkfs -J size=-1 NEW 10M",
            "mkfs -E stride=-1 NEW 10M",
        ],
    },
    Kind {
        name: "a number that is too large",
        code: 1,
        of_check: 16,
        words: &["larg"],
        lines: &[
            "mount -o offset=99999999999999999999 IMAGE DIR",
            "mount -o commit=99999999999999999999 IMAGE DIR",
            "mount -o cache_mb=2P IMAGE DIR",
            "mount -o max_threads=1G IMAGE DIR",
            "umount --timeout 1e999 DIR",
            "top --interval 1e6 DIR",
            "check --limit 99999999999999999999 IMAGE",
            "mkfs NEW 99999999999999T",
            "mkfs -b 128k NEW 10M",
            "mkfs -N 99G NEW 10M",
            "mkfs -m 51 NEW 10M",
            "mkfs -E stride=70000 NEW 10M",
        ],
    },
    Kind {
        name: "options that do not go together",
        code: 1,
        of_check: 16,
        words: &["cannot be used with"],
        lines: &[
            "mount -r -w IMAGE DIR",
            "mount -w -o norecovery IMAGE DIR",
            "mount -o fakeroot,allow_other IMAGE DIR",
            "umount -l -f DIR",
            "checkpoint --discard --zeroout DIR",
            "check -p -n IMAGE",
            "put -o ro IMAGE IMAGE /a",
            "rm -o norecovery IMAGE /a",
            "mkdir -o ro IMAGE /a",
        ],
    },
    Kind {
        name: "an option of another program",
        code: 1,
        of_check: 16,
        words: &["is not supported"],
        lines: &[
            "mount -a IMAGE DIR",
            "mount -B IMAGE DIR",
            "mount -o bind IMAGE DIR",
            "mount -o usrquota IMAGE DIR",
            "umount -R DIR",
            "info -b IMAGE",
            "check -y IMAGE",
            "check -b 32768 IMAGE",
            "mkfs -c IMAGE",
            "mkfs -E offset=1M IMAGE",
            "mkfs -O bigalloc -F IMAGE",
        ],
    },
    Kind {
        name: "a flag with a value",
        code: 1,
        of_check: 16,
        words: &["takes no value"],
        lines: &[
            "mount -o ro=1 IMAGE DIR",
            "mount -o noatime=5 IMAGE DIR",
            "mount -o nosuid=x IMAGE DIR",
            "mount -o nobarrier=1 IMAGE DIR",
            "mount -o nocheckpoint_merge=1 IMAGE DIR",
            "mount -o untrusted=1 IMAGE DIR",
            "mount -o kernel_cache=1 IMAGE DIR",
            "mount -o nombcache=1 IMAGE DIR",
            "ls -o ro=1 IMAGE",
        ],
    },
    Kind {
        name: "an external journal of a volume with another one",
        code: 32,
        of_check: 8,
        words: &["IMAGE", "journal of its own", "leave out journal_path="],
        lines: &["ls -o journal_path=/dev/null IMAGE", "rm -o journal_path=/dev/null IMAGE /a"],
    },
    Kind {
        name: "an external journal that is not there",
        code: 32,
        of_check: 8,
        words: &["/nonexistent: No such file"],
        lines: &["mount -o journal_path=/nonexistent IMAGE DIR"],
    },
    Kind {
        name: "what no volume could have",
        code: 1,
        of_check: 16,
        words: &["ends with a name"],
        lines: &["rm IMAGE /", "rm -r IMAGE /", "rm -rf IMAGE /..", "rm IMAGE ."],
    },
    Kind {
        name: "no such image",
        code: 32,
        of_check: 8,
        words: &["MISSING", "o such file or directory"],
        lines: &[
            "mount MISSING DIR",
            "info MISSING",
            "log MISSING",
            "replay MISSING",
            "check MISSING",
            "ls MISSING",
            "cat MISSING /a",
            "cp MISSING /a DIR",
            "put MISSING IMAGE /",
            "rm MISSING /a",
            "mkdir MISSING /a",
        ],
    },
    Kind {
        name: "no volume",
        code: 32,
        of_check: 8,
        words: &["ZEROS"],
        lines: &[
            "mount ZEROS DIR",
            "info ZEROS",
            "log ZEROS",
            "replay ZEROS",
            "check ZEROS",
            "ls ZEROS",
            "cat ZEROS /a",
            "cp ZEROS /a DIR",
            "put ZEROS IMAGE /",
            "rm ZEROS /a",
            "mkdir ZEROS /a",
        ],
    },
    Kind {
        name: "no such file on it",
        code: 32,
        of_check: 8,
        words: &["/none", "no such file"],
        lines: &[
            "ls IMAGE /none",
            "cat IMAGE /none",
            "cp IMAGE /none DIR",
            "put IMAGE ZEROS /none/",
            "rm IMAGE /none",
            "mkdir IMAGE /none/below",
        ],
    },
    Kind {
        name: "an empty name",
        code: 32,
        of_check: 8,
        words: &["''"],
        lines: &[
            "ls IMAGE EMPTY",
            "cat IMAGE EMPTY",
            "cp IMAGE EMPTY DIR",
            "rm IMAGE EMPTY",
            "mkdir IMAGE EMPTY",
        ],
    },
    Kind {
        name: "no source at all",
        code: 1,
        of_check: 16,
        words: &["SOURCE"],
        lines: &["mount EMPTY DIR", "info EMPTY", "check EMPTY", "ls EMPTY", "replay", "cat"],
    },
    Kind {
        name: "what is there is not overwritten",
        code: 32,
        of_check: 8,
        words: &["IMAGE", "-F overwrites it"],
        lines: &["mkfs IMAGE", "mkfs IMAGE 10M", "mkfs -d DIR IMAGE"],
    },
    Kind {
        name: "not a mount of Extol",
        code: 32,
        of_check: 8,
        words: &["DIR"],
        lines: &[
            "umount DIR",
            "remount -o ro DIR",
            "stat DIR",
            "top --once DIR",
            "sync DIR",
            "checkpoint DIR",
            "freeze DIR",
            "thaw DIR",
        ],
    },
];

/// The words of a line, with the paths in their places.
fn words(line: &str, places: &[(&str, &Path)]) -> Vec<String> {
    let place = |word: &str| match places.iter().find(|(name, _)| *name == word) {
        _ if word == "EMPTY" => String::new(),
        Some((_, path)) => text(path).to_owned(),
        None => word.to_owned(),
    };
    line.split(' ').map(place).collect()
}

#[test]
fn the_same_kind_has_the_same_code() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "IMAGE", 16 << 20, &["-t", "ext4"]);
    let zeros = Image::sparse(scratch.join("ZEROS"), 16 << 20);
    let (dir, missing, new) = (scratch.dir("DIR"), scratch.join("MISSING"), scratch.join("NEW"));
    let places = [
        ("IMAGE", image.path.as_path()),
        ("ZEROS", &zeros.path),
        ("DIR", &dir),
        ("MISSING", &missing),
        ("NEW", &new),
    ];
    for kind in KINDS {
        let before = std::fs::read(&image.path).unwrap();
        for line in kind.lines {
            let words = words(line, &places);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let is_check = words[0] == "check";
            let done = run_extol(&words);
            let code = if is_check { kind.of_check } else { kind.code };
            assert_eq!(done.code, Some(code), "{}: {line}: {}", kind.name, done.output);
            let said: Vec<&str> = done.stderr.lines().collect();
            assert_eq!(said.len(), 1, "{}: {line}: {}", kind.name, done.output);
            for word in kind.words {
                assert!(said[0].contains(word), "{}: {line}: {}", kind.name, said[0]);
            }
            assert!(!new.exists() && !missing.exists(), "{line} has left a file");
        }
        // Wrong arguments are refused before anything is opened for writing.
        if kind.code == 1 {
            let after = std::fs::read(&image.path).unwrap();
            assert!(after == before, "{}: the image was changed", kind.name);
        }
    }
    assert_eq!(run_extol(&["check", text(&image.path)]).code, Some(0));
}

/// A volume that is written to elsewhere: the same line and code, whether Extol or the kernel has
/// it mounted.
#[test]
fn what_is_mounted_is_not_used() {
    let needs = [Need::Root, Need::Fuse, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let (dir, out, file) = (scratch.dir("mnt"), scratch.dir("out"), scratch.join("file"));
    std::fs::write(&file, "text").unwrap();
    let commands: &[&[&str]] = &[
        &["ls", "IMAGE"],
        &["ls", "--json", "IMAGE"],
        &["cat", "IMAGE", "/a"],
        &["cp", "IMAGE", "/a", text(&out)],
        &["put", "IMAGE", text(&file), "/"],
        &["rm", "IMAGE", "/a"],
        &["mkdir", "IMAGE", "/b"],
        &["replay", "IMAGE"],
        &["mkfs", "IMAGE"],
        &["mkfs", "-F", "IMAGE"],
        &["mkfs", "-F", "-d", text(&out), "IMAGE"],
        &["mount", "IMAGE", text(&out)],
        &["check", "IMAGE"],
    ];
    let try_all = |image: &Path, by: &str| {
        for command in commands {
            let line: Vec<&str> =
                command.iter().map(|w| if *w == "IMAGE" { text(image) } else { w }).collect();
            let code = if command[0] == "check" { 8 } else { 32 };
            let more: &[&str] = if command[0] == "check" { &["or use --mounted"] } else { &[] };
            let at = format!("is mounted at {}{by}", dir.display());
            let words = [text(image), &at, ": unmount it first"];
            refused(&line, code, &[&words, more].concat());
        }
    };
    let image = Image::mke2fs(scratch.path(), "extol.img", 32 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    try_all(&image.path, ":");
    assert_eq!(run_extol(&["check", "--mounted", text(&image.path)]).code, Some(0));
    mount.unmount();
    let image = Image::mke2fs(scratch.path(), "linux.img", 32 << 20, &["-t", "ext4"]);
    let device = LoopDevice::attach(&image.path);
    let mount = KernelMount::mount_device(device.path(), &dir, &[]);
    try_all(&image.path, ":");
    try_all(device.path(), ":");
    mount.unmount();
    // What the kernel only reads can be read.
    let mount = KernelMount::mount_device(device.path(), &dir, &["ro"]);
    assert!(extol_ok(&["ls", text(&image.path)]).contains("lost+found"));
    mount.unmount();
    device.detach();
    // fuse2fs locks nothing.
    if require(&[Need::Tool("fuse2fs")]) {
        let mount = Fuse2fsMount::start(&image.path, &dir, &[]);
        try_all(&image.path, " by fuse2fs (");
        mount.unmount();
        assert!(extol_ok(&["ls", text(&image.path)]).contains("lost+found"));
    }
}

/// Where a volume does not come to be, the file that was there stays as it is.
#[test]
fn a_volume_that_cannot_be_filled_replaces_nothing() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("large"), vec![7; 12 << 20]).unwrap();
    let image = Image::mke2fs(scratch.path(), "a.img", 8 << 20, &["-t", "ext4", "-L", "old"]);
    let path = text(&image.path);
    let before = (std::fs::read(&image.path).unwrap(), std::fs::metadata(&image.path).unwrap());
    refused(&["mkfs", "-d", text(&dir), path], 32, &[path, "-F overwrites it"]);
    let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), path]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains(&format!("{path}: is too small")), "{}", done.output);
    let after = std::fs::metadata(&image.path).unwrap();
    assert!(std::fs::read(&image.path).unwrap() == before.0, "the old volume was changed");
    assert_eq!((after.ino(), after.len()), (before.1.ino(), before.1.len()));
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // With room for it the new one takes the place, with the old one's mode; also by a link.
    std::os::unix::fs::symlink("a.img", scratch.join("link")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&image.path, mode).unwrap();
    let link = scratch.join("link");
    extol_ok(&["mkfs", "-q", "-F", "-d", text(&dir), text(&link), "64M"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let after = std::fs::metadata(&image.path).unwrap();
    assert_eq!((after.mode() & 0o7777, after.len()), (0o640, 64 << 20));
    assert!(extol_ok(&["ls", "-l", path]).contains("large"));
    // A file with two names is overwritten in place; then the loss is told.
    std::fs::hard_link(&image.path, scratch.join("other")).unwrap();
    let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), path, "8M"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains("what it held before is lost"), "{}", done.output);
}

/// A volume inside the directory that it is made of.
#[test]
fn an_image_does_not_go_into_itself_when_it_is_replaced() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("file"), "text").unwrap();
    let image = dir.join("a.img");
    extol_ok(&["mkfs", "-q", text(&image), "16M"]);
    let done = run_extol(&["mkfs", "-q", "-F", "-d", text(&dir), text(&image)]);
    assert!(done.success() && done.stderr.lines().count() == 1, "{}", done.output);
    assert!(done.stderr.contains("a.img: the image itself is left out"), "{}", done.output);
    assert_eq!(extol_ok(&["ls", "-a", text(&image)]), "file\nlost+found\n");
}

#[test]
fn an_attribute_that_is_too_large_is_named() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    let file = dir.join("file");
    std::fs::write(&file, "text").unwrap();
    let set = |name: &str, len: usize| {
        rustix::fs::setxattr(&file, name, &vec![b'x'; len], rustix::fs::XattrFlags::empty())
    };
    if set("user.large", 3000).is_err() {
        println!("SKIP: this file system keeps no attributes of 3000 bytes");
        return;
    }
    let image = scratch.join("a.img");
    for command in [
        &["mkfs", "-q", "-b", "1024", "-d", text(&dir), text(&image), "16M"][..],
        &["put", text(&image), text(&file), "/"],
    ] {
        if command[0] == "put" {
            extol_ok(&["mkfs", "-q", "-b", "1024", text(&image), "16M"]);
        }
        let named = [text(&file), "user.large", "3000 bytes", "blocks of 1024 bytes"];
        refused(command, 32, &named);
    }
    // Each fits, both do not.
    set("user.large", 500).unwrap();
    set("user.more", 600).unwrap();
    refused(&["put", text(&image), text(&file), "/"], 32, &["user.", "one block of 1024 bytes"]);
    let large = scratch.join("large.img");
    extol_ok(&["mkfs", "-q", "-b", "4096", "-d", text(&dir), text(&large), "16M"]);
}

#[test]
fn mkfs_says_what_is_wrong() {
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    let new = text(&path);
    for (options, words) in [
        ("-E strid=4", "did you mean \"stride=\"?"),
        ("-O has_journl", "did you mean \"has_journal\"?"),
        ("-O 64bti", "did you mean \"64bit\"?"),
        ("-J siz=4", "did you mean \"size=\"?"),
        ("-J size=0", "less than 1M"),
        ("-T smal", "did you mean \"small\"?"),
        ("-t etx4", "did you mean \"ext4\"?"),
        ("-N 0", "less than 1"),
        ("-E revision=2", "larger than 1"),
        ("-g 99M", "blocks per group"),
    ] {
        let line: Vec<&str> =
            ["mkfs"].into_iter().chain(options.split(' ')).chain([new, "16M"]).collect();
        refused(&line, 1, &[words]);
        assert!(!path.exists(), "{options}");
    }
    // Too small is one line.
    for size in ["0", "1s", "4K", "10K"] {
        refused(&["mkfs", new, size], 1, &["give a larger SIZE"]);
        assert!(!path.exists(), "{size}");
    }
    extol_ok(&["mkfs", "-q", "-E", "revision=1", "-g", "8K", new, "16M"]);
    assert!(extol_ok(&["info", "-h", new]).contains("Blocks per group:         8192"));
    let done = run_extol(&["mkfs", "-q", "-F", "-b", "8192", new]);
    assert!(done.success() && done.stderr.contains("warning: blocks of 8192 bytes"), "{done:?}");
}

/// A label that is no text is shown the same way everywhere, and can be given.
#[test]
fn labels_that_are_no_text() {
    let scratch = Scratch::new();
    let path = scratch.join("a.img");
    let image = text(&path);
    let label = std::ffi::OsStr::from_bytes(b"a\xffb");
    run_ok(extol().args(["mkfs", "-q", "-L"]).arg(label).args([image, "16M"]));
    let shown = "a\\xffb";
    assert!(extol_ok(&["info", image]).contains(shown));
    assert!(extol_ok(&["info", "-h", image]).contains(shown));
    assert!(extol_ok(&["info", "--json", image]).contains("a\\\\xffb"));
    refused(&["mkfs", image], 32, &[shown]);
    let long = std::ffi::OsStr::from_bytes(b"\xff23456789-1234567");
    let done = run(extol().args(["mkfs", "-q", "-F", "-L"]).arg(long).arg(&path), LIMIT);
    assert!(done.stderr.contains("'\\xff23456789-123456'"), "{}", done.output);
}

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
