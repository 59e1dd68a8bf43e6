//! Mounts that do not begin, and how they end.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extol_fuse::{Mount, MountConfig, MountError};
use rustix::mount::{UnmountFlags, unmount};

use super::memfs::MemFs;
use super::mount;

#[test]
fn a_panic_is_an_error_to_its_caller_only() {
    let Some(mut m) = mount() else { return };
    for _ in 0..100 {
        assert_eq!(fs::metadata(m.path("panic")).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    fs::write(m.path("fine"), "x").unwrap();
    m.unmount();
}

#[test]
fn a_busy_mount_can_be_detached() {
    let Some(mut m) = mount() else { return };
    let file = File::create(m.path("f")).unwrap();
    assert!(matches!(m.stopper.unmount(), Err(MountError::Busy { .. })));
    m.stopper.detach().unwrap();
    assert!(!m.path("f").exists());
    file.write_all_at(b"late", 0).unwrap();
    drop(file);
    m.server.take().unwrap().join().unwrap().unwrap();
}

/// As `umount -l` does it: the mount is served until its last file is closed.
#[test]
fn a_mount_detached_by_another_process_ends_with_its_last_file() {
    let Some(mut m) = mount() else { return };
    let file = File::create(m.path("f")).unwrap();
    unmount(m.dir.path(), UnmountFlags::DETACH).unwrap();
    file.write_all_at(b"late", 0).unwrap();
    file.sync_all().unwrap();
    assert!(!m.stopper.has_ended());
    drop(file);
    m.server.take().unwrap().join().unwrap().unwrap();
    assert!(m.stopper.has_ended());
}

/// A connection that is aborted ends the mount, whatever is open, and whatever waits for a thaw
/// that no request can ask for any more.
#[test]
fn an_aborted_connection_ends_the_mount() {
    let Some(mut m) = mount() else { return };
    let dev = fs::metadata(m.dir.path()).unwrap().dev();
    let number = rustix::fs::major(dev) << 20 | rustix::fs::minor(dev);
    let abort = format!("/sys/fs/fuse/connections/{number}/abort");
    if !Path::new(&abort).exists() {
        eprintln!("skipped: needs fusectl on /sys/fs/fuse/connections");
        return m.unmount();
    }
    let dirs: Vec<_> = (0..4).map(|n| m.path(&format!("d{n}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let file = File::create(m.path("f")).unwrap();
    m.fs.set_frozen(true);
    let waiting: Vec<_> = dirs
        .into_iter()
        .map(|dir| thread::spawn(move || fs::write(dir.join("f"), "x").is_err()))
        .collect();
    thread::sleep(Duration::from_millis(100));
    assert!(waiting.iter().all(|thread| !thread.is_finished()));
    fs::write(abort, "1").unwrap();
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
    assert!(file.write_all_at(b"late", 0).is_err() && m.path("f").metadata().is_err());
    m.server.take().unwrap().join().unwrap().unwrap();
    drop(file);
    unmount(m.dir.path(), UnmountFlags::DETACH).unwrap();
}

/// A process that has just ended closes its files a moment later: an unmount waits for that.
#[test]
fn a_file_that_is_about_to_be_closed_keeps_no_mount() {
    let Some(mut m) = mount() else { return };
    let file = File::create(m.path("f")).unwrap();
    let goes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(file);
    });
    m.stopper.unmount().unwrap();
    goes.join().unwrap();
    m.server.take().unwrap().join().unwrap().unwrap();
}

#[test]
fn bad_mount_points_are_refused() {
    if !Path::new("/dev/fuse").exists() {
        return;
    }
    let fs = Arc::new(MemFs::new(true));
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [Path::new("/nonexistent"), file.path()] {
        let error = Mount::new(fs.clone(), path, &MountConfig::default()).unwrap_err();
        assert!(matches!(error, MountError::Dir { .. }), "{error}");
    }
}
