//! `extol-bench`: each load and each table at its smallest, in this process; one run of mounts in
//! turn. Those mount with the `extol` command beside it: build the workspace first.

use extol_testkit::{Need, Scratch, require, run, run_ok};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn extol_bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_extol-bench"))
}

/// Runs `extol-bench LINE --dir SCRATCH --json`, which must succeed, and gives its report.
#[track_caller]
fn bench(scratch: &Scratch, line: &str) -> serde_json::Value {
    let mut command = extol_bench();
    command.args(line.split(' ')).arg("--dir").arg(scratch.path()).arg("--json");
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
    let short = "--rounds 1 --seconds 0.1 --volume 256M";
    let report = bench(
        &scratch,
        &format!("fsmark -t 2 -s 4096 -n 20 -S 3 -D 2 -N 5 --medium memory {short}"),
    );
    assert_eq!(report["bench"], "fsmark");
    assert!(number(&report, "/results/contenders/0/rate/median") > 0.0);
    assert!(number(&report, "/results/contenders/0/per_unit/device_bytes") > 0.0);
    let report =
        bench(&scratch, &format!("dbench --clients 2 --medium memory -O fast_commit {short}"));
    assert!(number(&report, "/results/contenders/0/rate/median") > 0.0);
    bench(
        &scratch,
        &format!("postmark --number 20 --transactions 20 --size 500,5000 --bias-read -1 {short}"),
    );
    bench(&scratch, &format!("varmail --threads 2 --files 20 --medium ramdisk {short}"));
    bench(&scratch, &format!("logs -t 2 -n 2 -s 1000 --close --medium ramdisk {short}"));
    let report = bench(
        &scratch,
        &format!("fsync-latency --medium nvme --target library --target library:commit=30 {short}"),
    );
    assert!(number(&report, "/results/contenders/1/ratio/median") > 0.0);
    assert!(is_empty(scratch.path()));
}

/// One thing at a time: names, bytes, places, a tree, a load file.
#[test]
fn single_operations_in_this_process() {
    let scratch = Scratch::new();
    let short = "--rounds 1 --volume 128M --medium memory";
    let line = format!(
        "metadata --threads 2 --files 20 --shared --target library --target library:commit=30 \
            {short}"
    );
    let report = bench(&scratch, &line);
    for (n, phase) in ["create", "create 4 KiB", "stat", "readdir"].into_iter().enumerate() {
        assert_eq!(report["results"]["contenders"][1]["phases"][n]["name"], phase);
        assert!(
            number(&report, &format!("/results/contenders/1/phases/{n}/first_to_this/median"))
                > 0.0
        );
    }
    let report = bench(&scratch, &format!("seq --size 3M --bs 64k --numjobs 2 {short}"));
    assert_eq!(report["results"]["contenders"][0]["phases"][2]["name"], "cold read");
    assert!(number(&report, "/results/contenders/0/phases/2/rate/median") > 0.0);
    let line =
        format!("rand --rw randrw --size 1M --iodepth 2 --number-ios 50 --fdatasync 8 {short}");
    assert!(number(&bench(&scratch, &line), "/results/contenders/0/rate/median") > 0.0);
    bench(&scratch, &format!("untar --files 50 --threads 2 --sync {short}"));
    let loadfile = scratch.path().join("load.txt");
    let text = "Deltree \"\\clients\\client1\" NT_STATUS_OK\n\
        Mkdir \"\\clients\" NT_STATUS_OK\n\
        NTCreateX \"\\clients\\client1\" 0x1 0x2 1 NT_STATUS_OK\n\
        NTCreateX \"\\clients\\client1\" 0x0 0x1 2 NT_STATUS_OK\n\
        NTCreateX \"\\clients\\client1\\A\" 0x40 0x2 3 NT_STATUS_OK\n\
        WriteX 3 0 4096 4096 NT_STATUS_OK\n\
        Close 3 NT_STATUS_OK\n";
    std::fs::write(&loadfile, text).unwrap();
    let line = format!("dbench --clients 2 --decks 2 --loadfile {} {short}", loadfile.display());
    assert_eq!(number(&bench(&scratch, &line), "/results/contenders/0/latency/1/count"), 4.0);
    std::fs::remove_file(loadfile).unwrap();
    assert!(is_empty(scratch.path()));
}

/// The baselines: a FUSE file system that does nothing, and the bare device.
#[test]
fn baselines() {
    let needs = [Need::Root, Need::Loop, Need::Fuse, Need::Tool("losetup"), Need::Tool("fuser")];
    if !require(&needs) {
        return;
    }
    let scratch = Scratch::new();
    let short = "--rounds 1 --volume 128M --target mount";
    let report = bench(
        &scratch,
        &format!("metadata --threads 2 --files 20 --seconds 9 --target noop {short}"),
    );
    for n in 0..2 {
        assert!(number(&report, &format!("/results/contenders/{n}/phases/11/rate/median")) > 0.0);
        assert!(number(&report, &format!("/results/contenders/{n}/phases/0/cpu_us")) >= 0.0);
    }
    let report = bench(&scratch, &format!("seq --size 4M --target raw --target noop {short}"));
    for n in 0..3 {
        assert!(number(&report, &format!("/results/contenders/{n}/phases/2/rate/median")) > 0.0);
    }
    let line = format!(
        "rand --rw randwrite --direct --fdatasync 1 --size 1M --number-ios 20 --target raw {short}"
    );
    let report = bench(&scratch, &line);
    assert!(number(&report, "/results/contenders/0/per_unit/flushes") >= 1.0);
    let report =
        bench(&scratch, "speed --part data-library --medium image --size 4M --volume 128M");
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(2), "{:#}", report["goals"]);
    let mut command = extol_bench();
    command.args(["fsmark", "--target", "raw", "-D", "1", "--dir"]).arg(scratch.path());
    let done = run(&mut command, Duration::from_secs(60));
    assert!(
        done.output.contains("the raw device has no directories") && done.code == Some(32),
        "{}",
        done.output
    );
    assert!(is_empty(scratch.path()));
}

/// Two builds that are one and the same, beside fuse2fs if it is there.
#[test]
fn the_guard_has_a_row_for_each_load() {
    if !require(&[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let scratch = Scratch::new();
    let extol = Path::new(env!("CARGO_BIN_EXE_extol-bench")).with_file_name("extol");
    let line = format!(
        "guard --rounds 1 --seconds 0.1 --files 20 --volume 256M --against {}",
        extol.to_str().expect("a plain path")
    );
    let report = bench(&scratch, &line);
    let rows = report["tables"][0]["rows"].as_array().expect("a table");
    assert_eq!(rows.len(), 7, "{rows:#?}");
    assert_eq!(report["goals"].as_array().map(Vec::len), Some(7), "{:#}", report["goals"]);
    let notes = report["notes"].as_array().expect("remarks");
    assert!(notes.iter().any(|n| n.as_str().is_some_and(|n| n.contains("fell"))), "{notes:#?}");
    assert!(is_empty(scratch.path()));
}

/// Linux shares processors out by session: the baseline's server must have one of its own, as that
/// of a mount of a volume has.
#[test]
fn the_baseline_leaves_the_session() {
    if !require(&[Need::Root, Need::Fuse]) {
        return;
    }
    let scratch = Scratch::new();
    let mut command = extol_bench();
    command.args(["noop", "--until-eof"]).arg(scratch.path().join("mnt"));
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success() && line.starts_with("mount is ready"), "{line}");
    // Behind the name: state, parent, group, session.
    let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3));
    assert_eq!(session, Some(&*server.id().to_string()), "{stat}");
    assert!(is_empty(scratch.path()));
}

#[test]
fn tables_in_this_process() {
    let scratch = Scratch::new();
    let page = scratch.path().join("page.html");
    let line = format!(
        "fsync-batching --profile ramdisk --threads 1,2 --rounds 1 --seconds 0.05 --html {} --svg \
            {}",
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
        "checkpoint-merge --syncs 5 --weights 50 --throttle model --concurrent 5 --medium memory \
            --rounds 1",
    );
    assert!(number(&report, "/results/weights/0/ratio/median") > 0.0);
    let report = bench(
        &scratch,
        "lazy-init --scale 0.0005 --wait 0 --medium memory --volume 512M --rounds 1",
    );
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
    // The other build is the same one: what counts is that both take part.
    let extol = extol_testkit::extol_path();
    let line = format!(
        "fsmark -t 2 -s 4096 -n 10 --rounds 1 --volume 64M --target mount --target kernel:noatime \
         --target {}/ --extol-before {}",
        beside.path().display(),
        extol.display()
    );
    let report = bench(&scratch, &line);
    let names = |n: usize| report["results"]["contenders"][n]["name"].as_str().unwrap_or_default();
    assert_eq!([names(0), names(1), names(2)], ["mount", "before", "kernel:noatime"]);
    for n in 0..4 {
        assert!(number(&report, &format!("/results/contenders/{n}/rate/median")) > 0.0);
    }
    for n in 0..3 {
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
        "fast-commit --part isolation --profile image --rounds 1 --seconds 0.2 --volume 256M \
            --pause 1",
    );
    for n in 0..4 {
        assert!(
            number(&report, &format!("/results/isolation/image/{n}/p99_to_linux/median")) > 0.0
        );
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
        "seq --target raw:ro",
        "seq --size 0",
        "seq --bs 2M --size 1M",
        "rand --direct --bs 1000",
        "rand --rw sideways",
        "speed --part half",
        "fsmark --target before",
        "fsmark --extol /none/extol",
        "scale --target before",
        "speed --medium floppy",
        "guard --medium floppy",
        "guard --against /none/extol",
    ];
    for line in lines {
        let done = run(extol_bench().args(line.split(' ')), Duration::from_secs(60));
        assert_eq!(done.code, Some(1), "{line}: {}", done.output);
        assert_eq!(done.output.trim_end().lines().count(), 1, "{line}: {}", done.output);
    }
    let scratch = Scratch::new();
    let mut command = extol_bench();
    command.args(["fsmark", "--target", "library:frob=1", "--volume", "64M", "--medium", "memory"]);
    let done = run(command.arg("--dir").arg(scratch.path()), Duration::from_secs(60));
    assert!(done.output.contains("frob") && done.code == Some(32), "{}", done.output);
}

/// A load is refused before it starts where the volume has no room, or the machine below it; what
/// is not refused ends.
#[test]
fn loads_without_room() {
    let scratch = Scratch::new();
    let done = |line: &str| {
        let mut command = extol_bench();
        command.args(line.split(' ')).arg("--dir").arg(scratch.path());
        run(&mut command, Duration::from_secs(120))
    };
    let short = "--rounds 1 --seconds 0.3 --medium memory";
    for load in ["varmail", "dbench --clients 20", "logs -n 50"] {
        let small = done(&format!("{load} --volume 16M {short}"));
        assert_eq!(small.code, Some(32), "{load}: {}", small.output);
        assert_eq!(small.output.trim_end().lines().count(), 1, "{load}: {}", small.output);
        let size = small.output.trim_end().rsplit_once("give --volume ");
        let size = size.unwrap_or_else(|| panic!("{load}: {}", small.output)).1;
        let enough = done(&format!("{load} --volume {size} {short}"));
        assert!(enough.success(), "{load} on {size}: {}", enough.output);
    }
    // Small logs are begun anew before they fill the volume.
    let logs = done(&format!("logs --volume 16M --appends 100 {short}"));
    assert!(logs.success(), "{}", logs.output);
    // Nothing here has so much room.
    for (medium, advice) in
        [("image", "give a --dir with more room"), ("memory", "give --medium image"), ("sata", "")]
    {
        let line = format!("seq --volume 15T --size 12T --rounds 1 --medium {medium}");
        let refused = done(&line);
        assert_eq!(refused.code, Some(32), "{medium}: {}", refused.output);
        let told = refused.output.trim_end();
        assert!(told.contains("MiB free: give ") && told.contains(advice), "{medium}: {told}");
        assert_eq!(told.lines().count(), 1, "{medium}: {told}");
    }
    assert!(is_empty(scratch.path()));
}

/// Images in tmpfs: what is free there counts, not the size of a sparse volume.
#[test]
fn a_small_tmpfs_is_not_filled() {
    if !require(&[Need::Root]) {
        return;
    }
    /// Unmounted when dropped.
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("tmpfs");
    run_ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64M", "tmpfs"]).arg(&dir));
    let mounted = Mounted(dir);
    let done = |line: &str| {
        let mut command = extol_bench();
        command.args(line.split(' ')).arg("--dir").arg(&mounted.0);
        run(&mut command, Duration::from_secs(120))
    };
    for line in [
        "seq --size 100M --volume 1G --rounds 1",
        "untar --files 5000 --volume 1G --rounds 1",
        "scale --part files --files 1000000",
    ] {
        let refused = done(line);
        let told = refused.output.trim_end();
        assert_eq!(refused.code, Some(32), "{line}: {told}");
        assert!(told.contains("tmpfs (memory) has 6") && told.contains("give a --dir"), "{told}");
        assert_eq!(told.lines().count(), 1, "{line}: {told}");
        assert!(is_empty(&mounted.0), "{line}");
    }
    let fits = done("seq --size 8M --volume 1G --rounds 1");
    assert!(fits.success(), "{}", fits.output);
}

#[test]
fn images_of_directories() {
    if !require(&[Need::Root, Need::Loop]) {
        return;
    }
    let scratch = Scratch::new();
    let line = "image --part 200 --rounds 1 --source tree,dirs,empty,large";
    let report = bench(&scratch, line);
    let rows = report["results"].as_array().expect("rows");
    assert_eq!(rows.len(), 4 * 4, "{report:#}");
    for row in rows {
        assert!(row["seconds"]["median"].as_f64() > Some(0.0), "{row}");
        assert!(row["allocated"].as_u64() > Some(0), "{row}");
    }
    // Memory grows with the number of files alone, however fast this machine is.
    let goals = report["goals"].as_array().expect("goals");
    let memory = goals.iter().filter(|goal| goal["what"].as_str().unwrap().contains("memory"));
    let met: Vec<_> = memory.map(|goal| goal["met"].as_bool()).collect();
    assert_eq!(met, [Some(true); 4], "{goals:#?}");
    assert!(is_empty(scratch.path()));
}

/// Growing volumes, recoveries and large volumes at their smallest.
#[test]
fn scale_in_this_process() {
    let scratch = Scratch::new();
    let pictures = scratch.path().join("pictures");
    let line = format!(
        "scale --files 100,1000 --batch 20 --samples 3 --log 4 --area 1 --large 17T --dirs 24 \
            --fsck 0 --svg {}",
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

/// The same through mounts: the processor time of daemons counts, memory has its bound, goals are
/// for Extol alone.
#[test]
fn scale_through_mounts() {
    if !require(&[Need::Root, Need::Fuse, Need::Loop]) {
        return;
    }
    let scratch = Scratch::new();
    let line = "scale --part files,recovery --log 4 --area 1 --layout one --files 200,2000 --batch \
        20 --samples 3 --target mount --target kernel";
    let report = bench(&scratch, line);
    for n in 0..4 {
        let of = |field: &str| number(&report, &format!("/results/files/{n}/{field}"));
        for op in ["create", "lookup_warm", "lookup_cold", "unlink", "unlink_old", "list"] {
            assert!(of(&format!("{op}/wall_us/median")) > 0.0 && of(&format!("{op}/cpu_us")) > 0.0);
        }
        assert!(of("mount_ms") > 0.0);
        // Nothing of the inodes is in memory after a mount.
        assert!(of("lookup_cold/reads") > 0.0, "cold look-ups that read nothing");
        assert_eq!(
            report.pointer(&format!("/results/files/{n}/bound")).unwrap().is_number(),
            n < 2
        );
    }
    assert!(number(&report, "/results/files/1/peak") < number(&report, "/results/files/1/bound"));
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(
        (goals.len(), goals.iter().any(|g| g["what"].as_str().unwrap().starts_with("kernel"))),
        (4, false)
    );
    let titles: Vec<&str> =
        report["tables"].as_array().unwrap().iter().filter_map(|t| t["title"].as_str()).collect();
    assert_eq!(titles.iter().filter(|t| t.contains("side by side")).count(), 2, "{titles:?}");
    assert!(is_empty(scratch.path()));
}
