//! `extol put IMAGE - /path`: a stream becomes a file when it is whole, and leaves nothing if it
//! does not.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use extol_testkit::{
    Image, Need, Scratch, e2fsck, extol, extol_ok, extol_path, require, run, run_ok, text, tool,
};
use rustix::process::{Pid, Signal, geteuid, kill_process};

const NEEDS: [Need; 2] = [Need::Tool("mke2fs"), Need::Tool("bash")];
const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn put(image: &Image, options: &[&str], dest: &str) -> Command {
    let mut command = extol();
    command.arg("put").args(options).args([text(&image.path), "-", dest]);
    command
}

/// Gives the command these bytes, in pieces of this length.
fn feed(mut command: Command, bytes: &[u8], piece: usize) -> (Option<i32>, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for part in bytes.chunks(piece) {
        // (It may have ended.)
        if input.write_all(part).is_err() {
            break;
        }
    }
    drop(input);
    let done = child.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8(done.stderr).unwrap())
}

fn cat(image: &Image, path: &str) -> Vec<u8> {
    extol().args(["cat", text(&image.path), path]).output().unwrap().stdout
}

fn free(image: &Image) -> u64 {
    let info = extol_ok(&["info", "--json", text(&image.path)]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    info["free_blocks"].as_u64().unwrap()
}

#[test]
fn a_stream_becomes_a_file() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 32 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    let bytes: Vec<u8> = (0..5_000_017u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    for (piece, len) in [(1 << 20, bytes.len()), (4099, 3 << 20), (7, 50), (1, 0)] {
        // (The first makes the file, the others replace it.)
        let done = feed(put(&image, &[], "/file"), &bytes[..len], piece);
        assert_eq!(done, (Some(0), String::new()), "{piece}");
        assert!(cat(&image, "/file") == bytes[..len], "{piece}");
    }
    let own = geteuid().as_raw();
    let listed = extol_ok(&["ls", "-l", path, "/file"]);
    assert!(listed.starts_with(&format!("-rw-r--r--   1 {own:>5} ")), "{listed}");
    let options = ["--mode", "u=rwx,go=", "--owner", "12:34"];
    assert_eq!(feed(put(&image, &options, "/own"), b"x", 1), (Some(0), String::new()));
    let listed = extol_ok(&["ls", "-l", path, "/own"]);
    assert!(listed.starts_with("-rwx------   1    12    34"), "{listed}");

    // A file as standard input, and what a shell gives a name for.
    let large = scratch.join("large");
    std::fs::write(&large, &bytes).unwrap();
    let mut from_file = put(&image, &[], "/from-file");
    assert!(from_file.stdin(File::open(&large).unwrap()).status().unwrap().success());
    assert!(cat(&image, "/from-file") == bytes);
    let script = format!("{} put {path} <(cat {}) /named", text(extol_path()), text(&large));
    run_ok(tool("bash").args(["-c", &script]));
    assert!(cat(&image, "/named") == bytes);
    let listed = extol_ok(&["ls", path]);
    assert_eq!(listed, "file\nfrom-file\nlost+found\nnamed\nown\n");
    e2fsck(&image).assert_clean("after streams");
}

#[test]
fn a_stream_that_is_not_put_leaves_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 * MIB, &["-t", "ext4"]);
    let path = text(&image.path);
    assert_eq!(feed(put(&image, &[], "/old"), b"as it was", 100).0, Some(0));
    let (before, listed) = (free(&image), extol_ok(&["ls", "-lR", path]));
    let same = |what: &str| {
        assert_eq!(
            (free(&image), extol_ok(&["ls", "-lR", path])),
            (before, listed.clone()),
            "{what}"
        );
        assert_eq!(cat(&image, "/old"), b"as it was", "{what}");
        e2fsck(&image).assert_clean(what);
    };
    let long = vec![7; 40 * MIB as usize];
    for dest in ["/new", "/old"] {
        let (code, line) = feed(put(&image, &[], dest), &long, 1 << 16);
        assert_eq!(code, Some(32), "{line}");
        assert!(line.contains("standard input: no space left on the volume"), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        same("a full volume");

        let script = format!("{} put {path} - {dest} <&-", text(extol_path()));
        let done = run(tool("bash").args(["-c", &script]), LIMIT);
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(done.output.contains("standard input is closed"), "{}", done.output);
        let directory = File::open(scratch.path()).unwrap();
        let done = put(&image, &[], dest).stdin(directory).output().unwrap();
        let line = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), line.lines().count()), (Some(32), 1), "{line}");
        assert!(line.contains("standard input: "), "{line}");
        same("no stream");

        // A signal, while it waits for more.
        let mut child = put(&image, &[], dest).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&long[..3 << 20]).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(ended(&mut child), Some(128 + 15));
        drop(input);
        same("a signal");
    }
}

fn ended(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().or_else(|| status.signal().map(|signal| -signal));
        }
        if began.elapsed() > Duration::from_secs(20) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
