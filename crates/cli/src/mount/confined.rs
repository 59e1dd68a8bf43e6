//! The sandbox of a mount's daemon and its monitor.

use std::sync::Arc;

use extol_cli_common::Result;
use extol_fuse::Confinement;

use super::Request;
use crate::daemon;
use crate::monitor::{Monitor, Order};
use crate::sandbox::{self, process};
use crate::volume::VolumeOptions;

/// Prepares the sandbox for the daemon of this request.
pub(super) fn prepare_sandbox(
    request: &Request,
    volume: &VolumeOptions,
    untrusted: bool,
) -> Result<()> {
    if request.no_sandbox {
        return Ok(());
    }
    // A read-only mount may become read-write by a remount, and is opened again for that.
    let writes = !untrusted;
    let mut files = vec![(extol_proc::image_of(&request.source), writes)];
    let journal = volume.journal.path.as_deref().map(extol_proc::image_of);
    files.extend(journal.map(|path| (path, writes)));
    sandbox::prepare(&sandbox::Config {
        kind: sandbox::Kind::Daemon,
        keep: sandbox::DAEMON,
        files: &files,
        port: None,
        required: untrusted,
    })
}

/// What the mount calls when the daemon is to be confined, with a monitor where one is needed.
pub(super) fn confinement(request: &Request) -> Result<Option<Arc<dyn Confinement>>> {
    if request.no_sandbox {
        return Ok(None);
    }
    daemon::prepare(request.announce)?;
    let monitor = request.fd.is_none().then(|| Monitor::start(&request.dir)).transpose()?;
    Ok(Some(Arc::new(Confined(monitor))))
}

/// The sandbox of the daemon, and the monitor that does what the daemon may not.
#[derive(Debug)]
struct Confined(Option<Arc<Monitor>>);

impl Confinement for Confined {
    fn confine(&self) -> std::io::Result<String> {
        if let Some(monitor) = &self.0 {
            monitor.mounted();
        }
        process::protect();
        sandbox::enter().map_err(|failure| std::io::Error::other(failure.line))?;
        Ok(sandbox::describe())
    }

    fn take_off(&self) {
        let unmounted = self.0.as_ref().map(|monitor| monitor.ask(Order::Abort));
        if let Some(Err(failure)) = unmounted {
            failure.report();
        }
    }

    fn user_namespace(&self, process: u32) -> Option<(u64, u64)> {
        self.0.as_ref()?.user_namespace(process)
    }
}
