//! Serving a mount, from mount(2) to its end.

use std::sync::Arc;
use std::time::Duration;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{Mount, MountConfig, Stopper, Transport};
use extol_vfs::Mountable;

use super::Request;
use crate::signals::Guard;
use crate::start_cleanup::{CleanupProcess, MountTarget};
use crate::volume::Volume;
use crate::{daemon, metrics};

/// Mounts and serves an open volume until the mount ends.
pub(super) fn serve(
    request: &Request,
    fs: Arc<Volume>,
    config: &MountConfig,
    guard: &Guard,
    target: &MountTarget,
) -> Result<()> {
    guard.check()?;
    // In the background the parent cleans up; and a mount of another process is unmounted by
    // that process.
    let cleans_up = !request.announce && request.fd.is_none();
    let cleanup = cleans_up.then(|| CleanupProcess::start(target)).transpose()?;
    let mount = Mount::new(Arc::clone(&fs) as Arc<dyn Mountable>, &request.dir, config)?;
    guard.mounted(mount.stopper())?;
    metrics::count_requests(mount.requests());
    if let Some(note) = mount.note() {
        super::note(request, note);
    }
    if request.verbose {
        say_mounted(request, &mount, config);
    }
    watch(request, &fs, mount.stopper())?;
    // No step behind this may fail.
    if request.announce {
        daemon::announce()?;
    }
    cleanup.into_iter().for_each(CleanupProcess::cancel);
    mount.run()?;
    if fs.panic_wanted() {
        return Err(Failure::about(
            request.source.display(),
            "an error on the volume ended the mount (errors=panic)",
        ));
    }
    Ok(())
}

/// How often the watch thread reads the error state of the volume.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Starts a thread that reports the first error of the volume or its device. With `errors=panic` an
/// error ends the mount.
fn watch(request: &Request, fs: &Arc<Volume>, stopper: Stopper) -> Result<()> {
    let (source, background) = (request.source.display().to_string(), request.announce);
    let fs = Arc::downgrade(fs);
    let mut reported = false;
    let watch = move || {
        while let Some(fs) = fs.upgrade()
            && !stopper.has_ended()
        {
            if !reported && let Some(error) = fs.first_error() {
                reported = true;
                let state = if fs.is_read_only() { "; the volume is read-only now" } else { "" };
                let line = format!("{source}: {error}{state}");
                if background { daemon::log(&line) } else { warn(line) }
            }
            if fs.panic_wanted() {
                stopper.abandon();
                return;
            }
            drop(fs);
            std::thread::sleep(WATCH_INTERVAL);
        }
    };
    let started = std::thread::Builder::new().name("watch".into()).spawn(watch);
    started
        .map(drop)
        .map_err(|error| Failure::system(format_args!("cannot start a thread: {error}")))
}

fn say_mounted(request: &Request, mount: &Mount, config: &MountConfig) {
    let how = if mount.transport() == Transport::IoUring { ", over io_uring" } else { "" };
    warn(format_args!("{} is mounted on {}{how}", request.source.display(), request.place()));
    if !mount.is_block() && !config.read_only {
        warn(format_args!(
            "sync(1) and syncfs(2) do not reach this mount: use fsync, \"extol sync {}\", or mount \
             a block device as root (-o loop for an image)",
            request.shown_dir()
        ));
    }
}
