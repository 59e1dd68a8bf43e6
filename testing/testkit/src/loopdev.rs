//! Loop devices.

use crate::{run_ok, tool};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A loop device over a file, detached on drop.
#[derive(Debug)]
pub struct LoopDevice {
    device: PathBuf,
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
                return Self { device: PathBuf::from(done.output.trim()) };
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
        let _ = std::fs::File::open(&self.device).and_then(|device| device.sync_all());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        self.write_back();
        let _ = tool("losetup").arg("-d").arg(&self.device).output();
    }
}
