//! Everything works in the sandbox.

use super::*;

#[test]
fn everything_works_in_it() {
    if !require(&NEEDS) {
        return;
    }
    for transport in transports() {
        let scratch = Scratch::new();
        let (image, dir) = (image(&scratch), scratch.dir("mnt"));
        let mount = ExtolMount::start(&image.path, &dir, &[transport, "x-extol.metrics=0"]);
        let log = mount.log();
        load(&dir);
        for list in [
            "commit=1,nobarrier,noatime",
            "commit=5,barrier,relatime",
            "async_checkpoint=30",
            "noasync_checkpoint",
            "checkpoint=nomerge",
            "checkpoint=merge",
            "ckpt_thread_ioprio=rt:2,journal_ioprio=1",
            "ckpt_thread_ioprio=be:3,journal_ioprio=3",
            "max_batch_time=0",
            "max_batch_time=15000",
            "fua=always",
            "nofast_commit",
            "fast_commit,fua=auto",
            "discard,errors=remount-ro",
            "nodiscard,dirty_mb=2,lazytime",
            "noinit_itable",
            "init_itable=0,nosuid,nodev,noexec",
            "ro",
            "rw,suid,dev,exec",
        ] {
            extol_ok(&["remount", "-o", list, text(&dir)]);
            if list != "ro" {
                std::fs::write(dir.join("now"), list).unwrap();
                File::open(dir.join("now")).unwrap().sync_all().unwrap();
            }
        }
        extol_ok(&["sync", text(&dir)]);
        extol_ok(&["checkpoint", text(&dir)]);
        extol_ok(&["checkpoint", "--discard", text(&dir)]);
        extol_ok(&["freeze", text(&dir)]);
        e2fsck(&image.copy_as("frozen.img")).assert_clean("frozen");
        extol_ok(&["thaw", text(&dir)]);
        extol_ok(&["top", "--once", text(&dir)]);
        load(&dir);
        let file =
            File::options().write(true).create(true).truncate(false).open(dir.join("big")).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 5 << 20).unwrap();
        let holes = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, holes, 4096, 1 << 20).unwrap();
        drop(file);
        let url =
            log.split_whitespace().find(|word| word.starts_with("http://")).expect("an address");
        let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
        let mut page = String::new();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("extol_info"), "{page}");
        assert_confined(mount.pid().unwrap(), kept());
        // In use: the first signal takes it out of sight, the last close ends it.
        let open = File::open(dir.join("now")).unwrap();
        let pid = mount.pid().unwrap();
        signal(pid, Signal::TERM);
        wait_until("the mount to be out of sight", || mounted_type(&dir).is_none());
        assert!(is_running(pid));
        drop(open);
        mount.ended();
        e2fsck(&image).assert_clean(transport);
    }
}

/// On a disk, with an external journal; and what a broken disk leaves behind is still told.
#[test]
fn disks_and_external_journals() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let image =
        Image::mke2fs_external(scratch.path(), "x.img", 64 << 20, 16 << 20, 4096, &["-t", "ext4"]);
    let journal = image.journal.clone().expect("a journal");
    let option = format!("journal_path={}", journal.display());
    let mount = ExtolMount::start(&image.path, &dir, &[&option]);
    load(&dir);
    extol_ok(&["checkpoint", text(&dir)]);
    assert_confined(mount.pid().unwrap(), kept());
    mount.terminate(Signal::INT);
    let done = run_extol(&[
        "mount",
        "-f",
        "-o",
        "journal_path=/no/journal",
        text(&image.path),
        text(&dir),
    ]);
    assert!(done.code == Some(32) && done.output.trim().lines().count() == 1, "{}", done.output);

    let plain = self::image(&scratch);
    let device = LoopDevice::attach(&plain.path);
    let mount = ExtolMount::start(device.path(), &dir, &["discard"]);
    load(&dir);
    extol_ok(&["remount", "-o", "nodiscard", text(&dir)]);
    extol_ok(&["remount", "-o", "discard", text(&dir)]);
    load(&dir);
    mount.unmount();
    drop(device);
    e2fsck(&plain).assert_clean("a loop device");
}

/// What was mounted read-only is opened again for writing: an image, a disk (`fuseblk`, whose claim
/// the kernel has), and an external journal.
#[test]
fn read_only_becomes_writable() {
    if !require(&[&NEEDS[..], &[Need::Loop]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let rise = |source: &Path, options: &[&str], kind: &str| {
        let mount = ExtolMount::start(source, &dir, &[&["ro"], options].concat());
        assert_eq!(mounted_type(&dir).as_deref(), Some(kind));
        extol_ok(&["remount", "-o", "rw", text(&dir)]);
        load(&dir);
        assert_confined(mount.pid().unwrap(), kept());
        mount.terminate(Signal::TERM);
    };
    let plain = self::image(&scratch);
    rise(&plain.path, &[], "fuse.extol");
    let device = LoopDevice::attach(&plain.path);
    rise(device.path(), &[], "fuseblk.extol");
    drop(device);
    e2fsck(&plain).assert_clean("an image and a disk");
    let image =
        Image::mke2fs_external(scratch.path(), "x.img", 64 << 20, 16 << 20, 4096, &["-t", "ext4"]);
    let option = format!("journal_path={}", image.journal.as_ref().expect("a journal").display());
    rise(&image.path, &[&option], "fuse.extol");
    e2fsck(&image).assert_clean("an external journal");
}

/// What is mounted over the mount later is not taken off in its place, neither by a signal nor by
/// one that does not wait.
#[test]
fn what_is_mounted_over_it_stays() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let mut command = extol();
    command.args(["mount", "-f", "-v"]).arg(&image.path).arg(&dir);
    let mount = ExtolMount::spawn(command, &dir).unwrap();
    // Before it says so it gives up at a signal instead.
    wait_until("the end of the start", || mount.log().contains("is mounted on"));
    let pid = mount.pid().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("over", &dir, "tmpfs", flags, None).unwrap();
    signal(pid, Signal::TERM);
    wait_until("a word", || mount.log().contains("is being unmounted already"));
    assert!(is_running(pid));
    // (Within a second it would be the same one.)
    std::thread::sleep(Duration::from_millis(1200));
    signal(pid, Signal::TERM);
    wait_until("the daemon's end", || !is_running(pid));
    let there = mounted_type(&dir);
    let _ = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH);
    assert_eq!(there.as_deref(), Some("tmpfs"));
    drop(mount);
    e2fsck(&image).assert_clean("below another mount");
}

/// While requests wait for a thaw, others of the same processors go on, without another helper.
#[test]
fn queues_are_served_while_requests_wait_for_a_thaw() {
    if !require(&NEEDS) || !offers_io_uring() {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let mount = ExtolMount::start(&image.path, &dir, &["io_uring"]);
    for i in 0..8 {
        std::fs::create_dir(dir.join(format!("d{i}"))).unwrap();
    }
    let (pid, monitor) = processes(&dir);
    let monitor = monitor.unwrap();
    extol_ok(&["freeze", text(&dir)]);
    std::thread::scope(|scope| {
        for i in 0..8 {
            let dir = &dir;
            scope.spawn(move || {
                std::fs::write(dir.join(format!("d{i}/file")), "after the thaw").unwrap()
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..20 {
            extol_ok(&["stat", "--json", text(&dir)]);
        }
        extol_ok(&["thaw", text(&dir)]);
    });
    assert_eq!(children(pid), [monitor], "no other helper");
    mount.unmount();
    e2fsck(&image).assert_clean("after a thaw");
}

#[test]
fn daemon_and_monitor_do_not_outlive_each_other_badly() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let mut mount = ExtolMount::start(&image.path, &dir, &[]);
    let (_, monitor) = processes(&dir);
    let monitor = monitor.unwrap();
    // Signals that go to the whole group are for the daemon.
    for end in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal(monitor, end);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_running(monitor));
    mount.kill9();
    wait_until("the monitor's end", || !is_running(monitor));

    // Without it the daemon still closes the volume.
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    std::fs::write(dir.join("a"), "kept").unwrap();
    extol_ok(&["sync", text(&dir)]);
    let (pid, monitor) = processes(&dir);
    signal(monitor.unwrap(), Signal::KILL);
    signal(pid, Signal::TERM);
    wait_until("the daemon's end", || !is_running(pid));
    assert!(mount.log().contains("monitor is gone"), "{}", mount.log());
    drop(mount);
    e2fsck(&image).assert_clean("without an monitor");
}

/// Failures before the mount stands leave neither it nor processes.
#[test]
fn a_refused_volume_leaves_nothing() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let wrong = Image::sparse(scratch.join("zero.img"), 1 << 20);
    let Err(MountFailed { code, output }) = ExtolMount::try_start(&wrong.path, &dir, &[]) else {
        panic!("mounted zeroes");
    };
    assert_eq!((code, output.trim().lines().count()), (Some(32), 1), "{output}");
    assert_eq!(mounted_type(&dir), None);
}

#[test]
fn what_is_not_trusted_is_checked_and_read_only() {
    if !require(&[&NEEDS[..], &[Need::Tool("debugfs")]].concat()) {
        return;
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.dir("mnt"));
    let before = std::fs::read(&image.path).unwrap();
    let mount = ExtolMount::start(&image.path, &dir, &["untrusted,rw,suid,dev,exec"]);
    let table = std::fs::read("/proc/self/mountinfo").unwrap();
    let table = String::from_utf8_lossy(&table);
    let line =
        table.lines().find(|line| line.split(' ').nth(4) == Some(text(&dir))).expect("mounted");
    let options = line.split(' ').nth(5).unwrap();
    for word in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(options.split(',').any(|option| option == word), "{options}");
    }
    assert_eq!(std::fs::write(dir.join("a"), "x").unwrap_err().raw_os_error(), Some(30));
    assert!(!run_extol(&["remount", "-o", "rw", text(&dir)]).success());
    mount.unmount();
    assert!(before == std::fs::read(&image.path).unwrap(), "it must not be changed");

    // An inode in use that the bitmap does not know of: mounted if trusted.
    let damaged = image.copy_as("damaged.img");
    run_ok(tool("debugfs").args(["-w", "-R", "freei <11>"]).arg(&damaged.path));
    ExtolMount::start(&damaged.path, &dir, &["ro"]).unmount();
    let refused = |options: &[&str], why: &str| {
        let mut args = vec!["mount", "-f"];
        args.extend_from_slice(options);
        let done = run_extol(&[&args[..], &[text(&damaged.path), text(&dir)]].concat());
        assert!(!done.success() && done.output.contains(why), "{} {why}", done.output);
        assert_eq!(done.output.trim().lines().count(), 1, "{}", done.output);
        assert_eq!(mounted_type(&dir), None);
    };
    refused(&["-o", "untrusted"], "damaged");
    refused(&["-o", "untrusted", "--no-sandbox"], "--no-sandbox");
}
