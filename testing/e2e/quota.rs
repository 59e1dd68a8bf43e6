//! Quotas by the command and on a mount: what is said, what is refused to which user, and what is
//! set while the volume is in use.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::Path;

use extol_testkit::{ExtolMount, Image, Need, Scratch, as_user, e2fsck, require, run_extol, text};
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
    done(&["quota", "report", of_users]);
    assert!(fs::read(&users.path).unwrap() == before, "something was written");
    // (The volume is opened before that is known.)
    refused(&["quota", "set", "-g", "--inode-hard", "4", of_users, "0"], 32, "for groups");
    e2fsck(&users).assert_clean("after a refusal");
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
