//! What GNU tar and bsdtar make, against what they extract.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::process::Command;

use extol_testkit::{Need, Scratch, TreeSpec, make_tree, require, run_ok};

use super::list_tar;
use crate::source::compare::{assert_same, list_dir};

/// Programs that extract as they were told, as root.
const NEEDS: [Need; 3] = [Need::Root, Need::Tool("tar"), Need::Tool("bsdtar")];

/// A tree with all that an archive can have.
fn rich_tree(root: &Path) {
    fs::create_dir(root).expect("mkdir");
    make_tree(root, &TreeSpec::small(34));
    let sparse = File::create(root.join("tar-sparse")).expect("create");
    sparse.set_len(5_000_001).expect("truncate");
    for (at, len) in [(0, 10), (700_000, 70_000), (3_000_000, 4096)] {
        sparse.write_all_at(&vec![b'd'; len], at).expect("write");
    }
    let holes = File::create(root.join("tar-many-holes")).expect("create");
    for at in 0..60 {
        holes.write_all_at(b"some data", at * 65_536).expect("write");
    }
    File::create(root.join("tar-hole")).expect("create").set_len(1 << 20).expect("truncate");
    let long = "a-long-name/".repeat(20);
    fs::create_dir_all(root.join(&long)).expect("mkdir");
    fs::write(root.join(&long).join("n".repeat(200)), b"deep").expect("write");
    symlink(format!("/{long}"), root.join("tar-a-link-with-a-long-target")).expect("symlink");
    fs::hard_link(root.join(&long).join("n".repeat(200)), root.join("tar-hard")).expect("link");
    run_ok(
        Command::new("touch").arg("-d").arg("1960-01-01 00:00:00.5 UTC").arg(root.join("tar-old")),
    );
    run_ok(Command::new("chown").arg("3000000:4000000000").arg(root.join("tar-old")));
}

fn tar(args: &[&str], archive: &Path, root: &Path) {
    let mut command = Command::new("tar");
    command.args(args).arg("-cf").arg(archive).arg("-C").arg(root).arg(".");
    // What a format cannot have is left out, with an error.
    let _ = command.output().expect("tar");
}

fn extract(program: &str, args: &[&str], archive: &Path, into: &Path) {
    fs::create_dir(into).expect("mkdir");
    let mut command = Command::new(program);
    command.arg("-xpf").arg(archive).arg("-C").arg(into).args(args);
    let done = command.output().expect("extracts");
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn archives_of_gnu_tar() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let root = scratch.join("root");
    rich_tree(&root);
    let all = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];
    for (nr, args) in [
        &["--format=v7"][..],
        &["--format=ustar"],
        &["--format=oldgnu"],
        &["--format=oldgnu", "-S"],
        &["--format=gnu"],
        &["--format=gnu", "-S"],
        &["--format=posix"],
        &["--format=posix", "-S", "--sparse-version=0.0"],
        &["--format=posix", "-S", "--sparse-version=0.1"],
        &["--format=posix", "-S", "--sparse-version=1.0"],
        &["--format=posix", "-S", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"],
    ]
    .iter()
    .enumerate()
    {
        let archive = scratch.join(&format!("{nr}.tar"));
        tar(args, &archive, &root);
        let into = scratch.join(&format!("{nr}"));
        extract("tar", &all, &archive, &into);
        let got = list_tar(&archive, scratch.path());
        assert_same(&got, &list_dir(&into), &format!("{args:?}"));
        assert!(got.len() > 20, "{args:?}: {} entries", got.len());
        fs::remove_dir_all(&into).expect("removed");
    }
}

/// libarchive writes half a second before 1970 as -1.5, and reads it so.
fn without_early_time(line: &mut String) {
    let words: Vec<_> = line.split(' ').collect();
    let is_early = |word: &str| word.starts_with('-') && word.contains('.');
    *line = words.into_iter().filter(|word| !is_early(word)).collect::<Vec<_>>().join(" ");
}

#[test]
fn archives_of_bsdtar() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let root = scratch.join("root");
    rich_tree(&root);
    for (nr, args) in [
        &["--format=v7"][..],
        &["--format=ustar"],
        &["--format=gnutar"],
        &["--format=pax"],
        &["--format=pax", "--xattrs", "--acls", "--read-sparse"],
    ]
    .iter()
    .enumerate()
    {
        let archive = scratch.join(&format!("{nr}.tar"));
        let mut command = Command::new("bsdtar");
        command.args(*args).arg("-cf").arg(&archive).arg("-C").arg(&root).arg(".");
        let _ = command.output().expect("bsdtar");
        let into = scratch.join(&format!("{nr}"));
        extract("bsdtar", &["--xattrs", "--acls", "--numeric-owner", "-o"][..3], &archive, &into);
        let mut got = list_tar(&archive, scratch.path());
        let mut wanted = list_dir(&into);
        // bsdtar leaves the directory alone that it extracts into.
        for list in [&mut got, &mut wanted] {
            list.remove(".");
            list.values_mut().for_each(without_early_time);
        }
        assert_same(&got, &wanted, &format!("{args:?}"));
        fs::remove_dir_all(&into).expect("removed");
    }
}
