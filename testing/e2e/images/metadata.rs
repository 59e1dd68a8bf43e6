//! What the options and files of metadata change of what the source says.

use crate::{LINUX, below_root, read_back};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, TreeSpec, debugfs, e2fsck, extol_ok, make_tree, refused,
    require, run_ok, text, tool,
};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn edits_change_what_the_directory_says() {
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::create_dir_all(dir.join("var/cache/deep")).unwrap();
    std::fs::write(dir.join("var/cache/deep/file"), "x").unwrap();
    std::fs::write(dir.join("run.o"), "x").unwrap();
    std::fs::write(dir.join("run"), "x").unwrap();
    std::fs::set_permissions(dir.join("run"), PermissionsExt::from_mode(0o777)).unwrap();
    let image = scratch.join("a.img");
    let words = [
        "mkfs",
        "-q",
        "-d",
        text(&dir),
        "--exclude",
        "*.o",
        "--exclude",
        "/var/cache/*",
        "--owner",
        "5:6",
        "--root-owner",
        "7:8",
        "--chmod",
        "go-w",
        "--mtime",
        "2020-02-29",
        text(&image),
    ];
    extol_ok(&words);
    assert_eq!(extol_ok(&["ls", text(&image)]), "lost+found\nrun\nvar\n");
    assert_eq!(extol_ok(&["ls", text(&image), "/var/cache"]), "");
    let listed = extol_ok(&["ls", "-l", text(&image)]);
    let run = listed.lines().find(|line| line.ends_with(" run")).expect("listed");
    assert!(run.starts_with("-rwxr-xr-x") && run.contains(" 5 ") && run.contains(" 6 "), "{run}");
    assert!(run.contains("2020-02-29 00:00"), "{run}");
    let root = extol_ok(&["ls", "-ld", text(&image), "/"]);
    assert!(
        root.contains(" 7 ") && root.contains(" 8 ") && root.starts_with("drwxr-xr-x"),
        "{root}"
    );
}

/// Metadata files: the same table given to genext2fs, and a specification that mtree finds kept.
#[test]
fn metadata_files_say_what_the_source_cannot() {
    let tools = ["genext2fs", "debugfs", "mtree"].map(Need::Tool);
    if !require(&LINUX) || !require(&tools) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    std::fs::create_dir(dir.join("etc")).unwrap();
    std::fs::write(dir.join("etc/shadow"), "secret").unwrap();
    let table = scratch.join("table");
    let text_of_table = "# devices\n/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -\n\
        /dev/tty c 620 0 5 4 10 2 3 6\n/dev/sda b 660 0 6 8 0 - - -\n\
        /dev/ttyS c 660 0 20 4 64 0 1 4\n/etc/shadow f 640 7 42 - - - - -\n\
        /run d 1777 0 0 - - - - -\n/run/pipe p 600 1 2 - - - - -\n";
    std::fs::write(&table, text_of_table).unwrap();
    let (ours, theirs) = (scratch.join("ours.img"), scratch.join("theirs.img"));
    extol_ok(&[
        "mkfs",
        "-q",
        "-t",
        "ext2",
        "-d",
        text(&dir),
        "--owner",
        "0:0",
        "--metadata",
        text(&table),
        text(&ours),
        "4M",
    ]);
    e2fsck(&Image::existing(&ours)).assert_clean("with a device table");
    run_ok(
        tool("genext2fs")
            .args(["-q", "-b", "4096", "-d"])
            .arg(&dir)
            .arg("-D")
            .arg(&table)
            .arg(&theirs),
    );
    let timeless = |image: &Path| {
        let mut tree = below_root(read_back(&scratch, image));
        tree.nodes.values_mut().for_each(|node| node.mtime = (0, 0));
        // genext2fs gives directories of the source other bits.
        tree.nodes.remove(Path::new("etc"));
        tree
    };
    let (ours_is, theirs_is) = (timeless(&ours), timeless(&theirs));
    assert_eq!(ours_is.nodes.len(), 14);
    ours_is.assert_same(&theirs_is, "extol", "genext2fs");
    // A specification of one tree makes another one the same.
    let source = scratch.dir("source");
    make_tree(&source, &TreeSpec { xattr: 0, ..TreeSpec::small(5) });
    let words = ["-c", "-k", "type,mode,uid,gid,device,link,time", "-p", text(&source)];
    let spec = run_ok(tool("mtree").args(words));
    let spec_path = scratch.join("spec");
    std::fs::write(&spec_path, &spec).unwrap();
    std::fs::remove_file(&ours).unwrap();
    extol_ok(&[
        "mkfs",
        "-q",
        "-d",
        text(&source),
        "--owner",
        "77:77",
        "--chmod",
        "0600",
        "--mtime",
        "@5",
        "--metadata",
        text(&spec_path),
        text(&ours),
    ]);
    let mount = scratch.dir("mnt");
    let kernel = KernelMount::mount(&Image::existing(&ours), &mount, &["ro"]);
    // (It reports lost+found, which the specification has not.)
    let checked = tool("mtree").args(["-e", "-f"]).arg(&spec_path).arg("-p").arg(&mount).output();
    let checked = checked.unwrap();
    kernel.unmount();
    let differences = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{differences}");
    let bad = scratch.join("bad");
    std::fs::write(&bad, "/dev/null c 666 0 0 1 3\n/x q 1\n").unwrap();
    let words = ["mkfs", "-d", text(&dir), "--metadata", text(&bad), text(&theirs)];
    refused(&words, 1, &["bad", "line 2", "the type 'q'"]);
}

/// Labels, by a file of contexts in which matchpathcon finds the same ones.
#[test]
fn labels_are_those_of_matchpathcon() {
    if !require(&[Need::Tool("matchpathcon"), Need::Tool("debugfs")]) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tree");
    let paths = [
        "etc/passwd",
        "etc/ssh/key.pub",
        "usr/lib/a.so",
        "usr/lib/a.so.1",
        "usr/bin/x",
        "usr/share/doc",
        "var/log/a/b.log",
        "var/none/x",
        "home/ada/.ssh/id",
        "other",
    ];
    for path in paths {
        std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        std::fs::write(dir.join(path), path).unwrap();
    }
    let contexts = scratch.join("contexts");
    let lines = "/.*\tsystem_u:object_r:default_t:s0\n/\t-d\tsystem_u:object_r:root_t:s0\n\
        /etc(/.*)?\tsystem_u:object_r:etc_t:s0\n/etc/passwd -- system_u:object_r:passwd_t:s0\n\
        /etc/ssh/[^/]*\\.pub -- system_u:object_r:key_t:s0\n\
        /usr/(.*/)?lib(/.*)?\tsystem_u:object_r:lib_t:s0\n\
        /usr/.*\\.so(\\.[^/]*)? -- system_u:object_r:so_t:s0\n\
        /usr/bin(/.*)? system_u:object_r:bin_t:s0\n/usr/bin -d system_u:object_r:bin_dir_t:s0\n\
        /var/log(/.*)? system_u:object_r:log_t:s0\n/var/log/a -l system_u:object_r:no_t:s0\n\
        /var/none(/.*)? <<none>>\n/home/[^/]+/\\.ssh(/.*)? system_u:object_r:ssh_t:s0\n";
    std::fs::write(&contexts, lines).unwrap();
    let image = scratch.join("a.img");
    extol_ok(&[
        "mkfs",
        "-q",
        "-d",
        text(&dir),
        "--selinux-contexts",
        text(&contexts),
        text(&image),
    ]);
    let dirs = ["/", "etc", "etc/ssh", "usr", "usr/lib", "usr/bin", "var/log/a", "var/none"];
    let mut labels = std::collections::BTreeSet::new();
    for (path, mode) in dirs.map(|dir| (dir, "dir")).into_iter().chain(paths.map(|p| (p, "file"))) {
        let path = format!("/{}", path.trim_start_matches('/'));
        let told =
            run_ok(tool("matchpathcon").args(["-n", "-m", mode, "-f"]).arg(&contexts).arg(&path));
        let told = told.trim();
        let request = format!("ea_get -V {path} security.selinux");
        let label = debugfs(&Image::existing(&image), &request);
        let label = label.lines().find(|line| line.starts_with("system_u")).unwrap_or("<<none>>");
        assert_eq!(label.trim_end_matches(['\0', '\\']), told, "{path}");
        labels.insert(told.to_owned());
    }
    assert!(labels.len() > 9, "{labels:?}");
    e2fsck(&Image::existing(&image)).assert_clean("with labels");
    std::fs::write(&contexts, "/a( label\n").unwrap();
    let words = ["mkfs", "-d", text(&dir), "--selinux-contexts", text(&contexts), text(&image)];
    refused(&words, 1, &["contexts", "line 1", "/a("]);
}
