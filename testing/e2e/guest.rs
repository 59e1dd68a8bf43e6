//! Volumes of ours on another Linux than the host's: Debian's, in the guest, where root may also
//! grow a mounted volume.

use extol_guest::Guest;
use extol_testkit::{
    Image, Need, Scratch, e2fsck, extol_ok, extol_path, require, run_ok, text, tool,
};
use std::fmt::Write as _;

const NEEDS: [Need; 2] = [Need::Guest, Need::Tool("md5sum")];

/// Sizes of a volume when it is made, when Extol has grown it, and when the guest has.
const MADE: u64 = 96 << 20;
const GROWN_BY_EXTOL: &str = "300M";
const GROWN: u64 = 1 << 30;

/// Works on a volume, grows it while it is mounted, works on, and lists the files' checksums after
/// another mount.
const WORK: &str = r#"
work() {
    mount -t ext4 "$1" /mnt
    mkdir /mnt/dir
    for i in $(seq 200); do echo "$1 $i" >"/mnt/dir/file $i"; done
    ln "/mnt/dir/file 1" /mnt/hard
    ln -s "dir/file 2" /mnt/soft
    mknod /mnt/null c 1 3
    rm "/mnt/dir/file 3"
    mv "/mnt/dir/file 4" /mnt/moved
    resize2fs "$1" >/tmp/said 2>&1 || { cat /tmp/said; return 1; }
    head -c 9000000 /dev/urandom >/mnt/large
    dd if=/mnt/large of=/mnt/sparse bs=1000 count=30 seek=40000 2>/dev/null
    truncate -s 5000 /mnt/dir/file\ 5
    umount /mnt
    mount -t ext4 -o ro "$1" /mnt
    (cd /mnt && find . -type f | sort | while read -r file; do md5sum "$file"; done) >/tmp/sums
    md5sum </tmp/sums
    grep -v file /tmp/sums
    umount /mnt
}
set -e
"#;

#[test]
fn linux_uses_and_grows_what_mkfs_makes() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let kinds: [&[&str]; 7] = [
        &[],
        &["-b", "1024"],
        &["-t", "ext2"],
        &["-t", "ext3", "-b", "2048"],
        &["-O", "fast_commit,orphan_file"],
        &["-O", "meta_bg,^resize_inode"],
        &["-O", "^metadata_csum,^64bit", "-I", "128"],
    ];
    let mut guest = Guest::new();
    let mut script = WORK.to_owned();
    let mut images = Vec::new();
    for (nr, kind) in kinds.iter().enumerate() {
        let image = Image::sparse(scratch.join(&format!("{nr}.img")), GROWN);
        let size = format!("{}K", MADE >> 10);
        extol_ok(&[&["mkfs", "-q"], *kind, &[text(&image.path), &size]].concat());
        // Every second kind, and the last of all: Linux goes on from where Extol stopped.
        if nr % 2 == 1 || nr + 1 == kinds.len() {
            extol_ok(&["resize", text(&image.path), GROWN_BY_EXTOL]);
        }
        guest = guest.drive(&image.path);
        let drive = char::from(b'a' + u8::try_from(nr).expect("few drives"));
        writeln!(script, "work /dev/vd{drive}").expect("write to a string");
        images.push(image);
    }
    let report = guest.run(&script);
    let mut lines = report.lines().into_iter();
    for (image, kind) in images.iter().zip(kinds) {
        let all = lines.next().expect("a checksum of all").split_once(' ').expect("a sum").0;
        e2fsck(image).assert_clean(&format!("after the guest, {kind:?}"));
        let said = extol_ok(&["check", text(&image.path)]);
        assert!(said.contains("clean: 0 errors"), "{kind:?}: {said}");
        let info = extol_ok(&["info", text(&image.path)]);
        let blocks = info.lines().find(|line| line.starts_with("Blocks ")).expect("a line");
        let grown = GROWN / block_size(&info);
        assert!(blocks.contains(&format!(" {grown} ")), "{kind:?}: {blocks}");
        assert_eq!(all, sums(&scratch, image), "{kind:?}");
        for name in ["./hard", "./large", "./moved", "./sparse"] {
            assert!(lines.next().is_some_and(|line| line.ends_with(name)), "{}", report.output);
        }
    }
    assert_eq!(lines.next(), None, "{}", report.output);
    assert!(!report.console.contains("EXT4-fs error"), "{}", report.console);
}

fn block_size(info: &str) -> u64 {
    let line = info.lines().find(|line| line.starts_with("Block size ")).expect("a line");
    line.split_whitespace().nth(2).and_then(|word| word.parse().ok()).expect("a number")
}

/// The checksum that the script makes of all files, made of what Extol copies out.
fn sums(scratch: &Scratch, image: &Image) -> String {
    let out = scratch.dir("out");
    run_ok(
        std::process::Command::new(extol_path())
            .arg("cp")
            .arg(&image.path)
            .args(["/dir", "/hard", "/large", "/moved", "/sparse"])
            .arg(&out),
    );
    let list = "find . -type f | LC_ALL=C sort | while read -r f; do md5sum \"$f\"; done | md5sum";
    let said = run_ok(tool("sh").args(["-c", list]).current_dir(&out));
    std::fs::remove_dir_all(&out).expect("remove what was copied out");
    said.split_whitespace().next().expect("a sum").to_owned()
}

/// Files of several owners come, change hands and go.
const OWNERS: &str = r#"
owners() {
    mount -t ext4 -o "$2" "$1" /mnt
    for user in 0 1000 70000; do
        mkdir "/mnt/$user"
        for i in $(seq 20); do head -c "${i}000" /dev/urandom >"/mnt/$user/$i"; done
        chown -R "$user:$((user + 1))" "/mnt/$user"
    done
    chown 5 /mnt/1000/2
    rm -r /mnt/1000/1* /mnt/0
    umount /mnt
}
set -e
"#;

#[test]
fn linux_works_on_new_volumes_with_quota_and_clusters() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let kinds: [(&[&str], &str); 5] = [
        (&["-O", "quota,project"], "usrquota,grpquota,prjquota"),
        (&["-O", "quota,^orphan_file", "-b", "1024"], "usrquota,grpquota"),
        (&["-O", "bigalloc,quota,project", "-C", "64K"], "usrquota,prjquota"),
        (&["-O", "bigalloc", "-b", "1024", "-C", "16K"], "rw"),
        (&["-t", "ext3", "-O", "quota"], "usrquota"),
    ];
    let mut guest = Guest::new().module("quota_v2");
    let mut script = OWNERS.to_owned();
    let mut images = Vec::new();
    for (drive, (kind, options)) in ('a'..).zip(kinds) {
        let image = Image::sparse(scratch.join(&format!("{drive}.img")), MADE);
        extol_ok(&[&["mkfs", "-q"], kind, &[text(&image.path)]].concat());
        guest = guest.drive(&image.path);
        writeln!(script, "owners /dev/vd{drive} {options}").expect("write to a string");
        images.push(image);
    }
    assert_eq!(guest.run(&script).lines(), Vec::<&str>::new());
    for (image, (kind, _)) in images.iter().zip(kinds) {
        e2fsck(image).assert_clean(&format!("after the guest, {kind:?}"));
        let said = extol_ok(&["check", text(&image.path)]);
        assert!(said.contains("clean: 0 errors"), "{kind:?}: {said}");
    }
}
