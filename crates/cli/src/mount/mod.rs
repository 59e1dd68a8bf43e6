//! `extol mount`.
//!
//! ```text
//!   run ─► options, paths ─► foreground ─► run_daemon: sandbox, open, mount, serve, close, report
//!                        └─► background: daemon.rs starts this program again, in the foreground
//! ```

mod confined;
mod request;
mod serve;

use std::path::Path;
use std::sync::Arc;

use extol_block::open::{OpenName, Window};
use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{BlockMount, MountConfig};
use extol_proc::Shown as _;
use extol_vfs::bytes_text;

use crate::exit_report::ExitReporter;
use crate::loop_device::LoopDevice;
use crate::metrics::Metrics;
use crate::options::{self, Part, Split};
use crate::sandbox::process;
use crate::signals::Guard;
use crate::start_cleanup::MountTarget;
use crate::volume::{self, Source, Volume, VolumeOptions};
use crate::{daemon, interrupt, limits, remount};

use request::absolute;
pub use request::{Request, absolute_source};

/// Mounts.
pub fn run(mut request: Request) -> Result<()> {
    if request.options.iter().flat_map(options::words).any(|word| word == "remount") {
        let Request { dir, options, sloppy, fake, verbose, .. } = request;
        let how = remount::How { sloppy, fake, verbose, as_mounted: true };
        return remount::remount(&dir, &options, &how);
    }
    let mut split = options::split(&request.options, request.sloppy)?;
    if split.untrusted && request.no_sandbox {
        return Err(Failure::usage("-o untrusted needs the sandbox: leave out --no-sandbox"));
    }
    if split.volume.access.norecovery && request.read_write {
        return Err(Failure::usage("-w cannot be used with norecovery: it means ro"));
    }
    let typed = std::mem::take(&mut request.source);
    let name = volume::name(Source { path: &typed, part: split.part })?;
    if request.named.is_none() {
        request.named = Some(shown_source(&typed, &name));
    }
    request.source = request::absolute_source(&name)?;
    request.resolve_target()?;
    if request.fake {
        return Ok(());
    }
    if !(request.announce || request.clean) {
        warn_of_options(&request, &split);
    }
    if request.foreground {
        begin(&request, &mut split)?;
    }
    limits::take_descriptors()?;
    // Kept until the volume holds the device: the kernel detaches it on its last close.
    let attached = attach_loop(&name, &split).map_err(|failure| request.as_typed(failure))?;
    if let Some(device) = &attached {
        let image = std::mem::replace(&mut request.source, device.path().to_owned());
        let named = request.named.take().unwrap_or_else(|| image.shown().to_string());
        request.named = Some(through(&named, device.path()));
    }
    let target = MountTarget::new(&request.source, &request.dir);
    if !request.foreground {
        return daemon::start(&request.daemon_words(&split.words), || target.unmount());
    }
    run_daemon(&request, split, attached, &target)
}

/// What stands for the source in messages: what was typed, and the device that a tag stands for.
fn shown_source(typed: &Path, name: &OpenName) -> String {
    let shown = typed.shown().to_string();
    let is_itself = name.part.is_some() || *typed == name.path;
    if is_itself { shown } else { through(&shown, &name.path) }
}

/// The loop device of a mount that is to have one, over all of the image or the part that is the
/// volume.
fn attach_loop(name: &OpenName, split: &Split) -> Result<Option<LoopDevice>> {
    if !split.is_loop {
        return Ok(None);
    }
    let image = absolute(&name.path)?;
    let part = match name.part {
        None => split.part.window,
        Some(_) => volume::place(name)?,
    };
    LoopDevice::attach(&image, part, split.volume.access.read_only)
}

fn through(named: &str, device: &Path) -> String {
    format!("{named} ({})", device.shown())
}

/// Says which options have another effect than they say.
fn warn_of_options(request: &Request, split: &Split) {
    if split.read_only_is_implied {
        warn("norecovery means ro: the volume is mounted read-only");
    }
    if request.fd.is_some() || rustix::process::geteuid().is_root() {
        return;
    }
    for flag in split.config.flags_without_helper() {
        warn(format_args!("{flag} has no effect: fusermount3 cannot set it; mount as root for it"));
    }
}

/// Begins in the process that will serve: with a clean environment, and without the descriptors
/// that it has inherited. It has opened nothing yet.
fn begin(request: &Request, split: &mut Split) -> Result<()> {
    if !request.no_sandbox && !request.clean {
        split.words.append(&mut split.loop_words);
        return Err(process::restart_with_clean_env(&request.daemon_words(&split.words)));
    }
    if request.announce {
        daemon::leave_session();
    }
    process::close_inherited(request.fd);
    Ok(())
}

/// Opens the volume, serves it until the mount ends, closes it, and reports how that went.
fn run_daemon(
    request: &Request,
    split: Split,
    attached: Option<LoopDevice>,
    target: &MountTarget,
) -> Result<()> {
    let Split { mut config, mut volume, metrics, keys, untrusted, mut part, .. } = split;
    if attached.is_some() {
        part.window = Window::default();
    }
    use_inherited_device(request.fd, &mut config)?;
    crate::keys::add(&keys, &mut volume.keys)?;
    confined::prepare_sandbox(request, &volume, untrusted)?;

    let metrics = metrics.as_deref().map(Metrics::bind).transpose()?;
    let guard = Guard::start()?;
    let reporter = ExitReporter::listen()?;
    volume.access.mount_point = Some(request.dir.clone());
    volume.cache.kernel_caches = !config.direct_io;
    let (fs, block) = open(request, part, &mut volume, untrusted).map_err(|failure| {
        let failure = request.as_typed(failure);
        match interrupt::check() {
            Err(interrupted) => Failure { code: interrupted.code, ..failure },
            Ok(()) => failure,
        }
    })?;
    if fs.has_feature_encrypt() {
        // (Keys may come later.)
        crate::keys::make_no_dump();
    }
    config.block = block;
    drop(attached);
    config.source = request.source.clone().into();
    config.read_only |= fs.is_read_only();
    say_open(request, &fs, &config);
    if let Some(metrics) = metrics {
        let source = bytes_text(request.source.as_os_str().as_encoded_bytes());
        metrics.serve(request.place(), &source, &fs, request.verbose)?;
    }
    let served = confined::confinement(request).and_then(|confinement| {
        config.confinement = confinement;
        serve::serve(request, Arc::clone(&fs), &config, &guard, target)
    });
    interrupt::has_served();
    let outcome = close(request, &fs, &guard, target, served);
    reporter.send(&outcome);
    outcome
}

/// Takes over the device of a mount that another process has made. Its place is not known, so this
/// process cannot unmount it; and the kernel must hold nothing that is lost when the daemon has to
/// end without an unmount.
fn use_inherited_device(fd: Option<i32>, config: &mut MountConfig) -> Result<()> {
    let Some(number) = fd else { return Ok(()) };
    config.device = Some(Arc::new(process::inherited(number)?));
    config.writeback_cache = false;
    Ok(())
}

/// Opens the volume; read-only if it turns out to be write-protected, as mount(8) does and in its
/// words, or is marked so, as Linux does.
fn open(
    request: &Request,
    part: Part,
    volume: &mut VolumeOptions,
    untrusted: bool,
) -> Result<(Arc<Volume>, Option<BlockMount>)> {
    let source = Source { path: &request.source, part };
    let opened = volume::open_for_mount(source, volume, untrusted);
    if opened.is_ok() || volume.access.read_only || request.read_write {
        return opened;
    }
    let why = if volume::is_write_protected(source) {
        "source write-protected"
    } else if volume::is_marked_read_only(source) {
        "the volume has the feature read-only"
    } else {
        return opened;
    };
    volume.access.read_only = true;
    let opened = volume::open_for_mount(source, volume, untrusted)?;
    warn(format_args!("{}: WARNING: {why}, mounted read-only.", request.place()));
    Ok(opened)
}

fn say_open(request: &Request, fs: &Volume, config: &MountConfig) {
    for text in fs.notes() {
        note(request, text);
    }
    if request.verbose {
        let how = if config.read_only { "read-only" } else { "read-write" };
        warn(format_args!("{} is open, {how}", request.shown_source()));
    }
}

/// A line about the volume: on standard error, and in the system log, with its whole path, if the
/// daemon goes to the background.
fn note(request: &Request, text: impl std::fmt::Display) {
    if request.announce {
        daemon::log(&format!("{}: {text}", request.source.shown()));
    }
    warn(format_args!("{}: {text}", request.shown_source()));
}

/// Closes the volume behind a mount that has ended, or has not come to stand.
fn close(
    request: &Request,
    fs: &Volume,
    guard: &Guard,
    target: &MountTarget,
    served: Result<()>,
) -> Result<()> {
    let has_ended = guard.closing();
    let closed = volume::close(fs).map_err(|error| Failure::about(request.source.shown(), error));
    // The mount may still stand: the start has failed, or a second signal did not wait. The volume
    // is open until behind this, so what is mounted there is this mount (CL-3). Otherwise another
    // mount may stand there by now, even with the same number.
    // A connection that was aborted has ended, and its mount stands: every access to it fails.
    // (Where serving has failed, the connection may stand, and nothing would answer.)
    let aborted = served.is_ok() && has_ended && request.fd.is_none() && target.is_dead();
    if served.is_err() || !has_ended || aborted {
        target.unmount_at_exit();
    }
    let outcome = served.and(closed).and(if aborted {
        Err(Failure::about(
            request.dir.shown(),
            "the connection to the kernel was aborted; what it had not written back is lost",
        ))
    } else {
        Ok(())
    });
    if request.announce
        && let Err(failure) = &outcome
    {
        daemon::log(&failure.line);
    }
    if request.verbose && outcome.is_ok() {
        warn(format_args!("{} is unmounted", request.place()));
    }
    outcome
}
