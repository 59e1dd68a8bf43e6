//! A medium with a loop device on it, for as long as a value lives.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extol_devices::Profile;

use super::{READY, Stats};
use crate::daemon::Daemon;
use crate::subject::{attach_loop, run};
use crate::{BenchError, Result};

/// A medium that is being served by a process of its own, and a loop device on it. Dropping it
/// undoes both; unmount first what is mounted on the device.
#[derive(Debug)]
pub struct Served {
    // Dropped in this order.
    device: Loop,
    server: Daemon,
}

impl Served {
    /// Starts `bench` (the program `extol-bench`) with a medium of `bytes` in memory and puts a
    /// loop device on it. Needs root.
    ///
    /// # Errors
    /// If one of them does not come up; then nothing is left.
    pub fn start(bench: &Path, profile: &Profile, bytes: u64) -> Result<Self> {
        Self::with(bench, profile, &["--size".into(), format!("{}s", bytes / 512).into()])
    }

    /// The same with contents that are there already: those of a file, which stays. Put it into
    /// memory (`/dev/shm`), or its own disk is measured, too. So a volume can be made before its
    /// medium gets slow.
    ///
    /// # Errors
    /// If one of them does not come up; then nothing is left.
    pub fn start_over(bench: &Path, profile: &Profile, backing: &Path) -> Result<Self> {
        Self::with(bench, profile, &["--backing".into(), backing.into()])
    }

    fn with(bench: &Path, profile: &Profile, args: &[OsString]) -> Result<Self> {
        let words: [OsString; 4] =
            ["medium".into(), "--until-eof".into(), "--profile".into(), profile.to_string().into()];
        let server = Daemon::start(bench, "medium", &[&words[..], args].concat(), READY)?;
        let device = Loop::attach(&server.dir().join("disk"))?;
        // As the kernel knows it of real disks; a loop device takes no notice of what is below.
        // Best effort.
        let _ = std::fs::write(
            device.setting("queue/rotational"),
            u8::from(profile.is_rotational()).to_string(),
        );
        Ok(Self { device, server })
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device.0
    }

    /// The file on which it sits.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.server.dir().join("disk")
    }

    /// What the medium was asked so far.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn stats(&self) -> Result<Stats> {
        let path = self.server.dir().join("stats");
        let text = std::fs::read(&path)
            .map_err(|e| BenchError(format!("cannot read {}: {e}", path.display())))?;
        serde_json::from_slice(&text).map_err(|e| BenchError(format!("{}: {e}", path.display())))
    }
}

/// A loop device, detached when dropped.
#[derive(Debug)]
struct Loop(PathBuf);

impl Loop {
    /// A file of the device in `/sys`.
    fn setting(&self, name: &str) -> PathBuf {
        Path::new("/sys/class/block").join(self.0.file_name().unwrap_or_default()).join(name)
    }

    fn attach(file: &Path) -> Result<Self> {
        let attached = Self(attach_loop(file, &["--direct-io=on"])?.into());
        // Another user may have left a scheduler behind; requests are to reach the medium as they
        // come.
        let _ = std::fs::write(attached.setting("queue/scheduler"), "none");
        Ok(attached)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The last close writes the cache of the device back, and a program that lists devices may
        // have it open.
        let _ = std::fs::File::open(&self.0).and_then(|device| device.sync_all());
        let _ = run("losetup", &["-d".as_ref(), self.0.as_os_str()]);
    }
}

/// Detaches every loop device on `file`; one that is in use goes when its last user does.
pub fn detach_loops(file: &Path) {
    let devices = extol_proc::LoopDevice::all().into_iter();
    for device in devices.filter(|device| device.backing == file) {
        let _ = run("losetup", &["-d".as_ref(), device.node.as_os_str()]);
    }
}
