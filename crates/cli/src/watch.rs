//! The thread that watches the volume of a daemon: what those of mounts and exports share.

use std::time::Duration;

use extol_cli_common::{Failure, Result, warn};

use crate::daemon;
use crate::volume::Volume;

/// How often the thread reads the error state of the volume.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// How many of these pass between two looks at the device.
pub const LOOK_EVERY: u32 = 4;

/// Starts the thread.
pub fn start(watch: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().name("watch".into()).spawn(watch);
    started
        .map(drop)
        .map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))
}

/// The errors of a volume, each first one of which is reported.
pub struct Errors {
    /// The volume, as it is shown.
    source: String,
    /// Nothing reads what the process prints.
    background: bool,
    reported: bool,
}

impl Errors {
    /// None is reported yet.
    pub fn of(source: String, background: bool) -> Self {
        Self { source, background, reported: false }
    }

    /// Reports the first error. (A remount that mends the volume begins anew.)
    pub fn report(&mut self, fs: &Volume) {
        let Some(error) = fs.first_error() else {
            self.reported = false;
            return;
        };
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let state = if fs.is_read_only() { "; the volume is read-only now" } else { "" };
        let line = format!("{}: {error}{state}", self.source);
        if self.background { daemon::log(&line) } else { warn(line) }
    }
}
