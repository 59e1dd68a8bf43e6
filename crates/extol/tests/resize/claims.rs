//! Multi-mount protection while a volume becomes smaller.

use std::sync::{Arc, Mutex};

use extol::options::Waiting;
use extol_testkit::{Need, require};

use super::tune::request;
use super::*;

/// Notes what an opening waits for.
#[derive(Debug, Default)]
struct Waits(Mutex<Vec<String>>);

impl Waiting for Waits {
    fn waits(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// The claim is kept where the volume is opened again with its new size, and given back at the end.
#[test]
fn a_claim_is_waited_for_once() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("40M", &["-t", "ext4", "-b", "1024", "-J", "size=2", "-O", "mmp"]);
    let waits = Arc::new(Waits::default());
    let mut options = MountOptions::default().without_threads();
    options.access.waiting = Some(Arc::clone(&waits) as Arc<dyn Waiting>);
    let fs = Ext4::open_path(&image.path, &options).unwrap();
    let done = fs.resize(Target::Blocks(20_000), &mut |_| true).unwrap();
    assert!(done.blocks <= 20_000, "{done:?}");
    fill_some(&fs, 3);
    let sequence = || {
        let (_, text) = run("debugfs", &["-R", "dump_mmp"], &image.path);
        let line = text.lines().find_map(|line| line.strip_prefix("sequence: "));
        line.map(str::to_owned).unwrap_or_else(|| panic!("{text}"))
    };
    assert_ne!(sequence(), "ff4d4d50", "given back too early");
    fs.unmount().unwrap();
    drop(fs);
    let lines = waits.0.lock().unwrap().clone();
    assert!(lines.len() == 1 && lines[0].contains("claims"), "{lines:?}");
    assert_eq!(sequence(), "ff4d4d50", "not given back");
    image.assert_clean("given back");
    image.with(|fs| assert_some(fs, 3, "given back"));
}

/// The block of the claim has a checksum as soon as the volume has: for e2fsck, which stops at a
/// bad one, and for the next mount.
#[test]
fn checksums_change_under_multi_mount_protection() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let all = [
        ("-t ext4 -b 1024 -J size=2 -O mmp,^metadata_csum,uninit_bg", "-O metadata_csum"),
        ("-t ext4 -b 1024 -J size=2 -O mmp,orphan_file", "-O ^metadata_csum"),
    ];
    std::thread::scope(|s| {
        for (layout, options) in all {
            s.spawn(move || {
                let image = Image::new("24M", &layout.split(' ').collect::<Vec<_>>());
                image.with(|fs| fill_some(fs, 3));
                image.tune(&request(options)).unwrap_or_else(|e| panic!("{layout}: {e}"));
                image.assert_clean(layout);
                let (code, text) = run("debugfs", &["-R", "dump_mmp"], &image.path);
                assert!(code == 0 && text.contains("sequence: ff4d4d50"), "{layout}: {text}");
                image.with(|fs| assert_some(fs, 3, layout));
                image.assert_clean(layout);
            });
        }
    });
}
