//! How many descriptors a mount takes: `docs/design/descriptors.md` has the numbers.

use crate::{LIMIT, NEEDS, Rig, extol_path, text};
use extol_testkit::{e2fsck, require, run, tool};
use std::fs::File;
use std::io::Write;

/// What a mount has when it stands.
const IDLE: usize = 15;
/// What it needs to be started at all.
const NEEDED: usize = 27;
/// Rings of the volume beside that.
const BUSY: usize = IDLE + 16;

fn descriptors(rig: &Rig) -> usize {
    let dir = format!("/proc/{}/fd", rig.daemon().as_raw_nonzero());
    std::fs::read_dir(dir).expect("the daemon's descriptors").count()
}

/// Large and small, many at a time.
fn load(rig: &Rig) {
    std::thread::scope(|scope| {
        for n in 0..8 {
            let dir = &rig.dir;
            scope.spawn(move || {
                for round in 0..3 {
                    let path = dir.join(format!("{n}-{round}"));
                    let mut file = File::create(&path).unwrap();
                    file.write_all(&vec![n; 600_000]).and_then(|()| file.sync_all()).unwrap();
                    assert_eq!(std::fs::read(&path).unwrap().len(), 600_000);
                }
            });
        }
    });
}

#[test]
fn a_mount_keeps_to_its_budget() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    rig.mount(&["-o", "noio_uring,max_threads=16"]);
    let idle = descriptors(&rig);
    load(&rig);
    let busy = descriptors(&rig);
    assert!(rig.unmount(&[]).success());
    assert!(idle <= IDLE && busy <= BUSY, "{idle} descriptors, {busy} under load");
    println!("{idle} descriptors, {busy} under load");
}

/// With fewer than it needs it does not start, in one line; with as many as it needs it works.
#[test]
fn the_limit_is_heeded() {
    if !require(&NEEDS) {
        return;
    }
    let rig = Rig::new();
    for limit in (8..=32).step_by(4).chain([NEEDED - 1, NEEDED]) {
        let words = [text(extol_path()), text(&rig.image.path), text(&rig.dir)];
        let script = format!("ulimit -n {limit}; exec \"$0\" mount -o noio_uring \"$1\" \"$2\"");
        let done = run(tool("sh").args(["-c", &script]).args(words), LIMIT);
        if limit < NEEDED {
            assert_eq!(
                (done.code, done.output.lines().count()),
                (Some(2), 1),
                "{limit}: {}",
                done.output
            );
            assert!(done.output.contains("ulimit -n"), "{limit}: {}", done.output);
            assert!(!rig.is_mounted(), "{limit}");
        } else {
            assert!(done.success() && done.output.is_empty(), "{limit}: {}", done.output);
            load(&rig);
            let busy = descriptors(&rig);
            let done = rig.unmount(&[]);
            assert!(
                done.success() && done.output.is_empty(),
                "{limit}, {busy} open: {}",
                done.output
            );
        }
    }
    e2fsck(&rig.image).assert_clean("with few descriptors");
}
