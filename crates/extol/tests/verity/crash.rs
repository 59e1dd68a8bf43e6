//! Power cuts while a file is enabled: it has its tree and the flag, or neither.

use super::*;
use extol::MountOptions;
use extol_devices::RecordingDevice;

#[test]
fn a_crash_leaves_all_of_a_tree_or_nothing() {
    for kind in [
        &["-O", "verity", "-b", "1024", "-J", "size=4"][..],
        &["-O", "verity,orphan_file,fast_commit", "-b", "1024", "-J", "size=4"],
        &["-O", "verity,inline_data,^orphan_file"],
        &["-O", "verity,bigalloc,quota", "-b", "1024", "-C", "8192", "-J", "size=4"],
    ] {
        let base = image("24M", &[&["-t", "ext4"], kind].concat());
        let fs = open(&base, "");
        let kept = bytes(1, 200_000);
        let old = make(&fs, "old", &kept);
        fs.sync().unwrap();
        let free = fs.statfs().unwrap().blocks_free;
        fs.unmount().unwrap();
        let recording = Arc::new(RecordingDevice::new(base.snapshot()));
        let options = MountOptions::parse("dirty_mb=1").unwrap();
        let fs = Ext4::open(Arc::clone(&recording) as _, &options).unwrap();
        let began = recording.position();
        fs.enable_verity(old, &how(SHA512, 1024, b"")).unwrap();
        let tiny = make(&fs, "tiny", b"tiny");
        fs.enable_verity(tiny, &how(SHA256, 1024, b"")).unwrap();
        // Another file's fsync, which may be a fast commit, must not bring half of it.
        let other = make(&fs, "other", b"other");
        fs.fsync(other, false).unwrap();
        fs.sync().unwrap();
        let durable = recording.position();
        drop(fs);
        let (mut before, mut after, mut seed) = (0, 0, 1_u64);
        for cut in began..=durable {
            for way in 0..3 {
                let device = Arc::new(recording.image_at(cut, |_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    [true, false, seed >> 40 & 1 == 0][way]
                }));
                let what = format!("{kind:?}: cut {cut}, way {way}");
                let fs = open(&device, "");
                assert!(read_all(&fs, old).unwrap() == kept, "{what}");
                let enabled = fs.measure_verity(old).is_ok();
                *(if enabled { &mut after } else { &mut before }) += 1;
                assert!(cut < durable || enabled, "{what}: lost");
                if !enabled {
                    let now = fs.getattr(old).unwrap();
                    assert_eq!(now.flags & VERITY, 0);
                    fs.write(old, 0, b"writable").unwrap();
                }
                if let Ok(tiny) = fs.lookup(fs.root(), b"tiny") {
                    assert!(read_all(&fs, tiny.id.ino).is_ok(), "{what}");
                    fs.unlink(fs.root(), b"tiny").unwrap();
                    fs.forget(tiny.id.ino, 1);
                }
                let _ = fs.unlink(fs.root(), b"other");
                if !enabled {
                    fs.sync().unwrap();
                    let now = fs.statfs().unwrap().blocks_free;
                    assert!(now >= free, "{what}: {now} of {free} blocks are free");
                }
                fs.unmount().unwrap();
                assert_clean(&device, &what);
            }
        }
        assert!(before > 2 && after > 0, "{kind:?}: {before} before, {after} after");
    }
}
