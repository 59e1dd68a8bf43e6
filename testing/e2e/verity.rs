//! fs-verity through a mount: fsverity(1) enables and measures files there.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, debugfs, e2fsck, extol, extol_ok, find_tool, require, run,
    run_extol, run_ok, text, tool,
};
use rustix::process::{Pid, Signal, kill_process};

const NEEDS: [Need; 5] =
    [Need::Root, Need::Fuse, Need::Tool("fsverity"), Need::Tool("e2fsck"), Need::Tool("debugfs")];

fn volume(scratch: &Scratch) -> Image {
    let image = Image::sparse(scratch.join("disk.img"), 64 << 20);
    extol_ok(&["mkfs", "-q", "-b", "4096", "-O", "verity", text(&image.path)]);
    image
}

fn fsverity(args: &[&str]) -> Output {
    tool("fsverity").args(args).output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

/// The first word of what it prints.
fn word(command: &mut std::process::Command) -> String {
    run_ok(command).split_whitespace().next().unwrap_or_default().to_owned()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn files_of_a_mount_are_enabled_and_measured() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let contents: Vec<u8> = (0..700_001_u32).map(|i| (i / 3) as u8).collect();
    let path = dir.join("file");
    fs::write(&path, &contents).unwrap();
    let file = text(&path);
    assert!(said(&fsverity(&["measure", file])).contains("No data available"));
    let options = ["--hash-alg=sha512", "--salt=00ff11", "--block-size=1024"];
    let writer = OpenOptions::new().append(true).open(&path).unwrap();
    let busy = said(&fsverity(&[&["enable", file], &options[..]].concat()));
    assert!(busy.contains("Text file busy"), "{busy}");
    drop(writer);
    run_ok(tool("fsverity").args(["enable", file]).args(options));
    let measured = word(tool("fsverity").args(["measure", file]));
    assert_eq!(measured, word(tool("fsverity").args(["digest", file]).args(options)));
    let again = said(&fsverity(&["enable", file]));
    assert!(again.contains("File exists"), "{again}");
    assert_eq!(fs::read(&path).unwrap(), contents);
    for options in [OpenOptions::new().write(true), OpenOptions::new().append(true)] {
        assert_eq!(errno(options.open(&path)), libc::EPERM);
    }
    assert_eq!(errno(File::create(&path)), libc::EPERM);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
    fs::rename(&path, dir.join("moved")).unwrap();
    mount.unmount();
    e2fsck(&image).assert_clean("after a mount with fs-verity");
    let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
    let moved = dir.join("moved");
    assert_eq!(fs::read(&moved).unwrap(), contents);
    assert_eq!(word(tool("fsverity").args(["measure", text(&moved)])), measured);
    mount.unmount();
}

#[test]
fn a_signature_and_bad_arguments_arrive() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let (path, signature) = (dir.join("file"), scratch.join("signature"));
    fs::write(&path, [7; 5000]).unwrap();
    fs::write(&signature, [9; 3000]).unwrap();
    let file = text(&path);
    let with = format!("--signature={}", text(&signature));
    for (options, answer) in [
        (&["--block-size=8192"][..], "Invalid argument"),
        (&["--block-size=512"], "Invalid argument"),
    ] {
        let refused = said(&fsverity(&[&["enable", file], options].concat()));
        assert!(refused.contains(answer), "{options:?}: {refused}");
    }
    run_ok(tool("fsverity").args(["enable", file, &with]));
    let measured = word(tool("fsverity").args(["measure", file]));
    assert_eq!(measured, word(tool("fsverity").args(["digest", file])));
    mount.unmount();
    e2fsck(&image).assert_clean("with a signature");
}

#[test]
fn files_of_a_volume_are_enabled_measured_and_dumped() {
    if !require(&[Need::Tool("fsverity"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let disk = text(&image.path);
    let (one, two, tree) = (scratch.join("one"), scratch.join("two"), scratch.join("tree"));
    fs::write(&one, (0..900_000_u32).map(|i| (i / 5) as u8).collect::<Vec<_>>()).unwrap();
    fs::write(&two, b"").unwrap();
    extol_ok(&["put", disk, text(&one), text(&two), "/"]);
    let options = ["--hash-alg", "sha512", "--salt", "00ff11", "--block-size", "1024"];
    extol_ok(&[&["verity", "enable"], &options[..], &[disk, "/one", "/two"]].concat());
    for (path, name) in [(&one, "/one"), (&two, "/two")] {
        let mut digest = tool("fsverity");
        digest.arg("digest").args(options).arg(path);
        let line = format!("{} {name}\n", word(&mut digest));
        assert_eq!(extol_ok(&["verity", "measure", disk, name]), line);
    }
    let out = format!("--out-merkle-tree={}", text(&tree));
    run_ok(tool("fsverity").arg("digest").args(options).arg(&out).arg(&one));
    let dumped = extol().args(["verity", "dump", "--part", "tree", disk, "/one"]).output().unwrap();
    assert!(dumped.stdout == fs::read(&tree).unwrap());
    let descriptor = extol().args(["verity", "dump", disk, "/one"]).output().unwrap();
    assert_eq!(descriptor.stdout.len(), 256);
    assert!(run_ok(extol().args(["check", disk])).contains("clean"));
    for (line, code, answer) in [
        (&["enable", disk, "/one"][..], 32, "file exists"),
        (&["enable", disk, "/lost+found"], 32, "directory"),
        (&["enable", "--salt", "0", disk, "/one"], 1, "--salt"),
        (&["enable", "--hash-alg", "md5", disk, "/one"], 1, "--hash-alg"),
        (&["enable", "--block-size", "3000", disk, "/one"], 1, "no power of two"),
        (&["frob", disk, "/one"], 1, "no action"),
        (&["measure", "--salt", "00", disk, "/one"], 1, "for enable"),
        (&["enable", "--json", disk, "/one"], 1, "for measure"),
        (&["dump", "--json", disk, "/one"], 1, "for measure"),
        (&["dump", "--part", "frob", disk, "/one"], 1, "no part"),
        (&["dump", disk, "/one", "/two"], 1, "one file"),
        (&["dump", "--part", "signature", disk, "/one"], 32, "no file of fs-verity"),
    ] {
        let done = run_extol(&[&["verity"], line].concat());
        assert_eq!(done.code, Some(code), "{line:?}: {}", done.output);
        assert!(done.output.contains(answer), "{line:?}: {}", done.output);
    }
    e2fsck(&image).assert_clean("enabled by the command");
}

#[test]
fn files_of_a_new_volume_are_enabled() {
    if !require(&[Need::Tool("fsverity"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("source");
    fs::create_dir(source.join("bin")).unwrap();
    let tool_path = source.join("bin/tool");
    fs::write(&tool_path, (0..700_001_u32).map(|i| (i / 3) as u8).collect::<Vec<_>>()).unwrap();
    fs::write(source.join("readme"), b"not verified").unwrap();
    let image = Image::existing(scratch.join("new.img"));
    let disk = text(&image.path);
    extol_ok(&["mkfs", "-q", "-d", text(&source), "--verity", "/bin/", disk]);
    e2fsck(&image).assert_clean("a new volume");
    assert!(extol_ok(&["check", disk]).contains("clean"));
    let digest = word(tool("fsverity").arg("digest").arg(&tool_path));
    assert_eq!(
        extol_ok(&["verity", "measure", disk, "/bin/tool"]),
        format!("{digest} /bin/tool\n")
    );
    let how = ["hash-alg=sha512", "block-size=1024", "salt=00ff11"];
    let other = Image::existing(scratch.join("other.img"));
    let disk_of_other = text(&other.path);
    let mut make = extol();
    make.args(["mkfs", "-q", "-d", text(&source), "--verity", "/bin/"]);
    run_ok(make.args(how.map(|word| format!("--verity-{word}"))).arg(disk_of_other));
    e2fsck(&other).assert_clean("a new volume with other trees");
    assert!(extol_ok(&["check", disk_of_other]).contains("clean"));
    let mut digest = tool("fsverity");
    digest.arg("digest").args(how.map(|word| format!("--{word}"))).arg(&tool_path);
    let digest = word(&mut digest);
    let measured = extol_ok(&["verity", "measure", "--json", disk_of_other, "/bin/tool"]);
    let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
    let file = &measured["files"][0];
    let found = [&file["algorithm"], &file["digest"]].map(|word| word.as_str().unwrap());
    assert_eq!((found.join(":"), &file["path"]), (digest, &"/bin/tool".into()));
    for (word, code, answer) in [
        ("--verity-hash-alg=md5", 1, "--verity-hash-alg: there is no"),
        ("--verity-salt=0", 1, "--verity-salt: give"),
        ("--verity-block-size=8192", 1, "8192 bytes are too large"),
        ("--verity-block-size=1000", 1, "no power of two"),
    ] {
        let line = ["mkfs", "-q", "-F", "-d", text(&source), "--verity", "*", word, disk_of_other];
        let refused = run_extol(&line);
        assert!(refused.code == Some(code) && refused.output.contains(answer), "{refused:?}");
    }
    let alone = run_extol(&["mkfs", "-d", text(&source), "--verity-salt=00", disk_of_other]);
    assert!(alone.code == Some(1) && alone.output.contains("--verity"), "{alone:?}");
    let refused = run_extol(&["verity", "measure", disk, "/readme"]);
    assert!(refused.code == Some(32) && refused.output.contains("no file of fs-verity"));
    let all = run_extol(&["mkfs", "-q", "-d", text(&source), "--verity", "", disk]);
    assert!(all.code == Some(1) && all.output.contains("matches no name"), "{}", all.output);
}

/// The kernel checks nothing of these ioctls.
#[test]
fn only_a_user_that_may_write_enables() {
    if !require(&[&NEEDS[..], &[Need::Tool("setpriv")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = volume(&scratch);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &["allow_other"]);
    let user = 65_534;
    for (name, owner, mode, may) in [
        ("of root", 0, 0o644, false),
        ("of root, for all", 0, 0o646, true),
        ("own", user, 0o644, true),
        ("own to be read", user, 0o444, false),
    ] {
        let path = dir.join(name);
        fs::write(&path, b"contents").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        let mut command = tool("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(find_tool("fsverity").unwrap()).args(["enable", text(&path)]);
        let out = command.output().unwrap();
        assert_eq!(out.status.success(), may, "{name}: {}", said(&out));
        if !may {
            assert!(said(&out).contains("denied"), "{name}: {}", said(&out));
            assert_eq!(fs::read(&path).unwrap(), b"contents");
        }
    }
    mount.unmount();
}

/// A large file whose hashing takes a while: stat(2) does not wait for it, and a signal ends it,
/// SIGKILL as well.
#[test]
fn enabling_can_be_interrupted() {
    if !require(&NEEDS) {
        return;
    }
    for options in [&[][..], &["noio_uring"]] {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        extol_ok(&["mkfs", "-q", "-O", "verity", text(&image), "4G"]);
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image, &dir, options);
        let path = dir.join("large");
        let file = fs::File::create(&path).unwrap();
        file.set_len(2 << 30).unwrap();
        drop(file);
        for signal in [Signal::INT, Signal::KILL] {
            let mut enable = tool("fsverity").args(["enable", text(&path)]).spawn().unwrap();
            let pid = Pid::from_child(&enable);
            let call = || fs::read_to_string(format!("/proc/{}/syscall", pid.as_raw_nonzero()));
            while !call().is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_ioctl))) {
                assert!(enable.try_wait().unwrap().is_none(), "{options:?}: it has ended");
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(fs::metadata(&path).unwrap().len(), 2 << 30);
            let refused = OpenOptions::new().write(true).open(&path).and_then(|file| {
                file.write_all_at(b"x", 0)?;
                file.sync_all()
            });
            assert_eq!(errno(refused), 26, "{options:?}: text file busy");
            assert!(enable.try_wait().unwrap().is_none(), "{options:?}: it has ended by itself");
            kill_process(pid, signal).unwrap();
            assert!(!enable.wait().unwrap().success(), "{options:?}: {signal:?}");
            let measured = said(&fsverity(&["measure", text(&path)]));
            assert!(measured.contains("No data available"), "{options:?}: {measured}");
        }
        fs::write(&path, b"contents").unwrap();
        run_ok(tool("fsverity").args(["enable", text(&path)]));
        mount.unmount();
        let checked = run(tool("e2fsck").args(["-fn", text(&image)]), Duration::from_secs(60));
        assert!(checked.success(), "{options:?}: {}", checked.output);
    }
}

fn flip(image: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_flipped_bit_is_an_error_of_the_read_that_meets_it() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = volume(&scratch);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let path = dir.join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&[5; 400_000]).unwrap();
    drop(file);
    run_ok(tool("fsverity").args(["enable", text(&path)]));
    mount.unmount();
    let block: u64 = debugfs(&image, "bmap file 50").trim().parse().unwrap();
    flip(&image.path, block * 4096 + 77);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let file = File::open(&path).unwrap();
    let mut buf = [0; 4096];
    assert_eq!(errno(file.read_exact_at(&mut buf, 50 * 4096)), libc::EIO);
    file.read_exact_at(&mut buf, 2 * 4096).unwrap();
    assert_eq!(buf, [5; 4096]);
    let mut all = Vec::new();
    assert_eq!(errno((&file).read_to_end(&mut all)), libc::EIO);
    fs::write(dir.join("other"), b"the volume works on").unwrap();
    drop(file);
    mount.unmount();
    let checked = run_extol(&["check", text(&image.path)]).output;
    assert!(checked.contains("verity") && checked.contains("byte 204800"), "{checked}");
}
