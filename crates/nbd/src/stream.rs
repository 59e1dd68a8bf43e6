//! The bytes of a connection: TCP or a Unix socket, with TLS or without.
//!
//! One thread at a time sends, and another one at a time receives. With TLS both share its state,
//! which is locked while bytes are enciphered or deciphered and never while a system call waits:
//! a thread that cannot send because the peer does not read must not keep the other from reading.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Error, Place, Result};

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).read(buf),
            Self::Unix(socket) => (&mut &*socket).read(buf),
        }
    }

    fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&mut &*socket).write_vectored(bufs),
            Self::Unix(socket) => (&mut &*socket).write_vectored(bufs),
        }
    }

    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                socket.set_read_timeout(Some(time))?;
                socket.set_write_timeout(Some(time))
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(time))?;
                socket.set_write_timeout(Some(time))
            }
        }
    }

    fn shutdown(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

#[cfg(feature = "tls")]
pub(crate) type Tls = Arc<crate::tls::Session>;
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

/// A connection before it is divided.
#[derive(Debug)]
pub(crate) struct Stream {
    pub sender: Sender,
    pub receiver: Receiver,
}

impl Stream {
    /// Takes over a socket that is connected.
    pub fn new(socket: OwnedFd, place: &Place, timeout: Duration) -> Result<Self> {
        let socket = Arc::new(match place {
            Place::Tcp(..) => Socket::Tcp(socket.into()),
            Place::Unix(_) => Socket::Unix(socket.into()),
        });
        socket.set_timeout(timeout).map_err(|error| Error::broken("cannot connect", &error))?;
        Ok(Self {
            sender: Sender { socket: socket.clone(), tls: None, timeout },
            receiver: Receiver { socket, tls: None, timeout, buffer: Vec::new(), start: 0 },
        })
    }

    /// Changes the time after which a peer that says nothing is given up.
    pub fn set_timeout(&mut self, timeout: Duration) -> Result<()> {
        let set = self.sender.socket.set_timeout(timeout);
        set.map_err(|error| Error::broken("cannot set the timeout", &error))?;
        (self.sender.timeout, self.receiver.timeout) = (timeout, timeout);
        Ok(())
    }

    /// Begins TLS. All that was received was read, so that nothing from before is taken for
    /// something inside.
    #[cfg(feature = "tls")]
    pub fn start_tls(&mut self, setup: &crate::tls::Setup) -> Result<()> {
        if !self.receiver.buffer.is_empty() {
            return Err(Error::protocol("more than the answer comes before TLS"));
        }
        let until = Instant::now() + self.sender.timeout;
        let socket = &self.sender.socket;
        let session = setup.handshake(
            &mut |buf| receive_some(socket, buf, until, self.receiver.timeout),
            &mut |bytes| send_all(socket, &mut [IoSlice::new(bytes)], self.sender.timeout),
        )?;
        let session = Arc::new(session);
        self.sender.tls = Some(session.clone());
        self.receiver.tls = Some(session);
        Ok(())
    }
}

/// The half that sends.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: Arc<Socket>,
    tls: Option<Tls>,
    timeout: Duration,
}

impl Sender {
    pub fn send(&mut self, bufs: &mut [IoSlice<'_>]) -> Result<()> {
        match &self.tls {
            None => send_all(&self.socket, bufs, self.timeout),
            #[cfg(feature = "tls")]
            Some(tls) => {
                let socket = &self.socket;
                tls.send(bufs, &mut |bytes| {
                    send_all(socket, &mut [IoSlice::new(bytes)], self.timeout)
                })
            }
            #[cfg(not(feature = "tls"))]
            Some(tls) => match *tls {},
        }
    }

    /// Fails if the server has closed the connection. (Bytes that are there are no reason.)
    pub fn check_open(&self) -> Result<()> {
        use rustix::net::{RecvFlags, recv};
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0; 1];
        let peeked = match &*self.socket {
            Socket::Tcp(socket) => recv(socket, &mut byte[..], flags),
            Socket::Unix(socket) => recv(socket, &mut byte[..], flags),
        };
        match peeked {
            Ok((0, _)) => Err(closed()),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::broken("the connection broke", &error.into())),
        }
    }

    /// Ends the connection in both directions.
    pub fn closer(&self) -> Closer {
        Closer(self.socket.clone())
    }
}

/// Ends a connection, whatever others do with it.
#[derive(Debug)]
pub(crate) struct Closer(Arc<Socket>);

impl Closer {
    pub fn close(&self) {
        self.0.shutdown();
    }
}

/// The half that receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: Arc<Socket>,
    tls: Option<Tls>,
    timeout: Duration,
    /// What was received and not read yet, from `start` on.
    buffer: Vec<u8>,
    start: usize,
}

/// Bytes that are received at a time, where fewer are wanted.
const AHEAD: usize = 16 << 10;

impl Receiver {
    /// Fills `buf`. More than that may be received, and is kept.
    pub fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        let until = Instant::now() + self.timeout;
        let mut filled = self.take(buf);
        while filled < buf.len() {
            if buf.len() - filled >= AHEAD {
                let rest = &mut buf[filled..];
                filled += receive(&self.socket, self.tls.as_ref(), rest, until, self.timeout)?;
                continue;
            }
            self.buffer.resize(AHEAD, 0);
            self.start = 0;
            let tls = self.tls.as_ref();
            let got = receive(&self.socket, tls, &mut self.buffer, until, self.timeout);
            self.buffer.truncate(*got.as_ref().unwrap_or(&0));
            got?;
            filled += self.take(&mut buf[filled..]);
        }
        Ok(())
    }

    /// Fills `buf` without receiving more than that.
    pub fn read_only(&mut self, buf: &mut [u8]) -> Result<()> {
        let until = Instant::now() + self.timeout;
        let mut filled = self.take(buf);
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            filled += receive(&self.socket, self.tls.as_ref(), rest, until, self.timeout)?;
        }
        Ok(())
    }

    fn take(&mut self, buf: &mut [u8]) -> usize {
        let have = self.buffer.get(self.start..).unwrap_or_default();
        let len = have.len().min(buf.len());
        buf[..len].copy_from_slice(&have[..len]);
        self.start += len;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        len
    }
}

fn closed() -> Error {
    let kind = io::ErrorKind::UnexpectedEof;
    Error::Broken { kind, why: "the server has closed the connection".into() }
}

/// Receives at least one byte.
fn receive(
    socket: &Socket,
    tls: Option<&Tls>,
    buf: &mut [u8],
    until: Instant,
    timeout: Duration,
) -> Result<usize> {
    match tls {
        None => receive_some(socket, buf, until, timeout),
        #[cfg(feature = "tls")]
        Some(tls) => tls.receive(buf, &mut |raw| receive_some(socket, raw, until, timeout)),
        #[cfg(not(feature = "tls"))]
        Some(tls) => match *tls {},
    }
}

/// Receives at least one byte. A peer that sends a few bytes at a time is given up at `until`.
fn receive_some(
    socket: &Socket,
    buf: &mut [u8],
    until: Instant,
    timeout: Duration,
) -> Result<usize> {
    loop {
        return match socket.read(buf) {
            Ok(0) => Err(closed()),
            Ok(len) if len < buf.len() && Instant::now() >= until => {
                Err(Error::TimedOut { after: timeout })
            }
            Ok(len) => Ok(len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_timeout(&error) => Err(Error::TimedOut { after: timeout }),
            Err(error) => Err(Error::broken("the connection broke", &error)),
        };
    }
}

fn send_all(socket: &Socket, mut bufs: &mut [IoSlice<'_>], timeout: Duration) -> Result<()> {
    // (An empty buffer is skipped: a write of none is no progress.)
    IoSlice::advance_slices(&mut bufs, 0);
    while !bufs.is_empty() {
        match socket.write_vectored(bufs) {
            Ok(0) => {
                return Err(Error::broken(
                    "the connection broke",
                    &io::ErrorKind::WriteZero.into(),
                ));
            }
            Ok(len) => IoSlice::advance_slices(&mut bufs, len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => return Err(Error::TimedOut { after: timeout }),
            Err(error) => return Err(Error::broken("the connection broke", &error)),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    // (ETIMEDOUT is something else: the host of the server is gone.)
    error.kind() == io::ErrorKind::WouldBlock
}
