//! `cp` out of an image, as root.

use super::{LIMIT, NEEDS, extol_copy, extol_in_part, extol_path, made_by, succeeded, text};
use extol_testkit::{Image, KernelMount, Need, Scratch, require, run, run_ok, tool};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    rustix::fs::lgetxattr(path, name, &mut value[..]).ok().map(|len| value[..len].to_vec())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn old() -> std::time::SystemTime {
    std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)
}

/// A volume with everything that gives rights.
fn powerful(scratch: &Scratch) -> Image {
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let mount = KernelMount::mount(&image, &scratch.dir("kernel"), &[]);
    let d = mount.path().join("d");
    fs::create_dir_all(d.join("sub")).unwrap();
    fs::write(d.join("suid"), "#!/bin/sh\n").unwrap();
    fs::write(d.join("plain"), "plain").unwrap();
    fs::hard_link(d.join("plain"), d.join("sub/again")).unwrap();
    run_ok(tool("mknod").arg(d.join("disk")).args(["b", "7", "0"]));
    run_ok(tool("mknod").arg(d.join("null")).args(["c", "1", "3"]));
    run_ok(tool("mknod").arg(d.join("pipe")).arg("p"));
    for path in [d.join("suid"), d.join("plain"), d.join("sub"), d.clone()] {
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    }
    set_mode(&d.join("suid"), 0o6777);
    set_mode(&d.join("plain"), 0o666);
    run_ok(tool("setcap").arg("cap_net_raw+ep").arg(d.join("plain")));
    run_ok(tool("setfattr").args(["-n", "user.note", "-v", "kept"]).arg(d.join("plain")));
    run_ok(tool("setfattr").args(["-n", "trusted.note", "-v", "secret"]).arg(d.join("plain")));
    run_ok(tool("setfacl").args(["-m", "u:1000:rwx"]).arg(d.join("sub")));
    for path in [d.join("plain"), d.clone()] {
        let file = fs::File::open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(old()).set_accessed(old())).unwrap();
    }
    set_mode(&d, 0o1777);
    mount.unmount();
    image
}

const MORE_NEEDS: [Need; 5] = [
    Need::Loop,
    Need::Kernel("ext4"),
    Need::Tool("setcap"),
    Need::Tool("setfattr"),
    Need::Tool("setfacl"),
];

#[test]
fn nothing_is_given_away() {
    if !require(&[&NEEDS[..], &MORE_NEEDS].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = powerful(&scratch);
    let (dest, d) = (scratch.dir("dest"), scratch.dir("dest/d"));
    set_mode(&d, 0o700);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(extol_path());
    let done = run(command.args(["cp", "-r", text(&image.path), "/d", text(&dest)]), LIMIT);
    assert_eq!(done.code, Some(0), "{}", done.output);
    let line = "extol: 2 device nodes, set-id bits of 1 file, capabilities of 1 file, \
                access lists of 1 file were not copied: use -a as root";
    assert_eq!(done.stderr.trim_end(), line);

    let of = |path: &Path| {
        let meta = path.symlink_metadata().unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    };
    assert_eq!(of(&d), (0o700, 0, 0), "a directory that was there");
    assert!(fs::metadata(&d).unwrap().modified().unwrap() > old());
    assert_eq!(of(&d.join("suid")), (0o755, 0, 0));
    assert_eq!(of(&d.join("plain")), (0o644, 0, 0));
    assert_eq!(fs::metadata(d.join("plain")).unwrap().modified().unwrap(), old());
    assert_eq!(of(&d.join("sub")).1, 0);
    assert!(!d.join("disk").exists() && !d.join("null").exists());
    assert!(d.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(xattr(&d.join("plain"), "security.capability"), None);
    assert_eq!(xattr(&d.join("plain"), "trusted.note"), None);
    assert_eq!(xattr(&d.join("sub"), "system.posix_acl_access"), None);
    assert_eq!(fs::metadata(d.join("plain")).unwrap().nlink(), 2);

    // Asked for, all of it comes, and the directory that was there becomes what it is on the
    // volume.
    let done = succeeded(&["cp", "-a", text(&image.path), "/d", text(&dest)]);
    assert_eq!(done.stderr, "");
    assert_eq!(of(&d), (0o1777, 1000, 1000));
    assert_eq!(fs::metadata(&d).unwrap().modified().unwrap(), old());
    assert_eq!(of(&d.join("suid")), (0o6777, 1000, 1000));
    assert_eq!(fs::metadata(d.join("disk")).unwrap().rdev(), rustix::fs::makedev(7, 0));
    assert!(xattr(&d.join("plain"), "security.capability").is_some());
    assert_eq!(xattr(&d.join("sub"), "system.posix_acl_access").map(|acl| acl.len()), Some(44));
    assert_eq!(
        fs::metadata(d.join("sub/again")).unwrap().ino(),
        fs::metadata(d.join("plain")).unwrap().ino()
    );

    // The words of cp(1).
    let (image, part) = (text(&image.path), scratch.dir("part"));
    succeeded(&[
        "cp",
        "--preserve=mode,ownership",
        "--no-preserve=timestamps,links",
        image,
        "/d",
        text(&part),
    ]);
    assert_eq!(of(&part.join("d/suid")), (0o6777, 1000, 1000));
    assert!(fs::metadata(part.join("d/plain")).unwrap().modified().unwrap() > old());
    assert_eq!(fs::metadata(part.join("d/plain")).unwrap().nlink(), 1);
}

/// Without the right to give files away, set-id bits are not kept, whatever is asked for.
#[test]
fn as_a_user() {
    if !require(&[&NEEDS[..], &MORE_NEEDS, &[Need::Tool("setpriv")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = powerful(&scratch);
    let (dest, bin_copy) = (scratch.dir("dest"), extol_copy(scratch.path()));
    set_mode(&dest, 0o777);
    set_mode(scratch.path(), 0o755);
    set_mode(&image.path, 0o644);
    let mut command = tool("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&bin_copy);
    let done = run(command.args(["cp", "-a", text(&image.path), "/d", text(&dest)]), LIMIT);
    assert_eq!(done.code, Some(0), "{}", done.output);
    assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    for words in ["2 device nodes", "set-id bits of 1 file", "owners of", "that needs root"] {
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    let meta = fs::metadata(dest.join("d/suid")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o777, 65534));
}

/// Symbolic links in the destination, of an earlier copy or of another user, lead nowhere.
#[test]
fn never_through_a_link() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (outside, dest) = (scratch.dir("outside"), scratch.dir("dest"));
    fs::write(outside.join("victim"), "old").unwrap();
    let payload = scratch.join("payload");
    fs::write(&payload, "pwned").unwrap();
    let first = made_by(
        &scratch,
        &[],
        &[
            format!("symlink x {}", outside.display()),
            format!("symlink victim {}/victim", outside.display()),
        ],
    );
    succeeded(&["cp", text(&first.path), "/x", "/victim", text(&dest)]);
    first.remove();
    let second = made_by(
        &scratch,
        &[],
        &[
            "mkdir x".into(),
            "mkdir x/deep".into(),
            format!("write {} x/pwned", payload.display()),
            format!("write {} x/deep/pwned", payload.display()),
            format!("write {} victim", payload.display()),
            "mkdir y".into(),
            format!("write {} y/pwned", payload.display()),
        ],
    );
    // A directory is not put where a link is. A file takes the place of the link.
    let done = extol_in_part(&["cp", "-a", text(&second.path), "/x", "/victim", text(&dest)]);
    assert!(done.stderr.contains("dest/x: Not a directory"), "{}", done.stderr);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old");
    assert_eq!(fs::read(dest.join("victim")).unwrap(), b"pwned");
    // One level further down, and from the root.
    fs::remove_file(dest.join("x")).unwrap();
    fs::create_dir(dest.join("x")).unwrap();
    symlink(&outside, dest.join("x/deep")).unwrap();
    symlink(&outside, dest.join("y")).unwrap();
    let done = extol_in_part(&["cp", text(&second.path), "/", text(&dest)]);
    assert!(done.stderr.contains("x/deep: Not a directory"), "{}", done.stderr);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(dest.join("x/pwned")).unwrap(), b"pwned");
    // What the user names is the user's own.
    succeeded(&["cp", text(&second.path), "/y/pwned", text(&dest.join("y"))]);
    assert_eq!(fs::read(outside.join("pwned")).unwrap(), b"pwned");
}

/// Depth costs no descriptors and no stack.
#[test]
fn deep_trees() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let depth = 300;
    let mut requests = Vec::new();
    for _ in 0..depth {
        requests.extend(["mkdir d".to_owned(), "cd d".to_owned()]);
    }
    let payload = scratch.join("payload");
    fs::write(&payload, "bottom").unwrap();
    requests.push(format!("write {} f", payload.display()));
    let image = made_by(&scratch, &[], &requests);
    let dest = scratch.dir("dest");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$@\"", "sh"]).arg(extol_path());
    let done = run(command.args(["cp", text(&image.path), "/d", text(&dest)]), LIMIT);
    assert_eq!(done.code, Some(0), "{}", done.output);
    let bottom: String = std::iter::repeat_n("/d", depth).chain(["/f"]).collect();
    assert_eq!(fs::read(format!("{}{bottom}", dest.display())).unwrap(), b"bottom");
    let listed = succeeded(&["ls", "-R", text(&image.path), "/d"]);
    assert_eq!(listed.output.lines().filter(|line| line.ends_with(':')).count(), depth);
    succeeded(&["rm", "-r", text(&image.path), "/d"]);
}
