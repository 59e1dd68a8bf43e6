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
