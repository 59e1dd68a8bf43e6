//! Serving a mount, from mount(2) to its end.

use std::sync::Arc;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{Mount, MountConfig, Stopper, Transport};
use extol_proc::Shown as _;
use extol_vfs::Mountable;

use super::Request;
use crate::signals::Guard;
use crate::start_cleanup::{CleanupProcess, MountTarget};
use crate::volume::Volume;
use crate::watch::{self, Errors};
use crate::{daemon, interrupt, metrics, umount};

/// Mounts and serves an open volume until the mount ends.
pub(super) fn serve(
    request: &Request,
    fs: Arc<Volume>,
    config: &MountConfig,
    guard: &Guard,
    target: &MountTarget,
) -> Result<()> {
    interrupt::check()?;
    // In the background the parent cleans up; and a mount of another process is unmounted by
    // that process.
    let cleans_up = !request.announce && request.fd.is_none();
    let cleanup = cleans_up.then(|| CleanupProcess::start(target)).transpose()?;
    let mount = Mount::new(Arc::clone(&fs) as Arc<dyn Mountable>, &request.dir, config)?;
    guard.mounted(mount.stopper())?;
    metrics::count(metrics::Counters::Mount(mount.requests()));
    if let Some(note) = mount.note() {
        super::note(request, note);
    }
    if request.verbose {
        say_mounted(request, &mount, config);
    }
    start_watch(request, &fs, mount.stopper(), guard)?;
    // No step behind this may fail.
    if request.announce {
        daemon::announce()?;
    }
    cleanup.into_iter().for_each(CleanupProcess::cancel);
    mount.run()?;
    if fs.panic_wanted() {
        return Err(Failure::about(
            request.source.shown(),
            "an error on the volume ended the mount (errors=panic)",
        ));
    }
    Ok(())
}

/// How many intervals of the watch thread pass between two tries to make the kernel's side
/// read-only.
const TRY_EVERY: u32 = 8;

/// Starts a thread that reports the first error of the volume or its device, and makes the kernel's
/// side of the mount read-only once an error has stopped the volume. With `errors=panic` an error
/// ends the mount.
fn start_watch(request: &Request, fs: &Arc<Volume>, stopper: Stopper, guard: &Guard) -> Result<()> {
    let fs = Arc::downgrade(fs);
    let mut state = Watch {
        errors: Errors::of(request.source.shown().to_string(), request.announce),
        guard: guard.clone(),
        next_try: Some(0),
        next_look: watch::LOOK_EVERY,
    };
    watch::start(move || {
        while let Some(fs) = fs.upgrade()
            && !stopper.has_ended()
        {
            if fs.panic_wanted() {
                state.errors.report(&fs);
                stopper.abandon();
                return;
            }
            state.look(&fs);
            drop(fs);
            std::thread::sleep(watch::INTERVAL);
        }
    })
}

/// What the watch thread knows.
struct Watch {
    errors: Errors,
    guard: Guard,
    /// When the kernel's side is to be made read-only if the volume is stopped; `None`: that is
    /// done, or cannot be.
    next_try: Option<u32>,
    /// When the device is looked at.
    next_look: u32,
}

impl Watch {
    fn look(&mut self, fs: &Volume) {
        self.next_look -= 1;
        if self.next_look == 0 {
            self.next_look = watch::LOOK_EVERY;
            fs.check_device();
        }
        self.errors.report(fs);
        if !fs.is_stopped() {
            self.next_try = Some(0);
            return;
        }
        self.next_try = match self.next_try {
            Some(0) => match self.guard.make_read_only() {
                // Files are open for writing: perhaps not for long.
                Err(umount::BUSY) => Some(TRY_EVERY),
                _ => None,
            },
            other => other.map(|intervals| intervals - 1),
        };
    }
}

fn say_mounted(request: &Request, mount: &Mount, config: &MountConfig) {
    let how = if mount.transport() == Transport::IoUring { ", over io_uring" } else { "" };
    warn(format_args!("{} is mounted on {}{how}", request.shown_source(), request.place()));
    if !mount.is_block() && !config.read_only {
        warn(format_args!(
            "sync(1) and syncfs(2) do not reach this mount: use fsync, \"extol sync {}\", or mount \
             a block device as root (-o loop for an image)",
            request.shown_dir()
        ));
    }
}
