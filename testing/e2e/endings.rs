//! How commands end before they are done: with their terminal, by a signal, by a mistake. The exit
//! code says which, and nothing half made is left.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, e2fsck, extol, extol_ok, extol_path, require, run_extol,
    text, tool,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("fusermount3")];
const SOON: Duration = Duration::from_secs(5);

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn ended(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        if began.elapsed() > SOON {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `extol top` in a terminal of its own.
struct Top {
    child: Child,
    /// The side of the window.
    master: File,
    /// What the command writes to.
    terminal: File,
    before: rustix::termios::Termios,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    fn start(dir: &Path) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master: OwnedFd = master.expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("ASCII");
        let terminal = File::options().read(true).write(true).open(name).expect("its other side");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&terminal, size).expect("a size");
        let before = rustix::termios::tcgetattr(&terminal).expect("its state");
        let side = || Stdio::from(terminal.try_clone().expect("a copy"));
        let mut command = extol();
        command.args(["top", "--interval", "0.1"]).arg(dir).process_group(0);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("top");
        drop(command);
        let master = File::from(master);
        let top = Self { child, master, terminal, before, screen: Arc::default() };
        let (screen, mut reader) = (Arc::clone(&top.screen), top.master.try_clone().expect("copy"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes)
                && count > 0
            {
                screen.lock().expect("screen").extend_from_slice(&bytes[..count]);
            }
        });
        until("a frame", || top.shows("ops/s"));
        top
    }

    fn shows(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.screen.lock().expect("screen")).contains(text)
    }

    #[track_caller]
    fn must_end(mut self, how: &str, code: i32) {
        let status = ended(&mut self.child);
        assert_eq!(status.code(), Some(code), "{how}");
        until("the screen as it was", || self.shows("\x1b[?1049l"));
        let after = rustix::termios::tcgetattr(&self.terminal).expect("its state");
        assert_eq!(after.local_modes, self.before.local_modes, "{how}");
        assert_eq!(after.input_modes, self.before.input_modes, "{how}");
    }
}

#[test]
fn top_gives_the_terminal_back() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
    for (key, code) in [("q", 0), ("\x1b", 0), ("\x03", 130)] {
        let mut top = Top::start(mount.path());
        // Keys that mean nothing do not end it.
        top.master.write_all(b"x\x1b[A p p").expect("keys");
        std::thread::sleep(Duration::from_millis(300));
        assert!(top.child.try_wait().expect("wait").is_none());
        top.master.write_all(key.as_bytes()).expect("a key");
        top.must_end(&format!("{key:?}"), code);
    }
    for (signal, code) in
        [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)]
    {
        let top = Top::start(mount.path());
        kill_process(Pid::from_child(&top.child), signal).expect("kill");
        top.must_end(&format!("{signal:?}"), code);
    }
    mount.unmount();
}

/// The window is closed: no signal comes where the terminal does not control the process.
#[test]
fn top_ends_with_its_terminal() {
    if !require(&[&NEEDS[..], &[Need::Tool("setsid")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
    // A terminal has ended when no process has its window open, the thread that reads included: so
    // it is that of another process, script(1).
    for ignores in ["", "trap '' HUP TERM; "] {
        let note = scratch.join("ended");
        let line = format!(
            "stty rows 24 cols 80; {ignores}{} top --interval 0.1 {} ; echo $? >{}",
            text(extol_path()),
            text(mount.path()),
            text(&note)
        );
        let typescript = scratch.join("typescript");
        for file in [&note, &typescript] {
            let _ = std::fs::remove_file(file);
        }
        let mut script = tool("script");
        script.args(["-q", "-f", "-c", &line]).arg(&typescript);
        let mut window =
            script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("script");
        let shows = || {
            let bytes = std::fs::read(&typescript).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains("ops/s")
        };
        until("a frame", shows);
        window.kill().expect("kill");
        window.wait().expect("wait");
        let code = || std::fs::read_to_string(&note).unwrap_or_default().trim().to_owned();
        if ignores.is_empty() {
            // (The shell has got SIGHUP as well.)
            let running = || {
                let all = run_extol(&["--version"]).success();
                all && processes(mount.path()) > 0
            };
            until("the end", || !running());
        } else {
            until("the end", || !code().is_empty());
            assert_eq!(code(), "129");
        }
    }
    mount.unmount();
}

/// How many processes `extol top` of this mount there are.
fn processes(dir: &Path) -> usize {
    let wanted = format!("top\0--interval\00.1\0{}\0", text(dir));
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&wanted)).count()
}

/// Runs `extol ARGS` with each of these system calls taking `delay` ms longer, and sends it a
/// signal twice, as timeout(1) does, once `ready` is true. Gives its exit code and what it said.
fn interrupted(
    scratch: &Scratch,
    (calls, delay): (&str, u32),
    signal: Signal,
    args: &[&str],
    ready: impl Fn() -> bool,
) -> (Option<i32>, String) {
    let mut strace = tool("strace");
    strace.args(["-f", "-qqq", "-o", text(&scratch.join("strace.log"))]);
    strace.args(["-e", &format!("trace={calls}")]);
    strace.args(["-e", &format!("inject={calls}:delay_enter={delay}000")]);
    strace.arg(extol_path()).args(args).process_group(0);
    let mut child = strace
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace");
    let traced = || {
        let id = child.id();
        let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let name =
            |n: &&str| std::fs::read_to_string(format!("/proc/{n}/comm")).unwrap_or_default();
        list.split_whitespace().find(|n| name(n) == "extol\n").and_then(|n| n.parse().ok())
    };
    until("the command", || traced().is_some());
    until("the moment", ready);
    let pid = traced().and_then(Pid::from_raw).expect("it still runs");
    kill_process(pid, signal).expect("kill");
    std::thread::sleep(Duration::from_millis(5));
    let _ = kill_process(pid, signal);
    let status = ended(&mut child);
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    (status.code(), said)
}

const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::QUIT, 131)];
const STRACE: [Need; 1] = [Need::Tool("strace")];

#[test]
fn mkfs_leaves_no_half_volume() {
    if !require(&[&NEEDS[..], &STRACE].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let slow = ("pwrite64,pwritev,pwritev2,fallocate,io_uring_enter,fdatasync", 300);
    for (signal, code) in SIGNALS {
        let image = scratch.join("new.img");
        let exists = || image.exists();
        let args = ["mkfs", text(&image), "2G"];
        let (ended, said) = interrupted(&scratch, slow, signal, &args, exists);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        assert!(!exists(), "a file that is no volume");
        // What was there is a volume no more; it must not look like one.
        let old = Image::mke2fs(scratch.path(), "old.img", 64 << 20, &["-t", "ext4"]);
        let args = ["mkfs", "-F", text(&old.path)];
        let changed = || !run_extol(&["info", text(&old.path)]).success();
        let (ended, said) = interrupted(&scratch, slow, signal, &args, changed);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        assert!(changed());
        old.remove();
    }
}

#[test]
fn put_and_cp_leave_no_half_file() {
    if !require(&[&NEEDS[..], &STRACE].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.dir("tree");
    std::fs::write(source.join("a-small"), "whole").expect("write");
    std::fs::write(source.join("b-large"), vec![7; 24 << 20]).expect("write");
    std::fs::write(source.join("c-later"), "later").expect("write");
    for (signal, code) in SIGNALS {
        let image = Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4"]);
        let path = text(&image.path);
        let began = Instant::now();
        let some_time = || began.elapsed() > Duration::from_millis(1500);
        let args = ["put", path, text(&source), "/"];
        let (ended, said) = interrupted(&scratch, ("pread64", 100), signal, &args, some_time);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        e2fsck(&image).assert_clean("after an interrupted put");
        assert_eq!(extol_ok(&["ls", path, "/tree"]).trim(), "a-small");
        assert_eq!(extol_ok(&["cat", path, "/tree/a-small"]), "whole");

        extol_ok(&["put", path, text(&source), "/"]);
        let dest = scratch.dir("dest");
        let half = || half_made(&dest.join("tree"));
        let args = ["cp", path, "/tree", text(&dest)];
        let (ended, said) = interrupted(&scratch, ("pwrite64", 100), signal, &args, half);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        let names: Vec<_> = std::fs::read_dir(dest.join("tree")).expect("the directory").collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(std::fs::read(dest.join("tree/a-small")).expect("read"), b"whole");
        std::fs::remove_dir_all(&dest).expect("remove");

        // While it opens the volume, or soon after.
        let args = ["rm", "-r", path, "/tree"];
        let slow = ("pread64,preadv,preadv2", 50);
        let began = Instant::now();
        let soon = || began.elapsed() > Duration::from_millis(1000);
        let (ended, said) = interrupted(&scratch, slow, signal, &args, soon);
        assert!(ended == Some(code) && said.lines().count() == 1, "{ended:?}: {said}");
        e2fsck(&image).assert_clean("after an interrupted rm");
        image.remove();
    }
}

/// True if a file with a temporary name is there, and some of it: more than all of `a-small`.
fn half_made(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b".extol-"))
        .any(|entry| entry.metadata().is_ok_and(|file| file.len() > 5))
}

/// An interrupted copy over a file leaves the old file, and nothing else.
#[test]
fn put_and_cp_keep_what_they_would_replace() {
    if !require(&[&NEEDS[..], &STRACE].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 128 << 20, &["-t", "ext4"]);
    let path = text(&image.path);
    let file = scratch.join("f0");
    let large = scratch.join("large");
    std::fs::write(&large, vec![7; 24 << 20]).expect("write");
    let dest = scratch.dir("dest");
    for (signal, code) in SIGNALS {
        std::fs::write(&file, "old").expect("write");
        extol_ok(&["put", path, text(&file), "/"]);
        std::fs::write(&file, vec![8; 24 << 20]).expect("write");
        let began = Instant::now();
        let some_time = || began.elapsed() > Duration::from_millis(1500);
        let args = ["put", path, text(&file), "/"];
        let (ended, said) = interrupted(&scratch, ("pread64", 100), signal, &args, some_time);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        e2fsck(&image).assert_clean("after an interrupted put");
        assert_eq!(extol_ok(&["cat", path, "/f0"]), "old");
        assert_eq!(extol_ok(&["ls", "-A", path, "/"]).trim(), "f0\nlost+found");

        extol_ok(&["put", path, text(&large), "/f0"]);
        std::fs::write(dest.join("f0"), "old").expect("write");
        let args = ["cp", path, "/f0", text(&dest)];
        let half = || half_made(&dest);
        let (ended, said) = interrupted(&scratch, ("pwrite64", 100), signal, &args, half);
        assert_eq!((ended, said.trim()), (Some(code), "extol: interrupted"));
        assert_eq!(std::fs::read(dest.join("f0")).expect("read"), b"old");
        assert_eq!(std::fs::read_dir(&dest).expect("the directory").count(), 1);
    }
}

/// A second signal does not wait, and a signal that is to be ignored is.
#[test]
fn signals_twice_and_ignored() {
    if !require(&[&NEEDS[..], &STRACE].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), &[]);
    let mut command = extol();
    command.args(["stat", "--watch", "0.1"]).arg(mount.path()).stdout(Stdio::null());
    let mut child = command.spawn().expect("stat");
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
    assert_eq!(ended(&mut child).code(), Some(143));
    // It may come before the program's handler is there, or after the end.
    let mut child = extol().args(["check", "--mounted"]).arg(&image.path).spawn().expect("check");
    kill_process(Pid::from_child(&child), Signal::INT).expect("kill");
    let status = ended(&mut child);
    assert!(status.signal() == Some(2) || matches!(status.code(), Some(0 | 130)), "{status:?}");
    let line = format!(
        "trap '' HUP; exec {} stat --watch 0.1 {} >/dev/null",
        text(extol_path()),
        text(mount.path())
    );
    let mut child = tool("sh").args(["-c", &line]).spawn().expect("sh");
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_child(&child), Signal::HUP).expect("kill");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().expect("wait").is_none(), "SIGHUP is ignored");
    kill_process(Pid::from_child(&child), Signal::INT).expect("kill");
    assert_eq!(ended(&mut child).code(), Some(130));
    mount.unmount();
}

/// The same kind of mistake has the same exit code, whatever the command.
#[test]
fn mistakes_have_one_code_each() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let (image, dir) = (text(&image.path).to_owned(), scratch.dir("plain"));
    let missing = scratch.join("missing");
    let (missing, dir) = (text(&missing), text(&dir));
    let junk = scratch.join("junk");
    std::fs::write(&junk, [0; 65536]).expect("write");
    let junk = text(&junk);
    let cases: &[(&str, i32, &[&[&str]])] = &[
        (
            "an unknown option",
            1,
            &[
                &["mount", "--frob", "a", "b"],
                &["umount", "--frob", "a"],
                &["remount", "--frob", "a"],
                &["stat", "--frob", "a"],
                &["top", "--frob", "a"],
                &["sync", "--frob", "a"],
                &["info", "--frob", "a"],
                &["log", "--frob", "a"],
                &["replay", "--frob", "a"],
                &["mkfs", "--frob", "a"],
                &["ls", "--frob", "a"],
                &["put", "--frob", "a", "b", "c"],
                &["mount", "-o", "frob", &image, dir],
                &["info", "-o", "frob", &image],
                &["ls", "-o", "frob", &image],
            ],
        ),
        (
            "no such volume",
            32,
            &[
                &["mount", missing, dir],
                &["info", missing],
                &["log", missing],
                &["replay", missing],
                &["ls", missing],
                &["cat", missing, "/x"],
                &["cp", missing, "/x", dir],
                &["put", missing, dir, "/"],
                &["rm", missing, "/x"],
                &["mkdir", missing, "/x"],
                &["mv", missing, "/x", "/y"],
                &["getxattr", missing, "/x"],
            ],
        ),
        (
            "no ext4 volume",
            32,
            &[
                &["mount", junk, dir],
                &["info", junk],
                &["log", junk],
                &["replay", junk],
                &["ls", junk],
                &["put", junk, dir, "/"],
            ],
        ),
        (
            "no such file on the volume",
            32,
            &[
                &["ls", &image, "/missing"],
                &["cat", &image, "/missing"],
                &["cp", &image, "/missing", dir],
                &["rm", &image, "/missing"],
                &["mkdir", &image, "/missing/x"],
                &["mv", &image, "/missing", "/x"],
                &["chown", &image, "0", "/missing"],
                &["truncate", "-s0", &image, "/missing/x"],
                &["put", &image, dir, "/missing/x"],
            ],
        ),
        (
            "no mount of extol",
            32,
            &[
                &["stat", dir],
                &["top", "--once", dir],
                &["sync", dir],
                &["checkpoint", dir],
                &["freeze", dir],
                &["thaw", dir],
                &["remount", "-o", "rw", dir],
                &["umount", dir],
            ],
        ),
        (
            "no such directory",
            32,
            &[
                &["stat", missing],
                &["top", "--once", missing],
                &["sync", missing],
                &["checkpoint", missing],
                &["freeze", missing],
                &["thaw", missing],
                &["remount", "-o", "rw", missing],
                &["umount", missing],
            ],
        ),
    ];
    for (what, code, commands) in cases {
        for args in *commands {
            let done = run_extol(args);
            assert_eq!(done.code, Some(*code), "{what}, {args:?}: {}", done.output);
            assert_eq!(done.stderr.lines().count(), 1, "{what}, {args:?}: {}", done.output);
        }
    }
}
