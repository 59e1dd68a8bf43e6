//! Damage that is met while working, compared with what Linux makes of it.

use crate::{EROFS, NEEDS, synced};
use extol_testkit::{
    ExtolMount, Image, KernelMount, Need, Scratch, debugfs, dump_super, require, run_ok, tool,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

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
