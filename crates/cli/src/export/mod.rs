//! `extol export`: serves a volume over NFS.
//!
//! ```text
//!   run ─► request.rs: options, addresses ─► secret.rs
//!      └─► foreground ─► listen, sandbox, open, serve, close
//!      └─► background: daemon.rs starts this program again
//! ```

pub mod control;
mod pid_file;
mod request;
mod secret;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use extol_cli_common::{Failure, Result, warn};
use extol_nfs::{Export, Server, Stopper};
use extol_proc::Shown as _;
use extol_vfs::{Mountable, bytes_text};

use crate::args::ExportArgs;
use crate::exit_report::ExitReporter;
use crate::metrics::{self, Metrics};
use crate::sandbox::{self, process};
use crate::signals::Guard;
use crate::volume::{self, Source, Volume};
use crate::watch::{self, Errors};
use crate::{daemon, interrupt, limits};

use control::Control;
use pid_file::PidFile;
use request::Request;

/// Exports.
pub fn run(args: &ExportArgs) -> Result<()> {
    let mut request = Request::new(args)?;
    if args.stop {
        let running = control::find(&request.source, request.part)?;
        let none = || Failure::about(request.source.shown(), "no process of this user exports it");
        return running.ok_or_else(none)?.stop();
    }
    keep_secret(&mut request)?;
    if !request.foreground {
        return daemon::start(&request.daemon_words(), || ());
    }
    if !request.no_sandbox && !args.clean {
        return Err(process::restart_with_clean_env(&request.daemon_words()));
    }
    if request.announce {
        daemon::leave_session();
    }
    process::close_inherited(None);
    limits::take_descriptors()?;
    serve(request)
}

/// Reads the secret of the export, or makes one. The first of its processes finds the directory and
/// tells the others.
fn keep_secret(request: &mut Request) -> Result<()> {
    if let Some(dir) = &request.state_dir {
        let dir =
            std::path::absolute(dir).map_err(|error| Failure::system_call(dir.shown(), error))?;
        request.config.secret = Some(secret::of(&dir)?);
        request.state_dir = Some(dir);
    }
    if request.state_dir.is_some() || request.is_restarted {
        return Ok(());
    }
    let found = secret::usual_dir().map(|dir| secret::of(&dir).map(|secret| (dir, secret)));
    match found {
        Some(Ok((dir, secret))) => {
            request.config.secret = Some(secret);
            request.state_dir = Some(dir);
        }
        Some(Err(failure)) => warn(format_args!(
            "{}; the handles of clients end with this server (--state-dir DIR keeps them)",
            failure.line
        )),
        None => warn(
            "there is no directory for state: the handles of clients end with this server \
             (--state-dir DIR keeps them)",
        ),
    }
    Ok(())
}

/// Opens the volume, serves it until a signal comes, and closes it.
fn serve(mut request: Request) -> Result<()> {
    // Before the sandbox, which lets no address be bound.
    let listener = request.bind()?;
    let address = listener.local_addr().map_err(|error| request.cannot_listen(error))?;
    let metrics = request.metrics.as_deref().map(Metrics::bind).transpose()?;
    let mut pid_file = request.pid_file.as_deref().map(PidFile::take).transpose()?;
    let reporter = ExitReporter::listen()?;
    confine(&request)?;
    let guard = Guard::start()?;
    let part = request.part;
    let source = request.source.clone();
    let source = Source { path: &source, part };
    if volume::is_write_protected(source) && !request.volume.access.read_only {
        request.volume.access.read_only = true;
        let line = format_args!("{}: WARNING: source write-protected, exported read-only.", {
            request.source.shown()
        });
        warn(line);
    }
    // The claim keeps a block device for this process.
    let (fs, _claim) = volume::open_for_mount(source, &request.volume, false)
        .map_err(|failure| interrupt::check().err().unwrap_or(failure))?;
    for text in fs.notes() {
        warn(format_args!("{}: {text}", request.source.shown()));
    }
    if let Some(metrics) = metrics {
        let source = bytes_text(request.source.as_os_str().as_encoded_bytes());
        metrics.serve(request.source.shown(), &source, &fs, request.verbose)?;
    }
    let control = Control::listen(source);
    let listening = Listening { listener, address, control };
    let served = answer(&request, &fs, listening, pid_file.as_mut(), &guard);
    interrupt::has_served();
    let has_failed = served.is_err();
    guard.closing();
    let closed = volume::close(&fs).map_err(|error| Failure::about(request.source.shown(), error));
    let outcome = if has_failed { served } else { closed };
    if let (true, Err(failure)) = (request.announce, &outcome) {
        daemon::log(&failure.line);
    }
    if request.verbose && outcome.is_ok() {
        warn(format_args!("{} is closed", request.source.shown()));
    }
    reporter.send(&outcome);
    outcome
}

/// The socket by which others find the export, opened before the sandbox.
struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    control: Control,
}

/// Prepares the sandbox, in which the volume is read and clients are served.
fn confine(request: &Request) -> Result<()> {
    if request.no_sandbox {
        return Ok(());
    }
    daemon::prepare(request.announce)?;
    let writes = !request.volume.access.read_only;
    let mut files = vec![(extol_proc::image_of(&request.source), writes)];
    let journal = request.volume.journal.path.as_deref().map(extol_proc::image_of);
    files.extend(journal.map(|path| (path, writes)));
    sandbox::prepare(&sandbox::Config {
        kind: sandbox::Kind::Daemon,
        keep: sandbox::DAEMON,
        files: &files,
        port: None,
        required: false,
    })
}

/// Serves an open volume until it is told to end.
fn answer(
    request: &Request,
    fs: &Arc<Volume>,
    listening: Listening,
    pid_file: Option<&mut PidFile>,
    guard: &Guard,
) -> Result<()> {
    let Listening { listener, address, control } = listening;
    let mut config = request.config.clone();
    config.read_only |= fs.is_read_only();
    let exported = Export::new(Arc::clone(fs) as Arc<dyn Mountable>, config);
    let export = exported.map_err(|error| Failure::about(request.source.shown(), error))?;
    let (verbose, background) = (request.verbose, request.announce);
    let log = move |line: &str| match (verbose, background) {
        (false, _) => {}
        (true, true) => daemon::log(line),
        (true, false) => warn(line),
    };
    let fail = |error: std::io::Error| Failure::system_call("the server", error);
    let server = Server::new(export, listener, Arc::new(log)).map_err(fail)?;
    metrics::count(metrics::Counters::Export(server.counters()));
    guard.exported(server.stopper())?;
    if !request.no_sandbox {
        process::protect();
        sandbox::enter()?;
    }
    start_watch(request, fs, server.stopper())?;
    control.serve(fs, server.counters(), address)?;
    pid_file.map_or(Ok(()), PidFile::write)?;
    // No step behind this may fail.
    say_ready(request, address)?;
    server.run().map_err(fail)?;
    if fs.panic_wanted() {
        return Err(Failure::about(
            request.source.shown(),
            "an error on the volume ended the export (errors=panic)",
        ));
    }
    Ok(())
}

/// Says where the export answers, and in the background how to end it.
fn say_ready(request: &Request, address: SocketAddr) -> Result<()> {
    let source = request.source.shown();
    if request.announce {
        warn(format_args!(
            "{source} is exported at {address} by process {} (\"kill {0}\" ends it)",
            std::process::id()
        ));
        return daemon::announce();
    }
    let mut out = std::io::stdout().lock();
    // A reader that has gone does not need the line.
    let _ = writeln!(out, "{source} is exported at {address}").and_then(|()| out.flush());
    Ok(())
}

/// Starts a thread that reports the first error of the volume or its device. With `errors=panic` an
/// error ends the export.
fn start_watch(request: &Request, fs: &Arc<Volume>, stopper: Stopper) -> Result<()> {
    let fs = Arc::downgrade(fs);
    let mut errors = Errors::of(request.source.shown().to_string(), request.announce);
    watch::start(move || {
        for round in 1u32.. {
            let Some(fs) = fs.upgrade().filter(|_| !stopper.is_stopped()) else { return };
            if round.is_multiple_of(watch::LOOK_EVERY) {
                fs.check_device();
            }
            errors.report(&fs);
            if fs.panic_wanted() {
                return stopper.stop();
            }
            drop(fs);
            std::thread::sleep(watch::INTERVAL);
        }
    })
}
