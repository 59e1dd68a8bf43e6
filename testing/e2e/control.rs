//! Control and visibility of a live mount: remount, stat, metrics, top.

use extol_testkit::{
    ExtolMount, Image, Need, Scratch, e2fsck, extol, extol_path, metric_samples, metrics_of,
    require, run, run_extol, run_ok, sync_volume, text, tool,
};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NEEDS: [Need; 3] = [Need::Root, Need::Fuse, Need::Tool("mke2fs")];
const LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
fn remount(dir: &Path, list: &str) {
    let done = run_extol(&["remount", "-o", list, text(dir)]);
    assert!(done.success(), "remount {list}: {}", done.output);
}

#[track_caller]
fn stats(dir: &Path) -> serde_json::Value {
    let done = run_extol(&["stat", "--json", text(dir)]);
    assert!(done.success(), "{}", done.output);
    serde_json::from_str(&done.output).unwrap_or_else(|e| panic!("{e}: {}", done.output))
}

#[track_caller]
fn shown(dir: &Path) -> String {
    stats(dir)["mount_options"].as_str().expect("mount_options").to_owned()
}

/// The kernel's options of the mount on `dir`.
fn kernel_options(dir: &Path) -> String {
    let table = std::fs::read("/proc/self/mountinfo").unwrap();
    let table = String::from_utf8_lossy(&table);
    let line = table
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(4) == Some(text(dir)))
        .expect("mounted");
    line.split(' ').nth(5).unwrap().to_owned()
}

struct Rig {
    scratch: Scratch,
    image: Image,
    mount: ExtolMount,
}

fn rig(options: &[&str]) -> Rig {
    rig_with(&[], options)
}

fn rig_with(mke2fs: &[&str], options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    let image =
        Image::mke2fs(scratch.path(), "a.img", 64 << 20, &[&["-t", "ext4"], mke2fs].concat());
    let mount = ExtolMount::start(&image.path, &scratch.dir("mnt"), options);
    Rig { scratch, image, mount }
}

/// Each option on and off while threads write and sync.
#[test]
fn every_option_under_load() {
    if !require(&NEEDS) {
        return;
    }
    let Rig { scratch: _scratch, image, mount } = rig(&[]);
    let dir = mount.path().to_owned();
    let changes = [
        ("async_checkpoint=30", "async_checkpoint=30", "noasync_checkpoint"),
        ("async_checkpoint", "async_checkpoint=50", "async_checkpoint=0"),
        ("checkpoint=nomerge", "checkpoint=nomerge", "checkpoint=merge"),
        ("min_batch_time=5000", "min_batch_time=5000", "min_batch_time=0"),
        ("commit=1,nobarrier", "nobarrier,commit=1", "commit=5,barrier"),
        ("max_batch_time=0", "max_batch_time=0", "max_batch_time=15000"),
        ("noatime", "noatime", "relatime"),
        ("discard,errors=remount-ro", "errors=remount-ro,discard", "nodiscard,errors=continue"),
        ("dirty_mb=1,lazytime", "lazytime,dirty_mb=1", "dirty_mb=64,nolazytime"),
    ];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for t in 0..2 {
            let (dir, stop) = (&dir, &stop);
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let path = dir.join(format!("f{t}-{}", i % 50));
                    std::fs::write(&path, vec![i as u8; 5000]).unwrap();
                    std::fs::File::open(&path).unwrap().sync_all().unwrap();
                }
            });
        }
        // The writers must end, also when an assertion fails.
        let work = std::panic::AssertUnwindSafe(|| {
            let before = shown(&dir);
            for (on, words, off) in changes {
                remount(&dir, on);
                let now = shown(&dir);
                for word in words.split(',') {
                    assert!(now.split(',').any(|w| w == word), "{on}: {now}");
                }
                remount(&dir, off);
                assert_eq!(shown(&dir), before, "{off}");
            }
            for bad in
                ["commit=9,frob", "noatime,data=journal", "async_checkpoint=100", "journal_path=/x"]
            {
                let kernel = kernel_options(&dir);
                let done = run_extol(&["remount", "-o", bad, text(&dir)]);
                assert!(
                    !done.success() && done.output.trim().lines().count() == 1,
                    "{bad}: {}",
                    done.output
                );
                assert_eq!(shown(&dir), before, "{bad}");
                assert_eq!(kernel_options(&dir), kernel, "{bad}");
            }
        });
        let outcome = std::panic::catch_unwind(work);
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    mount.unmount();
    e2fsck(&image).assert_clean("after remounts under load");
}

/// Kernel and daemon go read-only together, or not at all.
#[test]
fn read_only_and_back() {
    if !require(&NEEDS) {
        return;
    }
    let Rig { scratch, image, mount } = rig(&[]);
    let dir = mount.path().to_owned();
    std::fs::write(dir.join("a"), "before").unwrap();
    let open = std::fs::File::options().append(true).open(dir.join("a")).unwrap();
    let done = run_extol(&["remount", "-o", "ro,commit=9", text(&dir)]);
    assert!(done.output.contains("open for writing"), "{}", done.output);
    assert_eq!(shown(&dir), "rw,relatime", "a refusal changes nothing");
    drop(open);

    remount(&dir, "ro,nosuid");
    assert!(kernel_options(&dir).starts_with("ro,nosuid"), "{}", kernel_options(&dir));
    assert_eq!(shown(&dir), "ro,relatime");
    assert_eq!(std::fs::write(dir.join("b"), "x").unwrap_err().raw_os_error(), Some(30));
    // It is a clean volume by now, though the daemon still has it.
    e2fsck(&image).assert_clean("while remounted read-only");
    // Options can change on a read-only mount as well.
    remount(&dir, "commit=9");
    assert_eq!(shown(&dir), "ro,relatime,commit=9");

    // As mount(8) calls its helper: with what the kernel shows, and what the user wants.
    let helper = scratch.path().join("mount.fuse.extol");
    std::os::unix::fs::symlink(extol_path(), &helper).unwrap();
    let list = "ro,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount,noatime,commit=7";
    let mut mount8 = Command::new(&helper);
    mount8.args([text(&image.path), text(&dir), "-o", list, "-t", "fuse.extol"]);
    let done = run(&mut mount8, LIMIT);
    assert!(done.success(), "{}", done.output);
    assert_eq!(kernel_options(&dir), "ro,nosuid,nodev,noatime");
    assert_eq!(shown(&dir), "ro,noatime,commit=7");

    remount(&dir, "rw,suid");
    assert!(!kernel_options(&dir).contains("nosuid") && kernel_options(&dir).starts_with("rw"));
    std::fs::write(dir.join("b"), "after").unwrap();
    mount.unmount();
    e2fsck(&image).assert_clean("after ro and rw");
}

#[test]
fn a_refusal_puts_the_flag_of_the_kernel_back() {
    if !require(&NEEDS) {
        return;
    }
    let Rig { scratch, mount, image } = rig(&["ro"]);
    let dir = mount.path().to_owned();
    let reader = ExtolMount::start(&image.path, &scratch.dir("reader"), &["ro"]);
    let done = run_extol(&["remount", "-o", "rw", text(&dir)]);
    assert!(done.output.contains("open in another process"), "{}", done.output);
    reader.unmount();
    assert!(
        kernel_options(&dir).starts_with("ro"),
        "the kernel's flag is put back: {}",
        kernel_options(&dir)
    );
    let done = run_extol(&["remount", "-o", "commit=3", "/proc"]);
    assert!(!done.success() && done.output.contains("not a mount of extol"), "{}", done.output);
    mount.unmount();
}

/// In a real terminal: it draws, obeys its keys, and leaves the terminal as it was.
#[test]
fn top_in_a_terminal() {
    if !require(&[Need::Root, Need::Fuse, Need::Tool("mke2fs"), Need::Tool("tmux")]) {
        return;
    }
    let Rig { scratch, mount, .. } = rig(&[]);
    let socket = scratch.path().join("tmux");
    let tmux = |args: &[&str]| {
        run(extol_testkit::tool("tmux").arg("-S").arg(&socket).args(args), LIMIT).output
    };
    let command = format!(
        "{} top -i 0.2 {}; echo ended $?; sleep 600",
        text(extol_path()),
        text(mount.path())
    );
    tmux(&["new-session", "-d", "-x", "110", "-y", "32", &command]);
    let wait = |what: &str| {
        let start = std::time::Instant::now();
        while !tmux(&["capture-pane", "-p"]).contains(what) {
            assert!(start.elapsed() < LIMIT, "no {what}:\n{}", tmux(&["capture-pane", "-p"]));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait("q quit");
        tmux(&["send-keys", "p"]);
        wait("PAUSED");
        tmux(&["send-keys", "q"]);
        wait("ended 0");
        assert!(!tmux(&["capture-pane", "-p"]).contains("q quit"), "the screen is given back");
    }));
    tmux(&["kill-server"]);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    mount.unmount();
}

/// The page is what Prometheus reads: every sample has its HELP and TYPE, buckets grow and end with
/// the count.
#[test]
fn metrics_are_well_formed() {
    if !require(&NEEDS) {
        return;
    }
    let Rig { scratch: _scratch, mount, .. } = rig(&["x-extol.metrics=:0"]);
    let dir = mount.path().to_owned();
    std::fs::write(dir.join("a"), "x").unwrap();
    std::fs::File::open(dir.join("a")).unwrap().sync_all().unwrap();
    let said = mount.log();
    let address = said
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .expect("a printed address");
    let (head, body) = metrics_of(address);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("version=0.0.4"), "{head}");
    let samples = metric_samples(&body);
    let value = |name: &str| {
        samples
            .iter()
            .find(|(sample, _)| sample == name)
            .unwrap_or_else(|| panic!("no {name}:\n{body}"))
            .1
    };
    assert!(value("extol_transactions_total") >= 1.0);
    assert!(value("extol_sync_wait_seconds_count") >= 0.0 && value("extol_log_blocks") > 0.0);
    assert!(body.contains("options=\"rw,relatime\""), "{body}");

    // A second mount cannot have the same port, and says so in one line.
    let other = Scratch::new();
    let image = Image::mke2fs(other.path(), "b.img", 16 << 20, &["-t", "ext4"]);
    let done =
        run_extol(&["mount", "--metrics", address, text(&image.path), text(&other.dir("mnt"))]);
    assert!(!done.success() && done.output.contains("in use"), "{}", done.output);
    assert_eq!(done.output.trim().lines().count(), 1, "{}", done.output);

    // A client that asks and does not read delays no other.
    let _idle: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    mount.unmount();
}

/// Writes a new file and makes it durable.
fn durable(path: &Path) {
    std::fs::write(path, "x").unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

/// The counters of fast commits, the same ones on the page, for programs and as Linux shows them.
#[test]
fn fast_commits_are_counted() {
    if !require(&NEEDS) {
        return;
    }
    let options = ["commit=300", "x-extol.metrics=:0"];
    let Rig { scratch: _scratch, mount, .. } = rig_with(&["-O", "fast_commit"], &options);
    let dir = mount.path().to_owned();
    // Behind a mount the first one is a full commit, for want of a base.
    (0..4).for_each(|n| durable(&dir.join(format!("f{n}"))));
    std::os::unix::fs::symlink("f0", dir.join("link")).unwrap();
    sync_volume(&dir).unwrap();
    remount(&dir, "nofast_commit");
    durable(&dir.join("slow"));
    let fast = &stats(&dir)["journal"]["fast_commit"];
    let number = |name: &str| fast[name].as_u64().unwrap_or_else(|| panic!("{name}: {fast}"));
    assert_eq!(fast["enabled"], false);
    assert_eq!(
        (number("commits"), number("blocks"), number("requests"), number("heads")),
        (3, 4, 3, 1),
        "an empty one in front"
    );
    let shown = run_extol(&["stat", "--all", text(&dir)]).output;
    let full = number("ineligible") + number("failed");
    let lines = [
        "fc stats:\n3 commits\n",
        &format!("\n{full} ineligible\n4 numblks\n"),
        "us avg_commit_time\nIneligible reasons:\n\"Extended attributes changed\":\t0\n",
        "off, 3 fast commits for 3 requests",
    ];
    for line in lines {
        assert!(shown.contains(line), "{line:?} is missing:\n{shown}");
    }
    let said = mount.log();
    let address =
        said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let (_, body) = metrics_of(address);
    let samples = metric_samples(&body);
    let value = |name: &str| {
        let found = samples.iter().find(|(sample, _)| sample == name);
        found.unwrap_or_else(|| panic!("no {name}:\n{body}")).1 as u64
    };
    for name in
        ["commits", "requests", "ineligible", "failed", "skipped", "blocks", "bytes", "heads"]
    {
        let metric = match name {
            "commits" => "extol_fast_commits_total".to_owned(),
            _ => format!("extol_fast_commit_{name}_total"),
        };
        assert_eq!(value(&metric), number(name), "{metric}");
    }
    assert_eq!(value("extol_fast_commit_enabled"), 0);
    for (reason, count) in fast["reasons"].as_object().expect("reasons") {
        let sample = format!("extol_fast_commit_reasons_total{{reason=\"{reason}\"}}");
        assert_eq!(Some(value(&sample)), count.as_u64(), "{sample}");
    }
    mount.unmount();
}

/// What `extol log` says of fast commits: those that count, one that was never durable, and
/// leftovers.
#[test]
fn the_log_tells_which_fast_commits_count() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    let Rig { scratch: _scratch, image, mount } = rig_with(&["-O", "fast_commit"], &["commit=300"]);
    let dir = mount.path().to_owned();
    (0..4).for_each(|n| durable(&dir.join(format!("f{n}"))));
    let copy = image.copy_as("copy.img");
    let results = || -> Vec<String> {
        let done = run_extol(&["log", "--json", text(&copy.path)]);
        let log: serde_json::Value =
            serde_json::from_str(&done.output).unwrap_or_else(|e| panic!("{e}"));
        let commits = log["fast_commits"].as_array().expect("fast commits");
        commits.iter().map(|commit| commit["outcome"].as_str().unwrap().to_owned()).collect()
    };
    let said = || run_extol(&["log", text(&copy.path)]).output;
    assert_eq!(results(), ["valid"; 4], "an empty one in front");
    assert_eq!(said().matches("4 records, valid: recovery applies it").count(), 3, "{}", said());
    assert!(said().contains("create \"f3\" in 2: inode"), "{}", said());

    // A bit of the last one.
    let log = run_extol(&["log", "--json", text(&copy.path)]).output;
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let block = log["fast_commits"][3]["block"].as_u64().unwrap();
    // (-c: of a volume that is not recovered it shall not look at the bitmaps. It greets, too.)
    let request = format!("bmap <8> {block}");
    let home = run_ok(tool("debugfs").args(["-c", "-R", &request]).arg(&copy.path));
    let home = home.lines().find_map(|line| line.trim().parse::<u64>().ok());
    let home = home.expect("a block");
    let block_size = log["superblock"]["block_size"].as_u64().unwrap();
    copy.flip_bit(home * block_size + 60, 3);
    assert_eq!(results(), ["valid", "valid", "valid", "torn"]);
    assert!(said().contains("torn: it was never durable"), "{}", said());

    // A full commit makes them all void; the first is gone as well.
    assert!(run_extol(&["sync", text(&dir)]).success());
    let copy = image.copy_as("copy.img");
    assert_eq!(results(), ["void"; 3]);
    assert!(said().contains("void: a leftover"), "{}", said());
    mount.unmount();
    assert!(!run_extol(&["log", text(&image.path)]).output.contains("valid"), "closed in order");
    copy.remove();
}

#[test]
fn stat_and_top_show_a_mount() {
    if !require(&NEEDS) {
        return;
    }
    let Rig { scratch: _scratch, mount, .. } = rig(&["commit=9"]);
    let dir = mount.path().to_owned();
    std::fs::write(dir.join("a"), "x").unwrap();
    std::fs::File::open(dir.join("a")).unwrap().sync_all().unwrap();
    let summary = run_extol(&["stat", text(&dir)]).output;
    assert!(summary.starts_with(&format!("{}: read-write\n", text(&dir))), "{summary}");
    assert!(summary.lines().count() <= 24, "{summary}");
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
    let shown = run_extol(&["stat", "--all", text(&dir)]).output;
    assert!(shown.contains(" transactions (") && shown.contains("average: \n"), "{shown}");
    for part in
        ["rw,relatime,commit=9", "durable request", "lazy init", "space waits", "async checkpoint"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = run_extol(&["stat", "--json", text(&dir)]).output;
    assert!(json.len() < 48 << 10, "near the limit of an attribute: {}", json.len());
    let frame = run_extol(&["top", "--once", "--interval", "0.1", text(&dir)]).output;
    assert!(frame.contains("commits/s") && frame.contains("rw,relatime,commit=9"), "{frame}");
    let done = run_extol(&["top", text(&dir)]);
    assert!(!done.success() && done.output.contains("needs a terminal"), "{}", done.output);

    // --watch goes on until it is interrupted.
    let mut watch = extol()
        .args(["stat", "--watch", "0.1", text(&dir)])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let rates = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("per second: "));
    assert!(rates.is_some_and(|line| line.contains("commits")));
    let pid = rustix::process::Pid::from_child(&watch);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    assert_eq!(watch.wait().unwrap().code(), Some(130));
    drop(lines);
    mount.unmount();
}
