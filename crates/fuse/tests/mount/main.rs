//! The front end on a real mount, over a file system in memory. Needs root and `/dev/fuse`; without
//! them there is nothing to test and each test says so.
//!
//! The same files are a module of `over_io_uring.rs`, where requests come over io_uring instead.

mod attributes;
mod data;
mod deadline;
mod ends;
#[path = "../memfs/mod.rs"]
mod memfs;
mod names;
mod waiting;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deadline::Deadline;
use extol_fuse::{Mount, MountConfig, MountError, Stopper, Transport};
use memfs::MemFs;

pub(crate) struct Mounted {
    pub(crate) fs: Arc<MemFs>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) stopper: Stopper,
    pub(crate) server: Option<JoinHandle<Result<(), MountError>>>,
    /// The last one to be dropped: the way out may take too long as well.
    _deadline: Deadline,
}

impl Mounted {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A child that another test has just forked has this process's open files, too, until its
    /// exec.
    pub(crate) fn unmount(&mut self) {
        let start = Instant::now();
        loop {
            match self.stopper.unmount() {
                Err(MountError::Busy { .. }) if start.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                result => break result.unwrap(),
            }
        }
        self.server.take().unwrap().join().unwrap().unwrap();
    }

    /// Waits until the kernel has given every reference back.
    pub(crate) fn wait_forgotten(&self) {
        let start = Instant::now();
        loop {
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            if self.fs.held().0 == 0 {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{} references left",
                self.fs.held().0
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = self.stopper.detach();
            self.stopper.abandon();
        }
    }
}

/// True if these are the tests of `over_io_uring.rs`.
fn over_io_uring() -> bool {
    module_path!().starts_with("over_io_uring")
}

pub(crate) fn mount_with(by_number: bool, config: &MountConfig) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemFs::new(by_number));
    let io_uring = over_io_uring();
    if io_uring
        && fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
            .map_or(true, |text| text != "Y\n")
    {
        eprintln!(
            "skipped: needs Linux 6.14 and \"echo Y > /sys/module/fuse/parameters/enable_uring\""
        );
        return None;
    }
    let config = MountConfig { io_uring: Some(io_uring), ..config.clone() };
    let mount = Mount::new(fs.clone(), dir.path(), &config).unwrap();
    let transport = if io_uring { Transport::IoUring } else { Transport::Device };
    assert_eq!((mount.transport(), mount.note()), (transport, None));
    let stopper = mount.stopper();
    let server = Some(std::thread::spawn(move || mount.run()));
    let deadline = Deadline::new(dir.path(), stopper.clone());
    Some(Mounted { fs, dir, stopper, server, _deadline: deadline })
}

pub(crate) fn mount() -> Option<Mounted> {
    mount_with(true, &MountConfig { allow_other: true, ..MountConfig::default() })
}

/// Runs a shell command as an ordinary user.
fn as_ordinary_user(script: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
