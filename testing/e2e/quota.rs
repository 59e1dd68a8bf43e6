//! Quotas by the command and on a mount: what is said, what is refused to which user, and what is
//! set while the volume is in use.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::Path;

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, as_user, e2fsck, require, run_extol, run_ok, text, tool,
};
use serde_json::Value;

const EDQUOT: i32 = 122;
const QUOTA: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "quota,project"];

#[track_caller]
fn done(words: &[&str]) -> String {
    let done = run_extol(words);
    assert!(done.success(), "{words:?}: {}", done.output);
    done.output
}

#[track_caller]
fn refused(words: &[&str], code: i32, says: &str) {
    let done = run_extol(words);
    assert_eq!(done.code, Some(code), "{words:?}: {}", done.output);
    assert!(done.stderr.contains(says), "{words:?}: {}", done.stderr);
    assert_eq!(done.stderr.lines().count(), 1, "{words:?}: {}", done.stderr);
}

/// What the report says of one owner.
#[track_caller]
fn owner(at: &Path, kind: &str, owner: &str) -> Value {
    let said = done(&["quota", "report", "--json", kind, text(at), owner]);
    let said: Value = serde_json::from_str(&said).unwrap();
    said["quotas"][0]["owners"][0].clone()
}

#[test]
fn limits_are_set_reported_and_cleared_on_an_image() {
    if !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, QUOTA);
    let at = text(&image.path);
    let said = done(&["quota", "report", at]);
    for kind in ["user", "group", "project"] {
        assert!(said.contains(&format!("{kind} quotas of {at}: grace times 1w")), "{said}");
    }
    let set = ["--block-soft", "1000", "--block-hard", "2M", "--inode-hard", "5", at, "root", "77"];
    let said = done(&[&["quota", "set"], &set[..]].concat());
    assert!(said.contains("root ") && said.contains("#77 "), "{said}");
    assert!(said.contains("1000K    2.0M"), "{said}");
    let of_77 = owner(&image.path, "--user", "77");
    assert_eq!((&of_77["bytes"], &of_77["bytes_soft"]), (&0.into(), &(1000 << 10).into()));
    assert_eq!((&of_77["bytes_hard"], &of_77["inodes_hard"]), (&(2 << 20).into(), &5.into()));
    assert_eq!((&of_77["name"], &of_77["bytes_grace_ends"]), (&Value::Null, &Value::Null));
    done(&["quota", "set", "--block-hard", "0", at, "77"]);
    let of_77 = owner(&image.path, "--user", "77");
    assert_eq!((&of_77["bytes_soft"], &of_77["bytes_hard"]), (&(1000 << 10).into(), &0.into()));
    let said = done(&["quota", "set", "-P", "--block-grace", "3d", "--inode-grace", "90", at]);
    assert!(said.contains("project quotas") && said.contains("3d for blocks, 90s for"), "{said}");
    assert_eq!(done(&["quota", "check", at]), format!("{at}: the usage is right\n"));
    e2fsck(&image).assert_clean("with limits");
}

#[test]
fn mistakes_are_refused_in_a_line_and_change_nothing() {
    if !require(&[Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let users = Image::mke2fs(
        scratch.path(),
        "u.img",
        16 << 20,
        &["-t", "ext4", "-O", "quota", "-E", "quotatype=usrquota"],
    );
    let (at, of_users) = (text(&image.path), text(&users.path));
    let before = fs::read(&users.path).unwrap();
    refused(&["quota", "report", at], 32, "extol tune -O quota");
    refused(&["quota", "check", at], 32, "extol tune -O quota");
    refused(&["quota", "edit", at], 1, "use report, set or check");
    refused(&["quota", "report", "-g", of_users], 32, "no quota inode for groups");
    refused(&["quota", "report", "-ug", of_users, "root"], 1, "one kind");
    refused(&["quota", "report", of_users, "no such user"], 1, "unknown user");
    refused(&["quota", "report", "--block-hard", "1M", of_users], 1, "for quota set");
    refused(&["quota", "report", "--repair", of_users], 1, "for quota check");
    refused(&["quota", "check", of_users, "root"], 1, "name none");
    refused(&["quota", "set", of_users, "root"], 1, "nothing to set");
    refused(&["quota", "set", "--inode-hard", "5", of_users], 1, "whose limits");
    refused(&["quota", "set", "--inode-grace", "5x", of_users], 1, "bad time");
    refused(&["quota", "set", "--inode-grace", "5", of_users, "root"], 1, "without owners");
    let soft = ["quota", "set", "--inode-soft", "5", "--inode-hard", "4", of_users, "root"];
    refused(&soft, 1, "soft limit is larger");
    refused(&["quota", "set", "-o", "ro", "--inode-hard", "4", of_users, "root"], 1, "ro and");
    refused(&["quota", "check", text(scratch.path())], 32, "not");
    refused(&["quota", "set", "-g", "--inode-hard", "4", of_users, "0"], 32, "for groups");
    refused(&["quota", "set", "-P", "--inode-grace", "4", of_users], 32, "for projects");
    refused(&["quota", "set", "--inode-hard", "4", of_users, "no such user"], 1, "unknown user");
    refused(&["quota", "check", "-g", "--repair", of_users], 32, "for groups");
    let dir = scratch.dir("mnt");
    if require(&[Need::Fuse]) {
        refused(&["mount", "-o", "grpquota", of_users, text(&dir)], 32, "extol tune -Q grpquota");
    }
    done(&["quota", "report", of_users]);
    assert!(fs::read(&users.path).unwrap() == before, "something was written");
}

#[test]
fn a_mount_enforces_limits_and_takes_new_ones() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, QUOTA);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["usrquota,prjquota,allow_other"]);
    let home = dir.join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(1000), Some(1000)).unwrap();
    let used = owner(&dir, "--user", "1000")["bytes"].as_u64().unwrap();
    let hard = (used + (100 << 10)).to_string() + "B";
    done(&["quota", "set", "--block-hard", &hard, "--inode-hard", "3", text(&dir), "1000"]);
    let fill = |name: &str| {
        let path = home.join(name);
        as_user(1000, 1000, &[], 0o22, move || {
            let mut file = fs::File::create(path)?;
            let written = (0..200).find_map(|_| file.write_all(&[7; 1024]).err());
            let len = file.metadata()?.len();
            written.map_or(Ok(len), |error| match error.raw_os_error() {
                Some(EDQUOT) => Ok(len),
                _ => Err(error),
            })
        })
    };
    assert_eq!(fill("a").unwrap(), 100 << 10);
    assert_eq!(fill("b").unwrap(), 0);
    assert_eq!(fill("c").unwrap_err().raw_os_error(), Some(EDQUOT), "the fourth inode");
    // Root is not limited: neither what it makes, nor what it gives away.
    fs::write(home.join("of-root"), [1; 5000]).unwrap();
    chown(home.join("of-root"), Some(1000), None).unwrap();
    let now = owner(&dir, "--user", "1000");
    assert_eq!((&now["inodes"], &now["bytes_hard"]), (&4.into(), &(used + (100 << 10)).into()));
    done(&["quota", "set", "--block-hard", "0", "--inode-hard", "0", text(&dir), "1000"]);
    assert_eq!(fill("c").unwrap(), 200 << 10);
    done(&["quota", "set", "--inode-hard", "1", text(&dir), "1000"]);
    assert_eq!(fill("d").unwrap_err().raw_os_error(), Some(EDQUOT));
    done(&["remount", "-o", "noquota", text(&dir)]);
    fill("d").unwrap();
    refused(&["quota", "check", text(&dir)], 32, "not mounted");
    let others = as_user(1000, 1000, &[], 0, || run_extol(&["quota", "report", text(&dir)]));
    assert_ne!(others.code, Some(0), "{}", others.output);
    mount.unmount();
    e2fsck(&image).assert_clean("after limits");
    done(&["quota", "check", text(&image.path)]);
}

/// Blocks, free blocks and free inodes, as df(1) sees them.
fn seen(dir: &Path) -> Vec<u64> {
    let mut stat = tool("stat");
    let said = run_ok(stat.args(["-f", "-c", "%b %f %d"]).arg(dir));
    said.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

#[test]
fn df_of_a_directory_shows_the_limits_of_its_project() {
    let needs = [Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("chattr")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, QUOTA);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["prjquota"]);
    let of_project = dir.join("p");
    fs::create_dir(&of_project).unwrap();
    run_ok(tool("chattr").args(["+P", "-p", "9"]).arg(&of_project));
    fs::write(of_project.join("file"), vec![7; 50 << 10]).unwrap();
    assert_eq!(seen(&of_project), seen(&dir), "no limits yet");
    let limits = ["--block-hard", "1M", "--inode-soft", "10", text(&dir), "9"];
    done(&[&["quota", "set", "--project"], &limits[..]].concat());
    // (The directory has a block of 1 KiB.)
    assert_eq!(seen(&of_project), [1024, 1024 - 51, 8]);
    assert!(seen(&dir)[0] > 20 << 10);
    done(&["remount", "-o", "noquota", text(&dir)]);
    assert_eq!(seen(&of_project), seen(&dir), "limits are not enforced");
    mount.unmount();
    e2fsck(&image).assert_clean("with a project");
}

/// What `repquota` says in a guest, and `extol quota report`: owner, KiB, inodes.
fn by_guest(lines: &[&str], kind: &str) -> Vec<(u64, u64, u64)> {
    let of_kind = lines.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(" #"));
    let mut rows: Vec<_> = of_kind
        .map(|line| {
            let words: Vec<&str> = line.split(',').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            (number(0), number(3), number(7))
        })
        .collect();
    rows.sort_unstable();
    rows
}

fn by_extol(image: &Path, kind: &str) -> Vec<(u64, u64, u64)> {
    let said = done(&["quota", "report", "--json", &format!("--{kind}"), text(image)]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let owners = said["quotas"][0]["owners"].as_array().unwrap().clone();
    let number = |owner: &Value, name: &str| owner[name].as_u64().unwrap();
    let row = |o: &Value| (number(o, "id"), number(o, "bytes").div_ceil(1024), number(o, "inodes"));
    let mut rows: Vec<_> = owners.iter().map(row).collect();
    // (Linux shows none of those that have nothing.)
    rows.retain(|(id, bytes, inodes)| *id == 0 || (*bytes, *inodes) != (0, 0));
    rows.sort_unstable();
    rows
}

/// Changes of all that counts.
fn work_on_a_mount(scratch: &Scratch, image: &Path) {
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(image, &dir, &["usrquota,grpquota,prjquota"]);
    for n in 0..60u32 {
        let (from, to) = (dir.join(format!("d{}/f{n}", n % 7)), dir.join(format!("m{n}")));
        match n % 6 {
            0 => fs::rename(&from, &to).unwrap(),
            1 => fs::remove_file(&from).unwrap(),
            2 => fs::hard_link(&from, &to).unwrap(),
            3 => chown(&from, Some(n * 1_000_003), Some(n)).unwrap(),
            4 => fs::OpenOptions::new().write(true).open(&from).unwrap().set_len(1).unwrap(),
            _ => drop(fs::copy(&from, &to).unwrap()),
        }
        let many = dir.join(format!("many/with-a-name-that-fills-blocks-{n}"));
        fs::create_dir_all(&many).unwrap();
        chown(&many, Some(n % 4), Some(77)).unwrap();
    }
    mount.unmount();
}

const REPORT: &str = "
    report() {
        sync
        for kind in user group project; do
            repquota -n --$kind -O csv /mnt | sed -n \"s/^#/$kind #/p\"
        done
    }
    mount -t ext4 -o usrquota,grpquota,prjquota /dev/vda /mnt || exit 1
";

#[test]
fn a_volume_is_made_with_the_usage_of_its_files_and_linux_goes_on() {
    let needs = [Need::Guest, Need::Root, Need::Fuse];
    if !require(&needs) || !require(&["repquota", "chattr"].map(Need::Tool)) {
        return;
    }
    let scratch = Scratch::new();
    let tree = scratch.dir("tree");
    for n in 0..200u32 {
        let dir = tree.join(format!("d{}", n % 7));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join(format!("f{n}"));
        fs::write(&file, vec![7; n as usize * 321]).unwrap();
        chown(&file, Some(n % 11 * 70_001), Some(n % 5)).unwrap();
        std::os::unix::fs::symlink("x".repeat(100), dir.join(format!("l{n}"))).unwrap();
    }
    for words in [
        &["-O", "quota,project"][..],
        &["-b", "1024", "-O", "quota,project,bigalloc", "-C", "4096"],
        &["-O", "quota", "-E", "quotatype=usrquota:grpquota:prjquota", "--free", "8M"],
    ] {
        let image = Image::existing(scratch.join("a.img"));
        let _ = fs::remove_file(&image.path);
        let mut line = vec!["mkfs", "-q", "-d", text(&tree)];
        line.extend(words);
        line.push(text(&image.path));
        if !words.contains(&"--free") {
            line.push("64M");
        }
        done(&line);
        e2fsck(&image).assert_clean("made");
        assert!(done(&["quota", "check", text(&image.path)]).ends_with("the usage is right\n"));
        for (what, work) in [
            ("as it is made", ""),
            ("after work on a mount", ""),
            (
                "after work by Linux",
                "cp -a /mnt/d1 /mnt/copy
                 chown -R 5:6 /mnt/d2
                 rm -r /mnt/d3
                 for n in $(seq 40); do
                     head -c $((n * 999)) /dev/zero >/mnt/new$n; chown $((n * 7)) /mnt/new$n
                 done
                 mkdir /mnt/p && chattr +P -p 9 /mnt/p && cp -r /mnt/d4 /mnt/p/",
            ),
        ] {
            if what.ends_with("a mount") {
                work_on_a_mount(&scratch, &image.path);
                e2fsck(&image).assert_clean(what);
            }
            let report = extol_guest::Guest::new()
                .drive(&image.path)
                .module("quota_v2")
                .program("repquota")
                .program("chattr")
                .run(&format!("{REPORT}{work}\nreport"));
            for kind in ["user", "group", "project"] {
                let theirs = by_guest(&report.lines(), kind);
                assert!(!theirs.is_empty(), "{}", report.output);
                assert_eq!(by_extol(&image.path, kind), theirs, "{words:?}, {what}: {kind}");
            }
        }
        e2fsck(&image).assert_clean("after Linux");
        done(&["quota", "check", text(&image.path)]);
    }
}
