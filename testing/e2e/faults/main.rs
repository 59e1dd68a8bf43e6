//! Faults below a mount: the disk under the image fills up, the image may not grow, the device
//! under it loses its contents; damage that is met while working, compared with what Linux makes of
//! it.

mod damage;
mod devices;
mod full;
mod remounts;

use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, dump_super, e2fsck, e2fsck_fix, extol, run_ok,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

const EIO: i32 = 5;

const EROFS: i32 = 30;
const ESTALE: i32 = 116;

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
