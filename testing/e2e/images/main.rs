//! Volumes built from files: what Linux reads back is what went in, the same files give the same
//! bytes, and the size is what the files need.

mod archives;
mod hosts;
mod metadata;

use extol_testkit::{
    Image, KernelMount, Need, Scratch, Tree, TreeSpec, as_user, debugfs, e2fsck, extol, extol_ok,
    extol_path, make_tree, refused, require, run, run_extol, run_ok, text, tool,
};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt};
use std::path::Path;

const LINUX: [Need; 4] = [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("e2fsck")];

/// What Linux sees on an image.
fn read_back(scratch: &Scratch, image: &Path) -> Tree {
    let dir = scratch.dir("mnt");
    let mount = KernelMount::mount(&Image::existing(image), &dir, &["ro"]);
    let tree = Tree::of(&dir);
    mount.unmount();
    tree
}

/// A tree without what is the image's own: owner and mode of the root directory.
fn below_root(mut tree: Tree) -> Tree {
    tree.nodes.remove(Path::new(""));
    tree
}

#[test]
fn linux_reads_back_what_went_in() {
    if !require(&LINUX) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    make_tree(&dir, &TreeSpec { large: 9 << 20, sparse_to: 300 << 20, ..TreeSpec::small(7) });
    let before = below_root(Tree::of(&dir));
    let image = scratch.join("a.img");
    for (options, size) in [
        ("", Some("64M")),
        ("", None),
        ("--free 0", None),
        ("-b 1024", None),
        ("-b 2048 -t ext3", None),
        ("-t ext2 -b 4096", None),
        ("-O ^has_journal,^metadata_csum,^64bit", None),
        ("-O fast_commit,inline_data -I 512", None),
        ("-O meta_bg,^resize_inode -b 1024", Some("100M")),
        ("-O ^flex_bg -g 8192 --free 20M", None),
        ("-O sparse_super2,mmp,project", None),
        ("-E packed_meta_blocks=1 --threads 1", None),
        ("-O ^extent,^64bit --threads 8", None),
    ] {
        let _ = std::fs::remove_file(&image);
        let mut words = vec!["mkfs", "-q", "-d", text(&dir)];
        words.extend(options.split_whitespace());
        words.push(text(&image));
        words.extend(size);
        extol_ok(&words);
        e2fsck(&Image::existing(&image)).assert_clean(options);
        extol_ok(&["check", text(&image)]);
        let after = below_root(read_back(&scratch, &image));
        before.assert_same(&after, "the directory", &format!("the image ({options})"));
        // Holes stay holes on the host.
        let host = std::fs::metadata(&image).unwrap();
        assert!(host.blocks() * 512 < 40 << 20, "{options}: {} sectors", host.blocks());
    }
}

/// The same options for both: the same files, by Linux, and the same superblock fields that matter.
#[test]
fn beside_mke2fs() {
    if !require(&LINUX) || !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    make_tree(&dir, &TreeSpec::small(3));
    let (ours, theirs) = (scratch.join("ours.img"), scratch.join("theirs.img"));
    for options in ["-b 4096", "-b 1024", "-t ext3 -b 2048", "-t ext2"] {
        let words: Vec<&str> = options.split(' ').collect();
        for path in [&ours, &theirs] {
            let _ = std::fs::remove_file(path);
        }
        extol_ok(&[&["mkfs", "-q", "-d", text(&dir)], &words[..], &[text(&ours), "80M"]].concat());
        run_ok(
            tool("mke2fs").args(["-q", "-F", "-d"]).arg(&dir).args(&words).arg(&theirs).arg("80M"),
        );
        let (a, b) = (read_back(&scratch, &ours), read_back(&scratch, &theirs));
        // mke2fs 1.47.0 keeps 32 bits of a time, and no nanoseconds.
        let same = |mut tree: Tree| {
            tree.nodes.values_mut().for_each(|n| n.mtime = (i64::from(n.mtime.0 as u32), 0));
            below_root(tree)
        };
        same(a).assert_same(&same(b), "extol", &format!("mke2fs ({options})"));
        // Files in one piece.
        let map = debugfs(&Image::existing(&ours), "ex /large\n");
        assert!(options.contains("ext") || map.lines().count() <= 6, "{map}");
    }
}

/// Two directories with other inode numbers, orders and holes; other users; other threads.
#[test]
fn the_same_files_give_the_same_bytes() {
    if !require(&[Need::Root]) {
        return;
    }
    let scratch = Scratch::new();
    let (first, second) = (scratch.dir("first"), scratch.dir("second"));
    for n in 0..300 {
        std::fs::create_dir_all(first.join(format!("d{}", n % 7))).unwrap();
        std::fs::write(first.join(format!("d{}/f{n}", n % 7)), vec![n as u8; n * 50]).unwrap();
    }
    let sparse = std::fs::File::create(first.join("sparse")).unwrap();
    sparse.write_at(b"data", 40 << 20).unwrap();
    sparse.set_len(60 << 20).unwrap();
    std::fs::write(first.join("zeros"), vec![0; 1 << 20]).unwrap();
    std::os::unix::fs::symlink("sparse", first.join("link")).unwrap();
    // Made in another order, and with all holes written.
    let mut names: Vec<_> = std::fs::read_dir(&first).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    for name in names.iter().rev() {
        run_ok(tool("cp").args(["-a", "--sparse=never"]).arg(name).arg(&second));
    }
    let time = std::fs::metadata(&first).unwrap().modified().unwrap();
    std::fs::File::open(&second).unwrap().set_modified(time).unwrap();
    let (a, b) = (scratch.join("a.img"), scratch.join("b.img"));
    let build = |dir: &Path, image: &Path, words: &[&str]| {
        let _ = std::fs::remove_file(image);
        extol_ok(&[&["mkfs", "-q", "-d", text(dir)], words, &[text(image)]].concat());
        std::fs::read(image).unwrap()
    };
    for words in [&[][..], &["-b", "1024", "--free", "0"], &["-t", "ext3", "-L", "root"]] {
        let one = build(&first, &a, words);
        let two = build(&second, &b, &[words, &["--threads", "1"]].concat());
        assert!(one == two, "{words:?}");
        assert!(one == build(&first, &a, &[words, &["--threads", "8"]].concat()), "{words:?}");
    }
    assert!(build(&first, &a, &[]) != build(&first, &b, &["-L", "other"]));
    // Times of files, and the environment.
    let mut command = extol();
    std::fs::remove_file(&a).unwrap();
    command.args(["mkfs", "-q", "--clamp-mtime", "-d"]).arg(&first).arg(&a);
    run_ok(command.env("SOURCE_DATE_EPOCH", "1000000000"));
    let listed = extol_ok(&["ls", "-l", text(&a)]);
    assert!(listed.contains("2001-09-09"), "{listed}");
    // An ordinary user gives the files to root.
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let by_root = build(&first, &a, &["--owner", "0:0"]);
    let extol = extol_path().to_owned();
    let _ = std::fs::remove_file(&b);
    let by_user = as_user(1234, 1234, &[], 0o022, || {
        let mut command = std::process::Command::new(extol);
        command.args(["mkfs", "-q", "--owner", "0:0", "-d"]).arg(&first).arg(&b);
        run_ok(&mut command);
        std::fs::read(&b).unwrap()
    });
    assert!(by_root == by_user);
}

/// What the guide says of memory, for trees that differ in the number of their files.
#[test]
fn memory_stays_within_its_bound() {
    const BASE: u64 = 100 << 20;
    const A_FILE: u64 = 200;
    if !require(&[Need::Tool("python3")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("a.img");
    // The largest resident set of a process, which only its parent is told.
    let script = "import resource, subprocess, sys\n\
        subprocess.run(sys.argv[1:], check=True)\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)";
    let used = |words: &[&str]| -> u64 {
        let told = run_ok(tool("python3").args(["-c", script]).arg(extol_path()).args(words));
        told.trim().parse().unwrap()
    };
    for files in [0, 2_000, 100_000] {
        let dir = scratch.dir(&format!("of-{files}"));
        for n in 0..files {
            if n % 1000 == 0 {
                std::fs::create_dir(dir.join(format!("d{}", n / 1000))).unwrap();
            }
            std::fs::write(dir.join(format!("d{}/a-file-{n}", n / 1000)), "").unwrap();
        }
        std::fs::write(dir.join("large"), vec![7; 48 << 20]).unwrap();
        let used = used(&["mkfs", "-q", "-F", "-d", text(&dir), text(&image)]);
        assert!(used < BASE + A_FILE * files, "{files} files: {used} bytes");
        std::fs::remove_file(&image).unwrap();
    }
}

/// SIZE left out: as the files need, with what is to stay free.
#[test]
fn the_size_is_what_the_files_need() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("large"), vec![7; 20 << 20]).unwrap();
    std::fs::write(dir.join("zeros"), vec![0; 20 << 20]).unwrap();
    let image = scratch.join("a.img");
    let mut last = 0;
    for (free, least) in [("0", 0), ("10%", 2 << 20), ("64M", 64 << 20), ("400M", 400 << 20)] {
        let _ = std::fs::remove_file(&image);
        let made = extol_ok(&["mkfs", "--json", "-d", text(&dir), "--free", free, text(&image)]);
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        let number = |name: &str| made[name].as_u64().unwrap();
        assert!(number("free_blocks") * 4096 >= least, "{made}");
        assert!(number("free_blocks") * 4096 < least + (1 << 20), "{made}");
        let size = std::fs::metadata(&image).unwrap().len();
        assert_eq!(size, number("blocks") * 4096);
        assert!(size > last && size < (32 << 20) + least + (least >> 4), "{size}");
        assert_eq!(made["contents"]["data_bytes"], 20 << 20);
        let dry = ["mkfs", "-n", "-F", "--json", "-d", text(&dir), "--free", free, text(&image)];
        let dry: serde_json::Value = serde_json::from_str(&extol_ok(&dry)).unwrap();
        assert_eq!(dry, made, "a dry run says the same");
        last = size;
    }
    // By default a new file and an old image have a little room; a file of zeros keeps its size.
    let new = scratch.join("new.img");
    for image in [&new, &image] {
        extol_ok(&["mkfs", "-q", "-F", "-d", text(&dir), text(image)]);
    }
    assert!(std::fs::read(&new).unwrap() == std::fs::read(&image).unwrap());
    std::fs::File::create(&new).unwrap().set_len(last).unwrap();
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&new)]);
    assert_eq!(std::fs::metadata(&new).unwrap().len(), last);
    extol_ok(&["mkfs", "-q", "-F", "--free", "0", "-d", text(&dir), text(&image)]);
    assert!(std::fs::metadata(&image).unwrap().len() < 26 << 20);
    extol_ok(&["check", text(&image)]);
    // Too small: the size that is not, which then does.
    let small = scratch.join("small.img");
    let done = run_extol(&["mkfs", "-q", "-d", text(&dir), text(&small), "16M"]);
    assert_eq!(done.code, Some(32), "{}", done.output);
    let size = done.stderr.split("at least ").nth(1).and_then(|rest| rest.split('B').next());
    let size = format!("{}B", size.expect("a size"));
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&small), &size]);
    extol_ok(&["check", text(&small)]);
}

#[test]
fn mistakes_are_named_and_leave_nothing() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("file"), "x").unwrap();
    let image = scratch.join("a.img");
    let (dir, new) = (text(&dir), text(&image));
    for (words, code, needles) in [
        (&["--free", "5%", "10M"][..], 1, &["--free", "SIZE"][..]),
        (&["--free", "x"], 1, &["\"x\""]),
        (&["--free", "-5%"], 1, &["negative"]),
        (&["--clamp-mtime"], 1, &["--clamp-mtime needs a time", "SOURCE_DATE_EPOCH"]),
        (&["--mtime", "yesterday"], 1, &["--mtime yesterday"]),
        (&["--owner", "root"], 1, &["--owner root", "numbers"]),
        (&["--owner", "0:4294967295"], 1, &["4294967295 means no owner"]),
        (&["--mtime", "2500-01-01"], 1, &["--mtime 2500-01-01", "2446-05-10"]),
        (&["--mtime", "@-9999999999"], 1, &["1901-12-13"]),
        (&["--free", "900P"], 1, &["are more free space than", "-i"]),
        (&["--platform", "linux/arm64"], 1, &["--platform chooses a container image"]),
        (&["--spool", "/tmp"], 1, &["--spool", "is a directory of files"]),
        (&["-d", "other"], 1, &["-d other", "one source only"]),
        (&["--map-users", "0:0"], 1, &["--map-users 0:0"]),
        (&["--map-users", "4000000:0:1"], 32, &["--map-users"]),
        (&["--chmod", "q+x"], 1, &["q+x"]),
        (&["--threads", "9"], 1, &["larger than 8"]),
        (&["-O", "journal_dev"], 1, &["a journal device cannot hold files"]),
    ] {
        // SIZE comes behind the target.
        let (size, options): (Vec<&str>, Vec<&str>) = words.iter().partition(|w| w.ends_with("0M"));
        let line = [&["mkfs", "-d", dir], &options[..], &[new], &size[..]].concat();
        refused(&line, code, needles);
        assert!(!image.exists(), "{words:?}");
    }
    refused(&["mkfs", "--owner", "0:0", new, "10M"], 1, &["-d"]);
    let volume = scratch.join("volume.img");
    extol_ok(&["mkfs", "-q", text(&volume), "8M"]);
    let needles = ["is an ext4 file system", "extol tar"];
    refused(&["mkfs", "-d", text(&volume), new], 1, &needles);
    assert!(!image.exists());
    // What is no source is named.
    let other = scratch.join("other");
    let neither = "neither a directory, a tar archive nor a container image";
    for (bytes, needles) in [
        (&b"/dev/console c 600\n"[..], &["is neither a directory"][..]),
        (&[b'#'; 3000], &["is neither a directory"]),
        (b"XFSB and more", &["is an XFS file system", neither]),
        (b"hsqs and more", &["is a squashfs file system", neither]),
        (b"PK\x03\x04 and more", &["is a zip archive (unpack it first)", neither]),
        (b"QFI\xFB and more", &["is a qcow2 image", "extol tar"]),
    ] {
        std::fs::write(&other, bytes).unwrap();
        refused(&["mkfs", "-d", text(&other), new], 1, needles);
        assert!(!image.exists(), "{needles:?}");
    }
    std::fs::write(&other, [&[0; 2000][..], b"x"].concat()).unwrap();
    refused(&["mkfs", "-d", text(&other), new], 32, &["is no tar archive: it begins with zeros"]);
    // Nor is a volume lost because its first superblock is.
    extol_ok(&["mkfs", "-q", "-F", "-b", "1024", text(&volume), "16M"]);
    let damaged = std::fs::File::options().write(true).open(&volume).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&damaged, &[0; 2048], 0).unwrap();
    drop(damaged);
    for words in [&["mkfs", text(&volume)][..], &["mkfs", "-d", dir, text(&volume)]] {
        refused(words, 32, &["whose first superblock is damaged", "-F"]);
    }
    refused(&["log", "-o", "sb=5", text(&volume)], 32, &["no superblock 5 KiB"]);
    assert!(extol_ok(&["log", "-o", "sb=8193", text(&volume)]).contains("journal:"));
    refused(&["replay", "-o", "sb=8193", text(&volume)], 1, &["-o sb=", "e2fsck -b"]);
    let mut command = extol();
    command.args(["mkfs", "-d", dir, new]).env("SOURCE_DATE_EPOCH", "now");
    let done = extol_testkit::run(&mut command, std::time::Duration::from_secs(20));
    assert_eq!(done.code, Some(1), "{}", done.output);
    assert!(done.stderr.contains("SOURCE_DATE_EPOCH is \"now\"") && !image.exists());
}

/// What is written to the host is never the volume that is read, nor one that is in use.
#[test]
fn the_volume_is_not_written_over() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("a"), vec![7; 64 << 10]).unwrap();
    let (image, other) = (scratch.join("a.img"), scratch.join("b.img"));
    for image in [&image, &other] {
        extol_ok(&["mkfs", "-q", "-d", text(&dir), text(image)]);
    }
    let (link, name) = (scratch.join("link.img"), scratch.join("name.img"));
    std::os::unix::fs::symlink(&image, &link).unwrap();
    std::fs::hard_link(&image, &name).unwrap();
    let before = std::fs::read(&image).unwrap();
    let source = text(&image);
    for target in [&image, &link, &name].map(|path| text(path)) {
        refused(&["tar", source, "-f", target], 32, &[target, "is the volume that is read"]);
        refused(&["tar", target, "-f", source], 32, &[source, "is the volume that is read"]);
    }
    for target in [&image, &name].map(|path| text(path)) {
        refused(&["cp", source, "a", target], 32, &[target, "is the volume that is read"]);
    }
    let mut command = extol();
    let output = std::fs::File::options().append(true).open(&image).unwrap();
    let mut cat = command.args(["cat", source, "a"]).stdout(output).spawn().unwrap();
    assert!(!cat.wait().unwrap().success());
    assert!(std::fs::read(&image).unwrap() == before, "the image is as it was");

    // Another image, which a process has locked as a mount does.
    let lock = std::fs::File::open(&other).unwrap();
    lock.lock().unwrap();
    let target = text(&other);
    refused(&["tar", source, "-f", target], 32, &[target, "is open in another process"]);
    refused(&["cp", source, "a", target], 32, &[target, "is open in another process"]);
    drop(lock);
    let archive = scratch.join("a.tar");
    extol_ok(&["tar", source, "-f", text(&archive)]);
    let before = std::fs::read(&archive).unwrap();
    refused(&["mkfs", "-F", "-d", text(&archive), text(&archive)], 1, &["the files come from"]);
    assert!(std::fs::read(&archive).unwrap() == before, "the archive is as it was");
    extol_ok(&["tar", source, "-f", target]);
    assert!(std::fs::read(&other).unwrap() == before, "what is not in use is replaced");
}

/// Neither a loop device that shows the volume, nor an image that is mounted through one.
#[test]
fn a_loop_device_of_the_volume_is_not_written_over() {
    if !require(&LINUX) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("a"), vec![7; 64 << 10]).unwrap();
    let (image, other) = (scratch.join("a.img"), scratch.join("b.img"));
    for image in [&image, &other] {
        extol_ok(&["mkfs", "-q", "-d", text(&dir), text(image)]);
    }
    let device = run_ok(tool("losetup").args(["-f", "--show"]).arg(&image));
    let device = device.trim();
    let mount = KernelMount::mount(&Image::existing(&other), &scratch.dir("mnt"), &[]);
    let cases = [
        (text(&image), device, "is the volume that is read"),
        (device, text(&image), "is the volume that is read"),
        (device, device, "is the volume that is read"),
        (text(&image), text(&other), "is mounted at"),
    ];
    let done = cases.map(|(from, to, _)| run_extol(&["tar", from, "-f", to]));
    let copied = run_extol(&["cp", text(&image), "a", text(&other)]);
    mount.unmount();
    run_ok(tool("losetup").args(["-d", device]));
    for ((_, to, words), done) in cases.iter().zip(done) {
        assert_eq!(done.code, Some(32), "{}", done.output);
        assert!(done.stderr.contains(to) && done.stderr.contains(words), "{}", done.output);
    }
    assert!(copied.stderr.contains("is mounted at"), "{}", copied.output);
    for image in [&image, &other] {
        run_ok(tool("e2fsck").arg("-fn").arg(image));
    }
}

/// Names that an archive's records have no direct place for, by GNU tar and bsdtar, both ways.
#[test]
fn odd_names_of_attributes_go_through_archives() {
    if !require(&["tar", "bsdtar", "setfattr"].map(Need::Tool)) || !require(&[Need::Root]) {
        return;
    }
    let names = ["user.a=b", "user.p%q", "user.p%3Dq", "user.sp ace", "user.%25", "user.=="];
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("f"), "x").unwrap();
    for name in names {
        run_ok(tool("setfattr").args(["-n", name, "-v", name]).arg(dir.join("f")));
    }
    let of_image = |image: &Path| {
        let told = run_ok(extol().args(["getxattr", text(image), "f"]));
        let mut told: Vec<String> = told.lines().map(str::to_owned).collect();
        told.sort();
        told
    };
    let image = scratch.join("dir.img");
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&image)]);
    let expected = of_image(&image);
    let has_all = |told: &str| names.iter().all(|name| told.contains(&name.replace('=', "\\075")));
    assert_eq!(names.len(), expected.iter().filter(|line| line.contains("user.")).count());
    // Their archives, read.
    for (program, options) in
        [("tar", &["--xattrs", "-cf"][..]), ("bsdtar", &["--xattrs", "--format", "pax", "-cf"])]
    {
        let (archive, image) = (scratch.join(program), scratch.join(&format!("{program}.img")));
        run_ok(tool(program).args(options).arg(&archive).arg("-C").args([text(&dir), "f"]));
        extol_ok(&["mkfs", "-q", "-d", text(&archive), text(&image)]);
        assert_eq!(of_image(&image), expected, "written by {program}");
    }
    // Extol's archive, read by them and by itself.
    let archive = scratch.join("extol.tar");
    extol_ok(&["tar", text(&image), "-f", text(&archive)]);
    let again = scratch.join("again.img");
    extol_ok(&["mkfs", "-q", "-d", text(&archive), text(&again)]);
    assert_eq!(of_image(&again), expected);
    for program in ["tar", "bsdtar"] {
        let out = scratch.dir(&format!("out-{program}"));
        let options = ["--xattrs", "-xf", text(&archive), "-C", text(&out)];
        // (GNU tar remarks on the records of libarchive, and takes the rest.)
        let read = run(tool(program).args(options), std::time::Duration::from_secs(20));
        assert_eq!(read.code, Some(0), "{}", read.output);
        let told = run_ok(tool("getfattr").args(["-d", "--absolute-names"]).arg(out.join("f")));
        assert!(has_all(&told), "read by {program}: {told}");
    }
}

/// Files of options have a bound, and an error names them.
#[test]
fn files_of_options_are_bounded() {
    let scratch = Scratch::new();
    let (dir, image) = (scratch.dir("tree"), scratch.join("a.img"));
    for option in ["--metadata", "--selinux-contexts"] {
        let words = ["mkfs", "-d", text(&dir), option, "/dev/zero", text(&image)];
        refused(&words, 32, &["/dev/zero", "64 MiB"]);
        assert!(!image.exists());
    }
}

/// All kinds of files keep their names when they are copied out.
#[test]
fn names_of_one_file_stay_names_of_one_file() {
    if !require(&[Need::Root, Need::Tool("mknod")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::write(dir.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", dir.join("symlink")).unwrap();
    std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    run_ok(tool("mknod").args([text(&dir.join("fifo")), "p"]));
    run_ok(tool("mknod").args([text(&dir.join("null")), "c", "1", "3"]));
    let kinds = ["file", "symlink", "socket", "fifo", "null"];
    for name in kinds {
        std::fs::hard_link(dir.join(name), dir.join(format!("z-{name}"))).unwrap();
    }
    let image = scratch.join("a.img");
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&image)]);
    let out = scratch.dir("out");
    extol_ok(&["cp", "-a", text(&image), "/", text(&out)]);
    for name in kinds {
        let id = |name: &str| std::fs::symlink_metadata(out.join(name)).map(|f| f.ino()).unwrap();
        assert_eq!(id(name), id(&format!("z-{name}")), "{name}");
    }
}

/// What is said of a volume that is as large as its files need, and of a metadata file.
#[test]
fn notes_are_made_once_and_only_where_they_help() {
    let scratch = Scratch::new();
    let (dir, image, table) = (scratch.dir("tree"), scratch.join("a.img"), scratch.join("table"));
    std::fs::write(&table, "/ d 755 3 4 - - - - -\n/dev d 755 0 0 - - - - -\n").unwrap();
    let small = ["mkfs", "-d", text(&dir), "--metadata", text(&table), text(&image)];
    let done = run_extol(&small);
    // With a size and without, as mke2fs -q: edit and a resize to smaller need a journal.
    let no_journal = "extol: warning: the volume is too small for a journal: it has none\n";
    assert_eq!((done.code, &*done.stderr), (Some(0), no_journal), "{}", done.output);
    for size in [&[][..], &["100K"]] {
        let quiet = ["mkfs", "-F", "-q", "-d", text(&dir), text(&image)];
        let done = run_extol(&[&quiet[..], size].concat());
        assert_eq!((done.code, &*done.stderr), (Some(0), no_journal), "{}", done.output);
    }
    // A name says nothing of the format.
    let named = scratch.join("new.VHD");
    let making = ["mkfs", "-q", text(&named), "8M"];
    let done = run_extol(&making);
    let convert = format!(
        "qemu-img convert -f raw -O vpc {} {}\n",
        text(&scratch.join("new.img")),
        text(&named)
    );
    assert!(
        done.stderr.starts_with("extol: note: ") && done.stderr.ends_with(&convert),
        "{done:?}"
    );
    let again = run_extol(&[&making[..2], &["-F"], &making[2..]].concat());
    assert_eq!((again.code, &*again.stderr), (Some(0), ""), "{}", again.output);
    // Contexts: for a lost+found that the source does not have, too.
    std::fs::write(&table, "/.* system_u:object_r:all_t:s0\n").unwrap();
    extol_ok(&[
        "mkfs",
        "-F",
        "-q",
        "-d",
        text(&dir),
        "--selinux-contexts",
        text(&table),
        text(&image),
    ]);
    let label = extol_ok(&[
        "getxattr",
        "--only-values",
        "-n",
        "security.selinux",
        text(&image),
        "/lost+found",
    ]);
    assert!(label.contains("all_t"), "{label}");
    extol_ok(&["check", text(&image)]);
    // Times that ext4 does not have.
    let file = std::fs::File::create(dir.join("old")).unwrap();
    let long_ago = std::time::UNIX_EPOCH - std::time::Duration::from_secs(3_000_000_000);
    file.set_modified(long_ago).unwrap();
    if std::fs::metadata(dir.join("old")).unwrap().modified().unwrap() == long_ago {
        let done = run_extol(&["mkfs", "-F", "-q", "-d", text(&dir), text(&image)]);
        assert!(done.stderr.contains("old: its time is not between 1901-12-13"), "{}", done.output);
    }
}

/// A reader that has enough is told by the exit code of SIGPIPE, whatever the command.
#[test]
fn a_closed_pipe_is_silent() {
    let scratch = Scratch::new();
    let (dir, image) = (scratch.dir("tree"), scratch.join("a.img"));
    std::fs::write(dir.join("file"), vec![7; 3 << 20]).unwrap();
    extol_ok(&["mkfs", "-q", "-d", text(&dir), text(&image)]);
    for words in [&["tar", text(&image)][..], &["cat", text(&image), "/file"]] {
        let mut command = extol();
        command.args(words).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        assert_eq!((done.status.code(), &*done.stderr), (Some(141), &b""[..]), "{words:?}");
    }
}
