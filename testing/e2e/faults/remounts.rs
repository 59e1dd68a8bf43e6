//! A volume that an error has stopped is mended by a remount.

use crate::{EIO, EROFS, ESTALE, NEEDS, Promised, becomes, kernel_options, synced};
use extol_testkit::{
    ExtolMount, Image, LoopDevice, Need, Scratch, e2fsck, extol, require, resize_small_disk, run,
    run_ok, sync_volume, tool, unmount,
};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What every request about the whole mount says of a stopped volume: the first line of
/// `extol stat`, and what to do. A remount to read-only is refused: it is not clean.
#[track_caller]
fn refuse_in_one_line(dir: &Path, state: &str) {
    for words in [
        &["sync"][..],
        &["checkpoint"],
        &["checkpoint", "--dry-run"],
        &["checkpoint", "--discard"],
        &["freeze"],
        &["thaw"],
        &["remount", "-o", "ro"],
        &["remount", "-o", "ro,noatime"],
    ] {
        let done = run(extol().args(words).arg(dir), Duration::from_secs(60));
        let line = format!("extol: {state}; when the cause is gone: extol remount -o rw ");
        assert_eq!((done.code, done.output.lines().count()), (Some(32), 1), "{}", done.output);
        assert!(done.output.starts_with(&line), "{words:?}: {}", done.output);
    }
}

/// The host's disk was full and has space again: a remount mends the volume, with files that are
/// open all the while. Everything says what is wrong, and why.
#[test]
fn a_remount_mends_a_full_host() {
    if !require(&[&NEEDS[..], &[Need::Kernel("tmpfs")]].concat()) {
        return;
    }
    for (features, options) in [("fast_commit", &[][..]), ("^fast_commit", &["noio_uring"])] {
        let scratch = Scratch::new();
        let (small, dir) = (scratch.small_disk("small", "24m"), scratch.dir("mnt"));
        let image = Image::sparse(small.join("a.img"), 64 << 20);
        let args = ["-q", "-F", "-t", "ext4", "-J", "size=4", "-O", features];
        run_ok(tool("mke2fs").args(args).arg(&image.path));
        let mut command = extol();
        command.args(["mount", "-f", "--metrics", ":0"]);
        if !options.is_empty() {
            command.arg("-o").arg(options.join(","));
        }
        command.arg(&image.path).arg(&dir);
        let mount = ExtolMount::spawn(command, &dir).expect("a mount");
        synced(&dir.join("open"), b"open all the while").unwrap();
        let mut open = File::options().read(true).write(true).open(dir.join("open")).unwrap();
        let inside = std::fs::File::open(&dir).unwrap();
        let mut promised = Promised::default();
        promised.until_it_fails(&dir, 200, 300_000).expect("60 MB do not fit on 24 MiB");
        assert!(promised.0.len() > 5);

        let said = run_ok(extol().arg("stat").arg(&dir));
        let first = said.lines().next().unwrap_or_default();
        let state = format!("{}: read-only: ", dir.display());
        assert!(first.starts_with(&state) && first.contains("No space left on device"), "{said}");
        assert!(said.contains("extol remount -o rw"), "{said}");
        refuse_in_one_line(&dir, first);
        let said = run_ok(extol().args(["top", "--once", "--interval", "0.1"]).arg(&dir));
        assert!(said.starts_with(&state), "{said}");
        let page = metrics_of(&mount);
        for line in ["extol_read_only 1", "extol_stopped 1", "extol_read_only_info{reason=\""] {
            assert!(page.contains(line), "{line} is missing: {page}");
        }
        // As long as a file is open for writing the kernel's side cannot follow.
        assert!(kernel_options(&dir).split(',').all(|word| word != "ro"));
        drop(open);
        open = File::open(dir.join("open")).unwrap();
        becomes(&dir, "ro");
        refuse_in_one_line(&dir, first);
        becomes(&dir, "ro");
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert_eq!(refused.code, Some(32), "{}", refused.output);
        assert!(refused.output.contains("No space left on device"), "{}", refused.output);
        assert_eq!(refused.output.lines().count(), 1, "{}", refused.output);
        becomes(&dir, "ro");
        promised.assert_kept(&dir, "before it is mended");

        resize_small_disk(&small, "200m");
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        promised.assert_kept(&dir, "mended");
        becomes(&dir, "rw");
        assert!(!kernel_options(&dir).split(',').any(|word| word == "ro"));
        let said = run_ok(extol().arg("stat").arg(&dir));
        assert!(said.starts_with(&format!("{}: read-write\n", dir.display())), "{said}");
        assert!(metrics_of(&mount).contains("\nextol_stopped 0\n"));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut open, &mut text).unwrap();
        assert_eq!(text, "open all the while");
        // What failed was not made durable; that is told once.
        assert_eq!(sync_volume(&dir).unwrap_err().raw_os_error(), Some(EIO));
        sync_volume(&dir).unwrap();
        // What failed leaves no trace: neither in a listing nor in what the kernel has cached.
        let listed = std::fs::read_dir(&dir).unwrap().count();
        let known = ["lost+found", "open"].len() + promised.0.len();
        assert!(listed == known || listed == known + 1, "{listed} names, {known} promised");
        for n in 0..200 {
            let name = format!("file-{n}");
            let there = std::fs::read(dir.join(&name));
            assert_eq!(there.is_ok(), dir.join(&name).exists(), "{name}");
        }
        synced(&dir.join("later"), &[9; 3_000_000]).unwrap();
        let kept = Promised([("later".to_owned(), vec![9; 3_000_000])].into());
        drop((open, inside));
        mount.unmount();
        e2fsck(&image).assert_clean("mended");
        let mount = ExtolMount::start(&image.path, &dir, &["ro"]);
        promised.assert_kept(&dir, "mended and mounted again");
        kept.assert_kept(&dir, "mended and mounted again");
        mount.unmount();
        unmount(&small);
    }
}

/// Programs that open, remove and rename files go on through aborts and remounts: an open that may
/// make the file never says that it exists. It says ESTALE as long as another program has a file
/// open that was lost and had the same inode number: none has once all are closed.
#[test]
fn opens_go_on_through_remounts() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let dir = scratch.dir("mnt");
    let mount = ExtolMount::start(&image.path, &dir, &[]);
    let stop = AtomicBool::new(false);
    let made: usize = std::thread::scope(|scope| {
        let (stop, dir) = (&stop, &dir);
        let work = move |t: usize| {
            let mut made = 0;
            for n in 0_usize.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let path = |n: usize| dir.join(format!("{t}-{}", n % 12));
                let _ = match n % 4 {
                    0 => std::fs::remove_file(path(n * 5)),
                    1 => std::fs::rename(path(n * 7), path(n * 7 + 5)),
                    _ => Ok(()),
                };
                match File::create(path(n * 11)) {
                    Ok(mut file) => {
                        made += usize::from(file.write_all(&vec![7; n % 20_000]).is_ok());
                        let _ = (n % 3 == 0).then(|| file.sync_all());
                    }
                    Err(error) => {
                        let errno = error.raw_os_error();
                        assert!(matches!(errno, Some(EIO | EROFS | ESTALE)), "{error}");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            made
        };
        let threads: Vec<_> = (0..4).map(|t| scope.spawn(move || work(t))).collect();
        for _ in 0..25 {
            std::thread::sleep(Duration::from_millis(40));
            run_ok(extol().args(["remount", "-o", "abort"]).arg(dir));
            run_ok(extol().args(["remount", "-o", "rw"]).arg(dir));
        }
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(made > 100, "{made}");
    // (The kernel tells of what is closed a little later.)
    let names = (0..4).flat_map(|t| (0..12).map(move |n| format!("{t}-{n}")));
    let end = Instant::now() + Duration::from_secs(10);
    for path in names {
        while let Err(error) = File::create(dir.join(&path)) {
            assert!(Instant::now() < end, "{path}: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    mount.unmount();
    // Orphans of a volume that is marked with an error stay, as in Linux: files in use, without a
    // name. Names and link counts are sound.
    let said = run(tool("e2fsck").arg("-fn").arg(&image.path), Duration::from_secs(60)).output;
    let names = said.lines().skip_while(|line| !line.starts_with("Pass 2:"));
    let names: Vec<_> = names.take_while(|line| !line.starts_with("Pass 5:")).collect();
    assert!(names.len() == 3 && names.iter().all(|line| line.starts_with("Pass ")), "{said}");
}

/// Each open of a file whose changes are lost is told so once by fsync, and so is the first sync of
/// the volume. What was durable is not lost.
#[test]
fn fsync_tells_what_a_remount_has_lost() {
    if !require(&NEEDS) {
        return;
    }
    for options in ["noio_uring", "nodirect"] {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &[options]);
        let durable = |name: &str| {
            synced(&dir.join(name), b"durable").unwrap();
            File::options().append(true).open(dir.join(name)).unwrap()
        };
        let (whole, mut changed) = (durable("whole"), durable("changed"));
        let other = File::open(dir.join("changed")).unwrap();
        sync_volume(&dir).unwrap();
        changed.write_all(b", and not").unwrap();
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        assert_eq!(std::fs::read(dir.join("changed")).unwrap(), b"durable");
        whole.sync_all().unwrap();
        changed.write_all(b", and more").unwrap();
        let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(changed.sync_all()), Some(EIO));
        changed.sync_all().unwrap();
        assert_eq!(errno(other.sync_data()), Some(EIO));
        other.sync_data().unwrap();
        File::open(dir.join("changed")).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::read(dir.join("changed")).unwrap(), b"durable, and more");
        assert_eq!(errno(sync_volume(&dir)), Some(EIO));
        sync_volume(&dir).unwrap();
        // `extol sync` says what that was, once.
        changed.write_all(b", and lost").unwrap();
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        let told = run(extol().arg("sync").arg(&dir), Duration::from_secs(60));
        assert_eq!((told.code, told.output.lines().count()), (Some(32), 1), "{}", told.output);
        let line = "changes from before the error that had stopped the volume are lost";
        assert!(told.output.contains(line), "{}", told.output);
        run_ok(extol().arg("sync").arg(&dir));
        drop((whole, changed, other));
        mount.unmount();
    }
}

/// What the kernel caches of the root directory goes with what is lost. With a write-back cache the
/// kernel keeps sizes that nothing can take from it: there it is refused.
#[test]
fn a_mended_root_is_listed_anew() {
    if !require(&NEEDS) {
        return;
    }
    for options in ["noio_uring", "writeback_cache"] {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "a.img", 64 << 20, &["-t", "ext4"]);
        let dir = scratch.dir("mnt");
        let mount = ExtolMount::start(&image.path, &dir, &[options]);
        synced(&dir.join("keep"), b"kept").unwrap();
        run_ok(extol().arg("sync").arg(&dir));
        std::fs::rename(dir.join("keep"), dir.join("lost")).unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), names(), "cached");
        assert!(names().contains(&"lost".into()));
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&dir));
        let mended = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        if options == "writeback_cache" {
            assert_eq!(mended.code, Some(32), "{}", mended.output);
            assert!(mended.output.contains("unmount the volume"), "{}", mended.output);
        } else {
            assert_eq!(mended.code, Some(0), "{}", mended.output);
            assert_eq!(names(), ["keep", "lost+found"].map(std::ffi::OsString::from));
            assert_eq!(std::fs::read(dir.join("keep")).unwrap(), b"kept");
        }
        drop(mount);
    }
}

/// The page of the counters of this mount.
fn metrics_of(mount: &ExtolMount) -> String {
    let log = mount.log();
    let address = log.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let mut stream = std::net::TcpStream::connect(address.expect("an address")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    std::io::Read::read_to_string(&mut stream, &mut page).unwrap();
    page
}

/// The host of an image fails with EIO for a time: the volume stops, and a remount mends it when
/// the host works again. (The host is a mount of Extol that is stopped and mended itself; what lies
/// on it is reached through a loop device, whose errors are all EIO.)
#[test]
fn a_remount_mends_a_device_that_failed() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let (below, dir) = (scratch.dir("below"), scratch.dir("mnt"));
    let host = Image::mke2fs(scratch.path(), "host.img", 128 << 20, &["-t", "ext4"]);
    let host_mount = ExtolMount::start(&host.path, &below, &[]);
    let image = Image::mke2fs(&below, "a.img", 48 << 20, &["-t", "ext4", "-J", "size=4"]);
    File::open(&image.path).and_then(|f| f.sync_all()).unwrap();
    run_ok(extol().arg("sync").arg(&below));
    let device = LoopDevice::attach(&image.path);
    let mount = ExtolMount::start(device.path(), &dir, &[]);
    let mut promised = Promised::default();
    assert!(promised.until_it_fails(&dir, 10, 100_000).is_none());
    for round in 0..2 {
        run_ok(extol().args(["remount", "-o", "abort"]).arg(&below));
        let late = |n| synced(&dir.join(format!("late-{round}-{n}")), &[7; 50_000]).err();
        let failed = (0..50).find_map(late).expect("a device that fails");
        assert!(matches!(failed.raw_os_error(), Some(EIO | EROFS)), "{failed}");
        let said = run_ok(extol().arg("stat").arg(&dir));
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains("Input/output error"), "{said}");
        refuse_in_one_line(&dir, first);
        // As long as it fails, a remount changes nothing.
        let refused = run(extol().args(["remount", "-o", "rw"]).arg(&dir), Duration::from_secs(60));
        assert_eq!(
            (refused.code, refused.output.lines().count()),
            (Some(32), 1),
            "{}",
            refused.output
        );

        run_ok(extol().args(["remount", "-o", "rw"]).arg(&below));
        run_ok(extol().args(["remount", "-o", "rw"]).arg(&dir));
        promised.assert_kept(&dir, "mended");
        let name = format!("after-{round}");
        synced(&dir.join(&name), &[9; 300_000]).unwrap();
        promised.0.insert(name, vec![9; 300_000]);
    }
    mount.unmount();
    e2fsck(&image).assert_clean("mended");
    let mount = ExtolMount::start(device.path(), &dir, &["ro"]);
    promised.assert_kept(&dir, "mounted again");
    mount.unmount();
    device.detach();
    host_mount.unmount();
}
