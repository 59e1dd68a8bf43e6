//! The commands that look at files say of a volume that is not mounted, and of one that Extol has
//! mounted, what findutils, coreutils and the shell say of it on a mount by the kernel.

use std::path::{Path, PathBuf};

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, extol_ok, extol_path, require, run_extol,
    run_ok, text, tool,
};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("bash"),
];

/// What is looked at.
const FILES: &str = "mkdir -p etc/a.d home/ada/.cache 'odd [x]' empty deep/er/st
    echo one > etc/a.conf; echo two > etc/B.CONF; echo > etc/.hidden.conf; : > etc/none
    head -c 3000000 /dev/urandom > home/ada/big; ln home/ada/big home/ada/second
    truncate -s 40M home/ada/sparse; chmod 4755 etc/a.conf; chmod 600 etc/B.CONF
    ln -s /etc/a.conf link; ln -s ../.. deep/er/up; mkfifo pipe; mknod null c 1 3
    chown -R 1000:100 home; touch -d '20 days ago' etc/none; echo x > 'odd [x]/*'
    touch -h -d '2020-02-02 02:02:02.5 UTC' link; echo y > deep/er/st/a.conf; chmod 755 .";

/// A volume with these files, and where it is to be mounted.
struct Fixture {
    scratch: Scratch,
    image: Image,
}

impl Fixture {
    fn new() -> Self {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let fixture = Self { scratch, image };
        let mount = KernelMount::mount(&fixture.image, &fixture.scratch.dir("kernel"), &[]);
        run_ok(tool("bash").args(["-ec", FILES]).current_dir(mount.path()));
        mount.unmount();
        fixture
    }

    /// What scripts of Linux say, each in the root of a mount by the kernel.
    fn of_linux(&self, scripts: &[&str]) -> Vec<String> {
        let mount = KernelMount::mount(&self.image, &self.scratch.dir("kernel"), &["ro"]);
        let say = |script: &&str| {
            run_ok(tool("bash").args(["-ec", script]).env("LC_ALL", "C").current_dir(mount.path()))
        };
        let said = scripts.iter().map(say).collect();
        mount.unmount();
        said
    }

    /// What `look` sees of the image, and of a mount of it by Extol, which must be the same.
    fn both<T: PartialEq + std::fmt::Debug>(&self, look: impl Fn(&Path) -> T) -> T {
        let of_image = look(&self.image.path);
        let mount = ExtolMount::start(&self.image.path, &self.scratch.dir("mnt"), &["ro"]);
        let of_mount = look(mount.path());
        mount.unmount();
        assert_eq!(of_mount, of_image, "on a mount and on the image");
        of_image
    }
}

/// Lines, sorted; paths from `.` as paths from the root.
fn lines(output: &str) -> Vec<String> {
    let absolute = |line: &str| match line.split_once("./") {
        Some((before, path)) if before.is_empty() || before.ends_with('\t') => {
            format!("{before}/{path}")
        }
        _ if line == "." || line.ends_with("\t.") => format!("{}/", &line[..line.len() - 1]),
        _ => line.to_owned(),
    };
    let mut lines: Vec<String> = output.lines().map(absolute).collect();
    lines.sort();
    lines
}

/// The output of extol with a volume behind these words.
fn extol_of(source: &Path, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let (command, rest) = words.split_first().expect("a command");
    let words: Vec<&str> =
        [*command, text(source)].into_iter().chain(rest.iter().copied()).collect();
    extol_ok(&words)
}

#[test]
fn find_finds_what_find_finds() {
    if !require(&NEEDS) {
        return;
    }
    let fixture = Fixture::new();
    let tests = [
        "",
        " -name *.conf",
        " -iname *.conf",
        " -name [!a]*.CONF",
        " -type d",
        " -type l,p",
        " -type f -size +1M",
        " -size -2k",
        " -size 0",
        " -mtime +10 -type f",
        " -mtime -1 -type d",
        " -perm 600",
        " -perm /6000",
        " -perm -755 -type f",
        " -uid 1000 -gid 100",
        " -empty",
        " -maxdepth 1",
        " -mindepth 2 -maxdepth 3 -name *e*",
        " -name a* -name *.conf",
    ];
    let quoted = |test: &str| test.replace('*', "'*'").replace("[!a]", "'[!a]'");
    let scripts: Vec<String> = tests.iter().map(|test| format!("find .{}", quoted(test))).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    for (test, linux) in tests.iter().zip(fixture.of_linux(&scripts)) {
        let found = fixture.both(|source| lines(&extol_of(source, &format!("find{test}"))));
        assert_eq!(found, lines(&linux), "find{test}");
        assert!(!found.is_empty(), "find{test} finds nothing, and shows nothing");
    }
    let zeros = extol_of(&fixture.image.path, "find /etc -name *.conf -print0");
    assert_eq!(zeros.split('\0').collect::<Vec<_>>(), ["/etc/.hidden.conf", "/etc/a.conf", ""]);
    let done = run_extol(&["find", text(&fixture.image.path), "-size", "5X"]);
    assert!(done.code == Some(1) && done.stderr.contains("-size: bad value"), "{}", done.output);
}

#[test]
fn du_adds_up_what_du_adds_up() {
    if !require(&NEEDS) {
        return;
    }
    let fixture = Fixture::new();
    let cases = ["-k .", "-a -d 2 .", "-s -c ./home ./etc", "-h -d 1 .", "-l -s ./home"];
    let scripts: Vec<String> = cases.iter().map(|case| format!("du {case}")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    for (case, linux) in cases.iter().zip(fixture.of_linux(&scripts)) {
        let words = case.replace("-k ", "").replace("./", "/").replace(" .", "");
        let words = words.trim_end_matches('.');
        let said =
            fixture.both(|source| lines(&extol_of(source, format!("du {words}").trim_end())));
        assert_eq!(said, lines(&linux), "du {case}");
    }
    let linux = fixture.of_linux(&["du -b home/ada/sparse home/ada/big", "du --inodes -s home"]);
    let image = &fixture.image.path;
    let bytes = extol_of(image, "du -b home/ada/sparse home/ada/big");
    assert_eq!(lines(&bytes), lines(&linux[0]));
    // (coreutils counts the two names of a file once, and so does this.)
    assert_eq!(extol_of(image, "du --inodes -s home"), linux[1]);
    let json: serde_json::Value =
        serde_json::from_str(&extol_of(image, "du --json -s /home")).expect("JSON");
    assert_eq!(json["entries"][0]["used"], json["total"]["used"]);
    assert_eq!(json["total"]["apparent"], 3_000_000_u64 + (40 << 20));
}

#[test]
fn stat_and_df_say_what_stat_and_df_say() {
    if !require(&NEEDS) {
        return;
    }
    let fixture = Fixture::new();
    let paths = ["/", "/etc/a.conf", "/link", "/null", "/home/ada/second", "/home/ada/sparse"];
    let format = "stat -c '%s %b %i %h %a %u %g %.9Y %N'";
    let scripts: Vec<String> = paths.iter().map(|path| format!("{format} .{path}")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let linux = fixture.of_linux(&scripts);
    let all = fixture.both(|source| {
        let words = [&["stat", "--json", text(source)], &paths[..]].concat();
        let said: serde_json::Value = serde_json::from_str(&extol_ok(&words)).expect("JSON");
        said["entries"].as_array().expect("a list").clone()
    });
    for ((path, file), linux) in paths.iter().zip(&all).zip(&linux) {
        let mode = u32::from_str_radix(file["mode"].as_str().expect("a mode"), 8).expect("octal");
        let blocks = file["used"].as_u64().expect("bytes") / 512;
        let nsec = file["mtime"]["nsec"].as_u64().expect("nanoseconds");
        let Some(target) = file.get("target") else {
            assert_eq!(format!("'.{path}'"), linux.trim().rsplit(' ').next().unwrap_or(""));
            continue;
        };
        let said = format!(
            "{} {blocks} {} {} {mode:o} {} {} {}.{nsec:09} './{}' -> '{}'\n",
            file["size"],
            file["inode"],
            file["links"],
            file["uid"],
            file["gid"],
            file["mtime"]["sec"],
            &path[1..],
            target.as_str().expect("a target"),
        );
        assert_eq!(said, *linux);
    }
    for (file, linux) in all.iter().zip(&linux) {
        let begin = format!("{} {} ", file["size"], file["used"].as_u64().unwrap() / 512);
        assert!(linux.starts_with(&begin), "{linux}: {file}");
    }
    let shown = extol_of(&fixture.image.path, "stat /etc/a.conf /null /link");
    for words in ["  File: /etc/a.conf\n", "(4755/-rwsr-xr-x)", "Device type: 1,3", "/link -> /etc"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let followed = extol_of(&fixture.image.path, "stat -L /link");
    assert!(followed.contains("regular file") && followed.contains("2020-02-02").eq(&false));
    // How full it is.
    let image = &fixture.image.path;
    let numbers = |table: &str| -> Vec<u64> {
        let row = table.lines().nth(1).expect("a row").split_whitespace().skip(1).take(3);
        row.map(|number| number.parse().expect("a number")).collect()
    };
    let before = [extol_ok(&["df", text(image)]), extol_ok(&["df", "-i", text(image)])];
    let mount = ExtolMount::start(image, &fixture.scratch.dir("mnt"), &["ro"]);
    for (option, before) in [("-k", &before[0]), ("-i", &before[1])] {
        let linux = run_ok(tool("df").arg(option).arg(mount.path()));
        let option = if option == "-k" { "--" } else { option };
        let of_mount = extol_ok(&["df", option, text(mount.path())]);
        assert_eq!(numbers(&of_mount), numbers(&linux), "df {option}");
        assert_eq!(numbers(before), numbers(&linux), "df {option} of the image");
        // The image that is mounted stands for its mount.
        assert_eq!(extol_ok(&["df", option, text(image)]), of_mount);
    }
    // A file of the mount, and the mount itself.
    let file = extol_ok(&["stat", text(&mount.path().join("etc/a.conf"))]);
    assert!(file.contains("  File: a.conf\n") && file.contains("4755"), "{file}");
    assert!(extol_ok(&["stat", text(mount.path())]).contains("read-only"));
    mount.unmount();
    let done = run_extol(&["stat", text(image)]);
    assert!(
        done.code == Some(32) && done.stderr.contains("is not mounted or exported: name files")
    );
}

#[test]
fn patterns_mean_what_they_mean_in_a_shell() {
    if !require(&NEEDS) {
        return;
    }
    let fixture = Fixture::new();
    let patterns = ["*", "etc/*.conf", "etc/.*.conf", "*/*", "home/*/b?g", "[a-l]*", "deep/*/st/*"];
    let scripts: Vec<String> =
        patterns.iter().map(|pattern| format!("printf '%s\\n' {pattern}")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    let linux = fixture.of_linux(&scripts);
    for (pattern, linux) in patterns.iter().zip(linux) {
        let listed = fixture.both(|source| lines(&extol_of(source, &format!("ls -d {pattern}"))));
        // (`.` and `..` are no names here.)
        let linux: Vec<_> = lines(&linux).into_iter().filter(|l| !l.ends_with('.')).collect();
        assert_eq!(listed, linux, "{pattern}");
    }
    let image = text(&fixture.image.path);
    // A name that is there is meant itself.
    assert_eq!(extol_ok(&["cat", image, "/odd [x]/*"]), "x\n");
    let done = run_extol(&["cat", image, "/etc/*.none"]);
    assert!(done.code == Some(32) && done.stderr.contains("/etc/*.none': no such file"));
    let out: PathBuf = fixture.scratch.dir("out");
    extol_ok(&["get", image, "/etc/*.conf", "/deep/er", text(&out)]);
    assert_eq!(run_ok(tool("ls").arg(&out)), "a.conf\ner\n");
    run_ok(
        std::process::Command::new(extol_path())
            .args(["get", image, "/etc/B.CONF"])
            .current_dir(&out),
    );
    assert_eq!(std::fs::read(out.join("B.CONF")).expect("read"), b"two\n");
    let done = run_extol(&["get", image, "/etc/*", text(&out.join("none"))]);
    assert!(done.code == Some(32) && done.stderr.contains("none: No such file"), "{}", done.output);
    extol_ok(&["chmod", image, "640", "/etc/*.conf"]);
    extol_ok(&["rm", image, "/etc/*.CONF", "/home/*/s*"]);
    let left = extol_ok(&["find", image, "/etc", "/home", "-type", "f", "-perm", "640"]);
    assert_eq!(left, "/etc/a.conf\n");
    assert_eq!(extol_ok(&["find", image, "/home/ada", "-type", "f"]), "/home/ada/big\n");
    extol_testkit::e2fsck(&fixture.image).assert_clean("after chmod and rm of patterns");
}

/// Nothing outside of the directory that was named is reached, and what the mount refuses is
/// told.
#[test]
fn a_mount_is_read_within_its_bounds() {
    if !require(&NEEDS) {
        return;
    }
    let fixture = Fixture::new();
    let dir = fixture.scratch.dir("mnt");
    let mount = ExtolMount::start(&fixture.image.path, &dir, &[]);
    let (root, etc) = (text(mount.path()), mount.path().join("etc"));
    // A link to /etc/a.conf leads to the volume's, and `..` ends at the directory.
    assert_eq!(extol_ok(&["cat", root, "/link"]), "one\n");
    assert_eq!(extol_ok(&["cat", text(&etc), "/../../a.conf"]), "one\n");
    assert!(!run_extol(&["cat", text(&etc), "/../null"]).success());
    let done = run_extol(&["cat", root, "/pipe", "/null"]);
    assert_eq!((done.code, done.stderr.lines().count()), (Some(32), 2), "{}", done.output);
    let done = run_extol(&["ls", "-o", "ro", root]);
    assert!(done.code == Some(1) && done.stderr.contains("is mounted: -o"), "{}", done.output);
    // Another file system below is not entered.
    run_ok(tool("mount").args(["-t", "tmpfs", "none"]).arg(mount.path().join("empty")));
    let done = run_extol(&["find", root, "-name", "e*"]);
    run_ok(tool("umount").arg(mount.path().join("empty")));
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains("/empty: not supported: another file system"), "{}", done.output);
    assert!(done.output.contains("/etc\n"), "{}", done.output);
    // Commands that change files say what does it there.
    let done = run_extol(&["rm", root, "/link"]);
    assert!(done.code == Some(32) && done.stderr.contains("is a directory"), "{}", done.output);
    mount.unmount();
}
