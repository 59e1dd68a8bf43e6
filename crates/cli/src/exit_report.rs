//! How a daemon ended, for the process that unmounts.
//!
//! An exit status reaches the parent alone, and `extol umount` is no parent of the daemon. So each
//! daemon listens on a socket before it mounts, and never accepts: connections wait in the kernel
//! until the volume is closed, and only then each gets the exit code and the line that goes with
//! it.
//!
//! ```text
//!   daemon    listen ─► mount ─► serve ─────────────► close ─► accept all, "32 disk.img: …" ─► end
//!   umount                       connect ─► umount(2) ─► wait for the process ─► read
//! ```
//!
//! The name is an abstract one, of the daemon's process and its start time, so nothing stays behind
//! in any directory and an ordinary user's daemon can have one.
//!
//! - CL-5: a report is the daemon's: the kernel names the process that listens, and that must be
//!   the one that the mount names ([`connect`]). Another user can at most take the name away in
//!   advance, or fill the queue of connections; then there is no report, and `extol umount` says
//!   so.
//! - CL-6: a daemon that ends without a report (killed, an error in the program) is noticed: the
//!   connection breaks ([`Connection::read`]).
//! - CL-7: nothing here waits for the other side. Listening and connecting are done in the kernel,
//!   and a report is so short that it fits into any socket's buffer ([`MAX_LEN`]).
//! - CL-8: a daemon without a free descriptor reports all the same: one is reserved for that
//!   ([`ExitReporter::send`]).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use extol_cli_common::{Failure, Result};
use extol_proc::Process;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;

/// Longest report.
const MAX_LEN: usize = 1 << 10;

/// The daemon's side.
#[derive(Debug)]
pub struct ExitReporter(Option<Listening>);

#[derive(Debug)]
struct Listening {
    socket: UnixListener,
    /// Closed before the first accept, which needs a descriptor.
    reserved: UnixDatagram,
}

impl ExitReporter {
    /// Listens. Where the system has no such sockets, the daemon does without.
    pub fn listen() -> Result<Self> {
        let Some(name) = name_of(None) else { return Ok(Self(None)) };
        let listening = SocketAddr::from_abstract_name(name).and_then(|address| {
            let socket = UnixListener::bind_addr(&address)?;
            socket.set_nonblocking(true)?;
            Ok(Listening { socket, reserved: UnixDatagram::unbound()? })
        });
        match listening {
            Ok(listening) => Ok(Self(Some(listening))),
            Err(error) if is_exhausted(&error) => {
                Err(Failure::system(format_args!("cannot make a socket: {error}")))
            }
            Err(_) => Ok(Self(None)),
        }
    }

    /// Sends the outcome to every process that waits.
    pub fn send(self, outcome: &Result<()>) {
        let Some(Listening { socket, reserved }) = self.0 else { return };
        drop(reserved);
        let mut report = match outcome {
            Ok(()) => "0 ".to_owned(),
            Err(failure) => format!("{} {}", failure.code, failure.line.replace('\n', " ")),
        };
        report.truncate(report.floor_char_boundary(MAX_LEN));
        while let Ok((mut stream, _)) = socket.accept() {
            let _ = stream.set_nonblocking(true);
            let _ = stream.write_all(report.as_bytes());
        }
    }
}

/// True if a resource is used up, so that the next step of a mount would fail as well.
fn is_exhausted(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|code| exhausted.contains(&Errno::from_raw_os_error(code)))
}

/// The name on which a process listens, this one or another.
fn name_of(pid: Option<Pid>) -> Option<String> {
    let dir = pid.map_or_else(|| "self".to_owned(), |pid| pid.as_raw_nonzero().to_string());
    let line = extol_proc::read(format!("/proc/{dir}/stat"))?;
    // (As `/proc` counts, also for this process.)
    let number = extol_proc::number(extol_proc::words(&line).next()?)?;
    let start = Process(number).start_time()?;
    Some(format!("extol/{number}/{start}"))
}

/// A connection to a daemon, made before the unmount.
#[derive(Debug)]
pub struct Connection(UnixStream);

/// Connects to the daemon with this number, if it listens.
pub fn connect(daemon: Pid) -> Option<Connection> {
    let address = SocketAddrUnix::new_abstract_name(name_of(Some(daemon))?.as_bytes()).ok()?;
    // Does not wait where the queue is full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    let listener = rustix::net::sockopt::socket_peercred(&socket).ok()?;
    (listener.pid == daemon).then(|| Connection(socket.into()))
}

impl Connection {
    /// How the daemon has ended. To be called when its process has ended: then the whole report has
    /// arrived, and no read waits.
    pub fn read(self) -> Result<()> {
        let mut report = Vec::new();
        match self.0.take(MAX_LEN as u64).read_to_end(&mut report) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::WouldBlock) =>
            {
                Err(Failure::system(format_args!("cannot read how the daemon ended: {error}")))
            }
            _ => parse(&report),
        }
    }
}

fn parse(report: &[u8]) -> Result<()> {
    let report = String::from_utf8_lossy(report);
    let Some((code, line)) = report.split_once(' ') else {
        return Err(Failure::new(
            "the daemon ended before it had closed the volume: what was not synced may be lost \
             (mount it again, which recovers it, or see the system log)",
        ));
    };
    match code.parse() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            Err(Failure { line, code })
        }
        Err(_) => Err(Failure::new("the daemon's exit report is unreadable: see the system log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> Pid {
        rustix::process::getpid()
    }

    /// Every connection gets the report, and a name is of one process.
    #[test]
    fn every_connection_gets_the_report() {
        assert!(connect(own_pid()).is_none(), "it does not listen yet");
        let reporter = ExitReporter::listen().unwrap();
        let waiting: Vec<_> = (0..3).map(|_| connect(own_pid()).expect("connected")).collect();
        let parent = rustix::process::getppid().expect("a parent");
        assert!(connect(parent).is_none());
        reporter.send(&Err(Failure::new("the journal\nwas\x1b[1m aborted")));
        for connection in waiting {
            let failure = connection.read().unwrap_err();
            assert_eq!((failure.code, failure.line.as_str()), (32, "the journal was [1m aborted"));
        }
        assert!(connect(own_pid()).is_none(), "it has ended");

        let reporter = ExitReporter::listen().unwrap();
        let connection = connect(own_pid()).expect("connected");
        reporter.send(&Ok(()));
        assert!(connection.read().is_ok());

        let reporter = ExitReporter::listen().unwrap();
        let connection = connect(own_pid()).expect("connected");
        drop(reporter);
        assert!(connection.read().unwrap_err().line.contains("before it had closed"));
    }

    /// A socket of that name that another process has is not believed.
    #[test]
    fn another_process_is_not_believed() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&sleeper);
        let name = name_of(Some(pid)).unwrap();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        assert!(UnixStream::connect_addr(&address).is_ok());
        assert!(connect(pid).is_none());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
