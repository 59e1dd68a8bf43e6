//! Compressed images: what one command has expanded, the next one reads.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use extol_testkit::{Need, Rig, extol, extol_ok, require, run_ok, text, tool};

#[test]
fn an_image_is_expanded_once() {
    if !require(&[Need::Tool("xz"), Need::Root]) {
        return;
    }
    let rig = Rig::new();
    let raw = text(&rig.image.path);
    extol_ok(&["put", raw, "/etc/hostname", "/one"]);
    let packed = rig.scratch.join("a.xz");
    let pack = || run_ok(tool("sh").args(["-c", &format!("xz -1 -c {raw} >{}", text(&packed))]));
    pack();
    let cache = rig.scratch.dir("cache");
    let ls = |cache: &Path| {
        let mut command = extol();
        command.args(["ls", text(&packed)]).env_remove("TMPDIR").env("XDG_CACHE_HOME", cache);
        run_ok(&mut command)
    };
    let kept = || -> Vec<_> {
        let entries = std::fs::read_dir(cache.join("extol")).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    assert!(ls(&cache).contains("one"));
    let first = kept();
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].metadata().expect("stat").permissions().mode() & 0o777, 0o600);
    // What is there is what is read.
    extol_ok(&["mkdir", text(&first[0]), "/two"]);
    assert!(ls(&cache).contains("two"));
    // Not if others can write it; nor once the image is another one.
    let open_to = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&first[0], mode).expect("chmod");
    };
    open_to(0o666);
    assert!(!ls(&cache).contains("two"));
    open_to(0o600);
    extol_ok(&["put", raw, "/etc/hostname", "/three"]);
    pack();
    assert!(ls(&cache).contains("three"));
    let second = kept();
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    // Without a place for it nothing is kept, and nothing is left.
    let foreign = rig.scratch.dir("foreign");
    std::os::unix::fs::chown(&foreign, Some(65_534), None).expect("chown");
    assert!(ls(&foreign).contains("three"));
    assert_eq!(std::fs::read_dir(&foreign).expect("list").count(), 0);
}
