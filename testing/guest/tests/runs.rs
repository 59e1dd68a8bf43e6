//! The guest itself: what it runs, what it reports, and how it ends when something goes wrong.

use extol_guest::{End, Guest};
use extol_testkit::{Image, Need, Scratch, e2fsck, require};
use std::time::{Duration, Instant};

const NEEDS: [Need; 2] = [Need::Guest, Need::Tool("mke2fs")];

/// A script works on its drives, in their order, and its output and exit code come back.
#[test]
fn a_script_runs_on_drives() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    // (Names with what QEMU's options take for their own.)
    let first = Image::mke2fs(scratch.path(), "a,b=c d.img", 16 << 20, &["-t", "ext4"]);
    let second = Image::sparse(scratch.join("second.img"), 32 << 20);
    second.write_at(0, b"of the host");
    let report = Guest::new()
        .drive(&first.path)
        .drive_read_only(&second.path)
        .program("sha256sum")
        .module("dm-flakey")
        .module("nfs")
        .module("quota_v2")
        .module("nbd")
        .file("/data/one", "1\n")
        .try_run(
            "mount -t ext4 /dev/vda /mnt || exit 1
             cat /data/one
             cp /data/one /mnt/file
             dd if=/dev/vdb bs=11 count=1 2>/dev/null; echo
             echo x 2>/dev/null >/dev/vdb && echo 'the host can be written'
             cat /sys/block/vd?/size
             sha256sum --version | head -n 1 | cut -c 1-9
             mke2fs -V 2>&1 | head -n 1 | cut -c 1-10
             grep -c -e '^dm_flakey' -e '^nfs ' -e '^quota_v2' -e '^nbd' /proc/modules
             printf err >&2
             exit 7",
        )
        .unwrap();
    eprintln!("the script began after {:?}, the guest ended after {:?}", report.boot, report.took);
    assert_eq!(report.end, End::Code(7), "{}", report.output);
    assert_eq!(
        report.lines(),
        ["1", "of the host", "32768", "65536", "sha256sum", "mke2fs 1.4", "4", "err"]
    );
    // All messages of the kernel, because the script has failed; and the drive is unmounted.
    assert!(report.console.contains("Linux version"), "{}", report.console);
    assert!(report.console.contains("EXT4-fs (vda)"), "{}", report.console);
    e2fsck(&first).assert_clean("unmounted by the agent");
    assert_eq!(second.read_at(0, 11), b"of the host");
}

/// A cut leaves the volume as it is at that moment: with a log to replay.
#[test]
fn the_power_can_be_cut() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 16 << 20, &["-t", "ext4"]);
    let report = Guest::new()
        .drive(&image.path)
        .try_run(
            "mount -t ext4 /dev/vda /mnt
             echo kept >/mnt/file
             sync /mnt/file
             echo said
             power-cut
             echo never",
        )
        .unwrap();
    assert_eq!((report.end, report.output.as_str()), (End::Cut, "said\n"));
    let dumped = extol_testkit::dump_super(&image);
    assert!(dumped.contains("needs_recovery"), "{dumped}");
    let fixed = extol_testkit::e2fsck_fix(&image);
    fixed.assert_only_recovered("after the cut");
    assert_eq!(extol_testkit::debugfs(&image, "cat /file"), "kept\n");
}

/// What does not come to an end is ended, and each failure says what it is.
#[test]
fn failures_are_told_apart() {
    if !require(&NEEDS) {
        return;
    }
    let begun = Instant::now();
    let limit = Duration::from_secs(15);
    let failed = Guest::new().limit(limit).try_run("echo begun; sleep 1000").unwrap_err();
    assert!(failed.what.contains("does not end within 15s"), "{failed}");
    assert_eq!(failed.output, "begun\n");
    assert!(begun.elapsed() < limit * 2);

    let failed = Guest::new().try_run("echo c >/proc/sysrq-trigger").unwrap_err();
    assert!(failed.what.contains("without a report"), "{failed}");
    assert!(failed.console.contains("Kernel panic"), "{failed}");

    let failed = Guest::new().module("no_such").try_run("true").unwrap_err();
    assert!(failed.what.contains("no module no_such"), "{failed}");
    let failed = Guest::new().program("no-such").try_run("true").unwrap_err();
    assert!(failed.what.contains("no program no-such"), "{failed}");
    let missing = std::path::Path::new("/no/such.img");
    let failed = Guest::new().drive(missing).try_run("true").unwrap_err();
    assert!(failed.what.contains("ended"), "{failed}");
    assert!(failed.console.contains("/no/such.img"), "{failed}");
}
