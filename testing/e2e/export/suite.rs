//! Loads of other programs on an export: Linux's client in the guest with fio, dbench, tar and a
//! list of calls, and the tools of libnfs beside it.

use extol_guest::Guest;
use extol_testkit::{
    ExtolExport, Image, Need, Scratch, e2fsck, extol_ok, require, run_ok, text, tool,
};
use std::path::Path;
use std::time::Duration;

use crate::linux::BEGIN;

const NEEDS: [Need; 8] = [
    Need::Guest,
    Need::Tool("mke2fs"),
    Need::Tool("fio"),
    Need::Tool("dbench"),
    Need::Tool("perl"),
    Need::Tool("tar"),
    Need::Tool("diff"),
    Need::Tool("nfs-cp"),
];

/// What dbench plays, of its package.
const CLIENTS: &str = "/usr/share/dbench/client.txt";

/// Everything at once, as clients of a server are.
const SUITE: &str = r#"
nfs hard
mkdir /mnt/calls /mnt/fio /mnt/dbench
perl /calls.pl /mnt/calls &
(cd /mnt && tar xf /tree.tar) || failed untar &
fio --name=verify --directory=/mnt/fio --rw=randwrite --bs=4k --size=$FIO --numjobs=2 --thread \
    --fsync=32 --end_fsync=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --ioengine=psync \
    --minimal >/tmp/fio 2>&1 || failed "fio: $(tail -n 5 /tmp/fio)" &
wait
dbench -c /client.txt -D /mnt/dbench -t $SECONDS $CLIENTS >/tmp/dbench 2>&1 ||
    failed "dbench: $(tail -n 5 /tmp/dbench)"
grep -q '^Throughput' /tmp/dbench || failed "dbench says nothing: $(tail -n 5 /tmp/dbench)"
umount /mnt
nfs hard,rsize=32768
(cd /mnt/tree && find . -type f | sort | head -n 40 | xargs md5sum) >/tmp/sums
(cd /mnt/tree && md5sum -c /tmp/sums >/dev/null) || failed "sums change"
[ "$(wc -l </tmp/sums)" -eq 40 ] || failed "$(wc -l </tmp/sums) sums"
rm -r /mnt/fio /mnt/dbench || failed rm
umount /mnt
"#;

/// A tree as of sources, packed: directories of a few files, most of them small, with links, modes
/// and times.
fn tree(scratch: &Scratch, files: u32) -> std::path::PathBuf {
    let root = scratch.dir("source");
    for number in 0..files {
        let dir = root.join(format!("tree/part{}/dir{}", number / 400, number / 20));
        std::fs::create_dir_all(&dir).expect("mkdir");
        let path = dir.join(format!("file_{number}.c"));
        let len = 200 + (number * number * 31) % 9000 + if number % 50 == 0 { 150_000 } else { 0 };
        let line = format!("/* file {number} of the tree */\n");
        let bytes: Vec<u8> = line.bytes().cycle().take(len as usize).collect();
        std::fs::write(&path, bytes).expect("write");
        match number % 40 {
            7 => std::os::unix::fs::symlink("file_0.c", dir.join("soft")).expect("symlink"),
            9 => std::fs::hard_link(&path, dir.join("hard")).expect("link"),
            _ => {}
        }
    }
    let packed = scratch.join("tree.tar");
    run_ok(tool("tar").arg("-C").arg(&root).arg("-cf").arg(&packed).arg("tree"));
    packed
}

#[test]
fn programs_of_linux_and_libnfs_work_on_one_export() {
    if !require(&NEEDS) {
        return;
    }
    let is_long = std::env::var_os("EXTOL_LONG").is_some();
    let (files, fio, seconds, clients) =
        if is_long { (20_000, "64m", 120, 10) } else { (300, "1m", 4, 2) };
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-O", "fast_commit"];
    let image = Image::mke2fs(scratch.path(), "a.img", 2 << 30, &options);
    let packed = tree(&scratch, files);
    let server = ExtolExport::start(&image.path, 0, &["-o", "no_root_squash"]);
    let read = |path: &Path| std::fs::read(path).expect("read");
    let guest = Guest::new()
        .network()
        .module("nfs")
        .module("nfsv3")
        .program("fio")
        .program("dbench")
        .program("perl")
        .memory(1024)
        .limit(Duration::from_secs(if is_long { 3600 } else { 300 }))
        .file("/tree.tar", read(&packed))
        .file("/client.txt", read(Path::new(CLIENTS)))
        .file("/calls.pl", &include_bytes!("calls.pl")[..]);
    let port = server.address.port();
    let given = format!("PORT={port}; FIO={fio}; SECONDS={seconds}; CLIENTS={clients}\n");
    let report = std::thread::scope(|scope| {
        let work = scope.spawn(|| guest.run(&format!("{given}{BEGIN}{SUITE}")));
        // Another client, meanwhile. (Its copies stay: they leave room for the others.)
        let back = scratch.join("back");
        let size = std::fs::metadata(&packed).expect("the archive").len();
        for number in 0..(512 << 20) / size {
            if work.is_finished() {
                break;
            }
            let url = server.url(&format!("//copy{number}"));
            run_ok(tool("nfs-cp").arg(&packed).arg(&url));
            run_ok(tool("nfs-cp").arg(&url).arg(&back));
            assert!(read(&back) == read(&packed), "what libnfs copied in and out");
            std::fs::remove_file(&back).expect("unlink");
        }
        work.join().expect("the guest")
    });
    assert!(!report.output.contains("failed"), "{}\n{}", report.output, server.log());
    let checks = report.lines().into_iter().find_map(|line| line.strip_prefix("checks "));
    let checks: u32 = checks.and_then(|text| text.parse().ok()).expect("the list of calls");
    assert!(checks > 400, "{checks} calls");
    assert!(server.end().success());
    e2fsck(&image).assert_clean("after the suite");
    let out = scratch.dir("out");
    extol_ok(&["cp", "-a", text(&image.path), "/tree", text(&out)]);
    let (theirs, ours) = (scratch.join("source/tree"), out.join("tree"));
    run_ok(tool("diff").args(["-r", "--no-dereference"]).arg(theirs).arg(ours));
    eprintln!("the suite took {:?}", report.took);
}
