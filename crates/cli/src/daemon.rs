//! Going to the background.
//!
//! The parent starts this program once more, in the foreground with `--announce`, its standard
//! output a pipe. The child begins a session of its own, mounts, writes a line into the pipe when
//! the mount answers, and only then leaves the terminal. So the caller sees every error until then,
//! and the parent ends with the child's exit code. No process is ever forked while it has threads.
//!
//! - CL-1: the line is written last, when no step is left that can fail ([`announce`]).
//! - CL-2: a parent that fails leaves neither a child nor a mount behind ([`start`]).
//!
//! Messages of a daemon go to the system log.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use extol_cli_common::{Failure, Result};
use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::sandbox::process;

/// What the child writes.
const READY: &[u8] = b"mounted\n";

/// Runs `words` (the arguments after the program's name) in the background; returns when it is
/// ready. If that fails, `undo` takes away what the child may have left.
pub fn start(words: &[OsString], undo: impl FnOnce()) -> Result<()> {
    let fail =
        |error: std::io::Error| Failure::system(format_args!("cannot start the daemon: {error}"));
    let mut signals = Signals::new(crate::interrupt::ENDING).map_err(fail)?;
    let mut program = process::program();
    if words.iter().any(|word| word == "--clean") {
        process::clean_env(&mut program);
    }
    let mut child =
        program.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let pid = Pid::from_child(&child);
    // The signal that came first; 0: none.
    let interrupted = Arc::new(AtomicI32::new(0));
    let seen = Arc::clone(&interrupted);
    let forward = move || {
        for signal in signals.forever() {
            let first = seen.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
            if let Err(first) = first {
                std::process::exit(i32::from(Failure::interrupted(first).code));
            }
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    };
    let announced = std::thread::Builder::new().spawn(forward).and_then(|_| wait_ready(&mut child));
    let signal = || interrupted.load(Ordering::SeqCst);
    if announced.as_ref().is_ok_and(|ready| *ready) && signal() == 0 {
        return Ok(());
    }
    let _ = rustix::process::kill_process(pid, Signal::TERM);
    let status = child.wait();
    undo();
    announced.map_err(fail)?;
    let status = status.map_err(fail)?;
    match (status.code(), status.signal()) {
        // (The child was sent SIGTERM, whatever came here.)
        (Some(code), _) if signal() != 0 && is_signal(code) => {
            Err(Failure::silent(Failure::interrupted(signal()).code))
        }
        (Some(code), _) if code != 0 => {
            Err(Failure::silent(u8::try_from(code).unwrap_or(Failure::INTERNAL)))
        }
        // The same signal may have come to both.
        (_, Some(_)) if signal() != 0 => Err(Failure::interrupted(signal())),
        (_, Some(signal)) => {
            Err(Failure::system(format_args!("the daemon was killed by signal {signal}")))
        }
        // A signal has ended it before the mount stood.
        _ => Err(Failure::interrupted(signal())),
    }
}

/// True for the exit code of a child that SIGTERM has ended in order.
fn is_signal(code: i32) -> bool {
    code == i32::from(Failure::interrupted(SIGTERM).code)
}

/// Waits for the child's line. True if the mount answers.
fn wait_ready(child: &mut Child) -> std::io::Result<bool> {
    let mut line = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(READY.len() as u64).read_to_end(&mut line)?;
    }
    Ok(line == READY)
}

/// The child, first: leaves the caller's terminal and its signals.
pub fn leave_session() {
    // Fails only if this process leads a group already, which is as good.
    let _ = rustix::process::setsid();
}

/// `/dev/null`, and the socket for the system log.
static NULL: OnceLock<File> = OnceLock::new();
static LOG: OnceLock<UnixDatagram> = OnceLock::new();

fn null() -> std::io::Result<&'static File> {
    if NULL.get().is_none() {
        let _ = NULL.set(File::options().read(true).write(true).open("/dev/null")?);
    }
    NULL.get().ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Opens what a daemon needs later and a confined one may not open, and leaves the caller's
/// directory if it goes to the background.
pub fn prepare(background: bool) -> Result<()> {
    let fail =
        |error: std::io::Error| Failure::system(format_args!("cannot become a daemon: {error}"));
    null().map_err(fail)?;
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = LOG.set(socket);
    }
    if background {
        std::env::set_current_dir("/").map_err(fail)?;
    }
    Ok(())
}

/// The child, when the mount answers: closes what it has inherited, and tells the parent last.
pub fn announce() -> Result<()> {
    let fail =
        |error: std::io::Error| Failure::system(format_args!("cannot become a daemon: {error}"));
    if NULL.get().is_none() {
        prepare(true)?;
    }
    let null = null().map_err(fail)?;
    rustix::stdio::dup2_stdin(null).map_err(|error| fail(error.into()))?;
    match std::io::stdout().write_all(READY).and_then(|()| std::io::stdout().flush()) {
        Ok(()) => {}
        // The parent was interrupted and has reported that.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            return Err(Failure::silent(Failure::INTERRUPTED));
        }
        Err(error) => return Err(fail(error)),
    }
    // All of these descriptors exist, so this does not fail. If it did, messages would go to a
    // terminal.
    let _ = rustix::stdio::dup2_stdout(null);
    let _ = rustix::stdio::dup2_stderr(null);
    std::panic::set_hook(Box::new(|info| log(&format!("internal error: {info}"))));
    Ok(())
}

/// A line for the system log, if there is one.
pub fn log(line: &str) {
    /// Facility daemon, severity error.
    const PRIORITY: u32 = 3 * 8 + 3;
    let line = line.replace('\n', " ");
    let message = format!("<{PRIORITY}>extol[{}]: {line}", std::process::id());
    let send = |socket: &UnixDatagram| socket.send_to(message.as_bytes(), "/dev/log").map(drop);
    match LOG.get() {
        Some(socket) => drop(send(socket)),
        None => drop(UnixDatagram::unbound().and_then(|socket| send(&socket))),
    }
}
