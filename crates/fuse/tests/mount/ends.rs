//! Mounts that do not begin, and how they end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extol_fuse::{Mount, MountConfig, MountError};

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
