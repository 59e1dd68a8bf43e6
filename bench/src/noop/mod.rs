//! What FUSE allows: a mount of a file system that does nothing, as a baseline.
//!
//! It is mounted as Extol is, with the same capabilities of the kernel, and served by a process of
//! its own, as Extol's mounts are: `extol-bench noop` ([`Mounted`]). So whatever a mount of Extol
//! takes beyond it is Extol's own.

mod fs;
mod names;

pub use fs::NoopFs;

use std::ffi::OsString;
use std::path::Path;

use extol_fuse::MountConfig;

use crate::Result;
use crate::daemon::Daemon;

/// Line that `extol-bench noop` prints when the mount is there: this and the directory.
pub const READY: &str = "mount is ready: ";

/// How it is mounted: as Extol's mounts are.
#[must_use]
pub fn mount_config() -> MountConfig {
    MountConfig {
        source: "extol-noop".into(),
        subtype: "extol-noop".into(),
        ..MountConfig::default()
    }
}

/// A mount of it, served by a process of its own; dropping it unmounts.
#[derive(Debug)]
pub struct Mounted(Daemon);

impl Mounted {
    /// Starts `bench` (the program `extol-bench`) on a directory of its own, with mount options
    /// (may be empty).
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(bench: &Path, options: &str) -> Result<Self> {
        let mut words: Vec<OsString> = vec!["noop".into(), "--until-eof".into()];
        if !options.is_empty() {
            words.extend(["-o".into(), options.into()]);
        }
        Daemon::start(bench, "no-op file system", &words, READY).map(Self)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.0.dir()
    }

    /// The process that serves it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}
