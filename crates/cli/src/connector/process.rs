//! Both sides: that of the daemon, and the process.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use extol_block::open::{self, Claimed, Opened};
use extol_block::{Dial, Dialer, NetworkDevice};
use extol_cli_common::{Failure, Result};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::thread::CapabilitySet;

use crate::args::ConnectorArgs;
use crate::{interrupt, sandbox};

/// Bytes of a request: its number, and milliseconds.
const REQUEST_LEN: usize = 16;
/// Bytes of an answer without its line, and with the longest.
const HEAD_LEN: usize = 9;
const ANSWER_LEN: usize = 512;
/// How much longer than a connection its answer may take.
const SLACK: Duration = Duration::from_secs(2);

/// Codes of an answer.
const CONNECTED: u8 = 0;
const NOT_REACHED: u8 = 1;

/// The daemon's side.
#[derive(Debug)]
struct Connector(Mutex<Channel>);

#[derive(Debug)]
struct Channel {
    socket: OwnedFd,
    next: u64,
}

/// Lets a connector make the connections of what was opened for a daemon that will be confined.
pub fn for_claimed(claimed: &Claimed) -> Result<()> {
    claimed.network().map_or(Ok(()), start_for)
}

/// As [`for_claimed`].
pub fn for_opened(opened: &Opened) -> Result<()> {
    opened.base.network().map_or(Ok(()), start_for)
}

fn start_for(device: &NetworkDevice) -> Result<()> {
    if sandbox::is_planned() && device.reconnects() {
        device.dial_by(Arc::new(Connector::start(device.path())?));
    }
    Ok(())
}

impl Connector {
    fn start(address: &Path) -> Result<Self> {
        let fail =
            |error: io::Error| Failure::system(format_args!("cannot start the connector: {error}"));
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| fail(error.into()))?;
        let words: [OsString; 3] = ["mount-connector".into(), "--".into(), address.into()];
        let mut command = sandbox::process::program();
        sandbox::process::clean_env(command.args(words)).process_group(0);
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(fail)?;
        drop(command);
        Ok(Self(Mutex::new(Channel { socket: ours, next: 0 })))
    }
}

impl Dial for Connector {
    fn dial(&self, timeout: Duration) -> io::Result<OwnedFd> {
        let mut channel = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel.next += 1;
        channel.ask(timeout)
    }
}

impl Channel {
    fn ask(&self, timeout: Duration) -> io::Result<OwnedFd> {
        let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = [self.next.to_le_bytes(), millis.to_le_bytes()].concat();
        rustix::io::retry_on_intr(|| {
            rustix::net::send(&self.socket, &request, SendFlags::NOSIGNAL)
        })
        .map_err(|_| gone())?;
        let until = Instant::now() + timeout + SLACK;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(left))?;
            let mut answer = [0; ANSWER_LEN];
            let (len, socket) = match receive(self.socket.as_fd(), &mut answer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                other => other?,
            };
            let Some((head, line)) = answer[..len].split_at_checked(HEAD_LEN) else {
                return Err(gone());
            };
            if head[..8] != self.next.to_le_bytes() {
                continue;
            }
            return match (head[8], socket) {
                (CONNECTED, Some(socket)) => Ok(socket),
                _ => Err(io::Error::other(String::from_utf8_lossy(line).into_owned())),
            };
        }
    }
}

/// The connector is gone, and with it every connection to come.
fn gone() -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, "the process that connects for the mount is gone")
}

/// A message, and the descriptor that comes with it. 0 bytes: the other side is gone.
fn receive(from: BorrowedFd<'_>, message: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut [IoSliceMut::new(message)], &mut with, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = with.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok((received.bytes, rights))
}

fn answer(to: BorrowedFd<'_>, number: [u8; 8], made: &io::Result<OwnedFd>) -> io::Result<()> {
    let (code, line) = match made {
        Ok(_) => (CONNECTED, String::new()),
        Err(error) => (NOT_REACHED, error.to_string()),
    };
    let line = &line.as_bytes()[..line.len().min(ANSWER_LEN - HEAD_LEN)];
    let message = [&number[..], &[code], line].concat();
    let sockets: Vec<_> = made.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    rustix::io::retry_on_intr(|| {
        sendmsg(to, &[IoSlice::new(&message)], &mut with, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// `extol mount-connector`.
pub fn run(args: &ConnectorArgs) -> Result<()> {
    let fail = |error: io::Error| Failure::system(format_args!("connector: {error}"));
    sandbox::process::close_inherited(None);
    for signal in interrupt::ENDING {
        signal_hook::flag::register(signal, Arc::default()).map_err(fail)?;
    }
    let dialer = open::dialer(&args.address).map_err(fail)?;
    std::env::set_current_dir("/").map_err(fail)?;
    confine(&dialer)?;
    serve(std::io::stdin().as_fd(), &dialer);
    Ok(())
}

/// Makes connections until the daemon is gone.
fn serve(requests: BorrowedFd<'_>, dialer: &dyn Dial) {
    let mut request = [0; REQUEST_LEN];
    while let Ok((REQUEST_LEN, _)) = receive(requests, &mut request) {
        let (number, millis) = request.split_at(8);
        let (Ok(number), Ok(millis)) = (number.try_into(), millis.try_into()) else { return };
        let made = dialer.dial(Duration::from_millis(u64::from_le_bytes(millis)));
        if answer(requests, number, &made).is_err() {
            return;
        }
    }
}

fn confine(dialer: &Dialer) -> Result<()> {
    sandbox::process::protect();
    let keep = match dialer.port() {
        None => CapabilitySet::DAC_OVERRIDE,
        Some(_) => CapabilitySet::empty(),
    };
    sandbox::prepare(&sandbox::Config {
        kind: sandbox::Kind::Connector,
        keep,
        files: &[],
        port: dialer.port(),
        required: false,
    })?;
    sandbox::enter()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Refuses the first, and hands over one end of a pair then.
    #[derive(Debug)]
    struct Pairs(AtomicBool);

    impl Dial for Pairs {
        fn dial(&self, timeout: Duration) -> io::Result<OwnedFd> {
            assert_eq!(timeout, Duration::from_millis(1500));
            if self.0.swap(true, Ordering::Relaxed) {
                let (ours, theirs) = UnixStream::pair()?;
                io::Write::write_all(&mut &theirs, b"hello")?;
                Ok(ours.into())
            } else {
                Err(io::Error::other("no server"))
            }
        }
    }

    #[test]
    fn connections_and_refusals_come_through() {
        let pair = || {
            let none = SocketFlags::CLOEXEC;
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, none, None).unwrap()
        };
        let (ours, theirs) = pair();
        let process = std::thread::spawn(move || {
            // An answer to another request first: it is not taken.
            answer(theirs.as_fd(), 77_u64.to_le_bytes(), &Err(io::Error::other("late"))).unwrap();
            serve(theirs.as_fd(), &Pairs(AtomicBool::new(false)));
        });
        let connector = Connector(Mutex::new(Channel { socket: ours, next: 0 }));
        let timeout = Duration::from_millis(1500);
        assert_eq!(connector.dial(timeout).unwrap_err().to_string(), "no server");
        let mut got = String::new();
        let socket = UnixStream::from(connector.dial(timeout).unwrap());
        io::Read::read_to_string(&mut &socket, &mut got).unwrap();
        assert_eq!(got, "hello");
        drop(connector);
        process.join().unwrap();
        let (ours, theirs) = pair();
        drop(theirs);
        let connector = Connector(Mutex::new(Channel { socket: ours, next: 0 }));
        let refused = connector.dial(timeout).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    }
}
