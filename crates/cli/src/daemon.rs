//! Going to the background.
//!
//! The parent starts this program once more, in the foreground with `--announce`, its standard output a pipe. The
//! child begins a session of its own, mounts, writes a line into the pipe when the mount answers, and only then
//! leaves the terminal. So every error until then is seen by whoever called, and the parent ends with the child's
//! exit code. No process is ever forked while it has threads.
//!
//! Messages of a daemon go to the system log.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Failure, Result};

/// What the child writes.
const READY: &[u8] = b"mounted\n";

/// Runs `words` (the arguments after the program's name) in the background; returns when it is ready.
pub fn start(words: &[OsString]) -> Result<()> {
    let fail = |error: std::io::Error| Failure::system(format_args!("cannot start the daemon: {error}"));
    // By its own name, for `ps`; it may have been deleted or replaced, though.
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    let mut child = Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()))
        .arg0("extol")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let pid = rustix::process::Pid::from_child(&child);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(fail)?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            std::process::exit(i32::from(Failure::INTERRUPTED));
        }
    });
    let mut said = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        pipe.take(READY.len() as u64).read_to_end(&mut said).map_err(fail)?;
    }
    if said == READY {
        return Ok(());
    }
    let status = child.wait().map_err(fail)?;
    match (status.code(), status.signal()) {
        (Some(code), _) if code != 0 => Err(Failure::silent(u8::try_from(code).unwrap_or(Failure::INTERNAL))),
        (_, Some(signal)) => Err(Failure::system(format_args!("the daemon was killed by signal {signal}"))),
        // It was told to end before the mount stood.
        _ => Err(Failure { line: "interrupted".into(), code: Failure::INTERRUPTED }),
    }
}

/// The child's side, first thing: away from the caller's terminal and its signals.
pub fn leave_session() {
    // Fails only if this process leads a group already, which is as good.
    let _ = rustix::process::setsid();
}

/// The child's side, when the mount answers: tells the parent, then lets go of everything that it inherited.
pub fn announce() -> Result<()> {
    let fail = |error: std::io::Error| Failure::system(format_args!("cannot become a daemon: {error}"));
    crate::error::write(READY)?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(fail)?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| fail(error.into()))?;
    rustix::stdio::dup2_stdout(&null).map_err(|error| fail(error.into()))?;
    rustix::stdio::dup2_stderr(&null).map_err(|error| fail(error.into()))?;
    std::env::set_current_dir("/").map_err(fail)?;
    std::panic::set_hook(Box::new(|info| log(&format!("internal error: {info}"))));
    Ok(())
}

/// A line for the system log, if there is one.
pub fn log(line: &str) {
    /// Facility daemon, severity error.
    const PRIORITY: u32 = 3 * 8 + 3;
    let line = line.replace('\n', " ");
    let message = format!("<{PRIORITY}>extol[{}]: {line}", std::process::id());
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.send_to(message.as_bytes(), "/dev/log");
    }
}
