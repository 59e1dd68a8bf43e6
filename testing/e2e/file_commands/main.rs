//! The commands that change files of a volume that is not mounted do what the same commands of
//! coreutils and attr do on a mount by the kernel.

mod scripts;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use extol_testkit::{
    Image, KernelMount, Need, Scratch, Tree, as_user, e2fsck, extol, extol_ok, extol_path, require,
    run, run_ok, text, tool,
};

use scripts::edit;

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
];
const MIB: u64 = 1 << 20;

/// What the commands work on.
fn make_files(root: &Path) {
    let sh = |script: &str| {
        run_ok(tool("sh").args(["-ec", script]).current_dir(root));
    };
    sh("mkdir -p etc dir/sub/deep full/of/names sgid; chmod 2775 sgid; chown 5:6 sgid");
    sh("printf 'root:x:0:0::/:/bin/sh\nada:x:1000:100::/:\n' > etc/passwd");
    sh("printf 'root:x:0:\nusers:x:100:\n' > etc/group");
    sh("for n in 1 2 3; do echo text $n > dir/$n; echo $n > full/of/names/$n; done");
    sh("head -c 100000 /dev/urandom > data; ln data dir/sub/same; ln -s data link");
    sh("ln -s dir dirlink; ln -s /nowhere dir/dangling; mkfifo dir/pipe");
    sh("echo suid > suid; chmod 6755 suid; setfattr -n user.a -v one suid; echo x > acl");
    sh("setfacl -m u:7:rw acl; cp data big; chmod 640 big; mkdir empty; touch old; echo 1 > one");
    sh("echo caps > caps; setfattr -n security.capability \
        -v 0x0100000200200000000000000000000000000000 caps; echo a > ida; ln ida idb");
    sh("find . -exec touch -h -d '2020-02-02 02:02:02.5 UTC' {} +");
}

/// Commands, with `@` where a path of the volume begins.
const COMMANDS: &[&str] = &[
    "mv @/one @/uno",
    "mv @/uno @/dir",
    "mv -n @/acl @/big",
    "mv @/full/of @/dir/sub/deep @/empty",
    "mv -T @/old @/older",
    "mv @/older @/dirlink",
    "mv -f @/dir/1 @/dir/2",
    "ln @/data @/hard",
    "ln -s target/of/it @/soft",
    "ln -s some/text more/thing @/dir",
    "ln -sf changed @/soft",
    "ln -f @/data @/dir/3",
    "ln -sfn elsewhere @/dirlink",
    "ln @/link @/linklink",
    "ln -sT x @/empty/x",
    "mkdir @/sgid/made",
    "mkdir -p @/p/q/r",
    "mkdir -m 700 @/sgid/private",
    "mkdir -p -m 1777 @/m/n/o",
    "mkdir -m o-rwx @/m/group",
    "touch @/sgid/file @/p/new",
    "touch -d 2024-01-31T12:00:00.123456789Z @/data",
    "touch -a -d @1000 @/big",
    "touch -m -d @-1.5 @/big",
    "touch -h -d @5 @/link",
    "touch -c @/missing",
    "touch -t 202402291230.15 @/p/q",
    "touch -r @/data @/p/q/r",
    "chmod 755 @/sgid",
    "chmod -R u=rwX,go=rX @/empty",
    "chmod u+x,o-r @/link",
    "chmod g+ws @/dir",
    "chmod 0 @/p/new",
    "chmod 777 @/acl",
    "chown 1000:1001 @/suid @/caps",
    "chown -R 7:8 @/dir",
    "chown :9 @/link",
    "chown -h 3 @/soft",
    "truncate -s 12345 @/data",
    "truncate -s +1M @/big",
    "truncate -s 0 @/dir/3",
    "truncate -s %4K @/p/new",
    "truncate -s 5G @/sparse",
    "truncate -c -s 5 @/missing",
    "mknod -m 666 @/null c 1 3",
    "mknod @/disk b 259 70000",
    "mknod -m u=rw,go= @/fifo p",
    "setfattr -n user.b -v \"two\\040words\" @/suid",
    "setfattr -n user.c -v 0x00ff @/suid @/dir",
    "setfattr -n trusted.d -v 0sAAEC @/data",
    "setfattr -x user.a @/suid",
    "rm @/hard",
    "rm -rf @/full @/missing",
];

/// One command, for the mount at `root` and for the image.
fn both(command: &str, root: &Path, image: &Image) -> (Vec<String>, Vec<String>) {
    let words = |path: &str| command.split(' ').map(|word| word.replacen('@', path, 1)).collect();
    let kernel: Vec<String> = words(text(root));
    // (A time has the sign, too.)
    let kernel = match command.contains("-d @") {
        false => kernel,
        true => kernel.iter().map(|w| as_time(w, root)).collect(),
    };
    let mut ours: Vec<String> = words("");
    if command.contains("-d @") {
        ours = ours.iter().zip(command.split(' ')).map(|(w, typed)| kept_time(w, typed)).collect();
    }
    if ours[0] == "setfattr" {
        ours[0] = "setxattr".into();
    }
    ours.insert(1, text(&image.path).into());
    (kernel, ours)
}

fn as_time(word: &str, root: &Path) -> String {
    match word.strip_prefix(text(root)) {
        Some(rest) if !rest.starts_with('/') => format!("@{rest}"),
        _ => word.to_owned(),
    }
}

fn kept_time(word: &str, typed: &str) -> String {
    if typed.starts_with('@') && !typed.starts_with("@/") { typed.into() } else { word.into() }
}

/// A tree without the times of what was changed since `start`.
fn settled(root: &Path, start: i64) -> Tree {
    let mut tree = Tree::of(root);
    for node in tree.nodes.values_mut() {
        if node.mtime.0 >= start {
            node.mtime = (0, 0);
        }
    }
    tree
}

fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    i64::try_from(now).expect("a time")
}

#[test]
fn as_the_same_commands_on_a_kernel_mount() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    make_files(&source);
    let (ours_dir, linux_dir) = (scratch.dir("ours"), scratch.dir("linux"));
    for features in ["^fast_commit", "inline_data", "^extents,^64bit,^metadata_csum"] {
        let args = ["-t", "ext4", "-O", features];
        let ours = Image::mke2fs(scratch.path(), "ours.img", 96 * MIB, &args);
        let mount = KernelMount::mount(&ours, &ours_dir, &[]);
        run_ok(tool("cp").arg("-a").arg(source.join(".")).arg(mount.path()));
        mount.unmount();
        let (linux, edited) = (ours.copy_as("linux.img"), ours.copy_as("edited.img"));
        let mut script = String::new();
        let start = seconds() - 1;
        let mount = KernelMount::mount(&linux, &linux_dir, &[]);
        for command in COMMANDS {
            let (kernel, extol_words) = both(command, mount.path(), &ours);
            let done =
                run(tool(&kernel[0]).args(&kernel[1..]).env("TZ", "UTC"), Duration::from_secs(20));
            assert_eq!(done.code, Some(0), "{kernel:?}: {}", done.output);
            let done = run(extol().args(&extol_words), Duration::from_secs(20));
            assert_eq!(done.code, Some(0), "{extol_words:?}: {}", done.output);
            assert_eq!(done.output, "", "{extol_words:?}");
            let quoted = |word: &String| format!("'{word}'");
            let (verb, words) = (&extol_words[0], &extol_words[2..]);
            script +=
                &format!("{verb} {}\n", words.iter().map(quoted).collect::<Vec<_>>().join(" "));
        }
        let expected = settled(mount.path(), start);
        mount.unmount();
        // All of them once more, as one script.
        let done = edit(&edited, &script);
        assert_eq!((done.code, &*done.output), (Some(0), ""), "{script}");
        for image in [&ours, &edited] {
            e2fsck(image).assert_clean("after the commands");
            let mount = KernelMount::mount(image, &ours_dir, &["ro"]);
            let found = settled(mount.path(), start);
            let names = |tree: &Tree| tree.nodes.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected));
            for (name, node) in &expected.nodes {
                let what = format!("{} on {} with {features}", name.display(), text(&image.path));
                assert_eq!(found.nodes.get(name), Some(node), "{what}");
            }
            // Access times, which the tree leaves out.
            let big = mount.path().join("big").metadata().expect("big");
            assert_eq!((big.atime(), big.atime_nsec()), (1000, 0));
            mount.unmount();
        }
        // Names of users are those of the volume.
        extol_ok(&["chown", text(&ours.path), "ada:", "/big"]);
        let listed = extol_ok(&["ls", "-l", text(&ours.path), "/big"]);
        assert!(listed.contains(" 1000   100 "), "{listed}");
        let read = extol_ok(&["getxattr", text(&ours.path), "/suid", "/acl"]);
        assert!(read.contains("user.b=\"two words\"\nuser.c=0sAP8=\n"), "{read}");
        assert!(read.contains("system.posix_acl_access=0s"), "{read}");
        ours.remove();
        linux.remove();
        edited.remove();
    }
}

/// What fails says why in one line, and leaves the volume as it was.
#[test]
fn what_fails_changes_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    make_files(&source);
    let image = Image::mke2fs(scratch.path(), "a.img", 64 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    extol_ok(&["put", path, text(&source), "/"]);
    let before = extol_ok(&["ls", "-R", "--json", path]);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["mv", "/source/dir", "/source/dir/sub"], 32, "into itself"),
        (&["mv", "/missing", "/x"], 32, "/missing: no such file"),
        (&["mv", "/source/one", "/source/big", "/source/data"], 32, "no directory"),
        (&["mv", "/source/one", "/source/one"], 32, "the same file"),
        (&["mv", "/source/ida", "/source/idb"], 32, "the same file"),
        (&["mv", "-T", "/source/empty", "/source/dir"], 32, "not empty"),
        (&["mv", "-T", "/source/one", "/source/dir"], 32, "one: is no directory, and /source/dir"),
        (&["mv", "-T", "/source/dir", "/source/one"], 32, "dir: is a directory, and /source/one"),
        (&["mv", "/source/one", "/no/where"], 32, "/no/where: no such file"),
        (&["mv", "/source/one"], 1, "only one path is given: what to move, and where to, are"),
        (&["ln", "/source/one"], 1, "only one path is given: the target, and the name of the link"),
        (&["ln", "--owner", "1:1", "/source/one", "/hard"], 1, "--symbolic"),
        (&["mkdir", "-m", "9", "/z"], 1, "bad mode"),
        (&["mkdir", "--owner", ":", "/z"], 1, "bad owner"),
        (&["mkdir", "--owner", "eve", "/z"], 32, "no user \"eve\""),
        (&["touch", "--owner", "eve", "/z"], 32, "no user \"eve\""),
        (&["mknod", "--owner", "eve", "/z", "p"], 32, "no user \"eve\""),
        (&["mv", "-T", "/source/one", "/source/big", "/z"], 1, "-T takes two names, and /z"),
        (&["put", "-", "/source"], 32, "standard input: has no name to have in /source"),
        (&["put", "-", "/z/"], 32, "standard input: has no name to have in /z/"),
        (&["put", "-", "/no/where"], 32, "/no/where: on the volume: no such file"),
        (&["ln", "/source/dir", "/hard"], 32, "use -s"),
        (&["ln", "/source/one", "/source/big"], 32, "exists"),
        (&["ln", "-s", "x", "/source/big"], 32, "/source/big: file exists"),
        (&["chmod", "9", "/source"], 1, "bad mode"),
        (&["chmod", "u+q", "/source"], 1, "bad mode"),
        (&["chmod", "755", "/missing"], 32, "/missing: no such file"),
        (&["chown", "eve", "/source"], 32, "no user \"eve\""),
        (&["chown", "4294967295", "/source"], 1, "bad id"),
        (&["touch", "-d", "tomorrow", "/source"], 1, "bad date"),
        (&["touch", "/no/where"], 32, "no such file"),
        (&["truncate", "-s", "1Q", "/source/one"], 1, "bad size"),
        (&["truncate", "-s", "1E", "/source/one"], 32, "too large"),
        (&["truncate", "-s", "0", "/source"], 32, "is a directory"),
        (&["mknod", "/x", "c", "1"], 1, "needs MAJOR and MINOR"),
        (&["mknod", "/x", "q"], 1, "bad type"),
        (&["mknod", "/source/one", "p"], 32, "exists"),
        (&["setxattr", "-n", "frob", "/source"], 1, "must begin with"),
        (&["setxattr", "-x", "user.none", "/source/one"], 32, "no such attribute"),
        (&["setxattr", "-n", "user.x", "-v", "0x1", "/source/one"], 1, "no value"),
        (&["getxattr", "-n", "user.none", "/source/one"], 32, "no such attribute"),
        (&["getxattr", "-e", "frob", "/source/one"], 1, "no coding"),
        (&["put", "--mode", "frob", "/etc/hostname", "/"], 1, "bad mode"),
        (&["put", "--owner", ":", "/etc/hostname", "/"], 1, "bad owner"),
    ];
    for (words, code, line) in cases {
        let mut words = words.to_vec();
        words.insert(1, path);
        let done = run(extol().args(&words), Duration::from_secs(20));
        assert_eq!(done.code, Some(*code), "{words:?}: {}", done.output);
        let lines = done.output.lines().count();
        assert!(done.output.contains(line) && lines == 1, "{words:?}: {}", done.output);
    }
    assert_eq!(extol_ok(&["ls", "-R", "--json", path]), before);
    e2fsck(&image).assert_clean("after the failures");
}

/// A put that finds the volume full leaves no part of a file, and no block taken.
#[test]
fn a_full_volume_gets_no_half_file() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let tree = scratch.dir("tree");
    std::fs::write(tree.join("a"), vec![1; MIB as usize]).expect("a file");
    std::fs::write(tree.join("b"), vec![2; 40 * MIB as usize]).expect("a file");
    std::fs::write(tree.join("c"), vec![3; MIB as usize]).expect("a file");
    let free = || {
        let info: serde_json::Value =
            serde_json::from_str(&extol_ok(&["info", "--json", path])).expect("JSON");
        info["free_blocks"].as_u64().expect("a number")
    };
    let before = free();
    for over in [false, true] {
        if over {
            let old = scratch.path().join("old");
            std::fs::write(&old, "old").expect("a file");
            extol_ok(&["put", path, text(&old), "/tree/b"]);
        }
        let done = run(extol().args(["put", path, text(&tree), "/"]), Duration::from_secs(60));
        assert_eq!(done.code, Some(32), "{}", done.output);
        assert!(done.output.contains("tree/b: no space"), "{}", done.output);
        let listed = extol_ok(&["ls", path, "/tree"]);
        let expected = if over { "a\nb\nc\n" } else { "a\nc\n" };
        assert_eq!(listed, expected, "over: {over}");
        e2fsck(&image).assert_clean("after a failed put");
        if over {
            assert_eq!(extol_ok(&["cat", path, "/tree/b"]), "old");
        }
    }
    extol_ok(&["rm", "-r", path, "/tree"]);
    assert_eq!(free(), before);
}

#[test]
fn put_sets_owner_and_mode() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let tree = scratch.dir("tree");
    std::fs::create_dir(tree.join("sub")).expect("a directory");
    std::fs::write(tree.join("sub/file"), "text").expect("a file");
    run_ok(tool("chmod").args(["600"]).arg(tree.join("sub/file")));
    let options = ["--owner", "12:34", "--mode", "u=rwX,go=rX", "-r", "--progress"];
    let done = extol_ok(&[&["put"], &options[..], &[path, text(&tree), "/"]].concat());
    assert!(done.contains("1 file, 0 MiB copied"), "{done}");
    let listed = extol_ok(&["ls", "-lR", path, "/tree"]);
    assert!(listed.contains("-rw-r--r--   1    12    34"), "{listed}");
    assert!(listed.contains("drwxr-xr-x   2    12    34"), "{listed}");
}

/// What is made belongs to root, whichever user makes it, unless an option says otherwise; a
/// directory with the setgid bit gives its group.
#[test]
fn what_is_made_belongs_to_root_unless_an_option_says_otherwise() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    make_files(&source);
    let size = &["-t", "ext4", "-d", text(&source)];
    let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, size);
    let path = text(&image.path);
    run_ok(tool("chmod").args(["755"]).arg(scratch.path()));
    run_ok(tool("chown").args(["1000:1000", path]));
    let lines = [
        "mkdir @/new",
        "mkdir -p --owner ada: -m 2750 @/home/ada",
        "mknod @/new/null c 1 3",
        "mknod --owner 0:100 @/new/tty c 5 0",
        "ln -s target @/new/link",
        "ln -s --owner 3:4 target @/new/owned",
        "ln -sf --owner 5 target @/new/link",
        "touch @/new/file @/sgid/file",
        "touch --owner ada:users @/new/file @/home/ada/file",
        "touch --owner 7:8 @/sgid/other",
        "truncate -s 5 @/new/long",
        "truncate -s 5 --owner :9 @/new/longer",
        "mkdir @/sgid/dir",
    ];
    let expected = [
        ("/new", "drwxr-xr-x", 0, 0),
        ("/home", "drwxr-xr-x", 1000, 100),
        ("/home/ada", "drwxr-s---", 1000, 100),
        ("/home/ada/file", "-rw-r--r--", 1000, 100),
        ("/new/null", "crw-r--r--", 0, 0),
        ("/new/tty", "crw-r--r--", 0, 100),
        ("/new/link", "lrwxrwxrwx", 5, 0),
        ("/new/owned", "lrwxrwxrwx", 3, 4),
        ("/new/file", "-rw-r--r--", 0, 0),
        ("/new/long", "-rw-r--r--", 0, 0),
        ("/new/longer", "-rw-r--r--", 0, 9),
        ("/sgid/file", "-rw-r--r--", 0, 6),
        ("/sgid/other", "-rw-r--r--", 7, 8),
        ("/sgid/dir", "drwxr-sr-x", 0, 6),
    ];
    let owners = |what: &str| {
        for (file, mode, uid, gid) in expected {
            let listed = extol_ok(&["ls", "-ld", path, file]);
            let words: Vec<_> = listed.split_whitespace().take(4).collect();
            let (uid, gid) = (uid.to_string(), gid.to_string());
            assert_eq!(words[0], mode, "{what}: {file}: {listed}");
            assert_eq!(words[2..], [&*uid, &*gid], "{what}: {file}: {listed}");
        }
        e2fsck(&image).assert_clean(what);
    };
    let untouched = std::fs::read(&image.path).expect("the image");
    as_user(1000, 1000, &[], 0o22, || {
        for line in lines {
            let mut words: Vec<_> = line.split(' ').map(|w| w.trim_start_matches('@')).collect();
            words.insert(1, path);
            extol_ok(&words);
        }
    });
    owners("one by one");
    std::fs::write(&image.path, untouched).expect("the image");
    let script = scratch.path().join("script");
    std::fs::write(&script, lines.join("\n").replace('@', "")).expect("a script");
    as_user(1000, 1000, &[], 0o22, || {
        extol_ok(&["edit", "-f", text(&script), path]);
    });
    owners("as a script");
}

/// `dir/.` is what is in a directory, as for cp(1), hidden names as well.
#[test]
fn a_directory_with_a_dot_is_what_is_in_it() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let tree = scratch.dir("tree");
    std::fs::create_dir(tree.join("sub")).expect("a directory");
    std::fs::write(tree.join(".hidden"), "text").expect("a file");
    let names = [".hidden", "sub"];
    extol_ok(&["mkdir", path, "/z"]);
    extol_ok(&["put", path, text(&tree.join(".")), "/z"]);
    extol_ok(&["put", path, text(&tree.join("sub/../")), "/new"]);
    let mut inside = extol();
    run_ok(inside.current_dir(&tree).args(["put", path, ".", "/"]));
    for dir in ["/z", "/new", "/"] {
        let listed = extol_ok(&["ls", "-a", path, dir]);
        let listed: Vec<&str> = listed.lines().filter(|name| names.contains(name)).collect();
        assert_eq!(listed, names, "{dir}");
    }
    let there = scratch.dir("there");
    for (source, out) in [("/z/.", there), ("z/./", scratch.join("made"))] {
        extol_ok(&["cp", path, source, text(&out)]);
        let mut copied: Vec<_> = std::fs::read_dir(&out).expect("copied").flatten().collect();
        copied.sort_by_key(std::fs::DirEntry::file_name);
        let copied: Vec<_> = copied.iter().map(std::fs::DirEntry::file_name).collect();
        assert_eq!(copied, names, "{source}");
    }
    e2fsck(&image).assert_clean("filled");
}

/// A directory that cannot be read is reported, and has its mode all the same.
#[test]
fn a_directory_that_cannot_be_read_keeps_its_mode() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let tree = scratch.dir("tree");
    std::fs::create_dir(tree.join("closed")).expect("a directory");
    run_ok(tool("chmod").arg("711").arg(tree.join("closed")));
    run_ok(tool("chmod").arg("755").args([scratch.path(), tree.as_path()]));
    run_ok(tool("chmod").args(["666", path]));
    let mut user = tool("setpriv");
    user.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    user.arg(extol_path()).args(["put", path, text(&tree), "/"]);
    let done = run(&mut user, Duration::from_secs(20));
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.output.contains("closed: Permission denied"), "{}", done.output);
    let listed = extol_ok(&["ls", "-l", path, "/tree"]);
    assert!(listed.starts_with("drwx--x--x "), "{listed}");
    e2fsck(&image).assert_clean("put");
}
