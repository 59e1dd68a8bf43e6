//! Volumes of other hosts, served by nbdkit and qemu-nbd.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extol_testkit::{
    ExtolMount, Image, NbdServer, Need, Scratch, Tree, e2fsck, extol_ok, refused, require,
    run_extol, run_ok, text, tool,
};

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("nbdkit")];

/// A tree with files of some MiB, small files and directories.
fn work(dir: &Path, round: u8) {
    let dir = dir.join(format!("round {round}"));
    fs::create_dir_all(dir.join("a/b")).unwrap();
    for nr in 0..200_u32 {
        let bytes = vec![nr as u8 ^ round; nr as usize * 37];
        fs::write(dir.join(format!("a/file {nr}")), bytes).unwrap();
    }
    let large: Vec<u8> = (0..6_000_000_u32).map(|at| (at / 7) as u8 ^ round).collect();
    fs::write(dir.join("a/b/large"), &large).unwrap();
    let file = fs::File::options().write(true).open(dir.join("a/b/large")).unwrap();
    file.write_all_at(b"changed", 3_000_001).unwrap();
    file.sync_all().unwrap();
    for nr in (0..200).step_by(3) {
        fs::remove_file(dir.join(format!("a/file {nr}"))).unwrap();
    }
    fs::rename(dir.join("a/b"), dir.join("c")).unwrap();
}

#[test]
fn a_volume_of_another_host_is_made_mounted_and_checked() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 256 << 20);
    let server = NbdServer::nbdkit(&["file", text(&image.path)]);
    let uri = server.uri();
    extol_ok(&["mkfs", "-q", &uri]);
    let space = fs::metadata(&image.path).unwrap().blocks() * 512;
    assert!(space < 24 << 20, "what is zero takes no space: {space}");
    let dir = scratch.dir("mnt");
    let mut first = None;
    for round in 0..2 {
        let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
        if let Some(first) = &first {
            Tree::of(&dir.join("round 0")).assert_same(first, "mounted again", "before");
        }
        work(&dir, round);
        first = Some(Tree::of(&dir.join("round 0")));
        let busy = fs::read_to_string("/proc/mounts").unwrap();
        assert!(busy.contains("nbd+unix:"), "{busy}");
        mount.unmount();
    }
    extol_ok(&["check", &uri]);
    let info = extol_ok(&["info", &uri]);
    assert!(info.contains("mmp"), "several hosts can reach it: {info}");
    assert!(extol_ok(&["ls", &uri, "/"]).contains("round 1"));
    fs::write(scratch.join("new"), b"from outside").unwrap();
    extol_ok(&["put", &uri, text(&scratch.join("new")), "/new"]);
    assert_eq!(extol_ok(&["cat", &uri, "/new"]), "from outside");
    drop(server);
    e2fsck(&image).assert_clean("after work over the network");
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    let first = first.unwrap();
    Tree::of(&dir.join("round 0")).assert_same(&first, "from the file", "over the network");
    fs::read(dir.join("new")).unwrap();
    assert_eq!(fs::metadata(dir.join("round 1/c/large")).unwrap().len(), 6_000_000);
    mount.unmount();
}

#[test]
fn a_volume_with_larger_blocks_of_the_server_is_used() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    let server = NbdServer::nbdkit(&[
        "--filter=blocksize-policy",
        "file",
        text(&image.path),
        "blocksize-error-policy=error",
        "blocksize-minimum=4096",
        "blocksize-preferred=4096",
        "blocksize-maximum=64K",
    ]);
    let uri = server.uri();
    extol_ok(&["mkfs", "-q", "-b", "1024", "-O", "^mmp", &uri]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    assert!(mount.log().contains("another host"), "nothing protects it: {}", mount.log());
    work(&dir, 1);
    mount.unmount();
    extol_ok(&["check", &uri]);
    drop(server);
    e2fsck(&image).assert_clean("after work in blocks of 4096");
}

#[test]
fn a_read_only_export_is_mounted_read_only() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 32 << 20);
    extol_ok(&["mkfs", "-q", text(&image.path)]);
    let server = NbdServer::nbdkit(&["-r", "file", text(&image.path)]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&server.uri()), &dir, &[]);
    assert!(mount.log().contains("write-protected"), "{}", mount.log());
    let refusal = fs::write(dir.join("x"), b"x").unwrap_err();
    assert_eq!(refusal.raw_os_error(), Some(libc::EROFS));
    mount.unmount();
    refused(&["mkfs", "-qF", &server.uri()], 32, &["nbd+unix:", "Read-only"]);
}

#[test]
fn a_volume_on_a_disk_of_qemu_is_grown() {
    if !require(&NEEDS) || !require(&[Need::Tool("qemu-nbd"), Need::Tool("qemu-img")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.join("disk.qcow2");
    run_ok(tool("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&image).arg("128M"));
    let server = NbdServer::qemu_nbd(&["-f", "qcow2", "-x", "disk", text(&image)]);
    let uri = server.uri().replace(":///", ":///disk");
    extol_ok(&["mkfs", "-q", &uri, "64M"]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    work(&dir, 3);
    mount.unmount();
    extol_ok(&["resize", &uri]);
    extol_ok(&["check", &uri]);
    refused(&["info", &server.uri()], 32, &["nbd+unix:", "no default export"]);
}

/// A claim that a host has left behind is neither waited for nor changed.
#[test]
fn nommp_opens_at_once() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    let server = NbdServer::nbdkit(&["file", text(&image.path)]);
    let uri = server.uri();
    extol_ok(&["mkfs", "-q", &uri]);
    let dir = scratch.dir("mnt");
    let mut mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    fs::write(dir.join("kept"), b"kept").unwrap();
    fs::File::open(dir.join("kept")).unwrap().sync_all().unwrap();
    mount.kill9();
    let number = |at| u64::from_le_bytes(image.read_at(at, 8).try_into().unwrap());
    let claim = || image.read_at(number(1024 + 0x168) * 4096, 4096);
    let left = claim();
    let begin = Instant::now();
    let mount = ExtolMount::start(Path::new(&uri), &dir, &["nommp"]);
    assert!(begin.elapsed() < Duration::from_secs(8), "waited {:?}", begin.elapsed());
    assert!(mount.log().contains("another host"), "{}", mount.log());
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"kept");
    work(&dir, 5);
    std::thread::sleep(Duration::from_secs(6));
    mount.unmount();
    assert_eq!(claim(), left, "the claim");
    drop(server);
    e2fsck(&image).assert_clean("after a mount without a claim");
}

/// The server loses what it has not flushed each time, and the mount goes on, in its sandbox.
#[test]
fn a_server_that_is_started_again_is_used_again() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 128 << 20);
    let args = ["--filter=cache", "file", text(&image.path), "cache=writeback"];
    let mut server = NbdServer::nbdkit(&args);
    let uri = format!("{}&settle=1", server.uri());
    extol_ok(&["mkfs", "-q", "-O", "^mmp", &uri]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    let line = extol_ok(&["stat", "--all", text(&dir)]);
    assert!(line.contains("seccomp") && !line.contains("NO seccomp"), "{line}");
    for round in 0..3 {
        std::thread::scope(|s| {
            let worker = s.spawn(|| work(&dir, round));
            std::thread::sleep(Duration::from_millis(150));
            server.restart();
            worker.join().unwrap();
        });
        let file = fs::File::create(dir.join(format!("synced {round}"))).unwrap();
        file.sync_all().unwrap();
    }
    let tree = Tree::of(&dir);
    mount.unmount();
    server.kill();
    e2fsck(&image).assert_clean("after a server was killed three times");
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    Tree::of(&dir).assert_same(&tree, "from the file", "over the network");
    mount.unmount();
}

/// With a server that is gone the mount behaves as with a disk that is gone.
#[test]
fn a_server_that_is_killed_is_a_disk_that_is_gone() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    let mut server = NbdServer::nbdkit(&["file", text(&image.path)]);
    let uri = format!("{}&reconnect=0", server.uri());
    extol_ok(&["mkfs", "-q", "-O", "^mmp", &uri]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    fs::write(dir.join("kept"), b"kept").unwrap();
    fs::File::open(dir.join("kept")).unwrap().sync_all().unwrap();
    server.kill();
    fs::write(dir.join("lost"), b"lost").ok();
    let synced = fs::File::open(&dir).and_then(|dir| dir.sync_all());
    assert!(synced.is_err(), "nothing is acknowledged that the server does not have");
    drop(mount);
    server.restart();
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"kept");
    mount.unmount();
    extol_ok(&["check", &uri]);
}

#[test]
fn errors_of_the_server_reach_the_caller() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    extol_ok(&["mkfs", "-q", text(&image.path)]);
    let trigger = scratch.join("fail");
    let file = format!("error-file={}", trigger.display());
    let server = NbdServer::nbdkit(&[
        "--filter=error",
        "file",
        text(&image.path),
        "error=EIO",
        "error-pwrite-rate=100%",
        &file,
    ]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&server.uri()), &dir, &[]);
    fs::write(dir.join("kept"), b"kept").unwrap();
    fs::File::open(dir.join("kept")).unwrap().sync_all().unwrap();
    fs::write(&trigger, b"").unwrap();
    fs::write(dir.join("lost"), b"lost").ok();
    let synced = fs::File::open(dir.join("lost")).and_then(|file| file.sync_all());
    assert!(synced.is_err());
    fs::remove_file(&trigger).unwrap();
    assert!(mount.end() != Some(0), "the unmount tells of what is lost");
    let mount = ExtolMount::start(Path::new(&server.uri()), &dir, &[]);
    assert_eq!(fs::read(dir.join("kept")).unwrap(), b"kept");
    mount.unmount();
}

#[test]
fn wrong_addresses_end_in_one_line() {
    for (uri, words) in [
        ("nbd://127.0.0.1:1/x", &["nbd://127.0.0.1:1/x", "cannot connect"][..]),
        ("nbd+unix:///x", &["nbd+unix:///x", "socket="]),
        ("nbd://h/?what=1", &["what="]),
        ("nbd+unix:///?socket=/nowhere/s", &["/nowhere/s", "cannot connect"]),
    ] {
        let done = run_extol(&["info", uri]);
        assert!(done.code.is_some_and(|code| code != 0), "{}", done.output);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.output);
        for word in words {
            assert!(done.stderr.contains(word), "{}", done.output);
        }
    }
}

/// An authority, and certificates of a server and a client, in a directory of each.
fn certificates(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (server, client) = (scratch.dir("server"), scratch.dir("client"));
    let openssl = |args: &[&str]| run_ok(tool("openssl").args(args).current_dir(scratch.path()));
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let own = ["req", "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca-key.pem"];
    openssl(&[&own[..], &key, &["-out", "ca-cert.pem"]].concat());
    for (name, dir) in [("server", "server"), ("client", "client")] {
        let subject = format!("/CN={name}");
        let request = ["req", "-subj", &subject, "-keyout", "key.pem", "-out", "request.pem"];
        openssl(&[&request[..], &key].concat());
        fs::write(scratch.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        let sign = ["x509", "-req", "-in", "request.pem", "-days", "2", "-CAcreateserial"];
        let by = ["-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-extfile", "names"];
        openssl(&[&sign[..], &by, &["-out", "cert.pem"]].concat());
        let to = scratch.join(dir);
        fs::copy(scratch.join("cert.pem"), to.join(format!("{name}-cert.pem"))).unwrap();
        fs::copy(scratch.join("key.pem"), to.join(format!("{name}-key.pem"))).unwrap();
        fs::copy(scratch.join("ca-cert.pem"), to.join("ca-cert.pem")).unwrap();
    }
    (server, client)
}

#[test]
fn tls_with_certificates_of_both_sides() {
    if !require(&NEEDS) || !require(&[Need::Tool("openssl")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    let (of_server, of_client) = certificates(&scratch);
    let at = format!("--tls-certificates={}", of_server.display());
    let tls = ["--tls=require", "--tls-verify-peer", &at];
    let server = NbdServer::nbdkit(&[&tls[..], &["file", text(&image.path)]].concat());
    let plain = server.uri();
    let secure = plain.replacen("nbd+", "nbds+", 1);
    let uri = format!("{secure}&tls-certificates={}", of_client.display());
    extol_ok(&["mkfs", "-q", &uri]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(Path::new(&uri), &dir, &[]);
    work(&dir, 4);
    mount.unmount();
    extol_ok(&["check", &uri]);
    refused(&["info", &plain], 32, &["wants TLS", "nbds"]);
    // Another name than in the certificate; no certificate of the client; another authority.
    refused(&["info", &format!("{uri}&tls-hostname=other.example")], 32, &["TLS", "tls-hostname"]);
    let alone = scratch.dir("alone");
    fs::copy(of_client.join("ca-cert.pem"), alone.join("ca-cert.pem")).unwrap();
    let uri = format!("{secure}&tls-certificates={}", alone.display());
    refused(&["info", &uri], 32, &["nbds+unix"]);
    let any = format!("{secure}&tls-certificates={}", of_client.display());
    extol_ok(&["info", &format!("{any}&tls-hostname=other.example&tls-verify-peer=false")]);
    let server = NbdServer::nbdkit(&["--tls=off", "file", text(&image.path)]);
    let uri = server.uri().replacen("nbd+", "nbds+", 1);
    let uri = format!("{uri}&tls-certificates={}", of_client.display());
    refused(&["info", &uri], 32, &["no TLS"]);
}
