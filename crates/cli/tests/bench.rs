//! `extol bench`: each load and each table at its smallest, in this process; one run of mounts in turn.

use extol_testkit::{Need, Scratch, require, run, run_ok};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn bin() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_extol"))
}

/// Runs `extol bench LINE --dir SCRATCH --json`, which must succeed, and gives its report.
#[track_caller]
fn bench(scratch: &Scratch, line: &str) -> serde_json::Value {
    let mut command = Command::new(bin());
    command.arg("bench").args(line.split(' ')).arg("--dir").arg(scratch.path()).arg("--json");
    let output = run_ok(&mut command);
    serde_json::from_str(&output).unwrap_or_else(|e| panic!("no JSON ({e}):\n{output}"))
}

#[track_caller]
fn number(report: &serde_json::Value, pointer: &str) -> f64 {
    report
        .pointer(pointer)
        .and_then(serde_json::Value::as_f64)
        .unwrap_or_else(|| panic!("{pointer}: {report:#}"))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn loads_in_this_process() {
    let scratch = Scratch::new();
    let short = "--rounds 1 --seconds 0.1 --volume 128M";
    let report =
        bench(&scratch, &format!("fsmark -t 2 -s 4096 -n 20 -S 3 -D 2 -N 5 --medium memory {short}"));
    assert_eq!(report["bench"], "fsmark");
    assert!(number(&report, "/results/contenders/0/rate/median") > 0.0);
    assert!(number(&report, "/results/contenders/0/per_unit/device_bytes") > 0.0);
    let report = bench(&scratch, &format!("dbench --clients 2 --medium memory -O fast_commit {short}"));
    assert!(number(&report, "/results/contenders/0/rate/median") > 0.0);
    bench(
        &scratch,
        &format!("postmark --number 20 --transactions 20 --size 500,5000 --bias-read -1 {short}"),
    );
    bench(&scratch, &format!("varmail --threads 2 --files 20 --medium ramdisk {short}"));
    let report = bench(
        &scratch,
        &format!("fsync-latency --medium nvme --target library --target library:commit=30 {short}"),
    );
    assert!(number(&report, "/results/contenders/1/ratio/median") > 0.0);
    assert!(is_empty(scratch.path()));
}

#[test]
fn tables_in_this_process() {
    let scratch = Scratch::new();
    let page = scratch.path().join("page.html");
    let line = format!(
        "fsync-batching --profile ramdisk --threads 1,2 --rounds 1 --seconds 0.05 --html {} --svg {}",
        page.display(),
        scratch.path().join("pictures").display()
    );
    let report = bench(&scratch, &line);
    assert!(number(&report, "/results/media/ramdisk/1/contenders/2/rate/median") > 0.0);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("adaptive/best"));
    std::fs::remove_file(page).unwrap();
    let pictures = scratch.path().join("pictures");
    assert!(std::fs::read_dir(&pictures).unwrap().count() > 0);
    std::fs::remove_dir_all(pictures).unwrap();
    let report = bench(
        &scratch,
        "async-checkpoint --modes 1 --threads 2 --medium memory --log 4 --rounds 1 --seconds 0.2",
    );
    assert!(number(&report, "/results/modes/0/space_waits/1") >= 0.0);
    let report = bench(
        &scratch,
        "checkpoint-merge --syncs 5 --weights 50 --throttle model --concurrent 5 --medium memory --rounds 1",
    );
    assert!(number(&report, "/results/weights/0/ratio/median") > 0.0);
    let report =
        bench(&scratch, "lazy-init --scale 0.0005 --wait 0 --medium memory --volume 512M --rounds 1");
    assert!(number(&report, "/results/mkfs_1tib_s") > 0.0);
    assert!(is_empty(scratch.path()));
}

#[test]
fn mounts_and_directories_in_turn() {
    let needs = [
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("losetup"),
        Need::Tool("fuser"),
    ];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let beside = Scratch::new();
    let line = format!(
        "fsmark -t 2 -s 4096 -n 10 --rounds 1 --volume 64M --target mount --target kernel:noatime --target {}/",
        beside.path().display()
    );
    let report = bench(&scratch, &line);
    for n in 0..3 {
        assert!(number(&report, &format!("/results/contenders/{n}/rate/median")) > 0.0);
    }
    for n in 0..2 {
        assert!(number(&report, &format!("/results/contenders/{n}/per_unit/device_bytes")) > 0.0);
        assert!(number(&report, &format!("/results/contenders/{n}/per_unit/transactions")) > 0.0);
    }
    assert!(is_empty(scratch.path()) && is_empty(beside.path()));
}

/// Linux, a library and a mount on one loop device, small fsyncs alone and beside a writer.
#[test]
fn fast_commits_beside_linux() {
    let needs = [
        Need::Root,
        Need::Loop,
        Need::Fuse,
        Need::Kernel("ext4"),
        Need::Tool("losetup"),
        Need::Tool("fuser"),
    ];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let report = bench(
        &scratch,
        "fast-commit --part isolation --profile image --rounds 1 --seconds 0.2 --volume 128M --pause 1",
    );
    for n in 0..4 {
        assert!(number(&report, &format!("/results/isolation/image/{n}/p99_to_linux/median")) > 0.0);
    }
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(2));
    assert!(is_empty(scratch.path()));
}

#[test]
fn mistakes_are_one_line() {
    let lines = [
        "fsmark --target frob",
        "fsmark -S 7",
        "fsmark --medium floppy",
        "fsmark --seconds 0",
        "fsmark --volume big",
        "postmark --size 5",
        "postmark --size 9,5",
        "lazy-init --scale 0",
        "checkpoint-merge --throttle hope",
        "fast-commit --part half",
        "fast-commit --quick --rounds 2",
        "fast-commit --profile floppy",
    ];
    for line in lines {
        let done = run(Command::new(bin()).arg("bench").args(line.split(' ')), Duration::from_secs(60));
        assert_eq!(done.code, Some(1), "{line}: {}", done.output);
        assert_eq!(done.output.trim_end().lines().count(), 1, "{line}: {}", done.output);
    }
    let scratch = Scratch::new();
    let mut command = Command::new(bin());
    command.args(["bench", "fsmark", "--target", "library:frob=1", "--volume", "64M", "--medium", "memory"]);
    let done = run(command.arg("--dir").arg(scratch.path()), Duration::from_secs(60));
    assert!(done.output.contains("frob") && done.code == Some(32), "{}", done.output);
}

/// Growing volumes, recoveries and large volumes at their smallest.
#[test]
fn scale_in_this_process() {
    let scratch = Scratch::new();
    let pictures = scratch.path().join("pictures");
    let line = format!(
        "scale --files 100,1000 --batch 20 --samples 3 --log 4 --area 1 --large 17T --dirs 24 --fsck 0 --svg {}",
        pictures.display()
    );
    let report = bench(&scratch, &line);
    for n in 0..4 {
        for op in ["create", "lookup_warm", "lookup_cold", "unlink", "unlink_old", "list"] {
            assert!(number(&report, &format!("/results/files/{n}/{op}/wall_us/median")) > 0.0);
        }
        assert!(number(&report, &format!("/results/files/{n}/peak")) > 1e6);
        assert!(number(&report, &format!("/results/files/{n}/mount_dirty_ms")) > 0.0);
    }
    assert_eq!(number(&report, "/results/files/1/htree_levels"), 1.0);
    // 800 of 1024 blocks of a log are full; a block of the area for each fsync.
    assert!(number(&report, "/results/recovery/0/blocks") > 500.0);
    assert!(number(&report, "/results/recovery/1/fast_commits") > 100.0);
    assert!(number(&report, "/results/recovery/1/device_ms") > 0.0);
    assert_eq!(number(&report, "/results/large/0/files"), 24.0);
    assert!(number(&report, "/results/large/0/mount_dirty_reads") > 100.0);
    assert!(std::fs::read_dir(&pictures).unwrap().count() >= 7);
    std::fs::remove_dir_all(pictures).unwrap();
    assert!(is_empty(scratch.path()));
}
