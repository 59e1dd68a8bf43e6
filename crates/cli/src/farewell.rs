//! How a daemon ended, for the process that unmounts.
//!
//! An exit status reaches the parent alone, and `extol umount` is no parent of the daemon. So each
//! daemon listens on a socket before it mounts, and never accepts: connections wait in the kernel
//! until the volume is closed, and only then each gets the exit code and the line that goes with
//! it.
//!
//! ```text
//!   daemon    listen ──► mount ──► serve ─────────────────► close ──► accept all, "32 disk.img: …" ──► end
//!   umount                           connect ──► umount(2) ──► wait for the process ──► read
//! ```
//!
//! The name is an abstract one, of the daemon's process and its start time, so nothing stays behind
//! in any directory and an ordinary user's daemon can have one.
//!
//! - F1: what is read is the daemon's: the kernel tells which process listens, and that must be the
//!   one that the mount names ([`connect`]). Another user can at most take the name away in
//!   advance, or fill the queue of connections; then the end is not heard, and `extol umount` says
//!   so.
//! - F2: a daemon that ends without a word (killed, a mistake in the program) is heard, too: the
//!   connection breaks ([`Heard::how`]).
//! - F3: nothing here waits for the other side. Listening and connecting are done in the kernel,
//!   and a reply is so short that it fits into any socket's buffer ([`LONGEST`]).
//! - F4: a daemon without a free descriptor speaks all the same: one is kept for that
//!   ([`Farewell::say`]).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;

use crate::error::{Failure, Result};

/// Longest reply.
const LONGEST: usize = 1 << 10;

/// The daemon's end.
#[derive(Debug)]
pub struct Farewell(Option<Listening>);

#[derive(Debug)]
struct Listening {
    socket: UnixListener,
    /// A descriptor that is of use only when it is closed.
    spare: UnixDatagram,
}

impl Farewell {
    /// Listens. Does without where such sockets cannot be had at all.
    pub fn listen() -> Result<Self> {
        let Some(name) = name_of(None) else { return Ok(Self(None)) };
        let listening = SocketAddr::from_abstract_name(name).and_then(|address| {
            let socket = UnixListener::bind_addr(&address)?;
            socket.set_nonblocking(true)?;
            Ok(Listening { socket, spare: UnixDatagram::unbound()? })
        });
        match listening {
            Ok(listening) => Ok(Self(Some(listening))),
            Err(error) if is_short(&error) => {
                Err(Failure::system(format_args!("cannot make a socket: {error}")))
            }
            Err(_) => Ok(Self(None)),
        }
    }

    /// Tells every process that waits.
    pub fn say(self, outcome: &Result<()>) {
        let Some(Listening { socket, spare }) = self.0 else { return };
        drop(spare);
        let mut reply = match outcome {
            Ok(()) => "0 ".to_owned(),
            Err(failure) => format!("{} {}", failure.code, failure.line.replace('\n', " ")),
        };
        reply.truncate(reply.floor_char_boundary(LONGEST));
        while let Ok((mut stream, _)) = socket.accept() {
            let _ = stream.set_nonblocking(true);
            let _ = stream.write_all(reply.as_bytes());
        }
    }
}

/// True if there is something too little of, and the next thing that is needed will be missing as
/// well.
fn is_short(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|code| short.contains(&Errno::from_raw_os_error(code)))
}

/// The name on which a process listens, this one or another.
fn name_of(pid: Option<Pid>) -> Option<String> {
    let dir = pid.map_or_else(|| "self".to_owned(), |pid| pid.as_raw_nonzero().to_string());
    let line = std::fs::read_to_string(format!("/proc/{dir}/stat")).ok()?;
    // The second field is the program's name in brackets, and may hold anything.
    let (number, _) = line.split_once(' ')?;
    let (_, fields) = line.rsplit_once(") ")?;
    let start = fields.split(' ').nth(19)?;
    Some(format!("extol/{number}/{start}"))
}

/// A connection to a daemon, from before the unmount.
#[derive(Debug)]
pub struct Heard(UnixStream);

/// Connects to the daemon with this number, if it listens.
pub fn connect(daemon: Pid) -> Option<Heard> {
    let address = SocketAddrUnix::new_abstract_name(name_of(Some(daemon))?.as_bytes()).ok()?;
    // Where too many connections wait already, this one does not.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    let listener = rustix::net::sockopt::socket_peercred(&socket).ok()?;
    (listener.pid == daemon).then(|| Heard(socket.into()))
}

impl Heard {
    /// How the daemon has ended. To be asked when its process is gone.
    pub fn how(self) -> Result<()> {
        let mut reply = Vec::new();
        // (Nothing is on its way any more: what would have to be waited for will not come.)
        match self.0.take(LONGEST as u64).read_to_end(&mut reply) {
            Err(error)
                if !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::WouldBlock) =>
            {
                Err(Failure::system(format_args!("cannot read how the daemon ended: {error}")))
            }
            _ => understand(&reply),
        }
    }
}

fn understand(reply: &[u8]) -> Result<()> {
    let reply = String::from_utf8_lossy(reply);
    let Some((code, line)) = reply.split_once(' ') else {
        return Err(Failure::new(
            "the daemon ended before it had closed the volume: what was not synced may be lost (mount it again, \
             which recovers it, or see the system log)",
        ));
    };
    match code.parse() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            Err(Failure { line, code })
        }
        Err(_) => Err(Failure::new("the daemon's last words make no sense: see the system log")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Pid {
        rustix::process::getpid()
    }

    /// All that have connected hear it, and a name is of one process.
    #[test]
    fn all_hear_the_end() {
        assert!(connect(me()).is_none(), "it does not listen yet");
        let farewell = Farewell::listen().unwrap();
        let waiting: Vec<_> = (0..3).map(|_| connect(me()).expect("connected")).collect();
        let parent = rustix::process::getppid().expect("a parent");
        assert!(connect(parent).is_none());
        farewell.say(&Err(Failure::new("the journal\nwas\x1b[1m aborted")));
        for heard in waiting {
            let failure = heard.how().unwrap_err();
            assert_eq!((failure.code, failure.line.as_str()), (32, "the journal was [1m aborted"));
        }
        assert!(connect(me()).is_none(), "it has ended");

        let farewell = Farewell::listen().unwrap();
        let waiting = connect(me()).expect("connected");
        farewell.say(&Ok(()));
        assert!(waiting.how().is_ok());

        let farewell = Farewell::listen().unwrap();
        let waiting = connect(me()).expect("connected");
        drop(farewell);
        assert!(waiting.how().unwrap_err().line.contains("before it had closed"));
    }

    /// A socket of that name that another process has is not believed.
    #[test]
    fn another_process_is_not_heard() {
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
