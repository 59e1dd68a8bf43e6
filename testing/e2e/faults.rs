//! Faults below a mount: the disk under the image fills up, the image may not grow, the device
//! under it loses its contents; damage that is met while working, compared with what Linux makes of
//! it.

use extol_testkit::{
    ExtolMount, Image, KernelMount, LoopDevice, Need, Scratch, Shutdown, debugfs, dump_super,
    e2fsck, e2fsck_fix, extol, extol_path, require, run_ok, shutdown, tool, unmount,
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
