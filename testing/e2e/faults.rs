//! Faults below a mount: the disk under the image fills up, the image may not grow, the device
//! under it loses its contents; damage that is met while working, compared with what Linux makes of
//! it.

use extol_testkit::{
    ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown, debugfs, dump_super,
    e2fsck, e2fsck_fix, extol, extol_path, require, run, run_ok, shutdown, tool, unmount,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const EIO: i32 = 5;
const EROFS: i32 = 30;
const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("e2fsck")];

fn synced(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// What fsync acknowledged before something failed.
#[derive(Default)]
struct Promised(BTreeMap<String, Vec<u8>>);

impl Promised {
    /// Writes files of `len` bytes, each with fsync, until one fails; gives that error.
    fn until_it_fails(&mut self, dir: &Path, files: usize, len: usize) -> Option<std::io::Error> {
        for n in 0..files {
            let (name, contents) = (format!("file-{n}"), vec![n as u8 | 1; len + n]);
            match synced(&dir.join(&name), &contents) {
                Ok(()) => drop(self.0.insert(name, contents)),
                Err(e) => return Some(e),
            }
        }
        None
    }

    fn assert_kept(&self, dir: &Path, what: &str) {
        for (name, contents) in &self.0 {
            assert!(std::fs::read(dir.join(name)).unwrap() == *contents, "{what}: {name}");
        }
    }
}

/// After the failure nothing is acknowledged, the state is told, and the mount ends soon, with a
/// failure and one line each for the event and for the end.
fn stopped(mount: ExtolMount, promised: &Promised, readable: bool) {
    let dir = mount.path().to_owned();
    let errno = |result: std::io::Result<()>| result.expect_err("after the failure").raw_os_error();
    for _ in 0..2 {
        assert_eq!(errno(File::create(dir.join("later")).map(drop)), Some(EROFS));
        assert_eq!(errno(std::fs::create_dir(dir.join("later"))), Some(EROFS));
        assert_eq!(
            errno(File::open(&dir).and_then(|d| d.sync_all())),
            Some(EIO),
            "fsync after the failure"
        );
    }
    if readable {
        promised.assert_kept(&dir, "before the unmount");
    }
    let stat = run_ok(extol().args(["stat", "--json"]).arg(&dir));
    assert!(stat.contains("\"read_only\":true") || stat.contains("\"read_only\": true"), "{stat}");
    assert!(!stat.contains("\"aborted\": null") && !stat.contains("\"aborted\":null"), "{stat}");
    std::thread::sleep(Duration::from_millis(500));
    let log = mount.log();
    assert_eq!(log.matches("the volume is read-only now").count(), 1, "{log}");
    let log_file = dir.with_extension("log");
    let began = Instant::now();
    assert!(mount.end().is_some_and(|code| code != 0), "an unmount that loses nothing?");
    assert!(began.elapsed() < Duration::from_secs(20), "the unmount took {:?}", began.elapsed());
    let log = std::fs::read_to_string(log_file).unwrap_or_default();
    assert!(log.lines().count() <= 2, "{log}");
}

/// The fault is over: the volume knows about it, holds what was promised, and is sound,
/// whatever recovers it.
fn comes_back(image: &Image, scratch: &Scratch, promised: &Promised) {
    let dir = scratch.dir("mnt");
    let linux = image.copy_as("linux.img");
    let fsck = image.copy_as("fsck.img");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    promised.assert_kept(&dir, "recovered by Extol");
    std::fs::write(dir.join("after"), b"works").unwrap();
    mount.unmount();
    e2fsck(image).assert_clean("recovered by Extol");
    assert!(dump_super(image).contains("clean with errors"), "{}", dump_super(image));

    let mount = KernelMount::mount(&linux, &dir, &["noinit_itable"]);
    promised.assert_kept(&dir, "recovered by Linux");
    mount.unmount();
    e2fsck(&linux).assert_clean("recovered by Linux");
    linux.remove();
    let report = e2fsck_fix(&fsck);
    assert!(report.code & !1 == 0, "{}", report.output);
    fsck.remove();
}

/// The image is sparse, and the file system that it lies on fills up.
#[test]
fn no_space_below_the_image() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    for (options, journal) in [(&[][..], "4"), (&["data=journal"][..], "4"), (&["direct"][..], "8")]
    {
        let scratch = Scratch::new();
        let (small, dir) = (scratch.dir("small"), scratch.dir("mnt"));
        run_ok(tool("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&small));
        let image = Image::sparse(small.join("a.img"), 64 << 20);
        let size = format!("size={journal}");
        run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", &size]).arg(&image.path));
        let mount = match ExtolMount::try_start(&image.path, &dir, options) {
            Ok(mount) => mount,
            // tmpfs without O_DIRECT.
            Err(e) if options == ["direct"] => {
                println!("skipped direct: {}", e.output.trim());
                unmount(&small);
                continue;
            }
            Err(e) => panic!("{e:?}"),
        };
        let mut promised = Promised::default();
        let failed =
            promised.until_it_fails(&dir, 200, 300_000).expect("60 MB do not fit on 24 MiB");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        assert!(promised.0.len() > 5);
        stopped(mount, &promised, true);
        run_ok(tool("mount").args(["-o", "remount,size=200m"]).arg(&small));
        comes_back(&image, &scratch, &promised);
        // The daemon closes the image a moment after its mount has gone.
        unmount(&small);
    }
}

/// The options of the mount on `dir`, as findmnt(8) shows them.
fn kernel_options(dir: &Path) -> String {
    // (Mount points of others need not be UTF-8.)
    let table = std::fs::read("/proc/self/mountinfo").expect("mountinfo");
    let table = String::from_utf8_lossy(&table);
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == dir.to_str());
    let line = line.expect("a mount");
    let of_volume = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(2));
    format!("{},{}", line.split(' ').nth(5).expect("options"), of_volume.expect("options"))
}

#[track_caller]
fn becomes(dir: &Path, option: &str) {
    let began = Instant::now();
    while !kernel_options(dir).split(',').any(|word| word == option) {
        assert!(began.elapsed() < Duration::from_secs(10), "not {option}: {}", kernel_options(dir));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What every request about the whole mount says of a stopped volume: the first line of
/// `extol stat`, and what to do. A remount to read-only is refused: it is not clean.
#[track_caller]
fn refuse_in_one_line(dir: &Path, state: &str) {
    for words in [
        &["sync"][..],
        &["checkpoint"],
        &["checkpoint", "--dry-run"],
        &["checkpoint", "--discard"],
        &["freeze"],
        &["thaw"],
        &["remount", "-o", "ro"],
        &["remount", "-o", "ro,noatime"],
    ] {
        let done = run(extol().args(words).arg(dir), Duration::from_secs(60));
        let line = format!("extol: {state}; when the cause is gone: extol remount -o rw ");
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(done.output.starts_with(&line), "{words:?}: {}", done.output);
    }
}

/// The host's disk was full and has space again: a remount mends the volume, with files that are
/// open all the while. Everything says what is wrong, and why.
#[test]
fn a_remount_mends_a_full_host() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    for (features, options) in [("fast_commit", &[][..]), ("^fast_commit", &["noio_uring"])] {
        let scratch = Scratch::new();
        let (small, dir) = (scratch.dir("small"), scratch.dir("mnt"));
        let tmpfs = |size: &str| {
            run_ok(tool("mount").args(["-o", &format!("remount,size={size}")]).arg(&small))
        };
        run_ok(tool("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&small));
        let image = Image::sparse(small.join("a.img"), 64 << 20);
        let args = ["-q", "-F", "-t", "ext4", "-J", "size=4", "-O", features];
        run_ok(tool("mke2fs").args(args).arg(&image.path));
        let mut command = extol();
        command.args(["mount", "-f", "--metrics", ":0"]);
        if !options.is_empty() {
            command.arg("-o").arg(options.join(","));
        }
        command.arg(&image.path).arg(&dir);
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        synced(&dir.join("open"), b"open all the while").unwrap();
        let mut open = File::options().read(true).write(true).open(dir.join("open")).unwrap();
        let inside = std::fs::File::open(&dir).unwrap();
        let mut promised = Promised::default();
        promised.until_it_fails(&dir, 200, 300_000).expect("60 MB do not fit on 24 MiB");
        assert!(promised.0.len() > 5);

        let said = run_ok(extol().arg("stat").arg(&dir));
        let first = said.lines().next().unwrap_or_default();
        let state = format!("{}: read-only: ", dir.display());
        assert!(first.starts_with(&state) && first.contains("No space left on device"), "{said}");
        assert!(said.contains("extol remount -o rw"), "{said}");
        refuse_in_one_line(&dir, first);
        let said = run_ok(extol().args(["top", "--once", "--interval", "0.1"]).arg(&dir));
        assert!(said.starts_with(&state), "{said}");
        let page = metrics_of(&mount);
        for line in ["extol_read_only 1", "extol_stopped 1", "extol_read_only_info{reason=\""] {
            assert!(page.contains(line), "{line} is missing: {page}");
        }
        // As long as a file is open for writing the kernel's side cannot follow.
        assert!(kernel_options(&dir).split(',').all(|word| word != "ro"));
        drop(open);
        open = File::open(dir.join("open")).unwrap();
        becomes(&dir, "ro");
        refuse_in_one_line(&dir, first);
        becomes(&dir, "ro");
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert_eq!(refused.code, Some(32), "{}", refused.output);
        assert!(refused.output.contains("No space left on device"), "{}", refused.output);
        assert_eq!(refused.output.lines().count(), 1, "{}", refused.output);
        becomes(&dir, "ro");
        promised.assert_kept(&dir, "before it is mended");

        tmpfs("200m");
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        promised.assert_kept(&dir, "mended");
        becomes(&dir, "rw");
        assert!(!kernel_options(&dir).split(',').any(|word| word == "ro"));
        let said = run_ok(extol().arg("stat").arg(&dir));
        assert!(said.starts_with(&format!("{}: read-write\n", dir.display())), "{said}");
        assert!(metrics_of(&mount).contains("\nextol_stopped 0\n"));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut open, &mut text).unwrap();
        assert_eq!(text, "open all the while");
        // What failed was not made durable; that is told once.
        assert_eq!(inside.sync_all().unwrap_err().raw_os_error(), Some(EIO));
        inside.sync_all().unwrap();
        // What failed leaves no trace: neither in a listing nor in what the kernel has cached.
        let listed = std::fs::read_dir(&dir).unwrap().count();
        let known = ["lost+found", "open"].len() + promised.0.len();
        assert!(listed == known || listed == known + 1, "{listed} names, {known} promised");
        for n in 0..200 {
            let name = format!("file-{n}");
            let there = std::fs::read(dir.join(&name));
            assert_eq!(there.is_ok(), dir.join(&name).exists(), "{name}");
        }
        synced(&dir.join("later"), &[9; 3_000_000]).unwrap();
        let kept = Promised([("later".to_owned(), vec![9; 3_000_000])].into());
        drop((open, inside));
        mount.unmount();
        e2fsck(&image).assert_clean("mended");
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        promised.assert_kept(&dir, "mended and mounted again");
        kept.assert_kept(&dir, "mended and mounted again");
        mount.unmount();
        unmount(&small);
    }
}

/// Programs that open, remove and rename files go on through aborts and remounts: an open that may
/// make the file never says that it exists.
#[test]
fn opens_go_on_through_remounts() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let made: usize = std::thread::scope(|scope| {
        let (stop, dir) = (&stop, &dir);
        let work = move |t: usize| {
            let mut made = 0;
            for n in 0_usize.. {
                if stop.load(std::sync::atomic::Ordering::SeqCst) {
                    break;
                }
                let path = |n: usize| dir.join(format!("{t}-{}", n % 12));
                let _ = match n % 4 {
                    0 => std::fs::remove_file(path(n * 5)),
                    1 => std::fs::rename(path(n * 7), path(n * 7 + 5)),
                    _ => Ok(()),
                };
                match File::create(path(n * 11)) {
                    Ok(mut file) => {
                        made += usize::from(file.write_all(&vec![7; n % 20_000]).is_ok());
                        let _ = (n % 3 == 0).then(|| file.sync_all());
                    }
                    Err(error) => {
                        let errno = error.raw_os_error();
                        assert!(matches!(errno, Some(EIO | EROFS)), "{error}");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            made
        };
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(move || work(t))).collect();
        for _ in 0..25 {
            std::thread::sleep(Duration::from_millis(40));
            run_ok(extol().args(["remount", "-o", "abort"]).arg(dir));
            run_ok(extol().args(["remount", "-o", "rw"]).arg(dir));
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(made > 100, "{made}");
    mount.unmount();
}

/// Each open of a file whose changes are lost is told so once by fsync, and so is the first sync of
/// the volume. What was durable is not lost.
#[test]
fn fsync_tells_what_a_remount_has_lost() {
    if !require(&NEEDS) {
        return;
    }
    for options in ["noio_uring", "nodirect"] {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &[options]);
        let root = File::open(&dir).unwrap();
        let durable = |name: &str| {
            synced(&dir.join(name), b"durable").unwrap();
            File::options().append(true).open(dir.join(name)).unwrap()
        };
        let (whole, mut changed) = (durable("whole"), durable("changed"));
        let other = File::open(dir.join("changed")).unwrap();
        root.sync_all().unwrap();
        changed.write_all(b", and not").unwrap();
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        assert_eq!(std::fs::read(dir.join("changed")).unwrap(), b"durable");
        whole.sync_all().unwrap();
        changed.write_all(b", and more").unwrap();
        let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(changed.sync_all()), Some(EIO));
        changed.sync_all().unwrap();
        assert_eq!(errno(other.sync_data()), Some(EIO));
        other.sync_data().unwrap();
        File::open(dir.join("changed")).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::read(dir.join("changed")).unwrap(), b"durable, and more");
        assert_eq!(errno(root.sync_all()), Some(EIO));
        root.sync_all().unwrap();
        // `extol sync` says what that was, once.
        changed.write_all(b", and lost").unwrap();
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        let told = run(extol().arg("sync").arg(&dir), Duration::from_secs(60));
        assert_eq!((told.code, told.output.lines().count()), (Some(32), 1), "{}", told.output);
        let line = "changes from before the error that had stopped the volume are lost";
        assert!(told.output.contains(line), "{}", told.output);
        run_ok(extol().arg("sync").arg(&dir));
        drop((whole, changed, other, root));
        mount.unmount();
    }
}

/// What the kernel caches of the root directory goes with what is lost. With a write-back cache the
/// kernel keeps sizes that nothing can take from it: there it is refused.
#[test]
fn a_mended_root_is_listed_anew() {
    if !require(&NEEDS) {
        return;
    }
    for options in ["noio_uring", "writeback_cache"] {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &[options]);
        synced(&dir.join("keep"), b"kept").unwrap();
        run_ok(extol().arg("sync").arg(&dir));
        std::fs::rename(dir.join("keep"), dir.join("lost")).unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), names(), "cached");
        assert!(names().contains(&"lost".into()));
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        let mended = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        if options == "writeback_cache" {
            assert_eq!(mended.code, Some(32), "{}", mended.output);
            assert!(mended.output.contains("unmount the volume"), "{}", mended.output);
        } else {
            assert_eq!(mended.code, Some(0), "{}", mended.output);
            assert_eq!(names(), ["keep", "lost+found"].map(std::ffi::OsString::from));
            assert_eq!(std::fs::read(dir.join("keep")).unwrap(), b"kept");
        }
        drop(mount);
    }
}

/// The page of the counters of this mount.
fn metrics_of(mount: &ExtolMount) -> String {
    let log = mount.log();
    let address = log.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let mut stream = std::net::TcpStream::connect(address.expect("an address")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    std::io::Read::read_to_string(&mut stream, &mut page).unwrap();
    page
}

/// A recovery on a full disk says that it is full.
#[test]
fn a_replay_on_a_full_host_says_why() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (small, dir) = (scratch.dir("small"), scratch.dir("mnt"));
    run_ok(tool("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&small));
    let image = Image::sparse(small.join("a.img"), 64 << 20);
    run_ok(tool("mke2fs").args(["-q", "-F", "-t", "ext4", "-J", "size=4"]).arg(&image.path));
    let mut mount = ExtolMount::start(&image.path, &dir, &[]);
    let mut promised = Promised::default();
    assert!(promised.until_it_fails(&dir, 20, 100_000).is_none());
    mount.kill9();
    // Space that the image has is left to it; all other is taken.
    let ballast = small.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    drop(file);
    for args in [&["replay"][..], &["mount"]] {
        let mut command = extol();
        command.args(args).arg(&image.path);
        if args == ["mount"] {
            command.arg(&dir);
        }
        let done = run(&mut command, Duration::from_secs(60));
        assert!(done.code == Some(32) || done.success(), "{args:?}: {}", done.output);
        if !done.success() {
            assert!(done.output.contains("No space left on device"), "{args:?}: {}", done.output);
        }
        if args == ["mount"] && done.success() {
            let _ = run(extol().arg("umount").arg(&dir), Duration::from_secs(60));
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    run_ok(extol().arg("replay").arg(&image.path));
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    promised.assert_kept(&dir, "replayed");
    mount.unmount();
    e2fsck(&image).assert_clean("replayed");
    unmount(&small);
}

/// A tree for a volume that its host has no room for: nothing more is tried once that is known, and
/// the file that was there stays.
#[test]
fn a_tree_on_a_full_host_is_given_up() {
    if !require(&[Need::Root, Need::Kernel("tmpfs"), Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let (small, tree) = (scratch.dir("small"), scratch.dir("tree"));
    std::fs::write(tree.join("a"), vec![7; 30 << 20]).unwrap();
    for number in 0..50 {
        std::fs::write(tree.join(format!("b{number}")), "text").unwrap();
    }
    run_ok(tool("mount").args(["-t", "tmpfs", "-o", "size=10m", "none"]).arg(&small));
    let path = small.join("a.img");
    std::fs::write(&path, "what was there").unwrap();
    let mut command = extol();
    command.args(["mkfs", "-q", "-F", "-d"]).arg(&tree).arg(&path).arg("64M");
    let done = run(&mut command, Duration::from_secs(60));
    assert_eq!(done.code, Some(32), "{}", done.output);
    assert!(done.stderr.contains("No space left on device"), "{}", done.output);
    assert!(done.stderr.lines().count() <= 4, "{}", done.output);
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
    unmount(&small);
}

/// The administrator aborts the connection: the daemon closes the volume, takes the dead mount off
/// and says that it was not unmounted.
#[test]
fn an_aborted_connection_is_a_failure() {
    if !require(&NEEDS) {
        return;
    }
    for sandbox in [true, false] {
        let scratch = Scratch::new();
        let (dir, connections) = (scratch.dir("mnt"), scratch.dir("connections"));
        run_ok(tool("mount").args(["-t", "fusectl", "none"]).arg(&connections));
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let mut command = extol();
        command.args(["mount", "-f"]).args((!sandbox).then_some("--no-sandbox"));
        command.arg(&image.path).arg(&dir);
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        synced(&dir.join("file"), b"kept").unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&dir).unwrap());
        let minor = rustix::fs::minor(device);
        std::fs::write(connections.join(minor.to_string()).join("abort"), "1").unwrap();
        unmount(&connections);
        let began = Instant::now();
        while extol_testkit::mounted_type(&dir).is_some() {
            assert!(began.elapsed() < Duration::from_secs(10), "a dead mount stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = dir.with_extension("log");
        let ended = mount.end();
        let log = std::fs::read_to_string(log).unwrap_or_default();
        assert_eq!(ended, Some(32), "{log}");
        assert!(log.contains("the connection to the kernel was aborted"), "{log}");
        e2fsck(&image).assert_clean("aborted");
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"kept");
        mount.unmount();
    }
}

/// The daemon may not make files larger than so much: RLIMIT_FSIZE is an error, not the end of the
/// daemon.
#[test]
fn a_limit_on_the_size_of_files() {
    if !require(&[&NEEDS[..], &[Need::Tool("prlimit")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let mut command = tool("prlimit");
    command.arg(format!("--fsize={}", 40 << 20)).arg("--").arg(extol_path()).args(["mount", "-f"]);
    let mount = ExtolMount::spawn(
        {
            command.arg(&image.path).arg(&dir);
            command
        },
        &dir,
    )
    .unwrap();
    let mut promised = Promised::default();
    let failed = promised.until_it_fails(&dir, 300, 300_000).expect("60 MB are behind the limit");
    assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
    stopped(mount, &promised, true);
    comes_back(&image, &scratch, &promised);
}

/// The device below the mount goes away: the file system that the image lies on is shut down. Once
/// with the image itself, once with a loop device over it.
#[test]
fn a_device_that_goes_away() {
    if !require(&[&NEEDS[..], &[Need::Kernel("ext4")]].concat()) {
        return;
    }
    for over_loop in [false, true] {
        let scratch = Scratch::new();
        let (below, dir) = (scratch.dir("below"), scratch.dir("mnt"));
        let host = Image::mke2fs(scratch.path(), "host.img", 128 << 20, &["-t", "ext4"]);
        let mut linux = KernelMount::mount(&host, &below, &["noinit_itable"]);
        let image = Image::mke2fs(&below, "a.img", 48 << 20, &["-t", "ext4", "-J", "size=4"]);
        File::open(&image.path).and_then(|f| f.sync_all()).unwrap();
        let device = over_loop.then(|| LoopDevice::attach(&image.path));
        let source = device.as_ref().map_or(&*image.path, LoopDevice::path);
        let mount = ExtolMount::start(source, &dir, &["errors=remount-ro"]);
        let mut promised = Promised::default();
        assert!(promised.until_it_fails(&dir, 10, 100_000).is_none());
        shutdown(&below, Shutdown::Now);
        let began = Instant::now();
        let failed =
            (0..50).find_map(|n| synced(&dir.join(format!("late-{n}")), &[7; 50_000]).err());
        let failed = failed.expect("a device that is gone");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        assert!(began.elapsed() < Duration::from_secs(20), "the error took {:?}", began.elapsed());
        stopped(mount, &promised, false);
        drop(device);
        linux.unmount();
        // It is back, with what was durable.
        linux = KernelMount::mount(&host, &below, &["noinit_itable"]);
        let mount = ExtolMount::start(&image.path, &dir, &[]);
        promised.assert_kept(&dir, "the device is back");
        mount.unmount();
        e2fsck(&image).assert_clean("the device is back");
        linux.unmount();
    }
}

/// The host of an image fails with EIO for a time: the volume stops, and a remount mends it when
/// the host works again. (The host is a mount of Extol that is stopped and mended itself; what lies
/// on it is reached through a loop device, whose errors are all EIO.)
#[test]
fn a_remount_mends_a_device_that_failed() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (below, dir) = (scratch.dir("below"), scratch.dir("mnt"));
    let host = Image::mke2fs(scratch.path(), "host.img", 128 << 20, &["-t", "ext4"]);
    let host_mount = ExtolMount::start(&host.path, &below, &[]);
    let image = Image::mke2fs(&below, "a.img", 48 << 20, &["-t", "ext4", "-J", "size=4"]);
    File::open(&image.path).and_then(|f| f.sync_all()).unwrap();
    run_ok(extol().arg("sync").arg(&below));
    let device = LoopDevice::attach(&image.path);
    let mount = ExtolMount::start(device.path(), &dir, &[]);
    let mut promised = Promised::default();
    assert!(promised.until_it_fails(&dir, 10, 100_000).is_none());
    for round in 0..2 {
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&below));
        let late = |n| synced(&dir.join(format!("late-{round}-{n}")), &[7; 50_000]).err();
        let failed = (0..50).find_map(late).expect("a device that fails");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        let said = run_ok(extol().arg("stat").arg(&dir));
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains("Input/output error"), "{said}");
        refuse_in_one_line(&dir, first);
        // As long as it fails, a remount changes nothing.
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert_eq!(
            (refused.code, refused.output.lines().count()),
            (Some(32), 1),
            "{}",
            refused.output
        );

        run_ok(extol().args(["remount", "-o", "rw"]).arg(&below));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        promised.assert_kept(&dir, "mended");
        let name = format!("after-{round}");
        synced(&dir.join(&name), &[9; 300_000]).unwrap();
        promised.0.insert(name, vec![9; 300_000]);
    }
    mount.unmount();
    e2fsck(&image).assert_clean("mended");
    let mount = ExtolMount::start(device.path(), &dir, &["ro"]);
    promised.assert_kept(&dir, "mounted again");
    mount.unmount();
    device.detach();
    host_mount.unmount();
}

/// The image, or the file below a loop device, is cut: that is told by the sizes, and not as
/// another writer; nothing is written that makes the file longer again.
#[test]
fn an_image_that_is_cut_is_told_so() {
    if !require(&NEEDS) {
        return;
    }
    const LEN: u64 = 48 << 20;
    for offset in [None, Some(0), Some(1 << 20)] {
        let scratch = Scratch::new();
        let dir = scratch.dir("mnt");
        let image = Image::mke2fs(scratch.path(), "a.img", LEN, &["-t", "ext4"]);
        let before = offset.unwrap_or(0);
        let whole = scratch.join("whole.img");
        let mut bytes = vec![0; usize::try_from(before).unwrap()];
        bytes.extend(std::fs::read(&image.path).unwrap());
        std::fs::write(&whole, bytes).unwrap();
        let device = offset
            .map(|offset| LoopDevice::attach_with(&whole, &["--offset", &offset.to_string()]));
        let source = device.as_ref().map_or(&*whole, LoopDevice::path);
        let mount = ExtolMount::start(source, &dir, &[]);
        synced(&dir.join("file"), b"synced").unwrap();
        run_ok(extol().arg("sync").arg(&dir));
        let cut = before + (2 << 20);
        File::options().write(true).open(&whole).and_then(|file| file.set_len(cut)).unwrap();
        // The size is looked at every second.
        std::thread::sleep(Duration::from_millis(1200));
        let late = |n| synced(&dir.join(format!("late-{n}")), &[7; 50_000]).err();
        let failed = (0..50).find_map(late).expect("a device that was cut");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        let said = run_ok(extol().arg("stat").arg(&dir));
        let sizes = format!("was cut to {} of {LEN} bytes", 2 << 20);
        assert!(said.lines().next().is_some_and(|line| line.contains(&sizes)), "{said}");
        assert!(!said.contains("another program"), "{said}");
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert!(refused.code == Some(32) && refused.output.contains(&sizes), "{}", refused.output);
        assert!(!said.contains("extol remount"), "{said}");
        assert_eq!(std::fs::metadata(&whole).unwrap().len(), cut, "it was written behind the end");
        // Nor is it mended by its old size: what was cut off is lost.
        File::options().write(true).open(&whole).and_then(|f| f.set_len(before + LEN)).unwrap();
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert!(refused.code == Some(32) && refused.output.contains(&sizes), "{}", refused.output);
        assert!(mount.end().is_some_and(|code| code != 0), "an unmount that loses nothing?");
        drop(device);
    }
}

/// A cut below a mount that nothing changes is found within a second or two, without a request.
#[test]
fn a_cut_below_an_idle_mount_is_found() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = Image::mke2fs(scratch.path(), "a.img", 48 << 20, &["-t", "ext4"]);
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    synced(&dir.join("file"), b"synced").unwrap();
    run_ok(extol().arg("checkpoint").arg(&dir));
    File::options().write(true).open(&image.path).and_then(|f| f.set_len(2 << 20)).unwrap();
    let began = Instant::now();
    while !mount.log().contains("was cut to 2097152 of 50331648 bytes") {
        assert!(began.elapsed() < Duration::from_secs(5), "not found: {}", mount.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    becomes(&dir, "ro");
    let said = run_ok(extol().arg("stat").arg(&dir));
    let first = said.lines().next().unwrap_or_default();
    assert!(first.contains(": read-only: the device below the volume was cut to "), "{said}");
    assert_eq!(File::create(dir.join("later")).unwrap_err().raw_os_error(), Some(EROFS));
    assert_eq!(std::fs::metadata(&image.path).unwrap().len(), 2 << 20, "it was written");
    assert!(mount.end().is_some_and(|code| code != 0), "an unmount that loses nothing?");
}

/// The fields of dumpe2fs that tell about errors.
fn error_fields(image: &Image) -> BTreeMap<String, String> {
    dump_super(image)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .filter(|(key, _)| {
            key.contains("rror") || key == "Filesystem state" || key == "Filesystem features"
        })
        .collect()
}

/// A directory whose block is damaged.
fn damaged(scratch: &Scratch, name: &str, policy: &str) -> Image {
    let image =
        Image::mke2fs(scratch.path(), name, 32 << 20, &["-t", "ext4", "-b", "4096", "-e", policy]);
    let mut script = tool("debugfs");
    script.args(["-w", "-R", "mkdir damaged"]).arg(&image.path);
    run_ok(&mut script);
    let block: u64 =
        debugfs(&image, "blocks damaged").split_whitespace().next().unwrap().parse().unwrap();
    image.write_at(block * 4096, &[0xA5; 4096]);
    image
}

/// What one mount makes of it: errno of a look at the damage and of a change elsewhere, before and
/// after.
fn meet_the_damage(dir: &Path) -> [Option<i32>; 4] {
    let errno = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
    let before = errno(synced(&dir.join("before"), b"x"));
    let look = errno(std::fs::metadata(dir.join("damaged/name")).map(drop));
    let change = errno(File::create(dir.join("damaged/new")).map(drop));
    let after = errno(synced(&dir.join("after"), b"x"));
    [before, look, change, after]
}

/// Damage met while working: Extol and Linux do the same by `errors=`, and write down the same.
#[test]
fn damage_is_noted_as_linux_notes_it() {
    let needs =
        [&NEEDS[..], &[Need::Kernel("ext4"), Need::Tool("debugfs"), Need::Tool("dumpe2fs")]]
            .concat();
    if !require(&needs) {
        return;
    }
    for policy in ["continue", "remount-ro"] {
        let scratch = Scratch::new();
        let dir = scratch.dir("mnt");
        let ours = damaged(&scratch, "ours.img", policy);
        let linux = ours.copy_as("linux.img");

        let mount = ExtolMount::start(&ours.path, &dir, &["default_permissions"]);
        let our_errno = meet_the_damage(&dir);
        let code = mount.end();
        let ours_says = error_fields(&ours);

        let mount = KernelMount::mount(&linux, &dir, &["noinit_itable"]);
        let linux_errno = meet_the_damage(&dir);
        mount.unmount();
        let linux_says = error_fields(&linux);

        println!(
            "{policy}: Extol {our_errno:?} {ours_says:#?}\nLinux {linux_errno:?} {linux_says:#?}"
        );
        assert_eq!(our_errno[3], linux_errno[3], "{policy}: a change elsewhere afterwards");
        assert_eq!(our_errno[3], if policy == "continue" { None } else { Some(EROFS) });
        assert_eq!(code == Some(0), policy == "continue", "{policy}: exit code {code:?}");
        for key in ["Filesystem state", "Errors behavior", "First error inode #", "FS Error count"]
        {
            assert_eq!(ours_says.get(key), linux_says.get(key), "{policy}: {key}");
        }
        // Linux tells a wrong checksum from other damage.
        for says in [&ours_says, &linux_says] {
            assert!(
                says["First error err"] == "EFSCORRUPTED" || says["First error err"] == "EFSBADCRC"
            );
        }
        for key in ["FS Error count", "First error time", "First error function", "Last error time"]
        {
            assert!(ours_says.contains_key(key) && linux_says.contains_key(key), "{policy}: {key}");
        }
        assert_eq!(ours_says["First error line #"], "0");
        let recovery = |says: &BTreeMap<String, String>| {
            says["Filesystem features"].contains("needs_recovery")
        };
        assert_eq!(recovery(&ours_says), recovery(&linux_says), "{policy}: needs_recovery");
        // The next mount still knows.
        let mount = ExtolMount::start(&ours.path, &dir, &[]);
        assert!(dir.join("before").exists());
        mount.unmount();
        let later = error_fields(&ours);
        assert_eq!(later["Filesystem state"], "clean with errors");
        assert_eq!(later["FS Error count"], ours_says["FS Error count"], "{policy}");
    }
}

/// `errors=panic` ends the daemon, at once and with a failure.
#[test]
fn panic_ends_the_mount() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image = damaged(&scratch, "a.img", "panic");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    synced(&dir.join("promised"), b"kept").unwrap();
    let _ = std::fs::metadata(dir.join("damaged/name"));
    let began = Instant::now();
    while !mount.log().contains("an error on the volume ended the mount (errors=panic)") {
        assert!(began.elapsed() < Duration::from_secs(10), "the mount lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(File::open(dir.join("promised")).is_err(), "the daemon has ended");
    drop(mount);
    assert_eq!(error_fields(&image)["FS Error count"], "1");
    let mount = ExtolMount::start(&image.path, &dir, &["errors=continue"]);
    assert_eq!(std::fs::read(dir.join("promised")).unwrap(), b"kept");
    mount.unmount();
}
