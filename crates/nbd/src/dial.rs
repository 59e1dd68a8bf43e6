//! Making connections: by this process, or by another one that hands them over.
//!
//! A process in a sandbox may not connect. It keeps a [`Dial`] of its own instead, behind which
//! another process has a [`Dialer`] for one address and does nothing else.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::{Error, Place, Result, Uri};

/// A peer that is gone is noticed after this time, if it was to answer at once.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What makes connections to the server of one address.
pub trait Dial: std::fmt::Debug + Send + Sync {
    /// A new connection, as a stream socket of the address's kind.
    ///
    /// # Errors
    /// The server is not reached in this time, or this process may not connect.
    fn dial(&self, timeout: Duration) -> io::Result<OwnedFd>;
}

/// Where to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Peer {
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

/// Connects to the server of one address. Its name was resolved once.
#[derive(Clone, Debug)]
pub struct Dialer(Peer);

impl Dialer {
    /// For the server of an address.
    ///
    /// # Errors
    /// Its host is not found.
    pub fn new(uri: &Uri) -> Result<Self> {
        match &uri.place {
            Place::Unix(path) => Ok(Self(Peer::Unix(path.clone()))),
            Place::Tcp(host, port) => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let found = found.map_err(|error| {
                    Error::broken(&format!("the host {} is not found", host.escape_debug()), &error)
                })?;
                Ok(Self(Peer::Tcp(found.collect())))
            }
        }
    }
}

impl Dialer {
    /// The port, if it is reached over TCP; else by a Unix socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.0 {
            Peer::Unix(_) => None,
            Peer::Tcp(addresses) => addresses.first().map(SocketAddr::port),
        }
    }
}

impl Dial for Dialer {
    fn dial(&self, timeout: Duration) -> io::Result<OwnedFd> {
        let addresses = match &self.0 {
            Peer::Unix(path) => return UnixStream::connect(path).map(OwnedFd::from),
            Peer::Tcp(addresses) => addresses,
        };
        let until = Instant::now() + timeout;
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(address, left).and_then(prepare) {
                Ok(socket) => return Ok(socket.into()),
                Err(error) => failed = io::Error::new(error.kind(), format!("{address}: {error}")),
            }
        }
        Err(failed)
    }
}

/// Requests go out at once, and a peer that is gone is noticed.
fn prepare(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE / 2)?;
    sockopt::set_tcp_keepcnt(&socket, 4)?;
    // (Other systems give up a peer that does not acknowledge after a time of their own.)
    #[cfg(target_os = "linux")]
    {
        let most = u32::try_from((KEEPALIVE * 3).as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&socket, most)?;
    }
    Ok(socket)
}
