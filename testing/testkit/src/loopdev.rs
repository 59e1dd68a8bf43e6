//! Loop devices.

use crate::{run_ok, tool};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// On a block device: fails while it is mounted, also in other namespaces.
const O_EXCL: i32 = rustix::fs::OFlags::EXCL.bits() as i32;

/// A loop device over a file, detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
    /// The file below it ([`backing`]).
    file: String,
}

impl LoopDevice {
    /// Attaches a file.
    ///
    /// # Panics
    /// If no loop device can be had.
    #[must_use]
    pub fn attach(file: &Path) -> Self {
        Self::attach_with(file, &[])
    }

    /// Attaches a file with more arguments for `losetup` (`--direct-io=on`, `-r`, `-b 4096` …).
    ///
    /// # Panics
    /// If no loop device can be had.
    #[must_use]
    pub fn attach_with(file: &Path, args: &[&str]) -> Self {
        // Two processes may be given the same free device and one of them then fails: try again.
        for attempt in 0.. {
            let done = crate::run(
                tool("losetup").args(["--find", "--show"]).args(args).arg(file),
                Duration::from_secs(20),
            );
            if done.success() {
                let device = PathBuf::from(done.output.trim());
                let file = backing(&device);
                return Self { device, file };
            }
            assert!(attempt < 20, "{} failed: {}", done.command, done.output);
            std::thread::sleep(Duration::from_millis(50));
        }
        unreachable!("the loop above ends by return or panic")
    }

    /// The device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// Waits until the device is mounted in no mount namespace: a process that starts with a copy
    /// of all mounts keeps each of them mounted for as long as it runs.
    ///
    /// # Panics
    /// If it is still mounted after ten seconds.
    pub fn wait_until_unmounted(&self) {
        let start = Instant::now();
        while let Err(e) = File::options().read(true).custom_flags(O_EXCL).open(&self.device) {
            let waited = start.elapsed() > Duration::from_secs(10);
            assert!(!waited, "{} is still mounted in some namespace: {e}", self.device.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Detaches and reports failure.
    ///
    /// # Panics
    /// If the device is still in use.
    pub fn detach(self) {
        self.write_back();
        run_ok(tool("losetup").arg("-d").arg(&self.device));
        std::mem::forget(self);
    }
}

impl LoopDevice {
    /// What was written to the device may still wait in its cache: only the last close
    /// writes it back, and a program that lists loop devices may have it open.
    fn write_back(&self) {
        let _ = File::open(&self.device).and_then(|device| device.sync_all());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.write_back();
        // A device that is gone already may be another test's by now.
        detach_if(&self.device, || backing(&self.device) == self.file);
    }
}

/// Device and inode number of the file below a loop device. (Its path is another one once the file
/// system of the file is unmounted lazily.)
fn backing(device: &Path) -> String {
    let mut list = tool("losetup");
    list.args(["--noheadings", "--raw", "--output", "BACK-MAJ:MIN,BACK-INO"]).arg(device);
    crate::run(&mut list, Duration::from_secs(20)).output
}

/// Path of the file below a loop device, as the kernel names it.
pub(crate) fn backing_path(device: &Path) -> Option<PathBuf> {
    let path = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    Some(OsString::from_vec(extol_proc::read(path)?).into())
}

/// Detaches a loop device if it is ours. While it is open here it stays what it is.
pub(crate) fn detach_if(device: &Path, is_ours: impl FnOnce() -> bool) {
    if let Ok(_open) = File::open(device)
        && is_ours()
    {
        let _ = tool("losetup").arg("-d").arg(device).output();
    }
}
