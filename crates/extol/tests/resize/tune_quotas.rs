//! Quota files come and go by kind, as tune2fs -Q has it.

use extol::tune::{Request, Tuned};
use extol::vfs::{Creds, NewNode};
use extol_testkit::{Need, require};

use super::*;

/// The lines of dumpe2fs about quota files, and the features of them.
fn quotas(image: &Image) -> Vec<String> {
    let text = image.dumpe2fs();
    let features = text.lines().find(|line| line.starts_with("Filesystem features:")).unwrap();
    let features = features.split_whitespace().filter(|word| ["quota", "project"].contains(word));
    let mut features: Vec<String> = features.map(str::to_owned).collect();
    features.sort_unstable();
    let files = text.lines().filter(|line| line.contains(" quota inode:"));
    // (Which inode the file for projects has is not theirs to say.)
    let files = files.map(|line| line.split(':').next().unwrap().to_owned());
    features.into_iter().chain(files).collect()
}

fn asked(text: &str) -> Request {
    let mut request = Request::default();
    request.set_quotas(text).unwrap();
    request
}

fn tuned(image: &Image, request: &Request) -> Tuned {
    image.tune(request).unwrap()
}

#[test]
fn quota_files_come_and_go_as_by_tune2fs() {
    if !require(&[Need::Tool("e2fsck"), Need::Tool("tune2fs")]) {
        return;
    }
    let wishes = [
        "usrquota",
        "^usrquota",
        "prjquota",
        "grpquota,^usrquota",
        "^usrquota,^grpquota",
        "^prjquota",
        "^usrquota,^grpquota,^prjquota",
        "usrquota,grpquota,prjquota",
        "prj",
        "usr,^grp",
    ];
    for form in ["^quota", "quota", "quota,project", "project", "quota,^extents,^64bit"] {
        for wish in wishes {
            let what = format!("{form}: -Q {wish}");
            let image = Image::new("16M", &["-t", "ext4", "-b", "1024", "-O", form]);
            image.with(|fs| {
                for owner in 0..40 {
                    let (creds, name) = (Creds { uid: owner, gid: 7 }, format!("file{owner}"));
                    let new = NewNode::Regular;
                    let made = fs.create(fs.root(), name.as_bytes(), new, 0o644, 0, creds);
                    fs.write(made.unwrap().id.ino, 0, &contents(owner.into(), 3000)).unwrap();
                }
            });
            let theirs = image.copy();
            let (code, text) = run("tune2fs", &["-Q", wish], &theirs.path);
            assert_eq!(code, 0, "{what}: {text}");
            let before = quotas(&image);
            let done = tuned(&image, &asked(wish));
            assert_eq!(quotas(&image), quotas(&theirs), "{what}");
            assert_eq!(done.changes.is_empty(), before == quotas(&image), "{what}: {done:?}");
            // (e2fsck compares the usage.)
            image.assert_clean(&what);
            assert!(tuned(&image, &asked(wish)).changes.is_empty(), "{what}: again");
            // And the volume is of use.
            image.with(|fs| {
                assert_eq!(fs.wrong_usage().unwrap_or_default(), [], "{what}");
                fs.unlink(fs.root(), b"file3").unwrap();
            });
            image.assert_clean(&what);
        }
    }
}

/// The feature goes with the last file.
#[test]
fn projects_go_with_their_file() {
    if !require(&[Need::Tool("e2fsck"), Need::Tool("tune2fs")]) {
        return;
    }
    for kinds in ["prjquota", "usrquota:prjquota"] {
        let kinds = format!("quotatype={kinds}");
        let args = ["-t", "ext4", "-b", "1024", "-O", "quota,project", "-E", &kinds];
        let image = Image::new("16M", &args);
        let theirs = image.copy();
        let (code, text) = run("tune2fs", &["-O", "^project"], &theirs.path);
        assert_eq!(code, 0, "{kinds}: {text}");
        let mut request = Request::default();
        request.set_features("^project").unwrap();
        tuned(&image, &request);
        assert_eq!(quotas(&image), quotas(&theirs), "{kinds}");
        image.assert_clean(&kinds);
    }
}

#[test]
fn quota_files_change_only_with_a_journal_and_not_at_once_with_the_orphan_file() {
    let image = Image::new("16M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]);
    let refused = image.tune(&asked("usrquota")).unwrap_err();
    assert!(refused.to_string().contains("give it one (-j)"), "{refused}");
    let image = Image::new("16M", &["-t", "ext4", "-I", "128", "-O", "^extra_isize"]);
    let refused = image.tune(&asked("prjquota")).unwrap_err();
    assert!(refused.to_string().contains("inodes of 128 bytes"), "{refused}");
    assert!(asked("usrquota").to_text().unwrap_err().to_string().contains("unmount it"));
}

/// The feature project comes with the quota file for projects and the feature quota, and goes with
/// that file.
#[test]
fn the_feature_project_brings_its_file_as_by_tune2fs() {
    if !require(&[Need::Tool("e2fsck"), Need::Tool("tune2fs")]) {
        return;
    }
    for (form, wish) in [
        ("^quota", "project"),
        ("^quota", "quota,project"),
        ("^quota", "project,quota"),
        ("quota", "project"),
        ("project", "project"),
        ("project", "^project"),
        ("quota,project", "^project"),
        ("quota,project", "project"),
        ("quota,project", "^quota,^project"),
    ] {
        let what = format!("{form}: -O {wish}");
        let image = Image::new("16M", &["-t", "ext4", "-b", "1024", "-O", form]);
        image.with(|fs| fill_some(fs, 8));
        let theirs = image.copy();
        let (code, text) = run("tune2fs", &["-O", wish], &theirs.path);
        assert_eq!(code, 0, "{what}: {text}");
        let mut request = Request::default();
        request.set_features(wish).unwrap();
        tuned(&image, &request);
        assert_eq!(quotas(&image), quotas(&theirs), "{what}");
        image.assert_clean(&what);
        assert!(tuned(&image, &request).changes.is_empty(), "{what}: again");
    }
}

/// What takes no block works on a volume that has none left, and what takes some says so.
#[test]
fn a_full_volume_is_tuned() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "quota"]);
    image.with(|fs| {
        fs.set_reserved_clusters(0);
        let (mut at, mut part) = (0, 1 << 20);
        let ino = fs.create(fs.root(), b"full", NewNode::Regular, 0o644, 0, Creds::default());
        let ino = ino.unwrap().id.ino;
        while part > 0 {
            match fs.write(ino, at, &vec![7; part]).and_then(|_| fs.fsync(ino, false)) {
                Ok(()) => at += part as u64,
                Err(_) => part /= 2,
            }
        }
    });
    let free = || {
        let text = image.dumpe2fs();
        let line = text.lines().find(|line| line.starts_with("Free blocks:")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    assert!(free() < 16, "{} free blocks", free());
    let mut label = Request::default();
    label.label = Some(b"full".to_vec());
    label.set_features("^large_file,dir_nlink,verity").unwrap();
    label.set_default_options("^acl").unwrap();
    assert!(!tuned(&image, &label).changes.is_empty());
    tuned(&image, &asked("^grpquota"));
    image.assert_clean("with a label, and a file less");
    let refused = image.tune(&asked("grpquota,prjquota"));
    if let Err(error) = refused {
        let said = error.to_string();
        assert!(said.contains("the volume is full: quota files of "), "{said}");
    }
    image.assert_clean("at its end");
}
